//! A TLS handshake with one address, and the certificates that the server sends.

use std::io;
use std::time::Duration;

use bytes::Bytes;

use super::failure::{Failure, FailureKind};
use super::report::{TlsReport, TlsSession};
use crate::doctor::finding::timed;
use crate::error::Error;
use crate::origin::Host;
use crate::tls::{Tls, certificate_problem, has_no_common_protocol, refuses_client, speaks_no_tls};
use crate::trace::{Timings, TlsFacts};
use crate::transport::Stream;

/// Shakes hands with `host`. Returns what came of it, and true if the server's certificate is refused.
pub(super) async fn shake_hands(tls: &Tls, host: &Host, stream: Box<dyn Stream>, limit: Duration) -> (TlsReport, bool) {
    let (elapsed, outcome) = timed(limit, tls.examine(stream, host)).await;
    let report = match outcome {
        Some(Ok(facts)) => agreed(tls, host, elapsed, &facts),
        Some(Err(error)) => {
            TlsReport { problem: certificate_problem(&error), ..failed(tls, host, elapsed, failure(tls, &error)) }
        }
        None => failed(tls, host, elapsed, Failure::timed_out(limit)),
    };
    let is_refused = report.problem.is_some();
    (report, is_refused)
}

/// Adds the certificates of a server that the client refuses. They come from a handshake of their own.
pub(super) async fn add_chain(
    report: &mut TlsReport,
    tls: &Tls,
    host: &Host,
    stream: Box<dyn Stream>,
    limit: Duration,
) {
    let (_, chain) = timed(limit, tls.fetch_chain(stream, host)).await;
    describe_chain(report, tls, host, &chain.unwrap_or_default());
}

/// Returns the handshake below a response.
pub(super) fn of_response(tls: &Tls, origin: &Host, facts: &TlsFacts, timings: &Timings) -> TlsReport {
    agreed(tls, origin, timings.tls(), facts)
}

/// Returns the handshake of a request that failed for it; `None` if the request failed for another reason.
pub(super) fn of_error(tls: &Tls, origin: &Host, error: &Error) -> Option<TlsReport> {
    if !error.is_tls() {
        return None;
    }
    let elapsed = error.timings().map_or(Duration::ZERO, Timings::tls);
    Some(match error.io_cause() {
        Some(cause) => {
            TlsReport { problem: certificate_problem(cause), ..failed(tls, origin, elapsed, failure(tls, cause)) }
        }
        None => failed(tls, origin, elapsed, Failure::new(FailureKind::Other, error.to_string())),
    })
}

fn agreed(tls: &Tls, host: &Host, elapsed: Duration, facts: &TlsFacts) -> TlsReport {
    let session = TlsSession {
        version: facts.version,
        cipher_suite: facts.cipher_suite,
        alpn: facts.alpn.as_deref().map(str::to_owned),
    };
    let mut report = report(tls, host, elapsed, Ok(session));
    describe_chain(&mut report, tls, host, &facts.peer_certificates);
    report
}

fn failed(tls: &Tls, host: &Host, elapsed: Duration, failure: Failure) -> TlsReport {
    report(tls, host, elapsed, Err(failure))
}

/// Returns the report on a handshake without its certificates.
fn report(tls: &Tls, host: &Host, elapsed: Duration, session: Result<TlsSession, Failure>) -> TlsReport {
    let checked_name = tls.checked_name(host);
    TlsReport { elapsed, session, problem: None, chain: Vec::new(), checked_name, name_matches: None }
}

fn describe_chain(report: &mut TlsReport, tls: &Tls, host: &Host, chain: &[Bytes]) {
    report.chain = Tls::summaries(chain);
    report.name_matches = tls.is_for(chain, host);
}

fn failure(tls: &Tls, error: &io::Error) -> Failure {
    let kind = if speaks_no_tls(error) {
        FailureKind::NoTls
    } else if has_no_common_protocol(error) {
        if tls.offers_http2() { FailureKind::NoCommonProtocol } else { FailureKind::NoHttp1 }
    } else if refuses_client(error) {
        FailureKind::ClientCertificate
    } else {
        FailureKind::Other
    };
    match error.kind() {
        io::ErrorKind::TimedOut => Failure::of_io(error),
        _ => Failure::new(kind, error.to_string()),
    }
}
