//! Verifiers of certificates beside rustls's own: for pinned keys, for certificates of other names, and for any
//! certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::hash::{Hash, HashAlgorithm};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, SignatureScheme, SupportedCipherSuite};

/// Accepts a certificate if it is valid and its public key is pinned.
pub(super) struct Pinned {
    verifier: Arc<dyn ServerCertVerifier>,
    pins: Vec<[u8; 32]>,
    sha256: &'static dyn Hash,
}

/// The error for a valid certificate whose public key is not pinned.
#[derive(Debug, thiserror::Error)]
#[error("its public key is none of those pinned")]
pub(super) struct NotPinned;

impl Pinned {
    pub(super) fn new(
        verifier: Arc<dyn ServerCertVerifier>,
        pins: Vec<[u8; 32]>,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        Ok(Self { verifier, pins, sha256: sha256_of(provider)? })
    }
}

/// Returns the provider's SHA-256, by which keys are pinned.
pub(super) fn sha256_of(provider: &CryptoProvider) -> Result<&'static dyn Hash, Error> {
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

/// Accepts a valid certificate also if it is for another name. Only around a verifier that checks the name last, as
/// rustls's own does: then a wrong name means that all else is right.
#[derive(Debug)]
pub(super) struct AnyName(pub(super) Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Accepts any certificate. The handshake's signatures are still checked, so the peer has the key of its certificate.
#[derive(Debug)]
pub(super) struct AcceptAny {
    provider: Arc<CryptoProvider>,
}

impl AcceptAny {
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

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
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
