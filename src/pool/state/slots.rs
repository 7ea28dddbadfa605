//! Places, and the dials that take them. A core.

use std::hash::Hash;
use std::time::Duration;

use super::{Conn, Effect, Host, Permit, Speaks, Stage, State, next};
use crate::clock::Instant;
use crate::trace::{CloseCause, Limit};

/// So long a host without any place waits for one that another host has use for: to hand it on costs a dial each time.
const TURN: Duration = Duration::from_millis(100);

/// So many hosts are looked at for the one whose turn it is.
const MOST_TURNS: usize = 16;

impl<K> Host<K> {
    /// How many connections are open and take requests.
    pub(super) fn open(&self) -> usize {
        self.usable.saturating_sub(self.dialling)
    }

    /// How many connections speak HTTP/2, or may turn out to. Servers of one host need not agree.
    pub(super) fn http2_connections(&self) -> usize {
        self.usable - self.singles
    }
}

impl<K: Clone + Eq + Hash, C: Clone, W, E> State<K, C, W, E> {
    /// Whether the total allows another connection.
    pub(super) fn has_room(&self) -> bool {
        self.books.places < self.config.max_connections && self.pressure.allows(self.books.places)
    }

    /// Whether the host's own limits allow another connection.
    pub(super) fn host_has_room(&self, host: usize) -> bool {
        let (entry, limits) = (&self.hosts[host], self.limits(host));
        let many = entry.speaks == Speaks::Many;
        entry.places < limits.max_connections && !(many && entry.http2_connections() >= limits.max_http2_connections)
    }

    /// Returns true if an HTTP/2 host may dial for one request, though another dial would do for it.
    pub(super) fn may_dial_apart(&self, host: usize) -> bool {
        let entry = &self.hosts[host];
        let is_many = entry.speaks == Speaks::Many && entry.calm.is_none();
        let has_room = self.has_room() && self.host_has_room(host);
        is_many && has_room && entry.dials.len() < self.limits(host).max_dials && !self.draining
    }

    /// How many connections the host would dial for its requests, and for so many more, if only the total allowed it.
    pub(super) fn dialable(&self, host: usize, more: usize) -> usize {
        let (entry, limits) = (&self.hosts[host], self.limits(host));
        if entry.calm.is_some() {
            return 0;
        }
        let window = if entry.speaks == Speaks::Unknown { entry.probes } else { entry.pace.window() };
        let needed = match entry.speaks {
            Speaks::One | Speaks::Unknown => entry.unpaired + more,
            Speaks::Many => {
                let connections = (entry.queue.len() + more).div_ceil(entry.seats);
                let allowed = limits.max_http2_connections.saturating_sub(entry.http2_connections());
                connections.saturating_sub(entry.dials.len() + entry.unsaid).min(entry.unpaired + more).min(allowed)
            }
        };
        let places = limits.max_connections.saturating_sub(entry.places);
        needed.min(places).min(window.saturating_sub(entry.dials.len()))
    }

    /// What keeps a host from dialling for one more request.
    pub(super) fn binding_limit(&self, host: usize) -> Limit {
        let (entry, limits) = (&self.hosts[host], self.limits(host));
        if entry.calm.is_some() {
            Limit::Calm
        } else if entry.places >= limits.max_connections {
            Limit::ConnectionsPerHost
        } else if !self.host_has_room(host) {
            Limit::Streams
        } else if !self.pressure.allows(self.books.places) {
            Limit::Descriptors
        } else if !self.has_room() {
            Limit::Connections
        } else {
            Limit::Dials
        }
    }

    /// Dials for requests that wait, as far as the limits allow, `host` having changed.
    pub(super) fn fill(&mut self, now: Instant, host: usize) {
        let most = self.limits(host).max_dials;
        let entry = &mut self.hosts[host];
        if entry.speaks == Speaks::One && !entry.queue.is_empty() {
            entry.pace.look(now, entry.open(), most);
        }
        self.relist(host);
        while self.has_room()
            && let Some(next) = self.ring.front()
        {
            self.ring.remove(&mut self.hosts, next);
            self.hosts[next].in_ring = false;
            let dial = self.dial(now, next);
            self.pair(next, dial);
            self.relist(next);
        }
        while !self.idle.is_empty() && self.must_make_room() {
            self.close_oldest(CloseCause::MadeRoom);
        }
    }

    /// Whether the total keeps more requests out than there are places about to become free.
    fn must_make_room(&self) -> bool {
        let (mut kept_out, mut next) = (0, self.ring.front());
        while let Some(host) = next.filter(|_| kept_out <= self.books.closing) {
            kept_out += self.dialable(host, 0);
            next = self.ring.after(&self.hosts, host);
        }
        kept_out > self.books.closing
    }

    /// Whether a connection that `host` could use again has to make room for another host.
    #[inline]
    pub(super) fn must_yield(&self, now: Instant, host: usize, busy: bool) -> bool {
        !self.ring.is_empty() && self.next_turn(now, host, busy).is_some()
    }

    /// The host that a connection which `host` could use again has to make room for, because it is that one's turn: it has fewer
    /// connections by more than one; or it has none, and its first request came before all of this host's or has waited for a
    /// turn's length; or this host's requests go on without ever waiting.
    pub(super) fn next_turn(&self, now: Instant, host: usize, busy: bool) -> Option<usize> {
        let making_room = if busy { self.books.closing + self.books.yielding } else { self.books.closing };
        let others = std::iter::successors(self.ring.front(), |other| self.ring.after(&self.hosts, *other));
        let mut others = others.take(MOST_TURNS).filter(|other| *other != host);
        let Some(first) = self.hosts[host].queue.front() else {
            return others.next().filter(|other| busy && self.dialable(*other, 0) > making_room);
        };
        let ours = self.hosts[host].usable;
        let is_due = |ticket: usize| {
            let ticket = &self.tickets[ticket];
            ticket.serial < self.tickets[first].serial || now.saturating_duration_since(ticket.since) >= TURN
        };
        others.find(|other| {
            let (theirs, waits) = (self.hosts[*other].usable, self.hosts[*other].first_unpaired);
            let their_turn = theirs + 1 < ours || (theirs == 0 && waits.is_some_and(is_due));
            their_turn && self.dialable(*other, 0) > making_room
        })
    }

    /// The next place is this host's; where it is nobody's turn of those that were looked at, others are the next time.
    pub(super) fn give_turn(&mut self, host: Option<usize>) {
        if let Some(host) = host {
            self.ring.remove(&mut self.hosts, host);
            self.ring.push_front(&mut self.hosts, host);
        } else if let Some(front) = self.ring.front().filter(|_| self.ring.len() > MOST_TURNS) {
            self.ring.remove(&mut self.hosts, front);
            self.ring.push_back(&mut self.hosts, front);
        }
    }

    /// Puts the host where it belongs: in the ring if it could open a connection but for the total.
    pub(super) fn relist(&mut self, host: usize) {
        let wants = self.dialable(host, 0) > 0;
        if wants != self.hosts[host].in_ring {
            match wants {
                true => self.ring.push_back(&mut self.hosts, host),
                false => self.ring.remove(&mut self.hosts, host),
            }
            self.hosts[host].in_ring = wants;
        }
    }

    /// Begins a dial, for nobody yet.
    pub(super) fn dial(&mut self, now: Instant, host: usize) -> usize {
        let serial = next(&mut self.serial);
        let stage = Stage::Dialling { ticket: None, since: now, slow: false, ahead: false, said: None };
        let id = self.conns.insert(Conn { host, serial, open: true, ended: None, stage, links: Default::default() });
        let entry = &mut self.hosts[host];
        entry.conns += 1;
        entry.places += 1;
        entry.usable += 1;
        entry.dialling += 1;
        entry.dials.push_back(&mut self.conns, id);
        let key = entry.key.clone();
        self.books.places += 1;
        self.books.dialling += 1;
        self.set_dial_alarm(host, now);
        self.effects.push_back(Effect::Dial(Permit(self.id(id)), key));
        id
    }

    /// A host of which nothing is known does not show what it speaks: it is dialled more often.
    pub(super) fn probe_more(&mut self, host: usize) {
        let entry = &mut self.hosts[host];
        entry.probes = (entry.probes * 2).min(entry.pace.window());
    }

    /// A dial is over.
    pub(super) fn end_dial(&mut self, id: usize) {
        let host = self.conns[id].host;
        self.books.dialling -= 1;
        let entry = &mut self.hosts[host];
        entry.dialling -= 1;
        if let Stage::Dialling { slow: false, .. } = self.conns[id].stage {
            entry.dials.remove(&mut self.conns, id);
        }
    }

    /// A dial is over, and came to nothing.
    pub(super) fn drop_dial(&mut self, now: Instant, id: usize) {
        let host = self.conns[id].host;
        self.end_dial(id);
        self.end(id, CloseCause::Unfinished);
        self.free_place(id);
        self.conns.remove(id);
        self.hosts[host].conns -= 1;
        self.finish(now, host);
    }

    /// A connection's socket is closed, whatever it was doing.
    pub(super) fn lose_socket(&mut self, id: usize) {
        if let Stage::Open(open) = &self.conns[id].stage {
            if let Some(location) = &open.location {
                self.names.closed(location);
            }
            if open.taken > 0 {
                self.stop_retiring(id);
            }
        }
        self.free_place(id);
        self.end(id, CloseCause::Peer);
    }

    fn free_place(&mut self, id: usize) {
        let conn = &mut self.conns[id];
        if std::mem::take(&mut conn.open) {
            self.hosts[conn.host].places -= 1;
            self.books.places -= 1;
        }
    }
}
