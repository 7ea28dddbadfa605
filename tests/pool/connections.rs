//! The pool as a user meets it: its limits, its order, and peers that close when they like.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use socket2::SockRef;
use speeddial::dns::{Answer, Family, FixedResolver, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
use speeddial::trace::{CloseCause, Event, Limit};
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, ErrorKind, FollowDns, HostLimits, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use support::fake_net::{FakeNet, Host};
use support::h2_peer::Wire;
use support::h2_server::{End, H2Server};
use support::http_server::HttpServer;
use support::peer::{Over, Peer, Socket, read_head};
use support::recorder::Recorder;
use support::{full, v4};

const URL: &str = "http://api.test/";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client(wire: &Wire, pool: PoolConfig, recorder: &Recorder) -> Client {
    let resolver = FixedResolver::new().with("api.test", [v4(1)]);
    let builder = Client::builder().no_proxy().resolver(resolver).transport(wire.clone());
    builder.pool(pool).observer(recorder.clone()).build().unwrap()
}

async fn get(client: &Client, url: &str) -> speeddial::Result<String> {
    client.get(url).send().await?.text().await
}

/// Reads the head of a request; `false` at the end.
async fn request(stream: &mut DuplexStream) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// Answers each request after a while.
async fn serve(mut stream: DuplexStream, think: u64) {
    while request(&mut stream).await {
        sleep(ms(think)).await;
        if stream.write_all(OK).await.is_err() {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_ten_is_kept_and_two_hundred_are_served_in_order() {
    let wire = Wire::new(|_, stream| serve(stream, 20));
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new().max_connections_per_host(10), &recorder);
    let (order, watched) = (Arc::new(Mutex::new(Vec::new())), wire.clone());
    let call = |number: usize| {
        let (client, order, watched) = (client.clone(), order.clone(), watched.clone());
        async move {
            let response = client.get(URL).send().await.unwrap();
            assert!(watched.open() <= 10);
            order.lock().unwrap().push(number);
            let handle = response.timings_handle();
            assert_eq!(response.text().await.unwrap(), "ok");
            handle.timings()
        }
    };
    let timings = join_all((0..200).map(call)).await;
    assert!(order.lock().unwrap().is_sorted(), "first come, first served");
    assert_eq!(wire.connections(), 10);
    for (number, timings) in timings.iter().enumerate() {
        // Ten at a time, after the first ten have opened their connections.
        let turn = number as u64 / 10;
        let queued = if turn == 0 { 0 } else { 10 + turn * 20 };
        assert_eq!((timings.queue().as_millis() as u64, timings.total()), (queued, ms(10 + (turn + 1) * 20)));
    }
    let bound = |event: &Event| matches!(event, Event::Queued { limit: Limit::ConnectionsPerHost, .. });
    assert_eq!(recorder.count(bound), 190);
    let stats = client.pool_stats();
    assert_eq!((stats.queue_time.count(), stats.hold_time.count(), stats.reused), (200, 200, 190));
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_much_longer_than_the_others() {
    let wire = Wire::new(|number, stream| serve(stream, 5 + number as u64));
    let client = client(&wire, PoolConfig::new().max_connections_per_host(8), &Recorder::default());
    let caller = || async {
        let mut waits = Vec::new();
        for _ in 0..40 {
            let start = Instant::now();
            get(&client, URL).await.unwrap();
            waits.push(start.elapsed());
        }
        waits
    };
    let mut waits: Vec<_> = join_all((0..200).map(|_| caller())).await.into_iter().flatten().collect();
    waits.sort();
    assert_eq!(waits.len(), 8_000);
    assert!(waits[7_999] <= waits[4_000] * 3, "longest {:?}, median {:?}", waits[7_999], waits[4_000]);
}

#[tokio::test(start_paused = true)]
async fn hazard_ten_thousand_wait_for_a_hundred_connections_and_are_served_in_order() {
    let wire = Wire::new(|_, stream| serve(stream, 10));
    let client = client(&wire, PoolConfig::new().max_connections_per_host(100), &Recorder::default());
    let start = Instant::now();
    let call = || async {
        assert_eq!(get(&client, URL).await.unwrap(), "ok");
        start.elapsed()
    };
    let took = join_all((0..10_000).map(|_| call())).await;
    assert!(took.is_sorted());
    // 16 connections are dialled at a time; once these have proved worth it, in 25 ms, twice as many. From 50 ms on there are all, and
    // have 9,824 requests to serve.
    assert_eq!((took[9_999], wire.connections()), (ms(5 * 10 + 99 * 10), 100));
    // The longest wait is the last one's, at most 1.2 times the mean of the last tenth.
    let last: Duration = took[9_000..].iter().sum::<Duration>() / 1_000;
    assert!(took[9_999] <= last * 6 / 5);
}

#[tokio::test(start_paused = true)]
async fn three_thousand_at_once_are_all_served_cold_and_warm() {
    let wire = Wire::new(|_, stream| serve(stream, 100));
    let client = client(&wire, PoolConfig::new().max_connections(4_096), &Recorder::default());
    for round in 0..2 {
        let answers = join_all((0..3_000).map(|_| get(&client, URL))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == "ok"), "round {round}");
    }
    let stats = client.pool_stats();
    assert_eq!((stats.waiting, stats.dialling, stats.in_use), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_idle_connections_is_never_met_at_the_wrong_moment_for_long() {
    // It closes after 5 s, and is asked every 5 s, give or take 50 ms: 10,000 times.
    let wire = Wire::new(|_, mut stream| async move {
        while timeout(ms(5_000), request(&mut stream)).await == Ok(true) {
            stream.write_all(OK).await.unwrap();
        }
    });
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..10_000 {
        assert_eq!(get(&client, URL).await.unwrap(), "ok");
        sleep(ms(random.u64(4_950..=5_050))).await;
    }
    let retried = recorder.count(|event| matches!(event, Event::Retried { .. }));
    assert!(retried <= 2, "it learns: {retried} had to be sent again");
    assert!(client.pool_stats().closed_by(CloseCause::IdleTimeout) > 9_900, "a second before the server");
}

#[tokio::test(start_paused = true)]
async fn hazard_a_server_that_says_when_it_closes_is_left_before() {
    let wire = Wire::new(|_, mut stream| async move {
        let kept = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=5, max=2\r\n\r\nok";
        let last = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nkeep-alive: timeout=5, max=0\r\n\r\nok";
        for answer in [kept, last] {
            if timeout(ms(5_000), request(&mut stream)).await != Ok(true) {
                return;
            }
            stream.write_all(answer).await.unwrap();
        }
        assert!(!request(&mut stream).await, "it said that this was the last one");
    });
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    let post = async || client.post(URL).body("x").send().await.unwrap().text().await.unwrap();
    for (pause, connections) in [(0, 1), (0, 1), (0, 2), (3_999, 2), (0, 3), (4_001, 4), (4_999, 5)] {
        sleep(ms(pause)).await;
        assert_eq!((post().await.as_str(), wire.connections()), ("ok", connections), "after {pause} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_three_thousand_hosts_leave_nothing_behind() {
    let wire = Wire::new(|_, stream| serve(stream, 1));
    let names: Vec<_> = (0..3_000).map(|number| format!("h{number}.test")).collect();
    let resolver = names.iter().fold(FixedResolver::new(), |resolver, name| resolver.with(name, [v4(1)]));
    let pool = PoolConfig::new().max_connections(4_096).max_idle(4_096).idle_timeout(ms(500));
    let client = Client::builder().no_proxy().resolver(resolver).transport(wire.clone()).pool(pool).build().unwrap();
    let urls: Vec<_> = names.iter().map(|name| format!("http://{name}/")).collect();
    for answer in join_all(urls.iter().map(|url| get(&client, url))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!((wire.open(), client.host_stats().len()), (3_000, 3_000));
    sleep(ms(501)).await;
    assert_eq!((wire.open(), client.host_stats().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn hazard_who_waits_too_long_is_told_for_what() {
    let wire = Wire::new(|_, stream| serve(stream, 100_000));
    let pool = PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(500)).max_waiting(1);
    let client = client(&wire, pool, &Recorder::default());
    let first = tokio::spawn({
        let client = client.clone();
        async move { get(&client, URL).await }
    });
    sleep(ms(20)).await;
    let second = async { client.get(URL).send().await.unwrap_err() };
    let third = async {
        sleep(ms(1)).await;
        client.get(URL).send().await.unwrap_err()
    };
    let (second, third) = tokio::join!(second, third);
    let told = "wait for a connection to api.test:80: none became free within 500ms: \
                the host has all the connections it may have (500 ms = queue 500 ms, failed (pool))";
    assert_eq!((second.kind(), second.is_timeout(), second.to_string().as_str()), (ErrorKind::Pool, true, told));
    let told = "wait for a connection to api.test:80: the host has all the connections it may have, \
                and enough requests wait already";
    assert_eq!((third.kind(), third.is_timeout(), third.to_string().as_str()), (ErrorKind::Pool, false, told));
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_host_can_have_limits_of_its_own() {
    let wire = Wire::new(|_, stream| serve(stream, 10));
    let pool = PoolConfig::new().max_connections_per_host(4).for_host(".test", HostLimits::new().max_connections(2));
    let client = client(&wire, pool, &Recorder::default());
    join_all((0..20).map(|_| get(&client, URL))).await;
    assert_eq!(wire.connections(), 2);
    join_all((0..20).map(|_| get(&client, "http://192.0.2.9/"))).await;
    assert_eq!(wire.connections(), 2 + 4);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_body_nobody_wants_costs_the_connection_only_if_it_is_long_or_late() {
    // The length of the body, when its second half comes, and how many connections two requests take.
    for (length, late, connections) in [(2, 0, 1), (60_000, 0, 1), (60_000, 40, 1), (60_000, 60, 2), (70_000, 0, 2)] {
        let wire = Wire::new(move |_, mut stream| async move {
            while request(&mut stream).await {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                let (half, rest) = (vec![0; length / 2], vec![0; length - length / 2]);
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = stream.write_all(&half).await;
                sleep(ms(late)).await;
                let _ = stream.write_all(&rest).await;
            }
        });
        let client = client(&wire, PoolConfig::new().max_connections_per_host(1), &Recorder::default());
        for _ in 0..2 {
            drop(client.get(URL).send().await.unwrap());
        }
        assert_eq!(wire.connections(), connections, "{length} bytes, the half after {late} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_half_of_the_requests_are_cancelled_and_the_rest_does_not_notice() {
    for (limit, patience, at_once) in [(8, 3, 4_000), (4, 0, 2_000)] {
        let wire = Wire::new(|_, stream| serve(stream, 2));
        let client = client(&wire, PoolConfig::new().max_connections_per_host(limit), &Recorder::default());
        let call = |number: usize| {
            let client = client.clone();
            async move {
                match number % 2 {
                    0 => drop(timeout(ms(patience), get(&client, URL)).await),
                    _ => assert_eq!(get(&client, URL).await.unwrap(), "ok"),
                }
            }
        };
        join_all((0..at_once).map(call)).await;
        let start = Instant::now();
        for answer in join_all((0..100).map(|_| get(&client, URL))).await {
            assert_eq!(answer.unwrap(), "ok");
        }
        assert!(start.elapsed() < ms(200), "{:?}", start.elapsed());
        assert!(wire.open() <= limit);
    }
}

#[tokio::test(start_paused = true)]
async fn warm_connections_are_there_before_the_first_request() {
    let wire = Wire::new(|_, stream| serve(stream, 5));
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    assert_eq!(client.warm_up(URL, 7).await.unwrap(), 7);
    assert_eq!((wire.connections(), client.pool_stats().idle), (7, 7));
    let start = Instant::now();
    join_all((0..7).map(|_| get(&client, URL))).await;
    assert_eq!((start.elapsed(), wire.connections()), (ms(5), 7));
    assert_eq!(client.warm_up(URL, 3).await.unwrap(), 7, "there are enough");
    client.close_idle();
    sleep(ms(1)).await;
    assert_eq!((wire.open(), client.pool_stats().closed_by(CloseCause::Asked)), (0, 7));
    let error = client.warm_up("http://nowhere.test/", 2).await.unwrap_err();
    assert!(error.is_dns(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn drain_lets_five_hundred_end_and_nobody_begin() {
    let wire = Wire::new(|_, stream| serve(stream, 50));
    let client = client(&wire, PoolConfig::new().max_connections_per_host(100), &Recorder::default());
    let call = || {
        let client = client.clone();
        tokio::spawn(async move { get(&client, URL).await })
    };
    let calls: Vec<_> = (0..500).map(|_| call()).collect();
    sleep(ms(30)).await;
    assert!(timeout(ms(1), client.drain()).await.is_err(), "to give the wait up changes nothing");
    assert_eq!(get(&client, URL).await.unwrap_err().to_string(), "call api.test:80: the pool is being drained");
    client.drain().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    sleep(ms(1)).await;
    assert_eq!((wire.open(), client.pool_stats().closed), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn drain_gives_up_a_dial_that_nobody_waits_for() {
    let client = Client::builder().no_proxy().resolver(FixedResolver::new().with("api.test", [v4(1)]));
    let client = client.transport(FakeNet::new([(v4(1), Host::Silent)])).build().unwrap();
    assert!(timeout(ms(100), get(&client, URL)).await.is_err());
    assert_eq!(client.pool_stats().dialling, 1);
    let start = Instant::now();
    client.drain().await;
    assert_eq!((start.elapsed(), client.pool_stats().dialling), (ms(0), 0));
}

#[tokio::test(start_paused = true)]
async fn hazard_of_ten_thousand_that_wait_some_cancel_some_time_out_and_the_others_are_served_in_order() {
    let wire = Wire::new(|_, stream| serve(stream, 10));
    let pool = PoolConfig::new().max_connections_per_host(100).wait_timeout(ms(800));
    let client = client(&wire, pool, &Recorder::default());
    let start = Instant::now();
    let call = |number: u64| {
        let client = &client;
        async move {
            let patience = if number.is_multiple_of(4) { number % 700 } else { 100_000 };
            (timeout(ms(patience), get(client, URL)).await, start.elapsed())
        }
    };
    let ended = join_all((0..10_000).map(call)).await;
    let (mut served, mut late, mut gone) = (Vec::new(), Vec::new(), 0);
    for (answer, at) in ended {
        match answer {
            Ok(Ok(_)) => served.push(at),
            Ok(Err(error)) => late.push((error.to_string(), at)),
            Err(_) => gone += 1,
        }
    }
    assert!(served.is_sorted() && served.len() > 7_000, "{} served", served.len());
    assert!(gone > 1_000, "{gone} left");
    assert!(
        late.iter().all(|(error, at)| *at == ms(800) && error.contains("none became free within 800ms")),
        "{late:?}"
    );
    assert!(!late.is_empty());
    let stats = client.pool_stats();
    assert_eq!((stats.waiting, stats.in_use, stats.dialling), (0, 0, 0));
    assert!(wire.open() <= 100);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_connection_that_the_peer_closes_is_gone_from_the_books_without_a_request() {
    let wire = Wire::new(|_, mut stream| async move {
        request(&mut stream).await;
        stream.write_all(OK).await.unwrap();
        sleep(ms(100)).await;
    });
    let recorder = Recorder::default();
    let client = client(&wire, PoolConfig::new(), &recorder);
    get(&client, URL).await.unwrap();
    assert_eq!(client.pool_stats().idle, 1);
    sleep(ms(101)).await;
    assert_eq!((client.pool_stats().idle, client.pool_stats().closed_by(CloseCause::Peer)), (0, 1));
    assert_eq!(recorder.count(|event| matches!(event, Event::Closed { cause: CloseCause::Peer, .. })), 1);
}

#[tokio::test(start_paused = true)]
async fn hazard_a_body_in_chunks_or_read_in_part_that_is_dropped() {
    // How long the body is, in chunks or not, and how many connections two requests take.
    for (length, chunked, read, connections) in
        [(1_000, true, false, 1), (100_000, true, false, 2), (60_000, false, true, 1), (600_000, false, true, 2)]
    {
        let wire = Wire::new(move |_, mut stream| async move {
            while request(&mut stream).await {
                let body = vec![b'x'; length];
                let (head, tail) = match chunked {
                    true => (format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n"), "\r\n0\r\n\r\n"),
                    false => (format!("content-length: {length}\r\n\r\n"), ""),
                };
                for part in [b"HTTP/1.1 200 OK\r\n", head.as_bytes(), &body, tail.as_bytes()] {
                    let _ = stream.write_all(part).await;
                }
            }
        });
        let client = client(&wire, PoolConfig::new().max_connections_per_host(1), &Recorder::default());
        for _ in 0..2 {
            let mut response = client.get(URL).send().await.unwrap();
            if read {
                response.chunk().await.unwrap();
            }
        }
        assert_eq!(wire.connections(), connections, "{length} bytes, in chunks: {chunked}, read in part: {read}");
    }
}

/// Answers each query with the next set of addresses, for 2 s.
struct Turns {
    sets: Vec<Vec<u8>>,
    asked: AtomicUsize,
}

impl Resolve for Turns {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        Box::pin(async move {
            if family == Family::V6 {
                return Err(ResolveError::new(ResolveErrorKind::NoData, name, family));
            }
            let turn = self.asked.fetch_add(1, Ordering::SeqCst);
            let set = &self.sets[turn % self.sets.len()];
            let ips: Vec<_> = set.iter().map(|last| v4(*last)).collect();
            Ok(Answer::new(ips, ms(2_000), Source::Miss))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_rotate_close_nothing() {
    let twenty = (0..20).map(|last| vec![last]).collect();
    for sets in [vec![vec![1], vec![2]], vec![vec![1, 2], vec![3, 4], vec![5, 6]], twenty] {
        let wire = Wire::new(|_, stream| serve(stream, 5));
        let turns = Turns { sets, asked: AtomicUsize::new(0) };
        let client = Client::builder().no_proxy().resolver(turns).transport(wire.clone()).build().unwrap();
        for _ in 0..3_000 {
            get(&client, URL).await.unwrap();
            sleep(ms(95)).await;
        }
        assert_eq!((client.pool_stats().closed, wire.connections()), (0, 1), "five minutes, 150 answers");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_moves_takes_its_connections_along_as_it_is_told_to() {
    for (follow, stays) in
        [(FollowDns::AfterTwoTtls, Some(2_300..4_500)), (FollowDns::AtOnce, Some(1_800..2_100)), (FollowDns::Off, None)]
    {
        let wire = Wire::new(|_, stream| serve(stream, 5));
        let sets = std::iter::once(vec![1]).chain(vec![vec![2]; 999]).collect();
        let turns = Turns { sets, asked: AtomicUsize::new(0) };
        let (pool, recorder) = (PoolConfig::new().follow_dns(follow), Recorder::default());
        let builder = Client::builder().no_proxy().resolver(turns).transport(wire.clone()).pool(pool);
        let client = builder.observer(recorder.clone()).build().unwrap();
        let start = Instant::now();
        let mut moved = None;
        for _ in 0..600 {
            let response = client.get(URL).send().await.unwrap();
            if response.remote_addr().unwrap().ip() == v4(2) {
                moved.get_or_insert(start.elapsed().as_millis());
            }
            response.text().await.unwrap();
            sleep(ms(20)).await;
        }
        match stays {
            Some(stays) => assert!(moved.is_some_and(|at| stays.contains(&at)), "{follow:?}: {moved:?}"),
            None => assert_eq!(moved, None),
        }
        assert_eq!(client.pool_stats().closed_by(CloseCause::Dns), u64::from(moved.is_some()));
        let told = recorder.count(|event| matches!(event, Event::Closed { cause: CloseCause::Dns, .. }));
        assert_eq!(told, usize::from(moved.is_some()), "{follow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn hazard_a_connection_serves_again_only_if_both_sides_keep_it() {
    let cases: [(&'static [u8], usize); 5] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 1),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 3),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok", 1),
        (b"HTTP/1.1 200 OK\r\nkeep-alive: timeout=9, max=0\r\ncontent-length: 2\r\n\r\nok", 3),
    ];
    for (answer, connections) in cases {
        let wire = Wire::new(move |_, mut stream| async move {
            while request(&mut stream).await && stream.write_all(answer).await.is_ok() {}
        });
        let client = client(&wire, PoolConfig::new(), &Recorder::default());
        for _ in 0..3 {
            assert_eq!(get(&client, URL).await.unwrap(), "ok");
            sleep(ms(1)).await;
        }
        assert_eq!(wire.connections(), connections, "{}", String::from_utf8_lossy(answer));
    }
}

/// A network in which the first few sockets cannot be had.
struct Exhausted {
    wire: Wire,
    errno: i32,
    left: AtomicUsize,
    has_source: bool,
}

impl Transport for Exhausted {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Box::pin(async { Err(std::io::Error::from_raw_os_error(self.errno)) }),
            Err(_) => self.wire.connect(address),
        }
    }

    fn source_of(&self, _: SocketAddr) -> Option<std::io::Result<std::net::IpAddr>> {
        Some(if self.has_source { Ok(v4(200)) } else { Err(std::io::ErrorKind::AddrNotAvailable.into()) })
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn hazard_descriptors_and_ports_that_run_out_are_waited_for() {
    use rustix::io::Errno;
    for (errno, has_source, waits) in [
        (Errno::MFILE, true, true),
        (Errno::NFILE, true, true),
        (Errno::ADDRNOTAVAIL, true, true),
        // There is no address to connect from: that does not pass.
        (Errno::ADDRNOTAVAIL, false, false),
        (Errno::CONNREFUSED, true, false),
    ] {
        let wire = Wire::new(|_, stream| serve(stream, 5));
        let (errno_of, left) = (errno.raw_os_error(), AtomicUsize::new(5));
        let network = Exhausted { wire: wire.clone(), errno: errno_of, left, has_source };
        let recorder = Recorder::default();
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder = Client::builder().no_proxy().resolver(resolver).transport(network).observer(recorder.clone());
        let client = builder.build().unwrap();
        let answers = join_all((0..20).map(|_| get(&client, URL))).await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        let postponed = recorder.count(|event| matches!(event, Event::DialPostponed));
        assert_eq!((failed, postponed), if waits { (0, 5) } else { (5, 0) }, "{errno:?}, {has_source}");
    }
}

/// As with a static client under `#[tokio::test]`: each request on a runtime of its own, eight at a time.
#[test]
fn hazard_requests_survive_the_ends_of_the_runtimes_that_opened_their_connections() {
    for http2 in [false, true] {
        let server = HttpServer::start_as(http2, |_| async { hyper::Response::new(full("ok")) }).unwrap();
        let url = format!("http://{}/", server.address());
        let builder = Client::builder().no_proxy();
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        let gets = || {
            let get = |_| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(get(&client, &url)).err()
            };
            (0..50).filter_map(get).collect::<Vec<_>>()
        };
        let failed: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(gets)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert!(failed.is_empty(), "HTTP/2: {http2}: {} of 400 failed, the first: {:?}", failed.len(), failed[0]);
    }
}

/// A connection ends with the runtime that opened it, also under a request of another runtime.
#[test]
fn hazard_a_request_goes_on_though_the_runtime_of_its_connection_ends() {
    for http2 in [false, true] {
        let (told, arrived) = std::sync::mpsc::channel();
        let held = Arc::new(AtomicUsize::new(0));
        let server = HttpServer::start_as(http2, move |request| {
            let is_first = request.uri().path() == "/held" && held.fetch_add(1, Ordering::SeqCst) == 0;
            let told = told.clone();
            async move {
                if is_first {
                    told.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                hyper::Response::new(full("ok"))
            }
        });
        let server = server.unwrap();
        let url = format!("http://{}", server.address());
        let builder = Client::builder().no_proxy();
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        assert_eq!(first.block_on(get(&client, &format!("{url}/"))).unwrap(), "ok");
        while client.pool_stats().idle == 0 {
            std::thread::yield_now();
        }
        let other = client.clone();
        let getting = second.spawn(async move { get(&other, &format!("{url}/held")).await });
        arrived.recv().unwrap();
        drop(first);
        assert_eq!(second.block_on(getting).unwrap().unwrap(), "ok");
        assert_eq!(server.connections(), 2);
        assert_eq!(client.pool_stats().closed_by(CloseCause::Asked), 1, "nothing is put down to the server");
    }
}

#[test]
fn hazard_a_client_outlives_the_runtime_it_was_used_on_first() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full("ok")) }).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for _ in 0..3 {
            assert_eq!(runtime.block_on(get(&client, &url)).unwrap(), "ok");
        }
    }
    assert_eq!(server.connections(), 3, "a connection goes with its runtime");
}

// Real sockets from here on, plain and over TLS: peers that close while a request is on its way.

/// How many requests a race takes: handshakes make it long.
fn requests(over: Over, plain: u64) -> u64 {
    if over == Over::Tcp { plain } else { plain / 10 }
}

/// What a peer does to a connection that is idle.
#[derive(Debug, Clone, Copy)]
enum Unkind {
    Reset,
    Fin,
    HalfClose,
    Timeout408,
    Unasked,
}

/// Answers requests, counts each by its number, and is unkind to 30 % of connections when they have been idle for 0 to 5 ms.
fn unkind_peer(over: Over, how: Unkind, counts: Arc<Mutex<HashMap<u64, usize>>>) -> Peer {
    Peer::start_over(over, move |number, mut socket| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        for served in 0.. {
            let unkind = served > 0 && random.u8(..10) < 3;
            // Some close right behind their answer.
            let patience = if unkind { Duration::from_micros(random.u64(0..5_000)) } else { Duration::from_secs(60) };
            if patience.is_zero() || (unkind && random.u8(..10) == 0) {
                return be_unkind(how, socket);
            }
            let _ = socket.tcp().set_read_timeout(Some(patience));
            let Ok(request) = read_request(&mut socket) else { return };
            match request {
                Some(number) => {
                    *counts.lock().unwrap().entry(number).or_default() += 1;
                    let _ = socket.write_all(OK);
                }
                None => return be_unkind(how, socket),
            }
        }
    })
}

fn be_unkind(how: Unkind, mut socket: Socket) {
    match how {
        Unkind::Reset => drop(SockRef::from(socket.tcp()).set_linger(Some(Duration::ZERO))),
        Unkind::Fin => {}
        Unkind::HalfClose => {
            socket.half_close();
            let _ = socket.tcp().set_read_timeout(Some(ms(200)));
            let _ = read_request(&mut socket);
        }
        Unkind::Timeout408 => {
            let _ = socket.write_all(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        }
        Unkind::Unasked => {
            let _ = socket.write_all(b"what nobody asked for");
        }
    }
}

/// The number of a request, which is in its path; `None` when none comes in time, an error at the end.
fn read_request(socket: &mut impl Read) -> std::io::Result<Option<u64>> {
    use std::io::ErrorKind::*;
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(0) => return Err(UnexpectedEof.into()),
            Ok(_) => head.push(byte[0]),
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) && head.is_empty() => return Ok(None),
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8_lossy(&head);
    let number = head.split(['/', ' ']).find_map(|part| part.parse().ok());
    Ok(number)
}

/// Sends requests, 50 in flight. How many failed, by their errors.
async fn load(client: Client, url: &str, requests: u64, method: http::Method) -> Vec<String> {
    let (gate, failed) = (Arc::new(Semaphore::new(50)), Arc::new(Mutex::new(Vec::new())));
    let mut tasks = Vec::new();
    for number in 0..requests {
        let permit = gate.clone().acquire_owned().await.unwrap();
        let call = client.request(method.clone(), format!("{url}{number}"));
        let failed = failed.clone();
        tasks.push(tokio::spawn(async move {
            let answer = async { call.send().await?.error_for_status()?.text().await }.await;
            match answer {
                Ok(text) => assert_eq!(text, "ok"),
                Err(error) => failed.lock().unwrap().push(error.to_string()),
            }
            drop(permit);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    std::mem::take(&mut failed.lock().unwrap())
}

/// Where a peer dies in an answer.
const DEATHS: [&[u8]; 3] = [b"", b"HTTP/1.1 200 OK\r\ncont", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_a_peer_that_dies_in_the_middle_of_an_answer() {
    for over in Over::ALL {
        hazard_of_a_peer_that_dies(over).await;
    }
}

async fn hazard_of_a_peer_that_dies(over: Over) {
    let all = requests(over, 2_000);
    let (counts, kills) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(AtomicUsize::new(0)));
    let (seen, killed) = (counts.clone(), kills.clone());
    let peer = Peer::start_over(over, move |number, mut socket| {
        let mut random = fastrand::Rng::with_seed(number as u64);
        while let Ok(Some(request)) = read_request(&mut socket) {
            *seen.lock().unwrap().entry(request).or_insert(0) += 1;
            if random.u8(..10) == 0 {
                killed.fetch_add(1, Ordering::SeqCst);
                let _ = socket.write_all(DEATHS[random.usize(..3)]);
                return;
            }
            let _ = socket.write_all(OK);
        }
    });
    let client = || peer.client().build().unwrap();
    let failed = load(client(), &peer.url(), all, http::Method::POST).await;
    let kills = kills.load(Ordering::SeqCst);
    assert_eq!(failed.len(), kills, "{over:?}: each death costs the request it happened to, and no other");
    let sent = std::mem::take(&mut *counts.lock().unwrap());
    assert!(sent.values().all(|times| *times == 1) && sent.len() as u64 == all, "{over:?}");
    load(client(), &peer.url(), all, http::Method::GET).await;
    let most = counts.lock().unwrap().values().copied().max();
    assert!(most <= Some(3), "{over:?}: a GET was sent {most:?} times");
}

async fn hazard_of_an_unkind_peer(how: Unkind) {
    for over in Over::ALL {
        let counts = Arc::new(Mutex::new(HashMap::new()));
        let peer = unkind_peer(over, how, counts.clone());
        let client = || peer.client().build().unwrap();
        let all = requests(over, 5_000);
        // Once it has lost a few, the host is known to cut.
        let most_lost = (all / 200).max(20);
        hazard_of_a_race(&format!("{how:?} over {over:?}"), client, &peer.url(), (all, most_lost), &counts).await;
    }
}

/// Sends GETs, none of which may be lost, and POSTs, so many of which may be lost, and none sent twice.
async fn hazard_of_a_race(
    race: &str,
    client: impl Fn() -> Client,
    url: &str,
    (requests, most_lost): (u64, u64),
    counts: &Mutex<HashMap<u64, usize>>,
) {
    let failed = load(client(), url, requests, http::Method::GET).await;
    assert_eq!(failed.len(), 0, "{race}: GETs were lost: {:?}", failed[0]);
    counts.lock().unwrap().clear();
    let failed = load(client(), url, requests, http::Method::POST).await;
    let doubled = counts.lock().unwrap().values().filter(|count| **count > 1).count();
    assert_eq!(doubled, 0, "{race}: a POST was sent twice");
    eprintln!("{race}: {} of {requests} POSTs may or may not have arrived", failed.len());
    // That it may have been processed is all that can be known where a close crosses it on its way.
    assert!(failed.len() as u64 <= most_lost, "{race}: {} POSTs were lost, {:?}", failed.len(), failed.first());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_peers_that_end_http2_connections() {
    for over in Over::ALL {
        for end in [End::Reset, End::Fin, End::GoAway] {
            let counts = Arc::default();
            let server = H2Server::start(over, end, Arc::clone(&counts));
            let client = || server.client().build().unwrap();
            let all = requests(over, 5_000);
            let race = format!("{end:?} over {over:?}");
            hazard_of_a_race(&race, client, &server.url(), (all, all / 20), &counts).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_peers_that_reset_idle_connections() {
    hazard_of_an_unkind_peer(Unkind::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_peers_that_close_idle_connections() {
    hazard_of_an_unkind_peer(Unkind::Fin).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_peers_that_half_close_idle_connections() {
    hazard_of_an_unkind_peer(Unkind::HalfClose).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_peers_that_say_408_into_idle_connections() {
    hazard_of_an_unkind_peer(Unkind::Timeout408).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_peers_that_say_what_nobody_asked_for() {
    // No method is safe from what crosses it, but nothing of it is ever taken for an answer.
    for over in Over::ALL {
        let peer = unkind_peer(over, Unkind::Unasked, Arc::default());
        let client = peer.client().build().unwrap();
        for error in load(client, &peer.url(), requests(over, 3_000), http::Method::GET).await {
            let ends = ["not HTTP/1.1", "closed", "reset", "is gone"];
            assert!(ends.iter().any(|end| error.contains(end)), "{over:?}: {error}");
        }
    }
}

#[tokio::test]
async fn hazard_a_close_while_nobody_looks_is_seen_before_the_next_request() {
    for over in Over::ALL {
        for how in [Unkind::Reset, Unkind::Fin, Unkind::HalfClose, Unkind::Timeout408, Unkind::Unasked] {
            hazard_of_a_close_while_nobody_looks(over, how).await;
        }
    }
}

/// The runtime does not run while the peer closes, so the connection's task cannot have seen it.
async fn hazard_of_a_close_while_nobody_looks(over: Over, how: Unkind) {
    let is_over = Arc::new(AtomicBool::new(false));
    let told = is_over.clone();
    let peer = Peer::start_over(over, move |number, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(OK);
        }
        if number == 0 {
            std::thread::sleep(ms(20));
            be_unkind(how, socket);
            told.store(true, Ordering::SeqCst);
        } else {
            while read_head(&mut socket) {
                let _ = socket.write_all(OK);
            }
        }
    });
    let recorder = Recorder::default();
    let client = peer.client().observer(recorder.clone()).build().unwrap();
    assert_eq!(get(&client, &peer.url()).await.unwrap(), "ok");
    while !is_over.load(Ordering::SeqCst) {
        std::thread::sleep(ms(5));
    }
    let post = client.post(peer.url()).body("once").send().await;
    let post = post.unwrap_or_else(|error| panic!("{how:?} over {over:?}: {error}"));
    assert_eq!(post.text().await.unwrap(), "ok");
    let retried = recorder.count(|event| matches!(event, Event::Retried { .. }));
    assert_eq!((peer.connections(), retried), (2, 0), "{how:?} over {over:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_that_is_used_by_many_threads_keeps_its_limit() {
    let (now, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (here, most) = (now.clone(), peak.clone());
    let server = HttpServer::start(move |_| {
        let (here, most) = (here.clone(), most.clone());
        async move {
            most.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            here.fetch_sub(1, Ordering::SeqCst);
            hyper::Response::new(full("ok"))
        }
    })
    .unwrap();
    let pool = PoolConfig::new().max_connections_per_host(10);
    let client = Client::builder().no_proxy().pool(pool).build().unwrap();
    let url = format!("http://{}/", server.address());
    let call = || {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move { get(&client, &url).await })
    };
    for call in (0..5_000).map(|_| call()).collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    assert!(server.connections() <= 10 && peak.load(Ordering::SeqCst) <= 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_behaves_gets_posts_on_the_connections_it_keeps() {
    let peer = Peer::start(|_, mut socket| {
        while let Ok(Some(_)) = read_request(&mut socket) {
            let _ = socket.write_all(OK);
        }
    });
    let failed = load(Client::new(), &peer.url(), 5_000, http::Method::POST).await;
    assert_eq!(failed, Vec::<String>::new());
    // A few that were dialled while others were freed are kept as well.
    assert!(peer.connections() <= 75, "{} connections for 50 at a time", peer.connections());
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_by_itself_says_nothing_of_the_server() {
    let wire = Wire::new(|_, stream| serve(stream, 1));
    let client = client(&wire, PoolConfig::new(), &Recorder::default());
    assert_eq!(get(&client, URL).await.unwrap(), "ok");
    let pieces = [Ok("piece"), Err(std::io::Error::other("the disk is gone"))];
    let body = speeddial::Body::wrap_stream(futures_util::stream::iter(pieces));
    let error = client.post(URL).body(body).send().await.unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert_eq!((get(&client, URL).await.unwrap().as_str(), wire.connections()), ("ok", 2));
    client.post(URL).send().await.unwrap().text().await.unwrap();
    assert_eq!(wire.connections(), 2, "the connection that was kept is good enough");
}
