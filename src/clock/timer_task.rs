//! The task that calls the drivers of cores with timeouts in time.

use std::sync::{Arc, Mutex, Weak};

use futures_util::FutureExt;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;

use super::task_state::{TaskAction, TaskState};
use super::{Instant, note_suspension, now, sleep_until};
use crate::sync::{lock, point};

/// The driver of a core with timeouts: the pool, the DNS cache, the time limits of calls.
pub(crate) trait Timed: Send + Sync + 'static {
    /// Returns the task that calls [`handle_timeout`](Self::handle_timeout).
    fn timer_task(&self) -> &TimerTask;

    /// Returns a runtime other than `not` on which a caller waits for a timeout. The task moves there if its runtime ends.
    fn other_runtime(&self, _not: runtime::Id) -> Option<Handle> {
        None
    }

    /// Handles the timeouts that are due at `now`, and returns the time of the next one.
    fn handle_timeout(self: Arc<Self>, now: Instant) -> Option<Instant>;
}

/// The task that calls a [`Timed`] owner when its next timeout is due. It runs only while there is one.
///
/// The task holds its owner only while a timeout is handled, and ends when the owner is dropped. If its runtime ends, the task
/// moves to a runtime on which a caller waits, or else the next [`TimerTask::set`] starts it anew.
#[derive(Debug)]
pub(crate) struct TimerTask {
    state: Arc<TaskState>,
    /// Wakes the task to look at its state.
    wake: Arc<Notify>,
    /// The runtime on which the task was started last.
    runtime: Mutex<Option<runtime::Id>>,
}

impl Default for TimerTask {
    fn default() -> Self {
        Self { state: Arc::new(TaskState::new()), wake: Arc::default(), runtime: Mutex::default() }
    }
}

impl TimerTask {
    /// Calls `owner` at `deadline` or earlier.
    ///
    /// Outside of a runtime the task cannot be started, so owners call this again after every step.
    pub(crate) fn set<T: Timed>(owner: &Arc<T>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let task = owner.timer_task();
        let mut runtime = None;
        let may_start = || {
            runtime = Handle::try_current().ok();
            runtime.is_some()
        };
        point();
        match (task.state.set(deadline.nanos(), may_start), runtime) {
            (TaskAction::Wake, _) => task.wake.notify_one(),
            (TaskAction::Start, Some(runtime)) => task.start(Arc::<T>::downgrade(owner), &runtime, false),
            _ => {}
        }
    }

    /// Starts the task anew if it ended with its runtime.
    ///
    /// For owners whose next timeout is the one that was set before: `deadline` is that timeout or an earlier time.
    #[inline]
    pub(crate) fn ensure_running<T: Timed>(owner: &Arc<T>, deadline: Option<Instant>) {
        if let Some(deadline) = deadline
            && !owner.timer_task().state.is_asleep()
        {
            Self::restart(owner, deadline);
        }
    }

    // Not inlined: each step of the pool calls `ensure_running`, and the task nearly always runs.
    #[cold]
    fn restart<T: Timed>(owner: &Arc<T>, deadline: Instant) {
        let task = owner.timer_task();
        let runtime = Handle::try_current().ok();
        let action = task.state.restart(deadline.nanos(), runtime.is_some());
        if let (TaskAction::Start, Some(runtime)) = (action, runtime) {
            task.start(Arc::<T>::downgrade(owner), &runtime, false);
        }
    }

    /// Returns the runtime on which the task was started last.
    pub(crate) fn runtime(&self) -> Option<runtime::Id> {
        *lock(&self.runtime)
    }

    /// Starts a task whose state is asleep already.
    fn start(&self, owner: Weak<dyn Timed>, runtime: &Handle, moved: bool) {
        *lock(&self.runtime) = Some(runtime.id());
        let running = RunningTask {
            owner,
            state: self.state.clone(),
            wake: self.wake.clone(),
            runtime: runtime.id(),
            moved,
            ended: false,
        };
        // Boxed: tasks that are seldom started share one type, and with it tokio's code for a type of task.
        runtime.spawn(running.run().boxed());
    }
}

impl Drop for TimerTask {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// The running task. If it is dropped before it ended, because its runtime ended, it moves to another runtime or is off.
///
/// It is not generic over its owner: a program would contain its code once for each.
struct RunningTask {
    owner: Weak<dyn Timed>,
    state: Arc<TaskState>,
    wake: Arc<Notify>,
    runtime: runtime::Id,
    /// True if the task moved here and this runtime has not run it yet.
    moved: bool,
    ended: bool,
}

impl RunningTask {
    async fn run(mut self) {
        self.moved = false;
        loop {
            let Some(until) = self.state.sleeps_until() else { return };
            tokio::select! {
                biased;
                () = sleep_until(Some(Instant::from_nanos(until))) => {}
                () = self.wake.notified() => {}
            }
            let Some(owner) = self.owner.upgrade() else { return };
            note_suspension();
            point();
            if !self.state.wake_if_due(now().nanos()) {
                continue;
            }
            let next = owner.handle_timeout(now());
            point();
            if !self.state.sleep(next.map(Instant::nanos)) {
                self.ended = true;
                return;
            }
        }
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // A runtime that has ended drops a task at once, so a task that moved and never ran must not move again: it might go
        // round forever.
        let owner = self.owner.upgrade().filter(|_| !self.moved);
        let elsewhere = owner.as_ref().and_then(|owner| owner.other_runtime(self.runtime));
        match (owner, elsewhere) {
            (Some(owner), Some(runtime)) => {
                // Due at once: the owner then says when its next timeout is.
                self.state.move_task(Some(now().nanos()));
                owner.timer_task().start(self.owner.clone(), &runtime, true);
            }
            _ => self.state.move_task(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    /// An owner with timeouts at the times in `wanted`, which notes the times at which it was called.
    struct Owner {
        timer_task: TimerTask,
        start: Instant,
        wanted: Mutex<Vec<u64>>,
        called: Mutex<Vec<u64>>,
    }

    impl Timed for Owner {
        fn timer_task(&self) -> &TimerTask {
            &self.timer_task
        }

        fn handle_timeout(self: Arc<Self>, now: Instant) -> Option<Instant> {
            let at = (now - self.start).as_millis() as u64;
            self.called.lock().unwrap().push(at);
            let mut wanted = self.wanted.lock().unwrap();
            wanted.retain(|&time| time > at);
            wanted.iter().min().map(|&time| self.at(time))
        }
    }

    impl Owner {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                timer_task: TimerTask::default(),
                start: now(),
                wanted: Mutex::default(),
                called: Mutex::default(),
            })
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn want(self: &Arc<Self>, ms: u64) {
            self.wanted.lock().unwrap().push(ms);
            TimerTask::set(self, Some(self.at(ms)));
        }

        async fn called_by(&self, ms: u64) -> Vec<u64> {
            sleep_until(Some(self.at(ms))).await;
            self.called.lock().unwrap().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_owner_is_called_at_each_time_in_order() {
        let owner = Owner::new();
        owner.want(50);
        owner.want(20);
        owner.want(70);
        assert_eq!(owner.called_by(100).await, [20, 50, 70]);
        owner.want(120);
        assert_eq!(owner.called_by(200).await, [20, 50, 70, 120]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_task_ends_with_its_owner() {
        let owner = Owner::new();
        owner.want(1_000_000);
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        tokio::task::yield_now().await;
        assert_eq!(tasks(), 1);
        drop(owner);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(tasks(), 0);
    }

    #[test]
    fn no_time_is_lost_that_is_set_while_the_task_ends() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async {
            for round in 1..400 {
                let owner = Owner::new();
                owner.want(0);
                // Set a time just when the task ends because there is nothing more to do.
                while owner.called.lock().unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
                let at = now();
                owner.wanted.lock().unwrap().push((at - owner.start).as_millis() as u64 + 1);
                TimerTask::set(&owner, Some(at + Duration::from_millis(1)));
                let deadline = at + Duration::from_secs(10);
                while owner.called.lock().unwrap().len() < 2 {
                    assert!(now() < deadline, "round {round}: lost");
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    #[test]
    fn the_task_starts_again_on_another_runtime_when_its_own_has_ended() {
        let paused = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let first = paused();
        let owner = first.block_on(async {
            let owner = Owner::new();
            owner.want(50);
            owner
        });
        drop(first);
        paused().block_on(async {
            TimerTask::set(&owner, Some(now()));
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
        assert!(owner.called.lock().unwrap().last() >= Some(&50));
    }
}
