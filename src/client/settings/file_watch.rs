//! A task that has a client read the files of its certificates and keys again.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::pool_side::watch_task::WatchTask;
use crate::clock;
use crate::world;

/// A client whose files are read again.
pub(in crate::client) trait Reload: Send + Sync {
    /// Reads the files again, and uses what they hold now. May wait for the file system.
    fn reload(&self);
}

/// The task that has the files of a client read again. It ends with its runtime, and is started again by the next request that
/// waits for a connection.
pub(in crate::client) struct FileWatch {
    /// The time between two readings.
    interval: Duration,
    /// True if there are files to read.
    is_needed: AtomicBool,
    client: Weak<dyn Reload>,
    task: WatchTask,
}

impl FileWatch {
    /// Creates the watch of a client's files, which are read at this interval if there are any.
    pub(in crate::client) fn new(interval: Duration, is_needed: bool, client: Weak<dyn Reload>) -> Self {
        Self { interval, is_needed: AtomicBool::new(is_needed), client, task: WatchTask::default() }
    }

    /// Sets whether there are files to read.
    pub(in crate::client) fn set_needed(&self, is_needed: bool) {
        self.is_needed.store(is_needed, Ordering::Relaxed);
    }

    /// Starts the task unless it runs. Does nothing outside of a runtime.
    pub(in crate::client) fn ensure_running(&self) {
        if self.is_needed.load(Ordering::Relaxed) {
            self.task.ensure_running(|| run(self.interval, self.client.clone()));
        }
    }
}

/// Has the files read until the client is gone.
async fn run(interval: Duration, client: Weak<dyn Reload>) {
    loop {
        clock::sleep_until(clock::now().checked_add(interval)).await;
        let Some(client) = client.upgrade() else { return };
        // A file may be on a slow file system. A panic ends only this reading.
        let _ = world::run_blocking(move || client.reload()).await;
    }
}
