//! A stream that notes when bytes left and came, which hyper does not tell.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::{Instant, now};
use crate::transport::Stream;

/// When the first byte of the current request left, and its last, and the first byte of the current response came.
///
/// Whoever drives the connection writes the marks, whoever sends the request reads them; hyper's channel between the
/// two orders what one does before what the other does after.
#[derive(Debug)]
pub(crate) struct Marks {
    base: Instant,
    /// Nanoseconds since `base`, plus one; zero for "not yet".
    first_read: AtomicU64,
    first_write: AtomicU64,
    last_write: AtomicU64,
}

impl Marks {
    fn new() -> Self {
        let (first_read, first_write, last_write) = Default::default();
        Self { base: now(), first_read, first_write, last_write }
    }

    /// Forgets the last exchange.
    pub(crate) fn reset(&self) {
        for mark in [&self.first_read, &self.first_write, &self.last_write] {
            mark.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn first_read(&self) -> Option<Instant> {
        self.at(&self.first_read)
    }

    pub(crate) fn first_write(&self) -> Option<Instant> {
        self.at(&self.first_write)
    }

    /// `None` also while the peer does not take the rest of the request.
    pub(crate) fn last_write(&self) -> Option<Instant> {
        self.at(&self.last_write)
    }

    fn at(&self, mark: &AtomicU64) -> Option<Instant> {
        let nanos = mark.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.base + Duration::from_nanos(nanos))
    }

    /// Sets a mark to now, and says what that is.
    fn set(&self, mark: &AtomicU64) -> u64 {
        let nanos = now().saturating_duration_since(self.base).as_nanos();
        let value = nanos.min(u128::from(u64::MAX - 1)) as u64 + 1;
        mark.store(value, Ordering::Release);
        value
    }

    fn note_write(&self) {
        let value = self.set(&self.last_write);
        if self.first_write.load(Ordering::Relaxed) == 0 {
            self.first_write.store(value, Ordering::Release);
        }
    }

    fn note_read(&self) {
        if self.first_read.load(Ordering::Relaxed) == 0 {
            let _ = self.set(&self.first_read);
        }
    }
}

/// A stream with marks.
pub(crate) struct Marked {
    stream: Box<dyn Stream>,
    marks: Arc<Marks>,
}

impl Marked {
    pub(crate) fn new(stream: Box<dyn Stream>) -> (Self, Arc<Marks>) {
        let marks = Arc::new(Marks::new());
        (Self { stream, marks: marks.clone() }, marks)
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(1..)) => self.marks.note_write(),
            // There is more to write, so the last byte has not left.
            Poll::Pending => self.marks.last_write.store(0, Ordering::Release),
            Poll::Ready(_) => {}
        }
        written
    }
}

impl AsyncRead for Marked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.marks.note_read();
        }
        read
    }
}

impl AsyncWrite for Marked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(written)
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_read_and_the_last_write_count() {
        let start = now();
        let (near, mut far) = tokio::io::duplex(64);
        let (mut stream, marks) = Marked::new(Box::new(near));
        let pause = || tokio::time::sleep(Duration::from_millis(10));
        let at = |mark: Option<Instant>| mark.map(|mark| (mark - start).as_millis());
        assert_eq!((marks.last_write(), marks.first_read()), (None, None));
        for _ in 0..2 {
            pause().await;
            stream.write_all(b"ask").await.unwrap();
        }
        for _ in 0..2 {
            pause().await;
            far.write_all(b"answer").await.unwrap();
            stream.read_exact(&mut [0; 6]).await.unwrap();
        }
        let marked = || [marks.first_write(), marks.last_write(), marks.first_read()];
        assert_eq!(marked().map(at), [Some(10), Some(20), Some(30)]);
        marks.reset();
        assert_eq!(marked(), [None; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_the_peer_does_not_take_is_not_sent() {
        let (near, _far) = tokio::io::duplex(4);
        let (mut stream, marks) = Marked::new(Box::new(near));
        let stuck = tokio::time::timeout(Duration::from_millis(1), stream.write_all(b"too much"));
        assert!(stuck.await.is_err());
        assert_eq!(marks.last_write(), None);
    }
}
