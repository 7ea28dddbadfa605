//! The hosts that are kept warm. A core.
//!
//! A host is kept warm from its first connection until no request was made to it for an hour, and only the [`MOST_HOSTS`] hosts
//! are whose requests came last.

use std::time::Duration;

use slab::Slab;

use crate::clock::Instant;
use crate::list::List;
use crate::pool::state::hosts::host::Host;
use crate::pool::state::warm::Warm;

/// The most hosts that are kept warm.
const MOST_HOSTS: usize = 256;
/// The age difference from which on a request is noted. A client may make thousands in a second.
const NOTED_AFTER: Duration = Duration::from_secs(1);
/// The number of the list of hosts that are kept warm.
const BY_REQUEST: usize = 1;

/// The hosts that are kept warm.
pub(in crate::pool::state) struct WarmHosts {
    /// The hosts, the one requested last in front.
    hosts: List<BY_REQUEST>,
    /// Spreads the pauses of many clients.
    pub(in crate::pool::state) jitter: fastrand::Rng,
}

impl WarmHosts {
    /// Creates an empty list. `seed` determines the jitter of the pauses.
    pub(in crate::pool::state) fn new(seed: u64) -> Self {
        Self { hosts: List::default(), jitter: fastrand::Rng::with_seed(seed) }
    }

    /// Returns the host whose last request is the oldest.
    pub(in crate::pool::state) fn oldest(&self) -> Option<usize> {
        self.hosts.back()
    }

    /// Returns true if there are more hosts than may be kept warm.
    pub(in crate::pool::state) fn is_over_full(&self) -> bool {
        self.hosts.len() > MOST_HOSTS
    }

    /// Notes a request to a host, which is kept warm from now on.
    pub(in crate::pool::state) fn requested<K>(&mut self, now: Instant, hosts: &mut Slab<Host<K>>, host: usize) {
        match &mut hosts[host].warm {
            Some(warm) if now - warm.requested_at < NOTED_AFTER => return,
            Some(warm) => {
                warm.requested_at = now;
                self.hosts.remove(hosts, host);
            }
            none => *none = Some(Box::new(Warm::new(now))),
        }
        self.hosts.push_front(hosts, host);
    }

    /// Keeps a host warm no longer.
    pub(in crate::pool::state) fn remove<K>(&mut self, hosts: &mut Slab<Host<K>>, host: usize) {
        self.hosts.remove(hosts, host);
        hosts[host].warm = None;
    }

    #[cfg(any(test, fuzzing))]
    pub(in crate::pool::state) fn len(&self) -> usize {
        self.hosts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::config::PoolConfig;
    use crate::pool::state::values::types::{Profile, Speaks};
    use crate::pool::state::warm::KEPT_FOR;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn hosts(count: u32) -> (Slab<Host<u32>>, Instant) {
        let now = crate::clock::now();
        let profile = Profile { limits: PoolConfig::new().limits_for("", 0), speaks: Speaks::Http1, balanced: None };
        (
            (0..count)
                .map(|key| (key as usize, Host::new(crate::clock::now(), key, profile.clone(), Box::default())))
                .collect(),
            now,
        )
    }

    #[test]
    fn the_host_requested_longest_ago_leaves_first() {
        let (mut hosts, now) = hosts(3);
        let mut warm = WarmHosts::new(0);
        for (at, host) in [(0, 0), (0, 1), (0, 2), (1_000, 0), (1_500, 1)] {
            warm.requested(now + ms(at), &mut hosts, host);
        }
        let mut order = Vec::new();
        while let Some(oldest) = warm.oldest() {
            order.push(oldest);
            warm.remove(&mut hosts, oldest);
        }
        assert_eq!(order, [2, 0, 1]);
        assert!(hosts.iter().all(|(_, host)| host.warm.is_none()));
    }

    #[test]
    fn at_most_256_hosts_are_kept_for_an_hour_after_their_last_request() {
        let (mut hosts, now) = hosts(257);
        let mut warm = WarmHosts::new(0);
        for host in 0..257 {
            assert!(!warm.is_over_full());
            warm.requested(now, &mut hosts, host);
        }
        assert!(warm.is_over_full());
        warm.requested(now + ms(2_000), &mut hosts, 0);
        let first = hosts[0].warm.as_ref().expect("it was requested");
        assert!(!first.is_forgotten(now + KEPT_FOR) && first.is_forgotten(now + KEPT_FOR + ms(2_000)));
    }

    #[test]
    fn requests_of_the_same_second_are_noted_once() {
        let (mut hosts, now) = hosts(2);
        let mut warm = WarmHosts::new(0);
        for (at, host) in [(0, 0), (500, 1), (999, 0)] {
            warm.requested(now + ms(at), &mut hosts, host);
        }
        let first = hosts[0].warm.as_ref().expect("it was requested").requested_at;
        assert_eq!((first, warm.oldest()), (now, Some(0)));
        warm.requested(now + ms(1_000), &mut hosts, 0);
        assert_eq!(warm.oldest(), Some(1));
    }
}
