//! The key of pooled connections: an origin, and the way to it that a request chose.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::connect::ProxyChoice;
use crate::origin::Origin;

/// The key of pooled connections. Only requests with equal keys share a connection.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PoolKey {
    pub(in crate::client) origin: Origin,
    /// The request's own choice of a proxy; `None` if the client's proxies apply.
    pub(in crate::client) proxy: Option<Arc<ProxyChoice>>,
}

// Without a choice the hash is the origin's alone: it is computed for each request.
impl Hash for PoolKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.origin.hash(state);
        if let Some(proxy) = &self.proxy {
            proxy.hash(state);
        }
    }
}

impl From<Origin> for PoolKey {
    /// Creates the key of requests that leave the proxy to the client.
    fn from(origin: Origin) -> Self {
        Self { origin, proxy: None }
    }
}
