//! The addresses of balanced hosts as requests go on: their turns, what is opened for them, what results change.

use std::net::SocketAddr;

use super::balance::{NAME, answer, balanced_pool, socket};
use super::*;
use crate::pool::state::values::Tracking;

/// The index of the only host.
const ONLY: usize = 0;

/// A balanced pool whose host 1 has an idle HTTP/1 connection to each of these addresses, opened in this order.
fn opened(at: &[u8]) -> (Pool, Instant) {
    let (mut pool, now) = (balanced_pool(&PoolConfig::new(), 7), crate::clock::now());
    for waiter in 0..at.len() as u32 {
        pool.wait(now, 1, waiter);
    }
    let permits: Vec<_> = at.iter().map(|_| pool.permit()).collect();
    for (permit, last) in permits.into_iter().zip(at) {
        connect(&mut pool, now, permit, *last);
    }
    let held: Vec<_> = at.iter().map(|_| pool.delivered().1).collect();
    for token in held {
        pool.release(now, token, KEPT);
    }
    pool.addresses_answered(now, NAME, &answer(at.iter().copied()), true);
    assert!(pool.next_effect().is_none());
    (pool, now)
}

/// Connects a dial to an address, whose last number becomes the connection's.
fn connect(pool: &mut Pool, now: Instant, permit: Permit, last: u8) {
    let opened = Opened { remote: Some(socket(last)), ..http1(last.into()) };
    pool.dial_succeeded(now, permit, opened);
}

/// Makes a request that is over at once. Returns the last number of its address.
fn request(pool: &mut Pool, now: Instant, outcome: Outcome) -> u8 {
    let (mut token, conn) = pool.ready(now, 1);
    pool.report(now, &mut token, ms(10), outcome);
    pool.release(now, token, KEPT);
    conn as u8
}

fn standing(pool: &Pool, now: Instant, last: u8) -> Standing {
    let (_, reports) = pool.address_reports(now).next().expect("a host");
    reports.iter().find(|report| report.socket == socket(last)).expect("an address").standing
}

#[test]
fn requests_that_follow_each_other_go_to_the_addresses_in_turns() {
    let (mut pool, now) = opened(&[1, 2]);
    let turns: Vec<_> = (0..6).map(|_| request(&mut pool, now, Outcome::Answered)).collect();
    assert_eq!(turns, [1, 2, 1, 2, 1, 2]);
}

#[test]
fn an_address_that_left_dns_gets_no_more_requests() {
    let (mut pool, now) = opened(&[1, 2]);
    pool.addresses_answered(now, NAME, &answer([2]), true);
    let turns: Vec<_> = (0..3).map(|_| request(&mut pool, now, Outcome::Answered)).collect();
    assert_eq!(turns, [2, 2, 2]);
}

/// A balanced pool whose host 100 has an HTTP/2 connection with a request to each of the addresses 1 to `count`, and its limit for each.
fn opened_http2(count: u8, most: usize) -> (Pool, Instant, Vec<LeaseToken>) {
    let config = PoolConfig::new().max_http2_connections_per_host(most).max_streams_per_connection(1);
    let (mut pool, now) = (balanced_pool(&config, 7), crate::clock::now());
    let mut held = Vec::new();
    for last in 1..=count {
        pool.wait(now, MANY, last.into());
        let permit = pool.permit();
        let id = permit.id();
        pool.dial_succeeded(now, permit, Opened { remote: Some(socket(last)), ..http2(last.into()) });
        pool.announce_streams(now, id, 1);
        held.push(pool.delivered().1);
        pool.addresses_answered(now, NAME, &answer(1..=count), true);
    }
    (pool, now, held)
}

#[test]
fn connections_to_addresses_that_left_dns_take_no_place_of_those_to_new_ones() {
    for (count, most) in [(1, 1), (3, 1)] {
        let (mut pool, now, _held) = opened_http2(count, most);
        pool.addresses_answered(now, NAME, &answer([9]), true);
        pool.wait(now, MANY, 99);
        assert_eq!(pool.aimed().1, Some(socket(9)), "{count} and {most}");
    }
}

#[test]
fn an_address_in_use_whose_limit_is_reached_is_dialled_no_more_though_others_are_ejected() {
    let (mut pool, now, mut held) = opened_http2(2, 1);
    for _ in 0..20 {
        pool.report(now, &mut held[0], ms(10), Outcome::Failed);
    }
    assert!(matches!(standing(&pool, now, 1), Standing::Ejected { .. }));
    pool.wait(now, MANY, 99);
    let effect = pool.next_effect();
    assert!(effect.is_none(), "it waits for a stream of the other one: {effect:?}");
}

#[test]
fn an_address_that_asks_for_calm_pauses_the_dials_to_it_alone() {
    let (mut pool, now, held) = opened_http2(2, 2);
    pool.back_off(now, held[0].id, 1.0);
    pool.next_effect();
    for _ in 0..2 {
        pool.wait(now, MANY, 99);
        while let Some(effect) = pool.next_effect() {
            assert!(matches!(effect, Effect::Dial(_, _, first) if first == Some(socket(2))), "{effect:?}");
        }
    }
    // One that had ended says nothing of the others either.
    pool.back_off(now, held[0].id, 1.0);
    assert_eq!(pool.hosts[ONLY].dials.paused_until, None);
}

#[test]
fn new_rules_for_ejection_count_for_a_host_in_use() {
    let (mut pool, now, mut held) = opened_http2(3, 2);
    let fail = |pool: &mut Pool, token: &mut LeaseToken, times: usize| {
        (0..times).for_each(|_| pool.report(now, token, ms(10), Outcome::Failed));
    };
    fail(&mut pool, &mut held[0], 20);
    assert_ne!(standing(&pool, now, 1), Standing::Fine);
    pool.hosts[ONLY].balance.as_mut().expect("it is balanced").set_rules(crate::pool::Ejection::off());
    assert_eq!(standing(&pool, now, 1), Standing::Fine);
    // A probe that began before them has no say.
    held[0].tracking = Tracking::Probe;
    fail(&mut pool, &mut held[0], 1);
    assert_eq!(standing(&pool, now, 1), Standing::Fine);
    fail(&mut pool, &mut held[1], 20);
    assert_eq!(standing(&pool, now, 2), Standing::Fine);
}

#[test]
fn an_address_that_goes_with_its_last_connection_while_a_request_looks_for_one_is_not_asked_for_again() {
    let (mut pool, now) = opened(&[1]);
    // The name does not exist any more, and its only connection is too old when the next request comes.
    pool.addresses_answered(now, NAME, &answer([]), true);
    let later = now + Duration::from_secs(1_200);
    let wish = Wish::default();
    match pool.checkout(later, &1, &wish, 0, || (9, LIMITS)) {
        Acquired::Wait(..) => {}
        other => panic!("{other:?}"),
    }
}

/// Makes a request whose address has no free connection, while another one has. Returns the address dialled for later ones.
fn dialled_for_balance(change: impl FnOnce(&mut Pool, Instant)) -> Option<SocketAddr> {
    let (mut pool, now) = opened(&[1, 1, 1, 2]);
    for last in [1, 2, 1] {
        assert_eq!(pool.ready(now, 1).1, last);
    }
    change(&mut pool, now);
    while pool.next_effect().is_some() {}
    let wish = Wish { despite_drain: true, ..Wish::default() };
    match pool.checkout(now, &1, &wish, 0, || (9, LIMITS)) {
        Acquired::Ready(grant) => assert_eq!(grant.conn, 1, "the other address has a free connection"),
        other => panic!("{other:?}"),
    }
    let first = match pool.next_effect() {
        Some(Effect::Dial(_, _, first)) => first,
        None => None,
        other => panic!("{other:?}"),
    };
    assert_eq!((pool.next_effect().is_none(), pool.hosts[ONLY].spare_dials()), (true, usize::from(first.is_some())));
    first
}

#[test]
fn a_connection_is_opened_to_an_address_that_was_chosen_and_has_no_free_one() {
    assert_eq!(dialled_for_balance(|_, _| ()), Some(socket(2)));
}

#[test]
fn no_connection_is_opened_for_the_balance_that_would_close_as_soon_as_it_is_idle() {
    // One connection is idle before the request, and the address lacks one.
    for (most, is_dialled) in [(0, false), (1, false), (2, true)] {
        let expected = if is_dialled { Some(socket(2)) } else { None };
        let of_host = dialled_for_balance(|pool, _| pool.hosts[ONLY].limits.max_idle = most);
        let of_pool = dialled_for_balance(|pool, _| pool.conns.max_idle = most);
        assert_eq!((of_host, of_pool), (expected, expected), "{most}");
    }
}

#[test]
fn no_connection_is_opened_for_the_balance_where_a_limit_a_pause_or_a_drain_forbids_it() {
    let of_host = dialled_for_balance(|pool, _| pool.hosts[ONLY].limits.max_connections = 4);
    let of_pool = dialled_for_balance(|pool, _| pool.slots.limit = 4);
    let paused = dialled_for_balance(|pool, now| {
        let balance = pool.hosts[ONLY].balance.as_mut().unwrap();
        balance.dial_failed(now, 1);
    });
    let draining = dialled_for_balance(|pool, _| pool.is_draining = true);
    assert_eq!([of_host, of_pool, paused, draining], [None; 4]);
}

#[test]
fn an_address_that_fails_is_ejected_and_a_single_request_probes_it() {
    let (mut pool, now) = opened(&[1, 2]);
    for _ in 0..5 {
        assert_eq!(request(&mut pool, now, Outcome::Failed), 1);
        assert_eq!(request(&mut pool, now, Outcome::Answered), 2);
    }
    let until = now + Duration::from_secs(10);
    assert_eq!(standing(&pool, now, 1), Standing::Ejected { until });
    assert_eq!([0; 3].map(|_| request(&mut pool, now, Outcome::Answered)), [2; 3]);
    let (mut probe, conn) = pool.ready(until, 1);
    assert_eq!((conn, standing(&pool, until, 1)), (1, Standing::Probed));
    assert_eq!([0; 3].map(|_| request(&mut pool, until, Outcome::Answered)), [2; 3]);
    pool.report(until, &mut probe, ms(10), Outcome::Answered);
    assert_eq!(standing(&pool, until, 1), Standing::Fine);
    pool.release(until, probe, KEPT);
    assert_eq!((standing(&pool, until, 1), pool.next_effect().is_none()), (Standing::Fine, true));
}

/// A pool whose only connection, to address 1, is busy, with a dial to address 2, which is new.
fn dialling_another() -> (Pool, LeaseToken, Permit, Instant) {
    let (mut pool, now) = opened(&[1]);
    let (held, _) = pool.ready(now, 1);
    pool.addresses_answered(now, NAME, &answer([1, 2]), true);
    pool.wait(now, 1, 7);
    let (permit, first) = pool.aimed();
    assert_eq!(first, Some(socket(2)));
    (pool, held, permit, now)
}

/// Returns the address that the next dial tries first.
fn next_dial(pool: &mut Pool, at: Instant) -> Option<SocketAddr> {
    pool.wait(at, 1, 8);
    pool.aimed().1
}

#[test]
fn an_address_that_could_not_be_connected_to_is_not_dialled_for_a_second() {
    for (after, first) in [(999, 1), (1_000, 2)] {
        let (mut pool, _held, permit, now) = dialling_another();
        pool.dial_failed(now, permit, "refused");
        pool.handle_timeout(now + ms(100));
        pool.failed();
        assert_eq!(next_dial(&mut pool, now + ms(after)), Some(socket(first)), "{after}");
    }
}

#[test]
fn an_address_that_a_dial_tried_first_and_missed_is_not_dialled_for_a_second() {
    for (after, first) in [(999, 1), (1_000, 2)] {
        let (mut pool, _held, permit, now) = dialling_another();
        connect(&mut pool, now, permit, 1);
        let _second = pool.delivered();
        assert_eq!(next_dial(&mut pool, now + ms(after)), Some(socket(first)), "{after}");
    }
}

#[test]
fn a_dial_that_connects_to_the_address_it_tried_first_is_no_failure_of_it() {
    let (mut pool, _held, permit, now) = dialling_another();
    pool.dial_failed(now, permit, "refused");
    pool.handle_timeout(now + ms(100));
    pool.failed();
    for waiter in 0..10 {
        pool.wait(now, 1, waiter);
        let (permit, first) = pool.aimed();
        assert_eq!(first, Some(socket(1)), "the other one could not be connected to");
        connect(&mut pool, now, permit, 1);
        pool.delivered();
    }
    assert_eq!(standing(&pool, now, 1), Standing::Fine);
}

#[test]
fn a_request_that_waits_gets_a_free_connection_whose_address_comes_into_use() {
    let (mut pool, now) = opened(&[1]);
    pool.addresses_answered(now, NAME, &answer([2]), true);
    pool.wait(now, 1, 7);
    assert_eq!(pool.aimed().1, Some(socket(2)));
    assert!(pool.next_effect().is_none());
    pool.addresses_answered(now, NAME, &answer([1, 2]), true);
    let (waiter, _, conn) = pool.delivered();
    assert_eq!((waiter, conn), (7, 1));
}

#[test]
fn while_the_pool_drains_a_request_takes_a_stream_to_an_address_out_of_use() {
    let (mut pool, now) = (balanced_pool(&PoolConfig::new(), 7), crate::clock::now());
    pool.wait(now, MANY, 6);
    let permit = pool.permit();
    let id = permit.id();
    pool.dial_succeeded(now, permit, Opened { remote: Some(socket(1)), ..http2(1) });
    pool.announce_streams(now, id, 10);
    let _held = pool.delivered();
    pool.addresses_answered(now, NAME, &answer([2]), true);
    pool.wait(now, MANY, 7);
    let (permit, first) = pool.aimed();
    assert_eq!(first, Some(socket(2)));
    assert!(pool.next_effect().is_none());
    pool.drain(now);
    let (waiter, _, conn) = pool.delivered();
    assert_eq!((waiter, conn), (7, 1));
    assert!(matches!(pool.next_effect(), Some(Effect::AbortDial(id)) if id == permit.id()), "it is not needed");
}
