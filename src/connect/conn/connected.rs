//! A byte stream to an origin before HTTP is spoken on it.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::connect::proxy::server::Forwarding;
use crate::connect::resolve::name_use::NameUse;
use crate::trace::TlsFacts;
use crate::transport::{Probe, Stream};

/// A byte stream to an origin, after the TLS handshake if the origin has one. No byte of HTTP was sent on it.
pub(crate) struct ConnectedStream {
    pub(crate) stream: Box<dyn Stream>,
    /// The result of the TLS handshake with the origin; `None` without TLS.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// The address that was connected to: the proxy's if there is one. `None` for a Unix domain socket.
    pub(crate) remote: Option<SocketAddr>,
    /// Set if the stream leads to a proxy that forwards requests. Boxed because few connections need it, and all are moved often.
    pub(crate) forwarding: Option<Box<Forwarding>>,
    /// The use of the host name that was looked up, the proxy's if there is one; `None` for an IP address.
    pub(crate) name_use: Option<NameUse>,
    /// A probe of the TCP socket below; `None` if the transport is not the crate's own.
    pub(crate) probe: Option<Probe>,
}

#[cfg(test)]
impl ConnectedStream {
    /// Wraps a stream of a test.
    pub(in crate::connect) fn of(stream: impl Stream) -> Self {
        let stream = Box::new(stream);
        Self { stream, tls: None, remote: None, forwarding: None, name_use: None, probe: None }
    }
}
