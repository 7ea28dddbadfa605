//! The host whose addresses race, and the order of its addresses.

use std::borrow::Cow;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use smallvec::SmallVec;

use super::scoreboard::{DialStanding, RaceResults, Scoreboard};
use crate::clock::Instant;
use crate::race::scoreboard::{self, SourceAddress};
use crate::sync::lock;
use crate::trace::Family;

/// The most addresses of a family that are sorted. For each of them the system is asked for the source address of its packets,
/// which takes five system calls. The others follow in the order of the answer.
const MAX_SORTED: usize = 32;

/// The knowledge about addresses that all races of a client share.
pub(crate) struct Scores(Mutex<Scoreboard>);

impl Default for Scores {
    fn default() -> Self {
        Self(Mutex::new(Scoreboard::new()))
    }
}

impl Scores {
    // A panic under this lock leaves nothing half changed.
    pub(super) fn lock(&self) -> MutexGuard<'_, Scoreboard> {
        lock(&self.0)
    }

    /// Returns the results of races so far.
    pub(crate) fn results(&self, now: Instant) -> RaceResults {
        self.lock().results(now)
    }

    /// Adds results of earlier races, except where there are newer ones. `later` is the time that has passed since they were taken.
    pub(crate) fn restore(&self, now: Instant, results: &RaceResults, later: Duration) {
        self.lock().restore(now, results, later);
    }

    /// Counts a race for a host's addresses. Returns the number of races before it.
    pub(crate) fn count_race(&self, now: Instant, host: &Arc<str>, port: u16) -> usize {
        self.lock().count_race(now, host, port)
    }
}

/// An address to which no connection was made, and the error.
pub(crate) type FailedAddress = (SocketAddr, Arc<io::Error>);

/// The way to the addresses of a host.
pub(crate) trait Reach: Sync {
    /// Returns the source address of packets to an address.
    fn source_of(&self, ip: IpAddr) -> SourceAddress;

    /// Returns the addresses that are reached at ports of their own, as far as they are known by now.
    fn sockets(&self) -> Vec<SocketAddr>;

    /// Takes note that a race ended without a connection to any address, these `failed` among them.
    fn none_connects(&self, failed: &[FailedAddress]);
}

#[cfg(test)]
impl<F: Fn(IpAddr) -> SourceAddress + Sync> Reach for F {
    fn source_of(&self, ip: IpAddr) -> SourceAddress {
        self(ip)
    }

    fn sockets(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    fn none_connects(&self, _: &[FailedAddress]) {}
}

/// The host whose addresses race, and all that the order of its addresses depends on.
pub(crate) struct AddressOrder<'a> {
    pub(crate) families: &'a [Family],
    pub(crate) port: u16,
    /// The name of the host; `None` for a literal address.
    pub(crate) host: Option<&'a Arc<str>>,
    pub(crate) scores: &'a Scores,
    pub(crate) reach: &'a dyn Reach,
    /// The number of races before this one, if all addresses are to be dialled first equally often.
    pub(crate) turn: Option<usize>,
    /// The address that is dialled after those that are fine.
    pub(crate) avoid: Option<IpAddr>,
    /// The address that is dialled before all others, if it is among them.
    pub(crate) first: Option<SocketAddr>,
}

/// A family's addresses in the order of RFC 6724.
pub(super) struct SortedAddresses<'a> {
    pub(super) addresses: Cow<'a, [IpAddr]>,
    /// True if the first address is an IPv6 one to which all IPv4 addresses are preferred.
    pub(super) yields_to_v4: bool,
}

impl AddressOrder<'_> {
    /// Returns the family of this host's last connection, if that was not long ago.
    pub(super) fn last_good_family(&self, now: Instant) -> Option<Family> {
        self.host.and_then(|host| self.scores.lock().last_good(now, host))
    }

    /// Sorts a family's addresses. They stay in their order if all are to have equal shares, or if there is one IPv4 address.
    pub(super) fn sort<'a>(&self, now: Instant, family: Family, addresses: &'a [IpAddr]) -> SortedAddresses<'a> {
        let is_single_v4 = family == Family::V4 && addresses.len() == 1;
        if self.turn.is_some() || addresses.is_empty() || is_single_v4 {
            return SortedAddresses { addresses: Cow::Borrowed(addresses), yields_to_v4: false };
        }
        let (sorted, rest) = addresses.split_at(addresses.len().min(MAX_SORTED));
        let mut sources = self.with_sources(now, sorted);
        scoreboard::sort(&mut sources);
        let yields_to_v4 = family == Family::V6 && scoreboard::yields_to_v4(sources[0]);
        let addresses = sources.into_iter().map(|(ip, _)| ip).chain(rest.iter().copied()).collect();
        SortedAddresses { addresses: Cow::Owned(addresses), yields_to_v4 }
    }

    /// Returns the addresses with their source addresses, which are remembered or found out.
    fn with_sources(&self, now: Instant, addresses: &[IpAddr]) -> Vec<(IpAddr, SourceAddress)> {
        let known: Vec<_> = {
            let scores = self.scores.lock();
            addresses.iter().map(|ip| (*ip, scores.source(now, *ip))).collect()
        };
        let find_out = |(ip, source): (IpAddr, Option<SourceAddress>)| {
            let source = source.unwrap_or_else(|| {
                let source = self.reach.source_of(ip);
                self.scores.lock().learn_source(now, ip, source);
                source
            });
            (ip, source)
        };
        known.into_iter().map(find_out).collect()
    }

    /// Returns the addresses with their ports and with their standings from earlier races.
    pub(super) fn with_standings(
        &self,
        now: Instant,
        addresses: &[IpAddr],
    ) -> impl Iterator<Item = (SocketAddr, DialStanding)> {
        let own = self.reach.sockets();
        let scores = self.scores.lock();
        let sockets = addresses.iter().flat_map(move |ip| with_ports(*ip, &own, self.port));
        sockets.map(move |address| {
            let standing = scores.standing(now, address);
            let standing = if self.avoid == Some(address.ip()) { standing.max(DialStanding::Slow) } else { standing };
            (address, if self.first == Some(address) { DialStanding::Chosen } else { standing })
        })
    }
}

/// Returns an address with each of its own ports, or with the usual one.
fn with_ports(ip: IpAddr, own: &[SocketAddr], usual: u16) -> SmallVec<[SocketAddr; 1]> {
    let mut sockets: SmallVec<_> = own.iter().copied().filter(|address| address.ip() == ip).collect();
    if sockets.is_empty() {
        sockets.push(SocketAddr::new(ip, usual));
    }
    sockets
}
