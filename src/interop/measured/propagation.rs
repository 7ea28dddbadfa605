//! The headers that join the server's trace with the client's.

use http::HeaderMap;

/// The headers of the [W3C trace context](https://www.w3.org/TR/trace-context/), which belong together.
const TRACE_CONTEXT: [&str; 2] = ["traceparent", "tracestate"];

/// Returns the headers of `added` that a request with `headers` does not have.
///
/// A request with a `traceparent` gets no `tracestate` either, which would be that of another trace.
pub(in crate::interop) fn without_known(mut added: HeaderMap, headers: &HeaderMap) -> HeaderMap {
    if headers.contains_key(TRACE_CONTEXT[0]) {
        for name in TRACE_CONTEXT {
            added.remove(name);
        }
    }
    for name in headers.keys() {
        added.remove(name);
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(names: &[&'static str]) -> HeaderMap {
        names.iter().map(|name| (http::HeaderName::from_static(name), http::HeaderValue::from_static("1"))).collect()
    }

    fn kept(added: &[&'static str], has: &[&'static str]) -> HeaderMap {
        without_known(headers(added), &headers(has))
    }

    #[test]
    fn a_request_keeps_its_own_trace() {
        let added = ["traceparent", "tracestate", "baggage"];
        assert_eq!(kept(&added, &["accept"]), headers(&added));
        assert_eq!(kept(&added, &["traceparent"]), headers(&["baggage"]), "the state is that of another trace");
        assert_eq!(kept(&added, &["traceparent", "tracestate", "baggage"]), headers(&[]));
        assert_eq!(kept(&["b3", "baggage"], &["baggage"]), headers(&["b3"]));
    }
}
