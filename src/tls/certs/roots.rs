//! Checks the root certificates that a user adds.

use rustls::pki_types::CertificateDer;

use crate::tls::error::TlsConfigError;

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
