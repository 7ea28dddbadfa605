//! The DNS cache as tasks see it: a hit at once, otherwise one query that everybody waits for.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::cache::{Cache, Config, Step};
use super::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use crate::clock::{Alarm, Instant, Timed, now};

/// How long a lookup waits for a query, and a query for its resolver, which should have an end of its own. A query may
/// also run on a runtime that nobody drives.
const PATIENCE: Duration = Duration::from_secs(6);

type Outcome = Result<Answer, ResolveError>;
type Flight = watch::Receiver<Option<Outcome>>;

/// A DNS cache over any [`Resolve`]: record TTLs, one query in flight a name and family, a bound on names.
///
/// Clones share the cache. A query belongs to the cache and not to its first caller, so cancelling a lookup loses
/// nothing. Answers are removed when they expire, by a timer.
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

/// Sets a [`CachedResolver`] up.
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
    /// Lookups answered from the cache, "does not exist" among them.
    pub hits: u64,
    /// Lookups that waited for a query somebody else had started.
    pub coalesced: u64,
    /// Lookups that started a query.
    pub misses: u64,
}

struct Shared {
    upstream: Arc<dyn Resolve>,
    cache: Mutex<Cache<Flight>>,
    alarm: Alarm,
}

impl CachedResolverBuilder {
    /// How many names are kept; the least recently used leave. 1,024 by default; 0 keeps none.
    pub fn max_names(mut self, names: usize) -> Self {
        self.config.max_names = names;
        self
    }

    /// Puts the cache on top of `upstream`.
    pub fn build(self, upstream: impl Resolve) -> CachedResolver {
        let cache = Mutex::new(Cache::new(self.config));
        CachedResolver { shared: Arc::new(Shared { upstream: Arc::new(upstream), cache, alarm: Alarm::default() }) }
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
            let (flight, source) = match self.step(&name, family) {
                Step::Known(outcome) => return outcome,
                Step::Start(flight) => (flight, Source::Miss),
                Step::Join(flight) => (flight, Source::Coalesced),
            };
            match tokio::time::timeout(PATIENCE, landing(flight)).await {
                Ok(Some(outcome)) => return told(outcome, source),
                Ok(None) => {}
                Err(_) => return Err(self.overdue(&name, family)),
            }
        }
        Err(ResolveError::new(ResolveErrorKind::Other, &name, family).with_cause("the resolver gave up its query"))
    }

    /// Forgets a query that never ends, so that the next lookup starts another one.
    fn overdue(&self, name: &str, family: Family) -> ResolveError {
        self.shared.lock().lost(name, family);
        ResolveError::new(ResolveErrorKind::Timeout, name, family)
    }

    /// What the cache holds and has done.
    pub fn stats(&self) -> CacheStats {
        let cache = self.shared.lock();
        let counts = cache.counts();
        CacheStats { names: cache.len(), hits: counts.hits, coalesced: counts.coalesced, misses: counts.misses }
    }

    fn step(&self, name: &str, family: Family) -> Step<Flight> {
        let mut sender = None;
        let step = self.shared.lock().get(now(), name, family, || {
            let (launched, flight) = watch::channel(None);
            sender = Some(launched);
            flight
        });
        if let Some(sender) = sender {
            let flying = Flying { shared: self.shared.clone(), name: name.into(), family, sender: Some(sender) };
            tokio::spawn(flying.run());
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

/// Waits for a flight's outcome; `None` when it was lost.
async fn landing(mut flight: Flight) -> Option<Outcome> {
    flight.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone())
}

/// The outcome as this caller sees it: a fixed table's answer stays one.
fn told(outcome: Outcome, source: Source) -> Outcome {
    match outcome {
        Ok(answer) if answer.source() == Source::Miss => Ok(answer.with_source(source)),
        Ok(answer) => Ok(answer),
        Err(error) => Err(error.with_source(source)),
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
    fn lock(&self) -> MutexGuard<'_, Cache<Flight>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn landed(self: &Arc<Self>, name: &str, family: Family, outcome: &Outcome) {
        let next = {
            let mut cache = self.lock();
            cache.landed(now(), name, family, outcome);
            cache.next_timeout()
        };
        Alarm::set(self, next);
    }
}

impl Timed for Shared {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut cache = self.lock();
        cache.handle_timeout(now);
        cache.next_timeout()
    }
}

/// A query under way. Dropped before it landed, it clears the way for another one.
struct Flying {
    shared: Arc<Shared>,
    name: Box<str>,
    family: Family,
    sender: Option<watch::Sender<Option<Outcome>>>,
}

impl Flying {
    async fn run(mut self) {
        let asked = self.shared.upstream.resolve(&self.name, self.family);
        let mut outcome = tokio::time::timeout(PATIENCE, asked)
            .await
            .unwrap_or_else(|_| Err(ResolveError::new(ResolveErrorKind::Timeout, &self.name, self.family)));
        if outcome.as_ref().is_ok_and(|answer| answer.addresses().is_empty()) {
            outcome = Err(ResolveError::new(ResolveErrorKind::NoData, &self.name, self.family));
        }
        self.shared.landed(&self.name, self.family, &outcome);
        if let Some(sender) = self.sender.take() {
            // Nobody may be waiting any more; the cache has the answer all the same.
            let _ = sender.send(Some(outcome));
        }
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        if self.sender.is_some() {
            self.shared.lock().lost(&self.name, self.family);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Answers after 10 ms, for "never" never; counts its queries, and panics for "panic".
    #[derive(Clone, Default)]
    struct Slow(Arc<AtomicU32>);

    impl Slow {
        fn queries(&self) -> u32 {
            self.0.load(Ordering::SeqCst)
        }
    }

    impl Resolve for Slow {
        fn resolve<'a>(&'a self, name: &'a str, _: Family) -> Resolving<'a> {
            Box::pin(async move {
                self.0.fetch_add(1, Ordering::SeqCst);
                let delay = if name == "never" { Duration::MAX } else { Duration::from_millis(10) };
                tokio::time::sleep(delay).await;
                assert_ne!(name, "panic", "as scripted");
                let addresses = if name == "empty" { vec![] } else { vec![[192, 0, 2, 1].into()] };
                Ok(Answer::new(addresses, Duration::from_secs(5), Source::Miss))
            })
        }
    }

    fn cached() -> (CachedResolver, Slow) {
        let slow = Slow::default();
        (CachedResolver::new(slow.clone()), slow)
    }

    #[tokio::test(start_paused = true)]
    async fn many_cold_lookups_are_one_query() {
        let (cache, slow) = cached();
        let lookups = (0..1_000).map(|_| cache.lookup("API.test", Family::V4));
        let answers = futures_util::future::join_all(lookups).await;
        let coalesced = answers.iter().filter(|answer| answer.as_ref().unwrap().source() == Source::Coalesced);
        assert_eq!((coalesced.count(), slow.queries()), (999, 1));
        assert_eq!(cache.lookup("api.TEST", Family::V4).await.unwrap().source(), Source::Hit);
        assert_eq!(cache.stats(), CacheStats { names: 1, hits: 1, coalesced: 999, misses: 1 });
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
    async fn an_answer_leaves_by_itself_when_it_expires() {
        let (cache, slow) = cached();
        cache.lookup("n", Family::V4).await.unwrap();
        tokio::time::sleep(Duration::from_millis(4_999)).await;
        assert_eq!(cache.stats().names, 1);
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(cache.stats().names, 0);
        cache.lookup("n", Family::V4).await.unwrap();
        assert_eq!(slow.queries(), 2);
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
            let error = cache.lookup("never", Family::V4).await.unwrap_err();
            assert_eq!((error.kind(), slow.queries()), (ResolveErrorKind::Timeout, queries));
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
