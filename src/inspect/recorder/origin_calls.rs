//! The calls to one origin: their totals, and those that are kept. A core: it is told each call and knows no clock.

use std::time::Duration;

use super::latency_class::LatencyClass;
use super::totals::{CallTotals, is_failure};
use crate::trace::RequestInfo;
use crate::trace::Timings;
use crate::trace::TlsFacts;
use crate::trace::bounded_request;
use crate::trace::shared_timings;
use std::sync::Arc;

/// The totals and the kept calls of an origin.
#[derive(Debug, Default)]
pub(super) struct OriginCalls {
    pub(super) totals: CallTotals,
    pub(super) recent: Ring,
    pub(super) failures: Ring,
    pub(super) slowest: [Slowest; LatencyClass::COUNT],
}

/// A call in a list.
#[derive(Debug, Clone)]
pub(super) struct ListedCall {
    /// The number of the call among those to its origin, from 1. The same call in two lists has the same number.
    pub(super) number: u64,
    pub(super) call: KeptCall,
}

impl OriginCalls {
    /// Counts a call, and keeps it as long as it is among the last or the slowest `most`, or the last `most` that failed. Returns
    /// the calls that made room, so that they are freed without a lock.
    pub(super) fn record(&mut self, call: KeptCall, most: usize) -> [Option<ListedCall>; 3] {
        let (total, class) = self.totals.count(&call.timings);
        let is_failure = is_failure(&call.timings);
        let call = ListedCall { number: self.totals.calls, call };
        let failure = if is_failure { self.failures.push(call.clone(), most) } else { None };
        let slowest = &mut self.slowest[class.index()];
        let slow = if slowest.admits(total, most) { slowest.push(call.clone(), most) } else { None };
        [failure, slow, self.recent.push(call, most)]
    }
}

/// The last calls, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Ring {
    calls: Vec<ListedCall>,
    /// The place of the oldest call once the limit is reached.
    oldest: usize,
}

impl Ring {
    /// Adds a call, and returns the one that made room.
    fn push(&mut self, call: ListedCall, most: usize) -> Option<ListedCall> {
        if self.calls.len() < most {
            push_within(&mut self.calls, call, most);
            return None;
        }
        let oldest = std::mem::replace(&mut self.calls[self.oldest], call);
        self.oldest = if self.oldest + 1 == most { 0 } else { self.oldest + 1 };
        Some(oldest)
    }

    /// Returns the calls in no order.
    pub(super) fn calls(&self) -> &[ListedCall] {
        &self.calls
    }
}

/// The slowest calls of a class, up to a limit.
#[derive(Debug, Default)]
pub(super) struct Slowest {
    calls: Vec<ListedCall>,
    /// The duration of the fastest one of them.
    least: Duration,
}

impl Slowest {
    /// Returns true if a call of this duration is among the slowest.
    fn admits(&self, total: Duration, most: usize) -> bool {
        self.calls.len() < most || total > self.least
    }

    /// Adds a call, and returns the one that made room.
    fn push(&mut self, call: ListedCall, most: usize) -> Option<ListedCall> {
        let mut evicted = None;
        if self.calls.len() < most {
            push_within(&mut self.calls, call, most);
        } else if let Some(fastest) = self.calls.iter_mut().min_by_key(|listed| listed.call.timings.total()) {
            evicted = Some(std::mem::replace(fastest, call));
        }
        self.least = self.calls.iter().map(|listed| listed.call.timings.total()).min().unwrap_or_default();
        evicted
    }

    /// Returns the calls in no order.
    pub(super) fn calls(&self) -> &[ListedCall] {
        &self.calls
    }
}

/// Adds a call to less than `most` ones. There is never room for more than `most`.
fn push_within(calls: &mut Vec<ListedCall>, call: ListedCall, most: usize) {
    if calls.len() == calls.capacity() {
        let room = (2 * calls.len()).clamp(1, most);
        calls.reserve_exact(room - calls.len());
    }
    calls.push(call);
}

/// The most bytes of a target that are kept.
const MAX_TARGET: usize = 512;

/// A call that is kept. Its clones share it.
#[derive(Debug, Clone)]
pub(super) struct KeptCall {
    pub(super) request: Arc<RequestInfo>,
    pub(super) timings: Arc<Timings>,
}

impl KeptCall {
    /// Returns what is kept of a call. `tls` replaces the result of its TLS handshake.
    pub(super) fn new(
        request: &Arc<RequestInfo>,
        timings: &Arc<Timings>,
        tls: impl FnOnce(&Arc<TlsFacts>) -> Arc<TlsFacts>,
    ) -> Self {
        Self { request: bounded_request(request, MAX_TARGET), timings: shared_timings(timings, tls) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Extensions;

    use super::*;
    use crate::trace::Event;
    use crate::trace::LastHandshake;
    use crate::trace::Phase;
    use crate::trace::Timings;
    use crate::trace::timings::samples::{SENT, folded, leased, ms, origin};
    use crate::trace::{RequestInfo, TlsFacts};

    fn request() -> Arc<RequestInfo> {
        let origin = origin();
        let target = "/v1/items".parse().unwrap();
        Arc::new(RequestInfo { method: http::Method::GET, origin, target, extensions: Extensions::new() })
    }

    fn call(total: u64) -> Timings {
        folded(&[(0, leased(1)), (0, SENT), (total, Event::FirstByte), (total, Event::BodyEnd { bytes: 2 })])
    }

    fn failed(total: u64) -> Timings {
        folded(&[
            (0, leased(1)),
            (0, SENT),
            (total, Event::CallFailed { phase: Phase::Wait, why: "timeout", bytes: 0 }),
        ])
    }

    fn recorded(calls: impl IntoIterator<Item = Timings>, most: usize) -> OriginCalls {
        let mut origin = OriginCalls::default();
        let mut handshake = LastHandshake::default();
        for timings in calls.into_iter().map(Arc::new) {
            origin.record(KeptCall::new(&request(), &timings, |facts| handshake.without_chain(facts)), most);
        }
        origin
    }

    fn numbers(calls: &[ListedCall]) -> Vec<u64> {
        let mut numbers: Vec<_> = calls.iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn totals(calls: &[ListedCall]) -> Vec<u128> {
        let mut totals: Vec<_> = calls.iter().map(|listed| listed.call.timings.total().as_millis()).collect();
        totals.sort_unstable();
        totals
    }

    #[test]
    fn the_last_calls_are_kept() {
        assert_eq!(numbers(recorded((0..2).map(call), 3).recent.calls()), [1, 2]);
        let origin = recorded((0..10).map(call), 3);
        assert_eq!(numbers(origin.recent.calls()), [8, 9, 10]);
        assert_eq!((origin.totals.calls, origin.recent.calls.capacity()), (10, 3));
        assert!(origin.failures.calls().is_empty());
    }

    #[test]
    fn the_slowest_calls_of_each_class_are_kept() {
        let origin = recorded([5, 70, 1, 90, 8, 50, 3, 99, 2, 400].map(call), 2);
        let of = |total| totals(origin.slowest[LatencyClass::of(ms(total)).index()].calls());
        assert_eq!([of(0), of(50), of(200), of(100)], [vec![5, 8], vec![90, 99], vec![400], vec![]]);
        // Each later one is slower than all before.
        assert_eq!(totals(recorded((11..40).map(call), 3).slowest[1].calls()), [37, 38, 39]);
    }

    #[test]
    fn of_calls_that_took_the_same_time_the_first_ones_stay() {
        let origin = recorded([20, 20, 20, 20].map(call), 2);
        assert_eq!(numbers(origin.slowest[1].calls()), [1, 2]);
    }

    #[test]
    fn the_last_failures_are_kept_however_many_calls_succeed_after_them() {
        let calls = (0..5).map(failed).chain((0..100).map(call));
        let origin = recorded(calls, 3);
        assert_eq!(numbers(origin.failures.calls()), [3, 4, 5]);
        assert_eq!(numbers(origin.recent.calls()), [103, 104, 105]);
        assert_eq!(origin.totals.failed, 5);
    }

    #[test]
    fn the_lists_share_a_call_and_return_those_that_made_room() {
        let mut origin = OriginCalls::default();
        let mut record = |timings: Timings| origin.record(KeptCall::new(&request(), &Arc::new(timings), Arc::clone), 1);
        let numbers = |evicted: [Option<ListedCall>; 3]| evicted.map(|call| call.map(|call| call.number));
        assert_eq!(numbers(record(failed(5))), [None, None, None]);
        assert_eq!(numbers(record(call(7))), [None, Some(1), Some(1)]);
        assert_eq!(numbers(record(failed(6))), [Some(1), None, Some(2)]);
        assert_eq!(Arc::strong_count(&origin.recent.calls()[0].call.timings), 2, "the last call is the last failure");
    }

    #[test]
    fn certificates_are_not_kept_and_calls_on_one_connection_share_the_rest() {
        let facts = || {
            Arc::new(TlsFacts {
                version: "TLSv1_3",
                cipher_suite: "TLS13_AES_128_GCM_SHA256",
                alpn: Some("h2".into()),
                resumed: false,
                verified: true,
                peer_certificates: vec![bytes::Bytes::from_static(&[7; 2_000])],
            })
        };
        let on = |facts: &Arc<TlsFacts>| {
            let mut timings = call(1);
            timings.request.tls = Some(facts.clone());
            timings
        };
        let (first, second) = (facts(), facts());
        let origin = recorded([on(&first), on(&first), on(&second)], 3);
        let facts_of = |listed: &ListedCall| listed.call.timings.request.tls.clone().unwrap();
        let kept: Vec<_> = origin.recent.calls().iter().map(facts_of).collect();
        assert!(kept.iter().all(|facts| facts.peer_certificates.is_empty() && facts.alpn.as_deref() == Some("h2")));
        assert!(Arc::ptr_eq(&kept[0], &kept[1]) && !Arc::ptr_eq(&kept[0], &kept[2]));
        assert_eq!(Arc::strong_count(&first), 1, "the chain can be freed");
    }
}
