//! The kind of a resolver behind the trait.

use std::any::Any;
use std::sync::Arc;

use crate::dns::{CachedResolver, FixedResolver, HickoryResolver, Resolver, SystemResolver};

/// A resolver of this crate, or one of the user.
pub(super) enum Kind {
    Hickory(FoundHickory),
    System,
    Fixed,
    Other,
}

/// A resolver that is known to be a [`HickoryResolver`], or an `Arc` of one.
pub(super) struct FoundHickory(Arc<dyn Resolver>);

impl FoundHickory {
    pub(super) fn get(&self) -> &HickoryResolver {
        hickory(&*self.0).expect("the resolver was found to be hickory")
    }
}

/// Returns the kind of a resolver, which may be behind `Arc`s and caches.
pub(super) fn kind_of(mut resolver: Arc<dyn Resolver>) -> Kind {
    while let Some(inner) = inner(&*resolver) {
        resolver = inner;
    }
    let any: &dyn Any = &*resolver;
    if any.is::<SystemResolver>() {
        return Kind::System;
    }
    if any.is::<FixedResolver>() {
        return Kind::Fixed;
    }
    if hickory(&*resolver).is_some() { Kind::Hickory(FoundHickory(resolver)) } else { Kind::Other }
}

/// Returns the resolver behind an `Arc` or a cache.
fn inner(resolver: &dyn Resolver) -> Option<Arc<dyn Resolver>> {
    let any: &dyn Any = resolver;
    if let Some(cache) = any.downcast_ref::<CachedResolver>() {
        return Some(cache.upstream());
    }
    any.downcast_ref::<Arc<dyn Resolver>>().cloned()
}

fn hickory(resolver: &dyn Resolver) -> Option<&HickoryResolver> {
    let any: &dyn Any = resolver;
    any.downcast_ref::<HickoryResolver>().or_else(|| any.downcast_ref::<Arc<HickoryResolver>>().map(|shared| &**shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_is_found_behind_caches_and_arcs() {
        let is_hickory = |resolver: Arc<dyn Resolver>| match kind_of(resolver) {
            Kind::Hickory(found) => {
                found.get();
                true
            }
            _ => false,
        };
        assert!(is_hickory(Arc::new(HickoryResolver::system())));
        let shared: Arc<dyn Resolver> = Arc::new(HickoryResolver::system());
        assert!(is_hickory(Arc::new(CachedResolver::new(shared))));
        assert!(is_hickory(Arc::new(Arc::new(HickoryResolver::system()))));
        assert!(!is_hickory(Arc::new(FixedResolver::new())));
    }
}
