//! The queue, its limits and its timeouts.

use super::*;

#[test]
fn a_limit_makes_requests_wait_in_order() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let permit = pool.permit();
    assert!(pool.next_effect().is_none(), "one dial only");
    pool.dial_succeeded(now, permit, http1(5));
    for expected in 0..3 {
        let (waiter, held, _) = pool.delivered();
        assert_eq!(waiter, expected);
        pool.release(now, held, KEPT);
    }
    assert_eq!(pool.counters().idle, 1);
}

#[test]
fn a_waiting_request_takes_a_freed_connection_and_its_dial_is_kept() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.wait(now, 1, 9);
    let permit = pool.permit();
    pool.release(now, held, KEPT);
    assert_eq!(pool.delivered().0, 9);
    pool.dial_succeeded(now, permit, http1(6));
    assert!(pool.next_effect().is_none());
    assert_eq!(pool.counters().idle, 1);
}

#[test]
fn a_request_waits_for_its_dial_as_long_as_that_takes() {
    let (mut pool, now) = pool(PoolConfig::new().wait_timeout(ms(100)));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.handle_timeout(now + ms(5_000));
    pool.permit();
    assert!(pool.next_effect().is_none(), "the wait timeout is for waits that a limit imposes");
    pool.dial_succeeded(now + ms(5_000), permit, http1(5));
    assert_eq!(pool.delivered().0, 1);
}

#[test]
fn a_host_can_have_its_own_limit_of_waiting_requests() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).max_waiting_per_host(2));
    pool.wait(now, 1, 0);
    for waiter in 1..3 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, None, false, || 3), Acquired::Refused(Limit::ConnectionsPerHost)));
    pool.wait(now, 2, 10);
}

#[test]
fn requests_that_wait_too_long_fail() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(100)));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(5));
    let (_, held, _) = pool.delivered();
    pool.wait(now, 1, 2);
    pool.wait(now + ms(50), 1, 3);
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.failed(), (2, WaitFailure::Timeout { .. })));
    assert_eq!(pool.next_timeout(), Some(now + ms(150)));
    pool.release(now + ms(120), held, KEPT);
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn the_limit_of_waiting_requests_does_not_count_those_with_a_dial() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2).max_waiting(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, None, false, || 9), Acquired::Refused(_)));
    pool.wait(now, 2, 4);
    assert!(matches!(pool.acquire(now, &1, None, false, || 9), Acquired::Refused(_)));
}

#[test]
fn a_request_that_may_not_wait_leaves_no_host_behind() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1).max_waiting(0));
    pool.wait(now, 1, 0);
    assert!(matches!(pool.acquire(now, &2, None, false, || 9), Acquired::Refused(_)));
    assert_eq!(pool.hosts.slab.len(), 1);
}

#[test]
fn a_request_that_may_not_wait_waits_for_room_alone() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2).max_waiting(0));
    let ids = pool.open_idle(now, 1, 2);
    let (held, _) = pool.ready(now, 1);
    pool.wait(now, 2, 0);
    let closing = pool.closes();
    let refused = |pool: &mut Pool| matches!(pool.acquire(now, &3, None, false, || 9), Acquired::Refused(_));
    assert!(refused(&mut pool), "what is in use stays, and the other one is spoken for");
    assert!(!pool.has_effects());
    let closed = ids.into_iter().find(|id| *id != held.id).expect("the idle one");
    pool.socket_closed(now, closed);
    let _ = (closing, pool.permit());
    assert!(refused(&mut pool));
    pool.release(now, held, KEPT);
    pool.wait(now, 3, 1);
}

#[test]
fn a_host_that_is_kept_warm_gives_way_to_a_request_that_may_not_wait() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1).max_waiting(0).min_idle_per_host(1));
    let ids = pool.open_idle(now, 1, 1);
    pool.wait(now, 2, 0);
    pool.closes();
    pool.socket_closed(now, ids[0]);
    pool.handle_timeout(now + ms(1));
    assert!(matches!(pool.next_effect(), Some(Effect::Dial(_, 2, _))));
    assert!(!pool.has_effects());
}

#[test]
fn each_request_that_entered_the_queue_is_counted_once_as_it_leaves() {
    let config = PoolConfig::new().max_connections_per_host(1).max_waiting(3).wait_timeout(ms(100));
    let (mut pool, now) = pool(config);
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    let cancelled = pool.wait(now, 1, 1);
    let timed_out = pool.wait(now, 1, 2);
    pool.wait(now, 1, 3);
    assert!(matches!(pool.acquire(now, &1, None, false, || 4), Acquired::Refused(_)));
    pool.abandon(now, cancelled, AbandonCause::Cancelled);
    pool.abandon(now, timed_out, AbandonCause::TimedOut);
    assert_eq!(pool.abandon(now, timed_out, AbandonCause::TimedOut), None, "it has left already");
    assert!(pool.dial_failed(now, permit, "refused").is_none());
    let permit = pool.permit();
    assert!(pool.dial_failed(now + ms(1), permit, "refused").is_none());
    for waiter in [0, 3] {
        assert!(matches!(pool.failed(), (failed, WaitFailure::Dial(_)) if failed == waiter));
    }
    pool.wait(now, 1, 4);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(5));
    assert_eq!(pool.delivered().0, 4);
    pool.wait(now, 1, 5);
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.failed(), (5, WaitFailure::Timeout { .. })));
    let expected = QueueStats { entered: 6, served: 1, failed: 2, timed_out: 2, cancelled: 1, refused: 1 };
    let totals = pool.counters().totals;
    assert_eq!((totals.queue, totals.waited.count()), (expected, 1), "only those that got a connection have a wait");
    let host = pool.host_reports(now).next().expect("the host has a connection").1;
    assert_eq!(host.counters.totals.queue, expected);
}

#[test]
fn calls_that_a_drain_turns_away_are_not_counted_as_refused() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.drain(now);
    assert!(matches!(pool.acquire(now, &1, None, false, || 0), Acquired::Refused(Limit::Draining)));
    assert_eq!(pool.counters().totals.queue, QueueStats::default());
}
