//! The end of a task, for those who wait for it.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{Map, Shared};
use tokio::runtime;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

use super::{current_runtime, lock};

type Receiver<T> = Shared<Map<oneshot::Receiver<T>, fn(Result<T, RecvError>) -> Option<T>>>;

/// A channel for one value, which a task sends once and all who wait for it receive.
#[derive(Clone)]
pub(crate) struct Landing<T: Clone> {
    /// The runtime of the task.
    runtime: Option<runtime::Id>,
    sender: Arc<Mutex<Option<oneshot::Sender<T>>>>,
    /// Unlike a `watch` channel, it wakes those who wait in the order in which they came.
    receiver: Receiver<T>,
}

impl<T: Clone> Landing<T> {
    /// Takes the end at which the task tells what it brings. If that is dropped, the task is lost.
    pub(crate) fn take_sender(&self) -> Option<oneshot::Sender<T>> {
        lock(&self.sender).take()
    }

    /// Returns true if the task runs on another runtime, which may be blocked or not driven.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.runtime != current_runtime()
    }

    /// Waits for the task. `None` if it was lost.
    pub(crate) fn wait(&self) -> impl Future<Output = Option<T>> + Unpin + use<T> {
        self.receiver.clone()
    }
}

impl<T: Clone> Default for Landing<T> {
    /// Creates that of a task which is begun on the current runtime.
    fn default() -> Self {
        let (sender, receiver) = oneshot::channel();
        let receiver = receiver.map(Result::ok as fn(_) -> _).shared();
        Self { runtime: current_runtime(), sender: Arc::new(Mutex::new(Some(sender))), receiver }
    }
}

impl<T: Clone> fmt::Debug for Landing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Landing")
    }
}
