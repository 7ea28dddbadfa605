//! tower layers around the opening of connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use speeddial::layers::DialRequest;
use speeddial::{Client, ErrorKind, PoolConfig};
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::{Layer, Service, ServiceBuilder};

use support::http_server::{HttpServer, describe};
use support::refusing;

/// A layer that waits before each dial, as a user of reqwest would write it: for any request.
#[derive(Clone)]
struct Delay {
    delay: Duration,
    /// The dials that wait or are under way, and the most of them at a time.
    seen: Arc<[AtomicUsize; 2]>,
}

impl Delay {
    fn of(delay: Duration) -> Self {
        Self { delay, seen: Arc::default() }
    }

    fn most(&self) -> usize {
        self.seen[1].load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for Delay {
    type Service = Delayed<S>;

    fn layer(&self, inner: S) -> Delayed<S> {
        Delayed { inner, delay: self.clone() }
    }
}

#[derive(Clone)]
struct Delayed<S> {
    inner: S,
    delay: Delay,
}

impl<S, R> Service<R> for Delayed<S>
where
    S: Service<R, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let dial = self.inner.call(request);
        let Delay { delay, seen } = self.delay.clone();
        Box::pin(async move {
            let now = seen[0].fetch_add(1, Ordering::SeqCst) + 1;
            seen[1].fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(delay).await;
            let dialed = dial.await;
            seen[0].fetch_sub(1, Ordering::SeqCst);
            dialed
        })
    }
}

/// Returns the builder of a client in whose pool each request has a connection of its own.
fn builder() -> speeddial::ClientBuilder {
    Client::builder().no_proxy().pool(PoolConfig::new().max_idle(0))
}

#[tokio::test]
async fn a_layer_is_around_each_dial_and_not_around_each_request() {
    let server = HttpServer::start(describe).unwrap();
    let port = server.address().port();
    let count = Arc::new(AtomicUsize::new(0));
    let dials = count.clone();
    let counting = tower::util::MapRequestLayer::new(move |request: DialRequest| {
        dials.fetch_add(1, Ordering::SeqCst);
        assert_eq!(request.origin().port(), port);
        request
    });
    let delay = Delay::of(Duration::from_millis(1));
    let client = Client::builder().no_proxy().connector_layer(delay.clone()).connector_layer(counting).build().unwrap();
    for _ in 0..3 {
        let text = client.get(format!("http://{}/a", server.address())).send().await.unwrap().text().await.unwrap();
        assert!(text.starts_with("HTTP/1.1 GET /a "), "{text}");
    }
    assert_eq!((count.load(Ordering::SeqCst), delay.most(), server.connections()), (1, 1, 1));
}

#[tokio::test]
async fn the_errors_of_layers_are_errors_of_connecting() {
    let server = HttpServer::start(describe).unwrap();
    let url = format!("http://{}/", server.address());
    let late = Delay::of(Duration::from_secs(3_600));
    let limited = builder().connector_layer(late.clone()).connector_layer(TimeoutLayer::new(Duration::from_millis(20)));
    let error = limited.build().unwrap().get(&url).send().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Connect && error.is_connect() && error.is_timeout(), "{error:?}");
    assert!(error.to_string().ends_with(": a connector layer failed"), "{error}");

    // The connect timeout is around all layers.
    let limited = builder().connector_layer(late).connect_timeout(Duration::from_millis(20));
    let error = limited.build().unwrap().get(&url).send().await.unwrap_err();
    assert!(error.is_connect() && error.is_timeout() && matches!(error.kind(), ErrorKind::Timeout(_)), "{error:?}");

    // An error of the connector itself stays what it is, through the layers.
    let (_kept, closed) = refusing();
    let layered = builder().connector_layer(TimeoutLayer::new(Duration::from_secs(60))).build().unwrap();
    let error = layered.get(format!("http://{closed}/")).send().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Connect && !error.is_timeout(), "{error:?}");
    assert_eq!(error.dialled().len(), 1);
    assert!(error.to_string().ends_with("connect to 127.0.0.1 failed"), "{error}");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn a_limit_of_dials_holds_for_all_clones_of_the_service() {
    let server = HttpServer::start(describe).unwrap();
    let inner = Delay::of(Duration::from_millis(5));
    let outer = Delay::of(Duration::ZERO);
    let client = builder()
        .connector_layer(ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(2)).layer(inner.clone()).into_inner())
        .connector_layer(outer.clone())
        .build()
        .unwrap();
    let calls = (0..8).map(|_| client.get(format!("http://{}/", server.address())).send());
    for response in futures_util::future::join_all(calls).await {
        assert!(response.unwrap().status().is_success());
    }
    assert!((1..=2).contains(&inner.most()), "{}", inner.most());
    assert!(outer.most() >= inner.most());
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_layer_is_around_tls_and_the_way_through_a_proxy() {
    use support::certs::Authority;
    use support::tls_server::TlsServer;

    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], &["h2"])).await;
    let layer = Delay::of(Duration::from_millis(1));
    let client = builder().tls(authority.client()).resolve("api.test", server.address()).connector_layer(layer.clone());
    let response = client.build().unwrap().get("https://api.test/").send().await.unwrap();
    assert!(response.tls().is_some());
    assert_eq!(layer.most(), 1);

    let proxy = HttpServer::start(describe).unwrap();
    let through = Client::builder().proxy(speeddial::Proxy::all(format!("http://{}", proxy.address())).unwrap());
    let through = through.connector_layer(layer.clone()).build().unwrap();
    let text = through.get("http://api.test/x").send().await.unwrap().text().await.unwrap();
    assert_eq!(text, "HTTP/1.1 GET http://api.test/x api.test");
}
