//! Many clients of one program on many machines, whose one server or whose DNS is in trouble for a minute. They do not make it worse: no
//! more attempts than calls, and when it is well again they do not come at once.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::enact;
use crate::outside::{DnsHealth, State};
use crate::plan::{ClientPlan, DnsPlan, Fault, HostPlan, Kind, Plan, Protocol, Traffic, View, What};
use crate::program::Diary;
use crate::servers::tls::Certificates;

/// The clients; those of the second half have a retry policy.
const CLIENTS: usize = if cfg!(debug_assertions) { 50 } else { 200 };
const EVERY: Duration = Duration::from_secs(2);
const BEGIN: Duration = Duration::from_secs(60);
const END: Duration = Duration::from_secs(120);
const LENGTH: Duration = Duration::from_secs(180);
/// The time in which requests of no more than a quarter of the clients and six may come.
const AT_ONCE: Duration = Duration::from_millis(200);
/// The most connection attempts for each call, of which two are one dial to both addresses: to addresses that do not answer, a call begins a
/// second dial when the first one is slow, and others for it begin one after the other.
const DIALS: usize = 4;
/// The worlds of a debug build: one in eight.
const STRIDE: usize = if cfg!(debug_assertions) { 8 } else { 1 };

/// The trouble of each world.
const TROUBLES: [What; 12] = [
    What::Dns(0, DnsHealth::Silent),
    What::Dns(0, DnsHealth::ServFail),
    What::Dns(0, DnsHealth::Closed),
    What::Dns(0, DnsHealth::Slow(3_000)),
    What::Drops,
    What::Refuses,
    What::Status(503),
    What::Slow(9_000),
    What::Dies(1),
    What::Loses(1),
    What::Loses(2),
    What::Restarts,
];

/// A fleet's world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    trouble: What,
    protocol: Protocol,
}

/// What a half of the clients did in the minute of trouble, and the most clients whose requests came at once in the time after it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    has_policy: bool,
    calls: usize,
    requests: usize,
    dials: usize,
    at_once: usize,
}

impl Seen {
    /// Returns true if the clients made it worse. A tenth of the calls may be sent again because a connection closed, and as many as the
    /// policy says: five, a fifth of all calls, and one every ten seconds.
    fn is_worse(&self) -> bool {
        let of_each = 5 + (END.as_secs() / EVERY.as_secs() / 5 + END.as_secs() / 10) as usize;
        let retries = if self.has_policy { CLIENTS / 2 * of_each } else { 0 };
        let most = self.calls + self.calls / 10 + retries;
        self.requests > most || self.dials > self.calls * DIALS || self.at_once > CLIENTS / 2 / 4 + 6
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CLIENTS} clients, {:?}, {:?}", self.protocol, self.trouble)
    }
}

impl Scenario {
    fn plan(self, seed: u64) -> Plan {
        let address = |last: u8| IpAddr::V4(Ipv4Addr::new(10, 100, 0, last));
        let host = HostPlan {
            addresses: vec![address(1), address(2)],
            spare: vec![address(3)],
            ttl: 5,
            protocol: self.protocol,
            tls: false,
            view: View::Same,
            delay: Duration::from_millis(5),
            keep_alive: Duration::from_secs(600),
            says_keep_alive: false,
            max_requests: u32::MAX,
            ends_late: false,
            think: Duration::from_millis(5),
        };
        let client = |number: usize| ClientPlan {
            // Some dial for each call.
            idle_timeout: if number.is_multiple_of(2) { Duration::from_secs(50) } else { Duration::from_millis(1) },
            lifetime: Duration::from_secs(900),
            max_per_host: None,
            spread: number.is_multiple_of(3),
            retry: number >= CLIENTS / 2,
            hedge: false,
            cookies: false,
            timeout: Duration::from_secs(15),
            is_gateway: false,
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let mut row = |client: usize| {
            let from = Duration::from_millis(random.u64(..EVERY.as_millis() as u64));
            Traffic { client, host: 0, kind: Kind::Get, every: EVERY, from, until: LENGTH }
        };
        let lasts = END - BEGIN;
        Plan {
            seed,
            length: LENGTH,
            hosts: vec![host],
            dns: DnsPlan { servers: 1, search: false, delay: Duration::from_millis(1) },
            traffic: (0..CLIENTS).map(&mut row).collect(),
            clients: (0..CLIENTS).map(client).collect(),
            faults: vec![Fault { at: BEGIN, lasts, client: 0, host: 0, address: 0, from: 0, what: self.trouble }],
        }
    }
}

/// Returns what the clients of one half did.
fn seen(state: &State, diary: &Diary, half: usize) -> Seen {
    let is_of_half = |client: Option<usize>| client.is_some_and(|client| client / (CLIENTS / 2) == half);
    let is_in_trouble = |at: Duration| (BEGIN..END).contains(&at);
    let calls = diary.calls.iter().filter(|call| is_of_half(Some(call.client)) && is_in_trouble(call.begun));
    let requests = state.requests.iter().filter(|request| is_of_half(request.client));
    let dials = state.dials.iter().filter(|(_, client, _)| is_of_half(*client));
    // What the network held back of a call that has ended is not sent by its client now.
    let is_under_way = |at: Duration, call: u64| {
        diary.calls.get(call as usize).is_some_and(|call| call.ended.is_none_or(|ended| at <= ended))
    };
    let sent = requests.clone().filter(|request| request.call.is_some_and(|call| is_under_way(request.at, call)));
    // One moment after the other, in steps of a half.
    let window = |begin: Duration| {
        let within = sent.clone().filter(|request| (begin..begin + AT_ONCE).contains(&request.at));
        within.map(|request| request.client).collect::<BTreeSet<_>>().len()
    };
    Seen {
        has_policy: half == 1,
        calls: calls.count(),
        requests: requests.clone().filter(|request| is_in_trouble(request.at)).count(),
        dials: dials.filter(|(at, ..)| is_in_trouble(*at)).count(),
        at_once: (0..200).map(|step| window(END + AT_ONCE / 2 * step)).max().unwrap_or_default(),
    }
}

pub(crate) fn scenarios() -> Vec<Scenario> {
    let protocols = [Protocol::Http11, Protocol::Http2];
    protocols.into_iter().flat_map(|protocol| TROUBLES.map(|trouble| Scenario { trouble, protocol })).collect()
}

/// Runs the worlds on two threads. Returns their number, and those in which clients made it worse.
pub(crate) fn suite(seed: u64, tls: &Arc<Certificates>) -> (usize, Vec<String>) {
    let all: Vec<_> = scenarios().into_iter().step_by(STRIDE).collect();
    let count = all.len();
    let next = Mutex::new(all.into_iter());
    let worse = Mutex::new(Vec::new());
    let work = || {
        loop {
            let Some(scenario) = next.lock().unwrap().next() else { return };
            let broken = run_alone(scenario, seed, tls);
            worse.lock().unwrap().extend(broken);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    (count, worse.into_inner().unwrap())
}

/// Runs a world. Returns what its clients did, if they made it worse.
pub(crate) fn run_alone(scenario: Scenario, seed: u64, tls: &Arc<Certificates>) -> Vec<String> {
    let tls = tls.clone();
    let world = move || {
        let (outside, program) = enact(scenario.plan(seed), &tls, false);
        let (state, diary) = (outside.state(), program.diary.lock().unwrap());
        let mut broken = Vec::new();
        for half in 0..2 {
            let seen = seen(&state, &diary, half);
            if std::env::var_os("PRINT").is_some() {
                println!("{scenario}: {seen:?}");
            }
            if seen.is_worse() {
                broken.push(format!("{scenario}: {seen:?}"));
            }
        }
        broken
    };
    std::thread::Builder::new().stack_size(8 << 20).spawn(world).unwrap().join().unwrap()
}
