//! How late the runtime's timers fire, and how long its threads wait for a processor: what a busy machine adds to every deadline.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// The time between two measurements of one task.
const EVERY: Duration = Duration::from_millis(5);
/// The time over which the worst lateness is kept in one number.
const SPAN: Duration = Duration::from_millis(50);
/// Four hours.
const SPANS: usize = 4 * 3600 * 20;
/// The tasks that measure, so that one on each of the runtime's threads is probable.
const TASKS: usize = 4;
/// The readings that each thread keeps.
const READINGS: usize = 8_192;

thread_local! {
    /// The times for which the thread had waited for a processor by then.
    static WAITS: RefCell<VecDeque<(Instant, Duration)>> = const { RefCell::new(VecDeque::new()) };
}

/// Returns the time for which the thread has waited for a processor although it could run, where the system tells it.
fn waited_for_processor() -> Option<Duration> {
    let numbers = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    numbers.split(' ').nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Notes how long the thread has waited for a processor.
fn note_wait() {
    let Some(waited) = waited_for_processor() else { return };
    WAITS.with_borrow_mut(|waits| {
        if waits.len() == READINGS {
            waits.pop_front();
        }
        waits.push_back((Instant::now(), waited));
    });
}

/// Returns the time for which the thread has waited for a processor since its last reading before `since`.
fn waited_since(since: Instant) -> Duration {
    WAITS.with_borrow(|waits| {
        let before = waits.iter().rev().find(|(at, _)| *at <= since).or(waits.front());
        let now = waited_for_processor();
        before.zip(now).map_or(Duration::ZERO, |((_, before), now)| now.saturating_sub(*before))
    })
}

/// The measurements. They end when it is dropped.
pub(crate) struct Lateness {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

struct Shared {
    start: Instant,
    /// The worst lateness in each span, in microseconds.
    worst: Vec<AtomicU32>,
    /// The times for which the tasks sleep now, in microseconds since the start.
    awaited: [AtomicU64; TASKS],
}

impl Lateness {
    /// Begins to measure on the current runtime.
    pub(crate) fn measure() -> Self {
        let worst = std::iter::repeat_with(|| AtomicU32::new(0)).take(SPANS).collect();
        let awaited = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        let shared = Arc::new(Shared { start: Instant::now(), worst, awaited });
        let task = |number| {
            let shared = shared.clone();
            tokio::spawn(async move { shared.run(number).await }).abort_handle()
        };
        let tasks = (0..TASKS).map(task).collect();
        Self { shared, tasks }
    }

    /// Returns the worst lateness of a timer that should have fired, or did fire, since `since`, or the time for which the thread that
    /// asks has waited for a processor since then: a call that it was to run waited with it, where no other thread noticed.
    pub(crate) fn worst_since(&self, since: Instant) -> Duration {
        let now = Instant::now();
        let Shared { start, worst, awaited } = &*self.shared;
        let spans = span(since - *start)..=span(now - *start);
        let past = worst[spans].iter().map(|worst| worst.load(Ordering::Relaxed)).max().unwrap_or(0);
        let awaited = awaited.iter().map(|at| *start + Duration::from_micros(at.load(Ordering::Relaxed).min(1 << 50)));
        let present = awaited.map(|at| now.saturating_duration_since(at)).max().unwrap_or_default();
        present.max(Duration::from_micros(past.into())).max(waited_since(since))
    }
}

impl Shared {
    async fn run(&self, number: usize) {
        loop {
            let at = Instant::now() + EVERY;
            self.awaited[number].store((at - self.start).as_micros() as u64, Ordering::Relaxed);
            // A client has one timer for all its deadlines, whose task wakes the calls: two tasks, one after the other.
            let _ = tokio::spawn(tokio::time::sleep_until(at.into())).await;
            note_wait();
            let now = Instant::now();
            let late = now.saturating_duration_since(at).as_micros() as u32;
            for worst in &self.worst[span(at - self.start)..=span(now - self.start)] {
                worst.fetch_max(late, Ordering::Relaxed);
            }
        }
    }
}

fn span(time: Duration) -> usize {
    ((time.as_nanos() / SPAN.as_nanos()) as usize).min(SPANS - 1)
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_without_a_processor_has_waited() {
    let start = Instant::now();
    note_wait();
    let mut busy: Vec<_> = Vec::new();
    // More threads than processors: each of them has to wait.
    for _ in 0..2 * std::thread::available_parallelism().map_or(64, usize::from) {
        busy.push(std::thread::spawn(move || {
            note_wait();
            while waited_since(start).is_zero() {
                assert!(start.elapsed() < Duration::from_secs(60), "no thread waits");
            }
        }));
    }
    busy.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_blocked_runtime_is_late() {
    crate::alone(async {
        let lateness = Lateness::measure();
        let start = Instant::now();
        // Both threads of the runtime.
        for _ in 0..2 {
            tokio::spawn(async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                std::thread::sleep(Duration::from_millis(200));
            });
        }
        while lateness.worst_since(start) < Duration::from_millis(100) {
            assert!(start.elapsed() < Duration::from_secs(20), "the blocked runtime is not seen");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}
