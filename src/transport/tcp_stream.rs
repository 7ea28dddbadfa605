//! The TCP stream of a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::late_options::{LateOptions, Waits};

/// A TCP stream that a [`Probe`](super::Probe) can look at while the connection's task owns it.
pub(super) struct ProbedTcpStream {
    pub(super) read: OwnedReadHalf,
    /// Kept for probes, which hold a strong reference only while they look. `None` while the stream is dropped.
    pub(super) write: Option<Arc<OwnedWriteHalf>>,
    pub(super) options: LateOptions,
}

impl ProbedTcpStream {
    pub(super) fn new(stream: TcpStream, options: LateOptions) -> Self {
        let (read, write) = stream.into_split();
        Self { read, write: Some(Arc::new(write)), options }
    }

    /// Polls a write of this many bytes, and sets the options that are due before or after it.
    fn poll_write_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: usize,
        try_write: impl Fn(&TcpStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let Self { read, options, .. } = self;
        let stream: &TcpStream = read.as_ref();
        options.before_write(bytes, || stream.into());
        loop {
            match try_write(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match stream.poll_write_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => {
                        options.poll_silence(cx, Waits::ToWrite, || stream.into());
                        return Poll::Pending;
                    }
                },
                done => {
                    options.after_write(cx, || stream.into());
                    return Poll::Ready(done);
                }
            }
        }
    }
}

impl Drop for ProbedTcpStream {
    fn drop(&mut self) {
        // Without this the write half shuts the socket down, which closes right after.
        if let Some(write) = self.write.take().and_then(Arc::into_inner) {
            write.forget();
        }
    }
}

impl AsyncRead for ProbedTcpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { read, options, .. } = &mut *self;
        let polled = Pin::new(&mut *read).poll_read(cx, buf);
        if polled.is_pending() {
            options.poll_silence(cx, Waits::ToRead, || read.as_ref().into());
        }
        polled
    }
}

impl AsyncWrite for ProbedTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, buf.len(), |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        self.poll_write_with(cx, bytes, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(self.read.as_ref()).shutdown(std::net::Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::{TcpTransport, Transport};

    #[tokio::test]
    async fn a_stream_reads_writes_and_shuts_down() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let sent = vec![7; 8 * 1024 * 1024];
        let echo = tokio::spawn(async move {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).await.unwrap();
            peer.write_all(b"done").await.unwrap();
            all
        });
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!((answer.as_slice(), echo.await.unwrap()), (&b"done"[..], sent));
    }
}
