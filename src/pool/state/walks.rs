//! Random walks over the pool's books, against what must hold whatever happens.

use std::collections::{BTreeMap, HashSet};

use super::*;

type Pool = State<u8, u64, u32, &'static str>;

const HOSTS: u8 = 5;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Hosts 0 and 1 speak HTTP/1, 2 and 3 HTTP/2; of host 4 nothing is known beforehand, and it is of two minds.
fn speaks(host: u8) -> Speaks {
    match host {
        0 | 1 => Speaks::One,
        2 | 3 => Speaks::Many,
        _ => Speaks::Unknown,
    }
}

/// A socket as it is known from outside.
#[derive(Debug, Clone, Copy)]
struct Socket {
    id: ConnId,
    host: u8,
    many: bool,
    seats: usize,
    taken: usize,
    requests: u64,
    /// It takes no more requests.
    ended: bool,
}

/// What a random walk knows about the pool from outside.
struct Walk {
    seed: u64,
    random: fastrand::Rng,
    config: PoolConfig,
    pool: Pool,
    now: Instant,
    permits: Vec<(Permit, u8)>,
    held: Vec<(Held, u64)>,
    /// Sockets that are open.
    sockets: BTreeMap<u64, Socket>,
    /// Connections the core told the driver to close.
    dropped: HashSet<u64>,
    waiting: BTreeMap<u8, VecDeque<(u32, TicketId, Instant)>>,
    /// Requests that shun idle connections.
    shunning: HashSet<u32>,
    /// Requests that may wait for a connection of their own runtime.
    own: HashSet<u32>,
    waiters: u32,
    /// Sockets have run out, and nobody knows until when.
    pressed: bool,
    drained: bool,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = |random: &mut fastrand::Rng, low: usize| match random.u8(..4) {
            0 => usize::MAX,
            1 => low,
            _ => random.usize(low..8),
        };
        let config = PoolConfig::new()
            .max_connections(limit(&mut random, 1))
            .max_connections_per_host(limit(&mut random, 1))
            .max_dials_per_host(limit(&mut random, 1))
            .max_http2_connections_per_host(random.usize(1..4))
            .max_streams_per_connection(random.usize(1..6))
            .max_requests_per_connection(if random.bool() { u64::MAX } else { random.u64(1..10) })
            .max_idle(limit(&mut random, 0))
            .max_idle_per_host(limit(&mut random, 0))
            .max_waiting(limit(&mut random, 0))
            .max_waiting_per_host(limit(&mut random, 0))
            .idle_timeout(ms(random.u64(..200)))
            .lifetime(ms(random.u64(1..5_000)))
            .wait_timeout(ms(random.u64(1..2_000)));
        let pool = State::new(config.clone(), |host: &u8| Profile { limits: 0, speaks: speaks(*host) });
        let (permits, held, sockets, dropped, waiting, shunning, own) = Default::default();
        let now = crate::clock::now();
        let (waiters, pressed, drained) = (0, false, false);
        Self {
            seed,
            random,
            config,
            pool,
            now,
            permits,
            held,
            sockets,
            dropped,
            waiting,
            shunning,
            own,
            waiters,
            pressed,
            drained,
        }
    }

    fn step(&mut self) {
        let host = self.random.u8(..HOSTS);
        match self.random.u8(..26) {
            0..=7 => self.acquire(host),
            8..=11 if !self.permits.is_empty() => {
                let (permit, host) = self.permits.swap_remove(self.random.usize(..self.permits.len()));
                self.end_dial(permit, host);
            }
            12..=15 => self.release(),
            16 => self.close_a_socket(),
            17 => self.close_dropped(),
            18 => self.abandon(host),
            19 => self.reseat(),
            20 => self.goaway(),
            21 if self.random.u8(..8) == 0 => self.pool.close_idle(self.now),
            22 if self.random.u8(..4) == 0 => drop(self.pool.warm_up(self.now, &host, self.random.usize(..4), 4)),
            _ => {
                self.now += ms(self.random.u64(..60));
                self.pool.handle_timeout(self.now);
            }
        }
        self.perform();
        self.check();
    }

    fn acquire(&mut self, host: u8) {
        self.waiters += 1;
        let waiter = self.waiters;
        let again = (self.random.u8(..8) == 0).then(|| self.random.u64(..50));
        if again.is_some() {
            self.shunning.insert(waiter);
        }
        let overtakes =
            self.waiting.get(&host).is_some_and(|queue| !queue.iter().all(|(w, ..)| self.shunning.contains(w)));
        // The first one without a dial, which one that comes again goes in front of.
        let undialled = |(_, ticket, _): &(u32, TicketId, Instant)| self.pool.dial_of(*ticket).is_none();
        let queue = self.waiting.entry(host).or_default();
        let behind = queue.iter().position(undialled);
        let wish = Wish {
            failed_on: again,
            begun: false,
            once: self.random.bool(),
            home: Home(self.random.u64(..3)),
            own: again.is_some() && self.random.bool(),
        };
        match self.pool.checkout(self.now, &host, wish, || waiter) {
            Acquired::Ready(Grant { held, conn, .. }) => {
                assert!(!overtakes, "seed {}: overtook the queue", self.seed);
                let is_calm = self.pool.hosts[self.pool.index[&host]].calm.is_some();
                assert!(
                    again.is_none_or(|failed| failed != conn && (is_calm || self.sockets[&conn].taken > 0)),
                    "seed {}",
                    self.seed
                );
                self.lease(held, conn);
            }
            Acquired::Wait(ticket, _) => {
                let waits = self.pool.tickets.get(ticket.index).filter(|other| other.serial == ticket.serial);
                if waits.is_some_and(|ticket| ticket.wants.shuns) {
                    self.shunning.insert(waiter);
                }
                if wish.own {
                    self.own.insert(waiter);
                }
                let queue = self.waiting.entry(host).or_default();
                match behind.filter(|_| again.is_some()) {
                    Some(place) => queue.insert(place, (waiter, ticket, self.now)),
                    None => queue.push_back((waiter, ticket, self.now)),
                }
            }
            Acquired::Refused(limit) => {
                assert!(limit != Limit::Opening && self.is_full(host), "seed {}: refused without need", self.seed);
            }
        }
    }

    fn is_full(&self, host: u8) -> bool {
        let unpaired = |host: u8| {
            let queue = self.waiting.get(&host).into_iter().flatten();
            queue.filter(|(_, ticket, _)| self.pool.dial_of(*ticket).is_none()).count()
        };
        let total: usize = (0..HOSTS).map(unpaired).sum();
        total >= self.config.max_waiting || unpaired(host) >= self.config.host.max_waiting
    }

    fn end_dial(&mut self, permit: Permit, host: u8) {
        match self.random.u8(..8) {
            0 => drop(self.pool.dial_failed(self.now, permit, "refused")),
            1 => {
                self.pressed = true;
                self.pool.dial_postponed(self.now, permit);
            }
            _ => self.connect(permit, host),
        }
    }

    fn connect(&mut self, permit: Permit, host: u8) {
        let id = permit.id();
        let many = match speaks(host) {
            Speaks::One => false,
            Speaks::Many => true,
            Speaks::Unknown => self.random.bool(),
        };
        let speaks = if many { Speaks::Many } else { Speaks::One };
        let socket = Socket { id, host, many, seats: 1, taken: 0, requests: 0, ended: false };
        self.sockets.insert(id.serial, socket);
        let home = Home(self.random.u64(..3));
        let opened = Opened { fresh: id.serial, conn: id.serial, speaks, location: None, home };
        self.pool.dialed(self.now, permit, opened);
    }

    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (held, conn) = self.held.swap_remove(self.random.usize(..self.held.len()));
        let kept = self.random.u8(..4) > 0;
        if let Some(socket) = self.sockets.get_mut(&conn) {
            socket.taken -= 1;
            // One that others share is told of when it ends, which may be later.
            socket.ended |= !kept && socket.taken == 0;
        }
        let ended = match kept {
            true if self.random.u8(..4) == 0 => Ended::Unused,
            true => Ended::Kept { keep_alive: None },
            false if self.random.bool() => Ended::Cut { idle: ms(self.random.u64(..1_000)) },
            false => Ended::Retire(CloseCause::Unfinished),
        };
        self.pool.release(self.now, held, ended);
    }

    fn any_socket(&mut self) -> Option<u64> {
        let count = self.sockets.len();
        (count > 0).then(|| *self.sockets.keys().nth(self.random.usize(..count)).unwrap())
    }

    fn close_a_socket(&mut self) {
        let Some(conn) = self.any_socket() else { return };
        let socket = self.sockets.remove(&conn).unwrap();
        self.dropped.remove(&conn);
        self.pool.closed(self.now, socket.id);
    }

    fn close_dropped(&mut self) {
        for conn in std::mem::take(&mut self.dropped) {
            if let Some(socket) = self.sockets.remove(&conn) {
                self.pool.closed(self.now, socket.id);
            }
        }
    }

    fn reseat(&mut self) {
        let Some(conn) = self.any_socket().filter(|conn| self.sockets[conn].many) else { return };
        let seats = self.random.usize(..5);
        let socket = self.sockets.get_mut(&conn).unwrap();
        socket.seats = seats.min(self.config.host.max_streams);
        let id = socket.id;
        self.pool.reseat(self.now, id, seats);
    }

    fn goaway(&mut self) {
        let Some(conn) = self.any_socket() else { return };
        let socket = self.sockets.get_mut(&conn).unwrap();
        socket.ended = true;
        let id = socket.id;
        match self.random.u8(..4) {
            0 => self.pool.calm(self.now, id, self.random.f64()),
            _ => self.pool.retire(self.now, id, CloseCause::PeerAsked),
        }
    }

    fn abandon(&mut self, host: u8) {
        let Some(queue) = self.waiting.get_mut(&host).filter(|queue| !queue.is_empty()) else { return };
        let (waiter, ticket, _) = queue.remove(self.random.usize(..queue.len())).unwrap();
        assert_eq!(self.pool.abandon(self.now, ticket), Some(waiter), "seed {}", self.seed);
    }

    fn lease(&mut self, held: Held, conn: u64) {
        let socket = self.sockets.get_mut(&conn).unwrap_or_else(|| panic!("seed {}: leased a closed one", self.seed));
        socket.taken += 1;
        socket.requests += 1;
        let last = socket.requests >= self.config.host.max_requests;
        assert!(!self.dropped.contains(&conn) && (last || !socket.ended), "seed {}: leased one given up", self.seed);
        let is_shared = socket.many && socket.taken > 1;
        assert!(is_shared || socket.requests <= self.config.host.max_requests, "seed {}: leased too often", self.seed);
        self.held.push((held, conn));
    }

    fn perform(&mut self) {
        while let Some(effect) = self.pool.poll() {
            match effect {
                Effect::Dial(permit, host) => self.permits.push((permit, host)),
                Effect::Close(conn) => {
                    let taken = self.sockets.get(&conn).map_or(0, |socket| socket.taken);
                    assert_eq!(taken, 0, "seed {}: closed in use", self.seed);
                    self.dropped.insert(conn);
                }
                Effect::Deliver { waiter, grant: Grant { held, conn, .. } } => {
                    let host = self.host_of(waiter);
                    let Socket { requests, many, taken, .. } = self.sockets[&conn];
                    let (used, given_back) = (requests > 0 && !many, requests > 0 && taken == 0);
                    let queue = self.waiting.get_mut(&host).unwrap();
                    let place = queue.iter().position(|(other, ..)| *other == waiter).unwrap();
                    let shuns = |(other, ..): &(u32, TicketId, Instant)| self.shunning.contains(other);
                    let steps_back = |other| ((used || given_back) && shuns(other)) || self.own.contains(&other.0);
                    let is_first = queue.iter().take(place).all(steps_back);
                    assert!(is_first && !(used && shuns(&queue[place])), "seed {}: not the first in line", self.seed);
                    queue.remove(place);
                    assert_eq!(self.sockets[&conn].host, host, "seed {}: another host's", self.seed);
                    self.lease(held, conn);
                }
                Effect::Fail { waiter, why } => {
                    let host = self.host_of(waiter);
                    let queue = self.waiting.get_mut(&host).unwrap();
                    let place = queue.iter().position(|(other, ..)| *other == waiter).unwrap();
                    let (_, _, since) = queue.remove(place).unwrap();
                    let waited = self.now - since;
                    let timely = !matches!(why, Failure::WaitTimeout { .. }) || waited >= self.config.host.wait_timeout;
                    assert!(timely, "seed {}: failed early", self.seed);
                }
                Effect::Retired(id, _) => {
                    if let Some(socket) = self.sockets.get_mut(&id.serial) {
                        socket.ended = true;
                    }
                }
                Effect::Ask(_) => {}
                Effect::Abort(id) => {
                    let place = self.permits.iter().position(|(permit, _)| permit.id() == id);
                    // It may be too late for that.
                    if let Some(place) = place.filter(|_| self.random.bool()) {
                        let (permit, _) = self.permits.swap_remove(place);
                        self.pool.dial_failed(self.now, permit, "lost");
                    }
                }
                Effect::Drained => self.drained = true,
            }
        }
    }

    fn host_of(&self, waiter: u32) -> u8 {
        let waits = |queue: &VecDeque<(u32, TicketId, Instant)>| queue.iter().any(|(other, ..)| *other == waiter);
        *self.waiting.iter().find(|(_, queue)| waits(queue)).expect("told somebody who waits").0
    }

    fn check(&self) {
        let (seed, books) = (self.seed, self.pool.books());
        let sockets = || self.sockets.values();
        assert_eq!(books.places, self.permits.len() + self.sockets.len(), "seed {seed}: places");
        assert_eq!((books.dialling, books.leased), (self.permits.len(), self.held.len()), "seed {seed}");
        assert!(books.places <= self.config.max_connections, "seed {seed}: over the total");
        assert!(books.idle <= self.config.max_idle, "seed {seed}: too many idle");
        assert_eq!(books.waiting, self.waiting.values().map(VecDeque::len).sum::<usize>(), "seed {seed}");
        let retiring = sockets().filter(|socket| socket.ended && socket.taken > 0).count();
        assert_eq!(books.retiring, retiring, "seed {seed}: retiring");
        let closing = self.sockets.keys().filter(|conn| self.dropped.contains(conn)).count();
        assert_eq!(books.closing, closing, "seed {seed}: closing");
        let gone = self.held.iter().filter(|(_, conn)| !self.sockets.contains_key(conn));
        let gone: HashSet<u64> = gone.map(|(_, conn)| *conn).collect();
        let busy = sockets().filter(|socket| socket.taken > 0).count() + gone.len();
        assert_eq!(books.busy, busy, "seed {seed}: busy");
        let overdue = |(_, ticket, since): &(u32, TicketId, Instant)| {
            self.pool.dial_of(*ticket).is_none() && self.now - *since >= self.config.host.wait_timeout
        };
        assert!(!self.waiting.values().flatten().any(overdue), "seed {seed}: waits for too long");
        for host in 0..HOSTS {
            self.check_host(host, books);
        }
    }

    fn check_host(&self, host: u8, books: Books) {
        let seed = self.seed;
        let sockets = || self.sockets.values().filter(|socket| socket.host == host);
        let dialling = self.permits.iter().filter(|(_, other)| *other == host).count();
        let places = dialling + sockets().count();
        let Some(&index) = self.pool.index.get(&host) else {
            assert_eq!(places, 0, "seed {seed}: forgot a host in use");
            return;
        };
        let (dials, undialled) = self.queue_of(index);
        let entry = &self.pool.hosts[index];
        assert_eq!((entry.places, entry.dialling), (places, dialling), "seed {seed}: places of host {host}");
        assert!(places <= self.config.host.max_connections, "seed {seed}: over the host's limit");
        let usable = sockets().filter(|socket| !socket.ended && !self.dropped.contains(&socket.id.serial));
        assert_eq!(entry.usable, usable.count() + dialling, "seed {seed}: usable");
        let is_usable = |socket: &&Socket| !socket.ended && !self.dropped.contains(&socket.id.serial);
        let singles = sockets().filter(is_usable).filter(|socket| !socket.many).count();
        assert_eq!(entry.singles, singles, "seed {seed}: usable connections that speak HTTP/1");
        if speaks(host) == Speaks::Many {
            assert!(entry.usable <= self.config.host.max_http2_connections, "seed {seed}: HTTP/2 connections");
        }
        assert!(entry.idle.len() <= self.config.host.max_idle, "seed {seed}: too many idle");
        let mut idle = Vec::new();
        let mut next = entry.idle.front();
        while let Some(id) = next {
            idle.push(self.pool.open(id).since);
            next = entry.idle.after(&self.pool.conns, id);
        }
        assert!(idle.is_sorted_by(|newer, older| newer >= older), "seed {seed}: idle connections out of order");
        let seats = sockets().filter(|s| !s.ended && s.taken > 0 && s.taken < s.seats).count();
        assert_eq!(entry.shared.len(), seats, "seed {seed}: shared");
        let idle_seats = sockets().filter(|s| !s.ended && s.taken == 0 && s.seats > 0);
        let idle_seats = idle_seats.filter(|s| !self.dropped.contains(&s.id.serial)).count();
        let queue = self.waiting.get(&host).into_iter().flatten();
        let shun = queue.map(|(waiter, ..)| waiter).all(|waiter| self.shunning.contains(waiter));
        assert!(idle_seats + seats == 0 || shun, "seed {seed}: waits beside a connection with a seat");
        let other = dialling > 0 || entry.places > entry.usable || self.pool.dialable(index, 0) > 0;
        assert!(seats == 0 || undialled == 0 || other, "seed {seed}: shuns the only connection there will be");
        assert_eq!(entry.unpaired, undialled, "seed {seed}");
        let shuns = |(_, ticket): &(usize, &Ticket<u32>)| ticket.host == index && ticket.wants.shuns;
        assert_eq!(entry.shunning, self.pool.tickets.iter().filter(shuns).count(), "seed {seed}: shunning");
        assert!(entry.orphans.is_empty() || undialled == 0, "seed {seed}: a dial for nobody while somebody has none");
        assert_eq!(dialling, dials + entry.orphans.len(), "seed {seed}: dials");
        assert!(entry.dials.len() <= self.config.host.max_dials, "seed {seed}: too many dials");
        // What keeps somebody from being dialled for is one of the limits, whatever that is called.
        if undialled > 0 && !self.pressed && self.pool.dialable(index, 0) > 0 {
            assert_eq!(books.places, self.config.max_connections, "seed {seed}: a place is free and somebody waits");
            let freed = books.closing + books.retiring > 0 || books.idle == 0;
            assert!(freed, "seed {seed}: an idle connection keeps somebody waiting");
        }
        let carried = entry.speaks != Speaks::One && entry.dials.len() + entry.unsaid > 0;
        let within = places < self.config.host.max_connections && entry.dials.len() < entry.pace.window();
        let within = within && entry.calm.is_none();
        let within = within && (entry.speaks != Speaks::Unknown || entry.dials.len() < entry.probes);
        let more = entry.speaks == Speaks::Many && entry.http2_connections() >= self.config.host.max_http2_connections;
        if undialled > 0 && within && !more && !carried {
            assert!(self.pool.dialable(index, 0) > 0, "seed {seed}: nobody dials for host {host}");
        }
    }

    /// How many of the host's requests have a dial, and how many do not; the former stand in front.
    fn queue_of(&self, host: usize) -> (usize, usize) {
        let (mut dials, mut undialled) = (0, 0);
        let mut next = self.pool.hosts[host].queue.front();
        while let Some(ticket) = next {
            match self.pool.tickets[ticket].dial {
                Some(_) => {
                    assert_eq!(undialled, 0, "seed {}: a dial behind one without", self.seed);
                    dials += 1;
                }
                None => undialled += 1,
            }
            next = self.pool.hosts[host].queue.after(&self.pool.tickets, ticket);
        }
        (dials, undialled)
    }

    /// Everybody is served or leaves, every socket closes: nothing may be left.
    fn finish(mut self) {
        let draining = self.random.bool();
        if draining {
            self.pool.drain(self.now);
            self.perform();
            self.check();
            assert!(matches!(self.pool.acquire(self.now, &0, None, false, || 0), Acquired::Refused(Limit::Draining)));
        }
        for round in 0.. {
            assert!(round < 10_000, "seed {}: somebody starves", self.seed);
            self.perform();
            assert!(!draining || self.pool.idle.is_empty(), "seed {}: idle in a pool being drained", self.seed);
            if let Some((permit, host)) = self.permits.pop() {
                self.connect(permit, host);
            } else if let Some((held, conn)) = self.held.pop() {
                if let Some(socket) = self.sockets.get_mut(&conn) {
                    socket.taken -= 1;
                    socket.ended |= socket.taken == 0;
                }
                self.pool.release(self.now, held, Ended::Retire(CloseCause::Unfinished));
            } else if !self.dropped.is_empty() {
                self.close_dropped();
            } else if let Some(at) = self.pool.next_timeout() {
                self.now = self.now.max(at);
                self.pool.handle_timeout(self.now);
            } else if let Some(conn) = self.any_socket() {
                panic!("seed {}: {conn} is never closed", self.seed);
            } else {
                break;
            }
        }
        let seed = self.seed;
        let tally = self.pool.books().tally;
        assert_eq!(self.pool.books(), Books { tally, ..Books::default() }, "seed {seed}");
        assert_eq!(tally.opened, tally.closed.iter().sum::<u64>(), "seed {seed}: everything is closed in the end");
        assert!(
            self.pool.hosts.is_empty() && self.pool.conns.is_empty() && self.pool.tickets.is_empty(),
            "seed {seed}"
        );
        assert!(self.pool.ring.is_empty() && self.pool.alarms.is_empty(), "seed {seed}");
        assert_eq!(self.drained, draining, "seed {seed}");
    }
}

#[test]
fn random_walks_keep_every_invariant() {
    let seeds = std::env::var("WALKS").map_or(1_000, |walks| walks.parse().expect("a number"));
    for seed in 0..seeds {
        let mut walk = Walk::new(seed);
        for _ in 0..300 {
            walk.step();
        }
        walk.finish();
    }
}
