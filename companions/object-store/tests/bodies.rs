//! Payloads that object_store hands over, as the server gets them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use http_body_util::BodyExt;
use object_store::PutPayload;
use object_store::client::{HttpRequestBody, HttpService};
use speeddial::{Client, http};
use speeddial_object_store::Http;
use support::http_server::HttpServer;

#[tokio::test]
async fn a_payload_arrives_whole_however_many_pieces_it_has() {
    let server = HttpServer::start(async |request: hyper::Request<hyper::body::Incoming>| {
        let length = request.headers().get("content-length").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut response = http::Response::new(support::full(body));
        response.headers_mut().extend(length.map(|length| (http::HeaderName::from_static("x-length"), length)));
        response
    });
    let server = server.unwrap();
    let client = Http::new(Client::builder().no_proxy().build().unwrap());
    for pieces in [vec![], vec!["hello"], vec!["hel", "lo"], vec!["", "hello", ""]] {
        let whole = pieces.concat();
        let payload: PutPayload = pieces.iter().map(|piece| bytes(piece)).collect();
        let message =
            http::Request::put(format!("http://{}/key", server.address())).header("content-length", whole.len());
        let answer = client.call(message.body(HttpRequestBody::from(payload)).unwrap()).await.unwrap();
        assert_eq!(answer.headers().get("x-length").unwrap(), &*whole.len().to_string(), "{pieces:?}");
        assert_eq!(answer.into_body().bytes().await.unwrap(), whole, "{pieces:?}");
    }
}

fn bytes(piece: &'static str) -> speeddial::bytes::Bytes {
    speeddial::bytes::Bytes::from_static(piece.as_bytes())
}
