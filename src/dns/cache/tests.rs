//! The cache with its driver in paused time, over a scripted resolver.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::state::Config;
use super::*;
use crate::dns::answer::MAX_WAITING_CHANGES;
use crate::dns::cache::{MAX_DURATION, STALE_ANSWER_TIMEOUT};
use crate::dns::{ResolveErrorKind, Source};

/// The behaviour of the servers.
#[derive(Clone, Copy, Default, PartialEq)]
enum Servers {
    #[default]
    Answering,
    Failing,
    /// This machine has no configuration.
    Unconfigured,
    Silent,
    /// The name has another address.
    Moved,
    Panicking,
}

/// Answers after 10 ms with a TTL of 5 s, and counts its queries. Never answers for the name `never`, and panics for `panic`.
#[derive(Clone, Default)]
struct ScriptedResolver {
    queries: Arc<AtomicU32>,
    servers: Arc<Mutex<Servers>>,
}

impl ScriptedResolver {
    fn queries(&self) -> u32 {
        self.queries.load(Ordering::SeqCst)
    }

    fn set_servers(&self, servers: Servers) {
        *self.servers.lock().unwrap() = servers;
    }
}

impl Resolver for ScriptedResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            self.queries.fetch_add(1, Ordering::SeqCst);
            let servers = *self.servers.lock().unwrap();
            let is_silent = name == "never" || servers == Servers::Silent || (name == "half" && family == Family::V6);
            tokio::time::sleep(if is_silent { Duration::MAX } else { Duration::from_millis(10) }).await;
            assert!(name != "panic" && servers != Servers::Panicking, "as scripted");
            if servers == Servers::Failing {
                return Err(ResolveError::new(ResolveErrorKind::ServFail, name, family));
            }
            if servers == Servers::Unconfigured {
                return Err(ResolveError::new(ResolveErrorKind::Config, name, family));
            }
            if name == "only4" && family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let last = if servers == Servers::Moved { 2 } else { 1 };
            let address = match family {
                Family::V4 => [192, 0, 2, last].into(),
                Family::V6 => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)].into(),
            };
            let addresses = if name == "empty" { vec![] } else { vec![address] };
            Ok(Answer::new(addresses, Duration::from_secs(5), Source::Miss))
        })
    }
}

fn cached() -> (CachedResolver, ScriptedResolver) {
    let upstream = ScriptedResolver::default();
    (CachedResolver::new(upstream.clone()), upstream)
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn source(cache: &CachedResolver) -> Source {
    cache.lookup("n", Family::V4).await.unwrap().source()
}

#[tokio::test(start_paused = true)]
async fn many_cold_lookups_are_one_query() {
    let (cache, upstream) = cached();
    let lookups = (0..1_000).map(|_| cache.lookup("API.test", Family::V4));
    let answers = futures_util::future::join_all(lookups).await;
    let coalesced = answers.iter().filter(|answer| answer.as_ref().unwrap().source() == Source::Coalesced);
    assert_eq!((coalesced.count(), upstream.queries()), (999, 1));
    assert_eq!(cache.lookup("api.TEST", Family::V4).await.unwrap().source(), Source::Hit);
    let stats = cache.stats();
    assert_eq!((stats.names, stats.hits, stats.coalesced, stats.misses), (1, 1, 999, 1));
    assert_eq!(stats.upstream_latency.quantile(1.0), Some(Duration::from_micros(16_384)), "10 ms, rounded up");
}

#[tokio::test(start_paused = true)]
async fn cancelling_the_first_lookup_loses_nothing() {
    let (cache, upstream) = cached();
    let first = tokio::time::timeout(Duration::from_millis(1), cache.lookup("n", Family::V4));
    assert!(first.await.is_err());
    assert_eq!(cache.lookup("n", Family::V4).await.unwrap().source(), Source::Coalesced);
    assert_eq!(upstream.queries(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unused_answer_is_not_refreshed_and_is_removed_by_a_timer() {
    let (cache, upstream) = cached();
    source(&cache).await;
    sleep(5_000 + 3_600_000 - 1).await;
    assert_eq!((cache.stats().names, upstream.queries()), (1, 1));
    sleep(2).await;
    assert_eq!(cache.stats().names, 0);
    assert_eq!(source(&cache).await, Source::Miss);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_steady_use_is_refreshed_once_a_ttl_and_no_lookup_waits() {
    let (cache, upstream) = cached();
    source(&cache).await;
    for _ in 0..500 {
        sleep(100).await;
        assert_eq!(source(&cache).await, Source::Hit);
    }
    assert!((10..=11).contains(&cache.stats().refreshes), "in 50 s: {:?}", cache.stats());
    assert_eq!(u64::from(upstream.queries()), cache.stats().refreshes + 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_fails_no_lookup_of_a_warm_name() {
    let (cache, upstream) = cached();
    source(&cache).await;
    upstream.set_servers(Servers::Failing);
    sleep(5_000).await;
    let before = upstream.queries();
    for _ in 0..6_000 {
        let start = now();
        assert_eq!(source(&cache).await, Source::Stale);
        assert!(now() - start <= Duration::from_millis(10), "and only the first one waits");
        sleep(100).await;
    }
    let steps = 5 + 600 / 30;
    assert!(upstream.queries() - before <= steps, "{} queries", upstream.queries() - before);
    upstream.set_servers(Servers::Answering);
    sleep(30_000).await;
    source(&cache).await;
    sleep(20).await;
    assert_eq!(source(&cache).await, Source::Hit, "the cache recovers by itself");
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_when_no_fresh_one_comes_in_time() {
    let (cache, upstream) = cached();
    source(&cache).await;
    upstream.set_servers(Servers::Silent);
    sleep(5_000).await;
    let start = now();
    assert_eq!((source(&cache).await, now() - start), (Source::Stale, STALE_ANSWER_TIMEOUT));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_that_fails_is_not_queried_for_a_second() {
    let (cache, upstream) = cached();
    upstream.set_servers(Servers::Failing);
    for queries in [1, 1, 1, 2] {
        let error = cache.lookup("n", Family::V4).await.unwrap_err();
        assert_eq!((error.kind(), upstream.queries()), (ResolveErrorKind::ServFail, queries));
        sleep(400).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_this_machine_does_not_outlive_its_cause() {
    let (cache, upstream) = cached();
    upstream.set_servers(Servers::Unconfigured);
    for _ in 0..100 {
        assert_eq!(cache.lookup("n", Family::V4).await.unwrap_err().kind(), ResolveErrorKind::Config);
        sleep(50).await;
    }
    upstream.set_servers(Servers::Answering);
    sleep(100).await;
    assert_eq!(source(&cache).await, Source::Miss, "ten seconds of failures are over within 100 ms");
}

#[tokio::test(start_paused = true)]
async fn times_are_limited_to_a_year() {
    let unlimited = Duration::MAX;
    let builder = CachedResolver::builder().stale(unlimited).ttl_ceiling(unlimited).ttl_floor(unlimited);
    let fixed = crate::dns::FixedResolver::new().with("n", [[192, 0, 2, 1].into()]).with_ttl(unlimited);
    let cache = builder.negative_ceiling(unlimited).build(fixed);
    source(&cache).await;
    assert_eq!(cache.lookup("n", Family::V4).await.unwrap().ttl(), MAX_DURATION);
    let error = cache.lookup("n", Family::V6).await.unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::NoData);
}

#[tokio::test(start_paused = true)]
async fn names_can_be_pinned_prefetched_and_invalidated() {
    let (cache, upstream) = cached();
    cache.pin("Pinned.test", [[192, 0, 2, 7].into()]);
    let pinned = cache.lookup("pinned.TEST", Family::V4).await.unwrap();
    assert_eq!((pinned.source(), upstream.queries()), (Source::Pinned, 0));
    assert!(cache.unpin("pinned.test"));
    cache.prefetch(["n", "m"]).await;
    assert_eq!((upstream.queries(), source(&cache).await), (4, Source::Hit));
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
async fn a_query_without_an_end_times_out() {
    let (cache, upstream) = cached();
    for queries in 1..3 {
        let start = now();
        let error = cache.lookup("never", Family::V4).await.unwrap_err();
        assert_eq!((error.kind(), upstream.queries()), (ResolveErrorKind::Timeout, queries));
        assert_eq!((now() - start, cache.stats().failures), (Config::default().query_timeout, u64::from(queries)));
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
async fn a_lookup_waits_for_a_longer_query_timeout() {
    let upstream = ScriptedResolver::default();
    let cache = CachedResolver::builder().query_timeout(Duration::from_secs(60)).build(upstream);
    let start = now();
    let error = cache.lookup("never", Family::V4).await.unwrap_err();
    assert_eq!((error.kind(), now() - start), (ResolveErrorKind::Timeout, Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn a_touched_name_is_refreshed_without_a_lookup() {
    let (cache, upstream) = cached();
    source(&cache).await;
    for _ in 0..500 {
        sleep(100).await;
        cache.touch("N");
    }
    assert!((10..=11).contains(&cache.stats().refreshes), "in 50 s: {:?}", cache.stats());
    assert_eq!((upstream.queries() as u64, cache.stats().hits), (cache.stats().refreshes + 1, 0));
}

#[tokio::test(start_paused = true)]
async fn subscribers_receive_each_change() {
    let (cache, upstream) = cached();
    let mut changes = cache.subscribe();
    source(&cache).await;
    let change = changes.next().await.unwrap();
    assert_eq!((&*change.name, change.family, change.addresses.len()), ("n", Family::V4, 1));
    sleep(6_000).await;
    source(&cache).await;
    upstream.set_servers(Servers::Moved);
    sleep(6_000).await;
    source(&cache).await;
    let moved = changes.next().await.unwrap();
    assert_eq!((moved.addresses[0].to_string(), moved.ttl), ("192.0.2.2".into(), Duration::from_secs(5)));
    assert_eq!((change.serial, moved.serial), (1, 2));
    for number in 0..=MAX_WAITING_CHANGES {
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
async fn restored_names_need_no_query() {
    let (old, _) = cached();
    source(&old).await;
    let (new, upstream) = cached();
    new.restore(&old.snapshot());
    assert_eq!((source(&new).await, upstream.queries()), (Source::Hit, 0));
    sleep(5_000).await;
    assert_eq!(
        (source(&new).await, upstream.queries()),
        (Source::Hit, 1),
        "it is in use, so it was refreshed ahead of its expiry"
    );
    let (idle, _) = cached();
    idle.restore(&old.snapshot());
    sleep(5_000 + 3_600_000).await;
    assert_eq!(idle.stats().names, 0, "a timer removes it");
}

#[cfg(feature = "serde")]
#[tokio::test(start_paused = true)]
async fn a_snapshot_can_be_serialized() {
    let (old, _) = cached();
    source(&old).await;
    let snapshot = old.snapshot();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.contains(r#""name":"n","addresses":["192.0.2.1"],"expires":"#), "{text}");
    assert_eq!(serde_json::from_str::<crate::dns::Snapshot>(&text).unwrap(), snapshot);
}

#[tokio::test(start_paused = true)]
async fn a_slow_family_delays_the_other_by_50_ms() {
    let (cache, upstream) = cached();
    let start = now();
    assert_eq!(cache.lookup_both("half").await.unwrap().len(), 1);
    assert_eq!(now() - start, Duration::from_millis(10 + 50));
    assert_eq!(cache.lookup_both("n").await.unwrap().len(), 2);
    assert_eq!(cache.lookup_both("empty").await.unwrap_err().kind(), ResolveErrorKind::NoData);
    upstream.set_servers(Servers::Failing);
    assert_eq!(cache.lookup_both("fails").await.unwrap_err().kind(), ResolveErrorKind::ServFail);
}

#[tokio::test(start_paused = true)]
async fn an_expired_no_data_delays_no_lookup_while_the_other_family_is_in_use() {
    let (cache, upstream) = cached();
    assert_eq!(cache.lookup_both("only4").await.unwrap().len(), 1);
    // Without an SOA record, "no addresses" is fresh for a second; the IPv4 addresses are for five.
    for queries in [3, 4, 5] {
        sleep(1_200).await;
        let start = now();
        assert_eq!(cache.lookup_both("only4").await.unwrap().len(), 1);
        assert_eq!(now() - start, Duration::ZERO, "no lookup waits");
        sleep(20).await;
        assert_eq!(upstream.queries(), queries, "and the query runs in the background");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_served_when_the_resolver_panics() {
    let (cache, upstream) = cached();
    source(&cache).await;
    upstream.set_servers(Servers::Panicking);
    sleep(5_000).await;
    for queries in [2, 2, 2] {
        assert_eq!((source(&cache).await, upstream.queries()), (Source::Stale, queries), "and it backs off");
    }
}

#[test]
fn a_refresh_on_a_runtime_that_is_not_driven_is_replaced() {
    let (cache, upstream) = cached();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (parked, driven) = (runtime(), runtime());
    parked.block_on(async {
        source(&cache).await;
        sleep(4_990).await;
        // In the last tenth of the TTL. This starts a refresh, which never goes on.
        source(&cache).await;
    });
    driven.block_on(async {
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(source(&cache).await, Source::Miss);
    });
    assert!(upstream.queries() >= 2);
}

#[test]
fn a_lookup_waits_a_moment_for_the_query_of_a_runtime_that_is_not_driven() {
    let (cache, upstream) = cached();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (parked, driven) = (runtime(), runtime());
    parked.block_on(async { assert!(futures_util::poll!(std::pin::pin!(cache.lookup("n", Family::V4))).is_pending()) });
    driven.block_on(async {
        let start = now();
        assert_eq!(source(&cache).await, Source::Miss);
        assert_eq!(now() - start, Duration::from_millis(310), "of which the query took ten");
        assert_eq!(source(&cache).await, Source::Hit);
    });
    assert_eq!(upstream.queries(), 1);
}

#[test]
fn of_two_runtimes_that_ask_beside_each_other_the_first_answer_is_kept() {
    let (cache, upstream) = cached();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (slow, driven) = (runtime(), runtime());
    let mut waiting = Box::pin(cache.lookup("n", Family::V4));
    slow.block_on(async {
        assert!(futures_util::poll!(&mut waiting).is_pending());
        tokio::task::yield_now().await;
    });
    let [first, second] = [(), ()].map(|()| driven.block_on(source(&cache)));
    assert_eq!((first, second, upstream.queries()), (Source::Miss, Source::Hit, 2));
    assert!(slow.block_on(waiting).is_ok(), "its own query goes on");
    assert_eq!((driven.block_on(source(&cache)), upstream.queries()), (Source::Hit, 2));
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
fn a_lookup_survives_the_runtime_of_its_query() {
    let (cache, upstream) = cached();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime();
    let begun = first.block_on(async {
        tokio::time::timeout(Duration::from_millis(1), cache.lookup("n", Family::V4)).await.is_err()
    });
    assert!(begun);
    drop(first);
    runtime().block_on(cache.lookup("n", Family::V4)).unwrap();
    assert_eq!(upstream.queries(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_international_name_is_the_same_in_unicode_and_in_ascii() {
    let (cache, upstream) = cached();
    cache.pin("Bücher.test", [[192, 0, 2, 7].into()]);
    for name in ["xn--bcher-kva.test", "bücher.test", "BÜCHER.test"] {
        let answer = cache.lookup(name, Family::V4).await.unwrap();
        assert_eq!(answer.addresses().to_vec(), [IpAddr::from([192, 0, 2, 7])], "{name}");
    }
    assert_eq!(upstream.queries(), 0);
    assert!(cache.unpin("bücher.test"));
}

#[tokio::test(start_paused = true)]
async fn the_error_for_both_families_is_a_failure_rather_than_a_negative_answer() {
    let (cache, upstream) = cached();
    cache.lookup("only4", Family::V6).await.unwrap_err();
    upstream.set_servers(Servers::Failing);
    let error = cache.lookup_both("only4").await.unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::ServFail, "no addresses of IPv6 at once, a failure later");
    cache.invalidate("only4");
    cache.lookup("only4", Family::V4).await.unwrap_err();
    upstream.set_servers(Servers::Answering);
    let error = cache.lookup_both("only4").await.unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::ServFail, "a failure at once, no addresses of IPv6 later");
}

#[tokio::test(start_paused = true)]
async fn another_resolver_is_asked_about_all_names() {
    let (cache, old) = cached();
    source(&cache).await;
    old.set_servers(Servers::Failing);
    cache.lookup("m", Family::V4).await.unwrap_err();
    let new = ScriptedResolver::default();
    cache.set_resolver(new.clone());
    assert_eq!((source(&cache).await, new.queries()), (Source::Miss, 1));
    assert_eq!(cache.lookup("m", Family::V4).await.unwrap().source(), Source::Miss);
    assert_eq!((old.queries(), new.queries()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_waits_for_a_resolver_that_is_replaced_gets_the_answer_of_the_new_one() {
    let (cache, old) = cached();
    let new = ScriptedResolver::default();
    new.set_servers(Servers::Moved);
    let waiting = async { tokio::join!(cache.lookup("n", Family::V4), cache.lookup("n", Family::V4)) };
    let replacing = async {
        sleep(5).await;
        cache.set_resolver(new.clone());
    };
    let (start, ((one, other), ())) = (now(), tokio::join!(waiting, replacing));
    let moved = [IpAddr::from([192, 0, 2, 2])];
    assert_eq!(
        (one.unwrap().addresses().to_vec(), other.unwrap().addresses().to_vec()),
        (moved.to_vec(), moved.to_vec())
    );
    assert_eq!((now() - start, old.queries(), new.queries()), (Duration::from_millis(20), 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lookup_whose_name_is_pinned_while_it_waits_gets_the_pinned_addresses() {
    let (cache, _) = cached();
    let pinning = async {
        sleep(5).await;
        cache.pin("n", [[192, 0, 2, 9].into()]);
    };
    let (answer, _) = tokio::join!(cache.lookup("n", Family::V4), pinning);
    assert_eq!(answer.unwrap().addresses().to_vec(), [IpAddr::from([192, 0, 2, 9])]);
}

/// A resolver whose answers are for an hour, with its version, which is the last byte of its addresses.
#[derive(Clone, Default)]
struct Versioned(Arc<AtomicU64>);

impl Resolver for Versioned {
    fn resolve<'a>(&'a self, _: &'a str, _: Family) -> ResolverFuture<'a> {
        let address = [192, 0, 2, self.version() as u8];
        let answer = Answer::new([address.into()], Duration::from_secs(3_600), Source::Miss);
        Box::pin(std::future::ready(Ok(answer)))
    }

    fn version(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_version_of_the_resolver_is_asked_within_five_seconds() {
    let resolver = Versioned::default();
    let cache = CachedResolver::new(resolver.clone());
    let ask = async || cache.lookup("n", Family::V4).await.unwrap().source();
    assert_eq!((ask().await, ask().await), (Source::Miss, Source::Hit));
    resolver.0.store(1, Ordering::Relaxed);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!((ask().await, ask().await), (Source::Miss, Source::Hit));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(ask().await, Source::Hit, "once for each version");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_finds_a_new_version_is_not_kept_and_what_follows_is_told_as_sure() {
    let resolver = Versioned::default();
    let cache = CachedResolver::new(resolver.clone());
    let ask = async |name| cache.lookup(name, Family::V4).await.unwrap().source();
    assert_eq!(ask("n").await, Source::Miss);
    resolver.0.store(1, Ordering::Relaxed);
    let mut changes = cache.subscribe();
    assert_eq!((ask("m").await, ask("m").await, ask("m").await), (Source::Miss, Source::Hit, Source::Hit));
    assert_eq!(cache.lookup("m", Family::V4).await.unwrap().addresses().to_vec(), [IpAddr::from([192, 0, 2, 1])]);
    assert_eq!(ask("n").await, Source::Miss, "within the five seconds");
    let told = [changes.next().await.unwrap(), changes.next().await.unwrap()];
    assert_eq!(told.map(|change| (change.name.to_string(), change.is_sure)), [("m".into(), false), ("n".into(), true)]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_not_pinned_has_no_pin_to_end() {
    let (cache, _) = cached();
    source(&cache).await;
    assert!(!cache.unpin("n"));
    cache.pin("n", [[192, 0, 2, 7].into()]);
    assert!(cache.unpin("n") && !cache.unpin("n"));
}

#[tokio::test(start_paused = true)]
async fn a_touch_returns_true_if_the_name_has_addresses_in_either_family() {
    let (cache, _) = cached();
    assert!(!cache.touch("only4"), "not yet");
    sleep(20).await;
    assert!(cache.touch("only4"));
    assert!(cache.touch_families("only4", &[Family::V6]));
}

#[tokio::test(start_paused = true)]
async fn a_peek_starts_no_query() {
    let (cache, upstream) = cached();
    assert_eq!(cache.peek(now(), "n"), [None, None]);
    source(&cache).await;
    sleep(1_000).await;
    let left =
        cache.peek(now(), "n").map(|known| known.map(|(answer, _)| (answer.addresses()[0], answer.ttl().as_secs())));
    assert_eq!(left, [None, Some((IpAddr::from([192, 0, 2, 1]), 4))]);
    assert_eq!(upstream.queries(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_more_names_are_kept_than_the_cache_was_built_for() {
    let cache = CachedResolver::builder().max_names(2).build(ScriptedResolver::default());
    cache.prefetch(["a", "b", "c"]).await;
    assert_eq!((cache.stats().names, cache.stats().evictions), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn stale_answers_are_served_for_as_long_as_the_cache_was_built_for() {
    let upstream = ScriptedResolver::default();
    let cache = CachedResolver::builder().stale(Duration::from_secs(10)).build(upstream.clone());
    source(&cache).await;
    upstream.set_servers(Servers::Failing);
    sleep(5_000 + 9_980).await;
    assert_eq!(source(&cache).await, Source::Stale);
    sleep(10).await;
    assert_eq!(cache.lookup("n", Family::V4).await.unwrap_err().kind(), ResolveErrorKind::ServFail);
}

#[tokio::test(start_paused = true)]
async fn lookups_share_a_query_until_its_timeout_and_each_gets_the_error_with_its_own_source() {
    let (cache, upstream) = cached();
    let first = cache.lookup("never", Family::V4);
    let last = async {
        tokio::time::sleep(Config::default().query_timeout - Duration::from_millis(1)).await;
        cache.lookup("never", Family::V4).await
    };
    let (first, last) = futures_util::future::join(first, last).await;
    let [first, last] = [first, last].map(Result::unwrap_err);
    assert_eq!((first.kind(), first.answered_from()), (ResolveErrorKind::Timeout, Source::Miss));
    assert_eq!((last.kind(), last.answered_from()), (ResolveErrorKind::Timeout, Source::Coalesced));
    assert_eq!(upstream.queries(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_dns_query_keeps_its_source() {
    let (below, upstream) = cached();
    below.pin("n", []);
    let cache = CachedResolver::new(below);
    let error = cache.lookup("n", Family::V4).await.unwrap_err();
    assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NoData, Source::Pinned));
    assert_eq!(upstream.queries(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_names_of_a_cache_share_one_timer_task() {
    let (cache, _) = cached();
    cache.prefetch(["n", "m", "o"]).await;
    sleep(1).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 1);
}

fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Returns a cache with an answer for `n`, and a time at which that is stale.
fn with_stale_answer() -> (CachedResolver, Instant) {
    let (cache, _) = cached();
    paused_runtime().block_on(source(&cache));
    (cache, now() + Duration::from_secs(10))
}

/// Begins a lookup outside of a runtime, where its query is lost at once.
fn with_lost_query<'a>(cache: &'a CachedResolver, late: Instant, name: &'a str) -> PendingLookup<'a> {
    let Either::Right(pending) = cache.lookup_at(late, name, Family::V4) else { panic!("no answer is fresh") };
    pending
}

#[test]
fn a_lookup_whose_query_is_lost_asks_once_more() {
    let (cache, late) = with_stale_answer();
    for name in ["n", "m"] {
        let pending = with_lost_query(&cache, late, name);
        let answer = paused_runtime().block_on(async {
            tokio::time::advance(Duration::from_secs(10)).await;
            pending.wait().await
        });
        assert_eq!(answer.unwrap().source(), Source::Miss, "{name}");
    }
}

#[test]
fn a_lookup_whose_query_is_lost_twice_gets_a_stale_answer_or_an_error() {
    let (cache, late) = with_stale_answer();
    for (name, queries, outcome) in [("n", 3, Ok(Source::Stale)), ("m", 5, Err(ResolveErrorKind::Other))] {
        let mut waiting = Box::pin(with_lost_query(&cache, late, name).wait());
        paused_runtime().block_on(async {
            tokio::time::advance(Duration::from_secs(10)).await;
            assert!(futures_util::FutureExt::now_or_never(waiting.as_mut()).is_none(), "{name}: it asks again");
        });
        let lost = paused_runtime().block_on(waiting);
        assert_eq!(lost.map(|answer| answer.source()).map_err(|error| error.kind()), outcome, "{name}");
        assert_eq!(cache.stats().misses, queries, "{name}: and no third time");
    }
}
