//! The client under exporters of OpenTelemetry.

use std::mem;
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::context::FutureExt;
use opentelemetry_http::{HttpClient, HttpError, ResponseBodyTooLarge};
use speeddial::bytes::{Bytes, BytesMut};
use speeddial::{Client, RequestBuilder, RetryPolicy, http};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// The most bytes of an answer, as in the clients of the opentelemetry-http crate.
const MAX_BODY_SIZE: u64 = 4 << 20;
/// The default of the time limit of a request: that of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The client as the HTTP client of OpenTelemetry's exporters, for `with_http_client` of the opentelemetry-otlp crate.
///
/// The SDK's batch processors export in threads of their own, which have no tokio runtime. So the requests run on the runtime on
/// which the adapter was [created](Self::new), or on that of [`with_runtime`](Self::with_runtime). That runtime has to be driven
/// while spans are flushed: `shutdown` and `force_flush` of a provider block their thread, so call them by
/// [`spawn_blocking`](tokio::task::spawn_blocking) on a runtime of one thread.
///
/// * An answer has at most 4 MiB. A longer one is the error [`ResponseBodyTooLarge`], after which exporters do not retry.
/// * A request takes at most 10 s, or the time of [`with_timeout`](Self::with_timeout), whatever the client's
///   [`timeout`](speeddial::ClientBuilder::timeout). A timeout that is set for the exporter is not known to its HTTP client: it
///   limits the exporter's retries.
/// * Answers with an error status are responses. Exporters retry by themselves, so the client's
///   [`RetryPolicy`] does not apply.
/// * The context of the caller goes along. The SDK's processors suppress telemetry in it, so that OpenTelemetry makes no spans
///   of requests that export spans. Observers and layers that do not ask for that context would make some: give the adapter a
///   client of its own without them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use opentelemetry_http::HttpClient;
/// use speeddial_opentelemetry::Http;
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/v1/traces", server.local_addr()?);
/// # tokio::spawn(async move {
/// #     use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// #     let (mut socket, _) = server.accept().await?;
/// #     socket.read(&mut [0; 4096]).await?;
/// #     socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
/// #     Ok::<_, std::io::Error>(socket)
/// # });
///
/// let exporting = Http::new(speeddial::Client::new());
/// // With opentelemetry-otlp: SpanExporter::builder().with_http().with_http_client(exporting).build()?
/// let request = speeddial::http::Request::post(url).body(speeddial::bytes::Bytes::from("spans"))?;
/// let response = exporting.send_bytes(request).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    /// The runtime for requests; that of the caller if `None`.
    runtime: Option<Handle>,
    timeout: Duration,
}

impl Http {
    /// Creates the adapter. Its requests run on the tokio runtime of the caller. If there is none, they run on the runtime on
    /// which they are sent, and fail outside of one.
    pub fn new(client: Client) -> Self {
        Self { client, runtime: Handle::try_current().ok(), timeout: TIMEOUT }
    }

    /// Sets the tokio runtime for requests: for a program that creates the adapter outside of one, or a runtime beside that of
    /// the program.
    #[must_use]
    pub fn with_runtime(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Sets the longest time of a request, its answer included. 10 s by default.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let sending = send(self.client.clone(), request, self.timeout);
        let Some(runtime) = &self.runtime else { return sending.await };
        // The set ends its task when it is dropped.
        let mut task = JoinSet::new();
        task.spawn_on(sending.with_current_context(), runtime);
        task.join_next().await.expect("a task was spawned")?
    }
}

async fn send(
    client: Client,
    request: http::Request<Bytes>,
    timeout: Duration,
) -> Result<http::Response<Bytes>, HttpError> {
    // The limit is kept here, because exporters know the error of a body that is too long by its type.
    let request = RequestBuilder::from_http(client, request).timeout(timeout).max_body_size(u64::MAX);
    let mut response = request.retry(RetryPolicy::none()).send().await?;
    let mut body = BytesMut::new();
    if response.content_length().is_some_and(|length| length > MAX_BODY_SIZE) {
        return Err(ResponseBodyTooLarge::new().into());
    }
    while let Some(piece) = response.chunk().await? {
        if (body.len() + piece.len()) as u64 > MAX_BODY_SIZE {
            return Err(ResponseBodyTooLarge::new().into());
        }
        body.extend_from_slice(&piece);
    }
    let mut message = http::Response::new(body.freeze());
    *message.status_mut() = response.status();
    *message.version_mut() = response.version();
    *message.headers_mut() = mem::take(response.headers_mut());
    Ok(message)
}
