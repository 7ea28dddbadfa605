//! Which addresses DNS has left. A core.
//!
//! An address that is missing from one answer may be back in the next: many names list their addresses in turns. So an
//! address is left when a second answer, a TTL after the first one without it, is the same. Where addresses have come back
//! lately, that says nothing; where answers change a little each time, as those of a set of machines that come and go, an
//! address is left when it has been missing for long.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::{Addresses, Location};
use crate::clock::Instant;
use crate::pool::config::FollowDns;
use crate::trace::Family;

/// The names of open connections, and the addresses these lead to.
#[derive(Debug)]
pub(super) struct Names {
    follow: FollowDns,
    names: HashMap<Arc<str>, Name, RandomState>,
    /// When which name is looked at next.
    due: BTreeSet<(Instant, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Name {
    /// Those there are connections to.
    addresses: Vec<Address>,
    /// By [`Family`].
    answers: [Option<Known>; 2],
    due: Option<Instant>,
}

#[derive(Debug)]
struct Address {
    ip: IpAddr,
    connections: usize,
    /// Since when answers are without it.
    missing: Option<Instant>,
    /// Somebody was told that it is left.
    told: bool,
}

/// A family's answer.
#[derive(Debug)]
struct Known {
    addresses: Arc<[IpAddr]>,
    ttl: Duration,
    serial: Option<u64>,
    since: Instant,
    /// When it was the same again, a TTL or more later.
    confirmed: bool,
    /// Addresses it had lately, and when they went.
    away: VecDeque<(IpAddr, Instant)>,
    /// When one of them came back.
    returned: Option<Instant>,
    /// Since when each answer had at least half of the addresses of the one before.
    gradual: Option<Instant>,
}

/// The next answer is given this part of its TTL, and at most a second, to be late.
const GRACE: u32 = 4;
const MOST_GRACE: Duration = Duration::from_secs(1);
/// Answers are not taken to change more often than this.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// What happened so many TTLs ago has nothing to say any more.
const LONG: u32 = 10;
const MOST_AWAY: usize = 64;

impl Names {
    pub(super) fn new(follow: FollowDns) -> Self {
        Self { follow, names: HashMap::default(), due: BTreeSet::new() }
    }

    /// There is a connection more. Whether the name's answers should be told now: nothing is known of them, or they are without
    /// the address.
    pub(super) fn opened(&mut self, now: Instant, location: &Location) -> bool {
        if self.follow == FollowDns::Off {
            return false;
        }
        let name = self.names.entry(location.name.clone()).or_default();
        let missing = (!name.has(location.ip)).then_some(now);
        match name.addresses.iter_mut().find(|address| address.ip == location.ip) {
            Some(address) => {
                address.connections += 1;
                address.told = false;
            }
            None => name.addresses.push(Address { ip: location.ip, connections: 1, missing, told: false }),
        }
        let wanted = missing.is_some() || name.answers.iter().all(Option::is_none);
        self.schedule(now, &location.name);
        wanted
    }

    /// There is a connection less.
    pub(super) fn closed(&mut self, location: &Location) {
        let Some(name) = self.names.get_mut(&location.name) else { return };
        if let Some(place) = name.addresses.iter().position(|address| address.ip == location.ip) {
            name.addresses[place].connections -= 1;
            if name.addresses[place].connections == 0 {
                name.addresses.swap_remove(place);
            }
        }
        if name.addresses.is_empty()
            && let Some(due) = self.names.remove(&location.name).and_then(|name| name.due)
        {
            self.due.remove(&(due, location.name.clone()));
        }
    }

    /// A name has an answer in a family; `new` where it replaces the one that is known.
    pub(super) fn answered(&mut self, now: Instant, name: &str, answer: &Addresses, new: bool) {
        let Some((key, _)) = self.names.get_key_value(name) else { return };
        let key = key.clone();
        if let Some(name) = self.names.get_mut(name) {
            name.answered(now, answer, new);
        }
        self.schedule(now, &key);
    }

    /// The addresses that are left, and the names whose answers should be told again, to see whether they are the same.
    pub(super) fn look(&mut self, now: Instant) -> (Vec<Location>, Vec<Arc<str>>) {
        let (mut left, mut unsure) = (Vec::new(), Vec::new());
        while let Some((_, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            let Some(name) = self.names.get_mut(&key) else { break };
            for place in 0..name.addresses.len() {
                match name.left_at(place, self.follow) {
                    Some((at, true)) if at <= now => {
                        name.addresses[place].told = true;
                        left.push(Location { name: key.clone(), ip: name.addresses[place].ip });
                    }
                    Some((at, false)) if at <= now && unsure.last() != Some(&key) => unsure.push(key.clone()),
                    _ => {}
                }
            }
            self.schedule(now, &key);
        }
        (left, unsure)
    }

    /// When to [look](Self::look).
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn all(&self) -> Vec<Arc<str>> {
        self.names.keys().cloned().collect()
    }

    fn schedule(&mut self, now: Instant, key: &Arc<str>) {
        let Some(name) = self.names.get_mut(key) else { return };
        let due = (0..name.addresses.len()).filter_map(|place| {
            let (at, sure) = name.left_at(place, self.follow)?;
            // One that was asked about, and not answered, is asked about again a TTL later.
            Some(if sure || at > now { at } else { now + name.ttl(place) })
        });
        let due = due.min();
        let old = std::mem::replace(&mut name.due, due);
        if old != due {
            self.due.extend(due.map(|at| (at, key.clone())));
            if let Some(old) = old {
                self.due.remove(&(old, key.clone()));
            }
        }
    }
}

impl Name {
    fn answer_for(&self, ip: IpAddr) -> Option<&Known> {
        self.answers[Family::of(ip) as usize].as_ref()
    }

    /// Whether an address is in its family's answer, as far as that is known.
    fn has(&self, ip: IpAddr) -> bool {
        self.answer_for(ip).is_none_or(|known| known.addresses.contains(&ip))
    }

    fn ttl(&self, place: usize) -> Duration {
        self.answer_for(self.addresses[place].ip).map_or(SHORTEST_TTL, Known::turn)
    }

    fn answered(&mut self, now: Instant, answer: &Addresses, new: bool) {
        let known = &mut self.answers[answer.family as usize];
        match known {
            None => *known = Some(Known::new(now, answer)),
            Some(known) if !new || (answer.serial.is_some() && known.serial > answer.serial) => return,
            Some(known) if is_same(&known.addresses, &answer.ips) => {
                // One that has expired is the one that is known, and no other.
                known.confirmed |= !answer.ttl.is_zero() && now >= known.settles_at();
                return;
            }
            Some(known) => known.change(now, answer),
        }
        for address in self.addresses.iter_mut().filter(|address| Family::of(address.ip) == answer.family) {
            if answer.ips.contains(&address.ip) {
                (address.missing, address.told) = (None, false);
            } else {
                address.missing.get_or_insert(now);
            }
        }
    }

    /// When an address is left if nothing changes, and whether that will be sure.
    fn left_at(&self, place: usize, follow: FollowDns) -> Option<(Instant, bool)> {
        let address = &self.addresses[place];
        let missing = address.missing.filter(|_| !address.told)?;
        let known = self.answer_for(address.ip)?;
        // A name without any addresses has not moved anywhere.
        if self.answers.iter().flatten().all(|known| known.addresses.is_empty()) {
            return None;
        }
        if follow == FollowDns::AtOnce {
            return Some((missing, true));
        }
        let long = known.turn().saturating_mul(LONG);
        let outlasted = known.gradual.filter(|since| *since <= missing).and_then(|_| missing.checked_add(long));
        let rotates_until = known.returned.and_then(|returned| returned.checked_add(long));
        let settled = rotates_until.into_iter().chain([known.settles_at()]).max()?;
        match outlasted {
            Some(outlasted) if outlasted < settled => Some((outlasted, true)),
            _ => Some((settled, known.confirmed)),
        }
    }
}

impl Known {
    fn new(now: Instant, answer: &Addresses) -> Self {
        Self {
            addresses: answer.ips.clone(),
            ttl: answer.ttl,
            serial: answer.serial,
            since: now,
            confirmed: false,
            away: VecDeque::new(),
            returned: None,
            gradual: Some(now),
        }
    }

    fn change(&mut self, now: Instant, answer: &Addresses) {
        let stayed = self.addresses.iter().filter(|ip| answer.ips.contains(ip)).count();
        self.gradual = if stayed * 2 >= self.addresses.len() { self.gradual.or(Some(now)) } else { None };
        // A connection may be there a moment before its answer, so what was away for a moment was not.
        let back = |(ip, since): &(IpAddr, Instant)| answer.ips.contains(ip) && now - *since >= SHORTEST_TTL;
        if self.away.iter().any(back) {
            self.returned = Some(now);
        }
        self.away.retain(|(ip, _)| !answer.ips.contains(ip));
        let gone = self.addresses.iter().filter(|ip| !answer.ips.contains(ip));
        self.away.extend(gone.map(|ip| (*ip, now)));
        let surplus = self.away.len().saturating_sub(MOST_AWAY);
        self.away.drain(..surplus);
        (self.addresses, self.ttl, self.since, self.confirmed) = (answer.ips.clone(), answer.ttl, now, false);
        self.serial = answer.serial.or(self.serial);
    }

    /// How often there is a new answer.
    fn turn(&self) -> Duration {
        self.ttl.max(SHORTEST_TTL)
    }

    /// When the next answer must have come.
    fn settles_at(&self) -> Instant {
        let turn = self.turn();
        // Far away where it cannot be told.
        self.since.checked_add(turn + (turn / GRACE).min(MOST_GRACE)).unwrap_or(self.since + FAR)
    }
}

const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn is_same(one: &[IpAddr], other: &[IpAddr]) -> bool {
    one.iter().all(|ip| other.contains(ip)) && other.iter().all(|ip| one.contains(ip))
}

impl PartialEq for Location {
    fn eq(&self, other: &Self) -> bool {
        self.ip == other.ip && self.name == other.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn at(last: u8) -> Location {
        Location { name: "a.test".into(), ip: ip(last) }
    }

    fn answer(ips: &[u8], ttl: u64) -> Addresses {
        let ips = ips.iter().map(|last| ip(*last)).collect();
        Addresses { family: Family::V4, ips, ttl: ms(ttl), serial: None }
    }

    /// A name and what DNS answers for it, over a cache that asks again when nine tenths of the TTL have passed.
    struct Story {
        names: Names,
        start: Instant,
        ttl: u64,
        cached: Vec<u8>,
        left: Vec<(u64, u8)>,
    }

    impl Story {
        fn new(follow: FollowDns, ttl: u64) -> Self {
            Self { names: Names::new(follow), start: crate::clock::now(), ttl, cached: Vec::new(), left: Vec::new() }
        }

        fn open(&mut self, now: u64, last: u8) {
            self.names.opened(self.start + ms(now), &at(last));
        }

        fn answer(&mut self, now: u64, ips: &[u8]) {
            self.cached = ips.to_vec();
            self.names.answered(self.start + ms(now), "a.test", &answer(ips, self.ttl), true);
        }

        /// Looks up to `now`; the cache says what it has, for the rest of its TTL.
        fn wait(&mut self, now: u64, fresh: bool) {
            while let Some(at) = self.names.next_look().filter(|at| *at <= self.start + ms(now)) {
                let (left, unsure) = self.names.look(at);
                for Location { ip, .. } in left {
                    let IpAddr::V4(ip) = ip else { continue };
                    self.left.push(((at - self.start).as_secs(), ip.octets()[3]));
                }
                for _ in unsure {
                    let rest = if fresh { self.ttl / 2 } else { 0 };
                    self.names.answered(at, "a.test", &answer(&self.cached, rest), true);
                }
            }
        }

        /// Answers one after the other, with a connection to the first address of each, or to the very first one alone.
        fn rotate(follow: FollowDns, answers: &[&[u8]], all: bool) -> Vec<(u64, u8)> {
            let mut story = Self::new(follow, 10_000);
            for (turn, ips) in (0..).zip(answers) {
                story.wait(turn * 9_000, true);
                story.answer(turn * 9_000, ips);
                for last in ips.iter().filter(|_| all || turn == 0) {
                    story.open(turn * 9_000, *last);
                    // As it is known now.
                    story.names.answered(story.start + ms(turn * 9_000), "a.test", &answer(ips, 10_000), false);
                }
            }
            story.wait(answers.len() as u64 * 9_000, true);
            story.left
        }
    }

    #[test]
    fn an_address_is_left_two_ttls_after_it_was_last_answered() {
        let moved = [&[1, 2][..], &[1, 2], &[2, 3], &[2, 3], &[2, 3]];
        // Last answered at 9 s, missing from 18 s on, still missing from the answer after that.
        assert_eq!(Story::rotate(FollowDns::AfterTwoTtls, &moved, true), [(29, 1)]);
        assert_eq!(Story::rotate(FollowDns::AtOnce, &moved, true), [(18, 1)]);
        assert_eq!(Story::rotate(FollowDns::Off, &moved, true), []);
    }

    #[test]
    fn answers_that_rotate_leave_nothing() {
        let twenty: Vec<Vec<u8>> = (0..20).map(|last| vec![last]).collect();
        let turns = [vec![vec![1], vec![2]], vec![vec![1, 2], vec![3, 4], vec![5, 6]], twenty];
        for turns in &turns {
            let answers: Vec<_> = turns.iter().map(Vec::as_slice).cycle().take(200).collect();
            for all in [true, false] {
                assert_eq!(Story::rotate(FollowDns::AfterTwoTtls, &answers, all), []);
            }
        }
        let mut random = fastrand::Rng::with_seed(1);
        let eight_of_64: Vec<Vec<u8>> = (0..200).map(|_| random.choose_multiple(0..64, 8)).collect();
        let answers: Vec<&[u8]> = eight_of_64.iter().map(Vec::as_slice).collect();
        for all in [true, false] {
            let left = Story::rotate(FollowDns::AfterTwoTtls, &answers, all);
            assert!(left.is_empty(), "{left:?}");
        }
        // Two that come at random are often the same twice in a row.
        let at_random: Vec<[u8; 1]> = (0..200).map(|_| [random.u8(..2)]).collect();
        let answers: Vec<&[u8]> = at_random.iter().map(<[u8; 1]>::as_slice).collect();
        let left = Story::rotate(FollowDns::AfterTwoTtls, &answers, true);
        assert!(left.len() <= 1, "only before the first of them has come back: {left:?}");
    }

    #[test]
    fn a_rotating_name_that_is_late_for_once_leaves_nothing() {
        let mut story = Story::new(FollowDns::AfterTwoTtls, 10_000);
        for turn in 0..100 {
            story.wait(turn * 9_000, false);
            story.answer(turn * 9_000, &[(turn % 2) as u8]);
            story.open(turn * 9_000, (turn % 2) as u8);
        }
        story.wait(100 * 9_000 + 8_000, false);
        story.answer(100 * 9_000 + 8_000, &[0]);
        assert_eq!(story.left, []);
    }

    #[test]
    fn an_answer_that_nobody_asked_for_again_leaves_nothing_yet() {
        let mut story = Story::new(FollowDns::AfterTwoTtls, 5_000);
        story.answer(0, &[1]);
        story.open(0, 1);
        story.answer(0, &[1]);
        story.answer(20_000, &[2]);
        story.wait(60_000, false);
        assert_eq!(story.left, [], "it has expired, and may change with the next use");
        story.wait(80_000, true);
        assert_eq!(story.left.len(), 1);
    }

    #[test]
    fn an_address_missing_from_many_answers_is_left_though_they_change_all_the_time() {
        // One of three is replaced each time and never comes back.
        let churn: Vec<[u8; 3]> = (0..40).map(|turn| [turn, turn + 1, turn + 2]).collect();
        let answers: Vec<&[u8]> = churn.iter().map(<[u8; 3]>::as_slice).collect();
        let left = Story::rotate(FollowDns::AfterTwoTtls, &answers, true);
        assert_eq!(left.first(), Some(&(109, 0)), "missing from 9 s on, ten TTLs later");
        assert!(left.len() > 20);
    }

    #[test]
    fn a_name_that_has_gone_altogether_moves_nobody() {
        assert_eq!(Story::rotate(FollowDns::AtOnce, &[&[1][..], &[], &[], &[]], true), []);
        let mut story = Story::new(FollowDns::AtOnce, 10_000);
        let v6 = Location { name: "a.test".into(), ip: "2001:db8::1".parse().unwrap() };
        story.names.opened(story.start, &v6);
        let none = Addresses { family: Family::V6, ips: Arc::new([]), ttl: ms(10_000), serial: None };
        story.names.answered(story.start, "a.test", &none, true);
        assert_eq!(story.names.next_look(), None);
        story.answer(0, &[1]);
        assert_eq!(story.names.next_look(), Some(story.start), "but IPv6 alone may go");
    }

    #[test]
    fn an_answer_older_than_what_is_known_changes_nothing() {
        let mut story = Story::new(FollowDns::AtOnce, 1);
        assert!(story.names.opened(story.start, &at(1)), "nothing is known of it");
        let numbered = |last, serial| Addresses { serial, ..answer(&[last], 1) };
        story.names.answered(story.start, "a.test", &numbered(1, Some(5)), true);
        for (last, serial, new) in [(2, Some(4), true), (2, None, false)] {
            story.names.answered(story.start, "a.test", &numbered(last, serial), new);
            assert_eq!(story.names.next_look(), None);
        }
        assert!(!story.names.opened(story.start, &at(1)));
        assert!(story.names.opened(story.start, &at(9)), "an address the answer does not have");
        story.names.answered(story.start, "b.test", &answer(&[2], 1), true);
        assert_eq!(story.names.all().len(), 1, "a name without connections is nobody's");
    }

    #[test]
    fn nothing_is_kept_of_names_without_connections() {
        let mut names = Names::new(FollowDns::default());
        let now = crate::clock::now();
        for _ in 0..3 {
            names.opened(now, &at(1));
        }
        names.answered(now, "a.test", &answer(&[2], 1_000), true);
        names.opened(now, &at(2));
        for last in [1, 1, 2, 1] {
            assert_eq!((names.all().len(), names.due.len()), (1, 1));
            names.closed(&at(last));
        }
        assert!(names.names.is_empty() && names.due.is_empty());
    }
}
