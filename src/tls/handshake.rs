//! The TLS handshake: a stream becomes an encrypted one, with the facts for the trace and for users.

use std::sync::Arc;
use std::{fmt, io};

use bytes::Bytes;
use rustls::HandshakeKind;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::config::TlsConfig;
use super::config::lazy_config::LazyConfig;
use super::failure::TlsFailed;
use crate::origin::Host;
use crate::tls::version::Version;
use crate::trace::TlsFacts;

/// A client's TLS: makes handshakes with servers. Clones share the sessions that are kept for resumption.
#[derive(Clone)]
pub(crate) struct Tls {
    /// Shared with the thread that prepares it in the background.
    pub(super) config: Arc<LazyConfig>,
}

/// A stream after its TLS handshake, and the facts about that.
pub(crate) struct TlsConnected<S> {
    pub(crate) stream: TlsStream<S>,
    pub(crate) facts: TlsFacts,
}

impl Tls {
    /// Uses the settings `config`. Offers the protocols of `alpn`, unless the settings name others.
    pub(crate) fn new(config: &TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        Self { config: Arc::new(LazyConfig::new(config.fixed(), alpn)) }
    }

    /// Returns the TLS that takes this one's place with other settings, or is used beside it: this one, if they are the same.
    pub(crate) fn changed(&self, config: &TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        let config = config.fixed();
        if self.config.is_for(&config, alpn) {
            return self.clone();
        }
        Self { config: Arc::new(self.config.changed(config, alpn)) }
    }

    /// Returns true if both are the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }

    /// Returns true if a connection that was made by `earlier` may go on: the settings are the same, or only trust more certificate
    /// authorities.
    pub(crate) fn includes(&self, earlier: &Self) -> bool {
        self.is_same(earlier) || self.config.settings.includes(&earlier.config.settings)
    }

    /// Makes the TLS for `https` proxies of the same client. Offers the protocols of `alpn`.
    pub(crate) fn for_proxies(&self, alpn: &'static [&'static [u8]]) -> Self {
        Self { config: Arc::new(self.config.for_proxies(alpn)) }
    }

    /// Prepares the slow parts of the first handshake in the background. Returns at once.
    pub(crate) fn prepare(&self) {
        self.config.prepare();
    }

    /// Shakes hands with `host` over `stream`.
    pub(crate) async fn handshake<S>(&self, stream: S, host: &Host) -> io::Result<TlsConnected<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = self.name_for(host)?;
        let connector = TlsConnector::from(self.config.get().map_err(TlsFailed::not_begun)?);
        let stream = connector.connect(name, stream).await.map_err(TlsFailed::of_handshake)?;
        let facts = self.facts(&stream);
        Ok(TlsConnected { stream, facts })
    }

    /// Returns the name that `host` is asked for, and for which its certificate has to be.
    pub(super) fn name_for(&self, host: &Host) -> io::Result<ServerName<'static>> {
        match &self.config.settings.server_name {
            Some(name) => Ok(name.clone()),
            None => server_name(host),
        }
    }

    pub(super) fn facts<S>(&self, stream: &TlsStream<S>) -> TlsFacts {
        let (_, connection) = stream.get_ref();
        let name = |name: Option<&'static str>| name.unwrap_or("unknown");
        let certificates = connection.peer_certificates().unwrap_or_default();
        TlsFacts {
            version: name(connection.protocol_version().and_then(|version| version.as_str())),
            cipher_suite: name(connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str())),
            alpn: connection.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into()),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            verified: self.config.settings.verifies_servers(),
            peer_certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
        }
    }
}

/// Returns the name by which a server is asked for its certificate (SNI).
fn server_name(host: &Host) -> io::Result<ServerName<'static>> {
    match host {
        Host::Ip(ip) => Ok(ServerName::from(*ip)),
        // The name in the handshake has no dot at its end (RFC 6066 §3).
        Host::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .map_err(|_| TlsFailed::not_begun(format!("`{name}` cannot be in a certificate"))),
    }
}

/// The certificate and the version of TLS of the connection that a response came over. An extension of the responses of
/// a client with [`tls_info`](crate::ClientBuilder::tls_info). [`Response::tls`](crate::Response::tls) has these facts
/// and more, and needs no setting.
///
/// ```
/// use speeddial::tls::TlsInfo;
///
/// # async fn example() -> Result<(), speeddial::Error> {
/// let client = speeddial::Client::builder().tls_info(true).build()?;
/// let response = http::Response::from(client.get("https://api.example.com/").send().await?);
/// let info = response.extensions().get::<TlsInfo>();
/// println!("{:?}", info.and_then(TlsInfo::version));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TlsInfo {
    facts: Arc<TlsFacts>,
}

impl TlsInfo {
    pub(crate) fn new(facts: Arc<TlsFacts>) -> Self {
        Self { facts }
    }

    /// Returns the server's own certificate in DER; `None` if it sent none.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.facts.peer_certificates.first().map(|der| &der[..])
    }

    /// Returns the version of TLS that was negotiated.
    pub fn version(&self) -> Option<Version> {
        Version::named(self.facts.version)
    }
}

impl fmt::Debug for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsInfo").field("version", &self.version()).finish_non_exhaustive()
    }
}
