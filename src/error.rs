//! Why a call failed, in one type: what it was doing, for which target, and what got in the way.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, Uri};
use url::Url;

use crate::clock::{self, Instant};
use crate::connect::{ConnectError, reason};
use crate::credentials::Credentials;
use crate::origin::{Origin, OriginError};
use crate::pool::LeaseError;
use crate::trace::{Attempt, Limit, Phase, Timings};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed.
///
/// Displays as one lower-case clause that names the target and the cause; never credentials. What hyper, DNS or the
/// operating system said is its [`source`](std::error::Error::source).
pub struct Error(Box<Facts>);

struct Facts {
    kind: ErrorKind,
    message: String,
    timed_out: bool,
    /// True if the next dial would fail for the same reason, or would be refused for it.
    lasting: bool,
    uri: Option<Uri>,
    timings: Option<Timings>,
    cause: Option<Cause>,
    /// How the response's body begins.
    start: Bytes,
    /// Of the call's time.
    remaining: Option<Duration>,
}

/// The call an error is about.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) url: Url,
    /// When the call's time is up, and how long it had.
    pub(crate) until: Option<(Instant, Duration)>,
    /// Queries are not to be shown.
    pub(crate) discreet: bool,
}

impl Context {
    fn shown_url(&self) -> Url {
        let mut url = without_credentials(&self.url);
        url.set_fragment(None);
        if self.discreet {
            url.set_query(None);
        }
        url
    }
}

/// What a call was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Making the request, or the client: the caller's input cannot work.
    Request,
    /// Resolving the name.
    Resolve,
    /// Connecting.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Waiting for a connection: the pool's limits got in the way.
    Pool,
    /// Sending the request and reading the head of its response.
    Exchange,
    /// Following a redirect.
    Redirect,
    /// Reading the response's body.
    Body,
    /// Reading the response's body as what it was to be.
    Decode,
    /// Something in a layer around the client.
    Layer,
    /// Some time limit passed in this phase.
    Timeout(Phase),
    /// Nothing but that the response's status says so: [`error_for_status`](crate::Response::error_for_status).
    Status(StatusCode),
}

impl ErrorKind {
    /// The kind's name in lower case.
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
    /// What the call was doing.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was asked for, without credentials; `None` where there was no valid URL.
    pub fn uri(&self) -> Option<&Uri> {
        self.0.uri.as_ref()
    }

    /// Where the time went until it failed; `None` where the call never began.
    pub fn timings(&self) -> Option<&Timings> {
        self.0.timings.as_ref()
    }

    /// Whether a time limit passed: the call's, the connect timeout, the one of the TLS handshake, the pool's wait timeout, one in
    /// DNS, or that of a layer (feature `tower`).
    pub fn is_timeout(&self) -> bool {
        self.0.timed_out || matches!(self.0.kind, ErrorKind::Timeout(_))
    }

    /// Whether no connection could be opened, for whatever reason but DNS.
    pub fn is_connect(&self) -> bool {
        let phases = matches!(self.0.kind, ErrorKind::Timeout(Phase::Connect | Phase::Proxy | Phase::Tls));
        phases || matches!(self.0.kind, ErrorKind::Connect | ErrorKind::Tls)
    }

    /// Whether the TLS handshake failed, on the last of the host's addresses at least.
    pub fn is_tls(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Tls | ErrorKind::Timeout(Phase::Tls))
    }

    /// The addresses that were dialled for the call, each with what came of it, in the order they were dialled.
    pub fn attempts(&self) -> &[Attempt] {
        self.timings().map_or(&[], Timings::attempts)
    }

    /// Whether the name could not be resolved.
    pub fn is_dns(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Resolve | ErrorKind::Timeout(Phase::Dns))
    }

    /// Whether the caller's input cannot work, so that nothing was sent (reqwest has the same word for it).
    pub fn is_builder(&self) -> bool {
        self.0.kind == ErrorKind::Request
    }

    /// Whether it was made from a response's status.
    pub fn is_status(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Status(_))
    }

    /// Whether a redirect could not be followed.
    pub fn is_redirect(&self) -> bool {
        self.0.kind == ErrorKind::Redirect
    }

    /// Whether the response's body could not be read.
    pub fn is_body(&self) -> bool {
        self.0.kind == ErrorKind::Body
    }

    /// Whether the response's body is not what it was to be.
    pub fn is_decode(&self) -> bool {
        self.0.kind == ErrorKind::Decode
    }

    /// The status, of an error made from one.
    pub fn status(&self) -> Option<StatusCode> {
        match self.0.kind {
            ErrorKind::Status(status) => Some(status),
            _ => None,
        }
    }

    /// How much of the call's time was left, where it had a [`timeout`](crate::RequestBuilder::timeout).
    pub fn remaining(&self) -> Option<Duration> {
        self.0.remaining
    }

    /// How the response's body begins, of an error made from a status: what came with the headers, 1 KiB at most.
    pub fn body_start(&self) -> &[u8] {
        &self.0.start
    }

    /// Returns true if the next dial would fail for the same reason, or would be refused for it.
    pub(crate) fn is_lasting(&self) -> bool {
        self.0.lasting
    }

    fn new(kind: ErrorKind, message: String) -> Self {
        Self(Box::new(Facts {
            kind,
            message,
            timed_out: false,
            lasting: false,
            uri: None,
            timings: None,
            cause: None,
            start: Bytes::new(),
            remaining: None,
        }))
    }

    fn because(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// The same with where its dial's time went, where there is no call.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn dialling(mut self, timings: Timings) -> Self {
        self.0.timings = Some(timings);
        self
    }

    /// The same with the call it is about. Where time ran out, it says where that went and what is left.
    pub(crate) fn about(mut self, context: &Context, timings: Timings) -> Self {
        // It may come through several hands.
        if self.0.timings.is_some() {
            return self;
        }
        self.0.uri = context.shown_url().as_str().parse().ok();
        self.0.remaining = context.until.map(|(until, _)| until.saturating_duration_since(clock::now()));
        if self.is_timeout() {
            let message = &mut self.0.message;
            message.push_str(&format!(" ({timings}"));
            if let (Some(left), Some((_, limit))) = (self.0.remaining.filter(|left| !left.is_zero()), context.until) {
                message.push_str(&format!("; {left:?} of {limit:?} left"));
            }
            message.push(')');
        }
        self.0.timings = Some(timings);
        self
    }

    pub(crate) fn invalid_url(text: &str, error: url::ParseError) -> Self {
        let shown = redacted(text);
        let hint = match url_without_scheme(shown) {
            Some(meant) if error == url::ParseError::RelativeUrlWithoutBase => format!("; did you mean {meant}?"),
            _ => String::new(),
        };
        Self::new(ErrorKind::Request, format!("`{shown}` is not a URL: {error}{hint}")).because(error)
    }

    pub(crate) fn no_origin(url: &Url, error: OriginError) -> Self {
        let url = without_credentials(url);
        Self::new(ErrorKind::Request, format!("cannot send to `{}`: {error}", redacted(url.as_str()))).because(error)
    }

    pub(crate) fn invalid_header(what: &str, error: impl Into<http::Error>) -> Self {
        Self::invalid_request(what, error.into())
    }

    pub(crate) fn invalid_request(what: &str, error: impl Into<Cause>) -> Self {
        Self::new(ErrorKind::Request, what.to_owned()).because(error)
    }

    pub(crate) fn refused_request(what: String) -> Self {
        Self::new(ErrorKind::Request, what)
    }

    /// The call was made outside of a tokio runtime.
    pub(crate) fn no_runtime(origin: &Origin) -> Self {
        let what = "there is no tokio runtime here, which its connections and time limits need";
        Self::new(ErrorKind::Request, format!("call {origin}: {what}"))
    }

    pub(crate) fn config(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorKind::Request, format!("build a client: {error}")).because(error)
    }

    pub(crate) fn no_lease(origin: &Origin, error: LeaseError<ConnectError>) -> Self {
        match error {
            LeaseError::Dial(error) => Self::no_connection(origin, error),
            LeaseError::Lost => Self::new(
                ErrorKind::Connect,
                format!("connect to {origin}: given up, because its runtime is gone or something panicked"),
            ),
            LeaseError::WaitTimeout(waited, limit) => {
                let mut error = Self::new(
                    ErrorKind::Pool,
                    format!("wait for a connection to {origin}: none became free within {waited:?}: {limit}"),
                );
                error.0.timed_out = true;
                error
            }
            LeaseError::CallerTimeout(limit) => Self::silence(origin, Phase::Queue, "no connection", limit),
            LeaseError::Refused(Limit::Draining) => {
                Self::new(ErrorKind::Pool, format!("call {origin}: {}", Limit::Draining))
            }
            LeaseError::Refused(limit) => Self::new(
                ErrorKind::Pool,
                format!("wait for a connection to {origin}: {limit}, and enough requests wait already"),
            ),
        }
    }

    pub(crate) fn no_connection(origin: &Origin, error: ConnectError) -> Self {
        let kind = match &error {
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
        };
        let dns_timeout = crate::dns::ResolveErrorKind::Timeout;
        let timed_out = match &error {
            ConnectError::Resolve(error) => error.kind() == dns_timeout,
            ConnectError::Tls(failed) => {
                failed.last().is_some_and(|(_, error)| error.kind() == std::io::ErrorKind::TimedOut)
            }
            _ => false,
        };
        let mut failed = Self::new(kind, format!("connect to {origin}: {error}"));
        failed.0.timed_out = timed_out;
        failed.0.lasting = error.is_lasting();
        failed.0.cause = error.into_cause();
        failed
    }

    pub(crate) fn exchange(origin: &Origin, error: hyper::Error, answered: bool) -> Self {
        let what = explain(&error, answered);
        Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {what}")).because(error)
    }

    /// The server refused the client's certificate, or the lack of one. With TLS 1.3 this comes after the handshake.
    pub(crate) fn client_refused(origin: &Origin, refusal: &str, error: Option<hyper::Error>) -> Self {
        let mut refused = Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {refusal}"));
        refused.0.lasting = true;
        refused.0.cause = error.map(Into::into);
        refused
    }

    pub(crate) fn redirect(
        origin: &Origin,
        status: StatusCode,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let message = format!("follow the redirect ({}) of {origin}: {error}", status.as_u16());
        Self::new(ErrorKind::Redirect, message).because(error)
    }

    pub(crate) fn no_answer(origin: &Origin) -> Self {
        let what = "the connection closed before the request was sent";
        Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {what}"))
    }

    pub(crate) fn switched(origin: &Origin) -> Self {
        let what = "the server switches to another protocol (101), which nobody asked for";
        Self::new(ErrorKind::Exchange, format!("exchange with {origin}: {what}"))
    }

    pub(crate) fn upload(origin: &Origin, cause: Cause) -> Self {
        let message = format!("send the body to {origin}: {cause}");
        Self::new(ErrorKind::Exchange, message).because(cause)
    }

    pub(crate) fn other_version(origin: &Origin, spoken: http::Version, insisted: http::Version) -> Self {
        let message =
            format!("call {origin}: the connection speaks {spoken:?}, and the request insists on {insisted:?}");
        Self::new(ErrorKind::Request, message)
    }

    pub(crate) fn cut_body(origin: &Origin, bytes: u64, announced: Option<u64>) -> Self {
        let of = announced.map_or(String::new(), |announced| format!(" of {announced}"));
        let what = "the peer reset the stream before its end";
        Self::new(ErrorKind::Body, format!("read the body from {origin}: {what}, after {bytes}{of} bytes"))
    }

    pub(crate) fn body(origin: &Origin, error: hyper::Error, bytes: u64) -> Self {
        let what = match io_cause(&error) {
            Some(io) if io.kind() != std::io::ErrorKind::UnexpectedEof => reason(io),
            None if stream_error(&error).is_some() => explain(&error, true),
            _ => "the connection closed before its end".to_owned(),
        };
        Self::new(ErrorKind::Body, format!("read the body from {origin}: {what}, after {bytes} bytes")).because(error)
    }

    pub(crate) fn body_failed_before(origin: &Origin, bytes: u64) -> Self {
        Self::new(ErrorKind::Body, format!("read the body from {origin}: it failed before, after {bytes} bytes"))
    }

    pub(crate) fn timeout(origin: &Origin, phase: Phase, after: Duration) -> Self {
        let message = format!("call {origin}: timed out after {after:?}, in phase {phase}");
        Self::new(ErrorKind::Timeout(phase), message)
    }

    /// Something did not come for too long.
    pub(crate) fn silence(origin: &Origin, phase: Phase, what: &str, after: Duration) -> Self {
        let message = format!("call {origin}: {what} within {after:?}, in phase {phase}");
        Self::new(ErrorKind::Timeout(phase), message)
    }

    /// A body that is not the JSON it was to be, at this path in the document.
    #[cfg(feature = "json")]
    pub(crate) fn json(origin: &Origin, path: Option<String>, error: serde_json::Error, body: &[u8]) -> Self {
        let place = path.filter(|path| path != ".").map_or(String::new(), |path| format!(" at `{path}`"));
        let message =
            format!("read the body from {origin} as JSON{place}: {error}; it begins with `{}`", beginning(body));
        Self::new(ErrorKind::Decode, message).because(error)
    }

    pub(crate) fn from_status(context: &Context, status: StatusCode, start: Bytes) -> Self {
        let shown = if start.is_empty() { String::new() } else { format!(", which says `{}`", beginning(&start)) };
        let message = format!("status {status} from {}{shown}", context.shown_url());
        let mut error = Self::new(ErrorKind::Status(status), message);
        error.0.start = start.slice(..start.len().min(KEPT));
        error
    }

    /// A body that is longer than its reader wants.
    pub(crate) fn long_body(origin: &Origin, limit: u64) -> Self {
        Self::new(ErrorKind::Body, format!("read the body from {origin}: it is longer than {limit} bytes"))
    }

    /// What a body was to be written to fails.
    pub(crate) fn writer(origin: &Origin, error: std::io::Error) -> Self {
        let message = format!("write the body from {origin}: {}", reason(&error));
        Self::new(ErrorKind::Body, message).because(error)
    }

    /// A layer fails, or hands the client's error on.
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
        let mut error = Self::new(kind, message).because(cause);
        error.0.timed_out = timed_out;
        error
    }

    /// A body that somebody else has changed fails.
    #[cfg(feature = "tower")]
    pub(crate) fn other_body(origin: &Origin, cause: Cause) -> Self {
        match cause.downcast() {
            Ok(own) => *own,
            Err(cause) => Self::of_layer(ErrorKind::Body, format!("read the body from {origin}: {cause}"), cause),
        }
    }

    /// A body that cannot be decompressed.
    #[cfg(feature = "__compression")]
    pub(crate) fn compression(origin: &Origin, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(ErrorKind::Decode, format!("decompress the body from {origin}: {error}")).because(error)
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

fn explain(error: &hyper::Error, answered: bool) -> String {
    match (io_cause(error), stream_error(error)) {
        // TLS without close_notify, to which this is what an end is to plain TCP.
        (Some(io), _) if io.kind() == std::io::ErrorKind::UnexpectedEof => closed(answered),
        (Some(io), _) => format!("{}{}", reason(io), doubt(answered)),
        // hyper has a method for this, but not in a build without its server.
        (None, _) if error.is_parse() && error.to_string() == "message head is too large" => {
            "the head of the response is too large".to_owned()
        }
        (None, _) if error.is_user() => {
            "the connection is gone, and it is not known whether the request was sent".to_owned()
        }
        (None, _) if error.is_timeout() => "the connection is dead: nobody answered a ping".to_owned(),
        (None, Some(cause)) => cause,
        (None, _) if error.is_parse() => format!("the server's answer is not HTTP/1.1: {error}"),
        (None, _) if error.is_canceled() => "the connection closed before the request was sent".to_owned(),
        (None, _) if answered || error.is_incomplete_message() => closed(answered),
        (None, None) => innermost(error),
    }
}

/// The server closed the connection before its response was whole.
fn closed(answered: bool) -> String {
    match answered {
        true => "the server closed the connection in the middle of its response".to_owned(),
        false => format!("the server closed the connection without a response{}", doubt(answered)),
    }
}

/// Where nothing came back, nobody can say how far the request got.
fn doubt(answered: bool) -> &'static str {
    if answered { "" } else { "; it is not known whether the request arrived" }
}

/// What the peer said of a stream, or of all of them (RFC 9113 §5.4).
fn stream_error(error: &hyper::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    let what = match (cause.is_remote(), cause.is_go_away()) {
        _ if cause.is_io() => return None,
        (true, true) => "the peer gave the connection up (GOAWAY",
        (true, false) => "the peer reset the stream (RST_STREAM",
        (false, _) => "what the peer sent is not HTTP/2 (",
    };
    let reason = cause.reason().map_or_else(|| cause.to_string(), |reason| format!(", {reason:?}"));
    Some(format!("{what}{reason})"))
}

/// hyper says of HTTP/2 only that there was an error; what it was is below.
fn innermost(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// What the operating system said, if it comes to that.
pub(crate) fn io_cause(error: &hyper::Error) -> Option<&std::io::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref() {
            return Some(io);
        }
        // h2 has it, and does not name it as its source.
        if let Some(io) = error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io) {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

/// Returns true if a layer's error, or one that is a cause of it, says that a time limit passed.
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

/// Of a body so much is kept in an error, and so many characters are shown.
const KEPT: usize = 1_024;
const SHOWN: usize = 80;

/// How a body begins, as one line.
fn beginning(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * SHOWN)]);
    let start = text.chars().take(SHOWN).map(|char| if char.is_control() { ' ' } else { char });
    let more = if text.chars().count() > SHOWN || body.len() > 4 * SHOWN { "…" } else { "" };
    start.chain(more.chars()).collect()
}

fn without_credentials(url: &Url) -> Url {
    let mut url = url.clone();
    drop(Credentials::take(&mut url));
    url
}

/// Something that was meant to be a URL, without what may be secrets in it: everything up to the last `@`, since
/// what is not a URL cannot be trusted to say where its authority ends, and the query.
fn redacted(text: &str) -> &str {
    let text = text.rfind('@').map_or(text, |at| &text[at + 1..]);
    text.split(['?', '#']).next().unwrap_or_default()
}

/// The URL that `text` may stand for, where it has no scheme and begins with a domain or an address: `example.com/x`.
fn url_without_scheme(text: &str) -> Option<String> {
    let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
    let text = text.trim();
    let host = text.split(['/', '\\']).next().unwrap_or_default();
    let is_host = host.starts_with('[') || (host.starts_with(char::is_alphanumeric) && host.contains('.'));
    let url = format!("{scheme}://{text}");
    (is_host && Url::parse(&url).is_ok()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_has_credentials() {
        for text in
            ["http://user:pass@ho st/x", "http:/user:pa/ss@ho st/x", "http://user:pa#ss@ho st/x", "user:p@ss@ho st/x"]
        {
            assert_eq!(redacted(text), "ho st/x");
        }
        assert_eq!(redacted("nonsense"), "nonsense");
        let opaque = Url::parse("user:secret@host/path").unwrap();
        let error = Error::no_origin(&opaque, OriginError::UnknownScheme("user".into())).to_string();
        assert_eq!(error, "cannot send to `host/path`: unknown scheme `user`");
        let url = Url::parse("http://user:pass@host/x?token=secret").unwrap();
        let status = |discreet| {
            let context = Context { url: url.clone(), until: None, discreet };
            Error::from_status(&context, StatusCode::NOT_FOUND, Bytes::new()).to_string()
        };
        assert_eq!(status(false), "status 404 Not Found from http://host/x?token=secret");
        assert_eq!(status(true), "status 404 Not Found from http://host/x");
        let error = Error::invalid_url("http://ho st/x?token=secret", url::ParseError::InvalidDomainCharacter);
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
