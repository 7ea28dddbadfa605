//! The check for requests that must not be sent, for example because a server could read two requests where one was
//! written (RFC 9112 §11.2).

use std::net::Ipv6Addr;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, MAX_FORWARDS, PRAGMA,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RANGE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

use super::into_url::is_port;
use super::{MAX_HEADERS, Request};
use crate::client::body::Body;
use crate::error::{Error, Result};

/// Refuses a request whose headers contradict each other, its body, or the client's hold on the connection. Holds a
/// body that is a stream to the length that the headers announce.
pub(in crate::client) fn check(request: &mut Request) -> Result<()> {
    request.asks_upgrade = request.headers.keys().any(|name| *name == UPGRADE);
    if let Some(contradiction) = contradiction(request).or_else(|| connect_contradiction(request)) {
        return Err(Error::refused_request(format!("the request has {contradiction}")));
    }
    if let Some(body) = request.body.as_mut().filter(|body| body.is_streamed()) {
        let announced = request.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if let Some(length) = announced {
            body.require_length(length);
        }
    }
    Ok(())
}

/// The headers that [`contradiction`] is about. It passes a request without them, so a check of another one has to name it here.
const CHECKED: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE];

/// Returns the first part of a request that must not be sent, in the words of an error message.
fn contradiction(request: &Request) -> Option<&'static str> {
    let Request { headers, body, .. } = request;
    let is_plain = headers.len() <= MAX_HEADERS && !headers.keys().any(|name| CHECKED.contains(name));
    if is_plain && !body.as_ref().is_some_and(Body::is_streamed) {
        return None;
    }
    let no_body = Body::default();
    let body = body.as_ref().unwrap_or(&no_body);
    let has_several = |name| headers.get_all(name).iter().nth(1).is_some();
    if headers.len() > MAX_HEADERS {
        Some("too many headers")
    } else if has_several(HOST) {
        Some("two host headers")
    } else if headers.get(HOST).is_some_and(|host| !is_host(host)) {
        Some("a host header that is no host")
    } else if has_wrong_length(headers, body) || has_several(CONTENT_LENGTH) {
        Some("a content-length that is not the body's")
    } else if headers.contains_key(CONTENT_LENGTH) && body.trailers().is_some() {
        Some("a content-length beside trailers, for which the body has to be sent in chunks")
    } else if headers.contains_key(TRANSFER_ENCODING) {
        Some("a transfer-encoding header: the body's framing is the client's to choose")
    } else if has_unknown_connection_option(headers, request.asks_upgrade) {
        Some("a connection header that says more than close, keep-alive or upgrade: the connection is the client's")
    } else if request.asks_upgrade && !has_connection_option(headers, "upgrade") {
        // Intermediaries would pass it on, though it is for them (RFC 9110 §7.8).
        Some("an upgrade header without `connection: upgrade`")
    } else if request.options.required_version() == Some(Version::HTTP_10) && body.needs_chunks(false) {
        Some("a body that cannot be sent over HTTP/1.0: its length is not known, or it has trailers")
    } else if body.trailers().is_some_and(|trailers| trailers.keys().any(is_no_trailer)) {
        Some("a trailer that has to be a header")
    } else {
        None
    }
}

/// Returns true if a `Content-Length` differs from the body's length, or is no number where that length is not known.
fn has_wrong_length(headers: &HeaderMap, body: &Body) -> bool {
    let Some(announced) = headers.get(CONTENT_LENGTH) else { return false };
    match body.content_length() {
        Some(length) => announced.as_bytes() != length.to_string().as_bytes(),
        None => !is_number(announced.as_bytes()),
    }
}

/// Returns true if `text` is a decimal number of at most 19 digits, so that it fits into a `u64`.
fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.len() < 20 && text.iter().all(u8::is_ascii_digit)
}

/// Returns true if `value` is a valid `Host` header: a host, and possibly a port (RFC 9110 §7.2). Userinfo is not
/// allowed.
fn is_host(value: &HeaderValue) -> bool {
    let Ok(authority) = http::uri::Authority::try_from(value.as_bytes()) else { return false };
    // With userinfo, the text does not begin with the host; or it does by chance, and then no port follows.
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return false };
    is_uri_host(authority.host()) && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// Returns true if `host` is an IPv6 address in brackets, or a name without brackets (RFC 3986 §3.2.2). Its characters
/// have been checked before.
fn is_uri_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(['[', ']']),
    }
}

/// Returns the first part of a CONNECT request that must not be sent, or of another one that pretends to be one.
fn connect_contradiction(request: &Request) -> Option<&'static str> {
    let protocol = request.options.extended_protocol();
    if request.method != Method::CONNECT {
        return protocol.map(|_| "a protocol, which only a CONNECT request can ask for");
    }
    if request.body.as_ref().is_some_and(|body| !body.is_empty()) {
        return Some("a body: what follows a CONNECT is another protocol");
    }
    let is_valid = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    protocol.filter(|name| !is_valid(name)).map(|_| "a protocol whose name is not visible ASCII")
}

/// Returns true if a `Connection` header has an option other than `close`, `keep-alive`, `te`, and `upgrade` if the request
/// asks for one.
fn has_unknown_connection_option(headers: &HeaderMap, asks_upgrade: bool) -> bool {
    let known = ["close", "keep-alive", "te", "upgrade"];
    let known = if asks_upgrade { &known[..] } else { &known[..3] };
    let is_known = |option: &str| known.iter().any(|known| option.trim().eq_ignore_ascii_case(known));
    let is_all_known = |value: &HeaderValue| value.to_str().is_ok_and(|value| value.split(',').all(is_known));
    !headers.get_all(CONNECTION).iter().all(is_all_known)
}

/// Returns true if a `Connection` header has this option.
fn has_connection_option(headers: &HeaderMap, option: &str) -> bool {
    let has_option = |value: &str| value.split(',').any(|other| other.trim().eq_ignore_ascii_case(option));
    headers.get_all(CONNECTION).iter().any(|value| value.to_str().is_ok_and(has_option))
}

/// Returns true if a field frames, routes, authorizes or controls the message, or describes its content, so that it must not come
/// after the body (RFC 9110 §6.5.1).
fn is_no_trailer(name: &HeaderName) -> bool {
    const REFUSED: [HeaderName; 17] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        CONNECTION,
        COOKIE,
        EXPECT,
        HOST,
        MAX_FORWARDS,
        PRAGMA,
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        RANGE,
        SET_COOKIE,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        WWW_AUTHENTICATE,
    ];
    // A digest of the content can only be known at its end (RFC 9530 §2).
    let describes_content =
        name.as_str().starts_with("content-") && *name != "content-digest" && *name != "content-md5";
    describes_content || name.as_str().starts_with("if-") || REFUSED.contains(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, RequestBuilder};

    #[test]
    fn headers_that_contradict_the_body_are_refused() {
        let client = Client::new();
        let post = || client.post("http://host/").body("12345");
        let refused = |request: RequestBuilder| check(&mut request.build().unwrap()).map_err(|e| e.to_string());
        let wrong = Err("the request has a content-length that is not the body's".to_owned());
        assert_eq!(refused(post().header("content-length", "5")), Ok(()));
        assert_eq!(refused(post().header("content-length", "40")), wrong);
        assert_eq!(refused(post().header("content-length", "5").header("content-length", "5")), wrong);
        assert_eq!(refused(client.get("http://host/").header("content-length", "1")), wrong);
        assert!(refused(post().header("transfer-encoding", "chunked")).is_err());
        assert!(refused(post().header("host", "a").header("host", "b")).is_err());
    }

    #[test]
    fn an_upgrade_is_asked_for_by_two_headers() {
        let client = Client::new();
        let is_sent = |request: RequestBuilder| check(&mut request.build().unwrap()).is_ok();
        let get = || client.get("http://host/");
        for connection in ["upgrade", "Upgrade", "keep-alive, Upgrade"] {
            assert!(is_sent(get().header("upgrade", "x").header("connection", connection)), "{connection}");
            assert!(!is_sent(get().header("connection", connection)), "{connection} without an upgrade header");
        }
        assert!(!is_sent(get().header("upgrade", "x")));
        assert!(!is_sent(get().header("upgrade", "x").header("connection", "keep-alive")));
        assert!(!is_sent(get().header("upgrade", "x").header("connection", "upgrade, x")));
        let mut request = get().header("upgrade", "x").header("connection", "upgrade").build().unwrap();
        assert!(check(&mut request).is_ok() && request.asks_upgrade);
        request.headers_mut().clear();
        assert!(check(&mut request).is_ok() && !request.asks_upgrade);
    }

    #[test]
    fn a_connect_request_has_no_body_and_no_other_method_has_a_protocol() {
        let client = Client::new();
        let is_sent = |request: RequestBuilder| check(&mut request.build().unwrap()).is_ok();
        let connect = || client.request(Method::CONNECT, "http://host/");
        assert!(is_sent(connect()) && is_sent(connect().protocol("websocket")));
        assert!(!is_sent(connect().body("x")) && !is_sent(connect().body("x").header("content-length", "1")));
        assert!(!is_sent(connect().header("content-length", "1")));
        assert!(!is_sent(client.get("http://host/").protocol("websocket")));
        for wrong in ["", "web socket", "x\r\ny: z", "\u{e9}"] {
            assert!(!is_sent(connect().protocol(wrong)), "{wrong:?}");
        }
    }

    #[test]
    fn a_host_header_is_a_host_with_or_without_a_port() {
        let is_sent = |host: &'static str| {
            let mut request = Client::new().get("http://host/").header("host", host).build().unwrap();
            check(&mut request).is_ok()
        };
        for host in ["a", "a.test", "a.test:8080", "1", "1:1", "[::1]", "[::1]:80", "127.0.0.1:65535"] {
            assert!(is_sent(host), "{host}");
        }
        let wrong = [
            "1@1",
            "a@1",
            "a@a",
            "a:b@a:1",
            "a:b",
            "a:+1",
            "a:65536",
            "a:",
            ":80",
            "a/b",
            "a b",
            "",
            "[]",
            "[zz]",
            "[1.2.3.4]",
            "x[1]",
            "[::1]x",
            "[fe80::1%25eth0]",
        ];
        for host in wrong {
            assert!(!is_sent(host), "{host}");
        }
    }
}
