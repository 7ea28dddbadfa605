//! The crate's ways to lock a mutex, what a task brings to many, and a task's budget.

pub(crate) mod budget;
pub(crate) mod landing;
pub(crate) mod schedule;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::{self, Handle};

/// Returns the runtime of the current thread, if it is in one.
pub(crate) fn current_runtime() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// Locks a mutex, even if a thread panicked while it held the lock.
///
/// Use it for data that is never left half changed: a panic in one task must not make every later task panic as well.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    schedule::until_free(|| !matches!(mutex.try_lock(), Err(std::sync::TryLockError::WouldBlock)));
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex of parking_lot, which keeps its speed where threads outnumber processor cores.
#[inline]
pub(crate) fn lock_quick<T>(mutex: &parking_lot::Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    #[cfg(test)]
    schedule::until_free(|| !mutex.is_locked());
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutex_is_usable_after_a_panic_under_its_lock() {
        let mutex = Mutex::new(1);
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _guard = lock(&mutex);
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(panicking.join().is_err());
        });
        assert!(mutex.is_poisoned());
        assert_eq!(*lock(&mutex), 1);
    }
}
