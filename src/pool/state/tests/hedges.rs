//! Second attempts at requests, and the connections they take.

use super::*;

fn hedged(number: u64, ip: Option<u8>) -> Wish {
    let ip = ip.map(|last| IpAddr::from([192, 0, 2, last]));
    Wish { despite_drain: true, avoid: Some(EarlierConn { number, ip }), ..Wish::default() }
}

impl Pool {
    /// Returns true if there is room for a second attempt, whose first one waits on the connection `number`.
    fn has_room(&mut self, now: Instant, host: u8, number: u64) -> bool {
        self.has_room_for_hedge(now, &host, EarlierConn { number, ip: None }, 0)
    }

    /// Opens an HTTP/1 connection to the address that ends in `ip`, for a request.
    fn lease_of(&mut self, now: Instant, host: u8, ip: u8) -> LeaseToken {
        self.wait(now, host, 0);
        let permit = self.permit();
        let location = Location { name: "a.test".into(), ip: [192, 0, 2, ip].into(), port: 0 };
        let conn = permit.id().serial;
        self.dial_succeeded(now, permit, Opened { location: Some(location), ..http1(conn) });
        self.delivered().1
    }
}

#[test]
fn there_is_room_for_a_hedge_where_it_would_not_be_refused() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2));
    assert!(pool.has_room(now, 1, 0) && pool.host_counters().next().is_none(), "no record is left behind");
    let first = pool.lease_of(now, 1, 1);
    let number = first.connection();
    assert!(pool.has_room(now, 1, number), "for a dial");
    let other = pool.lease_of(now, 1, 1);
    assert!(!pool.has_room(now, 1, number));
    pool.release(now, other, KEPT);
    assert!(pool.has_room(now, 1, number), "on the idle connection");
    assert!(pool.next_effect().is_none());
}

#[test]
fn a_hedge_prefers_an_idle_connection_to_another_address() {
    let (mut pool, now) = pool(PoolConfig::new());
    let first = pool.lease_of(now, 1, 1);
    let other = pool.lease_of(now, 1, 2);
    let same = pool.lease_of(now, 1, 1);
    let (number, other_number, same_number) = (first.connection(), other.connection(), same.connection());
    pool.release(now, other, KEPT);
    pool.release(now + ms(1), same, KEPT);
    let mut taken = Vec::new();
    for _ in 0..2 {
        match pool.checkout(now + ms(2), &1, &hedged(number, Some(1)), 0, || (9, LIMITS)) {
            Acquired::Ready(grant) => taken.push(grant.token.connection()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(taken, [other_number, same_number], "then one to the same address");
    assert!(matches!(pool.checkout(now, &1, &hedged(number, Some(1)), 0, || (9, LIMITS)), Acquired::Wait(..)));
    pool.permit();
}

#[test]
fn a_hedge_never_takes_the_http2_connection_of_the_first_attempt() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let number = permit.id().serial;
    pool.dialed_http2(now, permit, 100);
    let _first = pool.delivered();
    let (another, _) = pool.ready(now, MANY);
    assert!(matches!(pool.checkout(now, &MANY, &hedged(number, None), 0, || (1, LIMITS)), Acquired::Wait(..)));
    let permit = pool.permit();
    pool.release(now, another, KEPT);
    assert!(pool.next_effect().is_none(), "a stream that is given back there is not for it");
    pool.dial_succeeded(now, permit, http2(8));
    let (waiter, _, conn) = pool.delivered();
    assert_eq!((waiter, conn), (1, 8));
}

#[test]
fn a_hedge_takes_a_dial_that_lost_its_request() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2));
    let first = pool.lease_of(now, 1, 1);
    let left = pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.abandon(now, left, AbandonCause::Cancelled);
    let number = first.connection();
    assert!(matches!(pool.checkout(now, &1, &hedged(number, None), 0, || (2, LIMITS)), Acquired::Wait(..)));
    assert!(pool.next_effect().is_none(), "there is no room for another one");
    pool.dial_succeeded(now, permit, http1(8));
    assert_eq!(pool.delivered().0, 2);
}

#[test]
fn a_hedge_is_refused_where_other_requests_would_wait_for_it() {
    // No room for another connection.
    let (mut full, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let first = full.lease_of(now, 1, 1);
    let number = first.connection();
    assert!(!full.has_room(now, 1, number));
    let refused = full.checkout(now, &1, &hedged(number, None), 0, || (1, LIMITS));
    assert!(matches!(refused, Acquired::Refused(Limit::ConnectionsPerHost)), "{refused:?}");
    assert_eq!((full.counters().waiting, full.counters().totals.queue.refused), (0, 0), "it is no refused request");
    // Over HTTP/2 likewise.
    let (mut full, now) = pool(PoolConfig::new().max_http2_connections_per_host(1));
    full.wait(now, MANY, 0);
    let permit = full.permit();
    let number = permit.id().serial;
    full.dialed_http2(now, permit, 100);
    let _first = full.delivered();
    assert!(!full.has_room(now, MANY, number));
    let refused = full.checkout(now, &MANY, &hedged(number, None), 0, || (1, LIMITS));
    assert!(matches!(refused, Acquired::Refused(Limit::Streams)), "{refused:?}");
    // While the pool drains.
    let (mut draining, now) = pool(PoolConfig::new());
    let first = draining.lease_of(now, 1, 1);
    draining.drain(now);
    assert!(!draining.has_room(now, 1, first.connection()));
    assert!(matches!(
        draining.checkout(now, &1, &hedged(first.connection(), None), 0, || (1, LIMITS)),
        Acquired::Refused(_)
    ));
}
