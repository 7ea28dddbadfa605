//! Rules for resending a failed request without asking the user; may a request be sent twice? A core.
//!
//! A request is resent only if the server cannot have acted on it, or if acting on it twice does no harm:
//!
//! | the attempt ended because | resent if |
//! |---|---|
//! | nothing of the request was sent | the connection was reused, or is the call's first new one that failed |
//! | the server refused it unprocessed (REFUSED_STREAM, GOAWAY) | always |
//! | the server timed out the idle connection (408 and close) | the connection was reused and the request is idempotent |
//! | the connection closed before any byte of a response | the connection was reused and the request is idempotent |
//! | the runtime that served the connection ended | nothing was sent, or the request is idempotent |
//! | anything else | never |
//!
//! In every case the body must be available again, and the call must have attempts left. [`Client::execute`] documents
//! this list for users.
//!
//! The first resend of a call goes out at once. Each later one waits for half of a time that doubles, and for a random
//! part of the other half. So a server that turns every request away sees the six attempts of a call spread over more
//! than a second.
//!
//! Retries chosen by the user are a different matter: see `retry.rs`.
//!
//! [`Client::execute`]: crate::Client::execute

use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, Method};

use crate::trace::RepeatCause;

/// The end of an attempt that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum AttemptEnd {
    /// The connection failed before any byte of the request was written.
    NotSent,
    /// The server said that it did not process the request (RFC 9113 §8.7).
    Refused,
    /// The server closed the idle connection with a 408 that answers no request (RFC 9110 §15.5.9).
    IdleTimeout,
    /// The connection closed before any byte of a response arrived.
    ClosedSilently,
    /// The runtime on which the connection was opened ended. This says nothing about the server.
    RuntimeEnded {
        /// True if no byte of the request was written.
        unsent: bool,
    },
    /// Any other failure; the server may have processed the request.
    Failed,
}

/// An attempt without an answer, as far as resending depends on it.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct Attempt {
    pub(in crate::client) end: AttemptEnd,
    /// True if the connection does not come right from its dial, so that the server may have closed it for being idle.
    /// Also true if it has answered other requests meanwhile.
    pub(in crate::client) on_reused_connection: bool,
    /// True if the server had answered requests on the connection: it does not turn all of them away.
    pub(in crate::client) on_proven_connection: bool,
    /// True if sending the request twice has the effect of sending it once (RFC 9110 §9.2.2).
    pub(in crate::client) is_idempotent: bool,
    /// True if the body can be sent again: it is not a stream that was already read.
    pub(in crate::client) body_is_replayable: bool,
}

/// A resend that is safe, and how it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct Resend {
    pub(in crate::client) cause: RepeatCause,
    /// The wait before the resend.
    pub(in crate::client) wait: Duration,
    /// True if the resend draws on the origin's allowance, and counts as an attempt of the user's retry policy.
    pub(in crate::client) is_charged: bool,
    /// True if the resend makes the wait of later ones longer.
    is_counted: bool,
}

/// The attempts of a call that got no answer, and its resends.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct Attempts {
    /// Attempts without an answer, apart from those that ended with a runtime.
    unanswered: u32,
    /// Unanswered attempts that the server may have processed.
    possibly_processed: u32,
    /// Unanswered attempts that failed on a new connection before anything was sent.
    new_connections_failed: u32,
    /// Attempts that ended with a runtime.
    runtimes_ended: u32,
    /// Resends that were counted for the backoff.
    resends: u32,
    /// Resends that count as attempts of the user's retry policy.
    charged_resends: u32,
}

/// The most attempts of a call without an answer.
const MAX_ATTEMPTS: u32 = 6;
/// The most attempts of a call that the server may have processed.
const MAX_POSSIBLY_PROCESSED: u32 = 3;
/// The most failures of new connections, before anything was sent, that are followed by another attempt.
const MAX_NEW_CONNECTIONS_FAILED: u32 = 1;
/// The most resends of a call because runtimes ended. Each of them was on a connection of another runtime.
const MAX_RUNTIMES_ENDED: u32 = 32;
/// The longest wait before the second resend. It doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(150);

impl Attempts {
    /// Creates the record of a call whose first attempt without an answer is its last.
    pub(in crate::client) fn without_resends() -> Self {
        Self { unanswered: MAX_ATTEMPTS - 1, runtimes_ended: MAX_RUNTIMES_ENDED, ..Self::default() }
    }

    /// Counts an attempt without an answer. Returns the resend that may follow it, or `None` if the request must not be
    /// resent. `random` is from 0 to 1.
    pub(in crate::client) fn record(&mut self, attempt: Attempt, random: f64) -> Option<Resend> {
        if let AttemptEnd::RuntimeEnded { unsent } = attempt.end {
            return self.record_runtime_end(attempt, unsent);
        }
        let may_be_processed = matches!(attempt.end, AttemptEnd::ClosedSilently | AttemptEnd::Failed);
        let new_connection_failed = attempt.end == AttemptEnd::NotSent && !attempt.on_reused_connection;
        self.unanswered += 1;
        self.possibly_processed += u32::from(may_be_processed);
        self.new_connections_failed += u32::from(new_connection_failed);
        if !attempt.body_is_replayable || self.are_used_up() {
            return None;
        }
        let cause = self.cause(attempt)?;
        let is_charged = !attempt.on_proven_connection || self.resends > 0;
        Some(Resend { cause, wait: self.backoff(random), is_charged, is_counted: true })
    }

    /// Returns true if a request would be resent after this attempt, were its body not gone.
    pub(in crate::client) fn lacks_body(mut self, attempt: Attempt) -> bool {
        !attempt.body_is_replayable && self.record(Attempt { body_is_replayable: true, ..attempt }, 0.0).is_some()
    }

    /// Counts the end of a runtime, which says nothing about the server. It has a limit of its own.
    fn record_runtime_end(&mut self, attempt: Attempt, unsent: bool) -> Option<Resend> {
        self.runtimes_ended += 1;
        let is_safe = attempt.body_is_replayable && (unsent || attempt.is_idempotent);
        if !is_safe || self.runtimes_ended > MAX_RUNTIMES_ENDED {
            return None;
        }
        let cause = if unsent { RepeatCause::NotSent } else { RepeatCause::Closed };
        Some(Resend { cause, wait: Duration::ZERO, is_charged: false, is_counted: false })
    }

    /// Counts a resend.
    pub(in crate::client) fn count_resend(&mut self, resend: Resend) {
        self.resends += u32::from(resend.is_counted);
        self.charged_resends += u32::from(resend.is_charged);
    }

    /// Returns the number of resends that count as attempts of the user's retry policy.
    pub(in crate::client) fn charged_resends(&self) -> u32 {
        self.charged_resends
    }

    /// Returns true if the next attempt should have a connection dialled for it: one that other requests have used may
    /// be closed in the same way as the last one, or end with its runtime.
    pub(in crate::client) fn want_a_dial(&self) -> bool {
        self.runtimes_ended > 0 || self.possibly_processed > 0
    }

    /// Returns true if the call fails should its next attempt end as one that the server may have processed.
    pub(in crate::client) fn next_is_the_last(&self) -> bool {
        self.possibly_processed + 1 >= MAX_POSSIBLY_PROCESSED
    }

    /// Returns true if the call has made all attempts without an answer that it may make.
    pub(in crate::client) fn are_used_up(&self) -> bool {
        self.unanswered >= MAX_ATTEMPTS
    }

    /// Applies the table above. The attempt is counted already.
    fn cause(&self, attempt: Attempt) -> Option<RepeatCause> {
        let is_reused = attempt.on_reused_connection;
        match attempt.end {
            AttemptEnd::NotSent if is_reused || self.new_connections_failed <= MAX_NEW_CONNECTIONS_FAILED => {
                Some(RepeatCause::NotSent)
            }
            AttemptEnd::Refused => Some(RepeatCause::Refused),
            // It may be the answer of a service that has read the request.
            AttemptEnd::IdleTimeout if is_reused && attempt.is_idempotent => Some(RepeatCause::TimedOutIdle),
            AttemptEnd::ClosedSilently if is_reused && attempt.is_idempotent && self.may_be_processed_again() => {
                Some(RepeatCause::Closed)
            }
            _ => None,
        }
    }

    /// Returns true if the server may once more get a request that it may have processed already.
    fn may_be_processed_again(&self) -> bool {
        self.possibly_processed < MAX_POSSIBLY_PROCESSED
    }

    /// Returns the wait before the next resend.
    fn backoff(&self, random: f64) -> Duration {
        let Some(doublings) = self.resends.checked_sub(1) else { return Duration::ZERO };
        let longest = FIRST_BACKOFF * 2_u32.saturating_pow(doublings);
        longest / 2 + (longest / 2).mul_f64(random)
    }
}

/// Marks a request that a server processes once, however often it comes (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The ends of the names of headers that make a request one on a condition (RFC 9110 §13.1). Stores have names of their own, such as
/// `x-goog-if-generation-match` and `x-oss-forbid-overwrite`.
const CONDITIONS: [&str; 7] = [
    "if-match",
    "if-none-match",
    "if-generation-match",
    "if-unmodified-since",
    "forbid-overwrite",
    "condition-appendpos",
    "write-offset-bytes",
];

/// The headers that make a PUT a rename of what they name, at Azure's stores (Path - Create, Rename File). WebDAV has a method for that, MOVE.
const RENAMES: [HeaderName; 2] =
    [HeaderName::from_static("x-ms-rename-source"), HeaderName::from_static("x-ms-file-rename-source")];

/// Returns true if sending a request twice has the effect of sending it once, for the program too: its method is idempotent (RFC 9110
/// §9.2.2), or it has an `Idempotency-Key`.
///
/// A write on a condition is not: the first copy that the server processes makes the condition false for the second one, whose answer
/// says that nothing was written. Nor is a rename: the first copy that the server processes takes the source away, and the answer to the
/// second one is a 404. So MOVE and the other methods of WebDAV are sent once.
pub(in crate::client) fn is_repeatable(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() || headers.contains_key(IDEMPOTENCY_KEY) {
        return true;
    }
    let is_rename = RENAMES.iter().any(|name| headers.contains_key(name));
    let is_conditional = || headers.keys().any(|name| is_condition(name.as_str()));
    matches!(*method, Method::PUT | Method::DELETE) && !is_rename && !is_conditional()
}

fn is_condition(name: &str) -> bool {
    CONDITIONS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GET on a kept connection that the server closed.
    const STALE: Attempt = Attempt {
        end: AttemptEnd::ClosedSilently,
        on_reused_connection: true,
        on_proven_connection: true,
        is_idempotent: true,
        body_is_replayable: true,
    };
    /// A GET on a connection that was just dialled.
    const NEW: Attempt = Attempt { on_reused_connection: false, on_proven_connection: false, ..STALE };

    fn cause(attempt: Attempt) -> Option<RepeatCause> {
        Attempts::default().record(attempt, 1.0).map(|resend| resend.cause)
    }

    /// Returns the waits in milliseconds before the resends of a call whose attempts all end like this.
    fn waits(attempt: Attempt, random: f64) -> Vec<u128> {
        let mut attempts = Attempts::default();
        std::iter::from_fn(|| {
            let resend = attempts.record(attempt, random)?;
            attempts.count_resend(resend);
            Some(resend.wait.as_millis())
        })
        .collect()
    }

    #[test]
    fn an_unsent_request_is_resent_whatever_its_method() {
        let unsent = Attempt { end: AttemptEnd::NotSent, is_idempotent: false, ..STALE };
        assert_eq!(cause(unsent), Some(RepeatCause::NotSent));
        assert_eq!(cause(Attempt { end: AttemptEnd::Refused, ..unsent }), Some(RepeatCause::Refused));
    }

    #[test]
    fn a_get_is_resent_after_a_silent_close_of_a_reused_connection() {
        assert_eq!(cause(STALE), Some(RepeatCause::Closed));
        let mut attempts = Attempts::default();
        attempts.record(STALE, 1.0);
        assert!(attempts.want_a_dial() && !attempts.next_is_the_last());
        attempts.record(STALE, 1.0);
        assert!(attempts.next_is_the_last());
    }

    #[test]
    fn a_record_without_resends_allows_none() {
        assert!(!Attempts::without_resends().are_used_up(), "it may make its only attempt");
        let lost = AttemptEnd::RuntimeEnded { unsent: true };
        let ends =
            [AttemptEnd::NotSent, AttemptEnd::Refused, AttemptEnd::IdleTimeout, AttemptEnd::ClosedSilently, lost];
        for end in ends {
            assert_eq!(Attempts::without_resends().record(Attempt { end, ..STALE }, 1.0), None, "{end:?}");
        }
    }

    #[test]
    fn a_post_is_not_resent_after_a_silent_close() {
        assert_eq!(cause(Attempt { is_idempotent: false, ..STALE }), None);
        assert_eq!(cause(Attempt { end: AttemptEnd::Failed, ..STALE }), None);
    }

    #[test]
    fn a_silent_close_of_a_new_connection_is_final() {
        assert_eq!(cause(NEW), None);
    }

    #[test]
    fn a_new_connection_that_fails_earns_one_more_attempt() {
        let unsent = Attempt { end: AttemptEnd::NotSent, ..NEW };
        assert_eq!(waits(unsent, 1.0), [0]);
        // It may follow a kept connection that was stale, or on which nothing could be sent.
        for kept in [STALE, Attempt { end: AttemptEnd::NotSent, ..STALE }] {
            let mut attempts = Attempts::default();
            for (attempt, resent) in [(kept, true), (unsent, true), (unsent, false)] {
                let resend = attempts.record(attempt, 1.0);
                assert_eq!(resend.is_some(), resent);
                resend.into_iter().for_each(|resend| attempts.count_resend(resend));
            }
        }
    }

    #[test]
    fn refused_requests_are_resent_at_once_and_then_with_a_backoff() {
        let refused = Attempt { end: AttemptEnd::Refused, ..NEW };
        assert_eq!(waits(refused, 1.0), [0, 150, 300, 600, 1_200]);
        assert_eq!(waits(refused, 0.0), [0, 75, 150, 300, 600], "more than a second in total");
    }

    #[test]
    fn a_consumed_stream_is_never_resent() {
        for end in [AttemptEnd::NotSent, AttemptEnd::Refused, AttemptEnd::IdleTimeout, AttemptEnd::ClosedSilently] {
            assert!(cause(Attempt { end, ..STALE }).is_some());
            assert_eq!(cause(Attempt { end, body_is_replayable: false, ..STALE }), None);
        }
    }

    #[test]
    fn a_408_is_resent_on_a_reused_connection_only_and_if_the_request_is_idempotent() {
        let timed_out = Attempt { end: AttemptEnd::IdleTimeout, ..STALE };
        assert_eq!(cause(timed_out), Some(RepeatCause::TimedOutIdle));
        assert_eq!(cause(Attempt { is_idempotent: false, ..timed_out }), None);
        assert_eq!(cause(Attempt { on_reused_connection: false, ..timed_out }), None);
    }

    #[test]
    fn a_request_is_attempted_six_times_and_processed_three_times_at_most() {
        for end in [AttemptEnd::NotSent, AttemptEnd::Refused, AttemptEnd::IdleTimeout] {
            assert_eq!(waits(Attempt { end, ..STALE }, 1.0).len(), 5, "{end:?}");
        }
        assert_eq!(waits(STALE, 1.0).len(), 2);
    }

    #[test]
    fn the_first_resend_is_free_if_the_server_had_answered_before() {
        let charged = |attempt: Attempt| {
            let mut attempts = Attempts::default();
            while let Some(resend) = attempts.record(attempt, 1.0) {
                attempts.count_resend(resend);
            }
            attempts.charged_resends()
        };
        assert_eq!(charged(Attempt { end: AttemptEnd::Refused, ..STALE }), 4);
        assert_eq!(charged(Attempt { end: AttemptEnd::Refused, ..NEW }), 5);
    }

    #[test]
    fn the_end_of_a_runtime_is_resent_at_once_and_counted_apart() {
        let ended = |unsent| Attempt { end: AttemptEnd::RuntimeEnded { unsent }, ..NEW };
        assert_eq!(waits(ended(false), 1.0), [0; MAX_RUNTIMES_ENDED as usize]);
        let mut attempts = Attempts::default();
        for _ in 0..10 {
            let resend = attempts.record(ended(false), 1.0).unwrap();
            assert!(!resend.is_charged);
            attempts.count_resend(resend);
        }
        assert!(!attempts.are_used_up() && attempts.want_a_dial());
        let first = attempts.record(STALE, 1.0).unwrap();
        assert_eq!(
            (first.wait, first.is_charged),
            (Duration::ZERO, false),
            "the first resend that the server may notice"
        );
        let post = |unsent| Attempt { is_idempotent: false, ..ended(unsent) };
        assert_eq!((cause(post(false)), cause(post(true))), (None, Some(RepeatCause::NotSent)));
        assert_eq!(cause(Attempt { body_is_replayable: false, ..ended(true) }), None);
    }
}

#[cfg(test)]
mod repeatable_tests {
    use http::HeaderValue;

    use super::*;

    fn is_so(method: &str, name: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
        is_repeatable(&method.parse().unwrap(), &headers)
    }

    #[test]
    fn idempotent_methods_are_repeated_and_others_with_a_key_alone() {
        for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
            assert!(is_so(method, "accept"), "{method}");
        }
        for method in ["POST", "PATCH", "CONNECT", "ODD"] {
            assert!(!is_so(method, "accept") && is_so(method, "idempotency-key"), "{method}");
        }
    }

    #[test]
    fn a_write_on_a_condition_is_sent_once_unless_the_server_knows_it_again() {
        let stores = ["x-goog-if-generation-match", "x-oss-forbid-overwrite", "x-amz-write-offset-bytes"];
        for name in ["if-match", "if-none-match", "if-unmodified-since"].into_iter().chain(stores) {
            assert!(!is_so("PUT", name) && !is_so("DELETE", name) && is_so("GET", name), "{name}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("if-none-match", HeaderValue::from_static("*"));
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("1"));
        assert!(is_repeatable(&Method::PUT, &headers));
    }

    #[test]
    fn a_rename_is_sent_once_whatever_its_method() {
        for name in ["x-ms-rename-source", "x-ms-file-rename-source"] {
            assert!(!is_so("PUT", name), "{name}");
        }
        for method in ["MOVE", "COPY", "MKCOL", "PROPPATCH", "LOCK"] {
            assert!(!is_so(method, "destination"), "{method}");
        }
        assert!(is_so("PUT", "x-ms-copy-source"), "a copy can be made twice");
    }
}
