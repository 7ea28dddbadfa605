//! The dials in flight: their tasks, their traces, and the callers that wait for their end.
//!
//! A dial returns its outcome to the driver, which acts on it; nothing here knows of the driver.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use crate::world::RandomState;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::dial::Dial;
use super::state::ConnId;
use crate::sync::lock;
use crate::trace::DialTrace;

/// The dials in flight, by the number of their connection.
pub(super) struct DialsInFlight<D: Dial> {
    dials: Mutex<HashMap<u64, DialInFlight<D>, RandomState>>,
}

/// A dial in flight.
struct DialInFlight<D: Dial> {
    trace: Arc<DialTrace>,
    /// The dial's task, once it is known.
    task: Option<AbortHandle>,
    /// Callers that wait for the end of the dial without being its request.
    watchers: Vec<oneshot::Sender<WatchedEnd<D>>>,
}

/// The end of a dial, for a caller that watches it. The error goes to one of them; the others get `None`.
pub(super) type WatchedEnd<D> = Result<(), Option<<D as Dial>::Error>>;

impl<D: Dial> Default for DialsInFlight<D> {
    fn default() -> Self {
        Self { dials: Mutex::default() }
    }
}

impl<D: Dial> DialsInFlight<D> {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, DialInFlight<D>, RandomState>> {
        lock(&self.dials)
    }

    /// Adds a dial whose task is not known yet.
    pub(super) fn insert(&self, trace: Arc<DialTrace>) {
        self.lock().insert(trace.connection(), DialInFlight { trace, task: None, watchers: Vec::new() });
    }

    /// Notes the task of a dial, unless the dial has ended already.
    pub(super) fn set_task(&self, dial: ConnId, task: AbortHandle) {
        if let Some(in_flight) = self.lock().get_mut(&dial.serial) {
            in_flight.task = Some(task);
        }
    }

    /// Returns the task of a dial: `None` if the dial is not in flight, `Some(None)` if its task is not known yet.
    pub(super) fn task(&self, number: u64) -> Option<Option<AbortHandle>> {
        self.lock().get(&number).map(|in_flight| in_flight.task.clone())
    }

    /// Returns the trace of a dial.
    pub(super) fn trace(&self, dial: u64) -> Option<Arc<DialTrace>> {
        self.lock().get(&dial).map(|in_flight| in_flight.trace.clone())
    }

    /// Returns true if a dial waits for DNS, or has addresses left that it has not tried.
    pub(super) fn is_on_its_way(&self, dial: ConnId) -> bool {
        self.lock().get(&dial.serial).is_some_and(|in_flight| in_flight.trace.is_on_its_way())
    }

    /// Returns a receiver of the end of a dial, or `None` if it is not in flight.
    pub(super) fn watch(&self, dial: ConnId) -> Option<oneshot::Receiver<WatchedEnd<D>>> {
        let (watcher, end) = oneshot::channel();
        self.lock().get_mut(&dial.serial)?.watchers.push(watcher);
        Some(end)
    }

    /// Aborts a dial.
    pub(super) fn abort(&self, dial: ConnId) {
        // The lock is released first: if the task is dropped by this, its guard takes the lock.
        let task = self.task(dial.serial).flatten();
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Aborts all dials.
    pub(super) fn abort_all(&self) {
        for task in self.lock().values().filter_map(|in_flight| in_flight.task.as_ref()) {
            task.abort();
        }
    }

    /// Removes a dial that has ended and tells its watchers.
    pub(super) fn remove(&self, number: u64, mut end: WatchedEnd<D>) {
        let Some(in_flight) = self.lock().remove(&number) else { return };
        for watcher in in_flight.watchers {
            let rest = if end.is_ok() { Ok(()) } else { Err(None) };
            let _ = watcher.send(std::mem::replace(&mut end, rest));
        }
    }

    /// Removes a dial that was lost. Its watchers find their channel closed.
    pub(super) fn remove_lost(&self, number: u64) {
        let lost = self.lock().remove(&number);
        drop(lost);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

/// The task of a connection: its dial, and then what serves it. A task of its own for each would cost twice as much.
///
/// It is written by hand because it stays in memory as long as the connection lives: the dial's part is freed when that ends.
pub(super) enum ConnectionTask<F, S> {
    Dialling(Pin<Box<F>>),
    Serving(S),
    Over,
}

impl<F, S> ConnectionTask<F, S> {
    /// Creates the task of a connection that is about to be dialled. `dial` returns the future that serves the connection.
    pub(super) fn new(dial: F) -> Self {
        Self::Dialling(Box::pin(dial))
    }
}

impl<F: Future<Output = Option<S>>, S: Future<Output = ()> + Unpin> Future for ConnectionTask<F, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Dialling(dial) = &mut *self {
            *self = match ready!(dial.as_mut().poll(cx)) {
                Some(serving) => Self::Serving(serving),
                None => Self::Over,
            };
        }
        match &mut *self {
            Self::Serving(serving) => Pin::new(serving).poll(cx),
            _ => Poll::Ready(()),
        }
    }
}
