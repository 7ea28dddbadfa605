//! Connections per host, kept and shared under limits: the core decides under a lock, this driver acts outside of it.

mod config;
mod lease;
mod state;

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

pub use config::{PoolConfig, PoolConfigError};
pub(crate) use lease::{Lease, Ticket};
use state::{Acquired, ConnId, Effect, Failure, Permit, State, TicketId};

use crate::clock::{Alarm, Instant, Timed, now};
use crate::trace::{self, DialTrace, Event, Hooks};

/// Opens connections for a pool.
pub(crate) trait Dial: Send + Sync + Sized + 'static {
    /// What connections are pooled by.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// A connection that is not served yet.
    type Opened: Send;
    type Conn: Send + 'static;
    type Error: Send + 'static;

    fn dial(
        &self,
        key: &Self::Key,
        trace: &Arc<DialTrace>,
    ) -> impl Future<Output = Result<Self::Opened, Self::Error>> + Send;

    /// Starts to serve a connection; `place` has to be dropped when, and not before, its socket is closed.
    fn start(&self, opened: Self::Opened, place: Place<Self>) -> Self::Conn;
}

/// Why a request got no connection.
#[derive(Debug)]
pub(crate) enum LeaseError<E> {
    /// Its dial failed.
    Dial(E),
    /// Its dial was lost, because a runtime was shut down or something panicked.
    Lost,
    /// It waited for too long.
    WaitTimeout(Duration),
    /// So many wait already that it may not.
    Full(usize),
}

/// What came of waiting, and the dial that belongs to it.
pub(crate) struct Delivery<D: Dial> {
    pub(crate) lease: Result<Lease<D>, LeaseError<D::Error>>,
    pub(crate) dial: Option<Arc<DialTrace>>,
}

/// What a request gets at once.
pub(crate) enum Checkout<D: Dial> {
    Ready(Lease<D>),
    Wait(Ticket<D>),
    Full(LeaseError<D::Error>),
}

/// Where a pool's connections and requests are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Connections that wait for a request.
    pub idle: usize,
    /// Connections that serve a request.
    pub in_use: usize,
    /// Connections being opened.
    pub dialling: usize,
    /// Connections given up whose sockets are not closed yet.
    pub closing: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened since the client was built.
    pub opened: u64,
    /// Connections closed since the client was built.
    pub closed: u64,
}

/// A pool. Clones share it.
pub(crate) struct Pool<D: Dial> {
    shared: Arc<Shared<D>>,
}

pub(crate) struct Shared<D: Dial> {
    dialer: Arc<D>,
    hooks: Hooks,
    max_waiting: usize,
    state: Mutex<Core<D>>,
    /// The dials under way, by the number of their connection.
    dials: Mutex<Dials>,
    alarm: Alarm,
}

type Dials = HashMap<u64, (Arc<DialTrace>, Option<AbortHandle>)>;
type Todo<D> = Effect<<D as Dial>::Key, Pooled<<D as Dial>::Conn>, Waiter<D>, Undialled<<D as Dial>::Error>>;
type Core<D> = State<<D as Dial>::Key, Pooled<<D as Dial>::Conn>, Waiter<D>, Undialled<<D as Dial>::Error>>;

/// A connection in the books, with its dial as long as it comes right from that.
pub(crate) struct Pooled<C> {
    conn: C,
    born: Option<Arc<DialTrace>>,
}

impl<C> Pooled<C> {
    fn warm(conn: C) -> Self {
        Self { conn, born: None }
    }
}

/// A dial that failed, or was lost without an error.
pub(crate) struct Undialled<E> {
    error: Option<E>,
    dial: Arc<DialTrace>,
}

/// A request that waits, and the runtime it waits on, where dials for it run.
pub(crate) struct Waiter<D: Dial> {
    delivery: oneshot::Sender<Delivery<D>>,
    runtime: Option<Handle>,
}

impl<D: Dial> Pool<D> {
    pub(crate) fn new(config: PoolConfig, dialer: D, hooks: Hooks) -> Self {
        let max_waiting = config.max_waiting;
        let state = Mutex::new(State::new(config));
        let (dialer, dials, alarm) = (Arc::new(dialer), Mutex::default(), Alarm::default());
        Self { shared: Arc::new(Shared { dialer, hooks, max_waiting, state, dials, alarm }) }
    }

    /// Takes an idle connection, unless it `shuns_idle` ones, or a place in the queue.
    pub(crate) fn checkout(&self, key: &D::Key, shuns_idle: bool) -> Checkout<D> {
        let mut delivery = None;
        let acquired = self.shared.step(|state| {
            state.acquire(now(), key, shuns_idle, || {
                let (sender, receiver) = oneshot::channel();
                delivery = Some(receiver);
                Waiter { delivery: sender, runtime: Handle::try_current().ok() }
            })
        });
        match acquired {
            Acquired::Ready(held, pooled) => Checkout::Ready(Lease::new(self.shared.clone(), held, pooled.conn, false)),
            Acquired::Full => Checkout::Full(LeaseError::Full(self.shared.max_waiting)),
            Acquired::Wait(id) => {
                let delivery = delivery.expect("a request that waits has a delivery");
                Checkout::Wait(Ticket::new(self.shared.clone(), id, delivery))
            }
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        let books = self.shared.lock().books();
        PoolStats {
            idle: books.idle,
            in_use: books.leased,
            dialling: books.dialling,
            closing: books.closing,
            waiting: books.waiting,
            opened: books.opened,
            closed: books.closed,
        }
    }
}

thread_local! {
    /// The pool whose effects this thread performs, by address: what they cause in turn is left to the same loop.
    static PERFORMING: Cell<usize> = const { Cell::new(0) };
}

impl<D: Dial> Shared<D> {
    /// Changes the books under the lock and does what follows from it outside.
    fn step<T>(self: &Arc<Self>, change: impl FnOnce(&mut Core<D>) -> T) -> T {
        let (changed, has_effects, next) = {
            let mut state = self.lock();
            (change(&mut state), state.has_effects(), state.next_timeout())
        };
        if has_effects {
            self.perform();
        }
        Alarm::set(self, next);
        changed
    }

    fn perform(self: &Arc<Self>) {
        let this = Arc::as_ptr(self).addr();
        let outer = Outer(PERFORMING.replace(this));
        if outer.0 == this {
            return;
        }
        while let Some((effect, runtime)) = self.next_effect() {
            self.act(effect, runtime);
        }
    }

    /// The next effect, and for a dial the runtime it runs on.
    fn next_effect(&self) -> Option<(Todo<D>, Option<Handle>)> {
        let mut state = self.lock();
        let effect = state.poll()?;
        let runtime = match &effect {
            Effect::Dial(permit, _) => state.waiter_of(permit).and_then(|waiter| waiter.runtime.clone()),
            _ => None,
        };
        Some((effect, runtime))
    }

    fn act(self: &Arc<Self>, effect: Todo<D>, runtime: Option<Handle>) {
        match effect {
            Effect::Dial(permit, key) => self.dial(permit, key, runtime),
            Effect::Close(pooled) => drop(pooled),
            Effect::Deliver { waiter, held, conn: Pooled { conn, born } } => {
                let lease = Ok(Lease::new(self.clone(), held, conn, born.is_some()));
                // A request that left in the meantime drops the lease, which passes the connection on.
                let _ = waiter.delivery.send(Delivery { lease, dial: born });
            }
            Effect::Fail { waiter, why } => {
                let _ = waiter.delivery.send(self.failed(why));
            }
        }
    }

    fn failed(&self, why: Failure<Undialled<D::Error>>) -> Delivery<D> {
        let (error, dial) = match why {
            Failure::Dial(Undialled { error, dial }) => (error.map_or(LeaseError::Lost, LeaseError::Dial), Some(dial)),
            Failure::WaitTimeout { waited } => (LeaseError::WaitTimeout(waited), None),
        };
        Delivery { lease: Err(error), dial }
    }

    fn dial(self: &Arc<Self>, permit: Permit, key: D::Key, runtime: Option<Handle>) {
        let number = permit.id().serial;
        let dial = DialTrace::new(&self.hooks, number);
        self.dials().insert(number, (dial.clone(), None));
        let dialling = Dialling { shared: Arc::downgrade(self), permit: Some(permit), dial };
        // Without a runtime the dial is lost right here, which its request is told.
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            let task = runtime.spawn(dialling.run(self.dialer.clone(), key)).abort_handle();
            if let Some((_, abort)) = self.dials().get_mut(&number) {
                *abort = Some(task);
            }
        }
    }

    fn dial_of(&self, ticket: TicketId) -> Option<Arc<DialTrace>> {
        let dial = self.lock().dial_of(ticket)?;
        self.dial_trace(dial)
    }

    fn dial_trace(&self, dial: ConnId) -> Option<Arc<DialTrace>> {
        self.dials().get(&dial.serial).map(|(dial, _)| dial.clone())
    }

    // A panic in the core is a bug whose books may be off; taking every later request down with it helps nobody.
    fn lock(&self) -> MutexGuard<'_, Core<D>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dials(&self) -> MutexGuard<'_, Dials> {
        self.dials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Dial> Drop for Shared<D> {
    fn drop(&mut self) {
        for (_, abort) in self.dials().values() {
            if let Some(abort) = abort {
                abort.abort();
            }
        }
    }
}

impl<D: Dial> Timed for Shared<D> {
    fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    fn waits_on(&self, not: runtime::Id) -> Option<Handle> {
        let state = self.lock();
        let runtimes = state.waiters().filter_map(|waiter| waiter.runtime.as_ref());
        runtimes.into_iter().find(|runtime| runtime.id() != not).cloned()
    }

    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        self.step(|state| {
            state.handle_timeout(now);
            state.next_timeout()
        })
    }
}

/// Restores which pool's effects this thread performed before.
struct Outer(usize);

impl Drop for Outer {
    fn drop(&mut self) {
        PERFORMING.set(self.0);
    }
}

/// A dial under way. Dropped before it is over, with its runtime or by a panic, it is lost.
struct Dialling<D: Dial> {
    shared: Weak<Shared<D>>,
    permit: Option<Permit>,
    dial: Arc<DialTrace>,
}

impl<D: Dial> Dialling<D> {
    async fn run(mut self, dialer: Arc<D>, key: D::Key) {
        let outcome = dialer.dial(&key, &self.dial).await;
        let Some(shared) = self.shared.upgrade() else { return };
        match outcome {
            Ok(opened) => self.opened(&shared, &*dialer, opened),
            Err(error) => self.failed(&shared, Some(error)),
        }
    }

    fn opened(&mut self, shared: &Arc<Shared<D>>, dialer: &D, opened: D::Opened) {
        let Some(id) = self.permit.as_ref().map(Permit::id) else { return };
        let place = Place { shared: self.shared.clone(), hooks: shared.hooks.clone(), id };
        let pooled = Pooled { conn: dialer.start(opened, place), born: Some(self.dial.clone()) };
        if let Some(permit) = self.permit.take() {
            shared.step(|state| state.dialed(now(), permit, pooled));
        }
    }

    fn failed(&mut self, shared: &Arc<Shared<D>>, error: Option<D::Error>) {
        if let Some(permit) = self.permit.take() {
            self.dial.emit(Event::DialFailed);
            let undialled = Undialled { error, dial: self.dial.clone() };
            shared.step(|state| state.dial_failed(permit, undialled));
        }
    }
}

impl<D: Dial> Drop for Dialling<D> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            self.failed(&shared, None);
            shared.dials().remove(&self.dial.connection());
        }
    }
}

/// A connection's place in the books: whoever serves the connection holds it until the socket is closed.
pub(crate) struct Place<D: Dial> {
    shared: Weak<Shared<D>>,
    hooks: Hooks,
    id: ConnId,
}

impl<D: Dial> Place<D> {
    /// The connection's number.
    pub(crate) fn connection(&self) -> u64 {
        self.id.serial
    }
}

impl<D: Dial> Drop for Place<D> {
    fn drop(&mut self) {
        trace::connection_closed(&self.hooks, self.id.serial);
        if let Some(shared) = self.shared.upgrade() {
            shared.step(|state| state.closed(self.id));
        }
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
