//! Random events, compared with a model that forgets nothing.

use std::collections::HashMap;

use super::*;

/// The last answer for a name in one family.
#[derive(Clone, Copy)]
struct Fact {
    /// The last byte of the address; `None` for "does not exist".
    last: Option<u8>,
    expires: Instant,
}

#[test]
fn random_events_never_yield_an_expired_answer_as_fresh_nor_too_many_names() {
    for seed in 0..400 {
        random_run(seed, 12, 8, 300);
    }
    for seed in 0..20 {
        random_run(seed, 200, 250, 10_000);
    }
}

/// Random events about so many names, in a cache of fewer than `most`.
fn random_run(seed: u64, names: u16, most: usize, steps: u32) {
    let mut random = fastrand::Rng::with_seed(seed);
    let max_names = random.usize(..most);
    let stale = secs(random.u64(..60));
    let config = Config { max_names, max_stale: stale, query_timeout: secs(1 << 30), ..Config::default() };
    let mut cache = Cache::new(config, 0);
    let mut now = t0();
    let mut running: Vec<(String, Family, u64)> = Vec::new();
    let mut facts: HashMap<(String, Family), Fact> = HashMap::new();
    for step in 0..steps {
        let name = random.u16(..names).to_string();
        let family = if random.bool() { V4 } else { V6 };
        let is_running =
            |running: &[(String, Family, u64)]| running.iter().any(|(other, f, _)| (other, *f) == (&name, family));
        match random.u8(..13) {
            12 => {
                if let Some(query) = cache.touch(now, &name, family).query {
                    assert!(!is_running(&running), "seed {seed} step {step}: a second query");
                    running.push((name, family, query.serial));
                }
            }
            0..=5 => {
                let query = match get(&mut cache, now, &name, family) {
                    Lookup::Known(outcome, query) => {
                        let other = facts.get(&(name.clone(), family.other()));
                        let in_use = other.is_some_and(|fact| fact.last.is_some() && now < fact.expires);
                        match facts.get(&(name.clone(), family)) {
                            Some(Fact { last: None, .. }) if outcome.is_err() && in_use => {}
                            fact => check(seed, now, stale, fact, &outcome),
                        }
                        query
                    }
                    Lookup::Join(_, outcome) => {
                        assert!(is_running(&running), "seed {seed} step {step}: joined nothing");
                        outcome.iter().for_each(|outcome| {
                            check(seed, now, stale, facts.get(&(name.clone(), family)), &Ok(outcome.clone()))
                        });
                        None
                    }
                    Lookup::Start(query, outcome) => {
                        outcome.iter().for_each(|outcome| {
                            check(seed, now, stale, facts.get(&(name.clone(), family)), &Ok(outcome.clone()))
                        });
                        Some(query)
                    }
                };
                if let Some(query) = query {
                    assert!(!is_running(&running), "seed {seed} step {step}: a second query");
                    running.push((name, family, query.serial));
                }
            }
            6..=8 if !running.is_empty() => {
                let (name, family, serial) = running.swap_remove(random.usize(..running.len()));
                let ttl = random.u64(..40);
                let last = random.u8(..);
                let (result, fact) = match random.u8(..5) {
                    0 => (err(ResolveErrorKind::ServFail, None), None),
                    1 => (err(ResolveErrorKind::NoData, Some(ttl)), Some((None, ttl.min(30)))),
                    _ => (ok(last, ttl), Some((Some(last), ttl))),
                };
                let before = facts.get(&(name.clone(), family)).copied();
                if let Some((last, ttl)) = fact {
                    facts.insert((name.clone(), family), Fact { last, expires: now + secs(ttl) });
                }
                let outcome = cache.complete(now, &name, family, serial, result.clone()).outcome;
                if result.is_err() && outcome.is_ok() {
                    check(seed, now, stale, before.as_ref(), &outcome);
                }
            }
            9 => now += secs(random.u64(..20)),
            11 if !running.is_empty() => {
                let (name, family, serial) = running.swap_remove(random.usize(..running.len()));
                assert!(cache.abandon(now, &name, family, serial), "seed {seed} step {step}: it did not count");
            }
            10 if random.u8(..8) == 0 => {
                cache.invalidate(&name);
                running.retain(|(other, ..)| *other != name);
            }
            _ => drop(cache.handle_timeout(now)),
        }
        assert!(cache.len() <= max_names, "seed {seed}: over the bound");
        cache.entries.check();
        assert_eq!(cache.next_timeout().is_some(), cache.len() > 0, "seed {seed}: kept without an end");
        assert_eq!(cache.queries.len(), running.len(), "seed {seed}");
    }
    while let Some(at) = cache.next_timeout() {
        cache.handle_timeout(at);
    }
    assert_eq!(cache.len(), 0, "seed {seed}: something is left");
    cache.entries.check();
}

/// Checks an outcome against the last answer.
fn check(seed: u64, now: Instant, stale: Duration, fact: Option<&Fact>, outcome: &Result<Answer, ResolveError>) {
    let answered = |last: Option<u8>| last.map(|last| IpAddr::from([192, 0, 2, last]));
    match outcome {
        Ok(answer) => {
            let fact = fact.expect("an answer has been given");
            assert_eq!(Some(answer.addresses()[0]), answered(fact.last), "seed {seed}: not the last answer");
            match answer.source() {
                Source::Hit => assert_eq!(now + answer.ttl(), fact.expires, "seed {seed}: not its TTL"),
                Source::Stale => {
                    assert!(now >= fact.expires && now < fact.expires + stale, "seed {seed}: not in its time");
                }
                other => panic!("seed {seed}: outcome as {other}"),
            }
        }
        Err(error) if error.kind().is_negative() => {
            let fact = fact.expect("a negative answer has been given");
            assert!(fact.last.is_none() && now < fact.expires, "seed {seed}: a negative answer past its time");
        }
        Err(_) => {}
    }
}
