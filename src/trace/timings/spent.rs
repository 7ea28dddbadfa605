//! The time that a call spent in each phase. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::trace::events::event::Phase;

/// A duration for each phase, indexed by `phase as usize`.
pub(crate) type PhaseTimes = [Duration; Phase::ALL.len()];

/// The phases that a call has left, and when.
///
/// The durations are added up only when they are read: to store one time per phase costs a call on a warm connection less.
#[derive(Debug, Clone)]
pub(in crate::trace) struct Spent {
    /// The sums of the phases left before those in `phases`, up to `since`. `None` if there were none.
    sums: Option<Box<PhaseTimes>>,
    /// The time at which the first of `phases` was entered.
    since: Instant,
    /// The phases left since then. Only the first `count` are in use.
    phases: [Phase; USUAL_PHASES],
    /// The times at which they were left.
    left_at: [Instant; USUAL_PHASES],
    count: u8,
}

/// The number of phases that a call leaves if it opens a connection: queue, DNS, connect, queue, send, wait.
const USUAL_PHASES: usize = 6;

impl Spent {
    #[inline]
    pub(in crate::trace) fn new(start: Instant) -> Self {
        Self {
            sums: None,
            since: start,
            phases: [Phase::Queue; USUAL_PHASES],
            left_at: [start; USUAL_PHASES],
            count: 0,
        }
    }

    /// Records that the call left `phase` at `at`.
    pub(in crate::trace) fn leave(&mut self, phase: Phase, at: Instant) {
        let count = usize::from(self.count);
        if count == USUAL_PHASES {
            self.add_up(phase, at);
        } else {
            self.phases[count] = phase;
            self.left_at[count] = at;
            self.count += 1;
        }
    }

    /// Adds up what a call that is in `phase` at `now` has spent so far.
    pub(in crate::trace) fn add_up(&mut self, phase: Phase, now: Instant) {
        self.sums = Some(Box::new(self.until(phase, now)));
        self.since = now;
        self.count = 0;
    }

    /// Counts a part of the time that was [added up](Self::add_up) for another phase.
    pub(in crate::trace) fn shift(&mut self, from: Phase, to: Phase, time: Duration) {
        if let Some(sums) = &mut self.sums {
            sums[from as usize] -= time;
            sums[to as usize] += time;
        }
    }

    /// Returns the time of each phase of a call that is in `phase` at `now`.
    pub(in crate::trace) fn until(&self, phase: Phase, now: Instant) -> PhaseTimes {
        let mut sums = PhaseTimes::default();
        self.for_each(phase, now, |phase, time| sums[phase as usize] += time);
        sums
    }

    /// Calls `add` with each time spent in a phase by a call that is in `phase` at `now`. A phase may come several times.
    pub(in crate::trace) fn for_each(&self, phase: Phase, now: Instant, mut add: impl FnMut(Phase, Duration)) {
        if let Some(sums) = &self.sums {
            Phase::ALL.into_iter().for_each(|phase| add(phase, sums[phase as usize]));
        }
        let mut since = self.since;
        let count = usize::from(self.count);
        for (phase, at) in self.phases[..count].iter().zip(&self.left_at[..count]) {
            add(*phase, *at - since);
            since = *at;
        }
        add(phase, now - since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_however_often_they_are_entered() {
        let start = crate::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut spent = Spent::new(start);
        for round in 0..20 {
            spent.leave(Phase::Queue, at(round * 10 + 3));
            spent.leave(Phase::Send, at(round * 10 + 10));
        }
        let times = spent.until(Phase::Wait, at(205));
        assert_eq!(times[Phase::Queue as usize], Duration::from_millis(20 * 3));
        assert_eq!(times[Phase::Send as usize], Duration::from_millis(20 * 7));
        assert_eq!(times[Phase::Wait as usize], Duration::from_millis(5));
        assert_eq!(times.iter().sum::<Duration>(), Duration::from_millis(205));
    }
}
