//! A request: method, URL, headers and body, parsed before anything is sent.

pub(super) mod attempt_head;
pub(super) mod call_options;
pub(super) mod headers;
pub(super) mod http_messages;
pub(super) mod into_url;
pub(super) mod options;
pub(super) mod url_cache;

use std::fmt;
use std::time::Duration;

use http::header::{
    AUTHORIZATION, CONTENT_TYPE, DATE, FROM, IF_MODIFIED_SINCE, IF_RANGE, IF_UNMODIFIED_SINCE, PROXY_AUTHORIZATION,
    REFERER, USER_AGENT,
};
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use url::Url;

use super::body::Body;
use super::pool_side::dialer::PoolKey;
use crate::error::{Error, Result};
use crate::origin::{Credentials, Origin, OriginError};
use crate::redact::{self, Query};
use headers::RequestHeaders;
use options::RequestOptions;
use url_cache::RequestUrl;

/// A request to be sent with [`Client::execute`](crate::Client::execute). It can be inspected, changed and kept. It can
/// be cloned unless its body is a stream.
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
    pub(super) url: RequestUrl,
    /// The origin, and during a call the way to it that the request chose. `None` until method and URL are checked, and
    /// after they were lent out to be changed.
    pub(super) key: Option<PoolKey>,
    pub(super) headers: RequestHeaders,
    /// The credentials that the URL had.
    pub(super) url_authorization: Option<Box<UrlAuthorization>>,
    pub(super) body: Option<Body>,
    pub(super) options: RequestOptions,
    /// The target, once the request is checked, unless the URL has it. The next attempt takes it; later ones parse the URL again, as a
    /// copy costs more.
    pub(super) parsed_target: Option<Uri>,
    /// True if the request has an `Upgrade` header. Known once the request is checked.
    pub(super) asks_upgrade: bool,
    /// Values for layers, observers, and the reader of the response.
    pub(super) extensions: Extensions,
}

/// The credentials of a URL, for its origin alone.
#[derive(Clone)]
pub(super) struct UrlAuthorization {
    origin: Origin,
    /// The `Authorization` that they make.
    value: HeaderValue,
    /// True once they are among the headers, where the user sees, changes and removes them.
    is_shown: bool,
}

impl fmt::Debug for Request {
    // Without header values and query, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("url", &redact::url(self.url.as_str(), Query::LeftOut))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

impl Request {
    /// Creates a request without headers and body.
    ///
    /// The URL is checked when the request is sent: one without a host, or of more than 65,534 bytes, is refused.
    /// Credentials in the URL are then sent as basic authorization (RFC 7617), unless the request's headers have an
    /// `Authorization`.
    pub fn new(method: Method, url: Url) -> Self {
        Self::of_parts(method, url.into(), None, None)
    }

    #[inline(always)]
    fn of_parts(
        method: Method,
        url: RequestUrl,
        key: Option<PoolKey>,
        url_authorization: Option<Box<UrlAuthorization>>,
    ) -> Self {
        Self {
            method,
            url,
            key,
            headers: RequestHeaders::default(),
            url_authorization,
            body: None,
            options: RequestOptions::default(),
            parsed_target: None,
            asks_upgrade: false,
            extensions: Extensions::new(),
        }
    }

    /// Creates a request, and checks its URL.
    ///
    /// # Errors
    /// Nothing can be sent to the URL, or it is too long.
    pub(super) fn checked(method: Method, url: impl Into<RequestUrl>) -> Result<Self> {
        let mut request = Self::begun(method, url.into(), |request| request)?;
        match request.check_target() {
            Ok(()) => Ok(request),
            Err(error) => Err(error.with_method(request.method)),
        }
    }

    /// Creates a request, which `place` puts into its place, and checks its URL, unless that has a scheme of another protocol: its
    /// scheme may be changed until the request is sent.
    #[inline(always)]
    pub(super) fn begun<T>(method: Method, mut url: RequestUrl, place: impl FnOnce(Self) -> T) -> Result<T> {
        match checked(&mut url) {
            Ok((origin, authorization)) => Ok(place(Self::of_parts(method, url, Some(origin.into()), authorization))),
            Err(_) if has_other_scheme(&url) => match take_other_credentials(&mut url) {
                Ok(authorization) => Ok(place(Self::of_parts(method, url, None, authorization))),
                Err(error) => Err(error.with_method(method)),
            },
            Err(error) => Err(error.with_method(method)),
        }
    }

    /// Checks the URL, unless it is known to be valid. Takes the credentials off the URL.
    pub(super) fn check_target(&mut self) -> Result<()> {
        if self.key.is_some() {
            return Ok(());
        }
        let (origin, url_authorization) = checked(&mut self.url)?;
        if let Some(earlier) = &self.url_authorization
            && (earlier.origin != origin || url_authorization.is_some())
        {
            // The URL was changed. Its credentials do not go to another origin.
            if earlier.is_shown && self.headers.get(AUTHORIZATION) == Some(&earlier.value) {
                self.headers.remove(AUTHORIZATION);
            }
            self.url_authorization = None;
        }
        self.key = Some(origin.into());
        if url_authorization.is_some() {
            self.url_authorization = url_authorization;
        }
        Ok(())
    }

    /// Returns the key of the connections that can serve the request.
    pub(super) fn key(&self) -> &PoolKey {
        self.key.as_ref().expect("the URL of a request is checked before it is sent")
    }

    /// Returns the method.
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Returns the method, to change it.
    pub fn method_mut(&mut self) -> &mut Method {
        self.key = None;
        &mut self.method
    }

    /// Returns the URL. A request of a [`RequestBuilder`](crate::RequestBuilder) has no credentials in it any more: they are in its
    /// `Authorization` header, and stay behind if the URL is changed to another origin.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://me:secret@127.0.0.1/x").build()?;
    /// assert_eq!(request.url().as_str(), "http://127.0.0.1/x");
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the URL, to change it. It is checked again when the request is sent.
    pub fn url_mut(&mut self) -> &mut Url {
        self.key = None;
        &mut self.url
    }

    /// Returns the scheme, host and port that the request goes to; `None` if nothing can be sent to its URL.
    pub fn origin(&self) -> Option<Origin> {
        match &self.key {
            Some(key) => Some(key.origin.clone()),
            None => Origin::from_url(&self.url).ok(),
        }
    }

    /// Returns the longest time that the call may take; `None` for the client's.
    pub fn timeout(&self) -> Option<&Duration> {
        self.options.own(|options| options.timeouts.total.as_ref())
    }

    /// Returns the longest time that the call may take, to change it.
    pub fn timeout_mut(&mut self) -> &mut Option<Duration> {
        &mut self.options.call_options().timeouts.total
    }

    /// Returns the HTTP version that the connection must speak; HTTP/1.1 if any will do.
    pub fn version(&self) -> Version {
        self.options.required_version().unwrap_or_default()
    }

    /// Returns the HTTP version that the connection must speak, to change it. HTTP/1.1 stands for any, unless
    /// [`RequestBuilder::version`](crate::RequestBuilder::version) required a version. Versions other than 1.0, 1.1 and 2 are refused when the
    /// request is sent.
    pub fn version_mut(&mut self) -> &mut Version {
        self.options.version_mut()
    }

    /// Returns the values that go along with the request: those of
    /// [`RequestBuilder::extension`](crate::RequestBuilder::extension), and of an `http::Request` that it was made of.
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the values that go along with the request, to change them.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }

    /// Returns the request's own headers. The client's default headers, and those that HTTP needs, are added when it is
    /// sent.
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Returns the request's own headers, to change them.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        &mut self.headers
    }

    /// Returns the body; `None` if the request has none.
    pub fn body(&self) -> Option<&Body> {
        self.body.as_ref()
    }

    /// Returns the body, to change it.
    pub fn body_mut(&mut self) -> &mut Option<Body> {
        &mut self.body
    }

    /// Clones the request; `None` if its body is a stream, which can be read only once.
    pub fn try_clone(&self) -> Option<Self> {
        let body = match &self.body {
            Some(body) => Some(body.try_clone()?),
            None => None,
        };
        Some(Self {
            method: self.method.clone(),
            url: self.url.clone(),
            key: self.key.clone(),
            headers: self.headers.clone(),
            url_authorization: self.url_authorization.clone(),
            body,
            options: self.options.clone(),
            parsed_target: None,
            asks_upgrade: self.asks_upgrade,
            extensions: self.extensions.clone(),
        })
    }

    /// Returns the request with other headers and another body.
    pub(super) fn with(&self, headers: HeaderMap, body: Body) -> Self {
        Self {
            method: self.method.clone(),
            url: self.url.clone(),
            key: self.key.clone(),
            headers: headers.into(),
            url_authorization: None,
            body: Some(body),
            options: self.options.clone(),
            parsed_target: None,
            asks_upgrade: self.asks_upgrade,
            extensions: self.extensions.clone(),
        }
    }

    /// Adds the authorization of the URL's credentials once, unless the headers have one.
    pub(super) fn add_url_authorization(&mut self) -> Result<()> {
        let Some(credentials) = self.url_authorization.as_mut().filter(|credentials| !credentials.is_shown) else {
            return Ok(());
        };
        if !takes_additions(&self.method) {
            return Ok(());
        }
        credentials.is_shown = true;
        if self.headers.contains_key(AUTHORIZATION) {
            return Ok(());
        }
        add_header(&mut self.headers, AUTHORIZATION, credentials.value.clone())
    }

    /// Returns the path and query as they go into the request line.
    pub(crate) fn target(&self) -> Result<Uri> {
        match self.url.target() {
            Ok(target) => Ok(target.into()),
            Err(error) => Err(Error::invalid_request("the URL's path cannot be sent", error)),
        }
    }

    /// Returns true if the client's cookie store takes part. The cookies of a request that is passed on are those of its sender.
    #[cfg(feature = "cookies")]
    pub(super) fn uses_cookie_store(&self) -> bool {
        takes_additions(&self.method) && !self.options.is_passed_on()
    }
}

/// Returns true if the client adds headers and credentials of its own to a request. The response to a TRACE shows what was sent (RFC 9110
/// §9.3.8).
pub(super) fn takes_additions(method: &Method) -> bool {
    *method != Method::TRACE
}

/// Checks a request's URL. Takes the credentials off the URL, and returns its origin and the `Authorization` that
/// the credentials make.
#[inline]
fn checked(url: &mut RequestUrl) -> Result<(Origin, Option<Box<UrlAuthorization>>)> {
    if let Some((origin, _)) = url.parts() {
        return Ok((origin.clone(), None));
    }
    match Origin::recent(url) {
        Some(origin) if url.as_str().len() <= MAX_URL_LENGTH => Ok((origin, None)),
        _ => checked_parts(url),
    }
}

/// Takes the credentials off a URL of another protocol. They are for the origin that has http or https in its place.
fn take_other_credentials(url: &mut RequestUrl) -> Result<Option<Box<UrlAuthorization>>> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let mut as_http = url.to_url();
    let scheme = if url.scheme() == "wss" { "https" } else { "http" };
    if as_http.set_scheme(scheme).is_err() {
        return Err(Error::no_origin(url, OriginError::UnknownScheme(url.scheme().to_owned())));
    }
    let (_, authorization) = checked_parts(&mut as_http)?;
    Credentials::take(url);
    Ok(authorization)
}

fn has_other_scheme(url: &Url) -> bool {
    url.has_host() && !matches!(url.scheme(), "http" | "https")
}

fn checked_parts(url: &mut Url) -> Result<(Origin, Option<Box<UrlAuthorization>>)> {
    let origin = Origin::from_url(url).map_err(|error| Error::no_origin(url, error))?;
    if url.as_str().len() > MAX_URL_LENGTH {
        return Err(Error::refused_request(format!("the URL to {origin} is longer than {MAX_URL_LENGTH} bytes")));
    }
    let credentials = Credentials::take(url);
    let authorization = credentials.as_ref().map(Credentials::basic).transpose();
    let refused = |error| Error::invalid_request("the credentials in the URL cannot be sent", error);
    let authorization = authorization.map_err(refused)?;
    let of_origin = |value| Box::new(UrlAuthorization { origin: origin.clone(), value, is_shown: false });
    let authorization = authorization.map(of_origin);
    Ok((origin, authorization))
}

/// The most headers that a request may have: `HeaderMap` has no room for many more, and servers accept far fewer.
pub(super) const MAX_HEADERS: usize = 16_384;

/// The length of the longest URL in bytes, which is the limit of `http::Uri`.
const MAX_URL_LENGTH: usize = 65_534;

/// The fields of which a request has at most one (RFC 9110 §5.3): another one replaces it. The check of a request refuses a second
/// `Host` and `Content-Length`.
const SINGLE: [HeaderName; 10] = [
    AUTHORIZATION,
    CONTENT_TYPE,
    DATE,
    FROM,
    IF_MODIFIED_SINCE,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    PROXY_AUTHORIZATION,
    REFERER,
    USER_AGENT,
];

/// Sets headers. Each replaces those of the same name that were there before. Fails if there are too many.
pub(super) fn set_headers(headers: &mut HeaderMap, set: HeaderMap) -> Result<()> {
    let has_repeated = set.keys_len() < set.len();
    if headers.is_empty() && !has_repeated && set.len() <= MAX_HEADERS {
        *headers = set;
        return Ok(());
    }
    // The map yields a name once, with the first of its values.
    let mut last = None;
    for (name, value) in set {
        if let Some(name) = name {
            headers.remove(&name);
            last = Some(name);
        }
        add_header(headers, last.clone().expect("the first value has its name"), value)?;
    }
    Ok(())
}

/// Adds a header to those of the same name, or replaces it where there can be one only. Fails if there are too many.
pub(super) fn add_header(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) -> Result<()> {
    if headers.is_empty() {
        // Most requests need no more, and a map that grows is filled anew.
        headers.reserve(8);
    }
    let is_added = match SINGLE.contains(&name) {
        true => headers.try_insert(name, value).is_ok(),
        false => headers.try_append(name, value).is_ok(),
    };
    if is_added && headers.len() <= MAX_HEADERS {
        return Ok(());
    }
    Err(Error::refused_request(format!("there are more than {MAX_HEADERS} headers")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[test]
    fn of_fields_that_can_be_there_once_the_last_one_counts() {
        let client = Client::new();
        let headers = |builder: crate::client::RequestBuilder, name: &str| {
            let request = builder.build().unwrap();
            let values = request.headers().get_all(name).iter().map(|value| value.to_str().unwrap().to_owned());
            values.collect::<Vec<_>>()
        };
        let post = || client.post("http://host/");
        let (own, kind) = ("application/x", "content-type");
        assert_eq!(headers(post().form(&[("a", "b")]).header(kind, own), kind), [own]);
        assert_eq!(headers(post().header(kind, own).form(&[("a", "b")]), kind), [own]);
        assert_eq!(headers(post().bearer_auth("a").header("authorization", "b"), "authorization"), ["b"]);
        assert_eq!(headers(post().header("user-agent", "a").header("user-agent", "b"), "user-agent"), ["b"]);
        assert_eq!(headers(post().header("x-a", "a").header("x-a", "b"), "x-a"), ["a", "b"]);
        let maps = ["authorization", "x-a"].map(|name| {
            let mut map = HeaderMap::new();
            map.append(name, HeaderValue::from_static("a"));
            map.append(name, HeaderValue::from_static("b"));
            headers(post().headers(map), name)
        });
        assert_eq!(maps, [vec!["b"], vec!["a", "b"]]);
    }

    #[test]
    fn debug_shows_no_header_values() {
        let request = Client::new().get("http://host/?token=secret").header("authorization", "Bearer secret");
        let shown = format!("{request:?}");
        assert!(shown.contains("authorization") && !shown.contains("secret"), "{shown}");
        assert!(shown.contains("http://host/"), "{shown}");
    }
}
