//! A stream that notes when bytes left and came, which hyper does not tell, and that is read to its end after a write
//! has failed.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::interim::{Interim, MAX_INTERIM};
use crate::clock::{Instant, Timer, now};
use crate::sync::lock;
#[cfg(feature = "__tls")]
use crate::tls::refusal;
use crate::trace::is_timed;
use crate::transport::Stream;

/// When the first byte of the current request left, and its last, and the first byte of the current response came.
///
/// Whoever drives the connection writes the marks, whoever sends the request reads them; hyper's channel between the
/// two orders what one does before what the other does after.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    noted: Mutex<Noted>,
    /// The alert by which the server refused the client, in words.
    refusal: OnceLock<Box<str>>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noted {
    pub(crate) first_write: Option<Instant>,
    /// `None` also while the peer does not take the rest of the request.
    pub(crate) last_write: Option<Instant>,
    pub(crate) first_read: Option<Instant>,
    /// True if anything was read, be it an interim response, whose first byte does not count.
    pub(crate) has_read: bool,
    /// When bytes were last taken, whether or not others still wait.
    pub(crate) progress: Option<Instant>,
    /// The length of a write that failed. With TLS a part of it may have left.
    pub(crate) failed: usize,
}

impl Marks {
    /// Forgets the last exchange.
    pub(crate) fn reset(&self) {
        *self.lock() = Noted::default();
    }

    pub(crate) fn noted(&self) -> Noted {
        *self.lock()
    }

    /// The alert by which the server refused the client, in words. It comes once, so [`reset`](Self::reset) leaves it.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(AsRef::as_ref)
    }

    /// Keeps a refusal. With TLS 1.3 it comes after the handshake, and neither h2 nor a failed write leaves it whole.
    fn note_error(&self, error: &io::Error) {
        if let Some(refusal) = refusal(error) {
            let _ = self.refusal.set(refusal.into());
        }
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

    fn note_failed_write(&self, bytes: usize) {
        let mut noted = self.lock();
        noted.last_write = None;
        noted.failed = bytes;
    }

    /// Returns true if it is the first read since the last request.
    fn note_read(&self) -> bool {
        if !is_timed() {
            return false;
        }
        let mut noted = self.lock();
        noted.first_read.get_or_insert_with(now);
        !std::mem::replace(&mut noted.has_read, true)
    }

    /// Notes that the last read ended an interim response. `is_all` is true if nothing followed it in that read.
    fn note_interim(&self, is_all: bool) {
        if is_timed() {
            self.lock().first_read = (!is_all).then(now);
        }
    }

    // Nobody leaves it half written.
    fn lock(&self) -> MutexGuard<'_, Noted> {
        lock(&self.noted)
    }
}

/// Without TLS there are no alerts.
#[cfg(not(feature = "__tls"))]
fn refusal(_: &io::Error) -> Option<String> {
    None
}

/// The treatment of bytes that are written after a write has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// They wait. HTTP/1.1 is read meanwhile, and no more of the request's body is taken than fits into hyper's buffer.
    Waits,
    /// They are dropped. HTTP/2 is not read while a frame of its own waits; the windows bound how much is dropped.
    Dropped,
}

/// A stream with marks.
///
/// hyper drops what it has not read yet when a write fails. A peer that answers in the middle of a request and closes
/// makes the next write fail, so an error of a write is kept back until there is nothing more to read.
pub(crate) struct Marked {
    stream: Box<dyn Stream>,
    marks: Arc<Marks>,
    unsent: Unsent,
    interim: Interim,
    /// Boxed, because few streams ever have one.
    failure: Option<Box<Failure>>,
}

/// How long a stream on which a write has failed is read without a byte from the peer. A TCP socket whose writes fail
/// has ended; other streams need not have.
const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(5);

/// A write that failed.
struct Failure {
    /// `None` once the reader was told that the stream is over.
    error: Option<io::Error>,
    /// When the peer's silence has been too long.
    deadline: Option<Instant>,
    timer: Timer,
}

impl Marked {
    pub(crate) fn new(stream: Box<dyn Stream>, unsent: Unsent) -> (Self, Arc<Marks>) {
        let marks = Arc::new(Marks::default());
        (Self { stream, marks: marks.clone(), unsent, interim: Interim::default(), failure: None }, marks)
    }

    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        bytes: usize,
    ) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(1..)) => self.marks.note_write(),
            // There is more to write, so the last byte has not left.
            Poll::Pending => self.marks.note_more_to_write(),
            Poll::Ready(Err(_)) => self.marks.note_failed_write(bytes),
            Poll::Ready(Ok(_)) => {}
        }
        self.keep_error(cx, written, bytes)
    }

    /// Passes a write's result on; an error is kept for when there is nothing more to read.
    fn keep_error<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>, done: T) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(error)) => {
                self.failure = Some(Box::new(Failure { error: Some(error), deadline: None, timer: Timer::default() }));
                // The stream is to be read once more, now that the failure is known.
                cx.waker().wake_by_ref();
                self.after_failure(done).unwrap_or(Poll::Pending)
            }
            written => written,
        }
    }

    /// The result of a write after another one has failed; `None` where none has.
    fn after_failure<T>(&self, done: T) -> Option<Poll<io::Result<T>>> {
        let failure = self.failure.as_ref()?;
        Some(match self.unsent {
            // The reader knows that the stream is over.
            _ if failure.error.is_none() => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Unsent::Waits => Poll::Pending,
            Unsent::Dropped => Poll::Ready(Ok(done)),
        })
    }
}

impl Failure {
    /// The result of a read that came to `read` below, and to a byte at least where `came`.
    fn read(&mut self, cx: &mut Context<'_>, read: Poll<io::Result<()>>, came: bool) -> Poll<io::Result<()>> {
        if came || self.error.is_none() {
            self.deadline = None;
            return read;
        }
        if read.is_pending() {
            let deadline = *self.deadline.get_or_insert_with(|| now() + LAST_WORDS_TIMEOUT);
            ready!(self.timer.poll_until(cx, deadline));
        }
        match (read, self.error.take()) {
            // The peer had closed: Linux says EPIPE for a reset after the peer's FIN, and macOS keeps the reset for the
            // reader. After any other error the end is that of a connection that was cut, and a body that lasts until
            // the end may lack some of its bytes.
            (Poll::Ready(Ok(())), Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => Poll::Ready(Ok(())),
            // What the peer said, an alert of TLS, explains why the write failed.
            (Poll::Ready(Err(said)), Some(_)) if said.kind() == io::ErrorKind::InvalidData => Poll::Ready(Err(said)),
            (_, Some(error)) => Poll::Ready(Err(error)),
            (read, None) => read,
        }
    }
}

impl AsyncRead for Marked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Poll::Ready(Err(error)) = &read {
            self.marks.note_error(error);
        }
        let came = buf.filled().len() > before;
        if came {
            if self.marks.note_read() {
                self.interim = Interim::default();
            }
            // HTTP/2 has frames.
            if self.unsent == Unsent::Waits {
                let count = self.interim.count();
                if !self.interim.read(&buf.filled()[before..]) {
                    buf.set_filled(before);
                    let what = format!("there are more than {MAX_INTERIM} interim responses (1xx)");
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
                }
                if self.interim.count() > count {
                    self.marks.note_interim(self.interim.is_between());
                }
            }
        }
        match &mut self.failure {
            None => read,
            Some(failure) => failure.read(cx, read, came),
        }
    }
}

impl AsyncWrite for Marked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(written) = self.after_failure(buf.len()) {
            return written;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, written, buf.len())
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
        let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
        if let Some(written) = self.after_failure(bytes) {
            return written;
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, written, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(flushed) = self.after_failure(()) {
            return flushed;
        }
        // With TLS it is mostly here that what was written leaves.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.keep_error(cx, flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut};

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_read_and_the_last_write_count() {
        let start = now();
        let (near, mut far) = tokio::io::duplex(64);
        let (mut stream, marks) = Marked::new(Box::new(near), Unsent::Waits);
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
        let (mut stream, marks) = Marked::new(Box::new(near), Unsent::Waits);
        let stuck = tokio::time::timeout(Duration::from_millis(1), stream.write_all(b"too much"));
        assert!(stuck.await.is_err());
        assert_eq!(marks.noted().last_write, None);
        assert!(marks.noted().progress.is_some(), "some of it was taken");
    }

    /// A stream whose writes fail, and which has something to say before it ends or falls silent.
    struct Broken {
        error: io::ErrorKind,
        says: &'static [u8],
        ends: bool,
    }

    impl AsyncRead for Broken {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.says.is_empty() && !self.ends {
                return Poll::Pending;
            }
            let (now, later) = self.says.split_at(self.says.len().min(4));
            buf.put_slice(now);
            self.says = later;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(self.error.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(self.error.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A stream whose writes fail, and whose reads end with an alert.
    #[cfg(feature = "__tls")]
    struct Refused;

    #[cfg(feature = "__tls")]
    impl AsyncRead for Refused {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRequired);
            Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, alert)))
        }
    }

    #[cfg(feature = "__tls")]
    impl AsyncWrite for Refused {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(BrokenPipe.into()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[cfg(feature = "__tls")]
    #[tokio::test(start_paused = true)]
    async fn an_alert_is_kept_though_a_write_failed_before_it_was_read() {
        for unsent in [Unsent::Waits, Unsent::Dropped] {
            let (mut stream, marks) = Marked::new(Box::new(Refused), unsent);
            assert_eq!(marks.refusal(), None);
            drop(stream.write(b"ask").now_or_never());
            let read = stream.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(read.kind(), io::ErrorKind::InvalidData, "{unsent:?}: {read}");
            marks.reset();
            assert_eq!(marks.refusal(), Some("the server wants a certificate of the client"), "{unsent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_read_to_its_end_after_a_write_has_failed() {
        for (error, ends, end) in [
            // The peer's FIN came first.
            (BrokenPipe, true, Ok(())),
            // It did not, so more may have been on its way.
            (ConnectionReset, true, Err(ConnectionReset)),
            (TimedOut, true, Err(TimedOut)),
            // Neither an end nor a byte comes for too long.
            (BrokenPipe, false, Err(BrokenPipe)),
        ] {
            for (unsent, flush) in [(Unsent::Waits, false), (Unsent::Waits, true), (Unsent::Dropped, false)] {
                let broken = Broken { error, says: b"an answer", ends };
                let (mut stream, marks) = Marked::new(Box::new(broken), unsent);
                let written = match flush {
                    true => stream.flush().now_or_never().map(|flushed| flushed.map(|()| 3)),
                    false => stream.write(b"ask").now_or_never(),
                };
                assert_eq!(written.map(Result::unwrap), (unsent == Unsent::Dropped).then_some(3));
                assert_eq!(marks.noted().last_write, None);
                let (start, mut said) = (now(), Vec::new());
                let read = stream.read_to_end(&mut said).await;
                let waited = if ends { Duration::ZERO } else { LAST_WORDS_TIMEOUT };
                assert_eq!((said.as_slice(), now() - start), (&b"an answer"[..], waited), "{error} {ends} {unsent:?}");
                assert_eq!(read.map(drop).map_err(|error| error.kind()), end, "{error} {ends} {unsent:?}");
                assert_eq!(stream.write(b"more").await.unwrap_err().kind(), BrokenPipe, "the stream is over");
            }
        }
    }
}
