//! Which addresses did well lately, and which family of a host did. A core: it is told the time, and it forgets.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;

use super::preference::Way;
use crate::clock::Instant;
use crate::trace::Family;

/// How long an address that failed is tried last: after the first failure, and at most.
const FIRST_PENALTY: Duration = Duration::from_secs(15);
const LONGEST_PENALTY: Duration = Duration::from_secs(60);
/// An address that takes longer than this to connect lets others go first.
const SLOW: Duration = Duration::from_millis(250);
/// What was seen longer ago says nothing.
const FORGOTTEN: Duration = Duration::from_secs(10 * 60);
/// How long routes are taken to be as they were.
const SAME_WAY: Duration = Duration::from_secs(10);
/// How many addresses, and how many hosts, are remembered; the older half leaves.
const MOST: usize = 4_096;

/// In which turn an address is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It did well, or nothing is known of it.
    Fine,
    /// It takes its time.
    Slow,
    /// It failed.
    Failed,
}

pub(crate) struct Scoreboard {
    addresses: HashMap<SocketAddr, Score, RandomState>,
    hosts: HashMap<Arc<str>, (Family, Instant), RandomState>,
    ways: HashMap<IpAddr, (Way, Instant), RandomState>,
    turns: HashMap<(Arc<str>, u16), (usize, Instant), RandomState>,
}

#[derive(Debug, Clone, Copy)]
struct Score {
    /// Failures since the last success.
    failures: u32,
    /// Smoothed as TCP smooths its round trips (RFC 6298 §2): an eighth of each new one.
    connect: Option<Duration>,
    seen: Instant,
}

impl Scoreboard {
    pub(crate) fn new() -> Self {
        let (addresses, hosts, ways) = (HashMap::default(), HashMap::default(), HashMap::default());
        Self { addresses, hosts, ways, turns: HashMap::default() }
    }

    /// An address connected; `over` says that its host had the other family to offer, too.
    pub(crate) fn connected(&mut self, now: Instant, host: Option<&Arc<str>>, address: SocketAddr, took: Duration) {
        let score = self.score(now, address);
        score.failures = 0;
        score.connect = Some(score.connect.map_or(took, |before| (before * 7 + took) / 8));
        if let Some(host) = host {
            make_room(&mut self.hosts, |(_, seen)| *seen);
            self.hosts.insert(host.clone(), (Family::of(address.ip()), now));
        }
    }

    /// An address failed, or was beaten though it had its time.
    pub(crate) fn failed(&mut self, now: Instant, address: SocketAddr) {
        let score = self.score(now, address);
        score.failures = score.failures.saturating_add(1);
    }

    pub(crate) fn standing(&self, now: Instant, address: SocketAddr) -> Standing {
        let Some(score) = self.addresses.get(&address).filter(|score| now < score.seen + FORGOTTEN) else {
            return Standing::Fine;
        };
        let penalty = match score.failures {
            0 => Duration::ZERO,
            failures => (FIRST_PENALTY * (1 << (failures - 1).min(8))).min(LONGEST_PENALTY),
        };
        match now < score.seen + penalty {
            true => Standing::Failed,
            false if score.connect.is_some_and(|connect| connect > SLOW) => Standing::Slow,
            false => Standing::Fine,
        }
    }

    /// The family of the host's address that connected last.
    pub(crate) fn last_good(&self, now: Instant, host: &str) -> Option<Family> {
        let (family, seen) = self.hosts.get(host)?;
        (now < *seen + FORGOTTEN).then_some(*family)
    }

    /// Where packets to an address come from, if that was found out lately.
    pub(crate) fn way(&self, now: Instant, ip: IpAddr) -> Option<Way> {
        let (way, seen) = self.ways.get(&ip)?;
        (now < *seen + SAME_WAY).then_some(*way)
    }

    pub(crate) fn learn_way(&mut self, now: Instant, ip: IpAddr, way: Way) {
        make_room(&mut self.ways, |(_, seen)| *seen);
        self.ways.insert(ip, (way, now));
    }

    /// How many races there were for a host before this one.
    pub(crate) fn turn(&mut self, now: Instant, host: &Arc<str>, port: u16) -> usize {
        make_room(&mut self.turns, |(_, seen)| *seen);
        let (turn, seen) = self.turns.entry((host.clone(), port)).or_insert((0, now));
        *seen = now;
        std::mem::replace(turn, turn.wrapping_add(1))
    }

    fn score(&mut self, now: Instant, address: SocketAddr) -> &mut Score {
        make_room(&mut self.addresses, |score| score.seen);
        let unknown = Score { failures: 0, connect: None, seen: now };
        let score = self.addresses.entry(address).or_insert(unknown);
        if score.seen + FORGOTTEN <= now {
            *score = unknown;
        }
        score.seen = now;
        score
    }
}

/// Drops the older half of a full map.
fn make_room<K: Eq + Hash, V>(map: &mut HashMap<K, V, RandomState>, seen: impl Fn(&V) -> Instant) {
    if map.len() < MOST {
        return;
    }
    let mut times: Vec<_> = map.values().map(&seen).collect();
    let (_, middle, _) = times.select_nth_unstable(MOST / 2);
    let middle = *middle;
    map.retain(|_, value| seen(value) > middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn peer(last: u8) -> SocketAddr {
        (ip(last), 443).into()
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn an_address_that_failed_is_tried_last_for_longer_each_time_and_a_minute_at_most() {
        let (mut board, mut now) = (Scoreboard::new(), crate::clock::now());
        assert_eq!(board.standing(now, peer(1)), Standing::Fine, "nothing is known");
        for penalty in [15, 30, 60, 60, 60] {
            board.failed(now, peer(1));
            assert_eq!(board.standing(now + secs(penalty) - Duration::from_nanos(1), peer(1)), Standing::Failed);
            assert_eq!(board.standing(now + secs(penalty), peer(1)), Standing::Fine);
            now += secs(penalty);
        }
        board.failed(now, peer(1));
        board.connected(now, None, peer(1), secs(0));
        assert_eq!(board.standing(now, peer(1)), Standing::Fine, "a success ends it");
        assert_eq!(board.standing(now, peer(2)), Standing::Fine, "and it is nobody else's");
    }

    #[test]
    fn what_an_address_did_long_ago_does_not_count_with_what_it_does_now() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        for _ in 0..3 {
            board.failed(now, peer(1));
        }
        board.connected(now, None, peer(2), secs(3));
        let later = now + FORGOTTEN;
        board.failed(later, peer(1));
        assert_eq!(board.standing(later + secs(15), peer(1)), Standing::Fine, "as after a first failure");
        board.connected(later, None, peer(2), secs(0));
        assert_eq!(board.standing(later, peer(2)), Standing::Fine);
    }

    #[test]
    fn one_port_says_nothing_of_another() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        board.failed(now, peer(1));
        assert_eq!(board.standing(now, (ip(1), 80).into()), Standing::Fine);
    }

    #[test]
    fn a_slow_address_is_slow_until_it_was_fast_often_enough() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        board.connected(now, None, peer(1), Duration::from_millis(400));
        assert_eq!(board.standing(now, peer(1)), Standing::Slow);
        let mut fast = 0;
        while board.standing(now, peer(1)) == Standing::Slow {
            board.connected(now, None, peer(1), Duration::from_millis(10));
            fast += 1;
        }
        assert_eq!(fast, 4);
        board.connected(now, None, peer(2), Duration::from_secs(3));
        assert_eq!(board.standing(now + FORGOTTEN, peer(2)), Standing::Fine, "it is forgotten");
    }

    #[test]
    fn the_last_good_family_of_a_host_is_remembered_for_ten_minutes() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        let host: Arc<str> = "api.test".into();
        assert_eq!(board.last_good(now, "api.test"), None);
        board.connected(now, Some(&host), peer(1), secs(0));
        assert_eq!(board.last_good(now, "api.test"), Some(Family::V4));
        assert_eq!(board.last_good(now, "other.test"), None);
        assert_eq!(board.last_good(now + FORGOTTEN, "api.test"), None);
    }

    #[test]
    fn the_way_to_an_address_is_known_for_ten_seconds() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        assert_eq!(board.way(now, ip(1)), None);
        board.learn_way(now, ip(1), Way::Unreachable);
        assert_eq!(board.way(now + secs(9), ip(1)), Some(Way::Unreachable));
        assert_eq!(board.way(now + secs(10), ip(1)), None);
    }

    #[test]
    fn it_is_bounded_and_the_older_half_leaves() {
        let (mut board, start) = (Scoreboard::new(), crate::clock::now());
        for number in 0..20_000_u32 {
            let now = start + Duration::from_millis(number.into());
            let ip = SocketAddr::from((number.to_be_bytes(), 443));
            let host: Arc<str> = number.to_string().into();
            board.connected(now, Some(&host), ip, secs(0));
            board.failed(now, ip);
            board.turn(now, &host, 443);
            assert!(board.addresses.len() <= MOST && board.hosts.len() <= MOST && board.turns.len() <= MOST);
            assert_eq!(board.standing(now, ip), Standing::Failed, "the newest is never the one to leave");
        }
        assert!(board.addresses.len() >= MOST / 2);
    }
}
