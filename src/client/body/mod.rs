//! Bodies of requests and responses, and the return of a response's connection to the pool.
//!
//! | file | what it holds |
//! |---|---|
//! | `multipart/` | forms of several parts as bodies |
//! | `file/mod.rs`, `joined.rs` | bodies that are files, and bodies made of several others |
//! | `mod.rs`, `streamed.rs` | [`Body`] as a user makes it: bytes or a stream, trailers, and the callback for the bytes that pass |
//! | `outgoing.rs`, `upload.rs` | a request's body as hyper reads it; how far it got |
//! | `layered.rs` | bodies within the layers around an attempt |
//! | `reader.rs` | a response's body as its user reads it: decompressed |
//! | `incoming.rs` | a response's body as it arrives, within its time limits |
//! | `return_guard/mod.rs` | the connection's way back into the pool |
//! | `decode/mod.rs` | decompression and its limits |

mod decode;
mod file;
mod incoming;
#[cfg(feature = "multipart")]
mod joined;
mod layered;
#[cfg(feature = "multipart")]
pub mod multipart;
mod outgoing;
mod reader;
mod return_guard;
mod streamed;
mod upload;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::TryStream;
use http::{HeaderMap, HeaderValue, Version};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

pub(crate) use crate::client::body::decode::Coding;
pub use crate::client::body::decode::Decompression;
pub(super) use crate::client::body::layered::Loan;
pub(super) use crate::client::policy::framing::Extent;
pub(super) use decode::Decoder;
pub(super) use incoming::IncomingBody;
pub(super) use layered::LayeredBody;
pub(super) use outgoing::Dialer;
pub(crate) use outgoing::OutgoingBody;
pub(super) use reader::BodyReader;
pub(super) use return_guard::ReturnGuard;
pub(super) use upload::Upload;

use self::streamed::{Pieces, Streamed, Uncut, Wrapped};
use crate::client::body::streamed::ProgressCallback;
use crate::client::policy::framing::{ConnectionFields, Sendable};
use crate::error::{Cause, Error};

/// The body of a message: bytes or a file, which are sent with their length and can be sent again, or a stream, which
/// can be read once.
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
pub struct Body(BodyKind);

enum BodyKind {
    Bytes(Bytes),
    Streamed(Box<Streamed>),
}

impl Body {
    /// Creates a body of a stream; bytes if it is known to have none and no trailers.
    fn streamed(streamed: Box<Streamed>) -> Self {
        if streamed.is_void() { Self::default() } else { Self(BodyKind::Streamed(streamed)) }
    }

    /// Wraps another type of body, with its length if its size hint is exact, and with its trailers if it has any.
    ///
    /// Over HTTP/1.1, trailers need a `Trailer` header that names them (RFC 9110 §6.6.2): with it the body is sent in chunks. Without
    /// it, a request whose body ends with trailers fails, unless the length is known and the trailers come later than the last byte, which
    /// ends the body then. A body of 0 bytes is read to its end before the request is sent, which names the trailers itself.
    ///
    /// Over each version of HTTP, a request whose body ends with a trailer about one connection fails, such as `Connection` or
    /// `Keep-Alive` (RFC 9110 §7.6.1).
    pub fn wrap<B>(body: B) -> Self
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        // A body of this type is taken as it is, so that bytes stay bytes.
        let mut body = Some(body);
        if let Some(own) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return own.take().unwrap_or_default();
        }
        let Some(body) = body.filter(|body| !body.is_end_stream()) else { return Self::default() };
        let length = body.size_hint().exact();
        Self::streamed(Streamed::new(Wrapped(Box::pin(body)), length, true))
    }

    /// Wraps the body of a message that a server has received with this version. One of HTTP/2 that its peer cuts off fails, also where
    /// hyper takes that for its end (RST_STREAM with NO_ERROR).
    pub(super) fn received<B>(body: B, version: Version) -> Self
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        let mut body = Some(body);
        let incoming = (&mut body as &mut dyn Any).downcast_mut::<Option<Incoming>>();
        match (incoming.and_then(Option::take), body) {
            (Some(incoming), _) if version == Version::HTTP_2 => Self::wrap(Uncut(incoming)),
            (Some(incoming), _) => Self::wrap(incoming),
            (None, body) => body.map(Self::wrap).unwrap_or_default(),
        }
    }

    /// Creates a body of unknown length from a stream of pieces. Over HTTP/1.1 it is sent in chunks. Empty pieces are
    /// skipped.
    pub fn wrap_stream<S>(pieces: S) -> Self
    where
        S: TryStream<Ok: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        Self::streamed(Streamed::new(Pieces(Box::pin(pieces)), None, false))
    }

    /// Creates a body of `length` bytes from a stream of pieces. The request fails if the pieces have another length.
    ///
    /// The piece that completes the length ends the body. A further piece is an error if it is ready at once; otherwise
    /// it is not waited for. A stream whose length is 0 is not read.
    pub fn sized<S>(length: u64, pieces: S) -> Self
    where
        S: TryStream<Ok: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        Self::streamed(Streamed::new(Pieces(Box::pin(pieces)), Some(length), false))
    }

    /// Creates a body that can be sent again, of a type for which `make` makes a new one each time. It may have trailers.
    ///
    /// `length` is the length in bytes, if it is known. The request fails if a body has another one.
    ///
    /// ```
    /// use http_body_util::Full;
    /// use speeddial::Body;
    ///
    /// let body = Body::replayable(Some(5), || Full::new(speeddial::bytes::Bytes::from("hello")));
    /// assert!(body.try_clone().is_some());
    /// ```
    pub fn replayable<B>(length: Option<u64>, make: impl Fn() -> B + Send + Sync + 'static) -> Self
    where
        B: http_body::Body<Data: Into<Bytes>, Error: Into<Cause>> + Send + 'static,
    {
        Self::streamed(Streamed::made_by(length, make))
    }

    /// Sets the trailers that follow the body (RFC 9110 §6.5), in place of any it had. Over HTTP/1.1 a body with
    /// trailers is sent in chunks. Many servers ignore trailers. A body that can be sent again stays one.
    #[must_use]
    pub fn with_trailers(self, trailers: HeaderMap) -> Self {
        let mut streamed = match self.0 {
            BodyKind::Streamed(streamed) => streamed,
            BodyKind::Bytes(bytes) => Streamed::of_bytes(bytes),
        };
        streamed.set_trailers(trailers);
        Self::streamed(streamed)
    }

    /// Calls `callback` for each piece of the body that is handed to the connection, with the bytes handed over so far,
    /// the piece included, and the length of the body if it is known. Replaces a callback that was set before.
    ///
    /// Pieces have at most 64 KiB, and the connection takes the next one when the server has read most of the last ones.
    /// If the body is sent again, after a redirect or in a resend or retry, the count begins at 0 again. Of attempts that
    /// overlap (hedging, or clones of the request), the one that began last counts, and the others are not reported.
    /// An empty body has no pieces. The callback runs in the connection's task, so it should be quick. If it panics, the
    /// panic is caught, the body is sent on, and the callback is not called again.
    ///
    /// ```
    /// use speeddial::Body;
    ///
    /// let body = Body::from(vec![0; 1_000_000]).on_progress(|sent, total| match total {
    ///     Some(total) => println!("{sent} of {total} bytes"),
    ///     None => println!("{sent} bytes"),
    /// });
    /// assert_eq!(body.content_length(), Some(1_000_000));
    /// ```
    #[must_use]
    pub fn on_progress<F>(self, callback: F) -> Self
    where
        F: FnMut(u64, Option<u64>) + Send + 'static,
    {
        let mut streamed = match self.0 {
            BodyKind::Streamed(streamed) => streamed,
            BodyKind::Bytes(bytes) if bytes.is_empty() => return bytes.into(),
            BodyKind::Bytes(bytes) => Streamed::of_bytes(bytes),
        };
        streamed.set_progress(ProgressCallback::new(callback));
        Self(BodyKind::Streamed(streamed))
    }

    /// Returns the bytes of the body; `None` if it is a file, a stream, or a form with a part of more than 4 KiB.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            BodyKind::Bytes(bytes) => Some(bytes),
            BodyKind::Streamed(streamed) => streamed.as_bytes(),
        }
    }

    /// Returns true if the body is bytes in memory and nothing else: to read it runs none of the caller's code.
    pub(super) fn is_bytes(&self) -> bool {
        matches!(self.0, BodyKind::Bytes(_))
    }

    /// Returns the length of the body in bytes; `None` if it is a stream of unknown length.
    pub fn content_length(&self) -> Option<u64> {
        match &self.0 {
            BodyKind::Bytes(bytes) => Some(bytes.len() as u64),
            BodyKind::Streamed(streamed) => streamed.length(),
        }
    }

    /// Clones the body; `None` if it is a stream, which can be read only once.
    ///
    /// The clone of a [file](Self::file) reads the file anew, from where the body began.
    pub fn try_clone(&self) -> Option<Self> {
        match &self.0 {
            BodyKind::Bytes(bytes) => Some(bytes.clone().into()),
            BodyKind::Streamed(streamed) => streamed.try_clone().map(|clone| Self(BodyKind::Streamed(clone))),
        }
    }

    /// Returns true if the body is known to have no bytes and no trailers.
    pub(super) fn is_empty(&self) -> bool {
        matches!(&self.0, BodyKind::Bytes(bytes) if bytes.is_empty())
    }

    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.0, BodyKind::Streamed(_))
    }

    /// Returns true if the body can be sent more than once.
    pub(super) fn is_replayable(&self) -> bool {
        match &self.0 {
            BodyKind::Bytes(_) => true,
            BodyKind::Streamed(streamed) => streamed.is_replayable(),
        }
    }

    /// Notes the names of the trailers that the body will end with.
    pub(super) fn announce_trailers(&mut self, names: HeaderValue) {
        if let BodyKind::Streamed(streamed) = &mut self.0 {
            streamed.announce(names);
        }
    }

    /// Returns the names of the trailers that the body will end with, as far as they are known.
    pub(super) fn trailer_names(&self) -> Option<HeaderValue> {
        match &self.0 {
            BodyKind::Bytes(_) => None,
            BodyKind::Streamed(streamed) => streamed.trailer_names(),
        }
    }

    /// Leaves these fields out of the trailers, because the body is passed on.
    pub(super) fn leave_connection(&mut self, fields: ConnectionFields) {
        if let BodyKind::Streamed(streamed) = &mut self.0
            && streamed.may_have_trailers()
        {
            streamed.leave_connection(fields);
        }
    }

    /// Makes the body fail if it ends with trailers that cannot be sent.
    pub(super) fn restrict_trailers(&mut self, sendable: impl FnOnce() -> Sendable) {
        if let BodyKind::Streamed(streamed) = &mut self.0
            && streamed.may_have_trailers()
        {
            streamed.restrict_trailers(sendable());
        }
    }

    /// Returns true if HTTP/1.1 sends the body in chunks: its length is not known, or trailers follow. `announces_trailers` is true if
    /// the message has a `Trailer` header.
    pub(super) fn needs_chunks(&self, announces_trailers: bool) -> bool {
        match &self.0 {
            BodyKind::Bytes(_) => false,
            BodyKind::Streamed(streamed) => {
                let has_trailers =
                    streamed.trailers().is_some() || (announces_trailers && streamed.may_have_trailers());
                streamed.length().is_none() || has_trailers
            }
        }
    }

    /// Returns true if the body has no bytes, and only its end tells whether it has trailers.
    pub(super) fn may_be_empty(&self) -> bool {
        match &self.0 {
            BodyKind::Bytes(_) => false,
            BodyKind::Streamed(streamed) => streamed.length() == Some(0) && streamed.trailers().is_none(),
        }
    }

    /// Waits for the body's first piece, which stays in it. Returns false if the body is empty.
    pub(super) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match &mut self.0 {
            BodyKind::Bytes(bytes) => Poll::Ready(!bytes.is_empty()),
            BodyKind::Streamed(streamed) => streamed.poll_peek(cx),
        }
    }

    /// Returns the trailers that were set with [`with_trailers`](Self::with_trailers).
    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        match &self.0 {
            BodyKind::Bytes(_) => None,
            BodyKind::Streamed(streamed) => streamed.trailers(),
        }
    }

    /// Makes a stream fail unless it has this length. Bytes keep their own.
    pub(super) fn require_length(&mut self, length: u64) {
        let BodyKind::Streamed(streamed) = &mut self.0 else { return };
        streamed.require_length(length);
        if streamed.is_void() {
            *self = Self::default();
        }
    }

    /// Takes off the first `size` bytes; `None` if the body has no more than that, or is a stream.
    pub(super) fn split(&mut self, size: usize) -> Option<Bytes> {
        match &mut self.0 {
            BodyKind::Bytes(bytes) if bytes.len() > size => Some(bytes.split_to(size)),
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
            (BodyKind::Bytes(bytes), _) => write!(f, "Body({} bytes)", bytes.len()),
            (BodyKind::Streamed(_), Some(length)) => write!(f, "Body(stream of {length} bytes)"),
            (BodyKind::Streamed(_), None) => f.write_str("Body(stream)"),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(BodyKind::Bytes(bytes))
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

impl Body {
    /// Polls for the next frame. Its error is that of the body within.
    pub(crate) fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match &mut self.0 {
            BodyKind::Bytes(bytes) => {
                if bytes.is_empty() {
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))))
            }
            BodyKind::Streamed(streamed) => streamed.poll_frame(cx),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.poll_own(cx).map_err(Error::own_body)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Bytes(bytes) => bytes.is_empty(),
            BodyKind::Streamed(streamed) => streamed.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodyKind::Streamed(streamed) => streamed.size_hint(),
        }
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

    use super::streamed::MAX_SKIPPED;
    use super::*;

    fn pieces(pieces: &'static [&'static str]) -> impl Stream<Item = Result<&'static str, Cause>> {
        iter(pieces.iter().map(|piece| Ok(*piece)))
    }

    #[tokio::test]
    async fn bytes_are_read_as_they_were_given() {
        let body = Body::from(vec![1, 2, 3]);
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(3));
        assert_eq!(body.try_clone().unwrap().as_bytes(), Some(&[1, 2, 3][..]));
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes(), &[1, 2, 3][..]);
        assert!(http_body::Body::is_end_stream(&Body::default()));
    }

    /// Returns what the body itself said.
    fn own_text(error: Error) -> String {
        assert_eq!(
            (error.kind(), error.to_string()),
            (crate::error::ErrorKind::Body, "the body could not be read".to_owned())
        );
        std::error::Error::source(&error).unwrap().to_string()
    }

    #[tokio::test]
    async fn a_stream_has_the_length_it_was_given_or_fails() {
        let read = |length, given| async move {
            let body = Body::sized(length, pieces(given));
            BodyExt::collect(body).await.map(|all| all.to_bytes()).map_err(own_text)
        };
        assert_eq!(read(5, &["he", "llo"]).await, Ok("hello".into()));
        assert_eq!(read(4, &["he", "llo"]).await, Err("the body has more than the announced 4 bytes".to_owned()));
        assert_eq!(read(6, &["he", "llo"]).await, Err("the body has 5 of the announced 6 bytes".to_owned()));
        assert_eq!(read(0, &[]).await, Ok("".into()));
    }

    #[tokio::test]
    async fn a_body_that_a_function_makes_is_read_from_its_start_each_time_with_its_trailers() {
        let trailers = || HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        let body =
            Body::replayable(Some(5), move || Body::wrap_stream(pieces(&["he", "llo"])).with_trailers(trailers()));
        assert!(body.is_replayable() && body.as_bytes().is_none());
        for body in [body.try_clone().unwrap(), body] {
            assert_eq!(body.content_length(), Some(5));
            let read = BodyExt::collect(body).await.unwrap();
            assert_eq!(read.trailers(), Some(&trailers()));
            assert_eq!(read.to_bytes(), "hello");
        }
        for length in [4, 6] {
            let body = Body::replayable(Some(length), || Body::wrap_stream(pieces(&["he", "llo"])));
            assert!(BodyExt::collect(body).await.is_err(), "it has another length than {length}");
        }
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
        assert!(body.frame().now_or_never().is_none(), "other tasks run first");
        assert!(taken.swap(0, Ordering::Relaxed) <= MAX_SKIPPED);
        assert_eq!(BodyExt::collect(body).await.unwrap().to_bytes(), "hello", "the body wakes its task by itself");

        taken.store(0, Ordering::Relaxed);
        let mut sized = Body::sized(5, pieces(&["hello"]).chain(run()));
        let last = sized.frame().now_or_never().expect("pieces behind the last byte are not waited for");
        assert_eq!(last.unwrap().unwrap().into_data().unwrap(), "hello");
        assert!(taken.load(Ordering::Relaxed) <= MAX_SKIPPED);
    }

    #[tokio::test]
    async fn the_piece_that_completes_the_length_ends_a_stream_that_does_not_end() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        let endless = || pieces(&["hel", "lo"]).chain(pending());
        let mut body = Body::sized(5, endless());
        for (piece, is_last) in [("hel", false), ("lo", true)] {
            let frame = body.frame().now_or_never().expect("no later piece is waited for").unwrap();
            assert_eq!(frame.unwrap().into_data().unwrap(), piece);
            assert_eq!(http_body::Body::is_end_stream(&body), is_last, "{piece}");
        }
        for (length, text) in [(5, "hello"), (0, "")] {
            let body = Body::sized(length, endless()).with_trailers(trailers.clone());
            let all = BodyExt::collect(body).now_or_never().expect("no later piece is waited for").unwrap();
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
    async fn trailers_that_cannot_be_sent_fail_a_body_before_its_last_piece() {
        let trailers = |name: &'static str| HeaderMap::from_iter([(name.parse().unwrap(), "x".parse().unwrap())]);
        let sent = async |name: &'static str, sendable: Sendable| {
            let ready = std::future::ready(Some(Ok(trailers(name))));
            let mut body = Body::wrap(Full::new(Bytes::from("hello")).with_trailers(ready));
            body.restrict_trailers(|| sendable);
            let first = body.frame().await.unwrap();
            first.map(|first| first.into_data().unwrap()).map_err(own_text)
        };
        let announced = |name: &'static str| Sendable::Announced(vec![name.parse().unwrap()]);
        assert_eq!(sent("x-sum", Sendable::All).await, Ok("hello".into()));
        assert_eq!(sent("x-sum", announced("x-sum")).await, Ok("hello".into()));
        assert!(sent("x-sum", announced("x-other")).await.unwrap_err().contains("no `Trailer` header"));
        for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"] {
            for sendable in [Sendable::All, announced(name)] {
                assert!(sent(name, sendable).await.unwrap_err().contains("is about one connection"), "{name}");
            }
        }
    }

    #[tokio::test]
    async fn a_stream_without_bytes_and_trailers_is_empty() {
        let empty = Body::sized(0, pending::<Result<Bytes, Cause>>());
        assert!(empty.is_empty() && http_body::Body::is_end_stream(&empty));
        let mut required = Body::wrap_stream(pieces(&["hello"]));
        required.require_length(0);
        assert!(required.is_empty());
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        let late = trailers.clone();
        let mut ends_with_trailers = Body::replayable(Some(0), move || {
            let late = late.clone();
            Full::new(Bytes::new()).with_trailers(async move {
                tokio::task::yield_now().await;
                Some(Ok(late))
            })
        });
        ends_with_trailers.require_length(0);
        assert!(!ends_with_trailers.is_empty() && !http_body::Body::is_end_stream(&ends_with_trailers));
        let mut peeked = ends_with_trailers.try_clone().unwrap();
        assert!(std::future::poll_fn(|cx| peeked.poll_peek(cx)).await, "there are trailers");
        for body in [ends_with_trailers, peeked.try_clone().unwrap(), peeked] {
            assert_eq!(BodyExt::collect(body).await.unwrap().trailers(), Some(&trailers));
        }
        let mut no_trailers =
            Body::replayable(Some(0), || Full::new(Bytes::new()).with_trailers(std::future::ready(None)));
        assert!(!std::future::poll_fn(|cx| no_trailers.poll_peek(cx)).await);
    }

    #[tokio::test]
    async fn trailers_come_after_the_last_byte() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        for (body, is_replayable) in [("hello".into(), true), (Body::wrap_stream(pieces(&["hel", "lo"])), false)] {
            let body = Body::wrap(body.with_trailers(trailers.clone()));
            assert_eq!(body.try_clone().is_some(), is_replayable);
            let all = BodyExt::collect(body).await.unwrap();
            assert_eq!(all.trailers(), Some(&trailers));
            assert_eq!(all.to_bytes(), "hello");
        }
    }
}
