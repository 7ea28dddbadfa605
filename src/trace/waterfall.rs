//! Timings as text: one line, or a waterfall for a terminal of 80 columns.

use std::fmt;
use std::time::Duration;

use super::event::{DnsLookup, Phase, Source, TlsFacts};
use super::timings::{Outcome, Timings};

const BAR: usize = 24;
/// What is left of 80 columns for a note.
const NOTE: usize = 80 - 2 - 8 - 9 - 2 - BAR - 2;

impl fmt::Display for Timings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { waterfall(self, f) } else { line(self, f) }
    }
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
    let Some(remote) = timings.remote_addr() else { return Ok(()) };
    write!(f, ", {} {remote}", if timings.reused() { "reused" } else { "new" })
}

fn waterfall(timings: &Timings, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut before = Duration::ZERO;
    for phase in Phase::ALL {
        let spent = timings.spent(phase);
        if phase == Phase::Proxy && spent.is_zero() {
            continue;
        }
        let row = format!(
            "  {phase:<8}{:>9}  {:<BAR$}  {}",
            span(spent),
            bar(before, spent, timings.total()),
            note(timings, phase)
        );
        writeln!(f, "{}", row.trim_end())?;
        before += spent;
    }
    write!(f, "  {:<8}{:>9}", "total", span(timings.total()))
}

/// The phases a line names: those that took time, or had something to say.
fn shown(timings: &Timings) -> impl Iterator<Item = Phase> {
    Phase::ALL.into_iter().filter(|&phase| {
        timings.spent(phase) > Duration::ZERO || (phase == Phase::Dns && timings.dns_source().is_some())
    })
}

/// A bar as long as its share of the total, where its time lies; anything above zero leaves a mark.
fn bar(before: Duration, spent: Duration, total: Duration) -> String {
    if spent.is_zero() || total.is_zero() {
        return String::new();
    }
    let column = |at: Duration| (at.as_secs_f64() / total.as_secs_f64() * BAR as f64).round() as usize;
    let from = column(before).min(BAR - 1);
    let cells = column(before + spent).saturating_sub(from);
    let mark = if cells == 0 { "▏".to_owned() } else { "█".repeat(cells) };
    format!("{}{mark}", " ".repeat(from))
}

fn note(timings: &Timings, phase: Phase) -> String {
    match phase {
        Phase::Dns => match timings.used_lookup() {
            None if timings.reused() => "not asked".to_owned(),
            None => String::new(),
            Some(lookup) if lookup.error.is_some() => "failed".to_owned(),
            Some(lookup) => answer(lookup),
        },
        Phase::Connect if timings.reused() => "reused connection".to_owned(),
        Phase::Connect => attempts(timings),
        Phase::Tls => timings.tls_facts().map(secrecy).unwrap_or_default(),
        _ => String::new(),
    }
}

fn answer(lookup: &DnsLookup) -> String {
    let source = lookup.source.to_string();
    let ttl = (lookup.source != Source::Literal).then(|| format!("TTL {}", span(lookup.ttl)));
    let first = lookup.addresses.first().map(ToString::to_string);
    let more = lookup.addresses.len().checked_sub(2).map(|more| format!("+{}", more + 1));
    let full = [Some(source.clone()), ttl.clone(), first.clone(), more.clone()];
    fit([full, [Some(source.clone()), ttl, first.clone(), None], [Some(source), first, more, None]])
}

/// Version, protocol, whether the session was resumed; and first of all that nobody was verified, where that is so.
fn secrecy(facts: &TlsFacts) -> String {
    let unverified = (!facts.verified).then(|| "NOT VERIFIED".to_owned());
    let version = Some(facts.version.replacen('_', ".", 1));
    let resumed = facts.resumed.then(|| "resumed".to_owned());
    let alpn = facts.alpn.as_deref().map(str::to_owned);
    fit([[unverified.clone(), version.clone(), alpn, resumed], [unverified, version, None, None]])
}

fn attempts(timings: &Timings) -> String {
    let failed = timings.attempts().iter().filter(|attempt| matches!(attempt.outcome, Outcome::Failed(_))).count();
    let failed = (failed > 0).then(|| format!("{failed} failed"));
    match timings.remote_addr() {
        None => fit([[failed]]),
        Some(remote) => fit([
            [Some("new".to_owned()), Some(remote.to_string()), failed.clone()],
            [Some(remote.to_string()), failed.clone(), None],
            [failed, Some(remote.to_string()), None],
        ]),
    }
}

/// The first way to put it that fits, or as much as fits of the last.
fn fit<const PARTS: usize, const WAYS: usize>(ways: [[Option<String>; PARTS]; WAYS]) -> String {
    let mut text = String::new();
    for parts in ways {
        text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if text.chars().count() <= NOTE {
            return text;
        }
    }
    let mut cut: String = text.chars().take(NOTE - 1).collect();
    cut.push('…');
    cut
}

/// A time in the unit that leaves it at most three digits before the point.
fn span(time: Duration) -> String {
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
        assert_eq!(secrecy(&facts(Some("h2"), true, true)), "TLSv1.3, h2, resumed");
        assert_eq!(secrecy(&facts(None, false, true)), "TLSv1.3");
        assert_eq!(secrecy(&facts(Some("http/1.1"), true, false)), "NOT VERIFIED, TLSv1.3");
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
        let text = format!("{:#}", cold());
        assert_eq!(
            text,
            "  queue           0
  dns       10.0 ms  ██                        miss, TTL 2.00 s, 192.0.2.1
  connect   20.0 ms    █████                   new, 192.0.2.1:8080
  tls             0
  send            0
  wait      50.0 ms         ████████████
  receive   20.0 ms                     █████
  total      100 ms"
        );
    }

    #[test]
    fn notes_too_long_for_80_columns_leave_out_what_matters_least() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(fit([[some("short"), some("and sweet")]]), "short, and sweet");
        let v6 = "2001:db8:1111:2222:3333:4444:5555:6666";
        assert_eq!(fit([[some("new"), some(v6)], [some("192.0.2.1"), None]]), "192.0.2.1");
        let cut = fit([[some(v6)]]);
        assert!(cut.starts_with("2001:db8:1111:2222:3333:") && cut.chars().count() == NOTE && cut.ends_with('…'));
    }

    #[test]
    fn spans_have_about_three_digits() {
        let spans = [0, 40, 999_900, 1_250_000, 31_000_000, 1_500_000_000, 125_000_000_000].map(Duration::from_nanos);
        assert_eq!(spans.map(span), ["0", "0.0 µs", "1.00 ms", "1.25 ms", "31.0 ms", "1.50 s", "125 s"]);
    }
}
