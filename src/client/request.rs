//! What to send: method, URL, headers and body, parsed and checked before anything happens.

use std::fmt;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use super::{Body, Client, Response, call};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::trace::{Observer, Own};

/// Something a URL can be made of: text, or a [`Url`] that is parsed already.
pub trait IntoUrl: sealed::Sealed {
    #[doc(hidden)]
    fn into_url(self) -> Result<Url>;
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
    fn into_url(self) -> Result<Url> {
        Url::parse(self).map_err(|error| Error::invalid_url(self, error))
    }
}

impl IntoUrl for &String {
    fn into_url(self) -> Result<Url> {
        self.as_str().into_url()
    }
}

impl IntoUrl for String {
    fn into_url(self) -> Result<Url> {
        self.as_str().into_url()
    }
}

impl IntoUrl for Url {
    fn into_url(self) -> Result<Url> {
        Ok(self)
    }
}

impl IntoUrl for &Url {
    fn into_url(self) -> Result<Url> {
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
    request: Result<Request>,
}

/// A request that can be sent.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) origin: Origin,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) timeout: Option<Duration>,
    pub(crate) headers_timeout: Option<Duration>,
    pub(crate) body_idle_timeout: Option<Duration>,
    pub(crate) observer: Option<Own>,
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
    fn new(method: Method, url: Url) -> Result<Self> {
        if method == Method::CONNECT {
            return Err(Error::refused_request("CONNECT is for proxies, not for requests".to_owned()));
        }
        let origin = Origin::from_url(&url).map_err(|error| Error::no_origin(&url, error))?;
        if !url.username().is_empty() || url.password().is_some() {
            let what = format!("credentials in the URL of {origin} would not be sent: set an authorization header");
            return Err(Error::refused_request(what));
        }
        let (headers, body, observer) = Default::default();
        let (timeout, headers_timeout, body_idle_timeout) = Default::default();
        Ok(Self { method, url, origin, headers, body, timeout, headers_timeout, body_idle_timeout, observer })
    }

    fn authorize(&mut self, scheme: &str, credentials: &str) -> Result<()> {
        let value = HeaderValue::try_from(format!("{scheme} {credentials}"));
        let mut value = value.map_err(|error| Error::invalid_header("the credentials cannot be sent", error))?;
        value.set_sensitive(true);
        self.headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    #[cfg(any(feature = "form", feature = "json"))]
    fn carry(&mut self, body: Body, content_type: &'static str) {
        self.body = body;
        self.headers.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
    }

    /// Refuses headers that would make the peer read the connection otherwise than it was written (RFC 9112 §11.2).
    fn check(self) -> Result<Self> {
        let several = |name| self.headers.get_all(name).iter().nth(1).is_some();
        let length = self.headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
        let contradicts = length.is_some_and(|length| length != self.body.as_bytes().len().to_string().as_bytes());
        let what = if several(HOST) {
            "two host headers"
        } else if contradicts || several(CONTENT_LENGTH) {
            "a content-length that is not the body's"
        } else if self.headers.contains_key(TRANSFER_ENCODING) {
            "a transfer-encoding header: the body's framing is the client's to choose"
        } else {
            return Ok(self);
        };
        Err(Error::refused_request(format!("the request to {} has {what}", self.origin)))
    }
}

impl RequestBuilder {
    pub(super) fn new(client: Client, method: Method, url: impl IntoUrl) -> Self {
        let request = url.into_url().and_then(|url| Request::new(method, url));
        Self { client, request }
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
            request.headers.append(name, value);
            Ok(())
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
                request.headers.append(last.as_ref().expect("the first value has its name"), value);
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

    /// How long the call may take, from its start to the end of its response's body; instead of the client's.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|request| {
            request.timeout = Some(timeout);
            Ok(())
        })
    }

    /// How long the headers of the response may take once the request has its connection; instead of the client's.
    pub fn headers_timeout(self, timeout: Duration) -> Self {
        self.with(|request| {
            request.headers_timeout = Some(timeout);
            Ok(())
        })
    }

    /// How long the next piece of the response's body may take; instead of the client's.
    pub fn body_idle_timeout(self, timeout: Duration) -> Self {
        self.with(|request| {
            request.body_idle_timeout = Some(timeout);
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
            let username = username.to_string();
            if username.contains(':') {
                return Err(Error::refused_request("a user's name has a colon in it".to_owned()));
            }
            let password = password.map_or_else(String::new, |password| password.to_string());
            request.authorize("Basic", &BASE64_STANDARD.encode(format!("{username}:{password}")))
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

    /// Tells `observer` what happens to this call, beside the client's own observers. What a connection that is opened for it
    /// does is told when the call has it, or gives up, each event with its own time; the client's observers are told at once.
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|request| {
            request.observer = Some(Own::new(observer));
            Ok(())
        })
    }

    /// Sends the request and waits for the head of the response.
    ///
    /// A request that found its connection closed is sent again where that is safe: the peer did nothing about it (none of it
    /// was sent, its stream was refused or left out by a GOAWAY, or a 408 came into a kept connection; 12 attempts at most),
    /// or it is idempotent and the connection was a kept one that closed without a byte of a response (RFC 9110 §9.2.2;
    /// sent three times at most).
    /// Dropping the future gives the call up and loses nothing else.
    ///
    /// # Errors
    /// [`Error`], whose [`kind`](Error::kind) says what the call was doing. A response with an error status is none.
    pub async fn send(self) -> Result<Response> {
        call::run(&self.client.shared, self.request?.check()?).await
    }

    fn with(mut self, change: impl FnOnce(&mut Request) -> Result<()>) -> Self {
        self.request = self.request.and_then(|mut request| change(&mut request).map(|()| request));
        self
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
        assert!(!refused("http://me:secret@host/").contains("secret"));
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
        let refused = |request: RequestBuilder| request.request.unwrap().check().map(drop).map_err(|e| e.to_string());
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
