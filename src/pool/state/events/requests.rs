//! Leases that end, and requests that leave the queue. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::latency::Sample;
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::least_stay;
use crate::pool::state::values::types::{AbandonCause, LeaseEnd, LeaseToken, PoolTypes, WaiterId};
use crate::trace::CloseCause;

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
