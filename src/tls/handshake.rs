//! The handshake: a stream in, a secret one out, and the facts for the trace.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, HandshakeKind, InvalidMessage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::TlsConfig;
use super::lazy_config::LazyConfig;
use crate::origin::Host;
use crate::trace::TlsFacts;

/// Shakes hands with servers.
pub(crate) struct Tls {
    /// Shared with the thread that prepares it.
    config: Arc<LazyConfig>,
}

/// A stream after its handshake.
pub(crate) struct Shaken<S> {
    pub(crate) stream: TlsStream<S>,
    pub(crate) facts: TlsFacts,
}

/// Why a handshake failed, in words a person can act on.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Failed {
    what: String,
    #[source]
    cause: io::Error,
}

impl Tls {
    /// Offers the protocols of `alpn`, unless the configuration names others.
    pub(crate) fn new(config: TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        Self { config: Arc::new(LazyConfig::new(config, alpn)) }
    }

    /// Has the slow parts of the first handshake done in the background. Does not wait for them.
    pub(crate) fn prepare(&self) {
        self.config.prepare();
    }

    /// Shakes hands with `host` over `stream`.
    pub(crate) async fn shake<S>(&self, stream: S, host: &Host) -> io::Result<Shaken<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config.get().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let name = match &self.config.settings.server_name {
            Some(name) => name.clone(),
            None => server_name(host)?,
        };
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(explain)?;
        let facts = self.facts(&stream);
        Ok(Shaken { stream, facts })
    }

    fn facts<S>(&self, stream: &TlsStream<S>) -> TlsFacts {
        let (_, connection) = stream.get_ref();
        let name = |name: Option<&'static str>| name.unwrap_or("unknown");
        let certificates = connection.peer_certificates().unwrap_or_default();
        TlsFacts {
            version: name(connection.protocol_version().and_then(|version| version.as_str())),
            cipher_suite: name(connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str())),
            alpn: connection.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into()),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            verified: !self.config.settings.accepts_anyone,
            peer_certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
        }
    }
}

fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host {
        Host::Ip(ip) => Ok(ServerName::from(*ip)),
        // The dot at the end of a full name is DNS's own (RFC 6066 §3).
        Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("`{name}` cannot be in a certificate"))),
    }
}

fn explain(error: io::Error) -> io::Error {
    let rustls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    let what = match (rustls, error.kind()) {
        (Some(error), _) => in_words(error),
        (None, io::ErrorKind::UnexpectedEof) => "the connection closed in the TLS handshake".to_owned(),
        (None, io::ErrorKind::ConnectionReset) => "the connection was reset in the TLS handshake".to_owned(),
        _ => return error,
    };
    io::Error::new(error.kind(), Failed { what, cause: error })
}

/// The alert by which the server rejects the client's certificate, or the lack of one, in words. With TLS 1.3 it
/// arrives after the handshake, as an error of the stream.
pub(crate) fn refusal(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        refused @ rustls::Error::AlertReceived(alert)
            if *alert == AlertDescription::CertificateRequired || is_about_the_client(*alert) =>
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
        AlertReceived(alert) if is_about_the_client(*alert) => {
            format!("the server refuses the client's certificate ({alert:?})")
        }
        error => format!("the TLS handshake failed: {error}"),
    }
}

/// Whether a server says so of a certificate it was shown (RFC 8446 §6.2).
fn is_about_the_client(alert: AlertDescription) -> bool {
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
