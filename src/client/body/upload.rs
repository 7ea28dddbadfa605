//! The progress of a request's body: the bytes handed over, the error, and the server's answer to `Expect:
//! 100-continue`.
//!
//! hyper owns the body while it is sent, and tells the call nothing about it. So the body and the call share an
//! [`Upload`].

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::sync::Notify;

use super::Body;
use crate::clock::{Instant, Timer, before, now};
use crate::error::Cause;
use crate::sync::lock;

/// The longest wait for a 100 (Continue) before the body is sent anyway (RFC 9110 §10.1.1). The same as in curl and Go.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of a body that is being sent.
#[derive(Default)]
pub(crate) struct Upload {
    /// The time the last byte was handed to hyper.
    sent: OnceLock<Instant>,
    /// The time any byte was last handed to hyper.
    progress: Mutex<Option<Instant>>,
    bytes: AtomicU64,
    failure: Mutex<Option<Cause>>,
    is_begun: AtomicBool,
    is_over: AtomicBool,
    /// The waits in which the body had nothing to hand over, which are not the server's fault.
    starved: Mutex<Starved>,
    /// Notified when the body is over.
    ended: Notify,
    is_given_up: AtomicBool,
    /// The task that reads the body, while it waits.
    reader: Mutex<Option<Waker>>,
    /// The state of the request's `Expect: 100-continue`, if it has one.
    expectation: Option<Mutex<Expectation>>,
}

/// An `Expect: 100-continue` and its answer (RFC 9110 §10.1.1).
#[derive(Default)]
struct Expectation {
    /// The server's answer, or the timeout's; `None` until there is one.
    is_wanted: Option<bool>,
    /// The body, until the server wants it.
    held_body: Option<Body>,
    timer: Timer,
    /// The time the wait for an answer ends.
    until: Option<Instant>,
}

/// The time for which a body had nothing to hand over.
#[derive(Default, Clone, Copy)]
struct Starved {
    /// The start of the wait that is going on.
    since: Option<Instant>,
    /// The duration of the waits that are over.
    before: Duration,
}

impl Upload {
    /// Creates the state of a body that is sent when the server wants it.
    pub(crate) fn expecting_continue() -> Self {
        Self { expectation: Some(Mutex::default()), ..Self::default() }
    }

    /// Returns the time the last byte was handed over.
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.sent.get().copied()
    }

    /// Returns the time any byte was last handed over. While a 100 (Continue) is waited for, it is the end of that
    /// wait, which lies in the future.
    pub(crate) fn progress(&self) -> Option<Instant> {
        let waiting_until = self.expectation.as_ref().and_then(|expectation| {
            let expectation = lock(expectation);
            expectation.until.filter(|_| expectation.is_wanted.is_none())
        });
        (*lock(&self.progress)).max(waiting_until)
    }

    /// Returns the number of bytes that were handed over.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the time for which the body had nothing to hand over.
    pub(crate) fn starved(&self) -> Duration {
        let Starved { since, before } = *lock(&self.starved);
        before + since.map_or(Duration::ZERO, |since| now() - since)
    }

    /// Returns true if the body was read from. A stream cannot be sent again then.
    pub(crate) fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::Relaxed)
    }

    /// Takes the error by which the body itself failed.
    pub(crate) fn take_failure(&self) -> Option<Cause> {
        lock(&self.failure).take()
    }

    /// Returns true if the body is not sent any more: it is sent, failed, or dropped.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns true if the request has an `Expect: 100-continue`.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expectation.is_some()
    }

    /// Returns true if the server sent its response in place of a 100 (Continue). The connection cannot be used again
    /// then.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.expectation.as_ref().is_some_and(|expectation| lock(expectation).is_wanted == Some(false))
    }

    /// Takes the body that the server did not want. None of it was read, and none will be.
    pub(crate) fn take_unwanted(&self) -> Option<Body> {
        let mut expectation = lock(self.expectation.as_ref()?);
        if expectation.is_wanted == Some(false) { expectation.held_body.take() } else { None }
    }

    /// Records the server's answer to the expectation. The first answer counts.
    pub(crate) fn set_wanted(&self, is_wanted: bool) {
        let Some(expectation) = &self.expectation else { return };
        lock(expectation).is_wanted.get_or_insert(is_wanted);
        self.wake_reader();
    }

    /// Makes the body fail, so that its stream ends.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.wake_reader();
    }

    /// Waits until the body is over.
    pub(crate) async fn over(&self) {
        let mut ended = pin!(self.ended.notified());
        // Enabled before the flag is read, so that no notification is missed in between.
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    /// Waits until the body is over: for `limit` at most, and only while the server takes some of it in every `idle`.
    /// Returns true if it is over.
    pub(crate) async fn over_within(&self, limit: Duration, idle: Duration) -> bool {
        let end = now() + limit;
        loop {
            let taken = self.bytes();
            let next_check = end.min(now() + idle);
            if before(Some(next_check), pin!(self.over())).await.is_some() {
                return true;
            }
            let is_stuck = self.bytes() == taken && lock(&self.starved).since.is_none();
            if is_stuck || next_check == end {
                return false;
            }
        }
    }

    fn wake_reader(&self) {
        let waker = lock(&self.reader).take();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The side of the body that is being sent.
impl Upload {
    /// Holds the body back until the server wants it, if the request expects a 100 (Continue). Otherwise returns it.
    pub(super) fn hold_back(&self, body: Body) -> Body {
        let Some(expectation) = &self.expectation else { return body };
        lock(expectation).held_body = Some(body);
        Body::default()
    }

    /// Calls `look` with the body that is held back, if there is one.
    pub(super) fn look_at_held<T>(&self, look: impl FnOnce(Option<&Body>) -> T) -> T {
        let expectation = self.expectation.as_ref().map(lock);
        look(expectation.as_ref().and_then(|expectation| expectation.held_body.as_ref()))
    }

    /// Waits until the body may be sent: the server wants it, or said nothing for [`CONTINUE_TIMEOUT`]. The first time,
    /// returns the body that was held back. Stays pending if the server does not want it; fails if the body was given
    /// up.
    pub(super) fn poll_permission(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Body>, Cause>> {
        *lock(&self.reader) = Some(cx.waker().clone());
        if self.is_given_up.load(Ordering::Acquire) {
            return Poll::Ready(Err("the body is no longer wanted".into()));
        }
        let Some(expectation) = &self.expectation else { return Poll::Ready(Ok(None)) };
        let mut expectation = lock(expectation);
        match expectation.is_wanted {
            Some(true) => {}
            Some(false) => return Poll::Pending,
            None => {
                let until = *expectation.until.get_or_insert_with(|| now() + CONTINUE_TIMEOUT);
                ready!(expectation.timer.poll_until(cx, until));
                expectation.is_wanted = Some(true);
            }
        }
        Poll::Ready(Ok(expectation.held_body.take()))
    }

    /// Records that the body is read from.
    pub(super) fn begin(&self) {
        self.is_begun.store(true, Ordering::Relaxed);
    }

    /// Records whether the body has nothing to hand over at the moment.
    pub(super) fn set_starved(&self, is_starved: bool) {
        let mut starved = lock(&self.starved);
        match (starved.since, is_starved) {
            (None, true) => starved.since = Some(now()),
            (Some(since), false) => {
                starved.before += now() - since;
                starved.since = None;
            }
            _ => {}
        }
    }

    /// Records the body's own error.
    pub(super) fn fail(&self, error: Cause) {
        *lock(&self.failure) = Some(error);
    }

    /// Records bytes that were handed over, and whether they were the last ones.
    pub(super) fn hand_over(&self, bytes: usize, is_last: bool) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let at = now();
        *lock(&self.progress) = Some(at);
        if is_last {
            self.sent.get_or_init(|| at);
        }
    }

    /// Records that the body was dropped, and whether all of it had been handed over by then.
    pub(super) fn end(&self, is_read: bool) {
        if is_read && self.is_begun() {
            self.sent.get_or_init(now);
        }
        self.is_over.store(true, Ordering::Release);
        self.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::task::noop_waker_ref;

    use super::*;

    fn permission(upload: &Upload) -> Poll<Result<Option<Body>, Cause>> {
        upload.poll_permission(&mut Context::from_waker(noop_waker_ref()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_expected_continue_is_waited_for_a_second() {
        let upload = Upload::expecting_continue();
        assert!(upload.hold_back("x".into()).is_empty());
        let start = now();
        let body = std::future::poll_fn(|cx| upload.poll_permission(cx)).await.unwrap().expect("held back until then");
        assert_eq!((body.as_bytes(), now() - start), (Some(&b"x"[..]), CONTINUE_TIMEOUT));
        assert!(!upload.is_unwanted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_not_wanted_can_be_taken_back() {
        let upload = Upload::expecting_continue();
        upload.hold_back("x".into());
        upload.set_wanted(false);
        upload.set_wanted(true);
        assert!(permission(&upload).is_pending() && upload.is_unwanted(), "the first answer counts");
        assert_eq!(upload.take_unwanted().unwrap().as_bytes(), Some(&b"x"[..]));
        upload.give_up();
        assert!(matches!(permission(&upload), Poll::Ready(Err(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_nothing_is_taken_of_is_not_waited_for() {
        let limit = Duration::from_secs(60);
        let idle = Duration::from_secs(5);
        let upload = Upload::default();
        let start = now();
        assert!(!upload.over_within(limit, idle).await);
        assert_eq!(now() - start, idle);
        upload.set_starved(true);
        assert!(!upload.over_within(limit, idle).await);
        assert_eq!(now() - start, idle + limit, "a body with nothing to send is waited for");
        upload.end(false);
        assert_eq!(upload.over_within(limit, idle).now_or_never(), Some(true));
    }
}
