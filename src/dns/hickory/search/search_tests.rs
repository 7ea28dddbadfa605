//! Lookups with servers on the loopback interface that answer by a table.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hickory_resolver::proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, SOA};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;

use super::*;
use crate::dns::Server;
use crate::dns::hickory::servers::group::SILENT_FOR;
use crate::dns::hickory::servers::upstream::context;
use crate::dns::hickory::system::config::UserLimits;
use crate::dns::hickory::system::resolv_conf::Options;
use Family::{V4, V6};

/// An entry of the table for a name: an address, or another response in a family.
#[derive(Clone, Copy)]
enum Has {
    A(u8),
    Aaaa(u16),
    /// The name exists without addresses.
    Nothing,
    Code(Family, ResponseCode),
    Silence(Family),
}
use Has::{A as V4Is, Aaaa as V6Is, Code, Nothing, Silence};

/// The names of a zone. An asterisk at the front stands for any beginning.
type Zone = &'static [(&'static str, Has)];

type Log = Arc<Mutex<Vec<String>>>;

/// Starts a server that runs as long as the test's runtime. Returns its address, and the log of the questions to it.
async fn serve(zone: Zone) -> (SocketAddr, Log) {
    serve_changing(Arc::new(Mutex::new(zone))).await
}

/// Like [`serve`], with a zone that the test can change.
async fn serve_changing(zone: Arc<Mutex<Zone>>) -> (SocketAddr, Log) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    let log = Log::default();
    let asked = log.clone();
    tokio::spawn(async move {
        let mut packet = [0; 1_500];
        loop {
            let (length, peer) = socket.recv_from(&mut packet).await.unwrap();
            let query = Message::from_vec(&packet[..length]).unwrap();
            let question = &query.queries[0];
            asked.lock().unwrap().push(format!("{} {}", question.name(), question.query_type()));
            let response = Message::response(query.metadata.id, OpCode::Query);
            let zone = *zone.lock().unwrap();
            if let Some(response) = respond(zone, question, response) {
                socket.send_to(&response.to_vec().unwrap(), peer).await.unwrap();
            }
        }
    });
    (address, log)
}

fn respond(zone: Zone, question: &Query, mut response: Message) -> Option<Message> {
    let name = question.name().to_ascii().to_lowercase();
    let name = name.trim_end_matches('.');
    let family = if question.query_type() == RecordType::A { V4 } else { V6 };
    let is_meant = |owner: &str| match owner.strip_prefix('*') {
        Some(end) => name.ends_with(end),
        None => owner == name,
    };
    let records: Vec<_> = zone.iter().filter(|(owner, _)| is_meant(owner)).map(|(_, has)| *has).collect();
    response.metadata.recursion_available = true;
    response.metadata.response_code = if records.is_empty() { ResponseCode::NXDomain } else { ResponseCode::NoError };
    response.add_query(question.clone());
    for has in records {
        let data = match has {
            V4Is(last) if family == V4 => RData::A(A([192, 0, 2, last].into())),
            V6Is(last) if family == V6 => RData::AAAA(AAAA([0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into())),
            Code(of, code) if of == family => {
                response.metadata.response_code = code;
                continue;
            }
            Silence(of) if of == family => return None,
            _ => continue,
        };
        response.add_answer(Record::from_rdata(question.name().clone(), 60, data));
    }
    let is_negative = matches!(response.metadata.response_code, ResponseCode::NXDomain | ResponseCode::NoError);
    if is_negative && response.answers.is_empty() {
        let root = Name::root();
        let soa = RData::SOA(SOA::new(root.clone(), root.clone(), 1, 60, 60, 60, 60));
        response.add_authority(Record::from_rdata(root, 60, soa));
    }
    Some(response)
}

fn searching(suffixes: &[&str], ndots: usize) -> Plan {
    let suffixes = suffixes.iter().map(|suffix| Name::from_ascii(suffix).unwrap()).collect();
    Plan { suffixes, options: Options { ndots: Some(ndots), ..Options::default() }, ..Plan::default() }
}

fn rotating(rotate: bool) -> Plan {
    Plan { options: Options { rotate, ..Options::default() }, ..Plan::default() }
}

fn one_question_at_a_time() -> Plan {
    Plan { options: Options { single_request: true, ..Options::default() }, ..Plan::default() }
}

fn resolver(servers: &[SocketAddr], plan: Plan) -> SearchResolver {
    let servers = servers.iter().map(|address| Server::plain(*address)).collect();
    let limits = UserLimits::default().or(&Options::default());
    let context = context(
        false,
        limits,
        #[cfg(feature = "dns-over-tls")]
        crate::trust::client_config(crate::trust::TrustedRoots::Empty).unwrap(),
    );
    SearchResolver::new(Plan { servers, ..plan }, limits, &context.unwrap()).unwrap()
}

async fn ask(resolver: &SearchResolver, name: &str, family: Family) -> Result<Vec<IpAddr>, ResolveErrorKind> {
    let answer = resolver.lookup(&Name::from_str_relaxed(name).unwrap(), name, family, &Asking::default()).await;
    answer.map(|answer| answer.addresses().to_vec()).map_err(|error| error.kind())
}

/// Returns the addresses of both families, asked for at once, or one after the other in this order.
async fn both(resolver: &SearchResolver, name: &str, order: Option<[Family; 2]>) -> Vec<String> {
    let outcomes = match order {
        None => <[_; 2]>::from(tokio::join!(ask(resolver, name, V4), ask(resolver, name, V6))),
        Some([first, second]) => [ask(resolver, name, first).await, ask(resolver, name, second).await],
    };
    let mut addresses: Vec<_> = outcomes.into_iter().flatten().flatten().map(|ip| ip.to_string()).collect();
    addresses.sort();
    addresses
}

#[tokio::test]
async fn a_name_stands_for_one_candidate_in_both_families_in_any_order_of_lookups() {
    const SERVFAIL: ResponseCode = ResponseCode::ServFail;
    const REFUSED: ResponseCode = ResponseCode::Refused;
    let two = &["a.test.", "b.test."][..];
    /// The suffixes, ndots, the name, the zone, and the addresses that are expected.
    type Case = (&'static [&'static str], usize, &'static str, Zone, &'static [&'static str]);
    let cases: [Case; 16] = [
        (two, 1, "db", &[("db.a.test", V4Is(1)), ("db.b.test", V6Is(2))], &["192.0.2.1"]),
        (two, 1, "db", &[("db.a.test", V6Is(1)), ("db.b.test", V4Is(2))], &["2001:db8::1"]),
        (
            two,
            1,
            "db",
            &[("db.a.test", Nothing), ("db.b.test", V4Is(2)), ("db.b.test", V6Is(2))],
            &["192.0.2.2", "2001:db8::2"],
        ),
        (two, 1, "db", &[("db.b.test", V4Is(2)), ("db.b.test", V6Is(2))], &["192.0.2.2", "2001:db8::2"]),
        (two, 1, "db", &[("db", V4Is(3))], &["192.0.2.3"]),
        (two, 1, "api.example.com", &[("api.example.com", V4Is(9)), ("*.a.test", V6Is(1))], &["192.0.2.9"]),
        (two, 1, "api.example.com", &[("api.example.com", Nothing), ("*.b.test", V4Is(2))], &["192.0.2.2"]),
        (two, 5, "api.example.com", &[("api.example.com", V4Is(9)), ("*.b.test", V6Is(2))], &["2001:db8::2"]),
        (two, 5, "api.example.com", &[("api.example.com", V4Is(9))], &["192.0.2.9"]),
        (two, 1, "db.", &[("db.a.test", V4Is(1))], &[]),
        (
            two,
            1,
            "db",
            &[("db.a.test", Code(V4, SERVFAIL)), ("db.a.test", V6Is(1)), ("db.b.test", V4Is(2))],
            &["2001:db8::1"],
        ),
        (
            two,
            1,
            "db",
            &[("db.a.test", Code(V6, SERVFAIL)), ("db.a.test", V4Is(1)), ("db.b.test", V6Is(2))],
            &["192.0.2.1"],
        ),
        (two, 1, "db", &[("db.a.test", Code(V6, SERVFAIL)), ("db.b.test", V4Is(2))], &["192.0.2.2"]),
        (
            two,
            1,
            "db",
            &[
                ("db.a.test", Code(V4, REFUSED)),
                ("db.a.test", Code(V6, REFUSED)),
                ("db.b.test", V4Is(2)),
                ("db", V4Is(3)),
            ],
            &["192.0.2.3"],
        ),
        (two, 1, "api.test", &[("api.test", Code(V4, REFUSED)), ("*.b.test", V4Is(2))], &["192.0.2.2"]),
        (&["."], 1, "db", &[("db", V4Is(3))], &["192.0.2.3"]),
    ];
    for (number, (suffixes, ndots, name, zone, expected)) in cases.into_iter().enumerate() {
        for order in [None, Some([V4, V6]), Some([V6, V4])] {
            let (server, asked) = serve(zone).await;
            let plan = searching(suffixes, ndots);
            let addresses = both(&resolver(&[server], plan), name, order).await;
            assert_eq!(addresses, expected, "case {number}, {order:?}: {:?}", asked.lock().unwrap());
        }
    }
}

#[tokio::test]
async fn a_search_asks_for_no_candidate_after_the_chosen_one() {
    let zone: Zone = &[("api.example.com", V4Is(9)), ("*.a.test", V6Is(1))];
    for (ndots, name, queries) in [(1, "api.example.com", 2), (1, "api.example.com.", 2), (1, "none.test.", 2)] {
        let (server, asked) = serve(zone).await;
        let plan = searching(&["a.test.", "b.test."], ndots);
        let resolver = resolver(&[server], plan);
        both(&resolver, name, None).await;
        assert_eq!(asked.lock().unwrap().len(), queries, "{name}: {:?}", asked.lock().unwrap());
    }
    let (server, asked) = serve(&[("api.example.com", V4Is(9))]).await;
    let plan = searching(&["a.test.", "b.test."], 5);
    both(&resolver(&[server], plan), "api.example.com", None).await;
    assert_eq!(asked.lock().unwrap().len(), 6, "three candidates in two families: {:?}", asked.lock().unwrap());
}

#[tokio::test]
async fn a_question_that_the_other_family_asks_is_waited_for_and_taken_over_if_that_gives_up() {
    let zone = Arc::new(Mutex::new(&[("db.a.test", Silence(V4))][..] as Zone));
    let (server, _) = serve_changing(zone.clone()).await;
    let resolver = resolver(&[server], Plan::default());
    let full_name = Name::from_ascii("db.a.test.").unwrap();
    let question = |family| Question { full_name: &full_name, name: "db", family, place: Place::default(), late: None };
    let deadline = now() + Duration::from_secs(5);
    let mut own = Box::pin(resolver.ask(question(V4), deadline));
    assert!(futures_util::poll!(own.as_mut()).is_pending());
    let mut other = Box::pin(resolver.ask_other_family(question(V6), ResolveErrorKind::NoData, deadline));
    assert!(futures_util::poll!(other.as_mut()).is_pending());
    *zone.lock().unwrap() = &[("db.a.test", V4Is(1))];
    drop(own);
    assert_eq!(other.await, (Ok(()), Place::default()));
    assert!(resolver.questions.recall(now(), &full_name, V4).is_some());
}

/// Returns the number of questions that a step of a test costs. One that is answered late is sent again, and counts once.
async fn cost<T>(asked: &Log, step: impl Future<Output = T>) -> (T, usize) {
    asked.lock().unwrap().clear();
    let outcome = step.await;
    let questions: BTreeSet<_> = asked.lock().unwrap().iter().cloned().collect();
    (outcome, questions.len())
}

#[tokio::test]
async fn each_search_begins_anew_and_asks_for_a_candidate_once_for_both_families() {
    let kubernetes = &["default.svc.cluster.local.", "svc.cluster.local.", "cluster.local."];
    let cases: [(&str, Zone, usize); 3] = [
        ("api.example.com", &[("api.example.com", V4Is(9)), ("api.example.com", V6Is(9))], 8),
        ("api.example.com", &[("api.example.com", V4Is(9))], 8),
        ("db.prod", &[("db.prod.svc.cluster.local", V4Is(1))], 4),
    ];
    for (name, zone, most) in cases {
        let (server, asked) = serve(zone).await;
        let plan = searching(kubernetes, 5);
        let resolver = resolver(&[server], plan);
        for order in [Some([V4, V6]), Some([V6, V4]), None] {
            resolver.questions.forget();
            let (_, questions) = cost(&asked, both(&resolver, name, order)).await;
            // On a busy machine, fewer: the check whether an NXDOMAIN counts for IPv6 ends after 50 ms.
            assert!((most / 2..=most).contains(&questions), "{name}, {order:?}: {:?}", asked.lock().unwrap());
        }
    }
}

#[tokio::test]
async fn a_change_of_the_candidates_is_found_by_the_next_search() {
    let zone = Arc::new(Mutex::new(&[("db.b.test", V4Is(2)), ("db", V4Is(3))][..] as Zone));
    let (server, asked) = serve_changing(zone.clone()).await;
    let plan = searching(&["a.test.", "b.test."], 1);
    let resolver = resolver(&[server], plan);
    let zones: [(Zone, &str); 4] = [
        (&[("db.b.test", V4Is(2)), ("db", V4Is(3))], "192.0.2.2"),
        (&[("db.a.test", V4Is(1)), ("db.b.test", V4Is(2)), ("db", V4Is(3))], "192.0.2.1"),
        (&[("db.b.test", Nothing), ("db", V4Is(3))], "192.0.2.3"),
        (&[("db.a.test", Code(V4, ResponseCode::ServFail)), ("db.b.test", V4Is(2))], "192.0.2.2"),
    ];
    for (now_is, expected) in zones {
        *zone.lock().unwrap() = now_is;
        resolver.questions.forget();
        assert_eq!(both(&resolver, "db", None).await, [expected], "{:?}", asked.lock().unwrap());
    }
}

#[tokio::test]
async fn an_answer_has_the_place_of_its_server_and_of_its_candidate() {
    let closed = SocketAddr::from(([127, 0, 0, 1], 9));
    let (server, _) = serve(&[("db.b.test", V4Is(2)), ("db", V4Is(3))]).await;
    let place = async |servers: &[SocketAddr], rotate: bool, name: &str, asking: &Asking| {
        let searching = searching(&["a.test.", "b.test."], 1);
        let resolver = resolver(servers, Plan { options: Options { rotate, ..searching.options }, ..searching });
        let outcome = resolver.lookup(&Name::from_str_relaxed(name).unwrap(), name, V4, asking).await;
        let place = outcome.as_ref().map_or_else(ResolveError::place, Answer::place);
        (outcome.is_ok(), place.server, place.candidate)
    };
    let nothing = &Asking::default();
    assert_eq!(place(&[server], false, "db", nothing).await, (true, 0, 1));
    assert_eq!(place(&[closed, server], false, "db", nothing).await, (true, 1, 1));
    assert_eq!(place(&[closed, closed, server], false, "db", nothing).await, (true, 2, 1));
    assert_eq!(place(&[closed, server], true, "db", nothing).await, (true, 0, 1), "servers that take turns are equal");
    assert_eq!(place(&[closed, server], false, "none", nothing).await, (false, 1, 2));
    let known = |server, candidate| Asking { known: Some(Place { server, candidate }), late: None };
    let first = &known(0, 0);
    assert_eq!(
        place(&[closed, server], false, "db", first).await,
        (false, 1, 0),
        "another server's no ends the search"
    );
    assert_eq!(place(&[server], false, "db", first).await, (true, 0, 1), "the same server's does not");
    assert_eq!(place(&[closed, server], false, "db", &known(1, 0)).await, (true, 1, 1));
    assert_eq!(place(&[closed, server], false, "db", &known(0, 1)).await, (true, 1, 1), "it is of another candidate");
}

#[tokio::test]
async fn a_silent_candidate_before_the_known_one_does_not_end_the_search() {
    let (server, _) = serve(&[("db.a.test", Silence(V4)), ("db.b.test", V4Is(2))]).await;
    let searching = searching(&["a.test.", "b.test."], 1);
    let resolver = resolver(&[server], Plan { only: Some(V4), ..searching });
    let asking = Asking { known: Some(Place { server: 0, candidate: 1 }), late: None };
    let answer = resolver.lookup(&Name::from_ascii("db").unwrap(), "db", V4, &asking).await.unwrap();
    assert_eq!((answer.addresses()[0].to_string().as_str(), answer.place().server), ("192.0.2.2", 0));
    assert!(ask(&resolver, "db", V4).await.unwrap_err().is_silence(), "nothing is known");
}

#[tokio::test]
async fn addresses_of_an_earlier_server_that_come_late_are_passed_on() {
    let slow = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let (later, _) = serve(&[("api.test", V4Is(2))]).await;
    let resolver = resolver(&[slow.local_addr().unwrap(), later], Plan::default());
    let (sender, mut late) = tokio::sync::mpsc::unbounded_channel();
    let asking = Asking { known: None, late: Some(Arc::new(move |answer| sender.send(answer).unwrap())) };
    let answer = resolver.lookup(&Name::from_ascii("api.test").unwrap(), "api.test", V4, &asking).await.unwrap();
    assert_eq!((answer.addresses()[0].to_string().as_str(), answer.place().server), ("192.0.2.2", 1));
    let mut packet = [0; 1_500];
    let (length, peer) = slow.recv_from(&mut packet).await.unwrap();
    let query = Message::from_vec(&packet[..length]).unwrap();
    let response = Message::response(query.metadata.id, OpCode::Query);
    let response = respond(&[("api.test", V4Is(1))], &query.queries[0], response).unwrap();
    slow.send_to(&response.to_vec().unwrap(), peer).await.unwrap();
    let late = late.recv().await.unwrap();
    assert_eq!((late.addresses()[0].to_string().as_str(), late.place().server), ("192.0.2.1", 0));
}

/// Checks that a lookup does not wait for a limit, which is a second: of several, a busy machine does not delay all beyond that. The lookup
/// returns the time that it took after what is timed.
async fn at_once(mut lookup: impl AsyncFnMut() -> Duration) {
    let mut took = Duration::MAX;
    for _ in 0..20 {
        let start = now();
        let after = lookup().await;
        took = took.min((now() - start).saturating_sub(after));
        if took < Duration::from_secs(1) {
            return;
        }
    }
    panic!("{took:?}");
}

#[tokio::test]
async fn a_silent_family_does_not_hold_up_the_other() {
    let cases: [(&str, Zone, &str); 2] = [
        ("api.example.com", &[("api.example.com", V4Is(9)), ("api.example.com", Silence(V6))], "192.0.2.9"),
        (
            "db",
            &[("db.a.test", Code(V4, ResponseCode::NXDomain)), ("db.a.test", Silence(V6)), ("db.b.test", V4Is(2))],
            "192.0.2.2",
        ),
    ];
    for (name, zone, expected) in cases {
        let (server, _) = serve(zone).await;
        let plan = searching(&["a.test.", "b.test."], 1);
        let resolver = resolver(&[server], plan);
        at_once(async || {
            let addresses = ask(&resolver, name, V4).await.unwrap();
            assert_eq!(addresses[0].to_string(), expected);
            Duration::ZERO
        })
        .await;
    }
}

#[tokio::test]
async fn a_search_fails_when_the_question_for_ipv4_goes_unanswered() {
    let zone: Zone = &[("db.a.test", Silence(V4)), ("db.b.test", V4Is(2)), ("db.b.test", V6Is(2))];
    let (server, _) = serve(zone).await;
    let plan = searching(&["a.test.", "b.test."], 1);
    let resolver = resolver(&[server], plan);
    let (v4, v6) = tokio::join!(ask(&resolver, "db", V4), ask(&resolver, "db", V6));
    assert!(v4.unwrap_err().is_silence() && v6.unwrap_err().is_silence());
}

#[tokio::test]
async fn with_one_family_the_other_is_not_asked_for() {
    let (server, asked) = serve(&[("db.a.test", V6Is(1)), ("db.b.test", V4Is(2))]).await;
    let plan = Plan { only: Some(V4), ..searching(&["a.test.", "b.test."], 1) };
    let addresses = ask(&resolver(&[server], plan), "db", V4).await.unwrap();
    assert_eq!(addresses[0].to_string(), "192.0.2.2", "the first with an address of this family");
    assert_eq!(*asked.lock().unwrap(), ["db.a.test. A", "db.b.test. A"]);
}

#[tokio::test]
async fn servers_rotate_with_that_option_in_each_family() {
    let zone: Zone = &[("api.test", V4Is(1)), ("api.test", V6Is(1))];
    for (rotate, counts) in [(true, [(3, 3), (3, 3)]), (false, [(6, 6), (0, 0)])] {
        let servers = [serve(zone).await, serve(zone).await];
        let resolver = resolver(&[servers[0].0, servers[1].0], rotating(rotate));
        for _ in 0..6 {
            for family in Family::BOTH {
                ask(&resolver, "api.test", family).await.unwrap();
            }
        }
        let of = |asked: &Log, family: &str| asked.lock().unwrap().iter().filter(|line| line.ends_with(family)).count();
        assert_eq!(servers.map(|(_, asked)| (of(&asked, " A"), of(&asked, " AAAA"))), counts);
    }
}

#[tokio::test]
async fn a_server_that_is_silent_in_a_family_has_no_head_start_in_that_one_until_it_is_heard() {
    let zone = Arc::new(Mutex::new(&[("api.test", V4Is(1)), ("api.test", Silence(V6))][..] as Zone));
    let (server, _) = serve_changing(zone.clone()).await;
    let resolver = resolver(&[server], Plan::default());
    let silent = |family, at| resolver.servers.kinds(family, at)[0].1;
    let (v4, v6) = tokio::join!(ask(&resolver, "api.test", V4), ask(&resolver, "api.test", V6));
    assert!(v4.is_ok() && v6.is_err());
    assert!(silent(V6, now()) && !silent(V4, now()));
    assert!(!silent(V6, now() + SILENT_FOR));
    *zone.lock().unwrap() = &[("api.test", V6Is(1))];
    assert!(ask(&resolver, "api.test", V6).await.is_ok());
    assert!(!silent(V6, now()));
}

#[test]
fn a_listener_that_ends_with_its_runtime_lets_another_one_listen() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (first, second) = (runtime(), runtime());
    let (server, _) = second.block_on(serve(&[("api.test", V4Is(1))]));
    let resolver = resolver(&[silent.local_addr().unwrap(), server], Plan::default());
    let group = resolver.servers.clone();
    let asked = std::thread::spawn(move || {
        assert!(first.block_on(ask(&resolver, "api.test", V4)).is_ok());
        let listened = resolver.servers.listeners();
        drop(first);
        listened
    });
    second.block_on(async {
        while !asked.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert_eq!(asked.join().unwrap(), 1, "the silent server was listened to");
    assert_eq!(group.listeners(), 0);
}

#[tokio::test]
async fn with_single_request_both_families_are_answered() {
    let (server, _) = serve(&[("api.test", V4Is(1)), ("api.test", V6Is(1))]).await;
    let resolver = resolver(&[server], one_question_at_a_time());
    assert_eq!(both(&resolver, "api.test", None).await.len(), 2);
}

#[tokio::test]
async fn with_single_request_a_silent_family_delays_the_other_by_a_moment() {
    let (server, _) = serve(&[("api.test", V4Is(1)), ("api.test", Silence(V6))]).await;
    let resolver = resolver(&[server], one_question_at_a_time());
    at_once(async || {
        let v4 = async { (ask(&resolver, "api.test", V4).await, now()) };
        let (v6, (v4, answered)) = tokio::join!(ask(&resolver, "api.test", V6), v4);
        assert!(v6.is_err() && v4.is_ok(), "{v6:?} {v4:?}");
        now() - answered
    })
    .await;
}

#[tokio::test]
async fn an_assumed_server_that_does_not_answer_is_a_failure_of_this_machine() {
    // A socket that is connected elsewhere keeps the port, and receives none of these packets.
    let closed = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    closed.connect((Ipv4Addr::LOCALHOST, 9)).unwrap();
    for (is_assumed, kind) in [(true, ResolveErrorKind::Local), (false, ResolveErrorKind::Unreachable)] {
        let resolver = resolver(&[closed.local_addr().unwrap()], Plan { is_assumed, ..Plan::default() });
        assert_eq!(ask(&resolver, "api.test", V4).await, Err(kind));
    }
}
