//! A recorder as a client and a program use it: told of calls by several threads, and read as a snapshot and as JSON.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Extensions, Method};
use serde_json::Value;

use super::*;
use crate::origin::Origin;
use crate::trace::Phase;
use crate::trace::Timings;
use crate::trace::timings::samples::{SENT, cold_call, dns_start, folded, leased, ms, origin, queued};

use crate::trace::{AskedServers, CloseCause, DnsLookup, Family, HostAtDial, HostClose, Limit, Source, Usage};
use crate::trace::{Event, RequestInfo};

/// Returns a request to a URL, as a client describes it to observers.
fn request(url: &str) -> Arc<RequestInfo> {
    let url = url::Url::parse(url).unwrap();
    let target = url[url::Position::BeforePath..].parse().unwrap();
    let origin = Origin::from_url(&url).unwrap();
    Arc::new(RequestInfo { method: Method::GET, origin, target, extensions: Extensions::new() })
}

fn record(recorder: &Recorder, url: &str, timings: &Timings) {
    recorder.ended(&EndedCall { number: 1, request: &request(url), timings: &Arc::new(timings.clone()) });
}

fn warm_call(total: u64) -> Timings {
    folded(&[(0, leased(1)), (0, SENT), (total, Event::FirstByte), (total, Event::BodyEnd { bytes: 2 })])
}

fn failed_call(total: u64) -> Timings {
    folded(&[(0, leased(1)), (0, SENT), (total, Event::CallFailed { phase: Phase::Wait, why: "timeout", bytes: 0 })])
}

fn origins(snapshot: &Snapshot) -> Vec<String> {
    let mut origins: Vec<_> = snapshot.origins.iter().map(|origin| origin.origin.to_string()).collect();
    origins.sort();
    origins
}

#[test]
fn a_snapshot_has_each_kept_call_once_and_the_latest_first() {
    let recorder = Recorder::builder().calls(2).build();
    for total in [300, 1, 2, 3] {
        record(&recorder, "http://api.test/v1/items", &warm_call(total));
    }
    record(&recorder, "http://api.test/v1/items", &failed_call(60));
    let snapshot = recorder.snapshot();
    let [origin] = &snapshot.origins[..] else { panic!("one origin") };
    let calls: Vec<_> =
        origin.calls.iter().map(|call| (call.number, call.is_recent, call.is_slow, call.is_failure)).collect();
    // Of the calls below 10 ms, the second one is neither one of the last two nor one of the slowest two.
    assert_eq!(
        calls,
        [(5, true, true, true), (4, true, true, false), (3, false, true, false), (1, false, true, false)]
    );
    assert_eq!((origin.totals.calls, origin.totals.failures(), snapshot.calls_per_list), (5, 1, 2));
    let [first] = &origin.calls[3..] else { panic!("four calls") };
    assert_eq!((first.method.as_str(), first.target.as_str(), first.class.as_str()), ("GET", "/v1/items", "≥ 200 ms"));
    assert!(
        first.started <= snapshot.taken
            && snapshot.taken.duration_since(first.started).unwrap() < Duration::from_secs(60)
    );
}

#[test]
fn the_slowest_calls_are_those_of_all_origins() {
    let recorder = Recorder::builder().calls(2).build();
    for (total, name) in [(30, "a"), (900, "b"), (700, "a"), (1, "b"), (800, "b"), (2, "a"), (3, "a")] {
        record(&recorder, &format!("http://{name}.test/"), &warm_call(total));
    }
    let snapshot = recorder.snapshot();
    let slowest = |count| {
        let calls = snapshot.slowest(count).into_iter();
        calls.map(|(origin, call)| (origin.to_string(), call.timings.total().as_millis())).collect::<Vec<_>>()
    };
    let first = [("b.test:80", 900), ("b.test:80", 800), ("a.test:80", 700)].map(|(name, ms)| (name.to_owned(), ms));
    assert_eq!((slowest(3), slowest(0), slowest(99).len()), (first.to_vec(), Vec::new(), 7));
}

#[test]
fn the_origin_used_least_recently_makes_room() {
    let recorder = Recorder::builder().origins(3).build();
    for (at, name) in [(10, "a"), (20, "b"), (30, "c"), (40, "a"), (50, "d")] {
        record(&recorder, &format!("http://{name}.test/"), &warm_call(at));
    }
    let snapshot = recorder.snapshot();
    assert_eq!(origins(&snapshot), ["a.test:80", "c.test:80", "d.test:80"]);
    assert_eq!((snapshot.evicted_origins, snapshot.totals().calls), (1, 4));
    assert_eq!(snapshot.origins[0].origin.to_string(), "a.test:80", "the origin with the most calls comes first");
    recorder.clear();
    assert!(recorder.snapshot().origins.is_empty());
}

#[test]
fn schemes_and_ports_are_origins_of_their_own_and_endless_hosts_are_none() {
    let recorder = Recorder::new();
    let long = format!("http://{}.test/", "a".repeat(300));
    for url in ["http://api.test/", "http://api.test:81/", "http://[::1]/", &long] {
        record(&recorder, url, &warm_call(1));
    }
    assert_eq!(origins(&recorder.snapshot()), ["[::1]:80", "api.test:80", "api.test:81"]);
}

#[test]
fn however_much_happens_the_lists_stay_bounded() {
    let recorder = Recorder::builder().calls(3).origins(4).build();
    for round in 0..2_000_u64 {
        let total = [0, 20, 60, 150, 300, 700, 5_000, 50_000, 500_000][round as usize % 9] + round;
        let timings = if round % 3 == 0 { failed_call(total) } else { warm_call(total) };
        record(&recorder, &format!("http://host-{}.test/{}", round % 5, "x".repeat(5_000)), &timings);
    }
    let snapshot = recorder.snapshot();
    assert_eq!(snapshot.origins.len(), 4);
    // Nine classes, the last calls, and the last failures.
    assert!(snapshot.origins.iter().all(|origin| origin.calls.len() <= 11 * 3));
    assert!(snapshot.origins.iter().flat_map(|origin| &origin.calls).all(|call| call.target.len() <= 512));
}

#[test]
fn limits_of_zero_are_one_and_limits_have_an_end() {
    let recorder = Recorder::builder().calls(0).origins(0).build().snapshot();
    assert_eq!((recorder.calls_per_list, recorder.max_origins), (1, 1));
    let recorder = Recorder::builder().calls(usize::MAX).origins(usize::MAX).build().snapshot();
    assert_eq!((recorder.calls_per_list, recorder.max_origins), (10_000, 10_000));
}

#[test]
fn threads_record_at_the_same_time_and_no_call_is_lost() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 500;
    let recorder = Recorder::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let recorder = &recorder;
            scope.spawn(move || {
                for call in 0..CALLS {
                    record(recorder, &format!("http://{}.test/", call % 3), &warm_call(thread));
                    if call % 100 == 0 {
                        assert!(
                            recorder
                                .snapshot()
                                .origins
                                .iter()
                                .all(|origin| origin.calls.len() as u64 <= origin.totals.calls)
                        );
                    }
                }
            });
        }
    });
    let snapshot = recorder.snapshot();
    assert_eq!(snapshot.totals().calls, THREADS * CALLS);
    assert_eq!(snapshot.totals().latency.count(), THREADS * CALLS);
    for origin in &snapshot.origins {
        let mut numbers: Vec<_> = origin.calls.iter().map(|call| call.number).collect();
        assert!(numbers.iter().all(|number| *number <= origin.totals.calls));
        numbers.dedup();
        assert_eq!(numbers.len(), origin.calls.len(), "no number twice");
    }
}

#[test]
fn queries_and_credentials_are_not_shown_unless_queries_are_asked_for() {
    let url = "http://user:hunter2@api.test/v1/items?token=s3cret";
    let shown = |recorder: Recorder| {
        record(&recorder, url, &warm_call(1));
        // A target that is a whole URL, as a program's own layer may make it.
        let whole = RequestInfo { target: url.parse().unwrap(), ..(*request(url)).clone() };
        recorder.ended(&EndedCall { number: 2, request: &Arc::new(whole), timings: &Arc::new(warm_call(1)) });
        let snapshot = recorder.snapshot();
        format!("{}{}{:?}", snapshot.to_html(), snapshot.to_json(), recorder)
    };
    let usual = shown(Recorder::new());
    assert!(usual.contains("/v1/items") && !usual.contains("s3cret") && !usual.contains("hunter2"));
    let with_queries = shown(Recorder::builder().show_queries(true).build());
    assert!(with_queries.contains("/v1/items?token=s3cret") && !with_queries.contains("hunter2"));
}

#[test]
fn all_requests_of_a_call_with_many_are_counted() {
    let again = |number: u64| {
        let cause = crate::trace::RepeatCause::Status(http::StatusCode::SERVICE_UNAVAILABLE);
        [(number, leased(1)), (number, SENT), (number + 1, Event::Repeated { cause })]
    };
    let end = [(20, leased(1)), (20, SENT), (21, Event::FirstByte), (22, Event::BodyEnd { bytes: 2 })];
    let events: Vec<_> = (0..20).flat_map(again).chain(end).collect();
    let recorder = Recorder::new();
    record(&recorder, "http://api.test/", &folded(&events));
    let snapshot = recorder.snapshot();
    let timings = &snapshot.origins[0].calls[0].timings;
    let joined: Vec<_> = timings.hops().iter().map(|hop| hop.joined).collect();
    assert_eq!(joined, [12, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(snapshot.totals().further_requests, 20);
    assert!(snapshot.to_html().contains(">21 requests<"));
    assert!(timings.to_string().contains(", retried (status 503) and 12 before, retried"), "{timings}");
    assert!(timings.waterfall().to_string().contains("and 12 before"));
}

/// Returns the JSON text of a recorder that was told of one call, and the object of that call.
fn json_of(timings: &Timings) -> (Value, Value) {
    let recorder = Recorder::new();
    record(&recorder, "http://api.test/v1/\"items\"", timings);
    let mut snapshot = recorder.snapshot();
    snapshot.add_table(StateTable::new("Queues \"\u{2028}", ["name"]).row(["</script>\u{0}"]));
    let json: Value = serde_json::from_str(&snapshot.to_json()).unwrap();
    let call = json["origins"][0]["calls"][0].clone();
    (json, call)
}

#[test]
fn json_has_totals_calls_reasons_and_tables() {
    let (json, call) = json_of(&cold_call());
    let origin = &json["origins"][0];
    assert_eq!((origin["scheme"].as_str(), origin["origin"].as_str()), (Some("http"), Some("api.test:80")));
    assert_eq!((&origin["totals"]["calls"], &origin["totals"]["spent_ns"]["wait"]), (&1.into(), &50_000_000.into()));
    let class = &origin["totals"]["classes"][3];
    let wait = &class["spent_ns"]["wait"];
    assert_eq!((&class["from_ns"], &class["calls"], wait), (&100_000_000.into(), &1.into(), &50_000_000.into()));
    assert_eq!(json["tables"][0]["rows"][0][0], "</script>\u{0}");
    assert_eq!((&call["recent"], &call["slow"], &call["failure"]), (&true.into(), &true.into(), &false.into()));
    assert_eq!(call["why"], cold_call().why().to_string());
    assert_eq!(call["reasons"].as_array().unwrap().len(), cold_call().why().reasons().len());
    let taken = json["taken_unix_ms"].as_u64().unwrap();
    let now = wall().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(taken <= now && call["started_unix_ms"].as_u64().unwrap() <= taken);
}

/// Returns the timings of a call that opens a connection after the last one was closed, asks two servers for the name, and sends
/// the first packet three times.
fn slow_dial() -> Timings {
    let address = crate::trace::timings::samples::address();
    let servers =
        AskedServers { answered: Some([192, 0, 2, 53].into()), silent: vec![[192, 0, 2, 54].into()], searched: 1 };
    let lookup = DnsLookup::answered("api.test".into(), Family::V4, [address.ip()].into(), ms(2_000), Source::Miss);
    let lookup = lookup.with_servers(Some(Arc::new(servers)));
    let close = HostClose::new(CloseCause::Peer, 7, true);
    folded(&[
        (0, queued(Limit::ConnectionsPerHost, Usage::new(2, 3))),
        (5, Event::DialStart { origin: origin(), host: HostAtDial::new(1, 4, Some(close)) }),
        (5, dns_start(Family::V4)),
        (15, Event::DnsEnd(lookup)),
        (15, Event::AttemptStart { address }),
        (90, Event::AttemptEnd { address, error: None }),
        (90, Event::SynResent { address, times: 2 }),
        (90, leased(0)),
        (90, SENT),
        (95, Event::FirstByte),
        (99, Event::BodyEnd { bytes: 2 }),
    ])
}

#[test]
fn json_has_what_the_page_shows_of_a_dial() {
    let (_, call) = json_of(&slow_dial());
    let timings = &call["timings"];
    let attempt = &timings["dialled"][0];
    assert_eq!((&attempt["resent_syns"], &attempt["elapsed_ns"]), (&2.into(), &75_000_000.into()));
    let servers = serde_json::json!({ "answered": "192.0.2.53", "silent": ["192.0.2.54"], "searched": 1 });
    let lookup = &timings["lookups"][0];
    assert_eq!((&lookup["elapsed_ns"], &lookup["servers"]), (&10_000_000.into(), &servers));
    assert_eq!(timings["queue_usage"], serde_json::json!({ "taken": 2, "limit": 3 }));
    let close = serde_json::json!({ "cause": CloseCause::Peer.as_str(), "requests": 7, "was_idle": true });
    let dial = serde_json::json!({ "open": 1, "opened_lately": 4, "last_close": close });
    assert_eq!(timings["dial"], dial);
}
