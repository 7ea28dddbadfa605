//! What a request holds: a ticket while it waits, a lease once it has a connection. Dropping either is safe.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use super::state::{Ended, Grant, Held, TicketId};
use super::{Delivery, Dial, LeaseError, Pooled, Shared};
use crate::clock::{Instant, now};
use crate::trace::{self, CloseCause, DialTrace, ObserverHandle};

/// A seat on a connection, for one request. Dropped unused or [given back](Self::give_back) it serves the next request.
/// Dropped in the middle of an exchange it does so only where the connection carries others, too.
pub(crate) struct Lease<D: Dial> {
    shared: Arc<Shared<D>>,
    held: Option<Held>,
    conn: D::Conn,
    fresh: bool,
    requests: u64,
    idle: Duration,
    freed: bool,
    ended: Ended,
    /// Who has been told of it, beside the client's observers, and is told of its end.
    told: Option<Option<ObserverHandle>>,
}

impl<D: Dial> Lease<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, grant: Grant<Pooled<D::Conn>>) -> Self {
        let Grant { held, conn: Pooled { conn, born }, requests, idle, freed } = grant;
        let ended = Ended::Unused;
        Self { shared, held: Some(held), conn, fresh: born.is_some(), requests, idle, freed, ended, told: None }
    }

    /// Whether the connection comes right from its dial, so that its peer cannot have closed it for being idle.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// How many requests the connection carried before.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// For how long nobody had used the connection.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Whether somebody else gave the connection back while one was being opened for this request.
    pub(crate) fn is_freed(&self) -> bool {
        self.freed
    }

    pub(crate) fn conn(&self) -> &D::Conn {
        &self.conn
    }

    /// A call has it, which observers are told of, its own among them; they are told when the lease ends.
    pub(crate) fn told(&mut self, own: Option<&ObserverHandle>) {
        self.told = Some(own.cloned());
    }

    /// The connection is used, and serves the next request however this one ends.
    pub(crate) fn share(&mut self) {
        self.ended = Ended::Kept { keep_alive: None };
    }

    /// From now on only [`give_back`](Self::give_back) keeps the connection.
    pub(crate) fn retire(&mut self, cause: CloseCause) {
        self.ended = Ended::Retire(cause);
    }

    /// The peer closed the connection, which it had kept, under the request.
    pub(crate) fn cut(&mut self) {
        self.ended = Ended::Cut { idle: self.idle };
    }

    /// The exchange is over, and the connection serves no other one.
    pub(crate) fn end(mut self, cause: CloseCause) {
        self.retire(cause);
    }

    /// The exchange is over and the connection is ready for the next one; the server may have said for how long it keeps it.
    pub(crate) fn give_back(self, keep_alive: Option<Duration>) {
        self.give_back_at(now(), keep_alive);
    }

    /// The same for who knows what time it is.
    pub(crate) fn give_back_at(mut self, now: Instant, keep_alive: Option<Duration>) {
        self.ended = Ended::Kept { keep_alive };
        self.release(now);
    }

    fn release(&mut self, now: Instant) {
        let Some(held) = self.held.take() else { return };
        let kept = matches!(self.ended, Ended::Kept { .. } | Ended::Unused);
        if let Some(own) = &self.told {
            trace::connection_released(&self.shared.hooks, own.as_ref(), held.connection(), kept);
        }
        self.shared.step(|state| state.release(now, held, self.ended));
    }
}

impl<D: Dial> Drop for Lease<D> {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.release(now());
        }
    }
}

/// A place in a host's queue; a future of the connection. Dropping it leaves the queue, and what came too late for
/// it goes to the next in line.
pub(crate) struct Ticket<D: Dial> {
    shared: Arc<Shared<D>>,
    id: TicketId,
    delivery: oneshot::Receiver<Delivery<D>>,
    over: bool,
}

impl<D: Dial> Ticket<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, id: TicketId, delivery: oneshot::Receiver<Delivery<D>>) -> Self {
        Self { shared, id, delivery, over: false }
    }

    /// What the dial that is under way for this request has done so far.
    pub(crate) fn dial(&self) -> Option<Arc<DialTrace>> {
        self.shared.dial_of(self.id)
    }
}

impl<D: Dial> Future for Ticket<D> {
    type Output = Delivery<D>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivery<D>> {
        let delivery = ready!(Pin::new(&mut self.delivery).poll(cx));
        self.over = true;
        Poll::Ready(delivery.unwrap_or_else(|_| Delivery { lease: Err(LeaseError::Lost), dial: None }))
    }
}

impl<D: Dial> Drop for Ticket<D> {
    fn drop(&mut self) {
        if !self.over {
            let id = self.id;
            drop(self.shared.step(|state| state.abandon(now(), id)));
        }
    }
}
