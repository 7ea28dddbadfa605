//! The connector and the DNS cache under the clients of hyper-util, reqwest and tonic.

use std::net::Ipv4Addr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use speeddial::Client;
use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial::interop::Connector;
use speeddial::tls::TlsConfig;
use speeddial::trace::Event;
use tonic::Request;

use crate::client::grpc::{Raw, grpc};
use support::certs::Authority;
use support::ok_server;
use support::recorder::Recorder;
use support::tls_server::TlsServer;

fn cache() -> CachedResolver {
    CachedResolver::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]))
}

#[tokio::test]
async fn hyper_utils_client_goes_through_the_connector() {
    let server = ok_server();
    let recorder = Recorder::default();
    let builder = Client::builder().dns_cache(cache()).observer(recorder.clone());
    let connector = Connector::new(builder).unwrap();
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
    let url: hyper::Uri = format!("http://api.test:{}/", server.address().port()).parse().unwrap();
    for _ in 0..3 {
        let response = client.get(url.clone()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    }
    assert_eq!(server.connections(), 1);
    assert_eq!(recorder.count(|event| matches!(event, Event::Opened { .. })), 1, "{:?}", recorder.timeline());
    let error = client.get("http://unknown.test/".parse().unwrap()).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "http://unknown.test/: resolve unknown.test: the name does not exist");
}

#[tokio::test]
async fn hyper_utils_client_uses_http2_when_the_connector_negotiated_it() {
    let authority = Authority::new();
    for (alpn, version) in [(&["h2"][..], "HTTP/2.0"), (&["http/1.1"][..], "HTTP/1.1")] {
        let server = TlsServer::start(authority.server(&["api.test"], alpn)).await;
        let tls = TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
        let connector = Connector::new(Client::builder().dns_cache(cache()).tls(tls)).unwrap();
        let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
        let url = format!("https://api.test:{}/", server.address().port()).parse().unwrap();
        let body = client.get(url).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(version.as_bytes()), "{body:?}");
    }
}

#[tokio::test]
async fn hyper_utils_own_connector_can_use_the_cache() {
    let server = ok_server();
    let cache = cache();
    let connector = HttpConnector::new_with_resolver(cache.clone());
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    let client = builder.pool_max_idle_per_host(0).build::<_, Full<Bytes>>(connector);
    let url: hyper::Uri = format!("http://api.test:{}/", server.address().port()).parse().unwrap();
    for _ in 0..2 {
        client.get(url.clone()).await.unwrap();
    }
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.hits + stats.negative_hits), (2, 2), "{stats:?}");
}

#[tokio::test]
async fn reqwest_can_use_the_cache() {
    let server = ok_server();
    let cache = cache();
    let client = reqwest::Client::builder().no_proxy().dns_resolver(Arc::new(cache.clone())).build().unwrap();
    let url = format!("http://api.test:{}/", server.address().port());
    assert_eq!(client.get(&url).send().await.unwrap().text().await.unwrap(), "ok");
    assert_eq!(cache.stats().misses, 2, "one query per family");
    assert!(client.get("http://unknown.test/").send().await.unwrap_err().is_connect());
}

#[tokio::test]
async fn tonic_goes_through_the_connector() {
    let port = grpc().await;
    let connector = Connector::new(Client::builder().dns_cache(cache()).http2_prior_knowledge()).unwrap();
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://api.test:{port}")).unwrap();
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    for text in ["hello", "again"] {
        grpc.ready().await.unwrap();
        let path = hyper::http::uri::PathAndQuery::from_static("/echo.Echo/Say");
        let response = grpc.unary(Request::new(Bytes::from(text)), path, Raw).await.unwrap();
        assert_eq!(response.into_inner(), text);
    }
}

/// Starts a TLS proxy in front of a gRPC server that accepts only HTTP/2. Returns its port.
async fn in_front_of(port: u16, config: Arc<rustls::ServerConfig>) -> u16 {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let front = listener.local_addr().unwrap().port();
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            if is_http2 {
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        }
    });
    front
}

/// Makes two calls over one channel and returns true if both succeed.
async fn is_heard(port: u16, builder: speeddial::ClientBuilder) -> bool {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("https://api.test:{port}")).unwrap();
    let Ok(channel) = endpoint.connect_with_connector(Connector::new(builder).unwrap()).await else { return false };
    let mut grpc = tonic::client::Grpc::new(channel);
    for text in ["hello", "again"] {
        if grpc.ready().await.is_err() {
            return false;
        }
        let path = hyper::http::uri::PathAndQuery::from_static("/echo.Echo/Say");
        let Ok(response) = grpc.unary(Request::new(Bytes::from(text)), path, Raw).await else { return false };
        assert_eq!(response.into_inner(), text);
    }
    true
}

#[tokio::test]
async fn tonic_goes_through_the_connector_over_tls_when_http2_is_negotiated() {
    let authority = Authority::new();
    let port = grpc().await;
    let tls = || TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
    let builder = || Client::builder().no_proxy().dns_cache(cache()).tls(tls());
    for (alpn, by_default) in [(&["h2"][..], true), (&["h2", "http/1.1"][..], true), (&["http/1.1", "h2"][..], false)] {
        let front = in_front_of(port, authority.server(&["api.test"], alpn)).await;
        assert!(is_heard(front, builder().http2_prior_knowledge()).await, "{alpn:?}");
        assert_eq!(is_heard(front, builder()).await, by_default, "{alpn:?}: the server has the choice");
    }
}
