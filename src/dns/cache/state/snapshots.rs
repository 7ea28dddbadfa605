//! The contents of a snapshot, and the part of it that is still of use when it is restored. A core: it is given both clocks.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::config::Config;
use super::entries::Entries;
use crate::clock::Instant;
use crate::dns::answer::Place;
use crate::dns::cache::snapshot::{Snapshot, SnapshotRecord, unix_ms};
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
