//! The servers of a configuration: a question goes to one after the other, until one gives an answer.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};
use smallvec::SmallVec;

use super::client::ClientFactory;
use super::records::{answer, is_response, lookup_error};
use super::server::Endpoint;
use super::single_requests::SingleRequests;
use super::started_tries::StartedTries;
use super::tries::{HEAD_START, NextTry, Tries, TryMode};
use super::upstream::Upstream;
use crate::clock::{Instant, before, now};
use crate::dns::hickory::search::verdict::is_silence;
use crate::dns::hickory::system::limits::Limits;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::sync::lock;
use crate::trace::AskedServers;

/// The servers of a configuration, each with a hickory resolver of its own. With all of them, a hickory resolver would not go
/// on to the next one after SERVFAIL or REFUSED, nor to TCP when UDP goes unanswered.
pub(in crate::dns::hickory) struct ServerGroup {
    pub(in crate::dns::hickory) servers: Vec<Upstream>,
    /// True if no server is configured, and the only one is an assumed one on this machine.
    is_assumed: bool,
    /// If each question goes to the next server first: the numbers of questions so far, by [`Family`].
    rotate: Option<[AtomicUsize; 2]>,
    single_requests: Option<SingleRequests>,
    limits: Limits,
    /// The times until which servers are asked last, because they were silent for a whole try.
    silent_until: Mutex<Vec<Option<Instant>>>,
    /// True while the tries of a question that was answered meanwhile are listened to.
    is_listening: AtomicBool,
}

/// The time for which a server is asked last after it was silent for a whole try.
pub(in crate::dns::hickory) const ASKED_LAST_FOR: Duration = Duration::from_secs(5);

/// The tries of a question that run.
type Running = FuturesUnordered<BoxFuture<'static, EndedTry>>;

/// A question for the servers.
#[derive(Clone, Copy)]
pub(in crate::dns::hickory) struct Question<'a> {
    /// The full name.
    pub(in crate::dns::hickory) full_name: &'a Name,
    /// The name that was looked up, for errors.
    pub(in crate::dns::hickory) name: &'a str,
    pub(in crate::dns::hickory) family: Family,
}

/// The one task that listens to the tries of a question. Dropped at its end, or with its runtime, it lets another one listen.
struct Listening(Arc<ServerGroup>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.is_listening.store(false, Ordering::Relaxed);
    }
}

/// A try of a server that has ended.
struct EndedTry {
    server: usize,
    mode: TryMode,
    result: Result<Lookup, NetError>,
}

impl ServerGroup {
    pub(in crate::dns::hickory) fn new(
        servers: Vec<Endpoint>,
        is_assumed: bool,
        rotate: bool,
        single_request: bool,
        limits: Limits,
        factory: ClientFactory,
    ) -> Result<Self, NetError> {
        if servers.is_empty() {
            return Err(NetError::Message("no DNS servers given"));
        }
        let factory = Arc::new(factory);
        Ok(Self {
            silent_until: Mutex::new(vec![None; servers.len()]),
            is_listening: AtomicBool::new(false),
            servers: servers.into_iter().map(|server| Upstream::new(server, factory.clone())).collect(),
            is_assumed,
            rotate: rotate.then(Default::default),
            single_requests: single_request.then(SingleRequests::default),
            limits,
        })
    }

    /// Asks one server after the other, until one answers that there are addresses or that there are none.
    ///
    /// # Errors
    /// "Does not exist" or "no addresses"; otherwise the failure that says most, whichever server it is of: SERVFAIL rather than REFUSED, and that rather than a timeout.
    pub(in crate::dns::hickory) async fn ask(
        self: &Arc<Self>,
        question: Question<'_>,
        deadline: Instant,
    ) -> Result<Answer, ResolveError> {
        let turn = self.single_requests.as_ref().map(|requests| requests.turn_of(question.full_name));
        let _turn = match &turn {
            // A question that comes this much later than the one before is not lost.
            Some(turn) => before(Some(deadline.min(now() + HEAD_START)), pin!(turn.acquire())).await,
            None => None,
        };
        match self.try_servers(question, deadline).await {
            // The machine has no DNS configuration yet.
            Err(error) if self.is_assumed && is_silence(error.kind()) => {
                let local = ResolveError::new(ResolveErrorKind::Local, question.name, question.family);
                Err(local.with_cause(error))
            }
            result => result,
        }
    }

    /// Asks for addresses, from one server after the other.
    async fn try_servers(self: &Arc<Self>, question: Question<'_>, deadline: Instant) -> Result<Answer, ResolveError> {
        let (lookup, asked) = self.run_tries(question, deadline).await?;
        match answer(lookup.message(), question.full_name, question.name, question.family) {
            Ok(answer) => Ok(answer.with_servers(asked)),
            Err(error) => Err(error.with_servers(asked)),
        }
    }

    /// Runs the tries of a question. Several may run at once; the first answer counts. Returns it with the servers that were
    /// asked, if they are worth telling.
    async fn run_tries(
        self: &Arc<Self>,
        question: Question<'_>,
        deadline: Instant,
    ) -> Result<(Lookup, Option<Arc<AskedServers>>), ResolveError> {
        let Question { name, family, .. } = question;
        let by_udp = self.servers.iter().map(Upstream::is_by_udp);
        let mut tries = Tries::new(by_udp, self.order(family), self.limits, now(), deadline);
        let mut running = Running::new();
        let mut last_error = None;
        // A negative answer that does not count yet.
        let mut held: Option<(usize, ResolveError)> = None;
        let mut started = StartedTries::default();
        let ip = |server: usize| self.servers[server].ip();
        loop {
            if let Some((server, _)) = &held
                && tries.counts(*server)
            {
                break;
            }
            let wake = match tries.poll(now()) {
                NextTry::Start { server, mode, end } => {
                    started.push(server, mode);
                    let full_name = question.full_name.clone();
                    running.push(self.clone().try_server((server, mode), full_name, family, end).boxed());
                    continue;
                }
                NextTry::Wait(until) => until,
                NextTry::NoneLeft => break,
            };
            let Some(Some(EndedTry { server, mode, result })) = before(wake, running.next()).await else { continue };
            self.note(server, &result);
            let error = match result {
                Ok(lookup) => {
                    self.listen(running);
                    return Ok((lookup, started.asked(Some((server, mode)), ip)));
                }
                Err(error) => error,
            };
            let is_response = is_response(&error);
            let error = lookup_error(error, name, family, self.servers[server].ip());
            if error.kind().is_negative() {
                let error = error.with_servers(started.asked(Some((server, mode)), ip));
                if tries.record_negative(server, mode) {
                    self.listen(running);
                    return Err(error);
                }
                held = Some(
                    held.filter(|(other, _)| tries.place(*other) < tries.place(server)).unwrap_or((server, error)),
                );
                continue;
            }
            if is_response {
                started.responded(server, mode);
            }
            tries.record_end(server, mode, is_response);
            last_error = Some(more_telling(last_error, error));
        }
        if let Some((_, error)) = held {
            return Err(error);
        }
        let error = last_error.unwrap_or_else(|| ResolveError::new(ResolveErrorKind::Timeout, name, family));
        Err(error.with_servers(started.asked(None, ip)))
    }

    /// Returns the servers in the order in which a question goes to them: those that were silent lately come last.
    pub(in crate::dns::hickory) fn order(&self, family: Family) -> SmallVec<[usize; 4]> {
        let count = self.servers.len();
        let next = |turns: &[AtomicUsize; 2]| turns[family as usize].fetch_add(1, Ordering::Relaxed) % count;
        let first = self.rotate.as_ref().map_or(0, next);
        let now = now();
        let silent_until = lock(&self.silent_until);
        let mut order: SmallVec<[usize; 4]> = (0..count).map(|place| (first + place) % count).collect();
        order.sort_by_key(|server| silent_until[*server].is_some_and(|until| now < until));
        order
    }

    /// Takes note of the end of a try. A failure of this machine says nothing about a server.
    pub(in crate::dns::hickory) fn note(&self, server: usize, result: &Result<Lookup, NetError>) {
        let silent_until = match result {
            Err(NetError::Timeout) => Some(now() + ASKED_LAST_FOR),
            Err(error) if !is_response(error) => return,
            _ => None,
        };
        lock(&self.silent_until)[server] = silent_until;
    }

    /// Listens to the tries of a question that another server has answered: only at its end it is known that a server was silent.
    /// One question at a time is enough for that.
    fn listen(self: &Arc<Self>, mut running: Running) {
        if running.is_empty() || self.is_listening.swap(true, Ordering::Relaxed) {
            return;
        }
        let listening = Listening(self.clone());
        let heard = async move {
            while let Some(ended) = running.next().await {
                listening.0.note(ended.server, &ended.result);
            }
        };
        tokio::spawn(heard.boxed());
    }

    /// Returns true if a task listens to the tries of a question that was answered.
    #[cfg(test)]
    pub(in crate::dns::hickory) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    async fn try_server(
        self: Arc<Self>,
        (server, mode): (usize, TryMode),
        full_name: Name,
        family: Family,
        end: Instant,
    ) -> EndedTry {
        let upstream = &self.servers[server];
        let records = match family {
            Family::V4 => RecordType::A,
            Family::V6 => RecordType::AAAA,
        };
        let result = match mode {
            TryMode::NewConnection if upstream.is_by_udp() => match upstream.new_connection() {
                Ok(client) => within(end, pin!(client.ask(full_name, records))).await,
                Err(error) => Err(error),
            },
            TryMode::Usual | TryMode::NewConnection => try_kept_client(upstream, full_name, records, end).await,
        };
        EndedTry { server, mode, result }
    }
}

/// Asks a server with the client that is kept, and drops the client if it gets no answer.
async fn try_kept_client(
    upstream: &Upstream,
    full_name: Name,
    records: RecordType,
    end: Instant,
) -> Result<Lookup, NetError> {
    let kept = upstream.client()?;
    let answers = kept.client.answers();
    let result = within(end, pin!(kept.client.ask(full_name, records))).await;
    // A connection over which other questions were answered meanwhile still works.
    let was_silent = kept.client.answers() == answers;
    if was_silent && result.as_ref().is_err_and(|error| !is_response(error)) {
        upstream.drop_client(&kept);
    }
    result
}

async fn within(
    end: Instant,
    asking: impl Future<Output = Result<Lookup, NetError>> + Unpin,
) -> Result<Lookup, NetError> {
    before(Some(end), asking).await.unwrap_or(Err(NetError::Timeout))
}

/// Returns the error that says more: a server's error rather than silence, and silence rather than a failure of this machine.
fn more_telling(last: Option<ResolveError>, error: ResolveError) -> ResolveError {
    let weight = |error: &ResolveError| match error.kind() {
        kind if kind.is_local() => 0,
        kind if is_silence(kind) => 1,
        // A server that has not refused the name is one that may know it.
        ResolveErrorKind::ServFail => 3,
        _ => 2,
    };
    match last {
        Some(last) if weight(&last) > weight(&error) => last,
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_said_outweighs_silence_and_a_failure_of_this_machine() {
        use ResolveErrorKind::{Local, Refused, ServFail, Timeout};
        let most_telling = |kinds: &[ResolveErrorKind]| {
            let errors = kinds.iter().map(|kind| ResolveError::new(*kind, "n", Family::V4));
            errors.fold(None, |last, error| Some(more_telling(last, error))).unwrap().kind()
        };
        assert_eq!(most_telling(&[ServFail, Timeout, Local]), ServFail);
        assert_eq!(most_telling(&[Local, Timeout]), Timeout);
        assert_eq!(most_telling(&[Timeout, Local]), Timeout);
        // In the other order it would be the order of the servers that decides whether a search list is searched further.
        assert_eq!(most_telling(&[ServFail, Refused]), ServFail);
        assert_eq!(most_telling(&[Refused, ServFail]), ServFail);
    }
}
