//! The origins that calls were made to, each with its calls behind a lock of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};

use super::origin_calls::OriginCalls;
use crate::clock::Instant;
use crate::origin::{Host, Origin};
use crate::trace::event::RequestInfo;
use crate::trace::timings::Timings;

/// The longest host of an origin that is kept, in bytes. A name has at most 253 (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// The origins, up to a limit.
pub(super) struct Origins {
    /// The time of day at which the recorder was made.
    pub(super) since: SystemTime,
    /// The most calls in each list.
    pub(super) most_calls: usize,
    pub(super) most_origins: usize,
    entries: RwLock<HashMap<Origin, Mutex<OriginCalls>, RandomState>>,
    /// The number of origins that made room for others.
    evicted: AtomicU64,
}

impl Origins {
    pub(super) fn new(since: SystemTime, most_calls: usize, most_origins: usize) -> Self {
        Self { since, most_calls, most_origins, entries: RwLock::default(), evicted: AtomicU64::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.read().len()
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
    pub(super) fn record(&self, request: &Arc<RequestInfo>, timings: &Timings) {
        if self.record_known(request, timings) || !is_kept(&request.origin) {
            return;
        }
        self.add(&request.origin, timings.last);
        // If other origins have taken its place already, the call is lost: there are more of them than are kept.
        self.record_known(request, timings);
    }

    /// Records a call to an origin that is known. Returns false if it is not.
    fn record_known(&self, request: &Arc<RequestInfo>, timings: &Timings) -> bool {
        let entries = self.entries.read();
        let Some(calls) = entries.get(&request.origin) else { return false };
        calls.lock().record(request, timings, self.most_calls);
        true
    }

    /// Adds an origin. If there are too many, the least recently used one makes room.
    fn add(&self, origin: &Origin, used: Instant) {
        let mut evicted = None;
        let mut entries = self.entries.write();
        if entries.len() >= self.most_origins && !entries.contains_key(origin) {
            let oldest = entries.iter().min_by_key(|(_, calls)| calls.lock().used);
            let oldest = oldest.map(|(origin, _)| origin.clone());
            evicted = oldest.and_then(|oldest| entries.remove(&oldest));
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        let calls = || Mutex::new(OriginCalls::first_used(used));
        entries.entry(origin.clone()).or_insert_with(calls);
        drop(entries);
        // Its calls are freed after the lock.
        drop(evicted);
    }

    /// Returns the result of `take` for each origin, of which it locks one at a time.
    pub(super) fn map<T>(&self, take: impl Fn(&Origin, &OriginCalls) -> T) -> Vec<T> {
        self.entries.read().iter().map(|(origin, calls)| take(origin, &calls.lock())).collect()
    }
}

fn is_kept(origin: &Origin) -> bool {
    match origin.host() {
        Host::Ip(_) => true,
        Host::Name(name) => name.len() <= MAX_HOST,
    }
}
