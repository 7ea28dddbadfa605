//! Connections that are lent to requests to other hosts, and requests that take a connection only if one is free.

use super::*;

impl Pool {
    fn lent(&mut self, now: Instant, id: ConnId) -> Option<LeaseToken> {
        self.lend(now, id).map(|grant| grant.token)
    }

    fn ready_only(&mut self, now: Instant, host: u8) -> Option<LeaseToken> {
        self.checkout_ready(now, &host, &Wish::default(), 0).map(|grant| grant.token)
    }

    /// Opens an HTTP/2 connection of this host that has this number of streams, and leaves it idle.
    fn shared(&mut self, now: Instant, host: u8, streams: usize) -> ConnId {
        self.wait(now, host, 0);
        let permit = self.permit();
        let id = permit.id();
        self.dialed_http2(now, permit, streams);
        let (_, token, _) = self.delivered();
        self.release(now, token, KEPT);
        id
    }
}

#[test]
fn a_free_stream_is_lent_and_counts_for_the_connections_own_host() {
    let (mut pool, now) = pool(PoolConfig::new());
    let id = pool.shared(now, MANY, 2);
    let first = pool.lent(now, id).expect("it is idle");
    let second = pool.lent(now, id).expect("it has another stream");
    assert!(pool.lent(now, id).is_none(), "both streams are taken");
    let hosts: Vec<_> = pool.host_counters().map(|(host, counters)| (*host, counters.leased)).collect();
    assert_eq!(hosts, [(MANY, 2)]);
    // A request of its own waits for the stream, and gets it before the next loan.
    pool.wait(now, MANY, 9);
    pool.release(now, first, KEPT);
    pool.permit();
    assert_eq!(pool.delivered().0, 9);
    assert!(pool.lent(now, id).is_none());
    pool.release(now, second, KEPT);
    assert!(pool.lent(now, id).is_some());
}

#[test]
fn what_ends_or_drains_or_speaks_http1_is_not_lent() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 1);
    assert!(pool.lent(now, ids[0]).is_none(), "HTTP/1");
    let id = pool.shared(now, MANY, 5);
    let token = pool.lent(now, id).unwrap();
    pool.retire(now, id, CloseCause::PeerAnnounced);
    assert!(pool.lent(now, id).is_none(), "it takes no more requests");
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(..))));
    pool.release(now, token, KEPT);
    pool.closes();
    pool.socket_closed(now, id);
    assert!(pool.lent(now, id).is_none(), "it is gone");
    let other = pool.shared(now, MANY, 5);
    assert!(pool.lent(now, ConnId { serial: other.serial + 1, ..other }).is_none(), "another one in its place");
    pool.announce_streams(now, other, 0);
    assert!(pool.lent(now, other).is_none(), "its peer allows no request");
    pool.announce_streams(now, other, 5);
    let held = pool.lent(now, other).unwrap();
    pool.drain(now);
    assert!(pool.lent(now, other).is_none());
    pool.release(now, held, KEPT);
}

#[test]
fn a_connection_that_is_too_old_ends_instead_of_being_lent() {
    let (mut pool, now) = pool(PoolConfig::new().lifetime(ms(1_000)));
    let id = pool.shared(now, MANY, 5);
    assert!(pool.lent(now + ms(2_000), id).is_none());
    assert_eq!(pool.closes(), 7);
    assert!(pool.next_effect().is_none());
}

#[test]
fn a_connection_with_a_request_limit_ends_with_its_last_loan() {
    let (mut pool, now) = pool(PoolConfig::new().max_requests_per_connection(2));
    let id = pool.shared(now, MANY, 5);
    let last = pool.lent(now, id).unwrap();
    assert!(pool.lent(now, id).is_none());
    assert!(matches!(pool.next_effect(), Some(Effect::Retired(_, CloseCause::RequestLimit))));
    pool.release(now, last, KEPT);
    assert_eq!(pool.closes(), 7);
}

#[test]
fn a_request_for_a_free_connection_alone_neither_waits_nor_dials() {
    let (mut pool, now) = pool(PoolConfig::new());
    assert!(pool.ready_only(now, MANY).is_none() && pool.host_counters().next().is_none(), "no record is left behind");
    pool.shared(now, MANY, 1);
    let token = pool.ready_only(now, MANY).expect("it is idle");
    assert!(pool.ready_only(now, MANY).is_none());
    pool.release(now, token, KEPT);
    assert!(pool.next_effect().is_none());
    pool.drain(now);
    assert!(pool.ready_only(now, MANY).is_none());
}

#[test]
fn a_record_without_connections_is_removed_after_a_request_for_a_free_one() {
    let (mut pool, now) = pool(PoolConfig::new().lifetime(ms(1_000)));
    let id = pool.shared(now, MANY, 1);
    assert!(pool.ready_only(now + ms(2_000), MANY).is_none());
    pool.closes();
    pool.socket_closed(now, id);
    assert!(pool.host_counters().next().is_none());
}
