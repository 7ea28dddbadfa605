//! The totals of hosts that had neither connections nor requests for a moment, so that their record was removed. A core.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::counters::Totals;

/// The totals of hosts from the times before their present record.
#[derive(Debug)]
pub(super) struct PastTotals<K> {
    hosts: HashMap<K, Past, RandomState>,
}

/// The past of a host.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Past {
    pub(super) totals: Totals,
    /// The streams of its last connection, if that spoke HTTP/2.
    pub(super) streams: Option<usize>,
    /// The server's last `Keep-Alive: timeout`.
    pub(super) keep_alive: Option<Duration>,
    /// The number of requests, so that the host with the fewest is found without adding up the totals.
    requests: u64,
}

/// The most hosts that are remembered.
const MOST_HOSTS: usize = 256;

impl<K> Default for PastTotals<K> {
    fn default() -> Self {
        Self { hosts: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> PastTotals<K> {
    /// Adds what a record held that is removed.
    pub(super) fn add(&mut self, key: &K, removed: &Past) {
        if removed.totals == Totals::default() {
            return;
        }
        if let Some(past) = self.hosts.get_mut(key) {
            past.totals.add_later(&removed.totals);
            past.requests = past.totals.held.count();
            past.streams = removed.streams;
            past.keep_alive = removed.keep_alive;
            return;
        }
        if self.hosts.len() >= MOST_HOSTS {
            self.forget_smallest();
        }
        self.hosts.insert(key.clone(), Past { requests: removed.totals.held.count(), ..*removed });
    }

    /// Returns the past of a host.
    pub(super) fn get(&self, key: &K) -> Option<&Past> {
        self.hosts.get(key)
    }

    /// Returns the past of each host that is remembered.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &Past)> {
        self.hosts.iter()
    }

    /// Forgets a host with the fewest requests.
    fn forget_smallest(&mut self) {
        let smallest = self.hosts.iter().min_by_key(|(_, past)| past.requests).map(|(key, _)| key.clone());
        if let Some(key) = smallest {
            self.hosts.remove(&key);
        }
    }
}

impl Past {
    pub(super) fn new(totals: Totals, streams: Option<usize>, keep_alive: Option<Duration>) -> Self {
        Self { totals, streams, keep_alive, requests: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(requests: u64, most_leased: usize) -> Past {
        let mut past = Past::default();
        (0..requests).for_each(|_| past.totals.held.add(Duration::from_millis(1).into()));
        past.totals.opened = 1;
        past.totals.most_leased = most_leased;
        past
    }

    #[test]
    fn the_totals_of_a_host_add_up() {
        let mut all = PastTotals::default();
        all.add(&1, &past(3, 2));
        assert_eq!(all.get(&1).unwrap().requests, 3);
        all.add(&1, &Past { keep_alive: Some(Duration::from_secs(4)), ..past(5, 1) });
        let known = all.get(&1).unwrap();
        assert_eq!((known.requests, known.totals.opened, known.totals.most_leased), (8, 2, 2));
        assert_eq!(known.keep_alive, Some(Duration::from_secs(4)));
    }

    #[test]
    fn a_record_without_events_is_not_remembered() {
        let mut all = PastTotals::default();
        all.add(&1, &Past::default());
        assert_eq!(all.iter().count(), 0);
    }

    #[test]
    fn the_hosts_with_the_fewest_requests_make_room() {
        let mut all = PastTotals::default();
        all.add(&0, &past(100, 1));
        for host in 1..1_000 {
            all.add(&host, &past(1, 1));
            assert!(all.iter().count() <= MOST_HOSTS);
        }
        assert!(all.get(&0).is_some() && all.get(&999).is_some());
        assert_eq!(all.iter().count(), MOST_HOSTS, "one host makes room for one, though all have one request");
    }
}
