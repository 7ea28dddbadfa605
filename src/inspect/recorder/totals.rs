//! A core: the figures of all calls to an origin.

use std::time::Duration;

use super::latency_class::LatencyClass;
use crate::latency::Latency;
use crate::trace::Phase;
use crate::trace::PhaseTimes;
use crate::trace::Timings;

/// The figures of all calls to an origin since the recorder knows the origin, also of those that it did not keep.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CallTotals {
    /// The calls.
    pub calls: u64,
    /// The calls that failed, without those that were cancelled.
    pub failed: u64,
    /// The calls that were cancelled: the program dropped them before they had a response.
    pub cancelled: u64,
    /// The calls with a response of status 5xx.
    pub server_errors: u64,
    /// The requests that calls made besides their last ones: those sent again, and those redirected.
    pub further_requests: u64,
    /// The calls whose last request got a new connection.
    pub on_new_connections: u64,
    /// The sum of the lengths of the calls' response bodies, in bytes.
    pub received_bytes: u64,
    /// The durations of the calls. Its quantiles are at most 3.2 % too long.
    pub latency: Latency<1_024>,
    /// The numbers of calls, and the times of their phases, by latency class.
    classes: [(u64, PhaseTimes); LatencyClass::COUNT],
}

impl CallTotals {
    /// Returns the time that all calls spent in one phase.
    pub fn spent(&self, phase: Phase) -> Duration {
        LatencyClass::ALL.into_iter().map(|class| self.spent_in_class(class, phase)).sum()
    }

    /// Returns the number of calls in one latency class.
    pub fn in_class(&self, class: LatencyClass) -> u64 {
        self.classes[class.index()].0
    }

    /// Returns the time that the calls in one latency class spent in one phase: what the slow ones have in common.
    pub fn spent_in_class(&self, class: LatencyClass, phase: Phase) -> Duration {
        self.classes[class.index()].1[phase as usize]
    }

    /// Returns the calls that failed, were cancelled, or have a response of status 5xx.
    pub fn failures(&self) -> u64 {
        self.failed + self.cancelled + self.server_errors
    }

    /// Counts a call, and returns its duration and the class of that.
    pub(super) fn count(&mut self, timings: &Timings) -> (Duration, LatencyClass) {
        self.calls += 1;
        match timings.failure() {
            Some("cancelled") => self.cancelled += 1,
            Some(_) => self.failed += 1,
            None if is_server_error(timings) => self.server_errors += 1,
            None => {}
        }
        self.further_requests += timings.requests_before() as u64;
        self.on_new_connections += u64::from(timings.connection().is_some() && !timings.reused());
        self.received_bytes += timings.received_bytes();
        let (mut total, mut spent) = (Duration::ZERO, PhaseTimes::default());
        timings.for_each_spent(|phase, time| {
            spent[phase as usize] += time;
            total += time;
        });
        let class = LatencyClass::of(total);
        self.latency.add(total.into());
        add_class(&mut self.classes[class.index()], (1, &spent));
        (total, class)
    }

    /// Adds the figures of another origin.
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.server_errors += other.server_errors;
        self.further_requests += other.further_requests;
        self.on_new_connections += other.on_new_connections;
        self.received_bytes += other.received_bytes;
        self.latency.merge(&other.latency);
        self.classes.iter_mut().zip(&other.classes).for_each(|(sum, (calls, spent))| add_class(sum, (*calls, spent)));
    }
}

fn add_class(sum: &mut (u64, PhaseTimes), (calls, spent): (u64, &PhaseTimes)) {
    sum.0 += calls;
    sum.1.iter_mut().zip(spent).for_each(|(sum, more)| *sum += *more);
}

/// Returns true for a call that failed, was cancelled, or has a response of status 5xx.
pub(super) fn is_failure(timings: &Timings) -> bool {
    timings.failure().is_some() || is_server_error(timings)
}

fn is_server_error(timings: &Timings) -> bool {
    timings.status().is_some_and(|status| status.is_server_error())
}

#[cfg(test)]
mod tests {
    use http::{StatusCode, Version};

    use super::*;
    use crate::trace::Event;
    use crate::trace::timings::samples::{SENT, cold_call, folded, leased, ms, retried_call};

    fn ended(end: Event) -> Timings {
        folded(&[(0, leased(1)), (0, SENT), (10, end)])
    }

    #[test]
    fn each_call_is_counted_by_its_end() {
        let headers = Event::Headers { status: StatusCode::BAD_GATEWAY, version: Version::HTTP_11 };
        let calls = [
            cold_call(),
            retried_call(),
            ended(Event::CallFailed { phase: Phase::Wait, why: "timeout", bytes: 0 }),
            ended(Event::CallFailed { phase: Phase::Wait, why: "cancelled", bytes: 0 }),
            ended(headers),
        ];
        let mut totals = CallTotals::default();
        for timings in &calls {
            assert_eq!(totals.count(timings), (timings.total(), LatencyClass::of(timings.total())));
        }
        assert_eq!((totals.calls, totals.failed, totals.cancelled, totals.server_errors), (5, 1, 1, 1));
        assert_eq!((totals.failures(), totals.further_requests, totals.on_new_connections), (3, 2, 1));
        assert_eq!(calls.iter().filter(|timings| is_failure(timings)).count(), 3);
        assert_eq!(totals.received_bytes, 4);
        let sum: Duration = Phase::ALL.into_iter().map(|phase| totals.spent(phase)).sum();
        assert_eq!((sum, totals.latency.sum()), (ms(230), ms(230)));
        assert_eq!(totals.in_class(LatencyClass::of(ms(100))), 2);
        let all =
            LatencyClass::ALL.into_iter().flat_map(|class| Phase::ALL.map(|phase| totals.spent_in_class(class, phase)));
        assert_eq!(all.sum::<Duration>(), ms(230));
        let mut twice = totals;
        twice.add(&totals);
        assert_eq!((twice.calls, twice.latency.count(), twice.in_class(LatencyClass::of(ms(10)))), (10, 10, 6));
    }
}
