//! TLS on a connected stream, with the origin or with a proxy.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock;
use crate::connect::io::io_record::DialRead;
use crate::origin::{Host, Origin, Scheme};
pub(crate) use crate::tls::is_of_proxy;
use crate::tls::{Tls, TlsConnected, TlsFailed, of_proxy};
use crate::trace::{DialTrace, Event, Phase, TlsFacts};
use crate::transport::{Probe, Stream};

/// A stream and the result of its TLS handshake, which is `None` without TLS.
pub(super) type Secured = (Box<dyn Stream>, Option<Arc<TlsFacts>>);

/// The client's TLS settings for one kind of peer.
#[derive(Clone, Copy)]
pub(super) struct Security<'a> {
    pub(super) tls: &'a Tls,
    /// The longest that a handshake may take.
    pub(super) timeout: Duration,
}

impl Security<'_> {
    /// Shakes hands with an `https` origin over `stream`. The handshake may take `limit` and the TLS timeout, whichever
    /// is shorter. `probe` looks at the socket below.
    pub(super) async fn secure(
        self,
        origin: &Origin,
        remote: Option<SocketAddr>,
        stream: Box<dyn Stream>,
        limit: Option<Duration>,
        probe: Option<&Probe>,
        trace: &DialTrace,
    ) -> Result<Secured, Arc<io::Error>> {
        if origin.scheme() != Scheme::Https {
            return Ok((stream, None));
        }
        trace.emit(Event::TlsStart { address: remote });
        let limit = limit.map_or(self.timeout, |limit| limit.min(self.timeout));
        let reading = DialRead { phase: Phase::Tls, probe, trace };
        match self.handshake(origin.host(), stream, limit, reading).await {
            Ok(TlsConnected { stream, facts }) => {
                let facts = Arc::new(facts);
                trace.emit(Event::TlsEnd(facts.clone()));
                Ok((Box::new(stream), Some(facts)))
            }
            Err(error) => {
                let error = Arc::new(error);
                trace.emit(Event::TlsFailed { address: remote, error: error.clone() });
                Err(error)
            }
        }
    }

    /// Shakes hands with an `https` proxy over `stream`.
    pub(super) async fn secure_proxy(
        self,
        proxy: &Origin,
        stream: Box<dyn Stream>,
        reading: DialRead<'_>,
    ) -> io::Result<Box<dyn Stream>> {
        if proxy.scheme() != Scheme::Https {
            return Ok(stream);
        }
        let connected = self.handshake(proxy.host(), stream, self.timeout, reading).await?;
        Ok(Box::new(ProxyTlsStream(connected.stream)))
    }

    async fn handshake(
        self,
        host: &Host,
        stream: Box<dyn Stream>,
        limit: Duration,
        reading: DialRead<'_>,
    ) -> io::Result<TlsConnected<Box<dyn Stream>>> {
        // Boxed because a handshake is large, and the pool keeps the futures of dials.
        let handshake = Box::pin(self.tls.handshake(stream, host));
        let end = clock::now().checked_add(limit);
        reading.until(end, handshake).await.unwrap_or_else(|| Err(TlsFailed::timed_out(limit)))
    }
}

/// Returns a clause about TLS that failed with `peer`, without the reason; `None` if the error is another one.
pub(super) fn tls_clause(error: &io::Error, peer: &str) -> Option<String> {
    TlsFailed::of(error).map(|failed| failed.clause(peer))
}

/// Returns true for a failure of TLS.
pub(super) fn is_tls(error: &io::Error) -> bool {
    tls_clause(error, "").is_some()
}

/// Returns true if a handshake took longer than the client allows.
pub(super) fn is_tls_limit(error: &io::Error) -> bool {
    is_tls(error) && tls_reason(error).is_none()
}

/// Returns the reason why TLS failed; `None` if the handshake took too long, or if the error is another one.
pub(crate) fn tls_reason(error: &io::Error) -> Option<&(dyn std::error::Error + 'static)> {
    TlsFailed::of(error)?.reason()
}

/// Returns a clause about an alert that ended a connection after its handshake, without the reason.
pub(crate) fn clause_after_handshake(error: &io::Error) -> Option<String> {
    TlsFailed::of(error).map(TlsFailed::clause_after_handshake)
}

/// A TLS stream with a proxy, whose TLS errors say so. The origin's stream may run inside of it, and an alert of the
/// proxy would look like one of the origin's server.
struct ProxyTlsStream<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for ProxyTlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf).map_err(of_proxy)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProxyTlsStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf).map_err(of_proxy)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs).map_err(of_proxy)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx).map_err(of_proxy)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx).map_err(of_proxy)
    }
}
