//! The dial of a host and port: a race between its addresses, and TLS with the winner.

use std::net::{IpAddr, SocketAddr};

use super::error::{ConnectError, is_exhaustion, is_no_route};
use super::resolve::lookup::{Answers, NameLookup, families_of};
use super::secure::Security;
use super::{Connector, DialFailed, DialTerms};
use crate::clock;
use crate::connect::conn::ConnectedStream;
use crate::connect::io::io_record::DialWait;
use crate::connect::resolve::lookup::with_ports;
use crate::connect::resolve::{Addresses, NameUse};
use crate::origin::{Origin, Scheme};
use crate::race::{self, AddressOrder, FailedAddress, Race, Reach, SourceAddress};
use crate::trace::{DialTrace, Family};
use crate::transport::{Connecting, Probe};

/// The way to an origin, an endpoint or a proxy.
pub(super) struct TargetReach<'a> {
    connector: &'a Connector,
    target: &'a Origin,
    /// The lookup whose ports are used, where the addresses are the origin's own.
    lookup: Option<&'a NameLookup<'a>>,
    /// Addresses with ports, without a lookup.
    known: &'a [SocketAddr],
}

impl Reach for TargetReach<'_> {
    fn source_of(&self, ip: IpAddr) -> SourceAddress {
        self.connector.route_to(SocketAddr::new(ip, self.target.port()))
    }

    fn sockets(&self) -> Vec<SocketAddr> {
        let pinned = || self.connector.pins.sockets(self.target);
        match self.lookup {
            _ if self.connector.addresses == Addresses::Spread => pinned(),
            Some(lookup) => lookup.sockets(self.target),
            None if self.known.is_empty() => pinned(),
            None => with_ports(self.known, self.target),
        }
    }

    /// Tells the DNS cache, unless it is this process that lacks something.
    fn none_connects(&self, failed: &[FailedAddress]) {
        if let Some(name) = self.target.name()
            && !self.connector.failed_by_exhaustion(failed)
        {
            self.connector.resolver.doubt(name, self.connector.families_of(self.target));
        }
    }
}

impl Connector {
    /// Connects to one of the addresses of `origin`. An address whose TLS handshake fails is given up for the next one.
    pub(super) async fn dial(
        &self,
        origin: &Origin,
        lookup: &NameLookup<'_>,
        answers: Answers<'_>,
        terms: &DialTerms,
        trace: &DialTrace,
    ) -> Result<ConnectedStream, DialFailed> {
        let reach = TargetReach { connector: self, target: origin, lookup: Some(lookup), known: &[] };
        let mut race = self.race(&reach, answers, terms, trace);
        let mut has_tls_failed = false;
        loop {
            let wait = DialWait { dial: terms.start, race: clock::now() };
            let Some((remote, stream, at)) = race.next().await else { break };
            let probe = Probe::of(&*stream);
            wait.note_connected(at, remote, probe.as_ref(), trace);
            let secured = match origin.scheme() {
                Scheme::Http => Ok((stream, None)),
                // Boxed because the future of dials without TLS would be as large.
                Scheme::Https => {
                    let limit = race.handshake_timeout(at);
                    Box::pin(self.security().secure(origin, Some(remote), stream, limit, probe.as_ref(), trace)).await
                }
            };
            match secured {
                Ok((stream, tls)) => {
                    race.confirm();
                    let own_port = Some(remote.port()).filter(|port| *port != origin.port());
                    let (remote, name_use) = (Some(remote), self.name_use(origin, terms, own_port));
                    return Ok(ConnectedStream { stream, tls, remote, forwarding: None, name_use, probe });
                }
                Err(error) => {
                    has_tls_failed = true;
                    race.reject(remote, error);
                }
            }
        }
        Err(DialFailed { addresses: race.into_failed(), has_tls_failed })
    }

    /// Explains a dial that found no connection.
    pub(super) fn explain(&self, lookup: &NameLookup<'_>, failed: DialFailed) -> ConnectError {
        let DialFailed { addresses: failed, has_tls_failed } = failed;
        if self.failed_by_exhaustion(&failed) {
            return ConnectError::Exhausted(failed);
        }
        if has_tls_failed { ConnectError::Tls(failed) } else { lookup.explain(failed) }
    }

    /// Returns the race between the addresses of an origin or a proxy.
    pub(super) fn race<'a>(
        &'a self,
        reach: &'a TargetReach<'a>,
        answers: Answers<'a>,
        terms: &DialTerms,
        trace: &'a DialTrace,
    ) -> Race<'a, Answers<'a>, impl Fn(SocketAddr) -> Connecting<'a>, Connecting<'a>> {
        let target = reach.target;
        let families = self.families_of(target);
        let host = target.name();
        let turn = match host {
            Some(host) if self.addresses == Addresses::Spread => {
                Some(self.scores.count_race(terms.start, host, target.port()))
            }
            _ => None,
        };
        let order = AddressOrder {
            families,
            port: target.port(),
            host,
            scores: &self.scores,
            reach,
            turn,
            avoid: terms.avoid,
            first: terms.first,
        };
        let config = race::Config { deadline: terms.end, ..race::Config::default() };
        Race::new(config, order, answers, |address| self.transport.connect(address), terms.start, trace)
    }

    /// Returns the way to the addresses of `target`, of which those in `known` have ports of their own.
    pub(super) fn reach<'a>(&'a self, target: &'a Origin, known: &'a [SocketAddr]) -> TargetReach<'a> {
        TargetReach { connector: self, target, lookup: None, known }
    }

    /// Returns the families in which the addresses of `target` are looked up.
    pub(super) fn families_of(&self, target: &Origin) -> &'static [Family] {
        families_of(target.host(), self.addresses.families())
    }

    /// Returns the local address that packets to `address` would come from, as far as the transport knows it.
    pub(super) fn route_to(&self, address: SocketAddr) -> SourceAddress {
        match self.transport.source_of(address) {
            None => SourceAddress::Unknown,
            Some(Ok(source)) => SourceAddress::Known(source),
            Some(Err(error)) if is_no_route(&error) => SourceAddress::Unreachable,
            Some(Err(_)) => SourceAddress::Unknown,
        }
    }

    /// Returns true if an address failed because no descriptors or ports were free.
    pub(super) fn failed_by_exhaustion(&self, failed: &[FailedAddress]) -> bool {
        failed.iter().any(|(address, error)| {
            if !is_exhaustion(error) {
                return false;
            }
            // EADDRNOTAVAIL means that no port is free only if there is an address to connect from at all.
            let has_source = || matches!(self.transport.source_of(*address), Some(Ok(_)));
            error.kind() != std::io::ErrorKind::AddrNotAvailable || has_source()
        })
    }

    /// Returns the record by which the connection keeps the target's name in the DNS cache; `None` for an IP address, and
    /// for a name whose addresses the user has set.
    pub(super) fn name_use(&self, target: &Origin, terms: &DialTerms, own_port: Option<u16>) -> Option<NameUse> {
        if self.pins.of(target.host()).is_some() {
            return None;
        }
        let name = (target.name()?, own_port.unwrap_or_default());
        Some(NameUse::new(&self.resolver, name, self.families_of(target), terms.start))
    }

    /// Returns the TLS settings for origins.
    pub(super) fn security(&self) -> Security<'_> {
        Security { tls: &self.tls, timeout: self.tls_timeout }
    }
}
