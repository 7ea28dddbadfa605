//! Servers that ask for calm, and servers that close connections under requests.

use super::*;

#[test]
fn a_server_that_asks_for_calm_is_not_dialled_for_a_while_and_for_longer_each_time() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    for pause in [200, 400, 800] {
        pool.wait(now, MANY, 0);
        let permit = pool.permit();
        let id = permit.id();
        pool.dialed_http2(now, permit, 100);
        let (_, held, _) = pool.delivered();
        pool.back_off(now, id, 1.0);
        assert!(matches!(pool.next_effect(), Some(Effect::Retired(_, CloseCause::PeerAnnounced))));
        pool.release(now, held, BROKEN);
        pool.closes();
        pool.socket_closed(now, id);
        // The record of the host is gone in the meantime.
        assert_eq!((pool.hosts.slab.len(), pool.limit(now, MANY, 1)), (0, Limit::EnhanceYourCalm));
        assert!(pool.next_effect().is_none());
        now += ms(pause);
        assert_eq!(pool.next_timeout(), Some(now));
        pool.handle_timeout(now);
        let permit = pool.permit();
        pool.dial_failed(now, permit, "refused");
        pool.failed();
    }
}

#[test]
fn a_server_that_asks_for_calm_is_sent_requests_on_its_open_connections() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(1));
    pool.wait(now, MANY, 0);
    pool.wait(now, MANY, 1);
    let (first, second) = (pool.permit(), pool.permit());
    let id = first.id();
    pool.dialed_http2(now, first, 1);
    pool.dialed_http2(now, second, 1);
    let (_, held) = (pool.delivered(), pool.delivered().1);
    pool.back_off(now, id, 1.0);
    pool.next_effect();
    pool.wait(now, MANY, 2);
    assert!(pool.next_effect().is_none(), "its host is not dialled");
    pool.release(now, held, KEPT);
    assert_eq!(pool.delivered().0, 2);
}

#[test]
fn a_host_that_cuts_gets_unrepeatable_requests_on_rested_or_new_connections() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 3);
    let Acquired::Ready(grant) = pool.checkout(now + ms(1), &1, &ONCE, 0, || (0, LIMITS)) else {
        panic!("the host is not known to cut")
    };
    pool.release(now + ms(2), grant.token, LeaseEnd::Cut { idle: ms(3) });
    pool.closes();
    assert!(matches!(pool.checkout(now + ms(10), &1, &ONCE, 0, || (1, LIMITS)), Acquired::Wait(..)));
    let permit = pool.permit();
    // A request that may be sent twice takes any connection, and the one that waits does not take it when it is given back.
    let (held, _) = pool.ready(now + ms(10), 1);
    pool.release(now + ms(11), held, KEPT);
    assert!(pool.next_effect().is_none());
    pool.dial_succeeded(now + ms(12), permit, http1(9));
    assert!(matches!(pool.delivered(), (1, _, 9)));
    // Of the two connections that are left, one was idle from the start.
    let rested = pool.checkout(now + ms(51), &1, &ONCE, 0, || (2, LIMITS));
    assert!(matches!(rested, Acquired::Ready(Grant { idle, .. }) if idle == Some(ms(51))), "{rested:?}");
    assert!(matches!(pool.checkout(now + ms(52), &1, &ONCE, 0, || (3, LIMITS)), Acquired::Wait(..)));
}

#[test]
fn a_host_that_cuts_is_trusted_again_after_a_minute_without_a_cut() {
    for behaves in [true, false] {
        let (mut pool, now) = pool(PoolConfig::new().idle_timeout(Duration::from_secs(90)));
        let ids = pool.open_idle(now, 1, 3);
        let (held, _) = pool.ready(now, 1);
        pool.release(now, held, LeaseEnd::Cut { idle: ms(0) });
        if !behaves {
            // The server closes another connection as soon as it is idle.
            let later = now + ms(30_000);
            let (held, _) = pool.ready(later, 1);
            let id = *ids.iter().find(|id| id.serial == held.connection()).unwrap();
            pool.release(later, held, KEPT);
            pool.socket_closed(later, id);
        }
        let then = now + ms(60_000);
        let (held, _) = pool.ready(then, 1);
        pool.release(then, held, KEPT);
        let taken = matches!(pool.checkout(then + ms(1), &1, &ONCE, 0, || (1, LIMITS)), Acquired::Ready(_));
        assert_eq!(taken, behaves);
    }
}

#[test]
fn under_a_limit_an_idle_connection_of_a_host_that_cuts_makes_room_for_an_unrepeatable_request() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, LeaseEnd::Cut { idle: ms(0) });
    pool.closes();
    pool.socket_closed(now, ids[0]);
    let ids = pool.open_idle(now, 1, 1);
    assert!(matches!(pool.checkout(now, &1, &ONCE, 0, || (7, LIMITS)), Acquired::Wait(..)));
    pool.closes();
    assert_eq!(pool.socket_closed(now, ids[0]), CloseCause::MadeRoom);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(9));
    assert!(matches!(pool.delivered(), (7, _, 9)));
}

#[test]
fn a_host_that_cuts_is_remembered_before_its_protocol_is_known_again() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, UNKNOWN, 1);
    let (held, _) = pool.ready(now, UNKNOWN);
    pool.release(now, held, LeaseEnd::Cut { idle: ms(0) });
    pool.closes();
    pool.socket_closed(now, ids[0]);
    assert!(pool.hosts.slab.is_empty());
    pool.memory.forget_servers(|_| true);
    for waiter in [1, 2] {
        assert!(matches!(pool.checkout(now, &UNKNOWN, &ONCE, 0, || (waiter, LIMITS)), Acquired::Wait(..)));
    }
    let permit = pool.permit();
    assert!(pool.next_effect().is_none(), "the first connection will show what it speaks");
    pool.dial_succeeded(now, permit, http1(9));
    let (waiter, held, _) = pool.delivered();
    let other = pool.permit();
    pool.release(now, held, KEPT);
    assert!(waiter == 1 && pool.next_effect().is_none(), "it has not rested");
    pool.dial_succeeded(now, other, http1(10));
    assert!(matches!(pool.delivered(), (2, _, 10)));
}

#[test]
fn a_request_to_a_host_that_cuts_is_not_refused_beside_an_idle_connection() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).max_waiting(0));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, LeaseEnd::Cut { idle: ms(0) });
    pool.closes();
    pool.socket_closed(now, ids[0]);
    pool.open_idle(now, 1, 1);
    let taken = pool.checkout(now, &1, &ONCE, 0, || (7, LIMITS));
    assert!(matches!(taken, Acquired::Ready(_)), "{taken:?}");
}

#[test]
fn a_used_http1_connection_of_a_host_that_cuts_has_to_rest_though_others_speak_http2() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut held = Vec::new();
    for waiter in 0..3 {
        pool.wait(now, UNKNOWN, waiter);
        let permit = pool.permit();
        match waiter {
            2 => pool.dialed_http2(now, permit, 1),
            _ => drop(pool.dial_succeeded(now, permit, http1(u64::from(waiter)))),
        }
        held.push(pool.delivered().1);
    }
    pool.release(now, held.remove(0), LeaseEnd::Cut { idle: ms(3) });
    assert_eq!(pool.closes(), 0);
    pool.release(now, held.remove(0), KEPT);
    let checked_out = pool.checkout(now + ms(10), &UNKNOWN, &ONCE, 0, || (9, LIMITS));
    assert!(matches!(checked_out, Acquired::Wait(..)), "{checked_out:?}");
    pool.permit();
}

#[test]
fn a_used_http2_connection_need_not_rest_though_others_speak_http1() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, UNKNOWN, 0);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(5));
    let (_, cut, _) = pool.delivered();
    pool.wait(now, UNKNOWN, 1);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 100);
    let (_, shared, _) = pool.delivered();
    pool.release(now, shared, KEPT);
    // A resend takes no idle connection. The one dialled for it speaks HTTP/1, and is the last that was opened.
    assert!(matches!(pool.acquire(now, &UNKNOWN, Some(0), false, || 2), Acquired::Wait(..)));
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(6));
    assert_eq!(pool.delivered().2, 6);
    pool.release(now, cut, LeaseEnd::Cut { idle: ms(3) });
    assert_eq!(pool.closes(), 5);
    let checked_out = pool.checkout(now + ms(1), &UNKNOWN, &ONCE, 0, || (3, LIMITS));
    assert!(matches!(checked_out, Acquired::Ready(Grant { conn: 7, .. })), "{checked_out:?}");
}
