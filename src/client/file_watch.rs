//! A task that has a client read the files of its certificates and keys again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::AbortHandle;

use crate::clock;
use crate::sync::lock;

/// A client whose files are read again.
pub(super) trait Reload: Send + Sync {
    /// Reads the files again, and uses what they hold now. May wait for the file system.
    fn reload(&self);
}

/// The task that has the files of a client read again. It ends with its runtime, and is started again by the next request that
/// waits for a connection.
pub(super) struct FileWatch {
    /// The time between two readings.
    interval: Duration,
    /// True if there are files to read.
    is_needed: AtomicBool,
    client: Weak<dyn Reload>,
    task: Mutex<Option<AbortHandle>>,
}

impl FileWatch {
    /// Creates the watch of a client's files, which are read at this interval if there are any.
    pub(super) fn new(interval: Duration, is_needed: bool, client: Weak<dyn Reload>) -> Self {
        Self { interval, is_needed: AtomicBool::new(is_needed), client, task: Mutex::default() }
    }

    /// Sets whether there are files to read.
    pub(super) fn set_needed(&self, is_needed: bool) {
        self.is_needed.store(is_needed, Ordering::Relaxed);
    }

    /// Starts the task unless it runs. Does nothing outside of a runtime.
    pub(super) fn ensure_running(&self) {
        if !self.is_needed.load(Ordering::Relaxed) {
            return;
        }
        let mut task = lock(&self.task);
        if task.as_ref().is_none_or(AbortHandle::is_finished) && tokio::runtime::Handle::try_current().is_ok() {
            *task = Some(tokio::spawn(run(self.interval, self.client.clone()).boxed()).abort_handle());
        }
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

/// Has the files read until the client is gone.
async fn run(interval: Duration, client: Weak<dyn Reload>) {
    loop {
        clock::sleep_until(clock::now().checked_add(interval)).await;
        let Some(client) = client.upgrade() else { return };
        // A file may be on a slow file system. A panic ends only this reading.
        let _ = tokio::task::spawn_blocking(move || client.reload()).await;
    }
}
