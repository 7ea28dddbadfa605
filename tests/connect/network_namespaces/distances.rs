//! Distant and unreachable addresses, TCP fast open, and a network that comes back.

use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::Duration;

use hickory_proto::op::{Message, Query};
use speeddial::dns::{CachedResolver, Family, FixedResolver, HickoryResolver, ResolveErrorKind, Source};
use speeddial::trace::DialOutcome;
use speeddial::{Client, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use support::namespace::Namespace;

#[test]
fn hazard_an_address_400_ms_away_is_reached_behind_a_black_hole() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::with_distant_host();
        if let Err(why) = &namespace {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(black_hole_then_far());
    });
    thread.join().unwrap();
}

async fn black_hole_then_far() {
    let listener = TcpListener::bind("10.9.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.read_buf(&mut Vec::new()).await.unwrap();
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await.unwrap();
        }
    });
    let bounds =
        [640..850, 390..600].map(|Range { start, end }| Duration::from_millis(start)..Duration::from_millis(end));
    let mut shortest = [Duration::MAX; 2];
    // Other work on the machine only lengthens times, so the shortest of a few shows what the client waits for.
    for _ in 0..MOST_TIMES {
        let found = far_connects(port).await;
        assert!(found.iter().zip(&bounds).all(|(found, bounds)| *found >= bounds.start), "{found:?}");
        shortest.iter_mut().zip(found).for_each(|(shortest, found)| *shortest = found.min(*shortest));
        if shortest.iter().zip(&bounds).all(|(shortest, bounds)| bounds.contains(shortest)) {
            return;
        }
    }
    panic!("{shortest:?}");
}

/// The most clients whose connections are timed.
const MOST_TIMES: usize = 30;

/// Returns the times of the first two connections of a client.
async fn far_connects(port: u16) -> [Duration; 2] {
    let resolver = FixedResolver::new().with("far.test", [[10, 9, 0, 7].into(), [10, 9, 0, 2].into()]);
    let client =
        Client::builder().dns_resolver(resolver).no_proxy().pool(PoolConfig::new().max_idle(0)).build().unwrap();
    let mut connects = [Duration::ZERO; 2];
    // The second connection dials the address first that has answered.
    for (found, first) in connects.iter_mut().zip([7, 2]) {
        let response = client.get(format!("http://far.test:{port}/")).send().await.unwrap();
        let timings = response.timings();
        assert_eq!(response.text().await.unwrap(), "ok");
        assert_eq!(timings.remote_addr().unwrap().ip().to_string(), "10.9.0.2");
        assert_eq!(timings.dialled()[0].address.ip().to_string(), format!("10.9.0.{first}"), "{timings:#}");
        let hole = timings.dialled().iter().find(|attempt| attempt.address.ip().to_string() == "10.9.0.7");
        assert!(hole.is_some_and(|hole| matches!(hole.outcome, DialOutcome::Cancelled)), "{timings:#}");
        *found = timings.connect();
    }
    connects
}

#[test]
fn tcp_fast_open_sends_the_request_with_the_first_packet() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("fast");
        if let Err(why) = &namespace {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let run = |command: &str| {
            let words: Vec<_> = command.split(' ').collect();
            Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        // Enabled for clients (1) and servers (2), also without the servers' own socket option (0x400).
        if !run("ip link set lo up") || std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027").is_err() {
            eprintln!("SKIPPED: this kernel has no TCP fast open");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(opened_fast(false)), 0);
        // The first connection gets the cookie that the next ones need (RFC 7413, section 3.1).
        assert_eq!(runtime.block_on(opened_fast(true)), 2);
    });
    thread.join().unwrap();
}

/// Opens three connections and returns how many of them had data acknowledged that was in their first packet.
async fn opened_fast(fast: bool) -> u64 {
    let server = support::ok_server();
    let transport = speeddial::transport::TcpTransport::new().fast_open(fast);
    let pool = PoolConfig::new().max_requests_per_connection(1);
    let client = Client::builder().transport(transport).no_proxy().pool(pool).build().unwrap();
    let before = fast_opens();
    for _ in 0..3 {
        let response = client.get(format!("http://127.0.0.1:{}/", server.address().port())).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
    }
    fast_opens() - before
}

/// Returns the kernel's count of such connections in this thread's namespace.
fn fast_opens() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let names = rows.next().unwrap();
    let values = rows.next().unwrap();
    let place = names.split(' ').position(|name| name == "TCPFastOpenActive").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

#[test]
fn names_resolve_as_soon_as_the_network_is_back() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("offline");
        if namespace.is_err() {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server: std::net::SocketAddr = "192.0.2.53:53".parse().unwrap();
            let cache = CachedResolver::new(HickoryResolver::with_servers([server]));
            let mut failures = 0;
            while failures < 5 {
                let error = cache.lookup("api.test", Family::V4).await.unwrap_err();
                assert_eq!(error.kind(), ResolveErrorKind::Local, "{error:?}");
                failures += u32::from(error.answered_from() == Source::Miss);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            for command in ["link set lo up", "address add 192.0.2.53 dev lo"] {
                let done = Command::new("ip").args(command.split(' ')).status();
                assert!(done.is_ok_and(|status| status.success()), "{command}");
            }
            let socket = tokio::net::UdpSocket::bind(server).await.unwrap();
            tokio::spawn(async move {
                let mut packet = [0; 1_500];
                let (length, peer) = socket.recv_from(&mut packet).await.unwrap();
                let answer = |question: &Query, response: &mut Message| {
                    let address = [127, 0, 0, 1].into();
                    support::dns_server::add_address(response, question, question.name(), address, 60);
                };
                let response = support::dns_server::respond(&answer, &packet[..length]).unwrap();
                socket.send_to(&response, peer).await.unwrap();
            });
            let back = std::time::Instant::now();
            while let Err(error) = cache.lookup("api.test", Family::V4).await {
                assert!(back.elapsed() < Duration::from_secs(5), "{error:?}");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    });
    thread.join().unwrap();
}
