//! Hedging: a request whose answer is late is sent once more, on another connection, and the first answer counts.
//!
//! Both attempts are made by the same task, so whatever ends the call ends both. The second one is a call of its own: it has
//! a clone of the request, a count of attempts that allows no resend, and a trace with timings of its own. If its answer
//! counts, its trace becomes that of the call.

use std::pin::Pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use http::StatusCode;

use super::call_trace::CallTrace;
use super::state::{Call, SeldomPart};
use super::{next, resend, token};
use crate::client::body::Body;
use crate::client::inner::Inner;
use crate::client::policy::hedge::HedgePolicy;
use crate::client::response::answer::Answer;
use crate::clock;
use crate::error::Result;
use crate::pool::EarlierConn;
use crate::sync::lock;
use crate::trace::{Budgeted, HedgeOutcome, LastLease, Trace};

/// The shortest time after which it is checked if the first attempt has its connection.
const SHORTEST_RECHECK: Duration = Duration::from_millis(1);

/// Sends the request, and once more if the policy of the request, its host or the client says so. The call has the response then.
pub(super) async fn send(call: &mut Call<'_>) -> Result<()> {
    match call.setting(|options| options.hedges.as_ref()) {
        Some(policy) if policy.is_active() && may_be_sent_twice(call) => {
            let policy = policy.clone();
            send_hedged(call, policy).await
        }
        _ if call.has_middleware() => token::send(call).await,
        _ => resend::send(call).await,
    }
}

/// Returns true if the request may be sent a second time while it waits for its answer.
fn may_be_sent_twice(call: &Call<'_>) -> bool {
    let request = &call.request;
    let is_long_lived = request.asks_for_upgrade() || request.options.is_quiet_stream();
    call.is_idempotent() && request.body.as_ref().is_none_or(Body::is_replayable) && !is_long_lived
}

fn send_hedged<'a>(call: &'a mut Call<'_>, policy: HedgePolicy) -> SeldomPart<'a> {
    Box::pin(send_measured(call, policy))
}

/// Sends a request that may be hedged, and measures how long its answer takes.
async fn send_measured(call: &mut Call<'_>, policy: HedgePolicy) -> Result<()> {
    let client = call.client;
    let origin = call.request.key().origin.clone();
    let trace = Trace::clone(&call.trace);
    let wait = lock(&client.hedging).begin(clock::now(), &policy, &origin);
    let result = match wait.and_then(|wait| Some((next::hedge(call)?, wait))) {
        Some((second, wait)) => send_twice(call, second, wait).await,
        None => token::send(call).await,
    };
    // Also if the second attempt won: the first one would have taken longer still.
    if let (Ok(_), Some(lease)) = (&result, trace.last_lease()) {
        let now = clock::now();
        lock(&client.hedging).record(now, &policy, &origin, now - lease.since);
    }
    result
}

/// Sends the request. If it has no answer after `wait`, makes the second attempt as well, if the pool and the budget have room
/// for it.
async fn send_twice<'a>(call: &mut Call<'a>, mut second: Call<'a>, wait: Duration) -> Result<()> {
    let trace = Trace::clone(&call.trace);
    let second_trace;
    let mut sending_second;
    let won = {
        let mut first = token::send(call);
        let lease = match send_until_late(second.client, &mut first, &trace, wait).await {
            Either::Left(result) => return result,
            Either::Right(lease) => lease,
        };
        let key = second.request.key();
        let avoid = EarlierConn { number: lease.connection, ip: lease.remote.map(|remote| remote.ip()) };
        if !second.client.pool.has_room_for_hedge(key, avoid) {
            return first.await;
        }
        let now = clock::now();
        if !lock(&second.client.hedging).withdraw(now, &key.origin) {
            trace.note_over_budget(Budgeted::Hedge);
            return first.await;
        }
        let after = now - lease.since;
        second_trace = trace.begin_hedge(now, after, after.saturating_sub(wait));
        second.trace = CallTrace::of_attempt(second_trace.clone());
        second.avoid = Some(avoid);
        let deadline = second.deadline.map(|deadline| deadline.at);
        sending_second = Box::pin(async move {
            let result = token::send(&mut second).await;
            result.map(|()| second.request)
        });
        let ended = match select(first.as_mut(), sending_second.as_mut()).await {
            Either::Left((result, _)) => Either::Left(result),
            Either::Right((result, _)) => Either::Right(result),
        };
        match ended {
            Either::Left(Ok(())) => {
                second_trace.silence();
                // Its times are recorded, and then it ends.
                drop(sending_second);
                trace.end_hedge(HedgeOutcome::Lost);
                return Ok(());
            }
            // The second attempt goes on.
            Either::Left(Err(error)) => {
                trace.note_failure(error.kind().as_str());
                None
            }
            Either::Right(Ok(request)) if !is_refusal(request.answer()) => {
                trace.silence();
                Some(request)
            }
            Either::Right(result) => {
                if let Err(error) = &result {
                    second_trace.note_failure(error.kind().as_str());
                }
                // The call ends at its deadline, and its hedge with it, unless the first attempt is answered right now.
                let is_late = result.is_err() && deadline.is_some_and(|deadline| deadline <= clock::now());
                if !is_late {
                    trace.end_hedge(HedgeOutcome::Failed);
                }
                if let Ok(mut request) = result {
                    request.drain_answer();
                }
                let result = first.await;
                if is_late && result.is_ok() {
                    trace.end_hedge(HedgeOutcome::Lost);
                }
                return result;
            }
        }
    };
    // The first attempt has been dropped: its connection is closed, or its stream reset, and its times are recorded.
    trace.supersede_request();
    second_trace.take_over(&trace);
    call.trace.hand_over();
    call.trace = CallTrace::new(second_trace);
    let result = match won {
        Some(request) => Ok(request),
        None => sending_second.await,
    };
    call.trace.end_hedge(if result.is_ok() { HedgeOutcome::Won } else { HedgeOutcome::Failed });
    // With its response.
    call.request = result?;
    Ok(())
}

/// Waits for the first attempt until it has had its connection for `wait`. Returns its result if it is over by then, and
/// its connection otherwise.
async fn send_until_late(
    client: &Inner,
    first: &mut SeldomPart<'_>,
    trace: &Trace,
    wait: Duration,
) -> Either<Result<()>, LastLease> {
    let mut now = clock::now();
    loop {
        let lease = trace.last_lease();
        let late_at = match lease {
            Some(lease) => lease.since.checked_add(wait),
            // Without a connection yet, it cannot be late before this time.
            None => now.checked_add(wait.max(SHORTEST_RECHECK)),
        };
        if let (Some(lease), Some(late_at)) = (lease, late_at)
            && late_at <= now
        {
            return Either::Right(lease);
        }
        if let Some(result) = client.deadlines.before(late_at, Pin::new(&mut *first)).await {
            return Either::Left(result);
        }
        now = clock::now();
    }
}

/// Returns true for an answer that does not end the wait for the first attempt: the server has no time, or has failed.
fn is_refusal(answer: &Answer) -> bool {
    answer.status() == StatusCode::TOO_MANY_REQUESTS || answer.status().is_server_error()
}
