//! Adapters for other crates: the connector and the DNS cache for hyper-util's clients, and spans of the `tracing` crate.
//!
//! Other neighbours have companion crates over the public API, such as `speeddial-opentelemetry`, `speeddial-metrics` and `speeddial-aws`.

#[cfg(feature = "hyper-util")]
mod connection_use;
#[cfg(feature = "hyper-util")]
mod hyper_util;
#[cfg(feature = "tracing")]
mod tracing;

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use http_body::Body as HttpBody;
use tower_service::Service;

#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
use crate::client::{Body, Client, Request, RequestBuilder, Response};
use crate::error::Error;
#[cfg(feature = "hyper-util")]
pub use hyper_util::{ConnectedStream, Connecting, Connector};

/// The client as a tower service for requests of the `http` crate, with any body of [`Bytes`].
///
/// The service is always ready: a request for which there is no connection waits in the pool's queue. A URI without scheme and
/// host is resolved against the client's [base](crate::ClientBuilder::base_url). Settings are taken from a
/// [`RequestOptions`](crate::settings::RequestOptions) in the extensions. Trailers are passed on in both directions. A body of another type than [`Body`] is a stream and can be sent only once; use a [`Body`] for a request
/// that may have to be resent.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower::Service;
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/", server.local_addr()?);
/// # tokio::spawn(async move {
/// #     use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// #     let (mut socket, _) = server.accept().await?;
/// #     socket.read(&mut [0; 1024]).await?;
/// #     socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await?;
/// #     Ok::<_, std::io::Error>(socket)
/// # });
/// let mut client = speeddial::Client::new();
/// let request = speeddial::http::Request::get(url).body(speeddial::Body::default())?;
/// let response = client.call(request).await?;
/// assert_eq!(response.status(), 204);
/// # Ok(()) }
/// ```
impl<B> Service<http::Request<B>> for Client
where
    B: HttpBody<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Error;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let request = RequestBuilder::from_http(self.clone(), request.map(Body::wrap));
        request.send().map_ok(http::Response::from).boxed()
    }
}

type Executing = Pin<Box<dyn Future<Output = Result<Response, Error>> + Send + Sync>>;

/// The client as a service for its own requests, as reqwest's is one for reqwest's.
impl Service<Request> for Client {
    type Response = Response;
    type Error = Error;
    type Future = Executing;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.execute(request))
    }
}

impl Service<Request> for &Client {
    type Response = Response;
    type Error = Error;
    type Future = Executing;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        Box::pin(self.execute(request))
    }
}

/// Methods of services that say nothing of the kind of request. The traits' own could not tell for which kind the client is asked.
impl Client {
    #[doc(hidden)]
    pub fn poll_ready(&self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    #[doc(hidden)]
    pub async fn ready(&mut self) -> Result<&mut Self, Error> {
        Ok(self)
    }
}
