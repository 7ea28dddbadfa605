//! The client: requests in, responses out.

mod body;
mod builder;
mod call;
mod request;
mod response;
mod retry;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;

pub use body::Body;
pub use builder::ClientBuilder;
pub use request::{IntoUrl, RequestBuilder};
pub use response::Response;

use crate::connect::{Conn, ConnectError, Connector, Opened};
use crate::dns::{CacheStats, CachedResolver};
use crate::origin::Origin;
use crate::pool::{Dial, Place, Pool, PoolStats};
use crate::trace::{DialTrace, Hooks};

/// An HTTP client: a DNS cache, a pool of connections, and timings for every request. Clones share all of it.
///
/// It works on any tokio runtime, and on several at once. A connection is served by the runtime it was opened on: a
/// client should not be shared between runtimes of which one is kept without being driven.
///
/// ```no_run
/// # async fn run() -> speeddial::Result<()> {
/// let client = speeddial::Client::new();
/// let response = client.get("http://api.example.com/v1/items").send().await?.error_for_status()?;
/// println!("{:#}", response.timings());
/// println!("{}", response.text().await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool<Dialer>,
    resolver: CachedResolver,
    hooks: Hooks,
    timeout: Option<Duration>,
}

impl Client {
    /// A client with the defaults, which resolves names as the system's configuration says.
    pub fn new() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }

    /// Begins to set a client up.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Begins a GET request.
    pub fn get(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Begins a POST request.
    pub fn post(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Begins a PUT request.
    pub fn put(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Begins a PATCH request.
    pub fn patch(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Begins a DELETE request.
    pub fn delete(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Begins a HEAD request.
    pub fn head(&self, url: impl IntoUrl) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Begins a request. What is wrong with the URL is told when it is sent.
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        RequestBuilder::new(self.clone(), method, url)
    }

    /// Where the pool's connections and requests are.
    pub fn pool_stats(&self) -> PoolStats {
        self.shared.pool.stats()
    }

    /// What the DNS cache holds and has done.
    pub fn dns_stats(&self) -> CacheStats {
        self.shared.resolver.stats()
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("pool", &self.pool_stats()).field("dns", &self.dns_stats()).finish()
    }
}

/// Opens the pool's connections.
pub(crate) struct Dialer(Connector);

impl Dial for Dialer {
    type Key = Origin;
    type Opened = Opened<Body>;
    type Conn = Conn<Body>;
    type Error = ConnectError;

    async fn dial(&self, origin: &Origin, trace: &Arc<DialTrace>) -> Result<Opened<Body>, ConnectError> {
        self.0.open(origin, trace).await
    }

    fn start(&self, opened: Opened<Body>, place: Place<Self>) -> Conn<Body> {
        opened.start(place.connection(), place)
    }
}
