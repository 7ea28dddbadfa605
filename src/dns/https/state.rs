//! The rules of the cache of HTTPS records: which answer a lookup gets, and when a query starts. A core: it is given the time.
//!
//! It is apart from the cache of addresses because its rules are fewer: no families, no stale answers, no changes to tell, no
//! timer. What has expired is removed when another name comes.
//!
//! The invariants:
//! * One query at most runs for a name. A second one starts only when the first has run for `max_query_time`.
//! * The result of a query counts only if no other one has replaced it and its name was not forgotten meanwhile.
//! * No more than `max_names` names are kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::world::RandomState;
use slab::Slab;

use super::record::{HttpsAnswer, HttpsRecord};
use crate::clock::Instant;
use crate::dns::ResolveErrorKind;
use crate::list::{Linked, Links, List};

/// The time for which a negative answer without an SOA record is kept.
const DEFAULT_NEGATIVE_TTL: Duration = Duration::from_secs(1);
/// The time without a query after a first failure, and the longest after repeated ones (RFC 9520 §3.2).
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);
/// The time without a query after a failure of this machine.
const LOCAL_BACKOFF: Duration = Duration::from_millis(100);
/// The most expired names that are removed when another one comes.
const MAX_SWEPT: usize = 4;

/// The records of a name, which may be none, or the kind of the failed lookup.
pub(crate) type HttpsOutcome = Result<Arc<[HttpsRecord]>, ResolveErrorKind>;

/// The limits of the cache: those of the cache of addresses.
#[derive(Debug, Clone)]
pub(in crate::dns) struct HttpsLimits {
    pub(in crate::dns) max_names: usize,
    pub(in crate::dns) ttl_floor: Duration,
    pub(in crate::dns) ttl_ceiling: Duration,
    pub(in crate::dns) negative_ceiling: Duration,
    /// The time after which a running query no longer counts.
    pub(in crate::dns) max_query_time: Duration,
}

/// The result of a lookup. `H` is the driver's handle on a running query.
#[derive(Debug)]
pub(super) enum Found<H> {
    /// The outcome, known without waiting. The driver starts the query that comes with it and does not wait for it.
    Known(HttpsOutcome, Option<StartedQuery>),
    /// Another lookup's query to wait for.
    Join(H),
    /// A query to start and to wait for.
    Start(StartedQuery, H),
}

/// The number of a query that the driver has to start. It ends with [`HttpsState::complete`] or [`HttpsState::abandon`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StartedQuery(u64);

/// The names, their records and the running queries.
pub(super) struct HttpsState<H> {
    limits: HttpsLimits,
    entries: Slab<Entry>,
    by_name: HashMap<Arc<str>, usize, RandomState>,
    /// From the most to the least recently used.
    by_use: List<0>,
    running: HashMap<Arc<str>, RunningQuery<H>, RandomState>,
    last_serial: u64,
}

/// A name with its last outcome.
struct Entry {
    name: Arc<str>,
    outcome: HttpsOutcome,
    expires: Instant,
    /// The time from which a lookup starts a query ahead of the expiry.
    refresh_from: Instant,
    /// The time without a query after the last failure; zero after an answer.
    backoff: Duration,
    links: Links,
}

struct RunningQuery<H> {
    serial: u64,
    handle: H,
    counts_until: Instant,
}

impl Linked for Entry {
    fn links(&self, _: usize) -> &Links {
        &self.links
    }

    fn links_mut(&mut self, _: usize) -> &mut Links {
        &mut self.links
    }
}

impl<H: Clone> HttpsState<H> {
    pub(super) fn new(limits: HttpsLimits) -> Self {
        Self {
            limits,
            entries: Slab::new(),
            by_name: HashMap::default(),
            by_use: List::default(),
            running: HashMap::default(),
            last_serial: 0,
        }
    }

    /// Looks up the records of `name`. `new_handle` makes the handle of a query that has to be started.
    ///
    /// A lookup in the last tenth of the TTL gets the records that are known, and starts a query for the next ones.
    pub(super) fn get(&mut self, now: Instant, name: &str, new_handle: impl FnOnce() -> H) -> Found<H> {
        let known = self.by_name.get(name).copied().filter(|id| now < self.entries[*id].expires);
        let Some(id) = known else {
            return match self.running_query(now, name) {
                Some(handle) => Found::Join(handle),
                None => {
                    let (query, handle) = self.start(now, name, new_handle());
                    Found::Start(query, handle)
                }
            };
        };
        self.by_use.move_to_front(&mut self.entries, id);
        let entry = &self.entries[id];
        let outcome = entry.outcome.clone();
        let is_refresh_due = entry.refresh_from <= now && self.running_query(now, name).is_none();
        let refresh = is_refresh_due.then(|| self.start(now, name, new_handle()).0);
        Found::Known(outcome, refresh)
    }

    /// Takes the result of a query. Returns the outcome for the lookups that wait for it.
    pub(super) fn complete(
        &mut self,
        now: Instant,
        name: &str,
        query: StartedQuery,
        result: Result<HttpsAnswer, ResolveErrorKind>,
    ) -> HttpsOutcome {
        let counts = self.abandon(name, query);
        let (outcome, time, backoff) = match result {
            Ok(answer) if answer.records().is_empty() => {
                let ttl = answer.ttl().unwrap_or(DEFAULT_NEGATIVE_TTL).min(self.limits.negative_ceiling);
                (Ok(answer.records().clone()), ttl, Duration::ZERO)
            }
            Ok(answer) => {
                let ttl = self.bounded_ttl(answer.ttl().unwrap_or_default());
                (Ok(answer.records().clone()), ttl, Duration::ZERO)
            }
            Err(kind) => {
                let last = self.by_name.get(name).map_or(Duration::ZERO, |id| self.entries[*id].backoff);
                let backoff =
                    if kind.is_local() { LOCAL_BACKOFF } else { (last * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF) };
                (Err(kind), backoff, backoff)
            }
        };
        if !counts {
            return outcome;
        }
        if outcome.is_err()
            && let Some(known) = self.fresh_records(now, name)
        {
            return Ok(known); // a refresh has failed, and the records are of use until they expire
        }
        self.store(now, name, outcome.clone(), time, backoff);
        outcome
    }

    /// Removes a query that has ended. Returns false if it had been replaced or forgotten, so that its result does not count.
    pub(super) fn abandon(&mut self, name: &str, query: StartedQuery) -> bool {
        let is_current = self.running.get(name).is_some_and(|running| running.serial == query.0);
        if is_current {
            self.running.remove(name);
        }
        is_current
    }

    /// Forgets a name, and those that are made of it and a port. The results of running queries do not count.
    pub(super) fn invalidate(&mut self, name: &str) {
        let is_of_name = |other: &str| other == name || host_of(other) == name;
        self.running.retain(|other, _| !is_of_name(other));
        let ids: Vec<usize> =
            self.entries.iter().filter(|(_, entry)| is_of_name(&entry.name)).map(|(id, _)| id).collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Forgets all names. The results of running queries do not count.
    pub(super) fn flush(&mut self) {
        let limits = self.limits.clone();
        *self = Self { last_serial: self.last_serial, ..Self::new(limits) };
    }

    fn bounded_ttl(&self, ttl: Duration) -> Duration {
        let floor = if ttl.is_zero() { Duration::ZERO } else { self.limits.ttl_floor };
        ttl.max(floor).min(self.limits.ttl_ceiling)
    }

    fn running_query(&self, now: Instant, name: &str) -> Option<H> {
        let running = self.running.get(name).filter(|running| now < running.counts_until);
        running.map(|running| running.handle.clone())
    }

    fn start(&mut self, now: Instant, name: &str, handle: H) -> (StartedQuery, H) {
        self.last_serial += 1;
        let serial = self.last_serial;
        let counts_until = now + self.limits.max_query_time;
        self.running.insert(name.into(), RunningQuery { serial, handle: handle.clone(), counts_until });
        (StartedQuery(serial), handle)
    }

    fn fresh_records(&self, now: Instant, name: &str) -> Option<Arc<[HttpsRecord]>> {
        let entry = &self.entries[*self.by_name.get(name)?];
        entry.outcome.as_ref().ok().filter(|_| now < entry.expires).cloned()
    }

    /// Keeps an outcome for a time. With a time of zero it is not kept, and the last one is forgotten.
    fn store(&mut self, now: Instant, name: &str, outcome: HttpsOutcome, time: Duration, backoff: Duration) {
        if let Some(id) = self.by_name.get(name).copied() {
            self.remove(id);
        }
        if time.is_zero() || self.limits.max_names == 0 {
            return;
        }
        self.make_room(now);
        let name: Arc<str> = name.into();
        let expires = now + time;
        // A failure is not asked about again before its time is over.
        let lead = if outcome.is_ok() { time / 10 } else { Duration::ZERO };
        let entry = Entry {
            name: name.clone(),
            outcome,
            expires,
            refresh_from: expires - lead,
            backoff,
            links: Links::default(),
        };
        let id = self.entries.insert(entry);
        self.by_name.insert(name, id);
        self.by_use.push_front(&mut self.entries, id);
    }

    /// Removes some names that have expired, and the least recently used one if there are too many.
    ///
    /// A failed name is remembered for its back-off once more, so that the next one can be longer.
    fn make_room(&mut self, now: Instant) {
        for _ in 0..MAX_SWEPT {
            let Some(id) = self.by_use.back() else { return };
            let entry = &self.entries[id];
            let has_expired = entry.expires + entry.backoff <= now;
            if !has_expired && self.entries.len() < self.limits.max_names {
                return;
            }
            self.remove(id);
        }
    }

    fn remove(&mut self, id: usize) {
        self.by_use.remove(&mut self.entries, id);
        let entry = self.entries.remove(id);
        self.by_name.remove(&entry.name);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Returns the host of a name that may have a port in front of it, as in `_8443._https.api.test`.
pub(in crate::dns) fn host_of(name: &str) -> &str {
    let after_port = name.strip_prefix('_').and_then(|rest| rest.split_once("._https."));
    match after_port {
        Some((port, host)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(max_names: usize) -> HttpsLimits {
        HttpsLimits {
            max_names,
            ttl_floor: Duration::ZERO,
            ttl_ceiling: 1_000 * SECOND,
            negative_ceiling: 30 * SECOND,
            max_query_time: 10 * SECOND,
        }
    }

    fn state(max_names: usize) -> HttpsState<u32> {
        HttpsState::new(limits(max_names))
    }

    fn answer(ttl: u64) -> Result<HttpsAnswer, ResolveErrorKind> {
        Ok(HttpsAnswer::new([HttpsRecord::service(1, ".")], Duration::from_secs(ttl)))
    }

    fn start(state: &mut HttpsState<u32>, now: Instant, name: &str) -> StartedQuery {
        match state.get(now, name, || 1) {
            Found::Start(query, _) => query,
            other => panic!("{other:?}"),
        }
    }

    fn learn(state: &mut HttpsState<u32>, now: Instant, name: &str, result: Result<HttpsAnswer, ResolveErrorKind>) {
        let query = start(state, now, name);
        let _ = state.complete(now, name, query, result);
    }

    fn is_known(state: &mut HttpsState<u32>, now: Instant, name: &str) -> bool {
        matches!(state.get(now, name, || 1), Found::Known(..))
    }

    #[test]
    fn one_query_runs_and_its_answer_is_kept_for_its_ttl() {
        let now = crate::clock::now();
        let mut state = state(9);
        let query = start(&mut state, now, "n");
        assert!(matches!(state.get(now, "n", || 2), Found::Join(1)));
        assert_eq!(state.complete(now, "n", query, answer(60)).unwrap().len(), 1);
        assert!(matches!(state.get(now + 53 * SECOND, "n", || 3), Found::Known(Ok(_), None)));
        let Found::Known(Ok(_), Some(refresh)) = state.get(now + 54 * SECOND, "n", || 3) else { panic!("it is due") };
        assert!(matches!(state.get(now + 55 * SECOND, "n", || 4), Found::Known(Ok(_), None)), "it runs already");
        let failed = state.complete(now + 56 * SECOND, "n", refresh, Err(ResolveErrorKind::ServFail));
        assert!(failed.is_ok(), "what is known is of use until it expires");
        assert!(matches!(state.get(now + 60 * SECOND, "n", || 5), Found::Start(..)));
    }

    #[test]
    fn an_answer_with_a_ttl_of_zero_is_for_those_that_wait() {
        let now = crate::clock::now();
        let mut state = state(9);
        let query = start(&mut state, now, "n");
        assert!(state.complete(now, "n", query, answer(0)).is_ok());
        assert_eq!(state.len(), 0);
        start(&mut state, now, "n");
    }

    #[test]
    fn an_absence_is_kept_as_its_soa_says() {
        for (ttl, kept) in [(Some(5 * SECOND), 5), (None, 1), (Some(900 * SECOND), 30)] {
            let now = crate::clock::now();
            let mut state = state(9);
            learn(&mut state, now, "n", Ok(HttpsAnswer::absent(ttl)));
            assert!(is_known(&mut state, now + kept * SECOND - SECOND / 1_000, "n"), "{ttl:?}");
            assert!(!is_known(&mut state, now + kept * SECOND, "n"), "{ttl:?}");
        }
    }

    #[test]
    fn a_failure_is_kept_longer_each_time() {
        let now = crate::clock::now();
        let mut state = state(9);
        let mut at = now;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            learn(&mut state, at, "n", Err(ResolveErrorKind::Timeout));
            at += Duration::from_secs(seconds);
            assert!(is_known(&mut state, at - SECOND / 1_000, "n"), "{seconds}");
        }
        learn(&mut state, at, "n", Err(ResolveErrorKind::Local));
        assert!(!is_known(&mut state, at + LOCAL_BACKOFF, "n"));
    }

    #[test]
    fn names_are_limited_and_expired_ones_are_removed() {
        let now = crate::clock::now();
        let mut full = state(2);
        for name in ["a", "b", "a", "c"] {
            if !is_known(&mut full, now, name) {
                full.abandon(name, StartedQuery(full.last_serial));
                learn(&mut full, now, name, answer(60));
            }
        }
        assert_eq!(full.len(), 2);
        assert!(is_known(&mut full, now, "a") && is_known(&mut full, now, "c"), "the least recently used one is gone");
        let mut sweeping = state(100);
        for name in ["a", "b", "c"] {
            learn(&mut sweeping, now, name, answer(1));
        }
        learn(&mut sweeping, now + SECOND, "d", answer(60));
        assert_eq!(sweeping.len(), 1);
        let mut none = state(0);
        learn(&mut none, now, "a", answer(60));
        assert_eq!(none.len(), 0);
    }

    #[test]
    fn the_result_of_a_forgotten_or_replaced_query_is_not_kept() {
        let now = crate::clock::now();
        let mut state = state(9);
        let forgotten = start(&mut state, now, "_8443._https.n");
        state.invalidate("n");
        assert!(state.complete(now, "_8443._https.n", forgotten, answer(60)).is_ok());
        assert_eq!(state.len(), 0);
        let old = start(&mut state, now, "n");
        let late = now + 10 * SECOND;
        let new = start(&mut state, late, "n");
        let _ = state.complete(late, "n", old, answer(60));
        assert_eq!(state.len(), 0);
        let _ = state.complete(late, "n", new, answer(60));
        assert_eq!(state.len(), 1);
        state.flush();
        assert_eq!(state.len(), 0);
    }

    #[test]
    fn the_host_is_what_follows_the_port() {
        assert_eq!(host_of("_8443._https.api.test"), "api.test");
        assert_eq!(host_of("api.test"), "api.test");
        assert_eq!(host_of("_x._https.api.test"), "_x._https.api.test");
    }
}
