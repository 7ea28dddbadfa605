//! Timings as a waterfall of bars for a terminal.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use super::rows::{MAX_PARTS, Row};
use crate::trace::events::phase::Phase;
use crate::trace::text::span;
use crate::trace::timings::Timings;

/// The width in columns if there is no terminal.
const DEFAULT_WIDTH: usize = 80;
const MIN_WIDTH: usize = 48;
const MAX_WIDTH: usize = 200;

/// A call's phases as bars over time, as `{:#}` of [`Timings`] prints them.
///
/// The waterfall is as wide as the terminal, or 80 columns if there is none. It is coloured if standard output is a terminal
/// and the environment does not set `NO_COLOR` (<https://no-color.org>).
///
/// ```no_run
/// # async fn run() -> speeddial::Result<()> {
/// let response = speeddial::Client::new().get("http://127.0.0.1:8080/").send().await?;
/// eprintln!("{}", response.timings().waterfall().width(100).color(false));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Waterfall<'a> {
    timings: &'a Timings,
    width: usize,
    color: bool,
    /// The least time that the bars' whole width stands for.
    scale: Duration,
}

impl Timings {
    /// Returns the phases as bars for a terminal.
    pub fn waterfall(&self) -> Waterfall<'_> {
        let is_terminal = std::io::stdout().is_terminal();
        let width = crate::os::terminal_columns().unwrap_or(DEFAULT_WIDTH);
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        let color = is_terminal && !no_color && !is_dumb;
        Waterfall { timings: self, width: DEFAULT_WIDTH, color, scale: Duration::ZERO }.width(width)
    }
}

impl Waterfall<'_> {
    /// Sets the width in columns, from 48 to 200. By default that of the terminal, or 80.
    pub fn width(self, columns: usize) -> Self {
        Self { width: columns.clamp(MIN_WIDTH, MAX_WIDTH), ..self }
    }

    /// Sets whether the bars are coloured. By default they are if standard output is a terminal and `NO_COLOR` is not set.
    pub fn color(self, color: bool) -> Self {
        Self { color, ..self }
    }

    /// Sets the time that the bars' whole width stands for, so that several waterfalls of one width can be compared: the longest of their
    /// totals. By default, and at least, it is the call's own total.
    ///
    /// ```no_run
    /// # fn print(first: speeddial::trace::Timings, second: speeddial::trace::Timings) {
    /// let longest = first.total().max(second.total());
    /// for timings in [first, second] {
    ///     println!("{}\n", timings.waterfall().scale(longest));
    /// }
    /// # }
    /// ```
    pub fn scale(self, total: Duration) -> Self {
        Self { scale: total, ..self }
    }

    /// Returns the number of columns for bars, and the number for notes.
    fn columns(self) -> (usize, usize) {
        // Without the indentation, the name, the time, and the gaps between them.
        let rest = self.width - 2 - 8 - 9 - 2 - 2;
        let bar = rest * 24 / 57;
        (bar, rest - bar)
    }

    fn row(self, f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
        let (columns, _) = self.columns();
        let spent = row.bars.iter().map(|(_, spent)| *spent).sum();
        let (indent, bar) = bar(row.from, spent, self.timings.total().max(self.scale), columns);
        let (on, off) = if self.color && !bar.is_empty() { (color(row.key()), "\x1b[0m") } else { ("", "") };
        let pad = if row.note.is_empty() { 0 } else { columns - indent - bar.chars().count() + 2 };
        let name = if row.is_part { format!("  {}", row.name) } else { row.name.clone() };
        write!(f, "  {name:<8}{:>9}", row.took.map(span).unwrap_or_default())?;
        if bar.is_empty() && row.note.is_empty() {
            return writeln!(f);
        }
        writeln!(f, "  {:indent$}{on}{bar}{off}{:pad$}{}", "", "", row.note)
    }
}

impl fmt::Display for Waterfall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, room) = self.columns();
        for row in self.timings.rows(room, MAX_PARTS) {
            self.row(f, &row)?;
        }
        write!(f, "  {:<8}{:>9}", "total", span(self.timings.total()))
    }
}

/// Returns a bar as long as the share of `total` that was spent, and its indentation. Any time above zero leaves a mark.
fn bar(before: Duration, spent: Duration, total: Duration, columns: usize) -> (usize, String) {
    if spent.is_zero() || total.is_zero() {
        return (0, String::new());
    }
    let column = |at: Duration| (at.as_secs_f64() / total.as_secs_f64() * columns as f64).round() as usize;
    let from = column(before).min(columns - 1);
    let cells = column(before + spent).saturating_sub(from);
    (from, if cells == 0 { "▏".to_owned() } else { "█".repeat(cells) })
}

fn color(phase: Phase) -> &'static str {
    match phase {
        Phase::Backoff => "\x1b[37m",
        Phase::Queue => "\x1b[90m",
        Phase::Dns => "\x1b[36m",
        Phase::Connect => "\x1b[33m",
        Phase::Proxy => "\x1b[95m",
        Phase::Tls => "\x1b[35m",
        Phase::Send => "\x1b[94m",
        Phase::Wait => "\x1b[32m",
        Phase::Receive => "\x1b[34m",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::server_timing::ServerTiming;
    use crate::trace::timings::samples::{cold_call, hedged_call, late_call, retried_call};

    #[test]
    fn the_waterfall_is_proportional_and_fits_80_columns() {
        let text = cold_call().waterfall().width(80).color(false).to_string();
        assert_eq!(
            text,
            "  queue           0
  dns       10.0 ms  ██                        miss, TTL 2.00 s, 192.0.2.1
  connect   20.0 ms    █████                   new, 192.0.2.1:80
  tls             0
  send            0
  wait      50.0 ms         ████████████
  receive   20.0 ms                     █████  2 B
  total      100 ms"
        );
    }

    #[test]
    fn waterfalls_on_one_scale_can_be_compared() {
        let drawn =
            |scale| cold_call().waterfall().width(80).color(false).scale(Duration::from_millis(scale)).to_string();
        assert_eq!(
            drawn(200),
            "  queue           0
  dns       10.0 ms  █                         miss, TTL 2.00 s, 192.0.2.1
  connect   20.0 ms   ███                      new, 192.0.2.1:80
  tls             0
  send            0
  wait      50.0 ms      ██████
  receive   20.0 ms            ██              2 B
  total      100 ms"
        );
        let own = cold_call().waterfall().width(80).color(false).to_string();
        assert_eq!([drawn(0), drawn(99), drawn(100)], [own.clone(), own.clone(), own], "a call is never cut");
        let far = drawn(100_000);
        assert_eq!(far.matches('▏').count(), 4, "a time above zero leaves a mark: {far}");
    }

    #[test]
    fn the_servers_parts_are_rows_below_the_wait_and_few() {
        let mut timings = cold_call();
        let part = |name: &str, duration, description: Option<&str>| ServerTiming {
            name: name.to_owned(),
            duration,
            description: description.map(str::to_owned),
        };
        let db = part("db", Some(Duration::from_millis(38)), Some("two queries to the primary of the cluster"));
        let hit = part("cache", None, Some("HIT"));
        timings.request.server = Some([db, hit.clone()].into());
        let text = timings.waterfall().width(80).color(false).to_string();
        let rows: Vec<_> = text.lines().skip(5).collect();
        assert_eq!(
            rows,
            [
                "  wait      50.0 ms         ████████████",
                "    server  38.0 ms                            db: two queries to the primary o…",
                "    server                                     cache: HIT",
                "  receive   20.0 ms                     █████  2 B",
                "  total      100 ms",
            ]
        );
        timings.request.server = Some(vec![hit; 9].into());
        let text = timings.waterfall().width(80).color(false).to_string();
        assert_eq!(text.matches("cache: HIT").count(), MAX_PARTS);
        assert!(text.contains("… and 5 more"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn the_first_attempt_of_a_hedged_request_is_a_row_until_the_second_one_begins() {
        let text = hedged_call().waterfall().width(80).color(false).to_string();
        let rows: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[0], "hedge 30.0 ms ███████████ no answer yet, 192.0.2.1:80");
        assert!(rows.iter().any(|row| row.starts_with("wait 20.0 ms") && row.ends_with("hedge won")), "{text}");
    }

    #[test]
    fn what_the_runtime_was_late_by_is_drawn_where_it_was() {
        let text = late_call().waterfall().width(80).color(false).to_string();
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "  resend    5.00 ms  █                         closed, reused, 192.0.2.1:80",
                "  backoff   50.0 ms   █████████",
                "    late    30.0 ms       █████                the runtime was busy",
                "  queue           0",
                "  dns             0                            not asked",
                "  connect         0                            reused connection",
                "  tls             0",
                "  send            0",
                "  wait      60.0 ms            ███████████",
                "    unread  40.0 ms                ███████     the runtime was busy",
                "  receive   15.0 ms                       ███  2 B",
                "    unread  10.0 ms                       ██   the runtime was busy",
                "  total      130 ms",
            ]
        );
    }

    #[test]
    fn a_backoff_is_a_row_between_the_attempts() {
        let text = retried_call().waterfall().width(80).color(false).to_string();
        assert_eq!(
            text,
            "  retry     5.00 ms  █                         status 503, reused, 192.0.2.1:80
  backoff   20.0 ms   █████
  retry     5.00 ms        █                   status 503, reused, 192.0.2.1:80
  backoff   50.0 ms         ████████████
  queue     10.0 ms                     ███    connections per host
  dns             0                            not asked
  connect         0                            reused connection
  tls             0
  send            0
  wait      5.00 ms                        █
  receive   5.00 ms                         █  2 B
  total      100 ms"
        );
    }
}
