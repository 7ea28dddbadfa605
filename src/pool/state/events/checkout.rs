//! A request that asks for a connection: it gets one, waits for one, or is refused; and gives it
//! back. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::latency::Sample;
use crate::pool::state::hosts::connections::Search;
use crate::pool::state::hosts::queue::{Needs, WaitingRequest};
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::least_stay;
use crate::pool::state::values::{
    AbandonCause, Acquired, EarlierConn, Grant, LeaseEnd, LeaseToken, PoolTypes, Queued, Speaks, WaitLimits, WaiterId,
    Wish,
};
use crate::trace::{CloseCause, Limit, Usage};

impl<T: PoolTypes> State<T> {
    /// Leases a connection of the host that has a free stream, or has the request wait. Connections of the request's own runtime come
    /// first, then busy ones, then the most recently used.
    ///
    /// `runtime` is the runtime that the request is made on. `waiter` makes the driver's side of a request that waits, and says for how
    /// long it does.
    pub(crate) fn checkout(
        &mut self,
        now: Instant,
        key: &T::Key,
        wish: &Wish,
        runtime: T::Runtime,
        waiter: impl FnOnce() -> (T::Waiter, WaitLimits),
    ) -> Acquired<T::Conn> {
        if self.is_draining && !wish.despite_drain {
            return Acquired::Refused(Limit::Draining);
        }
        if let Some((host, id)) = self.find_ready(now, key, wish, runtime) {
            return Acquired::Ready(self.lease_found(now, host, id));
        }
        let host = self.host(now, key);
        let rest = self.rest_for(now, host, wish);
        let has_contenders = !self.slots.has_no_contenders();
        let is_choosy = rest.is_some() || wish.own_dial || has_contenders || self.hosts[host].balance.is_some();
        let any = Wish { own_dial: false, ..*wish };
        // A connection that has not rested, is another runtime's, makes room soon, or leads to an address out of use is better than none.
        if is_choosy
            && self.refusal(now, host).is_some()
            && let Some(id) = self.find_any(now, host, &Search::new(&any, runtime, None))
        {
            return Acquired::Ready(self.lease_found(now, host, id));
        }
        if wish.avoid.is_some() && !self.may_dial_for_hedge(now, host) {
            let limit = self.slots.binding_limit(now, &self.hosts[host], 1);
            self.prune(now, host);
            return Acquired::Refused(limit);
        }
        if let Some(limit) = self.refusal(now, host) {
            self.conns.count(&mut self.hosts[host], |totals| totals.queue.refused += 1);
            self.prune(now, host);
            return Acquired::Refused(limit);
        }
        let is_resend = wish.failed.is_some();
        let position = self.hosts[host].queue.length_before(is_resend);
        let only_runtime = if wish.own_dial { Some(runtime) } else { None };
        let not_on = wish.avoid.map(|avoid| avoid.number);
        let not_at = wish.avoid.and_then(|avoid| avoid.ip).or(wish.failed.and_then(|failed| failed.ip));
        let refuses_used = is_resend || rest.is_some();
        let yields = has_contenders && self.lets_connections_idle(now, host, &Search::new(wish, runtime, rest));
        let needs = Needs { is_resend, refuses_used, only_runtime, not_on, not_at, yields };
        let id = self.enqueue(now, host, needs, waiter());
        self.watch(now, host);
        // An effect may have answered it already.
        let limit = match self.waiters.get(id) {
            Some(_) => self.limit_of(now, id.index),
            None => self.slots.binding_limit(now, &self.hosts[host], 0),
        };
        self.conns.count(&mut self.hosts[host], |totals| totals.queued[limit as usize] += 1);
        let usage = self.usage_of(host, limit);
        Acquired::Wait(id, Queued { limit, position, usage })
    }

    /// Returns true if a request waits although its host's only connection has a free stream, so that the connection becomes idle and another
    /// host gets its slot.
    fn lets_connections_idle(&self, now: Instant, host: usize, search: &Search<'_, T::Runtime>) -> bool {
        let found = self.conns.find(now, &self.hosts[host], search);
        found.is_some_and(|id| self.is_about_to_make_room(now, id))
    }

    /// Finds a host and a connection of it that has a free stream.
    fn find_ready(&mut self, now: Instant, key: &T::Key, wish: &Wish, runtime: T::Runtime) -> Option<(usize, usize)> {
        let host = self.hosts.find(key)?;
        if self.hosts[host].limits.min_idle > 0 {
            self.note_request(now, host);
        }
        let rest = self.rest_for(now, host, wish);
        Some((host, self.find_apart(now, host, &Search::new(wish, runtime, rest))?))
    }

    /// Returns how much of a limit that keeps requests of a host waiting is taken.
    fn usage_of(&self, host: usize, limit: Limit) -> Option<Usage> {
        let entry = &self.hosts[host];
        let (conns, own) = (&entry.conns, entry.limits.own);
        let (taken, limit, is_own) = match limit {
            Limit::ConnectionsPerHost => (conns.slots, entry.limits.max_connections, own.max_connections),
            Limit::Connections => (self.slots.taken, self.slots.limit, false),
            Limit::Streams if conns.streams_per_conn > 0 => {
                (conns.leased, conns.usable.saturating_mul(conns.streams_per_conn), own.max_http2_connections)
            }
            Limit::Dials => (entry.dials.young.len(), entry.limits.max_dials, own.max_dials),
            Limit::Opening => (entry.dials.in_flight, entry.limits.max_dials, false),
            _ => return None,
        };
        Some(Usage::new(taken, limit).of_host(is_own))
    }

    /// Leases a connection to a request that did not wait.
    #[inline]
    fn lease_found(&mut self, now: Instant, host: usize, id: usize) -> Grant<T::Conn> {
        let grant = self.lease(now, host, id, Sample::ZERO);
        // It may have been the last stream of a connection, and others may wait for one of another connection.
        if !self.hosts[host].queue.is_empty() {
            self.fill(now, host);
        }
        self.watch(now, host);
        grant
    }

    /// Returns the time that a used HTTP/1 connection must have been idle for a request. Over HTTP/2, requests share
    /// connections, and servers say which ones they did not process.
    fn rest_for(&self, now: Instant, host: usize, wish: &Wish) -> Option<Duration> {
        if !wish.send_once {
            return None;
        }
        let entry = &self.hosts[host];
        let is_http2 = entry.speaks == Speaks::Http2 && entry.conns.http1 == 0;
        if is_http2 { None } else { entry.facts.conduct.rest(now) }
    }

    /// Returns the limit because of which a new request is refused, if there is one.
    fn refusal(&self, now: Instant, host: usize) -> Option<Limit> {
        let entry = &self.hosts[host];
        let is_full = self.waiters.is_full() || entry.queue.undialled >= entry.limits.max_waiting;
        if !is_full || entry.will_have_streams(now, 1) {
            return None;
        }
        // It waits no longer than an idle connection of another host takes to close.
        let has_room = || self.slots.has_room() || self.can_make_room(now, host);
        let can_dial = entry.queue.fresh.is_empty() && entry.wanted_dials(now, 1) > 0 && has_room();
        if can_dial {
            return None;
        }
        match self.slots.binding_limit(now, entry, 1) {
            Limit::Opening => Some(Limit::Dials),
            limit => Some(limit),
        }
    }

    /// Adds a request to the queue.
    ///
    /// One of these will answer it: a dial that opens, begun for it or for another request, a connection that becomes free, or the
    /// timer for its wait.
    fn enqueue(
        &mut self,
        now: Instant,
        host: usize,
        needs: Needs<T::Runtime>,
        (handle, limits): (T::Waiter, WaitLimits),
    ) -> WaiterId {
        let serial = self.next_serial();
        let waiter = WaitingRequest::new(now, host, serial, needs, limits, handle);
        let index = self.waiters.push(&mut self.hosts[host].queue, waiter);
        let id = WaiterId { index, serial };
        self.conns.count(&mut self.hosts[host], |totals| totals.queue.entered += 1);
        self.fill(now, host);
        let wants_own_dial = needs.only_runtime.is_some() || needs.not_on.is_some();
        // Each step may answer it.
        let lacks_dial = |state: &Self| state.waiters.get(id).is_some_and(|waiter| waiter.dials.young().is_none());
        let may_dial = self.slots.has_room() && self.hosts[host].may_dial_extra(now) && !self.is_draining;
        if wants_own_dial && may_dial && lacks_dial(self) {
            self.dial_for(now, host, index);
            self.slots.update_contender(now, &mut self.hosts, host);
        }
        if lacks_dial(self) && !self.is_another_coming(now, host) {
            // It takes what it refused at first.
            self.settle_free(now, host);
            self.fill(now, host);
        }
        if self.waiters.get(id).is_some() {
            self.watch_wait(now, host, index);
        }
        id
    }

    /// Returns true if there will be another connection of a host: by a dial, or when one has closed.
    fn is_another_coming(&self, now: Instant, host: usize) -> bool {
        let entry = &self.hosts[host];
        entry.dials.in_flight > 0 || entry.conns.slots > entry.conns.usable || entry.wanted_dials(now, 0) > 0
    }

    /// Finds a connection. Another attempt gets one to another address than the earlier one, if there is one.
    fn find_apart(&mut self, now: Instant, host: usize, search: &Search<'_, T::Runtime>) -> Option<usize> {
        let found = self.find(now, host, search);
        if found.is_some() {
            return found;
        }
        if search.wish.avoid.is_none() && search.wish.failed.is_none() {
            return None;
        }
        self.find(now, host, &Search { any_address: true, ..*search })
    }

    /// Returns true if a second attempt at a request would have a connection, or a dial of its own, at once.
    pub(crate) fn has_room_for_hedge(
        &mut self,
        now: Instant,
        key: &T::Key,
        avoid: EarlierConn,
        runtime: T::Runtime,
    ) -> bool {
        let host = self.host(now, key);
        let wish = Wish { avoid: Some(avoid), ..Wish::default() };
        let has_room = self.find_apart(now, host, &Search::new(&wish, runtime, None)).is_some()
            || self.may_dial_for_hedge(now, host);
        self.prune(now, host);
        has_room
    }

    /// Returns true if a connection can be opened for the second attempt at a request without making other requests wait.
    fn may_dial_for_hedge(&self, now: Instant, host: usize) -> bool {
        let entry = &self.hosts[host];
        if self.is_draining || entry.queue.to_dial_for() > 0 {
            return false;
        }
        let wants_dial = entry.wanted_dials(now, 1) > 0 || entry.may_dial_extra(now);
        entry.spare_dials() > 0 || (self.slots.has_room() && wants_dial)
    }
}

impl<T: PoolTypes> State<T> {
    /// Ends a lease.
    pub(crate) fn release(&mut self, now: Instant, token: LeaseToken, end: LeaseEnd) {
        let id = token.id.index;
        let conn = &self.conns[id];
        let host = conn.host;
        let entry = &mut self.hosts[host];
        let held = Sample::of_nanos(now.nanos_since(token.since));
        self.conns.count(entry, |totals| totals.held.add_sample(held));
        entry.conns.leased_since = entry.conns.leased_since.wrapping_sub(token.since.nanos());
        if !entry.queue.is_empty() {
            entry.dials.progress_at = Some(now);
        }
        self.conns.untrack(now, entry, &token);
        self.conns.give_back_stream(now, entry, id, end);
        match end {
            LeaseEnd::Unused => {}
            LeaseEnd::Kept { keep_alive } => {
                self.set_keep_alive(now, id, keep_alive);
                self.end_if_none_is_kept(id);
            }
            LeaseEnd::Retire(cause @ (CloseCause::Peer | CloseCause::PeerAnnounced)) => self.end(id, cause),
            LeaseEnd::Retire(cause) => self.end_when_possible(id, cause),
            LeaseEnd::Cut { idle } => {
                self.note_close(now, host, idle, true);
                self.end_after(id, CloseCause::Peer, true);
            }
        }
        if let Some(cause) = self.overdue(now, id) {
            let is_busy = self.conns.open(id).streams.taken > 0;
            let turn = self.next_turn(now, host, is_busy);
            self.slots.give_turn(&mut self.hosts, turn);
            self.end(id, cause);
        } else if !self.hosts[host].queue.is_empty() {
            self.slots.give_turn(&mut self.hosts, None);
        }
        self.settle(now, id);
        self.finish(now, host);
    }

    /// Notes how long the server says it keeps a connection that is idle.
    fn set_keep_alive(&mut self, now: Instant, id: usize, keep_alive: Option<Duration>) {
        let host = self.conns[id].host;
        self.hosts[host].facts.announced = keep_alive.filter(|time| !time.is_zero());
        let Some(time) = keep_alive else { return };
        self.conns.open_mut(id).keep_alive = keep_alive;
        if time.is_zero() {
            self.end(id, CloseCause::PeerAnnounced);
        } else {
            self.look_by(host, now.checked_add(least_stay(time)));
        }
    }

    /// Ends a used HTTP/1 connection where no idle connection is allowed: it serves no request that waits either.
    fn end_if_none_is_kept(&mut self, id: usize) {
        let conn = &self.conns[id];
        let allowed = self.hosts[conn.host].limits.max_idle.min(self.conns.max_idle);
        if allowed == 0 && !conn.open().is_http2 {
            self.end(id, CloseCause::IdleLimit);
        }
    }

    /// Removes a request that no longer waits, and returns the driver's side of it. Returns `None` if it was answered in the
    /// meantime.
    pub(crate) fn abandon(&mut self, now: Instant, id: WaiterId, cause: AbandonCause) -> Option<T::Waiter> {
        let host = self.waiters.get(id)?.host;
        let waiter = self.waiters.remove(&mut self.hosts[host].queue, id.index);
        self.conns.count(&mut self.hosts[host], |totals| cause.count(&mut totals.queue));
        self.finish(now, host);
        Some(waiter.handle)
    }

    /// Takes back a connection that was delivered to a request which had left the queue by then, for this reason.
    pub(crate) fn undelivered(&mut self, now: Instant, token: LeaseToken, cause: AbandonCause) {
        let host = self.conns[token.id.index].host;
        self.conns.count(&mut self.hosts[host], |totals| {
            totals.queue.served -= 1;
            cause.count(&mut totals.queue);
        });
        self.release(now, token, LeaseEnd::Unused);
    }
}
