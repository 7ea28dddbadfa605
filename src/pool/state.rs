//! Who gets which connection, and when one is dialled or closed. A core: it is told the time and returns effects.
//!
//! A connection takes a place from the start of its dial until its socket is closed. Each dial is paired with the
//! request it was started for, so that a host has no more dials under way than requests waiting, and the failure of a
//! dial has exactly one addressee. Connections themselves go to whoever has waited longest: when that is not the
//! dial's own request, the two swap their dials.
//!
//! Where the total keeps requests out, one rule makes room for each of them: close an idle connection, or the next one
//! that is released to a host whose own requests came later.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;
use slab::Slab;

use super::config::PoolConfig;
use crate::clock::Instant;
use crate::list::{Linked, Links, List};

/// The pool's books. `K` names a host, `C` is a connection, `W` a request that waits, `E` a dial's error.
pub(crate) struct State<K, C, W, E> {
    config: PoolConfig,
    hosts: Slab<Host<K>>,
    index: HashMap<K, usize, RandomState>,
    conns: Slab<Conn<C>>,
    tickets: Slab<Ticket<W>>,
    /// All idle connections, the most recently used in front.
    idle: List<IN_TOTAL>,
    /// Hosts that could open a connection if the total allowed it; they take turns.
    ring: List<0>,
    alarms: BTreeSet<(Instant, usize)>,
    effects: VecDeque<Effect<K, C, W, E>>,
    serial: u64,
    books: Books,
}

/// How many connections and requests are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// Places taken: connections from the start of their dial to the end of their socket.
    pub(crate) places: usize,
    pub(crate) dialling: usize,
    pub(crate) leased: usize,
    pub(crate) idle: usize,
    /// Given up, with a socket that is not closed yet.
    pub(crate) closing: usize,
    /// Requests that wait, and those among them for which nothing is being dialled.
    pub(crate) waiting: usize,
    pub(crate) unpaired: usize,
    /// Since the pool was made.
    pub(crate) opened: u64,
    pub(crate) closed: u64,
}

/// A connection, from the start of its dial on. Its serial number is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnId {
    index: usize,
    pub(crate) serial: u64,
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TicketId {
    index: usize,
    serial: u64,
}

/// The right to dial once. It must end in [`State::dialed`] or [`State::dial_failed`].
#[derive(Debug)]
pub(crate) struct Permit(ConnId);

impl Permit {
    pub(crate) fn id(&self) -> ConnId {
        self.0
    }
}

/// The right to use a connection. It must end in [`State::release`].
#[derive(Debug)]
pub(crate) struct Held(ConnId);

#[derive(Debug)]
pub(crate) enum Acquired<C> {
    /// An idle connection.
    Ready(Held, C),
    /// An effect will tell the waiter.
    Wait(TicketId),
    /// Too many wait already.
    Full,
}

/// What the driver must do, outside of its lock.
#[derive(Debug)]
pub(crate) enum Effect<K, C, W, E> {
    Dial(Permit, K),
    Deliver { waiter: W, held: Held, conn: C },
    Fail { waiter: W, why: Failure<E> },
    Close(C),
}

/// Why a waiting request gets no connection.
#[derive(Debug)]
pub(crate) enum Failure<E> {
    Dial(E),
    WaitTimeout { waited: Duration },
}

/// So many dials whose requests left are not enough for a new request where there is room for another dial.
const MAX_IGNORED_ORPHANS: usize = 4;

const PER_HOST: usize = 0;
const IN_TOTAL: usize = 1;

struct Host<K> {
    key: K,
    /// Connections the host is still needed for: those with a place, and leased ones whose socket is closed.
    conns: usize,
    places: usize,
    /// The most recently used in front.
    idle: List<PER_HOST>,
    /// Dials whose request was served otherwise, or left.
    orphans: List<PER_HOST>,
    /// Requests in the order they came: first those with a dial under way, then those without.
    queue: List<0>,
    first_unpaired: Option<usize>,
    /// How many they are.
    unpaired: usize,
    alarm: Option<Instant>,
    in_ring: bool,
    ring_links: Links,
}

struct Conn<C> {
    host: usize,
    serial: u64,
    /// Whether the socket may be open, that is, whether a place is taken.
    open: bool,
    stage: Stage<C>,
    links: [Links; 2],
}

enum Stage<C> {
    Dialling { ticket: Option<usize> },
    Idle { conn: C, since: Instant },
    Leased,
    Closing,
}

struct Ticket<W> {
    host: usize,
    serial: u64,
    since: Instant,
    waiter: W,
    dial: Option<usize>,
    links: Links,
}

impl<K> Linked<0> for Host<K> {
    fn place(&self) -> &Links {
        &self.ring_links
    }

    fn links(&mut self) -> &mut Links {
        &mut self.ring_links
    }
}

impl<C> Linked<PER_HOST> for Conn<C> {
    fn place(&self) -> &Links {
        &self.links[PER_HOST]
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links[PER_HOST]
    }
}

impl<C> Linked<IN_TOTAL> for Conn<C> {
    fn place(&self) -> &Links {
        &self.links[IN_TOTAL]
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links[IN_TOTAL]
    }
}

impl<W> Linked<0> for Ticket<W> {
    fn place(&self) -> &Links {
        &self.links
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<K: Clone + Eq + Hash, C, W, E> State<K, C, W, E> {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            config,
            hosts: Slab::new(),
            index: HashMap::default(),
            conns: Slab::new(),
            tickets: Slab::new(),
            idle: List::default(),
            ring: List::default(),
            alarms: BTreeSet::new(),
            effects: VecDeque::new(),
            serial: 0,
            books: Books::default(),
        }
    }

    /// Takes the host's most recently used idle connection, or queues.
    ///
    /// A request that `shuns_idle` found an idle connection closed, and suspects the others: it queues for one that is
    /// new, or that was in use just now.
    pub(crate) fn acquire(
        &mut self,
        now: Instant,
        key: &K,
        shuns_idle: bool,
        waiter: impl FnOnce() -> W,
    ) -> Acquired<C> {
        let host = self.host(key);
        if let Some(id) = self.hosts[host].idle.front().filter(|_| !shuns_idle) {
            let conn = self.unlink_idle(id, Stage::Leased);
            return Acquired::Ready(self.hold(id), conn);
        }
        if !self.can_pair(host) && self.books.unpaired >= self.config.max_waiting {
            self.prune(host);
            return Acquired::Full;
        }
        Acquired::Wait(self.enqueue(now, host, waiter()))
    }

    /// A dial succeeded: its connection goes to the request that waited longest, or becomes idle.
    pub(crate) fn dialed(&mut self, now: Instant, Permit(id): Permit, conn: C) {
        self.books.dialling -= 1;
        self.books.opened += 1;
        let host = self.conns[id.index].host;
        self.give_to_the_first(host, id.index);
        self.conns[id.index].stage = Stage::Leased;
        if self.hosts[host].queue.is_empty() {
            let held = self.hold(id.index);
            return self.release(now, held, Some(conn));
        }
        self.deliver(host, id.index, conn);
        self.fill(host);
    }

    /// A dial failed, and with it the request it was started for; a dial whose request has gone fails nobody.
    pub(crate) fn dial_failed(&mut self, Permit(id): Permit, error: E) {
        self.books.dialling -= 1;
        let host = self.conns[id.index].host;
        match self.conns[id.index].stage {
            Stage::Dialling { ticket: Some(ticket) } => {
                let waiter = self.remove_ticket(ticket).waiter;
                self.effects.push_back(Effect::Fail { waiter, why: Failure::Dial(error) });
            }
            _ => self.hosts[host].orphans.remove(&mut self.conns, id.index),
        }
        self.free_place(id.index);
        self.remove_conn(id.index);
        self.fill(host);
        self.prune(host);
    }

    /// A lease ended: with the connection, if it can serve again, without it if not.
    pub(crate) fn release(&mut self, now: Instant, Held(id): Held, conn: Option<C>) {
        self.books.leased -= 1;
        let Conn { host, open, .. } = self.conns[id.index];
        match conn {
            Some(conn) if open && self.must_yield(host) => self.close(id.index, Some(conn)),
            Some(conn) if open && !self.hosts[host].queue.is_empty() => self.deliver(host, id.index, conn),
            Some(conn) if open => self.make_idle(now, id.index, conn),
            None if open => self.close(id.index, None),
            conn => {
                self.effects.extend(conn.map(Effect::Close));
                self.remove_conn(id.index);
            }
        }
        self.fill(host);
        self.prune(host);
    }

    /// A connection's socket is closed: its place is free, and an idle connection is gone.
    pub(crate) fn closed(&mut self, id: ConnId) {
        let conn = self.conns.get(id.index).filter(|conn| conn.serial == id.serial);
        let Some(host) = conn.map(|conn| conn.host) else { return };
        self.free_place(id.index);
        self.books.closed += 1;
        match self.conns[id.index].stage {
            // The request, or the dial, that has it finds out by itself.
            Stage::Dialling { .. } | Stage::Leased => {}
            Stage::Closing => {
                self.books.closing -= 1;
                self.remove_conn(id.index);
            }
            Stage::Idle { .. } => {
                let conn = self.unlink_idle(id.index, Stage::Closing);
                self.effects.push_back(Effect::Close(conn));
                self.remove_conn(id.index);
            }
        }
        self.fill(host);
        self.prune(host);
    }

    /// A request no longer waits. Nothing happens if it was served in the meantime.
    pub(crate) fn abandon(&mut self, id: TicketId) -> Option<W> {
        let ticket = self.tickets.get(id.index).filter(|ticket| ticket.serial == id.serial)?;
        let host = ticket.host;
        let waiter = self.leave(id.index).waiter;
        self.fill(host);
        self.prune(host);
        Some(waiter)
    }

    /// Closes connections that were idle, and fails requests that waited, for too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, host)) = self.alarms.first()
            && at <= now
        {
            self.expire(now, host);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next; it may turn out to be early.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at)
    }

    /// The next thing to do, until there is none.
    pub(crate) fn poll(&mut self) -> Option<Effect<K, C, W, E>> {
        self.effects.pop_front()
    }

    /// Whether there is anything to [`poll`](Self::poll).
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// The request a dial is paired with.
    pub(crate) fn waiter_of(&self, permit: &Permit) -> Option<&W> {
        match self.conns[permit.0.index].stage {
            Stage::Dialling { ticket } => ticket.map(|ticket| &self.tickets[ticket].waiter),
            _ => None,
        }
    }

    /// The requests that wait, in no order.
    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.tickets.iter().map(|(_, ticket)| &ticket.waiter)
    }

    /// The dial that is under way for a request.
    pub(crate) fn dial_of(&self, id: TicketId) -> Option<ConnId> {
        let ticket = self.tickets.get(id.index).filter(|ticket| ticket.serial == id.serial)?;
        ticket.dial.map(|dial| self.id(dial))
    }

    pub(crate) fn books(&self) -> Books {
        Books { idle: self.idle.len(), waiting: self.tickets.len(), ..self.books }
    }

    fn host(&mut self, key: &K) -> usize {
        if let Some(&host) = self.index.get(key) {
            return host;
        }
        let host = self.hosts.insert(Host {
            key: key.clone(),
            conns: 0,
            places: 0,
            idle: List::default(),
            orphans: List::default(),
            queue: List::default(),
            first_unpaired: None,
            unpaired: 0,
            alarm: None,
            in_ring: false,
            ring_links: Links::default(),
        });
        self.index.insert(key.clone(), host);
        host
    }

    /// Forgets a host nobody needs.
    fn prune(&mut self, host: usize) {
        let Some(entry) = self.hosts.get(host) else { return };
        if entry.conns == 0 && entry.queue.is_empty() {
            self.clear_alarm(host);
            let entry = self.hosts.remove(host);
            self.index.remove(&entry.key);
        }
    }

    fn id(&self, index: usize) -> ConnId {
        ConnId { index, serial: self.conns[index].serial }
    }

    fn hold(&mut self, index: usize) -> Held {
        self.books.leased += 1;
        Held(self.id(index))
    }

    // Requests that wait.

    /// Whether a request that comes now would have a dial under way for it at once.
    fn can_pair(&self, host: usize) -> bool {
        let entry = &self.hosts[host];
        let room = entry.places < self.config.max_connections_per_host
            && self.books.places < self.config.max_connections
            && entry.first_unpaired.is_none();
        room || !entry.orphans.is_empty()
    }

    fn enqueue(&mut self, now: Instant, host: usize, waiter: W) -> TicketId {
        let serial = next(&mut self.serial);
        let ticket = Ticket { host, serial, since: now, waiter, dial: None, links: Links::default() };
        let index = self.tickets.insert(ticket);
        self.books.unpaired += 1;
        let entry = &mut self.hosts[host];
        entry.unpaired += 1;
        entry.queue.push_back(&mut self.tickets, index);
        entry.first_unpaired.get_or_insert(index);
        // A dial whose request left may have been left for being slow, so a few of them do not count.
        if entry.orphans.len() < MAX_IGNORED_ORPHANS {
            self.fill(host);
        }
        if let Some(orphan) = self.hosts[host].orphans.front().filter(|_| self.tickets[index].dial.is_none()) {
            self.adopt(host, orphan);
            self.relist(host);
        }
        if self.tickets[index].dial.is_none() {
            let entry = &self.hosts[host];
            // An idle connection that this request shuns is in its way.
            if let Some(oldest) = entry.idle.back()
                && entry.places >= self.config.max_connections_per_host
            {
                self.close_idle(oldest);
            }
            if let Some(at) = now.checked_add(self.config.wait_timeout) {
                self.set_alarm(host, at);
            }
        }
        TicketId { index, serial }
    }

    /// Takes a request out of the queue, and its dial to the next one that has none.
    fn leave(&mut self, index: usize) -> Ticket<W> {
        let ticket = self.remove_ticket(index);
        if let Some(dial) = ticket.dial {
            self.orphan(ticket.host, dial);
        }
        ticket
    }

    fn remove_ticket(&mut self, index: usize) -> Ticket<W> {
        let entry = &mut self.hosts[self.tickets[index].host];
        if entry.first_unpaired == Some(index) {
            entry.first_unpaired = entry.queue.after(&self.tickets, index);
        }
        entry.queue.remove(&mut self.tickets, index);
        let ticket = self.tickets.remove(index);
        if ticket.dial.is_none() {
            entry.unpaired -= 1;
            self.books.unpaired -= 1;
        }
        ticket
    }

    /// A dial is nobody's: the first request without one has it now.
    fn orphan(&mut self, host: usize, dial: usize) {
        self.conns[dial].stage = Stage::Dialling { ticket: None };
        self.hosts[host].orphans.push_front(&mut self.conns, dial);
        if self.hosts[host].first_unpaired.is_some() {
            self.adopt(host, dial);
        }
    }

    fn adopt(&mut self, host: usize, dial: usize) {
        self.hosts[host].orphans.remove(&mut self.conns, dial);
        self.pair(host, dial);
    }

    fn pair(&mut self, host: usize, dial: usize) {
        let entry = &mut self.hosts[host];
        let ticket = entry.first_unpaired.expect("a request without a dial");
        entry.first_unpaired = entry.queue.after(&self.tickets, ticket);
        self.tickets[ticket].dial = Some(dial);
        self.conns[dial].stage = Stage::Dialling { ticket: Some(ticket) };
        entry.unpaired -= 1;
        self.books.unpaired -= 1;
    }

    /// Makes a finished dial that of the host's first request, which hands its own to the one this was meant for.
    fn give_to_the_first(&mut self, host: usize, dial: usize) {
        let Stage::Dialling { ticket: Some(meant) } = self.conns[dial].stage else {
            return self.hosts[host].orphans.remove(&mut self.conns, dial);
        };
        let first = self.hosts[host].queue.front().expect("a paired request waits");
        if first != meant {
            let other = self.tickets[first].dial.replace(dial);
            let other = other.expect("requests with a dial stand before those without");
            self.tickets[meant].dial = Some(other);
            self.conns[other].stage = Stage::Dialling { ticket: Some(meant) };
        }
    }

    /// Hands a connection to the host's first request.
    fn deliver(&mut self, host: usize, index: usize, conn: C) {
        let first = self.hosts[host].queue.front().expect("a request waits");
        let ticket = self.remove_ticket(first);
        if let Some(own) = ticket.dial.filter(|own| *own != index) {
            self.orphan(host, own);
        }
        self.conns[index].stage = Stage::Leased;
        let held = self.hold(index);
        self.effects.push_back(Effect::Deliver { waiter: ticket.waiter, held, conn });
    }

    // Places.

    /// Dials for requests that wait, as far as the limits allow, `host` having changed.
    fn fill(&mut self, host: usize) {
        self.relist(host);
        while self.books.places < self.config.max_connections
            && let Some(next) = self.ring.front()
        {
            self.ring.remove(&mut self.hosts, next);
            self.hosts[next].in_ring = false;
            self.dial(next);
            self.relist(next);
        }
        while !self.idle.is_empty() && self.must_make_room() {
            self.close_oldest();
        }
    }

    /// Whether the total keeps more requests out than there are places about to become free.
    fn must_make_room(&self) -> bool {
        let mut kept_out = 0;
        let mut next = self.ring.front();
        while let Some(host) = next
            && kept_out <= self.books.closing
        {
            kept_out += self.kept_out(host);
            next = self.ring.after(&self.hosts, host);
        }
        kept_out > self.books.closing
    }

    /// How many of the host's requests only the total keeps out.
    fn kept_out(&self, host: usize) -> usize {
        let entry = &self.hosts[host];
        entry.unpaired.min(self.config.max_connections_per_host - entry.places)
    }

    /// Whether a connection that `host` could use again has to make room for another host, whose turn it is: the first
    /// of its requests without a dial came before all of this host's.
    fn must_yield(&self, host: usize) -> bool {
        let Some(other) = self.ring.front().filter(|other| *other != host) else { return false };
        let came = |ticket: Option<usize>| ticket.map(|ticket| self.tickets[ticket].serial);
        let (theirs, ours) = (came(self.hosts[other].first_unpaired), came(self.hosts[host].queue.front()));
        ours.is_some() && theirs < ours && self.kept_out(other) > self.books.closing
    }

    /// Puts the host where it belongs: in the ring if it could open a connection but for the total.
    fn relist(&mut self, host: usize) {
        let entry = &self.hosts[host];
        let wants = entry.first_unpaired.is_some() && entry.places < self.config.max_connections_per_host;
        if wants != entry.in_ring {
            match wants {
                true => self.ring.push_back(&mut self.hosts, host),
                false => self.ring.remove(&mut self.hosts, host),
            }
            self.hosts[host].in_ring = wants;
        }
    }

    fn dial(&mut self, host: usize) {
        let serial = next(&mut self.serial);
        let stage = Stage::Dialling { ticket: None };
        let index = self.conns.insert(Conn { host, serial, open: true, stage, links: Default::default() });
        let entry = &mut self.hosts[host];
        entry.conns += 1;
        entry.places += 1;
        let key = entry.key.clone();
        self.books.places += 1;
        self.books.dialling += 1;
        self.pair(host, index);
        self.effects.push_back(Effect::Dial(Permit(self.id(index)), key));
    }

    fn free_place(&mut self, index: usize) {
        let conn = &mut self.conns[index];
        if std::mem::take(&mut conn.open) {
            self.hosts[conn.host].places -= 1;
            self.books.places -= 1;
        }
    }

    fn remove_conn(&mut self, index: usize) {
        let conn = self.conns.remove(index);
        self.hosts[conn.host].conns -= 1;
    }

    // Idle connections.

    fn make_idle(&mut self, now: Instant, index: usize, conn: C) {
        let host = self.conns[index].host;
        self.conns[index].stage = Stage::Idle { conn, since: now };
        self.hosts[host].idle.push_front(&mut self.conns, index);
        self.idle.push_front(&mut self.conns, index);
        if self.hosts[host].idle.len() > self.config.max_idle_per_host {
            let oldest = self.hosts[host].idle.back().expect("more than the limit");
            self.close_idle(oldest);
        }
        if self.idle.len() > self.config.max_idle {
            self.close_oldest();
        }
        if let Some(at) = now.checked_add(self.config.idle_timeout) {
            self.set_alarm(host, at);
        }
    }

    /// Closes the least recently used idle connection, if there is one.
    fn close_oldest(&mut self) {
        if let Some(oldest) = self.idle.back() {
            self.close_idle(oldest);
        }
    }

    fn close_idle(&mut self, index: usize) {
        let conn = self.unlink_idle(index, Stage::Closing);
        self.close(index, Some(conn));
    }

    /// A connection is given up; its place is free when its socket is closed.
    fn close(&mut self, index: usize, conn: Option<C>) {
        self.conns[index].stage = Stage::Closing;
        self.books.closing += 1;
        self.effects.extend(conn.map(Effect::Close));
    }

    fn unlink_idle(&mut self, index: usize, stage: Stage<C>) -> C {
        let host = self.conns[index].host;
        self.hosts[host].idle.remove(&mut self.conns, index);
        self.idle.remove(&mut self.conns, index);
        match std::mem::replace(&mut self.conns[index].stage, stage) {
            Stage::Idle { conn, .. } => conn,
            _ => unreachable!("only idle connections are in the idle lists"),
        }
    }

    // Timeouts: each host has one alarm, for the first of its connections and requests; later ones wait for it.

    fn set_alarm(&mut self, host: usize, at: Instant) {
        if self.hosts[host].alarm.is_none_or(|alarm| at < alarm) {
            self.clear_alarm(host);
            self.hosts[host].alarm = Some(at);
            self.alarms.insert((at, host));
        }
    }

    fn clear_alarm(&mut self, host: usize) {
        if let Some(at) = self.hosts[host].alarm.take() {
            self.alarms.remove(&(at, host));
        }
    }

    fn expire(&mut self, now: Instant, host: usize) {
        self.clear_alarm(host);
        let idle = loop {
            match self.hosts[host].idle.back().map(|oldest| (oldest, self.idle_until(oldest))) {
                Some((oldest, Some(until))) if until <= now => self.close_idle(oldest),
                Some((_, until)) => break until,
                None => break None,
            }
        };
        // Those for which a dial is under way wait for that, which has a limit of its own.
        let wait = loop {
            match self.hosts[host].first_unpaired.map(|first| (first, self.waits_until(first))) {
                Some((first, Some(until))) if until <= now => self.give_up(now, first),
                Some((_, until)) => break until,
                None => break None,
            }
        };
        if let Some(at) = idle.into_iter().chain(wait).min() {
            self.set_alarm(host, at);
        }
        self.fill(host);
        self.prune(host);
    }

    fn idle_until(&self, index: usize) -> Option<Instant> {
        match self.conns[index].stage {
            Stage::Idle { since, .. } => since.checked_add(self.config.idle_timeout),
            _ => None,
        }
    }

    fn waits_until(&self, ticket: usize) -> Option<Instant> {
        self.tickets[ticket].since.checked_add(self.config.wait_timeout)
    }

    fn give_up(&mut self, now: Instant, index: usize) {
        let Ticket { waiter, since, .. } = self.remove_ticket(index);
        self.effects.push_back(Effect::Fail { waiter, why: Failure::WaitTimeout { waited: now - since } });
    }
}

fn next(serial: &mut u64) -> u64 {
    *serial += 1;
    *serial
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
