//! Limits of connections, connections that are opened ahead, and sockets that run out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use speeddial::dns::FixedResolver;
use speeddial::pool::HostLimits;
use speeddial::trace::{CloseCause, Event, Limit};
use speeddial::transport::{Connecting, Transport};
use speeddial::{Client, PoolConfig};
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};

use super::common::{URL, client, get, ms, serve};
use support::http_server::HttpServer;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{full, v4};

#[tokio::test(start_paused = true)]
async fn a_limit_of_ten_connections_is_kept_and_two_hundred_requests_are_served_in_order() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 20));
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new().max_connections_per_host(10), &recorder);
    let order = Arc::new(Mutex::new(Vec::new()));
    let watched = net.clone();
    let call = |number: usize| {
        let client = client.clone();
        let order = order.clone();
        let watched = watched.clone();
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
    assert_eq!(net.connections(), 10);
    for (number, timings) in timings.iter().enumerate() {
        // Ten requests at a time, after the first ten have opened their connections.
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
async fn three_thousand_requests_at_once_are_all_served_cold_and_warm() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 100));
    let client = client(&net, PoolConfig::new().max_connections(4_096), &Recorder::default());
    for round in 0..2 {
        let answers = join_all((0..3_000).map(|_| get(&client, URL))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == "ok"), "round {round}");
    }
    let stats = client.pool_stats();
    assert_eq!((stats.waiting, stats.dialling, stats.in_use), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn hazard_three_thousand_idle_hosts_are_forgotten() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 1));
    let names: Vec<_> = (0..3_000).map(|number| format!("h{number}.test")).collect();
    let resolver = names.iter().fold(FixedResolver::new(), |resolver, name| resolver.with(name, [v4(1)]));
    let pool = PoolConfig::new().max_connections(4_096).max_idle(4_096).idle_timeout(ms(500));
    let client = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).pool(pool).build().unwrap();
    let urls: Vec<_> = names.iter().map(|name| format!("http://{name}/")).collect();
    for answer in join_all(urls.iter().map(|url| get(&client, url))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    assert_eq!((net.open(), client.host_stats().len()), (3_000, 3_000));
    sleep(ms(501)).await;
    assert_eq!((net.open(), client.host_stats().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_host_can_have_limits_of_its_own() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 10));
    let pool = PoolConfig::new().max_connections_per_host(4).for_host(".test", HostLimits::new().max_connections(2));
    let client = client(&net, pool, &Recorder::default());
    join_all((0..20).map(|_| get(&client, URL))).await;
    assert_eq!(net.connections(), 2);
    join_all((0..20).map(|_| get(&client, "http://192.0.2.9/"))).await;
    assert_eq!(net.connections(), 2 + 4);
}

#[tokio::test]
async fn three_limits_bound_the_requests_in_flight_over_both_versions_of_http() {
    const MOST: usize = 5;
    for http2 in [false, true] {
        let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = most.clone();
        // Each request is answered when as many are there as may be.
        let barrier = Arc::new(Barrier::new(MOST));
        let server = HttpServer::start_as(http2, move |_| {
            let (in_flight, most, barrier) = (in_flight.clone(), most.clone(), barrier.clone());
            async move {
                most.fetch_max(in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                barrier.wait().await;
                in_flight.fetch_sub(1, Ordering::SeqCst);
                hyper::Response::new(full("ok"))
            }
        })
        .unwrap();
        let url = format!("http://{}/", server.address());
        let limits = HostLimits::new().max_connections(MOST).max_http2_connections(1).max_streams_per_connection(MOST);
        let builder = Client::builder().no_proxy().pool(PoolConfig::new().for_host("127.0.0.1", limits));
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        for answer in join_all((0..8 * MOST).map(|_| get(&client, &url))).await {
            assert_eq!(answer.unwrap(), "ok");
        }
        assert_eq!(seen.load(Ordering::SeqCst), MOST, "HTTP/2: {http2}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_a_suffix_are_those_of_each_origin_below_it() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 10));
    let resolver = FixedResolver::new().with("a.example.test", [v4(1)]).with("b.example.test", [v4(1)]);
    let pool = PoolConfig::new().for_host(".example.test", HostLimits::new().max_connections(2));
    let client = Client::builder().no_proxy().dns_resolver(resolver).transport(net.clone()).pool(pool).build().unwrap();
    let origins = ["http://a.example.test/", "http://b.example.test/", "http://a.example.test:8080/"];
    for answer in join_all((0..30).map(|number| get(&client, origins[number % 3]))).await {
        assert_eq!(answer.unwrap(), "ok");
    }
    let open: Vec<_> = client.host_stats().iter().map(|(_, stats)| stats.opened).collect();
    assert_eq!((net.connections(), &open[..]), (3 * 2, &[2, 2, 2][..]));
}

#[tokio::test(start_paused = true)]
async fn warm_up_opens_connections_before_the_first_request() {
    let net = ScriptedNet::new(|_, stream| serve(stream, 5));
    let recorder = Recorder::default();
    let client = client(&net, PoolConfig::new(), &recorder);
    assert_eq!(client.warm_up(URL, 7).await.unwrap(), 7);
    assert_eq!((net.connections(), client.pool_stats().idle), (7, 7));
    let start = Instant::now();
    join_all((0..7).map(|_| get(&client, URL))).await;
    assert_eq!((start.elapsed(), net.connections()), (ms(5), 7));
    assert_eq!(client.warm_up(URL, 3).await.unwrap(), 7, "there are enough connections already");
    client.close_idle();
    sleep(ms(1)).await;
    assert_eq!((net.open(), client.pool_stats().closed_by(CloseCause::Program)), (0, 7));
    let error = client.warm_up("http://nowhere.test/", 2).await.unwrap_err();
    assert!(error.is_dns(), "{error}");
}

/// A network in which the first few dials fail with an error of the operating system.
struct NetWithoutSockets {
    net: ScriptedNet,
    errno: i32,
    failures_left: AtomicUsize,
    has_source: bool,
}

impl Transport for NetWithoutSockets {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        let left = self.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => Box::pin(async { Err(std::io::Error::from_raw_os_error(self.errno)) }),
            Err(_) => self.net.connect(address),
        }
    }

    fn source_of(&self, _: SocketAddr) -> Option<std::io::Result<std::net::IpAddr>> {
        Some(if self.has_source { Ok(v4(200)) } else { Err(std::io::ErrorKind::AddrNotAvailable.into()) })
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn hazard_a_dial_without_a_free_descriptor_or_port_is_postponed() {
    use rustix::io::Errno;
    for (errno, has_source, waits) in [
        (Errno::MFILE, true, true),
        (Errno::NFILE, true, true),
        (Errno::ADDRNOTAVAIL, true, true),
        // Without a source address the error is permanent.
        (Errno::ADDRNOTAVAIL, false, false),
        (Errno::CONNREFUSED, true, false),
    ] {
        let net = ScriptedNet::new(|_, stream| serve(stream, 5));
        let errno_of = errno.raw_os_error();
        let failures_left = AtomicUsize::new(5);
        let network = NetWithoutSockets { net: net.clone(), errno: errno_of, failures_left, has_source };
        let recorder = Recorder::default();
        let resolver = FixedResolver::new().with("api.test", [v4(1)]);
        let builder = Client::builder().no_proxy().dns_resolver(resolver).transport(network).observer(recorder.clone());
        let client = builder.build().unwrap();
        let answers = join_all((0..20).map(|_| get(&client, URL))).await;
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        let postponed = recorder.count(|event| matches!(event, Event::DialPostponed));
        // The requests whose dials failed get the connections that others open.
        assert_eq!((failed, postponed), (0, if waits { 5 } else { 0 }), "{errno:?}, {has_source}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_limit_holds_under_many_threads() {
    let now = Arc::new(AtomicUsize::new(0));
    let peak = Arc::new(AtomicUsize::new(0));
    let here = now.clone();
    let most = peak.clone();
    let server = HttpServer::start(move |_| {
        let here = here.clone();
        let most = most.clone();
        async move {
            most.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            here.fetch_sub(1, Ordering::SeqCst);
            hyper::Response::new(full("ok"))
        }
    })
    .unwrap();
    let pool = PoolConfig::new().max_connections_per_host(10).wait_timeout(10 * support::LONG);
    let client = Client::builder().no_proxy().pool(pool).build().unwrap();
    let url = format!("http://{}/", server.address());
    let call = || {
        let client = client.clone();
        let url = url.clone();
        tokio::spawn(async move { get(&client, &url).await })
    };
    for call in (0..5_000).map(|_| call()).collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap(), "ok");
    }
    // Those that the client has: on a busy machine it gives dials up, whose connections the server counts.
    let opened = client.pool_stats().opened;
    assert!(opened <= 10 && peak.load(Ordering::SeqCst) <= 10, "{opened} connections");
}
