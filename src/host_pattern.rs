//! The patterns by which settings are made for some hosts, and values found by them.

use std::fmt;

/// The hosts that a setting is for. `Display` writes what [`Self::parse`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostPattern {
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
    pub(crate) fn parse(text: &str) -> Option<Self> {
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

    /// Returns the pattern of one host and port. `host` is written as in an origin, without the dot at the end of a full name.
    pub(crate) fn of(host: &str, port: u16) -> Self {
        Self::HostAndPort(host.into(), port)
    }

    /// Returns true if a host and port are among those meant.
    pub(crate) fn fits(&self, host: &str, port: u16) -> bool {
        match self {
            Self::HostAndPort(name, number) => **name == *host && *number == port,
            Self::Host(name) => **name == *host,
            Self::Suffix(suffix) => host.ends_with(&**suffix),
        }
    }

    /// Returns the order of patterns that fit the same host: the greatest is used.
    fn exactness(&self) -> (u8, usize) {
        match self {
            Self::HostAndPort(..) => (2, 0),
            Self::Host(_) => (1, 0),
            Self::Suffix(suffix) => (0, suffix.len()),
        }
    }
}

/// Values for some hosts, found by the most exact pattern that fits a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByHost<T>(Vec<(HostPattern, T)>);

impl<T> Default for ByHost<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> ByHost<T> {
    /// Adds a value for the hosts of a pattern. Of two for the same hosts, the later one counts.
    pub(crate) fn add(&mut self, hosts: HostPattern, value: T) {
        self.0.push((hosts, value));
    }

    /// Sets the value for the hosts of a pattern, in place of those that the same pattern had.
    pub(crate) fn replace(&mut self, hosts: HostPattern, value: T) {
        self.0.retain(|(other, _)| *other != hosts);
        self.add(hosts, value);
    }

    /// Returns the value that counts of those for the hosts of this very pattern.
    pub(crate) fn get(&self, hosts: &HostPattern) -> Option<&T> {
        self.0.iter().rev().find(|(pattern, _)| pattern == hosts).map(|(_, value)| value)
    }

    /// Returns the value of the most exact pattern that fits a host: `host:port` before `host`, before the longest suffix.
    pub(crate) fn find(&self, host: &str, port: u16) -> Option<&T> {
        let fitting = self.0.iter().filter(|(pattern, _)| pattern.fits(host, port));
        fitting.max_by_key(|(pattern, _)| pattern.exactness()).map(|(_, value)| value)
    }

    /// Returns the patterns with their values, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&HostPattern, &T)> {
        self.0.iter().map(|(pattern, value)| (pattern, value))
    }

    /// Returns true if there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_exact_pattern_is_found_and_of_equal_ones_the_last() {
        let mut values = ByHost::default();
        for (pattern, value) in [(".internal", 1), (".b.internal", 2), ("a.internal", 3), ("a.internal:8443", 4)] {
            values.add(HostPattern::parse(pattern).unwrap(), value);
        }
        let find = |values: &ByHost<i32>, host, port| values.find(host, port).copied();
        let found =
            [("x.test", 80), ("x.internal", 80), ("x.b.internal", 80), ("a.internal", 80), ("a.internal", 8443)]
                .map(|(host, port)| find(&values, host, port));
        assert_eq!(found, [None, Some(1), Some(2), Some(3), Some(4)]);
        values.add(HostPattern::parse("a.internal").unwrap(), 5);
        assert_eq!(find(&values, "a.internal", 80), Some(5));
        assert_eq!(values.get(&HostPattern::parse("a.internal").unwrap()), Some(&5));
        assert_eq!(values.get(&HostPattern::parse("x.internal").unwrap()), None);
        values.replace(HostPattern::parse("A.internal.").unwrap(), 6);
        assert_eq!((find(&values, "a.internal", 80), values.iter().count()), (Some(6), 4));
    }
}
