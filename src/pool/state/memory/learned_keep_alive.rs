//! The idle timeout of a server, learned from the ages at which it closes idle connections. A core.

use std::time::Duration;

use crate::clock::Instant;

/// The idle timeout that a server has shown by closes of one kind: either it closed idle connections, or they were found lost under
/// requests. A record of both would let one kind of close prolong what the other one has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::pool::state) struct LearnedKeepAlive {
    last: Option<Closes>,
}

/// An idle timeout that a server has shown, and the time since then. Whether the server is still there says nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdleLimit {
    pub(crate) limit: Duration,
    pub(crate) age: Duration,
}

/// The closes of idle connections.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Closes {
    /// The time for which the connection that was closed last had been idle.
    age: Duration,
    /// The time of the last close.
    at: Instant,
    /// The idle timeout to use, once two connections were closed at about the same age.
    limit: Option<Duration>,
    /// The time for which the limit is used after the last close.
    holds: Duration,
    /// The number of requests that were sent since then on connections that had been idle for about as long, or for longer.
    outlived: u32,
}

/// The youngest age that is learned from. Younger connections are closed for other reasons: the server restarts, or is broken.
pub(in crate::pool::state) const YOUNGEST: Duration = Duration::from_millis(500);
/// The greatest difference of two ages that count as the same, which is also at most a tenth of the younger.
const MOST_APART: Duration = Duration::from_secs(2);
/// The shortest time between two closes that count as two. Connections closed at the same moment show nothing of a timer.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(200);
/// The number of requests since the last close after which another one at its age shows no timer. A program that calls at intervals
/// finds lost connections at the same age each time, and many others that work. A timer that ends as the program calls lets some through.
const MOST_OUTLIVED: u32 = 3;
/// The least time for which a limit is used that was learned from connections which were found lost under requests, and its least
/// multiple of their age. The network may have lost them, so that such a limit is tried again: for twice as long each time.
const DOUBTED: Duration = Duration::from_secs(60);
const DOUBTED_AGES: u32 = 10;
/// The time after which a close is forgotten.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);

impl LearnedKeepAlive {
    /// Returns what was learned `age` before, or nothing if that is too long ago.
    pub(in crate::pool::state) fn restored(now: Instant, limit: Duration, age: Duration) -> Self {
        let closes = Closes { age: limit, at: now - age, limit: Some(limit), holds: REMEMBERED, outlived: 0 };
        Self { last: Some(closes).filter(|_| age < REMEMBERED) }
    }

    /// Notes that the server closed a connection that had been idle for `age`.
    pub(in crate::pool::state) fn closed(&mut self, now: Instant, age: Duration) {
        self.note(now, age, |_| REMEMBERED);
    }

    /// Notes that a connection that had been idle for `age` was found lost under a request.
    pub(in crate::pool::state) fn lost(&mut self, now: Instant, age: Duration) {
        let doubted = DOUBTED.max(age * DOUBTED_AGES);
        // While it is used it is not tried again: what is lost then was opened before.
        let times = if self.limit(now).is_some() { 1 } else { 2 };
        self.note(now, age, |last| doubted.max(last.holds * times).min(REMEMBERED));
    }

    /// Notes a close. `holds` is asked for how long a limit is used that the last one and this one set.
    fn note(&mut self, now: Instant, age: Duration, holds: impl FnOnce(Closes) -> Duration) {
        if age < YOUNGEST {
            return;
        }
        let next = Closes { age, at: now, limit: None, holds: Duration::ZERO, outlived: 0 };
        self.last = Some(match self.last.filter(|closes| now - closes.at < REMEMBERED) {
            Some(last) if now - last.at < SHORTEST_INTERVAL => Closes { at: now, ..last },
            Some(last) if last.outlived >= MOST_OUTLIVED => next,
            Some(last) if is_about(last.age, age) => {
                Closes { limit: Some(before(age.min(last.age))), holds: holds(last), ..next }
            }
            Some(last) => Closes { limit: self.limit(now), holds: last.holds, ..next },
            None => next,
        });
    }

    /// Notes that a request was sent on a connection that had been idle for `age`.
    #[inline]
    pub(in crate::pool::state) fn used(&mut self, age: Duration) {
        if let Some(last) = &mut self.last
            && (age >= last.age || is_about(age, last.age))
        {
            last.outlived += 1;
        }
    }

    /// Returns the idle timeout that was learned, with the time since the last close.
    pub(in crate::pool::state) fn known(&self, now: Instant) -> Option<IdleLimit> {
        let last = self.last?;
        self.limit(now).map(|limit| IdleLimit { limit, age: now - last.at })
    }

    /// Returns the idle timeout that was learned, which is a little shorter than the server's.
    #[inline]
    pub(in crate::pool::state) fn limit(&self, now: Instant) -> Option<Duration> {
        self.last.filter(|closes| now - closes.at < closes.holds)?.limit
    }
}

/// Returns true if two ages are about the same.
fn is_about(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) <= (one.min(other) / 10).min(MOST_APART)
}

/// Returns an age less a fifth of it, but at most a second less.
fn before(age: Duration) -> Duration {
    age - (age / 5).min(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Returns the limit learned from closes at these times, in milliseconds, of connections that had been idle for so long.
    fn limit<const N: usize>(closes: [(u64, u64); N]) -> Option<Duration> {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for (at, age) in closes {
            learned.closed(now + ms(at), ms(age));
        }
        learned.limit(now + ms(closes[N - 1].0))
    }

    #[test]
    fn closes_in_quick_succession_are_not_learned_from() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for at in 0..100 {
            learned.closed(now + ms(at * 3), ms(3_000 + at * 3));
        }
        assert_eq!(learned.limit(now), None);
    }

    #[test]
    fn two_closes_at_about_the_same_age_set_a_limit() {
        let closes = [(0, 5_000), (10, 5_000), (6_000, 5_020), (60_000, 1_500)];
        assert_eq!(limit([closes[0]]), None, "one close may be chance");
        assert_eq!(limit([closes[0], closes[1]]), None, "two at the same moment count as one");
        assert_eq!(limit([closes[0], closes[1], closes[2]]), Some(ms(4_000)));
        assert_eq!(limit(closes), Some(ms(4_000)), "a close at another age changes nothing");
    }

    #[test]
    fn closes_between_which_connections_outlived_that_age_set_no_limit() {
        for (used, learned) in
            [(&[5_000, 5_100][..], true), (&[5_000, 5_100, 5_000], false), (&[30_000; 3], false), (&[2_000; 9], true)]
        {
            let (mut keep_alive, now) = (LearnedKeepAlive::default(), crate::clock::now());
            keep_alive.closed(now, ms(5_000));
            used.iter().for_each(|age| keep_alive.used(ms(*age)));
            keep_alive.closed(now + ms(60_000), ms(5_000));
            assert_eq!(keep_alive.limit(now + ms(60_000)).is_some(), learned, "{used:?}");
            keep_alive.closed(now + ms(120_000), ms(5_000));
            assert!(keep_alive.limit(now + ms(120_000)).is_some(), "{used:?} and then none");
        }
    }

    #[test]
    fn closes_at_different_ages_set_no_limit() {
        assert_eq!(limit([(0, 3), (1_000, 3), (2_000, 2_000), (3_000, 9_000), (9_000, 700), (20_000, 30_000)]), None);
    }

    #[test]
    fn ages_from_half_a_second_on_set_a_limit_a_fifth_below_but_at_most_a_second() {
        let limits = [499, 500, 5_000, 60_000].map(|age| limit([(0, age), (10_000, age)]));
        assert_eq!(limits, [None, Some(ms(400)), Some(ms(4_000)), Some(ms(59_000))]);
    }

    #[test]
    fn ages_that_differ_by_at_most_a_tenth_and_two_seconds_are_about_the_same() {
        let cases = [(5_000, 5_500), (5_000, 5_501), (30_000, 32_000), (30_000, 32_001)];
        let same = cases.map(|(one, other)| (is_about(ms(one), ms(other)), is_about(ms(other), ms(one))));
        assert_eq!(same, [(true, true), (false, false), (true, true), (false, false)]);
    }

    #[test]
    fn two_closes_count_from_200_ms_to_an_hour_apart() {
        let learned = [199, 200, 3_599_999, 3_600_000].map(|apart| limit([(0, 5_000), (apart, 5_000)]).is_some());
        assert_eq!(learned, [false, true, true, false]);
    }

    #[test]
    fn a_limit_holds_for_an_hour_after_the_last_close() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for at in [0, 10_000] {
            learned.closed(now + ms(at), ms(5_000));
        }
        let hour = now + ms(10_000) + REMEMBERED;
        assert_eq!((learned.limit(hour - ms(1)), learned.limit(hour)), (Some(ms(4_000)), None));
    }

    #[test]
    fn what_was_found_under_requests_holds_for_a_minute_or_ten_ages_and_twice_as_long_each_time() {
        let hold = |age: u64, closes: u64| {
            let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
            let at = |nth: u64| now + ms(nth * 3_500_000);
            (0..closes).for_each(|nth| learned.lost(at(nth), ms(age)));
            (1..=3_600).find(|secs| learned.limit(at(closes - 1) + ms(secs * 1_000)).is_none()).unwrap_or(0)
        };
        assert_eq!([1, 2, 3, 4, 20].map(|closes| hold(5_000, closes)), [1, 60, 120, 240, 3_600]);
        assert_eq!([hold(20_000, 2), hold(400_000, 2)], [200, 3_600]);
        // Many in a row are one.
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        (0..20).for_each(|nth| learned.lost(now + ms(nth * 1_000), ms(5_000)));
        assert!(learned.limit(now + ms(78_000)).is_some() && learned.limit(now + ms(79_000)).is_none());
    }

    #[test]
    fn what_is_restored_is_as_old_as_it_was() {
        let now = crate::clock::now();
        let restored = |age| LearnedKeepAlive::restored(now, ms(7_000), age);
        assert_eq!(restored(REMEMBERED).limit(now), None, "it is too old");
        let learned = restored(REMEMBERED - ms(1_000));
        assert_eq!((learned.limit(now + ms(999)), learned.limit(now + ms(1_000))), (Some(ms(7_000)), None));
    }
}
