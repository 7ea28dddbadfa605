//! The fold of a call's events into its [`Timings`], and timings of bounded size, whatever the peer put into them. A core.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::hops::{DialFacts, DialOutcome, History, Hop, HopEnd};
use super::late::{Late, LateKind};
use super::{CallEnd, DialEvents, LastRequest, Milestones, QueueEntry, UnlistedDial};
use crate::clock::Instant;
use crate::trace::events::Limit;
use crate::trace::events::event::{Event, Phase, TlsFacts};
use crate::trace::quota::Stopped;
use crate::trace::timings::Timings;

impl Timings {
    /// Takes one event of the call.
    ///
    /// Events come in order. One from before the call, of a dial that began earlier, counts from the call's start.
    #[inline(always)]
    pub(crate) fn fold(&mut self, at: Instant, event: &Event) {
        self.fold_times(at, event);
        self.fold_history(at, event);
    }

    /// Takes the events of a dial so far. Its lookups and attempts enter the history only when the timings are read.
    pub(in crate::trace) fn adopt(&mut self, dial: Arc<dyn DialEvents>) {
        self.list_dial();
        let events = {
            let events = dial.lock();
            events.iter().for_each(|(at, event)| self.fold_times(*at, event));
            events.len()
        };
        self.unlisted = Some(UnlistedDial { dial, events });
    }

    /// Enters the lookups and attempts of the last dial in the history.
    pub(in crate::trace) fn list_dial(&mut self) {
        if let Some(UnlistedDial { dial, events }) = self.unlisted.take() {
            dial.lock()[..events].iter().for_each(|(at, event)| self.fold_history(*at, event));
        }
    }

    /// Enters a lookup or an attempt in the history.
    #[inline(always)]
    fn fold_history(&mut self, at: Instant, event: &Event) {
        match event {
            Event::DialStart { origin, host } => {
                self.history_mut().set_dial(DialFacts { origin: origin.clone(), host: *host });
            }
            Event::DnsStart { family, .. } => {
                let at = at.max(self.start);
                self.history_mut().start_lookup(*family, at);
            }
            Event::DnsEnd(lookup) => self.history_mut().add_lookup(at, lookup.clone()),
            Event::DnsCancelled { family } => self.history_mut().cancel_lookup(*family),
            Event::AttemptStart { address } => {
                let start = self.start;
                self.history_mut().start_attempt(at, start, *address);
            }
            Event::AttemptEnd { address, error } => {
                let outcome = error.as_ref().map_or(DialOutcome::Connected, |error| DialOutcome::Failed(error.clone()));
                self.history_mut().end_attempt(at, *address, outcome);
            }
            Event::SynResent { address, times } => self.history_mut().note_resent_syns(*address, *times),
            Event::AttemptCancelled { address } => self.history_mut().end_attempt(at, *address, DialOutcome::Cancelled),
            Event::TlsFailed { address: Some(address), error } => {
                self.history_mut().fail_attempt(*address, error.clone());
            }
            _ => {}
        }
    }

    /// Moves on to the event's time and phase, and keeps what the event says about the last request.
    #[inline(always)]
    fn fold_times(&mut self, at: Instant, event: &Event) {
        self.advance(at);
        match event {
            Event::DialStart { host, .. } => {
                // A dial before this one was postponed.
                if let Some(lacking) = host.lacking
                    && let Some(entry) = self.request.queued.as_mut().filter(|entry| entry.limit == Limit::Opening)
                {
                    entry.limit = lacking;
                }
                self.request.milestones = Milestones { dial_started: Some(at), ..Milestones::default() };
            }
            Event::DnsStart { .. } => self.enter(Phase::Dns),
            Event::AttemptStart { .. } => {
                self.enter(Phase::Connect);
                self.request.milestones.resolved.get_or_insert(at);
            }
            Event::AttemptEnd { error: None, .. } => self.request.milestones.connected = Some(at),
            Event::UnixStart { .. } => self.enter(Phase::Connect),
            Event::ProxyStart { .. } => self.enter(Phase::Proxy),
            Event::TlsStart { .. } => self.enter(Phase::Tls),
            Event::TlsEnd(facts) => {
                self.request.milestones.secured = Some(at);
                self.request.tls = Some(facts.clone());
            }
            // The next address is dialled.
            Event::TlsFailed { .. } => self.go_to(Phase::Connect),
            Event::Opened { .. } | Event::DialPostponed => self.go_to(Phase::Queue),
            Event::Queued { limit, origin, usage, .. } => {
                let entry = QueueEntry { limit: *limit, origin: origin.clone(), usage: *usage };
                self.request.queued = Some(Box::new(entry));
                // The dial for this call was lost, and the call waits for another one.
                if self.phase != Phase::Queue {
                    self.go_to(Phase::Queue);
                }
            }
            Event::Leased { connection, remote, requests, tls, freed, .. } => {
                let request = &mut self.request;
                request.connection = Some(*connection);
                request.reused = *requests > 0;
                request.freed = *freed;
                request.remote = *remote;
                request.tls = tls.clone();
                // The milestones of a dial that this connection did not come from do not count.
                if request.reused {
                    request.milestones = Milestones::default();
                }
                request.milestones.leased = Some(at);
                self.go_to(Phase::Send);
            }
            Event::RequestSent { body } => self.note_sent(at, *body),
            Event::FirstByte => self.note_first_byte(at),
            Event::Headers { status, version } => {
                self.request.head = Some((*status, *version));
                self.request.milestones.head_read = Some(at);
            }
            Event::ReadLate { phase, by } => self.note_late(at, *phase, LateKind::Unread, *by),
            Event::Throttled { stopped, within } => {
                let stopped = Stopped { by: *stopped, within: *within };
                self.history_mut().note_stopped(stopped);
            }
            Event::TimerLate { phase, by } => self.note_late(at, *phase, LateKind::Timer, *by),
            Event::Repeated { cause } => self.end_request(HopEnd::Repeated(*cause)),
            Event::BackoffStart { wait } => {
                self.go_to(Phase::Backoff);
                if wait.is_zero() {
                    let since = self.last;
                    self.history_mut().begin_token_wait(since);
                }
            }
            Event::BackoffEnd => {
                let until = self.last;
                let was_for_token = self.history.as_mut().is_some_and(|history| history.end_token_wait(until));
                // If there is no newer token, the 401 that had the call wait is the answer.
                let is_answered = was_for_token && self.request.head.is_some();
                self.go_to(if is_answered { Phase::Receive } else { Phase::Queue });
            }
            Event::Redirected { status, .. } => self.end_request(HopEnd::Redirected(*status)),
            Event::BodyEnd { bytes } => self.end_call(CallEnd::Read, *bytes),
            Event::BodyDropped { bytes } => self.end_call(CallEnd::Unread, *bytes),
            Event::CallFailed { why, bytes, .. } => self.end_call(CallEnd::Failed(why), *bytes),
            // Each attempt of a hedged request has timings of its own: see `requests.rs`.
            Event::Hedged { .. }
            | Event::HedgeEnd { .. }
            | Event::OverBudget { .. }
            | Event::CallStart(_)
            | Event::DnsEnd(_)
            | Event::AttemptEnd { error: Some(_), .. }
            | Event::AttemptCancelled { .. }
            | Event::SynResent { .. }
            | Event::HeadersSent
            | Event::Informational { .. }
            | Event::BodyChunk { .. }
            | Event::DnsCancelled { .. }
            | Event::ProxyEnd
            | Event::HandshakeStart { .. }
            | Event::UpgradeEnd { .. }
            | Event::Active
            | Event::Released { .. }
            | Event::DialFailed
            | Event::DialCancelled
            | Event::Retired { .. }
            | Event::Closed { .. }
            | Event::ConfigSkipped { .. }
            | Event::TlsFilesReloaded
            | Event::TlsFilesRefused { .. }
            | Event::SettingIgnored { .. } => {}
        }
    }

    /// Takes the end of sending, which [`Event::RequestSent`] reports. The event itself is made only for observers.
    #[inline]
    pub(in crate::trace) fn note_sent(&mut self, at: Instant, body: u64) {
        self.advance(at);
        self.request.sent = body;
        self.go_to(Phase::Wait);
    }

    /// Takes the time by which the runtime was late with a part of a phase, as it is known at `at`.
    #[cold]
    pub(super) fn note_late(&mut self, at: Instant, phase: Phase, kind: LateKind, by: Duration) {
        let until = if phase == Phase::Wait { self.request.milestones.answered.unwrap_or(at) } else { at };
        // A dial may have begun before the call that waits for it.
        let (from, until) = ((until - by) - self.start, until - self.start);
        self.history_mut().note_late(Late { phase, kind, from, by: until - from, until });
    }

    /// Takes a part of the present phase's time that was spent in the program's own code.
    pub(in crate::trace) fn note_own_code(&mut self, time: Duration) {
        if self.end.is_none() {
            let phase = self.phase;
            self.history_mut().note_own_code(phase, time);
        }
    }

    /// Takes the start of the response, which [`Event::FirstByte`] reports.
    #[inline]
    pub(in crate::trace) fn note_first_byte(&mut self, at: Instant) {
        self.advance(at);
        self.request.milestones.answered = Some(at);
        self.go_to(Phase::Receive);
    }

    /// Ends the current request. The call goes on with another one.
    pub(in crate::trace) fn end_request(&mut self, end: HopEnd) {
        if self.end.is_some() {
            return;
        }
        self.list_dial();
        let started = self.history().last_started();
        let elapsed = self.total() - started;
        let all = self.all_spent();
        let spent = Phase::ALL.map(|phase| self.history().spent_last(phase, all[phase as usize]));
        let LastRequest { remote, reused, .. } = mem::take(&mut self.request);
        self.history_mut().end_request(Hop { started, elapsed, end, remote, reused, joined: 0, spent });
        // A wait for a token belongs to the next request.
        if self.phase != Phase::Backoff {
            self.go_to(Phase::Queue);
        }
    }

    /// Ends the call. The first end counts.
    fn end_call(&mut self, end: CallEnd, received: u64) {
        if self.end.is_none() {
            self.end = Some(end);
            self.received = received;
        }
    }

    pub(in crate::trace) fn advance(&mut self, at: Instant) {
        // The end of a call is final: an event that comes later, as when its body is dropped, adds no time.
        if at > self.last && self.end.is_none() {
            self.last = at;
        }
    }

    #[inline]
    fn go_to(&mut self, phase: Phase) {
        self.spent.leave(self.phase, self.last);
        self.phase = phase;
    }

    /// Enters a phase of a dial, unless the dial is past it: an AAAA lookup may go on while an IPv4 address is dialled.
    fn enter(&mut self, phase: Phase) {
        if (self.phase as usize) < phase as usize {
            self.go_to(phase);
        }
    }

    pub(in crate::trace) fn history_mut(&mut self) -> &mut History {
        self.history.get_or_insert_with(|| Box::new(History::EMPTY))
    }
}

/// The most lookups, dialled addresses, earlier requests and hedges that are kept of a call.
pub(crate) const MAX_HISTORY: usize = 8;
/// The most addresses of a lookup that are kept.
const MAX_ADDRESSES: usize = 16;

impl Timings {
    /// Returns a copy of bounded size, for a program that keeps the timings of many calls: without the server's certificates, with at
    /// most the last 8 lookups, each with 16 addresses, the last 8 dialled addresses and hedges, and 8 earlier requests, into which
    /// further ones are [joined](crate::trace::Hop::joined), so that the times still add up.
    ///
    /// It takes about 1 kB; at worst 25 kB, with a `Server-Timing` header of 4 KiB and the most lookups. Errors of lookups and dialled
    /// addresses are shared, and are not in these figures.
    pub fn bounded(&self) -> Self {
        let mut timings = self.clone();
        let remote = timings.remote_addr().map(|remote| remote.ip());
        if let Some(history) = &mut timings.history {
            history.truncate(MAX_HISTORY);
            history.cut_addresses(MAX_ADDRESSES, remote);
        }
        if let Some(facts) = timings.request.tls.as_mut().filter(|facts| !facts.peer_certificates.is_empty()) {
            *facts = Arc::new(TlsFacts { peer_certificates: Vec::new(), alpn: facts.alpn.clone(), ..**facts });
        }
        timings
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::super::samples::{SENT, address, dns_start, folded, leased, ms, retried_call};
    use super::*;
    use crate::trace::events::Family;
    use crate::trace::events::RepeatCause;
    use crate::trace::observers::Hooks;
    use crate::trace::recording::DialTrace;

    /// Queue, DNS, connect, TLS, send, wait, receive and total in milliseconds.
    fn in_ms(timings: &Timings) -> [u128; 8] {
        let spent = Phase::ALL.map(|phase| timings.spent(phase).as_millis());
        let [_, queue, dns, connect, _, tls, send, wait, receive] = spent;
        [queue, dns, connect, tls, send, wait, receive, timings.total().as_millis()]
    }

    #[test]
    fn a_cold_call_has_every_phase_and_the_phases_add_up() {
        let timings = folded(&[
            (1, dns_start(Family::V4)),
            (11, Event::AttemptStart { address: address() }),
            (31, Event::AttemptEnd { address: address(), error: None }),
            (31, Event::Opened { remote: Some(address()) }),
            (32, leased(0)),
            (35, SENT),
            (85, Event::FirstByte),
            (105, Event::BodyEnd { bytes: 9 }),
        ]);
        assert_eq!(in_ms(&timings), [2, 10, 20, 0, 3, 50, 20, 105]);
        assert!(timings.is_complete() && !timings.reused());
        assert_eq!(timings.dialled()[0].elapsed, ms(20));
    }

    #[test]
    fn a_warm_call_only_sends_waits_and_receives() {
        let events = [(0, leased(3)), (1, SENT), (6, Event::FirstByte), (8, Event::BodyEnd { bytes: 1 })];
        let timings = folded(&events);
        assert_eq!(in_ms(&timings), [0, 0, 0, 0, 1, 5, 2, 8]);
        assert!(timings.reused());
    }

    #[test]
    fn a_dial_begun_before_the_call_counts_from_the_calls_start() {
        let start = crate::clock::now() + ms(100);
        let mut timings = Timings::new(start);
        timings.fold(start - ms(50), &dns_start(Family::V4));
        timings.fold(start + ms(5), &Event::AttemptStart { address: address() });
        timings.fold(start + ms(9), &Event::Opened { remote: None });
        timings.fold(start + ms(9), &leased(0));
        assert_eq!(in_ms(&timings), [0, 5, 4, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn a_call_adopts_the_events_that_a_dial_has_had_so_far() {
        let start = crate::clock::now();
        let hooks = Hooks::default();
        let dials = [1, 2].map(|number| DialTrace::new(&hooks, number));
        let addresses = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 80)));
        let mut timings = Timings::new(start);
        for (dial, address) in dials.iter().zip(addresses) {
            dial.emit_at(start + ms(1), Event::AttemptStart { address });
            timings.adopt(dial.clone());
            dial.emit_at(start + ms(3), Event::AttemptEnd { address, error: None });
        }
        assert_eq!((timings.phase(), timings.total()), (Phase::Connect, ms(1)));
        // The attempts stay with their request when the call goes on.
        timings.fold(start + ms(9), &Event::Repeated { cause: RepeatCause::Failed });
        timings.list_dial();
        let attempts: Vec<_> = timings.dialled().iter().map(|attempt| (attempt.address, attempt.elapsed)).collect();
        assert_eq!(attempts, addresses.map(|address| (address, Duration::ZERO)));
        assert!(timings.dialled().iter().all(|attempt| matches!(attempt.outcome, DialOutcome::Pending)));
        assert!(timings.history().attempts_last().is_empty());
    }

    #[test]
    fn a_late_dns_answer_does_not_lead_back_to_dns() {
        let events = [
            (0, dns_start(Family::V6)),
            (50, Event::AttemptStart { address: address() }),
            (60, dns_start(Family::V4)),
            (70, leased(0)),
        ];
        assert_eq!(in_ms(&folded(&events)), [0, 50, 20, 0, 0, 0, 0, 70]);
    }

    #[test]
    fn a_response_before_the_request_was_sent_is_not_negative() {
        let events = [(0, leased(0)), (5, SENT), (3, Event::FirstByte), (9, Event::BodyEnd { bytes: 0 })];
        assert_eq!(in_ms(&folded(&events)), [0, 0, 0, 0, 5, 0, 4, 9]);
    }

    #[test]
    fn events_after_the_end_change_nothing() {
        let events = [
            (0, leased(0)),
            (5, Event::CallFailed { phase: Phase::Send, why: "exchange", bytes: 0 }),
            (50, Event::BodyEnd { bytes: 0 }),
        ];
        let timings = folded(&events);
        assert_eq!(timings.total(), ms(5));
        assert_eq!(timings.phase(), Phase::Send);
    }

    #[test]
    fn a_backoff_is_neither_queue_time_nor_part_of_the_attempt_before_it() {
        let timings = retried_call();
        let spent = |phase| timings.spent(phase);
        assert_eq!([Phase::Backoff, Phase::Queue, Phase::Wait].map(spent), [ms(70), ms(10), ms(15)]);
        assert_eq!(Phase::ALL.map(spent).iter().sum::<Duration>(), timings.total());
        assert_eq!((timings.backoff(), timings.longest_phase()), (ms(70), Phase::Backoff));
        let [first, second] = timings.hops() else { panic!("{timings:?}") };
        assert_eq!((first.started, first.elapsed, first.spent(Phase::Backoff)), (ms(0), ms(5), ms(0)));
        assert_eq!((second.started, second.elapsed, second.spent(Phase::Backoff)), (ms(5), ms(25), ms(20)));
        for hop in timings.hops() {
            assert_eq!(Phase::ALL.map(|phase| hop.spent(phase)).iter().sum::<Duration>(), hop.elapsed);
        }
        assert_eq!((timings.spent_last(Phase::Backoff), timings.spent_last(Phase::Queue)), (ms(50), ms(10)));
    }

    #[test]
    fn a_call_that_ends_during_a_backoff_ends_in_that_phase() {
        let timings = folded(&[
            (0, leased(0)),
            (5, Event::Repeated { cause: RepeatCause::Refused }),
            (5, Event::BackoffStart { wait: ms(100) }),
            (40, Event::CallFailed { phase: Phase::Backoff, why: "cancelled", bytes: 0 }),
        ]);
        assert_eq!((timings.phase(), timings.backoff(), timings.total()), (Phase::Backoff, ms(35), ms(40)));
    }

    #[test]
    fn the_longest_phase_is_the_earlier_one_of_equals() {
        let start = [(0, leased(0))];
        assert_eq!(folded(&start).longest_phase(), Phase::Send, "no time has passed: the phase that the call is in");
        let equal = [(0, leased(0)), (5, SENT), (10, Event::FirstByte), (12, Event::BodyEnd { bytes: 0 })];
        assert_eq!(folded(&equal).longest_phase(), Phase::Send);
        let ended_in_another = [(5, leased(0)), (6, SENT), (20, Event::FirstByte), (25, Event::BodyEnd { bytes: 0 })];
        assert_eq!(folded(&ended_in_another).longest_phase(), Phase::Wait);
    }

    #[test]
    fn a_retry_adds_to_the_same_phases() {
        let events = [
            (0, leased(4)),
            (1, SENT),
            (3, Event::Repeated { cause: RepeatCause::Closed }),
            (10, leased(0)),
            (11, SENT),
            (21, Event::FirstByte),
            (22, Event::BodyEnd { bytes: 0 }),
        ];
        let timings = folded(&events);
        assert_eq!(in_ms(&timings), [7, 0, 0, 0, 2, 12, 1, 22]);
        let [first] = timings.hops() else { panic!("{timings:?}") };
        assert_eq!((first.end, first.started, first.elapsed), (HopEnd::Repeated(RepeatCause::Closed), ms(0), ms(3)));
        assert_eq!([Phase::Send, Phase::Wait, Phase::Queue].map(|phase| first.spent(phase)), [ms(1), ms(2), ms(0)]);
        assert_eq!(timings.spent_last(Phase::Queue), ms(7));
        assert!(first.reused && !timings.reused());
    }
}

#[cfg(test)]
mod bounded_tests {
    use std::net::IpAddr;

    use bytes::Bytes;

    use super::*;
    use crate::trace::events::event::Event;
    use crate::trace::events::{DnsLookup, Family, Source};
    use crate::trace::timings::samples::{SENT, address, cold_call, dns_start, folded, leased, ms};

    #[test]
    fn certificates_are_let_go_and_the_rest_of_a_handshake_is_kept() {
        let facts = Arc::new(TlsFacts {
            version: "TLSv1_3",
            cipher_suite: "TLS13_AES_128_GCM_SHA256",
            alpn: Some("h2".into()),
            resumed: false,
            verified: true,
            peer_certificates: vec![Bytes::from_static(&[7; 2_000])],
        });
        let mut timings = cold_call();
        timings.request.tls = Some(facts.clone());
        let kept = timings.bounded();
        drop(timings);
        assert_eq!(Arc::strong_count(&facts), 1, "the chain can be freed");
        let without = TlsFacts { peer_certificates: Vec::new(), ..(*facts).clone() };
        assert_eq!(kept.tls_facts(), Some(&without));
        let again = kept.bounded();
        assert!(std::ptr::eq(kept.tls_facts().unwrap(), again.tls_facts().unwrap()), "there is nothing to let go");
    }

    #[test]
    fn of_many_addresses_of_a_name_that_of_the_connection_is_kept() {
        let lookup = |count: u16, last: IpAddr| {
            let others = (0..count).map(|number| IpAddr::from([10, 0, (number >> 8) as u8, number as u8]));
            let all: Arc<[IpAddr]> = others.chain([last]).collect();
            let end = DnsLookup::answered("api.test".into(), Family::V4, all.clone(), ms(2_000), Source::Miss);
            let call = folded(&[(0, dns_start(Family::V4)), (5, Event::DnsEnd(end)), (5, leased(0)), (5, SENT)]);
            let kept = call.bounded().lookups()[0].addresses.clone();
            (all, kept)
        };
        let (_, kept) = lookup(5_000, address().ip());
        assert_eq!((kept.len(), kept.last()), (MAX_ADDRESSES, Some(&address().ip())));
        let (all, kept) = lookup(5_000, IpAddr::from([10, 1, 1, 1]));
        assert_eq!(kept[..], all[..MAX_ADDRESSES], "no connection has one of them");
        let (all, kept) = lookup(15, address().ip());
        assert!(Arc::ptr_eq(&all, &kept), "a usual answer is shared");
    }
}
