//! DNS servers that fail, stay silent, or answer in part.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use speeddial::dns::{CachedResolver, Family, HickoryResolver, ResolveErrorKind, Resolver, Source};

use super::common::{TRY, answer_of, by_udp, correct_server, impatient, kind_of, resolver};
use support::LONG;
use support::scripted_dns::{ReceivedQuery, ScriptedDns, bytes, framed, no_tcp, packet, send};

// SERVFAIL, REFUSED, NOTIMP, FORMERR (with and without EDNS) and unknown codes. From the first server: the next one is asked. From all
// servers: an error within the time budget, which is remembered for 1 to 30 s.

#[tokio::test]
async fn hazard_error_codes_lead_to_the_next_server_or_to_an_error_within_the_budget() {
    let codes = [1, 2, 4, 5, 6, 9, 11, 23];
    for code in codes {
        let failing = move || by_udp(move |query| packet(&query.code(ResponseCode::from(0, code))));
        let first = failing();
        let second = correct_server();
        assert_eq!(answer_of(&resolver(&[&first, &second]).resolve("a.test", Family::V4).await).0, [1], "code {code}");

        let first = failing();
        let second = failing();
        let cache = CachedResolver::new(resolver(&[&first, &second]));
        let start = Instant::now();
        for _ in 0..3 {
            let error = cache.lookup("a.test", Family::V4).await.unwrap_err();
            assert!(!error.kind().is_negative(), "code {code}: {error}");
        }
        assert!(start.elapsed() < TRY, "code {code}: no try waits to its end");
        assert!(first.queries() + second.queries() <= 4, "code {code}: {}", first.queries() + second.queries());
    }
}

#[tokio::test]
async fn hazard_a_server_without_edns_does_not_make_a_name_negative() {
    let server = by_udp(|query| match query.has_edns {
        true => packet(&query.code(ResponseCode::FormErr)),
        false => packet(&query.good(1, 60)),
    });
    let alone = resolver(&[&server]).resolve("a.test", Family::V4).await;
    let second = correct_server();
    assert!(alone.is_ok() || !kind_of(&alone).is_negative(), "{alone:?}");
    assert_eq!(answer_of(&resolver(&[&server, &second]).resolve("a.test", Family::V4).await).0, [1]);
}

// No answer to the first queries, for one family, from one server or from all: the total timeout holds. One family is enough after
// the resolution delay; the timelines of the race show that.

#[tokio::test]
async fn hazard_unanswered_queries_are_repeated() {
    for silent in [1, 2] {
        let server = by_udp(move |query| if query.before < silent { vec![] } else { packet(&query.good(1, 60)) });
        assert_eq!(answer_of(&resolver(&[&server]).resolve("a.test", Family::V4).await).0, [1], "{silent} unanswered");
    }
}

#[tokio::test]
async fn hazard_a_family_without_an_answer_does_not_affect_the_other() {
    let server = by_udp(|query| if query.is_v6() { vec![] } else { packet(&query.good(1, 60)) });
    // The family without an answer takes all of the time, which is enough for the other one.
    let limit = Duration::from_secs(5);
    let cache = CachedResolver::new(resolver(&[&server]).with_try_timeout(limit).with_total_timeout(limit));
    let (v4, v6) = tokio::join!(cache.lookup("a.test", Family::V4), cache.lookup("a.test", Family::V6));
    assert_eq!(answer_of(&v4).0, [1]);
    assert!(!kind_of(&v6).is_negative());
    assert_eq!(
        cache.lookup("a.test", Family::V4).await.unwrap().source(),
        Source::Hit,
        "the families are cached independently"
    );
}

#[tokio::test]
async fn hazard_silent_servers_are_skipped_within_the_budget() {
    let silent = by_udp(|_| vec![]);
    let good = correct_server();
    assert_eq!(answer_of(&resolver(&[&silent, &good]).resolve("a.test", Family::V4).await).0, [1]);
    let start = Instant::now();
    let all = impatient(&[&silent]).with_total_timeout(Duration::from_millis(400)).resolve("a.test", Family::V4).await;
    assert!(!kind_of(&all).is_negative());
    assert!(start.elapsed() < TRY, "the total timeout holds: {:?}", start.elapsed());
}

#[tokio::test]
async fn hazard_a_failed_family_is_remembered_beside_the_good_one() {
    let server =
        by_udp(|query| packet(&if query.is_v6() { query.code(ResponseCode::ServFail) } else { query.good(1, 60) }));
    let cache = CachedResolver::new(resolver(&[&server]));
    for _ in 0..3 {
        assert_eq!(answer_of(&cache.lookup("a.test", Family::V4).await).0, [1]);
        assert_eq!(kind_of(&cache.lookup("a.test", Family::V6).await), ResolveErrorKind::ServFail);
    }
    assert_eq!(server.queries(), 2);
}

// Truncated answers. TCP works, refuses, hangs, closes in the middle or sends single bytes: a right answer or a clear error.

#[tokio::test]
async fn hazard_a_truncated_answer_is_fetched_over_tcp_or_fails_clearly() {
    let truncated = |query: &ReceivedQuery| {
        let mut response = query.good(66, 60);
        response.metadata.truncation = true;
        packet(&response)
    };
    let by_tcp = |query: &ReceivedQuery, stream: &mut TcpStream| {
        let whole = bytes(&query.good(1, 60));
        match query.label().as_str() {
            "works" => send(stream, &whole),
            "hangs" => stream.read(&mut [0]).map(drop),
            "halves" => {
                stream.write_all(&framed(&whole)[..20])?;
                Err(std::io::ErrorKind::ConnectionAborted.into())
            }
            "bytes" => framed(&whole).iter().try_for_each(|byte| stream.write_all(&[*byte])),
            "garbage" => send(stream, &[0xc0; 40]),
            "again" => {
                let mut again = query.good(66, 60);
                again.metadata.truncation = true;
                send(stream, &bytes(&again))
            }
            _ => no_tcp(query, stream),
        }
    };
    let server = ScriptedDns::start(truncated, by_tcp);
    let resolver = resolver(&[&server]);
    for label in ["works", "bytes"] {
        assert_eq!(answer_of(&resolver.resolve(&format!("{label}.test"), Family::V4).await).0, [1], "{label}");
    }
    for label in ["refuses", "hangs", "halves", "garbage", "again"] {
        let outcome = impatient(&[&server]).resolve(&format!("{label}.test"), Family::V4).await;
        assert!(!kind_of(&outcome).is_negative(), "{label}: {outcome:?}");
        assert_eq!(answer_of(&resolver.resolve("works.test", Family::V4).await).0, [1], "after {label}");
    }
}

#[tokio::test]
async fn unanswered_names_do_not_delay_other_names() {
    let server = by_udp(|query| if query.label().starts_with("dead") { vec![] } else { packet(&query.good(1, 60)) });
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]).with_max_in_flight(8));
    let dead: Vec<_> = (0..40)
        .map(|number| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.lookup(&format!("dead{number}.test"), Family::V4).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let start = Instant::now();
    assert_eq!(answer_of(&cache.lookup("good.test", Family::V4).await).0, [1]);
    // 40 dead names, 8 at a time, take 5 turns of one second each. If each held its slot until its lookup ended, it would be 25 s.
    assert!(start.elapsed() < Duration::from_secs(16), "{:?}", start.elapsed());
    for lookup in dead {
        assert!(!kind_of(&lookup.await.unwrap()).is_negative());
    }
}

#[tokio::test]
async fn a_short_total_timeout_still_finds_the_server_that_answers() {
    let silent = by_udp(|_| vec![]);
    let good = correct_server();
    let resolver = HickoryResolver::with_servers([silent.address(), good.address()]);
    let resolver = resolver.with_total_timeout(Duration::from_millis(200));
    assert!(resolver.resolve("a.test", Family::V4).await.is_err(), "the silent server has all of the time");
    let start = Instant::now();
    let mut found = 0;
    // A busy machine may need longer than the total timeout for an answer.
    while found < 2 {
        found += usize::from(resolver.resolve("a.test", Family::V4).await.is_ok());
        assert!(start.elapsed() < LONG, "the silent server is asked first again, and again");
    }
}

#[test]
fn an_idle_runtime_does_not_block_lookups_on_another() {
    let server = correct_server();
    let resolver = resolver(&[&server]);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let one = runtime();
    let other = runtime();
    for turn in 0..6 {
        let runtime = if turn % 2 == 0 { &one } else { &other };
        let start = Instant::now();
        assert_eq!(answer_of(&runtime.block_on(resolver.resolve("a.test", Family::V4))).0, [1], "turn {turn}");
        assert!(start.elapsed() < TRY, "turn {turn}: {:?}", start.elapsed());
    }
}
