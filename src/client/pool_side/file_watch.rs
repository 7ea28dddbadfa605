//! The watch of the files of a client's certificates and keys: by a task, and by dials for which the task has not read them in time.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::clock::Instant;
use crate::sync::lock;
use crate::{clock, world};

/// A client whose files are read again.
pub(in crate::client) trait Reload: Send + Sync {
    /// Reads the files again, and uses what they hold now. May wait for the file system. Returns false if they are to be read once more
    /// after [`SETTLING`], because they may have been in the middle of being written.
    fn reload(&self) -> bool;
}

/// The watch of the files of a client.
///
/// A task reads them at an interval. It ends with its runtime, and is started again by the next request that waits for a
/// connection. A client that was not used for a while, or whose runtimes are short, may have no such task: there, a dial reads
/// the files before it begins.
pub(in crate::client) struct FileWatch {
    /// The time between two readings.
    interval: Duration,
    /// True if there are files to read.
    is_needed: AtomicBool,
    client: Weak<dyn Reload>,
    /// The time of the last reading.
    read_at: Mutex<Instant>,
    /// Held while the files are read, by a thread that may block.
    reading: Mutex<()>,
    task: WatchTask,
}

/// The time between two readings that must agree.
const SETTLING: Duration = Duration::from_millis(100);
/// The most readings in a row, if the files change all the time.
const MOST_READINGS: usize = 5;
/// The longest time that a dial waits for files. They may be on a slow file system.
const PATIENCE: Duration = Duration::from_secs(1);
/// The part of the interval by which a task may be late.
const LATE_PART: u32 = 10;

impl FileWatch {
    /// Creates the watch of a client's files, which are read at this interval if there are any.
    pub(in crate::client) fn new(interval: Duration, is_needed: bool, client: Weak<dyn Reload>) -> Arc<Self> {
        Arc::new(Self {
            interval,
            is_needed: AtomicBool::new(is_needed),
            client,
            read_at: Mutex::new(clock::now()),
            reading: Mutex::default(),
            task: WatchTask::default(),
        })
    }

    /// Sets whether there are files to read.
    pub(in crate::client) fn set_needed(&self, is_needed: bool) {
        self.is_needed.store(is_needed, Ordering::Relaxed);
    }

    /// Starts the task unless it runs. Does nothing outside of a runtime.
    pub(in crate::client) fn ensure_running(self: &Arc<Self>) {
        if self.is_needed.load(Ordering::Relaxed) {
            self.task.ensure_running(|| run(Arc::downgrade(self)));
        }
    }

    /// Returns true if the files should have been read by now.
    pub(in crate::client) fn are_late(&self) -> bool {
        let late_by = self.interval.saturating_add(self.interval / LATE_PART);
        self.is_needed.load(Ordering::Relaxed) && clock::now() - *lock(&self.read_at) >= late_by
    }

    /// Has the files read, but waits no longer than [`PATIENCE`] for that.
    pub(in crate::client) async fn read_in_time(self: &Arc<Self>) {
        let deadline = clock::now().checked_add(PATIENCE);
        if clock::before(deadline, pin!(self.read())).await.is_none() {
            *lock(&self.read_at) = clock::now();
        }
    }

    /// Has the files read, until two readings agree.
    async fn read(self: &Arc<Self>) {
        let asked_at = clock::now();
        for _ in 0..MOST_READINGS {
            let this = self.clone();
            // A panic ends only this reading.
            let is_sure = world::run_blocking(move || this.read_once(asked_at)).await.unwrap_or(true);
            if is_sure {
                return;
            }
            clock::sleep_until(clock::now().checked_add(SETTLING)).await;
        }
    }

    /// Reads the files, unless another thread has since they were asked for. Returns false if they are to be read once more.
    fn read_once(&self, asked_at: Instant) -> bool {
        let _reading = lock(&self.reading);
        if *lock(&self.read_at) > asked_at {
            return true;
        }
        let Some(client) = self.client.upgrade() else { return true };
        let is_sure = client.reload();
        if is_sure {
            *lock(&self.read_at) = clock::now();
        }
        is_sure
    }
}

/// Has the files read until the client is gone.
async fn run(watch: Weak<FileWatch>) {
    loop {
        let Some(next) = watch.upgrade().map(|watch| lock(&watch.read_at).checked_add(watch.interval)) else { return };
        clock::sleep_until(next).await;
        let Some(watch) = watch.upgrade() else { return };
        watch.read().await;
        // If they change all the time, the next reading is an interval away as well.
        let mut read_at = lock(&watch.read_at);
        *read_at = (*read_at).max(clock::now());
    }
}

/// A task that ends with its runtime or with this value.
#[derive(Debug, Default)]
pub(in crate::client) struct WatchTask(Mutex<Option<AbortHandle>>);

impl WatchTask {
    /// Starts `task` on the current runtime, unless it runs. Does nothing outside of a runtime.
    pub(in crate::client) fn ensure_running<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        let mut running = lock(&self.0);
        if running.as_ref().is_none_or(AbortHandle::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            *running = Some(runtime.spawn(task().boxed()).abort_handle());
        }
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        let running = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running {
            running.abort();
        }
    }
}
