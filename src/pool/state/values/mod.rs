//! The values that all parts of the core share: identifiers, figures, effects, and the record of a connection. A core.

use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::latency::Latency;
use crate::pool::config::Limits;
use crate::trace::{CloseCause, Family, Limit, Usage};

pub(super) mod conn;

/// The driver's types, which the core stores and hands back without looking into them.
pub(crate) trait PoolTypes {
    /// The identity of a host: requests with equal keys share connections.
    type Key: Clone + Eq + Hash;
    /// A handle on a connection.
    type Conn: Clone;
    /// The driver's side of a request that waits; an effect returns it.
    type Waiter;
    /// The error of a failed dial.
    type Error: Clone;
    /// The identity of a runtime. The core only compares it.
    type Runtime: Copy + PartialEq;
}

/// The properties of a host that are known before its first connection.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) limits: Limits,
    pub(crate) speaks: Speaks,
    /// Set if requests are balanced over the host's addresses.
    pub(crate) balanced: Option<BalancedHost>,
}

/// A host whose requests are balanced over its addresses.
#[derive(Debug, Clone)]
pub(crate) struct BalancedHost {
    /// The name that DNS is asked for.
    pub(crate) name: Arc<str>,
    /// The port of the addresses that DNS answers with.
    pub(crate) port: u16,
    /// The addresses that the user has set, in place of those of DNS; empty if there are none.
    pub(crate) pinned: Vec<SocketAddr>,
    /// The seed of the random choices.
    pub(crate) seed: u64,
}

/// A host's figures and limits, and facts that are known about its server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostReport {
    pub(crate) counters: Counters,
    /// The time for which requests have held connections up to now, those that still do included.
    pub(crate) busy_time: Duration,
    pub(crate) limits: Limits,
    /// The number of streams that a new connection is expected to have, if the host speaks HTTP/2.
    pub(crate) streams: Option<usize>,
    /// The idle timeout that the server announced or showed, less a margin.
    pub(crate) keep_alive: Option<Duration>,
}

/// The protocol of a host's connections, which decides how many requests one carries at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// Not known before the first connection is open.
    Unknown,
    /// HTTP/1: one request at a time.
    Http1,
    /// HTTP/2: many requests at a time.
    Http2,
}

/// The identity of a connection, from the start of its dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnId {
    pub(in crate::pool::state) index: usize,
    /// The connection's number, which is never used again.
    pub(crate) serial: u64,
}

/// The identity of a request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaiterId {
    pub(in crate::pool::state) index: usize,
    pub(in crate::pool::state) serial: u64,
}

/// The right to dial once, and the proof that the dial is counted.
///
/// It must end in [`State::dial_succeeded`](super::State::dial_succeeded),
/// [`State::dial_failed`](super::State::dial_failed) or [`State::dial_postponed`](super::State::dial_postponed).
#[derive(Debug)]
pub(crate) struct Permit(pub(in crate::pool::state) ConnId);

impl Permit {
    /// Returns the id of the connection to be.
    pub(crate) fn id(&self) -> ConnId {
        self.0
    }
}

/// The right to use one stream of a connection. It must end in [`State::release`](super::State::release).
#[derive(Debug)]
pub(crate) struct LeaseToken {
    pub(in crate::pool::state) id: ConnId,
    pub(in crate::pool::state) since: Instant,
    pub(in crate::pool::state) tracking: Tracking,
}

/// The interest of the balance between a host's addresses in a request's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pool::state) enum Tracking {
    /// The host is not balanced.
    None,
    Request,
    /// The request probes an address that was ejected, and has no result yet.
    Probe,
}

impl LeaseToken {
    /// Returns the connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.id.serial
    }

    /// Returns true if the request's result is to be [reported](super::State::report).
    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        self.tracking != Tracking::None
    }
}

/// A connection granted to a request.
#[derive(Debug)]
pub(crate) struct Grant<C> {
    pub(crate) token: LeaseToken,
    pub(crate) conn: C,
    /// The number of requests the connection carried before.
    pub(crate) requests: u64,
    /// The time since the connection's last request; `None` if it carries others.
    pub(crate) idle: Option<Duration>,
    /// True if another request gave the connection back while one was being opened for this request.
    pub(crate) freed: bool,
}

/// The reason why a request leaves the queue by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbandonCause {
    /// A time limit of the request passed.
    TimedOut,
    /// The call was cancelled.
    Cancelled,
}

/// The longest times that a request waits for a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    /// The connect timeout.
    pub(crate) connect: Duration,
    /// True if a dial ends by itself when it has taken as long.
    pub(crate) ends_dials: bool,
    /// The request's own limit for a wait that a limit of the pool imposes, beside the host's.
    pub(crate) queue: Option<Duration>,
}

impl AbandonCause {
    /// Counts a request that left the queue by itself.
    pub(in crate::pool::state) fn count(self, queue: &mut QueueStats) {
        match self {
            Self::TimedOut => queue.timed_out += 1,
            Self::Cancelled => queue.cancelled += 1,
        }
    }
}

/// The position of a request in its host's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    /// The limit that keeps the request waiting.
    pub(crate) limit: Limit,
    /// The number of requests to the same host that wait before this one.
    pub(crate) position: usize,
    /// The part of the limit that is taken.
    pub(crate) usage: Option<Usage>,
}

/// The demands of a request on its connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wish {
    /// The connection on which the request's last attempt failed. The request gets neither that connection nor an idle one. During
    /// a pause of its host's dials, it takes another idle one.
    pub(crate) failed: Option<EarlierConn>,
    /// True if the call has asked for a connection before. It is then served even while the pool drains.
    pub(crate) despite_drain: bool,
    /// True if the request must not be sent twice. If the server is known to close reused connections under requests, it gets a
    /// new connection, or one that has been idle for long enough.
    pub(crate) send_once: bool,
    /// True if an HTTP/2 connection is to be dialled for this request, where there is room, though another dial would do.
    /// Until that dial ends, the request takes only connections of its own runtime.
    pub(crate) own_dial: bool,
    /// The connection of the first attempt, if the request is a second one made while that waits for its answer. The second one gets
    /// another connection that is free, or else a new one, and waits for nothing but its dial.
    pub(crate) avoid: Option<EarlierConn>,
}

/// The connection of an earlier attempt at a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EarlierConn {
    /// The connection's number.
    pub(crate) number: u64,
    /// The address of its peer, if another one is preferred.
    pub(crate) ip: Option<IpAddr>,
}

/// The end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    /// The request did not use the connection.
    Unused,
    /// The connection can serve again. `keep_alive` is the server's `Keep-Alive: timeout`, if it sent one.
    Kept { keep_alive: Option<Duration> },
    /// The connection takes no new requests. Other requests on it go on.
    Retire(CloseCause),
    /// The server closed the reused connection under the request, after it had been idle for this time.
    Cut { idle: Duration },
}

/// A connection that was just dialled.
#[derive(Debug)]
pub(crate) struct Opened<T: PoolTypes> {
    /// The handle for requests that waited for the dial.
    pub(crate) fresh: T::Conn,
    /// The handle for later requests.
    pub(crate) conn: T::Conn,
    /// The protocol. An HTTP/2 connection counts one stream until its peer announces how many it allows.
    pub(crate) speaks: Speaks,
    pub(crate) location: Option<Location>,
    /// The address that was connected to.
    pub(crate) remote: Option<SocketAddr>,
    /// The runtime that serves the connection.
    pub(crate) runtime: T::Runtime,
}

/// The name and the address that a connection was dialled for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) name: Arc<str>,
    pub(crate) ip: IpAddr,
    /// The port that the resolver has named; 0 for the usual one.
    pub(crate) port: u16,
}

/// The addresses of a name in one family, as DNS answered.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    pub(crate) family: Family,
    pub(crate) ips: Arc<[IpAddr]>,
    /// The addresses with ports of their own, if some have one.
    pub(crate) sockets: Option<Arc<Vec<SocketAddr>>>,
    pub(crate) ttl: Duration,
    /// True if the answer before it counts for nothing any more.
    pub(crate) is_sure: bool,
    /// The answer's number, if it has one: a newer answer has a higher one.
    pub(crate) serial: Option<u64>,
}

impl Addresses {
    /// Returns true if a connection to an address, at a port that the resolver has named or 0, is one to the host.
    pub(in crate::pool::state) fn leads_to(&self, ip: IpAddr, port: u16) -> bool {
        let is_named = |socket: &SocketAddr| (socket.ip(), socket.port()) == (ip, port);
        self.ips.contains(&ip) && (port == 0 || self.sockets.iter().flat_map(|all| all.iter()).any(is_named))
    }
}

/// The result of [`State::warm_up`](super::State::warm_up).
#[derive(Debug)]
pub(crate) struct WarmUp {
    /// The number of open connections.
    pub(crate) open: usize,
    /// The number of dials begun by this call.
    pub(crate) dialled: usize,
    /// All dials in flight for the host; empty if enough connections are open.
    pub(crate) dials: Vec<ConnId>,
}

/// The answer to a request for a connection.
#[derive(Debug)]
pub(crate) enum Acquired<C> {
    /// A connection with a free stream.
    Ready(Grant<C>),
    /// The request waits; [`Effect::Deliver`] or [`Effect::Fail`] ends that.
    Wait(WaiterId, Queued),
    /// The request may not wait, because too many wait for this limit already, or because the pool drains.
    Refused(Limit),
}

/// An action for the driver, which performs it without holding its lock.
#[derive(Debug)]
pub(crate) enum Effect<T: PoolTypes> {
    /// Dial the host. The address is dialled before its others.
    Dial(Permit, T::Key, Option<SocketAddr>),
    /// Give the waiting request its connection, which it has from `at` on.
    Deliver { waiter: T::Waiter, grant: Grant<T::Conn>, at: Instant },
    /// Tell the waiting request that it gets no connection.
    Fail { waiter: T::Waiter, why: WaitFailure<T::Error> },
    /// Close the connection, which carries no request.
    Close(T::Conn),
    /// Report that a busy connection takes no new requests.
    Retired(ConnId, CloseCause),
    /// Report the current DNS answers of the name with [`State::dns_answered`](super::State::dns_answered).
    AskDns(Arc<str>),
    /// Abort the dial, which was [given up](super::State::is_given_up).
    AbortDial(ConnId),
    /// Report that the drain is complete.
    Drained,
}

/// The reason why a waiting request gets no connection.
#[derive(Debug)]
pub(crate) enum WaitFailure<E> {
    /// A dial for the request failed, or those that began after it came did.
    Dial(E),
    /// A limit kept the request waiting for the longest time allowed.
    Timeout(Expired),
    /// The connect timeout passed. `dial` is the number of the request's own dial in flight, if it has one.
    Connect { expired: Expired, dial: Option<u64> },
}

/// A time limit that passed while a request waited.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expired {
    pub(crate) timeout: Duration,
    /// The limit that kept the request waiting.
    pub(crate) limit: Limit,
    /// The time at which the pool was to end the wait.
    pub(crate) due: Instant,
}

/// The number of connections and requests in each state, over all hosts or of one. Those that only the pool needs are 0 for a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Slots taken: connections from the start of their dial until their socket is closed.
    pub(crate) slots: usize,
    /// Dials in flight.
    pub(crate) dialling: usize,
    /// Connections with requests.
    pub(crate) busy: usize,
    /// Requests that have a connection.
    pub(crate) leased: usize,
    /// Connections without a request.
    pub(crate) idle: usize,
    /// Busy connections that close after their requests.
    pub(crate) retiring: usize,
    /// Retiring connections whose slot is meant for another host.
    pub(crate) yielding: usize,
    /// Connections that are being closed: their sockets are still open.
    pub(crate) closing: usize,
    /// Requests in the queues.
    pub(crate) waiting: usize,
    /// Requests in the queues for which no dial is in flight.
    pub(crate) undialled: usize,
    pub(crate) totals: Totals,
}

/// Events since the pool, or the record of the host, was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Connections opened.
    pub(crate) opened: u64,
    /// Connections opened before a request needed them.
    pub(crate) opened_ahead: u64,
    /// Connections closed, by [`CloseCause`].
    pub(crate) closed: [u64; CloseCause::ALL.len()],
    /// Requests that got a connection which had carried others before.
    pub(crate) reused: u64,
    /// The time for which the requests that got a connection waited for it; zero for those that got one at once.
    pub(crate) waited: Latency,
    /// The time requests held their connection.
    pub(crate) held: Latency,
    pub(crate) queue: QueueStats,
    /// Requests that entered the queue, by the limit that kept them waiting then.
    pub(crate) queued: [u64; Limit::ALL.len()],
    /// The most requests that had a connection at the same time.
    pub(crate) most_leased: usize,
    /// Connections that the server closed while they were idle, or under the first request after that.
    pub(crate) closed_idle_by_peer: u64,
}

/// The requests that entered the queue and left it, as totals.
///
/// Each request that entered the queue has left it in one of four ways, or still waits: `entered` = `served` + `failed` +
/// `timed_out` + `cancelled` + [`waiting`](crate::pool::PoolStats::waiting). A request that is sent again counts again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Requests that entered the queue, because no connection was free for them.
    pub entered: u64,
    /// Requests that got a connection after a wait.
    pub served: u64,
    /// Requests that left the queue because the connection being opened for them failed.
    pub failed: u64,
    /// Requests that left the queue because a time limit passed: the pool's
    /// [`wait_timeout`](crate::PoolConfig::wait_timeout), or the request's own `queue_timeout`, `connect_timeout` or `timeout`.
    pub timed_out: u64,
    /// Requests that left the queue because the call was cancelled: its future was dropped.
    pub cancelled: u64,
    /// Requests that did not enter the queue because it was full ([`max_waiting`](crate::PoolConfig::max_waiting),
    /// [`max_waiting_per_host`](crate::PoolConfig::max_waiting_per_host)). Calls that a [drain](crate::Client::drain) turns away
    /// are not counted.
    pub refused: u64,
}

impl QueueStats {
    /// Returns what came after an earlier state.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// Adds the figures of another queue.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = self.with(other, |one, other| one + other);
    }

    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            entered: of(self.entered, other.entered),
            served: of(self.served, other.served),
            failed: of(self.failed, other.failed),
            timed_out: of(self.timed_out, other.timed_out),
            cancelled: of(self.cancelled, other.cancelled),
            refused: of(self.refused, other.refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: QueueStats =
        QueueStats { entered: 21, served: 1, failed: 2, timed_out: 3, cancelled: 4, refused: 5 };
    const LATER: QueueStats =
        QueueStats { entered: 90, served: 11, failed: 13, timed_out: 15, cancelled: 17, refused: 19 };

    #[test]
    fn the_figures_of_queues_are_added_and_subtracted_one_by_one() {
        let since = QueueStats { entered: 69, served: 10, failed: 11, timed_out: 12, cancelled: 13, refused: 14 };
        assert_eq!(LATER.since(&EARLIER), since);
        let mut sum = EARLIER;
        sum.add(&LATER);
        let both = QueueStats { entered: 111, served: 12, failed: 15, timed_out: 18, cancelled: 21, refused: 24 };
        assert_eq!(sum, both);
    }
}
