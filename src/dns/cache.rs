//! What is known about names, until when, and which lookups are under way. A core: it is told the time.

use std::collections::BTreeSet;
use std::collections::hash_map::{self, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use slab::Slab;

use super::{Answer, Family, ResolveError, ResolveErrorKind, Source};
use crate::clock::Instant;
use crate::list::{Linked, Links, List};

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
}

/// How long a "does not exist" without an SOA record is kept.
const NEGATIVE_DEFAULT: Duration = Duration::from_secs(1);
/// How long a name that failed is not asked for: at first, and at most (RFC 9520 §3.2).
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

impl Default for Config {
    fn default() -> Self {
        Self {
            max_names: 1_024,
            ttl_floor: Duration::ZERO,
            ttl_ceiling: Duration::from_secs(24 * 60 * 60),
            negative_ceiling: Duration::from_secs(30),
            stale: Duration::from_secs(60 * 60),
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

pub(crate) struct Cache<F> {
    config: Config,
    entries: Slab<Entry>,
    index: HashMap<Arc<str>, usize, RandomState>,
    /// From the most to the least recently used.
    recent: List<0>,
    /// When each family of each name wants attention: to be refreshed, or to be removed.
    dues: BTreeSet<(Instant, usize, usize)>,
    flights: HashMap<(Arc<str>, Family), Flight<F>>,
    pins: HashMap<Arc<str>, Arc<[IpAddr]>>,
    serial: u64,
    random: fastrand::Rng,
    counts: Counts,
}

/// A name of which something is known, in one family or in both.
struct Entry {
    name: Arc<str>,
    slots: [Slot; 2],
    links: Links,
}

/// What is known of a name in one family.
#[derive(Default)]
struct Slot {
    known: Option<Known>,
    failed: Option<Failed>,
    due: Option<Instant>,
}

struct Known {
    outcome: Result<Arc<[IpAddr]>, ResolveError>,
    expires: Instant,
    /// When to ask again ahead of expiry, if it is used until then.
    refresh_at: Option<Instant>,
    used: bool,
    /// Until when an answer may stand in for a newer one.
    stale_until: Instant,
}

/// The last query failed: the name is left alone for a while.
struct Failed {
    error: ResolveError,
    retry_at: Instant,
    backoff: Duration,
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
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            entries: Slab::new(),
            index: HashMap::default(),
            recent: List::default(),
            dues: BTreeSet::new(),
            flights: HashMap::new(),
            pins: HashMap::new(),
            serial: 0,
            random: fastrand::Rng::with_seed(seed),
            counts: Counts::default(),
        }
    }

    /// Looks `name` up; `launch` makes the handle of a new flight.
    pub(crate) fn get(&mut self, now: Instant, name: &str, family: Family, launch: impl FnOnce() -> F) -> Step<F> {
        if let Some(pinned) = self.pinned(name, family) {
            match pinned {
                Ok(_) => self.counts.hits += 1,
                Err(_) => self.counts.negative_hits += 1,
            }
            return Step::Known(pinned, None);
        }
        let Some(id) = self.index.get(name).copied() else { return self.fly(name, family, launch, None) };
        self.recent.move_to_front(&mut self.entries, id);
        let slot = &self.entries[id].slots[family as usize];
        if let Some(fresh) = slot.fresh(now) {
            let refresh = slot.missed_its_refresh(now);
            self.used(id, family, &fresh);
            let flight = if refresh { self.refresh(name, family, launch) } else { None };
            return Step::Known(fresh, flight);
        }
        let failed = slot.failed.as_ref().map(|failed| (failed.retry_at, failed.error.clone()));
        match (failed, slot.stale(now)) {
            (None, stale) => self.fly(name, family, launch, stale),
            (Some((retry_at, _)), None) if retry_at <= now => self.fly(name, family, launch, None),
            (Some((_, error)), None) => {
                let told = Err(error.with_source(Source::Hit));
                self.used(id, family, &told);
                Step::Known(told, None)
            }
            // A name that failed before is not waited for while a stale answer is at hand.
            (Some((retry_at, _)), Some(stale)) => {
                let told = Ok(stale);
                self.used(id, family, &told);
                let flight = if retry_at <= now { self.refresh(name, family, launch) } else { None };
                Step::Known(told, flight)
            }
        }
    }

    /// Begins to ask for a name ahead of need; `None` where somebody asks already.
    pub(crate) fn refresh(&mut self, name: &str, family: Family, launch: impl FnOnce() -> F) -> Option<Flight<F>> {
        match self.fly(name, family, launch, None) {
            Step::Start(flight, _) => {
                self.counts.misses -= 1;
                self.counts.refreshes += 1;
                Some(flight)
            }
            _ => {
                self.counts.coalesced -= 1;
                None
            }
        }
    }

    /// Takes a flight's result, keeps it for as long as it may be kept, and returns what its waiters are told.
    pub(crate) fn landed(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        serial: u64,
        result: Result<Answer, ResolveError>,
    ) -> Result<Answer, ResolveError> {
        if !self.lost(name, family, serial) {
            return result;
        }
        match &result {
            Ok(answer) => {
                let ttl = self.ttl(answer.ttl());
                self.keep(now, name, family, Ok(answer.addresses().clone()), ttl);
            }
            Err(error) if error.kind().is_negative() => {
                let ttl = error.negative_ttl().unwrap_or(NEGATIVE_DEFAULT).min(self.config.negative_ceiling);
                if error.kind() == ResolveErrorKind::NxDomain && family == Family::V4 {
                    self.keep_nonexistence(now, name, error, ttl);
                }
                self.keep(now, name, family, Err(error.clone()), ttl);
            }
            Err(error) => return self.failed(now, name, family, error.clone()),
        }
        result
    }

    /// A flight ended without a result; whether it was still the one whose result counts.
    pub(crate) fn lost(&mut self, name: &str, family: Family, serial: u64) -> bool {
        let key = (name.into(), family);
        let current = self.flights.get(&key).is_some_and(|flight| flight.serial == serial);
        if current {
            self.flights.remove(&key);
        }
        current
    }

    /// Removes what is past its use, and returns what is to be refreshed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<(Arc<str>, Family)> {
        let mut refreshes = Vec::new();
        while let Some(&(due, id, family)) = self.dues.first()
            && due <= now
        {
            let entry = &mut self.entries[id];
            if entry.slots[family].is_to_be_refreshed(now) {
                refreshes
                    .push((entry.name.clone(), if family == Family::V4 as usize { Family::V4 } else { Family::V6 }));
            }
            self.settle(now, id, family);
        }
        refreshes
    }

    /// When something expires, or is to be refreshed, next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.dues.first().map(|(due, ..)| *due)
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
        self.pins.insert(name.into(), addresses);
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
        let pinned = self.pins.get(name)?;
        let addresses: Vec<_> = pinned.iter().copied().filter(|ip| Family::of(*ip) == family).collect();
        Some(match addresses.is_empty() {
            true => Err(ResolveError::new(ResolveErrorKind::NoData, name, family).with_source(Source::Pinned)),
            false => Ok(Answer::new(addresses, self.config.ttl_ceiling, Source::Pinned)),
        })
    }

    /// Counts a lookup that the cache answered.
    fn used(&mut self, id: usize, family: Family, told: &Result<Answer, ResolveError>) {
        match told {
            Ok(answer) if answer.source() == Source::Stale => self.counts.stale_hits += 1,
            Ok(_) => self.counts.hits += 1,
            Err(_) => self.counts.negative_hits += 1,
        }
        if let Some(known) = &mut self.entries[id].slots[family as usize].known {
            known.used = true;
        }
    }

    fn fly(&mut self, name: &str, family: Family, launch: impl FnOnce() -> F, stale: Option<Answer>) -> Step<F> {
        match self.flights.entry((name.into(), family)) {
            hash_map::Entry::Occupied(flight) => {
                self.counts.coalesced += 1;
                Step::Join(flight.get().clone(), stale)
            }
            hash_map::Entry::Vacant(place) => {
                self.counts.misses += 1;
                self.serial += 1;
                let flight = Flight { handle: launch(), serial: self.serial };
                Step::Start(place.insert(flight).clone(), stale)
            }
        }
    }

    fn ttl(&self, ttl: Duration) -> Duration {
        let floor = if ttl.is_zero() { Duration::ZERO } else { self.config.ttl_floor };
        ttl.max(floor).min(self.config.ttl_ceiling)
    }

    /// NXDOMAIN for IPv4 speaks for IPv6 too, where nothing else is known of that or on its way. It does not the other
    /// way round: there are servers that know a name and deny it when asked for IPv6 (RFC 4074 §4.2).
    fn keep_nonexistence(&mut self, now: Instant, name: &str, error: &ResolveError, ttl: Duration) {
        let asked = self.flights.contains_key(&(name.into(), Family::V6));
        let known = self.index.get(name).is_some_and(|&id| !self.entries[id].slots[Family::V6 as usize].is_empty());
        if !asked && !known {
            let error = ResolveError::new(error.kind(), name, Family::V6).with_negative_ttl(error.negative_ttl());
            self.keep(now, name, Family::V6, Err(error), ttl);
        }
    }

    fn keep(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        outcome: Result<Arc<[IpAddr]>, ResolveError>,
        ttl: Duration,
    ) {
        let Some(id) = self.entry(name, !ttl.is_zero()) else { return };
        let expires = now + ttl;
        // Somewhere in the second half of the last tenth, so that names learnt together are not asked for together.
        let lead = ttl.mul_f64(0.05 + 0.05 * self.random.f64());
        let known = Known {
            refresh_at: outcome.is_ok().then(|| expires - lead),
            stale_until: if outcome.is_ok() { expires + self.config.stale } else { expires },
            outcome,
            expires,
            used: false,
        };
        let slot = &mut self.entries[id].slots[family as usize];
        slot.known = (!ttl.is_zero()).then_some(known);
        slot.failed = None;
        self.settle(now, id, family as usize);
    }

    /// A query failed: the name is left alone for twice as long as last time, and a stale answer stands in.
    fn failed(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        error: ResolveError,
    ) -> Result<Answer, ResolveError> {
        self.counts.failures += 1;
        let Some(id) = self.entry(name, true) else { return Err(error) };
        let slot = &mut self.entries[id].slots[family as usize];
        let last = slot.failed.as_ref().map(|failed| failed.backoff);
        let backoff = last.map_or(FIRST_BACKOFF, |last| (last * 2).min(LONGEST_BACKOFF));
        slot.failed = Some(Failed { error: error.clone(), retry_at: now + backoff, backoff });
        let told = slot.fresh(now).and_then(Result::ok).or_else(|| slot.stale(now)).ok_or(error);
        self.settle(now, id, family as usize);
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
        let name: Arc<str> = name.into();
        let id = self.entries.insert(Entry { name: name.clone(), slots: Default::default(), links: Links::default() });
        self.index.insert(name, id);
        self.recent.push_front(&mut self.entries, id);
        Some(id)
    }

    /// Sees to it that a family gets attention in time, and forgets what is past its use, the name with the last of it.
    fn settle(&mut self, now: Instant, id: usize, family: usize) {
        let entry = &mut self.entries[id];
        let slot = &mut entry.slots[family];
        let before = slot.due;
        slot.due = slot.next_due(now);
        let after = slot.due;
        let empty = entry.slots.iter().all(Slot::is_empty);
        if let Some(before) = before {
            self.dues.remove(&(before, id, family));
        }
        if let Some(after) = after {
            self.dues.insert((after, id, family));
        }
        if empty {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: usize) {
        self.recent.remove(&mut self.entries, id);
        let entry = self.entries.remove(id);
        self.index.remove(&entry.name);
        for (family, slot) in entry.slots.iter().enumerate() {
            if let Some(due) = slot.due {
                self.dues.remove(&(due, id, family));
            }
        }
    }
}

impl Slot {
    fn fresh(&self, now: Instant) -> Option<Result<Answer, ResolveError>> {
        let known = self.known.as_ref().filter(|known| now < known.expires)?;
        let left = known.expires - now;
        Some(match &known.outcome {
            Ok(addresses) => Ok(Answer::new(addresses.clone(), left, Source::Hit)),
            Err(error) => Err(error.clone().with_negative_ttl(Some(left)).with_source(Source::Hit)),
        })
    }

    fn stale(&self, now: Instant) -> Option<Answer> {
        let known = self.known.as_ref().filter(|known| now < known.stale_until)?;
        let addresses = known.outcome.as_ref().ok()?;
        Some(Answer::new(addresses.clone(), Duration::ZERO, Source::Stale))
    }

    /// Whether the time to ask ahead has passed without anybody asking, because nobody used the answer until then.
    fn missed_its_refresh(&self, now: Instant) -> bool {
        let Some(known) = &self.known else { return false };
        let is_time = known.outcome.is_ok() && known.refresh_at.is_none_or(|at| at <= now);
        is_time && self.failed.as_ref().is_none_or(|failed| failed.retry_at <= now)
    }

    /// Whether the time to ask ahead has come and somebody used the answer; it comes once.
    fn is_to_be_refreshed(&mut self, now: Instant) -> bool {
        let Some(known) = &mut self.known else { return false };
        let due = known.refresh_at.is_some_and(|at| at <= now) && now < known.expires;
        if due {
            known.refresh_at = None;
        }
        due && known.used
    }

    /// Forgets what is past its use, and says when there is something to do next.
    fn next_due(&mut self, now: Instant) -> Option<Instant> {
        if self.known.as_ref().is_some_and(|known| known.stale_until <= now) {
            self.known = None;
        }
        // A back-off is remembered for as long again, for the next one to be longer.
        if self.failed.as_ref().is_some_and(|failed| failed.retry_at + failed.backoff <= now) {
            self.failed = None;
        }
        let known = self.known.as_ref();
        let refresh = known.and_then(|known| known.refresh_at).filter(|at| now < *at);
        let forget = known.map(|known| known.stale_until);
        let failed = self.failed.as_ref().map(|failed| failed.retry_at + failed.backoff);
        refresh.into_iter().chain(forget).chain(failed).min()
    }

    fn is_empty(&self) -> bool {
        self.known.is_none() && self.failed.is_none()
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
