//! Measures warm requests beside hyper's bare connection, hyper-util's legacy client and reqwest: the claim of BENCHMARKS.md,
//! section Requests beside other clients.
//!
//! The rows are small and large bodies, 1 to 1,000 requests in flight, HTTP/1.1 and HTTP/2, plain and over TLS. The server runs in
//! a thread of its own. `benches/compare.rs` measures the clients in turn and writes the table.

mod peers;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use peers::CLIENTS;
use peers::work::{Bench, Kind, possible};

fn request(criterion: &mut Criterion) {
    for work in possible().filter(|work| work.kind == Kind::Warm && !work.setup.cold) {
        let bench = Bench::new(work);
        let mut group = criterion.benchmark_group(format!("request/{}", work.name));
        group.throughput(Throughput::Elements(work.in_flight as u64));
        group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(10);
        for (number, client) in CLIENTS.into_iter().enumerate() {
            group.bench_function(BenchmarkId::from_parameter(client), |bencher| {
                bencher.iter_custom(|rounds| bench.round(number, rounds as usize).wall);
            });
        }
        group.finish();
    }
}

criterion_group!(benches, request);
criterion_main!(benches);
