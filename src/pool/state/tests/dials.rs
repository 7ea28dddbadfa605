//! Dials: how many begin, which are slow, what their failures mean.

use super::*;

impl Pool {
    /// Takes the dials that have begun.
    fn dials(&mut self) -> Vec<Permit> {
        std::iter::from_fn(|| self.next_effect())
            .map(|effect| match effect {
                Effect::Dial(permit, ..) => permit,
                other => panic!("expected a dial: {other:?}"),
            })
            .collect()
    }

    /// Takes all effects, and returns the dials that have begun.
    fn dials_only(&mut self) -> Vec<Permit> {
        let effects = std::iter::from_fn(|| self.next_effect());
        let dials =
            effects.filter_map(|effect| if let Effect::Dial(permit, ..) = effect { Some(permit) } else { None });
        dials.collect()
    }

    /// Takes all effects, and returns the requests that have failed.
    fn failures(&mut self) -> Vec<(u32, WaitFailure<&'static str>)> {
        let mut failures = Vec::new();
        while let Some(effect) = self.next_effect() {
            if let Effect::Fail { waiter, why } = effect {
                failures.push((waiter, why));
            }
        }
        failures
    }

    /// Takes all effects, and returns the dials that were given up.
    fn given_up(&mut self) -> Vec<ConnId> {
        let mut given_up = Vec::new();
        while let Some(effect) = self.next_effect() {
            if let Effect::AbortDial(id) = effect {
                given_up.push(id);
            }
        }
        given_up
    }

    /// Has a request wait with a connect timeout of its own.
    fn wait_for(&mut self, now: Instant, host: u8, waiter: u32, connect: Duration) -> WaiterId {
        let limits = WaitLimits { connect, ends_dials: true, queue: None };
        match self.checkout(now, &host, &Wish::default(), 0, || (waiter, limits)) {
            Acquired::Wait(id, _) => id,
            other => panic!("expected to wait: {other:?}"),
        }
    }

    /// Handles everything that is due until a time.
    pub(super) fn run_until(&mut self, until: Instant) {
        while let Some(at) = self.next_timeout().filter(|at| *at <= until) {
            self.handle_timeout(at);
        }
    }
}

fn is_connect_timeout(why: &WaitFailure<&'static str>) -> bool {
    matches!(why, WaitFailure::Connect { .. })
}

// A failure is told to those whom it concerns.

#[test]
fn a_failed_dial_fails_its_own_request_and_the_next_one_is_dialled_for() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let mut failed = Vec::new();
    for round in 1..4 {
        let permit = pool.permit();
        pool.dial_failed(now + ms(round), permit, "refused");
        // The next dial begins at once, and the request waits for that as well.
        assert_eq!(pool.counters().dialling, usize::from(round < 3));
        let next = pool.effects.iter().filter(|effect| matches!(effect, Effect::Dial(..))).count();
        let fails = pool.effects.len() - next;
        pool.effects.rotate_left(next);
        failed.extend((0..fails).map(|_| pool.failed().0));
    }
    assert_eq!(failed, [0, 1, 2]);
    assert!(pool.next_effect().is_none() && pool.hosts.slab.is_empty());
}

#[test]
fn a_dial_whose_request_left_serves_the_next_one_but_its_failure_does_not() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    let first = pool.wait(now, 1, 1);
    let permit = pool.permit();
    assert_eq!(pool.abandon(now, first, AbandonCause::Cancelled), Some(1));
    assert_eq!(pool.abandon(now, first, AbandonCause::Cancelled), None);
    pool.wait(now, 1, 2);
    assert!(pool.next_effect().is_none(), "the dial in flight is enough");
    pool.dial_succeeded(now, permit, http1(5));
    assert_eq!(pool.delivered().0, 2);

    let third = pool.wait(now, 2, 3);
    let permit = pool.permit();
    pool.abandon(now, third, AbandonCause::Cancelled);
    pool.wait(now, 2, 4);
    pool.dial_failed(now, permit, "refused");
    let own = pool.permit();
    assert!(pool.next_effect().is_none(), "the dial began before the request came");
    pool.dial_failed(now, own, "refused");
    assert_eq!(pool.failed().0, 4);
}

#[test]
fn the_first_dial_to_succeed_serves_the_first_request_and_the_failure_of_its_own_dial_concerns_nobody() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    let (slow, fast) = (pool.permit(), pool.permit());
    pool.dial_succeeded(now, fast, http1(5));
    assert_eq!(pool.delivered().0, 1);
    pool.dial_failed(now, slow, "refused");
    let own = pool.permit();
    assert!(pool.next_effect().is_none(), "the second request has another dial");
    pool.dial_succeeded(now, own, http1(6));
    assert_eq!(pool.delivered().0, 2);
}

#[test]
fn a_request_whose_dial_failed_waits_for_the_dials_that_were_in_flight_and_for_100_ms() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let mut dials = pool.dials();
    pool.dial_failed(now + ms(1), dials.remove(0), "refused");
    assert!(pool.failures().is_empty());
    pool.dial_succeeded(now + ms(2), dials.remove(0), http1(5));
    let (waiter, held, _) = pool.delivered();
    assert_eq!(waiter, 0, "the first in the queue, although its own dial failed");
    pool.dial_failed(now + ms(3), dials.remove(0), "refused");
    pool.run_until(now + ms(101));
    assert!(pool.failures().is_empty(), "a connection was opened within 100 ms");
    pool.release(now + ms(101), held, KEPT);
    assert_eq!(pool.delivered().0, 1);
    pool.run_until(now + ms(200));
    assert!(pool.failures().is_empty(), "one became free within 100 ms");
    pool.run_until(now + ms(201));
    let failures = pool.failures();
    assert!(matches!(failures[..], [(2, WaitFailure::Dial("refused"))]), "{failures:?}");
}

#[test]
fn one_refusing_backend_of_four_fails_no_request() {
    for host in [1, MANY, UNKNOWN] {
        let (mut pool, now) = pool(PoolConfig::new());
        for waiter in 0..20 {
            pool.wait(now, host, waiter);
        }
        let (mut at, mut served, mut number) = (now, 0, 0);
        while served < 20 {
            at += ms(1);
            pool.run_until(at);
            while let Some(effect) = pool.next_effect() {
                match effect {
                    Effect::Dial(permit, ..) if number % 4 == 0 => drop(pool.dial_failed(at, permit, "refused")),
                    Effect::Dial(permit, ..) if host == MANY => pool.dialed_http2(at, permit, 1),
                    Effect::Dial(permit, ..) => drop(pool.dial_succeeded(at, permit, http1(5))),
                    Effect::Deliver { grant, .. } => {
                        served += 1;
                        pool.release(at, grant.token, KEPT);
                        continue;
                    }
                    Effect::Close(_) => continue,
                    Effect::AbortDial(id) if pool.is_given_up(id) => {
                        pool.dial_failed(at, Permit(id), "lost");
                        continue;
                    }
                    Effect::AbortDial(_) => continue,
                    other => panic!("host {host}: {other:?}"),
                }
                number += 1;
            }
        }
    }
}

#[test]
fn a_refusing_host_answers_all_its_requests_at_about_the_time_of_a_few_failures() {
    for (config, most) in [(PoolConfig::new(), 3), (PoolConfig::new().max_connections_per_host(1), 4)] {
        for host in [1, MANY, UNKNOWN] {
            let (mut pool, now) = pool(config.clone());
            for waiter in 0..600 {
                pool.wait(now, host, waiter);
            }
            let mut rounds = 0;
            while pool.counters().waiting > 0 {
                rounds += 1;
                for permit in pool.dials_only() {
                    pool.dial_failed(now + ms(20 * rounds), permit, "refused");
                }
            }
            assert!(rounds <= most, "host {host}: {rounds} round trips");
            assert_eq!(pool.counters().totals.queue.failed, 600);
        }
    }
}

#[test]
fn a_request_with_an_older_dial_in_flight_does_not_fail_with_a_later_one() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    let first = pool.permit();
    pool.run_until(now + ms(100));
    let second = pool.permit();
    pool.dial_failed(now + ms(110), second, "refused");
    pool.run_until(now + ms(1_400));
    let again = pool.dials();
    assert!(!again.is_empty() || pool.failures().is_empty());
    pool.dial_succeeded(now + ms(1_500), first, http1(5));
    assert_eq!(pool.delivered().0, 1, "a dial may take 1.5 s and succeed");
}

#[test]
fn dials_lost_with_a_runtime_concern_their_own_requests_and_not_the_host() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..20 {
        pool.wait(now, 1, waiter);
    }
    for permit in pool.dials().into_iter().take(6) {
        pool.dial_lost(now + ms(1), permit, "lost");
    }
    pool.run_until(now + ms(200));
    assert_eq!(pool.counters().totals.queue.failed, 6, "the others have dials of their own");
}

// Connect timeouts.

#[test]
fn a_dead_host_answers_each_request_at_its_own_connect_timeout() {
    let second = ms(1_000);
    for (host, count) in [1, MANY, UNKNOWN].into_iter().flat_map(|host| [1, 20, 600].map(|count| (host, count))) {
        let (mut pool, now) = pool(PoolConfig::new());
        for waiter in 0..count {
            pool.wait_for(now + ms(waiter.into()), host, waiter, second);
        }
        let mut ended = Vec::new();
        for at in 1..3_000 {
            let at = now + ms(at);
            pool.run_until(at);
            // The dials end by their own timeout.
            let due: Vec<_> = pool.conns.iter().filter(|(_, conn)| at >= conn.dialling().since + second).collect();
            let due: Vec<_> = due.into_iter().map(|(index, conn)| Permit(conn.id(index))).collect();
            for permit in due {
                pool.dial_failed(at, permit, "no connection within 1 s");
            }
            ended.extend(pool.failures().into_iter().map(|(waiter, _)| (waiter, at)));
            let given_up = pool.conns.iter().filter(|(_, conn)| conn.is_given_up());
            let given_up: Vec<_> = given_up.map(|(index, conn)| Permit(conn.id(index))).collect();
            for permit in given_up {
                pool.dial_failed(at, permit, "lost");
            }
        }
        assert_eq!(ended.len(), count as usize, "host {host}");
        for (waiter, at) in ended {
            let waited = at - (now + ms(waiter.into()));
            assert!((second..second + ms(100)).contains(&waited), "host {host}: request {waiter} after {waited:?}");
        }
        assert!(pool.hosts.slab.is_empty() && pool.timers.len() == 0);
    }
}

#[test]
fn the_connect_timeout_runs_from_the_first_dial_where_a_limit_kept_a_request_waiting() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.open_idle(now, 1, 1);
    let (held, _) = pool.ready(now, 1);
    pool.wait_for(now, 1, 7, ms(1_000));
    pool.run_until(now + ms(5_000));
    assert!(pool.failures().is_empty(), "the limit keeps it waiting");
    pool.release(now + ms(5_000), held, BROKEN);
    let closed = pool.closes();
    let id = pool.conns.iter().find(|(_, conn)| conn.serial == closed).map(|(index, conn)| conn.id(index)).unwrap();
    pool.socket_closed(now + ms(5_000), id);
    pool.permit();
    pool.run_until(now + ms(5_999));
    assert!(pool.failures().is_empty());
    pool.run_until(now + ms(6_090));
    assert!(matches!(&pool.failures()[..], [(7, why)] if is_connect_timeout(why)));
}

#[test]
fn a_request_kept_waiting_by_a_limit_fails_by_its_queue_timeout_and_names_the_limit() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1).wait_timeout(ms(900)));
    pool.open_idle(now, 1, 1);
    pool.ready(now, 1);
    let limits = WaitLimits { connect: ms(200), ends_dials: true, queue: Some(ms(500)) };
    pool.checkout(now, &1, &Wish::default(), 0, || (7, limits));
    pool.run_until(now + ms(499));
    assert!(pool.failures().is_empty());
    pool.run_until(now + ms(500));
    let limit = Limit::ConnectionsPerHost;
    let failures = pool.failures();
    assert!(
        matches!(failures[..], [(7, WaitFailure::Timeout(Expired { timeout, limit: named, .. }))] if timeout == ms(500) && named == limit),
        "{failures:?}"
    );
}

#[test]
fn a_server_that_does_not_say_its_settings_is_named() {
    let (mut pool, now) = pool(PoolConfig::new().max_http2_connections_per_host(2));
    for waiter in 0..10 {
        pool.wait_for(now, MANY, waiter, ms(1_000));
    }
    let permit = pool.permit();
    pool.dial_succeeded(now + ms(1), permit, http2(5));
    pool.delivered();
    assert_eq!(pool.counters().dialling, 0, "it is about to say how many streams it takes");
    pool.run_until(now + ms(200));
    for permit in pool.dials() {
        pool.dial_succeeded(now + ms(200), permit, http2(6));
    }
    assert_eq!(pool.limit(now + ms(200), MANY, 99), Limit::Settings);
    pool.run_until(now + ms(1_400));
    let failures = pool.failures();
    assert_eq!(failures.len(), 8, "{failures:?}");
    assert!(
        failures.iter().all(|(_, why)| matches!(
            why,
            WaitFailure::Connect { expired: Expired { limit: Limit::Settings, .. }, .. }
        ))
    );
}

// The number of dials.

#[test]
fn a_dial_that_no_request_needs_any_more_is_enough_for_the_next_one_until_it_is_slow() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..8 {
        let id = pool.wait(now, 1, waiter);
        pool.abandon(now, id, AbandonCause::Cancelled);
    }
    assert_eq!(pool.dials().len(), 1);
    for waiter in 8..11 {
        pool.wait(now + ms(10), 1, waiter);
    }
    assert_eq!(pool.dials().len(), 2, "three requests, three dials");
    pool.run_until(now + ms(100));
    assert_eq!(pool.dials().len(), 1, "the first one is slow");
}

#[test]
fn callers_of_a_healthy_host_have_no_more_connections_than_there_are_of_them() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut ends: VecDeque<(u64, Result<Permit, LeaseToken>)> = VecDeque::new();
    for waiter in 0..64 {
        pool.wait(now, 1, waiter);
    }
    let mut most = 0;
    for at in 0..2_000 {
        let then = now + ms(at);
        pool.run_until(then);
        while let Some((_, end)) = ends.pop_front_if(|(end, _)| *end <= at) {
            match end {
                Ok(permit) => drop(pool.dial_succeeded(then, permit, http1(5))),
                Err(token) => {
                    pool.release(then, token, KEPT);
                    if let Acquired::Ready(grant) = pool.acquire(then, &1, None, false, || 0) {
                        ends.push_back((at + 7, Err(grant.token)));
                    }
                }
            }
        }
        while let Some(effect) = pool.next_effect() {
            match effect {
                Effect::Dial(permit, ..) => ends.push_back((at + 7, Ok(permit))),
                Effect::Deliver { grant, .. } => ends.push_back((at + 7, Err(grant.token))),
                other => panic!("{other:?}"),
            }
        }
        most = most.max(pool.counters().slots);
    }
    assert!(most <= 64, "{most} connections");
}

#[test]
fn the_window_delays_a_dial_by_50_ms_at_most_unless_the_queue_is_served_soon() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..600 {
        pool.wait(now, 1, waiter);
    }
    assert_eq!(pool.dials().len(), 16);
    pool.run_until(now + ms(49));
    assert_eq!(pool.dials().len(), 0);
    pool.run_until(now + ms(50));
    assert_eq!(pool.dials().len(), 584);
}

#[test]
fn freed_connections_that_serve_the_queue_soon_make_more_dials_unnecessary() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..1_000 {
        pool.wait(now, 1, waiter);
    }
    let mut most = 0;
    for at in 0..60 {
        let at = now + ms(at);
        pool.run_until(at);
        // Dials and requests take a millisecond each.
        let effects: Vec<_> = std::iter::from_fn(|| pool.next_effect()).collect();
        for effect in effects {
            match effect {
                Effect::Dial(permit, ..) => drop(pool.dial_succeeded(at, permit, http1(5))),
                Effect::Deliver { grant, .. } => pool.release(at, grant.token, KEPT),
                other => panic!("{other:?}"),
            }
        }
        most = most.max(pool.counters().dialling);
    }
    assert!(most <= 16, "{most} at the same time");
}

#[test]
fn a_request_has_another_dial_when_its_last_one_is_slow_and_later_each_time() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    let mut begun = Vec::new();
    for at in 0..10_000 {
        pool.run_until(now + ms(at));
        begun.extend(pool.dials().into_iter().map(|_| at));
    }
    assert_eq!(begun, [0, 100, 300, 700, 1_500, 4_000, 6_500, 9_000]);
}

#[test]
fn a_host_that_does_not_answer_is_dialled_once_for_each_new_request() {
    let (mut pool, now) = pool(PoolConfig::new());
    let (mut begun, mut in_flight) = (Vec::new(), VecDeque::new());
    for at in (0..60_000).step_by(10) {
        if at % 2_000 == 0 {
            pool.wait(now + ms(at), 1, at as u32);
        }
        pool.run_until(now + ms(at));
        // A dial fails after ten seconds.
        while in_flight.front().is_some_and(|(since, _)| since + 10_000 <= at) {
            let (_, permit) = in_flight.pop_front().unwrap();
            pool.dial_failed(now + ms(at), permit, "silent");
        }
        for permit in pool.dials_only() {
            begun.push(at);
            in_flight.push_back((at, permit));
        }
    }
    let later: Vec<_> = begun.into_iter().filter(|at| *at >= 4_000).collect();
    assert_eq!(later, (4_000..60_000).step_by(2_000).collect::<Vec<_>>());
}

#[test]
fn a_host_that_is_far_away_has_one_dial_for_a_request_after_all_its_connections_are_gone() {
    const HOUR: u64 = 3_600_000;
    let (mut pool, now) = pool(PoolConfig::new());
    // Each dial takes 400 ms, and its connection is closed after its request.
    let mut begun = |start: u64| {
        pool.wait(now + ms(start), 1, 1);
        let mut begun = Vec::new();
        for at in start..start + 400 {
            pool.run_until(now + ms(at));
            begun.extend(pool.dials().into_iter().map(|permit| (at - start, permit)));
        }
        let ages: Vec<_> = begun.iter().map(|(age, _)| *age).collect();
        for (_, permit) in begun {
            let (id, at) = (permit.id(), now + ms(start + 400));
            pool.dial_succeeded(at, permit, http1(1));
            pool.retire(at, id, CloseCause::Peer);
            pool.socket_closed(at, id);
        }
        while let Some(effect) = pool.next_effect() {
            if let Effect::Deliver { grant, .. } = effect {
                pool.release(now + ms(start + 400), grant.token, BROKEN);
            }
        }
        assert!(pool.hosts.slab.is_empty());
        ages
    };
    assert_eq!(begun(0), [0, 100, 300], "nothing is known of the host");
    assert_eq!(begun(10_000), [0]);
    assert_eq!(begun(20_000 + HOUR), [0, 100, 300], "an hour later nothing is known again");
}

#[test]
fn dials_that_fail_at_once_beside_one_that_hangs_follow_each_other_after_a_pause() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    let _hangs = pool.permit();
    let mut begun = Vec::new();
    for at in 0..400 {
        let at_now = now + ms(at);
        pool.run_until(at_now);
        for permit in pool.dials() {
            begun.push(at);
            pool.dial_failed(at_now, permit, "refused");
        }
        assert!(pool.dials().is_empty(), "at {at} ms");
    }
    assert_eq!(begun, [100, 150, 200, 250, 300, 350]);
    assert!(pool.failures().is_empty(), "the first dial may still succeed");
}

#[test]
fn slow_dials_are_bounded_and_the_oldest_of_them_run_to_their_end() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut first = Vec::new();
    let mut given_up = Vec::new();
    for request in 0..400 {
        let at = now + ms(u64::from(request) * 20);
        pool.run_until(at);
        pool.wait(at, 1, request);
        while let Some(effect) = pool.next_effect() {
            match effect {
                Effect::Dial(permit, ..) if first.len() < 5 => first.push(permit.id()),
                Effect::Dial(..) => {}
                Effect::AbortDial(id) => given_up.push(id),
                other => panic!("{other:?}"),
            }
        }
        for id in given_up.drain(..) {
            assert!(!first.contains(&id), "the oldest ones run to their end");
            pool.dial_failed(at, Permit(id), "lost");
        }
        let slow = pool.hosts[0].dials.slow.len();
        assert!(slow <= 48, "{slow} slow dials");
        assert!(!pool.hosts[0].dials.young.is_empty(), "a request waits without a young dial");
    }
}

#[test]
fn a_dial_that_was_given_up_is_no_failure_and_its_request_waits_on() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(2));
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    pool.dials();
    pool.run_until(now + ms(100));
    let given_up = pool.given_up();
    assert_eq!(given_up.len(), 1, "the second of two slow dials gives way");
    pool.dial_failed(now + ms(100), Permit(given_up[0]), "lost");
    assert_eq!((pool.counters().waiting, pool.dials().len()), (2, 1));
}

#[test]
fn the_only_dial_that_a_limit_allows_gives_way_after_a_second_and_then_two() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    pool.wait_for(now, 1, 1, ms(60_000));
    pool.dials();
    let mut given_up_at = Vec::new();
    for at in 0..8_000 {
        pool.run_until(now + ms(at));
        for id in pool.given_up() {
            given_up_at.push(at);
            pool.dial_failed(now + ms(at), Permit(id), "lost");
        }
    }
    assert_eq!(given_up_at, [1_000, 3_000, 7_000]);
}

#[test]
fn a_second_dial_ends_when_the_first_one_serves_the_request() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    let first = pool.permit();
    pool.run_until(now + ms(100));
    let second = pool.permit();
    pool.dial_succeeded(now + ms(150), first, http1(5));
    pool.delivered();
    assert_eq!(pool.given_up(), [second.id()]);
    assert!(pool.is_given_up(second.id()));
}

// The total.

#[test]
fn a_host_in_trouble_leaves_three_quarters_of_the_total_to_others() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(20));
    for waiter in 0..100 {
        pool.wait(now, 1, waiter);
    }
    pool.dials();
    pool.run_until(now + ms(200));
    let fail_given_up = |pool: &mut Pool, at: Instant| {
        for id in pool.given_up() {
            pool.dial_failed(at, Permit(id), "lost");
        }
    };
    fail_given_up(&mut pool, now + ms(200));
    for waiter in 100..110 {
        pool.wait(now + ms(300), 2, waiter);
    }
    for at in 300..310 {
        fail_given_up(&mut pool, now + ms(at));
    }
    let dials = |pool: &Pool, host: u8| pool.hosts.find(&host).map_or(0, |host| pool.hosts[host].dials.live());
    assert_eq!(dials(&pool, 2), 10, "the requests of the host that answers");
    assert!(dials(&pool, 1) <= 10);
}

#[test]
fn a_host_in_trouble_closes_no_connection_of_another_one() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections(4));
    pool.wait(now, 1, 1);
    let permit = pool.permit();
    pool.dial_failed(now, permit, "refused");
    pool.failed();
    pool.open_idle(now, 2, 4);
    pool.wait(now, 1, 2);
    assert_eq!(pool.closes(), pool.conns.iter().map(|(_, conn)| conn.serial).min().unwrap(), "not in trouble any more");
    let (mut pool, now) = self::pool(PoolConfig::new().max_connections(4));
    pool.wait(now, 1, 1);
    pool.dials();
    pool.run_until(now + ms(100));
    pool.dials();
    pool.open_idle(now + ms(100), 2, 2);
    for waiter in 2..9 {
        pool.wait(now + ms(101), 1, waiter);
    }
    assert!(pool.next_effect().is_none(), "one of its dials is slow");
}

#[test]
fn warming_up_dials_no_more_at_once_than_the_window_allows() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    while pool.counters().idle < 50 {
        pool.warm_up(now, &1, 50, 50);
        let permits = pool.dials();
        assert!(!permits.is_empty() && permits.len() <= 16);
        now += ms(50);
        for permit in permits {
            let opened = http1(permit.id().serial);
            pool.dial_succeeded(now, permit, opened);
        }
    }
}

#[test]
fn when_descriptors_run_out_the_least_recently_used_connection_of_any_host_closes() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = [1, 2, 3].map(|host| pool.open_idle(now + ms(host.into()), host, 1)[0].serial);
    let (held, _) = pool.ready(now + ms(10), 1);
    pool.release(now + ms(20), held, KEPT);
    pool.wait(now + ms(30), 4, 0);
    let permit = pool.permit();
    pool.dial_postponed(now + ms(30), permit, Limit::Descriptors);
    assert_eq!(pool.closes(), ids[1], "host 2: the connection of host 1 was used later");
}

#[test]
fn a_host_of_unknown_protocol_is_dialled_once_and_then_as_its_protocol_needs() {
    for (many, dials) in [(false, 3), (true, 0)] {
        let (mut pool, now) = pool(PoolConfig::new());
        for waiter in 0..4 {
            pool.wait(now, UNKNOWN, waiter);
        }
        let permit = pool.permit();
        assert!(pool.next_effect().is_none());
        assert_eq!(pool.limit_of(now, 1), Limit::Opening);
        match many {
            true => pool.dialed_http2(now, permit, 100),
            false => drop(pool.dial_succeeded(now, permit, http1(7))),
        }
        assert_eq!(pool.counters().dialling, dials);
        assert_eq!(pool.counters().leased, 4 - dials);
    }
}

#[test]
fn a_host_of_unknown_protocol_is_dialled_for_each_request_after_50_ms_and_these_dials_end_if_it_speaks_http2() {
    for many in [false, true] {
        let (mut pool, now) = pool(PoolConfig::new());
        for waiter in 0..4 {
            pool.wait(now, UNKNOWN, waiter);
        }
        let first = pool.permit();
        pool.run_until(now + ms(50));
        let others: Vec<_> = pool.dials().iter().map(Permit::id).collect();
        assert_eq!(others.len(), 3);
        if many {
            pool.dialed_http2(now + ms(60), first, 100);
            let mut given_up = pool.given_up();
            given_up.sort_unstable_by_key(|id| id.serial);
            assert_eq!((pool.counters().leased, given_up), (4, others));
        } else {
            pool.dial_succeeded(now + ms(60), first, http1(7));
            assert!(pool.given_up().is_empty());
        }
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
        assert!(pool.next_effect().is_none());
        pool.dial_succeeded(now, permit, http1(5));
        pool.delivered();
    }
}

#[test]
fn a_request_whose_dial_is_postponed_keeps_its_position() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = pool.open_idle(now, 2, 1);
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let permits: Vec<_> = (0..3).map(|_| pool.permit()).collect();
    let mut permits = permits.into_iter();
    pool.dial_postponed(now, permits.next().unwrap(), Limit::Descriptors);
    assert_eq!(pool.closes(), ids[0].serial, "an idle connection frees a descriptor");
    assert!(pool.next_effect().is_none(), "the dial is not repeated at once");
    assert_eq!(pool.limit(now, 1, 3), Limit::Descriptors);
    // The requests keep their order.
    let mut served = Vec::new();
    for permit in permits {
        pool.dial_succeeded(now, permit, http1(5));
    }
    pool.socket_closed(now, ids[0]);
    while let Some(effect) = pool.next_effect() {
        match effect {
            Effect::Dial(permit, ..) => drop(pool.dial_succeeded(now, permit, http1(6))),
            Effect::Deliver { waiter, .. } => served.push(waiter),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(served, [0, 1, 2, 3]);
}

#[test]
fn a_lack_of_descriptors_fails_a_request_only_when_its_wait_is_over() {
    let (mut pool, now) = pool(PoolConfig::new().wait_timeout(ms(3_000)));
    pool.wait(now, 1, 0);
    let mut at = now;
    let mut tries = 0;
    loop {
        match pool.next_effect() {
            Some(Effect::Dial(permit, ..)) => {
                tries += 1;
                pool.dial_postponed(at, permit, Limit::Descriptors);
            }
            Some(Effect::Fail { waiter: 0, why: WaitFailure::Timeout(Expired { timeout, limit, .. }) }) => {
                assert_eq!((timeout, limit), (ms(3_000), Limit::Descriptors));
                break;
            }
            None => {
                at = pool.next_timeout().expect("there is another try");
                pool.handle_timeout(at);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!((5..10).contains(&tries), "{tries} tries in 3 s");
    pool.handle_timeout(at + ms(10_000));
    assert_eq!((pool.hosts.slab.len(), pool.timers.len()), (0, 0));
}

#[test]
fn warming_up_dials_what_is_missing_and_no_more_than_the_limits_allow() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(5));
    pool.open_idle(now, 1, 2);
    let WarmUp { open, dialled, dials } = pool.warm_up(now, &1, 2, 2);
    assert_eq!((open, dialled, dials.len()), (2, 0, 0));
    let WarmUp { open, dialled, dials } = pool.warm_up(now, &1, 9, 9);
    assert_eq!((open, dialled, dials.len()), (2, 3, 3));
    assert_eq!(pool.warm_up(now, &1, 9, 9).dials.len(), 3, "they are in flight");
    for _ in 0..2 {
        let permit = pool.permit();
        pool.dial_succeeded(now, permit, http1(9));
    }
    let permit = pool.permit();
    assert_eq!(pool.dial_failed(now, permit, "refused"), Some("refused"));
    assert_eq!(pool.counters().idle, 4);
    let (mut pool, now) = self::pool(PoolConfig::new().max_idle(2));
    assert_eq!(pool.warm_up(now, &1, 9, 9).dialled, 2, "connections beyond the idle limit would be closed at once");
    assert_eq!(pool.warm_up(now, &UNKNOWN, 9, 9).dialled, 1, "an HTTP/2 connection may be enough");
}
