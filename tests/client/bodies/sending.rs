//! Request bodies: lengths, streams, trailers, `Expect: 100-continue`, and requests that are built before they are sent.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use speeddial::dns::FixedResolver;
use speeddial::header::TRANSFER_ENCODING;
use speeddial::http::{HeaderMap, HeaderValue, Method, Version};
use speeddial::trace::Phase;
use speeddial::transport::{Connecting, Transport};
use speeddial::{Body, Client, ErrorKind, PoolConfig, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::common::{URL, body_mirror, client_over, clients, pieces};
use support::http_server::HttpServer;
use support::scripted_net::ScriptedNet;
use support::scripted_peer::{ScriptedPeer, answer_all, read_head, read_head_text};
use support::{full, read_request_head};

#[tokio::test]
async fn streams_are_sent_with_their_length_or_in_chunks() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let answer = async |body: Body| client.post(&url).body(body).send().await.unwrap().text().await.unwrap();
        let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        let chunked = if http2 { "-" } else { "chunked" };
        assert_eq!(answer(Body::from("hello")).await, format!("{version} 5 - hello "));
        assert_eq!(answer(Body::wrap_stream(pieces(&["hel", "lo"]))).await, format!("{version} - {chunked} hello "));
        assert_eq!(answer(Body::sized(5, pieces(&["hel", "lo"]))).await, format!("{version} 5 - hello "));
        assert_eq!(answer(Body::wrap_stream(pieces(&[]))).await, format!("{version} - {chunked}  "));
        assert_eq!(server.connections(), 1);
        let long = "x".repeat(3 << 20);
        let many = stream::iter((0..48).map(|_| Ok::<_, std::io::Error>(Bytes::from("x".repeat(1 << 16)))));
        assert_eq!(answer(Body::wrap_stream(many)).await, format!("{version} - {chunked} {long} "));
    }
}

#[tokio::test]
async fn a_transfer_encoding_of_chunked_is_left_to_the_body() {
    let chunked = || HeaderMap::from_iter([(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))]);
    for http2 in [false, true] {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let builder = || {
            let builder = Client::builder().no_proxy();
            if http2 { builder.http2_prior_knowledge() } else { builder }
        };
        let by_default = builder().default_headers(chunked()).build().unwrap();
        let by_request = builder().build().unwrap();
        for (client, own) in [(by_default, HeaderMap::new()), (by_request, chunked())] {
            let answer = async |method: Method, body: Option<Body>| {
                let request = client.request(method, &url).headers(own.clone());
                let request = if let Some(body) = body { request.body(body) } else { request };
                request.send().await.unwrap().text().await.unwrap()
            };
            let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
            let chunks = if http2 { "-" } else { "chunked" };
            assert_eq!(answer(Method::GET, None).await, format!("{version} - -  "));
            assert_eq!(answer(Method::POST, None).await, format!("{version} 0 -  "));
            assert_eq!(answer(Method::POST, Some("hello".into())).await, format!("{version} 5 - hello "));
            let streamed = Body::wrap_stream(pieces(&["hel", "lo"]));
            assert_eq!(answer(Method::POST, Some(streamed)).await, format!("{version} - {chunks} hello "));
        }
    }
}

#[tokio::test]
async fn trailers_are_sent_and_received() {
    for (http2, client) in clients() {
        let server = HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
            let all = request.into_body().collect().await.unwrap();
            let mut trailers = all.trailers().cloned().unwrap_or_default();
            trailers.insert("x-back", HeaderValue::from_static("yes"));
            let frames = [Ok(Frame::data(all.to_bytes())), Ok(Frame::trailers(trailers))];
            let response = hyper::Response::builder().header("trailer", "x-sum, x-back");
            response.body(BodyExt::boxed(StreamBody::new(stream::iter(frames)))).unwrap()
        })
        .unwrap();
        let url = format!("http://{}/", server.address());
        for _ in 0..2 {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-sum", HeaderValue::from_static("abc"));
            let request = client.post(&url).header("te", "trailers").body(Body::from("hello").with_trailers(trailers));
            let mut response = request.send().await.unwrap();
            assert_eq!(response.trailers(), None);
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.unwrap() {
                body.extend_from_slice(&chunk);
            }
            assert_eq!(body, b"hello");
            let trailers = response.trailers().expect("trailers arrived");
            assert_eq!((&trailers["x-sum"], &trailers["x-back"]), (&"abc".parse().unwrap(), &"yes".parse().unwrap()));
        }
        assert_eq!(server.connections(), 1, "HTTP/2: {http2}");
    }
}

/// Each method whose requests rarely have content.
const RARELY_WITH_CONTENT: [Method; 4] = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS];

#[tokio::test]
async fn hazard_content_of_unknown_length_is_sent_with_any_method() {
    for (http2, client) in clients() {
        let told = Arc::new(Mutex::new(String::new()));
        let server = mirror_into(http2, told.clone());
        let url = format!("http://{}/", server.address());
        let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        let chunked = if http2 { "-" } else { "chunked" };
        let trailers = || HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("abc"))]);
        let sent = async |method: &Method, body: Body| {
            let response = client.request(method.clone(), &url).body(body).send().await.unwrap();
            response.bytes().await.unwrap();
            told.lock().unwrap().clone()
        };
        for method in RARELY_WITH_CONTENT {
            let streamed = sent(&method, Body::wrap_stream(pieces(&["hel", "lo"]))).await;
            assert_eq!(streamed, format!("{version} - {chunked} hello "), "{method}");
            let wrapped =
                StreamBody::new(pieces(&["hello"]).map(|piece| piece.map(|piece| Frame::data(Bytes::from(piece)))));
            assert_eq!(sent(&method, Body::wrap(wrapped)).await, streamed, "{method}");
            #[cfg(feature = "multipart")]
            {
                let part = speeddial::multipart::Part::stream(Body::wrap_stream(pieces(&["b"])));
                let form = speeddial::multipart::Form::new().part("a", part);
                client.request(method.clone(), &url).multipart(form).send().await.unwrap().bytes().await.unwrap();
                assert!(told.lock().unwrap().starts_with(&format!("{version} - {chunked} --")), "{method}");
            }
            let with_trailers = sent(&method, Body::from("hello").with_trailers(trailers())).await;
            assert_eq!(with_trailers, format!("{version} - {chunked} hello {:?}", trailers()), "{method}");
            let without = sent(&method, Body::from("hello").with_trailers(HeaderMap::new())).await;
            assert!(without.ends_with(" hello "), "no trailers are none: {without}");
            let empty = sent(&method, Body::wrap_stream(pieces(&[]))).await;
            let has_no_framing = matches!(method, Method::GET | Method::HEAD) || http2;
            let framing = if has_no_framing { "- -" } else { "- chunked" };
            assert_eq!(empty, format!("{version} {framing}  "), "{method}");
        }
        let broken = stream::iter([Err::<&str, _>(std::io::Error::other("the disk is gone"))]);
        let error = client.get(&url).body(Body::wrap_stream(broken)).send().await.unwrap_err();
        assert!(format!("{error:#}").ends_with("the disk is gone"), "{error:#}");
        assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
    }
}

/// Starts a server that writes down each request's framing, body and trailers.
fn mirror_into(http2: bool, told: Arc<Mutex<String>>) -> HttpServer {
    HttpServer::start_as(http2, move |request: hyper::Request<hyper::body::Incoming>| {
        let told = told.clone();
        async move {
            let (head, body) = request.into_parts();
            let named = |name: &str| head.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
            let framing = format!("{:?} {} {}", head.version, named("content-length"), named("transfer-encoding"));
            let content = body.collect().await.map_or_else(
                |_| "broken".to_owned(),
                |all| {
                    let trailers = all.trailers().map(|trailers| format!("{trailers:?}")).unwrap_or_default();
                    format!("{} {trailers}", String::from_utf8(all.to_bytes().to_vec()).unwrap())
                },
            );
            *told.lock().unwrap() = format!("{framing} {content}");
            hyper::Response::new(full(if head.method == Method::HEAD { "" } else { "ok" }))
        }
    })
    .unwrap()
}

#[tokio::test]
async fn hazard_trailers_of_a_wrapped_body_or_a_response_are_sent_or_the_request_fails() {
    let trailers = || HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("abc"))]);
    let frames = move || {
        let frames = [Ok::<_, std::io::Error>(Frame::data(Bytes::from("hello"))), Ok(Frame::trailers(trailers()))];
        StreamBody::new(stream::iter(frames))
    };
    for (http2, client) in clients() {
        let told = Arc::new(Mutex::new(String::new()));
        let server = mirror_into(http2, told.clone());
        let url = format!("http://{}/", server.address());
        let announced = client.post(&url).header("trailer", "x-sum").body(Body::wrap(frames())).send().await.unwrap();
        announced.bytes().await.unwrap();
        let expected = format!("hello {:?}", trailers());
        assert!(told.lock().unwrap().ends_with(&expected), "{}", told.lock().unwrap());
        match client.post(&url).body(Body::wrap(frames())).send().await {
            Ok(_) => assert!(http2 && told.lock().unwrap().ends_with(&expected)),
            Err(error) => {
                let error = format!("{error:#}");
                assert!(
                    !http2 && error.ends_with("the trailer x-sum, which no `Trailer` header of the request announces")
                );
            }
        }
        let origin = HttpServer::start_as(http2, move |_| async move {
            let response = hyper::Response::builder().header("trailer", "x-sum");
            response.body(BodyExt::boxed(BodyExt::map_err(frames(), |never| panic!("{never}")))).unwrap()
        });
        let origin = origin.unwrap();
        let response =
            client.get(format!("http://{}/", origin.address())).header("te", "trailers").send().await.unwrap();
        client.put(&url).body(Body::from(response)).send().await.unwrap().bytes().await.unwrap();
        assert!(told.lock().unwrap().ends_with(&expected), "{}", told.lock().unwrap());
    }
}

#[tokio::test]
async fn all_trailers_that_a_response_announces_are_announced_by_the_request_that_it_is_the_body_of() {
    let origin = ScriptedPeer::start(|_, mut socket| {
        while read_head(&mut socket) {
            let head = "HTTP/1.1 200 OK\r\ntrailer: x-other\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n";
            let _ = socket.write_all(format!("{head}5\r\nhello\r\n0\r\nx-sum: abc\r\n\r\n").as_bytes());
        }
    });
    let client = Client::builder().no_proxy().build().unwrap();
    let server = body_mirror(false);
    let response = client.get(origin.url()).send().await.unwrap();
    let put = client.put(format!("http://{}/", server.address())).body(Body::from(response));
    assert!(put.send().await.unwrap().text().await.unwrap().ends_with(r#" hello {"x-sum": "abc"}"#));
}

/// Returns a body with a known length that ends with a trailer, which comes later than its bytes if `is_late`.
fn sized_with_trailer(content: &'static str, name: &'static str, is_late: bool) -> Body {
    let trailers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static("abc"))]);
    let trailers = async move {
        if is_late {
            tokio::task::yield_now().await;
        }
        Some(Ok(trailers))
    };
    Body::wrap(Full::new(Bytes::from(content)).with_trailers(Box::pin(trailers)))
}

#[tokio::test]
async fn trailers_of_a_body_with_a_known_length_are_sent_or_the_request_fails() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        for (content, is_late) in [("hello", false), ("hello", true), ("", false), ("", true)] {
            let post = async |name: &'static str, announced: Option<&str>| {
                let request = client.post(&url).body(sized_with_trailer(content, name, is_late));
                let request = if let Some(names) = announced { request.header("trailer", names) } else { request };
                request.send().await?.text().await
            };
            let sent = format!("{content} {{\"x-sum\": \"abc\"}}");
            let whole = post("x-sum", Some("x-sum")).await.unwrap();
            assert!(whole.ends_with(&sent), "{whole}");
            // What is known before the head is written can be announced in it. Behind the last byte, HTTP/1.1 waits for nothing.
            match post("x-sum", None).await {
                Ok(whole) if is_late && !http2 && !content.is_empty() => assert!(whole.ends_with(" hello "), "{whole}"),
                Ok(whole) => assert!((http2 || content.is_empty()) && whole.ends_with(&sent), "{whole}"),
                Err(error) => {
                    let unannounced = "the trailer x-sum, which no `Trailer` header of the request announces";
                    assert!(!http2 && !content.is_empty() && format!("{error:#}").ends_with(unannounced), "{error:#}");
                }
            }
            let error = post("keep-alive", Some("keep-alive")).await.unwrap_err();
            assert!(
                format!("{error:#}").contains("the trailer keep-alive, which is about one connection"),
                "{error:#}"
            );
        }
    }
}

#[tokio::test]
async fn a_stream_of_no_bytes_is_no_content() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        let hinted = || StreamBody::new(pieces(&[]).map(|piece| piece.map(|piece| Frame::data(Bytes::from(piece)))));
        for method in [Method::POST, Method::PUT, Method::DELETE] {
            let bodies = [
                Body::default(),
                Body::sized(0, pieces(&[])),
                Body::replayable(Some(0), hinted),
                Body::wrap(Full::new(Bytes::new()).with_trailers(std::future::ready(None))),
                Body::wrap_stream(pieces(&[])),
            ];
            for (number, body) in bodies.into_iter().enumerate() {
                let mut request = client.request(method.clone(), &url).expect_continue().body(body);
                if number == 4 {
                    request = request.header("content-length", "0");
                }
                let sent = tokio::time::timeout(Duration::from_millis(900), request.send());
                let text = sent.await.expect("no 100 is waited for").unwrap().text().await.unwrap();
                let length = if method == Method::DELETE { text.split(' ').nth(1).unwrap() } else { "0" };
                assert_eq!(text, format!("{version} {length} -  "), "{method} {number}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_no_bytes_is_sent_at_once_and_its_response_waited_for() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        if read_request_head(&mut stream).await.is_some() {
            std::future::pending::<()>().await;
        }
    });
    let client = client_over(&net);
    for body in [
        Body::sized(0, stream::pending::<Result<Bytes, std::io::Error>>()),
        Body::wrap(Full::new(Bytes::new()).with_trailers(std::future::ready(None))),
    ] {
        let request = client.put(URL).body(body).headers_timeout(Duration::from_secs(3));
        let error = request.body_idle_timeout(Duration::from_secs(1)).send().await.unwrap_err();
        assert!(format!("{error:#}").contains("no response headers within 3 s"), "{error:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_get_whose_stream_stalls_ends_by_its_limits() {
    let net = ScriptedNet::new(|_, stream| async move { drop(stream) });
    let client = client_over(&net);
    let stalled = || Body::wrap_stream(stream::pending::<Result<Bytes, std::io::Error>>());
    let error = client.get(URL).body(stalled()).timeout(Duration::from_secs(2)).send().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
}

#[tokio::test]
async fn a_body_stream_that_fails_or_has_the_wrong_length_fails_only_its_request() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        let broken = || stream::iter([Ok("hel"), Err(std::io::Error::other("the disk is gone"))]);
        for (body, what) in [
            (Body::wrap_stream(broken()), "the disk is gone"),
            (Body::sized(9, broken()), "the disk is gone"),
            (Body::sized(4, pieces(&["hel", "lo"])), "the body has more than the announced 4 bytes"),
            (Body::sized(6, pieces(&["hel", "lo"])), "the body has 5 of the announced 6 bytes"),
            (Body::sized(5, pieces(&["hel", "lo", "", "!"])), "the body has more than the announced 5 bytes"),
            (Body::sized(5, pieces(&["hel", "lo"]).chain(broken())), "the body has more than the announced 5 bytes"),
        ] {
            let error = client.post(&url).body(body).send().await.unwrap_err();
            let expected = format!("POST {url}: the body of the request failed: {what}");
            assert_eq!((error.kind(), format!("{error:#}")), (ErrorKind::Exchange, expected), "HTTP/2: {http2}");
            assert!(client.post(&url).body("x").send().await.unwrap().text().await.unwrap().ends_with(" x "));
        }
        let request = client.post(&url).header("content-length", "6").body(Body::wrap_stream(pieces(&["hel", "lo"])));
        let error = request.send().await.unwrap_err();
        assert!(format!("{error:#}").ends_with("the body has 5 of the announced 6 bytes"), "{error:#}");
    }
}

#[tokio::test]
async fn a_body_of_bytes_is_resent_and_a_stream_is_not() {
    // Each connection answers its first request, reads the second one, and closes without an answer.
    let peer = ScriptedPeer::start(move |_, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.read_exact(&mut [0; 5]);
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
        if read_head(&mut socket) {
            let _ = socket.read_exact(&mut [0; 5]);
        }
    });
    let client = Client::builder().no_proxy().build().unwrap();
    let put = async |body: Body| client.put(peer.url()).body(body).send().await?.text().await;
    let stream = || Body::sized(5, pieces(&["hel", "lo"]));
    assert_eq!(put(stream()).await.unwrap(), "ok");
    let error = put(stream()).await.unwrap_err();
    assert!(error.to_string().contains("the connection closed without a response, and it is not known"), "{error}");
    assert_eq!(peer.connections(), 1, "a stream is not resent");
    assert_eq!(put("hello".into()).await.unwrap(), "ok");
    assert_eq!(put("hello".into()).await.unwrap(), "ok");
    assert_eq!(peer.connections(), 3, "bytes are resent");
}

#[tokio::test]
async fn expect_continue_sends_the_body_only_with_consent_or_after_a_second() {
    let bytes = Arc::new(AtomicUsize::new(0));
    let seen = bytes.clone();
    // Each connection behaves differently; the bytes of bodies are counted.
    let peer = ScriptedPeer::start(move |number, mut socket| {
        let take = |socket: &mut std::net::TcpStream, count: usize| {
            let mut body = vec![0; count];
            if socket.read_exact(&mut body).is_ok() {
                seen.fetch_add(count, Ordering::SeqCst);
            }
        };
        if !read_head(&mut socket) {
            return;
        }
        match number {
            0 => {
                let _ = socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
                take(&mut socket, 7);
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                answer_all(&mut socket);
            }
            1 => {
                let _ = socket.write_all(b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno");
                take(&mut socket, 1);
            }
            2 => {
                // No answer: the body comes all the same after a second.
                take(&mut socket, 7);
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate");
            }
            _ => {
                let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                answer_all(&mut socket);
            }
        }
    });
    let client = Client::builder().no_proxy().pool(PoolConfig::new().max_connections(1)).build().unwrap();
    let ask = async || {
        let response = client.post(peer.url()).expect_continue().body("payload").send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!((ask().await, bytes.load(Ordering::SeqCst)), ((200, "ok".to_owned()), 7));
    client.close_idle();
    assert_eq!((ask().await, bytes.load(Ordering::SeqCst)), ((413, "no".to_owned()), 7));
    assert_eq!((ask().await, bytes.load(Ordering::SeqCst)), ((200, "late".to_owned()), 14));
    assert_eq!(client.get(peer.url()).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(bytes.load(Ordering::SeqCst), 14, "no part of the rejected body was sent");
}

#[tokio::test(start_paused = true)]
async fn hazard_a_server_that_answers_in_place_of_a_100_and_stays_gets_the_body() {
    // As a handler that streams: its answer begins, and goes on with what it reads.
    let net = ScriptedNet::new(|_, mut stream| async move {
        while read_request_head(&mut stream).await.is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            let mut body = [0; 7];
            if stream.read_exact(&mut body).await.is_err() {
                return;
            }
            let echo = format!("7\r\n{}\r\n0\r\n\r\n", String::from_utf8_lossy(&body));
            let _ = stream.write_all(echo.as_bytes()).await;
        }
    });
    let client = client_over(&net);
    for _ in 0..2 {
        let response = client.post(URL).expect_continue().body("payload").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "payload");
    }
    assert_eq!(net.connections(), 1);
}

#[tokio::test]
async fn expect_continue_is_ignored_over_http2() {
    let server = HttpServer::start_as(true, |request: hyper::Request<hyper::body::Incoming>| async move {
        assert!(!request.headers().contains_key("expect"));
        match request.uri().path() {
            "/no" => hyper::Response::builder().status(417).body(full("no")).unwrap(),
            _ => hyper::Response::new(full(request.into_body().collect().await.unwrap().to_bytes())),
        }
    })
    .unwrap();
    let client = Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}", server.address());
    for (path, status, text) in [("/", 200, "payload"), ("/no", 417, "no"), ("/", 200, "payload")] {
        // Over HTTP/1.1 the body would wait for a second.
        let limit = std::time::Duration::from_millis(900);
        let took = support::shortest(limit, async || {
            let request = client.post(format!("{url}{path}")).expect_continue().body("payload");
            let response = request.send().await.unwrap();
            let took = response.timings().total();
            assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (status, text));
            took
        });
        let took = took.await;
        assert!(took < limit, "{took:?}");
    }
    // A stream that has yielded its whole length is not polled for its end.
    let endless = pieces(&["hel", "lo"]).chain(stream::pending());
    let response =
        client.put(format!("{url}/")).body(Body::sized(0, stream::pending::<Result<&str, std::io::Error>>()));
    assert_eq!(response.send().await.unwrap().text().await.unwrap(), "");
    let plain = Client::builder().no_proxy().build().unwrap();
    let over_http1 = body_mirror(false);
    let answer =
        plain.put(format!("http://{}/", over_http1.address())).body(Body::sized(5, endless)).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "HTTP/1.1 5 - hello ");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_can_be_built_inspected_cloned_and_sent() {
    let server = body_mirror(false);
    let client = Client::builder().no_proxy().base_url(format!("http://{}/v1/", server.address())).build().unwrap();
    let request = client.post("items?a=1").header("x", "1").body("hello").build().unwrap();
    assert_eq!((request.url().path(), request.headers().len()), ("/v1/items", 1));
    let again = request.try_clone().unwrap();
    for request in [request, again] {
        assert_eq!(client.execute(request).await.unwrap().text().await.unwrap(), "HTTP/1.1 5 - hello ");
    }
    let streamed = client.post("/").body(Body::wrap_stream(pieces(&["x"])));
    assert!(streamed.try_clone().is_none() && streamed.build().unwrap().try_clone().is_none());
    let message = http::Request::post(format!("http://{}/", server.address())).header("y", "2").body("hi").unwrap();
    let response = client.execute(message.try_into().unwrap()).await.unwrap();
    let response: http::Response<Body> = response.into();
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "HTTP/1.1 2 - hi ");
    let relative = http::Request::get("/x").body("").unwrap();
    let error = Request::try_from(relative).unwrap_err();
    assert!(error.is_builder(), "{error}");
}

#[tokio::test]
async fn a_request_can_insist_on_an_http_version() {
    let server = body_mirror(false);
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..2 {
        let old = client.post(&url).version(Version::HTTP_10).body("hello").send().await.unwrap();
        assert_eq!(old.text().await.unwrap(), "HTTP/1.0 5 - hello ");
    }
    assert!(client.get(&url).version(Version::HTTP_11).send().await.is_ok());
    let error = client.get(&url).version(Version::HTTP_2).send().await.unwrap_err();
    let expected = format!("GET {url}: the connection speaks HTTP/1.1, and the request insists on HTTP/2.0");
    assert_eq!(error.to_string(), expected);
    let streamed = client.post(&url).version(Version::HTTP_10).body(Body::wrap_stream(pieces(&["x"])));
    assert!(streamed.send().await.unwrap_err().is_builder());
    assert!(client.get(&url).version(Version::HTTP_3).send().await.unwrap_err().is_builder());
    assert_eq!(client.pool_stats().in_use, 0);
}

#[tokio::test]
async fn a_body_that_panics_is_named() {
    for (http2, client) in clients() {
        let server = body_mirror(http2);
        let url = format!("http://{}/", server.address());
        for method in [Method::GET, Method::POST] {
            let bad =
                stream::poll_fn(|_| -> std::task::Poll<Option<std::io::Result<&str>>> { panic!("a bug in a body") });
            let error = client.request(method.clone(), &url).body(Body::wrap_stream(bad)).send().await.unwrap_err();
            let text = format!("{error:#}");
            let named = "the body of the request failed: its code panicked: a bug in a body";
            assert!(text.ends_with(named), "{method}: {text}");
        }
    }
}

/// A transport that finds no local port after two connections.
#[cfg(target_os = "linux")]
struct TwoPorts(ScriptedNet);

#[cfg(target_os = "linux")]
impl Transport for TwoPorts {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            if self.0.connections() < 2 {
                return self.0.connect(address).await;
            }
            // EADDRNOTAVAIL
            Err(std::io::Error::from_raw_os_error(99))
        })
    }

    fn source_of(&self, _: SocketAddr) -> Option<std::io::Result<IpAddr>> {
        Some(Ok([192, 0, 2, 9].into()))
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_a_port_where_all_kept_connections_speak_http10() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        while read_request_head(&mut stream).await.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let answer = b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    });
    let names = FixedResolver::new().with("a.test", [[192, 0, 2, 1].into()]);
    let pool = PoolConfig::new().wait_timeout(Duration::from_secs(2));
    let client = Client::builder().no_proxy().dns_resolver(names).transport(TwoPorts(net)).pool(pool).build().unwrap();
    let get = || client.get("http://a.test/").send();
    let (one, other) = tokio::join!(get(), get());
    one.unwrap().bytes().await.unwrap();
    other.unwrap().bytes().await.unwrap();
    assert_eq!(client.pool_stats().idle, 2);
    for _ in 0..2 {
        let upload = client.put("http://a.test/").body(Body::wrap_stream(pieces(&["x"])));
        let error = upload.send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Queue), "{error}");
    }
}

#[tokio::test]
async fn a_stream_goes_whole_to_a_server_that_has_answered_with_http10() {
    let peer = ScriptedPeer::start(|_, mut socket| {
        while let Some(head) = read_head_text(&mut socket) {
            let mut body = Vec::new();
            while head.contains("transfer-encoding: chunked") && !body.ends_with(b"0\r\n\r\n") {
                let mut byte = [0];
                let Ok(1) = socket.read(&mut byte) else { return };
                body.push(byte[0]);
            }
            let text = format!("{} {}", head.lines().next().unwrap().split_once("HTTP/").unwrap().1, body.len());
            let length = text.len();
            let head = format!("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: {length}\r\n\r\n");
            socket.write_all((head + &text).as_bytes()).unwrap();
        }
    });
    let client = peer.client().build().unwrap();
    let mut answers = Vec::new();
    for is_streamed in [true, false, true, true, false] {
        let body = if is_streamed { Body::wrap_stream(pieces(&["hel", "lo"])) } else { Body::default() };
        answers.push(client.put(peer.url()).body(body).send().await.unwrap().text().await.unwrap());
    }
    assert_eq!(answers, ["1.1 20", "1.0 0", "1.1 20", "1.1 20", "1.0 0"]);
    assert_eq!(peer.connections(), 3, "each stream after the first takes a new connection");
}
