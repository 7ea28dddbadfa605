//! Lines about requests.

use std::collections::HashMap;
use std::time::Duration;

use super::super::{Item, Lines, Peers};
use super::http_client;
use super::http_client::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use super::http_client::{Body, Client, Method, Request, RequestBuilder, Url, Version};

pub(in super::super) const LINES: usize = 43;

pub(in super::super) async fn run(peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let client = Client::builder().no_proxy().build()?;
    let url = peers.url.as_str();
    verbs(&client, peers, lines).await?;
    values(&client, peers, lines).await?;

    // Headers and authorization.
    let mut headers = HeaderMap::new();
    headers.insert("x-b", HeaderValue::from_static("2"));
    let request = client.get(url).header("x-a", "1").headers(headers.clone());
    lines.is(request.send().await?.text().await?, "GET / x-a: 1; x-b: 2; ");
    lines.is(client.get(url).header(ACCEPT, "text/plain").send().await?.text().await?, "GET / accept: text/plain; ");
    let basic = client.get(url).basic_auth("me", Some("secret")).send().await?;
    lines.is(basic.text().await?, "GET / authorization: Basic bWU6c2VjcmV0; ");
    let nameless = client.get(url).basic_auth("me", None::<&str>).build()?;
    lines.is(nameless.headers()[AUTHORIZATION].to_str().ok(), Some("Basic bWU6"));
    let bearer = client.get(url).bearer_auth("token").send().await?;
    lines.is(bearer.text().await?, "GET / authorization: Bearer token; ");
    lines.done(client.get(url).bearer_auth("token").build()?.headers()[AUTHORIZATION].is_sensitive());
    let with_credentials = url.replace("http://", "http://me:secret@");
    lines.is(client.get(with_credentials).send().await?.text().await?, "GET / authorization: Basic bWU6c2VjcmV0; ");

    // Bodies of any kind of bytes.
    lines.is(client.post(url).body("text").send().await?.text().await?, "POST / text");
    lines.is(client.post(url).body(String::from("string")).send().await?.text().await?, "POST / string");
    lines.is(client.post(url).body(vec![b'v']).send().await?.text().await?, "POST / v");
    lines.is(client.post(url).body(&b"slice"[..]).send().await?.text().await?, "POST / slice");
    lines.is(client.post(url).body(Body::from("body")).send().await?.text().await?, "POST / body");

    // Time limits and versions.
    let late = client.get(peers.at("never")).timeout(Duration::from_millis(30)).send().await;
    lines.done(late.expect_err("late").is_timeout());
    lines.is(client.get(url).version(Version::HTTP_11).send().await?.version(), Version::HTTP_11);

    // Requests that are built, inspected, changed, cloned and sent.
    let request = client.post(url).header("x-a", "1").body("again").build()?;
    lines.is(request.method(), &Method::POST);
    lines.is(request.url().as_str(), url);
    lines.is(request.headers().len(), 1);
    lines.is(request.body().and_then(Body::as_bytes), Some(&b"again"[..]));
    lines.is(request.timeout(), None::<&Duration>);
    let again = request.try_clone().expect("bytes can be cloned");
    lines.is(client.execute(request).await?.text().await?, "POST / x-a: 1; again");
    lines.is(client.execute(again).await?.text().await?, "POST / x-a: 1; again");
    let mut request = Request::new(Method::GET, Url::parse(url).expect("a URL"));
    *request.method_mut() = Method::PUT;
    request.url_mut().set_path("/changed");
    request.headers_mut().insert("x-b", HeaderValue::from_static("3"));
    *request.body_mut() = Some("new".into());
    *request.timeout_mut() = Some(Duration::from_secs(9));
    lines.is(request.timeout(), Some(&Duration::from_secs(9)));
    lines.is(client.execute(request).await?.text().await?, "PUT /changed x-b: 3; new");
    let builder = client.get(url).header("x-a", "1");
    lines.done(builder.try_clone().is_some());
    let (client, request) = builder.build_split();
    lines.is(RequestBuilder::from_parts(client.clone(), request?).send().await?.text().await?, "GET / x-a: 1; ");
    let stream = Body::wrap_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("x")]));
    lines.done(client.post(url).body(stream).try_clone().is_none());

    // Requests of the `http` crate.
    let request = http::Request::post(url).header("x-a", "1").body("hi").expect("a request");
    lines.is(client.execute(request.try_into()?).await?.text().await?, "POST / x-a: 1; hi");
    let request: http::Request<Body> = client.put(url).body("x").build()?.try_into().expect("a message");
    lines.is(request.method(), Method::PUT);
    Ok(())
}

async fn verbs(client: &Client, peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let url = peers.url.as_str();
    lines.is(client.get(url).send().await?.text().await?, "GET / ");
    lines.is(client.post(url).send().await?.text().await?, "POST / ");
    lines.is(client.put(url).send().await?.text().await?, "PUT / ");
    lines.is(client.patch(url).send().await?.text().await?, "PATCH / ");
    lines.is(client.delete(url).send().await?.text().await?, "DELETE / ");
    lines.is(client.head(url).send().await?.status(), 200);
    lines.is(client.request(Method::OPTIONS, url).send().await?.text().await?, "OPTIONS / ");
    lines.is(client.get(Url::parse(url).expect("a URL")).send().await?.text().await?, "GET / ");
    lines.is(client.get(format!("{url}a/b")).send().await?.text().await?, "GET /a/b ");
    lines.is(http_client::get(url).await?.text().await?, "GET / ");
    Ok(())
}

async fn values(client: &Client, peers: &Peers, lines: &Lines) -> http_client::Result<()> {
    let url = peers.url.as_str();
    let item = Item { name: "y".to_owned(), size: 4 };
    let sent = client.post(url).json(&item).send().await?.text().await?;
    lines.is(sent, r#"POST / content-type: application/json; {"name":"y","size":4}"#);
    let map = HashMap::from([("a", 1)]);
    let sent = client.post(url).header(CONTENT_TYPE, "application/problem+json").json(&map).send().await?;
    lines.is(sent.text().await?, r#"POST / content-type: application/problem+json; {"a":1}"#);
    let sent = client.post(url).form(&[("a", "1"), ("b", "x y")]).send().await?.text().await?;
    lines.is(sent, "POST / content-type: application/x-www-form-urlencoded; a=1&b=x+y");
    lines.is(client.get(url).query(&[("q", "a b")]).send().await?.text().await?, "GET /?q=a+b ");
    let sent = client.get(peers.at("?a=1")).query(&[("b", "2")]).query(&item).send().await?.text().await?;
    lines.is(sent, "GET /?a=1&b=2&name=y&size=4 ");
    Ok(())
}
