//! The servers that are asked.
//!
//! | file | what it does |
//! |---|---|
//! | `group.rs` | asks one server after the other |
//! | `tries.rs` | which one is next, and which did not answer |
//! | `mod.rs`, `upstream.rs` | one server: its address, its clients; the limits of a lookup, and names as hickory has them |
//! | `shared_connection.rs`, `sockets.rs` | connections to it |
//! | `records.rs` | what its answers say |

#[cfg(feature = "dns-over-https")]
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_resolver::config::ConnectionConfig;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::rr::domain::usage::{INVALID, ONION};
#[cfg(feature = "dns-over-tls")]
use std::sync::Arc;

#[cfg(feature = "dns-over-tls")]
use hickory_resolver::config::ProtocolConfig;

pub(super) mod group;
pub(in crate::dns) mod records;
mod shared_connection;
pub(super) mod sockets;
pub(super) mod tries;
pub(super) mod upstream;

/// The limits of a lookup.
#[derive(Debug, Clone, Copy)]
pub(in crate::dns::hickory) struct ServerLimits {
    /// The longest time for one try of one server.
    pub(in crate::dns::hickory) try_timeout: Duration,
    /// The number of tries of each server.
    pub(in crate::dns::hickory) tries: usize,
    /// The longest time for all tries together.
    pub(in crate::dns::hickory) total_timeout: Duration,
    /// The most lookups that ask servers at once.
    pub(in crate::dns::hickory) max_in_flight: usize,
}

/// The upper limit of all timeouts, so that they can be added to the current time.
pub(in crate::dns::hickory) const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Parses a name. Unlike hickory, it accepts labels that begin with a hyphen, as getaddrinfo does.
pub(super) fn parse(text: &str) -> Result<Name, ProtoError> {
    let refused = match Name::from_str_relaxed(text) {
        Ok(name) => return Ok(name),
        Err(error) => error,
    };
    let labels = text.strip_suffix('.').unwrap_or(text);
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !labels.bytes().all(is_usual) {
        return Err(refused);
    }
    let mut name = Name::from_labels(labels.split('.').map(str::as_bytes)).map_err(|_| refused)?;
    name.set_fqdn(text.ends_with('.'));
    Ok(name)
}

/// Returns true for a name that no DNS server knows: below `invalid` (RFC 6761 §6.4) and `onion` (RFC 7686).
pub(super) fn is_never_asked_for(name: &Name) -> bool {
    INVALID.zone_of(name) || ONION.zone_of(name)
}

/// A DNS server with the protocol by which it is asked. An address alone means UDP and TCP.
///
/// ```
/// use speeddial::dns::{HickoryResolver, Server};
///
/// let resolver = HickoryResolver::with_servers([Server::plain(([192, 0, 2, 53], 53).into())]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    address: SocketAddr,
    protocol: DnsProtocol,
}

/// The protocol by which a server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DnsProtocol {
    /// UDP, and TCP.
    Plain,
    /// TCP alone, for `use-vc` in resolv.conf.
    #[cfg(unix)]
    Tcp,
    #[cfg(feature = "dns-over-tls")]
    Tls { name: Arc<str> },
    #[cfg(feature = "dns-over-https")]
    Https { name: Arc<str> },
}

impl Server {
    /// Creates a server that is asked by UDP, and by TCP if an answer is truncated or UDP goes unanswered.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, protocol: DnsProtocol::Plain }
    }

    /// Creates a server that is asked by TLS (RFC 7858), whose port usually is 853. Its certificate has to be for `name`, which
    /// may be an IP address.
    #[cfg(feature = "dns-over-tls")]
    pub fn tls(address: SocketAddr, name: &str) -> Self {
        Self { address, protocol: DnsProtocol::Tls { name: name.into() } }
    }

    /// Creates a server that is asked by HTTPS (RFC 8484), with HTTP/2 and the path `/dns-query`. Its port usually is 443. Its
    /// certificate has to be for `name`, which may be an IPv4 address. With an IPv6 address every lookup fails with
    /// [`ResolveErrorKind::Config`](crate::dns::ResolveErrorKind::Config): hickory cannot put one into a URL.
    #[cfg(feature = "dns-over-https")]
    pub fn https(address: SocketAddr, name: &str) -> Self {
        Self { address, protocol: DnsProtocol::Https { name: name.into() } }
    }

    /// Fails for a server that hickory cannot ask.
    pub(in crate::dns::hickory) fn check(&self) -> Result<(), NetError> {
        match &self.protocol {
            #[cfg(feature = "dns-over-https")]
            DnsProtocol::Https { name, .. } if name.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() => {
                let what = format!(
                    "a server that is asked by HTTPS has to be named by a host name or an IPv4 address, not by {name}"
                );
                Err(NetError::from(what))
            }
            _ => Ok(()),
        }
    }

    /// Creates a server that is asked by TCP only.
    #[cfg(unix)]
    pub(in crate::dns::hickory) fn by_tcp(address: SocketAddr) -> Self {
        Self { address, protocol: DnsProtocol::Tcp }
    }

    /// Returns the address, with the index of the network interface that leads to it.
    pub(in crate::dns::hickory) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the port and protocol for datagrams, if the server is asked by them first.
    pub(in crate::dns::hickory) fn udp(&self) -> Option<ConnectionConfig> {
        if self.protocol == DnsProtocol::Plain { Some(self.at_port(ConnectionConfig::udp())) } else { None }
    }

    /// Returns the port and protocol of a connection: TCP, TLS or HTTPS.
    pub(in crate::dns::hickory) fn connection(&self) -> ConnectionConfig {
        self.at_port(match &self.protocol {
            DnsProtocol::Plain => ConnectionConfig::tcp(),
            #[cfg(unix)]
            DnsProtocol::Tcp => ConnectionConfig::tcp(),
            #[cfg(feature = "dns-over-tls")]
            DnsProtocol::Tls { name } => ConnectionConfig::tls(name.clone()),
            #[cfg(feature = "dns-over-https")]
            DnsProtocol::Https { name } => ConnectionConfig::https(name.clone(), Some("/dns-query".into())),
        })
    }

    /// Returns true if the server is asked by TLS or HTTPS.
    #[cfg(feature = "dns-over-tls")]
    pub(in crate::dns::hickory) fn is_encrypted(&self) -> bool {
        self.connection().protocol != ProtocolConfig::Tcp
    }

    fn at_port(&self, mut config: ConnectionConfig) -> ConnectionConfig {
        config.port = self.address.port();
        config
    }
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self::plain(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_in_dns_are_known_with_those_below_them() {
        let is_never_asked_for = |text: &str| is_never_asked_for(&Name::from_ascii(text).unwrap());
        assert!(["invalid.", "a.INVALID.", "a.b.onion."].into_iter().all(is_never_asked_for));
        assert!(!["a.test.", "invalid.test.", "notinvalid.", "a.local."].into_iter().any(is_never_asked_for));
    }

    #[test]
    fn labels_may_begin_with_a_hyphen_and_all_else_is_as_in_hickory() {
        let name = parse("a.-b.test").unwrap();
        assert_eq!((name.is_fqdn(), name.iter().collect::<Vec<_>>()), (false, vec![&b"a"[..], b"-b", b"test"]));
        assert!(parse("-a.").unwrap().is_fqdn());
        let long = "-".repeat(64);
        for text in ["", ".", "a..b", "a b.-c", "a_b.test", "a.test.", &long, "-a..b"] {
            let theirs = Name::from_str_relaxed(text).map_err(|error| error.to_string());
            assert_eq!(parse(text).map_err(|error| error.to_string()), theirs, "{text}");
        }
    }
}
