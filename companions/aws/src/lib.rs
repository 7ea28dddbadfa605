#![doc = include_str!("../README.md")]

mod connections;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use aws_smithy_runtime_api::client::connection::CaptureSmithyConnection;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use aws_smithy_runtime_api::client::http::telemetry::CaptureHttpAttemptTelemetry;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::retry::ErrorKind as Retryable;
use http_body::Body as HttpBody;
use speeddial::bytes::Bytes;
use speeddial::dns::CachedResolver;
use speeddial::error::FailureClass;
use speeddial::settings::RequestOptions;
use speeddial::{Body, Client, Error, ErrorKind, Request, Response, RetryPolicy, http, redirect};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use self::connections::Connections;

/// The longest body in memory that is taken from the SDK at once. A longer one is read as it is sent, so that the SDK sees the
/// upload's progress.
const MAX_TAKEN_AT_ONCE: usize = 64 * 1024;

/// A [`Client`] under the AWS SDKs for Rust: for `http_client` of `aws_config` and of each SDK's `Config`.
///
/// Clones share the client, and so do all SDK clients that are given one of them: its DNS cache, its connections under their
/// limits, and its observers. SDK crates can be built without a client of their own: `default-features = false` with the
/// features `behavior-version-latest` and `rt-tokio`.
///
/// # Retries
/// | failure | what happens |
/// |---|---|
/// | a kept connection that closed, a refused HTTP/2 stream | the client sends the request again if that is safe, as [`Client::execute`] says, and a write with a condition (`if_none_match`) only if the server did nothing about it. The SDK does not notice |
/// | 500, 502, 503, 504, throttling, a timeout, a connection that failed | the SDK retries, by its `RetryConfig`. The client's [`RetryPolicy`] does not apply |
/// | a poisoned connection, after a failure that the SDK takes for a passing one | it gets no more requests, and closes when those that it carries are over |
///
/// The client's other rules for calls apply, except that redirects are not followed and bodies are not decompressed: signatures
/// and checksums are over what is sent. Do not give it tokens or functions that change requests, which the SDK has signed. A
/// setting of a [`RequestOptions`] among the extensions of the SDK's request, from an interceptor, takes precedence over all of
/// this.
///
/// # Time limits
/// The SDK's connect timeout (3.1 s by default) is the request's [`connect_timeout`](RequestOptions::connect_timeout). Its read
/// timeout (none by default) is the time from the start of an attempt, the wait for a connection included, to the headers of the
/// response, as in the SDK's own client. The wait for a connection under the pool's limits is bounded by
/// [`PoolConfig::wait_timeout`](speeddial::PoolConfig::wait_timeout). Timers are tokio's, whatever the SDK's `sleep_impl`.
///
/// # Errors
/// | the SDK's `DispatchFailure` | the client's error |
/// |---|---|
/// | `is_timeout()` | a time limit passed |
/// | `is_io()` | no connection could be opened, its name not be resolved, or the connection failed |
/// | `is_user()` | the request cannot be sent, or its body failed |
/// | `is_other()`, which the SDK retries | the server closed the connection without a response; the pool's queue is full |
/// | `is_other()`, which the SDK does not retry | anything else |
///
/// The [`Error`] is among the sources.
///
/// # Versions
/// The traits are those of aws-smithy-runtime-api 1.x, from 1.20 on, which is the version of every current SDK crate. A new SDK
/// crate works with this feature as long as that crate stays at 1. It needs a newer Rust than this crate does: 1.94.1 for 1.20.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    connect_timeout: Option<Duration>,
    read_timeout: Option<Duration>,
}

impl Http {
    /// Puts a client under the SDK.
    pub fn new(client: Client) -> Self {
        Self { client, connect_timeout: None, read_timeout: None }
    }

    /// Returns the client, for example for its statistics.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends one attempt of the SDK, and returns its response with the body still to be read.
    async fn send(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let conns = Connections::of(&self.client);
        let message = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
        if let Some(capture) = message.extensions().get::<CaptureSmithyConnection>() {
            let conns = conns.clone();
            capture.set_connection_retriever(move || conns.metadata());
        }
        let telemetry = message.extensions().get::<CaptureHttpAttemptTelemetry>().cloned();
        let start = Instant::now();
        let sent = match self.request(message, &conns) {
            Ok(request) => self.send_in_time(request).await,
            Err(error) => Err(Failure::Client(error)),
        };
        match &sent {
            Ok(response) => conns.answered(response),
            // An HTTP/2 connection would stay, and may be dead.
            Err(Failure::Late(_)) => conns.retire_last(),
            Err(Failure::Client(_)) => {}
        }
        if let Some(telemetry) = telemetry {
            telemetry.record_connector_call_duration(start.elapsed());
            conns.record(&telemetry);
        }
        let response = sent.map_err(|failure| conns.add_to(failure.into()))?;
        let response = http::Response::<Body>::from(response).map(SdkBody::from_body_1_x);
        HttpResponse::try_from(response).map_err(|error| conns.add_to(ConnectorError::other(error.into(), None)))
    }

    /// Makes a request of the SDK's message.
    fn request(&self, message: http::Request<SdkBody>, conns: &Connections) -> Result<Request, Error> {
        // The SDK retries by itself, and its signatures and checksums are over what is sent.
        let mut defaults = RequestOptions::new()
            .retry(RetryPolicy::none())
            .decompress(false)
            .redirect(redirect::Policy::none())
            .observer(conns.clone());
        if let Some(timeout) = self.connect_timeout {
            defaults = defaults.connect_timeout(timeout);
        }
        let (mut head, body) = message.into_parts();
        let own = head.extensions.remove::<RequestOptions>().unwrap_or_default();
        head.extensions.insert(own.or(defaults));
        // Path and query are sent as they are written, because the SDK has signed them.
        Request::try_from(http::Request::from_parts(head, outgoing(body)))
    }

    /// Sends the request, and waits for the head of its response within the SDK's read timeout.
    async fn send_in_time(&self, request: Request) -> Result<Response, Failure> {
        let sending = self.client.execute(request);
        // Without a runtime there is no timer, and the call fails for the same reason.
        let timer = self.read_timeout.filter(|_| Handle::try_current().is_ok());
        let timer = timer.and_then(|limit| Some((limit, Instant::now().checked_add(limit)?)));
        let Some((limit, until)) = timer else { return sending.await.map_err(Failure::Client) };
        match timeout_at(until, sending).await {
            Ok(result) => result.map_err(Failure::Client),
            Err(_) => Err(Failure::Late(ReadTimeout(limit))),
        }
    }
}

impl HttpClient for Http {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let client = self.client.clone();
        let (connect_timeout, read_timeout) = (settings.connect_timeout(), settings.read_timeout());
        SharedHttpConnector::new(Self { client, connect_timeout, read_timeout })
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        Some(ConnectorMetadata::new("speeddial", Some(Cow::Borrowed(env!("CARGO_PKG_VERSION")))))
    }
}

/// Sends requests without the SDK's time limits; [`HttpClient::http_connector`] returns a connector with them.
impl HttpConnector for Http {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().send(request))
    }
}

/// Makes a body of the SDK's. One that the SDK can make again can be sent again.
fn outgoing(mut body: SdkBody) -> Body {
    let in_memory = body.bytes().map(<[u8]>::len);
    if in_memory.is_some_and(|length| length <= MAX_TAKEN_AT_ONCE) {
        return taken(&mut body).into();
    }
    if body.try_clone().is_none() {
        return Body::wrap(body);
    }
    let length = HttpBody::size_hint(&body).exact();
    Body::replayable(length, move || body.try_clone().expect("a body that could be cloned before"))
}

/// Takes the bytes of a body in memory. It is read to its end: the SDK may have wrapped it to see how the upload goes on, and
/// would take one that nothing reads for a stalled one.
fn taken(body: &mut SdkBody) -> Bytes {
    let mut pieces = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *body).poll_frame(&mut cx) {
        pieces.extend(frame.into_data());
    }
    let whole = body.bytes().unwrap_or_default();
    match pieces.pop() {
        Some(piece) if piece.len() == whole.len() => piece,
        _ => Bytes::copy_from_slice(whole),
    }
}

/// The reason why an attempt of the SDK has no response.
enum Failure {
    Client(Error),
    Late(ReadTimeout),
}

/// The SDK's read timeout passed.
#[derive(Debug, thiserror::Error)]
#[error("no response headers within {0:?}, the read timeout of the SDK")]
struct ReadTimeout(Duration);

impl From<Failure> for ConnectorError {
    fn from(failure: Failure) -> Self {
        let error = match failure {
            Failure::Late(error) => return Self::timeout(error.into()),
            Failure::Client(error) => error,
        };
        let is_lasting = error.class() == FailureClass::Final;
        match error.kind() {
            _ if error.is_timeout() => Self::timeout(error.into()),
            ErrorKind::Request => Self::user(error.into()),
            ErrorKind::Resolve | ErrorKind::Connect | ErrorKind::Tls => Self::io(error.into()),
            // The body of the request failed.
            ErrorKind::Exchange if is_lasting => Self::user(error.into()),
            ErrorKind::Exchange => match broken(&error) {
                Broken::Connection => Self::io(error.into()),
                Broken::Response => Self::other(error.into(), Some(Retryable::TransientError)),
                Broken::Protocol => Self::other(error.into(), None),
            },
            ErrorKind::Pool if !is_lasting => Self::other(error.into(), Some(Retryable::TransientError)),
            _ => Self::other(error.into(), None),
        }
    }
}

/// The part of an exchange that failed.
#[derive(Debug, PartialEq)]
enum Broken {
    /// The connection, or the server did nothing about the request.
    Connection,
    /// The response: the connection closed before it.
    Response,
    /// The server's HTTP.
    Protocol,
}

/// Returns what a failed exchange says was broken, as the SDK's own client takes it.
fn broken(error: &Error) -> Broken {
    if error.class() == FailureClass::Malformed {
        return Broken::Protocol;
    }
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(broken) = broken_by(cause) {
            return broken;
        }
        next = cause.source();
    }
    Broken::Connection
}

/// Returns what a cause says was broken, if it is more than the connection.
fn broken_by(cause: &(dyn StdError + 'static)) -> Option<Broken> {
    if cause.downcast_ref().is_some_and(hyper::Error::is_incomplete_message) {
        return Some(Broken::Response);
    }
    let h2 = cause.downcast_ref::<h2::Error>().filter(|h2| !h2.is_go_away())?;
    (h2.reason()? != h2::Reason::REFUSED_STREAM).then_some(Broken::Protocol)
}

/// The DNS cache as a resolver for the SDK's own client: aws-smithy-http-client's `build_with_resolver` and `dns_resolver`. It
/// answers with the addresses of both families. Clones, and those of the [`CachedResolver`], share the cache.
#[derive(Debug, Clone)]
pub struct Dns(pub CachedResolver);

impl ResolveDns for Dns {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move { self.0.lookup_both(name).await.map_err(ResolveDnsError::new) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body::Frame;

    use super::*;

    /// A body that counts how often its end was read. The SDK's own wrapper, which watches uploads, waits for that.
    struct Watched(SdkBody, Arc<AtomicUsize>);

    impl HttpBody for Watched {
        type Data = Bytes;
        type Error = Box<dyn StdError + Send + Sync>;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let polled = Pin::new(&mut self.0).poll_frame(cx);
            self.1.fetch_add(usize::from(matches!(polled, Poll::Ready(None))), Ordering::Relaxed);
            polled
        }
    }

    #[test]
    fn a_short_body_in_memory_is_taken_at_once_to_the_end_of_what_the_sdk_wrapped_around_it() {
        let ends = Arc::new(AtomicUsize::new(0));
        let watch = ends.clone();
        let watched = move |body| SdkBody::from_body_1_x(Watched(body, watch.clone()));
        let body = SdkBody::from("hello").map_preserve_contents(watched);
        assert!(body.is_streaming());
        let body = outgoing(body);
        assert_eq!(body.as_bytes(), Some(&b"hello"[..]));
        assert_ne!(ends.load(Ordering::Relaxed), 0);
        assert_eq!(outgoing(SdkBody::empty()).as_bytes(), Some(&b""[..]));
    }

    #[test]
    fn a_body_can_be_sent_again_if_the_sdk_can_make_it_again() {
        let long = outgoing(SdkBody::from(vec![7; 100_000]));
        assert!(long.as_bytes().is_none(), "read as it is sent");
        assert_eq!((long.content_length(), long.try_clone().is_some()), (Some(100_000), true));
        let once = SdkBody::from_body_1_x(Body::from("hello"));
        assert!(outgoing(once).try_clone().is_none());
    }

    #[tokio::test]
    async fn the_sdk_gets_the_kind_of_error_that_its_own_client_has() {
        let kind = |error: Error| {
            let error = ConnectorError::from(Failure::Client(error));
            (error.is_timeout(), error.is_user(), error.is_io(), error.as_other())
        };
        let (timeout, user, io) = ((true, false, false, None), (false, true, false, None), (false, false, true, None));
        let client = Client::builder().max_body_size(1).build().unwrap();
        assert_eq!(kind(client.get("ftp://a.test").send().await.unwrap_err()), user);
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert_eq!(kind(client.get(&url).timeout(Duration::from_millis(20)).send().await.unwrap_err()), timeout);
        let broken_body = Body::wrap_stream(futures_util::stream::iter([Err::<Bytes, _>("the disk is gone")]));
        assert_eq!(kind(client.post(&url).body(broken_body).send().await.unwrap_err()), user);
        drop(silent);
        assert_eq!(kind(client.get(&url).send().await.unwrap_err()), io);
        let late = ConnectorError::from(Failure::Late(ReadTimeout(Duration::from_secs(1))));
        assert!(late.is_timeout());
    }

    #[test]
    fn a_broken_rule_of_http2_is_no_broken_connection() {
        assert_eq!(broken_by(&h2::Error::from(h2::Reason::REFUSED_STREAM)), None);
        assert_eq!(broken_by(&io::Error::from(io::ErrorKind::ConnectionReset)), None);
        assert_eq!(broken_by(&h2::Error::from(h2::Reason::PROTOCOL_ERROR)), Some(Broken::Protocol));
    }
}
