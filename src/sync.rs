//! The crate's one way to lock a standard mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while it held the lock.
///
/// Use it for data that is never left half changed: a panic in one task must not make every later task panic as well.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
