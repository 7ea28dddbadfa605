//! DNS lookups as events describe them: address family, source of the answer, result.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// An address family. The two families are looked up and cached separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "there are two address families")]
pub enum Family {
    /// IPv4: A records.
    V4,
    /// IPv6: AAAA records.
    V6,
}

impl Family {
    /// Both families, IPv6 first.
    pub const BOTH: [Self; 2] = [Self::V6, Self::V4];

    /// Returns the family of an address.
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Returns the other family.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V4 => "v4",
            Self::V6 => "v6",
        })
    }
}

/// The source of a DNS answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The cache, within the answer's TTL.
    Hit,
    /// A query that was already in flight for another lookup.
    Coalesced,
    /// A query made for this lookup.
    Miss,
    /// The cache, after the answer's TTL expired, because a new answer failed to come or came too late (RFC 8767).
    Stale,
    /// The cache, for a name that the program pinned to addresses.
    Pinned,
    /// The hosts file, or the fixed addresses of `localhost` (RFC 6761), without a query.
    Hosts,
    /// A fixed table of addresses, without a query.
    Fixed,
    /// The URL itself, which names an IP address. Nothing was looked up.
    Literal,
}

impl Source {
    /// Returns the source's name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Coalesced => "coalesced",
            Self::Miss => "miss",
            Self::Stale => "stale",
            Self::Pinned => "pinned",
            Self::Hosts => "hosts",
            Self::Fixed => "fixed",
            Self::Literal => "literal",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The lookup of a name in one address family, and its result.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DnsLookup {
    /// The name looked up, or the address if the URL has one.
    pub name: Arc<str>,
    /// The family asked for.
    pub family: Family,
    /// The addresses. Empty if the lookup failed.
    pub addresses: Arc<[IpAddr]>,
    /// The time for which the answer may still be used. Zero if the lookup failed.
    pub ttl: Duration,
    /// The source of the answer, or of the failure.
    pub source: Source,
    /// The reason for the failure, if the lookup failed.
    pub error: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// The servers that were asked, if the resolver tells and the query was made for this lookup or one beside it.
    pub servers: Option<Arc<AskedServers>>,
    /// The duration of the lookup, as far as it belongs to the call.
    pub elapsed: Duration,
}

/// The DNS servers that were asked for a lookup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AskedServers {
    /// The server that answered; `None` if no server did.
    pub answered: Option<IpAddr>,
    /// The servers that had not answered when the answer came, or that had failed, in the order in which they were asked.
    pub silent: Vec<IpAddr>,
    /// The number of names of the search list that were asked for, and do not exist, before the one that was answered.
    pub searched: u32,
}

impl DnsLookup {
    pub(crate) fn answered(
        name: Arc<str>,
        family: Family,
        addresses: Arc<[IpAddr]>,
        ttl: Duration,
        source: Source,
    ) -> Self {
        Self { name, family, addresses, ttl, source, error: None, servers: None, elapsed: Duration::ZERO }
    }

    /// Adds the servers that were asked.
    pub(crate) fn with_servers(self, servers: Option<Arc<AskedServers>>) -> Self {
        Self { servers, ..self }
    }

    pub(crate) fn failed(
        name: Arc<str>,
        family: Family,
        source: Source,
        error: Arc<dyn std::error::Error + Send + Sync>,
    ) -> Self {
        Self {
            name,
            family,
            addresses: Arc::default(),
            ttl: Duration::ZERO,
            source,
            error: Some(error),
            servers: None,
            elapsed: Duration::ZERO,
        }
    }
}
