//! Timings as SVG pictures: one call by its phases, or several calls below each other.

use std::fmt::Write;
use std::time::Duration;

use crate::redact::is_hidden;
use crate::trace::events::event::Phase;
use crate::trace::show::rows::{MAX_PARTS, Row};
use crate::trace::text::{cut, span};
use crate::trace::timings::Timings;
use crate::trace::timings::hops::Hop;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;
const ROW: f64 = 22.0;
/// The left and right edge of the bars.
const LEFT: f64 = 250.0;
const RIGHT: f64 = 700.0;
/// The most characters of a note.
const NOTE_ROOM: usize = 42;

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#24292f}.dim{fill:#6e7781}.num{text-anchor:end;\
                     font-variant-numeric:tabular-nums}.mid{text-anchor:middle}";

impl Timings {
    /// Draws the call as an SVG picture, with a bar and a note for each phase.
    pub fn to_svg(&self) -> String {
        let mut chart = Chart::new(self.total(), false);
        for row in self.rows(NOTE_ROOM, MAX_PARTS) {
            chart.row(&row);
        }
        chart.label("total", self.total());
        chart.next();
        chart.finish()
    }
}

/// Draws named calls as one SVG picture, on one time axis that begins with the first of them.
///
/// ```
/// # fn run(calls: &[(String, speeddial::trace::Timings)]) -> std::io::Result<()> {
/// let page = speeddial::trace::waterfall_svg(calls.iter().map(|(name, timings)| (name.as_str(), timings)));
/// std::fs::write("calls.svg", page)
/// # }
/// ```
pub fn waterfall_svg<'a>(calls: impl IntoIterator<Item = (&'a str, &'a Timings)>) -> String {
    let calls: Vec<_> = calls.into_iter().collect();
    let first = calls.iter().map(|(_, timings)| timings.started()).min();
    page(&calls, |timings| first.map_or(Duration::ZERO, |first| timings.started() - first))
}

/// Draws named calls as one SVG picture in which all calls begin at zero, to compare calls that were made far apart.
pub fn comparison_svg<'a>(calls: impl IntoIterator<Item = (&'a str, &'a Timings)>) -> String {
    page(&calls.into_iter().collect::<Vec<_>>(), |_| Duration::ZERO)
}

/// Draws calls, each of which begins `started` after the axis does.
fn page(calls: &[(&str, &Timings)], started: impl Fn(&Timings) -> Duration) -> String {
    let end = calls.iter().map(|(_, timings)| started(timings) + timings.total()).max().unwrap_or_default();
    let mut chart = Chart::new(end, true);
    for (name, timings) in calls {
        chart.label(name, timings.total());
        let mut before = started(timings);
        for hop in timings.hops() {
            chart.bars(before, &parts_of(hop));
            before += hop.elapsed;
        }
        chart.bars(before, &parts(timings));
        chart.note(&summary(timings));
        chart.next();
    }
    chart.finish()
}

/// Returns the note on a whole call: its failure, or its status and connection.
fn summary(timings: &Timings) -> String {
    if let Some(why) = timings.failure() {
        return format!("failed: {why}");
    }
    let status = timings.status().map(|status| status.as_u16().to_string());
    let connection =
        timings.remote_addr().map(|remote| format!("{} {remote}", if timings.reused() { "reused" } else { "new" }));
    status.into_iter().chain(connection).collect::<Vec<_>>().join(", ")
}

/// Returns the phases of a call's last request, without the unusual ones that took no time.
fn parts(timings: &Timings) -> Vec<(Phase, Duration)> {
    let spent = Phase::ALL.map(|phase| (phase, timings.spent_last(phase)));
    spent.into_iter().filter(|(phase, spent)| phase.is_usual() || !spent.is_zero()).collect()
}

fn parts_of(hop: &Hop) -> Vec<(Phase, Duration)> {
    Phase::ALL.map(|phase| (phase, hop.spent(phase))).to_vec()
}

fn color(phase: Phase) -> &'static str {
    match phase {
        Phase::Backoff => "#57606a",
        Phase::Queue => "#afb8c1",
        Phase::Dns => "#1b7c83",
        Phase::Connect => "#e36209",
        Phase::Proxy => "#bf3989",
        Phase::Tls => "#8250df",
        Phase::Send => "#d4a72c",
        Phase::Wait => "#2da44e",
        Phase::Receive => "#0969da",
    }
}

/// Rows of bars below a time axis.
struct Chart {
    /// The end of the time axis.
    end: Duration,
    /// True if a legend on top explains the phases' colours, because the rows do not name the phases.
    legend: bool,
    rows: String,
    /// The upper edge of the first row.
    top: f64,
    /// The upper edge of the next row.
    y: f64,
}

impl Chart {
    fn new(end: Duration, legend: bool) -> Self {
        // Below the legend and the axis.
        let top = MARGIN + if legend { 2.0 } else { 1.0 } * ROW;
        Self { end, legend, rows: String::new(), top, y: top }
    }

    fn x(&self, at: Duration) -> f64 {
        let share = if self.end.is_zero() { 0.0 } else { at.as_secs_f64() / self.end.as_secs_f64() };
        LEFT + share * (RIGHT - LEFT)
    }

    fn row(&mut self, row: &Row) {
        let mark = if row.is_part { "– " } else { "" };
        self.label(&format!("{mark}{}", row.name), row.took);
        self.bars(row.from, &row.bars);
        self.note(&row.note);
        self.next();
    }

    fn label(&mut self, name: &str, took: impl Into<Option<Duration>>) {
        let y = self.y + 15.0;
        let name = escaped(&cut(name.to_owned(), 24));
        let took = took.into().map(span).unwrap_or_default();
        let _ = write!(self.rows, "<text x='{MARGIN}' y='{y}'>{name}</text>");
        let _ = write!(self.rows, "<text class='num' x='{}' y='{y}'>{took}</text>", LEFT - 12.0);
    }

    /// Draws bars one after the other, the first of which begins at `from`. Any time above zero is visible.
    fn bars(&mut self, from: Duration, parts: &[(Phase, Duration)]) {
        let mut before = from;
        for (phase, spent) in parts.iter().filter(|(_, spent)| !spent.is_zero()) {
            let x = self.x(before);
            let y = self.y + 3.0;
            let width = (self.x(before + *spent) - x).max(1.0);
            let height = ROW - 6.0;
            let _ = write!(
                self.rows,
                "<rect x='{x:.1}' y='{y}' width='{width:.1}' height='{height}' fill='{}'><title>{phase} {}</title></rect>",
                color(*phase),
                span(*spent)
            );
            before += *spent;
        }
    }

    fn note(&mut self, note: &str) {
        let x = RIGHT + 12.0;
        let y = self.y + 15.0;
        let _ =
            write!(self.rows, "<text class='dim' x='{x}' y='{y}'>{}</text>", escaped(&cut(note.to_owned(), NOTE_ROOM)));
    }

    fn next(&mut self) {
        self.y += ROW;
        self.rows.push('\n');
    }

    fn finish(self) -> String {
        let top = self.top;
        let height = self.y + MARGIN;
        let mut text = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}'>\n\
             <style>{STYLE}</style>\n<rect width='100%' height='100%' fill='#ffffff'/>\n"
        );
        if self.legend {
            for (place, phase) in Phase::ALL.into_iter().enumerate() {
                let x = MARGIN + place as f64 * 98.0;
                let _ = write!(
                    text,
                    "<rect x='{x}' y='{MARGIN}' width='12' height='12' rx='2' fill='{}'/><text x='{}' y='{}'>{phase}</text>",
                    color(phase),
                    x + 18.0,
                    MARGIN + 10.5
                );
            }
            text.push('\n');
        }
        for at in ticks(self.end) {
            let x = self.x(at);
            let _ = writeln!(
                text,
                "<line x1='{x:.1}' x2='{x:.1}' y1='{top}' y2='{}' stroke='#d8dee4'/>\
                 <text class='dim mid' x='{x:.1}' y='{}'>{}</text>",
                self.y,
                top - 6.0,
                span(at)
            );
        }
        text.push_str(&self.rows);
        text.push_str("</svg>\n");
        text
    }
}

/// Returns round times from 0 to `end`, at most six.
fn ticks(end: Duration) -> Vec<Duration> {
    let end = end.as_nanos() as u64;
    let mut step = 1;
    while end / step > 5 {
        // 1, 2, 5, 10, 20, ...
        step = if step.to_string().starts_with('2') { step / 2 * 5 } else { step * 2 };
    }
    (0..=end / step).map(|tick| Duration::from_nanos(tick * step)).collect()
}

/// Escapes a text for XML and HTML, as an element's content or an attribute's value in quotes.
///
/// Characters that XML cannot represent, and those that hide in a text or turn it around, become U+FFFD: a server may have written the
/// text.
///
/// ```
/// assert_eq!(speeddial::trace::escaped("<b>\u{202e}"), "&lt;b&gt;\u{fffd}");
/// ```
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '"' => escaped.push_str("&quot;"),
            // XML 1.0 cannot represent control characters, U+FFFE and U+FFFF.
            char if is_hidden(char) => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timings::samples::{SENT, folded, hedged_call, late_call, leased, ms, retried_call};
    use crate::trace::{Event, RepeatCause, ServerTiming};

    fn resent_call() -> Timings {
        folded(&[
            (0, leased(1)),
            (10, Event::Repeated { cause: RepeatCause::Closed }),
            (20, leased(0)),
            (20, SENT),
            (90, Event::FirstByte),
            (100, Event::BodyEnd { bytes: 2 }),
        ])
    }

    /// Returns the phase, the left edge and the width of each bar.
    fn rects(svg: &str) -> Vec<(&str, f64, f64)> {
        let number = |text: &str, name: &str| -> f64 {
            let (_, rest) = text.split_once(&format!(" {name}='")).unwrap();
            rest.split('\'').next().unwrap().parse().unwrap()
        };
        let bars = svg.split("<rect").filter(|text| text.contains("<title>"));
        bars.map(|text| {
            let title = text.split("<title>").nth(1).unwrap().split(' ').next().unwrap();
            (title, number(text, "x"), number(text, "width"))
        })
        .collect()
    }

    #[test]
    fn bars_are_placed_by_their_time() {
        let svg = resent_call().to_svg();
        // 450 points are 100 ms.
        let expected =
            [("send", 250.0, 45.0), ("queue", 295.0, 45.0), ("wait", 340.0, 315.0), ("receive", 655.0, 45.0)];
        assert_eq!(rects(&svg), expected);
        assert!(svg.contains(">resend</text>") && svg.contains(">100 ms</text>"), "{svg}");
    }

    #[test]
    fn a_backoff_is_a_bar_before_its_attempt() {
        let svg = retried_call().to_svg();
        let names: Vec<_> = rects(&svg).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["wait", "backoff", "wait", "backoff", "queue", "wait", "receive"]);
        assert_eq!(rects(&svg)[3], ("backoff", 385.0, 225.0), "450 points are 100 ms");
        assert!(svg.contains(">backoff</text>") && !resent_call().to_svg().contains("backoff"));
    }

    #[test]
    fn the_first_attempt_of_a_hedged_request_has_a_bar_of_its_own() {
        let svg = hedged_call().to_svg();
        let names: Vec<_> = rects(&svg).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["wait", "queue", "wait", "receive"]);
        assert!(svg.contains(">hedge</text>"), "{svg}");
    }

    #[test]
    fn a_page_has_a_row_for_each_call_and_names_are_escaped() {
        let timings = resent_call();
        let svg = waterfall_svg([("<script>&", &timings), ("another", &timings)]);
        assert_eq!(rects(&svg).len(), 8);
        assert!(svg.contains("&lt;script&gt;&amp;") && !svg.contains("<script>"));
        let open = |tag: &str| svg.matches(tag).count();
        assert_eq!(open("<text"), open("</text>"));
        assert!(waterfall_svg([]).ends_with("</svg>\n"), "a picture of no calls");
    }

    #[test]
    fn each_character_of_a_text_is_one_that_xml_allows() {
        // XML 1.0 §2.2, without the line breaks and the tab, which become spaces elsewhere.
        let is_allowed =
            |char| matches!(char, '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}');
        for char in '\0'..=char::MAX {
            assert!(escaped(&char.to_string()).chars().all(is_allowed), "{char:?}");
        }
    }

    #[test]
    fn the_servers_parts_are_rows_without_bars() {
        let mut timings = resent_call();
        let bars = rects(&timings.to_svg()).len();
        let part = ServerTiming { name: "<db>".to_owned(), duration: Some(ms(38)), description: None };
        timings.request.server = Some(vec![part; 6].into());
        let svg = timings.to_svg();
        assert_eq!((svg.matches("&lt;db&gt;").count(), rects(&svg).len()), (MAX_PARTS, bars), "{svg}");
        assert!(svg.contains(">38.0 ms</text>") && svg.contains("… and 2 more"));
    }

    #[test]
    fn what_the_runtime_was_late_by_is_a_row_with_a_bar_where_it_was() {
        let timings = late_call();
        let svg = timings.to_svg();
        let late: Vec<_> = svg.lines().filter(|row| row.contains("the runtime was busy")).flat_map(rects).collect();
        let expected = [("backoff", 336.5, 103.8), ("wait", 509.6, 138.5), ("receive", 648.1, 34.6)];
        assert_eq!(late, expected, "450 points are 130 ms");
        assert!(svg.contains(">– unread</text>") && svg.contains(">– late</text>"), "{svg}");
    }

    #[test]
    fn ticks_are_round_and_few() {
        let at = |end| ticks(Duration::from_micros(end)).iter().map(|tick| tick.as_micros()).collect::<Vec<_>>();
        assert_eq!(at(100), [0, 20, 40, 60, 80, 100]);
        assert_eq!(at(1_234), [0, 500, 1_000]);
        assert_eq!(ticks(Duration::ZERO), [Duration::ZERO]);
        assert!((1..100_000).step_by(77).all(|end| (2..=6).contains(&at(end).len())));
    }
}
