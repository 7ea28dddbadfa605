//! DNS servers as users name them, and as hickory needs them.

#[cfg(feature = "dns-over-https")]
use std::net::Ipv6Addr;
use std::net::{IpAddr, SocketAddr};
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
    protocol: Protocol,
}

/// The protocol by which a server is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Protocol {
    Plain,
    #[cfg(feature = "dns-over-tls")]
    Tls {
        name: Arc<str>,
    },
    #[cfg(feature = "dns-over-https")]
    Https {
        name: Arc<str>,
        path: Arc<str>,
    },
}

/// A server in hickory's terms.
#[derive(Debug, Clone)]
pub(in crate::dns::hickory) struct Endpoint {
    pub(in crate::dns::hickory) ip: IpAddr,
    /// The index of the network interface that leads to the server; zero for none in particular.
    pub(in crate::dns::hickory) scope: u32,
    /// The port and protocol for datagrams, if the server is asked by them first.
    pub(in crate::dns::hickory) udp: Option<ConnectionConfig>,
    /// The port and protocol of a connection: TCP, TLS or HTTPS.
    pub(in crate::dns::hickory) connection: Option<ConnectionConfig>,
}

impl Server {
    /// Creates a server that is asked by UDP, and by TCP if an answer is truncated or UDP goes unanswered.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, protocol: Protocol::Plain }
    }

    /// Creates a server that is asked by TLS (RFC 7858), whose port usually is 853. Its certificate has to be for `name`, which
    /// may be an IP address.
    #[cfg(feature = "dns-over-tls")]
    pub fn tls(address: SocketAddr, name: &str) -> Self {
        Self { address, protocol: Protocol::Tls { name: name.into() } }
    }

    /// Creates a server that is asked by HTTPS (RFC 8484), with HTTP/2 and the path `/dns-query`. Its port usually is 443. Its
    /// certificate has to be for `name`, which may be an IPv4 address. With an IPv6 address every lookup fails with
    /// [`ResolveErrorKind::Config`](crate::dns::hickory::ResolveErrorKind::Config): hickory cannot put one into a URL.
    #[cfg(feature = "dns-over-https")]
    pub fn https(address: SocketAddr, name: &str) -> Self {
        Self { address, protocol: Protocol::Https { name: name.into(), path: "/dns-query".into() } }
    }

    /// Fails for a server that hickory cannot ask.
    pub(in crate::dns::hickory) fn check(&self) -> Result<(), NetError> {
        match &self.protocol {
            #[cfg(feature = "dns-over-https")]
            Protocol::Https { name, .. } if name.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok() => {
                let what = format!(
                    "a server that is asked by HTTPS has to be named by a host name or an IPv4 address, not by {name}"
                );
                Err(NetError::from(what))
            }
            _ => Ok(()),
        }
    }

    pub(in crate::dns::hickory) fn endpoint(&self) -> Endpoint {
        let scope = match self.address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        let (mut udp, mut connection) = match &self.protocol {
            Protocol::Plain => (Some(ConnectionConfig::udp()), ConnectionConfig::tcp()),
            #[cfg(feature = "dns-over-tls")]
            Protocol::Tls { name } => (None, ConnectionConfig::tls(name.clone())),
            #[cfg(feature = "dns-over-https")]
            Protocol::Https { name, path } => (None, ConnectionConfig::https(name.clone(), Some(path.clone()))),
        };
        connection.port = self.address.port();
        udp.iter_mut().for_each(|udp| udp.port = connection.port);
        Endpoint { ip: self.address.ip(), scope, udp, connection: Some(connection) }
    }
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self::plain(address)
    }
}

impl Endpoint {
    /// Returns true if the server is asked by TLS or HTTPS.
    #[cfg(feature = "dns-over-tls")]
    pub(in crate::dns::hickory) fn is_encrypted(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.protocol != ProtocolConfig::Tcp)
    }
}
