//! The parts that the adapters for libraries have in common that make, sign and repeat requests themselves.

#[cfg(any(feature = "object-store-0-14", feature = "opendal-0-59"))]
use bytes::Bytes;
use http::request;
#[cfg(any(feature = "object-store-0-14", feature = "opendal-0-59"))]
use http_body::Body as HttpBody;

use crate::client::{Body, Request, RequestOptions, RetryPolicy};
#[cfg(any(feature = "object-store-0-14", feature = "opendal-0-59"))]
use crate::error::Cause;
use crate::error::Result;

/// Leaves retries to the library, and bodies as they arrive.
pub(in crate::interop) fn left_to_library(options: RequestOptions) -> RequestOptions {
    let options = options.retry(RetryPolicy::none());
    options.decompress(false)
}

/// Returns the body to be sent: bytes in memory, which can be sent again.
#[cfg(any(feature = "object-store-0-14", feature = "opendal-0-59"))]
pub(in crate::interop) fn request_body<B>(in_one_piece: Option<Bytes>, body: B) -> Body
where
    B: HttpBody<Data = Bytes, Error: Into<Cause>> + Clone + Send + Sync + 'static,
{
    let length = body.size_hint().exact();
    match in_one_piece {
        _ if length == Some(0) => Body::default(),
        Some(bytes) => bytes.into(),
        None => Body::made_by(length, move || body.clone()),
    }
}

/// Makes a request whose path and query are sent as they are written, because the library has signed them.
pub(in crate::interop) fn request(mut head: request::Parts, options: RequestOptions, body: Body) -> Result<Request> {
    head.extensions.remove::<RequestOptions>();
    Request::of_message(head, options, body, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_sent_as_it_was_written_with_a_slash_at_least() {
        let target = |uri: &str| {
            let head = http::Request::get(uri).body(()).unwrap().into_parts().0;
            request(head, RequestOptions::new(), Body::default()).unwrap().target().unwrap().to_string()
        };
        assert_eq!(target("http://a.test/x/../y?z"), "/x/../y?z");
        // A thread keeps the URL, but not what was written.
        for _ in 0..3 {
            assert_eq!(target("http://a.test/x/../y"), "/x/../y");
        }
        assert_eq!(target("http://a.test?list-type=2"), "/?list-type=2");
        assert_eq!(target("http://a.test"), "/");
    }

    #[test]
    fn settings_among_the_extensions_do_not_stay_there() {
        let message = http::Request::get("http://a.test/").extension(RequestOptions::new()).extension(7_u8);
        let head = message.body(()).unwrap().into_parts().0;
        let request = request(head, RequestOptions::new(), Body::default()).unwrap();
        assert!(request.extensions().get::<RequestOptions>().is_none());
        assert_eq!(request.extensions().get::<u8>(), Some(&7));
    }
}
