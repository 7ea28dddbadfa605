//! One connection that speaks HTTP/1.1 or HTTP/2: a sender for the requests on it, and a task that serves its socket.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, ready};
use http::uri::Authority;
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::h2_pings::Pings;
use super::h2_runtime::{Lately, Multiplexed, Tasks, WHEN_DUE};
use super::h2_watch::{Seen, Watched};
use super::io::{Marked, Marks, Unsent};
use super::message::{Message, SendError, Times};
use super::name_use::Interest;
use super::streams::Capacity;
use super::{Forwarding, Line};
use crate::clock::{self, Instant};
use crate::sync::lock;
use crate::trace::{TlsFacts, is_timed};
use crate::transport::{Liveness, Probe, Stream};

/// How HTTP is spoken on a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HttpConfig {
    pub(crate) pings: Pings,
    /// The most headers of an HTTP/1.1 response; `None` for hyper's own limit of 100.
    pub(crate) max_headers: Option<usize>,
}

/// A connection after its handshake that nobody serves yet.
pub(crate) struct Opened<B: Message> {
    sender: Sender<B>,
    serving: Serving<B>,
    marks: Arc<Marks>,
    facts: Facts,
}

/// What is known of a connection.
struct Facts {
    remote: Option<SocketAddr>,
    tls: Option<Arc<TlsFacts>>,
    forwarding: Option<Forwarding>,
    interest: Option<Mutex<Interest>>,
    probe: Option<Probe>,
    /// What has come over it, where it speaks HTTP/2.
    seen: Option<Arc<Seen>>,
}

/// A connection; clones share it.
pub(crate) struct Conn<B>(Arc<Inner<B>>);

struct Inner<B> {
    sender: Sender<B>,
    marks: Arc<Marks>,
    facts: Facts,
    number: u64,
    /// How many heads of responses have come over HTTP/2.
    answers: AtomicU64,
    host: OnceLock<HeaderValue>,
    task: AbortHandle,
    /// Set when its task ends before its socket is closed, with the runtime.
    abandoned: AtomicBool,
    /// The one that serves it.
    runtime: Handle,
}

/// What a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// As `http` has it; a server may turn out to speak HTTP/1.0.
    pub(crate) fn version(self) -> http::Version {
        match self {
            Self::Http1 => http::Version::HTTP_11,
            Self::Http2 => http::Version::HTTP_2,
        }
    }
}

/// Taken away at the end, because what is on its way to a connection that is over waits for the last sender (hyper's #4122).
enum Sender<B> {
    Http1(Mutex<Option<http1::SendRequest<B>>>),
    /// And what requests call their origin.
    Http2(Arc<Mutex<Option<http2::SendRequest<B>>>>, Box<OnceLock<Option<Authority>>>),
}

enum Serving<B: Message> {
    Http1(BoxFuture<'static, ()>),
    // Boxed, because it is large and HTTP/1.1 has no need of it.
    Http2(Box<Multiplexed<B>>),
}

/// What hyper is told that the peer allows until the peer says so itself: a number that no peer says. The pool has one
/// request sent until then.
const UNSAID: usize = usize::MAX / 2;

/// Of requests given up, so many are remembered, lest what the peer still sends for them be taken for its mistake.
const RESETS_REMEMBERED: usize = 1_024;

/// The most an HTTP/1.1 connection buffers, the head of a response included: hyper keeps the buffer for the next one, so that
/// what a long body needed once is what an idle connection costs from then on.
const MOST_BUFFERED: usize = 64 * 1024;

/// The most headers that fit into it, at three bytes each: hyper makes room for as many as may come.
const MOST_HEADERS: usize = MOST_BUFFERED / 3;

/// Longer than a process runs. hyper adds such a time to the current one without looking for an overflow.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// How much a peer may send of a body that nobody reads, and of all the bodies on a connection: so much that a few slow
/// readers do not hold the others up.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 26;

impl<B: Message> Opened<B> {
    /// Shakes hands over a line: HTTP/1.1 sends nothing for it, HTTP/2 its preface and settings (RFC 9113 §3.4).
    pub(crate) async fn handshake(line: Line, protocol: Protocol, config: HttpConfig) -> hyper::Result<Self> {
        let HttpConfig { pings, max_headers } = config;
        let Line { stream, facts: tls, remote, forwarding, interest, probe } = line;
        let (stream, seen) = match protocol {
            Protocol::Http1 => (stream, None),
            Protocol::Http2 => {
                let (watched, seen) = Watched::new(stream);
                (Box::new(watched) as Box<dyn Stream>, Some(seen))
            }
        };
        let unsent = match protocol {
            Protocol::Http1 => Unsent::Waits,
            Protocol::Http2 => Unsent::Dropped,
        };
        let (stream, marks) = Marked::new(stream, unsent);
        let stream = TokioIo::new(stream);
        // How a connection ended is told to the request it ended for.
        let (sender, serving) = match protocol {
            Protocol::Http1 => {
                let mut builder = http1::Builder::new();
                builder.max_buf_size(MOST_BUFFERED);
                if let Some(most) = max_headers {
                    builder.max_headers(most.min(MOST_HEADERS));
                }
                let (sender, connection) = builder.handshake(stream).await?;
                (Sender::Http1(Mutex::new(Some(sender))), Serving::Http1(connection.map(drop).boxed()))
            }
            Protocol::Http2 => {
                let tasks = Tasks::default();
                let lately = Lately::new(seen.clone().filter(|_| pings.interval.is_none()));
                let mut builder = http2::Builder::new(tasks.clone());
                builder.timer(lately.clone()).initial_max_send_streams(UNSAID);
                builder.max_header_list_size(MOST_BUFFERED as u32);
                match pings.interval {
                    Some(interval) => builder
                        .keep_alive_interval(interval.min(FOREVER))
                        .keep_alive_timeout(pings.timeout.min(FOREVER))
                        .keep_alive_while_idle(pings.while_idle),
                    // The timer decides when it is time to ping, and when to give up.
                    None => builder
                        .keep_alive_interval(Duration::ZERO)
                        .keep_alive_timeout(WHEN_DUE)
                        .keep_alive_while_idle(false),
                };
                builder.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
                builder.max_concurrent_reset_streams(RESETS_REMEMBERED).max_local_error_reset_streams(None);
                // Boxed, because it is large and HTTP/1.1 has no need of it.
                let (sender, requests) = Box::pin(builder.handshake(stream)).await?;
                let sender = Arc::new(Mutex::new(Some(sender)));
                let serving = Multiplexed::new(requests, (tasks, lately), sender.clone(), seen.clone(), UNSAID);
                (Sender::Http2(sender, Box::default()), Serving::Http2(Box::new(serving)))
            }
        };
        let interest = interest.map(Mutex::new);
        Ok(Self { sender, serving, marks, facts: Facts { remote, tls, forwarding, interest, probe, seen } })
    }

    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.facts.remote
    }

    /// The name it was opened for, where that was looked up.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.facts.interest.as_ref().map(|interest| lock(interest).name().clone())
    }

    /// The connection, and what serves it in `task`: it drops `place` once the socket is closed, and tells `capacity` what the
    /// connection will carry when that changes. Called on the runtime that will serve it.
    pub(crate) fn start<P, F: Fn(Capacity)>(
        self,
        number: u64,
        place: P,
        task: AbortHandle,
        capacity: F,
    ) -> (Conn<B>, Served<B, P, F>) {
        let Self { sender, serving, marks, facts } = self;
        let (answers, host, abandoned) = (AtomicU64::new(0), OnceLock::new(), AtomicBool::new(false));
        let runtime = Handle::current();
        let conn = Arc::new(Inner { sender, marks, facts, number, answers, host, task, abandoned, runtime });
        let serving = Served { serving, capacity, conn: Arc::downgrade(&conn), over: false, place };
        (Conn(conn), serving)
    }
}

/// A connection that is served, until its socket is closed. By hand, because it lies in memory as long as the connection lives.
pub(crate) struct Served<B: Message, P, F: Fn(Capacity)> {
    // The socket goes first, and only then its place.
    serving: Serving<B>,
    capacity: F,
    conn: Weak<Inner<B>>,
    /// True if its socket was closed in the course of things.
    over: bool,
    #[expect(dead_code, reason = "it is held and dropped")]
    place: P,
}

impl<B: Message, P: Unpin, F: Fn(Capacity) + Unpin> Future for Served<B, P, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { serving, capacity, over, .. } = &mut *self;
        let served = match serving {
            Serving::Http1(serving) => serving.poll_unpin(cx),
            Serving::Http2(serving) => serving.poll(cx, capacity),
        };
        *over = served.is_ready();
        served
    }
}

impl<B: Message, P, F: Fn(Capacity)> Drop for Served<B, P, F> {
    fn drop(&mut self) {
        let Some(conn) = self.conn.upgrade() else { return };
        // The pool aborts connections without requests alone, and a panic is not to be repeated.
        if !self.over && !std::thread::panicking() {
            // Requests learn of it before they fail, and the pool before the socket is closed.
            conn.abandoned.store(true, Ordering::Relaxed);
            (self.capacity)(Capacity::Abandoned);
        }
        if let Sender::Http1(sender) = &conn.sender {
            let sender = lock(sender).take();
            // With it goes a request that nobody takes any more, and not while others wait for the lock.
            drop(sender);
        }
    }
}

impl<B> Clone for Conn<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Message> Conn<B> {
    /// Sends one request; what comes of it is the head of its response. It is `now`, or was a moment ago; `times` is told how far
    /// it gets. Dropping the future gives the exchange up, and with HTTP/1.1 the connection.
    pub(crate) fn send(
        &self,
        request: Request<B>,
        now: Instant,
        times: &mut Times,
    ) -> impl Future<Output = Result<Response<Incoming>, Box<SendError<B>>>> {
        let unsent = |request| Either::Left(ready(Err(Box::new(SendError { error: None, unsent: Some(request) }))));
        // Begun before anybody waits for it, and changed in its place: what a future holds is copied when it is made.
        let sent = match &self.0.sender {
            Sender::Http1(sender) => {
                self.0.marks.reset();
                match lock(sender).as_mut() {
                    Some(sender) => Either::Left(sender.try_send_request(request)),
                    None => return unsent(request),
                }
            }
            Sender::Http2(sender, _) => {
                let sender = lock(sender).clone();
                let Some(mut sender) = sender else { return unsent(request) };
                (times.begun, times.sent) = (Some(now), Some(now));
                Either::Right(sender.try_send_request(request))
            }
        };
        Either::Right(sent.map(|sent| {
            if self.protocol() == Protocol::Http2 {
                times.answered = sent.is_ok().then(clock::now);
                self.0.answers.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
            }
            sent.map_err(|mut failed| {
                let unsent = failed.take_message();
                if unsent.is_some() {
                    (times.begun, times.sent) = (None, None);
                }
                Box::new(SendError { unsent, error: Some(failed.into_error()) })
            })
        }))
    }

    /// How far a request got: what the stream below tells, where its bytes are those of one request at a time.
    pub(crate) fn times(&self, times: Times) -> Times {
        match self.protocol() {
            Protocol::Http1 => {
                let noted = self.0.marks.noted();
                let (begun, sent) = (noted.first_write, noted.last_write);
                Times { begun, sent, answered: noted.first_read, heard: noted.has_read }
            }
            Protocol::Http2 => times,
        }
    }

    /// When bytes of the current HTTP/1.1 request were last written, and true if none of it waits to be. Over HTTP/2 the
    /// bytes are those of many requests, so nothing is known of one.
    pub(crate) fn written(&self) -> Option<(Instant, bool)> {
        match self.protocol() {
            Protocol::Http1 => {
                let noted = self.0.marks.noted();
                Some((noted.progress?, noted.last_write.is_some()))
            }
            Protocol::Http2 => None,
        }
    }

    /// A request goes out on it: its name is in use.
    pub(crate) fn used(&self, now: Instant) {
        if let Some(interest) = &self.0.facts.interest {
            lock(interest).tell(now);
        }
    }

    /// What it speaks.
    pub(crate) fn protocol(&self) -> Protocol {
        match self.0.sender {
            Sender::Http1(_) => Protocol::Http1,
            Sender::Http2(..) => Protocol::Http2,
        }
    }

    /// The `Host` of its requests, which all go to one origin: it is made for the first one.
    pub(crate) fn host(&self, make: impl FnOnce() -> HeaderValue) -> HeaderValue {
        self.0.host.get_or_init(make).clone()
    }

    /// The same as HTTP/2 has it, in the request's target.
    pub(crate) fn authority(&self, make: impl FnOnce() -> HeaderValue) -> Option<Authority> {
        let parse = || make().as_bytes().try_into().ok();
        match &self.0.sender {
            Sender::Http1(_) => parse(),
            Sender::Http2(_, authority) => authority.get_or_init(parse).clone(),
        }
    }

    /// How many heads and pieces of responses, and other frames of a server at work, have come over HTTP/2.
    pub(crate) fn progress(&self) -> u64 {
        let frames = self.0.facts.seen.as_ref().map_or(0, |seen| seen.progress());
        self.0.answers.load(Ordering::Relaxed) + frames
    }

    /// Returns true if the peer's system is known to have acknowledged all that was written, so that the way to it is open.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.0.facts.probe.as_ref().is_some_and(Probe::is_acknowledged)
    }

    /// Returns true if a request was answered on it, as far as it speaks HTTP/2.
    pub(crate) fn has_answered(&self) -> bool {
        self.0.answers.load(Ordering::Relaxed) > 0
    }

    /// Returns true if the server has said GOAWAY.
    pub(crate) fn is_going_away(&self) -> bool {
        self.0.facts.seen.as_ref().is_some_and(|seen| seen.is_going_away())
    }

    /// Returns true if the server has said by GOAWAY that it has processed none of the requests.
    pub(crate) fn refuses_all(&self) -> bool {
        self.0.facts.seen.as_ref().is_some_and(|seen| seen.refuses_all())
    }

    /// The runtime for what outlives a request: the current one, or else the one that serves the connection.
    pub(crate) fn runtime(&self) -> Handle {
        Handle::try_current().unwrap_or_else(|_| self.0.runtime.clone())
    }

    /// Returns true if the runtime that served it ended before its socket was closed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.abandoned.load(Ordering::Relaxed)
    }

    /// Returns true if it is known that no byte of the current HTTP/1.1 request was written.
    pub(crate) fn wrote_nothing(&self) -> bool {
        if self.protocol() != Protocol::Http1 || !is_timed() {
            return false;
        }
        let noted = self.0.marks.noted();
        // A part of a TLS record is nothing to a server, but the first ones of several records may have left whole. There may be TLS to
        // a proxy that forwards.
        let is_plain = self.tls().is_none() && self.forwards().is_none();
        noted.first_write.is_none() && (is_plain || noted.failed <= TLS_RECORD)
    }

    /// The alert by which the server refused the client after the TLS handshake, in words.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.0.marks.refusal()
    }

    /// What requests need where it is a proxy's that forwards them.
    pub(crate) fn forwards(&self) -> Option<&Forwarding> {
        self.0.facts.forwarding.as_ref()
    }

    /// What its TLS handshake came to.
    pub(crate) fn tls(&self) -> Option<&Arc<TlsFacts>> {
        self.0.facts.tls.as_ref()
    }

    /// The connection's number, unique in its client.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// The peer's address.
    pub(crate) fn remote(&self) -> Option<SocketAddr> {
        self.0.facts.remote
    }

    /// Whether another request may be sent at once.
    pub(crate) fn is_ready(&self) -> bool {
        match &self.0.sender {
            Sender::Http1(sender) => lock(sender).as_ref().is_some_and(http1::SendRequest::is_ready),
            Sender::Http2(sender, _) => lock(sender).as_ref().is_some_and(http2::SendRequest::is_ready),
        }
    }

    /// Waits until another request may be sent; `false` when none ever will.
    pub(crate) async fn ready(&self) -> bool {
        match &self.0.sender {
            Sender::Http1(sender) => {
                std::future::poll_fn(|cx| match lock(sender).as_mut() {
                    Some(sender) => sender.poll_ready(cx).map(|ready| ready.is_ok()),
                    None => Poll::Ready(false),
                })
                .await
            }
            Sender::Http2(..) => self.is_ready(),
        }
    }

    /// Whether the peer has not closed it while nobody was looking, nor said anything it was not asked for.
    pub(crate) async fn is_alive(&self) -> bool {
        for _ in 0..PATIENCE {
            if self.is_closed() {
                return false;
            }
            match self.0.facts.probe.as_ref().map_or(Liveness::Quiet, Probe::look) {
                Liveness::Quiet => return true,
                Liveness::Closed => return false,
                Liveness::Unread if self.is_plain() => return false,
                // A session ticket, a ping, or the end: the connection's task finds out.
                Liveness::Unread => tokio::task::yield_now().await,
            }
        }
        !self.is_closed()
    }

    /// Whether it takes no more requests. One whose task has not run yet does, though it is not ready.
    fn is_closed(&self) -> bool {
        match &self.0.sender {
            Sender::Http1(sender) => lock(sender).as_ref().is_none_or(http1::SendRequest::is_closed),
            Sender::Http2(sender, _) => lock(sender).as_ref().is_none_or(http2::SendRequest::is_closed),
        }
    }

    fn is_plain(&self) -> bool {
        self.protocol() == Protocol::Http1 && self.tls().is_none()
    }

    /// Closes it.
    pub(crate) fn close(&self) {
        // This also ends a connection whose peer does not read.
        self.0.task.abort();
    }
}

/// The most bytes in a TLS record (RFC 8446 §5.1).
const TLS_RECORD: usize = 16 * 1024;

/// How often a connection's task is given way to, to read what has come.
const PATIENCE: usize = 3;

impl<B> Drop for Inner<B> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicUsize;
    use std::task::Waker;

    use bytes::Bytes;
    use http_body_util::{BodyExt, Empty, Full};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;

    #[test]
    fn a_request_that_crosses_the_end_of_its_connection_is_not_left_without_an_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let task = runtime.spawn(std::future::pending::<()>()).abort_handle();
        for round in 0..10_000 {
            let (stream, peer) = tokio::io::duplex(64);
            let (facts, remote, forwarding, interest, probe) = Default::default();
            let line = Line { stream: Box::new(stream), facts, remote, forwarding, interest, probe };
            let opened =
                Opened::handshake(line, Protocol::Http1, HttpConfig::default()).now_or_never().unwrap().unwrap();
            let (conn, mut served) = opened.start(round, (), task.clone(), drop);
            drop(peer);
            let (ready, mut times) = (AtomicUsize::new(0), Times::default());
            // Both at the same moment, or one of them a little later.
            let meet = |late: usize| {
                ready.fetch_add(1, Ordering::SeqCst);
                while ready.load(Ordering::SeqCst) < 2 {
                    std::hint::spin_loop();
                }
                (0..late).for_each(|_| std::hint::spin_loop());
            };
            let sent = std::thread::scope(|scope| {
                scope.spawn(|| {
                    meet(0);
                    while served.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {}
                    drop(served);
                });
                meet(round as usize % 500);
                conn.send(Request::new(Empty::<Bytes>::new()), clock::now(), &mut times)
            });
            assert!(matches!(sent.now_or_never(), Some(Err(_))), "round {round}");
        }
    }

    /// A socket that takes so many bytes and then fails, upon which its peer's answer can be read, and then the end.
    struct Crossed {
        room: usize,
        failed: bool,
        error: io::ErrorKind,
        says: Vec<u8>,
        reader: Option<Waker>,
    }

    impl AsyncRead for Crossed {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if !self.failed {
                self.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let length = self.says.len().min(buf.remaining());
            let said: Vec<u8> = self.says.drain(..length).collect();
            buf.put_slice(&said);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Crossed {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            if self.room == 0 {
                self.failed = true;
                self.reader.take().into_iter().for_each(Waker::wake);
                return Poll::Ready(Err(self.error.into()));
            }
            let taken = buf.len().min(self.room);
            self.room -= taken;
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// The body of the answer to an upload that `stream` does not take.
    async fn answer(stream: Crossed, protocol: Protocol) -> Option<Bytes> {
        let (facts, remote, forwarding, interest, probe) = Default::default();
        let line = Line { stream: Box::new(stream), facts, remote, forwarding, interest, probe };
        let opened = Opened::handshake(line, protocol, HttpConfig::default()).await.unwrap();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let (conn, served) = opened.start(0, (), task, drop);
        let serving = tokio::spawn(served);
        let request = Request::put("http://api.test/").body(Full::new(Bytes::from(vec![0; 1 << 20]))).unwrap();
        let mut times = Times::default();
        let response = conn.send(request, clock::now(), &mut times).await.ok();
        let body = match response {
            Some(response) => BodyExt::collect(response.into_body()).await.ok(),
            None => None,
        };
        serving.abort();
        body.map(|body| body.to_bytes())
    }

    #[tokio::test]
    async fn a_connection_whose_task_goes_away_is_known_from_one_that_its_peer_has_closed() {
        for (protocol, closes) in
            [Protocol::Http1, Protocol::Http2].into_iter().flat_map(|protocol| [(protocol, true), (protocol, false)])
        {
            let (stream, mut peer) = tokio::io::duplex(4_096);
            let (facts, remote, forwarding, interest, probe) = Default::default();
            let line = Line { stream: Box::new(stream), facts, remote, forwarding, interest, probe };
            let opened = Opened::handshake(line, protocol, HttpConfig::default()).await.unwrap();
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            let said = Arc::new(Mutex::new(Vec::new()));
            let says = said.clone();
            let (conn, served) = opened.start(0, (), task, move |capacity| lock(&says).push(capacity));
            let serving = tokio::spawn(served);
            let mut times = Times::default();
            let request = Request::get("http://api.test/").body(Empty::<Bytes>::new()).unwrap();
            let sending = conn.send(request, clock::now(), &mut times);
            // The request is on its way.
            tokio::io::AsyncReadExt::read_u8(&mut peer).await.unwrap();
            if closes {
                drop(peer);
            } else {
                serving.abort();
            }
            assert!(sending.await.is_err());
            let abandoned = lock(&said).contains(&Capacity::Abandoned);
            assert_eq!((conn.is_abandoned(), abandoned), (!closes, !closes), "{protocol:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_crosses_a_write_that_fails_is_read() {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        let head = |rest: &str| format!("HTTP/1.1 413 No\r\n{rest}").into_bytes();
        // SETTINGS; HEADERS with `:status: 200` (RFC 7541, appendix A); DATA, the last.
        let frames = [
            &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
            &[0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88],
            &[0, 0, 2, 0, 1, 0, 0, 0, 1, b'n', b'o'],
        ];
        for (case, protocol, error, says, expected) in [
            ("length", Protocol::Http1, ConnectionReset, head("content-length: 2\r\n\r\nno"), Some("no")),
            ("closed", Protocol::Http1, BrokenPipe, head("\r\nto the end"), Some("to the end")),
            // Nothing says that this was the end.
            ("cut", Protocol::Http1, ConnectionReset, head("\r\nto the"), None),
            ("silent", Protocol::Http1, ConnectionReset, Vec::new(), None),
            ("HTTP/2", Protocol::Http2, ConnectionReset, frames.concat(), Some("no")),
        ] {
            let stream = Crossed { room: 1_000, failed: false, error, says, reader: None };
            let said = answer(stream, protocol).await;
            assert_eq!(said.as_deref(), expected.map(str::as_bytes), "{case}");
        }
    }

    #[tokio::test]
    async fn a_long_write_that_fails_over_tls_may_have_left_in_part() {
        let shaken = TlsFacts {
            version: "TLSv1_3",
            cipher_suite: "unknown",
            alpn: None,
            resumed: false,
            verified: true,
            peer_certificates: Vec::new(),
        };
        let shaken = Some(Arc::new(shaken));
        for (facts, length, wrote_nothing) in
            [(None, 40_000, true), (shaken.clone(), 40_000, false), (shaken, 4_000, true)]
        {
            let error = io::ErrorKind::ConnectionReset;
            let stream = Crossed { room: 0, failed: false, error, says: Vec::new(), reader: None };
            let (remote, forwarding, interest, probe) = Default::default();
            let is_tls = facts.is_some();
            let line = Line { stream: Box::new(stream), facts, remote, forwarding, interest, probe };
            let opened = Opened::handshake(line, Protocol::Http1, HttpConfig::default()).await.unwrap();
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            let (conn, served) = opened.start(0, (), task, drop);
            let serving = tokio::spawn(served);
            let request = Request::post("/").body(Full::new(Bytes::from(vec![0; length]))).unwrap();
            let mut times = Times::default();
            assert!(conn.send(request, clock::now(), &mut times).await.is_err());
            assert_eq!(conn.wrote_nothing(), wrote_nothing, "TLS: {is_tls}, {length} bytes");
            serving.abort();
        }
    }
}
