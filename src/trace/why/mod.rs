//! The reasons why a call took its time, as values and in words.
//!
//! This file finds what the call's earlier requests and waits took, `opening.rs` the way to its connection, `exchanging.rs` the exchange
//! on it. Then it picks what is worth saying.

mod causes;
mod exchanging;
mod opening;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use super::text::span;
use crate::trace::events::RepeatCause;
use crate::trace::events::event::Phase;
use crate::trace::timings::Timings;
use crate::trace::timings::hops::{Hop, HopEnd};
use crate::trace::timings::late::LateKind;

pub use causes::Cause;

/// The reasons why a call took its time. `Display` is one or two sentences.
///
/// Made by [`Timings::why`].
#[derive(Debug, Clone, PartialEq)]
pub struct Why {
    reasons: Vec<Reason>,
    /// The index of the reason that the second sentence is made of.
    second: Option<usize>,
}

/// One reason why a call took its time. `Display` is a sentence without a full stop.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Reason {
    /// The cause, for programs.
    pub cause: Cause,
    /// The phase in which the time was spent.
    pub phase: Phase,
    /// The time that the cause took. Times of several reasons of a call may overlap.
    pub time: Duration,
    /// The part of the call's total time, from 0 to 1.
    pub share: f64,
    /// Advice for the caller, if something can be done about it. None for a call that took less than 10 ms, which is not slow.
    pub advice: Option<&'static str>,
    clause: String,
}

/// The least part of a call's time that is a reason.
const LEAST_SHARE: f64 = 0.05;
/// The least part of a call's time for which a second sentence is written.
const LEAST_SECOND_SHARE: f64 = 0.2;
/// The least time of a call from which on advice is given. A shorter call is not slow, wherever its time went.
const SLOW: Duration = Duration::from_millis(10);

impl Why {
    /// Returns the reasons, the one that took most of the time first. Those that explain another one more closely, such as the
    /// cause why a connection was new, come last. Empty if no time has passed.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }

    /// Returns the reason that took most of the time; `None` if no time has passed.
    pub fn main(&self) -> Option<&Reason> {
        self.reasons.first()
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(main) = self.main() else { return f.write_str("No time has passed.") };
        write!(f, "{}.", capitalized(&main.to_string()))?;
        match self.second {
            Some(second) => write!(f, " {}.", capitalized(&self.reasons[second].to_string())),
            None => Ok(()),
        }
    }
}

/// Returns a clause as the beginning of a sentence.
fn capitalized(clause: &str) -> String {
    let mut letters = clause.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clause)?;
        match self.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl Timings {
    /// Returns the reasons why the call took its time, each from what was measured. Also for a call that is not over, or has failed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let error = speeddial::Client::new().get("http://127.0.0.1:1/").send().await.unwrap_err();
    /// let why = error.timings().expect("the call began").why();
    /// println!("{why}");
    /// for reason in why.reasons() {
    ///     println!("{} {:.0} %", reason.cause, 100.0 * reason.share);
    /// }
    /// # }
    /// ```
    pub fn why(&self) -> Why {
        let total = self.total();
        if total.is_zero() {
            return Why { reasons: Vec::new(), second: None };
        }
        let mut found = Found::default();
        exchanging::find_own_code(self, &mut found);
        exchanging::find_late(self, &mut found);
        find(self, &mut found);
        opening::find(self, &mut found);
        exchanging::find(self, &mut found);
        found.choose(total)
    }
}

/// The parts of a call that took time.
#[derive(Debug, Default)]
struct Found {
    parts: Vec<TimePart>,
}

/// A part of a call's time with its cause.
#[derive(Debug)]
struct TimePart {
    cause: Cause,
    phase: Phase,
    time: Duration,
    clause: Clause,
    /// The cause of the part that this one explains more closely, and whose time is its own as well.
    explains: Option<Cause>,
    /// The advice for the caller.
    advice: Option<&'static str>,
}

/// The words about a part of a call's time.
#[derive(Debug)]
enum Clause {
    /// The words after "… of … ", as in "820 ms of 900 ms were spent in the queue".
    AfterTime(String),
    /// The subject and the rest of a clause with the time in between, as in "the server took 410 ms of 430 ms".
    AroundTime(String, String),
    /// A clause without a time.
    Whole(String),
}

impl Found {
    /// Adds a part whose clause goes on after "… of … ".
    fn add(&mut self, cause: Cause, phase: Phase, time: Duration, after: impl Into<String>) {
        self.push(cause, phase, time, Clause::AfterTime(after.into()));
    }

    /// Adds a part whose time stands between `before` and `after`.
    fn add_around(
        &mut self,
        cause: Cause,
        phase: Phase,
        time: Duration,
        before: impl Into<String>,
        after: impl Into<String>,
    ) {
        self.push(cause, phase, time, Clause::AroundTime(before.into(), after.into()));
    }

    /// Adds what explains the part with the cause `explained` more closely.
    fn explain(&mut self, explained: Cause, cause: Cause, phase: Phase, time: Duration, clause: impl Into<String>) {
        let clause = Clause::Whole(clause.into());
        self.parts.push(TimePart { cause, phase, time, clause, explains: Some(explained), advice: cause.advice() });
    }

    fn push(&mut self, cause: Cause, phase: Phase, time: Duration, clause: Clause) {
        self.parts.push(TimePart { cause, phase, time, clause, explains: None, advice: cause.advice() });
    }

    /// Replaces the advice of the part that was added last.
    fn advise(&mut self, advice: &'static str) {
        if let Some(last) = self.parts.last_mut() {
            last.advice = Some(advice);
        }
    }

    /// Picks the reasons: the part that took most, what explains it, and other parts that are worth a word.
    fn choose(mut self, total: Duration) -> Why {
        let share = |time: Duration| time.as_secs_f64() / total.as_secs_f64();
        // A stable sort: of two parts that took the same, that of the earlier phase comes first.
        self.parts.sort_by_key(|part| (part.explains.is_some(), std::cmp::Reverse(part.time)));
        let longest = self.parts.first().map_or(Duration::ZERO, |part| part.time);
        self.parts.retain(|part| !part.time.is_zero() && (part.time == longest || share(part.time) >= LEAST_SHARE));
        let explains = |part: &TimePart| part.explains == Some(self.parts[0].cause);
        let is_long = |part: &TimePart| part.explains.is_none() && share(part.time) >= LEAST_SECOND_SHARE;
        let others = || self.parts.iter().enumerate().skip(1);
        let second = others().find(|(_, part)| explains(part)).or_else(|| others().find(|(_, part)| is_long(part)));
        let second = second.map(|(index, _)| index);
        let reasons = self.parts.into_iter().map(|part| part.into_reason(total)).collect();
        Why { reasons, second }
    }
}

impl TimePart {
    fn into_reason(self, total: Duration) -> Reason {
        let Self { cause, phase, time, clause, advice, .. } = self;
        let advice = advice.filter(|_| total >= SLOW);
        let of_total = match time == total {
            true => format!("all {}", span(total)),
            false => format!("{} of {}", span(time), span(total)),
        };
        let clause = match clause {
            Clause::AfterTime(after) => format!("{of_total} {after}"),
            Clause::AroundTime(before, after) => format!("{before} {of_total}{after}"),
            Clause::Whole(clause) => clause,
        };
        let share = time.as_secs_f64() / total.as_secs_f64();
        Reason { cause, phase, time, share, advice, clause }
    }
}

/// Finds what the call's earlier requests and its waits took.
fn find(timings: &Timings, found: &mut Found) {
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
