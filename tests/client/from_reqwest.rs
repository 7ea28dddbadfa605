//! Common uses of reqwest, compiled and run with reqwest and with speeddial: only the crate's name differs.

use std::collections::HashMap;

use bytes::Bytes;
use http_body_util::BodyExt;

use support::http_server::HttpServer;
use support::{full, refusing};

/// Starts a server that answers with the request's method, target, some headers and body. `/status/N` answers with status N, `/never`
/// never, `/json` with JSON.
fn server() -> HttpServer {
    HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let (head, body) = request.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let path = head.uri.path().to_owned();
        if let Some(status) = path.strip_prefix("/status/") {
            return hyper::Response::builder().status(status).body(full("sorry")).unwrap();
        }
        match path.as_str() {
            "/never" => std::future::pending().await,
            "/json" => hyper::Response::new(full(r#"{"name":"x","size":3}"#)),
            "/moved" => hyper::Response::builder().status(302).header("location", "/").body(full("")).unwrap(),
            "/latin" => {
                let head = hyper::Response::builder().header("content-type", "text/plain; charset=iso-8859-1");
                head.body(full(&b"caf\xe9"[..])).unwrap()
            }
            _ => {
                let mut named = String::new();
                for name in ["authorization", "content-type", "user-agent", "x-a", "x-b"] {
                    for value in head.headers.get_all(name) {
                        named += &format!("{name}: {}; ", value.to_str().unwrap());
                    }
                }
                hyper::Response::new(full(format!("{} {} {named}{body}", head.method, head.uri)))
            }
        }
    })
    .unwrap()
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Item {
    name: String,
    size: u32,
}

/// The uses, for a crate of any name.
macro_rules! uses {
    ($module:ident, $http:ident) => {
        mod $module {
            use std::time::Duration;

            use futures_util::StreamExt;
            use $http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
            use $http::{Body, Client, Method, Request, StatusCode, Url, Version};

            use super::*;

            pub(super) async fn run(url: &str, refused_url: &str) -> Result<usize, $http::Error> {
                let mut uses = 0;
                let mut done = |what: bool| {
                    uses += 1;
                    assert!(what, "use {uses}");
                };
                let client = Client::builder().no_proxy().build()?;

                // 1. A GET, read as text.
                let text = client.get(url).send().await?.text().await?;
                done(text == "GET / ");

                // 2. The verbs.
                let mut verbs = Vec::new();
                for request in [client.post(url), client.put(url), client.patch(url), client.delete(url)] {
                    verbs.push(request.send().await?.text().await?);
                }
                done(verbs == ["POST / ", "PUT / ", "PATCH / ", "DELETE / "]);

                // 3. HEAD, and a method of any kind.
                let head = client.head(url).send().await?;
                let other = client.request(Method::OPTIONS, url).send().await?.text().await?;
                done(head.status() == StatusCode::OK && other == "OPTIONS / ");

                // 4. JSON, read as a type and as a map.
                let item: Item = client.get(format!("{url}json")).send().await?.json().await?;
                let map =
                    client.get(format!("{url}json")).send().await?.json::<HashMap<String, serde_json::Value>>().await?;
                done(item == Item { name: "x".to_owned(), size: 3 } && map.len() == 2);

                // 5. POST with JSON.
                let sent = client.post(url).json(&Item { name: "y".to_owned(), size: 4 }).send().await?.text().await?;
                done(sent == r#"POST / content-type: application/json; {"name":"y","size":4}"#);

                // 6. POST with a form.
                let sent = client.post(url).form(&[("a", "1"), ("b", "x y")]).send().await?.text().await?;
                done(sent == "POST / content-type: application/x-www-form-urlencoded; a=1&b=x+y");

                // 7. A query of pairs and of a struct, added to the query of the URL.
                let item = Item { name: "z&".to_owned(), size: 1 };
                let sent =
                    client.get(format!("{url}?a=1")).query(&[("b", "2")]).query(&item).send().await?.text().await?;
                done(sent == "GET /?a=1&b=2&name=z%26&size=1 ");

                // 8. Headers, one by one and as a map.
                let mut headers = HeaderMap::new();
                headers.insert("x-b", HeaderValue::from_static("2"));
                let request = client.get(url).header("x-a", "1").header(ACCEPT, "text/plain").headers(headers);
                done(request.send().await?.text().await? == "GET / x-a: 1; x-b: 2; ");

                // 9. Authorization.
                let basic = client.get(url).basic_auth("me", Some("secret")).send().await?.text().await?;
                let bearer = client.get(url).bearer_auth("token").send().await?.text().await?;
                done(
                    basic == "GET / authorization: Basic bWU6c2VjcmV0; "
                        && bearer == "GET / authorization: Bearer token; ",
                );

                // 10. Bodies of any kind of bytes.
                let mut bodies = Vec::new();
                for body in [
                    Body::from("text"),
                    Body::from(String::from("string")),
                    Body::from(vec![b'v']),
                    Body::from(Bytes::from_static(b"bytes")),
                ] {
                    bodies.push(client.post(url).body(body).send().await?.text().await?);
                }
                done(bodies == ["POST / text", "POST / string", "POST / v", "POST / bytes"]);

                // 11. A body that is a stream.
                let pieces = futures_util::stream::iter(["one, ", "two"].map(Ok::<_, std::io::Error>));
                let sent = client.post(url).body(Body::wrap_stream(pieces)).send().await?.text().await?;
                done(sent == "POST / one, two");

                // 12. The response's bytes.
                done(client.get(url).send().await?.bytes().await? == "GET / ");

                // 13. The response, chunk by chunk.
                let mut response = client.get(url).send().await?;
                let mut all = Vec::new();
                while let Some(chunk) = response.chunk().await? {
                    all.extend_from_slice(&chunk);
                }
                done(all == b"GET / ");

                // 14. The response as a stream.
                let mut stream = client.get(url).send().await?.bytes_stream();
                let mut length = 0;
                while let Some(piece) = stream.next().await {
                    length += piece?.len();
                }
                done(length == 6);

                // 15. The properties of a response.
                let response = client.get(url).send().await?;
                let length = response.content_length();
                let version = response.version();
                done(
                    length == Some(6)
                        && version == Version::HTTP_11
                        && response.url().as_str() == url
                        && response.remote_addr().is_some(),
                );
                done(
                    response.headers().get("content-length").is_some()
                        && response.headers().get(CONTENT_TYPE).is_none(),
                );

                // 17. Statuses that are errors.
                let refused = client.get(format!("{url}status/404")).send().await?;
                done(refused.status().is_client_error() && refused.error_for_status_ref().is_err());
                let error = refused.error_for_status().expect_err("404");
                done(error.is_status() && error.status() == Some(StatusCode::NOT_FOUND));

                // 19. A timeout of one request.
                let late = client.get(format!("{url}never")).timeout(Duration::from_millis(30)).send().await;
                done(late.expect_err("late").is_timeout());

                // 20. A refused connection.
                let error = client.get(refused_url).send().await.expect_err("nobody listens");
                done(error.is_connect() && !error.is_timeout());

                // 21. Requests that cannot be sent.
                done(client.get("no url").send().await.expect_err("no URL").is_builder());
                done(client.get(url).header("x", "a\r\nb").send().await.expect_err("no header").is_builder());

                // 23. A client with defaults of its own.
                let mut headers = HeaderMap::new();
                headers.insert("x-a", HeaderValue::from_static("default"));
                let own = Client::builder()
                    .no_proxy()
                    .default_headers(headers)
                    .user_agent("me/1.0")
                    .timeout(Duration::from_secs(10))
                    .connect_timeout(Duration::from_secs(5))
                    .build()?;
                let sent = own.get(url).send().await?.text().await?;
                done(sent == "GET / user-agent: me/1.0; x-a: default; ");

                // 24. A request that is built, inspected, cloned and sent.
                let request = client.post(url).header("x-a", "1").body("again").build()?;
                done(request.method() == Method::POST && request.url().path() == "/" && request.headers().len() == 1);
                let again = request.try_clone().expect("bytes can be cloned");
                let first = client.execute(request).await?;
                let second = client.execute(again).await?;
                done(first.text().await? == second.text().await?);
                let mut request = client.put(Url::parse(url).expect("a URL")).build()?;
                request.headers_mut().insert("x-b", HeaderValue::from_static("3"));
                done(client.execute(request).await?.text().await? == "PUT / x-b: 3; ");

                // 27. Requests and responses of the `http` crate.
                let request = http::Request::post(url).header("x-a", "1").body("hi").expect("a request");
                let response = client.execute(Request::try_from(request)?).await?;
                let response: http::Response<Body> = response.into();
                let body = response.into_body().collect().await.expect("a body").to_bytes();
                done(body == "POST / x-a: 1; hi");

                // 28. Redirects are followed.
                let response = client.get(format!("{url}moved")).send().await?;
                done(response.url().path() == "/" && response.text().await? == "GET / ");

                // 29. Text in another charset.
                done(client.get(format!("{url}latin")).send().await?.text().await? == "café");

                // 30. A body that is not JSON.
                done(client.get(url).send().await?.json::<Item>().await.expect_err("no JSON").is_decode());

                // 31. Clones in several tasks share their connections.
                let tasks = (0..4).map(|_| {
                    let client = client.clone();
                    let url = url.to_owned();
                    tokio::spawn(async move { client.get(&url).send().await?.text().await })
                });
                let all = futures_util::future::join_all(tasks).await;
                done(all.into_iter().all(|text| text.expect("no panic").is_ok_and(|text| text == "GET / ")));
                Ok(uses)
            }
        }
    };
}

uses!(with_reqwest, reqwest);
uses!(with_speeddial, speeddial);

#[tokio::test]
async fn common_uses_of_reqwest_run_with_either_crate() {
    let server = server();
    let (_kept, closed) = refusing();
    let url = format!("http://{}/", server.address());
    let refused_url = format!("http://{closed}/");
    let theirs = with_reqwest::run(&url, &refused_url).await.unwrap();
    let ours = with_speeddial::run(&url, &refused_url).await.unwrap();
    assert_eq!(theirs, ours);
    assert!(ours >= 20, "{ours}");
}
