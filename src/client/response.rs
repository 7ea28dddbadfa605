//! What came back: the head at once, the body as it is read. The body holds the connection until its end.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use url::Url;

use super::Dialer;
use super::call::Patience;
#[cfg(feature = "__compression")]
use super::decode::{Decoder, Step};
use super::keep_alive::KeepAlive;
use super::outgoing::Upload;
use crate::clock::{self, Instant, Timer};
use crate::connect::Protocol;
use crate::error::{Context as About, Error, Result};
use crate::origin::Origin;
use crate::pool::Lease;
use crate::trace::{CloseCause, Event, Phase, Timings, TimingsHandle, TlsFacts, Trace, Wants};

/// How long a connection whose response was read may take to be ready for the next request.
const READY_TIMEOUT: Duration = Duration::from_millis(250);
/// How long the rest of a request may take over HTTP/2 when its response is over.
const REST_TIMEOUT: Duration = Duration::from_secs(60);
/// Of a body nobody reads, so much is read for the sake of the connection, and for so long.
const MAX_DRAINED: u64 = 64 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// A body is collected into a buffer of its announced length, as long as that is credible.
const MAX_PREALLOCATED: u64 = 1024 * 1024;

/// A response. Its connection is free for others once the body was read to its end. Dropped before, the rest is read if it is
/// short and comes soon (64 KiB, 50 ms), otherwise the connection is closed; over HTTP/2 the stream alone is,
/// and with it what is left of the request.
pub struct Response {
    head: Parts,
    call: Called,
    trace: Trace,
    content: Content,
    trailers: Option<HeaderMap>,
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
    /// How its body begins, of an error.
    start: Bytes,
}

impl Content {
    fn origin(&self) -> &Origin {
        match self {
            Self::Own(reader) => &reader.payload.origin,
            #[cfg(feature = "tower")]
            Self::Other(_, known) => &known.origin,
        }
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status())
            .field("version", &self.version())
            .field("origin", self.content.origin())
            .field("path", &self.url().path())
            .finish_non_exhaustive()
    }
}

impl Response {
    pub(super) fn new(head: Parts, context: About, chain: Vec<Url>, reader: Reader) -> Self {
        let trace = reader.payload.trace.clone();
        Self { head, call: Called { context, chain }, trace, content: Content::Own(reader), trailers: None }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The headers. Where the body is decompressed, those that were about its compressed form are not among them.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The URLs whose responses led here, the first one first; none where there was no redirect.
    pub fn redirects(&self) -> &[Url] {
        &self.call.chain
    }

    /// The URL it answers, the last one of a chain of redirects.
    pub fn url(&self) -> &Url {
        &self.call.context.url
    }

    /// The body's length in bytes, where it is known beforehand.
    pub fn content_length(&self) -> Option<u64> {
        match &self.content {
            Content::Own(reader) => reader.length(),
            #[cfg(feature = "tower")]
            Content::Other(body, _) => body.content_length(),
        }
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.trace.remote_addr()
    }

    /// What the connection's TLS handshake came to; `None` of a connection without.
    pub fn tls(&self) -> Option<Arc<TlsFacts>> {
        self.trace.tls()
    }

    /// Where the time went so far: right after [`send`](crate::RequestBuilder::send), up to the headers.
    pub fn timings(&self) -> Timings {
        self.trace.timings()
    }

    /// A handle on the timings that outlives the response, to see the end of the body in them.
    pub fn timings_handle(&self) -> TimingsHandle {
        TimingsHandle::new(self.trace.clone())
    }

    /// The trailers, once the body was read to its end; `None` before, and where there are none (RFC 9110 §6.5).
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
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
        let start = match &self.content {
            Content::Own(reader) => reader.start(),
            #[cfg(feature = "tower")]
            Content::Other(_, known) => known.start.clone(),
        };
        (status.is_client_error() || status.is_server_error())
            .then(|| self.about(Error::from_status(&self.call.context, status, start)))
    }

    fn about(&self, error: Error) -> Error {
        error.about(&self.call.context, self.trace.timings())
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
            let frame = match &mut self.content {
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
                    Err(other) => self.trailers = other.into_trailers().ok(),
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
            wrote.map_err(|error| self.about(Error::writer(self.content.origin(), error)))?;
            written += chunk.len() as u64;
        }
        writer.flush().await.map_err(|error| self.about(Error::writer(self.content.origin(), error)))?;
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
        let too_long = |length: u64| (length > limit).then(|| Error::long_body(self.content.origin(), limit));
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
            true => Err(self.about(Error::long_body(self.content.origin(), limit))),
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
        let origin = self.content.origin();
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

    /// The whole body as text: in the charset its content type names (feature `charset`), otherwise in UTF-8. What is not valid in
    /// it is replaced by U+FFFD.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn text(mut self) -> Result<String> {
        let bytes = self.collect(u64::MAX).await?;
        #[cfg(feature = "charset")]
        if let Some(encoding) = charset(&self.head.headers) {
            return Ok(encoding.decode(&bytes).0.into_owned());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for the first piece of an error's body, which mostly comes with its head, so that whoever asks for the error has it.
    pub(super) async fn look_ahead(&mut self) {
        match &mut self.content {
            Content::Own(reader) => reader.look_ahead().await,
            #[cfg(feature = "tower")]
            Content::Other(..) => {}
        }
    }
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
    trace: Trace,
}

/// The same response as others know it. Its body holds the connection.
impl From<Response> for http::Response<super::Body> {
    fn from(response: Response) -> Self {
        let Response { mut head, call, trace, content, trailers: _ } = response;
        let start = match &content {
            Content::Own(reader) => reader.start(),
            #[cfg(feature = "tower")]
            Content::Other(_, known) => known.start.clone(),
        };
        let known = Known { origin: content.origin().clone(), start };
        let body = match content {
            Content::Own(reader) => {
                super::Body::wrap(Reading { reader, context: call.context.clone(), trace: trace.clone() })
            }
            #[cfg(feature = "tower")]
            Content::Other(body, _) => body,
        };
        head.extensions.insert(Told { call, known, trace });
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
            Told { call: Called { context, chain: Vec::new() }, known: Known { origin, start: Bytes::new() }, trace }
        });
        let (head, body) = message.into_parts();
        let content = Content::Other(body, told.known);
        Self { head, call: told.call, trace: told.trace, content, trailers: None }
    }
}

/// A response's body as others read it.
struct Reading {
    reader: Reader,
    context: About,
    trace: Trace,
}

impl http_body::Body for Reading {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let frame = ready!(self.reader.poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(|error| error.about(&self.context, self.trace.timings()))))
    }

    fn is_end_stream(&self) -> bool {
        self.reader.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.reader.rest()
    }
}

/// For how long the first piece of an error's body is waited for, and how much of it is kept for the error.
const LOOK_AHEAD: Duration = Duration::from_millis(20);

/// A response's body as its reader wants it: decompressed.
pub(super) struct Reader {
    payload: Payload,
    /// What was read already.
    ahead: Option<Result<Frame<Bytes>>>,
    #[cfg(feature = "__compression")]
    decoder: Option<Box<Decoder>>,
}

impl Reader {
    pub(super) fn new(payload: Payload) -> Self {
        Self {
            payload,
            ahead: None,
            #[cfg(feature = "__compression")]
            decoder: None,
        }
    }

    #[cfg(feature = "__compression")]
    pub(super) fn decoded(self, decoder: Option<Decoder>) -> Self {
        Self { decoder: decoder.map(Box::new), ..self }
    }

    /// How the body begins, where that was looked at.
    fn start(&self) -> Bytes {
        let ahead = self.ahead.as_ref().and_then(|ahead| ahead.as_ref().ok()?.data_ref());
        ahead.cloned().unwrap_or_default()
    }

    /// How much is left of the body, where that is known.
    fn rest(&self) -> SizeHint {
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return SizeHint::default();
        }
        // Of what has failed, nobody knows.
        if self.payload.failed {
            return SizeHint::default();
        }
        let ahead = self.start().len() as u64;
        self.payload.rest().exact().map_or_else(SizeHint::default, |rest| SizeHint::with_exact(rest + ahead))
    }

    /// The length of the whole body, where it is known.
    fn length(&self) -> Option<u64> {
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return None;
        }
        let rest = self.payload.rest().exact().filter(|_| !self.payload.failed);
        rest.map(|rest| rest + self.payload.bytes)
    }

    fn is_over(&self) -> bool {
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return false;
        }
        self.ahead.is_none() && self.payload.open.is_none() && !self.payload.failed
    }

    async fn look_ahead(&mut self) {
        if self.payload.open.is_none() {
            return;
        }
        let until = clock::now().checked_add(LOOK_AHEAD);
        let first = clock::before(until, poll_fn(|cx| self.poll_frame(cx))).await;
        self.ahead = first.flatten();
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if let Some(ahead) = self.ahead.take() {
            return Poll::Ready(Some(ahead));
        }
        #[cfg(feature = "__compression")]
        if self.decoder.is_some() {
            return self.poll_decoded(cx);
        }
        self.payload.poll_frame(cx)
    }

    #[cfg(feature = "__compression")]
    fn poll_decoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        let Self { payload, decoder: Some(decoder), .. } = self else { return self.payload.poll_frame(cx) };
        loop {
            match decoder.next() {
                Ok(Step::Made(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Step::Hungry) => {}
                Ok(Step::Busy) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => {
                    payload.fail("decode");
                    payload.failed = true;
                    let error = Error::compression(&payload.origin, error);
                    self.decoder = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            if decoder.is_over() {
                return Poll::Ready(decoder.take_trailers().map(|trailers| Ok(Frame::trailers(trailers))));
            }
            match ready!(payload.poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => decoder.push(data),
                    Err(other) => decoder.keep(other.into_trailers().ok()),
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => decoder.end(),
            }
        }
    }
}

/// Where a response comes from.
pub(super) struct Source {
    pub(super) lease: Lease<Dialer>,
    /// The request's body, which may still be on its way.
    pub(super) upload: Option<Arc<Upload>>,
    pub(super) keep_alive: KeepAlive,
}

/// A response's body, and the connection it comes from.
pub(super) struct Payload {
    /// Nothing after the end.
    open: Option<(Incoming, Source)>,
    trace: Trace,
    patience: Patience,
    origin: Origin,
    bytes: u64,
    /// How long the body is to be, where it comes with a length.
    announced: Option<u64>,
    /// Since when its next piece is waited for, and how far its connection had got then.
    silent_since: Option<(Instant, u64)>,
    timer: Timer,
    failed: bool,
}

impl Payload {
    pub(super) fn new(incoming: Incoming, source: Source, trace: Trace, patience: Patience, origin: Origin) -> Self {
        // A response to HEAD has a length and no body.
        let announced = incoming.size_hint().exact().filter(|_| !incoming.is_end_stream());
        let open = Some((incoming, source));
        let (silent_since, timer, failed) = Default::default();
        let mut payload = Self { open, trace, patience, origin, bytes: 0, announced, silent_since, timer, failed };
        payload.finish_at_end();
        payload
    }

    fn rest(&self) -> SizeHint {
        self.open.as_ref().map_or(SizeHint::with_exact(0), |(incoming, _)| incoming.size_hint())
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>>>> {
        if self.failed {
            return Poll::Ready(Some(Err(Error::body_failed_before(&self.origin, self.bytes))));
        }
        let Some((incoming, _)) = &mut self.open else { return Poll::Ready(None) };
        let Patience { deadline, idle } = self.patience;
        // What has come in the meantime is too late as well.
        let is_late = deadline.is_some_and(|deadline| deadline.at <= clock::now());
        if !is_late && let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(cx) {
            self.silent_since = None;
            if let Some((_, source)) = &self.open {
                source.lease.conn().progressed();
            }
            return Poll::Ready(match frame {
                Some(Ok(frame)) => Some(Ok(self.read(frame))),
                Some(Err(error)) => {
                    self.fail("body");
                    Some(Err(Error::body(&self.origin, error, self.bytes)))
                }
                None => self.end().err().map(Err),
            });
        }
        let mut came = false;
        if is_late {
            came = Pin::new(incoming).poll_frame(cx).is_ready();
        } else {
            let progress = self.open.as_ref().map_or(0, |(_, source)| source.lease.conn().progress());
            let (since, _) = *self.silent_since.get_or_insert_with(|| (clock::now(), progress));
            let until = since.checked_add(idle).into_iter().chain(deadline.map(|deadline| deadline.at)).min();
            let Some(until) = until else { return Poll::Pending };
            ready!(self.timer.poll_until(cx, until));
        }
        // Who waited in vain knows that nothing came; who came too late knows nothing.
        if let (Some((_, source)), Some((_, progress)), false) = (&mut self.open, self.silent_since, came) {
            source.lease.give_up_on(progress);
        }
        self.fail("timeout");
        Poll::Ready(Some(Err(match deadline.filter(|deadline| deadline.at <= clock::now()) {
            Some(deadline) => Error::timeout(&self.origin, Phase::Receive, deadline.limit),
            None => Error::silence(&self.origin, Phase::Receive, "nothing more of the body", idle),
        })))
    }

    fn read(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            self.bytes += bytes;
            self.trace.mention(Wants::CHUNKS, || Event::BodyChunk { bytes });
            self.finish_at_end();
        }
        frame
    }

    /// The body is over; over HTTP/2 that can also mean that the peer gave it up without a word.
    fn end(&mut self) -> Result<()> {
        let short = self.announced.filter(|announced| self.bytes < *announced);
        if short.is_none() && !self.open.as_ref().is_some_and(|(incoming, source)| source.is_cut(incoming)) {
            self.finish();
            return Ok(());
        }
        self.fail("body");
        Err(Error::cut_body(&self.origin, self.bytes, short))
    }

    /// Ends the call as soon as nothing more can come, also if nobody asks for the end.
    fn finish_at_end(&mut self) {
        let cut = self.announced.is_some_and(|announced| self.bytes < announced);
        if !cut && self.open.as_ref().is_some_and(|(incoming, _)| incoming.is_end_stream()) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some((_, source)) = self.open.take() {
            let now = clock::now();
            self.trace.emit_at(now, Event::BodyEnd { bytes: self.bytes });
            source.give_back(now);
        }
    }

    fn fail(&mut self, why: &'static str) {
        if let Some((incoming, source)) = self.open.take() {
            self.failed = true;
            self.trace.fail(why);
            drop(incoming);
            source.give_up();
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some((incoming, source)) = self.open.take() {
            self.trace.fail("cancelled");
            source.drain(incoming);
        }
    }
}

impl Source {
    /// Whether a body that is over has no end: the stream was reset. Where the request is still on its way, a peer does that
    /// for good reason, and not to the response (RFC 9113 §8.1).
    fn is_cut(&self, incoming: &Incoming) -> bool {
        let uploaded = self.upload.as_ref().is_none_or(|upload| upload.is_over());
        self.lease.conn().protocol() == Protocol::Http2 && uploaded && !incoming.is_end_stream()
    }

    /// Gives the connection back once it is ready for the next request, which it mostly is at once.
    fn give_back(self, now: Instant) {
        let Self { mut lease, upload, keep_alive } = self;
        if keep_alive.is_last && lease.conn().protocol() == Protocol::Http1 {
            return lease.end(CloseCause::PeerAsked);
        }
        if upload.as_ref().is_some_and(|upload| upload.is_unwanted()) {
            // The server still waits for the body it did not want.
            return lease.end(CloseCause::Unfinished);
        }
        if let Some(upload) = upload.clone().filter(|upload| !upload.is_over())
            && lease.conn().protocol() == Protocol::Http2
        {
            // The peer may want the rest all the same (RFC 9113 §8.1), and the stream is taken for as long.
            return Self::when_over(upload, lease, REST_TIMEOUT);
        }
        let uploaded = upload.as_ref().is_none_or(|upload| upload.is_over());
        if uploaded && lease.conn().is_ready() {
            return lease.give_back_at(now, keep_alive.idle);
        }
        // A request that is still on its way when the response is over, and stays so, holds the connection up.
        lease.retire(CloseCause::Unfinished);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let ready = async {
                    if let Some(upload) = upload {
                        upload.over().await;
                    }
                    lease.conn().ready().await
                };
                let in_time = clock::before(clock::now().checked_add(READY_TIMEOUT), pin!(ready)).await;
                if in_time == Some(true) {
                    lease.give_back(keep_alive.idle);
                }
            });
        }
    }

    /// The exchange has failed. A request's body that is still on its way ends with its stream; until it has, the stream is taken.
    fn give_up(self) {
        let Self { lease, upload, .. } = self;
        if let Some(upload) = upload.filter(|upload| !upload.is_over())
            && lease.conn().protocol() == Protocol::Http2
        {
            upload.give_up();
            Self::when_over(upload, lease, READY_TIMEOUT);
        }
    }

    /// Keeps a stream's place until the request's body is over; where that takes for too long, its connection serves no others.
    fn when_over(upload: Arc<Upload>, mut lease: Lease<Dialer>, limit: Duration) {
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            if clock::before(clock::now().checked_add(limit), pin!(upload.over())).await.is_none() {
                upload.give_up();
                lease.retire(CloseCause::Unfinished);
            }
        });
    }

    /// Reads the rest of a body nobody wants, if it is short and there; otherwise the connection closes. An HTTP/2 stream is
    /// given up by itself.
    pub(super) fn drain(self, incoming: Incoming) {
        if self.lease.conn().protocol() == Protocol::Http2 {
            drop(incoming);
            if self.upload.as_ref().is_some_and(|upload| !upload.is_over()) {
                return self.give_up();
            }
            return self.give_back(clock::now());
        }
        if incoming.size_hint().lower() > MAX_DRAINED {
            return;
        }
        let mut rest = Rest { incoming, bytes: 0 };
        let now = Pin::new(&mut rest).poll(&mut Context::from_waker(Waker::noop()));
        match (now, Handle::try_current()) {
            (Poll::Ready(true), _) => self.give_back(clock::now()),
            (Poll::Pending, Ok(runtime)) => {
                runtime.spawn(async move {
                    if clock::before(clock::now().checked_add(DRAIN_TIMEOUT), rest).await == Some(true) {
                        self.give_back(clock::now());
                    }
                });
            }
            _ => {}
        }
    }
}

/// The rest of a body; a future of whether it came to its end.
struct Rest {
    incoming: Incoming,
    bytes: u64,
}

impl Future for Rest {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        while self.bytes <= MAX_DRAINED {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => return Poll::Ready(true),
                Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                Some(Err(_)) => return Poll::Ready(false),
            }
        }
        Poll::Ready(false)
    }
}
