//! Packets that are no answer to the question: forgeries, other names, and bytes that are no message.

use hickory_proto::op::{MessageType, Query};
use hickory_proto::rr::RecordType;
use speeddial::dns::{CachedResolver, Family, HickoryResolver, ResolveErrorKind, Resolver, Source};

use super::common::{answer_of, by_udp, correct_server, impatient, kind_of, resolver};
use support::scripted_dns::{Packets, ReceivedQuery, ScriptedDns, SentFrom, bytes, name, packet, send};

// Wrong id, wrong question, wrong port, another letter case, no response bit, no question: each is ignored, and the right answer that
// follows is used.

/// Returns one packet of each kind of forgery. Their address is 127.0.0.66.
fn forgeries(query: &ReceivedQuery, round: u16) -> Packets {
    let lie = || query.good(66, 60);
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
    let here = |packet: Vec<u8>| (packet, SentFrom::ServerPort);
    vec![
        here(with_id(query.id.wrapping_add(1 + round))),
        here(with_id(query.id.swap_bytes().wrapping_add(u16::from(query.id.swap_bytes() == query.id)))),
        here(with_id(!query.id)),
        here(with_question(another("evil.test.", RecordType::A))),
        here(with_question(another("a.test.", RecordType::TXT))),
        here(with_question(another("test.", RecordType::A))),
        here(with_question(None)),
        here(bytes(&two_questions)),
        here(short_of_id),
        here(vec![]),
        (bytes(&lie()), SentFrom::AnotherPort),
    ]
}

#[tokio::test]
async fn hazard_forgeries_of_each_kind_are_ignored() {
    for which in 0..11 {
        let server = by_udp(move |query| {
            let mut packets = vec![forgeries(query, 0).swap_remove(which)];
            packets.extend(packet(&query.good(1, 60)));
            packets
        });
        let outcome = HickoryResolver::with_servers([server.address()]).resolve("a.test", Family::V4).await;
        assert_eq!(answer_of(&outcome).0, [1], "forgery {which}");
        assert_eq!(server.queries(), 1, "forgery {which}: the right answer that followed was used");
    }
}

#[tokio::test]
async fn hazard_a_flood_of_10_000_forgeries_is_ignored() {
    let server = by_udp(|query| {
        // 100 forgeries in each of 100 lookups. More at once would overflow the socket's buffer and drop the right answer as well.
        let mut packets: Packets = (0..10).flat_map(|round| forgeries(query, round)).take(100).collect();
        packets.extend(packet(&query.good(1, 60)));
        packets
    });
    let resolver = HickoryResolver::with_servers([server.address()]);
    for _ in 0..100 {
        assert_eq!(answer_of(&resolver.resolve("a.test", Family::V4).await).0, [1]);
    }
}

#[tokio::test]
async fn hazard_a_packet_that_is_no_response_is_not_an_answer() {
    let server = ScriptedDns::start(
        |query| {
            let mut no_response = query.good(66, 60);
            no_response.metadata.message_type = MessageType::Query;
            [packet(&no_response), packet(&query.good(1, 60))].concat()
        },
        |query, stream| send(stream, &bytes(&query.good(1, 60))),
    );
    let outcome = resolver(&[&server]).resolve("a.test", Family::V4).await;
    assert_eq!(answer_of(&outcome).0, [1]);
}

#[tokio::test]
async fn hazard_an_answer_in_another_letter_case_is_for_the_same_name() {
    let server = by_udp(|query| {
        let mut response = query.response();
        response.queries = vec![Query::query(name("A.TEST."), query.question.query_type())];
        query.add(&mut response, &name("A.tEsT."), 1, 60);
        packet(&response)
    });
    assert_eq!(answer_of(&resolver(&[&server]).resolve("a.test", Family::V4).await).0, [1]);
}

// Records for other names in any section are never used and never cached.

#[tokio::test]
async fn hazard_records_for_other_names_are_never_used_or_cached() {
    let server = by_udp(|query| match query.label().as_str() {
        "victim" => packet(&query.good(1, 60)),
        _ => {
            let mut response = query.response();
            let lie = |owner: &str| {
                let mut message = query.response();
                query.add(&mut message, &name(owner), 66, 3_600);
                message.answers.remove(0)
            };
            response.add_answer(lie("victim.test."));
            query.add(&mut response, query.question.name(), 1, 60);
            response.add_authority(lie("victim.test."));
            response.add_additional(lie("victim.test."));
            response.add_additional(lie("a.test."));
            packet(&response)
        }
    });
    let cache = CachedResolver::new(resolver(&[&server]));
    assert_eq!(answer_of(&cache.lookup("a.test", Family::V4).await), (vec![1], 60));
    let victim = cache.lookup("victim.test", Family::V4).await;
    assert_eq!((answer_of(&victim).0, victim.unwrap().source()), (vec![1], Source::Miss));
}

// Compression loops, cut records, wrong lengths and garbage: only that lookup fails.

/// Returns a malformed message, chosen by the label. Only its header and its question are right.
fn broken(query: &ReceivedQuery) -> Vec<u8> {
    let whole = bytes(&query.good(66, 60));
    let question = bytes(&query.response()).len();
    let mut header = whole[..question].to_vec();
    header[7] = 1;
    let record = |name: &[u8], length: u16, data: &[u8]| {
        let fixed = [0, 1, 0, 1, 0, 0, 0, 60];
        [&header[..], name, &fixed, &length.to_be_bytes(), data].concat()
    };
    let at = (question as u16 | 0xc000).to_be_bytes();
    match query.label().as_str() {
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
async fn hazard_malformed_messages_fail_only_their_own_lookup() {
    let labels = ["itself", "forward", "cut", "header", "half", "long", "short", "label", "counts", "garbage"];
    let server = ScriptedDns::start(
        |query| match query.label().as_str() {
            "good" => packet(&query.good(1, 60)),
            _ => vec![(broken(query), SentFrom::ServerPort)],
        },
        |query, stream| send(stream, &broken(query)),
    );
    let second = correct_server();
    let (alone, patient) = (impatient(&[&server]), resolver(&[&server]));
    for label in labels {
        let name = format!("{label}.test");
        let (outcome, good) = tokio::join!(alone.resolve(&name, Family::V4), patient.resolve("good.test", Family::V4));
        assert!(outcome.is_err(), "{label}: {outcome:?}");
        assert_ne!(kind_of(&outcome), ResolveErrorKind::NxDomain, "{label}");
        assert_eq!(answer_of(&good).0, [1], "beside {label}");
        let both = resolver(&[&server, &second]);
        assert_eq!(answer_of(&both.resolve(&name, Family::V4).await).0, [1], "{label}: the next server is asked");
    }
}
