//! The DNS cache as tasks see it: a hit at once, otherwise one query that everybody waits for.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, watch};

use super::cache::{Cache, Config, Flight, Landed, Step};
use super::changes::{self, Change, Changes};
use super::snapshot::Snapshot;
use super::stats::CacheStats;
use super::{Answer, Family, Latency, Resolve, ResolveError, ResolveErrorKind, Resolving, Source, normalized};
use crate::clock::{Alarm, Instant, Timed, before, now, wall};
use crate::sync::lock;

/// How long a query may take, waiting for its turn included; its resolver should have an end of its own.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// How much longer a lookup waits for a query, which may run on a runtime that nobody drives.
const GRACE: Duration = Duration::from_millis(500);

/// The most that any of the cache's times can be set to, so that adding them up stays in range.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long one family is waited for beyond the other (RFC 8305 §3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// How long it is waited for a newer answer than a stale one (RFC 8767 §5).
const STALE_PATIENCE: Duration = Duration::from_millis(1_800);

type Outcome = Result<Answer, ResolveError>;
type Waiting = watch::Receiver<Option<Outcome>>;
type Landing = watch::Sender<Option<Outcome>>;

/// A DNS cache over any [`Resolve`]: record TTLs, one query in flight a name and family, a bound on names.
///
/// Clones share the cache. A query belongs to the cache and not to its first caller, so cancelling a lookup loses
/// nothing. A name in use is asked for again in the last tenth of its TTL, so that its users never wait. A name that
/// fails is left alone for 1 s, then for twice as long each time, up to 30 s (RFC 9520), and for 100 ms where the failure
/// is this machine's own ([`ResolveErrorKind::is_local`]); meanwhile an answer that has expired stands in for up to an hour,
/// marked as [`Source::Stale`] (RFC 8767). What is past all use is removed by a timer.
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
    shared: Arc<Shared>,
}

/// Sets a [`CachedResolver`] up. No time in it can be longer than a year.
#[derive(Debug, Clone)]
pub struct CachedResolverBuilder {
    config: Config,
    query_timeout: Duration,
}

struct Shared {
    upstream: Arc<dyn Resolve>,
    query_timeout: Duration,
    // As the pool's lock: for threads that outnumber the cores.
    cache: parking_lot::Mutex<Cache<Waiting>>,
    alarm: Alarm,
    latency: Mutex<Latency>,
    /// Made for the first subscriber.
    changes: OnceLock<broadcast::Sender<Change>>,
}

impl Default for CachedResolverBuilder {
    fn default() -> Self {
        Self { config: Config::default(), query_timeout: QUERY_TIMEOUT }
    }
}

impl CachedResolverBuilder {
    /// How many names are kept; the least recently used leave. 1,024 by default; 0 keeps none.
    pub fn max_names(mut self, names: usize) -> Self {
        self.config.max_names = names;
        self
    }

    /// The least time an answer is kept, whatever its TTL, unless that is zero. None by default: a floor lets the client
    /// stay with addresses that DNS has left.
    pub fn ttl_floor(mut self, floor: Duration) -> Self {
        self.config.ttl_floor = floor.min(LONGEST);
        self
    }

    /// The longest time an answer is kept, whatever its TTL. One day by default; it overrules the floor.
    pub fn ttl_ceiling(mut self, ceiling: Duration) -> Self {
        self.config.ttl_ceiling = ceiling.min(LONGEST);
        self
    }

    /// The longest time a "does not exist" is kept, whatever its SOA record says. 30 s by default.
    pub fn negative_ceiling(mut self, ceiling: Duration) -> Self {
        self.config.negative_ceiling = ceiling.min(LONGEST);
        self
    }

    /// How long past its expiry an answer may stand in while no newer one can be had, or none within 1.8 s (RFC 8767).
    /// One hour by default; zero for never.
    pub fn stale(mut self, stale: Duration) -> Self {
        self.config.stale = stale.min(LONGEST);
        self
    }

    /// How long the resolver below may take for a query, before it is given up as timed out. 10 s by default:
    /// [`HickoryResolver`](super::HickoryResolver) takes 5 s by default, and in a great burst it has queries wait for
    /// their turn.
    pub fn query_timeout(mut self, timeout: Duration) -> Self {
        self.query_timeout = timeout.min(LONGEST);
        self
    }

    /// Puts the cache on top of `upstream`.
    pub fn build(self, upstream: impl Resolve) -> CachedResolver {
        let Self { mut config, query_timeout } = self;
        config.flight = query_timeout + GRACE;
        let cache = parking_lot::Mutex::new(Cache::new(config, fastrand::u64(..), now()));
        let (alarm, latency, changes) = Default::default();
        let upstream = Arc::new(upstream);
        CachedResolver { shared: Arc::new(Shared { upstream, query_timeout, cache, alarm, latency, changes }) }
    }
}

impl CachedResolver {
    /// A cache with the defaults on top of `upstream`.
    pub fn new(upstream: impl Resolve) -> Self {
        Self::builder().build(upstream)
    }

    /// Begins to set a cache up.
    pub fn builder() -> CachedResolverBuilder {
        CachedResolverBuilder::default()
    }

    /// Looks up the addresses of `name` in one family. A hit does not wait, nor allocate unless the name has upper case
    /// letters or is not ASCII. Case does not matter, and an international name is the same in Unicode and in ASCII (punycode).
    ///
    /// # Errors
    /// What the resolver below said; to everybody who waited for the same query.
    ///
    /// # Panics
    /// On a miss outside of a tokio runtime.
    pub async fn lookup(&self, name: &str, family: Family) -> Outcome {
        match self.lookup_at(now(), name, family) {
            Either::Left(known) => known,
            Either::Right(asked) => asked.wait().await,
        }
    }

    /// The same for who knows what time it is: what is known, or has to be waited for.
    pub(crate) fn lookup_at<'a>(&'a self, now: Instant, name: &'a str, family: Family) -> Either<Outcome, Asked<'a>> {
        let name = normalized(name);
        match self.step(now, &name, family) {
            Step::Known(outcome, _) => Either::Left(outcome),
            step => Either::Right(Asked { resolver: self, name, family, step }),
        }
    }

    /// Looks up the addresses of `name` in both families at once, IPv6 first. A family that is slow is waited for no longer
    /// than 50 ms beyond the other one's addresses (RFC 8305 §3).
    ///
    /// # Errors
    /// What is worth knowing where neither has addresses: a failure rather than "does not exist".
    pub async fn lookup_both(&self, name: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let mut lookups: FuturesUnordered<_> =
            Family::BOTH.map(|family| self.lookup(name, family)).into_iter().collect();
        let (mut addresses, mut failed, mut deadline) = (Vec::new(), None::<ResolveError>, None);
        while let Some(Some(outcome)) = before(deadline, lookups.next()).await {
            match outcome {
                Ok(answer) => {
                    addresses.extend(answer.addresses().iter().copied());
                    deadline = deadline.or_else(|| now().checked_add(RESOLUTION_DELAY));
                }
                Err(error) if failed.as_ref().is_none_or(|other| other.kind().is_negative()) => failed = Some(error),
                Err(_) => {}
            }
        }
        addresses.sort_by_key(IpAddr::is_ipv4);
        match failed {
            Some(error) if addresses.is_empty() => Err(error),
            _ => Ok(addresses),
        }
    }

    async fn wait(&self, name: &str, family: Family, mut step: Step<Waiting>) -> Outcome {
        // A query is lost when its task's runtime is shut down, or its resolver panics: one more is worth a try.
        for again in [true, false] {
            let (flight, source, stale) = match step {
                Step::Known(outcome, _) => return outcome,
                Step::Start(flight, stale) => (flight, Source::Miss, stale),
                Step::Join(flight, stale) => (flight, Source::Coalesced, stale),
            };
            let patience = if stale.is_some() { STALE_PATIENCE } else { self.shared.query_timeout + GRACE };
            match (tokio::time::timeout(patience, landing(flight.handle)).await, stale) {
                (Ok(Some(outcome)), _) => return told(outcome, source),
                (Err(_), Some(stale)) => return Ok(stale),
                (Err(_), None) => {
                    // Forgotten, so that the next lookup starts another one.
                    self.shared.lock().lost(name, family, flight.serial);
                    return Err(ResolveError::new(ResolveErrorKind::Timeout, name, family));
                }
                (Ok(None), Some(stale)) if !again => return Ok(stale),
                (Ok(None), None) if !again => break,
                (Ok(None), _) => step = self.step(now(), name, family),
            }
        }
        Err(ResolveError::new(ResolveErrorKind::Other, name, family).with_cause("the resolver gave up its query"))
    }

    /// Looks names up ahead of need, in both families and all at once. What fails is told by the lookups to come.
    pub async fn prefetch<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let lookups: FuturesUnordered<_> = names
            .into_iter()
            .flat_map(|name| Family::BOTH.map(|family| (name, family)))
            .map(|(name, family)| self.lookup(name, family))
            .collect();
        lookups.for_each(|_| std::future::ready(())).await;
    }

    /// Forgets a name. A query under way is still told to those who wait for it, but not kept.
    pub fn invalidate(&self, name: &str) {
        self.shared.lock().invalidate(&normalized(name));
    }

    /// Forgets every name, except those that are pinned.
    pub fn flush(&self) {
        self.shared.lock().flush();
    }

    /// Answers `name` with these addresses, without a query, until it is [unpinned](Self::unpin). In a family of which
    /// none is given, the name has no addresses.
    pub fn pin(&self, name: &str, addresses: impl Into<Arc<[IpAddr]>>) {
        self.shared.lock().pin(&normalized(name), addresses.into());
    }

    /// Ends a [`pin`](Self::pin); whether there was one.
    pub fn unpin(&self, name: &str) -> bool {
        self.shared.lock().unpin(&normalized(name))
    }

    /// Says that a name is in use without looking it up, over a connection that is kept for instance: it is asked for again
    /// ahead of its expiry, and followed while it is stale, as if it were looked up. One that has no addresses here (any more)
    /// is asked for, too. Whether the name has addresses here; where it has not, there is no use in touching it often. Does
    /// not wait.
    pub fn touch(&self, name: &str) -> bool {
        self.touch_families(name, &Family::BOTH)
    }

    /// Like [`Self::touch`], for a client that uses these families alone.
    pub(crate) fn touch_families(&self, name: &str, families: &[Family]) -> bool {
        let name = normalized(name);
        let now = now();
        let mut known = true;
        for &family in families {
            self.shared.launch(&name, family, |cache, launch| {
                let touched = cache.touch(now, &name, family, launch);
                known &= touched.known;
                touched.flight
            });
        }
        known
    }

    /// The addresses the cache knows, fresh or stale, to [`restore`](Self::restore) in another process. Neither pins nor
    /// what does not exist is in it.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.lock().snapshot(now(), wall())
    }

    /// Knows again what a [`snapshot`](Self::snapshot) has, where the cache knows nothing of a name in a family yet. Times
    /// go on by the system's clock: what has expired comes back as stale, if it is not too old for that either. Nothing that is
    /// known leaves for it. Outside of a tokio runtime the cache's timer starts with the next query.
    pub fn restore(&self, snapshot: &Snapshot) {
        let next = {
            let mut cache = self.shared.lock();
            cache.restore(now(), wall(), snapshot);
            cache.next_timeout()
        };
        Alarm::set(&self.shared, next);
    }

    /// What the cache has for a name, without using it.
    pub(crate) fn known(&self, name: &str, family: Family) -> Option<(Arc<[IpAddr]>, Duration)> {
        self.shared.lock().peek(now(), name, family)
    }

    /// Tells of every answer from now on whose addresses are not what was known before.
    pub fn subscribe(&self) -> Changes {
        let changes = self.shared.changes.get_or_init(|| broadcast::channel(changes::MOST_WAITING).0);
        Changes { receiver: changes.subscribe() }
    }

    /// What the cache holds and has done.
    pub fn stats(&self) -> CacheStats {
        let cache = self.shared.lock();
        let counts = cache.counts();
        CacheStats {
            names: cache.len(),
            hits: counts.hits,
            negative_hits: counts.negative_hits,
            stale_hits: counts.stale_hits,
            coalesced: counts.coalesced,
            misses: counts.misses,
            refreshes: counts.refreshes,
            failures: counts.failures,
            evictions: counts.evictions,
            upstream_latency: *lock(&self.shared.latency),
        }
    }

    /// Asks the cache, and launches the flight that comes of it.
    fn step(&self, now: Instant, name: &str, family: Family) -> Step<Waiting> {
        let mut launched = None;
        let step = self.shared.lock().get(now, name, family, || launch(&mut launched));
        if let (Some(sender), Some(flight)) = (launched, step.flight()) {
            self.shared.clone().fly(name, family, flight.serial, sender);
        }
        step
    }
}

/// A lookup whose answer is not known yet.
pub(crate) struct Asked<'a> {
    resolver: &'a CachedResolver,
    name: Cow<'a, str>,
    family: Family,
    step: Step<Waiting>,
}

impl Asked<'_> {
    pub(crate) async fn wait(self) -> Outcome {
        self.resolver.wait(&self.name, self.family, self.step).await
    }
}

impl Resolve for CachedResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(self.lookup(name, family))
    }
}

impl fmt::Debug for CachedResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedResolver").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl<F> Step<F> {
    fn flight(&self) -> Option<&Flight<F>> {
        match self {
            Self::Known(_, flight) => flight.as_ref(),
            Self::Start(flight, _) => Some(flight),
            Self::Join(..) => None,
        }
    }
}

/// Makes the two ends of a flight's outcome.
fn launch(landing: &mut Option<Landing>) -> Waiting {
    let (sender, receiver) = watch::channel(None);
    *landing = Some(sender);
    receiver
}

/// Waits for a flight's outcome; `None` when it was lost.
async fn landing(mut flight: Waiting) -> Option<Outcome> {
    flight.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
}

/// The outcome as this caller sees it: what came without a query, from the hosts file say, stays what it is.
fn told(outcome: Outcome, source: Source) -> Outcome {
    match outcome {
        Ok(answer) if answer.source() == Source::Miss => Ok(answer.with_source(source)),
        Ok(answer) => Ok(answer),
        Err(error) if error.answered_from() == Source::Miss => Err(error.with_source(source)),
        Err(error) => Err(error),
    }
}

impl Shared {
    // The core's steps either finish or panic before they change anything shared with the next one.
    fn lock(&self) -> parking_lot::MutexGuard<'_, Cache<Waiting>> {
        self.cache.lock()
    }

    fn fly(self: Arc<Self>, name: &str, family: Family, serial: u64, sender: Landing) {
        let flying = Flying { shared: self, name: name.into(), family, serial, sender: Some(sender) };
        // Outside of a runtime the flight is lost right here; a hit that would refresh its answer is still a hit.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flying.run());
        }
    }

    /// Starts the flight that `ask` makes, if it does.
    fn launch(
        self: &Arc<Self>,
        name: &str,
        family: Family,
        ask: impl FnOnce(&mut Cache<Waiting>, &mut dyn FnMut() -> Waiting) -> Option<Flight<Waiting>>,
    ) {
        let mut launched = None;
        let flight = ask(&mut self.lock(), &mut || launch(&mut launched));
        if let (Some(sender), Some(flight)) = (launched, flight) {
            self.clone().fly(name, family, flight.serial, sender);
        }
    }

    fn landed(self: &Arc<Self>, flying: &Flying, outcome: Outcome) -> Outcome {
        let (Landed { told, change }, next) = {
            let mut cache = self.lock();
            let landed = cache.landed(now(), &flying.name, flying.family, flying.serial, outcome);
            (landed, cache.next_timeout())
        };
        Alarm::set(self, next);
        if let (Some(changes), Some(change)) = (self.changes.get(), change) {
            // Without a subscriber there is nobody to tell.
            let _ = changes.send(change);
        }
        told
    }
}

impl Timed for Shared {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let refreshes = self.lock().handle_timeout(now);
        for (name, family) in refreshes {
            self.launch(&name, family, |cache, launch| cache.refresh(now, &name, family, launch));
        }
        self.lock().next_timeout()
    }
}

/// A query under way. Dropped before it landed, it clears the way for another one.
struct Flying {
    shared: Arc<Shared>,
    name: Box<str>,
    family: Family,
    serial: u64,
    sender: Option<Landing>,
}

impl Flying {
    async fn run(mut self) {
        let start = now();
        let asked = self.shared.upstream.resolve(&self.name, self.family);
        let mut outcome = tokio::time::timeout(self.shared.query_timeout, asked)
            .await
            .unwrap_or_else(|_| Err(ResolveError::new(ResolveErrorKind::Timeout, &self.name, self.family)));
        if outcome.as_ref().is_ok_and(|answer| answer.addresses().is_empty()) {
            outcome = Err(ResolveError::new(ResolveErrorKind::NoData, &self.name, self.family));
        }
        lock(&self.shared.latency).add(now() - start);
        let outcome = self.shared.clone().landed(&self, outcome);
        if let Some(sender) = self.sender.take() {
            // Nobody may be waiting any more; the cache has the answer all the same.
            let _ = sender.send(Some(outcome));
        }
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        if self.sender.is_none() {
            return;
        }
        let mut cache = self.shared.lock();
        match std::thread::panicking() {
            true => cache.crashed(now(), &self.name, self.family, self.serial),
            false => drop(cache.lost(&self.name, self.family, self.serial)),
        }
    }
}

#[cfg(test)]
#[path = "cached_tests.rs"]
mod tests;
