//! The state of a host's connections when a request waits or a new connection is opened, as far as it explains why.

use super::causes::{CloseCause, Limit};

/// The number of connections, dials or streams that count against a limit, and the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The number that count against the limit. Of a request that waits for no limit, the connections to its host that are being
    /// opened, against the limit of those.
    pub taken: usize,
    /// The limit.
    pub limit: usize,
    /// True if the limit is set for this host ([`PoolConfig::for_host`](crate::PoolConfig::for_host)), and not for all.
    pub is_own: bool,
}

impl Usage {
    pub(crate) fn new(taken: usize, limit: usize) -> Self {
        Self { taken, limit, is_own: false }
    }

    /// Marks the limit as one that is set for the host itself, if it is.
    pub(crate) fn of_host(self, is_own: bool) -> Self {
        Self { is_own, ..self }
    }
}

/// The state of a host's connections when a new one is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostAtDial {
    /// The number of the host's open connections, all of which were in use.
    pub open: usize,
    /// The number of connections to the host that were opened before in the same second.
    pub opened_lately: u32,
    /// The host's connection that ended last, if one has.
    pub last_close: Option<HostClose>,
    /// The limit of the machine that a dial met lately: [`Limit::Descriptors`], for any host, or [`Limit::Ports`], for this one. `None` if
    /// there was none.
    pub lacking: Option<Limit>,
}

/// The end of a host's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostClose {
    /// The reason.
    pub cause: CloseCause,
    /// The number of requests that the connection carried.
    pub requests: u64,
    /// True if the connection was idle, and would have been used again.
    pub was_idle: bool,
}

impl HostAtDial {
    pub(crate) fn new(open: usize, opened_lately: u32, last_close: Option<HostClose>) -> Self {
        Self { open, opened_lately, last_close, lacking: None }
    }
}

impl HostClose {
    pub(crate) fn new(cause: CloseCause, requests: u64, was_idle: bool) -> Self {
        Self { cause, requests, was_idle }
    }
}
