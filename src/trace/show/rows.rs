//! The layout of a call's waterfall, which the text, the pictures and dashboards share.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use crate::trace::events::event::{Phase, TlsFacts};
use crate::trace::events::{DnsLookup, Limit, Source};
use crate::trace::server_timing::ServerTiming;
use crate::trace::text::{cut, fit, size, span};
use crate::trace::timings::Timings;
use crate::trace::timings::hops::{Hop, HopEnd};
use crate::trace::timings::late::{Late, LateKind};

/// The most parts of the server's time that are shown where room is scarce.
pub(in crate::trace) const MAX_PARTS: usize = 4;

/// A row of a call's waterfall ([`Timings::rows`]): a phase of the last request, an earlier request, the wait before one, or a part of
/// the row above.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The name: that of the phase, or `retry`, `resend`, `hedge` or the status for an earlier request.
    pub name: String,
    /// True for a part of the row above, such as one that the server told of its time.
    pub is_part: bool,
    /// The time that it took; `None` if it is not known.
    pub took: Option<Duration>,
    /// The time from the call's start until the first bar.
    pub from: Duration,
    /// The bars, one after the other. Empty where it is not known when the time was.
    pub bars: Vec<(Phase, Duration)>,
    /// Facts about the row in a few words, or nothing. It may have words of the server.
    pub note: String,
}

impl Row {
    /// Returns the phase that most of the row belongs to.
    pub fn key(&self) -> Phase {
        self.bars.iter().max_by_key(|(_, spent)| *spent).map_or(Phase::Wait, |(phase, _)| *phase)
    }

    fn of_phase(phase: Phase, from: Duration, took: Duration, note: String) -> Self {
        let name = phase.as_str().to_owned();
        Self { name, is_part: false, took: Some(took), from, bars: vec![(phase, took)], note }
    }

    fn of_server(took: Option<Duration>, note: String) -> Self {
        // Without a bar, because the server does not say when its parts began.
        Self { name: "server".to_owned(), is_part: true, took, from: Duration::ZERO, bars: Vec::new(), note }
    }

    /// Returns the row for a part of a phase that took from `from` to `until`.
    fn of_late(late: &Late, from: Duration, until: Duration, room: usize) -> Self {
        let name = match late.kind {
            LateKind::Unread if matches!(late.phase, Phase::Proxy | Phase::Tls | Phase::Wait | Phase::Receive) => {
                "unread"
            }
            LateKind::Unread | LateKind::Timer | LateKind::Hedge => "late",
        };
        let by = late.by.min(until - from);
        let bars = vec![(late.phase, by)];
        let note = cut("the runtime was busy".to_owned(), room);
        Self {
            name: name.to_owned(),
            is_part: true,
            took: Some(by),
            from: late.from.clamp(from, until - by),
            bars,
            note,
        }
    }
}

impl Timings {
    /// Returns the rows of the call's waterfall, in the order of time, for a picture of your own. Notes have at most `room` characters,
    /// and at most `parts` parts of the server's time ([`Self::server_timing`]) are shown.
    ///
    /// ```
    /// # fn print(timings: &speeddial::trace::Timings) {
    /// for row in timings.rows(80, 4) {
    ///     println!("{:?} from {:?}: {} {}", row.took, row.from, row.name, row.note);
    /// }
    /// # }
    /// ```
    pub fn rows(&self, room: usize, parts: usize) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut before = Duration::ZERO;
        for hop in self.hops() {
            let backoff = hop.spent(Phase::Backoff);
            if !backoff.is_zero() {
                rows.push(Row::of_phase(Phase::Backoff, before, backoff, String::new()));
            }
            let (name, note) = hop_row(hop, room);
            let bars = Phase::ALL.into_iter().filter(|phase| *phase != Phase::Backoff);
            let bars = bars.map(|phase| (phase, hop.spent(phase))).collect();
            let took = Some(hop.elapsed - backoff);
            rows.push(Row { name, is_part: false, took, from: before + backoff, bars, note });
            before += hop.elapsed;
        }
        for phase in Phase::ALL {
            let spent = self.spent_last(phase);
            if spent.is_zero() && !phase.is_usual() {
                continue;
            }
            rows.push(Row::of_phase(phase, before, spent, phase_note(self, phase, room)));
            let until = before + spent;
            rows.extend(self.late_last(phase).map(|late| Row::of_late(late, before, until, room)));
            before = until;
            if phase == Phase::Wait {
                let server = self.server_timing();
                let (shown, more) = server.split_at(server.len().min(parts));
                rows.extend(shown.iter().map(|part| Row::of_server(part.duration, server_note(part, room))));
                if !more.is_empty() {
                    rows.push(Row::of_server(None, format!("… and {} more", more.len())));
                }
            }
        }
        rows
    }
}

/// Returns the name of the row for an earlier request, and its note in at most `room` characters.
fn hop_row(hop: &Hop, room: usize) -> (String, String) {
    let (name, end) = match hop.end {
        HopEnd::Redirected(status) => (status.as_u16().to_string(), "redirected".to_owned()),
        HopEnd::Repeated(cause) if cause.is_retry() => ("retry".to_owned(), cause.to_string()),
        HopEnd::Repeated(cause) => ("resend".to_owned(), cause.to_string()),
        HopEnd::Hedged => ("hedge".to_owned(), "no answer yet".to_owned()),
    };
    let end = Some(match hop.joined {
        0 => end,
        joined => format!("{end}, and {joined} before"),
    });
    let remote = hop.remote.map(|remote| remote.to_string());
    let reused = hop.remote.map(|_| if hop.reused { "reused" } else { "new" }.to_owned());
    let variants = [[end.clone(), reused, remote.clone()], [end.clone(), remote, None], [end, None, None]];
    (name, fit(room, variants))
}

/// Returns the note beside a phase of the last request, in at most `room` characters.
fn phase_note(timings: &Timings, phase: Phase, room: usize) -> String {
    if let Some(why) = timings.failure().filter(|_| timings.phase() == phase) {
        return cut(format!("failed: {why}"), room);
    }
    match phase {
        Phase::Dns => match timings.used_lookup() {
            None if timings.reused() => "not asked".to_owned(),
            None => String::new(),
            Some(lookup) if lookup.error.is_some() => "failed".to_owned(),
            Some(lookup) => lookup_note(lookup, room),
        },
        Phase::Queue if timings.freed() => cut("freed while another was opened".to_owned(), room),
        Phase::Queue => match timings.queued_by() {
            Some(limit) => cut(limit_note(limit).to_owned(), room),
            None => String::new(),
        },
        Phase::Connect if timings.reused() => "reused connection".to_owned(),
        Phase::Connect => connect_note(timings, room),
        Phase::Tls => timings.tls_facts().map(|facts| tls_note(facts, room)).unwrap_or_default(),
        Phase::Wait => wait_note(timings, room),
        Phase::Receive if timings.is_unread() => cut(format!("dropped after {}", size(timings.received_bytes())), room),
        Phase::Receive if timings.is_complete() && timings.failure().is_none() => size(timings.received_bytes()),
        _ => String::new(),
    }
}

/// Returns source, TTL and first address of a lookup, with the number of further addresses.
fn lookup_note(lookup: &DnsLookup, room: usize) -> String {
    let source = Some(lookup.source.to_string());
    let ttl = (lookup.source != Source::Literal).then(|| format!("TTL {}", span(lookup.ttl)));
    let first = lookup.addresses.first().map(ToString::to_string);
    let more = lookup.addresses.len().saturating_sub(1);
    let more = (more > 0).then(|| format!("+{more}"));
    let variants = [
        [source.clone(), ttl.clone(), first.clone(), more.clone()],
        [source.clone(), ttl, first.clone(), None],
        [source, first, more, None],
    ];
    fit(room, variants)
}

/// Returns version and protocol of TLS, and whether a session was resumed. Missing verification comes first.
fn tls_note(facts: &TlsFacts, room: usize) -> String {
    let unverified = (!facts.verified).then(|| "NOT VERIFIED".to_owned());
    let version = Some(facts.version.replacen('_', ".", 1));
    let resumed = facts.resumed.then(|| "resumed".to_owned());
    let alpn = facts.alpn.as_deref().map(str::to_owned);
    fit(room, [[unverified.clone(), version.clone(), alpn, resumed], [unverified, version, None, None]])
}

/// Returns the status, and the result of the last hedge.
fn wait_note(timings: &Timings, room: usize) -> String {
    let status = timings.status().map(|status| format!("status {}", status.as_u16()));
    let hedge = timings.hedges().last().map(|hedge| format!("hedge {}", hedge.outcome));
    fit(room, [[status, hedge]])
}

/// Returns the name and the description of a part of the server's time, in at most `room` characters.
fn server_note(part: &ServerTiming, room: usize) -> String {
    match &part.description {
        Some(description) => cut(format!("{}: {description}", part.name), room),
        None => cut(part.name.clone(), room),
    }
}

/// Returns the address of a new connection, and the number of addresses that failed before.
fn connect_note(timings: &Timings, room: usize) -> String {
    let failed = timings.failed_last();
    let failed = (failed > 0).then(|| format!("{failed} failed"));
    let Some(remote) = timings.remote_addr() else { return fit(room, [[failed]]) };
    let remote = Some(remote.to_string());
    let variants = [
        [Some("new".to_owned()), remote.clone(), failed.clone()],
        [remote.clone(), failed.clone(), None],
        [failed, remote, None],
    ];
    fit(room, variants)
}

/// Returns the reason for the queue in a few words.
fn limit_note(limit: Limit) -> &'static str {
    match limit {
        Limit::Opening => "",
        Limit::Dials => "dials to the host",
        Limit::ConnectionsPerHost => "connections per host",
        Limit::Streams => "HTTP/2 streams",
        Limit::Settings => "no SETTINGS yet",
        Limit::Connections => "connections in total",
        Limit::Descriptors => "no descriptors",
        Limit::Ports => "no local ports",
        Limit::EnhanceYourCalm => "the server asked for calm",
        Limit::Draining => "draining",
    }
}

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

    #[test]
    fn the_note_on_tls_begins_with_missing_verification() {
        let facts = |alpn: Option<&str>, resumed, verified| TlsFacts {
            version: "TLSv1_3",
            cipher_suite: "TLS13_AES_256_GCM_SHA384",
            alpn: alpn.map(Into::into),
            resumed,
            verified,
            peer_certificates: Vec::new(),
        };
        assert_eq!(tls_note(&facts(Some("h2"), true, true), 33), "TLSv1.3, h2, resumed");
        assert_eq!(tls_note(&facts(None, false, true), 33), "TLSv1.3");
        assert_eq!(tls_note(&facts(Some("http/1.1"), true, false), 33), "NOT VERIFIED, TLSv1.3");
    }
}

#[cfg(test)]
mod waterfall_tests {
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
