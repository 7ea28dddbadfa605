//! The reasons for folded calls.

use std::time::Duration;

use super::super::timings::Timings;
use super::Cause;
use crate::trace::events::event::{Event, Phase, Usage};
use crate::trace::events::{DnsLookup, Family, Limit, Source};
use crate::trace::timings::samples::{
    SENT, address, cold_call, dns_start, folded, hedged_call, late_call, leased, ms, queued, retried_call,
};

fn causes(timings: &Timings) -> Vec<Cause> {
    timings.why().reasons().iter().map(|reason| reason.cause).collect()
}

#[test]
fn a_call_without_time_has_no_reason() {
    let why = folded(&[]).why();
    assert_eq!((why.reasons(), why.main(), why.to_string().as_str()), (&[][..], None, "No time has passed."));
}

#[test]
fn the_reasons_of_a_cold_a_retried_and_a_hedged_call() {
    assert_eq!(causes(&cold_call()), [Cause::NoAnswer, Cause::ConnectSlow, Cause::BodySlow, Cause::DnsQueried]);
    let expected = [Cause::Backoff, Cause::Retried, Cause::HostConnectionsInUse];
    assert_eq!(causes(&retried_call()), expected);
    let expected = [Cause::HedgedLate, Cause::NoAnswer, Cause::AwaitedDial, Cause::BodySlow];
    assert_eq!(causes(&hedged_call()), expected);
}

#[test]
fn what_the_runtime_was_late_by_is_none_of_the_servers_time_nor_of_the_pause() {
    let timings = late_call();
    let why = timings.why();
    assert_eq!(
        causes(&timings),
        [Cause::RuntimeBusy, Cause::RuntimeBusy, Cause::Backoff, Cause::NoAnswer, Cause::RuntimeBusy]
    );
    let parts: Vec<_> = why.reasons().iter().map(|reason| (reason.phase, reason.time)).collect();
    let [unread, timer, pause, server, head] = parts[..] else { panic!("{why:?}") };
    assert_eq!([unread, timer, head], [(Phase::Wait, ms(40)), (Phase::Backoff, ms(30)), (Phase::Receive, ms(10))]);
    assert_eq!([pause, server], [(Phase::Backoff, ms(20)), (Phase::Wait, ms(20))]);
    assert_eq!(timings.runtime_delay(), ms(80));
    assert_eq!(
        why.reasons()[1].to_string(),
        "30.0 ms of 130 ms passed after a timer of the call was due: the program's runtime was busy; look for code that \
         blocks the runtime's threads, and at the limit of processor time"
    );
}

#[test]
fn a_processor_quota_explains_a_busy_runtime() {
    let mut timings = folded(&[(0, leased(3)), (0, SENT), (100, Event::FirstByte)]);
    let end = timings.start + ms(100);
    timings.fold(end, &Event::ReadLate { phase: Phase::Wait, by: ms(80) });
    timings.fold(end, &Event::Throttled { stopped: ms(150), within: ms(200) });
    assert_eq!(causes(&timings), [Cause::RuntimeBusy, Cause::NoAnswer, Cause::CpuQuota]);
    let why = timings.why();
    assert_eq!(why.reasons()[2].time, ms(80));
    assert!(
        why.to_string().ends_with(
            " A processor quota stopped the program for 150 ms within 200 ms, all processors together; raise the processor quota, or \
             have fewer threads."
        ),
        "{why}"
    );
}

#[test]
fn a_call_below_10_ms_has_reasons_and_no_advice() {
    let call = |queued_for, total| {
        folded(&[
            (0, queued(Limit::ConnectionsPerHost, Usage::new(2, 2))),
            (queued_for, leased(1)),
            (queued_for, SENT),
            (total, Event::FirstByte),
            (total, Event::BodyEnd { bytes: 0 }),
        ])
    };
    let short = call(6, 9).why();
    assert_eq!(
        short.to_string(),
        "6.00 ms of 9.00 ms were spent in the queue: api.test:80 had 2 of 2 connections in use. 3.00 ms of 9.00 ms were \
         spent waiting for an answer that had not come."
    );
    assert!(short.reasons().iter().all(|reason| reason.advice.is_none()));
    assert!(call(6, 10).why().to_string().contains("in use; raise max_connections_per_host"));
}

#[test]
fn dns_is_blamed_for_the_time_between_a_refusal_and_a_late_family() {
    let refusal = || Some(std::sync::Arc::new(std::io::ErrorKind::ConnectionRefused.into()));
    let [v4, v6] = [address(), ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 80).into()];
    let answered = |family, ip: std::net::SocketAddr| {
        Event::DnsEnd(DnsLookup::answered("api.test".into(), family, [ip.ip()].into(), ms(60_000), Source::Miss))
    };
    let refused = || {
        vec![
            (0, dns_start(Family::V6)),
            (0, dns_start(Family::V4)),
            (10, answered(Family::V4, v4)),
            (60, Event::AttemptStart { address: v4 }),
            (61, Event::AttemptEnd { address: v4, error: refusal() }),
        ]
    };
    let failed = (300, Event::CallFailed { phase: Phase::Connect, why: "connect", bytes: 0 });
    let silent = folded(&[refused(), vec![failed]].concat());
    assert_eq!(causes(&silent), [Cause::DnsFamilyLate], "{}", silent.why());
    let why = silent.why().to_string();
    assert!(why.starts_with("299 ms of 300 ms were spent in DNS: the answer for IPv6 (AAAA) addresses"), "{why}");
    let mut lease = leased(0);
    if let Event::Leased { remote, .. } = &mut lease {
        *remote = Some(v6);
    }
    let connected = [
        (200, answered(Family::V6, v6)),
        (200, Event::AttemptStart { address: v6 }),
        (240, Event::AttemptEnd { address: v6, error: None }),
        (240, lease),
        (240, SENT),
        (241, Event::FirstByte),
    ];
    let late = folded(&[refused(), connected.to_vec()].concat());
    let parts: Vec<_> = late.why().reasons().iter().map(|reason| (reason.cause, reason.time)).collect();
    assert_eq!(parts, [(Cause::DnsQueried, ms(199)), (Cause::ConnectSlow, ms(41))], "{}", late.why());
}

#[test]
fn a_wait_for_no_limit_is_one_for_a_dial() {
    let usage = Usage::new(0, 0);
    let timings = folded(&[(0, queued(Limit::Opening, usage)), (90, leased(1)), (90, SENT), (100, Event::FirstByte)]);
    assert_eq!(causes(&timings), [Cause::AwaitedDial, Cause::NoAnswer]);
    let why = timings.why().to_string();
    assert!(
        why.starts_with("90.0 ms of 100 ms were spent in the queue: no connection to api.test:80 was being "),
        "{why}"
    );
    let waits = |opening| {
        let queued = queued(Limit::Opening, Usage::new(opening, 9));
        folded(&[(0, queued), (90, leased(1)), (90, SENT), (100, Event::FirstByte)]).why().to_string()
    };
    assert!(
        waits(1).contains("queue: a connection to api.test:80 was being opened, and was not ready"),
        "{}",
        waits(1)
    );
    assert!(waits(2).contains("queue: 2 connections to api.test:80 were being opened, and none"), "{}", waits(2));
}

#[test]
fn reasons_say_their_share_and_phase_and_short_ones_are_left_out() {
    let timings = retried_call();
    for reason in timings.why().reasons() {
        let share = reason.time.as_secs_f64() / timings.total().as_secs_f64();
        assert!((reason.share - share).abs() < 1e-9 && share >= 0.05, "{reason:?}");
        assert!(timings.spent(reason.phase) > Duration::ZERO, "{reason:?}");
    }
    let warm = [(0, leased(1)), (2, SENT), (98, Event::FirstByte), (100, Event::BodyEnd { bytes: 2 })];
    assert_eq!(causes(&folded(&warm)), [Cause::NoAnswer]);
}

#[test]
fn a_server_that_says_more_than_was_measured_is_believed_up_to_that() {
    let timing = |value: &'static str| {
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("server-timing"),
            http::HeaderValue::from_static(value),
        )]);
        let (status, version) = (http::StatusCode::OK, http::Version::HTTP_11);
        let mut timings = folded(&[
            (0, leased(1)),
            (0, SENT),
            (100, Event::FirstByte),
            (100, Event::Headers { status, version }),
            (100, Event::BodyEnd { bytes: 2 }),
        ]);
        timings.request.server = super::super::metrics_of(&headers);
        timings
    };
    let why = timing("db;dur=9999999").why();
    let reason = why.reasons().iter().find(|reason| reason.cause == Cause::ServerTiming).expect("it is named");
    assert_eq!((reason.time, reason.share), (ms(100), 1.0));
    for value in ["total;dur=90", "cache;desc=hit", "db;dur=0"] {
        let names_part = causes(&timing(value)).contains(&Cause::ServerTiming);
        assert_eq!(names_part, value.starts_with("total"), "{value}");
    }
}

#[test]
fn each_cause_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
    assert_eq!(names.len(), Cause::ALL.len());
    assert_eq!(format!("{:>12}", Cause::LostSyn), "    lost-syn");
}
