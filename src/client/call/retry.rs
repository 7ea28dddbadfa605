//! Retries: a call is made once more because the user's policy says so.

use std::time::Duration;

use tokio::runtime::Handle;

use super::hedge;
use super::next::{self, Again};
use super::state::Call;
use crate::client::policy::retry::{CallSoFar, Outcome, ReqRep, RetryPolicy};
use crate::client::response::answer::Answer;
use crate::clock;
use crate::dns::ResolveErrorKind;
use crate::error::{Error, ErrorDetail, ErrorKind, FailureClass, Result};
use crate::sync::lock;
use crate::trace::{Budgeted, NotRetried, Phase, RepeatCause};

/// A retry that is going to be made.
struct Retry {
    cause: RepeatCause,
    /// The wait before the retry.
    wait: Duration,
}

/// Sends the request, and retries it as the request's or the client's policy says. The call has the response then.
pub(super) async fn send(call: &mut Call<'_>) -> Result<()> {
    // A failed attempt returns its connection before it is known if there is a retry, and a drain must not end in
    // between.
    if call.retry_policy().is_some() {
        call.hold_drain();
    }
    loop {
        let result = hedge::send(call).await;
        let Some(retry) = next_retry(call, &result) else { return result };
        // Before the event: observers see the connection returned, then the retry.
        match result {
            Ok(()) => call.request.drain_answer(),
            Err(error) => call.trace.note_failure(error.kind().as_str()),
        }
        next::repeat(call, Again::Retry(retry.cause, retry.wait)).await?;
    }
}

/// Returns the retry that the policy wants, if the deadline and the budget allow it.
fn next_retry(call: &Call<'_>, result: &Result<()>) -> Option<Retry> {
    let policy = call.retry_policy()?;
    if Handle::try_current().is_err() {
        return None; // without a runtime there is no timer for the wait
    }
    if result.is_err() && call.attempts.are_used_up() {
        return None; // the resends have failed as often as the call may
    }
    if !policy.covers(call.request.url.host_str().unwrap_or_default()) {
        return None; // the policy is for another host
    }
    let cause = match result {
        Ok(()) => RepeatCause::Status(call.request.answer().status()),
        Err(_) => RepeatCause::Failed,
    };
    let outcome = match result {
        Err(error) if error.is_lasting() || is_known_not_to_exist(error) => return None,
        _ if policy.has_classifier() => classified(call, policy, result),
        Ok(()) => {
            let answer = call.request.answer();
            policy.outcome_of(answer.status(), answer.headers())
        }
        Err(error) => outcome_of(error),
    };
    if matches!(outcome, Outcome::Final) {
        return None;
    }
    let so_far = CallSoFar {
        attempts: 1 + call.retries + call.attempts.charged_resends(),
        is_idempotent: call.is_idempotent(),
        is_replayable: call.request.body_is_replayable(),
    };
    // Before DNS is asked again, an attempt would meet the same failure.
    let pause = result.as_ref().err().and_then(Error::dns_pause);
    let again_in = pause.map_or(Duration::ZERO, |pause| pause.again_in);
    let wait = match policy.wait(outcome, so_far, fastrand::f64(), clock::wall()) {
        Ok(wait) => wait.max(again_in),
        Err(why) => {
            why.into_iter().for_each(|why| call.trace.note_not_retried(why));
            return None;
        }
    };
    let now = clock::now();
    let at = now.checked_add(wait)?;
    if call.deadline.is_some_and(|deadline| deadline.at <= at) {
        call.trace.note_not_retried(NotRetried::NoTime { wait });
        return None;
    }
    // A failure that the cache has remembered was no load on anything.
    let is_free = pause.is_some_and(|pause| pause.asked_ago.is_some());
    if !is_free && !lock(&call.client.retry_budgets).withdraw(&call.request.key().origin, policy, now) {
        // Too many calls to the origin are retried already.
        call.trace.note_over_budget(Budgeted::Retry);
        return None;
    }
    Some(Retry { cause, wait })
}

/// Returns true if it is remembered that the host's name does not exist, so that DNS would not be asked for a retry.
fn is_known_not_to_exist(error: &Error) -> bool {
    error.detail() == Some(ErrorDetail::Lookup(ResolveErrorKind::NxDomain))
        && error.dns_pause().is_some_and(|pause| !pause.again_in.is_zero())
}

/// Asks the policy's classifier about an outcome.
fn classified<'a>(call: &'a Call<'_>, policy: &RetryPolicy, result: &Result<()>) -> Outcome<'a> {
    let request = &call.request;
    let answer = result.as_ref().map(|()| request.answer());
    let uri = request.url.as_str().parse().unwrap_or_default();
    let asked = ReqRep { method: &request.method, uri: &uri, result: answer.map(Answer::status) };
    if policy.is_retryable(asked) { Outcome::Retryable(answer.ok().map(Answer::headers)) } else { Outcome::Final }
}

/// Classifies an error for the retry policy.
fn outcome_of(error: &Error) -> Outcome<'_> {
    match (error.kind(), error.class_of_last_attempt()) {
        // A retry would make a long queue longer.
        (ErrorKind::Pool | ErrorKind::Timeout(Phase::Queue), _) => Outcome::Final,
        // Only the call's deadline can pass in it, so there is no time for another attempt.
        (ErrorKind::Timeout(Phase::Backoff), _) => Outcome::Final,
        (_, FailureClass::NotConnected | FailureClass::Unprocessed) => Outcome::NotSent,
        (_, FailureClass::TimedOut | FailureClass::Interrupted | FailureClass::Malformed) => Outcome::Unknown,
        (_, FailureClass::Final) => Outcome::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::LeaseError;
    use crate::trace::Limit;

    #[test]
    fn an_error_is_retried_by_its_class() {
        let timeout = |phase| Error::timeout(phase, Duration::from_secs(1));
        for phase in [Phase::Dns, Phase::Connect, Phase::Proxy, Phase::Tls] {
            assert_eq!(outcome_of(&timeout(phase)), Outcome::NotSent, "{phase}");
        }
        for phase in [Phase::Send, Phase::Wait, Phase::Receive] {
            assert_eq!(outcome_of(&timeout(phase)), Outcome::Unknown, "{phase}");
        }
        assert_eq!(outcome_of(&Error::closed_before_send(None)), Outcome::Unknown);
        let refused = Error::closed_before_send(None).with_class(FailureClass::Unprocessed);
        assert_eq!(outcome_of(&refused), Outcome::NotSent, "the server said that it did not process it");
        assert_eq!(
            outcome_of(&refused.behind_another_attempt()),
            Outcome::Unknown,
            "but an attempt of a layer before it"
        );
    }

    #[test]
    fn a_request_that_the_queue_or_the_deadline_ends_is_not_retried() {
        let timeout = |phase| Error::timeout(phase, Duration::from_secs(1));
        let draining = Error::no_lease(LeaseError::Refused(Limit::Draining));
        for error in [timeout(Phase::Queue), timeout(Phase::Backoff), draining, Error::refused_request("no")] {
            assert_eq!(outcome_of(&error), Outcome::Final, "{error}");
        }
    }
}
