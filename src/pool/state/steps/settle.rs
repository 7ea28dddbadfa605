//! The steps that restore what a change to a connection disturbed, and what they share with the steps above. A core.
//!
//! [`State::settle`] restores the invariants of a connection. Nothing here begins a dial or fails a request.

use std::time::Duration;

use crate::clock::Instant;
use crate::latency::Sample;
use crate::pool::state::dials::{GRACE, HostDials, PATIENCE};
use crate::pool::state::hosts::host::Host;
use crate::pool::state::hosts::queue::Offer;
use crate::pool::state::memory::Resting;
use crate::pool::state::parts::{State, TimerKey};
use crate::pool::state::values::conn::{Listed, OpenConn, Stage};
use crate::pool::state::values::{Effect, Grant, PoolTypes, WaiterId};
use crate::trace::{CloseCause, HostClose, Limit};

/// The time for which the requests of other hosts let connections become idle for a host that has none. Where that did not help, it
/// waits for its turn.
const LONGEST_YIELD: Duration = Duration::from_secs(1);

// Requests.
impl<T: PoolTypes> State<T> {
    /// Leases a stream of a connection of `host` to a request that waited for so long.
    pub(in crate::pool::state) fn lease(
        &mut self,
        now: Instant,
        host: usize,
        id: usize,
        waited: Sample,
    ) -> Grant<T::Conn> {
        let entry = &mut self.hosts[host];
        self.conns.count(entry, |totals| totals.waited.add_sample(waited));
        let grant = self.conns.take_stream(now, entry, id);
        if grant.requests + 1 >= entry.limits.max_requests {
            self.end_when_possible(id, CloseCause::RequestLimit);
        }
        grant
    }

    /// Returns what a connection offers to the requests of its host.
    pub(in crate::pool::state) fn offer(&self, now: Instant, id: usize) -> Offer<T::Runtime> {
        let open = self.conns.open(id);
        let is_used = open.requests > 0;
        Offer {
            number: self.conns[id].serial,
            runtime: open.runtime,
            is_used_http1: is_used && !open.is_http2,
            is_just_given_back: is_used && open.is_http2 && open.streams.taken == 0 && !self.is_draining,
            is_busy: open.streams.taken > 0,
            shunned_for: self.shunned_for(now, id),
            is_draining: self.is_draining,
        }
    }

    /// Returns how long requests refuse a connection because it leads to an address of a balanced host that is out of use; `None` if
    /// they do not.
    fn shunned_for(&self, now: Instant, id: usize) -> Option<Duration> {
        let conn = &self.conns[id];
        let (balance, key) = self.hosts[conn.host].balance.as_ref().zip(conn.address)?;
        let is_wanted = balance.is_in_use(key) || balance.is_to_be_probed(now, key);
        if is_wanted || !self.may_reach_address_in_use(now, conn.host) {
            None
        } else if self.is_needed(id) {
            // It makes room when its requests are over, which may take long.
            Some(GRACE)
        } else {
            Some(Duration::MAX)
        }
    }

    /// Returns true if a connection may be opened to an address in use of a balanced host, some time soon.
    pub(in crate::pool::state) fn may_reach_address_in_use(&self, now: Instant, host: usize) -> bool {
        let entry = &self.hosts[host];
        let has_one = entry.balance.as_ref().is_some_and(|balance| balance.has_one_to_dial(now));
        has_one && !entry.is_paused(now) && !entry.allows_no_request()
    }

    /// Returns the first request of its host that takes a connection.
    pub(in crate::pool::state) fn first_taker(&self, now: Instant, id: usize) -> Option<usize> {
        let queue = &self.hosts[self.conns[id].host].queue;
        if queue.is_empty() {
            return None;
        }
        self.waiters.first_taker(now, queue, &self.offer(now, id))
    }

    /// Delivers a connection to a request in the queue.
    pub(in crate::pool::state) fn deliver(&mut self, now: Instant, id: usize, waiter: usize) {
        let host = self.conns[id].host;
        let waiter = self.waiters.remove(&mut self.hosts[host].queue, waiter);
        let has_dial = waiter.dials.in_flight > 0;
        let waited = Sample::of_nanos(now.nanos_since(waiter.since));
        let entry = &mut self.hosts[host];
        self.conns.count(entry, |totals| totals.queue.served += 1);
        entry.dials.served(now);
        let mut grant = self.lease(now, host, id, waited);
        grant.freed = has_dial;
        if let Stage::Open(open) = &self.conns[id].stage
            && let Some(fresh) = &open.fresh
        {
            grant.conn = fresh.clone();
            grant.freed = false;
        }
        self.effects.push_back(Effect::Deliver { waiter: waiter.handle, grant, at: now });
    }

    /// Gives the free connections of a host to requests that wait and take them by now.
    pub(in crate::pool::state) fn settle_free(&mut self, now: Instant, host: usize) {
        if self.hosts[host].queue.is_empty() {
            return;
        }
        let free: Vec<_> = self.conns.free_of(&self.hosts[host]).collect();
        for id in free {
            if self.conns.is_free(id) {
                self.settle(now, id);
            }
        }
    }

    /// Returns the limit that keeps a request in the queue waiting.
    pub(in crate::pool::state) fn limit_of(&self, now: Instant, waiter: usize) -> Limit {
        let waiter = &self.waiters[waiter];
        if waiter.dials.in_flight > 0 {
            Limit::Opening
        } else {
            self.slots.binding_limit(now, &self.hosts[waiter.host], 0)
        }
    }

    /// Returns the number of the dial in flight that a request waits for: the first one of its own, or else the oldest of its host.
    pub(crate) fn dial_of(&self, id: WaiterId) -> Option<u64> {
        let waiter = self.waiters.get(id)?;
        let HostDials { young, slow, .. } = &self.hosts[waiter.host].dials;
        let others = || slow.front().or(young.front());
        let own = waiter.dials.oldest.map(|(oldest, _)| oldest.get());
        own.or_else(|| Some(self.conns[waiter.dials.young().or_else(others)?].serial))
    }

    /// Returns true if a dial began before a request needed it, and none needs it yet.
    pub(in crate::pool::state) fn is_ahead_of_requests(&self, dial: usize) -> bool {
        self.conns[dial].dialling().ahead.is_some() && self.hosts[self.conns[dial].host].queue.is_empty()
    }

    /// Returns true if a dial may begin that no request waits for yet.
    pub(in crate::pool::state) fn may_dial_ahead(&self, now: Instant, host: usize) -> bool {
        !self.is_draining && self.hosts[host].may_dial_ahead(now) && self.slots.has_room()
    }
}

// Connections.
impl<T: PoolTypes> State<T> {
    /// Restores a connection's invariants after a change. Its free streams go to requests that wait. Without requests it becomes
    /// idle, or closes if it takes no more.
    pub(in crate::pool::state) fn settle(&mut self, now: Instant, id: usize) {
        let conn = &self.conns[id];
        let host = conn.host;
        if !matches!(conn.stage, Stage::Open(_)) {
            return self.conns.remove_if_closed(&mut self.hosts[host], id);
        }
        while !self.hosts[host].queue.is_empty()
            && self.conns[id].has_free_stream()
            && let Some(waiter) = self.first_taker(now, id)
        {
            self.deliver(now, id, waiter);
        }
        let conn = &self.conns[id];
        let open = conn.open();
        let is_busy = open.streams.taken > 0;
        if conn.end_cause.is_some() {
            if !is_busy {
                self.close(id);
            }
        } else if is_busy {
            self.conns.list_anew(&mut self.hosts[host], id);
        } else if open.listed != Listed::Idle {
            self.make_idle(now, host, id);
        }
    }

    /// Lists a connection of `host` as idle, and closes those beyond the limits.
    fn make_idle(&mut self, now: Instant, host: usize, id: usize) {
        self.watch_conn(id);
        let entry = &mut self.hosts[host];
        self.conns.list_anew(entry, id);
        if entry.has_idle_to_close() {
            let oldest = entry.conns.idle.back().expect("more than the limit");
            self.end(oldest, CloseCause::IdleLimit);
            self.settle(now, oldest);
        }
        if self.conns.idle.len() > self.conns.max_idle || self.is_over_total() {
            self.close_oldest(now, CloseCause::IdleLimit);
        }
        self.set_idle_timer(now, host);
        // More connections were dialled than HTTP/2 takes, before it was known that the host speaks it.
        let (conn, entry) = (&self.conns[id], &self.hosts[host]);
        let is_open_http2 = conn.end_cause.is_none() && conn.open().is_http2;
        if is_open_http2 && entry.has_too_many_http2(conn.address) {
            self.end(id, CloseCause::IdleLimit);
            self.settle(now, id);
        }
    }

    /// Returns the reason why a connection should take no new requests from now on, if there is one.
    pub(in crate::pool::state) fn overdue(&self, now: Instant, id: usize) -> Option<CloseCause> {
        let conn = &self.conns[id];
        if conn.end_cause.is_some() {
            return None;
        }
        let open = conn.open();
        let is_expired = open.expires.is_some_and(|expires| expires <= now);
        if (is_expired || open.due.is_some()) && !self.is_needed(id) {
            return open.due.or(Some(CloseCause::Lifetime));
        }
        let is_busy = open.streams.taken > 0;
        // Its host could not be reached without its only connection before the last request on that is over, which may take hours.
        let may_yield = || !is_busy || self.hosts[conn.host].open_conns() > 1;
        let yields =
            !self.slots.has_no_contenders() && may_yield() && self.next_turn(now, conn.host, is_busy).is_some();
        if yields || self.must_yield(now, id) {
            return Some(CloseCause::MadeRoom);
        }
        None
    }

    /// Returns true if the only connection of its host carries requests, and is to close without them for a host that has come just now.
    #[cold]
    pub(in crate::pool::state) fn is_about_to_make_room(&self, now: Instant, id: usize) -> bool {
        let conn = &self.conns[id];
        let is_only_one = conn.open().streams.taken > 0 && self.hosts[conn.host].open_conns() == 1;
        let has_come = |other: usize| {
            let since = self.hosts[other].queue.fresh_since;
            since.is_some_and(|since| now - since < LONGEST_YIELD)
        };
        is_only_one && self.next_turn(now, conn.host, true).is_some_and(has_come)
    }

    /// Returns the host that a usable connection of `host` has to make room for.
    pub(in crate::pool::state) fn next_turn(&self, now: Instant, host: usize, is_busy: bool) -> Option<usize> {
        let counters = &self.conns.counters;
        let soon_free = if is_busy { counters.closing + counters.yielding } else { counters.closing };
        self.slots.next_turn(now, &self.hosts, &self.waiters, (host, is_busy), soon_free)
    }

    /// Returns true if a connection has to close for one that its host's next request takes: the request refuses this one, there is no
    /// room for another beside it, and no other one is closing.
    pub(in crate::pool::state) fn must_yield(&self, now: Instant, id: usize) -> bool {
        let entry = &self.hosts[self.conns[id].host];
        let Some(next) = entry.queue.next_to_dial_for() else { return false };
        let is_closing = entry.conns.slots > entry.conns.usable;
        let has_room = self.slots.has_room() && entry.has_room(now);
        let may_dial = !entry.is_paused(now) && !entry.allows_no_request();
        if is_closing || has_room || !may_dial || self.is_needed(id) {
            return false;
        }
        !self.waiters[next].takes(now, &self.offer(now, id))
    }

    /// Ends a connection by the client's own choice: at once, or if it is still needed when there is room for another one.
    pub(in crate::pool::state) fn end_when_possible(&mut self, id: usize, cause: CloseCause) {
        if self.is_needed(id) {
            self.conns.open_mut(id).due.get_or_insert(cause);
        } else {
            self.end(id, cause);
        }
    }

    /// Returns true if a connection carries requests and there is no room for another one beside it: if it took no more requests,
    /// its host could not be reached before the last of them is over.
    fn is_needed(&self, id: usize) -> bool {
        let conn = &self.conns[id];
        let Stage::Open(open) = &conn.stage else { return false };
        let is_shared = open.is_http2 && open.streams.taken > 0;
        if !is_shared || !conn.holds_slot || conn.end_cause.is_some() {
            return false;
        }
        // Where the total is reached, an idle connection makes room.
        let total_has_room = self.slots.has_room() || !self.conns.idle.is_empty();
        let entry = &self.hosts[conn.host];
        let host_has_room = entry.conns.slots < entry.limits.max_connections && entry.dials.paused_until.is_none();
        !(total_has_room && host_has_room)
    }

    /// Lets a connection take no new requests.
    pub(in crate::pool::state) fn end(&mut self, id: usize, cause: CloseCause) {
        self.end_after(id, cause, self.is_idle(id));
    }

    /// Lets a connection take no new requests. `was_idle` is true if that happened to it while it was idle.
    pub(in crate::pool::state) fn end_after(&mut self, id: usize, cause: CloseCause, was_idle: bool) {
        let host = self.conns[id].host;
        self.note_end(id, cause, was_idle);
        if self.conns.end(&mut self.hosts[host], id, cause) {
            self.effects.push_back(Effect::Retired(self.conns.id(id), cause));
        }
        self.unwatch_conn(id);
    }

    /// Remembers the end of a connection for its host's next dial, unless the connection has ended already.
    pub(in crate::pool::state) fn note_end(&mut self, id: usize, cause: CloseCause, was_idle: bool) {
        let conn = &self.conns[id];
        if let Stage::Open(open) = &conn.stage
            && conn.end_cause.is_none()
        {
            let close = HostClose::new(cause, open.requests, was_idle);
            self.hosts[conn.host].facts.recent.last_close = Some(close);
        }
    }

    /// Returns true if a connection has served a request and is idle.
    pub(in crate::pool::state) fn is_idle(&self, id: usize) -> bool {
        matches!(&self.conns[id].stage, Stage::Open(open) if open.listed == Listed::Idle && open.requests > 0)
    }

    /// Closes the least recently used idle connection, if there is one.
    pub(in crate::pool::state) fn close_oldest(&mut self, now: Instant, cause: CloseCause) {
        if let Some(oldest) = self.conns.idle.back() {
            let host = self.conns[oldest].host;
            self.end(oldest, cause);
            self.close(oldest);
            // A request may have waited for it: its peer had not said yet that it takes any.
            self.slots.update_contender(now, &mut self.hosts, host);
            self.watch_queue(now, host);
        }
    }

    /// Closes a connection without requests. Its slot is free when its socket is closed.
    fn close(&mut self, id: usize) {
        let holds_slot = self.conns[id].holds_slot;
        if let Some(open) = self.conns.begin_closing(id) {
            if let Some(location) = open.location
                && holds_slot
            {
                self.moved_addresses.closed(&location, id);
            }
            self.effects.push_back(Effect::Close(open.conn));
        }
        let host = self.conns[id].host;
        self.conns.remove_if_closed(&mut self.hosts[host], id);
    }
}

// Hosts.
impl<T: PoolTypes> State<T> {
    /// Has a host looked at again when its queue may stand still.
    pub(in crate::pool::state) fn watch_queue(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        let yields = || entry.queue.fresh.front().is_some_and(|first| self.waiters[first].needs.yields);
        let may_refuse = entry.balance.is_some() || yields();
        if let Some(since) = entry.queue.fresh_since.filter(|since| may_refuse && now < *since + GRACE) {
            // It may take a connection then that it refuses now.
            self.set_timer(host, Some(since + GRACE));
        }
        let entry = &self.hosts[host];
        if !entry.queue.again.is_empty() {
            self.set_timer(host, entry.dials.pauses_again_until(now));
        }
        let entry = &self.hosts[host];
        if let Some(balance) = entry.balance.as_ref().filter(|_| !entry.queue.is_empty()) {
            // There may be room then.
            self.set_timer(host, balance.next_place(now));
        }
        let entry = &self.hosts[host];
        if let Some(since) = entry.queue.fresh_since
            && !entry.is_paused(now)
            && entry.has_room(now)
        {
            let stands_still_at = since + PATIENCE;
            self.set_timer(host, Some(if now < stands_still_at { stands_still_at } else { now + PATIENCE }));
        } else if entry.is_contender && entry.dials.are_in_trouble() && entry.dials.live() == 0 {
            self.set_timer(host, now.checked_add(PATIENCE));
        }
    }

    /// Removes the record of a host that has neither connections nor requests.
    pub(in crate::pool::state) fn prune(&mut self, now: Instant, host: usize) {
        let Some(entry) = self.hosts.slab.get_mut(host) else { return };
        if entry.is_unused() {
            self.timers.set(TimerKey::Host(host), &mut entry.timer, None);
            self.slots.update_share(&mut self.hosts, host);
            let Host { key, mut facts, balance, dials, .. } = self.hosts.remove(host);
            facts.resting = Resting::new(now, balance);
            facts.usual_dial = dials.usual;
            self.memory.put(now, &key, facts);
        }
    }

    /// Reports the end of a drain.
    pub(in crate::pool::state) fn report_if_drained(&mut self) {
        if self.is_drained() {
            self.effects.push_back(Effect::Drained);
        }
    }

    /// Returns the number of the next connection or request.
    pub(in crate::pool::state) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Returns true if the pool was to be drained and is empty.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_draining
            && self.drain_holds == 0
            && self.slots.taken == 0
            && self.conns.counters.leased == 0
            && self.waiters.len() == 0
    }

    /// Returns true if there are more connections than the total allows, not counting those that close already.
    pub(in crate::pool::state) fn is_over_total(&self) -> bool {
        // Only after the limit was lowered are there more slots than it allows.
        let (taken, limit) = (self.slots.taken, self.slots.limit);
        let counters = &self.conns.counters;
        taken > limit && taken - counters.closing - counters.retiring > limit
    }

    /// Returns the number of connections with a free stream that are to be kept open to a host.
    pub(in crate::pool::state) fn min_idle(&self, host: usize) -> usize {
        self.hosts[host].min_idle().min(self.conns.max_idle).min(self.slots.limit)
    }
}

// Timers.
impl<T: PoolTypes> State<T> {
    /// Returns the time at which a connection has been idle for too long.
    #[inline]
    pub(in crate::pool::state) fn idle_until(&self, now: Instant, id: usize) -> Option<Instant> {
        let conn = &self.conns[id];
        let OpenConn { used_at, keep_alive, .. } = conn.open();
        let timeout = self.idle_timeout(now, conn.host);
        used_at.checked_add(keep_alive.map_or(timeout, |own| own.min(timeout)))
    }

    /// Returns true if a connection has been idle for too long.
    #[inline]
    pub(in crate::pool::state) fn is_idle_for_too_long(&self, now: Instant, id: usize) -> bool {
        self.conns.open(id).streams.taken == 0 && self.idle_until(now, id).is_some_and(|until| until <= now)
    }

    /// Sets a connection's timer for its own end, unless it is set to an earlier time.
    pub(in crate::pool::state) fn watch_conn(&mut self, id: usize) {
        let open = self.conns.open_mut(id);
        if let Some(at) = open.ends_at() {
            self.timers.set_earlier(TimerKey::Conn(id), &mut open.timer, at);
        }
    }

    /// Clears the timer of a connection that takes no requests.
    pub(in crate::pool::state) fn unwatch_conn(&mut self, id: usize) {
        if let Some(open) = self.conns.try_open_mut(id) {
            self.timers.set(TimerKey::Conn(id), &mut open.timer, None);
        }
    }

    /// Returns the longest time for which a host's connections may be idle.
    #[inline]
    pub(in crate::pool::state) fn idle_timeout(&self, now: Instant, host: usize) -> Duration {
        let entry = &self.hosts[host];
        let learned = entry.facts.idle_limit(now).unwrap_or(Duration::MAX);
        entry.limits.idle_timeout.min(learned)
    }

    /// Sets the host's timer for its longest idle connection.
    pub(in crate::pool::state) fn set_idle_timer(&mut self, now: Instant, host: usize) {
        let oldest = self.hosts[host].conns.idle.back();
        self.set_timer(host, oldest.and_then(|oldest| self.idle_until(now, oldest)));
    }

    pub(in crate::pool::state) fn set_timer(&mut self, host: usize, at: Option<Instant>) {
        if let Some(at) = at {
            self.timers.set_earlier(TimerKey::Host(host), &mut self.hosts[host].timer, at);
        }
    }
}
