//! The race between a host's addresses (RFC 8305, "happy eyeballs"): the first to connect wins, the others are cancelled.
//!
//! | question | file |
//! |---|---|
//! | Which address is dialled next, and when? | `schedule.rs` |
//! | Which of a family's addresses comes first? | `scoreboard.rs`: RFC 6724, then earlier races |
//! | What does an address's failure change for later races, also those of another process? | `scoreboard.rs` |
//!
//! This file drives the race: it takes DNS answers, starts and cancels attempts, and records the results.

mod address_order;
#[cfg(feature = "doctor")]
mod dial_order;
mod schedule;
mod scoreboard;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use schedule::{NextAction, Schedule};
use smallvec::SmallVec;

use crate::clock::{Instant, now, sleep_until};
use crate::trace::{DialTrace, Event, Family};

pub(crate) use crate::race::scoreboard::SourceAddress;
pub(crate) use address_order::{AddressOrder, FailedAddress, Reach, Scores};
#[cfg(feature = "doctor")]
pub(crate) use dial_order::dial_order;
pub(crate) use schedule::Config;
pub(crate) use scoreboard::{AddressResult, RaceResults};

/// A race between a host's addresses. Dropping it cancels the attempts under way.
pub(crate) struct Race<'a, A, D, F> {
    order: AddressOrder<'a>,
    schedule: Schedule,
    timeout: Option<ConnectTimeout>,
    won: Won,
    /// True if no earlier race has decided which family goes first, so that the order of the addresses may.
    family_is_open: bool,
    answers: A,
    dial: D,
    attempts: Attempts<'a, F>,
    failed: Vec<FailedAddress>,
    trace: &'a DialTrace,
    /// The time at which the race was created, until it is first polled. This saves reading the clock once.
    created: Option<Instant>,
}

/// The connection that a race was won with last.
enum Won {
    /// There was none, or it turned out to be of no use.
    Nothing,
    /// It is not known to work yet: its address, and the start of the attempt.
    Unconfirmed(SocketAddr, Instant),
    /// It works.
    Confirmed,
}

/// The connect timeout of a race.
struct ConnectTimeout {
    end: Instant,
    /// The time at which half of the connect timeout that was left at the start has passed.
    middle: Instant,
}

/// An event for which a race waits.
enum RaceEvent<'a, F, T> {
    /// The DNS answer for a family, and the time at which it was known.
    Answered(Family, Arc<[IpAddr]>, Instant),
    Ended(Attempt<'a, F>, io::Result<T>),
    /// The time of the next action has come.
    TimedOut,
}

impl<'a, A, D, F, T> Race<'a, A, D, F>
where
    A: Stream<Item = (Family, Arc<[IpAddr]>, Instant)> + Unpin,
    D: Fn(SocketAddr) -> F,
    F: Future<Output = io::Result<T>> + Unpin,
{
    /// Creates a race. Each of the order's families comes once in `answers`, with the time of its answer; `dial` makes an
    /// attempt.
    pub(crate) fn new(
        config: Config,
        order: AddressOrder<'a>,
        answers: A,
        dial: D,
        now: Instant,
        trace: &'a DialTrace,
    ) -> Self {
        let last_good = order.last_good_family(now);
        let timeout = config.deadline.map(|end| ConnectTimeout { end, middle: now + (end - now) / 2 });
        let schedule = match order.turn {
            Some(turn) => Schedule::with_equal_shares(config, order.families, turn),
            None => Schedule::new(config, order.families, last_good.unwrap_or(Family::V6)),
        };
        Self {
            order,
            schedule,
            timeout,
            won: Won::Nothing,
            family_is_open: last_good.is_none(),
            answers,
            dial,
            attempts: SmallVec::new(),
            failed: Vec::new(),
            trace,
            created: Some(now),
        }
    }

    /// Returns the next connection with its address and the current time, or `None` when no address is left. Called again, it goes on
    /// with the other addresses.
    pub(crate) async fn next(&mut self) -> Option<(SocketAddr, T, Instant)> {
        let mut at = self.created.take().unwrap_or_else(now);
        loop {
            let next = self.schedule.poll(at);
            // Where all addresses have equal shares, another dial begins with another one. It helps until this one has come to a second
            // address.
            if self.order.turn.is_none() || self.schedule.dialled() > 1 {
                self.trace.note_untried(self.schedule.has_untried());
            }
            let wake = match next {
                NextAction::Dial(address) => {
                    self.attempts.push(Attempt::start(at, address, &self.dial, self.trace));
                    continue;
                }
                NextAction::Cancel(address) => {
                    self.cancel(at, address);
                    continue;
                }
                NextAction::Wait(until) => until,
                NextAction::NoneLeft => {
                    if !self.failed.is_empty() {
                        self.order.reach.none_connects(&self.failed);
                    }
                    return None;
                }
            };
            match self.wait(wake).await {
                RaceEvent::Answered(family, addresses, known) => {
                    at = at.max(known);
                    // Counted from the answer, which may have come before the race began.
                    self.add_addresses(known, family, &addresses);
                }
                RaceEvent::Ended(attempt, result) => {
                    at = now();
                    if let Some(connected) = self.record_end(at, attempt.address, attempt.started, result) {
                        self.won = Won::Unconfirmed(attempt.address, attempt.started);
                        return Some((attempt.address, connected, at));
                    }
                }
                RaceEvent::TimedOut => at = now(),
            }
        }
    }

    /// Records that the connection to an address, which the race had won, turned out to be of no use.
    pub(crate) fn reject(&mut self, address: SocketAddr, error: Arc<io::Error>) {
        self.won = Won::Nothing;
        self.schedule.note_reached();
        // This kind of error means that the client itself lacks something. It does not count against the address.
        if error.kind() != io::ErrorKind::InvalidInput {
            self.order.scores.lock().record_failure(now(), address);
        }
        self.failed.push((address, error));
    }

    /// Records that the connection won last works. What time does to the race from then on counts against no address.
    pub(crate) fn confirm(&mut self) {
        self.won = Won::Confirmed;
    }

    /// Returns the longest time for a handshake over the connection, if time has to be left for other addresses.
    pub(crate) fn handshake_timeout(&self, now: Instant) -> Option<Duration> {
        self.schedule.handshake_timeout(now)
    }

    /// Returns the addresses that have failed so far.
    pub(crate) fn into_failed(mut self) -> Vec<FailedAddress> {
        std::mem::take(&mut self.failed)
    }

    /// Cancels an attempt that has had its time, in favour of the next address.
    fn cancel(&mut self, now: Instant, address: SocketAddr) {
        self.attempts.retain(|attempt| attempt.address != address);
        self.schedule.note_reached();
        self.order.scores.lock().record_failure(now, address);
        let error = io::Error::new(io::ErrorKind::TimedOut, "given up for the next address");
        self.failed.push((address, Arc::new(error)));
    }

    async fn wait(&mut self, until: Option<Instant>) -> RaceEvent<'a, F, T> {
        tokio::select! {
            biased;
            Some((family, addresses, known)) = self.answers.next() => RaceEvent::Answered(family, addresses, known),
            (attempt, result) = std::future::poll_fn(|cx| poll_ended(&mut self.attempts, cx)) => {
                RaceEvent::Ended(attempt, result)
            }
            () = sleep_until(until) => RaceEvent::TimedOut,
        }
    }

    /// Adds a family's addresses to the race, in their order.
    fn add_addresses(&mut self, now: Instant, family: Family, addresses: &[IpAddr]) {
        let sorted = self.order.sort(now, family, addresses);
        if sorted.yields_to_v4 && self.family_is_open {
            self.schedule.prefer(Family::V4);
        }
        self.schedule.add_addresses(now, family, self.order.with_standings(now, &sorted.addresses));
    }

    /// Records the end of an attempt. Returns its connection if it has one.
    fn record_end(&mut self, now: Instant, address: SocketAddr, started: Instant, result: io::Result<T>) -> Option<T> {
        self.schedule.record_end(address);
        match result {
            Ok(connected) => {
                self.trace.emit_at(now, Event::AttemptEnd { address, error: None });
                self.record_winner(now, address, started);
                Some(connected)
            }
            Err(error) => {
                if is_of_host(&error) {
                    self.schedule.note_reached();
                }
                if is_fault_of_address(&error) {
                    self.order.scores.lock().record_failure(now, address);
                }
                let error = Arc::new(error);
                self.trace.emit_at(now, Event::AttemptEnd { address, error: Some(error.clone()) });
                self.failed.push((address, error));
                None
            }
        }
    }

    /// Records the winner, and as failures the attempts that had enough time to win: a whole attempt delay, or the shortest one
    /// of this race if they started before the winner.
    fn record_winner(&self, now: Instant, address: SocketAddr, started: Instant) {
        let mut scores = self.order.scores.lock();
        let host = self.order.host.filter(|_| self.schedule.has_both_families());
        scores.record_connection(now, host, address, now - started);
        let (whole_delay, shortest_delay) = self.schedule.attempt_delays();
        for attempt in &self.attempts {
            let had = now - attempt.started;
            let had_enough = had >= whole_delay || (had >= shortest_delay && attempt.started < started);
            if had_enough {
                scores.record_failure(now, attempt.address);
            }
        }
    }
}

/// Counts what is left of a race as failed when the connect timeout ends it: the attempts under way, and the connection that
/// was won and is not confirmed to work; none if it is. An attempt that started in the second half of the time does not count: it may have had
/// too little of it. A race without a connection by then has found none.
impl<A, D, F> Drop for Race<'_, A, D, F> {
    fn drop(&mut self) {
        let Some(timeout) = &self.timeout else { return };
        let unconfirmed = match self.won {
            Won::Confirmed => return,
            Won::Unconfirmed(address, started) => Some((address, started)),
            Won::Nothing if self.attempts.is_empty() => return, // this saves reading the clock
            Won::Nothing => None,
        };
        let now = now();
        if now < timeout.end {
            return;
        }
        if unconfirmed.is_none() {
            self.order.reach.none_connects(&self.failed);
        }
        let mut scores = self.order.scores.lock();
        let under_way = self.attempts.iter().map(|attempt| (attempt.address, attempt.started));
        for (address, started) in under_way.chain(unconfirmed) {
            if started < timeout.middle {
                scores.record_failure(now, address);
            }
        }
    }
}

/// Returns true if an error is the host's: it refused, or did not answer in time.
fn is_of_host(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut};
    [ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut].contains(&error.kind())
}

/// Returns true if an error says something about the address, rather than about this process.
fn is_fault_of_address(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut,
    };
    let kinds = [ConnectionAborted, ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut];
    kinds.contains(&error.kind())
}

#[cfg(test)]
mod tests;

/// An attempt to connect to an address. Dropped before it has ended, it reports that it was cancelled.
struct Attempt<'a, F> {
    connecting: F,
    address: SocketAddr,
    started: Instant,
    trace: &'a DialTrace,
    has_ended: bool,
}

/// The attempts under way, in the order in which they started. There are few of them, so each is polled whenever one may have
/// ended.
type Attempts<'a, F> = SmallVec<[Attempt<'a, F>; 1]>;

impl<'a, F> Attempt<'a, F> {
    /// Reports the start of an attempt, and returns it. `connect` begins to connect.
    fn start(now: Instant, address: SocketAddr, connect: impl FnOnce(SocketAddr) -> F, trace: &'a DialTrace) -> Self {
        trace.emit_at(now, Event::AttemptStart { address });
        Self { connecting: connect(address), address, started: now, trace, has_ended: false }
    }
}

/// Polls all attempts, and removes and returns the first that has ended.
fn poll_ended<'a, F: Future + Unpin>(
    attempts: &mut Attempts<'a, F>,
    cx: &mut Context<'_>,
) -> Poll<(Attempt<'a, F>, F::Output)> {
    for (index, attempt) in attempts.iter_mut().enumerate() {
        if let Poll::Ready(output) = Pin::new(&mut attempt.connecting).poll(cx) {
            attempt.has_ended = true;
            return Poll::Ready((attempts.remove(index), output));
        }
    }
    Poll::Pending
}

impl<F> Drop for Attempt<'_, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.trace.emit(Event::AttemptCancelled { address: self.address });
        }
    }
}
