//! HTTP/2 without TLS over real sockets.

use std::net::Ipv4Addr;
use std::time::Duration;

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
    let client = builder().http2_prior_knowledge().build().unwrap();
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
    let client = builder().http2_prior_knowledge().build().unwrap();
    for _ in 0..3 {
        let slow = client.get(format!("http://api.test:{}/slow", server.address().port()));
        assert!(slow.timeout(Duration::from_millis(200)).send().await.unwrap_err().is_timeout());
    }
    client.get(format!("http://api.test:{}/", server.address().port())).send().await.unwrap();
    assert_eq!(client.pool_stats().opened, 1);
}
