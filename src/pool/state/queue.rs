//! Requests that wait, and the dials they are paired with. A core.

use std::hash::Hash;

use super::{Effect, Failure, Home, PER_HOST, Speaks, Stage, State, Ticket, TicketId, Wants, next};
use crate::clock::Instant;
use crate::list::{Links, List};
use crate::trace::{CloseCause, Limit};

/// So many dials whose requests left are not enough for a new request where there is room for another dial.
const MAX_IGNORED_ORPHANS: usize = 4;

impl<K: Clone + Eq + Hash, C: Clone, W, E> State<K, C, W, E> {
    /// Why a request that comes now may not wait; nothing where it may.
    pub(super) fn refusal(&self, host: usize) -> Option<Limit> {
        let entry = &self.hosts[host];
        let full = self.books.unpaired >= self.config.max_waiting || entry.unpaired >= self.limits(host).max_waiting;
        if !full || !entry.orphans.is_empty() || self.will_be_carried(host) {
            return None;
        }
        let can_dial = entry.first_unpaired.is_none() && self.has_room() && self.dialable(host, 1) > 0;
        if can_dial { None } else { Some(self.binding_limit(host)) }
    }

    /// Whether connections that are being opened will have a seat for another request.
    fn will_be_carried(&self, host: usize) -> bool {
        let entry = &self.hosts[host];
        entry.speaks != Speaks::One
            && entry.queue.len() < (entry.dials.len() + entry.unsaid).saturating_mul(entry.seats)
    }

    /// Puts a request in the queue; one that comes `again` in front of those without a dial, because it came before them.
    pub(super) fn enqueue(&mut self, now: Instant, host: usize, wants: Wants, waiter: W) -> TicketId {
        let Wants { again, shuns, own } = wants;
        let serial = next(&mut self.serial);
        let ahead_of = self.hosts[host].first_unpaired.filter(|_| again);
        let ticket = Ticket { host, serial, since: now, wants, waiter, dial: None, links: Links::default() };
        let index = self.tickets.insert(ticket);
        self.books.unpaired += 1;
        let entry = &mut self.hosts[host];
        entry.unpaired += 1;
        entry.shunning += usize::from(shuns);
        match ahead_of {
            Some(other) => {
                entry.queue.insert_before(&mut self.tickets, other, index);
                entry.first_unpaired = Some(index);
            }
            None => {
                entry.queue.push_back(&mut self.tickets, index);
                entry.first_unpaired.get_or_insert(index);
            }
        }
        // A dial whose request left may have been left for being slow, so a few of them do not count.
        if entry.orphans.len() < MAX_IGNORED_ORPHANS {
            self.fill(now, host);
        }
        // A drain has given them up.
        if let Some(orphan) = self.hosts[host].orphans.front()
            && self.tickets[index].dial.is_none()
            && !self.draining
        {
            self.adopt(host, orphan);
            self.relist(host);
        }
        if own.is_some() && self.tickets[index].dial.is_none() && self.may_dial_apart(host) {
            let dial = self.dial(now, host);
            self.pair(host, dial);
            self.relist(host);
        }
        if self.tickets[index].dial.is_none() && shuns {
            self.make_room_within(now, host);
        }
        if self.tickets[index].dial.is_none() {
            self.set_wait_alarm(host, index);
            self.share_what_there_is(now, host);
        }
        TicketId { index, serial }
    }

    /// How many requests would wait before one that comes now.
    pub(super) fn length_before(&self, host: usize, again: bool) -> usize {
        let entry = &self.hosts[host];
        entry.queue.len() - if again { entry.unpaired } else { 0 }
    }

    /// What a request in the queue waits for.
    pub(super) fn kept_waiting_by(&self, ticket: usize) -> Limit {
        let ticket = &self.tickets[ticket];
        if ticket.dial.is_some() { Limit::Opening } else { self.binding_limit(ticket.host) }
    }

    /// Takes a request out of the queue, and its dial to the next one that has none.
    pub(super) fn leave(&mut self, index: usize) -> Ticket<W> {
        let ticket = self.remove_ticket(index);
        if let Some(dial) = ticket.dial {
            self.orphan(ticket.host, dial);
        }
        ticket
    }

    pub(super) fn remove_ticket(&mut self, index: usize) -> Ticket<W> {
        let entry = &mut self.hosts[self.tickets[index].host];
        if entry.first_unpaired == Some(index) {
            entry.first_unpaired = entry.queue.after(&self.tickets, index);
        }
        entry.queue.remove(&mut self.tickets, index);
        let ticket = self.tickets.remove(index);
        entry.shunning -= usize::from(ticket.wants.shuns);
        if ticket.dial.is_none() {
            entry.unpaired -= 1;
            self.books.unpaired -= 1;
        }
        ticket
    }

    /// A dial is nobody's: the first request without one has it now.
    fn orphan(&mut self, host: usize, dial: usize) {
        self.set_addressee(dial, None);
        self.hosts[host].orphans.push_front(&mut self.conns, dial);
        if self.hosts[host].first_unpaired.is_some() {
            self.adopt(host, dial);
        } else if self.draining {
            self.effects.push_back(Effect::Abort(self.id(dial)));
        }
    }

    fn adopt(&mut self, host: usize, dial: usize) {
        self.hosts[host].orphans.remove(&mut self.conns, dial);
        self.pair(host, dial);
    }

    /// Pairs a dial with the first request that has none.
    pub(super) fn pair(&mut self, host: usize, dial: usize) {
        let entry = &mut self.hosts[host];
        let ticket = entry.first_unpaired.expect("a request without a dial");
        entry.first_unpaired = entry.queue.after(&self.tickets, ticket);
        self.tickets[ticket].dial = Some(dial);
        entry.unpaired -= 1;
        self.books.unpaired -= 1;
        self.set_addressee(dial, Some(ticket));
    }

    fn set_addressee(&mut self, dial: usize, addressee: Option<usize>) {
        match &mut self.conns[dial].stage {
            Stage::Dialling { ticket, .. } => *ticket = addressee,
            _ => unreachable!("only dials are paired"),
        }
    }

    fn addressee(&self, dial: usize) -> Option<usize> {
        match self.conns[dial].stage {
            Stage::Dialling { ticket, .. } => ticket,
            _ => None,
        }
    }

    /// Makes a finished dial that of the host's first request which takes it, and which hands its own to the one this was meant
    /// for.
    pub(super) fn give_to_the_first(&mut self, host: usize, dial: usize, home: Home) {
        let Some(meant) = self.addressee(dial) else {
            return self.hosts[host].orphans.remove(&mut self.conns, dial);
        };
        let queue = &self.hosts[host].queue;
        let mut first = queue.front().expect("a paired request waits");
        while self.waits_for_its_own(&self.tickets[first], dial, home) {
            first = queue.after(&self.tickets, first).expect("the one it was meant for takes it");
        }
        if first != meant {
            let other = self.tickets[first].dial.replace(dial);
            let other = other.expect("requests with a dial stand before those without");
            self.tickets[meant].dial = Some(other);
            self.set_addressee(other, Some(meant));
        }
        self.set_addressee(dial, Some(first));
    }

    /// A request whose dial came to nothing goes on waiting without one. Those with a dial stand in front, so it takes that
    /// of the last of them, which is the first one without.
    pub(super) fn put_back(&mut self, now: Instant, host: usize, ticket: usize) {
        let entry = &mut self.hosts[host];
        let last = match entry.first_unpaired {
            Some(first) => entry.queue.before(&self.tickets, first),
            None => entry.queue.back(),
        };
        let last = last.expect("the request itself is in the queue");
        entry.first_unpaired = Some(last);
        entry.unpaired += 1;
        self.books.unpaired += 1;
        let other = self.tickets[last].dial.take().expect("requests with a dial stand in front");
        if last != ticket {
            self.tickets[ticket].dial = Some(other);
            self.set_addressee(other, Some(ticket));
        }
        if let Some(orphan) = self.hosts[host].orphans.front().filter(|_| !self.draining) {
            return self.adopt(host, orphan);
        }
        self.set_wait_alarm(host, last);
        if self.waits_until(last).is_some_and(|until| until <= now) {
            return self.give_up(now, last);
        }
        // Without a dial of its own, it takes what there is.
        let idle = self.hosts[host].idle.front();
        if let Some(idle) = idle.filter(|idle| self.open(*idle).many) {
            self.settle(now, idle);
        }
    }

    /// The host's first request that a connection is good enough for.
    pub(super) fn first_taker(&self, host: usize, id: usize) -> Option<usize> {
        let open = self.open(id);
        let used = open.requests > 0 && !open.many;
        // Its last request has just ended, and servers close connections right behind an answer. A request that failed for that
        // rather waits for its dial, where it has one.
        let just_given_back = open.requests > 0 && open.many && open.taken == 0 && !self.draining;
        let entry = &self.hosts[host];
        let queue = &entry.queue;
        if used && entry.shunning == queue.len() {
            return None;
        }
        let is_shunned = |ticket: &Ticket<W>| {
            let shuns = ticket.wants.shuns && (used || (just_given_back && ticket.dial.is_some()));
            shuns || self.waits_for_its_own(ticket, id, open.home)
        };
        let mut taker = queue.front()?;
        while is_shunned(&self.tickets[taker]) {
            taker = queue.after(&self.tickets, taker)?;
        }
        Some(taker)
    }

    /// Returns true if a request waits for its dial rather than take a connection, or a finished dial, that `home` serves.
    fn waits_for_its_own(&self, ticket: &Ticket<W>, id: usize, home: Home) -> bool {
        let is_foreign = ticket.wants.own.is_some_and(|own| own != home) && !self.draining;
        is_foreign && ticket.dial.is_some_and(|dial| dial != id)
    }

    /// Whether the host's next request to be dialled for takes nothing but a new connection, and there is no room for one.
    pub(super) fn wants_room(&self, host: usize) -> bool {
        let entry = &self.hosts[host];
        let shuns = entry.first_unpaired.is_some_and(|first| self.tickets[first].wants.shuns);
        shuns && entry.places == entry.usable && !(self.has_room() && self.host_has_room(host))
    }

    /// Hands a seat on a connection to the host's first request that it is good enough for.
    pub(super) fn deliver(&mut self, now: Instant, host: usize, id: usize) {
        let first = self.first_taker(host, id).expect("a request waits");
        let ticket = self.remove_ticket(first);
        let freed = ticket.dial.filter(|own| *own != id);
        if let Some(own) = freed {
            self.orphan(host, own);
        }
        let waited = now.saturating_duration_since(ticket.since);
        self.count(host, |tally| tally.queued.add(waited));
        let is_new = self.open(id).requests == 0;
        let entry = &mut self.hosts[host];
        entry.pace.served(is_new);
        if entry.queue.is_empty() {
            entry.pace.rest();
        }
        let mut grant = self.seat(now, id);
        grant.freed = freed.is_some();
        if let Stage::Open(open) = &self.conns[id].stage
            && let Some(fresh) = &open.fresh
        {
            grant.conn = fresh.clone();
            grant.freed = false;
        }
        self.effects.push_back(Effect::Deliver { waiter: ticket.waiter, grant });
    }

    /// The request without a dial whose time is over first. They stand in the order they came in, but for those that came again
    /// and so stand in front.
    pub(super) fn next_to_give_up(&self, host: usize) -> Option<usize> {
        let queue = &self.hosts[host].queue;
        let mut first = self.hosts[host].first_unpaired?;
        let mut next = Some(first);
        while let Some(ticket) = next {
            if self.tickets[ticket].since < self.tickets[first].since {
                first = ticket;
            }
            next = queue.after(&self.tickets, ticket).filter(|_| self.tickets[ticket].wants.again);
        }
        Some(first)
    }

    /// A request has waited for too long.
    pub(super) fn give_up(&mut self, now: Instant, index: usize) {
        let limit = self.kept_waiting_by(index);
        let Ticket { waiter, since, .. } = self.remove_ticket(index);
        let waited = now.saturating_duration_since(since);
        self.effects.push_back(Effect::Fail { waiter, why: Failure::WaitTimeout { waited, limit } });
    }

    /// Requests shun the connection that refused them; where there will be no other one, it may take them by now.
    pub(super) fn share_what_there_is(&mut self, now: Instant, host: usize) {
        let entry = &self.hosts[host];
        if entry.first_unpaired.is_some()
            && entry.dialling == 0
            && entry.places == entry.usable
            && self.dialable(host, 0) == 0
            && let Some(shared) = self.hosts[host].shared.front()
        {
            self.settle(now, shared);
            self.fill(now, host);
        }
    }

    /// An idle connection that the host's requests shun is in their way.
    fn make_room_within(&mut self, now: Instant, host: usize) {
        let idle: &List<PER_HOST> = &self.hosts[host].idle;
        if let Some(oldest) = idle.back()
            && !self.host_has_room(host)
        {
            self.end(oldest, CloseCause::MadeRoom);
            self.settle(now, oldest);
            self.fill(now, host);
        }
    }
}
