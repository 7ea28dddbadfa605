//! Figures about connections and requests, from which the pool's statistics are made. A core.

use crate::latency::Latency;
use crate::trace::CloseCause;

/// The number of connections and requests in each state, over all hosts.
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

/// The number of connections and requests in each state, of one host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HostCounters {
    /// Dials in flight.
    pub(crate) dialling: usize,
    /// Connections with requests.
    pub(crate) busy: usize,
    /// Requests that have a connection.
    pub(crate) leased: usize,
    /// Connections without a request.
    pub(crate) idle: usize,
    /// Requests in the queue.
    pub(crate) waiting: usize,
    pub(crate) totals: Totals,
}

/// Events since the pool, or the record of the host, was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Connections opened.
    pub(crate) opened: u64,
    /// Connections closed, by [`CloseCause`].
    pub(crate) closed: [u64; CloseCause::ALL.len()],
    /// Requests that got a connection which had carried others before.
    pub(crate) reused: u64,
    /// The time requests waited for a connection; zero for those that got one at once.
    pub(crate) queued: Latency,
    /// The time requests held their connection.
    pub(crate) held: Latency,
}
