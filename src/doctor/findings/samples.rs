//! Parts of reports for the tests of findings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use url::Url;

use super::super::failure::{Failure, FailureKind};
use super::super::report::{
    AddressReport, DnsReply, LookupAnswer, LookupReport, NameReport, QuestionReport, Report, RequestReport,
    ResolverKind, ResponseReport, RouteReport,
};
#[cfg(feature = "__tls")]
use super::super::report::{TlsReport, TlsSession};
use crate::dns::{DnsTransport, Source};
use crate::origin::Origin;
#[cfg(feature = "__tls")]
use crate::tls::{CertificateProblem, CertificateSummary};
use crate::trace::Family;

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const AT: SystemTime = SystemTime::UNIX_EPOCH;

/// Returns the report of a healthy setup.
pub(super) fn report() -> Report {
    let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
    Report {
        origin: Origin::from_url(&Url::parse(&format!("{scheme}://api.test/")).unwrap()).unwrap(),
        at: AT + DAY * 10_000,
        elapsed: Duration::ZERO,
        route: RouteReport { proxy: None, reason: String::new(), error: None, unix_socket: None, https_only: false },
        names: Some(names(Vec::new())),
        addresses: vec![address("192.0.2.1:443")],
        #[cfg(feature = "__tls")]
        tunnelled_tls: None,
        requests: vec![response(200, false), response(200, true)],
        clock: None,
        findings: Vec::new(),
    }
}

pub(super) fn names(questions: Vec<QuestionReport>) -> NameReport {
    let answer = LookupAnswer {
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        sockets: Vec::new(),
        ttl: None,
        source: Source::Miss,
    };
    NameReport {
        name: "api.test".to_owned(),
        resolver: ResolverKind::Hickory,
        files: Vec::new(),
        lists_no_server: false,
        is_known: false,
        questions,
        lookups: vec![lookup(Ok(answer))],
    }
}

pub(super) fn lookup(answer: Result<LookupAnswer, Failure>) -> LookupReport {
    LookupReport { family: Family::V4, elapsed: Duration::ZERO, answer }
}

/// Returns a question to the server 192.0.2.`last`.
pub(super) fn asked(
    last: u8,
    transport: DnsTransport,
    family: Family,
    reply: Result<DnsReply, Failure>,
) -> QuestionReport {
    let server = SocketAddr::from(([192, 0, 2, last], 53));
    QuestionReport { server, transport, name: "api.test.".to_owned(), family, elapsed: Duration::ZERO, reply }
}

pub(super) fn answer(code: &str, addresses: &[&str]) -> Result<DnsReply, Failure> {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Ok(DnsReply { code: code.to_owned(), addresses, ttl: None, truncated: false })
}

pub(super) fn no_answer(kind: FailureKind) -> Result<DnsReply, Failure> {
    Err(Failure::new(kind, "no"))
}

pub(super) fn address(address: &str) -> AddressReport {
    AddressReport {
        address: address.parse().unwrap(),
        is_proxy: false,
        source: None,
        elapsed: Duration::ZERO,
        failure: None,
        #[cfg(feature = "__tls")]
        tls: None,
    }
}

pub(super) fn failed_address(at: &str, kind: FailureKind) -> AddressReport {
    AddressReport { failure: Some(Failure::new(kind, "no")), ..address(at) }
}

pub(super) fn response(status: u16, reused: bool) -> RequestReport {
    let version = "HTTP/1.1".to_owned();
    let response = ResponseReport { status, version, remote: None, reused, keep_alive: None, closes: false };
    RequestReport { elapsed: Duration::ZERO, response: Ok(response) }
}

#[cfg(feature = "__tls")]
pub(super) fn handshake() -> TlsReport {
    let session = TlsSession { version: "TLSv1_3", cipher_suite: "TLS13_AES_128_GCM_SHA256", alpn: None };
    TlsReport {
        elapsed: Duration::ZERO,
        session: Ok(session),
        problem: None,
        chain: Vec::new(),
        checked_name: "api.test".to_owned(),
        name_matches: None,
    }
}

#[cfg(feature = "__tls")]
pub(super) fn refused_handshake(problem: CertificateProblem) -> TlsReport {
    let session = Err(Failure::new(FailureKind::Other, "refused"));
    TlsReport { session, problem: Some(problem), ..handshake() }
}

/// Returns a certificate for other.test that is some days old, and valid for some more.
#[cfg(feature = "__tls")]
pub(super) fn certificate(days_old: u32, days_left: u32) -> CertificateSummary {
    let at = AT + DAY * 10_000;
    CertificateSummary {
        subject: "CN=other.test".to_owned(),
        issuer: "CN=Authority".to_owned(),
        names: vec!["other.test".to_owned()],
        not_before: at - DAY * days_old,
        not_after: at + DAY * days_left,
    }
}
