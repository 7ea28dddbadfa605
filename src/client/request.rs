//! What to send: method, URL, headers and body, parsed and checked before anything happens.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use url::Url;

use super::{Body, Client, Response};
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::trace::{Observer, ObserverHandle};

/// Something a URL can be made of: text, or a [`Url`] that is parsed already. Text without a scheme that begins with a host and a
/// port (`localhost:3128/x`) is taken as http.
pub trait IntoUrl: sealed::Sealed {
    #[doc(hidden)]
    fn into_url(self, base: Option<&Url>) -> Result<Url>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &str {}
    impl Sealed for &String {}
    impl Sealed for String {}
    impl Sealed for url::Url {}
    impl Sealed for &url::Url {}
}

impl IntoUrl for &str {
    fn into_url(self, base: Option<&Url>) -> Result<Url> {
        let url = Url::options().base_url(base).parse(self);
        // `host:3128` is taken as http, as curl has it; `url` reads the host as a scheme, or finds none. Beside a base it might as
        // well be a path.
        if base.is_none() && !url.as_ref().is_ok_and(Url::is_special) && begins_with_host_and_port(self) {
            let url = Url::parse(&format!("http://{}", self.trim()));
            return url.map_err(|error| Error::invalid_url(self, error));
        }
        url.map_err(|error| Error::invalid_url(self, error))
    }
}

/// Returns true if `text` has a host and a port where a URL has its scheme: `localhost:3128/x`, `[::1]:3128`.
fn begins_with_host_and_port(text: &str) -> bool {
    let authority = text.trim().split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let Some((host, port)) = authority.rsplit_once(':') else { return false };
    let is_host = host.starts_with('[') || (!host.is_empty() && !host.contains([':', '@']));
    is_host && is_port(port)
}

impl IntoUrl for &String {
    fn into_url(self, base: Option<&Url>) -> Result<Url> {
        self.as_str().into_url(base)
    }
}

impl IntoUrl for String {
    fn into_url(self, base: Option<&Url>) -> Result<Url> {
        self.as_str().into_url(base)
    }
}

impl IntoUrl for Url {
    fn into_url(self, _: Option<&Url>) -> Result<Url> {
        Ok(self)
    }
}

impl IntoUrl for &Url {
    fn into_url(self, _: Option<&Url>) -> Result<Url> {
        Ok(self.clone())
    }
}

/// A request that is being made. What is wrong with its parts is told by [`send`](Self::send).
///
/// ```no_run
/// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
/// use std::time::Duration;
///
/// let response = client
///     .post("http://api.example.com/v1/items")
///     .header("content-type", "application/json")
///     .body(r#"{"name":"x"}"#)
///     .timeout(Duration::from_secs(2))
///     .send()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is sent"]
pub struct RequestBuilder {
    client: Client,
    /// Boxed, because it goes through many hands.
    request: Result<Box<Request>>,
}

/// A request that can be looked at, kept, cloned where its body allows, and sent: [`Client::execute`].
///
/// ```
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use speeddial::{Client, Request, http::Method};
///
/// let request = Client::new().post("http://api.example.com/v1/items").body("{}").build()?;
/// assert_eq!((request.method(), request.url().path()), (&Method::POST, "/v1/items"));
/// let again = request.try_clone().expect("bytes can be cloned");
///
/// let other = speeddial::http::Request::put("http://api.example.com/v1/items/1").body("{}")?;
/// let other = Request::try_from(other)?;
/// # Ok(()) }
/// # run().unwrap();
/// ```
pub struct Request {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) origin: Origin,
    pub(super) headers: HeaderMap,
    /// The `Authorization` made of the URL's credentials, for headers that have none.
    pub(super) url_authorization: Option<HeaderValue>,
    pub(super) body: Body,
    pub(super) options: Options,
}

/// How a request is made, beside what is sent.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) timeouts: Timeouts,
    pub(super) version: Option<Version>,
    pub(super) observer: Option<ObserverHandle>,
}

/// For how long the parts of a call are waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timeouts {
    pub(super) total: Option<Duration>,
    pub(super) queue: Option<Duration>,
    pub(super) connect: Option<Duration>,
    pub(super) headers: Option<Duration>,
    pub(super) body_idle: Option<Duration>,
}

impl Timeouts {
    /// These, and where there are none, those.
    pub(super) fn or(self, those: &Self) -> Self {
        Self {
            total: self.total.or(those.total),
            queue: self.queue.or(those.queue),
            connect: self.connect.or(those.connect),
            headers: self.headers.or(those.headers),
            body_idle: self.body_idle.or(those.body_idle),
        }
    }
}

impl fmt::Debug for Request {
    // Without header values and query, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("origin", &self.origin)
            .field("path", &self.url.path())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// A request without headers and body. Credentials are taken off the URL and sent as basic authorization (RFC 7617), unless
    /// the request's headers have an `Authorization`.
    ///
    /// # Errors
    /// [`ErrorKind::Request`](crate::ErrorKind::Request) where the URL cannot be sent to.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://me:secret@127.0.0.1/x").build()?;
    /// assert_eq!(request.url().as_str(), "http://127.0.0.1/x");
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn new(method: Method, mut url: Url) -> Result<Self> {
        if method == Method::CONNECT {
            return Err(Error::refused_request("CONNECT is for proxies, not for requests".to_owned()));
        }
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        if url.as_str().len() > LONGEST_URL {
            return Err(Error::refused_request(format!("the URL to {origin} is longer than {LONGEST_URL} bytes")));
        }
        let credentials = Credentials::take(&mut url);
        let url_authorization = credentials.as_ref().map(Credentials::basic).transpose();
        let url_authorization =
            url_authorization.map_err(|error| Error::refused_request(format!("the URL of {origin}: {error}")))?;
        let (headers, body, options) = Default::default();
        Ok(Self { method, url, origin, headers, url_authorization, body, options })
    }

    /// The method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The URL.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Where it goes.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The headers of its own; the client's and those that belong to HTTP are added when it is sent.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The same to be changed.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// The body.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// The same to be changed.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The same once more; `None` where the body is a stream.
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self { body: self.body.try_clone()?, ..self.without_body() })
    }

    fn without_body(&self) -> Self {
        Self {
            method: self.method.clone(),
            url: self.url.clone(),
            origin: self.origin.clone(),
            headers: self.headers.clone(),
            url_authorization: self.url_authorization.clone(),
            body: Body::default(),
            options: self.options.clone(),
        }
    }

    fn authorize(&mut self, scheme: &str, credentials: &str) -> Result<()> {
        let value = HeaderValue::try_from(format!("{scheme} {credentials}"));
        let mut value = value.map_err(|error| Error::invalid_header("the credentials cannot be sent", error))?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    /// Adds the authorization of the URL's credentials, unless the headers have one.
    pub(super) fn add_url_authorization(&mut self) -> Result<()> {
        match self.url_authorization.take() {
            Some(value) if !self.headers.contains_key(AUTHORIZATION) => add(&mut self.headers, AUTHORIZATION, value),
            _ => Ok(()),
        }
    }

    #[cfg(any(feature = "form", feature = "json"))]
    fn carry(&mut self, body: Body, content_type: &'static str) {
        self.body = body;
        self.headers.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }

    /// Refuses what would make the peer read the connection otherwise than it was written (RFC 9112 §11.2).
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(what) = self.contradiction() {
            return Err(Error::refused_request(format!("the request to {} has {what}", self.origin)));
        }
        if self.body.is_streamed() {
            // A stream that is said to have a length is held to it.
            let said = self.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
            said.into_iter().for_each(|length| self.body.must_have(length));
        }
        Ok(())
    }

    fn contradiction(&self) -> Option<&'static str> {
        if self.headers.is_empty() && !self.body.is_streamed() {
            return None;
        }
        let several = |name| self.headers.get_all(name).iter().nth(1).is_some();
        let length = self.headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
        let is_number =
            |length: &[u8]| !length.is_empty() && length.len() < 20 && length.iter().all(u8::is_ascii_digit);
        let contradicts = length.is_some_and(|said| match self.body.content_length() {
            Some(length) => said != length.to_string().as_bytes(),
            None => !is_number(said),
        });
        let is_old = self.options.version == Some(Version::HTTP_10);
        if self.headers.len() > MOST_HEADERS {
            Some("too many headers")
        } else if several(HOST) {
            Some("two host headers")
        } else if self.headers.get(HOST).is_some_and(|host| !is_host(host)) {
            Some("a host header that is no host")
        } else if contradicts || several(CONTENT_LENGTH) {
            Some("a content-length that is not the body's")
        } else if length.is_some() && self.body.trailers().is_some() {
            Some("a content-length beside trailers, for which the body has to be sent in chunks")
        } else if self.headers.contains_key(TRANSFER_ENCODING) {
            Some("a transfer-encoding header: the body's framing is the client's to choose")
        } else if self.headers.get_all(CONNECTION).iter().any(|value| !is_about_closing(value)) {
            Some("a connection header that says more than close or keep-alive: the connection is the client's")
        } else if OF_THE_CONNECTION.iter().any(|name| self.headers.contains_key(name)) {
            Some("a header for the connection, which is the client's")
        } else if is_old
            && self.body.is_streamed()
            && (self.body.content_length().is_none() || self.body.trailers().is_some())
        {
            Some("a body that cannot be sent over HTTP/1.0: its length is not known, or it has trailers")
        } else if self.body.trailers().is_some_and(|trailers| trailers.keys().any(is_no_trailer)) {
            Some("a trailer that has to be a header")
        } else {
            None
        }
    }
}

/// What belongs to a connection and not to a request (RFC 9110 §7.6.1); nobody here would see an upgrade through.
const OF_THE_CONNECTION: [HeaderName; 1] = [UPGRADE];

/// Returns true if `value` is what a `Host` header may be: a host, and a port perhaps (RFC 9110 §7.2). There is no user in it.
fn is_host(value: &HeaderValue) -> bool {
    let Ok(authority) = http::uri::Authority::try_from(value.as_bytes()) else { return false };
    // Of a text with a user, the host is not the beginning; or it is, and what follows is no port.
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return false };
    is_uri_host(authority.host()) && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// Returns true if `host` is an IPv6 address in brackets, or something without brackets (RFC 3986 §3.2.2). Its characters have been
/// checked.
fn is_uri_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(['[', ']']),
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

fn is_about_closing(value: &HeaderValue) -> bool {
    let known = ["close", "keep-alive", "te"];
    let is_known = |option: &str| known.iter().any(|known| option.trim().eq_ignore_ascii_case(known));
    value.to_str().is_ok_and(|value| value.split(',').all(is_known))
}

/// What frames, routes or authorizes must not come after the body (RFC 9110 §6.5.1).
fn is_no_trailer(name: &HeaderName) -> bool {
    [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE].contains(name)
}

/// A request of the `http` crate. Its URI has to be absolute. `HTTP/1.0` is insisted on, other versions are the connection's.
impl<B: Into<Body>> TryFrom<http::Request<B>> for Request {
    type Error = Error;

    fn try_from(request: http::Request<B>) -> Result<Self> {
        let (mut head, body) = request.into_parts();
        let url = head.uri.to_string().into_url(None)?;
        let options = head.extensions.remove::<Options>();
        let mut request = Self { headers: head.headers, body: body.into(), ..Self::new(head.method, url)? };
        request.options = options.unwrap_or_default();
        request.options.version =
            request.options.version.or((head.version == Version::HTTP_10).then_some(head.version));
        Ok(request)
    }
}

/// The same request as others know it.
impl From<Request> for http::Request<Body> {
    fn from(mut request: Request) -> Self {
        // With so many headers that there is no room for it, the request is refused when it is sent.
        let _ = request.add_url_authorization();
        let mut message = Self::new(request.body);
        *message.method_mut() = request.method;
        *message.uri_mut() = request.url.as_str().parse().unwrap_or_default();
        *message.headers_mut() = request.headers;
        *message.version_mut() = request.options.version.unwrap_or_default();
        message.extensions_mut().insert(request.options);
        message
    }
}

impl RequestBuilder {
    pub(super) fn new(client: Client, method: Method, url: impl IntoUrl) -> Self {
        let url = url.into_url(client.shared.calls.base.as_ref());
        let request = url.and_then(|url| Request::new(method, url)).map(Box::new);
        Self { client, request }
    }

    /// A builder that goes on with this request.
    pub fn from_parts(client: Client, request: Request) -> Self {
        Self { client, request: Ok(Box::new(request)) }
    }

    /// The request, without sending it.
    ///
    /// # Errors
    /// What is wrong with its parts.
    pub fn build(self) -> Result<Request> {
        self.request.map(|request| *request)
    }

    /// The same once more; `None` where the body is a stream, or something is wrong with the request.
    pub fn try_clone(&self) -> Option<Self> {
        let request = self.request.as_ref().ok()?.try_clone()?;
        Some(Self { client: self.client.clone(), request: Ok(Box::new(request)) })
    }

    /// Adds a header, beside any of the same name.
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.with(|request| {
            let name = name.try_into().map_err(|error| Error::invalid_header("a header's name is not valid", error))?;
            let value = value.try_into();
            let value = value
                .map_err(|error| Error::invalid_header(&format!("the value of header {name} is not valid"), error))?;
            add(&mut request.headers, name, value)
        })
    }

    /// Adds headers, each in place of those of the same name.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.with(|request| {
            // The map names a header once and leaves the name out for its further values.
            let mut last = None;
            for (name, value) in headers {
                if let Some(name) = name {
                    request.headers.remove(&name);
                    last = Some(name);
                }
                add(&mut request.headers, last.clone().expect("the first value has its name"), value)?;
            }
            Ok(())
        })
    }

    /// Sets the body.
    pub fn body(self, body: impl Into<Body>) -> Self {
        self.with(|request| {
            request.body = body.into();
            Ok(())
        })
    }

    /// How long the call may take, from its start to the end of its response's body, redirects and retries included; instead
    /// of the client's.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.total = Some(timeout))
    }

    /// How long the request may wait for a connection while none is being opened for it; instead of the client's. The wait
    /// timeout of the pool holds as well.
    pub fn queue_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.queue = Some(timeout))
    }

    /// How long the request waits for the connection that is opened for it, from its lookup to the handshake. The client's holds
    /// as well. The dial goes on when the request has given it up: its connection is for the next one.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.connect = Some(timeout))
    }

    /// The longest wait for the headers of the response, from the moment the last byte of the request was sent; instead of the
    /// client's.
    pub fn headers_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.headers = Some(timeout))
    }

    /// The longest time in which nothing of a body may pass, the request's or the response's; instead of the client's.
    pub fn body_idle_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.body_idle = Some(timeout))
    }

    fn limit(self, change: impl FnOnce(&mut Timeouts)) -> Self {
        self.with(|request| {
            change(&mut request.options.timeouts);
            Ok(())
        })
    }

    /// Insists on a version of HTTP: 1.0, 1.1 or 2. By default it is what the server and the client agree on. Where the connection
    /// speaks another one the call fails; what connections speak is the client's to say
    /// ([`http1_only`](crate::ClientBuilder::http1_only), [`http2_prior_knowledge`](crate::ClientBuilder::http2_prior_knowledge)).
    pub fn version(self, version: Version) -> Self {
        self.with(|request| match version {
            Version::HTTP_10 | Version::HTTP_11 | Version::HTTP_2 => {
                request.options.version = Some(version);
                Ok(())
            }
            _ => Err(Error::refused_request(format!("{version:?} is not spoken"))),
        })
    }

    /// Asks the server whether it wants the body before that is sent (`Expect: 100-continue`, RFC 9110 §10.1.1). The body
    /// follows when the server says so, or after a second without a word; where the server answers instead, it is not sent, and
    /// the connection closes. A stream that was not wanted goes along where the answer is a redirect. Over HTTP/2 nothing is
    /// asked: there a server can end one stream. Nor is it over HTTP/1.0, which has no answer to that.
    pub fn expect_continue(self) -> Self {
        self.with(|request| {
            request.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
            Ok(())
        })
    }

    /// Says who is asking by name and password (RFC 7617), in place of any other authorization. The header is marked as a secret.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://127.0.0.1/").basic_auth("me", Some("secret"));
    /// assert!(!format!("{request:?}").contains("secret"));
    /// ```
    pub fn basic_auth(self, username: impl fmt::Display, password: Option<impl fmt::Display>) -> Self {
        self.with(|request| {
            let password = password.map_or_else(String::new, |password| password.to_string());
            let value = Credentials::new(username.to_string(), password).basic();
            let value = value.map_err(|error| Error::refused_request(error.to_string()))?;
            request.headers.insert(AUTHORIZATION, value);
            Ok(())
        })
    }

    /// Says who is asking by a token (RFC 6750), in place of any other authorization. The header is marked as a secret.
    pub fn bearer_auth(self, token: impl fmt::Display) -> Self {
        self.with(|request| request.authorize("Bearer", &token.to_string()))
    }

    /// Adds to the URL's query (feature `query`): pairs, a map, or a struct.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://127.0.0.1/?a=1").query(&[("page", "2"), ("q", "x y")]);
    /// ```
    #[cfg(feature = "query")]
    pub fn query<Q: serde::Serialize + ?Sized>(self, query: &Q) -> Self {
        self.with(|request| {
            let mut pairs = request.url.query_pairs_mut();
            let added = query.serialize(serde_urlencoded::Serializer::new(&mut pairs)).map(drop);
            drop(pairs);
            added.map_err(|error| Error::invalid_request("the query cannot be written", error))?;
            if request.url.query() == Some("") {
                request.url.set_query(None);
            }
            Ok(())
        })
    }

    /// Sets the body to a form (feature `form`): pairs, a map, or a struct. Its content type is said unless it was before.
    #[cfg(feature = "form")]
    pub fn form<F: serde::Serialize + ?Sized>(self, form: &F) -> Self {
        self.with(|request| {
            let text = serde_urlencoded::to_string(form);
            let text = text.map_err(|error| Error::invalid_request("the form cannot be written", error))?;
            request.carry(text.into(), "application/x-www-form-urlencoded");
            Ok(())
        })
    }

    /// Sets the body to JSON (feature `json`). Its content type is said unless it was before.
    #[cfg(feature = "json")]
    pub fn json<J: serde::Serialize + ?Sized>(self, value: &J) -> Self {
        self.with(|request| {
            let bytes = serde_json::to_vec(value);
            let bytes = bytes.map_err(|error| Error::invalid_request("the body cannot be written as JSON", error))?;
            request.carry(bytes.into(), "application/json");
            Ok(())
        })
    }

    /// Tells `observer` what happens to this call, beside the client's own observers and in place of one set before. What a
    /// connection that is opened for it does is told when the call has it, or gives up, each event with its own time; the
    /// client's observers are told at once.
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|request| {
            request.options.observer = Some(ObserverHandle::new(observer));
            Ok(())
        })
    }

    /// Sends the request and waits for the head of the response, as [`Client::execute`].
    ///
    /// # Errors
    /// [`Error`], whose [`kind`](Error::kind) says what the call was doing. A response with an error status is none.
    pub async fn send(self) -> Result<Response> {
        self.client.run(self.request?).await
    }

    fn with(mut self, change: impl FnOnce(&mut Request) -> Result<()>) -> Self {
        self.request = self.request.and_then(|mut request| change(&mut request).map(|()| request));
        self
    }
}

/// The most headers a request may have: the map has no room for many more, and no server reads so many.
const MOST_HEADERS: usize = 16_384;

/// The longest URL: what `http::Uri` takes.
const LONGEST_URL: usize = 65_534;

/// Adds a header to those of its name.
pub(super) fn add(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<()> {
    match headers.len() < MOST_HEADERS && headers.try_append(name, value).is_ok() {
        true => Ok(()),
        false => Err(Error::refused_request(format!("there are more than {MOST_HEADERS} headers"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn refused(url: &str) -> String {
        let error = Client::new().get(url).request.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Request);
        error.to_string()
    }

    #[test]
    fn what_cannot_be_sent_is_refused_with_its_reason() {
        assert_eq!(refused("no url"), "`no url` is not a URL: relative URL without a base");
        assert_eq!(refused("ftp://host/"), "cannot send to `ftp://host/`: unknown scheme `ftp`");
        assert_eq!(refused("http://host:99999/"), "`http://host:99999/` is not a URL: invalid port number");
        assert!(!refused("http://me:secret@host:0/").contains("secret"));
    }

    #[test]
    fn a_host_and_a_port_without_a_scheme_are_taken_as_http() {
        for (text, url) in [
            ("localhost:3128", "http://localhost:3128/"),
            (" api.test:8080/x?q=a:1#part ", "http://api.test:8080/x?q=a:1#part"),
            ("127.0.0.1:3128?q", "http://127.0.0.1:3128/?q"),
            ("[::1]:3128/x", "http://[::1]:3128/x"),
            ("my_host:80", "http://my_host/"),
        ] {
            assert_eq!(text.into_url(None).unwrap().as_str(), url);
        }
        // Beside a base it is a path, or nothing that can be sent to.
        let base = Url::parse("http://a.test/v1/").unwrap();
        assert_eq!("127.0.0.1:80".into_url(Some(&base)).unwrap().as_str(), "http://a.test/v1/127.0.0.1:80");
        assert_eq!("items:42".into_url(Some(&base)).unwrap().as_str(), "items:42");
        for text in ["user:1@host:80", "urn:isbn:80", "tel:5551234", "host:x", "host:-1", ":80"] {
            assert!(Client::new().get(text).request.is_err(), "{text}");
        }
        assert_eq!("http:80".into_url(None).unwrap().as_str(), "http://0.0.0.80/");
    }

    #[test]
    fn a_domain_without_a_scheme_is_an_error_that_says_what_may_be_meant() {
        let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
        for (text, shown) in
            [("example.com/x", "example.com/x"), ("me@[::1]/?token=secret", "[::1]/"), ("a.test", "a.test")]
        {
            let expected =
                format!("`{shown}` is not a URL: relative URL without a base; did you mean {scheme}://{shown}?");
            assert_eq!(refused(text), expected);
        }
        for text in ["items", "/etc/passwd", "../x.y", "no url.test", "http//nowhere", ""] {
            assert!(!refused(text).contains("did you mean"), "{text}");
        }
    }

    #[test]
    fn a_header_that_would_split_the_request_is_refused() {
        let request = Client::new().get("http://host/").header("x", "a\r\nevil: yes");
        let error = request.request.expect_err("refused");
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Request, "the value of header x is not valid".into())
        );
        let error = Client::new().get("http://host/").header("x\r\n", "a").request.expect_err("refused");
        assert_eq!(error.to_string(), "a header's name is not valid");
    }

    #[test]
    fn framing_that_contradicts_the_body_is_refused() {
        let client = Client::new();
        let post = || client.post("http://host/").body("12345");
        let refused = |request: RequestBuilder| request.request.unwrap().check().map_err(|e| e.to_string());
        let wrong = Err("the request to host:80 has a content-length that is not the body's".to_owned());
        assert_eq!(refused(post().header("content-length", "5")), Ok(()));
        assert_eq!(refused(post().header("content-length", "40")), wrong);
        assert_eq!(refused(post().header("content-length", "5").header("content-length", "5")), wrong);
        assert_eq!(refused(client.get("http://host/").header("content-length", "1")), wrong);
        assert!(refused(post().header("transfer-encoding", "chunked")).is_err());
        assert!(refused(post().header("host", "a").header("host", "b")).is_err());
        assert!(client.request(Method::CONNECT, "http://host/").request.is_err());
    }

    #[test]
    fn a_host_header_is_a_host_and_perhaps_a_port() {
        let is_sent = |host: &'static str| {
            let request = Client::new().get("http://host/").header("host", host).request;
            request.unwrap().check().is_ok()
        };
        for host in ["a", "a.test", "a.test:8080", "1", "1:1", "[::1]", "[::1]:80", "127.0.0.1:65535"] {
            assert!(is_sent(host), "{host}");
        }
        let wrong = [
            "1@1",
            "a@1",
            "a@a",
            "a:b@a:1",
            "a:b",
            "a:+1",
            "a:65536",
            "a:",
            ":80",
            "a/b",
            "a b",
            "",
            "[]",
            "[zz]",
            "[1.2.3.4]",
            "x[1]",
            "[::1]x",
            "[fe80::1%25eth0]",
        ];
        for host in wrong {
            assert!(!is_sent(host), "{host}");
        }
    }

    #[test]
    fn debug_shows_no_header_values() {
        let request = Client::new().get("http://host/?token=secret").header("authorization", "Bearer secret");
        let shown = format!("{request:?}");
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn headers_replace_and_a_header_adds() {
        let mut more = HeaderMap::new();
        more.append("a", HeaderValue::from_static("2"));
        more.append("a", HeaderValue::from_static("3"));
        let request = Client::new().get("http://host/").header("a", "1").headers(more).header("a", "4");
        let request = request.request.unwrap();
        let values: Vec<_> = request.headers.get_all("a").iter().collect();
        assert_eq!(values, ["2", "3", "4"]);
    }
}
