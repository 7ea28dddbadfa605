//! Bad servers in simulated time: the pool beside a client that dials for each call.
//!
//! That client is a few lines of model ([`dials_for_each`]): a call takes an idle connection or dials, takes what is there first, and
//! fails with its own dial. The pool must never fail more calls, and never take 100 ms longer.

use std::collections::BTreeMap;

use super::*;

/// What becomes of a dial that begins at a time, in ms, as number `n`.
type Server<'a> = &'a dyn Fn(u64, u64) -> (u64, Result<(), &'static str>);

const NEVER: u64 = u64::MAX / 4;
/// The connect timeout, in ms.
const CONNECT: u64 = 1_000;
/// The time that a request holds its connection, in ms.
const SERVICE: u64 = 5;

/// The servers, and whether their dials succeed in the end.
const SERVERS: &[(&str, Server<'static>)] = &[
    ("healthy", &|_, _| (2, Ok(()))),
    ("far", &|_, _| (80, Ok(()))),
    ("drops SYNs", &|_, _| (NEVER, Ok(()))),
    ("refuses", &|_, _| (1, Err("refused"))),
    ("fails late", &|_, _| (400, Err("silent"))),
    ("one of four refuses", &|_, n| if n % 4 == 0 { (1, Err("refused")) } else { (2, Ok(())) }),
    ("one of four is silent", &|_, n| if n % 4 == 0 { (NEVER, Ok(())) } else { (2, Ok(())) }),
    ("is frozen for 600 ms", &|at, _| (if at < 600 { 602 - at } else { 2 }, Ok(()))),
    ("is dead for 600 ms", &|at, _| if at < 600 { (NEVER, Ok(())) } else { (2, Ok(())) }),
    ("is frozen for 3000 ms", &|at, _| (if at < 3_000 { 3_002 - at } else { 2 }, Ok(()))),
    ("DNS is dead", &|_, _| (NEVER, Ok(()))),
    ("DNS is slow", &|at, _| (if at < 300 { 302 - at } else { 2 }, Ok(()))),
    ("DNS is dead for 3000 ms", &|at, _| if at < 3_000 { (NEVER, Ok(())) } else { (2, Ok(())) }),
];

/// The calls of a run: how many begin, and at which interval in ms.
const LOADS: &[(u64, u64)] = &[(1, 0), (20, 0), (600, 0), (60, 20), (250, 20)];

/// What came of a run.
#[derive(Debug, Clone, Default)]
struct Outcome {
    failed: u64,
    /// The longest time of a call, in ms.
    longest: u64,
    most_slots: usize,
    /// The time at which the last of the calls that failed began, in ms.
    last_failed: u64,
}

/// Something that happens at a time.
enum Happens {
    Arrival(u32),
    DialEnds(Permit, Result<(), &'static str>),
    Released(LeaseToken),
}

/// Runs the calls through the pool's core, over a server whose connections speak HTTP/1 or HTTP/2.
///
/// `waits_for_dns` is true if its dials wait for DNS for as long as they take.
fn pool_against(
    (host, is_http2): (u8, bool),
    (server, waits_for_dns): (Server<'_>, bool),
    (count, interval): (u64, u64),
    is_warm: bool,
) -> Outcome {
    let (pool, start) = pool(PoolConfig::new());
    let mut pool = pool.with(0, move |_| waits_for_dns);
    let limits = WaitLimits { connect: ms(CONNECT), ends_dials: true, queue: None };
    let mut agenda: BTreeMap<(u64, u64), Happens> = BTreeMap::new();
    let (mut number, mut dials) = (0, 0);
    let mut add = |agenda: &mut BTreeMap<_, _>, at: u64, event| {
        number += 1;
        agenda.insert((at, number), event);
    };
    let mut begun = HashMap::new();
    if is_warm {
        pool.wait(start, host, 1_000_000);
        let permit = pool.permit();
        if is_http2 {
            pool.dialed_http2(start, permit, 100);
        } else {
            pool.dial_succeeded(start, permit, http1(5));
        }
        let (_, token, _) = pool.delivered();
        pool.release(start, token, KEPT);
    }
    for call in 0..count {
        add(&mut agenda, call * interval, Happens::Arrival(call as u32));
    }
    let mut outcome = Outcome::default();
    let mut ended = 0;
    let mut in_flight: HashMap<u64, u64> = HashMap::new();
    while ended < count {
        let timeout = pool.next_timeout().map(|at| (at - start).as_nanos().div_ceil(1_000_000) as u64);
        let next = agenda.first_key_value().map(|((at, _), _)| *at);
        let now = next.into_iter().chain(timeout).min().expect("everybody is answered in the end");
        let then = start + ms(now);
        assert!(now < 60_000, "a call is never answered");
        pool.handle_timeout(then);
        while let Some(entry) = agenda.first_entry().filter(|entry| entry.key().0 <= now) {
            match entry.remove() {
                Happens::Arrival(call) => {
                    begun.insert(call, now);
                    if let Acquired::Ready(grant) = pool.checkout(then, &host, &Wish::default(), 0, || (call, limits)) {
                        ended += 1;
                        add(&mut agenda, now + SERVICE, Happens::Released(grant.token));
                    }
                }
                Happens::Released(token) => pool.release(then, token, KEPT),
                Happens::DialEnds(permit, result) if in_flight.remove(&permit.id().serial).is_some() => match result {
                    Ok(()) if is_http2 => pool.dialed_http2(then, permit, 100),
                    Ok(()) => drop(pool.dial_succeeded(then, permit, http1(5))),
                    Err(error) => drop(pool.dial_failed(then, permit, error)),
                },
                // It was given up before.
                Happens::DialEnds(..) => {}
            }
        }
        while let Some(effect) = pool.next_effect() {
            match effect {
                Effect::Dial(permit, ..) => {
                    let (takes, result) = server(now, dials);
                    dials += 1;
                    in_flight.insert(permit.id().serial, now);
                    let (at, result) = if takes > CONNECT { (CONNECT, Err("timed out")) } else { (takes, result) };
                    add(&mut agenda, now + at, Happens::DialEnds(permit, result));
                }
                Effect::AbortDial(id) if pool.is_given_up(id) && in_flight.remove(&id.serial).is_some() => {
                    pool.dial_failed(then, Permit(id), "lost");
                }
                Effect::Deliver { waiter, grant, .. } => {
                    ended += 1;
                    if let Some(begun) = begun.get(&waiter) {
                        outcome.longest = outcome.longest.max(now - begun);
                    }
                    add(&mut agenda, now + SERVICE, Happens::Released(grant.token));
                }
                Effect::Fail { waiter, .. } => {
                    ended += 1;
                    outcome.failed += 1;
                    outcome.longest = outcome.longest.max(now - begun[&waiter]);
                    outcome.last_failed = outcome.last_failed.max(begun[&waiter]);
                }
                _ => {}
            }
        }
        outcome.most_slots = outcome.most_slots.max(pool.counters().slots);
    }
    outcome
}

/// Runs the calls through a client that dials for each of them unless a connection is idle.
fn dials_for_each(server: Server<'_>, (count, interval): (u64, u64), is_warm: bool) -> Outcome {
    let mut outcome = Outcome::default();
    // The times at which connections become free, and for each waiting call its arrival and the end of its dial.
    let mut free: Vec<u64> = if is_warm { vec![0] } else { Vec::new() };
    let mut waiting: VecDeque<(u64, u64, bool)> = VecDeque::new();
    let mut dials = 0;
    let mut arrived = 0;
    let mut now = 0;
    while arrived < count || !waiting.is_empty() {
        outcome.most_slots = outcome.most_slots.max(waiting.iter().filter(|(_, end, _)| *end > now).count());
        while arrived < count && arrived * interval <= now {
            let (takes, result) = server(now, dials);
            dials += 1;
            let opens = takes <= CONNECT && result.is_ok();
            waiting.push_back((now, now + takes.min(CONNECT), opens));
            arrived += 1;
        }
        // Dials that have ended open connections, or fail their calls.
        free.extend(waiting.iter().filter(|(_, end, opens)| *opens && *end == now).map(|_| now));
        while let Some(conn) = free.iter().position(|free_at| *free_at <= now)
            && let Some((begun, ..)) = waiting.pop_front()
        {
            free[conn] = now + SERVICE;
            outcome.longest = outcome.longest.max(now - begun);
        }
        waiting.retain(|(begun, end, opens)| {
            let fails = !opens && *end <= now;
            outcome.failed += u64::from(fails);
            if fails {
                outcome.longest = outcome.longest.max(now - begun);
            }
            !fails
        });
        now += 1;
    }
    outcome
}

#[test]
fn the_pool_fails_no_more_calls_than_a_client_that_dials_for_each_and_is_never_100_ms_slower() {
    for (name, server) in SERVERS {
        for load in LOADS {
            for is_warm in [false, true] {
                let reference = dials_for_each(*server, *load, is_warm);
                for (host, is_http2) in [(1, false), (MANY, true), (UNKNOWN, false), (UNKNOWN, true)] {
                    let outcome = pool_against((host, is_http2), (*server, name.starts_with("DNS")), *load, is_warm);
                    let what = format!("{name}, {load:?} calls, warm {is_warm}, host {host}, http2 {is_http2}");
                    let both = format!("{what}: {outcome:?}, the other client {reference:?}");
                    assert!(outcome.failed <= reference.failed, "{both}");
                    // Calls may wait longer where that saves some of them, for connections that others give back.
                    let saves = outcome.failed < reference.failed;
                    assert!(saves || outcome.longest <= reference.longest + 100, "{both}");
                    assert!(outcome.longest < CONNECT + 100, "{both}");
                    let outage = name.strip_suffix(" ms").and_then(|name| name.rsplit(' ').next()?.parse().ok());
                    if let Some(outage) = outage.filter(|_| outcome.failed > 0) {
                        assert!(outcome.last_failed < outage, "{both}");
                    }
                    if name.starts_with("one of four") && load.0 > 1 && load.1 == 0 {
                        assert_eq!(outcome.failed, 0, "{both}");
                    }
                }
            }
        }
    }
}

#[test]
fn callers_of_a_dead_host_and_a_good_one_beside_it_under_a_total_of_20() {
    let (mut pool, start) = pool(PoolConfig::new().max_connections(20));
    let (mut agenda, mut number, mut calls) = (BTreeMap::new(), 0, 0);
    let mut waits = HashMap::new();
    let mut longest = 0;
    for at in 0..6_000 {
        let then = start + ms(at);
        pool.run_until(then);
        for (host, interval) in [(1, 40), (2, 20)] {
            if at % interval == 0 {
                calls += 1;
                if let Acquired::Ready(grant) = pool.acquire(then, &host, None, false, || calls) {
                    agenda.insert((at + SERVICE, calls), grant.token);
                } else if host == 2 {
                    waits.insert(calls, at);
                }
            }
        }
        let due: Vec<_> = agenda.range(..=(at, u32::MAX)).map(|(key, _)| *key).collect();
        for key in due {
            let token = agenda.remove(&key).unwrap();
            pool.release(then, token, KEPT);
        }
        while let Some(effect) = pool.next_effect() {
            match effect {
                Effect::Dial(permit, 2, _) => drop(pool.dial_succeeded(then, permit, http1(5))),
                Effect::AbortDial(id) if pool.is_given_up(id) => drop(pool.dial_failed(then, Permit(id), "lost")),
                Effect::Deliver { waiter, grant, .. } => {
                    number += 1;
                    longest = longest.max(at - waits.remove(&waiter).unwrap_or(at));
                    agenda.insert((at + SERVICE, 1_000_000 + number), grant.token);
                }
                Effect::Close(_) => panic!("a warm connection of the good host was closed for the dead one"),
                _ => {}
            }
        }
    }
    assert!(longest <= 10, "a call to the good host waited for {longest} ms");
    assert!(waits.is_empty(), "{} calls to the good host wait", waits.len());
}

/// The conduct of a server in a part of a run.
#[derive(Debug, Clone, Copy)]
enum Conduct {
    Healthy,
    Far,
    Silent,
    Refuses,
    FailsLate,
    /// Dials end when the part is over.
    Frozen,
    /// One of so many dials is silent.
    SilentAtTimes(u64),
    /// One of so many dials is refused.
    RefusesAtTimes(u64),
}

/// Returns the parts of a run, each with its end in ms.
fn outages(random: &mut fastrand::Rng) -> Vec<(u64, Conduct)> {
    // The first part is long. If an outage began while the first dial hangs, chance would decide: a client that dials twice may have
    // a connection by then.
    let mut end = 200;
    let count = random.usize(1..6);
    let mut parts: Vec<_> = (0..count)
        .map(|_| {
            end += random.u64(50..1_500);
            let often = random.u64(2..6);
            let conduct = match random.u8(..8) {
                0 => Conduct::Healthy,
                1 => Conduct::Far,
                2 => Conduct::Silent,
                3 => Conduct::Refuses,
                4 => Conduct::FailsLate,
                5 => Conduct::Frozen,
                6 => Conduct::SilentAtTimes(often),
                _ => Conduct::RefusesAtTimes(often),
            };
            (end, conduct)
        })
        .collect();
    parts.push((NEVER, Conduct::Healthy));
    parts
}

fn dial_during(parts: &[(u64, Conduct)], at: u64, n: u64) -> (u64, Result<(), &'static str>) {
    let (end, conduct) = parts.iter().find(|(end, _)| at < *end).expect("the last part has no end");
    match conduct {
        Conduct::Healthy => (2, Ok(())),
        Conduct::Far => (80, Ok(())),
        Conduct::Silent => (NEVER, Ok(())),
        Conduct::Refuses => (1, Err("refused")),
        Conduct::FailsLate => (400, Err("silent")),
        Conduct::Frozen => (end - at + 2, Ok(())),
        Conduct::SilentAtTimes(often) if n.is_multiple_of(*often) => (NEVER, Ok(())),
        Conduct::RefusesAtTimes(often) if n.is_multiple_of(*often) => (1, Err("refused")),
        Conduct::SilentAtTimes(_) | Conduct::RefusesAtTimes(_) => (2, Ok(())),
    }
}

#[test]
fn in_random_outages_the_pool_is_no_worse_than_a_client_that_dials_for_each_call() {
    let runs: u64 = std::env::var("OUTAGES").ok().map_or(300, |text| text.parse().unwrap());
    let (mut worse, mut tried) = (Vec::new(), 0);
    for seed in 0..runs {
        let mut random = fastrand::Rng::with_seed(seed);
        let parts = outages(&mut random);
        let load = (random.u64(1..200), random.u64(..40));
        let is_warm = random.bool();
        let server = |at, n| dial_during(&parts, at, n);
        let reference = dials_for_each(&server, load, is_warm);
        // Beyond that the pool gives slow dials up, as docs/decisions/pool.md says.
        if reference.most_slots > super::super::dials::FEW_SLOW {
            continue;
        }
        tried += 1;
        for (host, is_http2) in [(1, false), (MANY, true), (UNKNOWN, false), (UNKNOWN, true)] {
            let outcome = pool_against((host, is_http2), (&server, false), load, is_warm);
            // Where each dial takes 400 ms to fail, a call that joins another one's dial first is up to 150 ms later.
            let is_late = outcome.failed == reference.failed && outcome.longest > reference.longest + 150;
            if outcome.failed > reference.failed || is_late || outcome.longest >= CONNECT + 100 {
                let what = format!(
                    "OUTAGES seed {seed}: {parts:?}, {load:?} calls, warm {is_warm}, host {host}, http2 {is_http2}"
                );
                worse.push(format!("{what}: {outcome:?}, the other client {reference:?}"));
            }
        }
    }
    assert!(worse.is_empty(), "{} of {tried} runs\n{}", worse.len(), worse.join("\n"));
}
