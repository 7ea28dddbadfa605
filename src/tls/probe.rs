//! Handshakes that are made to be looked at, each on a connection of its own.
//!
//! No handshake here accepts a certificate that the client's settings refuse. To describe such a certificate, a second handshake
//! notes the chain and then refuses it, so that there is never a connection over which something could be sent.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::certs::x509::CertificateSummary;
use super::failure::{TlsFailed, rustls_error_of};
use super::handshake::Tls;
use crate::origin::Host;
use crate::trace::TlsFacts;

/// The most certificates of a chain that are read.
const MAX_CHAIN: usize = 8;

impl Tls {
    /// Returns true if servers are offered HTTP/2.
    pub(crate) fn offers_http2(&self) -> bool {
        self.config.get().is_ok_and(|config| config.alpn_protocols.iter().any(|protocol| protocol == b"h2"))
    }

    /// Shakes hands with `host` as the client would, but without an earlier session, and ends the connection.
    ///
    /// # Errors
    /// Those of a handshake of the client.
    pub(crate) async fn examine<S>(&self, stream: S, host: &Host) -> io::Result<TlsFacts>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config.get().map_err(TlsFailed::not_begun)?;
        let mut config = ClientConfig::clone(&config);
        config.resumption = Resumption::disabled();
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(self.name_for(host)?, stream).await.map_err(TlsFailed::of_handshake)?;
        Ok(self.facts(&stream))
    }

    /// Returns the chain that a server sends, the server's own certificate first. Its handshake always fails.
    pub(crate) async fn fetch_chain<S>(&self, stream: S, host: &Host) -> Vec<Bytes>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let (Ok(config), Ok(name)) = (self.config.get(), self.name_for(host)) else { return Vec::new() };
        let mut config = ClientConfig::clone(&config);
        config.resumption = Resumption::disabled();
        let schemes = config.crypto_provider().signature_verification_algorithms.supported_schemes();
        let noted = Arc::new(NoteAndRefuse { chain: Mutex::default(), schemes });
        config.dangerous().set_certificate_verifier(noted.clone());
        let _ = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        let mut chain = noted.chain.lock();
        std::mem::take(&mut *chain)
    }

    /// Reads the certificates of a chain, at most 8, and leaves out those that cannot be read.
    pub(crate) fn summaries(chain: &[Bytes]) -> Vec<CertificateSummary> {
        chain.iter().take(MAX_CHAIN).filter_map(|der| CertificateSummary::read(der)).collect()
    }

    /// Returns the name that a certificate must be for: that of the settings, or else the host's.
    pub(crate) fn checked_name(&self, host: &Host) -> String {
        match self.name_for(host) {
            Ok(name) => name.to_str().into_owned(),
            Err(_) => host.to_string(),
        }
    }

    /// Returns true if the server's own certificate is for `host`; `None` if that cannot be told.
    pub(crate) fn is_for(&self, chain: &[Bytes], host: &Host) -> Option<bool> {
        let der = CertificateDer::from(chain.first()?.to_vec());
        let certificate = ParsedCertificate::try_from(&der).ok()?;
        let name = self.name_for(host).ok()?;
        Some(verify_server_name(&certificate, &name).is_ok())
    }
}

/// Returns true if a handshake failed because the server speaks none of the protocols that the client offers by ALPN.
pub(crate) fn has_no_common_protocol(error: &io::Error) -> bool {
    let refusal = AlertDescription::NoApplicationProtocol;
    matches!(rustls_error_of(error), Some(Error::AlertReceived(alert)) if *alert == refusal)
}

/// Notes the chain of a server, and refuses it.
#[derive(Debug)]
struct NoteAndRefuse {
    chain: Mutex<Vec<Bytes>>,
    schemes: Vec<SignatureScheme>,
}

impl NoteAndRefuse {
    fn refusal() -> Error {
        CertificateError::ApplicationVerificationFailure.into()
    }
}

impl ServerCertVerifier for NoteAndRefuse {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = std::iter::once(end_entity).chain(intermediates).take(MAX_CHAIN);
        *self.chain.lock() = chain.map(|der| Bytes::copy_from_slice(der)).collect();
        Err(Self::refusal())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Self::refusal())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Self::refusal())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
