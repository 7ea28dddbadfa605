//! The text of a HAR document, field by field.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{CONTENT_TYPE, LOCATION};

use super::super::event::TlsFacts;
use super::super::hops::{Hop, HopEnd};
use super::super::json::JsonWriter;
use super::super::lookup::{DnsLookup, Source};
use super::super::phase::Phase;
use super::super::requests::RequestEnd;
use super::super::server_timing::ServerTiming;
use super::date::iso_date;
use super::entry::HarEntry;
use super::kept::KeptCall;
use super::phases::HarPhases;
use super::secrets::Shown;
use crate::clock::{self, Instant};

/// A request with what the document around it knows.
struct Placed<'a> {
    entry: &'a HarEntry,
    /// The number of the call's page, from 1.
    page: usize,
    /// The URL of the request after this one, if a redirect led there.
    next: Option<String>,
}

/// Both clocks at one moment, by which a time of the program's clock becomes a time of day.
#[derive(Clone, Copy)]
struct Clocks {
    now: Instant,
    wall: SystemTime,
}

impl Clocks {
    fn date(self, at: Instant) -> String {
        let ago = self.now.saturating_duration_since(at);
        iso_date(self.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))
    }
}

/// Writes a document. Its pages and entries are ordered by the times at which they began.
pub(super) fn document(mut calls: Vec<KeptCall>, shown: Shown) -> String {
    let clocks = Clocks { now: clock::now(), wall: clock::wall() };
    calls.iter_mut().for_each(|call| call.entries.sort_by_key(HarEntry::started));
    calls.sort_by_key(|call| call.entries.first().map(HarEntry::started));
    let mut entries: Vec<_> = (1..).zip(&calls).flat_map(|(page, call)| placed(page, call)).collect();
    entries.sort_by_key(|placed| placed.entry.started());
    let mut json = JsonWriter::new();
    json.object(|json| {
        json.key("log").object(|json| {
            json.key("version").string("1.2");
            json.key("creator").object(|json| {
                json.key("name").string(env!("CARGO_PKG_NAME"));
                json.key("version").string(env!("CARGO_PKG_VERSION"));
            });
            json.key("pages").array(|json| {
                (1..).zip(&calls).for_each(|(number, call)| write_page(json, number, call, shown, clocks));
            });
            json.key("entries").array(|json| {
                entries.iter().for_each(|placed| write_entry(json, placed, shown, clocks));
            });
        });
    });
    json.finish()
}

/// Returns the requests of a call, each with the URL to which it was redirected.
fn placed(page: usize, call: &KeptCall) -> impl Iterator<Item = Placed<'_>> {
    let next_of = |place: usize| {
        let is_redirected = matches!(call.entries[place].end, Some(RequestEnd::Redirected(_)));
        call.entries.get(place + 1).filter(|_| is_redirected).map(|next| next.place.url())
    };
    call.entries.iter().enumerate().map(move |(place, entry)| Placed { entry, page, next: next_of(place) })
}

/// Writes the page of a call.
fn write_page(json: &mut JsonWriter, number: usize, call: &KeptCall, shown: Shown, clocks: Clocks) {
    let Some(first) = call.entries.first() else { return };
    let ends = call.entries.iter().map(|entry| entry.timings.total());
    json.object(|json| {
        json.key("startedDateTime").string(&clocks.date(first.timings.start()));
        json.key("id").string(&page_id(number));
        json.key("title").display(format_args!("{} {}", first.method, shown.url(&first.place.url())));
        json.key("pageTimings").object(|json| {
            json.key("onContentLoad").number(-1);
            json.key("onLoad").millis(ends.max().unwrap_or_default());
        });
    });
}

fn page_id(number: usize) -> String {
    format!("call_{number}")
}

fn write_entry(json: &mut JsonWriter, placed: &Placed<'_>, shown: Shown, clocks: Clocks) {
    let entry = placed.entry;
    json.object(|json| {
        json.key("pageref").string(&page_id(placed.page));
        json.key("startedDateTime").string(&clocks.date(entry.started()));
        json.key("time").millis(entry.phases.total());
        json.key("request").object(|json| write_request(json, entry, shown));
        json.key("response").object(|json| write_response(json, placed, shown));
        json.key("cache").object(|_| {});
        json.key("timings").object(|json| write_phases(json, entry.phases));
        write_connection(json, entry);
        write_more(json, entry);
    });
}

fn write_request(json: &mut JsonWriter, entry: &HarEntry, shown: Shown) {
    let url = shown.url(&entry.place.url());
    json.key("method").string(entry.method.as_str());
    json.key("url").string(&url);
    json.key("httpVersion").string(&version(entry));
    json.key("cookies").array(|_| {});
    json.key("headers").array(|json| write_headers(json, &entry.request_headers, shown));
    json.key("queryString").array(|json| {
        let query = url.split_once('?').map_or("", |(_, query)| query);
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            write_pair(json, &name, &value);
        }
    });
    json.key("headersSize").number(-1);
    json.key("bodySize").number(entry.timings.sent_bytes());
}

fn write_response(json: &mut JsonWriter, placed: &Placed<'_>, shown: Shown) {
    let HarEntry { timings, response_headers, failure, .. } = placed.entry;
    let status = timings.status();
    let is_read = timings.is_complete() && failure.is_none();
    let location = response_headers.get(LOCATION).map(|url| String::from_utf8_lossy(url.as_bytes()).into_owned());
    let mime = response_headers.get(CONTENT_TYPE).map(|mime| String::from_utf8_lossy(mime.as_bytes()));
    json.key("status").number(status.map_or(0, |status| status.as_u16()));
    json.key("statusText").string(status.and_then(|status| status.canonical_reason()).unwrap_or_default());
    json.key("httpVersion").string(&version(placed.entry));
    json.key("cookies").array(|_| {});
    json.key("headers").array(|json| write_headers(json, response_headers, shown));
    json.key("content").object(|json| {
        json.key("size").number(timings.received_bytes());
        json.key("mimeType").string(&mime.unwrap_or("x-unknown".into()));
    });
    json.key("redirectURL").string(&placed.next.clone().or(location).map(|url| shown.url(&url)).unwrap_or_default());
    json.key("headersSize").number(-1);
    json.key("bodySize").number(if is_read { i128::from(timings.received_bytes()) } else { -1 });
    if let Some(why) = failure {
        // Chromium shows it.
        json.key("_error").string(why);
    }
}

/// Returns the version of HTTP; nothing before there is a response.
fn version(entry: &HarEntry) -> String {
    entry.timings.version().map(|version| format!("{version:?}")).unwrap_or_default()
}

fn write_headers(json: &mut JsonWriter, headers: &HeaderMap, shown: Shown) {
    headers.iter().for_each(|(name, value)| write_pair(json, name.as_str(), &shown.header(name, value)));
}

fn write_pair(json: &mut JsonWriter, name: &str, value: &str) {
    json.object(|json| {
        json.key("name").string(name);
        json.key("value").string(value);
    });
}

fn write_phases(json: &mut JsonWriter, phases: HarPhases) {
    let HarPhases { blocked, dns, connect, ssl, proxy, send, wait, receive } = phases;
    for (name, time) in [("blocked", blocked), ("dns", dns), ("connect", connect)] {
        write_time(json, name, time);
    }
    for (name, time) in [("send", send), ("wait", wait), ("receive", receive)] {
        json.key(name).millis(time);
    }
    write_time(json, "ssl", ssl);
    write_time(json, "_proxy", proxy);
}

/// Writes the time of a phase, or -1 if it did not happen.
fn write_time(json: &mut JsonWriter, name: &str, time: Option<Duration>) {
    match time {
        Some(time) => json.key(name).millis(time),
        None => json.key(name).number(-1),
    }
}

/// Writes the fields about the connection.
fn write_connection(json: &mut JsonWriter, entry: &HarEntry) {
    let timings = &entry.timings;
    if let Some(remote) = timings.remote_addr() {
        json.key("serverIPAddress").display(remote.ip());
        json.key("_remote").display(remote);
    }
    if let Some(connection) = timings.connection() {
        json.key("connection").display(connection);
        json.key("_reused").boolean(timings.reused());
    }
    if let Some(facts) = timings.tls_facts() {
        json.key("_tls").object(|json| write_tls(json, facts));
    }
}

fn write_tls(json: &mut JsonWriter, facts: &TlsFacts) {
    json.key("version").string(facts.version);
    json.key("cipher_suite").string(facts.cipher_suite);
    if let Some(alpn) = &facts.alpn {
        json.key("alpn").string(alpn);
    }
    json.key("resumed").boolean(facts.resumed);
    json.key("verified").boolean(facts.verified);
}

/// Writes the fields that only this crate has.
fn write_more(json: &mut JsonWriter, entry: &HarEntry) {
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
        json.key("_server_timing").array(|json| timings.server_timing().iter().for_each(|part| write_part(json, part)));
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
    if entry.end.is_none() && !timings.hops().is_empty() {
        json.key("_earlier").array(|json| timings.hops().iter().for_each(|hop| write_hop(json, hop)));
    }
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

fn write_part(json: &mut JsonWriter, part: &ServerTiming) {
    json.object(|json| {
        json.key("name").string(&part.name);
        if let Some(duration) = part.duration {
            json.key("duration").millis(duration);
        }
        if let Some(description) = &part.description {
            json.key("description").string(description);
        }
    });
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
