//! The settings and lookups by which requests share the connections of other origins (RFC 9113 §9.1.1).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures_util::future::Either;

use super::Connector;
use super::addresses::Addresses;
use super::proxy_choice::ProxyChoice;
use crate::clock::Instant;
use crate::origin::Origin;
use crate::trace::{DnsLookup, Family};

impl Connector {
    /// Returns true if the settings allow that connections serve several origins. They do not if servers are not verified by the
    /// name in the URL, if the client shows a certificate of its own, if each connection is to start at another address, and beside a
    /// Unix domain socket.
    pub(crate) fn may_share_connections(&self) -> bool {
        #[cfg(unix)]
        let has_unix_socket = self.unix.is_some();
        #[cfg(not(unix))]
        let has_unix_socket = false;
        !has_unix_socket && self.addresses != Addresses::Spread && self.verifies_by_name()
    }

    #[cfg(feature = "__tls")]
    fn verifies_by_name(&self) -> bool {
        self.tls.verifies_by_name()
    }

    /// Without TLS there are no certificates.
    #[cfg(not(feature = "__tls"))]
    fn verifies_by_name(&self) -> bool {
        false
    }

    /// Returns true if requests to `origin` use no proxy. `choice` is used in place of the client's proxies.
    pub(crate) fn is_direct(&self, origin: &Origin, choice: Option<&Arc<ProxyChoice>>) -> bool {
        let server = match choice {
            Some(choice) => choice.find(origin),
            None => self.proxies.find(origin),
        };
        matches!(server, Ok(None))
    }

    /// Returns the addresses and ports that the user has set for an origin; `None` if DNS has to be asked.
    pub(crate) fn pinned_sockets(&self, origin: &Origin) -> Option<Vec<SocketAddr>> {
        self.pins.of(origin.host())?;
        Some(self.pins.sockets(origin))
    }

    /// Returns the families in which the addresses of names are looked up.
    pub(crate) fn families(&self) -> &'static [Family] {
        self.addresses.families()
    }

    /// Looks up the addresses of `name` in a family, as a dial would: returns those in the cache, or the lookup that has to be waited
    /// for. Its query goes on if it is dropped. No addresses are returned if the lookup fails.
    pub(crate) fn addresses_of<'a>(
        &'a self,
        now: Instant,
        name: &'a Arc<str>,
        family: Family,
    ) -> Either<Arc<[IpAddr]>, impl Future<Output = DnsLookup> + Send + 'a> {
        match self.resolver.lookup_at(now, name, family) {
            Either::Left(known) => Either::Left(known.map(|answer| answer.addresses().clone()).unwrap_or_default()),
            Either::Right(pending) => Either::Right(async move {
                match pending.wait().await {
                    Ok(answer) => {
                        let (addresses, source) = (answer.addresses().clone(), answer.source());
                        let lookup = DnsLookup::answered(name.clone(), family, addresses, answer.ttl(), source);
                        lookup.with_servers(answer.servers().cloned())
                    }
                    Err(error) => {
                        let (source, servers) = (error.answered_from(), error.servers().cloned());
                        DnsLookup::failed(name.clone(), family, source, Arc::new(error)).with_servers(servers)
                    }
                }
            }),
        }
    }
}
