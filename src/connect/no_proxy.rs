//! The hosts that a proxy is not meant for, as `NO_PROXY` lists them. A core.

use std::net::IpAddr;

use crate::origin::{Host, Origin};

/// A list of hosts that are gone to without a proxy.
///
/// Entries are separated by commas or spaces. An entry is `*` (every host), an address, a network (`10.0.0.0/8`), a name, which
/// stands for its subdomains as well, or `*.name`, which stands for the subdomains alone. It may end in a port (`name:8080`,
/// `[::1]:8080`) and stands for that port alone then. Case, a dot in front of a name, and a dot at the end of the entry's or the
/// URL's name make no difference. Anything else matches nothing.
///
/// Go's `httpproxy` and curl differ in places; what either of them takes for an entry is one here (see the table in the tests).
#[derive(Debug, Clone, Default)]
pub(super) struct NoProxy(Vec<Entry>);

#[derive(Debug, Clone)]
struct Entry {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Debug, Clone)]
enum Hosts {
    All,
    /// The addresses whose first `prefix` bits are those of `address`.
    Network {
        address: IpAddr,
        prefix: u32,
    },
    /// A name and its subdomains. It is in lower case and has no dot at either end.
    Domain(String),
    /// The subdomains of such a name alone.
    Subdomains(String),
}

impl NoProxy {
    pub(super) fn parse(list: &str) -> Self {
        let entries = list.split(|separator: char| separator == ',' || separator.is_whitespace());
        Self(entries.filter_map(Entry::parse).collect())
    }

    /// Adds the entries of another list.
    pub(super) fn add(&mut self, list: &str) {
        self.0.extend(Self::parse(list).0);
    }

    /// Returns true if `origin` is in the list.
    pub(super) fn contains(&self, origin: &Origin) -> bool {
        self.0.iter().any(|entry| entry.contains(origin))
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if let Some(hosts) = Hosts::parse(text) {
            return Some(Self { hosts, port: None });
        }
        let (hosts, port) = text.rsplit_once(':')?;
        Some(Self { hosts: Hosts::parse(hosts)?, port: Some(port.parse().ok()?) })
    }

    fn contains(&self, origin: &Origin) -> bool {
        self.port.is_none_or(|port| port == origin.port()) && self.hosts.contain(origin.host())
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        Self::network(text).or_else(|| Self::name(text))
    }

    /// An address as it is, or a network in CIDR notation (RFC 4632).
    fn network(text: &str) -> Option<Self> {
        let Some((address, prefix)) = text.split_once('/') else { return Some(Self::address(text.parse().ok()?)) };
        let (address, prefix) = (address.parse::<IpAddr>().ok()?, prefix.parse::<u32>().ok()?);
        (prefix <= bits(address)).then_some(Self::Network { address, prefix })
    }

    /// A name, or an address as only a URL can have it (`[::1]`).
    fn name(text: &str) -> Option<Self> {
        let (name, subdomains_alone) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text.strip_prefix('.').unwrap_or(text), false),
        };
        // Read as the host of a URL is: in lower case, in its ASCII form.
        match url::Host::parse(name.trim_end_matches('.')).ok()? {
            url::Host::Domain(name) if subdomains_alone => Some(Self::Subdomains(name)),
            url::Host::Domain(name) => Some(Self::Domain(name)),
            url::Host::Ipv4(ip) => Some(Self::address(ip.into())),
            url::Host::Ipv6(ip) => Some(Self::address(ip.into())),
        }
    }

    fn address(ip: IpAddr) -> Self {
        let address = ip.to_canonical();
        Self::Network { address, prefix: bits(address) }
    }

    fn contain(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::All, _) => true,
            (Self::Network { address, prefix }, Host::Ip(ip)) => {
                common_bits(*address, ip.to_canonical()) >= Some(*prefix)
            }
            (Self::Domain(domain), Host::Name(name)) => {
                before(name, domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Self::Subdomains(domain), Host::Name(name)) => {
                before(name, domain).is_some_and(|rest| rest.ends_with('.'))
            }
            _ => false,
        }
    }
}

/// The part of `name` in front of `domain`, where it ends in that.
fn before<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    name.trim_end_matches('.').strip_suffix(domain)
}

fn bits(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The number of leading bits that two addresses share; `None` where they are of different families.
fn common_bits(one: IpAddr, other: IpAddr) -> Option<u32> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        (IpAddr::V6(one), IpAddr::V6(other)) => Some((one.to_bits() ^ other.to_bits()).leading_zeros()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn contains(list: &str, url: &str) -> bool {
        let origin = Origin::from_url(&Url::parse(url).unwrap()).unwrap();
        NoProxy::parse(list).contains(&origin)
    }

    const Y: bool = true;
    const N: bool = false;

    /// A list, a URL, and whether the URL's host is in the list: for this crate, for Go 1.26.8's `httpproxy`, and for curl 7.88.1.
    /// The last two were measured.
    const TABLE: &[(&str, &str, [bool; 3])] = &[
        ("a.test", "http://a.test/", [Y, Y, Y]),
        ("a.test", "http://x.a.test/", [Y, Y, Y]),
        ("a.test", "http://xa.test/", [N, N, N]),
        ("a.test", "http://b.test/", [N, N, N]),
        ("A.Test", "http://a.test/", [Y, Y, Y]),
        ("a.test", "http://A.TEST/", [Y, Y, Y]),
        (".a.test", "http://x.a.test/", [Y, Y, Y]),
        (".a.test", "http://a.test/", [Y, N, Y]),
        ("*.a.test", "http://x.a.test/", [Y, Y, N]),
        ("*.a.test", "http://y.x.a.test/", [Y, Y, N]),
        ("*.a.test", "http://a.test/", [N, N, N]),
        ("*.a.test", "http://xa.test/", [N, N, N]),
        ("a.test:80", "http://a.test/", [Y, Y, N]),
        ("a.test:80", "http://x.a.test/", [Y, Y, N]),
        ("a.test:80", "http://a.test:8080/", [N, N, N]),
        ("a.test:8080", "http://a.test:8080/", [Y, Y, N]),
        ("*.a.test:80", "http://x.a.test/", [Y, Y, N]),
        ("a.test.", "http://a.test/", [Y, N, Y]),
        ("a.test", "http://a.test./", [Y, N, Y]),
        ("a.test.", "http://a.test./", [Y, Y, Y]),
        (".a.test", "http://x.a.test./", [Y, N, Y]),
        ("b.test,a.test", "http://a.test/", [Y, Y, Y]),
        ("b.test, a.test", "http://a.test/", [Y, Y, Y]),
        (" a.test , b.test", "http://a.test/", [Y, Y, Y]),
        ("b.test a.test", "http://a.test/", [Y, N, Y]),
        (",,a.test,", "http://a.test/", [Y, Y, Y]),
        ("*", "http://a.test/", [Y, Y, Y]),
        ("*", "http://10.1.2.3/", [Y, Y, Y]),
        ("*", "http://[2001:db8::1]/", [Y, Y, Y]),
        ("b.test,*", "http://a.test/", [Y, Y, N]),
        ("10.1.2.3", "http://10.1.2.3/", [Y, Y, Y]),
        ("10.1.2.3", "http://10.1.2.4/", [N, N, N]),
        ("10.1.2.3:80", "http://10.1.2.3/", [Y, Y, N]),
        ("10.1.2.3:81", "http://10.1.2.3/", [N, N, N]),
        ("10.0.0.0/8", "http://10.1.2.3/", [Y, Y, Y]),
        ("10.9.9.9/8", "http://10.1.2.3/", [Y, Y, Y]),
        ("10.0.0.0/8", "http://11.1.2.3/", [N, N, N]),
        ("10.0.0.0/33", "http://10.1.2.3/", [N, N, N]),
        ("0.0.0.0/0", "http://10.1.2.3/", [Y, Y, N]),
        ("10.1.2", "http://10.1.2.3/", [N, N, N]),
        ("test", "http://10.1.2.3/", [N, N, N]),
        ("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", [Y, Y, N]),
        ("2001:db8::1", "http://[2001:db8::1]/", [Y, Y, Y]),
        ("[2001:db8::1]:80", "http://[2001:db8::1]/", [Y, Y, N]),
        ("[2001:db8::1]:81", "http://[2001:db8::1]/", [N, N, N]),
        ("2001:db8::/32", "http://[2001:db8::1]/", [Y, Y, N]),
        ("2001:db8::/32", "http://[2001:db9::1]/", [N, N, N]),
        ("::/0", "http://10.1.2.3/", [N, N, N]),
        ("http://a.test", "http://a.test/", [N, N, N]),
        ("a.test/x", "http://a.test/", [N, N, N]),
        ("test", "http://a.test/", [Y, Y, Y]),
    ];

    #[test]
    fn what_go_or_curl_takes_for_an_entry_is_one() {
        for (list, url, [ours, go, curl]) in TABLE {
            assert_eq!(contains(list, url), *ours, "`{list}`: {url}");
            assert_eq!(*ours, *go || *curl, "`{list}`: {url}");
        }
    }

    #[test]
    fn addresses_in_brackets_and_international_names_are_entries() {
        assert!(contains("[2001:db8::1]", "http://[2001:db8::1]:8080/"));
        assert!(contains("a.test [::1]", "http://[::1]/"));
        assert!(contains("::ffff:10.1.2.3", "http://10.1.2.3/"));
        assert!(contains("bücher.test", "http://www.BÜCHER.test/"));
        assert!(!contains("", "http://a.test/") && !contains(" , ", "http://a.test/"));
    }
}
