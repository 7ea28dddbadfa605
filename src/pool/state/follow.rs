//! Which addresses DNS has left. A core.
//!
//! An address that is missing from one answer may be back in the next: many names list their addresses in turns. So an
//! address is left when the name's answer has been without it, and has not changed, for as long as it takes the next
//! answer to come; or when it is missing from many answers in a row while no other one that was missing comes back.

use std::collections::HashMap;
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
}

#[derive(Debug, Default)]
struct Name {
    addresses: Vec<Address>,
    /// By [`Family`].
    answers: [Option<Known>; 2],
}

/// An address to which there are connections.
#[derive(Debug)]
struct Address {
    ip: IpAddr,
    connections: usize,
    missing: Option<Instant>,
    /// It was told that it is left.
    told: bool,
}

/// A family's answer.
#[derive(Debug)]
struct Known {
    addresses: Arc<[IpAddr]>,
    ttl: Duration,
    serial: Option<u64>,
    since: Instant,
    /// When an address that had been missing came back.
    returned: Option<Instant>,
}

/// An answer is given this part of its TTL, and at most a second, to be late.
const GRACE: u32 = 4;
const MOST_GRACE: Duration = Duration::from_secs(1);
/// Answers are not taken to change more often than this.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// An address that is missing for so many TTLs from answers that change all the time is left.
const MANY: u32 = 10;

impl Names {
    pub(super) fn new(follow: FollowDns) -> Self {
        Self { follow, names: HashMap::default() }
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
        missing.is_some() || name.answers.iter().all(Option::is_none)
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
        if name.addresses.is_empty() {
            self.names.remove(&location.name);
        }
    }

    /// A name has an answer in a family; `new` where it replaces the one that is known. One told again changes nothing.
    pub(super) fn answered(&mut self, now: Instant, name: &str, answer: &Addresses, new: bool) {
        let Some(name) = self.names.get_mut(name) else { return };
        let Addresses { family, ips: addresses, ttl, serial } = answer;
        let (family, ttl) = (*family, *ttl);
        let known = &mut name.answers[family as usize];
        let is_old = |known: &Known| serial.is_some() && known.serial > *serial;
        if known.as_ref().is_some_and(|known| !new || is_old(known) || is_same(&known.addresses, addresses)) {
            return;
        }
        let serial = serial.or(known.as_ref().and_then(|known| known.serial));
        let mut returned = known.as_ref().and_then(|known| known.returned);
        for address in name.addresses.iter_mut().filter(|address| Family::of(address.ip) == family) {
            match addresses.contains(&address.ip) {
                true => {
                    // A connection may be there a moment before its answer.
                    let was_away = address.missing.take().is_some_and(|since| now - since >= SHORTEST_TTL);
                    returned = if was_away { Some(now) } else { returned };
                    address.told = false;
                }
                false => drop(address.missing.get_or_insert(now)),
            }
        }
        *known = Some(Known { addresses: addresses.clone(), ttl, serial, since: now, returned });
    }

    pub(super) fn all(&self) -> Vec<Arc<str>> {
        self.names.keys().cloned().collect()
    }

    /// The addresses that are left, each once.
    pub(super) fn take_left(&mut self, now: Instant) -> Vec<Location> {
        let mut left = Vec::new();
        for (name, entry) in &mut self.names {
            for place in 0..entry.addresses.len() {
                if entry.left_at(place, self.follow).is_some_and(|at| at <= now) {
                    entry.addresses[place].told = true;
                    left.push(Location { name: name.clone(), ip: entry.addresses[place].ip });
                }
            }
        }
        left
    }

    /// When there may be addresses to take.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let left_at = |name: &Name| (0..name.addresses.len()).filter_map(|at| name.left_at(at, self.follow)).min();
        self.names.values().filter_map(left_at).min()
    }
}

impl Name {
    /// Whether an address is in its family's answer, as far as that is known.
    fn has(&self, ip: IpAddr) -> bool {
        self.answers[Family::of(ip) as usize].as_ref().is_none_or(|known| known.addresses.contains(&ip))
    }

    /// When an address is left, if nothing changes.
    fn left_at(&self, place: usize, follow: FollowDns) -> Option<Instant> {
        let address = &self.addresses[place];
        let missing = address.missing.filter(|_| !address.told)?;
        let known = self.answers[Family::of(address.ip) as usize].as_ref()?;
        // A name without any addresses has not moved anywhere.
        if self.answers.iter().flatten().all(|known| known.addresses.is_empty()) {
            return None;
        }
        if follow == FollowDns::AtOnce {
            return Some(missing);
        }
        let ttl = known.ttl.max(SHORTEST_TTL);
        let settled = known.since.max(missing).checked_add(ttl + (ttl / GRACE).min(MOST_GRACE))?;
        let outlasted = missing.checked_add(ttl.checked_mul(MANY)?)?;
        match known.returned {
            Some(returned) if returned >= missing => Some(settled),
            _ => Some(settled.min(outlasted)),
        }
    }
}

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

    /// A name with a TTL of 10 s, whose answers come every 9 s.
    struct Story {
        names: Names,
        start: Instant,
        left: Vec<(u64, u8)>,
    }

    impl Story {
        fn new(follow: FollowDns) -> Self {
            Self { names: Names::new(follow), start: crate::clock::now(), left: Vec::new() }
        }

        fn answer(&mut self, now: u64, ips: &[u8]) {
            let ips = ips.iter().map(|last| ip(*last)).collect();
            let answer = Addresses { family: Family::V4, ips, ttl: ms(10_000), serial: None };
            self.names.answered(self.start + ms(now), "a.test", &answer, true);
        }

        /// Notes what is left up to `now`, in seconds.
        fn wait(&mut self, now: u64) {
            while let Some(at) = self.names.next_check().filter(|at| *at <= self.start + ms(now)) {
                for Location { ip, .. } in self.names.take_left(at) {
                    let IpAddr::V4(ip) = ip else { continue };
                    self.left.push(((at - self.start).as_secs(), ip.octets()[3]));
                }
            }
        }

        /// Answers one after the other, with a connection to each address that comes up.
        fn rotate(follow: FollowDns, answers: &[&[u8]]) -> Vec<(u64, u8)> {
            let mut story = Self::new(follow);
            for (turn, ips) in (0..).zip(answers) {
                story.wait(turn * 9_000);
                story.answer(turn * 9_000, ips);
                for last in *ips {
                    story.names.opened(story.start + ms(turn * 9_000), &at(*last));
                    story.answer(turn * 9_000, ips);
                }
            }
            story.wait(answers.len() as u64 * 9_000);
            story.left
        }
    }

    #[test]
    fn an_address_is_left_two_ttls_after_it_was_last_answered() {
        let moved = [&[1, 2][..], &[1, 2], &[2, 3], &[2, 3], &[2, 3]];
        // Last answered at 9 s, missing from 18 s on, still missing from the answer after that.
        assert_eq!(Story::rotate(FollowDns::AfterTwoTtls, &moved), [(29, 1)]);
        assert_eq!(Story::rotate(FollowDns::AtOnce, &moved), [(18, 1)]);
        assert_eq!(Story::rotate(FollowDns::Off, &moved), []);
    }

    #[test]
    fn answers_that_rotate_leave_nothing() {
        for turns in
            [vec![&[1][..], &[2]], vec![&[1, 2], &[3, 4], &[5, 6]], vec![&[1], &[2], &[3], &[4], &[5], &[6], &[7]]]
        {
            let answers: Vec<_> = turns.iter().copied().cycle().take(100).collect();
            assert_eq!(Story::rotate(FollowDns::AfterTwoTtls, &answers), []);
        }
        let mut random = fastrand::Rng::with_seed(1);
        let eight_of_64: Vec<Vec<u8>> =
            (0..200).map(|_| fastrand::Rng::with_seed(random.u64(..)).choose_multiple(0..64, 8)).collect();
        let answers: Vec<&[u8]> = eight_of_64.iter().map(Vec::as_slice).collect();
        let left = Story::rotate(FollowDns::AfterTwoTtls, &answers);
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn an_address_missing_from_many_answers_is_left_though_they_change_all_the_time() {
        // One of three is replaced each time and never comes back.
        let churn: Vec<[u8; 3]> = (0..40).map(|turn| [turn, turn + 1, turn + 2]).collect();
        let answers: Vec<&[u8]> = churn.iter().map(<[u8; 3]>::as_slice).collect();
        let left = Story::rotate(FollowDns::AfterTwoTtls, &answers);
        assert_eq!(left.first(), Some(&(109, 0)), "missing from 9 s on, ten TTLs later");
        assert!(left.len() > 20);
    }

    #[test]
    fn a_name_that_has_gone_altogether_moves_nobody() {
        assert_eq!(Story::rotate(FollowDns::AtOnce, &[&[1][..], &[], &[], &[]]), []);
        let mut story = Story::new(FollowDns::AfterTwoTtls);
        let v6 = Location { name: "a.test".into(), ip: "2001:db8::1".parse().unwrap() };
        story.names.opened(story.start, &v6);
        story.answer(0, &[1]);
        let none = Addresses { family: Family::V6, ips: Arc::new([]), ttl: ms(10_000), serial: None };
        story.names.answered(story.start, "a.test", &none, true);
        assert_eq!(story.names.next_check(), Some(story.start + ms(11_000)), "but IPv6 alone may go");
    }

    #[test]
    fn an_answer_older_than_what_is_known_changes_nothing() {
        let mut story = Story::new(FollowDns::AtOnce);
        assert!(story.names.opened(story.start, &at(1)), "nothing is known of it");
        let answer = |last, serial| Addresses { family: Family::V4, ips: Arc::new([ip(last)]), ttl: ms(1), serial };
        story.names.answered(story.start, "a.test", &answer(1, Some(5)), true);
        for (last, serial, new) in [(2, Some(4), true), (2, None, false)] {
            story.names.answered(story.start, "a.test", &answer(last, serial), new);
            assert_eq!(story.names.next_check(), None);
        }
        assert!(!story.names.opened(story.start, &at(1)));
        assert!(story.names.opened(story.start, &at(9)), "an address the answer does not have");
        story.names.answered(story.start, "b.test", &answer(2, None), true);
        assert_eq!(story.names.all().len(), 1, "a name without connections is nobody's");
    }

    #[test]
    fn nothing_is_kept_of_names_without_connections() {
        let mut names = Names::new(FollowDns::default());
        let now = crate::clock::now();
        for _ in 0..3 {
            names.opened(now, &at(1));
        }
        names.opened(now, &at(2));
        for last in [1, 1, 2, 1] {
            assert_eq!(names.all().len(), 1);
            names.closed(&at(last));
        }
        assert!(names.names.is_empty());
    }
}
