//! Bodies that are made of several others, one after the other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;

use super::streamed::{Frames, Replayable, Streamed};
use super::{Body, BodyKind};
use crate::error::Cause;

/// The longest piece that is copied behind the bytes before it. Pieces of a few bytes would cost more to send.
const LONGEST_COPY: usize = 4096;

/// The length at which copied pieces are sent, though there may be more.
const ENOUGH: usize = 16 * 1024;

/// Several bodies that become one.
///
/// Its length is known if all of theirs are, and it can be sent again if all of them can. Their trailers are dropped.
#[derive(Default)]
pub(super) struct Joiner {
    bodies: Vec<Body>,
    /// Bytes that follow the last body.
    bytes: BytesMut,
}

impl Joiner {
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn push(&mut self, body: Body) {
        match &body.0 {
            BodyKind::Bytes(bytes) if bytes.len() <= LONGEST_COPY => self.push_bytes(bytes),
            _ => {
                self.end_bytes();
                self.bodies.push(body);
            }
        }
    }

    fn end_bytes(&mut self) {
        if !self.bytes.is_empty() {
            self.bodies.push(self.bytes.split().freeze().into());
        }
    }

    /// Returns all bodies as one.
    pub(super) fn finish(mut self) -> Body {
        self.end_bytes();
        let mut bodies = self.bodies;
        if let [Body(BodyKind::Bytes(_))] = &bodies[..] {
            return bodies.remove(0);
        }
        let length = bodies.iter().try_fold(0_u64, |sum, body| sum.checked_add(body.content_length()?));
        Body::streamed(if bodies.iter().all(Body::is_replayable) {
            Streamed::replayable(Arc::new(Several(bodies)), length)
        } else {
            Streamed::new(JoinedFrames::new(bodies.into_iter()), length, false)
        })
    }
}

/// Bodies that can be read again.
struct Several(Vec<Body>);

impl Replayable for Several {
    fn frames(self: Arc<Self>) -> Pin<Box<dyn Frames>> {
        // Each body is cloned when its turn comes.
        let numbers = 0..self.0.len();
        let rest = numbers.map(move |number| self.0[number].try_clone().expect("all of them can be read again"));
        Box::pin(JoinedFrames::new(rest))
    }
}

/// The frames of several bodies.
struct JoinedFrames<I> {
    rest: I,
    current: Option<Body>,
    /// A long piece that waits for the short ones before it.
    long_piece: Option<Bytes>,
}

impl<I: Iterator<Item = Body>> JoinedFrames<I> {
    fn new(rest: I) -> Self {
        Self { rest, current: None, long_piece: None }
    }

    /// Polls for the next piece of the bodies.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cause>>> {
        loop {
            let current = match &mut self.current {
                Some(current) => current,
                None => match self.rest.next() {
                    Some(next) => self.current.insert(next),
                    None => return Poll::Ready(None),
                },
            };
            match ready!(current.poll_own(cx)?).map(Frame::into_data) {
                Some(Ok(piece)) => return Poll::Ready(Some(Ok(piece))),
                Some(Err(_trailers)) => {}
                None => self.current = None,
            }
        }
    }

    /// Polls for the next pieces. Short ones that are ready become one: over HTTP/2 each piece would be a frame, and
    /// servers take many short frames for an attack.
    fn poll_pieces(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cause>>> {
        if let Some(piece) = self.long_piece.take() {
            return Poll::Ready(Some(Ok(piece)));
        }
        let mut short_pieces = BytesMut::new();
        while short_pieces.len() < ENOUGH {
            match self.poll_piece(cx)? {
                Poll::Ready(Some(piece)) if piece.len() <= LONGEST_COPY => short_pieces.extend_from_slice(&piece),
                Poll::Ready(Some(piece)) if short_pieces.is_empty() => return Poll::Ready(Some(Ok(piece))),
                Poll::Ready(long_piece) => {
                    self.long_piece = long_piece;
                    break;
                }
                Poll::Pending if short_pieces.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(if short_pieces.is_empty() { None } else { Some(Ok(short_pieces.freeze())) })
    }
}

impl<I: Iterator<Item = Body> + Unpin> http_body::Body for JoinedFrames<I> {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        self.poll_pieces(cx).map_ok(Frame::data)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::iter;
    use http_body_util::BodyExt;

    use super::*;

    fn join(bodies: impl IntoIterator<Item = Body>) -> Body {
        let mut joiner = Joiner::default();
        for body in bodies {
            joiner.push(body);
        }
        joiner.finish()
    }

    fn stream() -> Body {
        Body::wrap_stream(iter([Ok::<_, Cause>("stream")]))
    }

    async fn read(body: Body) -> Bytes {
        BodyExt::collect(body).await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn short_bytes_become_one_body_of_bytes() {
        let joined = join(["a", "", "b"].map(Body::from));
        assert_eq!(joined.as_bytes(), Some(&b"ab"[..]));
        assert_eq!(join([]).content_length(), Some(0));
    }

    #[tokio::test]
    async fn bodies_that_can_be_read_again_make_one_that_can() {
        let long = || Body::from(vec![b'-'; LONGEST_COPY + 1]).on_progress(|_, _| {});
        let joined = join(["a".into(), long(), "b".into()]);
        assert_eq!(joined.content_length(), Some(LONGEST_COPY as u64 + 3));
        let clone = joined.try_clone().expect("bytes");
        let text = read(joined).await;
        assert_eq!((text.len(), text[0], text[text.len() - 1]), (LONGEST_COPY + 3, b'a', b'b'));
        assert_eq!(read(clone).await, text);
    }

    #[tokio::test]
    async fn a_stream_makes_the_whole_a_stream() {
        let joined = join(["a ".into(), stream(), " b".into()]);
        assert_eq!(joined.content_length(), None);
        assert!(joined.try_clone().is_none());
        assert_eq!(read(joined).await, "a stream b");
    }

    #[tokio::test]
    async fn short_pieces_are_joined_if_they_are_ready() {
        let mut number = 0;
        // The third piece is not ready at once.
        let pieces = futures_util::stream::poll_fn(move |cx| {
            number += 1;
            if number == 3 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready((number < 6).then(|| Ok::<_, Cause>(number.to_string())))
        });
        let long = || Body::wrap_stream(iter([Ok::<_, Cause>(vec![b'-'; LONGEST_COPY + 1])]));
        let mut joined = join(["a ".into(), Body::wrap_stream(pieces), stream(), long(), " b".into()]);
        let mut frames = Vec::new();
        while let Some(frame) = joined.frame().await {
            frames.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(frames[..2], ["a 12", "45stream"]);
        assert_eq!((frames[2].len(), &frames[3][..], frames.len()), (LONGEST_COPY + 1, &b" b"[..], 4));
    }

    #[test]
    fn a_sum_that_overflows_is_no_length() {
        let endless = || Body::sized(u64::MAX, iter([Ok::<_, Cause>("x")]));
        assert_eq!(join([endless(), "a".into()]).content_length(), None);
        assert_eq!(join([endless()]).content_length(), Some(u64::MAX));
    }
}
