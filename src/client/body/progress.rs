//! The callback for the bytes of a body that were sent or received.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use crate::sync::lock;

/// A callback for the bytes of a body, and the bytes that were last reported. Clones for further attempts share the
/// callback. Of attempts that overlap, only the one that began last reports, so that the counts rise.
pub(super) struct ProgressCallback {
    shared: Arc<Mutex<SharedCallback>>,
    /// The number of this attempt; `None` before its first report.
    attempt: Option<u64>,
    last_reported: u64,
}

/// The part of a [`ProgressCallback`] that all attempts share.
struct SharedCallback {
    /// `None` while the callback runs, and after it has panicked.
    callback: Option<Callback>,
    /// The number of the attempt that began last.
    newest_attempt: u64,
    /// The progress that the callback was not called with yet.
    unreported: Option<Progress>,
}

type Callback = Box<dyn FnMut(u64, Option<u64>) + Send>;

/// The bytes so far, and the length of the body if it is known.
type Progress = (u64, Option<u64>);

impl ProgressCallback {
    pub(super) fn new(callback: impl FnMut(u64, Option<u64>) + Send + 'static) -> Self {
        let shared = SharedCallback { callback: Some(Box::new(callback)), newest_attempt: 0, unreported: None };
        Self { shared: Arc::new(Mutex::new(shared)), attempt: None, last_reported: 0 }
    }

    /// Returns the progress of the same body when it is sent once more, from its start.
    pub(super) fn restarted(&self) -> Self {
        Self { shared: self.shared.clone(), attempt: None, last_reported: 0 }
    }

    /// Calls the callback with `bytes` of `total`, unless they were reported before or a newer attempt has begun.
    pub(super) fn report(&mut self, bytes: u64, total: Option<u64>) {
        if bytes == self.last_reported {
            return;
        }
        self.last_reported = bytes;
        let mut shared = lock(&self.shared);
        let attempt = *self.attempt.get_or_insert_with(|| {
            shared.newest_attempt += 1;
            shared.newest_attempt
        });
        if attempt != shared.newest_attempt {
            return;
        }
        shared.unreported = Some((bytes, total));
        drop(shared);
        call_back(&self.shared);
    }
}

/// Calls the callback until everything is reported. If it runs already, for an older attempt in another thread, that
/// thread does so.
///
/// A panic of the callback must not reach the task of a connection, which may serve other requests. After one the
/// callback is not called again.
fn call_back(shared: &Mutex<SharedCallback>) {
    while let Some((callback, (bytes, total))) = take_call(shared) {
        let called = catch_unwind(AssertUnwindSafe(move || {
            let mut callback = callback;
            callback(bytes, total);
            callback
        }));
        let Ok(callback) = called else { return };
        lock(shared).callback = Some(callback);
    }
}

/// Takes the callback out, so that it does not run under the lock, together with what it is to be called with.
fn take_call(shared: &Mutex<SharedCallback>) -> Option<(Callback, Progress)> {
    let mut shared = lock(shared);
    let progress = shared.unreported?;
    let callback = shared.callback.take()?;
    shared.unreported = None;
    Some((callback, progress))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns a callback that records its calls, and the record.
    fn recorded() -> (ProgressCallback, Arc<Mutex<Vec<Progress>>>) {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = calls.clone();
        (ProgressCallback::new(move |bytes, total| lock(&seen).push((bytes, total))), calls)
    }

    #[test]
    fn only_new_bytes_are_reported() {
        let (mut progress, calls) = recorded();
        for bytes in [0, 5, 5, 8] {
            progress.report(bytes, Some(8));
        }
        progress.restarted().report(3, None);
        assert_eq!(*lock(&calls), [(5, Some(8)), (8, Some(8)), (3, None)]);
    }

    #[test]
    fn of_attempts_that_overlap_the_last_one_reports() {
        let (mut first, calls) = recorded();
        let mut second = first.restarted();
        let mut third = second.restarted();
        first.report(5, None);
        second.report(4, None);
        first.report(6, None);
        second.report(8, None);
        first.report(8, None);
        third.report(8, None);
        second.report(9, None);
        assert_eq!(lock(&calls).iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [5, 4, 8, 8]);
    }

    #[test]
    fn a_report_is_not_lost_while_the_callback_runs_for_another_attempt() {
        let running = Arc::new(Barrier::new(2));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (inside, seen) = (running.clone(), calls.clone());
        let mut first = ProgressCallback::new(move |bytes, _| {
            lock(&seen).push(bytes);
            if bytes == 1 {
                inside.wait();
                inside.wait();
            }
        });
        let mut second = first.restarted();
        let meanwhile = std::thread::scope(|scope| {
            scope.spawn(move || first.report(1, None));
            running.wait();
            second.report(50, Some(100));
            second.report(100, Some(100));
            let meanwhile = lock(&calls).clone();
            running.wait();
            meanwhile
        });
        assert_eq!(meanwhile, [1], "the callback runs in one thread at a time");
        assert_eq!(*lock(&calls), [1, 100]);
    }

    #[test]
    fn a_callback_that_panics_is_not_called_again() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let mut progress = ProgressCallback::new(move |_, _| {
            seen.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new(()));
        });
        progress.report(1, None);
        progress.report(2, None);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
