//! Drops a hundred thousand requests at random awaits: no connection, task or descriptor may leak.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use speeddial::dns::FixedResolver;
use speeddial::trace::{Event, Observer, Record};
use speeddial::{Client, PoolConfig};
use support::http_server::HttpServer;
use tokio::runtime::Handle;

const REQUESTS: usize = 50_000;
const IN_FLIGHT: usize = 64;

fn descriptors() -> Option<usize> {
    std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count)
}

/// The number of dials that a client has begun.
#[derive(Clone, Default)]
struct Dials(Arc<AtomicUsize>);

impl Observer for Dials {
    fn observe(&self, record: &Record) {
        if matches!(record.event, Event::DialStart { .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Waits until `done` returns true, for as long as that takes on a busy machine.
async fn eventually(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + support::LONG;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_a_hundred_thousand_requests_dropped_at_a_random_await_leak_nothing() {
    // One after the other, because descriptors and tasks of the whole process are counted.
    storm(false).await;
    storm(true).await;
}

async fn storm(http2: bool) {
    let answer = |request: hyper::Request<hyper::body::Incoming>| async move {
        // Small bodies come in one piece, large ones do not fit into the socket's buffers.
        let length = if request.uri().path() == "/big" { 1_000_000 } else { 100 };
        hyper::Response::new(Full::new(vec![0; length].into()).map_err(|error| match error {}).boxed())
    };
    let server = if http2 { HttpServer::start_as(true, answer) } else { HttpServer::start(answer) }.unwrap();
    let url = format!("http://api.test:{}", server.address().port());
    let resolver = FixedResolver::new().with("api.test", [server.address().ip()]).with_ttl(Duration::from_millis(5));
    let metrics = Handle::current().metrics();
    let descriptors_before = descriptors();
    let tasks_before = metrics.num_alive_tasks();

    let pool = PoolConfig::new().max_connections_per_host(16).idle_timeout(Duration::from_millis(200));
    let dials = Dials::default();
    let builder = Client::builder().no_proxy().dns_resolver(resolver).pool(pool).observer(dials.clone());
    let client = if http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap();
    let workers: Vec<_> = (0..IN_FLIGHT)
        .map(|seed| {
            let client = client.clone();
            let url = url.clone();
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed as u64);
                let mut finished = 0;
                for _ in 0..REQUESTS.div_ceil(IN_FLIGHT) {
                    let path = if random.u8(..10) == 0 { "/big" } else { "/small" };
                    let call = async { client.get(format!("{url}{path}")).send().await?.bytes().await };
                    match support::dropped_at_await(random.usize(..6), call).await {
                        Some(Ok(_)) => finished += 1,
                        Some(Err(error)) => panic!("{error}"),
                        None => {}
                    }
                }
                finished
            })
        })
        .collect();
    let mut finished = 0;
    for worker in workers {
        finished += worker.await.unwrap();
    }
    assert!(
        finished > REQUESTS / 20 && finished < REQUESTS * 19 / 20,
        "{finished} of {REQUESTS} requests finished: too many or too few were dropped"
    );

    eventually("the pool's counters are zero", || {
        let stats = client.pool_stats();
        (stats.idle, stats.in_use, stats.leased, stats.dialling, stats.closing, stats.waiting) == (0, 0, 0, 0, 0, 0)
    })
    .await;
    let stats = client.pool_stats();
    assert_eq!(stats.opened, stats.closed);
    assert_eq!(client.get(format!("{url}/small")).send().await.unwrap().bytes().await.unwrap().len(), 100);

    // On a busy machine the client gives dials up, whose connections the server counts as well.
    let (opened, accepted, begun) = (stats.opened as usize + 1, server.accepted(), dials.0.load(Ordering::SeqCst));
    assert!(opened <= accepted && accepted <= begun, "{opened} opened, {accepted} accepted, {begun} dials");
    assert!(accepted - opened <= opened / 100, "the pool counted every connection: {opened} of {accepted}");

    drop(client);
    eventually("every task has ended", || metrics.num_alive_tasks() == tasks_before).await;
    eventually("every descriptor is closed", || descriptors() == descriptors_before).await;
}
