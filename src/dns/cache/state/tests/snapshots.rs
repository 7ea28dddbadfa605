//! Snapshots and their restoration.

use super::*;
use crate::dns::cache::state::snapshot::SnapshotRecord;

#[test]
fn a_snapshot_comes_back_with_what_is_left_of_its_time() {
    let (mut old, now, wall) = (cache(NAMES), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    _ = resolve(&mut old, now, "long", V4, ok(1, 100));
    _ = resolve(&mut old, now, "short", V4, ok(2, 10));
    _ = resolve(&mut old, now, "none", V4, err(ResolveErrorKind::NxDomain, Some(30)));
    let snapshot = old.snapshot(now + secs(5), wall);
    assert_eq!(snapshot.len(), 2);

    let restored = |after: u64| {
        let mut new = cache(NAMES);
        new.restore(now, wall + secs(after), &snapshot);
        new
    };
    let mut new = restored(20);
    let Lookup::Known(Ok(answer), None) = get(&mut new, now, "long", V4) else { panic!("known") };
    assert_eq!((answer.ttl(), answer.source()), (secs(75), Source::Hit));
    assert!(matches!(get(&mut new, now, "short", V4), Lookup::Start(_, Some(_))), "stale");
    let refresh_at = new.next_timeout().unwrap();
    assert!((now + ms(67_500)..=now + ms(71_250)).contains(&refresh_at), "in the last tenth of what is left");

    let mut late = restored(3_600 + 4);
    assert!(matches!(get(&mut late, now, "short", V4), Lookup::Start(_, Some(_))));
    assert!(matches!(get(&mut late, now + secs(1), "short", V4), Lookup::Join(_, None)), "an hour past its expiry");
    late.handle_timeout(now + secs(1));
    assert!(!is_kept(&late, "short"), "its hour is over");
    assert_eq!(restored(3_600 + 96).len(), 0);

    let mut back = cache(NAMES);
    back.restore(now, wall - secs(10_000), &snapshot);
    let Lookup::Known(Ok(answer), None) = get(&mut back, now, "long", V4) else { panic!("known") };
    assert_eq!(answer.ttl(), secs(95), "a clock that was set back makes nothing live longer");
}

#[test]
fn a_snapshot_overrules_nothing_and_stays_within_the_bound() {
    let (mut old, now, wall) = (cache(8), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    for name in ["a", "b", "c", "d"] {
        _ = resolve(&mut old, now, name, V4, ok(1, 100));
    }
    let snapshot = old.snapshot(now, wall);
    let mut new = cache(2);
    _ = resolve(&mut new, now, "d", V4, ok(9, 100));
    new.restore(now, wall, &snapshot);
    assert_eq!((new.len(), address(get(&mut new, now, "c", V4))), (2, (1, Source::Hit)), "the last used one comes");
    assert_eq!(address(get(&mut new, now, "d", V4)), (9, Source::Hit), "and none leaves for it");
    let mut new = cache(8);
    _ = resolve(&mut new, now, "d", V4, ok(9, 100));
    new.restore(now, wall, &snapshot);
    assert_eq!(address(get(&mut new, now, "d", V4)), (9, Source::Hit));
    let mut none = cache(0);
    none.restore(now, wall, &snapshot);
    assert_eq!(none.len(), 0);
}

#[test]
fn a_malformed_snapshot_does_no_harm() {
    let (now, wall) = (t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    let record = |addresses: Vec<IpAddr>, expires| SnapshotRecord { name: "N".into(), addresses, expires, place: 0 };
    let v4 = IpAddr::from([192, 0, 2, 1]);
    let records = vec![
        record(vec![], u64::MAX),
        record(vec![v4], 0),
        record(vec![v4, std::net::Ipv6Addr::LOCALHOST.into()], u64::MAX),
    ];
    let mut cache = cache(NAMES);
    cache.restore(now, wall, &Snapshot { taken: 0, records });
    let Lookup::Known(Ok(answer), _) = get(&mut cache, now, "n", V4) else { panic!("known") };
    assert_eq!((answer.addresses().len(), answer.ttl()), (1, secs(24 * 60 * 60)));
}

#[test]
fn restored_names_count_as_used_less_recently_than_known_ones() {
    let (mut old, now, wall) = (cache(8), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    for name in ["a", "b"] {
        _ = resolve(&mut old, now, name, V4, ok(1, 100));
    }
    let mut new = cache(3);
    _ = resolve(&mut new, now, "live", V4, ok(9, 100));
    new.restore(now, wall, &old.snapshot(now, wall));
    for (name, left) in [("c", ["live", "b"]), ("d", ["live", "c"])] {
        _ = resolve(&mut new, now, name, V4, ok(1, 100));
        if name == "c" {
            assert!(is_known(&mut new, now, "live", V4));
        }
        assert!(left.iter().all(|name| is_kept(&new, name)), "{name}");
    }
}

#[test]
fn a_failure_does_not_prevent_a_restore() {
    let (mut old, now, wall) = (cache(8), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    _ = resolve(&mut old, now, "n", V4, ok(1, 10));
    let snapshot = old.snapshot(now, wall);
    let mut new = cache(8);
    _ = resolve(&mut new, now, "n", V4, err(ResolveErrorKind::ServFail, None));
    new.restore(now, wall + secs(20), &snapshot);
    assert_eq!(address(get(&mut new, now, "n", V4)), (1, Source::Stale), "nor is the failure forgotten");
}

#[test]
fn a_snapshot_states_each_expiry_by_the_systems_clock() {
    let (mut old, now, wall) = (cache(NAMES), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    _ = resolve(&mut old, now, "stale", V4, ok(1, 10));
    _ = resolve(&mut old, now, "fresh", V4, ok(2, 100));
    let snapshot = old.snapshot(now + secs(15), wall);
    let expiries: Vec<_> = snapshot.answers().map(|(name, _, expires)| (name, expires)).collect();
    assert_eq!(expiries, [("stale", wall - secs(5)), ("fresh", wall + secs(85))]);
}

#[test]
fn addresses_are_restorable_until_the_end_of_their_stale_time() {
    let (now, wall) = (t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    let config = Config { max_stale: secs(10), ..Config::default() };
    let addresses = vec![[192, 0, 2, 1].into()];
    let record = SnapshotRecord { name: "n".into(), addresses, expires: 1_000_000_000, place: 0 };
    let restorable = |after| {
        let restorable = crate::dns::cache::state::snapshot::restorable;
        restorable(&record, 0, now, wall + after, &config).map(|restorable| restorable.expires)
    };
    assert_eq!(restorable(secs(10) - ms(1)), Some(now + ms(1) - secs(10)));
    assert_eq!(restorable(secs(10)), None);
    assert_eq!(restorable(secs(11)), None);
}
