//! The service that layers around the whole client wrap.

use std::fmt;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::Body as HttpBody;
use tower::{Layer, Service};

use super::attempt_service::{BoxedService, boxed};
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
