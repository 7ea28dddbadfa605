//! The statistics of a pool, of each host and of its addresses, and the load of hosts.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::state::{Counters, QueueStats, Totals};
use crate::clock::Instant;
use crate::latency::Latency;
use crate::origin::Origin;
use crate::os;
use crate::pool::config::{Limits, PoolConfig};
use crate::pool::state::{AddressReport, HostReport, Standing};
use crate::trace::{CloseCause, Limit};

/// The statistics of a client's pool, or of one of its hosts: connections and requests in each state at the moment, and totals since the
/// client was built.
///
/// A host is listed while it has connections or waiting requests, or is [kept warm](crate::PoolConfig::min_idle_per_host). Its totals
/// go on when it is listed again, unless 1,024 hosts have left the list since.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Connections without a request.
    pub idle: usize,
    /// Connections with requests.
    pub in_use: usize,
    /// Connections being opened.
    pub dialling: usize,
    /// Connections that are being closed: they carry no request, and their sockets are still open.
    pub closing: usize,
    /// Requests that have a connection. Over HTTP/2 many requests can have the same one.
    pub leased: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened.
    pub opened: u64,
    /// Connections opened before a request needed them, by [`PoolConfig::min_idle_per_host`](crate::PoolConfig::min_idle_per_host)
    /// or [`Client::warm_up`](crate::Client::warm_up). They are among those in [`opened`](Self::opened).
    pub opened_ahead: u64,
    /// Connections closed.
    pub closed: u64,
    /// Requests that got a connection which had carried others before.
    pub reused: u64,
    /// The requests that entered the queue and left it.
    pub queue: QueueStats,
    /// The time for which the requests that got a connection waited for it, zero for those that got one at once. Waits that ended
    /// without a connection are not among them: [`queue`](Self::queue) counts those.
    pub queue_time: Latency,
    /// The time for which requests held their connection.
    pub hold_time: Latency,
    /// The most requests that had a connection at the same time.
    pub most_leased: usize,
    /// Connections that the server closed while they were idle, or under the first request after that.
    pub closed_idle_by_peer: u64,
    /// Connections closed, by [`CloseCause`].
    pub(super) causes: ClosesByCause,
    /// Requests that entered the queue, by [`Limit`].
    pub(super) queued: WaitsByLimit,
}

/// Connections closed, by cause.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ClosesByCause(pub(super) [u64; CloseCause::ALL.len()]);

/// Requests that entered the queue, by limit.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WaitsByLimit(pub(super) [u64; Limit::ALL.len()]);

impl fmt::Debug for ClosesByCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(CloseCause::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0)).finish()
    }
}

impl fmt::Debug for WaitsByLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Limit::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0)).finish()
    }
}

impl PoolStats {
    pub(super) fn new(counters: &Counters) -> Self {
        let Totals {
            opened,
            opened_ahead,
            closed,
            reused,
            waited,
            held,
            queue,
            queued,
            most_leased,
            closed_idle_by_peer,
        } = counters.totals;
        Self {
            idle: counters.idle,
            in_use: counters.busy,
            dialling: counters.dialling,
            closing: counters.closing,
            leased: counters.leased,
            waiting: counters.waiting,
            opened,
            opened_ahead,
            closed: closed.iter().sum(),
            reused,
            queue,
            queue_time: waited,
            hold_time: held,
            most_leased,
            closed_idle_by_peer,
            causes: ClosesByCause(closed),
            queued: WaitsByLimit(queued),
        }
    }

    /// Returns the number of connections that were closed for this reason.
    pub fn closed_by(&self, cause: CloseCause) -> u64 {
        self.causes.0[cause as usize]
    }

    /// Returns the number of requests that entered the queue while this limit kept them from a connection.
    pub fn queued_by(&self, limit: Limit) -> u64 {
        self.queued.0[limit as usize]
    }
}

impl PoolStats {
    /// Returns the totals that came after an earlier state of the same host, with the present numbers of connections and requests.
    /// The most requests at the same time are those since the host was known. A host that was forgotten in between counts from 0.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let was_forgotten = self.opened < earlier.opened || self.queue_time.count() < earlier.queue_time.count();
        if was_forgotten {
            return *self;
        }
        let mut later = *self;
        later.opened -= earlier.opened;
        later.opened_ahead = later.opened_ahead.saturating_sub(earlier.opened_ahead);
        later.closed = later.closed.saturating_sub(earlier.closed);
        later.reused = later.reused.saturating_sub(earlier.reused);
        later.queue = later.queue.since(&earlier.queue);
        later.queue_time = later.queue_time.since(&earlier.queue_time);
        later.hold_time = later.hold_time.since(&earlier.hold_time);
        later.closed_idle_by_peer = later.closed_idle_by_peer.saturating_sub(earlier.closed_idle_by_peer);
        subtract(&mut later.causes.0, &earlier.causes.0);
        subtract(&mut later.queued.0, &earlier.queued.0);
        later
    }

    /// Adds the figures of another host, for example of the same origin behind a proxy. The most requests at the same time are
    /// added too, and may be too many.
    pub(crate) fn add(&mut self, other: &Self) {
        // Each field by name, so that none is left out.
        let Self {
            idle,
            in_use,
            dialling,
            closing,
            leased,
            waiting,
            opened,
            opened_ahead,
            closed,
            reused,
            queue,
            queue_time,
            hold_time,
            most_leased,
            closed_idle_by_peer,
            causes,
            queued,
        } = self;
        *idle += other.idle;
        *in_use += other.in_use;
        *dialling += other.dialling;
        *closing += other.closing;
        *leased += other.leased;
        *waiting += other.waiting;
        *opened += other.opened;
        *opened_ahead += other.opened_ahead;
        *closed += other.closed;
        *reused += other.reused;
        queue.add(&other.queue);
        queue_time.merge(&other.queue_time);
        hold_time.merge(&other.hold_time);
        *most_leased += other.most_leased;
        *closed_idle_by_peer += other.closed_idle_by_peer;
        causes.0.iter_mut().zip(other.causes.0).for_each(|(sum, more)| *sum += more);
        queued.0.iter_mut().zip(other.queued.0).for_each(|(sum, more)| *sum += more);
    }
}

/// Subtracts the totals of an earlier state.
fn subtract<const N: usize>(totals: &mut [u64; N], earlier: &[u64; N]) {
    totals.iter_mut().zip(earlier).for_each(|(total, before)| *total = total.saturating_sub(*before));
}

/// The statistics of one address of a host whose requests are balanced over its addresses
/// ([`Addresses::Spread`](crate::settings::Addresses::Spread)).
///
/// They begin anew when the host has neither connections nor waiting requests, or when the address left DNS with its last
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressStats {
    /// The address.
    pub address: SocketAddr,
    /// The use that is made of the address at the moment.
    pub state: AddressState,
    /// Open connections that take requests.
    pub connections: usize,
    /// Requests that have a connection to the address.
    pub in_flight: usize,
    /// The time from a request to the headers of its response: a moving average that rises at once and falls slowly. `None` before
    /// the first response.
    pub latency: Option<Duration>,
    /// Requests that were answered, or failed.
    pub requests: u64,
    /// The requests among them that failed. [`Ejection`](crate::pool::Ejection) says what a failure is.
    pub failed: u64,
}

/// The use that is made of an address of a balanced host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressState {
    /// The address gets its share of the requests.
    InUse,
    /// The address failed and gets no requests for a while.
    Ejected,
    /// A single request finds out if the address is well again.
    Probed,
    /// The address has left the DNS answer of its name, and gets no more requests.
    Left,
}

impl AddressStats {
    pub(super) fn new(report: &AddressReport) -> Self {
        let state = match report.standing {
            _ if !report.is_listed => AddressState::Left,
            Standing::Fine => AddressState::InUse,
            Standing::Ejected { .. } => AddressState::Ejected,
            Standing::Probed => AddressState::Probed,
        };
        Self {
            address: report.socket,
            state,
            connections: report.connections,
            in_flight: report.in_flight,
            latency: report.latency,
            requests: report.answered,
            failed: report.failed,
        }
    }
}

/// The load of a client's pool beside its limits: [`Client::load`](crate::Client::load). For advice on the limits, and for dashboards that
/// show how much of them is used.
///
/// ```
/// # fn print(client: &speeddial::Client) {
/// let before = client.load();
/// // … a busy minute …
/// let load = client.load().since(&before);
/// for (origin, host) in &load.hosts {
///     let connections = host.busy_time.as_secs_f64() / load.span.as_secs_f64();
///     println!("{origin}: {connections:.1} requests at a time of {}", host.max_connections);
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Load {
    /// The time in which the totals were counted: since the client was built, or since an [earlier load](Self::since).
    pub span: Duration,
    /// The figures of the pool.
    pub pool: PoolStats,
    /// The load of each host that has connections, had some lately, or has waiting requests.
    pub hosts: Vec<(Origin, HostLoad)>,
    /// The limits, as they were set.
    pub config: PoolConfig,
    /// The limit on connections in total: [`PoolConfig::max_connections`].
    pub max_connections: usize,
    /// The limit on idle connections in total: [`PoolConfig::max_idle`].
    pub max_idle: usize,
    /// The number of descriptors that the process may open (the soft limit `RLIMIT_NOFILE`); `None` if it is not limited.
    pub descriptors: Option<u64>,
    at: Instant,
}

/// The load of one host beside its limits.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HostLoad {
    /// The host's figures.
    pub stats: PoolStats,
    /// The time for which requests have held connections up to now, those that still do included. By [`Load::span`] it is the mean
    /// number of requests at a time.
    pub busy_time: Duration,
    /// The number of streams that a new connection is expected to have, if the host speaks HTTP/2.
    pub streams: Option<usize>,
    /// The idle timeout that the server announced or showed, less a margin.
    pub keep_alive: Option<Duration>,
    /// The limit on the host's connections: [`PoolConfig::max_connections_per_host`], or that of [`PoolConfig::for_host`].
    pub max_connections: usize,
    /// The limit on connections over HTTP/2: [`PoolConfig::max_http2_connections_per_host`].
    pub max_http2_connections: usize,
    /// The limit on idle connections: [`PoolConfig::max_idle_per_host`].
    pub max_idle: usize,
    /// The number of idle connections that are kept open: [`PoolConfig::min_idle_per_host`].
    pub min_idle: usize,
    /// The time after which an idle connection is closed: [`PoolConfig::idle_timeout`].
    pub idle_timeout: Duration,
}

impl Load {
    /// Makes the load at `at` of the pool of a client that was built at `built`.
    pub(crate) fn new(
        at: Instant,
        built: Instant,
        pool: PoolStats,
        hosts: Vec<(Origin, HostLoad)>,
        config: PoolConfig,
    ) -> Self {
        let (max_connections, max_idle, descriptors) =
            (config.max_connections, config.max_idle, os::descriptor_limit());
        Self { span: at - built, pool, hosts, config, max_connections, max_idle, descriptors, at }
    }

    /// Returns the load with the totals that came after an earlier load of the same client: those of the time between. The present
    /// numbers of connections and requests stay, and so does [`PoolStats::most_leased`].
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let host = |(origin, load): &(Origin, HostLoad)| {
            let before = earlier.hosts.iter().find(|(other, _)| other == origin);
            (origin.clone(), before.map_or(*load, |(_, before)| load.since(before)))
        };
        Self {
            span: self.at - earlier.at,
            pool: self.pool.since(&earlier.pool),
            hosts: self.hosts.iter().map(host).collect(),
            ..self.clone()
        }
    }
}

impl HostLoad {
    pub(super) fn new(report: &HostReport) -> Self {
        let HostReport { counters, busy_time, limits, streams, keep_alive } = *report;
        let Limits { max_connections, max_http2_connections, max_idle, min_idle, idle_timeout, .. } = limits;
        Self {
            stats: PoolStats::new(&counters),
            busy_time,
            streams,
            keep_alive,
            max_connections,
            max_http2_connections,
            max_idle,
            min_idle,
            idle_timeout,
        }
    }

    /// Returns the load with the totals that came after an earlier state of the same host.
    fn since(&self, earlier: &Self) -> Self {
        // Less than before: the host was forgotten in between.
        let busy_time = self.busy_time.checked_sub(earlier.busy_time).unwrap_or(self.busy_time);
        Self { stats: self.stats.since(&earlier.stats), busy_time, ..*self }
    }

    /// Adds the load of another way to the same origin.
    pub(crate) fn add(&mut self, other: &Self) {
        self.stats.add(&other.stats);
        self.busy_time = self.busy_time.saturating_add(other.busy_time);
        self.streams = self.streams.into_iter().chain(other.streams).min();
        self.keep_alive = self.keep_alive.into_iter().chain(other.keep_alive).min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_two_ways_to_an_origin_are_added_one_by_one() {
        let one =
            PoolStats { idle: 1, in_use: 2, dialling: 3, closing: 4, leased: 5, waiting: 6, ..PoolStats::default() };
        let mut sum = PoolStats { opened: 7, opened_ahead: 8, closed: 9, reused: 10, most_leased: 11, ..one };
        sum.add(&sum.clone());
        let both = PoolStats { idle: 2, in_use: 4, dialling: 6, closing: 8, leased: 10, waiting: 12, ..sum };
        assert_eq!(sum, both);
        assert_eq!((sum.opened, sum.opened_ahead, sum.closed, sum.reused, sum.most_leased), (14, 16, 18, 20, 22));
    }

    #[test]
    fn statistics_print_the_counts_that_are_not_zero_by_name() {
        let mut stats = PoolStats::default();
        stats.causes.0[CloseCause::IdleTimeout as usize] = 3;
        stats.queued.0[Limit::ConnectionsPerHost as usize] = 2;
        let text = format!("{stats:?}");
        assert!(text.ends_with("causes: {IdleTimeout: 3}, queued: {ConnectionsPerHost: 2} }"), "{text}");
        assert!(
            text.contains("queue_time: Latency { count: 0, mean: 0ns, median: 0ns, p99: 0ns, max: 0ns }"),
            "{text}"
        );
    }
}
