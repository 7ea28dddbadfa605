//! The timer that hyper uses on an HTTP/2 connection: a cheap clock, because hyper reads the time for each frame, and the waits for pings.
//!
//! hyper also waits by it for the next ping and for the answer to one. If the user has set a ping interval, these waits
//! end by tokio's timer. Otherwise hyper is configured with an interval of 0 and a timeout that never passes
//! ([`ANSWER_TIMEOUT`]), and the connection's [`PingSchedule`] decides when they end.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

use super::watch::FrameRecord;
use crate::clock::{self, Instant};
use crate::connect::http2::frames::{PingSchedule, SILENCE};
use crate::sync::lock;

/// The ping timeout that hyper is configured with. It tells hyper's wait for an answer from its wait for the next ping,
/// whose interval is 0.
pub(in crate::connect) const ANSWER_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// The timer of one HTTP/2 connection. Clones share it.
#[derive(Clone)]
pub(in crate::connect) struct H2Timer(Arc<TimerState>);

struct TimerState {
    frames: Arc<FrameRecord>,
    /// Decides when to ping; `None` if the user has set a ping interval, which hyper then keeps by tokio's timer.
    pings: Option<Mutex<PingSchedule>>,
}

impl H2Timer {
    /// Creates a timer by which hyper pings at the interval that the user has set.
    pub(in crate::connect) fn for_fixed_pings(frames: Arc<FrameRecord>) -> Self {
        Self(Arc::new(TimerState { frames, pings: None }))
    }

    /// Creates a timer that decides about pings by the `frames` that have passed.
    pub(in crate::connect) fn for_pings_in_doubt(frames: Arc<FrameRecord>) -> Self {
        Self(Arc::new(TimerState { frames, pings: Some(Mutex::default()) }))
    }

    fn ping_sleep(&self, awaits_answer: bool) -> Pin<Box<dyn Sleep>> {
        Box::pin(PingSleep { timer: self.clone(), awaits_answer, was_late: false, wakeup: clock::Timer::default() })
    }
}

impl Timer for H2Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        match &self.0.pings {
            Some(_) => self.ping_sleep(false),
            None => TokioTimer::new().sleep(duration),
        }
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        match &self.0.pings {
            Some(_) => self.ping_sleep(false),
            None => TokioTimer::new().sleep_until(deadline),
        }
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: std::time::Instant) {
        let Some(pings) = &self.0.pings else { return TokioTimer::new().reset(sleep, deadline) };
        let now = self.0.frames.now();
        let awaits_answer = deadline > now.into_std() + ANSWER_TIMEOUT / 2;
        if awaits_answer {
            lock(pings).note_ping(now);
        }
        *sleep = self.ping_sleep(awaits_answer);
    }

    fn now(&self) -> std::time::Instant {
        self.0.frames.now().into_std()
    }
}

/// hyper's wait for the next ping, or for the answer to one.
struct PingSleep {
    timer: H2Timer,
    /// True if a ping was sent and is not answered.
    awaits_answer: bool,
    /// True if the last poll found that the connection is to be given up.
    was_late: bool,
    /// Wakes the connection's task.
    wakeup: clock::Timer,
}

impl Sleep for PingSleep {}

impl PingSleep {
    /// Returns the end of the wait, as far as it can be known now; `None` if no ping may be sent.
    fn ends_at(&self, now: Instant) -> Option<Instant> {
        let TimerState { frames, pings } = &*self.timer.0;
        let traffic = frames.traffic();
        let mut pings = lock(pings.as_ref()?);
        if self.awaits_answer {
            return Some(pings.give_up_at(&traffic));
        }
        let ping_at = pings.ping_at(&traffic, now);
        if ping_at.is_some_and(|ping_at| ping_at <= now) {
            pings.note_due(now);
        }
        ping_at
    }
}

impl Future for PingSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.timer.0.frames.now();
        // What has passed since the timer was set can only put the end off, and the task polls this with one and the same waker.
        if self.wakeup.until().is_some_and(|until| now < until) {
            return Poll::Pending;
        }
        let end = self.ends_at(now);
        let was_late = std::mem::take(&mut self.was_late);
        if end.is_some_and(|end| end <= now) {
            if !self.awaits_answer || was_late {
                return Poll::Ready(());
            }
            // hyper polls this before it reads the socket. Give up only if the next poll finds nothing read, either.
            self.was_late = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // hyper polls this before it writes. A request that leaves right after this poll may need a ping SILENCE from
        // now.
        let next_look = now + SILENCE;
        let wake_at = end.map_or(next_look, |end| end.min(next_look));
        if self.wakeup.poll_until(cx, wake_at).is_ready() {
            // The clock has passed the time of this poll: look again with a new one.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
