//! The waterfall of a call: a table of its phases, each with a bar.

use std::fmt::Write;
use std::time::Duration;

use super::bars::Bar;
use super::words::share_of_time;
use crate::inspect::svg::{escaped, parts, parts_of};
use crate::trace::Phase;
use crate::trace::ServerTiming;
use crate::trace::Timings;
use crate::trace::span;
use crate::trace::{hop_row, phase_note, server_note};

/// The most characters of a note.
const NOTE_ROOM: usize = 120;

/// Writes a call's phases and its earlier requests as a table with bars over one time axis.
pub(super) fn write_waterfall(page: &mut String, timings: &Timings) {
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
        if phase == Phase::Wait {
            write_server_rows(page, timings.server_timing());
        }
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

/// Writes the parts of the server's time, without bars, because the server does not say when they began.
fn write_server_rows(page: &mut String, parts: &[ServerTiming]) {
    for part in parts {
        let took = part.duration.map(span).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr class=\"server\"><th scope=\"row\">server</th><td class=\"n\">{took}</td><td class=\"n share\"></td>\
             <td class=\"bar\"></td><td class=\"dim\">{}</td></tr>",
            escaped(&server_note(part, NOTE_ROOM))
        );
    }
}
