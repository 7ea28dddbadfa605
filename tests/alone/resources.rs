//! Memory and descriptors under load: they are bounded, and return. A process of its own, because it counts those of the whole process.
//!
//! The server is in the same process, so its memory and descriptors count as well.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may panic, and says what it counted")]
#![cfg(target_os = "linux")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use speeddial::dns::FixedResolver;
use speeddial::{Client, ErrorKind, PoolConfig};
use support::full;
use support::http_server::HttpServer;
use tokio::sync::{Mutex, Semaphore};

/// One test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The highest resident memory so far, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
}

/// Allows as many descriptors as this process may have. Returns false if these are too few for the tests.
fn allow_descriptors() -> bool {
    let limit = support::process::set_descriptor_limit(u64::MAX);
    let is_enough = limit >= 2_048;
    if !is_enough {
        println!("SKIPPED: the process may have {limit} descriptors");
    }
    is_enough
}

/// More descriptors than the runtimes of the other tests have, which begin and end beside the one whose turn it is.
const RUNTIMES: usize = 40;

/// Looks every few milliseconds whether `done` returns true, for up to 60 s on a busy machine. Returns the time that it took.
async fn eventually(what: &str, done: impl Fn() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_ten_thousand_requests_at_once_take_less_than_150_mib() {
    let _turn = TURN.lock().await;
    if !allow_descriptors() {
        return;
    }
    // The peak begins anew.
    if let Err(error) = std::fs::write("/proc/self/clear_refs", "5") {
        return println!("SKIPPED: memory cannot be counted anew: {error}");
    }
    let server = support::ok_server();
    let pool = PoolConfig::new().max_connections_per_host(100).wait_timeout(Duration::from_secs(600));
    let client = Client::builder().no_proxy().pool(pool).build().unwrap();
    let url = format!("http://{}/", server.address());
    let call = || {
        let call = client.get(&url).send();
        tokio::spawn(async move { call.await?.text().await })
    };
    let mut most = 0;
    for call in (0..10_000).map(|_| call()).collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
        let stats = client.pool_stats();
        most = most.max(stats.idle + stats.in_use + stats.dialling);
    }
    let peak = peak_memory();
    // Those that the client has: on a busy machine it gives dials up, whose connections the server counts, and opens others.
    println!("10,000 requests at once on {most} connections: at most {} MiB", peak >> 20);
    assert!((1..=100).contains(&most), "{most} connections");
    assert!(peak < 150 << 20, "{peak} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_three_thousand_hosts_leave_no_descriptor_and_no_entry_behind() {
    let _turn = TURN.lock().await;
    if !allow_descriptors() {
        return;
    }
    let before = descriptors();
    let server = support::ok_server();
    let names: Vec<_> = (0..3_000).map(|number| format!("h{number}.test")).collect();
    let local = [Ipv4Addr::LOCALHOST.into()];
    let resolver = names.iter().fold(FixedResolver::new(), |resolver, name| resolver.with(name, local));
    // Beside a slow dial, as on a busy machine, there would be another one.
    let pool = PoolConfig::new().idle_timeout(Duration::from_millis(500)).max_connections_per_host(1);
    let client = Client::builder().no_proxy().dns_resolver(resolver).pool(pool).build().unwrap();
    let port = server.address().port();
    let calls = names.iter().map(|name| {
        let call = client.get(format!("http://{name}:{port}/")).send();
        async move { call.await?.text().await }
    });
    let answers: Vec<_> = stream::iter(calls).buffer_unordered(50).collect().await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|text| text == "ok")));
    assert_eq!(server.connections(), 3_000);
    let open = descriptors();
    // The idle timeout of half a second passes in real time.
    let took = eventually("few descriptors and no host are left", || {
        descriptors() <= before + 80 && client.host_stats().is_empty()
    });
    let took = took.await;
    println!("{open} descriptors after the last response; {} after {took:?}", descriptors());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_five_hundred_requests_are_answered_while_a_client_drains() {
    let _turn = TURN.lock().await;
    if !allow_descriptors() {
        return;
    }
    let arrived = Arc::new(AtomicUsize::new(0));
    let answer = Arc::new(Semaphore::new(0));
    let (counter, wait) = (arrived.clone(), answer.clone());
    let server = HttpServer::start(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let wait = wait.clone();
        async move {
            wait.acquire().await.unwrap().forget();
            hyper::Response::new(full("ok"))
        }
    });
    let server = server.unwrap();
    let before = descriptors();
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/", server.address());
    let call = || {
        let call = client.get(&url).send();
        tokio::spawn(async move { call.await?.text().await })
    };
    let calls: Vec<_> = (0..500).map(|_| call()).collect();
    eventually("500 requests have arrived", || arrived.load(Ordering::SeqCst) == 500).await;
    let early = tokio::time::timeout(Duration::from_millis(1), client.drain()).await;
    assert!(early.is_err(), "500 requests are in flight, and the drain goes on without its future");
    for _ in 0..100 {
        assert_eq!(client.get(&url).send().await.unwrap_err().kind(), ErrorKind::Pool);
    }
    answer.add_permits(500);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    client.drain().await;
    let took = eventually("every descriptor is closed", || descriptors() <= before + RUNTIMES).await;
    println!("descriptors are back {took:?} after the last response");
    assert_eq!(arrived.load(Ordering::SeqCst), 500, "no new request was sent");
}
