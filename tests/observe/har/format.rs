//! The field table of HAR 1.2 (<http://www.softwareishard.com/blog/har-12-spec/>), and a check of documents against it.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// What a field holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Text,
    /// A URL with a scheme, and without a fragment.
    Url,
    Flag,
    /// A whole number.
    Status,
    /// A number of bytes, or -1 if it is not known.
    Length,
    /// A time in milliseconds.
    Time,
    /// A time in milliseconds, or -1 if there is none.
    TimeOrNone,
    /// A date of ISO 8601 with time and zone.
    Date,
    /// An object of this name in the table.
    Object(&'static str),
    /// An array of objects of this name in the table.
    List(&'static str),
}

use Kind::{Date, Flag, Length, List, Object, Status, Text, Time, TimeOrNone, Url};

/// An object's fields: name, kind, and true if the format requires it.
type Fields = &'static [(&'static str, Kind, bool)];

/// The objects of the format. Each may have a text `comment` besides, and fields of its own whose names begin with an underscore.
pub(super) const TABLE: &[(&str, Fields)] = &[
    ("document", &[("log", Object("log"), true)]),
    (
        "log",
        &[
            ("version", Text, true),
            ("creator", Object("creator"), true),
            ("browser", Object("creator"), false),
            ("pages", List("page"), false),
            ("entries", List("entry"), true),
        ],
    ),
    ("creator", &[("name", Text, true), ("version", Text, true)]),
    (
        "page",
        &[
            ("startedDateTime", Date, true),
            ("id", Text, true),
            ("title", Text, true),
            ("pageTimings", Object("pageTimings"), true),
        ],
    ),
    ("pageTimings", &[("onContentLoad", TimeOrNone, false), ("onLoad", TimeOrNone, false)]),
    (
        "entry",
        &[
            ("pageref", Text, false),
            ("startedDateTime", Date, true),
            ("time", Time, true),
            ("request", Object("request"), true),
            ("response", Object("response"), true),
            ("cache", Object("cache"), true),
            ("timings", Object("timings"), true),
            ("serverIPAddress", Text, false),
            ("connection", Text, false),
        ],
    ),
    (
        "request",
        &[
            ("method", Text, true),
            ("url", Url, true),
            ("httpVersion", Text, true),
            ("cookies", List("cookie"), true),
            ("headers", List("pair"), true),
            ("queryString", List("pair"), true),
            ("postData", Object("postData"), false),
            ("headersSize", Length, true),
            ("bodySize", Length, true),
        ],
    ),
    (
        "response",
        &[
            ("status", Status, true),
            ("statusText", Text, true),
            ("httpVersion", Text, true),
            ("cookies", List("cookie"), true),
            ("headers", List("pair"), true),
            ("content", Object("content"), true),
            ("redirectURL", Text, true),
            ("headersSize", Length, true),
            ("bodySize", Length, true),
        ],
    ),
    (
        "cookie",
        &[
            ("name", Text, true),
            ("value", Text, true),
            ("path", Text, false),
            ("domain", Text, false),
            ("expires", Date, false),
            ("httpOnly", Flag, false),
            ("secure", Flag, false),
        ],
    ),
    ("pair", &[("name", Text, true), ("value", Text, true)]),
    ("postData", &[("mimeType", Text, true), ("params", List("param"), true), ("text", Text, true)]),
    ("param", &[("name", Text, true), ("value", Text, false), ("fileName", Text, false), ("contentType", Text, false)]),
    (
        "content",
        &[
            ("size", Length, true),
            ("compression", Length, false),
            ("mimeType", Text, true),
            ("text", Text, false),
            ("encoding", Text, false),
        ],
    ),
    ("cache", &[("beforeRequest", Object("cached"), false), ("afterRequest", Object("cached"), false)]),
    (
        "cached",
        &[("expires", Date, false), ("lastAccess", Date, true), ("eTag", Text, true), ("hitCount", Status, true)],
    ),
    (
        "timings",
        &[
            ("blocked", TimeOrNone, false),
            ("dns", TimeOrNone, false),
            ("connect", TimeOrNone, false),
            ("send", Time, true),
            ("wait", Time, true),
            ("receive", Time, true),
            ("ssl", TimeOrNone, false),
        ],
    ),
];

/// Returns what is wrong with a document; nothing for a valid one.
pub(crate) fn faults(document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check_object("document", document, "", &mut faults);
    if faults.is_empty() {
        check_log(&document["log"], &mut faults);
    }
    faults
}

fn check_object(name: &str, value: &Value, path: &str, faults: &mut Vec<String>) {
    let Some(object) = value.as_object() else { return faults.push(format!("{path} is no object")) };
    let (_, fields) = TABLE.iter().find(|(object, _)| *object == name).expect("an object of the table");
    for (field, kind, is_required) in *fields {
        match object.get(*field) {
            Some(value) => check_value(*kind, value, &format!("{path}/{field}"), faults),
            None if *is_required => faults.push(format!("{path}/{field} is missing")),
            None => {}
        }
    }
    let is_known = |key: &str| key.starts_with('_') || fields.iter().any(|(field, ..)| *field == key);
    for (key, value) in object.iter().filter(|(key, _)| !is_known(key)) {
        if key != "comment" || !value.is_string() {
            faults.push(format!("{path}/{key} is no field of the format"));
        }
    }
}

fn check_value(kind: Kind, value: &Value, path: &str, faults: &mut Vec<String>) {
    let text = value.as_str();
    let number = value.as_f64();
    let is_good = match kind {
        Text => text.is_some(),
        Url => text.is_some_and(|text| !text.contains('#') && url::Url::parse(text).is_ok_and(|url| url.has_host())),
        Flag => value.is_boolean(),
        Status => value.is_u64(),
        Length => value.as_i64().is_some_and(|length| length >= -1),
        Time => number.is_some_and(|time| time >= 0.0),
        TimeOrNone => number.is_some_and(|time| time >= 0.0 || time == -1.0),
        Date => text.is_some_and(is_date),
        Object(name) => return check_object(name, value, path, faults),
        List(name) => {
            let Some(items) = value.as_array() else { return faults.push(format!("{path} is no array")) };
            for (place, item) in items.iter().enumerate() {
                check_object(name, item, &format!("{path}/{place}"), faults);
            }
            true
        }
    };
    if !is_good {
        faults.push(format!("{path} is no {kind:?}: {value}"));
    }
}

/// Returns true for a date such as `2009-07-24T19:20:30.45+01:00`.
fn is_date(text: &str) -> bool {
    let Some((date, time)) = text.split_once('T') else { return false };
    let zone = time.find(['Z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let zone_is_good = zone == "Z" || zone.get(1..).is_some_and(|zone| numbers(zone, ':', &[2, 2]));
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let fraction_is_good = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    numbers(date, '-', &[4, 2, 2]) && numbers(time, ':', &[2, 2, 2]) && fraction_is_good && zone_is_good
}

/// Returns true if a text is numbers of these lengths with `between` between them.
fn numbers(text: &str, between: char, lengths: &[usize]) -> bool {
    let parts: Vec<_> = text.split(between).collect();
    let is_number = |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.len() == lengths.len() && parts.iter().zip(lengths).all(|(part, length)| is_number(part, *length))
}

/// Checks what the format says beyond single fields.
fn check_log(log: &Value, faults: &mut Vec<String>) {
    if log["version"] != "1.2" {
        faults.push(format!("the version is {}", log["version"]));
    }
    let pages = log["pages"].as_array().map_or(&[][..], Vec::as_slice);
    let ids: HashSet<_> = pages.iter().map(|page| page["id"].as_str()).collect();
    if ids.len() < pages.len() {
        faults.push("two pages have one id".to_owned());
    }
    let entries = log["entries"].as_array().map_or(&[][..], Vec::as_slice);
    for (place, entry) in entries.iter().enumerate() {
        if !entry["pageref"].is_null() && !ids.contains(&entry["pageref"].as_str()) {
            faults.push(format!("entry {place} is of no page"));
        }
        let timings = entry["timings"].as_object().expect("it was checked");
        check_timings(timings, entry["time"].as_f64().unwrap_or_default(), &format!("entry {place}"), faults);
        let url = url::Url::parse(entry["request"]["url"].as_str().unwrap_or_default()).expect("it was checked");
        if entry["request"]["queryString"].as_array().map(Vec::len) != Some(url.query_pairs().count()) {
            faults.push(format!("entry {place} has another query than its URL"));
        }
    }
    if !entries.is_sorted_by_key(|entry| entry["startedDateTime"].as_str().map(ToOwned::to_owned)) {
        faults.push("the entries are not in the order of their starts".to_owned());
    }
}

/// Checks that the times that are not -1 add up to the entry's. That of TLS is a part of that of the connection.
fn check_timings(timings: &Map<String, Value>, time: f64, entry: &str, faults: &mut Vec<String>) {
    let of = |name: &str| timings.get(name).and_then(Value::as_f64).filter(|time| *time >= 0.0);
    let names = ["blocked", "dns", "connect", "send", "wait", "receive"];
    let sum: f64 = names.iter().filter_map(|name| of(name)).sum();
    if (sum - time).abs() > 1e-6 {
        faults.push(format!("{entry}: the times add up to {sum}, not to {time}"));
    }
    if of("ssl").is_some_and(|ssl| of("connect").is_none_or(|connect| ssl > connect)) {
        faults.push(format!("{entry}: ssl is no part of connect"));
    }
}
