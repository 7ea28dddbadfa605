//! A network in memory for paused time, with a script for each connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use speeddial::transport::{Connecting, Stream, Transport};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// The network. Every address leads to the same script, and connecting takes 10 ms.
#[derive(Clone)]
pub struct ScriptedNet {
    script: Arc<dyn Fn(usize, DuplexStream) -> BoxFuture<'static, ()> + Send + Sync>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl ScriptedNet {
    /// Runs `script` for each connection, with the connection's number from 0.
    pub fn new<F: Future<Output = ()> + Send + 'static>(
        script: impl Fn(usize, DuplexStream) -> F + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(move |number, stream| -> BoxFuture<'static, ()> { Box::pin(script(number, stream)) });
        Self { script, connections: Arc::default(), open: Arc::default() }
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The number of connections whose script still runs.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Transport for ScriptedNet {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            // A round trip of 10 ms.
            tokio::time::sleep(Duration::from_millis(10)).await;
            let (near, far) = tokio::io::duplex(256 * 1024);
            let number = self.connections.fetch_add(1, Ordering::SeqCst);
            self.open.fetch_add(1, Ordering::SeqCst);
            let script = (self.script)(number, far);
            let open = self.open.clone();
            tokio::spawn(async move {
                script.await;
                open.fetch_sub(1, Ordering::SeqCst);
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// A network whose connections end in an error (`UnexpectedEof`), as a TLS connection does whose peer closed it without close_notify.
#[derive(Clone)]
pub struct UncleanNet(
    /// The network below.
    pub ScriptedNet,
);

impl Transport for UncleanNet {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move { Ok(Box::new(UncleanStream(self.0.connect(address).await?)) as Box<dyn Stream>) })
    }
}

/// A stream that turns the end into an error.
struct UncleanStream(Box<dyn Stream>);

impl AsyncRead for UncleanStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(cx, buf))?;
        if buf.filled().len() == before && buf.remaining() > 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UncleanStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
