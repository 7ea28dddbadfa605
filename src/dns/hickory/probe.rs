//! One question to one DNS server by one protocol, on a socket of its own.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::PoolContext;
use hickory_resolver::config::ProtocolConfig;
use hickory_resolver::net::NetError;

use super::names;
use super::servers::client::ServerClient;
use super::servers::records;
use super::servers::server::Server;
use crate::dns::Family;

/// The protocol by which a DNS server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum DnsTransport {
    /// Datagrams (RFC 1035 §4.2.1).
    Udp,
    /// A TCP connection (RFC 7766).
    Tcp,
    /// TLS (RFC 7858).
    Tls,
    /// HTTPS (RFC 8484).
    Https,
}

impl fmt::Display for DnsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Https => "HTTPS",
        })
    }
}

/// The answer of one DNS server to one question.
pub(crate) struct Reply {
    /// The response code (RFC 6895 §2.3).
    pub(crate) code: u16,
    /// The addresses at the end of the chain of aliases.
    pub(crate) addresses: Vec<IpAddr>,
    /// The smallest TTL of that chain; `None` without addresses.
    pub(crate) ttl: Option<Duration>,
    pub(crate) is_truncated: bool,
}

/// A server and one of the protocols by which it can be asked.
pub(crate) struct DnsProbe {
    server: SocketAddr,
    protocol: ProtocolConfig,
    client: ServerClient,
}

impl DnsProbe {
    /// Returns a probe for each protocol of a server.
    pub(super) fn all_of(server: &Server, context: &Arc<PoolContext>) -> Vec<Self> {
        let connection = server.connection();
        let protocol = connection.protocol.clone();
        let by_udp = server.udp().map(|udp| (ProtocolConfig::Udp, Some(udp), None));
        let by_connection = (protocol, None, Some(connection));
        let probe = |(protocol, udp, connection)| Self {
            server: server.address(),
            protocol,
            client: ServerClient::new(server.address(), udp, connection, context),
        };
        by_udp.into_iter().chain([by_connection]).map(probe).collect()
    }

    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    #[allow(unreachable_patterns, reason = "which protocols there are depends on the features of hickory")]
    pub(crate) fn transport(&self) -> DnsTransport {
        match self.protocol {
            ProtocolConfig::Udp => DnsTransport::Udp,
            ProtocolConfig::Tcp => DnsTransport::Tcp,
            #[cfg(feature = "dns-over-tls")]
            ProtocolConfig::Tls { .. } => DnsTransport::Tls,
            _ => DnsTransport::Https,
        }
    }

    /// Asks for the addresses of a full name in one family.
    ///
    /// # Errors
    /// If no answer came: the system's error, or `TimedOut` of hickory's own limit. The caller sets a shorter one.
    pub(crate) async fn ask(&self, full_name: &str, family: Family) -> io::Result<Reply> {
        let mut name = names::parse(full_name).map_err(io::Error::other)?;
        name.set_fqdn(true);
        let response = self.client.ask(name.clone(), family).await.map_err(io_error)?;
        let answer = records::answer(&response, &name, full_name, family).ok();
        Ok(Reply {
            code: response.metadata.response_code.into(),
            addresses: answer.iter().flat_map(|answer| answer.addresses().iter().copied()).collect(),
            ttl: answer.as_ref().map(crate::dns::Answer::ttl),
            is_truncated: response.metadata.truncation,
        })
    }
}

fn io_error(error: NetError) -> io::Error {
    match error {
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        NetError::Io(error) => records::own(&error),
        error => io::Error::other(error.to_string()),
    }
}
