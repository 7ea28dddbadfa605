//! What a pool tells of itself.

use super::state::{Books, HostBooks, Tally};
use crate::latency::Latency;
use crate::trace::CloseCause;

/// Where a pool's connections and requests are, and what became of them since the client was built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Connections without a request.
    pub idle: usize,
    /// Connections with requests.
    pub in_use: usize,
    /// Connections being opened.
    pub dialling: usize,
    /// Connections given up whose sockets are not closed yet.
    pub closing: usize,
    /// Requests that have a connection; over HTTP/2 many can have the same.
    pub leased: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections opened.
    pub opened: u64,
    /// Connections closed.
    pub closed: u64,
    /// Requests that got a connection which had carried others before.
    pub reused: u64,
    /// How long requests waited for a connection, from those that got one at once on.
    pub queue_time: Latency,
    /// How long requests had their connection.
    pub hold_time: Latency,
    causes: [u64; CloseCause::ALL.len()],
}

impl PoolStats {
    pub(super) fn new(books: &Books) -> Self {
        let Tally { opened, closed: causes, reused, queued, held } = books.tally;
        Self {
            idle: books.idle,
            in_use: books.busy,
            dialling: books.dialling,
            closing: books.closing,
            leased: books.leased,
            waiting: books.waiting,
            opened,
            closed: causes.iter().sum(),
            reused,
            queue_time: queued,
            hold_time: held,
            causes,
        }
    }

    /// How many connections were closed for this reason.
    pub fn closed_by(&self, cause: CloseCause) -> u64 {
        self.causes[cause as usize]
    }
}

/// The same for one host, as long as it has connections or requests that wait.
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
    /// How long requests waited for a connection, from those that got one at once on.
    pub queue_time: Latency,
    /// How long requests had their connection.
    pub hold_time: Latency,
    causes: [u64; CloseCause::ALL.len()],
}

impl HostStats {
    pub(super) fn new(books: &HostBooks) -> Self {
        let HostBooks { dialling, busy, leased, idle, waiting, tally } = *books;
        let Tally { opened, closed: causes, reused, queued, held } = tally;
        let (in_use, closed) = (busy, causes.iter().sum());
        let (queue_time, hold_time) = (queued, held);
        Self { idle, in_use, dialling, leased, waiting, opened, closed, reused, queue_time, hold_time, causes }
    }

    /// How many connections were closed for this reason.
    pub fn closed_by(&self, cause: CloseCause) -> u64 {
        self.causes[cause as usize]
    }
}
