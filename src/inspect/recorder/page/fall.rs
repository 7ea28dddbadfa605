//! The waterfall of a call: a table of its phases, each with a bar.

use std::fmt::Write;
use std::time::Duration;

use super::bars::Bar;
use super::words::share_of_time;
use crate::inspect::svg::escaped;
use crate::trace::{Row, Timings, span};

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
