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
    let uri = head.uri.clone();
    head.extensions.remove::<RequestOptions>();
    let options = options.conditional_write(is_conditional_write(&head));
    let mut request = Request::of_message(head, options, body, None)?;
    request.keep_target(&uri);
    Ok(request)
}

/// Returns true if the request changes something, on a condition about the object that it changes. Sent twice, it could fail by
/// its own condition: the first copy may have made the object.
fn is_conditional_write(head: &request::Parts) -> bool {
    // Stores have names of their own, such as `x-goog-if-generation-match` and `x-oss-forbid-overwrite`.
    const CONDITIONS: [&str; 7] = [
        "if-match",
        "if-none-match",
        "if-generation-match",
        "if-unmodified-since",
        "forbid-overwrite",
        "condition-appendpos",
        "write-offset-bytes",
    ];
    let is_condition = |name: &str| CONDITIONS.iter().any(|end| name.ends_with(end));
    !head.method.is_safe() && head.headers.keys().any(|name| is_condition(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_with_a_condition_is_told_from_others() {
        let is_conditional = |method: &str, name: &str| {
            let request = http::Request::builder().method(method).uri("http://a.test/x").header(name, "1");
            is_conditional_write(&request.body(()).unwrap().into_parts().0)
        };
        let names =
            ["if-none-match", "x-goog-if-generation-match", "x-oss-forbid-overwrite", "x-amz-write-offset-bytes"];
        assert_eq!(names.map(|name| is_conditional("PUT", name)), [true; 4]);
        assert!(!is_conditional("GET", "if-none-match"));
        assert!(!is_conditional("PUT", "content-type"));
    }

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
