//! The timings of a call as a user reads them. `fold.rs` makes them of the call's events.

pub(super) mod fold;
pub(super) mod hops;
pub(super) mod late;
pub(super) mod requests;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(feature = "serde")]
pub(super) mod serial;
pub(super) mod spent;

use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use http::{StatusCode, Version};

use super::events::event::{Event, TlsFacts};
use super::server_timing::ServerTiming;
use crate::clock::Instant;
use crate::origin::Origin;
use crate::trace::events::event::{Phase, Usage};
use crate::trace::events::{DnsLookup, Limit, Source};
use hops::{DialledAddress, History, Hop, HopEnd};

use late::Late;
use spent::{PhaseTimes, Spent};

/// The time that one call took, phase by phase.
///
/// Every moment from the call's start belongs to exactly one [`Phase`], so the phases add up to [`total`](Self::total)
/// to the nanosecond. If the pool opened a connection for the call, the phases of that dial belong to the call.
///
/// The figures of other tools are available too:
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
/// `{}` prints one line, `{:#}` a [`waterfall`](Self::waterfall). With the feature `serde` timings can be serialized; times
/// are whole nanoseconds then.
#[derive(Debug, Clone)]
pub struct Timings {
    pub(super) start: Instant,
    /// The time of the last event.
    pub(super) last: Instant,
    pub(super) phase: Phase,
    /// `None` until the call is over.
    pub(super) end: Option<CallEnd>,
    pub(super) spent: Spent,
    pub(crate) request: LastRequest,
    /// The bytes of the response's body that were read, once the call is over.
    pub(super) received: u64,
    /// The time for which the reader of the response's body waited for more of it.
    pub(super) body_wait: Duration,
    /// `None` for a call that is one request on an idle connection.
    pub(super) history: Option<Box<History>>,
    /// The last dial, whose lookups and attempts are not in the history yet.
    pub(super) unlisted: Option<UnlistedDial>,
}

/// The end of a call. Whoever ends the call says which one it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The response's body came whole.
    Read,
    /// The response was dropped before the end of its body.
    Unread,
    /// The call failed, or was dropped before it had a response.
    Failed(&'static str),
}

/// The facts about a call's last request, which a retry or redirect resets.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastRequest {
    /// The number of its connection.
    pub(super) connection: Option<u64>,
    pub(super) reused: bool,
    pub(super) freed: bool,
    pub(super) queued: Option<Box<QueueEntry>>,
    pub(super) remote: Option<SocketAddr>,
    pub(crate) tls: Option<Arc<TlsFacts>>,
    pub(super) milestones: Milestones,
    pub(super) head: Option<(StatusCode, Version)>,
    /// The server's own account of its time, if the response has one.
    pub(crate) server: Option<Arc<[ServerTiming]>>,
    /// The length of the request's body in bytes.
    pub(super) sent: u64,
}

/// The state of the queue when the request entered it.
#[derive(Debug, Clone)]
pub(crate) struct QueueEntry {
    pub(super) limit: Limit,
    pub(super) origin: Origin,
    pub(crate) usage: Option<Usage>,
}

/// The events of a dial, behind which the timings need not know the observers.
pub(super) trait DialEvents: std::fmt::Debug + Send + Sync {
    /// Locks the events so far.
    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Event)>>;
}

/// A dial whose first `events` events belong to the call.
#[derive(Debug, Clone)]
pub(super) struct UnlistedDial {
    pub(crate) dial: Arc<dyn DialEvents>,
    pub(super) events: usize,
}

static EMPTY_HISTORY: History = History::EMPTY;

impl Timings {
    /// Starts the timings of a call that begins at `start`.
    #[inline]
    pub(crate) fn new(start: Instant) -> Self {
        Self {
            start,
            last: start,
            phase: Phase::Queue,
            end: None,
            spent: Spent::new(start),
            request: LastRequest::default(),
            received: 0,
            body_wait: Duration::ZERO,
            history: None,
            unlisted: None,
        }
    }

    /// Returns the time of one phase.
    pub fn spent(&self, phase: Phase) -> Duration {
        self.all_spent()[phase as usize]
    }

    /// Returns each phase with its time, in the order of [`Phase::ALL`]. The times add up to [`total`](Self::total).
    ///
    /// Cheaper than a call of [`spent`](Self::spent) for each phase.
    #[inline]
    pub fn phases(&self) -> impl Iterator<Item = (Phase, Duration)> + use<> {
        let spent = self.all_spent();
        Phase::ALL.into_iter().map(move |phase| (phase, spent[phase as usize]))
    }

    /// Returns the time spent waiting before attempts: the backoffs before retries and resends, and the wait for a token.
    pub fn backoff(&self) -> Duration {
        self.spent(Phase::Backoff)
    }

    /// Returns the time spent waiting for a connection, without the time in which the connection that the call got was
    /// being opened.
    pub fn queue(&self) -> Duration {
        self.spent(Phase::Queue)
    }

    /// Returns the time of name resolution, from the start of the first lookup until the first address was dialled.
    pub fn dns(&self) -> Duration {
        self.spent(Phase::Dns)
    }

    /// Returns the time from the first dialled address until a connection was established.
    pub fn connect(&self) -> Duration {
        self.spent(Phase::Connect)
    }

    /// Returns the time for which a proxy took to connect to the origin, including the TLS handshake with the proxy itself.
    pub fn proxy(&self) -> Duration {
        self.spent(Phase::Proxy)
    }

    /// Returns the time of the TLS handshake.
    pub fn tls(&self) -> Duration {
        self.spent(Phase::Tls)
    }

    /// Returns the time from the lease of a connection until the last byte of the request was sent.
    pub fn send(&self) -> Duration {
        self.spent(Phase::Send)
    }

    /// Returns the time from the last byte of the request until the first byte of the response.
    pub fn wait(&self) -> Duration {
        self.spent(Phase::Wait)
    }

    /// Returns the time since the first byte of the response.
    pub fn receive(&self) -> Duration {
        self.spent(Phase::Receive)
    }

    /// Returns the time at which the call began, by the clock of its runtime: that of tokio, which a test can pause.
    pub fn started(&self) -> std::time::Instant {
        self.start.into_std()
    }

    /// Returns the time from the call's start to its last event, which is the sum of the phases.
    pub fn total(&self) -> Duration {
        self.last - self.start
    }

    /// Returns the phase that the call is in, or was in when it ended.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the phase that took most of the time, the earlier one of two that took the same. If no time has passed, it is
    /// the phase that the call is in.
    pub fn longest_phase(&self) -> Phase {
        let spent = self.all_spent();
        // `max_by_key` returns the last one of equals.
        let longest = Phase::ALL.into_iter().rev().max_by_key(|phase| spent[*phase as usize]);
        match longest {
            Some(phase) if !spent[phase as usize].is_zero() => phase,
            _ => self.phase,
        }
    }

    /// Returns true if the call is over: its body was read to the end or dropped, or it failed or was cancelled.
    pub fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// Returns true if the response was dropped before the end of its body. That is no failure.
    pub fn is_unread(&self) -> bool {
        self.end == Some(CallEnd::Unread)
    }

    /// Returns the kind of the call's failure in a word, `None` if it has not failed: the error's
    /// [`kind`](crate::ErrorKind::as_str), or `cancelled` if the call was dropped before it had a response.
    pub fn failure(&self) -> Option<&'static str> {
        match self.end {
            Some(CallEnd::Failed(why)) => Some(why),
            _ => None,
        }
    }

    /// Returns the status of the response, once its headers were read.
    pub fn status(&self) -> Option<StatusCode> {
        self.request.head.map(|(status, _)| status)
    }

    /// Returns the version of the response, once its headers were read.
    pub fn version(&self) -> Option<Version> {
        self.request.head.map(|(_, version)| version)
    }

    /// Returns the length of the request's body in bytes, once it was sent.
    pub fn sent_bytes(&self) -> u64 {
        self.request.sent
    }

    /// Returns the number of bytes of the response's body that were read, once the call is over: also of a body that broke off
    /// or was dropped.
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Returns the number of the connection that the call got, unique in its client. The connection's events have the same
    /// number ([`Subject::Connection`](super::Subject::Connection)).
    pub fn connection(&self) -> Option<u64> {
        self.request.connection
    }

    /// Returns true if the connection had carried a request before.
    pub fn reused(&self) -> bool {
        self.request.reused
    }

    /// Returns true if the call got a connection that another request released, while a new one was being opened for this
    /// call.
    pub fn freed(&self) -> bool {
        self.request.freed
    }

    /// Returns the reason why the call's last request waited in the queue; `None` if it got a connection at once.
    pub fn queued_by(&self) -> Option<Limit> {
        self.request.queued.as_deref().map(|entry| entry.limit)
    }

    /// Returns the call's requests before its last one: those that were sent again, and those that were redirected. Their
    /// times are part of the call's times.
    pub fn hops(&self) -> &[Hop] {
        self.history().hops()
    }

    /// Returns the number of the call's requests before its last one.
    pub(crate) fn requests_before(&self) -> usize {
        self.hops().iter().map(|hop| 1 + hop.joined as usize).sum()
    }

    /// Returns the peer's address; `None` before there is a connection, and if its transport does not know the address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.request.remote
    }

    /// Returns the result of the connection's TLS handshake, even if that was long before this call; `None` without TLS.
    pub fn tls_facts(&self) -> Option<&TlsFacts> {
        self.request.tls.as_deref()
    }

    /// Returns the least time that the call took because the runtime of its connection or of the call was busy, or had no processor: the
    /// last response was here before the program read it, or a timer of the call was due, such as a timeout or the wait before a retry,
    /// before the call acted on it. Parts below 10 ms do not count.
    ///
    /// A part of the phases in which it was spent. Where the connection's own task came late, only Linux tells, over TCP.
    pub fn runtime_delay(&self) -> Duration {
        self.history().late().iter().map(|late| late.by).sum()
    }

    /// Returns the parts of the server's time for the last response, as its `Server-Timing` headers tell them
    /// (<https://www.w3.org/TR/server-timing/>). At most 32 in 4 KiB are read, and none in trailers.
    pub fn server_timing(&self) -> &[ServerTiming] {
        self.request.server.as_deref().unwrap_or_default()
    }

    /// Returns the source of the DNS answer that led to the connection; `None` if nothing was looked up for this call.
    pub fn dns_source(&self) -> Option<Source> {
        self.used_lookup().map(|lookup| lookup.source)
    }

    /// Returns the lookups made for this call, one for each address family, in the order they ended.
    pub fn lookups(&self) -> &[DnsLookup] {
        self.history().lookups()
    }

    /// Returns the number of times that a request was tried: the first one, the retries and the resends. Redirects and hedges do not
    /// count; retries before a redirect do.
    pub fn attempts(&self) -> u32 {
        let repeated = self.hops().iter().filter(|hop| matches!(hop.end, HopEnd::Repeated(_)));
        1 + repeated.map(|hop| 1 + hop.joined).sum::<u32>()
    }

    /// Returns the addresses dialled for this call, in the order they were dialled.
    pub fn dialled(&self) -> &[DialledAddress] {
        self.history().attempts()
    }

    pub(super) fn all_spent(&self) -> PhaseTimes {
        self.spent.until(self.phase, self.last)
    }

    pub(crate) fn milestones(&self) -> &Milestones {
        &self.request.milestones
    }

    pub(crate) fn history(&self) -> &History {
        self.history.as_deref().unwrap_or(&EMPTY_HISTORY)
    }

    /// Returns the time of one phase of the call's last request.
    pub(super) fn spent_last(&self, phase: Phase) -> Duration {
        self.history().spent_last(phase, self.spent(phase))
    }

    /// Returns the time of one phase of the call's last request, without what was spent in the program's own code, and without that by
    /// which its runtime was late.
    pub(super) fn spent_on(&self, phase: Phase) -> Duration {
        let of_phase = self.history().own_code().iter().filter(|(of, _)| *of == phase);
        let own_code = of_phase.map(|(_, time)| *time).sum();
        let late = self.late_last(phase).map(|late| late.by).sum();
        self.spent_last(phase).saturating_sub(own_code).saturating_sub(late)
    }

    /// Returns the parts of a phase of the last request by which the runtime was late.
    pub(super) fn late_last(&self, phase: Phase) -> impl Iterator<Item = &Late> {
        let started = self.last_started();
        self.history().late().iter().filter(move |late| late.phase == phase && late.from >= started)
    }

    /// Returns true if a server may have acted on an attempt of a layer before the last one.
    pub(crate) fn acted_before(&self) -> bool {
        self.history().acted_before
    }

    /// Returns the lookup of the last request that led to its connection, or else one that answered, or else one that failed. `None` if
    /// nothing was looked up for it.
    pub fn used_lookup(&self) -> Option<&DnsLookup> {
        self.history().used_lookup(self.request.remote.map(|remote| remote.ip()))
    }

    /// Returns the addresses dialled for the call's last request.
    pub(super) fn attempts_last(&self) -> &[DialledAddress] {
        self.history().attempts_last()
    }

    /// Returns the parts of `time`, spent connecting for the last request, in which an address was being dialled, and in which none was.
    pub(super) fn dialled_for(&self, time: Duration) -> (Duration, Duration) {
        let dialling = self.history().dialling_last(self.start, self.last).min(time);
        (dialling, time - dialling)
    }

    /// Returns the state of the queue when the last request entered it; `None` if it did not.
    pub(crate) fn queue_entry(&self) -> Option<&QueueEntry> {
        self.request.queued.as_deref()
    }

    /// Returns the time spent waiting for tokens.
    pub(super) fn token_wait(&self) -> Duration {
        self.history().token_wait(self.last)
    }

    /// Returns the time from the first byte of the last response to the end of its head.
    pub(super) fn head_time(&self) -> Option<Duration> {
        let Milestones { answered, head_read, .. } = self.milestones();
        Some((*head_read)? - (*answered)?)
    }

    /// Returns the time from the call's start until its last request began, or the backoff before it.
    pub(crate) fn last_started(&self) -> Duration {
        self.history().last_started()
    }

    /// Returns the number of addresses dialled for the call's last request that failed.
    pub(super) fn failed_last(&self) -> usize {
        self.history().failed_last()
    }
}

/// The milestones that a call's last request has reached.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Milestones {
    /// The start of the dial of its own connection.
    pub(in crate::trace) dial_started: Option<Instant>,
    /// The start of the first attempt, when the name was resolved.
    pub(in crate::trace) resolved: Option<Instant>,
    /// The end of the attempt that connected.
    pub(in crate::trace) connected: Option<Instant>,
    /// The end of the TLS handshake.
    pub(in crate::trace) secured: Option<Instant>,
    /// The lease of a connection.
    pub(in crate::trace) leased: Option<Instant>,
    /// The first byte of the response.
    pub(in crate::trace) answered: Option<Instant>,
    /// The end of the response's head.
    pub(in crate::trace) head_read: Option<Instant>,
}
