//! Wakers for the parts of one task: the task polls only the parts that were woken.
//!
//! A part that wakes another one while the task runs does not wake the task; the task polls the other part in the same
//! turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A set of parts: bit `n` stands for part `n`.
pub(in crate::connect) type PartSet = u8;

/// The bit that is set in [`WakeState::woken`] while the task polls its parts.
const POLLING: u8 = 1 << 7;

/// The most rounds of one poll. A part may wake itself in each round because it has used up its tokio budget, which is
/// renewed only when the task yields.
const MAX_ROUNDS: usize = 2;

/// Shared by the task and the wakers of its parts.
struct WakeState {
    /// The parts that were woken, and [`POLLING`].
    woken: AtomicU8,
    task: AtomicWaker,
}

/// The wakers of the `N` parts of a task; `N` is at most 7.
pub(in crate::connect) struct PartWakers<const N: usize> {
    state: Arc<WakeState>,
    wakers: [Waker; N],
}

struct PartWaker {
    state: Arc<WakeState>,
    part: PartSet,
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If a part was woken before, the task was woken then; if the task is polling, it will see the bit.
        if self.state.woken.fetch_or(self.part, Ordering::AcqRel) == 0 {
            self.state.task.wake();
        }
    }
}

impl<const N: usize> PartWakers<N> {
    /// Creates the wakers. All parts count as woken, so that each is polled a first time.
    pub(in crate::connect) fn new() -> Self {
        let state = Arc::new(WakeState { woken: AtomicU8::new((1 << N) - 1), task: AtomicWaker::new() });
        let wakers = std::array::from_fn(|part| Arc::new(PartWaker { state: state.clone(), part: 1 << part }).into());
        Self { state, wakers }
    }

    /// Returns the waker of the part with this number.
    pub(in crate::connect) fn waker(&self, part: usize) -> &Waker {
        &self.wakers[part]
    }

    /// Takes the wake-up of the part with this number; returns false if there is none. For use while the parts are polled.
    pub(in crate::connect) fn take(&self, part: usize) -> bool {
        let part: PartSet = 1 << part;
        // Mostly there is none, and reading is cheaper.
        let WakeState { woken, .. } = &*self.state;
        woken.load(Ordering::Relaxed) & part != 0 && woken.fetch_and(!part, Ordering::AcqRel) & part != 0
    }

    /// Calls `poll` with the parts that were woken, and again with those that it has woken.
    ///
    /// `poll` returns true if the task is over, and so does this function.
    pub(in crate::connect) fn poll(&self, cx: &mut Context<'_>, mut poll: impl FnMut(PartSet) -> bool) -> bool {
        let WakeState { woken, task } = &*self.state;
        task.register(cx.waker());
        for _ in 0..MAX_ROUNDS {
            let parts = woken.swap(POLLING, Ordering::AcqRel) & !POLLING;
            if parts == 0 {
                break;
            }
            if poll(parts) {
                return true;
            }
        }
        if woken.fetch_and(!POLLING, Ordering::AcqRel) != POLLING {
            // Some part is still woken: the task takes another turn.
            cx.waker().wake_by_ref();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls once. Returns the parts that were polled in each round, and the number of wakes of the task since the last
    /// call. In round `n` the parts of `wakes[n]` are woken.
    fn poll_once(wakers: &PartWakers<2>, count: &Arc<Count>, wakes: &[&[usize]]) -> (Vec<PartSet>, usize) {
        let waker = count.clone().into();
        let mut polled = Vec::new();
        let mut left = wakes.iter();
        wakers.poll(&mut Context::from_waker(&waker), |parts| {
            polled.push(parts);
            left.next().into_iter().copied().flatten().for_each(|part| wakers.waker(*part).wake_by_ref());
            false
        });
        (polled, count.0.swap(0, Ordering::Relaxed))
    }

    #[test]
    fn a_part_that_is_woken_by_the_task_itself_is_polled_in_the_same_turn() {
        let (wakers, count) = (PartWakers::new(), Arc::default());
        assert_eq!(poll_once(&wakers, &count, &[]), (vec![0b11], 0), "all parts to begin with");
        assert_eq!(poll_once(&wakers, &count, &[]), (vec![], 0), "no part was woken");
        wakers.waker(1).wake_by_ref();
        wakers.waker(0).wake_by_ref();
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1, "one wake for both parts");
        assert_eq!(poll_once(&wakers, &count, &[&[0]]), (vec![0b11, 0b01], 0));
        wakers.waker(1).wake_by_ref();
        assert_eq!(poll_once(&wakers, &count, &[&[], &[]]), (vec![0b10], 1), "one wake, before the poll");
    }

    #[test]
    fn a_wake_up_that_is_taken_leads_to_no_other_round() {
        let (wakers, count) = (PartWakers::<2>::new(), Arc::<Count>::default());
        let waker = count.clone().into();
        let mut polled = Vec::new();
        wakers.poll(&mut Context::from_waker(&waker), |parts| {
            wakers.waker(1).wake_by_ref();
            polled.push((parts, wakers.take(0), wakers.take(1), wakers.take(1)));
            false
        });
        assert_eq!(polled, [(0b11, false, true, false)]);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_part_that_always_wakes_itself_does_not_keep_the_task_from_yielding() {
        let (wakers, count) = (PartWakers::new(), Arc::default());
        assert_eq!(poll_once(&wakers, &count, &[&[0], &[0]]), (vec![0b11, 0b01], 1));
        assert_eq!(poll_once(&wakers, &count, &[&[], &[]]), (vec![0b01], 0));
        wakers.waker(0).wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "a wake from outside wakes the task again");
    }

    #[test]
    fn the_task_is_over_when_its_parts_are() {
        let wakers = PartWakers::<1>::new();
        assert!(wakers.poll(&mut Context::from_waker(Waker::noop()), |_| true));
    }
}
