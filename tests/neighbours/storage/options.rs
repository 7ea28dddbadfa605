//! object_store's `ClientOptions`: each setting is applied or refused.

use std::sync::Arc;
use std::time::Duration;

use ::object_store::client::{DnsFuture, DnsResolver, HttpClient, HttpConnector, HttpErrorKind, HttpRequestBody};
use ::object_store::{Certificate, ClientConfigKey, ClientOptions};
use http::{HeaderMap, Method, Request};
use speeddial_object_store::Http;

use super::client;
use super::s3::{Fault, S3};

fn connect(options: &ClientOptions) -> ::object_store::Result<HttpClient> {
    Http::new(client().build().unwrap()).connect(options)
}

fn get(url: &str) -> Request<HttpRequestBody> {
    Request::get(url).body(HttpRequestBody::empty()).unwrap()
}

#[derive(Debug)]
struct NoNames;

impl DnsResolver for NoNames {
    fn resolve(&self, _: &str) -> DnsFuture {
        Box::pin(async { Err("there are no names".into()) })
    }
}

#[test]
fn settings_of_a_whole_client_are_refused_and_name_the_method_to_use() {
    let root = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let second = Duration::from_secs(1);
    let new = ClientOptions::new;
    let refused = [
        (new().with_allow_invalid_certificates(true), "tls_danger_accept_invalid_certs"),
        (new().with_no_system_certificates(true), "tls_certs_only"),
        (new().with_root_certificate(Certificate::from_pem(root.as_bytes()).unwrap()), "tls_certs_merge"),
        (new().with_proxy_ca_certificate(root), "tls_certs_merge"),
        (new().with_dns_resolver(Arc::new(NoNames)), "dns_resolver"),
        (new().with_pool_idle_timeout(second), "pool_idle_timeout"),
        (new().with_pool_max_idle_per_host(1), "pool_max_idle_per_host"),
        (new().with_http2_keep_alive_interval(second), "http2_keep_alive_interval"),
        (new().with_http2_keep_alive_timeout(second), "http2_keep_alive_timeout"),
        (new().with_http2_keep_alive_while_idle(), "http2_keep_alive_while_idle"),
        (new().with_http2_max_frame_size(20_000), "http2_max_frame_size"),
    ];
    for (options, instead) in refused {
        let error = connect(&options).unwrap_err().to_string();
        assert!(error.ends_with(&format!("`speeddial::ClientBuilder::{instead}`")), "{error}");
    }
    for options in [new(), new().with_allow_http2(), new().with_http1_only()] {
        connect(&options).unwrap();
    }
}

#[test]
fn values_that_are_not_valid_are_refused() {
    let new = ClientOptions::new;
    let invalid = [
        new().with_config(ClientConfigKey::Timeout, "soon"),
        new().with_config(ClientConfigKey::AllowHttp, "perhaps"),
        new().with_proxy_url("ftp://proxy.test"),
        new().with_user_agent(http::HeaderValue::from_bytes(b"\xff").unwrap()),
    ];
    for options in invalid {
        assert!(connect(&options).unwrap_err().to_string().contains("is not valid"));
    }
    connect(
        &new().with_config(ClientConfigKey::Timeout, "1 minute 30 s").with_config(ClientConfigKey::AllowHttp, "yes"),
    )
    .unwrap();
}

#[tokio::test]
async fn headers_are_added_to_requests_that_have_none_of_the_same_name() {
    let server = S3::start().await;
    let mut headers = HeaderMap::new();
    headers.append("x-team", "one".parse().unwrap());
    headers.append("x-team", "two".parse().unwrap());
    headers.append("accept", "text/plain".parse().unwrap());
    let agent = http::HeaderValue::from_static("agent of the store");
    let options = ClientOptions::new().with_allow_http(true).with_default_headers(headers).with_user_agent(agent);
    let http = connect(&options).unwrap();
    let request = Request::get(server.url()).header("accept", "text/xml").body(HttpRequestBody::empty()).unwrap();
    http.execute(request).await.unwrap();
    let seen = &server.seen()[0].headers;
    assert_eq!(seen.get_all("x-team").iter().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(seen.get_all("accept").iter().collect::<Vec<_>>(), ["text/xml"]);
    assert_eq!(seen["user-agent"], "agent of the store");
}

#[tokio::test]
async fn http_urls_are_refused_unless_they_are_allowed() {
    let server = S3::start().await;
    let error = connect(&ClientOptions::new()).unwrap().execute(get(&server.url())).await.unwrap_err();
    assert_eq!(error.kind(), HttpErrorKind::Unknown);
    assert!(error.to_string().contains("with_allow_http"), "{error}");
    assert_eq!(server.connections(), 0);
    let allowed = connect(&ClientOptions::new().with_allow_http(true)).unwrap();
    allowed.execute(get(&server.url())).await.unwrap();
}

#[tokio::test]
async fn time_limits_of_the_store_take_precedence() {
    let server = S3::start().await;
    let short = Duration::from_millis(50);
    let new = || ClientOptions::new().with_allow_http(true);
    for options in [new().with_timeout(short), new().with_read_timeout(short)] {
        server.fail_next(Method::GET, Fault::Silence);
        let error = connect(&options).unwrap().execute(get(&server.url())).await.unwrap_err();
        assert_eq!(error.kind(), HttpErrorKind::Timeout, "{error}");
    }
    // Without limits of the store, those of the client apply.
    server.fail_next(Method::GET, Fault::Silence);
    let limited = Http::new(client().timeout(short).build().unwrap());
    let http = limited.connect(&new().with_timeout_disabled()).unwrap();
    assert_eq!(http.execute(get(&server.url())).await.unwrap_err().kind(), HttpErrorKind::Timeout);
}

#[tokio::test]
async fn requests_go_through_the_proxy_of_the_store_except_for_excluded_hosts() {
    let (server, proxy) = (S3::start().await, S3::start().await);
    let through = ClientOptions::new().with_allow_http(true).with_proxy_url(proxy.url());
    connect(&through).unwrap().execute(get(&server.url())).await.unwrap();
    assert_eq!((server.seen().len(), proxy.seen().len()), (0, 1));
    assert_eq!(proxy.seen()[0].target, format!("{}/", server.url()));
    connect(&through.with_proxy_excludes("127.0.0.1")).unwrap().execute(get(&server.url())).await.unwrap();
    assert_eq!((server.seen().len(), proxy.seen().len()), (1, 1));
}

#[tokio::test]
async fn a_store_for_http2_alone_refuses_http1() {
    let server = S3::start().await;
    let options = ClientOptions::new().with_allow_http(true).with_http2_only();
    let error = connect(&options).unwrap().execute(get(&server.url())).await.unwrap_err();
    assert!(error.to_string().contains("insists on HTTP/2"), "{error}");
    assert!(server.seen().is_empty());
}
