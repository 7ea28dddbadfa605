//! What a request holds: a ticket while it waits, a lease once it has a connection. Dropping either is safe.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::state::{Held, TicketId};
use super::{Delivery, Dial, LeaseError, Shared};
use crate::clock::now;
use crate::trace::DialTrace;

/// A connection for one request. Dropped unused or [given back](Self::give_back) it serves the next request; dropped
/// in the middle of an exchange it is closed.
pub(crate) struct Lease<D: Dial> {
    shared: Arc<Shared<D>>,
    held: Option<Held>,
    conn: Option<D::Conn>,
    fresh: bool,
    used: bool,
}

impl<D: Dial> Lease<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, held: Held, conn: D::Conn, fresh: bool) -> Self {
        Self { shared, held: Some(held), conn: Some(conn), fresh, used: false }
    }

    /// Whether the connection comes right from its dial, so that its peer cannot have closed it for being idle.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    pub(crate) fn conn(&self) -> &D::Conn {
        self.conn.as_ref().expect("a lease has its connection")
    }

    /// The connection, to be used: from now on only [`give_back`](Self::give_back) keeps it.
    pub(crate) fn use_conn(&mut self) -> &mut D::Conn {
        self.used = true;
        self.conn.as_mut().expect("a lease has its connection")
    }

    /// The exchange is over and the connection is ready for the next one.
    pub(crate) fn give_back(mut self) {
        self.used = false;
    }
}

impl<D: Dial> Drop for Lease<D> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let conn = self.conn.take().filter(|_| !self.used);
        self.shared.released(held, conn);
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
            drop(self.shared.step(|state| state.abandon(id)));
        }
    }
}

impl<D: Dial> Shared<D> {
    fn released(self: &Arc<Self>, held: Held, conn: Option<D::Conn>) {
        let conn = conn.map(super::Pooled::warm);
        self.step(|state| state.release(now(), held, conn));
    }
}
