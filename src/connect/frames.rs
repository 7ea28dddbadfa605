//! The heads of HTTP/2 frames, as they pass by (RFC 9113 §4.1). A core.

/// Finds the frames in what a server sends.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The head of the next frame as far as it has come, and the first fields of a GOAWAY behind it.
    head: [u8; GOAWAY_HEAD],
    filled: usize,
    /// How many bytes of the last frame's payload are still to come.
    payload: usize,
}

/// A frame that tells something of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// A piece or the end of a response, or of a request.
    Message,
    /// A reset, or the answer to a ping. Settings, windows, pings of the server's own and interim responses may come from a
    /// server that does no work for its requests.
    Progress,
    /// A head that is not the end of this stream: a response's, or an interim response's.
    Head(u32),
    /// A GOAWAY: the last stream that the server may have processed, and the error code.
    GoAway { last: u32, code: u32 },
}

const HEAD: usize = 9;
/// The same with the last stream and the error code of a GOAWAY (RFC 9113 §6.8).
const GOAWAY_HEAD: usize = HEAD + 8;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// A flag of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// A flag of PING.
const ACK: u8 = 1;

/// The length of what a client sends before its first frame (RFC 9113 §3.4).
const PREFACE: usize = 24;

impl Frames {
    /// Finds the frames in what a client sends.
    pub(super) fn behind_preface() -> Self {
        Self { payload: PREFACE, ..Self::default() }
    }

    /// Takes the next bytes, and tells of the frames that begin in them.
    pub(super) fn read(&mut self, mut bytes: &[u8], mut tell: impl FnMut(Sign)) {
        while !bytes.is_empty() {
            let wanted = if self.payload > 0 { self.payload } else { self.head_length() - self.filled };
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.payload > 0 {
                self.payload -= part.len();
                continue;
            }
            self.head[self.filled..self.filled + part.len()].copy_from_slice(part);
            self.filled += part.len();
            if self.filled == self.head_length() {
                self.sign().into_iter().for_each(&mut tell);
                self.payload = HEAD + self.length() - self.filled;
                self.filled = 0;
            }
        }
    }

    /// How much of the frame at hand is looked at, as far as is known yet.
    fn head_length(&self) -> usize {
        let is_goaway = self.filled >= HEAD && self.head[3] == GOAWAY && self.length() >= GOAWAY_HEAD - HEAD;
        if is_goaway { GOAWAY_HEAD } else { HEAD }
    }

    fn length(&self) -> usize {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize
    }

    fn sign(&self) -> Option<Sign> {
        let flags = self.head[4];
        match self.head[3] {
            DATA if self.length() > 0 || flags & END_STREAM != 0 => Some(Sign::Message),
            HEADERS if flags & END_STREAM != 0 => Some(Sign::Message),
            HEADERS => Some(Sign::Head(self.field(HEAD - 4) & !(1 << 31))),
            RST_STREAM => Some(Sign::Progress),
            PING if flags & ACK != 0 => Some(Sign::Progress),
            GOAWAY if self.filled == GOAWAY_HEAD => {
                // The first bit of a stream's number is reserved.
                Some(Sign::GoAway { last: self.field(HEAD) & !(1 << 31), code: self.field(HEAD + 4) })
            }
            _ => None,
        }
    }

    fn field(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.head[at], self.head[at + 1], self.head[at + 2], self.head[at + 3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: u8 = 4;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1][..], payload].concat()
    }

    /// What is seen where the bytes come in pieces of this size.
    fn seen(bytes: &[u8], size: usize) -> Vec<Sign> {
        let (mut frames, mut signs) = (Frames::default(), Vec::new());
        bytes.chunks(size).for_each(|piece| frames.read(piece, |sign| signs.push(sign)));
        signs
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let stream = [
            frame(SETTINGS, 0, &[0, 3, 0, 0, 0, 100]),
            frame(DATA, 0, b"a piece"),
            frame(GOAWAY, 0, &[0, 0, 0, 9, 0, 0, 0, 0xb, b'c', b'a', b'l', b'm']),
            frame(DATA, END_STREAM, b""),
        ]
        .concat();
        for size in 1..=stream.len() {
            let goaway = Sign::GoAway { last: 9, code: 0xb };
            assert_eq!(seen(&stream, size), [Sign::Message, goaway, Sign::Message], "{size}");
        }
    }

    #[test]
    fn only_what_a_server_at_work_sends_is_progress() {
        for (kind, flags, payload, progress) in [
            (DATA, 0, &b"x"[..], true),
            (DATA, 0, b"", false),
            (HEADERS, 0, b"x", false),
            (HEADERS, END_STREAM, b"x", true),
            (RST_STREAM, 0, &[0, 0, 0, 8], true),
            (SETTINGS, 0, b"", false),
            (SETTINGS, ACK, b"", false),
            (PING, 0, &[0; 8], false),
            (PING, ACK, &[0; 8], true),
            // Too short to be one.
            (GOAWAY, 0, &[0; 7], false),
        ] {
            let signs = seen(&frame(kind, flags, payload), 64);
            let shows_work = signs.iter().any(|sign| matches!(sign, Sign::Message | Sign::Progress));
            assert_eq!(shows_work, progress, "{kind} {flags}");
        }
    }
}
