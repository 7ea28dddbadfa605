//! The body of an attempt's response, as the layers around the attempt get it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::{Body, BodyReader};
use crate::error::Cause;
use crate::sync::lock;

/// A handle to the body that layers have. It does not keep the body.
#[derive(Clone)]
pub(crate) struct LayeredBody(Weak<Mutex<SharedReader>>);

struct SharedReader {
    reader: BodyReader,
    is_begun: bool,
}

/// The body that layers have.
struct Received(Arc<Mutex<SharedReader>>);

impl LayeredBody {
    /// Makes a body for layers. Returns its handle as well.
    pub(crate) fn new(reader: BodyReader) -> (Self, Body) {
        let shared = Arc::new(Mutex::new(SharedReader { reader, is_begun: false }));
        (Self(Arc::downgrade(&shared)), Body::wrap(Received(shared)))
    }

    /// Returns true if a layer, or the response, still has the body.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Marks the body as the user's to read. Returns false if it is gone.
    pub(crate) fn begin(&self) -> bool {
        let Some(shared) = self.0.upgrade() else { return false };
        let mut shared = lock(&shared);
        shared.is_begun = true;
        shared.reader.begin();
        true
    }

    /// Discards the body, and frees the connection as soon as possible.
    pub(crate) fn drain(&self) {
        if let Some(shared) = self.0.upgrade() {
            lock(&shared).reader.drain();
        }
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        lock(&self.0).reader.poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        let shared = lock(&self.0);
        shared.reader.is_over() || (shared.is_begun && shared.reader.lacks_only_its_end())
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).reader.remaining()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let mut shared = lock(&self.0);
        if !shared.is_begun {
            // A layer discards the response, and its connection is still good for another attempt.
            shared.reader.drain();
        }
    }
}
