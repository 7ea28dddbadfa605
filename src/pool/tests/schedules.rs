//! The pool's driver under many thread schedules: what two threads do between lock, decision, unlock and act.

use shuttle::future::block_on;
use shuttle::thread;

use super::*;
use crate::sync::{explore, point, rounds, until};

fn of_thread(pool: &Pool<Script>, run: impl FnOnce(&Pool<Script>) + Send + 'static) -> thread::JoinHandle<()> {
    let pool = pool.clone();
    thread::spawn(move || run(&pool))
}

/// Leases a connection to the host that is soon dialled, and gives it back.
fn request(pool: &Pool<Script>) {
    let lease = block_on(lease(pool, "soon")).unwrap_or_else(|error| panic!("{error:?}"));
    point();
    lease.give_back(None);
}

/// Checks that nothing is in progress, and then that the pool leaves nothing behind.
fn settle(pool: Pool<Script>, script: &Script) {
    until(|| pool.stats().dialling + pool.stats().closing == 0);
    let stats = pool.stats();
    assert_eq!((stats.leased, stats.waiting, stats.dialling), (0, 0, 0), "{stats:?}");
    assert_eq!(stats.idle, script.open.load(Ordering::SeqCst), "{stats:?}");
    block_on(pool.drain());
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.idle, stats.opened - stats.closed), (0, 0, 0), "{stats:?}");
    assert_eq!(script.open.load(Ordering::SeqCst), 0, "sockets are open after a drain");
    until(|| pool.driver.dials.is_empty());
}

#[test]
fn a_connection_that_comes_while_its_request_leaves_serves_the_next_one() {
    explore(1_500, || {
        let (pool, script) = limited(1);
        let leaving = of_thread(&pool, |pool| {
            let checkout = pool.checkout(&"soon", &Wish::default(), now(), limits);
            if let Checkout::Wait(mut waiter, _) = checkout {
                let _ = (&mut waiter).now_or_never();
                rounds(1);
                drop(waiter);
            }
        });
        let other = of_thread(&pool, request);
        request(&pool);
        leaving.join().unwrap();
        other.join().unwrap();
        assert!(pool.stats().opened <= 2, "{:?}", pool.stats());
        settle(pool, &script);
    });
}

#[test]
fn a_connection_whose_request_leaves_goes_to_one_that_waits_already() {
    explore(1_500, || {
        let (pool, script) = limited(1);
        let checkout = pool.checkout(&"soon", &Wish::default(), now(), limits);
        let Checkout::Wait(leaving, _) = checkout else { panic!("a connection") };
        let other = of_thread(&pool, request);
        // Until the other one waits, or the connection is there.
        until(|| pool.stats().waiting == 2 || pool.stats().dialling == 0);
        drop(leaving);
        other.join().unwrap();
        settle(pool, &script);
    });
}

#[test]
fn a_request_whose_wait_times_out_while_a_connection_comes_gives_it_back() {
    explore(600, || {
        let config = PoolConfig::new().max_connections_per_host(1).wait_timeout(Duration::from_millis(3));
        let (pool, script) = pool(config);
        let others: Vec<_> = (0..3)
            .map(|_| {
                of_thread(&pool, |pool| match block_on(lease(pool, "soon")) {
                    Ok(lease) => {
                        rounds(1);
                        lease.give_back(None);
                    }
                    Err(LeaseError::WaitTimeout(..)) => {}
                    Err(error) => panic!("{error:?}"),
                })
            })
            .collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        settle(pool, &script);
    });
}

#[test]
fn a_drain_ends_with_the_calls_in_progress_and_the_calls_after_it_are_refused() {
    explore(1_500, || {
        let (pool, script) = pool(PoolConfig::new().max_connections_per_host(2));
        let calls: Vec<_> = (0..3)
            .map(|number| {
                of_thread(&pool, move |pool| {
                    // One of them leaves, and the dial that it alone needs must be aborted.
                    let key = if number == 0 { "never" } else { "soon" };
                    let checkout = pool.checkout(&key, &Wish::default(), now(), limits);
                    match checkout {
                        Checkout::Ready(lease) => lease.give_back(None),
                        Checkout::Wait(_, _) if number == 0 => point(),
                        Checkout::Wait(waiter, _) => {
                            let lease = block_on(waiter).lease.unwrap_or_else(|error| panic!("{error:?}"));
                            point();
                            lease.give_back(None);
                        }
                        Checkout::Refused(error) => assert!(matches!(error, LeaseError::Refused(Limit::Draining))),
                    }
                })
            })
            .collect();
        let second = of_thread(&pool, |pool| block_on(pool.drain()));
        block_on(pool.drain());
        let stats = pool.stats();
        assert_eq!((stats.in_use, stats.leased, stats.waiting, stats.dialling), (0, 0, 0, 0), "{stats:?}");
        assert_eq!(script.open.load(Ordering::SeqCst), 0);
        let after = pool.checkout(&"soon", &Wish::default(), now(), limits);
        assert!(matches!(after, Checkout::Refused(LeaseError::Refused(Limit::Draining))));
        second.join().unwrap();
        calls.into_iter().for_each(|call| call.join().unwrap());
        settle(pool, &script);
    });
}

#[test]
fn a_dial_that_begins_as_its_request_leaves_does_not_keep_a_drain_from_ending() {
    explore(1_500, || {
        let (pool, script) = pool(PoolConfig::new().max_connections(1));
        let first = block_on(lease(&pool, "soon")).unwrap_or_else(|error| panic!("{error:?}"));
        let leaving = of_thread(&pool, |pool| {
            let waiter = pool.checkout(&"never", &Wish::default(), now(), limits);
            point();
            drop(waiter);
        });
        // The connection's own task begins the dial for the request that waits, once its slot is free.
        let ending = thread::spawn(move || first.end(CloseCause::PeerAnnounced));
        block_on(pool.drain());
        leaving.join().unwrap();
        ending.join().unwrap();
        settle(pool, &script);
    });
}

#[test]
fn no_request_after_a_renewal_gets_a_connection_from_before_it() {
    explore(1_500, || {
        let (pool, script) = pool(PoolConfig::new().max_connections_per_host(2));
        let others = [of_thread(&pool, request), of_thread(&pool, request)];
        // The settings of dials that begin from now on.
        script.settings.store(1, Ordering::SeqCst);
        pool.renew(|_| true);
        let lease = block_on(lease(&pool, "soon")).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(lease.conn().settings, 1, "a connection by the settings of before");
        lease.give_back(None);
        others.into_iter().for_each(|other| other.join().unwrap());
        settle(pool, &script);
    });
}

#[test]
fn the_limits_that_were_set_last_hold_whichever_thread_applies_them() {
    explore(1_500, || {
        let (pool, script) = pool(PoolConfig::new());
        let others: Vec<_> = [1, 2]
            .map(|limit| {
                of_thread(&pool, move |pool| {
                    pool.set_config(PoolConfig::new().max_connections(limit));
                    pool.apply_config();
                })
            })
            .into();
        others.into_iter().for_each(|other| other.join().unwrap());
        let requests =
            ["never 1", "never 2", "never 3"].map(|key| pool.checkout(&key, &Wish::default(), now(), limits));
        assert_eq!(pool.stats().dialling, pool.config().max_connections, "by limits that were replaced");
        drop(requests);
        // Dials that no request needs are aborted.
        block_on(pool.drain());
        settle(pool, &script);
    });
}

#[test]
fn a_host_that_is_kept_warm_stays_so_within_its_limit() {
    explore(150, || {
        let config = PoolConfig::new().max_connections_per_host(2).min_idle_per_host(1);
        let (pool, script) = pool(config);
        let others = [of_thread(&pool, request), of_thread(&pool, request)];
        // The server closes a connection at some time.
        let lease = block_on(lease(&pool, "soon")).unwrap_or_else(|error| panic!("{error:?}"));
        lease.end(CloseCause::PeerAnnounced);
        others.into_iter().for_each(|other| other.join().unwrap());
        until(|| {
            assert!(script.open.load(Ordering::SeqCst) <= 2, "more than the limit");
            pool.stats().idle >= 1
        });
        settle(pool, &script);
    });
}

#[test]
fn a_warm_up_ends_beside_requests_that_use_and_end_its_connections() {
    explore(1_000, || {
        let (pool, script) = pool(PoolConfig::new().max_connections_per_host(2));
        let others = [
            of_thread(&pool, request),
            of_thread(&pool, |pool| drop(pool.checkout(&"soon", &Wish::default(), now(), limits))),
        ];
        let open = block_on(pool.warm_up(&"soon", 2)).unwrap_or_else(|error| panic!("{error:?}"));
        assert!(open <= 2, "{open}");
        others.into_iter().for_each(|other| other.join().unwrap());
        settle(pool, &script);
    });
}

#[test]
fn each_request_hears_of_a_dial_that_failed() {
    explore(1_000, || {
        let (pool, script) = limited(1);
        let others = [0, 1].map(|_| {
            of_thread(&pool, |pool| match block_on(lease(pool, "refused")) {
                Err(LeaseError::Dial("refused")) => {}
                Err(error) => panic!("{error:?}"),
                Ok(_) => panic!("a connection"),
            })
        });
        others.into_iter().for_each(|other| other.join().unwrap());
        settle(pool, &script);
    });
}
