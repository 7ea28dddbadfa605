//! The only clock of the crate. Every time that the crate takes or waits for comes from here, so that paused tokio time governs
//! all of it.

mod task_state;
mod timer;
mod timer_task;

use std::time::SystemTime;

pub(crate) use tokio::time::Instant;

pub(crate) use timer::Timer;
pub(crate) use timer_task::{Timed, TimerTask};

/// The locks and atomics that [`task_state`] uses. `tests/alone/timer_task.rs` compiles that file with scheduled ones.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// Returns the current time of the runtime's clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the current time of the system's clock, for times that outlive the process only.
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// Waits until `deadline`, or forever if there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Runs `future` until `deadline`. Returns `None` if the deadline came first.
///
/// The caller pins the future, because one that is passed by value takes its size in memory twice.
pub(crate) async fn before<F: Future + Unpin>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// Returns the nanoseconds from `base` to `at`, so that a time fits into an atomic.
pub(crate) fn nanos(base: Instant, at: Instant) -> u64 {
    at.saturating_duration_since(base).as_nanos().try_into().unwrap_or(u64::MAX)
}
