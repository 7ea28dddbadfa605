//! The driver around the pool's core: lock, decide, unlock, act.
//!
//! [`Driver::step`] is the only way to change the core. It performs the effects of a change after it has released the lock, because an
//! effect may run foreign code: closing a connection, waking a request, spawning a task.

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::RwLock;
use smallvec::SmallVec;
use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::config::PoolConfig;
use super::dialling::{ConnectionTask, DialsInFlight};
use super::state::{
    AbandonCause, Addresses, ConnId, Effect, Grant, Opened, Permit, PoolTypes, Profile, State, WaitFailure, WaiterId,
};
use crate::clock::{Instant, Timed, TimerTask, now};
use crate::pool::dialling::{AddressWish, Dial, Slot, SlotOwner, Started};
use crate::sync::{PerThread, current_runtime, lock_quick, point};
use crate::trace::{self, CloseCause, DialTrace, Event, Hooks, HostAtDial};

/// The pool's core behind its lock, with everything that its effects need.
pub(super) struct Driver<D: Dial> {
    pub(super) dialer: Arc<D>,
    /// The limits. The core looks a host's up when it adds the host.
    pub(super) config: Arc<RwLock<PoolConfig>>,
    pub(super) hooks: Hooks,
    // If there are more threads than cores, one may be stopped while it holds the lock. The standard library's lock has all others
    // sleep then, and wakes them one by one.
    state: parking_lot::Mutex<Core<D>>,
    pub(super) dials: Arc<DialsInFlight<D>>,
    /// [`Self::perform_all`], as compiled in the crate that made the pool. The code of dials is most of `connect`; with a direct call,
    /// each crate that sends requests would contain it once more.
    perform_all: fn(&Arc<Self>, TakenEffect<D>),
    timer_task: TimerTask,
    /// Notified when a drain is complete.
    pub(super) drained: Notify,
}

/// The types of the driver that the core stores.
pub(super) struct Driven<D>(PhantomData<D>);

impl<D: Dial> PoolTypes for Driven<D> {
    type Key = D::Key;
    type Conn = PooledConn<D::Conn>;
    type Waiter = WaiterHandle<D>;
    type Error = FailedDial<D::Error>;
    type Runtime = Option<runtime::Id>;
}

type Core<D> = State<Driven<D>>;

/// A connection's handle, with the trace of its dial for the requests that waited for that.
#[derive(Clone)]
pub(super) struct PooledConn<C> {
    pub(super) conn: C,
    pub(super) dial: Option<Arc<DialTrace>>,
}

/// A dial that failed, or was lost without an error.
#[derive(Clone)]
pub(super) struct FailedDial<E> {
    pub(super) error: Option<E>,
    pub(super) trace: Arc<DialTrace>,
}

/// The answer to a request that waited.
pub(super) type Answer<D> = Result<Delivered<<D as Dial>::Conn>, WaitFailed<D>>;

/// A connection that a request waited for, and the time from which on it has it.
pub(super) struct Delivered<C> {
    pub(super) grant: Grant<PooledConn<C>>,
    pub(super) at: Instant,
}

/// The reason why a request that waited got no connection, and its dial in flight, which may be given up before the request is polled.
pub(super) struct WaitFailed<D: Dial> {
    pub(super) why: WaitFailure<FailedDial<D::Error>>,
    pub(super) in_flight: Option<Arc<DialTrace>>,
}

/// The driver's side of a request that waits.
pub(super) struct WaiterHandle<D: Dial> {
    answer: oneshot::Sender<Answer<D>>,
    /// The runtime the request waits on, where dials for it run.
    runtime: Option<Handle>,
    /// The address that is dialled after others.
    avoid: Option<IpAddr>,
}

/// The demands of a request on a dial that is made for it, and the state of its host's connections.
pub(super) struct DialWish {
    /// The runtime the request waits on, where dials for it run.
    runtime: Option<Handle>,
    /// The address that is dialled after others.
    avoid: Option<IpAddr>,
    /// The state of the host's connections when the dial begins.
    host: HostAtDial,
}

impl<D: Dial> WaiterHandle<D> {
    /// Makes a handle on a request of the current runtime, and the receiver of its answer. Dials for it avoid an address.
    pub(super) fn new(avoid: Option<IpAddr>) -> (Self, oneshot::Receiver<Answer<D>>) {
        let (answer, receiver) = oneshot::channel();
        (Self { answer, runtime: Handle::try_current().ok(), avoid }, receiver)
    }
}

/// The time by which a timeout is handled late if the timer's task does not run.
const LATE: Duration = Duration::from_millis(20);

thread_local! {
    /// The pool whose effects this thread performs.
    static PERFORMING: PerThread<Performing> = const { PerThread::new(Performing { pool: 0, has_more: false }) };
}

/// A pool whose effects a thread performs. The effects that these cause in turn are left to the same loop.
#[derive(Clone, Copy)]
struct Performing {
    /// The pool's address.
    pool: usize,
    /// True if there are new effects.
    has_more: bool,
}

/// An effect that was taken from the core.
struct TakenEffect<D: Dial> {
    effect: Effect<Driven<D>>,
    /// The demands on a dial.
    wish: DialWish,
    /// True if there are further effects.
    has_more: bool,
}

impl<D: Dial> Driver<D> {
    pub(super) fn new(config: PoolConfig, dialer: D, hooks: Hooks) -> Self {
        let dialer = Arc::new(dialer);
        let profiler = dialer.clone();
        let config = Arc::new(RwLock::new(config));
        let limits = config.clone();
        let state = State::new(&config.read(), move |key| {
            let (host, port) = D::address(key);
            let limits = limits.read().limits_for(&host, port);
            Profile { limits, speaks: profiler.speaks(key), balanced: profiler.balanced(key) }
        });
        let dials = Arc::new(DialsInFlight::default());
        let in_flight = dials.clone();
        let state = state.with(fastrand::u64(..), move |dial| in_flight.is_on_its_way(dial));
        Self {
            dialer,
            config,
            hooks,
            state: parking_lot::Mutex::new(state),
            dials,
            perform_all: Self::perform_all,
            timer_task: TimerTask::default(),
            drained: Notify::new(),
        }
    }

    /// Locks the core, for reading: effects of a change would not be performed.
    ///
    /// A panic in the core, which would be a bug, does not poison it: its figures may be off, but failing every later request helps no
    /// caller.
    pub(super) fn lock(&self) -> parking_lot::MutexGuard<'_, Core<D>> {
        lock_quick(&self.state)
    }

    /// Changes the core under the lock, and performs the effects of that outside of it.
    #[inline]
    pub(super) fn step<T>(self: &Arc<Self>, change: impl FnOnce(&mut Core<D>) -> T) -> T {
        let mut state = self.lock();
        let before = state.next_timeout();
        let changed = change(&mut state);
        // Most steps of a busy client have no effects, and leave the timer as it is.
        if state.has_effects() || state.next_timeout() != before {
            self.act(state, before);
        } else {
            drop(state);
            TimerTask::ensure_running(self, before);
        }
        changed
    }

    /// Releases the lock, sets the timer and performs the effects of a change. `before` was the next timeout before it.
    fn act(self: &Arc<Self>, mut state: parking_lot::MutexGuard<'_, Core<D>>, before: Option<Instant>) {
        let pool = Arc::as_ptr(self).addr();
        let first = if PERFORMING.with(PerThread::get).pool == pool {
            PERFORMING.with(|performing| performing.set(Performing { pool, has_more: state.has_effects() }));
            None
        } else {
            Self::take_effect(&mut state)
        };
        let next = state.next_timeout();
        drop(state);
        if next == before {
            TimerTask::ensure_running(self, next);
        } else {
            TimerTask::set(self, next);
        }
        if let Some(first) = first {
            (self.perform_all)(self, first);
        }
    }

    /// Performs an effect and all that follow, those that it causes included.
    fn perform_all(self: &Arc<Self>, mut next: TakenEffect<D>) {
        let pool = Arc::as_ptr(self).addr();
        let none = Performing { pool, has_more: false };
        let _outer = RestorePerforming(PERFORMING.with(|performing| performing.replace(none)));
        loop {
            let TakenEffect { effect, wish, has_more } = next;
            self.perform(effect, wish);
            let caused = PERFORMING.with(|performing| performing.replace(none));
            if !has_more && !caused.has_more {
                return;
            }
            // Another thread may have taken it.
            let Some(another) = Self::take_effect(&mut self.lock()) else { return };
            next = another;
        }
    }

    /// Takes an effect, and stops before it is performed.
    #[cfg(test)]
    pub(super) fn take_effect_for_test(&self) -> Option<(Effect<Driven<D>>, DialWish)> {
        Self::take_effect(&mut self.lock()).map(|taken| (taken.effect, taken.wish))
    }

    fn take_effect(state: &mut Core<D>) -> Option<TakenEffect<D>> {
        let effect = state.next_effect()?;
        let waiter = if let Effect::Dial(permit, ..) = &effect { state.waiter_of(permit) } else { None };
        let wish_of = |waiter: &WaiterHandle<D>| (waiter.runtime.clone(), waiter.avoid);
        let (runtime, avoid) = waiter.map(wish_of).unwrap_or_default();
        let mut wish = DialWish { runtime, avoid, host: HostAtDial::default() };
        if let Effect::Dial(permit, ..) = &effect {
            wish.host = state.note_dial(permit);
        }
        Some(TakenEffect { effect, wish, has_more: state.has_effects() })
    }

    /// Performs an effect.
    pub(super) fn perform(self: &Arc<Self>, effect: Effect<Driven<D>>, wish: DialWish) {
        point();
        match effect {
            Effect::Dial(permit, key, first) => self.dial(permit, key, first, wish),
            Effect::Close(pooled) => D::close(&pooled.conn),
            Effect::Deliver { waiter, grant, at } => {
                // A request that left in the meantime passes the connection on.
                if let Err(Ok(Delivered { grant, .. })) = waiter.answer.send(Ok(Delivered { grant, at })) {
                    self.take_back(grant, AbandonCause::Cancelled);
                }
            }
            Effect::Fail { waiter, why } => {
                let dial = if let WaitFailure::Connect { dial, .. } = &why { *dial } else { None };
                let in_flight = dial.and_then(|dial| self.dials.trace(dial));
                let _ = waiter.answer.send(Err(WaitFailed { why, in_flight }));
            }
            Effect::Retired(id, cause) => trace::connection_retired(&self.hooks, id.serial, cause),
            Effect::AskDns(name) => self.report_answers(now(), &name, true),
            Effect::AbortDial(dial) => self.abort_if_given_up(dial),
            Effect::Drained => self.drained.notify_waiters(),
        }
    }

    /// Takes back a connection that was delivered to a request which had left the queue by then.
    pub(super) fn take_back(self: &Arc<Self>, grant: Grant<PooledConn<D::Conn>>, cause: AbandonCause) {
        let Grant { token, conn, .. } = grant;
        self.step(|state| state.undelivered(now(), token, cause));
        drop(conn);
    }

    /// Reports the current DNS answers for a name. `is_new` is true if they replace those that the core knows.
    pub(super) fn report_answers(self: &Arc<Self>, now: Instant, name: &str, is_new: bool) {
        self.report(now, name, &self.dialer.answers(now, name), is_new);
    }

    /// Reports a new DNS answer for a name.
    pub(super) fn report_answer(self: &Arc<Self>, name: &str, answer: Addresses) {
        self.report(now(), name, &[answer], true);
    }

    fn report(self: &Arc<Self>, now: Instant, name: &str, answers: &[Addresses], is_new: bool) {
        let is_balanced = self.lock().is_balanced(name);
        // Outside of the lock, because it may ask the user's rules.
        let usable = |answer: &Addresses| Addresses { ips: self.dialer.usable(&answer.ips), ..answer.clone() };
        let usable: SmallVec<[_; 2]> = answers.iter().filter(|_| is_balanced).map(usable).collect();
        self.step(|state| {
            answers.iter().for_each(|answer| state.dns_answered(now, name, answer, is_new));
            usable.iter().for_each(|answer| state.addresses_answered(now, name, answer, is_new));
        });
    }

    /// Handles the timeouts that the timer's task has not handled in time, because its runtime is blocked or not driven.
    pub(super) fn take_over_late_timeouts(self: &Arc<Self>) {
        let now = now();
        let are_late = |state: &Core<D>| state.next_timeout().is_some_and(|at| at + LATE <= now);
        self.step(|state| {
            if are_late(state) {
                state.handle_timeout(now);
            }
        });
    }

    /// Returns true if another runtime than the current one runs the timer's task.
    pub(super) fn has_foreign_timer(&self) -> bool {
        let here = current_runtime();
        here.is_some() && self.timer_task.runtime() != here
    }

    /// Returns the trace of the dial in flight for a request.
    pub(super) fn trace_of(&self, waiter: WaiterId) -> Option<Arc<DialTrace>> {
        let dial = self.lock().dial_of(waiter)?;
        self.dials.trace(dial)
    }
}

// Dials: how they begin and end.
impl<D: Dial> Driver<D> {
    /// Begins a dial, in a task that will serve the connection.
    fn dial(self: &Arc<Self>, permit: Permit, key: D::Key, first: Option<SocketAddr>, wish: DialWish) {
        let id = permit.id();
        let trace = DialTrace::of_host(&self.hooks, id.serial, wish.host);
        self.dials.insert(trace.clone());
        let guard = DialGuard { driver: Arc::downgrade(self), permit: Some(permit), trace };
        // Without a runtime the dial is lost at once: the guard is dropped, and its request told.
        if let Some(runtime) = wish.runtime.or_else(|| Handle::try_current().ok()) {
            let dial = Self::run_dial(guard, self.dialer.clone(), key, AddressWish { first, avoid: wish.avoid });
            let task = ConnectionTask::new(dial);
            let task = runtime.spawn(task).abort_handle();
            self.dials.set_task(id, task);
        }
        // Effects are performed outside of the lock: the one that aborts this dial may have been performed before the dial was in
        // flight, and found nothing to abort.
        self.abort_if_given_up(id);
    }

    /// Aborts a dial if the core has given it up.
    fn abort_if_given_up(&self, dial: ConnId) {
        let is_given_up = self.lock().is_given_up(dial);
        if is_given_up {
            self.dials.abort(dial);
        }
    }

    /// Dials, and reports the outcome. Returns the future that serves the connection.
    async fn run_dial(
        mut guard: DialGuard<D>,
        dialer: Arc<D>,
        key: D::Key,
        addresses: AddressWish,
    ) -> Option<impl Future<Output = ()> + Send + Unpin + use<D>> {
        let outcome = dialer.dial(&key, addresses, &guard.trace).await;
        let task = guard.task().await;
        let Some(driver) = guard.driver.upgrade() else {
            guard.permit = None;
            match outcome {
                // The trace says that the connection opened, so it also says that it closed.
                Ok(_) => drop(guard.trace.emit(Event::Closed { cause: CloseCause::Program })),
                Err(_) => guard.trace.fail(),
            }
            return None;
        };
        match (outcome, task) {
            (Ok(opened), Some(task)) => driver.dial_succeeded(guard, opened, task),
            (Err(error), _) => {
                driver.dial_failed(&mut guard, Some(error));
                None
            }
            (Ok(_), None) => None,
        }
    }

    /// Takes a connection into service and reports it to the core.
    fn dial_succeeded(
        self: &Arc<Self>,
        mut guard: DialGuard<D>,
        opened: D::Opened,
        task: AbortHandle,
    ) -> Option<impl Future<Output = ()> + Send + Unpin + use<D>> {
        let id = guard.permit.as_ref().map(Permit::id)?;
        let driver = Arc::downgrade(self);
        let slot = Slot::new(driver, self.hooks.clone(), id);
        let (Started { conn, speaks, location, remote }, serving) = self.dialer.start(opened, slot, task);
        let name = location.as_ref().map(|location| location.name.clone());
        let permit = guard.permit.take()?;
        let opened = Opened {
            fresh: PooledConn { conn: conn.clone(), dial: Some(guard.trace.clone()) },
            conn: PooledConn { conn, dial: None },
            speaks,
            location,
            remote,
            runtime: current_runtime(),
        };
        let now = now();
        let wants_answers = self.step(|state| state.dial_succeeded(now, permit, opened));
        if let Some(name) = name
            && wants_answers
        {
            self.report_answers(now, &name, false);
        }
        self.dials.remove(id.serial, Ok(()));
        Some(serving)
    }

    /// Reports a dial that failed, or was lost without an error.
    fn dial_failed(self: &Arc<Self>, guard: &mut DialGuard<D>, error: Option<D::Error>) {
        let Some(permit) = guard.permit.take() else { return };
        let number = permit.id().serial;
        if let Some(lacking) = error.as_ref().and_then(D::lacking) {
            guard.trace.emit(Event::DialPostponed);
            self.step(|state| state.dial_postponed(now(), permit, lacking));
            return self.dials.remove(number, Err(None));
        }
        let is_lost = error.is_none();
        if is_lost {
            guard.trace.end_dropped();
        } else {
            guard.trace.fail();
        }
        let failed = FailedDial { error, trace: guard.trace.clone() };
        if is_lost {
            self.step(|state| state.dial_lost(now(), permit, failed));
            return self.dials.remove_lost(number);
        }
        let unclaimed = self.step(|state| state.dial_failed(now(), permit, failed));
        self.dials.remove(number, Err(unclaimed.and_then(|failed| failed.error)));
    }
}

impl<D: Dial> Drop for Driver<D> {
    fn drop(&mut self) {
        self.dials.abort_all();
    }
}

impl<D: Dial> Timed for Driver<D> {
    fn timer_task(&self) -> &TimerTask {
        &self.timer_task
    }

    fn other_runtime(&self, not: runtime::Id) -> Option<Handle> {
        let state = self.lock();
        let mut runtimes = state.waiters().filter_map(|waiter| waiter.runtime.as_ref());
        runtimes.find(|runtime| runtime.id() != not).cloned()
    }

    fn handle_timeout(self: Arc<Self>, now: Instant) -> Option<Instant> {
        self.step(|state| {
            state.handle_timeout(now);
            state.next_timeout()
        })
    }
}

/// A guard that restores the pool whose effects this thread performed before.
struct RestorePerforming(Performing);

impl Drop for RestorePerforming {
    fn drop(&mut self) {
        PERFORMING.with(|performing| performing.set(self.0));
    }
}

/// A guard that reports a dial as lost if it is dropped before the dial has ended, with its runtime or by a panic.
struct DialGuard<D: Dial> {
    driver: Weak<Driver<D>>,
    /// The permit, until the end of the dial is reported.
    permit: Option<Permit>,
    trace: Arc<DialTrace>,
}

impl<D: Dial> DialGuard<D> {
    /// Returns the dial's task, which another thread may be about to note. `None` if the pool is gone.
    async fn task(&self) -> Option<AbortHandle> {
        loop {
            let driver = self.driver.upgrade()?;
            let task = driver.dials.task(self.trace.connection())?;
            drop(driver);
            if task.is_some() {
                return task;
            }
            tokio::task::yield_now().await;
        }
    }
}

impl<D: Dial> Drop for DialGuard<D> {
    fn drop(&mut self) {
        if self.permit.is_none() {
            return;
        }
        match self.driver.upgrade() {
            Some(driver) => driver.dial_failed(self, None),
            None => self.trace.end_dropped(),
        }
    }
}

impl<D: Dial> SlotOwner for Driver<D> {
    fn free_slot(self: Arc<Self>, id: ConnId) -> CloseCause {
        self.step(|state| state.socket_closed(now(), id))
    }

    fn announce_streams(self: Arc<Self>, id: ConnId, streams: usize) {
        self.step(|state| state.announce_streams(now(), id, streams));
    }

    fn retire(self: Arc<Self>, id: ConnId, cause: CloseCause) {
        self.step(|state| state.retire(now(), id, cause));
    }

    fn back_off(self: Arc<Self>, id: ConnId) {
        self.step(|state| state.back_off(now(), id, fastrand::f64()));
    }
}
