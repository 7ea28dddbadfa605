//! The only clock: every time the crate takes or waits for comes from here, so paused tokio time governs all of it.

mod task_state;

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::Sleep;

pub(crate) use tokio::time::Instant;

use task_state::{Shown, Todo};

/// What [`task_state`] is built on; its test builds it on others.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// The current time of the runtime's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The system's clock: for times that outlive the process, and for nothing else.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Waits until `deadline`, or for ever when there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Runs `future` until `deadline`; `None` when the deadline came first. It has to be pinned by the caller: a future that is
/// handed on by value takes its place in memory twice.
pub(crate) async fn before<F: Future + Unpin>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// A timer for who is polled, on whichever runtime that is.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<(runtime::Id, Pin<Box<Sleep>>)>);

impl Timer {
    /// Ready from `deadline` on; never where it is polled outside of a tokio runtime, which has no timers.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let Ok(here) = Handle::try_current() else { return Poll::Pending };
        let here = here.id();
        if self.0.as_ref().is_none_or(|(runtime, _)| *runtime != here) {
            self.0 = Some((here, Box::pin(tokio::time::sleep_until(deadline))));
        }
        let (_, sleep) = self.0.as_mut().expect("set above");
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        ready!(sleep.as_mut().poll(cx));
        if sleep.deadline() >= deadline {
            return Poll::Ready(());
        }
        // To put it off each time would cost more than to wake up once in vain.
        sleep.as_mut().reset(deadline);
        sleep.as_mut().poll(cx)
    }

    /// Whether that has passed.
    pub(crate) fn is_elapsed(&self) -> bool {
        self.0.as_ref().is_some_and(|(_, sleep)| sleep.is_elapsed())
    }
}

/// Something with a core whose timeouts have to be handled in time.
pub(crate) trait Timed: Send + Sync + 'static {
    /// Its alarm.
    fn alarm(&self) -> &Alarm;

    /// Another runtime than `not` on which somebody waits for a timeout, for when that one has gone away.
    fn waits_on(&self, _not: runtime::Id) -> Option<Handle> {
        None
    }

    /// Handles what is due at `now` and returns when it wants to be called again.
    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant>;
}

/// Calls a [`Timed`] owner back in time: one task while there is anything to wait for, none otherwise.
///
/// The task holds its owner only while it handles a timeout, and ends when the owner is gone. If its runtime goes
/// away, it moves to one where somebody waits, or the next [`Alarm::set`] starts another one where it is called.
#[derive(Debug)]
pub(crate) struct Alarm {
    shown: Arc<Shown>,
    /// Where its times begin.
    base: Instant,
    bell: Arc<Notify>,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { shown: Arc::new(Shown::new()), base: now(), bell: Arc::default() }
    }
}

/// As nanoseconds from a base, for what is seen without a lock.
pub(crate) fn nanos(base: Instant, at: Instant) -> u64 {
    at.saturating_duration_since(base).as_nanos().try_into().unwrap_or(u64::MAX)
}

impl Alarm {
    /// Sees to it that `owner` is called at `deadline` or earlier.
    ///
    /// Outside of a runtime it does nothing, so owners call it again after every step.
    pub(crate) fn set<T: Timed>(owner: &Arc<T>, deadline: Option<Instant>) {
        let Some(deadline) = deadline else { return };
        let alarm = owner.alarm();
        let mut runtime = None;
        let may_start = || {
            runtime = Handle::try_current().ok();
            runtime.is_some()
        };
        match (alarm.shown.set(nanos(alarm.base, deadline), may_start), runtime) {
            (Todo::Wake, _) => alarm.bell.notify_one(),
            (Todo::Start, Some(runtime)) => Watch::start(owner, &runtime, false),
            _ => {}
        }
    }

    /// The same where it was set before to all that its owner waits for: only if its task went away it has to be set again, to the
    /// first of those times or earlier.
    pub(crate) fn set_again<T: Timed>(owner: &Arc<T>, deadline: Option<Instant>) {
        let alarm = owner.alarm();
        let Some(deadline) = deadline.filter(|_| !alarm.shown.is_asleep()) else { return };
        let runtime = Handle::try_current().ok();
        let todo = alarm.shown.set_again(nanos(alarm.base, deadline), runtime.is_some());
        if let (Todo::Start, Some(runtime)) = (todo, runtime) {
            Watch::start(owner, &runtime, false);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}

/// An alarm's task. Dropping it before it is over, with its runtime that is, leaves the alarm off or moves it.
struct Watch<T: Timed> {
    owner: Weak<T>,
    shown: Arc<Shown>,
    base: Instant,
    bell: Arc<Notify>,
    runtime: runtime::Id,
    /// Whether it has moved, and its new runtime not run it yet.
    moved: bool,
    over: bool,
}

impl<T: Timed> Watch<T> {
    /// Starts the task of an alarm that is set.
    fn start(owner: &Arc<T>, runtime: &Handle, moved: bool) {
        let Alarm { shown, base, bell } = owner.alarm();
        let (shown, base, bell) = (shown.clone(), *base, bell.clone());
        let watch = Self { owner: Arc::downgrade(owner), shown, base, bell, runtime: runtime.id(), moved, over: false };
        runtime.spawn(watch.run());
    }

    async fn run(mut self) {
        self.moved = false;
        loop {
            let Some(until) = self.shown.sleeps_until() else { return };
            tokio::select! {
                () = sleep_until(self.base.checked_add(Duration::from_nanos(until))) => {}
                () = self.bell.notified() => {}
            }
            let Some(owner) = self.owner.upgrade() else { return };
            if !self.shown.is_due(nanos(self.base, now())) {
                continue;
            }
            let next = owner.handle_timeout(now());
            if !self.shown.sleep(next.map(|next| nanos(self.base, next))) {
                self.over = true;
                return;
            }
        }
    }
}

impl<T: Timed> Drop for Watch<T> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // A runtime that is gone drops what it is given: moving on from there might go round for ever.
        let owner = self.owner.upgrade().filter(|_| !self.moved);
        let elsewhere = owner.as_ref().and_then(|owner| owner.waits_on(self.runtime));
        match (owner, elsewhere) {
            (Some(owner), Some(runtime)) => {
                // Whatever it was to wait for, it finds out when it wakes up.
                self.shown.lost(Some(nanos(self.base, now())));
                Watch::start(&owner, &runtime, true);
            }
            _ => self.shown.lost(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
    async fn a_timer_goes_by_the_deadline_it_was_last_polled_with() {
        let ms = |ms| Duration::from_millis(ms);
        for (deadlines, polled) in [(&[10][..], 1), (&[10, 30, 20], 2), (&[30, 10], 1), (&[10, 20, 40], 2)] {
            let (mut timer, start, mut polls) = (Timer::default(), now(), 0);
            let (last, before) = deadlines.split_last().unwrap();
            for deadline in before {
                let at = start + ms(*deadline);
                let is_pending = std::future::poll_fn(|cx| Poll::Ready(timer.poll_until(cx, at).is_pending())).await;
                assert!(is_pending);
            }
            std::future::poll_fn(|cx| {
                polls += 1;
                timer.poll_until(cx, start + ms(*last))
            })
            .await;
            assert_eq!((now() - start, timer.is_elapsed()), (ms(*last), true), "{deadlines:?}");
            // Once to begin with, and once for each time it is set to.
            assert_eq!(polls, polled + 1, "{deadlines:?}");
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
    fn no_time_is_lost_when_it_is_set_while_its_task_ends() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
        runtime.block_on(async {
            for round in 1..400 {
                let diary = Diary::new();
                diary.want(0);
                // Set it again just when the task, having nothing more to do, goes away.
                while diary.called.lock().unwrap().is_empty() {
                    tokio::task::yield_now().await;
                }
                let at = now();
                diary.wanted.lock().unwrap().push((at - diary.start).as_millis() as u64 + 1);
                Alarm::set(&diary, Some(at + std::time::Duration::from_millis(1)));
                let deadline = at + std::time::Duration::from_secs(10);
                while diary.called.lock().unwrap().len() < 2 {
                    assert!(now() < deadline, "round {round}: lost");
                    tokio::task::yield_now().await;
                }
            }
        });
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
