//! Queries ahead of need: refreshes and touches.

use super::*;

#[test]
fn a_used_name_is_refreshed_in_the_last_tenth_of_its_ttl_and_an_unused_one_is_not() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "used", V4, ok(1, 100));
    _ = resolve(&mut cache, now, "unused", V4, ok(1, 100));
    assert!(is_known(&mut cache, now + secs(50), "used", V4));
    let mut refreshed = Vec::new();
    for second in 0..100 {
        let due = cache.handle_timeout(now + secs(second));
        refreshed.extend(due.into_iter().map(|(name, family)| (second, name.to_string(), family)));
    }
    let [(second, name, V4)] = &refreshed[..] else { panic!("{refreshed:?}") };
    assert!((90..=96).contains(second) && name == "used", "{refreshed:?}");
    assert!(cache.refresh(now + secs(96), "used", V4).is_some());
    assert!(cache.refresh(now + secs(96), "used", V4).is_none(), "one at a time");
}

#[test]
fn a_first_use_after_the_refresh_time_starts_the_refresh() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 100));
    assert!(cache.handle_timeout(now + secs(96)).is_empty());
    assert!(matches!(get(&mut cache, now + secs(97), "n", V4), Lookup::Known(Ok(_), Some(_))));
    assert!(matches!(get(&mut cache, now + secs(97), "n", V4), Lookup::Known(Ok(_), None)));
}

#[test]
fn a_failed_refresh_leaves_the_fresh_answer() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 100));
    let outcome = resolve(&mut cache, now + secs(96), "n", V4, err(ResolveErrorKind::ServFail, None)).unwrap();
    assert_eq!(outcome.source(), Source::Hit);
    assert_eq!(address(get(&mut cache, now + secs(99), "n", V4)), (1, Source::Hit));
}

#[test]
fn a_touched_name_is_refreshed_and_queried_while_it_is_stale() {
    let (mut cache, now) = (cache(2), t0());
    let touch = |cache: &mut Cache<u32>, at, name| cache.touch(at, name, V4).query.is_some();
    _ = resolve(&mut cache, now, "n", V4, ok(1, 100));
    assert!(!touch(&mut cache, now + secs(50), "n"), "its time has not come");
    let due = (90..=96).flat_map(|second| cache.handle_timeout(now + secs(second))).count();
    assert_eq!(due, 1, "it is asked for again as if it had been looked up");
    assert!(touch(&mut cache, now + secs(101), "n"), "and also when that failed");
    assert!(!touch(&mut cache, now + secs(101), "n"), "once");
    _ = resolve(&mut cache, now + secs(101), "m", V4, ok(1, 100));
    touch(&mut cache, now + secs(101), "n");
    _ = resolve(&mut cache, now + secs(101), "o", V4, ok(1, 100));
    assert!(is_kept(&cache, "n") && !is_kept(&cache, "m"), "it is a recent use");
    assert_eq!(cache.stats().hits, 0);
}

#[test]
fn a_touched_name_whose_servers_fail_is_queried_after_each_backoff() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    let mut asked = Vec::new();
    for second in 5..40 {
        let at = now + secs(second);
        if let Some(query) = cache.touch(at, "n", V4).query {
            asked.push(second);
            _ = cache.complete(at, "n", V4, query.serial, err(ResolveErrorKind::ServFail, None));
        }
    }
    assert_eq!(asked, [5, 6, 8, 12, 20, 36]);
}

#[test]
fn a_touched_name_without_addresses_is_queried_again() {
    let (mut cache, now) = (cache(NAMES), t0());
    let touch = |cache: &mut Cache<u32>, at| cache.touch(at, "n", V4);
    _ = resolve(&mut cache, now, "n", V4, ok(1, 10));
    _ = resolve(&mut cache, now + secs(9), "n", V4, err(ResolveErrorKind::NxDomain, Some(5)));
    let touched = touch(&mut cache, now + secs(10));
    assert!(!touched.has_addresses && touched.query.is_none(), "it does not exist, for now");
    let touched = touch(&mut cache, now + secs(14));
    let query = touched.query.expect("it may exist again");
    assert!(touch(&mut cache, now + secs(14)).query.is_none(), "once");
    _ = cache.complete(now + secs(14), "n", V4, query.serial, err(ResolveErrorKind::ServFail, None));
    assert!(touch(&mut cache, now + secs(14)).query.is_none(), "within its back-off");
    let query = touch(&mut cache, now + secs(15)).query.expect("after its back-off");
    _ = cache.complete(now + secs(15), "n", V4, query.serial, ok(2, 10));
    assert!(touch(&mut cache, now + secs(16)).has_addresses);
    _ = resolve(&mut cache, now + secs(16), "n", V6, err(ResolveErrorKind::NoData, Some(1)));
    let other = cache.touch(now + secs(18), "n", V6);
    assert!(other.has_addresses && other.query.is_none(), "a family it never had is not asked for");
    _ = cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
    assert!(touch(&mut cache, now + secs(60)).query.is_none(), "a pinned name is not asked for");
}

#[test]
fn no_refresh_is_missed_while_one_runs() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 100));
    let late = now + secs(97);
    let is_missed = |cache: &Cache<u32>| {
        let id = cache.entries.find("n").unwrap();
        cache.entries.state(id, V4).missed_its_refresh(late)
    };
    assert!(is_missed(&cache));
    let query = cache.refresh(late, "n", V4).unwrap();
    assert!(!is_missed(&cache));
    cache.abandon(now, "n", V4, query.serial);
    assert!(is_missed(&cache), "it was lost");
}
