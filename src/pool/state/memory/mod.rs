//! What is known of hosts, also of those without a connection at the moment. A core.
//!
//! The facts about a host are in its [record](super::hosts::host::Host) while it has one, and here otherwise. At most 1,024 hosts are
//! remembered: the half that left their records first makes room for others.

use std::hash::Hash;
use std::time::Duration;

use super::balance::Balance;
use super::dials::Usual;
use crate::clock::Instant;
use crate::memory::Bounded;
use crate::pool::config::Ejection;
use crate::pool::state::values::{BalancedHost, Speaks, Totals};
use crate::trace::{HostAtDial, HostClose};

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

/// The time after which a close is forgotten, and the protocol, unless another connection has shown it again.
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

/// The recent conduct of a host, as far as the client has to hold back for it.
///
/// Some servers close a connection a moment after an answer, without announcing it. A request that is on its way by then is lost,
/// unless it can be sent twice. A request that must be sent once goes to such a server on a new connection, or on one that has been
/// idle for several times as long as the server was seen to wait. This lasts until the server has closed no connection that way for
/// a minute.
///
/// A server that asks for fewer requests (GOAWAY with ENHANCE_YOUR_CALM, RFC 9113 §7) is not dialled for up to 200 ms. The pause
/// doubles each time it asks again, up to 30 s, and half of each pause is random. Requests that a host refused are resent within
/// an allowance: 100 requests, and 10 more each second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in crate::pool::state) struct Conduct {
    cuts: Option<Cuts>,
    pause: Option<AskedPause>,
    /// The allowance of resends. `None` if all of it is left.
    allowance: Option<Allowance>,
}

/// Closes of connections soon after their last request.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cuts {
    /// The time of the last one.
    last: Instant,
    /// The longest time from the end of a connection's last request to its close.
    age: Duration,
}

/// A pause that the server asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
struct AskedPause {
    until: Instant,
    /// The length of the pause before its random half was shortened.
    longest: Duration,
}

/// An allowance of resends.
#[derive(Debug, Clone, Copy, PartialEq)]
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

impl Conduct {
    /// Notes that the server closed a reused connection under a request, after it had been idle for `age`.
    pub(in crate::pool::state) fn cut(&mut self, now: Instant, age: Duration) {
        let before = self.cuts(now).map_or(Duration::ZERO, |cuts| cuts.age);
        self.cuts = Some(Cuts { last: now, age: age.max(before) });
    }

    /// Notes that the server closed a connection that had been idle for `age`. This counts as a cut only if the server is known to
    /// cut.
    pub(in crate::pool::state) fn closed_idle(&mut self, now: Instant, age: Duration) {
        if self.cuts(now).is_some() {
            self.cut(now, age);
        }
    }

    /// Returns the time that a reused connection must have been idle for a request that must be sent once. `None` if the server is
    /// not known to cut.
    pub(in crate::pool::state) fn rest(&self, now: Instant) -> Option<Duration> {
        self.cuts(now).map(|cuts| (cuts.age * REST_FACTOR).clamp(SHORTEST_REST, LONGEST_REST))
    }

    fn cuts(&self, now: Instant) -> Option<Cuts> {
        self.cuts.filter(|cuts| now < cuts.last + CUTS_REMEMBERED)
    }

    /// Begins a pause that the server asked for, and returns its end. `random` is from 0 to 1.
    pub(in crate::pool::state) fn pause(&mut self, now: Instant, random: f64) -> Instant {
        let longest = match self.pause {
            // The server asks on each of its connections.
            Some(pause) if now < pause.until => return pause.until,
            Some(pause) if now < pause.until + PAUSE_REMEMBERED => (pause.longest * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        let until = now + longest / 2 + (longest / 2).mul_f64(random);
        self.pause = Some(AskedPause { until, longest });
        until
    }

    /// Returns the end of the pause that the server asked for, if it is not over.
    pub(in crate::pool::state) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.pause.map(|pause| pause.until).filter(|until| now < *until)
    }

    /// Takes one resend from the allowance. Returns false if none is left.
    pub(in crate::pool::state) fn may_resend(&mut self, now: Instant) -> bool {
        let left = self.allowance.map_or(MOST_RESENDS, |Allowance { left, since }| {
            (left + (now - since).as_secs_f64() * RESENDS_PER_SECOND).min(MOST_RESENDS)
        });
        let is_enough = left >= 1.0;
        self.allowance = Some(Allowance { left: if is_enough { left - 1.0 } else { left }, since: now });
        is_enough
    }
}

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

#[cfg(test)]
mod conduct_tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn connections_to_a_server_that_cuts_rest_until_it_has_not_cut_for_a_minute() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        conduct.closed_idle(now, ms(3));
        assert_eq!(conduct.rest(now), None, "closing an idle connection is no cut");
        conduct.cut(now, ms(3));
        assert_eq!(conduct.rest(now), Some(SHORTEST_REST));
        conduct.closed_idle(now + ms(50_000), ms(100));
        conduct.cut(now + ms(50_000), ms(3));
        assert_eq!(conduct.rest(now + ms(109_999)), Some(ms(400)));
        assert_eq!(conduct.rest(now + ms(110_000)), None);
        conduct.cut(now + ms(120_000), ms(3));
        assert_eq!(conduct.rest(now + ms(120_000)), Some(SHORTEST_REST), "earlier cuts are forgotten");
    }

    #[test]
    fn pauses_double_until_the_server_has_asked_for_none_for_a_minute() {
        let (mut conduct, mut now) = (Conduct::default(), crate::clock::now());
        for longest in [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000] {
            assert_eq!(conduct.pause(now, 1.0), now + ms(longest));
            assert_eq!(
                conduct.pause(now + ms(1), 0.0),
                now + ms(longest),
                "another connection's GOAWAY begins no other"
            );
            assert_eq!(conduct.paused_until(now), Some(now + ms(longest)));
            now += ms(longest);
        }
        assert_eq!(conduct.paused_until(now), None);
        now += PAUSE_REMEMBERED;
        assert_eq!(conduct.pause(now, 0.0), now + ms(100), "half of a pause is random");
    }

    #[test]
    fn resends_are_allowed_a_hundred_at_once_and_ten_in_a_second() {
        let (mut conduct, now) = (Conduct::default(), crate::clock::now());
        let mut resends = |at: u64| (0..1_000).filter(|_| conduct.may_resend(now + ms(at))).count();
        assert_eq!([resends(0), resends(0), resends(1_000), resends(100_000)], [100, 0, 10, 100]);
    }
}

#[cfg(test)]
mod learned_keep_alive_tests {
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
