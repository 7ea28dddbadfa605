//! Verifiers of certificates beside rustls's own: for pinned keys, for certificates of other names or that were added as roots, and for
//! any certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::hash::{Hash, HashAlgorithm};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme, SupportedCipherSuite};

use crate::tls::failure::is_of_authority;

/// Accepts a certificate if it is valid and its public key is pinned. The handshake's signature is always checked by that key, which a
/// verifier that accepts any certificate does not do.
pub(in crate::tls) struct Pinned {
    verifier: Arc<dyn ServerCertVerifier>,
    pins: Vec<[u8; 32]>,
    sha256: &'static dyn Hash,
    supported: WebPkiSupportedAlgorithms,
}

/// The error for a valid certificate whose public key is not pinned.
#[derive(Debug, thiserror::Error)]
#[error("its public key is none of those pinned")]
pub(in crate::tls) struct NotPinned;

impl Pinned {
    pub(in crate::tls) fn new(
        verifier: Arc<dyn ServerCertVerifier>,
        pins: Vec<[u8; 32]>,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        let supported = provider.signature_verification_algorithms;
        Ok(Self { verifier, pins, sha256: sha256_of(provider)?, supported })
    }
}

/// Returns the provider's SHA-256, by which keys are pinned.
pub(in crate::tls) fn sha256_of(provider: &CryptoProvider) -> Result<&'static dyn Hash, Error> {
    let mut hashes = provider.cipher_suites.iter().map(|suite| match suite {
        SupportedCipherSuite::Tls12(suite) => suite.common.hash_provider,
        SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider,
    });
    let sha256 = hashes.find(|hash| hash.algorithm() == HashAlgorithm::SHA256);
    sha256.ok_or_else(|| Error::General("the crypto provider has no SHA-256".to_owned()))
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("pins", &self.pins.len()).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let valid = self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now)?;
        let key = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let digest = self.sha256.hash(&key);
        match self.pins.iter().any(|pin| pin == digest.as_ref()) {
            true => Ok(valid),
            false => Err(CertificateError::Other(OtherError(Arc::new(NotPinned))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.supported)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.supported)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Accepts some valid certificates that webpki refuses. Only around a verifier that checks the name last, as rustls's own does: then a
/// wrong name means that all else is right.
#[derive(Debug)]
pub(in crate::tls) struct Lenient {
    pub(in crate::tls) verifier: Arc<dyn ServerCertVerifier>,
    /// The roots that a server may use as its own certificate, though they are for an authority: what `openssl req -x509` makes. Their
    /// keys could sign any other certificate, so nothing more is trusted.
    pub(in crate::tls) own_roots: Vec<CertificateDer<'static>>,
    /// True if a certificate may be valid for another name.
    pub(in crate::tls) accepts_any_name: bool,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = match self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            // webpki has checked the dates by then.
            Err(Error::InvalidCertificate(refused))
                if is_of_authority(&refused) && self.own_roots.iter().any(|root| root == end_entity) =>
            {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&certificate, server_name).map(|()| ServerCertVerified::assertion())
            }
            verified => verified,
        };
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.accepts_any_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Accepts any certificate, also one that rustls cannot read. So it does not check the handshake's signature either.
#[derive(Debug)]
pub(in crate::tls) struct AcceptAny(pub(in crate::tls) Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
