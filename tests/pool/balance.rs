//! Requests balanced over the addresses of a name: shares, slow and failing servers, changes of DNS, and what is not balanced.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use speeddial::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use speeddial::pool::{AddressState, AddressStats, Ejection, FollowDns, HostLimits};
use speeddial::settings::{Addresses, HostConfig};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ClientBuilder, PoolConfig, Proxy};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep};

use super::common::{OK, URL, get, ms, request};
use support::http_server::HttpServer;
use support::{full, v4};

/// Servers in memory, each with a latency, and a part of its requests that it fails.
#[derive(Clone, Default)]
struct Servers(Arc<Mutex<HashMap<IpAddr, Server>>>);

#[derive(Clone, Copy)]
struct Server {
    think: u64,
    /// Every request with a number that this divides fails.
    fails: Option<u64>,
    requests: u64,
    /// True if it closes connections in place of answers.
    is_cut: bool,
}

const FAILED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

impl Servers {
    /// Returns `count` servers that answer after 20 ms.
    fn new(count: u8) -> Self {
        let servers = Self::default();
        (1..=count).for_each(|last| servers.set(last, 20, None));
        servers
    }

    fn set(&self, last: u8, think: u64, fails: Option<u64>) {
        self.0.lock().unwrap().insert(v4(last), Server { think, fails, requests: 0, is_cut: false });
    }

    /// Has a server close its connections under the requests from now on.
    fn cut(&self, last: u8) {
        self.0.lock().unwrap().get_mut(&v4(last)).unwrap().is_cut = true;
    }

    /// Counts a request. Returns the time until its answer, and true if it fails.
    fn count(&self, ip: IpAddr) -> (u64, bool) {
        let mut servers = self.0.lock().unwrap();
        let server = servers.get_mut(&ip).expect("a server of the test");
        server.requests += 1;
        (server.think, server.fails.is_some_and(|every| server.requests.is_multiple_of(every)))
    }

    async fn serve(self, ip: IpAddr, mut stream: DuplexStream) {
        while request(&mut stream).await {
            let (think, has_failed) = self.count(ip);
            if self.0.lock().unwrap()[&ip].is_cut {
                return;
            }
            sleep(ms(think)).await;
            if stream.write_all(if has_failed { FAILED } else { OK }).await.is_err() {
                return;
            }
        }
    }

    /// Returns the number of requests of each server since the last time, and counts from zero.
    fn take(&self) -> Vec<u64> {
        let mut servers = self.0.lock().unwrap();
        let mut counts: Vec<_> =
            servers.iter_mut().map(|(ip, server)| (*ip, std::mem::take(&mut server.requests))).collect();
        counts.sort_unstable();
        counts.into_iter().map(|(_, count)| count).collect()
    }
}

/// A round trip to each server takes 10 ms. Other addresses refuse connections.
impl Transport for Servers {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            sleep(ms(10)).await;
            if !self.0.lock().unwrap().contains_key(&address.ip()) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, far) = tokio::io::duplex(64 * 1024);
            tokio::spawn(self.clone().serve(address.ip(), far));
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// DNS whose answer the test changes. It is valid for a second.
#[derive(Clone)]
struct ChangingDns(Arc<Mutex<Vec<IpAddr>>>);

impl ChangingDns {
    fn new(count: u8) -> Self {
        Self(Arc::new(Mutex::new((1..=count).map(v4).collect())))
    }

    fn set(&self, ips: impl IntoIterator<Item = u8>) {
        *self.0.lock().unwrap() = ips.into_iter().map(v4).collect();
    }
}

impl Resolver for ChangingDns {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            if family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            Ok(Answer::new(self.0.lock().unwrap().clone(), ms(1_000), Source::Miss))
        })
    }
}

fn spread() -> ClientBuilder {
    Client::builder().no_proxy().addresses(Addresses::Spread)
}

fn balanced(servers: &Servers, dns: &ChangingDns, pool: PoolConfig) -> Client {
    spread().dns_resolver(dns.clone()).transport(servers.clone()).pool(pool).build().unwrap()
}

/// Sends requests from `at_once` tasks for a time.
async fn load(client: &Client, at_once: usize, time: Duration) -> Vec<Duration> {
    let end = Instant::now() + time;
    let tasks = (0..at_once).map(|_| async {
        let mut times = Vec::new();
        while Instant::now() < end {
            let start = Instant::now();
            let _ = get(client, URL).await;
            times.push(start.elapsed());
        }
        times
    });
    join_all(tasks).await.concat()
}

fn assert_equal(counts: &[u64]) {
    let share = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let is_fair = |count: &u64| (0.9..=1.1).contains(&(*count as f64 / share));
    assert!(counts.iter().all(is_fair), "{counts:?}");
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn requests_are_shared_equally_also_those_that_follow_each_other() {
    for at_once in [1, 20] {
        let (servers, dns) = (Servers::new(10), ChangingDns::new(10));
        let client = balanced(&servers, &dns, PoolConfig::new());
        load(&client, at_once, SECOND).await;
        servers.take();
        load(&client, at_once, if at_once == 1 { 180 * SECOND } else { 18 * SECOND }).await;
        assert_equal(&servers.take());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_does_not_slow_the_others_requests_down() {
    let p99_with = async |count: u8, think: u64| {
        let (servers, dns) = (Servers::new(count), ChangingDns::new(count));
        servers.set(count, think, None);
        let client = balanced(&servers, &dns, PoolConfig::new());
        load(&client, 20, SECOND).await;
        servers.take();
        let times = load(&client, 20, 6 * SECOND).await;
        (p99(times), servers.take())
    };
    let (without, _) = p99_with(9, 20).await;
    let (with, counts) = p99_with(10, 200).await;
    assert!(with <= without.mul_f64(1.5), "{with:?} with the slow server, {without:?} without");
    assert_equal(&counts[..9]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_half_is_ejected_probed_and_used_again() {
    let (servers, dns) = (Servers::new(10), ChangingDns::new(10));
    let client = balanced(&servers, &dns, PoolConfig::new().ejection(Ejection::new().base_time(2 * SECOND)));
    let state = || state_of(&client, 4).map(|stats| stats.state);
    load(&client, 10, SECOND).await;
    servers.set(4, 20, Some(2));
    let start = Instant::now();
    while state() == Some(AddressState::InUse) {
        load(&client, 10, ms(50)).await;
    }
    assert!(start.elapsed() < 2 * SECOND, "{:?}", start.elapsed());
    assert_eq!(state(), Some(AddressState::Ejected));
    // The requests that it had by then are over, and only a probe follows.
    servers.take();
    load(&client, 10, ms(1_500)).await;
    assert_eq!(servers.take()[3], 0);
    servers.set(4, 20, None);
    load(&client, 10, SECOND).await;
    assert_eq!(state(), Some(AddressState::InUse), "the probe succeeded");
    assert!((1..15).contains(&servers.take()[3]), "its share grows slowly");
    load(&client, 10, 10 * SECOND).await;
    servers.take();
    load(&client, 10, 20 * SECOND).await;
    assert_equal(&servers.take());
}

/// Returns the statistics of an address of the test's host.
fn state_of(client: &Client, last: u8) -> Option<AddressStats> {
    let hosts = client.address_stats();
    let (_, addresses) = hosts.into_iter().next()?;
    addresses.into_iter().find(|stats| stats.address.ip() == v4(last))
}

#[tokio::test(start_paused = true)]
async fn ejection_can_be_turned_off_for_a_host() {
    for (pool, expected) in [
        (PoolConfig::new().for_host("api.test", HostLimits::new().ejection(Ejection::off())), AddressState::InUse),
        (PoolConfig::new().ejection(Ejection::off()).for_host("api.test", HostLimits::new()), AddressState::InUse),
        (
            PoolConfig::new()
                .ejection(Ejection::off())
                .for_host("api.test", HostLimits::new().ejection(Ejection::new())),
            AddressState::Ejected,
        ),
    ] {
        let (servers, dns) = (Servers::new(3), ChangingDns::new(3));
        servers.set(2, 20, Some(1));
        let client = balanced(&servers, &dns, pool);
        load(&client, 3, 2 * SECOND).await;
        assert_eq!(state_of(&client, 2).unwrap().state, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_balanced_by_a_reconfiguration_learns_of_new_addresses() {
    let (servers, dns) = (Servers::new(3), ChangingDns::new(2));
    let builder = Client::builder().no_proxy().dns_resolver(dns.clone()).transport(servers.clone());
    let client = builder.pool(PoolConfig::new().follow_dns(FollowDns::Off)).build().unwrap();
    let spread = HostConfig::new().addresses(Addresses::Spread);
    client.reconfigure(|to| to.for_host("api.test", spread)).unwrap();
    load(&client, 4, SECOND).await;
    dns.set(1..=3);
    load(&client, 4, 3 * SECOND).await;
    servers.take();
    load(&client, 4, 5 * SECOND).await;
    assert_equal(&servers.take());
}

#[tokio::test(start_paused = true)]
async fn a_new_address_has_its_share_within_a_second_and_one_that_left_gets_nothing_more() {
    let (servers, dns) = (Servers::new(11), ChangingDns::new(10));
    let client = balanced(&servers, &dns, PoolConfig::new());
    load(&client, 20, 2 * SECOND).await;
    dns.set(2..=11);
    // The answer is valid for a second, and the share counts from a second after the next one.
    let learned = async {
        while state_of(&client, 11).is_none() {
            sleep(ms(1)).await;
        }
        Instant::now()
    };
    let (learned, _) = futures_util::future::join(learned, load(&client, 20, ms(1_100))).await;
    servers.take();
    load(&client, 20, SECOND - learned.elapsed().min(SECOND)).await;
    servers.take();
    load(&client, 20, 5 * SECOND).await;
    let counts = servers.take();
    assert_eq!(counts[0], 0, "{counts:?}");
    assert_equal(&counts[1..]);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_refuses_connections_costs_no_request_its_time() {
    let (servers, dns) = (Servers::new(3), ChangingDns::new(4));
    let client = balanced(&servers, &dns, PoolConfig::new());
    load(&client, 6, SECOND).await;
    servers.take();
    let times = load(&client, 6, 6 * SECOND).await;
    assert_equal(&servers.take());
    assert_eq!(times.iter().max(), Some(&ms(20)), "none waits for a connection");
}

#[tokio::test(start_paused = true)]
async fn a_failed_connection_is_not_resent_to_the_same_address() {
    // Server 1 closes each connection at its second request.
    let (servers, dns) = (Servers::new(2), ChangingDns::new(2));
    let client = balanced(&servers, &dns, PoolConfig::new());
    load(&client, 2, SECOND).await;
    servers.set(1, 20, None);
    servers.cut(1);
    for _ in 0..20 {
        let response = client.get(URL).send().await.unwrap();
        assert_eq!(response.remote_addr().unwrap().ip(), v4(2));
        response.bytes().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn warming_up_opens_a_connection_to_each_address() {
    let (servers, dns) = (Servers::new(10), ChangingDns::new(10));
    let client = balanced(&servers, &dns, PoolConfig::new());
    assert_eq!(client.warm_up(URL, 10).await.unwrap(), 10);
    let (_, addresses) = client.address_stats().remove(0);
    assert_eq!(addresses.iter().map(|stats| stats.connections).collect::<Vec<_>>(), [1; 10]);
    let tables = speeddial_inspect::Recorder::new().snapshot().with_client(&client).tables;
    assert_eq!(tables.last().unwrap().title(), "Addresses");
}

#[tokio::test(start_paused = true)]
async fn hosts_behind_a_proxy_and_other_settings_of_addresses_are_not_balanced() {
    let (servers, dns) = (Servers::new(3), ChangingDns::new(3));
    let builder = |addresses| {
        Client::builder().no_proxy().dns_resolver(dns.clone()).transport(servers.clone()).addresses(addresses)
    };
    let proxied = builder(Addresses::Spread).proxy(Proxy::all("http://proxy.test:80").unwrap());
    for client in
        [proxied, builder(Addresses::Both), builder(Addresses::V4Only)].map(|builder| builder.build().unwrap())
    {
        load(&client, 2, SECOND).await;
        assert!(client.address_stats().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn limits_on_connections_hold_and_no_request_waits_without_need() {
    let (servers, dns) = (Servers::new(10), ChangingDns::new(10));
    let pool = PoolConfig::new().max_connections_per_host(4);
    let client = balanced(&servers, &dns, pool);
    let times = load(&client, 4, 3 * SECOND).await;
    let stats = client.pool_stats();
    assert!(stats.idle + stats.in_use <= 4 && times[1..].iter().all(|time| *time <= ms(50)), "{stats:?}");
    for pool in [PoolConfig::new().max_idle(0), PoolConfig::new().max_idle_per_host(1)] {
        let client = balanced(&servers, &dns, pool);
        load(&client, 4, SECOND).await;
        let stats = client.pool_stats();
        assert!(stats.opened <= 210, "a connection for each request at most: {stats:?}");
    }
}

/// Servers on real sockets behind one name: their addresses, and the number of requests of each.
struct RealServers {
    servers: Vec<HttpServer>,
    counts: Vec<Arc<std::sync::atomic::AtomicU64>>,
}

impl RealServers {
    /// Starts servers, each with its time to answer.
    fn start(is_http2: bool, thinks: &[u64]) -> Self {
        let mut started = Self { servers: Vec::new(), counts: Vec::new() };
        for think in thinks {
            let (count, think) = (Arc::new(std::sync::atomic::AtomicU64::new(0)), ms(*think));
            let counter = count.clone();
            let handler = move |_| {
                let counter = counter.clone();
                async move {
                    counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    sleep(think).await;
                    speeddial::http::Response::new(full("ok"))
                }
            };
            started.servers.push(HttpServer::start_as(is_http2, handler).unwrap());
            started.counts.push(count);
        }
        started
    }

    fn client(&self, is_http2: bool) -> Client {
        let addresses: Vec<_> = self.servers.iter().map(HttpServer::address).collect();
        let builder = spread().resolve_to_addrs("api.test", &addresses);
        if is_http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap()
    }

    fn requests(&self) -> u64 {
        self.counts.iter().map(|count| count.load(std::sync::atomic::Ordering::SeqCst)).sum()
    }

    fn take(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.swap(0, std::sync::atomic::Ordering::SeqCst)).collect()
    }
}

/// Each server has about as many requests at a time as the others, so a slow one gets few of them. There is room for what a busy machine adds
/// to the times of some servers: the tests in paused time have the shares and the times.
#[tokio::test]
async fn equal_servers_on_sockets_get_equal_shares_and_a_slow_one_few_requests() {
    for is_http2 in [false, true] {
        let servers = RealServers::start(is_http2, &[100, 100, 100, 100, 100, 1_000]);
        let client = servers.client(is_http2);
        load(&client, 20, ms(500)).await;
        servers.take();
        // In one go: where requests begin together, each server gets some of them, the slow one too.
        let times = Mutex::new([Duration::ZERO; 6]);
        let callers = (0..20).map(|_| async {
            while servers.requests() < 1_000 {
                let start = Instant::now();
                let response = client.get(URL).send().await.unwrap();
                let is_its = |server: &HttpServer| response.remote_addr() == Some(server.address());
                let server = servers.servers.iter().position(is_its).unwrap();
                assert_eq!(response.bytes().await.unwrap(), "ok");
                times.lock().unwrap()[server] += start.elapsed();
            }
        });
        join_all(callers).await;
        let (counts, times) = (servers.take(), times.into_inner().unwrap());
        let (fewest, most) = (counts[..5].iter().min().unwrap(), counts[..5].iter().max().unwrap());
        let is_slow_one_spared = counts[5] < *fewest && times[5] <= times[..5].iter().max().unwrap().mul_f64(2.5);
        assert!(*most <= fewest * 2 && is_slow_one_spared, "HTTP/2: {is_http2}: {counts:?} in {times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn live_connections_serve_while_the_name_has_no_addresses() {
    let (servers, dns) = (Servers::new(2), ChangingDns::new(2));
    let client = balanced(&servers, &dns, PoolConfig::new());
    load(&client, 2, 3 * SECOND).await;
    dns.set([]);
    for _ in 0..50 {
        get(&client, URL).await.unwrap();
        sleep(ms(100)).await;
    }
    dns.set(1..=2);
    load(&client, 2, 3 * SECOND).await;
    servers.take();
    load(&client, 2, 6 * SECOND).await;
    assert_equal(&servers.take());
}
