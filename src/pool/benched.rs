//! The pool without sockets, for the benchmarks.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::task::AbortHandle;

use super::{
    AddressWish, Addresses, BalancedHost, Checkout, Dial, Lease, Pool, PoolConfig, Slot, Speaks, Started, WaitLimits,
    Wish,
};
use crate::clock::Instant;
use crate::origin::Origin;
use crate::trace::{DialTrace, Hooks, Limit};

/// A pool whose connections have no socket.
#[derive(Clone)]
pub struct BenchedPool(Pool<Nothing>);

/// Opens connections without a socket.
struct Nothing;

impl Dial for Nothing {
    type Key = Origin;
    type Opened = ();
    type Conn = Arc<Slot>;
    type Error = ();

    async fn dial(&self, _: &Self::Key, _: AddressWish, _: &Arc<DialTrace>) -> Result<(), ()> {
        Ok(())
    }

    fn start(
        &self,
        (): (),
        slot: Slot,
        _: AbortHandle,
    ) -> (Started<Self::Conn>, impl Future<Output = ()> + Send + Unpin + use<>) {
        let started = Started { conn: Arc::new(slot), speaks: Speaks::Http1, location: None, remote: None };
        (started, std::future::ready(()))
    }

    fn close(_: &Self::Conn) {}

    fn address(key: &Self::Key) -> (String, u16) {
        (key.host().to_string(), key.port())
    }

    fn speaks(&self, _: &Self::Key) -> Speaks {
        Speaks::Http1
    }

    fn balanced(&self, _: &Self::Key) -> Option<BalancedHost> {
        None
    }

    fn lacking((): &()) -> Option<Limit> {
        None
    }

    fn answers(&self, _: Instant, _: &str) -> SmallVec<[Addresses; 2]> {
        SmallVec::new()
    }
}

/// A lease.
pub struct BenchedLease(Lease<Nothing>);

impl BenchedLease {
    /// Gives the connection back, as at the end of a response, which has read the time.
    pub fn give_back(self, now: std::time::Instant) {
        let mut lease = self.0;
        lease.give_back_in_place(Instant::from_std(now), None);
    }
}

fn limits() -> WaitLimits {
    WaitLimits { connect: Duration::from_secs(600), ends_dials: true, queue: None }
}

impl BenchedPool {
    /// A pool without limits but the one on a host's connections.
    pub fn new(per_host: usize) -> Self {
        let config = PoolConfig::new().max_connections(1_000_000).max_idle(1_000_000).max_waiting(1_000_000);
        let config = config.max_connections_per_host(per_host).wait_timeout(Duration::from_secs(600));
        Self(Pool::new(config, Nothing, Hooks::default()))
    }

    /// Leases an idle connection, of which there must be one, as at the start of a call.
    pub fn take(&self, origin: &Origin, now: std::time::Instant) -> BenchedLease {
        match self.0.checkout(origin, &Wish::default(), Instant::from_std(now), limits) {
            Checkout::Ready(lease) => BenchedLease(lease),
            _ => unreachable!("there is an idle connection"),
        }
    }

    /// Leases a connection, or waits for one.
    pub async fn wait(&self, origin: &Origin) -> BenchedLease {
        match self.0.checkout(origin, &Wish::default(), crate::clock::now(), limits) {
            Checkout::Ready(lease) => BenchedLease(lease),
            Checkout::Wait(waiter, _) => match waiter.await.lease {
                Ok(lease) => BenchedLease(lease),
                Err(_) => unreachable!("a dial does not fail"),
            },
            Checkout::Refused(_) => unreachable!("the queue has no limit"),
        }
    }
}
