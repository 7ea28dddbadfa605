//! The patterns by which limits are set for some hosts.

use std::fmt;

/// The hosts that an override of limits is for. `Display` writes what [`Self::parse`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostPattern {
    /// One host and port.
    HostAndPort(Box<str>, u16),
    /// One host, on any port.
    Host(Box<str>),
    /// All names below a suffix, which begins with a dot.
    Suffix(Box<str>),
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostAndPort(host, port) => write!(f, "{host}:{port}"),
            Self::Host(host) | Self::Suffix(host) => f.write_str(host),
        }
    }
}

impl HostPattern {
    /// Parses `host:port`, `host` or `.suffix`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // The dot at the end of a fully qualified name belongs to DNS, and hosts come without it.
        let parse = |text: &str| url::Host::parse(text.trim_end_matches('.')).ok();
        if text.len() > 1 && text.starts_with('.') {
            let name = parse(&text[1..])?;
            return match name {
                url::Host::Domain(name) => Some(Self::Suffix(format!(".{name}").into())),
                _ => None,
            };
        }
        // Hosts are normalized as in an origin, so that `EXAMPLE.com` and `[0:0::1]` are found.
        let host = |text: &str| match parse(text)? {
            url::Host::Domain(name) if name.starts_with('.') || name.contains('*') => None,
            host => Some(Box::from(host.to_string())),
        };
        if let Some(host) = host(text) {
            return Some(Self::Host(host));
        }
        let (name, port) = text.rsplit_once(':')?;
        Some(Self::HostAndPort(host(name)?, port.parse().ok()?))
    }

    /// Returns true if a host and port are among those meant.
    pub(super) fn fits(&self, host: &str, port: u16) -> bool {
        match self {
            Self::HostAndPort(name, number) => **name == *host && *number == port,
            Self::Host(name) => **name == *host,
            Self::Suffix(suffix) => host.ends_with(&**suffix),
        }
    }

    /// Returns the order of patterns that fit the same host: the greatest is used.
    pub(super) fn exactness(&self) -> (u8, usize) {
        match self {
            Self::HostAndPort(..) => (2, 0),
            Self::Host(_) => (1, 0),
            Self::Suffix(suffix) => (0, suffix.len()),
        }
    }
}
