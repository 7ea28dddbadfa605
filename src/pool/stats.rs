//! The statistics of a pool and of each host.

use super::state::{Counters, HostCounters, QueueStats, Totals};
use crate::latency::Latency;
use crate::trace::CloseCause;

/// The statistics of a client's pool: connections and requests in each state at the moment, and totals since the client was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Connections without a request.
    pub idle: usize,
    /// Connections with requests.
    pub in_use: usize,
    /// Connections being opened.
    pub dialling: usize,
    /// Connections that are being closed: they carry no request, and their sockets are still open.
    pub closing: usize,
    /// Requests that have a connection. Over HTTP/2 many requests can have the same one.
    pub leased: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened.
    pub opened: u64,
    /// Connections closed.
    pub closed: u64,
    /// Requests that got a connection which had carried others before.
    pub reused: u64,
    /// The requests that entered the queue and left it.
    pub queue: QueueStats,
    /// The time for which the requests that got a connection waited for it, zero for those that got one at once. Waits that ended
    /// without a connection are not among them: [`queue`](Self::queue) counts those.
    pub queue_time: Latency,
    /// The time for which requests held their connection.
    pub hold_time: Latency,
    /// Connections closed, by [`CloseCause`].
    causes: [u64; CloseCause::ALL.len()],
}

impl PoolStats {
    pub(super) fn new(counters: &Counters) -> Self {
        let Totals { opened, closed, reused, waited, held, queue } = counters.totals;
        Self {
            idle: counters.idle,
            in_use: counters.busy,
            dialling: counters.dialling,
            closing: counters.closing,
            leased: counters.leased,
            waiting: counters.waiting,
            opened,
            closed: closed.iter().sum(),
            reused,
            queue,
            queue_time: waited,
            hold_time: held,
            causes: closed,
        }
    }

    /// Returns the number of connections that were closed for this reason.
    pub fn closed_by(&self, cause: CloseCause) -> u64 {
        self.causes[cause as usize]
    }
}

/// The statistics of one host's connections and requests.
///
/// A host is forgotten when it has neither connections nor waiting requests; its totals begin anew after that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostStats {
    /// Connections without a request.
    pub idle: usize,
    /// Connections with requests.
    pub in_use: usize,
    /// Connections being opened.
    pub dialling: usize,
    /// Requests that have a connection.
    pub leased: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened.
    pub opened: u64,
    /// Connections closed.
    pub closed: u64,
    /// Requests that got a connection which had carried others before.
    pub reused: u64,
    /// The requests that entered the queue and left it.
    pub queue: QueueStats,
    /// The time for which the requests that got a connection waited for it, zero for those that got one at once. Waits that ended
    /// without a connection are not among them: [`queue`](Self::queue) counts those.
    pub queue_time: Latency,
    /// The time for which requests held their connection.
    pub hold_time: Latency,
    /// Connections closed, by [`CloseCause`].
    causes: [u64; CloseCause::ALL.len()],
}

impl HostStats {
    /// Adds the figures of another host, for example of the same origin behind a proxy.
    pub(crate) fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.idle, other.idle),
            (&mut self.in_use, other.in_use),
            (&mut self.dialling, other.dialling),
            (&mut self.leased, other.leased),
            (&mut self.waiting, other.waiting),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum += more);
        self.opened += other.opened;
        self.closed += other.closed;
        self.reused += other.reused;
        self.queue.add(&other.queue);
        self.queue_time.merge(&other.queue_time);
        self.hold_time.merge(&other.hold_time);
        self.causes.iter_mut().zip(other.causes).for_each(|(sum, more)| *sum += more);
    }

    pub(super) fn new(counters: &HostCounters) -> Self {
        let Totals { opened, closed, reused, waited, held, queue } = counters.totals;
        Self {
            idle: counters.idle,
            in_use: counters.busy,
            dialling: counters.dialling,
            leased: counters.leased,
            waiting: counters.waiting,
            opened,
            closed: closed.iter().sum(),
            reused,
            queue,
            queue_time: waited,
            hold_time: held,
            causes: closed,
        }
    }

    /// Returns the number of connections that were closed for this reason.
    pub fn closed_by(&self, cause: CloseCause) -> u64 {
        self.causes[cause as usize]
    }
}
