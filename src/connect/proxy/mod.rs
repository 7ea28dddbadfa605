//! The proxies of a client, from the user or the environment, and the choice of one for a request.

pub(super) mod http_connect;
pub(super) mod no_proxy;
pub(super) mod server;
pub(super) mod socks5;
pub(super) mod tunnel;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::connect::proxy::server::{ProxyExtras, ProxyServer};
use http::{HeaderMap, HeaderValue};
use no_proxy::NoProxy;
use url::Url;

use crate::connect::error::ProxyError;
use crate::origin::{Host, Origin, Scheme};

/// A proxy and the requests that go through it.
///
/// The scheme of its URL names the protocol that the proxy speaks:
///
/// | scheme | requests to `http` URLs | requests to `https` URLs |
/// |---|---|---|
/// | `http`, `https`, or none (`proxy.internal:3128` is an HTTP proxy) | the proxy forwards them | through a tunnel (CONNECT, RFC 9110 §9.3.6) |
/// | `socks5` | to an address that this client looked up (RFC 1928) | the same |
/// | `socks5h` | to a name that the proxy looks up | the same |
///
/// A client with prior knowledge of HTTP/2 uses tunnels for all requests. The URL may contain a user name and a
/// password, for SOCKS5 of at most 255 bytes each; `Debug` does not show them. A SOCKS5 proxy may also choose to ask for
/// neither. With a tunnel, the client's default [`user_agent`](crate::ClientBuilder::user_agent) goes to the proxy, and
/// no other header of its requests.
///
/// The limits of [`PoolConfig::for_host`](crate::PoolConfig::for_host) are about the hosts of URLs, whichever way leads
/// there: the name of a proxy is no pattern for the connections through it.
///
/// ```
/// use speeddial::{NoProxy, Proxy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let proxy = Proxy::all("http://proxy.internal:3128")?.basic_auth("user", "password");
/// let proxy = proxy.no_proxy(NoProxy::from_string("localhost,.internal,10.0.0.0/8"));
/// let client = speeddial::Client::builder().proxy(proxy).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    servers: Servers,
    extras: ProxyExtras,
    no_proxy: NoProxy,
}

/// The servers of a proxy.
#[allow(clippy::large_enum_variant, reason = "there are few proxies, and nearly all are of the larger variant")]
#[derive(Debug, Clone, PartialEq, Eq)]
enum Servers {
    /// One server for all requests of a scheme.
    Fixed { http: Option<ProxyServer>, https: Option<ProxyServer> },
    /// The server that a function of the user chooses.
    Custom(Choose),
}

// Few proxies differ in more than their servers.
impl Hash for Proxy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Servers::Fixed { http, https } = &self.servers {
            http.iter().chain(https).for_each(|server| server.origin.hash(state));
        }
    }
}

/// The user's function from the URL of an origin to its proxy.
#[derive(Clone)]
struct Choose(Arc<ChooseFn>);

type ChooseFn = dyn Fn(&Url) -> Option<Result<ProxyServer, ProxyError>> + Send + Sync;

impl PartialEq for Choose {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Choose {}

impl fmt::Debug for Choose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("function")
    }
}

impl Proxy {
    pub(crate) fn for_all(url: &str) -> Result<Self, ProxyError> {
        let server = ProxyServer::parse(url)?;
        Ok(Self::of(Servers::Fixed { http: Some(server.clone()), https: Some(server) }))
    }

    pub(crate) fn for_http(url: &str) -> Result<Self, ProxyError> {
        Ok(Self::of(Servers::Fixed { http: Some(ProxyServer::parse(url)?), https: None }))
    }

    pub(crate) fn for_https(url: &str) -> Result<Self, ProxyError> {
        Ok(Self::of(Servers::Fixed { http: None, https: Some(ProxyServer::parse(url)?) }))
    }

    /// Creates a proxy that `choose` chooses: it returns the URL of a proxy, or `None` for requests that the next proxy of
    /// the client is asked about.
    ///
    /// It is called when a connection is opened, not for each request, and gets the URL of the origin: scheme, host and
    /// port, and `/` as its path. If it returns what is not the URL of a proxy, the request fails.
    ///
    /// ```
    /// use speeddial::Proxy;
    ///
    /// let proxy = Proxy::custom(|url| match url.host_str() {
    ///     Some("api.example.com") => Some("http://proxy.internal:3128"),
    ///     _ => None,
    /// });
    /// ```
    pub fn custom<F, U>(choose: F) -> Self
    where
        F: Fn(&Url) -> Option<U> + Send + Sync + 'static,
        U: AsRef<str>,
    {
        let choose = move |url: &Url| choose(url).map(|proxy| ProxyServer::parse(proxy.as_ref()));
        Self::of(Servers::Custom(Choose(Arc::new(choose))))
    }

    /// Sets the user name and the password for the proxy, in place of those in its URL. An HTTP proxy gets them as basic
    /// authorization.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses what the proxy cannot be sent: a user name with a colon for an HTTP
    /// proxy, more than 255 bytes for SOCKS5. With [`custom`](Self::custom), the request fails instead.
    pub fn basic_auth(mut self, username: &str, password: &str) -> Self {
        self.extras.set_basic_auth(username, password);
        self
    }

    /// Sets the `Proxy-Authorization` header for an HTTP proxy, in place of the credentials in its URL.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses it for a SOCKS5 proxy. With [`custom`](Self::custom), the request
    /// fails instead.
    pub fn custom_http_auth(mut self, header_value: HeaderValue) -> Self {
        self.extras.set_header_auth(header_value);
        self
    }

    /// Sets headers for an HTTP proxy. They go with the request for a tunnel, and with each request that the proxy
    /// forwards, unless that has one of the same name. A `User-Agent` among them takes the place of the client's default
    /// one in the request for a tunnel. None by default.
    ///
    /// # Errors
    /// [`build`](crate::ClientBuilder::build) refuses headers that frame or route a message (`Host`, `Content-Length`,
    /// …), and any for a SOCKS5 proxy. With [`custom`](Self::custom) and a SOCKS5 proxy, the request fails instead.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.extras.set_headers(headers);
        self
    }

    /// Sets the hosts that are reached without the proxy, in place of those set before. None by default.
    pub fn no_proxy(mut self, no_proxy: Option<NoProxy>) -> Self {
        self.no_proxy = no_proxy.unwrap_or_default();
        self
    }

    fn of(servers: Servers) -> Self {
        Self { servers, extras: ProxyExtras::default(), no_proxy: NoProxy::default() }
    }

    /// Checks what can be known before there is a request.
    pub(crate) fn check(&self) -> Result<(), ProxyError> {
        self.extras.check_headers()?;
        let Servers::Fixed { http, https } = &self.servers else { return Ok(()) };
        let mut servers = http.iter().chain(https);
        servers.try_for_each(|server| self.extras.apply(server.clone()).map(drop))
    }

    /// Returns the server for requests to `origin`; `None` if the proxy is not for them.
    fn find(&self, origin: &Origin) -> Option<Result<ProxyServer, ProxyError>> {
        if self.no_proxy.contains(origin) {
            return None;
        }
        let server = match &self.servers {
            Servers::Fixed { http, .. } if origin.scheme() == Scheme::Http => Ok(http.clone()?),
            Servers::Fixed { https, .. } => Ok(https.clone()?),
            Servers::Custom(choose) => choose.0(&url_of(origin)?)?,
        };
        Some(server.and_then(|server| self.extras.apply(server)))
    }
}

impl Proxy {
    /// Returns true if a function of the user chooses the proxy for `origin`.
    fn asks_user_about(&self, origin: &Origin) -> bool {
        matches!(self.servers, Servers::Custom(_)) && !self.no_proxy.contains(origin)
    }
}

/// Returns the URL of an origin.
fn url_of(origin: &Origin) -> Option<Url> {
    Url::parse(&format!("{}://{origin}/", origin.scheme())).ok()
}

/// The proxies of a client.
#[derive(Clone)]
pub(crate) enum Proxies {
    /// No proxies: neither the user nor the environment names one.
    None,
    /// The proxies of the environment. Requests to this machine itself never use them.
    Environment(Box<ProxyRules>),
    /// The proxies of the user, in the order in which they were added; none if the user has turned them off.
    Given(Vec<Proxy>),
}

/// The environment's proxies for requests to `http` and to `https` URLs.
///
/// An invalid proxy of the environment is kept as its error: its requests must fail rather than go out without a proxy.
#[derive(Clone)]
pub(crate) struct ProxyRules {
    http: Option<FoundProxy>,
    https: Option<FoundProxy>,
    no_proxy: NoProxy,
}

/// A proxy of the environment.
#[derive(Clone)]
struct FoundProxy {
    /// The variable that names it.
    #[cfg_attr(not(feature = "doctor"), expect(dead_code, reason = "only a report shows it"))]
    variable: &'static str,
    server: Result<ProxyServer, ProxyError>,
}

impl ProxyRules {
    fn find(&self, origin: &Origin) -> Option<&Result<ProxyServer, ProxyError>> {
        let found = self.for_scheme(origin).filter(|_| !self.no_proxy.contains(origin));
        found.map(|found| &found.server)
    }

    fn for_scheme(&self, origin: &Origin) -> Option<&FoundProxy> {
        match origin.scheme() {
            Scheme::Http => self.http.as_ref(),
            Scheme::Https => self.https.as_ref(),
        }
    }
}

impl Proxies {
    /// Reads `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    pub(crate) fn from_environment() -> Self {
        // A value that is not Unicode is an invalid proxy, not an absent one.
        Self::from_variables(|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }

    /// Reads the variables.
    ///
    /// `HTTP_PROXY` is ignored in a CGI process (one with `REQUEST_METHOD`): there it holds the `Proxy` header of the
    /// request (CVE-2016-5385).
    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        // An empty variable does not hide the one in the other case, as in Go.
        let first = |names: &[&'static str]| {
            let mut values = names.iter().filter_map(|name| Some((*name, variable(name)?)));
            values.find(|(_, value)| !value.trim().is_empty())
        };
        let http_names: &[&'static str] = match variable("REQUEST_METHOD") {
            None => &["HTTP_PROXY", "http_proxy"],
            // Windows does not distinguish the two names.
            Some(_) if cfg!(windows) => &[],
            Some(_) => &["http_proxy"],
        };
        let proxy = |names: &[&'static str]| {
            first(names).map(|(variable, url)| FoundProxy { variable, server: ProxyServer::parse(&url) })
        };
        let all = proxy(&["ALL_PROXY", "all_proxy"]);
        let http = proxy(http_names).or_else(|| all.clone());
        let https = proxy(&["HTTPS_PROXY", "https_proxy"]).or(all);
        if http.is_none() && https.is_none() {
            return Self::None;
        }
        let no_proxy = NoProxy::from_variables(variable).unwrap_or_default();
        Self::Environment(Box::new(ProxyRules { http, https, no_proxy }))
    }

    /// Returns no proxies, by the choice of the user.
    pub(crate) fn off() -> Self {
        Self::Given(Vec::new())
    }

    /// Returns true if the user, not the environment, has set a proxy.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Given(all) if !all.is_empty())
    }

    /// Returns true if requests take the same ways by both. Those of the environment are read once, so they are the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) | (Self::Environment(_), Self::Environment(_)) => true,
            (Self::Given(own), Self::Given(other)) => own == other,
            _ => false,
        }
    }

    /// Adds a proxy of the user after those added before. The environment's proxies are no longer used.
    pub(crate) fn add(&mut self, proxy: Proxy) {
        match self {
            Self::Given(all) => all.push(proxy),
            Self::None | Self::Environment(_) => *self = Self::Given(vec![proxy]),
        }
    }

    /// Returns the first proxy for requests to `origin`; `None` if they go out without one.
    ///
    /// # Errors
    /// [`ProxyError`] if that proxy is invalid. Without it the requests might be visible to the network that it hides
    /// them from.
    pub(super) fn find(&self, origin: &Origin) -> Result<Option<ProxyServer>, ProxyError> {
        match self {
            Self::None => Ok(None),
            Self::Environment(_) if is_this_machine(origin.host()) => Ok(None),
            Self::Environment(rules) => rules.find(origin).cloned().transpose(),
            Self::Given(all) => all.iter().find_map(|proxy| proxy.find(origin)).transpose(),
        }
    }

    /// Returns true if it is known, without asking a function of the user, that requests to `origin` go out without a proxy.
    pub(super) fn surely_none_for(&self, origin: &Origin) -> bool {
        let asks_user = match self {
            Self::None | Self::Environment(_) => false,
            Self::Given(all) => all.iter().any(|proxy| proxy.asks_user_about(origin)),
        };
        !asks_user && matches!(self.find(origin), Ok(None))
    }
}

#[cfg(feature = "doctor")]
impl Proxy {
    /// Returns the entry of the list of hosts without this proxy that `origin` matches.
    fn exception_for(&self, origin: &Origin) -> Option<String> {
        self.no_proxy.entry_for(origin)
    }
}

#[cfg(feature = "doctor")]
impl Proxies {
    /// Returns the reason why requests to `origin` use the proxy that [`find`](Self::find) returns, or none.
    pub(super) fn reason(&self, origin: &Origin) -> String {
        match self {
            Self::None => "neither the client nor the environment names a proxy".to_owned(),
            Self::Environment(_) if is_this_machine(origin.host()) => {
                "requests to this machine never use the proxies of the environment".to_owned()
            }
            Self::Environment(rules) => rules.reason(origin),
            Self::Given(all) => reason_given(all, origin),
        }
    }
}

#[cfg(feature = "doctor")]
impl ProxyRules {
    fn reason(&self, origin: &Origin) -> String {
        let Some(found) = self.for_scheme(origin) else {
            return format!("the environment names a proxy, but none for {} URLs", origin.scheme());
        };
        match self.no_proxy.entry_for(origin) {
            Some(entry) => format!("NO_PROXY has the entry `{entry}`, so that {} does not count", found.variable),
            None => format!("the environment variable {} names it", found.variable),
        }
    }
}

#[cfg(feature = "doctor")]
fn reason_given(all: &[Proxy], origin: &Origin) -> String {
    if all.is_empty() {
        return "the client is set to use none".to_owned();
    }
    let of = |number: usize| format!("proxy {} of the {} that the client was given", number + 1, all.len());
    if let Some(number) = all.iter().position(|proxy| proxy.find(origin).is_some()) {
        return format!("it is {}, and the first that is for this origin", of(number));
    }
    let mut exceptions = all.iter().enumerate();
    match exceptions.find_map(|(number, proxy)| Some((number, proxy.exception_for(origin)?))) {
        Some((number, entry)) => format!("the list of hosts without {} has the entry `{entry}`", of(number)),
        None => format!("none of the {} that the client was given is for this origin", all.len()),
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => ip.to_canonical().is_loopback(),
        Host::Name(name) => is_name_of_this_machine(name),
    }
}

/// Returns true for `localhost` and the names below it, in lower case (RFC 6761 §6.3).
pub(crate) fn is_name_of_this_machine(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

/// A request's own choice of a proxy. Choices are equal if their proxies are: server, protocol, credentials, and the
/// requests that they are for.
pub(crate) struct ProxyChoice {
    /// The proxy; `None` to use none.
    proxy: Option<Proxy>,
    /// The rules of `proxy`, by which the server for a request is found.
    rules: Proxies,
}

impl ProxyChoice {
    /// Creates the choice of no proxy.
    pub(crate) fn none() -> Self {
        Self { proxy: None, rules: Proxies::None }
    }

    /// Creates the choice of `proxy`, for the requests that it applies to. Others use no proxy.
    pub(crate) fn through(proxy: Proxy) -> Self {
        let mut rules = Proxies::None;
        rules.add(proxy.clone());
        Self { proxy: Some(proxy), rules }
    }

    /// Returns true if no request uses a proxy.
    pub(in crate::connect) fn is_none(&self) -> bool {
        self.proxy.is_none()
    }

    /// Returns true if it is known that requests to `origin` go out without a proxy.
    pub(in crate::connect) fn surely_none_for(&self, origin: &Origin) -> bool {
        self.rules.surely_none_for(origin)
    }

    /// Returns the proxy for requests to `origin`; `None` if they go out without one.
    pub(in crate::connect) fn find(&self, origin: &Origin) -> Result<Option<ProxyServer>, ProxyError> {
        self.rules.find(origin)
    }
}

impl PartialEq for ProxyChoice {
    fn eq(&self, other: &Self) -> bool {
        self.proxy == other.proxy
    }
}

impl Eq for ProxyChoice {}

impl Hash for ProxyChoice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.proxy.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        Origin::from_url(&Url::parse(url).unwrap()).unwrap()
    }

    fn given(proxies: impl IntoIterator<Item = Proxy>) -> Proxies {
        let mut all = Proxies::None;
        proxies.into_iter().for_each(|proxy| all.add(proxy));
        all
    }

    fn found(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.find(&origin(url)).unwrap().map(|server| server.origin.to_string())
    }

    #[cfg(feature = "doctor")]
    #[test]
    fn proxies_that_are_turned_off_are_told_from_none_at_all() {
        let (off, none) = (Proxies::off(), Proxies::from_variables(|_| None));
        assert_eq!((found(&off, "http://api.test/"), found(&none, "http://api.test/")), (None, None));
        assert_eq!(off.reason(&origin("http://api.test/")), "the client is set to use none");
        let reason = none.reason(&origin("http://api.test/"));
        assert_eq!(reason, "neither the client nor the environment names a proxy");
        assert!(!off.is_given(), "a Unix domain socket may be set beside it");
    }

    #[test]
    fn invalid_urls_of_proxies_are_refused() {
        assert!(matches!(Proxy::for_all("ftp://proxy:21"), Err(ProxyError::Scheme(scheme)) if scheme == "ftp"));
        for wrong in ["http://", "", "pro xy", "proxy:99999", "http://proxy:0", "http://a%3Ab:secret@proxy"] {
            let error = Proxy::for_all(wrong).unwrap_err();
            assert!(matches!(error, ProxyError::Url(_)) && !error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }

    #[test]
    fn credentials_that_socks5_has_no_room_for_are_refused() {
        let (most, more) = ("x".repeat(255), "x".repeat(256));
        for scheme in ["socks5", "socks5h"] {
            assert!(Proxy::for_all(&format!("{scheme}://{most}:{most}@proxy")).is_ok());
            for (user, password) in [(&more, &most), (&most, &more)] {
                let error = Proxy::for_all(&format!("{scheme}://{user}:{password}@proxy")).unwrap_err().to_string();
                assert!(error.contains("longer than the 255 bytes of SOCKS5") && !error.contains("xx"), "{error}");
            }
        }
        assert!(Proxy::for_all(&format!("http://{more}:{more}@proxy")).is_ok());
    }

    #[test]
    fn credentials_of_a_proxy_are_not_shown() {
        for url in ["http://user:secret@proxy:3128", "user:secret@proxy:3128", "socks5h://user:secret@proxy:3128/@x"] {
            let text = format!("{:?}", Proxy::for_all(url).unwrap());
            assert!(text.contains("://proxy:3128") && !text.contains("secret") && !text.contains("user"), "{text}");
        }
    }

    #[test]
    fn the_url_of_a_proxy_may_be_written_in_several_ways() {
        let urls = [
            "http://proxy.test:3128\n",
            " http://me:pa^ss@proxy.test:3128",
            "HTTP://proxy.test:3128",
            "proxy.test:3128",
            "me:secret@proxy.test:3128/",
        ];
        for url in urls {
            let proxies = given([Proxy::for_all(url).unwrap()]);
            assert_eq!(found(&proxies, "http://api.test/").as_deref(), Some("proxy.test:3128"), "{url:?}");
        }
    }

    #[test]
    fn the_first_proxy_that_does_not_exclude_the_host_is_used() {
        let first = Proxy::for_http("one.test:1").unwrap().no_proxy(NoProxy::from_string("b.test"));
        let proxies = given([
            first,
            Proxy::for_all("two.test:2").unwrap().no_proxy(NoProxy::from_string("c.test")),
            Proxy::for_all("three.test:3").unwrap(),
        ]);
        assert_eq!(found(&proxies, "http://a.test/").as_deref(), Some("one.test:1"));
        assert_eq!(found(&proxies, "http://b.test/").as_deref(), Some("two.test:2"));
        assert_eq!(found(&proxies, "http://c.test/").as_deref(), Some("one.test:1"));
        assert_eq!(found(&given([]), "http://a.test/"), None);
    }

    #[test]
    fn the_last_list_of_excluded_hosts_counts() {
        let hosts = |list| NoProxy::from_string(list);
        let proxy =
            Proxy::for_all("one.test:1").unwrap().no_proxy(hosts("a.test")).no_proxy(hosts("b.test,10.0.0.0/8"));
        let proxies = given([proxy.clone()]);
        for direct in ["http://b.test/", "http://10.1.2.3/"] {
            assert_eq!(found(&proxies, direct), None, "{direct}");
        }
        assert_eq!(found(&proxies, "http://a.test/").as_deref(), Some("one.test:1"));
        assert_eq!(found(&given([proxy.no_proxy(None)]), "http://b.test/").as_deref(), Some("one.test:1"));
    }

    #[test]
    fn a_function_chooses_by_the_url_of_the_origin() {
        let custom = Proxy::custom(|url| match url.as_str() {
            "http://a.test/" => Some("one.test:1".to_owned()),
            "http://a.test:81/" => Some("no proxy".to_owned()),
            _ => None,
        });
        let proxies = given([custom.no_proxy(NoProxy::from_string("c.test")), Proxy::for_all("two.test:2").unwrap()]);
        assert_eq!(found(&proxies, "http://a.test/path?q=1").as_deref(), Some("one.test:1"));
        assert_eq!(found(&proxies, "http://b.test/").as_deref(), Some("two.test:2"));
        assert!(proxies.find(&origin("http://a.test:81/")).is_err());
        let url = Proxy::for_all("http://three.test:3").unwrap();
        assert_eq!(found(&given([url]), "http://a.test/").as_deref(), Some("three.test:3"));
    }

    #[test]
    fn additions_that_the_proxy_has_no_place_for_are_refused() {
        let header =
            |name: &'static str| HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static("1"))]);
        let socks = || Proxy::for_all("socks5://proxy.test").unwrap();
        let http = || Proxy::for_all("http://proxy.test").unwrap();
        assert_eq!(socks().headers(header("x")).check(), Err(ProxyError::NotHttp("headers")));
        let custom = socks().custom_http_auth(HeaderValue::from_static("Bearer secret"));
        assert_eq!(custom.check(), Err(ProxyError::NotHttp("custom_http_auth")));
        assert!(socks().basic_auth("me:x", "secret").check().is_ok());
        assert!(socks().basic_auth(&"x".repeat(256), "").check().is_err());
        assert!(http().basic_auth("me:x", "secret").check().is_err());
        assert!(http().basic_auth("me", "secret").headers(header("x")).check().is_ok());
        for name in ["host", "content-length", "transfer-encoding", "connection"] {
            for proxy in [http(), socks(), Proxy::custom(|_| None::<String>)] {
                assert!(matches!(proxy.headers(header(name)).check(), Err(ProxyError::Header(known)) if known == name));
            }
        }
        let text = format!("{:?}", http().basic_auth("my-user", "my-password").headers(header("x-key")));
        assert!(!text.contains("my-") && text.contains("x-key") && !text.contains("\"1\""), "{text}");
    }

    fn from_variables(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_variables(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_environments_proxies_are_not_used_for_this_machine() {
        let plain = from_variables(&[("HTTP_PROXY", "one.test:3128"), ("NO_PROXY", "api.local")]);
        assert_eq!(found(&plain, "http://api.test/").as_deref(), Some("one.test:3128"));
        assert_eq!(found(&plain, "http://api.local/"), None);
        for this_machine in ["127.0.0.1", "[::1]", "localhost", "localhost.", "v1.localhost", "v1.localhost."] {
            assert_eq!(found(&plain, &format!("http://{this_machine}/")), None, "{this_machine}");
        }
        assert!(matches!(from_variables(&[("HTTP_PROXY", "")]), Proxies::None));
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn all_proxy_is_for_schemes_without_a_variable_of_their_own() {
        let plain = from_variables(&[("HTTP_PROXY", "one.test:3128")]);
        assert_eq!(found(&plain, "https://api.test/"), None);
        let both = from_variables(&[("HTTPS_PROXY", "http://two.test"), ("all_proxy", "socks5h://three.test")]);
        assert_eq!(found(&both, "https://api.test/").as_deref(), Some("two.test:80"));
        assert_eq!(found(&both, "http://api.test/").as_deref(), Some("three.test:1080"));
    }

    #[test]
    fn an_empty_variable_does_not_hide_the_one_in_the_other_case() {
        let empty = [("HTTP_PROXY", ""), ("ALL_PROXY", " "), ("NO_PROXY", "")];
        let lower = [("http_proxy", "one.test:3128"), ("all_proxy", "two.test"), ("no_proxy", "api.local")];
        let proxies = from_variables(&[empty, lower].concat());
        assert_eq!(found(&proxies, "http://api.test/").as_deref(), Some("one.test:3128"));
        assert_eq!(found(&proxies, "http://api.local/"), None);
        let both = from_variables(&[("HTTP_PROXY", "upper.test:1"), ("http_proxy", "lower.test:2")]);
        assert_eq!(found(&both, "http://api.test/").as_deref(), Some("upper.test:1"));
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn http_proxy_in_upper_case_is_ignored_under_cgi() {
        let cgi = [("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil.test"), ("HTTPS_PROXY", "http://good.test")];
        let proxies = from_variables(&cgi);
        assert!(proxies.find(&origin("http://api.test/")).unwrap().is_none());
        assert!(proxies.find(&origin("https://api.test/")).unwrap().is_some());
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn an_invalid_proxy_of_the_environment_fails_its_requests() {
        for wrong in ["http://", "ftp://proxy.test", "socks4://proxy.test", "http://pro xy"] {
            let proxies = from_variables(&[("HTTP_PROXY", wrong), ("NO_PROXY", "api.local")]);
            assert!(proxies.find(&origin("http://api.test/")).is_err(), "{wrong}");
            assert!(proxies.find(&origin("http://api.local/")).unwrap().is_none());
            assert!(proxies.find(&origin("https://api.test/")).unwrap().is_none());
        }
    }

    #[test]
    fn a_proxy_is_found_by_scheme_and_host() {
        let proxies = given([Proxy::for_all("http://user:secret@proxy.test:3128")
            .unwrap()
            .no_proxy(NoProxy::from_string(".local,10.0.0.0/8"))]);
        let found = |proxies: &Proxies, url| proxies.find(&origin(url)).unwrap();
        let server = found(&proxies, "http://api.test/").unwrap();
        assert_eq!(server.origin.to_string(), "proxy.test:3128");
        let authorization = server.forwards(&origin("http://api.test/")).unwrap().authorization.unwrap();
        assert_eq!(authorization, "Basic dXNlcjpzZWNyZXQ=");
        assert!(server.forwards(&origin("http://api.test/")).is_some() && !server.wants_addresses());
        assert!(found(&proxies, "http://api.local/").is_none());
        assert!(found(&proxies, "http://10.1.2.3/").is_none());
        let only_https = given([Proxy::for_https("socks5://proxy.test").unwrap()]);
        assert!(found(&only_https, "http://api.test/").is_none());
        assert!(found(&Proxies::None, "http://api.test/").is_none());
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn a_socks_proxy_has_port_1080_and_may_want_addresses() {
        for (scheme, addresses) in [("socks5", true), ("socks5h", false)] {
            let proxies = given([Proxy::for_https(&format!("{scheme}://proxy.test")).unwrap()]);
            let server = proxies.find(&origin("https://api.test/")).unwrap().unwrap();
            assert_eq!((server.origin.port(), server.wants_addresses()), (1_080, addresses));
            assert!(server.forwards(&origin("https://api.test/")).is_none());
        }
    }
}

#[cfg(test)]
mod choice_tests {
    use super::*;
    use crate::connect::NoProxy;

    fn through(url: &str) -> ProxyChoice {
        ProxyChoice::through(Proxy::for_all(url).unwrap())
    }

    #[test]
    fn choices_are_equal_if_server_protocol_credentials_and_rules_are() {
        let proxy = || Proxy::for_all("http://proxy.test").unwrap();
        let without = |hosts| ProxyChoice::through(proxy().no_proxy(NoProxy::from_string(hosts)));
        assert!(through("http://me:secret@proxy.test:80") == through("me:secret@PROXY.test"));
        assert!(without("a.test, b.test") == without("a.test,b.test"));
        assert!(ProxyChoice::none() == ProxyChoice::none());
        let different = [
            through("http://proxy.test"),
            through("http://proxy.test:81"),
            through("http://other.test"),
            through("http://me@proxy.test"),
            through("http://me:secret@proxy.test"),
            through("http://me:other@proxy.test"),
            through("socks5://proxy.test:80"),
            through("socks5h://proxy.test:80"),
            through("socks5h://me:secret@proxy.test:80"),
            through("socks5h://me:other@proxy.test:80"),
            ProxyChoice::through(Proxy::for_http("http://proxy.test").unwrap()),
            ProxyChoice::through(Proxy::for_https("http://proxy.test").unwrap()),
            without("a.test"),
            without("a.test:81"),
            ProxyChoice::none(),
        ];
        for (index, one) in different.iter().enumerate() {
            let equal: Vec<_> = (0..different.len()).filter(|other| different[*other] == *one).collect();
            assert_eq!(equal, [index]);
        }
    }
}
