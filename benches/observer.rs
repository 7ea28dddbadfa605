//! Measures warm GETs with and without an observer: the claim of BENCHMARKS.md, section Observers.
//!
//! One observer receives every event and ignores it; another one only adds up the times of calls; the last one is the flight
//! recorder. They are measured over a connection in memory, which answers at once; the recorder also over a socket on loopback.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group};
use speeddial::trace::{EndedCall, Observer, Record, Wants};
use speeddial::{Client, ClientBuilder, Url};
use speeddial_inspect::Recorder;
use support::canned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
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

/// Measures what a recorder adds to a warm GET over loopback, and prints it.
///
/// Both clients are measured in turn, a few requests each time, and the median of each counts: what else the machine does then
/// meets both alike, and the difference is smaller than what it does.
fn recorder_over_loopback() {
    const REQUESTS: u32 = 50;
    let turns = if std::env::args().any(|argument| argument == "--test") { 3 } else { 5_000 };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let address = runtime.block_on(serve_beside());
    let url: Url = format!("http://{address}/v1/items").parse().expect("a URL");
    let builders = [Client::builder(), Client::builder().observer(Recorder::new())];
    let clients = builders.map(|builder| builder.no_proxy().build().expect("the defaults are valid"));
    let mut times = [(); 2].map(|()| Vec::with_capacity(turns));
    runtime.block_on(async {
        for _ in 0..turns {
            for (client, times) in clients.iter().zip(&mut times) {
                let start = Instant::now();
                for _ in 0..REQUESTS {
                    canned::get(client, &url).await;
                }
                times.push(start.elapsed() / REQUESTS);
            }
        }
    });
    let [without, with] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e6
    });
    let more = (with / without - 1.0) * 100.0;
    println!("warm GET over loopback: {without:.2} µs, with a recorder {with:.2} µs, {more:.1} % more");
}

/// Starts a server of short answers in the client's own thread, so that no time goes to waking another one.
async fn serve_beside() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1_024];
                // A request without a body comes in one piece.
                while stream.read(&mut request).await.is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("it is open");
                }
            });
        }
    });
    address
}

/// Measures warm GETs of a client.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, runtime: &Runtime, name: &str, builder: ClientBuilder, url: &Url) {
    let client = builder.build().expect("the defaults are valid");
    runtime.block_on(canned::get(&client, url));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let start = Instant::now();
            runtime.block_on(async {
                for _ in 0..rounds {
                    canned::get(&client, url).await;
                }
            });
            start.elapsed()
        });
    });
}

criterion_group!(benches, observer);

fn main() {
    recorder_over_loopback();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
