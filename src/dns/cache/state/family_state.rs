//! The last answer for a name in one family, its expiry, its refresh and its back-off. A core, kept small because every name
//! has two.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::dns::answer::Place;
use crate::dns::{Answer, ResolveError, ResolveErrorKind, Sockets, Source};

/// The time without a query after a first failure, and the longest after repeated ones (RFC 9520 §3.2).
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The time in which an answer is not asked for again, if none of its addresses connects.
const SURE_FOR: Duration = Duration::from_secs(2);

/// The time in which a name in use is not asked about again after an answer with a TTL of zero.
const PASSED_FOR: Duration = Duration::from_secs(2);
/// The time for which such an answer is remembered.
const PASSED_REMEMBERED: Duration = Duration::from_secs(60);

/// The time without a query after a failure of this machine. It does not grow: no server is spared by waiting, and the
/// failure is over as soon as its cause is.
const LOCAL_BACKOFF: Duration = Duration::from_millis(100);

/// The state of a name in one family.
pub(super) struct FamilyState {
    answer: LastAnswer,
    /// The end of the answer's TTL.
    expires: Instant,
    backoff: Option<Box<Backoff>>,
    /// The time between the refresh and the expiry, in milliseconds. Enough for 49 days.
    refresh_lead_ms: u32,
    /// The time between the answer and the expiry, in milliseconds.
    ttl_ms: u32,
    /// True until the refresh time has come.
    is_refresh_ahead: bool,
    /// True if the answer was used since it came.
    was_used: bool,
    /// True while a refresh runs.
    is_refreshing: bool,
    /// True if the addresses are kept although a later server says something else.
    is_held: bool,
    /// True if the addresses took the place of others that count for nothing any more.
    is_sure: bool,
    /// The place that the answer is of.
    place: Place,
}

/// The last answer that says something about the addresses.
enum LastAnswer {
    Unknown,
    /// Addresses with a TTL of zero, which are not kept.
    Passed,
    Addresses(Arc<[IpAddr]>),
    /// Addresses with ports of their own. Boxed, because few have any.
    Sockets(Box<(Arc<[IpAddr]>, Sockets)>),
    /// "Does not exist" or "no addresses".
    Absent(Box<ResolveError>),
}

/// The last query failed. No other one starts before `retry_at`.
pub(super) struct Backoff {
    error: ResolveError,
    retry_at: Instant,
    delay: Duration,
    /// True if the query after the pause was lost.
    is_lost: bool,
}

impl Backoff {
    fn failed_at(&self) -> Instant {
        self.retry_at - self.delay
    }

    /// Returns the time from which on a lookup without a stale answer asks again.
    pub(super) fn again_at(&self, longest: Duration) -> Instant {
        self.failed_at() + self.delay.min(longest)
    }

    /// Returns the failure for a lookup that does not ask.
    pub(super) fn remembered(&self, now: Instant, longest: Duration) -> ResolveError {
        let error = self.error.clone().with_source(Source::Hit);
        error.with_pause(Some(now - self.failed_at()), self.again_at(longest) - now)
    }
}

impl Default for FamilyState {
    fn default() -> Self {
        Self {
            answer: LastAnswer::Unknown,
            expires: Instant::NEVER,
            backoff: None,
            refresh_lead_ms: 0,
            ttl_ms: 0,
            is_refresh_ahead: false,
            was_used: false,
            is_refreshing: false,
            is_held: false,
            is_sure: false,
            place: Place::default(),
        }
    }
}

impl FamilyState {
    /// Returns the answer if its TTL has not expired, with what is left of the TTL.
    #[inline]
    pub(super) fn fresh(&self, now: Instant) -> Option<Result<Answer, ResolveError>> {
        if self.expires <= now {
            return None;
        }
        let left = self.expires - now;
        match &self.answer {
            LastAnswer::Unknown | LastAnswer::Passed => None,
            LastAnswer::Addresses(addresses) => {
                Some(Ok(Answer::new(addresses.clone(), left, Source::Hit).with_place(self.place)))
            }
            LastAnswer::Sockets(_) => self.last(left, Source::Hit).map(Ok),
            LastAnswer::Absent(error) => {
                let error = ResolveError::clone(error);
                Some(Err(error.with_negative_ttl(Some(left)).with_source(Source::Hit)))
            }
        }
    }

    /// Returns the addresses as a stale answer (RFC 8767), until `max_stale` after their expiry.
    pub(super) fn stale(&self, now: Instant, max_stale: Duration) -> Option<Answer> {
        if now < self.expires + max_stale { self.last(Duration::ZERO, Source::Stale) } else { None }
    }

    /// Returns the last addresses as an answer.
    #[inline]
    pub(super) fn last(&self, ttl: Duration, source: Source) -> Option<Answer> {
        match &self.answer {
            LastAnswer::Addresses(addresses) => Some(Answer::new(addresses.clone(), ttl, source)),
            LastAnswer::Sockets(known) => {
                Some(Answer::new(known.0.clone(), ttl, source).with_sockets(Some(known.1.clone())))
            }
            _ => None,
        }
        .map(|answer| answer.with_place(self.place))
    }

    /// Returns the last addresses with their ports, if some have one.
    pub(super) fn sockets(&self) -> Option<&Sockets> {
        match &self.answer {
            LastAnswer::Sockets(known) => Some(&known.1),
            _ => None,
        }
    }

    /// Returns a "no addresses", also past its expiry; the caller decides how long that may be served.
    pub(super) fn stale_no_data(&self) -> Option<ResolveError> {
        match &self.answer {
            LastAnswer::Absent(error) if error.kind() == ResolveErrorKind::NoData => {
                let error = ResolveError::clone(error);
                Some(error.with_negative_ttl(Some(Duration::ZERO)).with_source(Source::Stale))
            }
            _ => None,
        }
    }

    /// Returns the last addresses, fresh or stale.
    #[inline]
    pub(super) fn addresses(&self) -> Option<&Arc<[IpAddr]>> {
        match &self.answer {
            LastAnswer::Addresses(addresses) => Some(addresses),
            LastAnswer::Sockets(known) => Some(&known.0),
            _ => None,
        }
    }

    /// Returns the place that the answer is of.
    pub(super) fn place(&self) -> Place {
        self.place
    }

    /// Returns true if the addresses took the place of others that count for nothing any more.
    pub(super) fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// Returns true if addresses are known that outweigh a word from `place`.
    pub(super) fn outweighs(&self, place: Place) -> bool {
        self.addresses().is_some() && self.place.is_before(place)
    }

    /// Returns true if addresses are known that outweigh a "no" from `place`.
    pub(super) fn outweighs_no(&self, place: Place) -> bool {
        self.addresses().is_some() && self.place.outweighs_no(place)
    }

    /// Keeps the addresses although a later server says something else, and leaves the name alone for `pause`.
    pub(super) fn hold(&mut self, now: Instant, error: ResolveError, pause: Duration) {
        self.is_held = true;
        self.backoff = Some(Box::new(Backoff { error, retry_at: now + pause, delay: pause, is_lost: false }));
    }

    /// Notes that none of the addresses connects. Where they are kept beyond their TTL in place of a later server's word, any other address
    /// counts from now on. Returns true if they are asked for anew: unless they have just come, or the last query has just failed.
    pub(super) fn doubt(&mut self, now: Instant) -> bool {
        if self.addresses().is_none() {
            return false;
        }
        if self.is_held && self.expires <= now && self.place != self.place.let_go() {
            (self.is_held, self.backoff, self.place) = (false, None, self.place.let_go());
            return true;
        }
        self.may_query(now) && self.expires - Duration::from_millis(self.ttl_ms.into()) + SURE_FOR <= now
    }

    /// Has the addresses expire now, and count for nothing beside any answer. As stale ones they serve for `serves` more at most.
    pub(super) fn outdate(&mut self, now: Instant, serves: Duration, max_stale: Duration) {
        self.place = Place::LAST;
        self.is_held = false;
        self.backoff = None;
        let expired = if max_stale > serves { now + serves - max_stale } else { now };
        self.expires = self.expires.min(expired);
        self.is_refresh_ahead = false;
    }

    /// Forgets the failure of the last query, and a negative answer.
    pub(super) fn forget_failures(&mut self) {
        self.backoff = None;
        if matches!(self.answer, LastAnswer::Absent(_)) {
            self.answer = LastAnswer::Unknown;
            self.expires = Instant::NEVER;
            self.is_refresh_ahead = false;
        }
    }

    /// Takes note of a query that was lost. Where addresses are known, the pause after the failure before it runs anew.
    pub(super) fn note_lost_query(&mut self, now: Instant) {
        let is_known = self.addresses().is_some();
        if let Some(backoff) = self.backoff.as_mut().filter(|_| is_known) {
            (backoff.retry_at, backoff.is_lost) = (now + backoff.delay, true);
        }
    }

    pub(super) fn expires(&self) -> Instant {
        self.expires
    }

    /// Returns the failure of the last query, if that failed and the next one is not waited for in its place.
    pub(super) fn failure(&self, now: Instant) -> Option<&Backoff> {
        self.backoff.as_deref().filter(|backoff| !backoff.is_lost || now < backoff.retry_at)
    }

    /// Returns true unless the last query failed a short time ago.
    pub(super) fn may_query(&self, now: Instant) -> bool {
        self.backoff.as_ref().is_none_or(|backoff| backoff.retry_at <= now)
    }

    /// Returns true if the last answer had a TTL of zero.
    pub(super) fn has_passed(&self) -> bool {
        matches!(self.answer, LastAnswer::Passed)
    }

    /// Returns true if an answer with a TTL of zero came a moment ago.
    pub(super) fn has_just_passed(&self, now: Instant) -> bool {
        self.has_passed() && now < self.expires - PASSED_REMEMBERED + PASSED_FOR
    }

    /// Notes addresses with a TTL of zero.
    pub(super) fn pass(&mut self, now: Instant) {
        *self = Self { answer: LastAnswer::Passed, expires: now + PASSED_REMEMBERED, ..Self::default() };
    }

    /// Returns true if neither an answer nor a failure is known.
    pub(super) fn is_empty(&self) -> bool {
        self.is_unknown() && self.backoff.is_none()
    }

    /// Returns true if no answer is known.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.answer, LastAnswer::Unknown | LastAnswer::Passed)
    }

    #[inline]
    pub(super) fn mark_used(&mut self) {
        // Written once, not on each hit: the cache line stays shared between processor cores.
        if !self.was_used {
            self.was_used = true;
        }
    }

    /// Returns true if addresses are past the time of their refresh and no refresh runs. They were not used before that
    /// time, or their refresh failed.
    #[inline]
    pub(super) fn missed_its_refresh(&self, now: Instant) -> bool {
        let is_past_its_time = !self.is_refresh_ahead || self.refresh_at() <= now;
        self.addresses().is_some() && !self.is_refreshing && is_past_its_time && self.may_query(now)
    }

    /// Returns true if the time of the refresh has come and the answer was used. Returns true once for an answer.
    pub(super) fn take_due_refresh(&mut self, now: Instant) -> bool {
        let is_due = self.is_refresh_ahead && self.refresh_at() <= now && now < self.expires;
        if is_due {
            self.is_refresh_ahead = false;
        }
        is_due && self.was_used
    }

    /// Puts the refresh off, to `lead` before the expiry.
    pub(super) fn put_refresh_off(&mut self, lead: Duration) {
        self.refresh_lead_ms = millis(lead);
        self.is_refresh_ahead = true;
    }

    #[inline]
    fn refresh_at(&self) -> Instant {
        self.expires - Duration::from_millis(self.refresh_lead_ms.into())
    }

    pub(super) fn set_refreshing(&mut self, is_refreshing: bool) {
        self.is_refreshing = is_refreshing;
    }

    /// Stores addresses until they expire. Their refresh is due `refresh_lead` before that. `is_sure` says that they take the place of others
    /// that count for nothing any more.
    pub(super) fn store_addresses(
        &mut self,
        now: Instant,
        answer: &Answer,
        expires: Instant,
        refresh_lead: Duration,
        is_sure: bool,
    ) {
        let addresses = answer.addresses().clone();
        *self = Self {
            answer: match answer.sockets() {
                None => LastAnswer::Addresses(addresses),
                Some(sockets) => LastAnswer::Sockets(Box::new((addresses, sockets.clone()))),
            },
            expires,
            refresh_lead_ms: millis(refresh_lead),
            ttl_ms: millis(expires - now),
            is_refresh_ahead: true,
            is_sure,
            place: answer.place(),
            ..Self::default()
        };
    }

    /// Stores addresses of a snapshot. Unlike an answer, they do not end a back-off.
    pub(super) fn restore_addresses(&mut self, answer: &Answer, expires: Instant, refresh_lead: Duration) {
        let backoff = self.backoff.take();
        self.store_addresses(expires, answer, expires, refresh_lead, false);
        (self.backoff, self.ttl_ms) = (backoff, u32::MAX);
    }

    /// Stores a "does not exist" or "no addresses" until it expires.
    pub(super) fn store_absence(&mut self, error: ResolveError, expires: Instant) {
        *self = Self { answer: LastAnswer::Absent(Box::new(error)), expires, ..Self::default() };
    }

    /// Begins a back-off after a failed query: 100 ms after a failure of this machine, otherwise twice as long as the last
    /// one, between 1 s and 30 s. The last answer stays.
    pub(super) fn record_failure(&mut self, now: Instant, error: ResolveError) {
        let delay = match &self.backoff {
            _ if error.kind().is_local() => LOCAL_BACKOFF,
            Some(last) => (last.delay * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF),
            None => FIRST_BACKOFF,
        };
        self.backoff = Some(Box::new(Backoff { error, retry_at: now + delay, delay, is_lost: false }));
    }

    /// Forgets what has no further use, and returns the next time at which something is to be refreshed or forgotten.
    ///
    /// Addresses are of use until `max_stale` after their expiry, "does not exist" until its expiry, and "no addresses"
    /// also for as long as the other family's addresses are fresh, which is until `other_expires`. A back-off is remembered
    /// for its delay once more after its end, so that the next one can be longer.
    pub(super) fn prune(&mut self, now: Instant, max_stale: Duration, other_expires: Option<Instant>) -> Instant {
        let forget_at = match &self.answer {
            LastAnswer::Unknown => Instant::NEVER,
            LastAnswer::Addresses(_) | LastAnswer::Sockets(_) => self.expires + max_stale,
            LastAnswer::Absent(error) if error.kind() == ResolveErrorKind::NoData => {
                self.expires.max(other_expires.unwrap_or(self.expires))
            }
            LastAnswer::Absent(_) | LastAnswer::Passed => self.expires,
        };
        let refresh_at =
            if self.is_refresh_ahead && self.refresh_at() > now { self.refresh_at() } else { Instant::NEVER };
        let known_until = if forget_at > now { forget_at } else { Instant::NEVER };
        if known_until == Instant::NEVER {
            *self = Self { backoff: self.backoff.take(), ..Self::default() };
        }
        let backoff_until = self.backoff.as_ref().map(|backoff| backoff.retry_at + backoff.delay);
        let backoff_until = backoff_until.filter(|until| *until > now);
        if backoff_until.is_none() {
            self.backoff = None;
        }
        refresh_at.min(known_until).min(backoff_until.unwrap_or(Instant::NEVER))
    }
}

/// Returns a time in milliseconds; the longest one in place of a longer one.
fn millis(time: Duration) -> u32 {
    time.as_millis().try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Family;

    fn start() -> Instant {
        crate::clock::now()
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn answer() -> Answer {
        Answer::new([[192, 0, 2, 1].into()], Duration::ZERO, Source::Miss)
    }

    fn with_addresses(now: Instant) -> FamilyState {
        let mut state = FamilyState::default();
        state.store_addresses(now, &answer(), now + secs(100), secs(10), false);
        state
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<FamilyState>() <= 56, "{}", size_of::<FamilyState>());
    }

    #[test]
    fn a_refresh_is_due_once_and_only_if_the_answer_was_used() {
        let now = start();
        let mut unused = with_addresses(now);
        assert!(!unused.take_due_refresh(now + secs(90)));
        assert!(unused.missed_its_refresh(now + secs(90)), "the next use begins it");
        let mut used = with_addresses(now);
        used.mark_used();
        assert!(!used.take_due_refresh(now + secs(89)));
        assert!(used.take_due_refresh(now + secs(90)));
        assert!(!used.take_due_refresh(now + secs(91)));
    }

    #[test]
    fn pruning_names_the_next_time_and_forgets_after_the_stale_time() {
        let now = start();
        let mut state = with_addresses(now);
        assert_eq!(state.prune(now, secs(50), None), now + secs(90), "the refresh");
        assert_eq!(state.prune(now + secs(90), secs(50), None), now + secs(150), "the end of the stale time");
        assert!(state.addresses().is_some());
        assert_eq!(state.prune(now + secs(150), secs(50), None), Instant::NEVER);
        assert!(state.is_empty());
    }

    #[test]
    fn a_failure_keeps_the_answer_and_begins_a_backoff() {
        let now = start();
        let mut state = with_addresses(now);
        state.record_failure(now, ResolveError::new(ResolveErrorKind::ServFail, "n", Family::V4));
        assert!(!state.may_query(now) && state.may_query(now + secs(1)));
        assert!(state.failure(now).is_some() && state.fresh(now).is_some());
    }

    #[test]
    fn no_refresh_is_due_from_the_expiry_on() {
        let now = start();
        let mut state = with_addresses(now);
        state.mark_used();
        assert!(!state.take_due_refresh(now + secs(100)));
    }

    #[test]
    fn only_no_data_is_of_use_for_as_long_as_the_other_family() {
        let now = start();
        let pruned = |kind, other_expires: Option<Instant>| {
            let mut state = FamilyState::default();
            state.store_absence(ResolveError::new(kind, "n", Family::V4), now + secs(5));
            state.prune(now, secs(50), other_expires)
        };
        let other = now + secs(60);
        assert_eq!(pruned(ResolveErrorKind::NxDomain, Some(other)), now + secs(5));
        assert_eq!(pruned(ResolveErrorKind::NoData, Some(other)), other);
        assert_eq!(pruned(ResolveErrorKind::NoData, Some(now)), now + secs(5));
        assert_eq!(pruned(ResolveErrorKind::NoData, None), now + secs(5));
    }
}
