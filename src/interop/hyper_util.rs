//! The connector and the DNS cache for hyper-util's clients, and for other libraries that take a hyper connector.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;
use url::Url;

use super::connection_use::ConnectionUse;
use crate::client::ClientBuilder;
use crate::clock;
use crate::connect::{self, NameUse, Protocol};
use crate::dns::{CachedResolver, ResolveError};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::trace::{CloseCause, DialTrace, Hooks, Wants, connection_active, connection_closed, connection_released};
use crate::transport::Stream;

/// Opens connections for other libraries' pools, with this crate's DNS cache, connection race, proxies, TLS and events.
///
/// The connector is a `tower_service::Service<http::Uri>`, as hyper-util's legacy client, tonic's `connect_with_connector` and
/// other libraries take it. It is configured by a [`ClientBuilder`]. Clones share everything.
///
/// Plain `http` requests through an HTTP proxy are sent to the proxy with an absolute URL (RFC 9112 §3.2.2). If the proxy needs
/// credentials, they go through a CONNECT tunnel instead, because the library that sends the requests does not know the
/// credentials.
///
/// For a client that speaks only HTTP/2, such as tonic, set [`ClientBuilder::http2_prior_knowledge`]: then servers are offered
/// HTTP/2 only, and all requests go through proxies in tunnels. If one of tonic's own TLS features is on, tonic gives no `https`
/// endpoint to a connector; use a [`Client`](crate::Client) as the channel then.
///
/// ```
/// use hyper_util::client::legacy::Client;
/// use hyper_util::rt::TokioExecutor;
///
/// # fn main() -> speeddial::Result<()> {
/// let connector = speeddial::interop::Connector::new(speeddial::Client::builder())?;
/// let client: Client<_, http_body_util::Empty<bytes::Bytes>> = Client::builder(TokioExecutor::new()).build(connector);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Connector {
    inner: Arc<ConnectorInner>,
}

struct ConnectorInner {
    connector: Arc<connect::Connector>,
    hooks: Hooks,
    /// The number of dials so far.
    dials: AtomicU64,
}

/// The future of a connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = Result<ConnectedStream>> + Send>>;

/// A connection as hyper's clients take it: a byte stream, after the TLS handshake if there is one.
pub struct ConnectedStream {
    stream: TokioIo<UsedStream>,
    is_http2: bool,
    /// True if the peer is a proxy that takes requests in absolute form.
    is_forwarded: bool,
    remote: Option<SocketAddr>,
}

/// A stream whose use is told: to the DNS cache, and to observers.
struct UsedStream {
    stream: Box<dyn Stream>,
    name_use: Option<NameUse>,
    hooks: Hooks,
    number: u64,
    /// `None` if no observer wants to know.
    usage: Option<ConnectionUse>,
}

impl Connector {
    /// Creates a connector with the builder's settings for connections: names and addresses, time limits of dials, TCP, proxies,
    /// TLS, layers around the connector, and observers, which are told of dials and lookups. A default
    /// `User-Agent` is sent to HTTP proxies with CONNECT, and to no other server.
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::build`]. Besides, [`ErrorKind::Request`](crate::ErrorKind::Request) if settings differ from
    /// their defaults that are for calls, which the other library makes; the error names them all. Those are the pool, the
    /// [base URL](ClientBuilder::base_url), time limits other than those of connecting, headers, cookies, tokens, redirects,
    /// retries, hedging, layers around calls and attempts, [`https_only`](ClientBuilder::https_only), the limit of bodies, and
    /// decompression. Among the settings of HTTP only [`http1_only`](ClientBuilder::http1_only) and
    /// [`http2_prior_knowledge`](ClientBuilder::http2_prior_knowledge) are used, for the protocols that TLS offers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use speeddial::{Client, RetryPolicy, interop::Connector};
    ///
    /// let builder = Client::builder().connect_timeout(Duration::from_secs(3)).retry(RetryPolicy::new());
    /// let error = Connector::new(builder).unwrap_err();
    /// assert!(error.is_builder() && error.to_string().ends_with("it has no use for `retry`"));
    /// ```
    pub fn new(builder: ClientBuilder) -> Result<Self> {
        let (connector, hooks) = builder.into_connector()?;
        Ok(Self { inner: Arc::new(ConnectorInner { connector: Arc::new(connector), hooks, dials: AtomicU64::new(0) }) })
    }

    async fn connect(self, uri: Uri) -> Result<ConnectedStream> {
        let url = Url::parse(&uri.to_string()).map_err(|error| Error::invalid_url(&uri.to_string(), error))?;
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        let number = self.inner.dials.fetch_add(1, Ordering::Relaxed) + 1;
        let trace = DialTrace::new(&self.inner.hooks, number);
        let mut dialling = ConnectorDial { trace, is_over: false };
        let opened = self.inner.connector.open_stream(&origin, &dialling.trace).await;
        dialling.is_over = true;
        let failed = |error| {
            dialling.trace.fail();
            Error::no_connection(error).of_dial(&url).with_timings(dialling.trace.timings(), None)
        };
        let line = opened.map_err(failed)?;
        let is_http2 = self.inner.connector.protocol(&line) == Protocol::Http2;
        let hooks = self.inner.hooks.clone();
        let (is_forwarded, remote) = (line.forwarding.is_some(), line.remote);
        let (stream, name_use) = (line.stream, line.name_use);
        let usage = hooks.wants().intersects(Wants::CONNECTIONS).then(|| ConnectionUse::new(is_http2));
        let used = UsedStream { stream, name_use, hooks, number, usage };
        Ok(ConnectedStream { stream: TokioIo::new(used), is_http2, is_forwarded, remote })
    }
}

/// A dial that is under way. If it is dropped before it is over, it is given up.
struct ConnectorDial {
    trace: Arc<DialTrace>,
    is_over: bool,
}

impl Drop for ConnectorDial {
    fn drop(&mut self) {
        if !self.is_over {
            self.trace.end_dropped();
        }
    }
}

impl Service<Uri> for Connector {
    type Response = ConnectedStream;
    type Error = Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        Box::pin(self.clone().connect(uri))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("dials", &self.inner.dials).finish_non_exhaustive()
    }
}

impl ConnectedStream {
    /// Returns the peer's address, if the transport knows it.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.remote
    }
}

impl UsedStream {
    /// Tells the DNS cache that the name is in use, so that its answer is refreshed. A write shows that, whichever pool keeps the
    /// connection.
    fn note_use(&mut self) {
        if let Some(name_use) = &mut self.name_use {
            name_use.touch(clock::now());
        }
    }

    /// Changes the use of the connection, and tells observers if it begins or ends.
    fn note(&mut self, change: impl FnOnce(&mut ConnectionUse)) {
        let Some(usage) = &mut self.usage else { return };
        let was_active = usage.is_active();
        change(usage);
        match (was_active, usage.is_active()) {
            (false, true) => connection_active(&self.hooks, self.number),
            (true, false) => connection_released(&self.hooks, None, self.number, true),
            _ => {}
        }
    }
}

impl fmt::Debug for ConnectedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedStream").field("remote", &self.remote).finish_non_exhaustive()
    }
}

impl Drop for UsedStream {
    fn drop(&mut self) {
        if self.usage.as_ref().is_some_and(ConnectionUse::is_active) {
            connection_released(&self.hooks, None, self.number, false);
        }
        connection_closed(&self.hooks, self.number, CloseCause::Program);
    }
}

impl Connection for ConnectedStream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.is_forwarded);
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for UsedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.note(|usage| usage.read(&buf.filled()[before..]));
        read
    }
}

impl AsyncWrite for UsedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.note_use();
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.note(|usage| usage.write(&buf[..written]));
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note_use();
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.note(|usage| {
            let mut left = written;
            for buf in bufs {
                let (now, _) = buf.split_at(left.min(buf.len()));
                left -= now.len();
                usage.write(now);
            }
        });
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Read for ConnectedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for ConnectedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        Write::is_write_vectored(&self.stream)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The DNS cache as a resolver for hyper-util's `HttpConnector::new_with_resolver`. It answers with the addresses of both
/// families, and port 0.
#[cfg_attr(docsrs, doc(cfg(feature = "hyper-util")))]
impl Service<Name> for CachedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = ResolveError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ResolveError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ResolveError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let cache = self.clone();
        Box::pin(async move {
            let addresses = cache.lookup_both(name.as_str()).await?;
            Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
        })
    }
}
