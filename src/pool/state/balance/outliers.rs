//! The failures of an address, for which it is ejected. A core.
//!
//! An address is fine, or ejected until a time, or probed by a single request after that. A success of the probe makes it fine, and
//! its share grows over [`RAMP`]. Whether more addresses may be ejected is decided by the caller.

use std::time::Duration;

use crate::clock::Instant;
use crate::pool::config::Ejection;

/// The time constant with which past requests are forgotten.
const WINDOW: Duration = Duration::from_secs(10);
/// The number of requests in the window from which on their failures have a meaning as a share.
const LEAST_REQUESTS: f64 = 10.0;
/// The least ratio of an address's failures to those of the others for which it is ejected.
const TIMES_OTHERS: f64 = 2.0;
/// The time in which the share of an address that is used again grows to that of the others.
const RAMP: Duration = Duration::from_secs(10);
/// The part of its share with which an address that is used again begins.
const RAMP_START: f64 = 0.1;

/// The successes and failures of the last requests, which count less the longer they are ago.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct RecentRequests {
    successes: f64,
    failures: f64,
    at: Option<Instant>,
}

/// The record of an address.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct OutlierRecord {
    in_a_row: u32,
    recent: RecentRequests,
    pub(in crate::pool::state) standing: Standing,
    /// The number of ejections, each of which makes the next one longer. One is forgiven for each base time without failure.
    times: u32,
    /// The time since which the address is used again.
    since: Option<Instant>,
}

/// The standing of an address.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    #[default]
    Fine,
    Ejected {
        until: Instant,
    },
    /// A single request is on its way.
    Probed,
}

impl RecentRequests {
    /// Counts a request.
    pub(in crate::pool::state) fn count(&mut self, now: Instant, has_failed: bool) {
        let weight = self.weight(now);
        self.successes *= weight;
        self.failures *= weight;
        self.at = Some(now);
        if has_failed { self.failures += 1.0 } else { self.successes += 1.0 }
    }

    /// Returns the part of the requests that failed, without those of an address; 0 if there were no others.
    fn share_without(&self, now: Instant, address: &Self) -> f64 {
        let (weight, own) = (self.weight(now), address.weight(now));
        let failures = (self.failures * weight - address.failures * own).max(0.0);
        let all = failures + (self.successes * weight - address.successes * own).max(0.0);
        if all < 1.0 { 0.0 } else { failures / all }
    }

    fn share(&self) -> f64 {
        let all = self.successes + self.failures;
        if all > 0.0 { self.failures / all } else { 0.0 }
    }

    fn weight(&self, now: Instant) -> f64 {
        self.at.map_or(1.0, |at| (-(now - at).as_secs_f64() / WINDOW.as_secs_f64()).exp())
    }
}

impl OutlierRecord {
    /// Returns true if the address gets requests as usual.
    pub(in crate::pool::state) fn is_fine(&self) -> bool {
        self.standing == Standing::Fine
    }

    /// Returns the end of the ejection.
    pub(in crate::pool::state) fn ejected_until(&self) -> Option<Instant> {
        match self.standing {
            Standing::Ejected { until } => Some(until),
            _ => None,
        }
    }

    /// Returns true if the time of the ejection is over, and a request may probe the address.
    pub(in crate::pool::state) fn is_due(&self, now: Instant) -> bool {
        matches!(self.standing, Standing::Ejected { until } if until <= now)
    }

    /// Returns by how much more a request on the address counts, while its share still grows.
    pub(in crate::pool::state) fn ramp(&self, now: Instant) -> f64 {
        let Some(since) = self.since else { return 1.0 };
        let elapsed = now - since;
        if elapsed >= RAMP {
            return 1.0;
        }
        1.0 / (elapsed.as_secs_f64() / RAMP.as_secs_f64()).max(RAMP_START)
    }

    /// Counts a request of an address that is fine. `all` are the requests of the whole host, this one included. Returns true if the
    /// address should be ejected.
    pub(in crate::pool::state) fn count(
        &mut self,
        now: Instant,
        has_failed: bool,
        rules: &Ejection,
        all: &RecentRequests,
    ) -> bool {
        self.recent.count(now, has_failed);
        if !has_failed {
            self.in_a_row = 0;
            return false;
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        let share = self.recent.share();
        let has_enough = self.recent.successes + self.recent.failures >= LEAST_REQUESTS;
        let fails_often = has_enough && share * 100.0 >= f64::from(rules.failure_percent);
        let fails_in_a_row = self.in_a_row >= rules.failures;
        (fails_often || fails_in_a_row) && share >= TIMES_OTHERS * all.share_without(now, &self.recent)
    }

    /// Ejects the address.
    pub(in crate::pool::state) fn eject(&mut self, now: Instant, rules: &Ejection) {
        if let Some(since) = self.since {
            let forgiven = (now - since).as_nanos() / rules.base_time.as_nanos().max(1);
            self.times = self.times.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
        }
        self.times = self.times.saturating_add(1);
        self.since = None;
        let time = rules.base_time.saturating_mul(self.times).min(rules.max_time);
        self.standing = Standing::Ejected { until: now + time };
    }

    /// Ends the probe: the address is used again if it succeeded, and ejected again if it failed. Without a result another
    /// request may probe the address. Does nothing if the address is used again since the rules were replaced.
    pub(in crate::pool::state) fn end_probe(&mut self, now: Instant, has_failed: Option<bool>, rules: &Ejection) {
        if self.is_fine() {
            return;
        }
        match has_failed {
            Some(true) => self.eject(now, rules),
            None => self.standing = Standing::Ejected { until: now },
            Some(false) => {
                self.standing = Standing::Fine;
                self.in_a_row = 0;
                self.recent = RecentRequests::default();
                self.since = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Counts requests of an address, beside others that succeed. Returns the number of the request that ejects it.
    fn ejecting(failures: impl IntoIterator<Item = bool>, others_fail: bool) -> Option<usize> {
        let now = crate::clock::now();
        let (mut record, mut all) = (OutlierRecord::default(), RecentRequests::default());
        failures.into_iter().position(|has_failed| {
            (0..9).for_each(|_| all.count(now, others_fail));
            all.count(now, has_failed);
            record.count(now, has_failed, &Ejection::new(), &all)
        })
    }

    #[test]
    fn failures_in_a_row_and_a_share_of_failures_eject() {
        assert_eq!(ejecting([true; 9], false), Some(4));
        assert_eq!(ejecting((0..100).map(|number| number % 2 == 1), false), Some(9), "half of ten");
        assert_eq!(ejecting((0..100).map(|number| number % 4 == 3), false), None, "a quarter");
        assert_eq!(ejecting([false; 99], false), None);
    }

    #[test]
    fn an_address_is_not_ejected_for_failures_that_all_have() {
        assert_eq!(ejecting([true; 99], true), None);
    }

    #[test]
    fn failures_of_a_minute_ago_do_not_count() {
        let now = crate::clock::now();
        let mut recent = RecentRequests::default();
        (0..50).for_each(|_| recent.count(now, true));
        (0..10).for_each(|_| recent.count(now + secs(60), false));
        assert!(recent.share() < 0.02);
    }

    #[test]
    fn each_ejection_is_longer_and_is_forgiven_with_time() {
        let (mut record, rules, mut now) =
            (OutlierRecord::default(), Ejection::new().max_time(secs(30)), crate::clock::now());
        let mut times = Vec::new();
        for _ in 0..5 {
            record.eject(now, &rules);
            let Standing::Ejected { until } = record.standing else { panic!("ejected") };
            times.push((until - now).as_secs());
            now = until;
            assert!(record.is_due(now) && !record.is_due(now - secs(1)));
            record.standing = Standing::Probed;
            record.end_probe(now, Some(true), &rules);
        }
        assert_eq!(times, [10, 30, 30, 30, 30], "the failed probe counts as well");
        record.end_probe(now, Some(false), &rules);
        record.eject(now + secs(3_600), &rules);
        assert_eq!(record.standing, Standing::Ejected { until: now + secs(3_610) });
    }

    #[test]
    fn the_share_of_an_address_that_is_used_again_grows_over_ten_seconds() {
        let (mut record, rules, now) = (OutlierRecord::default(), Ejection::new(), crate::clock::now());
        assert_eq!(record.ramp(now), 1.0);
        record.eject(now, &rules);
        record.standing = Standing::Probed;
        record.end_probe(now, Some(false), &rules);
        assert!(record.is_fine());
        let ramp: Vec<_> = [0, 1, 5, 10].into_iter().map(|at| record.ramp(now + secs(at))).collect();
        assert_eq!(ramp, [10.0, 10.0, 2.0, 1.0]);
    }

    #[test]
    fn a_probe_without_a_result_is_made_again() {
        let (mut record, rules, now) = (OutlierRecord::default(), Ejection::new(), crate::clock::now());
        record.eject(now, &rules);
        record.standing = Standing::Probed;
        assert!(!record.is_due(now + secs(60)));
        record.end_probe(now + secs(60), None, &rules);
        assert!(record.is_due(now + secs(60)));
    }

    /// Panics unless two figures are the same but for rounding.
    fn assert_about(figure: f64, expected: f64) {
        assert!((figure - expected).abs() < 1e-9, "{figure}, not {expected}");
    }

    #[test]
    fn requests_count_for_a_third_after_ten_seconds() {
        let (mut recent, now) = (RecentRequests::default(), crate::clock::now());
        assert_eq!(recent.share(), 0.0, "there were none");
        for has_failed in [true, true, false, false, false] {
            recent.count(now, has_failed);
        }
        assert_about(recent.share(), 0.4);
        recent.count(now + WINDOW, false);
        let third = (-1.0_f64).exp();
        assert_about(recent.failures, 2.0 * third);
        assert_about(recent.successes, 3.0 * third + 1.0);
    }

    #[test]
    fn the_requests_of_one_address_are_taken_out_of_those_of_all() {
        let now = crate::clock::now();
        let counted = |failures: u32, successes: u32| {
            let mut recent = RecentRequests::default();
            (0..failures).for_each(|_| recent.count(now, true));
            (0..successes).for_each(|_| recent.count(now, false));
            recent
        };
        for at in [0, 10] {
            let share = counted(6, 4).share_without(now + secs(at), &counted(2, 1));
            assert_about(share, 4.0 / 7.0);
        }
        assert_eq!(counted(2, 0).share_without(now, &counted(1, 0)), 1.0, "one request is enough");
        assert_eq!(counted(2, 0).share_without(now + secs(1), &counted(1, 0)), 0.0, "less than one is not");
        assert_eq!(counted(2, 1).share_without(now, &counted(2, 1)), 0.0, "there are no others");
        let (own, mut all) = (counted(2, 0), counted(2, 0));
        for has_failed in [true, false, false, false] {
            all.count(now + secs(10), has_failed);
        }
        assert_about(all.share_without(now + secs(10), &own), 0.25);
    }

    #[test]
    fn an_ejected_address_is_not_fine_until_its_probe_succeeds() {
        let (mut record, rules, now) = (OutlierRecord::default(), Ejection::new(), crate::clock::now());
        assert_eq!((record.is_fine(), record.ejected_until()), (true, None));
        record.eject(now, &rules);
        assert_eq!((record.is_fine(), record.ejected_until()), (false, Some(now + secs(10))));
        record.standing = Standing::Probed;
        assert_eq!((record.is_fine(), record.ejected_until()), (false, None));
        record.end_probe(now, Some(false), &rules);
        assert_eq!((record.is_fine(), record.ejected_until()), (true, None));
    }

    #[test]
    fn one_ejection_is_forgiven_for_each_whole_base_time() {
        for (fine_for, next) in [(9, 40), (10, 30), (19, 30), (20, 20), (1_000, 10)] {
            let (mut record, rules, now) = (OutlierRecord::default(), Ejection::new(), crate::clock::now());
            (0..3).for_each(|_| record.eject(now, &rules));
            record.end_probe(now, Some(false), &rules);
            let again = now + secs(fine_for);
            record.eject(again, &rules);
            assert_eq!(record.ejected_until(), Some(again + secs(next)), "{fine_for}");
        }
    }
}
