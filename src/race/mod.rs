//! The race between a host's addresses: the first to connect wins, the others are given up (RFC 8305).

mod preference;
mod schedule;
mod scoreboard;

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt};

pub(crate) use preference::Way;
pub(crate) use schedule::Config;
use schedule::{Schedule, Step};
use scoreboard::Scoreboard;
use smallvec::SmallVec;

use crate::clock::{Instant, now, sleep_until};
use crate::trace::{DialTrace, Event, Family};

/// An address that could not be connected to, and why.
pub(crate) type Failed = (SocketAddr, Arc<io::Error>);

/// What is remembered of addresses from one race to the next.
pub(crate) struct Scores(Mutex<Scoreboard>);

impl Default for Scores {
    fn default() -> Self {
        Self(Mutex::new(Scoreboard::new()))
    }
}

impl Scores {
    // The board's steps leave nothing half done.
    fn lock(&self) -> MutexGuard<'_, Scoreboard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the races for a host's addresses.
    pub(crate) fn turn(&self, now: Instant, host: &Arc<str>, port: u16) -> usize {
        self.lock().turn(now, host, port)
    }
}

/// Whose addresses race, and what their order depends on.
pub(crate) struct Field<'a> {
    pub(crate) families: &'a [Family],
    pub(crate) port: u16,
    /// The name that has these addresses.
    pub(crate) host: Option<&'a Arc<str>>,
    pub(crate) scores: &'a Scores,
    /// Where packets to an address would come from.
    pub(crate) way: &'a (dyn Fn(IpAddr) -> Way + Sync),
    /// The how many-th race for these addresses it is, where all of them are to have equal shares.
    pub(crate) turn: Option<usize>,
}

impl Field<'_> {
    /// The family that did well last.
    fn remembered(&self, now: Instant) -> Option<Family> {
        self.host.and_then(|host| self.scores.lock().last_good(now, host))
    }

    fn ways(&self, now: Instant, addresses: &[IpAddr]) -> Vec<(IpAddr, Way)> {
        let known: Vec<_> = {
            let scores = self.scores.lock();
            addresses.iter().map(|ip| (*ip, scores.way(now, *ip))).collect()
        };
        let found_out = |(ip, way): (IpAddr, Option<Way>)| {
            let way = way.unwrap_or_else(|| {
                let way = (self.way)(ip);
                self.scores.lock().learn_way(now, ip, way);
                way
            });
            (ip, way)
        };
        known.into_iter().map(found_out).collect()
    }
}

/// One race: answers come in, attempts go out. Dropping it gives up what is under way.
pub(crate) struct Race<'a, A, D, F> {
    field: Field<'a>,
    schedule: Schedule,
    timeout: Option<Timeout>,
    /// The connection that it won last, and the start of its attempt, until it is known whether it will do.
    unproven: Option<(SocketAddr, Instant)>,
    /// Whether it is the addresses' to say which family goes first.
    is_open: bool,
    answers: A,
    dial: D,
    /// In the order they began. They are few, so each is asked whenever one may be over.
    running: SmallVec<[Attempt<'a, F>; 1]>,
    failed: Vec<Failed>,
    trace: &'a DialTrace,
    /// What time it is, as long as it has waited for nothing.
    begun: Option<Instant>,
}

impl<'a, A, D, F, T> Race<'a, A, D, F>
where
    A: Stream<Item = (Family, Arc<[IpAddr]>, Instant)> + Unpin,
    D: Fn(SocketAddr) -> F,
    F: Future<Output = io::Result<T>> + Unpin,
{
    /// A race over the `answers` of the field's families, each of which answers once and says when; `dial` makes an attempt.
    pub(crate) fn new(
        config: Config,
        field: Field<'a>,
        answers: A,
        dial: D,
        now: Instant,
        trace: &'a DialTrace,
    ) -> Self {
        let remembered = field.remembered(now);
        let timeout = config.until.map(|end| Timeout { end, half: now + end.saturating_duration_since(now) / 2 });
        let schedule = match field.turn {
            Some(turn) => Schedule::sharing(config, field.families, turn),
            None => Schedule::new(config, field.families, remembered.unwrap_or(Family::V6)),
        };
        Self {
            field,
            schedule,
            timeout,
            unproven: None,
            is_open: remembered.is_none(),
            answers,
            dial,
            running: SmallVec::new(),
            failed: Vec::new(),
            trace,
            begun: Some(now),
        }
    }

    /// The next connection; `None` when no address is left. Asked again, the race goes on with the other addresses.
    pub(crate) async fn next(&mut self) -> Option<(SocketAddr, T)> {
        let mut at = self.begun.take().unwrap_or_else(now);
        loop {
            let wake = match self.schedule.poll(at) {
                Step::Dial(address) => {
                    self.start(at, address);
                    continue;
                }
                Step::GiveUp(address) => {
                    self.give_up(at, address);
                    continue;
                }
                Step::Wait(until) => until,
                Step::Exhausted => return None,
            };
            let happened = self.wait(wake).await;
            match happened {
                Happened::Answered(family, addresses, known) => {
                    at = at.max(known);
                    self.answered(at, family, &addresses);
                }
                Happened::Ended(attempt, result) => {
                    at = now();
                    if let Some(won) = self.ended(at, attempt.address, attempt.since, result) {
                        self.unproven = Some((attempt.address, attempt.since));
                        return Some(won);
                    }
                }
                Happened::Nothing => at = now(),
            }
        }
    }

    /// A connection the race has won was of no use after all.
    pub(crate) fn spoiled(&mut self, address: SocketAddr, error: Arc<io::Error>) {
        self.unproven = None;
        // What the client itself lacks is not held against the address.
        if error.kind() != io::ErrorKind::InvalidInput {
            self.field.scores.lock().failed(now(), address);
        }
        self.failed.push((address, error));
    }

    /// The connection that the race won last does what it is to do; what becomes of it later is not the address's fault.
    pub(crate) fn proved(&mut self) {
        self.unproven = None;
    }

    /// Returns the longest the handshake over the connection may take, where other addresses are to have their turn after it.
    pub(crate) fn part_of_time(&self, now: Instant) -> Option<Duration> {
        self.schedule.part_of_time(now)
    }

    /// The addresses that failed so far.
    pub(crate) fn into_failed(mut self) -> Vec<Failed> {
        std::mem::take(&mut self.failed)
    }

    fn start(&mut self, since: Instant, address: SocketAddr) {
        self.trace.emit_at(since, Event::AttemptStart { address });
        let dialled = (self.dial)(address);
        self.running.push(Attempt { dialled, address, since, trace: self.trace, over: false });
    }

    fn give_up(&mut self, now: Instant, address: SocketAddr) {
        self.running.retain(|attempt| attempt.address != address);
        self.field.scores.lock().failed(now, address);
        self.failed.push((address, Arc::new(io::Error::new(io::ErrorKind::TimedOut, "given up for the next address"))));
    }

    async fn wait(&mut self, until: Option<Instant>) -> Happened<'a, F, T> {
        tokio::select! {
            biased;
            Some((family, addresses, known)) = self.answers.next() => Happened::Answered(family, addresses, known),
            (attempt, result) = std::future::poll_fn(|cx| poll_ended(&mut self.running, cx)) => {
                Happened::Ended(attempt, result)
            }
            () = sleep_until(until) => Happened::Nothing,
        }
    }

    fn answered(&mut self, now: Instant, family: Family, addresses: &[IpAddr]) {
        let mut ordered = Cow::Borrowed(addresses);
        // Of one IPv4 address there is nothing to find out.
        if self.field.turn.is_none() && addresses.len() > usize::from(family == Family::V4) {
            let (sorted, rest) = addresses.split_at(addresses.len().min(MOST_SORTED));
            let mut ways = self.field.ways(now, sorted);
            preference::sort(&mut ways);
            if self.is_open && family == Family::V6 && preference::yields_to_v4(ways[0]) {
                self.schedule.prefer(Family::V4);
            }
            ordered = Cow::Owned(ways.into_iter().map(|(ip, _)| ip).chain(rest.iter().copied()).collect());
        }
        let (port, scores) = (self.field.port, self.field.scores.lock());
        let standing = |ip: IpAddr| {
            let address = SocketAddr::new(ip, port);
            (address, scores.standing(now, address))
        };
        self.schedule.answered(now, family, ordered.iter().copied().map(standing));
    }

    /// Notes the winner, and the attempts that had the time to win and did not: a whole attempt delay, or a shorter one that began
    /// before the winner.
    fn won(&self, now: Instant, address: SocketAddr, since: Instant) {
        let mut scores = self.field.scores.lock();
        let host = self.field.host.filter(|_| self.schedule.has_both_families());
        scores.connected(now, host, address, now - since);
        let (whole, shortest) = self.schedule.attempt_delays();
        let is_beaten = |running: &&Attempt<'a, F>| {
            let had = now - running.since;
            had >= whole || (had >= shortest && running.since < since)
        };
        for beaten in self.running.iter().filter(is_beaten) {
            scores.failed(now, beaten.address);
        }
    }

    fn ended(
        &mut self,
        now: Instant,
        address: SocketAddr,
        since: Instant,
        result: io::Result<T>,
    ) -> Option<(SocketAddr, T)> {
        self.schedule.ended(address);
        match result {
            Ok(connected) => {
                self.trace.emit_at(now, Event::AttemptEnd { address, error: None });
                self.won(now, address, since);
                Some((address, connected))
            }
            Err(error) => {
                if is_the_peers(&error) {
                    self.field.scores.lock().failed(now, address);
                }
                let error = Arc::new(error);
                self.trace.emit_at(now, Event::AttemptEnd { address, error: Some(error.clone()) });
                self.failed.push((address, error));
                None
            }
        }
    }
}

/// An attempt that is under way when the connect timeout ends the race has failed, and so has the connection that was won and did
/// nothing since; but not one that began in the second half of the time, because it may have had too little of it.
impl<A, D, F> Drop for Race<'_, A, D, F> {
    fn drop(&mut self) {
        let Some(timeout) = &self.timeout else { return };
        let now = now();
        if now < timeout.end {
            return;
        }
        let mut scores = self.field.scores.lock();
        let running = self.running.iter().map(|attempt| (attempt.address, attempt.since));
        for (address, since) in running.chain(self.unproven) {
            if since < timeout.half {
                scores.failed(now, address);
            }
        }
    }
}

/// The end of the connect timeout, and the middle of what there was of it when the race began.
struct Timeout {
    end: Instant,
    half: Instant,
}

/// The most addresses of a family that are sorted. For each of them the system is asked where its packets would come from, which
/// takes five calls; the others follow in the order they were answered.
const MOST_SORTED: usize = 32;

/// Whether an error says something about the address, rather than about this process.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let kinds = [ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut];
    kinds.contains(&error.kind())
}

/// An attempt under way; dropped before it is over, it was given up.
struct Attempt<'a, F> {
    dialled: F,
    address: SocketAddr,
    since: Instant,
    trace: &'a DialTrace,
    over: bool,
}

/// What a race waits for.
enum Happened<'a, F, T> {
    Answered(Family, Arc<[IpAddr]>, Instant),
    Ended(Attempt<'a, F>, io::Result<T>),
    /// It is time for the next step.
    Nothing,
}

/// The first of the attempts that is over, which is none of them any more.
fn poll_ended<'a, F: Future + Unpin>(
    running: &mut SmallVec<[Attempt<'a, F>; 1]>,
    cx: &mut Context<'_>,
) -> Poll<(Attempt<'a, F>, F::Output)> {
    for (place, attempt) in running.iter_mut().enumerate() {
        if let Poll::Ready(output) = Pin::new(&mut attempt.dialled).poll(cx) {
            attempt.over = true;
            return Poll::Ready((running.remove(place), output));
        }
    }
    Poll::Pending
}

impl<F> Drop for Attempt<'_, F> {
    fn drop(&mut self) {
        if !self.over {
            self.trace.emit(Event::AttemptCancelled { address: self.address });
        }
    }
}

#[cfg(test)]
mod tests;
