//! The trait that every resolver implements.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use super::answer::Answer;
use super::error::ResolveError;
use crate::trace::Family;

/// Resolves a name to the addresses of one family. The DNS cache takes its answers from here.
///
/// Implement it to take addresses from any other place. [`ClientBuilder::dns_resolver`](crate::ClientBuilder::dns_resolver)
/// puts the cache in front of it.
///
/// ```
/// use std::{net::Ipv4Addr, sync::Arc, time::Duration};
/// use speeddial::dns::{Answer, Family, Resolve, ResolveError, ResolveErrorKind, Resolving, Source};
///
/// struct Local;
/// impl Resolve for Local {
///     fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
///         Box::pin(async move {
///             match family {
///                 Family::V4 => Ok(Answer::new([Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60), Source::Fixed)),
///                 Family::V6 => Err(ResolveError::new(ResolveErrorKind::NoData, name, family)),
///             }
///         })
///     }
/// }
/// ```
pub trait Resolve: Any + Send + Sync {
    /// Asks for the addresses of `name` in one family.
    ///
    /// # Errors
    /// [`ResolveErrorKind::NxDomain`](super::ResolveErrorKind::NxDomain) and
    /// [`NoData`](super::ResolveErrorKind::NoData) mean that there are no addresses; the cache may keep them. Every other
    /// kind means that the lookup failed.
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a>;
}

/// The future of a lookup, returned by [`Resolve::resolve`].
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Result<Answer, ResolveError>> + Send + 'a>>;

impl<R: Resolve + ?Sized> Resolve for Arc<R> {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolving<'a> {
        (**self).resolve(name, family)
    }
}
