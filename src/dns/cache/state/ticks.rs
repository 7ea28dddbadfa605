//! Moments in eight bytes. A core: it is given the time.

use std::time::Duration;

use crate::clock::Instant;

/// A moment, in nanoseconds on the scale of a [`TickClock`]. Half the size of an `Instant`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    /// A moment after all others.
    pub(super) const NEVER: Self = Self(u64::MAX);
    /// The start of the clock. Far from zero, because a restored answer may have expired long before the clock started.
    const START: Self = Self(1 << 62);

    #[inline]
    pub(super) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }

    #[inline]
    pub(super) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(time)))
    }

    /// Returns the time from `earlier` to this moment; zero if this moment is the earlier one.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// Converts instants to ticks and back. Its scale begins at the instant of its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct TickClock(Instant);

impl TickClock {
    pub(super) fn start(now: Instant) -> Self {
        Self(now)
    }

    #[inline]
    pub(super) fn tick(&self, now: Instant) -> Tick {
        match now.checked_duration_since(self.0) {
            Some(since) => Tick::START.after(since),
            None => Tick::START.before(self.0 - now),
        }
    }

    pub(super) fn instant(&self, tick: Tick) -> Instant {
        self.0 + tick.since(Tick::START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_a_moment_also_before_its_clock_was_started() {
        let now = crate::clock::now();
        let clock = TickClock::start(now);
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        assert_eq!(clock.instant(clock.tick(now + year)), now + year);
        assert_eq!(clock.tick(now).since(clock.tick(now).before(year)), year);
        assert_eq!(clock.tick(now).since(clock.tick(now + year)), Duration::ZERO);
        assert_eq!(clock.tick(now).after(Duration::MAX), Tick::NEVER);
    }
}
