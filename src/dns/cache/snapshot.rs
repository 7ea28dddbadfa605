//! The addresses in a cache, for another process.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// The addresses in a cache at one moment, with the times at which they expire.
///
/// With the feature `serde`, it can be serialized and deserialized.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The moment, in milliseconds of Unix time.
    pub(super) taken: u64,
    /// From the least to the most recently used name.
    pub(super) records: Vec<SnapshotRecord>,
}

/// A name's addresses in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct SnapshotRecord {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    /// The expiry, in milliseconds of Unix time.
    pub(super) expires: u64,
    /// The place of the server that gave the addresses.
    #[cfg_attr(feature = "serde", serde(default))]
    pub(super) place: u8,
}

impl Snapshot {
    /// Returns the number of answers, at most two for each name: one per address family.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns each answer with its name, its addresses and the time of day at which it expires, from the least to the most
    /// recently used name.
    pub fn answers(&self) -> impl DoubleEndedIterator<Item = (&str, &[IpAddr], SystemTime)> {
        self.records.iter().map(|record| {
            let expires = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(record.expires));
            (record.name.as_str(), &record.addresses[..], expires.unwrap_or(SystemTime::UNIX_EPOCH))
        })
    }

    /// Returns true if the snapshot has no addresses.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl SnapshotRecord {
    /// Returns the time that is left until the expiry, or as an error the time since then. A system clock that was set back
    /// since the snapshot was `taken` does not make addresses live longer.
    pub(super) fn time_left(&self, taken: u64, wall: SystemTime) -> Result<Duration, Duration> {
        let wall = unix_ms(wall).max(taken);
        match self.expires.checked_sub(wall) {
            Some(left) if left > 0 => Ok(Duration::from_millis(left)),
            _ => Err(Duration::from_millis(wall - self.expires)),
        }
    }
}

/// Converts a time to milliseconds of Unix time, rounded down so that no address expires late.
pub(super) fn unix_ms(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: u64 = 1_000_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn record(expires: u64) -> SnapshotRecord {
        SnapshotRecord { name: "n".into(), addresses: vec![[192, 0, 2, 1].into()], expires, place: 0 }
    }

    #[test]
    fn a_snapshot_without_records_is_empty() {
        assert!(Snapshot::default().is_empty());
        assert!(!Snapshot { taken: TAKEN, records: vec![record(TAKEN)] }.is_empty());
    }

    #[test]
    fn from_the_expiry_on_no_time_is_left() {
        let left = |wall| record(TAKEN + 10).time_left(TAKEN, SystemTime::UNIX_EPOCH + ms(wall));
        assert_eq!(left(TAKEN + 9), Ok(ms(1)));
        assert_eq!(left(TAKEN + 10), Err(ms(0)));
        assert_eq!(left(TAKEN + 11), Err(ms(1)));
        assert_eq!(left(TAKEN - 1), Ok(ms(10)), "the clock was set back");
    }
}
