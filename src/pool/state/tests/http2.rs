//! HTTP/2 connections: streams, announcements, limits.

use super::*;

#[test]
fn a_host_without_connections_is_dialled_as_its_last_ones_have_shown() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, UNKNOWN, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 10);
    let (_, held, _) = pool.delivered();
    pool.release(now, held, BROKEN);
    pool.closes();
    pool.socket_closed(now, id);
    assert_eq!(pool.host_counters().count(), 0, "its record is gone");
    for waiter in 0..25 {
        pool.wait(now, UNKNOWN, waiter);
    }
    let dials = std::iter::from_fn(|| pool.next_effect()).count();
    assert_eq!(dials, 3, "ten requests on each connection");
}

#[test]
fn what_was_known_in_another_process_is_used_and_corrected() {
    let (mut pool, now) = pool(PoolConfig::new());
    let known = KnownServer { speaks: Speaks::Http2, streams: 10, idle_limit: None };
    pool.restore_server(now, &UNKNOWN, known, ms(9));
    for waiter in 0..25 {
        pool.wait(now, UNKNOWN, waiter);
    }
    let permits: Vec<_> = (0..3).map(|_| pool.permit()).collect();
    assert!(pool.next_effect().is_none());
    let first = permits.into_iter().next().unwrap();
    pool.dial_succeeded(now, first, http1(7));
    pool.delivered();
    let dials = std::iter::from_fn(|| pool.next_effect()).count();
    assert!(dials > 10, "it speaks HTTP/1.1 by now: {dials} more dials");
    assert_eq!(pool.known_servers(now)[0].1.speaks, Speaks::Http1);
}

#[test]
fn requests_share_a_connection_that_has_free_streams() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..5 {
        pool.wait(now, MANY, waiter);
    }
    let permit = pool.permit();
    assert!(pool.next_effect().is_none(), "one connection is enough");
    pool.dialed_http2(now, permit, 100);
    for expected in 0..5 {
        let (waiter, _, conn) = pool.delivered();
        assert_eq!((waiter, conn), (expected, 7));
    }
    assert_eq!(pool.ready(now, MANY).1, 7);
    assert_eq!((pool.counters().leased, pool.counters().busy, pool.counters().slots), (6, 1, 1));
}

#[test]
fn the_lower_of_the_peers_and_the_configured_limit_of_streams_counts() {
    for (ours, theirs, streams) in [(100, 2, 2), (3, 100, 3), (100, usize::MAX, 100), (1, 1, 1)] {
        let config = PoolConfig::new().max_streams_per_connection(ours).max_http2_connections_per_host(1);
        let (mut pool, now) = pool(config);
        for waiter in 0..200 {
            pool.wait(now, MANY, waiter);
        }
        let permit = pool.permit();
        let id = permit.id();
        pool.dialed_http2(now, permit, 1);
        pool.announce_streams(now, id, theirs);
        assert_eq!(pool.counters().leased, streams);
        assert_eq!(pool.limit(now, MANY, 999), Limit::Streams);
    }
}

#[test]
fn another_connection_is_dialled_when_all_streams_are_taken_up_to_the_limit() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(10));
    for waiter in 0..500 {
        pool.wait(now, MANY, waiter);
    }
    let permits: Vec<_> = (0..4).map(|_| pool.permit()).collect();
    assert!(pool.next_effect().is_none());
    for permit in permits {
        pool.dialed_http2(now, permit, 10);
    }
    assert_eq!((pool.counters().leased, pool.counters().slots, pool.counters().waiting), (40, 4, 460));
}

#[test]
fn before_the_peer_announces_its_streams_a_connection_gets_one_request_and_no_other_is_dialled() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..3 {
        pool.wait(now, MANY, waiter);
    }
    let permit = pool.permit();
    let id = permit.id();
    pool.dial_succeeded(now, permit, http2(7));
    assert_eq!(pool.delivered().0, 0);
    pool.wait(now, MANY, 3);
    assert!(pool.next_effect().is_none());
    pool.announce_streams(now, id, 1);
    pool.permit();
    assert_eq!(pool.counters().dialling, 3, "one stream is not enough");
}

#[test]
fn fewer_streams_leave_the_requests_in_progress_alone() {
    let (mut pool, now) = pool(PoolConfig::new().max_http2_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 3);
    let mut held = vec![pool.delivered().1, pool.ready(now, MANY).0, pool.ready(now, MANY).0];
    pool.announce_streams(now, id, 1);
    pool.wait(now, MANY, 4);
    for _ in 0..2 {
        pool.release(now, held.pop().unwrap(), KEPT);
        assert!(pool.next_effect().is_none(), "a request is still in progress");
    }
    pool.release(now, held.pop().unwrap(), KEPT);
    assert_eq!(pool.delivered().0, 4);
    pool.announce_streams(now, id, 0);
    pool.wait(now, MANY, 5);
    assert!(pool.next_effect().is_none());
    pool.announce_streams(now, id, 2);
    assert_eq!(pool.delivered().0, 5);
}

#[test]
fn announcements_before_the_dial_has_ended_count() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..10 {
        pool.wait(now, MANY, waiter);
    }
    let permit = pool.permit();
    pool.announce_streams(now, permit.id(), 100);
    pool.dial_succeeded(now, permit, http2(5));
    assert_eq!(pool.counters().leased, 10);

    for (streams, leased) in [(Some(0), 1), (None, 1)] {
        let (mut pool, now) = self::pool(PoolConfig::new().max_http2_connections_per_host(1));
        pool.wait(now, MANY, 0);
        pool.wait(now, MANY, 1);
        let permit = pool.permit();
        match streams {
            Some(streams) => pool.announce_streams(now, permit.id(), streams),
            None => pool.retire(now, permit.id(), CloseCause::PeerAnnounced),
        }
        pool.dial_succeeded(now, permit, http2(5));
        assert_eq!(pool.counters().leased, leased, "it is delivered to the request it was dialled for");
        assert!(matches!(pool.acquire(now, &MANY, None, false, || 9), Acquired::Wait(..)));
    }
}

#[test]
fn connections_beyond_the_http2_limit_close_when_they_are_idle() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..10 {
        pool.wait(now, UNKNOWN, waiter);
    }
    for second in 1..5 {
        pool.handle_timeout(now + ms(second * 1_000));
    }
    let mut held = Vec::new();
    while let Some(effect) = pool.next_effect() {
        match effect {
            Effect::Dial(permit, ..) => drop(pool.dial_succeeded(now, permit, http2(7))),
            Effect::Deliver { grant, .. } => held.push(grant.token),
            _ => {}
        }
    }
    assert_eq!((held.len(), pool.counters().busy), (10, 10));
    for held in held {
        pool.release(now, held, KEPT);
    }
    assert_eq!(pool.counters().idle, 4);
}

#[test]
fn a_shared_connection_that_is_due_serves_until_there_is_room_for_another_one() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).lifetime(ms(1_000)));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (_, long, _) = pool.delivered();
    let (slow, _) = pool.ready(now, MANY);
    pool.release(now, slow, BROKEN);
    let later = now + ms(2_000);
    let (next, conn) = pool.ready(later, MANY);
    assert_eq!(conn, 7, "although a request on it failed, and its lifetime is over");
    pool.release(later, next, KEPT);
    assert!(pool.next_effect().is_none());
    pool.release(later, long, KEPT);
    assert_eq!(pool.closes(), 7, "its last request is over");
    pool.wait(later, MANY, 1);
    assert_eq!(pool.socket_closed(later, id), CloseCause::Unfinished);
    pool.permit();
}

#[test]
fn a_connection_that_is_due_retires_as_soon_as_there_is_room() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    let others = pool.open_idle(now, 1, 1);
    let (_busy, _) = pool.ready(now, 1);
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (_, _long, _) = pool.delivered();
    let (slow, _) = pool.ready(now, MANY);
    pool.release(now, slow, BROKEN);
    assert!(pool.next_effect().is_none(), "the other host's connection takes the other slot");
    pool.socket_closed(now, others[0]);
    pool.wait(now, MANY, 1);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(due, CloseCause::Unfinished)) if due == id));
    pool.permit();
}

#[test]
fn a_connection_that_its_peer_retires_takes_no_more_requests_even_without_room_for_another() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 100);
    let (_, _long, _) = pool.delivered();
    let (refused, _) = pool.ready(now, MANY);
    pool.release(now, refused, LeaseEnd::Retire(CloseCause::Peer));
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(_, CloseCause::Peer))));
    assert_eq!(pool.limit(now, MANY, 1), Limit::ConnectionsPerHost);
}

#[test]
fn a_connection_that_is_due_retires_where_an_idle_one_can_make_room() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2).lifetime(ms(1_000)));
    let others = pool.open_idle(now, 1, 1);
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (_, _long, _) = pool.delivered();
    let later = now + ms(2_000);
    pool.wait(later, MANY, 1);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(due, CloseCause::Lifetime)) if due == id));
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))), "the other host's connection makes room");
    pool.socket_closed(later, others[0]);
    pool.permit();
}

#[test]
fn http1_connections_do_not_count_as_http2_connections() {
    let (mut pool, now) = pool(PoolConfig::new());
    // The servers of one host differ: long requests hold five HTTP/1 connections, and a sixth connection speaks HTTP/2.
    for waiter in 0..5 {
        pool.wait(now, UNKNOWN, waiter);
        let permit = pool.permit();
        pool.dial_succeeded(now, permit, http1(u64::from(waiter)));
        pool.delivered();
    }
    pool.wait(now, UNKNOWN, 5);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (_, held, _) = pool.delivered();
    pool.release(now, held, KEPT);
    assert!(pool.next_effect().is_none(), "the only HTTP/2 connection is kept");
    pool.socket_closed(now, id);
    assert_eq!(pool.closes(), 7);
    pool.wait(now, UNKNOWN, 6);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(9));
    assert_eq!(pool.delivered().0, 6);
}

#[test]
fn a_server_that_allows_no_request_gets_three_connections() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut last = None;
    for attempt in 0..3 {
        let failed = last.map(|id: ConnId| id.serial);
        assert!(matches!(pool.acquire(now, &MANY, failed, false, || attempt), Acquired::Wait(..)));
        let permit = pool.permit();
        let id = permit.id();
        pool.dial_succeeded(now, permit, http2(id.serial));
        let (_, held, _) = pool.delivered();
        pool.announce_streams(now, id, 0);
        pool.release(now, held, KEPT);
        last = Some(id);
    }
    let id = last.unwrap();
    assert!(matches!(
        pool.acquire(now, &MANY, Some(99), false, || 3),
        Acquired::Wait(_, Queued { limit: Limit::Streams, .. })
    ));
    assert!(pool.next_effect().is_none(), "no fourth one, and none makes room for it");
    pool.announce_streams(now, id, 1);
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn one_connection_that_takes_no_requests_says_nothing_of_the_others() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(10).max_http2_connections_per_host(6));
    for waiter in 0..60 {
        pool.wait(now, MANY, waiter);
    }
    let permits: Vec<_> = (0..6).map(|_| pool.permit()).collect();
    let ids: Vec<_> = permits.iter().map(Permit::id).collect();
    for permit in permits {
        pool.dialed_http2(now, permit, 10);
    }
    let held: Vec<_> = (0..60).map(|_| pool.delivered().1).collect();
    pool.announce_streams(now, ids[0], 0);
    assert_eq!(pool.limit(now, MANY, 99), Limit::Streams);
    for token in held {
        pool.release(now, token, KEPT);
    }
    while let Some(effect) = pool.next_effect() {
        assert!(!matches!(effect, Effect::Close(_)), "{effect:?}");
    }
    pool.retire(now, ids[0], CloseCause::PeerAnnounced);
    pool.socket_closed(now, ids[0]);
    for waiter in 100..160 {
        pool.acquire(now, &MANY, None, false, || waiter);
    }
    let dials = std::iter::from_fn(|| pool.next_effect()).filter(|effect| matches!(effect, Effect::Dial(..)));
    assert_eq!(dials.count(), 1, "it is replaced");
}
