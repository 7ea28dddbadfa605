//! The TCP stream of a connection, and a look at its socket from outside of its task.

use std::any::Any;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use super::late_options::{LateOptions, Waits};
use crate::transport::Stream;
use crate::transport::late_options::{data_age, is_acknowledged, resent_packets};

/// A TCP stream that a [`Probe`] can look at while the connection's task owns it.
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

/// Looks at a TCP socket that the connection's task owns. It does not keep the socket open.
#[derive(Debug)]
pub(crate) struct Probe(Weak<OwnedWriteHalf>);

/// The state of a socket as a look from outside shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// There is nothing to read.
    Quiet,
    /// There are bytes that were not read yet.
    Unread,
    /// The peer has closed the connection, or it is broken, or its stream was dropped.
    Closed,
}

impl Probe {
    /// Returns a probe of the stream's socket; `None` for a stream that is not [`TcpTransport`](crate::transport::TcpTransport)'s.
    pub(crate) fn of(stream: &dyn Stream) -> Option<Self> {
        let tcp = (stream as &dyn Any).downcast_ref::<ProbedTcpStream>()?;
        tcp.write.as_ref().map(|write| Self(Arc::downgrade(write)))
    }

    /// Returns true if the peer is known to have acknowledged (TCP ACK) all that was written.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.0.upgrade().is_some_and(|socket| is_acknowledged(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Returns the number of times that the operating system sent packets again so far; 0 if it is not known.
    pub(crate) fn resent_packets(&self) -> u32 {
        self.0.upgrade().map_or(0, |socket| resent_packets(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Returns the time since data last came, if the operating system tells.
    pub(crate) fn data_age(&self) -> Option<Duration> {
        self.0.upgrade().and_then(|socket| data_age(&SockRef::from(socket.as_ref().as_ref())))
    }

    /// Looks at what there is to read.
    pub(crate) fn look(&self) -> Liveness {
        self.0.upgrade().map_or(Liveness::Closed, |socket| look_at(socket.as_ref().as_ref()))
    }
}

/// True if [`Liveness::Unread`] means that the peer has not closed the connection behind these bytes.
pub(crate) const SEES_CLOSE_BEHIND_BYTES: bool = cfg!(target_os = "linux");

#[cfg(target_os = "linux")]
fn look_at(socket: &TcpStream) -> Liveness {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut polled = [PollFd::new(socket, PollFlags::IN | ends)];
    match poll(&mut polled, Some(&Timespec::default())) {
        Ok(1..) if polled[0].revents().intersects(ends) => Liveness::Closed,
        Ok(1..) => Liveness::Unread,
        _ => Liveness::Quiet,
    }
}

#[cfg(not(target_os = "linux"))]
fn look_at(socket: &TcpStream) -> Liveness {
    match SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()]) {
        Ok(0) => Liveness::Closed,
        Ok(_) => Liveness::Unread,
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Liveness::Quiet,
        Err(_) => Liveness::Closed,
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

#[cfg(test)]
mod probe_tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::transport::{TcpTransport, Transport};

    #[tokio::test]
    async fn a_probe_sees_unread_bytes_and_the_end() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let probe = Probe::of(&*stream).unwrap();
        assert_eq!(probe.look(), Liveness::Quiet);
        peer.write_all(b"unasked").await.unwrap();
        assert_eq!(probe.look(), Liveness::Unread);
        peer.shutdown().await.unwrap();
        let behind_bytes = if SEES_CLOSE_BEHIND_BYTES { Liveness::Closed } else { Liveness::Unread };
        assert_eq!(probe.look(), behind_bytes);
        drop(stream);
        assert_eq!(probe.look(), Liveness::Closed, "a probe does not keep the socket open");
        let stream = TcpTransport::new().connect(listener.local_addr().unwrap()).await.unwrap();
        drop(listener.accept().await.unwrap());
        assert_eq!(Probe::of(&*stream).unwrap().look(), Liveness::Closed);
        let (other, _) = tokio::io::duplex(1);
        assert!(Probe::of(&other).is_none());
    }
}
