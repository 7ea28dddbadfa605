//! The subscription to changes of DNS answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::dns::{Family, Sockets};

/// The most changes that wait for a slow subscriber. Beyond that, the oldest ones are dropped.
pub(super) const MAX_WAITING_CHANGES: usize = 1_024;

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
    pub(super) receiver: broadcast::Receiver<Change>,
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
