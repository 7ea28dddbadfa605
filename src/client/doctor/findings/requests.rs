//! What is wrong with requests, with kept connections, and with clocks. A core.

use std::time::Duration;

use super::super::failure::{Failure, FailureKind};
use super::super::finding::{Finding, Problem};
use super::super::report::{Report, ResponseReport};
use super::words::roughly;

/// The difference of clocks from which on it is a problem: tokens and signatures are often valid for a minute or less.
const TOLERATED_SKEW_SECS: u64 = 30;
/// The status by which a proxy asks for credentials (RFC 9110 §15.5.8).
const PROXY_AUTHENTICATION_REQUIRED: u16 = 407;

pub(super) fn check(report: &Report) -> Vec<Finding> {
    let responses: Vec<_> = report.requests.iter().filter_map(|request| request.response.as_ref().ok()).collect();
    let failure = report.requests.iter().find_map(|request| request.response.as_ref().err());
    let is_proxied = report.route.proxy.is_some();
    if is_proxied && responses.iter().any(|response| response.status == PROXY_AUTHENTICATION_REQUIRED) {
        return vec![credentials(report, "it answers 407")];
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
        _ => Finding::new(
            Problem::RequestFails,
            format!("A request to {} fails, although the way there works: {failure}.", report.origin),
            "Look into the server's log. Check that the port is one of HTTP, and that the server serves this host.",
        ),
    }
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
