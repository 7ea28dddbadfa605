//! Wrong servers and wrong clients, which the suite must find: a test of the judge.

use std::time::Duration;

use speeddial::ErrorKind;
use speeddial::http::Method;
use speeddial::trace::Phase;
use support::fault_script::{Direction, Fault, Opening, Script, Strike, Tag};
use support::fault_transport::Struck;

use crate::judge::{Connection, End, Evidence, Failure, GRACE};
use crate::pattern::{self, Part};
use crate::plan::{Action, Caller, Cancel, Lane, Plan, Reading, Upload};
use crate::server::Lie;
use crate::suite::{self, Options, Report};
use crate::{alone, variable};

fn run(lies: bool) -> Report {
    let seed = variable("FAULT_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("FAULT_SEED={seed}");
    alone(suite::run(Options { seed, requests: 500, time: Duration::from_secs(120), faults: false, lies }))
}

#[test]
fn an_honest_server_without_faults_has_no_violations() {
    let report = run(false);
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert_eq!(report.calls, 500);
    for word in ["exchange ", "body ", "connect ", "tls "] {
        assert!(!report.table.contains(word), "{}", report.table);
    }
}

#[test]
fn a_server_that_lies_is_found() {
    let report = run(true);
    for lie in Lie::ALL {
        let words = match lie {
            Lie::ForeignHead => "the answer of call",
            Lie::ForeignBody => "a foreign body",
            Lie::ShortBody => "a body of",
            Lie::Twice => "processed 2 times",
            Lie::Hangup => "an error without a fault",
        };
        let of_lie = report.violations.iter().filter(|violation| violation.call.and_then(Lie::of) == Some(lie));
        let found = of_lie.filter(|violation| violation.text.contains(words)).count();
        assert!(found > 3, "{lie:?}: {:#?}", report.violations);
    }
}

/// Returns the evidence of a GET on an HTTP/2 connection whose fault has struck, and which was answered nevertheless.
fn answered() -> Evidence {
    let plan = Plan {
        id: 7,
        caller: Caller::Retrying,
        lane: Lane::Http2,
        method: Method::GET,
        keyed: false,
        action: Action::Whole,
        upload: Upload::None,
        length: 100,
        reading: Reading::Whole,
        cancel: Cancel::Never,
        deadline: Duration::from_secs(2),
    };
    let strike = Strike { direction: Direction::Down, at: 10, fault: Fault::Reset };
    let connection = Connection {
        tag: Tag { client: 1, connection: 3 },
        lane: Lane::Http2,
        script: Script { strike: Some(strike), ..Script::CLEAN },
        struck: Some(Struck::Fault),
    };
    let body = pattern::body(Part::Response, 7, 100).to_vec();
    let end = End::Answered { status: 200, id: Some(7), url: "http://h2.test:1/whole/7/100/0".to_owned(), body };
    let [elapsed, lateness] = [Duration::from_millis(5), Duration::ZERO];
    Evidence { plan, end, elapsed, lateness, lateness_before: lateness, connections: vec![connection] }
}

/// Like [`answered`], with an error.
fn failed(kind: ErrorKind) -> Evidence {
    let failure = Failure {
        kind,
        is_timeout: matches!(kind, ErrorKind::Timeout(_)),
        is_connect: matches!(kind, ErrorKind::Connect | ErrorKind::Tls | ErrorKind::Timeout(Phase::Connect)),
        url: Some("http://h2.test:1/whole/7/100/0".to_owned()),
        has_head: matches!(kind, ErrorKind::Body | ErrorKind::Timeout(Phase::Receive)),
        queued: Duration::ZERO,
        text: "text".to_owned(),
    };
    let elapsed = if failure.is_timeout { Duration::from_millis(2_001) } else { Duration::from_millis(5) };
    Evidence { end: End::Failed(failure), elapsed, ..answered() }
}

fn failure(evidence: &mut Evidence) -> &mut Failure {
    match &mut evidence.end {
        End::Failed(failure) => failure,
        _ => unreachable!("a failure"),
    }
}

fn wrong(evidence: &Evidence) -> String {
    evidence.judge().expect_err("a violation")
}

#[test]
fn an_answer_must_be_the_calls_own_and_whole() {
    assert_eq!(answered().judge(), Ok("answered"));
    let with = |change: fn(&mut u16, &mut Option<u64>, &mut String, &mut Vec<u8>)| {
        let mut evidence = answered();
        if let End::Answered { status, id, url, body } = &mut evidence.end {
            change(status, id, url, body);
        }
        wrong(&evidence)
    };
    assert_eq!(with(|_, id, _, _| *id = Some(8)), "the answer of call Some(8)");
    assert_eq!(with(|_, id, _, _| *id = None), "the answer of call None");
    assert!(with(|_, _, url, _| *url = url.replace("/7/", "/8/")).starts_with("an answer of"));
    assert_eq!(with(|status, _, _, _| *status = 503), "status 503", "the call was not to get that");
    assert_eq!(with(|_, _, _, body| body.truncate(99)), "a body of 99 bytes, not 100", "cut off by the fault");
    assert!(with(|_, _, _, body| body[30] = b'x').starts_with("a foreign body"));
}

#[test]
fn a_call_must_not_outlast_its_deadline() {
    let mut evidence = answered();
    evidence.elapsed = evidence.plan.deadline + GRACE;
    assert_eq!(evidence.judge(), Ok("answered"));
    evidence.elapsed += Duration::from_millis(1);
    assert_eq!(wrong(&evidence), "2.101s with a deadline of 2s, and timers late by 0ns");
    evidence.lateness = Duration::from_micros(500);
    assert_eq!(evidence.judge(), Ok("answered"));
    (evidence.elapsed, evidence.lateness_before) = (Duration::from_secs(21), Duration::from_millis(101));
    assert_eq!(evidence.judge(), Ok("answered"), "on a machine that lets tasks wait");
    evidence.elapsed = Duration::from_secs(23);
    assert!(evidence.judge().is_err());
    evidence.elapsed = Duration::from_secs(2);
    evidence.end = End::Hung;
    assert_eq!(wrong(&evidence), "the call hung");
}

#[test]
fn an_error_must_have_the_right_kind() {
    for kind in [ErrorKind::Exchange, ErrorKind::Body, ErrorKind::Connect, ErrorKind::Timeout(Phase::Wait)] {
        assert!(failed(kind).judge().is_ok(), "{kind:?}");
    }
    // Nothing that a proxy does makes an error of these.
    for kind in [ErrorKind::Request, ErrorKind::Resolve, ErrorKind::Pool, ErrorKind::Redirect, ErrorKind::Decode] {
        let mut evidence = failed(kind);
        failure(&mut evidence).is_connect = kind == ErrorKind::Resolve;
        assert!(evidence.judge().is_err(), "{kind:?}");
    }
    assert_eq!(wrong(&failed(ErrorKind::Tls)), "an error without a fault: text", "there was no TLS");
    let with = |kind, change: fn(&mut Failure)| {
        let mut evidence = failed(kind);
        change(failure(&mut evidence));
        wrong(&evidence)
    };
    let foreign = with(ErrorKind::Exchange, |failure| failure.url = Some("http://h2.test:1/whole/8/100/0".to_owned()));
    assert_eq!(foreign, "the error of another call: text");
    assert_eq!(with(ErrorKind::Exchange, |failure| failure.has_head = true), "of the wrong phase: text");
    assert_eq!(with(ErrorKind::Body, |failure| failure.has_head = false), "of the wrong phase: text");
    assert_eq!(with(ErrorKind::Exchange, |failure| failure.is_connect = true), "`is_connect` is true: text");
    let of_limit = with(ErrorKind::Timeout(Phase::Wait), |failure| failure.is_timeout = false);
    assert_eq!(of_limit, "a time limit without `is_timeout`: text");
}

#[test]
fn an_error_must_have_a_fault() {
    let clean = |mut evidence: Evidence| {
        evidence.connections[0].struck = None;
        evidence
    };
    for kind in [ErrorKind::Exchange, ErrorKind::Body, ErrorKind::Connect] {
        assert_eq!(wrong(&clean(failed(kind))), "an error without a fault: text", "{kind:?}");
    }
    let mut paused = failed(ErrorKind::Exchange);
    let pause = Fault::Pause(Duration::from_millis(900));
    paused.connections[0].script.strike = Some(Strike { direction: Direction::Down, at: 10, fault: pause });
    assert_eq!(wrong(&paused), "an error without a fault: text", "a pause breaks nothing");
    let timeout = || clean(failed(ErrorKind::Timeout(Phase::Wait)));
    assert_eq!(wrong(&timeout()), "a timeout without a fault: text");
    let mut early = timeout();
    early.elapsed = Duration::from_millis(1_999);
    assert!(wrong(&early).starts_with("a time limit before its time"));
    let mut busy = timeout();
    busy.lateness_before = Duration::from_millis(41);
    assert_eq!(busy.judge(), Ok("timeout"));
    let mut never = timeout();
    never.plan.action = Action::Never;
    assert_eq!(never.judge(), Ok("timeout"));
    let mut slow = timeout();
    slow.connections[0].script.opening = Opening::SlowAccept(Duration::from_secs(1));
    assert_eq!(slow.judge(), Ok("timeout"));
    let mut queued = clean(failed(ErrorKind::Timeout(Phase::Queue)));
    failure(&mut queued).queued = Duration::from_secs(1);
    assert_eq!(queued.judge(), Ok("timeout"), "behind the calls on other connections");
}

#[test]
fn a_post_must_not_be_processed_twice() {
    let tag = |connection| Tag { client: 1, connection };
    let mut answered = answered();
    answered.plan.method = Method::POST;
    assert_eq!(answered.judge_last_post(&[tag(1)]), Ok(()));
    assert_eq!(answered.judge_last_post(&[]).unwrap_err(), "answered, and not processed");
    assert!(answered.judge_last_post(&[tag(1), tag(2)]).unwrap_err().starts_with("processed 2 times, on [Tag"));
    assert!(answered.judge_first_post(&[tag(1), tag(1)]).unwrap_err().starts_with("redirected 2 times"));
    answered.plan.keyed = true;
    assert_eq!(answered.judge_last_post(&[tag(1), tag(2)]), Ok(()));
    let mut failed = failed(ErrorKind::Exchange);
    failed.plan.method = Method::POST;
    assert_eq!(failed.judge_last_post(&[tag(1)]), Ok(()), "its answer was lost");
    failure(&mut failed).is_connect = true;
    assert_eq!(failed.judge_last_post(&[]), Ok(()));
    assert!(failed.judge_last_post(&[tag(1)]).unwrap_err().ends_with("the client says that it was not sent"));
}

#[test]
fn an_orderly_end_fails_no_call() {
    let retired = |method, kind| {
        let mut evidence = failed(kind);
        evidence.connections[0].struck = Some(Struck::Retired);
        evidence.plan.method = method;
        evidence.judge().is_ok()
    };
    assert!(!retired(Method::GET, ErrorKind::Exchange), "a GET is sent again");
    assert!(
        !retired(Method::POST, ErrorKind::Exchange),
        "the server processes or refuses what it gets, and the rest is sent again"
    );
    assert!(!retired(Method::POST, ErrorKind::Body), "a server that goes away ends its responses");
}
