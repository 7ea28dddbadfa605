//! The objects that a request holds: a waiter while it is in the queue, a lease once it has a connection. Dropping either is safe.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;

use super::driver::{Answer, Delivered, Driver, FailedDial, PooledConn, WaitFailed};
use super::state::{AbandonCause, Expired, Grant, LeaseEnd, LeaseToken, Outcome, Queued, WaitFailure, WaiterId};
use crate::clock::{Instant, Timer, now};
use crate::pool::dialling::Dial;
use crate::sync;
use crate::trace::{self, CloseCause, DialTrace, Limit, ObserverHandle};

/// The answer to a request for a connection.
pub(crate) enum Checkout<D: Dial> {
    /// The request has its connection.
    Ready(Lease<D>),
    Wait(Waiter<D>, Queued),
    Refused(LeaseError<D::Error>),
}

/// The reason why a request got no connection.
#[derive(Debug)]
pub(crate) enum LeaseError<E> {
    /// A dial for the request failed, or those that began after it came did.
    Dial(E),
    /// The dial for the request was lost, because a runtime was shut down or something panicked.
    Lost,
    /// The request waited for the longest time that is allowed.
    WaitTimeout(Expired),
    /// The request may not wait, because too many others wait for this limit already, or because the pool drains.
    Refused(Limit),
    /// The connect timeout passed.
    ConnectTimeout(Expired),
}

/// The end of a request's wait, and the dial that belongs to it.
pub(crate) struct Delivery<D: Dial> {
    pub(crate) lease: Result<Lease<D>, LeaseError<D::Error>>,
    pub(crate) dial: Option<Arc<DialTrace>>,
    /// The time from which on the request has its connection, if it got one.
    pub(crate) at: Option<Instant>,
}

/// A stream of a connection, for one request.
///
/// If the lease is dropped unused, or [given back](Self::give_back), the connection serves the next request. If it is dropped in the
/// middle of an exchange, the connection goes on only if it carries other requests.
pub(crate) struct Lease<D: Dial> {
    driver: Arc<Driver<D>>,
    /// The right to the stream, until it is released.
    token: Option<LeaseToken>,
    conn: D::Conn,
    is_fresh: bool,
    requests: u64,
    idle: Option<Duration>,
    is_freed: bool,
    /// The end of the lease that is reported if the lease is dropped now.
    end: LeaseEnd,
    /// True once observers were told of the lease. They are told of its end as well.
    is_observed: bool,
    /// The call's own observer, if it has one and was told of the lease.
    own_observer: Option<Box<ObserverHandle>>,
}

impl<D: Dial> Lease<D> {
    pub(super) fn new(driver: Arc<Driver<D>>, grant: Grant<PooledConn<D::Conn>>) -> Self {
        let Grant { token, conn: PooledConn { conn, dial }, requests, idle, freed } = grant;
        Self {
            driver,
            token: Some(token),
            conn,
            is_fresh: dial.is_some(),
            requests,
            idle,
            is_freed: freed,
            end: LeaseEnd::Unused,
            is_observed: false,
            own_observer: None,
        }
    }

    /// Returns true if the connection comes right from its dial, so that its peer cannot have closed it for being idle.
    pub(crate) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// Returns the number of requests the connection carried before.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the time for which the connection had been idle; `None` if it carried other requests.
    pub(crate) fn idle(&self) -> Option<Duration> {
        self.idle
    }

    /// Returns true if another request gave the connection back while one was being opened for this request.
    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed
    }

    pub(crate) fn conn(&self) -> &D::Conn {
        &self.conn
    }

    /// Notes that observers were told of the lease, the call's `own` among them. They will be told of its end.
    pub(crate) fn mark_observed(&mut self, own: Option<&ObserverHandle>) {
        self.is_observed = true;
        self.own_observer = own.cloned().map(Box::new);
    }

    /// Notes that the connection is used, and serves the next request however this one ends.
    pub(crate) fn mark_shared(&mut self) {
        self.end = LeaseEnd::Kept { keep_alive: None };
    }

    /// Makes the connection close when the lease ends, unless it ends by [`give_back`](Self::give_back).
    pub(crate) fn retire(&mut self, cause: CloseCause) {
        self.end = LeaseEnd::Retire(cause);
    }

    /// Tells the pool for which cause the connection closes, if it does when the lease ends.
    ///
    /// Called before hyper's side of an unfinished exchange is dropped: hyper closes the socket then, maybe before the lease ends,
    /// and the pool would take that for a close by the peer.
    pub(crate) fn foresee_end(&self) {
        if let (Some(token), LeaseEnd::Retire(cause)) = (&self.token, self.end) {
            self.driver.step(|state| state.foresee_end(token, cause));
        }
    }

    /// Tells observers that the stream of another protocol, which the connection or its HTTP/2 stream had switched to, was dropped.
    pub(crate) fn announce_upgrade_end(&self, received: u64, sent: u64) {
        if let Some(token) = &self.token
            && self.is_observed
        {
            trace::upgrade_ended(&self.driver.hooks, self.own_observer.as_deref(), token.connection(), received, sent);
        }
    }

    /// Returns true if the result of the request is to be [reported](Self::report): requests are balanced over the host's addresses.
    #[inline]
    pub(crate) fn is_balanced(&self) -> bool {
        self.token.as_ref().is_some_and(LeaseToken::is_tracked)
    }

    /// Reports the result of the request, `latency` after it was sent, for the choice between the host's addresses.
    pub(crate) fn report(&mut self, now: Instant, latency: Duration, outcome: Outcome) {
        if let Some(token) = &mut self.token
            && token.is_tracked()
        {
            self.driver.step(|state| state.report(now, token, latency, outcome));
        }
    }

    /// Notes that the server closed the reused connection under the request.
    pub(crate) fn mark_cut(&mut self) {
        self.end = LeaseEnd::Cut { idle: self.idle.unwrap_or_default() };
    }

    /// Ends the lease. The connection serves no other request.
    pub(crate) fn end(mut self, cause: CloseCause) {
        self.retire(cause);
    }

    /// Ends the lease. The connection is ready for the next request. `keep_alive` is the server's `Keep-Alive: timeout`, if it sent
    /// one.
    pub(crate) fn give_back(mut self, keep_alive: Option<Duration>) {
        self.give_back_in_place(now(), keep_alive);
    }

    /// Like [`give_back`](Self::give_back), by reference and with the time already read. The lease is released then.
    pub(crate) fn give_back_in_place(&mut self, now: Instant, keep_alive: Option<Duration>) {
        self.end = LeaseEnd::Kept { keep_alive };
        self.release(now);
    }

    fn release(&mut self, now: Instant) {
        let Some(token) = self.token.take() else { return };
        if self.is_observed {
            let is_kept = matches!(self.end, LeaseEnd::Kept { .. } | LeaseEnd::Unused);
            trace::connection_released(&self.driver.hooks, self.own_observer.as_deref(), token.connection(), is_kept);
        }
        self.driver.step(|state| state.release(now, token, self.end));
    }
}

impl<D: Dial> Drop for Lease<D> {
    fn drop(&mut self) {
        if self.token.is_some() {
            self.release(now());
        }
    }
}

/// A request in a host's queue: a future of its connection. Dropping it leaves the queue, and a connection that came too late for it
/// goes to the next request.
pub(crate) struct Waiter<D: Dial> {
    driver: Arc<Driver<D>>,
    id: WaiterId,
    answer: oneshot::Receiver<Answer<D>>,
    is_answered: bool,
    /// The cause that is counted if the waiter is dropped now.
    abandon_cause: AbandonCause,
    /// The time of the next look for late timeouts, and the timer for it.
    look: (Option<Instant>, Timer),
}

/// The time between two looks for late timeouts, by a request that waits on another runtime than that of the pool's timer.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl<D: Dial> Waiter<D> {
    pub(super) fn new(driver: Arc<Driver<D>>, id: WaiterId, answer: oneshot::Receiver<Answer<D>>) -> Self {
        Self {
            driver,
            id,
            answer,
            is_answered: false,
            abandon_cause: AbandonCause::Cancelled,
            look: Default::default(),
        }
    }

    /// Looks for late timeouts from time to time. The runtime of the pool's timer may be blocked, or not driven, and the limits of this
    /// request hold nevertheless.
    fn look_for_late_timeouts(&mut self, cx: &mut Context<'_>) {
        if !self.driver.has_foreign_timer() {
            return;
        }
        let (look_at, timer) = &mut self.look;
        while timer.poll_until(cx, *look_at.get_or_insert_with(|| now() + LOOK_INTERVAL)).is_ready() {
            self.driver.take_over_late_timeouts();
            *look_at = Some(now() + LOOK_INTERVAL);
        }
    }

    /// Returns the trace of the dial in flight for this request.
    pub(crate) fn dial(&self) -> Option<Arc<DialTrace>> {
        self.driver.trace_of(self.id)
    }

    /// Leaves the queue because a time limit of the request passed. Dropped instead, the request counts as cancelled.
    pub(crate) fn time_out(mut self) {
        self.abandon_cause = AbandonCause::TimedOut;
    }

    fn delivery(&self, answer: Answer<D>) -> Delivery<D> {
        match answer {
            Ok(Delivered { grant, at }) => {
                let dial = grant.conn.dial.clone();
                Delivery { lease: Ok(Lease::new(self.driver.clone(), grant)), dial, at: Some(at) }
            }
            Err(WaitFailed { why, in_flight }) => {
                let (error, dial) = match why {
                    WaitFailure::Dial(FailedDial { error, trace }) => {
                        (error.map_or(LeaseError::Lost, LeaseError::Dial), Some(trace))
                    }
                    WaitFailure::Timeout(expired) => (LeaseError::WaitTimeout(expired), None),
                    WaitFailure::Connect { expired, .. } => (LeaseError::ConnectTimeout(expired), in_flight),
                };
                Delivery { lease: Err(error), dial, at: None }
            }
        }
    }
}

impl<D: Dial> Future for Waiter<D> {
    type Output = Delivery<D>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivery<D>> {
        let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) else {
            self.look_for_late_timeouts(cx);
            return Poll::Pending;
        };
        self.is_answered = true;
        Poll::Ready(match answer {
            Ok(answer) => self.delivery(answer),
            Err(_) => Delivery { lease: Err(LeaseError::Lost), dial: None, at: None },
        })
    }
}

impl<D: Dial> Drop for Waiter<D> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let id = self.id;
        let cause = self.abandon_cause;
        drop(self.driver.step(|state| state.abandon(now(), id, cause)));
        // An answer that was sent in the meantime is received here; one that comes later returns to its sender.
        sync::point();
        self.answer.close();
        if let Ok(Ok(Delivered { grant, .. })) = self.answer.try_recv() {
            self.driver.take_back(grant, cause);
        }
    }
}
