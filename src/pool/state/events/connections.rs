//! The events of open connections: reports by peers, sockets and DNS, and new settings. A core.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::clock::Instant;
use crate::pool::config::PoolConfig;
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::{Pace, Stage};
use crate::pool::state::values::{Addresses, ConnId, LeaseToken, PoolTypes};
use crate::trace::CloseCause;

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
    pub(crate) fn retire_number(&mut self, now: Instant, number: u64, cause: CloseCause) {
        if let Some(id) = self.conns.of_number(number) {
            self.retire(now, id, cause);
        }
    }

    /// Retires a connection whose peer asked for fewer requests (GOAWAY with ENHANCE_YOUR_CALM, RFC 9113 §7), and dials its host
    /// no more for a while. `random`, from 0 to 1, spreads the pauses of many clients.
    pub(crate) fn back_off(&mut self, now: Instant, id: ConnId, random: f64) {
        let Some(host) = self.host_of(id) else { return };
        let conn = &self.conns[id.index];
        // One that had ended already may have been the last one to its address.
        let address = conn.address.filter(|_| conn.end_cause.is_none());
        let entry = &mut self.hosts[host];
        let until = entry.facts.conduct.pause(now, random);
        match (&mut entry.balance, address) {
            // The other addresses have not asked for it.
            (Some(balance), Some(key)) => balance.pause(key, until),
            (Some(_), None) => {}
            (None, _) => entry.dials.paused_until = Some(until),
        }
        self.set_timer(host, Some(until));
        self.retire(now, id, CloseCause::PeerAnnounced);
        if self.hosts.slab.contains(host) {
            // No other one is opened for requests that refused those.
            self.settle_free(now, host);
        }
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
                self.moved_addresses.closed(location, id.index);
            }
            // The server closed an idle connection, and may close others at the same age.
            if was_idle {
                self.note_close(now, host, age, false);
            } else if open.requests == 0 && self.hosts[host].warm.is_some() {
                self.hosts[host].facts.keep_unused.closed(now, age);
            }
        }
        self.unwatch_conn(id.index);
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

impl<T: PoolTypes> State<T> {
    /// Ends the connections of hosts whose settings have changed. Those without requests close now, the others after their requests,
    /// even if there is no room for another one until then. A dial in flight serves one request that waits by now, and no other.
    pub(crate) fn renew(&mut self, now: Instant, is_old: impl Fn(&T::Key) -> bool) {
        let hosts: BTreeSet<_> = self.hosts.iter().filter(|(_, host)| is_old(&host.key)).map(|(id, _)| id).collect();
        for &host in &hosts {
            // Which protocol the host speaks may have been a setting.
            let speaks = (self.profile)(&self.hosts[host].key).speaks;
            self.hosts[host].speaks = speaks;
            self.hosts[host].facts.forget_server();
        }
        self.memory.forget_servers(&is_old);
        let concerned: Vec<_> =
            self.conns.iter().filter(|(_, conn)| hosts.contains(&conn.host)).map(|(id, _)| id).collect();
        for id in concerned {
            if matches!(self.conns[id].stage, Stage::Dialling(_)) {
                self.conns.dialling_mut(id).outdated_after.get_or_insert(self.serial);
                if self.conns[id].dialling().pace == Pace::Young {
                    self.stop_relying_on(id);
                }
            } else if self.conns[id].end_cause.is_none() {
                self.end(id, CloseCause::Reconfigured);
                self.settle(now, id);
            }
        }
        for host in hosts {
            if self.hosts.slab.contains(host) {
                self.look_soon(now, host);
                self.finish(now, host);
            }
        }
    }

    /// Replaces the limits. Idle connections that are too many by the new ones close now; a busy one closes when it becomes idle. The
    /// lifetime of open connections, and the requests at a time that they take, stay as they are.
    pub(crate) fn set_config(&mut self, now: Instant, config: &PoolConfig) {
        self.slots.limit = config.max_connections;
        self.conns.max_idle = config.max_idle;
        self.waiters.max = config.max_waiting;
        let hosts: Vec<_> = self.hosts.iter().map(|(id, _)| id).collect();
        for &host in &hosts {
            let limits = (self.profile)(&self.hosts[host].key).limits;
            let entry = &mut self.hosts[host];
            entry.limits = limits;
            if let Some(balance) = &mut entry.balance {
                balance.set_rules(limits.ejection);
            }
            entry.conns.streams_per_conn = entry.conns.streams_per_conn.min(limits.max_streams);
        }
        while self.conns.idle.len() > self.conns.max_idle || (self.is_over_total() && !self.conns.idle.is_empty()) {
            self.close_oldest(now, CloseCause::IdleLimit);
        }
        for &host in &hosts {
            self.apply_limits(now, host);
        }
        for host in hosts {
            // Where too many hosts are kept warm, the record of another one may be gone by now.
            if self.hosts.slab.contains(host) {
                self.keep_warm_as_configured(now, host);
                self.finish(now, host);
            }
        }
    }

    /// Begins or ends to keep a host warm, as its limits say.
    fn keep_warm_as_configured(&mut self, now: Instant, host: usize) {
        let is_wanted = self.min_idle(host) > 0;
        if !is_wanted && self.hosts[host].warm.is_some() {
            self.warm_hosts.remove(&mut self.hosts.slab, host);
        } else if is_wanted && self.hosts[host].open_conns() > 0 {
            self.note_use(now, host);
            self.look_soon(now, host);
        }
    }

    /// Closes a host's idle connections that are too many, and sets its timers by its limits.
    fn apply_limits(&mut self, now: Instant, host: usize) {
        while let Some(oldest) = self.hosts[host].conns.idle.back()
            && self.hosts[host].has_idle_to_close()
        {
            self.end(oldest, CloseCause::IdleLimit);
            self.settle(now, oldest);
        }
        self.set_idle_timer(now, host);
        // The longest wait may have changed.
        let waiting: Vec<_> = self.waiters.in_order(&self.hosts[host].queue).collect();
        for waiter in waiting {
            self.expect_end(host, waiter, Some(now));
        }
    }
}
