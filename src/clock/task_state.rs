//! The state of a timer task, shared with the owners that set it.
//!
//! The state is under a lock. The time at which the task wakes is an atomic as well, so that setting a later time takes no
//! lock. Times are those of [`Instant::nanos`](super::Instant::nanos). `tests/alone/timer_task.rs` runs this file under many thread
//! schedules.

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// The state of a timer task, and the time at which the task wakes.
#[derive(Debug)]
pub(crate) struct TaskState {
    activity: Mutex<Activity>,
    /// The time until which the task sleeps; `NEVER` while it does not sleep.
    wakes_at: AtomicU64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// There is no task.
    #[default]
    Off,
    /// The task sleeps until this time.
    Asleep(u64),
    /// The task handles a timeout. The time is the earliest one that was set meanwhile.
    Awake(Option<u64>),
}

/// The action that setting a time leaves to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskAction {
    Nothing,
    /// Wake the task, which sleeps for too long by now.
    Wake,
    /// Start the task.
    Start,
}

/// The wake-up time of a task that does not sleep.
const NEVER: u64 = u64::MAX;

impl TaskState {
    /// Returns the state of a task that was not started.
    pub(crate) fn new() -> Self {
        Self { activity: Mutex::new(Activity::Off), wakes_at: AtomicU64::new(NEVER) }
    }

    /// Returns true if the task sleeps, so that only an earlier time matters to it.
    pub(crate) fn is_asleep(&self) -> bool {
        self.wakes_at.load(Ordering::Acquire) != NEVER
    }

    /// Makes the task wake at `at` or earlier. `may_start` returns true if the caller can start a task.
    ///
    /// The caller must have changed the data that the time belongs to before, under a lock that the task's owner takes as well.
    /// A task that is about to wake may miss this time; its owner then finds the time in that data.
    pub(crate) fn set(&self, at: u64, may_start: impl FnOnce() -> bool) -> TaskAction {
        let at = at.min(NEVER - 1);
        if self.wakes_at.load(Ordering::Acquire) <= at {
            return TaskAction::Nothing;
        }
        let mut activity = self.lock();
        match *activity {
            Activity::Asleep(until) if until <= at => TaskAction::Nothing,
            Activity::Asleep(_) => {
                self.change(&mut activity, Activity::Asleep(at));
                TaskAction::Wake
            }
            Activity::Awake(set) => {
                let earliest = set.map_or(at, |set| set.min(at));
                self.change(&mut activity, Activity::Awake(Some(earliest)));
                TaskAction::Nothing
            }
            Activity::Off if may_start() => {
                self.change(&mut activity, Activity::Asleep(at));
                TaskAction::Start
            }
            Activity::Off => TaskAction::Nothing,
        }
    }

    /// Makes a task that is off wake at `at`, if the caller can start one.
    ///
    /// For a time that was set before: a task that is not off knows it, or finds it when it goes to sleep.
    pub(crate) fn restart(&self, at: u64, may_start: bool) -> TaskAction {
        let mut activity = self.lock();
        match *activity {
            Activity::Off if may_start => {
                self.change(&mut activity, Activity::Asleep(at.min(NEVER - 1)));
                TaskAction::Start
            }
            _ => TaskAction::Nothing,
        }
    }

    /// Returns the time until which the task is to sleep; `None` if there is nothing to sleep for.
    pub(crate) fn sleeps_until(&self) -> Option<u64> {
        match *self.lock() {
            Activity::Asleep(until) => Some(until),
            Activity::Off | Activity::Awake(_) => None,
        }
    }

    /// Wakes the task and returns true if its time has come. The time may have moved since the task went to sleep.
    pub(crate) fn wake_if_due(&self, now: u64) -> bool {
        let mut activity = self.lock();
        let is_due = matches!(*activity, Activity::Asleep(until) if until <= now);
        if is_due {
            self.change(&mut activity, Activity::Awake(None));
        }
        is_due
    }

    /// Puts the task to sleep until `next`, or until an earlier time that was set meanwhile.
    ///
    /// Returns false if there is no such time. The task is off then and must not change the state any more.
    pub(crate) fn sleep(&self, next: Option<u64>) -> bool {
        let mut activity = self.lock();
        let set = if let Activity::Awake(set) = *activity { set } else { None };
        let next = next.map(|next| next.min(NEVER - 1)).into_iter().chain(set).min();
        self.change(&mut activity, next.map_or(Activity::Off, Activity::Asleep));
        next.is_some()
    }

    /// Notes that the task was dropped before it ended. If another one replaces it, that one sleeps until `next`.
    pub(crate) fn move_task(&self, next: Option<u64>) {
        let mut activity = self.lock();
        self.change(&mut activity, next.map_or(Activity::Off, Activity::Asleep));
    }

    fn change(&self, activity: &mut MutexGuard<'_, Activity>, to: Activity) {
        let wakes_at = if let Activity::Asleep(until) = to { until } else { NEVER };
        self.wakes_at.store(wakes_at, Ordering::Release);
        **activity = to;
    }

    // A change is never left half done, so a poisoned lock still guards a sound state.
    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
