//! Time limits of calls, and the timer that all calls of a client share on a runtime.
//!
//! Most calls are over long before their deadline. So a deadline costs an entry in a list, and one timer per runtime
//! watches the list.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use tokio::runtime::{self, Handle};

use crate::clock::{Instant, Timed, TimerTask, now};
use crate::sync::lock_quick;

/// The time limits for the parts of a call; `None` is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::client) struct Timeouts {
    pub(in crate::client) total: Option<Duration>,
    pub(in crate::client) queue: Option<Duration>,
    pub(in crate::client) connect: Option<Duration>,
    pub(in crate::client) headers: Option<Duration>,
    pub(in crate::client) body: Option<MinSpeed>,
}

impl Timeouts {
    /// Returns true if there is any limit.
    pub(in crate::client) fn is_any_set(&self) -> bool {
        let Self { total, queue, connect, headers, body } = self;
        [total, queue, connect, headers].into_iter().any(Option::is_some) || body.is_some()
    }

    /// Fills limits that are not set with those of `defaults`.
    pub(in crate::client) fn or(self, defaults: &Self) -> Self {
        Self {
            total: self.total.or(defaults.total),
            queue: self.queue.or(defaults.queue),
            connect: self.connect.or(defaults.connect),
            headers: self.headers.or(defaults.headers),
            body: self.body.or(defaults.body),
        }
    }
}

/// The time by which a call has to be over, response body included.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct Deadline {
    pub(in crate::client) at: Instant,
    /// The timeout from which the deadline was computed, for errors.
    pub(in crate::client) limit: Duration,
}

/// The default limit for headers, and for pauses of a body that is no stream of events. The same as in undici: slow APIs work, and
/// nothing hangs forever.
pub(in crate::client) const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);

/// The time limits for reading a response's body.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct BodyLimits {
    /// The deadline of the call.
    pub(in crate::client) deadline: Option<Deadline>,
    /// The lowest speed at which the body may come.
    pub(in crate::client) least: MinSpeed,
}

/// The lowest speed of a body: so many bytes within each time of this length, which begins anew when they have passed.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) struct MinSpeed {
    pub(in crate::client) bytes: u64,
    pub(in crate::client) over: Duration,
}

impl MinSpeed {
    /// Returns the limit for silence: any byte within this time.
    pub(in crate::client) const fn idle(over: Duration) -> Self {
        Self { bytes: 1, over }
    }

    /// Returns the time from which on the speed is measured, with the bytes by then. It is that of the last piece of `progress` if the
    /// speed was reached, and otherwise as it was.
    pub(in crate::client) fn measured_from(
        self,
        reached: (Instant, u64),
        now: Instant,
        progress: (Instant, u64),
    ) -> (Instant, u64) {
        // While a 100 (Continue) is waited for, the time of the progress is to come.
        let is_reached = progress.0 > now || progress.1 - reached.1 >= self.bytes;
        if is_reached { progress } else { reached }
    }

    /// Returns what is missing of `what` after the time, as a clause of an error message.
    pub(in crate::client) fn missing(self, what: &str) -> String {
        match self.bytes {
            1 => format!("nothing more of the {what}"),
            bytes => format!("too little of the {what}: fewer than {bytes} bytes"),
        }
    }
}

/// Returns true if content of this type is a stream of events, which are sent when something happens: the default limit for pauses is
/// not for these.
pub(in crate::client) fn is_event_stream(content_type: &HeaderValue) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    // Most types are shorter, and are not compared.
    let Some((essence, rest)) = content_type.as_bytes().split_at_checked(EVENT_STREAM.len()) else { return false };
    essence.eq_ignore_ascii_case(EVENT_STREAM) && rest.trim_ascii_start().first().is_none_or(|next| *next == b';')
}

/// The deadlines of a client's calls. Each runtime has a list and a timer of its own, because another runtime may not
/// be driven.
#[derive(Default)]
pub(in crate::client) struct Deadlines {
    /// The list of the first runtime that was seen. Mostly it is the only one, and it is found without a lock.
    first: OnceLock<(runtime::Id, Arc<RuntimeDeadlines>)>,
    others: Mutex<Vec<(runtime::Id, Arc<RuntimeDeadlines>)>>,
}

/// The most lists of other runtimes that are kept before those without calls are removed.
const MAX_OTHER_RUNTIMES: usize = 8;

impl Deadlines {
    /// Runs `future` until `deadline`. Returns `None` if the deadline came first. The future has to be pinned by the
    /// caller. Outside of a runtime there is no timer, and so no limit.
    // Not async: each future around another one costs a call twice.
    pub(in crate::client) fn before<F: Future + Unpin>(&self, deadline: Option<Instant>, future: F) -> Limited<'_, F> {
        let limit = deadline.and_then(|deadline| self.limit(deadline));
        Limited { future, limit, key: None }
    }

    fn limit(&self, deadline: Instant) -> Option<WatchedDeadline<'_>> {
        let runtime = Handle::try_current().ok()?.id();
        let (first, list) = self.first.get_or_init(|| (runtime, Arc::default()));
        let list = if *first == runtime { DeadlineList::First(list) } else { DeadlineList::Other(self.other(runtime)) };
        Some(WatchedDeadline { deadline, list })
    }

    /// Returns the list of a runtime that is not the first one.
    fn other(&self, runtime: runtime::Id) -> Arc<RuntimeDeadlines> {
        let mut others = lock_quick(&self.others);
        if let Some((_, known)) = others.iter().find(|(id, _)| *id == runtime) {
            return known.clone();
        }
        if others.len() >= MAX_OTHER_RUNTIMES {
            // A process rarely has so many runtimes at a time: most of these are gone.
            others.retain(|(_, known)| Arc::strong_count(known) > 1);
        }
        let new = Arc::<RuntimeDeadlines>::default();
        others.push((runtime, new.clone()));
        new
    }
}

/// The calls on one runtime that have a deadline, and the timer for them.
#[derive(Default)]
struct RuntimeDeadlines {
    waiting: Mutex<WaitingCalls>,
    timer_task: TimerTask,
}

/// The calls that wait. They are not kept in order: the timer looks at all of them, which is cheaper, because it goes
/// off once for hundreds or thousands of calls.
type WaitingCalls = Slab<WaitingCall>;

struct WaitingCall {
    deadline: Instant,
    waker: Waker,
}

impl RuntimeDeadlines {
    /// Adds a call, and returns its key.
    fn add(&self, deadline: Instant, waker: &Waker) -> usize {
        let call = WaitingCall { deadline, waker: waker.clone() };
        self.lock().insert(call)
    }

    /// Updates the waker of a call, which another task may have polled this time.
    fn update_waker(&self, key: usize, waker: &Waker) {
        self.lock()[key].waker.clone_from(waker);
    }

    fn lock(&self) -> MutexGuard<'_, WaitingCalls> {
        lock_quick(&self.waiting)
    }
}

impl Timed for RuntimeDeadlines {
    fn timer_task(&self) -> &TimerTask {
        &self.timer_task
    }

    /// Wakes the calls whose deadline has come, and returns the next deadline.
    fn handle_timeout(self: Arc<Self>, now: Instant) -> Option<Instant> {
        let mut due = Vec::new();
        let mut next = None::<Instant>;
        for (_, call) in self.lock().iter() {
            if call.deadline <= now {
                due.push(call.waker.clone());
            } else {
                next = Some(next.map_or(call.deadline, |next| next.min(call.deadline)));
            }
        }
        due.into_iter().for_each(Waker::wake);
        next
    }
}

/// The list of a runtime: borrowed if it is the first one, counted otherwise.
enum DeadlineList<'a> {
    First(&'a Arc<RuntimeDeadlines>),
    Other(Arc<RuntimeDeadlines>),
}

impl Deref for DeadlineList<'_> {
    type Target = Arc<RuntimeDeadlines>;

    fn deref(&self) -> &Arc<RuntimeDeadlines> {
        match self {
            Self::First(list) => list,
            Self::Other(list) => list,
        }
    }
}

/// A future that may have a deadline.
pub(in crate::client) struct Limited<'a, F> {
    future: F,
    limit: Option<WatchedDeadline<'a>>,
    /// The future's key in the list, from its first `Pending` on.
    key: Option<usize>,
}

/// A deadline, and the list that watches it.
struct WatchedDeadline<'a> {
    deadline: Instant,
    list: DeadlineList<'a>,
}

impl<F: Future + Unpin> Future for Limited<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { future, limit, key } = &mut *self;
        if let Poll::Ready(output) = Pin::new(future).poll(cx) {
            return Poll::Ready(Some(output));
        }
        let Some(WatchedDeadline { deadline, list }) = limit else { return Poll::Pending };
        match *key {
            None => {
                *key = Some(list.add(*deadline, cx.waker()));
                TimerTask::set(list, Some(*deadline));
            }
            Some(key) => {
                list.update_waker(key, cx.waker());
                // Read after the waker is updated: the timer may have woken the old one just before.
                let now = now();
                if *deadline <= now {
                    return Poll::Ready(None);
                }
                // The timer's task may have gone with its runtime, and with it the deadlines of all calls. Setting the
                // timer to the current time has the next task look at all of them.
                TimerTask::ensure_running(list, Some(now));
            }
        }
        Poll::Pending
    }
}

impl<F> Drop for Limited<'_, F> {
    fn drop(&mut self) {
        if let (Some(key), Some(WatchedDeadline { list, .. })) = (self.key, &self.limit) {
            let call = list.lock().remove(key);
            // Dropped here, after the lock: a waker may run code of its task.
            drop(call);
        }
    }
}

#[cfg(test)]
#[path = "deadlines_schedules.rs"]
mod schedules;

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    #[test]
    fn content_types_of_streams_of_events() {
        for yes in ["text/event-stream", "Text/Event-Stream; charset=utf-8", "text/event-stream ;x"] {
            assert!(is_event_stream(&HeaderValue::from_static(yes)), "{yes}");
        }
        for no in ["", "text/event-streams", "text/html", "text/html; text/event-stream", "application/json"] {
            assert!(!is_event_stream(&HeaderValue::from_static(no)), "{no}");
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_ends_at_its_deadline_or_before() {
        let deadlines = Deadlines::default();
        let start = now();
        let run = async |takes: u64, limit: u64| {
            let future = pin!(async { sleep(ms(takes)).await });
            let done = deadlines.before(Some(start + ms(limit)), future).await.is_some();
            ((now() - start).as_millis() as u64, done)
        };
        let all = join_all((0..1_000).map(|number| run(number * 7 % 501, number * 13 % 499))).await;
        for (number, (at, done)) in all.into_iter().enumerate() {
            let takes = number as u64 * 7 % 501;
            let limit = number as u64 * 13 % 499;
            assert!(at == takes.min(limit) && (done || takes >= limit) && (!done || takes <= limit), "{number}");
        }
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 0);
        assert_eq!(run(1_000, 1_000).await.0, 1_000);
        assert!(deadlines.before(None, pin!(async { sleep(ms(5)).await })).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_future_leaves_the_list_and_another_may_change_its_task() {
        let deadlines = Deadlines::default();
        let start = now();
        let mut future = Box::pin(async {
            let never = pin!(std::future::pending::<()>());
            deadlines.before(Some(start + ms(50)), never).await
        });
        assert!(futures_util::poll!(future.as_mut()).is_pending());
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 1);
        // From now on another task polls it.
        let ended = futures_util::future::join(sleep(ms(10)), future).await.1;
        assert_eq!((ended, now() - start), (None, ms(50)));
        let mut future = Box::pin(async {
            let never = pin!(std::future::pending::<()>());
            deadlines.before(Some(start + ms(100)), never).await
        });
        assert!(futures_util::poll!(future.as_mut()).is_pending());
        drop(future);
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 0);
    }

    #[test]
    fn a_deadline_holds_though_another_runtime_is_not_driven_or_gone() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let deadlines = Arc::new(Deadlines::default());
        let first = runtime();
        let second = runtime();
        let limit = |after: u64| {
            let deadlines = deadlines.clone();
            async move {
                let never = pin!(std::future::pending::<()>());
                deadlines.before(Some(now() + ms(after)), never).await
            }
        };
        let kept = first.spawn(limit(10));
        first.block_on(tokio::task::yield_now());
        // A timeout around it would poll it once more at its end, and it would notice the time by itself.
        let expired = async |limited: Pin<&mut dyn Future<Output = Option<()>>>| {
            tokio::select! {
                biased;
                () = sleep(ms(10_000)) => panic!("the deadline is forgotten"),
                expired = limited => expired,
            }
        };
        let in_time = async |after| expired(pin!(limit(after))).await;
        assert_eq!(second.block_on(in_time(30)), None, "the first runtime is not driven");
        drop(first);
        assert_eq!(second.block_on(in_time(30)), None, "the first runtime is gone");
        drop((kept, second));
        // Of two futures that changed their runtime, the one with the later deadline is polled first.
        let third = runtime();
        let fourth = runtime();
        let mut late = Box::pin(limit(60_000));
        let mut soon = Box::pin(limit(30));
        let begun = third.block_on(async { ((&mut late).now_or_never(), (&mut soon).now_or_never()) });
        assert_eq!(begun, (None, None));
        drop(third);
        let soon = fourth.block_on(async {
            assert_eq!((&mut late).now_or_never(), None);
            expired(soon.as_mut()).await
        });
        assert_eq!(soon, None, "the earlier deadline holds though the later one was polled first");
        for _ in 0..3 * MAX_OTHER_RUNTIMES {
            assert_eq!(runtime().block_on(in_time(1)), None);
        }
        assert!(deadlines.others.lock().len() <= MAX_OTHER_RUNTIMES, "lists of runtimes that are gone are removed");
    }
}
