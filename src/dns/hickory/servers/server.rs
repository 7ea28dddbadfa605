//! DNS servers, as users and resolv.conf name them.

#[cfg(feature = "dns-over-https")]
use std::net::Ipv6Addr;
use std::net::SocketAddr;
#[cfg(feature = "dns-over-tls")]
use std::sync::Arc;

use hickory_resolver::config::ConnectionConfig;
#[cfg(feature = "dns-over-tls")]
use hickory_resolver::config::ProtocolConfig;
use hickory_resolver::net::NetError;

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
    /// [`ResolveErrorKind::Config`](crate::dns::hickory::ResolveErrorKind::Config): hickory cannot put one into a URL.
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
