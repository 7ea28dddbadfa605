//! The text of a HAR document, field by field.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{CONTENT_TYPE, LOCATION};

use super::super::json::JsonWriter;
use super::cookies::{HarCookie, received_cookies, sent_cookies};
use super::custom;
use super::date::iso_date;
use super::entry::HarEntry;
use super::kept::KeptCall;
use super::phases::HarPhases;
use super::secrets::Shown;
use crate::clock::{self, Instant};
use crate::trace::RequestEnd;

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

/// Writes a document. Its pages and entries are ordered by the times at which they began.
pub(super) fn document(calls: &[Arc<KeptCall>], shown: Shown) -> String {
    let clocks = Clocks { now: clock::now(), wall: clock::wall() };
    let mut calls: Vec<_> = calls.iter().map(|call| in_order(call)).collect();
    calls.sort_by_key(|call| call.first().map(|entry| entry.started()));
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

/// Returns the requests of a call by the times at which they began.
fn in_order(call: &KeptCall) -> Vec<&HarEntry> {
    let mut entries: Vec<_> = call.entries.iter().collect();
    entries.sort_by_key(|entry| entry.started());
    entries
}

/// Returns the requests of a call, each with the URL to which it was redirected.
fn placed<'a>(page: usize, call: &'a [&HarEntry]) -> impl Iterator<Item = Placed<'a>> {
    let next_of = |place: usize| {
        let is_redirected = matches!(call[place].end, Some(RequestEnd::Redirected(_)));
        call.get(place + 1).filter(|_| is_redirected).map(|next| next.place.url())
    };
    call.iter().enumerate().map(move |(place, entry)| Placed { entry, page, next: next_of(place) })
}

/// Writes the page of a call.
fn write_page(json: &mut JsonWriter, number: usize, call: &[&HarEntry], shown: Shown, clocks: Clocks) {
    let Some(first) = call.first() else { return };
    let ends = call.iter().map(|entry| entry.timings.total());
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
        if let Some(remote) = entry.timings.remote_addr() {
            json.key("serverIPAddress").display(remote.ip());
            // A port, as the format suggests: Chromium shows it after the address.
            json.key("connection").display(remote.port());
        }
        // Without it Chromium takes the first request of a page for a document.
        json.key("_resourceType").string("fetch");
        custom::write_connection(json, entry);
        custom::write_more(json, entry);
    });
}

fn write_request(json: &mut JsonWriter, entry: &HarEntry, shown: Shown) {
    let url = shown.url(&entry.place.url());
    json.key("method").string(entry.method.as_str());
    json.key("url").string(&url);
    json.key("httpVersion").string(&version(entry));
    json.key("cookies").array(|json| {
        sent_cookies(&entry.request_headers).iter().for_each(|cookie| write_cookie(json, cookie, shown));
    });
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
    json.key("cookies").array(|json| {
        received_cookies(response_headers).iter().for_each(|cookie| write_cookie(json, cookie, shown));
    });
    json.key("headers").array(|json| write_headers(json, response_headers, shown));
    json.key("content").object(|json| {
        json.key("size").number(timings.received_bytes());
        json.key("mimeType").string(&mime.unwrap_or("x-unknown".into()));
    });
    json.key("redirectURL").string(&placed.next.clone().or(location).map(|url| shown.url(&url)).unwrap_or_default());
    json.key("headersSize").number(-1);
    json.key("bodySize").number(if is_read { i128::from(timings.received_bytes()) } else { -1 });
    // Without it Chromium adds up the two lengths above, of which one is not known.
    json.key("_transferSize").number(timings.received_bytes());
    if let Some(why) = failure {
        // As Chromium writes it.
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

fn write_cookie(json: &mut JsonWriter, cookie: &HarCookie, shown: Shown) {
    json.object(|json| {
        json.key("name").string(&cookie.name);
        json.key("value").string(shown.cookie(&cookie.value));
        for (name, value) in [("path", &cookie.path), ("domain", &cookie.domain)] {
            if let Some(value) = value {
                json.key(name).string(value);
            }
        }
        if let Some(expires) = cookie.expires {
            json.key("expires").string(&iso_date(expires));
        }
        json.key("httpOnly").boolean(cookie.http_only);
        json.key("secure").boolean(cookie.secure);
    });
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
