//! The user's policy for retrying calls, and the budget for retries that the calls to an origin share. A core.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::clock::Instant;
use crate::error::Error;
use crate::memory::Bounded;
use crate::origin::Origin;
use crate::redact::{self, Query};
use crate::trace::NotRetried;

/// A policy for retrying calls that failed. A client has none by default; it only makes resends that are
/// [always safe](crate::Client::execute).
///
/// A call is retried if its response has one of the policy's statuses, or if it got no response: the name could not be
/// resolved, the connection could not be opened or broke, or the headers did not arrive in time. If the server may have
/// acted on the request, it must be idempotent, by its method (RFC 9110 §9.2.2) or by an `Idempotency-Key` header. A
/// body that is a stream cannot be retried once it was read.
///
/// The wait before a retry is a random part of a time that doubles ("full jitter"). It is at least the response's
/// `Retry-After` (RFC 9110 §10.2.3). A retry that would begin after the call's deadline is not made. In the call's timings the
/// wait is the phase [`backoff`](crate::trace::Timings::backoff).
///
/// All calls of a client to one origin share a budget. By default each call adds a fifth of a retry to it, and each retry takes one
/// out. So an outage raises the load on a server by a fifth, and does not triple it, and takes no retries from calls to others.
///
/// ```
/// use std::time::Duration;
/// use speeddial::{Client, RetryPolicy, http::StatusCode};
///
/// let policy = RetryPolicy::new()
///     .attempts(4)
///     .backoff(Duration::from_millis(50), Duration::from_secs(2))
///     .statuses([StatusCode::SERVICE_UNAVAILABLE]);
/// let client = Client::builder().retry(policy).build();
/// ```
#[derive(Clone)]
pub struct RetryPolicy {
    max_attempts: u32,
    /// Returns true for the host of a request that may be retried. `None` for any host.
    hosts: Option<Arc<HostFn>>,
    /// Decides in place of the rules about statuses, errors and idempotent requests.
    classifier: Option<Arc<ClassifyFn>>,
    first_backoff: Duration,
    max_backoff: Duration,
    statuses: Vec<StatusCode>,
    max_retry_after: Duration,
    /// The retries that each call adds to the budget.
    per_call: f64,
    /// The retries that each second adds to the budget.
    per_second: f64,
}

type HostFn = dyn Fn(&str) -> bool + Send + Sync;
type ClassifyFn = dyn Fn(ReqRep<'_>) -> Action + Send + Sync;

/// Creates a [`RetryPolicy`] for requests to one host; others are not retried. The name is reqwest's.
///
/// ```
/// use speeddial::{Client, StatusCode, retry};
///
/// let policy = retry::for_host("api.example.com").classify_fn(|req_rep| match req_rep.status() {
///     Some(StatusCode::SERVICE_UNAVAILABLE) => req_rep.retryable(),
///     _ => req_rep.success(),
/// });
/// let client = Client::builder().retry(policy).build();
/// ```
pub fn for_host<S>(host: S) -> RetryPolicy
where
    S: for<'a> PartialEq<&'a str> + Send + Sync + 'static,
{
    RetryPolicy { hosts: Some(Arc::new(move |asked: &str| host == asked)), ..RetryPolicy::new() }
}

/// Creates a [`RetryPolicy`] that retries nothing. Resends that are [always safe](crate::Client::execute) are made all the
/// same. The name is reqwest's.
pub fn never() -> RetryPolicy {
    RetryPolicy::new().attempts(1)
}

/// A request and its outcome, about which a [classifier](RetryPolicy::classify_fn) decides.
pub struct ReqRep<'a> {
    pub(in crate::client) method: &'a Method,
    pub(in crate::client) uri: &'a Uri,
    pub(in crate::client) result: Result<StatusCode, &'a Error>,
}

impl fmt::Debug for ReqRep<'_> {
    // Without the query, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqRep")
            .field("method", self.method)
            .field("uri", &redact::url(&self.uri.to_string(), Query::LeftOut))
            .field("result", &self.result)
            .finish()
    }
}

impl ReqRep<'_> {
    /// Returns the request's method.
    pub fn method(&self) -> &Method {
        self.method
    }

    /// Returns the request's URI.
    pub fn uri(&self) -> &Uri {
        self.uri
    }

    /// Returns the response's status; `None` if there was no response.
    pub fn status(&self) -> Option<StatusCode> {
        self.result.ok()
    }

    /// Returns the error; `None` if there was a response.
    pub fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.result {
            Ok(_) => None,
            Err(error) => Some(error),
        }
    }

    /// Has the request retried, as far as the policy's other limits allow it.
    pub fn retryable(self) -> Action {
        Action { is_retryable: true }
    }

    /// Ends the call with this response or error.
    pub fn success(self) -> Action {
        Action { is_retryable: false }
    }
}

/// The decision of a [classifier](RetryPolicy::classify_fn), made by the methods of [`ReqRep`].
#[derive(Debug)]
#[must_use = "a decision has an effect when the classifier returns it"]
pub struct Action {
    is_retryable: bool,
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("max_attempts", &self.max_attempts)
            .field("first_backoff", &self.first_backoff)
            .field("max_backoff", &self.max_backoff)
            .field("statuses", &self.statuses)
            .field("max_retry_after", &self.max_retry_after)
            .field("per_call", &self.per_call)
            .field("per_second", &self.per_second)
            .finish_non_exhaustive()
    }
}

/// The outcome of an attempt, as far as the policy depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Outcome<'a> {
    /// A response with one of the policy's statuses, and with these headers.
    Status(&'a HeaderMap),
    /// An error before anything was sent: there was no connection.
    NotSent,
    /// An error after something was sent; the server may have acted on the request.
    Unknown,
    /// An outcome that the policy's classifier wants to be retried, with the response's headers if there was one.
    Retryable(Option<&'a HeaderMap>),
    /// An error that another attempt would meet again, or an outcome that the classifier or the policy's statuses
    /// accept.
    Final,
}

/// The attempts of a call so far, and whether it may be sent again.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct CallSoFar {
    /// The attempts so far.
    pub(in crate::client) attempts: u32,
    pub(in crate::client) is_idempotent: bool,
    /// True if the body can be sent again.
    pub(in crate::client) is_replayable: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryPolicy {
    /// Creates a policy with these defaults:
    ///
    /// * three attempts in all;
    /// * a backoff from 100 ms up to 10 s;
    /// * the statuses 429, 502, 503 and 504;
    /// * a `Retry-After` of a minute at most;
    /// * a budget of a fifth of all calls and one retry every ten seconds, with five to begin with.
    pub fn new() -> Self {
        let statuses = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        Self {
            max_attempts: 3,
            hosts: None,
            classifier: None,
            first_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            statuses: statuses.to_vec(),
            max_retry_after: Duration::from_secs(60),
            per_call: 0.2,
            per_second: 0.1,
        }
    }

    /// Retries nothing: for a request or a host of a client that has a policy. Resends that are [always safe](crate::Client::execute) are
    /// made all the same.
    pub fn none() -> Self {
        Self::new().attempts(1)
    }

    /// Sets the maximum number of attempts of a call, the first one included. Three by default; 0 and 1 mean no retry.
    /// Resends count as attempts if the server turned the request away, or closed a new connection at once.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { max_attempts: attempts, ..self }
    }

    /// Sets the maximum number of retries of a call: [`attempts`](Self::attempts) without the first one. The name is
    /// reqwest's.
    #[must_use]
    pub fn max_retries_per_request(self, max: u32) -> Self {
        self.attempts(max.saturating_add(1))
    }

    /// Sets the backoff: from 100 ms up to 10 s by default. The wait before the second attempt is a random part of
    /// `base`. `base` doubles for each further attempt, up to `most`.
    #[must_use]
    pub fn backoff(self, base: Duration, most: Duration) -> Self {
        Self { first_backoff: base, max_backoff: most, ..self }
    }

    /// Sets the response statuses that are retried. 429, 502, 503 and 504 by default. Without effect beside
    /// [`classify_fn`](Self::classify_fn), which decides about statuses itself.
    #[must_use]
    pub fn statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        Self { statuses: statuses.into_iter().collect(), ..self }
    }

    /// Sets the longest `Retry-After` that is waited for. One minute by default. A response with a longer one is not
    /// retried.
    #[must_use]
    pub fn max_retry_after(self, max: Duration) -> Self {
        Self { max_retry_after: max, ..self }
    }

    /// Sets the budget that a client's calls to one origin share: `per_call` retries for each call, for example 0.2, and `per_second`
    /// retries for each second. An origin begins with the retries of one second, but with five at least. Up to 100 unused retries are
    /// kept, for the 1,024 origins that were called last.
    ///
    /// The budget is the origin's, also for a policy that is [set for a request](crate::RequestBuilder::retry). Then these
    /// are what that call adds. 0 for both allows the call no retry, and leaves the budget as it is.
    #[must_use]
    pub fn budget(self, per_call: f64, per_second: f64) -> Self {
        Self { per_call: per_call.max(0.0), per_second: per_second.max(0.0), ..self }
    }

    /// Sets the share of retries that each call adds to the [budget](Self::budget): 0.2 by default. Negative shares and
    /// those that are not numbers count as 0. The name is reqwest's.
    #[must_use]
    pub fn max_extra_load(self, share: f32) -> Self {
        let per_second = self.per_second;
        self.budget(f64::from(share), per_second)
    }

    /// Takes the [budget](Self::budget) away, so that an outage may multiply the load on a server. The name is reqwest's.
    #[must_use]
    pub fn no_budget(self) -> Self {
        Self { per_call: f64::INFINITY, ..self }
    }

    /// Sets the function that decides which outcomes are retried, in place of the rules about statuses, errors and
    /// idempotent requests. The limits of attempts, the budget, and `Retry-After` apply all the same, and a body that is a
    /// stream cannot be sent again. The name is reqwest's.
    ///
    /// It is not asked about errors that another attempt would meet again: a certificate that is not valid, a body that
    /// failed, a token that cannot be had, an error of a function of
    /// [`before_attempt`](crate::ClientBuilder::before_attempt), or a client that is drained.
    #[must_use]
    pub fn classify_fn<F: Fn(ReqRep<'_>) -> Action + Send + Sync + 'static>(self, classifier: F) -> Self {
        Self { classifier: Some(Arc::new(classifier)), ..self }
    }

    /// Returns true if requests to this host may be retried.
    pub(in crate::client) fn covers(&self, host: &str) -> bool {
        self.hosts.as_ref().is_none_or(|covers| covers(host))
    }

    /// Classifies a response by its status.
    pub(in crate::client) fn outcome_of<'a>(&self, status: StatusCode, headers: &'a HeaderMap) -> Outcome<'a> {
        if self.statuses.contains(&status) { Outcome::Status(headers) } else { Outcome::Final }
    }

    /// Returns true if a classifier decides about outcomes.
    pub(in crate::client) fn has_classifier(&self) -> bool {
        self.classifier.is_some()
    }

    /// Returns true if the policy's classifier wants this outcome to be retried.
    pub(in crate::client) fn is_retryable(&self, outcome: ReqRep<'_>) -> bool {
        self.classifier.as_ref().is_some_and(|classify| classify(outcome).is_retryable)
    }

    /// Returns true if calls with this policy have a part in the budget: they add to it. A policy without a budget takes nothing out, and
    /// so adds nothing.
    fn uses_budget(&self) -> bool {
        self.per_call.is_finite() && (self.per_call > 0.0 || self.per_second > 0.0)
    }

    /// Returns the wait before another attempt, or why there is to be none, unless the outcome and the number of attempts say it.
    /// `random` is from 0 to 1, `wall` is the time of day.
    pub(in crate::client) fn wait(
        &self,
        outcome: Outcome<'_>,
        call: CallSoFar,
        random: f64,
        wall: SystemTime,
    ) -> Result<Duration, Option<NotRetried>> {
        if outcome == Outcome::Final || call.attempts >= self.max_attempts {
            return Err(None);
        }
        let retry_after = match outcome {
            Outcome::Status(_) | Outcome::Unknown if !call.is_idempotent => {
                return Err(Some(NotRetried::NotIdempotent));
            }
            Outcome::Status(headers) | Outcome::Retryable(Some(headers)) => parse_retry_after(headers, wall),
            _ => None,
        };
        if !call.is_replayable {
            return Err(Some(NotRetried::BodyIsGone("retried")));
        }
        if let Some(asked) = retry_after.filter(|asked| *asked > self.max_retry_after) {
            return Err(Some(NotRetried::RetryAfter { asked, most: self.max_retry_after }));
        }
        let doublings = call.attempts.saturating_sub(1);
        let doubled = 2_u32.checked_pow(doublings).and_then(|factor| self.first_backoff.checked_mul(factor));
        let backoff = doubled.unwrap_or(self.max_backoff).min(self.max_backoff).mul_f64(random);
        Ok(backoff.max(retry_after.unwrap_or_default()))
    }
}

/// Parses a `Retry-After` header: seconds, or a date. More seconds than a number holds are the longest time.
pub(in crate::client) fn parse_retry_after(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    // A date in the past means now.
    Some(httpdate::parse_http_date(text).ok()?.duration_since(wall).unwrap_or_default())
}

/// The retries that may be made to an origin at the moment.
#[derive(Debug)]
struct Budget {
    retries: f64,
    /// The time up to which `per_second` was added.
    updated_at: Instant,
}

/// The most retries that a budget holds.
const MAX_SAVED: f64 = 100.0;
/// The fewest retries that a budget begins with.
const MIN_FIRST_SAVED: f64 = 5.0;

/// The most origins whose budgets are kept.
const MAX_ORIGINS: usize = 1_024;

/// The budgets of origins.
#[derive(Debug)]
pub(in crate::client) struct Budgets(Bounded<Origin, Budget>);

impl Default for Budgets {
    fn default() -> Self {
        Self(Bounded::new(MAX_ORIGINS, Duration::MAX))
    }
}

impl Budgets {
    /// Adds the share of a retry that a new call brings.
    pub(in crate::client) fn deposit(&mut self, origin: &Origin, policy: &RetryPolicy, now: Instant) {
        if policy.uses_budget() {
            self.of(origin, policy, now).add(policy.per_call, policy, now);
        }
    }

    /// Takes a retry out. Returns false if there is none left.
    pub(in crate::client) fn withdraw(&mut self, origin: &Origin, policy: &RetryPolicy, now: Instant) -> bool {
        if policy.uses_budget() { self.of(origin, policy, now).withdraw(policy, now) } else { policy.per_call > 0.0 }
    }

    fn of(&mut self, origin: &Origin, policy: &RetryPolicy, now: Instant) -> &mut Budget {
        self.0.note(now, origin, || Budget::new(policy, now))
    }
}

impl Budget {
    fn new(policy: &RetryPolicy, now: Instant) -> Self {
        Self { retries: policy.per_second.clamp(MIN_FIRST_SAVED, MAX_SAVED), updated_at: now }
    }

    fn withdraw(&mut self, policy: &RetryPolicy, now: Instant) -> bool {
        self.add(0.0, policy, now);
        if self.retries < 1.0 {
            return false;
        }
        self.retries -= 1.0;
        true
    }

    /// Adds `retries`, and those for the time since the last update.
    fn add(&mut self, retries: f64, policy: &RetryPolicy, now: Instant) {
        let seconds = (now - self.updated_at).as_secs_f64();
        self.updated_at = self.updated_at.max(now);
        self.retries = (self.retries + retries + seconds * policy.per_second).min(MAX_SAVED);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const FIRST: CallSoFar = CallSoFar { attempts: 1, is_idempotent: true, is_replayable: true };
    const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn wait(outcome: Outcome<'_>, call: CallSoFar) -> Option<Duration> {
        RetryPolicy::new().wait(outcome, call, 1.0, EPOCH).ok()
    }

    #[test]
    fn the_reason_why_a_retry_is_not_made_is_told_unless_the_attempts_are_used_up() {
        let why = |outcome, call| RetryPolicy::new().wait(outcome, call, 1.0, EPOCH).unwrap_err();
        let text = |outcome, call| why(outcome, call).unwrap().to_string();
        let headers = with_retry_after("120");
        let busy = Outcome::Status(&headers);
        assert_eq!(text(busy, FIRST), "not retried, since Retry-After 120 s is above 60 s");
        let forever = with_retry_after("18446744073709551616");
        assert_eq!(text(Outcome::Retryable(Some(&forever)), FIRST), "not retried, since Retry-After is above 60 s");
        let post = CallSoFar { is_idempotent: false, ..FIRST };
        let acted = "not retried, since the server may have acted on it, and it is not idempotent";
        assert_eq!([busy, Outcome::Unknown].map(|outcome| text(outcome, post)), [acted; 2]);
        let gone = CallSoFar { is_replayable: false, ..FIRST };
        assert_eq!(
            text(Outcome::NotSent, gone),
            "not retried, since its body was a stream, which cannot be sent again"
        );
        assert_eq!([why(Outcome::Final, gone), why(busy, CallSoFar { attempts: 3, ..post })], [None; 2]);
    }

    #[test]
    fn debug_of_an_outcome_shows_no_secrets() {
        let uri = Uri::from_static("http://me:secret@a.test/x?secret");
        let asked = ReqRep { method: &Method::GET, uri: &uri, result: Ok(StatusCode::OK) };
        assert_eq!(format!("{asked:?}"), "ReqRep { method: GET, uri: \"http://a.test/x\", result: Ok(200) }");
    }

    fn with_retry_after(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_request_that_may_have_been_processed_is_retried_if_it_is_idempotent() {
        let none = HeaderMap::new();
        let busy = RetryPolicy::new().outcome_of(StatusCode::SERVICE_UNAVAILABLE, &none);
        let post = CallSoFar { is_idempotent: false, ..FIRST };
        assert_eq!([busy, Outcome::NotSent, Outcome::Unknown].map(|outcome| wait(outcome, FIRST)), [Some(ms(100)); 3]);
        assert_eq!(
            [busy, Outcome::NotSent, Outcome::Unknown].map(|outcome| wait(outcome, post)),
            [None, Some(ms(100)), None]
        );
        assert_eq!(wait(Outcome::Final, FIRST), None);
        for status in [200, 304, 400, 404, 409, 500, 501] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(wait(RetryPolicy::new().outcome_of(status, &none), FIRST), None, "{status}");
        }
        assert_eq!(wait(busy, CallSoFar { is_replayable: false, ..FIRST }), None);
    }

    #[test]
    fn the_backoff_doubles_is_random_and_ends() {
        let policy = RetryPolicy::new().attempts(100);
        let after = |attempts, random| {
            policy
                .wait(Outcome::NotSent, CallSoFar { attempts, ..FIRST }, random, EPOCH)
                .ok()
                .map(|wait| wait.as_millis())
        };
        assert_eq!(
            [1, 2, 3, 7, 8, 40, 99].map(|n| after(n, 1.0).unwrap()),
            [100, 200, 400, 6_400, 10_000, 10_000, 10_000]
        );
        assert_eq!((after(3, 0.0), after(3, 0.5)), (Some(0), Some(200)));
        assert_eq!(after(100, 1.0), None);
        for attempts in [0, 1] {
            assert_eq!(RetryPolicy::new().attempts(attempts).wait(Outcome::NotSent, FIRST, 1.0, EPOCH).ok(), None);
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let policy = RetryPolicy::new();
        let busy = |headers: &HeaderMap, wall| {
            policy.wait(policy.outcome_of(StatusCode::TOO_MANY_REQUESTS, headers), FIRST, 1.0, wall).ok()
        };
        assert_eq!(busy(&with_retry_after("7"), EPOCH), Some(ms(7_000)));
        assert_eq!(busy(&with_retry_after("0"), EPOCH), Some(ms(100)), "the backoff is the shortest wait");
        assert_eq!(busy(&with_retry_after("60"), EPOCH), Some(ms(60_000)));
        assert_eq!(busy(&with_retry_after("61"), EPOCH), None, "longer than the limit");
        let date = with_retry_after("Thu, 01 Jan 1970 00:00:30 GMT");
        assert_eq!(busy(&date, EPOCH), Some(ms(30_000)));
        assert_eq!(busy(&date, EPOCH + ms(20_000)), Some(ms(10_000)));
        assert_eq!(busy(&date, EPOCH + ms(90_000)), Some(ms(100)), "a date in the past");
        assert_eq!(busy(&with_retry_after("18446744073709551616"), EPOCH), None, "longer than any limit");
        for nonsense in ["", "soon", "-1", "+1", "1.5"] {
            assert_eq!(busy(&with_retry_after(nonsense), EPOCH), Some(ms(100)), "{nonsense}");
        }
    }

    #[test]
    fn a_classifier_decides_in_place_of_the_rules() {
        let policy = for_host("a.test").classify_fn(|req_rep| match (req_rep.method().as_str(), req_rep.status()) {
            ("POST", Some(StatusCode::CONFLICT)) => req_rep.retryable(),
            _ => req_rep.success(),
        });
        let uri = Uri::from_static("http://a.test/");
        let decides =
            |method: Method, status| policy.is_retryable(ReqRep { method: &method, uri: &uri, result: Ok(status) });
        assert!(decides(Method::POST, StatusCode::CONFLICT));
        assert!(!decides(Method::GET, StatusCode::CONFLICT) && !decides(Method::POST, StatusCode::BAD_GATEWAY));
        assert!(policy.covers("a.test") && !policy.covers("b.test") && RetryPolicy::new().covers("b.test"));
        let post = CallSoFar { is_idempotent: false, ..FIRST };
        let headers = with_retry_after("7");
        assert_eq!(policy.wait(Outcome::Retryable(Some(&headers)), post, 1.0, EPOCH).ok(), Some(ms(7_000)));
        assert_eq!(policy.wait(Outcome::Retryable(None), post, 1.0, EPOCH).ok(), Some(ms(100)));
        let gone = CallSoFar { is_replayable: false, ..FIRST };
        assert_eq!(policy.wait(Outcome::Retryable(None), gone, 1.0, EPOCH).ok(), None, "the body is gone");
        assert_eq!(never().wait(Outcome::Retryable(None), FIRST, 1.0, EPOCH).ok(), None);
    }

    #[test]
    fn each_setting_changes_what_it_names() {
        let none = HeaderMap::new();
        let waits = |policy: &RetryPolicy| {
            let after = |attempts| policy.wait(Outcome::NotSent, CallSoFar { attempts, ..FIRST }, 1.0, EPOCH).ok();
            (1..).map_while(after).map(|wait| wait.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(waits(&RetryPolicy::new()), [100, 200]);
        assert_eq!(waits(&RetryPolicy::none()), []);
        assert_eq!(waits(&RetryPolicy::new().max_retries_per_request(3)), [100, 200, 400]);
        let most = RetryPolicy::new().max_retries_per_request(u32::MAX);
        assert_eq!(most.wait(Outcome::NotSent, FIRST, 1.0, EPOCH).ok(), Some(ms(100)));
        assert_eq!(waits(&RetryPolicy::new().attempts(5).backoff(ms(5), ms(15))), [5, 10, 15, 15]);
        let conflicts = RetryPolicy::new().statuses([StatusCode::CONFLICT]);
        let after = |status| conflicts.wait(conflicts.outcome_of(status, &none), FIRST, 1.0, EPOCH).ok();
        assert_eq!([StatusCode::CONFLICT, StatusCode::BAD_GATEWAY].map(after), [Some(ms(100)), None]);
        let hasty = RetryPolicy::new().max_retry_after(ms(5_000));
        let after =
            |headers| hasty.wait(hasty.outcome_of(StatusCode::TOO_MANY_REQUESTS, &headers), FIRST, 1.0, EPOCH).ok();
        assert_eq!(["5", "6"].map(with_retry_after).map(after), [Some(ms(5_000)), None]);
    }

    #[test]
    fn a_classifier_sees_the_request_and_its_error() {
        let uri = Uri::from_static("http://a.test/x");
        let error = Error::no_runtime();
        let seen = ReqRep { method: &Method::GET, uri: &uri, result: Err(&error) };
        assert_eq!((seen.method(), seen.uri(), seen.status()), (&Method::GET, &uri, None));
        assert_eq!(seen.error().map(ToString::to_string), Some(error.to_string()));
        let seen = ReqRep { result: Ok(StatusCode::OK), ..seen };
        assert!(seen.error().is_none());
        assert!(RetryPolicy::new().classify_fn(|seen| seen.success()).has_classifier());
        assert!(!RetryPolicy::new().has_classifier());
    }

    fn origin() -> Origin {
        Origin::from_url(&"http://a.test".parse().unwrap()).unwrap()
    }

    #[test]
    fn a_call_that_adds_nothing_to_the_budget_gets_no_retry_from_it_and_leaves_it_as_it_is() {
        let start = crate::clock::now();
        for (per_call, per_second, may_retry) in [(0.0, 0.0, false), (0.2, 0.0, true), (0.0, 0.1, true)] {
            let policy = RetryPolicy::new().budget(per_call, per_second);
            let mut full = Budgets::default();
            full.deposit(&origin(), &RetryPolicy::new(), start);
            let is_retried = full.withdraw(&origin(), &policy, start);
            assert_eq!(is_retried, may_retry, "{per_call} for a call, {per_second} for a second");
        }
        // The first call to an origin decides nothing, and no time is lost by it.
        let (none, usual) = (RetryPolicy::new().budget(0.0, 0.0), RetryPolicy::new().budget(0.0, 1.0));
        let mut budgets = Budgets::default();
        budgets.deposit(&origin(), &none, start);
        assert!((0..6).map(|_| budgets.withdraw(&origin(), &usual, start)).eq([true, true, true, true, true, false]));
        let later = start + ms(1_000);
        budgets.deposit(&origin(), &none, later);
        assert!(!budgets.withdraw(&origin(), &none, later) && budgets.withdraw(&origin(), &usual, later));
    }

    #[test]
    fn a_budget_can_be_a_share_or_none() {
        let start = crate::clock::now();
        let granted = |policy: RetryPolicy| {
            let mut budgets = Budgets::default();
            (0..1_000)
                .filter(|_| {
                    budgets.deposit(&origin(), &policy, start);
                    budgets.withdraw(&origin(), &policy, start)
                })
                .count()
        };
        assert_eq!(granted(RetryPolicy::new().no_budget()), 1_000);
        assert_eq!(granted(RetryPolicy::new().max_extra_load(0.5)), 505, "a half, and the first five");
        assert_eq!(granted(RetryPolicy::new().max_extra_load(f32::NAN).budget(-1.0, 0.0)), 0);
    }

    #[test]
    fn the_budget_of_an_origin_is_its_own() {
        let (policy, now) = (RetryPolicy::new(), crate::clock::now());
        let origin = |number: usize| {
            let url = url::Url::parse(&format!("http://host{number}.test/")).unwrap();
            Origin::from_url(&url).unwrap()
        };
        let mut budgets = Budgets::default();
        let mut retries = |number, at| {
            let has_more = |_: &usize| budgets.withdraw(&origin(number), &policy, at);
            (0..100).take_while(has_more).count()
        };
        assert_eq!((retries(1, now), retries(1, now), retries(2, now)), (5, 0, 5));
        assert_eq!(retries(1, now + ms(20_000)), 2, "it is filled again");
        // Others that come after it make room by its half, and it begins anew.
        for number in 3..3 * MAX_ORIGINS {
            retries(number, now);
        }
        assert_eq!((retries(1, now + ms(20_000)), budgets.0.len() <= MAX_ORIGINS), (5, true));
    }

    #[test]
    fn the_budget_keeps_retries_of_an_outage_to_a_fifth() {
        let policy = RetryPolicy::new();
        let start = crate::clock::now();
        let mut budgets = Budgets::default();
        let mut retries = 0;
        // 10,000 calls in 10 s, each of which would be retried twice.
        for call in 0..10_000 {
            let now = start + ms(call);
            budgets.deposit(&origin(), &policy, now);
            retries += (0..2).filter(|_| budgets.withdraw(&origin(), &policy, now)).count();
        }
        assert!((2_000..=2_010).contains(&retries), "a fifth, the first five, and one for ten seconds: {retries}");
        // Unused retries are kept, up to a limit.
        let later = start + ms(10_000_000);
        assert_eq!((0..1_000).filter(|_| budgets.withdraw(&origin(), &policy, later)).count(), 100);
    }
}
