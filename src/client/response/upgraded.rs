//! The byte stream of another protocol after an upgrade, with the connection that it keeps.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;

use crate::client::body::Dialer;
use crate::clock;
use crate::connect::{Protocol, UpgradedStream};
use crate::error::{Error, Result};
use crate::pool::Lease;
use crate::sync::lock;
use crate::trace::CloseCause;

/// The longest that the rest of the request may be written after the server has agreed to switch protocols.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// The longest that the server may take to read what was written to an HTTP/2 stream before it was dropped, and to end its side.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of an HTTP/2 stream that are read after it was dropped. It is twice the default receive window: a server that
/// has sent so much has been told of the end.
const MAX_DISCARDED: u64 = 2 << 20;

/// The byte stream of another protocol, from [`Response::upgrade`](crate::Response::upgrade).
///
/// It keeps its connection, and the connection's place in the pool, until it is dropped. Over HTTP/2 it keeps one stream of the
/// connection, and other requests go on beside it. No time limit of the client applies to it.
///
/// Over TLS, a write alone may keep what it is given: [`flush`](tokio::io::AsyncWriteExt::flush) sends it.
/// [`shutdown`](tokio::io::AsyncWriteExt::shutdown) ends what is sent, and the server's side can still be read. Dropping it closes
/// both sides. Over HTTP/1.1 the socket is closed at once. Over HTTP/2 the stream goes on in the background until the server has
/// ended its side: what was written arrives, unless that takes longer than 5 s, the server sends more than 2 MiB, or
/// the runtime ends before. The stream is reset then.
///
/// A read that returns 0 bytes does not prove that nothing is missing: an HTTP/2 stream that the server resets with CANCEL or
/// NO_ERROR looks the same as one that it ended, and a proxy may have closed a connection. Only the other protocol knows its
/// own end, such as the close frame of WebSocket.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/", listener.local_addr()?);
/// # tokio::spawn(async move {
/// #     let (mut socket, _) = listener.accept().await?;
/// #     socket.read(&mut [0; 1024]).await?;
/// #     socket.write_all(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await?;
/// #     let (mut reader, mut writer) = socket.split();
/// #     tokio::io::copy(&mut reader, &mut writer).await
/// # });
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let request = speeddial::Client::new().get(&url).header("connection", "upgrade").header("upgrade", "echo");
/// let mut stream = request.send().await?.upgrade().await?;
/// stream.write_all(b"hello").await?;
/// stream.flush().await?;
/// let mut echo = [0; 5];
/// stream.read_exact(&mut echo).await?;
/// assert_eq!(&echo, b"hello");
/// # Ok(()) }
/// ```
pub struct Upgraded {
    /// `None` only while it is dropped.
    open: Option<OpenUpgrade>,
}

/// A stream that is not closed.
struct OpenUpgrade {
    // In this order: the connection is released after its socket is closed.
    stream: UpgradedStream,
    lease: Lease<Dialer>,
    received: u64,
    sent: u64,
}

impl Upgraded {
    fn open(&mut self) -> &mut OpenUpgrade {
        self.open.as_mut().expect("the stream is open until it is dropped")
    }
}

impl Drop for Upgraded {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        open.lease.announce_upgrade_end(open.received, open.sent);
        if open.stream.is_http2() {
            open.lease.conn().runtime().spawn(open.finish().boxed());
        }
    }
}

impl OpenUpgrade {
    /// Gives the server some time to read what was written to an HTTP/2 stream, and closes it.
    async fn finish(self) {
        // Dropped in the reverse order: the stream counts until it is closed.
        let mut lease = self.lease;
        let mut stream = self.stream;
        let until = clock::now().checked_add(CLOSE_TIMEOUT);
        let ended = clock::before(until, pin!(stream.shutdown())).await;
        match ended {
            // What was written may still be in h2, which discards it if the stream is dropped before the server has ended its
            // side.
            Some(Ok(())) => {
                let mut rest = stream.take(MAX_DISCARDED);
                clock::before(until, pin!(tokio::io::copy(&mut rest, &mut tokio::io::sink()))).await;
            }
            Some(Err(_)) => {}
            // hyper's task still holds the stream and waits for the server. The connection ends with its last request.
            None => lease.retire(CloseCause::Peer),
        }
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Upgraded");
        if let Some(open) = &self.open {
            shown.field("connection", &open.lease.conn().number());
            shown.field("received", &open.received).field("sent", &open.sent);
        }
        shown.finish()
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let open = self.open();
        let before = buf.filled().len();
        let read = Pin::new(&mut open.stream).poll_read(cx, buf);
        open.received += (buf.filled().len() - before) as u64;
        read
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let open = self.open();
        let written = Pin::new(&mut open.stream).poll_write(cx, buf);
        open.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let open = self.open();
        let written = Pin::new(&mut open.stream).poll_write_vectored(cx, bufs);
        open.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.open().stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.open().stream).poll_shutdown(cx)
    }
}

impl OpenUpgrade {
    /// Counts the bytes of a write, and passes its result on.
    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.sent += *bytes as u64;
        }
        written
    }
}

/// An upgrade that the server has agreed to, and whose stream may be taken. It is kept in the response's extensions.
/// Dropped with the last clone of them, it closes the connection, or the HTTP/2 stream.
#[derive(Clone)]
pub(in crate::client) struct PendingUpgrade(Arc<Mutex<Option<AgreedUpgrade>>>);

struct AgreedUpgrade {
    // In this order: the connection is released after its socket is closed.
    upgrade: OnUpgrade,
    lease: Lease<Dialer>,
    is_early: bool,
}

impl PendingUpgrade {
    /// `is_early` is true if the server agreed while it still had to ask for the request's body, which is never sent.
    pub(in crate::client) fn new(upgrade: OnUpgrade, mut lease: Lease<Dialer>, is_early: bool) -> Self {
        if lease.conn().protocol() == Protocol::Http1 {
            lease.retire(CloseCause::Upgraded);
            lease.foresee_end();
        }
        Self(Arc::new(Mutex::new(Some(AgreedUpgrade { upgrade, lease, is_early }))))
    }

    /// Takes the stream.
    ///
    /// # Errors
    /// The connection failed, a part of the request was not written, or the stream was taken before.
    pub(in crate::client) async fn take(self) -> Result<Upgraded> {
        let agreed = lock(&self.0).take();
        let Some(AgreedUpgrade { upgrade, lease, is_early }) = agreed else { return Err(Error::upgrade_is_taken()) };
        if is_early {
            return Err(Error::upgrade_is_early());
        }
        let until = clock::now().checked_add(HANDOVER_TIMEOUT).filter(|_| Handle::try_current().is_ok());
        let stream = clock::before(until, pin!(UpgradedStream::take(upgrade))).await;
        let stream = stream.ok_or_else(|| Error::upgrade_is_late(HANDOVER_TIMEOUT))?.map_err(Error::upgrade)?;
        // hyper forgets the bytes that wait to be written when it hands the stream over.
        let is_written = lease.conn().written().is_some_and(|(_, nothing_waits, _)| nothing_waits);
        if lease.conn().protocol() == Protocol::Http1 && !is_written {
            return Err(Error::upgrade_is_early());
        }
        Ok(Upgraded { open: Some(OpenUpgrade { stream, lease, received: 0, sent: 0 }) })
    }
}
