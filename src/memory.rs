//! Facts that are remembered for a limited time and in a limited number, and tasks whose result several callers wait for. A core.

use std::borrow::Borrow;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;
use std::time::Duration;

use crate::clock::Instant;
use crate::world::RandomState;

/// A fact about each of a bounded number of things, with the time at which it was noted last. Where there is no room for another
/// thing, the half of them that was noted first is forgotten: one more costs the same on average, however many there are.
#[derive(Debug)]
pub(crate) struct Bounded<K, V> {
    facts: HashMap<K, Fact<V>, RandomState>,
    most: usize,
    /// The age from which on a fact does not count.
    max_age: Duration,
    /// The number of notes so far.
    notes: u64,
}

#[derive(Debug)]
struct Fact<V> {
    value: V,
    seen: Instant,
    /// The number of its last note: many may have the same time.
    note: u64,
}

impl<K: Eq + Hash, V> Bounded<K, V> {
    /// Creates an empty memory of at most this many things, whose facts count until they are this old.
    pub(crate) fn new(most: usize, max_age: Duration) -> Self {
        Self { facts: HashMap::default(), most, max_age, notes: 0 }
    }

    /// Returns the fact about a thing.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, now: Instant, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(now, key).map(|(value, _)| value)
    }

    /// Returns the fact about a thing, and its age.
    pub(crate) fn find<Q: Eq + Hash + ?Sized>(&self, now: Instant, key: &Q) -> Option<(&V, Duration)>
    where
        K: Borrow<Q>,
    {
        let fact = self.facts.get(key)?;
        self.age(now, fact).map(|age| (&fact.value, age))
    }

    /// Returns the fact about a thing, which does not become younger.
    pub(crate) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, now: Instant, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let fact = self.facts.get_mut(key).filter(|fact| now - fact.seen < self.max_age)?;
        Some(&mut fact.value)
    }

    /// Notes that there is something new about a thing, and returns its fact: `new` if none counts.
    pub(crate) fn note(&mut self, now: Instant, key: &K, new: impl FnOnce() -> V) -> &mut V
    where
        K: Clone,
    {
        if self.get_mut(now, key).is_none() {
            self.insert(now, key.clone(), new());
        }
        self.notes += 1;
        let fact = self.facts.get_mut(key).expect("it was found, or put there");
        (fact.seen, fact.note) = (now, self.notes);
        &mut fact.value
    }

    /// Replaces the fact about a thing.
    pub(crate) fn insert(&mut self, now: Instant, key: K, value: V) {
        if self.is_full() && !self.facts.contains_key(&key) {
            self.make_room();
        }
        self.put(now, key, value);
    }

    /// Adds a fact that was noted `age` before, unless one is there, it does not count, or there is no room.
    pub(crate) fn restore(&mut self, now: Instant, key: K, value: V, age: Duration) {
        if age < self.max_age && !self.is_full() && !self.facts.contains_key(&key) {
            self.put(now - age, key, value);
        }
    }

    /// Forgets a thing, and returns its fact.
    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, now: Instant, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let fact = self.facts.remove(key)?;
        self.age(now, &fact).map(|_| fact.value)
    }

    /// Returns the things with their facts and the ages of these.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = (&K, &V, Duration)> {
        self.facts.iter().filter_map(move |(key, fact)| Some((key, &fact.value, self.age(now, fact)?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.facts.iter_mut().map(|(key, fact)| (key, &mut fact.value))
    }

    /// Returns true if another thing would make others forgotten.
    pub(crate) fn is_full(&self) -> bool {
        self.facts.len() >= self.most
    }

    fn age(&self, now: Instant, fact: &Fact<V>) -> Option<Duration> {
        Some(now - fact.seen).filter(|age| *age < self.max_age)
    }

    fn put(&mut self, seen: Instant, key: K, value: V) {
        self.notes += 1;
        self.facts.insert(key, Fact { value, seen, note: self.notes });
    }

    #[cold]
    fn make_room(&mut self) {
        let mut notes: Vec<_> = self.facts.values().map(|fact| fact.note).collect();
        let middle = notes.len().div_ceil(2) - 1;
        let (_, middle, _) = notes.select_nth_unstable(middle);
        // Into a new table: removed entries would leave marks in the old one, which then doubles at some time although it has room.
        let mut kept = HashMap::with_capacity_and_hasher(self.most, RandomState::default());
        kept.extend(self.facts.drain().filter(|(_, fact)| fact.note > *middle));
        self.facts = kept;
    }
}

#[cfg(test)]
impl<K: Eq + Hash, V> Bounded<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.facts.len()
    }
}

/// The tasks that run, by the thing that each is for. `H` is the driver's handle on one, as [`Landing`](crate::sync::Landing).
#[derive(Debug)]
pub(crate) struct Flights<K, H> {
    running: HashMap<K, Flight<H>, RandomState>,
    last_serial: u64,
    max_time: Duration,
}

/// A task that runs. It ends with [`Flights::remove`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flight<H> {
    pub(crate) handle: H,
    /// Distinguishes the task from others for the same thing, and counts those that were begun.
    pub(crate) serial: u64,
    /// The time from which on it is taken for lost, and another one may replace it: its runtime is not driven.
    pub(crate) counts_until: Instant,
}

/// The flight to wait for.
pub(crate) enum Joined<H> {
    /// One that was running already.
    Running(Flight<H>),
    /// One that has just been added, for the driver to start.
    New(Flight<H>),
}

impl<K: Eq + Hash, H: Clone + Default> Flights<K, H> {
    /// Creates an empty table. A task that has run for `max_time` no longer counts.
    pub(crate) fn new(max_time: Duration) -> Self {
        Self { running: HashMap::default(), last_serial: 0, max_time }
    }

    /// Returns the task that runs for a thing, or adds one.
    pub(crate) fn join_or_add(&mut self, now: Instant, key: K) -> Joined<H> {
        let entry = self.running.entry(key);
        if let Entry::Occupied(running) = &entry
            && now < running.get().counts_until
        {
            return Joined::Running(running.get().clone());
        }
        self.last_serial += 1;
        let flight = Flight { handle: H::default(), serial: self.last_serial, counts_until: now + self.max_time };
        Joined::New(entry.insert_entry(flight).get().clone())
    }

    /// Gives the task that runs for a thing a new handle, because it is begun once more beside itself: whichever ends first is the one that
    /// counts. Returns `None` if it has ended.
    pub(crate) fn begin_beside(&mut self, key: &K, serial: u64) -> Option<Flight<H>> {
        let running = self.running.get_mut(key).filter(|flight| flight.serial == serial)?;
        running.handle = H::default();
        Some(running.clone())
    }

    /// Removes a task that has ended. Returns false if it had been replaced or forgotten, so that its result does not count.
    pub(crate) fn remove(&mut self, key: &K, serial: u64) -> bool {
        let is_current = self.running.get(key).is_some_and(|flight| flight.serial == serial);
        if is_current {
            self.running.remove(key);
        }
        is_current
    }

    pub(crate) fn is_running(&self, now: Instant, key: &K) -> bool {
        self.running.get(key).is_some_and(|flight| now < flight.counts_until)
    }

    /// Forgets the task for a thing. Its result does not count.
    pub(crate) fn forget(&mut self, key: &K) {
        self.running.remove(key);
    }

    /// Forgets all tasks. Their results do not count.
    pub(crate) fn forget_all(&mut self) {
        self.running.clear();
    }

    #[cfg(test)]
    pub(crate) fn serial(&self, key: &K) -> u64 {
        self.running[key].serial
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_fact_counts_until_it_is_too_old_and_a_note_makes_it_younger() {
        let (mut facts, start) = (Bounded::new(9, ms(100)), crate::clock::now());
        let at = |at| start + ms(at);
        assert_eq!(facts.get(start, "a"), None);
        facts.note(at(0), &"a", || 1);
        assert_eq!((facts.find(at(99), "a"), facts.get(at(100), "a")), (Some((&1, ms(99))), None));
        *facts.note(at(50), &"a", || 7) += 1;
        assert_eq!(facts.iter(at(60)).collect::<Vec<_>>(), [(&"a", &2, ms(10))]);
        *facts.get_mut(at(149), "a").unwrap() += 1;
        assert_eq!(facts.get(at(149), "a"), Some(&3));
        assert_eq!(facts.get_mut(at(150), "a"), None);
        assert_eq!(facts.iter(at(150)).count(), 0);
        assert_eq!(facts.note(at(150), &"a", || 9), &9, "it begins anew");
        facts.insert(at(151), "a", 10);
        assert_eq!((facts.remove(at(251), "a"), facts.len()), (None, 0));
        facts.insert(at(251), "a", 11);
        assert_eq!(facts.remove(at(251), "a"), Some(11));
    }

    #[test]
    fn what_is_restored_has_its_age_and_replaces_and_displaces_nothing() {
        let (mut facts, now) = (Bounded::new(2, ms(100)), crate::clock::now());
        facts.restore(now, "old", 1, ms(100));
        facts.restore(now, "a", 2, ms(60));
        facts.restore(now, "a", 3, ms(0));
        assert_eq!((facts.find(now, "a"), facts.get(now + ms(40), "a")), (Some((&2, ms(60))), None));
        facts.restore(now, "b", 4, ms(0));
        facts.restore(now, "c", 5, ms(0));
        assert_eq!((facts.len(), facts.get(now, "c")), (2, None));
    }

    /// All in the same moment, so that times do not tell which is older.
    #[test]
    fn the_half_that_was_noted_first_makes_room() {
        for most in 1..9 {
            let (mut facts, now) = (Bounded::new(most, Duration::MAX), crate::clock::now());
            (0..most).for_each(|thing| facts.insert(now, thing, thing));
            facts.note(now, &0, || unreachable!());
            assert!(facts.is_full());
            facts.insert(now, most - 1, 99);
            assert_eq!(facts.len(), most, "what is there needs no room");
            facts.insert(now, most, most);
            assert!(facts.len() <= most / 2 + 1 && facts.get(now, &most).is_some(), "{facts:?}");
            assert_eq!(facts.get(now, &0).is_some(), most > 3, "it was noted again: {facts:?}");
        }
    }

    #[test]
    fn it_grows_beyond_its_bound_neither_in_things_nor_in_memory() {
        let (mut facts, now) = (Bounded::new(1_024, Duration::MAX), crate::clock::now());
        let mut capacity = 0;
        for thing in 0..100_000_u32 {
            facts.insert(now, thing, ());
            assert!(facts.len() <= 1_024);
            if thing == 1_024 {
                capacity = facts.facts.capacity();
            }
        }
        assert!(facts.len() >= 512 && facts.get(now, &99_999).is_some());
        assert_eq!(facts.facts.capacity(), capacity);
    }
}

#[cfg(test)]
mod flights_tests {
    use super::*;

    #[test]
    fn one_task_runs_for_a_thing_until_its_time_is_over() {
        let now = crate::clock::now();
        let mut flights = Flights::<_, ()>::new(Duration::from_secs(10));
        let Joined::New(first) = flights.join_or_add(now, "a") else { panic!("nothing runs") };
        let Joined::Running(same) = flights.join_or_add(now, "a") else { panic!("it runs") };
        assert_eq!((first.serial, same.serial), (1, 1));
        assert!(matches!(flights.join_or_add(now, "b"), Joined::New(_)));
        let late = now + Duration::from_secs(10);
        assert!(!flights.is_running(late, &"a"));
        let Joined::New(second) = flights.join_or_add(late, "a") else { panic!("its time is over") };
        assert!(!flights.remove(&"a", first.serial), "it was replaced");
        assert!(flights.begin_beside(&"a", first.serial).is_none());
        assert_eq!(flights.begin_beside(&"a", second.serial), Some(second.clone()));
        assert!(flights.remove(&"a", second.serial));
        assert!(flights.begin_beside(&"a", second.serial).is_none() && !flights.remove(&"a", second.serial));
        assert!(!flights.is_running(now, &"a") && flights.is_running(now, &"b"));
        flights.forget(&"b");
        assert_eq!(flights.len(), 0);
    }
}
