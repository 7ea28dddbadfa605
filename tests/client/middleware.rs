//! Code of the user around each single attempt: functions before it, and tower layers.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use speeddial::dns::FixedResolver;
use speeddial::http::{HeaderValue, StatusCode};
use speeddial::layers::AttemptHead;
use speeddial::{Body, Client, ErrorKind, RetryPolicy};
use tokio::io::AsyncWriteExt;

use support::http_server::HttpServer;
use support::scripted_net::ScriptedNet;
use support::{full, read_request_head, v4};

type Request = hyper::Request<Incoming>;
type Response = hyper::Response<support::ServerBody>;

/// Returns a server that writes the `x-number` of each request down, and does what its path says.
fn server() -> (HttpServer, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = HttpServer::start(move |request: Request| {
        let log = log.clone();
        async move {
            let number = request.headers().get("x-number").map_or("none", |number| number.to_str().unwrap());
            log.lock().unwrap().push(format!("{} {number}", request.uri().path()));
            answer(request).await
        }
    })
    .unwrap();
    (server, seen)
}

async fn answer(request: Request) -> Response {
    let to = request.uri().query().and_then(|query| query.strip_prefix("to=")).map(ToOwned::to_owned);
    let busy = request.uri().path() == "/busy";
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut response = hyper::Response::new(full(body));
    if let Some(to) = to {
        *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        response.headers_mut().insert("location", to.parse().unwrap());
    } else if busy {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// Returns a function that numbers the attempts.
fn numbers() -> impl Fn(&mut AttemptHead<'_>) -> Result<(), Infallible> {
    let next = AtomicUsize::new(0);
    move |head| {
        let number = next.fetch_add(1, Ordering::SeqCst);
        assert!(!head.headers().contains_key("x-number"), "it goes along with one attempt only");
        head.headers_mut().insert("x-number", number.into());
        Ok(())
    }
}

fn retries() -> RetryPolicy {
    RetryPolicy::new().backoff(Duration::from_millis(1), Duration::from_millis(1))
}

#[tokio::test]
async fn a_function_sees_each_redirect_and_each_retry_and_its_headers_stay_with_the_attempt() {
    let (server, seen) = server();
    let (other, seen_by_other) = self::server();
    let url = |server: &HttpServer, path: &str| format!("http://{}{path}", server.address());
    let host = server.address().port();
    let secret = move |head: &mut AttemptHead<'_>| {
        if head.url().port() == Some(host) {
            head.headers_mut().insert("x-secret", HeaderValue::from_static("s"));
        }
        assert!(head.headers().contains_key("host") && head.headers().contains_key("accept"));
        Ok::<_, Infallible>(())
    };
    let builder = Client::builder().no_proxy().retry(retries());
    let client = builder.before_attempt(numbers()).before_attempt(secret).build().unwrap();
    let away = url(&server, &format!("/from?to={}", url(&other, "/busy")));
    let response = client.get(away).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(*seen.lock().unwrap(), ["/from 0"]);
    assert_eq!(*seen_by_other.lock().unwrap(), ["/busy 1", "/busy 2", "/busy 3"]);
    assert_eq!(response.timings().hops().len(), 3);
}

#[tokio::test]
async fn a_function_sees_the_body_if_it_is_bytes() {
    let (server, _) = server();
    let url = format!("http://{}/?to=/there", server.address());
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let log = bodies.clone();
    let note = move |head: &mut AttemptHead<'_>| {
        log.lock().unwrap().push(head.body().map(<[u8]>::to_vec));
        Ok::<_, Infallible>(())
    };
    let client = Client::builder().no_proxy().before_attempt(note).build().unwrap();
    assert_eq!(client.post(&url).body("hello").send().await.unwrap().text().await.unwrap(), "hello");
    let stream = Body::wrap_stream(futures_util::stream::iter(["x"].map(Ok::<_, Infallible>)));
    assert!(client.post(&url).body(stream).send().await.unwrap_err().is_redirect());
    let hello = Some(b"hello".to_vec());
    assert_eq!(*bodies.lock().unwrap(), [hello.clone(), hello, None]);
}

#[tokio::test]
async fn an_error_of_a_function_ends_the_call_before_anything_is_sent() {
    let (server, seen) = server();
    let url = format!("http://{}/", server.address());
    let refuses = |head: &mut AttemptHead<'_>| match head.headers().contains_key("x-ok") {
        true => Ok(()),
        false => Err(std::io::Error::other("the key is gone")),
    };
    let client = Client::builder().no_proxy().retry(retries()).before_attempt(refuses).build().unwrap();
    let error = client.get(&url).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Layer);
    assert_eq!(format!("{error:#}"), format!("GET {url}: a function of `before_attempt` failed: the key is gone"));
    assert!(std::error::Error::source(&error).unwrap().is::<std::io::Error>());
    assert!(seen.lock().unwrap().is_empty() && !error.may_have_been_processed());
    let pool = client.pool_stats();
    assert_eq!((pool.opened, pool.idle), (1, 1), "its connection is kept");
    assert!(client.get(&url).header("x-ok", "1").send().await.is_ok());

    let smuggles = |head: &mut AttemptHead<'_>| {
        head.headers_mut().insert("transfer-encoding", HeaderValue::from_static("chunked"));
        Ok::<_, Infallible>(())
    };
    let client = Client::builder().no_proxy().before_attempt(smuggles).build().unwrap();
    let error = client.post(&url).body("x").send().await.unwrap_err();
    assert!(error.is_builder() && error.to_string().contains("frames the message"), "{error}");
}

#[tokio::test]
async fn an_error_of_a_function_is_not_retried() {
    let (server, _) = server();
    let url = format!("http://{}/", server.address());
    let any = || retries().classify_fn(|req_rep| req_rep.retryable());
    for policy in [retries(), any()] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let fails = move |_: &mut AttemptHead<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err::<(), _>(std::io::Error::from(std::io::ErrorKind::TimedOut))
        };
        let client = Client::builder().no_proxy().retry(policy).before_attempt(fails).build().unwrap();
        let error = client.get(&url).send().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Layer && error.is_timeout(), "{error}");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_function_is_called_over_http2_as_well() {
    let server = HttpServer::start_as(true, answer_with_number).unwrap();
    let client = Client::builder().no_proxy().http2_prior_knowledge().before_attempt(numbers()).build().unwrap();
    for number in ["0", "1"] {
        let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), number);
    }
}

async fn answer_with_number(request: Request) -> Response {
    hyper::Response::new(full(request.headers()["x-number"].as_bytes().to_vec()))
}

/// A network whose connections close without a response to the second request.
fn closing_net() -> ScriptedNet {
    ScriptedNet::new(|_, mut stream| async move {
        let Some(head) = read_request_head(&mut stream).await else { return };
        let number = head.lines().find_map(|line| line.strip_prefix("x-number: ")).unwrap_or("none");
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{number}", number.len());
        let _ = stream.write_all(response.as_bytes()).await;
        read_request_head(&mut stream).await;
    })
}

#[tokio::test(start_paused = true)]
async fn a_function_is_called_for_each_resend() {
    let resolver = FixedResolver::new().with("a.test", [v4(1)]);
    let builder = Client::builder().dns_resolver(resolver).transport(closing_net()).no_proxy();
    let client = builder.before_attempt(numbers()).build().unwrap();
    let text = async || client.get("http://a.test/").send().await.unwrap().text().await.unwrap();
    assert_eq!(text().await, "0");
    assert_eq!(text().await, "2", "the attempt on the kept connection is 1");
}

mod layers {
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use futures_util::future::BoxFuture;
    use futures_util::{FutureExt, TryStreamExt};
    use speeddial::ClientBuilder;
    use speeddial::layers::AttemptService;
    use speeddial::settings::RequestOptions;
    use speeddial::token::{Token, TokenSource};
    use speeddial::trace::{HopEnd, Phase, RepeatCause};
    use support::ok_server;
    use tokio::io::AsyncReadExt;
    use tower::layer::layer_fn;
    use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

    use super::*;

    type Cause = Box<dyn std::error::Error + Send + Sync>;
    type Outcome = Result<http::Response<Body>, Cause>;

    /// A layer made of a function of the inner service and the request.
    #[derive(Clone)]
    struct Around<F>(F);

    #[derive(Clone)]
    struct AroundService<F>(F, AttemptService);

    impl<F: Clone> Layer<AttemptService> for Around<F> {
        type Service = AroundService<F>;

        fn layer(&self, inner: AttemptService) -> AroundService<F> {
            AroundService(self.0.clone(), inner)
        }
    }

    impl<F, R> Service<http::Request<Body>> for AroundService<F>
    where
        F: Fn(AttemptService, http::Request<Body>) -> R,
        R: Future<Output = Outcome> + Send + 'static,
    {
        type Response = http::Response<Body>;
        type Error = Cause;
        type Future = BoxFuture<'static, Outcome>;

        fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
            self.1.poll_ready(cx)
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            (self.0)(self.1.clone(), request).boxed()
        }
    }

    /// Makes the type of a function that is a layer known to the compiler.
    fn around<F, R>(function: F) -> Around<F>
    where
        F: Fn(AttemptService, http::Request<Body>) -> R + Clone,
        R: Future<Output = Outcome> + Send + 'static,
    {
        Around(function)
    }

    /// Returns a layer that numbers the attempts.
    fn numbered() -> impl Layer<
        AttemptService,
        Service: Service<
            http::Request<Body>,
            Response = http::Response<Body>,
            Error = Cause,
            Future: Send + 'static,
        > + Clone
                     + Send
                     + Sync
                     + 'static,
    > + Send
    + Sync
    + 'static {
        let next = Arc::new(AtomicUsize::new(0));
        around(move |inner: AttemptService, mut request: http::Request<Body>| {
            let number = next.fetch_add(1, Ordering::SeqCst);
            assert!(!request.headers().contains_key("x-number"));
            request.headers_mut().insert("x-number", number.into());
            inner.oneshot(request)
        })
    }

    fn builder() -> ClientBuilder {
        Client::builder().no_proxy()
    }

    fn url(server: &HttpServer, path: &str) -> String {
        format!("http://{}{path}", server.address())
    }

    #[tokio::test]
    async fn a_layer_is_around_each_redirect_and_each_retry() {
        let (server, seen) = server();
        let client = builder().retry(retries()).attempt_layer(numbered()).build().unwrap();
        let response = client.get(url(&server, "/from?to=/busy")).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.redirects().len()), (503, 1));
        assert_eq!(*seen.lock().unwrap(), ["/from 0", "/busy 1", "/busy 2", "/busy 3"]);
        let timings = response.timings();
        assert_eq!(timings.hops().len(), 3);
        response.bytes().await.unwrap();
        assert!(client.get(url(&server, "/")).send().await.is_ok());
        assert_eq!(client.pool_stats().opened, 1, "the bodies of discarded responses are read");
        drop(timings);
    }

    #[tokio::test(start_paused = true)]
    async fn a_layer_is_around_each_resend() {
        let client = || {
            let resolver = FixedResolver::new().with("a.test", [v4(1)]);
            let builder = Client::builder().dns_resolver(resolver).transport(closing_net()).no_proxy();
            builder.attempt_layer(numbered()).build().unwrap()
        };
        let get = async |client: &Client| client.get("http://a.test/").send().await.unwrap();
        let idempotent = client();
        assert_eq!(get(&idempotent).await.text().await.unwrap(), "0");
        let response = get(&idempotent).await;
        let ends = response.timings().hops().iter().map(|hop| hop.end).collect::<Vec<_>>();
        assert_eq!(ends, [HopEnd::Repeated(RepeatCause::Closed)]);
        assert_eq!(response.text().await.unwrap(), "2");
        // Without idempotence the error is the attempt's own.
        let other = client();
        assert_eq!(get(&other).await.text().await.unwrap(), "0");
        let error = other.post("http://a.test/").body("x").send().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Exchange && error.timings().is_some(), "{error}");
    }

    #[tokio::test]
    async fn the_last_layer_is_outermost_and_all_are_within_the_layers_of_the_call() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let noting = |name: &'static str| {
            let order = order.clone();
            around(move |inner: AttemptService, request| {
                order.lock().unwrap().push(name);
                inner.oneshot(request)
            })
        };
        let noted = order.clone();
        let outside = layer_fn(move |inner: speeddial::layers::ClientService| {
            let order = noted.clone();
            service_fn(move |request: http::Request<Body>| {
                order.lock().unwrap().push("call");
                inner.clone().oneshot(request)
            })
        });
        let (server, _) = server();
        let client = builder().attempt_layer(noting("inner")).attempt_layer(noting("outer")).layer(outside);
        let client = client.build().unwrap();
        assert!(client.get(url(&server, "/?to=/x")).send().await.unwrap().status().is_success());
        assert_eq!(*order.lock().unwrap(), ["call", "outer", "inner", "outer", "inner"]);
    }

    #[tokio::test]
    async fn a_layer_may_answer_without_an_attempt() {
        let answers = around(|inner: AttemptService, request: http::Request<Body>| async move {
            match request.uri().path() {
                "/made-up" => Ok(http::Response::new(Body::from("made up"))),
                "/moved" => Ok(http::Response::builder().status(302).header("location", "/x").body(Body::default())?),
                _ => inner.oneshot(request).await,
            }
        });
        let (server, seen) = server();
        let client = builder().attempt_layer(answers).build().unwrap();
        let response = client.get(url(&server, "/made-up")).send().await.unwrap();
        assert!(response.timings().is_complete());
        assert_eq!((response.text().await.unwrap().as_str(), client.pool_stats().opened), ("made up", 0));
        let response = client.get(url(&server, "/moved")).send().await.unwrap();
        assert_eq!(response.url().path(), "/x", "its redirects are followed");
        assert!(response.timings().is_complete() && response.timings().hops().len() == 1);
        assert_eq!(*seen.lock().unwrap(), ["/x none"]);
    }

    #[tokio::test]
    async fn a_layer_may_make_two_attempts_of_one() {
        let twice = around(|inner: AttemptService, request: http::Request<Body>| async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let once = |body: Bytes| http::Request::from_parts(head.clone(), Body::from(body));
            let first = inner.clone().oneshot(once(bytes.clone())).await?;
            if first.status() != StatusCode::SERVICE_UNAVAILABLE {
                return Ok(first);
            }
            drop(first);
            let mut second = once(bytes);
            *second.uri_mut() = second.uri().to_string().replace("/busy", "/calm").parse()?;
            inner.oneshot(second).await
        });
        let (server, seen) = server();
        let client = builder().attempt_layer(twice).build().unwrap();
        let response = client.post(url(&server, "/busy")).body("hello").send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "hello"));
        assert_eq!(*seen.lock().unwrap(), ["/busy none", "/calm none"]);
        let pool = client.pool_stats();
        assert_eq!((pool.opened, pool.in_use), (1, 0), "the first response is discarded with its connection kept");
    }

    #[tokio::test]
    async fn the_retry_of_tower_works_as_a_layer() {
        #[derive(Clone)]
        struct ThreeTimes(u32);

        impl tower::retry::Policy<http::Request<Body>, http::Response<Body>, Cause> for ThreeTimes {
            type Future = std::future::Ready<()>;

            fn retry(&mut self, _: &mut http::Request<Body>, result: &mut Outcome) -> Option<Self::Future> {
                let is_busy = result.as_ref().is_ok_and(|response| response.status() == 503);
                self.0 = self.0.checked_sub(1).filter(|_| is_busy)?;
                Some(std::future::ready(()))
            }

            fn clone_request(&mut self, request: &http::Request<Body>) -> Option<http::Request<Body>> {
                let mut copy = http::Request::new(request.body().try_clone()?);
                *copy.method_mut() = request.method().clone();
                *copy.uri_mut() = request.uri().clone();
                *copy.headers_mut() = request.headers().clone();
                *copy.extensions_mut() = request.extensions().clone();
                Some(copy)
            }
        }

        let (server, seen) = server();
        let client = builder().attempt_layer(tower::retry::RetryLayer::new(ThreeTimes(2))).build().unwrap();
        let response = client.get(url(&server, "/busy")).send().await.unwrap();
        assert_eq!((response.status().as_u16(), seen.lock().unwrap().len()), (503, 3));
        response.bytes().await.unwrap();
        assert_eq!(client.pool_stats().opened, 1);
    }

    #[tokio::test]
    async fn errors_of_layers_and_of_attempts_are_told_apart() {
        let refuses = around(|inner: AttemptService, mut request: http::Request<Body>| async move {
            match request.uri().path() {
                "/refused" => return Err("not today".into()),
                "/bare" => request.extensions_mut().clear(),
                "/framed" => drop(request.headers_mut().insert("content-length", HeaderValue::from_static("7"))),
                _ => {}
            }
            inner.oneshot(request).await
        });
        let (server, seen) = server();
        let client = builder().retry(retries()).attempt_layer(refuses).build().unwrap();
        let fail = async |url: String| client.get(url).send().await.unwrap_err();
        let error = fail(url(&server, "/refused")).await;
        assert_eq!(error.kind(), ErrorKind::Layer);
        assert!(format!("{error:#}").ends_with("/refused: a layer around the client failed: not today"), "{error:#}");
        let error = fail("http://127.0.0.1:1/".to_owned()).await;
        assert!(error.is_connect() && !error.dialled().is_empty() && error.url().is_some(), "{error:?}");
        let error = fail(url(&server, "/bare")).await;
        assert!(error.is_builder() && error.to_string().contains("extensions"), "{error}");
        assert!(fail(url(&server, "/framed")).await.is_builder());
        assert!(seen.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn bodies_may_be_changed_on_the_way_there_and_back() {
        let changes = around(|inner: AttemptService, request: http::Request<Body>| async move {
            let request = request.map(|body| {
                Body::wrap(body.map_frame(|frame| frame.map_data(|data| Bytes::from(data.to_ascii_uppercase()))))
            });
            let response = inner.oneshot(request).await?;
            let bytes = response.headers().get("x-none").is_none();
            assert!(bytes);
            Ok(response.map(|body| {
                Body::wrap(body.map_frame(|frame| frame.map_data(|data| Bytes::from([b"<", &data[..], b">"].concat()))))
            }))
        });
        let (server, _) = server();
        let client = builder().attempt_layer(changes).build().unwrap();
        let post = async |body: Body| {
            let response = client.post(url(&server, "/?to=/x")).body(body).send().await?;
            response.text().await
        };
        assert_eq!(post("hello".into()).await.unwrap(), "<HELLO>");
        let stream = || Body::wrap_stream(futures_util::stream::iter(["hello"].map(Ok::<_, Infallible>)));
        assert!(post(stream()).await.unwrap_err().is_redirect(), "the stream was read");
        let response = client.post(url(&server, "/x")).body(stream()).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "<HELLO>");
        assert_eq!(client.pool_stats().in_use, 0);
    }

    #[tokio::test]
    async fn a_layer_may_read_the_whole_body_and_the_trace_goes_on() {
        let buffers = around(|inner: AttemptService, request| async move {
            let (head, body) = inner.oneshot(request).await?.into_parts();
            let bytes = body.collect().await?.to_bytes();
            Ok(http::Response::from_parts(head, Body::from(bytes)))
        });
        let (server, _) = server();
        let client = builder().attempt_layer(buffers).build().unwrap();
        let response = client.post(url(&server, "/?to=/x")).body("hello").send().await.unwrap();
        let timings = response.timings();
        assert!(timings.is_complete() && timings.hops().len() == 1);
        assert_eq!(response.text().await.unwrap(), "hello");
        assert_eq!((client.pool_stats().opened, client.pool_stats().idle), (1, 1));
    }

    #[cfg(feature = "gzip")]
    #[tokio::test]
    async fn a_layer_gets_the_body_decompressed() {
        const HELLO: &[u8] =
            &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 203, 72, 205, 201, 201, 7, 0, 134, 166, 16, 54, 5, 0, 0, 0];
        let server = HttpServer::start(|_: Request| async {
            hyper::Response::builder().header("content-encoding", "gzip").body(full(HELLO)).unwrap()
        })
        .unwrap();
        let passes = around(|inner: AttemptService, request| async move {
            let response = inner.oneshot(request).await?;
            assert!(!response.headers().contains_key("content-encoding"));
            Ok(response)
        });
        let client = builder().attempt_layer(passes).build().unwrap();
        assert_eq!(client.get(url(&server, "/")).send().await.unwrap().text().await.unwrap(), "hello");
    }

    /// A network that answers a GET, closes without an answer to the first PUT, and takes the second one's body.
    fn net_for_put(got: Arc<Mutex<Vec<[u8; 7]>>>) -> ScriptedNet {
        ScriptedNet::new(move |number, mut stream| {
            let got = got.clone();
            async move {
                while let Some(head) = read_request_head(&mut stream).await {
                    if head.starts_with("PUT") {
                        if number == 0 || stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_err() {
                            return;
                        }
                        let mut body = [0; 7];
                        stream.read_exact(&mut body).await.unwrap();
                        got.lock().unwrap().push(body);
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                }
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_was_not_read_is_sent_again_whatever_the_layer_made_of_it() {
        let got = Arc::default();
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let upper = around(|inner: AttemptService, request: http::Request<Body>| {
            inner.oneshot(request.map(|body| {
                let length = body.content_length().unwrap();
                let pieces = body.into_data_stream().map_ok(|data| data.to_ascii_uppercase());
                Body::sized(length, pieces)
            }))
        });
        let builder = Client::builder().dns_resolver(resolver).transport(net_for_put(Arc::clone(&got))).no_proxy();
        let client = builder.attempt_layer(upper).build().unwrap();
        client.get("http://a.test/").send().await.unwrap().text().await.unwrap();
        let pieces = futures_util::stream::iter([Ok::<_, Infallible>("payload")]);
        let request = client.put("http://a.test/").expect_continue().body(Body::sized(7, pieces));
        assert_eq!(request.send().await.unwrap().status(), 200);
        assert_eq!(*got.lock().unwrap(), [*b"PAYLOAD"]);
    }

    #[tokio::test]
    async fn a_stream_that_was_not_read_is_sent_again_after_a_401() {
        let server = HttpServer::start(|request: Request| async move {
            if request.headers()["authorization"] != "Bearer t2" {
                return hyper::Response::builder().status(401).body(full("")).unwrap();
            }
            answer(request).await
        })
        .unwrap();
        let source = || {
            let number = AtomicUsize::new(1);
            TokenSource::new(move || {
                let token = Token::new(format!("t{}", number.fetch_add(1, Ordering::SeqCst)));
                async { Ok::<_, Infallible>(token) }
            })
        };
        let sees = around(|inner: AttemptService, request: http::Request<Body>| {
            assert!(request.headers().contains_key("authorization"), "layers can sign it");
            inner.oneshot(request)
        });
        for builder in [builder().attempt_layer(sees), builder()] {
            let client = builder.token_source(source()).build().unwrap();
            let pieces = futures_util::stream::iter([Ok::<_, Infallible>("payload")]);
            let request = client.put(url(&server, "/")).expect_continue().body(Body::sized(7, pieces));
            let response = request.send().await.unwrap();
            assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (200, "payload"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_time_limit_of_a_layer_is_retried_and_loses_no_slot() {
        let count = Arc::new(AtomicUsize::new(0));
        let log = count.clone();
        let net = ScriptedNet::new(move |_, mut stream| {
            let log = log.clone();
            async move {
                while read_request_head(&mut stream).await.is_some() {
                    if log.fetch_add(1, Ordering::SeqCst) == 2 {
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    }
                }
            }
        });
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let limit = ServiceBuilder::new().timeout(Duration::from_secs(2)).into_inner();
        let builder = Client::builder().dns_resolver(resolver).transport(net.clone()).no_proxy().attempt_layer(limit);
        let client = builder.retry(retries()).build().unwrap();
        let start = tokio::time::Instant::now();
        let response = client.get("http://a.test/").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
        assert!(start.elapsed() >= Duration::from_secs(4) && start.elapsed() < Duration::from_secs(5));
        let error = client.get("http://a.test/").send().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Layer && error.is_timeout(), "{error}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        let pool = client.pool_stats();
        assert_eq!((pool.in_use, pool.waiting, net.open()), (0, 0, 0), "{pool:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_at_any_time_loses_no_slot() {
        let net = ScriptedNet::new(|_, mut stream| async move {
            while read_request_head(&mut stream).await.is_some() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _ = stream.write_all(b"k").await;
            }
        });
        let slow = around(|inner: AttemptService, request| async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let response = inner.oneshot(request).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
            response
        });
        // A layer that moves the attempt to a task of its own: it goes on without its call.
        let spawns =
            around(|inner: AttemptService, request| async move { tokio::spawn(inner.oneshot(request)).await? });
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let builder = Client::builder().dns_resolver(resolver).transport(net.clone()).no_proxy();
        let client = builder.attempt_layer(slow).attempt_layer(spawns).build().unwrap();
        for after in 0..100 {
            let get = async { client.get("http://a.test/").send().await.unwrap().text().await.unwrap() };
            let done = tokio::time::timeout(Duration::from_millis(after), get).await;
            assert!(done.is_err() || after > 40, "{after}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let pool = client.pool_stats();
        assert_eq!((pool.in_use, pool.waiting), (0, 0), "{pool:?}");
        assert_eq!(client.get("http://a.test/").send().await.unwrap().text().await.unwrap(), "ok");
        client.drain().await;
    }

    /// Returns a client whose network redirects `/from`, and answers anything else with 200, at once.
    fn client_of_redirects() -> ClientBuilder {
        let net = ScriptedNet::new(|_, mut stream| async move {
            while let Some(head) = read_request_head(&mut stream).await {
                let response: &[u8] = if head.starts_with("GET /from") {
                    b"HTTP/1.1 302 Found\r\nlocation: /to\r\ncontent-length: 2\r\n\r\nno"
                } else {
                    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                };
                let _ = stream.write_all(response).await;
            }
        });
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        Client::builder().dns_resolver(resolver).transport(net).no_proxy()
    }

    /// Makes a call and, 25 ms later, drains the client. Returns the call's text, and the milliseconds that the call and
    /// the drain took.
    async fn call_and_drain(client: &Client, url: &str) -> (String, u128, u128) {
        let start = tokio::time::Instant::now();
        let call = async {
            let text = client.get(url).send().await.unwrap().text().await.unwrap();
            (text, start.elapsed().as_millis())
        };
        let drain = async {
            tokio::time::sleep(Duration::from_millis(25)).await;
            client.drain().await;
            start.elapsed().as_millis()
        };
        let ((text, called), drained) = tokio::join!(call, drain);
        (text, called, drained)
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_a_layer_between_two_attempts() {
        let slow = around(|inner: AttemptService, request| async move {
            let (head, body) = inner.oneshot(request).await?.into_parts();
            // From here on the connection is idle.
            let bytes = body.collect().await?.to_bytes();
            if head.status == StatusCode::FOUND {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(http::Response::from_parts(head, Body::from(bytes)))
        });
        let client = client_of_redirects().attempt_layer(slow).build().unwrap();
        // It is dialled twice, because the drain closes the idle connection.
        assert_eq!(call_and_drain(&client, "http://a.test/from").await, ("ok".to_owned(), 70, 70));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_a_layer_before_the_first_attempt_and_refuses_later_calls() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let slow = around(move |inner: AttemptService, request| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                inner.oneshot(request).await
            }
        });
        let client = client_of_redirects().attempt_layer(slow).build().unwrap();
        assert_eq!(call_and_drain(&client, "http://a.test/").await, ("ok".to_owned(), 60, 60));
        let error = client.get("http://a.test/").send().await.unwrap_err();
        assert_eq!((error.kind(), calls.load(Ordering::SeqCst)), (ErrorKind::Pool, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_outlives_its_call_is_refused_by_a_pool_that_drains() {
        let (late, mut lates) = tokio::sync::mpsc::unbounded_channel();
        let leaves = around(move |inner: AttemptService, request: http::Request<Body>| {
            let late = late.clone();
            async move {
                let mut copy = http::Request::new(Body::default());
                *copy.uri_mut() = request.uri().clone();
                *copy.extensions_mut() = request.extensions().clone();
                let service = inner.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let _ = late.send(service.oneshot(copy).await);
                });
                inner.oneshot(request).await
            }
        });
        let client = client_of_redirects().attempt_layer(leaves).build().unwrap();
        assert_eq!(call_and_drain(&client, "http://a.test/").await, ("ok".to_owned(), 10, 25));
        let error = lates.recv().await.unwrap().unwrap_err();
        assert_eq!(error.downcast::<speeddial::Error>().unwrap().kind(), ErrorKind::Pool);
        assert_eq!(client.pool_stats().opened, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_is_not_resent_if_a_layer_dropped_a_later_attempt() {
        // Counts the PUTs. The first one is answered as if the connection had been idle for too long, later ones never.
        let posts = Arc::new(AtomicUsize::new(0));
        let counted = posts.clone();
        let net = ScriptedNet::new(move |_, mut stream| {
            let posts = counted.clone();
            async move {
                while let Some(head) = read_request_head(&mut stream).await {
                    let is_get = head.starts_with("GET");
                    let response: &[u8] = if is_get {
                        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                    } else if posts.fetch_add(1, Ordering::SeqCst) == 0 {
                        b"HTTP/1.1 408 Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                    } else {
                        let _ = stream.read_to_end(&mut Vec::new()).await;
                        return;
                    };
                    let _ = stream.write_all(response).await;
                    if !is_get {
                        return;
                    }
                }
            }
        });
        let twice = around(|inner: AttemptService, request: http::Request<Body>| async move {
            let copy = |body: Body| {
                let mut copy = http::Request::new(body);
                *copy.method_mut() = request.method().clone();
                *copy.uri_mut() = request.uri().clone();
                *copy.extensions_mut() = request.extensions().clone();
                copy
            };
            let first = inner.clone().oneshot(copy(Body::from("x"))).await;
            if first.is_err() {
                let second = inner.oneshot(copy(Body::from("x")));
                assert!(tokio::time::timeout(Duration::from_millis(50), second).await.is_err());
            }
            first
        });
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let builder = Client::builder().dns_resolver(resolver).transport(net).no_proxy();
        let client = builder.attempt_layer(twice).build().unwrap();
        client.get("http://a.test/").send().await.unwrap().text().await.unwrap();
        let error = client.put("http://a.test/").body("x").send().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Exchange && error.to_string().contains("408"), "{error}");
        assert_eq!(posts.load(Ordering::SeqCst), 2, "those of the layer");
    }

    /// A layer that asks for the job that the request has made, and for its answer in place of that of the request.
    fn polls() -> Around<impl Fn(AttemptService, http::Request<Body>) -> BoxFuture<'static, Outcome> + Clone> {
        around(|inner: AttemptService, request: http::Request<Body>| {
            let mut poll = http::Request::new(Body::default());
            *poll.uri_mut() = "http://a.test/jobs/7".parse().unwrap();
            *poll.extensions_mut() = request.extensions().clone();
            poll.headers_mut().insert("authorization", request.headers()["authorization"].clone());
            async move {
                drop(inner.clone().oneshot(request).await?.into_body().collect().await?);
                inner.oneshot(poll).await
            }
            .boxed()
        })
    }

    /// Returns a network that takes jobs, and answers the first question about one with this. An empty answer is a close.
    /// Returns the request lines that it gets as well.
    fn net_of_jobs(first_poll: &'static str) -> (ScriptedNet, Arc<Mutex<Vec<String>>>) {
        let seen = Arc::new(Mutex::new(Vec::<String>::new()));
        let log = seen.clone();
        let net = ScriptedNet::new(move |_, mut stream| {
            let log = log.clone();
            async move {
                while let Some(head) = read_request_head(&mut stream).await {
                    let line = head.split(" HTTP").next().unwrap().to_owned();
                    let polled = log.lock().unwrap().iter().any(|line| line.starts_with("GET"));
                    let is_poll = line.starts_with("GET");
                    log.lock().unwrap().push(line);
                    let answer = match is_poll {
                        true if !polled => first_poll,
                        true => "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone",
                        false => "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
                    };
                    if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        });
        (net, seen)
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_through_the_layers_whose_first_attempt_was_answered_is_not_made_again_for_a_post() {
        const REJECTED: &str = "HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n";
        let once = ["/jobs", "/jobs/7"];
        let twice = ["/jobs", "/jobs/7", "/jobs", "/jobs/7"];
        for first_poll in ["", REJECTED] {
            for (method, wanted) in [("POST", &once[..]), ("PUT", &twice[..])] {
                let (net, seen) = net_of_jobs(first_poll);
                let resolver = FixedResolver::new().with("a.test", [v4(1)]);
                let number = AtomicUsize::new(1);
                let source = TokenSource::new(move || {
                    let token = Token::new(format!("t{}", number.fetch_add(1, Ordering::SeqCst)));
                    async { Ok::<_, Infallible>(token) }
                });
                let builder = Client::builder().dns_resolver(resolver).transport(net).no_proxy().retry(retries());
                let client = builder.token_source(source).attempt_layer(polls()).build().unwrap();
                let method: http::Method = method.parse().unwrap();
                let result = client.request(method.clone(), "http://a.test/jobs").send().await;
                let paths: Vec<_> =
                    seen.lock().unwrap().iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
                assert_eq!(paths, wanted, "{method}, {first_poll:?}: {result:?}");
                assert_eq!(result.is_ok(), method == "PUT" || !first_poll.is_empty());
            }
        }
    }

    #[tokio::test]
    async fn a_layer_cannot_lead_a_client_for_https_to_an_http_url() {
        let server = ok_server();
        let to: http::Uri = url(&server, "/").parse().unwrap();
        let moves = around(move |inner: AttemptService, mut request: http::Request<Body>| {
            *request.uri_mut() = to.clone();
            inner.oneshot(request)
        });
        let client = builder().https_only(true).attempt_layer(moves).build().unwrap();
        let error = client.get("https://127.0.0.1:1/").send().await.unwrap_err();
        assert!(error.is_builder() && error.to_string().contains("https URLs only"), "{error}");
        assert_eq!(client.pool_stats().opened, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_layer_may_change_the_time_limits_of_an_attempt() {
        let net =
            ScriptedNet::new(|_, mut stream| async move { while read_request_head(&mut stream).await.is_some() {} });
        let hurries = around(|inner: AttemptService, mut request: http::Request<Body>| {
            let options = request.extensions_mut().remove::<RequestOptions>().unwrap_or_default();
            request.extensions_mut().insert(options.headers_timeout(Duration::from_millis(50)));
            inner.oneshot(request)
        });
        let resolver = FixedResolver::new().with("a.test", [v4(1)]);
        let builder = Client::builder().dns_resolver(resolver).transport(net).no_proxy();
        let client = builder.attempt_layer(hurries).build().unwrap();
        let start = tokio::time::Instant::now();
        let error = client.get("http://a.test/").headers_timeout(Duration::from_secs(9)).send().await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed().as_millis()), (ErrorKind::Timeout(Phase::Wait), 60), "{error}");
    }
}
