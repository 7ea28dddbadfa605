//! Hosts that are kept warm, step by step: what each event changes, and what each look finds and does.

use super::*;
use crate::pool::state::values::conn::Ahead;

/// The index of the only host.
const ONLY: usize = 0;
/// A time at which each connection that was opened at the start and not used since is about to reach the idle timeout of 50 s.
const AGEING: Duration = Duration::from_secs(46);

/// A pool that keeps `count` connections to host 1, which has as many: they are idle, and a look has found them so.
fn kept(config: PoolConfig, count: u64) -> (Pool, Vec<ConnId>, Instant) {
    let (mut pool, now) = pool(config.min_idle_per_host(count as usize));
    let ids = pool.open_idle(now, 1, count);
    pool.handle_timeout(now);
    assert!(pool.next_effect().is_none());
    (pool, ids, now)
}

/// Has host 1 looked at.
fn look(pool: &mut Pool, now: Instant) {
    pool.hosts[ONLY].warm.as_mut().expect("it is kept warm").may_look_at_once();
    pool.look_soon(now, ONLY);
    pool.handle_timeout(now);
}

#[test]
fn a_request_over_an_open_connection_keeps_its_host_warm_again() {
    let (mut pool, _, now) = kept(PoolConfig::new(), 1);
    assert!(pool.forget_oldest_warm(crate::clock::now()));
    assert_eq!(pool.warm_hosts.len(), 0);
    pool.ready(now, 1);
    assert_eq!(pool.warm_hosts.len(), 1);
}

#[test]
fn a_connection_that_opens_while_the_pool_drains_keeps_no_host_warm() {
    let (mut pool, now) = pool(PoolConfig::new().min_idle_per_host(1));
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.drain(now);
    pool.dial_succeeded(now, permit, http1(7));
    assert_eq!(pool.warm_hosts.len(), 0);
}

#[test]
fn a_dial_ahead_keeps_no_host_warm_that_was_forgotten_since() {
    let (mut pool, ids, now) = kept(PoolConfig::new(), 2);
    pool.socket_closed(now, ids[0]);
    pool.closes();
    pool.handle_timeout(now);
    let permit = pool.permit();
    assert!(pool.forget_oldest_warm(crate::clock::now()));
    pool.dial_succeeded(now, permit, http1(7));
    assert_eq!(pool.warm_hosts.len(), 0);
}

#[test]
fn a_new_connection_of_a_host_that_is_kept_warm_is_no_request() {
    let (mut pool, _, now) = kept(PoolConfig::new(), 1);
    let later = now + ms(5_000);
    pool.warm_up(later, &1, 2, 1);
    let permit = pool.permit();
    pool.dial_succeeded(later, permit, http1(7));
    assert_eq!(pool.hosts[ONLY].warm.as_ref().unwrap().requested_at, now);
}

#[test]
fn a_host_is_looked_at_in_time_after_its_server_announced_a_timeout() {
    let (mut pool, _, now) = kept(PoolConfig::new(), 1);
    let later = now + ms(1_000);
    let (token, _) = pool.ready(later, 1);
    assert!(pool.next_timeout().is_some_and(|at| at > later));
    pool.release(later, token, LeaseEnd::Kept { keep_alive: Some(ms(4_000)) });
    let look_at = pool.hosts[ONLY].warm.as_ref().unwrap().look_at;
    assert!(look_at <= later + ms(3_000), "it may have to be replaced a second before its end");
    pool.handle_timeout(later + ms(3_000));
    pool.handle_timeout(later + ms(3_500));
    pool.permit();
}

#[test]
fn the_next_look_is_early_enough_for_the_shortest_lifetime() {
    let config = PoolConfig::new().idle_timeout(Duration::MAX).lifetime(Duration::from_secs(100));
    let (pool, _, now) = kept(config, 1);
    // A connection lives for 90 s at least, and is replaced up to 10 s before.
    assert_eq!(pool.hosts[ONLY].warm.as_ref().unwrap().look_at, now + Duration::from_secs(80));
}

#[test]
fn a_dial_ahead_replaces_a_connection_only_if_one_is_about_to_reach_its_end() {
    let (mut pool, ids, now) = kept(PoolConfig::new(), 2);
    let later = now + AGEING;
    let (token, _) = pool.ready(now + ms(40_000), 1);
    let used = token.connection();
    pool.release(now + ms(40_000), token, KEPT);
    let unused = ids.iter().find(|id| id.serial != used).unwrap();
    look(&mut pool, later);
    let permit = pool.permit();
    assert_eq!(pool.conns[permit.id().index].dialling().ahead, Some(Ahead::Replacement));
    assert!(pool.next_effect().is_none());
    pool.dial_succeeded(later, permit, http1(7));
    assert_eq!(pool.closes(), unused.serial);
    assert!(pool.next_effect().is_none());

    let (mut pool, ids, now) = kept(PoolConfig::new(), 2);
    pool.socket_closed(now, ids[0]);
    pool.closes();
    pool.handle_timeout(now);
    let permit = pool.permit();
    assert_eq!(pool.conns[permit.id().index].dialling().ahead, Some(Ahead::Lacking));
}

#[test]
fn a_connection_that_replaces_none_closes_none() {
    let (mut pool, _, now) = kept(PoolConfig::new(), 1);
    let later = now + AGEING;
    pool.warm_up(later, &1, 2, 1);
    let permit = pool.permit();
    pool.dial_succeeded(later, permit, http1(7));
    assert!(pool.next_effect().is_none());
    assert_eq!(pool.counters().idle, 2);
}

#[test]
fn a_replacement_that_takes_no_requests_closes_no_connection() {
    let (mut pool, _, now) = kept(PoolConfig::new(), 1);
    let later = now + AGEING;
    look(&mut pool, later);
    let permit = pool.permit();
    assert_eq!(pool.conns[permit.id().index].dialling().ahead, Some(Ahead::Replacement));
    pool.retire(later, permit.id(), CloseCause::PeerAnnounced);
    pool.dial_succeeded(later, permit, http1(7));
    assert_eq!(pool.closes(), 7);
    assert!(pool.next_effect().is_none());
    assert_eq!(pool.counters().idle, 1);
}

#[test]
fn a_surplus_connection_is_not_closed_before_its_timeout_where_none_lacks() {
    let (mut pool, now) = pool(PoolConfig::new().min_idle_per_host(1).max_connections_per_host(2));
    pool.open_idle(now, 1, 2);
    pool.handle_timeout(now);
    let (token, _) = pool.ready(now + ms(40_000), 1);
    pool.release(now + ms(40_000), token, KEPT);
    look(&mut pool, now + AGEING);
    assert!(pool.next_effect().is_none());
    assert_eq!(pool.counters().idle, 2);
}

#[test]
fn where_a_limit_leaves_no_room_connections_are_replaced_one_after_the_other() {
    let (mut pool, ids, now) = kept(PoolConfig::new().max_connections_per_host(2), 2);
    let later = now + AGEING;
    look(&mut pool, later);
    let closed = pool.closes();
    assert!(pool.next_effect().is_none());
    look(&mut pool, later + ms(1_000));
    assert!(pool.next_effect().is_none(), "the first one's socket is not closed yet");
    let first = ids.iter().find(|id| id.serial == closed).unwrap();
    pool.socket_closed(later + ms(1_000), *first);
    pool.handle_timeout(later + ms(1_000));
    let permit = pool.permit();
    pool.dial_succeeded(later + ms(1_000), permit, http1(7));
}

#[test]
fn no_connection_makes_room_for_a_replacement_that_may_not_be_dialled() {
    let (mut pool, _, now) = kept(PoolConfig::new().max_connections_per_host(1), 1);
    let later = now + AGEING;
    pool.note_failure(later, ONLY);
    look(&mut pool, later);
    assert!(pool.next_effect().is_none(), "the host is left alone after a failure");
    look(&mut pool, later + ms(1_000));
    pool.closes();
}

#[test]
fn nothing_is_dialled_ahead_until_descriptors_suffice() {
    let (mut pool, ids, now) = kept(PoolConfig::new(), 1);
    let left = pool.wait(now, 2, 0);
    let permit = pool.permit();
    pool.abandon(now, left, AbandonCause::Cancelled);
    pool.dial_postponed(now, permit, Limit::Descriptors);
    pool.closes();
    pool.socket_closed(now, ids[0]);
    look(&mut pool, now);
    assert!(pool.slots.has_room(), "there is one descriptor");
    assert!(pool.next_effect().is_none());
    // No request needs a descriptor, so the shortage is taken to be over after a while.
    pool.handle_timeout(now + ms(50));
    look(&mut pool, now + ms(50));
    pool.permit();
}
