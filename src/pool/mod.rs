//! Connections per host, kept and shared under limits: the limits of some hosts, the figures of the pool, and the balance between addresses.
//! [`PoolConfig`] has the limits of all hosts.
//!
//! # For readers of the code
//! The core decides under a lock, and the driver acts outside of it. Where to look:
//!
//! | question | place |
//! |---|---|
//! | What does a request hold, and what if it is dropped? | `lease.rs`: `Lease`, `Waiter` |
//! | When is a dial begun? | `state/steps/mod.rs`: `fill`; how many, `state/hosts/host.rs`: `needed_dials` |
//! | When is a connection opened that no request needs yet? | `state/steps/warm_look.rs`: `keep_warm`; for which hosts, `state/parts.rs`; `warm_up` |
//! | How many dials may be in flight to a host? | `state/dials/mod.rs` |
//! | Which idle connection is reused? | `state/hosts/connections.rs`: `find` |
//! | When does a connection close? | `state/steps/settle.rs`: `overdue`, `make_idle`; by time, `state/steps/timeouts.rs` |
//! | Which host gets the next slot? | `state/hosts/slots.rs`: `next_turn` |
//! | Which request hears of a dial's failure, and when? | `state/steps/provision.rs` |
//! | How are the counters right after a cancelled dial? | `driver.rs`: `DialGuard`; `state/values/mod.rs`: `Permit` |
//! | What happens to EMFILE, from the syscall to the next try? | `Dial::lacking`, `driver.rs`: `dial_failed`, `state/events/dials.rs`: `dial_postponed`, `state/dials/mod.rs` |
//! | What is remembered of a server without connections? | `state/memory/mod.rs` |
//! | What happens to connections when the client is reconfigured? | `state/events/connections.rs` |
//! | Which of a balanced host's addresses gets a request? | `state/balance/mod.rs`; when one is ejected, `state/balance/outliers.rs` |
//! | What if DNS moves a host? | `state/moved_addresses.rs`, `state/steps/timeouts.rs`: `close_moved` |
//! | Which events does the core know, and which invariants hold after each? | `state/mod.rs` |
//! | Which timers are there? | `state/parts.rs`, `state/steps/timeouts.rs` |
//! | How does a drain end? | `state/mod.rs`: `drain`; `state/steps/settle.rs`: `report_if_drained` |
//!
//! Calls go downwards: this file, `lease.rs`, `driver.rs`, then `dialling.rs` and `state/`. `dialling.rs` is the seam to
//! `connect`; `client/pool_side/dialer.rs` implements it.

#[cfg(feature = "__bench")]
pub(crate) mod benched;
mod config;
mod dialling;
mod driver;
mod lease;
mod state;
mod stats;

use std::sync::{Arc, Weak};
use std::time::Duration;

pub use crate::pool::config::Ejection;
#[cfg(test)]
pub(crate) use crate::pool::dialling::CapacityReporter;
pub(crate) use crate::pool::dialling::Slot;
pub(crate) use crate::pool::dialling::{AddressWish, Dial, Started};
pub use crate::pool::stats::{AddressState, AddressStats};
pub use crate::pool::stats::{HostLoad, Load};
pub use config::{FollowDns, HostLimits, PoolConfig, PoolConfigError};
use driver::{Driver, WaiterHandle};
pub(crate) use lease::{Checkout, Delivery, Lease, LeaseError, Waiter};
pub(crate) use state::Expired;
pub use state::QueueStats;
#[cfg(fuzzing)]
pub(crate) use state::tests::walk_by_bytes;
use state::{Acquired, WarmUp};
pub(crate) use state::{
    Addresses, BalancedHost, EarlierConn, IdleLimit, KnownServer, Location, Outcome, Queued, Speaks, WaitLimits, Wish,
};
pub use stats::PoolStats;

use crate::clock::{Instant, now};
use crate::sync::current_runtime;
use crate::trace::{CloseCause, Hooks, Limit};

/// A pool of connections. Clones share it.
pub(crate) struct Pool<D: Dial> {
    driver: Arc<Driver<D>>,
}

impl<D: Dial> Clone for Pool<D> {
    fn clone(&self) -> Self {
        Self { driver: self.driver.clone() }
    }
}

impl<D: Dial> Pool<D> {
    pub(crate) fn new(config: PoolConfig, dialer: D, hooks: Hooks) -> Self {
        Self { driver: Arc::new(Driver::new(config, dialer, hooks)) }
    }

    /// Returns the opener of connections.
    pub(crate) fn dialer(&self) -> &D {
        &self.driver.dialer
    }

    /// Leases a connection, or has the request wait for one. `now` may be a moment ago. `limits` says for how long it waits.
    #[inline]
    pub(crate) fn checkout(
        &self,
        key: &D::Key,
        wish: &Wish,
        now: Instant,
        limits: impl FnOnce() -> WaitLimits,
    ) -> Checkout<D> {
        let mut receiver = None;
        let runtime = current_runtime();
        let acquired = self.driver.step(|state| {
            state.checkout(now, key, wish, runtime, || {
                let (handle, answer) = WaiterHandle::new(wish.avoid.and_then(|first| first.ip));
                receiver = Some(answer);
                (handle, limits())
            })
        });
        match acquired {
            Acquired::Ready(grant) => Checkout::Ready(Lease::new(self.driver.clone(), grant)),
            Acquired::Refused(limit) => Checkout::Refused(LeaseError::Refused(limit)),
            Acquired::Wait(id, line) => {
                let answer = receiver.expect("a request that waits has a handle");
                Checkout::Wait(Waiter::new(self.driver.clone(), id, answer), line)
            }
        }
    }

    /// Opens connections until a host has `count`, as far as the limits allow. Returns the number that are open then.
    pub(crate) async fn warm_up(&self, key: &D::Key, count: usize) -> Result<usize, LeaseError<D::Error>> {
        let mut budget = count;
        let mut has_waited = false;
        let mut open_before = 0;
        loop {
            let warm_up = self.driver.step(|state| state.warm_up(now(), key, count, budget));
            let WarmUp { open, dialled, dials } = warm_up;
            budget -= dialled;
            // Where other requests dial all the time, dials in flight alone are no reason to go on.
            if dials.is_empty() || (has_waited && dialled == 0 && open <= open_before) {
                return Ok(open);
            }
            has_waited = true;
            open_before = open;
            let watched: Vec<_> = dials.iter().filter_map(|dial| self.driver.dials.watch(*dial)).collect();
            if watched.is_empty() {
                // Another thread is about to begin them, or has just ended them.
                tokio::task::yield_now().await;
            }
            for end in watched {
                if let Ok(Err(Some(error))) = end.await {
                    return Err(LeaseError::Dial(error));
                }
            }
        }
    }

    /// Closes the idle connections.
    pub(crate) fn close_idle(&self) {
        self.driver.step(|state| state.close_idle(now()));
    }

    /// Gives the connection with this number no more requests, and closes it when those that it carries are over.
    pub(crate) fn retire(&self, number: u64) {
        self.driver.step(|state| state.retire_number(now(), number, CloseCause::Program));
    }

    /// Serves no new call from now on. Completes when the calls in progress are over and every socket is closed.
    pub(crate) async fn drain(&self) {
        let mut drained = std::pin::pin!(self.driver.drained.notified());
        drained.as_mut().enable();
        let is_drained = self.driver.step(|state| {
            state.drain(now());
            state.is_drained()
        });
        if !is_drained {
            drained.await;
        }
    }

    /// Takes one resend from a host's allowance for requests that it refused. Returns false if there is none left.
    pub(crate) fn may_resend(&self, key: &D::Key) -> bool {
        self.driver.lock().may_resend(now(), key)
    }

    /// Keeps a drain from completing while a call has no connection but will need one.
    pub(crate) fn hold_drain(&self) -> DrainHold<D> {
        self.driver.step(|state| state.hold_drain(false));
        DrainHold(self.driver.clone())
    }

    /// Like [`Self::hold_drain`], for a call that has had no connection.
    ///
    /// # Errors
    /// The pool drains already.
    pub(crate) fn hold_drain_for_new(&self) -> Result<DrainHold<D>, LeaseError<D::Error>> {
        if !self.driver.step(|state| state.hold_drain(true)) {
            return Err(LeaseError::Refused(Limit::Draining));
        }
        Ok(DrainHold(self.driver.clone()))
    }

    /// Returns true if a second attempt at a request would have a connection, or a dial of its own, at once. `avoid` is the
    /// connection of the first attempt.
    pub(crate) fn has_room_for_hedge(&self, key: &D::Key, avoid: EarlierConn) -> bool {
        let runtime = current_runtime();
        self.driver.step(|state| state.has_room_for_hedge(now(), key, avoid, runtime))
    }

    /// Reports a new DNS answer for a name.
    pub(crate) fn dns_answered(&self, name: &str, answer: Addresses) {
        self.driver.report_answer(name, answer);
    }

    /// Asks for the DNS answers of all names of connections, which may have changed unnoticed.
    pub(crate) fn recheck_dns(&self) {
        let names = self.driver.lock().names();
        for name in names {
            self.driver.report_answers(now(), &name, true);
        }
    }

    /// Returns what is known of servers, with the time since it was seen.
    pub(crate) fn known_servers(&self) -> Vec<(D::Key, KnownServer, Duration)> {
        self.driver.lock().known_servers(now())
    }

    /// Adds what was known of a server `age` ago, unless something is known of it already.
    pub(crate) fn restore_server(&self, key: &D::Key, server: KnownServer, age: Duration) {
        self.driver.step(|state| state.restore_server(now(), key, server, age));
    }

    /// Returns the figures of the pool.
    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats::new(&self.driver.lock().counters())
    }

    /// Returns the figures of each host.
    pub(crate) fn host_stats(&self) -> Vec<(D::Key, PoolStats)> {
        let state = self.driver.lock();
        state.host_counters().map(|(key, counters)| (key.clone(), PoolStats::new(&counters))).collect()
    }

    /// Returns the figures of the addresses of each balanced host, in the order of the addresses.
    pub(crate) fn address_stats(&self) -> Vec<(D::Key, Vec<AddressStats>)> {
        let state = self.driver.lock();
        let hosts = state.address_reports(now());
        let stats = hosts.map(|(key, reports)| {
            let mut stats: Vec<_> = reports.iter().map(AddressStats::new).collect();
            stats.sort_unstable_by_key(|stats| stats.address);
            (key.clone(), stats)
        });
        stats.collect()
    }

    /// Returns the load of each host.
    pub(crate) fn host_loads(&self) -> Vec<(D::Key, HostLoad)> {
        let state = self.driver.lock();
        state.host_reports(now()).map(|(key, report)| (key.clone(), HostLoad::new(&report))).collect()
    }

    /// Returns the limits.
    pub(crate) fn config(&self) -> PoolConfig {
        self.driver.config.read().clone()
    }

    /// Replaces the limits. They hold from [`apply_config`](Self::apply_config) on, but hosts that are new have them at once.
    pub(crate) fn set_config(&self, config: PoolConfig) {
        let old = std::mem::replace(&mut *self.driver.config.write(), config);
        drop(old);
    }

    /// Puts limits into effect that were [set](Self::set_config). Connections that are too many close: idle ones now, busy ones when
    /// they become idle.
    pub(crate) fn apply_config(&self) {
        loop {
            // Copied, because the core looks the limits of hosts up meanwhile, and would wait behind a writer.
            let config = self.config();
            self.driver.step(|state| state.set_config(now(), &config));
            // Another thread may have put other limits into effect since the copy. Those that were set last must be in effect at the end.
            if *self.driver.config.read() == config {
                return;
            }
        }
    }

    /// Has the connections of hosts end whose settings have changed: idle ones now, busy ones after their requests. `is_old` tells
    /// the hosts. Dials in flight serve the request that they are for, and no other.
    pub(crate) fn renew(&self, is_old: impl Fn(&D::Key) -> bool) {
        self.driver.step(|state| state.renew(now(), is_old));
    }

    pub(crate) fn downgrade(&self) -> WeakPool<D> {
        WeakPool(Arc::downgrade(&self.driver))
    }
}

/// A hold on the drain, for a call in progress without a connection.
pub(crate) struct DrainHold<D: Dial>(Arc<Driver<D>>);

impl<D: Dial> Drop for DrainHold<D> {
    fn drop(&mut self) {
        self.0.step(|state| state.unhold_drain());
    }
}

/// A reference to a pool that does not keep it alive.
pub(crate) struct WeakPool<D: Dial>(Weak<Driver<D>>);

impl<D: Dial> WeakPool<D> {
    pub(crate) fn upgrade(&self) -> Option<Pool<D>> {
        self.0.upgrade().map(|driver| Pool { driver })
    }
}

#[cfg(test)]
mod tests;
