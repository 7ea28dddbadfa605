//! The flight recorder: an observer that keeps a few of the calls to each origin, to be looked at afterwards.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, RwLock};
use speeddial::origin::{Host, Origin};
use speeddial::trace::{EndedCall, Observer, RequestInfo, Timings, Wants};

use crate::calls::{KeptCall, OriginCalls};
use crate::snapshot::{self, Snapshot};

/// An observer that keeps, for each origin, the last calls, the slowest ones of each [`LatencyClass`](crate::LatencyClass) and the last ones that
/// failed, in bounded memory. Its clones share what is recorded.
///
/// A failure is a call that ended with an error or was cancelled, or whose response has status 5xx. How many calls and origins are
/// kept is set by the [builder](Self::builder). Targets are cut to 512 bytes, certificates and the values of
/// [`extension`](speeddial::RequestBuilder::extension) are not kept, and of each call at most the last 8 lookups, each with 16
/// addresses, the last 8 dialled addresses and hedges, and 8 earlier requests, into which further ones are
/// [joined](speeddial::trace::Hop::joined). Calls whose host has more than 255 bytes are not recorded.
///
/// Recording costs a call on an idle connection about 2,100 instructions, of which 1,300 are those of any observer that is told of
/// ended calls. That is a third of a microsecond: 2 % of the shortest GET, over loopback to a server in the same thread.
///
/// # Memory
/// An origin has at most eleven lists: of its last calls, of its last failures, and of the slowest calls of each class. With the
/// default of 10 calls and 64 origins these are 7,040 calls. A usual one takes about 1 kB, so that all take 8 MB. At worst a call takes
/// about 25 kB, and all take 180 MB: with a `Server-Timing` header of 4 KiB, which servers choose, and the most lookups, of 16 addresses
/// each. Errors of lookups and dialled addresses are kept as they are, and are not in these figures. The memory grows with
/// [`calls`](RecorderBuilder::calls) times [`origins`](RecorderBuilder::origins).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use speeddial_inspect::Recorder;
///
/// let recorder = Recorder::new();
/// let client = speeddial::Client::builder().observer(recorder.clone()).build()?;
/// let failed = client.get("http://127.0.0.1:1/v1/items").send().await;
/// assert!(failed.is_err());
///
/// let snapshot = recorder.snapshot().with_client(&client);
/// assert_eq!(snapshot.origins[0].totals.failed, 1);
/// assert_eq!(snapshot.origins[0].calls[0].target, "/v1/items");
/// let page = snapshot.to_html(); // for a browser
/// assert!(page.contains("127.0.0.1:1"));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Recorder {
    pub(crate) origins: Arc<Origins>,
    shows_queries: bool,
}

impl Recorder {
    /// Creates a recorder with the defaults.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts the settings of a recorder.
    pub fn builder() -> RecorderBuilder {
        RecorderBuilder::default()
    }

    /// Returns what is recorded, as plain data. [`Snapshot::with_client`] adds the state of a client's pool and DNS cache.
    pub fn snapshot(&self) -> Snapshot {
        let now = tokio::time::Instant::now().into_std();
        snapshot::take(&self.origins, now, SystemTime::now(), self.shows_queries)
    }

    /// Forgets everything that is recorded.
    pub fn clear(&self) {
        self.origins.clear();
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Recorder {
    fn wants(&self) -> Wants {
        Wants::ENDS
    }

    fn ended(&self, call: &EndedCall<'_>) {
        self.origins.record(call.request, call.timings);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("origins", &self.origins.len()).finish()
    }
}

/// Configures a [`Recorder`].
#[derive(Debug, Clone)]
pub struct RecorderBuilder {
    calls: usize,
    origins: usize,
    shows_queries: bool,
}

/// The upper limit of calls in one list, and of origins.
const MAX: usize = 10_000;

impl Default for RecorderBuilder {
    fn default() -> Self {
        Self { calls: 10, origins: 64, shows_queries: false }
    }
}

impl RecorderBuilder {
    /// Sets how many calls are kept in each list of an origin: of its last calls, of its last failures, and of the slowest ones
    /// in each of the nine latency classes. 10 by default; from 1 to 10,000.
    pub fn calls(mut self, calls: usize) -> Self {
        self.calls = calls.clamp(1, MAX);
        self
    }

    /// Sets how many origins are kept. Beyond that, the least recently used one is forgotten. 64 by default; from 1 to 10,000.
    pub fn origins(mut self, origins: usize) -> Self {
        self.origins = origins.clamp(1, MAX);
        self
    }

    /// Sets whether snapshots show the query of a target, which may hold secrets. They do not by default. A client that
    /// [hides queries](speeddial::ClientBuilder::hide_queries) passes none to its observers in any case.
    pub fn show_queries(mut self, show: bool) -> Self {
        self.shows_queries = show;
        self
    }

    /// Creates the recorder.
    pub fn build(self) -> Recorder {
        let origins = Arc::new(Origins::new(SystemTime::now(), self.calls, self.origins));
        Recorder { origins, shows_queries: self.shows_queries }
    }
}

/// The longest host of an origin that is kept, in bytes. A name has at most 253 (RFC 1035 §2.3.4).
const MAX_HOST: usize = 255;

/// The origins, up to a limit.
pub(crate) struct Origins {
    /// The time of day at which the recorder was made.
    pub(crate) since: SystemTime,
    /// The most calls in each list.
    pub(crate) most_calls: usize,
    pub(crate) most_origins: usize,
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
    pub(crate) fn new(since: SystemTime, most_calls: usize, most_origins: usize) -> Self {
        let (uses, evicted) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { since, most_calls, most_origins, entries: RwLock::default(), uses, evicted }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.read().by_origin.len()
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        // Dropped after the lock.
        let entries = std::mem::take(&mut *self.entries.write());
        drop(entries);
    }

    /// Records a call that is over.
    pub(crate) fn record(&self, request: &Arc<RequestInfo>, timings: &Arc<Timings>) {
        let Some(entry) = self.entry(&request.origin) else { return };
        let call = KeptCall::new(request, timings);
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
    pub(crate) fn map<T>(&self, take: impl Fn(&Origin, &OriginCalls) -> T) -> Vec<T> {
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
        Host::Name(name) => name.len() <= MAX_HOST,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::warm_call;

    fn request(host: &str) -> Arc<RequestInfo> {
        crate::samples::request(&format!("http://{host}.test/"))
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
            origins.record(&request("often"), &Arc::new(warm_call(1)));
            origins.record(&request(&format!("new-{number}")), &Arc::new(warm_call(1)));
        }
        assert_eq!(hosts(&origins), ["new-98.test", "new-99.test", "often.test"]);
        assert_eq!((origins.len(), origins.evicted()), (3, 98));
        let entries = origins.entries.read();
        assert_eq!((entries.by_use.len(), entries.by_origin.len()), (3, 3));
    }

    #[test]
    fn a_snapshot_stops_no_call_to_another_origin() {
        let origins = Arc::new(Origins::new(SystemTime::UNIX_EPOCH, 1, 2));
        origins.record(&request("slow"), &Arc::new(warm_call(1)));
        let (done, is_done) = std::sync::mpsc::channel();
        let other = origins.clone();
        std::thread::spawn(move || {
            // Each is new, so that it has to enter the list.
            other.map(|_, _| ["a", "b", "c"].map(|name| other.record(&request(name), &Arc::new(warm_call(1)))));
            done.send(()).unwrap();
        });
        is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("the calls waited for the snapshot");
        assert_eq!(hosts(&origins), ["b.test", "c.test"]);
    }
}
