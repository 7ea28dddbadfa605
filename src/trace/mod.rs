//! What happened and when: events are values, observers see each one, and [`Timings`] are a fold over them.

mod event;
mod timings;
mod waterfall;

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use event::{CloseCause, DnsLookup, Event, Family, Limit, Phase, Record, RetryCause, Source, Subject, TlsFacts};
pub use timings::{Attempt, Hop, HopEnd, Outcome, Timings};

use crate::clock::{Instant, now};

/// Sees every event of a client, in the task that caused it and outside of every lock.
///
/// It runs on the request's path, so it should be quick. One that panics is contained: the request goes on.
///
/// ```
/// use speeddial::trace::{Event, Observer, Record};
///
/// struct Attempts;
/// impl Observer for Attempts {
///     fn observe(&self, record: &Record) {
///         if let Event::AttemptStart { address, .. } = record.event {
///             println!("{:?} dials {address}", record.subject);
///         }
///     }
/// }
/// let client = speeddial::Client::builder().observer(Attempts).build();
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Is told one event.
    fn observe(&self, record: &Record);
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, record: &Record) {
        (**self).observe(record);
    }
}

/// A client's observers, and the numbers its calls get.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    observer: Option<Arc<dyn Observer>>,
    calls: Arc<AtomicU64>,
}

/// Several observers, each told whatever the others do.
struct Several(Vec<Arc<dyn Observer>>);

impl Observer for Several {
    fn observe(&self, record: &Record) {
        for observer in &self.0 {
            tell(&**observer, record);
        }
    }
}

/// A panic in somebody's hook must not take the request, or a connection's books, with it.
fn tell(observer: &dyn Observer, record: &Record) {
    let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(record)));
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("observer", &self.observer.is_some()).finish()
    }
}

impl Hooks {
    pub(crate) fn new(mut observers: Vec<Arc<dyn Observer>>) -> Self {
        let observer = match observers.len() {
            0 | 1 => observers.pop(),
            _ => Some(Arc::new(Several(observers)) as Arc<dyn Observer>),
        };
        Self { observer, calls: Arc::default() }
    }

    fn tell(&self, subject: Subject, at: Instant, event: Event) {
        if let Some(observer) = &self.observer {
            tell(&**observer, &Record { subject, at: at.into_std(), event });
        }
    }
}

/// One call's events, folded as they come. Clones share the call.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Call>);

struct Call {
    hooks: Hooks,
    /// Told beside the client's.
    own: Option<Arc<dyn Observer>>,
    number: u64,
    start: Instant,
    timings: Mutex<Timings>,
}

impl Trace {
    /// Begins a call now; `event` is only made where somebody observes.
    pub(crate) fn start(hooks: &Hooks, own: Option<Arc<dyn Observer>>, event: impl FnOnce() -> Event) -> Self {
        let start = now();
        let number = hooks.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let timings = Mutex::new(Timings::new(start));
        let trace = Self(Arc::new(Call { hooks: hooks.clone(), own, number, start, timings }));
        if trace.is_observed() {
            trace.tell(start, event());
        }
        trace
    }

    /// Whether anybody is told of it.
    pub(crate) fn is_observed(&self) -> bool {
        self.0.own.is_some() || self.0.hooks.observer.is_some()
    }

    /// Who is told of this call alone.
    pub(crate) fn own_observer(&self) -> Option<&Arc<dyn Observer>> {
        self.0.own.as_ref()
    }

    /// When the call began.
    pub(crate) fn start_time(&self) -> Instant {
        self.0.start
    }

    /// Takes an event that happens now.
    pub(crate) fn emit(&self, event: Event) {
        self.emit_at(now(), event);
    }

    /// Takes an event that happened at `at`.
    pub(crate) fn emit_at(&self, at: Instant, event: Event) {
        self.lock().fold(at, &event);
        self.tell(at, event);
    }

    /// Tells observers alone of an event that happens now; `event` is only made where there are any.
    pub(crate) fn mention(&self, event: impl FnOnce() -> Event) {
        if self.is_observed() {
            self.tell(now(), event());
        }
    }

    fn tell(&self, at: Instant, event: Event) {
        let Call { hooks, own, number, .. } = &*self.0;
        let subject = Subject::Call(*number);
        match own {
            None => hooks.tell(subject, at, event),
            Some(own) => {
                hooks.tell(subject, at, event.clone());
                tell(&**own, &Record { subject, at: at.into_std(), event });
            }
        }
    }

    /// Takes over what a dial did for this call. The client's observers have seen it as it happened, the call's own see it now.
    pub(crate) fn adopt(&self, dial: &DialTrace) {
        {
            let (events, mut timings) = (dial.lock(), self.lock());
            for (at, event) in events.iter() {
                timings.fold(*at, event);
            }
        }
        if let Some(own) = &self.0.own {
            let subject = Subject::Connection(dial.connection);
            for (at, event) in dial.events() {
                tell(&**own, &Record { subject, at: at.into_std(), event });
            }
        }
    }

    /// Ends the call as failed, unless it is over already, and returns the phase it was in.
    pub(crate) fn fail(&self, why: &'static str) -> Phase {
        let (phase, over) = {
            let timings = self.lock();
            (timings.phase(), timings.is_complete())
        };
        if !over {
            self.emit(Event::CallFailed { phase, why });
        }
        phase
    }

    pub(crate) fn remote_addr(&self) -> Option<SocketAddr> {
        self.lock().remote_addr()
    }

    /// The timings as far as the call has got.
    pub(crate) fn timings(&self) -> Timings {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Timings> {
        unpoisoned(&self.0.timings)
    }
}

/// What one dial did: told to observers at once, kept for the call that waits for it.
pub(crate) struct DialTrace {
    hooks: Hooks,
    connection: u64,
    events: Mutex<Vec<(Instant, Event)>>,
}

/// What a dial with a name that has addresses of both families makes.
const USUAL_EVENTS: usize = 10;

impl DialTrace {
    pub(crate) fn new(hooks: &Hooks, connection: u64) -> Arc<Self> {
        Arc::new(Self { hooks: hooks.clone(), connection, events: Mutex::new(Vec::with_capacity(USUAL_EVENTS)) })
    }

    /// Takes an event that happens now, and says when that is.
    pub(crate) fn emit(&self, event: Event) -> Instant {
        let at = now();
        self.emit_at(at, event);
        at
    }

    /// Takes an event that happened at `at`.
    pub(crate) fn emit_at(&self, at: Instant, event: Event) {
        if self.hooks.observer.is_none() {
            return self.lock().push((at, event));
        }
        self.lock().push((at, event.clone()));
        self.hooks.tell(Subject::Connection(self.connection), at, event);
    }

    /// The number of the connection it opens.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    pub(crate) fn events(&self) -> Vec<(Instant, Event)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Event)>> {
        unpoisoned(&self.events)
    }
}

/// Tells observers that a connection's socket is closed.
pub(crate) fn connection_closed(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.observer.is_some() {
        hooks.tell(Subject::Connection(connection), now(), Event::Closed { cause });
    }
}

/// Tells observers, and whoever observes its call alone, that a request is done with its connection.
pub(crate) fn connection_released(hooks: &Hooks, own: Option<&dyn Observer>, connection: u64, kept: bool) {
    if hooks.observer.is_none() && own.is_none() {
        return;
    }
    let record =
        Record { subject: Subject::Connection(connection), at: now().into_std(), event: Event::Released { kept } };
    for observer in hooks.observer.as_deref().into_iter().chain(own) {
        tell(observer, &record);
    }
}

/// Tells observers that a connection takes no more requests.
pub(crate) fn connection_retired(hooks: &Hooks, connection: u64, cause: CloseCause) {
    hooks.tell(Subject::Connection(connection), now(), Event::Retired { cause });
}

// Folds and pushes leave no half-done state behind, so a poisoned lock still guards a sound value.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call's timings while and after its body is read: it outlives the response.
///
/// ```no_run
/// # async fn run() -> speeddial::Result<()> {
/// let response = speeddial::Client::new().get("http://127.0.0.1:8080/").send().await?;
/// let handle = response.timings_handle();
/// let body = response.bytes().await?;
/// println!("{} bytes: {}", body.len(), handle.timings());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TimingsHandle(Trace);

impl TimingsHandle {
    pub(crate) fn new(trace: Trace) -> Self {
        Self(trace)
    }

    /// The timings as far as the call has got.
    pub fn timings(&self) -> Timings {
        self.0.timings()
    }
}

impl fmt::Debug for TimingsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimingsHandle").field(&self.timings()).finish()
    }
}
