//! The time of a request's way to its connection: the queue, DNS, the dial, the proxy and TLS. Why the connection was a new one.

use std::time::Duration;

use super::super::timings::{QueueEntry, Timings};
use super::{Found, TimePart};
use crate::trace::events::event::{HostClose, Phase};
use crate::trace::events::{AskedServers, CloseCause, DnsLookup, Family, Limit, Source};
use crate::trace::text::span;
use crate::trace::timings::hops::{DialFacts, DialOutcome, DialledAddress};
use crate::trace::why::Cause;

/// The least time between the answers for the two families of which the later one counts as late.
const LEAST_DELAY: Duration = Duration::from_millis(10);

/// Finds what the last request's way to its connection took.
pub(super) fn find(timings: &Timings, found: &mut Found) {
    let first = found.parts.len();
    let spent = |phase| timings.spent_on(phase);
    find_queue(timings, spent(Phase::Queue), found);
    // While a family's answer was late, and each address that was known had failed, nothing was dialled.
    let (dialling, between) = timings.dialled_for(spent(Phase::Connect));
    let is_dns = between >= LEAST_DELAY && find_dns(timings, spent(Phase::Dns) + between, found);
    if !is_dns {
        find_dns(timings, spent(Phase::Dns), found);
    }
    find_connect(timings, if is_dns { dialling } else { dialling + between }, found);
    let proxy = spent(Phase::Proxy);
    if timings.remote_addr().is_some() {
        found.add_around(Cause::ProxySlow, Phase::Proxy, proxy, "the proxy took", " to connect to the origin");
    } else {
        let clause = "were spent waiting for the proxy, which had not connected to the origin";
        found.add(Cause::ProxySlow, Phase::Proxy, proxy, clause);
    }
    find_tls(timings, spent(Phase::Tls), found);
    let opening = [Phase::Dns, Phase::Connect, Phase::Proxy, Phase::Tls];
    let parts = found.parts[first..].iter().filter(|part| opening.contains(&part.phase));
    let longest = parts.max_by_key(|part| part.time);
    let Some(&TimePart { cause: of_longest, phase, time, .. }) = longest else { return };
    let dial = timings.history().dial().filter(|_| !time.is_zero() && !timings.reused());
    if let Some((cause, clause)) = dial.and_then(|dial| reason(dial, of_longest)) {
        found.explain(of_longest, cause, phase, time, clause);
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
        if timings.reused() {
            return; // no connection was waited for
        }
        return found.add(Cause::AwaitedDial, Phase::Queue, time, "were spent before a connection was opened");
    };
    let (cause, reason) = queue_reason(entry, &origin);
    found.add(cause, Phase::Queue, time, format!("were spent in the queue: {reason}"));
    // Where the host has a limit of its own, that for all hosts does not bind.
    if entry.usage.is_some_and(|usage| usage.is_own) {
        found.advise(match cause {
            Cause::StreamsInUse => {
                "raise max_http2_connections of the host's own limits (PoolConfig::for_host) or lower concurrency"
            }
            Cause::DialsInProgress => {
                "raise max_dials of the host's own limits (PoolConfig::for_host), or open connections ahead with warm_up"
            }
            _ => "raise max_connections of the host's own limits (PoolConfig::for_host) or lower concurrency",
        });
    }
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
            (Cause::NoDescriptors, "the process or the system had no file descriptor left (EMFILE)".to_owned())
        }
        Limit::Ports => (Cause::NoPorts, "this machine had no local port left (EADDRNOTAVAIL)".to_owned()),
        Limit::EnhanceYourCalm => {
            (Cause::EnhanceYourCalm, format!("{origin} asked for fewer requests (ENHANCE_YOUR_CALM)"))
        }
        Limit::Settings => (Cause::AwaitedDial, format!("{origin} had not sent the SETTINGS of its HTTP/2 connection")),
        Limit::Opening | Limit::Draining => (Cause::AwaitedDial, awaited_dial(entry, origin)),
    }
}

/// Returns a clause about the connections that were being opened when the request began to wait.
fn awaited_dial(entry: &QueueEntry, origin: &str) -> String {
    match entry.usage.map_or(0, |usage| usage.taken) {
        0 => format!("no connection to {origin} was being opened yet, or one was opened in vain"),
        1 => format!("a connection to {origin} was being opened, and was not ready"),
        opening => format!("{opening} connections to {origin} were being opened, and none was ready"),
    }
}

/// Finds what DNS took, and returns true if it has a cause.
fn find_dns(timings: &Timings, time: Duration, found: &mut Found) -> bool {
    let Some(used) = timings.used_lookup() else {
        found.add(Cause::DnsFailed, Phase::Dns, time, "were spent in DNS, which had not answered");
        return true;
    };
    let Some((cause, reason)) = dns_reason(timings, used, time) else { return false };
    found.add(cause, Phase::Dns, time, format!("were spent in DNS: {reason}"));
    true
}

/// Returns the cause why DNS took its time, unless no server was asked.
fn dns_reason(timings: &Timings, used: &DnsLookup, time: Duration) -> Option<(Cause, String)> {
    let name = &used.name;
    let late = late_family(timings, used, time);
    if let Some(servers) = used.servers.as_ref().filter(|servers| late.is_none() && !servers.silent.is_empty()) {
        return Some((Cause::DnsServerSilent, silence(servers)));
    }
    if used.error.is_some() {
        return Some((Cause::DnsFailed, format!("the lookup of {name} failed")));
    }
    if let Some(family) = late {
        let family = if family == Family::V4 { "IPv4 (A)" } else { "IPv6 (AAAA)" };
        return Some((Cause::DnsFamilyLate, format!("the answer for {family} addresses of {name} was late")));
    }
    let searched = used.servers.as_ref().map_or(0, |servers| servers.searched);
    let in_vain = |names: &str, were: &str| {
        (Cause::DnsSearched, format!("{names} that the search list makes of {name} {were} asked for in vain"))
    };
    match (searched, used.source) {
        (_, Source::Stale) => {
            Some((Cause::DnsStale, format!("no new answer for {name} came, and an expired one was used")))
        }
        (1, _) => Some(in_vain("a name", "was")),
        (2.., _) => Some(in_vain(&format!("{searched} names"), "were")),
        (0, Source::Miss) => Some((Cause::DnsQueried, format!("the answer for {name} was not in the cache"))),
        (0, Source::Coalesced) => Some((Cause::DnsQueried, format!("{name} was being looked up for another request"))),
        (0, Source::Hit | Source::Pinned | Source::Hosts | Source::Fixed | Source::Literal) => None,
    }
}

/// Returns a clause about DNS servers that did not answer.
fn silence(servers: &AskedServers) -> String {
    let answered = servers.answered;
    let others: Vec<_> =
        servers.silent.iter().filter(|silent| Some(**silent) != answered).map(ToString::to_string).collect();
    match answered {
        Some(answered) if others.is_empty() => format!("{answered} did not answer at first"),
        Some(answered) => format!("{} did not answer and {answered} did", others.join(" and ")),
        None => format!("{} did not answer and no other server did", others.join(" and ")),
    }
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
    if attempts.is_empty() {
        return find_unix_connect(timings, time, found);
    }
    let connected = attempts.iter().find(|attempt| matches!(attempt.outcome, DialOutcome::Connected));
    let Some(connected) = connected else {
        let clause = match attempts {
            [only] => format!("were spent dialling {}, which did not connect", only.address),
            _ => format!("were spent dialling {} addresses, none of which connected", attempts.len()),
        };
        return found.add(Cause::NoAddressConnected, Phase::Connect, time, clause);
    };
    if let Some((cause, failure)) = lost_before(timings, connected) {
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

/// Finds what connecting to a Unix domain socket took: no address is dialled for it.
fn find_unix_connect(timings: &Timings, time: Duration, found: &mut Found) {
    if timings.connection().is_some() {
        let before = "the connection to the Unix domain socket took";
        found.add_around(Cause::ConnectSlow, Phase::Connect, time, before, "");
    } else {
        let clause = "were spent connecting to the Unix domain socket, which did not accept";
        found.add(Cause::NoAddressConnected, Phase::Connect, time, clause);
    }
}

/// Returns the cause why an address was dialled before the one that connected, and words about it.
fn lost_before(timings: &Timings, connected: &DialledAddress) -> Option<(Cause, String)> {
    let tls_failed = timings.history().tls_failed();
    let before = |attempt: &&DialledAddress| attempt.started < connected.started && Some(attempt.address) != tls_failed;
    let lost_time = |attempt: &DialledAddress| attempt.elapsed.min(connected.started.saturating_sub(attempt.started));
    let lost = timings.attempts_last().iter().filter(before).max_by_key(|attempt| lost_time(attempt))?;
    if lost_time(lost) < connected.elapsed {
        return None; // the address that connected took most of the time
    }
    match &lost.outcome {
        DialOutcome::Failed(error) => Some((Cause::AddressFailed, format!("{}, which failed ({error})", lost.address))),
        _ => Some((Cause::AddressSilent, format!("{}, which did not answer", lost.address))),
    }
}

fn find_tls(timings: &Timings, time: Duration, found: &mut Found) {
    let failed = timings.history().tls_failed();
    if let Some(address) = failed.filter(|failed| timings.remote_addr() != Some(*failed)) {
        let clause = format!("were spent in TLS: the handshake with {address} failed");
        return found.add(Cause::TlsRetried, Phase::Tls, time, clause);
    }
    let Some(facts) = timings.tls_facts() else {
        return found.add(Cause::TlsHandshake, Phase::Tls, time, "were spent in the TLS handshake, which was not over");
    };
    let kind = if facts.resumed { "a session was resumed" } else { "a whole handshake" };
    let version = facts.version.replacen("TLSv", "TLS ", 1).replacen('_', ".", 1);
    let after = format!(" ({version}, {kind})");
    found.add_around(Cause::TlsHandshake, Phase::Tls, time, "the TLS handshake took", after);
}

/// The least number of connections opened in a second from which on a server counts as one that closes each.
const MANY_OPENED: u32 = 2;

/// Returns the cause why a connection was new, and a clause about it. `of_longest` is the cause for which opening it took its time.
pub(super) fn reason(dial: &DialFacts, of_longest: Cause) -> Option<(Cause, String)> {
    if matches!(of_longest, Cause::DnsFailed | Cause::NoAddressConnected) {
        return None; // no connection was opened
    }
    let DialFacts { origin, host } = dial;
    let (cause, because) = match host.last_close {
        _ if host.open == 1 => (Cause::AllInUse, "because the only open one was in use".to_owned()),
        _ if host.open > 1 => (Cause::AllInUse, format!("because all {} open ones were in use", host.open)),
        Some(close) => of_close(close, host.opened_lately),
        // Where an address or DNS fails, an earlier connection would have met that as well.
        None if !matches!(of_longest, Cause::ConnectSlow | Cause::ProxySlow | Cause::TlsHandshake) => return None,
        None => (Cause::FirstConnection, "because no other one was open".to_owned()),
    };
    Some((cause, format!("the connection to {origin} was new {because}")))
}

/// Returns the cause why a host's last connection could not be used again. `opened` connections were opened in the same second.
fn of_close(close: HostClose, opened: u32) -> (Cause, String) {
    let HostClose { cause, requests, was_idle } = close;
    let is_first = requests <= 1;
    match cause {
        CloseCause::Peer | CloseCause::PeerAnnounced if is_first && opened >= MANY_OPENED => {
            let although = "were opened in the last second: the server closes after each answer";
            (Cause::ServerClosesEach, format!("although {opened} {although}"))
        }
        CloseCause::Peer | CloseCause::PeerAnnounced if is_first && !was_idle => {
            (Cause::ServerClosesEach, "because the server had closed the last one after one request".to_owned())
        }
        CloseCause::Peer | CloseCause::PeerAnnounced if was_idle => {
            (Cause::ServerClosedIdle, "because the server had closed the last one, which was idle".to_owned())
        }
        CloseCause::Peer | CloseCause::PeerAnnounced => {
            (Cause::ServerClosed, "because the server had closed the last one".to_owned())
        }
        CloseCause::IdleTimeout => (Cause::IdleTimeout, "because the idle timeout had closed the last one".to_owned()),
        cause => (Cause::ClientClosed, format!("because the last one was closed ({cause})")),
    }
}
