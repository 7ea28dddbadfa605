//! The hosts whose requests are balanced over their addresses ([`Addresses::Spread`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::Connector;
use super::proxy::choice::ProxyChoice;
use super::resolve::addresses::Addresses;
use crate::origin::Origin;

/// A host whose requests are balanced over its addresses.
pub(crate) struct SpreadHost {
    pub(crate) name: Arc<str>,
    pub(crate) port: u16,
    /// The addresses that the user has set; empty if DNS is asked.
    pub(crate) pinned: Vec<SocketAddr>,
}

impl Connector {
    /// Returns the host of `origin` if requests are balanced over its addresses: if the settings say so, it has a name, and no proxy
    /// and no Unix domain socket is in between. Calls no function of the user.
    pub(crate) fn spread(&self, origin: &Origin, choice: Option<&ProxyChoice>) -> Option<SpreadHost> {
        if self.addresses != Addresses::Spread || self.has_unix_socket() {
            return None;
        }
        let is_direct = match choice {
            Some(choice) => choice.surely_none_for(origin),
            None => self.proxies.surely_none_for(origin),
        };
        let name = origin.name().filter(|_| is_direct)?.clone();
        Some(SpreadHost { name, port: origin.port(), pinned: self.pins.sockets(origin) })
    }

    /// Returns the addresses of a DNS answer that the client may dial.
    pub(crate) fn usable(&self, ips: &Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        self.policy.filter(ips)
    }

    fn has_unix_socket(&self) -> bool {
        self.unix.is_some()
    }
}
