//! Settings of one request against those of its client, values that go along with a request, and requests of the `http`
//! crate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use speeddial::http::{self, StatusCode, Version};
use speeddial::settings::RequestOptions;
use speeddial::trace::{EndedCall, Event, Observer, Record};
use speeddial::{Body, Client, ClientBuilder, ErrorKind, Request, RequestBuilder, Response, RetryPolicy, redirect};

use support::full;
use support::http_server::HttpServer;
use support::recorder::Recorder;

/// A server that does what the path says, and tells in `x-seen` the target that it was asked for. `/redirect` leads to
/// `/end`, `/busy` is always 503, `/long` has ten bytes in two pieces without a length.
fn server() -> HttpServer {
    HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let target = request.uri().to_string();
        let path = request.uri().path().to_owned();
        let accepted = request
            .headers()
            .get("accept-encoding")
            .map_or("none".to_owned(), |value| value.to_str().unwrap().to_owned());
        let sent = request.into_body().collect().await.unwrap().to_bytes();
        let body = match path.as_str() {
            "/long" => {
                let pieces = futures_util::stream::iter(["12345", "67890"].map(|piece| {
                    Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(bytes::Bytes::from(piece)))
                }));
                http_body_util::BodyExt::boxed(http_body_util::StreamBody::new(pieces))
            }
            "/echo" => full(sent),
            "/accepted" => full(accepted),
            _ => full("1234567890"),
        };
        let mut response = hyper::Response::new(body);
        response.headers_mut().insert("x-seen", target.parse().unwrap());
        match path.as_str() {
            "/redirect" => {
                *response.status_mut() = StatusCode::FOUND;
                response.headers_mut().insert("location", "/end".parse().unwrap());
            }
            "/busy" => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
            _ => {}
        }
        response
    })
    .unwrap()
}

fn builder(server: &HttpServer) -> ClientBuilder {
    Client::builder().base_url(format!("http://{}/v1/", server.address())).no_proxy()
}

fn seen(response: &Response) -> &str {
    response.headers()["x-seen"].to_str().unwrap()
}

#[tokio::test]
async fn a_requests_redirect_policy_replaces_the_clients() {
    let server = server();
    let follows = builder(&server).build().unwrap();
    let response = follows.get("/redirect").redirect(redirect::Policy::none()).send().await.unwrap();
    assert_eq!((response.status(), seen(&response)), (StatusCode::FOUND, "/redirect"));
    let stays = builder(&server).redirect(redirect::Policy::none()).build().unwrap();
    assert_eq!(stays.get("/redirect").send().await.unwrap().status(), StatusCode::FOUND);
    let response = stays.get("/redirect").redirect(redirect::Policy::limited(1)).send().await.unwrap();
    assert_eq!((response.status(), seen(&response), response.redirects().len()), (StatusCode::OK, "/end", 1));
}

/// Returns the number of times that `request` is sent.
async fn times_sent(request: RequestBuilder) -> usize {
    let recorder = Recorder::default();
    let response = request.observer(recorder.clone()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    1 + recorder.count(|event| matches!(event, Event::Repeated { .. }))
}

#[tokio::test]
async fn a_requests_retry_policy_replaces_the_clients() {
    let server = server();
    let quick = |attempts| RetryPolicy::new().attempts(attempts).backoff(Duration::ZERO, Duration::ZERO);
    let without = builder(&server).build().unwrap();
    assert_eq!(times_sent(without.get("/busy")).await, 1);
    assert_eq!(times_sent(without.get("/busy").retry(quick(3))).await, 3);
    assert_eq!(times_sent(without.get("/busy")).await, 1, "the policy was that request's alone");
    let with = builder(&server).retry(quick(2)).build().unwrap();
    assert_eq!(times_sent(with.get("/busy")).await, 2);
    assert_eq!(times_sent(with.get("/busy").retry(RetryPolicy::none())).await, 1);
    assert_eq!(times_sent(with.get("/busy").retry(quick(4))).await, 4);
    assert_eq!(times_sent(with.get("/busy").retry(quick(4).statuses([]))).await, 1);
}

#[tokio::test]
async fn retries_of_all_policies_share_the_clients_budget() {
    let server = server();
    let policy =
        |per_call| RetryPolicy::new().attempts(100).backoff(Duration::ZERO, Duration::ZERO).budget(per_call, 0.0);
    let client = builder(&server).build().unwrap();
    assert_eq!(times_sent(client.get("/busy").retry(policy(0.0))).await, 1, "no budget at all");
    let client = builder(&server).build().unwrap();
    // Five to begin with, and one by the call itself.
    assert_eq!(times_sent(client.get("/busy").retry(policy(1.0))).await, 1 + 6);
    assert_eq!(times_sent(client.get("/busy").retry(policy(2.0))).await, 1 + 2, "a new policy has no new budget");
    assert_eq!(times_sent(client.get("/busy").retry(policy(0.5))).await, 1);
    assert_eq!(times_sent(client.get("/busy").retry(policy(0.0))).await, 1, "its call brings nothing");
    assert_eq!(times_sent(client.get("/busy").retry(policy(0.5))).await, 1 + 1);
}

#[cfg(feature = "gzip")]
#[tokio::test]
async fn a_requests_decompression_replaces_the_clients() {
    use std::io::Write;
    use std::process::{Command, Stdio};

    let text = "text that is compressed ".repeat(20);
    let mut child = Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("gzip");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let zipped = child.wait_with_output().unwrap().stdout;
    let sent = zipped.clone();
    let server = HttpServer::start(move |request: hyper::Request<hyper::body::Incoming>| {
        let accepts = request.headers().contains_key("accept-encoding");
        let body = full(sent.clone());
        async move {
            let builder =
                hyper::Response::builder().header("content-encoding", "gzip").header("x-accepts", accepts.to_string());
            builder.body(body).unwrap()
        }
    })
    .unwrap();
    let accepts = |response: &Response| response.headers()["x-accepts"] == "true";

    let client = builder(&server).build().unwrap();
    let response = client.get("/").decompress(false).send().await.unwrap();
    assert!(!accepts(&response) && response.headers()["content-encoding"] == "gzip");
    assert_eq!(response.bytes().await.unwrap(), zipped, "the bytes as the server sent them");
    let response = client.get("/").send().await.unwrap();
    assert!(accepts(&response));
    assert_eq!(response.text().await.unwrap(), text, "other requests of the client are decompressed");

    let client = builder(&server).decompress(false).build().unwrap();
    assert_eq!(client.get("/").send().await.unwrap().bytes().await.unwrap(), zipped);
    let response = client.get("/").decompress(true).send().await.unwrap();
    assert!(accepts(&response));
    assert_eq!(response.text().await.unwrap(), text);
    let short = speeddial::settings::Decompression::default().max_bytes(2);
    let error = client.get("/").decompress(short).send().await.unwrap().bytes().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);

    // The limit for bodies is about what the reader gets. The compressed form is shorter than it.
    let limit = zipped.len() as u64 + 1;
    assert!(limit < text.len() as u64);
    let client = builder(&server).max_body_size(limit).build().unwrap();
    let error = client.get("/").send().await.unwrap().bytes().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().ends_with(&format!("the body is longer than {limit} bytes"))),
        (ErrorKind::Body, true)
    );
    assert_eq!(client.get("/").decompress(false).send().await.unwrap().bytes().await.unwrap(), zipped);
    assert_eq!(client.get("/").max_body_size(text.len() as u64).send().await.unwrap().text().await.unwrap(), text);
}

#[tokio::test]
async fn hazard_a_body_beyond_the_limit_is_an_error_and_other_requests_go_on() {
    for http2 in [false, true] {
        // `/endless` has no length and no end.
        let server = HttpServer::start_as(http2, |request: hyper::Request<hyper::body::Incoming>| async move {
            let piece = || {
                Ok::<_, std::convert::Infallible>(hyper::body::Frame::data(bytes::Bytes::from_static(&[b'x'; 1000])))
            };
            let body = match request.uri().path() {
                "/endless" => BodyExt::boxed(http_body_util::StreamBody::new(futures_util::stream::repeat_with(piece))),
                _ => full(vec![b'x'; 1000]),
            };
            if request.method() == "HEAD" {
                return hyper::Response::builder().header("content-length", 1_000).body(full("")).unwrap();
            }
            hyper::Response::new(body)
        })
        .unwrap();
        let client = builder(&server).max_body_size(1_000);
        let client = if http2 { client.http2_prior_knowledge() } else { client }.build().unwrap();
        let ok = async || client.get("/").send().await.unwrap().bytes().await.unwrap().len();
        assert_eq!(ok().await, 1_000, "as long as the limit");

        // Announced: refused at once.
        let error = client.get("/").max_body_size(999).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Body);
        assert!(error.to_string().ends_with("the body is longer than 999 bytes"), "{error}");
        assert!(error.to_string().starts_with("GET http://127.0.0.1"), "{error}");
        let head = client.head("/").max_body_size(999).send().await.unwrap();
        assert_eq!((head.content_length(), head.bytes().await.unwrap().len()), (Some(1_000), 0), "no body came");
        let opened = client.pool_stats().opened;
        assert_eq!((ok().await, opened), (1_000, 1), "the connection was drained and serves the next request");

        // Not announced: what fits is read, then the error, once and for all.
        let mut response = client.get("/endless").max_body_size(2_500).send().await.unwrap();
        let mut read = 0;
        let error = loop {
            match response.chunk().await {
                Ok(chunk) => read += chunk.expect("the body has no end").len(),
                Err(error) => break error,
            }
        };
        assert!(read <= 2_500, "{read}");
        assert_eq!(error.kind(), ErrorKind::Body);
        assert!(error.to_string().ends_with("the body is longer than 2500 bytes"), "{error}");
        assert!(response.chunk().await.is_err());
        drop(response);
        assert_eq!(ok().await, 1_000);
        if http2 {
            assert_eq!(client.pool_stats().opened, 1, "only the stream was reset");
        }
        let error = client.get("/").max_body_size(0).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Body);
        assert_eq!(client.get("/").max_body_size(u64::MAX).send().await.unwrap().bytes().await.unwrap().len(), 1_000);
    }
}

/// A value that goes along with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tenant(u32);

/// Notes the tenants of the requests that it is told.
#[derive(Clone, Default)]
struct Tenants(Arc<Mutex<Vec<Told>>>);

/// An event, and the tenant of its request.
type Told = (&'static str, Option<u32>);

impl Observer for Tenants {
    fn observe(&self, record: &Record) {
        let (when, request) = match &record.event {
            Event::CallStart(request) => ("start", request),
            Event::Redirected { to, .. } => ("redirected", to),
            _ => return,
        };
        self.0.lock().unwrap().push((when, request.extensions.get::<Tenant>().map(|tenant| tenant.0)));
    }

    fn ended(&self, call: &EndedCall<'_>) {
        self.0.lock().unwrap().push(("end", call.request.extensions.get::<Tenant>().map(|tenant| tenant.0)));
    }
}

#[tokio::test]
async fn an_extension_is_seen_by_observers_and_on_the_response() {
    let server = server();
    let tenants = Tenants::default();
    let client = builder(&server).observer(tenants.clone()).build().unwrap();
    let request = client.get("/redirect").extension(Tenant(1)).extension(Tenant(7)).extension("other");
    let mut response = request.try_clone().unwrap().send().await.unwrap();
    assert_eq!(response.extensions().get::<Tenant>(), Some(&Tenant(7)), "the last one of its type");
    assert_eq!(response.extensions().get::<&str>(), Some(&"other"));
    response.extensions_mut().insert(Tenant(8));
    let message = http::Response::from(response);
    assert_eq!(message.extensions().get::<Tenant>(), Some(&Tenant(8)));
    message.into_body().collect().await.unwrap();
    assert_eq!(*tenants.0.lock().unwrap(), [("start", Some(7)), ("redirected", Some(7)), ("end", Some(7))]);

    let mut request = request.build().unwrap();
    request.extensions_mut().remove::<Tenant>();
    assert_eq!(request.extensions().get::<&str>(), Some(&"other"));
    let response = client.execute(request).await.unwrap();
    assert!(response.extensions().get::<Tenant>().is_none());
    assert_eq!(tenants.0.lock().unwrap()[3..], [("start", None), ("redirected", None)]);
}

#[tokio::test]
async fn settings_and_values_travel_in_the_extensions_of_http_requests() {
    let server = server();
    let client = builder(&server).build().unwrap();
    let url = format!("http://{}/redirect", server.address());
    let options = RequestOptions::new().redirect(redirect::Policy::none()).max_body_size(10);
    let mut message = http::Request::get(&url).body("").unwrap();
    message.extensions_mut().insert(options.clone());
    message.extensions_mut().insert(Tenant(7));
    let request = Request::try_from(message).unwrap();
    assert!(request.extensions().get::<RequestOptions>().is_none() && request.extensions().len() == 1);
    // There and back again.
    let request = Request::try_from(http::Request::<Body>::from(request)).unwrap();
    let response = client.execute(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::FOUND);
    assert_eq!(response.extensions().get::<Tenant>(), Some(&Tenant(7)));
    assert!(response.extensions().get::<RequestOptions>().is_none());

    let send = async |options: RequestOptions| {
        let mut message = http::Request::get("/busy").body("").unwrap();
        message.extensions_mut().insert(options);
        RequestBuilder::from_http(client.clone(), message).send().await
    };
    let error = send(options.clone().max_body_size(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Body);
    let recorder = Recorder::default();
    let retry = RetryPolicy::new().attempts(2).backoff(Duration::ZERO, Duration::ZERO);
    send(options.clone().retry(retry).observer(recorder.clone())).await.unwrap();
    assert_eq!(recorder.count(|event| matches!(event, Event::Repeated { .. })), 1);
    let error = send(options.clone().timeout(Duration::ZERO)).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let error = send(options.clone().version(Version::HTTP_2)).await.unwrap_err();
    assert!(error.to_string().contains("the request insists on HTTP/2"), "{error}");
    let error = send(options.version(Version::HTTP_3)).await.unwrap_err();
    assert!(error.is_builder() && error.to_string().contains("HTTP/3.0 is not supported"), "{error}");
}

#[tokio::test]
async fn the_path_of_a_relative_http_request_is_put_in_place_of_the_bases() {
    let server = server();
    let client = Client::builder().base_url(format!("http://me:secret@{}/v1/?q#f", server.address()));
    let client = client.no_proxy().build().unwrap();
    for (uri, target) in [
        ("/items", "/items"),
        ("/v1/items?page=2", "/v1/items?page=2"),
        ("/", "/"),
        ("//evil.test/x", "//evil.test/x"),
        ("/a//b/../c", "/a//b/../c"),
        ("/x?y=//evil.test", "/x?y=//evil.test"),
    ] {
        let message = http::Request::post(uri).header("x-own", "1").body("sent").unwrap();
        let response = RequestBuilder::from_http(client.clone(), message).send().await.unwrap();
        assert_eq!(seen(&response), target);
        assert_eq!(response.url().host_str(), Some("127.0.0.1"), "{uri}");
    }
    let message = http::Request::put("/echo").body("sent").unwrap();
    let echoed = RequestBuilder::from_http(client.clone(), message).send().await.unwrap().text().await.unwrap();
    assert_eq!(echoed, "sent");
    // An absolute URI is used as it is, and without a base, or as an authority alone, there is nothing to send to.
    let absolute = http::Request::get(format!("http://{}/x", server.address())).body("").unwrap();
    let response = RequestBuilder::from_http(client.clone(), absolute).send().await.unwrap();
    assert_eq!(seen(&response), "/x");
    let without_base = Client::builder().no_proxy().build().unwrap();
    for (client, uri) in [(&without_base, "/items"), (&client, "*"), (&client, "evil")] {
        let message = http::Request::get(uri).body("").unwrap();
        let error = RequestBuilder::from_http(client.clone(), message).send().await.unwrap_err();
        assert!(error.is_builder() && error.method() == Some(&http::Method::GET), "{uri}: {error}");
    }
}

#[tokio::test]
async fn layers_see_settings_and_values_and_may_send_to_the_base() {
    use tower::ServiceExt;
    use tower::util::MapRequestLayer;

    let server = server();
    let change = MapRequestLayer::new(|mut message: http::Request<Body>| {
        assert_eq!(message.extensions().get::<Tenant>(), Some(&Tenant(7)));
        message.extensions_mut().insert(Tenant(8));
        let options = message.extensions_mut().remove::<RequestOptions>().expect("the request's settings");
        message.extensions_mut().insert(options.redirect(redirect::Policy::none()));
        *message.uri_mut() = "/redirect".parse().unwrap();
        message
    });
    let client = builder(&server).layer(change).build().unwrap();
    let response = client.get("/anything").extension(Tenant(7)).send().await.unwrap();
    assert_eq!((response.status(), seen(&response)), (StatusCode::FOUND, "/redirect"));
    assert_eq!(response.extensions().get::<Tenant>(), Some(&Tenant(8)));
    // The client as a service takes them, too.
    let mut message = http::Request::get("/anything").body(Body::default()).unwrap();
    message.extensions_mut().insert(Tenant(7));
    let response = client.oneshot(message).await.unwrap();
    assert_eq!((response.status(), response.extensions().get::<Tenant>()), (StatusCode::FOUND, Some(&Tenant(8))));
}

#[tokio::test]
async fn an_extension_is_on_a_response_that_a_layer_made() {
    use tower::util::MapResponseLayer;
    use tower::{ServiceBuilder, service_fn};

    let tenants = Tenants::default();
    let answer = ServiceBuilder::new()
        .layer(MapResponseLayer::new(|response: http::Response<Body>| response))
        .layer(tower::layer::layer_fn(|_| {
            service_fn(async |_: http::Request<Body>| {
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("made")))
            })
        }))
        .into_inner();
    let client = Client::builder().no_proxy().observer(tenants.clone()).layer(answer).build().unwrap();
    let response = client.get("http://192.0.2.1/").extension(Tenant(7)).send().await.unwrap();
    assert_eq!(response.extensions().get::<Tenant>(), Some(&Tenant(7)));
    assert_eq!(response.text().await.unwrap(), "made");
    assert_eq!(tenants.0.lock().unwrap()[0], ("start", Some(7)));
}

#[tokio::test]
async fn settings_of_a_library_fill_those_of_a_request_and_the_observers_of_both_are_told() {
    let (server, own, librarys) = (server(), Recorder::default(), Recorder::default());
    let of_library = RequestOptions::new().observer(librarys.clone()).max_body_size(1).timeout(Duration::from_secs(60));
    let options = RequestOptions::new().observer(own.clone()).max_body_size(100).or(of_library);
    let client = Client::builder().no_proxy().build().unwrap();
    let message = http::Request::get(format!("http://{}/end", server.address())).extension(options).body("").unwrap();
    let response = client.execute(Request::try_from(message).unwrap()).await.unwrap();
    assert_eq!(response.text().await.unwrap(), "1234567890", "the request's own limit applies");
    for recorder in [&own, &librarys] {
        let opened = recorder.count(|event| matches!(event, Event::Opened { .. }));
        assert_eq!((recorder.count(|event| matches!(event, Event::Leased { .. })), opened), (1, 1));
    }
}
