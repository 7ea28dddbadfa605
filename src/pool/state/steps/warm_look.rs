//! The look at a host that is kept warm: which of its connections lack, or are about to reach their end, and the dials for them.
//! A core.
//!
//! A look is made by the host's timer only. Events have the host looked at, if they leave it short of connections ([`State::watch`]
//! in `watch.rs`). A dial ahead therefore begins on the runtime of the timers, and never in the middle of a request's way.

use std::time::Duration;

use crate::clock::Instant;
use crate::pool::state::parts::State;
use crate::pool::state::values::PoolTypes;
use crate::pool::state::values::conn::{Ahead, least_stay, replacement_lead};
use crate::trace::CloseCause;

/// The times for which a host's connections may be idle.
#[derive(Debug, Clone, Copy)]
struct IdleTimes {
    used: Duration,
    /// The time for connections that have carried no request.
    unused: Duration,
}

/// The connections of a host, as a look finds them.
#[derive(Debug, Clone, Copy)]
struct Supply {
    /// The number of connections with a free stream that are wanted.
    wanted: usize,
    /// The number of those that are open and not about to reach their end, counted up to `wanted`, and of dials that no request waits for.
    lasting: usize,
    /// The number of connections with a free stream that are about to reach their end. Not all are counted if none lacks.
    ageing: usize,
    /// The earliest time at which one of those that last, or any later one, may be about to reach its end.
    next: Option<Instant>,
}

impl<T: PoolTypes> State<T> {
    /// Notes a dial of a host that is kept warm, or is from now on.
    pub(in crate::pool::state) fn note_opened(&mut self, now: Instant, host: usize, dial: usize) {
        let for_request = !self.is_ahead_of_requests(dial);
        let ahead = self.conns[dial].dialling().ahead.filter(|_| !for_request);
        let is_to_keep_warm = matches!(ahead, Some(Ahead::Lacking | Ahead::Replacement));
        if self.hosts[host].warm.is_none() && !is_to_keep_warm {
            self.note_use(now, host);
        }
        if let Some(warm) = &mut self.hosts[host].warm {
            warm.may_look_at_once();
            warm.backoff.opened(now, for_request);
        }
        let is_usable = self.conns[dial].end_cause.is_none() && self.hosts[host].queue.is_empty();
        if is_usable && ahead == Some(Ahead::Replacement) {
            self.close_oldest_ageing(now, host);
        }
    }

    /// Dials for the connections that a host lacks, if it is time to look at it.
    pub(in crate::pool::state) fn keep_warm(&mut self, now: Instant, host: usize) {
        let Some(warm) = self.hosts[host].warm.as_ref().filter(|warm| warm.look_at <= now) else { return };
        if warm.is_forgotten(now) {
            return self.warm_hosts.remove(&mut self.hosts.slab, host);
        }
        let supply = self.supply(now, host);
        let lacking = self.lacking(now, host, &supply);
        let dialled = self.dial_ahead(now, host, lacking, supply.ageing);
        if dialled == 0 && lacking > 0 {
            self.make_room_for_replacement(now, host);
        }
        let is_busy = self.hosts[host].is_too_busy(supply.wanted);
        let Some(warm) = &mut self.hosts[host].warm else { return };
        let too_long = warm.set_busy(now, is_busy);
        warm.looked(now, supply.next.into_iter().chain(too_long).min(), dialled >= lacking);
    }

    /// Returns the number of connections to dial for.
    fn lacking(&mut self, now: Instant, host: usize, supply: &Supply) -> usize {
        let Supply { wanted, lasting, ageing, .. } = *supply;
        let is_busy = self.hosts[host].is_too_busy(wanted);
        let usable = self.hosts[host].conns.usable;
        let missing = wanted.saturating_sub(lasting);
        let Some(warm) = &mut self.hosts[host].warm else { return 0 };
        if warm.set_busy(now, is_busy).is_some_and(|too_long| too_long <= now) {
            return missing;
        }
        // Busy connections count for a while: they may be free again in a moment.
        let not_open = wanted.saturating_sub(usable.saturating_sub(ageing));
        missing.min(not_open.max(ageing))
    }

    /// Begins up to `lacking` dials that no request waits for, as far as the limits allow. Returns their number.
    fn dial_ahead(&mut self, now: Instant, host: usize, lacking: usize, ageing: usize) -> usize {
        let entry = &self.hosts[host];
        let allowed = entry.warm.as_ref().map_or(0, |warm| warm.backoff.allowed(now, entry.dials.in_flight));
        let mut dialled = 0;
        while dialled < lacking.min(allowed) && self.may_dial_to_keep_warm(now, host, ageing) {
            let dial = self.dial_ahead_of_requests(now, host, None);
            let is_replacement = dialled < ageing;
            let why = if is_replacement { Ahead::Replacement } else { Ahead::Lacking };
            self.conns.dialling_mut(dial).ahead = Some(why);
            dialled += 1;
        }
        dialled
    }

    /// Returns true if a dial may begin that no request waits for, where `ageing` connections will close soon.
    fn may_dial_to_keep_warm(&self, now: Instant, host: usize, ageing: usize) -> bool {
        let entry = &self.hosts[host];
        // Each busy connection may become idle, and would then push another one out.
        let fits_in_host = entry.conns.usable.saturating_sub(ageing) < entry.limits.max_idle;
        let fits_in_total = self.slots.taken.saturating_sub(ageing) < self.conns.max_idle;
        fits_in_host && fits_in_total && self.is_free_for_dials(host) && self.may_dial_ahead(now, host)
    }

    /// Returns true if no request would have to wait for a dial of the host, as far as can be known.
    fn is_free_for_dials(&self, host: usize) -> bool {
        let is_host_free = self.hosts[host].queue.to_dial_for() == 0;
        is_host_free && self.slots.has_no_contenders() && !self.slots.descriptors.have_run_out()
    }

    /// Closes a connection that is about to reach its end, if a limit leaves no room for another one beside it.
    fn make_room_for_replacement(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        let is_full = !entry.has_room(now) || !self.slots.has_room();
        // Another one is closing already.
        let is_closing = entry.conns.slots > entry.conns.usable;
        let may_dial = entry.dials.paused_until.is_none()
            && entry.warm.as_ref().is_some_and(|warm| warm.backoff.allowed(now, entry.dials.in_flight) > 0);
        if is_full && !is_closing && may_dial && self.is_free_for_dials(host) {
            self.close_oldest_ageing(now, host);
        }
    }

    /// Closes the least recently used idle connection of a host that is about to reach its end.
    pub(in crate::pool::state) fn close_oldest_ageing(&mut self, now: Instant, host: usize) {
        let times = self.idle_times(now, host);
        let is_ageing = |id: &usize| self.ages_at(*id, times).is_some_and(|at| at <= now);
        let oldest = self.conns.back_to_front(&self.hosts[host].conns.idle).find(is_ageing);
        if let Some(oldest) = oldest {
            self.end(oldest, CloseCause::Replaced);
            self.settle(now, oldest);
        }
    }

    /// Counts the connections of a host that have a free stream.
    fn supply(&self, now: Instant, host: usize) -> Supply {
        let entry = &self.hosts[host];
        let wanted = self.min_idle(host);
        let times = self.idle_times(now, host);
        // No connection that opens, or becomes idle, after this look is about to reach its end before then.
        let lifetime = entry.limits.lifetime;
        let stay = least_stay(times.unused).min(least_stay(lifetime - lifetime / 10));
        let next = now.checked_add(stay);
        let mut supply = Supply { wanted, lasting: entry.spare_dials(), ageing: 0, next };
        for id in self.conns.free_of(entry) {
            if supply.lasting >= wanted {
                break;
            }
            let ages_at = self.ages_at(id, times);
            if ages_at.is_some_and(|at| at <= now) {
                supply.ageing += 1;
            } else {
                supply.lasting += 1;
                supply.next = supply.next.into_iter().chain(ages_at).min();
            }
        }
        supply
    }

    fn idle_times(&self, now: Instant, host: usize) -> IdleTimes {
        let used = self.idle_timeout(now, host);
        let facts = &self.hosts[host].facts;
        let unused = facts.keep_unused.limit(now).into_iter().chain(facts.announced).chain([used]).min();
        IdleTimes { used, unused: unused.unwrap_or(used) }
    }

    /// Returns the time from which on a connection is about to reach its end: the idle timeout or its lifetime.
    fn ages_at(&self, id: usize, times: IdleTimes) -> Option<Instant> {
        let conn = &self.conns[id];
        let open = conn.open();
        let lifetime = self.hosts[conn.host].limits.lifetime;
        let timeout = if open.requests == 0 { times.unused } else { times.used };
        let timeout = open.keep_alive.map_or(timeout, |own| own.min(timeout));
        let is_idle = open.streams.taken == 0;
        let end = open.used_at.checked_add(timeout).filter(|_| is_idle);
        let idle = end.map(|end| end - replacement_lead(timeout, conn.serial));
        let old = open.expires.map(|end| end - replacement_lead(lifetime, conn.serial));
        idle.into_iter().chain(old).min()
    }
}
