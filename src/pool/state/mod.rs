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
//!    it waits on that one, or the connection leads to an address that is out of use while another one may be reached
//!    (restored by `settle`, `settle_free`). Where a limit leaves no room for another one, the connection that the next request
//!    refuses closes for it (`must_yield`).
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
//! Calls go downwards: this file; `events/`, with a file for each thing that an event concerns; `steps/balancing.rs`,
//! `steps/timeouts.rs`; `steps/mod.rs`, which restores a host; `steps/warm_look.rs`; `steps/provision.rs`, which begins and ends dials;
//! `steps/settle.rs`, which restores a connection; then the parts, which do not know of each other's decisions:
//! `hosts/connections.rs`, `hosts/slots.rs`, `hosts/queue.rs`, `parts.rs`, the records `hosts/host.rs` and `values/conn.rs`, and what
//! the pool learns: `dials/mod.rs`, `moved_addresses.rs`, and in `memory/mod.rs` the facts about hosts.
//! The hosts that are kept warm are listed in `parts.rs`, and `warm/mod.rs` has the record of one. The balance between a host's
//! addresses is in `balance/mod.rs`, with `balance/address.rs` and `balance/outliers.rs`.

mod balance;
mod dials;
mod events;
mod hosts;
#[cfg(any(test, fuzzing))]
mod invariants;
mod memory;
mod moved_addresses;
mod parts;
mod steps;
mod values;
mod warm;

pub(crate) use self::memory::{IdleLimit, KnownServer};
pub(crate) use self::parts::State;
use crate::clock::Instant;
use crate::pool::state::parts::TimerKey;
pub use crate::pool::state::values::QueueStats;
pub(crate) use crate::pool::state::values::{
    AbandonCause, Acquired, Addresses, BalancedHost, ConnId, EarlierConn, Effect, Expired, Grant, HostReport, LeaseEnd,
    LeaseToken, Location, Opened, Permit, PoolTypes, Profile, Queued, Speaks, WaitFailure, WaitLimits, WaiterId,
    WarmUp, Wish,
};
pub(crate) use crate::pool::state::values::{Counters, Totals};
pub(crate) use balance::address::{AddressReport, Outcome};
pub(crate) use balance::outliers::Standing;

// Draining.
impl<T: PoolTypes> State<T> {
    /// Serves no new call from now on, and closes the connections that calls in progress do not need. [`Effect::Drained`] reports
    /// the end.
    pub(crate) fn drain(&mut self, now: Instant) {
        self.is_draining = true;
        while self.forget_oldest_warm(now) {}
        self.close_idle(now);
        let hosts: Vec<_> = self.hosts.iter().map(|(host, _)| host).collect();
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
                TimerKey::Host(host) => self.expire(now, host),
                TimerKey::Conn(id) => self.expire_conn(now, id),
                TimerKey::MovedAddresses => self.close_moved(now),
                TimerKey::Descriptors => self.retry_descriptors(now),
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
}

#[cfg(any(test, fuzzing))]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
#[cfg_attr(fuzzing, allow(dead_code, unused_imports, reason = "most of it is tests"))]
pub(super) mod tests;
