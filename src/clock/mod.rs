//! The only clock of the crate. Every time that the crate takes or waits for comes from here, so that paused tokio time governs
//! all of it.

mod instant;
mod suspension;
mod task_state;
mod timer_task;

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use tokio::runtime::{self, Handle};
use tokio::time::Sleep;

use crate::world;

pub(crate) use instant::{AtomicInstant, Instant};
pub(crate) use suspension::note_suspension;
#[cfg(test)]
pub(crate) use suspension::suspend;
pub(crate) use timer_task::{Timed, TimerTask};

/// The locks and atomics that [`task_state`] uses. `tests/alone/timer_task.rs` compiles that file with scheduled ones.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// Returns the current time of the runtime's clock.
pub(crate) fn now() -> Instant {
    Instant::from_std(tokio::time::Instant::now().into_std())
}

/// Returns the current time of the system's clock, for times that outlive the process only.
pub(crate) fn wall() -> SystemTime {
    world::time_of_day()
}

/// Waits until `deadline`, or forever if there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(on_runtime(deadline)).await,
        None => std::future::pending().await,
    }
}

/// Runs `future` until `deadline`. Returns `None` if the deadline came first.
///
/// The caller pins the future, because one that is passed by value takes its size in memory twice.
pub(crate) async fn before<F: Future + Unpin>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(on_runtime(deadline), future).await.ok(),
        None => Some(future.await),
    }
}

/// Returns a time as the runtime's timers take it.
fn on_runtime(at: Instant) -> tokio::time::Instant {
    tokio::time::Instant::from_std(at.into_std())
}

/// A timer inside a future that may be polled on one runtime after another.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<SetTimer>);

#[derive(Debug)]
struct SetTimer {
    runtime: runtime::Id,
    /// The time for which `sleep` is set.
    until: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    /// Becomes ready at `deadline`. Stays pending if it is polled outside of a tokio runtime, where there are no
    /// timers.
    pub(crate) fn poll_until(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let Ok(here) = Handle::try_current() else { return Poll::Pending };
        let here = here.id();
        if self.0.as_ref().is_none_or(|set| set.runtime != here) {
            let sleep = Box::pin(tokio::time::sleep_until(on_runtime(deadline)));
            self.0 = Some(SetTimer { runtime: here, until: deadline, sleep });
        }
        let set = self.0.as_mut().expect("the timer was set above");
        if set.until > deadline {
            set.reset(deadline);
        }
        ready!(set.sleep.as_mut().poll(cx));
        if set.until >= deadline {
            return Poll::Ready(());
        }
        // The deadline was put off. To reset the timer at each poll would cost more than to wake up once too early.
        set.reset(deadline);
        set.sleep.as_mut().poll(cx)
    }

    /// Returns the time at which the timer wakes the task that polled it last, if it is set.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.0.as_ref().map(|set| set.until)
    }

    /// Returns true if the deadline of the last poll has passed.
    pub(crate) fn is_elapsed(&self) -> bool {
        self.0.as_ref().is_some_and(|set| set.sleep.is_elapsed())
    }
}

impl SetTimer {
    fn reset(&mut self, until: Instant) {
        self.until = until;
        self.sleep.as_mut().reset(on_runtime(until));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::now;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_ends_at_the_deadline_of_its_last_poll() {
        let ms = |ms| Duration::from_millis(ms);
        for (deadlines, polled) in [(&[10][..], 1), (&[10, 30, 20], 2), (&[30, 10], 1), (&[10, 20, 40], 2)] {
            let start = now();
            let mut timer = Timer::default();
            let mut polls = 0;
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
            // One poll to begin with, and one for each time that the timer was set to.
            assert_eq!(polls, polled + 1, "{deadlines:?}");
        }
    }
}
