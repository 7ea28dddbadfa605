//! An open connection: sends requests, and reports its readiness for another one and its end.

pub(super) mod handshake;
pub(super) mod http_config;
pub(super) mod upgraded;
#[cfg(feature = "tracing")]
mod verbose;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::http2::watch::FrameRecord;
use super::io::io_record::IoRecord;
use crate::clock::{AtomicInstant, Instant};
use crate::connect::io::{ExchangeTimes, Message, Protocol, SendError};
use crate::connect::proxy::server::Forwarding;
use crate::connect::resolve::NameUse;
use crate::trace::TlsFacts;
use crate::transport::{Liveness, Probe, SEES_CLOSE_BEHIND_BYTES, Stream};
use crate::{clock, sync};

#[cfg(feature = "tracing")]
pub(super) use verbose::verbose;

/// Without the feature `tracing` there is no log.
#[cfg(not(feature = "tracing"))]
pub(super) fn verbose(stream: Box<dyn Stream>) -> Box<dyn Stream> {
    stream
}

/// A connection. Clones share it; it closes when the last of them is dropped.
pub(crate) struct Conn<B>(Arc<ConnInner<B>>);

pub(super) struct ConnInner<B> {
    pub(super) sender: Sender<B>,
    io: Arc<IoRecord>,
    info: ConnInfo,
    number: u64,
    /// The number of HTTP/2 responses whose heads have come.
    responses: AtomicU64,
    /// The task that serves the socket.
    task: AbortHandle,
    /// The runtime of the task.
    runtime: Handle,
    /// The time until which the runtime counts as not driven.
    undriven_until: AtomicInstant,
    /// True if the task ended with its runtime, before the socket was closed.
    pub(super) abandoned: AtomicBool,
    /// True once the peer has answered with HTTP/1.0.
    speaks_http10: AtomicBool,
}

/// hyper's handle for sending requests.
///
/// The handle is taken away when the connection ends: hyper keeps a request that is queued for an ended connection
/// until the last sender is dropped (hyper #4122).
pub(super) enum Sender<B> {
    Http1(Mutex<Option<http1::SendRequest<B>>>),
    Http2(Arc<Mutex<Option<http2::SendRequest<B>>>>),
}

/// hyper's result of a request: the head of its response, or an error, with the request if it was not taken.
pub(crate) type Sent<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

impl<B> Sender<B> {
    /// Takes the HTTP/1.1 sender away. The HTTP/2 one is taken away by the connection's task itself.
    pub(super) fn close_http1(&self) {
        if let Self::Http1(sender) = self {
            let sender = sender.lock().take();
            // A request that was never sent is dropped with the sender, so not under the lock.
            drop(sender);
        }
    }
}

/// The facts about a connection that its handshakes have settled.
pub(super) struct ConnInfo {
    pub(super) remote: Option<SocketAddr>,
    pub(super) tls: Option<Arc<TlsFacts>>,
    forwarding: Option<Box<Forwarding>>,
    name_use: Option<Mutex<NameUse>>,
    probe: Option<Probe>,
    /// The frames that have come; `None` over HTTP/1.1.
    pub(super) frames: Option<Arc<FrameRecord>>,
}

impl ConnInfo {
    /// Takes a connected stream apart.
    pub(super) fn take_from(connected: ConnectedStream) -> (Box<dyn Stream>, Self) {
        let ConnectedStream { stream, tls, remote, forwarding, name_use, probe } = connected;
        let name_use = name_use.map(Mutex::new);
        (stream, Self { remote, tls, forwarding, name_use, probe, frames: None })
    }

    /// Returns the host name that the connection was opened for, and the port that the resolver has named for it or 0; `None` if it was not
    /// looked up.
    pub(super) fn name(&self) -> Option<(Arc<str>, u16)> {
        let name_use = self.name_use.as_ref()?.lock();
        Some((name_use.name().clone(), name_use.own_port()))
    }
}

/// The most bytes in a TLS record (RFC 8446 §5.1).
const TLS_RECORD: usize = 16 * 1024;

/// The most times that [`Conn::is_alive`] lets the connection's task read the bytes that have come.
const LIVENESS_LOOKS: usize = 3;

impl<B> ConnInner<B> {
    pub(super) fn new(
        sender: Sender<B>,
        io: Arc<IoRecord>,
        info: ConnInfo,
        number: u64,
        task: AbortHandle,
        runtime: Handle,
    ) -> Self {
        Self {
            sender,
            io,
            info,
            number,
            responses: AtomicU64::new(0),
            task,
            runtime,
            undriven_until: AtomicInstant::default(),
            abandoned: AtomicBool::new(false),
            speaks_http10: AtomicBool::new(false),
        }
    }
}

impl<B> Drop for ConnInner<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<B> Clone for Conn<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Sending a request.
impl<B: Message> Conn<B> {
    pub(super) fn new(inner: Arc<ConnInner<B>>) -> Self {
        Self(inner)
    }

    /// Hands a request to the connection, and returns the future of its result. The caller passes an error to
    /// [`failed`](Self::failed), and calls [`note_response`](Self::note_response) for a response.
    ///
    /// `now` is the current time or a moment before it. `times` is filled in for HTTP/2; see [`complete_times`](Self::complete_times). Dropping the
    /// future gives up the exchange, and with HTTP/1.1 the connection.
    ///
    /// # Errors
    /// The connection has ended.
    pub(crate) fn send(
        &self,
        request: Request<B>,
        now: Instant,
        times: &mut ExchangeTimes,
    ) -> Result<impl Future<Output = Sent<B>> + use<B>, Box<SendError<B>>> {
        let unsent = |request| {
            let ended_by = self.0.io.end().cloned();
            Box::new(SendError { error: None, ended_by, unsent: Some(request) })
        };
        match &self.0.sender {
            Sender::Http1(sender) => {
                self.0.io.reset();
                match sender.lock().as_mut() {
                    Some(sender) => Ok(Either::Left(sync::free_of(sender.try_send_request(request)))),
                    None => Err(unsent(request)),
                }
            }
            Sender::Http2(sender) => {
                let sender = sender.lock().clone();
                let Some(mut sender) = sender else { return Err(unsent(request)) };
                times.begun = Some(now);
                times.sent = Some(now);
                Ok(Either::Right(sync::free_of(sender.try_send_request(request))))
            }
        }
    }

    /// Notes that the head of a response has just come.
    #[inline]
    pub(crate) fn note_response(&self, times: &mut ExchangeTimes, cx: &mut Context<'_>) {
        sync::spend_budget(cx);
        if let Some(frames) = &self.0.info.frames {
            // The task read it in its last poll, or just before that.
            times.answered = Some(frames.now());
            times.head_read = times.answered;
            self.0.responses.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Makes the failure of a request that was [sent](Self::send) and got no response.
    #[cold]
    pub(crate) fn failed(&self, mut failed: TrySendError<Request<B>>, times: &mut ExchangeTimes) -> Box<SendError<B>> {
        let unsent = failed.take_message();
        let mut ended_by = None;
        if unsent.is_some() {
            times.begun = None;
            times.sent = None;
            // hyper's error is often only that the request was not taken.
            ended_by = self.0.io.end().cloned();
        }
        Box::new(SendError { unsent, error: Some(failed.into_error()), ended_by })
    }

    /// Fills in the times of the last exchange that come from the byte stream, over HTTP/1.1. Over HTTP/2, [`send`](Self::send)
    /// and [`note_response`](Self::note_response) have filled them in.
    pub(crate) fn complete_times(&self, times: &mut ExchangeTimes) {
        if self.protocol() == Protocol::Http1 {
            let io = self.0.io.times();
            *times = ExchangeTimes {
                begun: io.first_write,
                sent: io.last_write,
                answered: io.first_read,
                head_read: io.first_read.filter(|_| !io.has_read_more),
                heard: io.has_read,
            };
        }
    }

    /// Returns the time at which bytes of the current HTTP/1.1 request were last written, true if none of its bytes wait to be
    /// written, and the number of those that were. `None` before the first byte, and over HTTP/2, where the bytes of many requests are mixed.
    pub(crate) fn written(&self) -> Option<(Instant, bool, u64)> {
        match self.protocol() {
            Protocol::Http1 => {
                let io = self.0.io.times();
                Some((io.last_progress?, io.last_write.is_some(), io.written))
            }
            Protocol::Http2 => None,
        }
    }

    /// Returns true if it is known that no byte of the current HTTP/1.1 request reached the server.
    pub(crate) fn wrote_nothing(&self) -> bool {
        if self.protocol() != Protocol::Http1 {
            return false;
        }
        let io = self.0.io.times();
        if io.first_write.is_some() {
            return false;
        }
        // With TLS a failed write may have sent its first records. A server makes nothing of a part of a record, so a
        // write that fits into one record was not received. A proxy that forwards may be spoken to over TLS, too.
        let is_plain = self.tls().is_none() && self.forwarding().is_none();
        is_plain || io.failed_write <= TLS_RECORD
    }

    /// Takes note of the version of a response. hyper answers HTTP/1.0 with HTTP/1.0, which has no chunks.
    #[inline]
    pub(crate) fn note_version(&self, version: Version) {
        if version == Version::HTTP_10 {
            self.0.speaks_http10.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the version of the next request: the highest one of the protocol, unless the peer has answered with HTTP/1.0.
    pub(crate) fn version(&self) -> Version {
        if self.0.speaks_http10.load(Ordering::Relaxed) { Version::HTTP_10 } else { self.protocol().version() }
    }

    /// Keeps the connection's host name in the DNS cache, because a request is sent to it.
    pub(crate) fn note_use(&self, now: Instant) {
        if let Some(name_use) = &self.0.info.name_use {
            name_use.lock().touch(now);
        }
    }
}

/// The longest time that a request waits for the runtime of its connection to run a task.
const LONGEST_TURN: Duration = Duration::from_millis(100);
/// The time for which a runtime that has run no task counts as not driven.
const UNDRIVEN: Duration = Duration::from_secs(1);

/// Readiness for another request.
impl<B: Message> Conn<B> {
    /// Returns true if the runtime that serves the connection runs its tasks: it is the caller's, or runs one within 100 ms. Another one may be
    /// blocked by a task, or not driven at all, and a request would wait for it. `is_alone` is true if there is no other connection to
    /// be had: then a runtime that was not driven a moment ago is given another chance.
    pub(crate) async fn is_driven(&self, is_alone: bool) -> bool {
        let ConnInner { runtime, undriven_until, .. } = &*self.0;
        let Ok(here) = Handle::try_current() else { return true };
        if here.id() == runtime.id() {
            return true;
        }
        let now = clock::now();
        if !is_alone && undriven_until.load().is_some_and(|until| now < until) {
            return false;
        }
        let turn = runtime.spawn(std::future::ready(()));
        let is_driven = clock::before(now.checked_add(LONGEST_TURN), turn).await.is_some();
        undriven_until.store(if is_driven { None } else { clock::now().checked_add(UNDRIVEN) });
        is_driven
    }

    /// Returns true if another request may be sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.0.sender {
            Sender::Http1(sender) => sender.lock().as_ref().is_some_and(http1::SendRequest::is_ready),
            Sender::Http2(sender) => sender.lock().as_ref().is_some_and(http2::SendRequest::is_ready),
        }
    }

    /// Waits until another request may be sent. Returns false if the connection takes no more.
    pub(crate) async fn ready(&self) -> bool {
        match &self.0.sender {
            Sender::Http1(sender) => {
                std::future::poll_fn(|cx| match sender.lock().as_mut() {
                    Some(sender) => sender.poll_ready(cx).map(|ready| ready.is_ok()),
                    None => Poll::Ready(false),
                })
                .await
            }
            Sender::Http2(_) => self.is_ready(),
        }
    }

    /// Returns true if the connection seems to be usable: the server has not closed it, and has sent nothing unasked.
    ///
    /// The socket is looked at. Bytes on an idle HTTP/1.1 connection without TLS are an answer to no request, so it is
    /// not usable. Bytes under TLS or HTTP/2 may be a session ticket, a ping, or the end; the connection's task is
    /// given the chance to read them, unless it `carries_others`, whose responses they are.
    pub(crate) async fn is_alive(&self, carries_others: bool) -> bool {
        for _ in 0..LIVENESS_LOOKS {
            if self.is_closed() {
                return false;
            }
            match self.0.info.probe.as_ref().map_or(Liveness::Quiet, Probe::look) {
                Liveness::Quiet => return true,
                Liveness::Closed => return false,
                Liveness::Unread if self.is_plain() => return false,
                Liveness::Unread if carries_others && SEES_CLOSE_BEHIND_BYTES => return true,
                Liveness::Unread => tokio::task::yield_now().await,
            }
        }
        !self.is_closed()
    }

    /// Returns true if hyper takes no new requests. A connection whose task has not run yet is neither closed nor
    /// ready.
    fn is_closed(&self) -> bool {
        match &self.0.sender {
            Sender::Http1(sender) => sender.lock().as_ref().is_none_or(http1::SendRequest::is_closed),
            Sender::Http2(sender) => sender.lock().as_ref().is_none_or(http2::SendRequest::is_closed),
        }
    }

    fn is_plain(&self) -> bool {
        self.protocol() == Protocol::Http1 && self.tls().is_none()
    }

    /// Returns true if the runtime that served the connection ended before the socket was closed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::Relaxed)
    }

    /// Returns true if the peer is known to have acknowledged (TCP ACK) all that was written.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.0.info.probe.as_ref().is_some_and(Probe::is_acknowledged)
    }

    /// Returns the time since data last came from the peer, if the operating system tells.
    #[cold]
    pub(crate) fn data_age(&self) -> Option<Duration> {
        self.0.info.probe.as_ref().and_then(Probe::data_age)
    }

    /// Closes the connection, also one whose peer does not read.
    pub(crate) fn close(&self) {
        self.0.task.abort();
    }
}

/// The state of the HTTP/2 server.
impl<B: Message> Conn<B> {
    /// Returns the number of response heads, body frames, and other frames that show a server at work, received over
    /// HTTP/2 so far.
    pub(crate) fn progress(&self) -> u64 {
        let frames = self.0.info.frames.as_ref().map_or(0, |frames| frames.progress());
        self.0.responses.load(Ordering::Relaxed) + frames
    }

    /// Returns true if a response has come over HTTP/2.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.responses.load(Ordering::Relaxed) > 0
    }

    /// Waits for the server's settings. Returns true if they allow extended CONNECT (RFC 8441 §3), and `None` if the
    /// connection ended before they came. An HTTP/1.1 connection has none and does not allow it.
    pub(crate) async fn is_extended_connect_supported(&self) -> Option<bool> {
        match &self.0.info.frames {
            Some(frames) => frames.extended_connect.is_supported().await,
            None => Some(false),
        }
    }

    /// Returns true if the server has sent GOAWAY.
    pub(crate) fn is_going_away(&self) -> bool {
        self.0.info.frames.as_ref().is_some_and(|frames| frames.is_going_away())
    }

    /// Returns the error code of the server's GOAWAY, if it has sent one that says that something is wrong.
    pub(crate) fn goaway_reason(&self) -> Option<h2::Reason> {
        self.0.info.frames.as_ref()?.goaway_reason()
    }

    /// Counts a request that was dropped before its response came. Returns the number of those since the server last showed
    /// that it is at work; 0 over HTTP/1.1, where such a request ends the connection.
    pub(crate) fn count_dropped(&self) -> u32 {
        self.0.info.frames.as_ref().map_or(0, |frames| frames.count_dropped())
    }

    /// Returns true if the server has sent a GOAWAY that says that it processed none of the requests.
    pub(crate) fn refuses_all(&self) -> bool {
        self.0.info.frames.as_ref().is_some_and(|frames| frames.refuses_all())
    }
}

/// Facts that do not change.
impl<B: Message> Conn<B> {
    /// Returns the version of HTTP that is spoken.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.0.sender {
            Sender::Http1(_) => Protocol::Http1,
            Sender::Http2(_) => Protocol::Http2,
        }
    }

    /// Returns the connection's number, unique in its client.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns the peer's address: the proxy's if there is one. `None` for a Unix domain socket.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.0.info.remote
    }

    /// Returns the result of the TLS handshake with the origin; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsFacts>> {
        self.0.info.tls.as_ref()
    }

    /// Returns the peer's TLS alert that rejects the client's certificate.
    pub(crate) fn refusal(&self) -> Option<&Arc<io::Error>> {
        self.0.io.refusal()
    }

    /// Returns the way in which the proxy forwards requests; `None` if the connection does not lead to such a proxy.
    pub(crate) fn forwarding(&self) -> Option<&Forwarding> {
        self.0.info.forwarding.as_deref()
    }

    /// Returns the runtime for work that outlives a request: the current one, or else the one that serves the
    /// connection.
    pub(crate) fn runtime(&self) -> Handle {
        Handle::try_current().unwrap_or_else(|_| self.0.runtime.clone())
    }
}

/// A byte stream to an origin, after the TLS handshake if the origin has one. No byte of HTTP was sent on it.
pub(crate) struct ConnectedStream {
    pub(crate) stream: Box<dyn Stream>,
    /// The result of the TLS handshake with the origin; `None` without TLS.
    pub(crate) tls: Option<Arc<TlsFacts>>,
    /// The address that was connected to: the proxy's if there is one. `None` for a Unix domain socket.
    pub(crate) remote: Option<SocketAddr>,
    /// Set if the stream leads to a proxy that forwards requests. Boxed because few connections need it, and all are moved often.
    pub(crate) forwarding: Option<Box<Forwarding>>,
    /// The use of the host name that was looked up, the proxy's if there is one; `None` for an IP address.
    pub(crate) name_use: Option<NameUse>,
    /// A probe of the TCP socket below; `None` if the transport is not the crate's own.
    pub(crate) probe: Option<Probe>,
}

#[cfg(test)]
impl ConnectedStream {
    /// Wraps a stream of a test.
    pub(in crate::connect) fn of(stream: impl Stream) -> Self {
        let stream = Box::new(stream);
        Self { stream, tls: None, remote: None, forwarding: None, name_use: None, probe: None }
    }
}
