//! The next request of a call. Each function here is a door from one request to the next one, and nothing else makes one.
//!
//! | door | what leads to it |
//! |---|---|
//! | `redirect` | a response leads to another URL |
//! | `repeat` | the same request is sent again: [`Again`] |
//! | `hedge` | the same request is sent beside itself |
//! | `attempt` | layers around attempts get the request |
//! | `reconnect` | a stream of events is opened again |
//!
//! What goes along through each door is the table in `tests/client/doors.rs`.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, Uri};

use super::current_request::CurrentRequest;
use super::state::Call;
use crate::client::body::Body;
use crate::client::policy::redirect::{self, NextRequest};
use crate::client::policy::resend::{Attempts, Resend};
use crate::client::request::{Request, takes_additions};
use crate::client::response::call_data::BoxedRequest;
use crate::clock::{self, Instant};
use crate::error::Result;
use crate::trace::{Event, RepeatCause, RequestInfo, Trace};

/// A redirect that is followed.
pub(super) struct Followed {
    pub(super) status: StatusCode,
    pub(super) next: NextRequest,
    /// The path and query of the next request.
    pub(super) target: Uri,
    pub(super) keeps_body: bool,
}

/// The reason why the same request is sent again.
pub(super) enum Again {
    /// The server refused its `Expect`, which it has no more.
    Expectation,
    /// The server rejected its token, and there is a newer one. The call has waited for that since then.
    Token(Instant),
    /// The user's policy wants it, after this wait.
    Retry(RepeatCause, Duration),
    /// The server did nothing about it.
    Resend(Resend),
}

/// Turns a call to the request that a redirect leads to, and frees the connection of the last one as soon as possible.
pub(super) fn redirect(call: &mut Call<'_>, followed: Followed) {
    let Followed { status, next, target, keeps_body } = followed;
    let same_origin = next.origin == call.request.key().origin;
    redirect::strip(&mut call.request.headers, keeps_body, same_origin);
    if !same_origin {
        change_defaults(call, &next);
    }
    if call.client.defaults.sends_referer {
        let request = &mut *call.request;
        redirect::set_referer(&mut request.headers, &request.url, &next.url);
    }
    let asked = RequestInfo {
        method: next.method.clone(),
        origin: next.origin.clone(),
        target: call.client.defaults.shown(target.clone()),
        extensions: call.request.extensions.clone(),
    };
    call.request.redirect(next, target, keeps_body);
    if !same_origin {
        call.deposit_retry(clock::now());
    }
    call.trace.emit(Event::Redirected { status, to: Arc::new(asked) });
    call.attempts = Attempts::default();
    call.hold_drain();
    call.request.leave_answer();
}

/// Gives the request the defaults of the origin that it goes to, in place of those of the origin that it leaves.
fn change_defaults(call: &mut Call<'_>, next: &NextRequest) {
    let Some(defaults) = call.client.call_defaults.of(&next.origin) else { return };
    let left = call.own_defaults.replace(defaults.clone());
    if left.as_ref().is_some_and(|left| Arc::ptr_eq(left, &defaults)) {
        return;
    }
    let none = HeaderMap::new();
    let (left_own, left_all) = match &left {
        Some(left) => (&left.host_headers, &left.headers),
        None => (&none, &call.client.defaults.headers),
    };
    call.request.remove_added();
    if takes_additions(&next.method) {
        let entered = (&defaults.host_headers, &defaults.headers);
        redirect::change_host(&mut call.request.headers, (left_own, left_all), entered);
    }
    call.offer_codings();
}

/// Turns a call to the same request again. Tells observers of it, and waits before it as long as there is to be waited.
///
/// # Errors
/// The call's deadline passed meanwhile.
pub(super) async fn repeat(call: &mut Call<'_>, again: Again) -> Result<()> {
    call.hold_drain();
    let (cause, wait) = match again {
        Again::Retry(cause, wait) => {
            call.retries += 1;
            (cause, wait)
        }
        Again::Resend(resend) => {
            call.attempts.count_resend(resend);
            (resend.cause, resend.wait)
        }
        Again::Token(since) => {
            call.request.leave_answer();
            // The request was over when the wait for the token began.
            call.trace.emit_at(since, Event::Repeated { cause: RepeatCause::Unauthorized });
            call.trace.emit(Event::BackoffEnd);
            return Ok(());
        }
        Again::Expectation => {
            // Before the event: observers see the connection returned, then the next attempt.
            call.request.leave_answer();
            (RepeatCause::ExpectationFailed, Duration::ZERO)
        }
    };
    let now = clock::now();
    call.trace.emit_at(now, Event::Repeated { cause });
    if !wait.is_zero() {
        call.back_off(now, wait).await?;
    }
    Ok(())
}

/// Makes a call of the same request, to be sent beside it once; `None` if its body cannot be sent twice.
pub(super) fn hedge<'a>(call: &Call<'a>) -> Option<Call<'a>> {
    let request = BoxedRequest::new(call.request.try_clone()?);
    let request = CurrentRequest::new(request, call.request.decompression);
    let mut second = Call::for_attempt(call.client, request, Trace::clone(&call.trace), call.deadline);
    second.attempts = Attempts::without_resends();
    second.authorization = call.authorization.clone();
    Some(second)
}

/// Makes the request of an attempt that layers are around, with these headers and this body.
pub(super) fn attempt(call: &Call<'_>, headers: HeaderMap, body: Body) -> Request {
    call.request.with(headers, body)
}

/// Makes the request that opens a stream of events again, behind the event with this ID.
#[cfg(feature = "sse")]
pub(in crate::client) fn reconnect(request: &Request, last_event_id: &str) -> BoxedRequest {
    const LAST_EVENT_ID: http::HeaderName = http::HeaderName::from_static("last-event-id");
    let mut request = request.try_clone().expect("construction refuses streams");
    if !last_event_id.is_empty() {
        let id = http::HeaderValue::from_bytes(last_event_id.as_bytes());
        request.headers.insert(LAST_EVENT_ID, id.expect("the parser leaves out what no header can have"));
    }
    BoxedRequest::new(request)
}
