//! A call: one line, which opens to why it took its time, its waterfall, and the facts about it.

use std::fmt::Write;
use std::time::Duration;

use super::bars::Bar;
use super::dial::{write_attempts, write_lookups};
use super::fall::write_waterfall;
use super::words::{date, share_of_time, time_of_day};
use crate::inspect::recorder::snapshot::RecordedCall;
use crate::inspect::svg::{escaped, parts, parts_of};
use crate::trace::Reason;
use crate::trace::Timings;
use crate::trace::size;
use crate::trace::span;

/// Writes a call to the origin `url`.
pub(super) fn write_call(page: &mut String, url: &str, call: &RecordedCall) {
    let failed = if call.is_failure { " data-failed" } else { "" };
    let find = escaped(&searched(url, call));
    let _ = write!(page, "<details class=\"call\" data-find=\"{find}\"{failed}>\n<summary>");
    write_summary(page, call);
    page.push_str("</summary>\n<div class=\"inside\">\n");
    write_why(page, &call.timings);
    write_waterfall(page, &call.timings);
    let _ = writeln!(page, "<p class=\"line\"><code>{}</code></p>", escaped(&call.timings.to_string()));
    write_facts(page, call);
    write_attempts(page, &call.timings);
    write_lookups(page, &call.timings);
    page.push_str("</div>\n</details>\n");
}

/// Returns the text in which the filter searches.
fn searched(url: &str, call: &RecordedCall) -> String {
    let RecordedCall { method, target, timings, class, .. } = call;
    let (status, _) = status(timings);
    let why = timings.why();
    format!("{method} {url}{target} {status} {class} {} {why}", tags(call).join(" "))
}

fn write_summary(page: &mut String, call: &RecordedCall) {
    let timings = &call.timings;
    let (status, class) = status(timings);
    let _ = write!(
        page,
        "<time title=\"{}\">{}</time><span class=\"status\"><span class=\"tag {class}\">{}</span></span>\
         <span class=\"what mono\">{} {}</span><span class=\"tags\">",
        date(call.started),
        time_of_day(call.started),
        escaped(&status),
        escaped(&call.method),
        escaped(&call.target)
    );
    for tag in tags(call) {
        let _ = write!(page, "<span class=\"tag\">{}</span>", escaped(&tag));
    }
    let mut bar = Bar::new(timings.total(), "");
    let mut before = Duration::ZERO;
    for hop in timings.hops() {
        bar = bar.parts(before, &parts_of(hop));
        before += hop.elapsed;
    }
    let bar = bar.parts(before, &parts(timings)).finish();
    let _ = write!(page, "</span><span class=\"took\">{}</span>{bar}", span(timings.total()));
}

/// Returns the call's result in a word, and the class of its colour.
fn status(timings: &Timings) -> (String, &'static str) {
    if let Some(why) = timings.failure() {
        return (why.to_owned(), if why == "cancelled" { "warn" } else { "bad" });
    }
    let Some(status) = timings.status() else { return ("no status".to_owned(), "") };
    let class = match status.as_u16() {
        ..400 => "good",
        400..500 => "warn",
        _ => "bad",
    };
    (status.as_u16().to_string(), class)
}

fn tags(call: &RecordedCall) -> Vec<String> {
    let timings = &call.timings;
    let slow = call.is_slow.then(|| format!("slowest {}", call.class));
    let requests = Some(timings.requests_before() + 1).filter(|requests| *requests > 1);
    let requests = requests.map(|requests| format!("{requests} requests"));
    let new = (timings.connection().is_some() && !timings.reused()).then(|| "new connection".to_owned());
    [slow, requests, new].into_iter().flatten().collect()
}

fn write_why(page: &mut String, timings: &Timings) {
    let why = timings.why();
    let _ = write!(page, "<div class=\"why\"><p>{}</p>", escaped(&why.to_string()));
    if !why.reasons().is_empty() {
        page.push_str("<ul>");
        why.reasons().iter().for_each(|reason| write_reason(page, reason, timings.total()));
        page.push_str("</ul>");
    }
    page.push_str("</div>\n");
}

fn write_reason(page: &mut String, reason: &Reason, total: Duration) {
    let Reason { cause, phase, time, .. } = reason;
    let _ = write!(
        page,
        "<li><span class=\"key {phase}\"></span><code>{cause}</code> {}, {}</li>",
        span(*time),
        escaped(&share_of_time(*time, total))
    );
}

fn write_facts(page: &mut String, call: &RecordedCall) {
    let timings = &call.timings;
    page.push_str("<dl class=\"facts\">\n");
    let version = timings.version().map(|version| format!("{version:?}"));
    let remote = timings.remote_addr().map(|remote| remote.to_string());
    let connection = timings.connection().map(|number| {
        let kind = if timings.reused() { "reused" } else { "new" };
        format!("{kind}, number {number}")
    });
    let tls = timings.tls_facts().map(|facts| {
        let resumed = if facts.resumed { ", resumed" } else { "" };
        let verified = if facts.verified { "" } else { ", NOT VERIFIED" };
        format!("{}, {}{resumed}{verified}", facts.version.replacen('_', ".", 1), facts.cipher_suite)
    });
    let body = Some(format!("{} sent, {} received", size(timings.sent_bytes()), size(timings.received_bytes())));
    let number = Some(format!("{} of this origin", call.number));
    let facts = [
        ("Call", number),
        ("Version", version),
        ("Connection", connection),
        ("Address", remote),
        ("TLS", tls),
        ("Bodies", body),
    ];
    for (name, text) in facts.into_iter().filter_map(|(name, text)| text.map(|text| (name, text))) {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&text));
    }
    page.push_str("</dl>\n");
}
