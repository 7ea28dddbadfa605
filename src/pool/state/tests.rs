//! The pool core by arithmetic, and in random walks against invariants.

use std::time::Duration;

use super::*;

type Pool = State<u8, u64, u32, &'static str>;

/// Hosts from 100 on speak HTTP/2, and those from 200 on something that is not known beforehand.
fn pool(config: PoolConfig) -> (Pool, Instant) {
    let speaks = |host: &u8| match host {
        ..100 => Speaks::One,
        100..200 => Speaks::Many,
        200.. => Speaks::Unknown,
    };
    (State::new(config, move |host| Profile { limits: 0, speaks: speaks(host) }), crate::clock::now())
}

fn http1(conn: u64) -> Opened<u64> {
    Opened { fresh: conn, conn, speaks: Speaks::One, location: None, home: Home(0) }
}

fn http2(conn: u64) -> Opened<u64> {
    Opened { speaks: Speaks::Many, ..http1(conn) }
}

const KEPT: Ended = Ended::Kept { keep_alive: None };
const BROKEN: Ended = Ended::Retire(CloseCause::Unfinished);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Pool {
    /// Checks a connection out for a request that may be sent twice.
    pub(super) fn acquire(
        &mut self,
        now: Instant,
        host: &u8,
        failed_on: Option<u64>,
        begun: bool,
        waiter: impl FnOnce() -> u32,
    ) -> Acquired<u64> {
        self.checkout(now, host, Wish { failed_on, begun, ..Wish::default() }, waiter)
    }

    fn wait(&mut self, now: Instant, host: u8, waiter: u32) -> TicketId {
        match self.acquire(now, &host, None, false, || waiter) {
            Acquired::Wait(ticket, _) => ticket,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    fn ready(&mut self, now: Instant, host: u8) -> (Held, u64) {
        match self.acquire(now, &host, None, false, || 0) {
            Acquired::Ready(Grant { held, conn, .. }) => (held, conn),
            other => panic!("expected an idle connection: {other:?}"),
        }
    }

    fn permit(&mut self) -> Permit {
        match self.poll() {
            Some(Effect::Dial(permit, _)) => permit,
            other => panic!("expected a dial: {other:?}"),
        }
    }

    fn delivered(&mut self) -> (u32, Held, u64) {
        match self.poll() {
            Some(Effect::Deliver { waiter, grant: Grant { held, conn, .. } }) => (waiter, held, conn),
            other => panic!("expected a delivery: {other:?}"),
        }
    }

    /// An HTTP/2 connection, number 7, whose peer says how many streams it takes.
    fn dialed_http2(&mut self, now: Instant, permit: Permit, seats: usize) {
        let id = permit.id();
        self.dialed(now, permit, http2(7));
        self.reseat(now, id, seats);
    }

    fn closes(&mut self) -> u64 {
        match self.poll() {
            Some(Effect::Close(conn)) => conn,
            other => panic!("expected an end: {other:?}"),
        }
    }

    fn limit(&mut self, now: Instant, host: u8, waiter: u32) -> Limit {
        match self.acquire(now, &host, None, false, || waiter) {
            Acquired::Wait(_, InLine { limit, .. }) | Acquired::Refused(limit) => limit,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    fn failed(&mut self) -> (u32, Failure<&'static str>) {
        match self.poll() {
            Some(Effect::Fail { waiter, why }) => (waiter, why),
            other => panic!("expected a failure: {other:?}"),
        }
    }

    /// Opens `count` connections to `host` and leaves them idle.
    fn open_idle(&mut self, now: Instant, host: u8, count: u64) -> Vec<ConnId> {
        for waiter in 0..count {
            self.wait(now, host, waiter as u32);
        }
        let permits: Vec<_> = (0..count).map(|_| self.permit()).collect();
        let ids = permits.iter().map(Permit::id).collect();
        for permit in permits {
            let conn = permit.id().serial;
            self.dialed(now, permit, http1(conn));
        }
        let held: Vec<_> = (0..count).map(|_| self.delivered().1).collect();
        for held in held {
            self.release(now, held, KEPT);
        }
        ids
    }
}

#[test]
fn a_cold_request_dials_and_a_warm_one_does_not() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 10);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(5));
    let (waiter, held, conn) = pool.delivered();
    assert_eq!((waiter, conn), (10, 5));
    pool.release(now, held, KEPT);
    assert_eq!(pool.ready(now, 1).1, 5);
    assert!(pool.poll().is_none());
}

#[test]
fn a_request_gets_a_connection_of_its_own_runtime_rather_than_a_more_recent_one() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    let permits = [pool.permit(), pool.permit()];
    for (number, permit) in (1..).zip(permits) {
        pool.dialed(now, permit, Opened { home: Home(number), ..http1(number) });
    }
    let held = [pool.delivered().1, pool.delivered().1];
    held.into_iter().for_each(|held| pool.release(now, held, KEPT));
    // A runtime without connections gets the most recent one.
    for (home, expected) in [(1, 1), (2, 2), (1, 1), (3, 1)] {
        let wish = Wish { home: Home(home), ..Wish::default() };
        match pool.checkout(now, &1, wish, || 0) {
            Acquired::Ready(Grant { held, conn, .. }) => {
                assert_eq!(conn, expected, "runtime {home}");
                pool.release(now, held, KEPT);
            }
            other => panic!("expected an idle connection: {other:?}"),
        }
    }
}

#[test]
fn a_request_whose_runtimes_ended_has_a_connection_dialled_for_it_and_takes_no_other_runtimes() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed(now, permit, Opened { home: Home(1), ..http2(1) });
    pool.reseat(now, id, 1);
    let held = pool.delivered().1;
    pool.wait(now, MANY, 1);
    let theirs = pool.permit();
    let wish = Wish { failed_on: Some(99), begun: true, once: false, home: Home(2), own: true };
    assert!(matches!(pool.checkout(now, &MANY, wish, || 2), Acquired::Wait(..)));
    let ours = pool.permit();
    pool.dialed(now, theirs, Opened { home: Home(1), ..http2(2) });
    assert_eq!(pool.delivered().0, 1);
    pool.release(now, held, KEPT);
    assert!(pool.poll().is_none(), "nor does it take what is given back");
    pool.dialed(now, ours, Opened { home: Home(2), ..http2(3) });
    let (waiter, _, conn) = pool.delivered();
    assert_eq!((waiter, conn), (2, 3));
}

#[test]
fn the_most_recently_used_connection_goes_out_first() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 2);
    let (first, _) = pool.ready(now, 1);
    let (second, b) = pool.ready(now, 1);
    pool.release(now, first, KEPT);
    pool.release(now, second, KEPT);
    assert_eq!(pool.ready(now, 1).1, b);
}

#[test]
fn a_limit_makes_requests_wait_in_order() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let permit = pool.permit();
    assert!(pool.poll().is_none(), "one dial only");
    pool.dialed(now, permit, http1(5));
    for expected in 0..3 {
        let (waiter, held, _) = pool.delivered();
        assert_eq!(waiter, expected);
        pool.release(now, held, KEPT);
    }
    assert_eq!(pool.books().idle, 1);
}

#[test]
fn a_place_is_free_when_the_socket_is_closed_and_not_before() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, 1, 0);
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed(now, permit, http1(5));
    let (_, held, _) = pool.delivered();
    pool.release(now, held, BROKEN);
    assert_eq!(pool.closes(), 5);
    assert!(pool.poll().is_none(), "the socket is still there");
    pool.closed(now, id);
    pool.permit();
}

#[test]
fn a_freed_connection_is_taken_while_a_dial_goes_on_and_the_surplus_is_kept() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.wait(now, 1, 9);
    let permit = pool.permit();
    pool.release(now, held, KEPT);
    assert_eq!(pool.delivered().0, 9);
    pool.dialed(now, permit, http1(6));
    assert!(pool.poll().is_none());
    assert_eq!(pool.books().idle, 1);
}

#[test]
fn a_failed_dial_fails_its_own_request_and_strands_nobody() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    for expected in 0..3 {
        let permit = pool.permit();
        pool.dial_failed(now, permit, "refused");
        assert!(matches!(pool.failed(), (waiter, Failure::Dial("refused")) if waiter == expected));
    }
    assert!(pool.poll().is_none() && pool.hosts.is_empty());
}

#[test]
fn a_dial_whose_request_left_serves_the_next_one_and_its_failure_nobody_else() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let first = pool.wait(now, 1, 1);
    let permit = pool.permit();
    assert_eq!(pool.abandon(now, first), Some(1));
    assert_eq!(pool.abandon(now, first), None);
    pool.wait(now, 1, 2);
    assert!(pool.poll().is_none(), "the dial under way will do");
    pool.dialed(now, permit, http1(5));
    assert_eq!(pool.delivered().0, 2);

    let third = pool.wait(now, 2, 3);
    let permit = pool.permit();
    pool.abandon(now, third);
    pool.dial_failed(now, permit, "refused");
    assert!(pool.poll().is_none());
}

#[test]
fn a_dial_left_for_being_slow_does_not_hold_the_next_request_up() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut slow = Vec::new();
    for waiter in 0..4 {
        let ticket = pool.wait(now, 1, waiter);
        slow.push(pool.permit());
        pool.abandon(now, ticket);
    }
    pool.wait(now, 1, 9);
    assert!(pool.poll().is_none(), "but there is an end to it");
    pool.dialed(now, slow.remove(0), http1(5));
    assert_eq!(pool.delivered().0, 9);
}

#[test]
fn a_request_that_shuns_idle_connections_gets_another_one() {
    for limit in [1, 2, usize::MAX] {
        let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(limit));
        let ids = pool.open_idle(now, 1, 1);
        assert!(matches!(pool.acquire(now, &1, Some(0), false, || 8), Acquired::Wait(..)));
        if limit == 1 {
            assert!(matches!(pool.poll(), Some(Effect::Close(_))), "it is in the way");
            pool.closed(now, ids[0]);
        }
        let permit = pool.permit();
        pool.dialed(now, permit, http1(77));
        let (waiter, _, conn) = pool.delivered();
        assert_eq!((waiter, conn), (8, 77));
    }
}

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
    assert!(matches!(pool.poll(), Some(Effect::Close(conn)) if conn == a), "host 2 came first");
    pool.release(now, second, KEPT);
    assert_eq!(pool.delivered().0, 10, "one place is enough for it");
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
    assert_eq!((pool.books().closing, pool.books().idle), (1, 9));
}

#[test]
fn alarms_do_not_outlive_their_hosts() {
    let (mut pool, now) = pool(PoolConfig::new());
    for host in 0..100 {
        let ids = pool.open_idle(now, host, 1);
        pool.closed(now, ids[0]);
        while pool.poll().is_some() {}
    }
    assert_eq!((pool.hosts.len(), pool.alarms.len()), (0, 0));
}

#[test]
fn a_request_waits_for_its_dial_as_long_as_that_takes() {
    let (mut pool, now) = pool(PoolConfig::new().wait_timeout(ms(100)));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.handle_timeout(now + ms(5_000));
    assert!(pool.poll().is_none());
    pool.dialed(now + ms(5_000), permit, http1(5));
    assert_eq!(pool.delivered().0, 1);
}

#[test]
fn a_dial_that_is_faster_serves_the_first_and_the_slower_one_is_the_others() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    let (slow, fast) = (pool.permit(), pool.permit());
    pool.dialed(now, fast, http1(5));
    assert_eq!(pool.delivered().0, 1);
    pool.dial_failed(now, slow, "refused");
    assert_eq!(pool.failed().0, 2);
}

#[test]
fn idle_connections_close_after_the_idle_timeout_oldest_first() {
    let (mut pool, now) = pool(PoolConfig::new().idle_timeout(ms(100)));
    pool.open_idle(now, 1, 2);
    let (held, conn) = pool.ready(now + ms(60), 1);
    pool.release(now + ms(60), held, KEPT);
    assert_eq!(pool.next_timeout(), Some(now + ms(100)));
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.poll(), Some(Effect::Close(other)) if other != conn));
    assert!(pool.poll().is_none());
    assert_eq!(pool.next_timeout(), Some(now + ms(160)));
    pool.handle_timeout(now + ms(160));
    assert!(matches!(pool.poll(), Some(Effect::Close(other)) if other == conn));
    assert_eq!((pool.next_timeout(), pool.books().closing), (None, 2));
}

#[test]
fn idle_limits_close_the_longest_idle() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle_per_host(1).max_idle(2));
    pool.open_idle(now, 1, 2);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    assert_eq!(pool.books().idle, 1);
    pool.open_idle(now, 2, 1);
    pool.open_idle(now, 3, 1);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    assert!(
        matches!(pool.acquire(now, &1, None, false, || 0), Acquired::Wait(..)),
        "host 1 was the least recently used"
    );
}

#[test]
fn an_idle_limit_of_zero_keeps_none() {
    let (mut pool, now) = pool(PoolConfig::new().max_idle(0));
    pool.open_idle(now, 1, 1);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    assert_eq!(pool.books().idle, 0);
}

#[test]
fn an_idle_connection_that_closes_is_never_leased() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 1);
    pool.closed(now, ids[0]);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    pool.wait(now, 1, 7);
    pool.permit();
    pool.closed(now, ids[0]);
    assert_eq!(pool.books().places, 1, "the old number means nothing to the new connection");
}

#[test]
fn another_hosts_idle_connection_makes_room_under_the_total() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    let ids = pool.open_idle(now, 1, 2);
    pool.wait(now, 2, 7);
    assert!(matches!(pool.poll(), Some(Effect::Close(conn)) if conn == ids[0].serial));
    assert!(pool.poll().is_none());
    pool.closed(now, ids[0]);
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
    while let Some(effect) = pool.poll() {
        match effect {
            Effect::Dial(permit, _) => {
                let id = permit.id();
                pool.dialed(now, permit, http1(id.serial));
                let (waiter, held, _) = pool.delivered();
                served.push(waiter);
                pool.release(now, held, BROKEN);
                assert_eq!(pool.closes(), id.serial);
                pool.closed(now, id);
            }
            other => panic!("expected a dial: {other:?}"),
        }
    }
    // Request 1 was in line before host 2 came.
    assert_eq!(served, [0, 1, 10, 2, 11]);
}

#[test]
fn a_host_with_a_long_queue_and_all_the_connections_lets_others_have_their_share() {
    let (mut pool, mut now) = pool(PoolConfig::new().max_connections(4));
    let mut held = Vec::new();
    for waiter in 0..100 {
        pool.wait(now, 1, waiter);
    }
    for waiter in 1_000..1_100 {
        pool.wait(now, 2, waiter);
    }
    let (mut served, mut dials, mut open) = ([0; 2], 0, HashMap::new());
    for _ in 0..60 {
        while let Some(effect) = pool.poll() {
            match effect {
                Effect::Dial(permit, _) => {
                    dials += 1;
                    open.insert(permit.id().serial, permit.id());
                    let opened = http1(permit.id().serial);
                    pool.dialed(now, permit, opened);
                }
                Effect::Deliver { waiter, grant } => {
                    served[usize::from(waiter >= 1_000)] += 1;
                    held.push(grant.held);
                }
                Effect::Close(conn) => drop(pool.closed(now, open[&conn])),
                other => panic!("{other:?}"),
            }
        }
        now += ms(1_000);
        pool.release(now, held.remove(0), KEPT);
    }
    assert!(served[1] >= 25, "half of the requests, once the first ones are over: {served:?}");
    assert!(dials <= 8, "and connections are used again: {dials}");
}

#[test]
fn a_host_that_comes_last_has_its_turn_beside_two_that_never_rest() {
    let (mut pool, mut now) = pool(PoolConfig::new().max_connections(2));
    for host in [1, 2] {
        for waiter in 0..1_000 {
            pool.wait(now, host, waiter);
        }
    }
    pool.wait(now, 3, 10_000);
    let (mut held, mut open) = (VecDeque::new(), HashMap::new());
    for _ in 0..20 {
        while let Some(effect) = pool.poll() {
            match effect {
                Effect::Dial(permit, _) => {
                    open.insert(permit.id().serial, permit.id());
                    let opened = http1(permit.id().serial);
                    pool.dialed(now, permit, opened);
                }
                Effect::Deliver { waiter: 10_000, .. } => return,
                Effect::Deliver { grant, .. } => held.push_back(grant.held),
                Effect::Close(conn) => drop(pool.closed(now, open[&conn])),
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
    pool.closed(now + ms(100), ids[0]);
    assert!(matches!(pool.poll(), Some(Effect::Dial(_, 2))));
}

#[test]
fn a_request_that_was_refused_takes_the_same_connection_where_there_will_be_no_other() {
    let (mut pool, now) = pool(PoolConfig::new().max_http2_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let _stream = pool.delivered();
    assert!(matches!(pool.acquire(now, &MANY, Some(id.serial), false, || 1), Acquired::Wait(..)));
    assert_eq!(pool.delivered().0, 1, "rather than wait for the stream to end");
}

#[test]
fn a_request_that_comes_again_has_its_own_time_to_wait() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(100)));
    pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(5));
    let (_, held, _) = pool.delivered();
    pool.wait(now, 1, 1);
    pool.wait(now + ms(10), 1, 2);
    assert!(matches!(pool.acquire(now + ms(90), &1, Some(9), false, || 3), Acquired::Wait(..)));
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.failed(), (1, Failure::WaitTimeout { .. })));
    pool.handle_timeout(now + ms(110));
    assert!(
        matches!(pool.failed(), (2, Failure::WaitTimeout { .. })),
        "it stands in front of them, and keeps none waiting"
    );
    assert!(pool.poll().is_none());
    assert_eq!(pool.next_timeout(), Some(now + ms(190)));
    pool.handle_timeout(now + ms(190));
    assert!(matches!(pool.failed(), (3, Failure::WaitTimeout { waited, .. }) if waited == ms(100)));
    pool.release(now + ms(200), held, KEPT);
}

#[test]
fn a_connection_that_was_leased_in_vain_keeps_no_older_one_from_closing() {
    let (mut pool, now) = pool(PoolConfig::new().idle_timeout(ms(1_000)));
    pool.open_idle(now, 1, 2);
    let (held, _) = pool.ready(now, 1);
    pool.release(now + ms(800), held, KEPT);
    let (held, _) = pool.ready(now + ms(900), 1);
    pool.release(now + ms(900), held, Ended::Unused);
    pool.handle_timeout(now + ms(1_000));
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
}

#[test]
fn a_drain_gives_up_dials_that_nobody_needs_and_waits_for_calls_that_go_on() {
    let (mut pool, now) = pool(PoolConfig::new());
    let (first, second) = (pool.wait(now, 1, 0), pool.wait(now, 1, 1));
    let (one, other) = (pool.permit(), pool.permit());
    pool.abandon(now, first);
    pool.stay();
    pool.drain(now);
    assert!(matches!(pool.poll(), Some(Effect::Abort(id)) if id == one.id()));
    pool.abandon(now, second);
    assert!(matches!(pool.poll(), Some(Effect::Abort(id)) if id == other.id()));
    for permit in [one, other] {
        pool.dial_failed(now, permit, "lost");
    }
    assert!(!pool.is_drained(), "a call waits for its next attempt");
    assert!(matches!(pool.acquire(now, &1, None, true, || 2), Acquired::Wait(..)));
    pool.stay_no_longer();
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed(now, permit, http1(7));
    let (_, held, _) = pool.delivered();
    pool.release(now, held, KEPT);
    pool.closes();
    pool.closed(now, id);
    assert!(matches!(pool.poll(), Some(Effect::Drained)));
}

#[test]
fn warming_up_dials_no_more_at_once_than_the_window_allows() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    let mut most = 0;
    while pool.books().idle < 200 {
        pool.warm_up(now, &1, 200, 200);
        let permits: Vec<_> = std::iter::from_fn(|| pool.poll()).collect();
        assert!(!permits.is_empty() && permits.len() <= pool.hosts[0].pace.window());
        most = most.max(permits.len());
        now += ms(50);
        for effect in permits {
            let Effect::Dial(permit, _) = effect else { panic!("{effect:?}") };
            let opened = http1(permit.id().serial);
            pool.dialed(now, permit, opened);
        }
    }
    assert!(most > 64 && most < 200, "it grows as dials succeed: {most}");
}

#[test]
fn a_host_can_have_a_queue_of_its_own_length() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).max_waiting_per_host(2));
    pool.wait(now, 1, 0);
    for waiter in 1..3 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, None, false, || 3), Acquired::Refused(Limit::ConnectionsPerHost)));
    pool.wait(now, 2, 10);
}

#[test]
fn sockets_that_run_out_cost_the_connection_that_was_used_least_recently_wherever_it_leads() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = [1, 2, 3].map(|host| pool.open_idle(now + ms(host.into()), host, 1)[0].serial);
    let (held, _) = pool.ready(now + ms(10), 1);
    pool.release(now + ms(20), held, KEPT);
    pool.wait(now + ms(30), 4, 0);
    let permit = pool.permit();
    pool.dial_postponed(now + ms(30), permit);
    assert_eq!(pool.closes(), ids[1], "that of host 2: the first one has been used again");
}

#[test]
fn a_host_counts_what_became_of_its_connections() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 1, 2);
    pool.open_idle(now, 2, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now + ms(5), held, KEPT);
    pool.closed(now, ids[0]);
    let (_, books) = pool.host_books().find(|(host, _)| **host == 1).unwrap();
    assert_eq!((books.tally.opened, books.tally.reused, books.tally.closed[CloseCause::Peer as usize]), (2, 1, 1));
    assert_eq!((books.tally.queued.count(), books.tally.held.count()), (3, 3));
    assert_eq!(pool.books().tally.queued.count(), 4);
}

#[test]
fn requests_that_wait_too_long_fail() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(100)));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(5));
    let (_, held, _) = pool.delivered();
    pool.wait(now, 1, 2);
    pool.wait(now + ms(50), 1, 3);
    pool.handle_timeout(now + ms(100));
    assert!(matches!(pool.failed(), (2, Failure::WaitTimeout { .. })));
    assert_eq!(pool.next_timeout(), Some(now + ms(150)));
    pool.release(now + ms(120), held, KEPT);
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn only_so_many_may_wait_and_those_with_a_dial_do_not_count() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2).max_waiting(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, None, false, || 9), Acquired::Refused(_)));
    pool.wait(now, 2, 4);
    assert!(matches!(pool.acquire(now, &1, None, false, || 9), Acquired::Refused(_)));
}

#[test]
fn a_refused_request_leaves_no_host_behind() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1).max_waiting(0));
    pool.wait(now, 1, 0);
    assert!(matches!(pool.acquire(now, &2, None, false, || 9), Acquired::Refused(_)));
    assert_eq!(pool.hosts.len(), 1);
}

#[test]
fn a_connection_that_closed_while_leased_gives_its_place_at_once_and_is_not_kept() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.wait(now, 1, 3);
    pool.closed(now, ids[0]);
    let permit = pool.permit();
    pool.release(now, held, KEPT);
    assert!(matches!(pool.poll(), Some(Effect::Close(_))));
    pool.dialed(now, permit, http1(6));
    assert_eq!(pool.delivered().0, 3);
}

#[test]
fn a_connection_that_closed_before_its_dial_was_told_is_not_kept() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ticket = pool.wait(now, 1, 3);
    let permit = pool.permit();
    pool.abandon(now, ticket);
    pool.closed(now, permit.id());
    pool.dialed(now, permit, http1(6));
    assert!(matches!(pool.poll(), Some(Effect::Close(6))));
    assert_eq!((pool.books().places, pool.hosts.len()), (0, 0));
}

#[test]
fn a_request_that_comes_again_goes_in_front_and_takes_a_new_connection() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2));
    for waiter in 0..4 {
        pool.wait(now, 1, waiter);
    }
    assert!(matches!(pool.acquire(now, &1, Some(0), false, || 9), Acquired::Wait(..)));
    let (mut served, mut open, mut number) = (Vec::new(), HashMap::new(), 0);
    while let Some(effect) = pool.poll() {
        match effect {
            Effect::Dial(permit, _) => {
                number += 1;
                open.insert(number, permit.id());
                pool.dialed(now, permit, http1(number));
            }
            Effect::Deliver { waiter, grant } => {
                served.push((waiter, grant.requests));
                pool.release(now, grant.held, KEPT);
            }
            Effect::Close(conn) => drop(pool.closed(now, open[&conn])),
            other => panic!("{other:?}"),
        }
    }
    served.sort_unstable();
    let again = served.iter().find(|(waiter, _)| *waiter == 9);
    assert_eq!((served.len(), again), (5, Some(&(9, 0))), "{served:?}");
}

const MANY: u8 = 100;
const UNKNOWN: u8 = 200;

#[test]
fn requests_share_a_connection_that_has_seats() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..5 {
        pool.wait(now, MANY, waiter);
    }
    let permit = pool.permit();
    assert!(pool.poll().is_none(), "one connection is enough for them");
    pool.dialed_http2(now, permit, 100);
    for expected in 0..5 {
        let (waiter, _, conn) = pool.delivered();
        assert_eq!((waiter, conn), (expected, 7));
    }
    assert_eq!(pool.ready(now, MANY).1, 7);
    assert_eq!((pool.books().leased, pool.books().busy, pool.books().places), (6, 1, 1));
}

#[test]
fn the_peers_limit_and_the_configurations_count_whichever_is_less() {
    for (ours, theirs, seats) in [(100, 2, 2), (3, 100, 3), (100, usize::MAX, 100), (1, 1, 1)] {
        let config = PoolConfig::new().max_streams_per_connection(ours).max_http2_connections_per_host(1);
        let (mut pool, now) = pool(config);
        for waiter in 0..200 {
            pool.wait(now, MANY, waiter);
        }
        let permit = pool.permit();
        let id = permit.id();
        pool.dialed_http2(now, permit, 1);
        pool.reseat(now, id, theirs);
        assert_eq!(pool.books().leased, seats);
        assert_eq!(pool.limit(now, MANY, 999), Limit::Streams);
    }
}

#[test]
fn another_connection_is_dialled_when_all_seats_are_taken_up_to_the_limit() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(10));
    for waiter in 0..500 {
        pool.wait(now, MANY, waiter);
    }
    let permits: Vec<_> = (0..4).map(|_| pool.permit()).collect();
    assert!(pool.poll().is_none());
    for permit in permits {
        pool.dialed_http2(now, permit, 10);
    }
    assert_eq!((pool.books().leased, pool.books().places, pool.books().waiting), (40, 4, 460));
}

#[test]
fn until_the_peer_says_how_many_seats_there_are_it_gets_one_request_and_no_other_connection() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..3 {
        pool.wait(now, MANY, waiter);
    }
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed(now, permit, http2(7));
    assert_eq!(pool.delivered().0, 0);
    pool.wait(now, MANY, 3);
    assert!(pool.poll().is_none());
    pool.reseat(now, id, 1);
    pool.permit();
    assert_eq!(pool.books().dialling, 3, "one is not enough");
}

#[test]
fn fewer_seats_take_nothing_from_those_who_sit() {
    let (mut pool, now) = pool(PoolConfig::new().max_http2_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 3);
    let mut held = vec![pool.delivered().1, pool.ready(now, MANY).0, pool.ready(now, MANY).0];
    pool.reseat(now, id, 1);
    pool.wait(now, MANY, 4);
    for _ in 0..2 {
        pool.release(now, held.pop().unwrap(), KEPT);
        assert!(pool.poll().is_none(), "there is still somebody");
    }
    pool.release(now, held.pop().unwrap(), KEPT);
    assert_eq!(pool.delivered().0, 4);
    pool.reseat(now, id, 0);
    pool.wait(now, MANY, 5);
    assert!(pool.poll().is_none());
    pool.reseat(now, id, 2);
    assert_eq!(pool.delivered().0, 5);
}

#[test]
fn a_connection_that_the_peer_retires_finishes_what_it_has() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 3);
    let (first, second) = (pool.delivered().1, pool.ready(now, MANY).0);
    pool.retire(now, id, CloseCause::PeerAsked);
    assert!(matches!(pool.poll(), Some(Effect::Retired(retired, CloseCause::PeerAsked)) if retired == id));
    pool.wait(now, MANY, 1);
    pool.permit();
    pool.release(now, first, KEPT);
    assert!(pool.poll().is_none(), "one is left on it");
    pool.release(now, second, KEPT);
    assert_eq!(pool.closes(), 7);
    assert_eq!(pool.closed(now, id), CloseCause::PeerAsked);
}

#[test]
fn a_host_of_unknown_protocol_is_dialled_once_and_then_as_it_turns_out() {
    for (many, dials) in [(false, 3), (true, 0)] {
        let (mut pool, now) = pool(PoolConfig::new());
        for waiter in 0..4 {
            pool.wait(now, UNKNOWN, waiter);
        }
        let permit = pool.permit();
        assert!(pool.poll().is_none());
        assert_eq!(pool.kept_waiting_by(1), Limit::Dials);
        match many {
            true => pool.dialed_http2(now, permit, 100),
            false => drop(pool.dialed(now, permit, http1(7))),
        }
        assert_eq!(pool.books().dialling, dials);
        assert_eq!(pool.books().leased, 4 - dials);
    }
}

#[test]
fn a_host_that_is_slow_to_show_its_protocol_does_not_hold_everybody_up() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..4 {
        pool.wait(now, UNKNOWN, waiter);
    }
    pool.permit();
    pool.handle_timeout(now + ms(999));
    assert!(pool.poll().is_none());
    for (seconds, dials) in [(1, 2), (2, 1)] {
        pool.handle_timeout(now + ms(seconds * 1_000));
        assert_eq!((0..dials).map(|_| pool.permit()).count(), dials);
        assert!(pool.poll().is_none());
    }
}

#[test]
fn dials_begin_few_and_grow_with_their_success_while_requests_wait() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..1_000 {
        pool.wait(now, 1, waiter);
    }
    assert_eq!(pool.books().dialling, 16);
    let mut succeed = |at: u64, dials: usize| {
        let mut permits = Vec::new();
        while let Some(effect) = pool.poll() {
            if let Effect::Dial(permit, _) = effect {
                permits.push(permit);
            }
        }
        for permit in permits.drain(..dials) {
            pool.dialed(now + ms(at), permit, http1(5));
        }
        let dialling = pool.books().dialling;
        for permit in permits {
            pool.dial_failed(now + ms(at), permit, "refused");
        }
        dialling
    };
    assert_eq!(succeed(50, 16), 32, "as slow start has it, where the server is far away");
    assert_eq!(succeed(51, 32), 32, "no more than twice as many in 25 ms");
    assert_eq!(succeed(100, 32), 64);
    assert_eq!(succeed(150, 1), 65);
}

#[test]
fn dials_do_not_become_more_where_freed_connections_do_as_well() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..1_000 {
        pool.wait(now, 1, waiter);
    }
    let mut most = 0;
    for at in 0..60 {
        let at = now + ms(at);
        // Dials take a moment, requests another one.
        let effects: Vec<_> = std::iter::from_fn(|| pool.poll()).collect();
        for effect in effects {
            match effect {
                Effect::Dial(permit, _) => drop(pool.dialed(at, permit, http1(5))),
                Effect::Deliver { grant, .. } => pool.release(at, grant.held, KEPT),
                other => panic!("{other:?}"),
            }
        }
        most = most.max(pool.books().dialling);
    }
    assert!(most <= 16, "{most} at the same time");
}

#[test]
fn dials_that_take_long_do_not_count() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..100 {
        pool.wait(now, 1, waiter);
    }
    for second in 1..4 {
        pool.handle_timeout(now + ms(second * 1_000));
        assert_eq!(pool.books().dialling as u64, 16 * (second + 1));
    }
}

#[test]
fn the_limit_of_dials_holds() {
    let (mut pool, now) = pool(PoolConfig::new().max_dials_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    for _ in 0..3 {
        let permit = pool.permit();
        assert!(pool.poll().is_none());
        pool.dialed(now, permit, http1(5));
        pool.delivered();
    }
}

#[test]
fn a_request_whose_dial_finds_no_sockets_waits_on_in_its_place() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 2, 1);
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let permits: Vec<_> = (0..3).map(|_| pool.permit()).collect();
    let mut permits = permits.into_iter();
    pool.dial_postponed(now, permits.next().unwrap());
    assert_eq!(pool.closes(), ids[0].serial, "an idle connection gives its socket back");
    assert!(pool.poll().is_none(), "it is not tried again at once");
    assert_eq!(pool.limit(now, 1, 3), Limit::Descriptors);
    // The order in line stays as it was.
    let mut served = Vec::new();
    for permit in permits {
        pool.dialed(now, permit, http1(5));
    }
    pool.closed(now, ids[0]);
    while let Some(effect) = pool.poll() {
        match effect {
            Effect::Dial(permit, _) => drop(pool.dialed(now, permit, http1(6))),
            Effect::Deliver { waiter, .. } => served.push(waiter),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(served, [0, 1, 2, 3]);
}

#[test]
fn want_of_sockets_is_told_only_when_the_wait_is_over() {
    let (mut pool, now) = pool(PoolConfig::new().wait_timeout(ms(3_000)));
    pool.wait(now, 1, 0);
    let mut at = now;
    let mut tries = 0;
    loop {
        match pool.poll() {
            Some(Effect::Dial(permit, _)) => {
                tries += 1;
                pool.dial_postponed(at, permit);
            }
            Some(Effect::Fail { waiter: 0, why: Failure::WaitTimeout { waited, limit } }) => {
                assert_eq!((waited, limit), (ms(3_000), Limit::Descriptors));
                break;
            }
            None => {
                at = pool.next_timeout().expect("it is tried again");
                pool.handle_timeout(at);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((5..10).contains(&tries), "{tries} tries in 3 s");
    pool.handle_timeout(at + ms(10_000));
    assert_eq!((pool.hosts.len(), pool.alarms.len()), (0, 0));
}

#[test]
fn a_connection_ends_with_its_lifetime_give_or_take_a_tenth() {
    let jittered: Vec<_> = (1..1_000).map(|serial| conn::jittered(ms(1_000), serial).as_millis()).collect();
    assert!(jittered.iter().all(|time| (900..=1_100).contains(time)));
    assert!([900, 950, 1_000, 1_050].iter().all(|from| jittered.iter().any(|time| (*from..from + 50).contains(time))));
    let (mut pool, now) = pool(PoolConfig::new().lifetime(ms(1_000)));
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now + ms(899), 1);
    pool.release(now + ms(1_101), held, KEPT);
    pool.closes();
    assert_eq!(pool.books().closing, 1, "after the request it carries");
}

#[test]
fn a_connection_carries_so_many_requests_and_no_more() {
    let (mut pool, now) = pool(PoolConfig::new().max_requests_per_connection(2));
    let ids = pool.open_idle(now, 1, 1);
    let (held, conn) = pool.ready(now, 1);
    assert!(matches!(pool.poll(), Some(Effect::Retired(_, CloseCause::Requests))));
    pool.release(now, held, KEPT);
    assert_eq!(pool.closes(), conn);
    assert_eq!(pool.closed(now, ids[0]), CloseCause::Requests);
    assert_eq!(pool.books().tally.closed[CloseCause::Requests as usize], 1);
}

#[test]
fn the_server_says_how_long_it_keeps_a_connection() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 2);
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, Ended::Kept { keep_alive: Some(ms(4_000)) });
    pool.handle_timeout(now + ms(1_000));
    assert_eq!(pool.next_timeout(), Some(now + ms(4_000)));
    pool.handle_timeout(now + ms(4_000));
    assert_eq!(pool.books().closing, 2);
}

#[test]
fn the_age_at_which_the_server_closes_is_learned() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    for _ in 0..2 {
        let ids = pool.open_idle(now, 1, 1);
        now += ms(5_000);
        assert_eq!(pool.closed(now, ids[0]), CloseCause::Peer);
        pool.closes();
    }
    assert!(pool.hosts.is_empty(), "the host itself is forgotten");
    pool.open_idle(now, 1, 1);
    pool.handle_timeout(now + ms(1_000));
    assert_eq!(pool.next_timeout(), Some(now + ms(4_000)));
}

#[test]
fn a_host_that_is_always_busy_with_shared_connections_makes_room_too() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (first, second) = (pool.delivered().1, pool.ready(now, MANY).0);
    pool.wait(now, 1, 10);
    pool.release(now, first, KEPT);
    assert!(matches!(pool.poll(), Some(Effect::Retired(_, CloseCause::MadeRoom))));
    pool.release(now, second, KEPT);
    assert_eq!(pool.closes(), 7);
    pool.closed(now, id);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(8));
    assert_eq!(pool.delivered().0, 10);
}

#[test]
fn a_drained_pool_serves_who_is_there_and_nobody_else() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 2, 1);
    pool.wait(now, 1, 0);
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    let id = permit.id();
    pool.drain(now);
    assert_eq!(pool.closes(), ids[0].serial);
    pool.closed(now, ids[0]);
    assert!(matches!(pool.acquire(now, &1, None, false, || 9), Acquired::Refused(Limit::Draining)));
    pool.dialed(now, permit, http1(5));
    for expected in [0, 1] {
        let (waiter, held, _) = pool.delivered();
        assert_eq!(waiter, expected);
        pool.release(now, held, KEPT);
    }
    assert_eq!(pool.closes(), 5);
    assert!(!pool.is_drained());
    pool.closed(now, id);
    assert!(pool.is_drained() && matches!(pool.poll(), Some(Effect::Drained)));
}

#[test]
fn warming_up_dials_what_is_missing_and_no_more_than_the_limits_allow() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(5));
    pool.open_idle(now, 1, 2);
    let WarmUp { open, dialled, dials } = pool.warm_up(now, &1, 2, 2);
    assert_eq!((open, dialled, dials.len()), (2, 0, 0));
    let WarmUp { open, dialled, dials } = pool.warm_up(now, &1, 9, 9);
    assert_eq!((open, dialled, dials.len()), (2, 3, 3));
    assert_eq!(pool.warm_up(now, &1, 9, 9).dials.len(), 3, "they are under way");
    for _ in 0..2 {
        let permit = pool.permit();
        pool.dialed(now, permit, http1(9));
    }
    let permit = pool.permit();
    assert_eq!(pool.dial_failed(now, permit, "refused"), Some("refused"));
    assert_eq!(pool.books().idle, 4);
    let (mut pool, now) = self::pool(PoolConfig::new().max_idle(2));
    assert_eq!(pool.warm_up(now, &1, 9, 9).dialled, 2, "what is not kept need not be dialled");
    assert_eq!(pool.warm_up(now, &UNKNOWN, 9, 9).dialled, 1, "one may do");
}

#[test]
fn a_host_at_the_front_of_the_ring_yields_like_any_other() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(1));
    pool.open_idle(now, 1, 1);
    let (mut held, _) = pool.ready(now, 1);
    pool.wait(now, 1, 0);
    pool.wait(now, 2, 20);
    for waiter in 1..10 {
        pool.wait(now, 1, waiter);
        pool.release(now, held, KEPT);
        held = match pool.poll() {
            Some(Effect::Deliver { grant, .. }) => grant.held,
            Some(Effect::Close(_)) => return assert_eq!(waiter, 2, "after the one that came before"),
            other => panic!("{other:?}"),
        };
    }
    panic!("host 2 never has its turn");
}

#[test]
fn a_long_goodbye_keeps_no_turn_from_coming() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2));
    let ids = pool.open_idle(now, 1, 2);
    let (held, _) = pool.ready(now, 1);
    let (_download, _) = pool.ready(now, 1);
    pool.retire(now, ids[0], CloseCause::PeerAsked);
    pool.poll();
    pool.wait(now, 2, 20);
    pool.wait(now, 1, 10);
    pool.release(now, held, KEPT);
    pool.closes();
}

#[test]
fn what_the_peer_says_before_its_connection_is_in_the_books_counts() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..10 {
        pool.wait(now, MANY, waiter);
    }
    let permit = pool.permit();
    pool.reseat(now, permit.id(), 100);
    pool.dialed(now, permit, http2(5));
    assert_eq!(pool.books().leased, 10);

    for (seats, leased) in [(Some(0), 1), (None, 1)] {
        let (mut pool, now) = self::pool(PoolConfig::new().max_http2_connections_per_host(1));
        pool.wait(now, MANY, 0);
        pool.wait(now, MANY, 1);
        let permit = pool.permit();
        match seats {
            Some(seats) => pool.reseat(now, permit.id(), seats),
            None => pool.retire(now, permit.id(), CloseCause::PeerAsked),
        }
        pool.dialed(now, permit, http2(5));
        assert_eq!(pool.books().leased, leased, "the one it was dialled for finds out");
        assert!(matches!(pool.acquire(now, &MANY, None, false, || 9), Acquired::Wait(..)));
    }
}

#[test]
fn a_drain_does_not_wait_for_what_nobody_needs() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ticket = pool.wait(now, 1, 0);
    let permit = pool.permit();
    pool.abandon(now, ticket);
    pool.drain(now);
    assert!(matches!(pool.poll(), Some(Effect::Abort(_))));
    // It may be too late for that.
    pool.dialed(now, permit, http1(5));
    assert_eq!(pool.closes(), 5);
}

#[test]
fn a_host_of_unknown_protocol_whose_dials_fail_is_dialled_more_and_more() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..100 {
        pool.wait(now, UNKNOWN, waiter);
    }
    let mut rounds = Vec::new();
    while pool.books().waiting > 0 {
        let mut permits = Vec::new();
        while let Some(effect) = pool.poll() {
            if let Effect::Dial(permit, _) = effect {
                permits.push(permit);
            }
        }
        rounds.push(permits.len());
        for permit in permits {
            pool.dial_failed(now, permit, "refused");
        }
    }
    assert!(rounds.len() < 10, "{rounds:?}");
}

#[test]
fn connections_that_turn_out_to_be_too_many_for_http2_close_when_they_are_idle() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..10 {
        pool.wait(now, UNKNOWN, waiter);
    }
    for second in 1..5 {
        pool.handle_timeout(now + ms(second * 1_000));
    }
    let mut held = Vec::new();
    while let Some(effect) = pool.poll() {
        match effect {
            Effect::Dial(permit, _) => drop(pool.dialed(now, permit, http2(7))),
            Effect::Deliver { grant, .. } => held.push(grant.held),
            _ => {}
        }
    }
    assert_eq!((held.len(), pool.books().busy), (10, 10));
    for held in held {
        pool.release(now, held, KEPT);
    }
    assert_eq!(pool.books().idle, 4);
}

#[test]
fn a_lease_that_was_not_used_leaves_the_connections_age_as_it_was() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now + ms(10_000), 1);
    pool.release(now + ms(10_001), held, Ended::Unused);
    pool.handle_timeout(now + ms(50_000));
    assert_eq!(pool.books().idle, 0);
}

#[test]
fn connections_to_an_address_that_dns_has_left_end() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
    let location = |last| Some(Location { name: "a.test".into(), ip: ip(last) });
    for waiter in 0..2 {
        pool.wait(now, 1, waiter);
    }
    let (one, two) = (pool.permit(), pool.permit());
    let ids = [one.id(), two.id()];
    assert!(pool.dialed(now, one, Opened { location: location(1), ..http1(5) }), "its answers are not known");
    pool.dialed(now, two, Opened { location: location(2), ..http1(6) });
    let (busy, idle) = (pool.delivered().1, pool.delivered().1);
    pool.release(now, idle, KEPT);
    let answer = |ips: &[u8], serial| Addresses {
        family: Family::V4,
        ips: ips.iter().map(|last| ip(*last)).collect(),
        ttl: ms(2_000),
        serial: Some(serial),
    };
    pool.answered(now, "a.test", &answer(&[1, 2], 1), true);
    pool.answered(now + ms(2_000), "a.test", &answer(&[3], 2), true);
    pool.handle_timeout(now + ms(2_000));
    assert_eq!(pool.next_timeout(), Some(now + ms(4_500)));
    pool.handle_timeout(now + ms(4_500));
    assert!(matches!(pool.poll(), Some(Effect::Ask(name)) if *name == *"a.test"), "is it so still?");
    pool.answered(now + ms(4_500), "a.test", &answer(&[3], 2), true);
    let mut ended = Vec::new();
    while let Some(effect) = pool.poll() {
        match effect {
            Effect::Retired(id, CloseCause::Dns) => ended.push(id),
            Effect::Close(conn) => assert_eq!(conn, 6, "the idle one"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ended, [ids[0]]);
    pool.release(now + ms(5_000), busy, KEPT);
    assert_eq!(pool.closes(), 5);
    assert_eq!(ids.map(|id| pool.closed(now, id)), [CloseCause::Dns; 2]);
    assert!(pool.names().is_empty() && pool.hosts.is_empty());
}

#[test]
fn a_server_that_asks_for_calm_is_not_dialled_for_a_while_and_for_longer_each_time() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    for pause in [200, 400, 800] {
        pool.wait(now, MANY, 0);
        let permit = pool.permit();
        let id = permit.id();
        pool.dialed_http2(now, permit, 100);
        let (_, held, _) = pool.delivered();
        pool.calm(now, id, 1.0);
        assert!(matches!(pool.poll(), Some(Effect::Retired(_, CloseCause::PeerAsked))));
        pool.release(now, held, BROKEN);
        pool.closes();
        pool.closed(now, id);
        // The host itself is forgotten meanwhile.
        assert_eq!((pool.hosts.len(), pool.limit(now, MANY, 1)), (0, Limit::Calm));
        assert!(pool.poll().is_none());
        now += ms(pause);
        assert_eq!(pool.next_timeout(), Some(now));
        pool.handle_timeout(now);
        let permit = pool.permit();
        pool.dial_failed(now, permit, "refused");
        pool.failed();
    }
}

#[test]
fn a_server_that_asks_for_calm_goes_on_with_the_connections_it_has() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(1));
    pool.wait(now, MANY, 0);
    pool.wait(now, MANY, 1);
    let (first, second) = (pool.permit(), pool.permit());
    let id = first.id();
    pool.dialed_http2(now, first, 1);
    pool.dialed_http2(now, second, 1);
    let (_, held) = (pool.delivered(), pool.delivered().1);
    pool.calm(now, id, 1.0);
    pool.poll();
    pool.wait(now, MANY, 2);
    assert!(pool.poll().is_none(), "no dial");
    pool.release(now, held, KEPT);
    assert_eq!(pool.delivered().0, 2);
}

#[test]
fn a_connection_that_others_share_serves_on_until_there_is_room_for_another_one() {
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
    assert_eq!(conn, 7, "after a timeout, and beyond its lifetime");
    pool.release(later, next, KEPT);
    assert!(pool.poll().is_none());
    pool.release(later, long, KEPT);
    assert_eq!(pool.closes(), 7, "now it is in nobody's way");
    pool.wait(later, MANY, 1);
    assert_eq!(pool.closed(later, id), CloseCause::Unfinished);
    pool.permit();
}

#[test]
fn a_connection_that_is_due_goes_as_soon_as_there_is_room() {
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
    assert!(pool.poll().is_none(), "the other host has the other connection");
    pool.closed(now, others[0]);
    pool.wait(now, MANY, 1);
    assert!(matches!(pool.poll(), Some(Effect::Retired(due, CloseCause::Unfinished)) if due == id));
    pool.permit();
}

#[test]
fn a_connection_that_its_peer_retires_takes_no_more_requests_whatever_room_there_is() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 100);
    let (_, _long, _) = pool.delivered();
    let (refused, _) = pool.ready(now, MANY);
    pool.release(now, refused, Ended::Retire(CloseCause::Peer));
    assert!(matches!(pool.poll(), Some(Effect::Retired(_, CloseCause::Peer))));
    assert_eq!(pool.limit(now, MANY, 1), Limit::ConnectionsPerHost);
}

const ONCE: Wish = Wish { failed_on: None, begun: false, once: true, home: Home(0), own: false };

#[test]
fn a_host_that_cuts_gets_what_must_be_sent_once_on_rested_or_new_connections() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.open_idle(now, 1, 3);
    let Acquired::Ready(grant) = pool.checkout(now + ms(1), &1, ONCE, || 0) else { panic!("nothing is known of it") };
    pool.release(now + ms(2), grant.held, Ended::Cut { idle: ms(3) });
    pool.closes();
    assert!(matches!(pool.checkout(now + ms(10), &1, ONCE, || 1), Acquired::Wait(..)));
    let permit = pool.permit();
    // What may be sent twice takes any, and what is freed goes to the next one that does.
    let (held, _) = pool.ready(now + ms(10), 1);
    pool.release(now + ms(11), held, KEPT);
    assert!(pool.poll().is_none());
    pool.dialed(now + ms(12), permit, http1(9));
    assert!(matches!(pool.delivered(), (1, _, 9)));
    // Of the two that are left, one was idle from the start.
    let rested = pool.checkout(now + ms(51), &1, ONCE, || 2);
    assert!(matches!(rested, Acquired::Ready(Grant { idle, .. }) if idle == ms(51)), "{rested:?}");
    assert!(matches!(pool.checkout(now + ms(52), &1, ONCE, || 3), Acquired::Wait(..)));
}

#[test]
fn a_host_that_cuts_is_trusted_again_when_it_has_behaved_for_a_minute() {
    for behaves in [true, false] {
        let (mut pool, now) = pool(PoolConfig::new());
        let ids = pool.open_idle(now, 1, 3);
        let (held, _) = pool.ready(now, 1);
        pool.release(now, held, Ended::Cut { idle: ms(0) });
        if !behaves {
            // It closes another one as soon as it is idle.
            let later = now + ms(30_000);
            let (held, _) = pool.ready(later, 1);
            let id = *ids.iter().find(|id| id.serial == held.connection()).unwrap();
            pool.release(later, held, KEPT);
            pool.closed(later, id);
        }
        let then = now + ms(60_000);
        let (held, _) = pool.ready(then, 1);
        pool.release(then, held, KEPT);
        let taken = matches!(pool.checkout(then + ms(1), &1, ONCE, || 1), Acquired::Ready(_));
        assert_eq!(taken, behaves);
    }
}

#[test]
fn under_a_limit_a_host_that_cuts_makes_room_for_what_must_be_sent_once() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, Ended::Cut { idle: ms(0) });
    pool.closes();
    pool.closed(now, ids[0]);
    let ids = pool.open_idle(now, 1, 1);
    assert!(matches!(pool.checkout(now, &1, ONCE, || 7), Acquired::Wait(..)));
    pool.closes();
    assert_eq!(pool.closed(now, ids[0]), CloseCause::MadeRoom);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(9));
    assert!(matches!(pool.delivered(), (7, _, 9)));
}

#[test]
fn a_connection_that_is_due_goes_where_an_idle_one_can_make_room() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(2).lifetime(ms(1_000)));
    let others = pool.open_idle(now, 1, 1);
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (_, _long, _) = pool.delivered();
    let later = now + ms(2_000);
    pool.wait(later, MANY, 1);
    assert!(matches!(pool.poll(), Some(Effect::Retired(due, CloseCause::Lifetime)) if due == id));
    assert!(matches!(pool.poll(), Some(Effect::Close(_))), "the other host's connection makes room");
    pool.closed(later, others[0]);
    pool.permit();
}

#[test]
fn a_host_that_cuts_is_remembered_before_it_is_known_again_what_it_speaks() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, UNKNOWN, 1);
    let (held, _) = pool.ready(now, UNKNOWN);
    pool.release(now, held, Ended::Cut { idle: ms(0) });
    pool.closes();
    pool.closed(now, ids[0]);
    assert!(pool.hosts.is_empty());
    for waiter in [1, 2] {
        assert!(matches!(pool.checkout(now, &UNKNOWN, ONCE, || waiter), Acquired::Wait(..)));
    }
    let permit = pool.permit();
    assert!(pool.poll().is_none(), "the first connection will show what it speaks");
    pool.dialed(now, permit, http1(9));
    let (waiter, held, _) = pool.delivered();
    let other = pool.permit();
    pool.release(now, held, KEPT);
    assert!(waiter == 1 && pool.poll().is_none(), "it has not rested");
    pool.dialed(now, other, http1(10));
    assert!(matches!(pool.delivered(), (2, _, 10)));
}

#[test]
fn a_request_that_comes_again_takes_an_idle_connection_while_its_server_wants_calm() {
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
        pool.calm(now, id, 1.0);
        pool.release(now, refused, Ended::Retire(CloseCause::Peer));
        let again = pool.acquire(now, &MANY, Some(failed_on), true, || 2);
        assert!(matches!(again, Acquired::Ready(_)), "{limit}: {again:?}");
    }
}

#[test]
fn a_host_that_cuts_refuses_no_request_beside_an_idle_connection() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).max_waiting(0));
    let ids = pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.release(now, held, Ended::Cut { idle: ms(0) });
    pool.closes();
    pool.closed(now, ids[0]);
    pool.open_idle(now, 1, 1);
    let taken = pool.checkout(now, &1, ONCE, || 7);
    assert!(matches!(taken, Acquired::Ready(_)), "{taken:?}");
}

#[test]
fn http1_connections_do_not_count_as_http2_connections() {
    let (mut pool, now) = pool(PoolConfig::new());
    // Servers of one host that do not agree: long requests hold five connections that speak HTTP/1, and a sixth speaks HTTP/2.
    for waiter in 0..5 {
        pool.wait(now, UNKNOWN, waiter);
        let permit = pool.permit();
        pool.dialed(now, permit, http1(u64::from(waiter)));
        pool.delivered();
    }
    pool.wait(now, UNKNOWN, 5);
    let permit = pool.permit();
    let id = permit.id();
    pool.dialed_http2(now, permit, 100);
    let (_, held, _) = pool.delivered();
    pool.release(now, held, KEPT);
    assert!(pool.poll().is_none(), "it is the only one that speaks HTTP/2, and is kept");
    pool.closed(now, id);
    assert_eq!(pool.closes(), 7);
    pool.wait(now, UNKNOWN, 6);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(9));
    assert_eq!(pool.delivered().0, 6);
}

#[test]
fn a_kept_http1_connection_of_a_host_that_cuts_has_to_rest_though_others_speak_http2() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut held = Vec::new();
    for waiter in 0..3 {
        pool.wait(now, UNKNOWN, waiter);
        let permit = pool.permit();
        match waiter {
            2 => pool.dialed_http2(now, permit, 1),
            _ => drop(pool.dialed(now, permit, http1(u64::from(waiter)))),
        }
        held.push(pool.delivered().1);
    }
    pool.release(now, held.remove(0), Ended::Cut { idle: ms(3) });
    assert_eq!(pool.closes(), 0);
    pool.release(now, held.remove(0), KEPT);
    let checked_out = pool.checkout(now + ms(10), &UNKNOWN, ONCE, || 9);
    assert!(matches!(checked_out, Acquired::Wait(..)), "{checked_out:?}");
    pool.permit();
}

#[test]
fn a_kept_http2_connection_need_not_rest_though_others_speak_http1() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, UNKNOWN, 0);
    let permit = pool.permit();
    pool.dialed(now, permit, http1(5));
    let (_, cut, _) = pool.delivered();
    pool.wait(now, UNKNOWN, 1);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 100);
    let (_, shared, _) = pool.delivered();
    pool.release(now, shared, KEPT);
    // One that comes again takes no idle connection; its own speaks HTTP/1, and is the last that was opened.
    assert!(matches!(pool.acquire(now, &UNKNOWN, Some(0), false, || 2), Acquired::Wait(..)));
    let permit = pool.permit();
    pool.dialed(now, permit, http1(6));
    assert_eq!(pool.delivered().2, 6);
    pool.release(now, cut, Ended::Cut { idle: ms(3) });
    assert_eq!(pool.closes(), 5);
    let checked_out = pool.checkout(now + ms(1), &UNKNOWN, ONCE, || 3);
    assert!(matches!(checked_out, Acquired::Ready(Grant { conn: 7, .. })), "{checked_out:?}");
}

#[test]
fn a_request_that_failed_before_waits_for_its_dial_rather_than_take_an_http2_connection_that_was_just_given_back() {
    let (mut pool, now) = pool(PoolConfig::new().max_streams_per_connection(1));
    pool.wait(now, MANY, 0);
    let permit = pool.permit();
    pool.dialed_http2(now, permit, 1);
    let held = pool.delivered().1;
    assert!(matches!(pool.acquire(now, &MANY, Some(99), true, || 1), Acquired::Wait(..)));
    let dial = pool.permit();
    pool.release(now, held, KEPT);
    assert!(pool.poll().is_none());
    pool.dial_postponed(now, dial);
    assert_eq!(pool.delivered().0, 1, "it has no dial any more");
}
