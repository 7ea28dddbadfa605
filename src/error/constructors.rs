//! Constructors of [`Error`]: one for each way in which a layer fails, with its message.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use url::Url;

use super::explain::{explain, explain_end, io_cause, stream_error};
use super::shown::{KEPT_BODY_BYTES, beginning, redacted, url_without_scheme, without_credentials};
use super::{Cause, Context, Error, ErrorKind};
use crate::connect::{ConnectError, reason};
use crate::dns::ResolveErrorKind;
use crate::origin::{Origin, OriginError};
use crate::pool::LeaseError;
use crate::trace::{Limit, Phase};

impl Error {
    /// Returns the error of a text that is not a URL.
    pub(crate) fn invalid_url(text: &str, error: url::ParseError) -> Self {
        let shown = redacted(text);
        let hint = match url_without_scheme(shown) {
            Some(meant) if error == url::ParseError::RelativeUrlWithoutBase => format!("; did you mean {meant}?"),
            _ => String::new(),
        };
        Self::new(ErrorKind::Request, format!("`{shown}` is not a URL: {error}{hint}")).with_cause(error)
    }

    /// Returns the error of a URL to which no request can be sent.
    pub(crate) fn no_origin(url: &Url, error: OriginError) -> Self {
        let url = without_credentials(url);
        Self::new(ErrorKind::Request, format!("cannot send to `{}`: {error}", redacted(url.as_str()))).with_cause(error)
    }

    /// Returns the error of a header that is not valid.
    pub(crate) fn invalid_header(what: &str, error: impl Into<http::Error>) -> Self {
        Self::invalid_request(what, error.into())
    }

    /// Returns the error of a request that is not valid, for the reason `error`.
    pub(crate) fn invalid_request(what: &str, error: impl Into<Cause>) -> Self {
        Self::new(ErrorKind::Request, what.to_owned()).with_cause(error)
    }

    /// Returns the error of a request, or of a client's configuration, that is not valid.
    pub(crate) fn refused_request(what: String) -> Self {
        Self::new(ErrorKind::Request, what)
    }

    /// Returns the error of a call that was made outside of a tokio runtime.
    pub(crate) fn no_runtime(origin: &Origin) -> Self {
        let what = "there is no tokio runtime, which connections and time limits need";
        Self::new(ErrorKind::Request, format!("call {origin}: {what}"))
    }

    /// Returns the error of a client's configuration that is not valid, for the reason `error`.
    pub(crate) fn config(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorKind::Request, format!("build a client: {error}")).with_cause(error)
    }

    /// Returns the error of a request that got no connection from the pool.
    pub(crate) fn no_lease(origin: &Origin, error: LeaseError<ConnectError>) -> Self {
        match error {
            LeaseError::Dial(error) => Self::no_connection(origin, error),
            LeaseError::Lost => Self::new(
                ErrorKind::Connect,
                format!("connect to {origin}: the dial was given up, because its runtime ended or it panicked"),
            ),
            LeaseError::WaitTimeout(waited, limit) => {
                let mut error = Self::new(
                    ErrorKind::Pool,
                    format!("wait for a connection to {origin}: none became free within {waited:?}: {limit}"),
                );
                error.0.timed_out = true;
                error
            }
            LeaseError::CallerTimeout(limit) => Self::stalled(origin, Phase::Queue, "no connection", limit),
            LeaseError::Refused(Limit::Draining) => {
                Self::new(ErrorKind::Pool, format!("call {origin}: {}", Limit::Draining))
            }
            LeaseError::Refused(limit) => Self::new(
                ErrorKind::Pool,
                format!("wait for a connection to {origin}: {limit}, and enough requests wait already"),
            ),
        }
    }

    /// Returns the error of a request for which no connection could be opened.
    pub(crate) fn no_connection(origin: &Origin, error: ConnectError) -> Self {
        let kind = connect_error_kind(&error);
        let mut failed = Self::new(kind, format!("connect to {origin}: {error}"));
        failed.0.timed_out = is_connect_timeout(&error);
        failed.0.is_lasting = error.is_lasting();
        failed.0.cause = error.into_cause();
        failed
    }

    /// Returns the error of a request that could not be sent, or whose response's head could not be read. `answered` is true
    /// if the response had begun.
    pub(crate) fn exchange(origin: &Origin, error: hyper::Error, answered: bool) -> Self {
        let what = explain(&error, answered);
        Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {what}")).with_cause(error)
    }

    /// Returns the error for a server that rejected the client's certificate, or the lack of one. With TLS 1.3 the rejection
    /// arrives after the handshake.
    pub(crate) fn client_refused(origin: &Origin, refusal: &str, error: Option<hyper::Error>) -> Self {
        let mut refused = Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {refusal}"));
        refused.0.is_lasting = true;
        refused.0.cause = error.map(Into::into);
        refused
    }

    /// Returns the error of a redirect that cannot be followed.
    pub(crate) fn redirect(
        origin: &Origin,
        status: StatusCode,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let message = format!("follow the redirect ({}) of {origin}: {error}", status.as_u16());
        Self::new(ErrorKind::Redirect, message).with_cause(error)
    }

    /// Returns the error of a connection that closed before the request was sent, because of `cause` if that is known.
    pub(crate) fn closed_before_send(origin: &Origin, cause: Option<Arc<hyper::Error>>) -> Self {
        let what = "the connection closed before the request was sent";
        let why = cause.as_deref().and_then(explain_end).map_or(String::new(), |why| format!(": {why}"));
        let mut error = Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {what}{why}"));
        error.0.cause = cause.map(Into::into);
        error
    }

    /// Returns the error of a 101 response to a request that asked for no other protocol.
    pub(crate) fn unexpected_upgrade(origin: &Origin) -> Self {
        let what = "the server switches to another protocol (101), which the request did not ask for";
        Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {what}"))
    }

    /// Returns the error of a request whose body failed while it was sent.
    pub(crate) fn upload(origin: &Origin, cause: Cause) -> Self {
        let message = format!("send the body to {origin}: {cause}");
        Self::new(ErrorKind::Exchange, message).with_cause(cause)
    }

    /// Returns the error of a request that insists on an HTTP version which its connection does not speak.
    pub(crate) fn other_version(origin: &Origin, spoken: http::Version, insisted: http::Version) -> Self {
        let message =
            format!("call {origin}: the connection speaks {spoken:?}, and the request insists on {insisted:?}");
        Self::new(ErrorKind::Request, message)
    }

    /// Returns the error of a body whose HTTP/2 stream was reset before its end.
    pub(crate) fn reset_body(origin: &Origin, bytes: u64, announced: Option<u64>) -> Self {
        let of = announced.map_or(String::new(), |announced| format!(" of {announced}"));
        let what = "the peer reset the stream before its end";
        Self::new(ErrorKind::Body, format!("read the body from {origin}: {what}, after {bytes}{of} bytes"))
    }

    /// Returns the error of a body that failed after `bytes` bytes.
    pub(crate) fn body(origin: &Origin, error: hyper::Error, bytes: u64) -> Self {
        let what = match io_cause(&error) {
            Some(io) if io.kind() != std::io::ErrorKind::UnexpectedEof => reason(io),
            None if stream_error(&error).is_some() => explain(&error, true),
            _ => "the connection closed before its end".to_owned(),
        };
        Self::new(ErrorKind::Body, format!("read the body from {origin}: {what}, after {bytes} bytes"))
            .with_cause(error)
    }

    /// Returns the error of a read from a body that failed before.
    pub(crate) fn body_failed_before(origin: &Origin, bytes: u64) -> Self {
        Self::new(ErrorKind::Body, format!("read the body from {origin}: it failed before, after {bytes} bytes"))
    }

    /// Returns the error of a call whose time limit passed.
    pub(crate) fn timeout(origin: &Origin, phase: Phase, after: Duration) -> Self {
        let message = format!("call {origin}: timed out after {after:?}, in phase {phase}");
        Self::new(ErrorKind::Timeout(phase), message)
    }

    /// Returns the error of a call that made no progress for too long. `what` is a clause such as `no response headers`.
    pub(crate) fn stalled(origin: &Origin, phase: Phase, what: &str, after: Duration) -> Self {
        let message = format!("call {origin}: {what} within {after:?}, in phase {phase}");
        Self::new(ErrorKind::Timeout(phase), message)
    }

    /// Returns the error of a body that is not the expected JSON. `path` is the place in the document.
    #[cfg(feature = "json")]
    pub(crate) fn json(origin: &Origin, path: Option<String>, error: serde_json::Error, body: &[u8]) -> Self {
        let place = path.filter(|path| path != ".").map_or(String::new(), |path| format!(" at `{path}`"));
        let message =
            format!("read the body from {origin} as JSON{place}: {error}; it begins with `{}`", beginning(body));
        Self::new(ErrorKind::Decode, message).with_cause(error)
    }

    /// Returns the error for a response's status. `phrase` is the server's own reason phrase, and `start` the beginning of
    /// the body.
    pub(crate) fn from_status(context: &Context, status: StatusCode, phrase: Option<&str>, start: Bytes) -> Self {
        let status_line = match phrase {
            Some(phrase) => format!("{} {}", status.as_u16(), beginning(phrase.as_bytes())),
            None => status.to_string(),
        };
        let shown = if start.is_empty() { String::new() } else { format!(", which says `{}`", beginning(&start)) };
        let message = format!("status {status_line} from {}{shown}", context.shown_url());
        let mut error = Self::new(ErrorKind::Status(status), message);
        error.0.body_start = start.slice(..start.len().min(KEPT_BODY_BYTES));
        error
    }

    /// Returns the error of a body that is longer than its reader allows.
    pub(crate) fn long_body(origin: &Origin, limit: u64) -> Self {
        Self::new(ErrorKind::Body, format!("read the body from {origin}: it is longer than {limit} bytes"))
    }

    /// Returns the error of a writer that a body is copied to.
    pub(crate) fn writer(origin: &Origin, error: std::io::Error) -> Self {
        let message = format!("write the body from {origin}: {}", reason(&error));
        Self::new(ErrorKind::Body, message).with_cause(error)
    }

    /// Returns the error of a layer, or the client's own error if the layer passed it on.
    #[cfg(feature = "tower")]
    pub(crate) fn layer(origin: &Origin, cause: Cause) -> Self {
        match cause.downcast() {
            Ok(own) => *own,
            Err(cause) => Self::of_layer(ErrorKind::Layer, format!("call {origin}: {cause}"), cause),
        }
    }

    #[cfg(feature = "tower")]
    fn of_layer(kind: ErrorKind, message: String, cause: Cause) -> Self {
        let timed_out = is_timeout(&*cause);
        let mut error = Self::new(kind, message).with_cause(cause);
        error.0.timed_out = timed_out;
        error
    }

    /// Returns the error of a body that a layer wrapped, or the client's own error if the layer passed it on.
    #[cfg(feature = "tower")]
    pub(crate) fn other_body(origin: &Origin, cause: Cause) -> Self {
        match cause.downcast() {
            Ok(own) => *own,
            Err(cause) => Self::of_layer(ErrorKind::Body, format!("read the body from {origin}: {cause}"), cause),
        }
    }

    /// Returns the error of a body that cannot be decompressed.
    #[cfg(feature = "__compression")]
    pub(crate) fn compression(origin: &Origin, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorKind::Decode, format!("decompress the body from {origin}: {error}")).with_cause(error)
    }
}

fn connect_error_kind(error: &ConnectError) -> ErrorKind {
    match error {
        ConnectError::Resolve(_) => ErrorKind::Resolve,
        ConnectError::Timeout { phase, .. } => ErrorKind::Timeout(*phase),
        #[cfg(unix)]
        ConnectError::Unix(_, error) if error.kind() == std::io::ErrorKind::TimedOut => {
            ErrorKind::Timeout(Phase::Connect)
        }
        ConnectError::Tls(_) => ErrorKind::Tls,
        #[cfg(unix)]
        ConnectError::UnixTls(..) => ErrorKind::Tls,
        _ => ErrorKind::Connect,
    }
}

/// Returns true if a time limit in DNS or of a TLS handshake passed. Those of connecting have a kind of their own.
fn is_connect_timeout(error: &ConnectError) -> bool {
    match error {
        ConnectError::Resolve(error) => error.kind() == ResolveErrorKind::Timeout,
        ConnectError::Tls(failed) => match failed.last() {
            Some((_, error)) => error.kind() == std::io::ErrorKind::TimedOut,
            None => false,
        },
        _ => false,
    }
}

/// Returns true if a layer's error, or one of its causes, is a time limit that passed.
#[cfg(feature = "tower")]
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let is_timeout = error.is::<tower::timeout::error::Elapsed>()
            || error.is::<tokio::time::error::Elapsed>()
            || error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
            || error.downcast_ref::<Error>().is_some_and(Error::is_timeout);
        if is_timeout {
            return true;
        }
        next = error.source();
    }
    false
}
