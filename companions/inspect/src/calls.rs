//! The calls to one origin: their totals, by latency class, and those that are kept. A core: it is told each call and knows no clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use speeddial::http::{Method, Uri};
use speeddial::trace::{Latency, Phase, RequestInfo, Timings};

/// The totals and the kept calls of an origin.
#[derive(Debug, Default)]
pub(crate) struct OriginCalls {
    pub(crate) totals: CallTotals,
    pub(crate) recent: Ring,
    pub(crate) failures: Ring,
    pub(crate) slowest: [Slowest; LatencyClass::COUNT],
}

/// A call in a list.
#[derive(Debug, Clone)]
pub(crate) struct ListedCall {
    /// The number of the call among those to its origin, from 1. The same call in two lists has the same number.
    pub(crate) number: u64,
    pub(crate) call: KeptCall,
}

impl OriginCalls {
    /// Counts a call, and keeps it as long as it is among the last or the slowest `most`, or the last `most` that failed. Returns
    /// the calls that made room, so that they are freed without a lock.
    pub(crate) fn record(&mut self, call: KeptCall, most: usize) -> [Option<ListedCall>; 3] {
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
pub(crate) struct Ring {
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
    pub(crate) fn calls(&self) -> &[ListedCall] {
        &self.calls
    }
}

/// The slowest calls of a class, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Slowest {
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
    pub(crate) fn calls(&self) -> &[ListedCall] {
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
/// The most bytes of a method that are kept.
const MAX_METHOD: usize = 32;

/// A call that is kept. Its clones share it.
#[derive(Debug, Clone)]
pub(crate) struct KeptCall {
    request: KeptRequest,
    pub(crate) timings: Arc<Timings>,
}

/// The first request of a call that is kept.
#[derive(Debug, Clone)]
enum KeptRequest {
    Whole(Arc<RequestInfo>),
    /// Of one that is long, or has values of the program.
    Cut(Arc<(Method, Uri)>),
}

impl KeptCall {
    /// Returns what is kept of a call: of bounded size, and shared with the client where it is that already.
    pub(crate) fn new(request: &Arc<RequestInfo>, timings: &Arc<Timings>) -> Self {
        let RequestInfo { method, target, extensions, .. } = &**request;
        let is_short = target_len(target) <= MAX_TARGET && method.as_str().len() <= MAX_METHOD;
        let request = if is_short && extensions.is_empty() {
            KeptRequest::Whole(request.clone())
        } else {
            KeptRequest::Cut(Arc::new((cut_method(method), cut_target(target, MAX_TARGET))))
        };
        let timings = if is_plain(timings) { timings.clone() } else { Arc::new(timings.bounded()) };
        Self { request, timings }
    }

    pub(crate) fn method(&self) -> &Method {
        match &self.request {
            KeptRequest::Whole(request) => &request.method,
            KeptRequest::Cut(cut) => &cut.0,
        }
    }

    pub(crate) fn target(&self) -> &Uri {
        match &self.request {
            KeptRequest::Whole(request) => &request.target,
            KeptRequest::Cut(cut) => &cut.1,
        }
    }
}

/// Returns true for the timings of a call that was one request on an idle connection without TLS, which are short.
fn is_plain(timings: &Timings) -> bool {
    let has_history = !timings.lookups().is_empty()
        || !timings.dialled().is_empty()
        || !timings.hops().is_empty()
        || !timings.hedges().is_empty();
    !has_history && timings.tls_facts().is_none()
}

/// Returns the length of a target, without putting its parts together.
fn target_len(target: &Uri) -> usize {
    let path = target.path_and_query().map_or(0, |path| path.as_str().len());
    path + target.authority().map_or(0, |authority| authority.as_str().len())
}

/// Returns a target of at most `most` bytes.
pub(crate) fn cut_target(target: &Uri, most: usize) -> Uri {
    if target_len(target) <= most {
        return target.clone();
    }
    let path = target.path_and_query().map_or("/", |path| path.as_str());
    let end = boundary(path, most - 3);
    format!("{}...", &path[..end]).parse().unwrap_or_default()
}

/// Returns a method of at most 32 bytes.
pub(crate) fn cut_method(method: &Method) -> Method {
    match method.as_str().get(..MAX_METHOD) {
        Some(start) => Method::from_bytes(start.as_bytes()).unwrap_or_default(),
        None => method.clone(),
    }
}

/// Returns the last place up to `at` at which a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// A duration for each phase, indexed by `phase as usize`.
type PhaseTimes = [Duration; Phase::ALL.len()];

/// The figures of all calls to an origin since the recorder knows the origin, also of those that it did not keep.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CallTotals {
    /// The calls.
    pub calls: u64,
    /// The calls that failed, without those that were cancelled.
    pub failed: u64,
    /// The calls that were cancelled: the program dropped them before they had a response.
    pub cancelled: u64,
    /// The calls with a response of status 5xx.
    pub server_errors: u64,
    /// The requests that calls made besides their last ones: those sent again, and those redirected.
    pub further_requests: u64,
    /// The calls whose last request got a new connection.
    pub on_new_connections: u64,
    /// The sum of the lengths of the calls' response bodies, in bytes.
    pub received_bytes: u64,
    /// The durations of the calls. Its quantiles are at most 3.2 % too long.
    pub latency: Latency<1_024>,
    /// The numbers of calls, and the times of their phases, by latency class.
    classes: [(u64, PhaseTimes); LatencyClass::COUNT],
}

impl CallTotals {
    /// Returns the time that all calls spent in one phase.
    pub fn spent(&self, phase: Phase) -> Duration {
        LatencyClass::ALL.into_iter().map(|class| self.spent_in_class(class, phase)).sum()
    }

    /// Returns the number of calls in one latency class.
    pub fn in_class(&self, class: LatencyClass) -> u64 {
        self.classes[class.index()].0
    }

    /// Returns the time that the calls in one latency class spent in one phase: what the slow ones have in common.
    pub fn spent_in_class(&self, class: LatencyClass, phase: Phase) -> Duration {
        self.classes[class.index()].1[phase as usize]
    }

    /// Returns the calls that failed, were cancelled, or have a response of status 5xx.
    pub fn failures(&self) -> u64 {
        self.failed + self.cancelled + self.server_errors
    }

    /// Counts a call, and returns its duration and the class of that.
    pub(crate) fn count(&mut self, timings: &Timings) -> (Duration, LatencyClass) {
        self.calls += 1;
        match timings.failure() {
            Some("cancelled") => self.cancelled += 1,
            Some(_) => self.failed += 1,
            None if is_server_error(timings) => self.server_errors += 1,
            None => {}
        }
        self.further_requests += requests_before(timings);
        self.on_new_connections += u64::from(timings.connection().is_some() && !timings.reused());
        self.received_bytes += timings.received_bytes();
        let total = timings.total();
        let class = LatencyClass::of(total);
        self.latency.add(total);
        let (calls, spent) = &mut self.classes[class.index()];
        *calls += 1;
        // Most phases of most calls take no time.
        timings.phases().for_each(|(phase, time)| {
            if !time.is_zero() {
                spent[phase as usize] += time;
            }
        });
        (total, class)
    }

    /// Adds the figures of another origin.
    pub(crate) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.server_errors += other.server_errors;
        self.further_requests += other.further_requests;
        self.on_new_connections += other.on_new_connections;
        self.received_bytes += other.received_bytes;
        self.latency.merge(&other.latency);
        self.classes.iter_mut().zip(&other.classes).for_each(|(sum, (calls, spent))| add_class(sum, (*calls, spent)));
    }
}

fn add_class(sum: &mut (u64, PhaseTimes), (calls, spent): (u64, &PhaseTimes)) {
    sum.0 += calls;
    sum.1.iter_mut().zip(spent).for_each(|(sum, more)| *sum += *more);
}

/// Returns the number of the call's requests before its last one.
pub(crate) fn requests_before(timings: &Timings) -> u64 {
    timings.hops().iter().map(|hop| 1 + u64::from(hop.joined)).sum()
}

/// Returns true for a call that failed, was cancelled, or has a response of status 5xx.
pub(crate) fn is_failure(timings: &Timings) -> bool {
    timings.failure().is_some() || is_server_error(timings)
}

fn is_server_error(timings: &Timings) -> bool {
    timings.status().is_some_and(|status| status.is_server_error())
}

/// A range of durations. Each call belongs to one class by its [total](speeddial::trace::Timings::total).
///
/// ```
/// use std::time::Duration;
/// use speeddial_inspect::LatencyClass;
///
/// let class = LatencyClass::of(Duration::from_millis(120));
/// assert_eq!(class.to_string(), "≥ 100 ms");
/// assert_eq!(class.upper(), Some(Duration::from_millis(200)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LatencyClass(u8);

/// The lower ends of the classes in milliseconds, and their names.
const CLASSES: [(u64, &str); LatencyClass::COUNT] = [
    (0, "< 10 ms"),
    (10, "≥ 10 ms"),
    (50, "≥ 50 ms"),
    (100, "≥ 100 ms"),
    (200, "≥ 200 ms"),
    (500, "≥ 500 ms"),
    (1_000, "≥ 1 s"),
    (10_000, "≥ 10 s"),
    (100_000, "≥ 100 s"),
];

impl LatencyClass {
    /// The number of classes.
    pub(crate) const COUNT: usize = 9;

    /// All classes, the fastest first: those that begin at 0, 10, 50, 100, 200 and 500 ms, and at 1, 10 and 100 s.
    pub const ALL: [Self; Self::COUNT] =
        [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7), Self(8)];

    /// Returns the class of a duration.
    pub fn of(duration: Duration) -> Self {
        let is_at_least = |class: &Self| class.lower() <= duration;
        Self::ALL.into_iter().take_while(is_at_least).last().unwrap_or(Self(0))
    }

    /// Returns the shortest duration in the class.
    pub const fn lower(self) -> Duration {
        Duration::from_millis(CLASSES[self.0 as usize].0)
    }

    /// Returns the duration at which the next class begins; `None` for the last class.
    pub fn upper(self) -> Option<Duration> {
        Self::ALL.get(self.index() + 1).map(|next| next.lower())
    }

    /// Returns the class's name, for example `≥ 100 ms`.
    pub fn as_str(self) -> &'static str {
        CLASSES[self.index()].1
    }

    /// Returns the class's place in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

impl fmt::Display for LatencyClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use speeddial::http::Extensions;

    use super::*;
    use crate::samples::{self, cold_call, failed_call, ms, request, retried_call, warm_call};

    const URL: &str = "http://api.test/v1/items";

    fn recorded(calls: impl IntoIterator<Item = Timings>, most: usize) -> OriginCalls {
        let mut origin = OriginCalls::default();
        for timings in calls.into_iter().map(Arc::new) {
            origin.record(KeptCall::new(&request(URL), &timings), most);
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
        assert_eq!(numbers(recorded((0..2).map(warm_call), 3).recent.calls()), [1, 2]);
        let origin = recorded((0..10).map(warm_call), 3);
        assert_eq!(numbers(origin.recent.calls()), [8, 9, 10]);
        assert_eq!((origin.totals.calls, origin.recent.calls.capacity()), (10, 3));
        assert!(origin.failures.calls().is_empty());
    }

    #[test]
    fn the_slowest_calls_of_each_class_are_kept() {
        let origin = recorded([5, 70, 1, 90, 8, 50, 3, 99, 2, 400].map(warm_call), 2);
        let of = |total| totals(origin.slowest[LatencyClass::of(ms(total)).index()].calls());
        assert_eq!([of(0), of(50), of(200), of(100)], [vec![5, 8], vec![90, 99], vec![400], vec![]]);
        // Each later one is slower than all before.
        assert_eq!(totals(recorded((11..40).map(warm_call), 3).slowest[1].calls()), [37, 38, 39]);
    }

    #[test]
    fn of_calls_that_took_the_same_time_the_first_ones_stay() {
        let origin = recorded([20, 20, 20, 20].map(warm_call), 2);
        assert_eq!(numbers(origin.slowest[1].calls()), [1, 2]);
    }

    #[test]
    fn the_last_failures_are_kept_however_many_calls_succeed_after_them() {
        let calls = (0..5).map(failed_call).chain((0..100).map(warm_call));
        let origin = recorded(calls, 3);
        assert_eq!(numbers(origin.failures.calls()), [3, 4, 5]);
        assert_eq!(numbers(origin.recent.calls()), [103, 104, 105]);
        assert_eq!(origin.totals.failed, 5);
    }

    #[test]
    fn the_lists_share_a_call_and_return_those_that_made_room() {
        let mut origin = OriginCalls::default();
        let mut record = |timings: Timings| origin.record(KeptCall::new(&request(URL), &Arc::new(timings)), 1);
        let numbers = |evicted: [Option<ListedCall>; 3]| evicted.map(|call| call.map(|call| call.number));
        assert_eq!(numbers(record(failed_call(5))), [None, None, None]);
        assert_eq!(numbers(record(warm_call(7))), [None, Some(1), Some(1)]);
        assert_eq!(numbers(record(failed_call(6))), [Some(1), None, Some(2)]);
        assert_eq!(Arc::strong_count(&origin.recent.calls()[0].call.timings), 2, "the last call is the last failure");
    }

    #[test]
    fn a_usual_request_is_shared_and_not_copied() {
        let (usual, timings) = (request("http://api.test/v1/items?page=1"), Arc::new(warm_call(1)));
        let kept = KeptCall::new(&usual, &timings);
        assert!(matches!(&kept.request, KeptRequest::Whole(request) if Arc::ptr_eq(request, &usual)));
        assert!(Arc::ptr_eq(&kept.timings, &timings));
        assert!(!is_plain(&cold_call()) && !is_plain(&retried_call()));
    }

    #[test]
    fn long_targets_and_methods_are_cut_and_values_of_the_program_are_let_go() {
        let timings = Arc::new(warm_call(1));
        let long = request(&format!("http://api.test/{}?secret=1", "a".repeat(60_000)));
        let kept = KeptCall::new(&long, &timings);
        assert_eq!(kept.target().to_string().len(), MAX_TARGET);
        assert!(kept.target().path().ends_with("aaa..."));

        let value = Arc::new(());
        let mut with_value = (*request(URL)).clone();
        with_value.extensions = Extensions::new();
        with_value.extensions.insert(value.clone());
        with_value.method = Method::from_bytes(&b"X".repeat(10_000)).unwrap();
        let kept = KeptCall::new(&Arc::new(with_value), &timings);
        assert_eq!((kept.method().as_str().len(), kept.target().path()), (MAX_METHOD, "/v1/items"));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_target_is_cut_between_characters() {
        assert_eq!(boundary("aé", 2), 1);
        assert_eq!(boundary("aé", 9), 3);
    }

    #[test]
    fn each_call_is_counted_by_its_end() {
        let calls =
            [cold_call(), retried_call(), failed_call(250), samples::cancelled_call(250), samples::bad_gateway(250)];
        let mut totals = CallTotals::default();
        for timings in &calls {
            assert_eq!(totals.count(timings), (timings.total(), LatencyClass::of(timings.total())));
        }
        assert_eq!((totals.calls, totals.failed, totals.cancelled, totals.server_errors), (5, 1, 1, 1));
        assert_eq!((totals.failures(), totals.further_requests, totals.on_new_connections), (3, 2, 1));
        assert_eq!(calls.iter().filter(|timings| is_failure(timings)).count(), 3);
        assert_eq!(totals.received_bytes, 9);
        let all: Duration = calls.iter().map(Timings::total).sum();
        let sum: Duration = Phase::ALL.into_iter().map(|phase| totals.spent(phase)).sum();
        assert_eq!((sum, totals.latency.sum()), (all, all));
        assert_eq!(totals.in_class(LatencyClass::of(ms(250))), 3);
        let by_class =
            LatencyClass::ALL.into_iter().flat_map(|class| Phase::ALL.map(|phase| totals.spent_in_class(class, phase)));
        assert_eq!(by_class.sum::<Duration>(), all);
        let mut twice = totals;
        twice.add(&totals);
        assert_eq!((twice.calls, twice.latency.count(), twice.in_class(LatencyClass::of(ms(250)))), (10, 10, 6));
    }

    #[test]
    fn each_duration_is_in_the_one_class_whose_bounds_hold_it() {
        for ms in [0, 9, 10, 49, 50, 99, 100, 199, 200, 499, 500, 999, 1_000, 9_999, 10_000, 99_999, 100_000, 1 << 40] {
            let duration = Duration::from_millis(ms);
            let holds =
                |class: &LatencyClass| class.lower() <= duration && class.upper().is_none_or(|upper| duration < upper);
            let holding: Vec<_> = LatencyClass::ALL.into_iter().filter(holds).collect();
            assert_eq!(holding, [LatencyClass::of(duration)], "{ms} ms");
        }
        assert_eq!(LatencyClass::of(Duration::from_micros(9_999)).as_str(), "< 10 ms");
    }
}
