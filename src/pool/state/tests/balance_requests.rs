//! The requests of balanced hosts: which addresses are dialled for them, and which connections they get.

use super::balance::{NAME, answer, balanced_pool, socket};
use super::*;

/// A pool whose hosts are balanced over the addresses that end in 1 to `servers`.
fn pinned_pool(config: &PoolConfig, servers: u8) -> (Pool, Instant) {
    let limits = config.limits_for("", 0);
    let pool = State::new(config, move |host: &u8| Profile {
        limits,
        speaks: if *host < MANY { Speaks::Http1 } else { Speaks::Http2 },
        balanced: Some(BalancedHost {
            name: NAME.into(),
            port: 80,
            pinned: (1..=servers).map(socket).collect(),
            seed: 7,
        }),
    });
    (pool, crate::clock::now())
}

const OWN_DIAL: Wish = Wish { own_dial: true, ..PLAIN };
const PLAIN: Wish = Wish { failed: None, despite_drain: false, send_once: false, own_dial: false, avoid: None };

/// The demands of a resend that failed on a connection to the address that ends in `ip`.
fn resend(ip: Option<u8>) -> Wish {
    Wish { failed: Some(EarlierConn { number: 999, ip: ip.map(|last| socket(last).ip()) }), ..PLAIN }
}

impl Pool {
    /// Opens connections to these addresses that are served by these runtimes, for a request each, and returns the leases.
    fn lease_each(&mut self, now: Instant, host: u8, conns: &[(u8, u64)]) -> Vec<LeaseToken> {
        for (_, runtime) in conns {
            assert!(matches!(self.checkout(now, &host, &OWN_DIAL, *runtime, || (0, LIMITS)), Acquired::Wait(..)));
        }
        let permits: Vec<_> = conns.iter().map(|_| self.permit()).collect();
        let ids: Vec<_> = permits.iter().map(Permit::id).collect();
        for (permit, (server, runtime)) in permits.into_iter().zip(conns) {
            let serial = permit.id().serial;
            let opened = if host < MANY { http1(serial) } else { http2(serial) };
            let remote = Some(socket(*server));
            self.dial_succeeded(now, permit, Opened { remote, runtime: *runtime, ..opened });
        }
        let leases = conns.iter().map(|_| self.delivered().1).collect();
        for id in ids.into_iter().filter(|_| host >= MANY) {
            self.announce_streams(now, id, 100);
        }
        assert!(!self.has_effects());
        leases
    }

    /// Leases a connection for a request. Returns `None` if the request waits.
    fn found(&mut self, now: Instant, host: u8, wish: &Wish, runtime: u64) -> Option<LeaseToken> {
        match self.checkout(now, &host, wish, runtime, || (0, LIMITS)) {
            Acquired::Ready(grant) => Some(grant.token),
            Acquired::Wait(..) => None,
            other => panic!("{other:?}"),
        }
    }
}

fn numbers(leases: &[LeaseToken]) -> Vec<u64> {
    leases.iter().map(LeaseToken::connection).collect()
}

#[test]
fn dials_for_requests_that_wait_go_to_the_addresses_in_turn() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new().max_http2_connections_per_host(1), 2);
    for waiter in 0..3 {
        pool.wait(now, 1, waiter);
    }
    let first: Vec<_> = (0..3).map(|_| pool.aimed().1).collect();
    assert_eq!(first, [1, 2, 1].map(|last| Some(socket(last))));
}

#[test]
fn an_address_whose_dial_failed_is_not_the_next_to_be_dialled() {
    for failing in [0, 1] {
        let (mut pool, now) = pinned_pool(&PoolConfig::new(), 3);
        pool.wait(now, 1, 0);
        pool.wait(now, 1, 1);
        let mut dials = vec![pool.aimed(), pool.aimed()];
        let (permit, first) = dials.remove(failing);
        assert_eq!(first, Some(socket([1, 2][failing])));
        pool.dial_failed(now, permit, "refused");
        pool.wait(now, 1, 2);
        assert_eq!(pool.aimed().1, Some(socket(3)), "no dial tries the failed one either");
    }
}

#[test]
fn requests_go_to_the_address_with_fewer_of_them_which_counts_them_until_they_are_over() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new(), 2);
    let leases = pool.lease_each(now, 1, &[(1, 0), (2, 0)]);
    let numbers = numbers(&leases);
    leases.into_iter().for_each(|lease| pool.release(now, lease, KEPT));
    let in_flight = |pool: &Pool| {
        let (_, reports) = pool.address_reports(now).next().expect("the host is balanced");
        assert!(reports.iter().all(|report| report.standing == Standing::Fine), "{reports:?}");
        reports.iter().map(|report| report.in_flight).collect::<Vec<_>>()
    };
    assert_eq!(in_flight(&pool), [0, 0]);
    let first = pool.found(now, 1, &PLAIN, 0).expect("it is idle");
    let second = pool.found(now, 1, &PLAIN, 0).expect("it is idle");
    assert_eq!([first.connection(), second.connection()], numbers[..]);
    assert!(first.is_tracked());
    assert_eq!(in_flight(&pool), [1, 1]);
    pool.release(now, first, KEPT);
    assert_eq!((in_flight(&pool), pool.has_effects()), (vec![0, 1], false));
    let (mut plain, now) = super::pool(PoolConfig::new());
    plain.open_idle(now, 1, 1);
    assert!(!plain.ready(now, 1).0.is_tracked(), "a host that is not balanced");
}

#[test]
fn a_request_to_an_address_gets_a_connection_of_its_own_runtime_first() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new(), 1);
    let leases = pool.lease_each(now, 1, &[(1, 1), (1, 2)]);
    let numbers = numbers(&leases);
    for (ms_later, lease) in (1..).zip(leases) {
        pool.release(now + ms(ms_later), lease, KEPT);
    }
    for (later, runtime, expected) in [(3, 1, 0), (4, 2, 1), (5, 3, 1)] {
        let lease = pool.found(now + ms(later), 1, &PLAIN, runtime).expect("one is idle");
        assert_eq!(lease.connection(), numbers[expected], "runtime {runtime}");
        pool.release(now + ms(later), lease, KEPT);
    }
    let lease = pool.found(now + ms(6), 1, &OWN_DIAL, 1).expect("its own runtime's is idle");
    assert_eq!(lease.connection(), numbers[0]);
    assert!(pool.found(now + ms(6), 1, &OWN_DIAL, 3).is_none(), "it is to have one of its own runtime");
    pool.permit();
    assert!(pool.found(now + ms(6), 1, &PLAIN, 3).is_some());
    assert!(pool.found(now + ms(6), 1, &PLAIN, 3).is_none(), "all are busy");
}

#[test]
fn at_an_address_busy_connections_come_first_and_a_resend_takes_no_idle_one() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new().max_http2_connections_per_host(3), 1);
    let mut leases = pool.lease_each(now, MANY, &[(1, 0), (1, 0)]);
    let numbers = numbers(&leases);
    pool.release(now + ms(5), leases.pop().expect("two"), KEPT);
    for wish in [PLAIN, resend(None)] {
        let lease = pool.found(now + ms(6), MANY, &wish, 0).expect("it has free streams");
        assert_eq!(lease.connection(), numbers[0]);
        leases.push(lease);
    }
    // A second attempt takes the idle connection.
    let avoid = Some(EarlierConn { number: numbers[0], ip: None });
    let hedge = pool.found(now + ms(6), MANY, &Wish { avoid, ..PLAIN }, 0).expect("it is idle");
    assert_eq!(hedge.connection(), numbers[1]);
    leases.push(hedge);
    leases.into_iter().for_each(|lease| pool.release(now + ms(7), lease, KEPT));
    assert!(pool.found(now + ms(8), MANY, &resend(None), 0).is_none());
    pool.permit();
}

#[test]
fn at_an_address_a_resend_takes_an_idle_connection_during_a_pause_the_server_asked_for() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new().max_http2_connections_per_host(2), 1);
    let mut leases = pool.lease_each(now, MANY, &[(1, 0), (1, 0)]);
    let idle = leases.pop().expect("two");
    let number = idle.connection();
    pool.release(now, idle, KEPT);
    pool.back_off(now, leases[0].id, 1.0);
    assert_eq!(pool.found(now, MANY, &resend(None), 0).map(|lease| lease.connection()), Some(number));
}

#[test]
fn at_an_address_that_cuts_an_unrepeatable_request_gets_a_rested_connection() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new(), 1);
    let mut leases = pool.lease_each(now, 1, &[(1, 0), (1, 0), (1, 0)]);
    let numbers = numbers(&leases);
    pool.release(now, leases.remove(0), LeaseEnd::Cut { idle: ms(3) });
    for (at, lease) in [0, 30].into_iter().zip(leases) {
        pool.release(now + ms(at), lease, KEPT);
    }
    let rested = pool.found(now + ms(50), 1, &ONCE, 0).expect("it has rested for 50 ms");
    assert_eq!(rested.connection(), numbers[1]);
    assert!(pool.found(now + ms(50), 1, &ONCE, 0).is_none(), "the other one was used 20 ms ago");
}

#[test]
fn another_attempt_goes_to_another_address_if_it_has_a_free_connection() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new(), 2);
    let mut leases = pool.lease_each(now, MANY, &[(1, 0), (2, 0)]);
    let (numbers, second) = (numbers(&leases), leases[1].id);
    let avoid = Some(EarlierConn { number: 999, ip: Some(socket(1).ip()) });
    for wish in [resend(Some(1)), Wish { avoid, ..PLAIN }] {
        let lease = pool.found(now, MANY, &wish, 0).expect("it has free streams");
        assert_eq!(lease.connection(), numbers[1], "the other address has fewer requests, but had the earlier attempt");
        leases.push(lease);
    }
    pool.retire(now, second, CloseCause::PeerAnnounced);
    for wish in [resend(Some(1)), Wish { avoid, ..PLAIN }] {
        let lease = pool.found(now, MANY, &wish, 0).expect("the same address is better than none");
        assert_eq!(lease.connection(), numbers[0]);
        leases.push(lease);
    }
}

#[test]
fn an_address_that_was_chosen_and_has_no_free_connection_is_dialled_for_the_requests_that_follow() {
    let (mut pool, now) = pinned_pool(&PoolConfig::new(), 2);
    let leases = pool.lease_each(now, 1, &[(1, 0)]);
    let numbers = numbers(&leases);
    leases.into_iter().for_each(|lease| pool.release(now, lease, KEPT));
    assert_eq!(pool.found(now, 1, &PLAIN, 0).map(|lease| lease.connection()), Some(numbers[0]));
    assert_eq!(pool.aimed().1, Some(socket(2)));
}

#[test]
fn a_request_whose_dial_is_postponed_takes_a_connection_to_an_address_that_left_dns() {
    let now = crate::clock::now();
    let mut pool = balanced_pool(&PoolConfig::new(), 7);
    let mut leases = pool.lease_each(now, 1, &[(1, 0), (1, 0), (1, 0)]);
    let numbers = numbers(&leases);
    pool.addresses_answered(now, NAME, &answer([2]), true);
    pool.wait(now, 1, 4);
    let (permit, first) = pool.aimed();
    assert_eq!(first, Some(socket(2)));
    pool.release(now, leases.pop().expect("three"), KEPT);
    assert!(!pool.has_effects(), "it waits for its dial");
    pool.dial_postponed(now, permit, Limit::Descriptors);
    let (waiter, lease, _) = pool.delivered();
    assert_eq!((waiter, lease.connection()), (4, numbers[2]));
}

#[test]
fn requests_beside_a_connection_to_an_address_that_left_dns_wait_for_another_one_until_the_pool_drains() {
    let now = crate::clock::now();
    let mut pool = balanced_pool(&PoolConfig::new().max_http2_connections_per_host(4), 7);
    let _leases = pool.lease_each(now, MANY, &[(1, 0)]);
    pool.addresses_answered(now, NAME, &answer([2]), true);
    pool.wait(now, MANY, 1);
    assert_eq!(pool.aimed().1, Some(socket(2)));
    pool.wait(now, MANY, 2);
    assert!(!pool.has_effects(), "one connection serves both");
    pool.drain(now);
    let effects: Vec<_> = std::iter::from_fn(|| pool.next_effect()).collect();
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Deliver { .. })).count(), 2, "{effects:?}");
}

/// Closes a connection, and its socket. Returns its number.
fn close_one(pool: &mut Pool, now: Instant, ids: &[ConnId]) -> u64 {
    let number = pool.closes();
    let id = *ids.iter().find(|id| id.serial == number).expect("one of these");
    pool.socket_closed(now, id);
    number
}

#[test]
fn under_a_limit_a_connection_to_an_address_that_left_dns_makes_room_for_requests_that_wait() {
    for limit in [1, 2] {
        for config in [PoolConfig::new().max_connections_per_host(limit), PoolConfig::new().max_connections(limit)] {
            for waits_before_the_release in [true, false] {
                let what = format!("{config:?}, {waits_before_the_release}");
                let (mut pool, now) = (balanced_pool(&config, 7), crate::clock::now());
                let leases = pool.lease_each(now, 1, &[(1, 0), (1, 0)][..limit]);
                let ids: Vec<_> = leases.iter().map(|lease| lease.id).collect();
                pool.addresses_answered(now, NAME, &answer([2]), true);
                if waits_before_the_release {
                    pool.wait(now, 1, 7);
                }
                leases.into_iter().for_each(|lease| pool.release(now, lease, KEPT));
                if !waits_before_the_release {
                    pool.wait(now, 1, 7);
                }
                close_one(&mut pool, now, &ids);
                let (permit, first) = pool.aimed();
                assert_eq!((first, pool.has_effects()), (Some(socket(2)), false), "{what}");
                pool.dial_succeeded(now, permit, Opened { remote: first, ..http1(9) });
                assert_eq!(pool.delivered().2, 9, "{what}");
                // The next one does the same with what is left.
                let has_another = limit == 2;
                pool.wait(now, 1, 8);
                assert_eq!(pool.has_effects(), has_another, "{what}");
            }
        }
    }
}

#[test]
fn under_a_limit_requests_beside_a_busy_stream_to_an_address_that_left_dns_wait_for_100_ms() {
    let config = PoolConfig::new().max_connections_per_host(1);
    let (mut pool, now) = (balanced_pool(&config, 7), crate::clock::now());
    let mut leases = pool.lease_each(now, MANY, &[(1, 0)]);
    let ids: Vec<_> = leases.iter().map(|lease| lease.id).collect();
    pool.addresses_answered(now, NAME, &answer([2]), true);
    pool.wait(now, MANY, 7);
    pool.handle_timeout(now + ms(99));
    assert!(!pool.has_effects(), "its last request may be over in a moment");
    pool.handle_timeout(now + ms(100));
    let (waiter, held, _) = pool.delivered();
    assert_eq!(waiter, 7);
    leases.push(held);
    pool.wait(now + ms(100), MANY, 8);
    leases.into_iter().for_each(|lease| pool.release(now + ms(150), lease, KEPT));
    close_one(&mut pool, now + ms(150), &ids);
    assert_eq!(pool.aimed().1, Some(socket(2)));
}

#[test]
fn under_a_limit_a_connection_to_an_address_that_left_dns_is_used_on_while_the_others_cannot_be_dialled() {
    let config = PoolConfig::new().max_connections_per_host(2);
    let (mut pool, now) = (balanced_pool(&config, 7), crate::clock::now());
    let leases = pool.lease_each(now, 1, &[(1, 0)]);
    pool.addresses_answered(now, NAME, &answer([2]), true);
    pool.wait(now, 1, 7);
    let (permit, first) = pool.aimed();
    assert_eq!(first, Some(socket(2)));
    leases.into_iter().for_each(|lease| pool.release(now, lease, KEPT));
    pool.dial_failed(now, permit, "refused");
    let (waiter, held, _) = pool.delivered();
    assert_eq!((waiter, pool.has_effects()), (7, false));
    pool.wait(now, 1, 8);
    pool.aimed();
    pool.release(now, held, KEPT);
    let (waiter, held, _) = pool.delivered();
    assert_eq!(waiter, 8);
    pool.release(now, held, KEPT);
    pool.next_effect();
    assert!(pool.found(now, 1, &PLAIN, 0).is_some());
}

#[test]
fn a_request_gets_a_connection_to_an_address_that_comes_into_use_as_another_one_goes() {
    let (mut pool, now) = (balanced_pool(&PoolConfig::new(), 7), crate::clock::now());
    let mut ids = Vec::new();
    let mut held = Vec::new();
    for last in [1, 2] {
        pool.wait(now, 1, last.into());
        let (permit, _) = pool.aimed();
        ids.push(permit.id());
        pool.addresses_answered(now, NAME, &answer([1, 2]), true);
        pool.dial_succeeded(now, permit, Opened { remote: Some(socket(last)), ..http1(last.into()) });
        held.push(pool.delivered().1);
    }
    let balance = pool.hosts[0].balance.as_mut().unwrap();
    let key = (0..2).find(|key| balance.socket(*key) == socket(2)).unwrap();
    for _ in 0..5 {
        balance.report(now, key, false, ms(10), Outcome::Failed);
    }
    pool.addresses_answered(now, NAME, &answer([]), true);
    pool.release(now, held.pop().unwrap(), KEPT);
    pool.wait(now, 1, 3);
    pool.aimed();
    assert!(!pool.has_effects(), "it waits for its own dial, beside a connection to the address that failed");
    pool.socket_closed(now, ids[0]);
    let delivered = std::iter::from_fn(|| pool.next_effect()).find_map(|effect| match effect {
        Effect::Deliver { waiter, grant, .. } => Some((waiter, grant.conn)),
        _ => None,
    });
    assert_eq!(delivered, Some((3, 2)));
}

/// Sends requests one after the other to servers that close each connection after its response. Returns the servers in their order.
fn one_request_a_connection(pool: &mut Pool, now: &mut Instant, count: u32, failing: Option<u8>) -> Vec<u8> {
    let mut servers = Vec::new();
    for number in 0..count {
        pool.wait(*now, 1, number);
        let (permit, first) = pool.aimed();
        // A race without an address to begin with has them take turns.
        let in_turn = 1 + u8::try_from(number % 2).unwrap();
        let server = (1..=2).find(|last| first == Some(socket(*last))).unwrap_or(in_turn);
        let id = permit.id();
        let opened = Opened { remote: Some(socket(server)), ..http1(id.serial) };
        if pool.dial_succeeded(*now, permit, opened) {
            pool.addresses_answered(*now, NAME, &answer(1..=2), true);
        }
        let (_, mut token, _) = pool.delivered();
        let outcome = if failing == Some(server) { Outcome::Failed } else { Outcome::Answered };
        pool.report(*now, &mut token, ms(10), outcome);
        pool.socket_closed(*now, id);
        pool.release(*now, token, BROKEN);
        while let Some(effect) = pool.next_effect() {
            assert!(matches!(effect, Effect::Close(_)), "{effect:?}");
        }
        servers.push(server);
        *now += ms(500);
    }
    servers
}

#[test]
fn an_address_is_ejected_and_comes_back_where_each_connection_serves_one_request() {
    let (mut pool, mut now) = (balanced_pool(&PoolConfig::new(), 7), crate::clock::now());
    let failing = one_request_a_connection(&mut pool, &mut now, 60, Some(1));
    let there = failing.iter().filter(|server| **server == 1).count();
    assert!((5..12).contains(&there), "{failing:?}");
    assert_eq!(pool.hosts.iter().count(), 0, "the host has no record between its requests");
    let well = one_request_a_connection(&mut pool, &mut now, 200, None);
    let last = well[100..].iter().filter(|server| **server == 1).count();
    assert!((30..70).contains(&last), "{well:?}");
    // After a time without requests nothing is known of the addresses.
    one_request_a_connection(&mut pool, &mut now, 60, Some(1));
    now += Duration::from_secs(300);
    pool.wait(now, 1, 0);
    assert_eq!(pool.aimed().1, None);
}

#[test]
fn other_settings_of_a_host_begin_with_nothing_known_of_its_addresses() {
    use crate::pool::config::Ejection;
    use crate::pool::state::memory::Resting;
    let now = crate::clock::now();
    let host = |port, pinned: &[u8]| BalancedHost {
        name: NAME.into(),
        port,
        pinned: pinned.iter().copied().map(socket).collect(),
        seed: 7,
    };
    let is_kept = |rested: BalancedHost, host: BalancedHost, rules: Ejection| {
        let balance = super::super::balance::Balance::new(rested, Ejection::new(), ms(90_000));
        Resting::new(now, Some(Box::new(balance))).take(now, &host, rules).is_some()
    };
    assert!(is_kept(host(80, &[]), host(80, &[]), Ejection::new()));
    assert!(is_kept(host(80, &[1, 2]), host(80, &[2, 1]), Ejection::new()));
    let many = |count: u8| host(80, &(1..=count).collect::<Vec<_>>());
    assert!(is_kept(many(64), many(64), Ejection::new()) && !is_kept(many(65), many(65), Ejection::new()));
    assert!(!is_kept(host(80, &[]), host(81, &[]), Ejection::new()));
    assert!(!is_kept(host(80, &[]), host(80, &[]), Ejection::off()));
    assert!(!is_kept(host(80, &[1]), host(80, &[]), Ejection::new()));
    assert!(!is_kept(host(80, &[]), host(80, &[1]), Ejection::new()));
    assert!(!is_kept(host(80, &[1, 2]), host(80, &[1, 3]), Ejection::new()));
}
