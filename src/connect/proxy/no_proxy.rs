//! The hosts that are reached without a proxy, as `NO_PROXY` lists them. A core.

#[cfg(feature = "doctor")]
use std::fmt;
use std::net::IpAddr;

use crate::origin::{Host, Origin};

/// A list of hosts that are reached without a proxy, for [`Proxy::no_proxy`](crate::Proxy::no_proxy).
///
/// Entries are separated by commas or spaces. An entry is one of these:
///
/// | entry | matches |
/// |---|---|
/// | `*` | every host |
/// | `192.0.2.1`, `::1` | an address |
/// | `10.0.0.0/8` | the addresses of a network |
/// | `name`, `.name` | a name and its subdomains |
/// | `*.name` | the subdomains of a name |
///
/// An entry that ends in a port (`name:8080`, `[::1]:8080`) matches that port alone. Upper and lower case, and a dot at
/// the end of a name, make no difference. Any other entry matches nothing. This is the syntax of the variable
/// `NO_PROXY`, and not that of [`PoolConfig::for_host`](crate::PoolConfig::for_host), where a name stands for itself
/// alone and `.name` for its subdomains.
///
/// Go's `httpproxy` and curl differ in places; a host matches here if it matches in either.
///
/// ```
/// use speeddial::{NoProxy, Proxy};
///
/// let hosts = NoProxy::from_string("localhost,.internal,10.0.0.0/8");
/// let proxy = Proxy::all("http://proxy.internal:3128")?.no_proxy(hosts);
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoProxy(Vec<NoProxyEntry>);

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoProxyEntry {
    hosts: NoProxyHosts,
    /// The only port that the entry matches; `None` for all ports.
    port: Option<u16>,
}

/// The hosts that an entry matches.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NoProxyHosts {
    /// Every host.
    All,
    /// The addresses whose first `prefix` bits are equal to those of `address`.
    Network { address: IpAddr, prefix: u32 },
    /// A name and its subdomains. The name is in lower case and has no dot at either end.
    Domain(String),
    /// The subdomains of a name, which is written as in [`Domain`](Self::Domain).
    Subdomains(String),
}

impl NoProxy {
    /// Reads the environment variable `NO_PROXY`, or else `no_proxy`. Returns `None` if there is neither.
    pub fn from_env() -> Option<Self> {
        Self::from_variables(|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }

    /// Reads a list, always with a result, which is an `Option` only as [`Proxy::no_proxy`](crate::Proxy::no_proxy) takes
    /// one. Invalid entries are left out.
    pub fn from_string(no_proxy_list: &str) -> Option<Self> {
        Some(Self::parse(no_proxy_list))
    }

    /// Reads the variables. An empty one does not hide the one in the other case, as in Go.
    pub(in crate::connect) fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let given: Vec<String> = ["NO_PROXY", "no_proxy"].into_iter().filter_map(variable).collect();
        let list = given.iter().find(|list| !list.trim().is_empty()).or(given.first())?;
        Some(Self::parse(list))
    }

    /// Parses a list. Invalid entries are left out.
    pub(in crate::connect) fn parse(list: &str) -> Self {
        let entries = list.split(|separator: char| separator == ',' || separator.is_whitespace());
        Self(entries.filter_map(NoProxyEntry::parse).collect())
    }

    /// Returns the first entry that matches `origin`, as it was understood.
    #[cfg(feature = "doctor")]
    pub(in crate::connect) fn entry_for(&self, origin: &Origin) -> Option<String> {
        self.0.iter().find(|entry| entry.contains(origin)).map(ToString::to_string)
    }

    /// Returns true if `origin` is in the list.
    pub(in crate::connect) fn contains(&self, origin: &Origin) -> bool {
        self.0.iter().any(|entry| entry.contains(origin))
    }
}

impl NoProxyEntry {
    fn parse(text: &str) -> Option<Self> {
        if let Some(hosts) = NoProxyHosts::parse(text) {
            return Some(Self { hosts, port: None });
        }
        let (hosts, port) = text.rsplit_once(':')?;
        Some(Self { hosts: NoProxyHosts::parse(hosts)?, port: Some(port.parse().ok()?) })
    }

    fn contains(&self, origin: &Origin) -> bool {
        self.port.is_none_or(|port| port == origin.port()) && self.hosts.contain(origin.host())
    }
}

#[cfg(feature = "doctor")]
impl fmt::Display for NoProxyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            NoProxyHosts::All => f.write_str("*")?,
            NoProxyHosts::Network { address, prefix } if *prefix == bits(*address) => write!(f, "{address}")?,
            NoProxyHosts::Network { address, prefix } => write!(f, "{address}/{prefix}")?,
            NoProxyHosts::Domain(name) => f.write_str(name)?,
            NoProxyHosts::Subdomains(name) => write!(f, "*.{name}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl NoProxyHosts {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        Self::network(text).or_else(|| Self::name(text))
    }

    /// Parses an address, or a network in CIDR notation (RFC 4632).
    fn network(text: &str) -> Option<Self> {
        let Some((address, prefix)) = text.split_once('/') else { return Some(Self::address(text.parse().ok()?)) };
        let address = address.parse::<IpAddr>().ok()?;
        let prefix = prefix.parse::<u32>().ok()?;
        if prefix > bits(address) {
            return None;
        }
        Some(Self::Network { address, prefix })
    }

    /// Parses a name, or an address as it is written in URLs (`[::1]`).
    fn name(text: &str) -> Option<Self> {
        let (name, subdomains_alone) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text.strip_prefix('.').unwrap_or(text), false),
        };
        // Parsed like the host of a URL: the result is in lower case and in ASCII form.
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

    /// Returns true if `host` is one of these.
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

/// Returns the part of `name` in front of `domain`; `None` if `name` does not end in `domain`.
fn before<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    name.trim_end_matches('.').strip_suffix(domain)
}

/// Returns the number of bits of an address.
fn bits(ip: IpAddr) -> u32 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Returns the number of leading bits that two addresses share; `None` if they are of different families.
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

    /// Each row is a list, a URL, and three answers to "is the URL's host in the list?": of this crate, of Go 1.26.8's
    /// `httpproxy`, and of curl 7.88.1. The last two were measured.
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
    fn a_host_matches_if_it_matches_in_go_or_in_curl() {
        for (list, url, [ours, go, curl]) in TABLE {
            assert_eq!(contains(list, url), *ours, "`{list}`: {url}");
            assert_eq!(*ours, *go || *curl, "`{list}`: {url}");
        }
    }

    #[test]
    fn the_list_of_the_environment_is_the_one_that_is_not_empty() {
        let read = |upper: Option<&str>, lower: Option<&str>| {
            let of = |name: &str| if name == "NO_PROXY" { upper } else { lower };
            NoProxy::from_variables(|name| of(name).map(str::to_owned))
        };
        assert_eq!(read(None, None), None);
        assert_eq!(read(Some(""), None), Some(NoProxy::default()));
        assert_eq!(read(Some(" "), Some("a.test")), NoProxy::from_string("a.test"));
        assert_eq!(read(Some("b.test"), Some("a.test")), NoProxy::from_string("b.test"));
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
