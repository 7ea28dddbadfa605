//! May a request be sent twice? The one answer for resends, retries, hedges, tokens and adapters. A core: no more than its head.

use http::header::HeaderName;
use http::{HeaderMap, Method};

/// Marks a request that a server processes once, however often it comes (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The ends of the names of headers that make a request one on a condition (RFC 9110 §13.1). Stores have names of their own, such as
/// `x-goog-if-generation-match` and `x-oss-forbid-overwrite`.
const CONDITIONS: [&str; 7] = [
    "if-match",
    "if-none-match",
    "if-generation-match",
    "if-unmodified-since",
    "forbid-overwrite",
    "condition-appendpos",
    "write-offset-bytes",
];

/// The headers that make a PUT a rename of what they name, at Azure's stores (Path - Create, Rename File). WebDAV has a method for that, MOVE.
const RENAMES: [HeaderName; 2] =
    [HeaderName::from_static("x-ms-rename-source"), HeaderName::from_static("x-ms-file-rename-source")];

/// Returns true if sending a request twice has the effect of sending it once, for the program too: its method is idempotent (RFC 9110
/// §9.2.2), or it has an `Idempotency-Key`.
///
/// A write on a condition is not: the first copy that the server processes makes the condition false for the second one, whose answer
/// says that nothing was written. Nor is a rename: the first copy that the server processes takes the source away, and the answer to the
/// second one is a 404. So MOVE and the other methods of WebDAV are sent once.
pub(in crate::client) fn is_repeatable(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() || headers.contains_key(IDEMPOTENCY_KEY) {
        return true;
    }
    let is_rename = RENAMES.iter().any(|name| headers.contains_key(name));
    let is_conditional = || headers.keys().any(|name| is_condition(name.as_str()));
    matches!(*method, Method::PUT | Method::DELETE) && !is_rename && !is_conditional()
}

fn is_condition(name: &str) -> bool {
    CONDITIONS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn is_so(method: &str, name: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
        is_repeatable(&method.parse().unwrap(), &headers)
    }

    #[test]
    fn idempotent_methods_are_repeated_and_others_with_a_key_alone() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            assert!(is_so(method, "accept"), "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "ODD"] {
            assert!(!is_so(method, "accept") && is_so(method, "idempotency-key"), "{method}");
        }
    }

    #[test]
    fn a_write_on_a_condition_is_sent_once_unless_the_server_knows_it_again() {
        let stores = ["x-goog-if-generation-match", "x-oss-forbid-overwrite", "x-amz-write-offset-bytes"];
        for name in ["if-match", "if-none-match", "if-unmodified-since"].into_iter().chain(stores) {
            assert!(!is_so("PUT", name) && !is_so("DELETE", name) && is_so("GET", name), "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("if-none-match", HeaderValue::from_static("*"));
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("1"));
        assert!(is_repeatable(&Method::PUT, &headers));
    }

    #[test]
    fn a_rename_is_sent_once_whatever_its_method() {
        for name in ["x-ms-rename-source", "x-ms-file-rename-source"] {
            assert!(!is_so("PUT", name), "{name}");
        }
        for method in ["MOVE", "COPY", "MKCOL", "PROPPATCH", "LOCK"] {
            assert!(!is_so(method, "destination"), "{method}");
        }
        assert!(is_so("PUT", "x-ms-copy-source"), "a copy can be made twice");
    }
}
