//! The end of an attempt: without an answer, as the table in `policy/resend.rs` names it; and for the balance between the addresses of its
//! host, its outcome.

use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof};
use std::time::Duration;

use http::{Response, StatusCode, Version};
use hyper::body::Incoming;

use crate::client::body::{Dialer, OutgoingBody};
use crate::client::policy::framing::KeepAlive;
use crate::client::policy::resend::{Attempt, AttemptEnd};
use crate::clock::{self, Instant};
use crate::connect::{Conn, ExchangeTimes, Protocol, SendError, is_of_proxy};
use crate::error::{ErrorKind, io_cause};
use crate::pool::{Lease, Outcome};

/// Classifies the end of an attempt for which no response arrived.
pub(in crate::client::call) fn end_of(
    failed: &SendError<OutgoingBody>,
    times: ExchangeTimes,
    conn: &Conn<OutgoingBody>,
) -> AttemptEnd {
    let is_silent = times.answered.is_none() && !times.heard;
    let closed_silently = is_silent && failed.error.as_ref().is_none_or(is_closed);
    // hyper reports no GOAWAY that came before it took the request, or together with the end of the connection.
    let is_turned_away = conn.refuses_all() || (failed.unsent.is_some() && conn.is_going_away());
    let unsent = failed.unsent.is_some() || (closed_silently && conn.wrote_nothing());
    if failed.is_refused() || is_turned_away {
        AttemptEnd::Refused
    } else if conn.is_abandoned() {
        AttemptEnd::RuntimeEnded { unsent }
    } else if unsent {
        AttemptEnd::NotSent
    } else if closed_silently {
        AttemptEnd::ClosedSilently
    } else {
        AttemptEnd::Failed
    }
}

/// Returns the kind of the error for a TLS alert that rejects the client's certificate, or the lack of one. With TLS 1.3 the client's
/// part of the handshake ends before the server's: an alert in place of the first bytes of a response belongs to the handshake, and the
/// server has read no request.
pub(in crate::client::call) fn refusal_kind(
    alert: &io::Error,
    attempt: Attempt,
    times: ExchangeTimes,
    conn: &Conn<OutgoingBody>,
) -> ErrorKind {
    let is_first = !attempt.on_proven_connection && times.answered.is_none() && !times.heard;
    match conn.tls() {
        _ if !is_first => ErrorKind::Exchange,
        // The handshake with a proxy that forwards is a part of connecting.
        None if conn.forwarding().is_some() => ErrorKind::Connect,
        // With TLS 1.2 the alert is about a new handshake, which the server wanted after it had read a request. One of a proxy below the
        // server's TLS belongs to no handshake.
        Some(tls) if tls.version == "TLSv1_3" && !is_of_proxy(alert) => ErrorKind::Tls,
        _ => ErrorKind::Exchange,
    }
}

/// Returns true if the server closed a kept HTTP/1.1 connection under the request.
pub(in crate::client::call) fn is_cut(attempt: Attempt, failed: &SendError<OutgoingBody>, protocol: Protocol) -> bool {
    let is_closed = matches!(attempt.end, AttemptEnd::NotSent | AttemptEnd::ClosedSilently);
    // A timeout means that the path is dead: the server has closed nothing.
    let cause = failed.cause().and_then(io_cause);
    let has_timed_out = cause.is_some_and(|cause| cause.kind() == TimedOut);
    is_closed && !has_timed_out && attempt.on_reused_connection && protocol == Protocol::Http1
}

/// Returns true if the server has answered requests on the connection before.
pub(in crate::client::call) fn is_proven(lease: &Lease<Dialer>) -> bool {
    match lease.conn().protocol() {
        // An HTTP/1.1 connection is returned only after a whole response.
        Protocol::Http1 => lease.requests() > 0,
        Protocol::Http2 => lease.conn().has_answered(),
    }
}

/// Returns true if an error means that the connection was closed or lost.
fn is_closed(error: &hyper::Error) -> bool {
    // rustls reports UnexpectedEof if the peer closes without close_notify.
    let closed = [BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof];
    error.is_incomplete_message()
        || error.is_timeout()
        || error.is_canceled()
        || error.is_user()
        || io_cause(error).is_some_and(|error| closed.contains(&error.kind()))
}

/// The longest time between the start of a request and a 408 that crosses it.
const CROSSES_WITHIN: Duration = Duration::from_millis(100);

/// Returns true if a 408 answers no request: servers send one before they close an idle connection (RFC 9110 §15.5.9),
/// and a request may cross it. If the connection stays open, or the 408 comes later, it is the service's answer to the request.
#[inline]
pub(in crate::client::call) fn is_unsolicited_408(response: &http::Response<Incoming>, times: &ExchangeTimes) -> bool {
    let crosses = || times.begun.zip(times.answered).is_none_or(|(begun, answered)| answered - begun < CROSSES_WITHIN);
    response.status() == StatusCode::REQUEST_TIMEOUT
        && response.version() < Version::HTTP_2
        && crosses()
        && (response.version() < Version::HTTP_11 || KeepAlive::of(response.headers()).is_last)
}

/// Reports how a request ended that has had its connection since `since`: by its response, or without one. Then `is_late` is true if
/// a time limit passed.
#[cold]
pub(in crate::client::call) fn report(
    lease: &mut Lease<Dialer>,
    since: Instant,
    times: &ExchangeTimes,
    response: Option<&Response<Incoming>>,
    is_late: bool,
) {
    let outcome = match response {
        Some(response) if is_failure_of_server(response) => Outcome::Failed,
        Some(_) => Outcome::Answered,
        None if is_late => Outcome::Failed,
        None => Outcome::Cancelled,
    };
    let from = times.begun.unwrap_or(since);
    let until = times.answered.unwrap_or_else(clock::now);
    // The time that the server takes, without that for which the request is sent.
    let sent = times.sent.filter(|sent| (from..until).contains(sent)).unwrap_or(from);
    lease.report(until, until - sent, outcome);
}

/// Reports a request that the connection ended in place of an answer. It is no failure of the server if the server did not see the
/// request, or if the client ended it.
#[cold]
pub(in crate::client::call) fn report_broken(
    lease: &mut Lease<Dialer>,
    since: Instant,
    end: AttemptEnd,
    is_excused: bool,
) {
    let is_failure = matches!(end, AttemptEnd::Failed | AttemptEnd::ClosedSilently) && !is_excused;
    let now = clock::now();
    lease.report(now, now - since, if is_failure { Outcome::Failed } else { Outcome::Cancelled });
}

/// Returns true if a response says that the server failed: a 5xx, or the gRPC status UNAVAILABLE in the place of a response.
fn is_failure_of_server(response: &Response<Incoming>) -> bool {
    let is_unavailable = || response.headers().get("grpc-status").is_some_and(|status| status == "14");
    response.status().is_server_error() || is_unavailable()
}
