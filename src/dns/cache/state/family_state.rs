//! What is known of a name in one family, and until when. A core, and a small one: there are two for every name.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::dns::{Answer, ResolveError, ResolveErrorKind, Source};

/// How long a name that failed is not asked for: at first, and at most (RFC 9520 §3.2).
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The same where no server had a part in the failure: it ends when its cause does, and waiting spares no server.
const LOCAL_PAUSE: Duration = Duration::from_millis(100);

/// A moment, in the nanoseconds of a [`Watch`]: half the size of an `Instant`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tick(u64);

impl Tick {
    pub(super) const NEVER: Self = Self(u64::MAX);
    /// Far from zero, so that what is restored may have expired long before the watch was started.
    const START: Self = Self(1 << 62);

    #[inline]
    pub(super) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }

    #[inline]
    pub(super) fn before(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(time)))
    }

    /// How long it is until then; nothing if it has passed.
    #[inline]
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

/// Counts ticks from the moment it was started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn start(now: Instant) -> Self {
        Self(now)
    }

    #[inline]
    pub(super) fn tick(&self, now: Instant) -> Tick {
        match now.checked_duration_since(self.0) {
            Some(since) => Tick::START.after(since),
            None => Tick::START.before(self.0 - now),
        }
    }

    pub(super) fn instant(&self, tick: Tick) -> Instant {
        self.0 + tick.since(Tick::START)
    }
}

/// What is known of a name in one family.
pub(super) struct Slot {
    known: Known,
    expires: Tick,
    failed: Option<Box<Failed>>,
    /// How many milliseconds ahead of expiry to ask again, if it is used until then. Enough for 49 days.
    lead: u32,
    /// Whether the time for that is still to come.
    ahead: bool,
    used: bool,
    /// Whether somebody asks already.
    asking: bool,
}

/// The last answer.
enum Known {
    Unknown,
    Addresses(Arc<[IpAddr]>),
    Nothing(Box<ResolveError>),
}

/// The last query failed: the name is left alone for a while.
struct Failed {
    error: ResolveError,
    retry_at: Tick,
    backoff: Duration,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            known: Known::Unknown,
            expires: Tick::NEVER,
            failed: None,
            lead: 0,
            ahead: false,
            used: false,
            asking: false,
        }
    }
}

impl Slot {
    /// What a lookup is told within the answer's time.
    #[inline]
    pub(super) fn fresh(&self, now: Tick) -> Option<Result<Answer, ResolveError>> {
        if self.expires <= now {
            return None;
        }
        let left = self.expires.since(now);
        match &self.known {
            Known::Unknown => None,
            Known::Addresses(addresses) => Some(Ok(Answer::new(addresses.clone(), left, Source::Hit))),
            Known::Nothing(error) => {
                let error = ResolveError::clone(error);
                Some(Err(error.with_negative_ttl(Some(left)).with_source(Source::Hit)))
            }
        }
    }

    /// What stands in for an answer that cannot be had, for as long as it may.
    pub(super) fn stale(&self, now: Tick, longest: Duration) -> Option<Answer> {
        let addresses = self.addresses().filter(|_| now < self.expires.after(longest))?;
        Some(Answer::new(addresses.clone(), Duration::ZERO, Source::Stale))
    }

    /// That the name has no addresses in this family, which is told past its time while the other family is in use.
    pub(super) fn absence(&self) -> Option<ResolveError> {
        match &self.known {
            Known::Nothing(error) if error.kind() == ResolveErrorKind::NoData => {
                let error = ResolveError::clone(error);
                Some(error.with_negative_ttl(Some(Duration::ZERO)).with_source(Source::Stale))
            }
            _ => None,
        }
    }

    #[inline]
    pub(super) fn addresses(&self) -> Option<&Arc<[IpAddr]>> {
        match &self.known {
            Known::Addresses(addresses) => Some(addresses),
            _ => None,
        }
    }

    pub(super) fn expires(&self) -> Tick {
        self.expires
    }

    /// The failure of the last query, and when the next one may be.
    pub(super) fn failure(&self) -> Option<(Tick, &ResolveError)> {
        self.failed.as_ref().map(|failed| (failed.retry_at, &failed.error))
    }

    #[inline]
    pub(super) fn mark_used(&mut self) {
        // Not written again on each hit: other cores have the line, too.
        if !self.used {
            self.used = true;
        }
    }

    /// Whether an answer is past the time to ask ahead with nobody asking, because nobody used it until then.
    #[inline]
    pub(super) fn missed_its_refresh(&self, now: Tick) -> bool {
        let is_time = self.addresses().is_some() && !self.asking && (!self.ahead || self.refresh_at() <= now);
        is_time && self.failed.as_ref().is_none_or(|failed| failed.retry_at <= now)
    }

    /// Whether the time to ask ahead has come and somebody used the answer; it comes once.
    pub(super) fn is_to_be_refreshed(&mut self, now: Tick) -> bool {
        let due = self.ahead && self.refresh_at() <= now && now < self.expires;
        self.ahead &= !due;
        due && self.used
    }

    #[inline]
    fn refresh_at(&self) -> Tick {
        self.expires.before(Duration::from_millis(self.lead.into()))
    }

    /// Keeps addresses until they expire, and asks again so much ahead.
    pub(super) fn keep(&mut self, addresses: Arc<[IpAddr]>, expires: Tick, lead: Duration) {
        let lead = lead.as_millis().try_into().unwrap_or(u32::MAX);
        *self = Self { known: Known::Addresses(addresses), expires, lead, ahead: true, ..Self::default() };
    }

    /// The same for what was known once; a failure since then still counts.
    pub(super) fn restore(&mut self, addresses: Arc<[IpAddr]>, expires: Tick, lead: Duration) {
        let failed = self.failed.take();
        self.keep(addresses, expires, lead);
        self.failed = failed;
    }

    pub(super) fn set_asking(&mut self, asking: bool) {
        self.asking = asking;
    }

    pub(super) fn keep_nothing(&mut self, error: ResolveError, expires: Tick) {
        *self = Self { known: Known::Nothing(Box::new(error)), expires, ..Self::default() };
    }

    /// A query failed: the name is left alone for twice as long as last time, or for a moment where the failure is local.
    pub(super) fn fail(&mut self, now: Tick, error: ResolveError) {
        let backoff = match &self.failed {
            _ if error.kind().is_local() => LOCAL_PAUSE,
            Some(last) => (last.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF),
            None => FIRST_BACKOFF,
        };
        self.failed = Some(Box::new(Failed { error, retry_at: now.after(backoff), backoff }));
    }

    /// Forgets what is past its use, and says when there is something to do next. `other` is when the addresses of the
    /// other family expire, where it has any.
    pub(super) fn settle(&mut self, now: Tick, stale: Duration, other: Option<Tick>) -> Tick {
        let forget = match &self.known {
            Known::Unknown => Tick::NEVER,
            Known::Addresses(_) => self.expires.after(stale),
            Known::Nothing(error) if error.kind() == ResolveErrorKind::NoData => {
                self.expires.max(other.unwrap_or(self.expires))
            }
            Known::Nothing(_) => self.expires,
        };
        let refresh = if self.ahead && self.refresh_at() > now { self.refresh_at() } else { Tick::NEVER };
        let known_until = if forget > now { forget } else { Tick::NEVER };
        if known_until == Tick::NEVER {
            *self = Self { failed: self.failed.take(), asking: self.asking, ..Self::default() };
        }
        // A back-off is remembered for as long again, for the next one to be longer.
        let failed_until = self.failed.as_ref().map(|failed| failed.retry_at.after(failed.backoff));
        let failed_until = failed_until.filter(|until| *until > now);
        if failed_until.is_none() {
            self.failed = None;
        }
        refresh.min(known_until).min(failed_until.unwrap_or(Tick::NEVER))
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.known, Known::Unknown)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_unknown() && self.failed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_a_moment_also_before_its_watch_was_started() {
        let now = crate::clock::now();
        let watch = Watch::start(now);
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        assert_eq!(watch.instant(watch.tick(now + year)), now + year);
        assert_eq!(watch.tick(now).since(watch.tick(now).before(year)), year);
        assert_eq!(watch.tick(now).since(watch.tick(now + year)), Duration::ZERO);
        assert_eq!(watch.tick(now).after(Duration::MAX), Tick::NEVER);
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<Slot>() <= 48, "{}", size_of::<Slot>());
    }
}
