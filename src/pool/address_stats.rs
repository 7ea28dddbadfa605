//! The statistics of the addresses of a balanced host.

use std::net::SocketAddr;
use std::time::Duration;

use super::state::{AddressReport, Standing};

/// The statistics of one address of a host whose requests are balanced over its addresses
/// ([`Addresses::Spread`](crate::settings::Addresses::Spread)).
///
/// They begin anew when the host has neither connections nor waiting requests, or when the address left DNS with its last
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressStats {
    /// The address.
    pub address: SocketAddr,
    /// The use that is made of the address at the moment.
    pub state: AddressState,
    /// Open connections that take requests.
    pub connections: usize,
    /// Requests that have a connection to the address.
    pub in_flight: usize,
    /// The time from a request to the headers of its response: a moving average that rises at once and falls slowly. `None` before
    /// the first response.
    pub latency: Option<Duration>,
    /// Requests that were answered, or failed.
    pub requests: u64,
    /// The requests among them that failed. [`Ejection`](crate::pool::Ejection) says what a failure is.
    pub failed: u64,
}

/// The use that is made of an address of a balanced host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressState {
    /// The address gets its share of the requests.
    InUse,
    /// The address failed and gets no requests for a while.
    Ejected,
    /// A single request finds out if the address is well again.
    Probed,
    /// The address has left the DNS answer of its name, and gets no more requests.
    Left,
}

impl AddressStats {
    pub(super) fn new(report: &AddressReport) -> Self {
        let state = match report.standing {
            _ if !report.is_listed => AddressState::Left,
            Standing::Fine => AddressState::InUse,
            Standing::Ejected { .. } => AddressState::Ejected,
            Standing::Probed => AddressState::Probed,
        };
        Self {
            address: report.socket,
            state,
            connections: report.connections,
            in_flight: report.in_flight,
            latency: report.latency,
            requests: report.answered,
            failed: report.failed,
        }
    }
}
