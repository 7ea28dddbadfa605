//! The answer to a lookup: addresses, their TTL and their source.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::trace::{AskedServers, Family, Source};

/// The addresses of a name in one family, with their remaining TTL and their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    addresses: Arc<[IpAddr]>,
    ttl: Duration,
    source: Source,
    /// The servers that were asked, if something about them is worth telling.
    servers: Option<Arc<AskedServers>>,
}

impl Answer {
    /// Creates an answer with a TTL that starts now. The cache treats an answer without addresses as
    /// [`NoData`](super::ResolveErrorKind::NoData).
    pub fn new(addresses: impl Into<Arc<[IpAddr]>>, ttl: Duration, source: Source) -> Self {
        Self { addresses: addresses.into(), ttl, source, servers: None }
    }

    /// Leaves out addresses of the other family.
    pub(super) fn in_family(self, family: Family) -> Self {
        if self.addresses.iter().all(|ip| Family::of(*ip) == family) {
            return self;
        }
        let addresses = self.addresses.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        Self { addresses, ..self }
    }

    /// Returns the addresses, in the order in which the resolver gave them.
    pub fn addresses(&self) -> &Arc<[IpAddr]> {
        &self.addresses
    }

    /// Returns the time for which the answer may still be used. Zero for a stale answer.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Returns the source of the answer, for example the cache, a query or the hosts file.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the servers that were asked, if a server did not answer or several names were asked for.
    pub(crate) fn servers(&self) -> Option<&Arc<AskedServers>> {
        self.servers.as_ref()
    }

    pub(super) fn with_servers(self, servers: Option<Arc<AskedServers>>) -> Self {
        Self { servers, ..self }
    }

    /// Adds the number of names that were asked for in vain.
    pub(super) fn after_names(mut self, searched: u32) -> Self {
        if searched > 0 {
            Arc::make_mut(self.servers.get_or_insert_default()).searched = searched;
        }
        self
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }
}

/// Returns the different IP addresses of one family, in their order.
pub(crate) fn ips_of(sockets: &[SocketAddr], family: Family) -> Arc<[IpAddr]> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in sockets.iter().map(SocketAddr::ip).filter(|ip| Family::of(*ip) == family) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips.into()
}
