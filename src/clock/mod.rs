//! The only clock of the crate. Every time that the crate takes or waits for comes from here, so that paused tokio time governs
//! all of it.

mod instant;
mod suspension;
mod task_state;
mod timer;
mod timer_task;

use std::time::SystemTime;

use crate::world;

pub(crate) use instant::{AtomicInstant, Instant};
pub(crate) use suspension::note_suspension;
#[cfg(test)]
pub(crate) use suspension::suspend;
pub(crate) use timer::Timer;
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
