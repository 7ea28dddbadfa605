//! The names for which a server's certificate is valid beside the one that it was verified for.

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// The most names of a certificate that are read.
const MAX_NAMES: usize = 1_024;

/// Returns the DNS names in a certificate, in lower case: whole names, and those that begin with `*.`. Empty if the certificate cannot
/// be read or has more than 1,024.
pub(crate) fn names_of(certificate: &[u8]) -> Vec<Box<str>> {
    names_up_to(MAX_NAMES, certificate)
}

fn names_up_to(most: usize, certificate: &[u8]) -> Vec<Box<str>> {
    let certificate = CertificateDer::from(certificate);
    let Ok(certificate) = EndEntityCert::try_from(&certificate) else { return Vec::new() };
    let names: Vec<_> =
        certificate.valid_dns_names().take(most + 1).map(|name| name.to_ascii_lowercase().into()).collect();
    if names.len() > most { Vec::new() } else { names }
}

/// Returns true if a certificate is valid for the DNS name `name` (RFC 9525 §6.3). Signatures and dates are not looked at.
pub(crate) fn is_valid_for(certificate: &[u8], name: &str) -> bool {
    let certificate = CertificateDer::from(certificate);
    let Ok(certificate) = EndEntityCert::try_from(&certificate) else { return false };
    match ServerName::try_from(name.trim_end_matches('.')) {
        Ok(name @ ServerName::DnsName(_)) => certificate.verify_is_valid_for_subject_name(&name).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate for `a.example`, `*.B.example` and the address 192.0.2.1.
    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----
MIIBeDCCAR6gAwIBAgIUegx9bpFKIIRKi6n4Fz4tLr8/J1YwCgYIKoZIzj0EAwIw
ADAeFw0yNjExMjQxMzM4MzJaFw0zNjExMjExMzM4MzJaMAAwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAASKmhYaa7JjfFJEJ6QV3UygK0QiT3OYddEFjhltNzInnZp6
ZExF2axVcustBs5dfdv2leqDIZD2Em/tBKiWQ85Ao3YwdDAdBgNVHQ4EFgQUftQY
pLVtbDMyhn0VTiN8x9b4UpYwHwYDVR0jBBgwFoAUftQYpLVtbDMyhn0VTiN8x9b4
UpYwJwYDVR0RBCAwHoIJYS5leGFtcGxlggsqLkIuZXhhbXBsZYcEwAACATAJBgNV
HRMEAjAAMAoGCCqGSM49BAMCA0gAMEUCIB0WjXvmVCSX0rkc6aC+FT7KGsB9ZDaf
Aj+8AoXTDer6AiEAp3baPXBKyE5iKr2zbSHxnZmQAgBkng/Lkq/9j2dwUrk=
-----END CERTIFICATE-----";

    fn certificate() -> Vec<u8> {
        crate::tls::pem::certificates(CERTIFICATE).unwrap()[0].to_vec()
    }

    #[test]
    fn a_certificate_is_valid_for_its_names_and_for_one_label_in_place_of_a_star() {
        let certificate = certificate();
        for name in ["a.example", "A.Example", "a.example.", "x.b.example"] {
            assert!(is_valid_for(&certificate, name), "{name}");
        }
        let others = ["b.example", "x.y.b.example", "x.a.example", "192.0.2.1", "", "*.b.example", "c.example"];
        for name in others {
            assert!(!is_valid_for(&certificate, name), "{name}");
        }
        let names = names_of(&certificate);
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.example", "*.b.example"]);
    }

    #[test]
    fn what_cannot_be_read_and_what_has_too_many_names_counts_for_none() {
        assert!(names_of(b"no certificate").is_empty() && !is_valid_for(b"no certificate", "a.example"));
        assert!(names_up_to(1, &certificate()).is_empty());
    }
}
