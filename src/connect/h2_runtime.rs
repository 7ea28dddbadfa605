//! An HTTP/2 connection in one task: its socket, the requests for it, and what waits for their answers. hyper would have a task for
//! each of them.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use hyper::client::conn::http2;
use hyper::rt::{Executor, Sleep, Timer};
use hyper_util::rt::{TokioIo, TokioTimer};

use super::h2_pings::{Pulse, SILENCE};
use super::h2_watch::Seen;
use super::io::Marked;
use super::message::Message;
use super::part_wakers::{Bells, Parts};
use super::streams::Capacity;
use crate::clock::{self, Instant};
use crate::sync::lock;

type Task = BoxFuture<'static, ()>;

/// The parts of the task: what owns the socket, what takes requests, what waits for their answers.
const SOCKET: usize = 0;
const REQUESTS: usize = 1;
const WAITING: usize = 2;

/// A connection; its task is one of which hyper would make many.
pub(super) struct Multiplexed<B: Message> {
    bells: Bells<3>,
    parts: Halves<B>,
}

/// In one task nothing happens to the socket between a request's being taken and its stream's being opened, so a GOAWAY is never
/// taken for an answer to a stream it does not speak of; and what the peer allows is known as soon as it is read.
struct Halves<B: Message> {
    socket: Option<Task>,
    requests: Option<http2::Connection<TokioIo<Marked>, B, Tasks>>,
    /// What waits for answers.
    waiting: FuturesUnordered<Task>,
    tasks: Tasks,
    lately: Lately,
    sender: Arc<Mutex<Option<http2::SendRequest<B>>>>,
    seen: Option<Arc<Seen>>,
    told: usize,
}

impl<B: Message> Multiplexed<B> {
    /// Serves what hyper made of a socket with these `tasks`; the sender is taken away when the connection takes no more requests.
    /// Until the peer says how many streams it allows, hyper takes it for `unsaid`.
    pub(super) fn new(
        requests: http2::Connection<TokioIo<Marked>, B, Tasks>,
        (tasks, lately): (Tasks, Lately),
        sender: Arc<Mutex<Option<http2::SendRequest<B>>>>,
        seen: Option<Arc<Seen>>,
        unsaid: usize,
    ) -> Self {
        let socket = lock(&tasks.0).socket.take();
        let (requests, waiting) = (Some(requests), FuturesUnordered::new());
        let parts = Halves { socket, requests, waiting, tasks, lately, sender, seen, told: unsaid };
        Self { bells: Bells::new(), parts }
    }

    /// Ready when the socket is closed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, capacity: &impl Fn(Capacity)) -> Poll<()> {
        let Self { bells, parts } = self;
        parts.lately.forget();
        match bells.poll(cx, |woken| parts.poll(woken, bells, capacity)) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl<B: Message> Halves<B> {
    /// Whether the socket is closed.
    fn poll(&mut self, woken: Parts, bells: &Bells<3>, capacity: &impl Fn(Capacity)) -> bool {
        let [mut of_socket, mut of_requests, mut of_waiting] =
            [SOCKET, REQUESTS, WAITING].map(|part| Context::from_waker(bells.waker(part)));
        let mut closed = false;
        if woken & 1 << SOCKET != 0 {
            closed = self.socket.as_mut().is_none_or(|socket| socket.poll_unpin(&mut of_socket).is_ready());
        }
        // Whatever was read may be about what requests are taken.
        if woken & (1 << SOCKET | 1 << REQUESTS) != 0
            && let Some(requests) = &mut self.requests
        {
            let over = {
                let _taking = Taking::begin();
                Pin::new(&mut *requests).poll(&mut of_requests).is_ready() || closed
            };
            let streams = requests.current_max_send_streams();
            if over {
                // The pool knows before those that wait for the connection do, lest they have it dial at once.
                if self.seen.as_ref().is_some_and(|seen| seen.asks_for_calm()) {
                    capacity(Capacity::Calm);
                } else if !closed {
                    // What happens when the socket is closed is its place's to tell.
                    capacity(Capacity::NoMore);
                }
                self.requests = None;
                drop(lock(&self.sender).take());
            } else if streams != std::mem::replace(&mut self.told, streams) {
                capacity(Capacity::Seats(streams));
            }
            self.waiting.extend(lock(&self.tasks.0).new.drain(..));
        }
        self.poll_waiting(&mut of_waiting);
        closed
    }

    fn poll_waiting(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(())) = self.waiting.poll_next_unpin(cx) {}
    }
}

impl<B: Message> Drop for Halves<B> {
    fn drop(&mut self) {
        drop(lock(&self.sender).take());
        // With these gone, those that wait are told that nothing comes any more.
        (self.socket, self.requests) = (None, None);
        let new = std::mem::take(&mut lock(&self.tasks.0).new);
        // After a panic there may be locks that cannot be taken any more; to be dropped tells them, too.
        if std::thread::panicking() {
            return;
        }
        self.waiting.extend(new);
        self.poll_waiting(&mut Context::from_waker(Waker::noop()));
        let rest = std::mem::take(&mut self.waiting);
        if !rest.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(rest.for_each(|()| ready(())));
        }
    }
}

/// Keeps the tasks hyper makes for a connection, but for those of requests with a body, which somebody else may have to work for.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// The first one.
    socket: Option<Task>,
    has_socket: bool,
    new: Vec<Task>,
}

thread_local! {
    /// While this thread takes requests: whether the one at hand may have a body.
    static HAS_BODY: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Requests are taken, until it is dropped.
struct Taking;

impl Taking {
    fn begin() -> Self {
        // Until a request says that it has no body, it may have one.
        HAS_BODY.set(Some(true));
        Self
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        HAS_BODY.set(None);
    }
}

/// Is told by a request's body what it says of itself, which hyper mostly asks it just before it makes tasks for the request; where it
/// does not, the tasks are others' to do.
pub(crate) fn has_body(has_body: bool) {
    HAS_BODY.set(HAS_BODY.get().map(|_| has_body));
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        // It is as large as a connection's task, and would be copied several times on its way into one of its own.
        let task = task.boxed();
        let mut kept = lock(&self.0);
        if !std::mem::replace(&mut kept.has_socket, true) {
            kept.socket = Some(task);
        } else if HAS_BODY.get() == Some(false) {
            kept.new.push(task);
        } else {
            drop(kept);
            tokio::spawn(task);
        }
    }
}

/// A timer for a connection that wants to know for each frame what time it is: the time when it was looked at last will do.
/// hyper also waits by it for the next ping, and for the answer to one; both are over when the connection's pulse says so.
#[derive(Clone)]
pub(super) struct Lately(Arc<Looked>);

struct Looked {
    base: Instant,
    /// Nanoseconds; none where nobody has asked since the connection was looked at.
    at: AtomicU64,
    /// `None` where pings are sent by a timer.
    pulse: Option<(Mutex<Pulse>, Arc<Seen>)>,
}

/// The timeout of pings by which hyper's wait for an answer is known from its wait for the next ping.
pub(super) const WHEN_DUE: Duration = Duration::from_secs(24 * 60 * 60);

impl Lately {
    /// Decides about pings by what is `seen`, where that is given.
    pub(super) fn new(seen: Option<Arc<Seen>>) -> Self {
        let pulse = seen.map(|seen| (Mutex::default(), seen));
        Self(Arc::new(Looked { base: clock::now(), at: AtomicU64::new(0), pulse }))
    }

    /// The connection is looked at again.
    fn forget(&self) {
        self.0.at.store(0, Ordering::Relaxed);
    }

    /// The time when the connection was looked at last.
    fn looked_at(&self) -> Instant {
        let Looked { base, at, .. } = &*self.0;
        let nanos = match at.load(Ordering::Relaxed) {
            0 => {
                let nanos = clock::nanos(*base, clock::now()).max(1);
                at.store(nanos, Ordering::Relaxed);
                nanos
            }
            known => known,
        };
        *base + Duration::from_nanos(nanos)
    }

    fn beat(&self, pinged: bool) -> Pin<Box<dyn Sleep>> {
        Box::pin(Beat { lately: self.clone(), pinged, is_late: false, timer: clock::Timer::default() })
    }
}

impl Timer for Lately {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        match &self.0.pulse {
            Some(_) => self.beat(false),
            None => TokioTimer::new().sleep(duration),
        }
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        match &self.0.pulse {
            Some(_) => self.beat(false),
            None => TokioTimer::new().sleep_until(deadline),
        }
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: std::time::Instant) {
        let Some((pulse, _)) = &self.0.pulse else { return TokioTimer::new().reset(sleep, deadline) };
        let now = self.looked_at();
        let pinged = deadline > now.into_std() + WHEN_DUE / 2;
        if pinged {
            lock(pulse).pinged(now);
        }
        *sleep = self.beat(pinged);
    }

    fn now(&self) -> std::time::Instant {
        self.looked_at().into_std()
    }
}

/// hyper's wait for the next ping, or for the answer to one.
struct Beat {
    lately: Lately,
    /// True if a ping was sent and is not answered.
    pinged: bool,
    /// True if it was time to give up when it was last asked.
    is_late: bool,
    timer: clock::Timer,
}

impl Sleep for Beat {}

impl Beat {
    /// When it is over, as far as is known; `None` where it is not.
    fn ends_at(&self, now: Instant) -> Option<Instant> {
        let (pulse, seen) = self.lately.0.pulse.as_ref()?;
        let (mut pulse, passed) = (lock(pulse), seen.passed());
        if self.pinged {
            return Some(pulse.give_up_at(&passed));
        }
        let at = pulse.ping_at(&passed, now);
        if at.is_some_and(|at| at <= now) {
            pulse.note_due(now);
        }
        at
    }
}

impl Future for Beat {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.lately.looked_at();
        let end = self.ends_at(now);
        let was_late = std::mem::take(&mut self.is_late);
        if end.is_some_and(|end| end <= now) {
            if !self.pinged || was_late {
                return Poll::Ready(());
            }
            // hyper asks before it reads. What has come in the meantime counts.
            self.is_late = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // hyper asks before it writes: a request that leaves right after this is thought of in time.
        let look = now + SILENCE;
        if self.timer.poll_until(cx, end.map_or(look, |end| end.min(look))).is_ready() {
            // It is later than when the connection was looked at.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
