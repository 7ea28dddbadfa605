//! A response's body as its user reads it: decompressed, with its first piece possibly read ahead.

use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::decode::{Decoder, DecoderStep};
use super::incoming::IncomingBody;
use crate::client::body::streamed::ProgressCallback;
use crate::error::{Error, Result};
use crate::trace::Trace;

/// Reads a response's body.
pub(crate) struct BodyReader {
    body: IncomingBody,
    /// The first frame, if it was read ahead and not handed out yet.
    start: Option<Box<Result<Frame<Bytes>>>>,
    decoder: Option<Box<Decoder>>,
    /// The limit of the body's length, if there is one.
    limit: Option<Box<LengthLimit>>,
    progress: Option<Box<ProgressCallback>>,
}

/// A limit of a body's length, as its user reads it.
struct LengthLimit {
    /// The most bytes that the body may have.
    max: u64,
    /// The bytes of `max` that were not received yet.
    left: u64,
}

impl BodyReader {
    #[inline(always)]
    pub(crate) fn new(body: IncomingBody) -> Self {
        Self { body, start: None, decoder: None, limit: None, progress: None }
    }

    /// Calls `callback` with the bytes received so far, before they are decompressed, and the announced length.
    pub(crate) fn on_progress(&mut self, callback: impl FnMut(u64, Option<u64>) + Send + 'static) {
        self.progress = Some(Box::new(ProgressCallback::new(callback)));
    }

    /// Decompresses the body with `decoder`, if there is one.
    pub(crate) fn decode_with(&mut self, decoder: Option<Decoder>) {
        self.decoder = decoder.map(Box::new);
    }

    /// Limits the body to `max` bytes.
    pub(crate) fn limit(&mut self, max: u64) {
        self.limit = Some(Box::new(LengthLimit { max, left: max }));
    }

    /// Marks the body as the user's to read: dropping it from now on ends the call.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.body.lacks_only_its_end() {
            // Mostly it has come with the head.
            self.read_arrived();
            let is_empty = |start: &Result<Frame<Bytes>>| matches!(start, Ok(frame) if frame.data_ref().is_some_and(Bytes::is_empty));
            self.start = self.start.take().filter(|start| !is_empty(start));
        }
        self.body.begin();
    }

    /// Discards the body, and frees its connection as soon as possible.
    pub(crate) fn drain(&mut self) {
        self.body.drain();
    }

    pub(crate) fn trace(&self) -> &Trace {
        self.body.trace()
    }

    /// Returns true if there is no body, whatever the headers say: a response to HEAD has none.
    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Reads the first frame ahead if it has arrived. It stays to be read.
    pub(crate) fn read_arrived(&mut self) {
        if self.start.is_some() || self.body.is_over() {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(first) = self.poll_within(&mut cx, IncomingBody::poll_arrived) {
            self.start = first.map(Box::new);
        }
    }

    /// Returns the first piece of the body if it was read ahead and not handed out yet; empty otherwise.
    pub(crate) fn start(&self) -> Bytes {
        let data = self.start.as_deref().and_then(|start| start.as_ref().ok()?.data_ref());
        data.cloned().unwrap_or_default()
    }

    /// Returns the length of the part of the body that is not handed out yet, if it is known. It is not known of a body
    /// that is decompressed or has failed.
    pub(crate) fn remaining(&self) -> SizeHint {
        if self.is_decoded() || self.body.has_failed() {
            return SizeHint::default();
        }
        let start = self.start().len() as u64;
        self.body.remaining().map_or_else(SizeHint::default, |remaining| SizeHint::with_exact(remaining + start))
    }

    /// Returns the length of the whole body, if it is known. It is not known of a body that is decompressed or has
    /// failed.
    pub(crate) fn length(&self) -> Option<u64> {
        if self.is_decoded() || self.body.has_failed() {
            return None;
        }
        self.body.remaining().map(|remaining| remaining + self.body.bytes())
    }

    /// Returns true if nothing but the end of a body without content is left.
    pub(crate) fn lacks_only_its_end(&self) -> bool {
        self.start.is_none() && self.body.lacks_only_its_end()
    }

    /// Returns true if no frame is left. A body that is decompressed only knows when it is polled.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_decoded() && self.start.is_none() && self.body.is_over() && !self.body.has_failed()
    }

    fn is_decoded(&self) -> bool {
        self.decoder.is_some()
    }

    #[inline]
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(start) = self.start.take() {
            self.report_progress();
            return Poll::Ready(Some(*start));
        }
        if self.progress.is_none() {
            return self.poll_within(cx, IncomingBody::poll_frame);
        }
        let polled = self.poll_within(cx, IncomingBody::poll_frame);
        self.report_progress();
        polled
    }

    /// Tells the callback for progress what has been received, if there is one.
    fn report_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.report(self.body.bytes(), self.body.announced());
        }
    }

    /// Like [`Self::poll_by`], and fails if the body becomes longer than its limit.
    #[inline(always)]
    fn poll_within(
        &mut self,
        cx: &mut Context<'_>,
        poll_body: impl Fn(&mut IncomingBody, &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.limit.is_none() {
            return self.poll_by(cx, poll_body);
        }
        let frame = ready!(self.poll_by(cx, poll_body));
        let (Some(limit), Some(Ok(received))) = (&mut self.limit, &frame) else { return Poll::Ready(frame) };
        let length = received.data_ref().map_or(0, Bytes::len) as u64;
        if let Some(left) = limit.left.checked_sub(length) {
            limit.left = left;
            return Poll::Ready(frame);
        }
        let error = Error::long_body(limit.max);
        self.body.fail_early("body");
        drop(self.decoder.take());
        Poll::Ready(Some(Err(error)))
    }

    /// Polls for the next frame that was not read ahead. `poll_body` polls the body as it arrives.
    #[inline(always)]
    fn poll_by(
        &mut self,
        cx: &mut Context<'_>,
        poll_body: impl Fn(&mut IncomingBody, &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.decoder.is_some() {
            return self.poll_decoded(cx, poll_body);
        }
        poll_body(&mut self.body, cx)
    }

    fn poll_decoded(
        &mut self,
        cx: &mut Context<'_>,
        poll_body: impl Fn(&mut IncomingBody, &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>>,
    ) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Self { body, decoder: Some(decoder), .. } = self else { return poll_body(&mut self.body, cx) };
        loop {
            match decoder.next() {
                Ok(DecoderStep::Decoded(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(DecoderStep::NeedsInput) => {}
                Ok(DecoderStep::Yield) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => {
                    body.fail_early("decode");
                    let is_lasting = error.is_lasting();
                    let error = Error::compression(error, is_lasting);
                    self.decoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            if decoder.is_over() {
                return Poll::Ready(decoder.take_trailers().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(poll_body(body, cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => decoder.push(data),
                    Err(other) => decoder.set_trailers(other.into_trailers().ok()),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => decoder.end(),
            }
        }
    }
}
