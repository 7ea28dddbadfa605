//! Where a call's time went: a fold over its events.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::event::{DnsLookup, Event, Phase, Source, TlsFacts};
use crate::clock::Instant;

/// Where the time of one call went.
///
/// Every moment from the call's start belongs to exactly one [`Phase`], so the phases add up to [`total`](Self::total)
/// to the nanosecond. The time a pool's task spent opening a connection belongs to the call that waited for it.
///
/// `{}` prints one line, `{:#}` a waterfall for a terminal.
#[derive(Debug, Clone)]
pub struct Timings {
    start: Instant,
    last: Instant,
    phase: Phase,
    complete: bool,
    spent: [Duration; Phase::ALL.len()],
    reused: bool,
    remote: Option<SocketAddr>,
    tls: Option<Arc<TlsFacts>>,
    lookups: Vec<DnsLookup>,
    attempts: Vec<Attempt>,
}

/// One address that was dialled for a call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Attempt {
    /// The address.
    pub address: SocketAddr,
    /// When it was dialled, counted from the call's start; zero for a dial that began before the call.
    pub started: Duration,
    /// How long it took, from when it was dialled, be that before the call's start.
    pub elapsed: Duration,
    /// What came of it.
    pub outcome: Outcome,
    begun: Instant,
}

/// What came of dialling an address.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outcome {
    /// Not known yet.
    Pending,
    /// It connected.
    Connected,
    /// It failed.
    Failed(Arc<io::Error>),
    /// It was given up, because another address was faster or the time ran out.
    Cancelled,
}

impl Timings {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            last: start,
            phase: Phase::Queue,
            complete: false,
            spent: [Duration::ZERO; Phase::ALL.len()],
            reused: false,
            remote: None,
            tls: None,
            lookups: Vec::new(),
            attempts: Vec::new(),
        }
    }

    /// Takes one event. Events come in order; one from before the call (of a dial begun earlier) counts from its start.
    pub(crate) fn fold(&mut self, at: Instant, event: &Event) {
        self.advance(at);
        match event {
            Event::DnsStart { .. } => self.enter(Phase::Dns),
            Event::DnsEnd(lookup) => self.lookups.push(lookup.clone()),
            Event::AttemptStart { address } => {
                self.enter(Phase::Connect);
                self.attempt_started(at, *address);
            }
            Event::AttemptEnd { address, error: None } => self.attempt_ended(at, *address, Outcome::Connected),
            Event::AttemptEnd { address, error: Some(error) } => {
                self.attempt_ended(at, *address, Outcome::Failed(error.clone()));
            }
            Event::AttemptCancelled { address } => self.attempt_ended(at, *address, Outcome::Cancelled),
            Event::UnixStart { .. } => self.enter(Phase::Connect),
            Event::ProxyStart { .. } => self.enter(Phase::Proxy),
            Event::TlsStart { .. } => self.enter(Phase::Tls),
            Event::TlsEnd(facts) => self.tls = Some(facts.clone()),
            // The next address is dialled.
            Event::TlsFailed { address, error } => {
                self.phase = Phase::Connect;
                if let Some(address) = address {
                    self.attempt_spoiled(*address, error);
                }
            }
            Event::Opened { .. } | Event::Retried | Event::DialPostponed => self.phase = Phase::Queue,
            Event::Leased { remote, requests, tls, .. } => {
                self.reused = *requests > 0;
                self.remote = *remote;
                self.tls = tls.clone();
                self.phase = Phase::Send;
            }
            Event::RequestSent => self.phase = Phase::Wait,
            Event::FirstByte => self.phase = Phase::Receive,
            Event::BodyEnd { .. } | Event::CallFailed { .. } => self.complete = true,
            Event::CallStart { .. }
            | Event::Queued { .. }
            | Event::Headers { .. }
            | Event::DnsCancelled { .. }
            | Event::ProxyEnd
            | Event::DialFailed
            | Event::Retired { .. }
            | Event::Closed { .. } => {}
        }
    }

    /// The time of one phase.
    pub fn spent(&self, phase: Phase) -> Duration {
        self.spent[phase as usize]
    }

    /// Waiting for a connection, except while the one the call got was being opened.
    pub fn queue(&self) -> Duration {
        self.spent(Phase::Queue)
    }

    /// Until the first address was dialled.
    pub fn dns(&self) -> Duration {
        self.spent(Phase::Dns)
    }

    /// From the first dialled address to an established connection.
    pub fn connect(&self) -> Duration {
        self.spent(Phase::Connect)
    }

    /// Asking a proxy to lead on, its own TLS handshake included.
    pub fn proxy(&self) -> Duration {
        self.spent(Phase::Proxy)
    }

    /// The TLS handshake.
    pub fn tls(&self) -> Duration {
        self.spent(Phase::Tls)
    }

    /// From the lease of a connection to the last byte of the request.
    pub fn send(&self) -> Duration {
        self.spent(Phase::Send)
    }

    /// From the last byte of the request to the first byte of the response.
    pub fn wait(&self) -> Duration {
        self.spent(Phase::Wait)
    }

    /// From the first byte of the response on.
    pub fn receive(&self) -> Duration {
        self.spent(Phase::Receive)
    }

    /// From the call's start to its last event; always the sum of the phases.
    pub fn total(&self) -> Duration {
        self.last - self.start
    }

    /// The phase the call is in, or was in when it ended.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the call is over: its body was read to the end, or it failed or was given up.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the connection had carried a request before.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// The peer's address, once there is a connection and where its transport knows it.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// What the connection's TLS handshake came to, be it long before this call; `None` without TLS.
    pub fn tls_facts(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }

    /// Where the DNS answer came from that led to the connection; `None` when nothing was looked up for this call.
    pub fn dns_source(&self) -> Option<Source> {
        self.used_lookup().map(|lookup| lookup.source)
    }

    /// The lookup that led to the connection, or else one that answered, or else one that failed.
    pub(super) fn used_lookup(&self) -> Option<&DnsLookup> {
        let worth = |lookup: &&DnsLookup| match (self.remote, &lookup.error) {
            (Some(remote), None) if lookup.addresses.contains(&remote.ip()) => 2,
            (_, None) => 1,
            _ => 0,
        };
        self.lookups.iter().max_by_key(worth)
    }

    /// The lookups made for this call, one a family, in the order they ended.
    pub fn lookups(&self) -> &[DnsLookup] {
        &self.lookups
    }

    /// The addresses dialled for this call, in the order they were dialled.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    fn advance(&mut self, at: Instant) {
        // The end of a call is final: a straggler (a body dropped after its end, say) adds nothing.
        if at > self.last && !self.complete {
            self.spent[self.phase as usize] += at - self.last;
            self.last = at;
        }
    }

    /// Enters a phase of a dial; an AAAA answer that comes while an IPv4 address is dialled does not lead back.
    fn enter(&mut self, phase: Phase) {
        if (self.phase as usize) < phase as usize {
            self.phase = phase;
        }
    }

    fn attempt_started(&mut self, at: Instant, address: SocketAddr) {
        let started = at.saturating_duration_since(self.start);
        let (elapsed, outcome) = (Duration::ZERO, Outcome::Pending);
        self.attempts.push(Attempt { address, started, elapsed, outcome, begun: at });
    }

    /// An address that connected, and was of no use.
    fn attempt_spoiled(&mut self, address: SocketAddr, error: &Arc<io::Error>) {
        if let Some(attempt) = self.attempts.iter_mut().rev().find(|attempt| attempt.address == address) {
            attempt.outcome = Outcome::Failed(error.clone());
        }
    }

    fn attempt_ended(&mut self, at: Instant, address: SocketAddr, outcome: Outcome) {
        let pending =
            |attempt: &&mut Attempt| attempt.address == address && matches!(attempt.outcome, Outcome::Pending);
        if let Some(attempt) = self.attempts.iter_mut().rev().find(pending) {
            attempt.elapsed = at.saturating_duration_since(attempt.begun);
            attempt.outcome = outcome;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Family;
    use super::*;

    fn t0() -> Instant {
        crate::clock::now()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn leased(requests: u64) -> Event {
        Event::Leased { connection: 1, remote: Some(addr()), requests, idle: Duration::ZERO, tls: None }
    }

    fn addr() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 80))
    }

    fn folded(start: Instant, events: &[(u64, Event)]) -> Timings {
        let mut timings = Timings::new(start);
        for (at, event) in events {
            timings.fold(start + ms(*at), event);
        }
        timings
    }

    fn in_ms(timings: &Timings) -> [u128; 8] {
        let spent = Phase::ALL.map(|phase| timings.spent(phase).as_millis());
        let [queue, dns, connect, _, tls, send, wait, receive] = spent;
        [queue, dns, connect, tls, send, wait, receive, timings.total().as_millis()]
    }

    #[test]
    fn a_cold_call_has_every_phase_and_they_add_up() {
        let timings = folded(
            t0(),
            &[
                (1, Event::DnsStart { family: Family::V4 }),
                (11, Event::AttemptStart { address: addr() }),
                (31, Event::AttemptEnd { address: addr(), error: None }),
                (31, Event::Opened { remote: Some(addr()) }),
                (32, leased(0)),
                (35, Event::RequestSent),
                (85, Event::FirstByte),
                (105, Event::BodyEnd { bytes: 9 }),
            ],
        );
        assert_eq!(in_ms(&timings), [2, 10, 20, 0, 3, 50, 20, 105]);
        assert!(timings.is_complete() && !timings.reused());
        assert_eq!(timings.attempts()[0].elapsed, ms(20));
    }

    #[test]
    fn a_warm_call_only_sends_waits_and_receives() {
        let events = [(0, leased(3)), (1, Event::RequestSent), (6, Event::FirstByte), (8, Event::BodyEnd { bytes: 1 })];
        let timings = folded(t0(), &events);
        assert_eq!(in_ms(&timings), [0, 0, 0, 0, 1, 5, 2, 8]);
        assert!(timings.reused());
    }

    #[test]
    fn a_dial_begun_before_the_call_counts_from_the_calls_start() {
        let start = t0() + ms(100);
        let mut timings = Timings::new(start);
        timings.fold(start - ms(50), &Event::DnsStart { family: Family::V4 });
        timings.fold(start + ms(5), &Event::AttemptStart { address: addr() });
        timings.fold(start + ms(9), &Event::Opened { remote: None });
        timings.fold(start + ms(9), &leased(0));
        assert_eq!(in_ms(&timings), [0, 5, 4, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn a_late_answer_does_not_lead_back_to_dns() {
        let events = [
            (0, Event::DnsStart { family: Family::V6 }),
            (50, Event::AttemptStart { address: addr() }),
            (60, Event::DnsStart { family: Family::V4 }),
            (70, leased(0)),
        ];
        assert_eq!(in_ms(&folded(t0(), &events)), [0, 50, 20, 0, 0, 0, 0, 70]);
    }

    #[test]
    fn a_response_before_the_request_was_sent_is_not_negative() {
        let events = [(0, leased(0)), (5, Event::RequestSent), (3, Event::FirstByte), (9, Event::BodyEnd { bytes: 0 })];
        assert_eq!(in_ms(&folded(t0(), &events)), [0, 0, 0, 0, 5, 0, 4, 9]);
    }

    #[test]
    fn nothing_counts_after_the_end() {
        let events = [(0, leased(0)), (5, Event::CallFailed { phase: Phase::Send }), (50, Event::BodyEnd { bytes: 0 })];
        let timings = folded(t0(), &events);
        assert_eq!(timings.total(), ms(5));
        assert_eq!(timings.phase(), Phase::Send);
    }

    #[test]
    fn a_retry_adds_to_the_same_phases() {
        let events = [
            (0, leased(4)),
            (1, Event::RequestSent),
            (3, Event::Retried),
            (10, leased(0)),
            (11, Event::RequestSent),
            (21, Event::FirstByte),
            (22, Event::BodyEnd { bytes: 0 }),
        ];
        assert_eq!(in_ms(&folded(t0(), &events)), [7, 0, 0, 0, 2, 12, 1, 22]);
    }
}
