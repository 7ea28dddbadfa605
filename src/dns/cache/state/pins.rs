//! Names whose addresses the user has set. A core: a table.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::world::RandomState;

use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Source, comparable};

/// The pinned names, each with its addresses by family.
#[derive(Default)]
pub(super) struct PinnedNames(HashMap<Arc<str>, [Arc<[IpAddr]>; 2], RandomState>);

impl PinnedNames {
    /// Sets the addresses of a name, which replace those set before.
    pub(super) fn pin(&mut self, name: &str, addresses: &[IpAddr]) {
        let of = |family| addresses.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        self.0.insert(comparable(name).into(), [of(Family::V4), of(Family::V6)]);
    }

    /// Removes a name. Returns true if it was pinned.
    pub(super) fn unpin(&mut self, name: &str) -> bool {
        self.0.remove(&*comparable(name)).is_some()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        !self.0.is_empty() && self.0.contains_key(&*comparable(name))
    }

    /// Returns the answer for a pinned name: its addresses with this TTL, or "no addresses" in a family that has none.
    #[inline]
    pub(super) fn answer(&self, name: &str, family: Family, ttl: Duration) -> Option<Result<Answer, ResolveError>> {
        if self.0.is_empty() {
            return None;
        }
        let addresses = &self.0.get(&*comparable(name))?[family as usize];
        if addresses.is_empty() {
            let error = ResolveError::new(ResolveErrorKind::NoData, name, family);
            return Some(Err(error.with_source(Source::Pinned)));
        }
        Some(Ok(Answer::new(addresses.clone(), ttl, Source::Pinned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::{V4, V6};

    #[test]
    fn a_pinned_name_has_the_addresses_of_each_family_and_no_others() {
        let mut pins = PinnedNames::default();
        assert!(pins.answer("n", V4, Duration::ZERO).is_none());
        pins.pin("n", &[[192, 0, 2, 1].into(), [192, 0, 2, 2].into()]);
        let answer = pins.answer("n", V4, Duration::from_secs(9)).unwrap().unwrap();
        assert_eq!((answer.addresses().len(), answer.ttl()), (2, Duration::from_secs(9)));
        assert_eq!(pins.answer("n", V6, Duration::ZERO).unwrap().unwrap_err().kind(), ResolveErrorKind::NoData);
        assert!(pins.answer("m", V4, Duration::ZERO).is_none() && pins.answer("n.", V4, Duration::ZERO).is_some());
        assert!(pins.unpin("n") && !pins.unpin("n") && !pins.contains("n"));
    }
}
