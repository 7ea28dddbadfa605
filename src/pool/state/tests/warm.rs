//! Hosts that are kept warm.

use super::*;

const MINUTE: u64 = 60_000;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A pool that keeps `count` connections to each host, and its timers.
struct Warmed {
    pool: Pool,
    now: Instant,
    start: Instant,
    /// The times of the dials, in milliseconds since the start.
    dials: Vec<u64>,
    /// The open sockets of each host.
    sockets: Vec<(u8, ConnId)>,
    /// The fewest sockets that were open after a timer.
    fewest: usize,
    /// True if dials fail.
    is_down: bool,
}

impl Warmed {
    fn new(config: PoolConfig) -> Self {
        let (pool, now) = pool(config);
        let (dials, sockets) = (Vec::new(), Vec::new());
        Self { pool, now, start: now, dials, sockets, fewest: usize::MAX, is_down: false }
    }

    /// Keeps 3 connections to host 1 open, which has had a request.
    fn with_three(config: PoolConfig) -> Self {
        let mut warmed = Self::new(config.min_idle_per_host(3));
        warmed.request(1);
        warmed.run(ms(10));
        assert_eq!((warmed.sockets.len(), warmed.pool.counters().idle), (3, 3));
        warmed.dials.clear();
        warmed
    }

    /// Performs the effects: dials take no time, and sockets are closed at once.
    fn perform(&mut self) {
        while let Some(effect) = self.pool.next_effect() {
            match effect {
                Effect::Dial(permit, ..) if self.is_down => {
                    self.dials.push((self.now - self.start).as_millis() as u64);
                    self.pool.dial_failed(self.now, permit, "refused");
                }
                Effect::Dial(permit, host, _) => self.open(permit, host),
                Effect::Close(conn) => {
                    // The peer may have closed it already.
                    let position = self.sockets.iter().position(|(_, id)| id.serial == conn);
                    if let Some(position) = position {
                        let (_, id) = self.sockets.remove(position);
                        self.pool.socket_closed(self.now, id);
                    }
                }
                Effect::Deliver { grant, .. } => self.pool.release(self.now, grant.token, KEPT),
                Effect::Fail { .. } | Effect::Retired(..) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn open(&mut self, permit: Permit, host: u8) {
        self.dials.push((self.now - self.start).as_millis() as u64);
        let id = permit.id();
        self.sockets.push((host, id));
        if host == MANY {
            self.pool.dial_succeeded(self.now, permit, http2(id.serial));
            self.pool.announce_streams(self.now, id, 100);
        } else {
            self.pool.dial_succeeded(self.now, permit, http1(id.serial));
        }
    }

    /// Makes a request that takes no time.
    fn request(&mut self, host: u8) {
        let acquired = self.pool.acquire(self.now, &host, None, false, || 0);
        if let Acquired::Ready(grant) = acquired {
            self.pool.release(self.now, grant.token, KEPT);
        }
        self.perform();
    }

    /// Handles the timers of this span of time.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(at) = self.pool.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.pool.handle_timeout(self.now);
            self.perform();
            self.fewest = self.fewest.min(self.sockets.len());
        }
        self.now = end;
    }

    /// Makes as many requests at the same time as there are connections, which take no time.
    fn use_all(&mut self, host: u8) {
        let count = self.sockets.iter().filter(|(other, _)| *other == host).count();
        let held: Vec<_> = (0..count).map(|_| self.pool.ready(self.now, host).0).collect();
        for token in held {
            self.pool.release(self.now, token, KEPT);
        }
    }

    fn close_by_peer(&mut self, nth: usize) {
        let (_, id) = self.sockets.remove(nth);
        self.pool.socket_closed(self.now, id);
        self.perform();
    }

    fn totals(&self) -> Totals {
        self.pool.counters().totals
    }
}

#[test]
fn a_burst_after_ten_minutes_of_silence_dials_nothing() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.run(ms(10 * MINUTE));
    assert_eq!(warmed.fewest, 3, "a connection is closed when another one is open in its place");
    let (dials, before) = (warmed.dials.len(), warmed.totals());
    assert!((36..=45).contains(&dials), "each is replaced between 40 and 45 s after it was opened: {dials}");
    assert_eq!(before.closed[CloseCause::Replaced as usize], dials as u64, "nothing else closes");
    assert_eq!(before.opened_ahead, 2 + dials as u64);
    let burst: Vec<_> = (0..3).map(|_| warmed.pool.ready(warmed.now, 1)).collect();
    warmed.run(ms(999));
    for (token, _) in burst {
        warmed.pool.release(warmed.now, token, KEPT);
    }
    warmed.run(secs(30));
    assert_eq!((warmed.dials.len(), warmed.sockets.len()), (dials, 3));
}

#[test]
fn without_the_setting_no_host_is_kept_warm() {
    let mut cold = Warmed::new(PoolConfig::new());
    cold.request(1);
    cold.run(secs(60));
    assert_eq!((cold.dials.len(), cold.pool.warm_hosts.len(), cold.pool.hosts.slab.len()), (1, 0, 0));
}

#[test]
fn a_connection_is_replaced_before_a_timeout_that_its_server_announced() {
    let mut warmed = Warmed::new(PoolConfig::new().min_idle_per_host(2));
    warmed.request(1);
    let (token, _) = warmed.pool.ready(warmed.now, 1);
    warmed.pool.release(warmed.now, token, LeaseEnd::Kept { keep_alive: Some(secs(4)) });
    warmed.run(secs(4));
    assert_eq!(warmed.fewest, 2);
    let closed = warmed.totals().closed;
    assert_eq!((closed[CloseCause::IdleTimeout as usize], closed[CloseCause::Replaced as usize]), (0, 2));
}

#[test]
fn connections_are_replaced_before_a_timeout_that_the_server_was_seen_to_have() {
    for is_used in [false, true] {
        let mut warmed = Warmed::with_three(PoolConfig::new());
        for _ in 0..2 {
            if is_used {
                warmed.use_all(1);
            }
            warmed.run(secs(10));
            for _ in 0..3 {
                warmed.close_by_peer(0);
            }
            warmed.run(ms(10));
        }
        warmed.fewest = usize::MAX;
        warmed.dials.clear();
        for _ in 0..9 {
            if is_used {
                warmed.use_all(1);
            }
            warmed.run(secs(10));
        }
        assert_eq!((warmed.fewest, warmed.totals().closed[CloseCause::IdleTimeout as usize]), (3, 0));
        assert!((27..=42).contains(&warmed.dials.len()), "{:?}", warmed.dials);
    }
}

#[test]
fn connections_are_replaced_before_their_lifetime_ends() {
    let config = PoolConfig::new().idle_timeout(Duration::MAX).lifetime(secs(100));
    let mut warmed = Warmed::with_three(config);
    warmed.run(secs(30 * 60));
    assert_eq!(warmed.fewest, 3);
    let replaced = warmed.totals().closed[CloseCause::Replaced as usize];
    assert!((3 * 1_800 / 110..=3 * 1_800 / 80).contains(&replaced), "{replaced}");
    for _ in 0..3 {
        let (token, _) = warmed.pool.ready(warmed.now, 1);
        warmed.pool.release(warmed.now, token, KEPT);
    }
}

#[test]
fn a_connection_in_use_is_not_replaced_and_the_traffic_decides() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    for _ in 0..600 {
        warmed.use_all(1);
        warmed.run(secs(1));
    }
    assert_eq!(warmed.dials.len(), 0, "idle connections are fresh");
}

#[test]
fn a_connection_that_the_peer_closes_is_replaced_at_once() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.run(secs(20));
    warmed.close_by_peer(1);
    let at = (warmed.now - warmed.start).as_millis() as u64;
    warmed.run(ms(0));
    assert_eq!((warmed.dials.clone(), warmed.sockets.len()), (vec![at], 3));
    warmed.run(secs(1));
    for _ in 0..3 {
        warmed.close_by_peer(0);
    }
    warmed.run(ms(0));
    assert_eq!((warmed.dials.len(), warmed.sockets.len()), (4, 3));
}

#[test]
fn busy_connections_are_not_idle_after_a_second() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    let held: Vec<_> = (0..2).map(|_| warmed.pool.ready(warmed.now, 1).0).collect();
    warmed.run(ms(999));
    assert_eq!(warmed.dials.len(), 0);
    warmed.run(ms(1));
    assert_eq!((warmed.dials.len(), warmed.pool.counters().idle), (2, 3));
    for token in held {
        warmed.pool.release(warmed.now, token, KEPT);
    }
    warmed.run(secs(60));
    assert_eq!(warmed.pool.counters().idle, 3, "the surplus reaches the idle timeout");
}

#[test]
fn other_connections_than_the_peers_closes_are_replaced_as_well() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.pool.close_idle(warmed.now);
    warmed.perform();
    assert_eq!(warmed.sockets.len(), 0);
    warmed.run(ms(0));
    assert_eq!((warmed.sockets.len(), warmed.dials.len()), (3, 3), "they come back");
    let broken: Vec<_> = (0..3).map(|_| warmed.pool.ready(warmed.now, 1).0).collect();
    for token in broken {
        warmed.pool.release(warmed.now, token, BROKEN);
    }
    warmed.perform();
    warmed.run(ms(10));
    assert_eq!((warmed.sockets.len(), warmed.dials.len()), (3, 6));
}

#[test]
fn connections_to_an_address_that_left_dns_are_replaced() {
    let (mut pool, now) = pool(PoolConfig::new().min_idle_per_host(2).follow_dns(crate::pool::FollowDns::AtOnce));
    let ip = |last| IpAddr::from([192, 0, 2, last]);
    let answer = |last| Addresses {
        family: Family::V4,
        ips: [ip(last)].into(),
        sockets: None,
        ttl: secs(60),
        is_sure: false,
        serial: None,
    };
    let open = |pool: &mut Pool, permit: Permit, last| {
        let location = Some(Location { name: "a.test".into(), ip: ip(last), port: 0 });
        let conn = permit.id().serial;
        pool.dial_succeeded(now, permit, Opened { location, ..http1(conn) });
        pool.dns_answered(now, "a.test", &answer(last), true);
    };
    pool.wait(now, 1, 0);
    let first = pool.permit();
    let ids = [first.id()];
    open(&mut pool, first, 1);
    let token = pool.delivered().1;
    pool.release(now, token, KEPT);
    pool.handle_timeout(now);
    let second = pool.permit();
    let ids = [ids[0], second.id()];
    open(&mut pool, second, 1);
    pool.dns_answered(now + secs(10), "a.test", &answer(2), true);
    for _ in 0..2 {
        pool.closes();
    }
    for id in ids {
        assert_eq!(pool.socket_closed(now + secs(10), id), CloseCause::AddressMoved);
    }
    pool.handle_timeout(now + secs(10));
    let dials = [pool.permit(), pool.permit()];
    assert!(pool.next_effect().is_none());
    for permit in dials {
        open(&mut pool, permit, 2);
    }
    assert_eq!(pool.counters().idle, 2);
}

#[test]
fn a_host_that_is_down_is_dialled_ever_more_seldom_and_recovers() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.is_down = true;
    for _ in 0..3 {
        warmed.close_by_peer(0);
    }
    warmed.run(secs(300));
    let dials = warmed.dials.len();
    assert!((3 + 6..=3 + 14).contains(&dials), "three at once, and then one after each pause: {dials}");
    let gaps = warmed.dials[2..].windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().all(|gap| (500..=60_000).contains(&gap)), "{:?}", gaps.collect::<Vec<_>>());
    warmed.is_down = false;
    warmed.run(secs(60));
    assert_eq!((warmed.sockets.len(), warmed.dials.len()), (3, dials + 3));
}

#[test]
fn a_request_whose_dial_succeeds_ends_the_pause() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.is_down = true;
    for _ in 0..3 {
        warmed.close_by_peer(0);
    }
    warmed.run(secs(300));
    warmed.is_down = false;
    warmed.request(1);
    warmed.run(ms(20));
    assert_eq!(warmed.sockets.len(), 3);
}

#[test]
fn a_server_that_closes_new_connections_at_once_is_dialled_ever_more_seldom() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    let mut until = warmed.now + secs(300);
    while warmed.now < until {
        while !warmed.sockets.is_empty() {
            warmed.close_by_peer(0);
        }
        warmed.run(ms(10));
    }
    assert!(warmed.dials.len() < 30, "{:?}", warmed.dials);
    until += secs(60);
    while warmed.now < until {
        warmed.run(ms(10));
    }
    assert_eq!(warmed.sockets.len(), 3);
}

#[test]
fn a_host_is_forgotten_an_hour_after_its_last_request() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.run(secs(1_800));
    warmed.request(1);
    warmed.run(secs(3_599));
    assert_eq!((warmed.sockets.len(), warmed.pool.warm_hosts.len()), (3, 1));
    warmed.run(secs(60));
    assert_eq!((warmed.sockets.len(), warmed.pool.warm_hosts.len()), (0, 0));
    assert_eq!((warmed.pool.hosts.slab.len(), warmed.pool.timers.len()), (0, 0), "nothing is left");
    warmed.request(1);
    warmed.run(ms(10));
    assert_eq!(warmed.sockets.len(), 3, "the next request begins anew");
}

#[test]
fn a_host_that_was_never_reached_is_not_kept() {
    let mut warmed = Warmed::new(PoolConfig::new().min_idle_per_host(3));
    warmed.is_down = true;
    warmed.request(1);
    assert_eq!((warmed.dials.len(), warmed.pool.hosts.slab.len(), warmed.pool.timers.len()), (1, 0, 0));
}

#[test]
fn warming_up_makes_a_host_known() {
    let mut warmed = Warmed::new(PoolConfig::new().min_idle_per_host(3));
    warmed.pool.warm_up(warmed.now, &1, 1, 1);
    warmed.perform();
    warmed.run(secs(300));
    assert_eq!(warmed.sockets.len(), 3);
}

#[test]
fn the_hosts_requested_last_are_kept() {
    let mut warmed = Warmed::new(PoolConfig::new().min_idle_per_host(1));
    // Hosts are numbers below 256 here, and as many may be kept warm: HTTP/2 hosts among them.
    for host in 0..=255 {
        warmed.request(host);
        assert_eq!(warmed.pool.warm_hosts.len(), usize::from(host) + 1);
    }
    warmed.run(secs(120));
    assert_eq!(warmed.sockets.len(), 256);
    assert!(warmed.pool.forget_oldest_warm(crate::clock::now()));
    warmed.run(secs(60));
    assert!(warmed.sockets.len() == 255 && warmed.sockets.iter().all(|(host, _)| *host != 0));
}

#[test]
fn a_drain_ends_it() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    let (token, _) = warmed.pool.ready(warmed.now, 1);
    warmed.pool.drain(warmed.now);
    warmed.perform();
    assert_eq!((warmed.sockets.len(), warmed.pool.warm_hosts.len()), (1, 0));
    warmed.run(secs(5));
    warmed.pool.release(warmed.now, token, KEPT);
    while let Some(effect) = warmed.pool.next_effect() {
        match effect {
            Effect::Close(_) => warmed.pool.socket_closed(warmed.now, warmed.sockets[0].1),
            Effect::Drained => continue,
            other => panic!("{other:?}"),
        };
    }
    assert!(warmed.pool.is_drained() && warmed.dials.is_empty() && warmed.pool.next_timeout().is_none());
}

#[test]
fn a_drain_aborts_a_dial_ahead() {
    let (mut pool, now) = pool(PoolConfig::new().min_idle_per_host(2));
    pool.open_idle(now, 1, 1);
    pool.handle_timeout(now);
    let permit = pool.permit();
    pool.drain(now);
    assert!(matches!(pool.next_effect(), Some(Effect::Close(_))));
    assert!(matches!(pool.next_effect(), Some(Effect::AbortDial(id)) if id == permit.id()));
    assert!(pool.is_given_up(permit.id()));
}

#[test]
fn with_a_limit_of_one_the_old_connection_closes_first() {
    let one = || PoolConfig::new().min_idle_per_host(1);
    for config in [
        one().max_connections_per_host(1),
        one().max_connections(1),
        one().max_idle_per_host(1).max_connections(1),
        one().max_idle(1).max_connections_per_host(1),
    ] {
        let mut warmed = Warmed::new(config);
        warmed.request(1);
        warmed.run(secs(600));
        assert_eq!((warmed.sockets.len(), warmed.pool.counters().slots), (1, 1));
        assert!((13..=16).contains(&warmed.dials.len()), "{:?}", warmed.dials);
        assert_eq!(warmed.totals().closed[CloseCause::Replaced as usize] as usize, warmed.dials.len() - 1);
    }
}

#[test]
fn with_an_idle_limit_of_one_the_new_connection_comes_first() {
    for config in [PoolConfig::new().max_idle_per_host(1), PoolConfig::new().max_idle(1)] {
        let mut warmed = Warmed::new(config.min_idle_per_host(1));
        warmed.request(1);
        warmed.run(secs(600));
        assert_eq!((warmed.fewest, warmed.totals().closed[CloseCause::IdleLimit as usize]), (1, 0));
        assert!((13..=16).contains(&warmed.dials.len()), "{:?}", warmed.dials);
    }
}

#[test]
fn idle_limits_are_not_overrun_and_no_connection_is_opened_to_be_closed() {
    for config in [PoolConfig::new().max_idle_per_host(3), PoolConfig::new().max_idle(3)] {
        let mut warmed = Warmed::with_three(config);
        for _ in 0..100 {
            let (token, _) = warmed.pool.ready(warmed.now, 1);
            warmed.run(secs(2));
            warmed.pool.release(warmed.now, token, KEPT);
            warmed.perform();
        }
        let closed = warmed.totals().closed;
        assert_eq!(closed[CloseCause::IdleLimit as usize], 0, "{closed:?}");
    }
}

#[test]
fn more_hosts_than_the_idle_limit_has_room_for_do_not_push_each_other_out() {
    let mut warmed = Warmed::new(PoolConfig::new().max_idle(10).min_idle_per_host(3));
    for host in 0..8 {
        warmed.request(host);
    }
    warmed.run(secs(600));
    assert_eq!((warmed.sockets.len(), warmed.totals().closed[CloseCause::IdleLimit as usize]), (10, 0));
    let dials = warmed.dials.len();
    assert!(dials <= 10 * 600 / 40 + 10, "as many as ten connections need: {dials}");
}

#[test]
fn a_dial_ahead_takes_no_slot_that_a_request_needs() {
    let mut warmed = Warmed::with_three(PoolConfig::new().max_connections(4));
    let others: Vec<_> = (0..4).map(|waiter| warmed.pool.wait(warmed.now, 2, waiter)).collect();
    let mut held = Vec::new();
    while let Some(effect) = warmed.pool.next_effect() {
        match effect {
            Effect::Dial(permit, host, _) => warmed.open(permit, host),
            Effect::Deliver { grant, .. } => held.push(grant.token),
            Effect::Close(conn) => {
                let position = warmed.sockets.iter().position(|(_, id)| id.serial == conn).unwrap();
                let (_, id) = warmed.sockets.remove(position);
                warmed.pool.socket_closed(warmed.now, id);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((others.len(), held.len()), (4, 4), "idle connections made room");
    warmed.dials.clear();
    warmed.run(secs(20));
    assert_eq!(warmed.dials.len(), 0, "all slots are taken");
    for token in held {
        warmed.pool.release(warmed.now, token, BROKEN);
    }
    warmed.perform();
    warmed.run(secs(2));
    assert!(warmed.sockets.iter().filter(|(host, _)| *host == 1).count() >= 1);
}

#[test]
fn while_descriptors_are_short_nothing_is_dialled_ahead_and_no_connection_is_given_up_for_it() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.close_by_peer(0);
    warmed.pool.handle_timeout(warmed.now);
    let permit = warmed.pool.permit();
    warmed.pool.dial_postponed(warmed.now, permit, Limit::Descriptors);
    assert!(warmed.pool.next_effect().is_none(), "no idle connection closes");
    let mut tries = 0;
    let end = warmed.now + secs(30);
    while let Some(at) = warmed.pool.next_timeout().filter(|at| *at <= end) {
        warmed.now = warmed.now.max(at);
        warmed.pool.handle_timeout(warmed.now);
        while let Some(effect) = warmed.pool.next_effect() {
            let Effect::Dial(permit, ..) = effect else { panic!("{effect:?}") };
            tries += 1;
            warmed.pool.dial_postponed(warmed.now, permit, Limit::Descriptors);
        }
    }
    assert!((3..=7).contains(&tries), "{tries}");
    assert_eq!(warmed.pool.counters().idle, 2);
}

#[test]
fn a_connection_given_up_for_a_request_without_a_descriptor_is_not_opened_again_before_there_are_some() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.pool.wait(warmed.now, 2, 0);
    let mut tries = 0;
    while tries < 4 {
        match warmed.pool.next_effect() {
            Some(Effect::Dial(permit, host, _)) => {
                assert_eq!(host, 2, "no dial ahead");
                tries += 1;
                warmed.pool.dial_postponed(warmed.now, permit, Limit::Descriptors);
            }
            Some(Effect::Close(conn)) => {
                let position = warmed.sockets.iter().position(|(_, id)| id.serial == conn).unwrap();
                let (_, id) = warmed.sockets.remove(position);
                warmed.pool.socket_closed(warmed.now, id);
            }
            Some(other) => panic!("{other:?}"),
            None => {
                warmed.now = warmed.now.max(warmed.pool.next_timeout().expect("another try"));
                warmed.pool.handle_timeout(warmed.now);
            }
        }
    }
    assert!(warmed.sockets.len() < 3, "idle connections were given up");
    warmed.run(secs(5));
    assert_eq!(warmed.sockets.iter().filter(|(host, _)| *host == 1).count(), 3);
}

#[test]
fn a_pause_that_the_server_asked_for_holds() {
    let mut warmed = Warmed::new(PoolConfig::new().min_idle_per_host(2));
    warmed.request(MANY);
    warmed.run(secs(2));
    warmed.dials.clear();
    let (_, id) = warmed.sockets[0];
    let at = warmed.now;
    warmed.pool.back_off(at, id, 1.0);
    warmed.perform();
    warmed.run(ms(199));
    assert_eq!(warmed.dials.len(), 0);
    warmed.run(secs(2));
    assert_eq!((warmed.dials.len(), warmed.sockets.len()), (1, 2));
}

#[test]
fn http2_hosts_have_as_many_connections_as_they_may_and_busy_ones_count() {
    let mut warmed = Warmed::new(PoolConfig::new().min_idle_per_host(10).max_http2_connections_per_host(2));
    warmed.request(MANY);
    warmed.run(secs(600));
    assert_eq!((warmed.sockets.len(), warmed.pool.hosts[0].http2_conns()), (2, 2));
    let closed = warmed.totals().closed;
    assert_eq!(closed.iter().sum::<u64>(), closed[CloseCause::Replaced as usize], "{closed:?}");
    let dials = warmed.dials.len();
    let held: Vec<_> = (0..50).map(|_| warmed.pool.ready(warmed.now, MANY).0).collect();
    warmed.run(secs(30));
    assert_eq!(warmed.dials.len(), dials, "a connection with free streams counts");
    drop(held);
}

#[test]
fn a_request_takes_a_dial_ahead_that_is_in_flight() {
    let (mut pool, now) = pool(PoolConfig::new().min_idle_per_host(2));
    pool.open_idle(now, 1, 1);
    pool.handle_timeout(now);
    let permit = pool.permit();
    let _held = pool.ready(now, 1);
    pool.wait(now, 1, 7);
    assert!(pool.next_effect().is_none(), "the request relies on it");
    pool.dial_succeeded(now, permit, http1(5));
    assert_eq!(pool.delivered().0, 7);
    pool.handle_timeout(now + ms(999));
    assert!(pool.next_effect().is_none(), "the busy ones may be free in a moment");
    pool.handle_timeout(now + ms(1_000));
    for ahead in [pool.permit(), pool.permit()] {
        pool.dial_succeeded(now + ms(1_000), ahead, http1(7));
    }
    pool.handle_timeout(now + ms(3_000));
    assert!(pool.next_effect().is_none(), "two are idle");
}

#[test]
fn a_request_that_gets_a_free_connection_keeps_a_host_warm_too() {
    let mut warmed = Warmed::with_three(PoolConfig::new());
    warmed.run(secs(1_800));
    let Acquired::Ready(grant) = warmed.pool.checkout(warmed.now, &1, &Wish::default(), 0, || unreachable!()) else {
        panic!("three are idle")
    };
    warmed.pool.release(warmed.now, grant.token, KEPT);
    warmed.run(secs(3_599));
    assert_eq!((warmed.sockets.len(), warmed.pool.warm_hosts.len()), (3, 1));
}
