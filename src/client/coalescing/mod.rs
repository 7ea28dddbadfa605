//! Requests to several origins on one HTTP/2 connection (RFC 9113 §9.1.1): which open connections may carry requests to which other
//! origins. `call/coalesce.rs` uses it; `dialer.rs` lists connections as they open.

mod shared_connections;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

pub(super) use self::shared_connections::Candidate;
use self::shared_connections::{SharedConnection, SharedConnections};

use super::pool_key::PoolKey;
use crate::connect::{Connector, Reusable, is_valid_for};
use crate::origin::{Host, Origin, Scheme};
use crate::pool::ConnId;
use crate::sync::lock;
use crate::trace::Family;

/// The connections of a client that its origins share.
#[derive(Default)]
pub(crate) struct Coalescing {
    shared: Arc<Mutex<SharedConnections>>,
}

/// The entry of a connection in the list of those that origins share. Dropped with the connection, it removes the entry.
pub(super) struct Listing {
    shared: Arc<Mutex<SharedConnections>>,
    number: u64,
    /// Kept, so that no other one has its address, by which settings are told apart.
    _connector: Arc<Connector>,
}

impl Drop for Listing {
    fn drop(&mut self) {
        let removed = lock(&self.shared).remove(self.number);
        // A choice of a proxy may run foreign code when it is dropped, so not under the lock.
        drop(removed);
    }
}

impl Coalescing {
    /// Lists a connection that `connector` has opened under `key`, unless by its settings each connection serves its own origin alone.
    pub(super) fn list(
        &self,
        id: ConnId,
        key: PoolKey,
        reusable: Reusable,
        connector: Arc<Connector>,
    ) -> Option<Listing> {
        // An address is not a name, and the same address elsewhere may be another server.
        let is_named_https = key.origin.scheme() == Scheme::Https && matches!(key.origin.host(), Host::Name(_));
        if !is_named_https || !connector.may_share_connections() {
            return None;
        }
        let settings = identity(&connector);
        let Reusable { remote, certificate, names } = reusable;
        let connection = SharedConnection { id, key, settings, remote, certificate, names, misdirected: Vec::new() };
        let is_listed = lock(&self.shared).add(connection);
        is_listed.then(|| Listing { shared: self.shared.clone(), number: id.serial, _connector: connector })
    }

    /// Returns the connections of other origins that were opened by `connector`, by which a connection for `key` would be opened now,
    /// and whose certificates have the host of `key` among their names. `None` if there are none.
    pub(super) fn candidates(&self, key: &PoolKey, connector: &Arc<Connector>) -> Option<Candidates> {
        let found = lock(&self.shared).candidates(key, identity(connector));
        let Host::Name(name) = key.origin.host() else { return None };
        (!found.is_empty()).then(|| Candidates { found, origin: key.origin.clone(), name: name.clone() })
    }

    /// Notes that the server of a connection said that `origin` is not its own (421). The connection gets no more requests to it.
    pub(super) fn note_misdirected(&self, number: u64, origin: &Origin) {
        lock(&self.shared).note_misdirected(number, origin);
    }
}

/// Returns the identity of a connector's settings, for as long as the connector exists.
fn identity(connector: &Arc<Connector>) -> usize {
    Arc::as_ptr(connector).addr()
}

/// The open connections of other origins that may carry a request if they lead to an address of its host.
pub(super) struct Candidates {
    found: Vec<Candidate>,
    /// The origin of the request.
    pub(super) origin: Origin,
    /// The name of that origin's host.
    pub(super) name: Arc<str>,
}

impl Candidates {
    /// Keeps the candidates whose certificates are valid for the host. `None` if there are none.
    pub(super) fn with_valid_certificate(mut self) -> Option<Self> {
        let Self { found, name, .. } = &mut self;
        found.retain(|candidate| is_valid_for(&candidate.certificate, name));
        (!self.found.is_empty()).then_some(self)
    }

    /// Returns true if one of them leads to an address of this family.
    pub(super) fn have(&self, family: Family) -> bool {
        self.found.iter().any(|candidate| Family::of(candidate.remote.ip()) == family)
    }

    /// Returns those that lead to one of these addresses, at the origin's port.
    pub(super) fn at_addresses(&self, addresses: &[IpAddr]) -> Vec<Candidate> {
        let port = self.origin.port();
        self.at(|remote| remote.port() == port && addresses.contains(&remote.ip()))
    }

    /// Returns those that lead to one of these addresses and ports.
    pub(super) fn at_sockets(&self, sockets: &[SocketAddr]) -> Vec<Candidate> {
        self.at(|remote| sockets.contains(&remote))
    }

    fn at(&self, is_reached: impl Fn(SocketAddr) -> bool) -> Vec<Candidate> {
        self.found.iter().filter(|candidate| is_reached(candidate.remote)).cloned().collect()
    }
}

#[cfg(feature = "__tls")]
#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use url::Url;

    use super::*;
    use crate::client::{Client, HostConfig};

    fn key(url: &str) -> PoolKey {
        Origin::from_url(&Url::parse(url).unwrap()).unwrap().into()
    }

    fn listed(client: &Client, number: u64, url: &str) -> Option<Listing> {
        let coalescing = client.inner.coalescing.as_ref().expect("it is switched on");
        let reusable = Reusable {
            remote: SocketAddr::from(([192, 0, 2, 1], 443)),
            certificate: Bytes::new(),
            names: vec!["b.example".into()],
        };
        let key = key(url);
        let connector = client.inner.pool.dialer().connector_for(&key.origin);
        coalescing.list(ConnId::numbered(number), key, reusable, connector)
    }

    #[test]
    fn a_connection_is_listed_until_it_is_gone() {
        let client = Client::builder().no_proxy().http2_coalesce_origins(true).build().unwrap();
        let has_candidates = |client: &Client, url: &str| {
            let coalescing = client.inner.coalescing.as_ref().unwrap();
            let key = key(url);
            coalescing.candidates(&key, &client.inner.pool.dialer().connector_for(&key.origin)).is_some()
        };
        let listing = listed(&client, 1, "https://a.example/").expect("there is room");
        let (b, c) = ("https://b.example/", "https://c.example/");
        assert!(has_candidates(&client, b) && !has_candidates(&client, c));
        drop(listing);
        assert!(!has_candidates(&client, b));
        assert!(listed(&client, 2, "https://192.0.2.1/").is_none(), "an address");
        assert!(listed(&client, 3, "http://a.example/").is_none(), "no TLS");
        let _listing = listed(&client, 4, "https://a.example/").expect("there is room");
        client.reconfigure(|to| to.default_headers(http::HeaderMap::new())).unwrap();
        assert!(has_candidates(&client, b), "headers are no matter of connections");
        let own = HostConfig::new().connect_timeout(std::time::Duration::from_secs(1));
        client.reconfigure(|to| to.for_host("b.example", own)).unwrap();
        assert!(!has_candidates(&client, b), "its connections are made with other settings");
    }
}
