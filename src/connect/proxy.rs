//! Proxies: which one a request goes through, and what is said to it before the connection is the origin's.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tower_service::Service;
use url::Url;

use crate::origin::{Host, Origin, Scheme};
use crate::transport::Stream;

/// A proxy, for the requests it is meant for.
///
/// `http://` and `https://` proxies are asked to forward plain requests and to tunnel the others (CONNECT, RFC 9110
/// §9.3.6); `socks5://` ones get addresses that this client has looked up, `socks5h://` ones the names themselves (RFC 1928).
/// User name and password may stand in the URL.
///
/// ```
/// use speeddial::Proxy;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let proxy = Proxy::all("http://user:password@proxy.internal:3128")?.no_proxy("localhost,.internal,10.0.0.0/8");
/// let client = speeddial::Client::builder().proxy(proxy).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Proxy {
    http: Option<String>,
    https: Option<String>,
    no: String,
}

/// Why something cannot be a proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It is no URL with a host.
    #[error("the proxy's URL is not one: {0}")]
    Url(String),
    /// Its scheme is none of `http`, `https`, `socks5` and `socks5h`.
    #[error("no proxy is spoken to by `{0}`")]
    Scheme(String),
}

impl Proxy {
    /// A proxy for all requests.
    ///
    /// # Errors
    /// [`ProxyError`] for what is not the URL of a proxy.
    pub fn all(url: &str) -> Result<Self, ProxyError> {
        let url = checked(url)?;
        Ok(Self { http: Some(url.clone()), https: Some(url), no: String::new() })
    }

    /// A proxy for requests to `http` URLs.
    ///
    /// # Errors
    /// [`ProxyError`] for what is not the URL of a proxy.
    pub fn http(url: &str) -> Result<Self, ProxyError> {
        Ok(Self { http: Some(checked(url)?), https: None, no: String::new() })
    }

    /// A proxy for requests to `https` URLs.
    ///
    /// # Errors
    /// [`ProxyError`] for what is not the URL of a proxy.
    pub fn https(url: &str) -> Result<Self, ProxyError> {
        Ok(Self { http: None, https: Some(checked(url)?), no: String::new() })
    }

    /// The hosts it is not meant for: names, domains with their subdomains, addresses and networks, with commas in between,
    /// as in `NO_PROXY`.
    pub fn no_proxy(mut self, hosts: &str) -> Self {
        self.no = hosts.to_owned();
        self
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |url: &Option<String>| url.as_ref().map(|url| url.rsplit('@').next().unwrap_or_default().to_owned());
        let (http, https) = (shown(&self.http), shown(&self.https));
        f.debug_struct("Proxy").field("http", &http).field("https", &https).field("no_proxy", &self.no).finish()
    }
}

fn checked(text: &str) -> Result<String, ProxyError> {
    let url = Url::parse(text).map_err(|error| ProxyError::Url(error.to_string()))?;
    match url.scheme() {
        _ if url.host_str().is_none_or(str::is_empty) => Err(ProxyError::Url("it has no host".to_owned())),
        "http" | "socks5" | "socks5h" => Ok(text.to_owned()),
        "https" if cfg!(feature = "__tls") => Ok(text.to_owned()),
        other => Err(ProxyError::Scheme(other.to_owned())),
    }
}

/// The proxies of a client.
pub(crate) enum Proxies {
    None,
    /// Those of the environment, which cannot be meant for this machine itself.
    Environment(Matcher),
    Given(Matcher),
}

impl Proxies {
    /// Those of `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`. The first is not believed where a web server has
    /// started the process: a request's header of that name would be in it (CVE-2016-5385).
    pub(crate) fn from_environment() -> Self {
        let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
        match names.iter().any(|name| std::env::var_os(name).is_some()) {
            true => Self::Environment(Matcher::from_env()),
            false => Self::None,
        }
    }

    pub(crate) fn new(proxy: &Proxy) -> Self {
        let mut builder = Matcher::builder().no(proxy.no.clone());
        if let Some(http) = &proxy.http {
            builder = builder.http(http.clone());
        }
        if let Some(https) = &proxy.https {
            builder = builder.https(https.clone());
        }
        Self::Given(builder.build())
    }

    /// The proxy that requests to `origin` go through, if any.
    ///
    /// # Errors
    /// Where there is to be one that cannot be spoken to: to do without it might be to say aloud what is secret.
    pub(super) fn find(&self, origin: &Origin) -> Result<Option<Way>, ProxyError> {
        let matcher = match self {
            Self::None => return Ok(None),
            Self::Environment(_) if is_this_machine(origin.host()) => return Ok(None),
            Self::Environment(matcher) | Self::Given(matcher) => matcher,
        };
        let uri = format!("{}://{origin}/", origin.scheme()).parse::<Uri>().ok();
        let intercept = uri.and_then(|uri| matcher.intercept(&uri));
        intercept.map(|intercept| Way::new(&intercept)).transpose()
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => ip.to_canonical().is_loopback(),
        Host::Name(name) => &**name == "localhost" || name.ends_with(".localhost"),
    }
}

/// The way through a proxy.
#[derive(Clone)]
pub(crate) struct Way {
    /// Where the proxy is.
    pub(super) proxy: Origin,
    speaks: Speaks,
}

#[derive(Clone)]
enum Speaks {
    Http { authorization: Option<HeaderValue> },
    Socks5 { credentials: Option<(String, String)>, names: bool },
}

impl Way {
    fn new(intercept: &Intercept) -> Result<Self, ProxyError> {
        let uri = intercept.uri();
        let scheme = uri.scheme_str().unwrap_or("http");
        let (outer, port, speaks) = match scheme {
            "http" => ("http", 80, Speaks::Http { authorization: intercept.basic_auth().cloned() }),
            "https" => ("https", 443, Speaks::Http { authorization: intercept.basic_auth().cloned() }),
            "socks5" | "socks5h" => {
                let credentials = intercept.raw_auth().map(|(user, password)| (user.to_owned(), password.to_owned()));
                ("http", 1_080, Speaks::Socks5 { credentials, names: scheme == "socks5h" })
            }
            other => return Err(ProxyError::Scheme(other.to_owned())),
        };
        let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(port));
        let url =
            Url::parse(&format!("{outer}://{host}:{port}/")).map_err(|error| ProxyError::Url(error.to_string()))?;
        let proxy = Origin::from_url(&url).map_err(|error| ProxyError::Url(error.to_string()))?;
        Ok(Self { proxy, speaks })
    }

    /// Whether requests to `origin` are handed to the proxy as they are, rather than through a tunnel; and what it has to
    /// be shown then.
    pub(super) fn forwards(&self, origin: &Origin) -> Option<Forwarding> {
        match &self.speaks {
            Speaks::Http { authorization } if origin.scheme() == Scheme::Http => {
                Some(Forwarding { authorization: authorization.clone() })
            }
            _ => None,
        }
    }

    /// Whether the proxy wants addresses, and leaves the lookup to its client.
    pub(super) fn wants_addresses(&self) -> bool {
        matches!(self.speaks, Speaks::Socks5 { names: false, .. })
    }

    /// Asks the proxy at the other end of `stream` to lead on to `host`.
    pub(super) async fn lead_on(&self, stream: Box<dyn Stream>, host: &Host, port: u16) -> io::Result<Box<dyn Stream>> {
        let destination: Uri = format!("http://{host}:{port}").parse().map_err(io::Error::other)?;
        let proxy = Uri::from_static("http://proxy");
        let connected = Connected(Some(TokioIo::new(stream)));
        let stream = match &self.speaks {
            Speaks::Http { authorization } => {
                let tunnel = Tunnel::new(proxy, connected);
                let mut tunnel = match authorization {
                    Some(authorization) => tunnel.with_auth(authorization.clone()),
                    None => tunnel,
                };
                tunnel.call(destination).await.map_err(io::Error::other)?
            }
            Speaks::Socks5 { credentials, .. } => {
                let socks = SocksV5::new(proxy, connected);
                let mut socks = match credentials.clone() {
                    Some((user, password)) => socks.with_auth(user, password),
                    None => socks,
                };
                socks.call(destination).await.map_err(io::Error::other)?
            }
        };
        Ok(stream.into_inner())
    }
}

/// What a request needs that a proxy forwards: its target in absolute form (RFC 9112 §3.2.2), and this.
#[derive(Debug, Clone)]
pub(crate) struct Forwarding {
    pub(crate) authorization: Option<HeaderValue>,
}

/// A stream that is connected already, for those who want to connect it themselves.
struct Connected(Option<TokioIo<Box<dyn Stream>>>);

impl Service<Uri> for Connected {
    type Response = TokioIo<Box<dyn Stream>>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        std::future::ready(self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

/// How a client is led to its origins.
pub(crate) enum Route {
    Direct,
    /// To one Unix domain socket, whatever the origin is.
    #[cfg(unix)]
    Unix(Arc<std::path::Path>),
    Through(Way),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Origin {
        Origin::from_url(&Url::parse(url).unwrap()).unwrap()
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        assert!(matches!(Proxy::all("ftp://proxy:21"), Err(ProxyError::Scheme(scheme)) if scheme == "ftp"));
        assert!(matches!(Proxy::all("http://"), Err(ProxyError::Url(_))));
        assert!(matches!(Proxy::all("nonsense"), Err(ProxyError::Url(_))));
        let text = format!("{:?}", Proxy::all("http://user:secret@proxy:3128").unwrap());
        assert!(text.contains("proxy:3128") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn each_request_finds_its_proxy() {
        let proxies =
            Proxies::new(&Proxy::all("http://user:secret@proxy.test:3128").unwrap().no_proxy(".local,10.0.0.0/8"));
        let found = |proxies: &Proxies, url| proxies.find(&origin(url)).unwrap();
        let way = found(&proxies, "http://api.test/").unwrap();
        assert_eq!(way.proxy.to_string(), "proxy.test:3128");
        let authorization = way.forwards(&origin("http://api.test/")).unwrap().authorization.unwrap();
        assert_eq!(authorization, "Basic dXNlcjpzZWNyZXQ=");
        assert!(way.forwards(&origin("http://api.test/")).is_some() && !way.wants_addresses());
        assert!(found(&proxies, "http://api.local/").is_none());
        assert!(found(&proxies, "http://10.1.2.3/").is_none());
        let only_https = Proxies::new(&Proxy::https("socks5://proxy.test").unwrap());
        assert!(found(&only_https, "http://api.test/").is_none());
        assert!(found(&Proxies::None, "http://api.test/").is_none());
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn a_socks_proxy_has_its_own_port_and_may_want_addresses() {
        for (scheme, addresses) in [("socks5", true), ("socks5h", false)] {
            let proxies = Proxies::new(&Proxy::https(&format!("{scheme}://proxy.test")).unwrap());
            let way = proxies.find(&origin("https://api.test/")).unwrap().unwrap();
            assert_eq!((way.proxy.port(), way.wants_addresses()), (1_080, addresses));
            assert!(way.forwards(&origin("https://api.test/")).is_none());
        }
    }
}
