//! The flight recorder: an observer that keeps a few of the calls to each origin, to be looked at afterwards.
//!
//! A file calls files further down in this list, and none further up:
//!
//! | files | what they hold |
//! |---|---|
//! | `mod.rs` | [`Recorder`]: an observer, and its settings |
//! | `page/`, `document.rs` | a snapshot as a page, and as JSON |
//! | `snapshot.rs` | what was recorded, as plain data |
//! | `table.rs` | tables of other state that a snapshot can have |
//! | `origins.rs` | the origins, each behind a lock of its own |
//! | `origin_calls.rs` | the calls to one origin |
//! | `totals.rs`, `latency_class.rs` | the figures of all calls; ranges of durations |

mod document;
mod latency_class;
mod origin_calls;
mod origins;
mod page;
mod snapshot;
mod table;
#[cfg(test)]
mod tests;
mod totals;

use std::fmt;
use std::sync::Arc;

use self::origins::Origins;
use crate::clock::{now, wall};
use crate::trace::{EndedCall, Observer, Wants};

pub use latency_class::LatencyClass;
pub use snapshot::{OriginSnapshot, RecordedCall, Snapshot};
pub use table::StateTable;
pub use totals::CallTotals;

/// An observer that keeps, for each origin, the last calls, the slowest ones of each [`LatencyClass`] and the last ones that
/// failed, in bounded memory. Its clones share what is recorded.
///
/// A failure is a call that ended with an error or was cancelled, or whose response has status 5xx. How many calls and origins are
/// kept is set by the [builder](Self::builder). Targets are cut to 512 bytes, certificates and the values of
/// [`extension`](crate::RequestBuilder::extension) are not kept, and of each call at most the last 8 lookups, each with 16
/// addresses, the last 8 dialled addresses and hedges, and 8 earlier requests, into which further ones are
/// [joined](crate::trace::Hop::joined). Calls whose host has more than 255 bytes are not recorded.
///
/// Recording costs a call on an idle connection about 1,900 instructions, of which 1,200 are those of any observer that is told of
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
/// use speeddial::inspect::Recorder;
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
    origins: Arc<Origins>,
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
        snapshot::take(&self.origins, now(), wall(), self.shows_queries)
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
    /// [hides queries](crate::ClientBuilder::hide_queries) passes none to its observers in any case.
    pub fn show_queries(mut self, show: bool) -> Self {
        self.shows_queries = show;
        self
    }

    /// Creates the recorder.
    pub fn build(self) -> Recorder {
        let origins = Arc::new(Origins::new(wall(), self.calls, self.origins));
        Recorder { origins, shows_queries: self.shows_queries }
    }
}
