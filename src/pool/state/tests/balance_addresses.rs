//! The addresses of a balanced host, one rule at a time.

use super::super::balance::Balance;
use super::balance::{answer, socket};
use super::*;
use crate::pool::config::Ejection;
use crate::pool::state::balance::address::{AddressReport, Outcome};
use crate::pool::state::balance::outliers::Standing;

const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// Creates the balance of a host whose addresses come from DNS.
/// Returns true if addresses come into use by an event.
fn comes(balance: &mut Balance, event: impl FnOnce(&mut Balance)) -> bool {
    balance.take_new();
    event(balance);
    balance.take_new()
}

fn unanswered(rules: Ejection) -> Balance {
    balance_of(&[], rules)
}

fn balance_of(pinned: &[u8], rules: Ejection) -> Balance {
    let pinned = pinned.iter().copied().map(socket).collect();
    let host = BalancedHost { name: "api.test".into(), port: 80, pinned, seed: 7 };
    Balance::new(host, rules, IDLE_TIMEOUT)
}

/// Creates the balance of a host with the addresses 1 to `count`, which have the keys from 0.
fn answered(count: u8, rules: Ejection) -> Balance {
    let mut balance = unanswered(rules);
    assert!(comes(&mut balance, |balance| balance.answered(&answer(1..=count), true)));
    balance
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Reports requests of an address, each with this result.
fn report(balance: &mut Balance, now: Instant, key: usize, times: usize, outcome: Outcome) {
    for _ in 0..times {
        balance.report(now, key, false, ms(10), outcome);
    }
}

/// Returns the addresses in use, by their last number.
fn in_use(balance: &Balance) -> Vec<u8> {
    let keys = balance.figures().map(|(key, _)| key).filter(|key| balance.is_in_use(*key));
    let mut last: Vec<_> = keys.map(|key| last_of(balance, key)).collect();
    last.sort_unstable();
    last
}

fn last_of(balance: &Balance, key: usize) -> u8 {
    match balance.ip(key) {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => panic!("{ip}"),
    }
}

#[test]
fn answers_are_lacking_before_the_first_one_unless_the_user_has_set_the_addresses() {
    let mut balance = unanswered(Ejection::new());
    assert!(balance.lacks_answers());
    assert_eq!(balance.len(), 1, "at least");
    balance.answered(&answer([]), true);
    assert!(!balance.lacks_answers());
    let mut pinned = balance_of(&[1, 2], Ejection::new());
    assert!(!pinned.lacks_answers());
    assert_eq!((pinned.len(), in_use(&pinned)), (2, vec![1, 2]));
    assert!(!comes(&mut pinned, |pinned| pinned.answered(&answer([3]), true)));
    assert_eq!(in_use(&pinned), [1, 2]);
}

#[test]
fn an_older_answer_does_not_replace_a_newer_one() {
    let mut balance = unanswered(Ejection::new());
    let numbered = |serial, last| Addresses { serial, ..answer([last]) };
    let rows = [
        // The number of the answer, whether it is new, and the address in use after it.
        (Some(5), false, 1, 1),
        (Some(4), true, 2, 1),
        (Some(5), false, 3, 1),
        (Some(5), true, 4, 4),
        (None, true, 5, 5),
        (Some(4), true, 6, 5),
        (Some(6), true, 7, 7),
    ];
    for (serial, is_new, last, used) in rows {
        let before = in_use(&balance);
        let came = comes(&mut balance, |balance| balance.answered(&numbered(serial, last), is_new));
        assert_eq!(in_use(&balance), [used], "after the answer with {last}");
        assert_eq!(came, before != [used], "after the answer with {last}");
    }
    assert!(!comes(&mut balance, |balance| balance.answered(&answer([7]), true)), "nothing came into use");
    assert!(comes(&mut balance, |balance| balance.answered(&answer([7, 8]), true)));
}

#[test]
fn the_address_of_a_connection_counts_as_listed_until_an_answer_says_otherwise() {
    let mut balance = unanswered(Ejection::new());
    let key = balance.opened(socket(1));
    assert!(balance.is_in_use(key));
    assert_eq!(balance.opened(socket(1)), key);
    assert_eq!(balance.conns(key), 2);
    balance.answered(&answer([2]), true);
    assert!(!balance.is_in_use(key));
    let late = balance.opened(socket(3));
    assert!(!balance.is_in_use(late));
    let mut pinned = balance_of(&[1], Ejection::new());
    let other = pinned.opened(socket(2));
    assert!(!pinned.is_in_use(other));
}

#[test]
fn an_address_that_left_dns_is_forgotten_with_its_last_connection_dial_and_request() {
    let now = crate::clock::now();
    let mut balance = answered(5, Ejection::new());
    assert_eq!(balance.opened(socket(2)), 1);
    balance.dial_begun(2);
    balance.leased(now, 3);
    balance.answered(&answer([1]), true);
    let known = |balance: &Balance| {
        let mut known: Vec<_> = balance.figures().map(|(key, _)| last_of(balance, key)).collect();
        known.sort_unstable();
        known
    };
    assert_eq!(known(&balance), [1, 2, 3, 4], "nothing led to 5");
    balance.ended(1);
    assert_eq!(known(&balance), [1, 3, 4]);
    balance.dial_ended(2, true);
    assert_eq!(known(&balance), [1, 4]);
    balance.released(now, 3, false);
    assert_eq!(known(&balance), [1]);
    // A forgotten address begins anew.
    assert!(comes(&mut balance, |balance| balance.answered(&answer([1, 2]), true)));
    assert_eq!(in_use(&balance), [1, 2]);
}

#[test]
fn a_dial_leads_to_the_least_loaded_address_that_may_be_dialled() {
    let now = crate::clock::now();
    let mut balance = answered(3, Ejection::new());
    balance.leased(now, 0);
    balance.leased(now, 0);
    balance.leased(now, 1);
    assert_eq!(balance.by_load(now), [2, 1, 0]);
    assert_eq!(balance.aim(now, None, 1), Some(2));
    assert_eq!(balance.aim(now, Some(socket(3).ip()), 1), Some(1));
    balance.dial_begun(2);
    assert_eq!(balance.aim(now, None, 1), Some(1), "one connection at most");
    assert_eq!(balance.aim(now, Some(socket(2).ip()), 1), Some(0));
    assert!(!comes(&mut balance, |balance| balance.dial_failed(now, 0)));
    assert_eq!(balance.aim(now, Some(socket(2).ip()), 1), None, "a pause after a dial that failed");
}

#[test]
fn the_load_is_the_slowness_times_the_requests_and_one() {
    let now = crate::clock::now();
    let mut balance = answered(2, Ejection::new());
    // Most answers take 10 ms, and those of the second address four times as long.
    report(&mut balance, now, 0, 100, Outcome::Answered);
    balance.report(now, 1, false, ms(40), Outcome::Answered);
    let lease = |balance: &mut Balance, key, times| {
        for _ in 0..times {
            balance.leased(now, key);
        }
    };
    lease(&mut balance, 0, 2);
    assert_eq!(balance.by_load(now), [0, 1], "3 against nearly 4");
    lease(&mut balance, 0, 1);
    assert_eq!(balance.by_load(now), [1, 0], "4 against nearly 4");
    lease(&mut balance, 1, 2);
    lease(&mut balance, 0, 6);
    assert_eq!(balance.by_load(now), [0, 1], "10 against nearly 12");
}

#[test]
fn an_address_that_is_used_again_counts_as_ten_times_as_loaded_at_first() {
    let now = crate::clock::now();
    let mut balance = answered(2, Ejection::new());
    report(&mut balance, now, 1, 1, Outcome::Answered);
    report(&mut balance, now, 0, 5, Outcome::Failed);
    assert_eq!(in_use(&balance), [2]);
    let now = now + secs(10);
    assert_eq!(balance.candidates(now), [Some(0), Some(1), None], "it is probed");
    assert!(balance.leased(now, 0));
    let came = comes(&mut balance, |balance| balance.report(now, 0, true, ms(10), Outcome::Answered));
    assert!(came, "it came into use");
    balance.released(now, 0, false);
    (0..8).for_each(|_| assert!(!balance.leased(now, 1)));
    assert_eq!(balance.by_load(now), [1, 0], "9 against 10");
    balance.leased(now, 1);
    balance.leased(now, 1);
    assert_eq!(balance.by_load(now), [0, 1], "11 against 10");
}

#[test]
fn the_latency_of_an_address_is_forgotten_with_its_last_connection_while_it_is_out_of_use() {
    let now = crate::clock::now();
    let latency = |balance: &Balance| balance.reports(now).find(|report| report.socket == socket(1)).unwrap().latency;
    let mut balance = answered(2, Ejection::new());
    let key = balance.opened(socket(1));
    balance.opened(socket(1));
    report(&mut balance, now, 1, 10, Outcome::Answered);
    report(&mut balance, now, key, 1, Outcome::Answered);
    balance.ended(key);
    balance.ended(key);
    assert!(latency(&balance).is_some(), "it is in use");
    report(&mut balance, now, key, 10, Outcome::Failed);
    assert_eq!(in_use(&balance), [2]);
    balance.opened(socket(1));
    balance.opened(socket(1));
    balance.ended(key);
    assert!(latency(&balance).is_some(), "it has a connection");
    balance.leased(now, key);
    balance.ended(key);
    assert!(latency(&balance).is_some(), "it has a request");
    balance.released(now, key, false);
    balance.opened(socket(1));
    balance.ended(key);
    assert_eq!(latency(&balance), None);
}

#[test]
fn results_of_requests_are_counted() {
    let now = crate::clock::now();
    let mut balance = answered(2, Ejection::new());
    report(&mut balance, now, 0, 3, Outcome::Answered);
    report(&mut balance, now, 0, 2, Outcome::Failed);
    report(&mut balance, now, 0, 4, Outcome::Cancelled);
    let counted: Vec<_> = balance.reports(now).map(|report| (report.answered, report.failed)).collect();
    assert_eq!(counted, [(5, 2), (0, 0)]);
}

#[test]
fn no_more_addresses_are_ejected_than_the_rules_allow() {
    let now = crate::clock::now();
    let percent = |max_percent| Ejection { max_percent, ..Ejection::new() };
    // The number of addresses, the rules, and the number of those that are ejected if all but the last fail.
    let rows = [
        (10, percent(50), 5),
        (10, percent(30), 3),
        (10, percent(5), 1),
        (3, percent(50), 1),
        (2, percent(100), 1),
        (1, percent(100), 0),
        (10, Ejection::off(), 0),
    ];
    for (count, rules, ejected) in rows {
        let mut balance = answered(count, rules);
        report(&mut balance, now, usize::from(count) - 1, 1_000, Outcome::Answered);
        for key in 0..usize::from(count.max(2)) - 1 {
            report(&mut balance, now, key, 5, Outcome::Failed);
        }
        let is_ejected = |report: &AddressReport| report.standing != Standing::Fine;
        assert_eq!(balance.reports(now).filter(is_ejected).count(), ejected, "of {count} by {rules:?}");
    }
}

#[test]
fn an_ejected_address_is_in_use_if_dns_has_no_other_one() {
    let now = crate::clock::now();
    let mut balance = answered(2, Ejection::new());
    report(&mut balance, now, 1, 1, Outcome::Answered);
    report(&mut balance, now, 0, 5, Outcome::Failed);
    assert_eq!(in_use(&balance), [2]);
    assert!(comes(&mut balance, |balance| balance.answered(&answer([1]), true)));
    assert_eq!(in_use(&balance), [1]);
}

#[test]
fn a_connection_is_opened_ahead_only_for_as_many_requests_as_there_were_lately() {
    let now = crate::clock::now();
    let mut balance = answered(2, Ejection::new());
    for _ in 0..3 {
        balance.count_request(now);
    }
    assert!(balance.may_dial_ahead(now, 0, 1, 3));
    assert!(!balance.may_dial_ahead(now, 0, 1, 4));
    assert!(!balance.may_dial_ahead(now, 0, 0, 3), "more connections than an address may have");
    balance.dial_begun(0);
    assert!(!balance.may_dial_ahead(now, 0, 2, 3), "one at a time");
    let mut balance = answered(2, Ejection::new());
    balance.count_request(now);
    // The first request counts for little more than a third by now.
    let now = now + secs(10);
    balance.count_request(now);
    assert_eq!([1, 2].map(|open| balance.may_dial_ahead(now, 0, 1, open)), [true, false]);
}

#[test]
fn live_connections_stay_in_use_while_the_name_has_no_addresses() {
    let mut balance = answered(3, Ejection::new());
    let key = balance.opened(socket(1));
    balance.answered(&answer([]), true);
    assert_eq!(in_use(&balance), [1]);
    let late = balance.opened(socket(2));
    assert!(balance.is_in_use(late), "its dial was under way");
    balance.ended(key);
    assert_eq!(in_use(&balance), [2]);
    assert!(comes(&mut balance, |balance| balance.answered(&answer([3]), true)));
    assert_eq!(in_use(&balance), [3]);
}
