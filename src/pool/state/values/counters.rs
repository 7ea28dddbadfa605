//! Figures about connections and requests, from which the pool's statistics are made. A core.

use crate::latency::Latency;
use crate::trace::{CloseCause, Limit};

/// The number of connections and requests in each state, over all hosts or of one. Those that only the pool needs are 0 for a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Slots taken: connections from the start of their dial until their socket is closed.
    pub(crate) slots: usize,
    /// Dials in flight.
    pub(crate) dialling: usize,
    /// Connections with requests.
    pub(crate) busy: usize,
    /// Requests that have a connection.
    pub(crate) leased: usize,
    /// Connections without a request.
    pub(crate) idle: usize,
    /// Busy connections that close after their requests.
    pub(crate) retiring: usize,
    /// Retiring connections whose slot is meant for another host.
    pub(crate) yielding: usize,
    /// Connections that are being closed: their sockets are still open.
    pub(crate) closing: usize,
    /// Requests in the queues.
    pub(crate) waiting: usize,
    /// Requests in the queues for which no dial is in flight.
    pub(crate) undialled: usize,
    pub(crate) totals: Totals,
}

/// Events since the pool, or the record of the host, was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Connections opened.
    pub(crate) opened: u64,
    /// Connections opened before a request needed them.
    pub(crate) opened_ahead: u64,
    /// Connections closed, by [`CloseCause`].
    pub(crate) closed: [u64; CloseCause::ALL.len()],
    /// Requests that got a connection which had carried others before.
    pub(crate) reused: u64,
    /// The time for which the requests that got a connection waited for it; zero for those that got one at once.
    pub(crate) waited: Latency,
    /// The time requests held their connection.
    pub(crate) held: Latency,
    pub(crate) queue: QueueStats,
    /// Requests that entered the queue, by the limit that kept them waiting then.
    pub(crate) queued: [u64; Limit::ALL.len()],
    /// The most requests that had a connection at the same time.
    pub(crate) most_leased: usize,
    /// Connections that the server closed while they were idle, or under the first request after that.
    pub(crate) closed_idle_by_peer: u64,
}

/// The requests that entered the queue and left it, as totals.
///
/// Each request that entered the queue has left it in one of four ways, or still waits: `entered` = `served` + `failed` +
/// `timed_out` + `cancelled` + [`waiting`](crate::pool::PoolStats::waiting). A request that is sent again counts again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Requests that entered the queue, because no connection was free for them.
    pub entered: u64,
    /// Requests that got a connection after a wait.
    pub served: u64,
    /// Requests that left the queue because the connection being opened for them failed.
    pub failed: u64,
    /// Requests that left the queue because a time limit passed: the pool's
    /// [`wait_timeout`](crate::PoolConfig::wait_timeout), or the request's own `queue_timeout`, `connect_timeout` or `timeout`.
    pub timed_out: u64,
    /// Requests that left the queue because the call was cancelled: its future was dropped.
    pub cancelled: u64,
    /// Requests that did not enter the queue because it was full ([`max_waiting`](crate::PoolConfig::max_waiting),
    /// [`max_waiting_per_host`](crate::PoolConfig::max_waiting_per_host)). Calls that a [drain](crate::Client::drain) turns away
    /// are not counted.
    pub refused: u64,
}

impl QueueStats {
    /// Returns what came after an earlier state.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// Adds the figures of another queue.
    pub(crate) fn add(&mut self, other: &Self) {
        *self = self.with(other, |one, other| one + other);
    }

    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            entered: of(self.entered, other.entered),
            served: of(self.served, other.served),
            failed: of(self.failed, other.failed),
            timed_out: of(self.timed_out, other.timed_out),
            cancelled: of(self.cancelled, other.cancelled),
            refused: of(self.refused, other.refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: QueueStats =
        QueueStats { entered: 21, served: 1, failed: 2, timed_out: 3, cancelled: 4, refused: 5 };
    const LATER: QueueStats =
        QueueStats { entered: 90, served: 11, failed: 13, timed_out: 15, cancelled: 17, refused: 19 };

    #[test]
    fn the_figures_of_queues_are_added_and_subtracted_one_by_one() {
        let since = QueueStats { entered: 69, served: 10, failed: 11, timed_out: 12, cancelled: 13, refused: 14 };
        assert_eq!(LATER.since(&EARLIER), since);
        let mut sum = EARLIER;
        sum.add(&LATER);
        let both = QueueStats { entered: 111, served: 12, failed: 15, timed_out: 18, cancelled: 21, refused: 24 };
        assert_eq!(sum, both);
    }
}
