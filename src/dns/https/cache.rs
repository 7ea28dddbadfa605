//! The driver of the cache of HTTPS records: locks the core, and runs the queries that it asks for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Either;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::record::HttpsAnswer;
use super::state::{Found, HttpsLimits, HttpsOutcome, HttpsState, StartedQuery};
use crate::clock::{Instant, now};
use crate::dns::ResolveErrorKind;
use crate::dns::resolve::Upstream;

type OutcomeReceiver = watch::Receiver<Option<HttpsOutcome>>;
type OutcomeSender = watch::Sender<Option<HttpsOutcome>>;

/// The HTTPS records of names, and the queries for them.
pub(in crate::dns) struct HttpsCache {
    upstream: Arc<Upstream>,
    query_timeout: Duration,
    /// The longest that a lookup waits for a query, which may run on a runtime that is not driven.
    longest_wait: Duration,
    state: Mutex<HttpsState<OutcomeReceiver>>,
}

impl HttpsCache {
    pub(in crate::dns) fn new(upstream: Arc<Upstream>, query_timeout: Duration, limits: HttpsLimits) -> Self {
        let longest_wait = limits.max_query_time;
        Self { upstream, query_timeout, longest_wait, state: Mutex::new(HttpsState::new(limits)) }
    }

    /// Looks up the records of `name`. Returns the outcome, or a future that waits for it. A hit allocates nothing.
    pub(in crate::dns) fn lookup(
        self: &Arc<Self>,
        now: Instant,
        name: &str,
    ) -> Either<HttpsOutcome, impl Future<Output = HttpsOutcome> + Send + use<>> {
        let mut sender = None;
        let found = self.state.lock().get(now, name, || {
            let (outcome_sender, receiver) = watch::channel(None);
            sender = Some(outcome_sender);
            receiver
        });
        let receiver = match found {
            Found::Known(outcome, query) => {
                self.start(name, query, sender);
                return Either::Left(outcome);
            }
            Found::Start(query, receiver) => {
                self.start(name, Some(query), sender);
                receiver
            }
            Found::Join(receiver) => receiver,
        };
        let longest_wait = self.longest_wait;
        Either::Right(async move {
            match tokio::time::timeout(longest_wait, received(receiver)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(ResolveErrorKind::Timeout),
            }
        })
    }

    pub(in crate::dns) fn invalidate(&self, name: &str) {
        self.state.lock().invalidate(name);
    }

    pub(in crate::dns) fn flush(&self) {
        self.state.lock().flush();
    }

    /// Runs a query in a task of its own, so that it goes on when the lookup that started it is cancelled. Outside of a runtime
    /// it is dropped.
    fn start(self: &Arc<Self>, name: &str, query: Option<StartedQuery>, sender: Option<OutcomeSender>) {
        let (Some(query), Some(sender)) = (query, sender) else { return };
        let running = RunningQuery { cache: self.clone(), name: name.into(), query, sender: Some(sender) };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(running.run().boxed());
        }
    }
}

/// A query that runs. Dropped before its end, it is removed from the cache, so that another one can start.
struct RunningQuery {
    cache: Arc<HttpsCache>,
    name: Box<str>,
    query: StartedQuery,
    /// The end that reports the outcome; `None` once it has.
    sender: Option<OutcomeSender>,
}

impl RunningQuery {
    async fn run(mut self) {
        let upstream = self.cache.upstream.current();
        let resolving = upstream.resolve_https(&self.name);
        let result: Result<HttpsAnswer, _> =
            tokio::time::timeout(self.cache.query_timeout, resolving).await.unwrap_or(Err(ResolveErrorKind::Timeout));
        let outcome = self.cache.state.lock().complete(now(), &self.name, self.query, result);
        if let Some(sender) = self.sender.take() {
            // An error means that no lookup waits any more. The cache has the answer all the same.
            let _ = sender.send(Some(outcome));
        }
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        if self.sender.is_none() {
            return;
        }
        let mut state = self.cache.state.lock();
        if std::thread::panicking() {
            // The name backs off, or a resolver that always panics would be asked again and again.
            let _ = state.complete(now(), &self.name, self.query, Err(ResolveErrorKind::Other));
        } else {
            state.abandon(&self.name, self.query);
        }
    }
}

/// Waits for a query's outcome. A query that was lost has failed for a reason of this machine.
async fn received(mut receiver: OutcomeReceiver) -> HttpsOutcome {
    match receiver.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or(Err(ResolveErrorKind::Local)),
        Err(_) => Err(ResolveErrorKind::Local),
    }
}
