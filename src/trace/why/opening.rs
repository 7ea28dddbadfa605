//! The time of a request's way to its connection: the queue, DNS, the dial, the proxy and TLS.

use std::time::Duration;

use super::super::causes::{CloseCause, Limit};
use super::super::hops::{Attempt, AttemptOutcome, DialFacts};
use super::super::lookup::{DnsLookup, Family, Source};
use super::super::phase::Phase;
use super::super::text::span;
use super::super::timings::{QueueEntry, Timings};
use super::{Cause, Found, Part};

/// The least time between the answers for the two families of which the later one counts as late.
const LEAST_DELAY: Duration = Duration::from_millis(10);
/// The least number of connections opened in a second from which on a server counts as one that closes each.
const MANY_OPENED: u32 = 2;

/// Finds what the last request's way to its connection took.
pub(super) fn find(timings: &Timings, found: &mut Found) {
    let spent = |phase| timings.spent_last(phase);
    find_queue(timings, spent(Phase::Queue), found);
    find_dns(timings, spent(Phase::Dns), found);
    find_connect(timings, spent(Phase::Connect), found);
    let proxy = spent(Phase::Proxy);
    if timings.remote_addr().is_some() {
        found.add_around(Cause::ProxySlow, Phase::Proxy, proxy, "the proxy took", " to connect to the origin");
    } else {
        let clause = "were spent waiting for the proxy, which had not connected to the origin";
        found.add(Cause::ProxySlow, Phase::Proxy, proxy, clause);
    }
    find_tls(timings, spent(Phase::Tls), found);
    let opening = [Phase::Dns, Phase::Connect, Phase::Proxy, Phase::Tls];
    let longest = found.parts.iter().filter(|part| opening.contains(&part.phase)).max_by_key(|part| part.time);
    let Some(&Part { cause: of_longest, phase, time, .. }) = longest else { return };
    let dial = timings.history().dial().filter(|_| !time.is_zero() && !timings.reused());
    if let Some((cause, clause)) = dial.and_then(|dial| why_new(dial, of_longest)) {
        found.add_context(cause, phase, time, clause);
    }
}

fn find_queue(timings: &Timings, time: Duration, found: &mut Found) {
    let entry = timings.queue_entry();
    let origin = entry.map_or_else(|| "the host".to_owned(), |entry| entry.origin.to_string());
    if timings.freed() {
        let clause = format!("were spent in the queue, until another request released its connection to {origin}");
        return found.add(Cause::AwaitedRelease, Phase::Queue, time, clause);
    }
    let Some(entry) = entry else {
        return found.add(Cause::AwaitedDial, Phase::Queue, time, "were spent before a connection was opened");
    };
    let (cause, reason) = queue_reason(entry, &origin);
    found.add(cause, Phase::Queue, time, format!("were spent in the queue: {reason}"));
}

fn queue_reason(entry: &QueueEntry, origin: &str) -> (Cause, String) {
    let usage = |what: &str| match entry.usage {
        Some(usage) => format!("{} of {} {what}", usage.taken, usage.limit),
        None => format!("all {what}"),
    };
    match entry.limit {
        Limit::ConnectionsPerHost => {
            (Cause::HostConnectionsInUse, format!("{origin} had {} in use", usage("connections")))
        }
        Limit::Connections => (Cause::PoolConnectionsInUse, format!("the pool had {} in use", usage("connections"))),
        Limit::Streams => (Cause::StreamsInUse, format!("{origin} had {} in use", usage("HTTP/2 streams"))),
        Limit::Dials => (Cause::DialsInProgress, format!("{origin} had {} being opened", usage("connections"))),
        Limit::Descriptors => {
            (Cause::NoDescriptors, "the process or the system had no file descriptor or port left".to_owned())
        }
        Limit::EnhanceYourCalm => {
            (Cause::EnhanceYourCalm, format!("{origin} asked for fewer requests (ENHANCE_YOUR_CALM)"))
        }
        Limit::Opening | Limit::Draining => {
            (Cause::AwaitedDial, format!("no connection to {origin} was being opened yet, or one was opened in vain"))
        }
    }
}

fn find_dns(timings: &Timings, time: Duration, found: &mut Found) {
    let Some(used) = timings.used_lookup() else {
        return found.add(Cause::DnsFailed, Phase::Dns, time, "were spent in DNS, which had not answered");
    };
    let (cause, reason) = dns_reason(timings, used, time);
    found.add(cause, Phase::Dns, time, format!("were spent in DNS: {reason}"));
}

fn dns_reason(timings: &Timings, used: &DnsLookup, time: Duration) -> (Cause, String) {
    let name = &used.name;
    let late = late_family(timings, used, time);
    if let Some(servers) = used.servers.as_ref().filter(|servers| late.is_none() && !servers.silent.is_empty()) {
        let silent = servers.silent.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let and_then = match servers.answered {
            Some(answered) if servers.silent.contains(&answered) => "at first".to_owned(),
            Some(answered) => format!("and {answered} did"),
            None => "and no other server did".to_owned(),
        };
        return (Cause::DnsServerSilent, format!("{silent} did not answer {and_then}"));
    }
    if used.error.is_some() {
        return (Cause::DnsFailed, format!("the lookup of {name} failed"));
    }
    if let Some(family) = late {
        let family = if family == Family::V4 { "IPv4 (A)" } else { "IPv6 (AAAA)" };
        return (Cause::DnsFamilyLate, format!("the answer for {family} addresses of {name} was late"));
    }
    if used.source == Source::Stale {
        return (Cause::DnsStale, format!("no new answer for {name} came, and an expired one was used"));
    }
    match used.servers.as_ref().map_or(0, |servers| servers.searched) {
        0 => {}
        1 => {
            let reason = format!("a name that the search list makes of {name} was asked for in vain");
            return (Cause::DnsSearched, reason);
        }
        searched => {
            let reason = format!("{searched} names that the search list makes of {name} were asked for in vain");
            return (Cause::DnsSearched, reason);
        }
    }
    let reason = match used.source {
        Source::Coalesced => format!("{name} was being looked up for another request"),
        _ => format!("the answer for {name} was not in the cache"),
    };
    (Cause::DnsQueried, reason)
}

/// Returns the family whose answer was waited for after that of the other one, which was used, had come, if that took most of
/// the time.
fn late_family(timings: &Timings, used: &DnsLookup, time: Duration) -> Option<Family> {
    let late = time.saturating_sub(used.elapsed);
    if late < LEAST_DELAY.max(time / 2) || used.error.is_some() {
        return None;
    }
    Some(used.family.other()).filter(|_| !timings.attempts_last().is_empty())
}

fn find_connect(timings: &Timings, time: Duration, found: &mut Found) {
    let attempts = timings.attempts_last();
    let connected = attempts.iter().find(|attempt| matches!(attempt.outcome, AttemptOutcome::Connected));
    let Some(connected) = connected else {
        let addresses = match attempts {
            [only] => only.address.to_string(),
            _ => format!("{} addresses", attempts.len()),
        };
        let clause = format!("were spent dialling {addresses} in vain");
        return found.add(Cause::NoAddressConnected, Phase::Connect, time, clause);
    };
    if let Some(lost) = lost_before(attempts, connected) {
        let (cause, failure) = lost;
        let clause = format!("were lost on {failure}; {} connected in {}", connected.address, span(connected.elapsed));
        // The time of the address that connected is not lost.
        return found.add(cause, Phase::Connect, time.saturating_sub(connected.elapsed).max(time / 2), clause);
    }
    match connected.resent_syns {
        0 => {
            let before = format!("the connection to {} took", connected.address);
            found.add_around(Cause::ConnectSlow, Phase::Connect, time, before, "");
        }
        count => {
            let packets = if count == 1 { "one lost SYN".to_owned() } else { format!("{count} lost SYNs") };
            let clause = format!("were {packets}: {} answered only when it was sent again", connected.address);
            found.add(Cause::LostSyn, Phase::Connect, time, clause);
        }
    }
}

/// Returns the cause why an address was dialled before the one that connected, and words about it.
fn lost_before(attempts: &[Attempt], connected: &Attempt) -> Option<(Cause, String)> {
    let lost = attempts.iter().find(|attempt| attempt.started < connected.started)?;
    let lost_time = connected.started.saturating_sub(lost.started);
    if lost_time < connected.elapsed {
        return None; // the address that connected took most of the time
    }
    match &lost.outcome {
        AttemptOutcome::Failed(error) => {
            Some((Cause::AddressFailed, format!("{}, which failed ({error})", lost.address)))
        }
        _ => Some((Cause::AddressSilent, format!("{}, which did not answer", lost.address))),
    }
}

fn find_tls(timings: &Timings, time: Duration, found: &mut Found) {
    let mut failed =
        timings.attempts_last().iter().filter(|attempt| matches!(attempt.outcome, AttemptOutcome::Failed(_)));
    let version = timings.tls_facts().map_or(String::new(), |facts| {
        let kind = if facts.resumed { "a session was resumed" } else { "a whole handshake" };
        format!(" ({}, {kind})", facts.version.replacen("TLSv", "TLS ", 1).replacen('_', ".", 1))
    });
    match failed.rfind(|attempt| timings.remote_addr() != Some(attempt.address)) {
        Some(attempt) if timings.history().tls_failed() => {
            let clause = format!("were spent in TLS: the handshake with {} failed", attempt.address);
            found.add(Cause::TlsRetried, Phase::Tls, time, clause);
        }
        _ if timings.tls_facts().is_none() => {
            found.add(Cause::TlsHandshake, Phase::Tls, time, "were spent in the TLS handshake, which was not over");
        }
        _ => found.add_around(Cause::TlsHandshake, Phase::Tls, time, "the TLS handshake took", version),
    }
}

/// Returns the cause why a connection was opened rather than used again, and a clause about it. `of_longest` is the cause for which
/// opening it took its time.
fn why_new(dial: &DialFacts, of_longest: Cause) -> Option<(Cause, String)> {
    if matches!(of_longest, Cause::DnsFailed | Cause::NoAddressConnected) {
        return None; // no connection was opened
    }
    let DialFacts { origin, host } = dial;
    let new = |because: &str| format!("the connection to {origin} was new {because}");
    if host.open > 0 {
        let open = match host.open {
            1 => "the only open one was".to_owned(),
            open => format!("all {open} open ones were"),
        };
        return Some((Cause::AllInUse, new(&format!("because {open} in use"))));
    }
    let Some(close) = host.last_close else {
        // Where an address or DNS fails, an earlier connection would have met that as well.
        let is_usual = matches!(of_longest, Cause::ConnectSlow | Cause::ProxySlow | Cause::TlsHandshake);
        return is_usual.then(|| (Cause::FirstConnection, new("because no other one was open")));
    };
    Some(match close.cause {
        CloseCause::Peer | CloseCause::PeerAnnounced if close.requests <= 1 && host.opened_lately >= MANY_OPENED => {
            let opened = host.opened_lately;
            let although =
                format!("although {opened} were opened in the last second: the server closes after each answer");
            (Cause::ServerClosesEach, new(&although))
        }
        CloseCause::Peer | CloseCause::PeerAnnounced => {
            (Cause::ServerClosedIdle, new("because the server had closed the last one"))
        }
        CloseCause::IdleTimeout => (Cause::IdleTimeout, new("because the idle timeout had closed the last one")),
        cause => (Cause::ClientClosed, new(&format!("because the last one was closed ({cause})"))),
    })
}
