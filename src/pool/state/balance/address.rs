//! An address of a balanced host: its connections, requests, latency and failures. A core.

use std::net::SocketAddr;
use std::time::Duration;

use super::outliers::{OutlierRecord, Standing};
use super::peak_latency::{PeakLatency, TypicalLatency};
use crate::clock::Instant;
use crate::pool::state::values::conn::FreeConns;

/// The pause after a connection to an address could not be opened. It doubles with each further failure.
const FIRST_DIAL_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_DIAL_PAUSE: Duration = Duration::from_secs(30);
/// An address of a balanced host.
#[derive(Debug)]
pub(in crate::pool::state) struct Address {
    pub(in crate::pool::state) socket: SocketAddr,
    /// True if the address is in the last answer.
    pub(in crate::pool::state) is_listed: bool,
    pub(in crate::pool::state) is_in_use: bool,
    /// The open connections that take requests.
    pub(in crate::pool::state) conns: usize,
    /// Those among them that have a free stream.
    pub(in crate::pool::state) free: FreeConns,
    /// Dials in flight that try this address first.
    pub(in crate::pool::state) dials: usize,
    /// Those among them that are not relied on any more.
    pub(in crate::pool::state) slow_dials: usize,
    /// Requests that have a connection.
    pub(in crate::pool::state) in_flight: usize,
    pub(in crate::pool::state) latency: PeakLatency,
    pub(in crate::pool::state) record: OutlierRecord,
    /// The number of the last lease.
    pub(in crate::pool::state) last_turn: u64,
    failed_dials: u32,
    /// The end of the pause after a dial that failed.
    no_dial_until: Option<Instant>,
    /// The end of the pause that the server asked for.
    pub(in crate::pool::state) paused_until: Option<Instant>,
    /// The number of requests that were counted, and of the failed ones among them.
    pub(in crate::pool::state) answered: u64,
    pub(in crate::pool::state) failed: u64,
}

/// The result of a request, as far as it says something about its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The headers of a response came.
    Answered,
    /// The request failed, or its response says that the server did.
    Failed,
    /// The request was cancelled before its response came.
    Cancelled,
}

/// The figures of an address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AddressReport {
    pub(crate) socket: SocketAddr,
    pub(crate) is_listed: bool,
    pub(crate) standing: Standing,
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
    pub(crate) latency: Option<Duration>,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
}

impl Address {
    pub(in crate::pool::state) fn new(socket: SocketAddr, is_listed: bool) -> Self {
        Self {
            socket,
            is_listed,
            is_in_use: false,
            conns: 0,
            free: FreeConns::default(),
            dials: 0,
            slow_dials: 0,
            in_flight: 0,
            latency: PeakLatency::default(),
            record: OutlierRecord::default(),
            last_turn: 0,
            failed_dials: 0,
            no_dial_until: None,
            paused_until: None,
            answered: 0,
            failed: 0,
        }
    }

    /// Returns true if the address has left DNS, and nothing leads there.
    pub(in crate::pool::state) fn is_forgettable(&self) -> bool {
        !self.is_listed && self.conns == 0 && self.dials == 0 && self.in_flight == 0
    }

    /// Returns true if a connection may be opened: there are fewer than `most_conns`, and none has failed a moment ago.
    pub(in crate::pool::state) fn may_dial(&self, now: Instant, most_conns: usize) -> bool {
        let is_left_alone = self.no_dial_until.is_some_and(|until| now < until) || self.is_paused(now);
        !is_left_alone && self.conns + self.young_dials() < most_conns
    }

    pub(in crate::pool::state) fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns the number of dials that are relied on.
    pub(in crate::pool::state) fn young_dials(&self) -> usize {
        self.dials - self.slow_dials
    }

    /// Notes that the address could not be connected to.
    pub(in crate::pool::state) fn dial_failed(&mut self, now: Instant) {
        let pause = FIRST_DIAL_PAUSE.saturating_mul(1 << self.failed_dials.min(10)).min(LONGEST_DIAL_PAUSE);
        self.failed_dials = self.failed_dials.saturating_add(1);
        self.no_dial_until = Some(now + pause);
    }

    /// Adds an open connection.
    pub(in crate::pool::state) fn opened(&mut self) {
        self.conns += 1;
        self.failed_dials = 0;
        self.no_dial_until = None;
    }

    /// Returns the figures of the address.
    pub(in crate::pool::state) fn report(&self, now: Instant, typical: &TypicalLatency) -> AddressReport {
        AddressReport {
            socket: self.socket,
            is_listed: self.is_listed,
            standing: self.record.standing,
            connections: self.conns,
            in_flight: self.in_flight,
            latency: self.latency.latency(now, typical),
            answered: self.answered,
            failed: self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_connected_to_is_left_alone_for_longer_each_time() {
        let now = crate::clock::now();
        let mut address = Address::new(([192, 0, 2, 1], 80).into(), true);
        for secs in [1, 2, 4, 8, 16, 30, 30] {
            address.dial_failed(now);
            let pause = Duration::from_secs(secs);
            assert!(!address.may_dial(now + pause - Duration::from_nanos(1), 1) && address.may_dial(now + pause, 1));
        }
        address.opened();
        assert_eq!([1, 2].map(|most| address.may_dial(now, most)), [false, true]);
    }

    #[test]
    fn an_address_is_forgotten_only_if_it_left_dns_and_nothing_leads_there() {
        let gone = || Address::new(([192, 0, 2, 1], 80).into(), false);
        assert!(gone().is_forgettable());
        let kept = [
            Address { is_listed: true, ..gone() },
            Address { conns: 1, ..gone() },
            Address { dials: 1, ..gone() },
            Address { in_flight: 1, ..gone() },
        ];
        assert!(kept.iter().all(|address| !address.is_forgettable()));
    }

    #[test]
    fn dials_in_flight_count_as_connections() {
        let now = crate::clock::now();
        let address = Address { conns: 1, dials: 1, ..Address::new(([192, 0, 2, 1], 80).into(), true) };
        assert_eq!([2, 3].map(|most| address.may_dial(now, most)), [false, true]);
        let slow = Address { dials: 2, slow_dials: 1, ..address };
        assert_eq!([2, 3].map(|most| slow.may_dial(now, most)), [false, true], "those that are slow do not count");
    }
}
