//! The DNS cache as a resolver for reqwest.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::dns::CachedResolver;

/// The DNS cache as a resolver for reqwest's `ClientBuilder::dns_resolver`. It answers with the addresses of both families.
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest-0-13")))]
impl Resolve for CachedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let cache = self.clone();
        Box::pin(async move {
            let addresses = cache.lookup_both(name.as_str()).await?;
            let addresses: Addrs = Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}
