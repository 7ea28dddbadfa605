//! The DNS cache beside hickory-resolver's own: a hit, and many cold lookups of one name.

#[path = "../tests/support/dns_server.rs"]
mod dns_server;

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use dns_server::{DnsServer, add_address};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use speeddial::dns::{CachedResolver, Family, HickoryResolver};
use tokio::runtime::{Builder, Runtime};

const NAME: &str = "api.test.";

fn server() -> DnsServer {
    DnsServer::start(|question, response| {
        add_address(response, question, question.name(), Ipv4Addr::LOCALHOST.into(), 3_600);
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

fn hit(criterion: &mut Criterion) {
    let (server, runtime) = (server(), runtime());
    let (ours, theirs) = (ours(&server), theirs(&server));
    runtime.block_on(async {
        ours.lookup(NAME, Family::V4).await.expect("an answer");
        theirs.ipv4_lookup(NAME).await.expect("an answer");
    });
    let mut group = criterion.benchmark_group("dns_cache/hit");
    group.bench_function("speeddial", |bencher| {
        bencher.to_async(&runtime).iter(|| async { black_box(ours.lookup(black_box(NAME), Family::V4).await) });
    });
    group.bench_function("hickory", |bencher| {
        bencher.to_async(&runtime).iter(|| async { black_box(theirs.ipv4_lookup(black_box(NAME)).await) });
    });
    group.finish();
}

fn cold(criterion: &mut Criterion) {
    let (server, runtime) = (server(), runtime());
    let mut group = criterion.benchmark_group("dns_cache/1000 cold lookups of one name");
    group.sample_size(20);
    group.bench_function("speeddial", |bencher| {
        bencher.iter_custom(|rounds| {
            let round = || {
                let (cache, before) = (ours(&server), server.queries());
                let elapsed = timed(&runtime, async {
                    futures_util::future::join_all((0..1_000).map(|_| cache.lookup(NAME, Family::V4))).await;
                });
                assert_eq!(server.queries() - before, 1, "one query for all of them");
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
                    futures_util::future::join_all((0..1_000).map(|_| resolver.ipv4_lookup(NAME))).await;
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

criterion_group!(benches, hit, cold);
criterion_main!(benches);
