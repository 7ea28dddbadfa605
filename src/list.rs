//! Doubly linked lists threaded through the items of a slab: every operation is O(1) and allocates nothing.

use slab::Slab;

/// The neighbours of an item in one list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Links {
    before: Neighbour,
    after: Neighbour,
}

/// The id of a neighbouring item or none, in a quarter of the size of an `Option<usize>`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Neighbour(u32);

impl Neighbour {
    const NONE: Self = Self(u32::MAX);

    fn new(id: usize) -> Self {
        let id = u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        Self(id.expect("a slab has fewer than 2^32 - 1 items"))
    }

    fn get(self) -> Option<usize> {
        if self == Self::NONE { None } else { Some(self.0 as usize) }
    }
}

impl Default for Neighbour {
    fn default() -> Self {
        Self::NONE
    }
}

impl std::fmt::Debug for Neighbour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// Counts a step over a collection, for the tests that compare the costs of small and large ones.
#[inline(always)]
pub(crate) fn count_step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

#[cfg(test)]
thread_local! {
    /// The steps that this thread has counted.
    pub(crate) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// An item that can be in several lists, each of which has a number.
pub(crate) trait Linked {
    fn links(&self, list: usize) -> &Links;
    fn links_mut(&mut self, list: usize) -> &mut Links;
}

/// List number `L` of a slab's items, from front to back. Items are named by their ids in the slab.
///
/// The caller keeps track of which items are in the list: to insert an item twice, or to remove one that is not in the list,
/// corrupts it.
#[derive(Debug, Clone)]
pub(crate) struct List<const L: usize> {
    front: Option<usize>,
    back: Option<usize>,
    len: usize,
}

impl<const L: usize> Default for List<L> {
    fn default() -> Self {
        Self { front: None, back: None, len: 0 }
    }
}

impl<const L: usize> List<L> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn front(&self) -> Option<usize> {
        self.front
    }

    pub(crate) fn back(&self) -> Option<usize> {
        self.back
    }

    /// Returns the items from front to back.
    pub(crate) fn iter<'a, T: Linked>(&self, items: &'a Slab<T>) -> impl Iterator<Item = usize> + use<'a, T, L> {
        std::iter::successors(self.front, |id| items[*id].links(L).after.get()).inspect(|_| count_step())
    }

    /// Returns the items from back to front.
    pub(crate) fn iter_back<'a, T: Linked>(&self, items: &'a Slab<T>) -> impl Iterator<Item = usize> + use<'a, T, L> {
        std::iter::successors(self.back, |id| items[*id].links(L).before.get()).inspect(|_| count_step())
    }

    pub(crate) fn push_front<T: Linked>(&mut self, items: &mut Slab<T>, id: usize) {
        let after = self.front.map_or(Neighbour::NONE, Neighbour::new);
        *items[id].links_mut(L) = Links { before: Neighbour::NONE, after };
        match self.front.replace(id) {
            Some(second) => items[second].links_mut(L).before = Neighbour::new(id),
            None => self.back = Some(id),
        }
        self.len += 1;
    }

    pub(crate) fn push_back<T: Linked>(&mut self, items: &mut Slab<T>, id: usize) {
        let before = self.back.map_or(Neighbour::NONE, Neighbour::new);
        *items[id].links_mut(L) = Links { before, after: Neighbour::NONE };
        match self.back.replace(id) {
            Some(second) => items[second].links_mut(L).after = Neighbour::new(id),
            None => self.front = Some(id),
        }
        self.len += 1;
    }

    pub(crate) fn remove<T: Linked>(&mut self, items: &mut Slab<T>, id: usize) {
        let Links { before, after } = std::mem::take(items[id].links_mut(L));
        match before.get() {
            Some(before) => items[before].links_mut(L).after = after,
            None => self.front = after.get(),
        }
        match after.get() {
            Some(after) => items[after].links_mut(L).before = before,
            None => self.back = before.get(),
        }
        self.len -= 1;
    }

    pub(crate) fn move_to_front<T: Linked>(&mut self, items: &mut Slab<T>, id: usize) {
        if self.front != Some(id) {
            self.remove(items, id);
            self.push_front(items, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[derive(Default)]
    struct Item(Links);

    impl Linked for Item {
        fn links(&self, _: usize) -> &Links {
            &self.0
        }

        fn links_mut(&mut self, _: usize) -> &mut Links {
            &mut self.0
        }
    }

    #[test]
    fn a_list_behaves_like_a_deque_under_random_operations() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut items = Slab::new();
        let mut list = List::<0>::default();
        let mut model = VecDeque::new();
        for _ in 0..5_000 {
            match random.u8(..5) {
                0 => {
                    let id = items.insert(Item::default());
                    list.push_front(&mut items, id);
                    model.push_front(id);
                }
                1 => {
                    let id = items.insert(Item::default());
                    list.push_back(&mut items, id);
                    model.push_back(id);
                }
                op if !model.is_empty() => {
                    let id = model.remove(random.usize(..model.len())).unwrap();
                    if op == 2 {
                        list.move_to_front(&mut items, id);
                        model.push_front(id);
                    } else {
                        list.remove(&mut items, id);
                        items.remove(id);
                    }
                }
                _ => {}
            }
            assert!(list.iter(&items).eq(model.iter().copied()));
            assert!(list.iter_back(&items).eq(model.iter().rev().copied()));
            assert_eq!(
                (list.len(), list.front(), list.back()),
                (model.len(), model.front().copied(), model.back().copied())
            );
        }
    }
}
