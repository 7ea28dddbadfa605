//! Compressed response bodies.

use std::io::Write;

use speeddial::http::HeaderValue;
use speeddial::http::header::ACCEPT_ENCODING;
use speeddial::{Client, ErrorKind};

use super::common::clients;
use support::full;
use support::http_server::HttpServer;

#[tokio::test]
async fn compressed_bodies_are_requested_and_decompressed() {
    use std::collections::HashMap;
    use std::process::{Command, Stdio};

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
                let accepted =
                    request.headers().get("accept-encoding").cloned().unwrap_or(HeaderValue::from_static("-"));
                let response =
                    hyper::Response::builder().header("content-encoding", coding).header("x-asked", accepted);
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
            ("/three", "the body cannot be decompressed: it has more than 2 content codings"),
            ("/cut", "the body cannot be decompressed: its gzip data ends too soon"),
            ("/garbage", "the body cannot be decompressed: it is not valid gzip"),
            ("/bomb", "the body cannot be decompressed: it becomes more than 250 times as long"),
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
        // With an Accept-Encoding of its own, a request gets the body as it was sent.
        let raw = client.get(url("/one")).header("accept-encoding", "gzip").send().await.unwrap();
        assert_eq!(
            (raw.headers()["content-encoding"].clone(), raw.bytes().await.unwrap()),
            ("gzip".parse().unwrap(), gzip(b"one").into())
        );
        let part = client.get(url("/one")).header("range", "bytes=0-5").send().await.unwrap();
        assert_eq!(
            (&part.headers()["x-asked"], &part.headers()["content-encoding"]),
            (&"-".parse().unwrap(), &"gzip".parse().unwrap())
        );
        assert_eq!(part.bytes().await.unwrap(), gzip(b"one"), "a part is left as it was sent");
        let everywhere = [(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))].into_iter().collect();
        let raw = builder().default_headers(everywhere).build().unwrap();
        let raw = raw.get(url("/one")).send().await.unwrap();
        assert_eq!(raw.bytes().await.unwrap(), gzip(b"one"), "as with a header of the request's own");
        let none = builder().decompress(speeddial::settings::Decompression::none()).build().unwrap();
        assert_eq!(none.get(url("/one")).send().await.unwrap().headers()["x-asked"], "-");
        let short = builder().decompress(speeddial::settings::Decompression::default().max_bytes(2)).build().unwrap();
        let error = short.get(url("/one")).send().await.unwrap().text().await.unwrap_err();
        assert!(error.is_decode() && error.to_string().ends_with("it becomes longer than 2 bytes"), "{error}");
        drop(response);
        assert!(tokio::time::timeout(support::LONG, client.drain()).await.is_ok(), "no connection is left open");
    }
}
