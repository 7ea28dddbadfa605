//! Small worlds, explored whole: every order of the events of a few requests, dials, leases and steps of time.
//!
//! Worlds that look the same are explored once. From each, time alone must answer everybody. `SMALL_WORLDS=9` explores longer orders.

use std::collections::HashSet;

use super::balance::{NAME, answer, balanced_pool, socket};
use super::*;

/// The longest order of events.
const DEPTH: usize = 7;
/// The requests of a world.
const REQUESTS: u32 = 3;
/// The most dials whose end is an event. Further ones hang.
const DIALS: usize = 3;
const CONNECT: u64 = 400;
const STEP: u64 = 50;

/// An event.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A request to a host comes.
    Arrives(u8),
    /// The dial, or the lease, at this position ends.
    Opens(usize),
    Fails(usize),
    Released(usize),
    /// The oldest request leaves.
    Leaves,
    /// 50 ms pass.
    Ticks,
}

/// A host whose requests are balanced over two addresses, of which the first is ejected. A connection to that is idle at first.
const EJECTING: u8 = 50;

/// A pool and the world around it.
struct World {
    pool: Pool,
    start: Instant,
    now: Instant,
    dials: Vec<(Permit, u8)>,
    leases: Vec<LeaseToken>,
    /// The requests that wait: their ids, and when they came.
    waiting: Vec<(u32, WaiterId, Instant, u8)>,
    begun: HashMap<u64, Instant>,
    /// The connections that were opened, by their number.
    open: HashMap<u64, ConnId>,
    arrived: u32,
    /// The number of the connection to an address that is ejected.
    ejected: Option<u64>,
    /// True until a dial fails or is slow.
    is_well: bool,
}

impl World {
    fn new(config: &PoolConfig, hosts: &[u8], start: Instant) -> Self {
        if hosts.contains(&EJECTING) {
            return Self::ejecting(config, start);
        }
        let (pool, _) = pool(config.clone());
        Self::of(pool, start)
    }

    /// Creates a world with an idle connection to an address that was ejected just now.
    fn ejecting(config: &PoolConfig, start: Instant) -> Self {
        let mut world = Self::of(balanced_pool(config, 7), start);
        let pool = &mut world.pool;
        pool.wait(start, EJECTING, 0);
        let (permit, _) = pool.aimed();
        let id = permit.id();
        pool.dial_succeeded(start, permit, Opened { remote: Some(socket(1)), ..http1(id.serial) });
        pool.addresses_answered(start, NAME, &answer([1, 2]), true);
        let (_, token, _) = pool.delivered();
        let balance = pool.hosts[0].balance.as_mut().expect("it is balanced");
        let key = pool.conns[id.index].address.expect("it leads to one");
        (0..5).for_each(|_| balance.report(start, key, false, ms(1), crate::pool::state::Outcome::Failed));
        pool.release(start, token, KEPT);
        world.open.insert(id.serial, id);
        world.ejected = Some(id.serial);
        world.perform();
        world
    }

    fn of(pool: Pool, start: Instant) -> Self {
        Self {
            pool,
            ejected: None,
            is_well: true,
            start,
            now: start,
            dials: Vec::new(),
            leases: Vec::new(),
            waiting: Vec::new(),
            begun: HashMap::new(),
            open: HashMap::new(),
            arrived: 0,
        }
    }

    /// Returns the events that are possible.
    fn steps(&self, hosts: &[u8]) -> Vec<Step> {
        let mut steps = vec![Step::Ticks];
        if self.arrived < REQUESTS {
            steps.extend(hosts.iter().map(|host| Step::Arrives(*host)));
        }
        for dial in 0..self.dials.len().min(DIALS) {
            steps.extend([Step::Opens(dial), Step::Fails(dial)]);
        }
        steps.extend((0..self.leases.len()).map(Step::Released));
        if !self.waiting.is_empty() {
            steps.push(Step::Leaves);
        }
        steps
    }

    fn apply(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Arrives(host) => {
                self.arrived += 1;
                let waiter = self.arrived;
                let limits = WaitLimits { connect: ms(CONNECT), ends_dials: true, queue: None };
                match self.pool.checkout(now, &host, &Wish::default(), 0, || (waiter, limits)) {
                    Acquired::Ready(grant) => self.take(grant),
                    Acquired::Wait(id, _) => self.waiting.push((waiter, id, now, host)),
                    Acquired::Refused(limit) => panic!("refused: {limit}"),
                }
            }
            Step::Opens(dial) => {
                let (permit, host) = self.dials.remove(dial);
                let id = permit.id();
                self.open.insert(id.serial, id);
                if host == EJECTING {
                    let remote = Some(socket(2));
                    self.pool.dial_succeeded(now, permit, Opened { remote, ..http1(id.serial) });
                } else if host == MANY {
                    self.pool.dial_succeeded(now, permit, http2(id.serial));
                    self.pool.announce_streams(now, id, 2);
                } else {
                    self.pool.dial_succeeded(now, permit, http1(id.serial));
                }
            }
            Step::Fails(dial) => self.fail(dial),
            Step::Released(lease) => {
                let token = self.leases.remove(lease);
                self.pool.release(now, token, KEPT);
            }
            Step::Leaves => {
                let (waiter, id, ..) = self.waiting.remove(0);
                assert_eq!(self.pool.abandon(now, id, AbandonCause::Cancelled), Some(waiter));
            }
            Step::Ticks => {
                self.now += ms(STEP);
                self.is_well &= self.dials.iter().all(|dial| self.now < self.begun[&dial.0.id().serial] + ms(100));
                self.pool.handle_timeout(self.now);
                // A dial ends by itself when its time is over.
                let is_over =
                    |world: &Self, dial: &(Permit, u8)| world.now >= world.begun[&dial.0.id().serial] + ms(CONNECT);
                while let Some(old) = self.dials.iter().position(|dial| is_over(self, dial)) {
                    self.fail(old);
                }
            }
        }
        self.perform();
        self.pool.check(self.now, 0);
    }

    /// Takes a connection. With a healthy address, none goes to the one that was ejected.
    fn take(&mut self, grant: Grant<u64>) {
        let is_out = self.ejected == Some(grant.token.connection());
        assert!(!(is_out && self.is_well), "a request to an ejected address");
        self.leases.push(grant.token);
    }

    fn fail(&mut self, dial: usize) {
        self.is_well = false;
        let (permit, _) = self.dials.remove(dial);
        let error = super::walks::name_of(permit.id().serial);
        self.pool.dial_failed(self.now, permit, error);
    }

    fn perform(&mut self) {
        while let Some(effect) = self.pool.next_effect() {
            match effect {
                Effect::Dial(permit, host, _) => {
                    self.begun.insert(permit.id().serial, self.now);
                    self.dials.push((permit, host));
                }
                Effect::AbortDial(id) => {
                    if let Some(dial) = self.dials.iter().position(|(permit, _)| permit.id() == id) {
                        self.fail(dial);
                    }
                }
                Effect::Deliver { waiter, grant, .. } => {
                    let first = self.waiting.iter().position(|(other, ..)| *other == waiter).expect("it waits");
                    let (_, _, _, host) = self.waiting.remove(first);
                    let overtaken = self.waiting[..first].iter().any(|(.., other)| *other == host);
                    // One whose dial is not slow waits for that, beside a connection to an ejected address.
                    let is_out = self.ejected == Some(grant.token.connection());
                    assert!(!overtaken || is_out, "first come, first served");
                    self.take(grant);
                }
                Effect::Fail { waiter, why } => self.check_failure(waiter, &why),
                Effect::Close(conn) => {
                    let id = self.open[&conn];
                    self.pool.socket_closed(self.now, id);
                }
                Effect::Retired(..) | Effect::AskDns(_) | Effect::Drained => {}
            }
        }
    }

    fn check_failure(&mut self, waiter: u32, why: &WaitFailure<&'static str>) {
        let position = self.waiting.iter().position(|(other, ..)| *other == waiter).expect("it waits");
        let (_, _, since, host) = self.waiting.remove(position);
        let is_early = self.now < since + ms(CONNECT);
        match why {
            WaitFailure::Dial(number) => {
                let begun = self.begun[&number.parse::<u64>().expect("a number")];
                assert!(begun >= since, "failed with a dial older than itself");
                let host = self.pool.hosts.find(&host).map(|host| &self.pool.hosts[host]);
                let lives = host.is_some_and(|host| host.open_conns() > 0 && host.dials.have_progressed(self.now));
                assert!(!is_early || !lives, "failed while connections are opened or freed");
            }
            WaitFailure::Connect { .. } => assert!(!is_early, "failed before its connect timeout"),
            WaitFailure::Timeout(Expired { limit, .. }) => panic!("nobody waits for {limit} for 30 s"),
        }
    }

    /// Returns what decides about the future.
    fn look(&self) -> String {
        let mut look = format!("{:?} {} ", self.now - self.start, self.arrived);
        for (index, host) in &self.pool.hosts.slab {
            look += &format!("{index} {:?} {:?} ", host.dials, host.conns.leased);
        }
        for (waiter, id, since, _) in &self.waiting {
            let request = self.pool.waiters.get(*id).expect("it waits");
            let failure = request.failure.as_ref().map(|failure| failure.at);
            look += &format!("{waiter} {since:?} {:?} {failure:?} ", request.dials);
        }
        look + &format!(
            "{:?} {}",
            self.dials.iter().map(|dial| dial.0.id().index).collect::<Vec<_>>(),
            self.leases.len()
        )
    }

    /// Lets time pass until everybody is answered: leases end at once, dials hang.
    fn finish(mut self) {
        for _ in 0..1_000 {
            if self.waiting.is_empty() {
                return;
            }
            let step = if self.leases.is_empty() { Step::Ticks } else { Step::Released(0) };
            self.apply(step);
        }
        panic!("{} requests are never answered", self.waiting.len());
    }
}

/// Explores the orders of events of up to `depth`, and returns the number of worlds.
#[allow(clippy::print_stderr, reason = "an order of events that fails is told")]
fn explore(config: &PoolConfig, hosts: &[u8], depth: usize) -> usize {
    let start = crate::clock::now();
    let run = |order: &[Step]| {
        let mut world = World::new(config, hosts, start);
        order.iter().for_each(|step| world.apply(*step));
        world
    };
    let mut seen = HashSet::new();
    let mut orders = vec![Vec::new()];
    for _ in 0..depth {
        let mut longer = Vec::new();
        for order in orders {
            for step in run(&order).steps(hosts) {
                let mut order: Vec<Step> = order.clone();
                order.push(step);
                let told = |what: &str| eprintln!("{what}: {config:?}, hosts {hosts:?}: {order:?}");
                let world = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&order)));
                let world = world.inspect_err(|_| told("in this order")).expect("the invariants hold");
                if seen.insert(world.look()) {
                    let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.finish()));
                    end.inspect_err(|_| told("after this order")).expect("everybody is answered");
                    longer.push(order);
                }
            }
        }
        orders = longer;
    }
    seen.len()
}

#[test]
fn every_order_of_events_in_small_worlds_keeps_the_invariants_and_answers_everybody() {
    let depth = std::env::var("SMALL_WORLDS").map_or(DEPTH, |depth| depth.parse().expect("a number"));
    let mut worlds = 0;
    for limit in [1, 2, usize::MAX] {
        for hosts in [&[1][..], &[MANY], &[UNKNOWN], &[EJECTING], &[1, MANY]] {
            let per_host = PoolConfig::new().max_connections_per_host(limit);
            let total = PoolConfig::new().max_connections(limit);
            let depth = if hosts.len() > 1 || hosts == [EJECTING] { depth - 1 } else { depth };
            worlds += explore(&per_host, hosts, depth) + explore(&total, hosts, depth);
        }
    }
    assert!(worlds > 5_000, "{worlds} worlds");
}
