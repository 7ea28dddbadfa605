//! What an alarm's task shares with those who set it: its state under a lock, and when it wakes up for everybody to see.
//!
//! Times are nanoseconds of the alarm's own. `tests/alarm.rs` runs this file under many schedules.

use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// An alarm's state, and when its task wakes up.
#[derive(Debug)]
pub(crate) struct Shown {
    state: Mutex<State>,
    /// The most there is while the task does not sleep.
    wakes: AtomicU64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is no task.
    #[default]
    Off,
    /// The task sleeps until this time.
    Asleep(u64),
    /// The task handles a timeout; meanwhile this time was asked for.
    Awake(Option<u64>),
}

/// What is left to do for who sets an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Todo {
    Nothing,
    /// The task sleeps for longer than it should by now.
    Wake,
    /// There is no task yet.
    Start,
}

/// No task wakes up at this time.
const NEVER: u64 = u64::MAX;

impl Shown {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::Off), wakes: AtomicU64::new(NEVER) }
    }

    /// Whether the task sleeps, so that only an earlier time is news to it.
    pub(crate) fn is_asleep(&self) -> bool {
        self.wakes.load(Ordering::Acquire) != NEVER
    }

    /// Sees to it that the task wakes up at `at` or earlier; `may_start` says whether there can be one.
    ///
    /// It is called after what the time is for was changed under a lock that the task takes, too. Should the task be about to
    /// wake up, it asks for the next time when it has.
    pub(crate) fn set(&self, at: u64, may_start: impl FnOnce() -> bool) -> Todo {
        let at = at.min(NEVER - 1);
        if self.wakes.load(Ordering::Acquire) <= at {
            return Todo::Nothing;
        }
        let mut state = self.lock();
        match *state {
            State::Asleep(until) if until <= at => Todo::Nothing,
            State::Asleep(_) => {
                self.change(&mut state, State::Asleep(at));
                Todo::Wake
            }
            State::Awake(asked) => {
                self.change(&mut state, State::Awake(Some(asked.map_or(at, |asked| asked.min(at)))));
                Todo::Nothing
            }
            State::Off if may_start() => {
                self.change(&mut state, State::Asleep(at));
                Todo::Start
            }
            State::Off => Todo::Nothing,
        }
    }

    /// The same where the task was told before of all there is to wake up for: it is only told again if it is gone. One that is awake
    /// finds it by itself.
    pub(crate) fn set_again(&self, at: u64, may_start: bool) -> Todo {
        let mut state = self.lock();
        match *state {
            State::Off if may_start => {
                self.change(&mut state, State::Asleep(at.min(NEVER - 1)));
                Todo::Start
            }
            _ => Todo::Nothing,
        }
    }

    /// Until when the task is to sleep; `None` where there is nothing to sleep for.
    pub(crate) fn sleeps_until(&self) -> Option<u64> {
        match *self.lock() {
            State::Asleep(until) => Some(until),
            State::Off | State::Awake(_) => None,
        }
    }

    /// Wakes up if the time has come; it may have been moved since the task went to sleep.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let mut state = self.lock();
        let due = matches!(*state, State::Asleep(until) if until <= now);
        if due {
            self.change(&mut state, State::Awake(None));
        }
        due
    }

    /// Goes to sleep again; otherwise it is over, and from then on the state is not this task's to change.
    pub(crate) fn sleep(&self, next: Option<u64>) -> bool {
        let mut state = self.lock();
        let asked = if let State::Awake(asked) = *state { asked } else { None };
        let next = next.map(|next| next.min(NEVER - 1)).into_iter().chain(asked).min();
        self.change(&mut state, next.map_or(State::Off, State::Asleep));
        next.is_some()
    }

    /// The task is gone without having come to its end; another one is to wake up at `again`, if there is one.
    pub(crate) fn lost(&self, again: Option<u64>) {
        let mut state = self.lock();
        self.change(&mut state, again.map_or(State::Off, State::Asleep));
    }

    fn change(&self, state: &mut MutexGuard<'_, State>, to: State) {
        let wakes = if let State::Asleep(until) = to { until } else { NEVER };
        self.wakes.store(wakes, Ordering::Release);
        **state = to;
    }

    // It is never left half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
