//! Time limits of calls: one timer for all of a client's on a runtime, because most calls are over long before theirs.

use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use slab::Slab;
use tokio::runtime::{self, Handle};

use crate::clock::{Instant, Timed, TimerTask, now};

/// The limits of a client's calls, on each runtime by themselves: nobody can rely on another one's being driven.
#[derive(Default)]
pub(super) struct Deadlines {
    /// Mostly there is one runtime, which is found without a lock.
    first: OnceLock<(runtime::Id, Arc<Shared>)>,
    others: Mutex<Vec<(runtime::Id, Arc<Shared>)>>,
}

#[derive(Default)]
struct Shared {
    limits: Mutex<Limits>,
    alarm: TimerTask,
}

/// Those that wait. To look at all of them when one may be due is cheaper than to keep them in order: that happens once for
/// hundreds of calls, or thousands.
type Limits = Slab<Waiting>;

struct Waiting {
    deadline: Instant,
    waker: Waker,
}

impl Deadlines {
    /// Runs `future` until `deadline`; `None` when the deadline came first. It has to be pinned by the caller. Outside of a runtime,
    /// which has the timers, there is no limit.
    pub(super) async fn before<F: Future + Unpin>(&self, deadline: Option<Instant>, future: F) -> Option<F::Output> {
        match deadline.and_then(|deadline| Some((deadline, Handle::try_current().ok()?.id()))) {
            Some((deadline, here)) => {
                let (first, those) = self.first.get_or_init(|| (here, Arc::default()));
                let all = if *first == here { Here::First(those) } else { Here::Other(self.other(here)) };
                Limited { future, deadline, key: None, all }.await
            }
            None => Some(future.await),
        }
    }
}

impl Deadlines {
    /// Those of a runtime that was not the first.
    fn other(&self, here: runtime::Id) -> Arc<Shared> {
        let mut all = self.others.lock();
        if let Some((_, known)) = all.iter().find(|(runtime, _)| *runtime == here) {
            return known.clone();
        }
        if all.len() >= MANY {
            // Most of them have gone by now.
            all.retain(|(_, known)| Arc::strong_count(known) > 1);
        }
        let new = Arc::<Shared>::default();
        all.push((here, new.clone()));
        new
    }
}

/// More runtimes than this a process rarely has at a time.
const MANY: usize = 8;

enum Here<'a> {
    First(&'a Arc<Shared>),
    Other(Arc<Shared>),
}

impl Deref for Here<'_> {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        match self {
            Self::First(all) => all,
            Self::Other(all) => all,
        }
    }
}

/// A future with a limit.
struct Limited<'a, F> {
    future: F,
    deadline: Instant,
    /// Once it waits.
    key: Option<usize>,
    all: Here<'a>,
}

impl<F: Future + Unpin> Future for Limited<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = Pin::new(&mut self.future).poll(cx) {
            return Poll::Ready(Some(output));
        }
        match self.key {
            None => {
                self.key = Some(self.all.wait(self.deadline, cx.waker()));
                TimerTask::set(&self.all, Some(self.deadline));
            }
            Some(key) => {
                self.all.wait_on(key, cx.waker());
                // After the waker is known: the time may have come in between.
                let now = now();
                if self.deadline <= now {
                    return Poll::Ready(None);
                }
                // Were its task gone, others' times would be forgotten, too: the next one looks at all of them.
                TimerTask::ensure_running(&self.all, Some(now));
            }
        }
        Poll::Pending
    }
}

impl<F> Drop for Limited<'_, F> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let gone = self.all.lock().remove(key);
            drop(gone);
        }
    }
}

impl Shared {
    fn wait(&self, deadline: Instant, waker: &Waker) -> usize {
        let waiting = Waiting { deadline, waker: waker.clone() };
        self.lock().insert(waiting)
    }

    /// It waits still, maybe in another task.
    fn wait_on(&self, key: usize, waker: &Waker) {
        self.lock()[key].waker.clone_from(waker);
    }

    fn lock(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock()
    }
}

impl Timed for Shared {
    fn timer_task(&self) -> &TimerTask {
        &self.alarm
    }

    fn handle_timeout(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let (mut due, mut next) = (Vec::new(), None::<Instant>);
        for (_, waiting) in self.lock().iter() {
            match waiting.deadline <= now {
                true => due.push(waiting.waker.clone()),
                false => next = Some(next.map_or(waiting.deadline, |next| next.min(waiting.deadline))),
            }
        }
        due.into_iter().for_each(Waker::wake);
        next
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn each_ends_at_its_limit_or_before() {
        let deadlines = Deadlines::default();
        let start = now();
        let run = async |takes: u64, limit: u64| {
            let future = pin!(async { sleep(ms(takes)).await });
            let done = deadlines.before(Some(start + ms(limit)), future).await.is_some();
            ((now() - start).as_millis() as u64, done)
        };
        let all = join_all((0..1_000).map(|number| run(number * 7 % 501, number * 13 % 499))).await;
        for (number, (at, done)) in all.into_iter().enumerate() {
            let (takes, limit) = (number as u64 * 7 % 501, number as u64 * 13 % 499);
            assert!(at == takes.min(limit) && (done || takes >= limit) && (!done || takes <= limit), "{number}");
        }
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 0);
        assert_eq!(run(1_000, 1_000).await.0, 1_000);
        assert!(deadlines.before(None, pin!(async { sleep(ms(5)).await })).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_dropped_is_forgotten_and_its_task_may_change() {
        let deadlines = Deadlines::default();
        let start = now();
        let mut future = Box::pin(async {
            let never = pin!(std::future::pending::<()>());
            deadlines.before(Some(start + ms(50)), never).await
        });
        assert!(futures_util::poll!(future.as_mut()).is_pending());
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 1);
        // Another task waits for it from now on.
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
    fn a_limit_is_kept_though_another_runtime_is_not_driven_or_gone() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (deadlines, first, second) = (Arc::new(Deadlines::default()), runtime(), runtime());
        let limit = |after: u64| {
            let deadlines = deadlines.clone();
            async move {
                let never = pin!(std::future::pending::<()>());
                deadlines.before(Some(now() + ms(after)), never).await
            }
        };
        let kept = first.spawn(limit(10));
        first.block_on(tokio::task::yield_now());
        // Not by a timeout around it: at the end of that it would be polled once more, and find out by itself.
        let told = async |limited: Pin<&mut dyn Future<Output = Option<()>>>| {
            tokio::select! {
                biased;
                () = sleep(ms(10_000)) => panic!("it is forgotten"),
                told = limited => told,
            }
        };
        let in_time = async |after| told(pin!(limit(after))).await;
        assert_eq!(second.block_on(in_time(30)), None, "the first one sleeps");
        drop(first);
        assert_eq!(second.block_on(in_time(30)), None, "the first one is gone");
        drop((kept, second));
        // Of two that have moved, the later one is polled first.
        let (third, fourth) = (runtime(), runtime());
        let (mut late, mut soon) = (Box::pin(limit(60_000)), Box::pin(limit(30)));
        let begun = third.block_on(async { ((&mut late).now_or_never(), (&mut soon).now_or_never()) });
        assert_eq!(begun, (None, None));
        drop(third);
        let soon = fourth.block_on(async {
            assert_eq!((&mut late).now_or_never(), None);
            told(soon.as_mut()).await
        });
        assert_eq!(soon, None, "the later one's is not the only time");
        for _ in 0..3 * MANY {
            assert_eq!(runtime().block_on(in_time(1)), None);
        }
        assert!(deadlines.others.lock().len() <= MANY, "what is gone is forgotten");
    }
}
