//! The connector, and the DNS cache, under hyper-util's clients and whatever takes a hyper connector.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tower_service::Service;
use url::Url;

use crate::client::ClientBuilder;
use crate::clock;
use crate::connect::{self, NameUse, Protocol};
use crate::dns::{CachedResolver, ResolveError};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::trace::{CloseCause, DialTrace, Event, Hooks, connection_closed};
use crate::transport::Stream;

/// This crate's way to a connection, for other people's pools: DNS cache, race, proxies, TLS, and their events.
///
/// It is a `tower_service::Service<http::Uri>`, as hyper-util's legacy client, tonic's `connect_with_connector` and others
/// take it. It is set up as a client is. Clones share everything.
///
/// Plain requests go to an HTTP proxy in absolute form, but to one that wants credentials through a tunnel: whoever makes the
/// requests does not know them.
///
/// For a client that speaks HTTP/2 alone, as tonic does, say [`ClientBuilder::http2_prior_knowledge`]: servers are offered nothing
/// else then, and proxies only tunnel. Where a TLS feature of tonic's is on, tonic leaves no `https` endpoint to a connector; there
/// a [`Client`](crate::Client) is the channel (feature `tower`).
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
    shared: Arc<Shared>,
}

struct Shared {
    connector: connect::Connector,
    hooks: Hooks,
    opened: AtomicU64,
}

/// A connection under way.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Line>> + Send>>;

/// A connected stream.
pub struct Line {
    stream: TokioIo<Box<dyn Stream>>,
    is_http2: bool,
    /// It leads to a proxy that wants requests in absolute form.
    is_forwarded: bool,
    name_use: Option<NameUse>,
    hooks: Hooks,
    number: u64,
    remote: Option<SocketAddr>,
}

impl Connector {
    /// Makes a connector with a client's settings for connections. Its settings for calls have no effect: the pool, layers, headers,
    /// redirects, retries, and all time limits but those of connecting.
    ///
    /// # Errors
    /// As [`ClientBuilder::build`].
    pub fn new(builder: ClientBuilder) -> Result<Self> {
        let (connector, hooks) = builder.into_connector()?;
        Ok(Self { shared: Arc::new(Shared { connector, hooks, opened: AtomicU64::new(0) }) })
    }

    async fn connect(self, uri: Uri) -> Result<Line> {
        let url = Url::parse(&uri.to_string()).map_err(|error| Error::invalid_url(&uri.to_string(), error))?;
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        let number = self.shared.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let trace = DialTrace::new(&self.shared.hooks, number);
        let mut dialling = Dialling { trace, over: false };
        let opened = self.shared.connector.open_stream(&origin, &dialling.trace).await;
        let failed = |error| Error::no_connection(&origin, error).dialling(dialling.trace.timings());
        let line = opened.map_err(failed)?;
        dialling.over = true;
        let is_http2 = self.shared.connector.protocol(&line) == Protocol::Http2;
        Ok(Line {
            stream: TokioIo::new(line.stream),
            is_http2,
            is_forwarded: line.forwarding.is_some(),
            name_use: line.name_use,
            hooks: self.shared.hooks.clone(),
            number,
            remote: line.remote,
        })
    }
}

/// A dial under way; dropped before it is over, it failed or was given up.
struct Dialling {
    trace: Arc<DialTrace>,
    over: bool,
}

impl Drop for Dialling {
    fn drop(&mut self) {
        if !self.over {
            self.trace.emit(Event::DialFailed);
        }
    }
}

impl Service<Uri> for Connector {
    type Response = Line;
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
        f.debug_struct("Connector").field("opened", &self.shared.opened).finish_non_exhaustive()
    }
}

impl Line {
    /// The peer's address, where the transport knows it.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.remote
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("remote", &self.remote).finish_non_exhaustive()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        connection_closed(&self.hooks, self.number, CloseCause::Asked);
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.is_forwarded);
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.note();
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.note();
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
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

impl Line {
    /// Whoever writes is using the name, whichever pool keeps the connection.
    fn note(&mut self) {
        if let Some(name_use) = &mut self.name_use {
            name_use.touch(clock::now());
        }
    }
}

/// The cache as hyper-util's `HttpConnector::new_with_resolver` takes it: the addresses of both families, without a port.
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
