//! The pool's core: which request gets which connection, and when one is dialled or closed. A core.
//!
//! The driver calls one method per event, with the time, and then performs the effects that [`State::next_effect`] returns. A
//! connection holds a slot from the start of its dial until its socket is closed, and has streams: one if it speaks HTTP/1, as many
//! as the peer and the configuration allow if it speaks HTTP/2.
//!
//! # Protocol
//!
//! | event | steps, in order | effects |
//! |---|---|---|
//! | [`checkout`](State::checkout) | find an open connection, or refuse, or queue and [`fill`](State::fill) | `Dial`, `Close` |
//! | [`dial_succeeded`](State::dial_succeeded) | part it from its request, forgive failures, admit, deliver, settle, finish | `Deliver`, `Dial` |
//! | [`dial_failed`](State::dial_failed) | part it from its request, note the failure for whom it concerns, remove the dial, finish | `Fail`, `Dial` |
//! | [`dial_postponed`](State::dial_postponed) | descriptors ran out: the request waits on, the oldest idle connection closes | `Close` |
//! | [`release`](State::release) | give the stream back, end the connection if it is over, settle, finish | `Deliver`, `Close` |
//! | [`announce_streams`](State::announce_streams) | set the streams, settle, finish | `Deliver`, `Dial` |
//! | [`retire`](State::retire), [`back_off`](State::back_off) | end the connection, settle, finish | `Retired`, `Close`, `Dial` |
//! | [`foresee_end`](State::foresee_end) | note why a lease is about to end | |
//! | [`socket_closed`](State::socket_closed) | free the slot, settle, finish | `Dial` |
//! | [`abandon`](State::abandon) | remove the request, finish | `AbortDial` |
//! | [`dns_answered`](State::dns_answered) | end connections to addresses that left | `AskDns`, `Retired`, `Close` |
//! | [`report`](State::report), [`addresses_answered`](State::addresses_answered) | balance anew, settle what is free | `Deliver`, `Dial` |
//! | [`handle_timeout`](State::handle_timeout) | whatever is due, per timer | all |
//! | [`renew`](State::renew), [`set_config`](State::set_config) | end connections with old settings, or too many; settle, finish | `Retired`, `Close`, `Dial` |
//! | [`drain`](State::drain) | close idle connections, give up dials that no request needs | `Close`, `AbortDial`, `Drained` |
//!
//! *Settle* restores the invariants of a connection, *finish* those of a host.
//!
//! # Invariants
//!
//! After each event:
//!
//! 1. Slots: the pool and each host have as many slots taken as there are dials and open sockets, within their limits.
//! 2. Figures: every counter is the number of the records it counts. Each request that entered the queue waits, or was counted
//!    once as it left: served, failed, timed out or cancelled.
//! 3. Dials: each is young, slow or given up, and counted as that. A request knows how many of its own are in flight, and the one
//!    that is young. It stands among those to dial for if it has none that is young, or among those that are about to fail (restored
//!    by `part`, `stop_relying_on`).
//! 4. Lists: an open connection that takes requests stands in the idle list of its host and of the pool if it has none, and in the
//!    shared list if it has some and a free stream; idle lists are sorted by the last use (restored by `settle`).
//! 5. Delivery: no request waits beside a connection with a free stream, unless it refuses used connections, or another attempt at
//!    it waits on that one, or it has a dial and the connection leads to an address that is out of use (restored by `settle`,
//!    `settle_free`).
//! 6. Turns: while the total has room, no host has a request that it would dial for, unless it is in trouble and has its share
//!    (restored by `fill`). No request waits without a young dial while the host's limits allow one.
//! 7. Records: a host has a record if and only if it has connections or requests, or is kept warm (restored by `prune`).
//! 8. Warmth: a host that is kept warm, lacks connections and closes none is looked at as soon as it may be. A pool that drains keeps
//!    none warm (restored by `watch`).
//!
//! `invariants.rs` checks them after each step of the random walks, and `tests/walks.rs` checks the limits of the pool beside them.
//!
//! # Files
//!
//! Calls go downwards: this file, `renewal.rs`, `balance/balancing.rs`, `dials/timeouts.rs`; `flow.rs`, which restores a host; `warm/look.rs`;
//! `dials/provision.rs`, which begins and ends dials; `warm/watch.rs`; `settle.rs`, which restores a connection; then the parts, which do not
//! know of each other's decisions: `hosts/connections.rs`, `hosts/slots.rs`, `hosts/queue.rs`, `timers.rs`, the records `hosts/host.rs` and
//! `hosts/conn.rs`, and what the pool learns: `dials/mod.rs`, `dials/descriptors.rs`, `moved_addresses.rs`, and in `memory/mod.rs` the facts about
//! hosts, with `memory/learned_keep_alive.rs` and `memory/conduct.rs`. The hosts that are kept warm are listed in `warm/hosts.rs`, and
//! `warm/mod.rs` has the record of one. The balance between a host's
//! addresses is in `balance/mod.rs`, with `balance/address.rs`, `balance/peak_latency.rs` and `balance/outliers.rs`.

mod balance;
mod dials;
mod flow;
mod hosts;
#[cfg(any(test, fuzzing))]
mod invariants;
mod memory;
mod moved_addresses;
mod parts;
mod renewal;
mod settle;
mod timers;
mod warm;

use std::sync::Arc;
use std::time::Duration;

use self::memory::Facts;
pub(crate) use self::memory::KnownServer;
pub(crate) use self::parts::State;
use self::timers::Timer;
use crate::clock::Instant;
use crate::latency::Sample;
use crate::trace::{CloseCause, HostAtDial, Limit, Usage};
pub(crate) use balance::address::{AddressReport, Outcome};
pub(crate) use balance::outliers::Standing;
use hosts::conn::{Ahead, Pace, Stage};
use hosts::connections::Search;
pub use hosts::counters::QueueStats;
pub(crate) use hosts::counters::{Counters, HostCounters, Totals};
use hosts::host::Host;
use hosts::queue::{Needs, WaitingRequest};
pub(crate) use hosts::types::{
    AbandonCause, Acquired, Addresses, BalancedHost, ConnId, EarlierConn, Effect, Grant, HostReport, LeaseEnd,
    LeaseToken, Location, Opened, Permit, PoolTypes, Profile, Queued, Speaks, WaitFailure, WaitLimits, WaiterId,
    WarmUp, Wish,
};

// Requests.
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
        let is_choosy = rest.is_some() || wish.own_dial || self.hosts[host].balance.is_some();
        let any = Wish { own_dial: false, ..*wish };
        // A connection that has not rested, is another runtime's, or leads to an address out of use is better than none.
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
        let shuns_free = self.has_free_out_of_use(host);
        let refuses_used = is_resend || rest.is_some();
        let needs = Needs { is_resend, refuses_used, only_runtime, not_on, not_at, shuns_free };
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
        let wants_own_dial = needs.only_runtime.is_some() || needs.not_on.is_some() || needs.shuns_free;
        // Each step may answer it.
        let lacks_dial = |state: &Self| state.waiters.get(id).is_some_and(|waiter| waiter.dials.young().is_none());
        let may_dial = self.slots.has_room() && self.hosts[host].may_dial_extra() && !self.is_draining;
        if wants_own_dial && may_dial && lacks_dial(self) {
            self.dial_for(now, host, index);
            self.slots.update_contender(now, &mut self.hosts, host);
        }
        if needs.refuses_used
            && lacks_dial(self)
            && let Some(oldest) = self.hosts[host].conns.idle.back()
            && !self.hosts[host].has_room()
            && !self.hosts[host].allows_no_request()
        {
            // It makes room for one that the request takes.
            self.end(oldest, CloseCause::MadeRoom);
            self.settle(now, oldest);
            self.fill(now, host);
        }
        if lacks_dial(self) && (needs.shuns_free || !self.is_another_coming(now, host)) {
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
        let wants_dial = entry.wanted_dials(now, 1) > 0 || entry.may_dial_extra();
        entry.spare_dials() > 0 || (self.slots.has_room() && wants_dial)
    }

    /// Ends a lease.
    pub(crate) fn release(&mut self, now: Instant, token: LeaseToken, end: LeaseEnd) {
        let id = token.id.index;
        let conn = &self.conns[id];
        let host = conn.host;
        let entry = &mut self.hosts[host];
        let held = Sample::of_nanos(now.nanos_since(token.since));
        self.conns.count(entry, |totals| totals.held.add(held));
        entry.conns.leased_since = entry.conns.leased_since.wrapping_sub(token.since.nanos());
        if !entry.queue.is_empty() {
            entry.dials.progress_at = Some(now);
        }
        self.conns.untrack(now, entry, &token);
        self.conns.give_back_stream(now, entry, id, end);
        match end {
            LeaseEnd::Unused => {}
            LeaseEnd::Kept { keep_alive } => self.set_keep_alive(now, host, keep_alive),
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
        } else {
            self.slots.give_turn(&mut self.hosts, None);
        }
        self.settle(now, id);
        self.finish(now, host);
    }

    /// Notes how long the server says it keeps idle connections.
    fn set_keep_alive(&mut self, now: Instant, host: usize, keep_alive: Option<Duration>) {
        if keep_alive.is_some() && self.hosts[host].keep_alive != keep_alive {
            self.hosts[host].keep_alive = keep_alive;
            self.hosts[host].note_server(now);
            self.set_idle_timer(now, host);
            self.look_soon(now, host);
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

    /// Returns the state of a host's connections for a dial that begins.
    pub(crate) fn note_dial(&mut self, now: Instant, permit: &Permit) -> HostAtDial {
        let host = &mut self.hosts[self.conns[permit.0.index].host];
        let open = host.open_conns();
        let mut state = host.facts.recent.at_dial(now, open);
        let lacks_ports = host.dials.lacks_ports.then_some(Limit::Ports);
        state.lacking = self.slots.descriptors.have_run_out().then_some(Limit::Descriptors).or(lacks_ports);
        state
    }

    /// Takes one resend from a host's allowance. Returns false if there is none left.
    pub(crate) fn may_resend(&mut self, now: Instant, key: &T::Key) -> bool {
        self.with_facts(now, key, |facts| facts.conduct.may_resend(now))
    }

    /// Returns the index of a host, adding a record if it has none.
    #[inline]
    fn host(&mut self, now: Instant, key: &T::Key) -> usize {
        if let Some(host) = self.hosts.find(key) {
            return host;
        }
        self.add_host(now, key)
    }

    #[cold]
    fn add_host(&mut self, now: Instant, key: &T::Key) -> usize {
        let facts = self.memory.take(key);
        let host = self.hosts.insert(Host::new(now, key.clone(), (self.profile)(key), facts));
        self.set_timer(host, self.hosts[host].dials.paused_until);
        host
    }

    /// Changes the facts about a host, whether it has a record or not.
    fn with_facts<R>(&mut self, now: Instant, key: &T::Key, change: impl FnOnce(&mut Facts) -> R) -> R {
        if let Some(host) = self.hosts.find(key) {
            return change(&mut self.hosts[host].facts);
        }
        let mut facts = self.memory.take(key);
        let result = change(&mut facts);
        self.memory.put(now, key, facts);
        result
    }

    /// Returns what is known of servers, with the time since it was seen.
    pub(crate) fn known_servers(&self, now: Instant) -> Vec<(T::Key, KnownServer, Duration)> {
        let present = self.hosts.slab.iter().map(|(_, host)| (&host.key, &*host.facts, host.open_conns() > 0));
        let known = present.chain(self.memory.iter().map(|(key, facts)| (key, facts, false)));
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
}

// Dials.
impl<T: PoolTypes> State<T> {
    /// Admits a new connection, which goes to the requests that waited longest, or becomes idle. Returns true if the driver should
    /// report the [answers](Self::dns_answered) of the name it was dialled for.
    pub(crate) fn dial_succeeded(&mut self, now: Instant, permit: Permit, opened: Opened<T>) -> bool {
        let id = permit.0.index;
        let host = self.conns[id].host;
        let dialling = self.conns[id].dialling();
        let (begun, outdated_after) = (dialling.since, dialling.outdated_after);
        // It may be aborted at any moment, with the connection that it opened.
        let is_given_up = dialling.pace == Pace::GivenUp;
        let is_ahead = self.is_ahead_of_requests(id);
        self.conns.count(&mut self.hosts[host], |totals| {
            totals.opened += 1;
            totals.opened_ahead += u64::from(is_ahead);
        });
        self.hosts[host].facts.recent.opened(now);
        if self.hosts[host].limits.min_idle > 0 {
            self.note_opened(now, host, id);
        }
        self.part(now, id);
        let is_elsewhere = match (&mut self.hosts[host].balance, &opened.location, opened.remote) {
            (Some(balance), Some(location), Some(remote)) => balance.reached(&location.name, remote.port()),
            _ => false,
        };
        // An address of another endpoint was not tried.
        if !is_elsewhere {
            self.note_missed(now, host, id, opened.remote);
        }
        self.conns.end_dial(&mut self.hosts[host], id);
        self.hosts[host].dials.succeeded(now, begun);
        self.waiters.forgive(&mut self.hosts[host].queue);
        self.slots.descriptors.opened_one();
        let location = opened.location.as_ref().filter(|_| self.conns[id].holds_slot);
        let mut wants_answers = location.is_some_and(|location| self.moved_addresses.opened(now, location));
        wants_answers |= self.hosts[host].balance.as_ref().is_some_and(|balance| balance.lacks_answers());
        self.conns.admit(now, &mut self.hosts[host], id, opened);
        if self.conns.open(id).streams.is_unannounced {
            // The peer will say in a moment how many streams it allows.
            let dials = &mut self.hosts[host].dials;
            dials.settings_by = Some(now + dials.slow_after(Duration::MAX, 1));
            self.set_timer(host, self.hosts[host].dials.settings_by);
        }
        if outdated_after.is_none() {
            self.hosts[host].note_server(now);
        }
        // A connection that has ended already is still delivered, and its request notices the end. Otherwise the pool would dial
        // for that request again and again.
        // One that began with old settings serves no request that came after these.
        if !is_given_up
            && let Some(waiter) = self.first_taker(id)
            && outdated_after.is_none_or(|last| self.waiters[waiter].serial <= last)
        {
            self.deliver(now, id, waiter);
        }
        if outdated_after.is_some() {
            self.end(id, CloseCause::Reconfigured);
        } else if is_given_up {
            self.end(id, CloseCause::Unfinished);
        }
        self.settle(now, id);
        self.settle_free(now, host);
        self.finish(now, host);
        self.close_moved(now);
        wants_answers
    }

    /// Takes note of a dial that failed. Requests fail for it if they have nothing else to hope for. Returns the error if the dial was
    /// for no request that waits.
    pub(crate) fn dial_failed(&mut self, now: Instant, permit: Permit, error: T::Error) -> Option<T::Error> {
        let id = permit.0.index;
        if self.conns[id].is_given_up() {
            self.remove_dial(now, id);
            return Some(error);
        }
        let host = self.conns[id].host;
        self.note_failure(now, host);
        self.note_failed_dial(now, host, id);
        let owner = self.part(now, id);
        self.note_failed(now, id, owner, &error);
        self.remove_dial(now, id);
        if owner.is_none() { Some(error) } else { None }
    }

    /// Takes note of a dial that was lost with its runtime, or by a panic. That is no failure of its host: it concerns its own request
    /// alone.
    pub(crate) fn dial_lost(&mut self, now: Instant, permit: Permit, error: T::Error) {
        let id = permit.0.index;
        let owner = self.part(now, id);
        if let Some((owner, _)) = owner {
            self.mark_failed(now, owner, &error, Duration::MAX);
        }
        self.remove_dial(now, id);
    }

    /// Puts a dial off because descriptors, or local ports for the address, ran out: its request waits on. For a descriptor, the oldest
    /// idle connection makes room.
    pub(crate) fn dial_postponed(&mut self, now: Instant, permit: Permit, lacking: Limit) {
        let id = permit.0.index;
        let host = self.conns[id].host;
        let is_needed = !self.is_ahead_of_requests(id) || self.conns[id].dialling().ahead == Some(Ahead::WarmUp);
        self.note_failure(now, host);
        if let Some((owner, _)) = self.part(now, id)
            && self.waiters[owner].dials.in_flight == 0
        {
            // It has waited for a descriptor all the time.
            let waiter = &mut self.waiters[owner];
            waiter.dials.is_limited = true;
            waiter.dials.waits_from = waiter.since;
            self.expect_end(host, Some(now));
        }
        self.settle_free(now, host);
        // The dial itself holds a slot, unless it was given up already.
        let others = self.slots.taken - usize::from(self.conns[id].holds_slot);
        if lacking == Limit::Ports {
            let paused_until = self.hosts[host].dials.lack_ports(now);
            self.set_timer(host, Some(paused_until));
        } else if is_needed && let Some(retry_at) = self.slots.descriptors.ran_out(now, others) {
            // No connection is given up for one that no request needs.
            self.timers.set(Timer::Descriptors, &mut self.slots.descriptors.timer, Some(retry_at));
            self.close_oldest(now, CloseCause::Descriptors);
        }
        self.remove_dial(now, id);
    }

    /// Dials until a host has `count` connections that are open or being opened, as far as the limits allow, but not more than
    /// `budget` times.
    pub(crate) fn warm_up(&mut self, now: Instant, key: &T::Key, count: usize, budget: usize) -> WarmUp {
        let host = self.host(now, key);
        let limits = self.hosts[host].limits;
        let count = count.min(limits.max_connections).min(limits.max_idle).min(self.conns.max_idle);
        let mut dialled = 0;
        while dialled < budget && self.hosts[host].conns.usable < count && self.may_dial_ahead(now, host) {
            dialled += 1;
            let dial = self.dial_ahead_of_requests(now, host, None);
            self.conns.dialling_mut(dial).ahead = Some(Ahead::WarmUp);
        }
        let open = self.hosts[host].open_conns();
        let mut dials = Vec::new();
        if open < count {
            let conns = self.conns.iter();
            let in_flight = conns.filter(|(_, conn)| conn.host == host && matches!(conn.stage, Stage::Dialling(_)));
            dials.extend(in_flight.map(|(index, conn)| conn.id(index)));
        }
        self.prune(now, host);
        WarmUp { open, dialled, dials }
    }

    /// Returns the request that a dial was begun for, if it waits.
    pub(crate) fn waiter_of(&self, permit: &Permit) -> Option<&T::Waiter> {
        let owner = self.conns[permit.0.index].dialling().owner?;
        Some(&self.waiters.get(owner)?.handle)
    }

    /// Returns true if a dial is in flight that was given up.
    pub(crate) fn is_given_up(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(hosts::conn::Conn::is_given_up)
    }
}

// Connections.
impl<T: PoolTypes> State<T> {
    /// Sets the number of concurrent requests that a connection's peer allows.
    pub(crate) fn announce_streams(&mut self, now: Instant, id: ConnId, streams: usize) {
        let Some(host) = self.host_of(id) else { return };
        if self.conns.announce_streams(&mut self.hosts[host], id.index, streams) {
            self.hosts[host].note_server(now);
            self.settle(now, id.index);
        }
        self.finish(now, host);
    }

    /// Stops a connection from taking more requests. Those it has go on.
    pub(crate) fn retire(&mut self, now: Instant, id: ConnId, cause: CloseCause) {
        let Some(host) = self.host_of(id) else { return };
        self.note_early_end(now, id.index);
        self.end(id.index, cause);
        self.settle(now, id.index);
        self.finish(now, host);
    }

    /// Like [`retire`](Self::retire), for the connection with this number. Does nothing if that is gone.
    #[cfg(feature = "aws")]
    pub(crate) fn retire_number(&mut self, now: Instant, number: u64, cause: CloseCause) {
        let found = self.conns.iter().find(|(_, conn)| conn.serial == number);
        if let Some(id) = found.map(|(index, conn)| conn.id(index)) {
            self.retire(now, id, cause);
        }
    }

    /// Retires a connection whose peer asked for fewer requests (GOAWAY with ENHANCE_YOUR_CALM, RFC 9113 §7), and dials its host
    /// no more for a while. `random`, from 0 to 1, spreads the pauses of many clients.
    pub(crate) fn back_off(&mut self, now: Instant, id: ConnId, random: f64) {
        let Some(host) = self.host_of(id) else { return };
        let entry = &mut self.hosts[host];
        entry.dials.paused_until = Some(entry.facts.conduct.pause(now, random));
        self.set_timer(host, self.hosts[host].dials.paused_until);
        self.retire(now, id, CloseCause::PeerAnnounced);
    }

    /// Notes the cause for which a lease is about to end. It counts if the socket is closed before the lease is released.
    pub(crate) fn foresee_end(&mut self, token: &LeaseToken, cause: CloseCause) {
        self.conns.open_mut(token.id.index).foreseen = Some(cause);
    }

    /// Frees the slot of a connection whose socket is closed. Returns the reason why it closed.
    pub(crate) fn socket_closed(&mut self, now: Instant, id: ConnId) -> CloseCause {
        let Some(host) = self.host_of(id) else { return CloseCause::Peer };
        let cause = self.conns[id.index].close_cause();
        self.conns.count(&mut self.hosts[host], |totals| totals.closed[cause as usize] += 1);
        let was_idle = self.is_idle(id.index);
        self.note_early_end(now, id.index);
        self.note_end(id.index, cause, was_idle);
        if let Stage::Open(open) = &self.conns[id.index].stage {
            let age = now - open.used_at;
            if let Some(location) = &open.location {
                self.moved_addresses.closed(location);
            }
            // The server closed an idle connection, and may close others at the same age.
            if was_idle {
                self.note_close(now, host, age, false);
            } else if open.requests == 0 && self.hosts[host].warm.is_some() {
                self.hosts[host].facts.keep_unused.closed(now, age);
            }
        }
        if self.conns.lose_socket(&mut self.hosts[host], id.index) {
            self.slots.taken -= 1;
        }
        if let Some(warm) = &mut self.hosts[host].warm {
            warm.may_look_at_once();
        }
        self.settle(now, id.index);
        self.finish(now, host);
        cause
    }

    /// Closes every idle connection.
    pub(crate) fn close_idle(&mut self, now: Instant) {
        while let Some(oldest) = self.conns.idle.back() {
            let host = self.conns[oldest].host;
            self.end(oldest, CloseCause::Program);
            self.settle(now, oldest);
            self.finish(now, host);
        }
    }

    /// Returns the host of a connection, unless that is gone.
    fn host_of(&self, id: ConnId) -> Option<usize> {
        self.conns.get(id).map(|conn| conn.host)
    }

    /// Reports the answer of DNS for a name. `is_new` is true if it replaces the answer that is known.
    pub(crate) fn dns_answered(&mut self, now: Instant, name: &str, answer: &Addresses, is_new: bool) {
        self.moved_addresses.answered(now, name, answer, is_new);
        self.close_moved(now);
    }

    /// Returns the names of open connections.
    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.moved_addresses.names()
    }
}

// Draining.
impl<T: PoolTypes> State<T> {
    /// Serves no new call from now on, and closes the connections that calls in progress do not need. [`Effect::Drained`] reports
    /// the end.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.is_draining = true;
        while self.forget_oldest_warm(now) {}
        self.close_idle(now);
        let hosts: Vec<_> = self.hosts.slab.iter().map(|(host, _)| host).collect();
        for host in hosts {
            self.settle_free(now, host);
            self.give_up_unneeded(now, host);
        }
        self.report_if_drained();
    }

    /// Keeps a drain from completing while a call will want another connection. Returns false for a new call if the pool drains
    /// already.
    pub(crate) fn hold_drain(&mut self, is_new: bool) -> bool {
        let may_hold = !(is_new && self.is_draining);
        self.drain_holds += usize::from(may_hold);
        may_hold
    }

    /// Ends what [`hold_drain`](Self::hold_drain) began.
    pub(crate) fn unhold_drain(&mut self) {
        self.drain_holds -= 1;
        self.report_if_drained();
    }
}

// Effects, time and figures.
impl<T: PoolTypes> State<T> {
    /// Takes the next effect.
    pub(crate) fn next_effect(&mut self) -> Option<Effect<T>> {
        self.effects.pop_front()
    }

    /// Returns true if there is an effect to take.
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Handles everything that is due: closes connections, fails requests, and dials again after a pause.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Host(host) => self.expire(now, host),
                Timer::MovedAddresses => self.close_moved(now),
                Timer::Descriptors => self.retry_descriptors(now),
            }
        }
    }

    /// Returns the time of the next [`handle_timeout`](Self::handle_timeout). It may turn out to be early.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the requests that wait, in no particular order.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &T::Waiter> {
        self.waiters.iter().map(|waiter| &waiter.handle)
    }

    /// Returns the pool's figures.
    pub(crate) fn counters(&self) -> Counters {
        Counters {
            slots: self.slots.taken,
            idle: self.conns.idle.len(),
            waiting: self.waiters.len(),
            undialled: self.waiters.undialled,
            ..self.conns.counters
        }
    }

    /// Returns each host's figures, limits, and facts that are known about its server. The totals are those since the pool was
    /// made, and hosts without a record are among them.
    pub(crate) fn host_reports(&self, now: Instant) -> impl Iterator<Item = (&T::Key, HostReport)> {
        let present = self.hosts.slab.iter().map(move |(_, host)| (&host.key, self.host_report(now, host)));
        let past = self.memory.iter().filter(|(_, facts)| facts.totals != Totals::default());
        present.chain(past.map(move |(key, facts)| (key, self.past_report(now, key, facts))))
    }

    fn host_report(&self, now: Instant, host: &Host<T::Key>) -> HostReport {
        let keep_alive = host.keep_alive.into_iter().chain(host.facts.keep_alive.limit(now)).min();
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
            counters: HostCounters { totals: facts.totals, ..HostCounters::default() },
            busy_time: facts.totals.held.sum(),
            limits: (self.profile)(key).limits,
            streams: server.filter(|server| server.speaks == Speaks::Http2).map(|server| server.streams),
            keep_alive: server.and_then(|server| server.keep_alive.into_iter().chain(server.idle_limit).min()),
        }
    }

    /// Returns the figures of each host.
    pub(crate) fn host_counters(&self) -> impl Iterator<Item = (&T::Key, HostCounters)> {
        self.hosts.slab.iter().map(|(_, host)| (&host.key, host.counters()))
    }
}

#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
#[cfg_attr(fuzzing, allow(dead_code, unused_imports, reason = "most of it is tests"))]
pub(super) mod tests;
