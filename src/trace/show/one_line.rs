//! Timings as one line of text.

use std::fmt;
use std::time::Duration;

use crate::trace::events::phase::Phase;
use crate::trace::text::span;
use crate::trace::timings::Timings;
use crate::trace::timings::hops::HopEnd;

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { self.waterfall().fmt(f) } else { write_line(self, self.failure(), f) }
    }
}

impl Timings {
    /// Returns the line for the message of an error, which states the failure itself.
    pub(crate) fn without_failure(&self) -> impl fmt::Display {
        WithoutFailure(self)
    }
}

struct WithoutFailure<'a>(&'a Timings);

impl fmt::Display for WithoutFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(self.0, None, f)
    }
}

fn write_line(timings: &Timings, failure: Option<&str>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", span(timings.total()))?;
    for (index, phase) in phases_in_line(timings).enumerate() {
        let plus = if index == 0 { " =" } else { " +" };
        write!(f, "{plus} {phase} {}", span(timings.spent(phase)))?;
        if phase == Phase::Dns
            && let Some(source) = timings.dns_source()
        {
            write!(f, " ({source})")?;
        }
    }
    for hop in timings.hops() {
        match hop.end {
            HopEnd::Redirected(status) => write!(f, ", redirected ({})", status.as_u16())?,
            HopEnd::Repeated(cause) if cause.is_retry() => write!(f, ", retried ({cause})")?,
            HopEnd::Repeated(cause) => write!(f, ", resent ({cause})")?,
            HopEnd::Hedged => {} // with its result below
        }
        if hop.joined > 0 {
            write!(f, " and {} before", hop.joined)?;
        }
    }
    for hedge in timings.hedges() {
        write!(f, ", hedged ({})", hedge.outcome)?;
    }
    if let Some(why) = failure {
        write!(f, ", failed ({why})")?;
    }
    if timings.is_unread() {
        f.write_str(", body dropped")?;
    }
    let Some(remote) = timings.remote_addr() else { return Ok(()) };
    write!(f, ", {} {remote}", if timings.reused() { "reused" } else { "new" })?;
    if timings.freed() {
        f.write_str(", freed while another was being opened")?;
    }
    Ok(())
}

/// Returns the phases that the line names: those that took time, and DNS if there was a lookup.
fn phases_in_line(timings: &Timings) -> impl Iterator<Item = Phase> {
    Phase::ALL.into_iter().filter(|&phase| {
        timings.spent(phase) > Duration::ZERO || (phase == Phase::Dns && timings.dns_source().is_some())
    })
}

#[cfg(test)]
mod tests {
    use crate::trace::events::causes::RepeatCause;
    use crate::trace::events::event::Event;
    use crate::trace::timings::samples::{SENT, cold_call, folded, hedged_call, leased, retried_call};

    #[test]
    fn the_line_names_the_phases_that_took_time() {
        assert_eq!(
            cold_call().to_string(),
            "100 ms = dns 10.0 ms (miss) + connect 20.0 ms + wait 50.0 ms + receive 20.0 ms, new 192.0.2.1:80"
        );
    }

    #[test]
    fn the_line_has_the_backoff_apart_from_the_queue() {
        let line = "100 ms = backoff 70.0 ms + queue 10.0 ms + wait 15.0 ms + receive 5.00 ms, retried (status 503), \
                    retried (status 503), reused 192.0.2.1:80";
        assert_eq!(retried_call().to_string(), line);
    }

    #[test]
    fn the_line_has_the_result_of_a_hedge() {
        let line = "65.0 ms = queue 10.0 ms + wait 50.0 ms + receive 5.00 ms, hedged (won), new 192.0.2.1:80";
        assert_eq!(hedged_call().to_string(), line);
    }

    #[test]
    fn the_line_names_earlier_requests_and_the_failure() {
        let timings = folded(&[
            (0, leased(1)),
            (10, Event::Repeated { cause: RepeatCause::Closed }),
            (20, leased(0)),
            (20, SENT),
            (30, Event::CallFailed { phase: super::Phase::Wait, why: "exchange", bytes: 0 }),
        ]);
        let line = "30.0 ms = queue 10.0 ms + send 10.0 ms + wait 10.0 ms, resent (closed), failed (exchange), \
                    new 192.0.2.1:80";
        assert_eq!(timings.to_string(), line);
        assert_eq!(timings.without_failure().to_string(), line.replace(", failed (exchange)", ""));
    }
}
