//! Retries: a call is made once more because the user's policy says so.

use std::time::Duration;

use http::StatusCode;
use tokio::runtime::Handle;

use super::resend;
use super::state::Call;
use crate::client::answer::Answer;
use crate::client::retry_policy::{CallSoFar, Outcome};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::trace::{Phase, RepeatCause};

/// A retry that is going to be made.
struct Retry {
    cause: RepeatCause,
    /// The wait before the retry.
    wait: Duration,
}

/// Sends the request, and retries it as the client's policy says.
pub(super) async fn send(call: &mut Call<'_>) -> Result<Answer> {
    // A failed attempt returns its connection before it is known if there is a retry, and a drain must not end in
    // between.
    if call.client.defaults.retries.is_some() {
        call.hold_drain();
    }
    loop {
        let result = resend::send(call).await;
        let Some(retry) = next_retry(call, &result) else { return result };
        call.retries += 1;
        // Before the event: observers see the connection returned, then the retry.
        match result {
            Ok(answer) => answer.drain(),
            Err(error) => drop(error),
        }
        call.repeat(retry.cause, retry.wait).await?;
    }
}

/// Returns the retry that the policy wants, if the deadline and the budget allow it.
fn next_retry(call: &Call<'_>, result: &Result<Answer>) -> Option<Retry> {
    let retries = call.client.defaults.retries.as_ref()?;
    if Handle::try_current().is_err() {
        return None; // without a runtime there is no timer for the wait
    }
    if result.is_err() && call.attempts.are_used_up() {
        return None; // the resends have failed as often as the call may
    }
    let (outcome, cause) = match result {
        Ok(answer) => {
            let status: StatusCode = answer.status();
            (Outcome::Status(status, answer.headers()), RepeatCause::Status(status))
        }
        Err(error) => (outcome_of(error), RepeatCause::Failed),
    };
    let so_far = CallSoFar {
        attempts: 1 + call.retries + call.attempts.charged_resends(),
        is_idempotent: call.is_idempotent(),
        is_replayable: call.request.body_is_replayable(),
    };
    let wait = retries.policy.wait(outcome, so_far, fastrand::f64(), clock::wall())?;
    let now = clock::now();
    let at = now.checked_add(wait)?;
    if call.deadline.is_some_and(|deadline| deadline.at <= at) {
        return None; // the call would time out while it waits
    }
    if !retries.withdraw(now) {
        return None; // too many calls are retried already
    }
    Some(Retry { cause, wait })
}

/// Classifies an error for the retry policy.
fn outcome_of(error: &Error) -> Outcome<'_> {
    match error.kind() {
        _ if error.is_lasting() => Outcome::Final,
        ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Tls => Outcome::NotSent,
        ErrorKind::Timeout(Phase::Dns | Phase::Connect | Phase::Proxy | Phase::Tls) => Outcome::NotSent,
        ErrorKind::Timeout(Phase::Send | Phase::Wait | Phase::Receive) | ErrorKind::Exchange => Outcome::Unknown,
        // `ErrorKind::Pool` and a timeout in the queue among them: a retry would make a long queue longer. In `Phase::Backoff`
        // only the call's deadline can pass, so there is no time for another attempt.
        _ => Outcome::Final,
    }
}
