//! The only clock: every time the crate takes or waits for comes from here, so paused tokio time governs all of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;

pub(crate) use tokio::time::Instant;

/// The current time of the runtime's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `deadline`, or for ever when there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Runs `future` until `deadline`; `None` when the deadline came first.
pub(crate) async fn before<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// Something with a core whose timeouts have to be handled in time.
pub(crate) trait Timed: Send + Sync + 'static {
    /// Its alarm.
    fn alarm(&self) -> &Alarm;

    /// Handles what is due at `now` and returns when it wants to be called again.
    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant>;
}

/// Calls a [`Timed`] owner back in time: one task while there is anything to wait for, none otherwise.
///
/// The task holds its owner only while it handles a timeout, and ends when the owner is gone. If its runtime goes
/// away, the next [`Alarm::set`] starts another one where it is called.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    state: Arc<Mutex<AlarmState>>,
    bell: Arc<Notify>,
}

#[derive(Debug, Default, Clone, Copy)]
enum AlarmState {
    /// There is no task.
    #[default]
    Off,
    /// The task sleeps until this time.
    Asleep(Instant),
    /// The task handles a timeout; meanwhile this time was asked for.
    Awake(Option<Instant>),
}

impl Alarm {
    /// Sees to it that `owner` is called at `deadline` or earlier.
    ///
    /// Outside of a runtime it does nothing, so owners call it again after every step.
    pub(crate) fn set<T: Timed>(owner: &Arc<T>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let alarm = owner.alarm();
        let mut state = lock(&alarm.state);
        match *state {
            AlarmState::Asleep(at) if at <= deadline => {}
            AlarmState::Asleep(_) => {
                *state = AlarmState::Asleep(deadline);
                alarm.bell.notify_one();
            }
            AlarmState::Awake(asked) => {
                *state = AlarmState::Awake(Some(asked.map_or(deadline, |asked| asked.min(deadline))));
            }
            AlarmState::Off => {
                let Ok(runtime) = Handle::try_current() else { return };
                *state = AlarmState::Asleep(deadline);
                drop(state);
                let watch = Watch { state: alarm.state.clone(), bell: alarm.bell.clone() };
                runtime.spawn(watch.run(Arc::downgrade(owner)));
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}

/// An alarm's task. Dropping it, with its runtime say, leaves the alarm off.
struct Watch {
    state: Arc<Mutex<AlarmState>>,
    bell: Arc<Notify>,
}

impl Watch {
    async fn run<T: Timed>(self, owner: Weak<T>) {
        loop {
            let AlarmState::Asleep(deadline) = *lock(&self.state) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => {}
                () = self.bell.notified() => {}
            }
            let Some(owner) = owner.upgrade() else { return };
            if !self.is_due() {
                continue;
            }
            let next = owner.handle_timeout(now());
            if !self.sleep(next) {
                return;
            }
        }
    }

    /// Wakes up if the time has come; it may have been moved since the task went to sleep.
    fn is_due(&self) -> bool {
        let mut state = lock(&self.state);
        let due = matches!(*state, AlarmState::Asleep(at) if at <= now());
        if due {
            *state = AlarmState::Awake(None);
        }
        due
    }

    fn sleep(&self, next: Option<Instant>) -> bool {
        let mut state = lock(&self.state);
        let asked = if let AlarmState::Awake(asked) = *state { asked } else { None };
        let next = next.into_iter().chain(asked).min();
        *state = next.map_or(AlarmState::Off, AlarmState::Asleep);
        next.is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *lock(&self.state) = AlarmState::Off;
    }
}

fn lock(state: &Mutex<AlarmState>) -> MutexGuard<'_, AlarmState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wants to be called at each of its times, and notes when it was.
    struct Diary {
        alarm: Alarm,
        start: Instant,
        wanted: Mutex<Vec<u64>>,
        called: Mutex<Vec<u64>>,
    }

    impl Timed for Diary {
        fn alarm(&self) -> &Alarm {
            &self.alarm
        }

        fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
            let at = (now - self.start).as_millis() as u64;
            self.called.lock().unwrap().push(at);
            let mut wanted = self.wanted.lock().unwrap();
            wanted.retain(|&time| time > at);
            wanted.iter().min().map(|&time| self.at(time))
        }
    }

    impl Diary {
        fn new() -> Arc<Self> {
            let (wanted, called) = Default::default();
            Arc::new(Self { alarm: Alarm::default(), start: now(), wanted, called })
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + std::time::Duration::from_millis(ms)
        }

        fn want(self: &Arc<Self>, ms: u64) {
            self.wanted.lock().unwrap().push(ms);
            Alarm::set(self, Some(self.at(ms)));
        }

        async fn called_by(&self, ms: u64) -> Vec<u64> {
            tokio::time::sleep_until(self.at(ms)).await;
            self.called.lock().unwrap().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_calls_at_each_time_in_order() {
        let diary = Diary::new();
        diary.want(50);
        diary.want(20);
        diary.want(70);
        assert_eq!(diary.called_by(100).await, [20, 50, 70]);
        diary.want(120);
        assert_eq!(diary.called_by(200).await, [20, 50, 70, 120]);
    }

    #[tokio::test(start_paused = true)]
    async fn its_task_ends_with_its_owner() {
        let diary = Diary::new();
        diary.want(1_000_000);
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        tokio::task::yield_now().await;
        assert_eq!(tasks(), 1);
        drop(diary);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert_eq!(tasks(), 0);
    }

    #[test]
    fn it_moves_to_another_runtime_when_its_own_is_gone() {
        let paused = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let first = paused();
        let diary = first.block_on(async {
            let diary = Diary::new();
            diary.want(50);
            diary
        });
        drop(first);
        paused().block_on(async {
            Alarm::set(&diary, Some(now()));
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        });
        assert!(diary.called.lock().unwrap().last() >= Some(&50));
    }
}
