//! Connections and limits that are replaced while the pool is in use.

use std::sync::{Arc, Mutex};

use super::*;

/// A pool whose limits can be replaced by [`replace`].
fn adjustable(config: PoolConfig) -> (Pool, Arc<Mutex<PoolConfig>>, Instant) {
    let shared = Arc::new(Mutex::new(config.clone()));
    let of_hosts = shared.clone();
    let profile = move |host: &u8| Profile {
        limits: of_hosts.lock().unwrap().limits_for("", 0),
        speaks: if *host < MANY { Speaks::Http1 } else { Speaks::Http2 },
        balanced: None,
    };
    (State::new(&config, profile), shared, crate::clock::now())
}

fn replace(pool: &mut Pool, shared: &Mutex<PoolConfig>, now: Instant, config: PoolConfig) {
    *shared.lock().unwrap() = config.clone();
    pool.set_config(now, &config);
}

#[test]
fn idle_connections_of_a_reconfigured_host_close_and_those_of_others_stay() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 2);
    pool.open_idle(now, 2, 1);
    pool.renew(now, |host| *host == 1);
    let mut closed = [pool.closes(), pool.closes()];
    closed.sort_unstable();
    assert_eq!(closed.to_vec(), ids.iter().map(|id| id.serial).collect::<Vec<_>>());
    assert_eq!(pool.socket_closed(now, ids[0]), CloseCause::Reconfigured);
    assert!(pool.next_effect().is_none());
    pool.ready(now, 2);
    pool.wait(now, 1, 9);
    pool.permit();
}

#[test]
fn a_busy_connection_of_a_reconfigured_host_closes_after_its_request() {
    let (mut pool, now) = pool(PoolConfig::new());
    let id = pool.open_idle(now, 1, 1)[0];
    let (held, conn) = pool.ready(now, 1);
    pool.renew(now, |_| true);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(retired, CloseCause::Reconfigured)) if retired == id));
    pool.wait(now, 1, 1);
    pool.permit();
    pool.release(now, held, KEPT);
    assert_eq!(pool.closes(), conn);
}

#[test]
fn a_shared_connection_without_room_for_another_one_takes_no_more_requests() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 10);
    let (_, held, _) = pool.delivered();
    pool.renew(now, |_| true);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(..))));
    assert_eq!(pool.limit(now, MANY, 1), Limit::ConnectionsPerHost);
    pool.release(now, held, KEPT);
    pool.closes();
    pool.socket_closed(now, id);
    pool.permit();
}

#[test]
fn a_dial_that_began_before_serves_its_request_and_no_other() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.renew(now, |_| true);
    let second = pool.permit();
    pool.dial_succeeded(now, permit, http1(7));
    let (waiter, held, _) = pool.delivered();
    assert_eq!(waiter, 0);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(retired, CloseCause::Reconfigured)) if retired == id));
    assert!(
        matches!(pool.next_effect(), Some(Effect::AbortDial(id)) if id == second.id()),
        "it is not needed any more"
    );
    pool.release(now, held, KEPT);
    assert_eq!(pool.closes(), 7);
}

#[test]
fn a_dial_that_began_before_and_serves_no_request_closes() {
    let (mut pool, now) = pool(PoolConfig::new());
    let waiter = pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.abandon(now, waiter, AbandonCause::Cancelled);
    pool.renew(now, |_| true);
    pool.dial_succeeded(now, permit, http1(7));
    assert_eq!(pool.closes(), 7);
}

#[test]
fn a_dial_that_began_before_serves_no_request_that_came_after() {
    let (mut pool, now) = pool(PoolConfig::new());
    let left = pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.abandon(now, left, AbandonCause::Cancelled);
    pool.renew(now, |_| true);
    for waiter in [1, 2, 3, 4, 5] {
        pool.wait(now, 1, waiter);
    }
    let others: Vec<_> = (0..5).map(|_| pool.permit()).collect();
    assert!(pool.next_effect().is_none());
    pool.dial_succeeded(now, permit, http1(7));
    assert_eq!(pool.closes(), 7);
    for permit in others {
        pool.dial_succeeded(now, permit, http1(8));
        pool.delivered();
    }
    assert!(pool.next_effect().is_none());
}

#[test]
fn a_request_that_claimed_a_dial_from_before_gets_another_one() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let left = pool.wait(now, 1, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.abandon(now, left, AbandonCause::Cancelled);
    pool.renew(now, |_| true);
    pool.wait(now, 1, 1);
    assert!(pool.next_effect().is_none(), "there is no room for another dial");
    pool.dial_succeeded(now, permit, http1(7));
    assert_eq!(pool.closes(), 7);
    pool.socket_closed(now, id);
    let permit = pool.permit();
    pool.dial_succeeded(now, permit, http1(8));
    assert_eq!(pool.delivered().0, 1);
}

#[test]
fn a_request_that_claimed_a_dial_from_before_does_not_fail_with_it() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let left = pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.abandon(now, left, AbandonCause::Cancelled);
    pool.renew(now, |_| true);
    pool.wait(now, 1, 1);
    assert_eq!(pool.dial_failed(now, permit, "old settings"), Some("old settings"));
    let permit = pool.permit();
    pool.dial_failed(now, permit, "new settings");
    assert!(matches!(pool.failed(), (1, WaitFailure::Dial("new settings"))));
}

#[test]
fn limits_can_be_replaced_while_more_hosts_are_to_be_kept_warm_than_may_be() {
    let config = || PoolConfig::new().min_idle_per_host(1);
    let shared = Arc::new(Mutex::new(config()));
    let of_hosts = shared.clone();
    let profile = move |_: &u8| Profile {
        limits: of_hosts.lock().unwrap().limits_for("", 0),
        speaks: Speaks::Http1,
        balanced: None,
    };
    let (mut pool, now): (Pool, _) = (State::new(&config(), profile), crate::clock::now());
    for host in 0..=255 {
        for id in pool.open_idle(now, host, 1) {
            pool.socket_closed(now, id);
        }
        while pool.next_effect().is_some() {}
    }
    replace(&mut pool, &shared, now, config().max_connections(9));
    assert!(pool.host_counters().count() <= 256);
}

#[test]
fn higher_limits_let_requests_dial_that_wait() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new().max_connections(1).max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    pool.permit();
    assert!(pool.next_effect().is_none());
    replace(&mut pool, &shared, now, PoolConfig::new().max_connections(2).max_connections_per_host(3));
    pool.permit();
    assert!(pool.next_effect().is_none(), "the total allows two");
}

#[test]
fn connections_beyond_lower_limits_close_when_they_are_idle() {
    for config in [PoolConfig::new().max_connections(2), PoolConfig::new().max_connections_per_host(2)] {
        let (mut pool, shared, now) = adjustable(PoolConfig::new());
        pool.open_idle(now, 1, 4);
        let held = [pool.ready(now, 1).0, pool.ready(now, 1).0, pool.ready(now, 1).0];
        replace(&mut pool, &shared, now, config);
        pool.closes();
        assert!(pool.next_effect().is_none());
        let [first, second, third] = held;
        pool.release(now, first, KEPT);
        pool.closes();
        pool.release(now, second, KEPT);
        pool.release(now, third, KEPT);
        assert!(pool.next_effect().is_none());
        assert_eq!(pool.counters().idle, 2);
    }
}

#[test]
fn lower_limits_of_idle_connections_and_of_their_time_hold_at_once() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new());
    pool.open_idle(now, 1, 4);
    replace(&mut pool, &shared, now, PoolConfig::new().max_idle(3).max_idle_per_host(2));
    pool.closes();
    pool.closes();
    assert!(pool.next_effect().is_none());
    replace(&mut pool, &shared, now, PoolConfig::new().idle_timeout(ms(5)));
    assert_eq!(pool.next_timeout(), Some(now + ms(5)));
    pool.handle_timeout(now + ms(5));
    pool.closes();
    pool.closes();
}

#[test]
fn idle_connections_are_kept_by_a_new_number_and_no_longer_by_none() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 1);
    replace(&mut pool, &shared, now, PoolConfig::new().min_idle_per_host(2));
    pool.handle_timeout(now);
    let permit = pool.permit();
    assert!(pool.next_effect().is_none());
    let other = permit.id();
    pool.dial_succeeded(now, permit, http1(8));
    pool.renew(now, |_| true);
    pool.closes();
    pool.closes();
    pool.handle_timeout(now);
    let permits = [pool.permit(), pool.permit()];
    assert!(pool.next_effect().is_none(), "one dial for each that has gone");
    for id in [ids[0], other] {
        pool.socket_closed(now, id);
    }
    replace(&mut pool, &shared, now, PoolConfig::new());
    for permit in permits {
        let id = permit.id();
        pool.dial_succeeded(now, permit, http1(9));
        pool.socket_closed(now, id);
    }
    pool.handle_timeout(now + ms(3_600_000));
    assert!(!std::iter::from_fn(|| pool.next_effect()).any(|effect| matches!(effect, Effect::Dial(..))));
    assert_eq!(pool.host_counters().count(), 0);
}

#[test]
fn a_shorter_wait_in_the_queue_holds_for_requests_that_wait() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, 1, 0);
    pool.wait(now, 1, 1);
    pool.permit();
    replace(&mut pool, &shared, now, PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(7)));
    pool.handle_timeout(now + ms(7));
    assert!(matches!(pool.failed(), (1, WaitFailure::Timeout { .. })));
}

/// A pool with a dial in flight that request 1 has just claimed, after all other events.
fn with_a_claimed_dial() -> (Pool, Permit, Instant) {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let left = pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.abandon(now, left, AbandonCause::Cancelled);
    pool.wait(now, 1, 1);
    (pool, permit, now)
}

#[test]
fn the_last_request_before_the_settings_changed_is_served_by_an_older_dial_and_does_not_fail_with_it() {
    let (mut pool, permit, now) = with_a_claimed_dial();
    pool.renew(now, |_| true);
    pool.dial_succeeded(now, permit, http1(7));
    let (waiter, _, conn) = pool.delivered();
    assert_eq!((waiter, conn), (1, 7));

    let (mut pool, permit, now) = with_a_claimed_dial();
    pool.renew(now, |_| true);
    assert_eq!(pool.dial_failed(now, permit, "old settings"), Some("old settings"));
    pool.permit();
    assert!(pool.next_effect().is_none());
}

#[test]
fn as_many_idle_connections_of_all_hosts_close_as_are_too_many() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new());
    pool.open_idle(now, 1, 2);
    pool.open_idle(now, 2, 2);
    replace(&mut pool, &shared, now, PoolConfig::new().max_idle(3));
    assert_eq!(pool.counters().idle, 3);
    replace(&mut pool, &shared, now, PoolConfig::new().max_idle(3));
    assert_eq!(pool.counters().idle, 3);
    replace(&mut pool, &shared, now, PoolConfig::new().max_idle(1));
    assert_eq!(pool.counters().idle, 1);
}

#[test]
fn a_connection_that_closes_after_its_request_does_not_count_against_a_lower_total() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new());
    pool.open_idle(now, 1, 4);
    let (token, _) = pool.ready(now, 1);
    pool.retire(now, token.id, CloseCause::PeerAnnounced);
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(..))));
    replace(&mut pool, &shared, now, PoolConfig::new().max_connections(3));
    assert!(pool.next_effect().is_none());
    replace(&mut pool, &shared, now, PoolConfig::new().max_connections(2));
    pool.closes();
    assert!(pool.next_effect().is_none());
}

#[test]
fn a_host_is_kept_warm_by_a_new_number_from_its_first_open_connection_on() {
    let kept = |count| PoolConfig::new().min_idle_per_host(count);
    let (mut pool, shared, now) = adjustable(PoolConfig::new());
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    replace(&mut pool, &shared, now, kept(1));
    assert_eq!(pool.warm_hosts.len(), 0, "no connection is open yet");
    pool.dial_succeeded(now, permit, http1(7));
    for (count, warm) in [(2, 1), (0, 0), (1, 1), (3, 1), (0, 0)] {
        replace(&mut pool, &shared, now, kept(count));
        assert_eq!(pool.warm_hosts.len(), warm, "{count}");
    }
}

#[test]
fn the_limits_of_all_idle_connections_and_waiting_requests_can_be_lowered() {
    let (mut pool, shared, now) = adjustable(PoolConfig::new().max_connections_per_host(3));
    pool.open_idle(now, 1, 3);
    replace(&mut pool, &shared, now, PoolConfig::new().max_connections_per_host(3).max_idle(1).max_waiting(1));
    pool.closes();
    pool.closes();
    assert!(pool.next_effect().is_none());
    for waiter in 0..4 {
        pool.wait(now, 2, waiter);
    }
    assert!(matches!(pool.acquire(now, &2, None, false, || 9), Acquired::Refused(Limit::ConnectionsPerHost)));
}
