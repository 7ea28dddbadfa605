//! From an address to a byte stream: the [`Transport`] trait, TCP, and Unix domain sockets.

mod late_options;
mod tcp;
#[cfg(target_os = "linux")]
mod tcp_info;
mod tcp_stream;

pub(crate) use crate::transport::tcp_stream::{Liveness, Probe, SEES_CLOSE_BEHIND_BYTES};
pub use tcp::TcpTransport;

pub(crate) use crate::transport::tcp::connect_unix;
use std::any::Any;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Connects to one address of a host. The client races the host's addresses by calling it for several of them.
///
/// Implement it to carry connections over something other than TCP, or to script a network in a test.
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
    /// Connects to `address`. Dropping the future gives up the attempt.
    ///
    /// # Errors
    /// The error of the operating system. The race goes on with the next address.
    fn connect(&self, address: SocketAddr) -> Connecting<'_>;

    /// Returns the local address that packets to `address` would be sent from, or an error if there is no route to it.
    ///
    /// The client sorts a host's addresses by it (RFC 6724). `None` means that it cannot be known without waiting or
    /// sending a packet; that is the default.
    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        let _ = address;
        None
    }

    /// Returns what is wrong with the transport's settings, as the end of a sentence. A client is not built with such a transport. `None` by
    /// default; a transport around another one returns that one's.
    fn contradiction(&self) -> Option<&'static str> {
        None
    }
}

/// A connection attempt under way, as [`Transport::connect`] returns it.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        (**self).connect(address)
    }

    fn source_of(&self, address: SocketAddr) -> Option<io::Result<IpAddr>> {
        (**self).source_of(address)
    }

    fn contradiction(&self) -> Option<&'static str> {
        (**self).contradiction()
    }
}

/// A connected byte stream. Implemented for every type that reads and writes.
pub trait Stream: AsyncRead + AsyncWrite + Any + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Any + Send + Unpin> Stream for S {}
