//! What happened and when: events are values, observers see each one, and [`Timings`] are a fold over them.
//!
#![doc = include_str!("hooks.md")]

mod event;
#[cfg(feature = "serde")]
mod serial;
mod svg;
mod timings;
mod waterfall;

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Uri};

pub use event::{CloseCause, DnsLookup, Event, Family, Limit, Phase, Record, RetryCause, Source, Subject, TlsFacts};
pub use svg::{comparison_svg, waterfall_svg};
pub use timings::{Attempt, Hop, HopEnd, Outcome, Timings};
pub use waterfall::Waterfall;

use crate::clock::{Instant, now};
use crate::origin::Origin;

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
    /// Is told one event. It does nothing unless it is implemented.
    fn observe(&self, record: &Record) {
        let _ = record;
    }

    /// Is told that a call is over, right after its last event, and where its time went: once for each call, however it
    /// ended. It does nothing unless it is implemented.
    fn ended(&self, call: &EndedCall<'_>) {
        let _ = call;
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn observe(&self, record: &Record) {
        (**self).observe(record);
    }

    fn ended(&self, call: &EndedCall<'_>) {
        (**self).ended(call);
    }
}

/// A call that is over: it has its whole response, or failed, or was given up.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EndedCall<'a> {
    /// Its number, as in [`Subject::Call`].
    pub number: u64,
    /// What it asked, first of all.
    pub request: &'a Asked,
    /// Where its time went, and what came of it.
    pub timings: &'a Timings,
}

/// What a call asks: the first of its requests.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Asked {
    /// The method.
    pub method: Method,
    /// Where it goes.
    pub origin: Origin,
    /// The path and query it asks for.
    pub target: Uri,
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
        self.0.iter().for_each(|observer| tell(&**observer, record));
    }

    fn ended(&self, call: &EndedCall<'_>) {
        self.0.iter().for_each(|observer| tell_end(&**observer, call));
    }
}

/// A panic in somebody's hook must not take the request, or a connection's books, with it.
fn tell(observer: &dyn Observer, record: &Record) {
    let _ = catch_unwind(AssertUnwindSafe(|| observer.observe(record)));
}

fn tell_end(observer: &dyn Observer, call: &EndedCall<'_>) {
    let _ = catch_unwind(AssertUnwindSafe(|| observer.ended(call)));
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
    /// What it asks, where anybody is told.
    asked: Option<Asked>,
    number: u64,
    start: Instant,
    timings: Mutex<Timings>,
}

impl Trace {
    /// Begins a call now; `asked` is only made where somebody observes.
    pub(crate) fn start(hooks: &Hooks, own: Option<Arc<dyn Observer>>, asked: impl FnOnce() -> Asked) -> Self {
        let start = now();
        let number = hooks.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let timings = Mutex::new(Timings::new(start));
        let asked = (own.is_some() || hooks.observer.is_some()).then(asked);
        let trace = Self(Arc::new(Call { hooks: hooks.clone(), own, asked, number, start, timings }));
        if let Some(Asked { method, origin, target }) = trace.0.asked.clone() {
            trace.tell(start, Event::CallStart { method, origin, target });
        }
        trace
    }

    /// Whether anybody is told of it.
    pub(crate) fn is_observed(&self) -> bool {
        self.0.asked.is_some()
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
        let is_last = {
            let mut timings = self.lock();
            let was_complete = timings.is_complete();
            timings.fold(at, &event);
            timings.is_complete() && !was_complete
        };
        self.tell(at, event);
        if is_last {
            self.tell_end();
        }
    }

    fn tell_end(&self) {
        let Some(request) = &self.0.asked else { return };
        let call = EndedCall { number: self.0.number, request, timings: &self.timings() };
        for observer in self.0.hooks.observer.as_deref().into_iter().chain(self.0.own.as_deref()) {
            tell_end(observer, &call);
        }
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
