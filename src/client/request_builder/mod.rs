//! Requests that are being put together, from `client.get(url)` to `send()`.

mod forward;
#[cfg(feature = "multipart")]
mod multipart;
mod options;
pub(super) mod send_all;

use std::fmt;
use std::time::Duration;

use http::header::{AUTHORIZATION, EXPECT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::request::into_url::IntoUrl;
use super::request::options::checked_version;
use super::request::{Request, add_header, set_headers};
use crate::client::body::Body;
use crate::client::handle::Client;
use crate::client::policy::deadlines::{MinSpeed, Timeouts};
use crate::client::response::Response;
use crate::client::response::call_data::BoxedRequest;
use crate::credentials::Credentials;
use crate::error::{Error, Result};
use crate::trace::Observer;

impl Client {
    /// Starts a GET request.
    pub fn get<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::GET, url)
    }

    /// Starts a POST request.
    pub fn post<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::POST, url)
    }

    /// Starts a PUT request.
    pub fn put<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PUT, url)
    }

    /// Starts a PATCH request.
    pub fn patch<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::PATCH, url)
    }

    /// Starts a DELETE request.
    pub fn delete<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::DELETE, url)
    }

    /// Starts a HEAD request.
    pub fn head<U: IntoUrl>(&self, url: U) -> RequestBuilder {
        self.request(Method::HEAD, url)
    }

    /// Starts a request.
    ///
    /// An invalid URL is reported by [`send`](RequestBuilder::send). A [`Url`](url::Url) is not parsed again. A
    /// relative URL is resolved against the client's [base](crate::ClientBuilder::base_url).
    pub fn request<U: IntoUrl>(&self, method: Method, url: U) -> RequestBuilder {
        let url = url.into_request_url(self.inner.defaults.base_url.as_ref());
        let request = match url {
            Ok(url) => Request::begun(method, url, BoxedRequest::new),
            Err(error) => Err(error.with_method(method)),
        };
        RequestBuilder { client: self.clone(), request }
    }
}

/// A request that is being put together. Its first invalid part is reported by [`send`](Self::send).
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
    pub(in crate::client) client: Client,
    /// Boxed, because every method moves it.
    pub(in crate::client) request: Result<BoxedRequest>,
}

impl RequestBuilder {
    /// Creates a builder that changes and sends an existing request.
    pub fn from_parts(client: Client, request: Request) -> Self {
        Self { client, request: Ok(BoxedRequest::new(request)) }
    }

    /// Returns the request without sending it.
    ///
    /// # Errors
    /// The first part of the request that is invalid.
    pub fn build(self) -> Result<Request> {
        self.build_split().1
    }

    /// Returns the client, and the request without sending it.
    pub fn build_split(self) -> (Client, Result<Request>) {
        let shown = |mut request: Request| request.add_url_authorization().map(|()| request);
        (self.client, self.request.map(BoxedRequest::into_request).and_then(shown))
    }

    /// Clones the builder; `None` if the body is a stream that can be read once, or a part of the request is invalid.
    pub fn try_clone(&self) -> Option<Self> {
        let request = self.request.as_ref().ok()?.try_clone()?;
        Some(Self { client: self.client.clone(), request: Ok(BoxedRequest::new(request)) })
    }

    /// Adds a header. Others of the same name stay, except for those of which a request has one, such as `Content-Type`, `Authorization`
    /// and `User-Agent`: the last one counts. A request may have at most 16,384.
    ///
    /// With an `Accept-Encoding` or a `Range`, the response's body is not decompressed: it is what the server sent.
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
            add_header(&mut request.headers, name, value)
        })
    }

    /// Sets headers. Each replaces those of the same name that were there before. As with [`header`](Self::header), an
    /// `Accept-Encoding` or a `Range` turns decompression off.
    pub fn headers(self, headers: HeaderMap) -> Self {
        self.with(|request| set_headers(&mut request.headers, headers))
    }

    /// Sets the body.
    pub fn body<T: Into<Body>>(self, body: T) -> Self {
        self.with(|request| {
            request.body = Some(body.into());
            Ok(())
        })
    }

    /// Sets the longest time the call may take, from its start to the end of its response's body, redirects and retries
    /// included. Replaces the client's [`timeout`](crate::ClientBuilder::timeout).
    pub fn timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.total = Some(timeout))
    }

    /// Sets the longest wait in the pool's queue. It does not apply while a connection is being opened for the request.
    /// Replaces the client's [`queue_timeout`](crate::ClientBuilder::queue_timeout).
    /// [`PoolConfig::wait_timeout`](crate::PoolConfig::wait_timeout), which limits the same wait, applies as well.
    pub fn queue_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.queue = Some(timeout))
    }

    /// Sets the longest wait for a connection, from the request's arrival in the pool, or if a limit of the pool keeps it waiting, from
    /// the moment at which a connection begins to be opened for it. The client's [`connect_timeout`](crate::ClientBuilder::connect_timeout) applies as well. The dial goes on when
    /// the request gives up, and its connection serves a later request.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.connect = Some(timeout))
    }

    /// Sets the longest wait for the headers of the response, from the moment the last byte of the request was sent.
    /// Replaces the client's [`headers_timeout`](crate::ClientBuilder::headers_timeout).
    pub fn headers_timeout(self, timeout: Duration) -> Self {
        self.limit(|timeouts| timeouts.headers = Some(timeout))
    }

    /// Sets the longest time without progress of a body, the request's or the response's. Replaces the client's
    /// [`body_idle_timeout`](crate::ClientBuilder::body_idle_timeout).
    pub fn body_idle_timeout(self, timeout: Duration) -> Self {
        self.min_speed(1, timeout)
    }

    /// Sets the lowest speed of a body, the request's or the response's. Replaces the client's
    /// [`min_speed`](crate::ClientBuilder::min_speed) and [`body_idle_timeout`](crate::ClientBuilder::body_idle_timeout).
    pub fn min_speed(self, bytes: u64, over: Duration) -> Self {
        self.limit(|timeouts| timeouts.body = Some(MinSpeed { bytes: bytes.max(1), over }))
    }

    fn limit(self, change: impl FnOnce(&mut Timeouts)) -> Self {
        self.with(|request| {
            change(&mut request.options.call_options().timeouts);
            Ok(())
        })
    }

    /// Requires an HTTP version: 1.0, 1.1 or 2. By default the server and the client agree on one.
    ///
    /// The call fails if the connection speaks another version. The client decides what connections speak:
    /// [`http1_only`](crate::ClientBuilder::http1_only),
    /// [`http2_prior_knowledge`](crate::ClientBuilder::http2_prior_knowledge).
    pub fn version(self, version: Version) -> Self {
        self.with(|request| {
            request.options.require_version(checked_version(version)?);
            Ok(())
        })
    }

    /// Asks the server for permission before the body is sent (`Expect: 100-continue`, RFC 9110 §10.1.1).
    ///
    /// The body follows when the server sends 100, or nothing for 1 s. If the server sends its final response
    /// instead, the body is not sent and the connection closes. If that response is a redirect, the unsent body goes
    /// along, even if it is a stream. Has no effect over HTTP/2, where a server can reset a single stream, and over
    /// HTTP/1.0, which has no interim responses.
    pub fn expect_continue(self) -> Self {
        self.with(|request| {
            request.headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
            Ok(())
        })
    }

    /// Sets the `Authorization` to a user name and password (RFC 7617). The header value is marked as sensitive.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://127.0.0.1/").basic_auth("me", Some("secret"));
    /// assert!(!format!("{request:?}").contains("secret"));
    /// ```
    pub fn basic_auth<U: fmt::Display, P: fmt::Display>(self, username: U, password: Option<P>) -> Self {
        self.with(|request| {
            let password = password.map_or_else(String::new, |password| password.to_string());
            let value = Credentials::new(username.to_string(), password).basic();
            let value = value.map_err(|error| Error::invalid_request("the credentials cannot be sent", error))?;
            request.headers.insert(AUTHORIZATION, value);
            Ok(())
        })
    }

    /// Sets the `Authorization` to a bearer token (RFC 6750). The header value is marked as sensitive.
    pub fn bearer_auth<T: fmt::Display>(self, token: T) -> Self {
        self.with(|request| {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|error| Error::invalid_header("the credentials cannot be sent", error))?;
            value.set_sensitive(true);
            request.headers.insert(AUTHORIZATION, value);
            Ok(())
        })
    }

    /// Adds pairs, a map, or a struct to the URL's query.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://127.0.0.1/?a=1").query(&[("page", "2"), ("q", "x y")]);
    /// ```
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

    /// Sets the body to pairs, a map, or a struct in form encoding, and the `Content-Type` unless there is one.
    pub fn form<F: serde::Serialize + ?Sized>(self, form: &F) -> Self {
        self.with(|request| {
            let text = serde_urlencoded::to_string(form);
            let text = text.map_err(|error| Error::invalid_request("the form cannot be written", error))?;
            set_body(request, text.into(), "application/x-www-form-urlencoded");
            Ok(())
        })
    }

    /// Sets the body to a value in JSON, and the `Content-Type` unless there is one (feature `json`).
    #[cfg(feature = "json")]
    pub fn json<J: serde::Serialize + ?Sized>(self, value: &J) -> Self {
        self.with(|request| {
            let bytes = serde_json::to_vec(value);
            let bytes = bytes.map_err(|error| Error::invalid_request("the body cannot be written as JSON", error))?;
            set_body(request, bytes.into(), "application/json");
            Ok(())
        })
    }

    /// Sets an observer of this call, beside the client's observers. Replaces one that was set before.
    ///
    /// The observer gets the events of a dial when the call gets the connection or fails, each with the time at which
    /// it happened. The client's observers get them at once. After the call, only the client's observers get events of the
    /// connection, such as [`Event::Closed`](crate::trace::Event::Closed), because other calls may use it.
    pub fn observer(self, observer: impl Observer) -> Self {
        self.with(|request| {
            let options = std::mem::take(&mut request.options);
            request.options = options.observer(observer);
            Ok(())
        })
    }

    /// Has no effect, as in reqwest outside of browsers.
    #[doc(hidden)]
    pub fn fetch_mode_no_cors(self) -> Self {
        self
    }

    /// Sends the request and waits for the head of the response, like [`Client::execute`].
    ///
    /// # Errors
    /// [`Error`], whose [`kind`](Error::kind) is the step that failed. A response with a status of 400 or more is no
    /// error: see [`Response::error_for_status`].
    pub async fn send(self) -> Result<Response> {
        self.client.run(self.request?).await
    }

    /// Changes the request, unless an earlier part of it was invalid.
    fn with(mut self, change: impl FnOnce(&mut Request) -> Result<()>) -> Self {
        let discreet = self.client.inner.defaults.left_out.queries;
        self.request = self.request.and_then(|mut request| match change(&mut request) {
            Ok(()) => Ok(request),
            Err(error) => Err(error.of_request(&request.method, &request.url, discreet)),
        });
        self
    }
}

/// Sets the body, and its content type unless there is one.
fn set_body(request: &mut Request, body: Body, content_type: &'static str) {
    request.body = Some(body);
    request.headers.entry(http::header::CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
}

impl RequestBuilder {
    /// Makes a CONNECT request an extended one (RFC 8441): over HTTP/2, it asks the server to speak this protocol on the request's
    /// stream, for example `websocket`. [`Response::upgrade`](crate::Response::upgrade) returns the stream.
    ///
    /// The call fails with [`ErrorKind::Upgrade`](crate::ErrorKind::Upgrade) if the connection speaks HTTP/1.1, or if
    /// the server's settings do not allow extended CONNECT. The request waits for these settings, as long as for the
    /// [headers](Self::headers_timeout) of a response.
    ///
    /// ```no_run
    /// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
    /// use speeddial::Method;
    ///
    /// let request = client.request(Method::CONNECT, "https://api.example.com/chat").protocol("websocket");
    /// let response = request.header("sec-websocket-version", "13").send().await?.error_for_status()?;
    /// let stream = response.upgrade().await?;
    /// # Ok(()) }
    /// ```
    pub fn protocol(self, name: &str) -> Self {
        self.with(|request| {
            request.options = std::mem::take(&mut request.options).protocol(name);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_header_that_would_split_the_request_is_refused() {
        let request = Client::new().get("http://host/").header("x", "a\r\nevil: yes");
        let error = request.request.expect_err("refused");
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Request, "GET http://host/: the value of header x is not valid".into())
        );
        let error = Client::new().get("http://host/").header("x\r\n", "a").request.expect_err("refused");
        assert_eq!(error.to_string(), "GET http://host/: a header's name is not valid");
    }

    #[test]
    fn headers_replaces_and_header_adds() {
        let mut more = HeaderMap::new();
        more.append("a", HeaderValue::from_static("2"));
        more.append("a", HeaderValue::from_static("3"));
        let request = Client::new().get("http://host/").header("a", "1").headers(more).header("a", "4");
        let request = request.request.unwrap();
        let values: Vec<_> = request.headers.get_all("a").iter().collect();
        assert_eq!(values, ["2", "3", "4"]);
    }
}
