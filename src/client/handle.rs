//! The client itself: a cheap handle on what all calls share.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::Method;
use tokio::runtime::Handle;

use super::inner::Inner;
use super::pool_side::dialer::PoolKey;
use super::request::Request;
use super::request::into_url::IntoUrl;
use super::response::Response;
use super::response::call_data::BoxedRequest;
use super::{call, layers};
use crate::clock::now;
#[cfg(feature = "doctor")]
use crate::connect::Connector;
use crate::dns::{CacheStats, Snapshot};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::pool::{AddressStats, HostLoad, Load, PoolStats};

/// An HTTP client: a DNS cache, a pool of connections, and timings for every request. Clones share all of it.
///
/// It works on any tokio runtime whose timers and I/O are enabled, and on several at once. A connection is served by
/// the runtime it was opened on: do not share a client with a runtime that exists but is not driven, because requests
/// would wait for the connections of that runtime.
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
    pub(super) inner: Arc<Inner>,
}

impl Client {
    /// Sends a request, and waits for the head of the response.
    ///
    /// A request whose connection turns out to be closed is sent again if that is safe, which is so in these cases:
    ///
    /// * The server did nothing about the request: none of it was sent, or its stream was refused or left out by a GOAWAY. There
    ///   are at most six attempts, but two if new connections close at once.
    /// * The request is idempotent (RFC 9110 §9.2.2), and the connection was a kept one that closed without a byte of a
    ///   response, or with a 408 within 100 ms. It is sent at most three times, after a 408 at most six times.
    /// * The tokio runtime that served the connection ended, and nothing of the request was sent or it is idempotent.
    ///
    /// The first of these resends goes out at once, each later one after a pause that doubles. A body that is a stream
    /// is sent once. Dropping the future cancels this call and nothing else.
    ///
    /// # Errors
    /// [`Error`], whose [`kind`](Error::kind) is the step that failed. A response with a status of 400 or more is no
    /// error: see [`Response::error_for_status`].
    pub fn execute(&self, request: Request) -> impl Future<Output = Result<Response, Error>> + Send + Sync + use<> {
        self.clone().run(BoxedRequest::new(request))
    }

    pub(super) async fn run(self, request: BoxedRequest) -> Result<Response, Error> {
        match self.inner.layers.clone() {
            Some(service) => layers::execute(service, &self.inner, request).await,
            None => call::run(&self.inner, request).await,
        }
    }

    /// Returns the client's [name](crate::ClientBuilder::name); `None` if it has none.
    pub fn name(&self) -> Option<&str> {
        self.inner.defaults.name.as_deref()
    }

    /// Returns the pool's statistics: its connections and requests at the moment, and totals since the client was
    /// built.
    pub fn pool_stats(&self) -> PoolStats {
        self.inner.pool.stats()
    }

    /// Returns the pool's statistics for each host that has connections or waiting requests.
    pub fn host_stats(&self) -> Vec<(Origin, PoolStats)> {
        by_origin(self.inner.pool.host_stats(), PoolStats::add)
    }

    /// Returns the statistics of each address of the hosts whose requests are balanced over their addresses
    /// ([`Addresses::Spread`](crate::settings::Addresses::Spread)), as far as they have connections or waiting requests.
    ///
    /// ```
    /// # fn print(client: &speeddial::Client) {
    /// for (origin, addresses) in client.address_stats() {
    ///     for stats in addresses {
    ///         println!("{origin} at {}: {:?}, {} in flight", stats.address, stats.state, stats.in_flight);
    ///     }
    /// }
    /// # }
    /// ```
    pub fn address_stats(&self) -> Vec<(Origin, Vec<AddressStats>)> {
        let hosts = self.inner.pool.address_stats();
        hosts.into_iter().map(|(key, stats)| (key.origin, stats)).collect()
    }

    /// Returns the origin of `url`, the connector by which it is dialled now, and whether `https` is all that may be requested.
    #[cfg(feature = "doctor")]
    pub(crate) fn way_to(&self, url: impl IntoUrl) -> Result<(Origin, Arc<Connector>, bool)> {
        let defaults = &self.inner.defaults;
        let url = url.resolved(defaults.base_url.as_ref())?;
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        let connector = self.inner.pool.dialer().connector_for(&origin);
        Ok((origin, connector, defaults.https_only))
    }

    /// Returns the load of the pool since the client was built, of all hosts and of each of them, beside the limits that were set.
    ///
    /// The figures of the pool and of its hosts are not read at the same moment: a few requests may be in one and not in the other.
    pub fn load(&self) -> Load {
        let Inner { pool, built, .. } = &*self.inner;
        let hosts = by_origin(pool.host_loads(), HostLoad::add);
        Load::new(now(), *built, pool.stats(), hosts, pool.config())
    }

    /// Opens connections to the origin of `url` until there are `count` of them, busy ones included, as far as the
    /// limits allow. Returns the number of open connections. It is lower than `count` if a limit is reached, or if
    /// connections close or fail under requests that took them meanwhile. One HTTP/2 connection carries many requests.
    ///
    /// They close after the idle timeout like others. [`PoolConfig::min_idle_per_host`](crate::PoolConfig::min_idle_per_host) keeps a
    /// number of them open from then on.
    ///
    /// # Errors
    /// The error of a failed dial for which no request waited. Connections opened before it stay.
    pub async fn warm_up(&self, url: impl IntoUrl, count: usize) -> Result<usize, Error> {
        let url = url.resolved(self.inner.defaults.base_url.as_ref())?;
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        if Handle::try_current().is_err() {
            return Err(Error::no_runtime().of_dial(&url));
        }
        self.inner.ensure_watches_run();
        let warm = self.inner.pool.warm_up(&origin.into(), count).await;
        warm.map_err(|error| Error::no_lease(error).of_dial(&url))
    }

    /// Closes all idle connections. Those in use go on. Hosts for which
    /// [`min_idle_per_host`](crate::PoolConfig::min_idle_per_host) keeps some open have new ones opened.
    pub fn close_idle(&self) {
        self.inner.pool.close_idle();
    }

    /// Gives the connection with this number no more requests, and closes it when those that it carries are over. Does nothing if it is
    /// gone.
    ///
    /// For a program that knows more of a connection than its errors say, such as a library that retries on another one. The number is
    /// that of [`Timings::connection`](crate::trace::Timings::connection) and
    /// [`Event::Leased`](crate::trace::Event::Leased).
    pub fn retire_connection(&self, number: u64) {
        self.inner.pool.retire(number);
    }

    /// Shuts the client down gracefully, and waits until all its sockets are closed.
    ///
    /// New calls are refused from now on. Calls under way go on to their end, those that wait for their next attempt
    /// included. Each connection is closed when it is no longer needed. Dropping the future stops only the wait.
    ///
    /// There is no time limit: a response that is neither read to its end nor dropped holds the drain up. Put a timeout
    /// around it, as the [guide about shutdown](crate::guide::shutdown) does.
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
        self.inner.pool.drain().await;
    }

    /// Returns a reference that does not keep the client alive.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.inner))
    }

    /// Returns the DNS cache's size and counters.
    pub fn dns_stats(&self) -> CacheStats {
        self.inner.resolver.stats()
    }

    /// Returns the addresses in the DNS cache, each with its name and its expiry.
    ///
    /// ```
    /// # fn print(client: &speeddial::Client) {
    /// for (name, addresses, expires) in client.dns_answers().answers() {
    ///     println!("{name}: {addresses:?} until {expires:?}");
    /// }
    /// # }
    /// ```
    pub fn dns_answers(&self) -> Snapshot {
        self.inner.resolver.snapshot()
    }
}

/// Sends a GET request with a client of its own.
///
/// Each call makes a new client, and with it a new connection and new DNS lookups. A program that sends more than one
/// request keeps a [`Client`].
///
/// ```no_run
/// # async fn run() -> speeddial::Result<()> {
/// let text = speeddial::get("http://api.example.com/v1/items").await?.text().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Those of [`Client::execute`], and [`ErrorKind::Request`](crate::ErrorKind::Request) if the URL is not valid.
pub async fn get<T: IntoUrl>(url: T) -> Result<Response, Error> {
    let client = Client::new();
    let url = url.resolved(None).map_err(|error| error.with_method(Method::GET))?;
    let request = Request::new(Method::GET, url);
    client.execute(request).await
}

/// Adds up the statistics of the ways to an origin: requests with a proxy of their own have connections of their own.
fn by_origin<T>(all: Vec<(PoolKey, T)>, add: impl Fn(&mut T, &T)) -> Vec<(Origin, T)> {
    let (usual, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|(key, _)| key.proxy.is_none());
    let mut sums: Vec<_> = usual.into_iter().map(|(key, stats)| (key.origin, stats)).collect();
    if own.is_empty() {
        return sums;
    }
    let mut places: HashMap<_, _> = sums.iter().enumerate().map(|(at, (origin, _))| (origin.clone(), at)).collect();
    for (PoolKey { origin, .. }, stats) in own {
        match places.get(&origin) {
            Some(at) => add(&mut sums[*at].1, &stats),
            None => {
                places.insert(origin.clone(), sums.len());
                sums.push((origin, stats));
            }
        }
    }
    sums
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name())
            .field("pool", &self.pool_stats())
            .field("dns", &self.dns_stats())
            .finish()
    }
}

/// A reference to a client that does not keep it alive: for what outlives it, such as a list of clients whose figures are read.
#[derive(Clone)]
pub struct WeakClient(std::sync::Weak<Inner>);

impl WeakClient {
    /// Returns the client with its layers; `None` if its last clone was dropped.
    pub fn upgrade(&self) -> Option<Client> {
        let inner = self.0.upgrade()?;
        Some(Client { inner })
    }
}

impl fmt::Debug for WeakClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakClient").field("is_gone", &(self.0.strong_count() == 0)).finish()
    }
}
