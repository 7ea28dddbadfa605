//! The kind of a resolver behind the trait.

use std::any::Any;
use std::sync::Arc;

use super::cache::CachedResolver;
use super::fixed::FixedResolver;
use super::hickory::HickoryResolver;
use super::resolve::Resolve;
use super::system::SystemResolver;

/// A resolver of this crate, or one of the user.
pub(crate) enum Kind<'a> {
    Hickory(&'a HickoryResolver),
    System,
    Fixed,
    Other,
}

/// Returns the kind of a resolver, which may be behind `Arc`s and caches.
pub(crate) fn kind_of(resolver: &dyn Resolve) -> Kind<'_> {
    let any: &dyn Any = resolver;
    if let Some(hickory) = any.downcast_ref::<HickoryResolver>() {
        return Kind::Hickory(hickory);
    }
    if let Some(shared) = any.downcast_ref::<Arc<HickoryResolver>>() {
        return Kind::Hickory(shared);
    }
    if let Some(shared) = any.downcast_ref::<Arc<dyn Resolve>>() {
        return kind_of(&**shared);
    }
    if let Some(cache) = any.downcast_ref::<CachedResolver>() {
        return kind_of(cache.upstream());
    }
    if any.is::<SystemResolver>() {
        return Kind::System;
    }
    if any.is::<FixedResolver>() { Kind::Fixed } else { Kind::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_is_found_behind_caches_and_arcs() {
        let is_hickory = |resolver: &dyn Resolve| matches!(kind_of(resolver), Kind::Hickory(_));
        assert!(is_hickory(&HickoryResolver::system()));
        let shared: Arc<dyn Resolve> = Arc::new(HickoryResolver::system());
        assert!(is_hickory(&CachedResolver::new(shared)));
        assert!(is_hickory(&Arc::new(HickoryResolver::system())));
        assert!(!is_hickory(&FixedResolver::new()));
    }
}
