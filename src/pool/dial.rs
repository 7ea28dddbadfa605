//! The seam between the pool and what it pools: a trait that opens, serves and closes connections.

use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::task::AbortHandle;

use super::slot::Slot;
use super::state::{Addresses, BalancedHost, Location, Speaks};
use crate::clock::Instant;
use crate::trace::{DialTrace, Limit};

/// Opens connections for a pool.
pub(crate) trait Dial: Send + Sync + Sized + 'static {
    /// The identity of a host: requests with equal keys share connections.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// A connection that is open and not served yet.
    type Opened: Send;
    /// A handle on a connection. Clones share the connection.
    type Conn: Clone + Send + 'static;
    type Error: Clone + Send + 'static;

    /// Opens a connection, to an address by these wishes. `trace` records the phases.
    fn dial(
        &self,
        key: &Self::Key,
        addresses: AddressWish,
        trace: &Arc<DialTrace>,
    ) -> impl Future<Output = Result<Self::Opened, Self::Error>> + Send;

    /// Takes a connection into service.
    ///
    /// The future serves it, in `task`, until its socket is closed or the task is aborted. `slot` must be dropped after the socket
    /// is closed, and not before.
    fn start(
        &self,
        opened: Self::Opened,
        slot: Slot,
        task: AbortHandle,
    ) -> (Started<Self::Conn>, impl Future<Output = ()> + Send + Unpin + use<Self>);

    /// Closes a connection that carries no request.
    fn close(conn: &Self::Conn);

    /// Returns the host and port by which limits are looked up.
    fn address(key: &Self::Key) -> (String, u16);

    /// Returns the protocol of a host, as far as it is known before the first connection.
    fn speaks(&self, key: &Self::Key) -> Speaks;

    /// Returns what is known of a host whose requests are balanced over its addresses; `None` if they are not.
    fn balanced(&self, key: &Self::Key) -> Option<BalancedHost>;

    /// Returns the addresses of an answer that may be dialled.
    fn usable(&self, ips: &Arc<[IpAddr]>) -> Arc<[IpAddr]> {
        ips.clone()
    }

    /// Returns what the process or the system lacks, if a dial failed for that: [`Limit::Descriptors`] (EMFILE, ENFILE) or
    /// [`Limit::Ports`].
    fn lacking(error: &Self::Error) -> Option<Limit>;

    /// Returns the DNS answers for a name at `now`, in as many families as have one. One that has expired is asked for anew.
    fn answers(&self, now: Instant, name: &str) -> SmallVec<[Addresses; 2]>;
}

/// The wishes of a dial about the address it connects to. Other addresses are dialled if those it prefers do not connect.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AddressWish {
    /// The address that is dialled before all others.
    pub(crate) first: Option<SocketAddr>,
    /// The address that is dialled after others, which do well as far as is known.
    pub(crate) avoid: Option<IpAddr>,
}

/// A connection in service.
pub(crate) struct Started<C> {
    pub(crate) conn: C,
    pub(crate) speaks: Speaks,
    pub(crate) location: Option<Location>,
    /// The address that was connected to.
    pub(crate) remote: Option<SocketAddr>,
}
