//! The state of a token: fresh, due for a refresh, expired, or rejected; and of its refresh: running, or backing off after
//! a failure. A core.
//!
//! | the token is | a caller | a refresh |
//! |---|---|---|
//! | fresh | gets it | is not begun |
//! | due: in the last part of its life | gets it | begins in the background, unless the last one failed a moment ago |
//! | missing or expired | waits for the refresh | begins, unless one is running |
//! | rejected by a server | gets it, unless its own request was rejected: then it waits for the refresh | begins, unless one is running |
//! | the same as in the last two, and the last refresh failed a moment ago | gets the error of that refresh | is not begun |
//!
//! A caller that waited gets what its refresh brought, even a token that has expired by then. So it waits for one finished refresh at most.
//!
//! A refresh that does not end is lost: its runtime is not driven. Another one may begin after [`LOST_AFTER`].

use std::fmt;
use std::time::Duration;

use http::HeaderValue;
use http::header::InvalidHeaderValue;

use crate::clock::Instant;
use crate::memory::{Flight, Flights, Joined};

/// The longest time that a refresh may take.
pub(crate) const REFRESH_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time before a token's expiry at which it is refreshed. A token with a short life is refreshed when a tenth
/// of its life is left.
pub(crate) const REFRESH_AHEAD: Duration = Duration::from_secs(60);
/// The pause after a failed refresh. It doubles with each further failure.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after a failed refresh.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The age that a token must have to be replaced because a server rejected it, if the token before it was rejected too. A
/// server that rejects every token does not cause a refresh with each request.
pub(crate) const REJECTION_PAUSE: Duration = Duration::from_secs(5);

/// The time after which a refresh that has not ended is taken for lost. It is longer than a refresh may take, so that one that
/// takes too long ends with its error first.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(31);

/// A value with the number of the refresh that brought it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered<V> {
    pub(crate) value: V,
    pub(crate) number: u64,
}

/// The token and its refresh. `V` is the token's value, `E` the error of a refresh, and `H` the driver's handle on one.
#[derive(Debug)]
pub(super) struct TokenState<V, E, H> {
    token: Option<Current<V>>,
    /// The refresh that runs. Its number is that of the token that it brings.
    flights: Flights<(), H>,
    /// True if a caller waits for it.
    has_callers: bool,
    /// The last refresh's failure.
    failure: Option<FailedRefresh<E>>,
    /// The refreshes that failed in a row.
    failures: u32,
    /// True if the last token was rejected by a server.
    was_rejected: bool,
}

#[derive(Debug)]
struct Current<V> {
    token: Numbered<V>,
    since: Instant,
    /// The time from which on it is refreshed if it is used.
    due: Option<Instant>,
    expires: Option<Instant>,
    is_used: bool,
    /// True if it replaced a token that a server rejected.
    replaced_rejected: bool,
}

#[derive(Debug)]
struct FailedRefresh<E> {
    error: E,
    /// The time before which no refresh is begun.
    until: Instant,
}

/// The answer to a caller that needs a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TokenAnswer<V, E, H> {
    Token(Numbered<V>),
    /// The caller waits for what this refresh brings, and asks again if it is lost.
    Wait(Flight<H>),
    Failed(E),
}

/// The answer to a caller, and the refresh that is to be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenStep<V, E, H> {
    pub(super) answer: TokenAnswer<V, E, H>,
    pub(super) start: Option<Flight<H>>,
}

impl<V: Clone, E: Clone, H: Clone + Default> TokenState<V, E, H> {
    pub(super) fn new() -> Self {
        Self {
            token: None,
            flights: Flights::new(LOST_AFTER),
            has_callers: false,
            failure: None,
            failures: 0,
            was_rejected: false,
        }
    }

    /// Answers a caller that needs a token. `rejected` is the number of the token that it had and that was rejected.
    pub(super) fn get(&mut self, now: Instant, rejected: Option<u64>) -> TokenStep<V, E, H> {
        let is_backing_off = self.is_backing_off(now);
        let is_newer = |current: &Current<V>| rejected.is_none_or(|rejected| current.token.number > rejected);
        let is_good = |current: &&mut Current<V>| !current.is_expired(now) && is_newer(current);
        if let Some(current) = self.token.as_mut().filter(is_good) {
            current.is_used = true;
            let token = current.token.clone();
            let refreshes = current.is_due(now) && !is_backing_off;
            let start = if refreshes { self.begin(now) } else { None };
            return TokenStep { answer: TokenAnswer::Token(token), start };
        }
        if let Some(failure) = self.failure.as_ref().filter(|_| is_backing_off)
            && !self.flights.is_running(now, &())
        {
            return TokenStep { answer: TokenAnswer::Failed(failure.error.clone()), start: None };
        }
        self.has_callers = true;
        match self.flights.join_or_add(now, ()) {
            Joined::Running(flight) => TokenStep { answer: TokenAnswer::Wait(flight), start: None },
            Joined::New(flight) => TokenStep { answer: TokenAnswer::Wait(flight.clone()), start: Some(flight) },
        }
    }

    /// Takes the result of a refresh: a token with the length of its life, or an error. That of one that was taken for lost has no say.
    pub(super) fn end(&mut self, now: Instant, number: u64, result: Result<(V, Option<Duration>), E>) {
        if !self.flights.remove(&(), number) {
            return;
        }
        let has_callers = std::mem::take(&mut self.has_callers);
        match result {
            Ok((value, life)) => {
                self.failure = None;
                self.failures = 0;
                let token = Numbered { value, number };
                let replaced_rejected = std::mem::take(&mut self.was_rejected);
                let mut current = Current::new(token, now, life, replaced_rejected);
                current.is_used = has_callers;
                self.token = Some(current);
            }
            Err(error) => {
                let doublings = self.failures.min(16);
                self.failures += 1;
                let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE);
                self.failure = Some(FailedRefresh { error, until: now + pause });
            }
        }
    }

    /// Forgets a refresh that was lost with its runtime. The next caller begins another one.
    pub(super) fn lose(&mut self, number: u64) {
        self.flights.remove(&(), number);
    }

    /// Takes note that a server rejected the token with this number. Returns true if another attempt with a newer token is of use. Other
    /// callers get the token until there is a newer one: it may be good for them, and getting one may fail.
    pub(super) fn reject(&mut self, now: Instant, number: u64) -> bool {
        let Some(current) = self.token.as_ref().filter(|current| current.token.number == number) else {
            return true; // there is a newer one, or another request has had it rejected
        };
        if current.replaced_rejected && now - current.since < REJECTION_PAUSE {
            return false;
        }
        self.was_rejected = true;
        true
    }

    /// Returns the number of the token, if a server has rejected it.
    pub(super) fn rejected(&self) -> Option<u64> {
        self.token.as_ref().filter(|_| self.was_rejected).map(|current| current.token.number)
    }

    /// Handles the timeout that is due. Returns the refresh that is to be started, if the token was used in its life.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> Option<Flight<H>> {
        let current = self.token.as_ref()?;
        let is_wanted = current.is_used && current.is_due(now) && !current.is_expired(now);
        if is_wanted && !self.is_backing_off(now) { self.begin(now) } else { None }
    }

    /// Returns the time of the next refresh ahead.
    pub(super) fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let current = self.token.as_ref().filter(|_| !self.flights.is_running(now, &()))?;
        let at = current.due?.max(self.failure.as_ref().map_or(now, |failure| failure.until));
        // A token that was not used until then is refreshed at its next use.
        if at > now && !current.is_expired(at) { Some(at) } else { None }
    }

    /// Begins a refresh, unless one runs.
    fn begin(&mut self, now: Instant) -> Option<Flight<H>> {
        match self.flights.join_or_add(now, ()) {
            Joined::Running(_) => None,
            Joined::New(flight) => Some(flight),
        }
    }

    fn is_backing_off(&self, now: Instant) -> bool {
        self.failure.as_ref().is_some_and(|failure| now < failure.until)
    }
}

impl<V> Current<V> {
    fn new(token: Numbered<V>, now: Instant, life: Option<Duration>, replaced_rejected: bool) -> Self {
        let expires = life.and_then(|life| now.checked_add(life));
        let due = life.and_then(|life| now.checked_add(life - (life / 10).min(REFRESH_AHEAD)));
        Self { token, since: now, due, expires, is_used: false, replaced_rejected }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// A bearer token (RFC 6750) with the length of its life. Its `Debug` output does not show the secret.
///
/// ```
/// use std::time::Duration;
/// use speeddial::token::Token;
///
/// let token = Token::new("s3cr3t").expires_in(Duration::from_secs(3600));
/// assert!(!format!("{token:?}").contains("s3cr3t"));
/// ```
#[derive(Clone)]
pub struct Token {
    header: Result<HeaderValue, InvalidToken>,
    life: Option<Duration>,
}

/// A token that no header can hold. Its text is not part of the error.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the token has characters that no header may have")]
pub(super) struct InvalidToken;

impl From<InvalidHeaderValue> for InvalidToken {
    fn from(_: InvalidHeaderValue) -> Self {
        Self
    }
}

impl Token {
    /// Creates a token that is used until a server rejects it. `secret` is the token alone, without `Bearer`.
    ///
    /// A secret with characters that no header may have, such as a line break, is an error of the calls that need it.
    pub fn new(secret: impl AsRef<str>) -> Self {
        let header = HeaderValue::try_from(format!("Bearer {}", secret.as_ref())).map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Self { header: header.map_err(Into::into), life: None }
    }

    /// Sets the time after which the token is no longer valid, counted from its arrival (`expires_in` of RFC 6749 §5.1).
    /// No end by default.
    #[must_use]
    pub fn expires_in(self, life: Duration) -> Self {
        Self { life: Some(life), ..self }
    }

    /// Returns the value of the `Authorization` header, and the length of the token's life.
    pub(super) fn into_parts(self) -> Result<(HeaderValue, Option<Duration>), InvalidToken> {
        Ok((self.header?, self.life))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires_in", &self.life).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    type Tested = TokenState<&'static str, &'static str, ()>;
    type Step = TokenStep<&'static str, &'static str, ()>;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn token(value: &'static str, number: u64) -> Step {
        TokenStep { answer: TokenAnswer::Token(Numbered { value, number }), start: None }
    }

    /// The refresh `number`, which began at `since`.
    fn refresh(since: Instant, number: u64) -> Flight<()> {
        Flight { handle: (), serial: number, counts_until: since + LOST_AFTER }
    }

    /// The answer to a caller that waits for the refresh `number`, which began at `since`.
    fn waits(since: Instant, number: u64, starts: bool) -> Step {
        let refresh = refresh(since, number);
        TokenStep { answer: TokenAnswer::Wait(refresh.clone()), start: starts.then_some(refresh) }
    }

    fn fails(error: &'static str) -> Step {
        TokenStep { answer: TokenAnswer::Failed(error), start: None }
    }

    /// Returns a state whose first refresh has brought a token at `now`.
    fn with_token(now: Instant, life: Option<Duration>) -> Tested {
        let mut state = Tested::new();
        assert_eq!(state.get(now, None), waits(now, 1, true));
        state.end(now, 1, Ok(("one", life)));
        state
    }

    #[test]
    fn callers_share_one_refresh() {
        let t0 = clock::now();
        let mut state = Tested::new();
        assert_eq!(state.get(t0, None), waits(t0, 1, true));
        assert_eq!(state.get(t0, None), waits(t0, 1, false));
        state.end(t0, 1, Ok(("one", None)));
        assert_eq!(state.get(t0, None), token("one", 1));
        assert_eq!(state.get(t0 + secs(1_000_000), None), token("one", 1), "a token without an end stays");
        assert_eq!(state.next_timeout(t0), None);
    }

    #[test]
    fn a_token_is_refreshed_before_its_end_and_its_callers_do_not_wait() {
        let t0 = clock::now();
        for (life, due) in [(100, 90), (3_600, 3_540)] {
            let mut state = with_token(t0, Some(secs(life)));
            assert_eq!(state.next_timeout(t0), Some(t0 + secs(due)));
            assert_eq!(state.get(t0 + secs(due) - Duration::from_nanos(1), None), token("one", 1));
            let ahead = state.get(t0 + secs(due), None);
            assert_eq!(ahead, TokenStep { start: Some(refresh(t0 + secs(due), 2)), ..token("one", 1) });
            let later = t0 + secs(due + 5);
            assert_eq!(state.get(later, None), token("one", 1), "while the refresh runs");
            state.end(later, 2, Ok(("two", Some(secs(life)))));
            assert_eq!(state.get(later, None), token("two", 2));
        }
    }

    #[test]
    fn the_timer_refreshes_only_a_token_that_was_used() {
        let t0 = clock::now();
        let due = t0 + secs(90);
        let mut unused = with_token(t0 - secs(100), Some(secs(100)));
        unused.get(t0 - secs(10), None);
        unused.end(t0, 2, Ok(("two", Some(secs(100)))));
        assert_eq!((unused.handle_timeout(due), unused.next_timeout(due)), (None, None));
        assert_eq!(unused.get(due, None).start, Some(refresh(due, 3)), "a late use refreshes it all the same");
        let mut used = with_token(t0, Some(secs(100)));
        used.get(t0, None);
        assert_eq!(used.handle_timeout(due - secs(1)), None);
        assert_eq!((used.handle_timeout(due), used.handle_timeout(due)), (Some(refresh(due, 2)), None));
        assert_eq!(used.next_timeout(due), None, "until the refresh ends");
        used.end(due, 2, Err("down"));
        assert_eq!(used.next_timeout(due), Some(due + FIRST_PAUSE));
        assert_eq!(used.get(due, None), token("one", 1), "it is valid for ten more seconds");
        assert_eq!(used.handle_timeout(due + FIRST_PAUSE), Some(refresh(due + FIRST_PAUSE, 3)));
    }

    #[test]
    fn a_failure_is_shared_for_a_moment_that_doubles() {
        let mut now = clock::now();
        let mut state = Tested::new();
        for (number, pause) in (1..).zip([1, 2, 4, 8, 16, 30, 30]) {
            assert_eq!(state.get(now, None), waits(now, number, true));
            state.end(now, number, Err("down"));
            assert_eq!(state.get(now, None), fails("down"));
            assert_eq!(state.get(now + secs(pause) - Duration::from_nanos(1), None), fails("down"));
            now += secs(pause);
        }
        assert_eq!(state.get(now, None), waits(now, 8, true));
        state.end(now, 8, Ok(("one", None)));
        assert_eq!(state.get(now, None), token("one", 8));
        assert!(state.reject(now, 8));
        assert_eq!(state.get(now, Some(8)), waits(now, 9, true));
        state.end(now, 9, Err("down"));
        assert_eq!(
            state.get(now + FIRST_PAUSE, Some(8)),
            waits(now + FIRST_PAUSE, 10, true),
            "a success ends the row of failures"
        );
    }

    #[test]
    fn a_token_without_life_is_refreshed_for_each_caller() {
        let t0 = clock::now();
        let mut state = with_token(t0, Some(Duration::ZERO));
        assert_eq!(state.get(t0, None), waits(t0, 2, true));
        assert_eq!(state.get(t0 + secs(9), None), waits(t0, 2, false));
    }

    #[test]
    fn only_the_current_token_can_be_rejected() {
        let t0 = clock::now();
        let mut state = with_token(t0, None);
        assert!(state.reject(t0, 1) && state.reject(t0, 1), "all who had it get the next one");
        assert_eq!(state.get(t0, Some(1)), waits(t0, 2, true));
        assert_eq!(state.get(t0, None), token("one", 1), "others go on with it");
        assert!(state.reject(t0, 1));
        assert_eq!(state.get(t0, Some(1)), waits(t0, 2, false), "the refresh that runs is good enough");
        state.end(t0, 2, Ok(("two", None)));
        assert_eq!(state.get(t0, Some(1)), token("two", 2));
        assert!(state.reject(t0, 1));
        assert_eq!(state.get(t0, None), token("two", 2));
    }

    #[test]
    fn a_server_that_rejects_all_tokens_does_not_cause_a_refresh_each_time() {
        let t0 = clock::now();
        let mut state = with_token(t0, None);
        assert!(state.reject(t0, 1));
        state.get(t0, Some(1));
        state.end(t0, 2, Ok(("two", None)));
        assert!(!state.reject(t0, 2));
        assert_eq!(state.get(t0, None), token("two", 2), "it stays in use");
        assert!(state.reject(t0 + REJECTION_PAUSE, 2));
        assert_eq!(state.get(t0 + REJECTION_PAUSE, Some(2)), waits(t0 + REJECTION_PAUSE, 3, true));
    }

    #[test]
    fn a_rejected_token_stays_in_use_while_no_newer_one_can_be_had() {
        let t0 = clock::now();
        let mut state = with_token(t0, None);
        assert!(state.reject(t0, 1));
        assert_eq!(state.get(t0, Some(1)), waits(t0, 2, true));
        state.end(t0, 2, Err("the login is down"));
        assert_eq!(state.get(t0, Some(1)), fails("the login is down"));
        assert_eq!(state.get(t0, None), token("one", 1), "others have it for what it is worth");
        assert!(state.reject(t0, 1));
        assert_eq!(state.get(t0, Some(1)), fails("the login is down"), "not at once again");
    }

    #[test]
    fn a_lost_refresh_is_begun_anew() {
        let t0 = clock::now();
        let mut state = Tested::new();
        state.get(t0, None);
        state.lose(1);
        assert_eq!(state.get(t0, None), waits(t0, 2, true));
        state.end(t0, 1, Ok(("late", None)));
        state.lose(1);
        assert_eq!(state.get(t0, None), waits(t0, 2, false), "the lost one has no say");
    }

    #[test]
    fn a_refresh_that_does_not_end_is_lost_in_the_end() {
        assert!(LOST_AFTER > REFRESH_TIMEOUT);
        let t0 = clock::now();
        let mut state = with_token(t0, Some(secs(100)));
        let due = t0 + secs(90);
        assert_eq!(state.get(due, None).start, Some(refresh(due, 2)));
        let expired = t0 + secs(100);
        assert_eq!(state.get(expired, None), waits(due, 2, false), "the token has expired meanwhile");
        let lost_at = due + LOST_AFTER;
        assert_eq!(state.get(lost_at - Duration::from_nanos(1), None), waits(due, 2, false));
        assert_eq!(state.get(lost_at, None), waits(lost_at, 3, true));
        state.end(lost_at, 2, Ok(("late", None)));
        state.end(lost_at, 3, Ok(("three", None)));
        assert_eq!(state.get(lost_at, None), token("three", 3));
    }

    #[test]
    fn a_life_without_end_is_no_overflow() {
        let t0 = clock::now();
        let mut state = with_token(t0, Some(Duration::MAX));
        assert_eq!(state.get(t0 + secs(1 << 30), None), token("one", 1));
    }
}

#[cfg(test)]
mod bearer_tests {
    use super::*;

    #[test]
    fn a_token_is_sent_as_a_sensitive_header() {
        let (header, life) = Token::new("abc").expires_in(Duration::from_secs(5)).into_parts().unwrap();
        assert_eq!((header.as_bytes(), life), (&b"Bearer abc"[..], Some(Duration::from_secs(5))));
        assert!(header.is_sensitive());
        let error = Token::new("ab\nc").into_parts().unwrap_err();
        assert!(!error.to_string().contains("ab"), "{error}");
    }
}
