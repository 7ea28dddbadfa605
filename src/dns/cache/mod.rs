//! The DNS cache for users. A lookup is answered at once, or waits for the one query that runs for its name and family.
//!
//! The rules are in `state`, which is given the time and does no I/O; `driver` runs the queries.

mod driver;
pub(super) mod state;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;

use crate::clock::{Instant, before, now, wall};
use crate::dns::answer::normalized;
use crate::dns::cache::driver::{CacheDriver, Outcome, Told};
use crate::dns::cache::state::{Config, Lookup};
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use crate::sync::Landing;

pub use state::CacheStats;

pub use crate::dns::answer::{Change, Changes, ChangesError};
pub use crate::dns::cache::state::snapshot::Snapshot;

/// The time for which a slow family is waited for after the other has answered (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// A DNS cache over any [`Resolver`]. It honours record TTLs, runs one query at a time for a name and family, and keeps a
/// limited number of names.
///
/// Clones share the cache. A query belongs to the cache, not to the lookup that started it, so cancelling a lookup loses
/// nothing.
///
/// * A name in use is refreshed in the last tenth of its TTL. Its lookups wait only if the refresh takes longer than that.
/// * A name in use whose TTL is 0 is asked about again every 2 s.
/// * After a failure, a name is not queried for 1 s, then for twice as long each time, up to 30 s (RFC 9520), but for at most 2 s
///   where a lookup has no stale answer; after a failure
///   of this machine ([`ResolveErrorKind::is_local`](crate::dns::ResolveErrorKind::is_local)), for 100 ms.
/// * Meanwhile an expired answer is served for up to an hour, marked as [`Source::Stale`]
///   (RFC 8767).
/// * A timer removes the names that have no further use.
///
/// ```
/// use speeddial::dns::{CachedResolver, Family, FixedResolver, Source};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = CachedResolver::new(FixedResolver::new().with("api.test", ["127.0.0.1".parse()?]));
/// cache.lookup("api.test", Family::V4).await?;
/// assert_eq!(cache.lookup("api.test", Family::V4).await?.source(), Source::Hit);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct CachedResolver {
    driver: Arc<CacheDriver>,
}

impl CachedResolverBuilder {
    /// Creates the cache on top of `upstream`.
    pub fn build(self, upstream: impl Resolver) -> CachedResolver {
        CachedResolver { driver: Arc::new(CacheDriver::new(upstream, self.config)) }
    }
}

impl CachedResolver {
    /// Creates a cache with the default settings on top of `upstream`.
    pub fn new(upstream: impl Resolver) -> Self {
        Self::builder().build(upstream)
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> CachedResolverBuilder {
        CachedResolverBuilder::default()
    }

    /// Looks up the addresses of `name` in one family.
    ///
    /// A hit does not wait. It does not allocate either, unless the name has upper case letters or is not ASCII. Case does not
    /// matter, and an international name is the same in Unicode and in ASCII (punycode).
    ///
    /// # Errors
    /// The error of the resolver under the cache, shared by all lookups that waited for the same query. An error that is still
    /// kept from an earlier query is returned without waiting.
    ///
    /// # Panics
    /// On a miss outside of a tokio runtime.
    pub async fn lookup(&self, name: &str, family: Family) -> Result<Answer, ResolveError> {
        match self.lookup_at(now(), name, family) {
            Either::Left(known) => known,
            Either::Right(pending) => pending.wait().await,
        }
    }

    /// Like [`Self::lookup`], with `now` already read. Returns the outcome, or a lookup that has to wait for it.
    pub(crate) fn lookup_at<'a>(
        &'a self,
        now: Instant,
        name: &'a str,
        family: Family,
    ) -> Either<Result<Answer, ResolveError>, PendingLookup<'a>> {
        let name = normalized(name);
        match self.driver.get(now, &name, family) {
            Lookup::Known(outcome, _) => Either::Left(outcome),
            lookup => Either::Right(PendingLookup { driver: &self.driver, name, family, lookup }),
        }
    }

    /// Looks up the addresses of `name` in both families at once, and returns them with IPv6 first. A slow family is waited
    /// for no longer than 50 ms after the other one's addresses (RFC 8305 §3).
    ///
    /// # Errors
    /// If neither family has addresses: a failed lookup's error rather than a "does not exist" or "no addresses".
    pub async fn lookup_both(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut lookups: FuturesUnordered<_> =
            Family::BOTH.map(|family| self.lookup(name, family)).into_iter().collect();
        let mut addresses = Vec::new();
        let mut error: Option<ResolveError> = None;
        let mut deadline = None;
        while let Some(Some(outcome)) = before(deadline, lookups.next()).await {
            match outcome {
                Ok(answer) => {
                    addresses.extend(answer.addresses().iter().copied());
                    deadline = deadline.or_else(|| now().checked_add(RESOLUTION_DELAY));
                }
                Err(new) if error.as_ref().is_none_or(|error| error.kind().is_negative()) => error = Some(new),
                Err(_) => {}
            }
        }
        addresses.sort_by_key(IpAddr::is_ipv4);
        match error {
            Some(error) if addresses.is_empty() => Err(error),
            _ => Ok(addresses),
        }
    }

    /// Looks names up ahead of need, in both families and all at once. Errors are not reported here; later lookups return
    /// them.
    pub async fn prefetch<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let lookups: FuturesUnordered<_> = names
            .into_iter()
            .flat_map(|name| Family::BOTH.map(|family| (name, family)))
            .map(|(name, family)| self.lookup(name, family))
            .collect();
        lookups.for_each(|_| std::future::ready(())).await;
    }

    /// Forgets a name. The lookups that wait for a running query still get its answer, but the cache does not keep it.
    pub fn invalidate(&self, name: &str) {
        let name = normalized(name);
        self.driver.lock().invalidate(&name);
    }

    /// Forgets all names except the pinned ones.
    pub fn flush(&self) {
        self.driver.lock().flush();
    }

    /// Replaces the resolver under the cache, for all clones.
    ///
    /// Each name is asked for again at its next use. Until the new resolver has answered, and for 1.8 s at most, an address that is known
    /// from the old one serves as a stale answer does. No lookup joins a query of the old resolver any more, whose answer goes to the
    /// lookups that wait for it and is not kept. A resolver does the same by itself when its [version](Resolver::version) changes, as
    /// [`HickoryResolver`](super::HickoryResolver)'s does with resolv.conf and the hosts file.
    pub fn set_resolver(&self, upstream: impl Resolver) {
        self.driver.upstream.replace(upstream);
        self.driver.set_world_changed(now());
    }

    /// Pins a name: lookups of `name` get these addresses, without a query, until it is [unpinned](Self::unpin). If none of
    /// the addresses is of a family, the name has no addresses in that family. Clients leave their connections to other addresses of the
    /// name within seconds.
    pub fn pin(&self, name: &str, addresses: impl Into<Arc<[IpAddr]>>) {
        let addresses: Arc<[IpAddr]> = addresses.into();
        let changes = self.driver.lock().pin(now(), &normalized(name), &addresses);
        changes.into_iter().for_each(|change| self.driver.tell(change));
    }

    /// Ends a [`pin`](Self::pin). Returns true if there was one.
    pub fn unpin(&self, name: &str) -> bool {
        let changes = self.driver.lock().unpin(now(), &normalized(name));
        let was_pinned = changes.is_some();
        changes.into_iter().flatten().for_each(|change| self.driver.tell(change));
        was_pinned
    }

    /// Notes that a name is in use without looking it up, for instance because a connection to it is kept open.
    ///
    /// The name is then refreshed ahead of its expiry, and queried while it is stale, as if it were looked up. A name without
    /// addresses in the cache is queried, too. This method does not wait.
    ///
    /// Returns true if the name has addresses in the cache. If it has none, touching it often is of no use.
    pub fn touch(&self, name: &str) -> bool {
        self.touch_families(name, &Family::BOTH)
    }

    /// Like [`Self::touch`], for a client that uses these families only.
    pub(crate) fn touch_families(&self, name: &str, families: &[Family]) -> bool {
        let (name, now) = (normalized(name), now());
        // Each family is touched, whatever the other one has.
        families.iter().filter(|family| !self.driver.touch(now, &name, **family)).count() == 0
    }

    /// Returns all addresses in the cache, fresh and stale, to [`restore`](Self::restore) them in another process. Pinned
    /// names and negative answers are not included.
    pub fn snapshot(&self) -> Snapshot {
        self.driver.lock().snapshot(now(), wall())
    }

    /// Adds the addresses of a [`snapshot`](Self::snapshot), except where an answer for a name and family is known already.
    ///
    /// The time since the snapshot was taken, by the system's clock, is subtracted from their TTLs. Addresses that expired
    /// meanwhile are restored as stale, or not at all if they are too old for that. No known name is evicted for them. Outside
    /// of a tokio runtime, the timer that removes them starts with the next query.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.driver.lock().restore(now(), wall(), snapshot);
        self.driver.set_timer();
    }

    /// Returns a name's addresses and what is left of their TTL, for the families as in [`Family::BOTH`], without a query. It does not
    /// count as a use of the name. The second part of each is true if those known before count for nothing any more.
    pub(crate) fn peek(&self, now: Instant, name: &str) -> [Option<(Answer, bool)>; 2] {
        self.driver.lock().peek(now, name)
    }

    /// Notes that none of a name's addresses connects: they are asked for anew, and where they were kept beyond their TTL, the word of DNS that
    /// has waited beside them counts from now on. This method does not wait.
    pub(crate) fn doubt(&self, name: &str, families: &[Family]) {
        let (name, now) = (normalized(name), now());
        families.iter().for_each(|family| self.driver.doubt(now, &name, *family));
    }

    /// Subscribes to the changes from now on: each answer whose addresses differ from those known before.
    pub fn subscribe(&self) -> Changes {
        Changes { receiver: self.driver.subscribe() }
    }

    /// Returns the resolver under the cache.
    #[cfg(feature = "doctor")]
    pub(crate) fn upstream(&self) -> Arc<dyn Resolver> {
        self.driver.upstream.current()
    }

    /// Returns the cache's size, and its counters since it was created.
    pub fn stats(&self) -> CacheStats {
        CacheStats { upstream_latency: self.driver.latency(), ..self.driver.lock().stats() }
    }
}

impl Resolver for CachedResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(self.lookup(name, family))
    }

    fn version(&self) -> u64 {
        self.driver.upstream.current().version()
    }
}

impl fmt::Debug for CachedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedResolver").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

/// The upper limit of all the times, so that adding them up stays in range.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Configures a [`CachedResolver`]. No time in it can be longer than a year.
#[derive(Debug, Clone, Default)]
pub struct CachedResolverBuilder {
    config: Config,
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

/// The longest a lookup waits for a fresh answer before it gets a stale one (RFC 8767 §5).
const STALE_ANSWER_TIMEOUT: Duration = Duration::from_millis(1_800);

/// The time for which a lookup waits for the query of another runtime alone.
const HEAD_START: Duration = Duration::from_millis(300);

/// A lookup whose answer is not known yet.
pub(crate) struct PendingLookup<'a> {
    driver: &'a Arc<CacheDriver>,
    name: Cow<'a, str>,
    family: Family,
    lookup: Lookup<Landing<Told>>,
}

impl PendingLookup<'_> {
    /// Waits for the query, or for a limited time if there is a stale answer.
    ///
    /// A query is lost when the runtime of its task is shut down, or when its resolver panics. The lookup then asks the cache
    /// once more. It does so as well if the answer is that of a resolver that was replaced, or of files that have changed, and if the query
    /// of another runtime does not end soon: that may be blocked.
    pub(crate) async fn wait(self) -> Outcome {
        let Self { driver, name, family, mut lookup } = self;
        let (mut is_last_try, mut has_waited_elsewhere) = (false, false);
        loop {
            let (query, source, stale) = match lookup {
                Lookup::Known(outcome, _) => return outcome,
                Lookup::Start(query, stale) => (query, Source::Miss, stale),
                Lookup::Join(query, stale) => (query, Source::Coalesced, stale),
            };
            let has_head_start = query.handle.is_elsewhere() && !std::mem::replace(&mut has_waited_elsewhere, true);
            let limit = match &stale {
                _ if has_head_start => HEAD_START,
                Some(_) => STALE_ANSWER_TIMEOUT,
                None => driver.max_query_time,
            };
            match (tokio::time::timeout(limit, query.handle.wait()).await, stale) {
                (Ok(Some((outcome, counts))), _) if counts || is_last_try => {
                    return with_source_of_lookup(outcome, source);
                }
                (Err(_), stale) if has_head_start => {
                    lookup = match driver.ask_beside(&name, family, query.serial) {
                        Some(query) => Lookup::Start(query, stale),
                        None => driver.get(now(), &name, family),
                    };
                }
                (Err(_), Some(stale)) => return Ok(stale),
                (Err(_), None) => {
                    // Removed, so that the next lookup starts another one.
                    driver.lock().abandon(now(), &name, family, query.serial);
                    return Err(ResolveError::new(ResolveErrorKind::Timeout, &name, family));
                }
                (Ok(_), Some(stale)) if is_last_try => return Ok(stale),
                (Ok(_), None) if is_last_try => {
                    let lost = ResolveError::new(ResolveErrorKind::Other, &name, family);
                    return Err(lost.with_cause("the resolver gave up its query"));
                }
                (Ok(_), _) => {
                    is_last_try = true;
                    lookup = driver.get(now(), &name, family);
                }
            }
        }
    }
}

/// Replaces the source of a query's outcome by the lookup's, unless no DNS query was made for it, as for the hosts file.
fn with_source_of_lookup(outcome: Outcome, source: Source) -> Outcome {
    match outcome {
        Ok(answer) if answer.source() == Source::Miss => Ok(answer.with_source(source)),
        Ok(answer) => Ok(answer),
        Err(error) if error.answered_from() == Source::Miss => Err(error.with_source(source)),
        Err(error) => Err(error),
    }
}
