//! Names in outages, beside getaddrinfo: worlds of one host whose first DNS server is in trouble, while the second one has a view of its own.
//!
//! A program calls the host every 200 ms, by a client and by a lookup of getaddrinfo without a cache, as glibc does it. In no world may the
//! client be wrong after the trouble more often, nor fail more calls or send more of them to a stranger than by what its rules cost
//! ([`Scenario::price`]); in all of them together it fails less, and sends fewer astray.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use speeddial::simulation;
use tokio::time::sleep_until;

use crate::beside;
use crate::net::Reachability;
use crate::outside::{At, DnsHealth, Outside, Owner, Seams};
use crate::plan::{ClientPlan, DnsPlan, Fault, HostPlan, Kind, Plan, Protocol, Traffic, View, What};
use crate::program::{Outcome, Program};
use crate::servers::tls::Certificates;

const LENGTH: Duration = Duration::from_secs(110);
const EVERY: Duration = Duration::from_millis(200);
/// The times at which the first server is in trouble, beside the TTL's last tenth.
const TROUBLES: [Duration; 2] = [Duration::from_secs(23), Duration::from_secs(60)];
/// The time after a change of files, or after an outage, by which a call has to be right: files are looked at every five seconds, and the
/// old answer serves for 1.8 s more.
const NOTICED: Duration = Duration::from_millis(6_800);

/// What is changed in the second outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Nothing,
    /// resolv.conf names the servers of another network.
    Network,
    /// The hosts file gets a line for the host.
    Hosts,
    /// The client gets another resolver.
    Resolver,
    /// The host moves to other addresses; its old ones refuse connections.
    Moves,
}

/// What the client has when the first outage begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    /// Nothing: the first call is made in the outage.
    Nothing,
    /// Addresses, and a connection for each call.
    Addresses,
    /// Connections.
    Connections,
}

/// A world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    health: DnsHealth,
    lasts: Duration,
    view: View,
    /// The view is of a name with a search list, whose next candidate has a wildcard.
    search: bool,
    ttl: u32,
    has: Has,
    change: Change,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { health, lasts, view, search, ttl, has, change } = self;
        let search = if *search { ", search list" } else { "" };
        write!(f, "{health:?} for {lasts:?}, public view {view:?}{search}, TTL {ttl}, has {has:?}, change {change:?}")
    }
}

/// Returns all worlds.
pub(crate) fn scenarios() -> Vec<Scenario> {
    const HAS: [Has; 3] = [Has::Addresses, Has::Connections, Has::Nothing];
    const CHANGES: [Change; 5] = [Change::Nothing, Change::Network, Change::Hosts, Change::Resolver, Change::Moves];
    let healths = [
        DnsHealth::Silent,
        DnsHealth::SilentAboutV6,
        DnsHealth::ServFail,
        DnsHealth::Closed,
        DnsHealth::Lossy,
        DnsHealth::Slow(400),
    ];
    let views = [(View::Same, false), (View::Absent, false), (View::Absent, true), (View::Stranger, false)];
    let mut all = Vec::new();
    for health in healths {
        for millis in [500, 3_000, 20_000] {
            for (view, search) in views {
                for ttl in [1, 10, 60] {
                    let mut random = fastrand::Rng::with_seed(all.len() as u64);
                    let (has, change) = (HAS[random.usize(..3)], CHANGES[random.usize(..5)]);
                    let lasts = Duration::from_millis(millis);
                    all.push(Scenario { health, lasts, view, search, ttl, has, change });
                }
            }
        }
    }
    all
}

impl Scenario {
    fn outages(&self) -> [At; 2] {
        let in_ttl = Duration::from_millis(10) * self.ttl;
        let [first, second] = TROUBLES;
        [if self.has == Has::Nothing { Duration::ZERO } else { first + in_ttl }, second + in_ttl]
    }

    fn plan(&self, seed: u64) -> Plan {
        let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 100, 0, last));
        let host = HostPlan {
            addresses: vec![address(1)],
            spare: vec![address(2)],
            ttl: self.ttl,
            protocol: Protocol::Http11,
            tls: false,
            view: self.view,
            delay: Duration::from_millis(2),
            keep_alive: Duration::from_secs(600),
            says_keep_alive: false,
            max_requests: u32::MAX,
            ends_late: false,
            think: Duration::from_millis(1),
        };
        let client = ClientPlan {
            idle_timeout: if self.has == Has::Connections { Duration::from_secs(50) } else { Duration::from_millis(1) },
            lifetime: Duration::from_secs(900),
            max_per_host: None,
            spread: false,
            retry: false,
            hedge: false,
            cookies: false,
            timeout: Duration::from_secs(15),
            is_gateway: false,
        };
        let fault =
            |at: At, lasts: Duration, what: What| Fault { at, lasts, client: 0, host: 0, address: 0, from: 0, what };
        let [first, second] = self.outages();
        let outage = |at| fault(at, self.lasts, What::Dns(0, self.health));
        let change = match self.change {
            Change::Nothing => None,
            Change::Network => Some(What::OtherNetwork),
            Change::Hosts => Some(What::HostsFile),
            Change::Resolver => Some(What::NewResolver),
            Change::Moves => Some(What::Moves(Reachability::Refuses)),
        };
        let change = change.map(|what| fault(second + self.lasts / 4, Duration::ZERO, what));
        let delay = Duration::from_millis(1);
        Plan {
            seed,
            length: LENGTH,
            hosts: vec![host],
            dns: DnsPlan { servers: 2, search: self.search, delay },
            clients: vec![client],
            traffic: vec![Traffic {
                client: 0,
                host: 0,
                kind: Kind::Get,
                every: EVERY,
                from: EVERY / 2,
                until: LENGTH,
            }],
            faults: [outage(first), outage(second)].into_iter().chain(change).collect(),
        }
    }

    /// Returns the calls that the client may fail, or send astray, beyond getaddrinfo's. It does not ask for each call, and what it does not
    /// know has to be learnt first.
    fn price(&self) -> Counts {
        let calls = |time: Duration| u32::try_from(time.as_millis() / EVERY.as_millis()).unwrap();
        // A later server's "no" is kept for a second, its address for five while nothing else is known.
        let (no, address) = (calls(Duration::from_secs(1)), calls(Duration::from_secs(5)) + 2);
        // An address that does not connect is asked for anew for the next call, every two seconds at most, and counts until its TTL is over for as long as the first
        // server cannot say that it has moved.
        let moved = 1 + calls(Duration::from_secs(2) + self.lasts.min(Duration::from_secs(self.ttl.into())));
        // The call that is under way when the network is another one.
        let on_old_network = u32::from(self.change == Change::Network);
        let mut price = Counts { failed: on_old_network, ..Counts::default() };
        if self.has == Has::Nothing {
            price.add(Counts { failed: no, astray: address, wrong_later: 0 });
            if self.search && self.health == DnsHealth::Silent {
                // Where the next candidate has an address, getaddrinfo has not come so far by the end of a short outage.
                price.astray += calls(self.lasts.min(beside::TRY));
            }
        }
        match self.change {
            Change::Resolver => price.astray += address,
            Change::Moves => price.add(Counts { failed: moved, astray: address, wrong_later: 0 }),
            Change::Nothing | Change::Network | Change::Hosts => {}
        }
        price
    }

    /// Returns true if nothing is wrong at a time any more, or not yet.
    fn is_over(&self, at: At) -> bool {
        self.outages().into_iter().all(|begin| at < begin || at >= begin + self.lasts + NOTICED)
    }
}

/// What came of a world's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) failed: u32,
    pub(crate) astray: u32,
    /// The calls that failed or went astray, or to where the host was before, though nothing was wrong any more.
    pub(crate) wrong_later: u32,
}

impl Counts {
    /// Returns true if more calls failed, were astray, or were wrong later. A call may fail in place of one that goes astray.
    fn is_worse_than(self, other: Self) -> bool {
        let spared = other.astray.saturating_sub(self.astray);
        self.failed > other.failed + spared || self.astray > other.astray || self.wrong_later > other.wrong_later
    }

    fn plus(mut self, other: Self) -> Self {
        self.add(other);
        self
    }

    fn add(&mut self, other: Self) {
        self.failed += other.failed;
        self.astray += other.astray;
        self.wrong_later += other.wrong_later;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed, {} astray, {} wrong afterwards", self.failed, self.astray, self.wrong_later)
    }
}

/// A call's end: when it was begun, and the address that it had, if it had one.
type Called = (At, Option<IpAddr>);

/// Runs a world. Returns what came of the client's calls, and of getaddrinfo's lookups.
pub(crate) async fn run(scenario: Scenario, seed: u64, tls: Arc<Certificates>) -> (Counts, Counts, String) {
    let outside = Outside::new(scenario.plan(seed), tls);
    simulation::enter(Some(Rc::new(Seams(outside.clone()))));
    let lookups = tokio::spawn(look_up_all(outside.clone()));
    let program = Program::run(outside.clone(), false).await;
    let lookups = lookups.await.unwrap();
    let calls: Vec<_> = {
        let (state, diary) = (outside.state(), program.diary.lock().unwrap());
        let mut reached = vec![None; diary.calls.len()];
        for request in &state.requests {
            reached[request.call.unwrap() as usize] = Some(request.address.ip());
        }
        let is_answered = |outcome: &_| matches!(outcome, Outcome::Answered { .. });
        let ended = diary.calls.iter().zip(reached);
        ended.map(|(call, at)| (call.begun, at.filter(|_| is_answered(&call.outcome)))).collect()
    };
    let count = |called: &[Called]| {
        let state = outside.state();
        let mut counts = Counts::default();
        for (begun, address) in called {
            let is_astray =
                address.is_some_and(|ip| state.machines.get(&ip).is_none_or(|of| of.owner == Owner::Stranger));
            counts.failed += u32::from(address.is_none());
            counts.astray += u32::from(is_astray);
            let is_current = |ip: &IpAddr| state.owned.iter().any(|owned| owned.ip == *ip && owned.is_at(*begun));
            let is_wrong = !address.as_ref().is_some_and(is_current);
            counts.wrong_later += u32::from(is_wrong && scenario.is_over(*begun));
        }
        counts
    };
    let counts = (count(&calls), count(&lookups));
    let timeline = std::mem::take(&mut outside.state().timeline);
    (counts.0, counts.1, timeline)
}

/// Looks the host up at the times of the calls.
async fn look_up_all(outside: Arc<Outside>) -> Vec<Called> {
    let traffic = outside.plan.traffic[0].clone();
    let (mut at, mut lookups) = (traffic.from, Vec::new());
    while at < traffic.until {
        sleep_until(outside.start + at).await;
        let outside = outside.clone();
        lookups.push(tokio::spawn(
            async move { (outside.now(), beside::getaddrinfo(&outside, 0).await.first().copied()) },
        ));
        at += traffic.every;
    }
    let mut called = Vec::new();
    for lookup in lookups {
        called.push(lookup.await.unwrap());
    }
    called
}

/// The worlds of a debug build: one in five.
const STRIDE: usize = if cfg!(debug_assertions) { 5 } else { 1 };

/// Runs the worlds on two threads. Returns their number, those in which the client did worse, and the sums.
pub(crate) fn suite(seed: u64, tls: &Arc<Certificates>) -> (usize, Vec<String>, Counts, Counts) {
    let chosen: Vec<_> = scenarios().into_iter().enumerate().step_by(STRIDE).collect();
    let count = chosen.len();
    let next = Mutex::new(chosen.into_iter());
    let all = Mutex::new((Vec::new(), Counts::default(), Counts::default()));
    let work = || {
        loop {
            let Some((number, scenario)) = next.lock().unwrap().next() else { return };
            let (ours, theirs, _) = run_alone(scenario, seed + number as u64, tls);
            let mut all = all.lock().unwrap();
            all.1.add(ours);
            all.2.add(theirs);
            if ours.is_worse_than(theirs.plus(scenario.price())) {
                all.0.push(format!("world {number}: {scenario}\n  the client: {ours}\n  getaddrinfo: {theirs}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let (mut worse, ours, theirs) = all.into_inner().unwrap();
    if ours.is_worse_than(theirs) {
        worse.push("all worlds together".to_owned());
    }
    (count, worse, ours, theirs)
}

/// Runs a world in a thread of its own, which remembers nothing of others.
pub(crate) fn run_alone(scenario: Scenario, seed: u64, tls: &Arc<Certificates>) -> (Counts, Counts, String) {
    let tls = tls.clone();
    let world = move || {
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(run(scenario, seed, tls))
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(world).unwrap().join().unwrap()
}
