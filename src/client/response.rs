//! What came back: the head at once, the body as it is read. The body holds the connection until its end.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use http_body::{Body as _, SizeHint};
use hyper::body::Incoming;
use tokio::runtime::Handle;
use url::Url;

use super::Dialer;
use super::body::Upload;
use super::call::Patience;
use super::keep_alive::KeepAlive;
use crate::clock::{self, Instant};
use crate::connect::Protocol;
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::pool::Lease;
use crate::trace::{CloseCause, Event, Phase, Timings, TimingsHandle, Trace, Wants};

/// How long a connection whose response was read may take to be ready for the next request.
const READY_TIMEOUT: Duration = Duration::from_millis(250);
/// Of a body nobody reads, so much is read for the sake of the connection, and for so long.
const MAX_DRAINED: u64 = 64 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// A body is collected into a buffer of its announced length, as long as that is credible.
const MAX_PREALLOCATED: u64 = 1024 * 1024;

/// A response. Its connection is free for others once the body was read to its end. Dropped before, the rest is read if it is
/// short and comes soon (64 KiB, 50 ms), otherwise the connection is closed; over HTTP/2 the stream alone is, if the request has been sent.
pub struct Response {
    head: Parts,
    url: Url,
    chain: Vec<Url>,
    payload: Payload,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status())
            .field("version", &self.version())
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}

impl Response {
    pub(super) fn new(head: Parts, url: Url, chain: Vec<Url>, payload: Payload) -> Self {
        Self { head, url, chain, payload }
    }

    /// The status.
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The HTTP version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The URLs whose responses led here, the first one first; none where there was no redirect.
    pub fn redirects(&self) -> &[Url] {
        &self.chain
    }

    /// The URL it answers, the last one of a chain of redirects.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The body's length in bytes, where it is known beforehand.
    pub fn content_length(&self) -> Option<u64> {
        self.payload.rest().exact().map(|rest| rest + self.payload.bytes)
    }

    /// The peer's address.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        self.payload.trace.remote_addr()
    }

    /// Where the time went so far: right after [`send`](crate::RequestBuilder::send), up to the headers.
    pub fn timings(&self) -> Timings {
        self.payload.trace.timings()
    }

    /// A handle on the timings that outlives the response, to see the end of the body in them.
    pub fn timings_handle(&self) -> TimingsHandle {
        TimingsHandle::new(self.payload.trace.clone())
    }

    /// The response itself, unless its status is 400 or above.
    ///
    /// # Errors
    /// [`ErrorKind::Status`](crate::ErrorKind::Status) from 400 on. The response, and its connection, are dropped.
    pub fn error_for_status(self) -> Result<Self> {
        let status = self.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(Error::from_status(&self.url, status).about(&self.url, self.timings()));
        }
        Ok(self)
    }

    /// The next piece of the body; `None` at its end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Body`](crate::ErrorKind::Body) when the connection fails or closes before the body's end;
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when the call's time is up.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.payload.chunk().await.map_err(|error| error.about(&self.url, self.payload.trace.timings()))
    }

    /// The whole body.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn bytes(mut self) -> Result<Bytes> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.chunk().await? else { return Ok(first) };
        let expected = self.content_length().unwrap_or(0).min(MAX_PREALLOCATED) as usize;
        let mut all = BytesMut::with_capacity(expected.max(first.len() + second.len()));
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while let Some(chunk) = self.chunk().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all.freeze())
    }

    /// The whole body as JSON (feature `json`).
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk); [`ErrorKind::Decode`](crate::ErrorKind::Decode) where it is not the JSON that was asked for:
    /// the error names the place in the document and shows how the body begins.
    #[cfg(feature = "json")]
    pub async fn json<T: serde::de::DeserializeOwned>(self) -> Result<T> {
        let (url, handle) = (self.url.clone(), self.timings_handle());
        let origin = self.payload.origin.clone();
        let bytes = self.bytes().await?;
        let mut document = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut document).map_err(|error| {
            let path = error.path().to_string();
            Error::json(&origin, Some(path), error.into_inner(), &bytes)
        });
        let value = value.and_then(|value| match document.end() {
            Ok(()) => Ok(value),
            Err(error) => Err(Error::json(&origin, None, error, &bytes)),
        });
        value.map_err(|error| error.about(&url, handle.timings()))
    }

    /// The whole body as text; what is not UTF-8 is replaced by U+FFFD.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn text(self) -> Result<String> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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
    failed: bool,
}

impl Payload {
    pub(super) fn new(incoming: Incoming, source: Source, trace: Trace, patience: Patience, origin: Origin) -> Self {
        // A response to HEAD has a length and no body.
        let announced = incoming.size_hint().exact().filter(|_| !incoming.is_end_stream());
        let open = Some((incoming, source));
        let mut payload = Self { open, trace, patience, origin, bytes: 0, announced, failed: false };
        payload.finish_at_end();
        payload
    }

    fn rest(&self) -> SizeHint {
        self.open.as_ref().map_or(SizeHint::with_exact(0), |(incoming, _)| incoming.size_hint())
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if self.failed {
            return Err(Error::body_failed_before(&self.origin, self.bytes));
        }
        if self.open.is_none() {
            return Ok(None);
        }
        let Patience { deadline, idle } = self.patience;
        // What has come in the meantime is too late as well.
        let in_time = deadline.is_none_or(|deadline| clock::now() < deadline.at);
        let data = if in_time { self.data_before(deadline.map(|deadline| deadline.at), idle).await } else { None };
        data.unwrap_or_else(|| {
            self.fail("timeout");
            Err(match deadline.filter(|deadline| deadline.at <= clock::now()) {
                Some(deadline) => Error::timeout(&self.origin, Phase::Receive, deadline.limit),
                None => Error::silence(&self.origin, Phase::Receive, "nothing more of the body", idle),
            })
        })
    }

    /// The next piece, unless it takes for too long. No timer is set for what is there already.
    async fn data_before(&mut self, deadline: Option<Instant>, idle: Duration) -> Option<Result<Option<Bytes>>> {
        let mut next = pin!(self.next_data());
        if let Poll::Ready(data) = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await {
            return Some(data);
        }
        let silent = clock::now().checked_add(idle);
        clock::before(silent.into_iter().chain(deadline).min(), next).await
    }

    async fn next_data(&mut self) -> Result<Option<Bytes>> {
        loop {
            let Some((incoming, _)) = &mut self.open else { return Ok(None) };
            let frame = match poll_fn(|cx| Pin::new(&mut *incoming).poll_frame(cx)).await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    self.fail("body");
                    return Err(Error::body(&self.origin, error, self.bytes));
                }
                None => return self.end(),
            };
            let Ok(data) = frame.into_data() else { continue };
            self.bytes += data.len() as u64;
            self.trace.mention(Wants::CHUNKS, || Event::BodyChunk { bytes: data.len() as u64 });
            self.finish_at_end();
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// The body is over; over HTTP/2 that can also mean that the peer gave it up without a word.
    fn end(&mut self) -> Result<Option<Bytes>> {
        let short = self.announced.filter(|announced| self.bytes < *announced);
        if short.is_none() && !self.open.as_ref().is_some_and(|(incoming, source)| source.is_cut(incoming)) {
            self.finish();
            return Ok(None);
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
        if self.open.take().is_some() {
            self.failed = true;
            self.trace.fail(why);
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

    /// Reads the rest of a body nobody wants, if it is short and there; otherwise the connection closes. An HTTP/2 stream is
    /// given up by itself.
    pub(super) fn drain(self, incoming: Incoming) {
        if self.lease.conn().protocol() == Protocol::Http2 {
            drop(incoming);
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
