//! How origins have treated requests lately, as far as the client has to hold back. A core.
//!
//! Some servers close kept connections a moment after an answer, without a word. A request that is on its way by then is lost,
//! unless it can be sent twice. One that cannot goes to such a server on a connection that is new, or that has rested for
//! several times as long as the server was seen to wait, until it has behaved for a minute.
//!
//! A server that asks for calm (GOAWAY with ENHANCE_YOUR_CALM, RFC 9113 §7) is not dialled for up to 200 ms, and for twice as
//! long each time it asks again, up to 30 s; half of each pause is random. Requests that an origin turned away are resent as
//! far as its allowance reaches: 100 of them, and 10 more each second.
//!
//! This outlives the origin's connections, and is forgotten when it no longer matters.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::Instant;

/// What is remembered of each origin.
#[derive(Debug)]
pub(super) struct Conduct<K> {
    origins: HashMap<K, Record, RandomState>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Record {
    cuts: Option<Cuts>,
    calm: Option<Calm>,
    /// `None` where it is full.
    allowance: Option<Allowance>,
}

/// Kept connections that the server closed soon after it had used them.
#[derive(Debug, Clone, Copy)]
struct Cuts {
    last: Instant,
    /// The greatest age at which it did, counted from the end of the connection's last request.
    age: Duration,
}

/// A pause that the server asked for.
#[derive(Debug, Clone, Copy)]
struct Calm {
    until: Instant,
    /// The longest it could have been.
    longest: Duration,
}

/// How many requests may be resent.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    left: f64,
    since: Instant,
}

/// How long a server that cuts is remembered after the last time.
const CUTS_REMEMBERED: Duration = Duration::from_secs(60);
/// A connection has rested when it has been idle for so many times the age at which others were cut, within these limits.
const REST: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long after a pause the next one is twice as long.
const CALM_REMEMBERED: Duration = Duration::from_secs(60);
const MOST_RESENDS: f64 = 100.0;
const RESENDS_PER_SECOND: f64 = 10.0;
const MOST_ORIGINS: usize = 1_024;

impl<K> Default for Conduct<K> {
    fn default() -> Self {
        Self { origins: HashMap::default() }
    }
}

impl Cuts {
    fn are_remembered(&self, now: Instant) -> bool {
        now < self.last + CUTS_REMEMBERED
    }
}

impl Allowance {
    fn left_at(self, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.since).as_secs_f64() * RESENDS_PER_SECOND;
        (self.left + earned).min(MOST_RESENDS)
    }
}

impl Record {
    /// Returns true if it can be forgotten.
    fn is_over(&self, now: Instant) -> bool {
        !self.cuts.is_some_and(|cuts| cuts.are_remembered(now))
            && self.calm.is_none_or(|calm| now >= calm.until + CALM_REMEMBERED)
            && self.allowance.is_none_or(|allowance| allowance.left_at(now) >= MOST_RESENDS)
    }
}

impl<K: Clone + Eq + Hash> Conduct<K> {
    /// The server closed a kept connection under a request, after it had been idle for `age`.
    pub(super) fn cut(&mut self, now: Instant, origin: &K, age: Duration) {
        if let Some(record) = self.record(now, origin) {
            let before = record.cuts.filter(|cuts| cuts.are_remembered(now)).map_or(Duration::ZERO, |cuts| cuts.age);
            record.cuts = Some(Cuts { last: now, age: age.max(before) });
        }
    }

    /// The server closed an idle connection of this age. That is another cut where it is known to cut, and nothing otherwise.
    pub(super) fn closed_idle(&mut self, now: Instant, origin: &K, age: Duration) {
        let cuts = self.origins.get(origin).and_then(|record| record.cuts);
        if cuts.is_some_and(|cuts| cuts.are_remembered(now)) {
            self.cut(now, origin, age);
        }
    }

    /// How long a kept connection has to have been idle for a request that must be sent once, where its server cuts.
    pub(super) fn rest(&self, now: Instant, origin: &K) -> Option<Duration> {
        if self.origins.is_empty() {
            return None;
        }
        let cuts = self.origins.get(origin)?.cuts.filter(|cuts| cuts.are_remembered(now))?;
        Some((cuts.age * REST).clamp(SHORTEST_REST, LONGEST_REST))
    }

    /// The server asks for calm. Returns when it may be dialled again; `random` is from 0 to 1.
    pub(super) fn calm(&mut self, now: Instant, origin: &K, random: f64) -> Instant {
        let last = self.origins.get(origin).and_then(|record| record.calm);
        let longest = match last {
            // Its other connections are told the same.
            Some(calm) if now < calm.until => return calm.until,
            Some(calm) if now < calm.until + CALM_REMEMBERED => (calm.longest * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        let until = now + longest / 2 + (longest / 2).mul_f64(random);
        if let Some(record) = self.record(now, origin) {
            record.calm = Some(Calm { until, longest });
        }
        until
    }

    /// When the server may be dialled again, if that is later.
    pub(super) fn calm_until(&self, now: Instant, origin: &K) -> Option<Instant> {
        let until = self.origins.get(origin)?.calm?.until;
        Some(until).filter(|until| now < *until)
    }

    /// Takes one resend from the origin's allowance. Returns false if there is none left.
    pub(super) fn may_resend(&mut self, now: Instant, origin: &K) -> bool {
        let Some(record) = self.record(now, origin) else { return true };
        let left = record.allowance.map_or(MOST_RESENDS, |allowance| allowance.left_at(now));
        let is_enough = left >= 1.0;
        let left = if is_enough { left - 1.0 } else { left };
        record.allowance = Some(Allowance { left, since: now });
        is_enough
    }

    /// The origin's record, or `None` if there is no room for one.
    fn record(&mut self, now: Instant, origin: &K) -> Option<&mut Record> {
        if !self.origins.contains_key(origin) {
            if self.origins.len() >= MOST_ORIGINS {
                self.origins.retain(|_, record| !record.is_over(now));
            }
            if self.origins.len() >= MOST_ORIGINS {
                return None;
            }
            self.origins.insert(origin.clone(), Record::default());
        }
        self.origins.get_mut(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_server_that_cuts_is_spared_until_it_has_behaved_for_a_minute() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        conduct.closed_idle(now, &1, ms(3));
        assert_eq!(conduct.rest(now, &1), None, "an idle connection may be closed");
        conduct.cut(now, &1, ms(3));
        assert_eq!((conduct.rest(now, &1), conduct.rest(now, &2)), (Some(SHORTEST_REST), None));
        conduct.closed_idle(now + ms(50_000), &1, ms(100));
        conduct.cut(now + ms(50_000), &1, ms(3));
        assert_eq!(conduct.rest(now + ms(109_999), &1), Some(ms(400)));
        assert_eq!(conduct.rest(now + ms(110_000), &1), None);
        conduct.cut(now + ms(120_000), &1, ms(3));
        assert_eq!(conduct.rest(now + ms(120_000), &1), Some(SHORTEST_REST), "what was before is forgotten");
    }

    #[test]
    fn pauses_double_until_the_server_has_been_content_for_a_minute() {
        let (mut conduct, mut now) = (Conduct::default(), crate::clock::now());
        for longest in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(conduct.calm(now, &1, 1.0), now + ms(longest));
            assert_eq!(conduct.calm(now + ms(1), &1, 0.0), now + ms(longest), "another connection is told the same");
            assert_eq!(conduct.calm_until(now, &1), Some(now + ms(longest)));
            now += ms(longest);
        }
        assert_eq!((conduct.calm_until(now, &1), conduct.calm_until(now, &2)), (None, None));
        now += CALM_REMEMBERED;
        assert_eq!(conduct.calm(now, &1, 0.0), now + ms(100), "half of a pause is random");
    }

    #[test]
    fn an_origin_has_its_own_allowance() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        let mut resends =
            |origin: i32, at: u64| (0..1_000).filter(|_| conduct.may_resend(now + ms(at), &origin)).count();
        assert_eq!([resends(1, 0), resends(1, 0), resends(2, 0)], [100, 0, 100]);
        assert_eq!([resends(1, 1_000), resends(1, 100_000)], [10, 100]);
    }

    #[test]
    fn records_are_bounded_and_forgotten() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        for origin in 0..5_000 {
            assert!(conduct.may_resend(now, &origin));
        }
        assert_eq!(conduct.origins.len(), MOST_ORIGINS);
        assert!(conduct.may_resend(now + ms(1_000), &5_000));
        assert_eq!(conduct.origins.len(), 1, "all others have their whole allowance again");
    }
}
