//! What is known about names, until when, and which lookups are under way. A core: it is told the time.

mod family_state;

use std::collections::BTreeSet;
use std::collections::hash_map::{self, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use foldhash::fast::RandomState;
use slab::Slab;

use crate::clock::Instant;
use crate::dns::cache::changes::Change;
use crate::dns::cache::snapshot::{Remembered, Snapshot, unix_ms};
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Source};
use crate::list::{Linked, Links, List};
use family_state::{Slot, Tick, Watch};

/// The cache's rules.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// How many names are kept; the least recently used leave.
    pub(crate) max_names: usize,
    /// No answer is kept for less, except that a TTL of zero stays one.
    pub(crate) ttl_floor: Duration,
    /// No answer is kept for longer.
    pub(crate) ttl_ceiling: Duration,
    /// No "does not exist" is kept for longer.
    pub(crate) negative_ceiling: Duration,
    /// How long past its expiry an answer may stand in for one that cannot be had (RFC 8767).
    pub(crate) stale: Duration,
    /// How long a query may take; one that takes longer is on a runtime that nobody drives, and another one replaces it.
    pub(crate) flight: Duration,
}

/// How long a "does not exist" without an SOA record is kept.
const NEGATIVE_DEFAULT: Duration = Duration::from_secs(1);

impl Default for Config {
    fn default() -> Self {
        Self {
            max_names: 1_024,
            ttl_floor: Duration::ZERO,
            ttl_ceiling: Duration::from_secs(24 * 60 * 60),
            negative_ceiling: Duration::from_secs(30),
            stale: Duration::from_secs(60 * 60),
            flight: Duration::from_millis(10_500),
        }
    }
}

/// What there is to do about a lookup; `F` is the caller's handle on a query in flight.
#[derive(Debug)]
pub(crate) enum Step<F> {
    /// It is known. A flight that comes with it is to be started, and not to be waited for.
    Known(Result<Answer, ResolveError>, Option<Flight<F>>),
    /// Somebody asks already: wait for their flight, or with a stale answer not for too long.
    Join(Flight<F>, Option<Answer>),
    /// Nobody asks: start this flight, and wait for it in the same way.
    Start(Flight<F>, Option<Answer>),
}

/// A query in flight. It ends in [`Cache::landed`] or [`Cache::lost`].
#[derive(Debug, Clone)]
pub(crate) struct Flight<F> {
    pub(crate) handle: F,
    pub(crate) serial: u64,
    /// When it is given up.
    until: Tick,
}

/// Counters since the cache was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) negative_hits: u64,
    pub(crate) stale_hits: u64,
    pub(crate) coalesced: u64,
    pub(crate) misses: u64,
    pub(crate) refreshes: u64,
    pub(crate) failures: u64,
    pub(crate) evictions: u64,
}

/// What came of a [`Cache::touch`].
#[derive(Debug)]
pub(crate) struct Touched<F> {
    /// Whether the name has addresses here.
    pub(crate) known: bool,
    pub(crate) flight: Option<Flight<F>>,
}

/// What came of a flight.
#[derive(Debug)]
pub(crate) struct Landed {
    /// What its waiters are told.
    pub(crate) told: Result<Answer, ResolveError>,
    /// The name's addresses, where they are not what was known before.
    pub(crate) change: Option<Change>,
}

pub(crate) struct Cache<F> {
    config: Config,
    watch: Watch,
    entries: Slab<Entry>,
    index: HashMap<Arc<str>, usize, RandomState>,
    /// From the most to the least recently used.
    recent: List<0>,
    /// When each name wants attention: to be refreshed, or to be removed.
    dues: BTreeSet<(Tick, usize)>,
    flights: HashMap<(Arc<str>, Family), Flight<F>, RandomState>,
    /// By family.
    pins: HashMap<Arc<str>, [Arc<[IpAddr]>; 2], RandomState>,
    serial: u64,
    changes: u64,
    random: fastrand::Rng,
    counts: Counts,
}

/// A name of which something is known, in one family or in both.
struct Entry {
    name: Arc<str>,
    slots: [Slot; 2],
    due: Tick,
    links: Links,
}

impl Linked<0> for Entry {
    fn place(&self) -> &Links {
        &self.links
    }

    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<F: Clone> Cache<F> {
    /// A cache whose refreshes are jittered by `seed`.
    pub(crate) fn new(config: Config, seed: u64, now: Instant) -> Self {
        Self {
            config,
            watch: Watch::start(now),
            entries: Slab::new(),
            index: HashMap::default(),
            recent: List::default(),
            dues: BTreeSet::new(),
            flights: HashMap::default(),
            pins: HashMap::default(),
            serial: 0,
            changes: 0,
            random: fastrand::Rng::with_seed(seed),
            counts: Counts::default(),
        }
    }

    /// Looks `name` up; `launch` makes the handle of a new flight.
    pub(crate) fn get(&mut self, now: Instant, name: &str, family: Family, launch: impl FnOnce() -> F) -> Step<F> {
        if let Some(pinned) = self.pinned(name, family) {
            self.count(&pinned);
            return Step::Known(pinned, None);
        }
        let now = self.watch.tick(now);
        let Some(&id) = self.index.get(name) else { return self.fly(now, name, family, launch, None) };
        self.recent.move_to_front(&mut self.entries, id);
        let slot = &mut self.entries[id].slots[family as usize];
        if let Some(fresh) = slot.fresh(now) {
            slot.mark_used();
            let refresh = slot.missed_its_refresh(now);
            self.count(&fresh);
            let flight = if refresh { self.ask_ahead(now, name, family, launch) } else { None };
            return Step::Known(fresh, flight);
        }
        if let Some(absence) = self.absence(now, id, family) {
            return self.tell_absence(now, name, family, absence, launch);
        }
        let slot = &mut self.entries[id].slots[family as usize];
        let stale = slot.stale(now, self.config.stale);
        let Some((retry_at, error)) = slot.failure() else { return self.fly(now, name, family, launch, stale) };
        let retry = retry_at <= now;
        let told = match stale {
            None if retry => return self.fly(now, name, family, launch, None),
            None => Err(error.clone().with_source(Source::Hit)),
            // A name that failed before is not waited for while a stale answer is at hand.
            Some(stale) => Ok(stale),
        };
        slot.mark_used();
        self.count(&told);
        let flight = if retry { self.ask_ahead(now, name, family, launch) } else { None };
        Step::Known(told, flight)
    }

    /// That a name has no addresses in this family, if that has expired while there are some of the other family: who has
    /// these is not to wait for what was not there a moment ago.
    fn absence(&self, now: Tick, id: usize, family: Family) -> Option<ResolveError> {
        let slots = &self.entries[id].slots;
        let other = &slots[family.other() as usize];
        let in_use = other.addresses().is_some() && now < other.expires();
        slots[family as usize].absence().filter(|_| in_use)
    }

    /// Tells that a family has no addresses, and begins to ask whether that is still so.
    fn tell_absence(
        &mut self,
        now: Tick,
        name: &str,
        family: Family,
        absence: ResolveError,
        launch: impl FnOnce() -> F,
    ) -> Step<F> {
        let told = Err(absence);
        self.count(&told);
        let slot = &self.entries[self.index[name]].slots[family as usize];
        let may_ask = slot.failure().is_none_or(|(retry_at, _)| retry_at <= now);
        let flight = if may_ask { self.ask_ahead(now, name, family, launch) } else { None };
        Step::Known(told, flight)
    }

    /// Notes that a name is in use without a lookup, and begins to ask for it where its time has come. A name that has no
    /// addresses any more is asked for in both families, within its back-off.
    pub(crate) fn touch(&mut self, now: Instant, name: &str, family: Family, launch: impl FnOnce() -> F) -> Touched<F> {
        if self.pins.contains_key(name) {
            return Touched { known: true, flight: None };
        }
        let now = self.watch.tick(now);
        let Some(&id) = self.index.get(name) else {
            return Touched { known: false, flight: self.ask_ahead(now, name, family, launch) };
        };
        self.recent.move_to_front(&mut self.entries, id);
        let slots = &mut self.entries[id].slots;
        let known = slots.iter().any(|slot| slot.addresses().is_some());
        let slot = &mut slots[family as usize];
        slot.mark_used();
        let may_ask = slot.failure().is_none_or(|(retry_at, _)| retry_at <= now);
        let is_lost = !known && slot.fresh(now).is_none() && may_ask;
        let asks = is_lost || slot.missed_its_refresh(now);
        Touched { known, flight: if asks { self.ask_ahead(now, name, family, launch) } else { None } }
    }

    /// Begins to ask for a name ahead of need; `None` where somebody asks already.
    pub(crate) fn refresh(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        launch: impl FnOnce() -> F,
    ) -> Option<Flight<F>> {
        self.ask_ahead(self.watch.tick(now), name, family, launch)
    }

    fn ask_ahead(&mut self, now: Tick, name: &str, family: Family, launch: impl FnOnce() -> F) -> Option<Flight<F>> {
        match self.fly(now, name, family, launch, None) {
            Step::Start(flight, _) => {
                self.counts.misses -= 1;
                self.counts.refreshes += 1;
                self.set_asking(name, family, true);
                Some(flight)
            }
            _ => {
                self.counts.coalesced -= 1;
                None
            }
        }
    }

    fn set_asking(&mut self, name: &str, family: Family, asking: bool) {
        if let Some(&id) = self.index.get(name) {
            self.entries[id].slots[family as usize].set_asking(asking);
        }
    }

    /// Takes a flight's result, and keeps it for as long as it may be kept.
    pub(crate) fn landed(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        serial: u64,
        result: Result<Answer, ResolveError>,
    ) -> Landed {
        if !self.lost(name, family, serial) {
            return Landed { told: result, change: None };
        }
        let now = self.watch.tick(now);
        let error = match &result {
            Ok(answer) => {
                let ttl = self.ttl(answer.ttl());
                let change = self.change(name, family, answer.addresses().clone(), ttl);
                self.keep(now, name, family, answer.addresses(), ttl);
                return Landed { told: result, change };
            }
            Err(error) => error.clone(),
        };
        if !error.kind().is_negative() {
            return Landed { told: self.failed(now, name, family, error), change: None };
        }
        let ttl = error.negative_ttl().unwrap_or(NEGATIVE_DEFAULT).min(self.config.negative_ceiling);
        let known = self.known(name, family).is_some();
        let change = if known { self.change(name, family, Arc::new([]), ttl) } else { None };
        if error.kind() == ResolveErrorKind::NxDomain && family == Family::V4 {
            self.keep_nonexistence(now, name, &error, ttl);
        }
        self.keep_nothing(now, name, family, error, ttl);
        Landed { told: result, change }
    }

    /// A flight ended without a result; whether it was still the one whose result counts.
    pub(crate) fn lost(&mut self, name: &str, family: Family, serial: u64) -> bool {
        let key = (name.into(), family);
        let current = self.flights.get(&key).is_some_and(|flight| flight.serial == serial);
        if current {
            self.flights.remove(&key);
            self.set_asking(name, family, false);
        }
        current
    }

    /// A flight crashed: its resolver panicked, and would do so again.
    pub(crate) fn crashed(&mut self, now: Instant, name: &str, family: Family, serial: u64) {
        if self.lost(name, family, serial) {
            let error = ResolveError::new(ResolveErrorKind::Other, name, family).with_cause("the resolver panicked");
            // Nobody is told: whoever waits asks again, and finds out.
            drop(self.failed(self.watch.tick(now), name, family, error));
        }
    }

    /// Removes what is past its use, and returns what is to be refreshed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<(Arc<str>, Family)> {
        let now = self.watch.tick(now);
        let mut refreshes = Vec::new();
        while let Some(&(due, id)) = self.dues.first()
            && due <= now
        {
            let entry = &mut self.entries[id];
            for family in Family::BOTH {
                if entry.slots[family as usize].is_to_be_refreshed(now) {
                    refreshes.push((entry.name.clone(), family));
                }
            }
            self.settle(now, id);
        }
        refreshes
    }

    /// When something expires, or is to be refreshed, next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.dues.first().map(|(due, _)| self.watch.instant(*due))
    }

    /// The addresses that are known, fresh or stale, as of the `wall` clock.
    pub(crate) fn snapshot(&self, now: Instant, wall: SystemTime) -> Snapshot {
        let (tick, taken) = (self.watch.tick(now), unix_ms(wall));
        let mut records = Vec::new();
        let mut next = self.recent.front();
        while let Some(id) = next {
            let Entry { name, slots, .. } = &self.entries[id];
            for slot in slots {
                let Some(addresses) = slot.addresses() else { continue };
                let (left, past) = (slot.expires().since(tick), tick.since(slot.expires()));
                let expires = unix_ms(wall + left - past);
                records.push(Remembered { name: (**name).into(), addresses: addresses.to_vec(), expires });
            }
            next = self.recent.after(&self.entries, id);
        }
        records.reverse();
        Snapshot { taken, records }
    }

    /// Knows again what a snapshot has, for what is left of its time, except where something is known already.
    pub(crate) fn restore(&mut self, now: Instant, wall: SystemTime, snapshot: &Snapshot) {
        let now = self.watch.tick(now);
        // The last used ones first, as far as there is room: what is known already stays, and is used more recently.
        for record in snapshot.records.iter().rev() {
            let Some(family) = record.addresses.first().map(|ip| Family::of(*ip)) else { continue };
            let addresses: Arc<[_]> = record.addresses.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
            let expires = match record.left(snapshot.taken, wall) {
                Ok(left) => now.after(left.min(self.config.ttl_ceiling)),
                Err(past) if past < self.config.stale => now.before(past),
                Err(_) => continue,
            };
            let name = record.name.to_ascii_lowercase();
            let lead = self.lead(expires.since(now));
            let known = self.index.get(&*name).copied();
            if known.is_none() && self.entries.len() >= self.config.max_names {
                continue;
            }
            let id = known.unwrap_or_else(|| {
                let id = self.insert(&name);
                self.recent.push_back(&mut self.entries, id);
                id
            });
            let slot = &mut self.entries[id].slots[family as usize];
            if slot.is_unknown() {
                slot.restore(addresses, expires, lead);
            }
            self.settle(now, id);
        }
    }

    /// Forgets a name; what is in flight for it is told to those who wait and not kept.
    pub(crate) fn invalidate(&mut self, name: &str) {
        for family in Family::BOTH {
            self.flights.remove(&(name.into(), family));
        }
        if let Some(&id) = self.index.get(name) {
            self.remove(id);
        }
    }

    /// Forgets every name, except those that are pinned.
    pub(crate) fn flush(&mut self) {
        self.flights.clear();
        self.entries.clear();
        self.index.clear();
        self.recent = List::default();
        self.dues.clear();
    }

    /// Answers `name` with these addresses from now on.
    pub(crate) fn pin(&mut self, name: &str, addresses: Arc<[IpAddr]>) {
        let of = |family| addresses.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        self.pins.insert(name.into(), [of(Family::V4), of(Family::V6)]);
    }

    /// Ends a [`pin`](Self::pin); whether there was one.
    pub(crate) fn unpin(&mut self, name: &str) -> bool {
        self.pins.remove(name).is_some()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many names are kept.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn pinned(&self, name: &str, family: Family) -> Option<Result<Answer, ResolveError>> {
        if self.pins.is_empty() {
            return None;
        }
        let addresses = &self.pins.get(name)?[family as usize];
        Some(match addresses.is_empty() {
            true => Err(ResolveError::new(ResolveErrorKind::NoData, name, family).with_source(Source::Pinned)),
            false => Ok(Answer::new(addresses.clone(), self.config.ttl_ceiling, Source::Pinned)),
        })
    }

    /// Counts a lookup that the cache answered.
    fn count(&mut self, told: &Result<Answer, ResolveError>) {
        match told {
            Ok(answer) if answer.source() == Source::Stale => self.counts.stale_hits += 1,
            Ok(_) => self.counts.hits += 1,
            Err(_) => self.counts.negative_hits += 1,
        }
    }

    /// What a lookup would be answered with, fresh or stale, and for how long; it counts as no use.
    pub(crate) fn peek(&self, now: Instant, name: &str, family: Family) -> Option<(Arc<[IpAddr]>, Duration)> {
        if let Some(pinned) = self.pinned(name, family) {
            return pinned.ok().map(|answer| (answer.addresses().clone(), answer.ttl()));
        }
        let slot = &self.entries[*self.index.get(name)?].slots[family as usize];
        Some((slot.addresses()?.clone(), slot.expires().since(self.watch.tick(now))))
    }

    /// The addresses last known, fresh or stale.
    fn known(&self, name: &str, family: Family) -> Option<&Arc<[IpAddr]>> {
        self.entries[*self.index.get(name)?].slots[family as usize].addresses()
    }

    fn change(&mut self, name: &str, family: Family, addresses: Arc<[IpAddr]>, ttl: Duration) -> Option<Change> {
        let same = self.known(name, family).is_some_and(|known| same_set(known, &addresses));
        self.changes += u64::from(!same);
        (!same).then(|| Change { name: name.into(), family, addresses, ttl, serial: self.changes })
    }

    fn fly(
        &mut self,
        now: Tick,
        name: &str,
        family: Family,
        launch: impl FnOnce() -> F,
        stale: Option<Answer>,
    ) -> Step<F> {
        let place = self.flights.entry((name.into(), family));
        if let hash_map::Entry::Occupied(flight) = &place
            && now < flight.get().until
        {
            self.counts.coalesced += 1;
            return Step::Join(flight.get().clone(), stale);
        }
        self.counts.misses += 1;
        self.serial += 1;
        let flight = Flight { handle: launch(), serial: self.serial, until: now.after(self.config.flight) };
        Step::Start(place.insert_entry(flight).get().clone(), stale)
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        let floor = if ttl.is_zero() { Duration::ZERO } else { self.config.ttl_floor };
        ttl.max(floor).min(self.config.ttl_ceiling)
    }

    /// How long ahead of its expiry an answer is asked for again: somewhere in the second half of the last tenth, so that
    /// names learnt together are not asked for together.
    fn lead(&mut self, ttl: Duration) -> Duration {
        ttl.mul_f64(0.05 + 0.05 * self.random.f64())
    }

    /// NXDOMAIN for IPv4 speaks for IPv6 too, where nothing else is known of that or on its way. It does not the other
    /// way round: there are servers that know a name and deny it when asked for IPv6 (RFC 4074 §4.2).
    fn keep_nonexistence(&mut self, now: Tick, name: &str, error: &ResolveError, ttl: Duration) {
        let asked = self.flights.contains_key(&(name.into(), Family::V6));
        let known = self.index.get(name).is_some_and(|&id| !self.entries[id].slots[Family::V6 as usize].is_empty());
        if !asked && !known {
            let error = ResolveError::new(error.kind(), name, Family::V6).with_negative_ttl(error.negative_ttl());
            self.keep_nothing(now, name, Family::V6, error, ttl);
        }
    }

    fn keep(&mut self, now: Tick, name: &str, family: Family, addresses: &Arc<[IpAddr]>, ttl: Duration) {
        let Some(id) = self.entry(name, !ttl.is_zero()) else { return };
        let lead = self.lead(ttl);
        let slot = &mut self.entries[id].slots[family as usize];
        match ttl.is_zero() {
            true => *slot = Slot::default(),
            false => slot.keep(addresses.clone(), now.after(ttl), lead),
        }
        self.settle(now, id);
    }

    fn keep_nothing(&mut self, now: Tick, name: &str, family: Family, error: ResolveError, ttl: Duration) {
        let Some(id) = self.entry(name, !ttl.is_zero()) else { return };
        self.entries[id].slots[family as usize].keep_nothing(error, now.after(ttl));
        self.settle(now, id);
    }

    /// A query failed: a stale answer stands in.
    fn failed(&mut self, now: Tick, name: &str, family: Family, error: ResolveError) -> Result<Answer, ResolveError> {
        self.counts.failures += 1;
        let Some(id) = self.entry(name, true) else { return Err(error) };
        let slot = &mut self.entries[id].slots[family as usize];
        slot.fail(now, error.clone());
        let fresh = slot.fresh(now).and_then(Result::ok);
        let told = fresh.or_else(|| slot.stale(now, self.config.stale)).ok_or(error);
        self.settle(now, id);
        told
    }

    /// The entry of a name, which is made if `needed` and there is room for any.
    fn entry(&mut self, name: &str, needed: bool) -> Option<usize> {
        if let Some(&id) = self.index.get(name) {
            return Some(id);
        }
        if !needed || self.config.max_names == 0 {
            return None;
        }
        if self.entries.len() >= self.config.max_names {
            let oldest = self.recent.back().expect("a full cache has an oldest name");
            self.counts.evictions += 1;
            self.remove(oldest);
        }
        let id = self.insert(name);
        self.recent.push_front(&mut self.entries, id);
        Some(id)
    }

    /// Makes an entry, which is in no list yet.
    fn insert(&mut self, name: &str) -> usize {
        let name: Arc<str> = name.into();
        let entry = Entry { name: name.clone(), slots: Default::default(), due: Tick::NEVER, links: Links::default() };
        let id = self.entries.insert(entry);
        self.index.insert(name, id);
        id
    }

    /// Sees to it that a name gets attention in time, and forgets what is past its use.
    fn settle(&mut self, now: Tick, id: usize) {
        let stale = self.config.stale;
        let entry = &mut self.entries[id];
        let [v4, v6] = entry.slots.each_ref().map(|slot| slot.addresses().map(|_| slot.expires()));
        let [first, second] = &mut entry.slots;
        let after = first.settle(now, stale, v6).min(second.settle(now, stale, v4));
        let before = std::mem::replace(&mut entry.due, after);
        if before != after {
            self.dues.remove(&(before, id));
            if after != Tick::NEVER {
                self.dues.insert((after, id));
            }
        }
        if after == Tick::NEVER {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: usize) {
        self.recent.remove(&mut self.entries, id);
        let entry = self.entries.remove(id);
        self.index.remove(&entry.name);
        self.dues.remove(&(entry.due, id));
    }
}

/// Whether the addresses are the same, in whatever order.
fn same_set(one: &[IpAddr], other: &[IpAddr]) -> bool {
    let sorted = |addresses: &[IpAddr]| {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    };
    one == other || sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests;
