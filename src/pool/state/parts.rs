//! The state of a pool: its parts, each a struct with methods over its own data, such as the timers and the hosts that are kept warm. A core.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use slab::Slab;

use super::hosts::connections::Connections;
use super::hosts::host::Hosts;
use super::hosts::queue::Waiters;
use super::hosts::slots::Slots;
use super::memory::Memory;
use super::moved_addresses::MovedAddresses;
use crate::clock::Instant;
use crate::list::List;
use crate::pool::config::PoolConfig;
use crate::pool::state::hosts::host::Host;
use crate::pool::state::values::{ConnId, Effect, PoolTypes, Profile};
use crate::pool::state::warm::Warm;

/// The state of a pool.
pub(crate) struct State<T: PoolTypes> {
    pub(super) profile: ProfileOf<T::Key>,
    /// Tells whether a dial waits for DNS, or has addresses left that it has not tried.
    pub(super) is_on_its_way: Box<dyn Fn(ConnId) -> bool + Send>,
    pub(super) hosts: Hosts<T::Key>,
    pub(super) conns: Connections<T>,
    pub(super) waiters: Waiters<T>,
    pub(super) slots: Slots,
    pub(super) timers: Timers,
    pub(super) effects: VecDeque<Effect<T>>,
    /// The number of the last connection or request.
    pub(super) serial: u64,
    pub(super) moved_addresses: MovedAddresses,
    pub(super) memory: Memory<T::Key>,
    pub(super) warm_hosts: WarmHosts,
    /// True once a drain has begun.
    pub(super) is_draining: bool,
    /// The number of calls in progress that have no connection at the moment but will need one.
    pub(super) drain_holds: usize,
}

/// A function that returns what is known of a host beforehand.
pub(super) type ProfileOf<K> = Box<dyn Fn(&K) -> Profile + Send>;

impl<T: PoolTypes> State<T> {
    /// Creates a pool without connections. `profile` returns what is known of a host beforehand.
    pub(crate) fn new(config: &PoolConfig, profile: impl Fn(&T::Key) -> Profile + Send + 'static) -> Self {
        Self {
            profile: Box::new(profile),
            is_on_its_way: Box::new(|_| false),
            hosts: Hosts::default(),
            conns: Connections::new(config.max_idle),
            waiters: Waiters::new(config.max_waiting),
            slots: Slots::new(config.max_connections),
            timers: Timers::default(),
            effects: VecDeque::new(),
            serial: 0,
            moved_addresses: MovedAddresses::new(config.follow_dns),
            memory: Memory::default(),
            warm_hosts: WarmHosts::new(0),
            is_draining: false,
            drain_holds: 0,
        }
    }

    /// Sets the seed of the jitter that spreads the pauses of many clients, and the function that tells
    /// whether a dial waits for DNS or has addresses left.
    pub(crate) fn with(self, seed: u64, is_on_its_way: impl Fn(ConnId) -> bool + Send + 'static) -> Self {
        Self { warm_hosts: WarmHosts::new(seed), is_on_its_way: Box::new(is_on_its_way), ..self }
    }
}

/// The most hosts that are kept warm.
const MOST_HOSTS: usize = 256;
/// The age difference from which on a request is noted. A client may make thousands in a second.
const NOTED_AFTER: Duration = Duration::from_secs(1);
/// The number of the list of hosts that are kept warm.
const BY_REQUEST: usize = 1;

/// The hosts that are kept warm: from the first connection until no request was made for an hour, and only the [`MOST_HOSTS`] hosts whose
/// requests came last.
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

/// The timers of the pool. Each owner keeps the time of its own.
///
/// Each host has one timer, for the first of its connections, dials and requests; when that is handled, it is set for the next. A
/// connection has one of its own, for what no list of connections is in the order of: its lifetime and its server's `Keep-Alive`.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(Instant, TimerKey)>,
}

/// The subject of a timer. Of two at the same time, the smaller is handled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKey {
    /// Timeouts of a host's connections, dials and requests.
    Host(usize),
    /// The end of an idle connection's own time.
    Conn(usize),
    /// The next look for addresses that left their names' answers.
    MovedAddresses,
    /// The next try after descriptors ran out.
    Descriptors,
}

impl Timers {
    /// Returns the time of the next timer.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Returns the next timer if its time has come. It stays set until its owner sets or clears it.
    pub(super) fn due(&self, now: Instant) -> Option<TimerKey> {
        self.set.first().filter(|(at, _)| *at <= now).map(|(_, timer)| *timer)
    }

    /// Sets or clears a timer. `own` is its time until now.
    pub(super) fn set(&mut self, timer: TimerKey, own: &mut Option<Instant>, at: Option<Instant>) {
        if *own != at {
            if let Some(old) = std::mem::replace(own, at) {
                self.set.remove(&(old, timer));
            }
            self.set.extend(at.map(|at| (at, timer)));
        }
    }

    /// Sets a timer to `at` unless it is set to an earlier time.
    #[inline]
    pub(super) fn set_earlier(&mut self, timer: TimerKey, own: &mut Option<Instant>, at: Instant) {
        if own.is_none_or(|set| at < set) {
            self.set(timer, own, Some(at));
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn len(&self) -> usize {
        self.set.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::config::PoolConfig;
    use crate::pool::state::values::{Profile, Speaks};
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

#[cfg(test)]
mod timers_tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timer_moves_to_an_earlier_time_and_is_due_until_it_is_set_anew() {
        let (mut timers, now) = (Timers::default(), crate::clock::now());
        let second = Duration::from_secs(1);
        let mut own = None;
        timers.set_earlier(TimerKey::Host(7), &mut own, now + second);
        timers.set_earlier(TimerKey::Host(7), &mut own, now + second * 2);
        assert_eq!((own, timers.next()), (Some(now + second), Some(now + second)));
        timers.set_earlier(TimerKey::Host(7), &mut own, now);
        assert_eq!((timers.next(), timers.len(), timers.due(now)), (Some(now), 1, Some(TimerKey::Host(7))));
        timers.set(TimerKey::Host(7), &mut own, Some(now + second));
        assert_eq!((timers.due(now), timers.next()), (None, Some(now + second)));
        timers.set(TimerKey::Host(7), &mut own, None);
        assert_eq!((own, timers.len()), (None, 0));
    }

    #[test]
    fn of_two_timers_at_the_same_time_the_smaller_is_handled_first() {
        let (mut timers, now) = (Timers::default(), crate::clock::now());
        for timer in [TimerKey::Descriptors, TimerKey::MovedAddresses] {
            timers.set(timer, &mut None, Some(now));
        }
        assert_eq!(timers.due(now), Some(TimerKey::MovedAddresses));
    }
}
