//! Proxies of single requests: which requests share connections, redirects, and what counts by origin all the same.

use std::net::SocketAddr;

use speeddial::pool::HostLimits;
use speeddial::settings::RequestOptions;
use speeddial::{Client, Error, ErrorKind, NoProxy, PoolConfig, Proxy, RequestBuilder, http};

use super::common::behind;
use support::http_server::HttpServer;
use support::{full, ok_server, refusing};

/// Starts a proxy that answers with its name, the request's target and its credentials, and redirects `/redirect` to
/// `http://other.test/end`.
fn proxy(name: &'static str) -> HttpServer {
    HttpServer::start(move |request: hyper::Request<hyper::body::Incoming>| async move {
        let credentials = request.headers().get("proxy-authorization").map_or("none", |value| value.to_str().unwrap());
        let mut response = hyper::Response::new(full(format!("{name} {} {credentials}", request.uri())));
        if request.uri().path() == "/redirect" {
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", "http://other.test/end".parse().unwrap());
        }
        response
    })
    .unwrap()
}

fn at(address: SocketAddr, login: &str) -> Proxy {
    Proxy::all(format!("http://{login}{address}")).unwrap()
}

async fn text(request: RequestBuilder) -> String {
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn a_requests_proxy_replaces_the_clients() {
    let clients = proxy("client's");
    let own = proxy("own");
    let server = ok_server();
    let url = format!("http://{}/", server.address());
    let client = behind(at(clients.address(), "")).build().unwrap();
    let get = || client.get(&url);
    assert_eq!(text(get()).await, format!("client's {url} none"));
    assert_eq!(text(get().proxy(at(own.address(), ""))).await, format!("own {url} none"));
    assert_eq!(text(get().no_proxy()).await, "ok");
    assert_eq!(text(get().proxy(at(own.address(), "")).no_proxy()).await, "ok", "the last one counts");
    assert_eq!(
        text(get().proxy(at(own.address(), "").no_proxy(NoProxy::from_string("127.0.0.1")))).await,
        "ok",
        "not the client's proxy"
    );
    let https = Proxy::https(format!("http://{}", own.address())).unwrap();
    assert_eq!(text(get().proxy(https)).await, "ok", "it is for other URLs");
    assert_eq!(text(get()).await, format!("client's {url} none"), "other requests keep the client's proxy");
    assert_eq!((clients.connections(), own.connections()), (1, 1));
    // The same for requests of the `http` crate, and for a client without proxies.
    let client = behind(at(clients.address(), "")).no_proxy().build().unwrap();
    assert_eq!(text(client.get(&url)).await, "ok");
    let mut message = http::Request::get(&url).body("").unwrap();
    message.extensions_mut().insert(RequestOptions::new().proxy(at(own.address(), "")));
    assert_eq!(text(RequestBuilder::from_http(client, message)).await, format!("own {url} none"));
}

#[tokio::test]
async fn only_requests_with_equal_proxies_share_connections() {
    let one = proxy("one");
    let two = proxy("two");
    let client = behind(at(one.address(), "")).build().unwrap();
    let get = || client.get("http://api.test/");
    let port = one.address().port();
    // Each of these is another key: no connection of one serves another.
    let ways: [(&str, &dyn Fn() -> RequestBuilder); 7] = [
        ("one http://api.test/ none", &|| get()),
        ("one http://api.test/ none", &|| get().proxy(at(one.address(), ""))),
        ("two http://api.test/ none", &|| get().proxy(at(two.address(), ""))),
        ("one http://api.test/ Basic bWU6c2VjcmV0", &|| get().proxy(at(one.address(), "me:secret@"))),
        ("one http://api.test/ Basic bWU6b3RoZXI=", &|| get().proxy(at(one.address(), "me:other@"))),
        ("one http://api.test/ none", &|| get().proxy(at(one.address(), "").no_proxy(NoProxy::from_string("b.test")))),
        ("one http://api.test/ none", &|| get().proxy(Proxy::http(format!("http://proxy.test:{port}")).unwrap())),
    ];
    for round in 0..3 {
        for (index, (expected, request)) in ways.iter().enumerate() {
            assert_eq!(text(request()).await, *expected);
            let opened = if round == 0 { index as u64 + 1 } else { ways.len() as u64 };
            assert_eq!(client.pool_stats().opened, opened, "round {round}, way {index}");
        }
    }
    // The same proxy, written in another way.
    let credentials = http::HeaderValue::from_static("Basic bWU6c2VjcmV0");
    let same = Proxy::all(format!("me:secret@{}", one.address())).unwrap();
    assert_eq!(text(get().proxy(same)).await, format!("one http://api.test/ {}", credentials.to_str().unwrap()));
    assert_eq!(client.pool_stats().opened, ways.len() as u64);
    // The statistics are by origin.
    let stats = client.host_stats();
    let [(origin, stats)] = &stats[..] else { panic!("one origin: {stats:?}") };
    assert_eq!((origin.to_string().as_str(), stats.opened, stats.idle, stats.reused), ("api.test:80", 7, 7, 15));
    assert_eq!(stats.hold_time.count(), 22);
    for login in ["me:secret@", "me:other@"] {
        text(client.get("http://other.test/").proxy(at(one.address(), login))).await;
    }
    let stats = client.host_stats();
    let other =
        stats.iter().find(|(origin, _)| origin.to_string() == "other.test:80").expect("an origin behind proxies");
    assert_eq!((stats.len(), other.1.opened), (2, 2));
}

#[tokio::test]
async fn a_requests_proxy_applies_after_redirects_too() {
    let clients = proxy("client's");
    let own = proxy("own");
    let client = behind(at(clients.address(), "")).build().unwrap();
    let response = client.get("http://api.test/redirect").proxy(at(own.address(), "me:secret@")).send().await.unwrap();
    assert_eq!(response.redirects().len(), 1);
    assert_eq!(response.text().await.unwrap(), "own http://other.test/end Basic bWU6c2VjcmV0");
    assert_eq!((clients.connections(), own.connections()), (0, 2));
}

#[tokio::test]
async fn a_host_has_its_limits_behind_each_proxy_by_itself() {
    let one = proxy("one");
    let two = proxy("two");
    let pool = PoolConfig::new().for_host("api.test", HostLimits::new().max_connections(1));
    let client = behind(at(one.address(), "")).pool(pool).build().unwrap();
    let all = (0..20).map(|index| {
        let request = client.get("http://api.test/");
        if index % 2 == 0 { text(request) } else { text(request.proxy(at(two.address(), ""))) }
    });
    futures_util::future::join_all(all).await;
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

#[tokio::test]
async fn hazard_a_requests_dead_proxy_fails_that_request_alone() {
    let clients = proxy("client's");
    let (_socket, dead) = refusing();
    let client = behind(at(clients.address(), "")).build().unwrap();
    let get = || client.get("http://api.test/");
    let error: Error = get().proxy(at(dead, "me:secret@")).send().await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    let shown = format!("{error:#} {error:?}");
    assert!(shown.contains(&dead.to_string()) && !shown.contains("secret"), "{shown}");
    assert_eq!(text(get()).await, "client's http://api.test/ none");
}

#[cfg(unix)]
#[tokio::test]
async fn a_requests_proxy_is_refused_beside_a_unix_socket() {
    let client = Client::builder().unix_socket("/nowhere/at/all").build().unwrap();
    let get = || client.get("http://api.test/");
    let error = get().proxy(Proxy::all("http://127.0.0.1:9").unwrap()).send().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Request);
    assert!(error.to_string().contains("a proxy of the request has no effect beside"), "{error}");
    let error = get().no_proxy().send().await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

#[cfg(feature = "__tls")]
#[tokio::test]
async fn a_tunnel_of_one_proxy_is_not_used_for_another() {
    use support::certs::Authority;
    use support::tls_server::TlsServer;

    let authority = Authority::new();
    for protocols in [&["http/1.1"][..], &["h2"]] {
        let server = TlsServer::start(authority.server(&["127.0.0.1"], protocols)).await;
        let url = format!("https://{}/", server.address());
        let proxies = [super::http_proxies::tunnel_proxy().await, super::http_proxies::tunnel_proxy().await];
        // Beside a slow dial, as on a busy machine, there would be another one.
        let pool = PoolConfig::new().max_connections_per_host(1);
        let client =
            behind(at(proxies[0], "me:secret@")).no_proxy().tls(authority.client()).pool(pool).build().unwrap();
        for opened in [1, 2, 3, 3, 3, 3] {
            let request = client.get(&url);
            let index = client.pool_stats().reused + client.pool_stats().opened;
            let request = match index % 3 {
                0 => request,
                1 => request.proxy(at(proxies[0], "me:secret@")),
                _ => request.proxy(at(proxies[1], "me:secret@")),
            };
            let response = request.send().await.unwrap();
            let through = response.timings().remote_addr();
            let expected = match index % 3 {
                0 => server.address(),
                1 => proxies[0],
                _ => proxies[1],
            };
            assert_eq!(through, Some(expected));
            response.bytes().await.unwrap();
            assert_eq!(client.pool_stats().opened, opened);
        }
    }
}
