//! The cache core by arithmetic, and in random walks against an oracle.

use super::*;
use Family::{V4, V6};

const NAMES: usize = 4;

fn cache(max_names: usize) -> Cache<u32> {
    Cache::new(Config { max_names, ..Config::default() }, 0, t0())
}

fn t0() -> Instant {
    crate::clock::now()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn good(last: u8, ttl: u64) -> Result<Answer, ResolveError> {
    Ok(Answer::new([[192, 0, 2, last].into()], secs(ttl), Source::Miss))
}

fn bad(kind: ResolveErrorKind, ttl: Option<u64>) -> Result<Answer, ResolveError> {
    Err(ResolveError::new(kind, "n", V4).with_negative_ttl(ttl.map(secs)))
}

fn get(cache: &mut Cache<u32>, now: Instant, name: &str, family: Family) -> Step<u32> {
    cache.get(now, name, family, || 7)
}

/// Whether a lookup is answered from the cache; a flight it would start is taken back.
fn is_known(cache: &mut Cache<u32>, now: Instant, name: &str, family: Family) -> bool {
    match get(cache, now, name, family) {
        Step::Known(..) => true,
        Step::Start(flight, _) => !cache.lost(name, family, flight.serial),
        Step::Join(..) => false,
    }
}

/// Lands a result on the flight for a name, which is started if there is none.
fn land(
    cache: &mut Cache<u32>,
    now: Instant,
    name: &str,
    family: Family,
    result: Result<Answer, ResolveError>,
) -> Result<Answer, ResolveError> {
    cache.refresh(now, name, family, || 7);
    let serial = cache.flights[&(name.into(), family)].serial;
    cache.landed(now, name, family, serial, result).told
}

fn address(step: Step<u32>) -> (u8, Source) {
    let Step::Known(Ok(answer), _) = step else { panic!("an answer: {step:?}") };
    (answer.addresses()[0].to_string().rsplit('.').next().unwrap().parse().unwrap(), answer.source())
}

#[test]
fn one_query_in_flight_a_name_and_family() {
    let (mut cache, now) = (cache(NAMES), t0());
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Start(..)));
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Join(..)));
    assert!(matches!(get(&mut cache, now, "n", V6), Step::Start(..)));
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Known(Ok(_), _)));
    assert!(matches!(get(&mut cache, now, "n", V6), Step::Join(..)));
}

#[test]
fn an_answer_lives_as_long_as_its_ttl_and_counts_down() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    let Step::Known(Ok(answer), _) = get(&mut cache, now + secs(50), "n", V4) else { panic!("known") };
    assert_eq!((answer.ttl(), answer.source()), (secs(10), Source::Hit));
    assert!(matches!(get(&mut cache, now + secs(60), "n", V4), Step::Start(..)));
}

#[test]
fn ttl_zero_serves_only_those_who_wait() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    _ = land(&mut cache, now, "n", V4, good(2, 0));
    assert!(!is_known(&mut cache, now, "n", V4));
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_ttl_has_a_ceiling() {
    let (mut cache, now) = (cache(NAMES), t0());
    let endless = Answer::new([[192, 0, 2, 1].into()], Duration::MAX, Source::Miss);
    _ = land(&mut cache, now, "n", V4, Ok(endless));
    let day = secs(24 * 60 * 60);
    assert!(matches!(get(&mut cache, now + day - ms(1), "n", V4), Step::Known(Ok(_), _)));
    assert!(!matches!(get(&mut cache, now + day, "n", V4), Step::Known(..)));
}

#[test]
fn no_data_past_its_time_is_told_while_the_other_family_is_in_use() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    for ttl in [None, Some(0)] {
        _ = land(&mut cache, now, "n", V6, bad(ResolveErrorKind::NoData, ttl));
        let Step::Known(Err(error), Some(flight)) = get(&mut cache, now + secs(1), "n", V6) else { panic!("told") };
        assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NoData, Source::Stale));
        assert!(matches!(get(&mut cache, now + secs(1), "n", V6), Step::Known(Err(_), None)), "asked for once");
        cache.lost("n", V6, flight.serial);
    }
    assert!(matches!(get(&mut cache, now + secs(59), "n", V6), Step::Known(Err(_), Some(_))), "for as long as that");
    cache.handle_timeout(now + secs(60));
    assert!(matches!(get(&mut cache, now + secs(60), "n", V4), Step::Start(_, Some(_))));
    cache.lost("n", V6, cache.serial - 1);
    assert!(matches!(get(&mut cache, now + secs(60), "n", V6), Step::Start(_, None)), "and no longer");
}

#[test]
fn that_a_name_does_not_exist_is_not_told_past_its_time() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    _ = land(&mut cache, now, "n", V6, bad(ResolveErrorKind::NxDomain, Some(5)));
    assert!(is_known(&mut cache, now + secs(4), "n", V6));
    assert!(!is_known(&mut cache, now + secs(5), "n", V6));
}

#[test]
fn no_data_is_one_family_and_nxdomain_both() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "half", V4, bad(ResolveErrorKind::NoData, Some(5)));
    assert!(is_known(&mut cache, now + secs(4), "half", V4));
    assert!(!is_known(&mut cache, now + secs(4), "half", V6));
    assert!(!is_known(&mut cache, now + secs(5), "half", V4));
    _ = land(&mut cache, now, "none", V4, bad(ResolveErrorKind::NxDomain, None));
    assert!(is_known(&mut cache, now, "none", V4) && is_known(&mut cache, now, "none", V6));
    assert!(!is_known(&mut cache, now + secs(1), "none", V6));
}

#[test]
fn negative_answers_are_kept_for_30_seconds_at_most() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, bad(ResolveErrorKind::NoData, Some(3_600)));
    assert_eq!(cache.next_timeout(), Some(now + secs(30)));
}

#[test]
fn nxdomain_does_not_overrule_a_good_answer_of_the_other_family() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V6, good(1, 60));
    _ = land(&mut cache, now, "n", V4, bad(ResolveErrorKind::NxDomain, Some(30)));
    assert!(matches!(get(&mut cache, now, "n", V6), Step::Known(Ok(_), _)));
}

#[test]
fn nxdomain_does_not_speak_for_a_query_in_flight() {
    let (mut cache, now) = (cache(NAMES), t0());
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Start(..)));
    _ = land(&mut cache, now, "n", V6, bad(ResolveErrorKind::NxDomain, Some(30)));
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Join(..)));
}

#[test]
fn nxdomain_for_ipv6_says_nothing_of_ipv4() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 0));
    _ = land(&mut cache, now, "n", V6, bad(ResolveErrorKind::NxDomain, Some(30)));
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Start(..)));
}

#[test]
fn a_refresh_that_fails_backs_off_further_each_time() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 10_000));
    let mut queries = 0;
    for tenth in 0..6_000 {
        let at = now + secs(9_600 - 600) + ms(100 * tenth) + secs(599);
        if let Step::Known(_, Some(flight)) = get(&mut cache, at, "n", V4) {
            queries += 1;
            _ = cache.landed(at, "n", V4, flight.serial, bad(ResolveErrorKind::ServFail, None));
        }
    }
    assert!((10..=26).contains(&queries), "{queries} queries in ten minutes");
}

#[test]
fn a_name_asked_for_is_recently_used_also_when_it_has_expired() {
    let (mut cache, now) = (cache(2), t0());
    _ = land(&mut cache, now, "hot", V4, good(1, 1));
    _ = land(&mut cache, now, "idle", V4, good(1, 1));
    assert!(matches!(get(&mut cache, now + secs(2), "hot", V4), Step::Start(_, Some(_))));
    _ = land(&mut cache, now + secs(2), "new", V4, good(1, 1));
    assert!(cache.index.contains_key("hot") && !cache.index.contains_key("idle"));
}

#[test]
fn a_negative_answer_counts_down() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, bad(ResolveErrorKind::NoData, Some(20)));
    let Step::Known(Err(error), _) = get(&mut cache, now + secs(15), "n", V4) else { panic!("known") };
    assert_eq!((error.negative_ttl(), error.answered_from()), (Some(secs(5)), Source::Hit));
}

#[test]
fn the_least_recently_used_name_leaves() {
    let (mut cache, now) = (cache(2), t0());
    _ = land(&mut cache, now, "a", V4, good(1, 60));
    _ = land(&mut cache, now, "b", V4, good(1, 60));
    _ = land(&mut cache, now, "b", V6, good(1, 60));
    assert!(is_known(&mut cache, now, "a", V4));
    _ = land(&mut cache, now, "c", V4, good(1, 60));
    assert!(is_known(&mut cache, now, "a", V4) && is_known(&mut cache, now, "c", V4));
    assert!(!is_known(&mut cache, now, "b", V4) && !is_known(&mut cache, now, "b", V6));
}

#[test]
fn a_bound_of_zero_keeps_nothing() {
    let (mut cache, now) = (cache(0), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    assert_eq!((cache.len(), cache.next_timeout()), (0, None));
}

#[test]
fn a_timeout_really_removes() {
    let now = t0();
    let mut cache = Cache::new(Config { stale: secs(10), ..Config::default() }, 0, t0());
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    _ = land(&mut cache, now, "n", V6, good(1, 9));
    for (at, kept) in [(4, 1), (15, 1), (18, 1), (19, 0)] {
        cache.handle_timeout(now + secs(at));
        assert_eq!(cache.len(), kept, "after {at} s");
    }
    assert_eq!((cache.index.len(), cache.next_timeout()), (0, None));
}

#[test]
fn a_failure_backs_off_from_one_second_to_thirty() {
    let (mut cache, mut now) = (cache(NAMES), t0());
    for backoff in [1, 2, 4, 8, 16, 30, 30] {
        assert!(!is_known(&mut cache, now, "n", V4), "asked again");
        _ = land(&mut cache, now, "n", V4, bad(ResolveErrorKind::ServFail, None));
        let Step::Known(Err(error), None) = get(&mut cache, now + secs(backoff) - ms(1), "n", V4) else {
            panic!("left alone for {backoff} s")
        };
        assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::ServFail, Source::Hit));
        now += secs(backoff);
    }
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    _ = land(&mut cache, now + secs(6), "n", V4, bad(ResolveErrorKind::Timeout, None));
    let again = now + secs(7);
    assert!(matches!(get(&mut cache, again, "n", V4), Step::Known(Ok(_), Some(_))), "an answer ends it");
}

#[test]
fn a_failure_of_this_machine_pauses_for_100_ms_however_often_it_comes() {
    for kind in [ResolveErrorKind::Config, ResolveErrorKind::Local] {
        let (mut cache, mut now) = (cache(NAMES), t0());
        for _ in 0..50 {
            _ = land(&mut cache, now, "n", V4, bad(kind, None));
            assert!(is_known(&mut cache, now + ms(99), "n", V4), "{kind:?}: left alone for a moment");
            now += ms(100);
            assert!(!is_known(&mut cache, now, "n", V4), "{kind:?}: and asked for again");
        }
        _ = land(&mut cache, now, "n", V4, bad(ResolveErrorKind::ServFail, None));
        assert!(is_known(&mut cache, now + ms(999), "n", V4), "a server's failure backs off for a second");
        assert!(!is_known(&mut cache, now + secs(1), "n", V4));
    }
}

#[test]
fn a_failure_is_forgotten_by_a_timer() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, bad(ResolveErrorKind::ServFail, None));
    assert_eq!((cache.len(), cache.next_timeout()), (1, Some(now + secs(2))));
    cache.handle_timeout(now + secs(2));
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_stale_answer_stands_in_for_one_that_cannot_be_had() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    let Step::Start(flight, Some(stale)) = get(&mut cache, now + secs(5), "n", V4) else { panic!("asks again") };
    assert_eq!((stale.source(), stale.ttl()), (Source::Stale, Duration::ZERO));
    let failed = bad(ResolveErrorKind::Timeout, None);
    let told = cache.landed(now + secs(6), "n", V4, flight.serial, failed).told.unwrap();
    assert_eq!(told.source(), Source::Stale);
    assert_eq!(address(get(&mut cache, now + secs(6), "n", V4)), (1, Source::Stale));
    let Step::Known(Ok(_), Some(_)) = get(&mut cache, now + secs(7), "n", V4) else {
        panic!("after the back-off it is asked for in the background")
    };
    assert!(matches!(get(&mut cache, now + secs(7), "n", V4), Step::Known(Ok(_), None)), "once");
}

#[test]
fn a_stale_answer_is_good_for_an_hour_and_a_negative_one_for_nothing() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    let past = now + secs(5 + 3_600);
    assert!(matches!(get(&mut cache, past - ms(1), "n", V4), Step::Start(_, Some(_))));
    assert!(matches!(get(&mut cache, past, "n", V4), Step::Join(_, None)));
    cache.handle_timeout(past);
    assert_eq!(cache.len(), 0);
    _ = land(&mut cache, past, "none", V4, bad(ResolveErrorKind::NxDomain, Some(5)));
    assert!(matches!(get(&mut cache, past + secs(5), "none", V4), Step::Start(_, None)));
}

#[test]
fn a_negative_answer_ends_a_stale_one() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    let told = land(&mut cache, now + secs(6), "n", V4, bad(ResolveErrorKind::NxDomain, Some(5)));
    assert_eq!(told.unwrap_err().kind(), ResolveErrorKind::NxDomain);
    assert!(matches!(get(&mut cache, now + secs(12), "n", V4), Step::Start(_, None)));
}

#[test]
fn stale_answers_can_be_switched_off() {
    let now = t0();
    let mut cache = Cache::new(Config { stale: Duration::ZERO, ..Config::default() }, 0, t0());
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    assert!(matches!(get(&mut cache, now + secs(5), "n", V4), Step::Start(_, None)));
}

#[test]
fn a_name_in_use_is_refreshed_in_the_last_tenth_and_one_that_is_not_never() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "used", V4, good(1, 100));
    _ = land(&mut cache, now, "unused", V4, good(1, 100));
    assert!(is_known(&mut cache, now + secs(50), "used", V4));
    let mut refreshed = Vec::new();
    for second in 0..100 {
        let due = cache.handle_timeout(now + secs(second));
        refreshed.extend(due.into_iter().map(|(name, family)| (second, name.to_string(), family)));
    }
    let [(second, name, V4)] = &refreshed[..] else { panic!("{refreshed:?}") };
    assert!((90..=96).contains(second) && name == "used", "{refreshed:?}");
    assert!(cache.refresh(now + secs(96), "used", V4, || 7).is_some());
    assert!(cache.refresh(now + secs(96), "used", V4, || 7).is_none(), "one at a time");
}

#[test]
fn a_use_after_the_time_to_refresh_refreshes_at_once() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 100));
    assert!(cache.handle_timeout(now + secs(96)).is_empty());
    assert!(matches!(get(&mut cache, now + secs(97), "n", V4), Step::Known(Ok(_), Some(_))));
    assert!(matches!(get(&mut cache, now + secs(97), "n", V4), Step::Known(Ok(_), None)));
}

#[test]
fn a_refresh_that_fails_leaves_a_good_answer_alone() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 100));
    let told = land(&mut cache, now + secs(96), "n", V4, bad(ResolveErrorKind::ServFail, None)).unwrap();
    assert_eq!(told.source(), Source::Hit);
    assert_eq!(address(get(&mut cache, now + secs(99), "n", V4)), (1, Source::Hit));
}

#[test]
fn floor_and_ceiling_bound_a_ttl_but_not_one_of_zero() {
    let now = t0();
    let config = Config { ttl_floor: secs(10), ttl_ceiling: secs(100), ..Config::default() };
    let mut cache = Cache::new(config, 0, now);
    _ = land(&mut cache, now, "short", V4, good(1, 1));
    _ = land(&mut cache, now, "long", V4, good(1, 1_000));
    _ = land(&mut cache, now, "zero", V4, good(1, 0));
    assert!(matches!(get(&mut cache, now + secs(9), "short", V4), Step::Known(Ok(_), _)));
    assert!(matches!(get(&mut cache, now + secs(100), "long", V4), Step::Start(_, Some(_))));
    assert!(matches!(get(&mut cache, now, "zero", V4), Step::Start(_, None)));
}

#[test]
fn a_pinned_name_is_answered_without_a_query_until_it_is_unpinned() {
    let (mut cache, now) = (cache(NAMES), t0());
    cache.pin("n", [[192, 0, 2, 9].into()].into());
    assert_eq!(address(get(&mut cache, now, "n", V4)), (9, Source::Pinned));
    assert!(
        matches!(get(&mut cache, now, "n", V6), Step::Known(Err(error), _) if error.kind() == ResolveErrorKind::NoData)
    );
    cache.flush();
    assert_eq!(address(get(&mut cache, now, "n", V4)), (9, Source::Pinned));
    assert!(cache.unpin("n") && !cache.unpin("n"));
    assert!(matches!(get(&mut cache, now, "n", V4), Step::Start(..)));
}

#[test]
fn what_was_asked_before_an_invalidation_is_not_kept() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 60));
    let Step::Start(old, _) = get(&mut cache, now, "n", V6) else { panic!("asks") };
    cache.invalidate("n");
    assert_eq!(cache.len(), 0);
    let Step::Start(new, _) = get(&mut cache, now, "n", V6) else { panic!("asks anew") };
    assert!(cache.landed(now, "n", V6, old.serial, good(1, 60)).told.is_ok(), "those who wait are told");
    assert!(matches!(get(&mut cache, now, "n", V6), Step::Join(..)));
    _ = cache.landed(now, "n", V6, new.serial, good(2, 60));
    assert_eq!(address(get(&mut cache, now, "n", V6)), (2, Source::Hit));
    cache.flush();
    assert_eq!((cache.len(), cache.next_timeout()), (0, None));
}

#[test]
fn a_name_in_use_by_its_connections_is_refreshed_and_followed_while_it_is_stale() {
    let (mut cache, now) = (cache(2), t0());
    let touch = |cache: &mut Cache<u32>, at, name| cache.touch(at, name, V4, || 7).flight.is_some();
    _ = land(&mut cache, now, "n", V4, good(1, 100));
    assert!(!touch(&mut cache, now + secs(50), "n"), "its time has not come");
    let due = (90..=96).flat_map(|second| cache.handle_timeout(now + secs(second))).count();
    assert_eq!(due, 1, "it is asked for again as if it had been looked up");
    assert!(touch(&mut cache, now + secs(101), "n"), "and also when that failed");
    assert!(!touch(&mut cache, now + secs(101), "n"), "once");
    _ = land(&mut cache, now + secs(101), "m", V4, good(1, 100));
    touch(&mut cache, now + secs(101), "n");
    _ = land(&mut cache, now + secs(101), "o", V4, good(1, 100));
    assert!(cache.index.contains_key("n") && !cache.index.contains_key("m"), "it is a recent use");
    assert_eq!(cache.counts().hits, 0);
}

#[test]
fn a_name_in_use_whose_servers_fail_is_asked_for_after_each_backoff() {
    let (mut cache, now) = (cache(NAMES), t0());
    _ = land(&mut cache, now, "n", V4, good(1, 5));
    let mut asked = Vec::new();
    for second in 5..40 {
        let at = now + secs(second);
        if let Some(flight) = cache.touch(at, "n", V4, || 7).flight {
            asked.push(second);
            _ = cache.landed(at, "n", V4, flight.serial, bad(ResolveErrorKind::ServFail, None));
        }
    }
    assert_eq!(asked, [5, 6, 8, 12, 20, 36]);
}

/// Lands a result, and says what changed: the last bytes of the addresses.
fn changed(cache: &mut Cache<u32>, now: Instant, result: Result<Answer, ResolveError>) -> Option<Vec<u8>> {
    cache.refresh(now, "n", V4, || 7);
    let serial = cache.flights[&("n".into(), V4)].serial;
    let change = cache.landed(now, "n", V4, serial, result).change?;
    assert_eq!((&*change.name, change.family), ("n", V4));
    let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().parse().unwrap();
    Some(change.addresses.iter().map(last).collect())
}

#[test]
fn a_change_is_another_set_of_addresses_than_the_one_known() {
    let (mut cache, now) = (cache(NAMES), t0());
    let answer = |last: &[u8], ttl| {
        let addresses: Vec<_> = last.iter().map(|last| [192, 0, 2, *last].into()).collect();
        Ok(Answer::new(addresses, secs(ttl), Source::Miss))
    };
    assert_eq!(changed(&mut cache, now, answer(&[1, 2], 5)), Some(vec![1, 2]), "the first one");
    assert_eq!(changed(&mut cache, now, answer(&[2, 1, 2], 5)), None, "the order does not matter");
    assert_eq!(changed(&mut cache, now + secs(60), answer(&[1, 2], 5)), None, "nor that it expired");
    assert_eq!(changed(&mut cache, now, answer(&[1], 5)), Some(vec![1]));
    assert_eq!(changed(&mut cache, now, bad(ResolveErrorKind::ServFail, None)), None, "a failure says nothing");
    assert_eq!(changed(&mut cache, now, bad(ResolveErrorKind::NxDomain, Some(5))), Some(vec![]));
    assert_eq!(changed(&mut cache, now, bad(ResolveErrorKind::NxDomain, Some(5))), None);
    assert_eq!(changed(&mut cache, now, answer(&[1], 0)), Some(vec![1]));
    assert_eq!(changed(&mut cache, now, answer(&[1], 0)), Some(vec![1]), "what is not kept is new each time");
}

#[test]
fn a_snapshot_comes_back_with_what_is_left_of_its_time() {
    let (mut old, now, wall) = (cache(NAMES), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    _ = land(&mut old, now, "long", V4, good(1, 100));
    _ = land(&mut old, now, "short", V4, good(2, 10));
    _ = land(&mut old, now, "none", V4, bad(ResolveErrorKind::NxDomain, Some(30)));
    let snapshot = old.snapshot(now + secs(5), wall);
    assert_eq!(snapshot.len(), 2);

    let restored = |after: u64| {
        let mut new = cache(NAMES);
        new.restore(now, wall + secs(after), &snapshot);
        new
    };
    let mut new = restored(20);
    let Step::Known(Ok(answer), None) = get(&mut new, now, "long", V4) else { panic!("known") };
    assert_eq!((answer.ttl(), answer.source()), (secs(75), Source::Hit));
    assert!(matches!(get(&mut new, now, "short", V4), Step::Start(_, Some(_))), "stale");
    assert_eq!(new.next_timeout(), Some(new.watch.instant(new.entries[new.index["long"]].due)));

    let mut late = restored(3_600 + 4);
    assert!(matches!(get(&mut late, now, "short", V4), Step::Start(_, Some(_))));
    assert!(matches!(get(&mut late, now + secs(1), "short", V4), Step::Join(_, None)), "an hour past its expiry");
    late.handle_timeout(now + secs(1));
    assert!(!late.index.contains_key("short"), "its hour is over");
    assert_eq!(restored(3_600 + 96).len(), 0);

    let mut back = cache(NAMES);
    back.restore(now, wall - secs(10_000), &snapshot);
    let Step::Known(Ok(answer), None) = get(&mut back, now, "long", V4) else { panic!("known") };
    assert_eq!(answer.ttl(), secs(95), "a clock that was set back makes nothing live longer");
}

#[test]
fn a_snapshot_overrules_nothing_and_stays_within_the_bound() {
    let (mut old, now, wall) = (cache(8), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    for name in ["a", "b", "c", "d"] {
        _ = land(&mut old, now, name, V4, good(1, 100));
    }
    let snapshot = old.snapshot(now, wall);
    let mut new = cache(2);
    _ = land(&mut new, now, "d", V4, good(9, 100));
    new.restore(now, wall, &snapshot);
    assert_eq!((new.len(), address(get(&mut new, now, "c", V4))), (2, (1, Source::Hit)), "the last used one comes");
    assert_eq!(address(get(&mut new, now, "d", V4)), (9, Source::Hit), "and none leaves for it");
    let mut new = cache(8);
    _ = land(&mut new, now, "d", V4, good(9, 100));
    new.restore(now, wall, &snapshot);
    assert_eq!(address(get(&mut new, now, "d", V4)), (9, Source::Hit));
    let mut none = cache(0);
    none.restore(now, wall, &snapshot);
    assert_eq!(none.len(), 0);
}

#[test]
fn a_snapshot_from_anywhere_does_no_harm() {
    let (now, wall) = (t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    let record = |addresses: Vec<IpAddr>, expires| Remembered { name: "N".into(), addresses, expires };
    let v4 = IpAddr::from([192, 0, 2, 1]);
    let records = vec![
        record(vec![], u64::MAX),
        record(vec![v4], 0),
        record(vec![v4, std::net::Ipv6Addr::LOCALHOST.into()], u64::MAX),
    ];
    let mut cache = cache(NAMES);
    cache.restore(now, wall, &Snapshot { taken: 0, records });
    let Step::Known(Ok(answer), _) = get(&mut cache, now, "n", V4) else { panic!("known") };
    assert_eq!((answer.addresses().len(), answer.ttl()), (1, secs(24 * 60 * 60)));
}

#[test]
fn what_is_restored_is_less_recent_than_what_is_known() {
    let (mut old, now, wall) = (cache(8), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    for name in ["a", "b"] {
        _ = land(&mut old, now, name, V4, good(1, 100));
    }
    let mut new = cache(3);
    _ = land(&mut new, now, "live", V4, good(9, 100));
    new.restore(now, wall, &old.snapshot(now, wall));
    for (name, left) in [("c", ["live", "b"]), ("d", ["live", "c"])] {
        _ = land(&mut new, now, name, V4, good(1, 100));
        if name == "c" {
            assert!(is_known(&mut new, now, "live", V4));
        }
        assert!(left.iter().all(|name| new.index.contains_key(*name)), "{name}: {:?}", new.index.keys());
    }
}

#[test]
fn a_failure_does_not_keep_a_snapshot_out() {
    let (mut old, now, wall) = (cache(8), t0(), SystemTime::UNIX_EPOCH + secs(1_000_000));
    _ = land(&mut old, now, "n", V4, good(1, 10));
    let snapshot = old.snapshot(now, wall);
    let mut new = cache(8);
    _ = land(&mut new, now, "n", V4, bad(ResolveErrorKind::ServFail, None));
    new.restore(now, wall + secs(20), &snapshot);
    assert_eq!(address(get(&mut new, now, "n", V4)), (1, Source::Stale), "nor is the failure forgotten");
}

#[test]
fn a_name_in_use_that_was_lost_is_asked_for_again() {
    let (mut cache, now) = (cache(NAMES), t0());
    let touch = |cache: &mut Cache<u32>, at| cache.touch(at, "n", V4, || 7);
    _ = land(&mut cache, now, "n", V4, good(1, 10));
    _ = land(&mut cache, now + secs(9), "n", V4, bad(ResolveErrorKind::NxDomain, Some(5)));
    let touched = touch(&mut cache, now + secs(10));
    assert!(!touched.known && touched.flight.is_none(), "it does not exist, for now");
    let touched = touch(&mut cache, now + secs(14));
    let flight = touched.flight.expect("it may exist again");
    assert!(touch(&mut cache, now + secs(14)).flight.is_none(), "once");
    _ = cache.landed(now + secs(14), "n", V4, flight.serial, bad(ResolveErrorKind::ServFail, None));
    assert!(touch(&mut cache, now + secs(14)).flight.is_none(), "within its back-off");
    let flight = touch(&mut cache, now + secs(15)).flight.expect("after its back-off");
    _ = cache.landed(now + secs(15), "n", V4, flight.serial, good(2, 10));
    assert!(touch(&mut cache, now + secs(16)).known);
    _ = land(&mut cache, now + secs(16), "n", V6, bad(ResolveErrorKind::NoData, Some(1)));
    let other = cache.touch(now + secs(18), "n", V6, || 7);
    assert!(other.known && other.flight.is_none(), "a family it never had is not asked for");
    cache.pin("n", [[192, 0, 2, 9].into()].into());
    assert!(touch(&mut cache, now + secs(60)).flight.is_none(), "a pinned name is not asked for");
}

#[test]
fn a_query_that_takes_too_long_is_replaced() {
    let (mut cache, now) = (cache(NAMES), t0());
    let Step::Start(first, None) = get(&mut cache, now, "n", V4) else { panic!("asks") };
    let limit = Config::default().flight;
    assert!(matches!(get(&mut cache, now + limit - ms(1), "n", V4), Step::Join(..)));
    let Step::Start(second, None) = get(&mut cache, now + limit, "n", V4) else { panic!("asks anew") };
    _ = cache.landed(now + limit, "n", V4, first.serial, good(1, 60));
    assert!(matches!(get(&mut cache, now + limit, "n", V4), Step::Join(..)), "the first one counts no more");
    _ = cache.landed(now + limit, "n", V4, second.serial, good(2, 60));
    assert_eq!(address(get(&mut cache, now + limit, "n", V4)), (2, Source::Hit));
}

#[test]
fn a_query_that_crashes_backs_off() {
    let (mut cache, now) = (cache(NAMES), t0());
    let Step::Start(flight, None) = get(&mut cache, now, "n", V4) else { panic!("asks") };
    cache.crashed(now, "n", V4, flight.serial);
    let Step::Known(Err(error), None) = get(&mut cache, now, "n", V4) else { panic!("left alone") };
    assert_eq!(error.kind(), ResolveErrorKind::Other);
    assert!(matches!(get(&mut cache, now + secs(1), "n", V4), Step::Start(..)));
}

/// What an oracle that forgets nothing knows of a name in one family.
#[derive(Clone, Copy)]
struct Fact {
    /// The last byte of the address; `None` for "does not exist".
    last: Option<u8>,
    expires: Instant,
}

#[test]
fn random_walks_never_serve_what_expired_as_fresh_and_never_outgrow_the_bound() {
    for seed in 0..400 {
        walk(seed, 12, 8, 300);
    }
    for seed in 0..20 {
        walk(seed, 200, 250, 10_000);
    }
}

/// Random traffic over so many names, with a bound below `most`, in so many steps.
fn walk(seed: u64, names: u16, most: usize, steps: u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let max_names = random.usize(..most);
    let stale = secs(random.u64(..60));
    let flight = secs(1 << 30);
    let mut cache = Cache::new(Config { max_names, stale, flight, ..Config::default() }, 0, t0());
    let mut now = t0();
    let mut flying: Vec<(String, Family, u64)> = Vec::new();
    let mut facts: HashMap<(String, Family), Fact> = HashMap::new();
    for step in 0..steps {
        let name = random.u16(..names).to_string();
        let family = if random.bool() { V4 } else { V6 };
        let is_flying =
            |flying: &[(String, Family, u64)]| flying.iter().any(|(other, f, _)| (other, *f) == (&name, family));
        match random.u8(..13) {
            12 => {
                if let Some(flight) = cache.touch(now, &name, family, || 7).flight {
                    assert!(!is_flying(&flying), "seed {seed} step {step}: a second query");
                    flying.push((name, family, flight.serial));
                }
            }
            0..=5 => {
                let flight = match get(&mut cache, now, &name, family) {
                    Step::Known(told, flight) => {
                        let other = facts.get(&(name.clone(), family.other()));
                        let in_use = other.is_some_and(|fact| fact.last.is_some() && now < fact.expires);
                        match facts.get(&(name.clone(), family)) {
                            Some(Fact { last: None, .. }) if told.is_err() && in_use => {}
                            fact => check(seed, now, stale, fact, &told),
                        }
                        flight
                    }
                    Step::Join(_, told) => {
                        assert!(is_flying(&flying), "seed {seed} step {step}: joined nothing");
                        told.iter().for_each(|told| {
                            check(seed, now, stale, facts.get(&(name.clone(), family)), &Ok(told.clone()))
                        });
                        None
                    }
                    Step::Start(flight, told) => {
                        told.iter().for_each(|told| {
                            check(seed, now, stale, facts.get(&(name.clone(), family)), &Ok(told.clone()))
                        });
                        Some(flight)
                    }
                };
                if let Some(flight) = flight {
                    assert!(!is_flying(&flying), "seed {seed} step {step}: a second query");
                    flying.push((name, family, flight.serial));
                }
            }
            6..=8 if !flying.is_empty() => {
                let (name, family, serial) = flying.swap_remove(random.usize(..flying.len()));
                let ttl = random.u64(..40);
                let last = random.u8(..);
                let (result, fact) = match random.u8(..5) {
                    0 => (bad(ResolveErrorKind::ServFail, None), None),
                    1 => (bad(ResolveErrorKind::NoData, Some(ttl)), Some((None, ttl.min(30)))),
                    _ => (good(last, ttl), Some((Some(last), ttl))),
                };
                let before = facts.get(&(name.clone(), family)).copied();
                if let Some((last, ttl)) = fact {
                    facts.insert((name.clone(), family), Fact { last, expires: now + secs(ttl) });
                }
                let told = cache.landed(now, &name, family, serial, result.clone()).told;
                if result.is_err() && told.is_ok() {
                    check(seed, now, stale, before.as_ref(), &told);
                }
            }
            9 => now += secs(random.u64(..20)),
            10 if random.u8(..8) == 0 => {
                cache.invalidate(&name);
                flying.retain(|(other, ..)| *other != name);
            }
            _ => drop(cache.handle_timeout(now)),
        }
        assert!(cache.len() <= max_names, "seed {seed}: over the bound");
        assert_eq!((cache.index.len(), cache.recent.len()), (cache.len(), cache.len()), "seed {seed}");
        assert_eq!(cache.next_timeout().is_some(), cache.len() > 0, "seed {seed}: kept without an end");
        assert_eq!(cache.flights.len(), flying.len(), "seed {seed}");
    }
    while let Some(at) = cache.next_timeout() {
        cache.handle_timeout(at);
    }
    assert_eq!((cache.len(), cache.index.len(), cache.dues.len()), (0, 0, 0), "seed {seed}: something is left");
}

/// Checks what the cache told against what the oracle knows.
fn check(seed: u64, now: Instant, stale: Duration, fact: Option<&Fact>, told: &Result<Answer, ResolveError>) {
    let answered = |last: Option<u8>| last.map(|last| IpAddr::from([192, 0, 2, last]));
    match told {
        Ok(answer) => {
            let fact = fact.expect("an answer has been given");
            assert_eq!(Some(answer.addresses()[0]), answered(fact.last), "seed {seed}: not the last answer");
            match answer.source() {
                Source::Hit => assert_eq!(now + answer.ttl(), fact.expires, "seed {seed}: not its TTL"),
                Source::Stale => {
                    assert!(now >= fact.expires && now < fact.expires + stale, "seed {seed}: not in its time");
                }
                other => panic!("seed {seed}: told as {other}"),
            }
        }
        Err(error) if error.kind().is_negative() => {
            let fact = fact.expect("a negative answer has been given");
            assert!(fact.last.is_none() && now < fact.expires, "seed {seed}: a negative answer past its time");
        }
        Err(_) => {}
    }
}
