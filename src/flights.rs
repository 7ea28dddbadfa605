//! A core: single flights, the tasks whose end many wait for. At most one runs for each thing.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;
use std::time::Duration;

use crate::clock::Instant;
use crate::world::RandomState;

/// The tasks that run, by the thing that each is for. `H` is the driver's handle on one, as [`Landing`](crate::sync::landing::Landing).
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
