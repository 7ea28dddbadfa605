//! Requests and responses that a gateway passes on.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use speeddial::error::ErrorDetail;
use speeddial::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use speeddial::layers::AttemptHead;
use speeddial::{Body, Client, ErrorKind, Proxy, RequestBuilder, RetryPolicy, redirect};
use support::full;
use support::http_server::HttpServer;
use support::scripted_peer::{ScriptedPeer, read_head_text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the upstream saw of a request: its method, its target, its headers, its body and its trailers.
type Seen = (Method, String, HeaderMap, String, Option<HeaderMap>);

/// Starts a server that reports each request, and answers by its path.
fn upstream(http2: bool) -> (HttpServer, Receiver<Seen>) {
    let (report, reported) = channel();
    let server = HttpServer::start_as(http2, move |request: Request<Incoming>| {
        let report = report.clone();
        async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await else {
                report.send((head.method, "cut off".to_owned(), head.headers, String::new(), None)).unwrap();
                return Response::new(full("cut off"));
            };
            let trailers = body.trailers().cloned();
            let text = String::from_utf8(body.to_bytes().into()).unwrap();
            let path = head.uri.path().to_owned();
            report.send((head.method, head.uri.to_string(), head.headers, text, trailers)).unwrap();
            let mut response = Response::new(full("answer"));
            match path.as_str() {
                "/moved" => {
                    *response.status_mut() = StatusCode::FOUND;
                    response.headers_mut().insert("location", "/there".parse().unwrap());
                }
                "/encoded" => drop(response.headers_mut().insert("content-encoding", "gzip".parse().unwrap())),
                _ => {}
            }
            response
        }
    });
    (server.unwrap(), reported)
}

/// Starts a gateway to an upstream.
async fn gateway(upstream: SocketAddr, http2: bool) -> SocketAddr {
    let builder = Client::builder().no_proxy().base_url(format!("http://{upstream}/base"));
    gateway_of(if http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap()).await
}

/// Starts the gateway of the guide.
pub(crate) async fn gateway_of(client: Client) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let client = client.clone();
            let service = service_fn(move |message| {
                let request = RequestBuilder::forward(client.clone(), message).header("via", "1.1 gateway");
                async move { Ok::<_, speeddial::Error>(request.send().await?.forward()) }
            });
            tokio::spawn(async move {
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
            });
        }
    });
    address
}

/// Starts an upstream that reports the head of each request as it came, and answers with these bytes.
fn raw_upstream(answer: &'static str) -> (ScriptedPeer, Receiver<String>) {
    let (report, reported) = channel();
    let peer = ScriptedPeer::start(move |_, mut socket| {
        while let Some(head) = read_head_text(&mut socket) {
            let is_open = report.send(head).is_ok() && socket.write_all(answer.as_bytes()).is_ok();
            if !is_open {
                break;
            }
        }
    });
    (peer, reported)
}

fn address_of(peer: &ScriptedPeer) -> SocketAddr {
    peer.url().trim_start_matches("http://").trim_end_matches('/').parse().unwrap()
}

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// Opens a connection of HTTP/2 to a gateway.
async fn http2_peer(gateway: SocketAddr) -> h2::client::SendRequest<bytes::Bytes> {
    let (sender, connection) = h2::client::handshake(TcpStream::connect(gateway).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    sender.ready().await.unwrap()
}

/// Sends these bytes, and returns the answer up to the end of the connection.
async fn answer(gateway: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(gateway).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.to_lowercase()
}

#[tokio::test]
async fn headers_of_one_connection_stay_on_it_and_bodies_keep_their_ends() {
    for http2 in [false, true] {
        let (server, seen) = upstream(http2);
        let gateway = gateway(server.address(), http2).await;
        let chunked = "POST /a?b=c HTTP/1.1\r\nhost: public.test\r\nconnection: close, x-hop\r\nx-hop: 1\r\nx-kept: 1\r\n\
                       te: trailers\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n\
                       4\r\nfour\r\n0\r\nx-sum: 7\r\n\r\n";
        let back = answer(gateway, chunked).await;
        assert!(back.starts_with("http/1.1 200 ok\r\n") && back.ends_with("answer"), "{back}");
        let (method, target, headers, body, trailers) = seen.recv().unwrap();
        assert_eq!((method, target.rsplit('/').next(), &*body), (Method::POST, Some("a?b=c"), "four"));
        assert_eq!(trailers.unwrap()["x-sum"], "7");
        assert_eq!((&headers["x-kept"], &headers["via"]), (&"1".parse().unwrap(), &"1.1 gateway".parse().unwrap()));
        let connection = headers.get("connection").map(|value| value.to_str().unwrap());
        assert_eq!((headers["te"].to_str().unwrap(), connection), ("trailers", if http2 { None } else { Some("TE") }));
        for name in ["x-hop", "accept-encoding"] {
            assert!(!headers.contains_key(name), "{name}: {headers:?}");
        }
        assert!(headers.get("host").is_none_or(|host| host.to_str().unwrap() == server.address().to_string()));
    }
}

#[tokio::test]
async fn trailers_about_one_connection_stay_on_it() {
    const END: &str = "4\r\nfour\r\n0\r\nconnection: x\r\nkeep-alive: timeout=5\r\nx-hop: 1\r\nx-sum: 7\r\n\r\n";
    let chunked = format!(
        "POST / HTTP/1.1\r\nhost: public.test\r\nconnection: close, x-hop\r\ntrailer: x-sum\r\ntrailer: x-hop\r\n\
         transfer-encoding: chunked\r\n\r\n{END}"
    );
    let expected = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    for http2 in [false, true] {
        let (server, seen) = upstream(http2);
        let back = answer(gateway(server.address(), http2).await, &chunked).await;
        assert!(back.starts_with("http/1.1 200 ok\r\n"), "{back}");
        let (.., body, trailers) = seen.recv().unwrap();
        assert_eq!((&*body, trailers.as_ref()), ("four", Some(&expected)), "HTTP/2: {http2}");
    }
    let head = "HTTP/1.1 200 OK\r\nconnection: x-hop\r\ntransfer-encoding: chunked\r\n\r\n";
    let (raw, _heads) = raw_upstream(format!("{head}{END}").leak());
    let mut peer = http2_peer(gateway(address_of(&raw), false).await).await;
    let request = Request::get("http://public.test/").body(()).unwrap();
    let mut body = peer.send_request(request, true).unwrap().0.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "four");
    assert_eq!(body.trailers().await.unwrap(), Some(expected));
}

#[tokio::test]
async fn trailers_behind_a_length_are_passed_on_if_they_are_announced() {
    let (server, seen) = upstream(false);
    let gateway = gateway(server.address(), false).await;
    let expected = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    for announced in [Some("x-sum"), None] {
        let mut peer = http2_peer(gateway).await;
        let mut request = Request::post("http://public.test/").header("content-length", "4").body(()).unwrap();
        if let Some(names) = announced {
            request.headers_mut().insert("trailer", HeaderValue::from_static(names));
        }
        let (response, mut stream) = peer.send_request(request, false).unwrap();
        stream.send_data("four".into(), false).unwrap();
        tokio::task::yield_now().await;
        stream.send_trailers(expected.clone()).unwrap();
        assert_eq!(response.await.is_ok(), announced.is_some());
        let (.., body, trailers) = seen.recv().unwrap();
        assert_eq!(
            (&*body, trailers.as_ref()),
            if announced.is_some() { ("four", Some(&expected)) } else { ("", None) }
        );
    }
}

#[tokio::test]
async fn a_message_whose_coding_stays_on_it_is_refused() {
    let coded = "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    let (raw, _heads) = raw_upstream(coded);
    let client = Client::builder().no_proxy().base_url(raw.url()).retry(RetryPolicy::new()).build().unwrap();
    let error = client.get("/").send().await.unwrap_err();
    assert_eq!((error.kind(), error.detail()), (ErrorKind::Exchange, Some(ErrorDetail::TransferCoding)));
    assert_eq!(error.attempts(), 1, "the next answer would be coded as well");
    // What it says of content that is not sent is about no part of the answer.
    assert_eq!(client.head("/").send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_function_before_attempts_sees_the_target_that_is_sent() {
    let (raw, heads) = raw_upstream(NO_CONTENT);
    let sign = |head: &mut AttemptHead<'_>| {
        let target = HeaderValue::from_str(head.target())?;
        head.headers_mut().insert("x-signed", target);
        Ok::<_, speeddial::http::header::InvalidHeaderValue>(())
    };
    let builder = Client::builder().no_proxy().before_attempt(sign).base_url(raw.url());
    let client = builder.build().unwrap();
    for target in ["/public/%2e%2e/admin", "/a/../b?c='d", "//x/./y", "/"] {
        let message = Request::get(target).body(Body::default()).unwrap();
        RequestBuilder::forward(client.clone(), message).send().await.unwrap();
        let head = heads.recv().unwrap();
        assert!(head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{head}");
        assert!(head.contains(&format!("x-signed: {target}\r\n")), "{head}");
    }
    client.get("/a/../b?c='d#e").send().await.unwrap();
    assert!(heads.recv().unwrap().contains("x-signed: /b?c=%27d\r\n"));
}

#[tokio::test]
async fn a_client_of_http_1_0_and_an_upgrade_are_served_as_usual() {
    let (server, seen) = upstream(false);
    let gateway = gateway(server.address(), false).await;
    let old = answer(gateway, "POST / HTTP/1.0\r\nhost: public.test\r\ncontent-length: 4\r\n\r\nfour").await;
    assert!(old.starts_with("http/1.0 200 ok\r\n") && old.ends_with("\r\n\r\nanswer"), "{old}");
    assert_eq!(&seen.recv().unwrap().3, "four");
    let upgrade = "GET / HTTP/1.1\r\nhost: public.test\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n";
    assert!(answer(gateway, upgrade).await.starts_with("http/1.1 200 ok\r\n"));
    assert!(!seen.recv().unwrap().2.contains_key("upgrade"));
    let head = answer(gateway, "HEAD / HTTP/1.1\r\nhost: public.test\r\nconnection: close\r\n\r\n").await;
    assert!(head.contains("content-length: 6\r\n") && head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn the_peer_cannot_choose_the_upstream() {
    let ((server, seen), (other, unasked)) = (upstream(false), upstream(false));
    let gateway = gateway(server.address(), false).await;
    let absolute = format!("GET http://{0}/a?b HTTP/1.1\r\nhost: {0}\r\nconnection: close\r\n\r\n", other.address());
    assert!(answer(gateway, &absolute).await.starts_with("http/1.1 200 ok\r\n"));
    assert_eq!(seen.recv().unwrap().1, "/a?b");
    let client = Client::builder().no_proxy().base_url(format!("http://{}/", server.address())).build().unwrap();
    let authority = |method, uri: String| Request::builder().method(method).uri(uri).body(Body::default()).unwrap();
    let http2 = authority(Method::GET, format!("http://{}/c", other.address()));
    RequestBuilder::forward(client.clone(), http2).send().await.unwrap();
    assert_eq!(seen.recv().unwrap().1, "/c");
    let connect = authority(Method::CONNECT, other.address().to_string());
    assert!(RequestBuilder::forward(client, connect).send().await.unwrap_err().is_builder());
    let get = authority(Method::GET, format!("http://{}/", other.address()));
    let no_base = Client::builder().no_proxy().build().unwrap();
    assert!(RequestBuilder::forward(no_base, get).send().await.unwrap_err().is_builder());
    assert_eq!(unasked.try_iter().count(), 0);
}

#[tokio::test]
async fn redirects_and_encoded_bodies_are_passed_back_as_they_are() {
    let (server, seen) = upstream(false);
    let gateway = gateway(server.address(), false).await;
    let client = Client::builder().no_proxy().redirect(redirect::Policy::none()).build().unwrap();
    let get = async |path: &str| {
        let request = client.get(format!("http://{}/{path}", gateway)).decompress(false);
        request.send().await.unwrap()
    };
    let moved = get("moved").await;
    assert_eq!((moved.status(), &moved.headers()["location"]), (StatusCode::FOUND, &"/there".parse().unwrap()));
    let encoded = get("encoded").await;
    assert_eq!(encoded.headers()["content-encoding"], "gzip");
    assert_eq!(encoded.text().await.unwrap(), "answer");
    assert_eq!(seen.try_iter().count(), 2);
}

#[tokio::test]
async fn a_target_is_passed_on_byte_for_byte() {
    let targets =
        ["/public/%2e%2e/admin", "/public/..\\admin", "/public/../admin", "/a'{b}?c='{d}", "//other.test/x", "/?", "/"];
    let (raw, heads) = raw_upstream(NO_CONTENT);
    let (server, seen) = upstream(true);
    let (over_http1, over_http2) = (gateway(address_of(&raw), false).await, gateway(server.address(), true).await);
    for target in targets {
        let request = format!("GET {target} HTTP/1.1\r\nhost: public.test\r\nconnection: close\r\n\r\n");
        answer(over_http1, &request).await;
        assert_eq!(heads.recv().unwrap().lines().next().unwrap(), format!("GET {target} HTTP/1.1"));
        answer(over_http2, &request).await;
        let (_, seen, ..) = seen.recv().unwrap();
        assert_eq!(seen.strip_prefix(&format!("http://{}", server.address())), Some(target));
    }
}

#[tokio::test]
async fn an_option_of_the_whole_server_is_passed_on() {
    let (raw, heads) = raw_upstream(NO_CONTENT);
    let (server, seen) = upstream(true);
    let request = "OPTIONS * HTTP/1.1\r\nhost: public.test\r\nconnection: close\r\n\r\n";
    assert!(answer(gateway(address_of(&raw), false).await, request).await.starts_with("http/1.1 204"));
    assert_eq!(heads.recv().unwrap().lines().next(), Some("OPTIONS * HTTP/1.1"));
    assert!(answer(gateway(server.address(), true).await, request).await.starts_with("http/1.1 200"));
    assert_eq!(seen.recv().unwrap().1, format!("http://{}*", server.address()));
    // Over HTTP/2 it comes with a host.
    let mut peer = http2_peer(gateway(address_of(&raw), false).await).await;
    let mut request = Request::new(());
    *request.method_mut() = Method::OPTIONS;
    let mut parts = speeddial::http::uri::Parts::default();
    parts.scheme = Some("http".parse().unwrap());
    parts.authority = Some("public.test".parse().unwrap());
    parts.path_and_query = Some("*".parse().unwrap());
    *request.uri_mut() = speeddial::http::Uri::from_parts(parts).unwrap();
    assert_eq!(peer.send_request(request, true).unwrap().0.await.unwrap().status(), StatusCode::NO_CONTENT);
    assert_eq!(heads.recv().unwrap().lines().next(), Some("OPTIONS * HTTP/1.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_its_peer_cuts_off_is_cut_off_for_the_upstream() {
    const PART: &str = "the first part of it";
    // Each upstream reports that the first part has come, and then if the whole has.
    let (report, over_http1) = channel();
    let raw = ScriptedPeer::start(move |_, mut socket| {
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).contains(PART) {
            let mut byte = [0];
            socket.read_exact(&mut byte).unwrap();
            all.push(byte[0]);
        }
        report.send(false).unwrap();
        let _ = socket.read_to_end(&mut all);
        report.send(all.ends_with(b"0\r\n\r\n")).unwrap();
    });
    let (report, over_http2) = channel();
    let server = HttpServer::start_as(true, move |request: Request<Incoming>| {
        let report = report.clone();
        async move {
            let mut body = request.into_body();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), PART);
            report.send(false).unwrap();
            report.send(body.collect().await.is_ok()).unwrap();
            Response::new(full("answer"))
        }
    })
    .unwrap();
    let gateways = [gateway(address_of(&raw), false).await, gateway(server.address(), true).await];
    for (gateway, reported) in gateways.into_iter().zip([over_http1, over_http2]) {
        for _ in 0..5 {
            let mut peer = http2_peer(gateway).await;
            let request = Request::post("http://public.test/x").body(()).unwrap();
            let (_response, mut stream) = peer.send_request(request, false).unwrap();
            stream.send_data(PART.into(), false).unwrap();
            assert!(!reported.recv().unwrap());
            stream.send_reset(h2::Reason::NO_ERROR);
            assert!(!reported.recv().unwrap(), "it came as a whole");
        }
    }
}

#[tokio::test]
async fn a_length_beside_chunks_is_left_out() {
    let chunks = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
                  a\r\n0123456789\r\n0\r\n\r\n";
    let (raw, _heads) = raw_upstream(chunks);
    let gateway = gateway(address_of(&raw), false).await;
    let back = answer(gateway, "GET / HTTP/1.0\r\nhost: public.test\r\n\r\n").await;
    assert!(back.ends_with("\r\n\r\n0123456789") && !back.contains("content-length"), "{back}");
    let back = answer(gateway, "GET / HTTP/1.1\r\nhost: public.test\r\nconnection: close\r\n\r\n").await;
    assert!(back.ends_with("\r\n\r\na\r\n0123456789\r\n0\r\n\r\n") && !back.contains("content-length"), "{back}");
}

#[tokio::test]
async fn cookies_that_http_2_splits_are_joined() {
    let (raw, heads) = raw_upstream(NO_CONTENT);
    let mut peer = http2_peer(gateway(address_of(&raw), false).await).await;
    let request = Request::get("http://public.test/").header("cookie", "a=1").header("cookie", "b=2");
    let request = request.header("cookie", "c=3").body(()).unwrap();
    assert_eq!(peer.send_request(request, true).unwrap().0.await.unwrap().status(), StatusCode::NO_CONTENT);
    let head = heads.recv().unwrap();
    let cookies: Vec<_> = head.lines().filter(|line| line.starts_with("cookie")).collect();
    assert_eq!(cookies, ["cookie: a=1; b=2; c=3"]);
}

#[cfg(feature = "cookies")]
#[tokio::test]
async fn the_cookies_of_one_peer_do_not_go_along_with_the_requests_of_another_one() {
    let (raw, heads) = raw_upstream("HTTP/1.1 204 No Content\r\nset-cookie: session=1\r\n\r\n");
    let client = Client::builder().no_proxy().cookie_store(true).base_url(format!("http://{}/", address_of(&raw)));
    let gateway = gateway_of(client.build().unwrap()).await;
    let get = "GET / HTTP/1.1\r\nhost: public.test\r\nconnection: close\r\n\r\n";
    for _ in 0..2 {
        assert!(answer(gateway, get).await.contains("set-cookie: session=1\r\n"));
        assert!(!heads.recv().unwrap().contains("cookie"));
    }
}

#[tokio::test]
async fn a_trace_shows_its_peer_no_secret_of_the_gateway_and_is_counted() {
    let (raw, heads) = raw_upstream(NO_CONTENT);
    let defaults = HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_static("secret"))]);
    let token = || async { Ok::<_, std::convert::Infallible>(speeddial::token::Token::new("secret")) };
    let client =
        Client::builder().no_proxy().default_headers(defaults).token_source(speeddial::token::TokenSource::new(token));
    let client = client.base_url(format!("http://me:secret@{}/", address_of(&raw))).build().unwrap();
    let forward = async |method: &Method, left: &str| {
        let message = Request::builder().method(method).uri("/x").header("max-forwards", left).body(Body::default());
        RequestBuilder::forward(client.clone(), message.unwrap()).send().await
    };
    for (method, shows_secrets) in [(Method::TRACE, false), (Method::OPTIONS, true)] {
        assert_eq!(forward(&method, "2").await.unwrap().status(), StatusCode::NO_CONTENT);
        let head = heads.recv().unwrap();
        assert!(head.starts_with(method.as_str()) && head.contains("max-forwards: 1\r\n"), "{head}");
        assert_eq!((head.contains("secret"), head.contains("authorization")), (shows_secrets, shows_secrets), "{head}");
        let error = forward(&method, "0").await.unwrap_err();
        assert_eq!((error.detail(), error.method()), (Some(ErrorDetail::LastForward), Some(&method)));
    }
    assert_eq!(heads.try_iter().count(), 0);
}

#[tokio::test]
async fn a_trace_through_a_proxy_shows_its_peer_no_secret_of_the_gateway() {
    let (raw, heads) = raw_upstream(NO_CONTENT);
    let secret = || HeaderMap::from_iter([("x-proxy-key".parse().unwrap(), HeaderValue::from_static("secret"))]);
    let proxy = Proxy::all(format!("http://me:secret@{}", address_of(&raw))).unwrap().headers(secret());
    let add = |head: &mut AttemptHead<'_>| {
        head.headers_mut().insert("x-signature", HeaderValue::from_static("secret"));
        if head.target() == "/refused" { Err("it is refused") } else { Ok(()) }
    };
    let builder = Client::builder().proxy(proxy).before_attempt(add).base_url("http://upstream.test/");
    let client = builder.build().unwrap();
    for (method, shows_secrets) in [(Method::TRACE, false), (Method::GET, true)] {
        let forward = async |path: &str| {
            let message = Request::builder().method(&method).uri(path).body(Body::default()).unwrap();
            RequestBuilder::forward(client.clone(), message).send().await
        };
        forward("/x").await.unwrap();
        let head = heads.recv().unwrap();
        for added in ["proxy-authorization", "x-proxy-key", "x-signature"] {
            assert_eq!(head.contains(added), shows_secrets, "{head}");
        }
        assert!(forward("/refused").await.is_err(), "{method}: a check of the target holds for each method");
    }
    assert_eq!(heads.try_iter().count(), 0);
}
