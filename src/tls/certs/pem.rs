//! Reads certificates and private keys in PEM, and checks root certificates.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::tls::error::TlsConfigError;

/// Reads a private key.
pub(in crate::tls) fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match is_encrypted(pem) {
        true => TlsConfigError::EncryptedKey,
        false => TlsConfigError::Pem { what: "private key", why: error.to_string() },
    })
}

/// Returns true if the label (RFC 7468 §11) or a header (RFC 1421) says that the key is encrypted.
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Reads one or more certificates.
pub(in crate::tls) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let wrong = |why: String| TlsConfigError::Pem { what: "certificates", why };
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| wrong(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(wrong("there is none".to_owned())),
        false => Ok(certificates),
    }
}

/// Checks that each of these root certificates can be read.
pub(in crate::tls) fn check_roots(roots: &[CertificateDer<'_>]) -> Result<(), TlsConfigError> {
    for (index, root) in roots.iter().enumerate() {
        if let Err(error) = webpki::anchor_from_trusted_cert(root) {
            let why = if root.starts_with(b"-----BEGIN") {
                "it is PEM, not DER".to_owned()
            } else {
                format!("it is not a certificate in DER ({error})")
            };
            return Err(TlsConfigError::Root { number: index + 1, why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_told_from_an_invalid_one() {
        let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(matches!(private_key(encrypted), Err(TlsConfigError::EncryptedKey)));
        assert!(matches!(private_key(b"no key"), Err(TlsConfigError::Pem { what: "private key", .. })));
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let error = certificates(b"no certificate").unwrap_err();
        assert_eq!(error.to_string(), "certificates: there is none");
    }

    #[test]
    fn a_root_certificate_that_cannot_be_read_is_named_by_its_number() {
        let error = |der: &'static [u8]| check_roots(&[CertificateDer::from(der)]).unwrap_err().to_string();
        let start = "root certificate number 1 cannot be read: ";
        for der in [&b"nonsense"[..], b""] {
            assert!(error(der).starts_with(&format!("{start}it is not a certificate in DER (")), "{}", error(der));
        }
        assert_eq!(error(b"-----BEGIN CERTIFICATE-----"), format!("{start}it is PEM, not DER"));
        assert!(check_roots(&[]).is_ok());
    }
}
