//! Whether a call that failed is made once more by choice, when, and whether the client's budget has room for it. A core.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::clock::Instant;

/// When calls are made again that failed: not at all by default, beyond what is [safe](crate::Client::execute) and always done.
///
/// A policy repeats a call whose response has one of its statuses, or that got none: a name that could not be resolved, a
/// connection that could not be opened or that broke, headers that did not come in time. Where the peer may have done something
/// about a request it has to be idempotent, by its method (RFC 9110 §9.2.2) or because it has an `Idempotency-Key`; and its body
/// has to be bytes. Between two attempts it waits for a random part of a time that doubles ("full jitter"), at least for what
/// the response's `Retry-After` says (RFC 9110 §10.2.3), and never past the call's deadline.
///
/// All calls of a client share a budget: each of them adds a part of a retry to it, each retry takes one out. So an outage
/// makes the load on a server a fifth higher, not three times as high.
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
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    attempts: u32,
    base: Duration,
    most: Duration,
    statuses: Vec<StatusCode>,
    patience: Duration,
    ratio: f64,
    per_second: f64,
}

/// What came of an attempt, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// A response, with its headers.
    Status(StatusCode, &'a HeaderMap),
    /// No connection: nothing was sent.
    NotSent,
    /// No response, or not in time; the peer may have done something.
    Unknown,
    /// Something that would be so again.
    Final,
}

/// What is known about the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallSoFar {
    /// How many times it was made.
    pub(super) attempts: u32,
    pub(super) is_idempotent: bool,
    /// Its body is there to be sent again.
    pub(super) is_replayable: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryPolicy {
    /// Three attempts in all, a backoff from 100 ms up to 10 s, for the statuses 429, 502, 503 and 504, a `Retry-After` of a minute at
    /// most, and a budget of a fifth of all calls and one retry every ten seconds, with five saved up to begin with.
    pub fn new() -> Self {
        let statuses = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        Self {
            attempts: 3,
            base: Duration::from_millis(100),
            most: Duration::from_secs(10),
            statuses: statuses.to_vec(),
            patience: Duration::from_secs(60),
            ratio: 0.2,
            per_second: 0.1,
        }
    }

    /// The most attempts of a call, the first one included; 0 and 1 mean no retry. Where servers turn requests away, or close new
    /// connections at once, the client resends them also without a policy, and that counts.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Self { attempts, ..self }
    }

    /// The wait before the second attempt is a random part of `base`, and twice as much before each further one, up to `most`.
    #[must_use]
    pub fn backoff(self, base: Duration, most: Duration) -> Self {
        Self { base, most, ..self }
    }

    /// Which statuses are worth another attempt.
    #[must_use]
    pub fn statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        Self { statuses: statuses.into_iter().collect(), ..self }
    }

    /// The longest `Retry-After` that is waited for. Where a server asks for more, its response is that of the call.
    #[must_use]
    pub fn max_retry_after(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// How many retries there may be among a client's calls: a part of them, 0.2 say, and so many a second besides. A client
    /// begins with those of a second, and with five at least unless both are 0; it saves up 100 at most.
    #[must_use]
    pub fn budget(self, ratio: f64, per_second: f64) -> Self {
        Self { ratio: ratio.max(0.0), per_second: per_second.max(0.0), ..self }
    }

    /// For how long to wait before another attempt, where there is to be one; `random` is from 0 to 1, `wall` the time of day.
    pub(super) fn wait(
        &self,
        outcome: Outcome<'_>,
        call: CallSoFar,
        random: f64,
        wall: SystemTime,
    ) -> Option<Duration> {
        let asked = match outcome {
            Outcome::Status(status, headers) if self.statuses.contains(&status) && call.is_idempotent => {
                retry_after(headers, wall)
            }
            Outcome::NotSent => None,
            Outcome::Unknown if call.is_idempotent => None,
            _ => return None,
        };
        if call.attempts >= self.attempts || !call.is_replayable || asked.is_some_and(|asked| asked > self.patience) {
            return None;
        }
        let doubled = 2_u32.checked_pow(call.attempts.saturating_sub(1)).and_then(|times| self.base.checked_mul(times));
        let backoff = doubled.unwrap_or(self.most).min(self.most).mul_f64(random);
        Some(asked.map_or(backoff, |asked| asked.max(backoff)))
    }
}

/// What a server says about when to come again: seconds, or a date.
fn retry_after(headers: &HeaderMap, wall: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        // A date in the past means now.
        Err(_) => Some(httpdate::parse_http_date(text).ok()?.duration_since(wall).unwrap_or_default()),
    }
}

/// How many retries a client may make at the moment.
#[derive(Debug)]
pub(super) struct Budget {
    tokens: f64,
    since: Instant,
}

/// The most retries that may be saved up, and the fewest that a client begins with.
const MOST_SAVED: f64 = 100.0;
const FIRST_SAVED: f64 = 5.0;

impl Budget {
    pub(super) fn new(policy: &RetryPolicy, now: Instant) -> Self {
        let has_any = policy.ratio > 0.0 || policy.per_second > 0.0;
        let tokens = if has_any { policy.per_second.clamp(FIRST_SAVED, MOST_SAVED) } else { 0.0 };
        Self { tokens, since: now }
    }

    /// A call begins.
    pub(super) fn deposit(&mut self, policy: &RetryPolicy, now: Instant) {
        self.add(policy.ratio, policy, now);
    }

    /// Whether there may be a retry now.
    pub(super) fn withdraw(&mut self, policy: &RetryPolicy, now: Instant) -> bool {
        self.add(0.0, policy, now);
        let is_enough = self.tokens >= 1.0;
        if is_enough {
            self.tokens -= 1.0;
        }
        is_enough
    }

    fn add(&mut self, tokens: f64, policy: &RetryPolicy, now: Instant) {
        let seconds = now.saturating_duration_since(self.since).as_secs_f64();
        self.since = self.since.max(now);
        self.tokens = (self.tokens + tokens + seconds * policy.per_second).min(MOST_SAVED);
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
        RetryPolicy::new().wait(outcome, call, 1.0, EPOCH)
    }

    fn says(retry_after: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(retry_after))])
    }

    #[test]
    fn what_may_have_happened_is_repeated_where_that_does_no_harm() {
        let none = HeaderMap::new();
        let busy = Outcome::Status(StatusCode::SERVICE_UNAVAILABLE, &none);
        let post = CallSoFar { is_idempotent: false, ..FIRST };
        assert_eq!([busy, Outcome::NotSent, Outcome::Unknown].map(|outcome| wait(outcome, FIRST)), [Some(ms(100)); 3]);
        assert_eq!(
            [busy, Outcome::NotSent, Outcome::Unknown].map(|outcome| wait(outcome, post)),
            [None, Some(ms(100)), None]
        );
        assert_eq!(wait(Outcome::Final, FIRST), None);
        for status in [200, 304, 400, 404, 409, 500, 501] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(wait(Outcome::Status(status, &none), FIRST), None, "{status}");
        }
        assert_eq!(wait(busy, CallSoFar { is_replayable: false, ..FIRST }), None);
    }

    #[test]
    fn the_wait_doubles_is_random_and_ends() {
        let policy = RetryPolicy::new().attempts(100);
        let after = |attempts, random| {
            policy.wait(Outcome::NotSent, CallSoFar { attempts, ..FIRST }, random, EPOCH).map(|wait| wait.as_millis())
        };
        assert_eq!(
            [1, 2, 3, 7, 8, 40, 99].map(|n| after(n, 1.0).unwrap()),
            [100, 200, 400, 6_400, 10_000, 10_000, 10_000]
        );
        assert_eq!((after(3, 0.0), after(3, 0.5)), (Some(0), Some(200)));
        assert_eq!(after(100, 1.0), None);
        for attempts in [0, 1] {
            assert_eq!(RetryPolicy::new().attempts(attempts).wait(Outcome::NotSent, FIRST, 1.0, EPOCH), None);
        }
    }

    #[test]
    fn a_server_says_when_to_come_again_in_both_forms() {
        let busy = |headers: &HeaderMap, wall| {
            RetryPolicy::new().wait(Outcome::Status(StatusCode::TOO_MANY_REQUESTS, headers), FIRST, 1.0, wall)
        };
        assert_eq!(busy(&says("7"), EPOCH), Some(ms(7_000)));
        assert_eq!(busy(&says("0"), EPOCH), Some(ms(100)), "the backoff is the least");
        assert_eq!(busy(&says("60"), EPOCH), Some(ms(60_000)));
        assert_eq!(busy(&says("61"), EPOCH), None, "it is not waited for that long");
        let date = says("Thu, 01 Jan 1970 00:00:30 GMT");
        assert_eq!(busy(&date, EPOCH), Some(ms(30_000)));
        assert_eq!(busy(&date, EPOCH + ms(20_000)), Some(ms(10_000)));
        assert_eq!(busy(&date, EPOCH + ms(90_000)), Some(ms(100)), "that was before");
        for nonsense in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(busy(&says(nonsense), EPOCH), Some(ms(100)), "{nonsense}");
        }
    }

    #[test]
    fn an_outage_makes_no_storm() {
        let policy = RetryPolicy::new();
        let start = crate::clock::now();
        let mut budget = Budget::new(&policy, start);
        let mut retries = 0;
        // 10,000 calls in 10 s, each of which would be made twice more.
        for call in 0..10_000 {
            let now = start + ms(call);
            budget.deposit(&policy, now);
            retries += (0..2).filter(|_| budget.withdraw(&policy, now)).count();
        }
        assert!((2_000..=2_010).contains(&retries), "a fifth, those saved up, and one in ten seconds: {retries}");
        let none = RetryPolicy::new().budget(0.0, 0.0);
        assert!(!Budget::new(&none, start).withdraw(&none, start + ms(1_000_000)));
        // What was not used is saved, but not for ever.
        let mut saved = Budget::new(&policy, start);
        let later = start + ms(10_000_000);
        assert_eq!((0..1_000).filter(|_| saved.withdraw(&policy, later)).count(), 100);
    }
}
