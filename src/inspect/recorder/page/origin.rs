//! The overview of all origins, and the section of one.

use std::fmt::Write;
use std::time::Duration;

use super::bars::{Bar, count_bar};
use super::call::write_call;
use super::words::{grouped, origin_url, share, share_of_time};
use crate::inspect::recorder::latency_class::LatencyClass;
use crate::inspect::recorder::snapshot::OriginSnapshot;
use crate::inspect::recorder::totals::CallTotals;
use crate::inspect::svg::escaped;
use crate::trace::Phase;
use crate::trace::size;
use crate::trace::span;

/// Writes the table of all origins, with links to their sections.
pub(super) fn write_overview(page: &mut String, origins: &[OriginSnapshot]) {
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
pub(super) fn write_section(page: &mut String, place: usize, origin: &OriginSnapshot, most: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Event;
    use crate::trace::timings::samples::{SENT, folded, leased};

    #[test]
    fn what_slow_calls_have_in_common_is_said() {
        let call = |wait| {
            folded(&[(0, leased(1)), (2, SENT), (2 + wait, Event::FirstByte), (5 + wait, Event::BodyEnd { bytes: 0 })])
        };
        let mut totals = CallTotals::default();
        let mut count = |waits: &[u64]| {
            for wait in waits {
                totals.count(&call(*wait));
            }
            slow_calls(&totals)
        };
        assert_eq!(count(&[1, 1, 2, 2]), None, "none is slow");
        assert_eq!(count(&[95]).unwrap(), "1 call took 100 ms or more: 95 % of its time was wait.");
        assert_eq!(count(&[45]).unwrap(), "2 calls took 50 ms or more: 93 % of their time was wait.");
    }
}
