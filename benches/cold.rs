//! Measures requests that need new connections beside hyper's bare connection, hyper-util's legacy client and reqwest: the claim of
//! BENCHMARKS.md, section Requests beside other clients.
//!
//! The rows are a connection for each request (plain, TLS with a resumed session, and TLS without), 3,000 requests at once, and a
//! few requests to each of 200 names. The server runs in a thread of its own. `benches/compare.rs` measures the clients in turn
//! and writes the table.

mod peers;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use peers::CLIENTS;
use peers::work::{Bench, Kind, possible};

fn cold(criterion: &mut Criterion) {
    for work in possible().filter(|work| work.kind != Kind::Warm || work.setup.cold) {
        let bench = Bench::new(work);
        let mut group = criterion.benchmark_group(format!("cold/{}", work.name));
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(10);
        // A burst is a round by itself, because it needs a new client.
        let each = if work.kind == Kind::Warm { None } else { Some(work.requests / work.in_flight) };
        group.throughput(Throughput::Elements((work.in_flight * each.unwrap_or(1)) as u64));
        for (number, client) in CLIENTS.into_iter().enumerate() {
            group.bench_function(BenchmarkId::from_parameter(client), |bencher| {
                bencher.iter_custom(|rounds| match each {
                    Some(each) => (0..rounds).map(|_| bench.round(number, each).wall).sum(),
                    None => bench.round(number, rounds as usize).wall,
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, cold);
criterion_main!(benches);
