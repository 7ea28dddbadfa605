//! HTTP proxies: forwarding, tunnels, credentials, proxies over TLS, and proxies that misbehave.

use std::net::{Ipv4Addr, SocketAddr};
#[cfg(feature = "__tls")]
use std::sync::Arc;
use std::time::Duration;

use speeddial::http::StatusCode;
use speeddial::pool::HostLimits;
#[cfg(feature = "__tls")]
use speeddial::trace::Phase;
use speeddial::{ErrorKind, NoProxy, PoolConfig, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::common::{ProxyProcess, behind};
#[cfg(feature = "__tls")]
use support::certs::Authority;
use support::http_server::{HttpServer, describe};
#[cfg(feature = "__tls")]
use support::tls_server::TlsServer;
use support::{full, ok_server, read_request_head, refusing};

/// Starts a server that answers with the request's target, Host and Proxy-Authorization.
fn echo() -> HttpServer {
    HttpServer::start(|request| async move {
        let text = |name| request.headers().get(name).map_or("none".to_owned(), |v| v.to_str().unwrap().to_owned());
        let text = format!("{} {} {}", request.uri(), text("host"), text("proxy-authorization"));
        hyper::Response::new(full(text))
    })
    .unwrap()
}

#[tokio::test]
async fn a_plain_request_is_forwarded_in_absolute_form() {
    let proxy = echo();
    let port = proxy.address().port();
    let client = behind(Proxy::all(format!("http://me:secret@proxy.test:{port}")).unwrap()).build().unwrap();
    let response = client.get("http://api.test/a?b=c").send().await.unwrap();
    let timings = response.timings();
    assert_eq!(timings.remote_addr(), Some(proxy.address()));
    assert!(!timings.lookups().is_empty(), "the proxy's own name goes through the cache");
    assert_eq!(response.text().await.unwrap(), "http://api.test/a?b=c api.test Basic bWU6c2VjcmV0");
    let response = client.get("http://api.test/").header("proxy-authorization", "own").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "http://api.test/ api.test own");
    assert_eq!(proxy.connections(), 1, "the connection is reused");
}

#[tokio::test]
async fn hosts_excluded_from_the_proxy_are_connected_to_directly() {
    let proxy = echo();
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let all = Proxy::all(format!("http://{}", proxy.address())).unwrap();
    let client = behind(all.clone().no_proxy(NoProxy::from_string("127.0.0.0/8"))).build().unwrap();
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    let client = behind(all).no_proxy().build().unwrap();
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(proxy.accepted(), 0);
}

#[tokio::test]
async fn a_request_uses_the_first_proxy_whose_rules_match() {
    let first = echo();
    let second = echo();
    let server = ok_server();
    let http = |proxy: &HttpServer| Proxy::http(format!("http://{}", proxy.address())).unwrap();
    let https = Proxy::https("http://127.0.0.1:9").unwrap();
    let builder = behind(http(&first).no_proxy(NoProxy::from_string("second.test,127.0.0.1"))).proxy(https);
    let client = builder.proxy(http(&second).no_proxy(NoProxy::from_string("127.0.0.1"))).build().unwrap();
    let seen = async |url: &str| client.get(url).send().await.unwrap().text().await.unwrap();
    assert_eq!(seen("http://api.test/").await, "http://api.test/ api.test none");
    assert_eq!((first.connections(), second.connections()), (1, 0));
    assert_eq!(seen("http://second.test/").await, "http://second.test/ second.test none");
    assert_eq!((first.connections(), second.connections()), (1, 1), "the rules of the first proxy exclude this host");
    assert_eq!(
        seen(&format!("http://{}/", server.address())).await,
        "ok",
        "the rules of both proxies exclude this host"
    );
    let client = behind(http(&first)).no_proxy().proxy(http(&second)).build().unwrap();
    client.get("http://api.test/").send().await.unwrap();
    assert_eq!(
        (first.connections(), second.connections()),
        (1, 2),
        "no_proxy removes the proxies that were added before"
    );
}

#[tokio::test]
async fn a_rule_for_addresses_applies_to_the_origin_and_not_to_the_proxy() {
    let proxy = echo();
    let all = Proxy::all(format!("http://{}", proxy.address())).unwrap();
    let client = behind(all).deny_private_addresses().build().unwrap();
    assert!(client.get("http://public.example/").send().await.is_ok());
    let error = client.get("http://10.0.0.1/").send().await.unwrap_err();
    assert!(error.to_string().contains("may not connect to 10.0.0.1"), "{error}");
}

#[tokio::test]
async fn limits_for_a_host_are_about_the_host_of_the_url_and_not_the_proxy() {
    let both_in_flight = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let proxy = HttpServer::start(move |request: hyper::Request<hyper::body::Incoming>| {
        let both_in_flight = both_in_flight.clone();
        async move {
            if request.uri().path() == "/both" {
                both_in_flight.wait().await;
            }
            hyper::Response::new(full("ok"))
        }
    })
    .unwrap();
    let url = format!("http://proxy.test:{}", proxy.address().port());
    let one = || HostLimits::new().max_connections(1);
    let pool = PoolConfig::new().for_host("proxy.test", one()).for_host("one.test", one());
    let client = behind(Proxy::all(&url).unwrap()).pool(pool).build().unwrap();
    let get = async |url: &str| client.get(url).send().await.unwrap().text().await.unwrap();
    futures_util::future::join_all((0..10).map(|_| get("http://one.test/"))).await;
    assert_eq!(proxy.connections(), 1);
    tokio::join!(get("http://api.test/both"), get("http://api.test/both"));
    assert_eq!(proxy.connections(), 3);
}

#[tokio::test]
async fn hazard_a_proxy_that_refuses_connections_is_a_connect_error() {
    let (_kept, refused) = refusing();
    let client = behind(Proxy::all(format!("http://me:secret@{refused}")).unwrap()).build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    let expected = format!("GET http://api.test/: the proxy {refused}: connect to 127.0.0.1 failed");
    assert_eq!(error.to_string(), expected, "the error shows no credentials");
}

#[tokio::test]
async fn tinyproxy_forwards_and_tunnels() {
    let server = ok_server();
    for credentials in [None, Some(("me", "secret"))] {
        let Some(proxy) = ProxyProcess::tinyproxy(credentials).await else { return };
        let login = credentials.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        let url = format!("http://{login}{}", proxy.address);
        let client = behind(Proxy::all(&url).unwrap()).build().unwrap();
        let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{credentials:?}");
        assert_eq!(response.text().await.unwrap(), "ok");
        if credentials.is_some() {
            let client = behind(Proxy::all(format!("http://me:wrong@{}", proxy.address)).unwrap()).build().unwrap();
            let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
            assert!(response.status().is_client_error(), "{}", response.status());
        }
    }
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn http2_by_prior_knowledge_goes_through_a_tunnel() {
    let Some(proxy) = ProxyProcess::tinyproxy(Some(("me", "secret"))).await else { return };
    let server = HttpServer::start_as(true, describe).unwrap();
    let proxy = Proxy::all(format!("http://me:secret@{}", proxy.address)).unwrap();
    let client = behind(proxy).http2_prior_knowledge().build().unwrap();
    let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
    assert!(response.timings().proxy() > Duration::ZERO);
    assert!(response.text().await.unwrap().starts_with("HTTP/2.0 GET"));
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn tinyproxy_tunnels_https() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["localhost", "127.0.0.1"], &["h2", "http/1.1"])).await;
    let tls = speeddial::tls::TlsConfig::from(authority.client());
    for credentials in [None, Some(("me", "secret"))] {
        let Some(proxy) = ProxyProcess::tinyproxy(credentials).await else { return };
        let login = credentials.map_or(String::new(), |(user, password)| format!("{user}:{password}@"));
        let client = behind(Proxy::all(format!("http://{login}{}", proxy.address)).unwrap()).tls(tls.clone());
        let client = client.build().unwrap();
        let url = format!("https://127.0.0.1:{}/", server.address().port());
        let response = client.get(&url).send().await.unwrap();
        let timings = response.timings();
        assert!(timings.proxy() > Duration::ZERO && timings.tls() > Duration::ZERO);
        assert_eq!(response.status(), StatusCode::OK);
        if credentials.is_some() {
            let client = behind(Proxy::all(format!("http://{}", proxy.address)).unwrap()).tls(tls.clone());
            let error = client.build().unwrap().get(&url).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Connect);
            let expected =
                format!("GET {url}: the proxy {}: it wants authentication, and answered 407 ", proxy.address);
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

/// Starts a proxy that answers the first request of each connection with these bytes and closes. Without any bytes it keeps the
/// connection open.
#[cfg(feature = "__tls")]
async fn scripted_proxy(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            read_request_head(&mut socket).await;
            let _ = socket.write_all(answer).await;
            if answer.is_empty() {
                kept.push(socket);
            }
        }
    });
    address
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn hazard_a_proxy_that_refuses_or_answers_garbage_or_nothing_is_a_connect_error() {
    let cases: [(&str, &[u8], &str); 6] = [
        (
            "407",
            b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n",
            "it wants authentication, and answered 407 Who are you",
        ),
        (
            "502",
            b"HTTP/1.1 502 Bad\r\ncontent-length: 9\r\n\r\nno\nroute!",
            "the tunnel was unsuccessful, it answered 502 Bad: no route!",
        ),
        ("garbage", b"\x05\xff nonsense \r\n\r\n", "what answers does not speak HTTP/1.1"),
        ("a hint of an answer", b"HTTP/1.1 2", "it closed the connection in the middle of its answer"),
        ("a body with its 200", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "TLS"),
        ("nothing", b"", "no connection within"),
    ];
    for (case, answer, words) in cases {
        let proxy = scripted_proxy(answer).await;
        let client = behind(Proxy::all(format!("http://{proxy}")).unwrap());
        let limit = if answer.is_empty() { Duration::from_millis(500) } else { support::LONG };
        let client = client.connect_timeout(limit).build().unwrap();
        let error = client.get("https://api.test/").send().await.unwrap_err();
        assert!(error.is_connect(), "{case}: {error}");
        assert!(format!("{error:#}").contains(words), "{case}: {error:#}");
        if case == "nothing" {
            assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Proxy));
        }
        assert_eq!(client.pool_stats().idle, 0, "{case}");
    }
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn the_body_of_a_refusal_is_left_out_where_bodies_are_hidden() {
    let proxy = scripted_proxy(b"HTTP/1.1 403 No\r\ncontent-length: 6\r\n\r\nsecret").await;
    for hides in [false, true] {
        let client = behind(Proxy::all(format!("http://{proxy}")).unwrap());
        let client = if hides { client.hide_bodies() } else { client }.build().unwrap();
        let error = client.get("https://api.test/").send().await.unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let texts = format!("{error:#} {error:?} {source:?} {:?}", error.timings());
        assert!(texts.contains("answered 403 No"), "{texts}");
        assert_eq!(texts.contains("secret"), !hides, "{texts}");
    }
}

/// Starts a proxy that opens tunnels for clients with credentials. Its answer and the first bytes of the origin, if the origin sends
/// any by itself, go out in one write.
pub(super) async fn tunnel_proxy() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Some(head) = read_request_head(&mut socket).await else { return Ok(()) };
                let Some(target) = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) else {
                    return socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
                };
                if !head.contains("Proxy-Authorization: Basic bWU6c2VjcmV0") {
                    return socket.write_all(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n").await;
                }
                let mut onward = TcpStream::connect(target).await?;
                let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
                let _ = tokio::time::timeout(Duration::from_millis(200), onward.read_buf(&mut answer)).await;
                socket.write_all(&answer).await?;
                copy_bidirectional(&mut socket, &mut onward).await.map(drop)
            });
        }
    });
    address
}

#[tokio::test]
async fn a_tunnel_opens_with_any_2xx_after_interim_responses_and_the_proxy_is_told_the_user_agent() {
    const ANSWER: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 5\r\n\r\n";
    let server = HttpServer::start_as(true, describe).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = Proxy::all(format!("http://me:secret@{}", listener.local_addr().unwrap())).unwrap();
    let origin = server.address();
    let asked = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let head = read_request_head(&mut socket).await.unwrap();
        let mut onward = TcpStream::connect(origin).await.unwrap();
        socket.write_all(ANSWER).await.unwrap();
        tokio::spawn(async move { copy_bidirectional(&mut socket, &mut onward).await });
        head
    });
    let builder = behind(proxy).user_agent("me/1.0").http2_prior_knowledge();
    let response = builder.build().unwrap().get("http://api.test:81/").send().await.unwrap();
    assert!(response.text().await.unwrap().starts_with("HTTP/2.0 GET"));
    let headers = "Host: api.test:81\r\nUser-Agent: me/1.0\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n";
    assert_eq!(asked.await.unwrap(), format!("CONNECT api.test:81 HTTP/1.1\r\n{headers}\r\n"));
}

#[tokio::test]
async fn bytes_directly_after_a_proxys_answer_belong_to_the_origin() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await?;
        // The origin's SETTINGS, before the client has sent anything. A client that loses them would wait forever.
        socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await?;
        let mut seen = Vec::new();
        // The client must acknowledge the SETTINGS.
        while !seen.windows(9).any(|frame| frame == [0, 0, 0, 4, 1, 0, 0, 0, 0]) {
            if socket.read_buf(&mut seen).await? == 0 {
                return Ok(());
            }
        }
        // `:status: 200` and the end of the stream.
        socket.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88]).await?;
        socket.read_to_end(&mut seen).await.map(drop)
    });
    let proxy = Proxy::all(format!("http://me:secret@{}", tunnel_proxy().await)).unwrap();
    let client = behind(proxy).http2_prior_knowledge().timeout(Duration::from_secs(20)).build().unwrap();
    let response = client.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[cfg(feature = "hyper-util")]
#[tokio::test]
async fn hyper_utils_client_tunnels_through_a_proxy_that_wants_credentials() {
    use http_body_util::{BodyExt, Empty};
    use hyper_util::client::legacy;

    let server = ok_server();
    let proxy = Proxy::all(format!("http://me:secret@{}", tunnel_proxy().await)).unwrap();
    let connector = speeddial::interop::Connector::new(behind(proxy)).unwrap();
    let client =
        legacy::Client::builder(hyper_util::rt::TokioExecutor::new()).build::<_, Empty<bytes::Bytes>>(connector);
    let response = client.get(format!("http://{}/", server.address()).parse().unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
}

/// Starts a proxy over TLS that opens any tunnel.
#[cfg(feature = "__tls")]
async fn tls_proxy(config: Arc<rustls::ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(socket).await?;
                let head = read_request_head(&mut stream).await.ok_or(std::io::ErrorKind::UnexpectedEof)?;
                let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let mut onward = TcpStream::connect(target).await?;
                support::send(&mut stream, b"HTTP/1.1 200 OK\r\n\r\n").await?;
                copy_bidirectional(&mut stream, &mut onward).await
            });
        }
    });
    address
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_can_be_reached_over_tls() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["127.0.0.1"], &["h2"])).await;
    let proxy = tls_proxy(authority.server(&["proxy.test"], &[])).await;
    let proxy = Proxy::all(format!("https://proxy.test:{}", proxy.port())).unwrap();
    let client = behind(proxy.clone()).tls(authority.client()).build().unwrap();
    let response = client.get(format!("https://127.0.0.1:{}/", server.address().port())).send().await.unwrap();
    let timings = response.timings();
    assert!(timings.proxy() > Duration::ZERO && timings.tls() > Duration::ZERO);
    assert!(response.text().await.unwrap().starts_with("HTTP/1.1"), "the rustls configuration offers no protocols");
    let stranger = behind(proxy).tls(Authority::new().client()).build().unwrap();
    let error = stranger.get("https://127.0.0.1:9/").send().await.unwrap_err();
    assert!(error.to_string().contains("the proxy proxy.test:"), "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_over_tls_forwards_plain_requests_and_gets_its_credentials() {
    let authority = Authority::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["proxy.test"], &[]));
    tokio::spawn(async move {
        let mut stream = acceptor.accept(listener.accept().await?.0).await?;
        let head = read_request_head(&mut stream).await.ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len());
        support::send(&mut stream, [answer, head].concat().as_bytes()).await
    });
    let proxy = Proxy::all(format!("https://me:secret@proxy.test:{port}")).unwrap();
    let client = behind(proxy).tls(authority.client()).build().unwrap();
    let seen = client.get("http://api.test/a").send().await.unwrap().text().await.unwrap();
    assert!(seen.starts_with("GET http://api.test/a HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains("proxy-authorization: Basic bWU6c2VjcmV0\r\n"), "{seen}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_proxy_that_wants_a_client_certificate_is_told_from_a_server_that_does() {
    use rustls::server::WebPkiClientVerifier;
    use support::certs::provider;

    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let names = rcgen::CertificateParams::new(["proxy.test".to_owned()]).unwrap();
        let (certificate, key) = authority.sign(names);
        let config =
            rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
        let config = config.with_client_cert_verifier(verifier.clone()).with_single_cert(vec![certificate], key);
        let proxy = tls_proxy(Arc::new(config.unwrap())).await;
        let proxy = Proxy::all(format!("https://proxy.test:{}", proxy.port())).unwrap();
        let client = behind(proxy).tls(authority.client()).build().unwrap();
        for url in ["https://api.test/", "http://api.test/"] {
            let error = client.get(url).send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Connect, "{error:#}");
            let error = format!("{error:#}");
            assert!(error.contains("the proxy "), "{error}");
            assert!(error.contains(": a client certificate is required: received fatal alert: "), "{error}");
            assert!(!error.contains("the server"), "{error}");
        }
    }
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_server_behind_a_proxy_that_wants_a_client_certificate_fails_the_handshake() {
    use speeddial::tls::{TlsConfig, Version};

    let authority = Authority::new();
    let proxy = tls_proxy(authority.server(&["proxy.test"], &[])).await;
    for alpn in ["h2", "http/1.1"] {
        let server = TlsServer::start(authority.mutual_server(&["127.0.0.1"], &[alpn])).await;
        for version in [Version::TLS_1_2, Version::TLS_1_3] {
            let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
            let proxy = Proxy::all(format!("https://proxy.test:{}", proxy.port())).unwrap();
            let client = behind(proxy).tls(tls.min_version(version).max_version(version)).build().unwrap();
            let url = format!("https://127.0.0.1:{}/", server.address().port());
            let error = client.post(url).body("x").send().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Tls, "{alpn}, {version:?}: {error:#}");
            assert!(!error.may_have_been_processed(), "{error:#}");
            assert!(error.to_string().contains("a client certificate is required"), "{error:#}");
        }
    }
}
