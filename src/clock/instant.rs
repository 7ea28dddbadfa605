//! A time, in eight bytes.

use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Sub};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::suspension::suspended_nanos;

/// A time of the runtime's clock, in nanoseconds.
///
/// It has half the size of the standard library's, and the difference of two takes one instruction in place of fifty: every call
/// takes the time often, and each of its phases is a difference. A time that is too far away is the last one there is
/// ([`NEVER`](Self::NEVER), 438 years after the start of the process) or the first one (146 years before).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instant(NonZeroU64);

/// The first time that the process took.
static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
/// The same, as a number far from zero: times before the start are needed too, as a restored DNS answer may have expired years ago.
const AT_START: Instant = Instant::from_nanos(1 << 62);

impl Instant {
    /// The time after all others.
    pub(crate) const NEVER: Self = Self(NonZeroU64::MAX);

    /// Returns the time for one of the runtime's clock, which stood still while the machine was suspended.
    #[inline]
    pub(crate) fn from_std(at: std::time::Instant) -> Self {
        let on_runtime = match at.checked_duration_since(*START) {
            Some(since) => AT_START + since,
            None => Self::before_start(at),
        };
        Self(on_runtime.0.saturating_add(suspended_nanos()))
    }

    // Apart, because it happens to the first times of a process at most, and each reading of the clock comes through above.
    #[cold]
    fn before_start(at: std::time::Instant) -> Self {
        AT_START - (*START - at)
    }

    /// Returns the time in the standard library's form, which is exact unless the system's clock does not go back so far.
    pub(crate) fn into_std(self) -> std::time::Instant {
        let this = Self::from_nanos(self.nanos().saturating_sub(suspended_nanos()));
        let at = if this >= AT_START { START.checked_add(this - AT_START) } else { START.checked_sub(AT_START - this) };
        at.unwrap_or(*START)
    }

    /// Returns the time as a number that grows with it, for an atomic.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.0.get()
    }

    /// Returns the nanoseconds since another time, which are 0 if that is later.
    #[inline]
    pub(crate) fn nanos_since(self, earlier: Self) -> u64 {
        self.nanos().saturating_sub(earlier.nanos())
    }

    #[inline]
    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// Returns the time after a duration; `None` if it is too far away.
    #[inline]
    pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
        Some(self + time).filter(|at| *at != Self::NEVER)
    }
}

#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// The time since another one, which is zero if that is later.
impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn sub(self, time: Duration) -> Self {
        Self::from_nanos(self.nanos().saturating_sub(nanos(time)))
    }
}

/// A time that several threads may set. None by default.
#[derive(Debug, Default)]
pub(crate) struct AtomicInstant(AtomicU64);

impl AtomicInstant {
    pub(crate) fn new(at: Option<Instant>) -> Self {
        Self(AtomicU64::new(at.map_or(0, Instant::nanos)))
    }

    pub(crate) fn load(&self) -> Option<Instant> {
        NonZeroU64::new(self.0.load(Ordering::Relaxed)).map(Instant)
    }

    pub(crate) fn store(&self, at: Option<Instant>) {
        self.0.store(at.map_or(0, Instant::nanos), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

    fn now() -> Instant {
        Instant::from_std(std::time::Instant::now())
    }

    #[test]
    fn a_time_takes_eight_bytes_also_where_there_may_be_none() {
        assert_eq!((size_of::<Instant>(), size_of::<Option<Instant>>()), (8, 8));
    }

    #[test]
    fn the_standard_librarys_times_come_back_exactly() {
        let now = std::time::Instant::now();
        for at in [now, now + YEAR, now + Duration::from_nanos(1)] {
            assert_eq!(Instant::from_std(at).into_std(), at);
        }
        // The process took its first time when it compared these.
        let before = now - Duration::from_millis(1);
        assert_eq!(Instant::from_std(before).into_std(), before);
        assert_eq!(Instant::from_std(now) - Instant::from_std(before), Duration::from_millis(1));
    }

    #[test]
    fn durations_are_added_and_taken_away() {
        let now = now();
        assert_eq!((now + YEAR) - now, YEAR);
        assert_eq!(now - YEAR + YEAR, now);
        assert_eq!(now - (now + YEAR), Duration::ZERO, "no time is negative");
        assert_eq!(now.checked_add(YEAR), Some(now + YEAR));
        let mut later = now;
        later += YEAR;
        assert!(later > now && now < Instant::NEVER);
    }

    #[test]
    fn a_time_too_far_away_is_the_last_or_the_first_one() {
        let now = now();
        assert_eq!((now + Duration::MAX, now.checked_add(Duration::MAX)), (Instant::NEVER, None));
        assert_eq!(now.checked_add(1_000 * YEAR), None);
        assert!(now.checked_add(400 * YEAR).is_some());
        assert_eq!((now - Duration::MAX).nanos(), 1);
        assert!(Instant::NEVER.into_std() > now.into_std() + 400 * YEAR);
        let _ = (now - Duration::MAX).into_std(); // does not panic
    }

    #[test]
    fn an_atomic_time_may_be_none() {
        let (at, now) = (AtomicInstant::default(), now());
        assert_eq!(at.load(), None);
        at.store(Some(now));
        assert_eq!(at.load(), Some(now));
        at.store(None);
        assert_eq!((at.load(), AtomicInstant::new(Some(now)).load()), (None, Some(now)));
    }
}
