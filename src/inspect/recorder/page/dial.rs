//! The lookups and the dialled addresses of a call, as tables.

use std::fmt::Write;

use crate::inspect::svg::escaped;
use crate::trace::DialOutcome;
use crate::trace::Timings;
use crate::trace::cut;
use crate::trace::span;

/// The most characters of a name or an error, and half of those of a list of addresses.
const ROOM: usize = 120;

/// Writes the addresses that were dialled for a call.
pub(super) fn write_attempts(page: &mut String, timings: &Timings) {
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
pub(super) fn write_lookups(page: &mut String, timings: &Timings) {
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
