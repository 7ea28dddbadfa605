//! The DNS cache as tasks see it: a hit at once, otherwise one query that everybody waits for.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::cache::{Cache, Config, Flight, Step};
use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use crate::clock::{Alarm, Instant, Timed, now};

/// How long a query may take; its resolver should have an end of its own.
const QUERY_TIMEOUT: Duration = Duration::from_secs(6);

/// How long a lookup waits for a query, which may run on a runtime that nobody drives.
const PATIENCE: Duration = Duration::from_millis(6_500);

/// The most that any of the cache's times can be set to, so that adding them up stays in range.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How long it is waited for a newer answer than a stale one (RFC 8767 §5).
const STALE_PATIENCE: Duration = Duration::from_millis(1_800);

type Outcome = Result<Answer, ResolveError>;
type Waiting = watch::Receiver<Option<Outcome>>;
type Landing = watch::Sender<Option<Outcome>>;

/// A DNS cache over any [`Resolve`]: record TTLs, one query in flight a name and family, a bound on names.
///
/// Clones share the cache. A query belongs to the cache and not to its first caller, so cancelling a lookup loses
/// nothing. A name in use is asked for again in the last tenth of its TTL, so that its users never wait. A name that
/// fails is left alone for 1 s, then for twice as long each time, up to 30 s (RFC 9520); meanwhile an answer that has
/// expired stands in for up to an hour, marked as [`Source::Stale`] (RFC 8767). What is past all use is removed by a
/// timer.
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
#[derive(Debug, Clone, Default)]
pub struct CachedResolverBuilder {
    config: Config,
}

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

/// How often something took how long, in steps of a factor of two from 1 µs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    counts: [u64; 24],
}

impl Latency {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time within which a share of them, from 0 to 1, was over, rounded up to the step; `None` without any.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        step.map(|step| Duration::from_micros(1 << step))
    }

    fn add(&mut self, time: Duration) {
        let micros = time.as_micros().max(1).next_power_of_two().ilog2() as usize;
        self.counts[micros.min(self.counts.len() - 1)] += 1;
    }
}

struct Shared {
    upstream: Arc<dyn Resolve>,
    cache: Mutex<Cache<Waiting>>,
    alarm: Alarm,
    latency: Mutex<Latency>,
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

    /// Puts the cache on top of `upstream`.
    pub fn build(self, upstream: impl Resolve) -> CachedResolver {
        let cache = Mutex::new(Cache::new(self.config, fastrand::u64(..)));
        let (alarm, latency) = Default::default();
        CachedResolver { shared: Arc::new(Shared { upstream: Arc::new(upstream), cache, alarm, latency }) }
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

    /// Looks up the addresses of `name` in one family. A hit does not wait, nor allocate
    /// unless the name has upper case letters; case does not matter.
    ///
    /// # Errors
    /// What the resolver below said; to everybody who waited for the same query.
    ///
    /// # Panics
    /// On a miss outside of a tokio runtime.
    pub async fn lookup(&self, name: &str, family: Family) -> Outcome {
        let name = lower_case(name);
        // A query is lost when its task's runtime is shut down, or its resolver panics: one more is worth a try.
        for _ in 0..2 {
            let (flight, source, stale) = match self.step(&name, family) {
                Step::Known(outcome, _) => return outcome,
                Step::Start(flight, stale) => (flight, Source::Miss, stale),
                Step::Join(flight, stale) => (flight, Source::Coalesced, stale),
            };
            let patience = if stale.is_some() { STALE_PATIENCE } else { PATIENCE };
            match (tokio::time::timeout(patience, landing(flight.handle)).await, stale) {
                (Ok(Some(outcome)), _) => return told(outcome, source),
                (Ok(None), _) => {}
                (Err(_), Some(stale)) => return Ok(stale),
                (Err(_), None) => {
                    // Forgotten, so that the next lookup starts another one.
                    self.shared.lock().lost(&name, family, flight.serial);
                    return Err(ResolveError::new(ResolveErrorKind::Timeout, &name, family));
                }
            }
        }
        Err(ResolveError::new(ResolveErrorKind::Other, &name, family).with_cause("the resolver gave up its query"))
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
        self.shared.lock().invalidate(&lower_case(name));
    }

    /// Forgets every name, except those that are pinned.
    pub fn flush(&self) {
        self.shared.lock().flush();
    }

    /// Answers `name` with these addresses, without a query, until it is [unpinned](Self::unpin). In a family of which
    /// none is given, the name has no addresses.
    pub fn pin(&self, name: &str, addresses: impl Into<Arc<[IpAddr]>>) {
        self.shared.lock().pin(&lower_case(name), addresses.into());
    }

    /// Ends a [`pin`](Self::pin); whether there was one.
    pub fn unpin(&self, name: &str) -> bool {
        self.shared.lock().unpin(&lower_case(name))
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
            upstream_latency: *unpoisoned(&self.shared.latency),
        }
    }

    /// Asks the cache, and launches the flight that comes of it.
    fn step(&self, name: &str, family: Family) -> Step<Waiting> {
        let mut launched = None;
        let step = self.shared.lock().get(now(), name, family, || launch(&mut launched));
        if let (Some(sender), Some(flight)) = (launched, step.flight()) {
            self.shared.clone().fly(name, family, flight.serial, sender);
        }
        step
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

fn lower_case(name: &str) -> Cow<'_, str> {
    match name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

impl Shared {
    // The core's steps either finish or panic before they change anything shared with the next one.
    fn lock(&self) -> MutexGuard<'_, Cache<Waiting>> {
        unpoisoned(&self.cache)
    }

    fn fly(self: Arc<Self>, name: &str, family: Family, serial: u64, sender: Landing) {
        let flying = Flying { shared: self, name: name.into(), family, serial, sender: Some(sender) };
        // Outside of a runtime the flight is lost right here; a hit that would refresh its answer is still a hit.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(flying.run());
        }
    }

    fn refresh(self: &Arc<Self>, name: &str, family: Family) {
        let mut launched = None;
        let flight = self.lock().refresh(name, family, || launch(&mut launched));
        if let (Some(sender), Some(flight)) = (launched, flight) {
            self.clone().fly(name, family, flight.serial, sender);
        }
    }

    fn landed(self: &Arc<Self>, flying: &Flying, outcome: Outcome) -> Outcome {
        let (told, next) = {
            let mut cache = self.lock();
            let told = cache.landed(now(), &flying.name, flying.family, flying.serial, outcome);
            (told, cache.next_timeout())
        };
        Alarm::set(self, next);
        told
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Timed for Shared {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let refreshes = self.lock().handle_timeout(now);
        for (name, family) in refreshes {
            self.refresh(&name, family);
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
        let mut outcome = tokio::time::timeout(QUERY_TIMEOUT, asked)
            .await
            .unwrap_or_else(|_| Err(ResolveError::new(ResolveErrorKind::Timeout, &self.name, self.family)));
        if outcome.as_ref().is_ok_and(|answer| answer.addresses().is_empty()) {
            outcome = Err(ResolveError::new(ResolveErrorKind::NoData, &self.name, self.family));
        }
        unpoisoned(&self.shared.latency).add(now() - start);
        let outcome = self.shared.clone().landed(&self, outcome);
        if let Some(sender) = self.sender.take() {
            // Nobody may be waiting any more; the cache has the answer all the same.
            let _ = sender.send(Some(outcome));
        }
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        if self.sender.is_some() {
            self.shared.lock().lost(&self.name, self.family, self.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// What the servers do.
    #[derive(Clone, Copy, Default, PartialEq)]
    enum Weather {
        #[default]
        Fine,
        Failing,
        Silent,
    }

    /// Answers after 10 ms with a TTL of 5 s, for "never" never; counts its queries, and panics for "panic".
    #[derive(Clone, Default)]
    struct Slow {
        queries: Arc<AtomicU32>,
        weather: Arc<Mutex<Weather>>,
    }

    impl Slow {
        fn queries(&self) -> u32 {
            self.queries.load(Ordering::SeqCst)
        }

        fn turns(&self, weather: Weather) {
            *self.weather.lock().unwrap() = weather;
        }
    }

    impl Resolve for Slow {
        fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
            Box::pin(async move {
                self.queries.fetch_add(1, Ordering::SeqCst);
                let weather = *self.weather.lock().unwrap();
                let silent = name == "never" || weather == Weather::Silent;
                tokio::time::sleep(if silent { Duration::MAX } else { Duration::from_millis(10) }).await;
                assert_ne!(name, "panic", "as scripted");
                if weather == Weather::Failing {
                    return Err(ResolveError::new(ResolveErrorKind::ServFail, name, family));
                }
                let addresses = if name == "empty" { vec![] } else { vec![[192, 0, 2, 1].into()] };
                Ok(Answer::new(addresses, Duration::from_secs(5), Source::Miss))
            })
        }
    }

    fn cached() -> (CachedResolver, Slow) {
        let slow = Slow::default();
        (CachedResolver::new(slow.clone()), slow)
    }

    async fn sleep(ms: u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    async fn source(cache: &CachedResolver) -> Source {
        cache.lookup("n", Family::V4).await.unwrap().source()
    }

    #[tokio::test(start_paused = true)]
    async fn many_cold_lookups_are_one_query() {
        let (cache, slow) = cached();
        let lookups = (0..1_000).map(|_| cache.lookup("API.test", Family::V4));
        let answers = futures_util::future::join_all(lookups).await;
        let coalesced = answers.iter().filter(|answer| answer.as_ref().unwrap().source() == Source::Coalesced);
        assert_eq!((coalesced.count(), slow.queries()), (999, 1));
        assert_eq!(cache.lookup("api.TEST", Family::V4).await.unwrap().source(), Source::Hit);
        let stats = cache.stats();
        assert_eq!((stats.names, stats.hits, stats.coalesced, stats.misses), (1, 1, 999, 1));
        assert_eq!(stats.upstream_latency.quantile(1.0), Some(Duration::from_micros(16_384)), "10 ms, rounded up");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelling_the_first_caller_loses_nothing() {
        let (cache, slow) = cached();
        let first = tokio::time::timeout(Duration::from_millis(1), cache.lookup("n", Family::V4));
        assert!(first.await.is_err());
        assert_eq!(cache.lookup("n", Family::V4).await.unwrap().source(), Source::Coalesced);
        assert_eq!(slow.queries(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_uses_is_not_refreshed_and_leaves_by_itself() {
        let (cache, slow) = cached();
        source(&cache).await;
        sleep(5_000 + 3_600_000 - 1).await;
        assert_eq!((cache.stats().names, slow.queries()), (1, 1));
        sleep(2).await;
        assert_eq!(cache.stats().names, 0);
        assert_eq!(source(&cache).await, Source::Miss);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_in_steady_use_is_refreshed_once_a_ttl_and_nobody_waits() {
        let (cache, slow) = cached();
        source(&cache).await;
        for _ in 0..500 {
            sleep(100).await;
            assert_eq!(source(&cache).await, Source::Hit);
        }
        assert!((10..=11).contains(&cache.stats().refreshes), "in 50 s: {:?}", cache.stats());
        assert_eq!(u64::from(slow.queries()), cache.stats().refreshes + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_ten_minutes_fails_no_lookup_of_a_warm_name() {
        let (cache, slow) = cached();
        source(&cache).await;
        slow.turns(Weather::Failing);
        sleep(5_000).await;
        let before = slow.queries();
        for _ in 0..6_000 {
            let start = now();
            assert_eq!(source(&cache).await, Source::Stale);
            assert!(now() - start <= Duration::from_millis(10), "and only the first one waits");
            sleep(100).await;
        }
        let steps = 5 + 600 / 30;
        assert!(slow.queries() - before <= steps, "{} queries", slow.queries() - before);
        slow.turns(Weather::Fine);
        sleep(30_000).await;
        source(&cache).await;
        sleep(20).await;
        assert_eq!(source(&cache).await, Source::Hit, "it comes back by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_answer_is_waited_for_only_so_long_when_a_stale_one_is_at_hand() {
        let (cache, slow) = cached();
        source(&cache).await;
        slow.turns(Weather::Silent);
        sleep(5_000).await;
        let start = now();
        assert_eq!((source(&cache).await, now() - start), (Source::Stale, STALE_PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cold_name_that_fails_is_left_alone_for_a_second() {
        let (cache, slow) = cached();
        slow.turns(Weather::Failing);
        for queries in [1, 1, 1, 2] {
            let error = cache.lookup("n", Family::V4).await.unwrap_err();
            assert_eq!((error.kind(), slow.queries()), (ResolveErrorKind::ServFail, queries));
            sleep(400).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn times_without_end_are_years() {
        let endless = Duration::MAX;
        let builder = CachedResolver::builder().stale(endless).ttl_ceiling(endless).ttl_floor(endless);
        let fixed = super::super::FixedResolver::new().with("n", [[192, 0, 2, 1].into()]).with_ttl(endless);
        let cache = builder.negative_ceiling(endless).build(fixed);
        source(&cache).await;
        assert_eq!(cache.lookup("n", Family::V4).await.unwrap().ttl(), LONGEST);
        let error = cache.lookup("n", Family::V6).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::NoData);
    }

    #[tokio::test(start_paused = true)]
    async fn names_can_be_pinned_prefetched_and_forgotten() {
        let (cache, slow) = cached();
        cache.pin("Pinned.test", [[192, 0, 2, 7].into()]);
        let pinned = cache.lookup("pinned.TEST", Family::V4).await.unwrap();
        assert_eq!((pinned.source(), slow.queries()), (Source::Pinned, 0));
        assert!(cache.unpin("pinned.test"));
        cache.prefetch(["n", "m"]).await;
        assert_eq!((slow.queries(), source(&cache).await), (4, Source::Hit));
        cache.invalidate("N");
        assert_eq!(source(&cache).await, Source::Miss);
        cache.flush();
        assert_eq!(cache.stats().names, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_addresses_is_no_data() {
        let (cache, _) = cached();
        for source in [Source::Miss, Source::Hit] {
            let error = cache.lookup("empty", Family::V4).await.unwrap_err();
            assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NoData, source));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_never_ends_is_given_up() {
        let (cache, slow) = cached();
        for queries in 1..3 {
            let start = now();
            let error = cache.lookup("never", Family::V4).await.unwrap_err();
            assert_eq!((error.kind(), slow.queries()), (ResolveErrorKind::Timeout, queries));
            assert_eq!((now() - start, cache.stats().failures), (QUERY_TIMEOUT, u64::from(queries)));
            sleep(1_000).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_panics_poisons_nothing() {
        let (cache, _) = cached();
        let error = cache.lookup("panic", Family::V4).await.unwrap_err();
        assert_eq!(error.kind(), ResolveErrorKind::Other);
        assert!(cache.lookup("n", Family::V4).await.is_ok());
    }

    #[test]
    fn a_hit_needs_no_runtime() {
        let (cache, _) = cached();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(cache.lookup("n", Family::V4)).unwrap();
        drop(runtime);
        let hit = futures_util::FutureExt::now_or_never(cache.lookup("n", Family::V4));
        assert_eq!(hit.unwrap().unwrap().source(), Source::Hit);
    }

    #[test]
    fn a_lookup_survives_the_runtime_that_began_it() {
        let (cache, slow) = cached();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let first = runtime();
        let begun = first.block_on(async {
            tokio::time::timeout(Duration::from_millis(1), cache.lookup("n", Family::V4)).await.is_err()
        });
        assert!(begun);
        drop(first);
        runtime().block_on(cache.lookup("n", Family::V4)).unwrap();
        assert_eq!(slow.queries(), 2);
    }
}
