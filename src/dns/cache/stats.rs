//! The counters of a cache.

use crate::latency::Latency;

/// The size of a cache and its counters since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The names in the cache.
    pub names: usize,
    /// The lookups answered with addresses from the cache, pinned ones included.
    pub hits: u64,
    /// The lookups answered from the cache with a negative answer, or with the error of a query that failed a short
    /// time ago.
    pub negative_hits: u64,
    /// The lookups answered with a stale answer at once. Those that waited for a fresh one first are not counted.
    pub stale_hits: u64,
    /// The lookups that waited for a query that was running already.
    pub coalesced: u64,
    /// The lookups that started a query.
    pub misses: u64,
    /// The queries that no lookup waited for when they started: refreshes, and queries while a stale answer is served.
    pub refreshes: u64,
    /// The queries that failed, with neither addresses nor a negative answer.
    pub failures: u64,
    /// The names evicted to make room for others.
    pub evictions: u64,
    /// The time that queries took.
    pub upstream_latency: Latency,
}
