//! The resolver under a cache.

use std::sync::Arc;

use parking_lot::RwLock;

use super::resolve::Resolve;

/// The resolver that the queries of a cache go to. It can be replaced.
pub(super) struct Upstream(RwLock<Arc<dyn Resolve>>);

impl Upstream {
    pub(super) fn new(resolver: impl Resolve) -> Self {
        Self(RwLock::new(Arc::new(resolver)))
    }

    /// Returns the resolver of queries that begin now.
    pub(super) fn current(&self) -> Arc<dyn Resolve> {
        self.0.read().clone()
    }

    /// Replaces the resolver. Queries that are running go on with the old one.
    pub(super) fn replace(&self, resolver: impl Resolve) {
        let resolver: Arc<dyn Resolve> = Arc::new(resolver);
        let old = std::mem::replace(&mut *self.0.write(), resolver);
        // Without the lock: its destructor is the user's.
        drop(old);
    }
}
