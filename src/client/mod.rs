//! The client: requests in, responses out.

mod body;
mod builder;
mod call;
mod deadlines;
mod dns_watch;
mod keep_alive;
#[cfg(feature = "tower")]
mod layers;
mod redirect_policy;
mod request;
mod response;
mod retry_policy;
mod safe_to_resend;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, Method, Uri};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use url::Url;

pub use body::Body;
#[cfg(feature = "__compression")]
pub use body::Decompression;
pub use builder::ClientBuilder;
#[cfg(feature = "tower")]
pub use layers::ClientService;
pub use redirect_policy::{Redirect, RedirectAction, RedirectPolicy};
pub use request::{IntoUrl, Request, RequestBuilder};
pub use response::Response;
pub use retry_policy::RetryPolicy;

use self::body::Outgoing;
use self::deadlines::Deadlines;
use self::dns_watch::Follower;
use self::request::Timeouts;
use self::retry_policy::Budget;
use crate::clock::{self, Instant};
use crate::connect::{Capacity, Conn, ConnectError, Connector, Opened, Protocol};
use crate::dns::{CacheStats, CachedResolver};
use crate::error::Error;
use crate::origin::Origin;
use crate::pool::{Addresses, Dial, HostStats, Location, Place, Pool, PoolStats, Speaks, Started};
use crate::trace::{DialTrace, Family, Hooks};

/// An HTTP client: a DNS cache, a pool of connections, and timings for every request. Clones share all of it.
///
/// It works on any tokio runtime whose timers and I/O are enabled, and on several at once. A connection is served by the
/// runtime it was opened on: a client should not be shared between runtimes of which one is kept without being driven.
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
    /// The same within its layers, where it has some.
    #[cfg(feature = "tower")]
    layered: Option<ClientService>,
}

struct Shared {
    pool: Pool<Dialer>,
    resolver: CachedResolver,
    hooks: Hooks,
    calls: Calls,
    deadlines: Deadlines,
    follower: Follower,
}

/// What holds for every call that does not say otherwise.
struct Calls {
    base: Option<Url>,
    timeouts: Timeouts,
    headers: HeaderMap,
    redirects: RedirectPolicy,
    retry: Option<Retrying>,
    /// Queries are shown to nobody.
    discreet: bool,
    #[cfg(feature = "__compression")]
    decompression: Decompression,
}

impl Calls {
    /// What a request asks for, as others may see it.
    fn shown(&self, target: Uri) -> Uri {
        if !self.discreet || target.query().is_none() {
            return target;
        }
        target.path().parse().unwrap_or_default()
    }
}

/// When calls are made again, and how often they still may be.
struct Retrying {
    policy: RetryPolicy,
    budget: Mutex<Budget>,
}

impl Retrying {
    fn new(policy: RetryPolicy) -> Self {
        let budget = Mutex::new(Budget::new(&policy, clock::now()));
        Self { policy, budget }
    }

    /// A call begins.
    fn deposit(&self, now: Instant) {
        self.lock().deposit(&self.policy, now);
    }

    /// Whether there may be a retry now.
    fn withdraw(&self, now: Instant) -> bool {
        self.lock().withdraw(&self.policy, now)
    }

    // Nobody leaves it half changed.
    fn lock(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    /// Begins a request. What is wrong with the URL is told when it is sent. One that is parsed already is not parsed again; a
    /// relative one is taken from the client's [base](ClientBuilder::base_url).
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        RequestBuilder::new(self.clone(), method, url)
    }

    /// Sends a request that was built before, and waits for the head of the response.
    ///
    /// A request that found its connection closed is sent again where that is safe: the peer did nothing about it (none of it
    /// was sent, its stream was refused or left out by a GOAWAY, or a 408 came into a kept connection; six attempts at most,
    /// and two where new connections close at once), or it is idempotent and the connection was a kept one that closed
    /// without a byte of a response (RFC 9110 §9.2.2; sent three times at most). The first of these resends goes out at once,
    /// each later one after a pause that doubles. A body that is a stream is sent once.
    /// Dropping the future gives the call up and loses nothing else.
    ///
    /// # Errors
    /// [`Error`], whose [`kind`](Error::kind) says what the call was doing. A response with an error status is none.
    pub fn execute(&self, request: Request) -> impl Future<Output = Result<Response, Error>> + Send {
        self.run(Box::new(request))
    }

    async fn run(&self, request: Box<Request>) -> Result<Response, Error> {
        #[cfg(feature = "tower")]
        if let Some(service) = &self.layered {
            return service.clone().execute(&self.shared, request).await;
        }
        call::run(&self.shared, request).await
    }

    /// Where the pool's connections and requests are.
    pub fn pool_stats(&self) -> PoolStats {
        self.shared.pool.stats()
    }

    /// The same for each host by itself, as long as it has connections or requests that wait.
    pub fn host_stats(&self) -> Vec<(Origin, HostStats)> {
        self.shared.pool.host_stats()
    }

    /// Opens connections to the origin of `url` until there are `count` of them, busy ones among them, as far as the limits
    /// allow. How many there are then, which is fewer where a limit binds or where they close or fail under requests that took
    /// them meanwhile; one HTTP/2 connection carries many requests.
    ///
    /// # Errors
    /// What kept a connection from being opened that no request waited for. Those that were opened stay.
    pub async fn warm_up(&self, url: impl IntoUrl, count: usize) -> Result<usize, Error> {
        let url = url.into_url(self.shared.calls.base.as_ref())?;
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        if Handle::try_current().is_err() {
            return Err(Error::no_runtime(&origin));
        }
        self.shared.follower.follow(&self.shared.resolver, &self.shared.pool);
        let warm = self.shared.pool.warm_up(&origin, count).await;
        warm.map_err(|error| Error::no_lease(&origin, error))
    }

    /// Closes all idle connections. Those in use go on.
    pub fn close_idle(&self) {
        self.shared.pool.close_idle();
    }

    /// Refuses new calls from now on, lets those under way end, also those that wait for their next attempt, closes each connection
    /// when it is not needed any more, and waits until all sockets are closed: for a graceful shutdown. Dropping the future stops the wait alone.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let client = speeddial::Client::new();
    /// client.drain().await;
    /// let error = client.get("http://127.0.0.1:1/").send().await.unwrap_err();
    /// assert!(error.to_string().ends_with("the pool is being drained"));
    /// # }
    /// ```
    pub async fn drain(&self) {
        self.shared.pool.drain().await;
    }

    /// The client as somebody has it who does not keep it.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.shared))
    }

    /// What the DNS cache holds and has done.
    pub fn dns_stats(&self) -> CacheStats {
        self.shared.resolver.stats()
    }
}

/// A client that somebody else keeps.
#[cfg(feature = "opentelemetry")]
pub(crate) struct WeakClient(std::sync::Weak<Shared>);

#[cfg(feature = "opentelemetry")]
impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<Client> {
        let shared = self.0.upgrade()?;
        Some(Client {
            shared,
            #[cfg(feature = "tower")]
            layered: None,
        })
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
    type Opened = Opened<Outgoing>;
    type Conn = Conn<Outgoing>;
    type Error = ConnectError;

    async fn dial(&self, origin: &Origin, trace: &Arc<DialTrace>) -> Result<Opened<Outgoing>, ConnectError> {
        self.0.open(origin, trace).await
    }

    fn start(
        &self,
        opened: Opened<Outgoing>,
        place: Place<Self>,
        task: AbortHandle,
    ) -> (Started<Conn<Outgoing>>, impl Future<Output = ()> + Send + Unpin + use<>) {
        let location = opened.name().zip(opened.remote());
        let location = location.map(|(name, remote)| Location { name, ip: remote.ip() });
        let (number, told) = (place.connection(), place.teller());
        let (conn, serving) = opened.start(number, place, task, move |capacity| match capacity {
            Capacity::Seats(seats) => told.seats(seats),
            Capacity::NoMore => told.no_more(),
            Capacity::Calm => told.calm(),
            Capacity::Abandoned => told.abandoned(),
        });
        let speaks = speaks(Some(conn.protocol()));
        (Started { conn, speaks, location }, serving)
    }

    fn close(conn: &Conn<Outgoing>) {
        conn.close();
    }

    fn address(origin: &Origin) -> (String, u16) {
        // The dot at the end of a full name is DNS's own.
        (origin.host().to_string().trim_end_matches('.').to_owned(), origin.port())
    }

    fn speaks(&self, origin: &Origin) -> Speaks {
        speaks(self.0.speaks(origin))
    }

    fn is_exhausted(error: &ConnectError) -> bool {
        error.is_exhausted()
    }

    fn answers(&self, name: &str) -> Vec<Addresses> {
        let known = |family| self.0.resolver.known(name, family);
        let answers =
            Family::BOTH.map(|family| known(family).map(|(ips, ttl)| Addresses { family, ips, ttl, serial: None }));
        answers.into_iter().flatten().collect()
    }
}

fn speaks(protocol: Option<Protocol>) -> Speaks {
    match protocol {
        Some(Protocol::Http1) => Speaks::One,
        Some(Protocol::Http2) => Speaks::Many,
        None => Speaks::Unknown,
    }
}
