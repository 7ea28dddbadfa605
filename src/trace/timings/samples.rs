//! Events and timings for tests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::Timings;
use crate::origin::Origin;
use crate::trace::events::event::{Event, Phase, RequestInfo, Usage};
use crate::trace::events::{DnsLookup, Family, HedgeOutcome, Limit, RepeatCause, Source};

pub(crate) const SENT: Event = Event::RequestSent { body: 0 };

/// The number of the connection in these events.
pub(crate) const CONNECTION: u64 = 1;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

pub(crate) fn dns_start(family: Family) -> Event {
    Event::DnsStart { name: "api.test".into(), family }
}

/// Returns the lease of a connection that has carried `requests` requests.
pub(crate) fn leased(requests: u64) -> Event {
    Event::Leased {
        connection: CONNECTION,
        remote: Some(address()),
        requests,
        idle: Duration::ZERO,
        tls: None,
        waited: Duration::ZERO,
        freed: false,
        forwarded: false,
    }
}

/// Returns the entry into the queue of `api.test:80`, because of a limit of which this much is taken.
pub(crate) fn queued(limit: Limit, usage: Usage) -> Event {
    Event::Queued { limit, position: 0, origin: origin(), usage: Some(usage) }
}

pub(crate) fn origin() -> Origin {
    Origin::from_url(&url::Url::parse("http://api.test/").expect("it is a URL")).expect("it has an origin")
}

/// Returns a GET of `/`.
pub(crate) fn request() -> RequestInfo {
    let (method, extensions) = (http::Method::GET, http::Extensions::new());
    RequestInfo { method, origin: origin(), target: http::Uri::from_static("/"), extensions }
}

/// Returns the timings of a call with these events, each at a number of milliseconds after the call's start.
pub(crate) fn folded(events: &[(u64, Event)]) -> Timings {
    let start = crate::clock::now();
    let mut timings = Timings::new(start);
    for (at, event) in events {
        timings.fold(start + ms(*at), event);
    }
    timings
}

/// Returns the timings of a call that a server answers with 503 twice, each after 5 ms, and whose third attempt waits for
/// 20 + 50 ms of backoff, and for 10 ms in the queue.
pub(crate) fn retried_call() -> Timings {
    let busy = || Event::Repeated { cause: RepeatCause::Status(StatusCode::SERVICE_UNAVAILABLE) };
    folded(&[
        (0, leased(3)),
        (0, SENT),
        (5, busy()),
        (5, Event::BackoffStart { wait: ms(20) }),
        (25, Event::BackoffEnd),
        (25, leased(4)),
        (25, SENT),
        (30, busy()),
        (30, Event::BackoffStart { wait: ms(50) }),
        (80, Event::BackoffEnd),
        (80, queued(Limit::ConnectionsPerHost, Usage::new(2, 2))),
        (90, leased(6)),
        (90, SENT),
        (95, Event::FirstByte),
        (100, Event::BodyEnd { bytes: 2 }),
    ])
}

/// Returns the timings of a call of 130 ms whose runtime was late: by 30 ms with the end of a pause of 20 ms, by 40 ms with a response that
/// came after 20 ms, and by another 10 ms with its head.
pub(crate) fn late_call() -> Timings {
    folded(&[
        (0, leased(3)),
        (0, SENT),
        (5, Event::Repeated { cause: RepeatCause::Closed }),
        (5, Event::BackoffStart { wait: ms(20) }),
        (55, Event::TimerLate { phase: Phase::Backoff, by: ms(30) }),
        (55, Event::BackoffEnd),
        (55, leased(3)),
        (55, SENT),
        (115, Event::FirstByte),
        (115, Event::ReadLate { phase: Phase::Wait, by: ms(40) }),
        (125, Event::ReadLate { phase: Phase::Receive, by: ms(10) }),
        (130, Event::BodyEnd { bytes: 2 }),
    ])
}

/// Returns the timings of a call that looks up a name, opens a connection and gets a response of two bytes in 100 ms.
pub(crate) fn cold_call() -> Timings {
    let ips: Arc<[IpAddr]> = [address().ip()].into();
    let lookup = DnsLookup::answered("api.test".into(), Family::V4, ips, ms(2_000), Source::Miss);
    folded(&[
        (0, dns_start(Family::V4)),
        (10, Event::DnsEnd(lookup)),
        (10, Event::AttemptStart { address: address() }),
        (30, Event::AttemptEnd { address: address(), error: None }),
        (30, leased(0)),
        (30, SENT),
        (80, Event::FirstByte),
        (100, Event::BodyEnd { bytes: 2 }),
    ])
}

/// Returns the timings of a call whose answer is late after 30 ms, and whose second attempt waits in the queue for 10 ms and
/// is answered 20 ms later.
pub(crate) fn hedged_call() -> Timings {
    let mut first = folded(&[(0, leased(3))]);
    let start = first.start;
    let mut second = first.begin_hedge(start + ms(30), Duration::ZERO);
    second.fold(start + ms(40), &leased(0));
    second.fold(start + ms(40), &SENT);
    second.fold(start + ms(60), &Event::FirstByte);
    first.fold(start, &SENT);
    second.settle_hedge(&first);
    second.end_hedge(HedgeOutcome::Won);
    second.fold(start + ms(65), &Event::BodyEnd { bytes: 2 });
    second
}
