//! What the cache tells of itself.

use crate::latency::Latency;

/// What a cache holds and has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Names of which something is known.
    pub names: usize,
    /// Lookups answered with addresses from the cache, pinned ones among them.
    pub hits: u64,
    /// Lookups answered from the cache with "does not exist", or with the failure the name backs off from.
    pub negative_hits: u64,
    /// Lookups answered with an expired answer at once; those that waited for a newer one in vain do not count.
    pub stale_hits: u64,
    /// Lookups that waited for a query somebody else had started.
    pub coalesced: u64,
    /// Lookups that started a query.
    pub misses: u64,
    /// Queries ahead of need: for a name in use, or while a stale answer stood in.
    pub refreshes: u64,
    /// Queries that failed, without an answer good or bad.
    pub failures: u64,
    /// Names that left for others.
    pub evictions: u64,
    /// How long queries took.
    pub upstream_latency: Latency,
}
