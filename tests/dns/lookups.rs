//! Lookups at a DNS server on loopback: TTLs, aliases, failures, and which server is asked next.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record};
use speeddial::dns::{
    Answer, CachedResolver, Family, HickoryResolver, ResolveError, ResolveErrorKind, Resolver, Source,
};

use support::dns_server::{DnsServer, add_address, respond};
use support::dns_tcp;
use support::scripted_dns::{ReceivedQuery, ScriptedDns, bytes, packet, send};
use support::{LONG, shortest};
use tokio::net::TcpSocket;

/// Answers from the zone of these tests, by the first label of the name.
pub(crate) fn zone(question: &Query, response: &mut Message) {
    let name = question.name();
    let soa = |minimum| {
        let root = Name::root();
        Record::from_rdata(root.clone(), 3_600, RData::SOA(SOA::new(root.clone(), root, 1, 60, 60, 60, minimum)))
    };
    match name.iter().next().map(|label| String::from_utf8_lossy(label).to_lowercase()).as_deref() {
        Some("host" | "my_svc") => add_address(response, question, name, Ipv4Addr::LOCALHOST.into(), 60),
        Some("zero") => add_address(response, question, name, Ipv4Addr::LOCALHOST.into(), 0),
        Some("chain") => {
            let target = Name::from_ascii("host.test.").unwrap();
            response.add_answer(Record::from_rdata(name.clone(), 5, RData::CNAME(CNAME(target.clone()))));
            add_address(response, question, &target, Ipv4Addr::LOCALHOST.into(), 60);
        }
        Some("fails") => response.metadata.response_code = ResponseCode::ServFail,
        Some("refuses") => response.metadata.response_code = ResponseCode::Refused,
        Some("nodata") => drop(response.add_authority(soa(7))),
        _ => {
            response.metadata.response_code = ResponseCode::NXDomain;
            response.add_authority(soa(9));
        }
    }
}

fn resolver() -> (DnsServer, HickoryResolver) {
    let server = DnsServer::start(zone).unwrap();
    let resolver = HickoryResolver::with_servers([server.address()]);
    (server, resolver)
}

#[tokio::test]
async fn an_answer_has_its_addresses_and_its_ttl() {
    let (server, resolver) = resolver();
    let answer = resolver.resolve("host.test", Family::V4).await.unwrap();
    assert_eq!(&**answer.addresses(), [std::net::IpAddr::from(Ipv4Addr::LOCALHOST)]);
    assert_eq!((answer.ttl(), answer.source()), (Duration::from_secs(60), Source::Miss));
    assert_eq!(server.queries(), 1, "one family is one query");
}

#[tokio::test]
async fn the_smallest_ttl_of_an_alias_chain_is_used() {
    let (_server, resolver) = resolver();
    let answer = resolver.resolve("chain.test", Family::V4).await.unwrap();
    assert_eq!((answer.addresses().len(), answer.ttl()), (1, Duration::from_secs(5)));
}

#[tokio::test]
async fn names_with_underscores_resolve() {
    let (_server, resolver) = resolver();
    assert!(resolver.resolve("my_svc.test", Family::V4).await.is_ok());
}

#[tokio::test]
async fn the_resolvers_own_cache_is_off() {
    let (server, resolver) = resolver();
    for _ in 0..3 {
        resolver.resolve("host.test", Family::V4).await.unwrap();
    }
    assert_eq!(server.queries(), 3);
}

#[tokio::test]
async fn each_kind_of_missing_answer_has_an_error_kind() {
    let (_server, resolver) = resolver();
    let cases = [
        ("nowhere.test", ResolveErrorKind::NxDomain, Some(9)),
        ("nodata.test", ResolveErrorKind::NoData, Some(7)),
        ("fails.test", ResolveErrorKind::ServFail, None),
        ("refuses.test", ResolveErrorKind::Refused, None),
    ];
    for (name, kind, ttl) in cases {
        let error = resolver.resolve(name, Family::V4).await.unwrap_err();
        assert_eq!((error.kind(), error.negative_ttl()), (kind, ttl.map(Duration::from_secs)), "{name}");
    }
}

#[tokio::test]
async fn the_cache_asks_once_for_a_name_and_each_time_for_a_ttl_of_zero() {
    let (server, resolver) = resolver();
    let cache = CachedResolver::new(resolver);
    for _ in 0..3 {
        cache.lookup("Host.test", Family::V4).await.unwrap();
        cache.lookup("nodata.test", Family::V4).await.unwrap_err();
    }
    assert_eq!(server.queries(), 2);
    for _ in 0..3 {
        cache.lookup("zero.test", Family::V4).await.unwrap();
    }
    assert_eq!(server.queries(), 5);
}

#[tokio::test]
async fn an_unreachable_server_is_not_reported_as_a_name_that_does_not_exist() {
    let (closed, _tcp) = refusing();
    let resolver = HickoryResolver::with_servers([closed.local_addr().unwrap()]);
    let error =
        resolver.with_try_timeout(Duration::from_millis(300)).resolve("host.test", Family::V4).await.unwrap_err();
    assert!(!error.kind().is_negative(), "{error}");
}

/// Returns a port that refuses packets and connections for as long as its sockets are kept.
///
/// The UDP socket is connected to another port, so it accepts no packets from the test, and that of TCP does not listen. No other process, and
/// no other test, can get the port.
fn refusing() -> (UdpSocket, TcpSocket) {
    let both = || {
        let (tcp, address) = support::refusing();
        let udp = UdpSocket::bind(address).ok()?;
        udp.connect((Ipv4Addr::LOCALHOST, 9)).ok()?;
        Some((udp, tcp))
    };
    (0..20).find_map(|_| both()).expect("a port that is free for both")
}

#[tokio::test]
async fn after_a_closed_port_the_next_server_is_asked_at_once() {
    let (closed, _tcp) = refusing();
    let second = DnsServer::start(zone).unwrap();
    let servers = [closed.local_addr().unwrap(), second.address()];
    let at_once = Duration::from_millis(200);
    let took = shortest(at_once, async || {
        let start = Instant::now();
        assert!(HickoryResolver::with_servers(servers).resolve("host.test", Family::V4).await.is_ok());
        start.elapsed()
    });
    assert!(took.await < at_once);

    // Without a refusal, TCP is asked after a second.
    let at_once = Duration::from_millis(900);
    let took = shortest(at_once, async || {
        let alone = HickoryResolver::with_servers([closed.local_addr().unwrap()]);
        let start = Instant::now();
        let error = alone.resolve("host.test", Family::V4).await.unwrap_err();
        let elapsed = start.elapsed();
        // A try that a busy machine makes late ends by its limit.
        assert!(elapsed >= at_once || error.kind() == ResolveErrorKind::Unreachable, "{error}");
        elapsed
    });
    assert!(took.await < at_once, "TCP is refused at once as well");
}

#[tokio::test]
async fn where_a_server_is_silent_the_next_one_is_asked_after_300_ms_and_the_same_one_by_tcp_after_a_second() {
    let (silent, tcp) = silent();
    let address = silent.local_addr().unwrap();
    let second = DnsServer::start(zone).unwrap();
    let over_tcp = dns_tcp::serve(tcp, zone);
    for (servers, by_tcp, range) in
        [(vec![address, second.address()], false, 290..990), (vec![address], true, 990..1_900)]
    {
        let range = Duration::from_millis(range.start)..Duration::from_millis(range.end);
        let took = shortest(range.end, async || {
            let resolver = HickoryResolver::with_servers(servers.clone());
            let before = over_tcp.load(Ordering::SeqCst);
            let start = Instant::now();
            assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
            let elapsed = start.elapsed();
            assert!(elapsed >= range.start, "{elapsed:?}");
            // A lookup that took longer may have asked by TCP as well.
            if elapsed < range.end {
                assert_eq!(over_tcp.load(Ordering::SeqCst) > before, by_tcp);
            }
            elapsed
        });
        let took = took.await;
        assert!(took < range.end, "{took:?}");
    }
}

#[tokio::test]
async fn a_server_that_takes_its_time_for_a_cold_name_is_asked_once() {
    let in_time = Duration::from_millis(900);
    let took = shortest(in_time, async || {
        let slow = DnsServer::start(|question, response| {
            std::thread::sleep(Duration::from_millis(300));
            zone(question, response);
        });
        let slow = slow.unwrap();
        let resolver = HickoryResolver::with_servers([slow.address()]);
        let start = Instant::now();
        assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
        let elapsed = start.elapsed();
        // After a second it would be asked once more.
        assert!(elapsed > in_time || slow.queries() == 1, "{} queries in {elapsed:?}", slow.queries());
        elapsed
    });
    assert!(took.await <= in_time);
}

#[tokio::test]
async fn hazard_a_lost_packet_leaves_no_name_to_a_server_that_does_not_know_it() {
    let lossy = |query: &ReceivedQuery| match query.label().as_str() {
        // The first packet about it is lost.
        "lost" if query.before == 0 => Vec::new(),
        _ => packet(&query.good(1, 60)),
    };
    let internal = ScriptedDns::start(lossy, |query, stream| send(stream, &bytes(&query.good(1, 60))));
    let public = DnsServer::start(|_, response| response.metadata.response_code = ResponseCode::NXDomain).unwrap();
    let resolver = HickoryResolver::with_servers([internal.address(), public.address()]);
    let lost = resolver.resolve("lost.test", Family::V4).await;
    assert!(lost.is_ok(), "over TCP, after a second: {lost:?}");
    // On a busy machine the first server's answer may take longer than its head start.
    let mut late = 0;
    for number in 0..20 {
        let asked = Instant::now();
        let found = resolver.resolve(&format!("host{number}.test"), Family::V4).await;
        assert!(found.is_ok(), "{number}: {found:?}");
        late += usize::from(asked.elapsed() >= Duration::from_millis(300));
    }
    assert!(public.queries() <= 1 + late, "the first server is asked first again: {}", public.queries());
}

#[tokio::test]
async fn a_server_that_is_silent_costs_a_moment_once() {
    let (silent, _tcp) = silent();
    let second = DnsServer::start(zone).unwrap();
    let servers = [silent.local_addr().unwrap(), second.address()];
    let resolver = HickoryResolver::with_servers(servers).with_try_timeout(Duration::from_secs(1));
    let start = Instant::now();
    loop {
        let asked = Instant::now();
        assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
        if asked.elapsed() < Duration::from_millis(200) {
            return;
        }
        assert!(start.elapsed() < LONG, "each lookup waits for the silent server");
    }
}

#[tokio::test]
async fn a_slow_servers_answer_counts_while_others_are_asked() {
    let slow = slow(Duration::from_millis(600));
    let silent = silent().0;
    let resolver = HickoryResolver::with_servers([slow, silent.local_addr().unwrap()]);
    assert!(resolver.resolve("host.test", Family::V4).await.is_ok());
}

/// Starts a server that answers its first query after `delay` and no other.
fn slow(delay: Duration) -> std::net::SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 1_500];
        let (length, peer) = socket.recv_from(&mut packet).unwrap();
        std::thread::sleep(delay);
        socket.send_to(&respond(&zone, &packet[..length]).unwrap(), peer).unwrap();
        // The port stays open, so that it does not refuse later queries.
        while socket.recv_from(&mut packet).is_ok() {}
    });
    address
}

/// Asks two servers, of which the first answers by `first`. Returns the outcome and the number of queries at the first.
async fn after(first: impl Fn(&Query, &mut Message) + Send + 'static) -> (Result<Answer, ResolveError>, usize) {
    let first = DnsServer::start(first).unwrap();
    let second = DnsServer::start(zone).unwrap();
    let resolver = HickoryResolver::with_servers([first.address(), second.address()]);
    (resolver.resolve("host.test", Family::V4).await, first.queries())
}

#[tokio::test]
async fn the_next_server_is_asked_after_one_that_fails_or_refuses() {
    let codes = [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp, ResponseCode::FormErr];
    for code in codes {
        let (answer, queries) = after(move |_, response| response.metadata.response_code = code).await;
        assert!(answer.is_ok(), "{code}: {answer:?}");
        assert!(queries <= 2, "{code}: {queries} queries");
    }
}

#[tokio::test]
async fn a_server_that_says_the_name_does_not_exist_is_believed() {
    let (answer, _) = after(|_, response| response.metadata.response_code = ResponseCode::NXDomain).await;
    assert_eq!(answer.unwrap_err().kind(), ResolveErrorKind::NxDomain);
}

#[tokio::test]
async fn when_all_servers_fail_each_is_asked_once_and_the_error_kind_is_kept() {
    let server = || DnsServer::start(|_, response| response.metadata.response_code = ResponseCode::ServFail).unwrap();
    let first = server();
    let second = server();
    let resolver = HickoryResolver::with_servers([first.address(), second.address()]);
    let error = resolver.resolve("host.test", Family::V4).await.unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::ServFail);
    assert_eq!((first.queries(), second.queries()), (1, 1));
}

#[tokio::test]
async fn three_lookups_of_a_name_whose_server_fails_are_one_query_per_family() {
    let server = DnsServer::start(|_, response| response.metadata.response_code = ResponseCode::ServFail).unwrap();
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]));
    for _ in 0..3 {
        for family in Family::BOTH {
            assert!(cache.lookup("host.test", family).await.is_err());
        }
    }
    assert_eq!(server.queries(), 2);
}

/// Returns a port that accepts queries over UDP and TCP and answers none.
fn silent() -> (UdpSocket, TcpListener) {
    dns_tcp::udp_and_tcp(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), |socket| socket.local_addr().unwrap())
}

#[tokio::test]
async fn a_silent_server_is_asked_over_tcp_after_the_next_server() {
    let (silent, tcp) = silent();
    let address = silent.local_addr().unwrap();
    let over_tcp = dns_tcp::serve(tcp, zone);
    let try_timeout = Duration::from_secs(2);
    let alone = HickoryResolver::with_servers([address]).with_try_timeout(try_timeout);
    assert!(alone.resolve("host.test", Family::V4).await.is_ok());
    assert_eq!(over_tcp.load(Ordering::SeqCst), 1);

    let second = DnsServer::start(zone).unwrap();
    let both = HickoryResolver::with_servers([address, second.address()]).with_try_timeout(try_timeout);
    for _ in 0..3 {
        assert!(both.resolve("host.test", Family::V4).await.is_ok());
    }
    assert_eq!((over_tcp.load(Ordering::SeqCst), second.queries()), (1, 3), "the next server answers before");
}

#[tokio::test]
async fn a_truncated_answer_is_fetched_over_tcp() {
    let truncated = || DnsServer::start_over_udp(|_, response| response.metadata.truncation = true).unwrap();
    let (server, tcp) = dns_tcp::udp_and_tcp(truncated, DnsServer::address);
    let over_tcp = dns_tcp::serve(tcp, |question, response| {
        for last in 1..=200 {
            add_address(response, question, question.name(), [127, 0, 1, last].into(), 60);
        }
    });
    let resolver = HickoryResolver::with_servers([server.address()]);
    let answer = resolver.resolve("host.test", Family::V4).await.unwrap();
    assert_eq!((answer.addresses().len(), over_tcp.load(Ordering::SeqCst)), (200, 1));
}

#[tokio::test]
async fn a_lookup_ends_by_its_total_timeout() {
    let (silent, _mute) = silent();
    let resolver = HickoryResolver::with_servers([silent.local_addr().unwrap()])
        .with_tries(1_000)
        .with_try_timeout(Duration::from_millis(50))
        .with_total_timeout(Duration::from_millis(300));
    let start = Instant::now();
    let error = resolver.resolve("host.test", Family::V4).await.unwrap_err();
    assert_eq!(error.kind(), ResolveErrorKind::Timeout);
    assert!(start.elapsed() >= Duration::from_millis(300), "it tried until the total timeout");
}

#[tokio::test]
async fn a_warm_name_is_answered_while_all_servers_are_down() {
    let server = DnsServer::start(|question, response| {
        add_address(response, question, question.name(), Ipv4Addr::LOCALHOST.into(), 1);
    })
    .unwrap();
    let upstream = HickoryResolver::with_servers([server.address()]);
    let cache = CachedResolver::new(upstream);
    cache.lookup("host.test", Family::V4).await.unwrap();
    drop(server);
    // The TTL of 1 s passes in real time.
    while cache.lookup("host.test", Family::V4).await.unwrap().source() == Source::Hit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(cache.lookup("host.test", Family::V4).await.unwrap().source(), Source::Stale);
}

#[tokio::test]
async fn the_ttl_of_an_alias_counts_when_its_target_needs_another_query() {
    let server = DnsServer::start(|question, response| {
        let name = question.name();
        let target = Name::from_ascii("target.test.").unwrap();
        match *name == target {
            true => add_address(response, question, name, Ipv4Addr::LOCALHOST.into(), 3_600),
            false => drop(response.add_answer(Record::from_rdata(name.clone(), 5, RData::CNAME(CNAME(target))))),
        }
    })
    .unwrap();
    let resolver = HickoryResolver::with_servers([server.address()]);
    let answer = resolver.resolve("api.test", Family::V4).await.unwrap();
    assert_eq!((answer.ttl(), server.queries()), (Duration::from_secs(5), 2));
}

#[tokio::test]
async fn names_with_a_hyphen_in_front_of_a_label_are_asked_for() {
    let (server, resolver) = resolver();
    for (count, name) in ["host.-b.test", "host.b-.test", "-host.test."].into_iter().enumerate() {
        let kind = resolver.resolve(name, Family::V4).await.map_err(|error| error.kind()).err();
        assert_ne!(kind, Some(ResolveErrorKind::InvalidName), "{name}");
        assert_eq!(server.queries(), count + 1, "{name}");
    }
}
