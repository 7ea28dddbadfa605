//! A response's body as its user reads it: decompressed, with its first piece possibly read ahead.

use std::future::poll_fn;
#[cfg(feature = "__compression")]
use std::task::ready;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::runtime::Handle;

#[cfg(feature = "__compression")]
use super::decode::{Decoder, Step};
use super::incoming::IncomingBody;
use crate::clock;
#[cfg(feature = "__compression")]
use crate::error::Error;
use crate::error::Result;
use crate::origin::Origin;
use crate::trace::Trace;

/// The longest wait for the first piece of an error response's body.
const START_TIMEOUT: Duration = Duration::from_millis(20);

/// Reads a response's body.
pub(crate) struct BodyReader {
    body: IncomingBody,
    /// The first frame, if it was read ahead and not handed out yet.
    start: Option<Box<Result<Frame<Bytes>>>>,
    #[cfg(feature = "__compression")]
    decoder: Option<Box<Decoder>>,
}

impl BodyReader {
    pub(crate) fn new(body: IncomingBody) -> Self {
        Self {
            body,
            start: None,
            #[cfg(feature = "__compression")]
            decoder: None,
        }
    }

    /// Decompresses the body with `decoder`, if there is one.
    #[cfg(feature = "__compression")]
    pub(crate) fn decode_with(&mut self, decoder: Option<Decoder>) {
        self.decoder = decoder.map(Box::new);
    }

    /// Marks the body as the user's to read: dropping it from now on cancels the call.
    pub(crate) fn begin(&mut self) {
        self.body.begin();
    }

    /// Discards the body, and frees its connection as soon as possible.
    pub(crate) fn drain(&mut self) {
        self.body.drain();
    }

    pub(crate) fn origin(&self) -> &Origin {
        self.body.origin()
    }

    pub(crate) fn trace(&self) -> &Trace {
        self.body.trace()
    }

    /// Returns true if there is no body, whatever the headers say: a response to HEAD has none.
    #[cfg(feature = "__compression")]
    pub(crate) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// Waits for the first piece of the body, for [`START_TIMEOUT`] at most, and keeps it to be read.
    pub(crate) async fn read_start(&mut self) {
        // Outside of a runtime there are no timers.
        if self.body.is_over() || Handle::try_current().is_err() {
            return;
        }
        let until = clock::now().checked_add(START_TIMEOUT);
        let first = clock::before(until, poll_fn(|cx| self.poll_frame(cx))).await;
        self.start = first.flatten().map(Box::new);
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

    /// Returns true if no frame is left. A body that is decompressed only knows when it is polled.
    pub(crate) fn is_over(&self) -> bool {
        !self.is_decoded() && self.start.is_none() && self.body.is_over() && !self.body.has_failed()
    }

    fn is_decoded(&self) -> bool {
        #[cfg(feature = "__compression")]
        let is_decoded = self.decoder.is_some();
        #[cfg(not(feature = "__compression"))]
        let is_decoded = false;
        is_decoded
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(start) = self.start.take() {
            return Poll::Ready(Some(*start));
        }
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return self.poll_decoded(cx);
        }
        self.body.poll_frame(cx)
    }

    #[cfg(feature = "__compression")]
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Self { body, decoder: Some(decoder), .. } = self else { return self.body.poll_frame(cx) };
        loop {
            match decoder.next() {
                Ok(Step::Decoded(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Step::NeedsInput) => {}
                Ok(Step::Yield) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => {
                    body.fail_decoding();
                    let error = Error::compression(body.origin(), error);
                    self.decoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            if decoder.is_over() {
                return Poll::Ready(decoder.take_trailers().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(body.poll_frame(cx)) {
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
