//! The settings of a client, and the making of a client from them.

#[cfg(feature = "doctor")]
mod beside;
mod calls;
#[cfg(feature = "hyper-util")]
mod connector;
mod dns;
mod http_versions;
pub(super) mod learned;
mod network;
pub(super) mod reconfigure;
#[cfg(feature = "__tls")]
mod tls;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;

use super::pool_side::file_watch::FileWatch;
use super::settings::Settings;
use super::settings::connect::ConnectSettings;
use super::settings::host_config::HostConfig;
use crate::client::body::{Body, Decompression, Dialer};
use crate::client::handle::Client;
use crate::client::inner::{Defaults, Inner};
use crate::client::policy::deadlines::{Deadlines, MinSpeed, SILENCE_TIMEOUT, Timeouts};
use crate::client::policy::redirect;
use crate::client::policy::retry::RetryPolicy;
use crate::client::pool_side::dns_watch::DnsWatch;
use crate::client::request::Request;
use crate::client::request::call_options::CallOptions;
use crate::client::request::into_url::IntoUrl;
use crate::client::settings::CallDefaults;
use crate::client::settings::services::{self, ClientService, Wrap, WrapAttempt};
use crate::client::{call, layers};
use crate::clock;
use crate::connect::{Addresses, Connector, ConnectorService, DialRequest, DialedStream, Proxies, Proxy};
use crate::dns::{CachedResolver, Family, HickoryResolver, SystemResolver};
use crate::error::{Error, LeftOut, Result};
use crate::host_pattern::{ByHost, HostPattern};
use crate::pool::{FollowDns, Pool, PoolConfig, PoolConfigError};
use crate::trace::{Hooks, Observer, ObserverHandle, setting_ignored};
use crate::transport::Transport;

/// The action that errors about settings name.
const BUILD: &str = "build a client";

/// The default time between two readings of the files of certificates and keys.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

impl Client {
    /// Creates a client with default settings, which resolves names as the system's configuration says.
    pub fn new() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }

    /// Returns a builder with default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

/// A builder of a [`Client`].
///
/// ```
/// use std::time::Duration;
///
/// let client = speeddial::Client::builder().timeout(Duration::from_secs(5)).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub struct ClientBuilder {
    /// The first invalid setting, which [`build`](Self::build) reports.
    invalid: Option<Error>,
    /// The resolver, and the setting that chose it.
    resolver: Option<(&'static str, CachedResolver)>,
    /// True if hickory-resolver looks names up, false if the platform does; `None` if neither was chosen.
    hickory: Option<bool>,
    observers: Vec<ObserverHandle>,
    pool: PoolConfig,
    /// The setting of `pool` that was changed last by a method of the builder.
    pool_setting: Option<&'static str>,
    /// The settings of some hosts.
    hosts: ByHost<HostConfig>,
    reload_interval: Duration,
    /// True if a coding of bodies was chosen or excluded.
    chooses_codings: bool,
    /// The setting that chose the cookie store, if there is one.
    #[cfg(feature = "cookies")]
    cookie_setting: Option<&'static str>,
    connect: ConnectSettings,
    defaults: Defaults,
    layers: Vec<Wrap>,
    attempt_layers: Vec<WrapAttempt>,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            invalid: None,
            resolver: None,
            hickory: None,
            observers: Vec::new(),
            pool: PoolConfig::default(),
            pool_setting: None,
            hosts: ByHost::default(),
            reload_interval: RELOAD_INTERVAL,
            chooses_codings: false,
            #[cfg(feature = "cookies")]
            cookie_setting: None,
            connect: ConnectSettings::default(),
            defaults: Defaults {
                base_url: None,
                options: CallOptions {
                    timeouts: Timeouts { headers: Some(SILENCE_TIMEOUT), ..Timeouts::default() },
                    ..CallOptions::default()
                },
                headers: HeaderMap::new(),
                #[cfg(feature = "cookies")]
                cookies: None,
                before_attempt: Vec::new(),
                token_sources: Vec::new(),
                left_out: LeftOut::default(),
                name: None,
                https_only: false,
                sends_referer: false,
                adds_tls_info: false,
            },
            layers: Vec::new(),
            attempt_layers: Vec::new(),
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("pool", &self.pool)
            .field("connect_timeout", &self.connect.timeout)
            .field("timeouts", &self.defaults.options.timeouts)
            .finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Creates a builder with default settings, like [`Client::builder`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the transport that opens byte streams to addresses. TCP by default.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.connect.transport = Some(Arc::new(transport));
        self
    }

    /// Names the client, to tell the figures of its pool and DNS cache from those of other clients: as the attribute
    /// `speeddial.client.name` of the measurements of `interop`. No name by default.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.defaults.name = Some(name.into());
        self
    }

    /// Adds an observer of everything that happens in the client. None by default.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(ObserverHandle::new(observer));
        self
    }

    /// Sets the longest time that opening a connection may take, from the DNS lookup to the handshake, and that a request waits for
    /// one unless a limit of the pool keeps it waiting. 10 s by default.
    ///
    /// The addresses of a name share this time. If it is short or there are many, the next address is tried sooner than
    /// the usual 250 ms after the last one, but not within 10 ms (RFC 8305 §5).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Adds a proxy, and turns those of the environment off.
    ///
    /// A request goes through the first added proxy that applies to it, and directly if none does. By default the
    /// environment's proxies are used: `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, except for hosts in `NO_PROXY` and
    /// for the local machine, as in Go.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses a proxy with settings that its protocol has no place for.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        match proxy.check() {
            Ok(()) => self.connect.proxies.add(proxy),
            Err(error) => self.refuse(Error::config(BUILD, error)),
        }
        self
    }

    /// Turns all proxies off: those of the environment, and those that were added before.
    pub fn no_proxy(mut self) -> Self {
        self.connect.proxies = Proxies::off();
        self
    }

    /// Connects to this Unix domain socket for every request, whatever the host in its URL. Names are not looked up, and proxies are
    /// not used: observers are told of one that is set ([`Event::SettingIgnored`](crate::trace::Event::SettingIgnored)). On Linux a
    /// dial that finds the socket's backlog full waits for room, up to the [`connect_timeout`](Self::connect_timeout).
    ///
    /// # Errors
    /// [`build`](Self::build) refuses other settings that would have no effect beside it: a transport, a setting of TCP, a
    /// resolver, a choice of addresses, an address for a name, or a rule for addresses.
    #[cfg(unix)]
    pub fn unix_socket(mut self, path: impl AsRef<std::path::Path>) -> Self {
        self.connect.unix_socket = Some(path.as_ref().into());
        self
    }

    /// Sets which of a host's addresses are used. Those of both families by default.
    pub fn addresses(mut self, addresses: Addresses) -> Self {
        self.connect.addresses = addresses;
        self
    }

    /// Connects only to addresses of the public internet: not to loopback, private, link-local, carrier or
    /// documentation addresses (RFC 6890), in whichever form they are written. For clients whose URLs come from
    /// strangers.
    ///
    /// The rule applies to the address of every attempt, after resolution, so a name cannot be rebound to a private
    /// address. A proxy that gets names resolves them itself, and this rule does not see the addresses; add
    /// [`no_proxy`](Self::no_proxy) if that matters. An address must pass this rule and those of
    /// [`allow_addresses`](Self::allow_addresses).
    pub fn deny_private_addresses(mut self) -> Self {
        self.connect.address_policy.add_public();
        self
    }

    /// Connects only to addresses for which `allows` returns true.
    ///
    /// The rule applies to the address of every attempt, after resolution. It applies to an address in a URL that goes through a proxy
    /// as well. It does not apply to the addresses of proxies themselves, and does not see those that a proxy resolves. An address must pass all rules that were added, and
    /// [`deny_private_addresses`](Self::deny_private_addresses) if that is set.
    pub fn allow_addresses(mut self, allows: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.connect.address_policy.add(allows);
        self
    }

    /// Sets the URL that relative URLs are resolved against, like the links of a page. None by default.
    ///
    /// With the base `http://host/v1/`, `items` is `http://host/v1/items`, and `/items` is `http://host/items`. An
    /// absolute URL is used as it is. A URL without a scheme that leads to another host (`//other/x`) is refused. Credentials in the
    /// base are sent as basic authorization with requests to relative
    /// URLs.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses text that is no URL, a URL that nothing can be sent to, and an `http` URL beside
    /// [`https_only`](Self::https_only).
    ///
    /// ```
    /// let client = speeddial::Client::builder().base_url("http://api.example.com/v1/").build()?;
    /// assert_eq!(client.get("items").build()?.url().path(), "/v1/items");
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn base_url(mut self, url: impl IntoUrl) -> Self {
        match url.resolved(None).and_then(|url| Request::checked(Method::GET, url.clone()).map(|_| url)) {
            Ok(url) => self.defaults.base_url = Some(url),
            Err(error) => self.refuse(error),
        }
        self
    }

    /// Sets the longest time a call may take, from its start to the end of its response's body, redirects and retries
    /// included. No limit by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.defaults.options.timeouts.total = Some(timeout);
        self
    }

    /// Sets the longest wait in the pool's queue. It does not apply while a connection is being opened for the request:
    /// the [connect timeout](Self::connect_timeout) bounds that. None by default: then only
    /// [`PoolConfig::wait_timeout`] applies, which limits the same wait.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.defaults.options.timeouts.queue = Some(timeout);
        self
    }

    /// Sets the longest wait for the headers of a response, from the moment the last byte of its request was sent. 300
    /// s by default; `Duration::MAX` for no limit. While a body is being sent,
    /// [`body_idle_timeout`](Self::body_idle_timeout) applies.
    pub fn headers_timeout(mut self, timeout: Duration) -> Self {
        self.defaults.options.timeouts.headers = Some(timeout);
        self
    }

    /// Sets the longest time without progress of a body, the request's or the response's. 300 s by default, and none for a response of
    /// the type `text/event-stream`; `Duration::MAX` for no limit. A transfer that makes progress may take any time.
    pub fn body_idle_timeout(self, timeout: Duration) -> Self {
        self.min_speed(1, timeout)
    }

    /// Sets the lowest speed of a body, the request's or the response's: at least `bytes` pass within `over`, which begins anew each
    /// time that they have. [`body_idle_timeout`](Self::body_idle_timeout) is this for one byte, and the last of the two counts.
    ///
    /// Of a response, only the time counts in which its reader waits for the next piece.
    pub fn min_speed(mut self, bytes: u64, over: Duration) -> Self {
        self.defaults.options.timeouts.body = Some(MinSpeed { bytes: bytes.max(1), over });
        self
    }

    /// Sets the longest silence of a server: [`headers_timeout`](Self::headers_timeout) and
    /// [`body_idle_timeout`](Self::body_idle_timeout) at once. The second one is a limit for the request's body as well.
    pub fn read_timeout(self, timeout: Duration) -> Self {
        self.headers_timeout(timeout).body_idle_timeout(timeout)
    }

    /// Adds default headers. A request gets each of them that it has not set itself. There are none by default; without
    /// an `Accept` among them or its own headers, a request is sent with `Accept: */*`. Headers whose values are marked
    /// as sensitive (`HeaderValue::set_sensitive`) are not sent to another origin after a redirect.
    pub fn default_headers(mut self, headers: HeaderMap) -> Self {
        self.defaults.headers.extend(headers);
        // So that a copy of the map takes those that each request gets without being hashed anew.
        let _ = self.defaults.headers.try_reserve(4);
        self
    }

    /// Sets the `User-Agent` of every request that has none of its own, and of the requests for tunnels (CONNECT) that
    /// HTTP proxies get. None by default.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses a name that is no valid header value.
    pub fn user_agent<V>(mut self, value: V) -> Self
    where
        V: TryInto<HeaderValue>,
        V::Error: Into<http::Error>,
    {
        match value.try_into() {
            Ok(value) => {
                self.defaults.headers.insert(USER_AGENT, value);
            }
            Err(error) => self.refuse(Error::invalid_header("the user agent is not valid", error)),
        }
        self
    }

    /// Sets other settings for some hosts: `host:port`, `host` for any port, or a suffix such as `.internal` for all names below
    /// it. Each host that fits has them for itself. A setting that is not made there is the client's.
    ///
    /// The host is that of the request's URL, also if the connection leads through a proxy. If several patterns fit a host, only the
    /// most exact one is used: `host:port` before `host`, before the longest suffix; of two for the same hosts, the later one.
    ///
    /// # Errors
    /// [`build`](Self::build) refuses a pattern that is none of these, and settings that it would refuse for the whole client.
    ///
    /// ```
    /// use speeddial::{Client, Proxy};
    /// use speeddial::settings::HostConfig;
    ///
    /// let partner = HostConfig::new().proxy(Proxy::all("http://proxy.internal:3128")?);
    /// let client = Client::builder().for_host("api.example.com", partner).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn for_host(mut self, hosts: &str, config: HostConfig) -> Self {
        match HostPattern::parse(hosts) {
            Some(pattern) => self.hosts.replace(pattern, config),
            None => self.refuse(Error::config(BUILD, PoolConfigError::Hosts(hosts.to_owned()))),
        }
        self
    }

    /// Sets the policy for following redirects. By default at most 10 are followed. Authorization, cookies, and headers
    /// whose values are marked as sensitive (`HeaderValue::set_sensitive`) are not sent to another origin.
    pub fn redirect(mut self, redirects: redirect::Policy) -> Self {
        self.defaults.options.redirects = Some(redirects);
        self
    }

    /// Sets the policy for retrying calls that failed. Without a policy, the client only makes resends that are [always
    /// safe](Client::execute).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.defaults.options.retries = Some(policy);
        self
    }

    /// Leaves the queries of URLs out of errors and events, for URLs with secrets in them. Credentials are always left
    /// out.
    pub fn hide_queries(mut self) -> Self {
        self.defaults.left_out.queries = true;
        self
    }

    /// Leaves the beginnings of response bodies out of the texts of errors, for bodies with secrets in them. By default an error made
    /// from a status, and one for a body that is not the expected JSON, show up to 80 characters, and one for a tunnel that a proxy
    /// refused up to 200.
    ///
    /// The error about JSON then names the line and the column alone. [`Error::body_start`](crate::Error::body_start) returns the
    /// beginning all the same.
    pub fn hide_bodies(mut self) -> Self {
        self.defaults.left_out.bodies = true;
        self.connect.hides_bodies = true;
        self
    }

    /// Sets the limits for decompressing response bodies, or turns decompression off (features `gzip`, `brotli`,
    /// `zstd`, `deflate`). A request with an `Accept-Encoding` or a `Range` gets its body as it was sent; so does every
    /// request if the [default headers](Self::default_headers) have one of them.
    pub fn decompress(mut self, decompression: impl Into<Decompression>) -> Self {
        if self.chooses_codings {
            let what = "build a client: decompress() would replace the choice of codings; call it first";
            self.refuse(Error::refused_request(what));
        }
        self.defaults.options.decompression = Some(decompression.into());
        self
    }

    /// Puts a tower layer around the whole client. A layer that is added later is further out.
    ///
    /// A layer sees each call once: the request before redirects and retries, and the response after them. The timings
    /// of a call begin inside of all layers. An error of a layer has the kind
    /// [`ErrorKind::Layer`](crate::ErrorKind::Layer), unless it is one of the client's.
    ///
    /// The layers belong to the client and do not keep it alive. A request that a layer sends after the last clone of the client
    /// was dropped fails.
    ///
    /// ```
    /// use speeddial::{Body, Client, http::{HeaderValue, Request}};
    /// use tower::util::MapRequestLayer;
    ///
    /// let marked = MapRequestLayer::new(|mut request: Request<Body>| {
    ///     request.headers_mut().insert("x-caller", HeaderValue::from_static("billing"));
    ///     request
    /// });
    /// let client = Client::builder().layer(marked).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn layer<L, B>(mut self, layer: L) -> Self
    where
        L: tower::Layer<ClientService> + Send + Sync + 'static,
        L::Service: tower::Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        <L::Service as tower::Service<http::Request<Body>>>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        <L::Service as tower::Service<http::Request<Body>>>::Future: Send + 'static,
        B: http_body::Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        self.layers.push(services::wrap(layer));
        self
    }

    /// Sets whether the bytes of connections are logged, decrypted, as trace events of the target `speeddial::wire`
    /// (feature `tracing`; without it there is no log). False by default; for debugging, because the log then holds passwords and
    /// bodies. A connection is logged if the target was enabled when it was opened.
    pub fn connection_verbose(mut self, verbose: bool) -> Self {
        self.connect.verbose = verbose;
        self
    }

    /// Puts a tower layer around the opening of each connection: the lookup of the name, TCP, the way
    /// through a proxy, TLS. A layer that is added later is further out; the
    /// [`connect_timeout`](Self::connect_timeout) is around all of them.
    ///
    /// A dial whose layers wait holds its slot in the pool, and its request may meanwhile get a connection that became
    /// free. An error of a layer has the kind [`ErrorKind::Connect`](crate::ErrorKind::Connect), unless it is the
    /// connector's own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower::timeout::TimeoutLayer;
    ///
    /// let limit = TimeoutLayer::new(Duration::from_secs(2));
    /// let client = speeddial::Client::builder().connector_layer(limit).build()?;
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn connector_layer<L>(mut self, layer: L) -> Self
    where
        L: tower::Layer<ConnectorService>,
        L::Service: tower::Service<DialRequest, Response = DialedStream> + Clone + Send + Sync + 'static,
        <L::Service as tower::Service<DialRequest>>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        <L::Service as tower::Service<DialRequest>>::Future: Send + 'static,
    {
        let layered = self.connect.layered.take().unwrap_or_else(ConnectorService::without_layers);
        self.connect.layered = Some(layered.wrapped(&layer));
        self
    }

    /// Builds the client. This needs no tokio runtime and waits for no file: a thread prepares TLS in the background.
    /// The client uses the rustls crypto provider that the process has installed by now, or else that of this crate's
    /// features.
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) if a setting is invalid: for example a limit of connections or
    /// a `connect_timeout` of 0, a root certificate that cannot be read, or two settings that contradict each other.
    pub fn build(mut self) -> Result<Client> {
        let layers = std::mem::take(&mut self.layers);
        let attempt_layers = std::mem::take(&mut self.attempt_layers);
        let reload_interval = self.reload_interval;
        let ClientParts { connector, resolver, hooks, settings, defaults } = self.into_parts()?;
        let connectors = settings.connectors(connector, BUILD)?;
        let call_defaults = CallDefaults::default();
        if settings.has_calls_of_hosts() {
            settings.set_call_defaults(&call_defaults);
        }
        let pool = settings.pool.clone();
        let dns_watch = DnsWatch::new(pool.follow_dns != FollowDns::Off || connectors.balance_some_hosts());
        let deadlines = Deadlines::default();
        let has_files = settings.has_watched_files();
        let file_watch = |inner: &Weak<Inner>| FileWatch::new(reload_interval, has_files, inner.clone());
        let inner = Arc::new_cyclic(|_inner: &Weak<Inner>| Inner {
            pool: Pool::new(pool, Dialer::new(connectors, file_watch(_inner)), hooks.clone()),
            resolver,
            hooks,
            defaults,
            call_defaults,
            hedging: std::sync::Mutex::default(),
            retry_budgets: std::sync::Mutex::default(),
            deadlines,
            dns_watch,
            settings: Mutex::new(settings),
            built: clock::now(),
            layers: layers::within(layers, _inner),
            attempt_layers: call::within(attempt_layers, _inner),
        });
        Ok(Client { inner })
    }

    /// Checks the settings, and makes the parts of a client of them.
    fn into_parts(mut self) -> Result<ClientParts> {
        self.bind_token_sources();
        let ignores_proxy = self.connect.leave_proxies_to_unix_socket();
        if let Some(invalid) = self.invalid {
            return Err(invalid);
        }
        let settings = Settings {
            connect: self.connect.clone(),
            hosts: self.hosts.clone(),
            pool: self.pool.clone(),
            headers: self.defaults.headers.clone(),
            calls: self.defaults.options.clone(),
        };
        settings.check(BUILD)?;
        self.check_resolver()?;
        if self.defaults.https_only && self.defaults.base_url.as_ref().is_some_and(|base| base.scheme() == "http") {
            let what = "build a client: base_url is an http URL, to which https_only lets no request go";
            return Err(Error::refused_request(what));
        }
        let hooks = Hooks::new(self.observers);
        if ignores_proxy {
            setting_ignored(&hooks, "proxy", "unix_socket");
        }
        let resolver = match (self.resolver, self.hickory) {
            (Some((_, resolver)), _) => resolver,
            (None, Some(false)) => CachedResolver::new(SystemResolver::default()),
            (None, _) => system_resolver(self.connect.addresses, &hooks),
        };
        let user_agent = self.defaults.headers.get(USER_AGENT).cloned();
        let connector = self.connect.first_connector(resolver.clone(), user_agent);
        Ok(ClientParts { connector, resolver, hooks, settings, defaults: self.defaults })
    }

    /// Keeps the first invalid setting for [`build`](Self::build).
    fn refuse(&mut self, error: Error) {
        self.invalid.get_or_insert(error);
    }
}

/// Creates the default resolver: the system's, asked only for families that the client uses.
fn system_resolver(addresses: Addresses, hooks: &Hooks) -> CachedResolver {
    let resolver = HickoryResolver::system().with_hooks(hooks.clone());
    CachedResolver::new(match addresses {
        Addresses::V4Only => resolver.with_family(Family::V4),
        Addresses::V6Only => resolver.with_family(Family::V6),
        Addresses::Both | Addresses::Spread => resolver,
    })
}

/// The parts of a client.
struct ClientParts {
    /// The connector of most hosts.
    connector: Connector,
    resolver: CachedResolver,
    hooks: Hooks,
    settings: Settings,
    defaults: Defaults,
}
