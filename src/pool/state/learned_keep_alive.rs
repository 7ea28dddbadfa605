//! For how long servers keep idle connections, as seen from their closing them. A core.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::clock::Instant;

/// What was learned of hosts, also of those that have no connection at the moment.
#[derive(Debug)]
pub(super) struct Lessons<K> {
    hosts: HashMap<K, Lesson, RandomState>,
}

#[derive(Debug, Clone, Copy)]
struct Lesson {
    /// The age at which the last connection was closed, and when that was.
    age: Duration,
    at: Instant,
    /// Set when two were closed at about the same age.
    limit: Option<Duration>,
}

/// Younger ones are closed for other reasons: the server restarts, or is broken.
pub(super) const YOUNGEST: Duration = Duration::from_millis(500);
/// Two ages are about the same within a tenth of the younger, and within this.
const ABOUT: Duration = Duration::from_secs(2);
/// Two closed at the same moment show nothing of a timer.
const APART: Duration = Duration::from_millis(200);
/// A lesson is good for so long.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
const MOST_HOSTS: usize = 1_024;

impl<K> Default for Lessons<K> {
    fn default() -> Self {
        Self { hosts: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> Lessons<K> {
    /// A host closed a connection that had been idle for `age`.
    pub(super) fn closed(&mut self, now: Instant, host: &K, age: Duration) {
        if age < YOUNGEST {
            return;
        }
        let last = self.hosts.get(host).copied().filter(|lesson| now - lesson.at < REMEMBERED);
        let limit = match last {
            Some(mut last) if now - last.at < APART => {
                last.at = now;
                self.hosts.insert(host.clone(), last);
                return;
            }
            Some(last) if is_about(last.age, age) => Some(before(age.min(last.age))),
            Some(last) => last.limit,
            None => None,
        };
        if !self.hosts.contains_key(host) && self.hosts.len() >= MOST_HOSTS {
            self.hosts.retain(|_, lesson| now - lesson.at < REMEMBERED && lesson.limit.is_some());
            if self.hosts.len() >= MOST_HOSTS {
                return;
            }
        }
        self.hosts.insert(host.clone(), Lesson { age, at: now, limit });
    }

    /// For how long a host's connections had better be idle.
    pub(super) fn limit(&self, now: Instant, host: &K) -> Option<Duration> {
        if self.hosts.is_empty() {
            return None;
        }
        self.hosts.get(host).filter(|lesson| now - lesson.at < REMEMBERED)?.limit
    }
}

fn is_about(one: Duration, other: Duration) -> bool {
    one.abs_diff(other) <= (one.min(other) / 10).min(ABOUT)
}

/// A little sooner than the server: a fifth of the time, and at most a second.
fn before(age: Duration) -> Duration {
    age - (age / 5).min(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn limit(lessons: &Lessons<i32>, host: i32) -> Option<Duration> {
        lessons.limit(crate::clock::now(), &host)
    }

    #[test]
    fn a_shutdown_that_takes_its_time_is_no_timer() {
        let (mut lessons, now) = (Lessons::default(), crate::clock::now());
        for at in 0..100 {
            lessons.closed(now + ms(at * 3), &1, ms(3_000 + at * 3));
        }
        assert_eq!(limit(&lessons, 1), None);
    }

    #[test]
    fn two_closed_at_about_the_same_age_make_a_rule() {
        let (mut lessons, now) = (Lessons::default(), crate::clock::now());
        lessons.closed(now, &1, ms(5_000));
        assert_eq!(limit(&lessons, 1), None, "one may be chance");
        lessons.closed(now + ms(10), &1, ms(5_000));
        assert_eq!(limit(&lessons, 1), None, "and so may be two at once");
        lessons.closed(now + ms(6_000), &1, ms(5_020));
        assert_eq!((limit(&lessons, 1), limit(&lessons, 2)), (Some(ms(4_000)), None));
        lessons.closed(now + ms(60_000), &1, ms(1_500));
        assert_eq!(limit(&lessons, 1), Some(ms(4_000)), "another age is chance");
        assert_eq!(lessons.limit(now + REMEMBERED * 2, &1), None, "nothing is for ever");
    }

    #[test]
    fn chance_is_no_rule() {
        let (mut lessons, now) = (Lessons::default(), crate::clock::now());
        for (at, age) in [(0, 3), (1_000, 3), (2_000, 2_000), (3_000, 9_000), (9_000, 700), (20_000, 30_000)] {
            lessons.closed(now + ms(at), &1, ms(age));
        }
        assert_eq!(limit(&lessons, 1), None);
    }

    #[test]
    fn they_are_bounded() {
        let (mut lessons, now) = (Lessons::default(), crate::clock::now());
        for round in [0, 1_000] {
            lessons.closed(now + ms(round), &0, ms(5_000));
        }
        for host in 1..5_000 {
            lessons.closed(now, &host, ms(5_000));
        }
        assert!(lessons.hosts.len() <= MOST_HOSTS);
        assert_eq!(limit(&lessons, 0), Some(ms(4_000)), "what is a rule stays");
    }
}
