//! The time for which the machine was suspended. The runtime's clock may stand still meanwhile (CLOCK_MONOTONIC on Linux), and what is
//! remembered ages nevertheless: idle connections, answers of DNS, tokens.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::os;

/// The nanoseconds for which the machine was suspended since the process first asked.
static SUSPENDED: AtomicU64 = AtomicU64::new(0);

/// The nanoseconds for which the machine had been suspended when the process first asked.
static BEFORE: OnceLock<u64> = OnceLock::new();

/// The shortest suspension that counts. Shorter ones may be the time between two readings of clocks.
const SHORTEST: u64 = 1_000_000_000;

/// Looks whether the machine was suspended. From then on, the crate's time is that much later.
pub(crate) fn note_suspension() {
    let Some(suspended) = os::suspended().map(|time| time.as_nanos() as u64) else { return };
    let now = suspended.saturating_sub(*BEFORE.get_or_init(|| suspended));
    if now >= SUSPENDED.load(Ordering::Relaxed) + SHORTEST {
        SUSPENDED.fetch_max(now, Ordering::Relaxed);
    }
}

/// Returns the nanoseconds of all suspensions that were noted.
#[inline]
pub(super) fn suspended_nanos() -> u64 {
    #[cfg(test)]
    return SUSPENDED.load(Ordering::Relaxed) + IN_TEST.get();
    #[cfg(not(test))]
    SUSPENDED.load(Ordering::Relaxed)
}

#[cfg(test)]
thread_local! {
    /// The suspension that a test has made up, in nanoseconds.
    static IN_TEST: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Has the machine have been suspended, as far as this thread is concerned.
#[cfg(test)]
pub(crate) fn suspend(time: std::time::Duration) {
    IN_TEST.set(IN_TEST.get() + time.as_nanos() as u64);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{Instant, now, sleep_until};

    #[tokio::test(start_paused = true)]
    async fn the_time_is_later_after_a_suspension_and_timers_take_as_long_as_ever() {
        let (start, on_runtime) = (now(), now().into_std());
        suspend(Duration::from_secs(3_600));
        assert_eq!(now() - start, Duration::from_secs(3_600));
        assert_eq!((now().into_std(), Instant::from_std(on_runtime)), (on_runtime, now()));
        sleep_until(now().checked_add(Duration::from_millis(5))).await;
        assert_eq!(now().into_std() - on_runtime, Duration::from_millis(5));
    }

    #[test]
    fn no_suspension_is_seen_where_there_was_none() {
        note_suspension();
        note_suspension();
        assert_eq!(SUSPENDED.load(Ordering::Relaxed), 0);
    }
}
