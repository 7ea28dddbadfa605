//! Resends, and the connections they take.

use super::*;

#[test]
fn a_request_with_a_dial_of_its_own_takes_no_connection_of_another_runtime() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dial_succeeded(now, permit, Opened { runtime: 1, ..http2(1) });
    pool.announce_streams(now, id, 1);
    let held = pool.delivered().1;
    pool.wait(now, MANY, 1);
    let theirs = pool.permit();
    let wish = Wish {
        failed: Some(EarlierConn { number: 99, ip: None }),
        despite_drain: true,
        own_dial: true,
        ..Wish::default()
    };
    assert!(matches!(pool.checkout(now, &MANY, &wish, 2, || (2, LIMITS)), Acquired::Wait(..)));
    let ours = pool.permit();
    pool.dial_succeeded(now, theirs, Opened { runtime: 1, ..http2(2) });
    assert_eq!(pool.delivered().0, 1);
    pool.release(now, held, KEPT);
    assert!(pool.next_effect().is_none(), "it takes no connection of another runtime that is given back");
    pool.dial_succeeded(now, ours, Opened { runtime: 2, ..http2(3) });
    let (waiter, _, conn) = pool.delivered();
    assert_eq!((waiter, conn), (2, 3));
}

#[test]
fn a_resend_gets_a_new_connection_rather_than_an_idle_one() {
    for limit in [1, 2, usize::MAX] {
        let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(limit));
        let ids = pool.open_idle(now, 1, 1);
        assert!(matches!(pool.acquire(now, &1, Some(0), false, || 8), Acquired::Wait(..)));
        if limit == 1 {
            assert!(matches!(pool.next_effect(), Some(Effect::Close(_))), "it takes the only slot");
            pool.socket_closed(now, ids[0]);
        }
        let permit = pool.permit();
        pool.dial_succeeded(now, permit, http1(77));
        let (waiter, _, conn) = pool.delivered();
        assert_eq!((waiter, conn), (8, 77));
    }
}

#[test]
fn a_refused_request_takes_the_same_connection_if_there_will_be_no_other() {
    let (mut pool, now) = pool(PoolConfig::new().max_http2_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let _stream = pool.delivered();
    assert!(matches!(pool.acquire(now, &MANY, Some(id.serial), false, || 1), Acquired::Wait(..)));
    assert_eq!(pool.delivered().0, 1, "it does not wait for the other request to end");
}

#[test]
fn a_resend_has_its_own_time_to_wait() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(100)));
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(5));
    let (_, held, _) = pool.delivered();
    pool.wait(now, 1, 1);
    pool.wait(now + ms(10), 1, 2);
    assert!(matches!(pool.acquire(now + ms(90), &1, Some(9), false, || 3), Acquired::Wait(..)));
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.failed(), (1, WaitFailure::Timeout { .. })));
    pool.handle_timeout(now + ms(110));
    assert!(matches!(pool.failed(), (2, WaitFailure::Timeout { .. })), "the resend in front of it delays no timeout");
    assert!(pool.next_effect().is_none());
    assert_eq!(pool.next_timeout(), Some(now + ms(190)));
    pool.handle_timeout(now + ms(190));
    assert!(matches!(pool.failed(), (3, WaitFailure::Timeout(Expired { timeout, .. })) if timeout == ms(100)));
    pool.release(now + ms(200), held, KEPT);
}

#[test]
fn a_resend_goes_in_front_and_takes_a_new_connection() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2));
    for waiter in 0..4 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, Some(0), false, || 9), Acquired::Wait(..)));
    let (mut served, mut open, mut number) = (Vec::new(), HashMap::new(), 0);
    while let Some(effect) = pool.next_effect() {
        match effect {
            Effect::Dial(permit, ..) => {
                number += 1;
                open.insert(number, permit.id());
                pool.dial_succeeded(now, permit, http1(number));
            }
            Effect::Deliver { waiter, grant, .. } => {
                served.push((waiter, grant.requests));
                pool.release(now, grant.token, KEPT);
            }
            Effect::Close(conn) => drop(pool.socket_closed(now, open[&conn])),
            other => panic!("{other:?}"),
        }
    }
    served.sort_unstable();
    let resend = served.iter().find(|(waiter, _)| *waiter == 9);
    assert_eq!((served.len(), resend), (5, Some(&(9, 0))), "{served:?}");
}

#[test]
fn a_resend_takes_an_idle_connection_during_a_pause_the_server_asked_for() {
    for limit in [2, usize::MAX] {
        let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(limit).max_streams_per_connection(1));
        pool.wait(now, MANY, 0);
        pool.wait(now, MANY, 1);
        let (first, second) = (pool.permit(), pool.permit());
        let id = first.id();
        pool.dialed_http2(now, first, 1);
        pool.dialed_http2(now, second, 1);
        let (_, refused, _) = pool.delivered();
        let (_, kept, _) = pool.delivered();
        let failed_on = refused.connection();
        pool.release(now, kept, KEPT);
        pool.back_off(now, id, 1.0);
        pool.release(now, refused, LeaseEnd::Retire(CloseCause::Peer));
        let resend = pool.acquire(now, &MANY, Some(failed_on), true, || 2);
        assert!(matches!(resend, Acquired::Ready(_)), "{limit}: {resend:?}");
    }
}

#[test]
fn a_resend_waits_for_its_dial_rather_than_take_an_http2_connection_that_was_just_given_back() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 1);
    let held = pool.delivered().1;
    assert!(matches!(pool.acquire(now, &MANY, Some(99), true, || 1), Acquired::Wait(..)));
    let dial = pool.permit();
    pool.release(now, held, KEPT);
    assert!(pool.next_effect().is_none());
    pool.dial_postponed(now, dial, Limit::Descriptors);
    assert_eq!(pool.delivered().0, 1, "it has no dial to wait for");
}
