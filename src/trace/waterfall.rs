//! Timings as text: one line, or a waterfall for a terminal.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use super::event::{DnsLookup, Limit, Phase, Source, TlsFacts};
use super::timings::{Hop, HopEnd, Timings};

/// As wide as a terminal is where nothing says otherwise, and the narrowest and the widest that is of use.
const USUAL_WIDTH: usize = 80;
const LEAST_WIDTH: usize = 48;
const MOST_WIDTH: usize = 200;

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { self.waterfall().fmt(f) } else { line(self, f) }
    }
}

/// A call's phases as bars, each where its time lies: what `{:#}` of [`Timings`] shows.
///
/// It is as wide as the terminal (80 columns where there is none), and coloured where standard output is a terminal and the
/// environment does not say `NO_COLOR` (<https://no-color.org>).
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
}

impl Timings {
    /// The phases as bars, for a terminal.
    pub fn waterfall(&self) -> Waterfall<'_> {
        let is_terminal = std::io::stdout().is_terminal();
        let width = terminal_columns().unwrap_or(USUAL_WIDTH);
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
        Waterfall { timings: self, width: USUAL_WIDTH, color: is_terminal && !plain && !dumb }.width(width)
    }
}

/// The columns of the terminal that the process writes to or reads from, if it has one.
#[cfg(unix)]
fn terminal_columns() -> Option<usize> {
    use rustix::termios::tcgetwinsize;
    let size = tcgetwinsize(std::io::stdout()).or_else(|_| tcgetwinsize(std::io::stderr()));
    let columns = size.or_else(|_| tcgetwinsize(std::io::stdin())).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}

#[cfg(not(unix))]
fn terminal_columns() -> Option<usize> {
    None
}

impl Waterfall<'_> {
    /// How many columns it may take, at least 48 and at most 200.
    pub fn width(self, columns: usize) -> Self {
        Self { width: columns.clamp(LEAST_WIDTH, MOST_WIDTH), ..self }
    }

    /// Whether bars are coloured.
    pub fn color(self, color: bool) -> Self {
        Self { color, ..self }
    }

    /// How many columns are for bars, and how many for notes.
    fn columns(self) -> (usize, usize) {
        // Indentation, name, time, and what is between them.
        let rest = self.width - 2 - 8 - 9 - 2 - 2;
        let bar = rest * 24 / 57;
        (bar, rest - bar)
    }

    fn row(
        self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        phase: Phase,
        bounds: [Duration; 2],
        note: &str,
    ) -> fmt::Result {
        let (columns, _) = self.columns();
        let [from, to] = bounds;
        let (indent, bar) = bar(from, to - from, self.timings.total(), columns);
        let (on, off) = if self.color && !bar.is_empty() { (color(phase), "\x1b[0m") } else { ("", "") };
        let pad = if note.is_empty() { 0 } else { columns - indent - bar.chars().count() + 2 };
        write!(f, "  {name:<8}{:>9}", span(to - from))?;
        if bar.is_empty() && note.is_empty() {
            return writeln!(f);
        }
        writeln!(f, "  {:indent$}{on}{bar}{off}{:pad$}{note}", "", "")
    }
}

fn color(phase: Phase) -> &'static str {
    match phase {
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

impl fmt::Display for Waterfall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (timings, (_, room)) = (self.timings, self.columns());
        let mut before = Duration::ZERO;
        for hop in timings.hops() {
            let (name, note) = told(hop, room);
            self.row(f, &name, Phase::Wait, [before, before + hop.elapsed], &note)?;
            before += hop.elapsed;
        }
        for phase in Phase::ALL {
            let spent = timings.spent_last(phase);
            if phase == Phase::Proxy && spent.is_zero() {
                continue;
            }
            self.row(f, phase.as_str(), phase, [before, before + spent], &note(timings, phase, room))?;
            before += spent;
        }
        write!(f, "  {:<8}{:>9}", "total", span(timings.total()))
    }
}

/// What became of a request that was not the last: its name in a list, and what there is room for of the rest.
pub(super) fn told(hop: &Hop, room: usize) -> (String, String) {
    let (name, what) = match hop.end {
        HopEnd::Redirected(status) => (status.as_u16().to_string(), "redirected"),
        HopEnd::Retried(cause) => ("retry".to_owned(), cause.as_str()),
    };
    let (what, remote) = (Some(what.to_owned()), hop.remote.map(|remote| remote.to_string()));
    let how = hop.remote.map(|_| if hop.reused { "reused" } else { "new" }.to_owned());
    (name, fit(room, [[what.clone(), how, remote.clone()], [what.clone(), remote, None], [what, None, None]]))
}

fn line(timings: &Timings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{}", span(timings.total()))?;
    for (index, phase) in shown(timings).enumerate() {
        let plus = if index == 0 { " =" } else { " +" };
        write!(f, "{plus} {phase} {}", span(timings.spent(phase)))?;
        if phase == Phase::Dns
            && let Some(source) = timings.dns_source()
        {
            write!(f, " ({source})")?;
        }
    }
    for hop in timings.hops() {
        match hop.end {
            HopEnd::Redirected(status) => write!(f, ", redirected ({})", status.as_u16())?,
            HopEnd::Retried(cause) => write!(f, ", retried ({cause})")?,
        }
    }
    if let Some(why) = timings.failure() {
        write!(f, ", failed ({why})")?;
    }
    let Some(remote) = timings.remote_addr() else { return Ok(()) };
    write!(f, ", {} {remote}", if timings.reused() { "reused" } else { "new" })?;
    if timings.freed() {
        f.write_str(", freed while another was being opened")?;
    }
    Ok(())
}

/// The phases a line names: those that took time, or had something to say.
fn shown(timings: &Timings) -> impl Iterator<Item = Phase> {
    Phase::ALL.into_iter().filter(|&phase| {
        timings.spent(phase) > Duration::ZERO || (phase == Phase::Dns && timings.dns_source().is_some())
    })
}

/// A bar as long as its share of the total, and how far from the left its time lies; anything above zero leaves a mark.
fn bar(before: Duration, spent: Duration, total: Duration, columns: usize) -> (usize, String) {
    if spent.is_zero() || total.is_zero() {
        return (0, String::new());
    }
    let column = |at: Duration| (at.as_secs_f64() / total.as_secs_f64() * columns as f64).round() as usize;
    let from = column(before).min(columns - 1);
    let cells = column(before + spent).saturating_sub(from);
    (from, if cells == 0 { "▏".to_owned() } else { "█".repeat(cells) })
}

pub(super) fn note(timings: &Timings, phase: Phase, room: usize) -> String {
    if let Some(why) = timings.failure().filter(|_| timings.phase() == phase) {
        return cut(format!("failed: {why}"), room);
    }
    match phase {
        Phase::Dns => match timings.used_lookup() {
            None if timings.reused() => "not asked".to_owned(),
            None => String::new(),
            Some(lookup) if lookup.error.is_some() => "failed".to_owned(),
            Some(lookup) => answer(lookup, room),
        },
        Phase::Queue if timings.freed() => fit(room, [["freed while another was opened".to_owned().into()]]),
        Phase::Queue => {
            timings.queued_by().map_or_else(String::new, |limit| fit(room, [[Some(short(limit).to_owned())]]))
        }
        Phase::Connect if timings.reused() => "reused connection".to_owned(),
        Phase::Connect => attempts(timings, room),
        Phase::Tls => timings.tls_facts().map(|facts| secrecy(facts, room)).unwrap_or_default(),
        Phase::Wait => timings.status().map(|status| format!("status {}", status.as_u16())).unwrap_or_default(),
        Phase::Receive if timings.is_complete() && timings.failure().is_none() => size(timings.received_bytes()),
        _ => String::new(),
    }
}

fn answer(lookup: &DnsLookup, room: usize) -> String {
    let source = lookup.source.to_string();
    let ttl = (lookup.source != Source::Literal).then(|| format!("TTL {}", span(lookup.ttl)));
    let first = lookup.addresses.first().map(ToString::to_string);
    let more = lookup.addresses.len().checked_sub(2).map(|more| format!("+{}", more + 1));
    let full = [Some(source.clone()), ttl.clone(), first.clone(), more.clone()];
    fit(room, [full, [Some(source.clone()), ttl, first.clone(), None], [Some(source), first, more, None]])
}

/// Version, protocol, whether the session was resumed; and first of all that nobody was verified, where that is so.
fn secrecy(facts: &TlsFacts, room: usize) -> String {
    let unverified = (!facts.verified).then(|| "NOT VERIFIED".to_owned());
    let version = Some(facts.version.replacen('_', ".", 1));
    let resumed = facts.resumed.then(|| "resumed".to_owned());
    let alpn = facts.alpn.as_deref().map(str::to_owned);
    fit(room, [[unverified.clone(), version.clone(), alpn, resumed], [unverified, version, None, None]])
}

fn attempts(timings: &Timings, room: usize) -> String {
    let failed = timings.failed_last();
    let failed = (failed > 0).then(|| format!("{failed} failed"));
    match timings.remote_addr() {
        None => fit(room, [[failed]]),
        Some(remote) => fit(
            room,
            [
                [Some("new".to_owned()), Some(remote.to_string()), failed.clone()],
                [Some(remote.to_string()), failed.clone(), None],
                [failed, Some(remote.to_string()), None],
            ],
        ),
    }
}

/// The first way to put it that fits, or as much as fits of the last.
fn fit<const PARTS: usize, const WAYS: usize>(room: usize, ways: [[Option<String>; PARTS]; WAYS]) -> String {
    let mut text = String::new();
    for parts in ways {
        text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if text.chars().count() <= room {
            return text;
        }
    }
    cut(text, room)
}

/// As much of a text as there is room for.
pub(super) fn cut(text: String, room: usize) -> String {
    if text.chars().count() <= room {
        return text;
    }
    let mut cut: String = text.chars().take(room.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// What a call waited for, in a few words.
fn short(limit: Limit) -> &'static str {
    match limit {
        Limit::Opening => "",
        Limit::Dials => "dials to the host",
        Limit::ConnectionsPerHost => "connections per host",
        Limit::Streams => "HTTP/2 streams",
        Limit::Connections => "connections in total",
        Limit::Descriptors => "no descriptors",
        Limit::Calm => "the server asked for calm",
        Limit::Draining => "draining",
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        ..=999 => format!("{bytes} B"),
        1_000..=999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// A time in the unit that leaves it at most three digits before the point.
pub(super) fn span(time: Duration) -> String {
    let micros = time.as_nanos() as f64 / 1e3;
    match micros {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{micros:.1} µs"),
        ..999.5 => format!("{micros:.0} µs"),
        ..9_995.0 => format!("{:.2} ms", micros / 1e3),
        ..99_950.0 => format!("{:.1} ms", micros / 1e3),
        ..999_500.0 => format!("{:.0} ms", micros / 1e3),
        ..9_995_000.0 => format!("{:.2} s", micros / 1e6),
        ..99_950_000.0 => format!("{:.1} s", micros / 1e6),
        _ => format!("{:.0} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;

    use super::super::event::{Event, Family};
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_note_on_tls_says_first_what_is_wrong_with_it() {
        let facts = |alpn: Option<&str>, resumed, verified| TlsFacts {
            version: "TLSv1_3",
            cipher_suite: "TLS13_AES_256_GCM_SHA384",
            alpn: alpn.map(Into::into),
            resumed,
            verified,
            peer_certificates: Vec::new(),
        };
        assert_eq!(secrecy(&facts(Some("h2"), true, true), 33), "TLSv1.3, h2, resumed");
        assert_eq!(secrecy(&facts(None, false, true), 33), "TLSv1.3");
        assert_eq!(secrecy(&facts(Some("http/1.1"), true, false), 33), "NOT VERIFIED, TLSv1.3");
    }

    fn cold() -> Timings {
        let start = crate::clock::now();
        let remote = SocketAddr::from(([192, 0, 2, 1], 8080));
        let ip: Arc<[IpAddr]> = [remote.ip()].into();
        let (idle, waited) = Default::default();
        let leased =
            Event::Leased { connection: 1, remote: Some(remote), requests: 0, idle, tls: None, waited, freed: false };
        let mut timings = Timings::new(start);
        for (at, event) in [
            (0, Event::DnsStart { name: "api.test".into(), family: Family::V4 }),
            (10, Event::DnsEnd(DnsLookup::answered("api.test".into(), Family::V4, ip, ms(2_000), Source::Miss))),
            (10, Event::AttemptStart { address: remote }),
            (30, Event::AttemptEnd { address: remote, error: None }),
            (30, leased),
            (30, Event::RequestSent { body: 0 }),
            (80, Event::FirstByte),
            (100, Event::BodyEnd { bytes: 2 }),
        ] {
            timings.fold(start + ms(at), &event);
        }
        timings
    }

    #[test]
    fn one_line_says_what_took_time() {
        assert_eq!(
            cold().to_string(),
            "100 ms = dns 10.0 ms (miss) + connect 20.0 ms + wait 50.0 ms + receive 20.0 ms, new 192.0.2.1:8080"
        );
    }

    #[test]
    fn the_waterfall_is_proportional_and_fits_80_columns() {
        let text = cold().waterfall().width(80).color(false).to_string();
        assert_eq!(
            text,
            "  queue           0
  dns       10.0 ms  ██                        miss, TTL 2.00 s, 192.0.2.1
  connect   20.0 ms    █████                   new, 192.0.2.1:8080
  tls             0
  send            0
  wait      50.0 ms         ████████████
  receive   20.0 ms                     █████  2 B
  total      100 ms"
        );
    }

    #[test]
    fn notes_too_long_for_80_columns_leave_out_what_matters_least() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(fit(33, [[some("short"), some("and sweet")]]), "short, and sweet");
        let v6 = "2001:db8:1111:2222:3333:4444:5555:6666";
        assert_eq!(fit(33, [[some("new"), some(v6)], [some("192.0.2.1"), None]]), "192.0.2.1");
        let cut = fit(33, [[some(v6)]]);
        assert!(cut.starts_with("2001:db8:1111:2222:3333:") && cut.chars().count() == 33 && cut.ends_with('…'));
    }

    #[test]
    fn spans_have_about_three_digits() {
        let spans = [0, 40, 999_900, 1_250_000, 31_000_000, 1_500_000_000, 125_000_000_000].map(Duration::from_nanos);
        assert_eq!(spans.map(span), ["0", "0.0 µs", "1.00 ms", "1.25 ms", "31.0 ms", "1.50 s", "125 s"]);
    }
}
