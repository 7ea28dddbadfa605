//! The open connections that may carry requests to other origins, found by the names in their certificates. A core.
//!
//! A candidate for a request is a connection whose certificate has the request's host among its names, whose origin has the same scheme, port
//! and choice of a proxy, and whose server has not yet said that the request's origin is not its own (421). Whether the certificate is
//! really valid for the host, and whether DNS has the connection's address for it, is for the driver to find out.

use std::collections::HashMap;
use std::net::SocketAddr;

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::client::pool_key::PoolKey;
use crate::origin::{Host, Origin};
use crate::pool::ConnId;

/// The most connections that are listed. Others serve their own origins alone.
const MAX_CONNECTIONS: usize = 1_024;

/// The most names of all certificates together. A connection that brings more is not listed.
const MAX_NAMES: usize = 32_768;

/// The most origins that a connection is remembered not to serve. With one more it serves its own origin alone.
const MAX_MISDIRECTED: usize = 64;

/// The most candidates for a request.
const MAX_CANDIDATES: usize = 8;

/// The open connections that may carry requests to other origins.
#[derive(Default)]
pub(super) struct SharedConnections {
    /// The connections by their numbers.
    connections: HashMap<u64, SharedConnection, RandomState>,
    /// The numbers of the connections whose certificates have a name, the oldest connection first.
    by_name: HashMap<Box<str>, Vec<u64>, RandomState>,
    /// The number of names of all connections.
    names: usize,
}

/// An open connection that may carry requests to other origins.
pub(super) struct SharedConnection {
    pub(super) id: ConnId,
    /// The key under which it was opened.
    pub(super) key: PoolKey,
    /// The identity of the settings that it was opened with.
    pub(super) settings: usize,
    pub(super) remote: SocketAddr,
    pub(super) certificate: Bytes,
    /// The names in the certificate.
    pub(super) names: Vec<Box<str>>,
    /// The origins that the server has said are not its own.
    pub(super) misdirected: Vec<Origin>,
}

/// A connection that may carry a request.
#[derive(Clone)]
pub(in crate::client) struct Candidate {
    pub(in crate::client) id: ConnId,
    /// The origin for which it was opened.
    pub(in crate::client) origin: Origin,
    pub(super) remote: SocketAddr,
    pub(super) certificate: Bytes,
}

impl SharedConnections {
    /// Adds a connection. Returns false if there are too many connections or names.
    pub(super) fn add(&mut self, connection: SharedConnection) -> bool {
        let count = connection.names.len();
        if self.connections.len() >= MAX_CONNECTIONS || self.names + count > MAX_NAMES {
            return false;
        }
        let number = connection.id.serial;
        for name in &connection.names {
            self.by_name.entry(name.clone()).or_default().push(number);
        }
        self.names += count;
        self.connections.insert(number, connection);
        true
    }

    /// Removes the connection with this number, and returns it.
    pub(super) fn remove(&mut self, number: u64) -> Option<SharedConnection> {
        let removed = self.connections.remove(&number)?;
        for name in &removed.names {
            if let Some(numbers) = self.by_name.get_mut(name) {
                numbers.retain(|listed| *listed != number);
                if numbers.is_empty() {
                    self.by_name.remove(name);
                }
            }
        }
        self.names -= removed.names.len();
        Some(removed)
    }

    /// Returns the connections that may carry requests with this key and are not of its own origin: those with the whole name before those
    /// with a star, and the youngest ones first. `settings` are those that a connection for the key would be opened with now.
    pub(super) fn candidates(&self, key: &PoolKey, settings: usize) -> Vec<Candidate> {
        let Host::Name(name) = key.origin.host() else { return Vec::new() };
        let name = name.trim_end_matches('.');
        let exact = self.by_name.get(name);
        let with_star = self.with_star(name);
        // An old one may be about to end.
        let numbers = exact.into_iter().chain(with_star).flat_map(|numbers| numbers.iter().rev());
        let connections = numbers.filter_map(|number| self.connections.get(number));
        let mut found: Vec<Candidate> = Vec::new();
        for connection in connections.filter(|connection| connection.settings == settings && connection.may_carry(key))
        {
            let is_known = found.iter().any(|candidate| candidate.id == connection.id);
            if !is_known && found.len() < MAX_CANDIDATES {
                found.push(connection.to_candidate());
            }
        }
        found
    }

    /// Notes that the server of a connection said that `origin` is not its own. The connection gets no more requests to it.
    pub(super) fn note_misdirected(&mut self, number: u64, origin: &Origin) {
        if let Some(connection) = self.connections.get_mut(&number)
            && !connection.misdirected.contains(origin)
        {
            connection.misdirected.push(origin.clone());
        }
    }

    /// Returns the connections whose certificates have `*` in place of the first label of `name`.
    fn with_star(&self, name: &str) -> Option<&Vec<u64>> {
        let (_, parent) = name.split_once('.')?;
        self.by_name.get(format!("*.{parent}").as_str())
    }
}

impl SharedConnection {
    /// Returns true if the connection may carry requests with this key, as far as is known here.
    fn may_carry(&self, key: &PoolKey) -> bool {
        let own = &self.key;
        let mine = &own.origin;
        let other = &key.origin;
        let is_alike = mine.scheme() == other.scheme() && mine.port() == other.port() && own.proxy == key.proxy;
        is_alike
            && mine != other
            && self.misdirected.len() <= MAX_MISDIRECTED
            && !self.misdirected.contains(&key.origin)
    }

    fn to_candidate(&self) -> Candidate {
        Candidate {
            id: self.id,
            origin: self.key.origin.clone(),
            remote: self.remote,
            certificate: self.certificate.clone(),
        }
    }
}

#[cfg(feature = "__tls")]
#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use url::Url;

    use super::*;
    use crate::connect::ProxyChoice;

    fn key(host: &str) -> PoolKey {
        Origin::from_url(&Url::parse(&format!("https://{host}/")).unwrap()).unwrap().into()
    }

    /// Makes a connection of `host` whose certificate has these names.
    fn connection(number: u64, host: &str, names: &[&str]) -> SharedConnection {
        SharedConnection {
            id: ConnId::numbered(number),
            key: key(host),
            settings: 0,
            remote: SocketAddr::from(([192, 0, 2, 1], 443)),
            certificate: Bytes::new(),
            names: names.iter().map(|name| (*name).into()).collect(),
            misdirected: Vec::new(),
        }
    }

    /// Returns the numbers of the candidates for requests to `host`.
    fn found(shared: &SharedConnections, host: &str) -> Vec<u64> {
        shared.candidates(&key(host), 0).iter().map(|candidate| candidate.id.serial).collect()
    }

    #[test]
    fn connections_are_found_by_name_and_by_a_star_in_place_of_one_label() {
        let mut shared = SharedConnections::default();
        assert!(shared.add(connection(1, "a.example", &["a.example", "b.example"])));
        assert!(shared.add(connection(2, "w.example", &["*.example", "b.example", "b.example"])));
        assert_eq!(found(&shared, "b.example"), [2, 1], "each of them once, the youngest first");
        assert_eq!(found(&shared, "b.example."), [2, 1]);
        assert_eq!(found(&shared, "c.example"), [2]);
        assert!(found(&shared, "x.b.example").is_empty() && found(&shared, "example").is_empty());
        assert_eq!(found(&shared, "a.example"), [2], "not the one of its own");
        assert!(found(&shared, "192.0.2.1").is_empty());
        assert!(shared.remove(2).is_some() && shared.remove(2).is_none());
        assert_eq!((found(&shared, "b.example"), found(&shared, "c.example")), (vec![1], vec![]));
        assert!(shared.remove(1).is_some());
        assert_eq!((shared.by_name.len(), shared.names), (0, 0));
    }

    #[test]
    fn another_port_and_another_choice_of_a_proxy_are_kept_apart() {
        let mut shared = SharedConnections::default();
        shared.add(connection(1, "a.example", &["b.example"]));
        assert_eq!(found(&shared, "b.example"), [1]);
        assert!(found(&shared, "b.example:8443").is_empty());
        let plain = Origin::from_url(&Url::parse("http://b.example:443/").unwrap()).unwrap();
        assert!(shared.candidates(&plain.into(), 0).is_empty(), "another scheme");
        let mut direct = key("b.example");
        direct.proxy = Some(Arc::new(ProxyChoice::none()));
        assert!(shared.candidates(&direct, 0).is_empty());
    }

    #[test]
    fn an_origin_that_was_misdirected_does_not_get_the_connection_again() {
        let mut shared = SharedConnections::default();
        shared.add(connection(1, "a.example", &["b.example", "*.many.example"]));
        shared.note_misdirected(1, &key("b.example").origin);
        shared.note_misdirected(2, &key("b.example").origin);
        assert!(found(&shared, "b.example").is_empty());
        for number in 0..MAX_MISDIRECTED {
            assert_eq!(found(&shared, "x.many.example"), [1], "{number}");
            shared.note_misdirected(1, &key(&format!("{number}.many.example")).origin);
        }
        assert!(found(&shared, "x.many.example").is_empty(), "after too many it serves its own origin alone");
        assert_eq!(shared.connections[&1].misdirected.len(), MAX_MISDIRECTED + 1);
    }

    #[test]
    fn connections_names_and_candidates_are_bounded() {
        let mut shared = SharedConnections::default();
        for number in 1..=MAX_CONNECTIONS as u64 {
            assert!(shared.add(connection(number, "a.example", &["b.example"])));
        }
        assert!(!shared.add(connection(9_999, "a.example", &["b.example"])));
        assert_eq!(found(&shared, "b.example"), [1_024, 1_023, 1_022, 1_021, 1_020, 1_019, 1_018, 1_017]);
        let mut shared = SharedConnections::default();
        let names: Vec<_> = (0..MAX_NAMES).map(|number| format!("{number}.example")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        assert!(shared.add(connection(1, "a.example", &names)));
        assert!(!shared.add(connection(2, "a.example", &["b.example"])));
    }
}
