//! Dials: their pairing, their window, their failures.

use super::*;

#[test]
fn a_failed_dial_fails_its_own_request_and_the_next_one_is_dialled_for() {
    let (mut pool, now) = pool(PoolConfig::new().max_connections_per_host(1));
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    for expected in 0..3 {
        let permit = pool.permit();
        pool.dial_failed(now, permit, "refused");
        assert!(matches!(pool.failed(), (waiter, WaitFailure::Dial("refused")) if waiter == expected));
    }
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
    pool.dial_failed(now, permit, "refused");
    assert!(pool.next_effect().is_none());
}

#[test]
fn only_so_many_unclaimed_dials_are_ignored_by_a_new_request() {
    let (mut pool, now) = pool(PoolConfig::new());
    let mut slow = Vec::new();
    for waiter in 0..4 {
        let id = pool.wait(now, 1, waiter);
        slow.push(pool.permit());
        pool.abandon(now, id, AbandonCause::Cancelled);
    }
    pool.wait(now, 1, 9);
    assert!(pool.next_effect().is_none(), "four unclaimed dials are enough");
    pool.dial_succeeded(now, slow.remove(0), http1(5));
    assert_eq!(pool.delivered().0, 9);
}

#[test]
fn the_first_dial_to_succeed_serves_the_first_request_and_the_other_request_gets_the_other_dial() {
    let (mut pool, now) = pool(PoolConfig::new());
    pool.wait(now, 1, 1);
    pool.wait(now, 1, 2);
    let (slow, fast) = (pool.permit(), pool.permit());
    pool.dial_succeeded(now, fast, http1(5));
    assert_eq!(pool.delivered().0, 1);
    pool.dial_failed(now, slow, "refused");
    assert_eq!(pool.failed().0, 2);
}

#[test]
fn warming_up_dials_no_more_at_once_than_the_window_allows() {
    let (mut pool, mut now) = pool(PoolConfig::new());
    let mut most = 0;
    while pool.counters().idle < 200 {
        pool.warm_up(now, &1, 200, 200);
        let permits: Vec<_> = std::iter::from_fn(|| pool.next_effect()).collect();
        assert!(!permits.is_empty() && permits.len() <= pool.hosts[0].dials.window.size());
        most = most.max(permits.len());
        now += ms(50);
        for effect in permits {
            let Effect::Dial(permit, ..) = effect else { panic!("{effect:?}") };
            let opened = http1(permit.id().serial);
            pool.dial_succeeded(now, permit, opened);
        }
    }
    assert!(most > 64 && most < 200, "it grows as dials succeed: {most}");
}

#[test]
fn when_descriptors_run_out_the_least_recently_used_connection_of_any_host_closes() {
    let (mut pool, now) = pool(PoolConfig::new());
    let ids = [1, 2, 3].map(|host| pool.open_idle(now + ms(host.into()), host, 1)[0].serial);
    let (held, _) = pool.ready(now + ms(10), 1);
    pool.release(now + ms(20), held, KEPT);
    pool.wait(now + ms(30), 4, 0);
    let permit = pool.permit();
    pool.dial_postponed(now + ms(30), permit);
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
        assert_eq!(pool.limit_of(1), Limit::Dials);
        match many {
            true => pool.dialed_http2(now, permit, 100),
            false => drop(pool.dial_succeeded(now, permit, http1(7))),
        }
        assert_eq!(pool.counters().dialling, dials);
        assert_eq!(pool.counters().leased, 4 - dials);
    }
}

#[test]
fn a_host_whose_first_dial_is_slow_is_dialled_again() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..4 {
        pool.wait(now, UNKNOWN, waiter);
    }
    pool.permit();
    pool.handle_timeout(now + ms(999));
    assert!(pool.next_effect().is_none());
    for (seconds, dials) in [(1, 2), (2, 1)] {
        pool.handle_timeout(now + ms(seconds * 1_000));
        assert_eq!((0..dials).map(|_| pool.permit()).count(), dials);
        assert!(pool.next_effect().is_none());
    }
}

#[test]
fn the_window_grows_as_dials_succeed_while_requests_wait() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..1_000 {
        pool.wait(now, 1, waiter);
    }
    assert_eq!(pool.counters().dialling, 16);
    let mut succeed = |at: u64, dials: usize| {
        let mut permits = Vec::new();
        while let Some(effect) = pool.next_effect() {
            if let Effect::Dial(permit, ..) = effect {
                permits.push(permit);
            }
        }
        for permit in permits.drain(..dials) {
            pool.dial_succeeded(now + ms(at), permit, http1(5));
        }
        let dialling = pool.counters().dialling;
        for permit in permits {
            pool.dial_failed(now + ms(at), permit, "refused");
        }
        dialling
    };
    assert_eq!(succeed(50, 16), 32, "twice as many per round trip");
    assert_eq!(succeed(51, 32), 32, "no more than twice as many in 25 ms");
    assert_eq!(succeed(100, 32), 64);
    assert_eq!(succeed(150, 1), 65);
}

#[test]
fn the_window_does_not_grow_where_freed_connections_serve_as_well() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..1_000 {
        pool.wait(now, 1, waiter);
    }
    let mut most = 0;
    for at in 0..60 {
        let at = now + ms(at);
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
fn slow_dials_do_not_count_against_the_window() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..100 {
        pool.wait(now, 1, waiter);
    }
    for second in 1..4 {
        pool.handle_timeout(now + ms(second * 1_000));
        assert_eq!(pool.counters().dialling as u64, 16 * (second + 1));
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
    pool.dial_postponed(now, permits.next().unwrap());
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
                pool.dial_postponed(at, permit);
            }
            Some(Effect::Fail { waiter: 0, why: WaitFailure::Timeout { waited, limit } }) => {
                assert_eq!((waited, limit), (ms(3_000), Limit::Descriptors));
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

#[test]
fn a_host_of_unknown_protocol_whose_dials_fail_is_dialled_more_each_time() {
    let (mut pool, now) = pool(PoolConfig::new());
    for waiter in 0..100 {
        pool.wait(now, UNKNOWN, waiter);
    }
    let mut rounds = Vec::new();
    while pool.counters().waiting > 0 {
        let mut permits = Vec::new();
        while let Some(effect) = pool.next_effect() {
            if let Effect::Dial(permit, ..) = effect {
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
fn the_window_shrinks_where_twice_the_connections_serve_no_more_requests() {
    for (end, window) in [(KEPT, 4), (LeaseEnd::Unused, 16)] {
        let (mut pool, now) = pool(PoolConfig::new());
        for waiter in 0..1_000 {
            pool.wait(now, 1, waiter);
        }
        let (mut held, mut dials) = (VecDeque::new(), VecDeque::new());
        for at in 0..14 {
            // Connections are open at the start and after 5 ms, 16 each time. In each millisecond, 16 requests end.
            for token in held.drain(..held.len().min(16)).collect::<Vec<_>>() {
                pool.release(now + ms(at), token, end);
            }
            for step in 0..2 {
                while let Some(effect) = pool.next_effect() {
                    match effect {
                        Effect::Dial(permit, ..) => dials.push_back(permit),
                        Effect::Deliver { grant, .. } => held.push_back(grant.token),
                        other => panic!("{other:?}"),
                    }
                }
                if step == 0 && [0, 5].contains(&at) {
                    for permit in dials.drain(..).collect::<Vec<_>>() {
                        pool.dial_succeeded(now + ms(at), permit, http1(5));
                    }
                }
            }
        }
        let host = pool.hosts.find(&1).expect("it has connections");
        assert_eq!(pool.hosts[host].dial_limit(), window, "{end:?}");
    }
}
