//! What failures were, in values that programs decide by.

use std::io::{self, Write};
use std::time::Duration;

use speeddial::dns::{FixedResolver, ResolveErrorKind};
use speeddial::error::ErrorDetail;
use speeddial::trace::Limit;
use speeddial::{Body, Client, ClientBuilder, Error, PoolConfig, Proxy, RetryPolicy, redirect};
use support::scripted_peer::{ScriptedPeer, answer_all, read_head};

const MOMENT: Duration = Duration::from_millis(20);

fn builder() -> ClientBuilder {
    Client::builder().no_proxy().dns_resolver(FixedResolver::new().with("api.test", [[127, 0, 0, 1].into()]))
}

/// Starts a server that sends these bytes in answer to each request, and closes its side.
fn answering(answer: &'static [u8]) -> ScriptedPeer {
    ScriptedPeer::start(move |_, mut socket| {
        read_head(&mut socket);
        let _ = socket.write_all(answer);
    })
}

/// Starts a server that never answers.
fn silent() -> ScriptedPeer {
    ScriptedPeer::start(|_, mut socket| while read_head(&mut socket) {})
}

async fn fails(builder: ClientBuilder, url: &str) -> Error {
    match builder.build().unwrap().get(url).send().await {
        Ok(response) => response.bytes().await.expect_err("it fails"),
        Err(error) => error,
    }
}

async fn detail(builder: ClientBuilder, url: &str) -> Option<ErrorDetail> {
    fails(builder, url).await.detail()
}

#[tokio::test]
async fn a_failed_lookup_and_a_denied_address_are_told() {
    let lookup = detail(builder(), "http://other.test/").await;
    assert_eq!(lookup, Some(ErrorDetail::Lookup(ResolveErrorKind::NxDomain)));
    let denied = detail(builder().allow_addresses(|_| false), "http://api.test/").await;
    assert_eq!(denied, Some(ErrorDetail::AddressDenied([127, 0, 0, 1].into())));
    assert_eq!(detail(builder(), "no url").await, None);
}

#[tokio::test]
async fn time_limits_and_limits_of_the_pool_are_told() {
    let peer = silent();
    let deadline = detail(builder().timeout(MOMENT), &peer.url()).await;
    assert_eq!(deadline, Some(ErrorDetail::Deadline(MOMENT)));
    let headers = detail(builder().headers_timeout(MOMENT), &peer.url()).await;
    assert_eq!(headers, Some(ErrorDetail::TimeLimit(MOMENT)));
    let pool = PoolConfig::new().max_connections_per_host(1).max_waiting(0).max_http2_connections_per_host(1);
    let client = builder().pool(pool.wait_timeout(MOMENT)).build().unwrap();
    let first = tokio::spawn(client.get(peer.url()).send());
    while client.pool_stats().in_use == 0 {
        tokio::task::yield_now().await;
    }
    let full = client.get(peer.url()).send().await.unwrap_err();
    assert_eq!(full.detail(), Some(ErrorDetail::Limit(Limit::ConnectionsPerHost)), "{full}");
    client.reconfigure(|to| to.pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(MOMENT))).unwrap();
    let waited = client.get(peer.url()).send().await.unwrap_err();
    assert_eq!(waited.detail(), Some(ErrorDetail::Limit(Limit::ConnectionsPerHost)), "{waited}");
    first.abort();
    client.drain().await;
    let drained = client.get(peer.url()).send().await.unwrap_err();
    assert_eq!(drained.detail(), Some(ErrorDetail::Limit(Limit::Draining)));
}

#[tokio::test]
async fn bodies_that_end_early_or_late_or_fail_here_are_told() {
    let whole = ScriptedPeer::start(|_, mut socket| answer_all(&mut socket));
    let long = detail(builder().max_body_size(1), &whole.url()).await;
    assert_eq!(long, Some(ErrorDetail::BodyTooLong { limit: 1 }));
    let torn = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfour");
    let broken = detail(builder(), &torn.url()).await;
    assert_eq!(broken, Some(ErrorDetail::BodyBrokeOff { received: 4, announced: Some(9) }));
    let client = builder().build().unwrap();
    let (mut writer, _) = tokio::io::duplex(1);
    let error = client.get(whole.url()).send().await.unwrap().copy_to(&mut writer).await;
    assert_eq!(error.unwrap_err().detail(), Some(ErrorDetail::Writer));
    let failing = Body::wrap_stream(futures_util::stream::iter([Err::<&str, _>(io::Error::other("torn"))]));
    let error = client.post(whole.url()).body(failing).send().await.unwrap_err();
    assert_eq!(error.detail(), Some(ErrorDetail::RequestBody), "{error:#}");
}

#[tokio::test]
async fn refusals_of_proxies_and_redirects_are_told() {
    let proxy = answering(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
    let through = |proxy: &ScriptedPeer| Client::builder().proxy(Proxy::all(proxy.url()).unwrap());
    #[cfg(feature = "__tls")]
    {
        let refused = detail(through(&proxy), "https://api.test/").await;
        assert_eq!(refused, Some(ErrorDetail::ProxyRefused(Some(speeddial::StatusCode::FORBIDDEN))));
        let garbage = answering(b"220 mail.test ESMTP\r\n\r\n");
        assert_eq!(detail(through(&garbage), "https://api.test/").await, Some(ErrorDetail::ProxyRefused(None)));
    }
    assert_eq!(through(&proxy).build().unwrap().get("http://api.test/").send().await.unwrap().status(), 403);
    let away = answering(b"HTTP/1.1 302 Found\r\nlocation: /on\r\ncontent-length: 0\r\n\r\n");
    let many = detail(builder().redirect(redirect::Policy::limited(1)), &away.url()).await;
    assert_eq!(many, Some(ErrorDetail::TooManyRedirects(1)));
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn failures_of_tls_are_told() {
    use speeddial::tls::{CertificateProblem, TlsConfig};
    use support::certs::Authority;
    use support::tls_server::TlsServer;

    let (own, other) = (Authority::new(), Authority::new());
    let trusting = |root: &Authority| builder().tls(TlsConfig::new().only_added_roots().add_roots([root.root()]));
    let plain = support::ok_server();
    let no_tls = detail(trusting(&own), &format!("https://api.test:{}/", plain.address().port())).await;
    assert_eq!(no_tls, Some(ErrorDetail::NotTls));
    let server = TlsServer::start(own.server(&["api.test"], &[])).await;
    let url = |host: &str| format!("https://{host}:{}/", server.address().port());
    let unknown = detail(trusting(&other), &url("api.test")).await;
    assert_eq!(unknown, Some(ErrorDetail::Certificate(CertificateProblem::UnknownIssuer)));
    let wrong = detail(trusting(&own), &url("127.0.0.1")).await;
    assert_eq!(wrong, Some(ErrorDetail::Certificate(CertificateProblem::WrongName)));
    let mute = silent();
    let late = detail(trusting(&own).tls_timeout(MOMENT), &mute.url().replace("http://", "https://")).await;
    assert_eq!(late, Some(ErrorDetail::TimeLimit(MOMENT)));
    let mutual = TlsServer::start(own.mutual_server(&["api.test"], &[])).await;
    let none = detail(trusting(&own), &format!("https://api.test:{}/", mutual.address().port())).await;
    assert_eq!(none, Some(ErrorDetail::ClientCertificate));
}

#[tokio::test]
async fn an_error_counts_the_attempts() {
    let (_kept, closed) = support::refusing();
    let url = format!("http://{closed}/");
    let once = fails(builder(), &url).await;
    assert_eq!((once.attempts(), once.to_string().contains("attempts")), (1, false));
    let retry = RetryPolicy::new().attempts(3).backoff(Duration::ZERO, Duration::ZERO).no_budget();
    let thrice = fails(builder().retry(retry), &url).await;
    assert_eq!((thrice.attempts(), thrice.dialled().len()), (3, 3));
    assert_eq!(thrice.to_string(), format!("GET {url}: connect to 127.0.0.1 failed (after 3 attempts)"));
    assert_eq!(fails(builder(), "no url").await.attempts(), 0);
}
