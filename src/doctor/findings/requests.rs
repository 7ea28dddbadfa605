//! Problems of requests, of kept connections, and of clocks; and what takes long. A core.

use std::time::Duration;

use super::super::failure::{Failure, FailureKind};
use super::super::report::ResponseReport;
use crate::doctor::finding::{Finding, Problem, list, roughly, verb};
use crate::doctor::report::{AddressReport, Report};
use crate::origin::Scheme;
use crate::trace::Family;

/// The difference of clocks from which on it is a problem: tokens and signatures are often valid for a minute or less.
const TOLERATED_SKEW_SECS: u64 = 30;
/// The status by which a proxy asks for credentials (RFC 9110 §15.5.8).
const PROXY_AUTHENTICATION_REQUIRED: u16 = 407;
/// The statuses by which a gateway says that it got no response, or none that it understands (RFC 9110 §15.6).
const GATEWAY_ERRORS: [u16; 3] = [502, 503, 504];

pub(super) fn check(report: &Report) -> Vec<Finding> {
    let responses: Vec<_> = report.requests.iter().filter_map(|request| request.response.as_ref().ok()).collect();
    let failure = report.requests.iter().find_map(|request| request.response.as_ref().err());
    let is_proxied = report.route.proxy.is_some();
    if is_proxied && responses.iter().any(|response| response.status == PROXY_AUTHENTICATION_REQUIRED) {
        return vec![credentials(report, "it answers 407")];
    }
    if let Some(finding) = refused_by_gateway(report, &responses) {
        return vec![finding];
    }
    let failed = failure.filter(|_| !has_tls_failed(report)).map(|failure| failed(report, failure));
    failed.into_iter().chain(not_kept(&responses)).chain(skew(report)).collect()
}

/// Returns true if the requests failed for the TLS handshake behind a proxy, which is a finding of its own.
fn has_tls_failed(report: &Report) -> bool {
    #[cfg(feature = "__tls")]
    return report.tunnelled_tls.as_ref().is_some_and(|tls| tls.session.is_err());
    #[cfg(not(feature = "__tls"))]
    {
        let _ = report;
        false
    }
}

fn failed(report: &Report, failure: &Failure) -> Finding {
    match (failure.kind, &report.route.proxy) {
        (FailureKind::NeedsCredentials, Some(_)) => credentials(report, &failure.text),
        (FailureKind::NoTunnel, Some(proxy)) => Finding::new(
            Problem::ProxyRefuses,
            format!("The proxy {proxy} does not connect to {}: {failure}.", report.origin),
            "Let the proxy's rules allow this host and port, or except the origin from the proxy. The proxy may also not reach it.",
        ),
        (FailureKind::LookupFailed, Some(proxy)) => Finding::new(
            Problem::LookupFails,
            format!(
                "The proxy {proxy} is told addresses, and {} cannot be looked up: {failure}.",
                report.origin.host()
            ),
            "Correct the name, or let the proxy look names up: a proxy whose URL begins with socks5h does.",
        ),
        (FailureKind::NoUnixSocket, _) => Finding::new(
            Problem::UnixSocketUnreachable,
            format!(
                "The Unix domain socket {} cannot be connected to: {failure}.",
                report.route.unix_socket.as_deref().unwrap_or_default()
            ),
            "Start the server that listens there, correct the path, or let this user write to the socket.",
        ),
        (FailureKind::NoCommonProtocol, _) => {
            let how = match report.origin.scheme() {
                Scheme::Http => format!("The client speaks HTTP/2 to {} by prior knowledge", report.origin),
                Scheme::Https => format!("{} has not chosen HTTP/2 by ALPN", report.origin),
            };
            Finding::new(
                Problem::NoHttp2,
                format!("{how}, and a request by HTTP/2 fails: {failure}."),
                "Let the client speak HTTP/1.1 too (leave out `http2_prior_knowledge`), or turn HTTP/2 on at the server.",
            )
        }
        #[cfg(feature = "__tls")]
        (FailureKind::ClientCertificate, _) => Finding::new(
            Problem::ClientCertificate,
            format!("A request to {} fails: {failure}.", report.origin),
            crate::doctor::finding::CERTIFICATE_ADVICE,
        ),
        _ => Finding::new(
            Problem::RequestFails,
            format!("A request to {} fails, although the way there works: {failure}.", report.origin),
            "Look into the server's log. Check that the port is one of HTTP, and that the server serves this host.",
        ),
    }
}

/// Describes a proxy that forwards requests, and answered each of them as a gateway that does not get through.
fn refused_by_gateway(report: &Report, responses: &[&ResponseReport]) -> Option<Finding> {
    let proxy = report.route.proxy.as_ref().filter(|proxy| proxy.starts_with("http"))?;
    let first = responses.first()?;
    // A tunnel has the answers of the server, and HTTP/2 goes through tunnels alone.
    let is_forwarded = report.origin.scheme() == Scheme::Http && first.version.starts_with("HTTP/1");
    let is_refused = responses.len() == report.requests.len()
        && responses.iter().all(|response| GATEWAY_ERRORS.contains(&response.status));
    if !is_forwarded || !is_refused {
        return None;
    }
    Some(Finding::new(
        Problem::ProxyRefuses,
        format!("The proxy {proxy} answers {} to each request for {}.", first.status, report.origin),
        "Look into the proxy's log: it may not know the name, or not reach the server; or the server itself answers so. Correct \
         it, or except the origin from the proxy.",
    ))
}

fn credentials(report: &Report, what: &str) -> Finding {
    let proxy = report.route.proxy.as_deref().unwrap_or_default();
    Finding::new(
        Problem::ProxyNeedsCredentials,
        format!("The proxy {proxy} asks for credentials, or refuses those that it gets: {what}."),
        "Put a user name and a password into the proxy's URL, or set them with `Proxy::basic_auth`.",
    )
}

/// Describes a server that gave each response on a connection of its own. HTTP/2 has other words for the end of a connection, and
/// one that ends each is not seen.
fn not_kept(responses: &[&ResponseReport]) -> Option<Finding> {
    let is_http1 = responses.iter().all(|response| response.version.starts_with("HTTP/1"));
    let tells_nothing = responses.iter().all(|response| may_close_after(response.status));
    if responses.len() < 2 || !is_http1 || tells_nothing || responses.iter().any(|response| response.reused) {
        return None;
    }
    let how = if responses.iter().any(|response| response.closes) {
        "and says so (`Connection: close`)"
    } else {
        "unannounced"
    };
    Some(Finding::new(
        Problem::ConnectionNotKept,
        format!("The server closes the connection after each response, {how}."),
        "Turn keep-alive on at the server or at the proxy in front of it. Until then, each request pays for a new connection.",
    ))
}

/// Returns true for errors after which servers close connections that they would keep otherwise. HEAD may be one for them.
fn may_close_after(status: u16) -> bool {
    matches!(status, 400 | 405 | 408 | 500..)
}

fn skew(report: &Report) -> Option<Finding> {
    let seconds = report.clock?.skew_secs;
    let distance = seconds.unsigned_abs();
    if distance < TOLERATED_SKEW_SECS {
        return None;
    }
    let direction = if seconds > 0 { "ahead of" } else { "behind" };
    Some(Finding::new(
        Problem::ClockSkew,
        format!("The server's clock is {} {direction} this machine's.", roughly(Duration::from_secs(distance))),
        "Let both follow the same time (NTP). Tokens, signatures, cookies and certificates are judged by these clocks.",
    ))
}

/// The time of a lookup from which on it is slow. A server that knows the answer is within 30 ms almost everywhere.
const SLOW_LOOKUP: Duration = Duration::from_millis(100);
/// The least time by which an address is slower than the fastest one, beside a multiple of that one's.
const SLOWER_BY: Duration = Duration::from_millis(100);
const TIMES_SLOWER: u32 = 3;
/// The time of a handshake from which on it is slow, beside that of two ways to the server and back.
#[cfg(feature = "__tls")]
const SLOW_HANDSHAKE: Duration = Duration::from_millis(200);

/// Returns what takes long. `found` explains a lookup that waited for servers.
pub(super) fn slow(report: &Report, found: &[Finding]) -> Vec<Finding> {
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
    use super::super::super::report::{ClockReport, RequestReport};
    use super::super::samples::{report, response};
    use super::*;

    fn problems(report: &Report) -> Vec<Problem> {
        check(report).iter().map(|finding| finding.problem).collect()
    }

    fn with_failure(kind: FailureKind, proxy: Option<&str>) -> Report {
        let mut report = report();
        let response = Err(Failure::new(kind, "no"));
        report.requests = vec![RequestReport { elapsed: Duration::ZERO, response }];
        report.route.proxy = proxy.map(str::to_owned);
        report
    }

    #[test]
    fn a_failed_request_is_the_servers_or_the_proxys() {
        let proxy = Some("http://proxy.test:3128");
        assert_eq!(problems(&with_failure(FailureKind::Other, None)), [Problem::RequestFails]);
        assert_eq!(problems(&with_failure(FailureKind::NoTunnel, proxy)), [Problem::ProxyRefuses]);
        assert_eq!(problems(&with_failure(FailureKind::NeedsCredentials, proxy)), [Problem::ProxyNeedsCredentials]);
        let mut answered = report();
        answered.requests = vec![response(407, false), response(407, false)];
        answered.route.proxy = proxy.map(str::to_owned);
        assert_eq!(problems(&answered), [Problem::ProxyNeedsCredentials]);
    }

    #[test]
    fn a_failure_before_the_server_has_a_problem_and_words_of_its_own() {
        let unknown = with_failure(FailureKind::LookupFailed, Some("socks5://proxy.test:1080"));
        let mut no_socket = with_failure(FailureKind::NoUnixSocket, None);
        no_socket.route.unix_socket = Some("/run/api.sock".to_owned());
        let no_http2 = with_failure(FailureKind::NoCommonProtocol, None);
        for (report, problem) in
            [(unknown, Problem::LookupFails), (no_socket, Problem::UnixSocketUnreachable), (no_http2, Problem::NoHttp2)]
        {
            let [finding] = &check(&report)[..] else { panic!("{problem:?}") };
            assert_eq!(finding.problem, problem);
            assert!(!finding.text.contains("the way there works"), "{finding}");
        }
    }

    #[test]
    fn a_proxy_that_forwards_requests_may_answer_as_a_gateway() {
        let by = |url: &str, proxy: &str, statuses: &[u16]| {
            let mut report = report();
            report.origin = crate::origin::Origin::from_url(&url::Url::parse(url).unwrap()).unwrap();
            report.route.proxy = Some(proxy.to_owned());
            report.requests = statuses.iter().map(|status| response(*status, true)).collect();
            problems(&report)
        };
        let proxy = "http://proxy.test:3128";
        assert_eq!(by("http://api.test/", proxy, &[503, 502, 504]), [Problem::ProxyRefuses]);
        assert_eq!(by("http://api.test/", proxy, &[503, 200]), []);
        assert_eq!(by("http://api.test/", proxy, &[500, 500]), []);
        assert_eq!(by("http://api.test/", "socks5://proxy.test:1080", &[503]), [], "the server's own answer");
    }

    #[test]
    fn a_connection_is_kept_if_any_request_reused_it() {
        let mut report = report();
        report.requests = vec![response(200, false), response(200, false), response(200, true)];
        assert_eq!(problems(&report), []);
        report.requests = vec![response(200, false), response(200, false)];
        assert_eq!(problems(&report), [Problem::ConnectionNotKept]);
        report.requests = vec![response(405, false), response(405, false)];
        assert_eq!(problems(&report), [], "an error may be the reason");
        report.requests = vec![response(200, false)];
        assert_eq!(problems(&report), [], "one request tells nothing");
    }

    #[test]
    fn clocks_may_differ_by_less_than_half_a_minute() {
        let mut report = report();
        let at = report.at;
        let mut with = |skew_secs| {
            report.clock = Some(ClockReport { date: at, skew_secs });
            check(&report).into_iter().map(|finding| finding.text).collect::<Vec<_>>()
        };
        assert_eq!(with(29), Vec::<String>::new());
        assert_eq!(with(3_600), ["The server's clock is 60 minutes ahead of this machine's."]);
        assert_eq!(with(-30), ["The server's clock is 30 seconds behind this machine's."]);
    }
}

#[cfg(test)]
mod slow_tests {
    use super::*;
    use crate::doctor::failure::FailureKind;
    use crate::doctor::findings::samples::{address as usable, failed_address, report};

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn texts(report: &Report, found: &[Finding]) -> Vec<String> {
        slow(report, found).into_iter().map(|finding| finding.text).collect()
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
        use crate::doctor::findings::samples::{handshake, refused_handshake};
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
