//! A subscription to what changes in a cache.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::dns::Family;

/// How many changes wait for a subscriber that is slow; then the oldest are lost to it.
pub(super) const MOST_WAITING: usize = 1_024;

/// An answer whose set of addresses is not the one that was known, or the first one known of its name.
///
/// The order of addresses does not matter. An answer with a TTL of zero is not kept, so the next one is a first one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The name, in lower case.
    pub name: Arc<str>,
    /// The family of the addresses.
    pub family: Family,
    /// What the name has now; nothing where it has no addresses any more.
    pub addresses: Arc<[IpAddr]>,
    /// How long this may be used.
    pub ttl: Duration,
    /// Its number among the cache's changes, counted from 1. Two that come at once may be told in the other order: the one
    /// with the higher number is the newer one.
    pub serial: u64,
}

/// The changes in a cache since the subscription, roughly in the order in which their answers came.
#[derive(Debug)]
pub struct Changes {
    pub(super) receiver: broadcast::Receiver<Change>,
}

/// Why there is no next change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangesError {
    /// The subscriber was slow, and so many changes were dropped; the next ones are there.
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
    /// [`ChangesError::Missed`] where more than 1,024 changes waited to be taken, [`ChangesError::Closed`] at the end.
    pub async fn next(&mut self) -> Result<Change, ChangesError> {
        self.receiver.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(missed) => ChangesError::Missed(missed),
            broadcast::error::RecvError::Closed => ChangesError::Closed,
        })
    }
}
