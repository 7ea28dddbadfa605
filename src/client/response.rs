//! What came back: the head at once, the body as it is read. The body holds the connection until its end.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
#[cfg(feature = "tower")]
use http_body::Body as _;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use url::Url;

#[cfg(feature = "__compression")]
use super::body::{Decoder, Decompression};
use super::body::{Payload, Reader};
use crate::error::{Context as About, Error, Result};
use crate::origin::Origin;
use crate::trace::{Timings, TimingsHandle, TlsFacts, Trace};

/// A body is collected into a buffer of its announced length, as long as that is credible.
const MAX_PREALLOCATED: u64 = 1024 * 1024;

/// A response. Its connection is free for others once the body was read to its end. Dropped before, the rest is read if it is
/// short and comes soon (64 KiB, 50 ms), otherwise the connection is closed; over HTTP/2 the stream alone is,
/// and with it what is left of the request.
pub struct Response(Box<Received>);

/// What came. Boxed, because it is large and goes through many hands; so is what few have, because it is taken and copied all the same.
struct Received {
    head: Parts,
    /// `None` as long as the call goes on.
    call: Option<Called>,
    content: Content,
    trailers: Option<Box<HeaderMap>>,
}

/// A response that may not be the last one of its call. Dropped, it closes its connection, or its stream.
pub(super) struct Answered(Box<Received>);

impl Answered {
    pub(super) fn new(head: Parts, payload: Payload) -> Self {
        Self(Box::new(Received { head, call: None, content: Content::Own(Reader::new(payload)), trailers: None }))
    }

    pub(super) fn status(&self) -> StatusCode {
        self.0.head.status
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        &self.0.head.headers
    }

    /// Gives the connection back as soon as may be: nobody reads the body.
    pub(super) fn drain(mut self) {
        if let Some(reader) = self.0.content.reader() {
            reader.drain();
        }
    }

    /// Takes the compression off the body, where there is one.
    ///
    /// # Errors
    /// Where it cannot be taken off; the response is gone then.
    #[cfg(feature = "__compression")]
    pub(super) fn decompressed(mut self, decompression: Decompression) -> Result<Self> {
        let Received { head, content, .. } = &mut *self.0;
        let Some(reader) = content.reader() else { return Ok(self) };
        // The headers of what has no body are about that which there might be.
        if matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) || reader.is_empty() {
            return Ok(self);
        }
        match Decoder::of(&mut head.headers, decompression) {
            Ok(decoder) => {
                reader.decode_by(decoder);
                Ok(self)
            }
            Err(error) => {
                let error = Error::compression(self.0.content.origin(), error);
                self.drain();
                Err(error)
            }
        }
    }

    /// Ends its call, which began with the first URL of `chain` and was for that of `context` in the end.
    pub(super) fn end(mut self, context: About, chain: Vec<Url>) -> Response {
        self.0.call = Some(Called { context, chain });
        if let Some(reader) = self.0.content.reader() {
            reader.begin();
        }
        Response(self.0)
    }
}

impl Received {
    fn call(&self) -> &Called {
        self.call.as_ref().expect("whoever has the response has it after its call")
    }
}

/// The call a response is for.
#[derive(Clone)]
struct Called {
    context: About,
    chain: Vec<Url>,
}

/// A response's body: as it comes, or as somebody has changed it.
#[allow(clippy::large_enum_variant, reason = "the large one is the usual one")]
enum Content {
    Own(Reader),
    #[cfg(feature = "tower")]
    Other(super::Body, Known),
}

/// What is known of a response whose body is in other hands.
#[derive(Clone)]
#[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only layers give a response back"))]
struct Known {
    origin: Origin,
    trace: Trace,
    /// How its body begins, of an error.
    start: Bytes,
}

impl Content {
    fn origin(&self) -> &Origin {
        match self {
            Self::Own(reader) => reader.origin(),
            #[cfg(feature = "tower")]
            Self::Other(_, known) => &known.origin,
        }
    }

    fn reader(&mut self) -> Option<&mut Reader> {
        match self {
            Self::Own(reader) => Some(reader),
            #[cfg(feature = "tower")]
            Self::Other(..) => None,
        }
    }

    fn trace(&self) -> &Trace {
        match self {
            Self::Own(reader) => reader.trace(),
            #[cfg(feature = "tower")]
            Self::Other(_, known) => &known.trace,
        }
    }

    /// How the body begins, where that was looked at.
    fn start(&self) -> Bytes {
        match self {
            Self::Own(reader) => reader.start(),
            #[cfg(feature = "tower")]
            Self::Other(_, known) => known.start.clone(),
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status())
            .field("version", &self.version())
            .field("origin", self.0.content.origin())
            .field("path", &self.url().path())
            .finish_non_exhaustive()
    }
}

impl Response {
    /// The status.
    pub fn status(&self) -> StatusCode {
        self.0.head.status
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        self.0.head.version
    }

    /// The headers. Where the body is decompressed, those that were about its compressed form are not among them.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.head.headers
    }

    /// The URLs whose responses led here, the first one first; none where there was no redirect.
    pub fn redirects(&self) -> &[Url] {
        &self.0.call().chain
    }

    /// The URL it answers, the last one of a chain of redirects.
    pub fn url(&self) -> &Url {
        &self.0.call().context.url
    }

    /// The body's length in bytes, where it is known beforehand.
    pub fn content_length(&self) -> Option<u64> {
        match &self.0.content {
            Content::Own(reader) => reader.length(),
            #[cfg(feature = "tower")]
            Content::Other(body, _) => body.content_length(),
        }
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.0.content.trace().remote_addr()
    }

    /// What the connection's TLS handshake came to; `None` of a connection without.
    pub fn tls(&self) -> Option<Arc<TlsFacts>> {
        self.0.content.trace().tls()
    }

    /// Where the time went so far: right after [`send`](crate::RequestBuilder::send), up to the headers.
    pub fn timings(&self) -> Timings {
        self.0.content.trace().timings()
    }

    /// A handle on the timings that outlives the response, to see the end of the body in them.
    pub fn timings_handle(&self) -> TimingsHandle {
        TimingsHandle::new(self.0.content.trace().clone())
    }

    /// The trailers, once the body was read to its end; `None` before, and where there are none (RFC 9110 §6.5).
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.0.trailers.as_deref()
    }

    /// The response itself, unless its status is 400 or above.
    ///
    /// # Errors
    /// [`ErrorKind::Status`](crate::ErrorKind::Status) from 400 on, with the [start of the body](Error::body_start) as far as that came with
    /// the headers. The rest of the response, and its connection, are dropped.
    pub fn error_for_status(self) -> Result<Self> {
        match self.status_error() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    /// The same without taking the response.
    ///
    /// # Errors
    /// As [`error_for_status`](Self::error_for_status).
    pub fn error_for_status_ref(&self) -> Result<&Self> {
        match self.status_error() {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }

    fn status_error(&self) -> Option<Error> {
        let status = self.status();
        let is_error = status.is_client_error() || status.is_server_error();
        is_error.then(|| self.about(Error::from_status(&self.0.call().context, status, self.0.content.start())))
    }

    fn about(&self, error: Error) -> Error {
        error.about(&self.0.call().context, self.0.content.trace().timings())
    }

    /// The next piece of the body; `None` at its end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Body`](crate::ErrorKind::Body) when the connection fails or closes before the body's end;
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) when it is compressed and cannot be decompressed;
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when the call's time is up, or nothing more comes for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        poll_fn(|cx| self.poll_chunk(cx)).await
    }

    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>>> {
        loop {
            let frame = match &mut self.0.content {
                Content::Own(reader) => ready!(reader.poll_frame(cx)),
                #[cfg(feature = "tower")]
                Content::Other(body, known) => ready!(Pin::new(body).poll_frame(cx))
                    .map(|frame| frame.map_err(|cause| Error::other_body(&known.origin, cause))),
            };
            match frame.transpose() {
                Err(error) => return Poll::Ready(Err(self.about(error))),
                Ok(None) => return Poll::Ready(Ok(None)),
                Ok(Some(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Poll::Ready(Ok(Some(data))),
                    Err(other) => self.0.trailers = other.into_trailers().ok().map(Box::new),
                },
            }
        }
    }

    /// The body as a stream of its pieces, which ends after its first error.
    ///
    /// ```no_run
    /// # async fn run(response: speeddial::Response) -> speeddial::Result<()> {
    /// use futures_util::TryStreamExt;
    ///
    /// let mut pieces = response.bytes_stream();
    /// while let Some(piece) = pieces.try_next().await? {
    ///     println!("{} bytes", piece.len());
    /// }
    /// # Ok(()) }
    /// ```
    pub fn bytes_stream(mut self) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
        let mut over = false;
        futures_util::stream::poll_fn(move |cx| {
            if over {
                return Poll::Ready(None);
            }
            let chunk = ready!(self.poll_chunk(cx)).transpose();
            over = !matches!(chunk, Some(Ok(_)));
            Poll::Ready(chunk)
        })
    }

    /// Writes the body to `writer` as it comes, flushes that, and says how many bytes it was. In memory there is never more than
    /// a piece.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk); [`ErrorKind::Body`](crate::ErrorKind::Body) also where the writer fails.
    pub async fn copy_to<W: AsyncWrite + Unpin + ?Sized>(mut self, writer: &mut W) -> Result<u64> {
        let mut written = 0;
        while let Some(chunk) = self.chunk().await? {
            let wrote = writer.write_all(&chunk).await;
            wrote.map_err(|error| self.about(Error::writer(self.0.content.origin(), error)))?;
            written += chunk.len() as u64;
        }
        writer.flush().await.map_err(|error| self.about(Error::writer(self.0.content.origin(), error)))?;
        Ok(written)
    }

    /// The whole body.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn bytes(mut self) -> Result<Bytes> {
        self.collect(u64::MAX).await
    }

    /// The whole body, if it has no more than `limit` bytes.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk); [`ErrorKind::Body`](crate::ErrorKind::Body) where it is longer, which is found out before more than that
    /// is in memory.
    pub async fn bytes_with_limit(mut self, limit: u64) -> Result<Bytes> {
        self.collect(limit).await
    }

    async fn collect(&mut self, limit: u64) -> Result<Bytes> {
        let expected = self.content_length().unwrap_or(0);
        let too_long = |length: u64| (length > limit).then(|| Error::long_body(self.0.content.origin(), limit));
        if let Some(error) = too_long(expected) {
            return Err(self.about(error));
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        self.within(first.len(), limit)?;
        let Some(second) = self.chunk().await? else { return Ok(first) };
        let expected = expected.min(MAX_PREALLOCATED) as usize;
        let mut all = BytesMut::with_capacity(expected.max(first.len() + second.len()));
        all.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(chunk) = next {
            self.within(all.len() + chunk.len(), limit)?;
            all.extend_from_slice(&chunk);
            next = self.chunk().await?;
        }
        Ok(all.freeze())
    }

    fn within(&self, length: usize, limit: u64) -> Result<()> {
        match length as u64 > limit {
            true => Err(self.about(Error::long_body(self.0.content.origin(), limit))),
            false => Ok(()),
        }
    }

    /// The whole body as JSON (feature `json`).
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk); [`ErrorKind::Decode`](crate::ErrorKind::Decode) where it is not the JSON that was asked for:
    /// the error names the place in the document and shows how the body begins.
    #[cfg(feature = "json")]
    pub async fn json<T: serde::de::DeserializeOwned>(mut self) -> Result<T> {
        let bytes = self.collect(u64::MAX).await?;
        let origin = self.0.content.origin();
        let mut document = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut document).map_err(|error| {
            let path = error.path().to_string();
            Error::json(origin, Some(path), error.into_inner(), &bytes)
        });
        let value = value.and_then(|value| match document.end() {
            Ok(()) => Ok(value),
            Err(error) => Err(Error::json(origin, None, error, &bytes)),
        });
        value.map_err(|error| self.about(error))
    }

    /// The whole body as text: in UTF-8 or UTF-16 where it begins with a byte order mark, which is not part of the text; otherwise in
    /// the charset its content type names (feature `charset`), or in UTF-8. What is not valid in it is replaced by U+FFFD.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn text(mut self) -> Result<String> {
        let bytes = self.collect(u64::MAX).await?;
        if let Some(text) = marked(&bytes) {
            return Ok(text);
        }
        #[cfg(feature = "charset")]
        if let Some(encoding) = charset(&self.0.head.headers) {
            return Ok(encoding.decode(&bytes).0.into_owned());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for the first piece of an error's body, which mostly comes with its head, so that whoever asks for the error has it.
    pub(super) async fn look_ahead(&mut self) {
        if let Some(reader) = self.0.content.reader() {
            reader.look_ahead().await;
        }
    }
}

/// The text behind a byte order mark, which overrules the content type (WHATWG Encoding Standard, §6); `None` where there is no mark.
fn marked(bytes: &[u8]) -> Option<String> {
    match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => Some(String::from_utf8_lossy(text).into_owned()),
        [0xff, 0xfe, text @ ..] => Some(utf16(text, u16::from_le_bytes)),
        [0xfe, 0xff, text @ ..] => Some(utf16(text, u16::from_be_bytes)),
        _ => None,
    }
}

/// Decodes UTF-16, with U+FFFD for each half of a pair that is alone and for half a unit at the end.
fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (units, rest) = bytes.as_chunks::<2>();
    let chars = char::decode_utf16(units.iter().map(|bytes| unit(*bytes)));
    let mut text: String = chars.map(|char| char.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    if !rest.is_empty() {
        text.push(char::REPLACEMENT_CHARACTER);
    }
    text
}

/// The charset a content type names.
#[cfg(feature = "charset")]
fn charset(headers: &HeaderMap) -> Option<&'static encoding_rs::Encoding> {
    let content_type = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let label = content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"'))
    })?;
    encoding_rs::Encoding::for_label(label.as_bytes())
}

/// What is left of a response that is a message of the `http` crate, in its extensions.
#[derive(Clone)]
#[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only layers give a response back"))]
struct Told {
    call: Called,
    known: Known,
}

/// The same response as others know it. Its body holds the connection.
impl From<Response> for http::Response<super::Body> {
    fn from(response: Response) -> Self {
        let Received { mut head, call, content, .. } = *response.0;
        let call = call.expect("whoever has the response has it after its call");
        let (origin, trace) = (content.origin().clone(), content.trace().clone());
        let known = Known { origin, trace, start: content.start() };
        let body = match content {
            Content::Own(reader) => super::Body::wrap(Reading { reader, context: call.context.clone() }),
            #[cfg(feature = "tower")]
            Content::Other(body, _) => body,
        };
        head.extensions.insert(Told { call, known });
        Self::from_parts(head, body)
    }
}

#[cfg(feature = "tower")]
impl Response {
    /// A response that has been through other hands, or that they made themselves: then `begin` begins a call for it.
    pub(super) fn returned(
        mut message: http::Response<super::Body>,
        begin: impl FnOnce() -> (About, Origin, Trace),
    ) -> Self {
        let told = message.extensions_mut().remove().unwrap_or_else(|| {
            let (context, origin, trace) = begin();
            trace.made_up(message.status(), message.version());
            let known = Known { origin, trace, start: Bytes::new() };
            Told { call: Called { context, chain: Vec::new() }, known }
        });
        let (head, body) = message.into_parts();
        let content = Content::Other(body, told.known);
        Self(Box::new(Received { head, call: Some(told.call), content, trailers: None }))
    }
}

/// A response's body as others read it.
struct Reading {
    reader: Reader,
    context: About,
}

impl http_body::Body for Reading {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let frame = ready!(self.reader.poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(|error| error.about(&self.context, self.reader.trace().timings()))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.reader.rest()
    }
}
