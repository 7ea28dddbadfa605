//! A stream that watches the HTTP/2 frames that come over it. hyper tells only of those that somebody polls for.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frames, Sign};
use crate::transport::Stream;

/// What has come over an HTTP/2 connection.
#[derive(Debug, Default)]
pub(super) struct Seen {
    progress: AtomicU64,
    /// The error code of the server's GOAWAY, the last stream from bit 32 on, and [`SAID`]; 0 before it.
    goaway: AtomicU64,
}

/// The bit that is set in every GOAWAY.
const SAID: u64 = 1 << 63;
/// The error code of a server that finds itself asked for too much (RFC 9113 §7).
const ENHANCE_YOUR_CALM: u32 = 0xb;

impl Seen {
    /// How many frames have come that show a server at work.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
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

    fn note(&self, sign: Sign) {
        match sign {
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
    seen: Arc<Seen>,
}

impl Watched {
    pub(super) fn new(stream: Box<dyn Stream>) -> (Self, Arc<Seen>) {
        let seen = Arc::<Seen>::default();
        (Self { stream, frames: Frames::default(), seen: seen.clone() }, seen)
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, frames, seen } = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        frames.read(&buf.filled()[before..], |sign| seen.note(sign));
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
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
