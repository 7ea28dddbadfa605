//! What is known of hosts, also of those without a connection at the moment. A core.
//!
//! The facts about a host are in its [record](super::hosts::host::Host) while it has one, and here otherwise. At most 1,024 hosts are
//! remembered: the half that left their records first makes room for others.

pub(super) mod conduct;
pub(super) mod learned_keep_alive;

use std::hash::Hash;
use std::time::Duration;

use super::balance::Balance;
use super::dials::Usual;
use super::values::counters::Totals;
use super::values::types::{BalancedHost, Speaks};
use crate::bounded::Bounded;
use crate::clock::Instant;
use crate::pool::ejection::Ejection;
use crate::trace::{HostAtDial, HostClose};
use conduct::Conduct;
pub(crate) use learned_keep_alive::IdleLimit;
use learned_keep_alive::LearnedKeepAlive;

/// The facts about hosts without a record.
#[derive(Debug)]
pub(super) struct Memory<K> {
    hosts: Bounded<K, Box<Facts>>,
}

/// The facts about a host.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Facts {
    /// What connections have shown of the server, and when.
    server: Option<(KnownServer, Instant)>,
    /// The usual time of a dial, while the host has no record.
    pub(super) usual_dial: Usual,
    /// The idle timeout that the server has shown by closing idle connections.
    pub(super) keep_alive: LearnedKeepAlive,
    /// The same from connections that were found lost under requests. The network may have lost them.
    pub(super) keep_lost: LearnedKeepAlive,
    /// The same for connections that were never used, to which servers often apply another timeout.
    pub(super) keep_unused: LearnedKeepAlive,
    /// The `Keep-Alive: timeout` of the last response. It says when unused connections are replaced ahead of requests, and nothing else.
    pub(super) announced: Option<Duration>,
    pub(super) conduct: Conduct,
    pub(super) recent: RecentDials,
    pub(super) totals: Totals,
    pub(super) resting: Resting,
}

/// The balance of a host without a record, and when it lost its record. Where a server closes each connection after its response, the host
/// has no record between two requests, and its ejections hold all the same.
#[derive(Debug, Default)]
pub(super) struct Resting(Option<(Box<Balance>, Instant)>);

/// The facts about a server, as connections to it have shown them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownServer {
    /// The protocol of the connection that was opened last.
    pub(crate) speaks: Speaks,
    /// The number of requests at a time that a connection takes.
    pub(crate) streams: usize,
    /// The idle timeout that the server was seen to have, less a margin.
    pub(crate) idle_limit: Option<IdleLimit>,
}

/// The connections that were opened lately, and the one that ended last: they explain why another one is opened.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RecentDials {
    /// The start of the second in which `opened` are counted.
    since: Option<Instant>,
    opened: u32,
    pub(super) last_close: Option<HostClose>,
}

/// The time after which the protocol is forgotten, unless another connection has shown it again.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
const MOST_HOSTS: usize = 1_024;
/// The time for which the balance of a host without a record is remembered: as long as an address is ejected at most, by default.
const RESTS: Duration = Duration::from_secs(300);
/// The most addresses of a balance that is remembered: as many as a call dials.
const MOST_ADDRESSES: usize = 64;
const SECOND: Duration = Duration::from_secs(1);

impl<K: Eq + Hash> Default for Memory<K> {
    fn default() -> Self {
        Self { hosts: Bounded::new(MOST_HOSTS, Duration::MAX) }
    }
}

impl<K: Clone + Eq + Hash> Memory<K> {
    /// Returns the facts about a host, which are in its record from now on.
    pub(super) fn take(&mut self, now: Instant, host: &K) -> Box<Facts> {
        self.hosts.remove(now, host).unwrap_or_default()
    }

    /// Remembers the facts about a host whose record is removed, if there are any.
    pub(super) fn put(&mut self, now: Instant, host: &K, facts: Box<Facts>) {
        if *facts != Facts::default() {
            self.hosts.insert(now, host.clone(), facts);
        }
    }

    /// Returns true if no other host can be remembered without forgetting one.
    pub(super) fn is_full(&self) -> bool {
        self.hosts.is_full()
    }

    pub(super) fn iter(&self, now: Instant) -> impl Iterator<Item = (&K, &Facts)> {
        self.hosts.iter(now).map(|(host, facts, _)| (host, &**facts))
    }

    /// Forgets what is known of the servers of these hosts, whose settings have changed.
    pub(super) fn forget_servers(&mut self, is_old: impl Fn(&K) -> bool) {
        let old = self.hosts.iter_mut().filter(|(host, _)| is_old(host));
        old.for_each(|(_, facts)| (facts.server, facts.resting) = (None, Resting::default()));
    }
}

impl Facts {
    /// Notes what a connection has shown of the server.
    pub(super) fn note_server(&mut self, now: Instant, server: KnownServer) {
        self.server = Some((server, now));
    }

    pub(super) fn forget_server(&mut self) {
        self.server = None;
    }

    /// Returns what is known of the server, and for how long it has been.
    pub(super) fn server(&self, now: Instant) -> Option<(KnownServer, Duration)> {
        let (server, seen) = self.server?;
        let server = KnownServer { idle_limit: self.keep_alive.known(now), ..server };
        Some((server, now - seen)).filter(|(_, age)| *age < REMEMBERED)
    }

    /// Returns the idle timeout that the server has shown.
    #[inline]
    pub(super) fn idle_limit(&self, now: Instant) -> Option<Duration> {
        self.keep_alive.limit(now).into_iter().chain(self.keep_lost.limit(now)).min()
    }

    /// Adds what was known of the server `age` ago, unless something is known already, or it is too old.
    pub(super) fn restore(&mut self, now: Instant, server: KnownServer, age: Duration) {
        if age < REMEMBERED && self.server.is_none() {
            self.server = Some((server, now - age));
        }
        if let Some(IdleLimit { limit, age }) = server.idle_limit
            && self.keep_alive == LearnedKeepAlive::default()
        {
            self.keep_alive = LearnedKeepAlive::restored(now, limit, age);
        }
    }
}

/// Facts are compared to see whether there are any.
impl PartialEq for Resting {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_none() && other.0.is_none()
    }
}

impl Resting {
    pub(super) fn new(now: Instant, balance: Option<Box<Balance>>) -> Self {
        let small = balance.filter(|balance| balance.len() <= MOST_ADDRESSES);
        Self(small.map(|balance| (balance.rest(), now)))
    }

    /// Returns the balance, if it is not too old, and of these settings.
    pub(super) fn take(&mut self, now: Instant, host: &BalancedHost, rules: Ejection) -> Option<Box<Balance>> {
        let (balance, since) = self.0.take()?;
        Some(balance).filter(|balance| now - since < RESTS && balance.is_of(host, rules))
    }
}

impl RecentDials {
    /// Returns the state of the host's connections for a dial that begins. `open` is the number of those that are open.
    pub(super) fn at_dial(&mut self, now: Instant, open: usize) -> HostAtDial {
        self.begin_second(now);
        HostAtDial::new(open, self.opened, self.last_close)
    }

    /// Notes that a connection has opened.
    pub(super) fn opened(&mut self, now: Instant) {
        self.begin_second(now);
        self.since.get_or_insert(now);
        self.opened += 1;
    }

    /// Ends the second that is counted, if it is over.
    fn begin_second(&mut self, now: Instant) {
        if self.since.is_some_and(|since| now - since >= SECOND) {
            (self.since, self.opened) = (None, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::CloseCause;

    const SERVER: KnownServer = KnownServer { speaks: Speaks::Http2, streams: 9, idle_limit: None };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn speaking(now: Instant) -> Box<Facts> {
        Box::new(Facts { server: Some((SERVER, now)), ..Facts::default() })
    }

    #[test]
    fn facts_are_kept_and_taken_and_nothing_takes_no_room() {
        let (mut memory, now) = (Memory::default(), crate::clock::now());
        memory.put(now, &1, speaking(now));
        memory.put(now, &2, Box::default());
        assert_eq!(memory.iter(now).map(|(host, _)| *host).collect::<Vec<_>>(), [1]);
        assert_eq!(
            (memory.take(now, &1), memory.take(now, &2), memory.take(now, &1)),
            (speaking(now), Box::default(), Box::default())
        );
        memory.put(now, &3, speaking(now));
        memory.forget_servers(|host| *host == 3);
        assert_eq!(memory.take(now, &3).server(now), None);
    }

    #[test]
    fn a_server_is_known_for_an_hour_after_it_was_seen() {
        let (mut facts, now) = (Facts::default(), crate::clock::now());
        facts.note_server(now, SERVER);
        assert_eq!(facts.server(now + REMEMBERED - ms(1)), Some((SERVER, REMEMBERED - ms(1))));
        assert_eq!(facts.server(now + REMEMBERED), None);
    }

    #[test]
    fn what_is_restored_is_as_old_as_it_was_and_replaces_nothing() {
        let (mut facts, now) = (Facts::default(), crate::clock::now());
        let limit = |limit, age| Some(IdleLimit { limit: ms(limit), age: ms(age) });
        let server = KnownServer { idle_limit: limit(7_000, 1_000), ..SERVER };
        facts.restore(now, KnownServer { idle_limit: limit(7_000, 3_600_000), ..SERVER }, REMEMBERED);
        assert_eq!(facts, Facts::default(), "it is too old");
        facts.restore(now, server, REMEMBERED / 2);
        facts.restore(now, KnownServer { streams: 1, idle_limit: limit(8_000, 0), ..SERVER }, Duration::ZERO);
        assert_eq!(facts.server(now), Some((server, REMEMBERED / 2)));
        assert_eq!(facts.server(now + REMEMBERED / 2), None);
    }

    #[test]
    fn the_older_half_makes_room_for_one_more() {
        let (mut memory, now) = (Memory::default(), crate::clock::now());
        for host in 0..1_025_u32 {
            memory.put(now, &host, speaking(now));
            assert!(memory.iter(now).count() <= MOST_HOSTS);
        }
        let mut kept: Vec<_> = memory.iter(now).map(|(host, _)| *host).collect();
        kept.sort_unstable();
        assert_eq!((kept, memory.is_full()), ((512..1_025).collect(), false));
    }

    #[test]
    fn the_connections_opened_in_a_second_are_counted_and_the_last_close_is_remembered() {
        let (mut recent, start) = (RecentDials::default(), crate::clock::now());
        let at = |at| start + ms(at);
        assert_eq!(recent.at_dial(at(0), 0), HostAtDial::default());
        recent.opened(at(0));
        let close = HostClose::new(CloseCause::PeerAnnounced, 1, false);
        recent.last_close = Some(close);
        assert_eq!(recent.at_dial(at(400), 0), HostAtDial::new(0, 1, Some(close)));
        recent.opened(at(400));
        assert_eq!(recent.at_dial(at(999), 1), HostAtDial::new(1, 2, Some(close)));
        assert_eq!(recent.at_dial(at(1_500), 0), HostAtDial::new(0, 0, Some(close)), "another second");
    }
}
