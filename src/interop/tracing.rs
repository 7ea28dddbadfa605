//! Calls as spans of the `tracing` crate.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use tracing::field::Empty;
use tracing::{Span, debug, info_span, warn};

use super::conventions::{
    error_type, method_name, original_method, protocol_version, scheme_name, server_address, span_name,
};
use crate::sync::lock;
use crate::trace::{AttemptOutcome, EndedCall, Event, Observer, Phase, Record, RequestInfo, Subject, Wants};

/// Makes each call of one client a span, and its steps events in the span.
///
/// Names are those of the [OpenTelemetry conventions](https://opentelemetry.io/docs/specs/semconv/http/http-spans/). Each client
/// needs an observer of its own, because calls of several clients have the same numbers.
///
/// The span's name is `HTTP` and its level is info. Its parent is the span in which the request is sent, and it ends with the
/// call. Events have the level debug: the steps of the call as they happen; at its end each lookup, each address that was
/// dialled, and each phase with its microseconds. Queries of URLs are left out, because they may hold secrets. A word of
/// resolv.conf that is not understood is an event of level warn.
///
/// ```
/// let client = speeddial::Client::builder().observer(speeddial::interop::Tracing::new()).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Tracing {
    spans: Mutex<HashMap<u64, Span>>,
}

impl Tracing {
    /// Creates the observer.
    pub fn new() -> Self {
        Self::default()
    }

    // Each step leaves a sound state behind, so a poisoned lock still guards one.
    fn spans(&self) -> MutexGuard<'_, HashMap<u64, Span>> {
        lock(&self.spans)
    }
}

/// Creates the span of a call.
fn span(RequestInfo { method, origin, target, .. }: &RequestInfo) -> Span {
    let scheme = scheme_name(origin.scheme());
    info_span!(
        "HTTP",
        otel.kind = "client",
        otel.name = span_name(method),
        http.request.method = method_name(method),
        http.request.method_original = original_method(method),
        server.address = %server_address(origin),
        server.port = origin.port(),
        url.full = format!("{scheme}://{origin}{}", target.path()),
        http.response.status_code = Empty,
        http.request.resend_count = Empty,
        network.protocol.version = Empty,
        network.peer.address = Empty,
        network.peer.port = Empty,
        error.type = Empty,
    )
}

impl Observer for Tracing {
    fn wants(&self) -> Wants {
        Wants::CALLS.union(Wants::INTERIM).union(Wants::ENDS).union(Wants::RESOLVER)
    }

    fn observe(&self, record: &Record) {
        if let Event::ConfigSkipped { line, word } = &record.event {
            warn!(line, %word, "resolv.conf: a word that is not understood is left out");
        }
        let Subject::Call(number) = record.subject else { return };
        if let Event::CallStart(request) = &record.event {
            let span = span(request);
            self.spans().insert(number, span);
            return;
        }
        let span = self.spans().get(&number).cloned();
        let Some(span) = span else { return };
        match &record.event {
            Event::Queued { limit, position } => debug!(parent: &span, position, %limit, "queued"),
            Event::Leased { connection, requests, freed, .. } => {
                debug!(parent: &span, connection, requests, freed, "leased");
            }
            Event::HeadersSent => debug!(parent: &span, "headers sent"),
            Event::RequestSent { body } => debug!(parent: &span, body, "request sent"),
            Event::Informational { status } => debug!(parent: &span, status = status.as_u16(), "interim response"),
            Event::FirstByte => debug!(parent: &span, "first byte"),
            Event::Headers { status, .. } => debug!(parent: &span, status = status.as_u16(), "headers"),
            Event::Repeated { cause } => {
                let verb = if cause.is_retry() { "retried" } else { "resent" };
                debug!(parent: &span, %cause, safe = cause.why_safe(), "{verb}");
            }
            Event::Hedged { after } => debug!(parent: &span, after_us = after.as_micros() as u64, "hedged"),
            Event::HedgeEnd { outcome } => debug!(parent: &span, %outcome, "hedge over"),
            Event::BackoffStart { wait } => debug!(parent: &span, wait_us = wait.as_micros() as u64, "backing off"),
            Event::BackoffEnd => debug!(parent: &span, "backoff over"),
            Event::Redirected { status, to } => {
                let origin = &to.origin;
                let path = to.target.path();
                debug!(parent: &span, status = status.as_u16(), %origin, path, "redirected");
            }
            Event::BodyEnd { bytes } => debug!(parent: &span, bytes, "body read"),
            Event::CallFailed { phase, why } => debug!(parent: &span, %phase, why, "failed"),
            _ => {}
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let span = self.spans().remove(&call.number);
        let Some(span) = span else { return };
        let timings = call.timings;
        for lookup in timings.lookups() {
            let error = lookup.error.as_ref().map(tracing::field::display);
            let family = lookup.family;
            let source = lookup.source;
            debug!(parent: &span, %family, %source, addresses = lookup.addresses.len(), error, "lookup");
        }
        for attempt in timings.attempts() {
            let address = attempt.address;
            let elapsed_us = attempt.elapsed.as_micros() as u64;
            let error = match &attempt.outcome {
                AttemptOutcome::Failed(error) => Some(error.to_string()),
                AttemptOutcome::Cancelled => Some("cancelled".to_owned()),
                _ => None,
            };
            debug!(parent: &span, %address, elapsed_us, error, "attempt");
        }
        for phase in Phase::ALL {
            let elapsed_us = timings.spent(phase).as_micros() as u64;
            debug!(parent: &span, %phase, elapsed_us, "phase");
        }
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
        let resends = timings.hops().len();
        if resends > 0 {
            span.record("http.request.resend_count", resends);
        }
        if let Some(error) = error_type(timings) {
            span.record("error.type", &*error);
        }
    }
}
