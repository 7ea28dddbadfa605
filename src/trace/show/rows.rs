//! The layout of a call's waterfall, which the text, the pictures and dashboards share.

use std::time::Duration;

use crate::trace::events::causes::Limit;
use crate::trace::events::event::TlsFacts;
use crate::trace::events::lookup::{DnsLookup, Source};
use crate::trace::events::phase::Phase;
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
