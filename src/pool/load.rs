//! The load of a pool beside its limits: what advice on these is made of.

use std::time::Duration;

use super::config::{Limits, PoolConfig};
use super::state::HostReport;
use super::stats::PoolStats;
use crate::clock::Instant;
use crate::origin::Origin;
use crate::os;

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
