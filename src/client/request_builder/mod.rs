//! Requests that are being put together, from `client.get(url)` to `send()`.

#[cfg(feature = "multipart")]
mod multipart;
pub(super) mod send_all;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};

use super::request::into_url::IntoUrl;
use super::request::options::checked_version;
use super::request::{Request, add_header, set_headers};
use crate::client::body::{Body, Decompression};
use crate::client::handle::Client;
use crate::client::policy::deadlines::{MinSpeed, Timeouts};
use crate::client::policy::hedge::HedgePolicy;
use crate::client::policy::retry::RetryPolicy;
use crate::client::policy::{framing, redirect};
use crate::client::request::http_messages::request_of;
use crate::client::request::options::RequestOptions;
use crate::client::response::call_data::BoxedRequest;
use crate::client::response::{Response, http_messages};
use crate::connect::Proxy;
use crate::error::{Cause, Error, Result};
use crate::origin::Credentials;
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

impl RequestBuilder {
    /// Creates a builder that passes on a request which a server has received, as a gateway does.
    ///
    /// The request keeps its path and query byte for byte, and is sent to the client's [base URL](crate::ClientBuilder::base_url),
    /// whatever host its peer named. `OPTIONS *` stays what it is. The headers about the peer's connection are removed (RFC 9110 §7.6.1:
    /// `Connection` and the headers that it names, `Keep-Alive`, `Proxy-Connection`, `Proxy-Authenticate`, `Proxy-Authorization`, `TE`,
    /// `Transfer-Encoding`, `Upgrade`), and so is `Host`. So an upgrade is not passed on. `TE: trailers` is sent anew. `Connection` cannot
    /// remove what gateways say: `Forwarded`, `Via`, `X-Forwarded-…` and `X-Real-IP`. Add headers of your own to the builder that this
    /// returns, because those that are in the message before can be named by the peer. `Cookie` headers are joined to one.
    ///
    /// The body is streamed, with its length if that is known, and with its trailers, from which the same fields are removed. If it is
    /// hyper's [`Incoming`](hyper::body::Incoming), a body that its peer cut off is cut off for the upstream as well. A redirect is the
    /// response, and bodies are left as the server sends them. The client's cookie store takes no part. `Via` and `X-Forwarded-For` are
    /// for the caller to add.
    ///
    /// # Errors
    /// [`send`](Self::send) refuses a CONNECT, and any request if the client has no base. A TRACE or an OPTIONS with `Max-Forwards: 0` is
    /// for the gateway itself to answer (RFC 9110 §7.6.2):
    /// [`ErrorDetail::LastForward`](crate::error::ErrorDetail::LastForward). A request with a transfer coding other than `chunked` is for
    /// the gateway to refuse with a 501 (RFC 9112 §6.1):
    /// [`ErrorDetail::TransferCoding`](crate::error::ErrorDetail::TransferCoding).
    ///
    /// [`Response::forward`] passes the response on; the guide [gateways](crate::guide::gateways) has both.
    pub fn forward<B>(client: Client, message: http::Request<B>) -> Self
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        let (mut head, body) = message.into_parts();
        if let Err(refused) = admit(&mut head) {
            return Self { client, request: Err(refused.with_method(head.method)) };
        }
        // The host in it is the peer's to choose: over HTTP/2 and in absolute form there always is one.
        head.uri = head.uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
        let fields = framing::pass_on(&mut head.headers);
        let mut body = Body::received(body, head.version);
        body.leave_connection(fields);
        // The version was that of the other connection.
        head.version = Version::default();
        let message = http::Request::from_parts(head, body);
        let request = Self::from_http(client, message).redirect(redirect::Policy::none()).decompress(false);
        request.set(RequestOptions::passed_on)
    }
}

/// Refuses a request that cannot be passed on, and counts down how often it may be.
fn admit(head: &mut Parts) -> Result<()> {
    if head.method == Method::CONNECT {
        return Err(Error::refused_request("a CONNECT asks for a tunnel, and cannot be passed on as a request"));
    }
    if framing::has_other_coding(&head.headers) {
        return Err(Error::coded_request());
    }
    if !framing::count_forward(&head.method, &mut head.headers) {
        return Err(Error::last_forward());
    }
    Ok(())
}

impl Response {
    /// Converts into a response to the request that was [passed on](RequestBuilder::forward): without the headers that are about
    /// the connection to the server, without trailers of these names, and without a `Content-Length` that is not the body's. One that the
    /// server repeated is written once. The body holds that connection until its end.
    pub fn forward(self) -> http::Response<Body> {
        let mut message = http::Response::from(self);
        http_messages::leave_connection(&mut message);
        framing::write_length_once(message.headers_mut());
        // The server of the program sends it by the version of its own connection.
        *message.version_mut() = Version::default();
        message
    }
}

impl RequestBuilder {
    /// Creates a builder that changes and sends a request of the `http` crate.
    ///
    /// A URI without scheme and host is resolved against the client's [base](crate::ClientBuilder::base_url): its path
    /// replaces that of the base. Settings are taken from a [`RequestOptions`] in the extensions; the other extensions
    /// go along, as with [`extension`](Self::extension).
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// use speeddial::{Client, RequestBuilder, http};
    ///
    /// let client = Client::builder().base_url("http://api.example.com").build()?;
    /// let message = http::Request::put("/v1/items/1").header("x-tenant", "7").body("{}")?;
    /// let response = RequestBuilder::from_http(client, message).send().await?;
    /// # Ok(()) }
    /// ```
    pub fn from_http<B: Into<Body>>(client: Client, message: http::Request<B>) -> Self {
        let request = request_of(message, client.inner.defaults.base_url.as_ref()).map(BoxedRequest::new);
        Self { client, request }
    }

    /// Sets the policy for following redirects. Replaces the [`redirect`](crate::ClientBuilder::redirect) of its host or of the client.
    ///
    /// ```
    /// use speeddial::{Client, redirect};
    ///
    /// let request = Client::new().get("http://api.example.com/login").redirect(redirect::Policy::none());
    /// ```
    pub fn redirect(self, policy: redirect::Policy) -> Self {
        self.set(|options| options.redirect(policy))
    }

    /// Sets the policy for retrying the call. Replaces the [`retry`](crate::ClientBuilder::retry) of its host or of the client;
    /// [`RetryPolicy::none`] turns retries off.
    ///
    /// The retry is taken out of the budget that all calls to the origin share, which is what protects a server in an
    /// outage. The call adds to the budget what its own policy [says](RetryPolicy::budget). A policy with a budget of 0
    /// allows no retry.
    ///
    /// ```
    /// use speeddial::{Client, RetryPolicy};
    ///
    /// let request = Client::new().get("http://api.example.com/v1/items").retry(RetryPolicy::new().attempts(5));
    /// ```
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.set(|options| options.retry(policy))
    }

    /// Turns decompression off or on for the response, or sets its limits. Replaces the
    /// [`decompress`](crate::ClientBuilder::decompress) of its host or of the client (features `gzip`, `brotli`, `zstd`, `deflate`).
    ///
    /// With `false`, the request is sent without an `Accept-Encoding` and the body is left as the server sent it. With
    /// `true`, the limits are those of [`Decompression::default`], whatever the client's are. A request with an
    /// `Accept-Encoding` or a `Range` is not decompressed in any case.
    ///
    /// ```
    /// # #[cfg(feature = "gzip")] {
    /// use speeddial::Client;
    /// use speeddial::settings::Decompression;
    ///
    /// let client = Client::new();
    /// let as_sent = client.get("http://api.example.com/archive").decompress(false);
    /// let short = client.get("http://api.example.com/v1/items").decompress(Decompression::default().max_bytes(1 << 20));
    /// # }
    /// ```
    pub fn decompress(self, decompression: impl Into<Decompression>) -> Self {
        self.set(|options| options.decompress(decompression))
    }

    /// Sets the proxy of the request and of the redirects that follow it. Replaces all of the client's proxies, those of
    /// the environment included: if `proxy` does not apply to a URL, no proxy is used for it.
    ///
    /// The request shares connections only with requests for which an equal proxy was set, with the same credentials
    /// and the same excluded hosts. A [`Proxy::custom`] is equal to its clones alone: make it once and clone it. The
    /// limits of a host count for each of the proxies by itself; the limits in total are for all of them.
    ///
    /// # Errors
    /// [`send`](Self::send) fails if the client connects to a Unix domain socket.
    ///
    /// ```
    /// use speeddial::{Client, Proxy};
    ///
    /// let proxy = Proxy::all("http://user:password@proxy.internal:3128")?;
    /// let request = Client::new().get("http://api.example.com/v1/items").proxy(proxy);
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn proxy(self, proxy: Proxy) -> Self {
        self.set(|options| options.proxy(proxy))
    }

    /// Uses no proxy for the request and for the redirects that follow it. It shares connections only with other requests
    /// for which this was set.
    pub fn no_proxy(self) -> Self {
        self.set(RequestOptions::no_proxy)
    }

    /// Sets the maximum length of the response's body in bytes, after decompression. Replaces the
    /// [`max_body_size`](crate::ClientBuilder::max_body_size) of its host or of the client; `u64::MAX` for no limit.
    ///
    /// # Errors
    /// A longer body is an error of the kind [`ErrorKind::Body`](crate::ErrorKind::Body): of [`send`](Self::send) if its
    /// length is announced, else of the read that would exceed the limit. Other requests of the client are not affected.
    ///
    /// ```
    /// let request = speeddial::Client::new().get("http://api.example.com/v1/items").max_body_size(1 << 20);
    /// ```
    pub fn max_body_size(self, bytes: u64) -> Self {
        self.set(|options| options.max_body_size(bytes))
    }

    /// Sets the policy for hedging the request. Replaces the [`hedge`](crate::ClientBuilder::hedge) of its host or of the client;
    /// [`HedgePolicy::none`] forbids that the request is sent a second time while it waits for its answer.
    ///
    /// The hedge is taken out of the budget that all calls to the origin share.
    ///
    /// ```
    /// use std::time::Duration;
    /// use speeddial::{Client, HedgePolicy};
    ///
    /// let client = Client::new();
    /// let late = client.get("http://api.example.com/v1/items").hedge(HedgePolicy::after(Duration::from_millis(50)));
    /// let once = client.delete("http://api.example.com/v1/items/1").hedge(HedgePolicy::none());
    /// ```
    pub fn hedge(self, policy: HedgePolicy) -> Self {
        self.set(|options| options.hedge(policy))
    }

    /// Adds a value that goes along with the request, and replaces one of the same type. It is never sent.
    ///
    /// Layers find it in the extensions of the `http::Request`, observers in those of
    /// [`RequestInfo`](crate::trace::RequestInfo), and the caller in [`Response::extensions`](crate::Response::extensions),
    /// whatever redirects and retries came in between.
    ///
    /// ```
    /// #[derive(Clone)]
    /// struct Tenant(u32);
    ///
    /// let request = speeddial::Client::new().get("http://api.example.com/").extension(Tenant(7)).build()?;
    /// assert_eq!(request.extensions().get::<Tenant>().expect("just added").0, 7);
    /// # Ok::<(), speeddial::Error>(())
    /// ```
    pub fn extension<T: Clone + Send + Sync + 'static>(self, value: T) -> Self {
        self.with(|request| {
            request.extensions.insert(value);
            Ok(())
        })
    }

    pub(in crate::client) fn set(self, change: impl FnOnce(RequestOptions) -> RequestOptions) -> Self {
        self.with(|request| {
            request.options = change(std::mem::take(&mut request.options));
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

#[cfg(test)]
mod forward_tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use http_body_util::{BodyExt, Empty};

    use super::*;
    use crate::error::ErrorDetail;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let lines = lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut fields = HeaderMap::new();
        fields.extend(lines.collect::<Vec<(http::HeaderName, http::HeaderValue)>>());
        fields
    }

    /// Returns a body that ends with trailers, some of them about a connection.
    fn body(last: &'static str) -> impl http_body::Body<Data = Bytes, Error = Error> + Send + 'static {
        let trailers = fields(&[
            ("x-sum", "7"),
            ("x-hop", "1"),
            ("connection", "x"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("transfer-encoding", "gzip"),
            ("upgrade", "x"),
            ("te", "gzip"),
        ]);
        Body::from(last).map_err(|error| error).with_trailers(std::future::ready(Some(Ok(trailers))))
    }

    fn client() -> Client {
        Client::builder().no_proxy().base_url("http://upstream.test/").build().unwrap()
    }

    async fn read(body: Body) -> (Bytes, HeaderMap) {
        let all = body.collect().await.unwrap();
        let trailers = all.trailers().cloned().unwrap_or_default();
        (all.to_bytes(), trailers)
    }

    #[tokio::test]
    async fn trailers_about_a_connection_and_those_that_it_names_stay_on_it() {
        let kept = fields(&[("x-sum", "7")]);
        for content in ["", "hello"] {
            let message = http::Request::post("/x").header("connection", "close, x-hop").body(body(content)).unwrap();
            let mut request = RequestBuilder::forward(client(), message).build().unwrap();
            let body_of_request = std::mem::take(request.body_mut()).unwrap_or_default();
            assert_eq!(read(body_of_request).await, (content.into(), kept.clone()));
            let response = || {
                let message = http::Response::builder().header("connection", "x-hop");
                Response::from(message.body(Body::wrap(body(content))).unwrap())
            };
            assert_eq!(read(response().forward().into_body()).await, (content.into(), kept.clone()));
            assert_eq!(read(Body::from(response())).await, (content.into(), kept.clone()));
        }
    }

    #[tokio::test]
    async fn the_last_piece_of_a_body_that_is_passed_on_waits_for_the_trailers_that_cannot_be_sent() {
        let late = async {
            tokio::task::yield_now().await;
            Some(Ok::<_, Error>(fields(&[("x-sum", "7")])))
        };
        let message = http::Request::post("/x").header("content-length", "5");
        let message = message.body(Body::from("hello").map_err(|error| error).with_trailers(late)).unwrap();
        let mut request = RequestBuilder::forward(client(), message).build().unwrap();
        let mut body = std::mem::take(request.body_mut()).unwrap_or_default();
        body.restrict_trailers(|| framing::Sendable::Announced(Vec::new()));
        assert!(body.frame().await.unwrap().is_err());
    }

    #[test]
    fn a_request_with_a_transfer_coding_that_is_not_taken_off_is_refused() {
        for (codings, is_refused) in [
            (&["chunked"][..], false),
            (&["Chunked, , chunked"], false),
            (&["identity"], false),
            (&["gzip, chunked"], true),
            (&["gzip"], true),
            (&["chunked", "deflate"], true),
        ] {
            let mut message = http::Request::post("/x");
            for coding in codings {
                message = message.header("transfer-encoding", *coding);
            }
            let built = RequestBuilder::forward(client(), message.body(Empty::<Bytes>::new()).unwrap()).build();
            assert_eq!(built.is_err(), is_refused, "{codings:?}");
            if let Err(error) = built {
                assert_eq!((error.detail(), error.is_builder()), (Some(ErrorDetail::TransferCoding), true));
            }
        }
    }

    #[test]
    fn a_length_that_is_repeated_is_passed_on_once_or_left_out() {
        for (lengths, sent) in [
            (&["5"][..], Some("5")),
            (&["5, 5"], Some("5")),
            (&["5", "5,05"], Some("5")),
            (&["5", "6"], None),
            (&["5,"], None),
            (&["+5"], None),
            (&[""], None),
            (&[], None),
        ] {
            let mut message = http::Response::builder();
            for length in lengths {
                message = message.header("content-length", *length);
            }
            let forwarded = Response::from(message.body(Body::default()).unwrap()).forward();
            let left: Vec<_> = forwarded.headers().get_all("content-length").iter().collect();
            assert_eq!(left, sent.as_slice(), "{lengths:?}");
        }
    }
}
