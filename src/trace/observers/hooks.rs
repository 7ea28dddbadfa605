//! The observers of a client, and the delivery of events to those that want them.

use std::fmt;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;

use super::observer::{EndedCall, Observer, Wants};
use crate::trace::events::event::Record;
use crate::trace::timings::requests::{EndedRequest, StartedRequest};

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
