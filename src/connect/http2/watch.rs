//! A stream that records the HTTP/2 frames that pass over it.
//!
//! hyper reports a frame only to the request that it belongs to, and only when that request is polled. The pool and the
//! pings need to know of a GOAWAY, and of signs that the server is at work, sooner.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use crate::world::RandomState;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

use super::frames::{FrameEvent, FrameScanner, malformed_block};
use crate::clock::{self, AtomicInstant, Instant};
use crate::connect::http2::ExtendedConnect;
use crate::connect::http2::frames::Traffic;
use crate::connect::io::MAX_INTERIM;
use crate::sync;
use crate::transport::Stream;

/// The facts about the frames that have passed over an HTTP/2 connection.
#[derive(Debug)]
pub(in crate::connect) struct FrameRecord {
    /// The time of the connection's current poll; `None` if it was not read yet.
    now: AtomicInstant,
    /// The number of frames received that show a server at work.
    progress: AtomicU64,
    /// The number of frames of responses received.
    responses: AtomicU64,
    /// The server's last GOAWAY: its error code, its last stream from bit 32 on, and [`GOAWAY_BIT`]. 0 without one.
    goaway: AtomicU64,
    /// The time at which a byte was last received, or that of the start.
    heard: AtomicInstant,
    /// The time at which a frame of a request was first sent after `heard`.
    asked: AtomicInstant,
    /// The time at which the peer last made room for more bytes, after there was none.
    made_room: AtomicInstant,
    /// The requests that were dropped since the server last showed that it is at work.
    dropped: Mutex<Dropped>,
    /// The server's setting for extended CONNECT.
    pub(in crate::connect) extended_connect: ExtendedConnect,
}

/// A number of requests that were dropped before their responses came.
#[derive(Debug, Default)]
struct Dropped {
    count: u32,
    /// [`FrameRecord::progress`] when they were dropped.
    progress: u64,
}

/// The bit that every recorded GOAWAY has, so that it is not 0.
const GOAWAY_BIT: u64 = 1 << 63;

/// The error for a server that answers HTTP/2 in HTTP/1. hyper and h2 keep no more than its text.
pub(crate) const ANSWERS_IN_HTTP1: &str = "the answer is one of HTTP/1";

/// The most bytes that are read ahead. h2 reads the head of each frame and then the rest, which were two system calls.
const READ_AHEAD: usize = 64 * 1024;

/// The most streams whose heads are counted: the most that the client opens at the same time.
const MAX_STREAMS: usize = 1_024;

impl FrameRecord {
    fn new() -> Self {
        Self {
            now: AtomicInstant::default(),
            progress: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            goaway: AtomicU64::new(0),
            heard: AtomicInstant::new(Some(clock::now())),
            asked: AtomicInstant::default(),
            made_room: AtomicInstant::default(),
            dropped: Mutex::default(),
            extended_connect: ExtendedConnect::default(),
        }
    }

    /// Makes the next [`now`](Self::now) read the clock, because the connection is polled again.
    pub(in crate::connect) fn forget_now(&self) {
        self.now.store(None);
    }

    /// Returns the time of the connection's current poll, or of its last one. It is asked for at each frame, and the clock is read
    /// once in a poll.
    pub(in crate::connect) fn now(&self) -> Instant {
        self.now.load().unwrap_or_else(|| {
            let now = clock::now();
            self.now.store(Some(now));
            now
        })
    }

    /// Returns the number of frames received that show a server at work.
    pub(in crate::connect) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Counts a request that was dropped before its response came. Returns the number of those since the server last showed
    /// that it is at work.
    pub(in crate::connect) fn count_dropped(&self) -> u32 {
        let progress = self.progress();
        let mut dropped = self.dropped.lock();
        if dropped.progress != progress {
            *dropped = Dropped { count: 0, progress };
        }
        dropped.count += 1;
        dropped.count
    }

    /// Returns the times by which pings are decided.
    pub(in crate::connect) fn traffic(&self) -> Traffic {
        let made_room = self.made_room.load();
        let heard = self.heard.load().max(made_room).unwrap_or_else(clock::now);
        let asked = self.asked.load().map(|asked| made_room.map_or(asked, |made_room| asked.max(made_room)));
        Traffic { heard, asked, responses: self.responses.load(Ordering::Relaxed) }
    }

    /// Returns true if the server has sent GOAWAY.
    pub(in crate::connect) fn is_going_away(&self) -> bool {
        self.goaway.load(Ordering::Relaxed) > 0
    }

    /// Returns true if the server has sent GOAWAY with the code ENHANCE_YOUR_CALM.
    pub(in crate::connect) fn is_overloaded(&self) -> bool {
        self.goaway_reason() == Some(h2::Reason::ENHANCE_YOUR_CALM)
    }

    /// Returns the error code of the server's GOAWAY, if it has sent one that says that something is wrong.
    pub(in crate::connect) fn goaway_reason(&self) -> Option<h2::Reason> {
        // The lower half is the code.
        let code = self.goaway.load(Ordering::Relaxed) as u32;
        Some(h2::Reason::from(code)).filter(|reason| *reason != h2::Reason::NO_ERROR)
    }

    /// Returns true if the server has sent a GOAWAY whose last stream is 0: it processed no request.
    pub(in crate::connect) fn refuses_all(&self) -> bool {
        self.goaway.load(Ordering::Relaxed) >> 32 == GOAWAY_BIT >> 32
    }

    fn note_bytes_received(&self) {
        self.heard.store(Some(self.now()));
        self.asked.store(None);
    }

    fn note_room(&self) {
        self.made_room.store(Some(self.now()));
    }

    fn note_request_sent(&self) {
        if self.asked.load().is_none() {
            self.asked.store(Some(self.now()));
        }
    }

    fn note_received(&self, event: FrameEvent) {
        match event {
            FrameEvent::Message => {
                self.progress.fetch_add(1, Ordering::Relaxed);
                self.responses.fetch_add(1, Ordering::Relaxed);
            }
            FrameEvent::Head(_) | FrameEvent::SettingsAck | FrameEvent::Http1 => {}
            FrameEvent::Progress => {
                self.progress.fetch_add(1, Ordering::Relaxed);
            }
            FrameEvent::GoAway { last_stream, code } => {
                let goaway = GOAWAY_BIT | u64::from(last_stream) << 32 | u64::from(code);
                self.goaway.store(goaway, Ordering::Relaxed);
            }
        }
    }
}

/// A stream that records the frames that pass over it.
pub(in crate::connect) struct WatchedStream {
    stream: BufReader<Box<dyn Stream>>,
    received: FrameScanner,
    sent: FrameScanner,
    /// The number of heads that end no stream, by stream. Emptied when it is full: most of its streams have ended by
    /// then.
    heads: HashMap<u32, u32, RandomState>,
    /// True if the last write found no room.
    is_full: bool,
    /// The bytes that are read before those of the stream. Boxed because few connections have any.
    flood: Option<Box<Flood>>,
    record: Arc<FrameRecord>,
}

/// The bytes that are read after a stream had too many interim responses.
#[derive(Debug, Default)]
struct Flood {
    /// The stream that is to be reset.
    stream: Option<u32>,
    /// The frame for which h2 resets it.
    reset: Vec<u8>,
    /// The bytes that had been read behind the place of that frame.
    behind: Vec<u8>,
}

impl WatchedStream {
    /// Watches a stream. `is_plain` is true if there is no TLS with the origin: TLS reads ahead by itself.
    pub(in crate::connect) fn new(stream: Box<dyn Stream>, is_plain: bool) -> (Self, Arc<FrameRecord>) {
        let record = Arc::new(FrameRecord::new());
        // Any read is longer than one byte, and goes past such a buffer.
        let stream = BufReader::with_capacity(if is_plain { READ_AHEAD } else { 1 }, stream);
        let watched = Self {
            stream,
            received: FrameScanner::default(),
            sent: FrameScanner::behind_preface(),
            heads: HashMap::default(),
            is_full: false,
            flood: None,
            record: record.clone(),
        };
        (watched, record)
    }

    /// Notes the room that a write, or a flush, found. Only the peer makes room, so it is alive, however slow it is.
    fn note_room<T>(&mut self, written: &Poll<io::Result<T>>) {
        let was_full = std::mem::replace(&mut self.is_full, written.is_pending());
        if was_full && matches!(written, Poll::Ready(Ok(_))) {
            self.record.note_room();
        }
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        let Self { sent, record, .. } = self;
        sent.read(bytes, |event| match event {
            FrameEvent::Message => record.note_request_sent(),
            FrameEvent::SettingsAck => record.extended_connect.note_change(),
            _ => {}
        });
    }
}

/// Moves bytes to a buffer, as many as it has room for.
fn fill_from(bytes: &mut Vec<u8>, buf: &mut ReadBuf<'_>) {
    let count = bytes.len().min(buf.remaining());
    buf.put_slice(&bytes[..count]);
    bytes.drain(..count);
}

/// Counts a head that ends no stream. Returns true if it is the one more than the response and its interim responses may have.
fn is_one_too_many(heads: &mut HashMap<u32, u32, RandomState>, stream: u32) -> bool {
    if heads.len() >= MAX_STREAMS {
        heads.clear();
    }
    let count = heads.entry(stream).or_insert(0);
    *count += 1;
    // One of the heads may be the response's own.
    *count == MAX_INTERIM + 2
}

impl AsyncRead for WatchedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(flood) = &mut self.flood
            && !flood.reset.is_empty()
        {
            fill_from(&mut flood.reset, buf);
            return Poll::Ready(Ok(()));
        }
        let Self { stream, received, record, heads, flood, .. } = &mut *self;
        // Reads of the socket spend the task's budget; what was read ahead may be thousands of short frames, and spends it as well.
        let behind = flood.as_mut().map(|flood| &mut flood.behind).filter(|behind| !behind.is_empty());
        let is_ahead = behind.is_some() || !stream.buffer().is_empty();
        if is_ahead {
            ready!(sync::poll_budget(cx));
        }
        let before = buf.filled().len();
        let read = match behind {
            Some(behind) => {
                fill_from(behind, buf);
                Poll::Ready(Ok(()))
            }
            None => Pin::new(stream).poll_read(cx, buf),
        };
        let bytes = &buf.filled()[before..];
        if bytes.is_empty() {
            return read;
        }
        if is_ahead {
            sync::spend_budget(cx);
        }
        record.note_bytes_received();
        let mut flooded = flood.as_mut().and_then(|flood| flood.stream.take());
        let mut is_http1 = false;
        let used = received.read_until(bytes, flooded.is_some(), |event| {
            record.note_received(event);
            is_http1 |= event == FrameEvent::Http1;
            if let FrameEvent::Head(stream) = event
                && is_one_too_many(heads, stream)
            {
                flooded.get_or_insert(stream);
            }
            flooded.is_some()
        });
        if is_http1 {
            buf.set_filled(before);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, ANSWERS_IN_HTTP1)));
        }
        if let Some(stream) = flooded {
            let flood = flood.get_or_insert_default();
            let rest = &buf.filled()[before + used..];
            flood.behind.splice(..0, rest.iter().copied());
            buf.set_filled(before + used);
            if received.is_between() {
                flood.reset = malformed_block(stream);
            } else {
                flood.stream = Some(stream);
            }
        }
        read
    }
}

impl AsyncWrite for WatchedStream {
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
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A HEADERS frame that does not end its stream, with `:status: 200` (RFC 7541, appendix A). Its content is not
    /// read.
    fn head(stream: u8) -> [u8; 10] {
        [0, 0, 1, 1, 4, 0, 0, 0, stream, 0x88]
    }

    #[test]
    fn dropped_requests_are_counted_from_the_last_sign_of_the_server() {
        let record = FrameRecord::new();
        assert_eq!([record.count_dropped(), record.count_dropped()], [1, 2]);
        record.note_received(FrameEvent::SettingsAck);
        assert_eq!(record.count_dropped(), 3);
        record.note_received(FrameEvent::Message);
        assert_eq!([record.count_dropped(), record.count_dropped()], [1, 2]);
        record.note_received(FrameEvent::Progress);
        assert_eq!(record.count_dropped(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_stands_still_within_a_poll_of_the_connection() {
        let record = FrameRecord::new();
        let start = record.now();
        tokio::time::advance(Duration::from_millis(5)).await;
        record.note_bytes_received();
        assert_eq!((record.now(), record.traffic().heard), (start, start));
        record.forget_now();
        record.note_bytes_received();
        assert_eq!(record.traffic().heard - start, Duration::from_millis(5));
    }

    #[test]
    fn only_a_goaway_that_complains_has_a_reason() {
        let record = FrameRecord::new();
        assert_eq!((record.goaway_reason(), record.is_overloaded()), (None, false));
        record.note_received(FrameEvent::GoAway { last_stream: 7, code: 0 });
        assert_eq!((record.goaway_reason(), record.is_going_away()), (None, true));
        record.note_received(FrameEvent::GoAway { last_stream: 7, code: 0xb });
        assert_eq!((record.goaway_reason(), record.is_overloaded()), (Some(h2::Reason::ENHANCE_YOUR_CALM), true));
    }

    #[tokio::test]
    async fn what_was_read_ahead_spends_the_tasks_budget() {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let (mut watched, _) = WatchedStream::new(Box::new(near), true);
        far.write_all(&[0; 9 * 1_000]).await.unwrap();
        let mut read_frame = |cx: &mut Context<'_>| {
            Pin::new(&mut watched).poll_read(cx, &mut ReadBuf::new(&mut [0; 9])).is_ready().then_some(())
        };
        let frames = poll_fn(|cx| Poll::Ready(std::iter::from_fn(|| read_frame(cx)).count())).await;
        assert!((1..200).contains(&frames), "{frames} of 1,000 short frames in one turn");
    }

    /// Returns what is read of a stream over which these bytes come, in pieces of this size.
    async fn read_of(bytes: Vec<u8>, size: usize) -> Vec<u8> {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let (mut watched, _) = WatchedStream::new(Box::new(near), true);
        let write = async move {
            for piece in bytes.chunks(size) {
                far.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let mut read = Vec::new();
        let (result, ()) = tokio::join!(watched.read_to_end(&mut read), write);
        result.unwrap();
        read
    }

    #[tokio::test]
    async fn a_stream_with_too_many_interim_responses_is_reset_alone() {
        // One of them is the response's.
        for (rounds, is_reset) in [(MAX_INTERIM + 1, false), (MAX_INTERIM + 2, true), (2 * MAX_INTERIM, true)] {
            for size in [7, 1_000, 100_000] {
                let heads = |rounds| [head(1), head(3)].concat().repeat(rounds as usize);
                let sent = [heads(rounds), head(5).to_vec()].concat();
                let read = read_of(sent.clone(), size).await;
                if !is_reset {
                    assert_eq!(read, sent, "{rounds}");
                    continue;
                }
                // Each is reset right behind the head that is one too many.
                let both = [&head(1)[..], &malformed_block(1), &head(3), &malformed_block(3)].concat();
                let rest = [heads(rounds - MAX_INTERIM - 2), head(5).to_vec()].concat();
                assert_eq!(read, [heads(MAX_INTERIM + 1), both, rest].concat(), "{rounds}, {size}");
            }
        }
    }
}
