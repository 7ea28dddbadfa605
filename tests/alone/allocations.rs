//! Counts the allocations of the warm paths and the memory of names and connections: the claim of BENCHMARKS.md, section Allocations.
//!
//! Alone in its process, because its allocator counts.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it counted")]

use std::collections::HashSet;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use allocation_counter::measure;
use bytes::Bytes;
use futures_util::future::join_all;
use hickory_proto::op::{Message, Query};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use speeddial::dns::{
    Answer, CachedResolver, Family, HickoryResolver, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source,
};
use speeddial::url::Url;
use speeddial::{Client, PoolConfig};
use speeddial_inspect::Recorder;
use support::canned;
use support::dns_server::{add_address, respond};
use support::http_server::HttpServer;

/// A resolver that answers at once with one address in each family. Names that begin with `none` do not exist.
struct Instantly;

impl Resolver for Instantly {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        let address: IpAddr = match family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        let answer = match name.starts_with("none") {
            true => Err(ResolveError::new(ResolveErrorKind::NxDomain, name, family)),
            false => Ok(Answer::new([address], Duration::from_secs(3_600), Source::Miss)),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// Returns a name of the length that names of internal services have.
fn name(number: usize) -> String {
    format!("service-{number:07}.internal")
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future was pending"),
    }
}

#[test]
fn a_dns_hit_allocates_nothing_and_does_not_wait() {
    let cache = CachedResolver::new(Instantly);
    cache.pin("pinned.test", [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    runtime().block_on(async {
        cache.lookup("api.test", Family::V4).await.unwrap();
        cache.lookup("none.test", Family::V4).await.unwrap_err();
    });
    let counted = measure(|| {
        for _ in 0..1_000 {
            assert!(at_once(cache.lookup("api.test", Family::V4)).is_ok());
            assert!(at_once(cache.lookup("none.test", Family::V4)).is_err());
            assert!(at_once(cache.lookup("pinned.test", Family::V4)).is_ok());
            cache.touch("api.test");
        }
    });
    assert_eq!(counted.count_total, 0);
}

/// Returns the bytes that a full cache holds for each name.
fn bytes_a_name(names: usize) -> u64 {
    let runtime = runtime();
    let cache = CachedResolver::builder().max_names(names).build(Instantly);
    let counted = measure(|| {
        runtime.block_on(async {
            for number in 0..names {
                for family in Family::BOTH {
                    cache.lookup(&name(number), family).await.unwrap();
                }
            }
        });
    });
    assert_eq!(cache.stats().names, names);
    u64::try_from(counted.bytes_current).unwrap() / names as u64
}

#[test]
fn a_cached_name_costs_at_most_400_bytes() {
    for names in [1_024, 100_000] {
        let bytes = bytes_a_name(names);
        println!("{names} names: {bytes} bytes a name");
        assert!(bytes <= 400, "{bytes} bytes per name with {names} names");
    }
}

#[test]
fn names_that_were_looked_up_leave_nothing_behind() {
    let runtime = runtime();
    let cache = CachedResolver::new(Instantly);
    let look_up = |numbers: std::ops::Range<usize>| {
        measure(|| {
            runtime.block_on(async {
                for number in numbers {
                    cache.lookup(&name(number), Family::V4).await.unwrap();
                }
            });
        })
    };
    // A build without optimisation takes a minute for a million.
    let names = if cfg!(debug_assertions) { 60_000 } else { 1_000_000 };
    look_up(0..2_000);
    let grown = look_up(2_000..names).bytes_current;
    assert!(grown.abs() < 64 * 1024, "{grown} bytes more than after 2,000 names");
    assert_eq!(cache.stats().names, 1_024);
}

fn both_families(question: &Query, response: &mut Message) {
    for address in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
        add_address(response, question, question.name(), address, 60);
    }
}

/// A DNS server on loopback that answers after 50 ms.
struct FarAway {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    /// The highest number of queries that were under way at once.
    most: Arc<AtomicUsize>,
}

impl FarAway {
    fn start() -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let answers = socket.try_clone().unwrap();
        let [queries, most, under_way] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let (road, arrivals) = mpsc::channel::<(Instant, bool, Vec<u8>, SocketAddr)>();
        let counter = queries.clone();
        let highest = most.clone();
        let travelling = under_way.clone();
        std::thread::spawn(move || {
            let mut packet = [0; 1500];
            let mut known = HashSet::new();
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                // On a busy machine a query is sent once more, as the same bytes.
                let is_new = known.insert(packet[..length].to_vec());
                if is_new {
                    counter.fetch_add(1, Ordering::SeqCst);
                    highest.fetch_max(travelling.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                }
                let response = respond(&both_families, &packet[..length]);
                let due = Instant::now() + Duration::from_millis(50);
                if road.send((due, is_new, response.unwrap(), peer)).is_err() {
                    return;
                }
            }
        });
        std::thread::spawn(move || {
            for (due, is_new, response, peer) in arrivals {
                // This wait is the distance of 50 ms.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                under_way.fetch_sub(usize::from(is_new), Ordering::SeqCst);
                answers.send_to(&response, peer).unwrap();
            }
        });
        Self { address, queries, most }
    }
}

#[test]
fn hazard_ten_thousand_names_at_once_are_resolved_with_bounded_queries_and_memory() {
    let server = FarAway::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The default timeouts are too short for an unoptimised build on a busy machine.
    let ample = Duration::from_secs(600);
    let resolver = HickoryResolver::with_servers([server.address]).with_try_timeout(ample).with_total_timeout(ample);
    let cache = CachedResolver::builder().max_names(20_000).query_timeout(ample).build(resolver);
    let start = Instant::now();
    // On a busy machine lookups take more than a second for want of a processor, and beyond 512 of these the resolver gives up.
    let given_up = Arc::new(AtomicUsize::new(0));
    let counted = measure(|| {
        runtime.block_on(async {
            let lookups: Vec<_> = (0..10_000)
                .map(|number| {
                    let (cache, given_up) = (cache.clone(), given_up.clone());
                    tokio::spawn(async move {
                        let name = name(number);
                        let (cache, name, given_up) = (&cache, &name, &given_up);
                        let both = Family::BOTH.map(|family| async move {
                            while let Err(error) = cache.lookup(name, family).await {
                                assert!(format!("{error:?}").contains("too many other lookups are slow"), "{error:?}");
                                given_up.fetch_add(1, Ordering::SeqCst);
                                tokio::time::sleep(Duration::from_secs(1)).await;
                            }
                        });
                        futures_util::future::join_all(both).await;
                    })
                })
                .collect();
            for lookup in lookups {
                lookup.await.unwrap();
            }
        });
    });
    let given_up = given_up.load(Ordering::SeqCst);
    let [queries, most] = [&server.queries, &server.most].map(|count| count.load(Ordering::SeqCst));
    println!("{:?}, {queries} queries, at most {most} at once, at most {} bytes", start.elapsed(), counted.bytes_max);
    assert!(queries <= 20_000 + given_up, "{queries} queries, and {given_up} lookups were made again");
    // 256, and on a busy machine as many again that have given their turn away after a second.
    assert!(most <= 2 * 256, "{most} at once");
    assert!(counted.bytes_max < 100 << 20, "{} bytes", counted.bytes_max);
}

/// Returns the bytes allocated for each idle connection that has carried a request.
fn bytes_a_connection(length: usize, open: impl AsyncFnOnce(SocketAddr, usize) -> Box<dyn std::any::Any>) -> u64 {
    const CONNECTIONS: usize = 200;
    let body =
        move || Full::new(vec![b'x'; length].into()).map_err(|error: std::convert::Infallible| match error {}).boxed();
    let all = Arc::new(tokio::sync::Barrier::new(CONNECTIONS));
    let server = HttpServer::start(move |_| {
        let all = all.clone();
        async move {
            // All requests are in flight at once, each on its own connection.
            let _ = tokio::time::timeout(support::LONG, all.wait()).await;
            hyper::Response::new(body())
        }
    });
    let address = server.as_ref().unwrap().address();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut kept = None;
    // Allocations are counted per thread, so those of the server do not count.
    let bytes = measure(|| kept = Some(runtime.block_on(open(address, CONNECTIONS)))).bytes_current;
    assert_eq!(server.unwrap().connections(), CONNECTIONS);
    drop(kept);
    bytes.unsigned_abs() / CONNECTIONS as u64
}

#[test]
fn a_hundred_thousand_requests_leave_nothing_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = canned::builder().build().unwrap();
    let url = canned::url();
    let requests = |count: usize| {
        measure(|| {
            runtime.block_on(async {
                for _ in 0..count {
                    canned::get(&client, &url).await;
                }
            });
        })
    };
    // A build without optimisation takes half a minute for them.
    let count = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
    requests(1_000);
    let tasks = runtime.metrics().num_alive_tasks();
    let grown = requests(count).bytes_current;
    assert!(grown.abs() < 16 * 1024, "{grown} bytes more than after 1,000 requests");
    assert_eq!((client.pool_stats().opened, runtime.metrics().num_alive_tasks()), (1, tasks));
}

/// More than hyper: the request with its response, and its trace. Less: the list that `collect` makes, and those of a header map that grows.
/// A URL that the thread has not used twice is copied, and its target too.
#[test]
fn a_warm_get_makes_an_allocation_less_than_hyper_and_at_most_one_more_with_another_url() {
    const ROUNDS: usize = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = canned::builder().build().unwrap();
    let url = canned::url();
    // That of most calls: one that comes late on a busy machine notes that.
    let median = |mut counts: Vec<u64>| {
        counts.sort_unstable();
        counts[counts.len() / 2]
    };
    let gets = |urls: &[Url]| {
        let count = |url| measure(|| runtime.block_on(canned::get(&client, url))).count_total;
        median(urls.iter().map(count).collect())
    };
    let same = vec![url.clone(); ROUNDS];
    gets(&same);
    let others: Vec<_> = (0..ROUNDS).map(|number| url.join(&number.to_string()).unwrap()).collect();
    let [ours, with_others] = [gets(&same), gets(&others)];
    let mut sender = runtime.block_on(async {
        let stream = TokioIo::new(canned::Canned::default());
        let (sender, connection) = http1::handshake::<_, Empty<Bytes>>(stream).await.unwrap();
        tokio::spawn(connection);
        sender
    });
    let mut get = async || {
        sender.ready().await.unwrap();
        let request = hyper::Request::get("/v1/items").header("host", "api.test").body(Empty::new()).unwrap();
        sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
    };
    assert_eq!(runtime.block_on(get()), "ok");
    let bare = (0..ROUNDS).map(|_| measure(|| drop(runtime.block_on(get()))).count_total);
    let bare = median(bare.collect());
    eprintln!(
        "a warm GET: {ours} allocations, with another URL each time: {with_others}, hyper's bare connection: {bare}"
    );
    assert!(ours < bare, "{ours} allocations, and hyper's {bare}");
    assert!(with_others <= bare + 1, "{with_others} allocations, and hyper's {bare}");
}

/// Includes the records of the pool. After a long body the connection must cost less than hyper's.
#[test]
fn an_idle_connection_costs_at_most_3_kib_more_than_hypers() {
    for (length, most) in [(2, 3_072), (1_000_000, 0)] {
        let (ours, bare) = idle_connections(length);
        eprintln!("an idle connection after {length} bytes: {ours} bytes, hyper's bare one: {bare}");
        assert!(ours < bare + most, "{ours} bytes, and hyper's {bare}");
    }
}

/// Returns the bytes of an idle connection of speeddial and of hyper.
fn idle_connections(length: usize) -> (u64, u64) {
    let ours = bytes_a_connection(length, async |address, connections| {
        let pool = PoolConfig::new().max_dials_per_host(connections);
        let client = Client::builder().no_proxy().pool(pool).build().unwrap();
        let url = format!("http://{address}/");
        client.warm_up(&url, connections).await.unwrap();
        let get = async || client.get(&url).send().await.unwrap().text().await.unwrap();
        join_all((0..connections).map(|_| get())).await;
        support::settled(&client).await;
        assert_eq!(client.pool_stats().idle, connections);
        Box::new(client) as Box<dyn std::any::Any>
    });
    let bare = bytes_a_connection(length, async |address, connections| {
        let connect = async || {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            let request = hyper::Request::get("/").header("host", "api.test").body(Empty::<Bytes>::new()).unwrap();
            sender.send_request(request).await.unwrap().into_body().collect().await.unwrap();
            sender
        };
        Box::new(join_all((0..connections).map(|_| connect())).await) as Box<dyn std::any::Any>
    });
    (ours, bare)
}

/// The recorder's documentation says 1 kB for a usual call. A call in several lists counts several times.
#[test]
fn a_recorder_keeps_at_most_2_kib_for_each_kept_call_however_long_its_path() {
    const ORIGINS: usize = 8;
    let recorder = Recorder::builder().calls(10).origins(ORIGINS).build();
    let runtime = runtime();
    runtime.block_on(async {
        let client = canned::builder().observer(recorder.clone()).build().unwrap();
        for number in 0..2_000 {
            let path = "x".repeat(if number % 2 == 0 { 5 } else { 20_000 });
            let url = format!("http://api.test:{}/{path}?secret={number}", 1_000 + number / 125);
            assert_eq!(client.get(url).send().await.unwrap().bytes().await.unwrap(), "ok");
        }
    });
    drop(runtime);
    let snapshot = recorder.snapshot();
    assert_eq!(snapshot.origins.len(), ORIGINS);
    let calls = snapshot.origins.iter().flat_map(|origin| &origin.calls);
    let kept: u64 = calls.map(|call| u64::from(call.is_recent) + u64::from(call.is_slow)).sum();
    let bytes = measure(|| drop(recorder)).bytes_current.unsigned_abs() / kept;
    eprintln!("a kept call of {kept}: {bytes} bytes");
    assert!((256..=2_048).contains(&bytes), "{bytes} bytes");
}

/// Allocations of the pool itself, without a request.
#[cfg(feature = "__bench")]
mod pool {
    use speeddial::benched::BenchedPool;
    use speeddial::origin::Origin;

    use super::*;

    fn origin() -> Origin {
        Origin::from_url(&"http://api.test/".parse().unwrap()).unwrap()
    }

    #[test]
    fn a_warm_lease_allocates_nothing() {
        let pool = BenchedPool::new(10);
        let origin = origin();
        let runtime = runtime();
        runtime.block_on(pool.wait(&origin)).give_back(std::time::Instant::now());
        let _entered = runtime.enter();
        let now = Instant::now();
        let counted = measure(|| (0..1_000).for_each(|_| pool.take(&origin, now).give_back(now)));
        assert_eq!(counted.count_total, 0);
    }

    #[test]
    fn a_waiting_request_costs_at_most_620_bytes() {
        const WAITING: u64 = 10_000;
        let pool = BenchedPool::new(1);
        let origin = origin();
        let runtime = runtime();
        let held = runtime.block_on(pool.wait(&origin));
        let _entered = runtime.enter();
        // The futures exist before the count starts; only what their first poll allocates is counted.
        let mut waiting: Vec<_> = (0..WAITING).map(|_| Box::pin(pool.wait(&origin))).collect();
        let mut context = Context::from_waker(Waker::noop());
        let begin = || waiting.iter_mut().for_each(|wait| assert!(wait.as_mut().poll(&mut context).is_pending()));
        let bytes = measure(begin).bytes_current.unsigned_abs() / WAITING;
        eprintln!("a request that waits: {bytes} bytes");
        assert!(bytes <= 620, "{bytes} bytes");
        drop(waiting);
        held.give_back(std::time::Instant::now());
    }
}
