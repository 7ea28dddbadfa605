//! The crate's ways to lock a mutex, what a task brings to many, and a task's budget.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{Map, Shared};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::task::coop::{has_budget_remaining, poll_proceed, unconstrained};

#[cfg(not(test))]
pub(crate) use std::cell::Cell as PerThread;

#[cfg(test)]
pub(crate) use under_test::{PerThread, explore, point, rounds, until, until_free};

/// Returns the runtime of the current thread, if it is in one.
pub(crate) fn current_runtime() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// Locks a mutex, even if a thread panicked while it held the lock.
///
/// Use it for data that is never left half changed: a panic in one task must not make every later task panic as well.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    until_free(|| !matches!(mutex.try_lock(), Err(std::sync::TryLockError::WouldBlock)));
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex of parking_lot, which keeps its speed where threads outnumber processor cores.
#[inline]
pub(crate) fn lock_quick<T>(mutex: &parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    #[cfg(test)]
    until_free(|| !mutex.is_locked());
    mutex.lock()
}

/// Returns `future` so that it goes on without a budget. What it waits for is [spent](spend_budget) when it has come.
pub(crate) fn free_of<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    unconstrained(future)
}

// tokio lets a task yield once it has used its channels and sockets 128 times in one turn (`tokio::task::coop`).
//
// A call takes its response, and the first frame of the body, without waiting for the budget: both have come. Of 1,000 calls of one task
// whose responses are there, all but 128 would be polled in vain, turn after turn. What a call takes it spends all the same, and the
// next call waits for a turn if nothing is left, so that a task of calls whose responses are always there yields as well. The frames
// after the first wait for the budget.

/// Spends the budget for something that has been taken, if any is left.
#[inline]
pub(crate) fn spend_budget(cx: &mut Context<'_>) {
    if has_budget()
        && let Poll::Ready(spent) = poll_proceed(cx)
    {
        spent.made_progress();
    }
}

/// Returns true if something of the budget is left.
pub(crate) fn has_budget() -> bool {
    has_budget_remaining()
}

/// Ready if something of the budget is left. Pending until the task's next turn otherwise.
#[inline]
pub(crate) fn poll_budget(cx: &mut Context<'_>) -> Poll<()> {
    if has_budget() { Poll::Ready(()) } else { poll_proceed(cx).map(drop) }
}

/// Waits for the task's next turn if nothing of the budget is left. Returns true if it has waited.
#[inline]
pub(crate) async fn yield_without_budget() -> bool {
    let is_spent = !has_budget();
    if is_spent {
        tokio::task::yield_now().await;
    }
    is_spent
}

/// Lets another thread go on, in a test that runs under many schedules.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

type Receiver<T> = Shared<Map<oneshot::Receiver<T>, fn(Result<T, RecvError>) -> Option<T>>>;

/// A channel for one value, which a task sends once and all who wait for it receive.
#[derive(Clone)]
pub(crate) struct Landing<T: Clone> {
    /// The runtime of the task.
    runtime: Option<runtime::Id>,
    sender: Arc<Mutex<Option<oneshot::Sender<T>>>>,
    /// Unlike a `watch` channel, it wakes those who wait in the order in which they came.
    receiver: Receiver<T>,
}

impl<T: Clone> Landing<T> {
    /// Takes the end at which the task tells what it brings. If that is dropped, the task is lost.
    pub(crate) fn take_sender(&self) -> Option<oneshot::Sender<T>> {
        lock(&self.sender).take()
    }

    /// Returns true if the task runs on another runtime, which may be blocked or not driven.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.runtime != current_runtime()
    }

    /// Waits for the task. `None` if it was lost.
    pub(crate) fn wait(&self) -> impl Future<Output = Option<T>> + Unpin + use<T> {
        self.receiver.clone()
    }
}

impl<T: Clone> Default for Landing<T> {
    /// Creates that of a task which is begun on the current runtime.
    fn default() -> Self {
        let (sender, receiver) = oneshot::channel();
        let receiver = receiver.map(Result::ok as fn(_) -> _).shared();
        Self { runtime: current_runtime(), sender: Arc::new(Mutex::new(Some(sender))), receiver }
    }
}

impl<T: Clone> fmt::Debug for Landing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Landing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_usable_after_a_panic_under_its_lock() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _guard = lock(&mutex);
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(panicking.join().is_err());
        });
        assert!(mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
    }
}

#[cfg(test)]
mod budget_tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// Spends the budget of this turn and returns how often that went.
    fn spend_all(cx: &mut Context<'_>) -> usize {
        std::iter::from_fn(|| poll_budget(cx).is_ready().then(|| spend_budget(cx))).count()
    }

    #[tokio::test]
    async fn what_is_taken_without_a_budget_is_spent_as_far_as_there_is_one() {
        let whole = poll_fn(|cx| Poll::Ready(spend_all(cx))).await;
        tokio::task::yield_now().await;
        poll_fn(|cx| {
            spend_budget(cx);
            assert_eq!(spend_all(cx), whole - 1);
            spend_budget(cx);
            let (sender, receiver) = tokio::sync::oneshot::channel();
            sender.send(()).unwrap();
            let mut receiver = pin!(free_of(receiver));
            assert!(receiver.as_mut().poll(cx).is_ready(), "it takes what has come");
            Poll::Ready(())
        })
        .await;
        assert!(yield_without_budget().await, "a call that begins now waits");
        assert!(!yield_without_budget().await, "the next turn has a budget of its own");
    }

    #[test]
    fn outside_of_a_runtime_the_budget_is_never_spent() {
        let mut cx = Context::from_waker(Waker::noop());
        assert!((0..1_000).all(|_| {
            spend_budget(&mut cx);
            poll_budget(&mut cx).is_ready()
        }));
    }
}

// A program has no code for these. In a test below `explore`, all threads are those of shuttle: one runs at a time, and shuttle chooses at
// each `point` which one goes on. The drivers' locks, channels and tasks stay the real ones. A driver has a point before each lock, and
// before what it does outside of the lock that other threads can see.
#[cfg(test)]
mod under_test {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use shuttle::current::{TaskId, try_get_current_task};
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, MaxSteps, Runner, thread};

    /// Lets another thread go on, in a test that runs under many schedules.
    pub(crate) fn point() {
        if is_scheduled() {
            // Sleeping takes no time here: it lets the schedule choose.
            thread::sleep(Duration::ZERO);
        }
    }

    // While a panic unwinds, the schedule stands still: a second thread could not panic.
    fn is_scheduled() -> bool {
        !std::thread::panicking() && try_get_current_task().is_some()
    }

    /// Lets other threads go on, and does so until a lock is free that one of them holds.
    pub(crate) fn until_free(is_free: impl Fn() -> bool) {
        point();
        while is_scheduled() && !is_free() {
            thread::yield_now();
        }
    }

    /// A value for each thread, those of a schedule included, which all are one thread to the standard library.
    #[derive(Debug)]
    pub(crate) struct PerThread<T> {
        initial: T,
        values: RefCell<BTreeMap<Option<TaskId>, T>>,
    }

    impl<T: Copy> PerThread<T> {
        pub(crate) const fn new(initial: T) -> Self {
            Self { initial, values: RefCell::new(BTreeMap::new()) }
        }

        pub(crate) fn get(&self) -> T {
            self.values.borrow().get(&try_get_current_task()).copied().unwrap_or(self.initial)
        }

        pub(crate) fn set(&self, value: T) {
            self.replace(value);
        }

        pub(crate) fn replace(&self, value: T) -> T {
            self.values.borrow_mut().insert(try_get_current_task(), value).unwrap_or(self.initial)
        }
    }

    /// The most steps of one schedule. A thread that waits in vain takes more.
    const MAX_STEPS: usize = 8_000;

    /// Runs `scenario` under `schedules` random schedules, and under a third as many in which few threads overtake each other.
    /// `SCHEDULES` in the environment multiplies them.
    ///
    /// The threads of the scenario are to be shuttle's. One more is the worker of a tokio runtime in paused time: in each of its rounds
    /// a task runs and a millisecond passes.
    pub(crate) fn explore(schedules: usize, scenario: fn()) {
        let times = std::env::var("SCHEDULES").map_or(1, |times| times.parse().expect("a number"));
        let schedules = schedules * times;
        let mut config = Config::new();
        config.stack_size = 1 << 19;
        config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
        config.silence_warnings = true;
        // Always the same schedules, or more of them.
        let random = RandomScheduler::new_from_seed(26, schedules);
        Runner::new(random, config.clone()).run(move || beside_a_worker(scenario));
        let pct = PctScheduler::new_from_seed(26, 3, schedules / 3);
        Runner::new(pct, config).run(move || beside_a_worker(scenario));
    }

    std::thread_local! {
        /// The rounds of all workers so far.
        static ROUNDS: Cell<u64> = const { Cell::new(0) };
    }

    fn beside_a_worker(scenario: fn()) {
        fastrand::seed(26);
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().start_paused(true).event_interval(1).build().expect("a runtime");
        let runtime = Arc::new(runtime);
        let is_over = Arc::new(AtomicBool::new(false));
        let entered = runtime.enter();
        let worker = {
            let (runtime, is_over) = (runtime.clone(), is_over.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    runtime.block_on(tokio::time::advance(Duration::from_millis(1)));
                    ROUNDS.set(ROUNDS.get() + 1);
                    thread::yield_now();
                }
            })
        };
        scenario();
        is_over.store(true, Ordering::SeqCst);
        worker.join().expect("the worker does not panic");
        drop(entered);
    }

    /// Waits until `is_so` returns true. The schedule fails if it never does.
    pub(crate) fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::yield_now();
        }
    }

    /// Waits until the worker has gone through `count` rounds.
    pub(crate) fn rounds(count: u64) {
        let end = ROUNDS.get() + count;
        until(|| ROUNDS.get() >= end);
    }
}
