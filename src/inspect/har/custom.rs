//! The fields of an entry that only this crate has. Their names begin with an underscore, as the format asks.

use super::super::json::JsonWriter;
use super::super::json_members::{TimeForm, write_part, write_reason, write_tls};
use super::entry::HarEntry;
use crate::trace::Phase;
use crate::trace::RequestEnd;
use crate::trace::Why;
use crate::trace::{DnsLookup, Source};
use crate::trace::{Hop, HopEnd};

/// Writes the fields about the connection.
pub(super) fn write_connection(json: &mut JsonWriter, entry: &HarEntry) {
    let timings = &entry.timings;
    if let Some(remote) = timings.remote_addr() {
        json.key("_remote").display(remote);
    }
    if let Some(connection) = timings.connection() {
        json.key("_connectionId").display(connection);
        json.key("_reused").boolean(timings.reused());
    }
    if let Some(facts) = timings.tls_facts() {
        json.key("_tls").object(|json| write_tls(json, facts));
    }
}

/// Writes the fields about the way of the request, and about its time.
pub(super) fn write_more(json: &mut JsonWriter, entry: &HarEntry) {
    let timings = &entry.timings;
    let backoff = timings.spent_last(Phase::Backoff);
    if !backoff.is_zero() {
        json.key("_backoff").millis(backoff);
    }
    if let Some(limit) = timings.queued_by() {
        json.key("_queued").string(limit.as_str());
    }
    if let Some(lookup) = timings.used_lookup() {
        json.key("_dns").object(|json| write_lookup(json, lookup));
    }
    if !timings.server_timing().is_empty() {
        json.key("_server_timing")
            .array(|json| timings.server_timing().iter().for_each(|part| write_part(json, part, TimeForm::Millis)));
    }
    if let Some(hedge) = timings.hedges().last() {
        json.key("_hedged").string(hedge.outcome.as_str());
    }
    if let Some(end) = entry.end {
        json.key("_end").string(&end_name(end));
    }
    if let Some(why) = entry.failure {
        json.key("_failure").string(why);
    }
    if entry.is_last() {
        json.key("_why").object(|json| write_why(json, &timings.why()));
    }
    if entry.end.is_none() && !timings.hops().is_empty() {
        json.key("_earlier").array(|json| timings.hops().iter().for_each(|hop| write_hop(json, hop)));
    }
}

fn write_why(json: &mut JsonWriter, why: &Why) {
    json.key("text").display(why);
    json.key("reasons")
        .array(|json| why.reasons().iter().for_each(|reason| write_reason(json, reason, TimeForm::Millis)));
}

fn write_lookup(json: &mut JsonWriter, lookup: &DnsLookup) {
    json.key("source").string(lookup.source.as_str());
    if lookup.source != Source::Literal && lookup.error.is_none() {
        json.key("ttl").number(lookup.ttl.as_secs());
    }
    json.key("addresses").array(|json| lookup.addresses.iter().for_each(|ip| json.display(ip)));
    if let Some(error) = &lookup.error {
        json.key("error").display(error);
    }
}

fn end_name(end: RequestEnd) -> String {
    match end {
        RequestEnd::Answered => "answered".to_owned(),
        RequestEnd::Redirected(_) => "redirected".to_owned(),
        RequestEnd::Repeated(cause) => format!("repeated ({cause})"),
        RequestEnd::Superseded => "superseded".to_owned(),
        RequestEnd::Failed => "failed".to_owned(),
    }
}

/// Writes an earlier request of a call.
fn write_hop(json: &mut JsonWriter, hop: &Hop) {
    let end = match hop.end {
        HopEnd::Redirected(status) => format!("redirected ({})", status.as_u16()),
        HopEnd::Repeated(cause) => format!("repeated ({cause})"),
        HopEnd::Secured => "https by its records".to_owned(),
        HopEnd::Hedged => "hedged".to_owned(),
    };
    json.object(|json| {
        json.key("end").string(&end);
        json.key("started").millis(hop.started);
        json.key("time").millis(hop.elapsed);
        if let Some(remote) = hop.remote {
            json.key("_remote").display(remote);
        }
        json.key("_reused").boolean(hop.reused);
    });
}
