//! The services that tower layers wrap, without their types.

use bytes::Bytes;
use http_body::Body as HttpBody;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use crate::client::body::Body;
use crate::error::Cause;

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
