//! A stream that watches the HTTP/2 frames that pass over it. hyper tells only of those that somebody polls for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frames, Sign};
use super::interim::MAX_INTERIM;
use super::pulse::Passed;
use crate::clock::{Instant, nanos, now};
use crate::transport::Stream;

/// What has passed over an HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Seen {
    progress: AtomicU64,
    /// How many pieces of responses have come.
    responses: AtomicU64,
    /// The error code of the server's GOAWAY, the last stream from bit 32 on, and [`SAID`]; 0 before it.
    goaway: AtomicU64,
    /// Where the times begin.
    base: Instant,
    /// When a byte last came, in nanoseconds.
    heard: AtomicU64,
    /// When a piece of a request first left after that; 0 where none has.
    asked: AtomicU64,
}

/// The bit that is set in every GOAWAY.
const SAID: u64 = 1 << 63;
/// The error code of a server that finds itself asked for too much (RFC 9113 §7).
const ENHANCE_YOUR_CALM: u32 = 0xb;

impl Seen {
    fn new() -> Self {
        let [progress, responses, goaway, heard, asked] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { progress, responses, goaway, base: now(), heard, asked }
    }

    /// How many frames have come that show a server at work.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// When something last came, and when something was last asked for.
    pub(super) fn passed(&self) -> Passed {
        let at = |nanos| self.base + Duration::from_nanos(nanos);
        Passed {
            heard: at(self.heard.load(Ordering::Relaxed)),
            asked: Some(self.asked.load(Ordering::Relaxed)).filter(|asked| *asked > 0).map(at),
            responses: self.responses.load(Ordering::Relaxed),
        }
    }

    /// Returns true if the server has said GOAWAY.
    pub(super) fn is_going_away(&self) -> bool {
        self.goaway.load(Ordering::Relaxed) > 0
    }

    /// Returns true if the server has said GOAWAY because it was asked for too much.
    pub(super) fn asks_for_calm(&self) -> bool {
        let goaway = self.goaway.load(Ordering::Relaxed);
        // The lower half is the code.
        goaway > 0 && goaway as u32 == ENHANCE_YOUR_CALM
    }

    /// Returns true if the server has said GOAWAY, and that it has processed no stream at all.
    pub(super) fn refuses_all(&self) -> bool {
        self.goaway.load(Ordering::Relaxed) >> 32 == SAID >> 32
    }

    /// Something came.
    fn hear(&self) {
        self.heard.store(nanos(self.base, now()), Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
    }

    /// A piece of a request has left.
    fn ask(&self) {
        if self.asked.load(Ordering::Relaxed) == 0 {
            self.asked.store(nanos(self.base, now()).max(1), Ordering::Relaxed);
        }
    }

    fn note(&self, sign: Sign) {
        match sign {
            Sign::Message => {
                self.progress.fetch_add(1, Ordering::Relaxed);
                self.responses.fetch_add(1, Ordering::Relaxed);
            }
            Sign::Head(_) => {}
            Sign::Progress => {
                self.progress.fetch_add(1, Ordering::Relaxed);
            }
            Sign::GoAway { last, code } => {
                self.goaway.store(SAID | u64::from(last) << 32 | u64::from(code), Ordering::Relaxed);
            }
        }
    }
}

/// The stream.
pub(super) struct Watched {
    stream: Box<dyn Stream>,
    frames: Frames,
    /// The frames that are sent.
    sent: Frames,
    /// The stream of the last head that ended none, and how many of them came behind each other.
    heads: (u32, u32),
    seen: Arc<Seen>,
}

impl Watched {
    pub(super) fn new(stream: Box<dyn Stream>) -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::new());
        let (frames, sent) = (Frames::default(), Frames::behind_preface());
        (Self { stream, frames, sent, heads: (0, 0), seen: seen.clone() }, seen)
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        let Self { sent, seen, .. } = self;
        sent.read(bytes, |sign| {
            if sign == Sign::Message {
                seen.ask();
            }
        });
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, frames, seen, heads, .. } = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        let came = &buf.filled()[before..];
        if !came.is_empty() {
            seen.hear();
            frames.read(came, |sign| {
                seen.note(sign);
                if let Sign::Head(stream) = sign {
                    *heads = if heads.0 == stream { (stream, heads.1 + 1) } else { (stream, 1) };
                }
            });
            // One of them is the response's.
            if heads.1 > MAX_INTERIM + 1 {
                let what = format!("there are more than {MAX_INTERIM} interim responses (1xx)");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
            }
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(bytes)) = &written {
            self.note_sent(&buf[..*bytes]);
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(bytes)) = &written {
            let mut left = *bytes;
            for buf in bufs {
                let taken = left.min(buf.len());
                self.note_sent(&buf[..taken]);
                left -= taken;
            }
        }
        written
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
