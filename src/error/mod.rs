//! The error of a call, in one type for the whole client.

// `constructors.rs` makes it of the layers' own errors, `explain.rs` puts hyper's errors in words and finds what the chain of
// sources goes on with, `classify.rs` says what it means for sending the request again, and `redact.rs` keeps secrets and long texts
// out of messages.

mod classify;
mod constructors;
mod explain;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::{Method, StatusCode};
use url::Url;

use crate::clock::{self, Instant};
use crate::dns::Pause;
use crate::redact::{self, SHOWN_CLAUSE, line};
use crate::trace::{self, Budgeted, DialledAddress, Phase, Timings, exact};

use explain::{behind_http2, below, is_behind_http2, unshared};
pub(crate) use explain::{io_cause, is_rule_broken};

pub use crate::error::explain::ErrorDetail;
pub(crate) use crate::redact::KEPT_BODY_BYTES;

/// A result whose error is [`Error`] by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The error of a call, or of building a request or a client.
///
/// `Display` is the request and one clause: the step that failed, and what the client knows about it. The reason that the
/// operating system, TLS, the HTTP library or a parser gave comes with the [`source`](std::error::Error::source), once. `{:#}`
/// prints all of it in one line:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let error = speeddial::Client::new().get("http://127.0.0.1:1/items?page=2").send().await.unwrap_err();
/// assert_eq!(format!("{error}"), "GET http://127.0.0.1:1/items?page=2: connect to 127.0.0.1 failed");
/// # #[cfg(target_os = "linux")]
/// assert!(format!("{error:#}").ends_with(": connect to 127.0.0.1 failed: Connection refused (os error 111)"));
/// # }
/// ```
///
/// The sources lead to the [`io::Error`] of the operating system and to hyper's error, where there is one, as in reqwest. hyper's own
/// text often says what the clause says, in other words: `{:#}` leaves it out.
///
/// Credentials are never shown, and queries are not with [`hide_queries`](crate::ClientBuilder::hide_queries). What a peer wrote, such
/// as a body's beginning or a certificate's names, is cut, and has no characters that steer a terminal or turn the text around.
pub struct Error(Box<ErrorFacts>);

struct ErrorFacts {
    kind: ErrorKind,
    /// The failure in one clause, without the request and without the cause.
    clause: String,
    /// The names that the clause and the cause show, and a clause without them.
    shows: Option<(ShownPart, String)>,
    /// True if the clause says what the cause says, so that [`source`](std::error::Error::source) begins below it.
    tells_cause: bool,
    /// True if the next attempt would fail for the same reason, so that a retry is of no use.
    is_lasting: bool,
    /// True if a token could not be had.
    #[cfg(feature = "sse")]
    lacks_token: bool,
    /// When DNS was asked, and when it is asked again, if the lookup failed.
    dns_pause: Option<Pause>,
    /// What the failure was, if more is known than the kind says.
    detail: Option<ErrorDetail>,
    /// The class of the failure, if more is known than the kind says.
    class: Option<FailureClass>,
    method: Option<Method>,
    url: Option<Url>,
    timings: Option<Timings>,
    cause: Option<Cause>,
    /// The beginning of the response's body, of an error made from a status.
    body_start: Bytes,
    /// The rest of the call's time limit.
    remaining: Option<Duration>,
}

/// A thing that texts show a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShownPart {
    Url,
    Body,
}

/// The parts of a call that the texts of a client's errors do not show.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeftOut {
    pub(crate) queries: bool,
    pub(crate) bodies: bool,
}

/// The call that an error belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// The call's deadline, and the timeout from which it was computed.
    pub(crate) until: Option<(Instant, Duration)>,
    pub(crate) left_out: LeftOut,
}

/// The step in which a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's input is not valid: the URL, the request, or a setting of the client. The attempt that failed sent nothing; an
    /// earlier one, before a redirect for example, may have: [`Error::may_have_been_processed`].
    Request,
    /// The name of the host, or of the proxy, could not be resolved.
    Resolve,
    /// No connection could be opened.
    Connect,
    /// The TLS handshake failed, or the server rejected the client's certificate or the lack of one, which with TLS 1.3 is told after the
    /// client's part of the handshake.
    Tls,
    /// The pool refused the request: too many requests wait already, or the client is being drained.
    Pool,
    /// The request could not be sent, or the head of the response could not be read.
    Exchange,
    /// A redirect could not be followed.
    Redirect,
    /// The response's body could not be read.
    Body,
    /// The response's body could not be decoded, for example as JSON.
    Decode,
    /// The connection cannot switch, or has not switched, to another protocol.
    Upgrade,
    /// The caller's own code around requests failed: a layer, a function of
    /// [`before_attempt`](crate::ClientBuilder::before_attempt), or a [`TokenSource`](crate::token::TokenSource).
    Layer,
    /// A time limit of the client passed in this phase: that of the call, the queue, DNS, connecting, TLS, the response's
    /// headers, or a body.
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
            Self::Upgrade => "upgrade",
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

    /// Returns what the failure was, if more is known than its [kind](Self::kind). The texts of errors may change; these values are for
    /// programs.
    pub fn detail(&self) -> Option<ErrorDetail> {
        self.0.detail
    }

    /// Returns the request's method; `None` if the error belongs to no request.
    pub fn method(&self) -> Option<&Method> {
        self.0.method.as_ref()
    }

    /// Returns the request's URL without credentials and fragment; `None` if there was no valid URL.
    pub fn url(&self) -> Option<&Url> {
        self.0.url.as_ref()
    }

    /// Returns the URL, to take parts of it out of the error's text.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let mut error = speeddial::Client::new().get("http://127.0.0.1:1/?token=x").send().await.unwrap_err();
    /// if let Some(url) = error.url_mut() {
    ///     url.set_query(None);
    /// }
    /// assert!(error.to_string().starts_with("GET http://127.0.0.1:1/: "));
    /// # }
    /// ```
    pub fn url_mut(&mut self) -> Option<&mut Url> {
        self.0.url.as_mut()
    }

    /// Sets the URL, without credentials and fragment.
    #[must_use]
    pub fn with_url(mut self, url: Url) -> Self {
        self.0.url = Some(redact::parsed(&url, true));
        self
    }

    /// Takes the URL off the error, if it is secret as a whole.
    #[must_use]
    pub fn without_url(mut self) -> Self {
        self.0.url = None;
        self.hide(ShownPart::Url)
    }

    /// Takes what shows a part of the URL or of the body out of the texts.
    fn hide(mut self, what: ShownPart) -> Self {
        if let Some((_, clause)) = self.0.shows.take_if(|(shown, _)| *shown == what) {
            self.0.clause = clause;
            self.0.cause = None;
        }
        self
    }

    /// Returns the error of the operating system, or about the peer, among the causes. Unlike [`source`](std::error::Error::source)
    /// it finds one that the text of this error tells.
    #[cfg(feature = "doctor")]
    pub(crate) fn io_cause(&self) -> Option<&io::Error> {
        let first: &(dyn std::error::Error + 'static) = self.0.cause.as_deref()?;
        let mut next = Some(unshared(first));
        while let Some(error) = next {
            if let Some(io) = error.downcast_ref() {
                return Some(explain::original(io));
            }
            next = error.source().map(unshared);
        }
        None
    }

    /// Returns the timings of the call until it failed; `None` if the call never began.
    pub fn timings(&self) -> Option<&Timings> {
        self.0.timings.as_ref()
    }

    /// Returns true if a time limit passed: one of the client ([`ErrorKind::Timeout`]), of the operating system (`ETIMEDOUT`), or
    /// of a layer.
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Timeout(_))
            || self.0.cause.as_deref().is_some_and(|cause| is_time_limit(cause))
    }

    /// Returns true if no connection could be opened: by DNS, TCP, TLS or a proxy, or within the time limits for these. No
    /// server acted on the attempt that failed, but one may have on one before it: [`may_have_been_processed`](Self::may_have_been_processed).
    pub fn is_connect(&self) -> bool {
        let is_connect = matches!(
            self.0.kind,
            ErrorKind::Connect | ErrorKind::Tls | ErrorKind::Timeout(Phase::Connect | Phase::Proxy | Phase::Tls)
        );
        is_connect || self.is_dns()
    }

    /// Returns true if the TLS handshake failed with the host, or with the last of its addresses that was tried.
    pub fn is_tls(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Tls | ErrorKind::Timeout(Phase::Tls))
    }

    /// Returns the addresses that were dialled for the call, each with its result, in the order they were dialled.
    pub fn dialled(&self) -> &[DialledAddress] {
        self.timings().map_or(&[], Timings::dialled)
    }

    /// Returns the number of times that the request was tried: the first one, the retries and the resends; 0 if the call never began.
    pub fn attempts(&self) -> u32 {
        self.timings().map_or(0, Timings::attempts)
    }

    /// Returns true if the name of the host, or of the proxy, could not be resolved.
    pub fn is_dns(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Resolve | ErrorKind::Timeout(Phase::Dns))
    }

    /// Returns true if the caller's input is not valid: the URL, the request, or a setting of the client. The attempt that failed
    /// sent nothing; see [`may_have_been_processed`](Self::may_have_been_processed).
    pub fn is_builder(&self) -> bool {
        self.0.kind == ErrorKind::Request
    }

    /// Returns true if the request failed before the head of its response was there: it got no connection, could not be
    /// sent, or was not answered. False for errors of the caller's input, of redirects and of bodies, and for a timeout after
    /// the first byte of the response, even in the middle of its head.
    pub fn is_request(&self) -> bool {
        match self.0.kind {
            ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Tls | ErrorKind::Pool | ErrorKind::Exchange => true,
            ErrorKind::Timeout(phase) => phase != Phase::Receive,
            _ => false,
        }
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

    /// Returns true if the connection cannot switch, or has not switched, to another protocol:
    /// [`Response::upgrade`](crate::Response::upgrade).
    pub fn is_upgrade(&self) -> bool {
        self.0.kind == ErrorKind::Upgrade
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

    /// Returns true if the next attempt would fail for the same reason: a denied address, a refused certificate, an unusable
    /// proxy, a file that is gone, a token source without a token.
    pub(crate) fn is_lasting(&self) -> bool {
        self.0.is_lasting
    }

    /// Returns when DNS was asked, and when it is asked again, if the lookup failed.
    pub(crate) fn dns_pause(&self) -> Option<Pause> {
        self.0.dns_pause
    }

    /// Returns true if a token could not be had.
    #[cfg(feature = "sse")]
    pub(crate) fn lacks_token(&self) -> bool {
        self.0.lacks_token
    }

    /// Adds the class of the failure, which says more than the kind.
    pub(crate) fn with_class(mut self, class: FailureClass) -> Self {
        self.0.class = Some(class);
        self
    }

    fn new(kind: ErrorKind, clause: String) -> Self {
        Self(Box::new(ErrorFacts {
            kind,
            clause: line(clause, SHOWN_CLAUSE),
            shows: None,
            tells_cause: false,
            is_lasting: false,
            #[cfg(feature = "sse")]
            lacks_token: false,
            dns_pause: None,
            detail: None,
            class: None,
            method: None,
            url: None,
            timings: None,
            cause: None,
            body_start: Bytes::new(),
            remaining: None,
        }))
    }

    fn with_detail(mut self, detail: impl Into<Option<ErrorDetail>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Adds a cause whose text is part of the clause.
    fn with_told_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.0.tells_cause = true;
        self.with_cause(cause)
    }

    /// Adds hyper's error, which the clause tells if `is_told`.
    fn with_hyper(mut self, error: Arc<hyper::Error>, is_told: bool) -> Self {
        match behind_http2(error) {
            Ok(io) => {
                self.0.tells_cause = false;
                self.with_cause(io)
            }
            Err(error) => {
                self.0.tells_cause = is_told;
                self.with_cause(error)
            }
        }
    }

    /// Returns the first cause that adds something to the clause.
    fn untold_cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = unshared(self.0.cause.as_deref()?);
        if self.0.tells_cause { below(cause) } else { Some(cause) }
    }

    /// Adds the method of a request whose URL is not valid.
    pub(crate) fn with_method(mut self, method: Method) -> Self {
        self.0.method = Some(method);
        self
    }

    /// Adds the URL of a connection that belongs to no call.
    pub(crate) fn of_dial(mut self, url: &Url) -> Self {
        self.0.url = Some(redact::parsed(url, false));
        self
    }

    /// Adds the request of a call that never began, unless that is known. The query is left out if `discreet`.
    pub(crate) fn of_request(mut self, method: &Method, url: &Url, discreet: bool) -> Self {
        if self.0.url.is_none() {
            self.0.method = Some(method.clone());
            self.0.url = Some(redact::parsed(url, !discreet));
        }
        self
    }

    /// Adds the call that the error belongs to, unless that is known already. The clause of a timeout then says where the
    /// time went and how much of the call's time is left.
    pub(crate) fn about(mut self, context: &Context, timings: Timings) -> Self {
        if self.0.timings.is_some() {
            return self;
        }
        self.0.method = Some(context.method.clone());
        self.0.url = Some(redact::parsed(&context.url, !context.left_out.queries));
        self.0.remaining = context.until.map(|(until, _)| until - clock::now());
        if context.left_out.bodies {
            self = self.hide(ShownPart::Body);
        }
        let limit = context.until.map(|(_, limit)| limit);
        self.with_timings(timings, limit)
    }

    /// Adds the timings. `limit` is the call's timeout.
    ///
    /// The clause of a time limit then names the phase that took most of the time, and says why. If the time ran out in another
    /// phase, it names that one as well.
    pub(crate) fn with_timings(mut self, timings: Timings, limit: Option<Duration>) -> Self {
        if let ErrorKind::Timeout(phase) = self.0.kind {
            let longest =
                Some(timings.longest_phase()).filter(|longest| timings.spent(*longest) > timings.spent(phase));
            let why = timings.why();
            let mut reasons = why.reasons().iter();
            let reason = reasons.find(|reason| reason.phase == longest.unwrap_or(phase)).or(why.main());
            let phases = match longest {
                // The program's own code is no part of the phase.
                None if reason.is_some_and(|reason| reason.cause == trace::Cause::OwnCode) => String::new(),
                Some(longest) => format!(", most of the time in phase {longest}, at last in phase {phase}"),
                None => format!(", in phase {phase}"),
            };
            self.0.clause.push_str(&phases);
            if let Some(reason) = reason {
                self.0.clause.push_str(&format!(": {reason}"));
            }
            self.0.clause.push_str(&format!(" ({}", timings.without_failure()));
            if let (Some(left), Some(limit)) = (self.0.remaining, limit)
                && !left.is_zero()
            {
                self.0.clause.push_str(&format!("; {} of {} left", exact(left), exact(limit)));
            }
            self.0.clause.push(')');
        }
        let is_of_request = !matches!(self.0.kind, ErrorKind::Decode | ErrorKind::Body);
        if is_of_request && timings.attempts() > 1 {
            self.0.clause.push_str(&format!(" (after {} attempts)", timings.attempts()));
        }
        if let Some(why) = timings.not_retried().filter(|_| is_of_request) {
            self.0.clause.push_str(&format!("; {why}"));
        }
        // A hedge that is not made is no cause of a failure.
        for (repeat, verb) in [(Budgeted::Retry, "retried"), (Budgeted::Resend, "resent")] {
            if is_of_request && timings.over_budget_at_last().contains(&repeat) {
                self.0.clause.push_str(&format!("; not {verb}, since the origin's {repeat} budget is used up"));
            }
        }
        self.0.timings = Some(timings);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorFacts { method, url, clause, .. } = &*self.0;
        match (method, url) {
            (Some(method), Some(url)) => write!(f, "{method} {url}: {clause}")?,
            (None, Some(url)) => write!(f, "{url}: {clause}")?,
            (_, None) => f.write_str(clause)?,
        }
        if f.alternate() {
            let mut next = self.untold_cause();
            while let Some(cause) = next {
                write!(f, ": {}", line(cause, SHOWN_CLAUSE))?;
                next = match cause.downcast_ref::<Self>() {
                    Some(own) => own.untold_cause(),
                    None if is_behind_http2(cause) => None,
                    None => cause.source(),
                };
            }
        }
        Ok(())
    }
}

/// For `fn main() -> Result<(), Error>` and `unwrap`, which print it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorFacts { kind, method, url, clause, cause, .. } = &*self.0;
        let mut shown = f.debug_struct("speeddial::Error");
        shown.field("kind", kind);
        if let Some(method) = method {
            shown.field("method", method);
        }
        if let Some(url) = url {
            shown.field("url", &format_args!("{url}"));
        }
        shown.field("message", clause);
        if let Some(cause) = cause {
            shown.field("source", &format_args!("{}", line(format_args!("{cause:?}"), SHOWN_CLAUSE)));
        }
        shown.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause = unshared(self.0.cause.as_deref()?);
        // Middleware looks for hyper's error, and decides by it whether to retry.
        if self.0.tells_cause && !cause.is::<hyper::Error>() { below(cause) } else { Some(cause) }
    }
}

/// Returns true if an error, or one of its causes, is a time limit that passed.
fn is_time_limit(cause: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(cause);
    while let Some(error) = next.map(unshared) {
        let is_limit = error.downcast_ref().is_some_and(Error::is_timeout)
            || error.downcast_ref().is_some_and(hyper::Error::is_timeout)
            || error.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::TimedOut)
            || error.is::<tokio::time::error::Elapsed>()
            || is_limit_of_layer(error);
        if is_limit {
            return true;
        }
        next = error.source();
    }
    false
}

fn is_limit_of_layer(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<tower::timeout::error::Elapsed>()
}

/// The class of a failed call, by which a library with retries of its own decides whether to send the request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureClass {
    /// No connection could be opened. Nothing was sent.
    NotConnected,
    /// The server cannot have acted on the request.
    Unprocessed,
    /// A time limit passed, and the server may have acted on the request.
    TimedOut,
    /// The connection broke, and the server may have acted on the request.
    Interrupted,
    /// The response is not HTTP, or its body cannot be decoded.
    Malformed,
    /// The next attempt would fail for the same reason.
    Final,
}

#[cfg(test)]
mod tests;
