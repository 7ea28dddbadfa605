//! Versions of TLS.

use std::fmt;

use rustls::SupportedProtocolVersion;

/// A version of TLS.
///
/// The client speaks 1.2 and 1.3, by rustls. The older versions are not secure (RFC 8996); they exist here so that a
/// lowest version may be named that a server's documentation names. As highest version they are refused.
///
/// ```
/// use speeddial::tls::Version;
///
/// let client = speeddial::Client::builder().tls_version_min(Version::TLS_1_3).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u8);

impl Version {
    /// TLS 1.0 (RFC 2246).
    pub const TLS_1_0: Self = Self(0);
    /// TLS 1.1 (RFC 4346).
    pub const TLS_1_1: Self = Self(1);
    /// TLS 1.2 (RFC 5246).
    pub const TLS_1_2: Self = Self(2);
    /// TLS 1.3 (RFC 8446).
    pub const TLS_1_3: Self = Self(3);

    /// Returns the version with rustls's name; `None` if the client does not speak it.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "TLSv1_2" => Some(Self::TLS_1_2),
            "TLSv1_3" => Some(Self::TLS_1_3),
            _ => None,
        }
    }
}

/// Shows the version as `TLS 1.3`.
impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS 1.{}", self.0)
    }
}

/// The versions that rustls speaks, the highest first.
const SPOKEN: [(Version, &SupportedProtocolVersion); 2] =
    [(Version::TLS_1_3, &rustls::version::TLS13), (Version::TLS_1_2, &rustls::version::TLS12)];

/// Returns the versions from `min` to `max` that rustls speaks.
pub(super) fn spoken(min: Option<Version>, max: Option<Version>) -> Vec<&'static SupportedProtocolVersion> {
    let is_wanted = |version| min.is_none_or(|min| min <= version) && max.is_none_or(|max| version <= max);
    SPOKEN.into_iter().filter(|(version, _)| is_wanted(*version)).map(|(_, spoken)| spoken).collect()
}

#[cfg(test)]
mod tests {
    use rustls::ProtocolVersion;

    use super::*;

    #[test]
    fn versions_are_chosen_by_their_order() {
        let all = [Version::TLS_1_0, Version::TLS_1_1, Version::TLS_1_2, Version::TLS_1_3];
        let chosen = |min, max| spoken(min, max).iter().map(|spoken| spoken.version).collect::<Vec<_>>();
        let both = [ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2];
        assert_eq!(chosen(None, None), both);
        for min in &all[..3] {
            assert_eq!(chosen(Some(*min), None), both, "{min:?}");
        }
        assert_eq!(chosen(Some(all[3]), None), both[..1]);
        assert_eq!(chosen(None, Some(all[2])), both[1..]);
        assert_eq!(chosen(None, Some(all[1])), []);
        assert_eq!(chosen(Some(all[3]), Some(all[2])), []);
    }

    #[test]
    fn the_names_of_rustls_are_known() {
        for (version, spoken) in SPOKEN {
            assert_eq!(Version::named(spoken.version.as_str().unwrap()), Some(version));
        }
        assert_eq!(format!("{:?}", Version::TLS_1_2), "TLS 1.2");
    }
}
