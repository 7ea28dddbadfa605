//! The record of a host, what is known of its server, and its figures. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::pool::state::hosts::host::Host;
use crate::pool::state::memory::{Facts, KnownServer};
use crate::pool::state::parts::State;
use crate::pool::state::values::{Counters, HostReport, PoolTypes, Speaks, Totals};

impl<T: PoolTypes> State<T> {
    /// Returns the index of a host, adding a record if it has none.
    #[inline]
    pub(super) fn host(&mut self, now: Instant, key: &T::Key) -> usize {
        if let Some(host) = self.hosts.find(key) {
            return host;
        }
        self.add_host(now, key)
    }

    #[cold]
    fn add_host(&mut self, now: Instant, key: &T::Key) -> usize {
        let facts = self.memory.take(now, key);
        let host = self.hosts.insert(Host::new(now, key.clone(), (self.profile)(key), facts));
        self.set_timer(host, self.hosts[host].dials.paused_until);
        host
    }

    /// Changes the facts about a host, whether it has a record or not.
    fn with_facts<R>(&mut self, now: Instant, key: &T::Key, change: impl FnOnce(&mut Facts) -> R) -> R {
        if let Some(host) = self.hosts.find(key) {
            return change(&mut self.hosts[host].facts);
        }
        let mut facts = self.memory.take(now, key);
        let result = change(&mut facts);
        self.memory.put(now, key, facts);
        result
    }

    /// Takes one resend from a host's allowance. Returns false if there is none left.
    pub(crate) fn may_resend(&mut self, now: Instant, key: &T::Key) -> bool {
        self.with_facts(now, key, |facts| facts.conduct.may_resend(now))
    }

    /// Returns what is known of servers, with the time since it was seen.
    pub(crate) fn known_servers(&self, now: Instant) -> Vec<(T::Key, KnownServer, Duration)> {
        let present = self.hosts.iter().map(|(_, host)| (&host.key, &*host.facts, host.open_conns() > 0));
        let known = present.chain(self.memory.iter(now).map(|(key, facts)| (key, facts, false)));
        let known = known.filter_map(|(key, facts, is_open)| {
            let (server, age) = facts.server(now)?;
            Some((key.clone(), server, if is_open { Duration::ZERO } else { age }))
        });
        known.collect()
    }

    /// Adds what was known of a server `age` ago, unless something is known of it already, or too much of others.
    pub(crate) fn restore_server(&mut self, now: Instant, key: &T::Key, server: KnownServer, age: Duration) {
        if !self.memory.is_full() {
            self.with_facts(now, key, |facts| facts.restore(now, server, age));
        }
    }

    /// Returns each host's figures, limits, and facts that are known about its server. The totals are those since the pool was
    /// made, and hosts without a record are among them.
    pub(crate) fn host_reports(&self, now: Instant) -> impl Iterator<Item = (&T::Key, HostReport)> {
        let present = self.hosts.iter().map(move |(_, host)| (&host.key, self.host_report(now, host)));
        let past = self.memory.iter(now).filter(|(_, facts)| facts.totals != Totals::default());
        present.chain(past.map(move |(key, facts)| (key, self.past_report(now, key, facts))))
    }

    fn host_report(&self, now: Instant, host: &Host<T::Key>) -> HostReport {
        let idle = self.conns.front_to_back(&host.conns.idle);
        let announced = idle.filter_map(|id| self.conns.open(id).keep_alive);
        let keep_alive = announced.chain(host.facts.idle_limit(now)).min();
        HostReport {
            counters: host.counters(),
            busy_time: host.busy_time(now),
            limits: host.limits,
            streams: (host.speaks == Speaks::Http2).then_some(host.conns.streams_per_conn),
            keep_alive,
        }
    }

    /// Returns the report of a host that has no record.
    fn past_report(&self, now: Instant, key: &T::Key, facts: &Facts) -> HostReport {
        let server = facts.server(now).map(|(server, _)| server);
        HostReport {
            counters: Counters { totals: facts.totals, ..Counters::default() },
            busy_time: facts.totals.held.sum(),
            limits: (self.profile)(key).limits,
            streams: server.filter(|server| server.speaks == Speaks::Http2).map(|server| server.streams),
            keep_alive: facts.idle_limit(now),
        }
    }

    /// Returns the figures of each host.
    pub(crate) fn host_counters(&self) -> impl Iterator<Item = (&T::Key, Counters)> {
        self.hosts.iter().map(|(_, host)| (&host.key, host.counters()))
    }
}
