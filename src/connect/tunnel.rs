//! The way through a proxy: TLS to the proxy if it wants that, then a tunnel to the origin unless the proxy forwards
//! requests.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use http::Uri;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use super::error::ConnectError;
use super::lookup::Lookup;
use super::proxy_server::{Forwarding, ProxyProtocol, ProxyServer};
use super::secure::Security;
use crate::clock;
use crate::credentials::Credentials;
use crate::origin::Host;
use crate::race;
use crate::trace::{DialTrace, Event, Family};
use crate::transport::{Probe, Stream, Transport};

/// A way through a proxy to an origin.
pub(super) struct ProxyRoute<'a> {
    pub(super) server: &'a ProxyServer,
    /// Set if the proxy forwards the origin's requests one by one; otherwise it is asked for a tunnel.
    pub(super) forwarding: Option<Forwarding>,
    /// The origin's host as the proxy is asked for it: its name, or its addresses in the order to try them.
    pub(super) hosts: Vec<Host>,
    /// The origin's port.
    pub(super) port: u16,
    /// TLS with the proxy itself.
    pub(super) security: Security<'a>,
    pub(super) transport: &'a dyn Transport,
    pub(super) trace: &'a DialTrace,
}

/// The failure of a proxy that was connected to.
pub(super) struct TunnelError {
    pub(super) error: io::Error,
    /// True if the proxy sent an answer; false if the connection to it failed.
    pub(super) is_answer: bool,
    /// True if the proxy refused this host or could not reach it, so that it may still reach another one.
    is_about_host: bool,
}

impl From<io::Error> for TunnelError {
    /// Converts a failure of the connection to the proxy.
    fn from(error: io::Error) -> Self {
        Self { error, is_answer: false, is_about_host: false }
    }
}

impl ProxyRoute<'_> {
    /// Turns `stream`, which is connected to the proxy at `remote`, into one for requests to the origin. Also returns a
    /// probe of the socket below it.
    pub(super) async fn open(
        &self,
        remote: SocketAddr,
        stream: Box<dyn Stream>,
    ) -> Result<(Box<dyn Stream>, Option<Probe>), TunnelError> {
        self.trace.emit(Event::ProxyStart { proxy: self.server.origin.clone() });
        let opened = match self.forwarding {
            Some(_) => {
                let probe = Probe::of(&*stream);
                (self.security.secure_proxy(&self.server.origin, stream).await?, probe)
            }
            None => self.open_tunnel(remote, stream).await?,
        };
        self.trace.emit(Event::ProxyEnd);
        Ok(opened)
    }

    /// Asks the proxy for a tunnel to one of the hosts after the other. A refusal ends the stream, so each host but the
    /// first has a connection of its own.
    async fn open_tunnel(
        &self,
        remote: SocketAddr,
        mut stream: Box<dyn Stream>,
    ) -> Result<(Box<dyn Stream>, Option<Probe>), TunnelError> {
        let mut hosts = self.hosts.iter().peekable();
        loop {
            let probe = Probe::of(&*stream);
            let secured = self.security.secure_proxy(&self.server.origin, stream).await?;
            let Some(host) = hosts.next() else { return Ok((secured, probe)) };
            match request_tunnel(self.server, secured, host, self.port).await {
                Ok(tunnel) => return Ok((tunnel, probe)),
                Err(failed) if failed.is_about_host && hosts.peek().is_some() => {
                    stream = self.transport.connect(remote).await?;
                }
                Err(failed) => return Err(failed),
            }
        }
    }
}

/// Looks up the addresses to ask a proxy for, in the order to try them: the families take turns, IPv4 first, because a
/// proxy does not say which of them it can reach. After the first addresses, the other family has the race's resolution
/// delay to answer.
pub(super) async fn hosts_for(
    lookup: &Lookup<'_>,
    host: &Host,
    families: &[Family],
) -> Result<Vec<Host>, ConnectError> {
    let config = race::Config::default();
    let mut answers = lookup.answers(host, families, clock::now());
    let mut deadline = None;
    let mut known = [const { Vec::new() }; 2];
    while let Some(Some((family, addresses, at))) = clock::before(deadline, std::pin::pin!(answers.next())).await {
        if deadline.is_none() && !addresses.is_empty() {
            deadline = Some(at + config.resolution_delay);
        }
        known[family as usize] = addresses.to_vec();
    }
    let hosts = taking_turns(&known, config.max_in_flight);
    if hosts.is_empty() { Err(lookup.explain(Vec::new())) } else { Ok(hosts) }
}

/// Takes the first address of each family, then the second of each, and so on, up to `max` addresses.
fn taking_turns(families: &[Vec<IpAddr>; 2], max: usize) -> Vec<Host> {
    let longest = families.iter().map(Vec::len).max().unwrap_or_default();
    let turns = (0..longest).flat_map(|turn| families.iter().filter_map(move |addresses| addresses.get(turn)));
    turns.take(max).map(|ip| Host::Ip(*ip)).collect()
}

/// The most bytes of a SOCKS5 proxy's answers to the client's methods and credentials (RFC 1928 §3, RFC 1929 §2). An
/// answer beyond them is about the host.
const SOCKS5_HANDSHAKE: usize = 4;

/// Asks the proxy at the other end of `stream` to connect to `host`.
async fn request_tunnel(
    server: &ProxyServer,
    stream: Box<dyn Stream>,
    host: &Host,
    port: u16,
) -> Result<Box<dyn Stream>, TunnelError> {
    let bytes_read = Arc::new(AtomicUsize::new(0));
    let stream = ByteAtATime { stream, bytes_read: bytes_read.clone() };
    negotiate(&server.protocol, stream, host, port).await.map_err(|error| {
        let bytes_read = bytes_read.load(Ordering::Relaxed);
        let is_socks = matches!(server.protocol, ProxyProtocol::Socks5 { .. });
        TunnelError { error, is_answer: bytes_read > 0, is_about_host: is_socks && bytes_read > SOCKS5_HANDSHAKE }
    })
}

/// Speaks the proxy's protocol until the stream leads to `host`.
async fn negotiate(
    protocol: &ProxyProtocol,
    stream: ByteAtATime,
    host: &Host,
    port: u16,
) -> io::Result<Box<dyn Stream>> {
    let destination: Uri = format!("http://{host}:{port}").parse().map_err(io::Error::other)?;
    // hyper-util connects by itself. It is given a connector that returns the stream, and a URI that is not used.
    let proxy = Uri::from_static("http://proxy");
    let connected = AlreadyConnected(Some(TokioIo::new(stream)));
    let stream = match protocol {
        ProxyProtocol::Http { authorization } => {
            let mut tunnel = Tunnel::new(proxy, connected);
            if let Some(authorization) = authorization {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            tunnel.call(destination).await.map_err(io::Error::other)?
        }
        ProxyProtocol::Socks5 { credentials, .. } => {
            let mut socks = SocksV5::new(proxy, connected);
            if let Some((user, password)) = credentials.as_ref().map(Credentials::to_text) {
                socks = socks.with_auth(user, password);
            }
            socks.call(destination).await.map_err(io::Error::other)?
        }
    };
    Ok(stream.into_inner().stream)
}

/// A stream that is read one byte at a time.
///
/// hyper-util reads as much as there is. Bytes of the origin that follow the proxy's answer would be lost with its
/// buffer.
struct ByteAtATime {
    stream: Box<dyn Stream>,
    bytes_read: Arc<AtomicUsize>,
}

impl AsyncRead for ByteAtATime {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        let mut one = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut one))?;
        self.bytes_read.fetch_add(one.filled().len(), Ordering::Relaxed);
        buf.put_slice(one.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ByteAtATime {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connector for hyper-util whose stream is connected already.
struct AlreadyConnected(Option<TokioIo<ByteAtATime>>);

impl Service<Uri> for AlreadyConnected {
    type Response = TokioIo<ByteAtATime>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        std::future::ready(self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_families_take_turns_and_ipv4_is_first() {
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let families = [ips(&["192.0.2.1"]), ips(&["2001:db8::1", "2001:db8::2", "2001:db8::3"])];
        let hosts = |max| taking_turns(&families, max).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(hosts(3), ["192.0.2.1", "[2001:db8::1]", "[2001:db8::2]"]);
        assert_eq!(hosts(1), ["192.0.2.1"]);
    }
}
