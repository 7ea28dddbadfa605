//! Random walks over the pool's core, against its invariants and against a model of the world outside.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock};

use super::choices::Choices;
use super::*;
use crate::pool::state::values::conn::Pace;

const HOSTS: u8 = 5;

/// The protocol of a host: 0 and 1 speak HTTP/1, 2 and 3 HTTP/2. Host 4 speaks either, and it is not known beforehand which.
fn speaks(host: u8) -> Speaks {
    match host {
        0 | 1 => Speaks::Http1,
        2 | 3 => Speaks::Http2,
        _ => Speaks::Unknown,
    }
}

/// An open socket, in the model.
#[derive(Debug, Clone, Copy)]
struct Socket {
    id: ConnId,
    host: u8,
    is_http2: bool,
    streams: usize,
    taken: usize,
    requests: u64,
    /// True if it takes no new requests.
    ended: bool,
}

/// A random walk, and the model of the world outside of the pool.
struct Walk {
    seed: u64,
    random: Choices,
    config: PoolConfig,
    pool: Pool,
    now: Instant,
    /// True if requests are balanced over the addresses of each host.
    is_balanced: bool,
    permits: Vec<(Permit, u8)>,
    /// The addresses that dials try first, by the number of their connection.
    aims: HashMap<u64, SocketAddr>,
    leases: Vec<(LeaseToken, u64)>,
    /// The open sockets.
    sockets: BTreeMap<u64, Socket>,
    /// The connections that the core had the driver close.
    dropped: HashSet<u64>,
    waiting: BTreeMap<u8, VecDeque<(u32, WaiterId, Instant)>>,
    /// The requests that refuse used connections.
    refusing: HashSet<u32>,
    resends: HashSet<u32>,
    /// The times that requests may wait.
    limits: HashMap<u32, WaitLimits>,
    /// The starts of dials, by the number of their connection.
    begun: HashMap<u64, Instant>,
    /// The connections to each host whose dials were slow, and that may be more than its limit of HTTP/2.
    late: HashMap<u8, usize>,
    /// The requests that may wait for a connection of their own runtime.
    own: HashSet<u32>,
    /// The second attempts at requests, and the connections that they never take.
    hedges: HashMap<u32, u64>,
    waiters: u32,
    /// The requests that entered the queue and left it.
    queue: QueueStats,
    /// True once descriptors have run out.
    had_no_descriptors: bool,
    drained: bool,
}

impl Walk {
    fn new(seed: u64, mut random: Choices, is_balanced: bool) -> Self {
        let limit = |random: &mut Choices, low: usize| match random.u8(..4) {
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
            .min_idle_per_host(if random.bool() { 0 } else { random.usize(..5) })
            .max_waiting(limit(&mut random, 0))
            .max_waiting_per_host(limit(&mut random, 0))
            .idle_timeout(ms(random.u64(..200) * if random.bool() { 1 } else { 20 }))
            .lifetime(ms(random.u64(1..5_000)))
            .wait_timeout(ms(random.u64(1..2_000)));
        let limits = config.limits_for("", 0);
        let balanced = |seed| BalancedHost { name: "api.test".into(), port: 80, pinned: Vec::new(), seed };
        let pool = State::new(&config, move |host: &u8| Profile {
            limits,
            speaks: speaks(*host),
            balanced: is_balanced.then(|| balanced(seed)),
        });
        Self {
            seed,
            random,
            config,
            pool,
            now: crate::clock::now(),
            is_balanced,
            permits: Vec::new(),
            aims: HashMap::new(),
            leases: Vec::new(),
            sockets: BTreeMap::new(),
            dropped: HashSet::new(),
            waiting: BTreeMap::new(),
            refusing: HashSet::new(),
            resends: HashSet::new(),
            limits: HashMap::new(),
            begun: HashMap::new(),
            late: HashMap::new(),
            own: HashSet::new(),
            hedges: HashMap::new(),
            waiters: 0,
            queue: QueueStats::default(),
            had_no_descriptors: false,
            drained: false,
        }
    }

    fn step(&mut self) {
        let host = self.random.u8(..HOSTS);
        match self.random.u8(..28) {
            0..=7 => self.acquire(host),
            8..=11 if !self.permits.is_empty() => {
                let (permit, host) = self.permits.swap_remove(self.random.usize(..self.permits.len()));
                self.end_dial(permit, host);
            }
            12..=15 => self.release(),
            16 => self.close_a_socket(),
            17 => self.close_dropped(),
            18 => self.abandon(host),
            19 => self.announce_streams(),
            20 => self.goaway(),
            21 if self.random.u8(..8) == 0 => self.pool.close_idle(self.now),
            23 if self.random.u8(..8) == 0 => self.pool.renew(self.now, |other| *other <= host),
            23 | 24 if self.is_balanced && self.random.bool() => self.balance(),
            22 if self.random.u8(..4) == 0 => drop(self.pool.warm_up(self.now, &host, self.random.usize(..4), 4)),
            _ => {
                self.now += ms(self.random.u64(..60));
                self.pool.handle_timeout(self.now);
            }
        }
        self.perform();
        self.check();
    }

    /// Reports the result of a request, or an answer of DNS.
    fn balance(&mut self) {
        if self.random.u8(..4) == 0 {
            let ips: Vec<u8> = (0..5).filter(|_| self.random.bool()).collect();
            let answer = super::balance::answer(ips);
            return self.pool.addresses_answered(self.now, "api.test", &answer, self.random.bool());
        }
        if self.leases.is_empty() {
            return;
        }
        let index = self.random.usize(..self.leases.len());
        let outcome = match self.random.u8(..4) {
            0 => Outcome::Answered,
            1 => Outcome::Cancelled,
            _ => Outcome::Failed,
        };
        let latency = ms(self.random.u64(..1_000));
        self.pool.report(self.now, &mut self.leases[index].0, latency, outcome);
    }

    fn acquire(&mut self, host: u8) {
        self.waiters += 1;
        let waiter = self.waiters;
        let failed_on = (self.random.u8(..8) == 0).then(|| self.random.u64(..50));
        let oldest = self.sockets.keys().min().copied();
        let hedged = oldest.filter(|_| failed_on.is_none() && self.random.u8(..8) == 0);
        let hedged = hedged.map(|number| EarlierConn { number, ip: None });
        let is_hedge = hedged.is_some();
        if failed_on.is_some() {
            self.refusing.insert(waiter);
        }
        let overtakes = self.waiting.get(&host).is_some_and(|queue| !queue.iter().all(|(w, ..)| self.may_refuse(*w)));
        // A resend goes behind the other resends, and in front of the first request that is none.
        let is_ordinary = |(other, ..): &(u32, WaiterId, Instant)| !self.resends.contains(other);
        let queue = self.waiting.entry(host).or_default();
        let behind = queue.iter().position(is_ordinary);
        let limits = WaitLimits {
            connect: ms(self.random.u64(1..3_000)),
            ends_dials: true,
            queue: if self.random.bool() { None } else { Some(ms(self.random.u64(1..2_000))) },
        };
        let wish = Wish {
            failed: failed_on
                .map(|number| EarlierConn { number, ip: Some(IpAddr::from([192, 0, 2, number as u8 % 5])) }),
            despite_drain: false,
            send_once: self.random.bool(),
            own_dial: failed_on.is_some() && self.random.bool(),
            avoid: hedged,
        };
        let runtime = self.random.u64(..3);
        match self.pool.checkout(self.now, &host, &wish, runtime, || (waiter, limits)) {
            Acquired::Ready(Grant { token, conn, .. }) => {
                // A request with a dial of its own leaves connections to addresses that are out of use to others.
                assert!(!overtakes || self.is_balanced, "seed {}: overtook the queue", self.seed);
                let is_paused = self.pool.hosts[self.index_of(host)].dials.paused_until.is_some();
                assert!(
                    failed_on.is_none_or(|failed| failed != conn && (is_paused || self.sockets[&conn].taken > 0)),
                    "seed {}",
                    self.seed
                );
                assert!(hedged.is_none_or(|hedged| hedged.number != conn), "seed {}: the same connection", self.seed);
                self.lease(token, conn);
            }
            Acquired::Refused(_) if is_hedge => {}
            Acquired::Wait(id, _) => {
                self.queue.entered += 1;
                self.limits.insert(waiter, limits);
                if failed_on.is_some() {
                    self.resends.insert(waiter);
                }
                if self.pool.waiters.get(id).is_some_and(|waiter| waiter.needs.refuses_used) {
                    self.refusing.insert(waiter);
                }
                if wish.own_dial {
                    self.own.insert(waiter);
                }
                if let Some(hedged) = hedged {
                    self.hedges.insert(waiter, hedged.number);
                }
                let queue = self.waiting.entry(host).or_default();
                match behind.filter(|_| failed_on.is_some()) {
                    Some(position) => queue.insert(position, (waiter, id, self.now)),
                    None => queue.push_back((waiter, id, self.now)),
                }
            }
            Acquired::Refused(limit) => {
                self.queue.refused += 1;
                assert!(limit != Limit::Opening && self.is_full(host), "seed {}: refused without need", self.seed);
            }
        }
    }

    /// Returns true if a request in the queue may leave a free connection to others.
    fn may_refuse(&self, waiter: u32) -> bool {
        self.refusing.contains(&waiter) || self.hedges.contains_key(&waiter)
    }

    fn is_full(&self, host: u8) -> bool {
        let unpaired = |host: u8| {
            let queue = self.waiting.get(&host).into_iter().flatten();
            queue.filter(|(_, id, _)| self.pool.waiters[id.index].dials.in_flight == 0).count()
        };
        let total: usize = (0..HOSTS).map(unpaired).sum();
        total >= self.config.max_waiting || unpaired(host) >= self.config.per_host.max_waiting
    }

    fn end_dial(&mut self, permit: Permit, host: u8) {
        match self.random.u8(..8) {
            0 => self.fail(permit),
            1 => {
                self.had_no_descriptors = true;
                self.pool.dial_postponed(self.now, permit, Limit::Descriptors);
            }
            _ => self.connect(permit, host),
        }
    }

    /// Fails a dial with an error that names it.
    fn fail(&mut self, permit: Permit) {
        let error = name_of(permit.id().serial);
        self.pool.dial_failed(self.now, permit, error);
    }

    fn connect(&mut self, permit: Permit, host: u8) {
        let id = permit.id();
        if self.pool.conns[id.index].dialling().pace != Pace::Young {
            *self.late.entry(host).or_default() += 1;
        }
        let is_http2 = match speaks(host) {
            Speaks::Http1 => false,
            Speaks::Http2 => true,
            Speaks::Unknown => self.random.bool(),
        };
        let speaks = if is_http2 { Speaks::Http2 } else { Speaks::Http1 };
        let ended = self.pool.is_given_up(id);
        let socket = Socket { id, host, is_http2, streams: 1, taken: 0, requests: 0, ended };
        self.sockets.insert(id.serial, socket);
        let runtime = self.random.u64(..3);
        let any = SocketAddr::from(([192, 0, 2, self.random.u8(..5)], 80));
        let aim = self.aims.remove(&id.serial).filter(|_| self.random.u8(..4) > 0);
        let remote = Some(aim.unwrap_or(any));
        let opened = Opened { fresh: id.serial, conn: id.serial, speaks, location: None, remote, runtime };
        self.pool.dial_succeeded(self.now, permit, opened);
    }

    fn release(&mut self) {
        if self.leases.is_empty() {
            return;
        }
        let (token, conn) = self.leases.swap_remove(self.random.usize(..self.leases.len()));
        let kept = self.random.u8(..4) > 0;
        if let Some(socket) = self.sockets.get_mut(&conn) {
            socket.taken -= 1;
            // A connection that others share may end later, which an effect reports.
            socket.ended |= !kept && socket.taken == 0;
        }
        let ended = match kept {
            true if self.random.u8(..4) == 0 => LeaseEnd::Unused,
            true => LeaseEnd::Kept { keep_alive: None },
            false if self.random.bool() => LeaseEnd::Cut { idle: ms(self.random.u64(..1_000)) },
            false => LeaseEnd::Retire(CloseCause::Unfinished),
        };
        self.pool.release(self.now, token, ended);
    }

    fn any_socket(&mut self) -> Option<u64> {
        let count = self.sockets.len();
        (count > 0).then(|| *self.sockets.keys().nth(self.random.usize(..count)).unwrap())
    }

    fn close_a_socket(&mut self) {
        let Some(conn) = self.any_socket() else { return };
        let socket = self.sockets.remove(&conn).unwrap();
        self.dropped.remove(&conn);
        self.pool.socket_closed(self.now, socket.id);
    }

    fn close_dropped(&mut self) {
        for conn in std::mem::take(&mut self.dropped) {
            if let Some(socket) = self.sockets.remove(&conn) {
                self.pool.socket_closed(self.now, socket.id);
            }
        }
    }

    fn announce_streams(&mut self) {
        let Some(conn) = self.any_socket().filter(|conn| self.sockets[conn].is_http2) else { return };
        let streams = self.random.usize(..5);
        let socket = self.sockets.get_mut(&conn).unwrap();
        socket.streams = streams.min(self.config.per_host.max_streams);
        let id = socket.id;
        self.pool.announce_streams(self.now, id, streams);
    }

    fn goaway(&mut self) {
        let Some(conn) = self.any_socket() else { return };
        let socket = self.sockets.get_mut(&conn).unwrap();
        socket.ended = true;
        let id = socket.id;
        match self.random.u8(..4) {
            0 => self.pool.back_off(self.now, id, self.random.f64()),
            _ => self.pool.retire(self.now, id, CloseCause::PeerAnnounced),
        }
    }

    fn abandon(&mut self, host: u8) {
        let Some(queue) = self.waiting.get_mut(&host).filter(|queue| !queue.is_empty()) else { return };
        let (waiter, id, _) = queue.remove(self.random.usize(..queue.len())).unwrap();
        let cause = if self.random.bool() { AbandonCause::TimedOut } else { AbandonCause::Cancelled };
        match cause {
            AbandonCause::TimedOut => self.queue.timed_out += 1,
            AbandonCause::Cancelled => self.queue.cancelled += 1,
        }
        assert_eq!(self.pool.abandon(self.now, id, cause), Some(waiter), "seed {}", self.seed);
    }

    fn lease(&mut self, token: LeaseToken, conn: u64) {
        let socket = self.sockets.get_mut(&conn).unwrap_or_else(|| panic!("seed {}: leased a closed one", self.seed));
        socket.taken += 1;
        socket.requests += 1;
        let last = socket.requests >= self.config.per_host.max_requests;
        assert!(!self.dropped.contains(&conn) && (last || !socket.ended), "seed {}: leased one given up", self.seed);
        let is_shared = socket.is_http2 && socket.taken > 1;
        assert!(
            is_shared || socket.requests <= self.config.per_host.max_requests,
            "seed {}: leased too often",
            self.seed
        );
        self.leases.push((token, conn));
    }

    fn perform(&mut self) {
        while let Some(effect) = self.pool.next_effect() {
            match effect {
                Effect::Dial(permit, host, first) => {
                    self.aims.extend(first.map(|first| (permit.id().serial, first)));
                    self.begun.insert(permit.id().serial, self.now);
                    self.permits.push((permit, host));
                }
                Effect::Close(conn) => {
                    let taken = self.sockets.get(&conn).map_or(0, |socket| socket.taken);
                    assert_eq!(taken, 0, "seed {}: closed in use", self.seed);
                    self.dropped.insert(conn);
                }
                Effect::Deliver { waiter, grant: Grant { token, conn, .. }, .. } => {
                    let host = self.host_of(waiter);
                    let Socket { requests, is_http2, taken, .. } = self.sockets[&conn];
                    let (used, given_back) = (requests > 0 && !is_http2, requests > 0 && taken == 0);
                    let queue = self.waiting.get_mut(&host).unwrap();
                    let position = queue.iter().position(|(other, ..)| *other == waiter).unwrap();
                    let refuses = |(other, ..): &(u32, WaiterId, Instant)| self.refusing.contains(other);
                    let steps_back = |other: &(u32, WaiterId, Instant)| {
                        let is_hedged_there = self.hedges.get(&other.0) == Some(&conn);
                        ((used || given_back) && refuses(other)) || self.own.contains(&other.0) || is_hedged_there
                    };
                    let is_first = self.is_balanced || queue.iter().take(position).all(steps_back);
                    assert_ne!(self.hedges.get(&waiter), Some(&conn), "seed {}: the same connection", self.seed);
                    assert!(
                        is_first && !(used && refuses(&queue[position])),
                        "seed {}: not the first in line",
                        self.seed
                    );
                    queue.remove(position);
                    self.queue.served += 1;
                    assert_eq!(self.sockets[&conn].host, host, "seed {}: another host's", self.seed);
                    self.lease(token, conn);
                }
                Effect::Fail { waiter, why } => {
                    let host = self.host_of(waiter);
                    let queue = self.waiting.get_mut(&host).unwrap();
                    let position = queue.iter().position(|(other, ..)| *other == waiter).unwrap();
                    let (_, _, since) = queue.remove(position).unwrap();
                    self.check_failure(host, waiter, since, why);
                }
                Effect::Retired(id, _) => {
                    if let Some(socket) = self.sockets.get_mut(&id.serial) {
                        socket.ended = true;
                    }
                }
                Effect::AskDns(_) => {}
                Effect::AbortDial(id) => {
                    let position = self.permits.iter().position(|(permit, _)| permit.id() == id);
                    // The dial may have ended already.
                    if let Some(position) = position.filter(|_| self.random.bool()) {
                        let (permit, _) = self.permits.swap_remove(position);
                        self.fail(permit);
                    }
                }
                Effect::Drained => self.drained = true,
            }
        }
    }

    /// Checks that a request fails for a reason of its own.
    fn check_failure(&mut self, host: u8, waiter: u32, since: Instant, why: WaitFailure<&'static str>) {
        let (seed, waited, limits) = (self.seed, self.now - since, self.limits[&waiter]);
        let early = waited < limits.connect;
        match why {
            WaitFailure::Dial(error) => {
                self.queue.failed += 1;
                let begun = self.begun[&error.parse::<u64>().expect("the number of a dial")];
                assert!(begun >= since, "seed {seed}: failed with a dial older than itself");
                let entry = self.pool.hosts.find(&host).map(|host| &self.pool.hosts[host]);
                let is_alive =
                    entry.is_some_and(|entry| entry.open_conns() > 0 && entry.dials.have_progressed(self.now));
                assert!(!early || !is_alive, "seed {seed}: failed while connections are opened or freed");
            }
            WaitFailure::Connect { .. } => {
                self.queue.timed_out += 1;
                assert!(!early, "seed {seed}: failed before its connect timeout");
            }
            WaitFailure::Timeout(Expired { limit, .. }) => {
                self.queue.timed_out += 1;
                let longest = limits.queue.unwrap_or(Duration::MAX).min(self.config.per_host.wait_timeout);
                assert!(waited >= longest && limit != Limit::Opening, "seed {seed}: failed early, {limit}");
            }
        }
    }

    fn host_of(&self, waiter: u32) -> u8 {
        let waits = |queue: &VecDeque<(u32, WaiterId, Instant)>| queue.iter().any(|(other, ..)| *other == waiter);
        *self.waiting.iter().find(|(_, queue)| waits(queue)).expect("the request waits").0
    }

    fn check(&self) {
        let seed = self.seed;
        let counters = self.pool.counters();
        let sockets = || self.sockets.values();
        self.pool.check(self.now, seed);
        assert_eq!(counters.slots, self.permits.len() + self.sockets.len(), "seed {seed}: slots");
        assert_eq!((counters.dialling, counters.leased), (self.permits.len(), self.leases.len()), "seed {seed}");
        assert!(counters.slots <= self.config.max_connections, "seed {seed}: over the total");
        assert!(counters.idle <= self.config.max_idle, "seed {seed}: too many idle");
        assert_eq!(counters.waiting, self.waiting.values().map(VecDeque::len).sum::<usize>(), "seed {seed}");
        assert_eq!(counters.totals.queue, self.queue, "seed {seed}: the requests that entered the queue and left it");
        let retiring = sockets().filter(|socket| socket.ended && socket.taken > 0).count();
        assert_eq!(counters.retiring, retiring, "seed {seed}: retiring");
        let closing = self.sockets.keys().filter(|conn| self.dropped.contains(conn)).count();
        assert_eq!(counters.closing, closing, "seed {seed}: closing");
        let gone = self.leases.iter().filter(|(_, conn)| !self.sockets.contains_key(conn));
        let gone: HashSet<u64> = gone.map(|(_, conn)| *conn).collect();
        let busy = sockets().filter(|socket| socket.taken > 0).count() + gone.len();
        assert_eq!(counters.busy, busy, "seed {seed}: busy");
        for (_, id, since) in self.waiting.values().flatten() {
            self.check_wait(*id, *since);
        }
        for host in 0..HOSTS {
            self.check_host(host, counters);
        }
    }

    /// Checks that a request has not waited for too long.
    fn check_wait(&self, id: WaiterId, since: Instant) {
        let (seed, waiter) = (self.seed, self.pool.waiters.get(id).expect("it waits"));
        let host = &self.pool.hosts[waiter.host];
        let (dials, connect) = (waiter.dials, waiter.limits.connect);
        if dials.in_flight > 0 {
            let from = dials.connect_from;
            assert!(self.now < from + connect + ms(100), "seed {seed}: outlasts its connect timeout");
            return;
        }
        let limit = self.pool.limit_of(self.now, id.index);
        let is_limited = !matches!(limit, Limit::Opening | Limit::Settings);
        let longest = waiter.limits.queue.unwrap_or(Duration::MAX).min(host.limits.wait_timeout);
        // If no limit kept it waiting when its time was over, it is looked at again within 50 ms.
        let is_looked_at = waiter.ends_at.is_some_and(|at| at <= self.now + ms(50));
        let waits_from = dials.waits_from;
        assert!(
            !is_limited || self.now < waits_from + longest || is_looked_at,
            "seed {seed}: waits for {limit} for too long"
        );
        let sign = host.dials.progress_at.unwrap_or(since).max(dials.connect_from);
        let is_over = self.now >= sign + connect + ms(60) && !is_limited;
        assert!(!is_over || waiter.ends_at.is_some_and(|at| at > self.now), "seed {seed}: waits for a dead host");
    }

    fn check_host(&self, host: u8, counters: Counters) {
        let seed = self.seed;
        let sockets = || self.sockets.values().filter(|socket| socket.host == host);
        let dialling = self.permits.iter().filter(|(_, other)| *other == host).count();
        let slots = dialling + sockets().count();
        let Some(index) = self.pool.hosts.find(&host) else {
            assert_eq!(slots, 0, "seed {seed}: forgot a host in use");
            return;
        };
        let entry = &self.pool.hosts[index];
        let undialled = entry.queue.undialled;
        assert_eq!((entry.conns.slots, entry.dials.in_flight), (slots, dialling), "seed {seed}: slots of host {host}");
        let is_usable = |socket: &&Socket| !socket.ended && !self.dropped.contains(&socket.id.serial);
        assert_eq!(entry.conns.usable, sockets().filter(is_usable).count() + dialling, "seed {seed}: usable");
        let http1 = sockets().filter(is_usable).filter(|socket| !socket.is_http2).count();
        assert_eq!(entry.conns.http1, http1, "seed {seed}: usable connections that speak HTTP/1");
        let late = self.late.get(&host).copied().unwrap_or(0);
        if speaks(host) == Speaks::Http2 && !self.is_balanced {
            assert!(
                entry.conns.usable
                    <= self.config.per_host.max_http2_connections
                        + entry.dials.slow.len()
                        + entry.dials.given_up
                        + late,
                "seed {seed}: HTTP/2 connections"
            );
        }
        let shared = sockets().filter(|s| !s.ended && s.taken > 0 && s.taken < s.streams).count();
        assert_eq!(entry.conns.shared.len(), shared, "seed {seed}: shared");
        let idle = sockets().filter(is_usable).filter(|s| s.taken == 0 && s.streams > 0).count();
        let queue = self.waiting.get(&host).into_iter().flatten();
        let is_other_coming =
            dialling > 0 || entry.conns.slots > entry.conns.usable || entry.wanted_dials(self.now, 0) > 0;
        let is_coming = is_other_coming || entry.will_have_streams(self.now, 0);
        // Beside connections to addresses out of use, a request waits for another one, or for a while; the core checks that it does so
        // beside these alone.
        let may_shun = |id: &WaiterId| {
            let waiter = &self.pool.waiters[id.index];
            let waits_for_less = self.now - waiter.since < ms(100);
            (waiter.needs.yields && waits_for_less) || self.is_balanced && (is_coming || waits_for_less)
        };
        let mut queue = queue.filter(|(_, id, _)| !may_shun(id)).map(|(waiter, ..)| waiter);
        let all_refuse = queue.all(|waiter| self.may_refuse(*waiter));
        assert!(idle + shared == 0 || all_refuse, "seed {seed}: waits beside a connection with a free stream");
        // A second attempt waits on for as long as the first one does.
        let may_wait = |(waiter, id, _): &(u32, WaiterId, Instant)| self.hedges.contains_key(waiter) || may_shun(id);
        let is_excused = self.waiting.get(&host).into_iter().flatten().any(may_wait);
        assert!(
            shared == 0 || undialled == 0 || is_other_coming || is_excused,
            "seed {seed}: refuses the last connection there will be"
        );
        self.check_dials(index, undialled, counters);
    }

    /// A request without a dial is kept waiting by a limit.
    fn check_dials(&self, index: usize, undialled: usize, counters: Counters) {
        let seed = self.seed;
        let entry = &self.pool.hosts[index];
        if undialled == 0 {
            return;
        }
        if !self.had_no_descriptors && entry.wanted_dials(self.now, 0) > 0 && !entry.dials.are_in_trouble() {
            assert_eq!(counters.slots, self.config.max_connections, "seed {seed}: a slot is free and a request waits");
            let is_freed = counters.closing + counters.retiring + self.pool.conns.given_up > 0 || counters.idle == 0;
            assert!(is_freed, "seed {seed}: an idle connection keeps a request waiting");
        }
    }

    fn index_of(&self, host: u8) -> usize {
        self.pool.hosts.find(&host).expect("the host is known")
    }

    /// Ends everything there is: nothing may be left.
    fn finish(mut self) {
        let draining = self.random.bool();
        if draining {
            self.pool.drain(self.now);
            self.perform();
            self.check();
            assert!(matches!(self.pool.acquire(self.now, &0, None, false, || 0), Acquired::Refused(Limit::Draining)));
        }
        for round in 0.. {
            assert!(round < 10_000, "seed {}: a request starves", self.seed);
            if round == 1_000 {
                // Hosts without requests are kept warm no longer.
                self.now += Duration::from_secs(60 * 60);
            }
            self.perform();
            assert!(!draining || self.pool.conns.idle.is_empty(), "seed {}: idle in a pool being drained", self.seed);
            if let Some((permit, host)) = self.permits.pop() {
                self.connect(permit, host);
            } else if let Some((token, conn)) = self.leases.pop() {
                if let Some(socket) = self.sockets.get_mut(&conn) {
                    socket.taken -= 1;
                    socket.ended |= socket.taken == 0;
                }
                self.pool.release(self.now, token, LeaseEnd::Retire(CloseCause::Unfinished));
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
        let totals = self.pool.counters().totals;
        assert_eq!(self.pool.counters(), Counters { totals, ..Counters::default() }, "seed {seed}");
        assert_eq!(totals.opened, totals.closed.iter().sum::<u64>(), "seed {seed}: everything is closed in the end");
        assert!(
            self.pool.hosts.slab.is_empty() && self.pool.conns.is_empty() && self.pool.waiters.len() == 0,
            "seed {seed}"
        );
        assert!(self.pool.slots.has_no_contenders() && self.pool.timers.len() == 0, "seed {seed}");
        assert_eq!(self.drained, draining, "seed {seed}");
    }
}

/// Returns the number of a connection as a text that lives forever.
pub(super) fn name_of(serial: u64) -> &'static str {
    static NAMES: OnceLock<Mutex<HashMap<u64, &'static str>>> = OnceLock::new();
    let mut names = NAMES.get_or_init(Mutex::default).lock().unwrap();
    names.entry(serial).or_insert_with(|| serial.to_string().leak())
}

#[test]
fn random_walks_keep_every_invariant() {
    walk(400, false);
}

#[test]
fn random_walks_of_balanced_hosts_keep_every_invariant() {
    walk(250, true);
}

fn walk(default: u64, is_balanced: bool) {
    let seeds = std::env::var("WALKS").map_or(default, |walks| walks.parse().expect("a number"));
    let first = std::env::var("FIRST_WALK").map_or(0, |first| first.parse().expect("a number"));
    for seed in first..seeds {
        let mut walk = Walk::new(seed, Choices::random(seed), is_balanced);
        for _ in 0..300 {
            walk.step();
        }
        walk.finish();
    }
}

/// Walks as the bytes say, until there are no more of them, and then ends everything.
pub(crate) fn walk_by_bytes(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let seed = u64::from(*first);
    let mut walk = Walk::new(seed, Choices::of_bytes(bytes, seed), first % 2 == 1);
    while walk.random.has_bytes() {
        walk.step();
    }
    walk.finish();
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn walks_by_changes_of_the_seeds_of_fuzzing_keep_every_invariant() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/pool");
    let Ok(files) = std::fs::read_dir(folder) else {
        eprintln!("SKIPPED: the seeds are in the repository, not in the published crate");
        return;
    };
    let mut seeds = 0;
    for file in files {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        walk_by_bytes(&bytes);
        // Truncations of the walk, and other choices in it.
        for at in (0..bytes.len()).step_by(7) {
            walk_by_bytes(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(1 + at as u8 % 7);
            walk_by_bytes(&changed);
        }
        seeds += 1;
    }
    assert!(seeds >= 4, "{seeds} seeds");
}
