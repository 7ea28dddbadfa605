//! The outcome of a request on its connection, for the balance between the addresses of its host.

use http::Response;
use hyper::body::Incoming;

use crate::client::body::Dialer;
use crate::client::policy::resend::AttemptEnd;
use crate::clock::{self, Instant};
use crate::connect::ExchangeTimes;
use crate::pool::{Lease, Outcome};

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
