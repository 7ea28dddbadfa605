//! Calls as spans of `tracing`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use tracing::field::Empty;
use tracing::{Span, debug, info_span, warn};

use super::conventions::{error_type, known, protocol};
use crate::sync::lock;
use crate::trace::{Asked, EndedCall, Event, Observer, Outcome, Phase, Record, Subject, Wants};

/// A span a call of one client (calls of several are not told apart), with the names of the [OpenTelemetry conventions](https://opentelemetry.io/docs/specs/semconv/http/http-spans/),
/// and what happens in it as events.
///
/// The span is called `HTTP`, at level info, below the span in which the request is sent; it is over when the call is. Events are at
/// level debug: what happens to the call as it happens; and at its end each lookup, each address that was dialled, and each
/// phase, with its microseconds. Queries of URLs are left out, because there may be secrets in them. A word of resolv.conf
/// that cannot be understood is told at level warn.
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
    /// Spans for the calls of a client that is given this as its observer.
    pub fn new() -> Self {
        Self::default()
    }

    // Its steps leave nothing half done.
    fn spans(&self) -> MutexGuard<'_, HashMap<u64, Span>> {
        lock(&self.spans)
    }
}

fn span(Asked { method, origin, target }: &Asked) -> Span {
    let scheme = match origin.scheme() {
        crate::origin::Scheme::Http => "http",
        crate::origin::Scheme::Https => "https",
    };
    info_span!(
        "HTTP",
        otel.kind = "client",
        otel.name = known(method),
        http.request.method = known(method),
        server.address = %origin.host(),
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
        Wants::CALLS.and(Wants::INTERIM).and(Wants::ENDS).and(Wants::RESOLVER)
    }

    fn observe(&self, record: &Record) {
        if let Event::ConfigSkipped { line, word } = &record.event {
            warn!(line, %word, "resolv.conf: a word that cannot be understood is left out");
        }
        let Subject::Call(number) = record.subject else { return };
        if let Event::CallStart(asked) = &record.event {
            let span = span(asked);
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
            Event::Retried { cause } => debug!(parent: &span, %cause, safe = cause.why_safe(), "retried"),
            Event::Redirected { status, to } => {
                let (origin, path) = (&to.origin, to.target.path());
                debug!(parent: &span, status = status.as_u16(), %origin, path, "redirected");
            }
            Event::BodyEnd { bytes } => debug!(parent: &span, bytes, "body read"),
            Event::CallFailed { phase, why } => debug!(parent: &span, %phase, why, "failed"),
            _ => {}
        }
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let span = self.spans().remove(&call.number);
        let (Some(span), timings) = (span, call.timings) else { return };
        for lookup in timings.lookups() {
            let error = lookup.error.as_ref().map(tracing::field::display);
            let (family, source) = (lookup.family, lookup.source);
            debug!(parent: &span, %family, %source, addresses = lookup.addresses.len(), error, "lookup");
        }
        for attempt in timings.attempts() {
            let (address, elapsed_us) = (attempt.address, attempt.elapsed.as_micros() as u64);
            let error = match &attempt.outcome {
                Outcome::Failed(error) => Some(error.to_string()),
                Outcome::Cancelled => Some("cancelled".to_owned()),
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
            span.record("network.protocol.version", protocol(version));
        }
        if let Some(remote) = timings.remote_addr() {
            span.record("network.peer.address", remote.ip().to_string());
            span.record("network.peer.port", remote.port());
        }
        let again = timings.hops().len();
        if again > 0 {
            span.record("http.request.resend_count", again);
        }
        if let Some(error) = error_type(timings) {
            span.record("error.type", &*error);
        }
    }
}
