//! Names with addresses of the user, and the choice of a resolver.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use speeddial::dns::{CachedResolver, FixedResolver, Resolver, Source};
use speeddial::{Client, ClientBuilder, Proxy};

use super::assert_refused;
use support::http_server::{HttpServer, describe};
use support::refusing;

async fn get(builder: ClientBuilder, url: &str) -> speeddial::Result<String> {
    builder.build().unwrap().get(url).send().await?.text().await
}

/// Returns the builder of a client whose resolver knows no name.
fn builder() -> ClientBuilder {
    Client::builder().no_proxy().dns_resolver(FixedResolver::new())
}

#[tokio::test]
async fn the_port_of_an_address_is_connected_to_unless_the_url_has_one() {
    let server = HttpServer::start(describe).unwrap();
    let address = server.address();
    let pinned = || builder().resolve("Api.test", address);
    assert_eq!(get(pinned(), "http://api.test/").await.unwrap(), "HTTP/1.1 GET / api.test");
    // The URL's port goes before the address's, so this one is used with port 0 alone.
    let url = format!("http://api.test:{}/x", address.port());
    let other_port = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
    for pinned in [other_port, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)] {
        let text = get(builder().resolve("api.test", pinned), &url).await.unwrap();
        assert_eq!(text, format!("HTTP/1.1 GET /x api.test:{}", address.port()));
    }
    assert!(get(pinned(), "http://other.test/").await.unwrap_err().is_dns());
}

#[tokio::test]
async fn all_addresses_of_a_name_are_tried_also_with_the_same_ip() {
    let server = HttpServer::start(describe).unwrap();
    let (_kept, closed) = refusing();
    let client = builder().resolve_to_addrs("api.test", &[closed, server.address()]).build().unwrap();
    let response = client.get("http://api.test/").send().await.unwrap();
    assert_eq!(response.remote_addr(), Some(server.address()));
    assert_eq!(response.timings().dns_source(), Some(Source::Pinned));
    assert!(get(builder().resolve_to_addrs("api.test", &[]), "http://api.test/").await.unwrap_err().is_dns());
    let replaced = builder().resolve("api.test", closed).resolve("api.test", server.address());
    assert!(get(replaced, "http://api.test/").await.is_ok());
}

#[tokio::test]
async fn the_rules_for_addresses_apply_to_those_of_the_user() {
    let server = HttpServer::start(describe).unwrap();
    let denied = builder().resolve("api.test", server.address()).deny_private_addresses();
    let error = get(denied, "http://api.test/").await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert_eq!(server.accepted(), 0);
    #[cfg(unix)]
    {
        let pinned = Client::builder().resolve("api.test", server.address()).unix_socket("/tmp/x");
        assert_refused(pinned, "an address for a name");
    }
}

#[test]
fn a_resolver_that_would_not_be_asked_is_refused() {
    let new = Client::builder;
    let cache = || CachedResolver::new(FixedResolver::new());
    assert_refused(new().dns_cache(cache()).dns_resolver(FixedResolver::new()), "dns_resolver would replace dns_cache");
    assert_refused(new().dns_resolver(FixedResolver::new()).dns_cache(cache()), "dns_cache would replace dns_resolver");
    assert!(builder().dns_resolver(FixedResolver::new()).build().is_ok(), "the last one counts, as in reqwest");
    assert_refused(new().dns_cache(cache()).hickory_dns(true), "hickory_dns(true) has no effect beside another");
    #[cfg(unix)]
    {
        let socket = || new().unix_socket("/tmp/x");
        let ignored = |name: &str| format!("{name} has no effect beside a Unix domain socket");
        assert_refused(socket().dns_resolver(FixedResolver::new()), &ignored("dns_resolver"));
        assert_refused(socket().dns_cache(cache()), &ignored("dns_cache"));
        assert_refused(socket().hickory_dns(true), &ignored("hickory_dns(true)"));
        assert!(socket().no_hickory_dns().build().is_ok());
    }
}

#[tokio::test]
async fn the_name_of_a_proxy_may_have_an_address() {
    let server = HttpServer::start(describe).unwrap();
    let proxied = builder().resolve("proxy.test", server.address()).proxy(Proxy::all("http://proxy.test").unwrap());
    let text = get(proxied, "http://api.test/y").await.unwrap();
    assert_eq!(text, "HTTP/1.1 GET http://api.test/y api.test");
}

#[tokio::test]
async fn a_resolver_may_be_shared_and_the_platform_may_be_asked() {
    let server = HttpServer::start(describe).unwrap();
    let url = |host: &str| format!("http://{host}:{}/", server.address().port());
    let shared: Arc<dyn Resolver> = Arc::new(FixedResolver::new().with("api.test", [Ipv4Addr::LOCALHOST.into()]));
    for _ in 0..2 {
        let client = Client::builder().no_proxy().dns_resolver(shared.clone());
        assert!(get(client, &url("api.test")).await.is_ok());
    }
    // The platform knows this name without DNS.
    let platform = Client::builder().no_proxy().no_hickory_dns();
    assert!(get(platform, &url("localhost")).await.is_ok());
    let both = Client::builder().no_proxy().no_hickory_dns().dns_resolver(shared.clone());
    assert!(get(both, &url("api.test")).await.is_ok());
    assert_refused(Client::builder().hickory_dns(true).dns_resolver(shared), "hickory_dns(true) has no effect");
    assert!(Client::builder().hickory_dns(true).build().is_ok());
}
