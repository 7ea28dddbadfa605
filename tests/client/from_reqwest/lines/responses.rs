//! Lines about responses.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;

use super::super::{Item, Lines, Peers};
use super::http_client;
use super::http_client::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use super::http_client::{Body, Client, Response, ResponseBuilderExt, StatusCode, Url, Version};

pub(in super::super) const LINES: usize = 28;

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    let url = peers.url.as_str();

    // The head.
    let mut response = client.get(url).send().await?;
    lines.done(response.status().is_success() && response.status() == StatusCode::OK);
    lines.is(response.version(), Version::HTTP_11);
    lines.is(response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()), Some("6"));
    lines.is(response.content_length(), Some(6));
    lines.is(response.url().as_str(), url);
    lines.is(response.remote_addr(), Some(peers.server.address()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/x"));
    lines.done(response.headers().contains_key(CONTENT_TYPE));
    response.extensions_mut().insert(7_u8);
    lines.is(response.extensions().get::<u8>(), Some(&7));

    // The body as a whole.
    lines.is(response.text().await?, "GET / ");
    lines.is(&client.get(url).send().await?.bytes().await?[..], &b"GET / "[..]);
    let item: Item = client.get(peers.at("json")).send().await?.json().await?;
    lines.is(item, Item { name: "x".to_owned(), size: 3 });
    let map = client.get(peers.at("json")).send().await?.json::<HashMap<String, serde_json::Value>>().await?;
    lines.is(map.len(), 2);
    lines.is(client.get(peers.at("latin")).send().await?.text().await?, "café");
    lines.is(client.get(peers.at("unmarked")).send().await?.text_with_charset("iso-8859-1").await?, "café");

    // The body in pieces.
    let mut response = client.get(url).send().await?;
    let mut all = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        all.extend_from_slice(&chunk);
    }
    lines.is(all, b"GET / ");
    let mut stream = client.get(url).send().await?.bytes_stream();
    let mut length = 0;
    while let Some(piece) = stream.next().await {
        length += piece?.len();
    }
    lines.is(length, 6);
    let pieces: Vec<_> = client.get(url).send().await?.bytes_stream().try_collect().await?;
    lines.is(pieces.concat(), b"GET / ");

    // Statuses that are errors.
    let missing = client.get(peers.at("status/404")).send().await?;
    lines.done(missing.status().is_client_error());
    lines.done(missing.error_for_status_ref().is_err());
    lines.is(missing.error_for_status().expect_err("404").status(), Some(StatusCode::NOT_FOUND));
    let fine = client.get(url).send().await?.error_for_status()?;
    lines.is(fine.status().as_u16(), 200);

    // Responses from and to those of the `http` crate, and to bodies.
    let message: http::Response<Body> = client.get(url).send().await?.into();
    lines.is(message.status(), 200);
    lines.is(message.into_body().collect().await.expect("a body").to_bytes(), "GET / ");
    let made = http::Response::builder().status(201).url(Url::parse(peers.at("made").as_str()).expect("a URL"));
    let response = Response::from(made.body("by hand").expect("a message"));
    lines.is(response.status(), StatusCode::CREATED);
    lines.is(response.url().path(), "/made");
    lines.is(response.text().await?, "by hand");
    let body = Body::from(client.get(url).send().await?);
    lines.is(client.post(url).body(body).send().await?.text().await?, "POST / GET / ");
    lines.done(format!("{:?}", client.get(url).send().await?).contains("200"));
    Ok(())
}
