//! A request's body as hyper reads it, piece by piece while the server takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::Body;
use super::upload::Upload;
use crate::client::pool_side::dialer;
use crate::connect;
use crate::error::Cause;

/// A request's body on its way; `None` if it is empty. It is one pointer, because hyper keeps room for 32 requests a
/// connection.
pub(crate) struct OutgoingBody(Option<Box<Carried>>);

struct Carried {
    body: Body,
    /// The record of the body's progress, if it is kept.
    upload: Option<Arc<Upload>>,
}

/// The dialer of a client's pool, for requests with these bodies.
pub(in crate::client) type Dialer = dialer::Dialer<OutgoingBody>;

/// The length of the pieces in which bytes are handed over if their progress is recorded. The next one is read when the
/// server has taken the last one.
const PIECE: usize = 16 * 1024;

impl OutgoingBody {
    /// Creates a body to be sent. Its progress is recorded in `upload`, if there is one.
    pub(crate) fn new(body: Body, upload: Option<Arc<Upload>>) -> Self {
        if body.is_empty() {
            return Self(None);
        }
        let body = match &upload {
            Some(upload) => upload.hold_back(body),
            None => body,
        };
        Self(Some(Box::new(Carried { body, upload })))
    }

    /// Creates a body without bytes.
    pub(crate) fn empty() -> Self {
        Self(None)
    }

    /// Returns the part of the body that was not read.
    pub(crate) fn into_body(mut self) -> Body {
        self.0.as_mut().map(|carried| std::mem::take(&mut carried.body)).unwrap_or_default()
    }
}

impl http_body::Body for OutgoingBody {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let Some(carried) = &mut self.0 else { return Poll::Ready(None) };
        let Some(upload) = &carried.upload else { return carried.body.poll_own(cx) };
        match ready!(upload.poll_permission(cx)) {
            Ok(Some(held)) => carried.body = held,
            Ok(None) => {}
            Err(error) => return Poll::Ready(Some(Err(error))),
        }
        upload.begin();
        let frame = match carried.body.split(PIECE) {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None => {
                let polled = carried.body.poll_own(cx);
                upload.set_starved(polled.is_pending());
                ready!(polled)
            }
        };
        // hyper fails the request and says so in its own words. The body's error is kept for the call's error.
        let frame = frame.map(|frame| {
            frame.map_err(|error| {
                upload.fail(error);
                Cause::from("the request's body could not be read")
            })
        });
        let is_read = http_body::Body::is_end_stream(&carried.body);
        let (bytes, is_last) = match &frame {
            None => (0, true),
            Some(Ok(frame)) => (frame.data_ref().map_or(0, Bytes::len), is_read),
            Some(Err(_)) => (0, false),
        };
        upload.hand_over(bytes, is_last);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let carried = self.0.as_deref();
        let is_over = carried.is_none_or(Carried::is_over);
        connect::note_stream(!is_over && !carried.is_some_and(|carried| carried.look(Body::is_bytes)));
        is_over
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |carried| carried.size_hint())
    }
}

impl Carried {
    fn is_over(&self) -> bool {
        self.look(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.look(http_body::Body::size_hint)
    }

    /// Calls `look` with the body, which is in the upload while it is held back.
    fn look<T>(&self, look: impl FnOnce(&Body) -> T) -> T {
        match &self.upload {
            Some(upload) => upload.look_at_held(|held| look(held.unwrap_or(&self.body))),
            None => look(&self.body),
        }
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(upload) = &self.upload {
            // Over HTTP/1.1 hyper does not poll behind the last byte of a body with a length, so the end may not have
            // been seen.
            upload.end(http_body::Body::size_hint(&self.body).exact() == Some(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_recorded_body_is_handed_over_in_pieces() {
        let upload = Arc::new(Upload::default());
        let mut body = OutgoingBody::new(vec![0; PIECE + 1].into(), Some(upload.clone()));
        assert!(!upload.is_begun());
        for length in [PIECE, 1] {
            assert!(upload.sent_at().is_none());
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), length);
        }
        assert!(upload.is_begun() && upload.sent_at().is_some() && !upload.is_over());
        drop(body);
        assert!(upload.is_over());
        assert_eq!(upload.bytes(), PIECE as u64 + 1);
    }

    #[tokio::test]
    async fn an_error_of_the_body_is_kept() {
        let upload = Arc::new(Upload::default());
        let pieces = futures_util::stream::iter([Err::<Bytes, Cause>("the disk is gone".into())]);
        let body = OutgoingBody::new(Body::wrap_stream(pieces), Some(upload.clone()));
        assert!(body.collect().await.is_err());
        assert_eq!(upload.take_failure().unwrap().to_string(), "the disk is gone");
        assert!(upload.sent_at().is_none());
    }
}
