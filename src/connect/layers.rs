//! tower layers around the opening of each connection.

use std::fmt;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt};

use super::error::ConnectError;
use crate::connect::conn::ConnectedStream;
use crate::origin::Origin;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The request of a [`ConnectorService`]: one connection to open.
pub struct DialRequest {
    origin: Origin,
    dial: Box<dyn FnOnce() -> BoxFuture<'static, Result<ConnectedStream, ConnectError>> + Send + Sync>,
}

impl DialRequest {
    /// Creates the request for a connection to `origin`, which `dial` opens.
    pub(super) fn new(
        origin: Origin,
        dial: impl FnOnce() -> BoxFuture<'static, Result<ConnectedStream, ConnectError>> + Send + Sync + 'static,
    ) -> Self {
        Self { origin, dial: Box::new(dial) }
    }

    /// Returns the origin that the connection is opened to.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

impl fmt::Debug for DialRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialRequest").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The response of a [`ConnectorService`]: an open connection, on which nothing was sent yet. A layer hands it on.
pub struct DialedStream(ConnectedStream);

impl fmt::Debug for DialedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DialedStream").field("remote", &self.0.remote).finish_non_exhaustive()
    }
}

/// The service that a [`connector_layer`](crate::ClientBuilder::connector_layer) wraps: it opens one connection, from the
/// lookup of the name to TLS, with the layers that were added before.
#[derive(Clone)]
pub struct ConnectorService(BoxCloneSyncService<DialRequest, DialedStream, BoxError>);

impl fmt::Debug for ConnectorService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectorService")
    }
}

impl Service<DialRequest> for ConnectorService {
    type Response = DialedStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<DialedStream, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: DialRequest) -> Self::Future {
        self.0.call(request)
    }
}

impl ConnectorService {
    /// Creates the innermost service: the client's connector without layers.
    pub(crate) fn without_layers() -> Self {
        Self(BoxCloneSyncService::new(tower::service_fn(|request: DialRequest| async move {
            Ok::<_, BoxError>(DialedStream((request.dial)().await?))
        })))
    }

    /// Wraps the service in a layer.
    pub(crate) fn wrapped<L>(self, layer: &L) -> Self
    where
        L: Layer<Self>,
        L::Service: Service<DialRequest, Response = DialedStream> + Clone + Send + Sync + 'static,
        <L::Service as Service<DialRequest>>::Error: Into<BoxError>,
        <L::Service as Service<DialRequest>>::Future: Send + 'static,
    {
        Self(BoxCloneSyncService::new(layer.layer(self).map_err(Into::into)))
    }

    /// Opens a connection through the layers.
    pub(super) async fn open(self, request: DialRequest) -> Result<ConnectedStream, ConnectError> {
        let opened = self.oneshot(request).await;
        opened.map(|DialedStream(connected)| connected).map_err(|error| match error.downcast::<ConnectError>() {
            Ok(own) => *own,
            Err(error) => ConnectError::Layer(error.into()),
        })
    }
}
