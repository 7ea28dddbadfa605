//! The time of a call's requests before its last one, and of the waits between them.

use std::time::Duration;

use super::super::timings::Timings;
use super::{Cause, Found};
use crate::trace::events::causes::RepeatCause;
use crate::trace::events::phase::Phase;
use crate::trace::timings::hops::{Hop, HopEnd};
use crate::trace::timings::late::LateKind;

/// Finds what the call's earlier requests and its waits took.
pub(super) fn find(timings: &Timings, found: &mut Found) {
    let late = timings.history().late();
    for cause in [Cause::Retried, Cause::Resent, Cause::Redirected, Cause::HedgedLate] {
        let hops: Vec<_> = timings.hops().iter().filter(|hop| cause_of(hop) == cause).collect();
        if let Some(last) = hops.last() {
            let time: Duration = hops.iter().map(|hop| without_backoff(hop)).sum();
            let late = if cause == Cause::HedgedLate { late.of(Phase::Wait, LateKind::Hedge) } else { Duration::ZERO };
            let count: usize = hops.iter().map(|hop| 1 + hop.joined as usize).sum();
            found.add(cause, phase_of(&hops), time.saturating_sub(late), clause(cause, count, last));
        }
    }
    let token = timings.token_wait();
    let backoff = timings.backoff().saturating_sub(token).saturating_sub(late.of(Phase::Backoff, LateKind::Timer));
    found.add(Cause::TokenWait, Phase::Backoff, token, "were spent waiting for a token");
    let pauses = if timings.requests_before() == 1 { "the next attempt" } else { "the next attempts" };
    found.add(Cause::Backoff, Phase::Backoff, backoff, format!("were spent waiting before {pauses}"));
}

fn cause_of(hop: &Hop) -> Cause {
    match hop.end {
        HopEnd::Repeated(cause) if cause.is_retry() => Cause::Retried,
        HopEnd::Repeated(_) => Cause::Resent,
        HopEnd::Redirected(_) => Cause::Redirected,
        HopEnd::Hedged => Cause::HedgedLate,
    }
}

/// Returns a clause about requests that ended with the same cause. The last one says how.
fn clause(cause: Cause, count: usize, last: &Hop) -> String {
    if cause == Cause::HedgedLate {
        return match count {
            1 => "went to a request that was not answered, and was sent once more to another connection".to_owned(),
            _ => {
                format!("went to {count} requests that were not answered, and were sent once more to other connections")
            }
        };
    }
    let ended = match cause {
        Cause::Retried => "retried",
        Cause::Redirected => "redirected",
        _ => "sent again",
    };
    let why = match last.end {
        HopEnd::Redirected(status) | HopEnd::Repeated(RepeatCause::Status(status)) => {
            format!("status {}", status.as_u16())
        }
        HopEnd::Repeated(cause) => reason(cause).to_owned(),
        HopEnd::Hedged => String::new(),
    };
    match count {
        1 => format!("went to a request that was {ended} ({why})"),
        _ => format!("went to {count} requests that were {ended} (the last one: {why})"),
    }
}

/// Says what made another request necessary.
fn reason(cause: RepeatCause) -> &'static str {
    match cause {
        RepeatCause::NotSent => "its connection closed before any of it was sent",
        RepeatCause::Refused => "the server refused it unprocessed",
        RepeatCause::Closed => "the server closed its connection",
        RepeatCause::TimedOutIdle => "the server had closed its connection for being idle",
        RepeatCause::Unauthorized => "the server rejected its token",
        RepeatCause::ExpectationFailed => "the server does not take Expect: 100-continue",
        RepeatCause::Failed | RepeatCause::Status(_) => "it had no response",
    }
}

fn without_backoff(hop: &Hop) -> Duration {
    hop.elapsed.saturating_sub(hop.spent(Phase::Backoff))
}

/// Returns the phase in which these requests spent most of their time.
fn phase_of(hops: &[&Hop]) -> Phase {
    let spent = |phase: &Phase| hops.iter().map(|hop| hop.spent(*phase)).sum::<Duration>();
    let phases = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Backoff);
    phases.max_by_key(spent).unwrap_or(Phase::Wait)
}
