//! A stream that shows each read and each write in the log (feature `tracing`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{Level, enabled, trace};

use crate::transport::Stream;

/// The target of the log events.
macro_rules! target {
    () => {
        "speeddial::wire"
    };
}

/// Wraps the stream of a connection if anything listens for its log events.
pub(in crate::connect) fn verbose(stream: Box<dyn Stream>) -> Box<dyn Stream> {
    if !enabled!(target: target!(), Level::TRACE) {
        return stream;
    }
    Box::new(VerboseStream { stream, id: fastrand::u32(..) })
}

/// A stream whose reads and writes are logged.
struct VerboseStream {
    stream: Box<dyn Stream>,
    /// Tells the connections in the log apart.
    id: u32,
}

impl VerboseStream {
    fn log(&self, what: &str, bytes: &[u8]) {
        trace!(target: target!(), "{:08x} {what}: b\"{}\"", self.id, bytes.escape_ascii());
    }
}

impl AsyncRead for VerboseStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.log("read", &buf.filled()[before..]);
        }
        polled
    }
}

impl AsyncWrite for VerboseStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = polled {
            self.log("write", &buf[..written]);
        }
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(written)) = polled {
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(written).collect();
            self.log("write", &all);
        }
        polled
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
