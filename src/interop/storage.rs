//! The parts that the adapters for object_store and opendal have in common: both libraries retry requests themselves.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::IF_UNMODIFIED_SINCE;
use http::request;
use http_body::Body as HttpBody;

use crate::client::{Body, Request, RequestOptions, RetryPolicy};
use crate::error::{Cause, Result};

/// Leaves retries to the library, and bodies as they arrive.
pub(super) fn left_to_library(options: RequestOptions) -> RequestOptions {
    let options = options.retry(RetryPolicy::none());
    #[cfg(feature = "__compression")]
    let options = options.decompress(false);
    options
}

/// Returns the body to be sent: bytes in memory, which can be sent again, unless the request is a write with a condition.
pub(super) fn request_body<B>(head: &request::Parts, in_one_piece: Option<Bytes>, body: B) -> Body
where
    B: HttpBody<Data = Bytes, Error: Into<Cause>> + Clone + Send + Sync + 'static,
{
    let is_empty = body.size_hint().exact() == Some(0);
    match in_one_piece {
        // Sent twice, it could fail by its own condition: the first copy may have made the object.
        _ if is_conditional_write(head) && is_empty => {
            Body::sized(0, futures_util::stream::empty::<Result<Bytes, Infallible>>())
        }
        _ if is_conditional_write(head) => Body::wrap(body),
        _ if is_empty => Body::default(),
        Some(bytes) => bytes.into(),
        None => Body::made_by(body.size_hint().exact(), move || body.clone()),
    }
}

/// Makes a request whose path and query are sent as they are written, because the library has signed them.
pub(super) fn request(head: request::Parts, body: Body) -> Result<Request> {
    let uri = head.uri.clone();
    let mut request = Request::try_from(http::Request::from_parts(head, body))?;
    request.keep_target(&uri);
    Ok(request)
}

/// Returns true if the request changes something, on a condition about the object that it changes.
fn is_conditional_write(head: &request::Parts) -> bool {
    let is_condition = |name: &str| {
        // Stores have names of their own, such as `x-goog-if-generation-match`.
        ["if-match", "if-none-match", "if-generation-match"].iter().any(|end| name.ends_with(end))
            || name == IF_UNMODIFIED_SINCE.as_str()
    };
    !head.method.is_safe() && head.headers.keys().any(|name| is_condition(name.as_str()))
}
