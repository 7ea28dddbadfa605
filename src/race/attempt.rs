//! The attempts of a race that are under way.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use smallvec::SmallVec;

use crate::clock::Instant;
use crate::trace::{DialTrace, Event};

/// An attempt to connect to an address. Dropped before it has ended, it reports that it was cancelled.
pub(super) struct Attempt<'a, F> {
    connecting: F,
    pub(super) address: SocketAddr,
    pub(super) started: Instant,
    trace: &'a DialTrace,
    has_ended: bool,
}

/// The attempts under way, in the order in which they started. There are few of them, so each is polled whenever one may have
/// ended.
pub(super) type Attempts<'a, F> = SmallVec<[Attempt<'a, F>; 1]>;

impl<'a, F> Attempt<'a, F> {
    /// Reports the start of an attempt, and returns it. `connect` begins to connect.
    pub(super) fn start(
        now: Instant,
        address: SocketAddr,
        connect: impl FnOnce(SocketAddr) -> F,
        trace: &'a DialTrace,
    ) -> Self {
        trace.emit_at(now, Event::AttemptStart { address });
        Self { connecting: connect(address), address, started: now, trace, has_ended: false }
    }
}

/// Polls all attempts, and removes and returns the first that has ended.
pub(super) fn poll_ended<'a, F: Future + Unpin>(
    attempts: &mut Attempts<'a, F>,
    cx: &mut Context<'_>,
) -> Poll<(Attempt<'a, F>, F::Output)> {
    for (index, attempt) in attempts.iter_mut().enumerate() {
        if let Poll::Ready(output) = Pin::new(&mut attempt.connecting).poll(cx) {
            attempt.has_ended = true;
            return Poll::Ready((attempts.remove(index), output));
        }
    }
    Poll::Pending
}

impl<F> Drop for Attempt<'_, F> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.trace.emit(Event::AttemptCancelled { address: self.address });
        }
    }
}
