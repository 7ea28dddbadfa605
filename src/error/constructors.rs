//! Constructors of [`Error`]: one for each way in which a layer fails, with its clause.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use url::Url;

use super::explain::{answers_in_http1, explain};
use super::{Cause, Error, ErrorDetail, ErrorKind, FailureClass, ShownPart};
use crate::connect::{ConnectError, ProxyError, clause_after_handshake, refused_status};
use crate::dns::{Pause, ResolveError, ResolveErrorKind};
use crate::origin::OriginError;
use crate::pool::{Expired, LeaseError};
use crate::redact::{self, KEPT_BODY_BYTES, SHOWN_PLACE, beginning, line, url_without_scheme};
#[cfg(feature = "__tls")]
use crate::tls::TlsConfigError;
use crate::trace::{Limit, Phase, exact};

/// Requests and clients that are not valid.
impl Error {
    /// Returns the error of a text that is not a URL.
    pub(crate) fn invalid_url(text: &str, error: url::ParseError) -> Self {
        let text = redact::not_a_url(text);
        let shown = line(text, SHOWN_PLACE);
        let hint = match url_without_scheme(text) {
            Some(meant) if error == url::ParseError::RelativeUrlWithoutBase && shown == text => {
                format!(" (did you mean {meant}?)")
            }
            _ => String::new(),
        };
        let mut error = Self::new(ErrorKind::Request, format!("`{shown}` is not a URL{hint}")).with_cause(error);
        error.0.shows = Some((ShownPart::Url, "the text given for a URL is not one".to_owned()));
        error
    }

    /// Returns the error of a URL to which no request can be sent.
    pub(crate) fn no_origin(url: &Url, error: OriginError) -> Self {
        let url = redact::parsed(url, false);
        let clause = format!("cannot send to `{}`", redact::not_a_url(url.as_str()));
        let mut error = Self::new(ErrorKind::Request, clause).with_cause(error);
        error.0.shows = Some((ShownPart::Url, "cannot send to the URL".to_owned()));
        error
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
    pub(crate) fn refused_request(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Request, what.into())
    }

    /// Returns the error of a request that a gateway is to answer itself.
    pub(crate) fn last_forward() -> Self {
        let what = "the request must not be passed on any further (`Max-Forwards: 0`)";
        Self::refused_request(what).with_detail(ErrorDetail::LastForward)
    }

    /// Returns the error of a request that cannot be passed on, because it has a transfer coding other than `chunked`.
    pub(crate) fn coded_request() -> Self {
        let what = "the request has a transfer coding other than chunked, and cannot be passed on";
        Self::refused_request(what).with_detail(ErrorDetail::TransferCoding)
    }

    /// Returns the error of a request to an `http` URL by a client for `https` alone.
    pub(crate) fn not_https() -> Self {
        Self::refused_request("the client sends requests to https URLs only")
    }

    /// Returns the error of a call that was made outside of a tokio runtime.
    pub(crate) fn no_runtime() -> Self {
        Self::refused_request("there is no tokio runtime, which connections and time limits need")
    }

    /// Returns the error of a client's configuration that is not valid, for the reason `error`.
    pub(crate) fn config(action: &str, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorKind::Request, format!("{action}: {error}")).with_told_cause(error)
    }

    /// Returns the error of a request that insists on an HTTP version which its connection does not speak.
    pub(crate) fn other_version(spoken: http::Version, insisted: http::Version) -> Self {
        let what = format!("the connection speaks {spoken:?}, and the request insists on {insisted:?}");
        Self::refused_request(what)
    }
}

impl From<ProxyError> for Error {
    fn from(error: ProxyError) -> Self {
        Self::invalid_request("the proxy is not valid", error)
    }
}

#[cfg(feature = "__tls")]
impl From<TlsConfigError> for Error {
    fn from(error: TlsConfigError) -> Self {
        Self::invalid_request("the settings of TLS are not valid", error)
    }
}

/// Calls that got no connection.
impl Error {
    /// Returns the error of a request that got no connection from the pool.
    pub(crate) fn no_lease(error: LeaseError<ConnectError>) -> Self {
        match error {
            LeaseError::Dial(error) => Self::no_connection(error),
            LeaseError::Lost => {
                let what = "the dial was given up, because its runtime ended or it panicked";
                Self::new(ErrorKind::Connect, what.to_owned())
            }
            LeaseError::WaitTimeout(Expired { timeout, limit, .. }) => {
                let what = format!("{limit}, and no connection became free");
                Self::stalled(Phase::Queue, &what, timeout).with_detail(ErrorDetail::Limit(limit))
            }
            LeaseError::ConnectTimeout(expired) => Self::no_connection_in_time(Phase::Connect, expired),
            LeaseError::Refused(Limit::Draining) => {
                let mut refused = Self::new(ErrorKind::Pool, Limit::Draining.to_string());
                refused.0.is_lasting = true;
                refused.with_detail(ErrorDetail::Limit(Limit::Draining))
            }
            LeaseError::Refused(limit) => {
                let what = format!("the queue is full: {limit}");
                Self::new(ErrorKind::Pool, what).with_detail(ErrorDetail::Limit(limit))
            }
        }
    }

    /// Returns the error of a request that got no connection within its connect timeout. `phase` is that of its dial.
    pub(crate) fn no_connection_in_time(phase: Phase, expired: Expired) -> Self {
        let Expired { timeout, limit, .. } = expired;
        let (phase, what) = match limit {
            Limit::Settings => (Phase::Connect, format!("{limit}, and no other connection was opened")),
            // Other requests' dials were to serve it as well.
            _ if phase == Phase::Queue => (Phase::Connect, "no connection".to_owned()),
            _ => (phase, "no connection".to_owned()),
        };
        Self::stalled(phase, &what, timeout)
    }

    /// Returns the error of a request for which no connection could be opened.
    pub(crate) fn no_connection(error: ConnectError) -> Self {
        let mut failed =
            Self::new(connect_error_kind(&error), connect_clause(&error)).with_detail(connect_detail(&error));
        failed.0.is_lasting = error.is_lasting();
        failed.0.tells_cause = error.tells_cause();
        failed.0.dns_pause = resolve_error(&error).and_then(pause_of);
        match error {
            ConnectError::Handshake(error) => failed.with_hyper(error, true),
            error => {
                failed.0.cause = error.into_cause();
                failed
            }
        }
    }
}

/// Exchanges that failed.
impl Error {
    /// Returns the error of a request that could not be sent, or whose response's head could not be read. `answered` is true
    /// if the response had begun, `goaway` what the server's GOAWAY on the connection complains about.
    pub(crate) fn exchange(error: hyper::Error, answered: bool, goaway: Option<h2::Reason>) -> Self {
        let explanation = explain(&error, answered, goaway);
        let failed = Self::new(ErrorKind::Exchange, explanation.what.into_owned());
        failed.with_hyper(Arc::new(error), explanation.replaces_text)
    }

    /// Returns the error for a server or proxy that rejected the client's certificate, or the lack of one, by `alert`. With
    /// TLS 1.3 the alert arrives after the client's part of the handshake.
    pub(crate) fn client_refused(kind: ErrorKind, alert: Arc<io::Error>) -> Self {
        let clause = clause_after_handshake(&alert).unwrap_or_else(|| "the TLS connection ended".to_owned());
        let mut refused = Self::new(kind, clause);
        refused.0.is_lasting = true;
        #[cfg(feature = "__tls")]
        let refused = refused.with_detail(ErrorDetail::ClientCertificate);
        refused.with_told_cause(alert)
    }

    /// Returns the error of a redirect that cannot be followed. `most` is the number of redirects that were followed before, if there are
    /// too many.
    pub(crate) fn redirect(
        status: StatusCode,
        error: impl std::error::Error + Send + Sync + 'static,
        most: Option<usize>,
    ) -> Self {
        let what = format!("the redirect ({}) is not followed: {error}", status.as_u16());
        Self::new(ErrorKind::Redirect, what).with_told_cause(error).with_detail(most.map(ErrorDetail::TooManyRedirects))
    }

    /// Returns the error of a redirect that the user's policy refused.
    pub(crate) fn redirect_refused(status: StatusCode, reason: Cause) -> Self {
        let what = format!("the redirect ({}) is refused by the redirect policy", status.as_u16());
        Self::new(ErrorKind::Redirect, what).with_cause(reason)
    }

    /// Returns the error of a connection that closed before the request was sent, because of `cause` if that is known.
    pub(crate) fn closed_before_send(cause: Option<Arc<hyper::Error>>) -> Self {
        let known = cause.as_deref().filter(|cause| answers_in_http1(cause));
        let clause = known.map_or("the connection closed before the request was sent".into(), |cause| {
            explain(cause, false, None).what
        });
        let closed = Self::new(ErrorKind::Exchange, clause.into_owned()).with_detail(ErrorDetail::ClosedBeforeSend);
        match cause {
            Some(cause) => {
                let is_told = explain(&cause, false, None).replaces_text;
                closed.with_hyper(cause, is_told)
            }
            None => closed,
        }
    }

    /// Returns the error of a request to which the server answered with a 408, because the connection was idle for too long.
    pub(crate) fn timed_out_idle() -> Self {
        let what = "the server timed out the idle connection (408) before the request came";
        Self::new(ErrorKind::Exchange, what.to_owned())
    }

    /// Returns the error of a response with a transfer coding other than `chunked`.
    pub(crate) fn coded_response() -> Self {
        let what = "the response has a transfer coding other than chunked, which the client does not decode";
        let mut coded = Self::new(ErrorKind::Exchange, what.to_owned()).with_detail(ErrorDetail::TransferCoding);
        coded.0.is_lasting = true;
        coded
    }

    /// Returns the error of a 101 response to a request that asked for no other protocol.
    pub(crate) fn unexpected_upgrade() -> Self {
        let what = "the server switches to another protocol (101), which the request did not ask for";
        Self::new(ErrorKind::Exchange, what.to_owned())
    }

    /// Returns the error of an `upgrade` on a response with this status that switches to no other protocol.
    pub(crate) fn no_upgrade(status: StatusCode) -> Self {
        let what = format!("the response ({}) switches to no other protocol", status.as_u16());
        Self::new(ErrorKind::Upgrade, what)
    }

    /// Returns the error of a second `upgrade`, on a copy of the response.
    pub(crate) fn upgrade_is_taken() -> Self {
        Self::new(ErrorKind::Upgrade, "the stream of the other protocol was taken before".to_owned())
    }

    /// Returns the error of a connection that failed while it switched to another protocol.
    pub(crate) fn upgrade(error: hyper::Error) -> Self {
        let what = "the connection failed while it switched to the other protocol";
        Self::new(ErrorKind::Upgrade, what.to_owned()).with_cause(error)
    }

    /// Returns the error of a request that was not written to its end while the other protocol was waited for.
    pub(crate) fn upgrade_is_late(after: Duration) -> Self {
        let what =
            format!("the request was not written to its end within {} after the server agreed to switch", exact(after));
        Self::new(ErrorKind::Upgrade, what)
    }

    /// Returns the error of a server that agreed to switch to another protocol before it had read the request.
    pub(crate) fn upgrade_is_early() -> Self {
        let what = "the server agreed to switch to the other protocol before the request was written to its end";
        Self::new(ErrorKind::Upgrade, what.to_owned())
    }

    /// Returns the error of an `Upgrade` header for a connection that speaks HTTP/2.
    pub(crate) fn no_upgrade_over_http2() -> Self {
        let what = "the connection speaks HTTP/2, which has no upgrade header: use a client with http1_only, or an \
                    extended CONNECT";
        Self::new(ErrorKind::Upgrade, what.to_owned()).before_sending()
    }

    /// Returns the error of an extended CONNECT that cannot be sent.
    pub(crate) fn no_extended_connect(why: &str) -> Self {
        Self::new(ErrorKind::Upgrade, format!("an extended CONNECT cannot be sent: {why}")).before_sending()
    }

    /// Returns the error of a request whose body failed while it was sent.
    pub(crate) fn upload(cause: Cause) -> Self {
        let mut failed = Self::new(ErrorKind::Exchange, "the body of the request failed".to_owned());
        failed.0.detail = Some(ErrorDetail::RequestBody);
        failed.0.is_lasting = true;
        failed.with_cause(cause)
    }

    /// Returns the error of a layer, or the client's own error if the layer passed it on.
    pub(crate) fn layer(cause: Cause) -> Self {
        Self::of_middleware("a layer around the client failed", cause)
    }

    /// Returns the error of a function of `before_attempt`.
    pub(crate) fn before_attempt(cause: Cause) -> Self {
        Self::of_middleware("a function of `before_attempt` failed", cause).before_sending()
    }

    /// Returns the error of a request that needs a token and gets none.
    pub(crate) fn token(cause: Arc<dyn std::error::Error + Send + Sync>) -> Self {
        let mut failed = Self::new(ErrorKind::Layer, "the token source has no token".to_owned()).with_cause(cause);
        failed.0.detail = Some(ErrorDetail::NoToken);
        #[cfg(feature = "sse")]
        {
            failed.0.lacks_token = true;
        }
        // The source has a backoff of its own.
        failed.before_sending()
    }

    /// Returns the error of an attempt of which nothing was sent, where the next one would fail for the same reason.
    fn before_sending(mut self) -> Self {
        self.0.is_lasting = true;
        self.with_class(FailureClass::Unprocessed)
    }

    /// Returns the error of the user's code around a request, or the client's own error if the code passed it on.
    fn of_middleware(what: &str, cause: Cause) -> Self {
        match cause.downcast() {
            Ok(own) => *own,
            Err(cause) => Self::new(ErrorKind::Layer, what.to_owned()).with_cause(cause),
        }
    }
}

/// Time limits.
impl Error {
    /// Returns the error of a call whose time limit passed.
    pub(crate) fn timeout(phase: Phase, after: Duration) -> Self {
        Self::new(ErrorKind::Timeout(phase), format!("timed out after {}", exact(after)))
            .with_detail(ErrorDetail::Deadline(after))
    }

    /// Returns the error of a call that made no progress for too long. `what` is a clause such as `no response headers`.
    pub(crate) fn stalled(phase: Phase, what: &str, after: Duration) -> Self {
        Self::new(ErrorKind::Timeout(phase), format!("{what} within {}", exact(after)))
            .with_detail(ErrorDetail::TimeLimit(after))
    }
}

/// Bodies that could not be read, and statuses that are errors.
impl Error {
    /// Returns the error of a body whose HTTP/2 stream, or connection, was closed without an error before its end.
    pub(crate) fn closed_body(what: &str, bytes: u64, announced: Option<u64>) -> Self {
        let what = format!("the server closed the {what} before the body's end, after {}", part(bytes, announced));
        Self::new(ErrorKind::Body, what).with_detail(ErrorDetail::BodyBrokeOff { received: bytes, announced })
    }

    /// Returns the error of a body that failed after `bytes` bytes.
    pub(crate) fn body(error: hyper::Error, bytes: u64, announced: Option<u64>) -> Self {
        let what = format!("the body broke off after {}", part(bytes, announced));
        let detail = ErrorDetail::BodyBrokeOff { received: bytes, announced };
        Self::new(ErrorKind::Body, what).with_detail(detail).with_hyper(Arc::new(error), true)
    }

    /// Returns the error of a read from a body that failed before.
    pub(crate) fn body_failed_before(bytes: u64) -> Self {
        let detail = ErrorDetail::BodyBrokeOff { received: bytes, announced: None };
        Self::new(ErrorKind::Body, format!("the body failed before, after {bytes} bytes")).with_detail(detail)
    }

    /// Returns the error of a body that is longer than its reader allows.
    pub(crate) fn long_body(limit: u64) -> Self {
        let long = Self::new(ErrorKind::Body, format!("the body is longer than {limit} bytes"));
        long.with_class(FailureClass::Final).with_detail(ErrorDetail::BodyTooLong { limit })
    }

    /// Returns the error of a writer that a body is copied to.
    pub(crate) fn writer(error: io::Error) -> Self {
        Self::new(ErrorKind::Body, "the body could not be written".to_owned())
            .with_cause(error)
            .with_detail(ErrorDetail::Writer)
    }

    /// Returns the error of a body of the user's own, or the client's own error if the body is of a response.
    pub(crate) fn own_body(cause: Cause) -> Self {
        match cause.downcast() {
            Ok(own) => *own,
            Err(cause) => Self::new(ErrorKind::Body, "the body could not be read".to_owned()).with_cause(cause),
        }
    }

    /// Returns the error of a body that a layer wrapped, or the client's own error if the layer passed it on.
    pub(crate) fn other_body(cause: Cause) -> Self {
        match cause.downcast() {
            Ok(own) => *own,
            Err(cause) => Self::new(ErrorKind::Body, "the body that a layer made failed".to_owned()).with_cause(cause),
        }
    }

    /// Returns the error of a body that cannot be decompressed. `is_lasting` is true if the next one cannot be either.
    pub(crate) fn compression(error: impl std::error::Error + Send + Sync + 'static, is_lasting: bool) -> Self {
        let mut failed = Self::new(ErrorKind::Decode, format!("the body cannot be decompressed: {error}"));
        failed.0.is_lasting = is_lasting;
        failed.with_told_cause(error)
    }

    /// Returns the error of a body that is not the expected JSON. `path` is the place in the document.
    #[cfg(feature = "json")]
    pub(crate) fn json(path: Option<String>, error: serde_json::Error, body: &[u8]) -> Self {
        let error = crate::redact::json(error);
        let place = path.filter(|path| path != ".");
        let place = place.map_or(String::new(), |path| format!(" at `{}`", line(path, SHOWN_PLACE)));
        if body.is_empty() {
            let what = "the body is empty, and not the expected JSON".to_owned();
            return Self::new(ErrorKind::Decode, what).with_cause(error);
        }
        let what = "the body is not the expected JSON";
        let mut failed = Self::new(ErrorKind::Decode, format!("{what}{place}, and begins with `{}`", beginning(body)));
        // The place has names of the body, and the text of the cause has values of it.
        let what = format!("{what} (line {}, column {})", error.line(), error.column());
        failed.0.shows = Some((ShownPart::Body, what));
        failed.with_cause(error)
    }

    /// Returns the error of a body that is read as an event stream, and has another content type or none.
    #[cfg(feature = "sse")]
    pub(crate) fn not_events(content_type: Option<&[u8]>) -> Self {
        let found = match content_type {
            Some(text) => format!("the content type is `{}`", beginning(text)),
            None => "there is no content type".to_owned(),
        };
        let mut refused = Self::new(ErrorKind::Decode, format!("the body is not an event stream: {found}"));
        refused.0.is_lasting = true;
        refused
    }

    /// Returns the error of an event stream that exceeds a limit.
    #[cfg(feature = "sse")]
    pub(crate) fn long_event(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        let mut refused = Self::new(ErrorKind::Decode, error.to_string());
        refused.0.is_lasting = true;
        refused.with_told_cause(error)
    }

    /// Returns the error of an event stream that ended without having begun.
    #[cfg(feature = "sse")]
    pub(crate) fn no_events() -> Self {
        Self::new(ErrorKind::Body, "the event stream ended, and nothing of it had arrived".to_owned())
    }

    /// Returns the error for a response's status. `phrase` is the server's own reason phrase, and `start` the beginning of
    /// the body.
    pub(crate) fn from_status(status: StatusCode, phrase: Option<&str>, start: Bytes) -> Self {
        let status_line = match phrase {
            Some(phrase) => format!("{} {}", status.as_u16(), beginning(phrase.as_bytes())),
            None => status.to_string(),
        };
        let shown = match beginning(&start) {
            _ if start.is_empty() => String::new(),
            text => format!(", and the body begins with `{text}`"),
        };
        let what = format!("status {status_line}");
        let mut error = Self::new(ErrorKind::Status(status), format!("{what}{shown}"));
        error.0.shows = Some((ShownPart::Body, what));
        error.0.body_start = start.slice(..start.len().min(KEPT_BODY_BYTES));
        error
    }
}

/// Describes the part of a body that arrived.
fn part(bytes: u64, announced: Option<u64>) -> String {
    match announced {
        Some(announced) => format!("{bytes} of {announced} bytes"),
        None => format!("{bytes} bytes"),
    }
}

/// Returns the error of a lookup behind a failed dial, be it for the origin or for the proxy.
fn resolve_error(error: &ConnectError) -> Option<&ResolveError> {
    match error {
        ConnectError::Resolve(error) => Some(error),
        ConnectError::ProxyUnreachable(_, error) => resolve_error(error),
        _ => None,
    }
}

/// Returns when DNS is asked again for a name whose lookup failed. That a name does not exist is remembered for as long as the answer says.
fn pause_of(error: &ResolveError) -> Option<Pause> {
    /// Without an SOA record the answer says nothing, and is remembered all the same.
    const UNTOLD: Duration = Duration::from_secs(1);
    match error.kind() {
        ResolveErrorKind::NxDomain => Some(Pause { asked_ago: None, again_in: error.negative_ttl().unwrap_or(UNTOLD) }),
        _ => error.pause(),
    }
}

fn connect_error_kind(error: &ConnectError) -> ErrorKind {
    if let Some(phase) = error.timed_out_in() {
        return ErrorKind::Timeout(phase);
    }
    if let Some(error) = resolve_error(error) {
        return match error.kind() {
            // No server was asked.
            ResolveErrorKind::InvalidName => ErrorKind::Request,
            _ => ErrorKind::Resolve,
        };
    }
    match error {
        ConnectError::ProxyBesideUnixSocket => ErrorKind::Request,
        ConnectError::Tls(_) | ConnectError::TunnelTls(..) => ErrorKind::Tls,
        ConnectError::UnixTls(..) => ErrorKind::Tls,
        _ => ErrorKind::Connect,
    }
}

fn connect_clause(error: &ConnectError) -> String {
    match error {
        ConnectError::Resolve(error) if error.kind() == ResolveErrorKind::InvalidName => {
            format!("`{}` is not a valid host name", error.name())
        }
        error => error.to_string(),
    }
}

fn connect_detail(error: &ConnectError) -> Option<ErrorDetail> {
    match error {
        ConnectError::Resolve(error) => Some(ErrorDetail::Lookup(error.kind())),
        ConnectError::Denied(ip) => Some(ErrorDetail::AddressDenied(*ip)),
        ConnectError::Timeout { after, .. } => Some(ErrorDetail::TimeLimit(*after)),
        ConnectError::Tls(failed) => failed.iter().rev().find_map(|(_, error)| tls_detail(error)),
        ConnectError::UnixTls(_, error) | ConnectError::TunnelTls(_, error) => tls_detail(error),
        ConnectError::Proxy(_, error) => tls_detail(error).or_else(|| refusal_of_proxy(error)),
        ConnectError::ProxyUnreachable(_, error) => connect_detail(error),
        ConnectError::Exhausted(_) => error.lacking().map(ErrorDetail::Limit),
        _ => None,
    }
}

/// Returns the refusal of a proxy; `None` if the connection to it failed, or it took too long.
fn refusal_of_proxy(error: &io::Error) -> Option<ErrorDetail> {
    let is_answer = matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::PermissionDenied);
    (is_answer && error.raw_os_error().is_none()).then(|| ErrorDetail::ProxyRefused(refused_status(error)))
}

/// Returns what the failure of a handshake was.
#[cfg(feature = "__tls")]
fn tls_detail(error: &io::Error) -> Option<ErrorDetail> {
    use crate::tls::{TlsFailed, certificate_problem, refuses_client, speaks_no_tls};
    if let Some(limit) = TlsFailed::of(error).and_then(TlsFailed::time_limit) {
        return Some(ErrorDetail::TimeLimit(limit));
    }
    match certificate_problem(error) {
        Some(problem) => Some(ErrorDetail::Certificate(problem)),
        None if refuses_client(error) => Some(ErrorDetail::ClientCertificate),
        None if speaks_no_tls(error) => Some(ErrorDetail::NotTls),
        None => None,
    }
}

#[cfg(not(feature = "__tls"))]
fn tls_detail(_: &io::Error) -> Option<ErrorDetail> {
    None
}
