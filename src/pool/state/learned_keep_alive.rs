//! The idle timeouts of servers, learned from the ages at which they close idle connections. A core.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::Instant;

/// The idle timeouts of hosts, also of those without a connection at the moment.
#[derive(Debug)]
pub(super) struct LearnedKeepAlive<K> {
    hosts: HashMap<K, Closes, RandomState>,
}

/// The closes of a host's idle connections.
#[derive(Debug, Clone, Copy)]
struct Closes {
    /// The time for which the connection that was closed last had been idle.
    age: Duration,
    /// The time of the last close.
    at: Instant,
    /// The idle timeout to use, once two connections were closed at about the same age.
    limit: Option<Duration>,
}

/// The youngest age that is learned from. Younger connections are closed for other reasons: the server restarts, or is broken.
pub(super) const YOUNGEST: Duration = Duration::from_millis(500);
/// The greatest difference of two ages that count as the same, which is also at most a tenth of the younger.
const MOST_APART: Duration = Duration::from_secs(2);
/// The shortest time between two closes that count as two. Connections closed at the same moment show nothing of a timer.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(200);
/// The time after which a close is forgotten.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
const MOST_HOSTS: usize = 1_024;

impl<K> Default for LearnedKeepAlive<K> {
    fn default() -> Self {
        Self { hosts: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> LearnedKeepAlive<K> {
    /// Notes that a host closed a connection that had been idle for `age`.
    pub(super) fn closed(&mut self, now: Instant, host: &K, age: Duration) {
        if age < YOUNGEST {
            return;
        }
        let last = self.hosts.get(host).copied().filter(|closes| now - closes.at < REMEMBERED);
        let limit = match last {
            Some(mut last) if now - last.at < SHORTEST_INTERVAL => {
                last.at = now;
                self.hosts.insert(host.clone(), last);
                return;
            }
            Some(last) if is_about(last.age, age) => Some(before(age.min(last.age))),
            Some(last) => last.limit,
            None => None,
        };
        if !self.hosts.contains_key(host) && self.hosts.len() >= MOST_HOSTS {
            self.hosts.retain(|_, closes| now - closes.at < REMEMBERED && closes.limit.is_some());
            if self.hosts.len() >= MOST_HOSTS {
                return;
            }
        }
        self.hosts.insert(host.clone(), Closes { age, at: now, limit });
    }

    /// Adds what was learned of a host `age` ago, unless something is known of it already, or it is too old.
    pub(super) fn restore(&mut self, now: Instant, host: &K, limit: Duration, age: Duration) {
        if age < REMEMBERED && self.hosts.len() < MOST_HOSTS / 2 && !self.hosts.contains_key(host) {
            let closes = Closes { age: limit, at: now - age, limit: Some(limit) };
            self.hosts.insert(host.clone(), closes);
        }
    }

    /// Returns the idle timeout learned for a host, which is a little shorter than the server's.
    pub(super) fn limit(&self, now: Instant, host: &K) -> Option<Duration> {
        if self.hosts.is_empty() {
            return None;
        }
        self.hosts.get(host).filter(|closes| now - closes.at < REMEMBERED)?.limit
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

    fn limit(learned: &LearnedKeepAlive<i32>, host: i32) -> Option<Duration> {
        learned.limit(crate::clock::now(), &host)
    }

    #[test]
    fn closes_in_quick_succession_are_not_learned_from() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for at in 0..100 {
            learned.closed(now + ms(at * 3), &1, ms(3_000 + at * 3));
        }
        assert_eq!(limit(&learned, 1), None);
    }

    #[test]
    fn two_closes_at_about_the_same_age_set_a_limit() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        learned.closed(now, &1, ms(5_000));
        assert_eq!(limit(&learned, 1), None, "one close may be chance");
        learned.closed(now + ms(10), &1, ms(5_000));
        assert_eq!(limit(&learned, 1), None, "two at the same moment count as one");
        learned.closed(now + ms(6_000), &1, ms(5_020));
        assert_eq!((limit(&learned, 1), limit(&learned, 2)), (Some(ms(4_000)), None));
        learned.closed(now + ms(60_000), &1, ms(1_500));
        assert_eq!(limit(&learned, 1), Some(ms(4_000)), "a close at another age changes nothing");
        assert_eq!(learned.limit(now + REMEMBERED * 2, &1), None, "it is forgotten");
    }

    #[test]
    fn closes_at_different_ages_set_no_limit() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for (at, age) in [(0, 3), (1_000, 3), (2_000, 2_000), (3_000, 9_000), (9_000, 700), (20_000, 30_000)] {
            learned.closed(now + ms(at), &1, ms(age));
        }
        assert_eq!(limit(&learned, 1), None);
    }

    #[test]
    fn the_number_of_hosts_is_bounded() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for round in [0, 1_000] {
            learned.closed(now + ms(round), &0, ms(5_000));
        }
        for host in 1..5_000 {
            learned.closed(now, &host, ms(5_000));
        }
        assert!(learned.hosts.len() <= MOST_HOSTS);
        assert_eq!(limit(&learned, 0), Some(ms(4_000)), "a host with a limit is kept");
    }

    /// Notes two closes of a host, at this age and 10 s apart.
    fn closed_twice(learned: &mut LearnedKeepAlive<i32>, now: Instant, host: i32, age: u64) {
        for at in [0, 10_000] {
            learned.closed(now + ms(at), &host, ms(age));
        }
    }

    #[test]
    fn ages_from_half_a_second_on_set_a_limit_a_fifth_below_but_at_most_a_second() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for (host, age) in [(1, 499), (2, 500), (3, 5_000), (4, 60_000)] {
            closed_twice(&mut learned, now, host, age);
        }
        let limits = [1, 2, 3, 4].map(|host| limit(&learned, host));
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
        for (apart, is_learned) in [(199, false), (200, true), (3_599_999, true), (3_600_000, false)] {
            let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
            learned.closed(now, &1, ms(5_000));
            learned.closed(now + ms(apart), &1, ms(5_000));
            assert_eq!(learned.limit(now + ms(apart), &1).is_some(), is_learned, "{apart}");
        }
    }

    #[test]
    fn a_limit_holds_for_an_hour_after_the_last_close() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        closed_twice(&mut learned, now, 1, 5_000);
        let hour = now + ms(10_000) + REMEMBERED;
        assert_eq!((learned.limit(hour - ms(1), &1), learned.limit(hour, &1)), (Some(ms(4_000)), None));
    }

    #[test]
    fn a_host_is_learned_of_beside_others() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for at in [0, 10_000] {
            for host in [1, 2] {
                learned.closed(now + ms(at), &host, ms(5_000));
            }
        }
        assert_eq!([1, 2].map(|host| limit(&learned, host)), [Some(ms(4_000)); 2]);
    }

    #[test]
    fn hosts_without_a_limit_and_those_of_an_hour_ago_make_room_for_another_one() {
        let now = crate::clock::now();
        let full = |have_limits: bool| {
            let mut learned = LearnedKeepAlive::default();
            for host in 1..=1_024 {
                learned.closed(now, &host, ms(5_000));
                if have_limits {
                    learned.closed(now + ms(1_000), &host, ms(5_000));
                }
            }
            learned
        };
        let hour = ms(1_000) + REMEMBERED;
        for (have_limits, at, len) in [(false, ms(1_000), 1), (true, hour, 1), (true, hour - ms(1), MOST_HOSTS)] {
            let mut learned = full(have_limits);
            learned.closed(now + at, &0, ms(5_000));
            assert_eq!((learned.hosts.len(), learned.hosts.contains_key(&0)), (len, len == 1), "{have_limits}, {at:?}");
        }
    }

    #[test]
    fn what_is_restored_is_as_old_as_it_was_and_replaces_nothing() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        learned.restore(now, &1, ms(7_000), REMEMBERED);
        assert_eq!(learned.limit(now, &1), None, "it is too old");
        learned.restore(now, &1, ms(7_000), REMEMBERED - ms(1_000));
        learned.restore(now, &1, ms(8_000), Duration::ZERO);
        assert_eq!(learned.limit(now + ms(999), &1), Some(ms(7_000)));
        assert_eq!(learned.limit(now + ms(1_000), &1), None, "an hour after it was seen");
        closed_twice(&mut learned, now, 2, 5_000);
        learned.restore(now, &2, ms(7_000), Duration::ZERO);
        assert_eq!(limit(&learned, 2), Some(ms(4_000)));
    }

    #[test]
    fn what_is_restored_leaves_room_for_as_many_hosts() {
        let (mut learned, now) = (LearnedKeepAlive::default(), crate::clock::now());
        for host in 0..2_000 {
            learned.restore(now, &host, ms(7_000), Duration::ZERO);
        }
        assert_eq!(learned.hosts.len(), MOST_HOSTS / 2);
    }
}
