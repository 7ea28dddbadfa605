//! The steps that several events take: they restore a host and a connection, begin dials, and keep hosts warm. A core.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | restores a host after an event |
//! | `settle.rs` | restores a connection |
//! | `provision.rs`, `timeouts.rs` | begins and ends dials; what is due |
//! | `balancing.rs` | chooses between the addresses of a host |
//! | `warm_look.rs`, `provision.rs` | keeps hosts warm |

use std::time::Duration;

use crate::clock::Instant;
use crate::pool::state::parts::State;
use crate::pool::state::values::PoolTypes;
use crate::trace::CloseCause;

pub(super) mod balancing;
pub(super) mod provision;
pub(super) mod settle;
pub(super) mod timeouts;
pub(super) mod warm_look;

/// The age from which on an idle connection may close for a host in trouble.
const COLD: Duration = Duration::from_secs(1);

impl<T: PoolTypes> State<T> {
    /// Dials for requests that wait, as far as the limits allow, after a change to `host`.
    pub(in crate::pool::state) fn fill(&mut self, now: Instant, host: usize) {
        self.slots.update_contender(now, &mut self.hosts, host);
        self.dial_for_contenders(now);
        if !self.slots.has_no_contenders() {
            self.make_room(now);
            // Dials that were given up may have been all that a host had too many.
            self.dial_for_contenders(now);
        }
        if !self.hosts[host].dials.slow.is_empty() {
            self.give_way(now, host);
            self.dial_for_contenders(now);
        }
        if let Some(oldest) = self.hosts[host].conns.idle.back()
            && !self.hosts[host].has_room(now)
            && self.must_yield(now, oldest)
        {
            self.end(oldest, CloseCause::MadeRoom);
            self.settle(now, oldest);
        }
        self.watch_queue(now, host);
    }

    fn dial_for_contenders(&mut self, now: Instant) {
        while let Some(next) = self.slots.pop_contender(&mut self.hosts) {
            self.dial_for_next(now, next);
            self.watch_queue(now, next);
        }
    }

    /// Makes room for the connections that the total keeps out: for each, a slow dial of a host that has more than its share is given
    /// up, or the oldest idle connection closes.
    fn make_room(&mut self, now: Instant) {
        let must = |state: &Self, counts: &dyn Fn(usize) -> bool| {
            let soon_free = state.conns.counters.closing + state.conns.given_up;
            state.slots.must_make_room(now, &state.hosts, soon_free, counts)
        };
        while let Some((host, dial)) = self.dial_beyond_share()
            && must(self, &|other| other != host)
        {
            self.give_up(now, dial);
        }
        while let Some(oldest) = self.conns.idle.back() {
            if !must(self, &|host| self.may_give_room(now, oldest, host)) {
                // Where many hosts are in trouble, others are looked at the next time.
                if self.slots.next_contender().is_some_and(|first| !self.may_give_room(now, oldest, first)) {
                    self.slots.give_turn(&mut self.hosts, None);
                }
                return;
            }
            self.close_oldest(now, CloseCause::MadeRoom);
        }
    }

    /// Returns true if there are more idle connections than the total's other contenders need, of which one may close for a host.
    pub(in crate::pool::state) fn can_make_room(&self, now: Instant, host: usize) -> bool {
        let Some(oldest) = self.conns.idle.back() else { return false };
        let free = self.conns.idle.len() + self.conns.counters.closing + self.conns.given_up;
        let others = |other: usize| other != host;
        self.may_give_room(now, oldest, host) && !self.slots.must_make_room(now, &self.hosts, free - 1, others)
    }

    /// Returns true if an idle connection may close for a host. One in trouble tries again by one dial, and for that no connection
    /// closes that was used just now.
    fn may_give_room(&self, now: Instant, idle: usize, host: usize) -> bool {
        let dials = &self.hosts[host].dials;
        !dials.are_in_trouble() || (now - self.conns.open(idle).used_at >= COLD && dials.live() == 0)
    }

    /// Restores a host's invariants after a change: dials, delivers, and removes the record if it is unused.
    pub(in crate::pool::state) fn finish(&mut self, now: Instant, host: usize) {
        self.slots.update_share(&mut self.hosts, host);
        let entry = &self.hosts[host];
        let is_calm = entry.queue.is_empty() && !entry.is_contender && self.slots.has_no_contenders();
        let is_done = is_calm && entry.conns.records > 0 && entry.dials.extra == 0 && !self.is_draining;
        self.watch(now, host);
        // As it is after most requests.
        if is_done {
            return;
        }
        if self.hosts[host].balance.as_mut().is_some_and(|balance| balance.take_new()) {
            self.settle_free(now, host);
        }
        self.fail_expired(now, host);
        self.fill(now, host);
        self.fail_hopeless(now, host);
        self.give_up_unneeded(now, host);
        if self.is_draining && self.hosts[host].queue.is_empty() {
            while let Some(idle) = self.hosts[host].conns.idle.back() {
                self.end(idle, CloseCause::Program);
                self.settle(now, idle);
            }
        }
        self.prune(now, host);
        self.report_if_drained();
    }

    /// Removes a dial that came to nothing.
    pub(in crate::pool::state) fn remove_dial(&mut self, now: Instant, id: usize) {
        let host = self.conns[id].host;
        if self.conns.remove_dial(&mut self.hosts[host], id) {
            self.slots.taken -= 1;
        }
        self.settle_free(now, host);
        self.finish(now, host);
    }
}
