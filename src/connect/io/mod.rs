//! The stream between hyper and a connection's socket, with its record of reads and writes.
//!
//! | file | what it holds |
//! |---|---|
//! | `stream_io.rs` | the stream that hyper reads and writes |
//! | `io_record.rs` | the times of reads and writes; how long a dial's answers were here before they were read |
//! | `mod.rs` | what is sent and why it failed; HTTP/1.1 or HTTP/2; the number of interim responses. A core |

use std::sync::Arc;

use http::Request;
use http_body::Body;

use crate::clock::Instant;
use crate::origin::{Origin, Scheme};

pub(super) mod io_record;
pub(super) mod stream_io;

/// A body that can be sent.
pub(crate) trait Message: Body<Data: Send, Error: Into<Cause>> + Send + Unpin + 'static {}

impl<B: Body<Data: Send, Error: Into<Cause>> + Send + Unpin + 'static> Message for B {}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The failure of a request that got no response.
pub(crate) struct SendError<B> {
    /// The error of the exchange; `None` if the connection had ended before the request reached it.
    pub(crate) error: Option<hyper::Error>,
    /// The error that ended the connection before it took the request; `None` if there was none, or it is `error`.
    pub(crate) ended_by: Option<Arc<hyper::Error>>,
    /// The request, if nothing of it was sent.
    pub(crate) unsent: Option<Request<B>>,
}

impl<B> SendError<B> {
    /// Returns the error that says most about the failure.
    pub(crate) fn cause(&self) -> Option<&hyper::Error> {
        self.ended_by.as_deref().or(self.error.as_ref())
    }

    /// Returns true if the server said that it did not process the request (RFC 9113 §8.7).
    pub(crate) fn is_refused(&self) -> bool {
        self.error.as_ref().is_some_and(is_refused)
    }
}

/// Returns true for a stream reset with REFUSED_STREAM, and for a GOAWAY whose last stream is below the request's.
fn is_refused(error: &hyper::Error) -> bool {
    let cause = h2_cause(error).filter(|cause| cause.is_remote());
    cause.is_some_and(|cause| {
        cause.is_go_away() || (cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM))
    })
}

/// Returns the error of h2 that caused one of hyper.
pub(in crate::connect) fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

/// The times of a request and its response on the wire.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExchangeTimes {
    /// The time at which the first byte of the request was written. Over HTTP/2: at which the request was handed to the
    /// connection.
    pub(crate) begun: Option<Instant>,
    /// The time at which the last byte so far was written. Over HTTP/2: the same as `begun`.
    pub(crate) sent: Option<Instant>,
    /// The time at which the first byte of the response was read.
    pub(crate) answered: Option<Instant>,
    /// The time at which the end of the response's head was read, if it is known: all came in one read, or as one frame.
    pub(crate) head_read: Option<Instant>,
    /// True if any byte was read over HTTP/1.1, also one of an interim response.
    pub(crate) heard: bool,
}

impl ExchangeTimes {
    /// Returns the nanoseconds from the last byte of the request to the first one of the response.
    #[inline]
    pub(crate) fn waited_nanos(&self) -> u64 {
        let sent = self.sent.or(self.begun);
        self.answered.zip(sent).map_or(0, |(answered, sent)| answered.nanos_since(sent))
    }
}

/// The most interim responses to one request. Long jobs and resumable uploads send one each few seconds.
pub(in crate::connect) const MAX_INTERIM: u32 = 1_000;

/// Counts the interim responses in the bytes of a server.
#[derive(Debug, Clone, Copy)]
pub(in crate::connect) struct InterimCounter {
    count: u32,
    position: Position,
}

/// The position in what a server sends.
#[derive(Debug, Clone, Copy)]
enum Position {
    /// In a status line, of which this many bytes have come. After [`DIGIT`] they are those of an interim response.
    StatusLine(u8),
    /// In the rest of an interim response.
    Head { line_is_empty: bool },
    /// In the response itself.
    Response,
}

/// The index of the status code's first digit in a status line: `HTTP/1.1 200`.
const DIGIT: u8 = 9;
const SECOND_DIGIT: u8 = DIGIT + 1;
const THIRD_DIGIT: u8 = DIGIT + 2;

impl Default for InterimCounter {
    fn default() -> Self {
        Self { count: 0, position: Position::StatusLine(0) }
    }
}

impl InterimCounter {
    /// Returns the number of interim responses that have come.
    pub(in crate::connect) fn count(&self) -> u32 {
        self.count
    }

    /// Returns true if no byte has come after the last interim response.
    pub(in crate::connect) fn is_between(&self) -> bool {
        matches!(self.position, Position::StatusLine(0))
    }

    /// Reads the next bytes from the server. Returns false if more than [`MAX_INTERIM`] interim responses have come.
    pub(in crate::connect) fn read(&mut self, bytes: &[u8]) -> bool {
        // A shortcut for the usual case: a response without interim responses.
        if matches!(self.position, Position::StatusLine(0))
            && bytes.starts_with(b"HTTP/1.")
            && bytes.get(usize::from(DIGIT)).is_some_and(|digit| *digit != b'1')
        {
            self.position = Position::Response;
        }
        for byte in bytes {
            self.position = match (self.position, byte) {
                (Position::Response, _) => break,
                // Empty lines before a response are skipped (RFC 9112 §2.2).
                (Position::StatusLine(0), b'\r' | b'\n') => Position::StatusLine(0),
                (Position::StatusLine(DIGIT), b'1') => Position::StatusLine(SECOND_DIGIT),
                (Position::StatusLine(DIGIT), _) => Position::Response,
                (Position::StatusLine(SECOND_DIGIT), b'0') => Position::StatusLine(THIRD_DIGIT),
                // A 101 (Switching Protocols) is the response itself. What follows it is not HTTP.
                (Position::StatusLine(THIRD_DIGIT), b'1') => Position::Response,
                (Position::StatusLine(SECOND_DIGIT | THIRD_DIGIT), b'\n') => Position::Head { line_is_empty: true },
                (Position::StatusLine(SECOND_DIGIT | THIRD_DIGIT), _) => Position::Head { line_is_empty: false },
                (Position::StatusLine(bytes), _) => Position::StatusLine(bytes + 1),
                (Position::Head { line_is_empty: true }, b'\n') => {
                    self.count += 1;
                    Position::StatusLine(0)
                }
                (Position::Head { .. }, b'\n') => Position::Head { line_is_empty: true },
                (Position::Head { line_is_empty }, b'\r') => Position::Head { line_is_empty },
                (Position::Head { .. }, _) => Position::Head { line_is_empty: false },
            };
        }
        self.count <= MAX_INTERIM
    }
}

/// The versions of HTTP that the client may speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Versions {
    /// The server's choice by ALPN over TLS, HTTP/1.1 otherwise.
    #[default]
    Any,
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone, also without TLS: prior knowledge (RFC 9113 §3.3).
    Http2,
}

impl Versions {
    /// Returns the protocols to offer by ALPN, the preferred one first.
    pub(crate) fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Any => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        }
    }

    /// Returns the protocol of a connection whose TLS handshake chose `alpn`.
    pub(in crate::connect) fn negotiated(self, alpn: Option<&str>) -> Protocol {
        match (self, alpn) {
            (Self::Http2, _) | (Self::Any, Some("h2")) => Protocol::Http2,
            _ => Protocol::Http1,
        }
    }

    /// Returns the protocol of all connections to `origin`; `None` if each of them negotiates it by ALPN.
    pub(in crate::connect) fn known_for(self, origin: &Origin) -> Option<Protocol> {
        match self {
            Self::Http1 => Some(Protocol::Http1),
            Self::Http2 => Some(Protocol::Http2),
            Self::Any if origin.scheme() == Scheme::Http => Some(Protocol::Http1),
            Self::Any => None,
        }
    }
}

/// The version of HTTP that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Returns the highest version of the protocol. An HTTP/1.1 server may turn out to speak HTTP/1.0.
    pub(crate) fn version(self) -> http::Version {
        match self {
            Self::Http1 => http::Version::HTTP_11,
            Self::Http2 => http::Version::HTTP_2,
        }
    }
}

/// The number of requests that a connection carries from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// Up to this many requests at the same time. HTTP/2 servers announce it (RFC 9113 §5.1.2).
    Streams(usize),
    /// No new requests. Those under way go on.
    NoMore,
    /// No new requests, because the server is overloaded: its GOAWAY had the code ENHANCE_YOUR_CALM (RFC 9113 §7).
    EnhanceYourCalm,
    /// No requests at all: the runtime that served the connection ended before the socket was closed. The server did
    /// nothing.
    Abandoned,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of interim responses, and true if they are within the limit, for bytes in pieces of this
    /// size.
    fn counted(bytes: &str, size: usize) -> (u32, bool) {
        let mut counter = InterimCounter::default();
        let is_within_limit = bytes.as_bytes().chunks(size).all(|piece| counter.read(piece));
        (counter.count, is_within_limit)
    }

    #[test]
    fn interim_responses_are_counted_in_pieces_of_any_size() {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\n\r\n";
        let go_on = "HTTP/1.1 100\r\n\r\n";
        let bare = "HTTP/1.1 102 Processing\nx: 1\n\n";
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\nHTTP/1.1 100 OK\r\n\r\n";
        for size in [1, 2, 3, 7, 1_000] {
            assert_eq!(counted(response, size), (0, true));
            assert_eq!(counted(&[go_on, hints, bare, response].concat(), size), (3, true), "{size}");
            assert_eq!(counted(&["\r\n", hints, "\r\n", response].concat(), size), (1, true), "{size}");
            assert_eq!(counted(&[&hints.repeat(1_000), response].concat(), size), (1_000, true), "{size}");
            assert!(!counted(&[&go_on.repeat(1_001), response].concat(), size).1, "{size}");
        }
    }

    #[test]
    fn bytes_behind_a_switch_of_protocols_are_not_counted() {
        let switch = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n";
        let looks_like_heads = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        for size in [1, 2, 10, 11, 12, 1_000] {
            assert_eq!(counted(&[switch, &looks_like_heads].concat(), size), (0, true), "{size}");
            let hints = "HTTP/1.1 103 Early Hints\r\n\r\n";
            assert_eq!(counted(&[hints, hints, switch, &looks_like_heads].concat(), size), (2, true), "{size}");
        }
    }
}

#[cfg(test)]
mod protocol_tests {
    use super::*;

    #[test]
    fn http2_needs_alpn_or_prior_knowledge() {
        assert_eq!(Versions::Any.negotiated(None), Protocol::Http1);
        assert_eq!(Versions::Any.negotiated(Some("h2")), Protocol::Http2);
        assert_eq!(Versions::Http1.negotiated(Some("h2")), Protocol::Http1);
        assert_eq!(Versions::Http2.negotiated(None), Protocol::Http2);
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn only_an_https_origin_has_a_choice_of_protocol() {
        let origin = |url: &str| Origin::from_url(&url.parse().unwrap()).unwrap();
        assert_eq!(Versions::Any.known_for(&origin("http://api.test/")), Some(Protocol::Http1));
        assert_eq!(Versions::Any.known_for(&origin("https://api.test/")), None);
        assert_eq!(Versions::Http2.known_for(&origin("https://api.test/")), Some(Protocol::Http2));
    }
}
