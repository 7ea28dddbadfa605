//! Proxies: which one a request goes through, and what is said to it before the connection is the origin's.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
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

/// The URL as the matcher can read it: one it cannot read it would do without.
fn checked(text: &str) -> Result<String, ProxyError> {
    let url = Url::parse(text).map_err(|error| ProxyError::Url(error.to_string()))?;
    match url.scheme() {
        _ if url.host_str().is_none_or(str::is_empty) => return Err(ProxyError::Url("it has no host".to_owned())),
        "http" | "socks5" | "socks5h" => {}
        "https" if cfg!(feature = "__tls") => {}
        other => return Err(ProxyError::Scheme(other.to_owned())),
    }
    let is_read = Matcher::builder().all(url.as_str()).build().intercept(&ANYWHERE).is_some();
    if is_read { Ok(url.into()) } else { Err(ProxyError::Url("no proxy can be found at it".to_owned())) }
}

/// The same as the environment has it, where a proxy may do without a scheme.
fn checked_variable(text: &str) -> Result<String, ProxyError> {
    if text.contains("://") { checked(text) } else { checked(&format!("http://{}", text.trim())) }
}

/// Where there may be a proxy.
static ANYWHERE: LazyLock<Uri> = LazyLock::new(|| Uri::from_static("http://anywhere.invalid/"));

/// The proxies of a client.
pub(crate) enum Proxies {
    None,
    /// Those of the environment, which cannot be meant for this machine itself.
    Environment(Rules),
    Given(Rules),
}

/// Which requests go through which proxy.
pub(crate) struct Rules {
    matcher: Matcher,
    /// Why the proxy of plain requests cannot be one, and that of the others.
    wrong: [Option<ProxyError>; 2],
}

impl Rules {
    fn new(http: Option<Result<String, ProxyError>>, https: Option<Result<String, ProxyError>>, no: &str) -> Self {
        let mut builder = Matcher::builder().no(no);
        // One that is wrong is matched too, lest its requests do without any.
        let stand_in = || ANYWHERE.to_string();
        if let Some(http) = &http {
            builder = builder.http(http.clone().unwrap_or_else(|_| stand_in()));
        }
        if let Some(https) = &https {
            builder = builder.https(https.clone().unwrap_or_else(|_| stand_in()));
        }
        Self { matcher: builder.build(), wrong: [http, https].map(|proxy| proxy.and_then(Result::err)) }
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
        let first =
            |names: &[&str]| names.iter().find_map(|name| variable(name)).filter(|text| !text.trim().is_empty());
        let http: &[_] = match variable("REQUEST_METHOD") {
            None => &["HTTP_PROXY", "http_proxy"],
            // Windows does not tell the two apart.
            Some(_) if cfg!(windows) => &[],
            Some(_) => &["http_proxy"],
        };
        let proxy = |names: &[&str]| first(names).map(|text| checked_variable(&text));
        let all = proxy(&["ALL_PROXY", "all_proxy"]);
        let (http, https) = (proxy(http).or_else(|| all.clone()), proxy(&["HTTPS_PROXY", "https_proxy"]).or(all));
        if http.is_none() && https.is_none() {
            return Self::None;
        }
        Self::Environment(Rules::new(http, https, &first(&["NO_PROXY", "no_proxy"]).unwrap_or_default()))
    }

    /// Returns true if the user named a proxy, rather than the environment.
    #[cfg(unix)]
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Given(_))
    }

    pub(crate) fn new(proxy: &Proxy) -> Self {
        Self::Given(Rules::new(proxy.http.clone().map(Ok), proxy.https.clone().map(Ok), &proxy.no))
    }

    /// The proxy that requests to `origin` go through, if any.
    ///
    /// # Errors
    /// Where there is to be one that cannot be spoken to: to do without it might be to say aloud what is secret.
    pub(super) fn find(&self, origin: &Origin) -> Result<Option<Way>, ProxyError> {
        let rules = match self {
            Self::None => return Ok(None),
            Self::Environment(_) if is_this_machine(origin.host()) => return Ok(None),
            Self::Environment(rules) | Self::Given(rules) => rules,
        };
        let uri = format!("{}://{origin}/", origin.scheme()).parse::<Uri>();
        let uri = uri.map_err(|error| ProxyError::Url(error.to_string()))?;
        let Some(intercept) = rules.matcher.intercept(&uri) else { return Ok(None) };
        match &rules.wrong[usize::from(origin.scheme() == Scheme::Https)] {
            Some(wrong) => Err(wrong.clone()),
            None => Way::new(&intercept).map(Some),
        }
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
                let mut socks = match credentials.clone() {
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

    #[test]
    fn what_is_no_proxy_is_refused() {
        assert!(matches!(Proxy::all("ftp://proxy:21"), Err(ProxyError::Scheme(scheme)) if scheme == "ftp"));
        assert!(matches!(Proxy::all("http://"), Err(ProxyError::Url(_))));
        assert!(matches!(Proxy::all("nonsense"), Err(ProxyError::Url(_))));
        let text = format!("{:?}", Proxy::all("http://user:secret@proxy:3128").unwrap());
        assert!(text.contains("proxy:3128") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn a_proxy_is_found_however_its_url_is_written_or_refused_at_once() {
        for url in ["http://proxy.test:3128\n", " http://me:pa^ss@proxy.test:3128", "HTTP://proxy.test:3128"] {
            let way = Proxies::new(&Proxy::all(url).unwrap()).find(&origin("http://api.test/")).unwrap();
            assert_eq!(way.expect("through the proxy").proxy.to_string(), "proxy.test:3128", "{url:?}");
        }
    }

    fn of_variables(variables: &[(&str, &str)]) -> Proxies {
        Proxies::from_variables(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_environment_names_proxies_as_curl_has_it() {
        let found = |proxies: &Proxies, url| proxies.find(&origin(url)).unwrap().map(|way| way.proxy.to_string());
        let plain = of_variables(&[("HTTP_PROXY", "one.test:3128"), ("NO_PROXY", "api.local")]);
        assert_eq!(found(&plain, "http://api.test/").as_deref(), Some("one.test:3128"));
        assert_eq!(found(&plain, "http://api.local/"), None);
        assert_eq!(found(&plain, "http://127.0.0.1/"), None, "this machine needs none");
        assert_eq!(found(&plain, "http://v1.localhost/"), None);
        assert_eq!(found(&plain, "https://api.test/"), None);
        let both = of_variables(&[("HTTPS_PROXY", "http://two.test"), ("all_proxy", "socks5h://three.test")]);
        assert_eq!(found(&both, "https://api.test/").as_deref(), Some("two.test:80"));
        assert_eq!(found(&both, "http://api.test/").as_deref(), Some("three.test:1080"));
        assert!(matches!(of_variables(&[("HTTP_PROXY", "")]), Proxies::None));
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
