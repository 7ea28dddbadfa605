//! tower layers around the whole client.

use std::sync::Weak;

use http::{Method, Uri};
use sync_wrapper::SyncFuture;
use tower::ServiceExt;

use super::body::Body;
use super::call;
use super::inner::Inner;
use super::request::http_messages::request_of;
use super::response::Response;
use super::response::call_data::BoxedRequest;
use super::response::http_messages::{MadeCall, returned};
use super::settings::services::{ClientService, Wrap};
use crate::error::{self, Cause, Error, Result};
use crate::trace::{RequestInfo, Trace};

/// Puts a client within its layers. Returns `None` if there are none.
pub(super) fn within(layers: Vec<Wrap>, client: &Weak<Inner>) -> Option<ClientService> {
    if layers.is_empty() {
        return None;
    }
    let innermost = without_layers(client.clone());
    Some(layers.into_iter().fold(innermost, |service, layer| layer(service)))
}

/// Creates the innermost service: the client without layers. It does not keep the client alive, which has the layers.
fn without_layers(client: Weak<Inner>) -> ClientService {
    ClientService::new(tower::service_fn(move |message: http::Request<Body>| {
        let client = client.upgrade();
        async move {
            let Some(inner) = client else {
                return Err(Error::refused_request("a layer sent it after the client is gone").into());
            };
            let request = request_of(message, inner.defaults.base_url.as_ref())?;
            let response = call::run(&inner, BoxedRequest::new(request)).await?;
            Ok::<_, Cause>(response.into())
        }
    }))
}

/// Makes a call through the layers.
pub(super) async fn execute(service: ClientService, inner: &Inner, mut request: BoxedRequest) -> Result<Response> {
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
    let result = SyncFuture::new(service.oneshot(request.into_request().into())).await;
    let response = result.map_err(|cause| of_request(Error::layer(cause)))?;
    Ok(returned(response, answers_head, || {
        // A layer answered without a call. The response has timings all the same.
        let target = inner.defaults.shown(url.target().map(Uri::from).unwrap_or_default());
        let asked =
            || RequestInfo { method: method.clone(), origin: origin.clone(), target, extensions: extensions.clone() };
        let trace = Trace::start(&inner.hooks, observer, asked);
        let context = error::Context { method: method.clone(), url: url.to_url(), until: None, left_out };
        MadeCall { context, origin: origin.clone(), trace, extensions }
    }))
}
