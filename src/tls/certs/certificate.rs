//! Certificates of authorities, and lists of certificates that an authority has revoked.

use std::fmt;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

use super::pem;
use super::pem::check_roots;
use crate::tls::error::TlsConfigError;

/// One or more certificates of authorities that sign the certificates of servers.
///
/// ```
/// use speeddial::tls::Certificate;
///
/// fn client() -> Result<speeddial::Client, Box<dyn std::error::Error>> {
///     let authority = Certificate::from_pem(&std::fs::read("/etc/ssl/internal.pem")?)?;
///     Ok(speeddial::Client::builder().tls_certs_only([authority]).build()?)
/// }
/// ```
#[derive(Clone)]
pub struct Certificate {
    pub(in crate::tls) ders: Vec<CertificateDer<'static>>,
}

impl Certificate {
    pub(crate) fn read_der(der: &[u8]) -> Result<Self, TlsConfigError> {
        Self::of(vec![CertificateDer::from(der.to_vec())])
    }

    pub(crate) fn read_pem(pem: &[u8]) -> Result<Self, TlsConfigError> {
        Self::of(pem::certificates(pem)?)
    }

    pub(crate) fn read_pem_bundle(pem_bundle: &[u8]) -> Result<Vec<Self>, TlsConfigError> {
        let all = Self::read_pem(pem_bundle)?;
        Ok(all.ders.into_iter().map(|der| Self { ders: vec![der] }).collect())
    }

    fn of(ders: Vec<CertificateDer<'static>>) -> Result<Self, TlsConfigError> {
        check_roots(&ders)?;
        Ok(Self { ders })
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("certificates", &self.ders.len()).finish()
    }
}

/// A list of certificates that an authority has revoked (CRL, RFC 5280 §5).
///
/// See [`ClientBuilder::tls_crls_only`](crate::ClientBuilder::tls_crls_only).
#[derive(Clone)]
pub struct CertificateRevocationList {
    pub(in crate::tls) der: CertificateRevocationListDer<'static>,
}

impl CertificateRevocationList {
    /// Reads all lists of a text in PEM: at least one.
    pub(crate) fn read_pem_bundle(pem_bundle: &[u8]) -> Result<Vec<Self>, TlsConfigError> {
        let wrong = |why: String| TlsConfigError::Pem { what: "certificate revocation lists", why };
        let read = CertificateRevocationListDer::pem_slice_iter(pem_bundle).collect::<Result<Vec<_>, _>>();
        let ders = read.map_err(|error| wrong(error.to_string()))?;
        if ders.is_empty() {
            return Err(wrong("there is none".to_owned()));
        }
        for der in &ders {
            webpki::BorrowedCertRevocationList::from_der(der).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(ders.into_iter().map(|der| Self { der }).collect())
    }
}

impl fmt::Debug for CertificateRevocationList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateRevocationList").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_and_no_list_is_refused() {
        assert!(matches!(Certificate::read_der(b"x"), Err(TlsConfigError::Root { number: 1, .. })));
        assert!(matches!(Certificate::read_pem(b"x"), Err(TlsConfigError::Pem { what: "certificates", .. })));
        let list = b"-----BEGIN X509 CRL-----\nMAA=\n-----END X509 CRL-----\n";
        for wrong in [&b"x"[..], list] {
            let error = CertificateRevocationList::read_pem_bundle(wrong).unwrap_err();
            assert!(error.to_string().starts_with("certificate revocation lists: "), "{error}");
        }
    }
}
