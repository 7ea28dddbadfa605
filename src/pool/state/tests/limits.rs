//! Requests under limits, on several runtimes and while the pool drains: whether they get a connection, a dial or a refusal.

use super::*;

const OWN_DIAL: Wish = Wish { send_once: false, own_dial: true, ..ONCE };

#[test]
fn a_request_for_its_own_runtime_takes_another_ones_connection_only_rather_than_be_refused() {
    let (mut roomy, now) = pool(PoolConfig::new());
    roomy.open_idle(now, 1, 1);
    assert!(matches!(roomy.checkout(now, &1, &OWN_DIAL, 5, || (0, LIMITS)), Acquired::Wait(..)));
    roomy.permit();
    let (mut full, now) = pool(PoolConfig::new().max_connections_per_host(1).max_waiting(0));
    full.open_idle(now, 1, 1);
    let acquired = full.checkout(now, &1, &OWN_DIAL, 5, || (0, LIMITS));
    assert!(matches!(acquired, Acquired::Ready(_)), "{acquired:?}");
}

#[test]
fn a_request_for_its_own_runtime_and_a_hedge_have_an_http2_dial_of_their_own() {
    let avoid = Some(EarlierConn { number: 999, ip: None });
    for wish in [OWN_DIAL, Wish { avoid, ..Wish::default() }] {
        let (mut pool, now) = pool(PoolConfig::new());
        pool.wait(now, MANY, 0);
        let permit = pool.permit();
        pool.wait(now, MANY, 1);
        assert!(!pool.has_effects(), "one dial will do for both");
        pool.dialed_http2(now, permit, 2);
        pool.delivered();
        pool.delivered();
        pool.wait(now, MANY, 2);
        pool.permit();
        assert!(matches!(pool.checkout(now, &MANY, &wish, 5, || (3, LIMITS)), Acquired::Wait(..)), "{wish:?}");
        pool.permit();
    }
}

#[test]
fn while_the_pool_drains_only_calls_in_progress_take_a_free_connection() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 9);
    let _held = pool.delivered();
    pool.drain(now);
    let in_progress = Wish { despite_drain: true, ..Wish::default() };
    let [new, in_progress] =
        [Wish::default(), in_progress].map(|wish| pool.checkout(now, &MANY, &wish, 0, || unreachable!()));
    assert!(matches!((new, in_progress), (Acquired::Refused(Limit::Draining), Acquired::Ready(_))));
}

#[test]
fn a_dial_tells_what_the_machine_lacked_and_ports_of_one_address_close_no_connection_to_another() {
    for lacking in [Limit::Ports, Limit::Descriptors] {
        let (mut pool, now) = pool(PoolConfig::new());
        pool.open_idle(now, 1, 1);
        pool.wait(now, 2, 1);
        let permit = pool.permit();
        pool.dial_postponed(now, permit, lacking);
        let effects: Vec<_> = std::iter::from_fn(|| pool.next_effect()).collect();
        let closes = effects.iter().any(|effect| matches!(effect, Effect::Close(_)));
        assert_eq!(closes, lacking == Limit::Descriptors, "{effects:?}");
        let later = now + ms(200);
        pool.handle_timeout(later);
        let permit = pool.permit();
        assert_eq!(pool.note_dial(&permit).lacking, Some(lacking));
    }
}

#[test]
fn a_connection_whose_peer_allows_no_request_serves_none() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 9);
    let (_, held, _) = pool.delivered();
    pool.release(now, held, KEPT);
    pool.announce_streams(now, id, 0);
    for runtime in [0, 1] {
        assert!(matches!(pool.checkout(now, &MANY, &Wish::default(), runtime, || (0, LIMITS)), Acquired::Wait(..)));
    }
    let _dials = [pool.permit(), pool.permit()];
    pool.announce_streams(now, id, 1);
    assert_eq!(pool.delivered().2, 7);
}

#[test]
fn a_response_without_keep_alive_leaves_the_servers_timeout_in_force() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, LeaseEnd::Kept { keep_alive: Some(ms(4_000)) });
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, KEPT);
    pool.handle_timeout(now + ms(4_000));
    assert_eq!(pool.counters().closing, 1);
}

#[test]
fn a_request_that_loses_its_dial_relies_on_one_that_no_request_needs() {
    let (mut pool, now) = pool(PoolConfig::new());
    let left = pool.wait(now, 1, 1);
    let first = pool.permit();
    assert_eq!((pool.dial_of(left), pool.waiter_of(&first)), (Some(first.id().serial), Some(&1)));
    pool.wait(now, 1, 2);
    let postponed = pool.permit();
    pool.abandon(now, left, AbandonCause::Cancelled);
    assert_eq!((pool.dial_of(left), pool.waiter_of(&first)), (None, None));
    pool.dial_postponed(now, postponed, Limit::Descriptors);
    assert_eq!(pool.limit(now, 1, 3), Limit::Descriptors);
    pool.dial_succeeded(now, first, http1(5));
    assert_eq!(pool.delivered().0, 2);
}

#[test]
fn warming_up_keeps_its_budget_and_waits_for_no_dial_where_enough_are_open() {
    let (mut pool, now) = pool(PoolConfig::new());
    for budget in [0, 1, 2] {
        assert_eq!(pool.warm_up(now, &1, 9, budget).dialled, budget);
        for _ in 0..budget {
            pool.permit();
        }
    }
    pool.open_idle(now, 2, 1);
    let _held = pool.ready(now, 2);
    pool.wait(now, 2, 9);
    let enough = pool.warm_up(now, &2, 1, 1);
    assert_eq!((enough.open, enough.dialled, enough.dials), (1, 0, Vec::new()));
    assert_eq!(pool.warm_up(now, &2, 2, 1).dials.len(), 1);
}

#[test]
fn a_busy_connection_makes_no_room_where_another_one_does_already() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2).max_streams_per_connection(2));
    for waiter in 0..4 {
        pool.wait(now, MANY, waiter);
    }
    let (first, second) = (pool.permit(), pool.permit());
    let id = first.id();
    pool.dialed_http2(now, first, 2);
    pool.dialed_http2(now, second, 2);
    let mut held: Vec<_> = (0..4).map(|_| pool.delivered().1).collect();
    pool.wait(now, 1, 9);
    let of_first = held.iter().position(|lease| lease.id == id).expect("it has two");
    pool.release(now, held.remove(of_first), KEPT);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(retired, CloseCause::MadeRoom)) if retired == id));
    let of_second = held.iter().position(|lease| lease.id != id).expect("it has two");
    pool.release(now, held.remove(of_second), KEPT);
    assert!(!pool.has_effects());
    assert_eq!((pool.counters().yielding, pool.counters().retiring), (1, 1));
}

#[test]
fn a_rested_connection_is_preferred_though_any_would_do_rather_than_be_refused() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(3).max_waiting(0));
    let ids = pool.open_idle(now, 1, 3);
    let held: Vec<_> = (0..2).map(|_| pool.ready(now, 1).0).collect();
    for (held, end) in held.into_iter().zip([LeaseEnd::Cut { idle: ms(3) }, KEPT]) {
        pool.release(now + ms(40), held, end);
    }
    for expected in [ids[0], ids[1]] {
        match pool.checkout(now + ms(60), &1, &ONCE, 0, || (0, LIMITS)) {
            Acquired::Ready(grant) => assert_eq!(grant.token.id, expected),
            other => panic!("expected an idle connection: {other:?}"),
        }
    }
}

#[test]
fn a_request_that_a_connection_refused_waits_for_a_dial_in_flight_rather_than_share_it() {
    let (mut pool, now) = pool(PoolConfig::new().max_http2_connections_per_host(2));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let refused_by = permit.id().serial;
    pool.dialed_http2(now, permit, 100);
    let _held = pool.delivered();
    for waiter in 1..3 {
        assert!(matches!(pool.acquire(now, &MANY, Some(refused_by), false, || waiter), Acquired::Wait(..)));
    }
    let permit = pool.permit();
    assert!(!pool.has_effects(), "one dial will do for both");
    pool.dial_succeeded(now, permit, http2(8));
    assert!(matches!(pool.delivered(), (1, _, 8)));
}

#[test]
fn a_connection_whose_last_request_is_leased_makes_way_for_a_dial() {
    let config = PoolConfig::new().max_http2_connections_per_host(2).max_streams_per_connection(2);
    let (mut pool, now) = pool(config.max_requests_per_connection(2));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let number = permit.id().serial;
    pool.dialed_http2(now, permit, 2);
    let _held = pool.delivered();
    for waiter in 1..4 {
        assert!(matches!(pool.acquire(now, &MANY, Some(number), false, || waiter), Acquired::Wait(..)));
    }
    pool.permit();
    assert!(!pool.has_effects(), "more connections are not allowed");
    let _last = pool.ready(now, MANY);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(_, CloseCause::RequestLimit))));
    pool.permit();
}
