//! Runs the state that a timer's task shares with its callers under many thread schedules: no time may be lost.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "a runtime that goes away is another test's")]
#[path = "../../src/clock/task_state.rs"]
mod task_state;

use std::collections::BTreeSet;
use std::sync::Arc;

use shuttle::sync::atomic::AtomicBool;
use shuttle::thread::{self, JoinHandle};
use sync::{AtomicU64, Mutex, Ordering};
use task_state::{TaskAction, TaskState};

/// The primitives that `task_state.rs` uses, here those of shuttle, which controls the schedule.
mod sync {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};
}

/// An owner of a timer, like the pool or the DNS cache: it must be called at each of its times.
struct Owner {
    state: TaskState,
    wanted: Mutex<BTreeSet<u64>>,
    clock: AtomicU64,
    bell: AtomicBool,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Owner {
    fn new() -> Arc<Self> {
        let (wanted, tasks) = (Mutex::new(BTreeSet::new()), Mutex::new(Vec::new()));
        let (clock, bell) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { state: TaskState::new(), wanted, clock, bell, tasks })
    }

    /// Adds a time, then sets the timer, as a driver does after each step of its core. If the first time stays the same, the timer
    /// already knows it.
    fn want(self: &Arc<Self>, at: u64) {
        let (before, next) = {
            let mut wanted = self.wanted.lock().unwrap();
            let before = wanted.first().copied();
            wanted.insert(at);
            (before, wanted.first().copied())
        };
        let first = next.unwrap();
        let action = match next == before {
            true => self.state.restart(first, true),
            false => self.state.set(first, || true),
        };
        match action {
            TaskAction::Nothing => {}
            TaskAction::Wake => self.bell.store(true, Ordering::SeqCst),
            TaskAction::Start => {
                let owner = self.clone();
                let task = thread::spawn(move || owner.watch());
                self.tasks.lock().unwrap().push(task);
            }
        }
    }

    /// Runs the timer's task. The clock advances only while the task sleeps.
    fn watch(&self) {
        while let Some(until) = self.state.sleeps_until() {
            thread::yield_now();
            if !self.bell.swap(false, Ordering::SeqCst) {
                self.clock.fetch_max(until, Ordering::SeqCst);
            }
            let now = self.clock.load(Ordering::SeqCst);
            if !self.state.wake_if_due(now) {
                continue;
            }
            let next = {
                let mut wanted = self.wanted.lock().unwrap();
                wanted.retain(|at| *at > now);
                wanted.first().copied()
            };
            if !self.state.sleep(next) {
                return;
            }
        }
    }

    /// Waits for all tasks and returns true if the owner was called at all of its times.
    fn is_served(&self) -> bool {
        loop {
            let Some(task) = self.tasks.lock().unwrap().pop() else { break };
            task.join().unwrap();
        }
        self.wanted.lock().unwrap().is_empty()
    }
}

/// Two threads add times, earlier and later than each other's, while the task starts and ends.
fn no_time_is_forgotten() {
    let owner = Owner::new();
    let others: Vec<_> = [vec![2, 9], vec![7]]
        .into_iter()
        .map(|times| {
            let owner = owner.clone();
            thread::spawn(move || times.into_iter().for_each(|at| owner.want(at)))
        })
        .collect();
    others.into_iter().for_each(|other| other.join().unwrap());
    assert!(owner.is_served(), "left: {:?}", owner.wanted.lock().unwrap());
}

#[test]
fn no_time_is_lost_under_any_of_many_schedules() {
    shuttle::check_random(no_time_is_forgotten, 20_000);
    shuttle::check_pct(no_time_is_forgotten, 5_000, 3);
}
