//! The origins that calls were made to, each with its calls behind a lock of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::world::RandomState;
use parking_lot::{Mutex, RwLock};

use super::origin_calls::KeptCall;
use super::origin_calls::OriginCalls;
use crate::origin::{Host, Origin};
use crate::trace::LastHandshake;
use crate::trace::RequestInfo;
use crate::trace::Timings;

/// The longest host of an origin that is kept, in bytes. A name has at most 253 (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// The origins, up to a limit.
pub(super) struct Origins {
    /// The time of day at which the recorder was made.
    pub(super) since: SystemTime,
    /// The most calls in each list.
    pub(super) most_calls: usize,
    pub(super) most_origins: usize,
    entries: RwLock<OriginList>,
    /// The number of uses of origins so far, by which they are ordered.
    uses: AtomicU64,
    /// The number of origins that made room for others.
    evicted: AtomicU64,
}

/// An origin's calls. No lock of these is taken while another one is held, and none of the list of origins.
#[derive(Default)]
struct OriginEntry {
    /// The number of the latest use.
    used: AtomicU64,
    handshake: Mutex<LastHandshake>,
    calls: Mutex<OriginCalls>,
}

/// The origins and the order in which they were used.
#[derive(Default)]
struct OriginList {
    by_origin: HashMap<Origin, Arc<OriginEntry>, RandomState>,
    /// Each origin once, by the number of one of its uses, perhaps not of the latest one.
    by_use: BTreeMap<u64, Origin>,
}

impl OriginList {
    fn add(&mut self, origin: &Origin, used: u64) {
        let entry = OriginEntry { used: AtomicU64::new(used), ..OriginEntry::default() };
        self.by_origin.insert(origin.clone(), Arc::new(entry));
        self.by_use.insert(used, origin.clone());
    }

    /// Removes the origin that was used least recently.
    ///
    /// An origin that was used since it got its place gets a new one. It pays for this with that use, so that a long list costs a
    /// call to a new origin no more than a short one.
    fn remove_least_used(&mut self) -> Option<Arc<OriginEntry>> {
        loop {
            let (place, origin) = self.by_use.pop_first()?;
            let used = self.by_origin.get(&origin)?.used.load(Ordering::Relaxed);
            if used == place {
                return self.by_origin.remove(&origin);
            }
            self.by_use.insert(used, origin);
        }
    }
}

impl Origins {
    pub(super) fn new(since: SystemTime, most_calls: usize, most_origins: usize) -> Self {
        let (uses, evicted) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { since, most_calls, most_origins, entries: RwLock::default(), uses, evicted }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.read().by_origin.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(super) fn clear(&self) {
        // Dropped after the lock.
        let entries = std::mem::take(&mut *self.entries.write());
        drop(entries);
    }

    /// Records a call that is over.
    pub(super) fn record(&self, request: &Arc<RequestInfo>, timings: &Arc<Timings>) {
        let Some(entry) = self.entry(&request.origin) else { return };
        let without_chain = |facts: &_| entry.handshake.lock().without_chain(facts);
        let call = KeptCall::new(request, timings, without_chain);
        let evicted = entry.calls.lock().record(call, self.most_calls);
        // They are freed after the lock.
        drop(evicted);
    }

    /// Returns the entry of an origin that is used now; `None` if the origin is not kept.
    fn entry(&self, origin: &Origin) -> Option<Arc<OriginEntry>> {
        let used = self.uses.fetch_add(1, Ordering::Relaxed);
        let known = self.entries.read().by_origin.get(origin).cloned();
        if let Some(entry) = known {
            // Two calls at once may leave the number of the first one, which is as good.
            entry.used.store(used, Ordering::Relaxed);
            return Some(entry);
        }
        is_kept(origin).then(|| self.add(origin, used))
    }

    /// Adds an origin. If there are too many, the least recently used one makes room.
    fn add(&self, origin: &Origin, used: u64) -> Arc<OriginEntry> {
        let mut evicted = None;
        let mut entries = self.entries.write();
        if !entries.by_origin.contains_key(origin) {
            if entries.by_origin.len() >= self.most_origins {
                evicted = entries.remove_least_used();
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            entries.add(origin, used);
        }
        let entry = entries.by_origin[origin].clone();
        drop(entries);
        // Its calls are freed after the lock.
        drop(evicted);
        entry
    }

    /// Returns the result of `take` for each origin, of which it locks one at a time.
    pub(super) fn map<T>(&self, take: impl Fn(&Origin, &OriginCalls) -> T) -> Vec<T> {
        // A lock of the list would make all calls wait, once one to a new origin waits for it.
        let entries: Vec<_> = {
            let entries = self.entries.read();
            entries.by_origin.iter().map(|(origin, entry)| (origin.clone(), entry.clone())).collect()
        };
        entries.iter().map(|(origin, entry)| take(origin, &entry.calls.lock())).collect()
    }
}

fn is_kept(origin: &Origin) -> bool {
    match origin.host() {
        Host::Ip(_) => true,
        Host::Name(name) => name.len() <= MAX_HOST,
    }
}

#[cfg(test)]
mod tests {
    use http::{Extensions, Method, Uri};

    use super::*;
    use crate::trace::timings::samples::cold_call;

    fn request(host: &str) -> Arc<RequestInfo> {
        let url = url::Url::parse(&format!("http://{host}.test/")).unwrap();
        let origin = Origin::from_url(&url).unwrap();
        let (method, target) = (Method::GET, Uri::from_static("/"));
        Arc::new(RequestInfo { method, origin, target, extensions: Extensions::new() })
    }

    fn hosts(origins: &Origins) -> Vec<String> {
        let mut hosts = origins.map(|origin, _| origin.host().to_string());
        hosts.sort();
        hosts
    }

    #[test]
    fn many_new_origins_do_not_push_out_one_that_is_used() {
        let origins = Origins::new(SystemTime::UNIX_EPOCH, 1, 3);
        for number in 0..100 {
            origins.record(&request("often"), &Arc::new(cold_call()));
            origins.record(&request(&format!("new-{number}")), &Arc::new(cold_call()));
        }
        assert_eq!(hosts(&origins), ["new-98.test", "new-99.test", "often.test"]);
        assert_eq!((origins.len(), origins.evicted()), (3, 98));
        let entries = origins.entries.read();
        assert_eq!((entries.by_use.len(), entries.by_origin.len()), (3, 3));
    }

    #[test]
    fn a_snapshot_stops_no_call_to_another_origin() {
        let origins = Arc::new(Origins::new(SystemTime::UNIX_EPOCH, 1, 2));
        origins.record(&request("slow"), &Arc::new(cold_call()));
        let (done, is_done) = std::sync::mpsc::channel();
        let other = origins.clone();
        std::thread::spawn(move || {
            // Each is new, so that it has to enter the list.
            other.map(|_, _| ["a", "b", "c"].map(|name| other.record(&request(name), &Arc::new(cold_call()))));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("the calls waited for the snapshot");
        assert_eq!(hosts(&origins), ["b.test", "c.test"]);
    }
}
