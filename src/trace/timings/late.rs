//! A core: the parts of a call's time by which its runtime was late.

use std::time::Duration;

use smallvec::SmallVec;

use crate::trace::events::event::Phase;

/// The least time by which a runtime is late that is told.
pub(crate) const LATE: Duration = Duration::from_millis(10);

/// The thing that a runtime came to late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LateKind {
    /// What the call waited for was here: its connection, or bytes of its peer.
    Unread,
    /// A timer of the call was due, and the call had not acted on it.
    Timer,
    /// The second attempt at a hedged request, which counted in the end, was due.
    Hedge,
}

/// A part of a phase's time by which the runtime was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) phase: Phase,
    pub(crate) kind: LateKind,
    /// The time from the call's start until the first of these parts.
    pub(crate) from: Duration,
    /// The sum of these parts.
    pub(crate) by: Duration,
    /// The time from the call's start until the end of the last of these parts.
    pub(crate) until: Duration,
}

/// The parts of a call's time by which its runtime was late: those of the last request, and the waits before earlier ones.
#[derive(Debug, Clone)]
pub(crate) struct LateParts(SmallVec<[Late; 2]>);

impl LateParts {
    pub(super) const NONE: Self = Self(SmallVec::new_const());

    /// Adds a part to those of its phase and kind in the last request, which began at `started`. What two parts share counts once: a
    /// runtime that was blocked comes late to everything that happened meanwhile.
    pub(super) fn add(&mut self, mut late: Late, started: Duration) {
        let counted = self.0.iter().map(|other| other.until).max().unwrap_or_default().max(late.from);
        let by = late.until.saturating_sub(counted).min(late.by);
        if by.is_zero() {
            return;
        }
        (late.from, late.by) = (late.until - by, by);
        let is_like = |other: &&mut Late| (other.phase, other.kind) == (late.phase, late.kind) && other.from >= started;
        match self.0.iter_mut().find(is_like) {
            Some(sum) => (sum.by, sum.until) = (sum.by + late.by, late.until),
            None => self.0.push(late),
        }
    }

    /// Leaves the waits before requests and before hedges, as one part each, when a request ends that is not the last one. The others are
    /// its own.
    pub(super) fn end_request(&mut self) {
        let is_before = |late: &Late| late.phase == Phase::Backoff || late.kind == LateKind::Hedge;
        let mut sums = SmallVec::<[Late; 2]>::new();
        for wait in self.0.iter().filter(|late| is_before(late)) {
            match sums.iter_mut().find(|sum| sum.kind == wait.kind) {
                Some(sum) => (sum.by, sum.until) = (sum.by + wait.by, wait.until),
                None => sums.push(*wait),
            }
        }
        self.0 = sums;
    }

    /// Returns the sum of the parts of a phase that are of this kind.
    pub(crate) fn of(&self, phase: Phase, kind: LateKind) -> Duration {
        self.0.iter().filter(|late| (late.phase, late.kind) == (phase, kind)).map(|late| late.by).sum()
    }

    /// Returns the sum of the parts that began before `started`.
    pub(super) fn before(&self, started: Duration) -> Duration {
        self.0.iter().filter(|late| late.from < started).map(|late| late.by).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Late> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::ms;
    use super::*;

    fn late(phase: Phase, kind: LateKind, from: u64, by: u64) -> Late {
        Late { phase, kind, from: ms(from), by: ms(by), until: ms(from + by) }
    }

    #[test]
    fn parts_of_one_request_add_up_and_only_waits_outlast_it() {
        let mut parts = LateParts::NONE;
        parts.add(late(Phase::Receive, LateKind::Unread, 10, 20), ms(0));
        parts.add(late(Phase::Receive, LateKind::Unread, 50, 30), ms(0));
        parts.add(late(Phase::Receive, LateKind::Timer, 90, 10), ms(0));
        assert_eq!(parts.of(Phase::Receive, LateKind::Unread), ms(50));
        assert_eq!(parts.iter().map(|late| late.from).collect::<Vec<_>>(), [ms(10), ms(90)]);
        parts.end_request();
        assert_eq!(parts.iter().count(), 0);
        for nth in 0..9 {
            parts.add(late(Phase::Backoff, LateKind::Timer, 100 * nth + 100, 20), ms(100 * nth + 100));
            assert_eq!(
                parts.iter().last().map(|late| late.from),
                Some(ms(100 * nth + 100)),
                "that of the last request is its own"
            );
            parts.end_request();
        }
        assert_eq!((parts.of(Phase::Backoff, LateKind::Timer), parts.iter().count()), (ms(180), 1));
    }
}
