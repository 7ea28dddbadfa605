//! One question to one DNS server by one protocol, on a socket of its own.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::PoolContext;
use hickory_resolver::config::{ConnectionConfig, ProtocolConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::Name;

use super::names;
use super::servers::client::ServerClient;
use super::servers::records;
use super::servers::server::Endpoint;
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
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DnsReply {
    pub(crate) code: String,
    pub(crate) addresses: Vec<IpAddr>,
    #[cfg_attr(feature = "serde", serde(rename = "ttl_ns", serialize_with = "crate::trace::serialize_known_nanos"))]
    pub(crate) ttl: Option<Duration>,
    pub(crate) truncated: bool,
}

getters!(DnsReply {
    /// The response code under its name in RFC 6895 §2.3: `NOERROR`, `NXDOMAIN`, `SERVFAIL`, `REFUSED`, or its number.
    code: &str = borrow,
    /// The addresses at the end of the chain of aliases, at most 16 of them.
    addresses: &[IpAddr] = borrow,
    /// The smallest TTL of that chain; `None` without addresses.
    ttl: Option<Duration> = copy,
    /// True if the server left records out because the answer was too long for UDP.
    truncated: bool = copy,
});

/// A server and one of the protocols by which it can be asked.
pub(crate) struct Probe {
    server: SocketAddr,
    protocol: ProtocolConfig,
    client: ServerClient,
}

/// The most addresses of an answer that are reported.
const MAX_ADDRESSES: usize = 16;

impl Probe {
    /// Returns a probe for each protocol of a server.
    pub(super) fn all_of(endpoint: &Endpoint, context: &Arc<PoolContext>) -> Vec<Self> {
        let (udp, connection) = (endpoint.udp.clone(), endpoint.connection.clone());
        let by_udp = udp.map(|udp| (udp.clone(), Endpoint { udp: Some(udp), connection: None, ..*endpoint }));
        let by_connection = connection
            .map(|connection| (connection.clone(), Endpoint { udp: None, connection: Some(connection), ..*endpoint }));
        let probe = |(config, endpoint): (ConnectionConfig, Endpoint)| Self {
            server: SocketAddr::new(endpoint.ip, config.port),
            protocol: config.protocol,
            client: ServerClient::new(&endpoint, context),
        };
        by_udp.into_iter().chain(by_connection).map(probe).collect()
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
    pub(crate) async fn ask(&self, full_name: &str, family: Family) -> io::Result<DnsReply> {
        let mut name = names::parse(full_name).map_err(io::Error::other)?;
        name.set_fqdn(true);
        let response = self.client.ask(name.clone(), family).await.map_err(io_error)?;
        Ok(reply(&response, &name, full_name, family))
    }
}

fn reply(message: &Message, name: &Name, asked: &str, family: Family) -> DnsReply {
    let answer = records::answer(message, name, asked, family).ok();
    let addresses = answer.iter().flat_map(|answer| answer.addresses().iter().copied());
    DnsReply {
        code: code(message.metadata.response_code),
        addresses: addresses.take(MAX_ADDRESSES).collect(),
        ttl: answer.as_ref().map(crate::dns::Answer::ttl),
        truncated: message.metadata.truncation,
    }
}

fn code(code: ResponseCode) -> String {
    match code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::ServFail => "SERVFAIL".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        other => format!("code {}", u16::from(other)),
    }
}

fn io_error(error: NetError) -> io::Error {
    match error {
        NetError::Timeout => io::ErrorKind::TimedOut.into(),
        NetError::Io(error) => match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        },
        error => io::Error::other(error.to_string()),
    }
}
