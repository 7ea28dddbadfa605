//! The check of a request by the rules of HTTP and by the client's settings. Layers around an attempt may have made a request of
//! their own, so each attempt within layers is checked as well.

use std::net::Ipv6Addr;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Method};

use crate::client::body::Body;
use crate::client::inner::Inner;
use crate::client::policy::framing;
use crate::client::request::into_url::is_port;
use crate::client::request::options::checked_version;
use crate::client::request::{MAX_HEADERS, Request};
use crate::error::{Error, Result};
use crate::origin::Scheme;

/// Refuses a request that must not be sent, or not by this client, and has the pool know its proxy. Parses the request's target, unless
/// the URL has it.
pub(in crate::client::call) fn admit(client: &Inner, request: &mut Request) -> Result<()> {
    check(request)?;
    if let Some(version) = request.options.required_version() {
        checked_version(version)?;
    }
    if let Some(key) = &mut request.key {
        key.proxy = request.options.proxy_choice().cloned();
    }
    if client.defaults.https_only && request.key().origin.scheme() == Scheme::Http {
        return Err(Error::not_https());
    }
    if request.url.parts().is_none() {
        request.parsed_target = Some(request.target()?);
    }
    Ok(())
}

/// Refuses a request whose headers contradict each other, its body, or the client's hold on the connection. Holds a
/// body that is a stream to the length that the headers announce. Leaves out a `Transfer-Encoding` that the body decides.
pub(in crate::client) fn check(request: &mut Request) -> Result<()> {
    let is_plain = request.headers.len() <= MAX_HEADERS && !request.headers.keys().any(|name| CHECKED.contains(name));
    request.asks_upgrade = !is_plain && request.headers.contains_key(UPGRADE);
    let is_streamed = request.body.as_ref().is_some_and(Body::is_streamed);
    if !is_plain && request.headers.contains_key(TRANSFER_ENCODING) {
        framing::leave_chunks_to_body(&mut request.headers);
    }
    if !is_plain || is_streamed {
        refuse(contradiction(request))?;
    }
    refuse(connect_contradiction(request))?;
    if is_streamed && let (Some(length), Some(body)) = (framing::announced_length(&request.headers), &mut request.body)
    {
        body.require_length(length);
    }
    Ok(())
}

/// The headers that [`contradiction`] is about. It is not asked about a request without them, so a check of another one has to name it
/// here.
const CHECKED: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE];

fn refuse(contradiction: Option<&'static str>) -> Result<()> {
    match contradiction {
        Some(contradiction) => Err(Error::refused_request(format!("the request has {contradiction}"))),
        None => Ok(()),
    }
}

/// Returns the first part of a request that must not be sent, in the words of an error message.
fn contradiction(request: &Request) -> Option<&'static str> {
    let Request { headers, body, .. } = request;
    let no_body = Body::default();
    let body = body.as_ref().unwrap_or(&no_body);
    if headers.len() > MAX_HEADERS {
        return Some("too many headers");
    }
    if headers.get_all(HOST).iter().nth(1).is_some() {
        return Some("two host headers");
    }
    if headers.get(HOST).is_some_and(|host| !is_host(host)) {
        return Some("a host header that is no host");
    }
    let content = framing::Content {
        length: body.content_length(),
        trailers: body.trailers(),
        needs_chunks: body.needs_chunks(false),
    };
    framing::contradiction(headers, &content, request.asks_upgrade, request.options.required_version())
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
        assert_eq!(refused(post().header("transfer-encoding", "chunked")), Ok(()));
        assert!(refused(post().header("transfer-encoding", "gzip, chunked")).is_err());
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
