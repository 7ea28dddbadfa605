//! Addresses to byte streams: the [`Transport`] seam, and TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Connects to one address: the seam under the race between addresses.
///
/// Implement it to put connections over something other than TCP, or to script a network in a test.
///
/// ```
/// use std::{io, net::SocketAddr};
/// use speeddial::transport::{Connecting, Transport};
///
/// /// Refuses every address.
/// struct Nowhere;
/// impl Transport for Nowhere {
///     fn connect(&self, _: SocketAddr) -> Connecting<'_> {
///         Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
///     }
/// }
/// let client = speeddial::Client::builder().transport(Nowhere).build();
/// ```
pub trait Transport: Send + Sync + 'static {
    /// Connects to `address`. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// The operating system's, as they are: the race goes on with the next address.
    fn connect(&self, address: SocketAddr) -> Connecting<'_>;

    /// The address from which packets to `address` would be sent, where that can be told at once and without sending any:
    /// an error says that there is no way to it. It sorts a host's addresses (RFC 6724). Not known by default.
    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        let _ = address;
        None
    }
}

/// A connection attempt under way: what [`Transport::connect`] returns.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

impl<T: Transport + ?Sized> Transport for std::sync::Arc<T> {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        (**self).connect(address)
    }

    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        (**self).source_of(address)
    }
}

/// A connected byte stream: anything that reads and writes.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// TCP, with nodelay on, keepalive after 15 s of silence (3 probes, 15 s apart), and on Linux a user timeout of 30 s
/// (RFC 5482) after which unacknowledged data closes the connection.
#[derive(Debug, Clone)]
pub struct TcpTransport {
    keepalive: TcpKeepalive,
}

const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 3;
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for TcpTransport {
    fn default() -> Self {
        let keepalive =
            TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(KEEPALIVE_PROBES);
        Self { keepalive }
    }
}

impl TcpTransport {
    /// TCP with the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// An option that the system does not know is no reason to do without the connection.
    fn configure(&self, stream: &TcpStream) {
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_nodelay(true);
        let _ = socket.set_tcp_keepalive(&self.keepalive);
        #[cfg(target_os = "linux")]
        let _ = socket.set_tcp_user_timeout(Some(USER_TIMEOUT));
    }
}

impl Transport for TcpTransport {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            self.configure(&stream);
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    /// Connects a UDP socket, which sends nothing and asks the routing table.
    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let probe = || {
            let socket = std::net::UdpSocket::bind((any, 0))?;
            socket.connect(address)?;
            Ok(socket.local_addr()?.ip())
        };
        Some(probe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_loopback_is_loopback() {
        let source = TcpTransport::new().source_of(([127, 0, 0, 1], 80).into()).unwrap().unwrap();
        assert!(source.is_loopback());
    }

    #[tokio::test]
    async fn sockets_have_the_promised_options() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        TcpTransport::new().configure(&stream);
        let socket = SockRef::from(&stream);
        assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }
}
