//! The cause of a failure: as a value, for programs that decide by it, and hyper's errors in words. hyper and h2 often say only that
//! there was an error; the reason is among the causes.
//!
//! An explanation takes the place of hyper's own text where that would repeat it. The chain of sources then goes on with the
//! error of the operating system or of h2, which gives the reason.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use http::StatusCode;

use crate::connect::{ANSWERS_IN_HTTP1, tls_reason};
use crate::dns::ResolveErrorKind;
#[cfg(feature = "__tls")]
use crate::tls::CertificateProblem;
use crate::trace::Limit;

/// hyper's error in words.
pub(super) struct Explanation {
    pub(super) what: Cow<'static, str>,
    /// True if hyper's own text adds nothing.
    pub(super) replaces_text: bool,
}

impl Explanation {
    /// An explanation that takes the place of hyper's text.
    fn whole(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), replaces_text: true }
    }

    /// An explanation that hyper's text completes.
    fn introduction(what: &'static str) -> Self {
        Self { what: what.into(), replaces_text: false }
    }
}

/// The addition to a message if no byte of a response came.
const MAYBE_ARRIVED: &str = ", and it is not known whether the request arrived";

/// Explains why an exchange failed. `answered` is true if the response had begun; `goaway` is what the server's GOAWAY on the
/// connection complains about.
pub(super) fn explain(error: &hyper::Error, answered: bool, goaway: Option<h2::Reason>) -> Explanation {
    if let Some(io) = io_cause(error) {
        return Explanation::whole(match (io.kind(), goaway) {
            (io::ErrorKind::InvalidData, _) if answers_in_http1(error) => {
                "the server answers HTTP/2 in HTTP/1; http2_prior_knowledge, where it is set, is not for it".into()
            }
            // The bytes arrived, and are not what they should be.
            (io::ErrorKind::InvalidData, _) => "the response could not be read".into(),
            // h2 tells of the end of the connection, and not of the GOAWAY before it.
            (_, Some(reason)) => {
                let then = if answered { " in the middle of the response" } else { MAYBE_ARRIVED };
                format!("the server closed the connection (GOAWAY, {reason:?}){then}").into()
            }
            // TLS without close_notify: the end of the connection, as FIN is without TLS.
            (io::ErrorKind::UnexpectedEof, None) => closed_early(answered),
            _ if answered => "the connection failed in the middle of the response".into(),
            _ => format!("the connection failed without a response{MAYBE_ARRIVED}").into(),
        });
    }
    // hyper's method for this is part of its server only. It says the same of a head with too many headers.
    if error.is_parse() && error.to_string() == "message head is too large" {
        return Explanation::whole("the head of the response is longer than 64 KiB, or has too many headers");
    }
    if error.is_user() {
        return Explanation::whole("the connection is gone, and it is not known whether the request was sent");
    }
    if error.is_timeout() {
        return Explanation::whole("the connection is dead: a ping was not answered");
    }
    if let Some(h2) = h2_cause(error) {
        return Explanation::whole(stream_error(h2));
    }
    if error.is_parse() {
        return Explanation::introduction("the response is not HTTP/1.1");
    }
    if error.is_canceled() {
        return Explanation::whole("the connection closed before the request was sent");
    }
    if answered || error.is_incomplete_message() {
        return Explanation::whole(closed_early(answered));
    }
    Explanation::introduction("the exchange failed")
}

/// Explains that the connection closed before the response was complete.
fn closed_early(answered: bool) -> Cow<'static, str> {
    if answered {
        "the connection closed in the middle of the response".into()
    } else {
        format!("the connection closed without a response{MAYBE_ARRIVED}").into()
    }
}

/// Explains an error of an HTTP/2 stream, or of all of a connection's streams (RFC 9113 §5.4). h2's text has the code.
fn stream_error(error: &h2::Error) -> &'static str {
    if error.is_library() && error.is_reset() {
        // h2 says the same of both.
        "the response breaks a rule of HTTP/2, its head is longer than 64 KiB, or more than 1,000 interim responses came before it"
    } else if error.is_library() {
        "the server broke a rule of HTTP/2"
    } else if !error.is_remote() {
        "the client gave up the HTTP/2 stream"
    } else if error.is_go_away() {
        "the server closed the connection (GOAWAY)"
    } else {
        "the server reset the stream (RST_STREAM)"
    }
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

/// Returns the error of h2 among the causes of hyper's error, unless it is one of the operating system.
fn h2_cause(error: &hyper::Error) -> Option<&h2::Error> {
    h2_error(error).filter(|error| !error.is_io())
}

/// Returns true if h2 reset the stream because the response breaks a rule of HTTP/2.
pub(crate) fn is_rule_broken(error: &hyper::Error) -> bool {
    h2_cause(error).is_some_and(|h2| h2.is_library() && h2.is_reset())
}

/// Returns true if the connection ended because the server answers HTTP/2 in HTTP/1.
pub(super) fn answers_in_http1(error: &hyper::Error) -> bool {
    io_cause(error).is_some_and(|io| io.to_string() == ANSWERS_IN_HTTP1)
}

/// Returns the error of the operating system among the causes of hyper's error.
pub(crate) fn io_cause(error: &hyper::Error) -> Option<&io::Error> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        // h2 has one as well, and does not return it as its source.
        if let Some(io) = error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io) {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

/// An error of the operating system that h2 has and does not return as a source. The chain goes on with hyper's error.
#[derive(Debug)]
struct BehindHttp2 {
    text: String,
    error: Arc<hyper::Error>,
}

impl fmt::Display for BehindHttp2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for BehindHttp2 {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.error)
    }
}

/// Returns the error of the operating system that h2 hides in hyper's error, or hyper's error.
pub(super) fn behind_http2(error: Arc<hyper::Error>) -> Result<io::Error, Arc<hyper::Error>> {
    let hidden = h2_error(&error).and_then(h2::Error::get_io);
    match hidden.map(|io| (io.kind(), io.to_string())) {
        Some((kind, text)) => Ok(io::Error::new(kind, BehindHttp2 { text, error })),
        None => Err(error),
    }
}

/// Returns true for an error whose sources are those of HTTP/2, which say nothing more.
pub(super) fn is_behind_http2(error: &(dyn StdError + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    io.is_some_and(|inner| inner.is::<BehindHttp2>())
}

/// Returns the error that h2 hides, if `io` repeats one.
#[cfg(feature = "doctor")]
pub(super) fn original(io: &io::Error) -> &io::Error {
    let repeated = io.get_ref().and_then(|inner| inner.downcast_ref::<BehindHttp2>());
    repeated.and_then(|repeated| io_cause(&repeated.error)).unwrap_or(io)
}

/// Returns the first error below `cause` that adds something to a message that says what `cause` says.
pub(super) fn below<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    let cause = unshared(cause);
    if let Some(error) = cause.downcast_ref::<hyper::Error>() {
        return match (io_cause(error), h2_cause(error)) {
            (Some(io), _) => Some(io),
            (None, Some(h2)) => Some(h2),
            (None, None) => behind_cancelled(error),
        };
    }
    match cause.downcast_ref::<io::Error>() {
        Some(io) => tls_reason(io),
        None => cause.source(),
    }
}

/// Returns the error of the connection behind that of a request that was not taken, unless it is the connection's end.
fn behind_cancelled(error: &hyper::Error) -> Option<&(dyn StdError + 'static)> {
    let source = error.source()?;
    let end = source.downcast_ref::<hyper::Error>()?;
    if end.is_incomplete_message() || end.is_canceled() { None } else { Some(source) }
}

/// Returns the error in a shared cause, because a shared one is of another type to those who look for theirs.
pub(super) fn unshared<'a>(cause: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    if let Some(io) = cause.downcast_ref::<Arc<io::Error>>() {
        return &**io;
    }
    if let Some(error) = cause.downcast_ref::<Arc<hyper::Error>>() {
        return &**error;
    }
    match cause.downcast_ref::<Arc<dyn StdError + Send + Sync>>() {
        Some(error) => unshared(&**error),
        None => cause,
    }
}

/// The failure of a call, where more is known than its [kind](crate::ErrorKind): [`Error::detail`](crate::Error::detail).
///
/// ```
/// use speeddial::dns::ResolveErrorKind;
/// use speeddial::error::ErrorDetail;
///
/// fn page(error: &speeddial::Error) -> &'static str {
///     match error.detail() {
///         Some(ErrorDetail::Deadline(_) | ErrorDetail::TimeLimit(_)) => "It takes too long.",
///         Some(ErrorDetail::Lookup(ResolveErrorKind::NxDomain)) => "There is no such host.",
///         Some(ErrorDetail::BodyTooLong { .. }) => "The answer is too long.",
///         _ => "It failed.",
///     }
/// }
/// # let error = speeddial::Client::new().get("no url").build().unwrap_err();
/// # assert_eq!(page(&error), "It failed.");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorDetail {
    /// The call took longer than this, its [`timeout`](crate::RequestBuilder::timeout).
    Deadline(Duration),
    /// A part of the call took longer than this. The kind names the phase.
    TimeLimit(Duration),
    /// The request got no connection because of this limit: the queue was full, or no connection became free in time.
    Limit(Limit),
    /// The lookup of the host's, or the proxy's, addresses failed so.
    Lookup(ResolveErrorKind),
    /// The client may not connect to this address, the only one or one of several.
    AddressDenied(IpAddr),
    /// The server's certificate was refused, for this reason.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    Certificate(CertificateProblem),
    /// The server rejected the client's certificate, or the lack of one.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    ClientCertificate,
    /// The peer does not speak TLS.
    #[cfg(feature = "__tls")]
    #[cfg_attr(docsrs, doc(cfg(any(feature = "tls", feature = "tls-ring"))))]
    NotTls,
    /// The proxy did not connect to the origin. Holds the status of its answer; `None` for a SOCKS5 proxy, and for an answer that is no
    /// response.
    ProxyRefused(Option<StatusCode>),
    /// The connection closed before the request was sent.
    ClosedBeforeSend,
    /// The request's own body, which the program gave, failed.
    RequestBody,
    /// A redirect was not followed, because so many had been followed before it, or it led back to where the call had been.
    TooManyRedirects(usize),
    /// The response's body is longer than this many bytes, its limit.
    BodyTooLong {
        /// The limit in bytes.
        limit: u64,
    },
    /// The response's body ended too early.
    BodyBrokeOff {
        /// The bytes that had arrived.
        received: u64,
        /// The length that the server had announced.
        announced: Option<u64>,
    },
    /// The request may be passed on no further (`Max-Forwards: 0`), and the gateway is to answer it:
    /// [`RequestBuilder::forward`](crate::RequestBuilder::forward).
    LastForward,
    /// The request given to [`RequestBuilder::forward`](crate::RequestBuilder::forward), or the server's response, has a transfer coding
    /// other than `chunked`, such as `Transfer-Encoding: gzip, chunked`. The client decodes `chunked` alone. A gateway answers a
    /// request with a 501 (RFC 9112 §6.1), for which the kind is [`ErrorKind::Request`](crate::ErrorKind::Request), and with a 502 in
    /// place of a response.
    TransferCoding,
    /// The writer that the response's body is copied to failed.
    Writer,
    /// The token source has no token.
    NoToken,
}
