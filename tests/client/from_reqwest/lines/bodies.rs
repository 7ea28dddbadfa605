//! Lines about bodies: streams, files, forms of several parts, cookies, upgrades.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{Lines, Peers};
use super::http_client;
use super::http_client::cookie::{CookieStore, Jar};
use super::http_client::header::{CONNECTION, COOKIE, HeaderMap, HeaderValue, UPGRADE};
use super::http_client::multipart::{Form, Part};
use super::http_client::{Body, Client, StatusCode, Upgraded, Url};

pub(in super::super) const LINES: usize = 28;

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    let url = peers.url.as_str();
    streams_and_files(&client, url, lines).await?;
    forms(&client, url, lines).await?;
    cookies(peers, lines).await?;

    // Upgrades.
    let request = client.get(peers.at("upgrade")).header(CONNECTION, "upgrade").header(UPGRADE, "echo");
    let response = request.send().await?;
    lines.is(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut io: Upgraded = response.upgrade().await?;
    io.write_all(b"ping").await.expect("written");
    let mut answer = String::new();
    io.read_to_string(&mut answer).await.expect("read");
    lines.is(answer, "pong");
    Ok(())
}

async fn streams_and_files(client: &Client, url: &str, lines: &Lines) -> http_client::Result<()> {
    let pieces = futures_util::stream::iter(["one, ", "two"].map(Ok::<_, std::io::Error>));
    lines.is(client.post(url).body(Body::wrap_stream(pieces)).send().await?.text().await?, "POST / one, two");
    let wrapped = Body::wrap(http_body_util::Full::new(Bytes::from("full")));
    lines.is(client.post(url).body(wrapped).send().await?.text().await?, "POST / full");
    lines.is(client.post(url).body(Bytes::from_static(b"bytes")).send().await?.text().await?, "POST / bytes");
    lines.is(Body::from("x").as_bytes(), Some(&b"x"[..]));
    lines.is(Body::default().as_bytes(), Some(&b""[..]));
    lines.done(!format!("{:?}", Body::from("x")).is_empty());
    let file = tokio::fs::File::open("Cargo.toml").await.expect("a file");
    lines.done(client.post(url).body(file).send().await?.text().await?.contains("[package]"));
    Ok(())
}

async fn forms(client: &Client, url: &str, lines: &Lines) -> http_client::Result<()> {
    let form = Form::new().text("name", "x").text("size", "3");
    lines.done(!form.boundary().is_empty());
    let sent = client.post(url).multipart(form).send().await?.text().await?;
    lines.is(
        sent,
        "POST / content-type: multipart/form-data; boundary=B; --B|Content-Disposition: form-data; name=\"name\"||x|\
         --B|Content-Disposition: form-data; name=\"size\"||3|--B--|",
    );
    let part = Part::bytes(b"{}".to_vec()).file_name("a.json").mime_str("application/json")?;
    let sent = client.post(url).multipart(Form::new().part("file", part)).send().await?.text().await?;
    lines.done(sent.contains("name=\"file\"; filename=\"a.json\"|Content-Type: application/json||{}|--B--|"));
    let mut headers = HeaderMap::new();
    headers.insert("x-part", HeaderValue::from_static("1"));
    let part = Part::text("t").headers(headers);
    let sent = client.post(url).multipart(Form::new().part("text", part)).send().await?.text().await?;
    lines.done(sent.to_lowercase().contains("x-part: 1||t|"));
    let part = Part::stream("streamed");
    let sent = client.post(url).multipart(Form::new().part("stream", part)).send().await?.text().await?;
    lines.done(sent.contains("||streamed|"));
    let part = Part::stream_with_length(Body::from("four"), 4);
    let sent = client.post(url).multipart(Form::new().part("stream", part)).send().await?.text().await?;
    lines.done(sent.contains("||four|"));
    let part = Part::file("Cargo.toml").await.expect("a file");
    let sent = client.post(url).multipart(Form::new().part("file", part)).send().await?.text().await?;
    lines.done(sent.contains("filename=\"Cargo.toml\"") && sent.contains("[package]"));
    let form = Form::new().file("file", "Cargo.toml").await.expect("a file");
    lines.done(client.post(url).multipart(form).send().await?.text().await?.contains("[package]"));
    lines.done(client.post(url).multipart(Form::new().text("a", "1")).build()?.body().is_some());
    Ok(())
}

async fn cookies(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let url = peers.url.as_str();
    let own = Client::builder().no_proxy().cookie_store(true).build()?;
    let response = own.get(peers.at("cookie")).send().await?;
    let cookie = response.cookies().next().expect("a cookie");
    lines.is((cookie.name(), cookie.value()), ("session", "1"));
    lines.done(cookie.http_only() && !cookie.secure());
    lines.is(cookie.path(), Some("/"));
    lines.is(cookie.max_age().map(|age| age.as_secs()), Some(60));
    lines.done(cookie.domain().is_none() && cookie.expires().is_none());
    drop(response);
    lines.is(own.get(url).send().await?.text().await?, "GET / cookie: session=1; ");
    lines.is(own.get(url).header(COOKIE, "own=2").send().await?.text().await?, "GET / cookie: own=2; ");

    let jar = Arc::new(Jar::default());
    let parsed = Url::parse(url).expect("a URL");
    jar.add_cookie_str("theme=dark", &parsed);
    lines.is(
        jar.cookies(&parsed).and_then(|value| Some(value.to_str().ok()?.to_owned())).as_deref(),
        Some("theme=dark"),
    );
    let shared = Client::builder().no_proxy().cookie_provider(jar.clone()).build()?;
    lines.is(shared.get(url).send().await?.text().await?, "GET / cookie: theme=dark; ");
    drop(shared.get(peers.at("cookie")).send().await?);
    lines.done(jar.cookies(&parsed).is_some_and(|value| value.to_str().is_ok_and(|text| text.contains("session=1"))));
    Ok(())
}
