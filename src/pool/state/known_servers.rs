//! The facts about servers that outlive their connections: the protocol, and how many requests at a time. A core.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::types::Speaks;
use crate::clock::Instant;

/// The facts about a server, as connections to it have shown them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownServer {
    /// The protocol of the connection that was opened last.
    pub(crate) speaks: Speaks,
    /// The number of requests at a time that a connection takes.
    pub(crate) streams: usize,
    /// The server's last `Keep-Alive: timeout`.
    pub(crate) keep_alive: Option<Duration>,
    /// The idle timeout that the server was seen to have, less a margin.
    pub(crate) idle_limit: Option<Duration>,
}

/// The facts about servers, by host.
#[derive(Debug)]
pub(super) struct KnownServers<K> {
    hosts: HashMap<K, (KnownServer, Instant), RandomState>,
}

/// The time after which the facts are forgotten, unless another connection has shown them again.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
/// The most hosts that are remembered. Beyond that, the older half is forgotten.
const MOST_HOSTS: usize = 1_024;

impl<K> Default for KnownServers<K> {
    fn default() -> Self {
        Self { hosts: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> KnownServers<K> {
    /// Notes what a connection has shown.
    pub(super) fn note(&mut self, now: Instant, host: &K, server: KnownServer) {
        if let Some(known) = self.hosts.get_mut(host) {
            *known = (server, now);
            return;
        }
        if self.hosts.len() >= MOST_HOSTS {
            self.forget_older_half();
        }
        self.hosts.insert(host.clone(), (server, now));
    }

    /// Returns what is known of a host.
    pub(super) fn get(&self, now: Instant, host: &K) -> Option<KnownServer> {
        let (server, seen) = self.hosts.get(host)?;
        if now - *seen < REMEMBERED { Some(*server) } else { None }
    }

    /// Forgets a host, whose settings have changed.
    pub(super) fn forget(&mut self, host: &K) {
        self.hosts.remove(host);
    }

    /// Returns all that is known, with the time since it was seen.
    pub(super) fn iter(&self, now: Instant) -> impl Iterator<Item = (&K, KnownServer, Duration)> {
        let known = self.hosts.iter().map(move |(host, (server, seen))| (host, *server, now - *seen));
        known.filter(|(_, _, age)| *age < REMEMBERED)
    }

    /// Adds what was known `age` ago, unless the host is known already, or it is too old.
    pub(super) fn restore(&mut self, now: Instant, host: &K, server: KnownServer, age: Duration) {
        if age < REMEMBERED && self.hosts.len() < MOST_HOSTS && !self.hosts.contains_key(host) {
            self.hosts.insert(host.clone(), (server, now - age));
        }
    }

    fn forget_older_half(&mut self) {
        let mut times: Vec<_> = self.hosts.values().map(|(_, seen)| *seen).collect();
        let (_, middle, _) = times.select_nth_unstable(MOST_HOSTS / 2);
        let middle = *middle;
        self.hosts.retain(|_, (_, seen)| *seen > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: KnownServer = KnownServer { speaks: Speaks::Http2, streams: 9, keep_alive: None, idle_limit: None };

    #[test]
    fn a_server_is_known_for_an_hour_after_it_was_seen() {
        let (mut known, now) = (KnownServers::default(), crate::clock::now());
        known.note(now, &1, SERVER);
        assert_eq!((known.get(now, &1), known.get(now, &2)), (Some(SERVER), None));
        assert_eq!(known.get(now + REMEMBERED, &1), None);
        assert_eq!(known.iter(now + REMEMBERED).count(), 0);
        known.note(now, &1, SERVER);
        known.forget(&1);
        assert_eq!(known.get(now, &1), None);
    }

    #[test]
    fn what_is_restored_is_as_old_as_it_was_and_replaces_nothing() {
        let (mut known, now) = (KnownServers::default(), crate::clock::now());
        known.restore(now, &1, SERVER, REMEMBERED);
        assert_eq!(known.get(now, &1), None, "it is too old");
        known.restore(now, &1, SERVER, REMEMBERED / 2);
        known.restore(now, &1, KnownServer { streams: 1, ..SERVER }, Duration::ZERO);
        assert_eq!(known.get(now, &1), Some(SERVER));
        assert_eq!(known.get(now + REMEMBERED / 2, &1), None);
    }

    #[test]
    fn the_number_of_hosts_is_bounded_and_the_newest_are_kept() {
        let (mut known, start) = (KnownServers::default(), crate::clock::now());
        for host in 0..5_000_u32 {
            let now = start + Duration::from_millis(host.into());
            known.note(now, &host, SERVER);
            assert!(known.hosts.len() <= MOST_HOSTS && known.get(now, &host).is_some());
        }
        let now = start + Duration::from_secs(5);
        for host in 10_000..20_000 {
            known.restore(now, &host, SERVER, Duration::ZERO);
        }
        assert!(known.hosts.len() <= MOST_HOSTS && known.get(now, &4_999).is_some());
    }

    #[test]
    fn the_older_half_makes_room_for_one_more() {
        let (mut known, start) = (KnownServers::default(), crate::clock::now());
        for host in 0..1_025_u32 {
            known.note(start + Duration::from_millis(host.into()), &host, SERVER);
        }
        let mut kept: Vec<_> = known.hosts.keys().copied().collect();
        kept.sort_unstable();
        assert_eq!(kept, (513..1_025).collect::<Vec<_>>());
    }
}
