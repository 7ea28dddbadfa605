//! The driver of the cache: locks the core, runs the queries that it asks for, and wakes it when its timeout comes.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, oneshot};

use super::state::{Cache, Config, Lookup};
use crate::clock::{AtomicInstant, Instant, Timed, TimerTask, now};
use crate::dns::answer::{self, Change};
use crate::dns::resolve::{Asking, Upstream};
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Resolver};
use crate::latency::Latency;
use crate::memory::Flight;
use crate::sync::{self, Landing, lock, lock_quick};

/// The shortest time between two looks at the resolver's version.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

pub(super) type Outcome = Result<Answer, ResolveError>;

/// The end of a query, as the lookups that wait for it are told: its outcome, and false if that does not count, because the world has changed
/// since the query began, or the name was pinned.
pub(super) type Told = (Outcome, bool);

/// The state that all clones of a [`CachedResolver`](super::CachedResolver) and their queries share.
pub(super) struct CacheDriver {
    pub(super) upstream: Arc<Upstream>,
    query_timeout: Duration,
    /// The longest time for which a lookup waits for a query.
    pub(super) max_query_time: Duration,
    // Not a standard mutex: threads may outnumber the processor cores, as with the pool's lock.
    cache: parking_lot::Mutex<Cache<Landing<Told>>>,
    timer_task: TimerTask,
    latency: Mutex<Latency>,
    /// The time from which on the resolver's version is looked at again, and the version at the last look.
    next_look: AtomicInstant,
    version: Mutex<Option<u64>>,
    /// Created for the first subscriber.
    changes: OnceLock<broadcast::Sender<Change>>,
}

impl CacheDriver {
    pub(super) fn new(upstream: impl Resolver, config: Config) -> Self {
        Self {
            upstream: Arc::new(Upstream::new(upstream)),
            query_timeout: config.query_timeout,
            max_query_time: config.max_query_time(),
            cache: parking_lot::Mutex::new(Cache::new(config, fastrand::u64(..))),
            timer_task: TimerTask::default(),
            latency: Mutex::default(),
            next_look: AtomicInstant::default(),
            version: Mutex::default(),
            changes: OnceLock::new(),
        }
    }

    // A panic does not poison this lock. A step of the core that panics does so before it changes anything the next one reads.
    pub(super) fn lock(&self) -> parking_lot::MutexGuard<'_, Cache<Landing<Told>>> {
        lock_quick(&self.cache)
    }

    /// Asks the cache, and starts the query that it asks for.
    pub(super) fn get(self: &Arc<Self>, now: Instant, name: &str, family: Family) -> Lookup<Landing<Told>> {
        self.look(now);
        let lookup = self.lock().get(now, name, family);
        if let Some(query) = lookup.query_to_start() {
            self.start(name, family, Some(query));
        }
        lookup
    }

    /// Asks beside a query of another runtime, unless that has ended.
    pub(super) fn ask_beside(
        self: &Arc<Self>,
        name: &str,
        family: Family,
        serial: u64,
    ) -> Option<Flight<Landing<Told>>> {
        let query = self.lock().ask_beside(name, family, serial)?;
        self.start(name, family, Some(&query));
        Some(query)
    }

    /// Notes a use of a name without a lookup. Returns true if the name has addresses in the cache.
    pub(super) fn touch(self: &Arc<Self>, now: Instant, name: &str, family: Family) -> bool {
        self.look(now);
        let touched = self.lock().touch(now, name, family);
        self.start(name, family, touched.query.as_ref());
        touched.has_addresses
    }

    /// Notes that none of a name's addresses connects.
    pub(super) fn doubt(self: &Arc<Self>, now: Instant, name: &str, family: Family) {
        let query = self.lock().doubt(now, name, family);
        self.set_timer();
        self.start(name, family, query.as_ref());
    }

    /// Looks at the resolver's version, if the last look was some time ago.
    #[inline]
    fn look(self: &Arc<Self>, now: Instant) {
        if self.next_look.load().is_none_or(|at| at <= now) {
            self.look_at_version(now);
        }
    }

    #[cold]
    fn look_at_version(self: &Arc<Self>, now: Instant) {
        self.next_look.store(Some(now + LOOK_INTERVAL));
        let version = self.upstream.current().version();
        let last = lock(&self.version).replace(version);
        if last.is_some_and(|last| last != version) {
            self.lock().set_world_changed(now);
            self.set_timer();
        }
    }

    /// Takes note that what was answered before counts for nothing any more.
    pub(super) fn set_world_changed(self: &Arc<Self>, now: Instant) {
        *lock(&self.version) = Some(self.upstream.current().version());
        self.lock().set_world_changed(now);
        self.set_timer();
    }

    /// Runs a query in a task of its own, so that it goes on when the lookup that started it is cancelled.
    fn start(self: &Arc<Self>, name: &str, family: Family, query: Option<&Flight<Landing<Told>>>) {
        let Some(Flight { handle, serial, .. }) = query else { return };
        let sender = handle.take_sender();
        let query = RunningQuery { driver: self.clone(), name: name.into(), family, serial: *serial, sender };
        // Outside of a runtime the query is dropped here. A hit that starts a refresh is still a hit.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(query.run().boxed());
        }
    }

    /// Gives a query's result to the cache and its change to the subscribers. Returns what the lookups that wait are told.
    fn complete(self: &Arc<Self>, query: &RunningQuery, world: u64, result: Outcome) -> Told {
        if result.is_ok() {
            // By which files it was answered is not known, if they have changed. Kept, it would be no news to those who use the name.
            self.look_at_version(now());
        }
        let (counts, completed, next_timeout) = {
            let mut cache = self.lock();
            let completed = cache.complete(now(), &query.name, query.family, query.serial, result);
            (cache.is_of_present_world(&query.name, world), completed, cache.next_timeout())
        };
        TimerTask::set(self, next_timeout);
        completed.change.into_iter().for_each(|change| self.tell(change));
        (completed.outcome, counts)
    }

    /// Passes a change on to the subscribers.
    pub(super) fn tell(&self, change: Change) {
        if let Some(changes) = self.changes.get() {
            // An error means that all subscribers are gone.
            let _ = changes.send(change);
        }
    }

    /// Sets the timer to the cache's next timeout.
    pub(super) fn set_timer(self: &Arc<Self>) {
        let next_timeout = self.lock().next_timeout();
        TimerTask::set(self, next_timeout);
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.changes.get_or_init(|| broadcast::channel(answer::MAX_WAITING_CHANGES).0).subscribe()
    }

    /// Returns the time that queries took.
    pub(super) fn latency(&self) -> Latency {
        *lock(&self.latency)
    }
}

impl Timed for CacheDriver {
    fn timer_task(&self) -> &TimerTask {
        &self.timer_task
    }

    fn handle_timeout(self: Arc<Self>, now: Instant) -> Option<Instant> {
        let refreshes = self.lock().handle_timeout(now);
        for (name, family) in refreshes {
            let query = self.lock().refresh(now, &name, family);
            self.start(&name, family, query.as_ref());
        }
        self.lock().next_timeout()
    }
}

/// A query that runs. Dropped before its end, it is removed from the cache, so that another one can start.
struct RunningQuery {
    driver: Arc<CacheDriver>,
    name: Box<str>,
    family: Family,
    serial: u64,
    /// The end that reports the outcome; `None` once it has.
    sender: Option<oneshot::Sender<Told>>,
}

impl RunningQuery {
    /// Returns what the cache says with its question, and the number of the world in which it asks.
    fn asking(&self) -> (Asking, u64) {
        let (world, known) = self.driver.lock().known(&self.name, self.family);
        let (driver, name, family) = (Arc::downgrade(&self.driver), self.name.clone(), self.family);
        let late = move |answer: Answer| {
            let Some(driver) = driver.upgrade() else { return };
            let change = driver.lock().take_late(now(), &name, family, world, answer.in_family(family));
            driver.set_timer();
            change.into_iter().for_each(|change| driver.tell(change));
        };
        (Asking { known, late: Some(Arc::new(late)) }, world)
    }

    async fn run(mut self) {
        let start = now();
        let (asking, world) = self.asking();
        let upstream = self.driver.upstream.current();
        let resolving = upstream.resolve_for(&self.name, self.family, asking);
        let mut result = tokio::time::timeout(self.driver.query_timeout, resolving)
            .await
            .unwrap_or_else(|_| Err(ResolveError::new(ResolveErrorKind::Timeout, &self.name, self.family)));
        result = result.map(|answer| answer.in_family(self.family));
        if result.as_ref().is_ok_and(|answer| answer.addresses().is_empty()) {
            result = Err(ResolveError::new(ResolveErrorKind::NoData, &self.name, self.family));
        }
        lock(&self.driver.latency).add(now() - start);
        let told = self.driver.clone().complete(&self, world, result);
        if let Some(sender) = self.sender.take() {
            // An error means that no lookup waits any more. The cache has the answer all the same.
            sync::point();
            let _ = sender.send(told);
        }
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        if self.sender.is_none() {
            return;
        }
        let mut cache = self.driver.lock();
        if std::thread::panicking() {
            cache.record_panic(now(), &self.name, self.family, self.serial);
        } else {
            cache.abandon(now(), &self.name, self.family, self.serial);
        }
    }
}
