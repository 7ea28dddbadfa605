//! Fakes for paused time, servers for real sockets, and a recorder.

pub(crate) mod acting;
#[cfg(feature = "__tls")]
pub(crate) mod certs;
pub(crate) mod dns_server;
pub(crate) mod dns_tcp;
pub(crate) mod evil_dns;
pub(crate) mod fake_dns;
pub(crate) mod fake_net;
#[cfg(any(feature = "tower", feature = "hyper-util"))]
pub(crate) mod grpc;
pub(crate) mod h2_peer;
pub(crate) mod h2_server;
pub(crate) mod http_server;
pub(crate) mod peer;
pub(crate) mod recorder;
#[cfg(feature = "__tls")]
pub(crate) mod tls_server;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use http_server::HttpServer;
pub(crate) use http_server::ServerBody;
use tokio::net::TcpSocket;

/// An address of the fake network.
pub(crate) fn v4(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

pub(crate) fn full(body: impl Into<Bytes>) -> ServerBody {
    Full::new(body.into()).map_err(|error: Infallible| match error {}).boxed()
}

/// A server that answers "ok".
pub(crate) fn ok_server() -> HttpServer {
    HttpServer::start(|_| async { hyper::Response::new(full("ok")) }).unwrap()
}

/// An address that refuses connections for as long as the socket is kept: bound, so that nobody else has it, but not
/// listening.
pub(crate) fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// A port for a server of another process: outside the range from which other sockets get theirs.
pub(crate) fn free_port() -> u16 {
    let free = |port: &u16| {
        let address = (Ipv4Addr::LOCALHOST, *port);
        std::net::UdpSocket::bind(address).is_ok() && std::net::TcpListener::bind(address).is_ok()
    };
    (0..100).map(|_| fastrand::u16(20_000..30_000)).find(free).expect("a free port")
}
