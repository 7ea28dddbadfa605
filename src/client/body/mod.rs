//! What a message carries: bytes, or a stream of them, and trailers.

#[cfg(feature = "__compression")]
mod decode;
mod incoming;
mod outgoing;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::TryStream;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

#[cfg(feature = "__compression")]
pub(super) use decode::Decoder;
#[cfg(feature = "__compression")]
pub use decode::Decompression;
pub(super) use incoming::{Payload, Reader, Source};
pub(crate) use outgoing::Outgoing;
pub(super) use outgoing::Upload;

use crate::error::Cause;

/// A message's body: bytes, which are sent with their length and can be sent again, or a stream, which can be read once.
///
/// ```
/// use speeddial::Body;
///
/// let body = Body::from("name=value");
/// assert_eq!(body.as_bytes(), Some(&b"name=value"[..]));
///
/// let pieces = ["one, ", "two"].map(Ok::<_, std::io::Error>);
/// let body = Body::wrap_stream(futures_util::stream::iter(pieces));
/// assert_eq!((body.as_bytes(), body.content_length()), (None, None));
/// ```
pub struct Body(Kind);

enum Kind {
    Bytes(Bytes),
    Streamed(Box<Streamed>),
}

/// A body that is read once.
struct Streamed {
    // Never locked: it makes what may not be shared between threads something that is not.
    frames: Mutex<Pin<Box<dyn Frames>>>,
    /// How many bytes it has to have.
    length: Option<u64>,
    bytes: u64,
    trailers: Option<HeaderMap>,
    /// True if the frames may end with trailers.
    may_have_trailers: bool,
    /// The piece that reaches the length, while it is looked whether something comes after it.
    last: Option<Bytes>,
    /// Nothing more is to be read.
    read: bool,
    ended: bool,
}

trait Frames: http_body::Body<Data = Bytes, Error = Cause> + Send {}

impl<B: http_body::Body<Data = Bytes, Error = Cause> + Send> Frames for B {}

/// The most empty pieces that are skipped at once, before other tasks run.
const MAX_SKIPPED: usize = 64;

/// A body is not as long as it was said to be.
#[derive(Debug, thiserror::Error)]
enum LengthError {
    #[error("it has more than the {0} bytes it was to have")]
    Longer(u64),
    #[error("it has {1} of the {0} bytes it was to have")]
    Shorter(u64, u64),
}

impl Body {
    /// A body that is a body elsewhere: its length where it says so beforehand, its trailers where it has some.
    pub fn wrap<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: Into<Cause>> + Send + 'static,
    {
        // Those that are bytes stay bytes.
        let mut body = Some(body);
        if let Some(own) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return own.take().unwrap_or_default();
        }
        let Some(body) = body.filter(|body| !body.is_end_stream()) else { return Self::default() };
        let length = body.size_hint().exact();
        Self::streamed(Wrapped(Box::pin(body)), length, true)
    }

    /// A body of these pieces. How many bytes they are is not known beforehand: over HTTP/1.1 it is sent in chunks. Empty pieces are
    /// not sent.
    pub fn wrap_stream<S>(pieces: S) -> Self
    where
        S: TryStream<Ok: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        Self::streamed(Pieces(Box::pin(pieces)), None, false)
    }

    /// A body of these pieces, which have so many bytes together. Where they have not, it fails, and with it the request; a body
    /// of no bytes is not read, and what comes long after the last byte is not waited for: the piece that completes the length ends
    /// the body, also over HTTP/2.
    pub fn sized<S>(length: u64, pieces: S) -> Self
    where
        S: TryStream<Ok: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        Self::streamed(Pieces(Box::pin(pieces)), Some(length), false)
    }

    fn streamed(frames: impl Frames + 'static, length: Option<u64>, may_have_trailers: bool) -> Self {
        let frames = Mutex::new(Box::pin(frames) as Pin<Box<dyn Frames>>);
        Self(Kind::Streamed(Box::new(Streamed {
            frames,
            length,
            bytes: 0,
            trailers: None,
            may_have_trailers,
            last: None,
            read: false,
            ended: false,
        })))
    }

    /// The same with trailers after it (RFC 9110 §6.5), in place of any it had. Over HTTP/1.1 it is sent in chunks for them,
    /// and only to servers is that of use that look for trailers.
    #[must_use]
    pub fn with_trailers(self, trailers: HeaderMap) -> Self {
        let mut streamed = match self.0 {
            Kind::Streamed(streamed) => streamed,
            Kind::Bytes(bytes) => match Self::wrap_stream(futures_util::stream::iter([Ok::<_, Cause>(bytes)])).0 {
                Kind::Streamed(streamed) => streamed,
                Kind::Bytes(_) => unreachable!("a stream was wrapped"),
            },
        };
        streamed.trailers = Some(trailers);
        Self(Kind::Streamed(streamed))
    }

    /// The body's bytes; `None` of a stream.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Bytes(bytes) => Some(bytes),
            Kind::Streamed(_) => None,
        }
    }

    /// How many bytes it has, where that is known beforehand.
    pub fn content_length(&self) -> Option<u64> {
        match &self.0 {
            Kind::Bytes(bytes) => Some(bytes.len() as u64),
            Kind::Streamed(streamed) => streamed.length,
        }
    }

    /// The same once more; `None` of a stream.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.0 {
            Kind::Bytes(bytes) => Some(bytes.clone().into()),
            Kind::Streamed(_) => None,
        }
    }

    /// Whether there is nothing in it, nor may be.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.0, Kind::Bytes(bytes) if bytes.is_empty())
    }

    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.0, Kind::Streamed(_))
    }

    /// The trailers that are known to come.
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        match &self.0 {
            Kind::Bytes(_) => None,
            Kind::Streamed(streamed) => streamed.trailers.as_ref(),
        }
    }

    /// Holds a stream whose length is not known to this one.
    pub(super) fn must_have(&mut self, length: u64) {
        if let Kind::Streamed(streamed) = &mut self.0 {
            streamed.length = Some(length);
        }
    }

    /// Takes the next piece off, of this size at most.
    pub(super) fn split(&mut self, size: usize) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Bytes(bytes) if bytes.len() > size => Some(bytes.split_to(size)),
            _ => None,
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Bytes::new().into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.content_length()) {
            (Kind::Bytes(bytes), _) => write!(f, "Body({} bytes)", bytes.len()),
            (Kind::Streamed(_), Some(length)) => write!(f, "Body(stream of {length} bytes)"),
            (Kind::Streamed(_), None) => f.write_str("Body(stream)"),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Bytes(bytes))
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
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match &mut self.0 {
            Kind::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Kind::Streamed(streamed) => streamed.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Bytes(bytes) => bytes.is_empty(),
            Kind::Streamed(streamed) => streamed.ended || (streamed.length == Some(0) && streamed.trailers.is_none()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.content_length() {
            // With a length there would be no room for trailers in HTTP/1.1.
            Some(length) if self.trailers().is_none() => SizeHint::with_exact(length.saturating_sub(self.read())),
            _ => SizeHint::default(),
        }
    }
}

impl Body {
    fn read(&self) -> u64 {
        match &self.0 {
            Kind::Bytes(_) => 0,
            Kind::Streamed(streamed) => streamed.bytes,
        }
    }
}

impl Streamed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if self.read || (self.length == Some(0) && !self.may_have_trailers) {
            return self.over(None);
        }
        loop {
            let frame = match self.poll_next(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return self.end(Some(Err(error))),
                Poll::Ready(None) => return self.over(None),
                Poll::Pending => return self.pause(),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(other) => return self.over(other.into_trailers().ok()),
            };
            let so_far = self.bytes + self.last.as_ref().map_or(0, |last| last.len() as u64) + data.len() as u64;
            match self.length {
                Some(length) if so_far > length => return self.end(Some(Err(LengthError::Longer(length).into()))),
                // It is handed over when it is known whether something comes right after it: hyper does not look over HTTP/1.1.
                Some(length) if so_far == length => self.last = Some(data),
                _ => {
                    self.bytes = so_far;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
            }
        }
    }

    /// Polls for the next frame that is not an empty piece. Over HTTP/2 each of those would be a frame, and servers take many of them
    /// for an attack.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let frames = self.frames.get_mut().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..MAX_SKIPPED {
            let frame = ready!(frames.as_mut().poll_frame(cx));
            if !matches!(&frame, Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty)) {
                return Poll::Ready(frame);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Nothing more is there yet. The end of pieces that have their length is not waited for: no trailers can come.
    fn pause(&mut self) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match self.last.take() {
            None => Poll::Pending,
            Some(last) if self.may_have_trailers => {
                self.bytes += last.len() as u64;
                Poll::Ready(Some(Ok(Frame::data(last))))
            }
            last => {
                self.last = last;
                self.over(None)
            }
        }
    }

    /// Its last byte has been read.
    fn over(&mut self, trailers: Option<HeaderMap>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        self.read = true;
        if let Some(last) = self.last.take() {
            self.bytes += last.len() as u64;
            self.trailers = self.trailers.take().or(trailers);
            self.ended = self.trailers.is_none();
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        match self.length {
            Some(length) if self.bytes < length => self.end(Some(Err(LengthError::Shorter(length, self.bytes).into()))),
            _ => {
                let trailers = self.trailers.take().or(trailers);
                self.end(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
    }

    fn end<T>(&mut self, last: Option<T>) -> Poll<Option<T>> {
        self.ended = true;
        Poll::Ready(last)
    }
}

/// Somebody's body, whose errors are of any kind.
struct Wrapped<B>(Pin<Box<B>>);

impl<B: http_body::Body<Data = Bytes, Error: Into<Cause>>> http_body::Body for Wrapped<B> {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        self.0.as_mut().poll_frame(cx).map_err(Into::into)
    }
}

/// A stream's pieces.
struct Pieces<S>(Pin<Box<S>>);

impl<S: TryStream<Ok: Into<Bytes>, Error: Into<Cause>>> http_body::Body for Pieces<S> {
    type Data = Bytes;
    type Error = Cause;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let piece = ready!(self.0.as_mut().try_poll_next(cx));
        Poll::Ready(piece.map(|piece| piece.map(|piece| Frame::data(piece.into())).map_err(Into::into)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream::{iter, pending};
    use futures_util::{FutureExt, Stream, StreamExt};
    use http::HeaderValue;
    use http_body_util::{BodyExt, Full};

    use super::*;

    fn pieces(pieces: &'static [&'static str]) -> impl Stream<Item = Result<&'static str, Cause>> {
        iter(pieces.iter().map(|piece| Ok(*piece)))
    }

    #[tokio::test]
    async fn bytes_come_out_as_they_went_in() {
        let body = Body::from(vec![1, 2, 3]);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(3));
        assert_eq!(body.try_clone().unwrap().as_bytes(), Some(&[1, 2, 3][..]));
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes(), &[1, 2, 3][..]);
        assert!(http_body::Body::is_end_stream(&Body::default()));
    }

    #[tokio::test]
    async fn a_stream_has_the_length_it_was_given_or_fails() {
        let read = |length, given| async move {
            let body = Body::sized(length, pieces(given));
            BodyExt::collect(body).await.map(|all| all.to_bytes()).map_err(|error| error.to_string())
        };
        assert_eq!(read(5, &["he", "llo"]).await, Ok("hello".into()));
        assert_eq!(read(4, &["he", "llo"]).await, Err("it has more than the 4 bytes it was to have".to_owned()));
        assert_eq!(read(6, &["he", "llo"]).await, Err("it has 5 of the 6 bytes it was to have".to_owned()));
        assert_eq!(read(0, &[]).await, Ok("".into()));
    }

    #[tokio::test]
    async fn empty_pieces_are_skipped() {
        for mut body in [
            Body::wrap_stream(pieces(&["", "he", "", "", "llo", ""])),
            Body::sized(5, pieces(&["", "he", "", "", "llo", ""])),
        ] {
            let mut sent = Vec::new();
            while let Some(frame) = body.frame().await {
                sent.push(frame.unwrap().into_data().unwrap());
            }
            assert_eq!(sent, ["he", "llo"]);
        }
    }

    #[tokio::test]
    async fn many_empty_pieces_in_a_row_let_other_tasks_run() {
        let taken = Arc::new(AtomicUsize::new(0));
        let run = || {
            let taken = taken.clone();
            iter(0..10_000).map(move |_| {
                taken.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Cause>("")
            })
        };
        let mut body = Body::wrap_stream(run().chain(pieces(&["hello"])));
        assert!(body.frame().now_or_never().is_none(), "it makes way");
        assert!(taken.swap(0, Ordering::Relaxed) <= MAX_SKIPPED);
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes(), "hello", "and goes on by itself");

        taken.store(0, Ordering::Relaxed);
        let mut sized = Body::sized(5, pieces(&["hello"]).chain(run()));
        let last = sized.frame().now_or_never().expect("what comes behind the last byte is not waited for");
        assert_eq!(last.unwrap().unwrap().into_data().unwrap(), "hello");
        assert!(taken.load(Ordering::Relaxed) <= MAX_SKIPPED);
    }

    #[tokio::test]
    async fn the_piece_that_completes_the_length_ends_a_stream_that_does_not_end() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        let endless = || pieces(&["hel", "lo"]).chain(pending());
        let mut body = Body::sized(5, endless());
        for (piece, is_last) in [("hel", false), ("lo", true)] {
            let frame = body.frame().now_or_never().expect("nothing is waited for").unwrap();
            assert_eq!(frame.unwrap().into_data().unwrap(), piece);
            assert_eq!(http_body::Body::is_end_stream(&body), is_last, "{piece}");
        }
        for (length, text) in [(5, "hello"), (0, "")] {
            let body = Body::sized(length, endless()).with_trailers(trailers.clone());
            let all = BodyExt::collect(body).now_or_never().expect("nothing is waited for").unwrap();
            assert_eq!(all.trailers(), Some(&trailers));
            assert_eq!(all.to_bytes(), text);
        }
    }

    #[tokio::test]
    async fn trailers_of_a_body_with_a_length_are_waited_for() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        let late = trailers.clone();
        let body = Full::new(Bytes::from("hello")).with_trailers(async move {
            tokio::task::yield_now().await;
            Some(Ok(late))
        });
        let all = BodyExt::collect(Body::wrap(body)).await.unwrap();
        assert_eq!(all.trailers(), Some(&trailers));
        assert_eq!(all.to_bytes(), "hello");
    }

    #[tokio::test]
    async fn trailers_come_after_the_last_byte() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        for body in [Body::from("hello"), Body::wrap_stream(pieces(&["hel", "lo"]))] {
            let body = Body::wrap(body.with_trailers(trailers.clone()));
            assert!(body.try_clone().is_none());
            let all = BodyExt::collect(body).await.unwrap();
            assert_eq!(all.trailers(), Some(&trailers));
            assert_eq!(all.to_bytes(), "hello");
        }
    }
}
