//! The answer to a lookup: addresses, their TTL and their source. Names as they are compared, and the changes of answers.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::dns::Family;
use crate::trace::{AskedServers, Source};

/// Addresses with their ports and scopes. Behind one pointer, because each answer has room for it and few have any.
pub(crate) type Sockets = Arc<Vec<SocketAddr>>;

/// The doubt of an answer: which servers and names came before the ones that it is of. 0 is the first.
///
/// The order of the servers is the user's will, so a word of an earlier server outweighs one of a later server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The place of the server in the configured order, or the last one of those whose "does not exist" led to this answer.
    pub(crate) server: u8,
    /// The place of the full name among the candidates of the search list.
    pub(crate) candidate: u8,
}

impl Place {
    /// The place of what counts for nothing beside any answer.
    pub(crate) const LAST: Self = Self { server: u8::MAX, candidate: u8::MAX };

    /// Returns true if a server before the one that answered has not answered by itself.
    pub(crate) fn is_doubtful(self) -> bool {
        self.server > 0
    }

    /// Returns the place of addresses from here of which none connects: any other address replaces them.
    pub(crate) fn let_go(self) -> Self {
        // Those of a snapshot are of no known candidate, and yet of the name.
        Self { server: u8::MAX, candidate: self.candidate.min(u8::MAX - 1) }
    }

    /// Returns true if addresses from here are kept beside a "no" from `other`. A later server's leads nowhere, also where none of them
    /// connects.
    pub(crate) fn outweighs_no(self, other: Self) -> bool {
        let is_let_go = self.server == u8::MAX && self != Self::LAST;
        self.is_before(other) || is_let_go && other.is_doubtful()
    }

    /// Returns true if a word from here outweighs one from `other`.
    pub(crate) fn is_before(self, other: Self) -> bool {
        self.server < other.server
    }
}

/// The addresses of a name in one family, with their remaining TTL and their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    addresses: Arc<[IpAddr]>,
    /// The addresses with their ports and scopes, if some have one.
    sockets: Option<Sockets>,
    ttl: Duration,
    source: Source,
    place: Place,
    /// The servers that were asked, if something about them is worth telling.
    servers: Option<Arc<AskedServers>>,
}

impl Answer {
    /// Creates an answer with a TTL that starts now. The cache treats an answer without addresses as
    /// [`NoData`](super::ResolveErrorKind::NoData).
    pub fn new(addresses: impl Into<Arc<[IpAddr]>>, ttl: Duration, source: Source) -> Self {
        Self { addresses: addresses.into(), sockets: None, ttl, source, place: Place::default(), servers: None }
    }

    /// Creates an answer whose addresses are reached at ports of their own, where the URL names no port; 0 stands for the usual one
    /// of the scheme. An address may come with several ports, which are tried in their order. A link-local address keeps its scope.
    ///
    /// Requests that are balanced ([`Addresses::Spread`](crate::settings::Addresses::Spread)) go
    /// to the usual ports all the same.
    pub fn of_sockets(sockets: impl IntoIterator<Item = SocketAddr>, ttl: Duration, source: Source) -> Self {
        let sockets: Vec<_> = sockets.into_iter().collect();
        let addresses = Family::BOTH.iter().flat_map(|family| ips_of(&sockets, *family).to_vec()).collect::<Vec<_>>();
        Self::new(addresses, ttl, source).with_sockets(Some(Arc::new(sockets)))
    }

    /// Sets the ports of addresses.
    pub(super) fn with_sockets(self, sockets: Option<Sockets>) -> Self {
        let says_more = |address: &SocketAddr| match address {
            SocketAddr::V4(address) => address.port() != 0,
            SocketAddr::V6(address) => address.port() != 0 || address.scope_id() != 0,
        };
        let sockets = sockets.filter(|sockets| sockets.iter().any(says_more));
        Self { sockets, ..self }
    }

    /// Returns the addresses with their ports, if some have one.
    pub(crate) fn sockets(&self) -> Option<&Sockets> {
        self.sockets.as_ref()
    }

    /// Leaves out addresses of the other family.
    pub(super) fn in_family(self, family: Family) -> Self {
        self.keep(|ip| Family::of(*ip) == family)
    }

    /// Leaves out addresses that are not wanted.
    pub(super) fn keep(self, is_wanted: impl Fn(&IpAddr) -> bool) -> Self {
        if self.addresses.iter().all(&is_wanted) {
            return self;
        }
        let addresses = self.addresses.iter().copied().filter(&is_wanted).collect();
        let wanted =
            |sockets: Sockets| Arc::new(sockets.iter().copied().filter(|socket| is_wanted(&socket.ip())).collect());
        let sockets = self.sockets.clone().map(wanted);
        Self { addresses, ..self }.with_sockets(sockets)
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

    /// Returns the place of the server and of the full name that the answer is of.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn with_place(self, place: Place) -> Self {
        Self { place, ..self }
    }

    pub(crate) fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }
}

/// Returns the different IP addresses of one family, in their order.
fn ips_of(sockets: &[SocketAddr], family: Family) -> Arc<[IpAddr]> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for ip in sockets.iter().map(SocketAddr::ip).filter(|ip| Family::of(*ip) == family) {
        if !ips.contains(&ip) {
            ips.push(ip);
        }
    }
    ips.into()
}

/// Returns a name as URLs and queries have it: in lower case, in its ASCII (punycode) form. Allocates only if the name
/// changes.
pub(super) fn normalized(name: &str) -> Cow<'_, str> {
    // Without a branch for each byte, which takes half of the instructions.
    let changes = name.bytes().fold(false, |changes, byte| changes | byte.is_ascii_uppercase() | !byte.is_ascii());
    if !changes {
        return Cow::Borrowed(name);
    }
    match url::Host::parse(name) {
        Ok(url::Host::Domain(ascii)) if !name.is_ascii() => Cow::Owned(ascii),
        // The name is in ASCII, or is not one that a URL can have.
        _ => Cow::Owned(name.to_ascii_lowercase()),
    }
}

/// Returns the form in which names are compared that have addresses of the user: [`normalized`], without the dot at the end, which only keeps
/// DNS from searching.
pub(crate) fn comparable(name: &str) -> Cow<'_, str> {
    match normalized(name) {
        Cow::Borrowed(name) => Cow::Borrowed(name.strip_suffix('.').unwrap_or(name)),
        Cow::Owned(mut name) => {
            name.truncate(name.strip_suffix('.').unwrap_or(&name).len());
            Cow::Owned(name)
        }
    }
}

/// The most changes that wait for a slow subscriber. Beyond that, the oldest ones are dropped.
pub(crate) const MAX_WAITING_CHANGES: usize = 1_024;

/// An answer whose set of addresses and ports differs from the one known before, or the first known answer of a name.
///
/// The order of addresses does not matter. An answer with a TTL of zero is not kept, so the next one counts as a first one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The name, in lower case.
    pub name: Arc<str>,
    /// The family of the addresses.
    pub family: Family,
    /// The new addresses; empty if the name has none any more.
    pub addresses: Arc<[IpAddr]>,
    /// The addresses with ports of their own, if some have one.
    pub(crate) sockets: Option<Sockets>,
    /// The time for which the answer may be used.
    pub ttl: Duration,
    /// True if the addresses known before count for nothing any more, so that those who use them need not wait for a second answer.
    pub(crate) is_sure: bool,
    /// The number of the change among those of the cache, counted from 1. Two changes at the same time may arrive in either
    /// order: the one with the higher number is newer.
    pub serial: u64,
}

/// The changes since the subscription, roughly in the order in which their answers came.
#[derive(Debug)]
pub struct Changes {
    pub(crate) receiver: broadcast::Receiver<Change>,
}

/// The reasons why [`Changes::next`] returns no change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The subscriber was too slow, and this many changes were dropped. The next call returns the oldest one left.
    #[error("{0} changes of DNS answers were missed")]
    Missed(u64),
    /// The cache is gone.
    #[error("the DNS cache is gone")]
    Closed,
}

impl Changes {
    /// Waits for the next change. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ChangesError::Missed`] if more than 1,024 changes were waiting, [`ChangesError::Closed`] when the cache is gone.
    pub async fn next(&mut self) -> Result<Change, ChangesError> {
        self.receiver.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(missed) => ChangesError::Missed(missed),
            broadcast::error::RecvError::Closed => ChangesError::Closed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case_and_in_punycode() {
        assert!(matches!(normalized("api.test"), Cow::Borrowed("api.test")));
        assert_eq!(normalized("API.test"), "api.test");
        assert_eq!(normalized("BÜCHER.test"), "xn--bcher-kva.test");
        assert_eq!([comparable("API.test."), comparable("api.test"), comparable("api.test.")], ["api.test"; 3]);
        assert_eq!(comparable("BÜCHER.test."), "xn--bcher-kva.test");
        assert_eq!(normalized("my_Name"), "my_name", "a name that no URL can have is only put into lower case");
    }
}
