//! The time of the exchange itself: sending the request, waiting for the answer, receiving it.

use std::time::Duration;

use super::super::server_timing::ServerTiming;
use super::super::timings::Timings;
use super::{Cause, Found};
use crate::trace::events::event::Phase;
use crate::trace::quota::Stopped;
use crate::trace::text::{size, span};
use crate::trace::timings::late::LateKind;

/// Finds what the exchange of the last request took.
pub(super) fn find(timings: &Timings, found: &mut Found) {
    find_send(timings, timings.spent_on(Phase::Send), found);
    find_wait(timings, timings.spent_on(Phase::Wait), found);
    find_receive(timings, timings.spent_on(Phase::Receive), found);
}

fn find_send(timings: &Timings, time: Duration, found: &mut Found) {
    let starved = timings.history().body_starved().min(time);
    let before = "the program took";
    found.add_around(Cause::RequestBodyLate, Phase::Send, starved, before, " to provide the request's body");
    let (time, bytes) = (time - starved, timings.sent_bytes());
    if bytes == 0 {
        return found.add_around(Cause::SendSlow, Phase::Send, time, "sending the request took", "");
    }
    let what = format!(" to take {} of the request{}", size(bytes), rate(bytes, time));
    found.add_around(Cause::SendSlow, Phase::Send, time, "the server took", what);
}

fn find_wait(timings: &Timings, time: Duration, found: &mut Found) {
    let has_answered = timings.status().is_some();
    if has_answered {
        found.add_around(Cause::ServerSlow, Phase::Wait, time, "the server took", " to answer");
    } else {
        found.add(Cause::NoAnswer, Phase::Wait, time, "were spent waiting for an answer that had not come");
    }
    if let Some((part, duration)) = longest_part(timings.server_timing())
        && has_answered
        && !time.is_zero()
    {
        let clause = format!("the server says {} took {}", part.name, span(duration));
        found.explain(Cause::ServerSlow, Cause::ServerTiming, Phase::Wait, duration.min(time), clause);
    }
}

/// Returns the part of the server's own account that took most of its time, unless that is a part for the whole.
fn longest_part(parts: &[ServerTiming]) -> Option<(&ServerTiming, Duration)> {
    let timed = parts.iter().filter_map(|part| Some((part, part.duration?))).filter(|(_, time)| !time.is_zero());
    let detailed = timed.clone().filter(|(part, _)| !part.name.eq_ignore_ascii_case("total"));
    detailed.max_by_key(|(_, time)| *time).or_else(|| timed.max_by_key(|(_, time)| *time))
}

fn find_receive(timings: &Timings, time: Duration, found: &mut Found) {
    let head = timings.head_time().unwrap_or(time).min(time);
    let body = time - head;
    // Over a body that was waited for, the program was not the one to be waited for.
    let reading = body.saturating_sub(timings.body_wait);
    let arriving = time - reading;
    found.add_around(Cause::ReaderSlow, Phase::Receive, reading, "the program took", " to read the response's body");
    let what = match timings.received_bytes() {
        0 => " to arrive".to_owned(),
        bytes => format!(" to arrive ({}{})", size(bytes), rate(bytes, arriving)),
    };
    found.add_around(Cause::BodySlow, Phase::Receive, arriving, "the response took", what);
}

/// Returns the rate at which `bytes` were transferred, if it means anything.
fn rate(bytes: u64, time: Duration) -> String {
    if time.is_zero() || bytes < 10_000 {
        return String::new();
    }
    format!(", {}/s", size((bytes as f64 / time.as_secs_f64()) as u64))
}

/// Finds what of the last request's phases was spent in the program's own code.
pub(super) fn find_own_code(timings: &Timings, found: &mut Found) {
    let parts = timings.history().own_code();
    let time = parts.iter().map(|(phase, time)| (*time).min(timings.spent_last(*phase))).sum();
    let phase = parts.iter().max_by_key(|(_, time)| *time).map_or(Phase::Queue, |(phase, _)| *phase);
    let before = "the program's own code around requests took";
    found.add_around(Cause::OwnCode, phase, time, before, "");
}

/// Finds what the program's own runtime was late by: in the last request, and in the waits before all of them.
pub(super) fn find_late(timings: &Timings, found: &mut Found) {
    let late = timings.history().late();
    let mut longest = (Phase::Wait, Duration::ZERO);
    for phase in Phase::ALL {
        let most = if phase == Phase::Backoff { timings.backoff() } else { timings.spent_last(phase) };
        let unread = late.of(phase, LateKind::Unread).min(most);
        let (before, after) = match phase {
            Phase::Wait | Phase::Receive => ("the response was here at least", " before this program read it"),
            Phase::Proxy => ("the proxy's answer was here at least", " before this program read it"),
            Phase::Tls => ("the server's part of the handshake was here at least", " before this program read it"),
            _ => ("the connection was there at least", " before this program used it"),
        };
        let after = format!("{after}: its runtime was busy");
        found.add_around(Cause::RuntimeBusy, phase, unread, before, after);
        let timer = late.of(phase, LateKind::Timer).min(most);
        let clause = "passed after a timer of the call was due: the program's runtime was busy";
        found.add(Cause::RuntimeBusy, phase, timer, clause);
        if unread + timer > longest.1 {
            longest = (phase, unread + timer);
        }
    }
    let hedge = late.of(Phase::Wait, LateKind::Hedge);
    let clause = "passed after the request was due to be sent once more: the program's runtime was busy";
    found.add(Cause::RuntimeBusy, Phase::Wait, hedge, clause);
    if hedge > longest.1 {
        longest = (Phase::Wait, hedge);
    }
    let Stopped { by, within } = timings.history().stopped();
    let stopped = format!("a processor quota stopped the program for {} within {}", span(by), span(within));
    let clause = format!("{stopped}, all processors together");
    found.explain(Cause::RuntimeBusy, Cause::CpuQuota, longest.0, by.min(longest.1), clause);
}
