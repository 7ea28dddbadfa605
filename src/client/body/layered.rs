//! Bodies as the layers around an attempt get them: that of its response, and a request's stream, which is lent to them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::BodyReader;
use crate::client::body::Body;
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

/// A stream that is lent. It can be taken back as long as nothing of it was read, whatever became of the body that reads
/// it.
#[derive(Clone)]
pub(crate) struct Loan(Arc<Mutex<Lent>>);

struct Lent {
    /// `None` once it was taken back.
    body: Option<Body>,
    is_begun: bool,
}

/// The body that reads a lent stream.
struct Borrowed(Arc<Mutex<Lent>>);

impl Loan {
    /// Lends a stream. Returns the body that reads it.
    pub(crate) fn new(body: Body) -> (Self, Body) {
        let lent = Arc::new(Mutex::new(Lent { body: Some(body), is_begun: false }));
        (Self(lent.clone()), Body::wrap(Borrowed(lent)))
    }

    /// Returns true if nothing of the stream was read.
    pub(crate) fn is_unread(&self) -> bool {
        !lock(&self.0).is_begun
    }

    /// Takes the stream back, unless some of it was read.
    pub(crate) fn take_back(self) -> Option<Body> {
        let mut lent = lock(&self.0);
        if lent.is_begun { None } else { lent.body.take() }
    }
}

impl http_body::Body for Borrowed {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let mut lent = lock(&self.0);
        let Some(body) = &mut lent.body else { return Poll::Ready(Some(Err("the body was taken back".into()))) };
        let frame = body.poll_own(cx);
        lent.is_begun = true;
        frame
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).body.as_ref().map_or_else(SizeHint::default, http_body::Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn stream() -> Body {
        Body::sized(5, futures_util::stream::iter(["he", "llo"].map(Ok::<_, Cause>)))
    }

    #[tokio::test]
    async fn a_stream_can_be_taken_back_until_it_is_read() {
        let (loan, mut body) = Loan::new(stream());
        assert_eq!((loan.is_unread(), body.content_length()), (true, Some(5)));
        let taken = loan.clone().take_back().unwrap();
        assert!(body.frame().await.unwrap().is_err(), "it is no longer there");
        assert_eq!(taken.collect().await.unwrap().to_bytes(), "hello");

        let (loan, mut body) = Loan::new(stream());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "he");
        assert!(!loan.is_unread() && loan.take_back().is_none());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "llo");
    }
}
