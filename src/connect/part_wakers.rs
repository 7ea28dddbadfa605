//! Wakers for the parts of one task, by which it knows whose turn it is, and is not polled again for what it does to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// A part of a task, or several of them.
pub(super) type Parts = u8;

/// Some part is being polled.
const POLLED: u8 = 1 << 7;

struct Shared {
    /// The parts that were woken, and whether the task looks after them anyway.
    state: AtomicU8,
    task: AtomicWaker,
}

/// Wakers for `N` parts of a task.
pub(super) struct Bells<const N: usize> {
    shared: Arc<Shared>,
    wakers: [Waker; N],
}

struct Bell {
    shared: Arc<Shared>,
    part: Parts,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Where another part was woken, so was the task.
        if self.shared.state.fetch_or(self.part, Ordering::AcqRel) == 0 {
            self.shared.task.wake();
        }
    }
}

/// How often a task goes round: a part may wake itself for want of a budget, which only another task's turn brings.
const ROUNDS: usize = 2;

impl<const N: usize> Bells<N> {
    /// All parts are to be polled for a first time.
    pub(super) fn new() -> Self {
        let shared = Arc::new(Shared { state: AtomicU8::new((1 << N) - 1), task: AtomicWaker::new() });
        let wakers = std::array::from_fn(|part| Arc::new(Bell { shared: shared.clone(), part: 1 << part }).into());
        Self { shared, wakers }
    }

    /// The waker of the part with this number.
    pub(super) fn waker(&self, part: usize) -> &Waker {
        &self.wakers[part]
    }

    /// Has `poll` poll the parts that were woken, and those that are woken by it; it says whether that was all.
    pub(super) fn poll(&self, cx: &mut Context<'_>, mut poll: impl FnMut(Parts) -> bool) -> bool {
        let Shared { state, task } = &*self.shared;
        task.register(cx.waker());
        for _ in 0..ROUNDS {
            let woken = state.swap(POLLED, Ordering::AcqRel) & !POLLED;
            if woken == 0 {
                break;
            }
            if poll(woken) {
                return true;
            }
        }
        if state.fetch_and(!POLLED, Ordering::AcqRel) != POLLED {
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

    /// What one poll had polled, and how often the task was woken since the last one; `wakes` are woken in each round.
    fn round(bells: &Bells<2>, count: &Arc<Count>, wakes: &[&[usize]]) -> (Vec<Parts>, usize) {
        let waker = count.clone().into();
        let (mut polled, mut left) = (Vec::new(), wakes.iter());
        bells.poll(&mut Context::from_waker(&waker), |parts| {
            polled.push(parts);
            left.next().into_iter().copied().flatten().for_each(|part| bells.waker(*part).wake_by_ref());
            false
        });
        (polled, count.0.swap(0, Ordering::Relaxed))
    }

    #[test]
    fn whom_it_wakes_itself_it_polls_at_once() {
        let (bells, count) = (Bells::new(), Arc::default());
        assert_eq!(round(&bells, &count, &[]), (vec![0b11], 0), "all of them to begin with");
        assert_eq!(round(&bells, &count, &[]), (vec![], 0), "and nobody for nothing");
        bells.waker(1).wake_by_ref();
        bells.waker(0).wake_by_ref();
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1, "once for both");
        assert_eq!(round(&bells, &count, &[&[0]]), (vec![0b11, 0b01], 0));
        bells.waker(1).wake_by_ref();
        assert_eq!(round(&bells, &count, &[&[], &[]]), (vec![0b10], 1), "the one before the poll");
    }

    #[test]
    fn who_wakes_itself_for_ever_lets_others_have_a_turn() {
        let (bells, count) = (Bells::new(), Arc::default());
        assert_eq!(round(&bells, &count, &[&[0], &[0]]), (vec![0b11, 0b01], 1));
        assert_eq!(round(&bells, &count, &[&[], &[]]), (vec![0b01], 0));
        bells.waker(0).wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "it is woken from outside again");
    }

    #[test]
    fn it_is_over_when_the_parts_say_so() {
        let bells = Bells::<1>::new();
        assert!(bells.poll(&mut Context::from_waker(Waker::noop()), |_| true));
    }
}
