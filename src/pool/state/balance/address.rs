//! An address of a balanced host: its connections, requests, latency and failures. A core.

use std::net::SocketAddr;
use std::time::Duration;

use super::outliers::{OutlierRecord, Standing};
use crate::clock::Instant;
use crate::pool::state::values::conn::FreeConns;

/// The pause after a connection to an address could not be opened. It doubles with each further failure.
const FIRST_DIAL_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_DIAL_PAUSE: Duration = Duration::from_secs(30);
/// An address of a balanced host.
#[derive(Debug)]
pub(in crate::pool::state) struct Address {
    pub(in crate::pool::state) socket: SocketAddr,
    /// True if the address is in the last answer.
    pub(in crate::pool::state) is_listed: bool,
    pub(in crate::pool::state) is_in_use: bool,
    /// The open connections that take requests.
    pub(in crate::pool::state) conns: usize,
    /// Those among them that have a free stream.
    pub(in crate::pool::state) free: FreeConns,
    /// Dials in flight that try this address first.
    pub(in crate::pool::state) dials: usize,
    /// Those among them that are not relied on any more.
    pub(in crate::pool::state) slow_dials: usize,
    /// Requests that have a connection.
    pub(in crate::pool::state) in_flight: usize,
    pub(in crate::pool::state) latency: PeakLatency,
    pub(in crate::pool::state) record: OutlierRecord,
    /// The number of the last lease.
    pub(in crate::pool::state) last_turn: u64,
    failed_dials: u32,
    /// The end of the pause after a dial that failed.
    no_dial_until: Option<Instant>,
    /// The end of the pause that the server asked for.
    pub(in crate::pool::state) paused_until: Option<Instant>,
    /// The number of requests that were counted, and of the failed ones among them.
    pub(in crate::pool::state) answered: u64,
    pub(in crate::pool::state) failed: u64,
}

/// The result of a request, as far as it says something about its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The headers of a response came.
    Answered,
    /// The request failed, or its response says that the server did.
    Failed,
    /// The request was cancelled before its response came.
    Cancelled,
}

/// The figures of an address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AddressReport {
    pub(crate) socket: SocketAddr,
    pub(crate) is_listed: bool,
    pub(crate) standing: Standing,
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
    pub(crate) latency: Option<Duration>,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
}

impl Address {
    pub(in crate::pool::state) fn new(socket: SocketAddr, is_listed: bool) -> Self {
        Self {
            socket,
            is_listed,
            is_in_use: false,
            conns: 0,
            free: FreeConns::default(),
            dials: 0,
            slow_dials: 0,
            in_flight: 0,
            latency: PeakLatency::default(),
            record: OutlierRecord::default(),
            last_turn: 0,
            failed_dials: 0,
            no_dial_until: None,
            paused_until: None,
            answered: 0,
            failed: 0,
        }
    }

    /// Returns true if the address has left DNS, and nothing leads there.
    pub(in crate::pool::state) fn is_forgettable(&self) -> bool {
        !self.is_listed && self.conns == 0 && self.dials == 0 && self.in_flight == 0
    }

    /// Returns true if a connection may be opened: there are fewer than `most_conns`, and none has failed a moment ago.
    pub(in crate::pool::state) fn may_dial(&self, now: Instant, most_conns: usize) -> bool {
        let is_left_alone = self.no_dial_until.is_some_and(|until| now < until) || self.is_paused(now);
        !is_left_alone && self.conns + self.young_dials() < most_conns
    }

    pub(in crate::pool::state) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns the number of dials that are relied on.
    pub(in crate::pool::state) fn young_dials(&self) -> usize {
        self.dials - self.slow_dials
    }

    /// Notes that the address could not be connected to.
    pub(in crate::pool::state) fn dial_failed(&mut self, now: Instant) {
        let pause = FIRST_DIAL_PAUSE.saturating_mul(1 << self.failed_dials.min(10)).min(LONGEST_DIAL_PAUSE);
        self.failed_dials = self.failed_dials.saturating_add(1);
        self.no_dial_until = Some(now + pause);
    }

    /// Adds an open connection.
    pub(in crate::pool::state) fn opened(&mut self) {
        self.conns += 1;
        self.failed_dials = 0;
        self.no_dial_until = None;
    }

    /// Returns the figures of the address.
    pub(in crate::pool::state) fn report(&self, now: Instant, typical: &TypicalLatency) -> AddressReport {
        AddressReport {
            socket: self.socket,
            is_listed: self.is_listed,
            standing: self.record.standing,
            connections: self.conns,
            in_flight: self.in_flight,
            latency: self.latency.latency(now, typical),
            answered: self.answered,
            failed: self.failed,
        }
    }
}

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

/// The latency of one address, compared with that of the others.
///
/// A peak-EWMA: a slower answer raises the latency at once, faster ones lower it exponentially, by the time that passes. Towards the
/// end of that time, an address that got no requests counts as the others do, and is tried again. One slow answer may be chance, such
/// as a pause of the server's garbage collector, and is forgotten within two seconds. Each further one doubles the time, up to the
/// usual decay of ten seconds.
///
/// Latencies that differ by less than a factor of two count as equal. Otherwise an address that was unlucky a moment ago would get no
/// requests for as long as another one has a free connection, and equal addresses would not get equal shares.
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

    #[test]
    fn an_address_that_cannot_be_connected_to_is_left_alone_for_longer_each_time() {
        let now = crate::clock::now();
        let mut address = Address::new(([192, 0, 2, 1], 80).into(), true);
        for secs in [1, 2, 4, 8, 16, 30, 30] {
            address.dial_failed(now);
            let pause = Duration::from_secs(secs);
            assert!(!address.may_dial(now + pause - Duration::from_nanos(1), 1) && address.may_dial(now + pause, 1));
        }
        address.opened();
        assert_eq!([1, 2].map(|most| address.may_dial(now, most)), [false, true]);
    }

    #[test]
    fn an_address_is_forgotten_only_if_it_left_dns_and_nothing_leads_there() {
        let gone = || Address::new(([192, 0, 2, 1], 80).into(), false);
        assert!(gone().is_forgettable());
        let kept = [
            Address { is_listed: true, ..gone() },
            Address { conns: 1, ..gone() },
            Address { dials: 1, ..gone() },
            Address { in_flight: 1, ..gone() },
        ];
        assert!(kept.iter().all(|address| !address.is_forgettable()));
    }

    #[test]
    fn dials_in_flight_count_as_connections() {
        let now = crate::clock::now();
        let address = Address { conns: 1, dials: 1, ..Address::new(([192, 0, 2, 1], 80).into(), true) };
        assert_eq!([2, 3].map(|most| address.may_dial(now, most)), [false, true]);
        let slow = Address { dials: 2, slow_dials: 1, ..address };
        assert_eq!([2, 3].map(|most| slow.may_dial(now, most)), [false, true], "those that are slow do not count");
    }
}

#[cfg(test)]
mod peak_latency_tests {
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
