//! One request of a HAR document: what is kept of it until the document is written, and its times as HAR divides them.

use std::fmt;
use std::time::{Duration, Instant};

use speeddial::dns::Source;
use speeddial::http::{HeaderMap, Method, Uri};
use speeddial::origin::Origin;
use speeddial::redact::{self, Query};
use speeddial::trace::{EndedRequest, Phase, RequestEnd, RequestInfo, Timings};
use speeddial::url::Url;

use crate::calls::{cut_method, cut_target};
use crate::text::origin_url;

/// The most bytes of the target of a request that an observer was told of.
const MAX_TARGET: usize = 8 * 1024;

/// A request and its response for a [`Har`](super::Har), made of a call's timings.
///
/// The entry is about the last request of the call. Earlier ones, whose URLs the timings do not know, are listed in `_earlier`.
/// A [`Har`](super::Har) that is an observer of the client has an entry for each of them instead.
#[derive(Clone)]
pub struct HarEntry {
    pub(super) method: Method,
    pub(super) place: HarPlace,
    pub(super) request_headers: HeaderMap,
    pub(super) response_headers: HeaderMap,
    pub(super) timings: Timings,
    pub(super) phases: HarPhases,
    /// The wait before the request.
    pub(super) backoff: Duration,
    /// The time from the call's start until the request began, after any backoff.
    pub(super) after: Duration,
    /// The end of a request that an observer was told of; `None` if the entry is for a whole call.
    pub(super) end: Option<RequestEnd>,
    pub(super) failure: Option<&'static str>,
}

impl fmt::Debug for HarEntry {
    // Without header values and query, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = redact::url(&self.place.url(), Query::LeftOut);
        f.debug_struct("HarEntry").field("method", &self.method).field("url", &url).finish_non_exhaustive()
    }
}

/// The URL of a request.
#[derive(Clone)]
pub(super) enum HarPlace {
    Url(Url),
    Target(Origin, Uri),
}

impl HarEntry {
    /// Creates an entry for a call, with the method and the URL of its last request
    /// ([`Response::url`](speeddial::Response::url)).
    pub fn new(method: &Method, url: &Url, timings: &Timings) -> Self {
        Self::of(method, HarPlace::Url(url.clone()), timings.clone())
    }

    /// Creates an entry for a call of which an observer is told only the first request.
    pub(super) fn of_call(request: &RequestInfo, timings: &Timings) -> Self {
        Self::of(&cut_method(&request.method), HarPlace::of(request), timings.bounded())
    }

    /// Creates an entry for one of the requests of a call.
    pub(super) fn of_request(ended: &EndedRequest<'_>) -> Self {
        let entry = Self::of_call(ended.request.request, ended.timings);
        Self {
            phases: HarPhases::of(ended.timings, |phase| ended.spent(phase)),
            after: ended.request.started.saturating_duration_since(ended.timings.started()),
            backoff: ended.spent(Phase::Backoff),
            end: Some(ended.end),
            failure: ended.failure,
            ..entry
        }
    }

    fn of(method: &Method, place: HarPlace, timings: Timings) -> Self {
        let backoff = spent_last(&timings, Phase::Backoff);
        Self {
            method: method.clone(),
            place,
            request_headers: HeaderMap::new(),
            response_headers: HeaderMap::new(),
            phases: HarPhases::of(&timings, |phase| spent_last(&timings, phase)),
            after: last_started(&timings) + backoff,
            backoff,
            end: None,
            failure: timings.failure(),
            timings,
        }
    }

    /// Adds the request's headers. Those with secrets are removed when the document is written.
    pub fn request_headers(self, headers: &HeaderMap) -> Self {
        Self { request_headers: headers.clone(), ..self }
    }

    /// Adds the response's headers. Those with secrets are removed when the document is written.
    pub fn response_headers(self, headers: &HeaderMap) -> Self {
        Self { response_headers: headers.clone(), ..self }
    }

    /// Returns true if the request is the last one of its call, as far as it is known: the times are those of the whole call.
    pub(super) fn is_last(&self) -> bool {
        matches!(self.end, None | Some(RequestEnd::Answered | RequestEnd::Unread | RequestEnd::Failed))
    }

    /// Returns the time at which the request ended.
    pub(super) fn ended(&self) -> Instant {
        self.timings.started() + self.timings.total()
    }

    /// Returns the time at which the request began.
    pub(super) fn started(&self) -> Instant {
        self.timings.started() + self.after
    }
}

impl HarPlace {
    /// Returns the URL of a request, with a target of at most 8 KiB.
    fn of(request: &RequestInfo) -> Self {
        Self::Target(request.origin.clone(), cut_target(&request.target, MAX_TARGET))
    }

    /// Returns the whole URL, with its query.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Url(url) => url.to_string(),
            Self::Target(origin, target) => {
                format!("{}{}", origin_url(origin), target.path_and_query().map_or("/", |target| target.as_str()))
            }
        }
    }
}

/// The times of a request by the names of HAR. A time is `None` if its phase did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HarPhases {
    pub(super) blocked: Option<Duration>,
    pub(super) dns: Option<Duration>,
    /// With the times of a proxy and of TLS, as the format says.
    pub(super) connect: Option<Duration>,
    /// A part of `connect`.
    pub(super) ssl: Option<Duration>,
    /// A part of `connect`, of which the format does not know.
    pub(super) proxy: Option<Duration>,
    pub(super) send: Duration,
    pub(super) wait: Duration,
    pub(super) receive: Duration,
}

impl HarPhases {
    /// Returns the times of the last request of a call, without the backoff before it. `spent` has the time that it spent in a phase.
    fn of(timings: &Timings, spent: impl Fn(Phase) -> Duration) -> Self {
        // Nothing is looked up for a URL with an address. The moment that this takes is time before the dial.
        let is_looked_up = timings.used_lookup().is_none_or(|lookup| lookup.source != Source::Literal);
        let (dns, before) =
            if is_looked_up { (spent(Phase::Dns), Duration::ZERO) } else { (Duration::ZERO, spent(Phase::Dns)) };
        let has_lookup = is_looked_up && timings.used_lookup().is_some();
        let blocked = spent(Phase::Queue) + before;
        let ssl = happened(spent(Phase::Tls), timings.tls_facts().is_some() && !timings.reused());
        let proxy = happened(spent(Phase::Proxy), false);
        let connect = spent(Phase::Connect) + proxy.unwrap_or_default() + ssl.unwrap_or_default();
        Self {
            blocked: happened(blocked, timings.queued_by().is_some()),
            dns: happened(dns, has_lookup),
            connect: happened(connect, has_dialled_last(timings)),
            ssl,
            proxy,
            send: spent(Phase::Send),
            wait: spent(Phase::Wait),
            receive: spent(Phase::Receive),
        }
    }

    /// Returns the sum of the times, as the format counts: `ssl` is a part of `connect`.
    pub(super) fn total(&self) -> Duration {
        let optional = [self.blocked, self.dns, self.connect].into_iter().flatten().sum::<Duration>();
        optional + self.send + self.wait + self.receive
    }
}

/// Returns the time that a call's last request spent in a phase.
fn spent_last(timings: &Timings, phase: Phase) -> Duration {
    timings.hops().iter().fold(timings.spent(phase), |rest, hop| rest.saturating_sub(hop.spent(phase)))
}

/// Returns the time from the call's start until its last request began, or the backoff before it.
fn last_started(timings: &Timings) -> Duration {
    timings.hops().last().map_or(Duration::ZERO, |hop| hop.started + hop.elapsed)
}

/// Returns true if an address was dialled for the call's last request.
fn has_dialled_last(timings: &Timings) -> bool {
    let started = last_started(timings);
    timings.dialled().iter().any(|dialled| dialled.started >= started)
}

/// Returns the time of a phase that may not have happened.
fn happened(spent: Duration, has_begun: bool) -> Option<Duration> {
    (has_begun || !spent.is_zero()).then_some(spent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{cold_call, ms, no_address_call, request, retried_call, warm_call};

    #[test]
    fn debug_shows_no_secrets() {
        let headers = [(speeddial::header::COOKIE, "secret".parse().unwrap())].into_iter().collect();
        let url = Url::parse("http://me:secret@a.test/x?secret").unwrap();
        let entry = HarEntry::new(&Method::GET, &url, &cold_call()).request_headers(&headers);
        assert_eq!(format!("{entry:?}"), "HarEntry { method: GET, url: \"http://a.test/x\", .. }");
    }

    #[test]
    fn a_long_target_is_cut() {
        let mut long = (*request(&format!("http://api.test/{}", "a".repeat(30_000)))).clone();
        long.method = Method::from_bytes(&b"X".repeat(1_000)).unwrap();
        let entry = HarEntry::of_call(&long, &cold_call());
        assert_eq!(entry.place.url().len(), "http://api.test".len() + MAX_TARGET);
        assert_eq!(entry.method.as_str().len(), 32);
    }

    fn phases(timings: &Timings) -> HarPhases {
        HarEntry::new(&Method::GET, &Url::parse("http://api.test/").unwrap(), timings).phases
    }

    #[test]
    fn a_cold_request_has_a_lookup_and_a_connection() {
        let phases = phases(&cold_call());
        let expected = HarPhases {
            blocked: Some(ms(0)),
            dns: Some(ms(10)),
            connect: Some(ms(20)),
            ssl: None,
            proxy: None,
            send: ms(0),
            wait: ms(50),
            receive: ms(20),
        };
        assert_eq!((phases, phases.total()), (expected, ms(100)));
    }

    #[test]
    fn a_request_on_an_idle_connection_has_neither() {
        let phases = phases(&warm_call(5));
        let none = [phases.blocked, phases.dns, phases.connect, phases.ssl, phases.proxy];
        assert_eq!((none, [phases.send, phases.wait, phases.receive]), ([None; 5], [ms(0), ms(5), ms(0)]));
    }

    #[test]
    fn a_request_whose_name_has_no_address_dials_nothing() {
        let phases = phases(&no_address_call());
        assert_eq!((phases.dns, phases.connect, phases.total()), (Some(ms(30)), None, ms(30)));
    }

    #[test]
    fn only_the_last_request_counts_and_not_the_backoff_before_it() {
        let call = retried_call();
        let phases = phases(&call);
        assert_eq!((phases.connect, phases.wait, phases.total()), (None, ms(5), ms(5)));
        assert_eq!(call.total(), call.backoff() + ms(15));
        let entry = HarEntry::new(&Method::GET, &Url::parse("http://api.test/").unwrap(), &call);
        assert_eq!((entry.after, entry.after + ms(5)), (last_started(&call) + entry.backoff, call.total()));
    }

    #[test]
    fn the_connection_includes_proxy_and_tls() {
        let phases = HarPhases::of(&cold_call(), |phase| match phase {
            Phase::Dns => ms(2),
            Phase::Connect => ms(3),
            Phase::Proxy => ms(7),
            Phase::Tls => ms(18),
            Phase::Wait => ms(10),
            _ => ms(0),
        });
        assert_eq!((phases.blocked, phases.dns), (Some(ms(0)), Some(ms(2))));
        assert_eq!((phases.connect, phases.proxy, phases.ssl), (Some(ms(28)), Some(ms(7)), Some(ms(18))));
        assert_eq!(phases.total(), ms(40));
    }
}
