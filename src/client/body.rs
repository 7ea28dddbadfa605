//! What a request carries.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::watch;

use crate::clock::{Instant, now};

/// A request's body: bytes, which are sent with their length and can be sent again.
///
/// ```
/// use speeddial::Body;
///
/// let body = Body::from("name=value");
/// assert_eq!(body.as_bytes(), b"name=value");
/// ```
#[derive(Clone, Default)]
pub struct Body {
    bytes: Bytes,
}

impl Body {
    /// The body's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} bytes)", self.bytes.len())
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { bytes }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from(bytes).into()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// A request's body on its way; nothing where there is none. It is small, because hyper keeps room for 32 requests a connection.
pub(crate) struct Outgoing(Option<Box<Carried>>);

struct Carried {
    body: Body,
    upload: Option<Arc<Upload>>,
}

/// Where it is followed how far a body has got, it is handed over in pieces: the next one when the peer takes it.
const PIECE: usize = 16 * 1024;

/// How far a body has got that shares its connection with others.
#[derive(Default)]
pub(super) struct Upload {
    /// When its last byte was handed over.
    sent: OnceLock<Instant>,
    over: watch::Sender<bool>,
}

impl Upload {
    pub(super) fn sent_at(&self) -> Option<Instant> {
        self.sent.get().copied()
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until nobody sends it any more.
    pub(super) async fn over(&self) {
        // The sender is in here, so it is not gone.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

impl Outgoing {
    pub(super) fn new(body: Body, upload: Option<Arc<Upload>>) -> Self {
        Self((!body.bytes.is_empty()).then(|| Box::new(Carried { body, upload })))
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(carried) = &mut self.0 else { return Poll::Ready(None) };
        if carried.upload.is_some() && carried.body.bytes.len() > PIECE {
            return Poll::Ready(Some(Ok(Frame::data(carried.body.bytes.split_to(PIECE)))));
        }
        let frame = Pin::new(&mut carried.body).poll_frame(cx);
        if let Some(upload) = carried.upload.as_ref().filter(|_| carried.body.is_end_stream()) {
            upload.sent.get_or_init(now);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|carried| carried.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |carried| carried.body.size_hint())
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(upload) = &self.upload {
            upload.over.send_replace(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn bytes_come_out_as_they_went_in() {
        let body = Body::from(vec![1, 2, 3]);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(3));
        assert_eq!(body.clone().collect().await.unwrap().to_bytes(), &[1, 2, 3][..]);
        assert!(http_body::Body::is_end_stream(&Body::default()));
    }
}
