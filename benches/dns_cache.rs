//! Measures the DNS cache beside hickory-resolver's own: the claim of BENCHMARKS.md, section DNS cache.
//!
//! The groups are a hit (on one thread and on 16), a miss, the wake-up of 10,000 waiting lookups, and 10,000 cold lookups of one
//! name.

use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use futures_util::FutureExt;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use speeddial::dns::{
    Answer, CachedResolver, Family, FixedResolver, HickoryResolver, Resolver, ResolverFuture, Source,
};
use support::dns_server::{DnsServer, add_address};
use tokio::runtime::{Builder, Runtime};

const NAME: &str = "api.test.";

fn server() -> DnsServer {
    DnsServer::start(|question, response| {
        for address in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            add_address(response, question, question.name(), address, 3_600);
        }
    })
    .expect("a port on loopback")
}

fn ours(server: &DnsServer) -> CachedResolver {
    CachedResolver::new(HickoryResolver::with_servers([server.address()]))
}

fn theirs(server: &DnsServer) -> TokioResolver {
    let mut udp = ConnectionConfig::udp();
    udp.port = server.address().port();
    let servers = vec![NameServerConfig::new(server.address().ip(), true, vec![udp])];
    let config = ResolverConfig::from_parts(None, Vec::new(), servers);
    let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    builder.build().expect("a valid configuration")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Measures lookups that the cache answers.
fn hit(criterion: &mut Criterion) {
    let server = server();
    let runtime = runtime();
    let ours = ours(&server);
    let theirs = theirs(&server);
    runtime.block_on(async {
        for family in Family::BOTH {
            let _ = ours.lookup(NAME, family).await;
        }
        theirs.lookup_ip(NAME).await.expect("an answer");
    });
    let mut group = criterion.benchmark_group("dns_cache/hit");
    group.bench_function("speeddial", |bencher| {
        bencher.to_async(&runtime).iter(|| async { black_box(ours.lookup(black_box(NAME), Family::V4).await) });
    });
    group.bench_function("hickory lookup_ip", |bencher| {
        bencher.to_async(&runtime).iter(|| async { black_box(theirs.lookup_ip(black_box(NAME)).await) });
    });
    group.bench_function("hickory ipv4_lookup", |bencher| {
        bencher.to_async(&runtime).iter(|| async { black_box(theirs.ipv4_lookup(black_box(NAME)).await) });
    });
    group.bench_function("the clock alone", |bencher| bencher.iter(tokio::time::Instant::now));
    group.bench_function("speeddial, one of 16 threads", |bencher| {
        bencher.iter_custom(|rounds| {
            side_by_side(16, rounds, || {
                black_box(ours.lookup(NAME, Family::V4).now_or_never().expect("a hit").expect("an answer"));
            })
        });
    });
    group.finish();
}

/// Returns the time that `rounds` rounds of `work` take on each of `threads` threads, from the start of the first thread to the
/// end of the last one, scaled as if each thread had a core to itself.
fn side_by_side(threads: u32, rounds: u64, work: impl Fn() + Sync) -> Duration {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let barrier = std::sync::Barrier::new(threads as usize);
    let times = std::thread::scope(|scope| {
        let timed = || {
            barrier.wait();
            let start = Instant::now();
            (0..rounds).for_each(|_| work());
            (start, Instant::now())
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    (end.expect("a thread") - start.expect("a thread")) * cores.min(threads) / threads
}

/// Measures the cost that the cache adds to its resolver: names that are looked up once, with and without the cache.
fn miss(criterion: &mut Criterion) {
    let server = server();
    let runtime = runtime();
    let alone = HickoryResolver::with_servers([server.address()]);
    let cached = CachedResolver::builder().max_names(0).build(HickoryResolver::with_servers([server.address()]));
    let mut group = criterion.benchmark_group("dns_cache/miss");
    group.bench_function("speeddial", |bencher| {
        bencher.to_async(&runtime).iter(|| async { cached.lookup(NAME, Family::V4).await.expect("an answer") });
    });
    group.bench_function("its resolver alone", |bencher| {
        bencher.to_async(&runtime).iter(|| async { alone.resolve(NAME, Family::V4).await.expect("an answer") });
    });
    let instantly = FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]);
    let cached = CachedResolver::builder().max_names(0).build(instantly);
    group.bench_function("the cache's own part", |bencher| {
        bencher.to_async(&runtime).iter(|| async { cached.lookup("api.test", Family::V4).await.expect("an answer") });
    });
    group.finish();
}

/// Measures the time from an answer to the last of 10,000 lookups that waited for it.
fn wake(criterion: &mut Criterion) {
    let runtime = runtime();
    let mut group = criterion.benchmark_group("dns_cache/waking");
    group.sample_size(20);
    group.bench_function("10000 waiters on one name", |bencher| {
        bencher.iter_custom(|rounds| (0..rounds).map(|_| runtime.block_on(wake_10_000())).sum());
    });
    group.finish();
}

async fn wake_10_000() -> Duration {
    let gate = Gate::default();
    let cache = CachedResolver::new(gate.clone());
    let waiters: Vec<_> = (0..10_000)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.lookup(NAME, Family::V4).await.expect("an answer") })
        })
        .collect();
    while cache.stats().coalesced < 9_999 {
        tokio::task::yield_now().await;
    }
    let start = Instant::now();
    gate.0.notify_one();
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    start.elapsed()
}

/// A resolver that answers when it is notified.
#[derive(Clone, Default)]
struct Gate(Arc<tokio::sync::Notify>);

impl Resolver for Gate {
    fn resolve<'a>(&'a self, _: &'a str, _: Family) -> ResolverFuture<'a> {
        Box::pin(async {
            self.0.notified().await;
            Ok(Answer::new([Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60), Source::Miss))
        })
    }
}

/// Measures 10,000 lookups of one name that is not in the cache.
fn cold(criterion: &mut Criterion) {
    let server = server();
    let runtime = runtime();
    let mut group = criterion.benchmark_group("dns_cache/10000 cold lookups of one name in both families");
    group.sample_size(20);
    group.bench_function("speeddial", |bencher| {
        bencher.iter_custom(|rounds| {
            let round = || {
                let cache = ours(&server);
                let before = server.queries();
                let elapsed = timed(&runtime, async {
                    futures_util::future::join_all((0..10_000).map(|_| cache.lookup_both(NAME))).await;
                });
                assert_eq!(server.queries() - before, 2, "one query a family for all of them");
                elapsed
            };
            (0..rounds).map(|_| round()).sum()
        });
    });
    group.bench_function("hickory", |bencher| {
        bencher.iter_custom(|rounds| {
            let round = || {
                let resolver = theirs(&server);
                timed(&runtime, async {
                    futures_util::future::join_all((0..10_000).map(|_| resolver.lookup_ip(NAME))).await;
                })
            };
            (0..rounds).map(|_| round()).sum()
        });
    });
    group.finish();
}

fn timed(runtime: &Runtime, work: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    runtime.block_on(work);
    start.elapsed()
}

criterion_group!(benches, hit, miss, wake, cold);
criterion_main!(benches);
