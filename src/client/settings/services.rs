//! The services that layers wrap: the client as a whole, and each attempt.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body as HttpBody;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt};

use crate::client::body::Body;
use crate::error::{Cause, Result};

/// The service that a layer wraps: the client with its connections, redirects and retries, and with the layers that
/// were added before.
#[derive(Clone)]
pub struct ClientService(BoxedService);

impl fmt::Debug for ClientService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientService")
    }
}

impl Service<http::Request<Body>> for ClientService {
    type Response = http::Response<Body>;
    type Error = Cause;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Cause>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

impl ClientService {
    /// Creates the innermost service of one that makes calls.
    pub(in crate::client) fn new<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Cause, Future: Send + 'static>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self(BoxedService::new(service))
    }
}

/// A function that wraps the client in one layer.
pub(in crate::client) type Wrap = Box<dyn FnOnce(ClientService) -> ClientService + Send + Sync>;

/// Erases the type of a layer, so that the builder can keep layers of any type.
pub(in crate::client) fn wrap<L, B>(layer: L) -> Wrap
where
    L: Layer<ClientService> + Send + Sync + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    <L::Service as Service<http::Request<Body>>>::Error: Into<Cause>,
    <L::Service as Service<http::Request<Body>>>::Future: Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Cause>> + Send + 'static,
{
    Box::new(move |inner: ClientService| ClientService(boxed(layer.layer(inner))))
}

/// The service that a layer of [`ClientBuilder::attempt_layer`](crate::ClientBuilder::attempt_layer) wraps: one attempt,
/// from the wait for a connection to the head of the response, with the layers that were added before.
#[derive(Clone)]
pub struct AttemptService(BoxedService);

impl fmt::Debug for AttemptService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttemptService")
    }
}

impl Service<http::Request<Body>> for AttemptService {
    type Response = http::Response<Body>;
    type Error = Cause;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Cause>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

impl AttemptService {
    /// Creates the innermost service of a function that makes one attempt.
    pub(in crate::client) fn without_layers<R>(attempt: fn(http::Request<Body>) -> R) -> Self
    where
        R: Future<Output = Result<http::Response<Body>, Cause>> + Send + 'static,
    {
        Self(BoxedService::new(tower::service_fn(attempt)))
    }
}

/// A function that wraps an attempt in one layer.
pub(in crate::client) type WrapAttempt = Box<dyn FnOnce(AttemptService) -> AttemptService + Send + Sync>;

/// Erases the type of a layer, so that the builder can keep layers of any type.
pub(in crate::client) fn wrap_attempt<L, B>(layer: L) -> WrapAttempt
where
    L: Layer<AttemptService> + Send + Sync + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    <L::Service as Service<http::Request<Body>>>::Error: Into<Cause>,
    <L::Service as Service<http::Request<Body>>>::Future: Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Cause>> + Send + 'static,
{
    Box::new(move |inner: AttemptService| AttemptService(boxed(layer.layer(inner))))
}

/// A service of messages whose type is erased.
pub(in crate::client) type BoxedService = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Cause>;

/// Erases the types of a service that a layer made, and of its responses' bodies and its errors.
pub(in crate::client) fn boxed<S, B>(service: S) -> BoxedService
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error: Into<Cause>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Cause>> + Send + 'static,
{
    let service = service.map_response(|response: http::Response<B>| response.map(Body::wrap));
    BoxCloneSyncService::new(service.map_err(Into::into))
}
