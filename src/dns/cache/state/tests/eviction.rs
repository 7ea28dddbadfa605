//! When a name is forgotten.

use super::*;

#[test]
fn the_least_recently_used_name_is_evicted() {
    let (mut cache, now) = (cache(2), t0());
    _ = resolve(&mut cache, now, "a", V4, ok(1, 60));
    _ = resolve(&mut cache, now, "b", V4, ok(1, 60));
    _ = resolve(&mut cache, now, "b", V6, ok(1, 60));
    assert!(is_known(&mut cache, now, "a", V4));
    _ = resolve(&mut cache, now, "c", V4, ok(1, 60));
    assert!(is_known(&mut cache, now, "a", V4) && is_known(&mut cache, now, "c", V4));
    assert!(!is_known(&mut cache, now, "b", V4) && !is_known(&mut cache, now, "b", V6));
}

#[test]
fn a_lookup_is_a_use_also_of_an_expired_name() {
    let (mut cache, now) = (cache(2), t0());
    _ = resolve(&mut cache, now, "hot", V4, ok(1, 1));
    _ = resolve(&mut cache, now, "idle", V4, ok(1, 1));
    assert!(matches!(get(&mut cache, now + secs(2), "hot", V4), Lookup::Start(_, Some(_))));
    _ = resolve(&mut cache, now + secs(2), "new", V4, ok(1, 1));
    assert!(is_kept(&cache, "hot") && !is_kept(&cache, "idle"));
}

#[test]
fn a_bound_of_zero_keeps_nothing() {
    let (mut cache, now) = (cache(0), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    assert_eq!((cache.len(), cache.next_timeout()), (0, None));
}

#[test]
fn a_timeout_removes_names_past_their_stale_time() {
    let now = t0();
    let mut cache = Cache::new(Config { max_stale: secs(10), ..Config::default() }, 0);
    _ = resolve(&mut cache, now, "n", V4, ok(1, 5));
    _ = resolve(&mut cache, now, "n", V6, ok(1, 9));
    for (at, kept) in [(4, 1), (15, 1), (18, 1), (19, 0)] {
        cache.handle_timeout(now + secs(at));
        assert_eq!(cache.len(), kept, "after {at} s");
    }
    assert_eq!((cache.len(), cache.next_timeout()), (0, None));
}

#[test]
fn each_eviction_is_counted() {
    let (mut cache, now) = (cache(2), t0());
    for (name, evictions) in [("a", 0), ("b", 0), ("c", 1), ("d", 2)] {
        _ = resolve(&mut cache, now, name, V4, ok(1, 60));
        assert_eq!(cache.stats().evictions, evictions, "{name}");
    }
}
