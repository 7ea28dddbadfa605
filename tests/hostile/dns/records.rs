//! Unusual records: aliases, TTLs, names without an address, and unusable addresses.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hickory_proto::op::ResponseCode;
use speeddial::dns::{CachedResolver, Family, ResolveErrorKind, Resolver, Source};

use super::common::{TRY, answer_of, by_udp, resolver};
use support::scripted_dns::{ReceivedQuery, ScriptedDns, alias, bytes, name, packet, send, soa};

// Chains of CNAMEs: loops, no end, wrong order, NXDOMAIN at the end. They are followed or fail; the shortest TTL counts.

#[tokio::test]
async fn hazard_alias_chains_are_followed_and_loops_end() {
    let server = by_udp(|query| {
        let mut response = query.response();
        match query.label().as_str() {
            "chain" => {
                response.add_answer(alias("chain.test.", 30, "b.test."));
                response.add_answer(alias("b.test.", 5, "c.test."));
                query.add(&mut response, &name("c.test."), 1, 60);
            }
            "backwards" => {
                query.add(&mut response, &name("c.test."), 1, 60);
                response.add_answer(alias("b.test.", 5, "c.test."));
                response.add_answer(alias("backwards.test.", 30, "b.test."));
            }
            "loop" => {
                response.add_answer(alias("loop.test.", 30, "pool.test."));
                response.add_answer(alias("pool.test.", 30, "loop.test."));
            }
            "itself" => drop(response.add_answer(alias("itself.test.", 30, "itself.test."))),
            "pool" => drop(response.add_answer(alias("pool.test.", 30, "loop.test."))),
            "b" => drop(response.add_answer(alias("b.test.", 5, "c.test."))),
            "c" => query.add(&mut response, &name("c.test."), 1, 60),
            "dangling" => {
                response.add_answer(alias("dangling.test.", 30, "nothing.test."));
                response.add_authority(soa(60, 9));
            }
            "nothing" => drop(response.add_authority(soa(60, 9))),
            "nowhere" => {
                response.metadata.response_code = ResponseCode::NXDomain;
                response.add_authority(soa(60, 9));
            }
            "ends" => {
                response.metadata.response_code = ResponseCode::NXDomain;
                response.add_answer(alias("ends.test.", 30, "nowhere.test."));
                response.add_authority(soa(60, 9));
            }
            label => {
                // A chain without end: each name is an alias of the next one.
                let next = label.trim_start_matches("endless").parse().unwrap_or(0) + 1;
                response.add_answer(alias(&format!("{label}.test."), 30, &format!("endless{next}.test.")));
            }
        }
        packet(&response)
    });
    let resolver = resolver(&[&server]);
    for label in ["chain", "backwards"] {
        assert_eq!(answer_of(&resolver.resolve(&format!("{label}.test"), Family::V4).await), (vec![1], 5), "{label}");
    }
    let start = Instant::now();
    for label in ["loop", "itself", "dangling", "endless0"] {
        let outcome = resolver.resolve(&format!("{label}.test"), Family::V4).await;
        assert!(outcome.is_err(), "{label}: {outcome:?}");
    }
    assert!(start.elapsed() < TRY, "each chain has an end: {:?}", start.elapsed());
    assert!(server.queries() < 100, "{} queries", server.queries());
    let error = resolver.resolve("ends.test", Family::V4).await.unwrap_err();
    assert_eq!((error.kind(), error.negative_ttl()), (ResolveErrorKind::NxDomain, Some(Duration::from_secs(9))));
}

/// Makes lookups, of other names in each round, until they take less than a second: a busy machine delays not all of them, and an answer
/// may count for no longer.
async fn within_a_second<T>(mut lookups: impl AsyncFnMut(usize) -> T) -> T {
    for round in 0..50 {
        let start = Instant::now();
        let found = lookups(round).await;
        if start.elapsed() < Duration::from_secs(1) {
            return found;
        }
    }
    panic!("each round takes a second");
}

// TTLs of 0, of 1, of 2^31 - 1, with the high bit set (as 0, RFC 2181 §8), and mixed in one set (the smallest counts).

#[tokio::test]
async fn hazard_extreme_ttls_are_bounded() {
    let server = by_udp(|query| {
        let mut response = query.response();
        match query.label().as_str() {
            "mixed" => [(1, 300), (2, 7), (3, 60)]
                .iter()
                .for_each(|(last, ttl)| query.add(&mut response, query.question.name(), *last, *ttl)),
            ttl => query.add(&mut response, query.question.name(), 1, ttl.parse().unwrap()),
        }
        packet(&response)
    });
    let cache = CachedResolver::new(resolver(&[&server]));
    let day = 24 * 60 * 60;
    let highest = i32::MAX as u32;
    let cases = [("0", None), ("1", Some(1)), ("mixed", Some(7)), (&highest.to_string(), Some(day))];
    let high_bit = [(1_u32 << 31).to_string(), u32::MAX.to_string()];
    let cases = cases.into_iter().chain(high_bit.iter().map(|ttl| (ttl.as_str(), None)));
    for (label, kept) in cases {
        let cache = &cache;
        let again = within_a_second(async |round| {
            let name = format!("{label}.n{round}.test");
            cache.lookup(&name, Family::V4).await.unwrap();
            cache.lookup(&name, Family::V4).await.unwrap()
        });
        let again = again.await;
        match kept {
            None => assert_eq!((again.source(), again.ttl()), (Source::Miss, Duration::ZERO), "{label}"),
            Some(seconds) => {
                assert_eq!(again.source(), Source::Hit, "{label}");
                assert!(again.ttl() <= Duration::from_secs(seconds), "{label}: {:?}", again.ttl());
                assert!(again.ttl() > Duration::from_secs(seconds - 1), "{label}: {:?}", again.ttl());
            }
        }
    }
}

// NXDOMAIN and NODATA are cached as the SOA says (RFC 2308); without a SOA for a moment only.

#[tokio::test]
async fn hazard_missing_names_and_families_are_cached_by_their_soa() {
    let server = by_udp(|query| {
        let label = query.label();
        let mut response = query.response();
        if label.starts_with("nx") {
            response.metadata.response_code = ResponseCode::NXDomain;
        } else if !query.is_v6() {
            return packet(&query.good(1, 60));
        }
        match label.rsplit('-').next() {
            Some("soa") => drop(response.add_authority(soa(60, 9))),
            Some("long") => drop(response.add_authority(soa(86_400, 86_400))),
            Some("short") => drop(response.add_authority(soa(3, 86_400))),
            _ => {}
        }
        packet(&response)
    });
    let resolver = resolver(&[&server]);
    let seconds = |ttl: Option<Duration>| ttl.map(|ttl| ttl.as_secs());
    for (label, ttl) in [("soa", Some(9)), ("long", Some(86_400)), ("short", Some(3)), ("none", None)] {
        let error = resolver.resolve(&format!("nx-{label}.test"), Family::V4).await.unwrap_err();
        assert_eq!((error.kind(), seconds(error.negative_ttl())), (ResolveErrorKind::NxDomain, ttl), "{label}");
        let error = resolver.resolve(&format!("only4-{label}.test"), Family::V6).await.unwrap_err();
        assert_eq!((error.kind(), seconds(error.negative_ttl())), (ResolveErrorKind::NoData, ttl), "{label}");
    }
    let cache = CachedResolver::new(resolver);
    for (label, kept) in [("nx-long", 30), ("nx-none", 1)] {
        let (cache, server) = (&cache, &server);
        let (errors, queries) = within_a_second(async |round| {
            let name = format!("{label}.n{round}.test");
            cache.lookup(&name, Family::V4).await.unwrap_err();
            let before = server.queries();
            let again = Family::BOTH.map(|family| cache.lookup(&name, family));
            let errors: Vec<_> = join_all(again).await.into_iter().map(Result::unwrap_err).collect();
            (errors, server.queries() - before)
        })
        .await;
        for error in errors {
            assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NxDomain, Source::Hit));
            assert!(error.negative_ttl() <= Some(Duration::from_secs(kept)), "{label}: {:?}", error.negative_ttl());
        }
        assert_eq!(queries, 0, "{label}: both families are cached");
    }
}

// 1,000 addresses are kept. Unusable ones (0.0.0.0, multicast, broadcast) are not dialled.

#[tokio::test]
async fn hazard_a_thousand_addresses_are_kept_and_unusable_ones_are_not_dialled() {
    let thousand = |query: &ReceivedQuery| {
        let mut response = query.response();
        for number in 0..1_000_u32 {
            let [.., high, low] = number.to_be_bytes();
            let address = IpAddr::from([127, 1, high, low]);
            support::dns_server::add_address(&mut response, &query.question, query.question.name(), address, 60);
        }
        response
    };
    let server = ScriptedDns::start(
        move |query| {
            let mut truncated = query.response();
            truncated.metadata.truncation = true;
            packet(&truncated)
        },
        move |query, stream| send(stream, &bytes(&thousand(query))),
    );
    let answer = resolver(&[&server]).resolve("a.test", Family::V4).await.unwrap();
    assert_eq!(answer.addresses().len(), 1_000);

    let server = by_udp(|query| {
        let mut response = query.response();
        for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255"] {
            let address = address.parse().unwrap();
            support::dns_server::add_address(&mut response, &query.question, query.question.name(), address, 60);
        }
        packet(&response)
    });
    let client = speeddial::Client::builder().dns_resolver(resolver(&[&server])).build().unwrap();
    let error = client.get("http://a.test/").send().await.unwrap_err();
    assert!(error.is_dns(), "nothing was dialled: {error}");
    assert!(format!("{error:#}").contains("no host can have the address 0.0.0.0"), "{error:#}");
}

// A name that flaps between addresses: the TTL is honoured.

#[tokio::test]
async fn hazard_a_name_that_flaps_is_followed_by_its_ttl() {
    // A query that is sent once more, because the machine is busy, gets the same answer.
    let turns = Mutex::new((None, 1));
    let server = by_udp(move |query| {
        let (id, last) = &mut *turns.lock().unwrap();
        if id.replace(query.id) != Some(query.id) {
            *last = 3 - *last;
        }
        packet(&query.good(*last, 0))
    });
    let cache = CachedResolver::new(resolver(&[&server]));
    let mut changes = cache.subscribe();
    for round in 0..6 {
        assert_eq!(
            answer_of(&cache.lookup("a.test", Family::V4).await).0,
            [2 - round % 2],
            "a TTL of 0 is looked up each time"
        );
        assert_eq!(changes.next().await.unwrap().addresses.len(), 1);
    }
}
