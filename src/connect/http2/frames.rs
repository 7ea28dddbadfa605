//! Finds the HTTP/2 frames in a stream of bytes that arrive in pieces (RFC 9113 §4.1), and the times at
//! which a connection is pinged or given up. A core.

use std::time::Duration;

use crate::clock::Instant;

/// Finds the frames in what one side of a connection sends.
#[derive(Debug, Default)]
pub(in crate::connect) struct FrameScanner {
    /// The head of the next frame as far as it has come, and after a GOAWAY's head its first two fields.
    head: [u8; GOAWAY_HEAD],
    /// The bytes of `head` that have come.
    filled: usize,
    /// The bytes to skip before the next frame's head: the rest of the last frame.
    to_skip: usize,
    /// True once it is known if there are frames.
    has_begun: bool,
    /// True in a header block whose end has not begun.
    is_in_block: bool,
}

/// A frame that matters to the connection's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::connect) enum FrameEvent {
    /// A DATA frame with content, or the end of a message.
    Message,
    /// A stream reset, or the answer to a ping: signs that the server is at work. Settings, window updates, and pings
    /// of the server's own may come from a server that does no work for its requests.
    Progress,
    /// A message head that does not end its stream, whose number is given: a response's, or an interim response's.
    Head(u32),
    /// The acknowledgement of settings. The side that sends it has applied the settings of the other one.
    SettingsAck,
    /// A GOAWAY with the last stream that the server may have processed, and the error code.
    GoAway { last_stream: u32, code: u32 },
    /// The first bytes are those of a response by HTTP/1, and no frame: its length would be that of no SETTINGS, which come first
    /// (RFC 9113 §3.4).
    Http1,
}

/// The length of a frame's head.
const HEAD: usize = 9;
/// The length of a GOAWAY's head and its first two fields, the last stream and the error code (RFC 9113 §6.8).
const GOAWAY_HEAD: usize = HEAD + 8;

/// The first bytes of a response by HTTP/1, as many as a frame has for its length. h2 fails as soon as it has these.
const HTTP1: &[u8] = b"HTT";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
/// A flag of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// A flag of HEADERS, PUSH_PROMISE and CONTINUATION.
const END_HEADERS: u8 = 4;
/// A flag of SETTINGS and PING.
const ACK: u8 = 1;

/// The length of what a client sends before its first frame (RFC 9113 §3.4).
const PREFACE: usize = 24;

impl FrameScanner {
    /// Creates a scanner for what a client sends, which begins with a preface that is not a frame.
    pub(in crate::connect) fn behind_preface() -> Self {
        Self { to_skip: PREFACE, ..Self::default() }
    }

    /// Reads the next bytes. Calls `report` for each frame whose head they complete.
    pub(in crate::connect) fn read(&mut self, bytes: &[u8], mut report: impl FnMut(FrameEvent)) {
        self.read_until(bytes, false, |event| {
            report(event);
            false
        });
    }

    /// Returns true between two frames, and outside of a header block, which no other frame may interrupt (RFC 9113 §4.3).
    pub(in crate::connect) fn is_between(&self) -> bool {
        self.filled == 0 && self.to_skip == 0 && !self.is_in_block
    }

    /// Like [`Self::read`], but stops at the end of a frame, with its header block, for which `report` returned true, or of the one that
    /// has begun if `is_to_stop` is true. Returns the number of bytes read.
    pub(in crate::connect) fn read_until(
        &mut self,
        all: &[u8],
        mut is_to_stop: bool,
        mut report: impl FnMut(FrameEvent) -> bool,
    ) -> usize {
        let mut bytes = all;
        while !bytes.is_empty() {
            if is_to_stop && self.is_between() {
                break;
            }
            let wanted = if self.to_skip > 0 { self.to_skip } else { self.head_length() - self.filled };
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.to_skip > 0 {
                self.to_skip -= part.len();
                continue;
            }
            self.head[self.filled..self.filled + part.len()].copy_from_slice(part);
            self.filled += part.len();
            if !self.has_begun && self.filled >= HTTP1.len() {
                self.has_begun = true;
                if self.head.starts_with(HTTP1) {
                    is_to_stop |= report(FrameEvent::Http1);
                }
            }
            if self.filled == self.head_length() {
                if let Some(event) = self.event() {
                    is_to_stop |= report(event);
                }
                if matches!(self.head[3], HEADERS | PUSH_PROMISE | CONTINUATION) {
                    self.is_in_block = self.head[4] & END_HEADERS == 0;
                }
                self.to_skip = HEAD + self.length() - self.filled;
                self.filled = 0;
            }
        }
        all.len() - bytes.len()
    }

    /// Returns the number of bytes to collect in `head` for the current frame, as far as its type is known.
    fn head_length(&self) -> usize {
        let is_goaway = self.filled >= HEAD && self.head[3] == GOAWAY && self.length() >= GOAWAY_HEAD - HEAD;
        if is_goaway { GOAWAY_HEAD } else { HEAD }
    }

    /// Returns the length of the current frame's payload.
    fn length(&self) -> usize {
        u32::from_be_bytes([0, self.head[0], self.head[1], self.head[2]]) as usize
    }

    fn event(&self) -> Option<FrameEvent> {
        let flags = self.head[4];
        match self.head[3] {
            DATA if self.length() > 0 || flags & END_STREAM != 0 => Some(FrameEvent::Message),
            HEADERS if flags & END_STREAM != 0 => Some(FrameEvent::Message),
            HEADERS => Some(FrameEvent::Head(self.field(HEAD - 4) & !(1 << 31))),
            RST_STREAM => Some(FrameEvent::Progress),
            PING if flags & ACK != 0 => Some(FrameEvent::Progress),
            SETTINGS if flags & ACK != 0 => Some(FrameEvent::SettingsAck),
            GOAWAY if self.filled == GOAWAY_HEAD => {
                // The first bit of a stream's number is reserved.
                Some(FrameEvent::GoAway { last_stream: self.field(HEAD) & !(1 << 31), code: self.field(HEAD + 4) })
            }
            _ => None,
        }
    }

    /// Returns the four-byte field at this offset.
    fn field(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.head[at], self.head[at + 1], self.head[at + 2], self.head[at + 3]])
    }
}

/// Returns a header block of a stream that is malformed: it has a field that is not allowed in HTTP/2. It changes no table of headers.
/// An HTTP/2 library that reads it resets the stream (RFC 9113 §8.1.1, §8.2.2).
pub(in crate::connect) fn malformed_block(stream: u32) -> Vec<u8> {
    // A literal field without indexing (RFC 7541 §6.2.2).
    const BLOCK: &[u8] = b"\x00\x0aconnection\x05close";
    let head = [0, 0, BLOCK.len() as u8, HEADERS, END_HEADERS];
    [&head[..], &stream.to_be_bytes(), BLOCK].concat()
}

/// The user's settings for pings.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PingConfig {
    /// The time without a frame of a response after which a ping is sent; `None` to ping only when a connection is in
    /// doubt.
    pub(crate) interval: Option<Duration>,
    /// The longest wait for the answer to a ping that the interval caused; [`INTERVAL_PING_TIMEOUT`] if `None`.
    pub(crate) timeout: Option<Duration>,
    /// True if pings at the interval are also sent while no request is under way.
    pub(crate) while_idle: bool,
}

/// The default of [`PingConfig::timeout`], as in hyper and reqwest.
pub(in crate::connect) const INTERVAL_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The time without a byte from the server, while a request is under way, after which the server is pinged.
pub(in crate::connect) const SILENCE: Duration = Duration::from_secs(10);

/// The time without a byte from the server after a ping, after which the connection is given up.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The most pings between two frames of responses.
///
/// grpc-go closes a connection at the fourth ping that comes less than five minutes after the one before, and starts to
/// count anew only when it sends a frame of a response.
const MAX_PINGS: u32 = 2;

/// The most of [`MAX_PINGS`] that are sent while no frame of a request has left since the server was last heard. The
/// rest is kept for the next request.
const MAX_QUIET_PINGS: u32 = 1;

/// The longest time until hyper polls its timer again after a ping was due, if a request is under way. hyper does so at
/// once; a busy machine may need a moment.
const REPOLL_TIME: Duration = Duration::from_secs(1);

/// The frames that have passed over a connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::connect) struct Traffic {
    /// The time at which a byte last came from the server, or the server last made room for more. At first the time at
    /// which the connection was opened.
    pub(in crate::connect) heard: Instant,
    /// The time at which a frame of a request first left after `heard`, or at which the server last made room, if that
    /// is later. `None` if no frame of a request has left since a byte came.
    pub(in crate::connect) asked: Option<Instant>,
    /// The number of frames of responses that have come.
    pub(in crate::connect) responses: u64,
}

/// Decides when a connection is pinged and given up.
///
/// With a user's [`PingConfig::interval`], pings are sent at that interval. Without one, only while a request is under way and the server
/// has been silent, because servers count pings and close connections that send too many.
#[derive(Debug, Default)]
pub(in crate::connect) struct PingSchedule {
    /// The pings since the last frame of a response.
    pings: u32,
    /// [`Traffic::responses`] when `pings` was last reset.
    responses: u64,
    /// The time at which the last ping was sent.
    last_ping: Option<Instant>,
    /// The earliest time from which requests are known to have been under way.
    busy_since: Option<Instant>,
    /// The time at which a ping was due that has not been sent.
    due: Option<Instant>,
}

impl PingSchedule {
    /// Returns the time at which to ping if a request is under way; `None` while a ping would exceed the limits.
    pub(in crate::connect) fn ping_at(&mut self, traffic: &Traffic, now: Instant) -> Option<Instant> {
        if self.responses != traffic.responses {
            self.responses = traffic.responses;
            self.pings = 0;
        }
        if self.due.take().is_some_and(|due| due + REPOLL_TIME <= now) {
            // hyper did not send the ping that was due, so no request was under way then. The current one has just
            // begun.
            self.busy_since = Some(now);
        }
        let busy_since = *self.busy_since.get_or_insert(now);
        let (silent_since, max_pings) = match traffic.asked {
            Some(asked) => (asked, MAX_PINGS),
            None => (busy_since.max(traffic.heard), MAX_QUIET_PINGS),
        };
        if self.pings < max_pings { Some(silent_since + SILENCE) } else { None }
    }

    /// Notes that a ping is due, which hyper sends if a request is under way.
    pub(in crate::connect) fn note_due(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Notes that a ping was sent.
    pub(in crate::connect) fn note_ping(&mut self, now: Instant) {
        self.pings += 1;
        self.last_ping = Some(now);
        self.due = None;
    }

    /// Returns the time at which a connection with an unanswered ping is given up.
    pub(in crate::connect) fn give_up_at(&self, traffic: &Traffic) -> Instant {
        let waits_since = match self.last_ping {
            Some(last_ping) => last_ping.max(traffic.heard),
            None => traffic.heard,
        };
        waits_since + PING_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_behind_the_header_block_of_a_frame() {
        let (head, rest) = (frame(HEADERS, 0, b"x"), frame(CONTINUATION, 0, b"y"));
        let (last, data) = (frame(CONTINUATION, END_HEADERS, b"z"), frame(DATA, 0, b"a"));
        let stream = [&head[..], &rest, &last, &data].concat();
        let mut scanner = FrameScanner::default();
        let mut events = Vec::new();
        let read = scanner.read_until(&stream, false, |event| {
            events.push(event);
            event == FrameEvent::Head(1)
        });
        assert_eq!((read, scanner.is_between()), (stream.len() - data.len(), true));
        assert_eq!(scanner.read_until(&stream[read..], false, |_| false), data.len());
        scanner.read(&head, |_| ());
        assert!(!scanner.is_between());
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1][..], payload].concat()
    }

    /// Returns the events of `bytes` that come in pieces of this size.
    fn events(bytes: &[u8], size: usize) -> Vec<FrameEvent> {
        let mut scanner = FrameScanner::default();
        let mut events = Vec::new();
        bytes.chunks(size).for_each(|piece| scanner.read(piece, |event| events.push(event)));
        events
    }

    #[test]
    fn frames_are_found_in_pieces_of_any_size() {
        let stream = [
            frame(SETTINGS, 0, &[0, 3, 0, 0, 0, 100]),
            frame(SETTINGS, ACK, b""),
            frame(DATA, 0, b"a piece"),
            frame(GOAWAY, 0, &[0, 0, 0, 9, 0, 0, 0, 0xb, b'c', b'a', b'l', b'm']),
            frame(DATA, END_STREAM, b""),
        ]
        .concat();
        for size in 1..=stream.len() {
            let goaway = FrameEvent::GoAway { last_stream: 9, code: 0xb };
            let expected = [FrameEvent::SettingsAck, FrameEvent::Message, goaway, FrameEvent::Message];
            assert_eq!(events(&stream, size), expected, "{size}");
        }
    }

    #[test]
    fn only_frames_of_a_server_at_work_are_progress() {
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
            // Too short for a GOAWAY.
            (GOAWAY, 0, &[0; 7], false),
        ] {
            let events = events(&frame(kind, flags, payload), 64);
            let shows_work = events.iter().any(|event| matches!(event, FrameEvent::Message | FrameEvent::Progress));
            assert_eq!(shows_work, progress, "{kind} {flags}");
        }
    }
}

#[cfg(test)]
mod pings_tests {
    use super::*;

    #[test]
    fn a_request_without_an_answer_leads_to_a_ping_and_then_to_the_end_of_the_connection() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pings = PingSchedule::default();
        let traffic = Traffic { heard: at(0), asked: Some(at(100)), responses: 7 };
        assert_eq!(pings.ping_at(&traffic, at(100)), Some(at(110)), "the silence before it does not count");
        pings.note_due(at(110));
        assert_eq!(pings.ping_at(&traffic, at(110)), Some(at(110)), "hyper asks again at once");
        pings.note_ping(at(110));
        assert_eq!(pings.give_up_at(&traffic), at(125));
        assert_eq!(
            pings.give_up_at(&Traffic { heard: at(120), ..traffic }),
            at(135),
            "the server sent other bytes meanwhile"
        );
    }

    #[test]
    fn silence_counts_only_while_a_request_is_under_way() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pings = PingSchedule::default();
        let traffic = Traffic { heard: at(0), asked: None, responses: 1 };
        assert_eq!(pings.ping_at(&traffic, at(30)), Some(at(40)), "from the first call on");
        assert_eq!(pings.ping_at(&traffic, at(35)), Some(at(40)));
        assert_eq!(pings.ping_at(&Traffic { heard: at(36), ..traffic }, at(37)), Some(at(46)));
        pings.note_due(at(46));
        assert_eq!(
            pings.ping_at(&traffic, at(90)),
            Some(at(100)),
            "no ping was sent at 46 s, so no request was under way"
        );
    }

    #[test]
    fn the_second_ping_between_responses_is_kept_for_a_request() {
        let t0 = crate::clock::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut pings = PingSchedule::default();
        let quiet = Traffic { heard: at(0), asked: None, responses: 1 };
        assert_eq!(pings.ping_at(&quiet, at(0)), Some(at(10)));
        pings.note_ping(at(10));
        let quiet = Traffic { heard: at(10), ..quiet };
        assert_eq!(pings.ping_at(&quiet, at(60)), None);
        let asked = Traffic { asked: Some(at(70)), ..quiet };
        assert_eq!(pings.ping_at(&asked, at(71)), Some(at(80)));
        pings.note_ping(at(80));
        assert_eq!(pings.ping_at(&asked, at(90)), None);
        let answered = Traffic { responses: 2, ..asked };
        assert_eq!(pings.ping_at(&answered, at(90)), Some(at(80)), "a response resets the count");
    }
}
