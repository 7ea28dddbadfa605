//! The values that the cache's core takes and returns, and its configuration. A core.

use std::time::Duration;

use crate::dns::{Answer, Change, ResolveError, Source};
use crate::latency::Latency;
use crate::memory::Flight;

/// The result of a lookup in the cache. `H` is the driver's handle on a running query.
#[derive(Debug)]
pub(crate) enum Lookup<H> {
    /// The outcome, known without waiting. The driver starts the query that comes with it and does not wait for it.
    Known(Result<Answer, ResolveError>, Option<Flight<H>>),
    /// Another lookup's query to wait for. With a stale answer, the wait is limited.
    Join(Flight<H>, Option<Answer>),
    /// A query to start and to wait for. With a stale answer, the wait is limited.
    Start(Flight<H>, Option<Answer>),
}

impl<H> Lookup<H> {
    /// Returns the query that the driver has to start.
    pub(crate) fn query_to_start(&self) -> Option<&Flight<H>> {
        match self {
            Self::Known(_, query) => query.as_ref(),
            Self::Start(query, _) => Some(query),
            Self::Join(..) => None,
        }
    }
}

/// The result of [`Cache::touch`](super::Cache::touch).
#[derive(Debug)]
pub(crate) struct Touched<H> {
    /// True if the name has addresses in the cache, in either family.
    pub(crate) has_addresses: bool,
    /// A query to start and not to wait for.
    pub(crate) query: Option<Flight<H>>,
}

/// The result of [`Cache::complete`](super::Cache::complete).
#[derive(Debug)]
pub(crate) struct Completed {
    /// The outcome for the lookups that wait for the query: its own, or a stale answer in place of a failure.
    pub(crate) outcome: Result<Answer, ResolveError>,
    /// The name's addresses, if they differ from those known before.
    pub(crate) change: Option<Change>,
}

/// The size of a cache and its counters since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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

impl CacheStats {
    /// Counts a lookup that the cache answered.
    pub(super) fn count_hit(&mut self, outcome: &Result<Answer, ResolveError>) {
        match outcome {
            Ok(answer) if answer.source() == Source::Stale => self.stale_hits += 1,
            Ok(_) => self.hits += 1,
            Err(_) => self.negative_hits += 1,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::dns::{Family, ResolveErrorKind};

    #[test]
    fn each_lookup_counts_for_its_kind_of_answer() {
        let answer = |source| Ok(Answer::new([[192, 0, 2, 1].into()], Duration::ZERO, source));
        let mut counters = CacheStats::default();
        for source in [Source::Hit, Source::Hit, Source::Pinned, Source::Stale, Source::Stale] {
            counters.count_hit(&answer(source));
        }
        counters.count_hit(&Err(ResolveError::new(ResolveErrorKind::NoData, "n", Family::V4)));
        assert_eq!((counters.hits, counters.stale_hits, counters.negative_hits), (3, 2, 1));
    }
}
