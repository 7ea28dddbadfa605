//! The connectors of a client: one for most hosts, and others for hosts with settings of their own.

use std::sync::Arc;

use crate::connect::{Addresses, Connector};
use crate::host_pattern::{ByHost, HostPattern};
use crate::origin::Origin;

/// The connectors of a client.
pub(in crate::client) struct Connectors {
    general: Arc<Connector>,
    /// The connectors of hosts with settings of their own.
    of_hosts: ByHost<Arc<Connector>>,
}

impl Connectors {
    pub(in crate::client) fn new(general: Arc<Connector>, of_hosts: ByHost<Arc<Connector>>) -> Self {
        Self { general, of_hosts }
    }

    /// Returns the connector of hosts without settings of their own.
    pub(in crate::client) fn general(&self) -> &Arc<Connector> {
        &self.general
    }

    /// Returns the connector of the hosts of this very pattern, if they have their own.
    pub(in crate::client) fn of(&self, hosts: &HostPattern) -> Option<&Arc<Connector>> {
        self.of_hosts.get(hosts)
    }

    /// Returns true if the requests to some hosts are balanced over their addresses.
    pub(in crate::client) fn balance_some_hosts(&self) -> bool {
        let mut all = self.of_hosts.iter().map(|(_, connector)| connector).chain([&self.general]);
        all.any(|connector| connector.addresses == Addresses::Spread)
    }

    /// Returns the connector of an origin.
    pub(in crate::client) fn find(&self, origin: &Origin) -> &Arc<Connector> {
        if self.of_hosts.is_empty() {
            return &self.general;
        }
        let (host, port) = host_and_port(origin);
        self.of_hosts.find(&host, port).unwrap_or(&self.general)
    }
}

impl Connectors {
    /// Returns true if both, which have connectors for the same hosts, make the same TLS handshakes.
    pub(in crate::client) fn has_same_tls(&self, other: &Self) -> bool {
        let of_hosts = self.of_hosts.iter().zip(other.of_hosts.iter());
        let mut pairs = of_hosts.map(|((_, own), (_, other))| (own, other)).chain([(&self.general, &other.general)]);
        pairs.all(|(own, other)| own.tls.is_same(&other.tls))
    }
}

/// Returns the host and port by which an origin is found among host patterns.
pub(in crate::client) fn host_and_port(origin: &Origin) -> (String, u16) {
    // Only DNS knows the dot at the end of a fully qualified name.
    (origin.host().to_string().trim_end_matches('.').to_owned(), origin.port())
}
