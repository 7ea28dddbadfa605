//! Requests that need new connections: one each, plain and by TLS, resumed and not; 3,000 at once; a few to each of 200 names. Through
//! hyper's bare connection, speeddial, hyper-util's legacy client and reqwest.
//!
//! The server has a thread, and on two cores a core, of its own. `benches/compare.rs` has them take turns.

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
        // What a new client does first is a round of its own.
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
