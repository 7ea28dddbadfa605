//! The schedule of attempts, action by action.

use super::*;
use Family::{V4, V6};

fn v4(last: u8) -> SocketAddr {
    ([192, 0, 2, last], 80).into()
}

fn v6(last: u16) -> SocketAddr {
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, last], 80).into()
}

fn answered(race: &mut Schedule, now: Instant, family: Family, addresses: impl IntoIterator<Item = SocketAddr>) {
    race.add_addresses(now, family, addresses.into_iter().map(|address| (address, DialStanding::Fine)));
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn both() -> (Schedule, Instant) {
    (Schedule::new(Config::default(), &[V6, V4], V6), crate::clock::now())
}

#[test]
fn v6_starts_at_once_and_families_alternate() {
    let (mut race, t0) = both();
    assert_eq!(race.poll(t0), NextAction::Wait(None));
    answered(&mut race, t0, V6, [v6(1), v6(2)]);
    answered(&mut race, t0, V4, [v4(1), v4(2)]);
    for (step, address) in [v6(1), v4(1), v6(2), v4(2)].into_iter().enumerate() {
        let at = t0 + ms(250) * step as u32;
        assert_eq!(race.poll(at), NextAction::Dial(address));
        let again = if step < 3 { NextAction::Wait(Some(at + ms(250))) } else { NextAction::Wait(None) };
        assert_eq!(race.poll(at), again);
    }
}

#[test]
fn v4_waits_50_ms_for_v6() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0), NextAction::Wait(Some(t0 + ms(50))));
    assert_eq!(race.poll(t0 + ms(50)), NextAction::Dial(v4(1)));
}

#[test]
fn a_v6_answer_within_the_delay_goes_first() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, [v4(1)]);
    answered(&mut race, t0 + ms(20), V6, [v6(1)]);
    assert_eq!(race.poll(t0 + ms(20)), NextAction::Dial(v6(1)));
    assert_eq!(race.poll(t0 + ms(270)), NextAction::Dial(v4(1)));
}

#[test]
fn an_empty_v6_answer_ends_the_delay() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, [v4(1)]);
    answered(&mut race, t0 + ms(20), V6, []);
    assert_eq!(race.poll(t0 + ms(20)), NextAction::Dial(v4(1)));
}

#[test]
fn the_next_attempt_starts_at_once_when_one_fails() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, [v6(1)]);
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v6(1)));
    race.record_end(v6(1));
    assert_eq!(race.poll(t0 + ms(1)), NextAction::Dial(v4(1)));
    race.record_end(v4(1));
    assert_eq!(race.poll(t0 + ms(2)), NextAction::NoneLeft);
}

#[test]
fn a_late_answer_joins_a_race_that_has_started() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0 + ms(50)), NextAction::Dial(v4(1)));
    assert_eq!(race.poll(t0 + ms(60)), NextAction::Wait(None));
    answered(&mut race, t0 + ms(900), V6, [v6(1)]);
    assert_eq!(race.poll(t0 + ms(900)), NextAction::Dial(v6(1)));
}

#[test]
fn once_all_known_addresses_have_failed_the_other_family_is_waited_for_a_moment() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0 + ms(50)), NextAction::Dial(v4(1)));
    race.record_end(v4(1));
    assert_eq!(race.poll(t0 + ms(60)), NextAction::Wait(None), "this machine may not reach the family");
    race.note_reached();
    assert_eq!(race.poll(t0 + ms(60)), NextAction::Wait(Some(t0 + ms(300))));
    assert_eq!(race.poll(t0 + ms(300)), NextAction::NoneLeft);
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0 + ms(50)), NextAction::Dial(v4(1)));
    race.record_end(v4(1));
    race.note_reached();
    answered(&mut race, t0 + ms(299), V6, [v6(1)]);
    assert_eq!(race.poll(t0 + ms(299)), NextAction::Dial(v6(1)), "it is in time");
    let (mut race, t0) = both();
    answered(&mut race, t0, V4, []);
    race.note_reached();
    assert_eq!(race.poll(t0 + ms(3_000)), NextAction::Wait(None), "no address is known");
}

#[test]
fn a_race_dials_at_most_64_addresses_of_both_families_together() {
    for (v4s, v6s, dialled) in [(4_000, 0, 64), (40, 40, 64), (64, 0, 64), (10, 3, 13)] {
        let (mut race, t0) = both();
        answered(&mut race, t0, V6, (0..v6s).map(v6));
        answered(
            &mut race,
            t0,
            V4,
            (0..v4s).map(|last: u16| SocketAddr::from(([10, 0, (last >> 8) as u8, last as u8], 80))),
        );
        let mut seen = Vec::new();
        while let NextAction::Dial(address) = race.poll(t0) {
            seen.push(address);
            race.record_end(address);
        }
        assert_eq!(race.poll(t0), NextAction::NoneLeft);
        let of_v6 = seen.iter().filter(|address| address.is_ipv6()).count();
        assert_eq!((seen.len(), of_v6), (dialled, usize::from(v6s.min(32))), "{v4s} and {v6s}");
    }
}

#[test]
fn at_most_six_attempts_are_under_way_and_every_address_is_dialled() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, []);
    answered(&mut race, t0, V4, (1..=20).map(v4));
    for turn in 0..20 {
        let at = t0 + ms(250) * turn;
        let address = v4(turn as u8 + 1);
        if turn >= 6 {
            assert_eq!(race.poll(at), NextAction::Cancel(v4(turn as u8 - 5)));
        }
        assert_eq!(race.poll(at), NextAction::Dial(address));
        assert!(race.in_flight.len() <= 6);
    }
    assert_eq!(race.poll(t0 + ms(60_000)), NextAction::Wait(None), "the last six are not cancelled");
}

#[test]
fn an_address_listed_twice_is_dialled_once() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, []);
    answered(&mut race, t0, V4, [v4(1), v4(1)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v4(1)));
    race.record_end(v4(1));
    assert_eq!(race.poll(t0), NextAction::NoneLeft);
}

#[test]
fn each_of_many_addresses_is_dialled_once() {
    let (mut race, t0) = both();
    let addresses = || (0..50).map(v6);
    answered(&mut race, t0, V6, addresses().chain(addresses()));
    answered(&mut race, t0, V4, []);
    let mut dialled = Vec::new();
    while let NextAction::Dial(address) = race.poll(t0) {
        race.record_end(address);
        dialled.push(address);
    }
    assert_eq!(dialled, addresses().collect::<Vec<_>>());
}

/// Returns the times in milliseconds of the attempts at silent addresses within `limit`, and the most at once.
fn attempts(limit: u64, addresses: u16) -> (Vec<u128>, usize) {
    let t0 = crate::clock::now();
    let config = Config { deadline: Some(t0 + ms(limit)), ..Config::default() };
    let mut race = Schedule::new(config, &[V6], V6);
    answered(&mut race, t0, V6, (0..addresses).map(v6));
    let (mut now, mut times, mut most) = (t0, Vec::new(), 0);
    while now < t0 + ms(limit) {
        match race.poll(now) {
            NextAction::Dial(_) => times.push((now - t0).as_millis()),
            NextAction::Wait(Some(until)) => now = until,
            NextAction::Wait(None) | NextAction::NoneLeft => break,
            NextAction::Cancel(_) => {}
        }
        most = most.max(race.in_flight.len());
    }
    (times, most)
}

#[test]
fn a_short_time_is_shared_by_the_addresses() {
    assert_eq!(attempts(200, 2).0, [0, 100]);
    assert_eq!(attempts(200, 4).0, [0, 50, 100, 150]);
    assert_eq!(attempts(200, 40).0.len(), 20, "one every 10 ms");
    assert_eq!(attempts(10_000, 3), (vec![0, 250, 500], 3), "there is enough time for all");
    assert_eq!(attempts(10_000, 40), ((0..40).map(|turn| turn * 250).collect(), 6));
    let (times, most) = attempts(10_000, 600);
    assert!(times.len() == 64 && most < 20, "each has 300 ms: {} attempts, {most} at once", times.len());
}

#[test]
fn the_resolution_delay_is_no_more_than_a_quarter_of_the_time() {
    let t0 = crate::clock::now();
    let config = Config { deadline: Some(t0 + ms(40)), ..Config::default() };
    let mut race = Schedule::new(config, &[V6, V4], V6);
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0), NextAction::Wait(Some(t0 + ms(10))));
}

#[test]
fn a_handshake_leaves_half_of_the_time_for_other_addresses() {
    let t0 = crate::clock::now();
    let race = |addresses: u16| {
        let config = Config { deadline: Some(t0 + ms(1_000)), ..Config::default() };
        let mut race = Schedule::new(config, &[V6], V6);
        answered(&mut race, t0, V6, (0..addresses).map(v6));
        assert_eq!(race.poll(t0), NextAction::Dial(v6(0)));
        race.record_end(v6(0));
        race
    };
    let parts = [1, 2, 3, 4, 600].map(|addresses| race(addresses).handshake_timeout(t0 + ms(200)));
    assert_eq!(parts, [None, Some(ms(400)), Some(ms(400)), Some(ms(400)), Some(ms(400))]);
    let mut two = race(2);
    assert_eq!(two.poll(t0), NextAction::Dial(v6(1)));
    assert_eq!(two.handshake_timeout(t0), Some(ms(500)), "an attempt under way counts as another address");
}

#[test]
fn families_alternate_also_when_one_has_many_addresses() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, (0..1_000).map(v6));
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v6(0)));
    assert_eq!(race.poll(t0 + ms(250)), NextAction::Dial(v4(1)));
}

#[test]
fn slow_and_failed_addresses_come_last_in_either_family() {
    let (mut race, t0) = both();
    race.add_addresses(t0, V6, [(v6(1), DialStanding::Failed), (v6(2), DialStanding::Slow)]);
    race.add_addresses(t0, V4, [(v4(1), DialStanding::Failed), (v4(2), DialStanding::Fine)]);
    for (step, address) in [v4(2), v6(2), v4(1), v6(1)].into_iter().enumerate() {
        assert_eq!(race.poll(t0 + ms(250) * step as u32), NextAction::Dial(address));
    }
}

#[test]
fn an_address_that_failed_waits_50_ms_for_a_better_one() {
    let (mut race, t0) = both();
    race.add_addresses(t0, V6, [(v6(1), DialStanding::Failed)]);
    assert_eq!(race.poll(t0), NextAction::Wait(Some(t0 + ms(50))));
    answered(&mut race, t0 + ms(20), V4, [v4(1)]);
    assert_eq!(race.poll(t0 + ms(20)), NextAction::Dial(v4(1)));
    let (mut race, t0) = both();
    race.add_addresses(t0, V6, [(v6(1), DialStanding::Failed)]);
    assert_eq!(race.poll(t0 + ms(50)), NextAction::Dial(v6(1)), "and no longer");
}

#[test]
fn with_equal_shares_each_address_is_first_equally_often() {
    let mut firsts = [0; 3];
    for turn in 0..9 {
        let t0 = crate::clock::now();
        let mut race = Schedule::with_equal_shares(Config::default(), &[V6, V4], turn);
        let mut addresses = [v4(1), v4(2)];
        addresses.rotate_left(turn % 2);
        answered(&mut race, t0, V4, addresses);
        assert_eq!(race.poll(t0), NextAction::Wait(Some(t0 + ms(50))), "there may be more");
        answered(&mut race, t0, V6, [v6(1)]);
        let NextAction::Dial(first) = race.poll(t0) else { panic!("no reason to wait") };
        firsts[[v4(1), v4(2), v6(1)].iter().position(|address| *address == first).unwrap()] += 1;
        let NextAction::Dial(second) = race.poll(t0 + ms(250)) else { panic!("the next address") };
        assert_ne!(first, second);
    }
    assert_eq!(firsts, [3; 3]);
}

#[test]
fn the_last_good_family_goes_first() {
    let t0 = crate::clock::now();
    let mut race = Schedule::new(Config::default(), &[V6, V4], V4);
    answered(&mut race, t0, V6, [v6(1)]);
    assert_eq!(race.poll(t0), NextAction::Wait(Some(t0 + ms(50))));
    answered(&mut race, t0, V4, [v4(1)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v4(1)));
    assert_eq!(race.poll(t0 + ms(250)), NextAction::Dial(v6(1)));
}

#[test]
fn without_addresses_none_is_left() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, []);
    answered(&mut race, t0, V4, []);
    assert_eq!(race.poll(t0), NextAction::NoneLeft);
}

#[test]
fn no_attempt_is_cancelled_before_it_had_300_ms() {
    let t0 = crate::clock::now();
    let mut race = Schedule::new(Config { max_in_flight: 1, ..Config::default() }, &[V4], V4);
    answered(&mut race, t0, V4, [v4(1), v4(2)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v4(1)));
    // The attempt delay is over, so that the next address is dialled beside it.
    assert_eq!(race.poll(t0 + ms(299)), NextAction::Dial(v4(2)));
    let mut race = Schedule::new(Config { max_in_flight: 1, ..Config::default() }, &[V4], V4);
    answered(&mut race, t0, V4, [v4(1), v4(2)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v4(1)));
    assert_eq!(race.poll(t0 + ms(300)), NextAction::Cancel(v4(1)));
}

#[test]
fn a_slow_address_is_dialled_at_once_if_no_better_one_can_come() {
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, []);
    race.add_addresses(t0, V4, [(v4(1), DialStanding::Slow)]);
    assert_eq!(race.poll(t0), NextAction::Dial(v4(1)));
}

#[test]
fn a_race_knows_whether_both_families_had_addresses() {
    let (mut race, t0) = both();
    assert!(!race.has_both_families());
    answered(&mut race, t0, V6, []);
    answered(&mut race, t0, V4, [v4(1)]);
    assert!(!race.has_both_families());
    let (mut race, t0) = both();
    answered(&mut race, t0, V6, [v6(1)]);
    assert!(!race.has_both_families());
    answered(&mut race, t0, V4, [v4(1)]);
    assert!(race.has_both_families());
}
