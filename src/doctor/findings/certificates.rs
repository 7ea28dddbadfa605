//! Problems of TLS handshakes and certificates. A core.

use std::time::{Duration, SystemTime};

use super::super::failure::FailureKind;
use super::super::finding::{Finding, Problem};
use super::super::report::{Report, TlsReport};
use crate::doctor::finding::{CERTIFICATE_ADVICE, list, roughly, verb};
use crate::tls::{CertificateProblem, CertificateSummary};

/// The time before its end at which a certificate of a long lifetime should have been renewed.
const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// A handshake, and the peer that it was made with.
struct Handshake<'a> {
    peer: String,
    tls: &'a TlsReport,
}

pub(super) fn check(report: &Report) -> Vec<Finding> {
    let direct = report.addresses.iter().filter_map(|address| {
        let whose = if address.is_proxy { " (of the proxy)" } else { "" };
        Some(Handshake { peer: format!("{}{whose}", address.address), tls: address.tls.as_ref()? })
    });
    let tunnelled = report.tunnelled_tls.iter().map(|tls| Handshake { peer: report.origin.to_string(), tls });
    let all: Vec<_> = direct.chain(tunnelled).collect();
    let mut problems: Vec<Problem> = Vec::new();
    for problem in all.iter().flat_map(|handshake| problems_of(handshake.tls, report.at)) {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    let of = |problem: &Problem| {
        let has = |handshake: &&Handshake<'_>| problems_of(handshake.tls, report.at).contains(problem);
        finding(report, *problem, &all.iter().filter(has).collect::<Vec<_>>())
    };
    problems.iter().filter_map(of).collect()
}

fn problems_of(tls: &TlsReport, at: SystemTime) -> Vec<Problem> {
    let Some(refused) = tls.problem else { return of_session(tls, at).into_iter().collect() };
    let mut problems = vec![match refused {
        CertificateProblem::Expired => Problem::CertificateExpired,
        CertificateProblem::NotYetValid => Problem::CertificateNotYetValid,
        CertificateProblem::WrongName => Problem::CertificateForOtherName,
        CertificateProblem::UnknownIssuer => Problem::CertificateFromUnknownIssuer,
        CertificateProblem::Revoked | CertificateProblem::Other => Problem::CertificateRefused,
    }];
    // The client names the first reason alone.
    if tls.name_matches == Some(false) && refused != CertificateProblem::WrongName {
        problems.push(Problem::CertificateForOtherName);
    }
    problems
}

fn of_session(tls: &TlsReport, at: SystemTime) -> Option<Problem> {
    match &tls.session {
        Err(failure) => Some(match failure.kind {
            FailureKind::NoTls => Problem::NoTls,
            FailureKind::NoCommonProtocol => Problem::NoHttp2,
            FailureKind::NoHttp1 => Problem::NoHttp1,
            FailureKind::ClientCertificate => Problem::ClientCertificate,
            _ => Problem::TlsFails,
        }),
        Ok(_) if tls.chain.first().is_some_and(|own| expires_soon(own, at)) => Some(Problem::CertificateExpiresSoon),
        Ok(_) => None,
    }
}

/// Returns true if a certificate has less than a week left, and less than a quarter of its lifetime: some live for days only.
fn expires_soon(certificate: &CertificateSummary, at: SystemTime) -> bool {
    let left = certificate.not_after.duration_since(at).unwrap_or_default();
    let lifetime = certificate.not_after.duration_since(certificate.not_before).unwrap_or_default();
    left < SOON.min(lifetime / 4)
}

fn finding(report: &Report, problem: Problem, handshakes: &[&Handshake<'_>]) -> Option<Finding> {
    let first = handshakes.first()?.tls;
    let peers = list(handshakes.iter().map(|handshake| &handshake.peer));
    let error = first.session.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let own = first.chain.first();
    let does = verb(handshakes.len(), "does", "do");
    let (text, advice) = match problem {
        Problem::CertificateExpired => (
            format!("The certificate of {peers} has expired{}.", expired(&first.chain, report.at)),
            "Renew the certificate, and let the server load it. If the date is in the future, correct this machine's clock.",
        ),
        Problem::CertificateNotYetValid => (
            format!("The certificate of {peers} is not valid yet{}.", not_before(own, report.at)),
            "Correct this machine's clock, or let the server use its earlier certificate until then.",
        ),
        Problem::CertificateExpiresSoon => (
            format!("The certificate of {peers} expires in {}.", left(own, report.at)),
            "Renew the certificate: what renews it should have done so by now.",
        ),
        Problem::CertificateForOtherName => (
            format!("The certificate of {peers} is not for {}{}.", first.checked_name, names(own)),
            "Use a name that the certificate has, or let the server have a certificate for this one. A server with several \
             certificates may lack the one for this name.",
        ),
        Problem::CertificateFromUnknownIssuer => (
            format!("The certificate of {peers} is from an authority that the client does not trust{}.", issuer(own)),
            "Add the authority's certificate to the client (`TlsConfig::add_roots`) or to this machine, or let the server send the \
             intermediate certificates too.",
        ),
        Problem::CertificateRefused => (
            format!("The client refuses the certificate of {peers}: {error}."),
            "Let the server have a new certificate.",
        ),
        Problem::NoTls => {
            (format!("{peers} {does} not speak TLS."), "Use an http URL, or the port on which the server speaks TLS.")
        }
        Problem::NoHttp1 => (
            format!("{peers} {does} not speak HTTP/1.1, the one version that the client offers: {error}."),
            "Let the client speak HTTP/2 too (leave out `http1_only`), or turn HTTP/1.1 on at the server.",
        ),
        Problem::ClientCertificate => (format!("The TLS handshake with {peers} fails: {error}."), CERTIFICATE_ADVICE),
        Problem::NoHttp2 => (
            format!("{peers} {does} not speak a version of HTTP that the client offers: {error}."),
            "Let the client speak HTTP/1.1 too, or turn HTTP/2 on at the server.",
        ),
        _ => (
            format!("The TLS handshake with {peers} fails: {error}."),
            "Look into the server's log: it may ask for a client certificate, or have no version or cipher of TLS in common.",
        ),
    };
    Some(Finding::new(problem, text, advice))
}

/// Describes the certificate of a chain that has expired, if it is known.
fn expired(chain: &[CertificateSummary], at: SystemTime) -> String {
    let Some(number) = chain.iter().position(|certificate| certificate.not_after < at) else { return String::new() };
    let since = roughly(at.duration_since(chain[number].not_after).unwrap_or_default());
    match number {
        0 => format!(", {since} ago"),
        _ => format!(": that of its authority {} did, {since} ago", chain[number].subject),
    }
}

fn not_before(own: Option<&CertificateSummary>, at: SystemTime) -> String {
    let wait = own.and_then(|own| own.not_before.duration_since(at).ok());
    wait.map_or(String::new(), |wait| format!(": it will be in {} by this machine's clock", roughly(wait)))
}

fn left(own: Option<&CertificateSummary>, at: SystemTime) -> String {
    roughly(own.and_then(|own| own.not_after.duration_since(at).ok()).unwrap_or_default())
}

fn names(own: Option<&CertificateSummary>) -> String {
    match own {
        Some(own) if own.names.is_empty() => ", and names no host".to_owned(),
        Some(own) => format!(", but for {}", list(&own.names)),
        None => String::new(),
    }
}

fn issuer(own: Option<&CertificateSummary>) -> String {
    match own {
        Some(own) if own.issuer == own.subject => ": it is signed by itself".to_owned(),
        Some(own) => format!(": {}", own.issuer),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::failure::Failure;
    use super::super::samples::{DAY, address, certificate, handshake, refused_handshake, report};
    use super::*;

    fn check_one(tls: TlsReport) -> Vec<Finding> {
        let mut report = report();
        report.addresses[0].tls = Some(tls);
        check(&report)
    }

    fn problems(tls: TlsReport) -> Vec<Problem> {
        check_one(tls).iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_certificate_expires_soon_by_its_lifetime() {
        let with_days = |lifetime: u32, left: u32| {
            let mut tls = handshake();
            tls.chain = vec![certificate(lifetime - left, left)];
            problems(tls)
        };
        assert_eq!(with_days(90, 30), []);
        assert_eq!(with_days(90, 8), []);
        assert_eq!(with_days(90, 6), [Problem::CertificateExpiresSoon]);
        assert_eq!(with_days(6, 3), [], "it lives for six days only");
        assert_eq!(with_days(6, 1), [Problem::CertificateExpiresSoon]);
    }

    #[test]
    fn a_refused_certificate_is_described() {
        let mut tls = refused_handshake(CertificateProblem::Expired);
        tls.chain = vec![certificate(90, 0)];
        tls.chain[0].not_after -= DAY * 3;
        let text = &check_one(tls)[0].text;
        assert_eq!(text, "The certificate of 192.0.2.1:443 has expired, 3 days ago.");

        let mut tls = refused_handshake(CertificateProblem::WrongName);
        tls.chain = vec![certificate(1, 90)];
        tls.name_matches = Some(false);
        let text = &check_one(tls.clone())[0].text;
        assert_eq!(text, "The certificate of 192.0.2.1:443 is not for api.test, but for other.test.");

        tls.checked_name = "set.test".to_owned();
        let text = &check_one(tls)[0].text;
        assert_eq!(text, "The certificate of 192.0.2.1:443 is not for set.test, but for other.test.");

        let mut tls = refused_handshake(CertificateProblem::UnknownIssuer);
        tls.chain = vec![certificate(1, 90)];
        tls.name_matches = Some(false);
        assert_eq!(problems(tls), [Problem::CertificateFromUnknownIssuer, Problem::CertificateForOtherName]);
    }

    #[test]
    fn failures_other_than_the_certificate_are_told_apart() {
        for (kind, problem) in [
            (FailureKind::NoTls, Problem::NoTls),
            (FailureKind::NoCommonProtocol, Problem::NoHttp2),
            (FailureKind::TimedOut, Problem::TlsFails),
        ] {
            let tls = TlsReport { session: Err(Failure::new(kind, "no")), ..handshake() };
            assert_eq!(problems(tls), [problem]);
        }
    }

    #[test]
    fn addresses_with_the_same_problem_are_one_finding() {
        let mut report = report();
        report.addresses.push(address("192.0.2.2:443"));
        for address in &mut report.addresses {
            address.tls = Some(refused_handshake(CertificateProblem::Expired));
        }
        let found = check(&report);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "The certificate of 192.0.2.1:443 and 192.0.2.2:443 has expired.");
    }
}
