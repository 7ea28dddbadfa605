//! Requests and responses over real sockets.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

use futures_util::FutureExt;
use http_body_util::BodyExt;
use speeddial::dns::FixedResolver;
use speeddial::http::{Method, StatusCode, Version, header};
use speeddial::{Client, ErrorKind};

use support::http_server::HttpServer;
use support::{full, ok_server};

/// Starts a server that answers with the request's method, path, header `x` and body.
fn echo() -> HttpServer {
    HttpServer::start(|request| async move {
        let (head, body) = request.into_parts();
        let x = head.headers.get("x").map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        let body = body.collect().await.unwrap().to_bytes();
        let text = format!("{} {} {x} {}", head.method, head.uri, String::from_utf8_lossy(&body));
        hyper::Response::new(full(text))
    })
    .unwrap()
}

#[tokio::test]
async fn every_verb_sends_its_method_headers_and_body() {
    let server = echo();
    let url = format!("http://{}/a?b=c", server.address());
    let client = Client::new();
    let cases = [
        (client.get(&url), "GET /a?b=c v "),
        (client.post(&url).body("post"), "POST /a?b=c v post"),
        (client.put(&url).body(vec![b'p']), "PUT /a?b=c v p"),
        (client.patch(&url).body(String::from("patch")), "PATCH /a?b=c v patch"),
        (client.delete(&url), "DELETE /a?b=c v "),
        (client.request(Method::OPTIONS, &url), "OPTIONS /a?b=c v "),
    ];
    for (request, expected) in cases {
        let response = request.header("x", "v").send().await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_11));
        assert_eq!(response.remote_addr(), Some(server.address()));
        assert_eq!(response.text().await.unwrap(), expected);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_head_response_has_no_body_and_its_connection_is_free_at_once() {
    let server = echo();
    let client = Client::new();
    let response = client.head(format!("http://{}/", server.address())).send().await.unwrap();
    assert!(response.headers().contains_key(header::CONTENT_LENGTH));
    let timings = response.timings();
    assert!(timings.is_complete());
    assert_eq!(response.bytes().await.unwrap().len(), 0);
}

#[tokio::test]
async fn the_host_header_is_the_urls_unless_one_is_given() {
    let server = HttpServer::start(|request| async move {
        hyper::Response::new(full(request.headers()[header::HOST].as_bytes().to_vec()))
    })
    .unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::new();
    let host = client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(host, server.address().to_string());
    let host = client.get(&url).header("host", "other.test").send().await.unwrap().text().await.unwrap();
    assert_eq!(host, "other.test");
    let names = FixedResolver::new().with("api.test.", [[127, 0, 0, 1].into()]);
    let client = Client::builder().dns_resolver(names).no_proxy().build().unwrap();
    let port = server.address().port();
    let url = format!("http://api.test.:{port}/");
    let host = client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(host, format!("api.test.:{port}"), "the dot belongs to the URL's host");
}

#[tokio::test]
async fn a_body_is_read_in_chunks_and_its_connection_is_reused() {
    let big = vec![7; 1_000_000];
    let body = big.clone();
    let server = HttpServer::start(move |_| {
        let body = body.clone();
        async move { hyper::Response::new(full(body)) }
    })
    .unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::new();
    for _ in 0..3 {
        let mut response = client.get(&url).send().await.unwrap();
        assert_eq!(response.content_length(), Some(1_000_000));
        let mut all = Vec::new();
        let mut chunks = 0;
        while let Some(chunk) = response.chunk().await.unwrap() {
            all.extend_from_slice(&chunk);
            chunks += 1;
        }
        assert!(all == big && chunks > 1);
        assert!(response.chunk().await.unwrap().is_none(), "reading past the end returns the end again");
    }
    assert!(client.get(&url).send().await.unwrap().bytes().await.unwrap() == big);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_response_dropped_unread_closes_its_connection_and_the_next_call_works() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full(vec![0; 4_000_000])) }).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::new();
    drop(client.get(&url).send().await.unwrap());
    assert_eq!(client.get(&url).send().await.unwrap().bytes().await.unwrap().len(), 4_000_000);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn an_error_status_is_an_error_only_by_error_for_status() {
    let server = HttpServer::start(|_| async {
        let mut response = hyper::Response::new(full("no"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        response
    })
    .unwrap();
    let url = format!("http://{}/x", server.address());
    let response = Client::new().get(&url).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let error = response.error_for_status().unwrap_err();
    assert_eq!((error.kind(), error.status()), (ErrorKind::Status(StatusCode::NOT_FOUND), Some(StatusCode::NOT_FOUND)));
    assert_eq!(error.to_string(), format!("GET {url}: status 404 Not Found, and the body begins with `no`"));
}

#[tokio::test]
async fn many_calls_at_once_keep_the_connection_limit() {
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let pool = speeddial::PoolConfig::new().max_connections_per_host(4);
    let client = Client::builder().pool(pool).build().unwrap();
    let calls: Vec<_> = (0..500).map(|_| tokio::spawn(client.get(&url).send())).collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().text().await.unwrap(), "ok");
    }
    assert!(server.connections() <= 4);
}

#[tokio::test]
async fn one_call_at_a_time_uses_one_connection() {
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let client = Client::new();
    for _ in 0..1_000 {
        client.get(&url).send().await.unwrap().bytes().await.unwrap();
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn the_future_of_a_call_holds_nothing_twice() {
    let call = Client::new().get("http://api.test/").send();
    // Among many calls it is read from memory that no cache holds. A part that is moved while the future waits is easily kept twice.
    assert!(size_of_val(&call) <= 1_500, "{} bytes", size_of_val(&call));
}

#[tokio::test]
async fn a_timeout_names_its_phase_and_the_client_goes_on() {
    let server = HttpServer::start(|request| async move {
        if request.uri().path() == "/slow" {
            std::future::pending::<()>().await;
        }
        hyper::Response::new(full("ok"))
    })
    .unwrap();
    let client = Client::new();
    client.get(format!("http://{}/", server.address())).send().await.unwrap().bytes().await.unwrap();
    let slow = client.get(format!("http://{}/slow", server.address())).timeout(Duration::from_millis(500));
    let error = slow.send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(speeddial::trace::Phase::Wait));
    assert!(error.is_timeout() && error.timings().is_some());
    let response = client.get(format!("http://{}/", server.address())).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "ok");
}

#[tokio::test]
async fn a_call_whose_deadline_has_passed_is_neither_leased_nor_sent() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counter = arrived.clone();
    let server = HttpServer::start(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { hyper::Response::new(full("ok")) }
    })
    .unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::new();
    client.get(&url).send().await.unwrap().text().await.unwrap();
    for _ in 0..200 {
        let error = client.post(&url).body("x").timeout(Duration::ZERO).send().await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
    }
    client.get(&url).send().await.unwrap().text().await.unwrap();
    assert_eq!(arrived.load(Ordering::SeqCst), 2, "only the calls with time left were sent");
    let cold = Client::new();
    assert!(cold.get(&url).timeout(Duration::ZERO).send().await.unwrap_err().is_timeout());
    assert_eq!(cold.pool_stats().opened, 0, "nothing was dialled");
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a runtime.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(thread::current())).into();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn without_a_runtime_a_call_fails_clearly_and_a_body_can_still_be_read() {
    let server = HttpServer::start(|_| async { hyper::Response::new(full("a".repeat(1 << 20))) }).unwrap();
    let url = format!("http://{}/", server.address());
    let client = Client::new();
    let error = client.get(&url).send().now_or_never().expect("the call fails at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let response = runtime.block_on(async { client.get(&url).send().await.unwrap() });
    assert_eq!(block_on(response.text()).unwrap().len(), 1 << 20);
    let opened = client.pool_stats().opened;
    let is_idle = async {
        while client.pool_stats().idle == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let is_idle = runtime.block_on(async { tokio::time::timeout(support::LONG, is_idle).await.is_ok() });
    assert!(is_idle, "the connection comes back to the pool a moment after the end of its body");
    let error = client.warm_up(&url, 1).now_or_never().expect("the call fails at once").unwrap_err();
    assert!(error.to_string().contains("no tokio runtime"), "{error}");
    // An idle connection works without a runtime; timeouts do not.
    let response = block_on(client.get(&url).send()).unwrap();
    assert_eq!(block_on(response.text()).unwrap().len(), 1 << 20);
    assert_eq!(client.pool_stats().opened, opened);
}
