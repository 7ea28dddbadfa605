//! Response bodies: limits, streams, copies, text, and trailers.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use speeddial::{Body, Client, ErrorKind};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use super::common::{URL, client_over, request};
use support::full;
use support::http_server::HttpServer;
use support::scripted_net::ScriptedNet;
use support::scripted_peer::{ScriptedPeer, read_head};

#[tokio::test]
async fn a_body_can_be_limited_streamed_and_copied() {
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
            assert!(error.to_string().ends_with(&format!("the body is longer than {limit} bytes")), "{error}");
        }
        let streamed: Vec<Bytes> = get(200_000).await.bytes_stream().try_collect().await.unwrap();
        assert_eq!(streamed.iter().map(Bytes::len).sum::<usize>(), 200_000);
        let mut copied = Vec::new();
        assert_eq!(get(200_000).await.copy_to(&mut copied).await.unwrap(), 200_000);
        assert!(copied.chunks(10).all(|chunk| chunk == b"0123456789"));
        let mut disk = FullDisk;
        let error = get(1_000).await.copy_to(&mut disk).await.unwrap_err();
        assert!(error.is_body() && error.to_string().ends_with(": the body could not be written"), "{error}");
    }
    let mut pieces = client.get(format!("http://{}/100", server.address())).send().await.unwrap().bytes_stream();
    assert_eq!(pieces.next().await.unwrap().unwrap().len(), 100);
    assert!(pieces.next().await.is_none() && pieces.next().await.is_none());
}

/// A writer that fails.
struct FullDisk;

impl tokio::io::AsyncWrite for FullDisk {
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
async fn a_byte_order_mark_decides_the_charset_and_is_removed() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let body: &'static [u8] = match request.uri().path() {
            "/utf-8" => b"\xef\xbb\xbfcaf\xc3\xa9",
            "/utf-16le" => b"\xff\xfec\0a\0f\0\xe9\0",
            "/utf-16be" => b"\xfe\xff\0c\0a\0f\0\xe9",
            // Half of a surrogate pair, and half of a code unit.
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
async fn text_is_decoded_by_the_charset_of_the_content_type() {
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

#[tokio::test(start_paused = true)]
async fn a_body_stream_ends_after_its_first_error() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await.unwrap();
    });
    let response = client_over(&net).get(URL).send().await.unwrap();
    let pieces: Vec<_> = response.bytes_stream().take(100).collect().await;
    assert_eq!(pieces.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_body_is_not_an_empty_one() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 502 Bad\r\ncontent-length: 1000\r\n\r\n").await.unwrap();
    });
    // The failure has arrived together with the head, so it is read ahead.
    let response = client_over(&net).get(URL).send().await.unwrap();
    assert!(response.error_for_status_ref().unwrap_err().body_start().is_empty());
    let failed = http::Response::<Body>::from(response).into_body();
    assert_eq!(http_body::Body::size_hint(&failed).exact(), None);
    assert!(!http_body::Body::is_end_stream(&failed) && failed.collect().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_partly_read_response_can_be_converted() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        while request(&mut stream).await {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello").await.unwrap();
            sleep(Duration::from_millis(20)).await;
            stream.write_all(b"world").await.unwrap();
        }
    });
    let client = client_over(&net);
    let mut response = client.get(URL).send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "hello");
    let rest = http::Response::<Body>::from(response).into_body();
    assert_eq!(rest.collect().await.unwrap().to_bytes(), "world");
    assert_eq!(client.get(URL).send().await.unwrap().text().await.unwrap(), "helloworld");
    assert_eq!(net.connections(), 1);
}

#[tokio::test]
async fn trailers_are_read_whatever_the_status() {
    for status in [200, 400] {
        let peer = ScriptedPeer::start(move |_, mut socket| {
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
