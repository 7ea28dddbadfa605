//! Which address comes first: by RFC 6724, and by the results of earlier races, which are kept for a limited time by address, with the last
//! good family by host. A core: it is given the time.

use std::cmp::Ordering;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Instant;
use crate::memory::Bounded;
use crate::trace::Family;

/// The time for which an address is dialled last after its first failure. It doubles with each further failure.
const FIRST_PENALTY: Duration = Duration::from_secs(15);
/// The longest time for which an address is dialled last.
const MAX_PENALTY: Duration = Duration::from_secs(60);
/// The connect time above which an address is slow.
const SLOW: Duration = Duration::from_millis(250);
/// The time after which a result is forgotten.
const MAX_AGE: Duration = Duration::from_secs(10 * 60);
/// The time after which a source address is found out anew, because routes change.
const MAX_SOURCE_AGE: Duration = Duration::from_secs(10);
/// The most addresses, and the most hosts, that are remembered. Beyond that, the older half is dropped.
const MAX_ENTRIES: usize = 4_096;

/// The standing of an address. Addresses of a better standing are dialled first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DialStanding {
    /// The address is the one that the connection is for, whatever its results.
    Chosen,
    /// The address connected in time, or no result is known.
    Fine,
    /// The address takes more than 250 ms to connect.
    Slow,
    /// The address failed a short time ago.
    Failed,
}

/// The results of earlier races.
pub(crate) struct Scoreboard {
    addresses: Bounded<SocketAddr, Score>,
    /// The last good family of each host.
    hosts: Bounded<Arc<str>, Family>,
    /// The source address of packets to each address.
    sources: Bounded<IpAddr, SourceAddress>,
    /// The number of races for each host and port.
    turns: Bounded<(Arc<str>, u16), usize>,
}

/// The results of races, to be used in another process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RaceResults {
    pub(crate) addresses: Vec<AddressResult>,
    /// The last good family of each host, and its age.
    pub(crate) families: Vec<(Arc<str>, Family, Duration)>,
}

/// The results of one address, and their age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressResult {
    pub(crate) address: SocketAddr,
    /// Failures since the last success.
    pub(crate) failures: u32,
    /// The connect time, smoothed.
    pub(crate) connect_time: Option<Duration>,
    pub(crate) age: Duration,
}

/// The results of one address.
#[derive(Debug, Clone, Copy)]
struct Score {
    /// Failures since the last success.
    failures: u32,
    /// The connect time, smoothed like TCP's round-trip time (RFC 6298 §2): each new one counts for an eighth.
    connect_time: Option<Duration>,
}

impl Scoreboard {
    pub(crate) fn new() -> Self {
        Self {
            addresses: Bounded::new(MAX_ENTRIES, MAX_AGE),
            hosts: Bounded::new(MAX_ENTRIES, MAX_AGE),
            sources: Bounded::new(MAX_ENTRIES, MAX_SOURCE_AGE),
            turns: Bounded::new(MAX_ENTRIES, Duration::MAX),
        }
    }

    /// Records that an address connected in the time `took`. With a `host`, which had addresses of both families, its family is
    /// remembered as the last good one.
    pub(crate) fn record_connection(
        &mut self,
        now: Instant,
        host: Option<&Arc<str>>,
        address: SocketAddr,
        took: Duration,
    ) {
        let score = self.score(now, address);
        score.failures = 0;
        score.connect_time = Some(score.connect_time.map_or(took, |before| (before * 7 + took) / 8));
        if let Some(host) = host {
            self.hosts.insert(now, host.clone(), Family::of(address.ip()));
        }
    }

    /// Records that an address failed, or lost a race in which it had enough time.
    pub(crate) fn record_failure(&mut self, now: Instant, address: SocketAddr) {
        let score = self.score(now, address);
        score.failures = score.failures.saturating_add(1);
    }

    /// Returns the standing of an address.
    pub(crate) fn standing(&self, now: Instant, address: SocketAddr) -> DialStanding {
        let Some((score, age)) = self.addresses.find(now, &address) else { return DialStanding::Fine };
        let penalty = match score.failures {
            0 => Duration::ZERO,
            failures => (FIRST_PENALTY * (1 << (failures - 1).min(8))).min(MAX_PENALTY),
        };
        match age < penalty {
            true => DialStanding::Failed,
            false if score.connect_time.is_some_and(|time| time > SLOW) => DialStanding::Slow,
            false => DialStanding::Fine,
        }
    }

    /// Returns the family of the host's address that connected last.
    pub(crate) fn last_good(&self, now: Instant, host: &str) -> Option<Family> {
        self.hosts.get(now, host).copied()
    }

    /// Returns the source address of packets to an address, if it was found out a short time ago.
    pub(crate) fn source(&self, now: Instant, ip: IpAddr) -> Option<SourceAddress> {
        self.sources.get(now, &ip).copied()
    }

    /// Records the source address of packets to an address.
    pub(crate) fn learn_source(&mut self, now: Instant, ip: IpAddr, source: SourceAddress) {
        self.sources.insert(now, ip, source);
    }

    /// Counts a race for a host and port. Returns the number of races before it.
    pub(crate) fn count_race(&mut self, now: Instant, host: &Arc<str>, port: u16) -> usize {
        let turn = self.turns.note(now, &(host.clone(), port), || 0);
        std::mem::replace(turn, turn.wrapping_add(1))
    }

    /// Returns the results that are not too old.
    pub(crate) fn results(&self, now: Instant) -> RaceResults {
        let addresses = self.addresses.iter(now).map(|(address, score, age)| {
            let Score { failures, connect_time } = *score;
            AddressResult { address: *address, failures, connect_time, age }
        });
        let families = self.hosts.iter(now).map(|(host, family, age)| (host.clone(), *family, age));
        RaceResults { addresses: addresses.collect(), families: families.collect() }
    }

    /// Adds results of earlier races, except where there are newer ones. `later` is the time that has passed since they were taken.
    pub(crate) fn restore(&mut self, now: Instant, results: &RaceResults, later: Duration) {
        for AddressResult { address, failures, connect_time, age } in &results.addresses {
            let score = Score { failures: *failures, connect_time: *connect_time };
            self.addresses.restore(now, *address, score, age.saturating_add(later));
        }
        for (host, family, age) in &results.families {
            self.hosts.restore(now, host.clone(), *family, age.saturating_add(later));
        }
    }

    /// Returns the results of an address, to which another one is added.
    fn score(&mut self, now: Instant, address: SocketAddr) -> &mut Score {
        self.addresses.note(now, &address, || Score { failures: 0, connect_time: None })
    }
}

/// The source address of packets to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceAddress {
    Unknown,
    /// There is no route to the address.
    Unreachable,
    Known(IpAddr),
}

/// Sorts addresses of one family, the preferred ones first. Equally good ones keep their order.
///
/// If the source of any address is unknown, its position cannot be determined, and only the unreachable addresses are moved, to
/// the end.
pub(crate) fn sort(addresses: &mut [(IpAddr, SourceAddress)]) {
    if addresses.iter().any(|(_, source)| *source == SourceAddress::Unknown) {
        addresses.sort_by_key(|(_, source)| *source == SourceAddress::Unreachable);
    } else {
        addresses.sort_by(|one, other| compare(*one, *other));
    }
}

/// Returns true if all IPv4 addresses are preferred to this IPv6 one, by rule 1, 2 or 5: it is unreachable, or its source has
/// another scope or label.
pub(crate) fn yields_to_v4((ip, source): (IpAddr, SourceAddress)) -> bool {
    match source {
        SourceAddress::Unknown => false,
        SourceAddress::Unreachable => true,
        SourceAddress::Known(source) => scope(ip) != scope(source) || policy(ip).label != policy(source).label,
    }
}

fn compare((one, from_one): (IpAddr, SourceAddress), (other, from_other): (IpAddr, SourceAddress)) -> Ordering {
    use SourceAddress::{Known, Unknown, Unreachable};
    match (from_one, from_other) {
        // `sort` does not compare if any source is unknown.
        (Unknown, _) | (_, Unknown) | (Unreachable, Unreachable) => Ordering::Equal,
        // Rule 1: avoid unusable destinations.
        (Unreachable, Known(_)) => Ordering::Greater,
        (Known(_), Unreachable) => Ordering::Less,
        (Known(source_one), Known(source_other)) => {
            // Rules 2, 5, 6, 8 and 9. The others need facts that only the operating system has.
            let matching = |ip, source| scope(ip) == scope(source);
            let labelled = |ip, source| policy(ip).label == policy(source).label;
            matching(other, source_other)
                .cmp(&matching(one, source_one))
                .then_with(|| labelled(other, source_other).cmp(&labelled(one, source_one)))
                .then_with(|| policy(other).precedence.cmp(&policy(one).precedence))
                .then_with(|| scope(one).cmp(&scope(other)))
                .then_with(|| common_prefix(other, source_other).cmp(&common_prefix(one, source_one)))
        }
    }
}

/// The scope of an address, the smaller first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AddressScope {
    LinkLocal,
    SiteLocal,
    Global,
}

/// Returns the scope of an address (RFC 6724 §3.1 and §3.2).
fn scope(ip: IpAddr) -> AddressScope {
    match ip {
        IpAddr::V4(ip) if ip.is_loopback() || ip.is_link_local() => AddressScope::LinkLocal,
        IpAddr::V4(_) => AddressScope::Global,
        IpAddr::V6(ip) if ip.is_loopback() || ip.is_unicast_link_local() => AddressScope::LinkLocal,
        IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfec0 => AddressScope::SiteLocal,
        IpAddr::V6(_) => AddressScope::Global,
    }
}

/// A row of the policy table.
#[derive(Debug, Clone, Copy)]
struct PreferencePolicy {
    precedence: u8,
    label: u8,
}

/// Looks an address up in the default policy table of RFC 6724 §2.1.
fn policy(ip: IpAddr) -> PreferencePolicy {
    let row = |precedence, label| PreferencePolicy { precedence, label };
    let IpAddr::V6(ip) = ip else { return row(35, 4) };
    match ip.segments() {
        _ if ip == Ipv6Addr::LOCALHOST => row(50, 0),
        [0, 0, 0, 0, 0, 0xffff, ..] => row(35, 4),
        [0x2002, ..] => row(30, 2),
        [0x2001, 0, ..] => row(5, 5),
        [first, ..] if first & 0xfe00 == 0xfc00 => row(3, 13),
        [0, 0, 0, 0, 0, 0, ..] => row(1, 3),
        [first, ..] if first & 0xffc0 == 0xfec0 => row(1, 11),
        [0x3ffe, ..] => row(1, 12),
        _ => row(40, 1),
    }
}

/// Returns the length of the common prefix for rule 9. Zero for IPv4, where the rule would undo the rotation of DNS answers.
fn common_prefix(ip: IpAddr, source: IpAddr) -> u32 {
    match (ip, source) {
        (IpAddr::V6(ip), IpAddr::V6(source)) => (ip.to_bits() ^ source.to_bits()).leading_zeros().min(64),
        _ => 0,
    }
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
    fn a_failed_address_is_dialled_last_for_longer_each_time_and_a_minute_at_most() {
        let (mut board, mut now) = (Scoreboard::new(), crate::clock::now());
        assert_eq!(board.standing(now, peer(1)), DialStanding::Fine, "no result is known");
        for penalty in [15, 30, 60, 60, 60] {
            board.record_failure(now, peer(1));
            assert_eq!(board.standing(now + secs(penalty) - Duration::from_nanos(1), peer(1)), DialStanding::Failed);
            assert_eq!(board.standing(now + secs(penalty), peer(1)), DialStanding::Fine);
            now += secs(penalty);
        }
        board.record_failure(now, peer(1));
        board.record_connection(now, None, peer(1), secs(0));
        assert_eq!(board.standing(now, peer(1)), DialStanding::Fine, "a success ends it");
        assert_eq!(
            board.standing(now, peer(2)),
            DialStanding::Fine,
            "and the failures of another address do not count"
        );
    }

    #[test]
    fn old_results_do_not_count() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        for _ in 0..3 {
            board.record_failure(now, peer(1));
        }
        board.record_connection(now, None, peer(2), secs(3));
        let later = now + MAX_AGE;
        board.record_failure(later, peer(1));
        assert_eq!(board.standing(later + secs(15), peer(1)), DialStanding::Fine, "as after a first failure");
        board.record_connection(later, None, peer(2), secs(0));
        assert_eq!(board.standing(later, peer(2)), DialStanding::Fine);
    }

    #[test]
    fn the_ports_of_an_address_have_results_of_their_own() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        board.record_failure(now, peer(1));
        assert_eq!(board.standing(now, (ip(1), 80).into()), DialStanding::Fine);
    }

    #[test]
    fn a_slow_address_is_slow_until_it_was_fast_four_times() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        board.record_connection(now, None, peer(1), Duration::from_millis(400));
        assert_eq!(board.standing(now, peer(1)), DialStanding::Slow);
        let mut fast = 0;
        while board.standing(now, peer(1)) == DialStanding::Slow {
            board.record_connection(now, None, peer(1), Duration::from_millis(10));
            fast += 1;
        }
        assert_eq!(fast, 4);
        board.record_connection(now, None, peer(2), Duration::from_secs(3));
        assert_eq!(board.standing(now + MAX_AGE, peer(2)), DialStanding::Fine, "it is forgotten");
    }

    #[test]
    fn the_last_good_family_of_a_host_is_remembered_for_ten_minutes() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        let host: Arc<str> = "api.test".into();
        assert_eq!(board.last_good(now, "api.test"), None);
        board.record_connection(now, Some(&host), peer(1), secs(0));
        assert_eq!(board.last_good(now, "api.test"), Some(Family::V4));
        assert_eq!(board.last_good(now, "other.test"), None);
        assert_eq!(board.last_good(now + MAX_AGE, "api.test"), None);
    }

    #[test]
    fn results_are_restored_with_their_age_and_replace_no_newer_ones() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        let host: Arc<str> = "api.test".into();
        board.record_failure(now, peer(1));
        board.record_connection(now, Some(&host), peer(2), secs(3));
        let results = board.results(now + secs(5));
        let mut other = Scoreboard::new();
        other.record_connection(now, None, peer(1), secs(0));
        other.restore(now, &results, secs(5));
        assert_eq!(
            [1, 2, 3].map(|last| other.standing(now, peer(last))),
            [DialStanding::Fine, DialStanding::Slow, DialStanding::Fine]
        );
        assert_eq!(other.last_good(now, "api.test"), Some(Family::V4));
        let mut fresh = Scoreboard::new();
        fresh.restore(now, &results, secs(5));
        assert_eq!(fresh.standing(now, peer(1)), DialStanding::Failed);
        assert_eq!(fresh.standing(now + secs(5), peer(1)), DialStanding::Fine, "15 s after the failure");
        let mut late = Scoreboard::new();
        late.restore(now, &results, MAX_AGE - secs(5));
        assert_eq!((late.standing(now, peer(2)), late.last_good(now, "api.test")), (DialStanding::Fine, None));
        late.restore(now, &results, Duration::MAX);
        assert_eq!(late.results(now), RaceResults::default());
    }

    #[test]
    fn a_source_address_is_remembered_for_ten_seconds() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        assert_eq!(board.source(now, ip(1)), None);
        board.learn_source(now, ip(1), SourceAddress::Unreachable);
        assert_eq!(board.source(now + secs(9), ip(1)), Some(SourceAddress::Unreachable));
        assert_eq!(board.source(now + secs(10), ip(1)), None);
    }

    #[test]
    fn the_number_of_results_is_bounded_and_the_older_half_is_dropped() {
        let (mut board, start) = (Scoreboard::new(), crate::clock::now());
        for number in 0..20_000_u32 {
            let now = start + Duration::from_millis(number.into());
            let ip = SocketAddr::from((number.to_be_bytes(), 443));
            let host: Arc<str> = number.to_string().into();
            board.record_connection(now, Some(&host), ip, secs(0));
            board.record_failure(now, ip);
            board.count_race(now, &host, 443);
            assert!(
                board.addresses.len() <= MAX_ENTRIES
                    && board.hosts.len() <= MAX_ENTRIES
                    && board.turns.len() <= MAX_ENTRIES
            );
            assert_eq!(board.standing(now, ip), DialStanding::Failed, "the newest result is never dropped");
        }
        assert!(board.addresses.len() >= MAX_ENTRIES / 2);
    }

    #[test]
    fn a_new_connect_time_counts_for_an_eighth_and_250_ms_are_not_slow() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        let connect_time = |board: &Scoreboard| board.results(now).addresses[0].connect_time;
        board.record_connection(now, None, peer(1), SLOW);
        assert_eq!(board.standing(now, peer(1)), DialStanding::Fine);
        assert_eq!(connect_time(&board), Some(SLOW));
        board.record_connection(now, None, peer(1), SLOW + Duration::from_millis(80));
        assert_eq!(connect_time(&board), Some(SLOW + Duration::from_millis(10)));
        assert_eq!(board.standing(now, peer(1)), DialStanding::Slow);
    }

    #[test]
    fn races_are_counted_for_each_host_and_port() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        let host: Arc<str> = "api.test".into();
        assert_eq!([80, 80, 443, 80].map(|port| board.count_race(now, &host, port)), [0, 1, 0, 2]);
        assert_eq!(board.count_race(now, &"other.test".into(), 80), 0);
    }

    #[test]
    fn results_of_ten_minutes_are_neither_taken_nor_restored() {
        let (mut board, now) = (Scoreboard::new(), crate::clock::now());
        let host: Arc<str> = "api.test".into();
        board.record_connection(now, Some(&host), peer(1), secs(0));
        assert_eq!(board.results(now + MAX_AGE), RaceResults::default());
        let young = board.results(now + MAX_AGE - secs(1));
        assert_eq!((young.addresses[0].age, young.families[0].2), (MAX_AGE - secs(1), MAX_AGE - secs(1)));
        let mut other = Scoreboard::new();
        other.restore(now, &young, secs(1));
        assert_eq!(other.results(now), RaceResults::default());
        other.restore(now, &young, Duration::ZERO);
        assert_eq!(other.results(now), young);
    }

    #[test]
    fn results_are_restored_only_where_there_is_room() {
        let now = crate::clock::now();
        let result = |number: u32| AddressResult {
            address: (IpAddr::from(number.to_be_bytes()), 443).into(),
            failures: 1,
            connect_time: None,
            age: Duration::ZERO,
        };
        let count = MAX_ENTRIES as u32 + 1;
        let addresses = (0..count).map(result).collect();
        let families = (0..count).map(|number| (number.to_string().into(), Family::V4, Duration::ZERO)).collect();
        let mut board = Scoreboard::new();
        board.restore(now, &RaceResults { addresses, families }, Duration::ZERO);
        assert_eq!((board.addresses.len(), board.hosts.len()), (MAX_ENTRIES, MAX_ENTRIES));
    }

    #[test]
    fn a_full_table_keeps_what_is_younger_than_its_middle() {
        let (mut board, start) = (Scoreboard::new(), crate::clock::now());
        let address = |number: u32| SocketAddr::from((number.to_be_bytes(), 443));
        let at = |number: u32| start + Duration::from_millis(number.into());
        let last = MAX_ENTRIES as u32;
        (0..=last).for_each(|number| board.record_failure(at(number), address(number)));
        let mut kept: Vec<_> = board.addresses.iter(at(last)).map(|(address, ..)| *address).collect();
        kept.sort();
        assert_eq!(kept, (last / 2..=last).map(address).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod preference_tests {
    use super::*;

    /// Sorts destinations, each with its source: `-` for unreachable, `?` for unknown.
    fn sorted(list: &[(&str, &str)]) -> Vec<String> {
        let mut addresses: Vec<_> = list
            .iter()
            .map(|(ip, source)| {
                let source = match *source {
                    "-" => SourceAddress::Unreachable,
                    "?" => SourceAddress::Unknown,
                    source => SourceAddress::Known(source.parse().unwrap()),
                };
                (ip.parse().unwrap(), source)
            })
            .collect();
        sort(&mut addresses);
        addresses.iter().map(|(ip, _)| ip.to_string()).collect()
    }

    #[test]
    fn the_examples_of_rfc_6724_are_sorted_as_there() {
        // §10.2: prefer matching scope, matching label, higher precedence, smaller scope, longest prefix.
        assert_eq!(
            sorted(&[("2001:db8:1::1", "fe80::2"), ("2001:db8:2::1", "2001:db8:2::2")]),
            ["2001:db8:2::1", "2001:db8:1::1"]
        );
        assert_eq!(
            sorted(&[("2002:c633:6401::1", "2002:c633:6401::2"), ("2001:db8:1::1", "2001:db8:1::2")]),
            ["2001:db8:1::1", "2002:c633:6401::1"]
        );
        assert_eq!(
            sorted(&[("2001:db8:1::1", "2002:c633:6401::2"), ("2002:c633:6401::1", "2002:c633:6401::2")]),
            ["2002:c633:6401::1", "2001:db8:1::1"]
        );
        assert_eq!(sorted(&[("2001:db8:1::1", "2001:db8:1::2"), ("fe80::1", "fe80::2")]), ["fe80::1", "2001:db8:1::1"]);
        assert_eq!(
            sorted(&[("2001:db8:3ffe::1", "2001:db8:1::2"), ("2001:db8:1::1", "2001:db8:1::2")]),
            ["2001:db8:1::1", "2001:db8:3ffe::1"]
        );
    }

    #[test]
    fn each_prefix_has_the_precedence_and_the_label_of_the_policy_table() {
        let rows = [
            ("::1", 50, 0),
            ("::2", 1, 3),
            ("::192.0.2.1", 1, 3),
            ("::ffff:192.0.2.1", 35, 4),
            ("192.0.2.1", 35, 4),
            ("2002:c633:6401::1", 30, 2),
            ("2001:0:4136:e378::1", 5, 5),
            ("2001:db8::1", 40, 1),
            ("fc00::1", 3, 13),
            ("fdff::1", 3, 13),
            ("fe00::1", 40, 1),
            ("fec0::1", 1, 11),
            ("feff::1", 1, 11),
            ("ff0e::1", 40, 1),
            ("3ffe::1", 1, 12),
            ("3fff::1", 40, 1),
        ];
        for (ip, precedence, label) in rows {
            let row = policy(ip.parse().unwrap());
            assert_eq!((row.precedence, row.label), (precedence, label), "{ip}");
        }
    }

    #[test]
    fn each_address_has_the_scope_of_its_prefix() {
        use AddressScope::{Global, LinkLocal, SiteLocal};
        let rows = [
            ("127.0.0.1", LinkLocal),
            ("169.254.1.1", LinkLocal),
            ("10.0.0.1", Global),
            ("192.0.2.1", Global),
            ("::1", LinkLocal),
            ("fe80::1", LinkLocal),
            ("febf::1", LinkLocal),
            ("fec0::1", SiteLocal),
            ("feff::1", SiteLocal),
            ("fc00::1", Global),
            ("2001:db8::1", Global),
        ];
        for (ip, expected) in rows {
            assert_eq!(scope(ip.parse().unwrap()), expected, "{ip}");
        }
    }

    #[test]
    fn an_ipv6_address_yields_to_ipv4_if_its_source_has_another_scope_or_label() {
        let yields =
            |ip: &str, source: &str| yields_to_v4((ip.parse().unwrap(), SourceAddress::Known(source.parse().unwrap())));
        assert!(!yields("2001:db8::1", "2001:db8::2"));
        assert!(yields("2001:db8::1", "fe80::2"), "another scope, and the same label");
        assert!(yields("2001:db8::1", "fd00::2"), "another label, and the same scope");
        assert!(yields_to_v4((Ipv6Addr::LOCALHOST.into(), SourceAddress::Unreachable)));
        assert!(!yields_to_v4((Ipv6Addr::LOCALHOST.into(), SourceAddress::Unknown)));
    }

    #[test]
    fn unreachable_addresses_are_last_and_equal_ones_keep_their_order() {
        assert_eq!(sorted(&[("192.0.2.1", "-"), ("192.0.2.2", "10.0.0.1")]), ["192.0.2.2", "192.0.2.1"]);
        let same = [("192.0.2.9", "10.0.0.1"), ("10.0.0.2", "10.0.0.1"), ("192.0.2.1", "10.0.0.1")];
        assert_eq!(sorted(&same), ["192.0.2.9", "10.0.0.2", "192.0.2.1"], "no rule 9 for IPv4");
        assert_eq!(sorted(&[("2001:db8::9", "?"), ("2001:db8::1", "?")]), ["2001:db8::9", "2001:db8::1"]);
    }

    #[test]
    fn with_an_unknown_source_only_unreachable_addresses_are_moved() {
        let mixed =
            [("fe80::9", "-"), ("2002:c633:6401::1", "2002::2"), ("2001:db8::9", "?"), ("2001:db8::1", "2001:db8::2")];
        assert_eq!(sorted(&mixed), ["2002:c633:6401::1", "2001:db8::9", "2001:db8::1", "fe80::9"]);
        // With many addresses, sorting panics if the order contradicts itself.
        let many: Vec<_> = mixed.iter().cycle().take(400).copied().collect();
        assert_eq!(sorted(&many)[300..], ["fe80::9"; 100]);
    }
}
