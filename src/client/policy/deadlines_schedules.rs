//! The list of deadlines and its timer under many thread schedules: no call outlives its deadline, on whichever thread it is
//! polled.

use std::pin::pin;

use futures_util::FutureExt;
use shuttle::future::block_on;
use shuttle::thread;

use super::*;
use crate::sync::{explore, rounds};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A call that never ends by itself. Returns true if it ended at its deadline or after it.
async fn never(deadlines: Arc<Deadlines>, at: Instant) -> bool {
    let never = pin!(std::future::pending::<()>());
    deadlines.before(Some(at), never).await.is_none() && now() >= at
}

#[test]
fn a_call_ends_at_its_deadline_though_another_thread_goes_on_with_it() {
    explore(1_500, || {
        let deadlines = Arc::<Deadlines>::default();
        let mut call = Box::pin(never(deadlines.clone(), now() + ms(3)));
        assert_eq!((&mut call).now_or_never(), None);
        // The timer may wake the waker of before while the other thread sets its own.
        let other = thread::spawn(move || block_on(call));
        assert!(other.join().unwrap());
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 0);
    });
}

#[test]
fn calls_that_begin_and_end_while_the_timer_starts_and_stops_keep_their_deadlines() {
    explore(600, || {
        let deadlines = Arc::<Deadlines>::default();
        let calls: Vec<_> = [vec![1, 6], vec![4], vec![2, 1]]
            .into_iter()
            .map(|limits| {
                let deadlines = deadlines.clone();
                thread::spawn(move || {
                    for (number, limit) in limits.into_iter().enumerate() {
                        let call = never(deadlines.clone(), now() + ms(limit));
                        if number == 0 {
                            // Begun and dropped.
                            let mut dropped = Box::pin(never(deadlines.clone(), now() + ms(limit)));
                            assert_eq!((&mut dropped).now_or_never(), None);
                        }
                        assert!(block_on(call), "ended before its deadline");
                        rounds(1);
                    }
                })
            })
            .collect();
        calls.into_iter().for_each(|call| call.join().unwrap());
        assert_eq!(deadlines.first.get().unwrap().1.lock().len(), 0);
    });
}
