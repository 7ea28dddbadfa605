#![doc = include_str!("../README.md")]

mod options;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use http_body::{Body as HttpBody, Frame, SizeHint};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};

use speeddial::bytes::Bytes;
use speeddial::error::FailureClass;
use speeddial::http::Request as Message;
use speeddial::http::uri::Scheme;
use speeddial::settings::RequestOptions;
use speeddial::{Body, Client, Error, Request, RetryPolicy};

use self::options::StoreOptions;

/// The client under object_store 0.14, for the `with_http_connector` of its builders.
///
/// All stores that are built with clones of it, or of the client, share one connection pool and one DNS cache. object_store's
/// feature `aws-base` is enough, or `azure-base`, `gcp-base`, `http-base`, beside one for signatures such as `aws-lc-rs`: without
/// `aws`, `azure` and so on, reqwest is not built.
///
/// # Retries
/// object_store retries by its `RetryConfig`. The client's [`RetryPolicy`] does not apply to these requests,
/// because the attempts of both would multiply. [Resends that are always safe](speeddial::Client::execute) are made all the same: a
/// connection that the server closes between two requests is not an error. A payload of several pieces in memory can be resent
/// like any other. A write with a condition (`PutMode::Create`, `PutMode::Update`) is resent only if the server did nothing about it: the
/// second copy could fail because of the first one.
///
/// The kind of an error, by which object_store decides:
///
/// | kind | failure | retried by object_store |
/// |---|---|---|
/// | `Connect` | DNS, TCP, TLS or a proxy failed, or a time limit for these passed; nothing was sent | yes |
/// | `Request` | the server cannot have acted: the pool's queue is full or its time limit passed, the connection closed before the request was sent, the server refused the stream | yes |
/// | `Timeout` | another time limit passed | if idempotent |
/// | `Interrupted` | the connection broke after the request was sent | if idempotent |
/// | `Decode` | the answer is not HTTP | no |
/// | `Unknown` | the next attempt would fail for the same reason: an invalid URL, a refused certificate, a denied address, a refused redirect, a longer body than [`max_body_size`](speeddial::ClientBuilder::max_body_size), a drained client, a failed layer | no |
///
/// A response's body that breaks off is read on by object_store itself, with a range request from that byte on, if the response
/// has an `ETag`.
///
/// # Settings
/// object_store hands its `ClientOptions` to `connect`. They apply to the store's requests, and take precedence over the
/// client's settings. None is left out in silence:
///
/// | in `ClientOptions` | here |
/// |---|---|
/// | `timeout` (30 s by default), `connect_timeout` (5 s by default) | the limits of each call; without them (`with_timeout_disabled`) the client's apply |
/// | `read_timeout` | the longest wait for the headers, and for each piece of a body |
/// | `user_agent`, default headers | sent with requests that have none of the same name; object_store's own default `User-Agent` is not sent |
/// | `allow_http` | without it, `http` URLs are refused, in redirects as well |
/// | `proxy_url`, `proxy_excludes` | the proxy of these requests; without `proxy_url` those of the client |
/// | `http2_only` | requests fail on connections that do not speak HTTP/2; for HTTP/2 without TLS set [`http2_prior_knowledge`](speeddial::ClientBuilder::http2_prior_knowledge) on the client |
/// | content types | object_store sends them itself |
/// | `allow_invalid_certificates`, `disable_system_certificates`, `proxy_ca_certificate`, root certificates, `dns_resolver`, `pool_idle_timeout`, `pool_max_idle_per_host`, `http2_keep_alive_interval` and `_timeout` and `_while_idle`, `http2_max_frame_size` | `connect` fails, and names the method of [`ClientBuilder`](speeddial::ClientBuilder) to use instead |
/// | `http1_only` (true by default) | the client's: set [`http1_only`](speeddial::ClientBuilder::http1_only) for what object_store does by default. Many transfers over one HTTP/2 connection are slower than over several connections |
/// | `randomize_addresses` (true by default) | the client's: it dials the addresses of a name in its own order, the quickest first |
///
/// The last two rows cannot be told from their defaults, so they are no error.
///
/// Up to 10 redirects are followed, as with object_store's own client; the client's redirect policy does not apply.
/// Decompression is off, because object_store takes the size of an object from `Content-Length`. A
/// [`RequestOptions`] in the extensions of `GetOptions` or `PutOptions` applies to that one operation, and
/// takes precedence over both, except in retries and decompression.
///
/// Called without `connect`, it has the client's settings, apart from retries and decompression.
#[derive(Clone)]
pub struct Http {
    client: Client,
    /// The settings of a store; `None` for those of the client.
    options: Option<Arc<StoreOptions>>,
}

impl Http {
    /// Creates a connector that sends requests with `client`. Clones of the client share its connections.
    pub fn new(client: Client) -> Self {
        Self { client, options: None }
    }

    /// Makes a request with the store's settings. Its path and query are sent as they are written, because the library has signed them.
    fn request(&self, message: HttpRequest) -> Result<Request, HttpError> {
        let (mut head, body) = message.into_parts();
        let mut options = head.extensions.remove::<RequestOptions>().unwrap_or_default();
        if let Some(store) = &self.options {
            if store.https_only && head.uri.scheme() == Some(&Scheme::HTTP) {
                return Err(HttpError::new(HttpErrorKind::Unknown, HttpsOnly));
            }
            for name in store.headers.keys().filter(|name| !head.headers.contains_key(*name)).collect::<Vec<_>>() {
                for value in store.headers.get_all(name) {
                    head.headers.append(name, value.clone());
                }
            }
            options = options.or(store.request.clone());
        }
        // The library retries by itself, and takes the size of an object from `Content-Length`.
        head.extensions.insert(options.retry(RetryPolicy::none()).decompress(false));
        Request::try_from(Message::from_parts(head, outgoing(body))).map_err(failed)
    }
}

/// A store that allows https alone has an http URL.
#[derive(Debug)]
struct HttpsOnly;

impl fmt::Display for HttpsOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store allows https URLs only: see `with_allow_http`")
    }
}

impl std::error::Error for HttpsOnly {}

/// Returns the body to be sent, which can be sent again.
fn outgoing(body: HttpRequestBody) -> Body {
    let length = HttpBody::size_hint(&body).exact();
    match body.as_bytes() {
        _ if length == Some(0) => Body::default(),
        Some(bytes) => bytes.clone().into(),
        None => Body::replayable(length, move || body.clone()),
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request = self.request(request)?;
        let response = self.client.execute(request).await.map_err(failed)?;
        Ok(speeddial::http::Response::<Body>::from(response).map(|body| HttpResponseBody::new(ResponseBody(body))))
    }
}

impl HttpConnector for Http {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let options = Some(Arc::new(StoreOptions::new(options)?));
        Ok(HttpClient::new(Self { client: self.client.clone(), options }))
    }
}

impl fmt::Debug for Http {
    // Without the store's settings, which may have secrets in headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("client", &self.client).finish_non_exhaustive()
    }
}

/// The body of a response, with object_store's errors.
struct ResponseBody(Body);

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(failed)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// Returns object_store's error. It has no URL, because object_store adds that, unless it is secret.
fn failed(error: Error) -> HttpError {
    let kind = match error.class() {
        FailureClass::NotConnected => HttpErrorKind::Connect,
        FailureClass::Unprocessed => HttpErrorKind::Request,
        FailureClass::TimedOut => HttpErrorKind::Timeout,
        FailureClass::Interrupted => HttpErrorKind::Interrupted,
        FailureClass::Malformed => HttpErrorKind::Decode,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error.without_url())
}
