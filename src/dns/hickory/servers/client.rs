//! One server's resolver in hickory, with its connections.

use hickory_resolver::config::{NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{PoolContext, Resolver, TlsConfig};
use std::time::Duration;

use super::connections::{Connections, MAX_UNANSWERED};
use super::limits::{Limits, MAX_TIMEOUT};
use super::server::Endpoint;
use super::sockets::Sockets;

/// Creates the clients for the servers of a configuration.
pub(in crate::dns::hickory) struct ClientFactory {
    options: ResolverOpts,
    #[cfg(feature = "dns-over-tls")]
    tls: rustls::ClientConfig,
}

/// A hickory resolver that asks one server, and its connections.
#[derive(Clone)]
pub(in crate::dns::hickory) struct ServerClient {
    resolver: Resolver<Connections>,
    connections: Connections,
    is_by_udp: bool,
}

impl ClientFactory {
    /// Adapts hickory's options: no cache, no hosts file, no tries and no limits of its own, because this crate has them.
    pub(in crate::dns::hickory) fn new(
        mut options: ResolverOpts,
        limits: Limits,
        #[cfg(feature = "dns-over-tls")] tls: rustls::ClientConfig,
    ) -> Self {
        options.cache_size = 0;
        // Each try has its own timeout; this is the latest time at which any of them ends.
        options.timeout = limits.try_timeout.saturating_mul(limits.tries as u32).min(MAX_TIMEOUT);
        options.attempts = 0;
        // Never reached, because hickory gives up a connection at this limit. A question counts for a moment after its answer,
        // and those that go unanswered go on without a turn.
        options.max_active_requests = 2 * (MAX_UNANSWERED + limits.max_in_flight.min(1 << 14));
        options.use_hosts_file = ResolveHosts::Never;
        // hickory would limit TTLs to a day, among them those that mean zero (RFC 2181 §8).
        let unlimited = Some(Duration::from_secs(u32::MAX.into()));
        options.positive_max_ttl = unlimited;
        options.negative_max_ttl = unlimited;
        Self {
            options,
            #[cfg(feature = "dns-over-tls")]
            tls,
        }
    }

    /// Returns what hickory needs to open a connection.
    pub(in crate::dns::hickory) fn context(&self) -> Result<PoolContext, NetError> {
        #[cfg(feature = "dns-over-tls")]
        let tls = TlsConfig { config: self.tls.clone() };
        #[cfg(not(feature = "dns-over-tls"))]
        let tls = TlsConfig::new()?;
        Ok(PoolContext::new(self.options.clone(), tls))
    }

    pub(in crate::dns::hickory) fn client(&self, endpoint: Endpoint) -> Result<ServerClient, NetError> {
        let context = self.context()?;
        let connections = Connections::new(Sockets::new(endpoint.scope), context);
        let is_by_udp = is_by_udp(&endpoint.config);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![endpoint.config]);
        let builder = Resolver::builder_with_config(config, connections.clone());
        let builder = builder.with_options(self.options.clone());
        #[cfg(feature = "dns-over-tls")]
        let builder = builder.with_tls_config(self.tls.clone());
        Ok(ServerClient { resolver: builder.build()?, connections, is_by_udp })
    }
}

impl ServerClient {
    /// Asks the server for the records of one type.
    pub(in crate::dns::hickory) async fn ask(&self, name: Name, records: RecordType) -> Result<Lookup, NetError> {
        match self.resolver.lookup(name, records).await {
            // hickory returns this for every connection that could not be opened, without the reason.
            Err(NetError::NoConnections) if !self.is_by_udp => {
                Err(self.connections.failure().unwrap_or(NetError::NoConnections))
            }
            result => result,
        }
    }

    /// Returns the number of answers that came over the client's shared connection.
    pub(in crate::dns::hickory) fn answers(&self) -> u64 {
        self.connections.answers()
    }
}

/// Returns true if a server is asked by UDP.
pub(in crate::dns::hickory) fn is_by_udp(server: &NameServerConfig) -> bool {
    server.connections.iter().any(|connection| connection.protocol == ProtocolConfig::Udp)
}
