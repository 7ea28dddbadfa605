//! Proxies with credentials, headers and a choice of their own, as the proxy sees them.

use std::io::Write;
use std::sync::mpsc::{Receiver, channel};

use speeddial::http::header::{HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use speeddial::settings::ProxyError;
use speeddial::{Client, NoProxy, Proxy};

use super::assert_refused;
use support::headers;
use support::scripted_peer::{ScriptedPeer, read_head_text};

/// Starts a proxy that answers every request itself with "ok", and reports the heads.
fn proxy() -> (ScriptedPeer, Receiver<String>) {
    let (report, heads) = channel();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        while let Some(head) = read_head_text(&mut socket) {
            let is_tunnel = head.starts_with("CONNECT ");
            report.send(head).unwrap();
            if is_tunnel {
                let _ = socket.write_all(b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n");
                return;
            }
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    (peer, heads)
}

/// Sends a GET through a proxy with these settings, and returns the head that the proxy sees.
async fn seen(url: &str, set: impl FnOnce(Proxy) -> Proxy) -> String {
    let (server, heads) = proxy();
    let proxy = set(Proxy::all(server.url()).unwrap());
    let client = Client::builder().proxy(proxy).user_agent("me/1").build().unwrap();
    let _ = client.get(url).header("x-own", "1").send().await;
    heads.recv().unwrap()
}

#[tokio::test]
async fn credentials_and_headers_go_with_forwarded_requests() {
    const URL: &str = "http://api.test/x";
    let plain = seen(URL, |proxy| proxy).await;
    assert!(plain.starts_with("GET http://api.test/x ") && !plain.contains("proxy-authorization"), "{plain}");
    let basic = seen(URL, |proxy| proxy.basic_auth("me", "secret")).await;
    assert!(basic.contains("\r\nproxy-authorization: Basic bWU6c2VjcmV0\r\n"), "{basic}");
    let custom =
        seen(URL, |proxy| proxy.basic_auth("me", "x").custom_http_auth(HeaderValue::from_static("Key 1"))).await;
    assert!(custom.contains("\r\nproxy-authorization: Key 1\r\n") && !custom.contains("Basic"), "{custom}");
    let added = headers(&[("x-a", "1"), ("x-own", "2"), ("user-agent", "proxy's"), ("proxy-authorization", "Key 2")]);
    let with_headers = seen(URL, |proxy| proxy.headers(added)).await;
    for line in ["x-a: 1", "x-own: 1", "user-agent: me/1", "proxy-authorization: Key 2"] {
        assert_eq!(with_headers.matches(&format!("\r\n{line}\r\n")).count(), 1, "{line}: {with_headers}");
    }
    assert!(!with_headers.contains("x-own: 2"), "{with_headers}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn credentials_and_headers_go_with_the_request_for_a_tunnel() {
    let mut added = headers(&[("x-a", "1")]);
    added.insert("user-agent", HeaderValue::from_static("tunnel"));
    let head = seen("https://api.test/x", |proxy| proxy.basic_auth("me", "secret").headers(added)).await;
    assert!(head.starts_with("CONNECT api.test:443 HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("\r\nx-a: 1\r\n") && head.contains("\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nuser-agent: tunnel\r\n") && !head.contains("me/1"), "{head}");
    assert!(!head.contains("x-own"), "the request's own headers are the origin's: {head}");
}

#[tokio::test]
async fn a_function_chooses_the_proxy() {
    let (server, heads) = proxy();
    let url = server.url();
    let custom = Proxy::custom(move |origin| match origin.host_str() {
        Some("api.test") => Some(url.clone()),
        Some("wrong.test") => Some("ftp://proxy".to_owned()),
        _ => None,
    });
    let custom = custom.basic_auth("me", "secret").no_proxy(NoProxy::from_string("10.0.0.0/8"));
    let direct = support::ok_server();
    let client = Client::builder().proxy(custom).build().unwrap();
    assert_eq!(client.get("http://api.test/a").send().await.unwrap().text().await.unwrap(), "ok");
    let head = heads.recv().unwrap();
    assert!(head.starts_with("GET http://api.test/a ") && head.contains("proxy-authorization: Basic "), "{head}");
    assert!(client.get(format!("http://{}/", direct.address())).send().await.is_ok());
    assert_eq!((server.connections(), direct.connections()), (1, 1));
    let error = client.get("http://wrong.test/").send().await.unwrap_err();
    assert!(error.is_connect() && format!("{error:#}").contains("not the scheme of a proxy"), "{error:#}");
}

#[test]
fn settings_that_a_proxy_has_no_place_for_are_refused() {
    let socks = || Proxy::all("socks5h://proxy.test").unwrap();
    let with = |proxy| Client::builder().proxy(proxy);
    assert_refused(with(socks().headers(headers(&[("x-a", "1")]))), "headers has no effect with a SOCKS5 proxy");
    let custom = socks().custom_http_auth(HeaderValue::from_static("Key 1"));
    assert_refused(with(custom), "custom_http_auth has no effect with a SOCKS5 proxy");
    let host = Proxy::all("proxy.test").unwrap().headers(headers(&[("host", "other.test")]));
    assert_refused(with(host), "the header `host` cannot be added");
    let colon = Proxy::all("proxy.test").unwrap().basic_auth("a:b", "secret");
    assert_refused(with(colon), "colon");
    let authorization = HeaderMap::from_iter([(PROXY_AUTHORIZATION, HeaderValue::from_static("Key 1"))]);
    assert!(with(Proxy::all("proxy.test").unwrap().headers(authorization)).build().is_ok());
    let error = speeddial::Error::from(ProxyError::Scheme("ftp".to_owned()));
    assert!(error.is_builder(), "{error}");
}
