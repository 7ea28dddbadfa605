//! The statistics of a client at a moment.

use crate::clock::Instant;
use crate::dns::CacheStats;
use crate::origin::Origin;
use crate::pool::{HostFacts, PoolConfig, PoolStats};

/// The statistics of a client at a moment: [`Client::stats_snapshot`](crate::Client::stats_snapshot). Two of them make the advice
/// for the time between: [`Advice::between`](crate::Advice::between).
#[derive(Debug, Clone)]
pub struct StatsSnapshot {
    pub(in crate::client) at: Instant,
    /// The time at which the client was built.
    pub(in crate::client) built: Instant,
    pub(in crate::client) pool: PoolStats,
    pub(in crate::client) hosts: Vec<(Origin, HostFacts)>,
    pub(in crate::client) dns: CacheStats,
    pub(in crate::client) config: PoolConfig,
    /// The descriptors that the process may open, if that is limited.
    pub(in crate::client) descriptors: Option<u64>,
}
