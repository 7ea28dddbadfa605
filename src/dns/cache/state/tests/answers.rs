//! Which answer a lookup gets: TTLs, negative answers, pins, changes.

use super::*;

#[test]
fn one_query_runs_for_a_name_and_family() {
    let (mut cache, now) = (cache(NAMES), t0());
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Start(..)));
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Join(..)));
    assert!(matches!(get(&mut cache, now, "n", V6), Lookup::Start(..)));
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Known(Ok(_), _)));
    assert!(matches!(get(&mut cache, now, "n", V6), Lookup::Join(..)));
}

#[test]
fn an_answer_lives_as_long_as_its_ttl_and_counts_down() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    let Lookup::Known(Ok(answer), _) = get(&mut cache, now + secs(50), "n", V4) else { panic!("known") };
    assert_eq!((answer.ttl(), answer.source()), (secs(10), Source::Hit));
    assert!(matches!(get(&mut cache, now + secs(60), "n", V4), Lookup::Start(..)));
}

#[test]
fn an_answer_with_a_ttl_of_zero_is_not_kept() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    _ = resolve(&mut cache, now, "n", V4, ok(2, 0));
    assert!(!is_known(&mut cache, now, "n", V4));
    assert_eq!((cache.len(), cache.snapshot(now, std::time::SystemTime::UNIX_EPOCH).records.len()), (1, 0));
    cache.handle_timeout(now + secs(60));
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_name_in_use_with_a_ttl_of_zero_is_asked_about_every_two_seconds() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 0));
    let mut asked = Vec::new();
    for at in (0..8_000).step_by(250) {
        cache.handle_timeout(now + ms(at));
        let touched = cache.touch(now + ms(at), "n", V4);
        assert!(touched.has_addresses, "it is worth touching again");
        if let Some(query) = touched.query {
            asked.push(at);
            let completed = cache.complete(now + ms(at), "n", V4, query.serial, ok(1, 0));
            assert!(completed.change.is_some(), "each answer is told to those who use the name");
        }
    }
    assert_eq!(asked, [2_000, 4_000, 6_000]);
}

#[test]
fn a_ttl_has_a_ceiling() {
    let (mut cache, now) = (cache(NAMES), t0());
    let endless = Answer::new([[192, 0, 2, 1].into()], Duration::MAX, Source::Miss);
    _ = resolve(&mut cache, now, "n", V4, Ok(endless));
    let day = secs(24 * 60 * 60);
    assert!(matches!(get(&mut cache, now + day - ms(1), "n", V4), Lookup::Known(Ok(_), _)));
    assert!(!matches!(get(&mut cache, now + day, "n", V4), Lookup::Known(..)));
}

#[test]
fn floor_and_ceiling_bound_a_ttl_but_not_one_of_zero() {
    let now = t0();
    let config = Config { ttl_floor: secs(10), ttl_ceiling: secs(100), ..Config::default() };
    let mut cache = Cache::new(config, 0);
    _ = resolve(&mut cache, now, "short", V4, ok(1, 1));
    _ = resolve(&mut cache, now, "long", V4, ok(1, 1_000));
    _ = resolve(&mut cache, now, "zero", V4, ok(1, 0));
    assert!(matches!(get(&mut cache, now + secs(9), "short", V4), Lookup::Known(Ok(_), _)));
    assert!(matches!(get(&mut cache, now + secs(100), "long", V4), Lookup::Start(_, Some(_))));
    assert!(matches!(get(&mut cache, now, "zero", V4), Lookup::Start(_, None)));
}

#[test]
fn a_negative_answer_counts_down() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::NoData, Some(20)));
    let Lookup::Known(Err(error), _) = get(&mut cache, now + secs(15), "n", V4) else { panic!("known") };
    assert_eq!((error.negative_ttl(), error.answered_from()), (Some(secs(5)), Source::Hit));
}

#[test]
fn negative_answers_are_kept_for_30_seconds_at_most() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::NoData, Some(3_600)));
    assert_eq!(cache.next_timeout(), Some(now + secs(30)));
}

#[test]
fn no_data_counts_for_one_family_and_nxdomain_for_both() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "half", V4, err(ResolveErrorKind::NoData, Some(5)));
    assert!(is_known(&mut cache, now + secs(4), "half", V4));
    assert!(!is_known(&mut cache, now + secs(4), "half", V6));
    assert!(!is_known(&mut cache, now + secs(5), "half", V4));
    _ = resolve(&mut cache, now, "none", V4, err(ResolveErrorKind::NxDomain, None));
    assert!(is_known(&mut cache, now, "none", V4) && is_known(&mut cache, now, "none", V6));
    assert!(!is_known(&mut cache, now + secs(1), "none", V6));
}

#[test]
fn nxdomain_does_not_overrule_a_good_answer_of_the_other_family() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V6, ok(1, 60));
    _ = resolve(&mut cache, now, "n", V4, err(ResolveErrorKind::NxDomain, Some(30)));
    assert!(matches!(get(&mut cache, now, "n", V6), Lookup::Known(Ok(_), _)));
}

#[test]
fn nxdomain_does_not_count_for_a_family_whose_query_is_running() {
    let (mut cache, now) = (cache(NAMES), t0());
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Start(..)));
    _ = resolve(&mut cache, now, "n", V6, err(ResolveErrorKind::NxDomain, Some(30)));
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Join(..)));
}

#[test]
fn nxdomain_for_ipv6_does_not_count_for_ipv4() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 0));
    _ = resolve(&mut cache, now, "n", V6, err(ResolveErrorKind::NxDomain, Some(30)));
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Start(..)));
}

#[test]
fn an_expired_no_data_is_served_while_the_other_family_has_addresses() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    for ttl in [None, Some(0)] {
        _ = resolve(&mut cache, now, "n", V6, err(ResolveErrorKind::NoData, ttl));
        let Lookup::Known(Err(error), Some(query)) = get(&mut cache, now + secs(1), "n", V6) else {
            panic!("served stale")
        };
        assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NoData, Source::Stale));
        assert!(matches!(get(&mut cache, now + secs(1), "n", V6), Lookup::Known(Err(_), None)), "asked for once");
        cache.abandon(now, "n", V6, query.serial);
    }
    assert!(matches!(get(&mut cache, now + secs(59), "n", V6), Lookup::Known(Err(_), Some(_))), "for as long as that");
    cache.handle_timeout(now + secs(60));
    assert!(matches!(get(&mut cache, now + secs(60), "n", V4), Lookup::Start(_, Some(_))));
    cache.abandon(now, "n", V6, cache.queries.serial(&("n".into(), V6)));
    assert!(matches!(get(&mut cache, now + secs(60), "n", V6), Lookup::Start(_, None)), "and no longer");
}

#[test]
fn an_expired_nxdomain_is_not_served() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    _ = resolve(&mut cache, now, "n", V6, err(ResolveErrorKind::NxDomain, Some(5)));
    assert!(is_known(&mut cache, now + secs(4), "n", V6));
    assert!(!is_known(&mut cache, now + secs(5), "n", V6));
}

#[test]
fn a_pinned_name_is_answered_without_a_query_until_it_is_unpinned() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
    assert_eq!(address(get(&mut cache, now, "n", V4)), (9, Source::Pinned));
    assert!(
        matches!(get(&mut cache, now, "n", V6), Lookup::Known(Err(error), _) if error.kind() == ResolveErrorKind::NoData)
    );
    cache.flush();
    assert_eq!(address(get(&mut cache, now, "n", V4)), (9, Source::Pinned));
    assert!(cache.unpin(now, "n").is_some() && cache.unpin(now, "n").is_none());
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Start(..)));
}

/// The names, families and addresses of changes, all of which are sure.
fn told(changes: Vec<Change>) -> Vec<(String, Family, usize)> {
    assert!(changes.iter().all(|change| change.is_sure));
    changes.into_iter().map(|change| (change.name.to_string(), change.family, change.addresses.len())).collect()
}

#[test]
fn a_pin_and_its_end_are_told_for_each_way_to_write_the_name() {
    let (mut cache, now) = (cache(NAMES), t0());
    let both = |name: &str, v4, v6| [(name.to_owned(), V6, v6), (name.to_owned(), V4, v4)];
    for pinned in ["N", "n."] {
        let changes = cache.pin(now, pinned, &[[192, 0, 2, 9].into()]);
        assert_eq!(told(changes), [both("n", 1, 0), both("n.", 1, 0)].concat());
    }
    _ = resolve(&mut cache, now, "n.", V6, Ok(Answer::new([[1; 16].into()], secs(60), Source::Miss)));
    // Of the one name an address is known, which is of the other family than the pinned one, and nothing of the other name.
    assert_eq!(told(cache.unpin(now, "n").unwrap()), both("n.", 0, 1));
}

#[test]
fn after_a_pin_of_an_unknown_name_the_next_answer_is_a_sure_change() {
    for result in [ok(1, 60), err(ResolveErrorKind::NxDomain, Some(60))] {
        let (mut cache, now) = (cache(NAMES), t0());
        _ = cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
        assert_eq!(cache.unpin(now, "n").unwrap().len(), 0);
        cache.refresh(now, "n", V4);
        let serial = cache.queries.serial(&("n".into(), V4));
        let change = cache.complete(now, "n", V4, serial, result).change.expect("it is news");
        assert!(change.is_sure);
    }
}

#[test]
fn pins_of_many_unknown_names_that_have_ended_leave_a_bounded_number_behind() {
    let (mut cache, now) = (cache(NAMES), t0());
    for number in 0..1_000 {
        let name = format!("n{number}");
        _ = cache.pin(now, &name, &[[192, 0, 2, 9].into()]);
        _ = cache.unpin(now, &name);
    }
    assert_eq!(cache.outdated.len(), 4 * NAMES);
}

#[test]
fn while_a_name_is_pinned_dns_changes_nothing() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    _ = cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
    assert_eq!(changed(&mut cache, now, ok(2, 60)), None);
}

#[test]
fn a_query_from_before_an_invalidation_is_not_kept() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    let Lookup::Start(old, _) = get(&mut cache, now, "n", V6) else { panic!("asks") };
    cache.invalidate("n");
    assert_eq!(cache.len(), 0);
    let Lookup::Start(new, _) = get(&mut cache, now, "n", V6) else { panic!("asks anew") };
    assert!(cache.complete(now, "n", V6, old.serial, ok(1, 60)).outcome.is_ok(), "the lookups that wait get it");
    assert!(matches!(get(&mut cache, now, "n", V6), Lookup::Join(..)));
    _ = cache.complete(now, "n", V6, new.serial, ok(2, 60));
    assert_eq!(address(get(&mut cache, now, "n", V6)), (2, Source::Hit));
    cache.flush();
    assert_eq!((cache.len(), cache.next_timeout()), (0, None));
}

/// Completes the query for a name, and returns the last bytes of the addresses if they changed.
fn changed(cache: &mut Cache<u32>, now: Instant, result: Result<Answer, ResolveError>) -> Option<Vec<u8>> {
    cache.refresh(now, "n", V4);
    let serial = cache.queries.serial(&("n".into(), V4));
    let change = cache.complete(now, "n", V4, serial, result).change?;
    assert_eq!((&*change.name, change.family), ("n", V4));
    let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().parse().unwrap();
    Some(change.addresses.iter().map(last).collect())
}

#[test]
fn a_change_is_another_set_of_addresses() {
    let (mut cache, now) = (cache(NAMES), t0());
    let answer = |last: &[u8], ttl| {
        let addresses: Vec<_> = last.iter().map(|last| [192, 0, 2, *last].into()).collect();
        Ok(Answer::new(addresses, secs(ttl), Source::Miss))
    };
    assert_eq!(changed(&mut cache, now, answer(&[1, 2], 5)), Some(vec![1, 2]), "the first one");
    assert_eq!(changed(&mut cache, now, answer(&[2, 1, 2], 5)), None, "the order does not matter");
    assert_eq!(changed(&mut cache, now + secs(60), answer(&[1, 2], 5)), None, "nor that it expired");
    assert_eq!(changed(&mut cache, now, answer(&[1], 5)), Some(vec![1]));
    assert_eq!(changed(&mut cache, now, err(ResolveErrorKind::ServFail, None)), None, "a failure says nothing");
    assert_eq!(changed(&mut cache, now, err(ResolveErrorKind::NxDomain, Some(5))), Some(vec![]));
    assert_eq!(changed(&mut cache, now, err(ResolveErrorKind::NxDomain, Some(5))), None);
    assert_eq!(changed(&mut cache, now, answer(&[1], 0)), Some(vec![1]));
    assert_eq!(changed(&mut cache, now, answer(&[1], 0)), Some(vec![1]), "what is not kept is new each time");
}

#[test]
fn a_query_from_before_a_flush_is_not_kept() {
    let (mut cache, now) = (cache(NAMES), t0());
    let Lookup::Start(old, _) = get(&mut cache, now, "n", V4) else { panic!("asks") };
    cache.flush();
    assert!(cache.complete(now, "n", V4, old.serial, ok(1, 60)).outcome.is_ok(), "the lookups that wait get it");
    assert_eq!(cache.len(), 0);
    assert!(matches!(get(&mut cache, now, "n", V4), Lookup::Start(..)));
}

fn peek(cache: &Cache<u32>, now: Instant, family: Family) -> Option<(Arc<[IpAddr]>, Duration)> {
    let known = Family::BOTH.into_iter().zip(cache.peek(now, "n")).find(|(of, _)| *of == family)?.1;
    known.map(|(answer, _)| (answer.addresses().clone(), answer.ttl()))
}

#[test]
fn a_change_of_ports_alone_is_told() {
    let (mut cache, now) = (cache(NAMES), t0());
    let mut change = |ports: &[u16]| {
        let sockets = ports.iter().map(|port| ([192, 0, 2, 1], *port).into());
        cache.refresh(now, "n", V4);
        let serial = cache.queries.serial(&("n".into(), V4));
        let completed = cache.complete(now, "n", V4, serial, Ok(Answer::of_sockets(sockets, secs(60), Source::Miss)));
        completed.change.map(|change| change.sockets.map_or(0, |sockets| sockets.len()))
    };
    assert_eq!(change(&[81, 82]), Some(2));
    assert_eq!(change(&[82, 81]), None, "in another order");
    assert_eq!(change(&[82]), Some(1));
    assert_eq!(change(&[0]), Some(0));
    assert_eq!(change(&[0]), None);
}

#[test]
fn a_peek_returns_what_is_left_of_the_ttl_and_is_no_use() {
    let (mut cache, now) = (cache(2), t0());
    let address = |last: u8| -> Arc<[IpAddr]> { [[192, 0, 2, last].into()].into() };
    _ = resolve(&mut cache, now, "n", V4, ok(1, 60));
    _ = resolve(&mut cache, now, "m", V4, err(ResolveErrorKind::NoData, Some(20)));
    assert_eq!(peek(&cache, now + secs(50), V4), Some((address(1), secs(10))));
    assert_eq!(peek(&cache, now + secs(70), V4), Some((address(1), Duration::ZERO)), "stale");
    assert_eq!(peek(&cache, now, V6), None);
    for name in ["m", "o"] {
        assert_eq!(cache.peek(now, name), [None, None], "{name}");
    }
    _ = resolve(&mut cache, now, "o", V4, ok(1, 60));
    assert!(!is_kept(&cache, "n"), "the least recently used one");
    _ = cache.pin(now, "n", &[[192, 0, 2, 9].into()]);
    assert_eq!(peek(&cache, now, V4), Some((address(9), Config::default().ttl_ceiling)));
    assert_eq!(peek(&cache, now, V6).map(|(addresses, _)| addresses.len()), Some(0), "it has none");
}
