//! The limit on all connections together, and the hosts that it keeps from dialling. A core.
//!
//! A connection holds a slot from the start of its dial until its socket is closed. Where all slots are taken, the hosts whose
//! requests need another connection stand in a list and take turns.

use std::time::Duration;

use super::host::{Host, Hosts};
use super::queue::Waiters;
use crate::clock::Instant;
use crate::list::List;
use crate::pool::state::dials::Descriptors;
use crate::pool::state::values::PoolTypes;
use crate::trace::Limit;

/// The slots for connections, and the hosts that compete for them.
pub(in crate::pool::state) struct Slots {
    /// The most connections.
    pub(in crate::pool::state) limit: usize,
    /// The connections, from the start of their dial until their socket is closed.
    pub(in crate::pool::state) taken: usize,
    pub(in crate::pool::state) descriptors: Descriptors,
    /// The hosts that would dial if the total allowed it, in the order of their turns.
    contenders: List<0>,
    /// The hosts in trouble that have more dials than their share.
    beyond_share: List<2>,
}

/// The longest time that a host without a connection waits for a slot that another host still uses. Handing a slot on costs a dial.
const MAX_TURN_WAIT: Duration = Duration::from_millis(100);

/// The most hosts examined to find the one whose turn it is.
const MOST_EXAMINED: usize = 16;

impl Slots {
    pub(in crate::pool::state) fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: 0,
            descriptors: Descriptors::default(),
            contenders: List::default(),
            beyond_share: List::default(),
        }
    }

    /// Returns true if the total allows another connection.
    pub(in crate::pool::state) fn has_room(&self) -> bool {
        self.taken < self.limit && self.descriptors.allow(self.taken)
    }

    /// Returns the limit that keeps a host from dialling for the last of its requests and `more` others.
    pub(in crate::pool::state) fn binding_limit<K>(&self, now: Instant, host: &Host<K>, more: usize) -> Limit {
        if let Some(limit) = host.binding_limit(now, more) {
            limit
        } else if !self.descriptors.allow(self.taken) {
            Limit::Descriptors
        } else if !self.has_room() {
            Limit::Connections
        } else {
            Limit::Opening
        }
    }

    /// Returns true if the total keeps no host from dialling.
    #[inline]
    pub(in crate::pool::state) fn has_no_contenders(&self) -> bool {
        self.contenders.is_empty()
    }

    /// Returns the host whose turn is next.
    pub(in crate::pool::state) fn next_contender(&self) -> Option<usize> {
        self.contenders.front()
    }

    /// Lists a host if it would dial but for the total, and unlists it otherwise.
    pub(in crate::pool::state) fn update_contender<K>(&mut self, now: Instant, hosts: &mut Hosts<K>, host: usize) {
        let contends = hosts.slab[host].wanted_dials(now, 0) > 0;
        if contends == hosts.slab[host].is_contender {
            return;
        }
        if contends {
            self.contenders.push_back(&mut hosts.slab, host);
        } else {
            self.contenders.remove(&mut hosts.slab, host);
        }
        hosts.slab[host].is_contender = contends;
    }

    /// Lists a host in trouble that has more dials than its share, and unlists any other.
    #[inline]
    pub(in crate::pool::state) fn update_share<K>(&mut self, hosts: &mut Hosts<K>, host: usize) {
        let Host { dials, is_beyond_share, .. } = &hosts.slab[host];
        let is_beyond = dials.are_in_trouble() && !self.is_within_share(dials.live());
        if is_beyond == *is_beyond_share {
            return;
        }
        if is_beyond {
            self.beyond_share.push_back(&mut hosts.slab, host);
        } else {
            self.beyond_share.remove(&mut hosts.slab, host);
        }
        hosts.slab[host].is_beyond_share = is_beyond;
    }

    /// Returns a host in trouble that has more dials than its share.
    pub(in crate::pool::state) fn first_beyond_share<K>(&mut self, hosts: &mut Hosts<K>) -> Option<usize> {
        loop {
            let first = self.beyond_share.front()?;
            self.update_share(hosts, first);
            if hosts.slab[first].is_beyond_share {
                return Some(first);
            }
        }
    }

    /// Takes the next host off the list if there is room for a connection of it.
    pub(in crate::pool::state) fn pop_contender<K>(&mut self, hosts: &mut Hosts<K>) -> Option<usize> {
        if !self.has_room() {
            return None;
        }
        let next = self.contenders(hosts).find(|host| !self.has_its_share(&hosts.slab[*host]))?;
        self.contenders.remove(&mut hosts.slab, next);
        hosts.slab[next].is_contender = false;
        Some(next)
    }

    /// Returns the hosts that would dial but for the total, in the order of their turns.
    fn contenders<'a, K>(&'a self, hosts: &'a Hosts<K>) -> impl Iterator<Item = usize> + use<'a, K> {
        self.contenders.iter(&hosts.slab)
    }

    /// Returns true if a host in trouble has as many dials as it may have while others wait.
    fn has_its_share<K>(&self, host: &Host<K>) -> bool {
        host.dials.are_in_trouble() && self.contenders.len() > 1 && !self.is_within_share(host.dials.live() + 1)
    }

    /// Returns true if a host in trouble may have so many dials while others wait: a quarter of the total.
    pub(in crate::pool::state) fn is_within_share(&self, dials: usize) -> bool {
        dials <= (self.limit / 4).max(1)
    }

    /// Returns true if the total keeps more requests of the hosts for which `counts` is true out than `closing` connections will make
    /// room for. If it is false for many of the first ones, the others are not looked at.
    pub(in crate::pool::state) fn must_make_room<K>(
        &self,
        now: Instant,
        hosts: &Hosts<K>,
        closing: usize,
        counts: impl Fn(usize) -> bool,
    ) -> bool {
        let (mut kept_out, mut passed_over) = (0, 0);
        for host in self.contenders(hosts) {
            if counts(host) {
                kept_out += hosts.slab[host].wanted_dials(now, 0);
            } else {
                passed_over += 1;
            }
            if kept_out > closing || passed_over == MOST_EXAMINED {
                break;
            }
        }
        kept_out > closing
    }

    /// Returns the host that a usable connection has to make room for, because it is that host's turn.
    ///
    /// The other host has its turn in three cases:
    /// - it has fewer connections by more than one;
    /// - it has none, and its first request came before all of this host's or has waited for [`MAX_TURN_WAIT`];
    /// - this host has no waiting request, but requests that keep the connection busy without a pause.
    ///
    /// A host in trouble takes none while it has a dial in flight. `is_busy` is true if the connection carries requests, and `soon_free`
    /// the number of slots that are about to become free already.
    pub(in crate::pool::state) fn next_turn<T: PoolTypes>(
        &self,
        now: Instant,
        hosts: &Hosts<T::Key>,
        waiters: &Waiters<T>,
        (host, is_busy): (usize, bool),
        soon_free: usize,
    ) -> Option<usize> {
        let examined = self.contenders(hosts).take(MOST_EXAMINED);
        let may_take = |host: &Host<T::Key>| !host.dials.are_in_trouble() || host.dials.live() == 0;
        let mut others = examined.filter(|other| *other != host && may_take(&hosts.slab[*other]));
        let lacks_slot = |other: usize| hosts.slab[other].wanted_dials(now, 0) > soon_free;
        let Some(first) = hosts.slab[host].queue.front() else {
            return others.next().filter(|other| is_busy && lacks_slot(*other));
        };
        let is_due = |waiter: usize| {
            let waiter = &waiters[waiter];
            waiter.serial < waiters[first].serial || now - waiter.since >= MAX_TURN_WAIT
        };
        let own = hosts.slab[host].conns.usable;
        others.find(|other| {
            let entry = &hosts.slab[*other];
            let usable = entry.conns.usable;
            let is_without = usable == 0 && entry.queue.next_to_dial_for().is_some_and(is_due);
            (usable + 1 < own || is_without) && lacks_slot(*other)
        })
    }

    /// Gives the next free slot to `host`. If none of the hosts examined has its turn, the list moves on to the others.
    pub(in crate::pool::state) fn give_turn<K>(&mut self, hosts: &mut Hosts<K>, host: Option<usize>) {
        if let Some(host) = host {
            self.contenders.remove(&mut hosts.slab, host);
            self.contenders.push_front(&mut hosts.slab, host);
        } else if self.contenders.len() > MOST_EXAMINED
            && let Some(front) = self.contenders.front()
        {
            self.contenders.remove(&mut hosts.slab, front);
            self.contenders.push_back(&mut hosts.slab, front);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::{Needs, WaitingRequest};
    use super::*;
    use crate::pool::config::PoolConfig;
    use crate::pool::state::tests::{LIMITS, TestTypes};
    use crate::pool::state::values::{Profile, Speaks};

    /// Hosts with a request each that came in this order, and these numbers of connections.
    fn hosts(slots: &mut Slots, usable: &[usize]) -> (Hosts<u8>, Waiters<TestTypes>) {
        let now = crate::clock::now();
        let profile = Profile { limits: PoolConfig::new().limits_for("", 0), speaks: Speaks::Http1, balanced: None };
        let (mut hosts, mut waiters) = (Hosts::default(), Waiters::new(usize::MAX));
        for (number, usable) in (0..).zip(usable) {
            let host = hosts.insert(Host::new(crate::clock::now(), number, profile.clone(), Box::default()));
            hosts[host].conns.usable = *usable;
            let needs = Needs {
                is_resend: false,
                refuses_used: false,
                only_runtime: None,
                not_on: None,
                not_at: None,
                yields: false,
            };
            let waiter = WaitingRequest::new(now, host, u64::from(number), needs, LIMITS, 0);
            waiters.push(&mut hosts[host].queue, waiter);
            slots.update_contender(now, &mut hosts, host);
        }
        (hosts, waiters)
    }

    #[test]
    fn contenders_take_turns_while_there_is_room() {
        let mut slots = Slots::new(2);
        let (mut hosts, _) = hosts(&mut slots, &[0, 0, 0]);
        for expected in [Some(0), Some(1), None] {
            assert_eq!(slots.pop_contender(&mut hosts), expected);
            slots.taken += 1;
        }
        assert_eq!(slots.next_contender(), Some(2));
        let must = |closing| slots.must_make_room(crate::clock::now(), &hosts, closing, |_| true);
        assert!(must(0) && !must(1));
    }

    #[test]
    fn a_host_makes_room_for_one_with_fewer_connections() {
        let mut slots = Slots::new(2);
        for (usable, turn) in [([3, 1], Some(1)), ([2, 1], None)] {
            let (hosts, waiters) = hosts(&mut slots, &usable);
            let next = |soon_free| slots.next_turn(crate::clock::now(), &hosts, &waiters, (0, false), soon_free);
            assert_eq!((next(0), next(1)), (turn, None), "{usable:?}");
            slots = Slots::new(2);
        }
    }

    #[test]
    fn the_limit_of_descriptors_is_named_before_that_of_connections() {
        let mut slots = Slots::new(2);
        let (hosts, _) = hosts(&mut slots, &[0]);
        let now = crate::clock::now();
        assert_eq!(slots.binding_limit(now, &hosts[0], 0), Limit::Opening);
        slots.taken += 1;
        slots.taken += 1;
        assert_eq!(slots.binding_limit(now, &hosts[0], 0), Limit::Connections);
        slots.descriptors.ran_out(crate::clock::now(), 1);
        assert_eq!(slots.binding_limit(now, &hosts[0], 0), Limit::Descriptors);
    }

    #[test]
    fn a_host_without_waiting_requests_makes_room_by_its_busy_connections_alone() {
        let mut slots = Slots::new(2);
        let (mut hosts, mut waiters) = hosts(&mut slots, &[3, 1]);
        waiters.remove(&mut hosts[0].queue, 0);
        slots.update_contender(crate::clock::now(), &mut hosts, 0);
        for (is_busy, soon_free, turn) in [(false, 0, None), (true, 0, Some(1)), (true, 1, None)] {
            let next = slots.next_turn(crate::clock::now(), &hosts, &waiters, (0, is_busy), soon_free);
            assert_eq!(next, turn, "{is_busy}, {soon_free}");
        }
    }

    #[test]
    fn the_list_moves_on_if_there_are_more_hosts_than_are_examined() {
        for (count, next) in [(MOST_EXAMINED, 0), (MOST_EXAMINED + 1, 1), (MOST_EXAMINED + 2, 1)] {
            let mut slots = Slots::new(2);
            let (mut hosts, _) = hosts(&mut slots, &vec![0; count]);
            slots.give_turn(&mut hosts, None);
            assert_eq!(slots.next_contender(), Some(next), "{count}");
            slots.give_turn(&mut hosts, Some(5));
            assert_eq!(slots.next_contender(), Some(5), "{count}");
        }
    }
}
