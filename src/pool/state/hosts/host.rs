//! The record of a host: its limits, connections, dials and queue. A core.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use crate::world::RandomState;
use slab::Slab;

use super::queue::Queue;
use crate::clock::Instant;
use crate::list::{Linked, Links, List, count_step};
use crate::pool::config::Limits;
use crate::pool::state::balance::{Balance, Places};
use crate::pool::state::dials::{HostDials, PROBE_WINDOW, Usual};
use crate::pool::state::memory::{Facts, KnownServer};
use crate::pool::state::values::conn::BY_HOST;
use crate::pool::state::values::{Counters, Profile, Speaks};
use crate::pool::state::warm::Warm;
use crate::trace::Limit;

/// All hosts that have connections or requests, or are kept warm, by index and by key.
pub(in crate::pool::state) struct Hosts<K> {
    pub(in crate::pool::state) slab: Slab<Host<K>>,
    index: HashMap<K, usize, RandomState>,
    /// The balanced hosts, by name: mostly there is none.
    balanced: HashMap<Arc<str>, Vec<usize>, RandomState>,
}

/// A host that has connections or requests, or is kept warm.
pub(in crate::pool::state) struct Host<K> {
    pub(in crate::pool::state) key: K,
    pub(in crate::pool::state) limits: Limits,
    /// The protocol of the connection that was opened last. Before the first one, the protocol that is known beforehand.
    pub(in crate::pool::state) speaks: Speaks,
    /// The addresses over which requests are balanced, if they are.
    pub(in crate::pool::state) balance: Option<Box<Balance>>,
    pub(in crate::pool::state) conns: HostConns,
    pub(in crate::pool::state) dials: HostDials,
    pub(in crate::pool::state) queue: Queue,
    /// The time of the host's timer, if it is set.
    pub(in crate::pool::state) timer: Option<Instant>,
    /// True if the host stands in the list of those that take turns.
    pub(in crate::pool::state) is_contender: bool,
    /// True if the host stands in the list of those in trouble that have more dials than their share.
    pub(in crate::pool::state) is_beyond_share: bool,
    pub(in crate::pool::state) facts: Box<Facts>,
    /// The record of a host that is kept warm.
    pub(in crate::pool::state) warm: Option<Box<Warm>>,
    links: [Links; 3],
}

/// A host's connections.
#[derive(Default)]
pub(in crate::pool::state) struct HostConns {
    /// Records of connections: those with a slot, and leased ones whose socket is closed.
    pub(in crate::pool::state) records: usize,
    /// Slots taken by connections and dials.
    pub(in crate::pool::state) slots: usize,
    /// Connections that take requests, and dials.
    pub(in crate::pool::state) usable: usize,
    /// Open usable connections that speak HTTP/1.
    pub(in crate::pool::state) http1: usize,
    /// Connections with requests.
    pub(in crate::pool::state) busy: usize,
    /// Requests that have a connection.
    pub(in crate::pool::state) leased: usize,
    /// The sum of the times at which these requests got their connection, in nanoseconds. It may wrap around.
    pub(in crate::pool::state) leased_since: u64,
    /// Connections without a request, the most recently used in front.
    pub(in crate::pool::state) idle: List<BY_HOST>,
    /// Busy connections with a free stream.
    pub(in crate::pool::state) shared: List<BY_HOST>,
    /// The number of streams that a new connection is expected to have.
    pub(in crate::pool::state) streams_per_conn: usize,
    /// HTTP/2 connections whose peer has not announced its number of streams yet.
    pub(in crate::pool::state) unannounced: usize,
}

/// The most connections to an address of a server that takes no requests on them. Another one may lead to another server.
const MOST_WITHOUT_STREAMS: usize = 3;

impl<K> Linked for Host<K> {
    fn links(&self, list: usize) -> &Links {
        &self.links[list]
    }

    fn links_mut(&mut self, list: usize) -> &mut Links {
        &mut self.links[list]
    }
}

impl<K> Host<K> {
    /// Creates the record of a host without connections, of which these facts are known from earlier ones.
    pub(in crate::pool::state) fn new(now: Instant, key: K, profile: Profile, mut facts: Box<Facts>) -> Self {
        let Profile { limits, speaks, balanced } = profile;
        let server = facts.server(now).map(|(server, _)| server);
        let balance = balanced.map(|host| {
            let rested = facts.resting.take(now, &host, limits.ejection);
            rested.unwrap_or_else(|| Box::new(Balance::new(host, limits.ejection, limits.idle_timeout)))
        });
        let streams = server.map_or(limits.max_streams, |known| known.streams.clamp(1, limits.max_streams));
        let conns = HostConns { streams_per_conn: streams, ..HostConns::default() };
        let mut dials = HostDials::default();
        dials.paused_until = facts.conduct.paused_until(now).filter(|_| balance.is_none());
        dials.usual = server.map_or_else(Usual::default, |_| facts.usual_dial);
        Self {
            key,
            limits,
            speaks: server.filter(|_| speaks == Speaks::Unknown).map_or(speaks, |known| known.speaks),
            balance,
            conns,
            dials,
            queue: Queue::default(),
            timer: None,
            is_contender: false,
            is_beyond_share: false,
            facts,
            warm: None,
            links: Default::default(),
        }
    }

    /// Remembers what the host's connections have shown of its server.
    pub(in crate::pool::state) fn note_server(&mut self, now: Instant) {
        let (speaks, streams) = (self.speaks, self.conns.streams_per_conn);
        self.facts.note_server(now, KnownServer { speaks, streams, idle_limit: None });
    }

    /// Returns true if the host has neither connections nor requests and is not kept warm.
    pub(in crate::pool::state) fn is_unused(&self) -> bool {
        self.conns.records == 0 && self.queue.is_empty() && self.warm.is_none()
    }

    /// Returns the number of dials that no request waits for.
    pub(in crate::pool::state) fn spare_dials(&self) -> usize {
        self.dials.young.len().saturating_sub(self.queue.len().div_ceil(self.requests_per_dial(false)))
    }

    /// Returns true if fewer than `wanted` connections have a free stream, because others are busy.
    pub(in crate::pool::state) fn is_too_busy(&self, wanted: usize) -> bool {
        let free = self.conns.idle.len() + self.conns.shared.len() + self.spare_dials();
        free < wanted && self.conns.usable >= wanted
    }

    /// Returns the number of connections with a free stream that are to be kept open, as far as the host's own limits allow them.
    pub(in crate::pool::state) fn min_idle(&self) -> usize {
        let Limits { min_idle, max_idle, max_connections, max_http2_connections, .. } = self.limits;
        let most = if self.speaks == Speaks::Http2 { max_http2_connections } else { usize::MAX };
        min_idle.min(max_idle).min(max_connections).min(most)
    }

    /// Returns the number of open connections that take requests.
    pub(in crate::pool::state) fn open_conns(&self) -> usize {
        self.conns.usable.saturating_sub(self.dials.in_flight)
    }

    /// Returns the number of connections that speak HTTP/2, or may turn out to: slow dials do not count. Servers behind one host need
    /// not agree.
    pub(in crate::pool::state) fn http2_conns(&self) -> usize {
        self.open_conns() - self.conns.http1 + self.dials.young.len()
    }

    /// Returns true if no connection is opened for a while: the server asked for that, or each address of a balanced host did, or ports have
    /// run out.
    pub(in crate::pool::state) fn is_paused(&self, now: Instant) -> bool {
        let balance = self.balance.as_ref();
        self.dials.paused_until.is_some() || balance.is_some_and(|balance| balance.is_paused(now))
    }

    /// Returns true if the host's own limits allow another connection.
    pub(in crate::pool::state) fn has_room(&self, now: Instant) -> bool {
        if self.conns.slots >= self.limits.max_connections {
            return false;
        }
        self.speaks != Speaks::Http2 || self.http2_room(now) > 0
    }

    /// Returns the number of further connections over HTTP/2 that the limit allows. If requests are balanced over the host's addresses, each
    /// address has the limit for itself, and connections to those out of use take no place.
    pub(in crate::pool::state) fn http2_room(&self, now: Instant) -> usize {
        let most = self.max_http2_conns();
        match self.balance.as_ref().and_then(|balance| balance.places(now, most)) {
            Some(Places { free, aimed }) => free.saturating_sub(self.dials.young.len().saturating_sub(aimed)),
            None => most.saturating_sub(self.http2_conns()),
        }
    }

    /// Returns true if there are more connections over HTTP/2 than the limit allows: to this address, if the host is balanced.
    pub(in crate::pool::state) fn has_too_many_http2(&self, address: Option<usize>) -> bool {
        let conns = match self.balance.as_ref().zip(address) {
            Some((balance, key)) => balance.conns(key),
            None => self.http2_conns(),
        };
        conns > self.max_http2_conns()
    }

    /// Returns the most connections that speak HTTP/2, for each address if the host is balanced.
    fn max_http2_conns(&self) -> usize {
        let most = self.limits.max_http2_connections;
        if self.allows_no_request() { most.min(MOST_WITHOUT_STREAMS) } else { most }
    }

    /// Returns true if the server has said last that it takes no requests on a connection.
    pub(in crate::pool::state) fn allows_no_request(&self) -> bool {
        self.conns.streams_per_conn == 0
    }

    /// Returns the most connections to one address of a balanced host.
    pub(in crate::pool::state) fn max_conns_per_address(&self) -> usize {
        if self.speaks == Speaks::Http2 { self.limits.max_http2_connections } else { usize::MAX }
    }

    /// Returns true if the host's limits do not allow one of its idle connections.
    pub(in crate::pool::state) fn has_idle_to_close(&self) -> bool {
        self.conns.idle.len() > self.limits.max_idle || self.conns.usable > self.limits.max_connections
    }

    /// Returns true if the queue stands still: the window delays no dial any longer.
    fn stands_still(&self, now: Instant) -> bool {
        self.queue.fresh_since.is_some_and(|since| self.dials.stand_still(now, since, self.queue.len()))
    }

    /// Returns the number of requests that one dial will serve, as far as can be relied on.
    fn requests_per_dial(&self, stands_still: bool) -> usize {
        match self.speaks {
            Speaks::Http1 => 1,
            _ if self.dials.are_in_trouble() => 1,
            Speaks::Http2 => self.conns.streams_per_conn.max(1),
            Speaks::Unknown if stands_still => 1,
            Speaks::Unknown => usize::MAX,
        }
    }

    /// Returns the number of connections that will have streams soon: dials that are not slow, and connections whose peer is about to
    /// say how many it takes.
    fn coming(&self, now: Instant) -> usize {
        let are_expected = self.dials.settings_by.is_some_and(|by| now < by);
        self.dials.young.len() + if are_expected { self.conns.unannounced } else { 0 }
    }

    /// Returns the number of further dials that the window allows.
    fn free_window(&self, now: Instant, stands_still: bool) -> usize {
        let is_probed = self.speaks == Speaks::Unknown && !self.dials.are_in_trouble();
        let window = match (stands_still, is_probed) {
            (true, _) => usize::MAX,
            (false, true) => PROBE_WINDOW,
            (false, false) => self.dials.window(now, self.queue.len()),
        };
        window.min(self.limits.max_dials).saturating_sub(self.dials.young.len())
    }

    /// Returns true if a dial may begin that no request waits for, as far as the host is concerned.
    pub(in crate::pool::state) fn may_dial_ahead(&self, now: Instant) -> bool {
        !self.is_paused(now) && self.free_window(now, false) > 0 && self.has_room(now)
    }

    /// Returns true if an HTTP/2 host may be dialled for one request though another dial would do for it, as far as the host is
    /// concerned.
    pub(in crate::pool::state) fn may_dial_extra(&self, now: Instant) -> bool {
        self.speaks == Speaks::Http2
            && !self.is_paused(now)
            && self.dials.young.len() < self.limits.max_dials
            && self.has_room(now)
    }

    /// Returns the number of dials the host would begin for its requests and `more` others if the total allowed them.
    pub(in crate::pool::state) fn wanted_dials(&self, now: Instant, more: usize) -> usize {
        let slots = self.limits.max_connections.saturating_sub(self.conns.slots);
        self.needed_dials(now, more).min(slots)
    }

    /// Returns the number of dials the host would begin for its requests and `more` others if there were room for any number of
    /// connections.
    pub(in crate::pool::state) fn needed_dials(&self, now: Instant, more: usize) -> usize {
        let waiting = self.queue.len() + more;
        if waiting == 0 || self.is_paused(now) {
            return 0;
        }
        let stands_still = self.stands_still(now);
        let lacking = waiting.div_ceil(self.requests_per_dial(stands_still)).saturating_sub(self.coming(now));
        if lacking == 0 {
            return 0;
        }
        let first = self.queue.fresh.len() + more;
        let again = self.dials.allowed_again(now, first > 0).min(self.queue.again.len());
        let allowed = match self.speaks {
            Speaks::Http2 => self.http2_room(now),
            _ => usize::MAX,
        };
        lacking.min(first + again).min(allowed).min(self.free_window(now, stands_still))
    }

    /// Returns true if connections that are being opened will have a stream for each request and `more` others.
    pub(in crate::pool::state) fn will_have_streams(&self, now: Instant, more: usize) -> bool {
        let per_dial = self.requests_per_dial(self.stands_still(now));
        self.queue.len() + more <= self.coming(now).saturating_mul(per_dial)
    }

    /// Returns the limit of the host that keeps it from dialling for the last of its requests and `more` others, if there is one.
    pub(in crate::pool::state) fn binding_limit(&self, now: Instant, more: usize) -> Option<Limit> {
        if self.is_paused(now) {
            let is_asked_for = self.facts.conduct.paused_until(now).is_some();
            return Some(if is_asked_for { Limit::EnhanceYourCalm } else { Limit::Ports });
        }
        if self.dials.young.is_empty() && self.conns.unannounced > 0 {
            return Some(Limit::Settings);
        }
        if self.will_have_streams(now, more) {
            Some(Limit::Opening)
        } else if self.conns.slots >= self.limits.max_connections {
            Some(Limit::ConnectionsPerHost)
        } else if !self.has_room(now) && self.open_conns() == 0 {
            // As many connections as there may be are being opened.
            Some(Limit::Opening)
        } else if !self.has_room(now) {
            Some(Limit::Streams)
        } else if self.dials.young.len() >= self.limits.max_dials {
            Some(Limit::Dials)
        } else {
            None
        }
    }

    /// Returns the time for which requests have held connections up to now, those that still do included.
    pub(in crate::pool::state) fn busy_time(&self, now: Instant) -> Duration {
        let holding = (self.conns.leased as u64).wrapping_mul(now.nanos()).wrapping_sub(self.conns.leased_since);
        self.facts.totals.held.sum().saturating_add(Duration::from_nanos(holding))
    }

    /// Returns the host's figures.
    pub(in crate::pool::state) fn counters(&self) -> Counters {
        let in_use = self.dials.in_flight + self.conns.busy + self.conns.idle.len();
        Counters {
            dialling: self.dials.in_flight,
            busy: self.conns.busy,
            leased: self.conns.leased,
            idle: self.conns.idle.len(),
            closing: self.conns.records - in_use,
            waiting: self.queue.len(),
            totals: self.facts.totals,
            ..Counters::default()
        }
    }
}

impl<K> Default for Hosts<K> {
    fn default() -> Self {
        Self { slab: Slab::new(), index: HashMap::default(), balanced: HashMap::default() }
    }
}

impl<K> Hosts<K> {
    /// Returns all hosts.
    pub(in crate::pool::state) fn iter(&self) -> impl Iterator<Item = (usize, &Host<K>)> {
        self.slab.iter().inspect(|_| count_step())
    }
}

impl<K: Clone + Eq + Hash> Hosts<K> {
    /// Returns the index of the host with this key.
    #[inline]
    pub(in crate::pool::state) fn find(&self, key: &K) -> Option<usize> {
        self.index.get(key).copied()
    }

    /// Adds a host.
    pub(in crate::pool::state) fn insert(&mut self, host: Host<K>) -> usize {
        let key = host.key.clone();
        let name = host.balance.as_ref().map(|balance| balance.name().clone());
        let index = self.slab.insert(host);
        if let Some(name) = name {
            self.balanced.entry(name).or_default().push(index);
        }
        self.index.insert(key, index);
        index
    }

    /// Returns true if a balanced host has this name.
    pub(in crate::pool::state) fn is_balanced(&self, name: &str) -> bool {
        !self.balanced.is_empty() && self.balanced.contains_key(name)
    }

    /// Returns the balanced hosts with this name.
    pub(in crate::pool::state) fn balanced(&self, name: &str) -> Vec<usize> {
        self.balanced.get(name).cloned().unwrap_or_default()
    }

    /// Removes a host.
    pub(in crate::pool::state) fn remove(&mut self, index: usize) -> Host<K> {
        let host = self.slab.remove(index);
        self.index.remove(&host.key);
        if let Some(balance) = &host.balance
            && let Some(of_name) = self.balanced.get_mut(balance.name())
        {
            of_name.retain(|other| *other != index);
            if of_name.is_empty() {
                self.balanced.remove(balance.name());
            }
        }
        host
    }
}

impl<K> Index<usize> for Hosts<K> {
    type Output = Host<K>;

    #[inline]
    fn index(&self, index: usize) -> &Host<K> {
        &self.slab[index]
    }
}

impl<K> IndexMut<usize> for Hosts<K> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Host<K> {
        &mut self.slab[index]
    }
}

#[cfg(test)]
mod tests {
    use super::super::connections::Connections;
    use super::*;
    use crate::pool::config::PoolConfig;
    use crate::pool::state::tests::TestTypes;
    use crate::pool::state::values::BalancedHost;
    use crate::pool::state::values::conn::Dialling;

    fn host(config: &PoolConfig, speaks: Speaks) -> Host<u8> {
        Host::new(
            crate::clock::now(),
            1,
            Profile { limits: config.limits_for("", 0), speaks, balanced: None },
            Box::default(),
        )
    }

    /// Returns how many dials a host wants for so many requests.
    fn wanted(host: &Host<u8>, requests: usize) -> usize {
        host.wanted_dials(crate::clock::now(), requests)
    }

    #[test]
    fn an_http1_host_wants_a_dial_for_each_request_within_its_limits() {
        let mut host = host(&PoolConfig::new().max_connections_per_host(3), Speaks::Http1);
        assert_eq!([0, 2, 9].map(|requests| wanted(&host, requests)), [0, 2, 3]);
        host.conns.slots = 2;
        assert_eq!((wanted(&host, 9), host.has_room(crate::clock::now())), (1, true));
        host.conns.slots = 3;
        assert_eq!((wanted(&host, 9), host.needed_dials(crate::clock::now(), 9)), (0, 9));
    }

    #[test]
    fn an_http2_host_wants_a_dial_for_as_many_requests_as_a_connection_has_streams() {
        let config = PoolConfig::new().max_streams_per_connection(10).max_http2_connections_per_host(2);
        let mut host = host(&config, Speaks::Http2);
        assert_eq!([1, 11, 99].map(|requests| wanted(&host, requests)), [1, 2, 2]);
        let now = crate::clock::now();
        host.conns.unannounced = 1;
        host.dials.settings_by = Some(now + Duration::from_millis(100));
        assert_eq!(host.wanted_dials(now, 11), 1, "a connection that is open may have enough");
        assert!(host.will_have_streams(now, 10) && !host.will_have_streams(now, 11));
        let late = now + Duration::from_millis(100);
        assert_eq!((host.wanted_dials(late, 11), host.binding_limit(late, 11)), (2, Some(Limit::Settings)));
    }

    #[test]
    fn an_http2_host_in_trouble_wants_a_dial_for_each_request_within_its_limit() {
        let mut host = host(&PoolConfig::new(), Speaks::Http2);
        assert_eq!(wanted(&host, 3), 1);
        host.dials.failed(crate::clock::now(), false);
        assert_eq!([2, 3, 9].map(|requests| wanted(&host, requests)), [2, 3, 4]);
    }

    #[test]
    fn a_host_of_unknown_protocol_is_probed_once_until_a_dial_fails() {
        let mut host = host(&PoolConfig::new(), Speaks::Unknown);
        assert_eq!(wanted(&host, 100), 1);
        host.dials.failed(crate::clock::now(), false);
        assert_eq!(wanted(&host, 100), 16);
    }

    #[test]
    fn a_host_wants_no_dial_during_a_pause() {
        let mut host = host(&PoolConfig::new(), Speaks::Http1);
        let now = crate::clock::now();
        host.dials.lack_ports(now);
        assert_eq!((wanted(&host, 9), host.may_dial_ahead(now)), (0, false));
        assert_eq!(host.binding_limit(now, 1), Some(Limit::Ports));
        host.facts.conduct.pause(now, 1.0);
        assert_eq!(host.binding_limit(now, 1), Some(Limit::EnhanceYourCalm), "the server's own word counts more");
    }

    #[test]
    fn an_http2_host_may_have_an_extra_dial_within_its_limits_and_outside_of_a_pause() {
        let config = PoolConfig::new().max_http2_connections_per_host(2).max_dials_per_host(1);
        let host = |speaks| host(&config, speaks);
        let now = crate::clock::now();
        assert_eq!(
            [Speaks::Http1, Speaks::Unknown, Speaks::Http2].map(|speaks| host(speaks).may_dial_extra(now)),
            [false, false, true]
        );
        let mut paused = host(Speaks::Http2);
        paused.dials.paused_until = Some(now);
        assert!(!paused.may_dial_extra(now));
        let mut full = host(Speaks::Http2);
        full.conns.usable = 2;
        assert!(!full.may_dial_extra(now));
        let mut dialled = host(Speaks::Http2);
        let mut conns = Connections::<TestTypes>::new(usize::MAX);
        conns.begin_dial(Dialling::new(now, now), 1, 0, &mut dialled);
        assert!(!dialled.may_dial_extra(now), "the limit of dials is reached");
    }

    #[test]
    fn the_limit_of_connections_to_one_address_is_that_of_http2() {
        let config = PoolConfig::new().max_http2_connections_per_host(2);
        let most =
            [Speaks::Http1, Speaks::Unknown, Speaks::Http2].map(|speaks| host(&config, speaks).max_conns_per_address());
        assert_eq!(most, [usize::MAX, usize::MAX, 2]);
    }

    #[test]
    fn a_host_without_connections_to_come_will_have_no_stream() {
        assert!(!host(&PoolConfig::new(), Speaks::Http2).will_have_streams(crate::clock::now(), 1));
    }

    #[test]
    fn balanced_hosts_are_found_by_name_until_they_are_removed() {
        let limits = PoolConfig::new().limits_for("", 0);
        let mut hosts = Hosts::default();
        let names = [Some("a.test"), Some("b.test"), None, Some("b.test")];
        for (key, name) in (0_u8..).zip(names) {
            let balanced = name.map(|name| BalancedHost { name: name.into(), port: 80, pinned: Vec::new(), seed: 1 });
            hosts.insert(Host::new(
                crate::clock::now(),
                key,
                Profile { limits, speaks: Speaks::Http1, balanced },
                Box::default(),
            ));
        }
        assert_eq!(
            (hosts.balanced("a.test"), hosts.balanced("b.test"), hosts.balanced("c.test")),
            (vec![0], vec![1, 3], vec![])
        );
        hosts.remove(1);
        assert_eq!((hosts.balanced("b.test"), hosts.balanced.len()), (vec![3], 2));
        hosts.remove(3);
        assert_eq!((hosts.balanced("b.test"), hosts.balanced.len()), (vec![], 1));
        assert!(hosts.is_balanced("a.test") && !hosts.is_balanced("b.test"));
    }
}
