//! The handling of timers that are due: idle connections, slow dials, waiting requests, moved addresses. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::pool::state::memory;
use crate::pool::state::parts::{State, TimerKey};
use crate::pool::state::values::{Effect, PoolTypes};
use crate::trace::CloseCause;

impl<T: PoolTypes> State<T> {
    /// Handles the timeouts of a host: its pause, idle connections, slow dials and waiting requests.
    pub(in crate::pool::state) fn expire(&mut self, now: Instant, host: usize) {
        let entry = &mut self.hosts[host];
        self.timers.set(TimerKey::Host(host), &mut entry.timer, None);
        for time in [&mut entry.dials.paused_until, &mut entry.dials.settings_by] {
            *time = time.filter(|at| now < *at);
        }
        self.close_expired_idle(now, host);
        self.mark_slow_dials(now, host);
        self.fail_expired(now, host);
        self.keep_warm(now, host);
        self.set_timers(now, host);
        self.finish(now, host);
    }

    /// Sets the host's timer for what [`expire`](Self::expire) handles.
    fn set_timers(&mut self, now: Instant, host: usize) {
        self.set_idle_timer(now, host);
        self.set_timer(host, self.hosts[host].dials.paused_until);
        self.set_timer(host, self.hosts[host].queue.next_end());
        self.set_timer(host, self.hosts[host].dials.settings_by);
    }

    fn close_expired_idle(&mut self, now: Instant, host: usize) {
        while let Some(oldest) = self.hosts[host].conns.idle.back()
            && self.idle_until(now, oldest).is_some_and(|until| until <= now)
        {
            self.note_early_end(now, oldest);
            self.end(oldest, CloseCause::IdleTimeout);
            self.settle(now, oldest);
        }
    }

    /// Closes an idle connection whose own time is over. A busy one is looked at when it becomes idle.
    pub(in crate::pool::state) fn expire_conn(&mut self, now: Instant, id: usize) {
        self.unwatch_conn(id);
        let conn = &self.conns[id];
        let (host, open) = (conn.host, conn.open());
        if open.streams.taken > 0 {
            return;
        }
        let is_too_old = open.expires.is_some_and(|expires| expires <= now);
        let cause = if is_too_old { CloseCause::Lifetime } else { CloseCause::IdleTimeout };
        if is_too_old || self.is_idle_for_too_long(now, id) {
            self.end(id, cause);
            self.settle(now, id);
            self.finish(now, host);
        } else {
            self.watch_conn(id);
        }
    }

    /// Tries one more connection, some time after descriptors ran out.
    pub(in crate::pool::state) fn retry_descriptors(&mut self, now: Instant) {
        let is_wanted = !self.slots.has_no_contenders();
        let next = self.slots.descriptors.try_another(now, self.slots.taken, is_wanted);
        self.timers.set(TimerKey::Descriptors, &mut self.slots.descriptors.timer, next);
        if let Some(host) = self.slots.next_contender() {
            self.finish(now, host);
        }
    }

    /// Ends connections to addresses that have left their names' answers, and asks about those that may have.
    pub(in crate::pool::state) fn close_moved(&mut self, now: Instant) {
        let (moved, unsure) = self.moved_addresses.take_due(now);
        self.effects.extend(unsure.into_iter().map(Effect::AskDns));
        for id in moved {
            let Some(host) = self.conns.host_of_open(id) else { continue };
            self.end_when_possible(id, CloseCause::AddressMoved);
            self.settle(now, id);
            self.finish(now, host);
        }
        let next = self.moved_addresses.next_due();
        self.timers.set(TimerKey::MovedAddresses, &mut self.moved_addresses.timer, next);
    }

    /// Notes that the server closed a connection which had been idle for `age`, perhaps under a request.
    pub(in crate::pool::state) fn note_close(
        &mut self,
        now: Instant,
        host: usize,
        age: Duration,
        under_a_request: bool,
    ) {
        self.conns.count(&mut self.hosts[host], |totals| totals.closed_idle_by_peer += 1);
        let facts = &mut self.hosts[host].facts;
        if age >= memory::YOUNGEST {
            // The server closes connections of this age by a timer.
            if under_a_request {
                facts.keep_lost.lost(now, age);
            } else {
                facts.keep_alive.closed(now, age);
            }
            self.set_idle_timer(now, host);
            self.look_soon(now, host);
        } else if under_a_request {
            facts.conduct.cut(now, age);
        } else {
            facts.conduct.closed_idle(now, age);
        }
    }
}
