//! The places at which another thread may go on, for tests of the drivers under many thread schedules.
//!
//! A program has no code for them. In a test below [`explore`], all threads are those of shuttle: one runs at a time, and shuttle
//! chooses at each [`point`] which one goes on. The drivers' locks, channels and tasks stay the real ones. A driver has a point before
//! each lock, and before what it does outside of the lock that other threads can see.

#[cfg(not(test))]
pub(crate) use std::cell::Cell as PerThread;

#[cfg(test)]
pub(crate) use under_test::{PerThread, explore, point, rounds, until, until_free};

/// Lets another thread go on, in a test that runs under many schedules.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

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
