//! Draining the pool.

use super::*;

#[test]
fn a_drain_aborts_unclaimed_dials_and_waits_for_calls_that_hold_it() {
    let (mut pool, now) = pool(PoolConfig::new());
    let (first, second) = (pool.wait(now, 1, 0), pool.wait(now, 1, 1));
    let (one, other) = (pool.permit(), pool.permit());
    pool.abandon(now, first, AbandonCause::Cancelled);
    assert!(pool.hold_drain(true));
    pool.drain(now);
    assert!(!pool.hold_drain(true));
    assert!(pool.next_effect().is_none(), "a request waits");
    pool.abandon(now, second, AbandonCause::Cancelled);
    for aborted in [&other, &one] {
        assert!(matches!(pool.next_effect(), Some(Effect::AbortDial(id)) if id == aborted.id()));
    }
    for permit in [one, other] {
        pool.dial_failed(now, permit, "lost");
    }
    assert!(!pool.is_drained(), "a call holds the drain");
    assert!(matches!(pool.acquire(now, &1, None, true, || 2), Acquired::Wait(..)));
    pool.unhold_drain();
    let permit = pool.permit();
    let id = permit.id();
    pool.dial_succeeded(now, permit, http1(7));
    let (_, held, _) = pool.delivered();
    pool.release(now, held, KEPT);
    pool.closes();
    pool.socket_closed(now, id);
    assert!(matches!(pool.next_effect(), Some(Effect::Drained)));
}

#[test]
fn a_draining_pool_serves_the_requests_it_has_and_refuses_new_calls() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 2, 1);
    pool.wait(now, 1, 0);
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    let id = permit.id();
    pool.drain(now);
    assert_eq!(pool.closes(), ids[0].serial);
    pool.socket_closed(now, ids[0]);
    assert!(matches!(pool.acquire(now, &1, None, false, || 9), Acquired::Refused(Limit::Draining)));
    pool.dial_succeeded(now, permit, http1(5));
    for expected in [0, 1] {
        let (waiter, held, _) = pool.delivered();
        assert_eq!(waiter, expected);
        pool.release(now, held, KEPT);
    }
    assert_eq!(pool.closes(), 5);
    assert!(!pool.is_drained());
    pool.socket_closed(now, id);
    assert!(pool.is_drained() && matches!(pool.next_effect(), Some(Effect::Drained)));
}

#[test]
fn a_drain_does_not_wait_for_unclaimed_dials() {
    let (mut pool, now) = pool(PoolConfig::new());
    let id = pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.abandon(now, id, AbandonCause::Cancelled);
    pool.drain(now);
    assert!(matches!(pool.next_effect(), Some(Effect::AbortDial(_))));
    // The dial succeeds before it is aborted.
    pool.dial_succeeded(now, permit, http1(5));
    assert_eq!(pool.closes(), 5);
}
