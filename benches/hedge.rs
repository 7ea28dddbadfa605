//! Measures the longest waits at a server that stalls some of its answers, with and without a hedging policy: the claim of
//! BENCHMARKS.md, section Hedging.
//!
//! Fails if the policy does not keep p99 within twice p95, or costs the server more than 6 % more requests.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

mod machine;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use speeddial::{Client, HedgePolicy};
use support::http_server::HttpServer;
use support::{full, page};
use tokio::runtime::Builder;

/// The requests in flight.
const TASKS: usize = 32;
/// The requests that are made without and with the policy.
const REQUESTS: usize = 20_000;
/// The server stalls one of so many answers.
const STALLED: u64 = 100;

/// The waits for answers, and the requests that the server got.
struct Run {
    name: &'static str,
    /// In order, the shortest one first.
    waits: Vec<Duration>,
    served: usize,
}

impl Run {
    fn quantile(&self, share: f64) -> Duration {
        self.waits[((self.waits.len() - 1) as f64 * share) as usize]
    }

    /// Returns the requests that the server got for each call.
    fn load(&self) -> f64 {
        self.served as f64 / self.waits.len() as f64
    }

    fn row(&self) -> String {
        let [p50, p95, p99, p999] = [0.5, 0.95, 0.99, 0.999].map(|share| self.quantile(share).as_secs_f64() * 1e3);
        let load = (self.load() - 1.0) * 100.0;
        format!("| {} | {p50:.1} ms | {p95:.1} ms | {p99:.1} ms | {p999:.1} ms | {load:.2} % |\n", self.name)
    }
}

/// Starts a server that takes 10 to 30 ms for an answer, and sometimes a second longer. Counts its requests.
fn start(served: Arc<AtomicUsize>) -> HttpServer {
    HttpServer::start(move |_| {
        let number = served.fetch_add(1, Ordering::Relaxed) as u64;
        async move {
            // As good as random, and the same in each run.
            let random = BuildHasherDefault::<DefaultHasher>::default().hash_one(number);
            let usual = Duration::from_micros(10_000 + (random >> 32) % 20_000);
            let stall = if random % STALLED == 0 { Duration::from_secs(1) } else { Duration::ZERO };
            tokio::time::sleep(usual + stall).await;
            hyper::Response::new(full("ok"))
        }
    })
    .expect("a server on loopback")
}

async fn measure(name: &'static str, policy: Option<HedgePolicy>, requests: usize) -> Run {
    let served = Arc::new(AtomicUsize::new(0));
    let server = start(served.clone());
    let builder = Client::builder().no_proxy();
    let builder = match policy {
        Some(policy) => builder.hedge(policy),
        None => builder,
    };
    let client = builder.build().expect("the settings are valid");
    let url = format!("http://{}/", server.address());
    let left = AtomicUsize::new(requests);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
    let task = async || {
        let mut waits = Vec::new();
        while take() {
            let start = Instant::now();
            let response = client.get(&url).send().await.expect("an answer");
            waits.push(start.elapsed());
            response.bytes().await.expect("a body");
        }
        waits
    };
    let mut waits = join_all((0..TASKS).map(|_| task())).await.concat();
    waits.sort_unstable();
    Run { name, waits, served: served.load(Ordering::Relaxed) }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let requests = if has("--test") { 300 } else { REQUESTS };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (without, with) = runtime.block_on(async {
        let without = measure("no policy", None, requests).await;
        (without, measure("`HedgePolicy::new()`", Some(HedgePolicy::new()), requests).await)
    });
    let text = format!(
        "| | p50 | p95 | p99 | p99.9 | more requests at the server |\n|---|---|---|---|---|---|\n{}{}\n{}, {}.\n",
        without.row(),
        with.row(),
        machine::name(),
        machine::today(),
    );
    println!("{text}");
    assert_eq!(without.served, requests, "without a policy each request is sent once");
    if has("--test") {
        return;
    }
    let (p95, p99) = (with.quantile(0.95), with.quantile(0.99));
    assert!(p99 <= 2 * p95, "p99 is {p99:?}, and p95 {p95:?}");
    assert!(with.load() <= 1.06, "{} requests for each call", with.load());
    if has("--write") {
        page::write("hedge", &text).expect("BENCHMARKS.md can be written");
    }
}
