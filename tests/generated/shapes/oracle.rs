//! What RFC 9110, RFC 9112 and RFC 9113 say about a shape: which requests may be seen, how each is framed, and what the call returns.

use super::given::{End, Given};
use super::{Around, Body, Method, Protocol, Shape};
use crate::strict::{Framing, Seen};

/// What a call may come to.
#[derive(Debug)]
pub(super) struct Expected {
    /// The requests, one after the other, each with the method and the last part of its path. Those behind `least` need not be made.
    pub requests: Vec<Request>,
    pub least: usize,
    /// The status of the response; `None` for an error.
    pub status: Vec<Option<u16>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub method: &'static str,
    pub step: &'static str,
    pub has_body: bool,
}

impl Method {
    pub(super) fn name(self) -> &'static str {
        ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"][self as usize]
    }

    /// RFC 9110 §9.2.2.
    fn is_idempotent(self) -> bool {
        self != Self::Post
    }

    /// Returns true if a request without content says so (RFC 9110 §8.6).
    fn anticipates_content(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }
}

impl Around {
    /// Returns the last part of the path of the first request.
    pub(super) fn step(self) -> &'static str {
        match self {
            Self::Retry => "503",
            Self::Redirect301 => "301",
            Self::Redirect303 => "303",
            Self::Redirect307 => "307",
            Self::Redirect308 => "308",
            Self::Token => "401",
            Self::Hedge => "slow",
            Self::Closed => "drop",
            Self::Nothing | Self::Layer | Self::AttemptLayer | Self::Expect | Self::Deadline => "plain",
        }
    }
}

/// Returns what the call of a shape may come to.
pub(super) fn expected(shape: Shape, given: &Given) -> Expected {
    let Shape { method, around, .. } = shape;
    let step = around.step();
    let first = Request { method: method.name(), step, has_body: true };
    let once = |status| Expected { requests: vec![first], least: 1, status: vec![status] };
    let twice = |second| Expected { requests: vec![first, second], least: 2, status: vec![Some(200)] };
    if given.end == End::Broken {
        return Expected { least: 0, ..once(None) };
    }
    // For these methods, HTTP/1 needs to know whether there is anything to send.
    let is_looked_at = shape.protocol != Protocol::Http2 && matches!(method, Method::Get | Method::Head);
    let is_nothing = shape.body == Body::Empty && is_looked_at;
    let is_replayable = given.is_replayable || is_nothing;
    let may_repeat = method.is_idempotent() && is_replayable;
    // What needs chunks leaves a connection whose server has answered with HTTP/1.0.
    let stays = shape.protocol != Protocol::Http10 || given.is_sized;
    let onward = Request { step: "plain", ..first };
    let fetched = Request { method: if method == Method::Head { "HEAD" } else { "GET" }, has_body: false, ..onward };
    match around {
        Around::Nothing | Around::Layer | Around::AttemptLayer | Around::Expect | Around::Deadline => once(Some(200)),
        Around::Hedge if may_repeat => Expected { least: 1, ..twice(first) },
        Around::Hedge => once(Some(200)),
        Around::Retry if may_repeat => twice(first),
        Around::Retry => once(Some(503)),
        Around::Token if is_replayable => twice(first),
        Around::Token => once(Some(401)),
        // RFC 9110 §15.4.2 and §15.4.4.
        Around::Redirect301 if method == Method::Post => twice(fetched),
        Around::Redirect303 => twice(fetched),
        Around::Redirect301 | Around::Redirect307 | Around::Redirect308 if is_replayable => twice(onward),
        // A stream is gone.
        Around::Redirect301 | Around::Redirect307 | Around::Redirect308 => once(None),
        Around::Closed if may_repeat && stays => twice(first),
        // A stream of which nothing was read may be sent again. Where it is sent on a new connection, the server has closed that.
        Around::Closed if method.is_idempotent() => {
            Expected { least: 1, status: vec![None, Some(200)], ..twice(first) }
        }
        Around::Closed => once(None),
    }
}

/// Returns what is wrong with a request that was seen, if anything is.
pub(super) fn difference(shape: Shape, given: &Given, expected: Request, seen: &Seen) -> Option<String> {
    let differs = |what: &str| Some(format!("{what}: {seen:?}"));
    if seen.method != expected.method || !seen.target.ends_with(&format!("/{}", expected.step)) {
        return differs("another request");
    }
    let (bytes, trailers) =
        if expected.has_body { (&given.bytes[..], &given.trailers[..]) } else { (&[][..], &[][..]) };
    if given.end == End::Broken {
        return if seen.complete { differs("a broken body looks whole") } else { None };
    }
    if !seen.complete {
        // Only a connection that the server closes, and an attempt that another one overtook, break off.
        let may_break = matches!(shape.around, Around::Closed | Around::Hedge);
        return if may_break { None } else { differs("it broke off") };
    }
    if seen.body != bytes {
        return differs("another body");
    }
    if seen.trailers != trailers {
        return differs("other trailers");
    }
    let has_length = !seen.values("content-length").is_empty();
    let is_sized = given.is_sized || !expected.has_body;
    let anticipates = shape.method.anticipates_content() && expected.method == shape.method.name();
    let fits = match shape.protocol {
        Protocol::Http2 if bytes.is_empty() => seen.framing == Framing::Frames,
        Protocol::Http2 => seen.framing == Framing::Frames && has_length == is_sized,
        _ if bytes.is_empty() && trailers.is_empty() => match seen.framing {
            Framing::None => !anticipates,
            Framing::Length(length) => length == 0 && anticipates,
            Framing::Chunked => !is_sized && !matches!(shape.method, Method::Get | Method::Head),
            Framing::Frames => false,
        },
        _ if is_sized => seen.framing == Framing::Length(bytes.len() as u64),
        _ => seen.framing == Framing::Chunked,
    };
    if !fits {
        return differs("another framing");
    }
    // Without content there is nothing to expect (RFC 9110 §10.1.1).
    if !seen.values("expect").is_empty() && (shape.around != Around::Expect || bytes.is_empty() && is_sized) {
        return differs("an expectation");
    }
    None
}
