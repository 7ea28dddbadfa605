//! The single steps of a dial for a report: the way to an origin, the order of its addresses, one address by itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::{Connector, Versions};
use crate::clock::Instant;
use crate::origin::{Host, Origin};
use crate::race::{self, AddressOrder, SourceAddress};
use crate::trace::Family;
use crate::transport::Stream;

/// The proxy for an origin, and the reason for it.
pub(crate) struct ProbedRoute {
    /// The proxy's URL without credentials, and its host; `None` without a proxy.
    ///
    /// # Errors
    /// A clause, if the proxy is not valid, so that every request fails.
    pub(crate) proxy: Result<Option<(String, Origin)>, String>,
    pub(crate) reason: String,
}

/// The host that the client itself connects to: the origin, or its proxy.
#[derive(Clone, Copy)]
pub(crate) struct ProbeTarget<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) is_proxy: bool,
}

impl Connector {
    /// Returns the way to `origin`, as a request without a proxy of its own goes.
    pub(crate) fn probe_route(&self, origin: &Origin) -> ProbedRoute {
        let found = self.proxies.find(origin);
        let proxy = match found {
            Ok(server) => Ok(server.map(|server| (format!("{server:?}"), server.origin))),
            Err(error) => Err(error.to_string()),
        };
        ProbedRoute { proxy, reason: self.proxies.reason(origin) }
    }

    /// Returns the path of the Unix domain socket that all connections lead to.
    pub(crate) fn unix_path(&self) -> Option<String> {
        self.unix.as_ref().map(|path| path.display().to_string())
    }

    /// Returns the families in which the addresses of `target` are looked up.
    pub(crate) fn probed_families(&self, target: &Origin) -> &'static [Family] {
        self.families_of(target)
    }

    /// Returns the addresses that the user has set for the host; `None` if the resolver has to be asked.
    pub(crate) fn pinned(&self, host: &Host) -> Option<Vec<IpAddr>> {
        self.pins.of(host).map(|pinned| pinned.iter().map(SocketAddr::ip).collect())
    }

    /// Returns true if the client may connect to an address of `target`. A proxy may have any address.
    pub(crate) fn may_dial(&self, target: ProbeTarget<'_>, ip: IpAddr) -> bool {
        target.is_proxy || self.policy.allows(ip)
    }

    /// Returns the addresses in the order in which the client dials them, if none of them answers. Those that it may not dial
    /// are left out. `sockets` are the addresses with ports that the resolver has named.
    pub(crate) fn dial_order(
        &self,
        target: ProbeTarget<'_>,
        (ips, sockets): (&[IpAddr], &[SocketAddr]),
        now: Instant,
    ) -> Vec<SocketAddr> {
        let reach = self.reach(target.origin, if target.is_proxy { &[] } else { sockets });
        let families = self.families_of(target.origin);
        let may_dial = |ip: &IpAddr| self.may_dial(target, *ip);
        let of_family = |family| ips.iter().copied().filter(|ip| Family::of(*ip) == family).filter(may_dial).collect();
        let answers: Vec<_> = families.iter().map(|family| (*family, of_family(*family))).collect();
        let order = AddressOrder {
            families,
            port: target.origin.port(),
            host: target.origin.name(),
            scores: &self.scores,
            reach: &reach,
            turn: None,
            avoid: None,
            first: None,
        };
        race::dial_order(&order, &answers, now)
    }

    /// Returns the local address that packets to `address` come from, as far as it is known; an error if there is no route.
    pub(crate) fn probed_source(&self, address: SocketAddr) -> Result<Option<IpAddr>, ()> {
        match self.route_to(address) {
            SourceAddress::Known(source) => Ok(Some(source)),
            SourceAddress::Unknown => Ok(None),
            SourceAddress::Unreachable => Err(()),
        }
    }

    /// Returns the longest that a dial may take.
    pub(crate) fn probed_timeout(&self) -> Duration {
        self.timeout
    }

    /// Connects to one address, by itself.
    pub(crate) async fn dial_alone(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        self.transport.connect(address).await
    }

    /// Returns the TLS settings for `target`; `None` if no TLS is spoken with it.
    #[cfg(feature = "__tls")]
    pub(crate) fn probed_tls(&self, target: ProbeTarget<'_>) -> Option<&crate::tls::Tls> {
        if target.origin.scheme() != crate::origin::Scheme::Https {
            return None;
        }
        Some(if target.is_proxy { &self.proxy_tls } else { &self.tls })
    }

    /// Returns true if the client speaks HTTP/2 alone.
    pub(crate) fn wants_http2_alone(&self) -> bool {
        self.versions == Versions::Http2
    }
}
