//! Balanced hosts: a simulation of servers behind one name, in arithmetic time, and single rules.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

use super::*;

pub(super) const NAME: &str = "api.test";

pub(super) fn socket(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 80).into()
}

/// A pool whose hosts are balanced. The random choices begin with `seed`.
pub(super) fn balanced_pool(config: &PoolConfig, seed: u64) -> Pool {
    let limits = config.limits_for("", 0);
    State::new(config, move |host: &u8| Profile {
        limits,
        speaks: if *host < 100 { Speaks::Http1 } else { Speaks::Http2 },
        balanced: Some(BalancedHost { name: NAME.into(), port: 80, pinned: Vec::new(), seed }),
    })
}

pub(super) fn answer(ips: impl IntoIterator<Item = u8>) -> Addresses {
    let ips = ips.into_iter().map(|last| socket(last).ip()).collect();
    Addresses { family: Family::V4, ips, sockets: None, ttl: Duration::from_secs(5), is_sure: false, serial: None }
}

impl Pool {
    /// Takes the permit of a dial, and the address that it tries first.
    pub(super) fn aimed(&mut self) -> (Permit, Option<SocketAddr>) {
        match self.next_effect() {
            Some(Effect::Dial(permit, _, first)) => (permit, first),
            other => panic!("expected a dial: {other:?}"),
        }
    }
}

/// An event of the simulation.
enum SimEvent {
    Arrival,
    Connected(Permit, SocketAddr),
    Answered(LeaseToken, Duration, bool),
    Announced(ConnId),
    Dns(Vec<u8>),
}

/// Servers behind one name, and requests at a steady rate.
struct Simulation {
    pool: Pool,
    host: u8,
    random: fastrand::Rng,
    start: Instant,
    now: Instant,
    events: BinaryHeap<Reverse<(Instant, u64)>>,
    bodies: HashMap<u64, SimEvent>,
    count: u64,
    /// The mean latency of each server.
    latency: BTreeMap<u8, Duration>,
    /// The part of its requests that each server fails.
    failing: BTreeMap<u8, f64>,
    every: Duration,
    waiting: HashMap<u32, Instant>,
    waiters: u32,
    /// The addresses of connections, by number.
    remotes: HashMap<u64, u8>,
    /// The start, the server, the time from arrival to answer and the failure of each request that is over.
    done: Vec<(Duration, u8, Duration, bool)>,
    turn: usize,
    dials: usize,
}

impl Simulation {
    fn new(host: u8, servers: u8, per_second: u32, seed: u64) -> Self {
        Self::with(&PoolConfig::new(), host, servers, per_second, seed)
    }

    fn with(config: &PoolConfig, host: u8, servers: u8, per_second: u32, seed: u64) -> Self {
        let start = crate::clock::now();
        let mut simulation = Self {
            pool: balanced_pool(config, seed),
            host,
            random: fastrand::Rng::with_seed(seed),
            start,
            now: start,
            events: BinaryHeap::new(),
            bodies: HashMap::new(),
            count: 0,
            latency: (1..=servers).map(|server| (server, latency_at(per_second))).collect(),
            failing: BTreeMap::new(),
            every: Duration::from_secs(1) / per_second,
            waiting: HashMap::new(),
            waiters: 0,
            remotes: HashMap::new(),
            done: Vec::new(),
            turn: 0,
            dials: 0,
        };
        simulation.at(start, SimEvent::Arrival);
        simulation.at(start + ms(2), SimEvent::Dns((1..=servers).collect()));
        simulation
    }

    fn at(&mut self, at: Instant, event: SimEvent) {
        self.count += 1;
        self.events.push(Reverse((at, self.count)));
        self.bodies.insert(self.count, event);
    }

    /// Lets the time pass until `secs` after the start.
    fn run(&mut self, secs: f64) -> &mut Self {
        let end = self.start + Duration::from_secs_f64(secs);
        while let Some(Reverse((at, number))) = self.events.peek().copied().filter(|Reverse((at, _))| *at < end) {
            self.events.pop();
            self.now = at;
            while self.pool.next_timeout().is_some_and(|timeout| timeout <= at) {
                self.pool.handle_timeout(at);
            }
            let event = self.bodies.remove(&number).expect("an event");
            self.step(event);
            self.perform();
            if self.count.is_multiple_of(499) {
                self.pool.check(at, self.count);
            }
        }
        self
    }

    fn step(&mut self, event: SimEvent) {
        match event {
            SimEvent::Arrival => self.arrive(),
            SimEvent::Connected(permit, remote) => {
                let id = permit.id();
                let opened = if self.host < 100 { http1(id.serial) } else { http2(id.serial) };
                self.remotes.insert(id.serial, last_of(remote));
                self.pool.dial_succeeded(self.now, permit, Opened { remote: Some(remote), ..opened });
                self.at(self.now + ms(1), SimEvent::Announced(id));
            }
            SimEvent::Announced(id) if self.host >= 100 => self.pool.announce_streams(self.now, id, 100),
            SimEvent::Announced(_) => {}
            SimEvent::Answered(mut token, latency, has_failed) => {
                let outcome = if has_failed { Outcome::Failed } else { Outcome::Answered };
                self.pool.report(self.now, &mut token, latency, outcome);
                self.pool.release(self.now, token, KEPT);
            }
            SimEvent::Dns(ips) => self.pool.addresses_answered(self.now, NAME, &answer(ips), true),
        }
    }

    /// Begins a request. The times between two are random, and so is each latency: from a half to one and a half of the mean.
    fn arrive(&mut self) {
        let pause = self.every.mul_f64(2.0 * self.random.f64());
        self.at(self.now + pause, SimEvent::Arrival);
        self.waiters += 1;
        let waiter = self.waiters;
        match self.pool.checkout(self.now, &self.host, &Wish::default(), 0, || (waiter, LIMITS)) {
            Acquired::Ready(grant) => self.send(grant, self.now),
            Acquired::Wait(..) => drop(self.waiting.insert(waiter, self.now)),
            Acquired::Refused(limit) => panic!("refused by {limit:?}"),
        }
    }

    fn send(&mut self, grant: Grant<u64>, arrived: Instant) {
        let server = self.remotes[&grant.conn];
        let latency = self.latency[&server].mul_f64(0.5 + self.random.f64());
        let has_failed = self.failing.get(&server).is_some_and(|share| self.random.f64() < *share);
        let end = self.now + latency;
        self.done.push((arrived - self.start, server, end - arrived, has_failed));
        self.at(end, SimEvent::Answered(grant.token, latency, has_failed));
    }

    fn perform(&mut self) {
        while let Some(effect) = self.pool.next_effect() {
            match effect {
                Effect::Dial(permit, _, first) => {
                    self.turn += 1;
                    self.dials += 1;
                    let servers: Vec<_> = self.latency.keys().copied().collect();
                    let remote = first.unwrap_or_else(|| socket(servers[self.turn % servers.len()]));
                    self.at(self.now + ms(4), SimEvent::Connected(permit, remote));
                }
                Effect::Deliver { waiter, grant, .. } => {
                    let arrived = self.waiting.remove(&waiter).expect("it waits");
                    self.send(grant, arrived);
                }
                Effect::Close(conn) => {
                    let found = self.pool.conns.iter().find(|(_, other)| other.serial == conn);
                    let id = found.map(|(index, other)| other.id(index)).expect("the connection closes");
                    self.pool.socket_closed(self.now, id);
                }
                other => assert!(matches!(other, Effect::AskDns(_) | Effect::Retired(..)), "{other:?}"),
            }
        }
    }

    /// Returns the part of the requests that each server got between two times, in seconds after the start.
    fn shares(&self, from: f64, to: f64) -> BTreeMap<u8, f64> {
        let range = Duration::from_secs_f64(from)..Duration::from_secs_f64(to);
        let mut counts = BTreeMap::new();
        let mut all = 0.0;
        for (_, server, ..) in self.done.iter().filter(|(at, ..)| range.contains(at)) {
            *counts.entry(*server).or_insert(0.0) += 1.0;
            all += 1.0;
        }
        counts.into_iter().map(|(server, count)| (server, count / all)).collect()
    }

    /// Returns the 99th percentile of the times from arrival to answer after `from`, in milliseconds.
    fn p99(&self, from: f64) -> f64 {
        let from = Duration::from_secs_f64(from);
        let mut times: Vec<_> = self.done.iter().filter(|(at, ..)| *at >= from).map(|(_, _, time, _)| *time).collect();
        times.sort_unstable();
        times[times.len() * 99 / 100].as_secs_f64() * 1_000.0
    }
}

fn last_of(socket: SocketAddr) -> u8 {
    match socket.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => unreachable!("no test has one"),
    }
}

/// Panics unless each of these servers has its share of the requests, give or take a tenth.
fn assert_equal(shares: &BTreeMap<u8, f64>, servers: impl IntoIterator<Item = u8>, what: &str) {
    let servers: Vec<_> = servers.into_iter().collect();
    let all: f64 = servers.iter().map(|server| shares.get(server).copied().unwrap_or(0.0)).sum();
    for server in &servers {
        let share = shares.get(server).copied().unwrap_or(0.0) / all * servers.len() as f64;
        assert!((0.9..=1.1).contains(&share), "{what}: server {server} has {share:.2} of its share: {shares:?}");
    }
}

/// Returns the mean latency of a server: with few requests, less than one is in flight at a time, with many, forty are.
fn latency_at(per_second: u32) -> Duration {
    if per_second < 100 { ms(20) } else { ms(100) }
}

/// Hosts and rates: HTTP/1 and HTTP/2, with requests that follow each other and with many at a time.
const LOADS: [(u8, u32); 4] = [(1, 40), (1, 400), (MANY, 40), (MANY, 400)];

#[test]
fn equal_servers_get_equal_shares() {
    for (host, rate) in LOADS {
        let mut simulation = Simulation::new(host, 10, rate, 7);
        let shares = simulation.run(92.0).shares(2.0, 92.0);
        assert_equal(&shares, 1..=10, &format!("host {host}, {rate} per second"));
    }
}

#[test]
fn a_slow_server_gets_few_requests_and_the_others_get_equal_shares() {
    for (host, rate) in LOADS {
        let what = format!("host {host}, {rate} per second");
        let without = Simulation::new(host, 9, rate, 7).run(92.0).p99(2.0);
        let mut simulation = Simulation::new(host, 10, rate, 7);
        simulation.latency.insert(10, 10 * latency_at(rate));
        let shares = simulation.run(92.0).shares(2.0, 92.0);
        assert_equal(&shares, 1..=9, &what);
        let p99 = simulation.p99(2.0);
        assert!(p99 <= 1.5 * without, "{what}: p99 {p99} with the slow one, {without} without: {shares:?}");
    }
}

#[test]
fn a_server_that_fails_half_is_ejected_and_comes_back_when_it_is_well() {
    for (host, rate) in LOADS {
        let what = format!("host {host}, {rate} per second");
        let mut simulation = Simulation::new(host, 10, rate, 7);
        simulation.run(10.0).failing.insert(4, 0.5);
        let shares = simulation.run(70.0).shares(20.0, 70.0);
        assert!(shares.get(&4).copied().unwrap_or(0.0) < 0.02, "{what}: {shares:?}");
        assert_equal(&shares, (1..=10).filter(|server| *server != 4), &what);
        let failed = simulation.done.iter().filter(|(.., has_failed)| *has_failed).count();
        assert!(failed < 60, "{what}: {failed} requests failed");
        simulation.failing.clear();
        let shares = simulation.run(220.0).shares(190.0, 220.0);
        assert_equal(&shares, 1..=10, &format!("{what}, well again"));
    }
}

#[test]
fn a_new_server_has_its_share_within_a_second_and_one_that_left_gets_nothing_more() {
    for (host, rate) in LOADS {
        let what = format!("host {host}, {rate} per second");
        let mut simulation = Simulation::new(host, 10, rate, 7);
        simulation.latency.insert(11, latency_at(rate));
        let change = simulation.start + Duration::from_secs(20);
        simulation.at(change, SimEvent::Dns((2..=11).collect()));
        simulation.run(80.0);
        let until = if rate > 100 { 31.0 } else { 80.0 };
        let shares = simulation.shares(21.0, until);
        let share = shares.get(&11).copied().unwrap_or(0.0) * 10.0;
        assert!((0.85..=1.15).contains(&share), "{what}: {share:.2} of its share a second later: {shares:?}");
        assert_equal(&simulation.shares(21.0, 80.0), 2..=11, &what);
        assert!(!simulation.shares(20.0, 80.0).contains_key(&1), "{what}: one that left gets requests");
    }
}

#[test]
fn connections_are_few_and_none_is_opened_without_need() {
    for (host, rate, most) in [(1, 40, 30), (1, 400, 160), (MANY, 40, 12), (MANY, 400, 20)] {
        let mut simulation = Simulation::new(host, 10, rate, 7);
        simulation.run(60.0);
        let dials = simulation.dials;
        assert!(dials <= most, "host {host}, {rate} per second: {dials} dials");
    }
    // A host with a request in half a minute does not get a connection to each of many addresses.
    let mut simulation = Simulation::new(1, 200, 1, 7);
    simulation.every = Duration::from_secs(30);
    simulation.run(3_000.0);
    assert!(simulation.dials < simulation.done.len(), "{} dials", simulation.dials);
}
