//! The trait that every resolver implements.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use super::answer::{Answer, Place};
use super::error::ResolveError;
use crate::trace::Family;
use parking_lot::RwLock;

/// Resolves a name to the addresses of one family. The DNS cache takes its answers from here.
///
/// Implement it to take addresses from any other place. [`ClientBuilder::dns_resolver`](crate::ClientBuilder::dns_resolver)
/// puts the cache in front of it.
///
/// ```
/// use std::{net::Ipv4Addr, sync::Arc, time::Duration};
/// use speeddial::dns::{Answer, Family, Resolver, ResolveError, ResolveErrorKind, ResolverFuture, Source};
///
/// struct Local;
/// impl Resolver for Local {
///     fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
///         Box::pin(async move {
///             match family {
///                 Family::V4 => Ok(Answer::new([Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60), Source::Fixed)),
///                 Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
///             }
///         })
///     }
/// }
/// ```
pub trait Resolver: Any + Send + Sync {
    /// Asks for the addresses of `name` in one family.
    ///
    /// # Errors
    /// [`ResolveErrorKind::NxDomain`](super::ResolveErrorKind::NxDomain) and
    /// [`NoData`](super::ResolveErrorKind::NoData) mean that there are no addresses; the cache may keep them. Every other
    /// kind means that the lookup failed.
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a>;

    /// Like [`resolve`](Self::resolve), for a cache that says what it knows already.
    #[doc(hidden)]
    fn resolve_for<'a>(&'a self, name: &'a str, family: Family, asking: Asking) -> ResolverFuture<'a> {
        drop(asking);
        self.resolve(name, family)
    }

    /// Returns a number that differs from the last one when answers from before count for nothing any more: the resolver has read other
    /// files, or has other servers. A cache then asks for each of its names again at its next use. 0 by default, for a resolver to which that
    /// does not happen.
    ///
    /// The cache calls it when it is used, at most once in 5 s. It must not wait.
    fn version(&self) -> u64 {
        0
    }
}

/// The facts that a cache passes on with its question.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Asking {
    /// The place of the addresses that the cache knows.
    pub(crate) known: Option<Place>,
    /// Takes addresses of an earlier server that come after the answer.
    pub(crate) late: Option<Arc<dyn Fn(Answer) + Send + Sync>>,
}

impl std::fmt::Debug for Asking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asking").field("known", &self.known).finish_non_exhaustive()
    }
}

/// The future of a lookup, returned by [`Resolver::resolve`].
pub type ResolverFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, ResolveError>> + Send + 'a>>;

impl<R: Resolver + ?Sized> Resolver for Arc<R> {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> ResolverFuture<'a> {
        (**self).resolve(name, family)
    }

    fn resolve_for<'a>(&'a self, name: &'a str, family: Family, asking: Asking) -> ResolverFuture<'a> {
        (**self).resolve_for(name, family, asking)
    }

    fn version(&self) -> u64 {
        (**self).version()
    }
}

/// The resolver that the queries of a cache go to. It can be replaced.
pub(super) struct Upstream(RwLock<Arc<dyn Resolver>>);

impl Upstream {
    pub(super) fn new(resolver: impl Resolver) -> Self {
        Self(RwLock::new(Arc::new(resolver)))
    }

    /// Returns the resolver of queries that begin now.
    pub(super) fn current(&self) -> Arc<dyn Resolver> {
        self.0.read().clone()
    }

    /// Replaces the resolver. Queries that are running go on with the old one.
    pub(super) fn replace(&self, resolver: impl Resolver) {
        let resolver: Arc<dyn Resolver> = Arc::new(resolver);
        let old = std::mem::replace(&mut *self.0.write(), resolver);
        // Without the lock: its destructor is the user's.
        drop(old);
    }
}
