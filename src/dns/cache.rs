//! What is known about names, until when, and which lookups are under way. A core: it is told the time.

use std::collections::BTreeSet;
use std::collections::hash_map::{self, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::{Answer, Family, ResolveError, ResolveErrorKind, Source};
use crate::clock::Instant;
use crate::list::{Linked, Links, List};

/// The cache's rules.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// How many names are kept; the least recently used leave.
    pub(crate) max_names: usize,
    /// No answer is kept for longer.
    pub(crate) ttl_ceiling: Duration,
    /// No "does not exist" is kept for longer.
    pub(crate) negative_ceiling: Duration,
    /// How long a "does not exist" without an SOA record is kept.
    pub(crate) negative_default: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_names: 1_024,
            ttl_ceiling: Duration::from_secs(24 * 60 * 60),
            negative_ceiling: Duration::from_secs(30),
            negative_default: Duration::from_secs(1),
        }
    }
}

/// What there is to do about a lookup; `F` is the caller's handle on a query in flight.
#[derive(Debug)]
pub(crate) enum Step<F> {
    /// It is known.
    Known(Result<Answer, ResolveError>),
    /// Somebody asks already: wait for their flight.
    Join(F),
    /// Nobody asks: start this flight and report its [`Cache::landed`].
    Start(F),
}

/// Counters since the cache was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) coalesced: u64,
    pub(crate) misses: u64,
}

pub(crate) struct Cache<F> {
    config: Config,
    entries: Slab<Entry>,
    index: HashMap<Arc<str>, usize>,
    /// From the most to the least recently used.
    recent: List<0>,
    expiries: BTreeSet<(Instant, usize, usize)>,
    flights: HashMap<(Arc<str>, Family), F>,
    counts: Counts,
}

/// A name of which something is known, in one family or in both.
struct Entry {
    name: Arc<str>,
    slots: [Option<Known>; 2],
    links: Links,
}

struct Known {
    outcome: Result<Arc<[IpAddr]>, ResolveError>,
    expires: Instant,
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
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            entries: Slab::new(),
            index: HashMap::new(),
            recent: List::default(),
            expiries: BTreeSet::new(),
            flights: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Looks `name` up; `launch` makes the handle of a new flight.
    pub(crate) fn get(&mut self, now: Instant, name: &str, family: Family, launch: impl FnOnce() -> F) -> Step<F> {
        if let Some(known) = self.known(now, name, family) {
            self.counts.hits += 1;
            return Step::Known(known);
        }
        match self.flights.entry((name.into(), family)) {
            hash_map::Entry::Occupied(flight) => {
                self.counts.coalesced += 1;
                Step::Join(flight.get().clone())
            }
            hash_map::Entry::Vacant(place) => {
                self.counts.misses += 1;
                Step::Start(place.insert(launch()).clone())
            }
        }
    }

    /// Takes a flight's result and keeps it for as long as it may be kept.
    pub(crate) fn landed(&mut self, now: Instant, name: &str, family: Family, result: &Result<Answer, ResolveError>) {
        self.lost(name, family);
        match result {
            Ok(answer) => {
                let ttl = answer.ttl().min(self.config.ttl_ceiling);
                self.keep(now, name, family, Ok(answer.addresses().clone()), ttl);
            }
            Err(error) if error.kind().is_negative() => {
                let ttl = error.negative_ttl().unwrap_or(self.config.negative_default);
                let ttl = ttl.min(self.config.negative_ceiling);
                if error.kind() == ResolveErrorKind::NxDomain {
                    self.keep_nonexistence(now, name, family.other(), error, ttl);
                }
                self.keep(now, name, family, Err(error.clone()), ttl);
            }
            Err(_) => {}
        }
    }

    /// A flight ended without a result; the next lookup starts another one.
    pub(crate) fn lost(&mut self, name: &str, family: Family) {
        self.flights.remove(&(name.into(), family));
    }

    /// Removes what has expired.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(expires, id, slot)) = self.expiries.first()
            && expires <= now
        {
            self.clear(id, slot);
        }
    }

    /// When something expires next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.expiries.first().map(|(expires, ..)| *expires)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// How many names are kept.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn known(&mut self, now: Instant, name: &str, family: Family) -> Option<Result<Answer, ResolveError>> {
        let id = *self.index.get(name)?;
        let known = self.entries[id].slots[family as usize].as_ref().filter(|known| now < known.expires)?;
        let answer = match &known.outcome {
            Ok(addresses) => Ok(Answer::new(addresses.clone(), known.expires - now, Source::Hit)),
            Err(error) => {
                let error = error.clone().with_negative_ttl(Some(known.expires - now));
                Err(error.with_source(Source::Hit))
            }
        };
        self.recent.move_to_front(&mut self.entries, id);
        Some(answer)
    }

    /// NXDOMAIN speaks for both families, but not against an answer that is still good, nor against one on its way:
    /// there are servers that know a name and deny it when asked for IPv6 (RFC 4074 §4.2).
    fn keep_nonexistence(&mut self, now: Instant, name: &str, family: Family, error: &ResolveError, ttl: Duration) {
        if self.flights.contains_key(&(name.into(), family)) {
            return;
        }
        let entry = self.index.get(name).map(|&id| &self.entries[id]);
        let known = entry.and_then(|entry| entry.slots[family as usize].as_ref());
        if known.is_none_or(|known| known.outcome.is_err() || known.expires <= now) {
            let error = ResolveError::new(error.kind(), name, family).with_negative_ttl(error.negative_ttl());
            self.keep(now, name, family, Err(error), ttl);
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
        let slot = family as usize;
        let known = self.index.get(name).copied();
        if ttl.is_zero() || self.config.max_names == 0 {
            if let Some(id) = known {
                self.clear(id, slot);
            }
            return;
        }
        let id = known.unwrap_or_else(|| self.insert(name));
        let expires = now + ttl;
        if let Some(old) = self.entries[id].slots[slot].replace(Known { outcome, expires }) {
            self.expiries.remove(&(old.expires, id, slot));
        }
        self.expiries.insert((expires, id, slot));
    }

    fn insert(&mut self, name: &str) -> usize {
        if self.entries.len() >= self.config.max_names {
            let oldest = self.recent.back().expect("a full cache has an oldest name");
            self.clear(oldest, 0);
            if self.entries.contains(oldest) {
                self.clear(oldest, 1);
            }
        }
        let name: Arc<str> = name.into();
        let id = self.entries.insert(Entry { name: name.clone(), slots: [None, None], links: Links::default() });
        self.index.insert(name, id);
        self.recent.push_front(&mut self.entries, id);
        id
    }

    /// Forgets one family of a name, and the name with the last of them.
    fn clear(&mut self, id: usize, slot: usize) {
        let entry = &mut self.entries[id];
        if let Some(old) = entry.slots[slot].take() {
            self.expiries.remove(&(old.expires, id, slot));
        }
        if entry.slots.iter().all(Option::is_none) {
            self.recent.remove(&mut self.entries, id);
            let entry = self.entries.remove(id);
            self.index.remove(&entry.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Family::{V4, V6};

    const NAMES: usize = 4;

    fn cache(max_names: usize) -> Cache<u32> {
        Cache::new(Config { max_names, ..Config::default() })
    }

    fn t0() -> Instant {
        crate::clock::now()
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn good(last: u8, ttl: u64) -> Result<Answer, ResolveError> {
        Ok(Answer::new([[192, 0, 2, last].into()], secs(ttl), Source::Miss))
    }

    fn bad(kind: ResolveErrorKind, ttl: Option<u64>) -> Result<Answer, ResolveError> {
        Err(ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(secs)))
    }

    fn get(cache: &mut Cache<u32>, now: Instant, name: &str, family: Family) -> Step<u32> {
        cache.get(now, name, family, || 7)
    }

    fn is_known(cache: &mut Cache<u32>, now: Instant, name: &str, family: Family) -> bool {
        let known = matches!(get(cache, now, name, family), Step::Known(_));
        cache.lost(name, family);
        known
    }

    #[test]
    fn one_query_in_flight_a_name_and_family() {
        let (mut cache, now) = (cache(NAMES), t0());
        assert!(matches!(get(&mut cache, now, "n", V4), Step::Start(7)));
        assert!(matches!(get(&mut cache, now, "n", V4), Step::Join(7)));
        assert!(matches!(get(&mut cache, now, "n", V6), Step::Start(7)));
        cache.landed(now, "n", V4, &good(1, 60));
        assert!(matches!(get(&mut cache, now, "n", V4), Step::Known(Ok(_))));
        assert!(matches!(get(&mut cache, now, "n", V6), Step::Join(7)));
    }

    #[test]
    fn an_answer_lives_as_long_as_its_ttl_and_counts_down() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V4, &good(1, 60));
        let Step::Known(Ok(answer)) = get(&mut cache, now + secs(59), "n", V4) else { panic!("known") };
        assert_eq!((answer.ttl(), answer.source()), (secs(1), Source::Hit));
        assert!(matches!(get(&mut cache, now + secs(60), "n", V4), Step::Start(_)));
    }

    #[test]
    fn ttl_zero_serves_only_those_who_wait() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V4, &good(1, 60));
        cache.landed(now, "n", V4, &good(2, 0));
        assert!(!is_known(&mut cache, now, "n", V4));
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn a_ttl_has_a_ceiling() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V4, &Ok(Answer::new([[192, 0, 2, 1].into()], Duration::MAX, Source::Miss)));
        assert_eq!(cache.next_timeout(), Some(now + secs(24 * 60 * 60)));
    }

    #[test]
    fn no_data_is_one_family_and_nxdomain_both() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "half", V4, &bad(ResolveErrorKind::NoData, Some(5)));
        assert!(is_known(&mut cache, now + secs(4), "half", V4));
        assert!(!is_known(&mut cache, now + secs(4), "half", V6));
        assert!(!is_known(&mut cache, now + secs(5), "half", V4));
        cache.landed(now, "none", V4, &bad(ResolveErrorKind::NxDomain, None));
        assert!(is_known(&mut cache, now, "none", V4) && is_known(&mut cache, now, "none", V6));
        assert!(!is_known(&mut cache, now + secs(1), "none", V6));
    }

    #[test]
    fn negative_answers_are_kept_for_30_seconds_at_most() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V4, &bad(ResolveErrorKind::NoData, Some(3_600)));
        assert_eq!(cache.next_timeout(), Some(now + secs(30)));
    }

    #[test]
    fn nxdomain_does_not_overrule_a_good_answer_of_the_other_family() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V6, &good(1, 60));
        cache.landed(now, "n", V4, &bad(ResolveErrorKind::NxDomain, Some(30)));
        assert!(matches!(get(&mut cache, now, "n", V6), Step::Known(Ok(_))));
    }

    #[test]
    fn nxdomain_does_not_speak_for_a_query_in_flight() {
        let (mut cache, now) = (cache(NAMES), t0());
        assert!(matches!(get(&mut cache, now, "n", V4), Step::Start(_)));
        cache.landed(now, "n", V6, &bad(ResolveErrorKind::NxDomain, Some(30)));
        assert!(matches!(get(&mut cache, now, "n", V4), Step::Join(_)));
    }

    #[test]
    fn a_negative_answer_counts_down() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V4, &bad(ResolveErrorKind::NoData, Some(20)));
        let Step::Known(Err(error)) = get(&mut cache, now + secs(15), "n", V4) else { panic!("known") };
        assert_eq!((error.negative_ttl(), error.answered_from()), (Some(secs(5)), Source::Hit));
    }

    #[test]
    fn a_failure_is_not_kept() {
        let (mut cache, now) = (cache(NAMES), t0());
        for kind in [ResolveErrorKind::ServFail, ResolveErrorKind::Timeout, ResolveErrorKind::Unreachable] {
            cache.landed(now, "n", V4, &bad(kind, Some(60)));
            assert!(!is_known(&mut cache, now, "n", V4));
        }
    }

    #[test]
    fn the_least_recently_used_name_leaves() {
        let (mut cache, now) = (cache(2), t0());
        cache.landed(now, "a", V4, &good(1, 60));
        cache.landed(now, "b", V4, &good(1, 60));
        cache.landed(now, "b", V6, &good(1, 60));
        assert!(is_known(&mut cache, now, "a", V4));
        cache.landed(now, "c", V4, &good(1, 60));
        assert!(is_known(&mut cache, now, "a", V4) && is_known(&mut cache, now, "c", V4));
        assert!(!is_known(&mut cache, now, "b", V4) && !is_known(&mut cache, now, "b", V6));
    }

    #[test]
    fn a_bound_of_zero_keeps_nothing() {
        let (mut cache, now) = (cache(0), t0());
        cache.landed(now, "n", V4, &good(1, 60));
        assert_eq!((cache.len(), cache.next_timeout()), (0, None));
    }

    #[test]
    fn a_timeout_really_removes() {
        let (mut cache, now) = (cache(NAMES), t0());
        cache.landed(now, "n", V4, &good(1, 5));
        cache.landed(now, "n", V6, &good(1, 9));
        assert_eq!(cache.next_timeout(), Some(now + secs(5)));
        cache.handle_timeout(now + secs(5));
        assert_eq!((cache.len(), cache.next_timeout()), (1, Some(now + secs(9))));
        cache.handle_timeout(now + secs(9));
        assert_eq!((cache.len(), cache.index.len(), cache.next_timeout()), (0, 0, None));
    }

    /// Random traffic against an oracle that keeps every answer for ever with its expiry.
    #[test]
    fn random_walks_never_serve_what_expired_and_never_outgrow_the_bound() {
        for seed in 0..400 {
            walk(seed);
        }
    }

    fn walk(seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let max_names = random.usize(..8);
        let mut cache = cache(max_names);
        let mut now = t0();
        let mut flying: Vec<(String, Family)> = Vec::new();
        let mut landed: HashMap<(String, Family), (Option<u8>, Instant)> = HashMap::new();
        for step in 0..300 {
            let name = random.u8(..12).to_string();
            let family = if random.bool() { V4 } else { V6 };
            match random.u8(..10) {
                0..=4 => match get(&mut cache, now, &name, family) {
                    Step::Known(result) => {
                        let (last, expires) = landed[&(name, family)];
                        assert!(now < expires, "seed {seed} step {step}: expired");
                        let answered = result.as_ref().ok().map(|answer| answer.addresses()[0]);
                        assert_eq!(answered, last.map(|last| IpAddr::from([192, 0, 2, last])), "seed {seed}");
                        assert!(result.is_err() || result.is_ok_and(|answer| now + answer.ttl() == expires));
                    }
                    Step::Join(_) => assert!(flying.contains(&(name, family)), "seed {seed}: joined nothing"),
                    Step::Start(_) => {
                        assert!(!flying.contains(&(name.clone(), family)), "seed {seed}: a second query");
                        flying.push((name, family));
                    }
                },
                5..=7 if !flying.is_empty() => {
                    let (name, family) = flying.swap_remove(random.usize(..flying.len()));
                    land(&mut cache, &mut random, now, name, family, &mut landed);
                }
                8 => now += secs(random.u64(..20)),
                _ => cache.handle_timeout(now),
            }
            assert!(cache.len() <= max_names, "seed {seed}: over the bound");
            assert_eq!((cache.index.len(), cache.recent.len()), (cache.len(), cache.len()), "seed {seed}");
            assert!(cache.next_timeout().is_some() == (cache.len() > 0), "seed {seed}");
            assert_eq!(cache.flights.len(), flying.len(), "seed {seed}");
        }
        while let Some(at) = cache.next_timeout() {
            cache.handle_timeout(at);
        }
        assert_eq!((cache.len(), cache.index.len(), cache.expiries.len()), (0, 0, 0), "seed {seed}");
    }

    fn land(
        cache: &mut Cache<u32>,
        random: &mut fastrand::Rng,
        now: Instant,
        name: String,
        family: Family,
        landed: &mut HashMap<(String, Family), (Option<u8>, Instant)>,
    ) {
        let ttl = random.u64(..40);
        let last = random.u8(..);
        let (result, known) = match random.u8(..5) {
            0 => (bad(ResolveErrorKind::ServFail, None), None),
            1 => (bad(ResolveErrorKind::NoData, Some(ttl)), Some((None, now + secs(ttl.min(30))))),
            2 => (bad(ResolveErrorKind::NxDomain, Some(ttl)), Some((None, now + secs(ttl.min(30))))),
            _ => (good(last, ttl), Some((Some(last), now + secs(ttl)))),
        };
        cache.landed(now, &name, family, &result);
        let asked = cache.flights.contains_key(&(name.as_str().into(), family.other()));
        if let Err(error) = &result
            && error.kind() == ResolveErrorKind::NxDomain
            && !asked
        {
            let other = landed.entry((name.clone(), family.other())).or_insert((None, now));
            if other.1 <= now || !cache_has(cache, now, &name, family) {
                *other = (None, now + secs(ttl.min(30)));
            }
        }
        if let Some(known) = known {
            landed.insert((name, family), known);
        }
    }

    /// Whether the other family's answer that the oracle has was still in the cache when `family`'s NXDOMAIN came.
    fn cache_has(cache: &Cache<u32>, now: Instant, name: &str, family: Family) -> bool {
        let entry = cache.index.get(name).map(|&id| &cache.entries[id]);
        entry
            .and_then(|entry| entry.slots[family.other() as usize].as_ref())
            .is_some_and(|known| known.outcome.is_ok() && now < known.expires)
    }
}
