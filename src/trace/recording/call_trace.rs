//! The events of one call: folded into its timings and told to observers as they come.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, mem};

use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Instant, now};
use crate::trace::events::event::{Event, Phase, Record, RequestInfo, Subject, TlsFacts};
use crate::trace::events::{Budgeted, HedgeOutcome, NotRetried};
use crate::trace::observers::{EndedCall, Hooks, ObserverHandle, Wants};
use crate::trace::recording::{DialTrace, tell_late};
use crate::trace::server_timing::ServerTiming;
use crate::trace::timings::late::LATE;
use crate::trace::timings::requests::{EndedRequest, ObservedRequest, OpenRequest, RequestEnd, Requests};
use crate::trace::timings::{CallEnd, Timings};

/// The trace of one call. Clones share the call.
#[derive(Clone)]
pub(crate) struct Trace(Arc<TracedCall>);

struct TracedCall {
    /// `None` if no observer wants anything. Boxed, because most calls have no observer, and would have to make room for it.
    observed: Option<Box<Observed>>,
    start: Instant,
    timings: Mutex<Timings>,
    /// True for a second attempt at the call's request, whose end is not the end of the call.
    is_second: AtomicBool,
    /// True for an attempt that has lost: observers are told no more of it.
    is_silent: AtomicBool,
}

/// The observers of a call, and what they are told of it.
struct Observed {
    /// The client's observers.
    hooks: Hooks,
    /// The call's own observer, which is told beside the client's.
    own: Option<ObserverHandle>,
    /// The union of what the client's observers and the call's own one want.
    wants: Wants,
    /// The first request. `None` if no observer wants calls or their ends.
    request: Option<Arc<RequestInfo>>,
    number: u64,
    /// The request that is under way. `None` if no observer wants requests.
    requests: Option<Box<Requests>>,
    /// The second attempt at the call's request, until the hedge ends.
    second: Mutex<Option<Trace>>,
}

impl Observed {
    /// Returns the observers of a second attempt at the call's request.
    fn beside(&self) -> Self {
        let Self { hooks, own, wants, request, number, requests, second: _ } = self;
        Self {
            hooks: hooks.clone(),
            own: own.clone(),
            wants: *wants,
            request: request.clone(),
            number: *number,
            requests: requests.as_ref().map(|requests| Box::new(requests.beside())),
            second: Mutex::default(),
        }
    }

    /// Returns the observers of a call; `None` if none of them wants anything.
    #[inline]
    fn of(hooks: &Hooks, own: Option<ObserverHandle>, request: impl FnOnce() -> RequestInfo) -> Option<Box<Self>> {
        let wants = own.as_ref().map_or(Wants::NOTHING, ObserverHandle::wants).union(hooks.wants());
        if wants == Wants::NOTHING {
            return None;
        }
        let request = wants.intersects(Wants::CALLS.union(Wants::ENDS)).then(|| Arc::new(request()));
        let requests = wants.intersects(Wants::REQUESTS).then(|| Box::new(Requests::new()));
        Some(Box::new(Self {
            hooks: hooks.clone(),
            own,
            wants,
            request,
            number: hooks.next_call(),
            requests,
            second: Mutex::default(),
        }))
    }
}

/// The shortest time aside that is noted: a shorter one explains nothing, and costs a warm call its history.
const LEAST_OWN_CODE: Duration = Duration::from_micros(100);

/// The connection that a call's request got last, if it has got one since it was sent again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastLease {
    pub(crate) since: Instant,
    pub(crate) connection: u64,
    pub(crate) remote: Option<SocketAddr>,
}

impl Trace {
    /// Starts the trace of a call that begins now. `request` is called only if an observer wants calls or their ends.
    pub(crate) fn start(hooks: &Hooks, own: Option<ObserverHandle>, request: impl FnOnce() -> RequestInfo) -> Self {
        let start = now();
        let trace = Self(Arc::new(TracedCall {
            observed: Observed::of(hooks, own, request),
            start,
            timings: Mutex::new(Timings::new(start)),
            is_second: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        }));
        if let Some(observed) = &trace.0.observed
            && let Some(request) = observed.request.as_ref().filter(|_| observed.wants.intersects(Wants::CALLS))
        {
            trace.tell(Wants::CALLS, start, Event::CallStart(request.clone()));
            trace.note_own_code_since(start);
        }
        trace
    }

    /// Returns true if an observer wants `what`.
    pub(crate) fn is_wanted(&self, what: Wants) -> bool {
        self.0.observed.as_ref().is_some_and(|observed| observed.wants.intersects(what))
    }

    /// Returns the call's own observer.
    pub(crate) fn own(&self) -> Option<&ObserverHandle> {
        self.0.observed.as_ref()?.own.as_ref()
    }

    /// Returns the time at which the call began.
    pub(crate) fn start_time(&self) -> Instant {
        self.0.start
    }

    /// Takes an event that happens now.
    #[inline(always)]
    pub(crate) fn emit(&self, event: Event) {
        self.emit_at(now(), event);
    }

    /// Takes an event that happened at `at`.
    // Inlined, so that the compiler knows the event at each call: only the event's own branch of the fold is left, and the
    // event is not constructed at all if there is no observer.
    #[inline(always)]
    pub(crate) fn emit_at(&self, at: Instant, event: Event) {
        // Before the fold, which resets what is known of the last request.
        match &event {
            Event::Repeated { cause } => self.0.end_request(at, RequestEnd::Repeated(*cause)),
            Event::Redirected { status, .. } => self.0.end_request(at, RequestEnd::Redirected(*status)),
            _ => {}
        }
        let was_complete = {
            let mut timings = self.lock();
            let was_complete = timings.is_complete();
            timings.fold(at, &event);
            was_complete
        };
        let is_end = matches!(&event, Event::BodyEnd { .. } | Event::BodyDropped { .. } | Event::CallFailed { .. });
        // An observer of ends only does not cost an event that is none.
        if let Some(observed) = &self.0.observed
            && (is_end || observed.wants != Wants::ENDS)
        {
            return self.tell_of(at, event, was_complete);
        }
        // To drop an event of unknown kind, the compiler calls a function. The events of every request need no such function, so they are
        // dropped here by kind.
        match event {
            Event::Leased { tls, .. } => drop(tls),
            // All their fields, so that one that owns something cannot be forgotten.
            Event::Headers { status: _, version: _ }
            | Event::BodyEnd { bytes: _ }
            | Event::BodyDropped { bytes: _ } => {
                mem::forget(event);
            }
            _ => {}
        }
    }

    /// Takes the times of an exchange: of its first byte sent, of its last byte sent, of its body's length in bytes, and of
    /// the first byte of the response. A time is `None` if the exchange did not get so far.
    pub(crate) fn record_exchange(
        &self,
        begun: Option<Instant>,
        sent: Option<Instant>,
        body: u64,
        answered: Option<Instant>,
    ) {
        {
            let mut timings = self.lock();
            if let Some(at) = sent {
                timings.note_sent(at, body);
            }
            if let Some(at) = answered {
                timings.note_first_byte(at);
            }
        }
        if self.is_wanted(Wants::CALLS) {
            self.tell_exchanged(begun, sent, body, answered);
        }
    }

    /// Ends the call at `at`, with the response's body: `bytes` of it were read, and its reader waited for them for `waited`.
    #[inline]
    pub(crate) fn end_with_body(&self, at: Instant, end: CallEnd, bytes: u64, waited: Duration) {
        if !waited.is_zero() {
            self.lock().body_wait = waited;
        }
        match end {
            CallEnd::Read => self.emit_at(at, Event::BodyEnd { bytes }),
            CallEnd::Unread => self.emit_at(at, Event::BodyDropped { bytes }),
            CallEnd::Failed(why) => drop(self.fail_at(at, why, bytes)),
        }
    }

    /// Takes the time for which the request's body had nothing to be sent.
    pub(crate) fn note_body_starved(&self, starved: Duration) {
        if !starved.is_zero() {
            self.lock().history_mut().set_body_starved(starved);
        }
    }

    /// Notes what is not made because the origin's budget is used up. The times of an exchange that goes on are told later.
    pub(crate) fn note_over_budget(&self, repeat: Budgeted) {
        self.lock().history_mut().note_over_budget(repeat);
        self.notify(Wants::CALLS, || Event::OverBudget { repeat });
    }

    /// Notes that the call acts at `now` on a timer that was due before.
    #[inline]
    pub(crate) fn note_timer(&self, due: Instant, now: Instant) {
        let by = now - due;
        if by >= LATE {
            tell_late(now, by, Event::TimerLate { phase: self.phase(), by }, |event| self.emit_at(now, event));
        }
    }

    /// Notes that what the call waited for was here for the time `by` before the program came to it at `now`.
    pub(crate) fn note_read_late(&self, now: Instant, phase: Phase, by: Duration) {
        if by >= LATE {
            tell_late(now, by, Event::ReadLate { phase, by }, |event| self.emit_at(now, event));
        }
    }

    /// Notes why the call is not retried.
    pub(crate) fn note_not_retried(&self, why: NotRetried) {
        self.lock().history_mut().note_not_retried(why);
    }

    /// Takes a part of the present phase's time that was spent in the program's own code.
    fn note_own_code(&self, time: Duration) {
        if time >= LEAST_OWN_CODE {
            self.lock().note_own_code(time);
        }
    }

    /// Takes time for which a layer waited for more of a response's body, which is no code of the program.
    pub(crate) fn note_layer_wait(&self, time: Duration) {
        self.lock().history_mut().layer_wait += time;
    }

    /// Takes the time between two attempts, or after the last one, in which layers ran or waited for a body.
    pub(crate) fn note_layers(&self, time: Duration) {
        let waited = std::mem::take(&mut self.lock().history_mut().layer_wait);
        self.note_own_code(time.saturating_sub(waited));
    }

    /// Runs code of the program, which takes the time of a phase that is about something else.
    pub(crate) fn in_own_code<T>(&self, code: impl FnOnce() -> T) -> T {
        let start = now();
        let result = code();
        self.note_own_code_since(start);
        result
    }

    fn note_own_code_since(&self, start: Instant) {
        self.note_own_code(now() - start);
    }

    /// Notes that a server may have acted on an attempt of a layer, which makes another one.
    pub(crate) fn note_acted(&self) {
        self.lock().history_mut().acted_before = true;
    }

    /// Takes the server's own account of its time for the response of the current request.
    #[cold]
    pub(crate) fn record_server_timing(&self, metrics: Arc<[ServerTiming]>) {
        self.lock().request.server = Some(metrics);
    }

    #[cold]
    fn tell_exchanged(&self, begun: Option<Instant>, sent: Option<Instant>, body: u64, answered: Option<Instant>) {
        let sent = sent.map(|at| (at, Event::RequestSent { body }));
        let events = [begun.map(|at| (at, Event::HeadersSent)), sent, answered.map(|at| (at, Event::FirstByte))];
        self.in_own_code(|| events.into_iter().flatten().for_each(|(at, event)| self.tell(Wants::CALLS, at, event)));
    }

    #[cold]
    fn tell_of(&self, at: Instant, event: Event, was_complete: bool) {
        let end = match event {
            Event::BodyEnd { .. } => Some(RequestEnd::Answered),
            Event::BodyDropped { .. } => Some(RequestEnd::Unread),
            Event::CallFailed { why, .. } => {
                self.note_failure(why);
                Some(RequestEnd::Failed)
            }
            _ => None,
        };
        let end = end.filter(|_| !was_complete);
        let is_last = end.is_some();
        if let Some(end) = end {
            self.0.end_request(at, end);
        }
        if self.is_wanted(Wants::CALLS) {
            if was_complete || is_last {
                self.tell(Wants::CALLS, at, event);
            } else {
                self.in_own_code(|| self.tell(Wants::CALLS, at, event));
            }
        }
        if is_last && self.is_wanted(Wants::ENDS) {
            self.tell_end();
        }
    }

    fn tell_end(&self) {
        let Some(observed) = self.0.observed.as_ref().filter(|_| !self.0.is_silent.load(Ordering::Relaxed)) else {
            return;
        };
        let Some(request) = &observed.request else { return };
        let call = EndedCall { number: observed.number, request, timings: &Arc::new(self.timings()) };
        observed.hooks.tell_end(observed.own.as_ref(), &call);
    }

    /// Begins a request of the call. `info` is called only if an observer wants requests.
    pub(crate) fn begin_request(&self, info: impl FnOnce() -> RequestInfo) -> Option<ObservedRequest> {
        let observed = self.0.observed.as_ref()?;
        self.tell_request(observed, observed.requests.as_ref()?, info())
    }

    #[cold]
    fn tell_request(&self, observed: &Observed, requests: &Requests, info: RequestInfo) -> Option<ObservedRequest> {
        let now = now();
        let (open, replaced) = {
            let timings = self.lock();
            // A layer may go on with an attempt after its call.
            if timings.is_complete() || self.0.is_silent.load(Ordering::Relaxed) {
                return None;
            }
            requests.begin(info, now, &timings)
        };
        if let Some(replaced) = replaced {
            self.0.tell_replaced(now, &replaced);
        }
        observed.hooks.tell_start(observed.own.as_ref(), &open.described(observed.number));
        self.note_own_code_since(now);
        Some(ObservedRequest(open))
    }

    /// Notes that the request that is under way has failed, for its end, which follows.
    pub(crate) fn note_failure(&self, why: &'static str) {
        if let Some(requests) = self.0.requests() {
            requests.note_failure(why);
        }
    }

    /// Ends the request that is under way, because the other attempt at it counts.
    pub(crate) fn supersede_request(&self) {
        self.0.end_request(now(), RequestEnd::Superseded);
    }

    /// Returns the headers that observers want to add to a request with `headers`.
    pub(crate) fn headers_to_add(&self, request: &ObservedRequest, headers: &HeaderMap) -> HeaderMap {
        let Some(observed) = &self.0.observed else { return HeaderMap::new() };
        let request = request.0.described(observed.number);
        self.in_own_code(|| observed.hooks.propagate(observed.own.as_ref(), &request, headers))
    }

    /// Tells observers an event that happens now and is not part of the timings. `event` is called only if an observer
    /// wants `what`.
    pub(crate) fn notify(&self, what: Wants, event: impl FnOnce() -> Event) {
        self.notify_at(None, what, event);
    }

    /// Like [`Self::notify`], for an event whose time may be known already.
    pub(crate) fn notify_at(&self, at: Option<Instant>, what: Wants, event: impl FnOnce() -> Event) {
        if self.is_wanted(what) {
            self.in_own_code(|| self.tell(what, at.unwrap_or_else(now), event()));
        }
    }

    fn tell(&self, what: Wants, at: Instant, event: Event) {
        let Some(observed) = self.0.observed.as_ref().filter(|_| !self.0.is_silent.load(Ordering::Relaxed)) else {
            return;
        };
        let record = Record { subject: Subject::Call(observed.number), at: at.into_std(), event };
        observed.hooks.tell(observed.own.as_ref(), what, &record);
    }

    /// Makes a dial's events so far part of this call.
    ///
    /// The client's observers were told these events as they happened; the call's own observer is told them now.
    pub(crate) fn adopt(&self, dial: &Arc<DialTrace>) {
        self.lock().adopt(dial.clone());
        if self.0.is_silent.load(Ordering::Relaxed) {
            return;
        }
        for own in self.own().into_iter().flat_map(|own| own.wanting(Wants::CONNECTIONS)) {
            let subject = Subject::Connection(dial.connection());
            for (at, event) in dial.events() {
                own.tell(&Record { subject, at: at.into_std(), event });
            }
        }
    }

    /// Ends the call as failed, unless it is over already, and returns the phase that it was in.
    pub(crate) fn fail(&self, why: &'static str) -> Phase {
        self.fail_at(now(), why, 0)
    }

    fn fail_at(&self, at: Instant, why: &'static str, bytes: u64) -> Phase {
        let (phase, is_over, is_hedged) = {
            let timings = self.lock();
            (timings.phase(), timings.is_complete(), timings.is_hedge_pending())
        };
        if !is_over && !self.0.is_second.load(Ordering::Relaxed) {
            if is_hedged {
                self.end_hedge(HedgeOutcome::of_failed_call(why));
            }
            self.emit_at(at, Event::CallFailed { phase, why, bytes });
        }
        phase
    }

    /// Begins a second attempt at the call's request at `at`, while the first one waits, and returns its trace. `after` is
    /// the time for which the first one has had its connection.
    ///
    /// Each attempt has timings of its own. Observers are told of both.
    pub(crate) fn begin_hedge(&self, at: Instant, after: Duration, late: Duration) -> Self {
        let TracedCall { observed, start, .. } = &*self.0;
        let second = Self(Arc::new(TracedCall {
            observed: observed.as_ref().map(|observed| Box::new(observed.beside())),
            start: *start,
            timings: Mutex::new(self.lock().begin_hedge(at, late)),
            is_second: AtomicBool::new(true),
            is_silent: AtomicBool::new(false),
        }));
        if let Some(observed) = observed {
            *observed.second.lock() = Some(second.clone());
        }
        self.notify_at(Some(at), Wants::CALLS, || Event::Hedged { after });
        if late >= LATE {
            second.notify_at(Some(at), Wants::CALLS, || Event::TimerLate { phase: Phase::Wait, by: late });
        }
        second
    }

    /// Makes the trace of the second attempt that of the call. The first attempt, whose trace is `first`, is over.
    pub(crate) fn take_over(&self, first: &Self) {
        self.0.is_second.store(false, Ordering::Relaxed);
        drop(first.take_second());
        let first = first.timings();
        self.lock().settle_hedge(&first);
    }

    /// Enters the result of the second attempt, in the trace of the call. Unless that attempt counts, its request ends.
    pub(crate) fn end_hedge(&self, outcome: HedgeOutcome) {
        self.lock().end_hedge(outcome);
        if let Some(second) = self.take_second() {
            second.silence();
            let end = match outcome {
                HedgeOutcome::Timeout | HedgeOutcome::Cancelled => {
                    second.note_failure(outcome.as_str());
                    RequestEnd::Failed
                }
                _ => RequestEnd::Superseded,
            };
            second.0.end_request(now(), end);
        }
        self.notify(Wants::CALLS, || Event::HedgeEnd { outcome });
    }

    fn take_second(&self) -> Option<Self> {
        self.0.observed.as_ref()?.second.lock().take()
    }

    /// Tells observers no more of this attempt.
    pub(crate) fn silence(&self) {
        self.0.is_silent.store(true, Ordering::Relaxed);
    }

    /// Returns the connection that the current request has, or had when it was over.
    pub(crate) fn last_lease(&self) -> Option<LastLease> {
        let timings = self.lock();
        let request = &timings.request;
        let since = request.milestones.leased?;
        Some(LastLease { since, connection: request.connection?, remote: request.remote })
    }

    /// Returns the phase that the call is in.
    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase()
    }

    /// Returns the address of the peer of the call's connection.
    pub(crate) fn remote_addr(&self) -> Option<SocketAddr> {
        self.lock().remote_addr()
    }

    /// Ends a call that a layer answered without sending a request.
    pub(crate) fn answered_by_layer(&self, status: http::StatusCode, version: http::Version) {
        if let Some(replaced) = self.0.requests().and_then(Requests::end) {
            self.0.tell_replaced(now(), &replaced);
        }
        self.emit(Event::Headers { status, version });
        self.emit(Event::BodyEnd { bytes: 0 });
    }

    /// Returns the result of the TLS handshake of the call's connection.
    pub(crate) fn tls(&self) -> Option<Arc<TlsFacts>> {
        self.lock().request.tls.clone()
    }

    /// Returns the timings of the call so far.
    pub(crate) fn timings(&self) -> Timings {
        let mut timings = self.lock();
        timings.list_dial();
        timings.clone()
    }

    // A fold leaves no half-done state behind, so that a panic does no harm.
    fn lock(&self) -> MutexGuard<'_, Timings> {
        self.0.timings.lock()
    }
}

impl TracedCall {
    /// Returns the request that is under way; `None` if no observer wants requests.
    #[inline]
    fn requests(&self) -> Option<&Requests> {
        self.observed.as_ref()?.requests.as_deref()
    }

    /// Tells observers that the request that is under way has ended, if there is one.
    #[inline]
    fn end_request(&self, at: Instant, end: RequestEnd) {
        if let Some(requests) = self.requests()
            && let Some(open) = requests.end()
        {
            self.tell_request_end(at, end, &open);
        }
    }

    /// Tells observers the end of a request that another one, or an answer of a layer, took the place of.
    fn tell_replaced(&self, at: Instant, open: &OpenRequest) {
        let end = if open.failure().is_some() { RequestEnd::Failed } else { RequestEnd::Superseded };
        self.tell_request_end(at, end, open);
    }

    #[cold]
    fn tell_request_end(&self, at: Instant, end: RequestEnd, open: &OpenRequest) {
        let Some(observed) = &self.observed else { return };
        let mut timings = {
            let mut timings = self.timings.lock();
            timings.list_dial();
            timings.clone()
        };
        timings.advance(at);
        let ended = EndedRequest {
            request: open.described(observed.number),
            ended: at.max(timings.last).into_std(),
            end,
            failure: open.failure(),
            timings: &timings,
            spent_before: &open.spent_before,
            late_before: open.late_before,
        };
        observed.hooks.tell_request_end(observed.own.as_ref(), &ended);
    }
}

/// A handle to a call's timings while its body is read, and after: it outlives the response.
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

    /// Returns the timings of the call so far.
    pub fn timings(&self) -> Timings {
        self.0.timings()
    }
}

impl fmt::Debug for TimingsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimingsHandle").field(&self.timings()).finish()
    }
}
