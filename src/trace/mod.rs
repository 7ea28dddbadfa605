//! What happened and when: events are values, observers see each one, and [`Timings`] are a fold over them.
//!
#![doc = include_str!("hooks.md")]

mod event;
mod observer;
#[cfg(feature = "serde")]
mod serial;
mod svg;
mod timings;
mod waterfall;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

pub use event::{
    Asked, CloseCause, DnsLookup, Event, Family, Limit, Phase, Record, RetryCause, Source, Subject, TlsFacts,
};
pub use observer::{EndedCall, Observer, Wants};
pub(crate) use observer::{Hooks, Own};
pub use svg::{comparison_svg, waterfall_svg};
pub use timings::{Attempt, Hop, HopEnd, Outcome, Timings};
pub use waterfall::Waterfall;

use crate::clock::{Instant, now};
use crate::sync::lock;

/// Whether anything is timed, which it always is, but for a bench that wants to know what that costs.
#[inline(always)]
pub(crate) fn is_timed() -> bool {
    #[cfg(feature = "__bench")]
    return !untimed::UNTIMED.load(std::sync::atomic::Ordering::Relaxed);
    #[cfg(not(feature = "__bench"))]
    true
}

#[cfg(feature = "__bench")]
pub(crate) mod untimed {
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(super) static UNTIMED: AtomicBool = AtomicBool::new(false);

    /// From now on nothing is timed, and nobody is told of anything.
    pub fn without_timings() {
        UNTIMED.store(true, Ordering::Relaxed);
    }
}

/// One call's events, folded as they come. Clones share the call.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Call>);

struct Call {
    hooks: Hooks,
    /// Told beside the client's.
    own: Option<Own>,
    /// What any of them wants to be told of.
    wants: Wants,
    /// What it asks, where anybody is told.
    asked: Option<Arc<Asked>>,
    number: u64,
    start: Instant,
    timings: Mutex<Timings>,
}

impl Trace {
    /// Begins a call now; `asked` is only made where somebody observes.
    pub(crate) fn start(hooks: &Hooks, own: Option<Own>, asked: impl FnOnce() -> Asked) -> Self {
        let (start, number) = (now(), hooks.next_call());
        let timings = Mutex::new(Timings::new(start));
        let wants = own.as_ref().map_or(Wants::NOTHING, Own::wants).and(hooks.wants());
        let asked = wants.includes(Wants::CALLS.and(Wants::ENDS)).then(|| Arc::new(asked()));
        let trace = Self(Arc::new(Call { hooks: hooks.clone(), own, wants, asked, number, start, timings }));
        if let Some(asked) = trace.0.asked.as_ref().filter(|_| wants.includes(Wants::CALLS)) {
            trace.tell(Wants::CALLS, start, Event::CallStart(asked.clone()));
        }
        trace
    }

    /// Whether anybody is told of this.
    pub(crate) fn is_wanted(&self, what: Wants) -> bool {
        self.0.wants.includes(what)
    }

    /// Who is told of this call alone.
    pub(crate) fn own(&self) -> Option<&Own> {
        self.0.own.as_ref()
    }

    /// When the call began.
    pub(crate) fn start_time(&self) -> Instant {
        self.0.start
    }

    /// Takes an event that happens now.
    #[inline(always)]
    pub(crate) fn emit(&self, event: Event) {
        if is_timed() {
            self.emit_at(now(), event);
        }
    }

    /// Takes an event that happened at `at`.
    // Inlined, what is folded is known at each call, and where nobody observes no event is ever made.
    #[inline(always)]
    pub(crate) fn emit_at(&self, at: Instant, event: Event) {
        if !is_timed() {
            return;
        }
        let was_complete = {
            let mut timings = self.lock();
            let was_complete = timings.is_complete();
            timings.fold(at, &event);
            was_complete
        };
        if self.0.wants != Wants::NOTHING {
            self.tell_of(at, event, was_complete);
        }
    }

    /// How far a request got on its connection.
    pub(crate) fn exchanged(
        &self,
        begun: Option<Instant>,
        sent: Option<Instant>,
        body: u64,
        answered: Option<Instant>,
    ) {
        if !is_timed() {
            return;
        }
        {
            let mut timings = self.lock();
            if let Some(at) = sent {
                timings.fold(at, &Event::RequestSent { body });
            }
            if let Some(at) = answered {
                timings.fold(at, &Event::FirstByte);
            }
        }
        if self.is_wanted(Wants::CALLS) {
            self.tell_exchanged(begun, sent, body, answered);
        }
    }

    #[cold]
    fn tell_exchanged(&self, begun: Option<Instant>, sent: Option<Instant>, body: u64, answered: Option<Instant>) {
        let sent = sent.map(|at| (at, Event::RequestSent { body }));
        let events = [begun.map(|at| (at, Event::HeadersSent)), sent, answered.map(|at| (at, Event::FirstByte))];
        events.into_iter().flatten().for_each(|(at, event)| self.tell(Wants::CALLS, at, event));
    }

    #[cold]
    fn tell_of(&self, at: Instant, event: Event, was_complete: bool) {
        let is_last = matches!(event, Event::BodyEnd { .. } | Event::CallFailed { .. }) && !was_complete;
        if self.is_wanted(Wants::CALLS) {
            self.tell(Wants::CALLS, at, event);
        }
        if is_last && self.is_wanted(Wants::ENDS) {
            self.tell_end();
        }
    }

    fn tell_end(&self) {
        let Some(request) = &self.0.asked else { return };
        let call = EndedCall { number: self.0.number, request, timings: &self.timings() };
        self.0.hooks.tell_end(self.0.own.as_ref(), &call);
    }

    /// Tells who wants to know of an event that happens now, and is not in the timings; it is only made where somebody does.
    pub(crate) fn mention(&self, what: Wants, event: impl FnOnce() -> Event) {
        self.mention_at(None, what, event);
    }

    /// The same, where it may be known what time it is.
    pub(crate) fn mention_at(&self, at: Option<Instant>, what: Wants, event: impl FnOnce() -> Event) {
        if self.is_wanted(what) {
            self.tell(what, at.unwrap_or_else(now), event());
        }
    }

    fn tell(&self, what: Wants, at: Instant, event: Event) {
        let record = Record { subject: Subject::Call(self.0.number), at: at.into_std(), event };
        self.0.hooks.tell(self.0.own.as_ref(), what, &record);
    }

    /// Takes over what a dial did for this call. The client's observers have seen it as it happened, the call's own see it now.
    pub(crate) fn adopt(&self, dial: &Arc<DialTrace>) {
        self.lock().adopt(dial);
        if let Some(own) = self.0.own.as_ref().filter(|own| own.wants().includes(Wants::CONNECTIONS)) {
            let subject = Subject::Connection(dial.connection);
            for (at, event) in dial.events() {
                own.tell(&Record { subject, at: at.into_std(), event });
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

    /// The phase it is in.
    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase()
    }

    pub(crate) fn remote_addr(&self) -> Option<SocketAddr> {
        self.lock().remote_addr()
    }

    /// Ends a call for which nobody was asked.
    #[cfg(feature = "tower")]
    pub(crate) fn made_up(&self, status: http::StatusCode, version: http::Version) {
        self.emit(Event::Headers { status, version });
        self.emit(Event::BodyEnd { bytes: 0 });
    }

    pub(crate) fn tls(&self) -> Option<Arc<TlsFacts>> {
        self.lock().shared_tls_facts()
    }

    /// The timings as far as the call has got.
    pub(crate) fn timings(&self) -> Timings {
        let mut timings = self.lock();
        timings.list_all();
        timings.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Timings> {
        lock(&self.0.timings)
    }
}

/// What one dial did: told to observers at once, kept for the call that waits for it.
pub(crate) struct DialTrace {
    hooks: Hooks,
    connection: u64,
    events: Mutex<Vec<(Instant, Event)>>,
}

/// What a dial makes that looks a name up and has no TLS.
const USUAL_EVENTS: usize = 9;

impl fmt::Debug for DialTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DialTrace").field(&self.connection).finish()
    }
}

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
        if !self.hooks.wants().includes(Wants::CONNECTIONS) {
            return self.lock().push((at, event));
        }
        self.lock().push((at, event.clone()));
        tell_of(&self.hooks, None, self.connection, at, event);
    }

    /// Takes two events that happened at `at`, in this order.
    pub(crate) fn emit_both_at(&self, at: Instant, first: Event, second: Event) {
        if self.hooks.wants().includes(Wants::CONNECTIONS) {
            self.emit_at(at, first);
            return self.emit_at(at, second);
        }
        let mut events = self.lock();
        events.push((at, first));
        events.push((at, second));
    }

    /// The number of the connection it opens.
    pub(crate) fn connection(&self) -> u64 {
        self.connection
    }

    /// When it began.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.lock().first().map(|(at, _)| *at)
    }

    /// Where its time went so far.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn timings(&self) -> Timings {
        let mut timings = Timings::new(self.begun().unwrap_or_else(now));
        self.lock().iter().for_each(|(at, event)| timings.fold(*at, event));
        timings
    }

    pub(crate) fn events(&self) -> Vec<(Instant, Event)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Instant, Event)>> {
        lock(&self.events)
    }
}

/// Tells observers that a connection's socket is closed.
pub(crate) fn connection_closed(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.wants().includes(Wants::CONNECTIONS) {
        tell_of(hooks, None, connection, now(), Event::Closed { cause });
    }
}

/// Tells observers, and whoever observes its call alone, that a request is done with its connection.
pub(crate) fn connection_released(hooks: &Hooks, own: Option<&Own>, connection: u64, kept: bool) {
    let own = own.filter(|own| own.wants().includes(Wants::CONNECTIONS));
    if own.is_some() || hooks.wants().includes(Wants::CONNECTIONS) {
        tell_of(hooks, own, connection, now(), Event::Released { kept });
    }
}

/// Tells observers that a connection takes no more requests.
pub(crate) fn connection_retired(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.wants().includes(Wants::CONNECTIONS) {
        tell_of(hooks, None, connection, now(), Event::Retired { cause });
    }
}

/// Tells observers that a word of resolv.conf is left out.
pub(crate) fn config_skipped(hooks: &Hooks, line: usize, word: &str) {
    if hooks.wants().includes(Wants::RESOLVER) {
        let event = Event::ConfigSkipped { line, word: word.into() };
        let record = Record { subject: Subject::Resolver, at: now().into_std(), event };
        hooks.tell(None, Wants::RESOLVER, &record);
    }
}

fn tell_of(hooks: &Hooks, own: Option<&Own>, connection: u64, at: Instant, event: Event) {
    let record = Record { subject: Subject::Connection(connection), at: at.into_std(), event };
    hooks.tell(own, Wants::CONNECTIONS, &record);
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
