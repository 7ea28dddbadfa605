//! The [`Observer`] trait, and the choice of the events that an observer receives.

use std::sync::Arc;

use http::HeaderMap;

use crate::trace::events::event::{Record, RequestInfo};
use crate::trace::timings::Timings;
use crate::trace::timings::requests::{EndedRequest, StartedRequest};

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
    /// Interim responses over HTTP/1.1: [`Event::Informational`](crate::trace::Event::Informational).
    pub const INTERIM: Self = Self(2);
    /// Pieces of response bodies: [`Event::BodyChunk`](crate::trace::Event::BodyChunk).
    pub const CHUNKS: Self = Self(4);
    /// The events of connections.
    pub const CONNECTIONS: Self = Self(8);
    /// The end of each call, with its timings: [`Observer::ended`].
    pub const ENDS: Self = Self(16);
    /// The events of the DNS resolver: [`Event::ConfigSkipped`](crate::trace::Event::ConfigSkipped).
    pub const RESOLVER: Self = Self(32);
    /// The start and the end of each request of a call, and the headers to add to it: [`Observer::request_started`],
    /// [`Observer::propagate`], [`Observer::request_ended`].
    pub const REQUESTS: Self = Self(64);
    /// The events of the client's settings: [`Event::TlsFilesReloaded`](crate::trace::Event::TlsFilesReloaded),
    /// [`Event::TlsFilesRefused`](crate::trace::Event::TlsFilesRefused) and
    /// [`Event::SettingIgnored`](crate::trace::Event::SettingIgnored).
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
    /// The call's number, as in [`Subject::Call`](crate::trace::Subject::Call).
    pub number: u64,
    /// The first request of the call, before redirects. Cheap to clone.
    pub request: &'a Arc<RequestInfo>,
    /// The call's timings and result. Cheap to clone.
    pub timings: &'a Arc<Timings>,
}
