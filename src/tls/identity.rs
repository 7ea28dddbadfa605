//! The client's own certificate: a chain and a private key that belong together.

use std::fmt;
use std::sync::Arc;

use rustls::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use webpki::EndEntityCert;

use super::error::TlsConfigError;
use super::pem::{certificates, private_key};
use crate::trust;

/// The client's own certificate and private key, which it shows to servers that ask for one (mTLS).
///
/// ```
/// use speeddial::tls::Identity;
///
/// fn client() -> Result<speeddial::Client, Box<dyn std::error::Error>> {
///     let identity = Identity::from_pem(&std::fs::read("/etc/ssl/client.pem")?)?;
///     Ok(speeddial::Client::builder().identity(identity).build()?)
/// }
/// ```
#[derive(Clone)]
pub struct Identity(Arc<Parts>);

/// A chain that begins with the client's certificate, and the private key of that certificate.
struct Parts {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.0.chain.len()).finish_non_exhaustive()
    }
}

impl Identity {
    /// Reads a private key and a chain of certificates, the client's own first, from one text in PEM.
    ///
    /// # Errors
    /// [`TlsConfigError::Pem`] if either is missing or invalid. [`TlsConfigError::EncryptedKey`],
    /// [`TlsConfigError::KeyMismatch`] or [`TlsConfigError::ChainOrder`] if they cannot be used together.
    /// [`TlsConfigError::Refused`] for a kind of key or certificate that rustls does not support.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsConfigError> {
        Self::from_pkcs8_pem(pem, pem)
    }

    /// Reads a chain of certificates, the client's own first, and its private key, from two texts in PEM. The key may also be in
    /// one of the older forms, PKCS #1 and SEC 1.
    ///
    /// # Errors
    /// As [`from_pem`](Self::from_pem).
    pub fn from_pkcs8_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsConfigError> {
        let key = private_key(key)?;
        Self::new(certificates(chain)?, key)
    }

    pub(super) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.0.chain.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        self.0.key.clone_key()
    }

    /// Checks the parts as a server would. `chain` must not be empty.
    ///
    /// # Errors
    /// If the key is that of another certificate, or the chain is in the wrong order.
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsConfigError> {
        check_key(&chain, &key)?;
        check_order(&chain)?;
        Ok(Self(Arc::new(Parts { chain, key })))
    }
}

/// Checks that the key is that of the chain's first certificate.
fn check_key(chain: &[CertificateDer<'static>], key: &PrivateKeyDer<'static>) -> Result<(), TlsConfigError> {
    let key = trust::provider().key_provider.load_private_key(key.clone_key())?;
    // Not every crypto provider can derive the public key.
    let Some(public_key) = key.public_key() else { return Ok(()) };
    let matches = |certificate: &CertificateDer<'_>| -> Result<bool, Error> {
        Ok(ParsedCertificate::try_from(certificate)?.subject_public_key_info() == public_key)
    };
    match chain.iter().position(|certificate| matches(certificate).unwrap_or(false)) {
        Some(0) => Ok(()),
        Some(index) => {
            let what = format!("that of the private key is number {}, and has to be the first", index + 1);
            Err(TlsConfigError::ChainOrder(what))
        }
        None => {
            matches(&chain[0])?;
            Err(TlsConfigError::KeyMismatch)
        }
    }
}

/// Checks that each certificate is followed by its issuer's, as far as the chain contains that.
fn check_order(chain: &[CertificateDer<'static>]) -> Result<(), TlsConfigError> {
    // A certificate that cannot be read ends the check; the server will judge it.
    let certificates: Vec<_> = chain.iter().map(|certificate| EndEntityCert::try_from(certificate).ok()).collect();
    for (index, own) in certificates.iter().enumerate() {
        let Some(own) = own else { return Ok(()) };
        let is_issuer =
            |other: &Option<EndEntityCert<'_>>| other.as_ref().is_some_and(|other| other.subject() == own.issuer());
        let is_root = own.issuer() == own.subject();
        if is_root {
            return Ok(());
        }
        if certificates.get(index + 1).is_some_and(is_issuer) {
            continue;
        }
        let Some(found) = certificates.iter().position(is_issuer) else { return Ok(()) };
        let what = format!("number {} is issued by number {}, which has to follow it", index + 1, found + 1);
        return Err(TlsConfigError::ChainOrder(what));
    }
    Ok(())
}
