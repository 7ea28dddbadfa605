//! A histogram of durations.

use std::time::Duration;

/// A histogram of durations, with buckets that double in size from 1 µs to 8.4 s. The last bucket holds longer durations too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// Durations by bucket: `counts[n]` are those of at most 2^n µs.
    counts: [u64; 24],
}

impl Latency {
    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
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
        bucket.map(|bucket| Duration::from_micros(1 << bucket))
    }

    /// Counts a duration.
    pub(crate) fn add(&mut self, time: Duration) {
        // Every request is counted, and most durations are shorter than a second: those avoid the 128-bit division.
        let micros = match time.as_secs() {
            0 => u64::from(time.subsec_micros()),
            _ => time.as_micros().min(u128::from(u64::MAX / 2)) as u64,
        };
        let bucket = micros.max(1).next_power_of_two().ilog2() as usize;
        self.counts[bucket.min(self.counts.len() - 1)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_end_of_the_bucket_that_holds_it() {
        let mut latency = Latency::default();
        assert_eq!((latency.count(), latency.quantile(0.5)), (0, None));
        for micros in [0, 1, 3, 1_000, 60_000_000] {
            latency.add(Duration::from_micros(micros));
        }
        let at = |share| latency.quantile(share).map(|time| time.as_micros());
        assert_eq!([at(0.0), at(0.4), at(0.6), at(0.8)], [Some(1), Some(1), Some(4), Some(1_024)]);
        assert_eq!(at(1.0), Some(1 << 23), "the last bucket holds longer durations too");
    }
}
