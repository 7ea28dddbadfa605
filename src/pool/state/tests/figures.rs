//! The figures that the pool reports.

use super::*;
use crate::trace::HostClose;

impl Pool {
    /// Has a request wait, and returns the limit that it hears of with its usage.
    fn usage(&mut self, now: Instant, host: u8) -> (Limit, Option<(usize, usize)>) {
        match self.acquire(now, &host, None, false, || 0) {
            Acquired::Wait(_, Queued { limit, usage, .. }) => (limit, usage.map(|usage| (usage.taken, usage.limit))),
            other => panic!("expected to wait: {other:?}"),
        }
    }

    fn report_of(&self, now: Instant, host: u8) -> Option<HostReport> {
        self.host_reports(now).find(|(key, _)| **key == host).map(|(_, report)| report)
    }
}

#[test]
fn a_request_that_waits_hears_how_much_of_the_limit_is_taken() {
    let (mut by_host, now) = pool(PoolConfig::new().max_connections_per_host(2).max_connections(3));
    assert_eq!(by_host.usage(now, 1), (Limit::Opening, Some((1, 1_024))));
    by_host.usage(now, 1);
    assert_eq!(by_host.usage(now, 1), (Limit::ConnectionsPerHost, Some((2, 2))));
    by_host.usage(now, 2);
    assert_eq!(by_host.usage(now, 2), (Limit::Connections, Some((3, 3))));
    let (mut unknown, now) = pool(PoolConfig::new());
    unknown.usage(now, UNKNOWN);
    assert_eq!(unknown.usage(now, UNKNOWN), (Limit::Opening, Some((1, 1_024))), "the dial may serve it as well");
    let (mut by_dials, now) = pool(PoolConfig::new().max_dials_per_host(1));
    by_dials.usage(now, 1);
    assert_eq!(by_dials.usage(now, 1), (Limit::Dials, Some((1, 1))));
    let (mut shared, now) = pool(PoolConfig::new().max_http2_connections_per_host(1));
    shared.wait(now, MANY, 0);
    let permit = shared.permit();
    shared.dialed_http2(now, permit, 3);
    for _ in 0..2 {
        shared.ready(now, MANY);
    }
    assert_eq!(shared.usage(now, MANY), (Limit::Streams, Some((3, 3))));
}

#[test]
fn requests_without_a_dial_are_counted() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    assert_eq!((pool.counters().waiting, pool.counters().undialled), (3, 2));
    assert!(pool.has_effects());
    pool.permit();
    assert!(!pool.has_effects());
}

#[test]
fn a_dial_hears_of_the_hosts_connections_and_of_the_one_that_ended_last() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 2);
    let (broken, conn) = pool.ready(now, 1);
    pool.release(now, broken, BROKEN);
    assert_eq!(pool.closes(), conn);
    let _busy = pool.ready(now, 1);
    pool.wait(now, 1, 9);
    let permit = pool.permit();
    let last_close = HostClose::new(CloseCause::Unfinished, 2, false);
    assert_eq!(pool.note_dial(&permit), HostAtDial::new(1, 2, Some(last_close)));
}

#[test]
fn connections_that_the_server_closes_while_they_are_idle_are_counted() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 3);
    let (held, conn) = pool.ready(now, 1);
    let (cut, _) = pool.ready(now, 1);
    assert_eq!(conn, ids[2].serial);
    pool.socket_closed(now, ids[2]);
    assert_eq!(pool.counters().totals.closed_idle_by_peer, 0, "it was in use");
    pool.socket_closed(now, ids[0]);
    assert_eq!(pool.counters().totals.closed_idle_by_peer, 1);
    pool.release(now, cut, LeaseEnd::Cut { idle: ms(9) });
    assert_eq!(pool.counters().totals.closed_idle_by_peer, 2);
    pool.release(now, held, BROKEN);
    assert_eq!(pool.report_of(now, 1).expect("it has a record").counters.totals.closed_idle_by_peer, 2);
}

#[test]
fn each_host_has_its_allowance_of_resends() {
    let (mut pool, now) = pool(PoolConfig::new());
    let allowed = (0..200).filter(|_| pool.may_resend(now, &1)).count();
    assert_eq!((allowed, pool.may_resend(now, &2)), (100, true));
}

#[test]
fn what_is_known_of_a_server_includes_the_idle_timeout_that_it_showed() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    for _ in 0..2 {
        let ids = pool.open_idle(now, 1, 1);
        assert_eq!(pool.known_servers(now)[0].1.idle_limit, None);
        now += ms(5_000);
        pool.socket_closed(now, ids[0]);
        pool.closes();
    }
    assert_eq!(
        pool.known_servers(now)[0].1.idle_limit.map(|known| known.limit),
        Some(ms(4_000)),
        "the host has no record"
    );
    pool.open_idle(now, 1, 1);
    assert_eq!(pool.known_servers(now)[0].1.idle_limit.map(|known| known.limit), Some(ms(4_000)), "it has one");
}

#[test]
fn a_connection_shows_the_servers_protocol_unless_its_dial_began_with_other_settings() {
    for is_outdated in [false, true] {
        let (mut pool, now) = pool(PoolConfig::new());
        pool.wait(now, UNKNOWN, 0);
        let permit = pool.permit();
        if is_outdated {
            pool.renew(now, |_| true);
        }
        pool.dial_succeeded(now, permit, http1(5));
        let known: Vec<_> = pool.known_servers(now).into_iter().map(|(_, server, _)| server.speaks).collect();
        let expected: &[Speaks] = if is_outdated { &[] } else { &[Speaks::Http1] };
        assert_eq!(known, expected);
    }
}

#[test]
fn a_host_without_connections_is_reported_with_its_totals() {
    let (mut pool, now) = pool(PoolConfig::new());
    for (host, streams) in [(1, None), (MANY, Some(50))] {
        pool.wait(now, host, 0);
        let permit = pool.permit();
        let id = permit.id();
        if host == MANY {
            pool.dialed_http2(now, permit, 50);
        } else {
            pool.dial_succeeded(now, permit, http1(7));
        }
        let (_, held, _) = pool.delivered();
        assert_eq!(pool.report_of(now, host).map(|report| report.streams), Some(streams));
        pool.release(now, held, LeaseEnd::Kept { keep_alive: Some(ms(9_000)) });
        assert_eq!(pool.report_of(now, host).and_then(|report| report.keep_alive), Some(ms(9_000)));
        pool.close_idle(now);
        pool.closes();
        pool.socket_closed(now, id);
        assert!(pool.hosts.slab.is_empty());
        let report = pool.report_of(now, host).expect("it is remembered");
        let totals = report.counters.totals;
        assert_eq!((totals.opened, totals.held.count(), totals.queue.served), (1, 1, 1));
        assert_eq!(totals.closed[CloseCause::Program as usize], 1);
        assert_eq!((report.streams, report.keep_alive), (streams, None));
    }
}

#[test]
fn the_names_of_open_connections_are_listed() {
    let (mut pool, now) = pool(PoolConfig::new());
    assert!(pool.names().is_empty());
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    let location = Location { name: "a.test".into(), ip: [192, 0, 2, 1].into(), port: 0 };
    assert!(pool.dial_succeeded(now, permit, Opened { location: Some(location), ..http1(5) }));
    assert_eq!(pool.names(), ["a.test".into()]);
}

#[test]
fn of_two_limits_that_bind_the_hosts_own_is_told() {
    let (mut pool, now) = pool(PoolConfig::new().max_dials_per_host(1).max_connections(1));
    pool.wait(now, 1, 0);
    let told = pool.acquire(now, &1, None, false, || 1);
    assert!(matches!(told, Acquired::Wait(_, Queued { limit: Limit::Dials, .. })));
}
