//! The latency of an address, compared with that of the others. A core.
//!
//! A peak-EWMA: a slower answer raises the latency at once, faster ones lower it exponentially, by the time that passes. Towards the
//! end of that time, an address that got no requests counts as the others do, and is tried again. One slow answer may be chance, such
//! as a pause of the server's garbage collector, and is forgotten within two seconds. Each further one doubles the time, up to the
//! usual decay of ten seconds.
//!
//! Latencies that differ by less than a factor of two count as equal. Otherwise an address that was unlucky a moment ago would get no
//! requests for as long as another one has a free connection, and equal addresses would not get equal shares.

use std::time::Duration;

use crate::clock::Instant;

/// The time constant of the decay while answers are not slow. It doubles with each slow answer in a row.
const FIRST_DECAY: Duration = Duration::from_millis(500);
/// The longest time constant of the decay.
const LONGEST_DECAY: Duration = Duration::from_secs(10);
/// The ratio up to which two latencies count as equal.
const TOLERANCE: f64 = 2.0;
/// The latency below which differences say more about the machine than about the address.
const SHORTEST: Duration = Duration::from_micros(250);
/// The number of answers over which the typical latency is averaged.
const AVERAGED: f64 = 32.0;

/// The latency of one address.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct PeakLatency {
    /// The peak in seconds and the time at which it was that, if there was an answer.
    peak: Option<(f64, Instant)>,
    /// The number of slow answers in a row, of requests that were made one after the other.
    slow: u32,
    /// The time of the last slow answer.
    slow_at: Option<Instant>,
}

/// The typical latency of a host's addresses: an average of their peaks.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct TypicalLatency {
    seconds: f64,
    answers: f64,
}

impl PeakLatency {
    /// Returns how many times slower than the others the address is; 1 if it is not, or if its latency is not known.
    pub(in crate::pool::state) fn slowness(&self, now: Instant, typical: &TypicalLatency) -> f64 {
        let Some(peak) = self.at(now, typical) else { return 1.0 };
        let ratio = peak / typical.seconds;
        if ratio <= TOLERANCE { 1.0 } else { ratio }
    }

    /// Returns the latency at the moment.
    pub(in crate::pool::state) fn latency(&self, now: Instant, typical: &TypicalLatency) -> Option<Duration> {
        self.at(now, typical).map(Duration::from_secs_f64)
    }

    /// Counts an answer that took this long.
    pub(in crate::pool::state) fn observe(&mut self, now: Instant, latency: Duration, typical: &mut TypicalLatency) {
        let sample = latency.max(SHORTEST).as_secs_f64();
        let before = self.at(now, typical).unwrap_or(sample);
        let since = self.peak.map_or(Duration::ZERO, |(_, at)| now - at);
        let weight = self.weight(since);
        let peak = if sample > before { sample } else { sample + (before - sample) * weight };
        self.count_slow(now, latency, sample, typical);
        self.peak = Some((peak, now));
        typical.add(peak);
    }

    /// Counts a request that got no answer, or one that counts as a failure, after this time. It raises the latency, and never lowers
    /// it: a server that fails fast is not fast.
    pub(in crate::pool::state) fn observe_at_least(
        &mut self,
        now: Instant,
        latency: Duration,
        typical: &TypicalLatency,
    ) {
        let sample = latency.max(SHORTEST).as_secs_f64();
        if typical.answers > 0.0 && self.at(now, typical).unwrap_or(typical.seconds) < sample {
            self.count_slow(now, latency, sample, typical);
            self.peak = Some((sample, now));
        }
    }

    /// Forgets all answers: a new server may have the address.
    pub(in crate::pool::state) fn forget(&mut self) {
        *self = Self::default();
    }

    fn at(&self, now: Instant, typical: &TypicalLatency) -> Option<f64> {
        let (peak, at) = self.peak?;
        Some(typical.seconds + (peak - typical.seconds) * self.weight(now - at))
    }

    fn weight(&self, elapsed: Duration) -> f64 {
        let decay = FIRST_DECAY.saturating_mul(1 << self.slow.min(16)).min(LONGEST_DECAY);
        (-elapsed.as_secs_f64() / decay.as_secs_f64()).exp()
    }

    fn count_slow(&mut self, now: Instant, latency: Duration, sample: f64, typical: &TypicalLatency) {
        let is_slow = typical.answers > 0.0 && sample > TOLERANCE * typical.seconds;
        if !is_slow {
            self.slow = 0;
        } else if self.slow_at.is_none_or(|at| at + latency <= now) {
            // Requests that waited at the same time met the same pause.
            self.slow = self.slow.saturating_add(1);
            self.slow_at = Some(now);
        }
    }
}

impl TypicalLatency {
    fn add(&mut self, peak: f64) {
        // A single peak moves the average of many as little as any other.
        let peak = if self.answers < AVERAGED { peak } else { peak.min(TOLERANCE * self.seconds) };
        self.answers = (self.answers + 1.0).min(AVERAGED);
        self.seconds += (peak - self.seconds) / self.answers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The typical latency of addresses that answer after 10 ms.
    fn typical(now: Instant) -> TypicalLatency {
        let mut typical = TypicalLatency::default();
        let mut other = PeakLatency::default();
        for _ in 0..100 {
            other.observe(now, ms(10), &mut typical);
        }
        typical
    }

    #[test]
    fn an_address_without_answers_counts_as_the_others_do() {
        let now = crate::clock::now();
        let unknown = PeakLatency::default();
        assert_eq!(unknown.slowness(now, &TypicalLatency::default()), 1.0);
        assert_eq!((unknown.slowness(now, &typical(now)), unknown.latency(now, &typical(now))), (1.0, None));
    }

    #[test]
    fn a_slow_answer_counts_at_once_and_a_single_one_is_forgotten_within_three_seconds() {
        let now = crate::clock::now();
        let (mut typical, mut peak) = (typical(now), PeakLatency::default());
        peak.observe(now, ms(10), &mut typical);
        peak.observe(now, ms(100), &mut typical);
        assert!(peak.slowness(now, &typical) > 8.0);
        assert!(peak.slowness(now + ms(1_500), &typical) > 2.0);
        assert_eq!(peak.slowness(now + ms(3_000), &typical), 1.0);
    }

    #[test]
    fn an_address_that_is_slow_each_time_is_tried_again_after_twenty_seconds() {
        let mut now = crate::clock::now();
        let (mut typical, mut peak) = (typical(now), PeakLatency::default());
        let mut pauses = Vec::new();
        for _ in 0..7 {
            now += ms(100);
            peak.observe(now, ms(100), &mut typical);
            let answered = now;
            while peak.slowness(now, &typical) > 1.0 {
                now += ms(100);
            }
            pauses.push((now - answered).as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 20, 19, 19]);
    }

    #[test]
    fn requests_that_wait_at_the_same_time_meet_one_pause() {
        let now = crate::clock::now();
        let (mut typical, mut peak) = (typical(now), PeakLatency::default());
        for _ in 0..20 {
            peak.observe(now, ms(100), &mut typical);
        }
        assert_eq!(peak.slow, 1);
    }

    #[test]
    fn a_fast_failure_does_not_lower_the_latency_and_a_slow_one_raises_it() {
        let now = crate::clock::now();
        let (mut typical, mut peak) = (typical(now), PeakLatency::default());
        peak.observe(now, ms(100), &mut typical);
        peak.observe_at_least(now, ms(1), &typical);
        assert_eq!(peak.latency(now, &typical), Some(ms(100)));
        peak.observe_at_least(now, ms(5_000), &typical);
        assert_eq!(peak.latency(now, &typical), Some(ms(5_000)));
    }

    #[test]
    fn differences_below_a_quarter_of_a_millisecond_do_not_count() {
        let now = crate::clock::now();
        let (mut typical, mut fast, mut slow) =
            (TypicalLatency::default(), PeakLatency::default(), PeakLatency::default());
        for _ in 0..100 {
            fast.observe(now, Duration::from_micros(20), &mut typical);
        }
        slow.observe(now, Duration::from_micros(240), &mut typical);
        assert_eq!(slow.slowness(now, &typical), 1.0);
    }

    /// A typical latency of 10 ms, exactly.
    const TYPICAL: TypicalLatency = TypicalLatency { seconds: 0.01, answers: AVERAGED };

    #[test]
    fn a_faster_answer_lowers_the_peak_by_the_time_that_has_passed() {
        let (mut typical, now) = (TYPICAL, crate::clock::now());
        let mut latency = PeakLatency { peak: Some((0.03, now)), ..PeakLatency::default() };
        latency.observe(now + FIRST_DECAY, ms(10), &mut typical);
        // The peak has approached the typical latency, and then the answer.
        let expected = 0.01 + 0.02 * (-2.0_f64).exp();
        let (peak, at) = latency.peak.unwrap();
        assert!((peak - expected).abs() < 1e-12 && at == now + FIRST_DECAY, "{peak}, not {expected}");
    }

    #[test]
    fn an_answer_is_slow_that_takes_more_than_twice_the_typical_time() {
        let now = crate::clock::now();
        for (latency, slow) in [(ms(10), 0), (ms(20), 0), (ms(21), 1)] {
            let mut peak = PeakLatency::default();
            peak.observe(now, latency, &mut TypicalLatency { ..TYPICAL });
            assert_eq!(peak.slow, slow, "{latency:?}");
        }
        let mut first = PeakLatency::default();
        first.observe(now, ms(10), &mut TypicalLatency::default());
        assert_eq!(first.slow, 0, "no latency is typical yet");
    }

    #[test]
    fn a_failure_before_any_answer_says_nothing() {
        let (mut peak, now) = (PeakLatency::default(), crate::clock::now());
        peak.observe_at_least(now, ms(100), &TypicalLatency::default());
        assert!(peak.peak.is_none() && peak.slow == 0);
    }

    #[test]
    fn an_address_whose_answers_are_forgotten_counts_as_the_others_do() {
        let (mut typical, now) = (TYPICAL, crate::clock::now());
        let mut peak = PeakLatency::default();
        peak.observe(now, ms(100), &mut typical);
        peak.forget();
        assert_eq!((peak.latency(now, &typical), peak.slowness(now, &typical), peak.slow), (None, 1.0, 0));
    }
}
