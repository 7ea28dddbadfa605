//! Requests and responses that a gateway passes on.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use speeddial::http::{HeaderMap, Method, Request, Response, StatusCode};
use speeddial::{Body, Client, RequestBuilder, redirect};
use support::full;
use support::http_server::HttpServer;
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
            let body = body.collect().await.unwrap();
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
    let client = if http2 { builder.http2_prior_knowledge() } else { builder }.build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let client = client.clone();
            let service = service_fn(move |message| {
                let request = RequestBuilder::forward(client.clone(), message).header("via", "1.1 gateway");
                async move { Ok::<_, speeddial::Error>(request.send().await?.forward()) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    address
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
        for name in ["x-hop", "te", "connection", "accept-encoding"] {
            assert!(!headers.contains_key(name), "{name}: {headers:?}");
        }
        assert!(headers.get("host").is_none_or(|host| host.to_str().unwrap() == server.address().to_string()));
    }
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
