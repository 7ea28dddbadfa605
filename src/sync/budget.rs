//! A task's budget: tokio lets a task yield once it has used its channels and sockets 128 times in one turn
//! (`tokio::task::coop`).
//!
//! A call takes its response, and the first frame of the body, without waiting for the budget: both have come. Of 1,000 calls of one task
//! whose responses are there, all but 128 would be polled in vain, turn after turn. What a call takes it spends all the same, and the
//! next call waits for a turn if nothing is left, so that a task of calls whose responses are always there yields as well. The frames
//! after the first wait for the budget.

use std::task::{Context, Poll};

use tokio::task::coop::{has_budget_remaining, poll_proceed, unconstrained};

/// Returns `future` so that it goes on without a budget. What it waits for is [spent](spend) when it has come.
pub(crate) fn free_of<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    unconstrained(future)
}

/// Spends the budget for something that has been taken, if any is left.
#[inline]
pub(crate) fn spend(cx: &mut Context<'_>) {
    if is_left()
        && let Poll::Ready(spent) = poll_proceed(cx)
    {
        spent.made_progress();
    }
}

/// Returns true if something of the budget is left.
pub(crate) fn is_left() -> bool {
    has_budget_remaining()
}

/// Ready if something of the budget is left. Pending until the task's next turn otherwise.
#[inline]
pub(crate) fn poll_left(cx: &mut Context<'_>) -> Poll<()> {
    if is_left() { Poll::Ready(()) } else { poll_proceed(cx).map(drop) }
}

/// Waits for the task's next turn if nothing of the budget is left. Returns true if it has waited.
#[inline]
pub(crate) async fn yield_if_spent() -> bool {
    let is_spent = !is_left();
    if is_spent {
        tokio::task::yield_now().await;
    }
    is_spent
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// Spends the budget of this turn and returns how often that went.
    fn spend_all(cx: &mut Context<'_>) -> usize {
        std::iter::from_fn(|| poll_left(cx).is_ready().then(|| spend(cx))).count()
    }

    #[tokio::test]
    async fn what_is_taken_without_a_budget_is_spent_as_far_as_there_is_one() {
        let whole = poll_fn(|cx| Poll::Ready(spend_all(cx))).await;
        tokio::task::yield_now().await;
        poll_fn(|cx| {
            spend(cx);
            assert_eq!(spend_all(cx), whole - 1);
            spend(cx);
            let (sender, receiver) = tokio::sync::oneshot::channel();
            sender.send(()).unwrap();
            let mut receiver = pin!(free_of(receiver));
            assert!(receiver.as_mut().poll(cx).is_ready(), "it takes what has come");
            Poll::Ready(())
        })
        .await;
        assert!(yield_if_spent().await, "a call that begins now waits");
        assert!(!yield_if_spent().await, "the next turn has a budget of its own");
    }

    #[test]
    fn outside_of_a_runtime_the_budget_is_never_spent() {
        let mut cx = Context::from_waker(Waker::noop());
        assert!((0..1_000).all(|_| {
            spend(&mut cx);
            poll_left(&mut cx).is_ready()
        }));
    }
}
