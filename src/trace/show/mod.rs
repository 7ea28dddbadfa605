//! Timings as text.
//!
//! | file | what it does |
//! |---|---|
//! | `rows.rs` | the rows of a waterfall, which its text and its pictures share, and its text |
//! | `svg.rs` | the same as pictures, of one call and of several |
//! | `mod.rs` | all of a call in a line; the figures that curl has |

use std::fmt;
use std::time::Duration;

use crate::clock::Instant;
use crate::trace::events::event::Phase;
use crate::trace::text::span;
use crate::trace::timings::Timings;
use crate::trace::timings::hops::HopEnd;

pub(super) mod rows;
pub(super) mod svg;

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

/// curl's figures. Each is the time from the call's start until the last request reached a milestone, or zero if it has not.
/// So each includes the call's earlier requests, and the backoffs between them.
impl Timings {
    /// Returns the time until the call got a connection, or until its own connection began to be opened (curl).
    pub fn time_queue(&self) -> Duration {
        self.since_start(self.milestones().dial_started.or(self.milestones().leased))
    }

    /// Returns the time until the name was resolved and the first address was dialled (curl). On a reused connection, until
    /// the call got it.
    pub fn time_namelookup(&self) -> Duration {
        self.since_start(self.milestones().resolved.or(self.milestones().leased))
    }

    /// Returns the time until an address of the host, or of its proxy, was connected (curl). On a reused connection, until
    /// the call got it.
    pub fn time_connect(&self) -> Duration {
        self.since_start(self.milestones().connected.or(self.milestones().leased))
    }

    /// Returns the time until the TLS handshake was done (curl). Zero without TLS, and on a reused connection.
    pub fn time_appconnect(&self) -> Duration {
        self.since_start(self.milestones().secured)
    }

    /// Returns the time until the call had its connection and the request was about to be sent (curl).
    pub fn time_pretransfer(&self) -> Duration {
        self.since_start(self.milestones().leased)
    }

    /// Returns the time until the first byte of the response came (curl).
    pub fn time_starttransfer(&self) -> Duration {
        self.since_start(self.milestones().answered)
    }

    /// Returns the time until the last redirect was followed (curl). Zero without any.
    pub fn time_redirect(&self) -> Duration {
        let redirect = self.hops().iter().rev().find(|hop| matches!(hop.end, HopEnd::Redirected(_)));
        redirect.map_or(Duration::ZERO, |hop| hop.started + hop.elapsed)
    }

    fn since_start(&self, milestone: Option<Instant>) -> Duration {
        milestone.map_or(Duration::ZERO, |at| at - self.start)
    }
}

#[cfg(test)]
mod tests {
    use crate::trace::events::RepeatCause;
    use crate::trace::events::event::{Event, Phase};
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
            (30, Event::CallFailed { phase: Phase::Wait, why: "exchange", bytes: 0 }),
        ]);
        let line = "30.0 ms = queue 10.0 ms + send 10.0 ms + wait 10.0 ms, resent (closed), failed (exchange), \
                    new 192.0.2.1:80";
        assert_eq!(timings.to_string(), line);
        assert_eq!(timings.without_failure().to_string(), line.replace(", failed (exchange)", ""));
    }
}

#[cfg(test)]
mod curl_figures_tests {
    use std::sync::Arc;

    use http::StatusCode;

    use crate::origin::Origin;
    use crate::trace::events::Family;
    use crate::trace::events::event::{Event, RequestInfo};
    use crate::trace::timings::samples::{SENT, address, dns_start, folded, leased, ms, retried_call};

    fn origin(url: &str) -> Origin {
        Origin::from_url(&url::Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn curls_figures_are_those_of_the_last_request_counted_from_the_calls_start() {
        let redirected = |method| Event::Redirected {
            status: StatusCode::FOUND,
            to: Arc::new(RequestInfo {
                method,
                origin: origin("http://b.test/"),
                target: http::Uri::from_static("/"),
                extensions: http::Extensions::new(),
            }),
        };
        let origin = origin("http://a.test/");
        let timings = folded(&[
            (0, leased(3)),
            (1, SENT),
            (9, Event::FirstByte),
            (10, redirected(http::Method::GET)),
            (12, Event::DialStart { origin, host: Default::default() }),
            (12, dns_start(Family::V4)),
            (20, Event::AttemptStart { address: address() }),
            (30, Event::AttemptEnd { address: address(), error: None }),
            (50, Event::Opened { remote: Some(address()) }),
            (51, leased(0)),
            (52, SENT),
            (80, Event::FirstByte),
            (90, Event::BodyEnd { bytes: 7 }),
        ]);
        let figures = [
            timings.time_redirect(),
            timings.time_queue(),
            timings.time_namelookup(),
            timings.time_connect(),
            timings.time_appconnect(),
            timings.time_pretransfer(),
            timings.time_starttransfer(),
            timings.total(),
        ];
        assert_eq!(figures.map(|figure| figure.as_millis()), [10, 12, 20, 30, 0, 51, 80, 90]);
        assert_eq!(timings.received_bytes(), 7);
        let retried = retried_call();
        let until_leased = [retried.time_queue(), retried.time_namelookup(), retried.time_connect()];
        assert_eq!(until_leased, [ms(90); 3], "the backoffs are before the last request");
        assert_eq!((retried.time_pretransfer(), retried.time_starttransfer()), (ms(90), ms(95)));
        assert_eq!(retried.backoff() + retried.queue() + ms(10), retried.time_pretransfer(), "two attempts of 5 ms");
        let warm = folded(&[(2, leased(1)), (3, SENT), (9, Event::FirstByte)]);
        let figures = [warm.time_namelookup(), warm.time_connect(), warm.time_appconnect(), warm.time_pretransfer()];
        assert_eq!(figures.map(|figure| figure.as_millis()), [2, 2, 0, 2]);
    }
}
