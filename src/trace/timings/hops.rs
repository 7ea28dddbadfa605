//! The history of a call: its lookups, the addresses dialled for it, its requests before the last one, and its hedges.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;

use super::late::{Late, LateParts};
use super::spent::PhaseTimes;
use crate::clock::Instant;
use crate::origin::Origin;
use crate::trace::events::event::{HostAtDial, Phase};
use crate::trace::events::{Budgeted, DnsLookup, Family, HedgeOutcome, NotRetried, RepeatCause};
use crate::trace::quota::Stopped;

/// A request of a call before its last one. It was sent again, or its response was a redirect, or a second attempt was
/// answered first.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Hop {
    /// The time from the call's start until this request began, or the backoff before it.
    pub started: Duration,
    /// The duration of the request and of the backoff before it.
    pub elapsed: Duration,
    /// The way in which the request ended.
    pub end: HopEnd,
    /// The peer's address, if the request got a connection.
    pub remote: Option<SocketAddr>,
    /// True if its connection had carried a request before.
    pub reused: bool,
    /// The number of further requests, before this one, that ended in the same way and whose times are added to those of this one.
    /// Above 0 only in a `Recorder` and a `Har`, which keep at most 8 hops of a call.
    pub joined: u32,
    pub(in crate::trace) spent: PhaseTimes,
}

impl Hop {
    /// Returns the time of one phase. The phases add up to [`elapsed`](Self::elapsed).
    pub fn spent(&self, phase: Phase) -> Duration {
        self.spent[phase as usize]
    }

    /// Adds a later request that ended in the same way. The facts are those of the later one then.
    fn join(&mut self, later: &Self) {
        self.elapsed += later.elapsed;
        self.spent.iter_mut().zip(later.spent).for_each(|(sum, more)| *sum += more);
        self.joined += 1 + later.joined;
        (self.end, self.remote, self.reused) = (later.end, later.remote, later.reused);
    }
}

/// The end of a request that was not the last one of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HopEnd {
    /// The request was sent again, for this reason.
    Repeated(RepeatCause),
    /// The response had this status and named another URL.
    Redirected(StatusCode),
    /// The answer was late, and the request was sent once more, on another connection, whose answer counts. The time is
    /// that until the second attempt began.
    Hedged,
}

impl HopEnd {
    /// Returns true if both are redirects, both retries, both resends or both hedged.
    fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Repeated(cause), Self::Repeated(other)) => cause.is_retry() == other.is_retry(),
            (Self::Redirected(_), Self::Redirected(_)) | (Self::Hedged, Self::Hedged) => true,
            _ => false,
        }
    }
}

/// A second attempt at a request of a call, made because the answer to the first attempt was late
/// ([`HedgePolicy`](crate::HedgePolicy)).
///
/// The call's times are those of the attempt that counted. If that was the second one, the first one is among the call's
/// [`hops`](crate::trace::Timings::hops), and ends there as the second one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hedge {
    /// The time from the call's start until the second attempt began.
    pub started: Duration,
    /// The result.
    pub outcome: HedgeOutcome,
}

/// One address that was dialled for a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DialledAddress {
    /// The address.
    pub address: SocketAddr,
    /// The time from the call's start until the address was dialled. Zero for a dial that began before the call.
    pub started: Duration,
    /// The duration of the attempt, including any part before the call's start.
    pub elapsed: Duration,
    /// The result.
    pub outcome: DialOutcome,
    /// The number of times that the operating system sent the first packet (SYN) again, because no answer came. Known on Linux
    /// only; 0 elsewhere.
    pub resent_syns: u32,
    started_at: Instant,
}

/// The result of dialling an address.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DialOutcome {
    /// The attempt has not ended yet.
    Pending,
    /// The address connected.
    Connected,
    /// The attempt failed.
    Failed(Arc<io::Error>),
    /// The attempt was cancelled, because another address was faster or the time ran out.
    Cancelled,
}

/// The lookups, attempts and earlier requests of a call, in the order in which they happened.
///
/// A call that is one request on an idle connection has none.
#[derive(Debug, Clone)]
pub(crate) struct History {
    lookups: Vec<DnsLookup>,
    attempts: Vec<DialledAddress>,
    hops: Vec<Hop>,
    hedges: Vec<Hedge>,
    /// The number of `lookups` made for earlier requests.
    lookups_before: usize,
    /// The number of `attempts` made for earlier requests.
    attempts_before: usize,
    /// The lookups under way, with the time at which each began to belong to the call.
    lookups_under_way: SmallVec<[(Family, Instant); 2]>,
    /// The dial of the last request's own connection.
    dial: Option<DialFacts>,
    /// The time spent waiting for tokens.
    token_wait: Duration,
    /// The start of the wait for a token that is going on.
    token_wait_since: Option<Instant>,
    /// The time for which the last request's body had nothing to be sent.
    body_starved: Duration,
    /// The parts of the call's time by which its runtime was late.
    late: LateParts,
    /// The time for which a processor quota stopped the program during one of those parts of the last request, the longest one.
    stopped: Stopped,
    /// The address with which a TLS handshake of the last request's dial failed last.
    tls_failed: Option<SocketAddr>,
    /// What was not made because the origin's budget was used up.
    over_budget: SmallVec<[Budgeted; 2]>,
    /// The number of those before the last request.
    over_budget_before: usize,
    /// The reason why there is no retry after the last request.
    not_retried: Option<NotRetried>,
    /// The parts of the last request's phases that were spent in the program's own code around requests: layers, functions of
    /// `before_attempt`, observers.
    own_code: SmallVec<[(Phase, Duration); 2]>,
    /// The time for which layers have waited for the bodies of responses, where it is not taken off theirs yet.
    pub(in crate::trace) layer_wait: Duration,
    /// True if a server may have acted on an attempt of a layer before the last one.
    pub(in crate::trace) acted_before: bool,
}

/// The dial of a request's own connection.
#[derive(Debug, Clone)]
pub(crate) struct DialFacts {
    pub(in crate::trace) origin: Origin,
    pub(crate) host: HostAtDial,
}

impl History {
    pub(in crate::trace) const EMPTY: Self = Self {
        lookups: Vec::new(),
        attempts: Vec::new(),
        hops: Vec::new(),
        hedges: Vec::new(),
        lookups_before: 0,
        attempts_before: 0,
        lookups_under_way: SmallVec::new_const(),
        dial: None,
        token_wait: Duration::ZERO,
        token_wait_since: None,
        body_starved: Duration::ZERO,
        late: LateParts::NONE,
        stopped: Stopped { by: Duration::ZERO, within: Duration::ZERO },
        tls_failed: None,
        over_budget: SmallVec::new_const(),
        over_budget_before: 0,
        not_retried: None,
        own_code: SmallVec::new_const(),
        layer_wait: Duration::ZERO,
        acted_before: false,
    };

    pub(in crate::trace) fn lookups(&self) -> &[DnsLookup] {
        &self.lookups
    }

    pub(in crate::trace) fn attempts(&self) -> &[DialledAddress] {
        &self.attempts
    }

    pub(in crate::trace) fn hops(&self) -> &[Hop] {
        &self.hops
    }

    pub(in crate::trace) fn hedges(&self) -> &[Hedge] {
        &self.hedges
    }

    /// Returns the time from the call's start until the last request began.
    pub(crate) fn last_started(&self) -> Duration {
        self.hops.last().map_or(Duration::ZERO, |hop| hop.started + hop.elapsed)
    }

    /// Returns the part of a phase's time `all` that belongs to the last request.
    pub(crate) fn spent_last(&self, phase: Phase, all: Duration) -> Duration {
        self.hops.iter().fold(all, |rest, hop| rest - hop.spent(phase))
    }

    /// Returns the last request's lookup that led to the address `remote`, or else one that answered, or else one that
    /// failed.
    pub(crate) fn used_lookup(&self, remote: Option<IpAddr>) -> Option<&DnsLookup> {
        let rank = |lookup: &&DnsLookup| match (remote, &lookup.error) {
            (Some(remote), None) if lookup.addresses.contains(&remote) => 2,
            (_, None) => 1,
            (_, Some(_)) => 0,
        };
        self.lookups[self.lookups_before..].iter().max_by_key(rank)
    }

    /// Returns the attempts made for the last request.
    pub(in crate::trace) fn attempts_last(&self) -> &[DialledAddress] {
        &self.attempts[self.attempts_before..]
    }

    /// Returns the time between `from` and `until` in which an address was being dialled for the last request.
    pub(in crate::trace) fn dialling_last(&self, from: Instant, until: Instant) -> Duration {
        let (mut sum, mut dialled_until) = (Duration::ZERO, from);
        // They are in the order in which they began.
        for attempt in self.attempts_last() {
            let end = match attempt.outcome {
                DialOutcome::Pending => until,
                _ => (attempt.started_at + attempt.elapsed).min(until),
            };
            sum += end - attempt.started_at.max(dialled_until);
            dialled_until = dialled_until.max(end);
        }
        sum
    }

    /// Returns the number of attempts for the last request that failed.
    pub(in crate::trace) fn failed_last(&self) -> usize {
        self.attempts_last().iter().filter(|attempt| matches!(attempt.outcome, DialOutcome::Failed(_))).count()
    }

    /// Returns the dial of the last request's own connection.
    pub(crate) fn dial(&self) -> Option<&DialFacts> {
        self.dial.as_ref()
    }

    pub(in crate::trace) fn set_dial(&mut self, dial: DialFacts) {
        self.dial = Some(dial);
    }

    /// Notes a lookup that the call waits for from `since` on.
    pub(in crate::trace) fn start_lookup(&mut self, family: Family, since: Instant) {
        self.lookups_under_way.push((family, since));
    }

    /// Forgets a lookup that was given up.
    pub(in crate::trace) fn cancel_lookup(&mut self, family: Family) {
        self.lookups_under_way.retain(|(under_way, _)| *under_way != family);
    }

    /// Adds a lookup that ended at `at`.
    pub(in crate::trace) fn add_lookup(&mut self, at: Instant, mut lookup: DnsLookup) {
        if let Some(index) = self.lookups_under_way.iter().position(|(family, _)| *family == lookup.family) {
            let (_, since) = self.lookups_under_way.swap_remove(index);
            lookup.elapsed = at - since;
        }
        self.lookups.push(lookup);
    }

    /// Notes that the call waits for a token from `since` on.
    pub(in crate::trace) fn begin_token_wait(&mut self, since: Instant) {
        self.token_wait_since = Some(since);
    }

    /// Ends the wait for a token, and returns true if there is one.
    pub(in crate::trace) fn end_token_wait(&mut self, until: Instant) -> bool {
        self.token_wait = self.token_wait(until);
        self.token_wait_since.take().is_some()
    }

    /// Returns the time spent waiting for tokens up to `now`.
    pub(in crate::trace) fn token_wait(&self, now: Instant) -> Duration {
        let going_on = self.token_wait_since.map_or(Duration::ZERO, |since| now - since);
        self.token_wait + going_on
    }

    /// Returns the address with which a TLS handshake failed last while the last request's connection was opened.
    pub(in crate::trace) fn tls_failed(&self) -> Option<SocketAddr> {
        self.tls_failed
    }

    /// Returns the time for which the last request's body had nothing to be sent.
    pub(in crate::trace) fn body_starved(&self) -> Duration {
        self.body_starved
    }

    pub(in crate::trace) fn set_body_starved(&mut self, starved: Duration) {
        self.body_starved = starved;
    }

    pub(in crate::trace) fn late(&self) -> &LateParts {
        &self.late
    }

    pub(in crate::trace) fn note_late(&mut self, late: Late) {
        let started = self.last_started();
        self.late.add(late, started);
    }

    pub(in crate::trace) fn stopped(&self) -> Stopped {
        self.stopped
    }

    pub(in crate::trace) fn note_stopped(&mut self, stopped: Stopped) {
        if stopped.by > self.stopped.by {
            self.stopped = stopped;
        }
    }

    pub(in crate::trace) fn own_code(&self) -> &[(Phase, Duration)] {
        &self.own_code
    }

    pub(in crate::trace) fn note_own_code(&mut self, phase: Phase, time: Duration) {
        match self.own_code.iter_mut().find(|(of, _)| *of == phase) {
            Some((_, sum)) => *sum += time,
            None => self.own_code.push((phase, time)),
        }
    }

    pub(in crate::trace) fn over_budget(&self) -> &[Budgeted] {
        &self.over_budget
    }

    /// Returns what was not made after the last request.
    pub(in crate::trace) fn over_budget_at_last(&self) -> &[Budgeted] {
        &self.over_budget[self.over_budget_before..]
    }

    pub(in crate::trace) fn note_over_budget(&mut self, repeat: Budgeted) {
        self.over_budget.push(repeat);
    }

    pub(in crate::trace) fn not_retried(&self) -> Option<NotRetried> {
        self.not_retried
    }

    pub(in crate::trace) fn note_not_retried(&mut self, why: NotRetried) {
        self.not_retried = Some(why);
    }

    /// Adds an attempt that began at `at`, in a call that began at `call_start`.
    pub(in crate::trace) fn start_attempt(&mut self, at: Instant, call_start: Instant, address: SocketAddr) {
        self.attempts.push(DialledAddress {
            address,
            started: at - call_start,
            elapsed: Duration::ZERO,
            outcome: DialOutcome::Pending,
            resent_syns: 0,
            started_at: at,
        });
    }

    /// Ends the pending attempt to dial `address`.
    pub(in crate::trace) fn end_attempt(&mut self, at: Instant, address: SocketAddr, outcome: DialOutcome) {
        let is_pending = |attempt: &&mut DialledAddress| {
            attempt.address == address && matches!(attempt.outcome, DialOutcome::Pending)
        };
        if let Some(attempt) = self.attempts.iter_mut().rev().find(is_pending) {
            attempt.elapsed = at - attempt.started_at;
            attempt.outcome = outcome;
        }
    }

    /// Enters how often the first packet to `address` was sent again.
    pub(in crate::trace) fn note_resent_syns(&mut self, address: SocketAddr, resent_syns: u32) {
        if let Some(attempt) = self.attempts.iter_mut().rev().find(|attempt| attempt.address == address) {
            attempt.resent_syns = resent_syns;
        }
    }

    /// Marks the last attempt to dial `address` as failed: it connected, but its TLS handshake failed.
    pub(in crate::trace) fn fail_attempt(&mut self, address: SocketAddr, error: Arc<io::Error>) {
        self.tls_failed = Some(address);
        if let Some(attempt) = self.attempts.iter_mut().rev().find(|attempt| attempt.address == address) {
            attempt.outcome = DialOutcome::Failed(error);
        }
    }

    /// Adds the request that just ended. What follows belongs to the next one.
    pub(in crate::trace) fn end_request(&mut self, hop: Hop) {
        self.hops.push(hop);
        self.lookups_before = self.lookups.len();
        self.attempts_before = self.attempts.len();
        self.over_budget_before = self.over_budget.len();
        self.not_retried = None;
        self.lookups_under_way.clear();
        self.dial = None;
        self.body_starved = Duration::ZERO;
        self.late.end_request();
        self.stopped = Stopped::default();
        self.own_code.clear();
        self.tls_failed = None;
    }

    pub(in crate::trace) fn add_hedge(&mut self, hedge: Hedge) {
        self.hedges.push(hedge);
    }

    /// Enters the result of the last hedge.
    pub(in crate::trace) fn end_hedge(&mut self, outcome: HedgeOutcome) {
        if let Some(hedge) = self.hedges.last_mut() {
            hedge.outcome = outcome;
        }
    }

    /// Leaves at most `most` lookups, attempts, requests and hedges, the latest ones. The earliest requests that ended in one way
    /// become one, so that the times still add up. `most` is at least 6, one more than there are ways.
    pub(in crate::trace) fn truncate(&mut self, most: usize) {
        let lookups = drop_first(&mut self.lookups, most);
        self.lookups_before = self.lookups_before.saturating_sub(lookups);
        let attempts = drop_first(&mut self.attempts, most);
        self.attempts_before = self.attempts_before.saturating_sub(attempts);
        drop_first(&mut self.hedges, most);
        self.join_first_hops(self.hops.len().saturating_sub(most));
    }

    /// Joins each of the first hops to an earlier one that ended in the same way, until there are `surplus` less.
    fn join_first_hops(&mut self, surplus: usize) {
        if surplus == 0 {
            return;
        }
        let mut joined = 0;
        let mut hops: Vec<Hop> = Vec::with_capacity(self.hops.len() - surplus);
        for hop in self.hops.drain(..) {
            match hops.iter_mut().find(|earlier| joined < surplus && earlier.end.is_like(hop.end)) {
                Some(earlier) => {
                    earlier.join(&hop);
                    joined += 1;
                }
                None => hops.push(hop),
            }
        }
        self.hops = hops;
    }

    /// Leaves at most `most` addresses of each lookup, one of them `remote`, if the lookup has it.
    pub(in crate::trace) fn cut_addresses(&mut self, most: usize, remote: Option<IpAddr>) {
        for lookup in self.lookups.iter_mut().filter(|lookup| lookup.addresses.len() > most) {
            let (first, rest) = lookup.addresses.split_at(most);
            let mut kept = first.to_vec();
            if let Some((last, remote)) = kept.last_mut().zip(remote.filter(|remote| rest.contains(remote))) {
                *last = remote;
            }
            lookup.addresses = kept.into();
        }
    }

    /// Corrects the time that an earlier request took to be sent: the rest of it was spent waiting. Returns the rest.
    pub(in crate::trace) fn settle_hop(&mut self, index: usize, sending: Duration) -> Duration {
        let spent = &mut self.hops[index].spent;
        let rest = spent[Phase::Send as usize].saturating_sub(sending);
        spent[Phase::Send as usize] -= rest;
        spent[Phase::Wait as usize] += rest;
        rest
    }
}

/// Removes the first items, so that at most `most` are left, and returns their number.
fn drop_first<T>(items: &mut Vec<T>, most: usize) -> usize {
    let surplus = items.len().saturating_sub(most);
    if surplus > 0 {
        items.drain(..surplus);
        items.shrink_to_fit();
    }
    surplus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::trace::events::Source;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 80))
    }

    fn hop(started: u64, elapsed: u64) -> Hop {
        let mut spent = PhaseTimes::default();
        spent[Phase::Wait as usize] = ms(elapsed);
        let end = HopEnd::Repeated(RepeatCause::Closed);
        Hop { started: ms(started), elapsed: ms(elapsed), end, remote: None, reused: true, joined: 0, spent }
    }

    #[test]
    fn attempts_are_listed_in_the_order_they_began_and_failures_counted_per_request() {
        let start = crate::clock::now();
        let error = || Arc::new(io::Error::other("refused"));
        let mut history = History::EMPTY;
        history.start_attempt(start + ms(1), start, address(1));
        history.start_attempt(start + ms(2), start, address(2));
        history.end_attempt(start + ms(9), address(2), DialOutcome::Connected);
        history.end_attempt(start + ms(9), address(1), DialOutcome::Failed(error()));
        assert_eq!(history.attempts().iter().map(|attempt| attempt.elapsed).collect::<Vec<_>>(), [ms(8), ms(7)]);
        assert_eq!(history.failed_last(), 1);
        history.fail_attempt(address(2), error());
        assert_eq!(history.failed_last(), 2);
        history.end_request(hop(0, 10));
        assert_eq!((history.failed_last(), history.attempts().len()), (0, 2));
    }

    #[test]
    fn the_lookup_in_use_is_the_one_that_has_the_peers_address() {
        let lookup = |family, last| {
            DnsLookup::answered("api.test".into(), family, [address(last).ip()].into(), ms(1), Source::Miss)
        };
        let mut history = History::EMPTY;
        let failure = DnsLookup::failed("api.test".into(), Family::V6, Source::Miss, Arc::new(io::Error::other("no")));
        history.add_lookup(now(), failure);
        assert!(history.used_lookup(None).is_some_and(|lookup| lookup.error.is_some()), "there is no other one");
        history.add_lookup(now(), lookup(Family::V4, 1));
        history.add_lookup(now(), lookup(Family::V4, 2));
        let used = history.used_lookup(Some(address(1).ip())).unwrap();
        assert_eq!(used.addresses[..], [address(1).ip()]);
    }

    #[test]
    fn the_last_request_has_the_time_that_the_others_left() {
        let mut history = History::EMPTY;
        history.end_request(hop(0, 10));
        history.end_request(hop(10, 20));
        assert_eq!(history.last_started(), ms(30));
        assert_eq!(history.spent_last(Phase::Wait, ms(35)), ms(5));
    }

    #[test]
    fn a_truncated_history_keeps_the_latest_entries_and_all_of_the_time() {
        let start = crate::clock::now();
        let mut history = History::EMPTY;
        for index in 0..20 {
            history.start_attempt(start + ms(index), start, address(index as u8));
            history.end_request(hop(index * 10, 10));
        }
        history.start_attempt(start + ms(200), start, address(99));
        history.truncate(8);
        assert_eq!((history.hops().len(), history.attempts().len()), (8, 8));
        let [first, second, ..] = history.hops() else { panic!("eight hops") };
        assert_eq!((first.started, first.elapsed, first.joined), (ms(0), ms(130), 12));
        assert_eq!((second.started, second.elapsed, second.joined), (ms(130), ms(10), 0));
        assert_eq!(history.last_started(), ms(200));
        assert_eq!(history.spent_last(Phase::Wait, ms(205)), ms(5));
        assert_eq!(history.attempts_last().iter().map(|attempt| attempt.address).collect::<Vec<_>>(), [address(99)]);
        let before = format!("{history:?}");
        history.truncate(8);
        assert_eq!(format!("{history:?}"), before, "a history that fits is left alone");
    }

    #[test]
    fn requests_that_ended_in_different_ways_are_not_joined() {
        let ends = [
            HopEnd::Redirected(StatusCode::FOUND),
            HopEnd::Repeated(RepeatCause::Failed),
            HopEnd::Repeated(RepeatCause::Closed),
            HopEnd::Hedged,
            HopEnd::Redirected(StatusCode::SEE_OTHER),
        ];
        let mut history = History::EMPTY;
        for index in 0..20_u64 {
            let end = ends[index as usize % 5];
            history.end_request(Hop { end, ..hop(index * 10, 10) });
        }
        history.truncate(8);
        let ways = |is_of: fn(HopEnd) -> bool| {
            let hops: Vec<_> = history.hops().iter().filter(|hop| is_of(hop.end)).collect();
            let requests: u32 = hops.iter().map(|hop| 1 + hop.joined).sum();
            (requests, hops.iter().map(|hop| hop.elapsed).sum::<Duration>())
        };
        assert_eq!(history.hops().len(), 8);
        assert_eq!(ways(|end| matches!(end, HopEnd::Redirected(_))), (8, ms(80)));
        assert_eq!(ways(|end| end == HopEnd::Repeated(RepeatCause::Failed)), (4, ms(40)));
        assert_eq!(ways(|end| end == HopEnd::Repeated(RepeatCause::Closed)), (4, ms(40)));
        assert_eq!(ways(|end| end == HopEnd::Hedged), (4, ms(40)));
        assert_eq!((history.last_started(), history.spent_last(Phase::Wait, ms(205))), (ms(200), ms(5)));
    }
}
