//! The dials in flight: their tasks, their traces, and the callers that wait for their end. The trait of what the pool dials, and the slot of
//! a connection.
//!
//! A dial returns its outcome to the driver, which acts on it; nothing here knows of the driver.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::clock::Instant;
use crate::pool::state::{Addresses, BalancedHost, ConnId, Location, Speaks};
use crate::sync::lock;
use crate::trace::{self, CloseCause, DialTrace, Hooks, Limit};
use crate::world::RandomState;

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

/// Opens connections for a pool.
pub(crate) trait Dial: Send + Sync + Sized + 'static {
    /// The identity of a host: requests with equal keys share connections.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// A connection that is open and not served yet.
    type Opened: Send;
    /// A handle on a connection. Clones share the connection.
    type Conn: Clone + Send + 'static;
    type Error: Clone + Send + 'static;

    /// Opens a connection, to an address by these wishes. `trace` records the phases.
    fn dial(
        &self,
        key: &Self::Key,
        addresses: AddressWish,
        trace: &Arc<DialTrace>,
    ) -> impl Future<Output = Result<Self::Opened, Self::Error>> + Send;

    /// Takes a connection into service.
    ///
    /// The future serves it, in `task`, until its socket is closed or the task is aborted. `slot` must be dropped after the socket
    /// is closed, and not before.
    fn start(
        &self,
        opened: Self::Opened,
        slot: Slot,
        task: AbortHandle,
    ) -> (Started<Self::Conn>, impl Future<Output = ()> + Send + Unpin + use<Self>);

    /// Closes a connection that carries no request.
    fn close(conn: &Self::Conn);

    /// Returns the host and port by which limits are looked up.
    fn address(key: &Self::Key) -> (String, u16);

    /// Returns the protocol of a host, as far as it is known before the first connection.
    fn speaks(&self, key: &Self::Key) -> Speaks;

    /// Returns what is known of a host whose requests are balanced over its addresses; `None` if they are not.
    fn balanced(&self, key: &Self::Key) -> Option<BalancedHost>;

    /// Returns the addresses of an answer that may be dialled.
    fn usable(&self, ips: &Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        ips.clone()
    }

    /// Returns what the process or the system lacks, if a dial failed for that: [`Limit::Descriptors`] (EMFILE, ENFILE) or
    /// [`Limit::Ports`].
    fn lacking(error: &Self::Error) -> Option<Limit>;

    /// Returns the DNS answers for a name at `now`, in as many families as have one. One that has expired is asked for anew.
    fn answers(&self, now: Instant, name: &str) -> SmallVec<[Addresses; 2]>;
}

/// The wishes of a dial about the address it connects to. Other addresses are dialled if those it prefers do not connect.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AddressWish {
    /// The address that is dialled before all others.
    pub(crate) first: Option<SocketAddr>,
    /// The address that is dialled after others, which do well as far as is known.
    pub(crate) avoid: Option<IpAddr>,
}

/// A connection in service.
pub(crate) struct Started<C> {
    pub(crate) conn: C,
    pub(crate) speaks: Speaks,
    pub(crate) location: Option<Location>,
    /// The address that was connected to.
    pub(crate) remote: Option<SocketAddr>,
}

/// The owner of slots: the driver, which takes reports about connections.
pub(super) trait SlotOwner: Send + Sync {
    /// Frees the slot of a connection whose socket is closed. Returns the cause of the close.
    fn free_slot(self: Arc<Self>, id: ConnId) -> CloseCause;
    /// Takes note of the number of concurrent requests that a peer allows.
    fn announce_streams(self: Arc<Self>, id: ConnId, streams: usize);
    /// Gives a connection no more requests.
    fn retire(self: Arc<Self>, id: ConnId, cause: CloseCause);
    /// Gives a connection no more requests, and opens no other one to its host for a while.
    fn back_off(self: Arc<Self>, id: ConnId);
}

/// The slot of a connection. Its holder serves the connection, and drops the slot when the socket is closed.
pub(crate) struct Slot {
    owner: Weak<dyn SlotOwner>,
    hooks: Hooks,
    id: ConnId,
}

impl Slot {
    pub(super) fn new(owner: Weak<dyn SlotOwner>, hooks: Hooks, id: ConnId) -> Self {
        Self { owner, hooks, id }
    }

    /// Returns the connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.id.serial
    }

    /// Returns a reporter of the connection's capacity.
    pub(crate) fn capacity_reporter(&self) -> CapacityReporter {
        CapacityReporter { owner: self.owner.clone(), id: self.id }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let cause = match self.owner.upgrade() {
            Some(owner) => owner.free_slot(self.id),
            None => CloseCause::Program,
        };
        trace::connection_closed(&self.hooks, self.id.serial, cause);
    }
}

/// Reports to the pool the number of requests that a connection takes.
pub(crate) struct CapacityReporter {
    owner: Weak<dyn SlotOwner>,
    id: ConnId,
}

impl CapacityReporter {
    /// Reports the number of concurrent requests that the peer allows.
    pub(crate) fn announce_streams(&self, streams: usize) {
        if let Some(owner) = self.owner.upgrade() {
            owner.announce_streams(self.id, streams);
        }
    }

    /// Reports that the peer takes no new requests.
    pub(crate) fn take_no_more(&self) {
        self.retire(CloseCause::PeerAnnounced);
    }

    /// Reports that the runtime which serves the connection ends. The pool hears it before the socket is closed, and does not
    /// take that for a close by the peer.
    pub(crate) fn abandon(&self) {
        self.retire(CloseCause::Program);
    }

    fn retire(&self, cause: CloseCause) {
        if let Some(owner) = self.owner.upgrade() {
            owner.retire(self.id, cause);
        }
    }

    /// Reports that the peer takes no new requests, and asks for fewer of them (ENHANCE_YOUR_CALM, RFC 9113 §7).
    pub(crate) fn back_off(&self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.back_off(self.id);
        }
    }
}
