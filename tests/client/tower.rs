//! The client as a tower service: under tonic, and within layers.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use speeddial::dns::FixedResolver;
use speeddial::{Body, Client, ErrorKind};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

use crate::client::grpc::{Raw, grpc};
use support::full;
use support::http_server::HttpServer;
use support::ok_server;

#[tokio::test]
async fn tonic_uses_the_client_as_its_channel_with_trailers() {
    let port = grpc().await;
    let resolver = FixedResolver::new().with("api.test", [[127, 0, 0, 1].into()]);
    let client = Client::builder()
        .dns_resolver(resolver)
        .no_proxy()
        .http2_prior_knowledge()
        .pool(support::one_connection())
        .build()
        .unwrap();
    let origin = format!("http://api.test:{port}").parse().unwrap();
    let mut grpc = tonic::client::Grpc::with_origin(client.clone(), origin);
    for text in ["hello", "again"] {
        grpc.ready().await.unwrap();
        let path = hyper::http::uri::PathAndQuery::from_static("/echo.Echo/Say");
        let response = grpc.unary(tonic::Request::new(Bytes::from(text)), path, Raw).await.unwrap();
        assert_eq!(response.into_inner(), text);
    }
    // The error of a call is only in its trailers.
    let path = hyper::http::uri::PathAndQuery::from_static("/echo.Echo/Fail");
    grpc.ready().await.unwrap();
    let status = grpc.unary(tonic::Request::new(Bytes::from("x")), path, Raw).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::NotFound, "nobody is there"));
    assert_eq!(client.pool_stats().opened, 1);
}

/// Checks at compile time that a client meets the bounds that kube and others require.
fn is_a_service<S, B>(_: &S)
where
    S: Service<http::Request<Full<Bytes>>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
}

#[tokio::test]
async fn the_service_accepts_any_body() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        hyper::Response::new(full(request.into_body().collect().await.unwrap().to_bytes()))
    })
    .unwrap();
    let mut client = Client::builder().no_proxy().build().unwrap();
    is_a_service(&client);
    let url = format!("http://{}/", server.address());
    let request = http::Request::post(&url).body(Full::new(Bytes::from("hello"))).unwrap();
    let ready = ServiceExt::<http::Request<Full<Bytes>>>::ready(&mut client).await.unwrap();
    let response = ready.call(request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    let relative = http::Request::get("/").body(Full::<Bytes>::default()).unwrap();
    assert!(Service::call(&mut client, relative).await.unwrap_err().is_builder());
    // A body without a known length is sent in chunks.
    let pieces = futures_util::stream::iter(["one, ", "two"].map(Ok::<_, std::io::Error>));
    let request = http::Request::post(&url).body(Body::wrap_stream(pieces)).unwrap();
    let response = Service::call(&mut client, request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "one, two");
}

/// A layer that adds a word to a header of the request and to another one of the response.
#[derive(Clone)]
struct AddWord(&'static str);

#[derive(Clone)]
struct WithWord<S>(S, &'static str);

impl<S> Layer<S> for AddWord {
    type Service = WithWord<S>;

    fn layer(&self, inner: S) -> WithWord<S> {
        WithWord(inner, self.0)
    }
}

impl<S, B> Service<http::Request<Body>> for WithWord<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = http::Response<B>;
    type Error = S::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<http::Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        request.headers_mut().append("x-word", self.1.parse().unwrap());
        let answered = self.0.call(request);
        let word = self.1;
        Box::pin(async move {
            answered.await.map(|mut response| {
                response.headers_mut().append("x-back", word.parse().unwrap());
                response
            })
        })
    }
}

#[tokio::test]
async fn layers_wrap_the_whole_client_and_the_last_one_is_outermost() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        let words: Vec<_> = request.headers().get_all("x-word").iter().map(|word| word.to_str().unwrap()).collect();
        let mut response = hyper::Response::new(full(words.join(" ")));
        if request.uri().path() == "/from" {
            *response.status_mut() = hyper::StatusCode::FOUND;
            response.headers_mut().insert("location", "/to".parse().unwrap());
        }
        response
    })
    .unwrap();
    let builder =
        Client::builder().no_proxy().pool(support::one_connection()).layer(AddWord("inner")).layer(AddWord("outer"));
    let client = builder.layer(ServiceBuilder::new().timeout(Duration::from_secs(60)).into_inner()).build().unwrap();
    let response = client.get(format!("http://{}/from", server.address())).send().await.unwrap();
    let back: Vec<_> = response.headers().get_all("x-back").iter().collect();
    assert_eq!(back, ["inner", "outer"]);
    assert_eq!((response.redirects().len(), response.url().path()), (1, "/to"));
    assert!(response.timings().hops().len() == 1 && response.remote_addr().is_some());
    assert_eq!(response.text().await.unwrap(), "outer inner");
    assert_eq!(client.pool_stats().opened, 1);
}

#[tokio::test]
async fn errors_and_responses_of_a_layer_are_distinct_from_the_clients() {
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let refuses = tower::layer::layer_fn(|inner: speeddial::layers::ClientService| {
        tower::service_fn(move |request: http::Request<Body>| {
            let inner = inner.clone();
            async move {
                match request.uri().path() {
                    "/refused" => Err("not today".into()),
                    _ => inner.oneshot(request).await,
                }
            }
        })
    });
    let client = Client::builder().no_proxy().layer(refuses).build().unwrap();
    let error = client.get(format!("{url}refused")).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layer);
    assert_eq!(format!("{error:#}"), format!("GET {url}refused: a layer around the client failed: not today"));
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    let error = client.get("http://127.0.0.1:1/").send().await.unwrap_err();
    assert!(error.is_connect() && error.dialled().len() == 1, "the client's own error is kept: {error:?}");
    let error = client.get(&url).version(http::Version::HTTP_2).send().await.unwrap_err();
    assert!(error.to_string().contains("insists"), "the request's options reach the client: {error:?}");

    let answers = tower::layer::layer_fn(|_: speeddial::layers::ClientService| {
        tower::service_fn(|_: http::Request<Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from("made up"))))
        })
    });
    let client = Client::builder().no_proxy().layer(answers).build().unwrap();
    let response = client.get(&url).send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.url().as_str(), response.remote_addr()),
        (200, url.as_str(), None)
    );
    assert!(response.timings().is_complete());
    assert_eq!(response.text().await.unwrap(), "made up");
    assert_eq!(client.pool_stats().opened, 0);
}

#[tokio::test]
async fn errors_keep_their_details_within_layers() {
    let server = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        match request.uri().path() {
            "/late" => {
                let pieces = futures_util::stream::once(async { Ok(hyper::body::Frame::data(Bytes::from("x"))) });
                let pieces = futures_util::StreamExt::chain(pieces, futures_util::stream::pending());
                hyper::Response::new(BodyExt::boxed(http_body_util::StreamBody::new(pieces)))
            }
            _ => hyper::Response::builder().status(400).body(full("what?")).unwrap(),
        }
    })
    .unwrap();
    let client = Client::builder().no_proxy().layer(AddWord("x")).build().unwrap();
    let url = format!("http://{}", server.address());
    let error = client.get(&url).send().await.unwrap().error_for_status().unwrap_err();
    assert_eq!(error.body_start(), b"what?");
    let error = client.get(&url).send().await.unwrap().error_for_status_with_body().await.unwrap_err();
    assert_eq!(error.body_start(), b"what?");
    assert_eq!(client.head(&url).send().await.unwrap().content_length(), Some(5));
    let late = client.get(format!("{url}/late")).body_idle_timeout(Duration::from_millis(20)).send().await.unwrap();
    let error = late.bytes().await.unwrap_err().to_string();
    assert_eq!(error.matches("receive").count(), 2, "the phase and its time appear once each: {error}");
    let long = format!("{url}/{}", "x".repeat(70_000));
    assert!(client.get(long).send().await.unwrap_err().is_builder());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_layer_is_a_timeout_error() {
    let silent = tower::layer::layer_fn(|_: speeddial::layers::ClientService| {
        tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        })
    });
    let builder = Client::builder().no_proxy().layer(silent);
    let client = builder.layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(1))).build().unwrap();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layer);
    let expected = "GET http://api.test/: a layer around the client failed: request timed out";
    assert_eq!(format!("{error:#}"), expected);
    assert!(error.is_timeout());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_each_attempt_is_a_layer_and_leads_to_retries_where_they_are_safe() {
    let silent = tower::layer::layer_fn(|_: speeddial::layers::AttemptService| {
        tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        })
    });
    let second = Duration::from_secs(1);
    let retry = speeddial::RetryPolicy::new().backoff(second, second).attempts(3);
    let builder = Client::builder().no_proxy().retry(retry).attempt_layer(silent);
    let client = builder.attempt_layer(tower::timeout::TimeoutLayer::new(second * 2)).build().unwrap();
    let start = tokio::time::Instant::now();
    let error = client.get("http://api.test/").send().await.unwrap_err();
    assert_eq!((error.attempts(), error.is_timeout()), (3, true), "{error:#}");
    assert!(start.elapsed() >= second * 6 && start.elapsed() <= second * 8, "three attempts and two waits");
    let error = client.post("http://api.test/").body("x").send().await.unwrap_err();
    assert_eq!((error.attempts(), error.is_timeout()), (1, true), "{error:#}");
}

#[tokio::test]
async fn a_layer_that_changes_nothing_leaves_the_fragment() {
    let server = ok_server();
    let layer = tower::layer::layer_fn(|inner: speeddial::layers::ClientService| inner);
    let client = Client::builder().no_proxy().layer(layer).build().unwrap();
    let url = format!("http://{}/x#part", server.address());
    assert_eq!(client.get(&url).send().await.unwrap().url().as_str(), url);
    let layer = tower::layer::layer_fn(|inner: speeddial::layers::ClientService| {
        tower::ServiceBuilder::new()
            .map_request(|mut request: http::Request<Body>| {
                *request.uri_mut() = request.uri().to_string().replace("/x", "/y").parse().unwrap();
                request
            })
            .service(inner)
    });
    let client = Client::builder().no_proxy().layer(layer).build().unwrap();
    let changed = client.get(&url).send().await.unwrap();
    assert_eq!(changed.url().as_str(), format!("http://{}/y", server.address()));
}

#[tokio::test]
async fn a_weak_reference_leads_back_to_the_client_with_its_layers() {
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let made_up = tower::layer::layer_fn(|_: speeddial::layers::ClientService| {
        tower::service_fn(|_: http::Request<Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from("made up")))
        })
    });
    let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
    let place = kept.clone();
    let keeps = tower::layer::layer_fn(move |inner: speeddial::layers::ClientService| {
        *place.lock().unwrap() = Some(inner.clone());
        inner
    });
    let client = Client::builder().no_proxy().layer(keeps).layer(made_up).build().unwrap();
    let weak = client.downgrade();
    let same = weak.upgrade().unwrap();
    drop(client);
    assert_eq!(same.get(&url).send().await.unwrap().text().await.unwrap(), "made up");
    let innermost = kept.lock().unwrap().take().unwrap();
    let message = || http::Request::get(&url).body(Body::default()).unwrap();
    assert_eq!(innermost.clone().oneshot(message()).await.unwrap().status(), 200);
    drop(same);
    assert!(weak.upgrade().is_none(), "its layers do not keep it alive");
    let error = innermost.oneshot(message()).await.unwrap_err();
    assert!(error.to_string().contains("after the client is gone"), "{error}");
}
