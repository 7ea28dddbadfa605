//! Calls as spans of the `tracing` crate.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use http::HeaderMap;
use tracing::field::Empty;
use tracing::{Span, Value, debug, info, info_span, warn};

use crate::redact::Query;
use crate::sync::lock;
use crate::trace::semconv::{method_name, original_method, protocol_version, server_address, span_name};
use crate::trace::{
    DialOutcome, EndedCall, EndedRequest, Event, Observer, Phase, Record, RequestInfo, StartedRequest, Subject, Wants,
};

/// A user's function that adds the headers of a span's trace.
type Propagate = Box<dyn Fn(&Span, &mut HeaderMap) + Send + Sync>;

/// The target of all spans and events, wherever in the crate they are made.
const TARGET: &str = "speeddial";
/// The failure of a call whose future was dropped.
const CANCELLED: &str = "cancelled";

#[derive(Clone)]
struct OpenCall {
    span: OpenSpan,
    request: Arc<RequestInfo>,
}

/// A span that has not ended, or the program's span around it if the subscriber does not take this one.
#[derive(Clone)]
struct OpenSpan {
    span: Span,
    is_own: bool,
}

impl OpenSpan {
    fn new(own: Span, around: impl FnOnce() -> Span) -> Self {
        match own.is_disabled() {
            true => Self { span: around(), is_own: false },
            false => Self { span: own, is_own: true },
        }
    }

    /// Records a value in the span, unless it is the program's.
    fn record(&self, field: &str, value: impl Value) {
        if self.is_own {
            self.span.record(field, value);
        }
    }
}

/// Makes each call of one client a span, each of its requests a span in it, and its steps events in the call's span.
///
/// The target of all spans and events is `speeddial`, so that a filter such as `speeddial=debug` chooses them. Names are those of the
/// [OpenTelemetry conventions](https://opentelemetry.io/docs/specs/semconv/http/http-spans/), version 1.42.0.
/// Each client needs an observer of its own, because calls of several clients have the same numbers.
///
/// The spans have the level info. The name of the call's span is `HTTP`; its parent is the span in which the call is sent, and it
/// ends with the call. The name of a request's span is `HTTP request`, and its `otel.kind` is `client`; there is one for the first
/// request and one for each redirect, resend, retry and hedge. Both end when the call's future is dropped, too. A request whose
/// place another one took has `speeddial.superseded`. A
/// [`UrlTemplate`](crate::trace::UrlTemplate) among a request's extensions becomes `url.template` and part of `otel.name`.
///
/// A call that fails, and is not cancelled by its caller, is an event of level warn, and so is a repeat that the budget of its origin does not allow, a word of
/// resolv.conf that is not understood, and a setting that has no effect. A request that is sent again is one of level info. All other events have the level debug: the
/// steps of the call as they happen; at its end each lookup, each address that was dialled, and each phase with its microseconds.
/// Queries of URLs are left out, because they may hold secrets.
///
/// A warning has the method and the origin of its request in itself, and that of a failed call the reason and
/// [`why`](crate::trace::Timings::why), for subscribers that take no spans of the level info. Where they take none, the events are in the
/// span in which the call is sent, and so are the headers of a [`propagator`](Self::propagator).
///
/// ```
/// let client = speeddial::Client::builder().observer(speeddial::interop::Tracing::new()).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Default)]
pub struct Tracing {
    calls: Mutex<HashMap<u64, OpenCall>>,
    requests: Mutex<HashMap<(u64, u32), OpenSpan>>,
    propagate: Option<Propagate>,
}

impl Tracing {
    /// Creates the observer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a function that adds headers to each request, so that the server's spans join the trace. None by default.
    ///
    /// The function gets the request's span. Headers that the request has already are kept, a `traceparent` among them. With
    /// the crates `tracing-opentelemetry` and `opentelemetry-http` it is:
    ///
    /// ```ignore
    /// Tracing::new().propagator(|span, headers| {
    ///     let context = span.context(); // of tracing_opentelemetry::OpenTelemetrySpanExt
    ///     opentelemetry::global::get_text_map_propagator(|propagator| {
    ///         propagator.inject_context(&context, &mut opentelemetry_http::HeaderInjector(headers));
    ///     });
    /// })
    /// ```
    pub fn propagator(mut self, propagate: impl Fn(&Span, &mut HeaderMap) + Send + Sync + 'static) -> Self {
        self.propagate = Some(Box::new(propagate));
        self
    }

    // Each step leaves a sound state behind, so a poisoned lock still guards one.
    fn calls(&self) -> MutexGuard<'_, HashMap<u64, OpenCall>> {
        lock(&self.calls)
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<(u64, u32), OpenSpan>> {
        lock(&self.requests)
    }
}

impl std::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracing").field("propagates", &self.propagate.is_some()).finish_non_exhaustive()
    }
}

/// Creates the span of a call.
fn call_span(request: &RequestInfo) -> Span {
    let RequestInfo { method, origin, .. } = request;
    info_span!(
        target: TARGET,
        "HTTP",
        otel.kind = "internal",
        otel.name = span_name(method, None),
        otel.status_code = Empty,
        http.request.method = method_name(method),
        http.request.method_original = original_method(method),
        server.address = %server_address(origin),
        server.port = origin.port(),
        url.full = request.url(Query::LeftOut),
        http.response.status_code = Empty,
        speeddial.cancelled = Empty,
        speeddial.unread = Empty,
        error.type = Empty,
    )
}

/// Creates the span of a request in that of its call.
fn request_span(parent: &Span, started: &StartedRequest<'_>) -> Span {
    let RequestInfo { method, origin, .. } = started.request;
    let template = started.url_template();
    let name = span_name(method, template.as_deref());
    info_span!(
        target: TARGET,
        parent: parent,
        "HTTP request",
        otel.kind = "client",
        otel.name = name,
        otel.status_code = Empty,
        http.request.method = method_name(method),
        http.request.method_original = original_method(method),
        http.request.resend_count = Some(started.number).filter(|number| *number > 0),
        server.address = %server_address(origin),
        server.port = origin.port(),
        url.scheme = %origin.scheme(),
        url.full = started.request.url(Query::LeftOut),
        url.template = template.as_deref(),
        http.response.status_code = Empty,
        network.protocol.version = Empty,
        network.peer.address = Empty,
        network.peer.port = Empty,
        speeddial.cancelled = Empty,
        speeddial.unread = Empty,
        error.type = Empty,
        speeddial.superseded = Empty,
    )
}

/// Records the `error.type` of a span, and that its request was dropped.
fn record_end(span: &OpenSpan, dropped: Option<&str>, error_type: Option<Cow<'static, str>>) {
    if let Some(dropped) = dropped {
        span.record(dropped, true);
    }
    if let Some(error_type) = error_type {
        span.record("error.type", &*error_type);
        span.record("otel.status_code", "ERROR");
    }
}

impl Observer for Tracing {
    fn wants(&self) -> Wants {
        Wants::CALLS
            .union(Wants::INTERIM)
            .union(Wants::REQUESTS)
            .union(Wants::ENDS)
            .union(Wants::RESOLVER)
            .union(Wants::SETTINGS)
    }

    fn observe(&self, record: &Record) {
        if let Event::ConfigSkipped { line, word } = &record.event {
            warn!(target: TARGET, line, %word, "resolv.conf: a word that is not understood is left out");
        }
        if let Event::TlsFilesRefused { reason } = &record.event {
            warn!(target: TARGET, %reason, "files of certificates or keys cannot be used, and the last ones stay in use");
        }
        if let Event::SettingIgnored { setting, beside } = &record.event {
            warn!(target: TARGET, setting, beside, "a setting has no effect beside another one");
        }
        let Subject::Call(number) = record.subject else { return };
        if let Event::CallStart(request) = &record.event {
            let span = OpenSpan::new(call_span(request), Span::current);
            self.calls().insert(number, OpenCall { span, request: request.clone() });
            return;
        }
        let open = self.calls().get(&number).cloned();
        let Some(OpenCall { span: OpenSpan { span, .. }, request }) = open else { return };
        match &record.event {
            Event::Queued { limit, position, .. } => debug!(target: TARGET, parent: &span, position, %limit, "queued"),
            Event::Leased { connection, requests, freed, .. } => {
                debug!(target: TARGET, parent: &span, connection, requests, freed, "leased");
            }
            Event::HeadersSent => debug!(target: TARGET, parent: &span, "headers sent"),
            Event::RequestSent { body } => debug!(target: TARGET, parent: &span, body, "request sent"),
            Event::Informational { status } => {
                debug!(target: TARGET, parent: &span, status = status.as_u16(), "interim response")
            }
            Event::FirstByte => debug!(target: TARGET, parent: &span, "first byte"),
            Event::Headers { status, .. } => debug!(target: TARGET, parent: &span, status = status.as_u16(), "headers"),
            Event::Repeated { cause } => {
                let verb = if cause.is_retry() { "retried" } else { "resent" };
                info!(target: TARGET, parent: &span, %cause, safe = cause.why_safe(), "{verb}");
            }
            Event::Hedged { after } => {
                debug!(target: TARGET, parent: &span, after_us = after.as_micros() as u64, "hedged")
            }
            Event::OverBudget { repeat } => {
                warn!(target: TARGET, parent: &span, method = %request.method, origin = %request.origin, %repeat, "over budget")
            }
            Event::HedgeEnd { outcome } => debug!(target: TARGET, parent: &span, %outcome, "hedge over"),
            Event::BackoffStart { wait } => {
                debug!(target: TARGET, parent: &span, wait_us = wait.as_micros() as u64, "backing off")
            }
            Event::BackoffEnd => debug!(target: TARGET, parent: &span, "backoff over"),
            Event::Redirected { status, to, .. } => {
                let origin = &to.origin;
                let path = to.target.path();
                debug!(target: TARGET, parent: &span, status = status.as_u16(), %origin, path, "redirected");
            }
            Event::BodyEnd { bytes } => debug!(target: TARGET, parent: &span, bytes, "body read"),
            Event::BodyDropped { bytes } => debug!(target: TARGET, parent: &span, bytes, "body dropped"),
            // That the caller does not want the answer any more is no failure.
            Event::CallFailed { phase, why, .. } if *why == CANCELLED => {
                debug!(target: TARGET, parent: &span, %phase, "cancelled")
            }
            _ => {}
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let open = self.calls().remove(&call.number);
        let Some(OpenCall { span: open, request }) = open else { return };
        let (span, timings) = (&open.span, call.timings);
        if let Some(reason) = timings.failure().filter(|reason| *reason != CANCELLED) {
            let RequestInfo { method, origin, .. } = &*request;
            let (phase, bytes, why) = (timings.phase(), timings.received_bytes(), timings.why());
            warn!(target: TARGET, parent: span, %method, %origin, %phase, reason, %why, bytes, "failed");
        }
        for lookup in timings.lookups() {
            let error = lookup.error.as_ref().map(tracing::field::display);
            let family = lookup.family;
            let source = lookup.source;
            debug!(target: TARGET, parent: span, %family, %source, addresses = lookup.addresses.len(), error, "lookup");
        }
        for attempt in timings.dialled() {
            let address = attempt.address;
            let elapsed_us = attempt.elapsed.as_micros() as u64;
            let error = match &attempt.outcome {
                DialOutcome::Failed(error) => Some(error.to_string()),
                DialOutcome::Cancelled => Some("cancelled".to_owned()),
                _ => None,
            };
            debug!(target: TARGET, parent: span, %address, elapsed_us, error, "attempt");
        }
        for phase in Phase::ALL {
            let elapsed_us = timings.spent(phase).as_micros() as u64;
            debug!(target: TARGET, parent: span, %phase, elapsed_us, "phase");
        }
        if let Some(status) = timings.status() {
            open.record("http.response.status_code", status.as_u16());
        }
        record_end(&open, call.dropped(), call.error_type());
    }

    fn request_started(&self, request: &StartedRequest<'_>) {
        let parent = self.calls().get(&request.call).map(|call| call.span.span.clone());
        let parent = parent.unwrap_or_else(Span::current);
        let span = OpenSpan::new(request_span(&parent, request), || parent.clone());
        self.requests().insert((request.call, request.number), span);
    }

    fn propagate(&self, request: &StartedRequest<'_>, _: &HeaderMap) -> HeaderMap {
        let mut added = HeaderMap::new();
        let span = self.requests().get(&(request.call, request.number)).cloned();
        if let (Some(propagate), Some(span)) = (&self.propagate, span) {
            propagate(&span.span, &mut added);
        }
        added
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        let span = self.requests().remove(&(request.request.call, request.request.number));
        let Some(span) = span else { return };
        let timings = request.timings;
        if let Some(status) = timings.status() {
            span.record("http.response.status_code", status.as_u16());
        }
        if let Some(version) = timings.version() {
            span.record("network.protocol.version", protocol_version(version));
        }
        if let Some(remote) = timings.remote_addr() {
            span.record("network.peer.address", remote.ip().to_string());
            span.record("network.peer.port", remote.port());
        }
        record_end(&span, request.dropped(), request.error_type());
    }
}
