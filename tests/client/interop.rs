//! The connector and the DNS cache under the clients of hyper-util and tonic.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use speeddial::dns::{CachedResolver, FixedResolver};
use speeddial::http::Version;
use speeddial::interop::Connector;
use speeddial::settings::HostConfig;
use speeddial::tls::TlsConfig;
use speeddial::token::{Token, TokenSource};
use speeddial::trace::Event;
use speeddial::{Client, ClientBuilder, ErrorKind, HedgePolicy, PoolConfig, RetryPolicy, redirect};
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
        let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
        let connector = Connector::new(Client::builder().dns_cache(cache()).tls(tls)).unwrap();
        let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
        let url = format!("https://api.test:{}/", server.address().port()).parse().unwrap();
        let body = client.get(url).await.unwrap().into_body().collect().await.unwrap().to_bytes();
        assert!(body.starts_with(version.as_bytes()), "{body:?}");
    }
}

#[tokio::test]
async fn the_version_and_the_use_of_a_connectors_connection_are_told() {
    let authority = Authority::new();
    for (alpn, version) in [(&["h2"][..], Version::HTTP_2), (&["http/1.1"][..], Version::HTTP_11)] {
        let server = TlsServer::start(authority.server(&["api.test"], alpn)).await;
        let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
        let recorder = Recorder::default();
        let builder = Client::builder().dns_cache(cache()).tls(tls).observer(recorder.clone());
        let connector = Connector::new(builder).unwrap();
        let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(connector);
        let url: hyper::Uri = format!("https://api.test:{}/", server.address().port()).parse().unwrap();
        let active = || recorder.count(|event| matches!(event, Event::Active));
        let idle = || recorder.count(|event| matches!(event, Event::Released { .. }));
        for requests in 1..=2 {
            client.get(url.clone()).await.unwrap().into_body().collect().await.unwrap();
            support::until("the connection is idle", || active() >= requests && active() == idle()).await;
        }
        let versions = recorder.pick(|event| match event {
            Event::HandshakeStart { version, .. } => Some(*version),
            _ => None,
        });
        assert_eq!(versions, [version]);
        drop(client);
        support::until("it is closed", || recorder.count(|event| matches!(event, Event::Closed { .. })) == 1).await;
        assert_eq!(active(), idle());
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
async fn is_heard(port: u16, builder: ClientBuilder) -> bool {
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
    let tls = || TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let builder = || Client::builder().no_proxy().dns_cache(cache()).tls(tls());
    for (alpn, by_default) in [(&["h2"][..], true), (&["h2", "http/1.1"][..], true), (&["http/1.1", "h2"][..], false)] {
        let front = in_front_of(port, authority.server(&["api.test"], alpn)).await;
        assert!(is_heard(front, builder().http2_prior_knowledge()).await, "{alpn:?}");
        assert_eq!(is_heard(front, builder()).await, by_default, "{alpn:?}: the server has the choice");
    }
}

/// Returns the name of each setting of calls, and a builder with that setting alone.
fn settings_of_calls() -> Vec<(&'static str, ClientBuilder)> {
    let new = Client::builder;
    let second = Duration::from_secs(1);
    let header = [(http::header::ACCEPT, http::HeaderValue::from_static("text/plain"))];
    let token = || TokenSource::new(|| async { Ok::<_, speeddial::Error>(Token::new("secret")) });
    vec![
        ("base_url", new().base_url("http://api.test/")),
        ("timeout", new().timeout(second)),
        ("queue_timeout", new().queue_timeout(second)),
        ("headers_timeout", new().headers_timeout(second)),
        ("body_idle_timeout", new().body_idle_timeout(second)),
        ("default_headers", new().default_headers(header.into_iter().collect())),
        ("redirect", new().redirect(redirect::Policy::none())),
        ("redirect", new().redirect(redirect::Policy::same_origin())),
        ("retry", new().retry(RetryPolicy::new())),
        ("max_body_size", new().max_body_size(1)),
        ("before_attempt", new().before_attempt(|_| Ok::<_, speeddial::Error>(()))),
        ("token_source", new().token_source(token())),
        ("hedge", new().hedge(HedgePolicy::new())),
        ("hide_queries", new().hide_queries()),
        ("name", new().name("mine")),
        ("https_only", new().https_only(true)),
        ("referer", new().referer(true)),
        ("tls_info", new().tls_info(true)),
        ("min_speed", new().min_speed(2, Duration::from_secs(1))),
        ("pool", new().pool(PoolConfig::new().max_idle(1))),
        ("pool", new().pool(PoolConfig::new().max_idle_per_host(1))),
        ("pool_idle_timeout", new().pool_idle_timeout(second)),
        ("pool_max_idle_per_host", new().pool_max_idle_per_host(1)),
        ("http1_max_headers", new().http1_max_headers(10)),
        ("http1_title_case_headers", new().http1_title_case_headers()),
        (
            "http1_allow_obsolete_multiline_headers_in_responses",
            new().http1_allow_obsolete_multiline_headers_in_responses(true),
        ),
        ("http1_ignore_invalid_headers_in_responses", new().http1_ignore_invalid_headers_in_responses(true)),
        (
            "http1_allow_spaces_after_header_name_in_responses",
            new().http1_allow_spaces_after_header_name_in_responses(true),
        ),
        ("http09_responses", new().http09_responses()),
        ("http2_keep_alive_interval", new().http2_keep_alive_interval(second)),
        ("http2_initial_stream_window_size", new().http2_initial_stream_window_size(1 << 20)),
        ("http2_initial_connection_window_size", new().http2_initial_connection_window_size(1 << 20)),
        ("http2_adaptive_window", new().http2_adaptive_window(true)),
        ("http2_max_frame_size", new().http2_max_frame_size(1 << 20)),
        ("http2_max_header_list_size", new().http2_max_header_list_size(1 << 20)),
        ("http2_header_table_size", new().http2_header_table_size(1 << 16)),
        ("http2_max_send_buf_size", new().http2_max_send_buf_size(1 << 16)),
        #[cfg(feature = "cookies")]
        ("cookie_store", new().cookie_store(true)),
        #[cfg(feature = "cookies")]
        ("cookie_provider", new().cookie_provider(Arc::new(speeddial::cookie::Jar::default()))),
        #[cfg(feature = "gzip")]
        ("decompress", new().decompress(false)),
        #[cfg(feature = "gzip")]
        ("gzip", new().no_gzip()),
        #[cfg(feature = "brotli")]
        ("brotli", new().brotli(false)),
        #[cfg(feature = "zstd")]
        ("zstd", new().no_zstd()),
        #[cfg(feature = "deflate")]
        ("deflate", new().no_deflate()),
        ("for_host", new().for_host("a.test", HostConfig::new())),
        ("tls_reload_interval", new().tls_reload_interval(Duration::from_secs(1))),
        ("layer", new().layer(tower::layer::util::Identity::new())),
        ("attempt_layer", new().attempt_layer(tower::layer::util::Identity::new())),
        ("connection_verbose", new().connection_verbose(true)),
    ]
}

#[tokio::test]
async fn a_connector_refuses_each_setting_that_only_calls_would_use() {
    for (name, builder) in settings_of_calls() {
        let error = Connector::new(builder).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Request);
        assert_eq!(error.to_string(), format!("build a connector: it has no use for `{name}`"));
    }
}

#[tokio::test]
async fn a_connector_names_all_settings_that_it_has_no_use_for() {
    let second = Duration::from_secs(1);
    let pool = PoolConfig::new().max_connections(1);
    let builder = Client::builder().pool(pool).pool_idle_timeout(second).read_timeout(second).retry(RetryPolicy::new());
    assert_eq!(
        Connector::new(builder).unwrap_err().to_string(),
        "build a connector: it has no use for `headers_timeout`, `body_idle_timeout`, `retry`, `pool` and `pool_idle_timeout`"
    );
    // A setting that is not valid is the error in any case.
    let error = Connector::new(Client::builder().base_url("no url")).unwrap_err();
    assert!(!error.to_string().contains("build a connector"), "{error}");
}

#[tokio::test]
async fn a_connector_takes_all_settings_of_connections_and_defaults_that_are_repeated() {
    let second = Duration::from_secs(1);
    let authority = Authority::new();
    let root = speeddial::tls::Certificate::from_der(&authority.certificate()).unwrap();
    let builder = Client::builder()
        .connect_timeout(second)
        .tls_timeout(second)
        .dns_cache(cache())
        .resolve("pinned.test", (Ipv4Addr::LOCALHOST, 0).into())
        .addresses(speeddial::settings::Addresses::V4Only)
        .deny_private_addresses()
        .allow_addresses(|_| true)
        .tcp_nodelay(false)
        .tcp_keepalive(second)
        .local_address(std::net::IpAddr::from(Ipv4Addr::LOCALHOST))
        .proxy(speeddial::Proxy::http("http://proxy.test/").unwrap())
        .tls_certs_only([root])
        .tls_version_min(speeddial::tls::Version::TLS_1_3)
        .http1_only()
        .user_agent("tests")
        .observer(Recorder::default());
    let builder = builder.connector_layer(tower::timeout::TimeoutLayer::new(second));
    // No change.
    let builder = builder
        .https_only(false)
        .referer(false)
        .headers_timeout(Duration::from_secs(300))
        .redirect(redirect::Policy::default())
        .pool(PoolConfig::new());
    Connector::new(builder).unwrap();
    Connector::new(Client::builder().no_proxy().transport(speeddial::transport::TcpTransport::new())).unwrap();
    Connector::new(Client::builder().hickory_dns(false).http2_prior_knowledge()).unwrap();
    #[cfg(unix)]
    Connector::new(Client::builder().unix_socket("/run/none.sock")).unwrap();
}
