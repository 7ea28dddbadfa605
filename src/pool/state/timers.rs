//! What happens because time passes. A core.
//!
//! Each host has one alarm, for the first of its connections, dials and requests; later ones wait for it.

use std::hash::Hash;
use std::time::Duration;

use super::learned_keep_alive::YOUNGEST;
use super::{Effect, Listed, Stage, State};
use crate::clock::Instant;
use crate::trace::CloseCause;

/// Alarms that are not a host's.
const PRESSURE: usize = usize::MAX;
const NAMES: usize = usize::MAX - 1;

/// A dial that takes longer does not keep others from being dialled.
const SLOW_DIAL: Duration = Duration::from_secs(1);

impl<K: Clone + Eq + Hash, C: Clone, W, E> State<K, C, W, E> {
    /// Closes connections that were idle, and fails requests that waited, for too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, whose)) = self.alarms.first()
            && at <= now
        {
            match whose {
                PRESSURE => self.ease(now),
                NAMES => self.follow(now),
                host => self.expire(now, host),
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next; it may turn out to be early.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// What the server said of idle connections.
    pub(super) fn heard(&mut self, now: Instant, host: usize, keep_alive: Option<Duration>) {
        if keep_alive.is_some() && self.hosts[host].keep_alive != keep_alive {
            self.hosts[host].keep_alive = keep_alive;
            self.set_idle_alarm(now, host);
        }
    }

    /// The peer closed an idle connection: others might go the same way at the same age.
    pub(super) fn learn(&mut self, now: Instant, id: usize) {
        let conn = &self.conns[id];
        if let Stage::Open(open) = &conn.stage
            && open.listed == Listed::Idle
            && open.requests > 0
        {
            let age = now.saturating_duration_since(open.since);
            self.note_close(now, conn.host, age, false);
        }
    }

    /// The peer closed a connection that had been idle for `age`, be it under a request.
    pub(super) fn note_close(&mut self, now: Instant, host: usize, age: Duration, under_a_request: bool) {
        let key = &self.hosts[host].key;
        match (age < YOUNGEST, under_a_request) {
            (true, true) => self.conduct.cut(now, key, age),
            (true, false) => self.conduct.closed_idle(now, key, age),
            // What is older is closed by a timer.
            (false, _) => {
                self.lessons.closed(now, key, age);
                self.set_idle_alarm(now, host);
            }
        }
    }

    /// How long the host's connections may be idle.
    fn idle_timeout(&self, now: Instant, host: usize) -> Duration {
        let entry = &self.hosts[host];
        let others = entry.keep_alive.into_iter().chain(self.lessons.limit(now, &entry.key));
        others.fold(self.limits(host).idle_timeout, Duration::min)
    }

    pub(super) fn set_idle_alarm(&mut self, now: Instant, host: usize) {
        if let Some(at) = self.hosts[host].idle.back().and_then(|oldest| self.idle_until(now, host, oldest)) {
            self.set_alarm(host, at);
        }
    }

    pub(super) fn set_wait_alarm(&mut self, host: usize, ticket: usize) {
        if let Some(at) = self.waits_until(ticket) {
            self.set_alarm(host, at);
        }
    }

    pub(super) fn set_dial_alarm(&mut self, host: usize, since: Instant) {
        if let Some(at) = since.checked_add(SLOW_DIAL) {
            self.set_alarm(host, at);
        }
    }

    /// Has the host looked at again when its server may be dialled.
    pub(super) fn set_calm_alarm(&mut self, host: usize) {
        if let Some(at) = self.hosts[host].calm {
            self.set_alarm(host, at);
        }
    }

    fn set_alarm(&mut self, host: usize, at: Instant) {
        if self.hosts[host].alarm.is_none_or(|alarm| at < alarm) {
            self.clear_alarm(host);
            self.hosts[host].alarm = Some(at);
            self.alarms.insert((at, host));
        }
    }

    pub(super) fn clear_alarm(&mut self, host: usize) {
        if let Some(at) = self.hosts[host].alarm.take() {
            self.alarms.remove(&(at, host));
        }
    }

    fn expire(&mut self, now: Instant, host: usize) {
        self.clear_alarm(host);
        if self.hosts[host].calm.is_some_and(|until| until <= now) {
            self.hosts[host].calm = None;
        }
        while let Some(oldest) = self.hosts[host].idle.back()
            && self.idle_until(now, host, oldest).is_some_and(|until| until <= now)
        {
            self.end(oldest, CloseCause::IdleTimeout);
            self.settle(now, oldest);
        }
        while let Some(slow) = self.hosts[host].dials.front()
            && self.dial_since(slow) + SLOW_DIAL <= now
        {
            self.is_slow(host, slow);
        }
        // The total may have gone to other hosts' connections.
        if self.next_to_give_up(host).and_then(|first| self.waits_until(first)).is_some_and(|until| until <= now)
            && let Some(shared) = self.hosts[host].shared.front()
        {
            self.settle(now, shared);
        }
        // Those for which a dial is under way wait for that, which has a limit of its own.
        while let Some(first) = self.next_to_give_up(host)
            && self.waits_until(first).is_some_and(|until| until <= now)
        {
            self.give_up(now, first);
        }
        self.set_idle_alarm(now, host);
        if let Some(first) = self.next_to_give_up(host) {
            self.set_wait_alarm(host, first);
        }
        if let Some(dial) = self.hosts[host].dials.front() {
            self.set_dial_alarm(host, self.dial_since(dial));
        }
        self.set_calm_alarm(host);
        self.finish(now, host);
    }

    fn is_slow(&mut self, host: usize, dial: usize) {
        self.hosts[host].dials.remove(&mut self.conns, dial);
        if let Stage::Dialling { slow, .. } = &mut self.conns[dial].stage {
            *slow = true;
        }
        self.probe_more(host);
    }

    fn dial_since(&self, dial: usize) -> Instant {
        match self.conns[dial].stage {
            Stage::Dialling { since, .. } => since,
            _ => unreachable!("only dials are in the list of dials"),
        }
    }

    fn idle_until(&self, now: Instant, host: usize, id: usize) -> Option<Instant> {
        self.open(id).since.checked_add(self.idle_timeout(now, host))
    }

    pub(super) fn waits_until(&self, ticket: usize) -> Option<Instant> {
        let ticket = &self.tickets[ticket];
        ticket.since.checked_add(self.limits(ticket.host).wait_timeout)
    }

    // Descriptors that have run out.

    pub(super) fn set_pressure_alarm(&mut self, at: Option<Instant>) {
        let old = std::mem::replace(&mut self.pressure_alarm, at);
        self.replace_alarm(PRESSURE, old, at);
    }

    fn ease(&mut self, now: Instant) {
        let again = self.pressure.eased(now, self.books.places, !self.ring.is_empty());
        self.set_pressure_alarm(again);
        if let Some(host) = self.ring.front() {
            self.finish(now, host);
        }
    }

    // Addresses that DNS has left.

    /// Ends connections to addresses that their names no longer have.
    pub(super) fn follow(&mut self, now: Instant) {
        let (left, unsure) = self.names.look(now);
        self.effects.extend(unsure.into_iter().map(Effect::Ask));
        if !left.is_empty() {
            let leads_there = |id: &usize| match &self.conns[*id].stage {
                Stage::Open(open) => open.location.as_ref().is_some_and(|location| left.contains(location)),
                _ => false,
            };
            let ids: Vec<_> = self.conns.iter().map(|(id, _)| id).filter(leads_there).collect();
            for id in ids {
                let host = self.conns[id].host;
                self.end_when_possible(id, CloseCause::Dns);
                self.settle(now, id);
                self.finish(now, host);
            }
        }
        let next = self.names.next_look();
        let old = std::mem::replace(&mut self.names_alarm, next);
        self.replace_alarm(NAMES, old, next);
    }

    fn replace_alarm(&mut self, whose: usize, old: Option<Instant>, new: Option<Instant>) {
        if let Some(old) = old {
            self.alarms.remove(&(old, whose));
        }
        self.alarms.extend(new.map(|at| (at, whose)));
    }
}
