//! The ends of connections.

use super::*;

#[test]
fn a_slot_is_free_when_the_socket_is_closed_and_not_before() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, 1, 0);
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    let id = permit.id();
    pool.dial_succeeded(now, permit, http1(5));
    let (_, held, _) = pool.delivered();
    pool.release(now, held, BROKEN);
    assert_eq!(pool.closes(), 5);
    assert!(pool.next_effect().is_none(), "the socket is still open");
    pool.socket_closed(now, id);
    pool.permit();
}

#[test]
fn a_socket_that_closes_while_it_is_leased_was_closed_by_the_peer_unless_its_request_foresaw_it() {
    for (foreseen, cause) in [(None, CloseCause::Peer), (Some(CloseCause::Unfinished), CloseCause::Unfinished)] {
        let (mut pool, now) = pool(PoolConfig::new());
        let ids = pool.open_idle(now, 1, 1);
        let (held, _) = pool.ready(now, 1);
        if let Some(foreseen) = foreseen {
            pool.foresee_end(&held, foreseen);
        }
        assert_eq!(pool.socket_closed(now, ids[0]), cause);
        pool.release(now, held, BROKEN);
        assert_eq!(pool.counters().totals.closed[cause as usize], 1);
    }
}

#[test]
fn timers_do_not_outlive_their_hosts() {
    let (mut pool, now) = pool(PoolConfig::new());
    for host in 0..100 {
        let ids = pool.open_idle(now, host, 1);
        pool.socket_closed(now, ids[0]);
        while pool.next_effect().is_some() {}
    }
    assert_eq!((pool.hosts.slab.len(), pool.timers.len()), (0, 0));
}

#[test]
fn idle_connections_close_after_the_idle_timeout_oldest_first() {
    let (mut pool, now) = pool(PoolConfig::new().idle_timeout(ms(100)));
    pool.open_idle(now, 1, 2);
    let (held, conn) = pool.ready(now + ms(60), 1);
    pool.release(now + ms(60), held, KEPT);
    assert_eq!(pool.next_timeout(), Some(now + ms(100)));
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.next_effect(), Some(Effect::Close(other)) if other != conn));
    assert!(pool.next_effect().is_none());
    assert_eq!(pool.next_timeout(), Some(now + ms(160)));
    pool.handle_timeout(now + ms(160));
    assert!(matches!(pool.next_effect(), Some(Effect::Close(other)) if other == conn));
    assert_eq!((pool.next_timeout(), pool.counters().closing), (None, 2));
}

#[test]
fn idle_limits_close_the_longest_idle() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle_per_host(1).max_idle(2));
    pool.open_idle(now, 1, 2);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
    assert_eq!(pool.counters().idle, 1);
    pool.open_idle(now, 2, 1);
    pool.open_idle(now, 3, 1);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
    assert!(
        matches!(pool.acquire(now, &1, None, false, || 0), Acquired::Wait(..)),
        "host 1 was the least recently used"
    );
}

#[test]
fn an_idle_limit_of_zero_keeps_none() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle(0));
    pool.open_idle(now, 1, 1);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
    assert_eq!(pool.counters().idle, 0);
}

#[test]
fn under_an_idle_limit_of_zero_a_used_http1_connection_serves_no_waiting_request() {
    let of_host = PoolConfig::new().max_idle_per_host(0).max_connections_per_host(1);
    for config in [PoolConfig::new().max_idle(0).max_connections(1), of_host] {
        let (mut pool, now) = pool(config);
        pool.wait(now, 1, 0);
        pool.wait(now, 1, 1);
        let permit = pool.permit();
        let id = permit.id();
        pool.dial_succeeded(now, permit, http1(5));
        // It comes back unused first: the next request takes it.
        let (waiter, unused, conn) = pool.delivered();
        pool.release(now, unused, LeaseEnd::Unused);
        let (next, held, same) = pool.delivered();
        assert_eq!(((waiter, conn), (next, same)), ((0, 5), (1, 5)));
        pool.wait(now, 1, 2);
        pool.release(now, held, KEPT);
        assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
        pool.socket_closed(now, id);
        let permit = pool.permit();
        assert_eq!(pool.waiter_of(&permit), Some(&2));
    }
}

#[test]
fn under_an_idle_limit_of_zero_requests_that_wait_share_an_http2_connection() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle(0).max_streams_per_connection(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 9);
    let (_, held, _) = pool.delivered();
    pool.wait(now, MANY, 1);
    let _next = pool.permit();
    pool.release(now, held, KEPT);
    assert_eq!(pool.delivered().0, 1);
}

#[test]
fn an_idle_connection_that_closes_is_never_leased() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 1);
    pool.socket_closed(now, ids[0]);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
    pool.wait(now, 1, 7);
    pool.permit();
    pool.socket_closed(now, ids[0]);
    assert_eq!(pool.counters().slots, 1, "the id of the old connection is not that of the new one");
}

#[test]
fn an_unused_lease_keeps_no_older_connection_from_closing() {
    let (mut pool, now) = pool(PoolConfig::new().idle_timeout(ms(1_000)));
    pool.open_idle(now, 1, 2);
    let (held, _) = pool.ready(now, 1);
    pool.release(now + ms(800), held, KEPT);
    let (held, _) = pool.ready(now + ms(900), 1);
    pool.release(now + ms(900), held, LeaseEnd::Unused);
    pool.handle_timeout(now + ms(1_000));
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
}

#[test]
fn a_connection_that_closes_while_leased_frees_its_slot_at_once_and_is_not_kept() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.wait(now, 1, 3);
    pool.socket_closed(now, ids[0]);
    let permit = pool.permit();
    pool.release(now, held, KEPT);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
    pool.dial_succeeded(now, permit, http1(6));
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn a_connection_that_closed_before_its_dial_ended_is_not_kept() {
    let (mut pool, now) = pool(PoolConfig::new());
    let id = pool.wait(now, 1, 3);
    let permit = pool.permit();
    pool.abandon(now, id, AbandonCause::Cancelled);
    pool.socket_closed(now, permit.id());
    pool.dial_succeeded(now, permit, http1(6));
    assert!(matches!(pool.next_effect(), Some(Effect::Close(6))));
    assert_eq!((pool.counters().slots, pool.hosts.slab.len()), (0, 0));
}

#[test]
fn a_connection_that_the_peer_retires_finishes_its_requests() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 3);
    let (first, second) = (pool.delivered().1, pool.ready(now, MANY).0);
    pool.retire(now, id, CloseCause::PeerAnnounced);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(retired, CloseCause::PeerAnnounced)) if retired == id));
    pool.wait(now, MANY, 1);
    pool.permit();
    pool.release(now, first, KEPT);
    assert!(pool.next_effect().is_none(), "a request is left on it");
    pool.release(now, second, KEPT);
    assert_eq!(pool.closes(), 7);
    assert_eq!(pool.socket_closed(now, id), CloseCause::PeerAnnounced);
}

#[test]
fn a_connection_that_is_retired_by_its_number_closes_at_once_if_it_is_idle_and_else_after_its_request() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 2);
    let (held, conn) = pool.ready(now, 1);
    let busy = held.connection();
    let idle = ids.iter().find(|id| id.serial != busy).unwrap();
    pool.retire_number(now, idle.serial, CloseCause::Program);
    assert_ne!(pool.closes(), conn);
    assert_eq!(pool.socket_closed(now, *idle), CloseCause::Program);
    pool.retire_number(now, busy, CloseCause::Program);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(id, CloseCause::Program)) if id.serial == busy));
    assert!(pool.next_effect().is_none(), "its request goes on");
    pool.release(now, held, KEPT);
    assert_eq!(pool.closes(), conn);
    pool.retire_number(now, 1_000, CloseCause::Program);
    assert!(pool.next_effect().is_none(), "there is no such connection");
}

#[test]
fn a_connection_ends_with_its_lifetime_give_or_take_a_tenth() {
    let (mut pool, now) = pool(PoolConfig::new().lifetime(ms(1_000)));
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now + ms(899), 1);
    pool.release(now + ms(1_101), held, KEPT);
    pool.closes();
    assert_eq!(pool.counters().closing, 1, "it closes after the request it carries");
}

#[test]
fn a_connection_closes_after_the_most_requests_it_may_carry() {
    let (mut pool, now) = pool(PoolConfig::new().max_requests_per_connection(2));
    let ids = pool.open_idle(now, 1, 1);
    let (held, conn) = pool.ready(now, 1);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(_, CloseCause::RequestLimit))));
    pool.release(now, held, KEPT);
    assert_eq!(pool.closes(), conn);
    assert_eq!(pool.socket_closed(now, ids[0]), CloseCause::RequestLimit);
    assert_eq!(pool.counters().totals.closed[CloseCause::RequestLimit as usize], 1);
}

#[test]
fn the_servers_keep_alive_timeout_shortens_the_idle_timeout_of_its_connection() {
    for timeout in [1, 4_000, 60_000] {
        let (mut pool, now) = pool(PoolConfig::new());
        pool.open_idle(now, 1, 2);
        let (held, conn) = pool.ready(now, 1);
        pool.release(now, held, LeaseEnd::Kept { keep_alive: Some(ms(timeout)) });
        if timeout < 50_000 {
            pool.handle_timeout(now + ms(timeout));
            assert_eq!((pool.closes(), pool.has_effects()), (conn, false), "the other one is as it was");
        }
        pool.handle_timeout(now + ms(49_999));
        assert!(!pool.has_effects());
        pool.handle_timeout(now + ms(50_000));
        assert_eq!(pool.counters().idle, 0);
    }
}

#[test]
fn a_connection_that_the_server_does_not_keep_closes_alone() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 1);
    let (held, conn) = pool.ready(now, 1);
    pool.release(now, held, LeaseEnd::Kept { keep_alive: Some(Duration::ZERO) });
    assert_eq!((pool.closes(), conn), (conn, ids[0].serial));
    assert_eq!(pool.socket_closed(now, ids[0]), CloseCause::PeerAnnounced);
    pool.open_idle(now, 1, 1);
    for at in [0, 1_000, 40_000] {
        let (held, _) = pool.ready(now + ms(at), 1);
        pool.release(now + ms(at), held, KEPT);
    }
    assert!(!pool.has_effects(), "no other connection of the host is concerned");
}

#[test]
fn the_age_of_an_idle_connection_is_checked_when_it_is_asked_for() {
    let config = PoolConfig::new().idle_timeout(ms(500)).lifetime(Duration::from_secs(100));
    for (after, is_reused) in [(499, true), (500, false)] {
        for host in [1, MANY] {
            let (mut pool, now) = pool(config.clone());
            pool.wait(now, host, 0);
            let permit = pool.permit();
            if host == MANY {
                pool.dialed_http2(now, permit, 10);
            } else {
                pool.dial_succeeded(now, permit, http1(7));
            }
            let (_, held, _) = pool.delivered();
            pool.release(now, held, KEPT);
            // Nothing was handled meanwhile.
            let later = now + ms(after);
            let found = pool.acquire(later, &host, None, false, || 1);
            assert_eq!(matches!(found, Acquired::Ready(_)), is_reused, "{host} after {after} ms");
            if !is_reused {
                assert_eq!(pool.closes(), 7);
                pool.permit();
            }
        }
    }
}

#[test]
fn an_idle_connection_closes_at_the_end_of_its_lifetime() {
    let config = PoolConfig::new().idle_timeout(Duration::MAX).lifetime(Duration::from_secs(10));
    let (mut pool, now) = pool(config);
    let ids = pool.open_idle(now, 1, 2);
    let busy = pool.ready(now, 1).0;
    pool.handle_timeout(now + ms(8_999));
    let at = pool.next_timeout().expect("a lifetime ends");
    assert!(!pool.has_effects() && (ms(9_000)..=ms(11_000)).contains(&(at - now)));
    pool.handle_timeout(now + ms(11_000));
    let idle = ids.iter().find(|id| id.serial != busy.connection()).expect("there are two");
    assert_eq!((pool.closes(), pool.has_effects()), (idle.serial, false), "the busy one goes on");
    assert_eq!(pool.socket_closed(now, *idle), CloseCause::Lifetime);
    pool.release(now + ms(11_000), busy, KEPT);
    pool.closes();
    assert_eq!(pool.next_timeout(), None);
}

#[test]
fn the_age_at_which_the_server_closes_idle_connections_is_learned() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    for _ in 0..2 {
        let ids = pool.open_idle(now, 1, 1);
        now += ms(5_000);
        assert_eq!(pool.socket_closed(now, ids[0]), CloseCause::Peer);
        pool.closes();
    }
    assert!(pool.hosts.slab.is_empty(), "the host itself is forgotten");
    pool.open_idle(now, 1, 1);
    pool.handle_timeout(now + ms(1_000));
    assert_eq!(pool.next_timeout(), Some(now + ms(4_000)));
}

#[test]
fn what_lost_connections_have_shown_ends_by_itself_beside_what_closes_of_idle_ones_have() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    // The server closes idle connections after 15 s.
    for _ in 0..2 {
        let ids = pool.open_idle(now, 1, 1);
        now += ms(15_000);
        pool.socket_closed(now, ids[0]);
        pool.closes();
    }
    // For some time it closes connections under requests that come every 4 s.
    for _ in 0..2 {
        pool.open_idle(now, 1, 1);
        now += ms(4_000);
        let (held, _) = pool.ready(now, 1);
        let id = held.id;
        pool.release(now, held, LeaseEnd::Cut { idle: ms(4_000) });
        pool.socket_closed(now, id);
        pool.closes();
    }
    for (after, closes_at) in [(0, 3_200), (60_000, 14_000)] {
        let ids = pool.open_idle(now + ms(after), 1, 1);
        let end = now + ms(after + closes_at);
        pool.handle_timeout(end - ms(1));
        assert!(pool.conns.get(ids[0]).is_some_and(|conn| conn.end_cause.is_none()), "{closes_at} ms");
        pool.handle_timeout(end);
        pool.closes();
        pool.socket_closed(end, ids[0]);
    }
}

#[test]
fn an_unused_lease_leaves_the_connections_age_unchanged() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now + ms(10_000), 1);
    pool.release(now + ms(10_001), held, LeaseEnd::Unused);
    pool.handle_timeout(now + ms(50_000));
    assert_eq!(pool.counters().idle, 0);
}

#[test]
fn connections_to_a_moved_address_end() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
    let location = |last| Some(Location { name: "a.test".into(), ip: ip(last), port: 0 });
    for waiter in 0..2 {
        pool.wait(now, 1, waiter);
    }
    let (one, two) = (pool.permit(), pool.permit());
    let ids = [one.id(), two.id()];
    assert!(
        pool.dial_succeeded(now, one, Opened { location: location(1), ..http1(5) }),
        "no answer for its name is known"
    );
    pool.dial_succeeded(now, two, Opened { location: location(2), ..http1(6) });
    let (busy, idle) = (pool.delivered().1, pool.delivered().1);
    pool.release(now, idle, KEPT);
    let answer = |ips: &[u8], serial| Addresses {
        family: Family::V4,
        ips: ips.iter().map(|last| ip(*last)).collect(),
        sockets: None,
        ttl: ms(2_000),
        is_sure: false,
        serial: Some(serial),
    };
    pool.dns_answered(now, "a.test", &answer(&[1, 2], 1), true);
    pool.dns_answered(now + ms(2_000), "a.test", &answer(&[3], 2), true);
    pool.handle_timeout(now + ms(2_000));
    assert_eq!(pool.next_timeout(), Some(now + ms(4_500)));
    pool.handle_timeout(now + ms(4_500));
    assert!(
        matches!(pool.next_effect(), Some(Effect::AskDns(name)) if *name == *"a.test"),
        "the answer has to be confirmed"
    );
    pool.dns_answered(now + ms(4_500), "a.test", &answer(&[3], 2), true);
    let mut ended = Vec::new();
    while let Some(effect) = pool.next_effect() {
        match effect {
            Effect::Retired(id, CloseCause::AddressMoved) => ended.push(id),
            Effect::Close(conn) => assert_eq!(conn, 6, "the idle one"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ended, [ids[0]]);
    pool.release(now + ms(5_000), busy, KEPT);
    assert_eq!(pool.closes(), 5);
    assert_eq!(ids.map(|id| pool.socket_closed(now, id)), [CloseCause::AddressMoved; 2]);
    assert!(pool.names().is_empty() && pool.hosts.slab.is_empty());
}
