//! The times at which the core wants to be called. A core.
//!
//! Each host has one timer, for the first of its connections, dials and requests; when that is handled, it is set for the next.

use std::collections::BTreeSet;

use crate::clock::Instant;

/// The timers of the pool.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(Instant, Timer)>,
    descriptors: Option<Instant>,
    moved_addresses: Option<Instant>,
}

/// The subject of a timer. Of two at the same time, the smaller is handled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Timeouts of a host's connections, dials and requests.
    Host(usize),
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
    pub(super) fn due(&self, now: Instant) -> Option<Timer> {
        self.set.first().filter(|(at, _)| *at <= now).map(|(_, timer)| *timer)
    }

    /// Sets a host's timer to `at` unless it is earlier. `own` is the time of that timer.
    #[inline]
    pub(super) fn set_host(&mut self, host: usize, own: &mut Option<Instant>, at: Instant) {
        if own.is_none_or(|set| at < set) {
            self.clear_host(host, own);
            *own = Some(at);
            self.set.insert((at, Timer::Host(host)));
        }
    }

    /// Clears a host's timer.
    pub(super) fn clear_host(&mut self, host: usize, own: &mut Option<Instant>) {
        if let Some(at) = own.take() {
            self.set.remove(&(at, Timer::Host(host)));
        }
    }

    /// Sets or clears the timer for descriptors.
    pub(super) fn set_descriptors(&mut self, at: Option<Instant>) {
        let old = std::mem::replace(&mut self.descriptors, at);
        self.replace(Timer::Descriptors, old, at);
    }

    /// Sets or clears the timer for moved addresses.
    pub(super) fn set_moved_addresses(&mut self, at: Option<Instant>) {
        let old = std::mem::replace(&mut self.moved_addresses, at);
        if old != at {
            self.replace(Timer::MovedAddresses, old, at);
        }
    }

    fn replace(&mut self, timer: Timer, old: Option<Instant>, new: Option<Instant>) {
        if let Some(old) = old {
            self.set.remove(&(old, timer));
        }
        self.set.extend(new.map(|at| (at, timer)));
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
    fn a_hosts_timer_moves_only_to_an_earlier_time() {
        let (mut timers, now) = (Timers::default(), crate::clock::now());
        let second = Duration::from_secs(1);
        let mut own = None;
        timers.set_host(7, &mut own, now + second);
        timers.set_host(7, &mut own, now + second * 2);
        assert_eq!((own, timers.next()), (Some(now + second), Some(now + second)));
        timers.set_host(7, &mut own, now);
        assert_eq!((timers.next(), timers.len()), (Some(now), 1));
        timers.clear_host(7, &mut own);
        assert_eq!((own, timers.len()), (None, 0));
    }

    #[test]
    fn a_timer_is_due_until_it_is_set_anew() {
        let (mut timers, now) = (Timers::default(), crate::clock::now());
        let later = now + Duration::from_secs(1);
        timers.set_descriptors(Some(now));
        timers.set_moved_addresses(Some(now));
        assert_eq!(timers.due(now), Some(Timer::MovedAddresses));
        timers.set_moved_addresses(None);
        assert_eq!(timers.due(now), Some(Timer::Descriptors));
        timers.set_descriptors(Some(later));
        assert_eq!((timers.due(now), timers.next()), (None, Some(later)));
    }
}
