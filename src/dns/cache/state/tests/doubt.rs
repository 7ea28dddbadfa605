//! Words of servers that contradict each other: which one counts, and for how long.

use super::*;
use ResolveErrorKind::{NoData, NxDomain, ServFail};

/// Returns the last byte of the address that a lookup gets at once or by a stale answer; `None` for none.
fn served(cache: &mut Cache<u32>, now: Instant, family: Family) -> Option<u8> {
    let answer = match get(cache, now, "n", family) {
        Lookup::Known(outcome, query) => {
            query.map(|query| cache.abandon(now, "n", family, query.serial));
            outcome.ok()
        }
        Lookup::Start(query, stale) => {
            cache.abandon(now, "n", family, query.serial);
            stale
        }
        Lookup::Join(_, stale) => stale,
    };
    answer.map(|answer| match answer.addresses()[0] {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    })
}

/// An answer with the address `2001:db8::last`.
fn ok_v6(last: u16, ttl: u64) -> Result<Answer, ResolveError> {
    Ok(Answer::new([[0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into()], secs(ttl), Source::Miss))
}

/// Completes a query for IPv4.
fn say(cache: &mut Cache<u32>, now: Instant, server: u8, result: Result<Answer, ResolveError>) -> Option<u8> {
    let answer = resolve(cache, now, "n", V4, from(server, result)).ok()?;
    Some(answer.addresses()[0].to_string().rsplit('.').next()?.parse().unwrap())
}

#[test]
fn a_later_servers_no_does_not_replace_addresses() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 1, ok(1, 10));
    for (after, kind) in [(9, NxDomain), (11, NoData), (100, NxDomain), (3_000, NxDomain)] {
        let now = now + secs(after);
        assert_eq!(say(&mut cache, now, 2, err(kind, Some(300))), Some(1), "after {after} s");
        assert_eq!(served(&mut cache, now, V4), Some(1));
        assert!(is_known(&mut cache, now + ms(1_999), "n", V4), "the name is left alone for 2 s");
    }
    let late = now + secs(3_100);
    assert_eq!(say(&mut cache, late, 1, err(NxDomain, Some(30))), None, "the same server's counts at once");
    assert_eq!(served(&mut cache, late + secs(29), V4), None);
}

#[test]
fn a_later_servers_no_about_an_unknown_name_is_kept_for_a_second() {
    for (server, kept) in [(0, 30), (1, 1), (7, 1)] {
        let (mut cache, now) = (cache(NAMES), t0());
        say(&mut cache, now, server, err(NxDomain, Some(300)));
        assert!(is_known(&mut cache, now + secs(kept) - ms(1), "n", V4));
        assert!(is_known(&mut cache, now + secs(kept) - ms(1), "n", V6), "NXDOMAIN counts for both");
        assert!(!is_known(&mut cache, now + secs(kept), "n", V4));
        assert!(!is_known(&mut cache, now + secs(kept), "n", V6));
    }
}

#[test]
fn a_later_servers_no_beside_addresses_of_the_other_family_is_kept_like_any() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 1, ok(1, 60));
    resolve(&mut cache, now, "n", V6, from(1, err(NoData, Some(20)))).unwrap_err();
    assert!(is_known(&mut cache, now + secs(19), "n", V6));
}

#[test]
fn another_address_of_a_later_server_waits_until_the_ttl_and_30_s_are_over() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 10));
    for (after, expected) in [(9, 1), (20, 1), (39, 1), (41, 2)] {
        assert_eq!(say(&mut cache, now + secs(after), 1, ok(2, 60)), Some(expected), "after {after} s");
        assert_eq!(served(&mut cache, now + secs(after), V4), Some(expected));
    }
    assert_eq!(say(&mut cache, now + secs(42), 0, ok(1, 10)), Some(1), "an earlier server's replaces it at once");
    assert_eq!(say(&mut cache, now + secs(43), 0, ok(3, 10)), Some(3), "and the same one's");
}

#[test]
fn a_server_that_confirms_the_address_takes_over_its_place() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 300));
    assert_eq!(say(&mut cache, now + secs(280), 1, ok(1, 300)), Some(1));
    assert_eq!(say(&mut cache, now + secs(281), 1, ok(2, 300)), Some(2), "it moved, as the same server says");
    assert_eq!(say(&mut cache, now + secs(282), 2, ok(3, 300)), Some(2));
}

#[test]
fn a_later_servers_addresses_are_kept_for_a_minute_and_asked_for_again_after_5_s() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 1, ok(1, 3_600));
    assert_eq!(served(&mut cache, now + secs(1), V4), Some(1));
    assert_eq!(cache.handle_timeout(now + ms(4_999)), []);
    assert_eq!(cache.handle_timeout(now + secs(5)), [("n".into(), V4)]);
    let fresh = |cache: &mut Cache<u32>, at| match get(cache, at, "n", V4) {
        Lookup::Start(query, stale) => {
            cache.abandon(now, "n", V4, query.serial);
            stale.is_some_and(|answer| answer.source() == Source::Hit)
        }
        lookup => panic!("{lookup:?}"),
    };
    assert!(fresh(&mut cache, now + ms(59_999)));
    assert!(!fresh(&mut cache, now + secs(60)));
}

#[test]
fn a_lookup_of_a_later_servers_address_that_was_not_used_for_5_s_waits_for_the_first_server() {
    for server in [0, 1] {
        let (mut cache, now) = (cache(NAMES), t0());
        say(&mut cache, now, server, ok(1, 60));
        cache.handle_timeout(now + secs(6));
        let lookup = get(&mut cache, now + secs(6), "n", V4);
        let waits = matches!(&lookup, Lookup::Start(_, Some(doubtful)) if doubtful.addresses().len() == 1);
        assert_eq!(waits, server == 1, "{lookup:?}");
    }
}

#[test]
fn at_most_20_doubtful_names_a_second_are_asked_for_early() {
    let (mut cache, now) = (cache(100), t0());
    for number in 0..100 {
        let name = format!("n{number}");
        resolve(&mut cache, now, &name, V4, from(1, ok(1, 60))).unwrap();
        get(&mut cache, now, &name, V4);
    }
    assert_eq!(cache.handle_timeout(now + secs(5)).len(), 20);
    assert_eq!(cache.handle_timeout(now + secs(50)).len(), 0, "the others wait for their usual refresh");
    let usual: usize = (0..100).map(|tenth| cache.handle_timeout(now + secs(50) + ms(100 * tenth)).len()).sum();
    assert_eq!(usual, 80);
    // A name that is used again after its time takes from the same number.
    say(&mut cache, now, 1, ok(1, 60));
    let at = now + secs(100);
    for number in 0..30 {
        resolve(&mut cache, at, &format!("m{number}"), V4, from(1, ok(1, 60))).unwrap();
    }
    cache.handle_timeout(at + secs(6));
    let started = (0..30)
        .filter(|number| matches!(get(&mut cache, at + secs(6), &format!("m{number}"), V4), Lookup::Start(_, Some(_))));
    assert_eq!(started.count(), 20);
}

#[test]
fn no_later_servers_addresses_stand_beside_an_earlier_ones_of_the_other_family() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 60));
    let error = resolve(&mut cache, now, "n", V6, from(1, ok_v6(9, 60))).unwrap_err();
    assert_eq!(error.kind(), NoData);
    assert_eq!(served(&mut cache, now, V6), None);
    // The other way about: the earlier server is heard again in one family.
    let (mut cache, now) = (self::cache(NAMES), t0());
    say(&mut cache, now, 1, ok(1, 60));
    resolve(&mut cache, now, "n", V6, from(1, ok_v6(9, 60))).unwrap();
    assert_eq!(served(&mut cache, now, V6), Some(9));
    say(&mut cache, now, 0, ok(2, 60));
    assert!(!is_known(&mut cache, now, "n", V6), "it is asked for again");
    assert_eq!(served(&mut cache, now + ms(1_799), V6), Some(9), "while it is slow");
    assert_eq!(served(&mut cache, now + ms(1_801), V6), None);
    resolve(&mut cache, now, "n", V6, from(0, err(NoData, Some(30)))).unwrap_err();
    assert_eq!(served(&mut cache, now, V6), None);
}

#[test]
fn a_late_answer_of_an_earlier_server_counts_unless_the_world_has_changed() {
    for changes in [false, true] {
        let (mut cache, now) = (cache(NAMES), t0());
        let (world, known) = cache.known("n", V4);
        assert_eq!(known, None);
        say(&mut cache, now, 1, ok(2, 60));
        assert_eq!(cache.known("n", V6).1, Some(Place { server: 1, candidate: 0 }), "the other family's");
        if changes {
            cache.set_world_changed(now);
            assert_eq!(cache.known("n", V4).1, None);
        }
        let change = cache.take_late(now, "n", V4, world, ok(1, 60).unwrap());
        assert_eq!(change.is_none(), changes);
        assert_eq!(served(&mut cache, now, V4), Some(if changes { 2 } else { 1 }));
    }
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 1, ok(2, 60));
    assert!(cache.take_late(now, "n", V4, 0, ok(1, 0).unwrap()).is_none());
    assert_eq!(served(&mut cache, now, V4), Some(2), "a TTL of zero is for those who wait");
}

/// Returns true if the name is asked for because none of its addresses connects, and completes the query by what a server says.
fn doubt(cache: &mut Cache<u32>, now: Instant, server: u8, result: Result<Answer, ResolveError>) -> bool {
    let query = cache.doubt(now, "n", V4);
    assert!(query.is_none() || cache.doubt(now, "n", V4).is_none(), "one query at a time");
    let serial = query.as_ref().map(|query| query.serial);
    let asked = serial.map(|serial| cache.complete(now, "n", V4, serial, from(server, result)));
    asked.is_some()
}

#[test]
fn addresses_of_which_none_connects_are_asked_for_anew_at_most_every_two_seconds() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 60));
    assert!(!doubt(&mut cache, now + ms(1_999), 0, ok(2, 60)), "they have just come");
    assert!(doubt(&mut cache, now + secs(2), 0, ok(1, 60)));
    assert!(!doubt(&mut cache, now + secs(3), 0, ok(2, 60)));
    assert!(doubt(&mut cache, now + secs(4), 0, err(ServFail, None)));
    assert_eq!(served(&mut cache, now + secs(4), V4), Some(1), "a failure leaves them");
    assert!(!doubt(&mut cache, now + secs(4), 0, ok(2, 60)), "the query has just failed");
    assert!(doubt(&mut cache, now + secs(6), 0, ok(2, 60)));
    assert_eq!(served(&mut cache, now + secs(6), V4), Some(2));
    assert!(cache.doubt(now + secs(60), "n", V6).is_none() && cache.doubt(now, "other", V4).is_none());
    cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
    assert!(!doubt(&mut cache, now + secs(50), 0, ok(1, 60)));
}

#[test]
fn at_most_20_names_a_second_are_asked_for_because_they_do_not_connect() {
    let (mut cache, now) = (cache(100), t0());
    let names: Vec<_> = (0..50).map(|name| format!("n{name}")).collect();
    for name in &names {
        resolve(&mut cache, now, name, V4, ok(1, 600)).unwrap();
    }
    let asked = |cache: &mut Cache<u32>, now| {
        let twice = names.iter().chain(&names);
        twice.filter(|name| cache.doubt(now, name, V4).is_some()).count()
    };
    assert_eq!(asked(&mut cache, now + secs(10)), 20);
    assert_eq!(asked(&mut cache, now + ms(10_999)), 0);
    assert_eq!(asked(&mut cache, now + secs(11)), 20);
}

#[test]
fn another_address_that_waited_counts_from_the_ttls_end_once_none_of_the_known_ones_connects() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 60));
    assert_eq!(say(&mut cache, now + secs(50), 1, ok(2, 60)), Some(1));
    assert!(!doubt(&mut cache, now + secs(50), 1, ok(2, 60)), "the name was asked for a moment ago");
    assert!(doubt(&mut cache, now + secs(52), 1, ok(2, 60)));
    assert_eq!(served(&mut cache, now + secs(52), V4), Some(1), "a restart is no move");
    assert!(doubt(&mut cache, now + secs(60), 1, ok(2, 60)));
    assert_eq!(served(&mut cache, now + secs(60), V4), Some(2));
}

#[test]
fn a_later_servers_no_does_not_count_where_none_of_the_known_addresses_connects() {
    for candidate in [3, u8::MAX] {
        let (mut cache, now) = (cache(NAMES), t0());
        let of_candidate = ok(1, 60).map(|answer| answer.with_place(Place { server: 0, candidate }));
        resolve(&mut cache, now, "n", V4, of_candidate).unwrap();
        let now = now + secs(60);
        assert_eq!(say(&mut cache, now, 1, err(NxDomain, Some(60))), Some(1));
        assert!(doubt(&mut cache, now, 1, err(NxDomain, Some(60))));
        let known = cache.known("n", V4).1.map(|place| place.candidate);
        assert_eq!(known, Some(candidate.min(254)), "the search ends at the candidate");
        assert_eq!(served(&mut cache, now, V4), Some(1));
        assert!(!doubt(&mut cache, now + ms(1_999), 0, ok(2, 60)), "and each further call does not ask");
        assert!(doubt(&mut cache, now + secs(2), 0, err(NxDomain, Some(60))));
        assert_eq!(served(&mut cache, now + secs(2), V4), None, "the first server's does");
    }
}

#[test]
fn after_a_change_of_the_world_any_answer_counts() {
    let (mut cache, now) = (cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 60));
    cache.set_world_changed(now);
    assert_eq!(say(&mut cache, now, 3, err(NxDomain, Some(60))), None);
    let (mut cache, now) = (self::cache(NAMES), t0());
    say(&mut cache, now, 0, ok(1, 60));
    cache.set_world_changed(now);
    assert_eq!(say(&mut cache, now, 3, ok(2, 60)), Some(2));
}

#[test]
fn doubt_goes_through_a_snapshot() {
    let (mut old, now) = (cache(NAMES), t0());
    let wall = SystemTime::UNIX_EPOCH + secs(1_000);
    say(&mut old, now, 1, ok(1, 60));
    let mut new = cache(NAMES);
    new.restore(now, wall, &old.snapshot(now, wall));
    assert_eq!(say(&mut new, now, 2, ok(2, 60)), Some(1), "a later server's waits");
    assert_eq!(say(&mut new, now, 1, ok(3, 60)), Some(3));
}

#[test]
fn with_no_stale_answers_a_later_servers_word_counts_from_the_expiry_on() {
    let config = Config { max_names: NAMES, max_stale: Duration::ZERO, ..Config::default() };
    let (mut cache, now) = (Cache::new(config, 0), t0());
    say(&mut cache, now, 0, ok(1, 10));
    assert_eq!(say(&mut cache, now + secs(9), 1, ok(2, 10)), Some(1));
    assert_eq!(say(&mut cache, now + secs(10), 1, ok(2, 10)), Some(2));
}

#[test]
fn who_uses_a_later_servers_address_leaves_it_at_once_for_an_earlier_ones() {
    let is_sure = |first: u8, second: u8, answer: Result<Answer, ResolveError>| {
        let (mut cache, now) = (cache(NAMES), t0());
        say(&mut cache, now, first, ok(1, 60));
        cache.refresh(now, "n", V4);
        let serial = cache.queries.serial(&("n".into(), V4));
        cache.complete(now, "n", V4, serial, from(second, answer)).change.map(|change| change.is_sure)
    };
    assert_eq!(is_sure(0, 0, ok(2, 60)), Some(false), "a name may rotate its addresses");
    assert_eq!(is_sure(1, 0, ok(2, 60)), Some(true));
    assert_eq!(is_sure(1, 0, err(NxDomain, Some(30))), Some(true));
    assert_eq!(is_sure(1, 0, ok(1, 60)), None);
    assert_eq!(is_sure(0, 1, ok(2, 60)), None);
}

#[test]
fn who_opens_a_connection_by_an_older_word_learns_that_it_counts_for_nothing() {
    let (mut cache, now) = (cache(NAMES), t0());
    let is_sure = |cache: &Cache<u32>| {
        cache.peek(now, "n").into_iter().flatten().any(|(answer, is_sure)| is_sure && !answer.addresses().is_empty())
    };
    say(&mut cache, now, 1, ok(2, 60));
    assert!(!is_sure(&cache), "nothing was known before");
    say(&mut cache, now, 0, ok(1, 60));
    assert!(is_sure(&cache), "an earlier server's");
    say(&mut cache, now, 0, ok(3, 60));
    assert!(!is_sure(&cache), "a name may rotate its addresses");
    cache.set_world_changed(now);
    say(&mut cache, now, 0, ok(4, 60));
    assert!(is_sure(&cache));
    cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
    assert!(is_sure(&cache));
    cache.unpin(now, "n");
    say(&mut cache, now, 0, ok(4, 60));
    assert!(!is_sure(&cache));
    assert_eq!(cache.peek(now, "other"), [None, None]);
}
