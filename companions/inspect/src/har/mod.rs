//! Requests as a HAR 1.2 document (<http://www.softwareishard.com/blog/har-12-spec/>), which the network panels of browsers and
//! other tools open: `document.rs` has its text, `entry.rs` a request, `kept.rs` the calls that are kept.

mod cookies;
mod document;
mod entry;
mod kept;

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use speeddial::http::Method;
use speeddial::redact::{Query, Shown};
use speeddial::trace::{EndedCall, EndedRequest, Observer, StartedRequest, Timings, Wants};
use speeddial::url::Url;

pub use self::entry::HarEntry;
use self::kept::{Choice, KeptCalls};

/// A HAR 1.2 document of calls (<http://www.softwareishard.com/blog/har-12-spec/>), which the network panels of browsers open.
///
/// As an [`Observer`] of a client it collects the client's calls, either the last or the slowest ones. Each of a call's requests is an
/// entry, also those that were redirected, sent again or hedged. The entries of a call have one page. Clones share the document.
/// Each client needs a document of its own, because calls are told apart by their numbers. Of a collected call at most 100 requests
/// are kept. Targets are cut to 8 KiB, certificates are not kept, and of the history in `_why` at most the last 8 lookups, dialled
/// addresses and earlier requests.
///
/// Secrets are removed when the document is written, unless [`show_secrets`](Self::show_secrets) or
/// [`show_queries`](Self::show_queries) is set: the values of headers such as `Authorization` and `Cookie`, of those that are marked as
/// sensitive, of cookies, and of queries. Users and passwords in URLs are always removed. Paths are not changed. An observer is not told the headers of
/// requests, so these entries have none; [`HarEntry`] can be given them.
///
/// | field of an entry | holds |
/// |---|---|
/// | `timings` | `blocked`: the queue. `connect` includes `ssl`, and the time of a proxy, which `_proxy` has alone. -1 for a phase that did not happen |
/// | `_backoff` | the wait before the request, which is no part of its time |
/// | `_queued` | the reason for a wait in the queue |
/// | `_dns` | `source`, `ttl` in seconds and `addresses` of the lookup |
/// | `connection` | the port of the peer, as browsers write it |
/// | `_connectionId` | the number of the connection ([`Timings::connection`]) |
/// | `_reused`, `_remote`, `_tls` | facts about the connection |
/// | `_server_timing` | the server's own account ([`Timings::server_timing`]) |
/// | `_end` | the end of the request: `answered`, `redirected`, `repeated (…)`, `superseded` or `failed` |
/// | `_failure` | the kind of the failure, in a word |
/// | `_hedged` | the result of a second attempt |
/// | `_why` | the reasons why the call took its time ([`Timings::why`]), in the entry of its last request: `text` and `reasons`, each with `cause`, `phase`, `time`, `share` of the call's time from 0 to 1, `text` and perhaps `advice` |
/// | `_earlier` | the call's requests before this one, if they have no entries |
/// | `_resourceType`, `_transferSize`, `_error` | type, received bytes and failure for Chromium's network panel |
///
/// Times in fields of their own are milliseconds too. Lengths count bytes as they were received, before any decoding.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let har = speeddial_inspect::Har::slowest(50);
/// let client = speeddial::Client::builder().observer(har.clone()).build()?;
/// client.get("http://127.0.0.1:8080/").send().await?.bytes().await?;
/// har.write_to(std::fs::File::create("slowest.har")?)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Har {
    kept: Arc<Mutex<KeptCalls>>,
    shown: Shown,
}

impl Har {
    /// Creates a document that keeps the `calls` calls that ended last.
    pub fn last(calls: usize) -> Self {
        Self::new(Choice::Last, calls)
    }

    /// Creates a document that keeps the `calls` calls that took longest.
    pub fn slowest(calls: usize) -> Self {
        Self::new(Choice::Slowest, calls)
    }

    fn new(choice: Choice, calls: usize) -> Self {
        let kept = Arc::new(Mutex::new(KeptCalls::new(choice, calls)));
        Self { kept, shown: Shown::default() }
    }

    /// Creates a document of one call, with the method and the URL of its last request ([`Response::url`](speeddial::Response::url)).
    ///
    /// [`HarEntry`] adds headers, and a document can hold many calls.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let response = speeddial::Client::new().get("http://127.0.0.1:8080/").send().await?;
    /// let (url, handle) = (response.url().clone(), response.timings_handle());
    /// response.bytes().await?;
    /// let har = speeddial_inspect::Har::of(&speeddial::Method::GET, &url, &handle.timings());
    /// std::fs::write("call.har", har.to_json())?;
    /// # Ok(()) }
    /// ```
    pub fn of(method: &Method, url: &Url, timings: &Timings) -> Self {
        let har = Self::last(1);
        har.add(HarEntry::new(method, url, timings));
        har
    }

    /// Sets whether the values of headers with secrets are shown. They are not by default.
    pub fn show_secrets(mut self, show: bool) -> Self {
        self.shown.headers = show;
        self
    }

    /// Sets whether the values in queries, which may be secrets, are shown. They are not by default.
    pub fn show_queries(mut self, show: bool) -> Self {
        self.shown.query = if show { Query::Whole } else { Query::Names };
        self
    }

    /// Adds a call, as an entry with a page of its own.
    pub fn add(&self, entry: HarEntry) {
        let evicted = self.lock().add(entry);
        drop(evicted); // after the lock
    }

    /// Returns the number of requests in the document.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns true if the document has no requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the document as JSON.
    pub fn to_json(&self) -> String {
        let calls = self.lock().calls();
        document::document(&calls, self.shown)
    }

    /// Writes the document as JSON, in UTF-8.
    ///
    /// # Errors
    /// `out` fails.
    pub fn write_to(&self, mut out: impl io::Write) -> io::Result<()> {
        out.write_all(self.to_json().as_bytes())?;
        out.flush()
    }

    fn lock(&self) -> MutexGuard<'_, KeptCalls> {
        self.kept.lock()
    }
}

impl Observer for Har {
    fn wants(&self) -> Wants {
        Wants::REQUESTS.union(Wants::ENDS)
    }

    fn request_started(&self, request: &StartedRequest<'_>) {
        self.lock().begin_request(request.call);
    }

    fn request_ended(&self, request: &EndedRequest<'_>) {
        let entry = HarEntry::of_request(request);
        self.lock().end_request(request.request.call, entry);
    }

    fn ended(&self, call: &EndedCall<'_>) {
        let of_call = || HarEntry::of_call(call.request, call.timings);
        let evicted = self.lock().end_call(call.number, call.timings.total(), of_call);
        drop(evicted); // after the lock
    }
}

impl fmt::Debug for Har {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Har").field("requests", &self.len()).field("shown", &self.shown).finish()
    }
}
