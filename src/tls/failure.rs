//! Failed handshakes in words that a person can act on.

use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage};

/// The failure of a handshake.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct HandshakeFailed {
    what: String,
    #[source]
    cause: io::Error,
}

/// Puts the failure of a handshake into words. An error that is not about TLS is returned as it is.
pub(super) fn explain(error: io::Error) -> io::Error {
    let rustls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let what = match (rustls, error.kind()) {
        (Some(error), _) => in_words(error),
        (None, io::ErrorKind::UnexpectedEof) => "the connection closed in the TLS handshake".to_owned(),
        (None, io::ErrorKind::ConnectionReset) => "the connection was reset in the TLS handshake".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), HandshakeFailed { what, cause: error })
}

/// Returns in words the alert by which the server rejects the client's certificate or the lack of one; `None` for any
/// other error. With TLS 1.3 the alert arrives after the handshake, as an error of the stream.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        refused @ rustls::Error::AlertReceived(alert)
            if *alert == AlertDescription::CertificateRequired || is_about_certificate(*alert) =>
        {
            Some(in_words(refused))
        }
        _ => None,
    }
}

fn in_words(error: &rustls::Error) -> String {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage as Invalid, PeerIncompatible};
    match error {
        InvalidCertificate(CertificateError::Other(other)) => format!("the certificate is refused: {}", other.0),
        InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the certificate is signed by an authority that is not trusted (UnknownIssuer)".to_owned()
        }
        InvalidCertificate(error) => format!("the certificate is refused: {error}"),
        Invalid(InvalidMessage::InvalidContentType) => "what answers does not speak TLS".to_owned(),
        AlertReceived(AlertDescription::ProtocolVersion) | PeerIncompatible(_) => {
            format!("no version or cipher of TLS in common: {error}")
        }
        AlertReceived(AlertDescription::NoApplicationProtocol) => "no protocol (ALPN) in common".to_owned(),
        AlertReceived(AlertDescription::CertificateRequired) => {
            "the server wants a certificate of the client".to_owned()
        }
        AlertReceived(alert) if is_about_certificate(*alert) => {
            format!("the server refuses the client's certificate ({alert:?})")
        }
        error => format!("the TLS handshake failed: {error}"),
    }
}

/// Returns true for the alerts with which a server rejects a certificate (RFC 8446 §6.2).
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
