//! The addresses of a balanced host, and the choice between them for each request. A core.
//!
//! Of two addresses drawn at random, the request goes to the one with the lower load (the power of two choices): its latency,
//! compared with that of the others, times the number of its requests in flight and one. Between equals, the one that was used less
//! recently is chosen, so that equal addresses get equal shares also of requests that follow each other.
//!
//! An address is *in use* if it is in the last DNS answer and not ejected. If that leaves none, all are in use. While the last answer
//! has no addresses, those with connections count as in it.

pub(super) mod address;
pub(super) mod outliers;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::world::RandomState;
use slab::Slab;

use super::values::conn::FreeConns;
use crate::clock::Instant;
use crate::pool::config::Ejection;
use crate::pool::state::balance::address::TypicalLatency;
use crate::pool::state::values::{Addresses, BalancedHost};
use crate::trace::Family;
use address::{Address, AddressReport, Outcome};
use outliers::{OutlierRecord, RecentRequests, Standing};

/// The longest time constant with which past requests are forgotten. A host gets no more connections than it had requests in that
/// time, unless requests wait for them.
const RECENT: Duration = Duration::from_secs(10);

/// The addresses of a balanced host.
#[derive(Debug)]
pub(super) struct Balance {
    name: Arc<str>,
    port: u16,
    rules: Ejection,
    /// The addresses, each under the key by which its connections name it.
    addresses: Slab<Address>,
    keys: HashMap<SocketAddr, usize, RandomState>,
    /// The keys of the addresses in use.
    in_use: Vec<usize>,
    /// The number of addresses in the last answers, ejected ones included.
    listed: usize,
    /// The last answers of DNS, by [`Family`]: `None` before the first one.
    answers: [Option<LastListing>; 2],
    /// True if the user has set the addresses.
    is_pinned: bool,
    random: fastrand::Rng,
    /// The number of the last lease.
    turn: u64,
    typical: TypicalLatency,
    requests: RecentRequests,
    rate: Rate,
    /// The first time at which an ejected address may be probed.
    next_probe: Option<Instant>,
    /// True if addresses came into use since the host was looked at.
    has_new: bool,
}

/// The last answer of DNS in a family.
#[derive(Debug, Clone, Copy)]
struct LastListing {
    /// The answer's number, if it has one.
    serial: Option<u64>,
    is_negative: bool,
}

/// The number of requests lately.
#[derive(Debug)]
struct Rate {
    recent: f64,
    at: Option<Instant>,
    memory: Duration,
}

/// The places for connections that the limits of addresses leave.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    pub(super) free: usize,
    /// The dials in flight that try one of the addresses first.
    pub(super) aimed: usize,
}

/// The addresses to try for a request, the best one first.
pub(super) type Candidates = [Option<usize>; 3];

// The set of addresses.
impl Balance {
    /// Creates the balance of a host without connections. `idle_timeout` is the longest time that connections are kept idle.
    pub(super) fn new(host: BalancedHost, rules: Ejection, idle_timeout: Duration) -> Self {
        let BalancedHost { name, port, pinned, seed } = host;
        let mut balance = Self {
            name,
            port,
            rules,
            addresses: Slab::new(),
            keys: HashMap::default(),
            in_use: Vec::new(),
            listed: 0,
            answers: [None, None],
            is_pinned: !pinned.is_empty(),
            random: fastrand::Rng::with_seed(seed),
            turn: 0,
            typical: TypicalLatency::default(),
            requests: RecentRequests::default(),
            rate: Rate { recent: 0.0, at: None, memory: RECENT.min(idle_timeout) },
            next_probe: None,
            has_new: false,
        };
        for socket in pinned {
            let key = balance.key_of(socket);
            balance.addresses[key].is_listed = true;
        }
        balance.refresh();
        balance
    }

    /// Prepares for a time in which the host has no record and hears of no DNS answer: the next connection asks for the last ones.
    pub(super) fn rest(mut self: Box<Self>) -> Box<Self> {
        self.answers = [None, None];
        self
    }

    /// Replaces the rules. Without ejections, all addresses are in use again.
    pub(super) fn set_rules(&mut self, rules: Ejection) {
        self.rules = rules;
        if rules.max_percent == 0 {
            self.addresses.iter_mut().for_each(|(_, address)| address.record = OutlierRecord::default());
        }
        self.refresh();
    }

    /// Returns true if this is the balance of such a host.
    pub(super) fn is_of(&self, host: &BalancedHost, rules: Ejection) -> bool {
        let BalancedHost { name, port, pinned, .. } = host;
        let has_these = if self.is_pinned { self.listed == pinned.len() } else { pinned.is_empty() };
        let is_known = |socket: &SocketAddr| self.keys.contains_key(socket);
        (&self.name, self.port, self.rules) == (name, *port, rules) && has_these && pinned.iter().all(is_known)
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the number of addresses in the last answers, at least 1.
    pub(super) fn len(&self) -> usize {
        self.listed.max(1)
    }

    /// Returns true if the host's addresses are not known yet.
    pub(super) fn lacks_answers(&self) -> bool {
        !self.is_pinned && self.answers.iter().all(Option::is_none)
    }

    /// Takes note of a DNS answer, whose addresses replace those of its family.
    pub(super) fn answered(&mut self, answer: &Addresses, is_new: bool) {
        let Addresses { family, ips, serial, .. } = answer;
        if self.is_pinned {
            return;
        }
        let last = self.answers[*family as usize];
        if last.is_some_and(|last| !is_new || (serial.is_some() && last.serial > *serial)) {
            return;
        }
        let serial = serial.or(last.and_then(|last| last.serial));
        self.answers[*family as usize] = Some(LastListing { serial, is_negative: ips.is_empty() });
        for (_, address) in &mut self.addresses {
            let stays = ips.is_empty() && address.conns > 0;
            address.is_listed &= stays || Family::of(address.socket.ip()) != *family;
        }
        for ip in ips.iter() {
            let key = self.key_of(SocketAddr::new(*ip, self.port));
            self.addresses[key].is_listed = true;
        }
        self.refresh_all();
    }

    /// Returns true if no answer says where the host is: there was none, or the last one was negative.
    fn is_unknown(&self, socket: SocketAddr) -> bool {
        let last = self.answers[Family::of(socket.ip()) as usize];
        !self.is_pinned && last.is_none_or(|last| last.is_negative)
    }

    /// Forgets the addresses that left DNS, and determines those in use.
    fn refresh_all(&mut self) {
        let keys: Vec<_> = self.addresses.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.forget_if_gone(key));
        self.refresh();
    }

    /// Returns the key of an address, which is added if it is new.
    fn key_of(&mut self, socket: SocketAddr) -> usize {
        if let Some(key) = self.keys.get(&socket) {
            return *key;
        }
        let is_listed = self.is_unknown(socket);
        let key = self.addresses.insert(Address::new(socket, is_listed));
        self.keys.insert(socket, key);
        key
    }

    /// Forgets an address that left DNS with its last connection.
    fn forget_if_gone(&mut self, key: usize) {
        if self.addresses[key].is_forgettable() {
            let address = self.addresses.remove(key);
            self.keys.remove(&address.socket);
        }
    }

    /// Determines the addresses in use.
    fn refresh(&mut self) {
        let listed = || self.addresses.iter().map(|(_, address)| address).filter(|address| address.is_listed);
        self.listed = listed().count();
        let all_are_ejected = listed().all(|address| !address.record.is_fine());
        self.next_probe = listed().filter_map(|address| address.record.ejected_until()).min();
        self.in_use.clear();
        for (key, address) in &mut self.addresses {
            let was_in_use = address.is_in_use;
            address.is_in_use = address.is_listed && (all_are_ejected || address.record.is_fine());
            self.has_new |= address.is_in_use && !was_in_use;
            if address.is_in_use {
                self.in_use.push(key);
            }
        }
    }

    /// Returns true once if addresses came into use.
    pub(super) fn take_new(&mut self) -> bool {
        std::mem::take(&mut self.has_new)
    }

    /// Returns true if requests go to the address as usual.
    pub(super) fn is_in_use(&self, key: usize) -> bool {
        self.addresses[key].is_in_use
    }

    /// Returns true if the next request on the address probes it.
    pub(super) fn is_to_be_probed(&self, now: Instant, key: usize) -> bool {
        let address = &self.addresses[key];
        address.is_listed && address.record.is_due(now)
    }

    /// Returns the number of further connections that may be opened to the addresses in use, and to those that are to be probed, each of which
    /// has `most`; `None` if there are none.
    pub(super) fn places(&self, now: Instant, most: usize) -> Option<Places> {
        let is_wanted = |key: &usize| self.is_in_use(*key) || self.is_to_be_probed(now, *key);
        let counts = |key: &usize| is_wanted(key) && !self.addresses[*key].is_paused(now);
        let known = self.addresses.iter().map(|(key, _)| key).filter(counts);
        let places = |sum: Option<Places>, key: usize| {
            let (address, sum) = (&self.addresses[key], sum.unwrap_or_default());
            let aimed = address.young_dials();
            let free = most.saturating_sub(address.conns + aimed);
            Some(Places { free: sum.free.saturating_add(free), aimed: sum.aimed + aimed })
        };
        known.fold(None, places)
    }

    /// Returns true if all addresses in use have asked for fewer requests.
    pub(super) fn is_paused(&self, now: Instant) -> bool {
        !self.in_use.is_empty() && self.in_use.iter().all(|key| self.addresses[*key].is_paused(now))
    }

    /// Returns the next time at which connections may be opened to an address, because it may be probed or its pause is over.
    pub(super) fn next_place(&self, now: Instant) -> Option<Instant> {
        let pauses = self.addresses.iter().filter_map(|(_, address)| address.paused_until);
        pauses.chain(self.next_probe).filter(|at| now < *at).min()
    }

    /// Returns true if there is an address in use to which no dial has failed a moment ago.
    pub(super) fn has_one_to_dial(&self, now: Instant) -> bool {
        self.in_use.iter().any(|key| self.addresses[*key].may_dial(now, usize::MAX))
    }

    pub(super) fn ip(&self, key: usize) -> IpAddr {
        self.addresses[key].socket.ip()
    }

    pub(super) fn socket(&self, key: usize) -> SocketAddr {
        self.addresses[key].socket
    }

    /// Returns the number of connections to an address that take requests.
    pub(super) fn conns(&self, key: usize) -> usize {
        self.addresses[key].conns
    }

    /// Returns the connections to an address that have a free stream.
    pub(super) fn free(&self, key: usize) -> &FreeConns {
        &self.addresses[key].free
    }

    pub(super) fn free_mut(&mut self, key: usize) -> &mut FreeConns {
        &mut self.addresses[key].free
    }

    /// Returns the number of requests and of dials of each address, by key.
    #[cfg(any(test, fuzzing))]
    pub(super) fn figures(&self) -> impl Iterator<Item = (usize, (usize, usize))> {
        self.addresses.iter().map(|(key, address)| (key, (address.in_flight, address.dials)))
    }

    /// Returns the figures of all addresses.
    pub(super) fn reports(&self, now: Instant) -> impl Iterator<Item = AddressReport> {
        self.addresses.iter().map(move |(_, address)| address.report(now, &self.typical))
    }
}

// The choice.
impl Balance {
    /// Counts a new request.
    pub(super) fn count_request(&mut self, now: Instant) {
        self.rate.count(now);
    }

    /// Returns the addresses to try for a new request: one whose ejection is over, to probe it; then the better of two drawn at
    /// random, and the other one.
    pub(super) fn candidates(&mut self, now: Instant) -> Candidates {
        let probe = self.due(now);
        let count = self.in_use.len();
        let Some(last) = count.checked_sub(1) else { return [probe, None, None] };
        let first = self.random.usize(..count);
        if last == 0 {
            return [probe, Some(self.in_use[first]), None];
        }
        let mut second = self.random.usize(..last);
        second += usize::from(second >= first);
        let (first, second) = (self.in_use[first], self.in_use[second]);
        if self.load(now, second, 0) < self.load(now, first, 0) {
            [probe, Some(second), Some(first)]
        } else {
            [probe, Some(first), Some(second)]
        }
    }

    /// Returns the addresses in use, the least loaded first.
    pub(super) fn by_load(&self, now: Instant) -> Vec<usize> {
        let mut keys: Vec<_> = self.in_use.iter().map(|key| (self.load(now, *key, 0), *key)).collect();
        keys.sort_by(|(one, _), (other, _)| one.partial_cmp(other).expect("loads are numbers"));
        keys.into_iter().map(|(_, key)| key).collect()
    }

    /// Returns the address to dial for a request that waits: one whose ejection is over, to probe it; then the least loaded one, dials
    /// included, that `may_dial` accepts with its number of connections and dials, and that is not at `avoid`.
    pub(super) fn aim(&self, now: Instant, avoid: Option<IpAddr>, most_conns: usize) -> Option<usize> {
        let may_dial = |key: &&usize| self.addresses[**key].may_dial(now, most_conns) && Some(self.ip(**key)) != avoid;
        let load = |key: usize| {
            let address = &self.addresses[key];
            let (load, last_turn) = self.load(now, key, address.dials);
            (load, address.conns, last_turn)
        };
        if let Some(due) = self.due(now).filter(|key| may_dial(&key)) {
            return Some(due);
        }
        let keys = self.in_use.iter().filter(may_dial).map(|key| (load(*key), *key));
        let least = keys.min_by(|(one, _), (other, _)| one.partial_cmp(other).expect("loads are numbers"));
        least.map(|(_, key)| key)
    }

    /// Returns true if a connection to an address should be opened before a request needs it. `open` is the number of the host's
    /// connections: there should be no more than requests of the last seconds.
    pub(super) fn may_dial_ahead(&self, now: Instant, key: usize, most_conns: usize, open: usize) -> bool {
        let address = &self.addresses[key];
        address.dials == 0 && address.may_dial(now, most_conns) && self.rate.recent >= open as f64
    }

    /// Returns an ejected address that should be probed now.
    fn due(&self, now: Instant) -> Option<usize> {
        self.next_probe.filter(|at| *at <= now)?;
        let mut keys = self.addresses.iter().filter(|(_, address)| address.dials == 0).map(|(key, _)| key);
        keys.find(|key| self.is_to_be_probed(now, *key))
    }

    /// Returns the load of an address with `more` requests, and the last time it was used.
    fn load(&self, now: Instant, key: usize, more: usize) -> (f64, u64) {
        let address = &self.addresses[key];
        let slowness = address.latency.slowness(now, &self.typical) * address.record.ramp(now);
        (slowness * (address.in_flight + more + 1) as f64, address.last_turn)
    }
}

// Events.
impl Balance {
    /// Counts a dial that tries an address first.
    pub(super) fn dial_begun(&mut self, key: usize) {
        self.addresses[key].dials += 1;
    }

    /// Counts a dial as one that is relied on no more.
    pub(super) fn dial_slowed(&mut self, key: usize) {
        self.addresses[key].slow_dials += 1;
    }

    pub(super) fn dial_ended(&mut self, key: usize, was_young: bool) {
        self.addresses[key].dials -= 1;
        self.addresses[key].slow_dials -= usize::from(!was_young);
        self.forget_if_gone(key);
    }

    /// Dials an address no more until a time that its server asked for.
    pub(super) fn pause(&mut self, key: usize, until: Instant) {
        self.addresses[key].paused_until = Some(until);
    }

    /// Notes that an address could not be connected to.
    pub(super) fn dial_failed(&mut self, now: Instant, key: usize) {
        let Some(address) = self.addresses.get_mut(key) else { return };
        address.dial_failed(now);
        if address.record.is_due(now) {
            address.record.eject(now, &self.rules);
        }
        // Requests do not go there, so it need not be ejected unless it has connections.
        if address.conns == 0 {
            self.refresh();
        } else {
            self.count(now, key, true);
        }
    }

    /// Adds an open connection that takes requests. Returns the key of its address.
    pub(super) fn opened(&mut self, socket: SocketAddr) -> usize {
        let key = self.key_of(socket);
        let is_unknown = self.is_unknown(socket);
        let address = &mut self.addresses[key];
        address.opened();
        address.is_listed |= is_unknown;
        if address.is_listed && !address.is_in_use {
            self.refresh();
        }
        key
    }

    /// Removes a connection that takes no new requests.
    pub(super) fn ended(&mut self, key: usize) {
        let address = &mut self.addresses[key];
        address.conns -= 1;
        let socket = address.socket;
        if address.conns == 0
            && address.is_listed
            && self.answers[Family::of(socket.ip()) as usize].is_some_and(|last| last.is_negative)
        {
            self.addresses[key].is_listed = false;
            self.refresh();
        }
        let address = &mut self.addresses[key];
        if address.conns == 0 && address.in_flight == 0 && !address.is_in_use {
            // Whatever is there when it comes back need not be the same server.
            address.latency.forget();
        }
        self.forget_if_gone(key);
    }

    /// Counts a request that has a connection to an address. Returns true if it probes the address.
    pub(super) fn leased(&mut self, now: Instant, key: usize) -> bool {
        self.turn += 1;
        let address = &mut self.addresses[key];
        address.in_flight += 1;
        address.last_turn = self.turn;
        let is_probe = address.record.is_due(now);
        if is_probe {
            address.record.standing = Standing::Probed;
            self.refresh();
        }
        is_probe
    }

    /// Ends a request. `is_probe` is true if it probed the address and has no result.
    pub(super) fn released(&mut self, now: Instant, key: usize, is_probe: bool) {
        let address = &mut self.addresses[key];
        address.in_flight -= 1;
        if is_probe {
            address.record.end_probe(now, None, &self.rules);
            self.refresh();
        }
        self.forget_if_gone(key);
    }

    /// Takes note of a request's result, which came after `latency`.
    pub(super) fn report(&mut self, now: Instant, key: usize, is_probe: bool, latency: Duration, outcome: Outcome) {
        let address = &mut self.addresses[key];
        let has_failed = match outcome {
            Outcome::Answered => Some(false),
            Outcome::Failed => Some(true),
            Outcome::Cancelled => None,
        };
        if outcome == Outcome::Answered {
            address.latency.observe(now, latency, &mut self.typical);
        } else {
            address.latency.observe_at_least(now, latency, &self.typical);
        }
        address.answered += u64::from(has_failed.is_some());
        address.failed += u64::from(has_failed == Some(true));
        if is_probe {
            address.record.end_probe(now, has_failed, &self.rules);
            self.refresh();
        } else if let Some(has_failed) = has_failed {
            self.count(now, key, has_failed);
        }
    }

    /// Counts a success or a failure of an address, which may be ejected for it.
    fn count(&mut self, now: Instant, key: usize, has_failed: bool) {
        // Late results of an address that is ejected change nothing.
        if !self.addresses[key].record.is_fine() {
            return;
        }
        self.requests.count(now, has_failed);
        let should_eject = self.addresses[key].record.count(now, has_failed, &self.rules, &self.requests);
        if should_eject && self.may_eject_another() {
            self.addresses[key].record.eject(now, &self.rules);
            self.refresh();
        }
    }

    /// Returns true if one more address may be ejected.
    fn may_eject_another(&self) -> bool {
        let ejected = self.addresses.iter().filter(|(_, address)| address.is_listed && !address.record.is_fine());
        let after = ejected.count() + 1;
        let most = (self.listed * usize::from(self.rules.max_percent) / 100).max(1);
        self.rules.max_percent > 0 && after <= most && after < self.listed
    }
}

impl Rate {
    fn count(&mut self, now: Instant) {
        let elapsed = self.at.map_or(Duration::ZERO, |at| now - at);
        let memory = self.memory.as_secs_f64().max(f64::MIN_POSITIVE);
        self.recent = self.recent * (-elapsed.as_secs_f64() / memory).exp() + 1.0;
        self.at = Some(now);
    }
}
