//! The names that are kept: found by name, in the order of their use, and by the time at which each needs attention. A core:
//! it is given the time.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::family_state::FamilyState;
use crate::clock::Instant;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Source, comparable};
use crate::list::{Linked, Links, List};
use crate::world::RandomState;

/// The names that are kept, at most `max_names`.
///
/// Every entry is in `by_name` and in `by_use`. It is in `by_due_time` as well, from its first [`prune`](Self::prune) on, so
/// that nothing is kept without end.
pub(super) struct Entries {
    max_names: usize,
    max_stale: Duration,
    entries: Slab<NameEntry>,
    by_name: HashMap<Arc<str>, usize, RandomState>,
    /// From the most to the least recently used.
    by_use: List<0>,
    /// The times at which a name is to be refreshed or forgotten.
    by_due_time: BTreeSet<(Instant, usize)>,
    evictions: u64,
}

/// A name with its state in each family.
struct NameEntry {
    name: Arc<str>,
    families: [FamilyState; 2],
    due: Instant,
    links: Links,
}

impl Linked for NameEntry {
    fn links(&self, _: usize) -> &Links {
        &self.links
    }

    fn links_mut(&mut self, _: usize) -> &mut Links {
        &mut self.links
    }
}

impl Entries {
    /// Creates an empty table. Addresses are forgotten `max_stale` after their expiry.
    pub(super) fn new(max_names: usize, max_stale: Duration) -> Self {
        Self {
            max_names,
            max_stale,
            entries: Slab::new(),
            by_name: HashMap::default(),
            by_use: List::default(),
            by_due_time: BTreeSet::new(),
            evictions: 0,
        }
    }

    #[inline]
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the name with this id.
    pub(super) fn name(&self, id: usize) -> &Arc<str> {
        &self.entries[id].name
    }

    #[inline]
    pub(super) fn state(&self, id: usize, family: Family) -> &FamilyState {
        &self.entries[id].families[family as usize]
    }

    #[inline]
    pub(super) fn state_mut(&mut self, id: usize, family: Family) -> &mut FamilyState {
        &mut self.entries[id].families[family as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of names evicted for others.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Returns the ids from the most to the least recently used name.
    pub(super) fn ids_by_use(&self) -> impl Iterator<Item = usize> {
        self.by_use.iter(&self.entries)
    }

    /// Makes a name the most recently used one.
    #[inline]
    pub(super) fn mark_used(&mut self, id: usize) {
        self.by_use.move_to_front(&mut self.entries, id);
    }

    /// Returns the entry of a name. A new one is the most recently used; the least recently used one is evicted if there are
    /// too many. Returns `None` if no names are kept at all.
    pub(super) fn find_or_insert(&mut self, name: &str) -> Option<usize> {
        if let Some(id) = self.find(name) {
            return Some(id);
        }
        if self.max_names == 0 {
            return None;
        }
        if self.entries.len() >= self.max_names {
            let oldest = self.by_use.back().expect("a full cache has a least recently used name");
            self.evictions += 1;
            self.remove(oldest);
        }
        let id = self.insert(name);
        self.by_use.push_front(&mut self.entries, id);
        Some(id)
    }

    /// Returns the entry of a name. A new one is the least recently used, and none is evicted for it: returns `None` if there
    /// is no room.
    pub(super) fn find_or_insert_last(&mut self, name: &str) -> Option<usize> {
        if let Some(id) = self.find(name) {
            return Some(id);
        }
        if self.entries.len() >= self.max_names {
            return None;
        }
        let id = self.insert(name);
        self.by_use.push_back(&mut self.entries, id);
        Some(id)
    }

    /// Makes an entry that is not in the order of use yet.
    fn insert(&mut self, name: &str) -> usize {
        let name: Arc<str> = name.into();
        let entry = NameEntry {
            name: name.clone(),
            families: Default::default(),
            due: Instant::NEVER,
            links: Links::default(),
        };
        let id = self.entries.insert(entry);
        self.by_name.insert(name, id);
        id
    }

    /// Forgets what has no further use of a name, or the whole name, and notes when the rest needs attention. To be called
    /// after each change of a name's state.
    pub(super) fn prune(&mut self, now: Instant, id: usize) {
        let entry = &mut self.entries[id];
        let [v4_expires, v6_expires] =
            entry.families.each_ref().map(|state| state.addresses().map(|_| state.expires()));
        let [v4, v6] = &mut entry.families;
        let v4_due = v4.prune(now, self.max_stale, v6_expires);
        let v6_due = v6.prune(now, self.max_stale, v4_expires);
        let due = v4_due.min(v6_due);
        let old_due = std::mem::replace(&mut entry.due, due);
        if old_due != due {
            self.by_due_time.remove(&(old_due, id));
            if due != Instant::NEVER {
                self.by_due_time.insert((due, id));
            }
        }
        if due == Instant::NEVER {
            self.remove(id);
        }
    }

    /// Returns the time at which a name needs attention next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_due_time.first().map(|(due, _)| *due)
    }

    /// Returns a name that needs attention at `now`, until it is [pruned](Self::prune).
    pub(super) fn first_due(&self, now: Instant) -> Option<usize> {
        self.by_due_time.first().filter(|(due, _)| *due <= now).map(|(_, id)| *id)
    }

    pub(super) fn remove(&mut self, id: usize) {
        self.by_use.remove(&mut self.entries, id);
        let entry = self.entries.remove(id);
        self.by_name.remove(&entry.name);
        self.by_due_time.remove(&(entry.due, id));
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.by_name.clear();
        self.by_use = List::default();
        self.by_due_time.clear();
    }

    /// Panics unless each entry is in each table once.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.entries.len() <= self.max_names, "more names than may be kept");
        assert_eq!(self.by_name.len(), self.entries.len());
        assert_eq!(self.by_use.len(), self.entries.len());
        assert_eq!(self.by_due_time.len(), self.entries.len(), "a name is kept without end");
        for (due, id) in &self.by_due_time {
            assert_eq!(*due, self.entries[*id].due);
        }
    }
}

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
    use crate::dns::{Answer, Source};

    fn add(entries: &mut Entries, now: Instant, name: &str) {
        let id = entries.find_or_insert(name).unwrap();
        let (expires, lead) = (now + Duration::from_secs(100), Duration::from_secs(10));
        let answer = Answer::new([[192, 0, 2, 1].into()], Duration::ZERO, Source::Miss);
        entries.state_mut(id, Family::V4).store_addresses(now, &answer, expires, lead, false);
        entries.prune(now, id);
        entries.check();
    }

    #[test]
    fn the_least_recently_used_name_is_evicted() {
        let now = crate::clock::now();
        let mut entries = Entries::new(2, Duration::ZERO);
        add(&mut entries, now, "a");
        add(&mut entries, now, "b");
        assert_eq!(entries.find_or_insert_last("c"), None, "none is evicted for it");
        entries.mark_used(entries.find("a").unwrap());
        add(&mut entries, now, "c");
        let names: Vec<_> = entries.ids_by_use().map(|id| &**entries.name(id)).collect();
        assert_eq!((names, entries.evictions()), (vec!["c", "a"], 1));
    }

    #[test]
    fn a_name_is_forgotten_when_nothing_of_it_is_of_use() {
        let now = crate::clock::now();
        let mut entries = Entries::new(2, Duration::ZERO);
        add(&mut entries, now, "a");
        assert_eq!(entries.next_due(), Some(now + Duration::from_secs(90)), "its refresh");
        assert_eq!(entries.first_due(now), None);
        let end = now + Duration::from_secs(100);
        let id = entries.first_due(end).unwrap();
        entries.prune(end, id);
        assert_eq!((entries.len(), entries.next_due()), (0, None));
        entries.check();
    }
}

#[cfg(test)]
mod pins_tests {
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
