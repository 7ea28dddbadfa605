//! Bodies that are read piece by piece: held to their length, with trailers behind them. Some can be read again. The
//! callback for the bytes that pass.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::TryStream;
use http::{HeaderMap, HeaderValue};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::client::policy::framing::{self, ConnectionFields, Sendable};
use crate::error::Cause;
use crate::sync::lock;

/// A body that is read piece by piece.
pub(super) struct Streamed {
    // Always free: the mutex makes frames that are only `Send` a field that is also `Sync`.
    frames: Mutex<Pin<Box<dyn Frames>>>,
    /// The length that the body must have, if one was announced.
    length: Option<u64>,
    /// The bytes that were handed out so far, and those of `rest`.
    bytes: u64,
    trailers: Option<HeaderMap>,
    /// True if the frames may end with trailers.
    may_have_trailers: bool,
    /// The names of the trailers that the frames will end with, as far as they are known.
    announced: Option<HeaderValue>,
    /// The fields that the trailers leave behind: those of each message that the body was passed on from.
    passed_from: Vec<ConnectionFields>,
    /// The trailers that the body can end with, once it is sent.
    sendable: Option<Sendable>,
    /// The first frame, if it was looked at.
    peeked: Option<Result<Frame<Bytes>, Cause>>,
    /// The piece that completes the length. It is held back until it is known whether another piece follows.
    last: Option<Bytes>,
    /// True if the frames are not polled any more.
    is_read: bool,
    /// True if the body has ended, trailers included.
    is_ended: bool,
    /// The rest of a long piece.
    rest: Bytes,
    /// The content that the frames come from, if it can be read again.
    content: Option<Arc<dyn Replayable>>,
    progress: Option<ProgressCallback>,
}

/// Any source of frames, with its error type erased.
pub(super) trait Frames: http_body::Body<Data = Bytes, Error = Cause> + Send {}

impl<B: http_body::Body<Data = Bytes, Error = Cause> + Send> Frames for B {}

/// Content that can be read any number of times.
pub(super) trait Replayable: Send + Sync {
    /// Returns the content from its start. Nothing is opened or read before the frames are polled.
    fn frames(self: Arc<Self>) -> Pin<Box<dyn Frames>>;

    /// Returns the content if it is in memory in one piece.
    fn as_bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// The most empty pieces that are skipped in a row before other tasks run.
pub(super) const MAX_SKIPPED: usize = 64;

/// The longest piece that is handed out at once. A longer one would hide the progress of a slow server.
const LONGEST_PIECE: usize = 64 * 1024;

/// A body has another length than was announced.
#[derive(Debug, thiserror::Error)]
enum LengthError {
    #[error("the body has more than the announced {0} bytes")]
    Longer(u64),
    #[error("the body has {1} of the announced {0} bytes")]
    Shorter(u64, u64),
}

/// The code of a body panicked.
#[derive(Debug, thiserror::Error)]
#[error("its code panicked: {0}")]
struct Panicked(String);

impl Panicked {
    fn of(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Self(text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_default())
    }
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, Cause>>>;

impl Streamed {
    pub(super) fn new(
        frames: impl http_body::Body<Data = Bytes, Error = Cause> + Send + 'static,
        length: Option<u64>,
        may_have_trailers: bool,
    ) -> Box<Self> {
        Self::of_frames(Box::pin(frames), length, may_have_trailers)
    }

    pub(super) fn of_bytes(bytes: Bytes) -> Box<Self> {
        let length = bytes.len() as u64;
        Self::replayable(Arc::new(bytes), Some(length))
    }

    /// Creates a body that can be read again.
    pub(super) fn replayable(content: Arc<dyn Replayable>, length: Option<u64>) -> Box<Self> {
        let mut streamed = Self::of_frames(content.clone().frames(), length, false);
        streamed.content = Some(content);
        streamed
    }

    /// Creates a body that can be read again, of a type for which `make` makes a new one each time. It may have trailers.
    pub(super) fn made_by<B>(length: Option<u64>, make: impl Fn() -> B + Send + Sync + 'static) -> Box<Self>
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        let mut streamed = Self::replayable(Arc::new(MadeBy(make)), length);
        streamed.may_have_trailers = true;
        streamed
    }

    fn of_frames(frames: Pin<Box<dyn Frames>>, length: Option<u64>, may_have_trailers: bool) -> Box<Self> {
        Box::new(Self {
            frames: Mutex::new(frames),
            length,
            bytes: 0,
            trailers: None,
            may_have_trailers,
            announced: None,
            passed_from: Vec::new(),
            sendable: None,
            peeked: None,
            last: None,
            is_read: false,
            is_ended: false,
            rest: Bytes::new(),
            content: None,
            progress: None,
        })
    }

    /// Returns the body from its start; `None` if it can be read only once.
    pub(super) fn try_clone(&self) -> Option<Box<Self>> {
        let mut clone = Self::replayable(self.content.clone()?, self.length);
        clone.trailers.clone_from(&self.trailers);
        clone.may_have_trailers = self.may_have_trailers;
        clone.announced.clone_from(&self.announced);
        clone.passed_from.clone_from(&self.passed_from);
        clone.progress = self.progress.as_ref().map(ProgressCallback::restarted);
        Some(clone)
    }

    pub(super) fn is_replayable(&self) -> bool {
        self.content.is_some()
    }

    pub(super) fn as_bytes(&self) -> Option<&[u8]> {
        self.content.as_ref()?.as_bytes()
    }

    pub(super) fn set_progress(&mut self, progress: ProgressCallback) {
        self.progress = Some(progress);
    }

    pub(super) fn length(&self) -> Option<u64> {
        self.length
    }

    /// Makes the body fail unless it has this length.
    pub(super) fn require_length(&mut self, length: u64) {
        self.length = Some(length);
    }

    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    pub(super) fn set_trailers(&mut self, trailers: HeaderMap) {
        self.trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
    }

    pub(super) fn may_have_trailers(&self) -> bool {
        self.may_have_trailers || self.trailers.is_some()
    }

    /// Notes the names of the trailers that the frames will end with.
    pub(super) fn announce(&mut self, names: HeaderValue) {
        self.announced = Some(names);
    }

    /// Returns the names of the trailers that the body will end with, as far as they are known (RFC 9110 §6.6.2).
    pub(super) fn trailer_names(&self) -> Option<HeaderValue> {
        let Some(trailers) = &self.trailers else { return self.announced.clone() };
        framing::list_of(trailers.keys())
    }

    /// Leaves these fields out of the trailers, because the body is passed on.
    pub(super) fn leave_connection(&mut self, fields: ConnectionFields) {
        let set = self.trailers.take();
        self.passed_from.push(fields);
        self.trailers = set.and_then(|set| self.passed_on(set));
    }

    /// Returns the part of trailers that is passed on.
    fn passed_on(&self, mut trailers: HeaderMap) -> Option<HeaderMap> {
        self.passed_from.iter().for_each(|fields| fields.leave(&mut trailers));
        Some(trailers).filter(|trailers| !trailers.is_empty())
    }

    /// Makes the body fail if it ends with trailers that cannot be sent.
    pub(super) fn restrict_trailers(&mut self, sendable: Sendable) {
        self.sendable = Some(sendable);
    }

    /// Waits for the first frame, which stays. Returns false if there is none.
    pub(super) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.peeked.is_none() && self.rest.is_empty() && self.trailers.is_none() {
            let first = ready!(self.poll_frame(cx));
            self.keep(first);
        }
        Poll::Ready(self.peeked.is_some() || !self.rest.is_empty() || self.trailers.is_some())
    }

    /// Keeps the first frame. Trailers become those of the body, so that the head can announce them.
    fn keep(&mut self, first: Option<Result<Frame<Bytes>, Cause>>) {
        self.peeked = match first.map(|first| first.map(Frame::into_trailers)) {
            Some(Ok(Ok(trailers))) => {
                self.trailers = Some(trailers);
                self.is_ended = false;
                None
            }
            Some(Ok(Err(other))) => Some(Ok(other)),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        };
    }

    /// Returns true if the length says that nothing comes, and no trailers can.
    pub(super) fn is_void(&self) -> bool {
        self.is_without_bytes() && !self.may_have_trailers
    }

    fn is_without_bytes(&self) -> bool {
        self.length == Some(0) && self.trailers.is_none()
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.peeked.is_none()
            && self.rest.is_empty()
            && (self.is_ended || self.is_void() || (self.is_without_bytes() && self.has_read_all_frames()))
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self.length {
            // With an exact length, hyper sends no chunks over HTTP/1.1, and so no trailers.
            Some(length) if self.trailers.is_none() => SizeHint::with_exact(length.saturating_sub(self.handed_out())),
            _ => SizeHint::default(),
        }
    }

    /// Returns the number of bytes that were handed out.
    fn handed_out(&self) -> u64 {
        self.bytes - self.rest.len() as u64
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(peeked) = self.peeked.take() {
            return Poll::Ready(Some(peeked));
        }
        if self.rest.is_empty() {
            let Some(frame) = ready!(self.poll_whole(cx)?) else { return Poll::Ready(None) };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(LONGEST_PIECE));
        let handed_out = self.handed_out();
        if let Some(progress) = &mut self.progress {
            progress.report(handed_out, self.length);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    /// Polls for the next frame, however long it is.
    fn poll_whole(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if self.is_ended {
            return Poll::Ready(None);
        }
        if self.is_read || (self.length == Some(0) && !self.may_have_trailers) {
            return self.finish(None);
        }
        loop {
            let frame = match self.poll_nonempty(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return self.end(Some(Err(error))),
                Poll::Ready(None) => return self.finish(None),
                Poll::Pending => return self.pause(),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => return self.finish(other.into_trailers().ok()),
            };
            let so_far = self.bytes + self.last.as_ref().map_or(0, |last| last.len() as u64) + data.len() as u64;
            match self.length {
                Some(length) if so_far > length => return self.end(Some(Err(LengthError::Longer(length).into()))),
                // Held back until the next poll of the frames: over HTTP/1.1 hyper does not poll behind the last byte,
                // so a piece too many would go unnoticed.
                Some(length) if so_far == length => self.last = Some(data),
                _ => {
                    self.bytes = so_far;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
    }

    /// Polls for the next frame that is not an empty piece. Over HTTP/2 each empty piece would be a frame, and servers
    /// take many of those for an attack. A panic of the user's code becomes the body's error: it must not reach the task of a
    /// connection, which may serve other requests.
    fn poll_nonempty(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let frames = self.frames.get_mut().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_SKIPPED {
            let frame = match catch_unwind(AssertUnwindSafe(|| frames.as_mut().poll_frame(cx))) {
                Ok(polled) => ready!(polled),
                Err(panic) => Some(Err(Panicked::of(&*panic).into())),
            };
            if !matches!(&frame, Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty)) {
                return Poll::Ready(frame);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Handles frames that are not ready. If the last piece was held back, it is handed out now. The end of pieces is
    /// not waited for then, because no trailers can follow them.
    fn pause(&mut self) -> PolledFrame {
        if self.last.is_none() {
            return Poll::Pending;
        }
        if !self.may_have_trailers || self.has_read_all_frames() {
            return self.finish(None);
        }
        if !self.passed_from.is_empty() && matches!(self.sendable, Some(Sendable::Announced(_))) {
            // A message that is received has an end, and behind the last byte no trailer can be refused over HTTP/1.1.
            return Poll::Pending;
        }
        Poll::Ready(self.take_last().map(Ok))
    }

    /// Returns true if the frames themselves say that none is left.
    fn has_read_all_frames(&self) -> bool {
        let frames = self.frames.lock().unwrap_or_else(PoisonError::into_inner);
        catch_unwind(AssertUnwindSafe(|| frames.is_end_stream())).unwrap_or(false)
    }

    /// Handles the end of the frames: hands out the last piece, then the trailers, then nothing.
    fn finish(&mut self, trailers: Option<HeaderMap>) -> PolledFrame {
        self.is_read = true;
        let last = self.take_last();
        if let Some(length) = self.length.filter(|length| self.bytes < *length) {
            return self.end(Some(Err(LengthError::Shorter(length, self.bytes).into())));
        }
        let trailers = self.trailers.take().or_else(|| self.passed_on(trailers?));
        // Before the last piece, behind which hyper does not poll over HTTP/1.1: the trailers would be lost without a word.
        if let (Some(sendable), Some(trailers)) = (&self.sendable, &trailers)
            && let Err(error) = sendable.check(trailers)
        {
            return self.end(Some(Err(error.into())));
        }
        match (last, trailers) {
            (Some(last), trailers) => {
                self.is_ended = trailers.is_none();
                self.trailers = trailers;
                Poll::Ready(Some(Ok(last)))
            }
            (None, trailers) => self.end(trailers.map(|trailers| Ok(Frame::trailers(trailers)))),
        }
    }

    /// Takes the piece that was held back.
    fn take_last(&mut self) -> Option<Frame<Bytes>> {
        let last = self.last.take()?;
        self.bytes += last.len() as u64;
        Some(Frame::data(last))
    }

    fn end<T>(&mut self, last: Option<T>) -> Poll<Option<T>> {
        self.is_ended = true;
        Poll::Ready(last)
    }
}

/// A body of another type, with its error type erased.
pub(super) struct Wrapped<B>(pub(super) Pin<Box<B>>);

impl<B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>>> http_body::Body for Wrapped<B> {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        self.0.as_mut().poll_frame(cx).map_ok(|frame| frame.map_data(Into::into)).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

/// A body that came over HTTP/2. It fails if it ends before the peer has ended it.
pub(super) struct Uncut(pub(super) Incoming);

impl http_body::Body for Uncut {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        match ready!(Pin::new(&mut self.0).poll_frame(cx)) {
            None if !self.0.is_end_stream() => Poll::Ready(Some(Err("the peer cut the body off".into()))),
            frame => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A stream of pieces as a body.
pub(super) struct Pieces<S>(pub(super) Pin<Box<S>>);

impl<S: TryStream<Ok: Into<Bytes>, Error: Into<Cause>>> http_body::Body for Pieces<S> {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let piece = ready!(self.0.as_mut().try_poll_next(cx));
        Poll::Ready(piece.map(|piece| piece.map(|piece| Frame::data(piece.into())).map_err(Into::into)))
    }
}

/// Content that a function makes anew each time it is read.
struct MadeBy<F>(F);

impl<B, F> Replayable for MadeBy<F>
where
    B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    F: Fn() -> B + Send + Sync,
{
    fn frames(self: Arc<Self>) -> Pin<Box<dyn Frames>> {
        Box::pin(Wrapped(Box::pin((self.0)())))
    }
}

impl Replayable for Bytes {
    fn frames(self: Arc<Self>) -> Pin<Box<dyn Frames>> {
        let piece = futures_util::stream::iter([Ok::<_, Cause>(Self::clone(&self))]);
        Box::pin(Pieces(Box::pin(piece)))
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A callback for the bytes of a body, and the bytes that were last reported. Clones for further attempts share the
/// callback. Of attempts that overlap, only the one that began last reports, so that the counts rise.
pub(super) struct ProgressCallback {
    shared: Arc<Mutex<SharedCallback>>,
    /// The number of this attempt; `None` before its first report.
    attempt: Option<u64>,
    last_reported: u64,
}

/// The part of a [`ProgressCallback`] that all attempts share.
struct SharedCallback {
    /// `None` while the callback runs, and after it has panicked.
    callback: Option<Callback>,
    /// The number of the attempt that began last.
    newest_attempt: u64,
    /// The progress that the callback was not called with yet.
    unreported: Option<Progress>,
}

type Callback = Box<dyn FnMut(u64, Option<u64>) + Send>;

/// The bytes so far, and the length of the body if it is known.
type Progress = (u64, Option<u64>);

impl ProgressCallback {
    pub(super) fn new(callback: impl FnMut(u64, Option<u64>) + Send + 'static) -> Self {
        let shared = SharedCallback { callback: Some(Box::new(callback)), newest_attempt: 0, unreported: None };
        Self { shared: Arc::new(Mutex::new(shared)), attempt: None, last_reported: 0 }
    }

    /// Returns the progress of the same body when it is sent once more, from its start.
    pub(super) fn restarted(&self) -> Self {
        Self { shared: self.shared.clone(), attempt: None, last_reported: 0 }
    }

    /// Calls the callback with `bytes` of `total`, unless they were reported before or a newer attempt has begun.
    pub(super) fn report(&mut self, bytes: u64, total: Option<u64>) {
        if bytes == self.last_reported {
            return;
        }
        self.last_reported = bytes;
        let mut shared = lock(&self.shared);
        let attempt = *self.attempt.get_or_insert_with(|| {
            shared.newest_attempt += 1;
            shared.newest_attempt
        });
        if attempt != shared.newest_attempt {
            return;
        }
        shared.unreported = Some((bytes, total));
        drop(shared);
        call_back(&self.shared);
    }
}

/// Calls the callback until everything is reported. If it runs already, for an older attempt in another thread, that
/// thread does so.
///
/// A panic of the callback must not reach the task of a connection, which may serve other requests. After one the
/// callback is not called again.
fn call_back(shared: &Mutex<SharedCallback>) {
    while let Some((callback, (bytes, total))) = take_call(shared) {
        let called = catch_unwind(AssertUnwindSafe(move || {
            let mut callback = callback;
            callback(bytes, total);
            callback
        }));
        let Ok(callback) = called else { return };
        lock(shared).callback = Some(callback);
    }
}

/// Takes the callback out, so that it does not run under the lock, together with what it is to be called with.
fn take_call(shared: &Mutex<SharedCallback>) -> Option<(Callback, Progress)> {
    let mut shared = lock(shared);
    let progress = shared.unreported?;
    let callback = shared.callback.take()?;
    shared.unreported = None;
    Some((callback, progress))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns a callback that records its calls, and the record.
    fn recorded() -> (ProgressCallback, Arc<Mutex<Vec<Progress>>>) {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = calls.clone();
        (ProgressCallback::new(move |bytes, total| lock(&seen).push((bytes, total))), calls)
    }

    #[test]
    fn only_new_bytes_are_reported() {
        let (mut progress, calls) = recorded();
        for bytes in [0, 5, 5, 8] {
            progress.report(bytes, Some(8));
        }
        progress.restarted().report(3, None);
        assert_eq!(*lock(&calls), [(5, Some(8)), (8, Some(8)), (3, None)]);
    }

    #[test]
    fn of_attempts_that_overlap_the_last_one_reports() {
        let (mut first, calls) = recorded();
        let mut second = first.restarted();
        let mut third = second.restarted();
        first.report(5, None);
        second.report(4, None);
        first.report(6, None);
        second.report(8, None);
        first.report(8, None);
        third.report(8, None);
        second.report(9, None);
        assert_eq!(lock(&calls).iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [5, 4, 8, 8]);
    }

    #[test]
    fn a_report_is_not_lost_while_the_callback_runs_for_another_attempt() {
        let running = Arc::new(Barrier::new(2));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (inside, seen) = (running.clone(), calls.clone());
        let mut first = ProgressCallback::new(move |bytes, _| {
            lock(&seen).push(bytes);
            if bytes == 1 {
                inside.wait();
                inside.wait();
            }
        });
        let mut second = first.restarted();
        let meanwhile = std::thread::scope(|scope| {
            scope.spawn(move || first.report(1, None));
            running.wait();
            second.report(50, Some(100));
            second.report(100, Some(100));
            let meanwhile = lock(&calls).clone();
            running.wait();
            meanwhile
        });
        assert_eq!(meanwhile, [1], "the callback runs in one thread at a time");
        assert_eq!(*lock(&calls), [1, 100]);
    }

    #[test]
    fn a_callback_that_panics_is_not_called_again() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let mut progress = ProgressCallback::new(move |_, _| {
            seen.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new(()));
        });
        progress.report(1, None);
        progress.report(2, None);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
