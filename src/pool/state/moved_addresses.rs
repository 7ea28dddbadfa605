//! The addresses that have left their names' DNS answers. A core.
//!
//! An address that is missing from one answer may be back in the next: many names list their addresses in turns. So an address counts
//! as moved when a second answer, a TTL after the first one without it, is the same. Where addresses have come back lately, that
//! proves nothing. Where answers change a little each time, as those of a set of machines that come and go, an address counts as moved
//! when it has been missing for ten TTLs.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::world::RandomState;

use crate::clock::Instant;
use crate::pool::config::FollowDns;
use crate::pool::state::values::{Addresses, Location};
use crate::trace::Family;

/// The names of open connections, and the addresses they lead to.
#[derive(Debug)]
pub(super) struct MovedAddresses {
    follow: FollowDns,
    names: HashMap<Arc<str>, OpenName, RandomState>,
    /// The names to examine, in the order of the times at which they are due.
    due: BTreeSet<(Instant, Arc<str>)>,
    /// The time of the pool's timer for them.
    pub(super) timer: Option<Instant>,
}

/// A name with open connections.
#[derive(Debug, Default)]
struct OpenName {
    /// The addresses of the open connections.
    addresses: Vec<OpenAddress>,
    /// The last answers, by [`Family`].
    answers: [Option<Known>; 2],
    /// The name's time in the list of those to examine.
    due: Option<Instant>,
}

/// An address with open connections.
#[derive(Debug)]
struct OpenAddress {
    ip: IpAddr,
    /// The port that the resolver has named; 0 for the usual one.
    port: u16,
    /// The indices of its connections.
    connections: BTreeSet<usize>,
    /// The time of the first answer without the address.
    missing: Option<Instant>,
    /// True if the address was reported as moved.
    is_reported: bool,
}

/// The last answer in one family.
#[derive(Debug)]
struct Known {
    answer: Addresses,
    since: Instant,
    /// True if the same answer came again, a TTL or more later.
    is_confirmed: bool,
    /// Addresses that answers had lately, and the times at which they went missing.
    away: VecDeque<(IpAddr, Instant)>,
    /// The time at which an address came back last.
    returned: Option<Instant>,
    /// The time since which each answer has had at least half of the addresses of the one before.
    gradual: Option<Instant>,
}

/// The time at which an address counts as moved if nothing changes.
#[derive(Debug, Clone, Copy)]
struct Move {
    at: Instant,
    /// True if the move is certain without another answer.
    is_sure: bool,
}

/// A change of the time at which a name is to be examined.
#[derive(Debug, Clone, Copy)]
struct DueChange {
    from: Option<Instant>,
    to: Option<Instant>,
}

/// The part of its TTL by which the next answer may be late.
const GRACE_PART_OF_TTL: u32 = 4;
const LONGEST_GRACE: Duration = Duration::from_secs(1);
/// The shortest time between two answers that may differ.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// The number of TTLs after which an event no longer matters.
const TTLS_REMEMBERED: u32 = 10;
const MAX_MISSING: usize = 64;
/// A time so far away that it never comes.
const NEVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl MovedAddresses {
    pub(super) fn new(follow: FollowDns) -> Self {
        Self { follow, names: HashMap::default(), due: BTreeSet::new(), timer: None }
    }

    /// Adds a connection. Returns true if the name's answers should be reported now: none is known, or they are without the address.
    pub(super) fn opened(&mut self, now: Instant, location: &Location, conn: usize) -> bool {
        if self.follow == FollowDns::Off {
            return false;
        }
        let name = self.names.entry(location.name.clone()).or_default();
        let missing = if name.has(location) { None } else { Some(now) };
        match name.addresses.iter_mut().find(|address| address.is_at(location)) {
            Some(address) => {
                address.connections.insert(conn);
                address.is_reported = false;
            }
            None => {
                let Location { ip, port, .. } = *location;
                let connections = BTreeSet::from([conn]);
                name.addresses.push(OpenAddress { ip, port, connections, missing, is_reported: false });
            }
        }
        let wants_answers = missing.is_some() || name.answers.iter().all(Option::is_none);
        if let Some(due) = name.reschedule(now, self.follow) {
            self.change_due(&location.name, due);
        }
        wants_answers
    }

    /// Removes a connection.
    pub(super) fn closed(&mut self, location: &Location, conn: usize) {
        let Entry::Occupied(mut entry) = self.names.entry(location.name.clone()) else { return };
        let name = entry.get_mut();
        if let Some(index) = name.addresses.iter().position(|address| address.is_at(location)) {
            name.addresses[index].connections.remove(&conn);
            if name.addresses[index].connections.is_empty() {
                name.addresses.swap_remove(index);
            }
        }
        if name.addresses.is_empty() {
            let due = name.due;
            let (key, _) = entry.remove_entry();
            if let Some(due) = due {
                self.due.remove(&(due, key));
            }
        }
    }

    /// Reports an answer for a name. `is_new` is true if it replaces the one that is known.
    pub(super) fn answered(&mut self, now: Instant, name: &str, answer: &Addresses, is_new: bool) {
        let Some(known) = self.names.get_mut(name) else { return };
        known.answered(now, answer, is_new);
        if let Some(due) = known.reschedule(now, self.follow)
            && let Some(key) = self.names.get_key_value(name).map(|(key, _)| key.clone())
        {
            self.change_due(&key, due);
        }
    }

    /// Returns the connections whose addresses have moved by `now`, and the names whose answers should be reported again, to see if they are still
    /// the same.
    pub(super) fn take_due(&mut self, now: Instant) -> (Vec<usize>, Vec<Arc<str>>) {
        let mut moved = Vec::new();
        let mut unsure = Vec::new();
        while let Some((_, key)) = self.due.first().filter(|(at, _)| *at <= now).cloned() {
            let Some(name) = self.names.get_mut(&key) else { break };
            for index in 0..name.addresses.len() {
                let Some(next) = name.next_move(index, self.follow).filter(|next| next.at <= now) else { continue };
                if next.is_sure {
                    name.addresses[index].is_reported = true;
                    moved.extend(&name.addresses[index].connections);
                } else if unsure.last() != Some(&key) {
                    unsure.push(key.clone());
                }
            }
            if let Some(due) = name.reschedule(now, self.follow) {
                self.change_due(&key, due);
            }
        }
        (moved, unsure)
    }

    /// Returns the time of the next [`take_due`](Self::take_due).
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns the names of open connections.
    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.names.keys().cloned().collect()
    }

    /// Puts a name at another place of the list of those to examine.
    fn change_due(&mut self, key: &Arc<str>, change: DueChange) {
        self.due.extend(change.to.map(|at| (at, key.clone())));
        if let Some(from) = change.from {
            self.due.remove(&(from, key.clone()));
        }
    }
}

impl OpenAddress {
    fn is_at(&self, location: &Location) -> bool {
        (self.ip, self.port) == (location.ip, location.port)
    }
}

impl OpenName {
    /// Returns the last answer in the family of an address.
    fn answer_for(&self, ip: IpAddr) -> Option<&Known> {
        self.answers[Family::of(ip) as usize].as_ref()
    }

    /// Returns true if an address is in its family's answer, or no answer is known.
    fn has(&self, at: &Location) -> bool {
        self.answer_for(at.ip).is_none_or(|known| known.answer.leads_to(at.ip, at.port))
    }

    fn ttl(&self, index: usize) -> Duration {
        self.answer_for(self.addresses[index].ip).map_or(SHORTEST_TTL, Known::interval)
    }

    fn answered(&mut self, now: Instant, answer: &Addresses, is_new: bool) {
        let known = &mut self.answers[answer.family as usize];
        match known {
            None => *known = Some(Known::new(now, answer)),
            Some(known) if !is_new || (answer.serial.is_some() && known.answer.serial > answer.serial) => return,
            Some(known) if is_same(&known.answer, answer) => {
                // What is left of the TTL is zero if the answer has expired: then it is the one that is known, unless its number says
                // otherwise, and confirms nothing.
                let is_another = !answer.ttl.is_zero() || answer.serial > known.answer.serial;
                known.is_confirmed |= is_another && now >= known.settles_at();
                known.answer.serial = answer.serial.or(known.answer.serial);
                return;
            }
            Some(known) => known.change(now, answer),
        }
        for address in self.addresses.iter_mut().filter(|address| Family::of(address.ip) == answer.family) {
            if answer.leads_to(address.ip, address.port) {
                address.missing = None;
                address.is_reported = false;
            } else {
                address.missing.get_or_insert(now);
            }
        }
    }

    /// Sets the time at which the name is to be examined. Returns the change of it, if there is one.
    fn reschedule(&mut self, now: Instant, follow: FollowDns) -> Option<DueChange> {
        let times = (0..self.addresses.len()).filter_map(|index| {
            let next = self.next_move(index, follow)?;
            // A name that was asked about and not answered is looked at again before an answer that comes now expires.
            let is_ahead = next.is_sure || next.at > now;
            Some(if is_ahead { next.at } else { now + self.ttl(index) / 2 })
        });
        let to = times.min();
        let from = std::mem::replace(&mut self.due, to);
        (from != to).then_some(DueChange { from, to })
    }

    /// Returns the time at which an address counts as moved if nothing changes.
    fn next_move(&self, index: usize, follow: FollowDns) -> Option<Move> {
        let address = &self.addresses[index];
        let missing = address.missing.filter(|_| !address.is_reported)?;
        let known = self.answer_for(address.ip)?;
        // A name without any addresses has not moved anywhere.
        if self.answers.iter().flatten().all(|known| known.answer.ips.is_empty()) {
            return None;
        }
        if follow == FollowDns::AtOnce || known.answer.is_sure {
            return Some(Move { at: missing, is_sure: true });
        }
        let long = known.interval().saturating_mul(TTLS_REMEMBERED);
        let has_outlasted = known.gradual.filter(|since| *since <= missing).and_then(|_| missing.checked_add(long));
        let rotates_until = known.returned.and_then(|returned| returned.checked_add(long));
        let settled = rotates_until.into_iter().chain([known.settles_at()]).max()?;
        match has_outlasted {
            Some(outlasted) if outlasted < settled => Some(Move { at: outlasted, is_sure: true }),
            _ => Some(Move { at: settled, is_sure: known.is_confirmed }),
        }
    }
}

impl Known {
    fn new(now: Instant, answer: &Addresses) -> Self {
        Self {
            answer: answer.clone(),
            since: now,
            is_confirmed: false,
            away: VecDeque::new(),
            returned: None,
            gradual: Some(now),
        }
    }

    fn change(&mut self, now: Instant, answer: &Addresses) {
        let stayed = self.answer.ips.iter().filter(|ip| answer.ips.contains(ip)).count();
        self.gradual = if stayed * 2 >= self.answer.ips.len() { self.gradual.or(Some(now)) } else { None };
        // A connection may be open a moment before its answer is reported, so an address that was away for a moment was not.
        let has_returned = |(ip, since): &(IpAddr, Instant)| answer.ips.contains(ip) && now - *since >= SHORTEST_TTL;
        if self.away.iter().any(has_returned) {
            self.returned = Some(now);
        }
        self.away.retain(|(ip, _)| !answer.ips.contains(ip));
        let gone = self.answer.ips.iter().filter(|ip| !answer.ips.contains(ip));
        self.away.extend(gone.map(|ip| (*ip, now)));
        let surplus = self.away.len().saturating_sub(MAX_MISSING);
        self.away.drain(..surplus);
        self.answer = Addresses { serial: answer.serial.or(self.answer.serial), ..answer.clone() };
        self.since = now;
        self.is_confirmed = false;
    }

    /// Returns the time between two answers.
    fn interval(&self) -> Duration {
        self.answer.ttl.max(SHORTEST_TTL)
    }

    /// Returns the time by which the next answer must have come.
    fn settles_at(&self) -> Instant {
        let interval = self.interval();
        let grace = (interval / GRACE_PART_OF_TTL).min(LONGEST_GRACE);
        self.since.checked_add(interval + grace).unwrap_or(self.since + NEVER)
    }
}

/// Returns true if two answers have the same addresses and ports, in whatever order.
fn is_same(one: &Addresses, other: &Addresses) -> bool {
    fn have_same<T: PartialEq>(one: &[T], other: &[T]) -> bool {
        one.iter().all(|item| other.contains(item)) && other.iter().all(|item| one.contains(item))
    }
    let have_same_ports = match (&one.sockets, &other.sockets) {
        (Some(one), Some(other)) => have_same(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    have_same(&one.ips, &other.ips) && have_same_ports
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
        Location { name: "a.test".into(), ip: ip(last), port: 0 }
    }

    fn answer(ips: &[u8], ttl: u64) -> Addresses {
        let ips = ips.iter().map(|last| ip(*last)).collect();
        Addresses { family: Family::V4, ips, sockets: None, ttl: ms(ttl), is_sure: false, serial: None }
    }

    /// A name and its DNS answers, through a cache that asks again after nine tenths of the TTL.
    struct Story {
        names: MovedAddresses,
        start: Instant,
        ttl: u64,
        cached: Vec<u8>,
        moved: Vec<(u64, u8)>,
    }

    impl Story {
        fn new(follow: FollowDns, ttl: u64) -> Self {
            Self {
                names: MovedAddresses::new(follow),
                start: crate::clock::now(),
                ttl,
                cached: Vec::new(),
                moved: Vec::new(),
            }
        }

        fn open(&mut self, now: u64, last: u8) {
            self.names.opened(self.start + ms(now), &at(last), last.into());
        }

        fn answer(&mut self, now: u64, ips: &[u8]) {
            self.cached = ips.to_vec();
            self.names.answered(self.start + ms(now), "a.test", &answer(ips, self.ttl), true);
        }

        /// Lets the time pass until `now`. The cache reports its answer, with the rest of its TTL.
        fn wait(&mut self, now: u64, fresh: bool) {
            while let Some(at) = self.names.next_due().filter(|at| *at <= self.start + ms(now)) {
                let (moved, unsure) = self.names.take_due(at);
                self.moved.extend(moved.into_iter().map(|conn| ((at - self.start).as_secs(), conn as u8)));
                for _ in unsure {
                    let rest = if fresh { self.ttl / 2 } else { 0 };
                    self.names.answered(at, "a.test", &answer(&self.cached, rest), true);
                }
            }
        }

        /// Reports answers one after the other, with connections to the addresses of each if `all`, or of the first one alone.
        fn rotate(follow: FollowDns, answers: &[&[u8]], all: bool) -> Vec<(u64, u8)> {
            let mut story = Self::new(follow, 10_000);
            for (turn, ips) in (0..).zip(answers) {
                story.wait(turn * 9_000, true);
                story.answer(turn * 9_000, ips);
                for last in ips.iter().filter(|_| all || turn == 0) {
                    story.open(turn * 9_000, *last);
                    // The answer that is known already.
                    story.names.answered(story.start + ms(turn * 9_000), "a.test", &answer(ips, 10_000), false);
                }
            }
            story.wait(answers.len() as u64 * 9_000, true);
            story.moved
        }
    }

    #[test]
    fn an_address_has_moved_two_ttls_after_it_was_last_answered() {
        let moved = [&[1, 2][..], &[1, 2], &[2, 3], &[2, 3], &[2, 3]];
        // Last answered at 9 s, missing from 18 s on, still missing from the answer after that.
        assert_eq!(Story::rotate(FollowDns::AfterTwoTtls, &moved, true), [(29, 1)]);
        assert_eq!(Story::rotate(FollowDns::AtOnce, &moved, true), [(18, 1)]);
        assert_eq!(Story::rotate(FollowDns::Off, &moved, true), []);
    }

    #[test]
    fn answers_that_rotate_move_nothing() {
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
            let moved = Story::rotate(FollowDns::AfterTwoTtls, &answers, all);
            assert!(moved.is_empty(), "{moved:?}");
        }
        // Two that come at random are often the same twice in a row.
        let at_random: Vec<[u8; 1]> = (0..200).map(|_| [random.u8(..2)]).collect();
        let answers: Vec<&[u8]> = at_random.iter().map(<[u8; 1]>::as_slice).collect();
        let moved = Story::rotate(FollowDns::AfterTwoTtls, &answers, true);
        assert!(moved.len() <= 1, "only before the first of them has come back: {moved:?}");
    }

    #[test]
    fn an_address_that_left_a_name_with_a_ttl_of_zero_moves_when_the_answer_comes_again() {
        let mut names = MovedAddresses::new(FollowDns::default());
        let start = crate::clock::now();
        names.opened(start, &at(1), 1);
        let moved_at = (0..10).find(|turn| {
            let now = start + ms(turn * 2_000);
            let last = if *turn == 0 { 1 } else { 2 };
            names.answered(now, "a.test", &Addresses { serial: Some(turn + 1), ..answer(&[last], 0) }, true);
            !names.take_due(now).0.is_empty()
        });
        assert_eq!(moved_at, Some(2), "the second answer without it");
    }

    #[test]
    fn a_rotating_name_whose_answer_is_late_once_moves_nothing() {
        let mut story = Story::new(FollowDns::AfterTwoTtls, 10_000);
        for turn in 0..100 {
            story.wait(turn * 9_000, false);
            story.answer(turn * 9_000, &[(turn % 2) as u8]);
            story.open(turn * 9_000, (turn % 2) as u8);
        }
        story.wait(100 * 9_000 + 8_000, false);
        story.answer(100 * 9_000 + 8_000, &[0]);
        assert_eq!(story.moved, []);
    }

    #[test]
    fn an_expired_answer_moves_nothing_before_it_was_asked_for_again() {
        let mut story = Story::new(FollowDns::AfterTwoTtls, 5_000);
        story.answer(0, &[1]);
        story.open(0, 1);
        story.answer(0, &[1]);
        story.answer(20_000, &[2]);
        story.wait(60_000, false);
        assert_eq!(story.moved, [], "it has expired, and may change with the next use");
        story.wait(80_000, true);
        assert_eq!(story.moved.len(), 1);
    }

    #[test]
    fn an_address_missing_from_many_answers_has_moved_though_they_change_all_the_time() {
        // One of three is replaced each time and never comes back.
        let churn: Vec<[u8; 3]> = (0..40).map(|turn| [turn, turn + 1, turn + 2]).collect();
        let answers: Vec<&[u8]> = churn.iter().map(<[u8; 3]>::as_slice).collect();
        let moved = Story::rotate(FollowDns::AfterTwoTtls, &answers, true);
        assert_eq!(moved.first(), Some(&(109, 0)), "missing from 9 s on, ten TTLs later");
        assert!(moved.len() > 20);
    }

    #[test]
    fn a_name_without_any_address_has_not_moved() {
        assert_eq!(Story::rotate(FollowDns::AtOnce, &[&[1][..], &[], &[], &[]], true), []);
        let mut story = Story::new(FollowDns::AtOnce, 10_000);
        let v6 = Location { name: "a.test".into(), ip: "2001:db8::1".parse().unwrap(), port: 0 };
        story.names.opened(story.start, &v6, 1);
        let none = Addresses {
            family: Family::V6,
            ips: Arc::new([]),
            sockets: None,
            ttl: ms(10_000),
            is_sure: false,
            serial: None,
        };
        story.names.answered(story.start, "a.test", &none, true);
        assert_eq!(story.names.next_due(), None);
        story.answer(0, &[1]);
        assert_eq!(story.names.next_due(), Some(story.start), "but IPv6 alone may go");
    }

    #[test]
    fn an_answer_older_than_what_is_known_changes_nothing() {
        let mut story = Story::new(FollowDns::AtOnce, 1);
        assert!(story.names.opened(story.start, &at(1), 1), "no answer is known");
        let numbered = |last, serial| Addresses { serial, ..answer(&[last], 1) };
        story.names.answered(story.start, "a.test", &numbered(1, Some(5)), true);
        for (last, serial, new) in [(2, Some(4), true), (2, None, false)] {
            story.names.answered(story.start, "a.test", &numbered(last, serial), new);
            assert_eq!(story.names.next_due(), None);
        }
        assert!(!story.names.opened(story.start, &at(1), 2));
        assert!(story.names.opened(story.start, &at(9), 3), "an address the answer does not have");
        story.names.answered(story.start, "b.test", &answer(&[2], 1), true);
        assert_eq!(story.names.names().len(), 1, "a name without connections is not kept");
    }

    #[test]
    fn nothing_is_kept_of_names_without_connections() {
        let mut names = MovedAddresses::new(FollowDns::default());
        let now = crate::clock::now();
        for conn in 0..3 {
            names.opened(now, &at(1), conn);
        }
        names.answered(now, "a.test", &answer(&[2], 1_000), true);
        names.opened(now, &at(2), 3);
        for (conn, last) in [(0, 1), (1, 1), (3, 2), (2, 1)] {
            assert_eq!((names.names().len(), names.due.len()), (1, 1));
            names.closed(&at(last), conn);
        }
        assert!(names.names.is_empty() && names.due.is_empty());
    }

    #[test]
    fn an_address_has_come_back_if_it_was_away_for_a_second() {
        let start = crate::clock::now();
        let mut known = Known::new(start, &answer(&[1, 2, 3], 10_000));
        let mut change = |at: u64, ips: &[u8]| {
            known.change(start + ms(at), &answer(ips, 10_000));
            let away: Vec<_> = known.away.iter().map(|(ip, since)| (*ip, *since - start)).collect();
            (away, known.returned.map(|returned| returned - start))
        };
        assert_eq!(change(10_000, &[2, 3]), (vec![(ip(1), ms(10_000))], None));
        assert_eq!(change(10_999, &[1, 2, 3]), (vec![], None), "it was not away for long enough");
        assert_eq!(change(20_000, &[1, 2]), (vec![(ip(3), ms(20_000))], None));
        assert_eq!(change(21_000, &[1, 3]), (vec![(ip(2), ms(21_000))], Some(ms(21_000))));
        assert_eq!(change(30_000, &[1]), (vec![(ip(2), ms(21_000)), (ip(3), ms(30_000))], Some(ms(21_000))));
    }

    #[test]
    fn answers_change_gradually_while_half_of_the_addresses_stay() {
        let start = crate::clock::now();
        let mut known = Known::new(start, &answer(&[1, 2, 3, 4], 10_000));
        let mut change = |at: u64, ips: &[u8]| {
            known.change(start + ms(at), &answer(ips, 10_000));
            known.gradual.map(|since| since - start)
        };
        assert_eq!(change(1_000, &[1, 2, 5, 6]), Some(ms(0)));
        assert_eq!(change(2_000, &[1, 7, 8, 9]), None, "one of four stayed");
        assert_eq!(change(3_000, &[1, 7]), Some(ms(3_000)));
        assert_eq!(change(4_000, &[8, 9]), None, "none of two stayed");
    }

    #[test]
    fn an_answer_settles_after_its_ttl_and_a_quarter_but_at_most_a_second_more() {
        let start = crate::clock::now();
        let settles = |ttl| Known::new(start, &Addresses { ttl, ..answer(&[1], 0) }).settles_at() - start;
        let cases = [0, 2_000, 10_000].map(|ttl| settles(ms(ttl)));
        assert_eq!(cases, [ms(1_250), ms(2_500), ms(11_000)]);
        assert_eq!(settles(Duration::from_secs(u64::MAX / 2)), NEVER);
    }

    #[test]
    fn a_connection_to_a_port_that_the_resolver_names_no_more_has_moved() {
        let start = crate::clock::now();
        let ports = |ports: &[u16]| {
            let sockets = ports.iter().map(|port| std::net::SocketAddr::new(ip(1), *port)).collect();
            Addresses { sockets: Some(Arc::new(sockets)), ..answer(&[1], 1_000) }
        };
        for follow in [FollowDns::AtOnce, FollowDns::AfterTwoTtls] {
            let mut names = MovedAddresses::new(follow);
            let [usual, old, kept] = [0, 81, 82].map(|port| Location { port, ..at(1) });
            for (conn, location) in [&usual, &old, &kept].into_iter().enumerate() {
                names.opened(start, location, conn);
            }
            names.answered(start, "a.test", &ports(&[81, 82]), true);
            assert!(names.take_due(start).0.is_empty());
            names.answered(start, "a.test", &ports(&[82, 83]), true);
            let at_once = names.take_due(start).0;
            if follow == FollowDns::AtOnce {
                assert_eq!(at_once, [1]);
                continue;
            }
            assert!(at_once.is_empty());
            let later = start + ms(1_300);
            names.answered(later, "a.test", &ports(&[83, 82]), true);
            assert_eq!(names.take_due(later).0, [1], "the second answer is without it as well");
        }
    }

    #[test]
    fn after_a_sure_answer_an_address_has_moved_at_once() {
        let start = crate::clock::now();
        for is_sure in [false, true] {
            let mut names = MovedAddresses::new(FollowDns::AfterTwoTtls);
            names.opened(start, &at(1), 1);
            names.answered(start, "a.test", &answer(&[1], 60_000), true);
            names.answered(start, "a.test", &Addresses { is_sure, ..answer(&[2], 60_000) }, true);
            assert_eq!(names.take_due(start).0.len(), usize::from(is_sure));
        }
    }

    #[test]
    fn answers_are_the_same_if_each_has_all_addresses_of_the_other() {
        let is_same = |one: &[u8], other: &[u8]| is_same(&answer(one, 0), &answer(other, 0));
        assert!(is_same(&[1, 2], &[2, 1]));
        assert!(!is_same(&[1, 2], &[1]) && !is_same(&[1], &[1, 2]));
    }
}
