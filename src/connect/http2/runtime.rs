//! The task of an HTTP/2 connection: its socket, its requests, and the futures that send their bodies and wait for their responses.
//!
//! hyper spawns a task for each of these. Here one task polls them all, in a fixed order, which has two advantages.
//! Nothing happens to the socket between the moment when a request is taken and the moment when its stream is opened,
//! so the last stream of a GOAWAY is never misread. And the server's stream limit is known as soon as its settings are
//! read.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_util::future::{BoxFuture, ready};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::runtime::Handle;

use super::part_wakers::{PartSet, PartWakers};
use super::watch::FrameRecord;
use crate::connect::io::io_record::IoRecord;
use crate::connect::io::message::Message;
use crate::connect::io::protocol::Capacity;
use crate::connect::io::stream_io::RecordedStream;
use crate::sync::lock;

type Task = BoxFuture<'static, ()>;

/// The part that owns the socket.
const SOCKET: usize = 0;
/// The part that takes requests and opens their streams.
const REQUESTS: usize = 1;
/// The part that sends bodies and waits for responses.
const RESPONSES: usize = 2;

/// If a server allows at least this many streams, one of them is not used.
const MANY_STREAMS: usize = 16;

/// hyper's sender, shared with the connection's handle. It is taken away when the connection takes no new requests.
type SharedSender<B> = Arc<parking_lot::Mutex<Option<http2::SendRequest<B>>>>;

/// hyper's future that takes requests and opens their streams.
type Requests<B> = http2::Connection<TokioIo<RecordedStream>, B, H2Executor>;

/// An HTTP/2 connection as one future.
pub(in crate::connect) struct H2Connection<B: Message> {
    wakers: PartWakers<3>,
    parts: ConnectionParts<B>,
}

/// The parts of the connection that are polled apart from each other.
struct ConnectionParts<B: Message> {
    /// The first future that hyper spawned: it reads and writes the socket.
    socket: Option<Task>,
    requests: Option<Requests<B>>,
    /// The futures that send bodies and wait for responses.
    responses: FuturesUnordered<Task>,
    executor: H2Executor,
    sender: SharedSender<B>,
    frames: Arc<FrameRecord>,
    io: Arc<IoRecord>,
    /// The stream limit that was reported last.
    reported_streams: usize,
}

impl<B: Message> H2Connection<B> {
    /// Joins what hyper's handshake returned with the tasks that it left in `executor`.
    ///
    /// `assumed_streams` is the stream limit that hyper assumes until the server announces its own.
    pub(in crate::connect) fn new(
        requests: Requests<B>,
        executor: H2Executor,
        sender: SharedSender<B>,
        frames: Arc<FrameRecord>,
        io: Arc<IoRecord>,
        assumed_streams: usize,
    ) -> Self {
        let socket = lock(&executor.0).socket.take();
        let parts = ConnectionParts {
            socket,
            requests: Some(requests),
            responses: FuturesUnordered::new(),
            executor,
            sender,
            frames,
            io,
            reported_streams: assumed_streams,
        };
        Self { wakers: PartWakers::new(), parts }
    }

    /// Drives the connection; ready when the socket is closed. Calls `on_capacity` when the stream limit changes.
    pub(in crate::connect) fn poll(&mut self, cx: &mut Context<'_>, on_capacity: &impl Fn(Capacity)) -> Poll<()> {
        let Self { wakers, parts } = self;
        parts.frames.forget_now();
        if wakers.poll(cx, |woken| parts.poll(woken, wakers, on_capacity)) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl<B: Message> ConnectionParts<B> {
    /// Polls the parts that were woken. Returns true if the socket is closed.
    fn poll(&mut self, woken: PartSet, wakers: &PartWakers<3>, on_capacity: &impl Fn(Capacity)) -> bool {
        let context_of = |part| Context::from_waker(wakers.waker(part));
        let mut is_closed = false;
        // Also if an earlier part of this turn has woken it.
        let is_woken = |part: usize| (woken & (1 << part) != 0) | wakers.take(part);
        if is_woken(SOCKET) {
            let mut cx = context_of(SOCKET);
            is_closed = self.socket.as_mut().is_none_or(|socket| socket.poll_unpin(&mut cx).is_ready());
        }
        let earlier_responses = self.responses.len();
        // The socket may just have read settings or a GOAWAY. They decide which requests are taken, and hyper wakes no part for them.
        let has_news = self.frames.extended_connect.has_changed() || self.frames.is_going_away();
        if is_woken(REQUESTS) || is_closed || has_news {
            self.poll_requests(&mut context_of(REQUESTS), is_closed, on_capacity);
        }
        if is_woken(RESPONSES) || self.responses.len() > earlier_responses {
            self.poll_responses(&mut context_of(RESPONSES));
        }
        is_closed
    }

    fn poll_requests(&mut self, cx: &mut Context<'_>, is_closed: bool, on_capacity: &impl Fn(Capacity)) {
        let Some(requests) = &mut self.requests else { return };
        let ended = {
            let _taking = TakingRequests::begin();
            Pin::new(&mut *requests).poll(cx)
        };
        let takes_no_more = ended.is_ready() || is_closed;
        if let Poll::Ready(Err(error)) = ended {
            self.io.note_end(error);
        }
        let streams = requests.current_max_send_streams();
        if takes_no_more {
            // The pool must know before the requests that wait for this connection do, or it would dial at once.
            if self.frames.is_overloaded() {
                on_capacity(Capacity::EnhanceYourCalm);
            } else if !is_closed {
                // A closed socket needs no report: the connection's slot is released.
                on_capacity(Capacity::NoMore);
            }
            self.requests = None;
            drop(self.sender.lock().take());
            self.frames.extended_connect.note_end();
        } else {
            if self.frames.extended_connect.has_changed() {
                self.frames.extended_connect.note(requests.is_extended_connect_protocol_enabled());
            }
            if streams != self.reported_streams {
                self.reported_streams = streams;
                on_capacity(Capacity::Streams(usable(streams)));
            }
        }
        self.responses.extend(lock(&self.executor.0).responses.drain(..));
    }

    fn poll_responses(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = self.responses.poll_next_unpin(cx) {}
    }
}

impl<B: Message> Drop for ConnectionParts<B> {
    fn drop(&mut self) {
        drop(self.sender.lock().take());
        self.frames.extended_connect.note_end();
        // Without these two, the futures that send bodies and wait for responses learn that nothing will come of it.
        self.socket = None;
        self.requests = None;
        let new = std::mem::take(&mut lock(&self.executor.0).responses);
        // After a panic the futures may not be pollable; to be dropped ends their requests, too.
        if std::thread::panicking() {
            return;
        }
        self.responses.extend(new);
        self.poll_responses(&mut Context::from_waker(Waker::noop()));
        let rest = std::mem::take(&mut self.responses);
        if !rest.is_empty()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(rest.for_each(|()| ready(())).boxed());
        }
    }
}

/// Returns how many of the streams that the server allows are used.
///
/// hyper holds the request that takes the last one back until its stream is open, and gives it up without saying whether it was sent if
/// a GOAWAY comes first. Where there are many streams, the last one is not worth that.
fn usable(allowed: usize) -> usize {
    if allowed < MANY_STREAMS { allowed } else { allowed - 1 }
}

/// The executor that hyper spawns a connection's futures on. It keeps them for the connection's own task.
///
/// The futures of a request whose body is a stream are spawned as tasks of their own, because they poll the body, and its code
/// is the user's.
#[derive(Clone, Default)]
pub(in crate::connect) struct H2Executor(Arc<Mutex<SpawnedFutures>>);

/// The futures that hyper has spawned and the connection's task has not taken yet.
#[derive(Default)]
struct SpawnedFutures {
    /// The first future that is spawned; it owns the socket.
    socket: Option<Task>,
    has_socket: bool,
    responses: Vec<Task>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for H2Executor {
    fn execute(&self, future: F) {
        // Boxed early: a task of its own would copy the large future several times.
        let future = future.boxed();
        let mut spawned = lock(&self.0);
        if !spawned.has_socket {
            spawned.has_socket = true;
            spawned.socket = Some(future);
        } else if BODY_IS_A_STREAM.get() == Some(false) {
            spawned.responses.push(future);
        } else {
            drop(spawned);
            // There is none if the connection is dropped together with its runtime, and finds the answer to a CONNECT.
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(future);
            }
        }
    }
}

thread_local! {
    /// True if the body of the request that this thread takes may be a stream; `None` while the thread takes no requests.
    static BODY_IS_A_STREAM: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Exists while this thread takes requests from hyper's queue.
struct TakingRequests;

impl TakingRequests {
    fn begin() -> Self {
        // Any body may be one until it says that it is none.
        BODY_IS_A_STREAM.set(Some(true));
        Self
    }
}

impl Drop for TakingRequests {
    fn drop(&mut self) {
        BODY_IS_A_STREAM.set(None);
    }
}

/// Notes whether the body of the request that is being taken is a stream.
///
/// Called by the request's body when hyper asks it whether it is at its end, which hyper does just before it spawns the
/// request's futures. Without this call the futures become tasks of their own.
pub(crate) fn note_stream(is_stream: bool) {
    if BODY_IS_A_STREAM.get().is_some() {
        BODY_IS_A_STREAM.set(Some(is_stream));
    }
}
