//! Measures warm GETs with and without an observer: the claim of BENCHMARKS.md, section Observers.
//!
//! One observer receives every event and ignores it; another one only adds up the times of calls; the last one is the flight
//! recorder. They are measured over a connection in memory, which answers at once; the recorder also over a socket on loopback.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use speeddial::trace::{EndedCall, Observer, Record, Recorder, Wants};
use speeddial::{Client, ClientBuilder, Url};
use support::{canned, ok_server};
use tokio::runtime::{Builder, Runtime};

/// An observer that receives every event and ignores it.
struct Ignores;

impl Observer for Ignores {
    fn observe(&self, _: &Record) {}
    fn ended(&self, _: &EndedCall<'_>) {}
}

/// An observer of the ends of calls, which adds up their times.
#[derive(Default)]
struct Adds(std::sync::atomic::AtomicU64);

impl Observer for Adds {
    fn wants(&self) -> Wants {
        Wants::ENDS
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let micros = call.timings.total().as_micros() as u64;
        self.0.fetch_add(micros, std::sync::atomic::Ordering::Relaxed);
    }
}

fn observer(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let url = canned::url();
    let mut group = criterion.benchmark_group("observer/warm GET");
    let observers = [
        ("no observer", canned::builder()),
        ("ignores everything", canned::builder().observer(Ignores)),
        ("adds up", canned::builder().observer(Adds::default())),
        ("recorder", canned::builder().observer(Recorder::new())),
    ];
    for (name, builder) in observers {
        measure(&mut group, &runtime, name, builder, &url);
    }
    group.finish();
}

fn recorder_over_loopback(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = ok_server();
    let url = format!("http://{}/v1/items", server.address()).parse().expect("a URL");
    let mut group = criterion.benchmark_group("observer/warm GET over loopback");
    measure(&mut group, &runtime, "no observer", Client::builder().no_proxy(), &url);
    measure(&mut group, &runtime, "recorder", Client::builder().no_proxy().observer(Recorder::new()), &url);
    group.finish();
}

/// Measures warm GETs of a client.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, runtime: &Runtime, name: &str, builder: ClientBuilder, url: &Url) {
    let client = builder.build().expect("the defaults are valid");
    runtime.block_on(canned::get(&client, url));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let start = std::time::Instant::now();
            runtime.block_on(async {
                for _ in 0..rounds {
                    canned::get(&client, url).await;
                }
            });
            start.elapsed()
        });
    });
}

criterion_group!(benches, observer, recorder_over_loopback);
criterion_main!(benches);
