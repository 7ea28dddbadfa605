//! A DNS server, and how it is asked.

use std::net::SocketAddr;
#[cfg(feature = "dns-over-tls")]
use std::sync::Arc;

#[cfg(feature = "dns-over-tls")]
use hickory_resolver::config::ProtocolConfig;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig};

use super::upstreams::Endpoint;

/// A DNS server and how it is asked: an address alone is asked by UDP and TCP.
///
/// ```
/// use speeddial::dns::{HickoryResolver, Server};
///
/// let resolver = HickoryResolver::with_servers([Server::plain(([192, 0, 2, 53], 53).into())]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    address: SocketAddr,
    by: By,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum By {
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

impl Server {
    /// Asked by UDP, and by TCP where an answer is truncated or UDP goes unanswered.
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, by: By::Plain }
    }

    /// Asked by TLS (RFC 7858), on port 853 as a rule; its certificate has to be for `name`, which may be an IP address.
    #[cfg(feature = "dns-over-tls")]
    pub fn tls(address: SocketAddr, name: &str) -> Self {
        Self { address, by: By::Tls { name: name.into() } }
    }

    /// Asked by HTTPS (RFC 8484), on port 443 as a rule, with HTTP/2 and the path `/dns-query`; its certificate has to be
    /// for `name`.
    #[cfg(feature = "dns-over-https")]
    pub fn https(address: SocketAddr, name: &str) -> Self {
        Self { address, by: By::Https { name: name.into(), path: "/dns-query".into() } }
    }

    #[cfg(feature = "dns-over-tls")]
    pub(super) fn is_encrypted(server: &NameServerConfig) -> bool {
        let plain =
            |connection: &ConnectionConfig| matches!(connection.protocol, ProtocolConfig::Udp | ProtocolConfig::Tcp);
        !server.connections.iter().all(plain)
    }

    fn configuration(&self) -> NameServerConfig {
        let connections = match &self.by {
            By::Plain => vec![ConnectionConfig::udp(), ConnectionConfig::tcp()],
            #[cfg(feature = "dns-over-tls")]
            By::Tls { name } => vec![ConnectionConfig::tls(name.clone())],
            #[cfg(feature = "dns-over-https")]
            By::Https { name, path } => vec![ConnectionConfig::https(name.clone(), Some(path.clone()))],
        };
        let connections = connections.into_iter().map(|mut connection| {
            connection.port = self.address.port();
            connection
        });
        NameServerConfig::new(self.address.ip(), true, connections.collect())
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        let scope = match self.address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Endpoint { config: self.configuration(), scope }
    }
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self::plain(address)
    }
}
