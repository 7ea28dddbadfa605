//! Servers on loopback for real sockets, fakes for paused time, and a recorder of events.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]
#![allow(missing_docs, clippy::exhaustive_enums, clippy::new_without_default, reason = "this crate is not published")]

pub mod acting;
pub mod canned;
#[cfg(feature = "tls-servers")]
pub mod certs;
pub mod dns_server;
pub mod dns_tcp;
pub mod evil_dns;
pub mod fake_dns;
pub mod fake_net;
pub mod h2_peer;
pub mod h2_server;
pub mod http_server;
pub mod peer;
pub mod recorder;
#[cfg(feature = "tls-servers")]
pub mod tls_server;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_server::HttpServer;
pub use http_server::ServerBody;
use tokio::net::TcpSocket;

/// An address of the fake network.
pub fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

pub fn full(body: impl Into<Bytes>) -> ServerBody {
    Full::new(body.into()).map_err(|error: Infallible| match error {}).boxed()
}

/// A server that answers "ok".
pub fn ok_server() -> HttpServer {
    HttpServer::start(|_| async { hyper::Response::new(full("ok")) }).unwrap()
}

/// An address that refuses connections for as long as the socket is kept: bound, so that nobody else has it, but not
/// listening.
pub fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The name under which the test binary knows the test `name` of the module `module_path!()`: without the crate.
pub fn test_path(module: &str, name: &str) -> String {
    let (_crate, path) = module.split_once("::").expect("a test in a module");
    format!("{path}::{name}")
}

/// A port for a server of another process: outside the range from which other sockets get theirs.
pub fn free_port() -> u16 {
    let free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        std::net::UdpSocket::bind(address).is_ok() && std::net::TcpListener::bind(address).is_ok()
    };
    (0..100).map(|_| fastrand::u16(20_000..30_000)).find(free).expect("a free port")
}
