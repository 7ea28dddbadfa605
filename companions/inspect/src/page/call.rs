//! A call: one line, which opens to why it took its time, its waterfall, and the facts about it. Bars are SVG, which scales with the page;
//! their colours come from the page's style by the names of phases.

use std::fmt::Write;
use std::time::Duration;

use speeddial::trace::{DialOutcome, Phase, Reason, Row, Timings, escaped};

use crate::calls::requests_before;
use crate::snapshot::RecordedCall;
use crate::text::{cut, date, share_of_time, size, span, time_of_day};

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
    for row in timings.rows(0, 0).iter().filter(|row| !row.is_part) {
        bar = bar.parts(row.from, &row.bars);
    }
    let bar = bar.finish();
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
    let requests = Some(requests_before(timings) + 1).filter(|requests| *requests > 1);
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

/// The most characters of a note in a waterfall.
const NOTE_ROOM: usize = 120;

/// Writes a call's phases and its earlier requests as a table with bars over one time axis.
fn write_waterfall(page: &mut String, timings: &Timings) {
    let total = timings.total();
    let _ = write!(
        page,
        "<table class=\"fall\"><caption class=\"vh\">Phases</caption><thead><tr><th scope=\"col\">Phase</th>\
         <th scope=\"col\" class=\"n\">Time</th><th scope=\"col\" class=\"n share\">Share</th><th scope=\"col\" class=\"bar\">\
         <span class=\"axis\"><span>0</span><span>{0}</span></span></th><th scope=\"col\">Note</th></tr></thead>\n<tbody>\n",
        span(total)
    );
    for row in timings.rows(NOTE_ROOM, usize::MAX) {
        write_row(page, total, &row);
    }
    let _ = write!(
        page,
        "</tbody>\n<tfoot><tr><th scope=\"row\">total</th><td class=\"n\">{}</td><td class=\"n share\"></td>\
         <td class=\"bar\"></td><td></td></tr></tfoot></table>\n",
        span(total)
    );
}

fn write_row(page: &mut String, total: Duration, row: &Row) {
    let class = if row.is_part { " class=\"part\"" } else { "" };
    let key = if row.is_part { String::new() } else { format!("<span class=\"key {}\"></span>", row.key()) };
    let bar = match &row.bars[..] {
        [] => String::new(),
        bars => Bar::new(total, "").quarters().parts(row.from, bars).finish(),
    };
    let share = row.took.filter(|_| !row.bars.is_empty()).map(|took| share_of_time(took, total)).unwrap_or_default();
    let _ = writeln!(
        page,
        "<tr{class}><th scope=\"row\">{key}{}</th><td class=\"n\">{}</td>\
         <td class=\"n share dim\">{}</td><td class=\"bar\">{bar}</td><td class=\"dim\">{}</td></tr>",
        escaped(&row.name),
        row.took.map(span).unwrap_or_default(),
        escaped(&share),
        escaped(&row.note)
    );
}

/// The most characters of a name or an error, and half of those of a list of addresses.
const ROOM: usize = 120;

/// Writes the addresses that were dialled for a call.
fn write_attempts(page: &mut String, timings: &Timings) {
    if timings.dialled().is_empty() {
        return;
    }
    page.push_str(
        "<div><h3>Addresses dialled</h3>\n<table><thead><tr><th scope=\"col\">Address</th><th scope=\"col\" class=\"n\">After</th>\
         <th scope=\"col\" class=\"n\">Took</th><th scope=\"col\">Result</th></tr></thead>\n<tbody>\n",
    );
    for attempt in timings.dialled() {
        let outcome = match &attempt.outcome {
            DialOutcome::Pending => "pending".to_owned(),
            DialOutcome::Connected if attempt.resent_syns > 0 => {
                format!("connected; the first packet was sent again, {} times", attempt.resent_syns)
            }
            DialOutcome::Connected => "connected".to_owned(),
            DialOutcome::Failed(error) => cut(format!("failed: {error}"), ROOM),
            DialOutcome::Cancelled => "cancelled".to_owned(),
            _ => "–".to_owned(),
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

/// Writes the DNS lookups made for a call.
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
            escaped(&cut(lookup.name.to_string(), ROOM)),
            lookup.family,
            lookup.source,
            span(lookup.elapsed),
            span(lookup.ttl),
            escaped(&cut(answer, 2 * ROOM))
        );
    }
    page.push_str("</tbody></table></div>\n");
}

/// The width of a whole bar in its own units.
const WIDTH: f64 = 1_000.0;
/// The shortest part that is drawn.
const SHORTEST: f64 = 3.0;

/// A bar over a time axis. The texts beside it say the same, so it is hidden from screen readers.
pub(super) struct Bar {
    svg: String,
    end: Duration,
}

impl Bar {
    /// Starts a bar over a time axis from zero to `end`. `class` is a class of the style, or empty.
    pub(super) fn new(end: Duration, class: &str) -> Self {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let svg = format!(
            "<svg{class} viewBox=\"0 0 {WIDTH} 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">"
        );
        Self { svg, end }
    }

    /// Draws lines at the quarters of the axis.
    pub(super) fn quarters(mut self) -> Self {
        for x in [250, 500, 750] {
            let _ = write!(self.svg, "<line class=\"grid\" x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"10\"/>");
        }
        self
    }

    /// Draws parts one after the other, the first of which begins at `from`. Any time above zero is visible.
    pub(super) fn parts(mut self, from: Duration, parts: &[(Phase, Duration)]) -> Self {
        let mut before = from;
        for (phase, spent) in parts.iter().filter(|(_, spent)| !spent.is_zero()) {
            self.rect(phase.as_str(), self.x(before), self.x(before + *spent));
            before += *spent;
        }
        self
    }

    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }

    fn x(&self, at: Duration) -> f64 {
        if self.end.is_zero() {
            return 0.0;
        }
        WIDTH * (at.as_secs_f64() / self.end.as_secs_f64()).min(1.0)
    }

    fn rect(&mut self, class: &str, from: f64, to: f64) {
        let width = (to - from).max(SHORTEST);
        let x = from.min(WIDTH - width);
        let _ = write!(self.svg, "<rect class=\"{class}\" x=\"{x:.1}\" y=\"0\" width=\"{width:.1}\" height=\"10\"/>");
    }
}

/// Returns a bar for a part of a whole that is no time.
pub(super) fn count_bar(part: u64, whole: u64) -> String {
    let mut bar = Bar::new(Duration::ZERO, "slim");
    if part > 0 {
        bar.rect("count", 0.0, WIDTH * (part as f64 / whole.max(part) as f64));
    }
    bar.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::ms;

    #[test]
    fn parts_are_placed_by_their_time_and_stay_inside() {
        let bar = |parts: &[(Phase, Duration)]| Bar::new(ms(100), "").parts(ms(50), parts).finish();
        let svg = bar(&[(Phase::Dns, ms(25)), (Phase::Tls, ms(0)), (Phase::Wait, ms(25))]);
        assert!(svg.contains("<rect class=\"dns\" x=\"500.0\" y=\"0\" width=\"250.0\""), "{svg}");
        assert!(svg.contains("<rect class=\"wait\" x=\"750.0\"") && !svg.contains("tls"), "{svg}");
        let short = bar(&[(Phase::Wait, ms(50)), (Phase::Receive, Duration::from_nanos(1))]);
        assert!(short.contains("<rect class=\"receive\" x=\"997.0\" y=\"0\" width=\"3.0\""), "{short}");
        assert!(!Bar::new(Duration::ZERO, "").parts(ms(0), &[(Phase::Wait, ms(0))]).finish().contains("rect"));
        assert!(count_bar(1, 4).contains("width=\"250.0\"") && !count_bar(0, 0).contains("rect"));
    }
}
