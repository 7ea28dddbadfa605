//! What works and takes long: DNS, one address of several, TLS. A core.

use std::time::Duration;

use super::super::finding::{Finding, Problem};
use super::super::report::{AddressReport, Report};
use super::words::{list, verb};
use crate::trace::Family;

/// The time of a lookup from which on it is slow. A server that knows the answer is within 30 ms almost everywhere.
const SLOW_LOOKUP: Duration = Duration::from_millis(100);
/// The least time by which an address is slower than the fastest one, beside a multiple of that one's.
const SLOWER_BY: Duration = Duration::from_millis(100);
const TIMES_SLOWER: u32 = 3;
/// The time of a handshake from which on it is slow, beside that of two ways to the server and back.
#[cfg(feature = "__tls")]
const SLOW_HANDSHAKE: Duration = Duration::from_millis(200);

/// Returns what takes long. `found` explains a lookup that waited for servers.
pub(super) fn check(report: &Report, found: &[Finding]) -> Vec<Finding> {
    let lookups = lookup(report).filter(|_| !found.iter().any(|finding| explains_lookup(finding.problem)));
    let slow = lookups.into_iter().chain(address(report));
    #[cfg(feature = "__tls")]
    let slow = slow.chain(handshake(report));
    slow.collect()
}

fn explains_lookup(problem: Problem) -> bool {
    matches!(
        problem,
        Problem::DnsServerSilent
            | Problem::DnsServerUnreachable
            | Problem::DnsServerFails
            | Problem::DnsServerRefuses
            | Problem::DnsTcpFails
            | Problem::DnsUdpFails
            | Problem::DnsFamilyUnanswered
    )
}

fn lookup(report: &Report) -> Option<Finding> {
    let names = report.names.as_ref()?;
    let answered = names.lookups.iter().filter(|lookup| lookup.answer.is_ok());
    let slowest = answered.max_by_key(|lookup| lookup.elapsed).filter(|lookup| lookup.elapsed >= SLOW_LOOKUP)?;
    let record = if slowest.family == Family::V4 { "A" } else { "AAAA" };
    Some(Finding::new(
        Problem::DnsSlow,
        format!("The lookup of {} ({record}) took {}.", names.name, millis(slowest.elapsed)),
        "Use a DNS server that is near, or a cache on this machine. The client asks again ahead of the TTL's end, so that calls wait for \
         the first lookup alone.",
    ))
}

fn address(report: &Report) -> Option<Finding> {
    let usable = || report.addresses.iter().filter(|address| address.is_usable());
    let fastest = usable().map(|address| address.elapsed).min()?;
    let limit = (fastest * TIMES_SLOWER).max(fastest + SLOWER_BY);
    let slow: Vec<&AddressReport> = usable().filter(|address| address.elapsed >= limit).collect();
    let slowest = slow.iter().map(|address| address.elapsed).max()?;
    Some(Finding::new(
        Problem::AddressSlow,
        format!(
            "{} {} up to {} to connect, and the fastest address {}.",
            list(slow.iter().map(|address| address.address)),
            verb(slow.len(), "takes", "take"),
            millis(slowest),
            millis(fastest)
        ),
        "Look at the way there (a lost packet costs a second) and at the load of its server. New connections prefer the others.",
    ))
}

#[cfg(feature = "__tls")]
fn handshake(report: &Report) -> Option<Finding> {
    let of_addresses = report.addresses.iter().filter_map(|address| {
        let tls = address.tls.as_ref().filter(|tls| tls.session.is_ok())?;
        Some((tls.elapsed, address.elapsed, address.address.to_string()))
    });
    let (took, connect, whose) = of_addresses.max_by_key(|(took, ..)| *took)?;
    (took >= SLOW_HANDSHAKE + connect * 2).then(|| {
        Finding::new(
            Problem::TlsSlow,
            format!("The TLS handshake with {whose} took {}, the connection before it {}.", millis(took), millis(connect)),
            "The server needs this time to sign: let it have a key that is quick (ECDSA P-256 in place of RSA 4096) or more processor \
             time. Connections that are kept need no handshake (`warm_up`, `min_idle_per_host`).",
        )
    })
}

fn millis(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
mod tests {
    use super::super::samples::{address as usable, failed_address, report};
    use super::*;
    use crate::doctor::failure::FailureKind;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn texts(report: &Report, found: &[Finding]) -> Vec<String> {
        check(report, found).into_iter().map(|finding| finding.text).collect()
    }

    fn at(address: &str, elapsed: u64) -> AddressReport {
        AddressReport { elapsed: ms(elapsed), ..usable(address) }
    }

    #[test]
    fn a_lookup_is_slow_from_100_ms_on_unless_a_server_explains_it() {
        let mut report = report();
        let mut of = |elapsed, problem: Option<Problem>| {
            report.names.as_mut().unwrap().lookups[0].elapsed = ms(elapsed);
            let found: Vec<_> = problem.into_iter().map(|problem| Finding::new(problem, "", "")).collect();
            texts(&report, &found)
        };
        assert_eq!(of(99, None), [""; 0]);
        assert_eq!(of(100, None), ["The lookup of api.test (A) took 100 ms."]);
        assert_eq!(of(3_000, Some(Problem::DnsServerSilent)), [""; 0]);
        assert_eq!(of(3_000, Some(Problem::ClockSkew)).len(), 1);
    }

    #[test]
    fn an_address_is_slow_beside_a_faster_one() {
        let of = |addresses| {
            let mut report = report();
            report.addresses = addresses;
            texts(&report, &[])
        };
        assert_eq!(of(vec![at("192.0.2.1:80", 900)]), [""; 0], "the server is far");
        assert_eq!(of(vec![at("192.0.2.1:80", 12), at("192.0.2.2:80", 111)]), [""; 0]);
        assert_eq!(of(vec![at("192.0.2.1:80", 100), at("192.0.2.2:80", 299)]), [""; 0]);
        let two = vec![at("192.0.2.1:80", 12), at("192.0.2.2:80", 320), at("192.0.2.3:80", 112)];
        assert_eq!(
            of(two),
            ["192.0.2.2:80 and 192.0.2.3:80 take up to 320 ms to connect, and the fastest address 12 ms."]
        );
        let failed = AddressReport { elapsed: ms(1), ..failed_address("192.0.2.1:80", FailureKind::Refused) };
        assert_eq!(of(vec![failed, at("192.0.2.2:80", 320)]), [""; 0], "an address that refuses is not the faster one");
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn a_handshake_is_slow_beyond_two_ways_to_the_server_and_back() {
        use super::super::samples::{handshake, refused_handshake};
        use crate::doctor::report::TlsReport;
        use crate::tls::CertificateProblem;
        let of = |connect, tls: TlsReport| {
            let mut report = report();
            report.addresses = vec![AddressReport { tls: Some(tls), ..at("192.0.2.1:443", connect) }];
            texts(&report, &[])
        };
        let took = |elapsed| TlsReport { elapsed: ms(elapsed), ..handshake() };
        assert_eq!((of(150, took(499)), of(0, took(199))), (vec![], vec![]));
        assert_eq!(
            of(6, took(606)),
            ["The TLS handshake with 192.0.2.1:443 took 606 ms, the connection before it 6 ms."]
        );
        let refused = TlsReport { elapsed: ms(606), ..refused_handshake(CertificateProblem::Expired) };
        assert_eq!(of(6, refused), [""; 0]);
    }
}
