//! The DNS cache as the resolver of the SDK's own client.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use aws_smithy_http_client::pool::{Client as PoolClient, ConnectionPool};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::dns::{ResolveDns, SharedDnsResolver};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use speeddial::dns::{
    Answer, CachedResolver, Family, ResolveError, ResolveErrorKind, Resolver, ResolverFuture, Source,
};
use speeddial_aws::Dns;

use crate::fakes::{Service, dynamodb, json, update};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A server that answers each name with 127.0.0.1 for 2 s, until it is down.
#[derive(Clone, Default)]
struct Server {
    is_down: Arc<AtomicBool>,
    queries: Arc<AtomicUsize>,
}

impl Resolver for Server {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        Box::pin(async move {
            self.queries.fetch_add(1, Ordering::SeqCst);
            if self.is_down.load(Ordering::SeqCst) {
                return Err(ResolveError::new(ResolveErrorKind::Unreachable, name, family));
            }
            match family {
                Family::V4 => Ok(Answer::new(vec![LOCALHOST], Duration::from_secs(2), Source::Miss)),
                Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)
                    .with_negative_ttl(Some(Duration::from_secs(2)))),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_trait_answers_from_the_cache_stale_and_pinned() {
    let server = Server::default();
    let cache = CachedResolver::builder().stale(Duration::from_secs(3_600)).build(server.clone());
    let resolver = SharedDnsResolver::new(Dns(cache.clone()));
    for _ in 0..3 {
        assert_eq!(resolver.resolve_dns("api.test").await.unwrap(), [LOCALHOST]);
    }
    assert_eq!(server.queries.load(Ordering::SeqCst), 2, "one for each family");

    server.is_down.store(true, Ordering::SeqCst);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(resolver.resolve_dns("api.test").await.unwrap(), [LOCALHOST], "stale");
    assert!(server.queries.load(Ordering::SeqCst) > 2, "the server was asked");
    assert_eq!(cache.stats().failures, 2, "{:?}", cache.stats());
    let error = resolver.resolve_dns("other.test").await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().is::<ResolveError>(), "{error:?}");

    cache.pin("other.test", [IpAddr::from([192, 0, 2, 7])]);
    let before = server.queries.load(Ordering::SeqCst);
    assert_eq!(resolver.resolve_dns("other.test").await.unwrap(), [IpAddr::from([192, 0, 2, 7])]);
    assert_eq!(server.queries.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn both_of_the_sdks_own_clients_resolve_through_the_cache() {
    let service = Service::start(|_, _| json(200, "{}"));
    let port = service.url().rsplit(':').next().unwrap().to_owned();
    let tls = || Provider::Rustls(CryptoMode::AwsLc);
    let server = Server::default();
    let cache = CachedResolver::builder().build(server.clone());
    cache.pin("pinned.test", [LOCALHOST]);
    let usual = aws_smithy_http_client::Builder::new().pool_max_idle_per_host(0).tls_provider(tls());
    let pool = ConnectionPool::builder().dns_resolver(Dns(cache.clone())).tls_provider(tls()).build_https().unwrap();
    let clients = [usual.build_with_resolver(Dns(cache)), SharedHttpClient::new(PoolClient::new(&pool).unwrap())];
    for client in clients {
        for name in ["api.test", "pinned.test"] {
            update(dynamodb(client.clone(), &format!("http://{name}:{port}"))).await.unwrap();
        }
    }
    assert_eq!(service.received().len(), 4);
    assert_eq!(server.queries.load(Ordering::SeqCst), 2, "one for each family of the name that is not pinned");
}
