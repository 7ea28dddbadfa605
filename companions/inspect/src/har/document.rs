//! The text of a HAR document, field by field.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use speeddial::dns::Source;
use speeddial::http::HeaderMap;
use speeddial::http::header::{CONTENT_TYPE, LOCATION};
use speeddial::redact::Shown;
use speeddial::trace::{DnsLookup, Hop, HopEnd, RequestEnd, ServerTiming};

use super::cookies::{HarCookie, received_cookies, sent_cookies};
use super::entry::{HarEntry, HarPhases};
use super::kept::HarCall;
use crate::json::{self, TimeForm, array, iso_date, millis};

/// Stands for a cookie's value.
const REMOVED: &str = "[removed]";

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
        let ago = self.now - at;
        iso_date(self.wall.checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))
    }
}

/// Returns a document as text. Its pages and entries are ordered by the times at which they began.
pub(super) fn document(calls: &[Arc<HarCall>], shown: Shown) -> String {
    let clocks = Clocks { now: tokio::time::Instant::now().into_std(), wall: SystemTime::now() };
    let mut calls: Vec<_> = calls.iter().map(|call| in_order(call)).collect();
    calls.sort_by_key(|call| call.first().map(|entry| entry.started()));
    let mut entries: Vec<_> = (1..).zip(&calls).flat_map(|(page, call)| placed(page, call)).collect();
    entries.sort_by_key(|placed| placed.entry.started());
    json::text(json!({
        "log": {
            "version": "1.2",
            "creator": { "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") },
            "pages": array((1..).zip(&calls), |(number, call)| page(number, call, shown, clocks)),
            "entries": array(&entries, |placed| entry(placed, shown, clocks)),
        },
    }))
}

/// Returns the requests of a call by the times at which they began.
fn in_order(call: &HarCall) -> Vec<&HarEntry> {
    let mut entries: Vec<_> = call.entries.iter().collect();
    entries.sort_by_key(|entry| entry.started());
    entries
}

/// Returns the requests of a call, each with the URL to which it was redirected.
fn placed<'a>(page: usize, call: &'a [&HarEntry]) -> impl Iterator<Item = Placed<'a>> {
    let next_of = |place: usize| {
        let is_redirected = matches!(call[place].end, Some(RequestEnd::Redirected(_)));
        // The second attempt of a hedged request begins before the first one ends.
        let is_next = |next: &&&HarEntry| is_redirected && next.started() >= call[place].ended();
        call[place + 1..].iter().find(is_next).map(|next| next.place.url())
    };
    call.iter().enumerate().map(move |(place, entry)| Placed { entry, page, next: next_of(place) })
}

/// Returns the page of a call.
fn page(number: usize, call: &[&HarEntry], shown: Shown, clocks: Clocks) -> Value {
    let Some(first) = call.first() else { return Value::Null };
    let ends = call.iter().map(|entry| entry.timings.total());
    json!({
        "startedDateTime": clocks.date(first.timings.started()),
        "id": page_id(number),
        "title": format!("{} {}", first.method, shown.url(&first.place.url())),
        "pageTimings": { "onContentLoad": -1, "onLoad": millis(ends.max().unwrap_or_default()) },
    })
}

fn page_id(number: usize) -> String {
    format!("call_{number}")
}

fn entry(placed: &Placed<'_>, shown: Shown, clocks: Clocks) -> Value {
    let entry = placed.entry;
    let remote = entry.timings.remote_addr();
    let mut fields = json!({
        "pageref": page_id(placed.page),
        "startedDateTime": clocks.date(entry.started()),
        "time": millis(entry.phases.total()),
        "request": request(entry, shown),
        "response": response(placed, shown),
        "cache": {},
        "timings": phases(entry.phases),
        "serverIPAddress": remote.map(|remote| remote.ip()),
        // A port, as the format suggests: Chromium shows it after the address.
        "connection": remote.map(|remote| remote.port().to_string()),
        // Without it Chromium takes the first request of a page for a document.
        "_resourceType": "fetch",
    });
    add_own_fields(entry, &mut fields);
    fields
}

fn request(entry: &HarEntry, shown: Shown) -> Value {
    let url = shown.url(&entry.place.url());
    let query = url.split_once('?').map_or("", |(_, query)| query);
    json!({
        "method": entry.method.as_str(),
        "url": url,
        "httpVersion": version(entry),
        "cookies": array(&sent_cookies(&entry.request_headers), |sent| cookie(sent, shown)),
        "headers": headers(&entry.request_headers, shown),
        "queryString": array(speeddial::url::form_urlencoded::parse(query.as_bytes()), |(name, value)| pair(&name, &value)),
        "headersSize": -1,
        "bodySize": entry.timings.sent_bytes(),
    })
}

fn response(placed: &Placed<'_>, shown: Shown) -> Value {
    let HarEntry { timings, response_headers, failure, .. } = placed.entry;
    let (status, received) = (timings.status(), timings.received_bytes());
    let has_come = timings.is_complete() && status.is_some();
    let text = |name| response_headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let location = placed.next.clone().or_else(|| text(LOCATION).map(Cow::into_owned));
    json!({
        "status": status.map_or(0, |status| status.as_u16()),
        "statusText": status.and_then(|status| status.canonical_reason()).unwrap_or_default(),
        "httpVersion": version(placed.entry),
        "cookies": array(&received_cookies(response_headers), |received| cookie(received, shown)),
        "headers": headers(response_headers, shown),
        "content": { "size": received, "mimeType": text(CONTENT_TYPE).unwrap_or("x-unknown".into()) },
        "redirectURL": location.map(|url| shown.url(&url)).unwrap_or_default(),
        "headersSize": -1,
        "bodySize": if has_come { received.into() } else { json!(-1) },
        // Without it Chromium adds up the two lengths above, of which one is not known.
        "_transferSize": received,
        // As Chromium writes it.
        "_error": failure,
    })
}

/// Returns the version of HTTP; nothing before there is a response.
fn version(entry: &HarEntry) -> String {
    entry.timings.version().map(|version| format!("{version:?}")).unwrap_or_default()
}

fn headers(headers: &HeaderMap, shown: Shown) -> Value {
    array(headers, |(name, value)| pair(name.as_str(), &shown.header(name, value)))
}

fn cookie(cookie: &HarCookie, shown: Shown) -> Value {
    json!({
        "name": cookie.name,
        "value": if shown.headers { &cookie.value } else { REMOVED },
        "path": cookie.path,
        "domain": cookie.domain,
        "expires": cookie.expires.map(iso_date),
        "httpOnly": cookie.http_only,
        "secure": cookie.secure,
    })
}

fn pair(name: &str, value: &str) -> Value {
    json!({ "name": name, "value": value })
}

/// Returns the times of the phases; -1 for one that did not happen.
fn phases(phases: HarPhases) -> Value {
    let HarPhases { blocked, dns, connect, ssl, proxy, send, wait, receive } = phases;
    let known = |time: Option<Duration>| time.map_or(json!(-1), millis);
    json!({
        "blocked": known(blocked),
        "dns": known(dns),
        "connect": known(connect),
        "send": millis(send),
        "wait": millis(wait),
        "receive": millis(receive),
        "ssl": known(ssl),
        "_proxy": known(proxy),
    })
}

/// Adds the fields that only this crate has. Their names begin with an underscore, as the format asks.
fn add_own_fields(entry: &HarEntry, fields: &mut Value) {
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
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Returns an earlier request of a call.
fn hop(hop: &Hop) -> Value {
    let end = match hop.end {
        HopEnd::Redirected(status) => format!("redirected ({})", status.as_u16()),
        HopEnd::Repeated(cause) => format!("repeated ({cause})"),
        HopEnd::Hedged => "hedged".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    };
    json!({
        "end": end,
        "started": millis(hop.started),
        "time": millis(hop.elapsed),
        "_remote": hop.remote,
        "_reused": hop.reused,
    })
}
