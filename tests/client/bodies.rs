//! Bodies there and back: streams, lengths, trailers, consent, and what readers may ask for.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use socket2::SockRef;
use speeddial::http::{HeaderMap, HeaderValue, Version};
use speeddial::{Body, Client, ErrorKind, PoolConfig, Request};

use support::full;
use support::http_server::HttpServer;
use support::peer::{Peer, answer_all, read_head};

/// Says how a request's body came: its framing, its bytes, its trailers.
fn mirror(http2: bool) -> HttpServer {
    HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
        let (head, body) = request.into_parts();
        let named = |name: &str| head.headers.get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
        let framing = format!("{:?} {} {}", head.version, named("content-length"), named("transfer-encoding"));
        let said = match body.collect().await {
            Ok(all) => {
                let trailers = all.trailers().map(|trailers| format!("{trailers:?}")).unwrap_or_default();
                format!("{framing} {} {trailers}", String::from_utf8(all.to_bytes().to_vec()).unwrap())
            }
            Err(error) => format!("{framing} failed: {error}"),
        };
        hyper::Response::new(full(said))
    })
    .unwrap()
}

fn clients() -> [(bool, Client); 2] {
    let builder = || Client::builder().no_proxy();
    [(false, builder().build().unwrap()), (true, builder().http2_prior_knowledge().build().unwrap())]
}

type Pieces = Vec<Result<&'static str, std::io::Error>>;

fn pieces(pieces: &[&'static str]) -> stream::Iter<std::vec::IntoIter<Result<&'static str, std::io::Error>>> {
    stream::iter(pieces.iter().map(|piece| Ok(*piece)).collect::<Pieces>())
}

#[tokio::test]
async fn streams_are_sent_with_their_length_or_in_chunks() {
    for (http2, client) in clients() {
        let server = mirror(http2);
        let url = format!("http://{}/", server.address());
        let said = async |body: Body| client.post(&url).body(body).send().await.unwrap().text().await.unwrap();
        let version = if http2 { "HTTP/2.0" } else { "HTTP/1.1" };
        let chunked = if http2 { "-" } else { "chunked" };
        assert_eq!(said(Body::from("hello")).await, format!("{version} 5 - hello "));
        assert_eq!(said(Body::wrap_stream(pieces(&["hel", "lo"]))).await, format!("{version} - {chunked} hello "));
        assert_eq!(said(Body::sized(5, pieces(&["hel", "lo"]))).await, format!("{version} 5 - hello "));
        assert_eq!(said(Body::wrap_stream(pieces(&[]))).await, format!("{version} - {chunked}  "));
        assert_eq!(server.connections(), 1);
        let long = "x".repeat(3 << 20);
        let many = stream::iter((0..48).map(|_| Ok::<_, std::io::Error>(Bytes::from("x".repeat(1 << 16)))));
        assert_eq!(said(Body::wrap_stream(many)).await, format!("{version} - {chunked} {long} "));
    }
}

#[tokio::test]
async fn trailers_go_both_ways() {
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
            let trailers = response.trailers().expect("there are some");
            assert_eq!((&trailers["x-sum"], &trailers["x-back"]), (&"abc".parse().unwrap(), &"yes".parse().unwrap()));
        }
        assert_eq!(server.connections(), 1, "HTTP/2: {http2}");
    }
}

#[tokio::test]
async fn a_stream_that_fails_or_lies_about_its_length_fails_the_request_and_nothing_else() {
    for (http2, client) in clients() {
        let server = mirror(http2);
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
            let expected = format!("send the body to {}: {what}", server.address());
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Exchange, expected), "HTTP/2: {http2}");
            assert!(std::error::Error::source(&error).is_some());
            assert!(client.post(&url).body("x").send().await.unwrap().text().await.unwrap().ends_with(" x "));
        }
        let request = client.post(&url).header("content-length", "6").body(Body::wrap_stream(pieces(&["hel", "lo"])));
        assert!(request.send().await.unwrap_err().to_string().ends_with("the body has 5 of the announced 6 bytes"));
    }
}

#[tokio::test]
async fn a_stream_is_sent_once_where_bytes_are_sent_again() {
    // A connection answers its first request, takes the second one, and closes without a word.
    let peer = Peer::start(move |_, mut socket| {
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
    assert!(
        error.to_string().contains("the server closed the connection without a response; it is not known"),
        "{error}"
    );
    assert_eq!(peer.connections(), 1, "it was not sent again");
    assert_eq!(put("hello".into()).await.unwrap(), "ok");
    assert_eq!(put("hello".into()).await.unwrap(), "ok");
    assert_eq!(peer.connections(), 3, "bytes were");
}

#[tokio::test]
async fn consent_is_waited_for_and_no_body_is_sent_without() {
    let bytes = Arc::new(AtomicUsize::new(0));
    let seen = bytes.clone();
    // What the first word of the path says, and then whatever else comes is counted.
    let peer = Peer::start(move |number, mut socket| {
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
                let _ = socket.write_all(b"HTTP/1.1 417 No\r\ncontent-length: 2\r\n\r\nno");
                take(&mut socket, 1);
            }
            2 => {
                // Not a word: the body comes all the same, after a second.
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
    assert_eq!((ask().await, bytes.load(Ordering::SeqCst)), ((417, "no".to_owned()), 7));
    assert_eq!((ask().await, bytes.load(Ordering::SeqCst)), ((200, "late".to_owned()), 14));
    assert_eq!(client.get(peer.url()).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(bytes.load(Ordering::SeqCst), 14, "nothing of an unwanted body was sent");
}

#[tokio::test]
async fn over_http2_nobody_is_asked_and_nobody_waits() {
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
        let request = client.post(format!("{url}{path}")).expect_continue().body("payload");
        let response = request.send().await.unwrap();
        assert!(response.timings().total() < std::time::Duration::from_millis(900), "{}", response.timings());
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (status, text));
    }
    // A stream of the right length need not end.
    let endless = pieces(&["hel", "lo"]).chain(stream::pending());
    let response =
        client.put(format!("{url}/")).body(Body::sized(0, stream::pending::<Result<&str, std::io::Error>>()));
    assert_eq!(response.send().await.unwrap().text().await.unwrap(), "");
    let plain = Client::builder().no_proxy().build().unwrap();
    let over_http1 = mirror(false);
    let said =
        plain.put(format!("http://{}/", over_http1.address())).body(Body::sized(5, endless)).send().await.unwrap();
    assert_eq!(said.text().await.unwrap(), "HTTP/1.1 5 - hello ");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn readers_may_limit_stream_and_copy() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let length: usize = request.uri().path()[1..].parse().unwrap();
        let body = "0123456789".repeat(length / 10);
        match request.uri().query() {
            Some(_) => {
                let bytes = Bytes::from(body);
                let parts =
                    (0..10).map(move |part| Ok(Frame::data(bytes.slice(part * length / 10..(part + 1) * length / 10))));
                hyper::Response::new(BodyExt::boxed(StreamBody::new(stream::iter(parts))))
            }
            None => hyper::Response::new(full(body)),
        }
    })
    .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    for query in ["", "?chunked"] {
        let get = async |length: usize| {
            client.get(format!("http://{}/{length}{query}", server.address())).send().await.unwrap()
        };
        assert_eq!(get(1_000).await.bytes_with_limit(1_000).await.unwrap().len(), 1_000);
        assert_eq!(get(0).await.bytes_with_limit(0).await.unwrap().len(), 0);
        for limit in [0, 1, 999] {
            let error = get(1_000).await.bytes_with_limit(limit).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Body);
            assert!(error.to_string().ends_with(&format!("it is longer than {limit} bytes")), "{error}");
        }
        let streamed: Vec<Bytes> = get(200_000).await.bytes_stream().try_collect().await.unwrap();
        assert_eq!(streamed.iter().map(Bytes::len).sum::<usize>(), 200_000);
        let mut copied = Vec::new();
        assert_eq!(get(200_000).await.copy_to(&mut copied).await.unwrap(), 200_000);
        assert!(copied.chunks(10).all(|chunk| chunk == b"0123456789"));
        let mut gone = Gone;
        let error = get(1_000).await.copy_to(&mut gone).await.unwrap_err();
        assert!(error.is_body() && error.to_string().starts_with("write the body from"), "{error}");
    }
    let mut pieces = client.get(format!("http://{}/100", server.address())).send().await.unwrap().bytes_stream();
    assert_eq!(pieces.next().await.unwrap().unwrap().len(), 100);
    assert!(pieces.next().await.is_none() && pieces.next().await.is_none());
}

/// A writer that fails.
struct Gone;

impl tokio::io::AsyncWrite for Gone {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(Err(std::io::ErrorKind::StorageFull.into()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_error_for_a_status_keeps_how_the_body_begins() {
    for (http2, client) in clients() {
        let server = HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
            let length: usize = request.uri().path()[1..].parse().unwrap();
            hyper::Response::builder().status(422).body(full("no such field; ".repeat(length))).unwrap()
        })
        .unwrap();
        let url = format!("http://{}", server.address());
        let response = client.get(format!("{url}/1")).send().await.unwrap();
        assert!(response.error_for_status_ref().is_err());
        let error = response.error_for_status().unwrap_err();
        assert_eq!(error.body_start(), b"no such field; ");
        let expected = format!("status 422 Unprocessable Entity from {url}/1, which says `no such field; `");
        assert_eq!(error.to_string(), expected);
        let error = client.get(format!("{url}/10000")).send().await.unwrap().error_for_status().unwrap_err();
        assert_eq!(error.body_start().len(), 1_024);
        let empty = client.get(format!("{url}/0")).send().await.unwrap().error_for_status().unwrap_err();
        assert_eq!(empty.body_start(), b"");
        // Whoever reads the body has all of it.
        assert_eq!(client.get(format!("{url}/100")).send().await.unwrap().text().await.unwrap().len(), 1_500);
        assert!(client.get(format!("{url}/1")).send().await.unwrap().bytes_with_limit(15).await.is_ok());
    }
}

#[tokio::test]
async fn requests_can_be_built_looked_at_cloned_and_sent() {
    let server = mirror(false);
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
async fn versions_are_insisted_on() {
    let server = mirror(false);
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..2 {
        let old = client.post(&url).version(Version::HTTP_10).body("hello").send().await.unwrap();
        assert_eq!(old.text().await.unwrap(), "HTTP/1.0 5 - hello ");
    }
    assert!(client.get(&url).version(Version::HTTP_11).send().await.is_ok());
    let error = client.get(&url).version(Version::HTTP_2).send().await.unwrap_err();
    let expected =
        format!("call {}: the connection speaks HTTP/1.1, and the request insists on HTTP/2.0", server.address());
    assert_eq!(error.to_string(), expected);
    let streamed = client.post(&url).version(Version::HTTP_10).body(Body::wrap_stream(pieces(&["x"])));
    assert!(streamed.send().await.unwrap_err().is_builder());
    assert!(client.get(&url).version(Version::HTTP_3).send().await.unwrap_err().is_builder());
    assert_eq!(client.pool_stats().in_use, 0);
}

#[tokio::test]
async fn a_byte_order_mark_names_the_charset_and_is_not_text() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let body: &'static [u8] = match request.uri().path() {
            "/utf-8" => b"\xef\xbb\xbfcaf\xc3\xa9",
            "/utf-16le" => b"\xff\xfec\0a\0f\0\xe9\0",
            "/utf-16be" => b"\xfe\xff\0c\0a\0f\0\xe9",
            // Half a pair, and half a unit.
            "/broken" => b"\xff\xfe\0\xd8x\0y",
            _ => b"\xef\xbb\xbf",
        };
        let charset = request.uri().query().unwrap_or_default();
        hyper::Response::builder().header("content-type", format!("text/plain{charset}")).body(full(body)).unwrap()
    })
    .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    for charset in ["", "?;charset=windows-1252"] {
        let text = async |path: &str| {
            let url = format!("http://{}/{path}{charset}", server.address());
            client.get(url).send().await.unwrap().text().await.unwrap()
        };
        for path in ["utf-8", "utf-16le", "utf-16be"] {
            assert_eq!(text(path).await, "café", "{path}{charset}");
        }
        assert_eq!(text("broken").await, "\u{fffd}x\u{fffd}", "{charset}");
        assert_eq!(text("empty").await, "", "{charset}");
    }
}

#[cfg(feature = "charset")]
#[tokio::test]
async fn text_is_in_the_charset_the_content_type_names() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let kind = request.uri().query().unwrap().replace('+', " ");
        hyper::Response::builder().header("content-type", kind).body(full(&b"caf\xe9 \x93x\x94"[..])).unwrap()
    })
    .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let text = async |kind: &str| {
        client.get(format!("http://{}/?{kind}", server.address())).send().await.unwrap().text().await.unwrap()
    };
    for kind in
        ["text/plain;+charset=windows-1252", "text/html;+a=b;+Charset=%22ISO-8859-1%22".replace("%22", "'").as_str()]
    {
        let kind = kind.replace('\'', "");
        assert_eq!(text(&kind).await, "café “x”", "{kind}");
    }
    assert_eq!(text("text/plain").await, "caf\u{fffd} \u{fffd}x\u{fffd}");
    assert_eq!(text("text/plain;+charset=unheard-of").await, "caf\u{fffd} \u{fffd}x\u{fffd}");
}

#[cfg(all(feature = "gzip", feature = "brotli", feature = "zstd", feature = "deflate"))]
#[tokio::test]
async fn compressed_bodies_are_asked_for_and_decompressed() {
    use std::collections::HashMap;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    let gzip = |data: &[u8]| {
        let mut child =
            Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip");
        child.stdin.take().unwrap().write_all(data).unwrap();
        child.wait_with_output().unwrap().stdout
    };
    let bodies = HashMap::from([
        ("/one", ("gzip", gzip(b"one"))),
        ("/members", ("gzip", [gzip(b"one, "), gzip(b"two")].concat())),
        ("/twice", ("gzip, gzip", gzip(&gzip(b"twice")))),
        ("/three", ("gzip, gzip, gzip", Vec::from(b"x"))),
        ("/cut", ("gzip", gzip(b"one")[..15].to_vec())),
        ("/garbage", ("gzip", Vec::from(b"garbage"))),
        ("/bomb", ("gzip", gzip(&vec![0; 20 << 20]))),
        ("/unknown", ("compress", Vec::from(b"as it is"))),
        ("/plain", ("identity", Vec::from(b"plain"))),
    ]);
    for (http2, _) in clients() {
        let bodies = bodies.clone();
        let server = HttpServer::start_as(http2, move |request: hyper::Request<hyper::body::Incoming>| {
            let (coding, body) = bodies[request.uri().path()].clone();
            async move {
                let asked = request.headers().get("accept-encoding").cloned().unwrap_or(HeaderValue::from_static("-"));
                let response = hyper::Response::builder().header("content-encoding", coding).header("x-asked", asked);
                let body = if request.method() == "HEAD" { Vec::new() } else { body };
                response.body(full(body)).unwrap()
            }
        })
        .unwrap();
        let builder = || match http2 {
            true => Client::builder().no_proxy().http2_prior_knowledge(),
            false => Client::builder().no_proxy(),
        };
        let client = builder().build().unwrap();
        let url = |path: &str| format!("http://{}{path}", server.address());
        let text = async |path: &str| client.get(url(path)).send().await?.text().await;
        for (path, expected) in [
            ("/one", "one"),
            ("/members", "one, two"),
            ("/twice", "twice"),
            ("/unknown", "as it is"),
            ("/plain", "plain"),
        ] {
            assert_eq!(text(path).await.unwrap(), expected, "{path}");
        }
        for (path, what) in [
            ("/three", "the body has more than 2 content codings"),
            ("/cut", "the gzip data ends too soon"),
            ("/garbage", "the data is not valid gzip"),
            ("/bomb", "the decompressed body is more than 250 times as long"),
        ] {
            let error = text(path).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Decode, "{path}: {error}");
            assert!(error.to_string().contains(what), "{path}: {error}");
            assert_eq!(text("/one").await.unwrap(), "one", "after {path}");
        }
        let response = client.get(url("/one")).send().await.unwrap();
        assert_eq!(response.headers()["x-asked"], "zstd, br, gzip, deflate");
        assert!(!response.headers().contains_key("content-encoding"));
        assert_eq!((response.content_length(), response.headers().get("content-length")), (None, None));
        let head = client.head(url("/one")).send().await.unwrap();
        assert_eq!(head.headers()["content-encoding"], "gzip");
        assert_eq!(head.bytes().await.unwrap(), "");
        // Who asks for it themself has it as it is.
        let raw = client.get(url("/one")).header("accept-encoding", "gzip").send().await.unwrap();
        assert_eq!(
            (raw.headers()["content-encoding"].clone(), raw.bytes().await.unwrap()),
            ("gzip".parse().unwrap(), gzip(b"one").into())
        );
        let part = client.get(url("/one")).header("range", "bytes=0-5").send().await.unwrap();
        assert_eq!(part.headers()["x-asked"], "-");
        let none = builder().decompress(speeddial::Decompression::none()).build().unwrap();
        assert_eq!(none.get(url("/one")).send().await.unwrap().headers()["x-asked"], "-");
        let short = builder().decompress(speeddial::Decompression::default().max_bytes(2)).build().unwrap();
        let error = short.get(url("/one")).send().await.unwrap().text().await.unwrap_err();
        assert!(
            error.is_decode() && error.to_string().ends_with("the decompressed body has more than 2 bytes"),
            "{error}"
        );
        drop((response, part));
        assert!(tokio::time::timeout(Duration::from_secs(5), client.drain()).await.is_ok(), "no connection is left");
    }
}

#[tokio::test]
async fn a_stream_ends_after_its_first_error_and_a_response_half_read_goes_on() {
    let peer = Peer::start(|_, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let client = Client::builder().no_proxy().build().unwrap();
    let pieces: Vec<_> = client.get(peer.url()).send().await.unwrap().bytes_stream().take(100).collect().await;
    assert_eq!(pieces.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);

    let peer = Peer::start(|_, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
            std::thread::sleep(std::time::Duration::from_millis(20));
            let _ = socket.write_all(b"world");
            answer_all(&mut socket);
        }
    });
    let failing = Peer::start(|_, mut socket| {
        if read_head(&mut socket) {
            let _ = socket.write_all(b"HTTP/1.1 502 Bad\r\ncontent-length: 1000\r\n\r\n");
        }
    });
    let failed = http::Response::<Body>::from(client.get(failing.url()).send().await.unwrap()).into_body();
    assert_eq!(http_body::Body::size_hint(&failed).exact(), None, "a failure is no empty body");
    assert!(!http_body::Body::is_end_stream(&failed) && failed.collect().await.is_err());
    let mut response = client.get(peer.url()).send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "hello");
    let rest = http::Response::<Body>::from(response).into_body();
    assert_eq!(rest.collect().await.unwrap().to_bytes(), "world");
    assert_eq!(client.get(peer.url()).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn trailers_come_whatever_the_status() {
    for status in [200, 400] {
        let peer = Peer::start(move |_, mut socket| {
            while read_head(&mut socket) {
                let head =
                    format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n0\r\nx: y\r\n\r\n");
                let _ = socket.write_all(head.as_bytes());
            }
        });
        let client = Client::builder().no_proxy().build().unwrap();
        let mut response = client.get(peer.url()).header("te", "trailers").send().await.unwrap();
        while response.chunk().await.unwrap().is_some() {}
        assert_eq!(response.trailers().map(|trailers| trailers["x"].clone()), Some("y".parse().unwrap()), "{status}");
        let shown = format!("{:?}", client.get(format!("{}?token=secret#part", peer.url())).send().await.unwrap());
        assert!(!shown.contains("secret") && !shown.contains("part"), "{shown}");
    }
}

/// Reads of a request over HTTP/2 as far as its head; `false` when the client closed instead.
fn read_http2_head(socket: &mut TcpStream) -> bool {
    const HEADERS: u8 = 1;
    let mut frame = [0; 9];
    if socket.read_exact(&mut [0; 24]).is_err() {
        return false;
    }
    while socket.read_exact(&mut frame).is_ok() {
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        if socket.read_exact(&mut vec![0; length as usize]).is_err() {
            return false;
        }
        if frame[3] == HEADERS {
            return true;
        }
    }
    false
}

/// Says 413 to the head of a request and is gone before it has read the rest, each connection in another way than the last one.
fn impatient(http2: bool) -> Peer {
    // SETTINGS; HEADERS with `:status: 413` and `content-length: 2`; DATA, the last; GOAWAY after stream 1.
    let frames = [
        &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
        &[0, 0, 9, 1, 4, 0, 0, 0, 1, 0x08, 3, b'4', b'1', b'3', 0x0f, 28 - 15, 1, b'2'],
        &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'n', b'o'],
        &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0],
    ];
    let says = if http2 { frames.concat() } else { b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno".to_vec() };
    Peer::start(move |number, mut socket| {
        let began = if http2 { read_http2_head(&mut socket) } else { read_head(&mut socket) };
        if !began || socket.write_all(&says).is_err() {
            return;
        }
        match number % 4 {
            // Unread bytes make a reset of the end.
            0 => {}
            1 => drop(socket.shutdown(Shutdown::Write)),
            2 => drop(SockRef::from(&socket).set_linger(Some(Duration::ZERO))),
            _ => {
                // Without any, the end comes first, and the reset after what is sent into it.
                let _ = socket.set_nonblocking(true);
                while socket.read(&mut [0; 1 << 16]).is_ok_and(|read| read > 0) {}
            }
        }
    })
}

#[tokio::test]
async fn hazard_an_answer_before_the_request_is_over_is_never_lost() {
    let endless = || {
        let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 16 * 1024])));
        Body::wrap_stream(pieces)
    };
    for http2 in [false, true] {
        // A connection that was used before may be closed for other reasons.
        let builder = Client::builder().no_proxy().pool(PoolConfig::new().max_requests_per_connection(1));
        let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
        let client = builder.build().unwrap();
        let peer = impatient(http2);
        let put = async |body: Body| -> speeddial::Result<(u16, String)> {
            let response = client.put(peer.url()).body(body).send().await?;
            Ok((response.status().as_u16(), response.text().await?))
        };
        let mut lost = Vec::new();
        for round in 0..250 {
            for body in [Body::from(vec![0; 2 << 20]), endless()] {
                match put(body).await {
                    Ok((413, text)) if text == "no" => {}
                    other => lost.push(format!("{round}: {other:?}")),
                }
            }
        }
        assert_eq!(lost, Vec::<String>::new(), "HTTP/2: {http2}");
    }
}
