//! The byte stream below hyper: over HTTP/1.1 it records when bytes were written and read, and it is read to its end after a write
//! has failed.

use std::io::{self, IoSlice};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::io_record::IoRecord;
use crate::clock::{Instant, Timer, now};
use crate::connect::io::{InterimCounter, MAX_INTERIM, Protocol};
use crate::transport::Stream;

/// The time that a stream on which a write has failed is still read without a byte from the peer.
///
/// A TCP socket whose writes fail has ended; other streams may not have.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream that records the times of its bytes (over HTTP/1.1), the peer's TLS alert, and its own close.
///
/// A server that answers in the middle of a request and closes makes the next write fail. hyper would then drop what it
/// has not read yet, the answer. So an error of a write is kept back until there is nothing more to read.
pub(in crate::connect) struct RecordedStream {
    // In this order: the stream is closed before that is noted.
    stream: Box<dyn Stream>,
    record: ByteRecorder,
    protocol: Protocol,
    interim: InterimCounter,
    /// Boxed because few streams ever have one.
    failure: Option<Box<WriteFailure>>,
}

impl RecordedStream {
    pub(in crate::connect) fn new(stream: Box<dyn Stream>, protocol: Protocol) -> (Self, Arc<IoRecord>) {
        let record = IoRecord::new();
        let interim = InterimCounter::default();
        (Self { stream, record: ByteRecorder(record.clone()), protocol, interim, failure: None }, record)
    }

    /// Returns the stream below, for another protocol than HTTP. Its errors are its own, and only its close is recorded.
    pub(in crate::connect) fn into_plain(self) -> PlainStream {
        PlainStream { stream: self.stream, _record: self.record }
    }

    /// Records the result of a write of `bytes` bytes.
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        bytes: usize,
    ) -> Poll<io::Result<usize>> {
        match &written {
            // The bytes of many requests are mixed.
            _ if self.protocol == Protocol::Http2 => {}
            Poll::Ready(Ok(written @ 1..)) => self.record.note_write(*written),
            Poll::Pending => self.record.note_more_to_write(),
            Poll::Ready(Err(_)) => self.record.note_failed_write(bytes),
            Poll::Ready(Ok(_)) => {}
        }
        self.keep_error(cx, written, bytes)
    }

    /// Passes the result of a write on, unless it is an error. An error is kept until there is nothing more to read.
    #[inline]
    fn keep_error<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>, done: T) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(error)) => {
                self.note_failure(cx, error);
                self.result_after_failure(done).unwrap_or(Poll::Pending)
            }
            written => written,
        }
    }

    #[cold]
    fn note_failure(&mut self, cx: &Context<'_>, error: io::Error) {
        self.failure = Some(Box::new(WriteFailure::new(error)));
        // The stream must be read once more, now that the failure is known.
        cx.waker().wake_by_ref();
    }

    /// Returns the result of a write after another one has failed; `None` if none has.
    fn result_after_failure<T>(&self, done: T) -> Option<Poll<io::Result<T>>> {
        let failure = self.failure.as_ref()?;
        if failure.is_reported() {
            return Some(Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())));
        }
        Some(match self.protocol {
            // The response is read meanwhile, and hyper takes no more of the request's body than fits into its buffer.
            Protocol::Http1 => Poll::Pending,
            // Dropped: hyper does not read while a frame of its own waits to be written. The flow-control windows bound how much it is.
            Protocol::Http2 => Poll::Ready(Ok(done)),
        })
    }

    /// Records the end of a read into `buf`, which had `room` before it, and returns its result for hyper.
    #[inline(never)]
    fn after_poll_read(
        &mut self,
        cx: &mut Context<'_>,
        read: Poll<io::Result<()>>,
        room: usize,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = &read {
            self.record.note_error(error);
        }
        let bytes = room - buf.remaining();
        let before = buf.filled().len() - bytes;
        // Over HTTP/2, interim responses come as frames, which are counted elsewhere.
        if bytes > 0
            && self.protocol == Protocol::Http1
            && let Err(error) = self.after_read(&buf.filled()[before..])
        {
            buf.set_filled(before);
            return Poll::Ready(Err(error));
        }
        match &mut self.failure {
            None => read,
            Some(failure) => failure.after_read(cx, read, bytes > 0),
        }
    }

    /// Records that `bytes` were read over HTTP/1.1. Fails if they hold too many interim responses.
    fn after_read(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.record.note_read() {
            self.interim = InterimCounter::default();
        }
        let count = self.interim.count();
        if !self.interim.read(bytes) {
            return Err(too_many_interim());
        }
        if self.interim.count() > count {
            self.record.note_interim(self.interim.is_between());
        }
        Ok(())
    }
}

/// The record of a stream, which is told of the stream's close.
struct ByteRecorder(Arc<IoRecord>);

impl Deref for ByteRecorder {
    type Target = IoRecord;

    fn deref(&self) -> &IoRecord {
        &self.0
    }
}

impl Drop for ByteRecorder {
    fn drop(&mut self) {
        self.0.note_closed();
    }
}

/// A stream that was recorded before, and of which only the close is recorded.
pub(crate) struct PlainStream {
    // In this order: the stream is closed before that is noted.
    pub(in crate::connect) stream: Box<dyn Stream>,
    _record: ByteRecorder,
}

/// Returns the error for more than [`MAX_INTERIM`] interim responses.
fn too_many_interim() -> io::Error {
    let message = format!("there are more than {MAX_INTERIM} interim responses (1xx)");
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// A write that failed.
struct WriteFailure {
    /// The error; `None` once the reader was given the end of the stream.
    error: Option<io::Error>,
    /// The time at which the wait for the peer ends; `None` while its bytes come.
    deadline: Option<Instant>,
    timer: Timer,
}

impl WriteFailure {
    fn new(error: io::Error) -> Self {
        Self { error: Some(error), deadline: None, timer: Timer::default() }
    }

    /// Returns true if the reader was given the end of the stream.
    fn is_reported(&self) -> bool {
        self.error.is_none()
    }

    /// Turns the result of a read of the stream into the one for hyper. `has_bytes` is true if bytes were read.
    fn after_read(
        &mut self,
        cx: &mut Context<'_>,
        read: Poll<io::Result<()>>,
        has_bytes: bool,
    ) -> Poll<io::Result<()>> {
        if has_bytes || self.is_reported() {
            self.deadline = None;
            return read;
        }
        if read.is_pending() {
            let deadline = *self.deadline.get_or_insert_with(|| now() + LAST_READ_TIMEOUT);
            ready!(self.timer.poll_until(cx, deadline));
        }
        match (read, self.error.take()) {
            // The peer has closed its side: Linux reports EPIPE for a reset after the peer's FIN, and macOS keeps the
            // reset for the reader. After any other error the connection was cut, and a body that lasts until the end
            // of the connection may lack some of its bytes.
            (Poll::Ready(Ok(())), Some(error)) if error.kind() == io::ErrorKind::BrokenPipe => Poll::Ready(Ok(())),
            // A TLS alert of the peer explains why the write failed.
            (Poll::Ready(Err(alert)), Some(_)) if alert.kind() == io::ErrorKind::InvalidData => Poll::Ready(Err(alert)),
            (_, Some(error)) => Poll::Ready(Err(error)),
            (read, None) => read,
        }
    }
}

impl AsyncRead for RecordedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = buf.remaining();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        // Most reads end here: hyper reads once more after the last byte.
        if read.is_pending() && self.failure.is_none() {
            return Poll::Pending;
        }
        self.after_poll_read(cx, read, room, buf)
    }
}

impl AsyncWrite for RecordedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(written) = self.result_after_failure(buf.len()) {
            return written;
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.after_write(cx, written, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Most requests are one piece, which the system writes faster without a vector.
        if let [whole] = bufs {
            return self.poll_write(cx, whole);
        }
        let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
        if let Some(written) = self.result_after_failure(bytes) {
            return written;
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.after_write(cx, written, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(flushed) = self.result_after_failure(()) {
            return flushed;
        }
        // Over TLS most bytes leave in a flush, so its errors are kept as well.
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

    use super::super::io_record::IoTimes;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_times_of_the_first_read_and_the_last_write_are_recorded() {
        let start = now();
        let (near, mut far) = tokio::io::duplex(64);
        let (mut stream, record) = RecordedStream::new(Box::new(near), Protocol::Http1);
        let pause = || tokio::time::sleep(Duration::from_millis(10));
        let at = |mark: Option<Instant>| mark.map(|mark| (mark - start).as_millis());
        let marked = || {
            let IoTimes { first_write, last_write, first_read, .. } = record.times();
            [first_write, last_write, first_read]
        };
        assert_eq!(marked(), [None; 3]);
        for _ in 0..2 {
            pause().await;
            stream.write_all(b"ask").await.unwrap();
        }
        for has_read_more in [false, true] {
            pause().await;
            far.write_all(b"answer").await.unwrap();
            stream.read_exact(&mut [0; 6]).await.unwrap();
            assert_eq!(record.times().has_read_more, has_read_more);
        }
        assert_eq!(marked().map(at), [Some(10), Some(20), Some(30)]);
        record.reset();
        assert_eq!(marked(), [None; 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_the_peer_does_not_take_has_no_last_write() {
        let (near, _far) = tokio::io::duplex(4);
        let (mut stream, record) = RecordedStream::new(Box::new(near), Protocol::Http1);
        let stuck = tokio::time::timeout(Duration::from_millis(1), stream.write_all(b"too much"));
        assert!(stuck.await.is_err());
        assert_eq!(record.times().last_write, None);
        assert!(record.times().last_progress.is_some(), "the peer took some of it");
    }

    /// A stream whose writes fail, and whose reads give `says` before it ends or falls silent.
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
    async fn an_alert_that_is_read_after_a_failed_write_is_kept() {
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let (mut stream, record) = RecordedStream::new(Box::new(Refused), protocol);
            assert!(record.refusal().is_none());
            drop(stream.write(b"ask").now_or_never());
            let read = stream.read(&mut [0; 8]).await.unwrap_err();
            assert_eq!(read.kind(), io::ErrorKind::InvalidData, "{protocol:?}: {read}");
            record.reset();
            let refusal = record.refusal().map(ToString::to_string);
            let text = "a client certificate is required: received fatal alert: CertificateRequired";
            assert_eq!(refusal.as_deref(), Some(text), "{protocol:?}");
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
            for (protocol, flush) in [(Protocol::Http1, false), (Protocol::Http1, true), (Protocol::Http2, false)] {
                let broken = Broken { error, says: b"an answer", ends };
                let (mut stream, record) = RecordedStream::new(Box::new(broken), protocol);
                let written = match flush {
                    true => stream.flush().now_or_never().map(|flushed| flushed.map(|()| 3)),
                    false => stream.write(b"ask").now_or_never(),
                };
                assert_eq!(written.map(Result::unwrap), (protocol == Protocol::Http2).then_some(3));
                assert_eq!(record.times().last_write, None);
                let (start, mut said) = (now(), Vec::new());
                let read = stream.read_to_end(&mut said).await;
                let waited = if ends { Duration::ZERO } else { LAST_READ_TIMEOUT };
                assert_eq!(
                    (said.as_slice(), now() - start),
                    (&b"an answer"[..], waited),
                    "{error} {ends} {protocol:?}"
                );
                assert_eq!(read.map(drop).map_err(|error| error.kind()), end, "{error} {ends} {protocol:?}");
                assert_eq!(stream.write(b"more").await.unwrap_err().kind(), BrokenPipe, "the stream is over");
            }
        }
    }
}
