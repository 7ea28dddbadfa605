//! The limit on connections after file descriptors (EMFILE, ENFILE) or local ports ran out. A core.
//!
//! A dial that finds none is postponed. From then on the pool has no more connections than it had, and tries one more from
//! time to time. Each connection that opens raises the limit, by twice as much each time, until it no longer matters.

use std::time::Duration;

use crate::clock::Instant;

/// The number of connections that the process has descriptors for, as far as is known.
#[derive(Debug, Default)]
pub(in crate::pool::state) struct Descriptors {
    /// The most slots that may be taken. `None` if no dial failed for want of descriptors lately.
    ceiling: Option<usize>,
    /// The amount by which the ceiling rises when the next connection opens.
    step: usize,
    /// The time between two tries.
    delay: Duration,
    /// True if another connection was tried, or opened, since descriptors ran out last. Failures before that count once.
    was_tried: bool,
    /// The time of the next try, if one is planned.
    pub(in crate::pool::state) timer: Option<Instant>,
}

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// The ceiling beyond which it is dropped.
const HIGHEST_CEILING: usize = 1 << 16;

impl Descriptors {
    /// Returns true if there may be another connection beside those in `slots`.
    pub(in crate::pool::state) fn allow(&self, slots: usize) -> bool {
        self.ceiling.is_none_or(|ceiling| slots < ceiling)
    }

    /// Returns true if descriptors ran out, and not enough connections have opened since then.
    pub(in crate::pool::state) fn have_run_out(&self) -> bool {
        self.ceiling.is_some()
    }

    /// Notes that a dial found no descriptor beside those of the connections in `slots`. Returns the time to
    /// [try another](Self::try_another), if that has changed.
    pub(in crate::pool::state) fn ran_out(&mut self, now: Instant, slots: usize) -> Option<Instant> {
        let had_run_out = self.have_run_out();
        self.ceiling = Some(self.ceiling.map_or(slots, |ceiling| ceiling.min(slots)));
        self.step = 1;
        if had_run_out && !self.was_tried {
            return None;
        }
        self.delay = if had_run_out { (self.delay * 2).min(LONGEST_DELAY) } else { FIRST_DELAY };
        self.was_tried = false;
        Some(now + self.delay)
    }

    /// Notes that a connection opened: there may be more of them.
    pub(in crate::pool::state) fn opened_one(&mut self) {
        let Some(ceiling) = self.ceiling else { return };
        let raised = ceiling + self.step;
        self.delay = FIRST_DELAY;
        self.was_tried = true;
        self.step *= 2;
        self.ceiling = if raised < HIGHEST_CEILING { Some(raised) } else { None };
    }

    /// Allows one more connection than those in `slots`, or any number if none `is_wanted`. Returns the time of the next try.
    pub(in crate::pool::state) fn try_another(
        &mut self,
        now: Instant,
        slots: usize,
        is_wanted: bool,
    ) -> Option<Instant> {
        if !is_wanted {
            self.ceiling = None;
        }
        let ceiling = self.ceiling?;
        self.was_tried = true;
        self.ceiling = Some(ceiling.max(slots + 1));
        Some(now + self.delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn connections_are_limited_to_what_there_was_and_one_more_is_tried_from_time_to_time() {
        let (mut descriptors, now) = (Descriptors::default(), crate::clock::now());
        assert!(descriptors.allow(1_000_000));
        assert_eq!(descriptors.ran_out(now, 10), Some(now + ms(50)));
        assert_eq!(descriptors.ran_out(now, 10), None, "a failure of the same moment counts once");
        assert!(descriptors.allow(9) && !descriptors.allow(10));
        assert_eq!(descriptors.try_another(now, 10, true), Some(now + ms(50)));
        assert!(descriptors.allow(10) && !descriptors.allow(11));
        assert_eq!(descriptors.ran_out(now, 10), Some(now + ms(100)), "the next try failed, too");
        descriptors.try_another(now, 10, true);
        assert_eq!(descriptors.ran_out(now, 10), Some(now + ms(200)));
        assert!(!descriptors.allow(10));
    }

    #[test]
    fn the_limit_is_gone_soon_after_connections_open_again() {
        let (mut descriptors, now) = (Descriptors::default(), crate::clock::now());
        descriptors.ran_out(now, 0);
        assert!(!descriptors.allow(0));
        descriptors.try_another(now, 0, true);
        let mut slots = 0;
        while descriptors.ceiling.is_some() {
            assert!(descriptors.allow(slots));
            slots += 1;
            descriptors.opened_one();
        }
        assert!(slots < 20);
    }

    #[test]
    fn the_limit_rises_by_twice_as_much_each_time_until_it_is_dropped_at_the_highest() {
        let (mut descriptors, now) = (Descriptors::default(), crate::clock::now());
        descriptors.ran_out(now, 10);
        for ceiling in [11, 13, 17] {
            descriptors.opened_one();
            assert_eq!(descriptors.ceiling, Some(ceiling));
        }
        for (slots, ceiling) in [(HIGHEST_CEILING - 2, Some(HIGHEST_CEILING - 1)), (HIGHEST_CEILING - 1, None)] {
            let mut descriptors = Descriptors::default();
            descriptors.ran_out(now, slots);
            descriptors.opened_one();
            assert_eq!(descriptors.ceiling, ceiling);
        }
    }
}
