//! Failed handshakes in words that a person can act on.

use std::{fmt, io};

use rustls::{AlertDescription, CertificateError, InvalidMessage};

/// The failure of a handshake.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct HandshakeFailed {
    what: String,
    #[source]
    cause: io::Error,
}

/// The peer of a TLS connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    /// The origin's server.
    Server,
    /// An `https` proxy.
    Proxy,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "the server",
            Self::Proxy => "the proxy",
        })
    }
}

/// An error of TLS with a proxy, after its handshake. Streams to origins run inside of that TLS, and their errors must
/// not be taken for those of the origin's TLS.
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0, Peer::Proxy))]
struct ProxyTlsError(#[source] rustls::Error);

/// Marks an error as one of TLS with a proxy. An error that is not about TLS is returned as it is.
pub(crate) fn of_proxy(error: io::Error) -> io::Error {
    match rustls_error(&error) {
        Some(rustls) => io::Error::new(error.kind(), ProxyTlsError(rustls.clone())),
        None => error,
    }
}

/// Returns true if an error is one of TLS with a proxy, as [`of_proxy`] marks it.
pub(crate) fn is_of_proxy(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<ProxyTlsError>())
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Puts the failure of a handshake into words. An error that is not about TLS is returned as it is.
pub(super) fn explain(error: io::Error, peer: Peer) -> io::Error {
    let what = match (rustls_error(&error), error.kind()) {
        (Some(error), _) => in_words(error, peer),
        (None, io::ErrorKind::UnexpectedEof) => "the connection closed in the TLS handshake".to_owned(),
        (None, io::ErrorKind::ConnectionReset) => "the connection was reset in the TLS handshake".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), HandshakeFailed { what, cause: error })
}

/// Returns in words the alert by which the peer rejects the client's certificate or the lack of one; `None` for any
/// other error. With TLS 1.3 the alert arrives after the handshake, as an error of the stream.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    let proxys = error.get_ref().and_then(|error| error.downcast_ref::<ProxyTlsError>());
    let (error, peer) = match proxys {
        Some(ProxyTlsError(error)) => (error, Peer::Proxy),
        None => (rustls_error(error)?, Peer::Server),
    };
    match error {
        rustls::Error::AlertReceived(alert)
            if *alert == AlertDescription::CertificateRequired || is_about_certificate(*alert) =>
        {
            Some(in_words(error, peer))
        }
        _ => None,
    }
}

fn in_words(error: &rustls::Error, peer: Peer) -> String {
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
            format!("{peer} wants a certificate of the client")
        }
        AlertReceived(alert) if is_about_certificate(*alert) => {
            format!("{peer} refuses the client's certificate ({alert:?})")
        }
        error => match peer {
            Peer::Server => format!("the TLS handshake failed: {error}"),
            Peer::Proxy => format!("TLS with the proxy failed: {error}"),
        },
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(alert: AlertDescription) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(alert))
    }

    #[test]
    fn the_alert_of_a_proxy_is_told_from_that_of_the_server() {
        let server = alert(AlertDescription::CertificateRequired);
        assert_eq!(refusal(&server).as_deref(), Some("the server wants a certificate of the client"));
        let proxy = of_proxy(server);
        assert_eq!(proxy.kind(), io::ErrorKind::InvalidData);
        assert_eq!(refusal(&proxy).as_deref(), Some("the proxy wants a certificate of the client"));
        assert_eq!(proxy.to_string(), "the proxy wants a certificate of the client");
        assert!(is_of_proxy(&proxy) && !is_of_proxy(&alert(AlertDescription::CertificateRequired)));
        let explained = explain(proxy, Peer::Server);
        assert!(is_of_proxy(&explained), "the origin's handshake does not put another name to it: {explained}");
        let internal = of_proxy(alert(AlertDescription::InternalError));
        assert_eq!(internal.to_string(), "TLS with the proxy failed: received fatal alert: InternalError");
        assert_eq!(refusal(&internal), None);
        let reset = of_proxy(io::ErrorKind::ConnectionReset.into());
        assert!(!is_of_proxy(&reset) && reset.kind() == io::ErrorKind::ConnectionReset);
    }
}
