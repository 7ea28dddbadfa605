//! Failures of TLS, and of its settings, in words that a person can act on.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, InvalidMessage};

use crate::redact::line;
use crate::trace::exact;

/// The most names of a certificate that an error shows.
const MAX_NAMES: usize = 8;
/// The most characters of such a name.
const MAX_NAME: usize = 100;

/// The failure of TLS, inside of an [`io::Error`].
///
/// `Display` has the explanation and the reason, because events show it alone. A larger error says who the peer is with
/// [`clause`](Self::clause), and has the [`reason`](Self::reason) as its source.
#[derive(Debug)]
pub(crate) struct TlsFailed {
    step: Step,
    /// The error of rustls or of the operating system.
    cause: io::Error,
}

/// The step that failed. An explanation is for a reason that does not explain itself.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// There was no handshake: the settings cannot be used, or not with this host.
    Beginning,
    /// The handshake took longer than this.
    TimeLimit(Duration),
    /// The handshake itself, or TLS with the origin's server after it.
    Handshake(Option<&'static str>),
    /// TLS with a proxy, after its handshake. Streams to origins run inside of that TLS, and their errors must not be taken
    /// for those of the origin's TLS.
    ProxyStream(Option<&'static str>),
}

impl TlsFailed {
    /// Returns the error of a handshake that took longer than `limit`.
    pub(crate) fn timed_out(limit: Duration) -> io::Error {
        // In whole milliseconds: a share of the connect timeout has nanoseconds.
        let limit = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        Self { step: Step::TimeLimit(limit), cause: io::ErrorKind::TimedOut.into() }.into_io()
    }

    /// Returns the error of a handshake that could not begin.
    pub(super) fn not_begun(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
        Self { step: Step::Beginning, cause: io::Error::new(io::ErrorKind::InvalidInput, cause) }.into_io()
    }

    /// Explains the failure of a handshake. If the TLS with a proxy below it failed, that is the error.
    pub(super) fn of_handshake(cause: io::Error) -> io::Error {
        if is_of_proxy(&cause) {
            return cause;
        }
        let explanation = rustls_error(&cause).and_then(explanation);
        Self { step: Step::Handshake(explanation), cause }.into_io()
    }

    /// Returns the failure of TLS that is in an error.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Returns the time limit that passed, if that is the failure.
    pub(crate) fn time_limit(&self) -> Option<Duration> {
        match self.step {
            Step::TimeLimit(limit) => Some(limit),
            _ => None,
        }
    }

    fn into_io(mut self) -> io::Error {
        self.cause = fit_to_be_shown(self.cause);
        io::Error::new(self.cause.kind(), self)
    }

    /// Returns a clause that names the peer, without the reason.
    pub(crate) fn clause(&self, peer: &str) -> String {
        match self.step {
            Step::Beginning => format!("TLS with {peer} could not begin"),
            Step::TimeLimit(limit) => format!("no TLS handshake with {peer} within {}", exact(limit)),
            Step::Handshake(None) => format!("TLS handshake with {peer} failed"),
            Step::Handshake(Some(why)) => format!("TLS handshake with {peer} failed: {why}"),
            Step::ProxyStream(None) => format!("TLS with {peer} failed"),
            Step::ProxyStream(Some(why)) => format!("TLS with {peer} failed: {why}"),
        }
    }

    /// Returns a clause about a connection that ended after its handshake, without the reason.
    pub(crate) fn clause_after_handshake(&self) -> String {
        let (peer, why) = match self.step {
            Step::ProxyStream(why) => ("the proxy", why),
            Step::Handshake(why) => ("the server", why),
            Step::Beginning | Step::TimeLimit(_) => ("the client", None),
        };
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        format!("{peer} ended the TLS connection{why}")
    }

    /// Returns the error of rustls or of the operating system; `None` for a time limit, which the clause states.
    pub(crate) fn reason(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match (self.step, rustls_error(&self.cause)) {
            (Step::TimeLimit(_), _) => None,
            // rustls shows such an error only by its type.
            (_, Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))) => Some(&*other.0),
            _ => Some(&self.cause),
        }
    }
}

impl fmt::Display for TlsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::Beginning => f.write_str("TLS could not begin")?,
            Step::TimeLimit(limit) => write!(f, "no TLS handshake within {}", exact(limit))?,
            Step::Handshake(None) => f.write_str("the TLS handshake failed")?,
            Step::Handshake(Some(why)) => f.write_str(why)?,
            Step::ProxyStream(None) => f.write_str("TLS with the proxy failed")?,
            Step::ProxyStream(Some(why)) => write!(f, "TLS with the proxy failed: {why}")?,
        }
        match self.reason() {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// Without a source, which the text already has.
impl std::error::Error for TlsFailed {}

/// Bounds what the text of an error tells of the peer's certificate.
fn fit_to_be_shown(error: io::Error) -> io::Error {
    let Some(rustls::Error::InvalidCertificate(refused)) = rustls_error(&error) else { return error };
    let fit = match refused {
        CertificateError::NotValidForNameContext { expected, presented } => {
            CertificateError::NotValidForNameContext { expected: expected.clone(), presented: names(presented) }
        }
        CertificateError::InvalidPurposeContext { presented, .. } if presented.len() > MAX_NAMES => {
            CertificateError::InvalidPurpose
        }
        _ => return error,
    };
    io::Error::new(error.kind(), rustls::Error::from(fit))
}

/// Returns the first names of a certificate as they are shown, and how many more there are.
fn names(presented: &[String]) -> Vec<String> {
    let more = presented.len().saturating_sub(MAX_NAMES);
    let names = presented.iter().take(MAX_NAMES).map(|name| line(name, MAX_NAME));
    names.chain((more > 0).then(|| format!("{more} more"))).collect()
}

/// Marks an error as one of TLS with a proxy. An error that is not about TLS is returned as it is.
pub(crate) fn of_proxy(error: io::Error) -> io::Error {
    match rustls_error(&error) {
        Some(rustls) => TlsFailed { step: Step::ProxyStream(explanation(rustls)), cause: error }.into_io(),
        None => error,
    }
}

/// Returns true if an error is one of TLS with a proxy, as [`of_proxy`] marks it.
pub(crate) fn is_of_proxy(error: &io::Error) -> bool {
    TlsFailed::of(error).is_some_and(|failed| matches!(failed.step, Step::ProxyStream(_)))
}

/// Returns the alert by which the peer rejects the client's certificate or the lack of one, explained; `None` for any other
/// error. With TLS 1.3 the alert arrives after the handshake, as an error of the stream.
pub(crate) fn refusal(error: &io::Error) -> Option<io::Error> {
    let proxys = TlsFailed::of(error).filter(|_| is_of_proxy(error));
    let alert = rustls_error(proxys.map_or(error, |proxys| &proxys.cause))?;
    if !is_refusal(alert) {
        return None;
    }
    let alert = io::Error::new(error.kind(), alert.clone());
    Some(if proxys.is_some() { of_proxy(alert) } else { TlsFailed::of_handshake(alert) })
}

/// The reason why the client refuses a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum CertificateProblem {
    /// The certificate has expired.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate is for other names.
    WrongName,
    /// No authority that the client trusts has signed the chain.
    UnknownIssuer,
    /// The authority has revoked the certificate.
    Revoked,
    /// Another reason, which the error of the handshake names.
    Other,
}

/// Returns the reason why a handshake refused the server's certificate; `None` if it failed for another reason.
pub(crate) fn certificate_problem(error: &io::Error) -> Option<CertificateProblem> {
    let rustls::Error::InvalidCertificate(refused) = rustls_error_of(error)? else { return None };
    Some(match refused {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => CertificateProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => CertificateProblem::NotYetValid,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateProblem::WrongName
        }
        CertificateError::UnknownIssuer => CertificateProblem::UnknownIssuer,
        CertificateError::Revoked => CertificateProblem::Revoked,
        _ => CertificateProblem::Other,
    })
}

/// Returns true if a handshake failed because what answered is not TLS.
pub(crate) fn speaks_no_tls(error: &io::Error) -> bool {
    matches!(rustls_error_of(error), Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)))
}

/// Returns true if the peer rejected the client's certificate, or the lack of one.
pub(crate) fn refuses_client(error: &io::Error) -> bool {
    // During the handshake, handshake_failure mostly means that there is no cipher in common.
    let is_vague =
        |error: &rustls::Error| matches!(error, rustls::Error::AlertReceived(AlertDescription::HandshakeFailure));
    rustls_error_of(error).is_some_and(|error| is_refusal(error) && !is_vague(error))
}

/// Returns rustls's error in a failure of TLS.
pub(super) fn rustls_error_of(error: &io::Error) -> Option<&rustls::Error> {
    match TlsFailed::of(error) {
        Some(failed) => rustls_error(&failed.cause),
        None => rustls_error(error),
    }
}

pub(super) fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_refusal(error: &rustls::Error) -> bool {
    use AlertDescription::{CertificateRequired, HandshakeFailure};
    match error {
        // After the client's part of the handshake nothing but its certificate is left to fail.
        rustls::Error::AlertReceived(CertificateRequired | HandshakeFailure) => true,
        rustls::Error::AlertReceived(alert) => is_about_certificate(*alert),
        _ => false,
    }
}

/// Explains rustls's error, unless that explains itself. The peer may be a server or a proxy, so it is not named.
fn explanation(error: &rustls::Error) -> Option<&'static str> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage as Invalid, PeerIncompatible};
    Some(match error {
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the certificate is signed by an authority that is not trusted"
        }
        InvalidCertificate(refused) if is_of_authority(refused) => {
            "the certificate is one for an authority (CA:TRUE), which is accepted only if it was added as a root itself, without revocation lists"
        }
        InvalidCertificate(_) => "the certificate is refused",
        Invalid(InvalidMessage::InvalidContentType) => "what answers does not speak TLS",
        AlertReceived(AlertDescription::ProtocolVersion) | PeerIncompatible(_) => {
            "no version or cipher of TLS in common"
        }
        AlertReceived(AlertDescription::NoApplicationProtocol) => "no protocol (ALPN) in common",
        AlertReceived(AlertDescription::CertificateRequired) => "a client certificate is required",
        AlertReceived(AlertDescription::HandshakeFailure) => {
            "no cipher in common, or a client certificate is missing or refused"
        }
        AlertReceived(alert) if is_about_certificate(*alert) => "the client certificate is refused",
        _ => return None,
    })
}

/// Returns true if a server's own certificate is refused because it is one for an authority.
pub(super) fn is_of_authority(refused: &CertificateError) -> bool {
    let CertificateError::Other(other) = refused else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

/// Returns true for the alerts with which a peer rejects a certificate (RFC 8446 §6.2).
fn is_about_certificate(alert: AlertDescription) -> bool {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRevoked, CertificateUnknown, DecryptError,
        UnknownCA, UnsupportedCertificate,
    };
    matches!(
        alert,
        AccessDenied
            | BadCertificate
            | CertificateExpired
            | CertificateRevoked
            | CertificateUnknown
            | DecryptError
            | UnknownCA
            | UnsupportedCertificate
    )
}

/// The reason why a TLS setting cannot work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The text is not PEM, or it does not contain what was expected.
    #[error("{what}: {why}")]
    Pem {
        /// The expected content: `private key`, `certificates` or `certificate revocation lists`.
        what: &'static str,
        /// The error in it.
        why: String,
    },
    /// The key and certificates in PKCS #12 cannot be read, for this reason.
    #[cfg(feature = "__native-tls")]
    #[error("the PKCS #12 archive cannot be read: {0}")]
    Pkcs12(String),
    /// The private key is encrypted, and there is no setting for its passphrase.
    #[error("the private key is encrypted; decrypt it first, as `openssl pkey` does")]
    EncryptedKey,
    /// The private key belongs to none of the chain's certificates.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The chain does not begin with the private key's certificate, or a certificate is not followed by its issuer's
    /// (RFC 8446 §4.4.2).
    #[error("the certificates are in the wrong order: {0}")]
    ChainOrder(String),
    /// A root certificate cannot be read.
    #[error("root certificate number {number} cannot be read: {why}")]
    Root {
        /// The certificate's place among those of the same text or file, from 1.
        number: usize,
        /// The error in it.
        why: String,
    },
    /// Only added root certificates are trusted, and none was added, so that no server would be.
    #[error("only added root certificates are trusted, and none was added")]
    NoRoots,
    /// The name is neither a host name nor an IP address.
    #[error("`{0}` cannot be the name of a server")]
    ServerName(String),
    /// The named setting would have no effect beside a whole `rustls::ClientConfig`.
    #[error("{0} has no effect beside a whole rustls configuration")]
    BesideClientConfig(&'static str),
    /// The named setting would have no effect beside [`TlsConfig::danger_accept_invalid_certs`].
    ///
    /// [`TlsConfig::danger_accept_invalid_certs`]: crate::tls::TlsConfig::danger_accept_invalid_certs
    #[error("{0} has no effect while any certificate is accepted")]
    BesideInvalidCerts(&'static str),
    /// The named setting would have no effect beside the platform's certificate authorities, whose verifier does not have
    /// it.
    #[error("{0} needs trusted roots of your own, because the platform's verifier does not have that setting")]
    BesidePlatformRoots(&'static str),
    /// Between the lowest and the highest version of TLS is none that the client speaks.
    #[error("the versions of TLS leave neither 1.2 nor 1.3, which are those that the client speaks")]
    NoVersion,
    /// The protocols to offer include a version of HTTP that the client's version settings exclude.
    #[error("the protocols offered (ALPN) include `{0}`, which the client's version settings exclude")]
    Alpn(String),
    /// The name of a protocol to offer has no bytes, or more than 255 (RFC 7301 §3.1).
    #[error("the name of a protocol to offer (ALPN) has {0} bytes; it must have 1 to 255")]
    AlpnLength(usize),
    /// The session cache is for more hosts than memory is reserved for.
    #[error("a session cache for {0} hosts is too large; the most is 1,000,000")]
    SessionCache(usize),
    /// A file or directory cannot be read.
    #[error("{path:?} cannot be read: {error}")]
    Unreadable {
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        error: Arc<io::Error>,
    },
    /// The content of a file is not valid.
    #[error("{path:?}: {error}")]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error in it.
        error: Box<TlsConfigError>,
    },
    /// rustls refuses the configuration.
    #[error(transparent)]
    Refused(#[from] rustls::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(alert: AlertDescription) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert))
    }

    #[test]
    fn the_clause_and_the_reason_say_each_thing_once() {
        let untrusted = rustls::Error::from(CertificateError::UnknownIssuer);
        let untrusted = TlsFailed::of_handshake(io::Error::new(io::ErrorKind::InvalidData, untrusted));
        assert_eq!(
            untrusted.to_string(),
            "the certificate is signed by an authority that is not trusted: invalid peer certificate: UnknownIssuer",
            "an event shows this alone"
        );
        assert!(std::error::Error::source(&untrusted).is_none());
        let failure = TlsFailed::of(&untrusted).unwrap();
        assert_eq!(
            failure.clause("192.0.2.1"),
            "TLS handshake with 192.0.2.1 failed: the certificate is signed by an authority that is not trusted"
        );
        assert_eq!(failure.reason().unwrap().to_string(), "invalid peer certificate: UnknownIssuer");
    }

    #[test]
    fn the_names_of_a_certificate_are_few_short_and_without_characters_that_steer() {
        let mut presented = vec!["DnsName(\"a\u{1b}[2J\u{202e}b\")".to_owned(), "x".repeat(1_000_000)];
        presented.extend((0..1_000).map(|index| format!("n{index}.test")));
        let expected = rustls::pki_types::ServerName::try_from("api.test").unwrap();
        let wrong = rustls::Error::from(CertificateError::NotValidForNameContext { expected, presented });
        let failed = TlsFailed::of_handshake(io::Error::new(io::ErrorKind::InvalidData, wrong));
        for text in [failed.to_string(), TlsFailed::of(&failed).unwrap().reason().unwrap().to_string()] {
            assert!(text.contains("DnsName(\"a\u{fffd}[2J\u{fffd}b\"), xxx") && text.len() < 600, "{text}");
            assert!(text.ends_with("n5.test or 994 more"), "{text}");
        }
        assert_eq!(certificate_problem(&failed), Some(CertificateProblem::WrongName));
    }

    #[test]
    fn a_time_limit_is_stated_by_the_clause_alone() {
        let late = TlsFailed::timed_out(Duration::from_micros(200_700));
        assert_eq!(
            (late.kind(), late.to_string().as_str()),
            (io::ErrorKind::TimedOut, "no TLS handshake within 200 ms")
        );
        let failure = TlsFailed::of(&late).unwrap();
        assert_eq!(failure.clause("192.0.2.1"), "no TLS handshake with 192.0.2.1 within 200 ms");
        assert!(failure.reason().is_none());
    }

    #[test]
    fn only_alerts_about_the_clients_certificate_are_refusals() {
        let refusal = |description| refusal(&alert(description)).map(|refusal| refusal.to_string());
        assert_eq!(
            refusal(AlertDescription::UnknownCA).as_deref(),
            Some("the client certificate is refused: received fatal alert: UnknownCA")
        );
        use AlertDescription::{
            AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
            CertificateUnknown, HandshakeFailure, UnsupportedCertificate,
        };
        for alert in [
            AccessDenied,
            BadCertificate,
            CertificateExpired,
            CertificateRequired,
            CertificateRevoked,
            CertificateUnknown,
            HandshakeFailure,
            UnsupportedCertificate,
        ] {
            assert!(refusal(alert).unwrap().contains("client certificate"), "{alert:?}");
        }
        assert_eq!(refusal(AlertDescription::InternalError), None);
    }

    #[test]
    fn the_alert_of_a_proxy_is_told_from_that_of_the_server() {
        let ended = |error: &io::Error| TlsFailed::of(&refusal(error).unwrap()).unwrap().clause_after_handshake();
        let server = alert(AlertDescription::CertificateRequired);
        assert_eq!(ended(&server), "the server ended the TLS connection: a client certificate is required");
        let proxy = of_proxy(server);
        assert_eq!(proxy.kind(), io::ErrorKind::InvalidData);
        assert_eq!(ended(&proxy), "the proxy ended the TLS connection: a client certificate is required");
        let clause = TlsFailed::of(&proxy).unwrap().clause("the proxy proxy.test:443");
        assert_eq!(clause, "TLS with the proxy proxy.test:443 failed: a client certificate is required");
        assert!(is_of_proxy(&proxy) && !is_of_proxy(&alert(AlertDescription::CertificateRequired)));
        let explained = TlsFailed::of_handshake(proxy);
        assert!(is_of_proxy(&explained), "the origin's handshake does not put another name to it: {explained}");
        let internal = of_proxy(alert(AlertDescription::InternalError));
        assert_eq!(internal.to_string(), "TLS with the proxy failed: received fatal alert: InternalError");
        assert!(refusal(&internal).is_none());
        let reset = of_proxy(io::ErrorKind::ConnectionReset.into());
        assert!(!is_of_proxy(&reset) && reset.kind() == io::ErrorKind::ConnectionReset);
    }
}
