//! The limit on all connections, and the turns of hosts under it.

use super::*;
use crate::pool::state::dials::GRACE;

#[test]
fn a_busy_host_yields_to_one_whose_requests_came_first() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    pool.open_idle(now, 1, 2);
    let (first, a) = pool.ready(now, 1);
    let (second, _) = pool.ready(now, 1);
    pool.wait(now, 2, 20);
    for waiter in 10..13 {
        pool.wait(now, 1, waiter);
    }
    pool.release(now, first, KEPT);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(conn)) if conn == a), "the request to host 2 came first");
    pool.release(now, second, KEPT);
    assert_eq!(pool.delivered().0, 10, "host 2 needs only one slot");
}

#[test]
fn only_as_many_idle_connections_close_as_requests_are_kept_out() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(10));
    pool.open_idle(now, 1, 10);
    let held: Vec<_> = (0..10).map(|_| pool.ready(now, 1).0).collect();
    pool.wait(now, 2, 20);
    for held in held {
        pool.release(now, held, KEPT);
    }
    assert_eq!((pool.counters().closing, pool.counters().idle), (1, 9));
}

#[test]
fn another_hosts_idle_connection_makes_room_under_the_total() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    let ids = pool.open_idle(now, 1, 2);
    pool.wait(now, 2, 7);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(conn)) if conn == ids[0].serial));
    assert!(pool.next_effect().is_none());
    pool.socket_closed(now, ids[0]);
    pool.permit();
}

#[test]
fn hosts_take_turns_under_the_total() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    for waiter in 10..12 {
        pool.wait(now, 2, waiter);
    }
    let mut served = Vec::new();
    while let Some(effect) = pool.next_effect() {
        match effect {
            Effect::Dial(permit, ..) => {
                let id = permit.id();
                pool.dial_succeeded(now, permit, http1(id.serial));
                let (waiter, held, _) = pool.delivered();
                served.push(waiter);
                pool.release(now, held, BROKEN);
                assert_eq!(pool.closes(), id.serial);
                pool.socket_closed(now, id);
            }
            other => panic!("expected a dial: {other:?}"),
        }
    }
    // Request 1 waited before the first request to host 2 came.
    assert_eq!(served, [0, 1, 10, 2, 11]);
}

#[test]
fn a_host_with_a_long_queue_and_all_the_connections_lets_others_have_their_share() {
    let (mut pool, mut now) = pool(PoolConfig::new().max_connections(4).wait_timeout(ms(100_000)));
    let mut held = Vec::new();
    for waiter in 0..100 {
        pool.wait(now, 1, waiter);
    }
    for waiter in 1_000..1_100 {
        pool.wait(now, 2, waiter);
    }
    let (mut served, mut dials, mut open) = ([0; 2], 0, HashMap::new());
    for _ in 0..60 {
        while let Some(effect) = pool.next_effect() {
            match effect {
                Effect::Dial(permit, ..) => {
                    dials += 1;
                    open.insert(permit.id().serial, permit.id());
                    let opened = http1(permit.id().serial);
                    pool.dial_succeeded(now, permit, opened);
                }
                Effect::Deliver { waiter, grant, .. } => {
                    served[usize::from(waiter >= 1_000)] += 1;
                    held.push(grant.token);
                }
                Effect::Close(conn) => drop(pool.socket_closed(now, open[&conn])),
                other => panic!("{other:?}"),
            }
        }
        now += ms(1_000);
        pool.release(now, held.remove(0), KEPT);
    }
    assert!(served[1] >= 25, "half of the requests, after the first ones: {served:?}");
    assert!(dials <= 8, "connections are reused: {dials}");
}

#[test]
fn a_host_that_comes_last_has_its_turn_beside_two_with_endless_requests() {
    let (mut pool, mut now) = pool(PoolConfig::new().max_connections(2));
    for host in [1, 2] {
        for waiter in 0..1_000 {
            pool.wait(now, host, waiter);
        }
    }
    pool.wait(now, 3, 10_000);
    let (mut held, mut open) = (VecDeque::new(), HashMap::new());
    for _ in 0..20 {
        while let Some(effect) = pool.next_effect() {
            match effect {
                Effect::Dial(permit, ..) => {
                    open.insert(permit.id().serial, permit.id());
                    let opened = http1(permit.id().serial);
                    pool.dial_succeeded(now, permit, opened);
                }
                Effect::Deliver { waiter: 10_000, .. } => return,
                Effect::Deliver { grant, .. } => held.push_back(grant.token),
                Effect::Close(conn) => drop(pool.socket_closed(now, open[&conn])),
                other => panic!("{other:?}"),
            }
        }
        now += ms(50);
        pool.release(now, held.pop_front().unwrap(), KEPT);
    }
    panic!("host 3 never has its turn");
}

#[test]
fn a_host_without_any_connection_waits_for_a_turns_length_at_most() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    for waiter in 0..100 {
        pool.wait(now, 1, waiter);
    }
    pool.wait(now, 2, 1_000);
    pool.release(now + ms(99), held, KEPT);
    let (_, held, _) = pool.delivered();
    pool.release(now + ms(100), held, KEPT);
    assert_eq!(pool.closes(), ids[0].serial);
    pool.socket_closed(now + ms(100), ids[0]);
    assert!(matches!(pool.next_effect(), Some(Effect::Dial(_, 2, _))));
}

#[test]
fn a_busy_http2_connection_makes_room_too() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (first, second) = (pool.delivered().1, pool.ready(now, MANY).0);
    pool.wait(now, 1, 10);
    pool.release(now, first, KEPT);
    // It stays, and its host's requests wait for a moment for it to become idle.
    pool.wait(now, MANY, 1);
    assert!(!pool.has_effects());
    pool.release(now, second, KEPT);
    assert_eq!(pool.closes(), 7);
    pool.socket_closed(now, id);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(8));
    assert_eq!(pool.delivered().0, 10);
}

#[test]
fn a_connection_with_a_long_stream_makes_room_for_nobody_and_goes_on_serving_its_host() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 100);
    let (_long, short) = (pool.delivered().1, pool.ready(now, MANY).0);
    pool.wait(now, 1, 10);
    pool.release(now, short, KEPT);
    pool.wait(now, MANY, 1);
    pool.handle_timeout(now + GRACE);
    let (waiter, lease, _) = pool.delivered();
    assert_eq!(waiter, 1, "it has waited for long enough");
    pool.release(now + GRACE, lease, KEPT);
    let later = now + Duration::from_secs(1);
    let (lease, _) = pool.ready(later, MANY);
    pool.release(later, lease, KEPT);
    assert!(!pool.has_effects(), "the other host waits for its turn");
}

#[test]
fn a_host_whose_turn_is_next_yields_like_any_other() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    pool.open_idle(now, 1, 1);
    let (mut held, _) = pool.ready(now, 1);
    pool.wait(now, 1, 0);
    pool.wait(now, 2, 20);
    for waiter in 1..10 {
        pool.wait(now, 1, waiter);
        pool.release(now, held, KEPT);
        held = match pool.next_effect() {
            Some(Effect::Deliver { grant, .. }) => grant.token,
            Some(Effect::Close(_)) => return assert_eq!(waiter, 2, "after the request that came before"),
            other => panic!("{other:?}"),
        };
    }
    panic!("host 2 never has its turn");
}

#[test]
fn a_connection_that_retires_slowly_delays_no_turn() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    let ids = pool.open_idle(now, 1, 2);
    let (held, _) = pool.ready(now, 1);
    let (_download, _) = pool.ready(now, 1);
    pool.retire(now, ids[0], CloseCause::PeerAnnounced);
    pool.next_effect();
    pool.wait(now, 2, 20);
    pool.wait(now, 1, 10);
    pool.release(now, held, KEPT);
    pool.closes();
}

#[test]
fn the_slot_of_a_busy_connection_that_makes_room_goes_to_the_host_it_made_room_for() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (first, second) = (pool.delivered().1, pool.ready(now, MANY).0);
    // More hosts than are examined: the list would move on if none of them had its turn.
    for host in 1..20 {
        pool.wait(now, host, host.into());
    }
    pool.release(now, first, KEPT);
    pool.release(now, second, KEPT);
    assert_eq!(pool.closes(), 7);
    pool.socket_closed(now, id);
    assert!(matches!(pool.next_effect(), Some(Effect::Dial(_, 1, _))));
}
