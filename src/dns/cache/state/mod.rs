//! The rules of the DNS cache: which answer a lookup gets, and when a query starts. A core: it is given the time, and returns
//! what the driver has to do.
//!
//! | question | see |
//! |---|---|
//! | Which answer does a lookup get? | [`Cache::get`] |
//! | What happens to an answer with a TTL of 0? | [`Cache::store_addresses`] |
//! | Which TTL counts? | [`Config::bounded_ttl`], [`Config::negative_ttl`] |
//! | When is a name refreshed ahead of its expiry? | [`Cache::refresh_lead`], [`FamilyState::take_due_refresh`](family_state::FamilyState::take_due_refresh) |
//! | When is a stale answer served? | [`Cache::get_expired`], [`Cache::record_failure`] |
//! | What ends a stale answer? | [`Cache::complete`] with an answer or a negative one; [`FamilyState::prune`](family_state::FamilyState::prune) |
//! | Does NXDOMAIN count for both families? | [`Cache::store_nonexistence`] |
//! | How long is a name left alone after a failure? | [`FamilyState::record_failure`](family_state::FamilyState::record_failure) |
//! | Which word counts, if servers differ? | [`Cache::take_addresses`], [`Cache::take_absence`] |
//! | Which name is evicted? | [`Entries::find_or_insert`] |
//!
//! The driver reports each event by a call, and does what the call returns:
//!
//! | event | call | returns |
//! |---|---|---|
//! | a lookup | [`Cache::get`] | the outcome, or a query to join or to start |
//! | a name is in use without a lookup | [`Cache::touch`] | a query to start, if one is due |
//! | a query has ended | [`Cache::complete`] | the outcome for those that wait, and the change for subscribers |
//! | an earlier server answers after a later one | [`Cache::take_late`] | the change for subscribers |
//! | none of a name's addresses connects | [`Cache::doubt`] | a query to start, if one is due; a word that waited counts |
//! | the resolver has other servers or files | [`Cache::set_world_changed`] | nothing; the names are asked for again |
//! | a query was lost | [`Cache::abandon`] | true if it counted; the lookups that waited ask again |
//! | a resolver panicked | [`Cache::record_panic`] | nothing; the name backs off |
//! | [`Cache::next_timeout`] has come | [`Cache::handle_timeout`] | names for [`Cache::refresh`] |
//!
//! The invariants:
//! * One query at most runs for a name and family. A second one starts only when the first has run for [`Config::max_query_time`].
//! * The result of a query counts only if no other one has replaced it and its name was not forgotten meanwhile.
//! * An answer is never served as fresh from its expiry on, and never served as stale from `max_stale` after that.
//! * No more than `max_names` names are kept, and each has a time at which it is forgotten unless it is refreshed.

mod entries;
mod family_state;
pub(in crate::dns::cache) mod snapshot;
mod values;

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::dns::cache::state::entries::PinnedNames;
use entries::Entries;
use family_state::FamilyState;
use snapshot::Restorable;

use crate::clock::Instant;
use crate::dns::answer::{Change, Place};
use crate::dns::cache::state::snapshot::Snapshot;
use crate::dns::{Answer, Family, ResolveError, ResolveErrorKind, Sockets, Source, comparable};
use crate::memory::{Flight, Flights, Joined};
use crate::world::RandomState;

pub(crate) use crate::dns::cache::state::values::Config;
pub use values::CacheStats;
pub(crate) use values::{Completed, Lookup, Touched};

/// The longest time for which addresses from before the world changed serve, as stale ones while a query is slow.
const SERVES_AFTER_CHANGE: Duration = Duration::from_millis(1_800);

/// The time beyond its TTL for which addresses are kept where a later server names others.
const HELD_BEYOND_TTL: Duration = Duration::from_secs(30);

/// The time until a name is asked for again after a later server's word was put off.
const HELD_PAUSE: Duration = Duration::from_secs(2);

/// The longest time for which a later server's "does not exist" is kept, and its addresses.
const DOUBTFUL_NO: Duration = Duration::from_secs(1);
const DOUBTFUL_TTL: Duration = Duration::from_secs(60);

/// The time after which a later server's addresses are asked for again in the background.
const DOUBTFUL_REFRESH: Duration = Duration::from_secs(5);
/// The most questions in a second before the usual time: about a later server's addresses, and about those of which none connects.
const EARLY_QUESTIONS: u32 = 20;

/// A name and a family, which a query asks for.
type Key = (Arc<str>, Family);

/// The names, their answers and the running queries. `H` is the driver's handle on a running query.
pub(crate) struct Cache<H> {
    config: Config,
    entries: Entries,
    queries: Flights<Key, H>,
    pins: PinnedNames,
    /// The names with addresses from before the world changed, until they are answered for.
    outdated: HashSet<(Arc<str>, Family), RandomState>,
    /// The number of times that the world changed. An answer to a question from before counts for nothing.
    world: u64,
    /// The last second with early questions, and their number.
    early: (Instant, u32),
    /// The number of changes so far; the serial number of the last one.
    changes: u64,
    jitter: fastrand::Rng,
    counters: CacheStats,
}

impl<H: Clone + Default> Cache<H> {
    /// Creates an empty cache. `seed` determines the jitter of its refreshes.
    pub(crate) fn new(config: Config, seed: u64) -> Self {
        Self {
            entries: Entries::new(config.max_names, config.max_stale),
            queries: Flights::new(config.max_query_time()),
            pins: PinnedNames::default(),
            outdated: HashSet::default(),
            world: 0,
            early: (Instant::NEVER, 0),
            changes: 0,
            jitter: fastrand::Rng::with_seed(seed),
            counters: CacheStats::default(),
            config,
        }
    }

    /// Looks `name` up.
    ///
    /// In this order: a pinned name's addresses; a fresh answer; an expired "no addresses" while the other family is in use;
    /// a stale answer or the last failure; a query.
    pub(crate) fn get(&mut self, now: Instant, name: &str, family: Family) -> Lookup<H> {
        if let Some(pinned) = self.pins.answer(name, family, self.config.ttl_ceiling) {
            self.counters.count_hit(&pinned);
            return Lookup::Known(pinned, None);
        }
        let Some(id) = self.entries.find(name) else { return self.join_or_start(now, name, family, None) };
        self.entries.mark_used(id);
        let state = self.entries.state_mut(id, family);
        if let Some(fresh) = state.fresh(now) {
            state.mark_used();
            let is_late = state.missed_its_refresh(now);
            let is_doubtful = state.place().is_doubtful();
            let is_asked_for = is_late && self.takes_refresh(now, id, family);
            if is_asked_for && is_doubtful {
                // No lookup has used the addresses for 5 s, and the first server may answer again by now.
                return self.join_or_start(now, name, family, fresh.ok());
            }
            self.counters.count_hit(&fresh);
            let refresh = if is_asked_for { self.refresh(now, name, family) } else { None };
            return Lookup::Known(fresh, refresh);
        }
        if let Some(error) = self.stale_no_data(now, id, family) {
            let may_query = self.entries.state(id, family).may_query(now);
            let outcome = Err(error);
            self.counters.count_hit(&outcome);
            let refresh = if may_query { self.refresh(now, name, family) } else { None };
            return Lookup::Known(outcome, refresh);
        }
        self.get_expired(now, id, name, family)
    }

    /// Looks up a name without a fresh answer.
    ///
    /// A lookup waits for a query, unless the last query failed. After a failure the lookup gets the stale answer at once,
    /// if there is one; once after each pause it waits, where the query in the background was lost with its runtime. Without a stale answer it
    /// gets the failure until the back-off ends.
    fn get_expired(&mut self, now: Instant, id: usize, name: &str, family: Family) -> Lookup<H> {
        let longest_pause = self.config.longest_pause;
        let state = self.entries.state_mut(id, family);
        let stale = state.stale(now, self.config.max_stale);
        let may_query = state.may_query(now);
        let outcome = match (stale, state.failure(now)) {
            (stale, None) => return self.join_or_start(now, name, family, stale),
            (None, Some(backoff)) if backoff.again_at(longest_pause) <= now => {
                return self.join_or_start(now, name, family, None);
            }
            (None, Some(backoff)) => Err(backoff.remembered(now, longest_pause)),
            (Some(stale), Some(_)) => Ok(stale),
        };
        state.mark_used();
        self.counters.count_hit(&outcome);
        let refresh = if may_query { self.refresh(now, name, family) } else { None };
        Lookup::Known(outcome, refresh)
    }

    /// Returns an expired "no addresses" while the other family has fresh addresses. A request that can use those does not
    /// wait for addresses that did not exist a moment ago.
    fn stale_no_data(&self, now: Instant, id: usize, family: Family) -> Option<ResolveError> {
        let other = self.entries.state(id, family.other());
        if other.addresses().is_none() || other.expires() <= now {
            return None;
        }
        self.entries.state(id, family).stale_no_data()
    }

    /// Notes that a name is in use without a lookup, and starts its query if that is due: a refresh that was missed, or a
    /// query for a name that has no addresses in either family and is not in a back-off.
    pub(crate) fn touch(&mut self, now: Instant, name: &str, family: Family) -> Touched<H> {
        if self.pins.contains(name) {
            return Touched { has_addresses: true, query: None };
        }
        let Some(id) = self.entries.find(name) else {
            return Touched { has_addresses: false, query: self.refresh(now, name, family) };
        };
        self.entries.mark_used(id);
        let has_addresses = Family::BOTH.iter().any(|family| self.entries.state(id, *family).addresses().is_some());
        let has_passed = Family::BOTH.iter().any(|family| self.entries.state(id, *family).has_passed());
        let state = self.entries.state_mut(id, family);
        state.mark_used();
        let is_known = has_addresses || state.fresh(now).is_some() || state.has_just_passed(now);
        let is_lost = !is_known && state.may_query(now);
        let is_late = state.missed_its_refresh(now);
        let is_due = is_lost || is_late && self.takes_refresh(now, id, family);
        let query = if is_due { self.refresh(now, name, family) } else { None };
        Touched { has_addresses: has_addresses || has_passed, query }
    }

    /// Starts a query for which no lookup waits, as for a name that [`Self::handle_timeout`] returned. Returns `None` if one is running already.
    pub(crate) fn refresh(&mut self, now: Instant, name: &str, family: Family) -> Option<Flight<H>> {
        match self.queries.join_or_add(now, (name.into(), family)) {
            Joined::New(query) => {
                self.counters.refreshes += 1;
                self.set_refreshing(name, family, true);
                Some(query)
            }
            Joined::Running(_) => None,
        }
    }

    /// Has a query asked once more beside itself. The result that comes first counts.
    pub(crate) fn ask_beside(&mut self, name: &str, family: Family, serial: u64) -> Option<Flight<H>> {
        self.queries.begin_beside(&(name.into(), family), serial)
    }

    /// Makes a lookup wait for the running query or for a new one.
    fn join_or_start(&mut self, now: Instant, name: &str, family: Family, stale: Option<Answer>) -> Lookup<H> {
        match self.queries.join_or_add(now, (name.into(), family)) {
            Joined::Running(query) => {
                self.counters.coalesced += 1;
                Lookup::Join(query, stale)
            }
            Joined::New(query) => {
                self.counters.misses += 1;
                Lookup::Start(query, stale)
            }
        }
    }

    fn set_refreshing(&mut self, name: &str, family: Family, is_refreshing: bool) {
        if let Some(id) = self.entries.find(name) {
            self.entries.state_mut(id, family).set_refreshing(is_refreshing);
        }
    }

    /// Returns true if what was asked about a name in the world with this number still counts.
    pub(crate) fn is_of_present_world(&self, name: &str, world: u64) -> bool {
        world == self.world && !self.pins.contains(name)
    }

    /// Takes a query's result, and keeps it for its TTL. The result of a query that no longer counts is only passed on.
    pub(crate) fn complete(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        serial: u64,
        result: Result<Answer, ResolveError>,
    ) -> Completed {
        if !self.end_query(name, family, serial) {
            return Completed { outcome: result, change: None };
        }
        match result {
            Ok(answer) => self.take_addresses(now, name, family, answer),
            Err(error) if error.kind().is_negative() => self.take_absence(now, name, family, error),
            Err(error) => Completed { outcome: self.record_failure(now, name, family, error), change: None },
        }
    }

    /// Takes addresses. What the same or an earlier server says counts at once. A later server's addresses wait while other ones are
    /// known, and stand beside no addresses of the other family that outweigh them.
    fn take_addresses(&mut self, now: Instant, name: &str, family: Family, answer: Answer) -> Completed {
        let place = answer.place();
        let ttl = self.config.bounded_ttl(answer.ttl());
        let ttl = if place.is_doubtful() { ttl.min(DOUBTFUL_TTL) } else { ttl };
        let stands = |state: &FamilyState| state.outweighs(place) && now < state.expires() + HELD_BEYOND_TTL;
        let is_alone = self.entries.find(name).is_none_or(|id| !stands(self.entries.state(id, family.other())));
        let is_news = self.addresses(name, family).is_none_or(|known| !is_same_set(known, answer.addresses()));
        if (is_news || !is_alone)
            && let Some(kept) = self.hold(now, name, family, stands)
        {
            return Completed { outcome: Ok(kept), change: None };
        }
        if !is_alone {
            let error = ResolveError::new(ResolveErrorKind::NoData, name, family);
            return self.take_absence(now, name, family, error.with_negative_ttl(Some(ttl)).with_place(place));
        }
        // Those who use the name need not wait to be sure that it has moved.
        let is_sure = self.outdated.remove(&(name.into(), family)) || self.outweighs_known(name, family, place);
        let change = self.change_to(name, family, answer.addresses().clone(), answer.sockets(), (ttl, is_sure));
        self.store_addresses(now, name, family, &answer, (ttl, is_sure));
        self.outdate_later(now, name, family.other(), place);
        Completed { outcome: Ok(answer), change }
    }

    /// Takes a negative answer. A later server's is put off while addresses are known, and is kept for a moment otherwise, unless the name
    /// has addresses of the other family.
    fn take_absence(&mut self, now: Instant, name: &str, family: Family, error: ResolveError) -> Completed {
        let place = error.place();
        if let Some(kept) = self.hold(now, name, family, |state| state.outweighs_no(place)) {
            return Completed { outcome: Ok(kept), change: None };
        }
        let is_lasting = !place.is_doubtful() || self.addresses(name, family.other()).is_some();
        let ttl = self.config.negative_ttl(&error).min(if is_lasting { Duration::MAX } else { DOUBTFUL_NO });
        let is_outdated = self.outdated.remove(&(name.into(), family));
        let had_addresses = is_outdated || self.addresses(name, family).is_some();
        let is_sure = is_outdated || self.outweighs_known(name, family, place);
        let change =
            if had_addresses { self.change_to(name, family, Arc::new([]), None, (ttl, is_sure)) } else { None };
        if error.kind() == ResolveErrorKind::NxDomain && family == Family::V4 {
            self.store_nonexistence(now, name, &error, ttl);
        }
        self.store_absence(now, name, family, error.clone(), ttl);
        Completed { outcome: Err(error), change }
    }

    /// Returns true if a word from `place` outweighs the one that the known addresses are of.
    fn outweighs_known(&self, name: &str, family: Family, place: Place) -> bool {
        self.entries.find(name).is_some_and(|id| place.is_before(self.entries.state(id, family).place()))
    }

    /// Keeps the known addresses of a name in place of a later server's word, if they `stand`. Returns them.
    fn hold(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        stands: impl Fn(&FamilyState) -> bool,
    ) -> Option<Answer> {
        let id = self.entries.find(name)?;
        let max_stale = self.config.max_stale;
        let state = self.entries.state_mut(id, family);
        if !stands(state) {
            return None;
        }
        let kept = state.fresh(now).and_then(Result::ok).or_else(|| state.stale(now, max_stale))?;
        let error = ResolveError::new(ResolveErrorKind::Timeout, name, family);
        state.hold(now, error.with_cause("a server that comes first did not answer"), HELD_PAUSE);
        self.entries.prune(now, id);
        Some(kept)
    }

    /// Has addresses of a later server than `place` serve only until they are asked for again.
    fn outdate_later(&mut self, now: Instant, name: &str, family: Family, place: Place) {
        let Some(id) = self.entries.find(name) else { return };
        let state = self.entries.state_mut(id, family);
        if state.addresses().is_some() && place.is_before(state.place()) {
            state.outdate(now, SERVES_AFTER_CHANGE, self.config.max_stale);
            self.entries.prune(now, id);
        }
    }

    /// Takes addresses of an earlier server that came after another one's answer, if the world is still the one of the question.
    pub(crate) fn take_late(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        world: u64,
        answer: Answer,
    ) -> Option<Change> {
        if world != self.world || answer.ttl().is_zero() {
            return None;
        }
        self.take_addresses(now, name, family, answer).change
    }

    /// Notes that none of a name's addresses connects, and starts a query for them if they did not come a moment ago. At most 20 names a second
    /// are asked for.
    pub(crate) fn doubt(&mut self, now: Instant, name: &str, family: Family) -> Option<Flight<H>> {
        if self.pins.contains(name) || self.queries.is_running(now, &(name.into(), family)) {
            return None;
        }
        let id = self.entries.find(name)?;
        let is_asked_for = self.entries.state_mut(id, family).doubt(now) && self.takes_turn(now);
        self.entries.prune(now, id);
        if is_asked_for { self.refresh(now, name, family) } else { None }
    }

    /// Returns the number of the present world, for [`Self::take_late`], and the place of the addresses that are known of a name: of this
    /// family, or else of the other.
    pub(crate) fn known(&self, name: &str, family: Family) -> (u64, Option<Place>) {
        let place = |id: usize, family: Family| {
            let state = self.entries.state(id, family);
            state.addresses().map(|_| state.place()).filter(|place| *place != Place::LAST)
        };
        let known = self.entries.find(name).and_then(|id| place(id, family).or_else(|| place(id, family.other())));
        (self.world, known)
    }

    /// Returns true if addresses whose refresh is due are asked for now. Those of a later server are asked for early; where too many are,
    /// their refresh is put off to its usual time.
    fn takes_refresh(&mut self, now: Instant, id: usize, family: Family) -> bool {
        let state = self.entries.state(id, family);
        let is_early = state.place().is_doubtful() && state.expires() - now > DOUBTFUL_TTL / 10;
        if !is_early {
            return true;
        }
        if self.takes_turn(now) {
            return true;
        }
        let lead = self.refresh_lead(DOUBTFUL_TTL);
        self.entries.state_mut(id, family).put_refresh_off(lead);
        self.entries.prune(now, id);
        false
    }

    /// Returns true if a name may be asked for early: 20 a second may.
    fn takes_turn(&mut self, now: Instant) -> bool {
        let (second, count) = self.early;
        let is_over = second == Instant::NEVER || second + Duration::from_secs(1) <= now;
        let (second, count) = if is_over { (now, 0) } else { (second, count) };
        self.early = (second, count + 1);
        count < EARLY_QUESTIONS
    }

    /// Removes a query without a result: it was lost with its runtime, or those that waited gave it up. Returns true if it still counted.
    pub(crate) fn abandon(&mut self, now: Instant, name: &str, family: Family, serial: u64) -> bool {
        let is_current = self.end_query(name, family, serial);
        if is_current && let Some(id) = self.entries.find(name) {
            self.entries.state_mut(id, family).note_lost_query(now);
            self.entries.prune(now, id);
        }
        is_current
    }

    /// Removes a query. Returns true if it still counted.
    fn end_query(&mut self, name: &str, family: Family, serial: u64) -> bool {
        let is_current = self.queries.remove(&(name.into(), family), serial);
        if is_current {
            self.set_refreshing(name, family, false);
        }
        is_current
    }

    /// Records a query whose resolver panicked as a failure: the next query would panic as well.
    pub(crate) fn record_panic(&mut self, now: Instant, name: &str, family: Family, serial: u64) {
        if self.end_query(name, family, serial) {
            let error = ResolveError::new(ResolveErrorKind::Other, name, family).with_cause("the resolver panicked");
            // The lookups that waited ask the cache again, and get this failure or a stale answer then.
            drop(self.record_failure(now, name, family, error));
        }
    }

    /// Forgets what has no further use, and returns the names to refresh.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Vec<(Arc<str>, Family)> {
        let mut refreshes = Vec::new();
        while let Some(id) = self.entries.first_due(now) {
            for family in Family::BOTH {
                if self.entries.state_mut(id, family).take_due_refresh(now) && self.takes_refresh(now, id, family) {
                    refreshes.push((self.entries.name(id).clone(), family));
                }
            }
            self.entries.prune(now, id);
        }
        refreshes
    }

    /// Returns the time of the next call to [`Self::handle_timeout`].
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.entries.next_due()
    }

    /// Returns all addresses, fresh and stale, with their expiry by the system's clock, of which `wall` is the time now.
    pub(crate) fn snapshot(&self, now: Instant, wall: SystemTime) -> Snapshot {
        snapshot::take(&self.entries, now, wall)
    }

    /// Adds the addresses of a snapshot for what is left of their time, except where an answer is known already.
    pub(crate) fn restore(&mut self, now: Instant, wall: SystemTime, snapshot: &Snapshot) {
        // From the most recently used name on, as far as there is room. Known names count as used more recently, and none of
        // them is evicted.
        for record in snapshot.records.iter().rev() {
            let restorable = snapshot::restorable(record, snapshot.taken, now, wall, &self.config);
            let Some(Restorable { name, family, answer, expires }) = restorable else { continue };
            let refresh_lead = self.refresh_lead(expires - now);
            let Some(id) = self.entries.find_or_insert_last(&name) else { continue };
            let state = self.entries.state_mut(id, family);
            if state.is_unknown() {
                state.restore_addresses(&answer, expires, refresh_lead);
            }
            self.entries.prune(now, id);
        }
    }

    /// Forgets a name. The result of a running query goes to the lookups that wait for it, and is not kept.
    pub(crate) fn invalidate(&mut self, name: &str) {
        Family::BOTH.into_iter().for_each(|family| self.queries.forget(&(name.into(), family)));
        for family in Family::BOTH {
            self.outdated.remove(&(name.into(), family));
        }
        if let Some(id) = self.entries.find(name) {
            self.entries.remove(id);
        }
    }

    /// Forgets all names except the pinned ones.
    pub(crate) fn flush(&mut self) {
        self.queries.forget_all();
        self.outdated.clear();
        self.entries.clear();
    }

    /// Takes note that what is known counts for nothing any more: the resolver is another one, or has other files. Each name is asked for
    /// again at its next use; its addresses are stale until then, and for [`SERVES_AFTER_CHANGE`] at most. Queries that run are forgotten.
    pub(crate) fn set_world_changed(&mut self, now: Instant) {
        self.world += 1;
        self.queries.forget_all();
        self.outdated.clear();
        let ids: Vec<_> = self.entries.ids_by_use().collect();
        for id in ids {
            for family in Family::BOTH {
                let state = self.entries.state_mut(id, family);
                if state.addresses().is_some() {
                    state.outdate(now, SERVES_AFTER_CHANGE, self.config.max_stale);
                    self.outdated.insert((self.entries.name(id).clone(), family));
                } else {
                    state.forget_failures();
                }
                self.entries.state_mut(id, family).set_refreshing(false);
            }
            self.entries.prune(now, id);
        }
    }

    /// Answers lookups of `name` with these addresses, until [`Self::unpin`]. Returns the changes for subscribers.
    pub(crate) fn pin(&mut self, now: Instant, name: &str, addresses: &[IpAddr]) -> Vec<Change> {
        self.pins.pin(name, addresses);
        self.present(now, name)
    }

    /// Ends a [`pin`](Self::pin). Returns the changes for subscribers, or `None` if there was none.
    pub(crate) fn unpin(&mut self, now: Instant, name: &str) -> Option<Vec<Change>> {
        self.pins.unpin(name).then(|| self.present(now, name))
    }

    /// Returns what is known of a name as changes, for each way to write it. Where nothing is, the next answer is such a change.
    fn present(&mut self, now: Instant, name: &str) -> Vec<Change> {
        let mut present = Vec::new();
        let relative: Arc<str> = (*comparable(name)).into();
        let absolute: Arc<str> = format!("{relative}.").into();
        for name in [relative, absolute] {
            let known = self.peek(now, &name);
            if known.iter().all(Option::is_none) {
                // Names that nobody asks for again must not fill the memory: there is room for as many as the cache has.
                let room = (4 * self.config.max_names).saturating_sub(self.outdated.len());
                self.outdated.extend(Family::BOTH.map(|family| (name.clone(), family)).into_iter().take(room));
                continue;
            }
            for (family, known) in Family::BOTH.into_iter().zip(known) {
                // A family of which nothing is known beside the other one has no addresses.
                let known = known.map_or_else(|| Answer::new([], Duration::ZERO, Source::Hit), |(known, _)| known);
                self.changes += 1;
                let (addresses, sockets) = (known.addresses().clone(), known.sockets().cloned());
                // Those who use the name need not wait to be sure.
                let (ttl, is_sure, name) = (known.ttl(), true, name.clone());
                present.push(Change { name, family, addresses, sockets, ttl, is_sure, serial: self.changes });
            }
        }
        present
    }

    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats { names: self.len(), evictions: self.entries.evictions(), ..self.counters }
    }

    /// Returns the number of names that are kept.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns a name's addresses, pinned, fresh or stale, and what is left of their TTL, for the families as in [`Family::BOTH`]. It does not
    /// count as a use. The second part of each is true if the addresses took the place of others that count for nothing any more: a connection
    /// to one of those, which may be opened a moment later, leads to where the name is not.
    pub(crate) fn peek(&self, now: Instant, name: &str) -> [Option<(Answer, bool)>; 2] {
        if self.pins.contains(name) {
            return Family::BOTH.map(|family| {
                let pinned = self.pins.answer(name, family, self.config.ttl_ceiling)?;
                Some((pinned.unwrap_or_else(|_| Answer::new([], self.config.ttl_ceiling, Source::Pinned)), true))
            });
        }
        let Some(id) = self.entries.find(name) else { return [None, None] };
        Family::BOTH.map(|family| {
            let state = self.entries.state(id, family);
            Some((state.last(state.expires() - now, Source::Hit)?, state.is_sure()))
        })
    }

    /// Returns the last addresses of a name, fresh or stale.
    fn addresses(&self, name: &str, family: Family) -> Option<&Arc<[IpAddr]>> {
        self.entries.state(self.entries.find(name)?, family).addresses()
    }

    /// Returns the change to these addresses, unless they are the same as the last ones.
    fn change_to(
        &mut self,
        name: &str,
        family: Family,
        addresses: Arc<[IpAddr]>,
        sockets: Option<&Sockets>,
        (ttl, is_sure): (Duration, bool),
    ) -> Option<Change> {
        if self.pins.contains(name) {
            return None;
        }
        let has_same_ports = |last: Option<&Sockets>| match (last, sockets) {
            (Some(last), Some(sockets)) => is_same_set(last, sockets),
            (last, sockets) => last.is_none() && sockets.is_none(),
        };
        let state = self.entries.find(name).map(|id| self.entries.state(id, family));
        let last = state.and_then(|state| Some((state.addresses()?, state.sockets())));
        if last.is_some_and(|(last, ports)| is_same_set(last, &addresses) && has_same_ports(ports)) {
            return None;
        }
        self.changes += 1;
        let sockets = sockets.cloned();
        Some(Change { name: name.into(), family, addresses, sockets, ttl, is_sure, serial: self.changes })
    }

    /// Returns the time between a refresh and the expiry: a random part of the TTL between 5 % and 10 %. Names that were
    /// learnt together are then not queried together.
    fn refresh_lead(&mut self, ttl: Duration) -> Duration {
        ttl.mul_f64(0.05 + 0.05 * self.jitter.f64())
    }

    /// Keeps addresses for their TTL. With a TTL of zero they are not kept, and those known before are forgotten: only the
    /// lookups that wait for the query get them. Where the name is in use without lookups, it is asked about again after 2 s.
    fn store_addresses(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        answer: &Answer,
        (ttl, is_sure): (Duration, bool),
    ) {
        if ttl.is_zero() {
            if let Some(id) = self.entries.find_or_insert_last(name) {
                self.entries.state_mut(id, family).pass(now);
                self.entries.prune(now, id);
            }
            return;
        }
        let Some(id) = self.entries.find_or_insert(name) else { return };
        let early = if answer.place().is_doubtful() { ttl.saturating_sub(DOUBTFUL_REFRESH) } else { Duration::ZERO };
        let lead = self.refresh_lead(ttl).max(early);
        self.entries.state_mut(id, family).store_addresses(now, answer, now + ttl, lead, is_sure);
        self.entries.prune(now, id);
    }

    /// Keeps a negative answer for its TTL. With a TTL of zero no entry is made for it.
    fn store_absence(&mut self, now: Instant, name: &str, family: Family, error: ResolveError, ttl: Duration) {
        let id = if ttl.is_zero() { self.entries.find(name) } else { self.entries.find_or_insert(name) };
        let Some(id) = id else { return };
        self.entries.state_mut(id, family).store_absence(error, now + ttl);
        self.entries.prune(now, id);
    }

    /// Applies an NXDOMAIN for IPv4 to IPv6 as well, unless something is known of IPv6 or a query for it is running.
    ///
    /// NXDOMAIN for IPv6 does not apply to IPv4: some servers know a name and deny it when asked for IPv6 (RFC 4074 §4.2).
    fn store_nonexistence(&mut self, now: Instant, name: &str, error: &ResolveError, ttl: Duration) {
        let is_known = self.entries.find(name).is_some_and(|id| !self.entries.state(id, Family::V6).is_empty());
        if is_known || self.queries.is_running(now, &(name.into(), Family::V6)) {
            return;
        }
        let error = ResolveError::new(error.kind(), name, Family::V6).with_negative_ttl(error.negative_ttl());
        self.store_absence(now, name, Family::V6, error, ttl);
    }

    /// Begins a back-off after a failed query. Returns the last answer, fresh or stale, in place of the failure if there is one.
    fn record_failure(
        &mut self,
        now: Instant,
        name: &str,
        family: Family,
        error: ResolveError,
    ) -> Result<Answer, ResolveError> {
        self.counters.failures += 1;
        let Some(id) = self.entries.find_or_insert(name) else { return Err(error) };
        let state = self.entries.state_mut(id, family);
        state.record_failure(now, error.clone());
        let again_at = state.failure(now).map(|backoff| backoff.again_at(self.config.longest_pause));
        let error = again_at.map_or_else(|| error.clone(), |again_at| error.clone().with_pause(None, again_at - now));
        let fresh = state.fresh(now).and_then(Result::ok);
        let outcome = fresh.or_else(|| state.stale(now, self.config.max_stale)).ok_or(error);
        self.entries.prune(now, id);
        outcome
    }
}

/// Returns true if both have the same addresses, in any order.
fn is_same_set<A: Ord + Copy>(one: &[A], other: &[A]) -> bool {
    let sorted = |addresses: &[A]| {
        let mut addresses = addresses.to_vec();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    };
    one == other || sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests;
