//! The callback that is told how much of a body was sent or received.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// A callback for the bytes of a body, and the bytes that it knows of. Clones for further attempts share the callback.
pub(super) struct ProgressCallback {
    /// `None` while the callback runs, and after it has panicked.
    callback: Arc<Mutex<Option<Callback>>>,
    /// The bytes that the callback was last told of.
    told: u64,
}

/// The arguments are the bytes so far, and the length of the body if it is known.
type Callback = Box<dyn FnMut(u64, Option<u64>) + Send>;

impl ProgressCallback {
    pub(super) fn new(callback: impl FnMut(u64, Option<u64>) + Send + 'static) -> Self {
        Self { callback: Arc::new(Mutex::new(Some(Box::new(callback)))), told: 0 }
    }

    /// Returns the progress of the same body when it is sent once more, from its start.
    pub(super) fn restarted(&self) -> Self {
        Self { callback: self.callback.clone(), told: 0 }
    }

    /// Tells the callback that `bytes` of `total` have passed, unless it was told so before.
    ///
    /// A panic of the callback must not reach the task of a connection, which may serve other requests. After one the
    /// callback is not called again.
    pub(super) fn tell(&mut self, bytes: u64, total: Option<u64>) {
        if bytes == self.told {
            return;
        }
        self.told = bytes;
        // Taken out, so that it does not run under the lock.
        let Some(callback) = lock(&self.callback).take() else { return };
        let told = catch_unwind(AssertUnwindSafe(move || {
            let mut callback = callback;
            callback(bytes, total);
            callback
        }));
        if let Ok(callback) = told {
            *lock(&self.callback) = Some(callback);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_callback_is_told_of_new_bytes_only() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = told.clone();
        let mut progress = ProgressCallback::new(move |bytes, total| lock(&seen).push((bytes, total)));
        for bytes in [0, 5, 5, 8] {
            progress.tell(bytes, Some(8));
        }
        progress.restarted().tell(3, None);
        assert_eq!(*lock(&told), [(5, Some(8)), (8, Some(8)), (3, None)]);
    }

    #[test]
    fn a_callback_that_panics_is_not_called_again() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let mut progress = ProgressCallback::new(move |_, _| {
            seen.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new(()));
        });
        progress.tell(1, None);
        progress.tell(2, None);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
