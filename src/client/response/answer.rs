//! A response during its call: it may be the last one, or be followed by a redirect or a retry.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::response::Parts;
use http::{Extensions, HeaderMap, StatusCode};
use http_body::Frame;

use super::upgraded::PendingUpgrade;
use crate::client::body::{Body, BodyReader, Decoder, Decompression, IncomingBody, LayeredBody};
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::trace::Trace;

/// A response's head and body. It may not be the last one of its call. Dropped, it closes its connection, or its HTTP/2 stream.
pub(in crate::client) struct Answer {
    pub(in crate::client) head: Parts,
    pub(in crate::client) content: AnswerContent,
    /// Boxed, because few responses have any.
    pub(in crate::client) trailers: Option<Box<HeaderMap>>,
    /// True if the request was a HEAD: the headers describe a body that is not sent.
    pub(in crate::client) answers_head: bool,
    /// True if the user has read a part of the body.
    pub(in crate::client) is_partly_read: bool,
}

impl Answer {
    /// Makes an answer of a head and a body. `answers_head` is true if the request was a HEAD.
    #[inline(always)]
    pub(in crate::client) fn new(head: Parts, body: IncomingBody, answers_head: bool) -> Self {
        Self::of(head, AnswerContent::Received(BodyReader::new(body)), answers_head)
    }

    #[inline(always)]
    pub(in crate::client) fn of(head: Parts, content: AnswerContent, answers_head: bool) -> Self {
        Self { head, content, trailers: None, answers_head, is_partly_read: false }
    }

    /// Makes an answer of a response that came through layers around the attempt.
    pub(in crate::client) fn layered(head: Parts, body: Body, facts: BodyFacts) -> Self {
        let answers_head = facts.answers_head;
        Self::of(head, AnswerContent::Replaced(body, facts), answers_head)
    }

    /// Makes the response that layers around the attempt get, and a handle to its body.
    pub(in crate::client) fn into_layered(self) -> (http::Response<Body>, LayeredBody) {
        let AnswerContent::Received(reader) = self.content else {
            unreachable!("the innermost service has received the response")
        };
        let (received, body) = LayeredBody::new(reader);
        (http::Response::from_parts(self.head, body), received)
    }

    pub(in crate::client) fn status(&self) -> StatusCode {
        self.head.status
    }

    /// Returns true if the connection switches to another protocol, as the request asked.
    pub(in crate::client) fn is_upgrade(&self) -> bool {
        self.head.extensions.get::<PendingUpgrade>().is_some()
    }

    pub(in crate::client) fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// Discards the body, and frees the connection as soon as possible.
    pub(in crate::client) fn drain(&mut self) {
        if let Some(reader) = self.content.reader() {
            reader.drain();
        }
        if let AnswerContent::Replaced(_, facts) = &self.content {
            facts.received.iter().for_each(LayeredBody::drain);
        }
    }

    /// Sets the body up to be decompressed, if it is compressed.
    ///
    /// # Errors
    /// The body has too many content codings. The response is drained then.
    pub(in crate::client) fn decompress(&mut self, decompression: Decompression) -> Result<()> {
        if decompression.is_none() {
            return Ok(());
        }
        let Self { head, content, .. } = self;
        let Some(reader) = content.reader() else { return Ok(()) };
        // The headers of a response without a body describe the body that another request would get. They stay as they
        // are.
        if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || reader.is_empty() {
            return Ok(());
        }
        match Decoder::of(&mut head.headers, decompression) {
            Ok(decoder) => {
                reader.decode_with(decoder);
                Ok(())
            }
            Err(error) => {
                let is_lasting = error.is_lasting();
                let error = Error::compression(error, is_lasting);
                self.drain();
                Err(error)
            }
        }
    }

    /// Limits the body to `max` bytes, after decompression.
    ///
    /// # Errors
    /// The body is announced to be longer. The response is drained then.
    pub(in crate::client) fn limit(&mut self, max: u64) -> Result<()> {
        if self.content.length().is_some_and(|length| length > max) {
            self.drain();
            return Err(Error::long_body(max));
        }
        if let Some(reader) = self.content.reader() {
            reader.limit(max);
        }
        Ok(())
    }

    /// Limits the body that layers around the attempt get. One that is announced to be longer is left to
    /// [`limit`](Self::limit).
    pub(in crate::client) fn limit_for_layers(&mut self, max: Option<u64>) {
        if let (Some(max), Some(reader)) = (max, self.content.reader()) {
            reader.limit(max);
        }
    }

    /// Adds the values that go along with the request. Those that came with the response take precedence.
    pub(in crate::client) fn add_extensions(&mut self, extensions: Extensions) {
        if !extensions.is_empty() {
            let own = std::mem::take(&mut self.head.extensions);
            self.head.extensions = joined(extensions, own);
        }
    }

    /// Makes the response the last one of its call. From now on its body counts as read by the user.
    pub(in crate::client) fn finish(&mut self) {
        if let Some(reader) = self.content.reader() {
            reader.begin();
        }
        if let AnswerContent::Replaced(_, facts) = &mut self.content {
            let is_received = facts.received.take().is_some_and(|received| received.begin());
            if !is_received {
                facts.trace.answered_by_layer(self.head.status, self.head.version);
            }
        }
    }
}

/// Returns the values of a request and of its response. Those of the response take precedence.
pub(in crate::client) fn joined(mut request: Extensions, response: Extensions) -> Extensions {
    request.extend(response);
    request
}

/// A response's body: as received, or of a layer or a user.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub(in crate::client) enum AnswerContent {
    Received(BodyReader),
    Replaced(Body, BodyFacts),
}

/// The facts about a received body that are kept when a layer replaces it; also of a body that was not received.
#[derive(Clone)]
pub(in crate::client) struct BodyFacts {
    pub(in crate::client) origin: Origin,
    pub(in crate::client) trace: Trace,
    /// The first piece of the body of an error response, if it was read ahead.
    pub(in crate::client) start: Bytes,
    /// True if the request was a HEAD.
    pub(in crate::client) answers_head: bool,
    /// The body as it was received, within the layers around an attempt.
    pub(in crate::client) received: Option<LayeredBody>,
}

impl AnswerContent {
    pub(in crate::client) fn trace(&self) -> &Trace {
        match self {
            Self::Received(reader) => reader.trace(),
            Self::Replaced(_, facts) => &facts.trace,
        }
    }

    /// Reads the first piece of the body ahead if it has arrived. It stays to be read, unless a layer replaced the body.
    pub(in crate::client) fn read_arrived(&mut self) {
        match self {
            Self::Received(reader) => reader.read_arrived(),
            Self::Replaced(body, facts) if facts.start.is_empty() => {
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(Some(Ok(first))) = http_body::Body::poll_frame(Pin::new(body), &mut cx) {
                    facts.start = first.into_data().unwrap_or_default();
                }
            }
            Self::Replaced(..) => {}
        }
    }

    /// Returns the first piece of the body of an error response; empty if it was not read ahead.
    pub(in crate::client) fn start(&self) -> Bytes {
        match self {
            Self::Received(reader) => reader.start(),
            Self::Replaced(_, facts) => facts.start.clone(),
        }
    }

    /// Returns the length of the whole body, if it is known.
    pub(in crate::client) fn length(&self) -> Option<u64> {
        match self {
            Self::Received(reader) => reader.length(),
            Self::Replaced(body, _) => body.content_length(),
        }
    }

    /// Returns true if it is known that nothing of the body is left, and that it has not failed.
    pub(in crate::client) fn is_over(&self) -> bool {
        match self {
            Self::Received(reader) => reader.is_over(),
            Self::Replaced(body, _) => http_body::Body::is_end_stream(body),
        }
    }

    /// Returns the reader of a body that no layer replaced.
    pub(in crate::client) fn reader(&mut self) -> Option<&mut BodyReader> {
        match self {
            Self::Received(reader) => Some(reader),
            Self::Replaced(..) => None,
        }
    }

    pub(in crate::client) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        match self {
            Self::Received(reader) => reader.poll_frame(cx),
            Self::Replaced(body, _) => {
                body.poll_own(cx).map(|frame| frame.map(|frame| frame.map_err(Error::other_body)))
            }
        }
    }
}
