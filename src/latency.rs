//! A histogram of durations.

use std::fmt;
use std::time::Duration;

/// The number of doublings from 1 µs to 36 minutes, the first bucket included.
const OCTAVES: usize = 32;

/// A histogram of durations, from 1 µs to 36 minutes. The last bucket holds longer durations too.
///
/// It has `N` buckets: 32 of them double in size, and are what the pool and the DNS cache count for each host. With 1,024, as recorders have
/// them for each origin, a bucket is at most 3.2 % longer than the durations in it, as in an HDR histogram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Latency<const N: usize = OCTAVES> {
    /// Durations by bucket. With 32 of them, `counts[n]` are those of at most 2^n µs; with more, each of these is divided into equal parts.
    counts: [u64; N],
    /// The sum of the durations in nanoseconds.
    nanos: u128,
}

impl<const N: usize> Default for Latency<N> {
    fn default() -> Self {
        Self { counts: [0; N], nanos: 0 }
    }
}

impl<const N: usize> Latency<N> {
    /// The number of parts into which the time up to twice a duration is divided.
    const PARTS: u64 = (N / OCTAVES) as u64;

    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of the durations, which is exact.
    pub fn sum(&self) -> Duration {
        duration(self.nanos)
    }

    /// Returns the mean of the durations: their sum divided by their number. `None` if nothing was counted.
    ///
    /// By Little's law, the mean time that requests hold a connection, times the requests per second, is the mean number of
    /// connections in use. The mean time in the queue gives the mean number of waiting requests in the same way.
    pub fn mean(&self) -> Option<Duration> {
        self.nanos.checked_div(u128::from(self.count())).map(duration)
    }

    /// Returns a quantile of the durations, rounded up to the end of its bucket: `share` is 0.5 for the median and 0.99 for
    /// the 99th percentile. `None` if nothing was counted.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.map(|bucket| Duration::from_micros(Self::end(bucket as u64)))
    }

    /// Returns the end of a bucket in microseconds.
    fn end(bucket: u64) -> u64 {
        match (bucket / Self::PARTS, bucket % Self::PARTS) {
            (0, _) => 1,
            (octave, part) => {
                let start = 1 << (octave - 1);
                start + (start * (part + 1)).div_ceil(Self::PARTS)
            }
        }
    }

    /// Counts a duration.
    ///
    /// ```
    /// use std::time::Duration;
    /// use speeddial::trace::Latency;
    ///
    /// let mut latency = Latency::<1_024>::default();
    /// latency.add(Duration::from_millis(20));
    /// assert_eq!(latency.mean(), Some(Duration::from_millis(20)));
    /// ```
    pub fn add(&mut self, time: Duration) {
        self.add_sample(time.into());
    }

    /// Counts a duration that was converted before.
    #[inline]
    pub(crate) fn add_sample(&mut self, time: Sample) {
        let octave = usize::from(time.octave);
        self.counts[if N == OCTAVES { octave } else { self.bucket(time) }] += 1;
        self.nanos += time.nanos;
    }

    /// Returns the bucket of a duration.
    fn bucket(&self, time: Sample) -> usize {
        let octave = u64::from(time.octave);
        let before = u64::try_from(time.nanos / 1_000).unwrap_or(u64::MAX).saturating_sub(1);
        let part = match octave.checked_sub(1) {
            None => 0,
            // The part of the way from a power of two to the next one.
            Some(octave) => ((before - (1 << octave)).saturating_mul(Self::PARTS) >> octave).min(Self::PARTS - 1),
        };
        (octave * Self::PARTS + part) as usize
    }

    /// Returns the durations that are counted here and not in an earlier state of the same histogram.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut later = *self;
        later.counts.iter_mut().zip(earlier.counts).for_each(|(count, before)| *count -= before.min(*count));
        later.nanos = later.nanos.saturating_sub(earlier.nanos);
        later
    }

    /// Adds the durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.nanos += other.nanos;
    }
}

impl<const N: usize> fmt::Debug for Latency<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantile = |share| self.quantile(share).unwrap_or_default();
        let mut shown = f.debug_struct("Latency");
        shown.field("count", &self.count()).field("mean", &self.mean().unwrap_or_default());
        shown.field("median", &quantile(0.5)).field("p99", &quantile(0.99)).field("max", &quantile(1.0)).finish()
    }
}

/// A duration as histograms count it. One that several count is converted once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The first power of two that is no shorter, in microseconds.
    octave: u8,
    nanos: u128,
}

impl Sample {
    /// The wait of a request that gets a connection at once.
    pub(crate) const ZERO: Self = Self { octave: 0, nanos: 0 };

    #[inline]
    pub(crate) fn of_nanos(nanos: u64) -> Self {
        let micros = nanos / 1_000;
        // The logarithm, rounded up, in four instructions.
        let octave = ((micros.saturating_sub(1) << 1) | 1).ilog2() as u8;
        Self { octave: octave.min(OCTAVES as u8 - 1), nanos: nanos.into() }
    }
}

impl From<Duration> for Sample {
    fn from(time: Duration) -> Self {
        let nanos = time.as_nanos();
        Self { nanos, ..Self::of_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)) }
    }
}

/// Returns a number of nanoseconds as a duration, at most the longest there is.
fn duration(nanos: u128) -> Duration {
    const NANOS_PER_SECOND: u128 = 1_000_000_000;
    match u64::try_from(nanos / NANOS_PER_SECOND) {
        Ok(seconds) => Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32),
        Err(_) => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_end_of_the_bucket_that_holds_it() {
        let mut latency = <Latency>::default();
        assert_eq!((latency.count(), latency.quantile(0.5)), (0, None));
        for micros in [0, 1, 3, 1_000, 60_000_000] {
            latency.add(Duration::from_micros(micros));
        }
        let at = |share| latency.quantile(share).map(|time| time.as_micros());
        assert_eq!([at(0.0), at(0.4), at(0.6), at(0.8)], [Some(1), Some(1), Some(4), Some(1_024)]);
        assert_eq!(at(1.0), Some(1 << 26), "67 s");
    }

    #[test]
    fn a_wait_as_long_as_any_limit_has_a_bucket_of_its_own() {
        let of = |seconds| {
            let mut latency = <Latency>::default();
            latency.add(Duration::from_secs(seconds));
            latency.quantile(1.0).unwrap().as_secs()
        };
        // The default limits are 30 s for the queue and 300 s for the headers.
        assert_eq!([8, 9, 30, 60, 300, 1_800].map(of), [8, 16, 33, 67, 536, 2_147]);
        assert_eq!([7_200, u64::MAX].map(of), [2_147; 2], "the last bucket holds longer durations too");
    }

    #[test]
    fn every_duration_is_at_most_the_end_of_its_bucket_and_more_than_half_of_it() {
        for micros in (0..5_000).chain((13..31).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let mut latency = <Latency>::default();
            latency.add(Duration::from_micros(micros));
            let end = latency.quantile(1.0).unwrap().as_micros() as u64;
            assert!(micros <= end && (end == 1 || end < 2 * micros), "{micros} µs in the bucket to {end} µs");
        }
    }

    #[test]
    fn with_1024_buckets_a_quantile_is_at_most_a_thirtieth_longer_than_its_duration() {
        for micros in (0..5_000).chain((1..31 * 37).map(|step| 1.02_f64.powi(step) as u64)) {
            let mut latency = Latency::<1_024>::default();
            latency.add(Duration::from_micros(micros));
            let end = latency.quantile(1.0).unwrap().as_micros() as u64;
            let longest = micros.clamp(1, 1 << 31);
            assert!(longest <= end && end - longest <= 1 + longest / 31, "{micros} µs in the bucket to {end} µs");
        }
        let mut latency = Latency::<1_024>::default();
        for time in [Duration::from_micros(u64::MAX), Duration::MAX] {
            latency.add(time);
        }
        assert_eq!(latency.quantile(1.0), Some(Duration::from_micros(1 << 31)));
    }

    #[test]
    fn the_mean_is_exact() {
        let mut latency = <Latency>::default();
        assert_eq!((latency.mean(), latency.sum()), (None, Duration::ZERO));
        for nanos in [300, 500, 1_000_000_000] {
            latency.add(Duration::from_nanos(nanos));
        }
        assert_eq!((latency.sum().as_nanos(), latency.mean().unwrap().as_nanos()), (1_000_000_800, 333_333_600));
        latency.add(Duration::MAX);
        assert_eq!((latency.sum(), latency.count()), (Duration::MAX, 4), "the sum does not overflow");
    }

    #[test]
    fn the_difference_of_two_states_has_what_came_between() {
        let mut earlier = <Latency>::default();
        earlier.add(Duration::from_millis(3));
        let mut later = earlier;
        later.add(Duration::from_millis(5));
        let between = later.since(&earlier);
        assert_eq!((between.count(), between.sum()), (1, Duration::from_millis(5)));
        assert_eq!(later.since(&later), Latency::default());
    }
}
