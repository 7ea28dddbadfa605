//! The requests of a call, each from its start to its end, for observers that measure or trace every one of them. Hedges too.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;

use super::spent::PhaseTimes;
use crate::clock::Instant;
use crate::trace::events::event::{Phase, RequestInfo};
use crate::trace::events::{Budgeted, HedgeOutcome, NotRetried, RepeatCause};
use crate::trace::timings::Timings;
use crate::trace::timings::hops::{Hedge, HopEnd};
use crate::trace::timings::late::{LATE, LateKind};

/// A request of a call that has just begun: the first one, or one that follows a redirect, a failure or a late answer.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StartedRequest<'a> {
    /// The call's number, as in [`Subject::Call`](crate::trace::Subject::Call).
    pub call: u64,
    /// The number of requests of the call that began before this one.
    pub number: u32,
    /// True if a redirect led to the request, so that its URL is not the one that the call began with.
    pub is_redirected: bool,
    /// The time at which the request began, before it waited for a connection.
    pub started: std::time::Instant,
    /// The request.
    pub request: &'a RequestInfo,
}

impl StartedRequest<'_> {
    /// Returns the [template](UrlTemplate) of the request's URL, if it has one: the request of a redirect has another URL.
    pub fn url_template(&self) -> Option<Cow<'static, str>> {
        let template = self.request.extensions.get::<UrlTemplate>().filter(|_| !self.is_redirected)?;
        Some(template.0.clone())
    }
}

/// A request of a call that is over.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EndedRequest<'a> {
    /// The request.
    pub request: StartedRequest<'a>,
    /// The time at which the request ended.
    pub ended: std::time::Instant,
    /// The way in which the request ended.
    pub end: RequestEnd,
    /// The [kind](crate::ErrorKind::as_str) of the error with which the request failed, also if it was sent again then;
    /// `cancelled` if it was dropped before there was a response; `None` if it did not fail.
    pub failure: Option<&'static str>,
    /// The timings of the call so far. Their status, version, addresses and lengths are those of this request.
    pub timings: &'a Timings,
    /// The time of each phase that belongs to attempts of a layer before this one.
    pub(crate) spent_before: &'a [Duration; Phase::ALL.len()],
    /// The [delay](Timings::runtime_delay) that belongs to earlier requests.
    pub(crate) late_before: Duration,
}

impl EndedRequest<'_> {
    /// Returns the duration of the request, without a backoff before it.
    pub fn elapsed(&self) -> Duration {
        self.ended.saturating_duration_since(self.request.started)
    }

    /// Returns the time that the request spent in one phase. [`Phase::Backoff`] is the wait before the request; the other phases
    /// add up to [`elapsed`](Self::elapsed). A pause within the request, before its connection is used or after a 401 that remains the
    /// answer because there is no newer token, is a part of [`Phase::Queue`].
    pub fn spent(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Backoff => self.spent_before[phase as usize],
            Phase::Queue => self.spent_within(phase) + self.paused(),
            _ => self.spent_within(phase),
        }
    }

    /// Returns the part of [`Timings::runtime_delay`] that belongs to this request or to the wait before it. The delays of the requests of
    /// a call add up to no more than the time that it took.
    pub fn runtime_delay(&self) -> Duration {
        self.timings.runtime_delay().saturating_sub(self.late_before)
    }

    /// Returns the time of pauses within the request.
    pub(crate) fn paused(&self) -> Duration {
        self.spent_within(Phase::Backoff)
    }

    fn spent_within(&self, phase: Phase) -> Duration {
        self.timings.spent_last(phase).saturating_sub(self.spent_before[phase as usize])
    }
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestEnd {
    /// The response was read to its end, or to its announced length.
    Answered,
    /// The response was dropped before the end of its body. That is no failure.
    Unread,
    /// The response named another URL, and the call went there.
    Redirected(StatusCode),
    /// The request is sent again, for this reason.
    Repeated(RepeatCause),
    /// Another request took its place: the other one of a hedged request was answered, or a layer around attempts made
    /// another one.
    Superseded,
    /// The request failed, or was dropped before there was a response.
    Failed,
}

/// The template of a request's URL, such as `/users/{id}`: an extension of requests for measurements and spans.
///
/// URLs have too many values for measurements. Their template is the attribute `url.template` of OpenTelemetry's conventions, and
/// a part of the names of spans. A request that follows a redirect has no template.
///
/// ```
/// use speeddial::trace::UrlTemplate;
///
/// let client = speeddial::Client::new();
/// let request = client.get("http://127.0.0.1/users/7").extension(UrlTemplate::new("/users/{id}"));
/// # drop(request);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate(Cow<'static, str>);

impl UrlTemplate {
    /// Creates a template.
    pub fn new(template: impl Into<Cow<'static, str>>) -> Self {
        Self(template.into())
    }

    /// Returns the template as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The request of a call that is under way, for observers that want requests.
///
/// The two attempts of a hedged request have one of these each, and count together.
pub(in crate::trace) struct Requests {
    /// The number of requests that have begun.
    count: Arc<AtomicU32>,
    open: Mutex<Option<Arc<OpenRequest>>>,
    /// The number of requests that had been sent again or redirected when the last one began; `None` before the first one.
    hops: Mutex<Option<usize>>,
}

/// A request that is under way.
#[derive(Debug)]
pub(in crate::trace) struct OpenRequest {
    pub(in crate::trace) info: RequestInfo,
    pub(in crate::trace) number: u32,
    pub(in crate::trace) is_redirected: bool,
    pub(in crate::trace) started: Instant,
    /// The time of each phase since the last request that was sent again or redirected, when this one began.
    pub(in crate::trace) spent_before: PhaseTimes,
    /// The delay of the runtime that belongs to earlier requests.
    pub(in crate::trace) late_before: Duration,
    /// The kind of the error with which the request has failed.
    failure: Mutex<Option<&'static str>>,
}

/// A request that observers were told of, for the attempt that makes it.
pub(crate) struct ObservedRequest(pub(in crate::trace) Arc<OpenRequest>);

impl ObservedRequest {
    /// Notes that the request has failed, for its end, which follows.
    pub(crate) fn note_failure(&self, why: &'static str) {
        self.0.note_failure(why);
    }
}

impl Requests {
    pub(in crate::trace) fn new() -> Self {
        Self { count: Arc::default(), open: Mutex::default(), hops: Mutex::default() }
    }

    /// Creates the place for the second attempt at a request, which counts together with the first one.
    pub(in crate::trace) fn beside(&self) -> Self {
        Self { count: self.count.clone(), hops: Mutex::new(*self.hops.lock()), ..Self::new() }
    }

    /// Begins a request. Returns it, and the one whose place it takes: a layer around attempts may make a request before the
    /// last one is over.
    pub(in crate::trace) fn begin(
        &self,
        info: RequestInfo,
        now: Instant,
        timings: &Timings,
    ) -> (Arc<OpenRequest>, Option<Arc<OpenRequest>>) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let is_redirected = timings.hops().iter().any(|hop| matches!(hop.end, HopEnd::Redirected(_)));
        let mut place = self.open.lock();
        // The time since the last event is a part of the request's phases.
        let started = if place.is_some() { now.max(timings.last) } else { timings.last };
        let spent = timings.spent.until(timings.phase, started);
        let spent_before = Phase::ALL.map(|phase| timings.history().spent_last(phase, spent[phase as usize]));
        let late_before = self.late_before(timings);
        let failure = Mutex::default();
        let open = Arc::new(OpenRequest { info, number, is_redirected, started, spent_before, late_before, failure });
        let replaced = place.replace(open.clone());
        (open, replaced)
    }

    /// Returns the delay of the runtime up to a request that begins, without the wait before it.
    fn late_before(&self, timings: &Timings) -> Duration {
        let hops = timings.hops().len();
        let is_beside = self.hops.lock().replace(hops) == Some(hops);
        match is_beside {
            // That wait belongs to the other request: a layer makes several, or this is the second attempt of a hedged one.
            true => timings.runtime_delay(),
            false => timings.history().late().before(timings.history().last_started()),
        }
    }

    /// Returns the request that is under way.
    pub(in crate::trace) fn open(&self) -> Option<Arc<OpenRequest>> {
        self.open.lock().clone()
    }

    /// Notes that the request that is under way has failed.
    pub(in crate::trace) fn note_failure(&self, why: &'static str) {
        if let Some(open) = self.open() {
            open.note_failure(why);
        }
    }

    /// Takes the request that is under way.
    pub(in crate::trace) fn end(&self) -> Option<Arc<OpenRequest>> {
        self.open.lock().take()
    }
}

impl OpenRequest {
    fn note_failure(&self, why: &'static str) {
        self.failure.lock().get_or_insert(why);
    }

    pub(in crate::trace) fn failure(&self) -> Option<&'static str> {
        *self.failure.lock()
    }

    pub(in crate::trace) fn described(&self, call: u64) -> StartedRequest<'_> {
        let Self { info, number, is_redirected, started, .. } = self;
        StartedRequest {
            call,
            number: *number,
            is_redirected: *is_redirected,
            started: started.into_std(),
            request: info,
        }
    }
}

impl Timings {
    /// Returns the second attempts that were made while the first one waited, at most one for each request of the call.
    pub fn hedges(&self) -> &[Hedge] {
        self.history().hedges()
    }

    /// Returns what was not made because the origin's budget was used up: resends, retries and hedges. The observers have the same as
    /// [`Event::OverBudget`](crate::trace::Event::OverBudget).
    pub fn over_budget(&self) -> &[Budgeted] {
        self.history().over_budget()
    }

    /// Returns those of them that would have followed the last request.
    pub(crate) fn over_budget_at_last(&self) -> &[Budgeted] {
        self.history().over_budget_at_last()
    }

    /// Returns the reason why there was no retry after the last request, if the policy wants one, and the budget has it.
    pub(crate) fn not_retried(&self) -> Option<NotRetried> {
        self.history().not_retried()
    }

    /// Enters a second attempt that begins at `at`. Returns the timings that the call has if that attempt counts: those
    /// of the call up to now, and the first attempt as a request that has ended. The attempt was due `late` before.
    ///
    /// The call's own timings stay at their last event: the exchange of the first attempt will report earlier times.
    pub(in crate::trace) fn begin_hedge(&mut self, at: Instant, late: Duration) -> Self {
        let started = at - self.start;
        self.history_mut().add_hedge(Hedge { started, outcome: HedgeOutcome::Pending });
        let mut second = self.clone();
        second.advance(at);
        if late >= LATE {
            second.note_late(at, Phase::Wait, LateKind::Hedge, late);
        }
        second.end_request(HopEnd::Hedged);
        second.spent.add_up(second.phase, second.last);
        second
    }

    /// Enters the result of the call's last hedge.
    pub(in crate::trace) fn end_hedge(&mut self, outcome: HedgeOutcome) {
        self.history_mut().end_hedge(outcome);
    }

    /// Returns true if the call's last hedge has no result yet.
    pub(in crate::trace) fn is_hedge_pending(&self) -> bool {
        self.hedges().last().is_some_and(|hedge| hedge.outcome == HedgeOutcome::Pending)
    }

    /// Corrects the time that the first attempt of a hedged request sent and waited, by that attempt's own timings `first`.
    ///
    /// An exchange reports when the request was sent only when it is over. Until then, all of its time counts as sending.
    pub(in crate::trace) fn settle_hedge(&mut self, first: &Self) {
        let hedged = self.history().hops().iter().rposition(|hop| hop.end == HopEnd::Hedged);
        let is_sent = matches!(first.phase, Phase::Wait | Phase::Receive);
        if hedged != Some(first.hops().len()) || !is_sent {
            return; // the first attempt was repeated meanwhile, or was never sent
        }
        let sending = first.spent_last(Phase::Send);
        let waited = self.history_mut().settle_hop(first.hops().len(), sending);
        self.spent.shift(Phase::Send, Phase::Wait, waited);
    }
}

#[cfg(test)]
mod tests {
    use http::{Extensions, Method};

    use super::super::samples;
    use super::*;
    use crate::origin::Origin;
    use crate::trace::events::event::Event;

    fn info(template: Option<&'static str>) -> RequestInfo {
        let mut extensions = Extensions::new();
        if let Some(template) = template {
            extensions.insert(UrlTemplate::new(template));
        }
        let origin = Origin::from_url(&url::Url::parse("http://a.test/").unwrap()).unwrap();
        RequestInfo { method: Method::GET, origin, target: "/".parse().unwrap(), extensions }
    }

    #[test]
    fn requests_are_numbered_with_those_of_the_second_attempt() {
        let requests = Requests::new();
        let second = requests.beside();
        let timings = samples::cold_call();
        let at = crate::clock::now();
        let number = |requests: &Requests| requests.open().map(|open| open.number);
        assert!(requests.begin(info(None), at, &timings).1.is_none());
        assert!(second.begin(info(None), at, &timings).1.is_none());
        assert_eq!([number(&requests), number(&second)], [Some(0), Some(1)]);
        requests.note_failure("timeout");
        requests.note_failure("cancelled");
        let ended = requests.end().unwrap();
        assert_eq!((ended.number, ended.failure()), (0, Some("timeout")));
        assert_eq!(number(&requests), None);
        requests.begin(info(None), at, &timings);
        assert_eq!(number(&requests), Some(2));
        // A layer makes another request before that one is over.
        let (begun, replaced) = requests.begin(info(None), at, &timings);
        assert_eq!((begun.number, replaced.unwrap().number), (3, 2));
    }

    #[test]
    fn a_delay_of_the_runtime_counts_for_one_request() {
        let ms = samples::ms;
        let start = crate::clock::now();
        let requests = Requests::new();
        let mut timings = samples::folded(&[]);
        let delay = |open: &OpenRequest, timings: &Timings| {
            let ended = start.into_std();
            let end = RequestEnd::Answered;
            let (spent_before, late_before) = (&open.spent_before, open.late_before);
            let request = open.described(1);
            EndedRequest { request, ended, end, failure: None, timings, spent_before, late_before }.runtime_delay()
        };
        let late = |phase, from, by| super::super::late::Late {
            phase,
            kind: super::super::late::LateKind::Timer,
            from: ms(from),
            by: ms(by),
            until: ms(from + by),
        };
        timings.history_mut().note_late(late(Phase::Queue, 0, 20));
        let (first, _) = requests.begin(info(None), start, &timings);
        timings.history_mut().note_late(late(Phase::Wait, 30, 10));
        assert_eq!(delay(&first, &timings), ms(30));
        // A layer makes another one.
        let (second, _) = requests.begin(info(None), start, &timings);
        timings.history_mut().note_late(late(Phase::Wait, 50, 15));
        assert_eq!(delay(&second, &timings), ms(15));
        for round in 1..4 {
            let at = timings.start + ms(round * 100);
            timings.fold(at, &Event::Repeated { cause: RepeatCause::Closed });
            requests.end();
            timings.history_mut().note_late(late(Phase::Backoff, round * 100, 40));
            let (next, _) = requests.begin(info(None), start, &timings);
            timings.history_mut().note_late(late(Phase::Wait, round * 100 + 60, 11));
            assert_eq!(delay(&next, &timings), ms(51), "with the wait before it");
        }
    }

    #[test]
    fn a_redirected_request_has_no_template() {
        let started = crate::clock::now().into_std();
        let template = |template, is_redirected| {
            let request = info(template);
            let started = StartedRequest { call: 1, number: 0, is_redirected, started, request: &request };
            started.url_template().map(Cow::into_owned)
        };
        assert_eq!(template(Some("/users/{id}"), false).as_deref(), Some("/users/{id}"));
        assert_eq!(template(Some("/users/{id}"), true), None);
        assert_eq!(template(None, false), None);
    }
}

#[cfg(test)]
mod hedges_tests {
    use super::*;
    use crate::trace::events::event::Event;
    use crate::trace::timings::samples::{SENT, leased, ms};

    fn at(timings: &Timings, millis: u64) -> Instant {
        timings.start + ms(millis)
    }

    fn fold(timings: &mut Timings, events: impl IntoIterator<Item = (u64, Event)>) {
        for (millis, event) in events {
            let at = at(timings, millis);
            timings.fold(at, &event);
        }
    }

    /// A call that has its connection at 5 ms, and a second attempt at 30 ms, which has its connection at 40 ms.
    fn hedged() -> (Timings, Timings) {
        let mut first = Timings::new(crate::clock::now());
        fold(&mut first, [(5, leased(3))]);
        let begun = at(&first, 30);
        let mut second = first.begin_hedge(begun, Duration::ZERO);
        fold(&mut second, [(40, leased(0))]);
        (first, second)
    }

    fn in_ms(spent: impl Fn(Phase) -> Duration) -> [u128; 4] {
        [Phase::Queue, Phase::Send, Phase::Wait, Phase::Receive].map(|phase| spent(phase).as_millis())
    }

    fn adds_up(timings: &Timings) {
        assert_eq!(Phase::ALL.map(|phase| timings.spent(phase)).iter().sum::<Duration>(), timings.total());
        for hop in timings.hops() {
            assert_eq!(Phase::ALL.map(|phase| hop.spent(phase)).iter().sum::<Duration>(), hop.elapsed);
        }
    }

    #[test]
    fn a_lost_hedge_leaves_the_times_as_they_are() {
        let (mut first, _) = hedged();
        fold(&mut first, [(6, SENT), (50, Event::FirstByte), (60, Event::BodyEnd { bytes: 1 })]);
        first.end_hedge(HedgeOutcome::Lost);
        assert_eq!((in_ms(|phase| first.spent(phase)), first.total()), ([5, 1, 44, 10], ms(60)));
        assert_eq!(first.hedges(), [Hedge { started: ms(30), outcome: HedgeOutcome::Lost }]);
        assert!(first.hops().is_empty() && first.reused());
        adds_up(&first);
    }

    #[test]
    fn if_the_hedge_wins_the_first_attempt_is_a_hop_that_ends_where_it_began() {
        let (mut first, mut second) = hedged();
        fold(&mut second, [(42, SENT), (50, Event::FirstByte)]);
        // The first attempt is dropped now, and reports when it was sent.
        fold(&mut first, [(6, SENT)]);
        second.settle_hedge(&first);
        second.end_hedge(HedgeOutcome::Won);
        fold(&mut second, [(60, Event::BodyEnd { bytes: 1 })]);
        let [hop] = second.hops() else { panic!("{second:?}") };
        assert_eq!((hop.end, hop.started, hop.elapsed, hop.reused), (HopEnd::Hedged, ms(0), ms(30), true));
        assert_eq!(in_ms(|phase| hop.spent(phase)), [5, 1, 24, 0]);
        assert_eq!((in_ms(|phase| second.spent(phase)), second.total()), ([15, 3, 32, 10], ms(60)));
        assert_eq!(in_ms(|phase| second.spent_last(phase)), [10, 2, 8, 10]);
        adds_up(&second);
    }

    #[test]
    fn a_first_attempt_that_was_not_sent_whole_or_was_sent_again_is_left_as_it_was() {
        let (mut first, mut second) = hedged();
        second.settle_hedge(&first);
        assert_eq!(in_ms(|phase| second.hops()[0].spent(phase)), [5, 25, 0, 0]);
        fold(&mut first, [(35, SENT)]);
        second.settle_hedge(&first);
        assert_eq!(in_ms(|phase| second.hops()[0].spent(phase)), [5, 25, 0, 0], "sent after the hedge began");
        let repeated = Event::Repeated { cause: crate::trace::events::RepeatCause::Closed };
        fold(&mut first, [(36, repeated), (37, leased(0)), (37, SENT)]);
        second.settle_hedge(&first);
        assert_eq!(in_ms(|phase| second.hops()[0].spent(phase)), [5, 25, 0, 0]);
        adds_up(&second);
        adds_up(&first);
    }
}
