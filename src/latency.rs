//! How long things took, counted in steps.

use std::time::Duration;

/// How often something took how long, in steps of a factor of two from 1 µs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    counts: [u64; 24],
}

impl Latency {
    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The time within which a share of them, from 0 to 1, was over, rounded up to the step; `None` without any.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (share.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let step = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        step.map(|step| Duration::from_micros(1 << step))
    }

    pub(crate) fn add(&mut self, time: Duration) {
        // Counting is on the way of every request, and most of what is counted takes less than a second.
        let micros = match time.as_secs() {
            0 => u64::from(time.subsec_micros()),
            _ => time.as_micros().min(u128::from(u64::MAX / 2)) as u64,
        };
        let step = micros.max(1).next_power_of_two().ilog2() as usize;
        self.counts[step.min(self.counts.len() - 1)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_step_that_holds_it() {
        let mut latency = Latency::default();
        assert_eq!((latency.count(), latency.quantile(0.5)), (0, None));
        for micros in [0, 1, 3, 1_000, 60_000_000] {
            latency.add(Duration::from_micros(micros));
        }
        let at = |share| latency.quantile(share).map(|time| time.as_micros());
        assert_eq!([at(0.0), at(0.4), at(0.6), at(0.8)], [Some(1), Some(1), Some(4), Some(1_024)]);
        assert_eq!(at(1.0), Some(1 << 23), "the last step holds all that took longer");
    }
}
