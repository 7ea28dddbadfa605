//! The times at which the core wants to be called. A core.
//!
//! Each host has one timer, for the first of its connections, dials and requests; when that is handled, it is set for the next. A
//! connection has one of its own, for what no list of connections is in the order of: its lifetime and its server's `Keep-Alive`.

use std::collections::BTreeSet;

use crate::clock::Instant;

/// The timers of the pool. Each owner keeps the time of its own.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(Instant, TimerKey)>,
}

/// The subject of a timer. Of two at the same time, the smaller is handled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// Timeouts of a host's connections, dials and requests.
    Host(usize),
    /// The end of an idle connection's own time.
    Conn(usize),
    /// The next look for addresses that left their names' answers.
    MovedAddresses,
    /// The next try after descriptors ran out.
    Descriptors,
}

impl Timers {
    /// Returns the time of the next timer.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Returns the next timer if its time has come. It stays set until its owner sets or clears it.
    pub(super) fn due(&self, now: Instant) -> Option<TimerKey> {
        self.set.first().filter(|(at, _)| *at <= now).map(|(_, timer)| *timer)
    }

    /// Sets or clears a timer. `own` is its time until now.
    pub(super) fn set(&mut self, timer: TimerKey, own: &mut Option<Instant>, at: Option<Instant>) {
        if *own != at {
            if let Some(old) = std::mem::replace(own, at) {
                self.set.remove(&(old, timer));
            }
            self.set.extend(at.map(|at| (at, timer)));
        }
    }

    /// Sets a timer to `at` unless it is set to an earlier time.
    #[inline]
    pub(super) fn set_earlier(&mut self, timer: TimerKey, own: &mut Option<Instant>, at: Instant) {
        if own.is_none_or(|set| at < set) {
            self.set(timer, own, Some(at));
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn len(&self) -> usize {
        self.set.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timer_moves_to_an_earlier_time_and_is_due_until_it_is_set_anew() {
        let (mut timers, now) = (Timers::default(), crate::clock::now());
        let second = Duration::from_secs(1);
        let mut own = None;
        timers.set_earlier(TimerKey::Host(7), &mut own, now + second);
        timers.set_earlier(TimerKey::Host(7), &mut own, now + second * 2);
        assert_eq!((own, timers.next()), (Some(now + second), Some(now + second)));
        timers.set_earlier(TimerKey::Host(7), &mut own, now);
        assert_eq!((timers.next(), timers.len(), timers.due(now)), (Some(now), 1, Some(TimerKey::Host(7))));
        timers.set(TimerKey::Host(7), &mut own, Some(now + second));
        assert_eq!((timers.due(now), timers.next()), (None, Some(now + second)));
        timers.set(TimerKey::Host(7), &mut own, None);
        assert_eq!((own, timers.len()), (None, 0));
    }

    #[test]
    fn of_two_timers_at_the_same_time_the_smaller_is_handled_first() {
        let (mut timers, now) = (Timers::default(), crate::clock::now());
        for timer in [TimerKey::Descriptors, TimerKey::MovedAddresses] {
            timers.set(timer, &mut None, Some(now));
        }
        assert_eq!(timers.due(now), Some(TimerKey::MovedAddresses));
    }
}
