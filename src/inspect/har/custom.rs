//! The fields of an entry that only this crate has. Their names begin with an underscore, as the format asks.

use serde_json::{Value, json};

use super::entry::HarEntry;
use crate::inspect::json::{self, TimeForm, array, millis};
use crate::trace::{DnsLookup, Hop, HopEnd, RequestEnd, ServerTiming, Source};

/// Adds the fields to those of an entry.
pub(super) fn add(entry: &HarEntry, fields: &mut Value) {
    let timings = &entry.timings;
    let backoff = entry.backoff;
    let (server, earlier) = (timings.server_timing(), timings.hops());
    let connection = timings.connection();
    fields["_remote"] = json!(timings.remote_addr());
    fields["_connectionId"] = json!(connection.map(|connection| connection.to_string()));
    fields["_reused"] = json!(connection.map(|_| timings.reused()));
    fields["_tls"] = json!(timings.tls_facts());
    fields["_backoff"] = json!((!backoff.is_zero()).then(|| millis(backoff)));
    fields["_queued"] = json!(timings.queued_by().map(|limit| limit.as_str()));
    fields["_dns"] = json!(timings.used_lookup().map(lookup));
    fields["_server_timing"] = json!((!server.is_empty()).then(|| array(server, part)));
    fields["_hedged"] = json!(timings.hedges().last().map(|hedge| hedge.outcome.as_str()));
    fields["_end"] = json!(entry.end.map(end_name));
    fields["_failure"] = json!(entry.failure);
    if entry.is_last() {
        let why = timings.why();
        let reasons = array(why.reasons(), |reason| json::reason(reason, TimeForm::Millis));
        fields["_why"] = json!({ "text": why.to_string(), "reasons": reasons });
    }
    if entry.end.is_none() && !earlier.is_empty() {
        fields["_earlier"] = array(earlier, hop);
    }
}

/// Returns a part of the server's own account of its time.
fn part(part: &ServerTiming) -> Value {
    json!({ "name": part.name, "duration": part.duration.map(millis), "description": part.description })
}

fn lookup(lookup: &DnsLookup) -> Value {
    let has_ttl = lookup.source != Source::Literal && lookup.error.is_none();
    json!({
        "source": lookup.source.as_str(),
        "ttl": has_ttl.then_some(lookup.ttl.as_secs()),
        "addresses": &*lookup.addresses,
        "error": lookup.error.as_ref().map(ToString::to_string),
    })
}

fn end_name(end: RequestEnd) -> String {
    match end {
        RequestEnd::Answered => "answered".to_owned(),
        RequestEnd::Unread => "unread".to_owned(),
        RequestEnd::Redirected(_) => "redirected".to_owned(),
        RequestEnd::Repeated(cause) => format!("repeated ({cause})"),
        RequestEnd::Superseded => "superseded".to_owned(),
        RequestEnd::Failed => "failed".to_owned(),
    }
}

/// Returns an earlier request of a call.
fn hop(hop: &Hop) -> Value {
    let end = match hop.end {
        HopEnd::Redirected(status) => format!("redirected ({})", status.as_u16()),
        HopEnd::Repeated(cause) => format!("repeated ({cause})"),
        HopEnd::Hedged => "hedged".to_owned(),
    };
    json!({
        "end": end,
        "started": millis(hop.started),
        "time": millis(hop.elapsed),
        "_remote": hop.remote,
        "_reused": hop.reused,
    })
}
