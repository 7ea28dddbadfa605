//! The error of a call, in one type for the whole client.
//!
//! `constructors.rs` makes it of the layers' own errors, `explain.rs` puts hyper's errors in words, and `shown.rs` keeps
//! secrets and long texts out of messages.

mod constructors;
mod explain;
mod shown;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use url::Url;

use crate::clock::{self, Instant};
use crate::trace::{Attempt, Phase, Timings};

pub(crate) use explain::io_cause;
pub(crate) use shown::KEPT_BODY_BYTES;

/// A result whose error is [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The error of a call, or of building a request or a client.
///
/// `Display` is one clause that names the origin and the reason, and never credentials. The error of hyper, of DNS or of the
/// operating system is the [`source`](std::error::Error::source).
pub struct Error(Box<Facts>);

struct Facts {
    kind: ErrorKind,
    message: String,
    timed_out: bool,
    /// True if the next dial would fail for the same reason, so that a retry is of no use.
    is_lasting: bool,
    uri: Option<Uri>,
    timings: Option<Timings>,
    cause: Option<Cause>,
    /// The beginning of the response's body, of an error made from a status.
    body_start: Bytes,
    /// The rest of the call's time limit.
    remaining: Option<Duration>,
}

/// The call that an error belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) url: Url,
    /// The call's deadline, and the timeout from which it was computed.
    pub(crate) until: Option<(Instant, Duration)>,
    /// True if errors leave the URL's query out.
    pub(crate) discreet: bool,
}

impl Context {
    /// Returns the URL without credentials and fragment, and without the query if queries must not be shown.
    fn shown_url(&self) -> Url {
        let mut url = shown::without_credentials(&self.url);
        url.set_fragment(None);
        if self.discreet {
            url.set_query(None);
        }
        url
    }
}

/// The step in which a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's input is not valid: the URL, the request, or a setting of the client. Nothing was sent.
    Request,
    /// The name could not be resolved.
    Resolve,
    /// No connection could be opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The pool's limits left no connection for the request.
    Pool,
    /// The request could not be sent, or the head of the response could not be read.
    Exchange,
    /// A redirect could not be followed.
    Redirect,
    /// The response's body could not be read.
    Body,
    /// The response's body could not be decoded, for example as JSON.
    Decode,
    /// A layer around the client failed (feature `tower`).
    Layer,
    /// A time limit passed in this phase.
    Timeout(Phase),
    /// The response has this error status: [`error_for_status`](crate::Response::error_for_status).
    Status(StatusCode),
}

impl ErrorKind {
    /// Returns the kind's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Pool => "pool",
            Self::Exchange => "exchange",
            Self::Redirect => "redirect",
            Self::Body => "body",
            Self::Decode => "decode",
            Self::Layer => "layer",
            Self::Timeout(_) => "timeout",
            Self::Status(_) => "status",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Error {
    /// Returns the step in which the call failed.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the request's URL without credentials; `None` if there was no valid URL.
    pub fn uri(&self) -> Option<&Uri> {
        self.0.uri.as_ref()
    }

    /// Returns the timings of the call until it failed; `None` if the call never began.
    pub fn timings(&self) -> Option<&Timings> {
        self.0.timings.as_ref()
    }

    /// Returns true if a time limit passed: of the call, the pool, DNS, connecting, the TLS handshake, the response's headers,
    /// the transfer of a body, or a layer (feature `tower`).
    pub fn is_timeout(&self) -> bool {
        self.0.timed_out || matches!(self.0.kind, ErrorKind::Timeout(_))
    }

    /// Returns true if no connection could be opened, for any reason but DNS.
    pub fn is_connect(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Connect | ErrorKind::Tls | ErrorKind::Timeout(Phase::Connect | Phase::Proxy | Phase::Tls)
        )
    }

    /// Returns true if the TLS handshake failed with the host, or with the last of its addresses that was tried.
    pub fn is_tls(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Tls | ErrorKind::Timeout(Phase::Tls))
    }

    /// Returns the addresses that were dialled for the call, each with its result, in the order they were dialled.
    pub fn attempts(&self) -> &[Attempt] {
        self.timings().map_or(&[], Timings::attempts)
    }

    /// Returns true if the name could not be resolved.
    pub fn is_dns(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Resolve | ErrorKind::Timeout(Phase::Dns))
    }

    /// Returns true if the caller's input is not valid: the URL, the request, or a setting of the client. Nothing was sent.
    pub fn is_builder(&self) -> bool {
        self.0.kind == ErrorKind::Request
    }

    /// Returns true if the error was made from a response's status.
    pub fn is_status(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Status(_))
    }

    /// Returns true if a redirect could not be followed.
    pub fn is_redirect(&self) -> bool {
        self.0.kind == ErrorKind::Redirect
    }

    /// Returns true if the response's body could not be read.
    pub fn is_body(&self) -> bool {
        self.0.kind == ErrorKind::Body
    }

    /// Returns true if the response's body could not be decoded.
    pub fn is_decode(&self) -> bool {
        self.0.kind == ErrorKind::Decode
    }

    /// Returns the response's status if the error was made from it; `None` otherwise.
    pub fn status(&self) -> Option<StatusCode> {
        match self.0.kind {
            ErrorKind::Status(status) => Some(status),
            _ => None,
        }
    }

    /// Returns the time that the call had left when it failed; `None` if it had no
    /// [`timeout`](crate::RequestBuilder::timeout).
    pub fn remaining(&self) -> Option<Duration> {
        self.0.remaining
    }

    /// Returns the beginning of the response's body, at most 1 KiB, if the error was made from a response's status; empty
    /// otherwise.
    pub fn body_start(&self) -> &[u8] {
        &self.0.body_start
    }

    /// Returns true if the next dial would fail for the same reason: a denied address, a refused certificate, an unusable
    /// proxy.
    pub(crate) fn is_lasting(&self) -> bool {
        self.0.is_lasting
    }

    fn new(kind: ErrorKind, message: String) -> Self {
        Self(Box::new(Facts {
            kind,
            message,
            timed_out: false,
            is_lasting: false,
            uri: None,
            timings: None,
            cause: None,
            body_start: Bytes::new(),
            remaining: None,
        }))
    }

    fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Adds the timings of a dial that belongs to no call.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn with_dial_timings(mut self, timings: Timings) -> Self {
        self.0.timings = Some(timings);
        self
    }

    /// Adds the call that the error belongs to, unless that is known already. The message of a timeout then says where the
    /// time went and how much of the call's time is left.
    pub(crate) fn about(mut self, context: &Context, timings: Timings) -> Self {
        if self.0.timings.is_some() {
            return self;
        }
        self.0.uri = context.shown_url().as_str().parse().ok();
        self.0.remaining = context.until.map(|(until, _)| until.saturating_duration_since(clock::now()));
        if self.is_timeout() {
            let message = &mut self.0.message;
            message.push_str(&format!(" ({timings}"));
            if let (Some(left), Some((_, limit))) = (self.0.remaining, context.until)
                && !left.is_zero()
            {
                message.push_str(&format!("; {left:?} of {limit:?} left"));
            }
            message.push(')');
        }
        self.0.timings = Some(timings);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("cause", &self.0.cause)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = self.0.cause.as_deref()?;
        Some(cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn the_message_of_a_status_has_no_credentials_and_no_hidden_query() {
        let url = Url::parse("http://user:pass@host/x?token=secret").unwrap();
        let status = |discreet| {
            let context = Context { url: url.clone(), until: None, discreet };
            Error::from_status(&context, StatusCode::NOT_FOUND, None, Bytes::new()).to_string()
        };
        assert_eq!(status(false), "status 404 Not Found from http://host/x?token=secret");
        assert_eq!(status(true), "status 404 Not Found from http://host/x");
    }

    #[test]
    fn the_message_of_a_status_shows_the_servers_own_phrase_in_one_line_of_80_characters() {
        let context = Context { url: Url::parse("http://host/").unwrap(), until: None, discreet: false };
        let status = |phrase| {
            let status = StatusCode::from_u16(599).unwrap();
            Error::from_status(&context, status, phrase, Bytes::new()).to_string()
        };
        assert_eq!(status(Some("Out of\ttea")), "status 599 Out of tea from http://host/");
        assert_eq!(status(None), "status 599 <unknown status code> from http://host/");
        let long = "x".repeat(200);
        assert_eq!(status(Some(&long)), format!("status 599 {}… from http://host/", "x".repeat(80)));
    }
}
