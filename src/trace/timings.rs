//! Where a call's time went: a fold over its events.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{StatusCode, Version};

use super::DialTrace;
use super::event::{DnsLookup, Event, Limit, Phase, RetryCause, Source, TlsFacts};
use crate::clock::Instant;

/// Where the time of one call went.
///
/// Every moment from the call's start belongs to exactly one [`Phase`], so the phases add up to [`total`](Self::total)
/// to the nanosecond. The time a pool's task spent opening a connection belongs to the call that waited for it.
///
/// The words of other tools are here too:
///
/// | curl | go-httpstat | here |
/// |---|---|---|
/// | | DNS lookup | [`dns`](Self::dns) |
/// | | TCP connection | [`connect`](Self::connect) |
/// | | TLS handshake | [`tls`](Self::tls) |
/// | | server processing | [`wait`](Self::wait) |
/// | | content transfer | [`receive`](Self::receive) |
/// | `time_queue` | | [`time_queue`](Self::time_queue) |
/// | `time_namelookup` | name lookup | [`time_namelookup`](Self::time_namelookup) |
/// | `time_connect` | connect | [`time_connect`](Self::time_connect) |
/// | `time_appconnect` | | [`time_appconnect`](Self::time_appconnect) |
/// | `time_pretransfer` | pre-transfer | [`time_pretransfer`](Self::time_pretransfer) |
/// | `time_starttransfer` | start transfer | [`time_starttransfer`](Self::time_starttransfer) |
/// | `time_redirect` | | [`time_redirect`](Self::time_redirect) |
/// | `time_total` | total | [`total`](Self::total) |
///
/// `{}` prints one line, `{:#}` a waterfall as [`waterfall`](Self::waterfall) draws it. With the feature `serde` it can be
/// serialized: times are whole nanoseconds.
#[derive(Debug, Clone)]
pub struct Timings {
    start: Instant,
    last: Instant,
    phase: Phase,
    complete: bool,
    spent: Spent,
    connection: Option<u64>,
    reused: bool,
    freed: bool,
    limit: Option<Limit>,
    remote: Option<SocketAddr>,
    tls: Option<Arc<TlsFacts>>,
    marks: Marks,
    head: Option<(StatusCode, Version)>,
    sent: u64,
    received: u64,
    failure: Option<&'static str>,
    /// A call on a kept connection has none of these.
    lists: Option<Box<Lists>>,
    /// The last dial, and how many of its events count, while nobody has asked for its lookups and attempts.
    unlisted: Option<(Arc<DialTrace>, usize)>,
}

/// What a call comes to that does more than ask on a kept connection.
#[derive(Debug, Clone)]
struct Lists {
    lookups: Vec<DnsLookup>,
    attempts: Vec<Attempt>,
    hops: Vec<Hop>,
    /// How many of the lookups and attempts were for earlier requests of the call.
    lookups_before: usize,
    attempts_before: usize,
}

impl Lists {
    const EMPTY: Self =
        Self { lookups: Vec::new(), attempts: Vec::new(), hops: Vec::new(), lookups_before: 0, attempts_before: 0 };
}

static NOTHING: Lists = Lists::EMPTY;

/// What a call's last request has reached, and when.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    /// Its own connection was begun.
    dialling: Option<Instant>,
    /// The first address was dialled.
    named: Option<Instant>,
    /// An address connected.
    connected: Option<Instant>,
    /// The TLS handshake was done.
    secured: Option<Instant>,
    /// There was a connection.
    leased: Option<Instant>,
    /// The first byte of the response came.
    answered: Option<Instant>,
}

/// A request of a call that was not its last: it was made again, or its response led on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Hop {
    /// When it began, counted from the call's start.
    pub started: Duration,
    /// How long it took.
    pub elapsed: Duration,
    /// How it ended.
    pub end: HopEnd,
    /// The peer's address, where it got so far.
    pub remote: Option<SocketAddr>,
    /// Whether its connection had carried a request before.
    pub reused: bool,
    pub(super) spent: [Duration; Phase::ALL.len()],
}

impl Hop {
    /// The time of one phase. The phases add up to [`elapsed`](Self::elapsed).
    pub fn spent(&self, phase: Phase) -> Duration {
        self.spent[phase as usize]
    }
}

/// How a request of a call ended that was not its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HopEnd {
    /// It was made again.
    Retried(RetryCause),
    /// Its response had this status and named another URL.
    Redirected(StatusCode),
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

/// The time of each phase, added up only when somebody asks: to note when one was left costs a warm call less.
#[derive(Debug, Clone)]
struct Spent {
    /// The sums of what was left before those that are noted, up to `since`.
    sums: Option<Box<[Duration; Phase::ALL.len()]>>,
    since: Instant,
    /// The phases left after that, and when.
    left: [Phase; USUAL_PHASES],
    at: [Instant; USUAL_PHASES],
    count: u8,
}

/// How many phases a call leaves that opens a connection: queue, DNS, connect, queue, send, wait.
const USUAL_PHASES: usize = 6;

impl Spent {
    fn new(start: Instant) -> Self {
        Self { sums: None, since: start, left: [Phase::Queue; USUAL_PHASES], at: [start; USUAL_PHASES], count: 0 }
    }

    fn left(&mut self, phase: Phase, at: Instant) {
        let count = usize::from(self.count);
        if count == self.left.len() {
            self.sums = Some(Box::new(self.until(phase, at)));
            (self.since, self.count) = (at, 0);
        } else {
            (self.left[count], self.at[count]) = (phase, at);
            self.count += 1;
        }
    }

    /// The sums of a call that is in this phase now.
    fn until(&self, phase: Phase, now: Instant) -> [Duration; Phase::ALL.len()] {
        let mut sums = self.sums.as_deref().copied().unwrap_or([Duration::ZERO; Phase::ALL.len()]);
        let mut since = self.since;
        let left = self.left.iter().copied().zip(self.at).take(self.count.into());
        for (phase, at) in left.chain([(phase, now)]) {
            sums[phase as usize] += at - since;
            since = at;
        }
        sums
    }
}

impl Timings {
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            last: start,
            phase: Phase::Queue,
            complete: false,
            spent: Spent::new(start),
            connection: None,
            reused: false,
            freed: false,
            limit: None,
            remote: None,
            tls: None,
            marks: Marks::default(),
            head: None,
            sent: 0,
            received: 0,
            failure: None,
            lists: None,
            unlisted: None,
        }
    }

    /// Takes one event. Events come in order; one from before the call (of a dial begun earlier) counts from its start.
    #[inline(always)]
    pub(crate) fn fold(&mut self, at: Instant, event: &Event) {
        self.fold_times(at, event);
        self.list(at, event);
    }

    /// Takes what a dial did so far. What it looked up and dialled is listed when somebody wants to know.
    pub(super) fn adopt(&mut self, dial: &Arc<DialTrace>) {
        self.list_all();
        let events = dial.lock();
        events.iter().for_each(|(at, event)| self.fold_times(*at, event));
        self.unlisted = Some((dial.clone(), events.len()));
    }

    /// Lists what was put off.
    pub(super) fn list_all(&mut self) {
        if let Some((dial, count)) = self.unlisted.take() {
            dial.lock()[..count].iter().for_each(|(at, event)| self.list(*at, event));
        }
    }

    /// Lists the lookups, and the addresses dialled.
    #[inline(always)]
    fn list(&mut self, at: Instant, event: &Event) {
        match event {
            Event::DnsEnd(lookup) => self.lists_mut().lookups.push(lookup.clone()),
            Event::AttemptStart { address } => self.attempt_started(at, *address),
            Event::AttemptEnd { address, error } => {
                let outcome = error.as_ref().map_or(Outcome::Connected, |error| Outcome::Failed(error.clone()));
                self.attempt_ended(at, *address, outcome);
            }
            Event::AttemptCancelled { address } => self.attempt_ended(at, *address, Outcome::Cancelled),
            Event::TlsFailed { address: Some(address), error } => self.attempt_spoiled(*address, error),
            _ => {}
        }
    }

    #[inline(always)]
    fn fold_times(&mut self, at: Instant, event: &Event) {
        self.advance(at);
        match event {
            Event::DialStart { .. } => self.marks = Marks { dialling: Some(at), ..Marks::default() },
            Event::DnsStart { .. } => self.enter(Phase::Dns),
            Event::AttemptStart { .. } => {
                self.enter(Phase::Connect);
                self.marks.named.get_or_insert(at);
            }
            Event::AttemptEnd { error: None, .. } => self.marks.connected = Some(at),
            Event::UnixStart { .. } => self.enter(Phase::Connect),
            Event::ProxyStart { .. } => self.enter(Phase::Proxy),
            Event::TlsStart { .. } => self.enter(Phase::Tls),
            Event::TlsEnd(facts) => {
                self.marks.secured = Some(at);
                self.tls = Some(facts.clone());
            }
            // The next address is dialled.
            Event::TlsFailed { .. } => self.go_to(Phase::Connect),
            Event::Opened { .. } | Event::DialPostponed => self.go_to(Phase::Queue),
            Event::Queued { limit, .. } => {
                self.limit = Some(*limit);
                // Its dial was lost, and it waits for another one.
                if self.phase != Phase::Queue {
                    self.go_to(Phase::Queue);
                }
            }
            Event::Leased { connection, remote, requests, tls, freed, .. } => {
                if *requests > 0 {
                    self.marks = Marks::default();
                }
                self.marks.leased = Some(at);
                (self.connection, self.reused, self.freed) = (Some(*connection), *requests > 0, *freed);
                (self.remote, self.tls) = (*remote, tls.clone());
                self.go_to(Phase::Send);
            }
            Event::RequestSent { body } => {
                self.sent = *body;
                self.go_to(Phase::Wait);
            }
            Event::FirstByte => {
                self.marks.answered = Some(at);
                self.go_to(Phase::Receive);
            }
            Event::Headers { status, version } => self.head = Some((*status, *version)),
            Event::Retried { cause } => self.next_hop(HopEnd::Retried(*cause)),
            Event::Redirected { status, .. } => self.next_hop(HopEnd::Redirected(*status)),
            Event::BodyEnd { bytes } => {
                if !self.complete {
                    self.received = *bytes;
                }
                self.complete = true;
            }
            Event::CallFailed { why, .. } => {
                if !self.complete {
                    self.failure = Some(why);
                }
                self.complete = true;
            }
            Event::CallStart(_)
            | Event::DnsEnd(_)
            | Event::AttemptEnd { error: Some(_), .. }
            | Event::AttemptCancelled { .. }
            | Event::HeadersSent
            | Event::Informational { .. }
            | Event::BodyChunk { .. }
            | Event::DnsCancelled { .. }
            | Event::ProxyEnd
            | Event::HandshakeStart { .. }
            | Event::Released { .. }
            | Event::DialFailed
            | Event::Retired { .. }
            | Event::Closed { .. }
            | Event::ConfigSkipped { .. } => {}
        }
    }

    /// The time of one phase.
    pub fn spent(&self, phase: Phase) -> Duration {
        self.all_spent()[phase as usize]
    }

    fn all_spent(&self) -> [Duration; Phase::ALL.len()] {
        self.spent.until(self.phase, self.last)
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

    /// When the call began.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// When the call had its turn: a connection, or the beginning of one. Counted from the call's start, as all of curl's
    /// figures are; zero where it did not come so far, as in curl. Of a call that was redirected or made again it is the
    /// last request that counts.
    pub fn time_queue(&self) -> Duration {
        self.since_start(self.marks.dialling.or(self.marks.leased))
    }

    /// When the name was resolved, and the first address was dialled (curl). On a kept connection this is when the call got it.
    pub fn time_namelookup(&self) -> Duration {
        self.since_start(self.marks.named.or(self.marks.leased))
    }

    /// When an address, or that of a proxy, was connected to (curl). On a kept connection this is when the call got it.
    pub fn time_connect(&self) -> Duration {
        self.since_start(self.marks.connected.or(self.marks.leased))
    }

    /// When the TLS handshake was done (curl); zero without TLS, and on a kept connection.
    pub fn time_appconnect(&self) -> Duration {
        self.since_start(self.marks.secured)
    }

    /// When the request was about to be sent (curl).
    pub fn time_pretransfer(&self) -> Duration {
        self.since_start(self.marks.leased)
    }

    /// When the first byte of the response came (curl).
    pub fn time_starttransfer(&self) -> Duration {
        self.since_start(self.marks.answered)
    }

    /// When the last redirect was followed (curl); zero without any.
    pub fn time_redirect(&self) -> Duration {
        let redirects = self.hops().iter().rev().find(|hop| matches!(hop.end, HopEnd::Redirected(_)));
        redirects.map_or(Duration::ZERO, |hop| hop.started + hop.elapsed)
    }

    fn since_start(&self, at: Option<Instant>) -> Duration {
        at.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.start))
    }

    /// The phase the call is in, or was in when it ended.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the call is over: its body was read to the end, or it failed or was given up.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Why the call failed, in a word: the error's [`kind`](crate::ErrorKind::as_str), or `cancelled`.
    pub fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    /// The status of the response, once its headers were read.
    pub fn status(&self) -> Option<StatusCode> {
        self.head.map(|(status, _)| status)
    }

    /// The version of the response, once its headers were read.
    pub fn version(&self) -> Option<Version> {
        self.head.map(|(_, version)| version)
    }

    /// How many bytes the body of the request had, once it was sent.
    pub fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// How many bytes the body of the response had, once it was read to its end.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// The number of the connection the call got, by which its events can be found.
    pub fn connection(&self) -> Option<u64> {
        self.connection
    }

    /// Whether the connection had carried a request before.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// Whether somebody else gave the connection back while one was being opened for this call.
    pub fn freed(&self) -> bool {
        self.freed
    }

    /// What the call, or the last of its requests, waited for in the queue; `None` where it had a connection at once.
    pub fn queued_by(&self) -> Option<Limit> {
        self.limit
    }

    /// The call's requests before its last: those made again, and those that were redirected. Their times are within the
    /// call's.
    pub fn hops(&self) -> &[Hop] {
        &self.lists().hops
    }

    /// The time of one phase of the call's last request.
    pub(super) fn spent_last(&self, phase: Phase) -> Duration {
        self.hops().iter().fold(self.spent(phase), |rest, hop| rest - hop.spent(phase))
    }

    /// The peer's address, once there is a connection and where its transport knows it.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// What the connection's TLS handshake came to, be it long before this call; `None` without TLS.
    pub fn tls_facts(&self) -> Option<&TlsFacts> {
        self.tls.as_deref()
    }

    /// The same for who keeps them.
    pub(super) fn shared_tls_facts(&self) -> Option<Arc<TlsFacts>> {
        self.tls.clone()
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
        self.lists().lookups[self.lists().lookups_before..].iter().max_by_key(worth)
    }

    /// The lookups made for this call, one a family, in the order they ended.
    pub fn lookups(&self) -> &[DnsLookup] {
        &self.lists().lookups
    }

    /// How many addresses failed that were dialled for the call's last request.
    pub(super) fn failed_last(&self) -> usize {
        let last = self.lists().attempts[self.lists().attempts_before..].iter();
        last.filter(|attempt| matches!(attempt.outcome, Outcome::Failed(_))).count()
    }

    /// The addresses dialled for this call, in the order they were dialled.
    pub fn attempts(&self) -> &[Attempt] {
        &self.lists().attempts
    }

    fn lists(&self) -> &Lists {
        self.lists.as_deref().unwrap_or(&NOTHING)
    }

    fn lists_mut(&mut self) -> &mut Lists {
        self.lists.get_or_insert_with(|| Box::new(Lists::EMPTY))
    }

    /// The call goes on with another request.
    fn next_hop(&mut self, end: HopEnd) {
        if self.complete {
            return;
        }
        self.list_all();
        let started = self.hops().last().map_or(Duration::ZERO, |hop| hop.started + hop.elapsed);
        let all = self.all_spent();
        let spent =
            Phase::ALL.map(|phase| self.hops().iter().fold(all[phase as usize], |rest, hop| rest - hop.spent(phase)));
        let elapsed = self.total() - started;
        let hop = Hop { started, elapsed, end, remote: self.remote, reused: self.reused, spent };
        let lists = self.lists_mut();
        lists.hops.push(hop);
        (lists.lookups_before, lists.attempts_before) = (lists.lookups.len(), lists.attempts.len());
        (self.reused, self.freed, self.remote, self.tls) = Default::default();
        (self.limit, self.sent) = Default::default();
        (self.connection, self.head, self.marks) = Default::default();
        self.go_to(Phase::Queue);
    }

    fn advance(&mut self, at: Instant) {
        // The end of a call is final: a straggler (a body dropped after its end, say) adds nothing.
        if at > self.last && !self.complete {
            self.last = at;
        }
    }

    fn go_to(&mut self, phase: Phase) {
        self.spent.left(self.phase, self.last);
        self.phase = phase;
    }

    /// Enters a phase of a dial; an AAAA answer that comes while an IPv4 address is dialled does not lead back.
    fn enter(&mut self, phase: Phase) {
        if (self.phase as usize) < phase as usize {
            self.go_to(phase);
        }
    }

    fn attempt_started(&mut self, at: Instant, address: SocketAddr) {
        let started = at.saturating_duration_since(self.start);
        let (elapsed, outcome) = (Duration::ZERO, Outcome::Pending);
        self.lists_mut().attempts.push(Attempt { address, started, elapsed, outcome, begun: at });
    }

    /// An address that connected, and was of no use.
    fn attempt_spoiled(&mut self, address: SocketAddr, error: &Arc<io::Error>) {
        if let Some(attempt) = self.lists_mut().attempts.iter_mut().rev().find(|attempt| attempt.address == address) {
            attempt.outcome = Outcome::Failed(error.clone());
        }
    }

    fn attempt_ended(&mut self, at: Instant, address: SocketAddr, outcome: Outcome) {
        let pending =
            |attempt: &&mut Attempt| attempt.address == address && matches!(attempt.outcome, Outcome::Pending);
        if let Some(attempt) = self.lists_mut().attempts.iter_mut().rev().find(pending) {
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
        let (idle, waited) = Default::default();
        Event::Leased { connection: 1, remote: Some(addr()), requests, idle, tls: None, waited, freed: false }
    }

    const SENT: Event = Event::RequestSent { body: 0 };

    fn asked(family: Family) -> Event {
        Event::DnsStart { name: "api.test".into(), family }
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
                (1, asked(Family::V4)),
                (11, Event::AttemptStart { address: addr() }),
                (31, Event::AttemptEnd { address: addr(), error: None }),
                (31, Event::Opened { remote: Some(addr()) }),
                (32, leased(0)),
                (35, SENT),
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
        let events = [(0, leased(3)), (1, SENT), (6, Event::FirstByte), (8, Event::BodyEnd { bytes: 1 })];
        let timings = folded(t0(), &events);
        assert_eq!(in_ms(&timings), [0, 0, 0, 0, 1, 5, 2, 8]);
        assert!(timings.reused());
    }

    #[test]
    fn a_dial_begun_before_the_call_counts_from_the_calls_start() {
        let start = t0() + ms(100);
        let mut timings = Timings::new(start);
        timings.fold(start - ms(50), &asked(Family::V4));
        timings.fold(start + ms(5), &Event::AttemptStart { address: addr() });
        timings.fold(start + ms(9), &Event::Opened { remote: None });
        timings.fold(start + ms(9), &leased(0));
        assert_eq!(in_ms(&timings), [0, 5, 4, 0, 0, 0, 0, 9]);
    }

    #[test]
    fn what_a_dial_did_so_far_is_the_calls_and_no_more() {
        let (start, hooks) = (t0(), super::super::Hooks::default());
        let dials = [1, 2].map(|number| DialTrace::new(&hooks, number));
        let addresses = [1, 2].map(|last| SocketAddr::from(([192, 0, 2, last], 80)));
        let mut timings = Timings::new(start);
        for (dial, address) in dials.iter().zip(addresses) {
            dial.emit_at(start + ms(1), Event::AttemptStart { address });
            timings.adopt(dial);
            dial.emit_at(start + ms(3), Event::AttemptEnd { address, error: None });
        }
        assert_eq!((timings.phase(), timings.total()), (Phase::Connect, ms(1)));
        // What a request did stays with it when the call goes on.
        timings.fold(start + ms(9), &Event::Retried { cause: RetryCause::Failed });
        timings.list_all();
        let attempts: Vec<_> = timings.attempts().iter().map(|attempt| (attempt.address, attempt.elapsed)).collect();
        assert_eq!(attempts, addresses.map(|address| (address, Duration::ZERO)));
        assert!(timings.attempts().iter().all(|attempt| matches!(attempt.outcome, Outcome::Pending)));
        assert_eq!(timings.lists().attempts_before, 2);
    }

    #[test]
    fn a_late_answer_does_not_lead_back_to_dns() {
        let events = [
            (0, asked(Family::V6)),
            (50, Event::AttemptStart { address: addr() }),
            (60, asked(Family::V4)),
            (70, leased(0)),
        ];
        assert_eq!(in_ms(&folded(t0(), &events)), [0, 50, 20, 0, 0, 0, 0, 70]);
    }

    #[test]
    fn a_response_before_the_request_was_sent_is_not_negative() {
        let events = [(0, leased(0)), (5, SENT), (3, Event::FirstByte), (9, Event::BodyEnd { bytes: 0 })];
        assert_eq!(in_ms(&folded(t0(), &events)), [0, 0, 0, 0, 5, 0, 4, 9]);
    }

    #[test]
    fn nothing_counts_after_the_end() {
        let events = [
            (0, leased(0)),
            (5, Event::CallFailed { phase: Phase::Send, why: "exchange" }),
            (50, Event::BodyEnd { bytes: 0 }),
        ];
        let timings = folded(t0(), &events);
        assert_eq!(timings.total(), ms(5));
        assert_eq!(timings.phase(), Phase::Send);
    }

    #[test]
    fn a_retry_adds_to_the_same_phases() {
        let events = [
            (0, leased(4)),
            (1, SENT),
            (3, Event::Retried { cause: RetryCause::Closed }),
            (10, leased(0)),
            (11, SENT),
            (21, Event::FirstByte),
            (22, Event::BodyEnd { bytes: 0 }),
        ];
        let timings = folded(t0(), &events);
        assert_eq!(in_ms(&timings), [7, 0, 0, 0, 2, 12, 1, 22]);
        let [first] = timings.hops() else { panic!("{timings:?}") };
        assert_eq!((first.end, first.started, first.elapsed), (HopEnd::Retried(RetryCause::Closed), ms(0), ms(3)));
        assert_eq!([Phase::Send, Phase::Wait, Phase::Queue].map(|phase| first.spent(phase)), [ms(1), ms(2), ms(0)]);
        assert_eq!(timings.spent_last(Phase::Queue), ms(7));
        assert!(first.reused && !timings.reused());
    }

    #[test]
    fn curls_figures_are_those_of_the_last_request_counted_from_the_start() {
        let redirected = |method| Event::Redirected {
            status: StatusCode::FOUND,
            to: Arc::new(crate::trace::Asked {
                method,
                origin: crate::origin::Origin::from_url(&url::Url::parse("http://b.test/").unwrap()).unwrap(),
                target: http::Uri::from_static("/"),
            }),
        };
        let origin = crate::origin::Origin::from_url(&url::Url::parse("http://a.test/").unwrap()).unwrap();
        let timings = folded(
            t0(),
            &[
                (0, leased(3)),
                (1, SENT),
                (9, Event::FirstByte),
                (10, redirected(http::Method::GET)),
                (12, Event::DialStart { origin }),
                (12, asked(Family::V4)),
                (20, Event::AttemptStart { address: addr() }),
                (30, Event::AttemptEnd { address: addr(), error: None }),
                (50, Event::Opened { remote: Some(addr()) }),
                (51, leased(0)),
                (52, SENT),
                (80, Event::FirstByte),
                (90, Event::BodyEnd { bytes: 7 }),
            ],
        );
        let figures = [
            timings.time_redirect(),
            timings.time_queue(),
            timings.time_namelookup(),
            timings.time_connect(),
            timings.time_appconnect(),
            timings.time_pretransfer(),
            timings.time_starttransfer(),
            timings.total(),
        ];
        assert_eq!(figures.map(|figure| figure.as_millis()), [10, 12, 20, 30, 0, 51, 80, 90]);
        assert_eq!(timings.received_bytes(), 7);
        let warm = folded(t0(), &[(2, leased(1)), (3, SENT), (9, Event::FirstByte)]);
        let figures = [warm.time_namelookup(), warm.time_connect(), warm.time_appconnect(), warm.time_pretransfer()];
        assert_eq!(figures.map(|figure| figure.as_millis()), [2, 2, 0, 2]);
    }
}
