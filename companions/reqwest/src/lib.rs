#![doc = include_str!("../README.md")]

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use speeddial::dns::CachedResolver;

/// The DNS cache as a resolver for reqwest's `ClientBuilder::dns_resolver`. It answers with the addresses of both families. Clones, and
/// those of the [`CachedResolver`], share the cache.
#[derive(Debug, Clone)]
pub struct Dns(pub CachedResolver);

impl Resolve for Dns {
    fn resolve(&self, name: Name) -> Resolving {
        let cache = self.0.clone();
        Box::pin(async move {
            let addresses = cache.lookup_both(name.as_str()).await?;
            let addresses: Addrs = Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}
