//! Failed queries: back-off and stale answers.

use super::*;

#[test]
fn a_failure_backs_off_from_one_second_to_thirty_and_for_lookups_to_two() {
    for (has_lookups, longest) in [(true, 2), (false, 30)] {
        let (mut cache, mut now) = (cache(NAMES), t0());
        for backoff in [1, 2, 4, 8, 16, 30, 30].map(|backoff: u64| backoff.min(longest)) {
            assert!(!is_known(&mut cache, now, "n", V4), "asked again");
            _ = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::ServFail, None));
            let before = now + secs(backoff) - ms(1);
            if has_lookups {
                let known = get(&mut cache, before, "n", V4);
                let Lookup::Known(Err(error), None) = known else { panic!("left alone for {backoff} s") };
                assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::ServFail, Source::Hit));
            } else {
                assert!(cache.touch(before, "n", V4).query.is_none(), "left alone for {backoff} s");
            }
            now += secs(backoff);
        }
    }
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    _ = resolve(&mut cache, now + secs(6), "n", V4, err(ResolveErrorKind::Timeout, None));
    let again = now + secs(7);
    assert!(matches!(get(&mut cache, again, "n", V4), Lookup::Known(Ok(_), Some(_))), "an answer ends it");
}

#[test]
fn a_failure_of_this_machine_backs_off_for_100_ms_each_time() {
    for kind in [ResolveErrorKind::Config, ResolveErrorKind::Local] {
        let (mut cache, mut now) = (cache(NAMES), t0());
        for _ in 0..50 {
            _ = resolve(&mut cache, now, "n", V4, err(kind, None));
            assert!(is_known(&mut cache, now + ms(99), "n", V4), "{kind:?}: left alone for a moment");
            now += ms(100);
            assert!(!is_known(&mut cache, now, "n", V4), "{kind:?}: and asked for again");
        }
        _ = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::ServFail, None));
        assert!(is_known(&mut cache, now + ms(999), "n", V4), "a server's failure backs off for a second");
        assert!(!is_known(&mut cache, now + secs(1), "n", V4));
    }
}

#[test]
fn a_failure_is_forgotten_by_a_timer() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::ServFail, None));
    assert_eq!((cache.len(), cache.next_timeout()), (1, Some(now + secs(2))));
    cache.handle_timeout(now + secs(2));
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_refresh_that_fails_backs_off_further_each_time() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 10_000));
    let mut queries = 0;
    for tenth in 0..6_000 {
        let at = now + secs(9_600 - 600) + ms(100 * tenth) + secs(599);
        if let Lookup::Known(_, Some(query)) = get(&mut cache, at, "n", V4) {
            queries += 1;
            _ = cache.complete(at, "n", V4, query.serial, err(ResolveErrorKind::ServFail, None));
        }
    }
    assert!((10..=26).contains(&queries), "{queries} queries in ten minutes");
}

#[test]
fn a_stale_answer_is_served_when_its_query_fails() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    let Lookup::Start(query, Some(stale)) = get(&mut cache, now + secs(5), "n", V4) else { panic!("asks again") };
    assert_eq!((stale.source(), stale.ttl()), (Source::Stale, Duration::ZERO));
    let failed = err(ResolveErrorKind::Timeout, None);
    let outcome = cache.complete(now + secs(6), "n", V4, query.serial, failed).outcome.unwrap();
    assert_eq!(outcome.source(), Source::Stale);
    assert_eq!(address(get(&mut cache, now + secs(6), "n", V4)), (1, Source::Stale));
    let Lookup::Known(Ok(_), Some(_)) = get(&mut cache, now + secs(7), "n", V4) else {
        panic!("after the back-off it is asked for in the background")
    };
    assert!(matches!(get(&mut cache, now + secs(7), "n", V4), Lookup::Known(Ok(_), None)), "once");
}

#[test]
fn an_answer_is_served_stale_for_an_hour_and_a_negative_one_never() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    let past = now + secs(5 + 3_600);
    assert!(matches!(get(&mut cache, past - ms(1), "n", V4), Lookup::Start(_, Some(_))));
    assert!(matches!(get(&mut cache, past, "n", V4), Lookup::Join(_, None)));
    cache.handle_timeout(past);
    assert_eq!(cache.len(), 0);
    _ = resolve(&mut cache, past, "none", V4, err(ResolveErrorKind::NxDomain, Some(5)));
    assert!(matches!(get(&mut cache, past + secs(5), "none", V4), Lookup::Start(_, None)));
}

#[test]
fn a_negative_answer_ends_a_stale_one() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    let outcome = resolve(&mut cache, now + secs(6), "n", V4, err(ResolveErrorKind::NxDomain, Some(5)));
    assert_eq!(outcome.unwrap_err().kind(), ResolveErrorKind::NxDomain);
    assert!(matches!(get(&mut cache, now + secs(12), "n", V4), Lookup::Start(_, None)));
}

#[test]
fn stale_answers_can_be_switched_off() {
    let now = t0();
    let mut cache = Cache::new(Config { max_stale: Duration::ZERO, ..Config::default() }, 0);
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    assert!(matches!(get(&mut cache, now + secs(5), "n", V4), Lookup::Start(_, None)));
}

#[test]
fn a_query_that_takes_too_long_is_replaced() {
    let (mut cache, now) = (cache(NAMES), t0());
    let Lookup::Start(first, None) = get(&mut cache, now, "n", V4) else { panic!("asks") };
    let limit = Config::default().max_query_time();
    assert!(matches!(get(&mut cache, now + limit - ms(1), "n", V4), Lookup::Join(..)));
    let Lookup::Start(second, None) = get(&mut cache, now + limit, "n", V4) else { panic!("asks anew") };
    _ = cache.complete(now + limit, "n", V4, first.serial, ok(1, 60));
    assert!(matches!(get(&mut cache, now + limit, "n", V4), Lookup::Join(..)), "the first one counts no more");
    _ = cache.complete(now + limit, "n", V4, second.serial, ok(2, 60));
    assert_eq!(address(get(&mut cache, now + limit, "n", V4)), (2, Source::Hit));
}

#[test]
fn where_a_query_in_the_background_was_lost_the_next_lookup_waits_for_one() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    _ = resolve(&mut cache, now + secs(6), "n", V4, err(ResolveErrorKind::ServFail, None));
    let later = now + secs(8);
    let Lookup::Known(Ok(_), Some(lost)) = get(&mut cache, later, "n", V4) else { panic!("a stale answer serves") };
    assert!(cache.abandon(later, "n", V4, lost.serial), "as with a runtime that ends after the lookup");
    assert!(
        matches!(get(&mut cache, later + ms(999), "n", V4), Lookup::Known(Ok(_), None)),
        "one waits for each pause"
    );
    let later = later + secs(1);
    let Lookup::Start(query, Some(_)) = get(&mut cache, later, "n", V4) else { panic!("it would serve for an hour") };
    assert!(matches!(get(&mut cache, later, "n", V4), Lookup::Join(_, Some(_))));
    _ = cache.complete(later, "n", V4, query.serial, err(ResolveErrorKind::ServFail, None));
    assert!(matches!(get(&mut cache, later + ms(1_999), "n", V4), Lookup::Known(Ok(_), None)), "the pause is longer");
    let later = later + secs(2);
    let Lookup::Known(Ok(_), Some(query)) = get(&mut cache, later, "n", V4) else { panic!("this one was not lost") };
    _ = cache.complete(later, "n", V4, query.serial, ok(2, 5));
    assert_eq!(address(get(&mut cache, later, "n", V4)), (2, Source::Hit));
}

#[test]
fn a_query_whose_resolver_panics_backs_off() {
    let (mut cache, now) = (cache(NAMES), t0());
    let Lookup::Start(query, None) = get(&mut cache, now, "n", V4) else { panic!("asks") };
    cache.record_panic(now, "n", V4, query.serial);
    let Lookup::Known(Err(error), None) = get(&mut cache, now, "n", V4) else { panic!("left alone") };
    assert_eq!(error.kind(), ResolveErrorKind::Other);
    assert!(matches!(get(&mut cache, now + secs(1), "n", V4), Lookup::Start(..)));
}

#[test]
fn when_the_world_has_changed_every_name_is_asked_for_again_and_old_addresses_serve_for_a_moment() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "known", V4, ok(1, 600));
    _ = resolve(&mut cache, now, "failed", V4, err(ResolveErrorKind::ServFail, None));
    _ = resolve(&mut cache, now, "none", V4, err(ResolveErrorKind::NxDomain, Some(20)));
    cache.set_world_changed(now);
    assert_eq!(cache.len(), 1, "negative answers and failures are forgotten");
    for name in ["failed", "none"] {
        assert!(matches!(get(&mut cache, now, name, V4), Lookup::Start(_, None)), "{name}");
    }
    let Lookup::Start(query, Some(_)) = get(&mut cache, now, "known", V4) else { panic!("it is asked for") };
    let last = now + SERVES_AFTER_CHANGE;
    assert!(matches!(get(&mut cache, last - ms(1), "known", V4), Lookup::Join(_, Some(_))));
    assert!(matches!(get(&mut cache, last, "known", V4), Lookup::Join(_, None)), "not for longer");
    _ = cache.handle_timeout(last);
    // Another address counts at once for those who have connections to the old one.
    let change = cache.complete(last, "known", V4, query.serial, ok(2, 600)).change.expect("it has moved");
    assert!(change.is_sure);
    assert_eq!(address(get(&mut cache, last, "known", V4)), (2, Source::Hit));
    let Lookup::Start(next, _) = get(&mut cache, last + secs(600), "known", V4) else { panic!("it has expired") };
    let change = cache.complete(last + secs(600), "known", V4, next.serial, ok(3, 600)).change.expect("it has moved");
    assert_eq!(change.ttl, secs(600), "the next change is a usual one");
}

#[test]
fn a_query_from_before_the_world_changed_is_neither_joined_nor_kept() {
    let (mut cache, now) = (cache(NAMES), t0());
    let Lookup::Start(old, None) = get(&mut cache, now, "n", V4) else { panic!("it is asked for") };
    cache.set_world_changed(now);
    let Lookup::Start(new, None) = get(&mut cache, now, "n", V4) else { panic!("it is asked for again") };
    let late = cache.complete(now, "n", V4, old.serial, err(ResolveErrorKind::NxDomain, Some(30)));
    assert!(late.outcome.is_err() && late.change.is_none(), "for those who wait for it");
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Join(..)));
    _ = cache.complete(now, "n", V4, new.serial, ok(2, 60));
    assert_eq!(address(get(&mut cache, now, "n", V4)), (2, Source::Hit));
}

#[test]
fn a_remembered_failure_tells_its_times_and_the_pause_can_be_set() {
    for (longest, again_in) in [(secs(2), 600), (ms(900), 500), (ms(400), 0)] {
        let mut cache: Cache<u32> = Cache::new(Config { longest_pause: longest, ..Config::default() }, 0);
        let now = t0();
        let fresh = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::ServFail, None)).unwrap_err();
        assert_eq!((fresh.asked_ago(), fresh.asked_again_in()), (None, Some(longest.min(secs(1)))));
        match get(&mut cache, now + ms(400), "n", V4) {
            Lookup::Known(Err(error), _) => {
                assert_eq!((error.asked_ago(), error.asked_again_in()), (Some(ms(400)), Some(ms(again_in))));
                let times = format!("; asked 0.4 s ago, asked again in {:.1} s", again_in as f64 / 1_000.0);
                assert!(error.to_string().ends_with(&times), "{error}");
            }
            other => assert_eq!(again_in, 0, "{other:?}"),
        }
    }
}
