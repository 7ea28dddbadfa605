//! What a cache knew, to be known again by the next process.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// The addresses a cache knew at one moment, with the absolute times at which they expire.
///
/// With the feature `serde` it can be written down and read again, in any of serde's formats.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// When it was made, in milliseconds of Unix time.
    pub(super) taken: u64,
    /// From the least to the most recently used.
    pub(super) records: Vec<Remembered>,
}

/// A name's addresses in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Remembered {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    /// In milliseconds of Unix time.
    pub(super) expires: u64,
}

impl Snapshot {
    /// How many sets of addresses are in it, at most two for a name.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Remembered {
    /// How long it is good for yet, or how long ago it expired. A clock that was set back makes nothing live longer.
    pub(super) fn left(&self, taken: u64, wall: SystemTime) -> Result<Duration, Duration> {
        let wall = unix_ms(wall).max(taken);
        match self.expires.checked_sub(wall) {
            Some(left) if left > 0 => Ok(Duration::from_millis(left)),
            _ => Err(Duration::from_millis(wall - self.expires)),
        }
    }
}

/// Rounded down, so that nothing expires late.
pub(super) fn unix_ms(wall: SystemTime) -> u64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
