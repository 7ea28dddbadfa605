//! Hosts that are kept warm: idle connections that are open before requests need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::pool::HostLimits;
use speeddial::trace::{CloseCause, Event};
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, ErrorKind, PoolConfig};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::common::{OK, URL, client, get, ms, request, serve};
use support::full;
use support::http_server::HttpServer;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::v4;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn keeps(count: usize) -> PoolConfig {
    PoolConfig::new().min_idle_per_host(count)
}

async fn burst(client: &Client, url: &str, count: usize) {
    for answer in join_all((0..count).map(|_| get(client, url))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
}

/// Waits, for at most a minute, until `is_so` is true of the pool's statistics.
async fn until(client: &Client, is_so: impl Fn(&speeddial::pool::PoolStats) -> bool) {
    let wait = async {
        while !is_so(&client.pool_stats()) {
            sleep(ms(5)).await;
        }
    };
    timeout(support::LONG, wait).await.unwrap_or_else(|_| panic!("{:?}", client.pool_stats()));
}

#[tokio::test(start_paused = true)]
async fn a_burst_after_ten_minutes_of_silence_dials_nothing() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let recorder = Recorder::default();
    let client = client(&net, keeps(20), &recorder);
    burst(&client, URL, 1).await;
    sleep(10 * MINUTE).await;
    let (dialled, start) = (net.connections(), Instant::now());
    assert_eq!((client.pool_stats().idle, net.open()), (20, 20));
    burst(&client, URL, 20).await;
    assert_eq!((start.elapsed(), net.connections()), (ms(5), dialled));
    let stats = client.pool_stats();
    assert_eq!((stats.opened, stats.opened_ahead), (dialled as u64, dialled as u64 - 1));
    assert_eq!(stats.closed, stats.closed_by(CloseCause::Replaced));
    let opened = recorder.count(|event| matches!(event, Event::Opened { .. }));
    assert_eq!(opened, dialled, "observers are told of them");
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_the_burst_dials() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let client = client(&net, PoolConfig::new(), &Recorder::default());
    burst(&client, URL, 1).await;
    sleep(10 * MINUTE).await;
    assert_eq!((net.connections(), net.open()), (1, 0));
}

/// Answers each request, says how many seconds it keeps connections if `announced` says so, and closes those that are idle for `keeps`,
/// used or not.
async fn serve_for(keeps: Duration, announced: Option<u64>, mut stream: DuplexStream) {
    let header = announced.map_or(String::new(), |seconds| format!("keep-alive: timeout={seconds}\r\n"));
    let answer = format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\nok");
    while let Ok(true) = timeout(keeps, request(&mut stream)).await {
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_connections_for_five_seconds_has_them_replaced_on_time() {
    let net = ScriptedNet::new(|_, stream| serve_for(5 * SECOND, Some(5), stream));
    let client = client(&net, keeps(3), &Recorder::default());
    burst(&client, URL, 1).await;
    sleep(ms(50)).await;
    let dialled = net.connections();
    for _ in 0..600 {
        sleep(ms(100)).await;
        assert!(client.pool_stats().idle >= 3 && (3..=6).contains(&net.open()), "{:?}", client.pool_stats());
    }
    let stats = client.pool_stats();
    assert_eq!((stats.closed, stats.closed_by(CloseCause::Peer)), (stats.closed_by(CloseCause::Replaced), 0));
    let replaced = net.connections() - dialled;
    assert!((3 * 60 / 4..=3 * 60 / 3).contains(&replaced), "{replaced}");
    burst(&client, URL, 3).await;
    assert_eq!(net.connections() - dialled, replaced);
}

/// A network that can be down. It counts the dials.
#[derive(Clone)]
struct Outage {
    net: ScriptedNet,
    is_down: Arc<AtomicBool>,
    dials: Arc<AtomicUsize>,
}

impl Outage {
    fn new() -> Self {
        let is_down = Arc::new(AtomicBool::new(false));
        let seen = is_down.clone();
        let net = ScriptedNet::new(move |_, mut stream| {
            let is_down = seen.clone();
            async move {
                while !is_down.load(Ordering::SeqCst) {
                    match timeout(ms(100), request(&mut stream)).await {
                        Ok(true) => drop(stream.write_all(OK).await),
                        Ok(false) => return,
                        Err(_) => {}
                    }
                }
            }
        });
        Self { net, is_down, dials: Arc::default() }
    }

    fn client(&self, pool: PoolConfig) -> Client {
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        Client::builder().no_proxy().dns_resolver(resolver).transport(self.clone()).pool(pool).build().unwrap()
    }

    /// Ends all connections and refuses others, or allows them again.
    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
        self.dials.store(0, Ordering::SeqCst);
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::SeqCst)
    }
}

impl Transport for Outage {
    fn connect(&self, address: std::net::SocketAddr) -> Connecting<'_> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) });
        }
        self.net.connect(address)
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_down_for_five_minutes_is_dialled_a_few_times_and_kept_warm_again() {
    let outage = Outage::new();
    let client = outage.client(keeps(10));
    burst(&client, URL, 1).await;
    sleep(MINUTE).await;
    assert_eq!(client.pool_stats().idle, 10);
    outage.set_down(true);
    sleep(5 * MINUTE).await;
    assert_eq!(client.pool_stats().idle, 0);
    let dials = outage.dials();
    assert!((1 + 6..=10 + 14).contains(&dials), "a few as connections close, and then one after each pause: {dials}");
    outage.set_down(false);
    let start = Instant::now();
    while client.pool_stats().idle < 10 {
        sleep(ms(100)).await;
    }
    assert!(start.elapsed() <= 62 * SECOND, "{:?}", start.elapsed());
    assert_eq!(outage.dials(), 10, "one, and when that has lasted for a second, the others");
}

#[tokio::test(start_paused = true)]
async fn a_request_during_an_outage_dials_at_once_and_its_success_ends_the_pause() {
    let outage = Outage::new();
    let client = outage.client(keeps(5));
    burst(&client, URL, 1).await;
    sleep(MINUTE).await;
    outage.set_down(true);
    sleep(5 * MINUTE).await;
    outage.set_down(false);
    let start = Instant::now();
    burst(&client, URL, 1).await;
    assert_eq!(start.elapsed(), ms(10), "the request does not wait for the pause");
    sleep(ms(50)).await;
    assert_eq!(client.pool_stats().idle, 5);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_it() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 50));
    let client = client(&net, keeps(5), &Recorder::default());
    burst(&client, URL, 1).await;
    sleep(MINUTE).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { get(&client, URL).await }
    });
    sleep(ms(10)).await;
    let dialled = net.connections();
    client.drain().await;
    assert_eq!(call.await.unwrap().unwrap(), "ok");
    sleep(10 * MINUTE).await;
    assert_eq!((net.connections(), net.open(), client.host_stats().len()), (dialled, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_client_ends_it() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let before = Handle::current().metrics().num_alive_tasks();
    let client = client(&net, keeps(5), &Recorder::default());
    burst(&client, URL, 1).await;
    sleep(MINUTE).await;
    let dialled = net.connections();
    drop(client);
    sleep(ms(10)).await;
    assert_eq!((net.open(), Handle::current().metrics().num_alive_tasks()), (0, before));
    sleep(10 * MINUTE).await;
    assert_eq!(net.connections(), dialled);
}

#[tokio::test(start_paused = true)]
async fn connections_that_the_program_closes_come_back() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let client = client(&net, keeps(5), &Recorder::default());
    assert_eq!(client.warm_up(URL, 1).await.unwrap(), 1);
    sleep(ms(50)).await;
    assert_eq!(client.pool_stats().idle, 5, "warming up makes the host known");
    client.close_idle();
    sleep(ms(50)).await;
    assert_eq!((client.pool_stats().idle, client.pool_stats().closed_by(CloseCause::Program)), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_connection_holds() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let client = client(&net, keeps(1).max_connections_per_host(1).max_connections(1), &Recorder::default());
    burst(&client, URL, 20).await;
    for _ in 0..6_000 {
        sleep(ms(100)).await;
        assert!(net.open() <= 1);
    }
    assert_eq!(client.pool_stats().idle, 1);
    let dialled = net.connections();
    burst(&client, URL, 20).await;
    assert_eq!(net.connections(), dialled);
}

#[tokio::test(start_paused = true)]
async fn requests_that_hold_all_connections_have_others_opened_beside_them() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5_000));
    let client = client(&net, keeps(2), &Recorder::default());
    let call = || {
        let client = client.clone();
        tokio::spawn(async move { get(&client, URL).await })
    };
    let slow: Vec<_> = (0..3).map(|_| call()).collect();
    sleep(ms(900)).await;
    assert_eq!((client.pool_stats().in_use, client.pool_stats().idle), (3, 0));
    sleep(ms(1_200)).await;
    assert_eq!((client.pool_stats().in_use, client.pool_stats().idle), (3, 2));
    for call in slow {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    sleep(10 * MINUTE).await;
    assert_eq!(client.pool_stats().idle, 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_hosts_that_it_is_set_for_are_kept_warm() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let pool = PoolConfig::new().for_host("api.test", HostLimits::new().min_idle(2));
    let resolver = FixedResolver::new().with("api.test", [v4(1)]).with("other.test", [v4(2)]);
    let client = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).pool(pool).build().unwrap();
    burst(&client, URL, 1).await;
    burst(&client, "http://other.test/", 1).await;
    sleep(10 * MINUTE).await;
    let hosts: Vec<_> = client.host_stats().iter().map(|(host, stats)| (host.to_string(), stats.idle)).collect();
    assert_eq!(hosts, [("api.test:80".to_owned(), 2)]);
}

#[test]
fn a_number_above_a_limit_of_idle_connections_is_refused() {
    let refused = |pool: PoolConfig| {
        let error = Client::builder().pool(pool).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
        error.to_string()
    };
    let expected = "build a client: min_idle_per_host is 5, and max_idle_per_host allows only 4";
    assert_eq!(refused(keeps(5).max_idle_per_host(4)), expected);
    assert!(refused(keeps(5).idle_timeout(ms(900))).ends_with("a limit ends them after 900ms"));
}

#[tokio::test]
async fn an_http2_host_has_as_many_connections_as_it_may_and_loses_none() {
    let server = HttpServer::start_as(true, |_| async { hyper::Response::new(full("ok")) }).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().http2_prior_knowledge().pool(keeps(9).max_http2_connections_per_host(3));
    let client = client.build().unwrap();
    burst(&client, &url, 1).await;
    until(&client, |stats| stats.idle == 3).await;
    burst(&client, &url, 50).await;
    until(&client, |stats| stats.idle == 3 && stats.dialling == 0).await;
    assert_eq!((server.accepted(), client.pool_stats().closed), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn connections_are_replaced_before_a_server_closes_them_as_it_announced() {
    let net = ScriptedNet::new(|_, stream| serve_for(2 * SECOND, Some(2), stream));
    let client = client(&net, keeps(3), &Recorder::default());
    burst(&client, URL, 1).await;
    until(&client, |stats| stats.idle == 3).await;
    until(&client, |stats| {
        assert!(stats.idle >= 3, "{stats:?}");
        stats.closed_by(CloseCause::Replaced) >= 6
    })
    .await;
    assert_eq!(client.pool_stats().closed_by(CloseCause::Peer), 0);
    let before = client.pool_stats().queue.entered;
    burst(&client, URL, 3).await;
    assert_eq!(client.pool_stats().queue.entered, before, "each request has a connection at once");
}

#[tokio::test(start_paused = true)]
async fn connections_are_replaced_before_a_server_closes_them_that_announces_nothing() {
    let net = ScriptedNet::new(|_, stream| serve_for(ms(1_500), None, stream));
    let client = client(&net, keeps(3), &Recorder::default());
    burst(&client, URL, 1).await;
    until(&client, |stats| stats.closed_by(CloseCause::Replaced) >= 6).await;
    let closed = client.pool_stats().closed_by(CloseCause::Peer);
    assert!((4..=9).contains(&closed), "two rounds of three, from which its timeout is learned: {closed}");
    let before = client.pool_stats().queue.entered;
    burst(&client, URL, 3).await;
    assert_eq!(client.pool_stats().queue.entered, before);
}

#[test]
fn after_the_end_of_a_runtime_the_next_request_begins_anew() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full("ok")) }).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().pool(keeps(3)).build().unwrap();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            burst(&client, &url, 1).await;
            until(&client, |stats| stats.idle == 3).await;
        });
        drop(runtime);
        assert_eq!(client.pool_stats().idle, 0);
    }
}
