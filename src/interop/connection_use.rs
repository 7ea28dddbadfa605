//! The use of a connection by the client of another crate, as far as the bytes show it.
//!
//! Over HTTP/2 the frames name the streams, so it is known which requests are under way. Over HTTP/1.1 a connection is in use from the
//! first byte of a request until the client waits for more behind bytes of the answer: one that comes in pieces leaves it unused for the
//! time between them.

use std::collections::HashSet;

/// The use of a connection.
#[derive(Debug)]
pub(super) enum ConnectionUse {
    Http1(Http1Use),
    Http2(Box<UsedStreams>),
}

#[derive(Debug)]
pub(super) enum Http1Use {
    Idle,
    /// Bytes were written, and none have come since.
    Asked,
    /// Bytes have come.
    Answered,
}

/// The requests on an HTTP/2 connection.
#[derive(Debug, Default)]
pub(super) struct UsedStreams {
    written: FrameHeads,
    read: FrameHeads,
    /// The streams whose response has not ended.
    open: HashSet<u32>,
    /// The highest number of a stream so far.
    last: u32,
}

/// Finds the heads of frames in what one side sends (RFC 9113 §4.1).
#[derive(Debug, Default)]
struct FrameHeads {
    head: [u8; HEAD],
    filled: usize,
    /// The bytes before the next frame.
    to_skip: usize,
}

/// The length of a frame's head.
const HEAD: usize = 9;
/// The length of what a client sends before its first frame (RFC 9113 §3.4).
const PREFACE: usize = 24;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
/// A flag of DATA and HEADERS.
const END_STREAM: u8 = 1;

impl ConnectionUse {
    pub(super) fn new(is_http2: bool) -> Self {
        if !is_http2 {
            return Self::Http1(Http1Use::Idle);
        }
        let written = FrameHeads { to_skip: PREFACE, ..FrameHeads::default() };
        Self::Http2(Box::new(UsedStreams { written, ..UsedStreams::default() }))
    }

    /// Returns true if the connection is in use.
    pub(super) fn is_active(&self) -> bool {
        match self {
            Self::Http1(of_connection) => !matches!(of_connection, Http1Use::Idle),
            Self::Http2(streams) => !streams.open.is_empty(),
        }
    }

    /// Takes bytes that the client wrote.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Http1(of_connection) if !bytes.is_empty() => *of_connection = Http1Use::Asked,
            Self::Http1(_) => {}
            Self::Http2(streams) => streams.write(bytes),
        }
    }

    /// Takes bytes that the client read. There are none if it waits for them.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        match self {
            Self::Http1(of_connection) if !bytes.is_empty() => *of_connection = Http1Use::Answered,
            Self::Http1(of_connection @ Http1Use::Answered) => *of_connection = Http1Use::Idle,
            Self::Http1(_) => {}
            Self::Http2(streams) => streams.read(bytes),
        }
    }
}

impl UsedStreams {
    fn write(&mut self, bytes: &[u8]) {
        let Self { written, open, last, .. } = self;
        written.take(bytes, |kind, _, stream| match kind {
            // Trailers come on a stream that is known.
            HEADERS if stream > *last => {
                *last = stream;
                open.insert(stream);
            }
            RST_STREAM => drop(open.remove(&stream)),
            _ => {}
        });
    }

    fn read(&mut self, bytes: &[u8]) {
        let Self { read, open, .. } = self;
        read.take(bytes, |kind, flags, stream| {
            let is_end = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if is_end || kind == RST_STREAM {
                open.remove(&stream);
            }
        });
    }
}

impl FrameHeads {
    /// Calls `report` with the type, the flags and the stream of each frame whose head the bytes complete.
    fn take(&mut self, mut bytes: &[u8], mut report: impl FnMut(u8, u8, u32)) {
        while !bytes.is_empty() {
            if self.to_skip > 0 {
                let skipped = self.to_skip.min(bytes.len());
                self.to_skip -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let (part, rest) = bytes.split_at((HEAD - self.filled).min(bytes.len()));
            self.head[self.filled..self.filled + part.len()].copy_from_slice(part);
            self.filled += part.len();
            bytes = rest;
            if self.filled == HEAD {
                let [high, middle, low, kind, flags, stream @ ..] = self.head;
                self.filled = 0;
                self.to_skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                report(kind, flags, u32::from_be_bytes(stream) & !(1 << 31));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, stream];
        frame.resize(HEAD + usize::from(length), 7);
        frame
    }

    #[test]
    fn an_http1_connection_is_active_until_the_client_waits_behind_an_answer() {
        let mut of_connection = ConnectionUse::new(false);
        of_connection.read(&[]);
        assert!(!of_connection.is_active());
        of_connection.write(b"GET");
        of_connection.read(&[]);
        assert!(of_connection.is_active(), "no answer has come");
        of_connection.read(b"HTTP");
        assert!(of_connection.is_active());
        of_connection.read(&[]);
        assert!(!of_connection.is_active());
    }

    #[test]
    fn an_http2_connection_is_active_while_a_stream_is_open_in_pieces_of_any_size() {
        const SETTINGS: u8 = 4;
        for size in [1, 2, 8, 1_000] {
            let mut of_connection = ConnectionUse::new(true);
            let write = |of_connection: &mut ConnectionUse, bytes: Vec<u8>| {
                bytes.chunks(size).for_each(|piece| of_connection.write(piece));
            };
            let read = |of_connection: &mut ConnectionUse, bytes: Vec<u8>| {
                bytes.chunks(size).for_each(|piece| of_connection.read(piece));
            };
            write(&mut of_connection, [vec![b'P'; PREFACE], frame(SETTINGS, 0, 0, 6)].concat());
            assert!(!of_connection.is_active());
            write(&mut of_connection, [frame(HEADERS, END_STREAM, 1, 20), frame(HEADERS, 0, 3, 20)].concat());
            assert!(of_connection.is_active());
            read(&mut of_connection, [frame(HEADERS, 0, 1, 9), frame(DATA, END_STREAM, 1, 30)].concat());
            assert!(of_connection.is_active(), "the other stream is open");
            read(&mut of_connection, frame(HEADERS, END_STREAM, 3, 9));
            assert!(!of_connection.is_active());
            // The trailers of a request whose response has ended.
            write(&mut of_connection, [frame(HEADERS, END_STREAM, 3, 9), frame(SETTINGS, 1, 0, 0)].concat());
            assert!(!of_connection.is_active());
            write(&mut of_connection, frame(HEADERS, 0, 5, 9));
            assert!(of_connection.is_active());
            write(&mut of_connection, frame(RST_STREAM, 0, 5, 4));
            assert!(!of_connection.is_active());
        }
    }
}
