//! An HTTP cache of tower's kind around the client (RFC 9111).

use std::sync::atomic::{AtomicUsize, Ordering};

use http_cache::MokaManager;
use http_cache_tower::HttpCacheLayer;
use hyper::body::Incoming;
use speeddial::Client;
use tower::ServiceExt;

use support::full;
use support::http_server::{HttpServer, ServerBody};

/// The requests that reached the server.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Answers what may be kept for a minute, and what may not.
async fn answer(request: hyper::Request<Incoming>) -> hyper::Response<ServerBody> {
    ASKED.fetch_add(1, Ordering::Relaxed);
    let age = if request.uri().path() == "/kept" { "max-age=60" } else { "no-store" };
    hyper::Response::builder().header("cache-control", age).body(full("answer")).unwrap()
}

#[tokio::test]
async fn a_cache_around_the_client_answers_what_it_has() {
    let server = HttpServer::start(answer).unwrap();
    let url = |path: &str| format!("http://{}{path}", server.address());
    let cached = || HttpCacheLayer::new(MokaManager::default());
    let client = Client::builder().no_proxy().layer(cached()).build().unwrap();
    let mut seen = Vec::new();
    for path in ["/kept", "/kept", "/kept", "/other", "/other"] {
        let response = client.get(url(path)).send().await.unwrap();
        let by_cache = response.headers()["x-cache"].to_str().unwrap().to_owned();
        assert_eq!(response.text().await.unwrap(), "answer");
        seen.push((by_cache, ASKED.load(Ordering::Relaxed)));
    }
    let seen: Vec<_> = seen.iter().map(|(by_cache, requests)| (by_cache.as_str(), *requests)).collect();
    assert_eq!(seen, [("MISS", 1), ("HIT", 1), ("HIT", 1), ("MISS", 2), ("MISS", 3)]);

    // The same from outside, as for any tower service.
    let service = tower::ServiceBuilder::new().layer(cached()).service(Client::builder().no_proxy().build().unwrap());
    for by_cache in ["MISS", "HIT"] {
        let request = http::Request::get(url("/kept")).body(speeddial::Body::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["x-cache"], by_cache);
    }
    assert_eq!(ASKED.load(Ordering::Relaxed), 4);
}
