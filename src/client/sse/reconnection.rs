//! Rules for opening an event stream again (WHATWG HTML §9.2.3 and §9.2.4). A core.
//!
//! | the connection | what follows |
//! |---|---|
//! | 200 | its events |
//! | 204 | the end, without an error: the server wants no more connections |
//! | 429, 500, 502, 503, 504 | another connection, no sooner than a `Retry-After` says |
//! | any other status | the end, with an error |
//! | failed, ended or broke off | another connection |
//!
//! The standard ends the stream after every status other than 200. The five of the third row come and go with a restart
//! or an overload of a server or of a proxy before it, and all common clients go on after them.
//!
//! The wait before the next connection is the reconnection time, and a random part of half of it. It doubles after each
//! connection that failed.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use crate::client::policy::retry::parse_retry_after;

/// The waits between the connections of an event stream.
#[derive(Debug, Clone)]
pub(super) struct Reconnection {
    /// The reconnection time.
    retry: Duration,
    min_retry: Duration,
    max_retry: Duration,
    max_backoff: Duration,
    max_failures: u32,
    /// The failures since the last connection that was of use.
    failures: u32,
}

/// The reconnection time until the server sets one.
const FIRST_RETRY: Duration = Duration::from_secs(3);
/// The shortest reconnection time that a server can set.
const MIN_RETRY: Duration = Duration::from_millis(100);
/// The longest reconnection time that a server can set, and the longest `Retry-After` that is waited for.
const MAX_RETRY: Duration = Duration::from_secs(300);
/// The longest time that the wait doubles to.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// The time that doubles if the reconnection time is shorter.
const MIN_BACKOFF: Duration = Duration::from_millis(100);

impl Default for Reconnection {
    fn default() -> Self {
        Self {
            retry: FIRST_RETRY,
            min_retry: MIN_RETRY,
            max_retry: MAX_RETRY,
            max_backoff: MAX_BACKOFF,
            max_failures: u32::MAX,
            failures: 0,
        }
    }
}

/// The answer to a response's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryVerdict {
    /// The response has the events.
    Read,
    /// The stream is over.
    End,
    /// The server may be ready later, but no sooner than after this time if it gave one.
    Later(Option<Duration>),
    /// The server does not have the stream.
    Refused,
}

/// The end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The connection had brought bytes, or had been open for long.
    Useful,
    /// The connection could not be opened, or ended soon and brought nothing. The next one follows no sooner than after
    /// this time.
    Failed(Option<Duration>),
}

/// Judges the head of a response. `wall` is the time of day.
pub(super) fn judge(status: StatusCode, headers: &HeaderMap, wall: SystemTime) -> RetryVerdict {
    match status.as_u16() {
        200 => RetryVerdict::Read,
        204 => RetryVerdict::End,
        429 | 500 | 502 | 503 | 504 => RetryVerdict::Later(parse_retry_after(headers, wall)),
        _ => RetryVerdict::Refused,
    }
}

impl Reconnection {
    /// Sets the reconnection time as the user wants it.
    pub(super) fn set_first_retry(&mut self, retry: Duration) {
        self.retry = retry;
    }

    /// Sets the shortest and the longest reconnection time that a server can set.
    pub(super) fn set_retry_limits(&mut self, min: Duration, max: Duration) {
        self.min_retry = min;
        self.max_retry = max.max(min);
    }

    pub(super) fn set_max_backoff(&mut self, max: Duration) {
        self.max_backoff = max;
    }

    pub(super) fn set_max_failures(&mut self, max: u32) {
        self.max_failures = max;
    }

    /// Sets the reconnection time as the server wants it, within the limits.
    pub(super) fn retry_from_server(&mut self, retry: Duration) {
        self.retry = retry.clamp(self.min_retry, self.max_retry);
    }

    /// Judges the end of a connection that was opened, and closed `open_for` later. `has_brought` is true if anything of
    /// its body arrived.
    pub(super) fn judge_end(&self, has_brought: bool, open_for: Duration) -> ConnectionEnd {
        if has_brought || open_for >= self.max_backoff { ConnectionEnd::Useful } else { ConnectionEnd::Failed(None) }
    }

    /// Returns the wait before the next connection; `None` if too many have failed. `random` is from 0 to 1.
    pub(super) fn next_wait(&mut self, end: ConnectionEnd, random: f64) -> Option<Duration> {
        let at_least = match end {
            ConnectionEnd::Useful => {
                self.failures = 0;
                Duration::ZERO
            }
            ConnectionEnd::Failed(retry_after) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures > self.max_failures {
                    return None;
                }
                retry_after.unwrap_or_default().min(self.max_retry)
            }
        };
        let longest = self.doubled().max(self.retry.saturating_add(self.retry / 2));
        let shortest = self.retry.max(longest / 2);
        let wait = shortest.saturating_add((longest - shortest).mul_f64(random));
        Some(wait.max(at_least))
    }

    /// Returns the wait as failures have doubled it.
    fn doubled(&self) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let factor = 2_u32.checked_pow(self.failures);
        let doubled = factor.and_then(|factor| self.retry.max(MIN_BACKOFF).checked_mul(factor));
        doubled.unwrap_or(Duration::MAX).min(self.max_backoff)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::RETRY_AFTER;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn waits(reconnection: &mut Reconnection, end: ConnectionEnd) -> (u128, u128) {
        let mut other = reconnection.clone();
        let least = reconnection.next_wait(end, 0.0).unwrap().as_millis();
        (least, other.next_wait(end, 1.0).unwrap().as_millis())
    }

    #[test]
    fn the_wait_doubles_with_failures_and_falls_back_after_use() {
        let mut reconnection = Reconnection::default();
        assert_eq!(waits(&mut reconnection, ConnectionEnd::Useful), (3_000, 4_500));
        let failed = ConnectionEnd::Failed(None);
        let doubling = [(); 7].map(|()| waits(&mut reconnection, failed));
        let expected =
            [(3_000, 6_000), (6_000, 12_000), (12_000, 24_000), (24_000, 48_000), (30_000, 60_000), (30_000, 60_000)];
        assert_eq!(doubling[..6], expected);
        for _ in 0..100 {
            assert_eq!(waits(&mut reconnection, failed), (30_000, 60_000), "and no overflow");
        }
        assert_eq!(waits(&mut reconnection, ConnectionEnd::Useful), (3_000, 4_500));
        assert_eq!(waits(&mut reconnection, failed), (3_000, 6_000));
    }

    #[test]
    fn the_server_sets_the_reconnection_time_within_limits() {
        let mut reconnection = Reconnection::default();
        for (asked, waited) in [(500, 500), (0, 100), (99, 100), (300_000, 300_000), (u64::MAX, 300_000)] {
            reconnection.retry_from_server(ms(asked));
            let (least, most) = waits(&mut reconnection, ConnectionEnd::Useful);
            assert_eq!((least, most), (waited, waited + waited / 2), "{asked}");
            // A reconnection time beyond the longest backoff is kept to as well.
            assert!(waits(&mut reconnection, ConnectionEnd::Failed(None)).0 >= waited);
        }
        reconnection.set_retry_limits(Duration::ZERO, Duration::MAX);
        reconnection.retry_from_server(Duration::ZERO);
        assert_eq!(waits(&mut reconnection, ConnectionEnd::Useful), (0, 0));
        assert_eq!(
            waits(&mut reconnection, ConnectionEnd::Failed(None)),
            (100, 200),
            "failures are never repeated at once"
        );
        reconnection.retry_from_server(Duration::MAX);
        assert_eq!(reconnection.next_wait(ConnectionEnd::Useful, 1.0), Some(Duration::MAX));
        reconnection.set_retry_limits(ms(50), ms(10));
        reconnection.retry_from_server(ms(20));
        assert_eq!(waits(&mut reconnection, ConnectionEnd::Useful).0, 50, "limits in the wrong order are no panic");
    }

    #[test]
    fn retry_after_is_waited_for_up_to_a_limit() {
        let mut reconnection = Reconnection::default();
        assert_eq!(reconnection.next_wait(ConnectionEnd::Failed(Some(ms(1))), 0.0), Some(ms(3_000)));
        assert_eq!(reconnection.next_wait(ConnectionEnd::Failed(Some(ms(100_000))), 1.0), Some(ms(100_000)));
        assert_eq!(reconnection.next_wait(ConnectionEnd::Failed(Some(ms(900_000))), 1.0), Some(ms(300_000)));
    }

    #[test]
    fn failures_in_a_row_end_the_stream() {
        let mut reconnection = Reconnection::default();
        reconnection.set_max_failures(2);
        let failed = ConnectionEnd::Failed(None);
        for _ in 0..2 {
            assert!(reconnection.next_wait(failed, 0.5).is_some() && reconnection.next_wait(failed, 0.5).is_some());
            assert!(reconnection.next_wait(ConnectionEnd::Useful, 0.5).is_some());
        }
        assert!(reconnection.next_wait(failed, 0.5).is_some() && reconnection.next_wait(failed, 0.5).is_some());
        assert_eq!(reconnection.next_wait(failed, 0.5), None);
        reconnection.set_max_failures(0);
        assert_eq!(
            (reconnection.next_wait(ConnectionEnd::Useful, 0.0).is_some(), reconnection.next_wait(failed, 0.0)),
            (true, None)
        );
    }

    #[test]
    fn a_connection_without_a_byte_is_a_failure_unless_it_was_open_for_long() {
        let reconnection = Reconnection::default();
        assert_eq!(reconnection.judge_end(true, Duration::ZERO), ConnectionEnd::Useful);
        assert_eq!(reconnection.judge_end(false, ms(59_999)), ConnectionEnd::Failed(None));
        assert_eq!(reconnection.judge_end(false, ms(60_000)), ConnectionEnd::Useful);
    }

    #[test]
    fn statuses() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
        let judged = |status: u16| judge(StatusCode::from_u16(status).unwrap(), &headers, SystemTime::UNIX_EPOCH);
        assert_eq!([judged(200), judged(204)], [RetryVerdict::Read, RetryVerdict::End]);
        for status in [429, 500, 502, 503, 504] {
            assert_eq!(judged(status), RetryVerdict::Later(Some(ms(7_000))), "{status}");
        }
        for status in [201, 205, 206, 301, 304, 307, 400, 401, 403, 404, 408, 410, 501, 505, 999] {
            assert_eq!(judged(status), RetryVerdict::Refused, "{status}");
        }
    }
}
