//! The cache's driver in paused time, over a resolver that does as it is told.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::builder::{MAX_DURATION, QUERY_TIMEOUT};
use super::lookup::STALE_ANSWER_TIMEOUT;
use super::*;
use crate::dns::{ResolveErrorKind, Source};

/// What the servers do.
#[derive(Clone, Copy, Default, PartialEq)]
enum Weather {
    #[default]
    Fine,
    Failing,
    Unconfigured,
    Silent,
    Elsewhere,
    Panicking,
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
            let silent = name == "never" || weather == Weather::Silent || (name == "half" && family == Family::V6);
            tokio::time::sleep(if silent { Duration::MAX } else { Duration::from_millis(10) }).await;
            assert!(name != "panic" && weather != Weather::Panicking, "as scripted");
            if weather == Weather::Failing {
                return Err(ResolveError::new(ResolveErrorKind::ServFail, name, family));
            }
            if weather == Weather::Unconfigured {
                return Err(ResolveError::new(ResolveErrorKind::Config, name, family));
            }
            if name == "only4" && family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let last = if weather == Weather::Elsewhere { 2 } else { 1 };
            let addresses = if name == "empty" { vec![] } else { vec![[192, 0, 2, last].into()] };
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
    assert_eq!((source(&cache).await, now() - start), (Source::Stale, STALE_ANSWER_TIMEOUT));
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
async fn a_failure_of_this_machine_does_not_outlive_its_cause() {
    let (cache, slow) = cached();
    slow.turns(Weather::Unconfigured);
    for _ in 0..100 {
        assert_eq!(cache.lookup("n", Family::V4).await.unwrap_err().kind(), ResolveErrorKind::Config);
        sleep(50).await;
    }
    slow.turns(Weather::Fine);
    sleep(100).await;
    assert_eq!(source(&cache).await, Source::Miss, "ten seconds of failures are over within 100 ms");
}

#[tokio::test(start_paused = true)]
async fn times_without_end_are_years() {
    let endless = Duration::MAX;
    let builder = CachedResolver::builder().stale(endless).ttl_ceiling(endless).ttl_floor(endless);
    let fixed = crate::dns::FixedResolver::new().with("n", [[192, 0, 2, 1].into()]).with_ttl(endless);
    let cache = builder.negative_ceiling(endless).build(fixed);
    source(&cache).await;
    assert_eq!(cache.lookup("n", Family::V4).await.unwrap().ttl(), MAX_DURATION);
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

#[tokio::test(start_paused = true)]
async fn a_query_that_may_take_longer_is_waited_for_as_long() {
    let slow = Slow::default();
    let cache = CachedResolver::builder().query_timeout(Duration::from_secs(60)).build(slow);
    let start = now();
    let error = cache.lookup("never", Family::V4).await.unwrap_err();
    assert_eq!((error.kind(), now() - start), (ResolveErrorKind::Timeout, Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_touched_follows_dns_without_a_lookup() {
    let (cache, slow) = cached();
    source(&cache).await;
    for _ in 0..500 {
        sleep(100).await;
        cache.touch("N");
    }
    assert!((10..=11).contains(&cache.stats().refreshes), "in 50 s: {:?}", cache.stats());
    assert_eq!((slow.queries() as u64, cache.stats().hits), (cache.stats().refreshes + 1, 0));
}

#[tokio::test(start_paused = true)]
async fn subscribers_are_told_what_changed() {
    let (cache, slow) = cached();
    let mut changes = cache.subscribe();
    source(&cache).await;
    let change = changes.next().await.unwrap();
    assert_eq!((&*change.name, change.family, change.addresses.len()), ("n", Family::V4, 1));
    sleep(6_000).await;
    source(&cache).await;
    slow.turns(Weather::Elsewhere);
    sleep(6_000).await;
    source(&cache).await;
    let moved = changes.next().await.unwrap();
    assert_eq!((moved.addresses[0].to_string(), moved.ttl), ("192.0.2.2".into(), Duration::from_secs(5)));
    assert_eq!((change.serial, moved.serial), (1, 2));
    for number in 0..=changes::MAX_WAITING_CHANGES {
        let _ = cache.lookup(&number.to_string(), Family::V4).await;
    }
    assert_eq!(changes.next().await, Err(crate::dns::ChangesError::Missed(1)));
    assert_eq!(changes.next().await.unwrap().name, "1".into());
    drop(cache);
    let end = loop {
        match changes.next().await {
            Ok(_) => {}
            Err(end) => break end,
        }
    };
    assert_eq!(end, crate::dns::ChangesError::Closed);
}

#[tokio::test(start_paused = true)]
async fn what_a_snapshot_has_needs_no_query() {
    let (old, _) = cached();
    source(&old).await;
    let (new, slow) = cached();
    new.restore(&old.snapshot());
    assert_eq!((source(&new).await, slow.queries()), (Source::Hit, 0));
    sleep(5_000).await;
    assert_eq!(
        (source(&new).await, slow.queries()),
        (Source::Hit, 1),
        "in use, it was asked for again ahead of its expiry"
    );
    let (idle, _) = cached();
    idle.restore(&old.snapshot());
    sleep(5_000 + 3_600_000).await;
    assert_eq!(idle.stats().names, 0, "it leaves by itself");
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn a_snapshot_can_be_written_down() {
    let (old, _) = cached();
    source(&old).await;
    let snapshot = old.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.contains(r#""name":"n","addresses":["192.0.2.1"],"expires":"#), "{text}");
    assert_eq!(serde_json::from_str::<crate::dns::Snapshot>(&text).unwrap(), snapshot);
}

#[tokio::test(start_paused = true)]
async fn a_slow_family_holds_the_other_up_for_50_ms_only() {
    let (cache, slow) = cached();
    let start = now();
    assert_eq!(cache.lookup_both("half").await.unwrap().len(), 1);
    assert_eq!(now() - start, Duration::from_millis(10 + 50));
    assert_eq!(cache.lookup_both("n").await.unwrap().len(), 2);
    assert_eq!(cache.lookup_both("empty").await.unwrap_err().kind(), ResolveErrorKind::NoData);
    slow.turns(Weather::Failing);
    assert_eq!(cache.lookup_both("fails").await.unwrap_err().kind(), ResolveErrorKind::ServFail);
}

#[tokio::test(start_paused = true)]
async fn a_family_without_addresses_holds_up_no_dial_while_the_other_is_in_use() {
    let (cache, slow) = cached();
    assert_eq!(cache.lookup_both("only4").await.unwrap().len(), 1);
    // Without an SOA record that is known for a second; IPv4 for five.
    for queries in [3, 4, 5] {
        sleep(1_200).await;
        let start = now();
        assert_eq!(cache.lookup_both("only4").await.unwrap().len(), 1);
        assert_eq!(now() - start, Duration::ZERO, "nothing is waited for");
        sleep(20).await;
        assert_eq!(slow.queries(), queries, "and it is asked for again in the background");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_stands_in_for_a_resolver_that_panics() {
    let (cache, slow) = cached();
    source(&cache).await;
    slow.turns(Weather::Panicking);
    sleep(5_000).await;
    for queries in [2, 2, 2] {
        assert_eq!((source(&cache).await, slow.queries()), (Source::Stale, queries), "and it backs off");
    }
}

#[test]
fn a_refresh_on_a_runtime_that_nobody_drives_is_replaced() {
    let (cache, slow) = cached();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (parked, driven) = (runtime(), runtime());
    parked.block_on(async {
        source(&cache).await;
        sleep(4_990).await;
        // The last tenth of its TTL: a refresh is begun here, and never goes on.
        source(&cache).await;
    });
    driven.block_on(async {
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(source(&cache).await, Source::Miss);
    });
    assert!(slow.queries() >= 2);
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

#[tokio::test(start_paused = true)]
async fn an_international_name_is_the_same_in_unicode_and_in_ascii() {
    let (cache, slow) = cached();
    cache.pin("Bücher.test", [[192, 0, 2, 7].into()]);
    for name in ["xn--bcher-kva.test", "bücher.test", "BÜCHER.test"] {
        let answer = cache.lookup(name, Family::V4).await.unwrap();
        assert_eq!(answer.addresses().to_vec(), [IpAddr::from([192, 0, 2, 7])], "{name}");
    }
    assert_eq!(slow.queries(), 0);
    assert!(cache.unpin("bücher.test"));
}
