//! Connections per host, kept and shared under limits: the core decides under a lock, this driver acts outside of it.

#[cfg(feature = "__bench")]
pub(crate) mod benched;
mod config;
mod lease;
mod state;
mod stats;

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use foldhash::fast::{FixedState, RandomState};
use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

pub use config::{FollowDns, HostLimits, PoolConfig, PoolConfigError};
pub(crate) use lease::{Lease, Ticket};
use state::{Acquired, ConnId, Effect, Failure, Home, Opened, Permit, Profile, State, TicketId, WarmUp};
pub(crate) use state::{Addresses, InLine, Location, Speaks, Wish};
pub use stats::{HostStats, PoolStats};

use crate::clock::{Alarm, Instant, Timed, now};
use crate::sync::lock;
use crate::trace::{self, CloseCause, DialTrace, Event, Hooks, Limit};

/// Opens connections for a pool.
pub(crate) trait Dial: Send + Sync + Sized + 'static {
    /// What connections are pooled by.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// A connection that is not served yet.
    type Opened: Send;
    /// A handle on a connection; clones share it.
    type Conn: Clone + Send + 'static;
    type Error: Send + 'static;

    fn dial(
        &self,
        key: &Self::Key,
        trace: &Arc<DialTrace>,
    ) -> impl Future<Output = Result<Self::Opened, Self::Error>> + Send;

    /// Takes a connection into service: the future serves it, in `task`, until its socket is closed or the task aborted. `place`
    /// has to be dropped when, and not before, the socket is closed.
    fn start(
        &self,
        opened: Self::Opened,
        place: Place<Self>,
        task: AbortHandle,
    ) -> (Started<Self::Conn>, impl Future<Output = ()> + Send + Unpin + use<Self>);

    /// Closes a connection that has no requests.
    fn close(conn: &Self::Conn);

    /// The host and port for which there may be limits.
    fn address(key: &Self::Key) -> (String, u16);

    /// What the host is known to speak.
    fn speaks(&self, key: &Self::Key) -> Speaks;

    /// Whether a dial failed because there are no more sockets to be had.
    fn is_exhausted(error: &Self::Error) -> bool;

    /// What DNS answers for a name at the moment.
    fn answers(&self, name: &str) -> Vec<Addresses>;
}

/// A connection that is served.
pub(crate) struct Started<C> {
    pub(crate) conn: C,
    pub(crate) speaks: Speaks,
    pub(crate) location: Option<Location>,
}

/// Why a request got no connection.
#[derive(Debug)]
pub(crate) enum LeaseError<E> {
    /// Its dial failed.
    Dial(E),
    /// Its dial was lost, because a runtime was shut down or something panicked.
    Lost,
    /// It waited for too long, kept waiting by this.
    WaitTimeout(Duration, Limit),
    /// It may not wait for this: there are enough that do.
    Refused(Limit),
    /// It would not wait for longer than this itself.
    Impatient(Duration),
}

/// What came of waiting, and the dial that belongs to it.
pub(crate) struct Delivery<D: Dial> {
    pub(crate) lease: Result<Lease<D>, LeaseError<D::Error>>,
    pub(crate) dial: Option<Arc<DialTrace>>,
}

/// What a request gets at once.
pub(crate) enum Checkout<D: Dial> {
    Ready(Lease<D>),
    Wait(Ticket<D>, InLine),
    Refused(LeaseError<D::Error>),
}

/// A pool. Clones share it.
pub(crate) struct Pool<D: Dial> {
    shared: Arc<Shared<D>>,
}

pub(crate) struct Shared<D: Dial> {
    dialer: Arc<D>,
    hooks: Hooks,
    // Of more threads than there are cores, one may be stopped while it holds the lock; the standard library's has all others
    // sleep then, and be woken one by one.
    state: parking_lot::Mutex<Core<D>>,
    /// The dials under way, by the number of their connection.
    dials: Mutex<Dials<D>>,
    alarm: Alarm,
    drained: Notify,
}

type Dials<D> = HashMap<u64, Underway<D>, RandomState>;

/// A dial under way.
struct Underway<D: Dial> {
    trace: Arc<DialTrace>,
    abort: Option<AbortHandle>,
    /// Who wants to know how it ends, beside the request it is for.
    watchers: Vec<Watcher<D>>,
}

/// Is told of a dial's error, where no request is.
type Watcher<D> = oneshot::Sender<Watched<D>>;
type Watched<D> = Result<(), Option<<D as Dial>::Error>>;
type Todo<D> = Effect<<D as Dial>::Key, Pooled<<D as Dial>::Conn>, Waiter<D>, Undialled<<D as Dial>::Error>>;
type Core<D> = State<<D as Dial>::Key, Pooled<<D as Dial>::Conn>, Waiter<D>, Undialled<<D as Dial>::Error>>;

/// A connection in the books, with its dial for those that waited for that.
#[derive(Clone)]
pub(crate) struct Pooled<C> {
    conn: C,
    born: Option<Arc<DialTrace>>,
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

impl<D: Dial> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<D: Dial> Pool<D> {
    pub(crate) fn new(config: PoolConfig, dialer: D, hooks: Hooks) -> Self {
        let dialer = Arc::new(dialer);
        let (limits, knows) = (config.clone(), dialer.clone());
        let state = State::new(config, move |key| {
            let (host, port) = D::address(key);
            Profile { limits: limits.limits_for(&host, port), speaks: knows.speaks(key) }
        });
        let (state, dials, alarm, drained) =
            (parking_lot::Mutex::new(state), Mutex::default(), Alarm::default(), Notify::new());
        Self { shared: Arc::new(Shared { dialer, hooks, state, dials, alarm, drained }) }
    }

    /// Takes a seat on a connection, or a place in the queue. It is `now`, or was a moment ago.
    pub(crate) fn checkout(&self, key: &D::Key, wish: Wish, now: Instant) -> Checkout<D> {
        let mut delivery = None;
        let wish = Wish { home: home(), ..wish };
        let acquired = self.shared.step(|state| {
            state.checkout(now, key, wish, || {
                let (sender, receiver) = oneshot::channel();
                delivery = Some(receiver);
                Waiter { delivery: sender, runtime: Handle::try_current().ok() }
            })
        });
        match acquired {
            Acquired::Ready(grant) => Checkout::Ready(Lease::new(self.shared.clone(), grant)),
            Acquired::Refused(limit) => Checkout::Refused(LeaseError::Refused(limit)),
            Acquired::Wait(id, line) => {
                let delivery = delivery.expect("a request that waits has a delivery");
                Checkout::Wait(Ticket::new(self.shared.clone(), id, delivery), line)
            }
        }
    }

    /// Opens connections until a host has `count`, as far as the limits allow. How many it has then.
    pub(crate) async fn warm_up(&self, key: &D::Key, count: usize) -> Result<usize, LeaseError<D::Error>> {
        let (mut budget, mut waited, mut before) = (count, false, 0);
        loop {
            let WarmUp { open, dialled, dials } = self.shared.step(|state| state.warm_up(now(), key, count, budget));
            budget -= dialled;
            // Dials of others go on for ever where there are always others.
            if dials.is_empty() || (waited && dialled == 0 && open <= before) {
                return Ok(open);
            }
            (waited, before) = (true, open);
            let watched: Vec<_> = dials.iter().filter_map(|dial| self.shared.watch(*dial)).collect();
            if watched.is_empty() {
                // Another thread is about to begin them, or has just ended them.
                tokio::task::yield_now().await;
            }
            for outcome in watched {
                if let Ok(Err(Some(error))) = outcome.await {
                    return Err(LeaseError::Dial(error));
                }
            }
        }
    }

    /// Closes what is idle.
    pub(crate) fn close_idle(&self) {
        self.shared.step(|state| state.close_idle(now()));
    }

    /// Serves no new call from now on; ends when those that are there are over and every socket is closed.
    pub(crate) async fn drain(&self) {
        let mut drained = std::pin::pin!(self.shared.drained.notified());
        drained.as_mut().enable();
        let over = self.shared.step(|state| {
            state.drain(now());
            state.is_drained()
        });
        if !over {
            drained.await;
        }
    }

    /// Takes one resend from a host's allowance for requests that it turned away. Returns false if there is none left.
    pub(crate) fn may_resend(&self, key: &D::Key) -> bool {
        self.shared.lock().may_resend(now(), key)
    }

    /// Has a drain wait for a call that has no connection at the moment, and will want one.
    pub(crate) fn stay(&self) -> Stay<D> {
        self.shared.step(State::stay);
        Stay(self.shared.clone())
    }

    /// Tells of a new answer of DNS.
    pub(crate) fn answered(&self, name: &str, answer: &Addresses) {
        self.shared.step(|state| state.answered(now(), name, answer, true));
    }

    /// Asks what DNS answers for the names of connections, where it may have changed unseen.
    pub(crate) fn catch_up(&self) {
        let names = self.shared.lock().names();
        for name in names {
            for answer in self.shared.dialer.answers(&name) {
                self.answered(&name, &answer);
            }
        }
    }

    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats::new(&self.shared.lock().books())
    }

    /// The same for each host by itself.
    pub(crate) fn host_stats(&self) -> Vec<(D::Key, HostStats)> {
        self.shared.lock().host_books().map(|(key, books)| (key.clone(), HostStats::new(&books))).collect()
    }

    pub(crate) fn downgrade(&self) -> WeakPool<D> {
        WeakPool(Arc::downgrade(&self.shared))
    }
}

/// The runtime that this is called on.
fn home() -> Home {
    Handle::try_current().map_or_else(|_| Home::default(), |runtime| Home(FixedState::default().hash_one(runtime.id())))
}

/// A call that is under way without a connection, until it is dropped.
pub(crate) struct Stay<D: Dial>(Arc<Shared<D>>);

impl<D: Dial> Drop for Stay<D> {
    fn drop(&mut self) {
        self.0.step(State::stay_no_longer);
    }
}

/// A pool that somebody else keeps.
pub(crate) struct WeakPool<D: Dial>(Weak<Shared<D>>);

impl<D: Dial> WeakPool<D> {
    pub(crate) fn upgrade(&self) -> Option<Pool<D>> {
        self.0.upgrade().map(|shared| Pool { shared })
    }
}

thread_local! {
    /// The pool whose effects this thread performs, by address, and whether there are new ones: what they cause in turn is left to
    /// the same loop.
    static PERFORMING: Cell<(usize, bool)> = const { Cell::new((0, false)) };
}

/// An effect, for a dial the runtime it runs on, and whether others follow.
type Next<D> = (Todo<D>, Option<Handle>, bool);

impl<D: Dial> Shared<D> {
    /// Changes the books under the lock and does what follows from it outside.
    fn step<T>(self: &Arc<Self>, change: impl FnOnce(&mut Core<D>) -> T) -> T {
        let this = Arc::as_ptr(self).addr();
        let is_performing = PERFORMING.get().0 == this;
        let (changed, first, before, next) = {
            let mut state = self.lock();
            let before = state.next_timeout();
            let changed = change(&mut state);
            let first = match is_performing {
                true => {
                    PERFORMING.set((this, state.has_effects()));
                    None
                }
                false => Self::next_effect(&mut state),
            };
            (changed, first, before, state.next_timeout())
        };
        match next == before {
            true => Alarm::set_again(self, next),
            false => Alarm::set(self, next),
        }
        if let Some(first) = first {
            self.perform(first);
        }
        changed
    }

    fn perform(self: &Arc<Self>, mut next: Next<D>) {
        let this = Arc::as_ptr(self).addr();
        let _outer = Outer(PERFORMING.replace((this, false)));
        loop {
            let (effect, runtime, others) = next;
            self.act(effect, runtime);
            let (_, caused) = PERFORMING.replace((this, false));
            if !others && !caused {
                return;
            }
            // Another thread may have taken it.
            let Some(another) = Self::next_effect(&mut self.lock()) else { return };
            next = another;
        }
    }

    fn next_effect(state: &mut Core<D>) -> Option<Next<D>> {
        let effect = state.poll()?;
        let runtime = match &effect {
            Effect::Dial(permit, _) => state.waiter_of(permit).and_then(|waiter| waiter.runtime.clone()),
            _ => None,
        };
        Some((effect, runtime, state.has_effects()))
    }

    fn act(self: &Arc<Self>, effect: Todo<D>, runtime: Option<Handle>) {
        match effect {
            Effect::Dial(permit, key) => self.dial(permit, key, runtime),
            Effect::Close(pooled) => D::close(&pooled.conn),
            Effect::Deliver { waiter, grant } => {
                let dial = grant.conn.born.clone();
                let lease = Ok(Lease::new(self.clone(), grant));
                // A request that left in the meantime drops the lease, which passes the connection on.
                let _ = waiter.delivery.send(Delivery { lease, dial });
            }
            Effect::Retired(id, cause) => trace::connection_retired(&self.hooks, id.serial, cause),
            Effect::Ask(name) => {
                for answer in self.dialer.answers(&name) {
                    self.step(|state| state.answered(now(), &name, &answer, true));
                }
            }
            Effect::Abort(dial) => self.abort_if_unwanted(dial),
            Effect::Drained => self.drained.notify_waiters(),
            Effect::Fail { waiter, why } => {
                let _ = waiter.delivery.send(self.failed(why));
            }
        }
    }

    fn failed(&self, why: Failure<Undialled<D::Error>>) -> Delivery<D> {
        let (error, dial) = match why {
            Failure::Dial(Undialled { error, dial }) => (error.map_or(LeaseError::Lost, LeaseError::Dial), Some(dial)),
            Failure::WaitTimeout { waited, limit } => (LeaseError::WaitTimeout(waited, limit), None),
        };
        Delivery { lease: Err(error), dial }
    }

    /// Gives a dial up that no request needs while the pool is drained.
    fn abort_if_unwanted(&self, dial: ConnId) {
        if !self.lock().is_unwanted(dial) {
            return;
        }
        let abort = self.dials().get(&dial.serial).and_then(|underway| underway.abort.clone());
        abort.inspect(AbortHandle::abort);
    }

    fn dial(self: &Arc<Self>, permit: Permit, key: D::Key, runtime: Option<Handle>) {
        let id = permit.id();
        let number = id.serial;
        let trace = DialTrace::new(&self.hooks, number);
        self.dials().insert(number, Underway { trace: trace.clone(), abort: None, watchers: Vec::new() });
        let dialling = Dialling { shared: Arc::downgrade(self), permit: Some(permit), dial: trace };
        // Without a runtime the dial is lost right here, which its request is told.
        if let Some(runtime) = runtime.or_else(|| Handle::try_current().ok()) {
            let task = runtime.spawn(dialling.run(self.dialer.clone(), key)).abort_handle();
            if let Some(underway) = self.dials().get_mut(&number) {
                underway.abort = Some(task);
            }
        }
        // Effects are performed outside of the lock. The one that gives this dial up may have been performed before it was among those
        // under way, and found nothing to abort.
        self.abort_if_unwanted(id);
    }

    /// Waits for the end of a dial that is under way.
    fn watch(&self, dial: ConnId) -> Option<oneshot::Receiver<Watched<D>>> {
        let (watcher, outcome) = oneshot::channel();
        self.dials().get_mut(&dial.serial)?.watchers.push(watcher);
        Some(outcome)
    }

    fn dial_of(&self, ticket: TicketId) -> Option<Arc<DialTrace>> {
        let dial = self.lock().dial_of(ticket)?;
        self.dial_trace(dial)
    }

    fn dial_trace(&self, dial: ConnId) -> Option<Arc<DialTrace>> {
        self.dials().get(&dial.serial).map(|underway| underway.trace.clone())
    }

    // Not poisoned by a panic in the core, a bug: its books may be off, but taking every later request down helps nobody.
    fn lock(&self) -> parking_lot::MutexGuard<'_, Core<D>> {
        self.state.lock()
    }

    fn dials(&self) -> MutexGuard<'_, Dials<D>> {
        lock(&self.dials)
    }
}

impl<D: Dial> Drop for Shared<D> {
    fn drop(&mut self) {
        for abort in self.dials().values().filter_map(|underway| underway.abort.as_ref()) {
            abort.abort();
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
struct Outer((usize, bool));

impl Drop for Outer {
    fn drop(&mut self) {
        PERFORMING.set(self.0);
    }
}

/// A connection's task: its dial, and then what serves it. By hand, because it lies in memory as long as the connection lives.
enum Running<F, S> {
    Dialling(Pin<Box<F>>),
    Serving(S),
    Over,
}

impl<F: Future<Output = Option<S>>, S: Future<Output = ()> + Unpin> Future for Running<F, S> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            *self = match &mut *self {
                Self::Dialling(dialling) => ready!(dialling.as_mut().poll(cx)).map_or(Self::Over, Self::Serving),
                Self::Serving(serving) => return Pin::new(serving).poll(cx),
                Self::Over => return Poll::Ready(()),
            };
        }
    }
}

/// A dial under way. Dropped before it is over, with its runtime or by a panic, it is lost.
struct Dialling<D: Dial> {
    shared: Weak<Shared<D>>,
    permit: Option<Permit>,
    dial: Arc<DialTrace>,
}

impl<D: Dial> Dialling<D> {
    /// Dials, and goes on as the connection's task: another one would cost as much again.
    fn run(self, dialer: Arc<D>, key: D::Key) -> impl Future<Output = ()> + Send {
        Running::Dialling(Box::pin(self.connect(dialer, key)))
    }

    async fn connect(
        mut self,
        dialer: Arc<D>,
        key: D::Key,
    ) -> Option<impl Future<Output = ()> + Send + Unpin + use<D>> {
        let outcome = dialer.dial(&key, &self.dial).await;
        let task = self.task().await;
        let Some(shared) = self.shared.upgrade() else {
            // It was told to be open.
            if outcome.is_ok() {
                self.permit = None;
                self.dial.emit(Event::Closed { cause: CloseCause::Asked });
            }
            return None;
        };
        match (outcome, task) {
            (Ok(opened), Some(task)) => self.opened(&shared, &*dialer, opened, task),
            (Err(error), _) => {
                self.failed(&shared, Some(error));
                None
            }
            (Ok(_), None) => None,
        }
    }

    /// The task that it is, of which another thread may be about to take note. None where the pool is gone.
    async fn task(&self) -> Option<AbortHandle> {
        loop {
            let shared = self.shared.upgrade()?;
            let task = shared.dials().get(&self.dial.connection()).map(|underway| underway.abort.clone())?;
            drop(shared);
            if task.is_some() {
                return task;
            }
            tokio::task::yield_now().await;
        }
    }

    fn opened(
        &mut self,
        shared: &Arc<Shared<D>>,
        dialer: &D,
        opened: D::Opened,
        task: AbortHandle,
    ) -> Option<impl Future<Output = ()> + Send + Unpin + use<D>> {
        let id = self.permit.as_ref().map(Permit::id)?;
        let place = Place { shared: self.shared.clone(), hooks: shared.hooks.clone(), id };
        let (Started { conn, speaks, location }, serving) = dialer.start(opened, place, task);
        let fresh = Pooled { conn: conn.clone(), born: Some(self.dial.clone()) };
        let conn = Pooled { conn, born: None };
        let name = location.as_ref().map(|location| location.name.clone());
        let permit = self.permit.take()?;
        let opened = Opened { fresh, conn, speaks, location, home: home() };
        let unknown = shared.step(|state| state.dialed(now(), permit, opened));
        if let Some(name) = name.filter(|_| unknown) {
            for answer in dialer.answers(&name) {
                shared.step(|state| state.answered(now(), &name, &answer, false));
            }
        }
        self.tell(shared, Ok(()));
        Some(serving)
    }

    fn failed(&mut self, shared: &Arc<Shared<D>>, error: Option<D::Error>) {
        let Some(permit) = self.permit.take() else { return };
        if error.as_ref().is_some_and(D::is_exhausted) {
            self.dial.emit(Event::DialPostponed);
            shared.step(|state| state.dial_postponed(now(), permit));
            return self.tell(shared, Err(None));
        }
        self.dial.emit(Event::DialFailed);
        let lost = error.is_none();
        let undialled = Undialled { error, dial: self.dial.clone() };
        let unwanted = shared.step(|state| state.dial_failed(now(), permit, undialled));
        if !lost {
            self.tell(shared, Err(unwanted.and_then(|unwanted| unwanted.error)));
        }
    }

    /// It is over, which those who watch are told; the error goes to one of them.
    fn tell(&self, shared: &Arc<Shared<D>>, mut outcome: Watched<D>) {
        let underway = shared.dials().remove(&self.dial.connection());
        for watcher in underway.into_iter().flat_map(|underway| underway.watchers) {
            let rest = if outcome.is_ok() { Ok(()) } else { Err(None) };
            let _ = watcher.send(std::mem::replace(&mut outcome, rest));
        }
    }
}

impl<D: Dial> Drop for Dialling<D> {
    fn drop(&mut self) {
        match self.shared.upgrade() {
            _ if self.permit.is_none() => {}
            Some(shared) => {
                self.failed(&shared, None);
                let underway = shared.dials().remove(&self.dial.connection());
                drop(underway);
            }
            None => drop(self.dial.emit(Event::DialFailed)),
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

    /// Tells the pool what becomes of the connection's seats.
    pub(crate) fn teller(&self) -> Teller<D> {
        Teller { shared: self.shared.clone(), id: self.id }
    }
}

/// Tells the pool how many requests a connection carries.
pub(crate) struct Teller<D: Dial> {
    shared: Weak<Shared<D>>,
    id: ConnId,
}

impl<D: Dial> Teller<D> {
    /// The peer allows so many at the same time.
    pub(crate) fn seats(&self, seats: usize) {
        if let Some(shared) = self.shared.upgrade() {
            shared.step(|state| state.reseat(now(), self.id, seats));
        }
    }

    /// The peer takes no more.
    pub(crate) fn no_more(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.step(|state| state.retire(now(), self.id, CloseCause::PeerAsked));
        }
    }

    /// The runtime that serves the connection ends. The pool hears it before the socket is closed, and does not put it
    /// down to the peer.
    pub(crate) fn abandoned(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.step(|state| state.retire(now(), self.id, CloseCause::Asked));
        }
    }

    /// The same, and the peer asks for fewer requests.
    pub(crate) fn calm(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.step(|state| state.calm(now(), self.id, fastrand::f64()));
        }
    }
}

impl<D: Dial> Drop for Place<D> {
    fn drop(&mut self) {
        let shared = self.shared.upgrade();
        let cause = shared.map_or(CloseCause::Asked, |shared| shared.step(|state| state.closed(now(), self.id)));
        trace::connection_closed(&self.hooks, self.id.serial, cause);
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;

#[cfg(test)]
mod driver_walks;
