//! The events of open connections: reports by peers, sockets and DNS. A core.

use std::sync::Arc;

use crate::clock::Instant;
use crate::pool::state::parts::State;
use crate::pool::state::values::conn::Stage;
use crate::pool::state::values::types::{Addresses, ConnId, LeaseToken, PoolTypes};
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
