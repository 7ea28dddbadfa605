//! Counts the memory of a client that calls a hundred thousand hosts: the claim of BENCHMARKS.md, section Many hosts.
//!
//! Alone in its process, because its allocator counts.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it counted")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use futures_util::StreamExt;
use speeddial::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ClientBuilder, ErrorKind, HedgePolicy, PoolConfig, RetryPolicy};
use support::canned::{self, Canned};
use support::settled;

/// The hosts. A build without optimisation would take minutes for a hundred thousand.
const HOSTS: u32 = if cfg!(debug_assertions) { 12_000 } else { 100_000 };
/// The hosts after which everything that is kept of hosts has reached its limit.
const FIRST_HOSTS: u32 = if cfg!(debug_assertions) { 6_000 } else { 20_000 };
/// The times that all hosts are called.
const ROUNDS: u32 = if cfg!(debug_assertions) { 1 } else { 10 };
/// The hosts that are called between two looks at the memory.
const STEP: u32 = 400;
/// The requests in flight.
const CONCURRENCY: usize = 16;
/// How much more memory the client may have in the end than after the first hosts, as a share of it. A hash table from which entries are
/// removed one by one may double once, at some time after it has reached its limit: 150 kB for one of 1,024 hosts.
const TOLERANCE: f64 = 0.05;
/// How many bytes a call of a round may add, in the median of the rounds.
const BYTES_A_CALL: f64 = 0.1;

const WITH_KEEP_ALIVE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nkeep-alive: timeout=60\r\ncontent-length: 2\r\n\r\nok";

/// What is at a host. It depends on the host's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Serves,
    /// The first of two addresses refuses connections.
    ServesAtSecond,
    /// Names an idle timeout in its answers.
    ServesWithKeepAlive,
    Refuses,
    HasNoName,
}

impl Kind {
    fn of(host: u32) -> Self {
        match host % 20 {
            0 => Self::HasNoName,
            1 => Self::Refuses,
            2..10 => Self::ServesAtSecond,
            10..15 => Self::ServesWithKeepAlive,
            _ => Self::Serves,
        }
    }
}

/// The names and addresses of all hosts, and the servers there. The address 10.x.y.z serves host x.y.z; 172.x.y.z refuses.
struct World;

impl World {
    fn url(host: u32) -> String {
        format!("http://service-{host}.internal/v1/items")
    }

    fn host(name: &str) -> u32 {
        name.trim_start_matches("service-").trim_end_matches(".internal").parse().unwrap()
    }

    fn address(first: u8, host: u32) -> IpAddr {
        let [_, x, y, z] = host.to_be_bytes();
        Ipv4Addr::new(first, x, y, z).into()
    }
}

impl Resolver for World {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        let host = Self::host(name);
        let error = |kind| Err(ResolveError::new(kind, name, family).with_negative_ttl(Some(Duration::from_secs(30))));
        let answer = |addresses: &[IpAddr]| Ok(Answer::new(addresses.to_vec(), Duration::from_secs(5), Source::Miss));
        let (serves, refuses) = (Self::address(10, host), Self::address(172, host));
        let answer = match (Kind::of(host), family) {
            (Kind::HasNoName, _) => error(ResolveErrorKind::NxDomain),
            (_, Family::V6) => error(ResolveErrorKind::NoData),
            (Kind::Refuses, Family::V4) => answer(&[refuses]),
            (Kind::ServesAtSecond, Family::V4) => answer(&[refuses, serves]),
            (_, Family::V4) => answer(&[serves]),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Transport for World {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        let IpAddr::V4(ip) = address.ip() else { panic!("an address of the resolver's") };
        let [first, x, y, z] = ip.octets();
        let kind = Kind::of(u32::from_be_bytes([0, x, y, z]));
        let stream = match (first, kind) {
            (10, Kind::ServesWithKeepAlive) => Ok(Box::new(Canned::answering(WITH_KEEP_ALIVE)) as Box<dyn Stream>),
            (10, _) => Ok(Box::new(Canned::default()) as Box<dyn Stream>),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        };
        Box::pin(std::future::ready(stream))
    }
}

/// Calls hosts, each of them once, and checks what comes of it.
async fn call(client: &Client, hosts: Range<u32>) {
    let requests = hosts.clone().map(|host| client.get(World::url(host)));
    let mut outcomes = client.send_all(requests).concurrency(CONCURRENCY).in_order();
    for host in hosts {
        let (_, outcome) = outcomes.next().await.unwrap();
        match (Kind::of(host), outcome) {
            (Kind::HasNoName, Err(error)) => assert_eq!(error.kind(), ErrorKind::Resolve, "{error}"),
            (Kind::Refuses, Err(error)) => assert_eq!(error.kind(), ErrorKind::Connect, "{error}"),
            (kind, outcome) => assert_eq!(outcome.unwrap().bytes().await.unwrap(), "ok", "{kind:?}"),
        }
    }
    assert!(outcomes.next().await.is_none());
    settled(client).await;
    while client.pool_stats().closing > 0 {
        tokio::task::yield_now().await;
    }
}

/// A client, and the memory that it has.
struct Measured {
    runtime: tokio::runtime::Runtime,
    client: Option<Client>,
    builder: fn() -> ClientBuilder,
    /// The bytes that are allocated.
    size: i64,
}

impl Measured {
    fn new(builder: fn() -> ClientBuilder) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Self { runtime, client: None, builder, size: 0 }
    }

    /// Calls hosts and returns the most memory that the client had in between. Tables that forget their older half when they are full
    /// go up and down.
    fn most_memory(&mut self, hosts: Range<u32>) -> i64 {
        let steps = hosts.clone().step_by(STEP as usize).map(|first| first..hosts.end.min(first + STEP));
        let sizes = steps.map(|hosts| {
            let counted = measure(|| {
                let client = self
                    .client
                    .get_or_insert_with(|| self.runtime.block_on(async { (self.builder)().build().unwrap() }));
                self.runtime.block_on(call(client, hosts));
            });
            self.size += counted.bytes_current;
            self.size
        });
        sizes.max().unwrap()
    }
}

/// Calls all hosts, then all of them again and again. The memory of the client must stay the same.
fn memory_stays_the_same(settings: &str, builder: fn() -> ClientBuilder) {
    let start = Instant::now();
    let mut measured = Measured::new(builder);
    measured.most_memory(0..FIRST_HOSTS / 2);
    let after_first = measured.most_memory(FIRST_HOSTS / 2..FIRST_HOSTS);
    let mut rounds = vec![measured.most_memory(FIRST_HOSTS..HOSTS)];
    rounds.extend((1..ROUNDS).map(|_| measured.most_memory(0..HOSTS)));
    eprintln!("{settings}, {HOSTS} hosts, {ROUNDS} times each, {:.1?}:", start.elapsed());
    eprintln!("{after_first} bytes after {FIRST_HOSTS} hosts; at most, in each round: {rounds:?}");
    let client = measured.client.as_ref().unwrap();
    assert_eq!((client.pool_stats().idle, client.dns_stats().names), (1_024, 1_024), "both are at their limits");
    let most = rounds.iter().max().unwrap();
    let growth = (most - after_first) as f64 / after_first as f64;
    assert!(growth <= TOLERANCE, "{settings}: {after_first}, then {rounds:?}");
    let mut added: Vec<_> = rounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
    added.sort_unstable();
    if let Some(median) = added.get(added.len() / 2) {
        eprintln!("a round adds {median} bytes, in the median");
        assert!(
            *median as f64 / f64::from(HOSTS) <= BYTES_A_CALL,
            "{settings}: {added:?} bytes were added by the rounds"
        );
    }
}

/// Returns the builder of a client of the world, with the limits that it has by default where there are many descriptors.
fn builder() -> ClientBuilder {
    canned::builder().dns_resolver(World).transport(World).pool(PoolConfig::new().max_connections(4_096))
}

#[test]
fn hazard_memory_after_many_requests_to_many_hosts_is_that_after_few() {
    memory_stays_the_same("defaults", builder);
}

#[test]
fn hazard_retries_and_hedging_keep_no_memory_of_many_hosts() {
    memory_stays_the_same("retries and hedging", || {
        let backoff = Duration::from_millis(1);
        builder().retry(RetryPolicy::new().attempts(2).backoff(backoff, backoff)).hedge(HedgePolicy::new())
    });
}

/// Over TLS, on sockets: sessions, protocols and certificates of hosts are kept as well.
#[cfg(feature = "__tls")]
mod over_tls {
    use std::sync::mpsc;

    use speeddial::dns::CachedResolver;
    use speeddial::tls::TlsConfig;
    use support::certs::Authority;
    use support::tls_server::TlsServer;

    use super::*;

    /// The hosts of which a client of this test keeps something: fewer than by default, because handshakes are slow.
    const KEPT: usize = 100;
    /// The hosts that are called each time: more than any other limit, in a build without optimisation more than most of them.
    const HOSTS: u32 = if cfg!(debug_assertions) { 1_100 } else { 6_200 };
    /// What a host may leave behind, in bytes: less than a session. Buffers of connections are not all of the same size, and tables
    /// go up and down.
    const BYTES_A_HOST: i64 = 100;

    /// All names are the server's.
    struct Loopback;

    impl Resolver for Loopback {
        fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
            let answer = match family {
                Family::V4 => Ok(Answer::new([Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60), Source::Miss)),
                Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
            };
            Box::pin(std::future::ready(answer))
        }
    }

    /// Starts a server in a thread of its own, so that its memory does not count, and returns its address.
    fn serve(authority: &Authority, alpn: &[&str]) -> SocketAddr {
        let config = authority.server(&["*.hosts.internal"], alpn);
        let (address, started) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = TlsServer::start(config).await;
                address.send(server.address()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        started.recv().unwrap()
    }

    #[test]
    fn hazard_many_hosts_over_tls_leave_nothing_behind() {
        let authority = Authority::new();
        let ports = ["h2", "http/1.1"].map(|protocol| serve(&authority, &[protocol]).port());
        let url = |host: u32| format!("https://{host}.hosts.internal:{}/", ports[host as usize % 2]);
        let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
        let builder = Client::builder()
            .no_proxy()
            .dns_cache(CachedResolver::builder().max_names(KEPT).build(Loopback))
            .pool(PoolConfig::new().max_idle(KEPT))
            .tls(tls.session_cache(KEPT).prepare_in_background(false));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async { builder.build().unwrap() });
        let call = |hosts: Range<u32>| {
            measure(|| {
                runtime.block_on(async {
                    let requests = hosts.map(|host| client.get(url(host)));
                    let mut answers = client.send_all(requests).concurrency(8);
                    while let Some((_, answer)) = answers.next().await {
                        answer.unwrap().bytes().await.unwrap();
                    }
                    settled(&client).await;
                    while client.pool_stats().closing > 0 {
                        tokio::task::yield_now().await;
                    }
                });
            })
        };
        let first = call(0..HOSTS).bytes_current;
        // A step of a table is in one of them, a leak would be in both.
        let grown = [1, 2].map(|turn| call(turn * HOSTS..(turn + 1) * HOSTS).bytes_current);
        eprintln!("over TLS: {first} bytes after {HOSTS} hosts; as many others, twice, added {grown:?}");
        assert_eq!(client.pool_stats().idle, KEPT);
        assert!(
            grown.iter().any(|grown| *grown <= i64::from(HOSTS) * BYTES_A_HOST),
            "{first} bytes, and {grown:?} more"
        );
    }
}
