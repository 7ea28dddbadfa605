//! The observers of a client and of a call, and how they are told of events.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | the trait of observers, and what they want to be told |
//! | `mod.rs` | the observers of a client and of a call, and in which order they are told |
//! | `mod.rs` | events of connections and settings |

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, iter};

use http::HeaderMap;

use crate::clock::{Instant, now};
use crate::trace::events::CloseCause;
use crate::trace::events::event::{Event, Record, RequestInfo, Subject};
use crate::trace::timings::Timings;
use crate::trace::timings::requests::{EndedRequest, StartedRequest};

/// Tells the observers that a connection's socket was closed.
pub(crate) fn connection_closed(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, None, connection, now(), Event::Closed { cause });
    }
}

/// Tells the observers, and the call's own one, that a request released its connection.
pub(crate) fn connection_released(hooks: &Hooks, own: Option<&ObserverHandle>, connection: u64, kept: bool) {
    tell_end_of_use(hooks, own, connection, || Event::Released { kept });
}

/// Tells the observers that the client of another crate began to use a connection.
#[cfg(feature = "hyper-util")]
pub(crate) fn connection_active(hooks: &Hooks, connection: u64) {
    if hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, None, connection, now(), Event::Active);
    }
}

/// Tells the observers, and the call's own one, that the stream of another protocol was dropped.
pub(crate) fn upgrade_ended(hooks: &Hooks, own: Option<&ObserverHandle>, connection: u64, received: u64, sent: u64) {
    tell_end_of_use(hooks, own, connection, || Event::UpgradeEnd { received, sent });
}

fn tell_end_of_use(hooks: &Hooks, own: Option<&ObserverHandle>, connection: u64, event: impl FnOnce() -> Event) {
    let own = own.filter(|own| own.wants().intersects(Wants::CONNECTIONS));
    if own.is_some() || hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, own, connection, now(), event());
    }
}

/// Tells the observers that a connection takes no new requests.
pub(crate) fn connection_retired(hooks: &Hooks, connection: u64, cause: CloseCause) {
    if hooks.wants().intersects(Wants::CONNECTIONS) {
        tell_connection(hooks, None, connection, now(), Event::Retired { cause });
    }
}

/// Tells the observers that a word of resolv.conf was left out.
pub(crate) fn config_skipped(hooks: &Hooks, line: usize, word: &str) {
    if hooks.wants().intersects(Wants::RESOLVER) {
        let event = Event::ConfigSkipped { line, word: word.into() };
        let record = Record { subject: Subject::Resolver, at: now().into_std(), event };
        hooks.tell(None, Wants::RESOLVER, &record);
    }
}

/// Tells the observers that files of certificates or keys cannot be used.
pub(crate) fn tls_files_refused(hooks: &Hooks, reason: &str) {
    if hooks.wants().intersects(Wants::SETTINGS) {
        let event = Event::TlsFilesRefused { reason: reason.into() };
        let record = Record { subject: Subject::Client, at: now().into_std(), event };
        hooks.tell(None, Wants::SETTINGS, &record);
    }
}

/// Tells the observers that files of certificates or keys have changed, and are used.
pub(crate) fn tls_files_reloaded(hooks: &Hooks) {
    if hooks.wants().intersects(Wants::SETTINGS) {
        let record = Record { subject: Subject::Client, at: now().into_std(), event: Event::TlsFilesReloaded };
        hooks.tell(None, Wants::SETTINGS, &record);
    }
}

/// Tells the observers that one setting of a client leaves another one without effect.
pub(crate) fn setting_ignored(hooks: &Hooks, setting: &'static str, beside: &'static str) {
    if hooks.wants().intersects(Wants::SETTINGS) {
        let event = Event::SettingIgnored { setting, beside };
        hooks.tell(None, Wants::SETTINGS, &Record { subject: Subject::Client, at: now().into_std(), event });
    }
}

/// Tells the observers an event of a connection.
pub(in crate::trace) fn tell_connection(
    hooks: &Hooks,
    own: Option<&ObserverHandle>,
    connection: u64,
    at: Instant,
    event: Event,
) {
    let record = Record { subject: Subject::Connection(connection), at: at.into_std(), event };
    hooks.tell(own, Wants::CONNECTIONS, &record);
}

/// An observer with the [`Wants`] that it was asked for once. Clones share the observer.
#[derive(Clone)]
pub(crate) struct ObserverHandle {
    wants: Wants,
    observer: Arc<dyn Observer>,
    /// The observer that is told after this one.
    next: Option<Arc<ObserverHandle>>,
}

impl ObserverHandle {
    pub(crate) fn new(observer: impl Observer) -> Self {
        Self { wants: observer.wants(), observer: Arc::new(observer), next: None }
    }

    /// Creates a handle to the observer of one call.
    pub(crate) fn of_call(observer: impl Observer) -> Self {
        Self { wants: observer.wants_of_call(), observer: Arc::new(observer), next: None }
    }

    /// Adds an observer that is told after these.
    pub(crate) fn and(self, last: Self) -> Self {
        let next = match self.next {
            Some(next) => Arc::unwrap_or_clone(next).and(last),
            None => last,
        };
        Self { next: Some(Arc::new(next)), ..self }
    }

    /// Returns the union of what it wants and what those after it want.
    pub(in crate::trace) fn wants(&self) -> Wants {
        self.each().fold(Wants::NOTHING, |all, observer| all.union(observer.wants))
    }

    /// Returns it, and those after it.
    fn each(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |observer| observer.next.as_deref())
    }

    /// Returns those of them that want `what`.
    pub(in crate::trace) fn wanting(&self, what: Wants) -> impl Iterator<Item = &Self> {
        self.each().filter(move |observer| observer.wants.intersects(what))
    }

    // A panic in an observer must not reach the request, or leave the counters of its connection half changed.
    pub(in crate::trace) fn tell(&self, record: &Record) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.observer.observe(record)));
    }

    fn tell_end(&self, call: &EndedCall<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.observer.ended(call)));
    }

    fn tell_start(&self, request: &StartedRequest<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.observer.request_started(request)));
    }

    fn tell_request_end(&self, request: &EndedRequest<'_>) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.observer.request_ended(request)));
    }

    fn propagate(&self, request: &StartedRequest<'_>, headers: &HeaderMap) -> HeaderMap {
        catch_unwind(AssertUnwindSafe(|| self.observer.propagate(request, headers))).unwrap_or_default()
    }
}

/// A client's observers, and the numbers that its calls get. Clones share both.
#[derive(Clone, Default)]
pub(crate) struct Hooks(Arc<Observers>);

#[derive(Default)]
struct Observers {
    list: Vec<ObserverHandle>,
    /// The union of what the observers want.
    wants: Wants,
    /// The number of calls so far.
    calls: AtomicU64,
}

impl Hooks {
    pub(crate) fn new(list: Vec<ObserverHandle>) -> Self {
        let wants = list.iter().fold(Wants::NOTHING, |all, observer| all.union(observer.wants));
        Self(Arc::new(Observers { list, wants, calls: AtomicU64::new(0) }))
    }

    /// Returns the union of what the observers want.
    pub(crate) fn wants(&self) -> Wants {
        self.0.wants
    }

    /// Returns the number of a call that begins now. Numbers begin at 1.
    pub(in crate::trace) fn next_call(&self) -> u64 {
        self.0.calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Delivers an event to the observers that want `what`. The observer of the call comes last.
    pub(in crate::trace) fn tell(&self, own: Option<&ObserverHandle>, what: Wants, record: &Record) {
        self.wanting(own, what).for_each(|observer| observer.tell(record));
    }

    /// Delivers the end of a call to the observers that want it. The observer of the call comes last.
    pub(in crate::trace) fn tell_end(&self, own: Option<&ObserverHandle>, call: &EndedCall<'_>) {
        self.wanting(own, Wants::ENDS).for_each(|observer| observer.tell_end(call));
    }

    /// Delivers the start of a request to the observers that want requests.
    pub(in crate::trace) fn tell_start(&self, own: Option<&ObserverHandle>, request: &StartedRequest<'_>) {
        self.wanting(own, Wants::REQUESTS).for_each(|observer| observer.tell_start(request));
    }

    /// Delivers the end of a request to the observers that want requests.
    pub(in crate::trace) fn tell_request_end(&self, own: Option<&ObserverHandle>, request: &EndedRequest<'_>) {
        self.wanting(own, Wants::REQUESTS).for_each(|observer| observer.tell_request_end(request));
    }

    /// Returns the headers that the observers want to add to a request with `headers`. Each sees those of the observers before it.
    pub(in crate::trace) fn propagate(
        &self,
        own: Option<&ObserverHandle>,
        request: &StartedRequest<'_>,
        headers: &HeaderMap,
    ) -> HeaderMap {
        let mut all: Option<HeaderMap> = None;
        for observer in self.wanting(own, Wants::REQUESTS) {
            let known = all.as_ref().unwrap_or(headers);
            let added = without_known(observer.propagate(request, known), known);
            if !added.is_empty() {
                all.get_or_insert_with(|| headers.clone()).extend(added);
            }
        }
        all.unwrap_or_default()
    }

    fn wanting<'a>(&'a self, own: Option<&'a ObserverHandle>, what: Wants) -> impl Iterator<Item = &'a ObserverHandle> {
        let of_client = self.0.list.iter().filter(move |observer| observer.wants.intersects(what));
        of_client.chain(own.into_iter().flat_map(move |own| own.wanting(what)))
    }
}

/// The headers of the [W3C trace context](https://www.w3.org/TR/trace-context/), which belong together.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

/// Returns the headers of `added` that a request with `headers` does not have.
///
/// A request with a `traceparent` gets no `tracestate` either, which would be that of another trace.
fn without_known(mut added: HeaderMap, headers: &HeaderMap) -> HeaderMap {
    if headers.contains_key(TRACE_CONTEXT[0]) {
        for name in TRACE_CONTEXT {
            added.remove(name);
        }
    }
    for name in headers.keys() {
        added.remove(name);
    }
    added
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("observers", &self.0.list.len()).finish()
    }
}

/// Receives the events of a client's calls and connections.
///
/// An observer is called by the task that caused the event, outside of every lock. The request waits for it, so it
/// should be quick. If it panics, the panic is caught and the request goes on.
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
    /// Returns the kinds of events that the observer is told. Everything by default.
    ///
    /// Called once, when the observer is given to a client. Events that no observer wants cost nothing.
    fn wants(&self) -> Wants {
        Wants::EVERYTHING
    }

    /// Returns the kinds of events that the observer is told as the observer of one call
    /// ([`RequestBuilder::observer`](crate::RequestBuilder::observer)). Those of [`wants`](Self::wants) by default.
    ///
    /// Called once, when the observer is given to a request. Of a connection, it is told how it was opened, if that was for the
    /// call, and that the call released it. It is not told of the connection's end, nor of what other calls do with it.
    fn wants_of_call(&self) -> Wants {
        self.wants()
    }

    /// Takes one event. Does nothing by default.
    fn observe(&self, record: &Record) {
        let _ = record;
    }

    /// Takes the timings of a call that is over, right after its last event. Does nothing by default.
    ///
    /// Called once for each call, however it ended.
    fn ended(&self, call: &EndedCall<'_>) {
        let _ = call;
    }

    /// Takes a request of a call that begins now, before it waits for a connection. Does nothing by default.
    ///
    /// A call has one request, and one more for each redirect, resend, retry and hedge; none if it fails before, or a layer answers
    /// it. [`request_ended`](Self::request_ended) follows in any case, also if the call's future is dropped. The end of a hedged
    /// request may come after that of its call.
    fn request_started(&self, request: &StartedRequest<'_>) {
        let _ = request;
    }

    /// Returns headers to add to a request that is about to be sent with `headers`: those that join the server's trace with
    /// the client's. None by default.
    ///
    /// A header that the request has already is kept, and not replaced; nor does one with a `traceparent` get a `tracestate`. Headers that frame the message or belong to its
    /// connection, such as `Content-Length` and `Host`, are left out. Functions of
    /// [`ClientBuilder::before_attempt`](crate::ClientBuilder::before_attempt) see the added headers, and may sign them.
    fn propagate(&self, request: &StartedRequest<'_>, headers: &HeaderMap) -> HeaderMap {
        let _ = (request, headers);
        HeaderMap::new()
    }

    /// Takes a request of a call that is over. Does nothing by default.
    fn request_ended(&self, request: &EndedRequest<'_>) {
        let _ = request;
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn wants(&self) -> Wants {
        (**self).wants()
    }

    fn wants_of_call(&self) -> Wants {
        (**self).wants_of_call()
    }

    fn observe(&self, record: &Record) {
        (**self).observe(record);
    }

    fn ended(&self, call: &EndedCall<'_>) {
        (**self).ended(call);
    }

    fn request_started(&self, request: &StartedRequest<'_>) {
        (**self).request_started(request);
    }

    fn propagate(&self, request: &StartedRequest<'_>, headers: &HeaderMap) -> HeaderMap {
        (**self).propagate(request, headers)
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        (**self).request_ended(request);
    }
}

/// The kinds of events that an [`Observer`] is told.
///
/// ```
/// use speeddial::trace::{EndedCall, Observer, Wants};
///
/// struct Slow;
/// impl Observer for Slow {
///     fn wants(&self) -> Wants {
///         Wants::ENDS
///     }
///     fn ended(&self, call: &EndedCall<'_>) {
///         if call.timings.total().as_secs() > 1 {
///             println!("{} {}: {}", call.request.method, call.request.origin, call.timings);
///         }
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wants(u8);

impl Wants {
    /// No events.
    pub const NOTHING: Self = Self(0);
    /// The events of calls, except interim responses and pieces of bodies.
    pub const CALLS: Self = Self(1);
    /// Interim responses over HTTP/1.1: [`Event::Informational`].
    pub const INTERIM: Self = Self(2);
    /// Pieces of response bodies: [`Event::BodyChunk`].
    pub const CHUNKS: Self = Self(4);
    /// The events of connections.
    pub const CONNECTIONS: Self = Self(8);
    /// The end of each call, with its timings: [`Observer::ended`].
    pub const ENDS: Self = Self(16);
    /// The events of the DNS resolver: [`Event::ConfigSkipped`].
    pub const RESOLVER: Self = Self(32);
    /// The start and the end of each request of a call, and the headers to add to it: [`Observer::request_started`],
    /// [`Observer::propagate`], [`Observer::request_ended`].
    pub const REQUESTS: Self = Self(64);
    /// The events of the client's settings: [`Event::TlsFilesReloaded`],
    /// [`Event::TlsFilesRefused`] and
    /// [`Event::SettingIgnored`].
    pub const SETTINGS: Self = Self(128);
    /// All events.
    pub const EVERYTHING: Self = Self(255);

    /// Returns the union of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the two have at least one kind of events in common.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl Default for Wants {
    fn default() -> Self {
        Self::NOTHING
    }
}

/// A call that is over: its response was read to the end or dropped, or it failed or was cancelled.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EndedCall<'a> {
    /// The call's number, as in [`Subject::Call`].
    pub number: u64,
    /// The first request of the call, before redirects. Cheap to clone.
    pub request: &'a Arc<RequestInfo>,
    /// The call's timings and result. Cheap to clone.
    pub timings: &'a Arc<Timings>,
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::trace::events::event::{Event, Subject};

    /// Notes that it was told, unless it panics.
    struct Note {
        name: &'static str,
        wants: Wants,
        notes: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Observer for Note {
        fn wants(&self) -> Wants {
            self.wants
        }

        fn observe(&self, _: &Record) {
            assert_ne!(self.name, "panics");
            self.notes.lock().unwrap().push(self.name);
        }
    }

    #[test]
    fn an_event_reaches_those_that_want_it_and_the_calls_own_observer_last() {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let observer = |name, wants| ObserverHandle::new(Note { name, wants, notes: notes.clone() });
        let hooks = Hooks::new(vec![
            observer("calls", Wants::CALLS),
            observer("panics", Wants::EVERYTHING),
            observer("connections", Wants::CONNECTIONS),
            observer("both", Wants::CALLS.union(Wants::CONNECTIONS)),
        ]);
        let own = observer("own", Wants::CALLS).and(observer("ends", Wants::ENDS)).and(observer("last", Wants::CALLS));
        let record = Record { subject: Subject::Call(1), at: crate::clock::now().into_std(), event: Event::FirstByte };
        hooks.tell(Some(&own), Wants::CALLS, &record);
        assert_eq!(*notes.lock().unwrap(), ["calls", "both", "own", "last"]);
        assert!(hooks.wants().intersects(Wants::CHUNKS) && !own.wants().intersects(Wants::CHUNKS));
        assert!(own.wants().intersects(Wants::ENDS));
        assert_eq!([hooks.next_call(), hooks.clone().next_call()], [1, 2]);
    }

    #[test]
    fn a_request_keeps_its_own_trace() {
        let headers = |names: &[&'static str]| -> HeaderMap {
            names
                .iter()
                .map(|name| (http::HeaderName::from_static(name), http::HeaderValue::from_static("1")))
                .collect()
        };
        let kept = |added: &[&'static str], has: &[&'static str]| without_known(headers(added), &headers(has));
        let added = ["traceparent", "tracestate", "baggage"];
        assert_eq!(kept(&added, &["accept"]), headers(&added));
        assert_eq!(kept(&added, &["traceparent"]), headers(&["baggage"]), "the state is that of another trace");
        assert_eq!(kept(&added, &["traceparent", "tracestate", "baggage"]), headers(&[]));
        assert_eq!(kept(&["b3", "baggage"], &["baggage"]), headers(&["b3"]));
    }
}
