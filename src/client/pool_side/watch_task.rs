//! A task that watches something for a client, and is started again if its runtime has ended.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::sync::lock;

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
