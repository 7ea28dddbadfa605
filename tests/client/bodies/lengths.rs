//! The announced length of a body, also where the body itself is not sent.

use http_body::Body as _;
use speeddial::Body;
use tokio::io::AsyncWriteExt;

use super::common::{URL, client_over, clients, request};
use support::full;
use support::http_server::HttpServer;
use support::scripted_net::ScriptedNet;

/// Returns a network whose server answers every request with `head`.
fn answering(head: &'static str) -> ScriptedNet {
    ScriptedNet::new(move |_, mut stream| async move {
        while request(&mut stream).await && stream.write_all(head.as_bytes()).await.is_ok() {}
    })
}

#[tokio::test(start_paused = true)]
async fn the_length_of_a_body_that_is_not_sent_is_that_of_the_header() {
    let cases = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 123456\r\n\r\n", "HEAD", Some(123_456)),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 123456\r\n\r\n", "HEAD", Some(123_456)),
        ("HTTP/1.1 200 OK\r\n\r\n", "HEAD", None),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "HEAD", None),
        ("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", "HEAD", None),
        ("HTTP/1.1 304 Not Modified\r\ncontent-length: 123456\r\n\r\n", "GET", Some(123_456)),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", "GET", None),
        ("HTTP/1.1 204 No Content\r\n\r\n", "GET", Some(0)),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "GET", Some(0)),
    ];
    for (head, method, length) in cases {
        let net = answering(head);
        let client = client_over(&net);
        let send = async || client.request(method.parse().unwrap(), URL).send().await.unwrap();
        assert_eq!(send().await.content_length(), length, "{method}: {head}");
        assert_eq!(send().await.bytes_with_limit(10).await.unwrap().len(), 0, "{method}: {head}");
        // The body itself promises what it has.
        let body = http::Response::<Body>::from(send().await).into_body();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true), "{method}: {head}");
        assert_eq!(net.connections(), 1, "{method}: {head}");
    }
}

#[tokio::test]
async fn the_length_of_a_body_that_is_not_sent_is_that_of_the_header_over_both_protocols() {
    for (http2, client) in clients() {
        let server = HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
            let without_body = hyper::Response::builder().header("content-length", 5);
            match (request.method().as_str(), request.uri().path()) {
                ("HEAD", _) => without_body.body(full("")).unwrap(),
                (_, "/same") => without_body.status(304).body(full("")).unwrap(),
                _ => hyper::Response::new(full("hello")),
            }
        })
        .unwrap();
        let url = format!("http://{}/", server.address());
        let head = client.head(&url).send().await.unwrap();
        assert_eq!((head.content_length(), head.bytes().await.unwrap().len()), (Some(5), 0), "HTTP/2: {http2}");
        // hyper's server sends no length with a 304 over HTTP/1.1.
        if http2 {
            let same = client.get(format!("{url}same")).send().await.unwrap();
            assert_eq!((same.content_length(), same.bytes().await.unwrap().len()), (Some(5), 0));
        }
        let whole = client.get(&url).send().await.unwrap();
        assert_eq!(
            (whole.content_length(), whole.text().await.unwrap().as_str()),
            (Some(5), "hello"),
            "HTTP/2: {http2}"
        );
    }
}
