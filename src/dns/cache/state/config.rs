//! The settings of the cache, their defaults, and the TTLs they lead to. A core: no more than arithmetic.

use std::time::Duration;

use crate::dns::ResolveError;

/// The time for which a negative answer without an SOA record is kept.
const DEFAULT_NEGATIVE_TTL: Duration = Duration::from_secs(1);

/// The default of [`Config::query_timeout`].
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The time beyond its timeout for which a query counts and is waited for. Where its runtime is not driven, the query goes on past its timeout.
const QUERY_GRACE: Duration = Duration::from_millis(500);

/// The settings of the cache.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The most names that are kept. The least recently used one is evicted for another.
    pub(crate) max_names: usize,
    /// The shortest time for which addresses are kept, except that a TTL of zero stays zero.
    pub(crate) ttl_floor: Duration,
    /// The longest time for which addresses are kept.
    pub(crate) ttl_ceiling: Duration,
    /// The longest time for which "does not exist" and "no addresses" are kept.
    pub(crate) negative_ceiling: Duration,
    /// The longest time after its expiry for which an answer is served stale (RFC 8767).
    pub(crate) max_stale: Duration,
    /// The longest time without a query after a failure where lookups wait for the name and there is no stale answer for them.
    pub(crate) longest_pause: Duration,
    /// The longest time of a query, the wait for its turn in the resolver included.
    pub(crate) query_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_names: 1_024,
            ttl_floor: Duration::ZERO,
            ttl_ceiling: Duration::from_secs(24 * 60 * 60),
            negative_ceiling: Duration::from_secs(30),
            max_stale: Duration::from_secs(60 * 60),
            longest_pause: Duration::from_secs(2),
            query_timeout: QUERY_TIMEOUT,
        }
    }
}

impl Config {
    /// Returns the time after which a running query no longer counts, and another one may start.
    pub(crate) fn max_query_time(&self) -> Duration {
        self.query_timeout + QUERY_GRACE
    }

    /// Returns the TTL within its floor and its ceiling. The floor does not apply to a TTL of zero.
    pub(super) fn bounded_ttl(&self, ttl: Duration) -> Duration {
        let floor = if ttl.is_zero() { Duration::ZERO } else { self.ttl_floor };
        ttl.max(floor).min(self.ttl_ceiling)
    }

    /// Returns the time for which a negative answer is kept (RFC 2308 §5).
    pub(super) fn negative_ttl(&self, error: &ResolveError) -> Duration {
        error.negative_ttl().unwrap_or(DEFAULT_NEGATIVE_TTL).min(self.negative_ceiling)
    }
}
