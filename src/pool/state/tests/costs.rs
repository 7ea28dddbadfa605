//! The steps that an event takes, whatever waits or is open elsewhere.

use super::super::hosts::queue::{Failure, Needs, Offer, Queue, Waiters, WaitingRequest};
use super::balance::{answer, socket};
use super::*;
use crate::list::STEPS;

/// Hosts that are numbers without a small limit.
#[derive(Debug)]
struct ManyHosts;

impl PoolTypes for ManyHosts {
    type Key = u32;
    type Conn = u64;
    type Waiter = u32;
    type Error = &'static str;
    type Runtime = u64;
}

type Many = State<ManyHosts>;

const FEW: u32 = 100;
const LOTS: u32 = 10_000;
/// The events of which the steps are counted.
const EVENTS: u32 = 32;

/// A pool and the driver's side of it.
struct World {
    pool: Many,
    now: Instant,
    dials: VecDeque<(Permit, u32)>,
    leases: VecDeque<LeaseToken>,
    waiting: VecDeque<WaiterId>,
    open: HashMap<u64, ConnId>,
}

fn config() -> PoolConfig {
    PoolConfig::new().max_waiting(1_000_000)
}

impl World {
    fn new(config: &PoolConfig, is_balanced: bool) -> Self {
        let limits = config.limits_for("", 0);
        let balanced = move |host: &u32| {
            is_balanced.then(|| BalancedHost {
                name: format!("{host}.test").into(),
                port: 80,
                pinned: Vec::new(),
                seed: 7,
            })
        };
        let profile = move |host: &u32| Profile { limits, speaks: Speaks::Http1, balanced: balanced(host) };
        let (dials, leases, waiting) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let pool = State::new(config, profile);
        Self { pool, now: crate::clock::now(), dials, leases, waiting, open: HashMap::new() }
    }

    fn arrive(&mut self, host: u32) {
        self.arrive_with(host, &Wish::default());
    }

    fn arrive_with(&mut self, host: u32, wish: &Wish) {
        match self.pool.checkout(self.now, &host, wish, 0, || (host, LIMITS)) {
            Acquired::Ready(grant) => self.leases.push_back(grant.token),
            Acquired::Wait(id, _) => self.waiting.push_back(id),
            Acquired::Refused(limit) => panic!("refused by {limit}"),
        }
        self.perform();
    }

    fn perform(&mut self) {
        while let Some(effect) = self.pool.next_effect() {
            match effect {
                Effect::Dial(permit, host, _) => self.dials.push_back((permit, host)),
                Effect::Deliver { grant, .. } => self.leases.push_back(grant.token),
                Effect::Close(conn) => {
                    let id = self.open.remove(&conn).expect("it is open");
                    self.pool.socket_closed(self.now, id);
                }
                Effect::AbortDial(id) => {
                    if let Some(at) = self.dials.iter().position(|(permit, _)| permit.id() == id) {
                        let (permit, _) = self.dials.remove(at).expect("it is there");
                        self.pool.dial_failed(self.now, permit, "lost");
                    }
                }
                Effect::Fail { .. } | Effect::Retired(..) | Effect::AskDns(_) | Effect::Drained => {}
            }
        }
    }

    fn open_next(&mut self) {
        let (permit, host) = self.dials.pop_front().expect("a dial");
        let id = permit.id();
        self.open.insert(id.serial, id);
        let conn = id.serial;
        let location = Some(Location { name: format!("{host}.test").into(), ip: socket(1).ip(), port: 0 });
        let opened = Opened { fresh: conn, conn, speaks: Speaks::Http1, location, remote: Some(socket(1)), runtime: 0 };
        self.pool.dial_succeeded(self.now, permit, opened);
        self.perform();
    }

    /// Serves a request that comes, and gives the first connection back.
    fn serve_one_more(&mut self) {
        self.arrive(1);
        if !self.dials.is_empty() {
            self.open_next();
        }
        self.release();
    }

    fn fail_next(&mut self) {
        let (permit, _) = self.dials.pop_front().expect("a dial");
        self.pool.dial_failed(self.now, permit, "refused");
        self.perform();
    }

    fn release(&mut self) {
        let token = self.leases.pop_front().expect("a lease");
        self.pool.release(self.now, token, KEPT);
        self.perform();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.pool.handle_timeout(self.now);
        self.perform();
    }
}

/// Something of which there are many, and an event beside it.
struct Case {
    name: &'static str,
    set_up: fn(u32) -> World,
    event: fn(&mut World, u32),
}

/// A host for each number, of which the first ones have all connections, and the others wait.
fn hosts_that_wait(count: u32) -> World {
    let mut world = World::new(&config().max_connections(8), false);
    (0..count).for_each(|host| world.arrive(host));
    (0..8).for_each(|_| world.open_next());
    world
}

/// Hosts whose dials fail, of which most wait for a slot.
fn hosts_in_trouble(count: u32) -> World {
    let mut world = World::new(&config().max_connections(8), false);
    (0..8).for_each(|host| world.arrive(1_000_000 + host));
    (0..8).for_each(|_| world.open_next());
    (0..count).for_each(|host| world.arrive(host));
    (0..8).for_each(|_| world.release());
    world.pass(ms(1_001));
    for _ in 0..count {
        if world.dials.is_empty() {
            break;
        }
        world.fail_next();
    }
    world
}

/// Requests of one host that came 1 ms after each other.
fn requests_that_wait(count: u32) -> World {
    let mut world = World::new(&config().max_connections_per_host(1), false);
    for _ in 0..count {
        world.now += Duration::from_micros(10);
        world.arrive(1);
    }
    world.open_next();
    world
}

/// Requests of one host whose dials have failed, and which hope for those in flight.
fn requests_that_fail(count: u32) -> World {
    let mut world = World::new(&config().max_connections_per_host(100), false);
    (0..count).for_each(|_| world.arrive(1));
    (0..4).for_each(|_| world.fail_next());
    world
}

/// Requests of one host of which an attempt failed.
fn resends_that_wait(count: u32) -> World {
    let mut world = World::new(&config().max_connections_per_host(1), false);
    world.arrive(1);
    world.open_next();
    let wish = Wish { failed: Some(EarlierConn { number: 999, ip: None }), ..Wish::default() };
    (0..count).for_each(|_| world.arrive_with(1, &wish));
    world
}

/// Idle connections of a host each.
fn idle_connections(count: u32) -> World {
    let mut world = World::new(&config().max_connections(100_000).max_idle(100_000), true);
    for host in 0..count {
        world.arrive(host);
        world.open_next();
        world.pool.addresses_answered(world.now, &format!("{host}.test"), &answer([1]), true);
        world.release();
        world.now += Duration::from_micros(10);
    }
    world
}

/// Busy connections of one host.
fn busy_connections(count: u32) -> World {
    connections_of_one_host(count, false)
}

/// Busy connections to one address of a balanced host.
fn busy_connections_to_an_address(count: u32) -> World {
    connections_of_one_host(count, true)
}

/// Idle connections to one address of a balanced host.
fn idle_connections_to_an_address(count: u32) -> World {
    let mut world = busy_connections_to_an_address(count);
    (0..count).for_each(|_| world.release());
    world
}

fn connections_of_one_host(count: u32, is_balanced: bool) -> World {
    let mut world = World::new(&config().max_connections(100_000).max_idle(100_000), is_balanced);
    for _ in 0..count {
        world.arrive(1);
        if world.open.is_empty() {
            world.pool.addresses_answered(world.now, "1.test", &answer([1]), true);
        }
        world.open_next();
    }
    world
}

const CASES: &[Case] = &[
    Case {
        name: "a release beside hosts that wait",
        set_up: hosts_that_wait,
        event: |world, _| {
            world.release();
            if !world.dials.is_empty() {
                world.open_next();
            }
        },
    },
    Case {
        name: "an arrival beside hosts that wait",
        set_up: hosts_that_wait,
        event: |world, number| {
            world.arrive(2_000_000 + number);
        },
    },
    Case {
        name: "a failure beside hosts in trouble",
        set_up: hosts_in_trouble,
        event: |world, number| {
            world.arrive(2_000_000 + number);
            if !world.dials.is_empty() {
                world.fail_next();
            }
        },
    },
    Case {
        name: "an arrival beside requests that wait",
        set_up: requests_that_wait,
        event: |world, _| world.arrive(1),
    },
    Case { name: "a release beside requests that wait", set_up: requests_that_wait, event: |world, _| world.release() },
    Case {
        name: "a request that leaves beside others",
        set_up: requests_that_wait,
        event: |world, _| {
            let id = world.waiting.pop_back().expect("it waits");
            world.pool.abandon(world.now, id, AbandonCause::Cancelled);
            world.perform();
        },
    },
    Case {
        name: "a wait that ends beside others",
        set_up: requests_that_wait,
        event: |world, number| {
            if number == 0 {
                let first = world.pool.hosts[0].queue.next_end().expect("one ends");
                world.now = first - Duration::from_micros(10);
            }
            world.pass(Duration::from_micros(10));
        },
    },
    Case {
        name: "a request beside idle connections",
        set_up: idle_connections,
        event: |world, number| {
            world.arrive(number);
            world.release();
        },
    },
    Case {
        name: "an answer of DNS beside idle connections",
        set_up: idle_connections,
        event: |world, number| {
            world.pool.addresses_answered(world.now, &format!("{number}.test"), &answer([1, 2]), true);
            world.perform();
        },
    },
    Case {
        name: "an address that moves beside idle connections",
        set_up: idle_connections,
        event: |world, number| {
            let before = world.open.len();
            let moved = Addresses { is_sure: true, ..answer([2]) };
            world.pool.dns_answered(world.now, &format!("{number}.test"), &moved, true);
            world.perform();
            assert_eq!(world.open.len(), before - 1, "its connection closes");
        },
    },
    Case {
        name: "a dial that fails beside requests that do",
        set_up: requests_that_fail,
        event: |world, _| {
            world.arrive(1);
            world.fail_next();
        },
    },
    Case {
        name: "a release beside requests that repeat an attempt",
        set_up: resends_that_wait,
        event: |world, _| {
            world.arrive(1);
            if world.leases.is_empty() { world.open_next() } else { world.release() }
        },
    },
    Case {
        name: "an idle timeout beside idle connections",
        set_up: idle_connections,
        event: |world, number| {
            if number == 0 {
                let first = world.pool.next_timeout().expect("one is idle for too long");
                world.now = first - Duration::from_micros(10);
            }
            world.pass(Duration::from_micros(10));
        },
    },
    Case {
        name: "a request beside busy connections",
        set_up: busy_connections,
        event: |world, _| world.serve_one_more(),
    },
    Case {
        name: "a request beside busy connections to its address",
        set_up: busy_connections_to_an_address,
        event: |world, _| world.serve_one_more(),
    },
    Case {
        name: "a request beside idle connections to its address",
        set_up: idle_connections_to_an_address,
        event: |world, _| {
            world.arrive(1);
            world.release();
        },
    },
    Case {
        name: "a connection that is retired by its number beside busy ones",
        set_up: busy_connections,
        event: |world, number| {
            let before = world.pool.conns.counters.retiring;
            let conn = world.leases[number as usize].id.serial;
            world.pool.retire_number(world.now, conn, CloseCause::Program);
            world.perform();
            assert_eq!(world.pool.conns.counters.retiring, before + 1);
        },
    },
    Case {
        name: "a warm-up beside busy connections",
        set_up: busy_connections,
        event: |world, number| {
            world.pool.warm_up(world.now, &(2_000_000 + number), 1, 1);
            world.perform();
            world.open_next();
        },
    },
];

/// Returns the steps that each event takes beside so many.
fn steps(case: &Case, count: u32) -> f64 {
    let mut world = (case.set_up)(count);
    let before = STEPS.with(std::cell::Cell::get);
    (0..EVENTS).for_each(|number| (case.event)(&mut world, number));
    let after = STEPS.with(std::cell::Cell::get);
    (after - before) as f64 / f64::from(EVENTS)
}

#[test]
fn an_event_takes_as_many_steps_beside_ten_thousand_as_beside_a_hundred() {
    let rows: Vec<_> = CASES.iter().map(|case| (case.name, steps(case, FEW), steps(case, LOTS))).collect();
    let growing: Vec<_> = rows.iter().filter(|(_, few, lots)| *lots > few * 1.5 + 1.0).collect();
    assert!(growing.is_empty(), "{growing:?}");
}

#[test]
fn a_renewal_takes_steps_in_proportion_to_what_there_is() {
    let steps = |count: u32| {
        let mut world = idle_connections(count);
        let before = STEPS.with(std::cell::Cell::get);
        world.pool.renew(world.now, |_| true);
        (STEPS.with(std::cell::Cell::get) - before) as f64 / f64::from(count)
    };
    let (few, lots) = (steps(FEW), steps(LOTS));
    assert!(lots <= few * 1.5, "{few} and {lots}");
}

#[test]
fn the_search_for_who_takes_a_connection_looks_at_few_requests() {
    let now = crate::clock::now();
    let offer = Offer {
        number: 1,
        runtime: 0,
        is_used_http1: true,
        is_just_given_back: false,
        is_busy: false,
        shunned_for: None,
        is_draining: false,
    };
    let shunned = Offer { shunned_for: Some(ms(100)), ..offer };
    for (name, is_resend, offer) in [("resends", true, offer), ("an address out of use", false, shunned)] {
        let [few, lots] = [FEW, LOTS].map(|count| {
            let mut waiters = Waiters::<ManyHosts>::new(usize::MAX);
            let mut queue = Queue::default();
            for serial in 0..=u64::from(count) {
                let is_last = serial == u64::from(count);
                let is_resend = is_resend && !is_last;
                let needs = Needs {
                    is_resend,
                    refuses_used: is_resend,
                    only_runtime: None,
                    not_on: None,
                    not_at: None,
                    yields: false,
                };
                let index = waiters.push(&mut queue, WaitingRequest::new(now, 0, serial, needs, LIMITS, 0));
                if is_last {
                    // It has bad luck: it takes what others refuse.
                    let failure = Failure { error: "refused", at: now, hopes_until: now };
                    waiters.change(&mut queue, index, |waiter| waiter.failure = Some(Box::new(failure)));
                }
            }
            let before = STEPS.with(std::cell::Cell::get);
            let taker = waiters.first_taker(now, &queue, &offer).expect("the last one takes it");
            assert_eq!(waiters[taker].serial, u64::from(count), "{name}");
            STEPS.with(std::cell::Cell::get) - before
        });
        assert!(lots <= few + 1, "{name}: {few} and {lots}");
    }
}
