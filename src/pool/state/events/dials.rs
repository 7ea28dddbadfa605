//! Dials that end, and those that are begun ahead of requests. A core.

use std::time::Duration;

use crate::clock::Instant;
use crate::pool::state::dials::HostDials;
use crate::pool::state::parts::{State, TimerKey};
use crate::pool::state::values::conn::{Ahead, Pace};
use crate::pool::state::values::{ConnId, Opened, Permit, PoolTypes, WarmUp};
use crate::trace::{CloseCause, HostAtDial, Limit};

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
        self.note_missed(now, host, id, opened.remote);
        self.conns.end_dial(&mut self.hosts[host], id);
        self.hosts[host].dials.succeeded(now, begun);
        self.waiters.forgive(&mut self.hosts[host].queue);
        self.slots.descriptors.opened_one();
        let location = opened.location.as_ref().filter(|_| self.conns[id].holds_slot);
        let mut wants_answers = location.is_some_and(|location| self.moved_addresses.opened(now, location, id));
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
            && let Some(waiter) = self.first_taker(now, id)
            && outdated_after.is_none_or(|last| self.waiters[waiter].serial <= last)
        {
            self.deliver(now, id, waiter);
        }
        if self.conns[id].end_cause.is_none() {
            self.watch_conn(id);
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
            self.expect_end(host, owner, Some(now));
        }
        self.settle_free(now, host);
        // The dial itself holds a slot, unless it was given up already.
        let others = self.slots.taken - usize::from(self.conns[id].holds_slot);
        if lacking == Limit::Ports {
            let paused_until = self.hosts[host].dials.lack_ports(now);
            self.set_timer(host, Some(paused_until));
        } else if is_needed && let Some(retry_at) = self.slots.descriptors.ran_out(now, others) {
            // No connection is given up for one that no request needs.
            self.timers.set(TimerKey::Descriptors, &mut self.slots.descriptors.timer, Some(retry_at));
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
            let HostDials { young, slow, .. } = &self.hosts[host].dials;
            let in_flight = self.conns.back_to_front(young).chain(self.conns.back_to_front(slow));
            dials.extend(in_flight.map(|dial| self.conns.id(dial)));
        }
        self.prune(now, host);
        WarmUp { open, dialled, dials }
    }

    /// Returns the state of a host's connections for a dial that begins.
    pub(crate) fn note_dial(&mut self, permit: &Permit) -> HostAtDial {
        let dial = &self.conns[permit.0.index];
        let since = dial.dialling().since;
        let host = &mut self.hosts[dial.host];
        let open = host.open_conns();
        let mut state = host.facts.recent.at_dial(since, open);
        let lacks_ports = host.dials.lacks_ports.then_some(Limit::Ports);
        state.lacking = self.slots.descriptors.have_run_out().then_some(Limit::Descriptors).or(lacks_ports);
        state
    }

    /// Returns the request that a dial was begun for, if it waits.
    pub(crate) fn waiter_of(&self, permit: &Permit) -> Option<&T::Waiter> {
        let owner = self.conns[permit.0.index].dialling().owner?;
        Some(&self.waiters.get(owner)?.handle)
    }

    /// Returns true if a dial is in flight that was given up.
    pub(crate) fn is_given_up(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(crate::pool::state::values::conn::Conn::is_given_up)
    }
}
