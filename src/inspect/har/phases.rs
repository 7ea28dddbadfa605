//! A core: the times of one request as HAR divides them.

use std::time::Duration;

use crate::trace::Phase;
use crate::trace::Source;
use crate::trace::Timings;

/// The times of a request by the names of HAR. A time is `None` if its phase did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HarPhases {
    pub(super) blocked: Option<Duration>,
    pub(super) dns: Option<Duration>,
    /// With the times of a proxy and of TLS, as the format says.
    pub(super) connect: Option<Duration>,
    /// A part of `connect`.
    pub(super) ssl: Option<Duration>,
    /// A part of `connect`, of which the format does not know.
    pub(super) proxy: Option<Duration>,
    pub(super) send: Duration,
    pub(super) wait: Duration,
    pub(super) receive: Duration,
}

impl HarPhases {
    /// Returns the times of the last request of a call, without the backoff before it, and with the pauses within it.
    pub(super) fn of(timings: &Timings, paused: Duration) -> Self {
        let spent = |phase| timings.spent_last(phase);
        // Nothing is looked up for a URL with an address. The moment that this takes is time before the dial.
        let is_looked_up = timings.used_lookup().is_none_or(|lookup| lookup.source != Source::Literal);
        let (dns, before) =
            if is_looked_up { (spent(Phase::Dns), Duration::ZERO) } else { (Duration::ZERO, spent(Phase::Dns)) };
        let has_lookup = is_looked_up && timings.used_lookup().is_some();
        let blocked = spent(Phase::Queue) + paused + before;
        let ssl = happened(spent(Phase::Tls), timings.milestones().secured.is_some());
        let proxy = happened(spent(Phase::Proxy), false);
        let connect = spent(Phase::Connect) + proxy.unwrap_or_default() + ssl.unwrap_or_default();
        Self {
            blocked: happened(blocked, timings.queued_by().is_some()),
            dns: happened(dns, has_lookup),
            connect: happened(connect, timings.has_dialled_last()),
            ssl,
            proxy,
            send: spent(Phase::Send),
            wait: spent(Phase::Wait),
            receive: spent(Phase::Receive),
        }
    }

    /// Returns the sum of the times, as the format counts: `ssl` is a part of `connect`.
    pub(super) fn total(&self) -> Duration {
        let optional = [self.blocked, self.dns, self.connect].into_iter().flatten().sum::<Duration>();
        optional + self.send + self.wait + self.receive
    }
}

/// Returns the time of a phase that may not have happened.
fn happened(spent: Duration, has_begun: bool) -> Option<Duration> {
    (has_begun || !spent.is_zero()).then_some(spent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;
    use crate::trace::Family;
    use crate::trace::timings::samples::{SENT, address, cold_call, dns_start, folded, leased, ms, retried_call};

    #[test]
    fn a_cold_request_has_a_lookup_and_a_connection() {
        let phases = HarPhases::of(&cold_call(), ms(0));
        let expected = HarPhases {
            blocked: None,
            dns: Some(ms(10)),
            connect: Some(ms(20)),
            ssl: None,
            proxy: None,
            send: ms(0),
            wait: ms(50),
            receive: ms(20),
        };
        assert_eq!((phases, phases.total()), (expected, ms(100)));
    }

    #[test]
    fn a_request_on_an_idle_connection_has_neither() {
        let phases = HarPhases::of(
            &folded(&[(0, leased(3)), (1, SENT), (6, Event::FirstByte), (8, Event::BodyEnd { bytes: 1 })]),
            ms(0),
        );
        let none = [phases.blocked, phases.dns, phases.connect, phases.ssl, phases.proxy];
        assert_eq!((none, [phases.send, phases.wait, phases.receive]), ([None; 5], [ms(1), ms(5), ms(2)]));
    }

    #[test]
    fn a_request_whose_name_has_no_address_dials_nothing() {
        let phases = HarPhases::of(
            &folded(&[
                (0, dns_start(Family::V4)),
                (30, Event::CallFailed { phase: Phase::Dns, why: "resolve", bytes: 0 }),
            ]),
            ms(0),
        );
        assert_eq!((phases.dns, phases.connect, phases.total()), (Some(ms(30)), None, ms(30)));
    }

    #[test]
    fn only_the_last_request_counts_and_not_the_backoff_before_it() {
        let phases = HarPhases::of(&retried_call(), ms(0));
        assert_eq!((phases.blocked, phases.wait, phases.total()), (Some(ms(10)), ms(5), ms(20)));
        let paused = HarPhases::of(&retried_call(), ms(3));
        assert_eq!((paused.blocked, paused.total()), (Some(ms(13)), ms(23)), "a pause within it does");
    }

    #[test]
    fn the_connection_includes_proxy_and_tls() {
        let origin = crate::origin::Origin::from_url(&url::Url::parse("http://proxy.test/").unwrap()).unwrap();
        let phases = HarPhases::of(
            &folded(&[
                (2, Event::AttemptStart { address: address() }),
                (5, Event::ProxyStart { proxy: origin }),
                (12, Event::TlsStart { address: None }),
                (30, leased(0)),
                (30, SENT),
                (40, Event::FirstByte),
            ]),
            ms(0),
        );
        assert_eq!((phases.blocked, phases.dns), (Some(ms(2)), None));
        assert_eq!((phases.connect, phases.proxy, phases.ssl), (Some(ms(28)), Some(ms(7)), Some(ms(18))));
        assert_eq!(phases.total(), ms(40));
    }
}
