//! The settings of a cache.

use std::time::Duration;

use super::state::Config;

/// The upper limit of all the times, so that adding them up stays in range.
pub(super) const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Configures a [`CachedResolver`](super::CachedResolver). No time in it can be longer than a year.
#[derive(Debug, Clone, Default)]
pub struct CachedResolverBuilder {
    pub(super) config: Config,
}

impl CachedResolverBuilder {
    /// Sets the maximum number of names that are kept. Beyond that, the least recently used name is evicted. 1,024 by
    /// default; with 0, nothing is kept. A client asks for the host of a connection in use each 30 s where the cache does not keep it.
    pub fn max_names(mut self, names: usize) -> Self {
        self.config.max_names = names;
        self
    }

    /// Sets the shortest time for which an answer is kept, whatever its TTL. Zero by default, because a floor lets the client
    /// use addresses that have left DNS. An answer with a TTL of zero is not kept in any case.
    pub fn ttl_floor(mut self, floor: Duration) -> Self {
        self.config.ttl_floor = floor.min(MAX_DURATION);
        self
    }

    /// Sets the longest time for which an answer is kept, whatever its TTL. 1 day by default. It overrules the floor.
    pub fn ttl_ceiling(mut self, ceiling: Duration) -> Self {
        self.config.ttl_ceiling = ceiling.min(MAX_DURATION);
        self
    }

    /// Sets the longest time for which "does not exist" and "no addresses" are kept, whatever their SOA record says. 30 s by
    /// default.
    pub fn negative_ceiling(mut self, ceiling: Duration) -> Self {
        self.config.negative_ceiling = ceiling.min(MAX_DURATION);
        self
    }

    /// Sets the longest time for which an expired answer may be served stale, if a query for a new one fails or takes longer
    /// than 1.8 s (RFC 8767). 1 h by default; with zero, no answer is served stale.
    pub fn stale(mut self, stale: Duration) -> Self {
        self.config.max_stale = stale.min(MAX_DURATION);
        self
    }

    /// Sets the longest time for which a name is not asked for again after a failure of the servers, while lookups wait for it and
    /// there is no stale answer for them. 2 s by default. With zero, each lookup asks, and those at the same time share a query.
    pub fn failure_pause(mut self, longest: Duration) -> Self {
        self.config.longest_pause = longest.min(MAX_DURATION);
        self
    }

    /// Sets the longest time for one query of the resolver under the cache; then it fails with
    /// [`Timeout`](crate::dns::ResolveErrorKind::Timeout). 10 s by default. [`HickoryResolver`](crate::dns::HickoryResolver)
    /// takes 5 s by default, and longer when a burst of queries has to wait for a turn.
    pub fn query_timeout(mut self, timeout: Duration) -> Self {
        self.config.query_timeout = timeout.min(MAX_DURATION);
        self
    }
}
