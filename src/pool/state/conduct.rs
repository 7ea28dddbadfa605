//! The recent conduct of origins, as far as the client has to hold back for it. A core.
//!
//! Some servers close a connection a moment after an answer, without announcing it. A request that is on its way by then is lost,
//! unless it can be sent twice. A request that must be sent once goes to such a server on a new connection, or on one that has been
//! idle for several times as long as the server was seen to wait. This lasts until the server has closed no connection that way for
//! a minute.
//!
//! A server that asks for fewer requests (GOAWAY with ENHANCE_YOUR_CALM, RFC 9113 §7) is not dialled for up to 200 ms. The pause
//! doubles each time it asks again, up to 30 s, and half of each pause is random. Requests that an origin refused are resent within
//! an allowance: 100 requests, and 10 more each second.
//!
//! The records outlive the origin's connections, and are forgotten when they no longer matter.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::Instant;

/// The conduct of each origin.
#[derive(Debug)]
pub(super) struct Conduct<K> {
    origins: HashMap<K, Record, RandomState>,
}

/// The conduct of one origin.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    cuts: Option<Cuts>,
    pause: Option<Pause>,
    /// The allowance of resends. `None` if all of it is left.
    allowance: Option<Allowance>,
}

/// Closes of connections soon after their last request.
#[derive(Debug, Clone, Copy)]
struct Cuts {
    /// The time of the last one.
    last: Instant,
    /// The longest time from the end of a connection's last request to its close.
    age: Duration,
}

/// A pause that the server asked for.
#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    /// The length of the pause before its random half was shortened.
    longest: Duration,
}

/// An allowance of resends.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// The number of resends that were left at `since`.
    left: f64,
    since: Instant,
}

/// The time after which a server's last cut is forgotten.
const CUTS_REMEMBERED: Duration = Duration::from_secs(60);
/// The factor between the age at which connections were cut and the time for which one has to rest.
const REST_FACTOR: u32 = 4;
const SHORTEST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time after a pause in which the next one is twice as long.
const PAUSE_REMEMBERED: Duration = Duration::from_secs(60);
const MOST_RESENDS: f64 = 100.0;
const RESENDS_PER_SECOND: f64 = 10.0;
const MOST_ORIGINS: usize = 1_024;

impl<K> Default for Conduct<K> {
    fn default() -> Self {
        Self { origins: HashMap::default() }
    }
}

impl Cuts {
    /// Returns true if the last cut is not forgotten yet.
    fn are_remembered(&self, now: Instant) -> bool {
        now < self.last + CUTS_REMEMBERED
    }
}

impl Allowance {
    /// Returns the number of resends that are left.
    fn left_at(self, now: Instant) -> f64 {
        let earned = (now - self.since).as_secs_f64() * RESENDS_PER_SECOND;
        (self.left + earned).min(MOST_RESENDS)
    }
}

impl Record {
    /// Returns true if nothing in the record matters any more.
    fn is_over(&self, now: Instant) -> bool {
        !self.cuts.is_some_and(|cuts| cuts.are_remembered(now))
            && self.pause.is_none_or(|pause| now >= pause.until + PAUSE_REMEMBERED)
            && self.allowance.is_none_or(|allowance| allowance.left_at(now) >= MOST_RESENDS)
    }
}

impl<K: Clone + Eq + Hash> Conduct<K> {
    /// Notes that the server closed a reused connection under a request, after it had been idle for `age`.
    pub(super) fn cut(&mut self, now: Instant, origin: &K, age: Duration) {
        if let Some(record) = self.record(now, origin) {
            let before = record.cuts.filter(|cuts| cuts.are_remembered(now)).map_or(Duration::ZERO, |cuts| cuts.age);
            record.cuts = Some(Cuts { last: now, age: age.max(before) });
        }
    }

    /// Notes that the server closed a connection that had been idle for `age`. This counts as a cut only if the server is known to
    /// cut.
    pub(super) fn closed_idle(&mut self, now: Instant, origin: &K, age: Duration) {
        let cuts = self.origins.get(origin).and_then(|record| record.cuts);
        if cuts.is_some_and(|cuts| cuts.are_remembered(now)) {
            self.cut(now, origin, age);
        }
    }

    /// Returns the time that a reused connection must have been idle for a request that must be sent once. `None` if the server is
    /// not known to cut.
    pub(super) fn rest(&self, now: Instant, origin: &K) -> Option<Duration> {
        if self.origins.is_empty() {
            return None;
        }
        let cuts = self.origins.get(origin)?.cuts.filter(|cuts| cuts.are_remembered(now))?;
        Some((cuts.age * REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST))
    }

    /// Begins a pause that the server asked for, and returns its end. `random` is from 0 to 1.
    pub(super) fn pause(&mut self, now: Instant, origin: &K, random: f64) -> Instant {
        let last = self.origins.get(origin).and_then(|record| record.pause);
        let longest = match last {
            // The server asks on each of its connections.
            Some(pause) if now < pause.until => return pause.until,
            Some(pause) if now < pause.until + PAUSE_REMEMBERED => (pause.longest * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        let until = now + longest / 2 + (longest / 2).mul_f64(random);
        if let Some(record) = self.record(now, origin) {
            record.pause = Some(Pause { until, longest });
        }
        until
    }

    /// Returns the end of the pause that the server asked for, if it is not over.
    pub(super) fn paused_until(&self, now: Instant, origin: &K) -> Option<Instant> {
        let until = self.origins.get(origin)?.pause?.until;
        if now < until { Some(until) } else { None }
    }

    /// Takes one resend from the origin's allowance. Returns false if none is left.
    pub(super) fn may_resend(&mut self, now: Instant, origin: &K) -> bool {
        let Some(record) = self.record(now, origin) else { return true };
        let left = record.allowance.map_or(MOST_RESENDS, |allowance| allowance.left_at(now));
        let is_enough = left >= 1.0;
        let left = if is_enough { left - 1.0 } else { left };
        record.allowance = Some(Allowance { left, since: now });
        is_enough
    }

    /// Returns the origin's record, or `None` if there is no room for one.
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
    fn connections_to_a_server_that_cuts_rest_until_it_has_not_cut_for_a_minute() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        conduct.closed_idle(now, &1, ms(3));
        assert_eq!(conduct.rest(now, &1), None, "closing an idle connection is no cut");
        conduct.cut(now, &1, ms(3));
        assert_eq!((conduct.rest(now, &1), conduct.rest(now, &2)), (Some(SHORTEST_REST), None));
        conduct.closed_idle(now + ms(50_000), &1, ms(100));
        conduct.cut(now + ms(50_000), &1, ms(3));
        assert_eq!(conduct.rest(now + ms(109_999), &1), Some(ms(400)));
        assert_eq!(conduct.rest(now + ms(110_000), &1), None);
        conduct.cut(now + ms(120_000), &1, ms(3));
        assert_eq!(conduct.rest(now + ms(120_000), &1), Some(SHORTEST_REST), "earlier cuts are forgotten");
    }

    #[test]
    fn pauses_double_until_the_server_has_asked_for_none_for_a_minute() {
        let (mut conduct, mut now) = (Conduct::default(), crate::clock::now());
        for longest in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(conduct.pause(now, &1, 1.0), now + ms(longest));
            assert_eq!(
                conduct.pause(now + ms(1), &1, 0.0),
                now + ms(longest),
                "another connection's GOAWAY begins no other pause"
            );
            assert_eq!(conduct.paused_until(now, &1), Some(now + ms(longest)));
            now += ms(longest);
        }
        assert_eq!((conduct.paused_until(now, &1), conduct.paused_until(now, &2)), (None, None));
        now += PAUSE_REMEMBERED;
        assert_eq!(conduct.pause(now, &1, 0.0), now + ms(100), "half of a pause is random");
    }

    #[test]
    fn each_origin_has_its_own_allowance() {
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
        assert_eq!(conduct.origins.len(), 1, "the others have their whole allowance again, and are forgotten");
    }

    #[test]
    fn a_pause_is_remembered_for_a_minute_where_records_make_room() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        let until = conduct.pause(now, &0, 1.0);
        (1..1_024).for_each(|origin| assert!(conduct.may_resend(now, &origin)));
        let later = until + PAUSE_REMEMBERED;
        assert!(conduct.may_resend(later - ms(1), &5_000));
        assert_eq!(conduct.origins.len(), 2, "the others have their whole allowance again");
        assert_eq!(conduct.pause(later - ms(1), &0, 1.0), later - ms(1) + ms(400));
        assert!(conduct.origins[&0].is_over(later + ms(400) + PAUSE_REMEMBERED));
    }
}
