//! The DNS cache under reqwest and under hyper-util's client: hits, stale answers, pinned names; and getaddrinfo under the cache.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use speeddial::dns::{
    CachedResolver, Family, HickoryResolver, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source,
    SystemResolver,
};
use speeddial_reqwest::Dns;
use support::dns_server::{DnsServer, add_address};
use support::ok_server;

/// Another client with the cache as its resolver, which keeps no connections and so looks the name up for each request.
trait Neighbour {
    /// Requests `http://name:port/` and returns the body; an error as text.
    fn get(&self, name: &str, port: u16) -> impl Future<Output = Result<String, String>>;
}

struct Reqwest(reqwest::Client);

impl Reqwest {
    fn with(cache: &CachedResolver) -> Self {
        let builder = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
        Self(builder.dns_resolver(Dns(cache.clone())).build().unwrap())
    }
}

impl Neighbour for Reqwest {
    async fn get(&self, name: &str, port: u16) -> Result<String, String> {
        let response =
            self.0.get(format!("http://{name}:{port}/")).send().await.map_err(|error| format!("{error:?}"))?;
        response.text().await.map_err(|error| format!("{error:?}"))
    }
}

struct HyperUtil(legacy::Client<HttpConnector<CachedResolver>, Empty<Bytes>>);

impl HyperUtil {
    fn with(cache: &CachedResolver) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        Self(builder.pool_max_idle_per_host(0).build(HttpConnector::new_with_resolver(cache.clone())))
    }
}

impl Neighbour for HyperUtil {
    async fn get(&self, name: &str, port: u16) -> Result<String, String> {
        let url = format!("http://{name}:{port}/").parse().unwrap();
        let response = self.0.get(url).await.map_err(|error| format!("{error:?}"))?;
        let body = response.into_body().collect().await.map_err(|error| format!("{error:?}"))?;
        Ok(String::from_utf8(body.to_bytes().into()).unwrap())
    }
}

/// Starts a DNS server that knows `api.test`.
fn dns_server() -> DnsServer {
    let zone = DnsServer::start(|question, response| {
        if question.name().to_ascii() == "api.test." {
            add_address(response, question, question.name(), Ipv4Addr::LOCALHOST.into(), 60);
        }
    });
    zone.unwrap()
}

async fn is_answered_by_the_cache(neighbour: impl Neighbour, server: &DnsServer, cache: &CachedResolver) {
    let web = ok_server();
    for _ in 0..3 {
        assert_eq!(neighbour.get("api.test", web.address().port()).await.as_deref(), Ok("ok"));
    }
    assert_eq!((server.queries(), web.connections()), (2, 3), "one query for each family");
    assert_eq!(cache.stats().misses, 2);
    let refused = neighbour.get("unknown.test", web.address().port()).await.unwrap_err();
    assert!(refused.contains("unknown.test"), "{refused}");
}

#[tokio::test]
async fn a_second_request_of_reqwest_needs_no_query() {
    let server = dns_server();
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]));
    is_answered_by_the_cache(Reqwest::with(&cache), &server, &cache).await;
}

#[tokio::test]
async fn a_second_request_of_hyper_utils_client_needs_no_query() {
    let server = dns_server();
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]));
    is_answered_by_the_cache(HyperUtil::with(&cache), &server, &cache).await;
}

/// Requests a name while its DNS server is down and its answer has expired.
async fn is_answered_stale(neighbour: impl Neighbour, cache: &CachedResolver, server: DnsServer) {
    let web = ok_server();
    assert_eq!(neighbour.get("api.test", web.address().port()).await.as_deref(), Ok("ok"));
    drop(server);
    // The TTL is a hundredth of a second. Each request is answered, be it before or after that.
    for request in 0.. {
        assert!(request < 10_000, "no answer expired: {:?}", cache.stats());
        assert_eq!(neighbour.get("api.test", web.address().port()).await.as_deref(), Ok("ok"));
        let stats = cache.stats();
        if stats.failures > 0 && stats.stale_hits > 0 {
            break;
        }
    }
}

/// Returns a cache whose answers soon expire, above a DNS server.
fn short_lived(server: &DnsServer) -> CachedResolver {
    let resolver = HickoryResolver::with_servers([server.address()]).with_try_timeout(Duration::from_millis(50));
    CachedResolver::builder().ttl_ceiling(Duration::from_millis(10)).build(resolver.with_family(Family::V4))
}

#[tokio::test]
async fn reqwest_goes_on_with_expired_answers_while_the_dns_server_is_down() {
    let server = dns_server();
    let cache = short_lived(&server);
    is_answered_stale(Reqwest::with(&cache), &cache, server).await;
}

#[tokio::test]
async fn hyper_utils_client_goes_on_with_expired_answers_while_the_dns_server_is_down() {
    let server = dns_server();
    let cache = short_lived(&server);
    is_answered_stale(HyperUtil::with(&cache), &cache, server).await;
}

async fn goes_to_the_pinned_address(neighbour: impl Neighbour, cache: &CachedResolver, server: &DnsServer) {
    let web = ok_server();
    cache.pin("pinned.test", [IpAddr::from(Ipv4Addr::LOCALHOST)]);
    assert_eq!(neighbour.get("pinned.test", web.address().port()).await.as_deref(), Ok("ok"));
    assert_eq!(server.queries(), 0);
    assert!(cache.unpin("pinned.test"));
    neighbour.get("pinned.test", web.address().port()).await.unwrap_err();
    assert_eq!((server.queries(), web.connections()), (2, 1));
}

#[tokio::test]
async fn reqwest_goes_to_the_address_of_a_pinned_name() {
    let server = dns_server();
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]));
    goes_to_the_pinned_address(Reqwest::with(&cache), &cache, &server).await;
}

#[tokio::test]
async fn hyper_utils_client_goes_to_the_address_of_a_pinned_name() {
    let server = dns_server();
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]));
    goes_to_the_pinned_address(HyperUtil::with(&cache), &cache, &server).await;
}

#[tokio::test]
async fn getaddrinfo_is_asked_once_while_its_answer_is_kept() {
    let web = ok_server();
    let cache = CachedResolver::new(SystemResolver::default());
    for neighbour in [Reqwest::with(&cache), Reqwest::with(&cache)] {
        assert_eq!(neighbour.get("localhost", web.address().port()).await.as_deref(), Ok("ok"));
    }
    let answer = cache.lookup("localhost", Family::V4).await.unwrap();
    assert!(answer.addresses().iter().all(IpAddr::is_loopback), "{answer:?}");
    assert!(answer.ttl() <= Duration::from_secs(30));
    let stats = cache.stats();
    // Where localhost has no IPv6 address, the error of that family is kept for a second only.
    assert!(stats.hits >= 2 && stats.misses >= 2 && stats.misses <= 3, "{stats:?}");
}

#[tokio::test]
async fn getaddrinfo_gives_an_error_for_a_name_that_does_not_exist() {
    let cache = CachedResolver::new(SystemResolver::new(Duration::from_secs(5)));
    // A label cannot have more than 63 bytes, so no server is asked.
    let name = format!("{}.invalid", "x".repeat(64));
    let error = cache.lookup(&name, Family::V4).await.unwrap_err();
    assert!(!matches!(error.kind(), ResolveErrorKind::NoData), "{error:?}");
    assert!(Reqwest::with(&cache).get(&name, 80).await.is_err());
}

/// The platform's resolver, which can be made to fail.
struct Platform {
    resolver: SystemResolver,
    is_down: Arc<AtomicBool>,
}

impl Resolver for Platform {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        if self.is_down.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(ResolveError::new(ResolveErrorKind::ServFail, name, family))));
        }
        self.resolver.resolve(name, family)
    }
}

#[tokio::test]
async fn getaddrinfos_answers_are_served_stale_and_a_pin_comes_before_them() {
    let is_down = Arc::new(AtomicBool::new(false));
    let resolver = Platform { resolver: SystemResolver::new(Duration::from_millis(10)), is_down: is_down.clone() };
    let cache = CachedResolver::new(resolver);
    let first = cache.lookup("localhost", Family::V4).await.unwrap();
    is_down.store(true, Ordering::SeqCst);
    let expired = async {
        loop {
            let answer = cache.lookup("localhost", Family::V4).await.unwrap();
            if answer.source() == Source::Stale {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let stale = tokio::time::timeout(Duration::from_secs(30), expired).await.unwrap();
    assert_eq!(stale.addresses(), first.addresses());
    let pinned = IpAddr::from([127, 0, 0, 9]);
    cache.pin("localhost", [pinned]);
    assert_eq!(cache.lookup("localhost", Family::V4).await.unwrap().addresses()[..], [pinned]);
}
