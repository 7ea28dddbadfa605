//! Input that is wrong or comes from an attacker: paths, URLs, headers, methods and bodies.
//!
//! The client either sends a correct request or fails before it sends a byte. Client and server must never disagree where a request
//! ends.

use std::io::{Read, Write};

use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use speeddial::{Body, Client, RequestBuilder};

use support::scripted_peer::ScriptedPeer;

/// Starts a peer that answers each request with the bytes of the request.
fn echo() -> ScriptedPeer {
    ScriptedPeer::start(|_, mut socket| {
        let mut seen = Vec::new();
        loop {
            let mut byte = [0];
            match socket.read(&mut byte) {
                Ok(1) => seen.push(byte[0]),
                _ => return,
            }
            let Some(head) = seen.strip_suffix(b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(head).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            if socket.read_exact(&mut body).is_err() {
                return;
            }
            seen.extend_from_slice(&body);
            let _ = write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", seen.len());
            let _ = socket.write_all(&std::mem::take(&mut seen));
        }
    })
}

fn client() -> Client {
    let resolver = FixedResolver::new();
    let resolver = ["a.test", "xn--bcher-kva.test", "my_svc.test", "faß.test", "xn--fa-hia.test"]
        .iter()
        .fold(resolver, |all, name| all.with(name, [[127, 0, 0, 1].into()]));
    Client::builder().dns_resolver(resolver).no_proxy().build().unwrap()
}

async fn seen(request: RequestBuilder) -> Vec<String> {
    request.send().await.unwrap().text().await.unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn hazard_any_path_or_query_is_one_line_of_the_request() {
    let peer = echo();
    let client = client();
    let port = peer.url()["http://127.0.0.1:".len()..].trim_end_matches('/').to_owned();
    for (path, line) in [
        ("/a b", "/a%20b"),
        ("/a\r\nx: y", "/ax:%20y"),
        ("/a\tb", "/ab"),
        ("/a\0b", "/a%00b"),
        ("/a%0d%0ab", "/a%0d%0ab"),
        ("/bücher", "/b%C3%BCcher"),
        ("/\u{202e}", "/%E2%80%AE"),
        ("/a\"<>`{}|^", "/a%22%3C%3E%60%7B%7D|^"),
        ("/../../etc/passwd", "/etc/passwd"),
        ("/%2e%2e/x", "/x"),
        ("/a//b", "/a//b"),
        ("/a\\b", "/a/b"),
        ("/?q=a b\r\nc", "/?q=a%20bc"),
        ("/?", "/?"),
        ("?q", "/?q"),
        ("/x#fragment", "/x"),
        ("", "/"),
    ] {
        let head = seen(client.get(format!("http://a.test:{port}{path}"))).await;
        let method_and_version = head[0].strip_prefix("GET ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
        // The target must be on one line and without spaces, whatever the `url` crate makes of it.
        let target = method_and_version.unwrap_or_else(|| panic!("{path:?}: {head:?}"));
        assert!(!target.contains([' ', '\r', '\n', '\0']), "{path:?}: {target}");
        if !path.contains('^') {
            assert_eq!(target, line, "{path:?}");
        }
        let headers: Vec<_> = head[1..].iter().filter(|line| !line.starts_with("accept-encoding: ")).collect();
        let expected = [format!("host: a.test:{port}"), "accept: */*".to_owned(), String::new()];
        assert_eq!(headers, expected.iter().collect::<Vec<_>>(), "{path:?}: {head:?}");
    }
    for (host, sent) in [
        ("BÜCHER.test", "xn--bcher-kva.test"),
        ("faß.test", "xn--fa-hia.test"),
        ("my_svc.test", "my_svc.test"),
        ("0x7f.1", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
    ] {
        let head = seen(client.get(format!("http://{host}:{port}/"))).await;
        assert!(head.contains(&format!("host: {sent}:{port}")), "{host}: {head:?}");
    }
    assert_eq!(peer.connections(), 5 + 1, "one connection per origin, and each was reused");
}

#[tokio::test]
async fn hazard_invalid_urls_are_refused_before_anything_is_sent() {
    let peer = echo();
    let client = client();
    let port = &peer.url()["http://127.0.0.1:".len()..];
    for url in [
        "",
        "/",
        "//",
        "a.test",
        "http:",
        "http:///",
        "http://",
        "http://:80/",
        "http://a.test:0/",
        "http://a.test:65536/",
        "http://a.test:-1/",
        "http://a.test:80x/",
        "http://a.test:8 0/",
        "http://a b/",
        "http://a%00b/",
        "http://a\0b/",
        "http://a%0d%0ab/",
        "http://[::1/",
        "http://[zz]/",
        "http://1.2.3.256/",
        "http://a.test\u{200b}:x/",
        "ftp://a.test/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "data:,x",
        "unix:/tmp/x",
        "http://us%3Aer:secret@127.0.0.1/",
    ] {
        let error = client.get(url).send().await.unwrap_err();
        assert!(error.is_builder(), "{url:?}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{url:?}: {error:?}");
    }
    let enormous = format!("http://127.0.0.1:{port}{}", "a".repeat(1 << 20));
    assert!(client.get(enormous).send().await.unwrap_err().is_builder());
    assert_eq!(peer.connections(), 0);
}

#[tokio::test]
async fn hazard_headers_that_would_split_or_contradict_a_request_are_refused() {
    let peer = echo();
    let client = client();
    let post = || client.post(peer.url()).body("12345");
    for value in ["a\r\nb: c", "a\nb", "a\rb", "a\0b", "a\u{7f}b"] {
        assert!(post().header("x", value).send().await.unwrap_err().is_builder(), "{value:?}");
        assert!(client.get(peer.url()).bearer_auth(value).send().await.unwrap_err().is_builder(), "{value:?}");
        assert!(Client::builder().user_agent(value).build().unwrap_err().is_builder(), "{value:?}");
    }
    for name in ["", " ", "a b", "a:", "a\r\n", "a\0", "ä", ":path", "a\tb"] {
        assert!(post().header(name, "x").send().await.unwrap_err().is_builder(), "{name:?}");
    }
    for (name, value) in [
        ("host", "a b"),
        ("host", ""),
        ("host", "me@host"),
        ("host", "host/path"),
        ("host", "host:port"),
        ("content-length", "4"),
        ("content-length", "6"),
        ("content-length", "5, 5"),
        ("content-length", "+5"),
        ("content-length", "05"),
        ("content-length", "-5"),
        ("content-length", ""),
        ("transfer-encoding", "gzip, chunked"),
        ("transfer-encoding", "identity"),
        ("transfer-encoding", ""),
        ("connection", "upgrade"),
        ("connection", "close, x-secret"),
        ("connection", "content-length"),
        ("upgrade", "h2c"),
        ("upgrade", "websocket"),
    ] {
        let refused = post().header(name, value).send().await;
        assert!(refused.as_ref().is_err_and(speeddial::Error::is_builder), "{name}: {value}: {refused:?}");
    }
    let chunks_beside_length = post().header("transfer-encoding", "chunked").header("content-length", "5");
    assert!(chunks_beside_length.send().await.unwrap_err().is_builder());
    for (name, first, second) in
        [("host", "a", "b"), ("content-length", "5", "5"), ("transfer-encoding", "chunked", "chunked")]
    {
        assert!(post().header(name, first).header(name, second).send().await.unwrap_err().is_builder());
    }
    let streamed = || Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("12345")]));
    for length in ["x", "", "5,5", "99999999999999999999999"] {
        let request = client.post(peer.url()).header("content-length", length).body(streamed());
        assert!(request.send().await.unwrap_err().is_builder(), "{length}");
    }
    for name in ["content-length", "transfer-encoding", "host", "authorization", "connection"] {
        let trailers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
        let error = client.post(peer.url()).body(Body::from("x").with_trailers(trailers)).send().await.unwrap_err();
        assert!(error.is_builder(), "{name}: {error:?}");
    }
    for method in ["GE T", "GET\r\nx: y", "", "G\0T"] {
        assert!(Method::from_bytes(method.as_bytes()).is_err(), "{method}");
    }
    let connect = || client.request(Method::CONNECT, peer.url());
    for request in [connect().body("x"), connect().protocol("a b"), client.get(peer.url()).protocol("websocket")] {
        assert!(request.send().await.unwrap_err().is_builder());
    }
    for (name, value) in
        [("content-length", "3"), ("transfer-encoding", "gzip"), ("host", "bad host"), ("upgrade", "h2c")]
    {
        let defaults = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
        let client = Client::builder().no_proxy().default_headers(defaults).build().unwrap();
        let refused = client.post(peer.url()).body("12345").send().await;
        assert!(refused.as_ref().is_err_and(speeddial::Error::is_builder), "{name}: {value} by default: {refused:?}");
    }
    for count in [16_385, 24_575, 24_576] {
        let many = (0..count)
            .map(|number| (HeaderName::try_from(format!("x-{number}")).unwrap(), HeaderValue::from_static("1")));
        let mut request = client.post(peer.url()).build().unwrap();
        request.headers_mut().extend(many);
        assert!(client.execute(request).await.unwrap_err().is_builder(), "{count} headers");
    }
    let many = (0..40_000).fold(client.get(peer.url()), |request, number| request.header(format!("x-{number}"), "1"));
    assert!(many.send().await.unwrap_err().is_builder());
    assert_eq!(peer.connections(), 0, "nothing was sent");
}

#[tokio::test]
async fn unusual_but_valid_requests_are_sent_unchanged() {
    let peer = echo();
    let client = client();
    let post = || client.post(peer.url()).body("12345");
    let has = |head: &[String], line: &str| head.iter().any(|seen| seen == line);
    assert!(has(&seen(post().header("host", "virtual.test:81")).await, "host: virtual.test:81"));
    assert!(has(&seen(post().header("host", "[::1]:81")).await, "host: [::1]:81"));
    assert!(has(&seen(post().header("content-length", "5")).await, "content-length: 5"));
    assert!(has(&seen(post().header("x", "tab\there")).await, "x: tab\there"));
    assert!(has(&seen(post().header("connection", "keep-alive")).await, "connection: keep-alive"));
    assert!(has(&seen(post().header("te", "trailers").header("connection", "TE")).await, "connection: TE"));
    let latin = HeaderValue::from_bytes(b"caf\xe9").unwrap();
    assert!(seen(post().header("x", latin)).await.iter().any(|line| line.starts_with("x: caf")));
    let odd = client.request(Method::from_bytes(b"BREW").unwrap(), peer.url());
    assert_eq!(seen(odd).await[0], "BREW / HTTP/1.1");
    let get = seen(client.get(peer.url()).body("12345")).await;
    assert_eq!((get[0].as_str(), get.last().unwrap().as_str()), ("GET / HTTP/1.1", "12345"));
    assert!(has(&seen(client.post(peer.url())).await, "content-length: 0"), "a POST without a body has length 0");
    assert!(has(&seen(client.get(peer.url()).version(Version::HTTP_10)).await, "GET / HTTP/1.0"));
    assert!(seen(post().expect_continue().body("")).await.iter().all(|line| !line.starts_with("expect")));
    let before = peer.connections();
    let last = seen(post().header("connection", "close")).await;
    assert!(has(&last, "connection: close"));
    seen(post()).await;
    assert_eq!(peer.connections(), before + 1, "a connection with `close` is closed");
}

#[tokio::test]
async fn expect_continue_is_not_sent_over_http_1_0() {
    let peer = echo();
    let client = client();
    let head = seen(client.post(peer.url()).version(Version::HTTP_10).expect_continue().body("12345")).await;
    assert_eq!((head[0].as_str(), head.last().unwrap().as_str()), ("POST / HTTP/1.0", "12345"));
    assert!(head.iter().all(|line| !line.starts_with("expect")), "{head:?}");
}
