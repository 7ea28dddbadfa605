//! The running queries: at most one for a name and family. A core: it is given the time.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::world::RandomState;

use super::types::Query;
use crate::clock::Instant;
use crate::dns::Family;

/// The running queries, each with the driver's handle `H`.
pub(super) struct Queries<H> {
    running: HashMap<(Arc<str>, Family), Query<H>, RandomState>,
    last_serial: u64,
    max_query_time: Duration,
}

/// The query to wait for.
pub(super) enum Joined<H> {
    /// A query that was running already.
    Running(Query<H>),
    /// A query that has just been added, for the driver to start.
    New(Query<H>),
}

impl<H: Clone + Default> Queries<H> {
    /// Creates an empty table. A query that runs for `max_query_time` no longer counts.
    pub(super) fn new(max_query_time: Duration) -> Self {
        Self { running: HashMap::default(), last_serial: 0, max_query_time }
    }

    /// Returns the query that runs for a name and family, or adds one.
    pub(super) fn join_or_add(&mut self, now: Instant, name: &str, family: Family) -> Joined<H> {
        let entry = self.running.entry((name.into(), family));
        if let Entry::Occupied(running) = &entry
            && now < running.get().counts_until
        {
            return Joined::Running(running.get().clone());
        }
        self.last_serial += 1;
        let counts_until = now + self.max_query_time;
        let query = Query { handle: H::default(), serial: self.last_serial, counts_until };
        Joined::New(entry.insert_entry(query).get().clone())
    }

    /// Removes a query that has ended. Returns false if it had been replaced or forgotten, so that its result does not count.
    pub(super) fn remove(&mut self, name: &str, family: Family, serial: u64) -> bool {
        let key = (name.into(), family);
        let is_current = self.running.get(&key).is_some_and(|query| query.serial == serial);
        if is_current {
            self.running.remove(&key);
        }
        is_current
    }

    pub(super) fn is_running(&self, name: &str, family: Family) -> bool {
        self.running.contains_key(&(name.into(), family))
    }

    /// Forgets the queries for a name. Their results do not count.
    pub(super) fn forget(&mut self, name: &str) {
        for family in Family::BOTH {
            self.running.remove(&(name.into(), family));
        }
    }

    /// Forgets all queries. Their results do not count.
    pub(super) fn forget_all(&mut self) {
        self.running.clear();
    }

    #[cfg(test)]
    pub(super) fn serial(&self, name: &str, family: Family) -> u64 {
        self.running[&(name.into(), family)].serial
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::{V4, V6};

    #[test]
    fn one_query_runs_for_a_name_and_family_until_its_time_is_over() {
        let now = crate::clock::now();
        let mut queries = Queries::<()>::new(Duration::from_secs(10));
        let Joined::New(first) = queries.join_or_add(now, "n", V4) else { panic!("nothing runs") };
        let Joined::Running(same) = queries.join_or_add(now, "n", V4) else { panic!("it runs") };
        assert_eq!((first.serial, same.serial), (1, 1));
        assert!(matches!(queries.join_or_add(now, "n", V6), Joined::New(_)));
        let late = now + Duration::from_secs(10);
        let Joined::New(second) = queries.join_or_add(late, "n", V4) else { panic!("its time is over") };
        assert!(!queries.remove("n", V4, first.serial), "it was replaced");
        assert!(queries.remove("n", V4, second.serial));
        assert!(!queries.is_running("n", V4) && queries.is_running("n", V6));
        queries.forget("n");
        assert_eq!(queries.len(), 0);
    }
}
