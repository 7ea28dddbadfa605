//! The task of an HTTP/2 connection: its socket, its requests, and the futures that send their bodies and wait for their responses.
//!
//! hyper spawns a task for each of these. Here one task polls them all, in a fixed order, which has two advantages.
//! Nothing happens to the socket between the moment when a request is taken and the moment when its stream is opened,
//! so the last stream of a GOAWAY is never misread. And the server's stream limit is known as soon as its settings are
//! read.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::future::{BoxFuture, ready};
use futures_util::stream::FuturesUnordered;
use futures_util::task::AtomicWaker;
use futures_util::{FutureExt, StreamExt};
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::runtime::Handle;

use super::watch::FrameRecord;
use crate::connect::io::io_record::IoRecord;
use crate::connect::io::stream_io::RecordedStream;
use crate::connect::io::{Capacity, Message};
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

/// A set of parts: bit `n` stands for part `n`.
pub(in crate::connect) type PartSet = u8;

/// The bit that is set in [`WakeState::woken`] while the task polls its parts.
const POLLING: u8 = 1 << 7;

/// The most rounds of one poll. A part may wake itself in each round because it has used up its tokio budget, which is
/// renewed only when the task yields.
const MAX_ROUNDS: usize = 2;

/// Shared by the task and the wakers of its parts.
struct WakeState {
    /// The parts that were woken, and [`POLLING`].
    woken: AtomicU8,
    task: AtomicWaker,
}

/// The wakers of the `N` parts of a task; `N` is at most 7. The task polls only the parts that were woken.
///
/// A part that wakes another one while the task runs does not wake the task; the task polls the other part in the same turn.
pub(in crate::connect) struct PartWakers<const N: usize> {
    state: Arc<WakeState>,
    wakers: [Waker; N],
}

struct PartWaker {
    state: Arc<WakeState>,
    part: PartSet,
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // If a part was woken before, the task was woken then; if the task is polling, it will see the bit.
        if self.state.woken.fetch_or(self.part, Ordering::AcqRel) == 0 {
            self.state.task.wake();
        }
    }
}

impl<const N: usize> PartWakers<N> {
    /// Creates the wakers. All parts count as woken, so that each is polled a first time.
    pub(in crate::connect) fn new() -> Self {
        let state = Arc::new(WakeState { woken: AtomicU8::new((1 << N) - 1), task: AtomicWaker::new() });
        let wakers = std::array::from_fn(|part| Arc::new(PartWaker { state: state.clone(), part: 1 << part }).into());
        Self { state, wakers }
    }

    /// Returns the waker of the part with this number.
    pub(in crate::connect) fn waker(&self, part: usize) -> &Waker {
        &self.wakers[part]
    }

    /// Takes the wake-up of the part with this number; returns false if there is none. For use while the parts are polled.
    pub(in crate::connect) fn take(&self, part: usize) -> bool {
        let part: PartSet = 1 << part;
        // Mostly there is none, and reading is cheaper.
        let WakeState { woken, .. } = &*self.state;
        woken.load(Ordering::Relaxed) & part != 0 && woken.fetch_and(!part, Ordering::AcqRel) & part != 0
    }

    /// Calls `poll` with the parts that were woken, and again with those that it has woken.
    ///
    /// `poll` returns true if the task is over, and so does this function.
    pub(in crate::connect) fn poll(&self, cx: &mut Context<'_>, mut poll: impl FnMut(PartSet) -> bool) -> bool {
        let WakeState { woken, task } = &*self.state;
        task.register(cx.waker());
        for _ in 0..MAX_ROUNDS {
            let parts = woken.swap(POLLING, Ordering::AcqRel) & !POLLING;
            if parts == 0 {
                break;
            }
            if poll(parts) {
                return true;
            }
        }
        if woken.fetch_and(!POLLING, Ordering::AcqRel) != POLLING {
            // Some part is still woken: the task takes another turn.
            cx.waker().wake_by_ref();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls once. Returns the parts that were polled in each round, and the number of wakes of the task since the last
    /// call. In round `n` the parts of `wakes[n]` are woken.
    fn poll_once(wakers: &PartWakers<2>, count: &Arc<Count>, wakes: &[&[usize]]) -> (Vec<PartSet>, usize) {
        let waker = count.clone().into();
        let mut polled = Vec::new();
        let mut left = wakes.iter();
        wakers.poll(&mut Context::from_waker(&waker), |parts| {
            polled.push(parts);
            left.next().into_iter().copied().flatten().for_each(|part| wakers.waker(*part).wake_by_ref());
            false
        });
        (polled, count.0.swap(0, Ordering::Relaxed))
    }

    #[test]
    fn a_part_that_is_woken_by_the_task_itself_is_polled_in_the_same_turn() {
        let (wakers, count) = (PartWakers::new(), Arc::default());
        assert_eq!(poll_once(&wakers, &count, &[]), (vec![0b11], 0), "all parts to begin with");
        assert_eq!(poll_once(&wakers, &count, &[]), (vec![], 0), "no part was woken");
        wakers.waker(1).wake_by_ref();
        wakers.waker(0).wake_by_ref();
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1, "one wake for both parts");
        assert_eq!(poll_once(&wakers, &count, &[&[0]]), (vec![0b11, 0b01], 0));
        wakers.waker(1).wake_by_ref();
        assert_eq!(poll_once(&wakers, &count, &[&[], &[]]), (vec![0b10], 1), "one wake, before the poll");
    }

    #[test]
    fn a_wake_up_that_is_taken_leads_to_no_other_round() {
        let (wakers, count) = (PartWakers::<2>::new(), Arc::<Count>::default());
        let waker = count.clone().into();
        let mut polled = Vec::new();
        wakers.poll(&mut Context::from_waker(&waker), |parts| {
            wakers.waker(1).wake_by_ref();
            polled.push((parts, wakers.take(0), wakers.take(1), wakers.take(1)));
            false
        });
        assert_eq!(polled, [(0b11, false, true, false)]);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_part_that_always_wakes_itself_does_not_keep_the_task_from_yielding() {
        let (wakers, count) = (PartWakers::new(), Arc::default());
        assert_eq!(poll_once(&wakers, &count, &[&[0], &[0]]), (vec![0b11, 0b01], 1));
        assert_eq!(poll_once(&wakers, &count, &[&[], &[]]), (vec![0b01], 0));
        wakers.waker(0).wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "a wake from outside wakes the task again");
    }

    #[test]
    fn the_task_is_over_when_its_parts_are() {
        let wakers = PartWakers::<1>::new();
        assert!(wakers.poll(&mut Context::from_waker(Waker::noop()), |_| true));
    }
}
