//! HTTP/2 without TLS over real sockets.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use speeddial::dns::FixedResolver;
use speeddial::{Client, ClientBuilder};

use support::http_server::{HttpServer, describe};
use support::refusing;

fn builder() -> ClientBuilder {
    Client::builder().dns_resolver(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]))
}

#[tokio::test]
async fn without_tls_http2_needs_prior_knowledge() {
    let server = HttpServer::start_as(true, describe).unwrap();
    let client = builder().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    for _ in 0..3 {
        let url = format!("http://api.test:{}/x", server.address().port());
        let response = client.post(&url).header("connection", "close").body("hello").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), format!("HTTP/2.0 POST {url} none"));
    }
    assert_eq!(client.pool_stats().opened, 1);
    let (_kept, refused) = refusing();
    assert!(client.get(format!("http://{refused}/")).send().await.unwrap_err().is_connect());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_timeout_on_a_live_connection_does_not_cost_it() {
    let server = HttpServer::start_as(true, |request| async move {
        if request.uri().path() == "/slow" {
            std::future::pending::<()>().await;
        }
        describe(request).await
    })
    .unwrap();
    let client = builder().http2_prior_knowledge().pool(support::one_connection()).build().unwrap();
    for _ in 0..3 {
        let slow = client.get(format!("http://api.test:{}/slow", server.address().port()));
        // Long enough for the peer's system, which acknowledges what was written some 40 ms later, beside others that are busy.
        assert!(slow.timeout(Duration::from_secs(1)).send().await.unwrap_err().is_timeout());
    }
    client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
    assert_eq!(client.pool_stats().opened, 1);
}

#[tokio::test]
async fn hazard_a_close_of_a_connection_in_use_that_no_task_has_seen_is_noticed_before_a_post() {
    let (end, ends) = tokio::sync::oneshot::channel::<()>();
    let (ended, has_ended) = std::sync::mpsc::channel();
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    // In a thread of its own: the client's runtime does not run while the peer closes.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let serve = |socket| {
                let service = hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                    if request.uri().path() == "/events" {
                        let frames = futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>();
                        return Ok::<_, Infallible>(hyper::Response::new(StreamBody::new(frames).boxed()));
                    }
                    Ok(describe(request).await)
                });
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
            };
            let (first, _) = listener.accept().await.unwrap();
            tokio::select! {
                _ = serve(first) => panic!("the client has closed"),
                _ = ends => {}
            }
            ended.send(()).unwrap();
            let (second, _) = listener.accept().await.unwrap();
            let _ = serve(second).await;
        });
    });
    let client = builder().http2_prior_knowledge().build().unwrap();
    let url = |path: &str| format!("http://api.test:{port}{path}");
    let _events = client.get(url("/events")).send().await.unwrap();
    end.send(()).unwrap();
    has_ended.recv().unwrap();
    let response = client.post(url("/once")).body("hello").send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), format!("HTTP/2.0 POST {} none", url("/once")));
    assert_eq!(client.pool_stats().opened, 2);
}
