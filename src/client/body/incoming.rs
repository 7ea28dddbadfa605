//! A response's body as it arrives on its connection, within the call's time limits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;

use super::return_guard::ReturnGuard;
use crate::client::policy::deadlines::{BodyLimits, Deadline};
use crate::client::policy::framing::Extent;
use crate::clock::{self, Instant, Timer};
use crate::error::{Error, Result, io_cause, is_rule_broken};
use crate::sync;
use crate::trace::{CallEnd, Event, LATE, Phase, Trace, Wants};

/// The body of a response, with the connection it comes from.
pub(crate) struct IncomingBody {
    /// The rest of the body; `None` after its end.
    open: Option<OpenBody>,
    /// True if the user has the body: dropping it ends the call.
    is_begun: bool,
    has_failed: bool,
    /// True once a frame has come.
    has_frame: bool,
    trace: Trace,
    limits: BodyLimits,
    extent: Extent,
    /// The bytes read so far.
    bytes: u64,
    /// The length of the whole body, if it is announced.
    announced: Option<u64>,
    /// The wait for the next frame; `None` while there is none.
    wait: Option<Wait>,
    /// The duration of the waits that are over.
    waited: Duration,
    /// The waits, and the bytes, since the lowest speed was reached last.
    slow: (Duration, u64),
    timer: Timer,
}

/// A body that has not ended.
struct OpenBody {
    incoming: Incoming,
    guard: ReturnGuard,
}

/// A wait for the next frame of a body.
#[derive(Clone, Copy)]
struct Wait {
    begun: Instant,
    /// The time from which on the idle limit runs.
    since: Instant,
    /// The connection's count of frames when the wait began.
    progress: u64,
}

impl IncomingBody {
    #[inline(always)]
    pub(crate) fn new(
        incoming: Incoming,
        guard: ReturnGuard,
        extent: Extent,
        trace: Trace,
        limits: BodyLimits,
    ) -> Self {
        let announced = match extent {
            Extent::Framed => incoming.size_hint().exact().filter(|_| !incoming.is_end_stream()),
            Extent::Nothing => None,
            Extent::Bytes(length) => Some(length),
        };
        Self::with(Some(OpenBody { incoming, guard }), extent, announced, trace, limits)
    }

    /// Creates the body of a response that switches to another protocol. It is empty, and does not hold the connection.
    pub(crate) fn of_upgrade(trace: Trace, limits: BodyLimits) -> Self {
        Self::with(None, Extent::Framed, None, trace, limits)
    }

    #[inline(always)]
    fn with(open: Option<OpenBody>, extent: Extent, announced: Option<u64>, trace: Trace, limits: BodyLimits) -> Self {
        Self {
            open,
            is_begun: false,
            has_failed: false,
            has_frame: false,
            trace,
            limits,
            extent,
            bytes: 0,
            announced,
            wait: None,
            waited: Duration::ZERO,
            slow: Default::default(),
            timer: Timer::default(),
        }
    }

    /// Marks the body as the user's to read. A body without bytes is over at once, and so is the call of one that a layer
    /// has read to its end.
    pub(super) fn begin(&mut self) {
        self.is_begun = true;
        if self.open.is_some() {
            return self.finish_at_end(None);
        }
        let end = if self.has_failed { CallEnd::Failed("body") } else { CallEnd::Read };
        self.trace.end_with_body(clock::now(), end, self.bytes, Duration::ZERO);
    }

    /// Discards the rest of the body, and frees its connection as soon as possible.
    pub(super) fn drain(&mut self) {
        if let Some(OpenBody { incoming, guard }) = self.open.take() {
            guard.drain(incoming);
        }
    }

    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Returns the number of bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the length of the whole body, if it is announced.
    pub(super) fn announced(&self) -> Option<u64> {
        self.announced
    }

    /// Returns the number of bytes that are not read yet, if it is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        let Some(open) = &self.open else { return Some(0) };
        match self.extent {
            Extent::Framed => open.incoming.size_hint().exact(),
            Extent::Nothing => Some(0),
            Extent::Bytes(length) => Some(length - self.bytes),
        }
    }

    /// Returns true if nothing but the end of the body is still to come, as a frame of its own.
    pub(super) fn lacks_only_its_end(&self) -> bool {
        self.extent == Extent::Nothing && self.open.as_ref().is_some_and(|open| !open.incoming.is_end_stream())
    }

    /// Returns true if nothing of the body is left to be read.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.extent, Extent::Nothing | Extent::Bytes(0))
            || self.open.as_ref().is_none_or(|open| open.incoming.is_end_stream())
    }

    /// Returns true if the body has ended, or failed.
    pub(super) fn is_over(&self) -> bool {
        self.open.is_none()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Ends the body because the client does not take it: it cannot be decompressed, or is too long.
    pub(super) fn fail_early(&mut self, why: &'static str) {
        self.fail(why);
        // Also if the last byte has been read, and the connection is gone already.
        self.has_failed = true;
    }

    /// Waits for the next frame, within the time limits.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        // A server can send any number of short frames, which are there at once: other tasks have a turn between the first and the
        // next. One frame is free, because the call has waited for its response.
        let is_counted = self.has_frame && !self.is_over();
        if is_counted {
            ready!(sync::poll_budget(cx));
        }
        let polled = match self.poll_arrived(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.poll_limits(cx));
                Some(Err(self.time_out(true)))
            }
        };
        if is_counted {
            sync::spend_budget(cx);
        }
        Poll::Ready(polled)
    }

    /// Takes the next frame if it has arrived. No wait begins, so that no time limit runs before the user waits.
    pub(super) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.has_failed {
            return Poll::Ready(Some(Err(Error::body_failed_before(self.bytes))));
        }
        let Some(open) = &mut self.open else { return Poll::Ready(None) };
        // The time is read only if there is a deadline: most calls have none. After the deadline, frames that arrived
        // in the meantime are too late as well.
        let now = self.limits.deadline.map(|_| clock::now());
        if let (Some(deadline), Some(now)) = (self.limits.deadline, now)
            && deadline.at <= now
        {
            let has_arrived = Pin::new(&mut open.incoming).poll_frame(cx).is_ready();
            return Poll::Ready(Some(Err(self.time_out(!has_arrived))));
        }
        let frame = ready!(Pin::new(&mut open.incoming).poll_frame(cx));
        let now = if self.wait.is_some() { Some(now.unwrap_or_else(clock::now)) } else { now };
        if let (Some(wait), Some(now)) = (self.wait, now)
            && now - wait.begun >= LATE
        {
            self.note_late(now, wait);
        }
        self.end_wait(now);
        Poll::Ready(self.receive(frame, now))
    }

    /// Takes the time for which the frame was here before the program came to read it off the wait for it.
    #[cold]
    fn note_late(&mut self, now: Instant, wait: Wait) {
        let age = self.open.as_ref().and_then(|open| open.guard.data_age()).unwrap_or_default();
        let by = age.min(now - wait.begun);
        if by >= LATE {
            self.wait = Some(Wait { begun: wait.begun + by, ..wait });
            self.trace.note_read_late(now, Phase::Receive, by);
        }
    }

    /// Counts the wait for a frame, if there was one.
    fn end_wait(&mut self, now: Option<Instant>) {
        if let Some(wait) = self.wait.take() {
            let waited = now.unwrap_or_else(clock::now) - wait.begun;
            self.waited += waited;
            self.slow.0 += waited;
            if !self.is_begun {
                self.trace.note_layer_wait(waited);
            }
        }
    }

    /// Handles a frame, an error, or the end.
    fn receive(
        &mut self,
        frame: Option<hyper::Result<Frame<Bytes>>>,
        now: Option<Instant>,
    ) -> Option<Result<Frame<Bytes>>> {
        match frame {
            // Nothing that follows is content.
            Some(Ok(frame))
                if self.extent == Extent::Nothing && frame.data_ref().is_some_and(|data| !data.is_empty()) =>
            {
                self.finish(clock::now());
                None
            }
            Some(Ok(frame)) => {
                self.has_frame = true;
                let frame = self.cut(frame);
                self.count(&frame, now);
                Some(Ok(frame))
            }
            // While the request is still being sent, h2 reports the end of the connection in place of the end of the
            // stream. The body is complete all the same.
            Some(Err(error)) if self.announced == Some(self.bytes) && io_cause(&error).is_some() => {
                self.finish(clock::now());
                None
            }
            // h2 takes the length of content that is not sent for a broken promise.
            Some(Err(error)) if self.extent == Extent::Nothing && self.bytes == 0 && is_rule_broken(&error) => {
                self.finish(clock::now());
                None
            }
            Some(Err(error)) => {
                self.fail("body");
                Some(Err(Error::body(error, self.bytes, self.announced)))
            }
            None => self.end().err().map(Err),
        }
    }

    /// Takes off what follows the content's last byte. The connection is closed after it.
    fn cut(&self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let Extent::Bytes(length) = self.extent else { return frame };
        let left = usize::try_from(length - self.bytes).unwrap_or(usize::MAX);
        frame.map_data(|mut data| {
            data.truncate(left);
            data
        })
    }

    fn count(&mut self, frame: &Frame<Bytes>, now: Option<Instant>) {
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            self.bytes += bytes;
            self.slow.1 += bytes;
            if self.slow.1 >= self.limits.least.bytes {
                self.slow = Default::default();
            }
            self.trace.notify_at(now, Wants::CHUNKS, || Event::BodyChunk { bytes });
            self.finish_at_end(now);
        }
    }

    /// Waits until a time limit passes. While the request is still being sent, each byte sent starts the idle limit
    /// anew.
    fn poll_limits(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.limits.deadline;
        let progress = self.open.as_ref().map_or(0, |open| open.guard.progress());
        loop {
            let Wait { begun, since, .. } = *self.wait.get_or_insert_with(|| {
                let now = clock::now();
                Wait { begun: now, since: now, progress }
            });
            let until = self.idle_until(since).into_iter().chain(deadline.map(|deadline| deadline.at)).min();
            let Some(until) = until else { return Poll::Pending };
            ready!(self.timer.poll_until(cx, until));
            if deadline.is_some_and(|deadline| deadline.at <= until) {
                return Poll::Ready(());
            }
            let last_sent = self.open.as_ref().and_then(|open| open.guard.last_sent());
            match last_sent.filter(|last_sent| *last_sent > since) {
                Some(last_sent) => {
                    self.slow = Default::default();
                    self.wait = Some(Wait { begun, since: last_sent, progress });
                }
                None => return Poll::Ready(()),
            }
        }
    }

    /// Returns the time at which a wait that counts since `since` has lasted too long.
    fn idle_until(&self, since: Instant) -> Option<Instant> {
        since.checked_add(self.limits.least.over.saturating_sub(self.slow.0))
    }

    /// Ends the body after a time limit. If nothing has arrived since the wait began, the connection may be dead, and
    /// gets no more requests. If the user came too late for what has arrived, nothing is known about the connection.
    fn time_out(&mut self, is_silent: bool) -> Error {
        if let (Some(open), Some(wait)) = (&mut self.open, self.wait)
            && is_silent
        {
            open.guard.retire_if_silent(wait.progress);
        }
        let now = clock::now();
        let deadline = self.limits.deadline.filter(|deadline| deadline.at <= now);
        // A reader that has not waited comes late by its own will.
        if let Some(wait) = self.wait {
            let due = deadline.map_or_else(|| self.idle_until(wait.since), |deadline| Some(deadline.at));
            self.trace.note_timer(due.unwrap_or(now).max(wait.begun), now);
        }
        self.fail("timeout");
        match deadline {
            Some(Deadline { limit, .. }) => Error::timeout(Phase::Receive, limit),
            None => Error::stalled(Phase::Receive, &self.limits.least.missing("body"), self.limits.least.over),
        }
    }

    /// Ends the body when hyper says that it is over. Over HTTP/2 that may also mean that the server gave the body up
    /// without an error, which is one here.
    fn end(&mut self) -> Result<()> {
        let missing_of = self.announced.filter(|announced| self.bytes < *announced);
        let is_cut_off = match self.announced {
            Some(_) => missing_of.is_some(),
            None if self.extent == Extent::Nothing => false,
            None => self.open.as_ref().is_some_and(|open| open.guard.is_cut_off(&open.incoming)),
        };
        if !is_cut_off {
            self.finish(clock::now());
            return Ok(());
        }
        self.fail("body");
        let what = if matches!(self.extent, Extent::Bytes(_)) { "connection" } else { "stream" };
        Err(Error::closed_body(what, self.bytes, missing_of))
    }

    /// Ends the body as soon as nothing more can come, though the user does not poll for its end.
    fn finish_at_end(&mut self, now: Option<Instant>) {
        let is_short = self.announced.is_some_and(|announced| self.bytes < announced);
        let ends_here = matches!(self.extent, Extent::Bytes(_));
        if !is_short && self.open.as_ref().is_some_and(|open| ends_here || open.incoming.is_end_stream()) {
            self.finish(now.unwrap_or_else(clock::now));
        }
    }

    /// Ends the body and its call, and returns the connection.
    fn finish(&mut self, now: Instant) {
        if self.open.is_none() {
            return;
        }
        self.end_call(now, CallEnd::Read);
        let Some(open) = &mut self.open else { return };
        if open.guard.finish_at_once(now) {
            self.open = None;
        } else if let Some(open) = self.open.take() {
            open.guard.finish(now);
        }
    }

    /// Ends the call, which goes on if a layer around an attempt reads its response.
    #[inline]
    fn end_call(&self, now: Instant, end: CallEnd) {
        if self.is_begun {
            self.trace.end_with_body(now, end, self.bytes, self.waited);
        }
    }

    /// Ends the body and its call with an error.
    fn fail(&mut self, why: &'static str) {
        if let Some(OpenBody { incoming, guard }) = self.open.take() {
            self.has_failed = true;
            self.end_wait(None);
            self.end_call(clock::now(), CallEnd::Failed(why));
            guard.fail(incoming);
        }
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        let Some(OpenBody { incoming, guard }) = self.open.take() else { return };
        if self.is_begun {
            self.end_wait(None);
            // Over HTTP/2 the end of the stream may come later than all that there is.
            let is_whole = self.extent == Extent::Nothing || self.announced == Some(self.bytes);
            self.end_call(clock::now(), if is_whole { CallEnd::Read } else { CallEnd::Unread });
            guard.drain(incoming);
        } else {
            guard.fail(incoming);
        }
    }
}
