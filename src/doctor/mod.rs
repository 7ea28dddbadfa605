//! Reports of how a client reaches an origin, step by step, with what is wrong and advice.
//!
//! [`Client::doctor`] takes the way of a request apart: it reads the configuration of DNS anew, asks each DNS server by itself,
//! connects to each address by itself, shakes hands with each by itself, and sends a few requests. The [`Report`] has the result
//! and the time of each step, and ends with its [findings](Report::findings).
//!
//! ```no_run
//! # async fn run() -> speeddial::Result<()> {
//! let client = speeddial::Client::new();
//! let report = client.doctor("https://api.example.com/").await?;
//! println!("{report}");
//! for finding in report.findings() {
//!     println!("{:?}: {} {}", finding.problem(), finding.text(), finding.advice());
//! }
//! # Ok(()) }
//! ```
//!
//! A report has no credentials in it. Its requests carry none of the client's default headers, cookies and tokens. A proxy gets
//! what the client sends to it otherwise, its credentials too, and a server the client's certificate if it asks for one.

// A file calls files further down in this list: `table.rs` (a report as text), `findings/` (what is wrong, by the facts of a
// report), `requests.rs`, `dials.rs`, `handshakes.rs`, `names.rs` (the steps), `report.rs`,
// `finding.rs` (also the files that names come from, and the time limits of steps), `failure.rs` (the data).

mod dials;
mod failure;
mod finding;
mod findings;
#[cfg(feature = "__tls")]
mod handshakes;
mod names;
mod report;
mod requests;
mod table;

use std::sync::Arc;

use tokio::runtime::Handle;

pub use crate::doctor::finding::{FileKind, FileRead};
use failure::Via;
pub use failure::{Failure, FailureKind};
pub use finding::{Finding, Problem};
pub use report::{
    AddressReport, ClockReport, DnsReply, LookupAnswer, LookupReport, NameReport, QuestionReport, Report,
    RequestReport, ResolverKind, ResponseReport, RouteReport,
};
#[cfg(feature = "__tls")]
pub use report::{TlsReport, TlsSession};

use crate::client::{Client, IntoUrl};
use crate::clock::{now, wall};
use crate::connect::{Connector, ProbeTarget, ProbedRoute};
use crate::error::{Error, Result};
use crate::origin::{Origin, Scheme};

impl Client {
    /// Examines how this client reaches the origin of `url`, step by step. Only the origin of the URL matters; the requests of
    /// the last step are HEAD requests for `/`.
    ///
    /// The steps use the client's settings, but not its pool, and only the requests use its DNS cache. Each step takes at most 5 s, or
    /// the client's connect timeout if that is shorter, and each of at most three requests takes at most 10 s. The steps for the
    /// servers of DNS run at the same time, and so do those for the addresses. So a report takes at most about 55 s, and far less
    /// than a second where nothing is wrong.
    ///
    /// An origin that cannot be reached is not an error: the report says why.
    ///
    /// ```
    /// use speeddial::doctor::Problem;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> speeddial::Result<()> {
    /// let client = speeddial::Client::builder().no_proxy().build()?;
    /// let report = client.doctor("http://127.0.0.1:1/").await?;
    /// assert_eq!(report.findings()[0].problem(), Problem::AddressRefuses);
    /// assert_eq!(report.findings()[0].text(), "127.0.0.1:1 refuses connections: the port is closed.");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) if `url` has no origin that a request could be sent to, or outside of a
    /// tokio runtime.
    pub async fn doctor(&self, url: impl IntoUrl) -> Result<Report> {
        let (origin, connector, https_only) = self.way_to(url)?;
        if Handle::try_current().is_err() {
            return Err(Error::no_runtime());
        }
        Ok(examine(&connector, origin, https_only).await)
    }
}

async fn examine(connector: &Arc<Connector>, origin: Origin, https_only: bool) -> Report {
    let (at, start) = (wall(), now());
    let mut way = Way::of(connector, &origin);
    way.route.https_only = https_only && origin.scheme() == Scheme::Http;
    let (names, addresses) = match way.target(&origin) {
        Some(target) => reach(connector, target).await,
        None => (None, Vec::new()),
    };
    let has_socket = way.route.unix_socket.is_some();
    let is_reachable = !way.route.https_only && (has_socket || addresses.iter().any(AddressReport::is_usable));
    let mut requests = match is_reachable {
        true => requests::send_some(connector, &origin, way.via()).await,
        false => requests::RequestsSeen::default(),
    };
    if connector.wants_http2_alone() && is_unasked(&origin, &addresses) {
        requests.blame_http2();
    }
    let mut report = Report {
        #[cfg(feature = "__tls")]
        tunnelled_tls: requests.tls.filter(|_| way.via() != Via::Addresses),
        origin,
        at,
        elapsed: now() - start,
        route: way.route,
        names,
        addresses,
        requests: requests.reports,
        clock: requests.clock,
        findings: Vec::new(),
    };
    report.findings = findings::of(&report);
    report
}

/// Returns true if no server has agreed to HTTP/2: without TLS, or if one chose no protocol.
fn is_unasked(origin: &Origin, addresses: &[AddressReport]) -> bool {
    #[cfg(feature = "__tls")]
    if addresses.iter().any(has_no_alpn) {
        return true;
    }
    let _ = addresses;
    origin.scheme() == Scheme::Http
}

/// Returns true for an origin's address whose server chose no protocol by ALPN.
#[cfg(feature = "__tls")]
fn has_no_alpn(address: &AddressReport) -> bool {
    let session = address.tls.as_ref().and_then(|tls| tls.session.as_ref().ok());
    !address.is_proxy && session.is_some_and(|session| session.alpn.is_none())
}

/// The way to an origin, and the proxy on it.
struct Way {
    route: RouteReport,
    proxy: Option<Origin>,
}

impl Way {
    fn of(connector: &Connector, origin: &Origin) -> Self {
        let ProbedRoute { proxy, reason } = connector.probe_route(origin);
        let unix_socket = connector.unix_path();
        let (proxy, error) = match proxy {
            // The client does not ask a proxy beside a Unix domain socket.
            _ if unix_socket.is_some() => (None, None),
            Ok(proxy) => (proxy, None),
            Err(error) => (None, Some(error)),
        };
        let (url, proxy) = proxy.unzip();
        Self { route: RouteReport { proxy: url, reason, error, unix_socket, https_only: false }, proxy }
    }

    /// Returns the host that the client connects to; `None` for a Unix domain socket, if the proxy cannot be used, and where the client
    /// lets no request go.
    fn target<'a>(&'a self, origin: &'a Origin) -> Option<ProbeTarget<'a>> {
        if self.route.https_only || self.route.unix_socket.is_some() || self.route.error.is_some() {
            return None;
        }
        Some(match &self.proxy {
            Some(proxy) => ProbeTarget { origin: proxy, is_proxy: true },
            None => ProbeTarget { origin, is_proxy: false },
        })
    }

    fn via(&self) -> Via {
        match (&self.route.unix_socket, &self.proxy) {
            (Some(_), _) => Via::UnixSocket,
            (None, Some(_)) => Via::Proxy,
            (None, None) => Via::Addresses,
        }
    }
}

/// Looks up the host of `target`, and connects to each of its addresses.
async fn reach(connector: &Connector, target: ProbeTarget<'_>) -> (Option<NameReport>, Vec<AddressReport>) {
    let limit = finding::step_limit(connector.probed_timeout());
    let names = names::look_up(connector, target, limit).await;
    let addresses = dials::dial_all(connector, target, names.as_ref(), limit).await;
    (names, addresses)
}
