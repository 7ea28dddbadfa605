//! A request as a JSON object.

use std::time::Duration;

use serde_json::{Value, json};
use speeddial::dns::Source;
use speeddial::trace::{DialOutcome, Phase, Timings};
use speeddial::{Error, ErrorKind};

use crate::exchange::Told;

pub(crate) fn object(told: &Told) -> Value {
    let response = told.outcome.as_ref().ok();
    let mut object = json!({
        "url": told.url,
        "status": response.map(|(status, ..)| status.as_u16()),
        "version": response.map(|(_, version, _)| format!("{version:?}")),
        "bytes": response.map(|(.., bytes)| bytes),
        "error": told.outcome.as_ref().err().map(error_to_json),
    });
    if let (Value::Object(object), Value::Object(timings)) = (&mut object, timings_to_json(told.timings.as_ref())) {
        object.extend(timings);
    }
    object
}

/// Returns the timings as a JSON object. Without timings, as for a call that never began, every figure is null.
fn timings_to_json(timings: Option<&Timings>) -> Value {
    let us = |time: Duration| time.as_nanos() as f64 / 1e3;
    let attempt = |attempt: &speeddial::trace::DialledAddress| {
        let error = match &attempt.outcome {
            DialOutcome::Failed(error) => Some(error.to_string()),
            DialOutcome::Cancelled => Some("cancelled".to_owned()),
            DialOutcome::Pending => Some("not finished".to_owned()),
            _ => None,
        };
        json!({ "addr": attempt.address.to_string(), "us": us(attempt.elapsed), "error": error })
    };
    let mut object = json!({
        "reused": timings.map(Timings::reused),
        "remote_addr": timings.and_then(Timings::remote_addr).map(|address| address.to_string()),
        "dns": timings.map(dns_to_json),
        "dialled": timings.map(|timings| timings.dialled().iter().map(attempt).collect::<Vec<_>>()),
        "total_us": timings.map(|timings| us(timings.total())),
        "why": timings.map(|timings| timings.why().to_string()),
        "causes": timings.map(causes),
    });
    for phase in Phase::ALL {
        object[format!("{phase}_us")] = timings.map(|timings| us(timings.spent(phase))).into();
    }
    object
}

/// Returns the names of the causes of the call's time, the one that took most of it first.
fn causes(timings: &Timings) -> Vec<&'static str> {
    timings.why().reasons().iter().map(|reason| reason.cause.as_str()).collect()
}

/// Returns the DNS answers of both families together; null if nothing was looked up.
fn dns_to_json(timings: &Timings) -> Value {
    let Some(source) = timings.dns_source() else { return Value::Null };
    let answered = || timings.lookups().iter().filter(|lookup| lookup.error.is_none());
    let addrs: Vec<_> = answered().flat_map(|lookup| lookup.addresses.iter()).map(ToString::to_string).collect();
    let ttl = answered().map(|lookup| lookup.ttl).filter(|_| source != Source::Literal).min();
    json!({ "source": source.as_str(), "ttl_s": ttl.map(|ttl| ttl.as_secs_f64()), "addrs": addrs })
}

fn error_to_json(error: &Error) -> Value {
    let phase = match error.kind() {
        ErrorKind::Timeout(phase) => Some(phase),
        _ => error.timings().map(Timings::phase),
    };
    json!({ "kind": error.kind().as_str(), "phase": phase.map(Phase::as_str), "message": format!("{error:#}") })
}
