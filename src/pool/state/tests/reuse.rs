//! Reuse of open connections.

use super::*;

#[test]
fn a_cold_request_dials_and_a_warm_one_does_not() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 10);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(5));
    let (waiter, held, conn) = pool.delivered();
    assert_eq!((waiter, conn), (10, 5));
    pool.release(now, held, KEPT);
    assert_eq!(pool.ready(now, 1).1, 5);
    assert!(pool.next_effect().is_none());
}

#[test]
fn a_request_gets_a_connection_of_its_own_runtime_rather_than_a_more_recent_one() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    let permits = [pool.permit(), pool.permit()];
    for (number, permit) in (1..).zip(permits) {
        pool.dial_succeeded(now, permit, Opened { runtime: number, ..http1(number) });
    }
    let held = [pool.delivered().1, pool.delivered().1];
    held.into_iter().for_each(|held| pool.release(now, held, KEPT));
    // A request of a runtime without connections gets the most recently used one.
    for (home, expected) in [(1, 1), (2, 2), (1, 1), (3, 1)] {
        match pool.checkout(now, &1, &Wish::default(), home, || (0, LIMITS)) {
            Acquired::Ready(Grant { token, conn, .. }) => {
                assert_eq!(conn, expected, "runtime {home}");
                pool.release(now, token, KEPT);
            }
            other => panic!("expected an idle connection: {other:?}"),
        }
    }
}

#[test]
fn the_most_recently_used_connection_is_leased_first() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 2);
    let (first, _) = pool.ready(now, 1);
    let (second, b) = pool.ready(now, 1);
    pool.release(now, first, KEPT);
    pool.release(now, second, KEPT);
    assert_eq!(pool.ready(now, 1).1, b);
}

#[test]
fn a_host_counts_its_connections_and_requests() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 2);
    pool.open_idle(now, 2, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now + ms(5), held, KEPT);
    pool.socket_closed(now, ids[0]);
    let (_, counters) = pool.host_counters().find(|(host, _)| **host == 1).unwrap();
    assert_eq!(
        (counters.totals.opened, counters.totals.reused, counters.totals.closed[CloseCause::Peer as usize]),
        (2, 1, 1)
    );
    assert_eq!((counters.totals.waited.count(), counters.totals.held.count()), (3, 3));
    assert_eq!(pool.counters().totals.waited.count(), 4);
}

#[test]
fn a_connection_that_was_idle_is_not_delivered_as_one_that_was_just_dialled() {
    let own_dial = Wish { own_dial: true, ..Wish::default() };
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.warm_up(now, &1, 1, 1);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, Opened { fresh: 99, ..http1(7) });
    match pool.checkout(now, &1, &own_dial, 5, || (3, LIMITS)) {
        Acquired::Wait(..) => assert_eq!((pool.delivered().2, pool.has_effects()), (7, false)),
        other => panic!("{other:?}"),
    }
}
