//! A snapshot as one HTML page that needs nothing else, and can be read without its script.
//!
//! `mod.rs` has the document, the sections of origins and the tables of other state; `call.rs` a call with its waterfall, lookups and dialled
//! addresses. Every text that a peer, a URL or the program chose passes through `escaped`. There is no style attribute and no handler
//! attribute, so that the policy in the head can refuse all of them.

mod call;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::time::Duration;

use speeddial::trace::{Phase, escaped};

use self::call::{Bar, count_bar, write_call};
use crate::calls::{CallTotals, LatencyClass};
use crate::snapshot::{OriginSnapshot, Snapshot};
use crate::tables::StateTable;
use crate::text::{date, grouped, origin_url, share, share_of_time, size, span};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The base64 of the SHA-256 of the two, which a test computes again.
const STYLE_HASH: &str = "OaLaYNDdJDzaexuFjvWzl4xeJGI0R6bzTVyoUI4F7gA=";
const SCRIPT_HASH: &str = "IN+qbbB9Ed+R94kqj8ZwaPqEPBXGaNIOIs9P3ZOCg04=";

/// The most calls on a page. A browser is slow with more.
const MAX_CALLS: usize = 3_000;

impl Snapshot {
    /// Returns a page that shows the snapshot: totals, and for each kept call its waterfall and why it took its time.
    ///
    /// The page is one file without references to others, and a policy in its head refuses everything else (CSP). It works without
    /// its script, which adds a filter. The filter is part of the page's address: `#filter=api.example.com+503&failures=1`. Of more
    /// than 3,000 calls, each origin shows its latest ones.
    pub fn to_html(&self) -> String {
        let mut page = String::with_capacity(STYLE.len() + SCRIPT.len() + 16 * 1024);
        write_head(&mut page);
        write_title(&mut page, self);
        page.push_str(TOOLS);
        page.push_str("<main id=\"main\">\n");
        write_overview(&mut page, &self.origins);
        let most = MAX_CALLS / self.origins.len().max(1);
        for (place, origin) in self.origins.iter().enumerate() {
            write_section(&mut page, place, origin, most.max(1));
        }
        self.tables.iter().for_each(|table| write_table(&mut page, table));
        page.push_str("</main>\n");
        write_footer(&mut page, self);
        let _ = write!(page, "<script>{SCRIPT}</script>\n</body>\n</html>\n");
        page
    }
}

/// The filter, which the script shows.
const TOOLS: &str = r#"<form id="tools" class="tools" role="search" aria-label="Calls" hidden>
<label class="grow" for="filter">Filter <input id="filter" type="search" autocomplete="off" spellcheck="false" placeholder="origin, path, status, reason"></label>
<label for="failures"><input id="failures" type="checkbox"> Only failures</label>
<button id="clear" type="button">Clear</button>
<button id="open" type="button">Open all</button>
<button id="close" type="button">Close all</button>
<output id="shown" for="filter failures" aria-live="polite"></output>
</form>
"#;

fn write_head(page: &mut String) {
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{SCRIPT_HASH}'; \
         style-src 'sha256-{STYLE_HASH}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Calls by origin</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the calls</a>\n"
    );
}

fn write_title(page: &mut String, snapshot: &Snapshot) {
    let totals = snapshot.totals();
    let quantile = |share| totals.latency.quantile(share).map_or("–".to_owned(), span);
    let kept: usize = snapshot.origins.iter().map(|origin| origin.calls.len()).sum();
    let _ = write!(
        page,
        "<header>\n<h1>Calls by origin</h1>\n<p class=\"dim\">{}; recorded since {}</p>\n<dl class=\"tiles\">\n",
        date(snapshot.taken),
        date(snapshot.since)
    );
    let failures = share(totals.failures(), totals.calls);
    for (name, figure) in [
        ("Origins", snapshot.origins.len().to_string()),
        ("Calls", grouped(totals.calls)),
        ("Failures", format!("{} ({failures})", grouped(totals.failures()))),
        ("Median", quantile(0.5)),
        ("99th percentile", quantile(0.99)),
        ("Received", size(totals.received_bytes)),
        ("Kept calls", grouped(kept as u64)),
    ] {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{figure}</dd></div>");
    }
    page.push_str("</dl>\n</header>\n");
}

fn write_footer(page: &mut String, snapshot: &Snapshot) {
    let (calls, origins) = (snapshot.calls_per_list, snapshot.max_origins);
    let _ = write!(
        page,
        "<footer>\n<p>Of each origin the last {calls} calls are kept, the slowest {calls} of each latency class, and the last {calls} \
         failures: errors, cancelled calls and responses of status 5xx. The {origins} origins used last are kept"
    );
    match snapshot.evicted_origins {
        0 => page.push_str(".</p>\n"),
        evicted => {
            let _ = writeln!(page, "; others were forgotten {evicted} times.</p>");
        }
    }
    page.push_str(
        "<p>Percentiles are rounded up to the next power of two microseconds. Times of day are UTC.</p>\n</footer>\n",
    );
}

/// Writes the table of all origins, with links to their sections.
fn write_overview(page: &mut String, origins: &[OriginSnapshot]) {
    if origins.is_empty() {
        page.push_str("<p class=\"card\">No call has ended yet.</p>\n");
        return;
    }
    page.push_str(
        "<section class=\"card\" aria-labelledby=\"overview\">\n<h2 id=\"overview\">Overview</h2>\n\
         <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Overview\"><table>\n<thead><tr>\
         <th scope=\"col\">Origin</th><th scope=\"col\" class=\"n\">Calls</th><th scope=\"col\" class=\"n\">Failures</th>\
         <th scope=\"col\" class=\"n\">Median</th><th scope=\"col\" class=\"n\">99 %</th>\
         <th scope=\"col\" class=\"n\">Mean</th><th scope=\"col\" class=\"name\">Where the time went</th></tr></thead>\n<tbody>\n",
    );
    origins.iter().enumerate().for_each(|(place, origin)| write_overview_row(page, place, origin));
    page.push_str("</tbody></table></div>\n");
    write_legend(page, None);
    page.push_str("</section>\n");
}

fn write_overview_row(page: &mut String, place: usize, origin: &OriginSnapshot) {
    let totals = &origin.totals;
    let _ = writeln!(
        page,
        "<tr id=\"o{place}-row\"><th scope=\"row\" class=\"name\"><a href=\"#o{place}\">{}</a></th><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
        escaped(&origin_url(&origin.origin)),
        grouped(totals.calls),
        failures(totals),
        quantile(totals, 0.5),
        quantile(totals, 0.99),
        mean(totals),
        time_bar(totals)
    );
}

/// Writes the section of an origin, with its latest `most` calls.
fn write_section(page: &mut String, place: usize, origin: &OriginSnapshot, most: usize) {
    let url = origin_url(&origin.origin);
    let _ = write!(
        page,
        "<section class=\"card origin\" id=\"o{place}\" aria-labelledby=\"o{place}-name\">\n\
         <h2 id=\"o{place}-name\">{}</h2>\n",
        escaped(&url)
    );
    write_facts(page, &origin.totals);
    page.push_str("<div class=\"halves\">\n<div>\n<h3>Where the time went</h3>\n");
    page.push_str(&time_bar(&origin.totals));
    write_legend(page, Some(&origin.totals));
    if let Some(text) = slow_calls(&origin.totals) {
        let _ = writeln!(page, "<p>{}</p>", escaped(&text));
    }
    page.push_str("</div>\n<div>\n<h3>Calls by duration</h3>\n");
    write_classes(page, &origin.totals);
    page.push_str("</div>\n</div>\n<h3>Kept calls, the latest first</h3>\n");
    origin.calls.iter().take(most).for_each(|call| write_call(page, &url, call));
    let left_out = origin.calls.len().saturating_sub(most);
    if left_out > 0 {
        let _ = writeln!(page, "<p class=\"dim\">{left_out} earlier ones are left out of this page.</p>");
    }
    page.push_str("</section>\n");
}

fn write_facts(page: &mut String, totals: &CallTotals) {
    page.push_str("<dl class=\"facts\">\n");
    for (name, figure) in [
        ("Calls", grouped(totals.calls)),
        ("Errors", grouped(totals.failed)),
        ("Cancelled", grouped(totals.cancelled)),
        ("Status 5xx", grouped(totals.server_errors)),
        ("Median", quantile(totals, 0.5)),
        ("99th percentile", quantile(totals, 0.99)),
        ("On new connections", share(totals.on_new_connections, totals.calls)),
        ("Further requests", grouped(totals.further_requests)),
        ("Received", size(totals.received_bytes)),
    ] {
        let _ = writeln!(page, "<div><dt>{name}</dt><dd>{figure}</dd></div>");
    }
    page.push_str("</dl>\n");
}

/// Writes the phases with their colours; with their shares if there are totals.
fn write_legend(page: &mut String, totals: Option<&CallTotals>) {
    page.push_str("<ul class=\"legend\">");
    for phase in Phase::ALL {
        let spent = totals.map(|totals| totals.spent(phase));
        if spent.is_some_and(|spent| spent.is_zero()) {
            continue;
        }
        let share = totals.zip(spent).map(|(totals, spent)| share_of_time(spent, totals.latency.sum()));
        let share = share.map_or(String::new(), |share| format!(" <span class=\"dim\">{share}</span>"));
        let _ = write!(page, "<li><span class=\"key {phase}\"></span>{phase}{share}</li>");
    }
    page.push_str("</ul>\n");
}

fn write_classes(page: &mut String, totals: &CallTotals) {
    page.push_str(
        "<table class=\"classes\"><thead class=\"vh\"><tr><th scope=\"col\">Duration</th><th scope=\"col\">Calls</th>\
         <th scope=\"col\">Share</th></tr></thead><tbody>\n",
    );
    let most = LatencyClass::ALL.map(|class| totals.in_class(class)).into_iter().max().unwrap_or(0);
    let last = LatencyClass::ALL.into_iter().rposition(|class| totals.in_class(class) > 0).unwrap_or(0);
    for class in &LatencyClass::ALL[..=last] {
        let count = totals.in_class(*class);
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"bar\">{}</td></tr>",
            escaped(class.as_str()),
            grouped(count),
            count_bar(count, most)
        );
    }
    page.push_str("</tbody></table>\n");
}

/// Returns what most of the time of the calls above the median's latency class was; `None` if there are none.
fn slow_calls(totals: &CallTotals) -> Option<String> {
    let median = LatencyClass::of(totals.latency.quantile(0.5)?);
    let slow = LatencyClass::ALL.into_iter().filter(|class| *class > median && totals.in_class(*class) > 0);
    let (calls, first) = (slow.clone().map(|class| totals.in_class(class)).sum(), slow.clone().next()?);
    let spent = Phase::ALL
        .map(|phase| (phase, slow.clone().map(|class| totals.spent_in_class(class, phase)).sum::<Duration>()));
    let (phase, time) = spent.into_iter().max_by_key(|(_, time)| *time)?;
    let all = spent.iter().map(|(_, time)| *time).sum();
    let (noun, whose) = if calls == 1 { ("call", "its") } else { ("calls", "their") };
    Some(format!(
        "{} {noun} took {} or more: {} of {whose} time was {phase}.",
        grouped(calls),
        first.as_str().trim_start_matches("≥ "),
        share_of_time(time, all)
    ))
}

/// Returns a bar of the phases of all calls.
fn time_bar(totals: &CallTotals) -> String {
    let parts = Phase::ALL.map(|phase| (phase, totals.spent(phase)));
    Bar::new(totals.latency.sum(), "").parts(Duration::ZERO, &parts).finish()
}

fn failures(totals: &CallTotals) -> String {
    match totals.failures() {
        0 => "0".to_owned(),
        failures => {
            format!("{} <span class=\"dim\">({})</span>", grouped(failures), escaped(&share(failures, totals.calls)))
        }
    }
}

fn quantile(totals: &CallTotals, share: f64) -> String {
    totals.latency.quantile(share).map_or("–".to_owned(), span)
}

fn mean(totals: &CallTotals) -> String {
    totals.latency.mean().map_or("–".to_owned(), span)
}

/// Writes a table, which scrolls sideways by itself if it is too wide.
fn write_table(page: &mut String, table: &StateTable) {
    let title = escaped(&table.title);
    let _ = write!(page, "<section class=\"card\">\n<h2>{title}</h2>\n");
    if table.rows.is_empty() {
        page.push_str("<p class=\"dim\">Nothing at the moment.</p>\n</section>\n");
        return;
    }
    // A figure at the other edge of the page is hard to read.
    let class = if table.columns.len() == 2 { " class=\"pairs\"" } else { "" };
    let _ = write!(
        page,
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{title}\"><table{class}>\n<thead><tr>"
    );
    let numeric: Vec<_> = (0..table.columns.len()).map(|place| is_numeric(table, place)).collect();
    for (column, is_numeric) in table.columns.iter().zip(&numeric) {
        let class = if *is_numeric { " class=\"n\"" } else { "" };
        let _ = write!(page, "<th scope=\"col\"{class}>{}</th>", escaped(column));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    table.rows.iter().for_each(|row| write_row(page, row, &numeric));
    page.push_str("</tbody></table></div>\n");
    if table.left_out > 0 {
        let _ = writeln!(page, "<p class=\"dim\">{} more are left out.</p>", table.left_out);
    }
    page.push_str("</section>\n");
}

fn write_row(page: &mut String, row: &[String], numeric: &[bool]) {
    page.push_str("<tr>");
    for (place, (text, is_numeric)) in row.iter().zip(numeric).enumerate() {
        let text = escaped(text);
        let _ = match (place, is_numeric) {
            (0, _) => write!(page, "<th scope=\"row\" class=\"name\">{text}</th>"),
            (_, true) => write!(page, "<td class=\"n\">{text}</td>"),
            (_, false) => write!(page, "<td>{text}</td>"),
        };
    }
    page.push_str("</tr>\n");
}

/// Returns true if all texts of a column but the first begin with a digit or a sign for nothing: they are set to the right.
fn is_numeric(table: &StateTable, place: usize) -> bool {
    let is_figure = |text: &String| text.starts_with(|start: char| start.is_ascii_digit() || "≤–<".contains(start));
    // Addresses begin with digits as well.
    let is_address = |text: &String| text.contains(':') || text.matches('.').count() > 1;
    place > 0 && table.rows.iter().filter_map(|row| row.get(place)).all(|text| is_figure(text) && !is_address(text))
}
