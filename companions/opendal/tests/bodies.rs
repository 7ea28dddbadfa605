//! Buffers that opendal hands over, as the server gets them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use http_body_util::BodyExt;
use opendal_core::{Buffer, HttpTransport};
use speeddial::bytes::Bytes;
use speeddial::{Client, http};
use speeddial_opendal::Http;
use support::http_server::HttpServer;

#[tokio::test]
async fn a_buffer_arrives_whole_however_many_pieces_it_has() {
    let server = HttpServer::start(async |request: hyper::Request<hyper::body::Incoming>| {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        http::Response::new(support::full(body))
    });
    let server = server.unwrap();
    let transport = Http::new(Client::builder().no_proxy().build().unwrap());
    for pieces in [vec![], vec!["hello"], vec!["hel", "lo"]] {
        let whole = pieces.concat();
        let buffer: Buffer = pieces.into_iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        let message = http::Request::put(format!("http://{}/key", server.address())).body(buffer).unwrap();
        let answer = transport.fetch(message).await.unwrap();
        let body = answer.into_body().to_buffer().await.unwrap();

        assert_eq!(body.to_vec(), whole.as_bytes());
    }
}
