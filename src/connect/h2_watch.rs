//! A stream that watches the HTTP/2 frames that pass over it. hyper tells only of those that somebody polls for.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frames::{Frames, Sign};
use super::h2_pings::Passed;
use super::interim::MAX_INTERIM;
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
    /// When the peer last made room for more, where there was none.
    taken: AtomicU64,
}

/// The bit that is set in every GOAWAY.
const SAID: u64 = 1 << 63;
/// The most streams whose heads are counted: as many as the client opens at the same time.
const MAX_STREAMS: usize = 1_024;
/// The error code of a server that finds itself asked for too much (RFC 9113 §7).
const ENHANCE_YOUR_CALM: u32 = 0xb;

impl Seen {
    fn new() -> Self {
        let [progress, responses, goaway, heard, asked, taken] = std::array::from_fn(|_| AtomicU64::new(0));
        Self { progress, responses, goaway, base: now(), heard, asked, taken }
    }

    /// How many frames have come that show a server at work.
    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// When something last came, and when something was last asked for.
    pub(super) fn passed(&self) -> Passed {
        let at = |nanos| self.base + Duration::from_nanos(nanos);
        let taken = self.taken.load(Ordering::Relaxed);
        let asked = Some(self.asked.load(Ordering::Relaxed)).filter(|asked| *asked > 0);
        Passed {
            heard: at(self.heard.load(Ordering::Relaxed).max(taken)),
            asked: asked.map(|asked| at(asked.max(taken))),
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

    /// The peer has made room for more.
    fn take(&self) {
        self.taken.store(nanos(self.base, now()), Ordering::Relaxed);
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
    /// How many heads that end no stream have come, by stream. It is emptied when it is full: most of its streams are over then.
    heads: HashMap<u32, u32, RandomState>,
    /// True if the last write found no room.
    is_full: bool,
    seen: Arc<Seen>,
}

impl Watched {
    pub(super) fn new(stream: Box<dyn Stream>) -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::new());
        let (frames, sent) = (Frames::default(), Frames::behind_preface());
        (Self { stream, frames, sent, heads: HashMap::default(), is_full: false, seen: seen.clone() }, seen)
    }

    /// Notes the room that a write, or a flush, found. Only the peer makes room, so it is alive, however slow it is.
    fn note_room<T>(&mut self, written: &Poll<io::Result<T>>) {
        let was_full = std::mem::replace(&mut self.is_full, written.is_pending());
        if was_full && matches!(written, Poll::Ready(Ok(_))) {
            self.seen.take();
        }
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
            let mut most = 0;
            frames.read(came, |sign| {
                seen.note(sign);
                if let Sign::Head(stream) = sign {
                    if heads.len() >= MAX_STREAMS {
                        heads.clear();
                    }
                    let count = heads.entry(stream).or_insert(0);
                    *count += 1;
                    most = most.max(*count);
                }
            });
            // One of them is the response's.
            if most > MAX_INTERIM + 1 {
                buf.set_filled(before);
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
        self.note_room(&written);
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
        self.note_room(&written);
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
        // With TLS it is here that a full socket shows.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.note_room(&flushed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// HEADERS of a stream, which they do not end: `:status: 200` (RFC 7541, appendix A). Nobody looks into them.
    fn head(stream: u8) -> [u8; 10] {
        [0, 0, 1, 1, 4, 0, 0, 0, stream, 0x88]
    }

    #[tokio::test]
    async fn interim_responses_are_counted_for_each_stream() {
        // One of them is the response's.
        for (rounds, is_error) in [(MAX_INTERIM + 1, false), (MAX_INTERIM + 2, true)] {
            let (near, mut far) = tokio::io::duplex(64 * 1024);
            let (mut watched, _) = Watched::new(Box::new(near));
            for _ in 0..rounds {
                far.write_all(&[head(1), head(3)].concat()).await.unwrap();
            }
            drop(far);
            let read = watched.read_to_end(&mut Vec::new()).await;
            assert_eq!(read.is_err(), is_error, "{rounds}");
        }
    }
}
