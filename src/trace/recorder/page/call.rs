//! A call: one line, which opens to why it took its time, its waterfall, and what is known of it.

use std::fmt::Write;
use std::time::Duration;

use super::bars::Bar;
use super::words::{date, share_of_time, time_of_day};
use crate::trace::hops::AttemptOutcome;
use crate::trace::phase::Phase;
use crate::trace::recorder::snapshot::RecordedCall;
use crate::trace::svg::{escaped, parts, parts_of};
use crate::trace::text::{cut, size, span};
use crate::trace::timings::Timings;
use crate::trace::waterfall::{hop_row, phase_note};
use crate::trace::why::Reason;

/// The most characters of a note.
const NOTE_ROOM: usize = 120;

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
    let requests = Some(timings.hops().len() + 1).filter(|requests| *requests > 1);
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

fn write_waterfall(page: &mut String, timings: &Timings) {
    let total = timings.total();
    let _ = write!(
        page,
        "<table class=\"fall\"><caption class=\"vh\">Phases</caption><thead><tr><th scope=\"col\">Phase</th>\
         <th scope=\"col\" class=\"n\">Time</th><th scope=\"col\" class=\"n share\">Share</th><th scope=\"col\" class=\"bar\">\
         <span class=\"axis\"><span>0</span><span>{0}</span></span></th><th scope=\"col\">Note</th></tr></thead>\n<tbody>\n",
        span(total)
    );
    let mut before = Duration::ZERO;
    for hop in timings.hops() {
        let (name, note) = hop_row(hop, NOTE_ROOM);
        let key = longest(&parts_of(hop));
        write_row(page, total, (&name, key), before, hop.elapsed, &parts_of(hop), &note);
        before += hop.elapsed;
    }
    for (phase, spent) in parts(timings) {
        let note = phase_note(timings, phase, NOTE_ROOM);
        write_row(page, total, (phase.as_str(), phase), before, spent, &[(phase, spent)], &note);
        before += spent;
    }
    let _ = write!(
        page,
        "</tbody>\n<tfoot><tr><th scope=\"row\">total</th><td class=\"n\">{}</td><td class=\"n share\"></td>\
         <td class=\"bar\"></td><td></td></tr></tfoot></table>\n",
        span(total)
    );
}

/// Returns the phase that took most of an earlier request.
fn longest(parts: &[(Phase, Duration)]) -> Phase {
    parts.iter().max_by_key(|(_, spent)| *spent).map_or(Phase::Wait, |(phase, _)| *phase)
}

fn write_row(
    page: &mut String,
    total: Duration,
    (name, key): (&str, Phase),
    before: Duration,
    spent: Duration,
    parts: &[(Phase, Duration)],
    note: &str,
) {
    let bar = Bar::new(total, "").quarters().parts(before, parts).finish();
    let _ = writeln!(
        page,
        "<tr><th scope=\"row\"><span class=\"key {key}\"></span>{}</th><td class=\"n\">{}</td>\
         <td class=\"n share dim\">{}</td><td class=\"bar\">{bar}</td><td class=\"dim\">{}</td></tr>",
        escaped(name),
        span(spent),
        escaped(&share_of_time(spent, total)),
        escaped(note)
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

fn write_attempts(page: &mut String, timings: &Timings) {
    if timings.attempts().is_empty() {
        return;
    }
    page.push_str(
        "<div><h3>Addresses dialled</h3>\n<table><thead><tr><th scope=\"col\">Address</th><th scope=\"col\" class=\"n\">After</th>\
         <th scope=\"col\" class=\"n\">Took</th><th scope=\"col\">Result</th></tr></thead>\n<tbody>\n",
    );
    for attempt in timings.attempts() {
        let outcome = match &attempt.outcome {
            AttemptOutcome::Pending => "pending".to_owned(),
            AttemptOutcome::Connected if attempt.resent_syns > 0 => {
                format!("connected; the first packet was sent again, {} times", attempt.resent_syns)
            }
            AttemptOutcome::Connected => "connected".to_owned(),
            AttemptOutcome::Failed(error) => cut(format!("failed: {error}"), NOTE_ROOM),
            AttemptOutcome::Cancelled => "cancelled".to_owned(),
        };
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            attempt.address,
            span(attempt.started),
            span(attempt.elapsed),
            escaped(&outcome)
        );
    }
    page.push_str("</tbody></table></div>\n");
}

fn write_lookups(page: &mut String, timings: &Timings) {
    if timings.lookups().is_empty() {
        return;
    }
    page.push_str(
        "<div><h3>DNS lookups</h3>\n<table><thead><tr><th scope=\"col\">Name</th><th scope=\"col\">Family</th>\
         <th scope=\"col\">Source</th><th scope=\"col\" class=\"n\">Took</th><th scope=\"col\" class=\"n\">TTL</th><th scope=\"col\">Answer</th></tr></thead>\n<tbody>\n",
    );
    for lookup in timings.lookups() {
        let addresses: Vec<_> = lookup.addresses.iter().map(ToString::to_string).collect();
        let answer = lookup.error.as_ref().map_or_else(|| addresses.join(", "), |error| format!("failed: {error}"));
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escaped(&cut(lookup.name.to_string(), NOTE_ROOM)),
            lookup.family,
            lookup.source,
            span(lookup.elapsed),
            span(lookup.ttl),
            escaped(&cut(answer, 2 * NOTE_ROOM))
        );
    }
    page.push_str("</tbody></table></div>\n");
}
