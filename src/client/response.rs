//! What came back: the head at once, the body as it is read. The body holds the connection until its end.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderMap, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;
use url::Url;

use super::Dialer;
use super::call::Deadline;
use crate::clock;
use crate::error::{Error, Result};
use crate::origin::Origin;
use crate::pool::Lease;
use crate::trace::{Event, Phase, Timings, TimingsHandle, Trace};

/// How long a connection whose response was read may take to be ready for the next request.
const READY_TIMEOUT: Duration = Duration::from_secs(1);
/// A body is collected into a buffer of its announced length, as long as that is credible.
const MAX_PREALLOCATED: u64 = 1024 * 1024;

/// A response. Its connection is free for others once the body was read to its end; dropped before, it is closed.
pub struct Response {
    head: Parts,
    url: Url,
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
    pub(super) fn new(head: Parts, url: Url, payload: Payload) -> Self {
        Self { head, url, payload }
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

    /// The URL it answers.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The body's length in bytes, where it is known beforehand.
    pub fn content_length(&self) -> Option<u64> {
        self.payload.incoming.size_hint().exact().map(|rest| rest + self.payload.bytes)
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

    /// The whole body as text; what is not UTF-8 is replaced by U+FFFD.
    ///
    /// # Errors
    /// As [`chunk`](Self::chunk).
    pub async fn text(self) -> Result<String> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A response's body, and the connection it comes from.
pub(super) struct Payload {
    incoming: Incoming,
    lease: Option<Lease<Dialer>>,
    trace: Trace,
    deadline: Option<Deadline>,
    origin: Origin,
    bytes: u64,
    failed: bool,
}

impl Payload {
    pub(super) fn new(
        incoming: Incoming,
        lease: Lease<Dialer>,
        trace: Trace,
        deadline: Option<Deadline>,
        origin: Origin,
    ) -> Self {
        let mut payload = Self { incoming, lease: Some(lease), trace, deadline, origin, bytes: 0, failed: false };
        payload.finish_at_end();
        payload
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>> {
        if self.failed {
            return Err(Error::body_failed_before(&self.origin, self.bytes));
        }
        if self.lease.is_none() {
            return Ok(None);
        }
        let Some(deadline) = self.deadline else {
            let data = self.next_data().await;
            return data.map_err(|error| self.broken(error));
        };
        // What has come in the meantime is too late as well.
        let data = match clock::now() < deadline.at {
            true => clock::before(Some(deadline.at), self.next_data()).await,
            false => None,
        };
        match data {
            Some(data) => data.map_err(|error| self.broken(error)),
            None => {
                self.give_up();
                Err(Error::timeout(&self.origin, Phase::Receive, deadline.limit))
            }
        }
    }

    fn broken(&mut self, error: hyper::Error) -> Error {
        self.give_up();
        Error::body(&self.origin, error, self.bytes)
    }

    async fn next_data(&mut self) -> hyper::Result<Option<Bytes>> {
        loop {
            let Some(frame) = poll_fn(|cx| Pin::new(&mut self.incoming).poll_frame(cx)).await else {
                self.finish();
                return Ok(None);
            };
            let Ok(data) = frame?.into_data() else { continue };
            self.bytes += data.len() as u64;
            self.finish_at_end();
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    /// Ends the call as soon as nothing more can come, also if nobody asks for the end.
    fn finish_at_end(&mut self) {
        if self.incoming.is_end_stream() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.trace.emit(Event::BodyEnd { bytes: self.bytes });
            give_back(lease);
        }
    }

    fn give_up(&mut self) {
        if self.lease.take().is_some() {
            self.failed = true;
            self.trace.fail();
        }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Gives a connection back once it is ready for the next request, which it mostly is at once.
fn give_back(mut lease: Lease<Dialer>) {
    if lease.conn().is_ready() {
        return lease.give_back();
    }
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            let ready = tokio::time::timeout(READY_TIMEOUT, lease.use_conn().ready()).await;
            if ready == Ok(true) {
                lease.give_back();
            }
        });
    }
}
