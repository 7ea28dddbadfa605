//! The contents of a snapshot, and the part of it that is still of use when it is restored. A core: it is given both clocks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::entries::Entries;
use crate::clock::Instant;
use crate::dns::answer::Place;
use crate::dns::cache::state::values::Config;
use crate::dns::{Answer, Family, Source};

/// Returns all addresses, fresh and stale, with their expiry by the system's clock, of which `wall` is the time now.
pub(super) fn take(entries: &Entries, now: Instant, wall: SystemTime) -> Snapshot {
    let mut records = Vec::new();
    for id in entries.ids_by_use() {
        for family in [Family::V4, Family::V6] {
            let state = entries.state(id, family);
            // The form of a snapshot has no room for ports, without which the addresses would lead elsewhere.
            let Some(addresses) = state.addresses().filter(|_| state.sockets().is_none()) else { continue };
            let left = state.expires() - now;
            let past = now - state.expires();
            records.push(SnapshotRecord {
                name: (**entries.name(id)).into(),
                addresses: addresses.to_vec(),
                expires: unix_ms(wall + left - past),
                place: state.place().server,
            });
        }
    }
    records.reverse();
    Snapshot { taken: unix_ms(wall), records }
}

/// The most addresses of a record: as many as a client dials.
const MAX_ADDRESSES: usize = 4_096;

/// The addresses of a snapshot for one name and family, with their expiry by the cache's clock.
pub(super) struct Restorable {
    pub(super) name: String,
    pub(super) family: Family,
    pub(super) answer: Answer,
    pub(super) expires: Instant,
}

/// Returns a record's addresses, unless they are too old even to be served stale. The record may come from anywhere, so
/// addresses of a second family are left out, and the ceiling applies to what is left of the TTL.
pub(super) fn restorable(
    record: &SnapshotRecord,
    taken: u64,
    now: Instant,
    wall: SystemTime,
    config: &Config,
) -> Option<Restorable> {
    let family = Family::of(*record.addresses.first()?);
    let expires = match record.time_left(taken, wall) {
        Ok(left) => now + left.min(config.ttl_ceiling),
        Err(past) if past < config.max_stale => now - past,
        Err(_) => return None,
    };
    let of_family = record.addresses.iter().copied().filter(|ip| Family::of(*ip) == family);
    let addresses: Arc<[IpAddr]> = of_family.take(MAX_ADDRESSES).collect();
    // The search list of this process may be another one.
    let place = Place { server: record.place, candidate: u8::MAX };
    let answer = Answer::new(addresses, Duration::ZERO, Source::Stale).with_place(place);
    Some(Restorable { name: record.name.to_ascii_lowercase(), family, answer, expires })
}

/// The addresses in a cache at one moment, with the times at which they expire.
///
/// With the feature `serde`, it can be serialized and deserialized.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The moment, in milliseconds of Unix time.
    pub(in crate::dns::cache) taken: u64,
    /// From the least to the most recently used name.
    pub(in crate::dns::cache) records: Vec<SnapshotRecord>,
}

/// A name's addresses in one family.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(in crate::dns::cache) struct SnapshotRecord {
    pub(in crate::dns::cache) name: String,
    pub(in crate::dns::cache) addresses: Vec<IpAddr>,
    /// The expiry, in milliseconds of Unix time.
    pub(in crate::dns::cache) expires: u64,
    /// The place of the server that gave the addresses.
    #[cfg_attr(feature = "serde", serde(default))]
    pub(in crate::dns::cache) place: u8,
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
    pub(in crate::dns::cache) fn time_left(&self, taken: u64, wall: SystemTime) -> Result<Duration, Duration> {
        let wall = unix_ms(wall).max(taken);
        match self.expires.checked_sub(wall) {
            Some(left) if left > 0 => Ok(Duration::from_millis(left)),
            _ => Err(Duration::from_millis(wall - self.expires)),
        }
    }
}

/// Converts a time to milliseconds of Unix time, rounded down so that no address expires late.
pub(in crate::dns::cache) fn unix_ms(wall: SystemTime) -> u64 {
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
