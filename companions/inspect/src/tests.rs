//! A recorder as a client and a program use it: told of calls by several threads, and read as a snapshot and as JSON.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use speeddial::trace::Timings;

use crate::samples::{call_of, cold_call, failed_call, request, warm_call};
use crate::{Recorder, Snapshot, StateTable};

fn record(recorder: &Recorder, url: &str, timings: &Timings) {
    recorder.origins.record(&request(url), &Arc::new(timings.clone()));
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
    let totals = [1, 20, 60, 150, 300, 700, 5_000, 50_000, 500_000];
    let timings: Vec<_> = totals.iter().flat_map(|total| [failed_call(*total), warm_call(*total)]).collect();
    for round in 0..2_000 {
        let url = format!("http://host-{}.test/{}", round % 5, "x".repeat(5_000));
        record(&recorder, &url, &timings[round % timings.len()]);
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
    let timings = [0, 1, 2, 3].map(warm_call);
    std::thread::scope(|scope| {
        for thread in &timings {
            let recorder = &recorder;
            scope.spawn(move || {
                for call in 0..CALLS {
                    record(recorder, &format!("http://{}.test/", call % 3), thread);
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
        let mut whole = (*request(url)).clone();
        whole.target = url.parse().unwrap();
        recorder.origins.record(&Arc::new(whole), &Arc::new(warm_call(1)));
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
    let recorder = Recorder::new();
    record(&recorder, "http://api.test/", &call_of(21));
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
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(taken <= now && call["started_unix_ms"].as_u64().unwrap() <= taken);
}

#[test]
fn json_has_what_the_page_shows_of_a_dial() {
    let (_, call) = json_of(&cold_call());
    let timings = &call["timings"];
    assert_eq!(timings["dialled"][0]["elapsed_ns"], 20_000_000);
    assert_eq!((&timings["lookups"][0]["elapsed_ns"], &timings["dial"]["open"]), (&10_000_000.into(), &0.into()));
}
