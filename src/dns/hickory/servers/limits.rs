//! The timeouts and numbers of a lookup.

use std::time::Duration;

/// The limits of a lookup.
#[derive(Debug, Clone, Copy)]
pub(in crate::dns::hickory) struct ServerLimits {
    /// The longest time for one try of one server.
    pub(in crate::dns::hickory) try_timeout: Duration,
    /// The number of tries of each server.
    pub(in crate::dns::hickory) tries: usize,
    /// The longest time for all tries together.
    pub(in crate::dns::hickory) total_timeout: Duration,
    /// The most lookups that ask servers at once.
    pub(in crate::dns::hickory) max_in_flight: usize,
}

/// The upper limit of all timeouts, so that they can be added to the current time.
pub(in crate::dns::hickory) const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);
