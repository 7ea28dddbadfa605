//! Calls and their requests as spans of OpenTelemetry.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::propagation::{Injector, TextMapPropagator};
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use speeddial::http::{HeaderMap, HeaderName, HeaderValue};
use speeddial::redact::Query;
use speeddial::trace::semconv::{method_name, original_method, protocol_version, server_address, span_name};
use speeddial::trace::{
    EndedCall, EndedRequest, Event, Observer, Phase, Record, RequestInfo, StartedRequest, Subject, Wants,
};

use super::lock;

/// Makes each call of one client a span of OpenTelemetry, and each of its requests a span in it.
///
/// Names and attributes are those of the [conventions](https://opentelemetry.io/docs/specs/semconv/http/http-spans/) for HTTP
/// clients, version 1.42.0. Each client needs an observer of its own, because calls of several clients have the same numbers.
///
/// | span | kind | attributes |
/// |---|---|---|
/// | the call, from its start to the end of the response's body; its parent is the context in which it is sent | internal | `http.request.method`, `url.full`, `server.address`, `server.port`, `http.response.status_code`, `error.type` |
/// | a request: the first one, and one for each redirect, resend, retry and hedge | client | those, and `url.scheme`, `url.template`, `http.request.resend_count`, `network.protocol.version`, `network.peer.address`, `network.peer.port` |
///
/// A method that the conventions do not know is `_OTHER`, with the method itself in `http.request.method_original`; the environment
/// variable `OTEL_INSTRUMENTATION_HTTP_KNOWN_METHODS` replaces their list, separated by commas. `url.full` has
/// no credentials and no query, which may hold secrets. A [`UrlTemplate`](speeddial::trace::UrlTemplate) among the request's extensions becomes `url.template`
/// and part of the span's name. The phases of a request are events of its span, or spans in it ([`phases`](Self::phases)).
///
/// Each request gets the headers of the propagator, so that the server's spans join the trace: the global propagator, or the one
/// that is [given](Self::propagator). A `traceparent` that the request has already is kept, and so is every other header. Baggage
/// goes to every server, also to that of a redirect: put no secrets into it, or give a propagator without it.
///
/// Spans end when the call's future is dropped, too. That is not an error by the conventions: they have no `error.type` then, but
/// `speeddial.cancelled`, or `speeddial.unread` if the response was dropped. The span of a request whose place another one took (the other one of a hedged request, or that of a layer) has
/// `speeddial.superseded`.
///
/// ```
/// use speeddial_opentelemetry::Spans;
///
/// let client = speeddial::Client::builder().observer(Spans::new()).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct Spans {
    tracer: BoxedTracer,
    propagator: Option<Box<dyn TextMapPropagator + Send + Sync>>,
    phases: PhaseDetail,
    calls: Mutex<HashMap<u64, OpenSpan>>,
    requests: Mutex<HashMap<(u64, u32), OpenSpan>>,
}

/// The detail in which the phases of a request are traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PhaseDetail {
    /// Phases are left out.
    None,
    /// Each phase is an event at its start, with the attribute `speeddial.phase.duration` in seconds.
    #[default]
    Events,
    /// Each phase is a span in that of the request.
    Spans,
}

/// A span that has not ended.
struct OpenSpan {
    context: Context,
    started: SystemTime,
    /// The start by the clock that measures durations.
    started_at: Instant,
}

impl Spans {
    /// Creates the observer, with a tracer of the global provider that is installed now.
    pub fn new() -> Self {
        let scope = InstrumentationScope::builder("speeddial")
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url("https://opentelemetry.io/schemas/1.42.0")
            .build();
        Self::with_boxed(global::tracer_with_scope(scope))
    }

    /// Creates the observer, with a tracer of its own.
    pub fn with_tracer<T>(tracer: T) -> Self
    where
        T: Tracer + Send + Sync + 'static,
        T::Span: Span + Send + Sync + 'static,
    {
        Self::with_boxed(BoxedTracer::new(Box::new(tracer)))
    }

    fn with_boxed(tracer: BoxedTracer) -> Self {
        Self {
            tracer,
            propagator: None,
            phases: PhaseDetail::default(),
            calls: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// Sets the propagator that adds headers to requests, in place of the global one.
    pub fn propagator(mut self, propagator: impl TextMapPropagator + Send + Sync + 'static) -> Self {
        self.propagator = Some(Box::new(propagator));
        self
    }

    /// Sets the detail in which the phases of requests are traced. [`PhaseDetail::Events`] by default.
    pub fn phases(mut self, detail: PhaseDetail) -> Self {
        self.phases = detail;
        self
    }

    /// Starts a span with the attributes that a call and a request have in common.
    fn start(
        &self,
        request: &RequestInfo,
        kind: SpanKind,
        name: String,
        parent: &Context,
        (started, started_at): (SystemTime, Instant),
    ) -> OpenSpan {
        let mut attributes = vec![
            KeyValue::new("http.request.method", method_name(&request.method)),
            KeyValue::new("url.full", request.url(Query::LeftOut)),
            KeyValue::new("server.address", server_address(&request.origin)),
            KeyValue::new("server.port", i64::from(request.origin.port())),
        ];
        let original = original_method(&request.method);
        attributes.extend(original.map(|method| KeyValue::new("http.request.method_original", method.to_owned())));
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_start_time(started).with_attributes(attributes);
        let span = builder.start_with_context(&self.tracer, parent);
        OpenSpan { context: parent.with_span(span), started, started_at }
    }

    /// Adds the phases of a request to its span.
    fn add_phases(&self, open: &OpenSpan, request: &EndedRequest<'_>) {
        let mut at = open.started;
        // The backoff before a request is no part of it.
        for phase in Phase::ALL.into_iter().filter(|phase| *phase != Phase::Backoff) {
            let spent = request.spent(phase);
            if spent.is_zero() {
                continue;
            }
            match self.phases {
                PhaseDetail::None => return,
                PhaseDetail::Events => {
                    let duration = KeyValue::new("speeddial.phase.duration", spent.as_secs_f64());
                    open.context.span().add_event_with_timestamp(phase.as_str(), at, vec![duration]);
                }
                PhaseDetail::Spans => {
                    let builder = SpanBuilder::from_name(phase.as_str()).with_start_time(at);
                    let mut span = builder.start_with_context(&self.tracer, &open.context);
                    span.end_with_timestamp(at + spent);
                }
            }
            at += spent;
        }
    }
}

impl OpenSpan {
    /// Ends the span, as failed if there is an `error.type`.
    fn end(self, elapsed: Duration, error_type: Option<Cow<'static, str>>) {
        let span = self.context.span();
        if let Some(error_type) = error_type {
            span.set_attribute(KeyValue::new("error.type", error_type.clone()));
            // A status says enough by itself.
            let is_status = error_type.starts_with(|first: char| first.is_ascii_digit());
            span.set_status(Status::error(if is_status { Cow::Borrowed("") } else { error_type }));
        }
        span.end_with_timestamp(self.started + elapsed);
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spans").field("phases", &self.phases).finish_non_exhaustive()
    }
}

impl Observer for Spans {
    fn wants(&self) -> Wants {
        Wants::CALLS.union(Wants::REQUESTS).union(Wants::ENDS)
    }

    fn observe(&self, record: &Record) {
        if let (Subject::Call(call), Event::CallStart(request)) = (record.subject, &record.event) {
            let name = span_name(&request.method, None);
            let times = (SystemTime::now(), record.at);
            let span = self.start(request, SpanKind::Internal, name, &Context::current(), times);
            lock(&self.calls).insert(call, span);
        }
    }

    fn request_started(&self, request: &StartedRequest<'_>) {
        let call = lock(&self.calls).get(&request.call).map(|call| {
            // Not the system's clock, which may have been set since the call began.
            let after = request.started.saturating_duration_since(call.started_at);
            (call.context.clone(), call.started + after)
        });
        let (parent, started) = call.unwrap_or_else(|| (Context::current(), SystemTime::now()));
        let template = request.url_template();
        let name = span_name(&request.request.method, template.as_deref());
        let open = self.start(request.request, SpanKind::Client, name, &parent, (started, request.started));
        let span = open.context.span();
        span.set_attribute(KeyValue::new("url.scheme", request.request.origin.scheme().to_string()));
        if let Some(template) = template {
            span.set_attribute(KeyValue::new("url.template", template));
        }
        if request.number > 0 {
            span.set_attribute(KeyValue::new("http.request.resend_count", i64::from(request.number)));
        }
        lock(&self.requests).insert((request.call, request.number), open);
    }

    fn propagate(&self, request: &StartedRequest<'_>, _: &HeaderMap) -> HeaderMap {
        let open = lock(&self.requests).get(&(request.call, request.number)).map(|open| open.context.clone());
        let Some(context) = open else { return HeaderMap::new() };
        let mut added = AddedHeaders(HeaderMap::new());
        match &self.propagator {
            Some(propagator) => propagator.inject_context(&context, &mut added),
            None => global::get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut added)),
        }
        added.0
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        let open = lock(&self.requests).remove(&(request.request.call, request.request.number));
        let Some(open) = open else { return };
        let timings = request.timings;
        self.add_phases(&open, request);
        let span = open.context.span();
        if let Some(status) = timings.status() {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        }
        if let Some(version) = timings.version() {
            span.set_attribute(KeyValue::new("network.protocol.version", protocol_version(version)));
        }
        if let Some(remote) = timings.remote_addr() {
            span.set_attribute(KeyValue::new("network.peer.address", remote.ip().to_string()));
            span.set_attribute(KeyValue::new("network.peer.port", i64::from(remote.port())));
        }
        if let Some(dropped) = request.dropped() {
            span.set_attribute(KeyValue::new(dropped, true));
        }
        open.end(request.elapsed(), request.error_type());
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let Some(open) = lock(&self.calls).remove(&call.number) else { return };
        if let Some(status) = call.timings.status() {
            let status = KeyValue::new("http.response.status_code", i64::from(status.as_u16()));
            open.context.span().set_attribute(status);
        }
        if let Some(dropped) = call.dropped() {
            open.context.span().set_attribute(KeyValue::new(dropped, true));
        }
        open.end(call.timings.total(), call.error_type());
    }
}

/// The headers that a propagator adds.
struct AddedHeaders(HeaderMap);

impl Injector for AddedHeaders {
    fn set(&mut self, key: &str, value: String) {
        // An empty `tracestate` says nothing.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value))
            && !value.is_empty()
        {
            self.0.insert(name, value);
        }
    }
}
