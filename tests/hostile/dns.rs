//! What DNS servers, and those who pretend to be one, do to a client: a test for each row of the hazards of DNS.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use hickory_proto::op::{MessageType, Query, ResponseCode};
use hickory_proto::rr::RecordType;
use speeddial::dns::{
    Answer, CachedResolver, Family, HickoryResolver, Resolve, ResolveError, ResolveErrorKind, Source,
};

use support::evil_dns::{Asked, EvilDns, From, Packets, alias, bytes, framed, name, no_tcp, packet, send, soa};

type Outcome = Result<Answer, ResolveError>;

fn resolver(servers: &[&EvilDns]) -> HickoryResolver {
    let resolver = HickoryResolver::with_servers(servers.iter().map(|server| server.address()));
    resolver.with_try_timeout(Duration::from_millis(250))
}

/// The last bytes of an answer's addresses, and its TTL in seconds.
fn told(outcome: &Outcome) -> (Vec<u8>, u64) {
    let answer = outcome.as_ref().unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(error)));
    let last = |ip: &IpAddr| ip.to_string().rsplit('.').next().unwrap().parse().unwrap();
    (answer.addresses().iter().map(last).collect(), answer.ttl().as_secs())
}

fn kind(outcome: &Outcome) -> ResolveErrorKind {
    outcome.as_ref().expect_err("no answer").kind()
}

fn honest() -> EvilDns {
    EvilDns::start(|asked| packet(&asked.good(1, 60)), no_tcp)
}

/// A server that speaks by UDP alone.
fn by_udp(script: impl Fn(&Asked) -> Packets + Send + 'static) -> EvilDns {
    EvilDns::start(script, no_tcp)
}

// SERVFAIL, REFUSED, NOTIMP, FORMERR (with and without EDNS), odd rcodes, on the first server, on all: the next server is
// asked; then an error within the budget; remembered 1 s to 30 s.

#[tokio::test]
async fn hazard_error_codes_on_the_first_server_and_on_all() {
    let codes = [1, 2, 4, 5, 6, 9, 11, 23];
    for code in codes {
        let failing = move || by_udp(move |asked| packet(&asked.code(ResponseCode::from(0, code))));
        let (first, second) = (failing(), honest());
        assert_eq!(told(&resolver(&[&first, &second]).resolve("a.test", Family::V4).await).0, [1], "code {code}");

        let (first, second) = (failing(), failing());
        let cache = CachedResolver::new(resolver(&[&first, &second]));
        let start = Instant::now();
        for _ in 0..3 {
            let error = cache.lookup("a.test", Family::V4).await.unwrap_err();
            assert!(!error.kind().is_negative(), "code {code}: {error}");
        }
        assert!(start.elapsed() < Duration::from_secs(5), "code {code}");
        assert!(first.queries() + second.queries() <= 4, "code {code}: {}", first.queries() + second.queries());
    }
}

#[tokio::test]
async fn hazard_a_server_that_does_not_know_edns() {
    let server = by_udp(|asked| match asked.has_edns {
        true => packet(&asked.code(ResponseCode::FormErr)),
        false => packet(&asked.good(1, 60)),
    });
    let (alone, second) = (resolver(&[&server]).resolve("a.test", Family::V4).await, honest());
    assert!(alone.is_ok() || !kind(&alone).is_negative(), "{alone:?}");
    assert_eq!(told(&resolver(&[&server, &second]).resolve("a.test", Family::V4).await).0, [1]);
}

// No answer: first n queries, one family, one server, all servers: A alone is enough after the resolution delay (see the
// race's timelines); the budget holds.

#[tokio::test]
async fn hazard_the_first_queries_go_unanswered() {
    for silent in [1, 2] {
        let server = by_udp(move |asked| if asked.before < silent { vec![] } else { packet(&asked.good(1, 60)) });
        let resolver = HickoryResolver::with_servers([server.address()]);
        assert_eq!(told(&resolver.resolve("a.test", Family::V4).await).0, [1], "{silent} unanswered");
    }
}

#[tokio::test]
async fn hazard_one_family_goes_unanswered() {
    let server = by_udp(|asked| if asked.is_v6() { vec![] } else { packet(&asked.good(1, 60)) });
    let cache = CachedResolver::new(resolver(&[&server]));
    let (v4, v6) = tokio::join!(cache.lookup("a.test", Family::V4), cache.lookup("a.test", Family::V6));
    assert_eq!(told(&v4).0, [1]);
    assert!(!kind(&v6).is_negative());
    assert_eq!(cache.lookup("a.test", Family::V4).await.unwrap().source(), Source::Hit, "each for itself");
}

#[tokio::test]
async fn hazard_one_server_or_all_are_silent() {
    let (silent, good) = (by_udp(|_| vec![]), honest());
    assert_eq!(told(&resolver(&[&silent, &good]).resolve("a.test", Family::V4).await).0, [1]);
    let start = Instant::now();
    let all = resolver(&[&silent]).with_total_timeout(Duration::from_millis(400)).resolve("a.test", Family::V4).await;
    assert!(!kind(&all).is_negative());
    assert!(start.elapsed() < Duration::from_secs(3), "the budget holds: {:?}", start.elapsed());
}

#[tokio::test]
async fn hazard_one_family_fails_and_the_other_is_good() {
    let server =
        by_udp(|asked| packet(&if asked.is_v6() { asked.code(ResponseCode::ServFail) } else { asked.good(1, 60) }));
    let cache = CachedResolver::new(resolver(&[&server]));
    for _ in 0..3 {
        assert_eq!(told(&cache.lookup("a.test", Family::V4).await).0, [1]);
        assert_eq!(kind(&cache.lookup("a.test", Family::V6).await), ResolveErrorKind::ServFail);
    }
    assert_eq!(server.queries(), 2);
}

// Wrong id, wrong question, wrong port, flood of forgeries, other letter case, response bit unset, no question: ignored; the
// right answer that follows is used.

/// The kinds of forgery: whatever they say of the name has the address 127.0.0.66.
fn forgeries(asked: &Asked, round: u16) -> Packets {
    let lie = || asked.good(66, 60);
    let with_id = |id: u16| {
        let mut message = lie();
        message.metadata.id = id;
        bytes(&message)
    };
    let with_question = |question: Option<Query>| {
        let mut message = lie();
        message.queries = question.into_iter().collect();
        bytes(&message)
    };
    let another = |text: &str, kind| Some(Query::query(name(text), kind));
    let mut two_questions = lie();
    two_questions.add_query(Query::query(name("b.test."), RecordType::A));
    let mut short_of_id = bytes(&lie());
    short_of_id.truncate(1);
    let here = |packet: Vec<u8>| (packet, From::Here);
    vec![
        here(with_id(asked.id.wrapping_add(1 + round))),
        here(with_id(asked.id.swap_bytes().wrapping_add(u16::from(asked.id.swap_bytes() == asked.id)))),
        here(with_id(!asked.id)),
        here(with_question(another("evil.test.", RecordType::A))),
        here(with_question(another("a.test.", RecordType::TXT))),
        here(with_question(another("test.", RecordType::A))),
        here(with_question(None)),
        here(bytes(&two_questions)),
        here(short_of_id),
        here(vec![]),
        (bytes(&lie()), From::AnotherPort),
    ]
}

#[tokio::test]
async fn hazard_forgeries_of_each_kind_are_ignored() {
    for which in 0..11 {
        let server = by_udp(move |asked| {
            let mut packets = vec![forgeries(asked, 0).swap_remove(which)];
            packets.extend(packet(&asked.good(1, 60)));
            packets
        });
        let outcome = HickoryResolver::with_servers([server.address()]).resolve("a.test", Family::V4).await;
        assert_eq!(told(&outcome).0, [1], "forgery {which}");
        assert_eq!(server.queries(), 1, "forgery {which}: the right answer that followed was used");
    }
}

#[tokio::test]
async fn hazard_a_flood_of_10_000_forgeries() {
    let server = by_udp(|asked| {
        // In 100 lookups; more at once than a socket's buffer holds would drop the right answer as well.
        let mut packets: Packets = (0..10).flat_map(|round| forgeries(asked, round)).take(100).collect();
        packets.extend(packet(&asked.good(1, 60)));
        packets
    });
    let resolver = HickoryResolver::with_servers([server.address()]);
    for _ in 0..100 {
        assert_eq!(told(&resolver.resolve("a.test", Family::V4).await).0, [1]);
    }
}

#[tokio::test]
async fn hazard_a_packet_that_is_no_response_is_not_an_answer() {
    let server = EvilDns::start(
        |asked| {
            let mut query = asked.good(66, 60);
            query.metadata.message_type = MessageType::Query;
            [packet(&query), packet(&asked.good(1, 60))].concat()
        },
        |asked, stream| send(stream, &bytes(&asked.good(1, 60))),
    );
    let outcome = resolver(&[&server]).resolve("a.test", Family::V4).await;
    assert_eq!(told(&outcome).0, [1]);
}

#[tokio::test]
async fn hazard_an_answer_in_other_letters_is_the_same_name() {
    let server = by_udp(|asked| {
        let mut response = asked.response();
        response.queries = vec![Query::query(name("A.TEST."), asked.question.query_type())];
        asked.add(&mut response, &name("A.tEsT."), 1, 60);
        packet(&response)
    });
    assert_eq!(told(&resolver(&[&server]).resolve("a.test", Family::V4).await).0, [1]);
}

// Records for other names in any section: never used, never cached.

#[tokio::test]
async fn hazard_records_for_other_names_in_any_section() {
    let server = by_udp(|asked| match asked.label().as_str() {
        "victim" => packet(&asked.good(1, 60)),
        _ => {
            let mut response = asked.response();
            let lie = |owner: &str| {
                let mut message = asked.response();
                asked.add(&mut message, &name(owner), 66, 3_600);
                message.answers.remove(0)
            };
            response.add_answer(lie("victim.test."));
            asked.add(&mut response, asked.question.name(), 1, 60);
            response.add_authority(lie("victim.test."));
            response.add_additional(lie("victim.test."));
            response.add_additional(lie("a.test."));
            packet(&response)
        }
    });
    let cache = CachedResolver::new(resolver(&[&server]));
    assert_eq!(told(&cache.lookup("a.test", Family::V4).await), (vec![1], 60));
    let victim = cache.lookup("victim.test", Family::V4).await;
    assert_eq!((told(&victim).0, victim.unwrap().source()), (vec![1], Source::Miss));
}

// Truncated: TCP works, refuses, hangs, closes in the middle, answers a byte at a time: right answer or a clear error.

#[tokio::test]
async fn hazard_truncated_answers_and_what_tcp_does_then() {
    let truncated = |asked: &Asked| {
        let mut response = asked.good(66, 60);
        response.metadata.truncation = true;
        packet(&response)
    };
    let by_tcp = |asked: &Asked, stream: &mut TcpStream| {
        let whole = bytes(&asked.good(1, 60));
        match asked.label().as_str() {
            "works" => send(stream, &whole),
            "hangs" => stream.read(&mut [0]).map(drop),
            "halves" => {
                stream.write_all(&framed(&whole)[..20])?;
                Err(std::io::ErrorKind::ConnectionAborted.into())
            }
            "bytes" => framed(&whole).iter().try_for_each(|byte| stream.write_all(&[*byte])),
            "garbage" => send(stream, &[0xc0; 40]),
            "again" => {
                let mut again = asked.good(66, 60);
                again.metadata.truncation = true;
                send(stream, &bytes(&again))
            }
            _ => no_tcp(asked, stream),
        }
    };
    let server = EvilDns::start(truncated, by_tcp);
    let resolver = resolver(&[&server]).with_total_timeout(Duration::from_secs(2));
    for label in ["works", "bytes"] {
        assert_eq!(told(&resolver.resolve(&format!("{label}.test"), Family::V4).await).0, [1], "{label}");
    }
    for label in ["refuses", "hangs", "halves", "garbage", "again"] {
        let outcome = resolver.resolve(&format!("{label}.test"), Family::V4).await;
        assert!(!kind(&outcome).is_negative(), "{label}: {outcome:?}");
        assert_eq!(told(&resolver.resolve("works.test", Family::V4).await).0, [1], "after {label}");
    }
}

// CNAME chain, loop, dangling, out of order, NXDOMAIN at its end: followed or refused; shortest TTL counts.

#[tokio::test]
async fn hazard_chains_of_aliases() {
    let server = by_udp(|asked| {
        let mut response = asked.response();
        match asked.label().as_str() {
            "chain" => {
                response.add_answer(alias("chain.test.", 30, "b.test."));
                response.add_answer(alias("b.test.", 5, "c.test."));
                asked.add(&mut response, &name("c.test."), 1, 60);
            }
            "backwards" => {
                asked.add(&mut response, &name("c.test."), 1, 60);
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
            "c" => asked.add(&mut response, &name("c.test."), 1, 60),
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
                // A chain without end: each name is an alias of the next.
                let next = label.trim_start_matches("endless").parse().unwrap_or(0) + 1;
                response.add_answer(alias(&format!("{label}.test."), 30, &format!("endless{next}.test.")));
            }
        }
        packet(&response)
    });
    let resolver = resolver(&[&server]);
    for label in ["chain", "backwards"] {
        assert_eq!(told(&resolver.resolve(&format!("{label}.test"), Family::V4).await), (vec![1], 5), "{label}");
    }
    let start = Instant::now();
    for label in ["loop", "itself", "dangling", "endless0"] {
        let outcome = resolver.resolve(&format!("{label}.test"), Family::V4).await;
        assert!(outcome.is_err(), "{label}: {outcome:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(4), "each an end: {:?}", start.elapsed());
    assert!(server.queries() < 100, "{} queries", server.queries());
    let error = resolver.resolve("ends.test", Family::V4).await.unwrap_err();
    assert_eq!((error.kind(), error.negative_ttl()), (ResolveErrorKind::NxDomain, Some(Duration::from_secs(9))));
}

// TTL 0, 1, 2^31 - 1, high bit set; mixed TTLs in a set: 0: no reuse; high bit: as 0; capped; the smallest counts.

#[tokio::test]
async fn hazard_ttls() {
    let server = by_udp(|asked| {
        let mut response = asked.response();
        match asked.label().as_str() {
            "mixed" => [(1, 300), (2, 7), (3, 60)]
                .iter()
                .for_each(|(last, ttl)| asked.add(&mut response, asked.question.name(), *last, *ttl)),
            ttl => asked.add(&mut response, asked.question.name(), 1, ttl.parse().unwrap()),
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
        let name = format!("{label}.test");
        cache.lookup(&name, Family::V4).await.unwrap();
        let again = cache.lookup(&name, Family::V4).await.unwrap();
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

// NXDOMAIN, NODATA, with and without SOA, one family only: cached by the SOA, not without it beyond a moment.

#[tokio::test]
async fn hazard_names_and_families_that_do_not_exist() {
    let server = by_udp(|asked| {
        let label = asked.label();
        let mut response = asked.response();
        if label.starts_with("nx") {
            response.metadata.response_code = ResponseCode::NXDomain;
        } else if !asked.is_v6() {
            return packet(&asked.good(1, 60));
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
        let name = format!("{label}.test");
        cache.lookup(&name, Family::V4).await.unwrap_err();
        let before = server.queries();
        for family in Family::BOTH {
            let error = cache.lookup(&name, family).await.unwrap_err();
            assert_eq!((error.kind(), error.answered_from()), (ResolveErrorKind::NxDomain, Source::Hit));
            assert!(error.negative_ttl() <= Some(Duration::from_secs(kept)), "{label}: {:?}", error.negative_ttl());
        }
        assert_eq!(server.queries(), before, "{label}: both families");
    }
}

// 1,000 addresses, duplicates, 0.0.0.0, multicast, mapped, link-local: bounded attempts; useless ones skipped. (Here: the
// answer; the attempts are the connector's.)

#[tokio::test]
async fn hazard_a_thousand_addresses_and_useless_ones() {
    let thousand = |asked: &Asked| {
        let mut response = asked.response();
        for number in 0..1_000_u32 {
            let [.., high, low] = number.to_be_bytes();
            let address = IpAddr::from([127, 1, high, low]);
            support::dns_server::add_address(&mut response, &asked.question, asked.question.name(), address, 60);
        }
        response
    };
    let server = EvilDns::start(
        move |asked| {
            let mut truncated = asked.response();
            truncated.metadata.truncation = true;
            packet(&truncated)
        },
        move |asked, stream| send(stream, &bytes(&thousand(asked))),
    );
    let answer = resolver(&[&server]).resolve("a.test", Family::V4).await.unwrap();
    assert_eq!(answer.addresses().len(), 1_000);

    let server = by_udp(|asked| {
        let mut response = asked.response();
        for address in ["0.0.0.0", "224.0.0.1", "255.255.255.255"] {
            let address = address.parse().unwrap();
            support::dns_server::add_address(&mut response, &asked.question, asked.question.name(), address, 60);
        }
        packet(&response)
    });
    let client = speeddial::Client::builder().resolver(resolver(&[&server])).build().unwrap();
    let error = client.get("http://a.test/").send().await.unwrap_err();
    assert!(error.is_connect() || error.is_dns(), "{error}");
    assert!(error.to_string().contains("no address"), "nothing was dialled: {error}");
}

// Compression loops, cut records, wrong lengths, garbage: that answer fails, nothing else does.

/// Answers whose header and question are right, and nothing else.
fn broken(asked: &Asked) -> Vec<u8> {
    let whole = bytes(&asked.good(66, 60));
    let question = bytes(&asked.response()).len();
    let mut header = whole[..question].to_vec();
    header[7] = 1;
    let record = |name: &[u8], length: u16, data: &[u8]| {
        let fixed = [0, 1, 0, 1, 0, 0, 0, 60];
        [&header[..], name, &fixed, &length.to_be_bytes(), data].concat()
    };
    let at = (question as u16 | 0xc000).to_be_bytes();
    match asked.label().as_str() {
        "itself" => record(&at, 4, &[127, 0, 0, 66]),
        "forward" => record(&[0xc0, 0xff], 4, &[127, 0, 0, 66]),
        "cut" => whole[..whole.len() - 2].to_vec(),
        "header" => whole[..12].to_vec(),
        "half" => whole[..whole.len() / 2].to_vec(),
        "long" => record(&[0xc0, 12], 400, &[127, 0, 0, 66]),
        "short" => record(&[0xc0, 12], 2, &[127, 0]),
        "label" => record(&[0x80, 1], 4, &[127, 0, 0, 66]),
        "counts" => {
            let mut many = whole;
            many[6] = 0xff;
            many
        }
        _ => [&whole[..2], &[0xff; 200]].concat(),
    }
}

#[tokio::test]
async fn hazard_bytes_that_are_no_message() {
    let labels = ["itself", "forward", "cut", "header", "half", "long", "short", "label", "counts", "garbage"];
    let server = EvilDns::start(
        |asked| match asked.label().as_str() {
            "good" => packet(&asked.good(1, 60)),
            _ => vec![(broken(asked), From::Here)],
        },
        |asked, stream| send(stream, &broken(asked)),
    );
    let second = honest();
    let alone = resolver(&[&server]).with_total_timeout(Duration::from_secs(2));
    for label in labels {
        let name = format!("{label}.test");
        let (outcome, good) = tokio::join!(alone.resolve(&name, Family::V4), alone.resolve("good.test", Family::V4));
        assert!(outcome.is_err(), "{label}: {outcome:?}");
        assert_ne!(kind(&outcome), ResolveErrorKind::NxDomain, "{label}");
        assert_eq!(told(&good).0, [1], "beside {label}");
        let both = resolver(&[&server, &second]);
        assert_eq!(told(&both.resolve(&name, Family::V4).await).0, [1], "{label}: the next server is asked");
    }
}

// The name moves, flaps, rotates: the TTL is honoured. (The pool's part, and what a policy can refuse, are theirs.)

#[tokio::test]
async fn hazard_a_name_that_flaps() {
    let server = by_udp(|asked| packet(&asked.good(1 + (asked.before % 2) as u8, 0)));
    let cache = CachedResolver::new(resolver(&[&server]));
    let mut changes = cache.subscribe();
    for round in 0..6 {
        assert_eq!(told(&cache.lookup("a.test", Family::V4).await).0, [1 + round % 2], "TTL 0 is asked for each time");
        assert_eq!(changes.next().await.unwrap().addresses.len(), 1);
    }
}

// Hosts file, search list, ndots 5, trailing dot, upper case, underscores, IDN, IP literals, `localhost`: as the platform
// does; case-insensitive; no needless queries. (The hosts file and the search list have their tests beside their code.)

#[tokio::test]
async fn hazard_ways_to_write_a_name() {
    let server = by_udp(|asked| match asked.question.name().to_ascii().to_lowercase().as_str() {
        "my_svc.test." | "_a._b.test." | "xn--bcher-kva.test." => packet(&asked.good(1, 60)),
        _ => packet(&asked.code(ResponseCode::NXDomain)),
    });
    let cache = CachedResolver::new(resolver(&[&server]));
    for name in ["my_svc.test", "MY_svc.TEST", "my_svc.test.", "_a._b.test", "xn--bcher-kva.test", "XN--BCHER-KVA.test"]
    {
        assert_eq!(told(&cache.lookup(name, Family::V4).await).0, [1], "{name}");
    }
    assert_eq!(server.queries(), 4, "case makes no difference; a trailing dot says that no suffix is to be tried");
    for name in ["localhost", "deep.localhost", "Other.LOCALHOST"] {
        assert_eq!(cache.lookup(name, Family::V4).await.unwrap().source(), Source::Hosts, "{name}");
    }
    let long = format!("{}.test", "a".repeat(64));
    let longer = ["a"; 140].join(".");
    for name in ["", ".", "..", "a..test", &long, &longer, "a b.test\0"] {
        let outcome = cache.lookup(name, Family::V4).await;
        assert!(outcome.is_err(), "{name:?}: {outcome:?}");
    }
    let client = speeddial::Client::builder().dns_cache(cache).build().unwrap();
    let before = server.queries();
    let error = client.get("http://127.0.0.1:9/").send().await.unwrap_err();
    assert!(error.is_connect(), "{error}");
    assert_eq!(server.queries(), before, "a literal is not asked for");
    let error = client.get("http://Bücher.test:9/").send().await.unwrap_err();
    assert!(error.is_connect() && server.queries() == before + 1, "IDN, of which IPv4 was known: {error}");
}

#[tokio::test]
async fn names_that_go_unanswered_do_not_hold_up_the_others() {
    let server = by_udp(|asked| if asked.label().starts_with("dead") { vec![] } else { packet(&asked.good(1, 60)) });
    let cache = CachedResolver::new(HickoryResolver::with_servers([server.address()]).with_max_in_flight(8));
    let dead: Vec<_> = (0..40)
        .map(|number| {
            let cache = cache.clone();
            tokio::spawn(async move { cache.lookup(&format!("dead{number}.test"), Family::V4).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let start = Instant::now();
    assert_eq!(told(&cache.lookup("good.test", Family::V4).await).0, [1]);
    // 40 dead names are 5 turns of a second each for 8 at a time; held for as long as they last, they would be 25 s.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    for lookup in dead {
        assert!(!kind(&lookup.await.unwrap()).is_negative());
    }
}

#[tokio::test]
async fn a_short_limit_over_all_still_finds_the_server_that_answers() {
    let (silent, good) = (by_udp(|_| vec![]), honest());
    let resolver = HickoryResolver::with_servers([silent.address(), good.address()]);
    let resolver = resolver.with_total_timeout(Duration::from_millis(200));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(resolver.resolve("a.test", Family::V4).await.is_ok());
    }
    assert_eq!(outcomes, [false, true, true], "the one that was silent is not asked first again");
}

#[test]
fn a_runtime_that_nobody_drives_does_not_hold_up_lookups_on_another() {
    let server = honest();
    let resolver = HickoryResolver::with_servers([server.address()]);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (one, other) = (runtime(), runtime());
    for turn in 0..6 {
        let runtime = if turn % 2 == 0 { &one } else { &other };
        let start = Instant::now();
        assert_eq!(told(&runtime.block_on(resolver.resolve("a.test", Family::V4))).0, [1], "turn {turn}");
        assert!(start.elapsed() < Duration::from_secs(1), "turn {turn}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn an_address_written_as_a_name_is_not_asked_for() {
    let server = by_udp(|_| vec![]);
    let cache = CachedResolver::new(resolver(&[&server]));
    assert_eq!(told(&cache.lookup("127.0.0.9", Family::V4).await).0, [9]);
    assert_eq!(kind(&cache.lookup("127.0.0.9", Family::V6).await), ResolveErrorKind::NoData);
    assert_eq!(cache.lookup("::1", Family::V6).await.unwrap().source(), Source::Literal);
    assert_eq!(server.queries(), 0);
    let odd = HickoryResolver::with_servers([honest().address()]).with_tries(usize::MAX);
    let odd = odd.with_try_timeout(Duration::MAX).with_total_timeout(Duration::MAX);
    assert!(odd.with_total_timeout(Duration::from_millis(100)).resolve("a.test", Family::V4).await.is_err());
}
