//! The rules by which a failing address of a balanced host gets no more requests for a while.

use std::time::Duration;

/// The ejection of failing addresses, for hosts whose requests are balanced over their addresses
/// ([`Addresses::Spread`](crate::settings::Addresses::Spread)).
///
/// A failure is a 5xx response, a gRPC response that has the status UNAVAILABLE in its headers, a time limit that passed before
/// the headers of the response, a connection that broke, or a connection that could not be opened. A connection that the server
/// closed while it was idle, and a request that the server did not process, are no failures.
///
/// An address is ejected after [`failures`](Self::failures) in a row, or when
/// [`failure_percent`](Self::failure_percent) of its last requests failed. Either counts only if the address fails at least twice
/// as often as the others: where all fail alike, the fault is not the address's. It then gets no request for
/// [`base_time`](Self::base_time), longer each time it happens again, up to [`max_time`](Self::max_time). After that a single
/// request is let through. If that succeeds, the address is used again, and its share grows over 10 s; if it fails, the
/// address is ejected again.
///
/// ```
/// use std::time::Duration;
/// use speeddial::settings::Addresses;
/// use speeddial::{Client, PoolConfig};
/// use speeddial::pool::Ejection;
///
/// let ejection = Ejection::new().failures(3).base_time(Duration::from_secs(5)).max_percent(30);
/// let pool = PoolConfig::new().ejection(ejection);
/// let client = Client::builder().addresses(Addresses::Spread).pool(pool).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ejection {
    pub(crate) failures: u32,
    pub(crate) failure_percent: u8,
    pub(crate) base_time: Duration,
    pub(crate) max_time: Duration,
    pub(crate) max_percent: u8,
}

impl Default for Ejection {
    fn default() -> Self {
        Self {
            failures: 5,
            failure_percent: 30,
            base_time: Duration::from_secs(10),
            max_time: Duration::from_secs(300),
            max_percent: 50,
        }
    }
}

impl Ejection {
    /// Creates the default rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates rules by which no address is ever ejected.
    pub fn off() -> Self {
        Self { max_percent: 0, ..Self::default() }
    }

    /// Sets the number of failures in a row after which an address is ejected. At least 1. Default: 5.
    pub fn failures(self, failures: u32) -> Self {
        Self { failures, ..self }
    }

    /// Sets the percentage of failed requests at which an address is ejected, of at least ten requests in the last ten seconds or
    /// so. From 1 to 100. Default: 30.
    pub fn failure_percent(self, failure_percent: u8) -> Self {
        Self { failure_percent, ..self }
    }

    /// Sets the time for which an address is ejected the first time. It is that many times as long as the number of ejections in
    /// a row. Not zero. Default: 10 s.
    pub fn base_time(self, base_time: Duration) -> Self {
        Self { base_time, ..self }
    }

    /// Sets the longest time for which an address is ejected. Default: 300 s.
    pub fn max_time(self, max_time: Duration) -> Self {
        Self { max_time, ..self }
    }

    /// Sets the highest percentage of a host's addresses that are ejected at the same time. One of two or more may always be, the
    /// last one never is. With 0, none is. Default: 50.
    pub fn max_percent(self, max_percent: u8) -> Self {
        Self { max_percent, ..self }
    }

    /// Returns what is wrong with the rules.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let is_percentage = |percent: u8, least: u8| (least..=100).contains(&percent);
        if self.failures == 0 {
            Err("failures must be at least 1")
        } else if !is_percentage(self.failure_percent, 1) {
            Err("failure_percent must be from 1 to 100")
        } else if !is_percentage(self.max_percent, 0) {
            Err("max_percent must be from 0 to 100")
        } else if self.base_time.is_zero() {
            Err("base_time must not be 0")
        } else {
            Ok(())
        }
    }
}
