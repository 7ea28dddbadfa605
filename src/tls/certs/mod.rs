//! Certificates, keys and the roots of trust. A core: it reads what the user gives, and files of revocation.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs`, `identity.rs` | those that the user gives; which ones are revoked |
//! | `watched.rs` | files of them that are read again |
//! | `verify.rs` | the verification of a server |
//! | `x509.rs` | what a certificate says of itself |

use std::fmt;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use crate::tls::failure::TlsConfigError;

pub(super) mod identity;
pub(super) mod verify;
pub(super) mod watched;
#[cfg(feature = "doctor")]
pub(super) mod x509;

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
        Self::of(certificates(pem)?)
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

const INTEGER: u8 = 0x02;
const SEQUENCE: u8 = 0x30;
/// The time with two digits for the year; any other is one with four (RFC 5280 §5.1.2.4).
const UTC_TIME: u8 = 0x17;

/// Puts the newest list first, and of equally old ones that which was added last: webpki asks the first list that is for a certificate,
/// and no other.
pub(in crate::tls) fn newest_first(
    mut lists: Vec<CertificateRevocationListDer<'static>>,
) -> Vec<CertificateRevocationListDer<'static>> {
    lists.sort_by_cached_key(|list| issued(list));
    lists.reverse();
    lists
}

/// Returns the time at which a list was issued (thisUpdate), as digits that sort by it. webpki refuses a list without one.
fn issued(list: &[u8]) -> Option<Vec<u8>> {
    let (mut signed, _) = expect(list, SEQUENCE)?;
    (signed, _) = expect(signed, SEQUENCE)?;
    // The version, the signature's algorithm and the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, signed) = expect(signed, tag)?;
    }
    let (tag, digits, _) = take(signed)?;
    let century: &[u8] = match digits {
        [b'5'..=b'9', ..] if tag == UTC_TIME => b"19",
        _ if tag == UTC_TIME => b"20",
        _ => b"",
    };
    Some([century, digits].concat())
}

/// Takes the first element of DER (X.690), if it has this tag. Returns its content, and what follows it.
fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    take(der).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// Takes the first element of DER. Returns its tag, its content, and what follows it.
fn take(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = der else { return None };
    let (length, rest) = match usize::from(*first) {
        length @ 0..0x80 => (length, rest),
        long => {
            let (digits, rest) = rest.split_at_checked(long & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
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

#[cfg(test)]
mod pem_tests {
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

#[cfg(test)]
mod revocation_tests {
    use super::*;

    /// Returns DER with this tag and content.
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    }

    fn list(tag: u8, time: &[u8]) -> Vec<u8> {
        let head = [element(INTEGER, &[1]), element(SEQUENCE, &[0; 300]), element(SEQUENCE, b"")].concat();
        element(SEQUENCE, &element(SEQUENCE, &[head, element(tag, time), vec![0; 9]].concat()))
    }

    #[test]
    fn lists_are_sorted_by_the_time_of_their_issue() {
        let times: [(u8, &[u8]); 5] = [
            (UTC_TIME, b"500101000000Z"),
            (UTC_TIME, b"991231235959Z"),
            (UTC_TIME, b"000101000000Z"),
            (UTC_TIME, b"491231235959Z"),
            (0x18, b"20500101000000Z"),
        ];
        let issues = times.map(|(tag, time)| issued(&list(tag, time)).unwrap());
        assert!(issues.is_sorted() && issues[2] == b"20000101000000Z", "{issues:?}");
    }

    #[test]
    fn a_list_that_is_cut_or_claims_any_length_is_older_than_all_others() {
        let whole = list(UTC_TIME, b"000101000000Z");
        let inner = whole.len() - 9;
        assert!((0..inner).all(|end| issued(&whole[..end]).is_none()));
        for bytes in [&[0x30, 0x80][..], &[0x30, 0xff], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x89]] {
            assert_eq!(issued(bytes), None);
        }
    }
}
