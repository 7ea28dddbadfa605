//! The pool core by arithmetic, and in random walks against invariants.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::*;

type Pool = State<u8, u64, u32, &'static str>;

fn pool(config: PoolConfig) -> (Pool, Instant) {
    (State::new(config), crate::clock::now())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Pool {
    fn wait(&mut self, now: Instant, host: u8, waiter: u32) -> TicketId {
        match self.acquire(now, &host, false, || waiter) {
            Acquired::Wait(ticket) => ticket,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    fn ready(&mut self, now: Instant, host: u8) -> (Held, u64) {
        match self.acquire(now, &host, false, || 0) {
            Acquired::Ready(held, conn) => (held, conn),
            other => panic!("expected an idle connection: {other:?}"),
        }
    }

    fn permit(&mut self) -> Permit {
        match self.poll() {
            Some(Effect::Dial(permit, _)) => permit,
            other => panic!("expected a dial: {other:?}"),
        }
    }

    fn delivered(&mut self) -> (u32, Held, u64) {
        match self.poll() {
            Some(Effect::Deliver { waiter, held, conn, .. }) => (waiter, held, conn),
            other => panic!("expected a delivery: {other:?}"),
        }
    }

    fn failed(&mut self) -> (u32, Failure<&'static str>) {
        match self.poll() {
            Some(Effect::Fail { waiter, why }) => (waiter, why),
            other => panic!("expected a failure: {other:?}"),
        }
    }

    /// Opens `count` connections to `host` and leaves them idle.
    fn open_idle(&mut self, now: Instant, host: u8, count: u64) -> Vec<ConnId> {
        for waiter in 0..count {
            self.wait(now, host, waiter as u32);
        }
        let permits: Vec<_> = (0..count).map(|_| self.permit()).collect();
        let ids = permits.iter().map(Permit::id).collect();
        for permit in permits {
            let conn = permit.id().serial;
            self.dialed(now, permit, conn);
        }
        let held: Vec<_> = (0..count).map(|_| self.delivered()).collect();
        for (_, held, conn) in held {
            self.release(now, held, Some(conn));
        }
        ids
    }
}

#[test]
fn a_cold_request_dials_and_a_warm_one_does_not() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 10);
    let permit = pool.permit();
    pool.dialed(now, permit, 5);
    let (waiter, held, conn) = pool.delivered();
    assert_eq!((waiter, conn), (10, 5));
    pool.release(now, held, Some(conn));
    assert_eq!(pool.ready(now, 1).1, 5);
    assert!(pool.poll().is_none());
}

#[test]
fn the_most_recently_used_connection_goes_out_first() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 2);
    let (first, a) = pool.ready(now, 1);
    let (second, b) = pool.ready(now, 1);
    pool.release(now, first, Some(a));
    pool.release(now, second, Some(b));
    assert_eq!(pool.ready(now, 1).1, b);
}

#[test]
fn a_limit_makes_requests_wait_in_order() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let permit = pool.permit();
    assert!(pool.poll().is_none(), "one dial only");
    pool.dialed(now, permit, 5);
    for expected in 0..3 {
        let (waiter, held, conn) = pool.delivered();
        assert_eq!(waiter, expected);
        pool.release(now, held, Some(conn));
    }
    assert_eq!(pool.books().idle, 1);
}

#[test]
fn a_place_is_free_when_the_socket_is_closed_and_not_before() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, 1, 0);
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed(now, permit, 5);
    let (_, held, _) = pool.delivered();
    pool.release(now, held, None);
    assert!(pool.poll().is_none(), "the socket is still there");
    pool.closed(id);
    pool.permit();
}

#[test]
fn a_freed_connection_is_taken_while_a_dial_goes_on_and_the_surplus_is_kept() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 1);
    let (held, conn) = pool.ready(now, 1);
    pool.wait(now, 1, 9);
    let permit = pool.permit();
    pool.release(now, held, Some(conn));
    assert_eq!(pool.delivered().0, 9);
    pool.dialed(now, permit, 6);
    assert!(pool.poll().is_none());
    assert_eq!(pool.books().idle, 1);
}

#[test]
fn a_failed_dial_fails_its_own_request_and_strands_nobody() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    for expected in 0..3 {
        let permit = pool.permit();
        pool.dial_failed(permit, "refused");
        assert!(matches!(pool.failed(), (waiter, Failure::Dial("refused")) if waiter == expected));
    }
    assert!(pool.poll().is_none() && pool.hosts.is_empty());
}

#[test]
fn a_dial_whose_request_left_serves_the_next_one_and_its_failure_nobody_else() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let first = pool.wait(now, 1, 1);
    let permit = pool.permit();
    assert_eq!(pool.abandon(first), Some(1));
    assert_eq!(pool.abandon(first), None);
    pool.wait(now, 1, 2);
    assert!(pool.poll().is_none(), "the dial under way will do");
    pool.dialed(now, permit, 5);
    assert_eq!(pool.delivered().0, 2);

    let third = pool.wait(now, 2, 3);
    let permit = pool.permit();
    pool.abandon(third);
    pool.dial_failed(permit, "refused");
    assert!(pool.poll().is_none());
}

#[test]
fn a_dial_left_for_being_slow_does_not_hold_the_next_request_up() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut slow = Vec::new();
    for waiter in 0..4 {
        let ticket = pool.wait(now, 1, waiter);
        slow.push(pool.permit());
        pool.abandon(ticket);
    }
    pool.wait(now, 1, 9);
    assert!(pool.poll().is_none(), "but there is an end to it");
    pool.dialed(now, slow.remove(0), 5);
    assert_eq!(pool.delivered().0, 9);
}

#[test]
fn a_request_that_shuns_idle_connections_gets_another_one() {
    for limit in [1, 2, usize::MAX] {
        let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(limit));
        let ids = pool.open_idle(now, 1, 1);
        assert!(matches!(pool.acquire(now, &1, true, || 8), Acquired::Wait(_)));
        if limit == 1 {
            assert!(matches!(pool.poll(), Some(Effect::Close(_))), "it is in the way");
            pool.closed(ids[0]);
        }
        let permit = pool.permit();
        pool.dialed(now, permit, 77);
        let (waiter, _, conn) = pool.delivered();
        assert_eq!((waiter, conn), (8, 77));
    }
}

#[test]
fn a_busy_host_yields_to_one_whose_requests_came_first() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    pool.open_idle(now, 1, 2);
    let (first, a) = pool.ready(now, 1);
    let (second, b) = pool.ready(now, 1);
    pool.wait(now, 2, 20);
    for waiter in 10..13 {
        pool.wait(now, 1, waiter);
    }
    pool.release(now, first, Some(a));
    assert!(matches!(pool.poll(), Some(Effect::Close(conn)) if conn == a), "host 2 came first");
    pool.release(now, second, Some(b));
    assert_eq!(pool.delivered().0, 10, "one place is enough for it");
}

#[test]
fn only_as_many_idle_connections_close_as_requests_are_kept_out() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(10));
    pool.open_idle(now, 1, 10);
    let held: Vec<_> = (0..10).map(|_| pool.ready(now, 1)).collect();
    pool.wait(now, 2, 20);
    for (held, conn) in held {
        pool.release(now, held, Some(conn));
    }
    assert_eq!((pool.books().closing, pool.books().idle), (1, 9));
}

#[test]
fn alarms_do_not_outlive_their_hosts() {
    let (mut pool, now) = pool(PoolConfig::new());
    for host in 0..100 {
        let ids = pool.open_idle(now, host, 1);
        pool.closed(ids[0]);
        while pool.poll().is_some() {}
    }
    assert_eq!((pool.hosts.len(), pool.alarms.len()), (0, 0));
}

#[test]
fn a_request_waits_for_its_dial_as_long_as_that_takes() {
    let (mut pool, now) = pool(PoolConfig::new().wait_timeout(ms(100)));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.handle_timeout(now + ms(5_000));
    assert!(pool.poll().is_none());
    pool.dialed(now + ms(5_000), permit, 5);
    assert_eq!(pool.delivered().0, 1);
}

#[test]
fn a_dial_that_is_faster_serves_the_first_and_the_slower_one_is_the_others() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    let (slow, fast) = (pool.permit(), pool.permit());
    pool.dialed(now, fast, 5);
    assert_eq!(pool.delivered().0, 1);
    pool.dial_failed(slow, "refused");
    assert_eq!(pool.failed().0, 2);
}

#[test]
fn idle_connections_close_after_the_idle_timeout_oldest_first() {
    let (mut pool, now) = pool(PoolConfig::new().idle_timeout(ms(100)));
    pool.open_idle(now, 1, 2);
    let (held, conn) = pool.ready(now + ms(60), 1);
    pool.release(now + ms(60), held, Some(conn));
    assert_eq!(pool.next_timeout(), Some(now + ms(100)));
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.poll(), Some(Effect::Close(other)) if other != conn));
    assert!(pool.poll().is_none());
    assert_eq!(pool.next_timeout(), Some(now + ms(160)));
    pool.handle_timeout(now + ms(160));
    assert!(matches!(pool.poll(), Some(Effect::Close(other)) if other == conn));
    assert_eq!((pool.next_timeout(), pool.books().closing), (None, 2));
}

#[test]
fn idle_limits_close_the_longest_idle() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle_per_host(1).max_idle(2));
    pool.open_idle(now, 1, 2);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    assert_eq!(pool.books().idle, 1);
    pool.open_idle(now, 2, 1);
    pool.open_idle(now, 3, 1);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    assert!(matches!(pool.acquire(now, &1, false, || 0), Acquired::Wait(_)), "host 1 was the least recently used");
}

#[test]
fn an_idle_limit_of_zero_keeps_none() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle(0));
    pool.open_idle(now, 1, 1);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    assert_eq!(pool.books().idle, 0);
}

#[test]
fn an_idle_connection_that_closes_is_never_leased() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 1);
    pool.closed(ids[0]);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    pool.wait(now, 1, 7);
    pool.permit();
    pool.closed(ids[0]);
    assert_eq!(pool.books().places, 1, "the old number means nothing to the new connection");
}

#[test]
fn another_hosts_idle_connection_makes_room_under_the_total() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    let ids = pool.open_idle(now, 1, 2);
    pool.wait(now, 2, 7);
    assert!(matches!(pool.poll(), Some(Effect::Close(conn)) if conn == ids[0].serial));
    assert!(pool.poll().is_none());
    pool.closed(ids[0]);
    pool.permit();
}

#[test]
fn hosts_take_turns_under_the_total() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    for waiter in 10..12 {
        pool.wait(now, 2, waiter);
    }
    let mut served = Vec::new();
    while let Some(effect) = pool.poll() {
        match effect {
            Effect::Dial(permit, _) => {
                let id = permit.id();
                pool.dialed(now, permit, id.serial);
                let (waiter, held, _) = pool.delivered();
                served.push(waiter);
                pool.release(now, held, None);
                pool.closed(id);
            }
            other => panic!("expected a dial: {other:?}"),
        }
    }
    // Request 1 was in line before host 2 came.
    assert_eq!(served, [0, 1, 10, 2, 11]);
}

#[test]
fn requests_that_wait_too_long_fail() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(100)));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.dialed(now, permit, 5);
    let (_, held, conn) = pool.delivered();
    pool.wait(now, 1, 2);
    pool.wait(now + ms(50), 1, 3);
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.failed(), (2, Failure::WaitTimeout { .. })));
    assert_eq!(pool.next_timeout(), Some(now + ms(150)));
    pool.release(now + ms(120), held, Some(conn));
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn only_so_many_may_wait_and_those_with_a_dial_do_not_count() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2).max_waiting(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, false, || 9), Acquired::Full));
    pool.wait(now, 2, 4);
    assert!(matches!(pool.acquire(now, &1, false, || 9), Acquired::Full));
}

#[test]
fn a_refused_request_leaves_no_host_behind() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1).max_waiting(0));
    pool.wait(now, 1, 0);
    assert!(matches!(pool.acquire(now, &2, false, || 9), Acquired::Full));
    assert_eq!(pool.hosts.len(), 1);
}

#[test]
fn a_connection_that_closed_while_leased_gives_its_place_at_once_and_is_not_kept() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 1, 1);
    let (held, conn) = pool.ready(now, 1);
    pool.wait(now, 1, 3);
    pool.closed(ids[0]);
    let permit = pool.permit();
    pool.release(now, held, Some(conn));
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    pool.dialed(now, permit, 6);
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn a_connection_that_closed_before_its_dial_was_told_is_not_kept() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ticket = pool.wait(now, 1, 3);
    let permit = pool.permit();
    pool.abandon(ticket);
    pool.closed(permit.id());
    pool.dialed(now, permit, 6);
    assert!(matches!(pool.poll(), Some(Effect::Close(6))));
    assert_eq!((pool.books().places, pool.hosts.len()), (0, 0));
}

/// What a random walk knows about the pool from outside.
struct Walk {
    seed: u64,
    random: fastrand::Rng,
    config: PoolConfig,
    pool: Pool,
    now: Instant,
    permits: Vec<(Permit, u8)>,
    held: Vec<(Held, u64, u8)>,
    /// Sockets that are open, with their hosts.
    sockets: BTreeMap<u64, (ConnId, u8)>,
    /// Connections the core told the driver to close, or that a lease gave up.
    dropped: HashSet<u64>,
    waiting: BTreeMap<u8, VecDeque<(u32, TicketId, Instant)>>,
    /// Requests that shun idle connections.
    shunning: HashSet<u32>,
    waiters: u32,
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
            .max_idle(limit(&mut random, 0))
            .max_idle_per_host(limit(&mut random, 0))
            .max_waiting(limit(&mut random, 0))
            .idle_timeout(ms(random.u64(..200)))
            .wait_timeout(ms(random.u64(1..2_000)));
        let (pool, now) = pool(config.clone());
        let (permits, held, sockets, dropped, waiting, shunning) = Default::default();
        Self { seed, random, config, pool, now, permits, held, sockets, dropped, waiting, shunning, waiters: 0 }
    }

    fn step(&mut self) {
        let host = self.random.u8(..4);
        match self.random.u8(..20) {
            0..=6 => self.acquire(host),
            7..=9 if !self.permits.is_empty() => {
                let (permit, host) = self.permits.swap_remove(self.random.usize(..self.permits.len()));
                self.end_dial(permit, host);
            }
            10..=13 if !self.held.is_empty() => {
                let (held, conn, _) = self.held.swap_remove(self.random.usize(..self.held.len()));
                let keep = self.random.u8(..4) > 0;
                if !keep {
                    self.dropped.insert(conn);
                }
                self.pool.release(self.now, held, keep.then_some(conn));
            }
            14 => self.close_a_socket(),
            15 => self.close_dropped(),
            16 => self.abandon(host),
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
        let (room, full) = (self.room(host), self.pool.books().unpaired >= self.config.max_waiting);
        let shuns_idle = self.random.u8(..8) == 0;
        if shuns_idle {
            self.shunning.insert(waiter);
        }
        match self.pool.acquire(self.now, &host, shuns_idle, || waiter) {
            Acquired::Ready(held, conn) => {
                assert!(!shuns_idle && self.all_shun(host), "seed {}: overtook the queue", self.seed);
                self.lease(held, conn, host, true);
            }
            Acquired::Wait(ticket) => {
                self.waiting.entry(host).or_default().push_back((waiter, ticket, self.now));
            }
            Acquired::Full => assert!(full && !room, "seed {}: refused without need", self.seed),
        }
    }

    fn all_shun(&self, host: u8) -> bool {
        let queue = self.waiting.get(&host).into_iter().flatten();
        queue.map(|(waiter, ..)| waiter).all(|waiter| self.shunning.contains(waiter))
    }

    fn room(&self, host: u8) -> bool {
        let places = self.places(host);
        places < self.config.max_connections_per_host && self.pool.books().places < self.config.max_connections
    }

    fn places(&self, host: u8) -> usize {
        let dialling = self.permits.iter().filter(|(_, other)| *other == host).count();
        dialling + self.sockets.values().filter(|(_, other)| *other == host).count()
    }

    fn end_dial(&mut self, permit: Permit, host: u8) {
        if self.random.u8(..4) == 0 {
            return self.pool.dial_failed(permit, "refused");
        }
        let id = permit.id();
        self.sockets.insert(id.serial, (id, host));
        self.pool.dialed(self.now, permit, id.serial);
    }

    fn close_a_socket(&mut self) {
        let count = self.sockets.len();
        if count > 0 {
            let (&serial, &(id, _)) = self.sockets.iter().nth(self.random.usize(..count)).unwrap();
            self.sockets.remove(&serial);
            self.pool.closed(id);
        }
    }

    fn close_dropped(&mut self) {
        for conn in std::mem::take(&mut self.dropped) {
            if let Some((id, _)) = self.sockets.remove(&conn) {
                self.pool.closed(id);
            }
        }
    }

    fn abandon(&mut self, host: u8) {
        let Some(queue) = self.waiting.get_mut(&host).filter(|queue| !queue.is_empty()) else { return };
        let (waiter, ticket, _) = queue.remove(self.random.usize(..queue.len())).unwrap();
        assert_eq!(self.pool.abandon(ticket), Some(waiter), "seed {}", self.seed);
    }

    fn lease(&mut self, held: Held, conn: u64, host: u8, open: bool) {
        assert!(!open || self.sockets.contains_key(&conn), "seed {}: leased a closed connection", self.seed);
        assert!(!self.dropped.contains(&conn), "seed {}: leased a connection given up", self.seed);
        self.held.push((held, conn, host));
    }

    fn perform(&mut self) {
        while let Some(effect) = self.pool.poll() {
            match effect {
                Effect::Dial(permit, host) => self.permits.push((permit, host)),
                Effect::Close(conn) => drop(self.dropped.insert(conn)),
                Effect::Deliver { waiter, held, conn, .. } => {
                    let host = self.host_of(waiter);
                    let first = self.waiting.get_mut(&host).unwrap().pop_front().unwrap();
                    assert_eq!(first.0, waiter, "seed {}: not the first in line", self.seed);
                    self.lease(held, conn, host, true);
                }
                Effect::Fail { waiter, why } => {
                    let host = self.host_of(waiter);
                    let queue = self.waiting.get_mut(&host).unwrap();
                    let place = queue.iter().position(|(other, ..)| *other == waiter).unwrap();
                    let (_, _, since) = queue.remove(place).unwrap();
                    let waited = self.now - since;
                    let timely = !matches!(why, Failure::WaitTimeout { .. }) || waited >= self.config.wait_timeout;
                    assert!(timely, "seed {}: failed early", self.seed);
                }
            }
        }
    }

    fn host_of(&self, waiter: u32) -> u8 {
        let waits = |queue: &VecDeque<(u32, TicketId, Instant)>| queue.iter().any(|(other, ..)| *other == waiter);
        *self.waiting.iter().find(|(_, queue)| waits(queue)).expect("told somebody who waits").0
    }

    fn check(&self) {
        let (seed, books) = (self.seed, self.pool.books());
        assert_eq!(books.places, self.permits.len() + self.sockets.len(), "seed {seed}: places");
        assert_eq!((books.dialling, books.leased), (self.permits.len(), self.held.len()), "seed {seed}");
        assert!(books.places <= self.config.max_connections, "seed {seed}: over the total");
        assert!(books.idle <= self.config.max_idle, "seed {seed}: too many idle");
        assert_eq!(books.waiting, self.waiting.values().map(VecDeque::len).sum::<usize>(), "seed {seed}");
        let overdue = |(_, ticket, since): &(u32, TicketId, Instant)| {
            self.pool.dial_of(*ticket).is_none() && self.now - *since >= self.config.wait_timeout
        };
        assert!(!self.waiting.values().flatten().any(overdue), "seed {seed}: waits for too long");
        for host in 0..4 {
            self.check_host(host, books);
        }
    }

    fn check_host(&self, host: u8, books: Books) {
        let (seed, places) = (self.seed, self.places(host));
        let Some(&index) = self.pool.index.get(&host) else {
            assert_eq!(places, 0, "seed {seed}: forgot a host in use");
            return;
        };
        let (dials, undialled) = self.queue_of(index);
        let entry = &self.pool.hosts[index];
        assert_eq!(entry.places, places, "seed {seed}: places of host {host}");
        assert!(places <= self.config.max_connections_per_host, "seed {seed}: over the host's limit");
        assert!(entry.idle.len() <= self.config.max_idle_per_host, "seed {seed}: too many idle");
        let served = entry.idle.is_empty() || self.all_shun(host);
        assert!(served, "seed {seed}: waits beside an idle connection");
        assert_eq!(entry.unpaired, undialled, "seed {seed}");
        assert!(entry.orphans.is_empty() || undialled == 0, "seed {seed}: a dial for nobody while somebody has none");
        let dialling = self.permits.iter().filter(|(_, other)| *other == host).count();
        assert_eq!(dialling, dials + entry.orphans.len(), "seed {seed}: dials");
        if undialled > 0 && places < self.config.max_connections_per_host {
            assert!(books.places == self.config.max_connections, "seed {seed}: a place is free and somebody waits");
            assert!(books.closing > 0 || books.idle == 0, "seed {seed}: an idle connection keeps somebody waiting");
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
        for round in 0.. {
            assert!(round < 10_000, "seed {}: somebody starves", self.seed);
            self.perform();
            if let Some((permit, host)) = self.permits.pop() {
                let id = permit.id();
                self.sockets.insert(id.serial, (id, host));
                self.pool.dialed(self.now, permit, id.serial);
            } else if let Some((held, conn, _)) = self.held.pop() {
                self.dropped.insert(conn);
                self.pool.release(self.now, held, None);
            } else if !self.dropped.is_empty() {
                self.close_dropped();
            } else if let Some(at) = self.pool.next_timeout() {
                assert!(self.waiting.values().all(VecDeque::is_empty), "seed {}: somebody starves", self.seed);
                self.now = self.now.max(at);
                self.pool.handle_timeout(self.now);
            } else {
                break;
            }
        }
        let Books { opened, closed, .. } = self.pool.books();
        assert_eq!(self.pool.books(), Books { opened, closed, ..Books::default() }, "seed {}", self.seed);
        assert_eq!(opened, closed, "seed {}: everything is closed in the end", self.seed);
        assert!(self.pool.hosts.is_empty() && self.pool.conns.is_empty() && self.pool.tickets.is_empty());
        assert!(self.pool.ring.is_empty() && self.pool.alarms.is_empty());
    }
}

#[test]
fn random_walks_keep_every_invariant() {
    for seed in 0..400 {
        let mut walk = Walk::new(seed);
        for _ in 0..300 {
            walk.step();
        }
        walk.finish();
    }
}
