//! Proxies: which one a request goes through, and what is said to it before the connection is the origin's.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;
use url::Url;

use super::no_proxy::NoProxy;
use crate::credentials::Credentials;
use crate::origin::{Host, Origin, Scheme};
use crate::transport::Stream;

/// A proxy, for the requests it is meant for.
///
/// `http://` and `https://` proxies are asked to forward plain requests and to tunnel the others (CONNECT, RFC 9110
/// §9.3.6); `socks5://` ones get addresses that this client has looked up, `socks5h://` ones the names themselves (RFC 1928).
/// A URL without a scheme (`proxy.internal:3128`) is that of an HTTP proxy. User name and password may stand in the URL; `Debug`
/// does not show them.
///
/// ```
/// use speeddial::Proxy;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let proxy = Proxy::all("http://user:password@proxy.internal:3128")?.no_proxy("localhost,.internal,10.0.0.0/8");
/// let client = speeddial::Client::builder().proxy(proxy).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Proxy {
    http: Option<Way>,
    https: Option<Way>,
    no_proxy: NoProxy,
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
        let way = Way::parse(url)?;
        Ok(Self { http: Some(way.clone()), https: Some(way), no_proxy: NoProxy::default() })
    }

    /// A proxy for requests to `http` URLs.
    ///
    /// # Errors
    /// [`ProxyError`] for what is not the URL of a proxy.
    pub fn http(url: &str) -> Result<Self, ProxyError> {
        Ok(Self { http: Some(Way::parse(url)?), https: None, no_proxy: NoProxy::default() })
    }

    /// A proxy for requests to `https` URLs.
    ///
    /// # Errors
    /// [`ProxyError`] for what is not the URL of a proxy.
    pub fn https(url: &str) -> Result<Self, ProxyError> {
        Ok(Self { http: None, https: Some(Way::parse(url)?), no_proxy: NoProxy::default() })
    }

    /// The hosts it is not meant for, as in `NO_PROXY`, with commas or spaces in between: `*`, addresses, networks
    /// (`10.0.0.0/8`), names, which stand for their subdomains as well, and `*.name` for the subdomains alone. An entry that ends
    /// in a port (`name:8080`, `[::1]:8080`) stands for that port alone. Said more than once, all of them count.
    pub fn no_proxy(mut self, hosts: &str) -> Self {
        self.no_proxy.add(hosts);
        self
    }
}

/// The proxies of a client.
pub(crate) enum Proxies {
    None,
    /// Those of the environment, which cannot be meant for this machine itself.
    Environment(Box<Rules>),
    /// Those the user named, in the order in which they were added.
    Given(Vec<Rules>),
}

/// The proxies for requests to `http` and to `https` URLs. One that cannot be a proxy is kept as its error, so that its requests
/// fail rather than go without.
pub(crate) struct Rules {
    http: Option<Result<Way, ProxyError>>,
    https: Option<Result<Way, ProxyError>>,
    no_proxy: NoProxy,
}

impl Rules {
    fn find(&self, origin: &Origin) -> Option<&Result<Way, ProxyError>> {
        let way = match origin.scheme() {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        };
        way.as_ref().filter(|_| !self.no_proxy.contains(origin))
    }
}

impl Proxies {
    /// Those of `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    pub(crate) fn from_environment() -> Self {
        // What is not Unicode is no proxy, but it is there.
        Self::from_variables(|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }

    /// `HTTP_PROXY` is not believed where a web server has started the process: a request's header of that name would be in
    /// it (CVE-2016-5385).
    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        // An empty variable does not hide the other one of its name (as Go has it).
        let first = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| variable(name));
            values.find(|value| !value.trim().is_empty())
        };
        let http_names: &[&str] = match variable("REQUEST_METHOD") {
            None => &["HTTP_PROXY", "http_proxy"],
            // Windows does not tell the two apart.
            Some(_) if cfg!(windows) => &[],
            Some(_) => &["http_proxy"],
        };
        let proxy = |names: &[&str]| first(names).map(|url| Way::parse(&url));
        let all = proxy(&["ALL_PROXY", "all_proxy"]);
        let http = proxy(http_names).or_else(|| all.clone());
        let https = proxy(&["HTTPS_PROXY", "https_proxy"]).or(all);
        if http.is_none() && https.is_none() {
            return Self::None;
        }
        let no_proxy = NoProxy::parse(&first(&["NO_PROXY", "no_proxy"]).unwrap_or_default());
        Self::Environment(Box::new(Rules { http, https, no_proxy }))
    }

    /// Returns true if the user named a proxy, rather than the environment.
    #[cfg(unix)]
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Given(_))
    }

    /// Adds a proxy that the user named, after those named before. Those of the environment are not used any more.
    pub(crate) fn add(&mut self, proxy: Proxy) {
        let Proxy { http, https, no_proxy } = proxy;
        let rules = Rules { http: http.map(Ok), https: https.map(Ok), no_proxy };
        match self {
            Self::Given(all) => all.push(rules),
            Self::None | Self::Environment(_) => *self = Self::Given(vec![rules]),
        }
    }

    /// The proxy that requests to `origin` go through, if any: the first that is meant for it.
    ///
    /// # Errors
    /// Where there is to be one that cannot be spoken to: to do without it might be to say aloud what is secret.
    pub(super) fn find(&self, origin: &Origin) -> Result<Option<Way>, ProxyError> {
        let all: &[Rules] = match self {
            Self::None => &[],
            Self::Environment(_) if is_this_machine(origin.host()) => &[],
            Self::Environment(rules) => std::slice::from_ref(rules.as_ref()),
            Self::Given(all) => all,
        };
        all.iter().find_map(|rules| rules.find(origin)).cloned().transpose()
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => ip.to_canonical().is_loopback(),
        Host::Name(name) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
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
    Socks5 { credentials: Option<Credentials>, names: bool },
}

impl fmt::Debug for Way {
    // Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.speaks {
            Speaks::Http { .. } => write!(f, "{}://{}", self.proxy.scheme(), self.proxy),
            Speaks::Socks5 { names: false, .. } => write!(f, "socks5://{}", self.proxy),
            Speaks::Socks5 { names: true, .. } => write!(f, "socks5h://{}", self.proxy),
        }
    }
}

impl Speaks {
    fn http(credentials: Option<Credentials>) -> Result<Self, ProxyError> {
        let authorization = credentials.as_ref().map(Credentials::basic).transpose();
        Ok(Self::Http { authorization: authorization.map_err(|error| ProxyError::Url(error.to_string()))? })
    }
}

impl Way {
    /// Parses the URL of a proxy. One without a scheme is that of an HTTP proxy, as Go, curl and reqwest have it.
    fn parse(text: &str) -> Result<Self, ProxyError> {
        let invalid = |error: url::ParseError| ProxyError::Url(error.to_string());
        let text = text.trim();
        let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
        let mut url = url.map_err(invalid)?;
        let credentials = Credentials::take(&mut url);
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(ProxyError::Url("it has no host".to_owned()));
        };
        let (scheme, usual_port, speaks) = match url.scheme() {
            "http" => ("http", 80, Speaks::http(credentials)?),
            "https" if cfg!(feature = "__tls") => ("https", 443, Speaks::http(credentials)?),
            "socks5" => ("http", 1_080, Speaks::Socks5 { credentials, names: false }),
            "socks5h" => ("http", 1_080, Speaks::Socks5 { credentials, names: true }),
            other => return Err(ProxyError::Scheme(other.to_owned())),
        };
        // In a URL of a scheme that `url` does not know, the host is any text: it is read again, as that of one it knows.
        let port = url.port().unwrap_or(usual_port);
        let known = Url::parse(&format!("{scheme}://{host}:{port}/")).map_err(invalid)?;
        let proxy = Origin::from_url(&known).map_err(|error| ProxyError::Url(error.to_string()))?;
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
    pub(super) async fn lead_on(
        &self,
        stream: Box<dyn Stream>,
        host: &Host,
        port: u16,
    ) -> Result<Box<dyn Stream>, NotLed> {
        let heard = Arc::new(AtomicUsize::new(0));
        let asked = self.ask(Sipped { stream, heard: heard.clone() }, host, port).await;
        asked.map_err(|error| {
            let heard = heard.load(Ordering::Relaxed);
            let refused = matches!(self.speaks, Speaks::Socks5 { .. }) && heard > SOCKS5_ADMITTED;
            NotLed { error, answered: heard > 0, refused }
        })
    }

    async fn ask(&self, stream: Sipped, host: &Host, port: u16) -> io::Result<Box<dyn Stream>> {
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
                let mut socks = match credentials.as_ref().map(Credentials::to_text) {
                    Some((user, password)) => socks.with_auth(user, password),
                    None => socks,
                };
                socks.call(destination).await.map_err(io::Error::other)?
            }
        };
        Ok(stream.into_inner().stream)
    }
}

/// A proxy did not lead on.
pub(super) struct NotLed {
    pub(super) error: io::Error,
    /// Whether it said so itself, rather than nothing at all.
    pub(super) answered: bool,
    /// Whether it was this host that it would not, or could not, lead on to.
    pub(super) refused: bool,
}

/// So many bytes are the answers to a client's methods and credentials (RFC 1928 §3, RFC 1929 §2); what follows is about the
/// host.
const SOCKS5_ADMITTED: usize = 4;

/// A stream that is read a byte at a time: who asks a proxy reads as much as there is, and what comes behind the proxy's
/// answer is the origin's and would be lost.
struct Sipped {
    stream: Box<dyn Stream>,
    /// How much was read.
    heard: Arc<AtomicUsize>,
}

impl AsyncRead for Sipped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        let mut sip = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut sip))?;
        self.heard.fetch_add(sip.filled().len(), Ordering::Relaxed);
        buf.put_slice(sip.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Sipped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What a request needs that a proxy forwards: its target in absolute form (RFC 9112 §3.2.2), and this.
#[derive(Debug, Clone)]
pub(crate) struct Forwarding {
    pub(crate) authorization: Option<HeaderValue>,
}

/// A stream that is connected already, for those who want to connect it themselves.
struct Connected(Option<TokioIo<Sipped>>);

impl Service<Uri> for Connected {
    type Response = TokioIo<Sipped>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        std::future::ready(self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

/// Where a dial leads instead of to the origin's own addresses.
pub(crate) enum Detour {
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

    fn given(proxies: impl IntoIterator<Item = Proxy>) -> Proxies {
        let mut all = Proxies::None;
        proxies.into_iter().for_each(|proxy| all.add(proxy));
        all
    }

    fn found(proxies: &Proxies, url: &str) -> Option<String> {
        proxies.find(&origin(url)).unwrap().map(|way| way.proxy.to_string())
    }

    #[test]
    fn what_is_no_proxy_is_refused() {
        assert!(matches!(Proxy::all("ftp://proxy:21"), Err(ProxyError::Scheme(scheme)) if scheme == "ftp"));
        for wrong in ["http://", "", "pro xy", "proxy:99999", "http://proxy:0", "http://a%3Ab:secret@proxy"] {
            let error = Proxy::all(wrong).unwrap_err();
            assert!(matches!(error, ProxyError::Url(_)) && !error.to_string().contains("secret"), "{wrong}: {error}");
        }
    }

    #[test]
    fn credentials_of_a_proxy_are_not_shown() {
        for url in ["http://user:secret@proxy:3128", "user:secret@proxy:3128", "socks5h://user:secret@proxy:3128/@x"] {
            let text = format!("{:?}", Proxy::all(url).unwrap());
            assert!(text.contains("://proxy:3128") && !text.contains("secret") && !text.contains("user"), "{text}");
        }
    }

    #[test]
    fn a_proxy_is_found_however_its_url_is_written_or_refused_at_once() {
        let urls = [
            "http://proxy.test:3128\n",
            " http://me:pa^ss@proxy.test:3128",
            "HTTP://proxy.test:3128",
            "proxy.test:3128",
            "me:secret@proxy.test:3128/",
        ];
        for url in urls {
            let proxies = given([Proxy::all(url).unwrap()]);
            assert_eq!(found(&proxies, "http://api.test/").as_deref(), Some("proxy.test:3128"), "{url:?}");
        }
    }

    #[test]
    fn the_first_proxy_that_is_meant_for_a_request_is_used() {
        let first = Proxy::http("one.test:1").unwrap().no_proxy("b.test");
        let proxies =
            given([first, Proxy::all("two.test:2").unwrap().no_proxy("c.test"), Proxy::all("three.test:3").unwrap()]);
        assert_eq!(found(&proxies, "http://a.test/").as_deref(), Some("one.test:1"));
        assert_eq!(found(&proxies, "http://b.test/").as_deref(), Some("two.test:2"));
        assert_eq!(found(&proxies, "http://c.test/").as_deref(), Some("one.test:1"));
        assert_eq!(found(&given([]), "http://a.test/"), None);
    }

    #[test]
    fn the_hosts_that_a_proxy_is_not_meant_for_add_up() {
        let proxies = given([Proxy::all("one.test:1").unwrap().no_proxy("a.test").no_proxy("b.test,10.0.0.0/8")]);
        for direct in ["http://a.test/", "http://b.test/", "http://10.1.2.3/"] {
            assert_eq!(found(&proxies, direct), None, "{direct}");
        }
        assert_eq!(found(&proxies, "http://c.test/").as_deref(), Some("one.test:1"));
    }

    fn of_variables(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_variables(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_environment_names_proxies_as_curl_has_it() {
        let plain = of_variables(&[("HTTP_PROXY", "one.test:3128"), ("NO_PROXY", "api.local")]);
        assert_eq!(found(&plain, "http://api.test/").as_deref(), Some("one.test:3128"));
        assert_eq!(found(&plain, "http://api.local/"), None);
        for this_machine in ["127.0.0.1", "[::1]", "localhost", "localhost.", "v1.localhost", "v1.localhost."] {
            assert_eq!(found(&plain, &format!("http://{this_machine}/")), None, "this machine needs none");
        }
        assert!(matches!(of_variables(&[("HTTP_PROXY", "")]), Proxies::None));
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn each_scheme_has_its_variable_and_all_proxy_is_for_the_rest() {
        let plain = of_variables(&[("HTTP_PROXY", "one.test:3128")]);
        assert_eq!(found(&plain, "https://api.test/"), None);
        let both = of_variables(&[("HTTPS_PROXY", "http://two.test"), ("all_proxy", "socks5h://three.test")]);
        assert_eq!(found(&both, "https://api.test/").as_deref(), Some("two.test:80"));
        assert_eq!(found(&both, "http://api.test/").as_deref(), Some("three.test:1080"));
    }

    #[test]
    fn an_empty_variable_does_not_hide_the_other_one_of_its_name() {
        let empty = [("HTTP_PROXY", ""), ("ALL_PROXY", " "), ("NO_PROXY", "")];
        let lower = [("http_proxy", "one.test:3128"), ("all_proxy", "two.test"), ("no_proxy", "api.local")];
        let proxies = of_variables(&[empty, lower].concat());
        assert_eq!(found(&proxies, "http://api.test/").as_deref(), Some("one.test:3128"));
        assert_eq!(found(&proxies, "http://api.local/"), None);
        let both = of_variables(&[("HTTP_PROXY", "upper.test:1"), ("http_proxy", "lower.test:2")]);
        assert_eq!(found(&both, "http://api.test/").as_deref(), Some("upper.test:1"));
    }

    #[test]
    fn under_cgi_a_header_names_no_proxy_and_the_other_variables_do() {
        let cgi = [("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil.test"), ("HTTPS_PROXY", "http://good.test")];
        let proxies = of_variables(&cgi);
        assert!(proxies.find(&origin("http://api.test/")).unwrap().is_none());
        assert!(proxies.find(&origin("https://api.test/")).unwrap().is_some());
    }

    #[test]
    fn a_proxy_of_the_environment_that_cannot_be_one_is_not_done_without() {
        for wrong in ["http://", "ftp://proxy.test", "socks4://proxy.test", "http://pro xy"] {
            let proxies = of_variables(&[("HTTP_PROXY", wrong), ("NO_PROXY", "api.local")]);
            assert!(proxies.find(&origin("http://api.test/")).is_err(), "{wrong}");
            assert!(proxies.find(&origin("http://api.local/")).unwrap().is_none());
            assert!(proxies.find(&origin("https://api.test/")).unwrap().is_none());
        }
    }

    #[test]
    fn each_request_finds_its_proxy() {
        let proxies = given([Proxy::all("http://user:secret@proxy.test:3128").unwrap().no_proxy(".local,10.0.0.0/8")]);
        let found = |proxies: &Proxies, url| proxies.find(&origin(url)).unwrap();
        let way = found(&proxies, "http://api.test/").unwrap();
        assert_eq!(way.proxy.to_string(), "proxy.test:3128");
        let authorization = way.forwards(&origin("http://api.test/")).unwrap().authorization.unwrap();
        assert_eq!(authorization, "Basic dXNlcjpzZWNyZXQ=");
        assert!(way.forwards(&origin("http://api.test/")).is_some() && !way.wants_addresses());
        assert!(found(&proxies, "http://api.local/").is_none());
        assert!(found(&proxies, "http://10.1.2.3/").is_none());
        let only_https = given([Proxy::https("socks5://proxy.test").unwrap()]);
        assert!(found(&only_https, "http://api.test/").is_none());
        assert!(found(&Proxies::None, "http://api.test/").is_none());
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn a_socks_proxy_has_its_own_port_and_may_want_addresses() {
        for (scheme, addresses) in [("socks5", true), ("socks5h", false)] {
            let proxies = given([Proxy::https(&format!("{scheme}://proxy.test")).unwrap()]);
            let way = proxies.find(&origin("https://api.test/")).unwrap().unwrap();
            assert_eq!((way.proxy.port(), way.wants_addresses()), (1_080, addresses));
            assert!(way.forwards(&origin("https://api.test/")).is_none());
        }
    }
}
