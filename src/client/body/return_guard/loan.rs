//! A request's stream, lent to the layers around an attempt.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::client::body::Body;
use crate::error::Cause;
use crate::sync::lock;

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
