//! The client's own certificate: a chain and a private key that belong together.

use rustls::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use webpki::EndEntityCert;

use super::error::TlsConfigError;
use crate::trust;

/// A chain that begins with the client's certificate, and the private key of that certificate.
pub(super) struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
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
        Ok(Self { chain, key })
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
