//! A stream that notes when bytes left and came, which hyper does not tell.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::{Instant, now};
use crate::trace::is_timed;
use crate::transport::Stream;

/// When the first byte of the current request left, and its last, and the first byte of the current response came.
///
/// Whoever drives the connection writes the marks, whoever sends the request reads them; hyper's channel between the
/// two orders what one does before what the other does after.
#[derive(Debug, Default)]
pub(crate) struct Marks(Mutex<Noted>);

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noted {
    pub(crate) first_write: Option<Instant>,
    /// `None` also while the peer does not take the rest of the request.
    pub(crate) last_write: Option<Instant>,
    pub(crate) first_read: Option<Instant>,
    /// When bytes were last taken, whether or not others still wait.
    pub(crate) progress: Option<Instant>,
}

impl Marks {
    /// Forgets the last exchange.
    pub(crate) fn reset(&self) {
        *self.lock() = Noted::default();
    }

    pub(crate) fn noted(&self) -> Noted {
        *self.lock()
    }

    fn note_write(&self) {
        if !is_timed() {
            return;
        }
        let at = Some(now());
        let mut noted = self.lock();
        (noted.last_write, noted.progress) = (at, at);
        noted.first_write = noted.first_write.or(at);
    }

    fn note_more_to_write(&self) {
        self.lock().last_write = None;
    }

    fn note_read(&self) {
        if !is_timed() {
            return;
        }
        let mut noted = self.lock();
        if noted.first_read.is_none() {
            noted.first_read = Some(now());
        }
    }

    // Nobody leaves it half written.
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream with marks.
pub(crate) struct Marked {
    stream: Box<dyn Stream>,
    marks: Arc<Marks>,
}

impl Marked {
    pub(crate) fn new(stream: Box<dyn Stream>) -> (Self, Arc<Marks>) {
        let marks = Arc::new(Marks::default());
        (Self { stream, marks: marks.clone() }, marks)
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(1..)) => self.marks.note_write(),
            // There is more to write, so the last byte has not left.
            Poll::Pending => self.marks.note_more_to_write(),
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
        // Of one piece, which most requests are, the system makes shorter work when it is written as one.
        if let [whole] = bufs {
            return self.poll_write(cx, whole);
        }
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
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_read_and_the_last_write_count() {
        let start = now();
        let (near, mut far) = tokio::io::duplex(64);
        let (mut stream, marks) = Marked::new(Box::new(near));
        let pause = || tokio::time::sleep(Duration::from_millis(10));
        let at = |mark: Option<Instant>| mark.map(|mark| (mark - start).as_millis());
        let marked = || {
            let Noted { first_write, last_write, first_read, .. } = marks.noted();
            [first_write, last_write, first_read]
        };
        assert_eq!(marked(), [None; 3]);
        for _ in 0..2 {
            pause().await;
            stream.write_all(b"ask").await.unwrap();
        }
        for _ in 0..2 {
            pause().await;
            far.write_all(b"answer").await.unwrap();
            stream.read_exact(&mut [0; 6]).await.unwrap();
        }
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
        assert_eq!(marks.noted().last_write, None);
        assert!(marks.noted().progress.is_some(), "some of it was taken");
    }
}
