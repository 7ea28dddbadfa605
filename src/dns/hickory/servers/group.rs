//! The servers of a configuration: a question goes to one after the other, until one gives an answer.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hickory_resolver::PoolContext;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::DnsResponse;
use hickory_resolver::proto::rr::Name;
use smallvec::SmallVec;
use tokio::sync::Semaphore;

use super::records::{answer, lookup_error};
use super::tries::{NextTry, Tries, TryMode};
use super::upstream::Upstream;
use crate::clock::{Instant, before, now};
use crate::dns::answer::Place;
use crate::dns::hickory::servers::{Server, ServerLimits, is_never_asked_for};
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind};
use crate::sync::lock;

/// The servers of a configuration, each with clients of its own.
pub(in crate::dns::hickory) struct ServerGroup {
    pub(in crate::dns::hickory) servers: Vec<Upstream>,
    /// True if no server is configured, and the only one is an assumed one on this machine.
    is_assumed: bool,
    /// If each question goes to the next server first: the numbers of questions so far, by [`Family`].
    rotate: Option<[AtomicUsize; 2]>,
    limits: ServerLimits,
    /// The last signs of life of each server, by [`Family`].
    heard: Mutex<Vec<[Heard; 2]>>,
    /// One permit for each question whose tries are listened to although it was answered meanwhile.
    listeners: Arc<Semaphore>,
}

/// The time for which a server has no head start after it was silent for a whole try.
pub(in crate::dns::hickory) const SILENT_FOR: Duration = Duration::from_secs(5);

/// The most questions that are listened to after their answer.
const MAX_LISTENERS: usize = 64;

/// When a server was heard, and until when it counts as silent. It decides when a server is asked, never what its answer counts for.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    last: Option<Instant>,
    silent_until: Option<Instant>,
}

/// Takes addresses of an earlier server that come after the answer.
pub(in crate::dns::hickory) type Late = Arc<dyn Fn(Answer) + Send + Sync>;

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
    /// The place of the answer, if it is the first server's.
    pub(in crate::dns::hickory) place: Place,
    pub(in crate::dns::hickory) late: Option<&'a Late>,
}

/// A try of a server that has ended.
struct EndedTry {
    server: usize,
    mode: TryMode,
    begun: Instant,
    result: Result<DnsResponse, NetError>,
}

impl ServerGroup {
    pub(in crate::dns::hickory) fn new(
        servers: &[Server],
        is_assumed: bool,
        rotate: bool,
        limits: ServerLimits,
        context: &Arc<PoolContext>,
    ) -> Result<Self, NetError> {
        if servers.is_empty() {
            return Err(NetError::Message("no DNS servers given"));
        }
        Ok(Self {
            heard: Mutex::new(vec![Default::default(); servers.len()]),
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
            servers: servers.iter().map(|server| Upstream::new(server.clone(), context.clone())).collect(),
            is_assumed,
            rotate: rotate.then(Default::default),
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
        if is_never_asked_for(question.full_name) {
            return Err(ResolveError::new(ResolveErrorKind::NxDomain, question.name, question.family));
        }
        match self.try_servers(question, deadline).await {
            // The machine has no DNS configuration yet.
            Err(error) if self.is_assumed && error.kind().is_silence() => {
                let local = ResolveError::new(ResolveErrorKind::Local, question.name, question.family);
                Err(local.with_cause(error))
            }
            result => result,
        }
    }

    /// Runs the tries of a question. Several may run at once; the first answer counts.
    async fn try_servers(self: &Arc<Self>, question: Question<'_>, deadline: Instant) -> Result<Answer, ResolveError> {
        let Question { full_name, name, family, .. } = question;
        let start = now();
        let kinds = self.kinds(family, start);
        let mut tries = Tries::new(kinds.iter().copied(), self.order(family), self.limits, start, deadline);
        let mut running = Running::new();
        let mut last_error = None;
        // A negative answer that does not count yet.
        let mut held: Option<(usize, ResolveError)> = None;
        let ip = |server: usize| self.servers[server].ip();
        let (server, result) = loop {
            let counts_from = held.as_ref().and_then(|(server, _)| tries.counts_from(*server));
            if let Some((server, error)) = held.take_if(|_| counts_from.is_some_and(|from| from <= now())) {
                break (server, Err(error));
            }
            let wake = match tries.poll(now()) {
                NextTry::Start { server, mode, end } => {
                    running.push(self.clone().try_server((server, mode), full_name.clone(), family, end).boxed());
                    continue;
                }
                NextTry::Wait(until) => until.into_iter().chain(counts_from).min(),
                NextTry::NoneLeft => match held {
                    Some((server, error)) => break (server, Err(error)),
                    None => {
                        let silence = || ResolveError::new(ResolveErrorKind::Timeout, name, family);
                        return Err(last_error.unwrap_or_else(silence).with_servers(tries.asked(None, ip)));
                    }
                },
            };
            let Some(Some(ended)) = before(wake, running.next()).await else { continue };
            self.note(family, &ended);
            let EndedTry { server, mode, result, .. } = ended;
            let is_response = result.is_ok();
            let result = match result {
                Ok(response) => answer(&response, full_name, name, family),
                Err(error) => Err(lookup_error(error, name, family)),
            };
            let error = match result {
                Ok(answer) => break (server, Ok(answer.with_servers(tries.asked(Some((server, mode)), ip)))),
                Err(error) => error,
            };
            if error.kind().is_negative() {
                let error = error.with_servers(tries.asked(Some((server, mode)), ip));
                tries.record_negative(server, mode);
                let before = held.filter(|(other, _)| tries.place(*other) < tries.place(server));
                held = before.or(Some((server, error)));
                continue;
            }
            tries.record_end(server, mode, is_response);
            last_error = Some(more_telling(last_error, error));
        };
        self.listen(question, server, running);
        let place = self.place(question, server);
        result.map(|answer| answer.with_place(place)).map_err(|error| error.with_place(place))
    }

    /// Returns the servers in the order in which a question goes to them.
    fn order(&self, family: Family) -> SmallVec<[usize; 4]> {
        let count = self.servers.len();
        let next = |turns: &[AtomicUsize; 2]| turns[family as usize].fetch_add(1, Ordering::Relaxed) % count;
        let first = self.rotate.as_ref().map_or(0, next);
        (0..count).map(|place| (first + place) % count).collect()
    }

    /// Returns the place of a server's answer. Servers that take turns are equal.
    fn place(&self, question: Question<'_>, server: usize) -> Place {
        let server = if self.rotate.is_some() { 0 } else { u8::try_from(server).unwrap_or(u8::MAX - 1) };
        Place { server: server.max(question.place.server), ..question.place }
    }

    /// Returns for each server whether it is asked by UDP, and whether it was silent lately.
    pub(in crate::dns::hickory) fn kinds(&self, family: Family, now: Instant) -> SmallVec<[(bool, bool); 4]> {
        let heard = lock(&self.heard);
        let is_silent = |heard: &[Heard; 2]| heard[family as usize].silent_until.is_some_and(|until| now < until);
        self.servers.iter().map(Upstream::is_by_udp).zip(heard.iter().map(is_silent)).collect()
    }

    /// Takes note of the end of a try. A try was silent only if nothing was heard from its server since it began; a failure of this machine
    /// says nothing about a server.
    fn note(&self, family: Family, ended: &EndedTry) {
        let heard = &mut lock(&self.heard)[ended.server][family as usize];
        match &ended.result {
            Err(NetError::Timeout) if heard.last.is_some_and(|last| last >= ended.begun) => {}
            Err(NetError::Timeout) => heard.silent_until = Some(now() + SILENT_FOR),
            Err(_) => {}
            Ok(_) => *heard = Heard { last: Some(now()), silent_until: None },
        }
    }

    /// Listens to the tries of a question that `answered` has answered: addresses of a server before it outweigh the answer, and only at its
    /// end it is known that a server was silent.
    fn listen(self: &Arc<Self>, question: Question<'_>, answered: usize, mut running: Running) {
        if running.is_empty() {
            return;
        }
        let Ok(permit) = self.listeners.clone().try_acquire_owned() else { return };
        let group = self.clone();
        let (full_name, name) = (question.full_name.clone(), Box::<str>::from(question.name));
        let (family, place, late) = (question.family, question.place, question.late.cloned());
        let given = self.place(question, answered);
        let listening = async move {
            let _permit = permit;
            let question = Question { full_name: &full_name, name: &name, family, place, late: late.as_ref() };
            while let Some(ended) = running.next().await {
                group.note(family, &ended);
                let place = group.place(question, ended.server);
                let (Ok(response), Some(late)) = (&ended.result, &late) else { continue };
                if place.is_before(given)
                    && let Ok(answer) = answer(response, &full_name, &name, family)
                {
                    late(answer.with_place(place));
                }
            }
        };
        tokio::spawn(listening.boxed());
    }

    /// Returns the number of questions that are listened to after their answer.
    #[cfg(test)]
    pub(in crate::dns::hickory) fn listeners(&self) -> usize {
        MAX_LISTENERS - self.listeners.available_permits()
    }

    async fn try_server(
        self: Arc<Self>,
        (server, mode): (usize, TryMode),
        full_name: Name,
        family: Family,
        end: Instant,
    ) -> EndedTry {
        let begun = now();
        let upstream = &self.servers[server];
        let result = match mode {
            TryMode::NewConnection if upstream.is_by_udp() => {
                within(end, pin!(upstream.new_connection().ask(full_name, family))).await
            }
            TryMode::Usual | TryMode::NewConnection => try_kept_client(upstream, full_name, family, end).await,
        };
        let is_whole =
            |response: DnsResponse| if response.metadata.truncation { Err(NetError::Truncated) } else { Ok(response) };
        let result = result.and_then(is_whole);
        EndedTry { server, mode, begun, result }
    }
}

/// Asks a server with the client that is kept, and drops the client if it gets no answer.
async fn try_kept_client(
    upstream: &Upstream,
    full_name: Name,
    family: Family,
    end: Instant,
) -> Result<DnsResponse, NetError> {
    let kept = upstream.client();
    let answers = kept.answers();
    let result = within(end, pin!(kept.ask(full_name, family))).await;
    // A connection over which other questions were answered meanwhile still works.
    if result.is_err() && kept.answers() == answers {
        upstream.drop_client(&kept);
    }
    result
}

async fn within(
    end: Instant,
    asking: impl Future<Output = Result<DnsResponse, NetError>> + Unpin,
) -> Result<DnsResponse, NetError> {
    before(Some(end), asking).await.unwrap_or(Err(NetError::Timeout))
}

/// Returns the error that says more: a server's error rather than silence, and silence rather than a failure of this machine.
fn more_telling(last: Option<ResolveError>, error: ResolveError) -> ResolveError {
    let weight = |error: &ResolveError| match error.kind() {
        kind if kind.is_local() => 0,
        kind if kind.is_silence() => 1,
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
