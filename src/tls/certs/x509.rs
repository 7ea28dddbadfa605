//! The names and dates of a certificate (RFC 5280). A core: it is given the bytes, which a stranger may have made.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::redact::shown;

/// The names and dates of a certificate. Texts are of one line, and of at most 200 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CertificateSummary {
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) names: Vec<String>,
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
}

getters!(CertificateSummary {
    /// The name of the certificate's owner.
    subject: &str = borrow,
    /// The name of the authority that signed it.
    issuer: &str = borrow,
    /// The names and addresses of servers that it is for, at most 16.
    names: &[String] = borrow,
    /// The time from which on it is valid.
    not_before: SystemTime = copy,
    /// The time until which it is valid.
    not_after: SystemTime = copy,
});

/// The most names that are kept.
const MAX_NAMES: usize = 16;
/// The most characters of a text that are kept.
const MAX_TEXT: usize = 200;

impl CertificateSummary {
    /// Reads a certificate; `None` if it is not well formed.
    pub(in crate::tls) fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = parse_x509_certificate(der).ok()?;
        Some(Self {
            subject: shown(&certificate.subject().to_string(), MAX_TEXT),
            issuer: shown(&certificate.issuer().to_string(), MAX_TEXT),
            names: names(&certificate),
            not_before: time(certificate.validity().not_before),
            not_after: time(certificate.validity().not_after),
        })
    }

    /// Returns the whole days from `now` until the certificate expires; negative if it has expired.
    pub fn days_left(&self, now: SystemTime) -> i64 {
        let days = |time: Duration| i64::try_from(time.as_secs() / (24 * 60 * 60)).unwrap_or(i64::MAX);
        match self.not_after.duration_since(now) {
            Ok(left) => days(left),
            Err(since) => -1 - days(since.duration()),
        }
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
    let names = extension.value.general_names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(shown(name, MAX_TEXT)),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    });
    names.take(MAX_NAMES).collect()
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|v6| Ipv6Addr::from(v6).to_string())
}

/// Returns the time of a date, and the epoch for dates before 1970.
fn time(date: ASN1Time) -> SystemTime {
    let seconds = u64::try_from(date.timestamp()).unwrap_or(0);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_down_to_the_last_and_below_zero_from_then_on() {
        let day = Duration::from_secs(24 * 60 * 60);
        let now = SystemTime::UNIX_EPOCH + day * 100;
        let left = |not_after| {
            let certificate = CertificateSummary {
                subject: String::new(),
                issuer: String::new(),
                names: Vec::new(),
                not_before: SystemTime::UNIX_EPOCH,
                not_after,
            };
            certificate.days_left(now)
        };
        assert_eq!(
            [left(now + day * 3), left(now + day / 2), left(now - day / 2), left(now - day * 2)],
            [3, 0, -1, -3]
        );
    }

    #[test]
    fn bytes_that_are_no_certificate_are_not_read() {
        for bytes in [&b""[..], b"hello", &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30; 4096]] {
            assert_eq!(CertificateSummary::read(bytes), None);
        }
    }
}
