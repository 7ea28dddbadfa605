//! Resends: the request is sent again if the server cannot have acted on it, or may act on it twice.

use std::sync::Arc;

use hyper::body::Incoming;
use tokio::runtime::Handle;

use super::attempt::end::{end_of, is_cut, is_proven, is_unsolicited_408, refusal_kind};
use super::attempt::exchange::{self, Exchanged};
use super::attempt::receive;
use super::lease::checkout;
use super::next::{self, Again};
use super::state::{Call, SeldomPart};
use crate::client::body::{Dialer, OutgoingBody, Upload};
use crate::client::call::attempt::end;
use crate::client::policy::resend::{Attempt, AttemptEnd, Resend};
use crate::clock::{self, Instant};
use crate::connect::{ExchangeTimes, SendError};
use crate::error::{Error, FailureClass, Result};
use crate::pool::{EarlierConn, Lease};
use crate::trace::{Budgeted, CloseCause, NotRetried, Wants};

/// Sends the request until the server has answered it, or may have acted on it. The call has the response then.
pub(super) async fn send(call: &mut Call<'_>) -> Result<()> {
    let mut failed_on = call.single.as_ref().and_then(|single| single.failed_on);
    loop {
        call.observed = call.trace.begin_request(|| call.info());
        if call.trace.is_wanted(Wants::CALLS) || call.observed.is_some() {
            // Observers have taken some time.
            call.now = None;
        }
        let (mut lease, since) = checkout::lease(call, failed_on).await?;
        if call.drain_hold.is_some() && call.retry_policy().is_none() {
            call.drain_hold = None;
        }
        if call.request.asks_for_upgrade() {
            receive::check(call, &lease, since).await?;
        }
        let resend = match exchange::exchange(call, &mut lease, since).await? {
            Exchanged { outcome: Ok(response), upload, times } => {
                let Some(resend) = refused_as_idle(call, &mut lease, &response, &times) else {
                    return receive::receive(call, lease, response, upload, &times);
                };
                resend?
            }
            Exchanged { outcome: Err(failed), upload, times } => {
                fail(call, &mut lease, *failed, upload.as_deref(), times, since)?
            }
        };
        failed_on = Some(failed_conn(&lease));
        call.hold_drain();
        // Before the event: observers see the connection returned, then the resend.
        drop(lease);
        next::repeat(call, Again::Resend(resend)).await?;
    }
}

/// Does what [`send`] does, for calls with a hedge, a token or layers.
pub(super) fn send_boxed<'a>(call: &'a mut Call<'_>) -> SeldomPart<'a> {
    Box::pin(send(call))
}

/// Returns the resend after a 408 that answers no request, or the error that ends this attempt. Returns `None` for any other
/// response, and if a resend is not possible.
fn refused_as_idle(
    call: &mut Call<'_>,
    lease: &mut Lease<Dialer>,
    response: &http::Response<Incoming>,
    times: &ExchangeTimes,
) -> Option<Result<Resend>> {
    if !is_unsolicited_408(response, times) {
        return None;
    }
    let attempt = attempt(call, lease, AttemptEnd::IdleTimeout);
    let resend = decide(call, attempt)?;
    // Before the response is dropped: hyper closes the connection then.
    lease.retire(CloseCause::PeerAnnounced);
    lease.foresee_end();
    if leave_resend(call, resend, lease) {
        return Some(Err(Error::timed_out_idle()));
    }
    Some(Ok(resend))
}

/// Handles an exchange without a response. Returns the resend that follows, or the error that ends the call.
fn fail(
    call: &mut Call<'_>,
    lease: &mut Lease<Dialer>,
    failed: SendError<OutgoingBody>,
    upload: Option<&Upload>,
    times: ExchangeTimes,
    since: Instant,
) -> Result<Resend> {
    let body_error = upload.and_then(Upload::take_failure);
    let end = match body_error {
        // The client has ended the request, not the server.
        Some(_) => AttemptEnd::Failed,
        None => end_of(&failed, times, lease.conn()),
    };
    let attempt = attempt(call, lease, end);
    let resend = decide(call, attempt);
    let is_cut = is_cut(attempt, &failed, lease.conn().protocol());
    if lease.is_balanced() {
        end::report_broken(lease, since, attempt.end, is_cut || body_error.is_some());
    }
    if is_cut {
        lease.mark_cut();
    } else if !lease.conn().is_ready() {
        lease.retire(CloseCause::Peer);
    }
    if let Some(resend) = resend
        && !leave_resend(call, resend, lease)
    {
        return Ok(resend);
    }
    if let Some(cause) = body_error {
        return Err(Error::upload(cause));
    }
    let is_unsent = failed.unsent.is_some() || end == AttemptEnd::NotSent;
    let error = match (lease.conn().refusal(), failed.error) {
        (Some(alert), _) => Error::client_refused(refusal_kind(alert, attempt, times, lease.conn()), alert.clone()),
        (None, Some(error)) if !is_unsent => {
            Error::exchange(error, times.answered.is_some(), lease.conn().goaway_reason())
        }
        // That it was too late for another connection says more than what became of this one.
        (None, error) => match call.check_deadline(clock::now()) {
            Ok(()) => Error::closed_before_send(failed.ended_by.or(error.map(Arc::new))),
            Err(late) => late,
        },
    };
    Err(if is_unsent || end == AttemptEnd::Refused { error.with_class(FailureClass::Unprocessed) } else { error })
}

/// Counts an attempt without an answer, and returns the resend that follows it. Returns `None` if a resend is not safe,
/// if there is no time left for it, or if the origin turns too many requests away.
fn decide(call: &mut Call<'_>, attempt: Attempt) -> Option<Resend> {
    let before = call.attempts;
    let Some(resend) = call.attempts.record(attempt, fastrand::f64()) else {
        if before.lacks_body(attempt) {
            call.trace.note_not_retried(NotRetried::BodyIsGone("resent"));
        }
        return None;
    };
    if !resend.wait.is_zero() && Handle::try_current().is_err() {
        return None; // without a runtime there is no timer for the wait
    }
    let at = clock::now().checked_add(resend.wait)?;
    if call.deadline.is_some_and(|deadline| deadline.at <= at) {
        return None; // the call would time out while it waits
    }
    if resend.is_charged && !call.client.pool.may_resend(call.request.key()) {
        call.trace.note_over_budget(Budgeted::Resend);
        return None;
    }
    Some(resend)
}

/// Leaves a resend to the call around the layers, if this call is one attempt of it. Returns false if this call makes the
/// resend itself.
fn leave_resend(call: &mut Call<'_>, resend: Resend, lease: &Lease<Dialer>) -> bool {
    let Some(single) = &mut call.single else { return false };
    single.failed_on = Some(failed_conn(lease));
    single.resend = Some(resend);
    true
}

/// Returns the connection of an attempt, for the next one to avoid.
fn failed_conn(lease: &Lease<Dialer>) -> EarlierConn {
    let conn = lease.conn();
    EarlierConn { number: conn.number(), ip: conn.remote().map(|remote| remote.ip()) }
}

/// Returns true if the call, or the one around the layers, can send its body once more.
fn body_is_replayable(call: &Call<'_>) -> bool {
    call.single.as_ref().map_or_else(|| call.request.body_is_replayable(), |single| single.body_is_replayable())
}

/// Describes an attempt without an answer for the table in `policy/resend.rs`.
fn attempt(call: &Call<'_>, lease: &Lease<Dialer>, end: AttemptEnd) -> Attempt {
    let is_proven = is_proven(lease);
    Attempt {
        end,
        // A fresh HTTP/2 connection may have answered other requests, though it was dialled for this one as well.
        on_reused_connection: !lease.is_fresh() || is_proven,
        on_proven_connection: is_proven,
        is_idempotent: call.is_idempotent(),
        body_is_replayable: body_is_replayable(call),
    }
}
