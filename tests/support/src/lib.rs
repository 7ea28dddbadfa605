//! Servers, peers and networks for tests, examples and benches.
//!
//! | need | module |
//! |---|---|
//! | an HTTP server on loopback, HTTP/1.1 or HTTP/2, that answers by a handler | [`http_server`], or [`ok_server`] |
//! | an HTTPS server on loopback; the protocol by ALPN | `tls_server` |
//! | a peer on loopback that breaks off, stalls or lies: HTTP/1.1 bytes by a script, with or without TLS | [`scripted_peer`] |
//! | a server on loopback that switches to other protocols | [`upgrade_server`] |
//! | an HTTP/2 server on loopback that ends its connections | [`h2_server`] |
//! | certificates for one test | `certs` |
//! | a relay on loopback that delays, cuts, resets, corrupts and stalls connections by a seeded script | `fault_proxy`, with [`fault_script`] and [`fault_transport`] |
//! | an address that refuses connections | [`refusing`] |
//! | a DNS server on loopback with correct messages, over UDP or TCP | [`dns_server`], [`dns_tcp`] |
//! | a DNS server on loopback that sends any bytes | [`scripted_dns`] |
//! | paused time: addresses that serve, refuse or stay silent after a delay | [`fake_net`] |
//! | paused time: names with scripted answers and delays | [`fake_dns`] |
//! | paused time: servers that do what the request's path says | [`net_by_path`] |
//! | paused time: a script for each connection, for HTTP/1.1 bytes | [`scripted_net`], with [`read_request_head`] |
//! | paused time: a script for each connection, frame by frame for HTTP/2 | [`scripted_net`], with [`h2_peer`] |
//! | a connection that answers at once, to measure the client alone | [`canned`] |
//! | a network of a test's own, with loopback alone or with a distant host (Linux) | `namespace` |
//! | the events of a client | [`recorder`] |
//! | a client whose requests have ended | [`settled`] |
//! | what becomes so in real time | [`until`], or [`shortest`] for an upper bound |
//! | a future that is dropped while it waits | [`dropped_at_await`] |
//! | figures written into BENCHMARKS.md | [`page`] |
//! | a bench's own program in another process: its server, or a part of it that valgrind counts | [`process`] |
//!
//! Paused time must not be used with real sockets: tokio moves the clock ahead while a socket is awaited.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]
#![allow(clippy::exhaustive_enums, clippy::new_without_default, reason = "this crate is not published")]

pub mod canned;
#[cfg(feature = "tls-servers")]
pub mod certs;
pub mod dns_server;
pub mod dns_tcp;
pub mod fake_dns;
pub mod fake_net;
#[cfg(feature = "tls-servers")]
pub mod fault_proxy;
pub mod fault_script;
pub mod fault_transport;
pub mod h2_peer;
pub mod h2_server;
pub mod http_server;
#[cfg(target_os = "linux")]
pub mod namespace;
pub mod net_by_path;
pub mod page;
pub mod process;
pub mod recorder;
pub mod scripted_dns;
pub mod scripted_net;
pub mod scripted_peer;
#[cfg(feature = "tls-servers")]
pub mod tls_server;
mod udp_server;
pub mod upgrade_server;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_server::HttpServer;
pub use http_server::ServerBody;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use speeddial::{Client, PoolConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;

/// Returns the address 192.0.2.`last`, for networks in memory.
pub fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// Returns a response body of one piece.
pub fn full(body: impl Into<Bytes>) -> ServerBody {
    Full::new(body.into()).map_err(|error: Infallible| match error {}).boxed()
}

/// Returns headers of these names and values.
pub fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    let parsed = lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
    parsed.collect()
}

/// Waits until the client holds no connection for a request: the task of a connection returns it to the pool, which may be a
/// moment after the last byte of a response was read. Not for paused time.
pub async fn settled(client: &Client) {
    until("no connection is held", || {
        let stats = client.pool_stats();
        stats.leased + stats.dialling + stats.waiting + stats.in_use == 0
    })
    .await;
}

/// One connection to a host at a time, for tests that count connections: on a busy machine a connection takes longer than 100 ms to open,
/// after which another dial would begin beside it.
pub fn one_connection() -> PoolConfig {
    PoolConfig::new().max_connections_per_host(1)
}

/// The time for which something may take its time on a busy machine. Only a failure takes as long.
pub const LONG: Duration = Duration::from_secs(60);

/// Looks again and again whether `done` returns true, and leaves the processor to others between. Not for paused time.
///
/// # Panics
/// It is not so in [`LONG`].
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Returns the shortest time that an attempt took, of up to 50. The first one within `enough` is the last.
///
/// For upper bounds in real time: what the client waits for, it waits for in each attempt, and a busy machine does not delay all of them.
pub async fn shortest(enough: Duration, mut attempt: impl AsyncFnMut() -> Duration) -> Duration {
    let mut shortest = attempt().await;
    for _ in 1..50 {
        if shortest <= enough {
            break;
        }
        shortest = shortest.min(attempt().await);
    }
    shortest
}

/// Runs a future until it has waited `awaits` times, then drops it.
pub async fn dropped_at_await<F: Future>(awaits: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = awaits;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Starts an HTTP/1.1 server that answers every request with "ok".
pub fn ok_server() -> HttpServer {
    HttpServer::start(|_| async { hyper::Response::new(full("ok")) }).unwrap()
}

/// Reads the head of an HTTP/1.1 request and nothing behind it. Returns `None` if the client closed instead.
pub async fn read_request_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Writes and flushes.
///
/// A stream of TLS needs the flush: when tokio's budget of a task is used up, a write only fills its buffer, which a read does not send.
pub async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// Returns an address that refuses connections for as long as the socket is kept.
///
/// The socket is bound but does not listen, so no other process can get its port.
pub fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Returns listeners at 127.0.0.1 and 127.0.0.2, with one port. A port may be free at one of them alone; then another one is tried.
pub fn listeners_at_two_addresses() -> [TcpListener; 2] {
    let both = || {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let port = first.local_addr().ok()?.port();
        Some([first, TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), port)).ok()?])
    };
    (0..20).find_map(|_| both()).expect("a port that is free at both addresses")
}

/// Returns the name by which the test binary knows the test `name` of the module `module`, as `module_path!()` has it.
pub fn test_path(module: &str, name: &str) -> String {
    let (_crate, path) = module.split_once("::").expect("a test in a module");
    format!("{path}::{name}")
}

/// Returns a port that is free over UDP and TCP, for a server in another process.
///
/// The port is outside of the range from which the system takes ports for other sockets.
pub fn free_port() -> u16 {
    const PORTS: Range<u32> = 20_000..30_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok()
    };
    // Each port is given once, as it becomes taken only when the other process has started. Processes begin at different ports.
    let next = || std::process::id().wrapping_mul(101).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
    let port = || PORTS.start + next() % (PORTS.end - PORTS.start);
    (0..100).map(|_| u16::try_from(port()).unwrap()).find(is_free).expect("a free port")
}
