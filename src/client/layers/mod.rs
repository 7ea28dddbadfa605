//! tower layers around the whole client.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Uri};
use http_body::Body as HttpBody;
use sync_wrapper::SyncFuture;
use tower::{Layer, Service, ServiceExt};

use super::body::Body;
use super::call;
use super::inner::Inner;
use super::request::http_messages::request_of;
use super::response::Response;
use super::response::call_data::BoxedRequest;
use super::response::http_messages::{MadeCall, returned};
use super::settings::attempt_service::{BoxedService, boxed};
use crate::error::{self, Cause, Error, Result};
use crate::trace::{RequestInfo, Trace};

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
    /// Creates the innermost service: the client without layers.
    pub(super) fn without_layers(inner: &Arc<Inner>) -> Self {
        let inner = inner.clone();
        Self(BoxedService::new(tower::service_fn(move |message: http::Request<Body>| {
            let inner = inner.clone();
            async move {
                let request = request_of(message, inner.defaults.base_url.as_ref())?;
                let response = call::run(&inner, BoxedRequest::new(request)).await?;
                Ok::<_, Cause>(response.into())
            }
        })))
    }

    /// Makes a call through the layers.
    pub(super) async fn execute(self, inner: &Inner, mut request: BoxedRequest) -> Result<Response> {
        let checked = request.check_target();
        let method = request.method.clone();
        let answers_head = method == Method::HEAD;
        let url = request.url.clone();
        let left_out = inner.defaults.left_out;
        let of_request = |error: Error| error.of_request(&method, &url, left_out.queries);
        checked.map_err(of_request)?;
        // Refused here: a message of the `http` crate would lose such a URL.
        request.target().map_err(of_request)?;
        let origin = request.key().origin.clone();
        let observer = request.options.own_observer().cloned();
        let extensions = request.extensions.clone();
        let result = SyncFuture::new(self.oneshot(request.into_request().into())).await;
        let response = result.map_err(|cause| of_request(Error::layer(cause)))?;
        Ok(returned(response, answers_head, || {
            // A layer answered without a call. The response has timings all the same.
            let target = inner.defaults.shown(url.target().map(Uri::from).unwrap_or_default());
            let asked = || RequestInfo {
                method: method.clone(),
                origin: origin.clone(),
                target,
                extensions: extensions.clone(),
            };
            let trace = Trace::start(&inner.hooks, observer, asked);
            let context = error::Context { method: method.clone(), url: url.to_url(), until: None, left_out };
            MadeCall { context, origin: origin.clone(), trace, extensions }
        }))
    }
}

/// A function that wraps the client in one layer.
pub(super) type Wrap = Box<dyn FnOnce(ClientService) -> ClientService + Send + Sync>;

/// Erases the type of a layer, so that the builder can keep layers of any type.
pub(super) fn wrap<L, B>(layer: L) -> Wrap
where
    L: Layer<ClientService> + Send + Sync + 'static,
    L::Service: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
    <L::Service as Service<http::Request<Body>>>::Error: Into<Cause>,
    <L::Service as Service<http::Request<Body>>>::Future: Send + 'static,
    B: HttpBody<Data = Bytes, Error: Into<Cause>> + Send + 'static,
{
    Box::new(move |inner: ClientService| ClientService(boxed(layer.layer(inner))))
}
