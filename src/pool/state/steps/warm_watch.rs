//! The steps by which events notice what concerns hosts that are kept warm: requests, new connections, failures, a lack. A core.
//!
//! They have the host looked at in time, by its timer. What a look does is in `look.rs`.

use crate::clock::Instant;
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::Stage;
use crate::pool::state::values::types::PoolTypes;
use crate::pool::state::warm::PROVEN_AFTER;

// The hosts.
impl<T: PoolTypes> State<T> {
    /// Notes a request to a host that is kept warm, or that is to be because it has connections.
    #[inline(never)]
    pub(in crate::pool::state) fn note_request(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        if entry.warm.is_some() {
            self.warm_hosts.requested(now, &mut self.hosts.slab, host);
        } else if entry.open_conns() > 0 {
            self.note_use(now, host);
            self.watch(now, host);
        }
    }

    /// Notes a request or a new connection of a host, which is kept warm from now on.
    pub(in crate::pool::state) fn note_use(&mut self, now: Instant, host: usize) {
        if self.is_draining || self.min_idle(host) == 0 {
            return;
        }
        self.warm_hosts.requested(now, &mut self.hosts.slab, host);
        if self.warm_hosts.is_over_full() {
            self.forget_oldest_warm(now);
        }
    }

    /// Keeps the host warm no longer whose last request is the oldest. Returns false if there is none.
    pub(in crate::pool::state) fn forget_oldest_warm(&mut self, now: Instant) -> bool {
        let Some(oldest) = self.warm_hosts.oldest() else { return false };
        self.warm_hosts.remove(&mut self.hosts.slab, oldest);
        self.prune(now, oldest);
        true
    }

    /// Notes a dial that failed. A host that is kept warm is not dialled ahead for a while.
    pub(in crate::pool::state) fn note_failure(&mut self, now: Instant, host: usize) {
        if let Some(warm) = &mut self.hosts[host].warm {
            warm.backoff.failed(now, self.warm_hosts.jitter.f64());
        }
    }

    /// Counts a connection that ends soon after it was opened, without a request, as a failed dial.
    pub(in crate::pool::state) fn note_early_end(&mut self, now: Instant, id: usize) {
        let conn = &self.conns[id];
        if let Stage::Open(open) = &conn.stage
            && conn.end_cause.is_none()
            && open.requests == 0
            && now - open.used_at < PROVEN_AFTER
        {
            self.note_failure(now, conn.host);
        }
    }
}

// The looks.
impl<T: PoolTypes> State<T> {
    /// Has a host that is kept warm looked at in time: at once if it lacks connections, and in a while if too many are busy.
    #[inline]
    pub(in crate::pool::state) fn watch(&mut self, now: Instant, host: usize) {
        if self.hosts[host].warm.is_some() {
            self.watch_warm(now, host);
        }
    }

    /// Does what [`watch`](Self::watch) does for a host of which connections are kept open.
    pub(in crate::pool::state) fn watch_warm(&mut self, now: Instant, host: usize) {
        let wanted = self.min_idle(host);
        let entry = &mut self.hosts[host];
        let lacks = entry.conns.usable < wanted;
        let is_busy = entry.is_too_busy(wanted);
        let Some(warm) = &mut entry.warm else { return };
        if let Some(too_long) = warm.set_busy(now, is_busy) {
            warm.look_by(too_long);
        } else if lacks {
            warm.look_by(now);
        }
        let look_at = warm.look_at;
        self.set_timer(host, Some(look_at));
    }

    /// Has a host that is kept warm looked at soon, after its idle timeout has changed.
    pub(in crate::pool::state) fn look_soon(&mut self, now: Instant, host: usize) {
        self.look_by(host, Some(now));
    }

    /// Has a host that is kept warm looked at by a time.
    pub(in crate::pool::state) fn look_by(&mut self, host: usize, at: Option<Instant>) {
        if let Some(warm) = &mut self.hosts[host].warm
            && let Some(at) = at
        {
            warm.look_by(at);
            let look_at = warm.look_at;
            self.set_timer(host, Some(look_at));
        }
    }
}
