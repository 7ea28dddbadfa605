//! The parts of a request (credentials, headers, queries, forms, JSON), and the timeouts of its response.

use std::time::Duration;

use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderMap, HeaderValue, Request};
use speeddial::trace::Phase;
use speeddial::{Body, Client, ClientBuilder, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use support::http_server::HttpServer;
use support::net_by_path::NetByPath;
use support::recorder::Recorder;
use support::scripted_net::ScriptedNet;
use support::{full, read_request_head, refusing, v4};

/// Starts a server that answers with the request line, four headers and the body.
fn echo() -> HttpServer {
    use http_body_util::BodyExt;
    HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let (head, body) = request.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let named = |name: &str| {
            let values = head.headers.get_all(name).iter().map(|value| value.to_str().unwrap());
            values.collect::<Vec<_>>().join("+")
        };
        let names = ["authorization", "content-type", "user-agent", "x-default"];
        let headers: Vec<_> = names.iter().map(|name| named(name)).collect();
        hyper::Response::new(full(format!("{} {}|{}|{body}", head.method, head.uri, headers.join("|"))))
    })
    .unwrap()
}

async fn text(request: speeddial::RequestBuilder) -> String {
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let server = echo();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    let answer = text(client.get(&url).header("authorization", "old").basic_auth("Aladdin", Some("open sesame"))).await;
    assert_eq!(answer, "GET /|Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==||||", "RFC 7617, section 2");
    assert_eq!(text(client.get(&url).basic_auth("me", None::<&str>)).await, "GET /|Basic bWU6||||");
    assert_eq!(text(client.get(&url).bearer_auth("mF_9.B5f-4.1JqM")).await, "GET /|Bearer mF_9.B5f-4.1JqM||||");
    let refused = |request: speeddial::RequestBuilder| async { request.send().await.unwrap_err() };
    let error = refused(client.get(&url).bearer_auth("secret\r\nevil: yes")).await;
    let expected = format!("GET {url}: the credentials cannot be sent");
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Request, expected));
    assert!(!format!("{error:?}").contains("secret"));
    let error = refused(client.get(&url).basic_auth("a:b", Some("secret"))).await;
    assert!(error.is_builder() && !format!("{error:?}").contains("secret"), "{error}");
}

#[tokio::test]
async fn a_url_that_is_used_again_leads_to_the_same_request_and_its_changes_to_others() {
    let server = echo();
    let url = format!("http://{}/v1/../items", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..4 {
        assert_eq!(text(client.get(&url)).await, "GET /items|||||");
        let mut request = client.post(&url).body("x").build().unwrap();
        request.url_mut().set_query(Some("q=1"));
        assert_eq!(client.execute(request).await.unwrap().text().await.unwrap(), "POST /items?q=1|||||x");
        let mut request = client.get(&url).build().unwrap();
        request.url_mut().set_path("/other");
        let response = client.execute(request).await.unwrap();
        assert_eq!(response.url().as_str(), format!("http://{}/other", server.address()));
        assert_eq!(response.text().await.unwrap(), "GET /other|||||");
        let request = client.get(&url).build().unwrap();
        let response = client.execute(request.try_clone().unwrap()).await.unwrap();
        assert_eq!(response.url(), request.url());
        assert_eq!(response.text().await.unwrap(), "GET /items|||||");
    }
}

#[tokio::test]
async fn a_redirect_from_a_url_that_is_used_again_leads_to_its_target_each_time() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let mut response = hyper::Response::new(full(request.uri().to_string()));
        if request.uri() == "/from" {
            *response.status_mut() = hyper::StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert("location", HeaderValue::from_static("/to"));
        }
        response
    })
    .unwrap();
    let url = |path: &str| format!("http://{}{path}", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    for _ in 0..4 {
        let response = client.get(url("/from")).send().await.unwrap();
        assert_eq!((response.url().to_string(), response.redirects().len()), (url("/to"), 1));
        assert_eq!(response.text().await.unwrap(), "/to");
        assert_eq!(text(client.get(url("/to"))).await, "/to");
    }
}

#[tokio::test]
async fn default_headers_are_sent_unless_the_request_has_its_own() {
    let server = echo();
    let url = format!("http://{}/", server.address());
    let mut headers = HeaderMap::new();
    headers.append("x-default", HeaderValue::from_static("1"));
    headers.append("x-default", HeaderValue::from_static("2"));
    let client = Client::builder().no_proxy().default_headers(headers).user_agent("test/1.0").build().unwrap();
    assert_eq!(text(client.get(&url)).await, "GET /|||test/1.0|1+2|");
    let own = client.get(&url).header("x-default", "3").header("user-agent", "other");
    assert_eq!(text(own).await, "GET /|||other|3|");
    let error = Client::builder().user_agent("a\nb").build().unwrap_err();
    assert_eq!((error.is_builder(), error.to_string()), (true, "the user agent is not valid".to_owned()));
}

#[tokio::test]
async fn a_request_accepts_anything_unless_it_or_its_client_says_otherwise() {
    for is_http2 in [false, true] {
        let server = HttpServer::start_as(is_http2, |request| async move {
            let values = request.headers().get_all("accept").iter().map(|value| value.to_str().unwrap().to_owned());
            hyper::Response::new(full(values.collect::<Vec<_>>().join("+")))
        });
        let server = server.unwrap();
        let url = format!("http://{}/", server.address());
        let builder = || {
            let builder = Client::builder().no_proxy();
            if is_http2 { builder.http2_prior_knowledge() } else { builder }
        };
        let client = builder().build().unwrap();
        assert_eq!(text(client.get(&url)).await, "*/*");
        assert_eq!(text(client.post(&url).header("x-own", "1").body("x")).await, "*/*");
        let own = client.get(&url).header("accept", "text/html").header("accept", "text/plain");
        assert_eq!(text(own).await, "text/html+text/plain");
        let mut headers = HeaderMap::new();
        headers.insert("accept", HeaderValue::from_static("application/json"));
        let client = builder().default_headers(headers).build().unwrap();
        assert_eq!(text(client.get(&url)).await, "application/json");
        assert_eq!(text(client.get(&url).header("accept", "text/html")).await, "text/html");
    }
}

#[cfg(feature = "json")]
#[tokio::test]
async fn queries_forms_and_json_are_encoded() {
    let server = echo();
    let url = format!("http://{}/", server.address());
    let client = Client::builder().no_proxy().build().unwrap();
    let pairs = [("page", "2"), ("q", "a b&c=d/ü")];
    let answer = text(client.get(format!("{url}?x=1")).query(&pairs)).await;
    assert_eq!(answer, "GET /?x=1&page=2&q=a+b%26c%3Dd%2F%C3%BC|||||");
    assert_eq!(text(client.get(&url).query(&[(); 0])).await, "GET /|||||");
    let answer = text(client.post(&url).form(&pairs)).await;
    assert_eq!(answer, "POST /||application/x-www-form-urlencoded|||page=2&q=a+b%26c%3Dd%2F%C3%BC");
    let value = serde_json::json!({ "name": "x", "n": [1, 2] });
    assert_eq!(text(client.post(&url).json(&value)).await, "POST /||application/json|||{\"n\":[1,2],\"name\":\"x\"}");
    let own = client.post(&url).header("content-type", "application/x-own").json(&1);
    assert_eq!(text(own).await, "POST /||application/x-own|||1");
    let error = client.get(&url).query("not pairs").send().await.unwrap_err();
    assert!(error.is_builder(), "{error}");
}

#[cfg(feature = "json")]
#[tokio::test]
async fn a_json_error_shows_the_position_and_the_start_of_the_body() {
    let server = HttpServer::start(|request| async move {
        let long = format!("[{}]", vec!["\"item\""; 1_000].join(","));
        hyper::Response::new(full(match request.uri().path() {
            "/html" => "<html>\n<h1>502 Bad Gateway</h1>".to_owned(),
            "/long" => long,
            "/more" => "1 2".to_owned(),
            "/empty" => String::new(),
            _ => r#"{"items":[{"name":"a"},{"name":7}]}"#.to_owned(),
        }))
    })
    .unwrap();
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}", server.address());
    type Items = std::collections::BTreeMap<String, Vec<std::collections::BTreeMap<String, String>>>;
    let json_error = async |path: &str| {
        let error = client.get(format!("{url}{path}")).send().await.unwrap().json::<Items>().await.unwrap_err();
        assert!(error.is_decode() && error.timings().is_some_and(|timings| timings.is_complete()));
        format!("{error:#}").replace(&server.address().to_string(), "HOST")
    };
    assert_eq!(
        json_error("/").await,
        "GET http://HOST/: the body is not the expected JSON at `items[1].name`, and begins with \
         `{\"items\":[{\"name\":\"a\"},{\"name\":7}]}`: invalid type: integer `7`, expected a string at line 1 column 32"
    );
    assert!(json_error("/html").await.contains("begins with `<html> <h1>502 Bad Gateway</h1>`: expected value"));
    let long = json_error("/long").await;
    assert!(long.contains("…`: ") && long.len() < 300, "{long}");
    let empty = json_error("/empty").await;
    assert!(empty.contains("the body is empty, and not the expected JSON: EOF while parsing a value"), "{empty}");
    let error = client.get(format!("{url}/more")).send().await.unwrap().json::<u32>().await.unwrap_err();
    assert!(format!("{error:#}").contains("trailing characters"), "{error:#}");
    let items: Vec<String> = client.get(format!("{url}/long")).send().await.unwrap().json().await.unwrap();
    assert_eq!(items.len(), 1_000);
}

fn in_memory() -> ClientBuilder {
    Client::builder()
        .dns_resolver(FixedResolver::new().with("a.test", [v4(1)]))
        .transport(NetByPath::default())
        .no_proxy()
}

#[tokio::test(start_paused = true)]
async fn the_headers_timeout_ends_the_wait_for_a_silent_server() {
    let client = in_memory().headers_timeout(Duration::from_millis(100)).build().unwrap();
    let error = client.get("http://a.test/never").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Wait));
    let message = error.to_string();
    assert!(
        message.starts_with("GET http://a.test/never: no response headers within 100 ms, in phase wait: 100 ms of 110 ms were spent waiting for an answer that had not come (110 ms = "),
        "{message}"
    );
    assert_eq!(error.timings().unwrap().total(), Duration::from_millis(110));
    let longer =
        client.get("http://a.test/never").headers_timeout(Duration::from_millis(200)).send().await.unwrap_err();
    assert_eq!(longer.timings().unwrap().wait(), Duration::from_millis(200));
    let error = in_memory().build().unwrap().get("http://a.test/never").send().await.unwrap_err();
    assert_eq!(error.timings().unwrap().wait(), Duration::from_secs(300), "the default headers timeout");
    assert_eq!(client.get("http://a.test/slow").send().await.unwrap().text().await.unwrap(), "hello");
}

#[tokio::test(start_paused = true)]
async fn the_body_idle_timeout_ends_the_wait_for_a_stalled_body() {
    let client = in_memory().body_idle_timeout(Duration::from_millis(5)).build().unwrap();
    let error = client.get("http://a.test/ok").send().await.unwrap().bytes().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Receive));
    let message = error.to_string();
    assert!(
        message.starts_with("GET http://a.test/ok: nothing more of the body within 5 ms, most of the time in phase connect, at last in phase receive: "),
        "{message}"
    );
    let patient = client.get("http://a.test/ok").body_idle_timeout(Duration::MAX);
    assert_eq!(patient.send().await.unwrap().text().await.unwrap(), "hello");
    // The call's own timeout passes first.
    let hurried = client.get("http://a.test/ok").timeout(Duration::from_millis(3));
    let error = hurried.send().await.unwrap().bytes().await.unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("GET http://a.test/ok: timed out after 3 ms, in phase receive"), "{message}");
    assert_eq!(error.remaining(), Some(Duration::ZERO));
}

#[tokio::test]
async fn credentials_in_a_url_are_sent_as_basic_authorization_and_never_shown() {
    let server = echo();
    let url = |credentials: &str| format!("http://{credentials}@{}/v1/", server.address());
    let seen = Recorder::default();
    let client = Client::builder().no_proxy().observer(seen.clone()).build().unwrap();
    for (credentials, sent) in [
        ("Aladdin:open%20sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ("me", "bWU6"),
        (":secret", "OnNlY3JldA=="),
        ("m%C3%BC%40x:p%3Aw", "bcO8QHg6cDp3"),
    ] {
        let request = client.get(url(credentials));
        let shown = format!("{request:?}");
        assert!(!shown.contains('@') && !shown.contains("secret"), "{shown}");
        let response = request.send().await.unwrap();
        assert_eq!(response.url().as_str(), format!("http://{}/v1/", server.address()));
        assert_eq!(response.text().await.unwrap(), format!("GET /v1/|Basic {sent}||||"), "{credentials}");
    }
    assert!(seen.pick(|event| Some(format!("{event:?}"))).iter().all(|event| !event.contains("secret")));
    let error = client.get(url("us%3Aer:secret")).send().await.unwrap_err();
    assert!(error.is_builder() && format!("{error:#}").ends_with("a user's name has a colon in it"), "{error:#}");
    let (_kept, closed) = refusing();
    let error = client.get(format!("http://me:secret@{closed}/")).send().await.unwrap_err();
    assert_eq!(error.url().unwrap().to_string(), format!("http://{closed}/"));
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn the_requests_authorization_precedes_the_urls_and_the_urls_the_clients() {
    let server = echo();
    let url = format!("http://me:secret@{}/", server.address());
    let defaults = HeaderMap::from_iter([(speeddial::header::AUTHORIZATION, HeaderValue::from_static("default"))]);
    let client = Client::builder().no_proxy().default_headers(defaults).build().unwrap();
    assert_eq!(text(client.get(&url)).await, "GET /|Basic bWU6c2VjcmV0||||");
    assert_eq!(text(client.get(&url).header("authorization", "own")).await, "GET /|own||||");
    assert_eq!(text(client.get(&url).bearer_auth("token")).await, "GET /|Bearer token||||");
    let twice = client.get(&url).try_clone().unwrap();
    assert_eq!(text(twice).await, "GET /|Basic bWU6c2VjcmV0||||");
    // Conversions to and from the `http` crate.
    let request = speeddial::Request::try_from(Request::get(&url).header("x-default", "1").body("").unwrap()).unwrap();
    let message: Request<Body> = request.try_clone().unwrap().into();
    assert_eq!(message.headers()["authorization"], "Basic bWU6c2VjcmV0");
    assert!(message.headers()["authorization"].is_sensitive() && !message.uri().to_string().contains('@'));
    let answer = client.execute(request).await.unwrap().text().await.unwrap();
    assert_eq!(answer, "GET /|Basic bWU6c2VjcmV0|||1|");
}

#[tokio::test]
async fn hazard_credentials_of_a_url_stay_with_its_origin_and_can_be_removed() {
    let (server, other) = (echo(), echo());
    let client = Client::builder().no_proxy().build().unwrap();
    let build = || client.get(format!("http://me:secret@{}/", server.address())).build().unwrap();
    let sent = async |request| client.execute(request).await.unwrap().text().await.unwrap();
    assert_eq!(build().headers()["authorization"], "Basic bWU6c2VjcmV0", "they are visible");
    let mut cleared = build();
    cleared.headers_mut().clear();
    assert_eq!(sent(cleared).await, "GET /|||||");
    let mut same = build();
    same.url_mut().set_path("/x");
    assert_eq!(sent(same).await, "GET /x|Basic bWU6c2VjcmV0||||");
    let mut away = build();
    away.url_mut().set_port(Some(other.address().port())).unwrap();
    assert_eq!(sent(away.try_clone().unwrap()).await, "GET /|||||", "another origin");
    away.headers_mut().insert("authorization", "Bearer own".parse().unwrap());
    assert_eq!(sent(away).await, "GET /|Bearer own||||");
    let mut renewed = build();
    *renewed.url_mut() = format!("http://you:secret@{}/", other.address()).parse().unwrap();
    assert_eq!(sent(renewed).await, "GET /|Basic eW91OnNlY3JldA==||||");
}

#[tokio::test]
async fn credentials_of_the_base_url_are_sent_only_for_relative_urls() {
    let server = echo();
    let other = echo();
    let base = format!("http://me:secret@{}/v1/", server.address());
    let client = Client::builder().no_proxy().base_url(base).build().unwrap();
    assert_eq!(text(client.get("items")).await, "GET /v1/items|Basic bWU6c2VjcmV0||||");
    assert_eq!(text(client.get("/items")).await, "GET /items|Basic bWU6c2VjcmV0||||");
    let away = other.address();
    for url in [
        format!("//{away}/"),
        format!("\\\\{away}\\"),
        format!("/\\{away}/"),
        format!("//me@{away}/"),
        "//".to_owned() + "[::1]/",
    ] {
        let error = client.get(&url).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request, "{url}: {error}");
    }
    assert_eq!(
        text(client.get(format!("//{}/items", server.address()))).await,
        "GET /items|||||",
        "to the base's own host"
    );
    assert_eq!(text(client.get(format!("http://{}/", other.address()))).await, "GET /|||||");
    let error = client.get("http://[::1").send().await.unwrap_err();
    assert!(!format!("{error} {error:?} {client:?}").contains("secret"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn response_headers_are_accepted_up_to_a_limit() {
    let net = ScriptedNet::new(|_, mut stream| async move {
        read_request_head(&mut stream).await;
        let headers: String = (0..400).map(|number| format!("x-{number}: 1\r\n")).collect();
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{headers}content-length: 0\r\n\r\n").as_bytes()).await;
        let _ = stream.read_u8().await;
    });
    for (limit, is_taken) in [(None, false), (Some(400), false), (Some(401), true), (Some(usize::MAX), true)] {
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let builder = Client::builder().dns_resolver(resolver).transport(net.clone()).no_proxy();
        let builder = limit.into_iter().fold(builder, |builder, limit| builder.http1_max_headers(limit));
        let sent = builder.build().unwrap().get("http://a.test/").send().await;
        assert_eq!(sent.map(|response| response.headers().len()).ok(), is_taken.then_some(401), "{limit:?}");
    }
}
