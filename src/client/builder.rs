//! How a client is set up.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

#[cfg(feature = "tower")]
use super::Body;
#[cfg(feature = "__compression")]
use super::Decompression;
use super::deadlines::Deadlines;
use super::dns_watch::Follower;
#[cfg(feature = "tower")]
use super::layers::{self, ClientService, Wrap};
use super::request::Timeouts;
use super::{Calls, Client, Dialer, IntoUrl, RedirectPolicy, Request, RetryPolicy, Retrying, Shared};
use crate::connect::{AddressPolicy, Addresses, Connector, HttpConfig, Proxies, Proxy, Versions};
use crate::dns::{CachedResolver, Family, HickoryResolver, Resolve};
use crate::error::{Error, Result};
use crate::pool::{FollowDns, Pool, PoolConfig};
use crate::race::Scores;
#[cfg(feature = "__tls")]
use crate::tls::{Tls, TlsConfig};
use crate::trace::{Hooks, Observer, Own};
use crate::transport::{TcpTransport, Transport};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// As undici has it: slow APIs work, and nothing hangs for ever.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);
#[cfg(feature = "__tls")]
const TLS_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets a [`Client`] up.
///
/// ```
/// use std::time::Duration;
///
/// let client = speeddial::Client::builder().timeout(Duration::from_secs(5)).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct ClientBuilder {
    resolver: Option<CachedResolver>,
    transport: Option<Arc<dyn Transport>>,
    observers: Vec<Own>,
    /// What is wrong with the caller's input.
    invalid: Option<Error>,
    pool: PoolConfig,
    connect_timeout: Duration,
    base: Option<Url>,
    timeouts: Timeouts,
    headers: HeaderMap,
    redirects: RedirectPolicy,
    retry: Option<RetryPolicy>,
    discreet: bool,
    #[cfg(feature = "__compression")]
    decompression: Decompression,
    versions: Versions,
    http: HttpConfig,
    addresses: Addresses,
    policy: AddressPolicy,
    proxies: Proxies,
    #[cfg(feature = "tower")]
    layers: Vec<Wrap>,
    #[cfg(unix)]
    unix: Option<Arc<std::path::Path>>,
    #[cfg(feature = "__tls")]
    tls: TlsConfig,
    #[cfg(feature = "__tls")]
    tls_timeout: Duration,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            resolver: None,
            transport: None,
            observers: Vec::new(),
            invalid: None,
            pool: PoolConfig::default(),
            connect_timeout: CONNECT_TIMEOUT,
            base: None,
            timeouts: Timeouts {
                headers: Some(SILENCE_TIMEOUT),
                body_idle: Some(SILENCE_TIMEOUT),
                ..Timeouts::default()
            },
            headers: HeaderMap::new(),
            redirects: RedirectPolicy::default(),
            retry: None,
            discreet: false,
            #[cfg(feature = "__compression")]
            decompression: Decompression::default(),
            versions: Versions::Any,
            http: HttpConfig::default(),
            addresses: Addresses::Both,
            policy: AddressPolicy::default(),
            proxies: Proxies::from_environment(),
            #[cfg(feature = "tower")]
            layers: Vec::new(),
            #[cfg(unix)]
            unix: None,
            #[cfg(feature = "__tls")]
            tls: TlsConfig::new(),
            #[cfg(feature = "__tls")]
            tls_timeout: TLS_TIMEOUT,
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("pool", &self.pool)
            .field("connect_timeout", &self.connect_timeout)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Resolves names with `resolver`, under a DNS cache of the client's own. By default
    /// [`HickoryResolver::system`].
    pub fn resolver(self, resolver: impl Resolve) -> Self {
        self.dns_cache(CachedResolver::new(resolver))
    }

    /// Uses this DNS cache, which other clients may share.
    pub fn dns_cache(self, cache: CachedResolver) -> Self {
        Self { resolver: Some(cache), ..self }
    }

    /// Connects with `transport`. TCP by default.
    pub fn transport(self, transport: impl Transport) -> Self {
        Self { transport: Some(Arc::new(transport)), ..self }
    }

    /// Tells `observer` everything that happens, beside those set before. Nobody by default.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Own::new(observer));
        self
    }

    /// Sets the pool's limits.
    pub fn pool(self, pool: PoolConfig) -> Self {
        Self { pool, ..self }
    }

    /// How long opening a connection may take, from the lookup to the handshake. 10 s by default. Where it is short, or a name has many
    /// addresses, they share it: the next address has its turn sooner than after 250 ms, but not within 10 ms (RFC 8305 §5).
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// How servers are known, and how the client is known to them.
    #[cfg(feature = "__tls")]
    pub fn tls(self, tls: impl Into<TlsConfig>) -> Self {
        Self { tls: tls.into(), ..self }
    }

    /// How long the TLS handshake with one address may take; then the next address has its turn. 5 s by default. While there are other
    /// addresses, it is at most half of what is left of the connect timeout.
    #[cfg(feature = "__tls")]
    pub fn tls_timeout(self, timeout: Duration) -> Self {
        Self { tls_timeout: timeout, ..self }
    }

    /// Adds a proxy. A request goes through the first of the added proxies that is meant for it, and directly where there is none;
    /// those of the environment are not used then. By default these are used: `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, but for
    /// hosts in `NO_PROXY`, and for this machine itself (as Go has it).
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.proxies.add(proxy);
        self
    }

    /// Goes through no proxy, whatever the environment says, and forgets those that were added.
    pub fn no_proxy(self) -> Self {
        Self { proxies: Proxies::None, ..self }
    }

    /// Connects to this Unix domain socket for every request, whatever its URL's host; names are not looked up, and no proxy
    /// is gone through. On Linux a connection that finds the socket's backlog full waits for room within the
    /// [`connect_timeout`](Self::connect_timeout).
    ///
    /// # Errors
    /// [`build`](Self::build) refuses a transport, a proxy, a choice of addresses or a rule for them beside it, which would have no
    /// effect.
    #[cfg(unix)]
    pub fn unix_socket(self, path: impl AsRef<std::path::Path>) -> Self {
        Self { unix: Some(path.as_ref().into()), ..self }
    }

    /// Which of a host's addresses are used. Those of both families by default.
    pub fn addresses(self, addresses: Addresses) -> Self {
        Self { addresses, ..self }
    }

    /// Connects only to addresses of the public internet: none of loopback, private networks, links, carriers, or
    /// documentation (RFC 6890), however they are written. For clients whose URLs come from strangers. It is the address
    /// that is looked at, after resolution and for every attempt, so a name cannot be rebound to a private one. A proxy that
    /// is given names resolves them itself, out of sight: where that matters, say [`no_proxy`](Self::no_proxy), too.
    ///
    /// Rules add up: an address has to pass this one and those of [`allow_addresses`](Self::allow_addresses).
    pub fn deny_private_addresses(mut self) -> Self {
        self.policy.add_public();
        self
    }

    /// Connects only to addresses for which `allows` returns true, asked after resolution and for every attempt. Said more than
    /// once, or beside [`deny_private_addresses`](Self::deny_private_addresses), an address has to pass every rule. As above,
    /// it is not asked about names that a proxy resolves.
    pub fn allow_addresses(mut self, allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.policy.add(allows);
        self
    }

    /// Speaks HTTP/1.1 alone, also with servers that would rather speak HTTP/2.
    pub fn http1_only(self) -> Self {
        Self { versions: Versions::Http1, ..self }
    }

    /// Speaks HTTP/2 without asking whether the server does, also without TLS (RFC 9113 §3.3).
    pub fn http2_prior_knowledge(self) -> Self {
        Self { versions: Versions::Http2, ..self }
    }

    /// Pings HTTP/2 servers after each `interval` without a piece of a response, while requests are under way. By default there
    /// is no such timer, because servers count pings: grpc-go closes a connection for four within minutes. A server is pinged
    /// when nothing came from it for 10 s in which a request was under way, at most twice between two pieces of responses, and
    /// the connection given up when nothing comes for 15 s after that. An interval of zero is no timer, either.
    pub fn http2_keep_alive_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.http.pings.interval = interval.into().filter(|interval| !interval.is_zero());
        self
    }

    /// The longest a server may take to answer a ping of [`http2_keep_alive_interval`](Self::http2_keep_alive_interval). Its
    /// connection is given up then. 20 s by default.
    pub fn http2_keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.http.pings.timeout = timeout;
        self
    }

    /// True if pings of [`http2_keep_alive_interval`](Self::http2_keep_alive_interval) are sent also while no request is under
    /// way. False by default.
    pub fn http2_keep_alive_while_idle(mut self, while_idle: bool) -> Self {
        self.http.pings.while_idle = while_idle;
        self
    }

    /// The most headers that a response may have over HTTP/1.1; one with more is an error. All of them together have 64 KiB at
    /// most, also over HTTP/2. 100 by default; any number that is set costs each response two allocations.
    pub fn max_response_headers(mut self, count: usize) -> Self {
        self.http.max_headers = Some(count);
        self
    }

    /// What relative URLs are taken from, as a page's links are: `items` under `http://host/v1/` is `http://host/v1/items`, `/items`
    /// is `http://host/items`. A request that names another host goes there. Credentials in the base are sent with what is relative to
    /// it, as basic authorization. None by default.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses what is not a URL, and a URL to which nothing can be sent.
    ///
    /// ```
    /// let client = speeddial::Client::builder().base_url("http://api.example.com/v1/").build()?;
    /// assert_eq!(client.get("items").build()?.url().path(), "/v1/items");
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn base_url(mut self, url: impl IntoUrl) -> Self {
        match url.into_url(None).and_then(|url| Request::new(Method::GET, url.clone()).map(|_| url)) {
            Ok(url) => self.base = Some(url),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Keeps the first thing that is wrong with the caller's input.
    fn refuse(&mut self, error: Error) {
        self.invalid.get_or_insert(error);
    }

    /// How long a call may take, from its start to the end of its response's body, redirects and retries included. No limit by
    /// default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.total = Some(timeout);
        self
    }

    /// How long a request may wait for a connection while none is being opened for it. By default there is only the wait timeout
    /// of the pool, which is for all of the wait.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.queue = Some(timeout);
        self
    }

    /// The longest wait for the headers of a response, from the moment the last byte of its request was sent. While a body is
    /// being sent, [`body_idle_timeout`](Self::body_idle_timeout) rules. 300 s by default; `Duration::MAX` for ever.
    pub fn headers_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.headers = Some(timeout);
        self
    }

    /// The longest time in which nothing of a body may pass, the request's or the response's: as long as one of them makes
    /// progress, a transfer may take as long as it likes. 300 s by default; `Duration::MAX` for ever.
    pub fn body_idle_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.body_idle = Some(timeout);
        self
    }

    /// Headers of every request that has none of the same name. None by default. Those whose values are marked as secrets do not
    /// follow a redirect to another origin.
    pub fn default_headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// The `User-Agent` of every request that has none of its own. None by default.
    ///
    /// # Errors
    /// What cannot be sent is told by [`build`](Self::build).
    pub fn user_agent(mut self, name: &str) -> Self {
        match HeaderValue::from_str(name) {
            Ok(value) => drop(self.headers.insert(USER_AGENT, value)),
            Err(error) => self.refuse(Error::invalid_header("the user agent is not valid", error)),
        }
        self
    }

    /// Which redirects are followed; at most 10 by default. What is for one origin alone goes to no other one: authorization,
    /// cookies, and headers whose values are marked as secrets (`HeaderValue::set_sensitive`).
    pub fn redirect(self, redirects: RedirectPolicy) -> Self {
        Self { redirects, ..self }
    }

    /// Makes calls again that failed, as the policy says. Not by default, but for what is [safe](Client::execute).
    pub fn retry(self, policy: RetryPolicy) -> Self {
        Self { retry: Some(policy), ..self }
    }

    /// Leaves queries out of errors and events, for URLs that have secrets in them. Credentials are never in there.
    pub fn hide_queries(self) -> Self {
        Self { discreet: true, ..self }
    }

    /// How bodies are decompressed (features `gzip`, `brotli`, `zstd`, `deflate`); with limits by default.
    #[cfg(feature = "__compression")]
    pub fn decompress(self, decompression: Decompression) -> Self {
        Self { decompression, ..self }
    }

    /// Puts a layer of tower's around the whole client (feature `tower`): it sees each call once, before connections, redirects and
    /// retries, and its response after them. One that is added later is further out. What it does with a call, it does before the
    /// call's timings begin. Its errors are of the kind [`ErrorKind::Layer`](crate::ErrorKind::Layer), unless they are the client's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower::limit::ConcurrencyLimitLayer;
    ///
    /// let client = speeddial::Client::builder().layer(ConcurrencyLimitLayer::new(10)).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    #[cfg(feature = "tower")]
    pub fn layer<L, B>(mut self, layer: L) -> Self
    where
        L: tower::Layer<ClientService> + Send + Sync + 'static,
        L::Service: tower::Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as tower::Service<http::Request<Body>>>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        <L::Service as tower::Service<http::Request<Body>>>::Future: Send + 'static,
        B: http_body::Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.layers.push(layers::wrap(layer));
        self
    }

    /// Builds the client. It needs no runtime yet, and waits for no file: a thread of its own prepares TLS
    /// (`TlsConfig::prepare_in_background`). A crypto provider for the process has to be installed before.
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) where a limit of 0 would let no request through.
    #[cfg_attr(not(feature = "tower"), expect(unused_mut, reason = "there are no layers to take"))]
    pub fn build(mut self) -> Result<Client> {
        #[cfg(feature = "tower")]
        let layers = std::mem::take(&mut self.layers);
        let Parts { connector, resolver, hooks, pool, calls } = self.parts()?;
        let follower = Follower::new(pool.follow_dns != FollowDns::Off);
        let pool = Pool::new(pool, Dialer(connector), hooks.clone());
        let shared = Arc::new(Shared { pool, resolver, hooks, calls, deadlines: Deadlines::default(), follower });
        #[cfg(feature = "tower")]
        let layered = layers.into_iter().fold(None, |inner: Option<ClientService>, layer| {
            Some(layer(inner.unwrap_or_else(|| ClientService::bare(&shared))))
        });
        Ok(Client {
            shared,
            #[cfg(feature = "tower")]
            layered,
        })
    }

    /// What opens the client's connections, without the client.
    #[cfg(feature = "hyper-util")]
    pub(crate) fn into_connector(self) -> Result<(Connector, Hooks)> {
        let Parts { connector, hooks, .. } = self.parts()?;
        Ok((Connector { for_others: true, ..connector }, hooks))
    }

    /// Returns a setting that a Unix domain socket would leave without effect.
    #[cfg(unix)]
    fn ignored_beside_a_unix_socket(&self) -> Option<&'static str> {
        self.unix.as_ref()?;
        if self.transport.is_some() {
            Some("a transport")
        } else if !self.policy.is_empty() {
            Some("a rule for addresses")
        } else if self.addresses != Addresses::Both {
            Some("a choice of addresses")
        } else if self.proxies.is_given() {
            Some("a proxy")
        } else {
            None
        }
    }

    fn parts(self) -> Result<Parts> {
        if let Some(invalid) = self.invalid {
            return Err(invalid);
        }
        self.pool.check().map_err(Error::config)?;
        if self.http.max_headers == Some(0) {
            let what = "build a client: max_response_headers must not be 0, or no response could be read";
            return Err(Error::refused_request(what.to_owned()));
        }
        #[cfg(unix)]
        if let Some(ignored) = self.ignored_beside_a_unix_socket() {
            let what = format!("build a client: {ignored} has no effect beside a Unix domain socket");
            return Err(Error::refused_request(what));
        }
        #[cfg(feature = "__tls")]
        self.tls.check(self.versions.alpn()).map_err(Error::config)?;
        let hooks = Hooks::new(self.observers);
        let resolver = self.resolver.unwrap_or_else(|| system_resolver(self.addresses, &hooks));
        let connector = Connector {
            resolver: resolver.clone(),
            transport: self.transport.unwrap_or_else(|| Arc::new(TcpTransport::new())),
            versions: self.versions,
            http: self.http,
            addresses: self.addresses,
            policy: self.policy,
            proxies: self.proxies,
            #[cfg(unix)]
            unix: self.unix,
            scores: Scores::default(),
            #[cfg(feature = "__tls")]
            tls: Tls::new(self.tls.clone(), self.versions.alpn()),
            #[cfg(feature = "__tls")]
            proxy_tls: Tls::new(self.tls.for_proxies(), Versions::Http1.alpn()),
            for_others: false,
            timeout: self.connect_timeout,
            #[cfg(feature = "__tls")]
            tls_timeout: self.tls_timeout,
        };
        #[cfg(feature = "__tls")]
        connector.tls.prepare();
        let Self { pool, base, timeouts, headers, redirects, discreet, .. } = self;
        let calls = Calls {
            base,
            timeouts,
            headers,
            redirects,
            retry: self.retry.map(Retrying::new),
            discreet,
            #[cfg(feature = "__compression")]
            decompression: self.decompression,
        };
        Ok(Parts { connector, resolver, hooks, pool, calls })
    }
}

/// The system's DNS, asked for what a client uses of it.
fn system_resolver(addresses: Addresses, hooks: &Hooks) -> CachedResolver {
    let resolver = HickoryResolver::system().with_hooks(hooks.clone());
    CachedResolver::new(match addresses {
        Addresses::V4Only => resolver.with_family(Family::V4),
        Addresses::V6Only => resolver.with_family(Family::V6),
        Addresses::Both | Addresses::Spread => resolver,
    })
}

/// What a client is made of.
struct Parts {
    connector: Connector,
    resolver: CachedResolver,
    hooks: Hooks,
    pool: PoolConfig,
    calls: Calls,
}
