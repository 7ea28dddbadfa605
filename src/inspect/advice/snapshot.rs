//! The statistics of a client at a moment.

use crate::clock::Instant;
use crate::dns::CacheStats;
use crate::origin::Origin;
use crate::pool::{HostFacts, PoolConfig, PoolStats};

/// The statistics of a client at a moment: [`Client::stats_snapshot`](crate::Client::stats_snapshot). Two of them make the advice
/// for the time between: [`Advice::between`](crate::inspect::Advice::between).
#[derive(Debug, Clone)]
pub struct StatsSnapshot {
    pub(crate) at: Instant,
    /// The time at which the client was built.
    pub(crate) built: Instant,
    pub(crate) pool: PoolStats,
    pub(crate) hosts: Vec<(Origin, HostFacts)>,
    pub(crate) dns: CacheStats,
    pub(crate) config: PoolConfig,
    /// The descriptors that the process may open, if that is limited.
    pub(crate) descriptors: Option<u64>,
}
