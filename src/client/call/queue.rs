//! The wait of a call in the pool's queue, within the limits for that and for the dial.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;

use super::state::Call;
use crate::client::dialer::Dialer;
use crate::client::inner::Inner;
use crate::clock::{self, Instant};
use crate::connect::ConnectError;
use crate::pool::{Checkout, Delivery, Lease, LeaseError, Queued, Waiter, Wish};
use crate::trace::{DialTrace, Event, Trace};

/// The most times that a call asks again for a connection after its dial was lost. A dial is lost with the runtime that
/// it began on.
const MAX_LOST_DIALS: u32 = 4;

/// The interval at which a request that left the queue for a dial checks if it is in the queue again.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The place of a call that has just entered the pool's queue, and the time.
pub(super) struct InQueue {
    pub(super) waiter: Waiter<Dialer>,
    pub(super) queued: Queued,
    pub(super) now: Instant,
}

/// Waits in the pool's queue. A call whose dial was lost asks again. `queued_at` is the time the call entered the queue first.
pub(super) async fn wait(
    call: &Call<'_>,
    wish: &Wish,
    mut place: InQueue,
    queued_at: &mut Option<Instant>,
) -> Result<Lease<Dialer>, LeaseError<ConnectError>> {
    let Call { client, trace, .. } = call;
    let wish = Wish { despite_drain: true, ..*wish };
    let deadline = call.deadline.map(|deadline| deadline.at);
    let limits = [call.limit(|limits| limits.queue), call.limit(|limits| limits.connect)];
    let mut lost = 0;
    loop {
        client.ensure_watches_run();
        let InQueue { waiter, queued: Queued { limit, position, usage }, now } = place;
        let since = *queued_at.get_or_insert(now);
        let origin = call.request.key().origin.clone();
        trace.emit_at(now, Event::Queued { limit, position, origin, usage });
        let mut queued = QueuedCall { waiter: Some(waiter), trace, since, limits, deadline };
        let Delivery { lease, dial } = queued.wait(client, now).await;
        if let Some(dial) = dial {
            trace.adopt(&dial);
        }
        if !matches!(lease, Err(LeaseError::Lost)) || lost == MAX_LOST_DIALS || Handle::try_current().is_err() {
            return lease;
        }
        lost += 1;
        let now = clock::now();
        let mut held = None;
        place = match client.pool.checkout(call.request.key(), &wish, now, &mut held) {
            Checkout::Ready => return held.ok_or(LeaseError::Lost),
            Checkout::Refused(error) => return Err(error),
            Checkout::Wait(waiter, queued) => InQueue { waiter, queued, now },
        };
    }
}

/// A call in the pool's queue. If it is dropped there, its trace keeps the events of its dial so far.
struct QueuedCall<'a> {
    /// The waiter in the pool's queue; `None` once the wait is over.
    waiter: Option<Waiter<Dialer>>,
    trace: &'a Trace,
    since: Instant,
    /// The limits for the wait in the queue and for the dial.
    limits: [Option<Duration>; 2],
    /// The deadline of the call. If it has passed when the wait is dropped, the call timed out in the queue.
    deadline: Option<Instant>,
}

/// The state of a wait in the queue.
enum Verdict {
    /// The wait took too long, by this limit.
    Expired(Duration),
    /// The wait goes on, and is looked at again at this time, if any.
    GoOn(Option<Instant>),
}

impl QueuedCall<'_> {
    /// Waits for a connection as long as the limits allow.
    async fn wait(&mut self, client: &Inner, mut now: Instant) -> Delivery<Dialer> {
        loop {
            let until = match self.verdict(now) {
                Verdict::GoOn(until) => until,
                Verdict::Expired(limit) => {
                    let dial = self.leave(true);
                    return Delivery { lease: Err(LeaseError::CallerTimeout(limit)), dial };
                }
            };
            if let Some(delivery) = client.deadlines.before(until, &mut *self).await {
                return delivery;
            }
            now = clock::now();
        }
    }

    /// Leaves the queue, if the call is still in it, and returns the trace of its dial.
    fn leave(&mut self, is_timeout: bool) -> Option<Arc<DialTrace>> {
        let waiter = self.waiter.take()?;
        let dial = waiter.dial();
        if is_timeout {
            waiter.time_out();
        }
        dial
    }

    /// Applies the limit that counts at the moment: that for the dial while a connection is opened for the call, that
    /// for the queue otherwise.
    fn verdict(&self, now: Instant) -> Verdict {
        let [queue, connect] = self.limits;
        let dial_begun = self.waiter.as_ref().and_then(Waiter::dial).and_then(|dial| dial.begun());
        let (limit, since, recheck) = match dial_begun {
            // The dial may be postponed, and the call be in the queue again.
            Some(begun) => (connect, begun.max(self.since), queue.map(|_| RECHECK_INTERVAL)),
            // A dial that begins from now on cannot exceed its limit before that has passed.
            None => (queue, self.since, connect),
        };
        let end = limit.and_then(|limit| since.checked_add(limit));
        if let (Some(limit), Some(end)) = (limit, end)
            && end <= now
        {
            return Verdict::Expired(limit);
        }
        let recheck_at = recheck.and_then(|recheck| now.checked_add(recheck));
        Verdict::GoOn(end.into_iter().chain(recheck_at).min())
    }
}

impl Future for QueuedCall<'_> {
    type Output = Delivery<Dialer>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Delivery<Dialer>> {
        let waiter = self.waiter.as_mut().expect("not polled after it was ready");
        let delivery = ready!(Pin::new(waiter).poll(cx));
        self.waiter = None;
        Poll::Ready(delivery)
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        let is_timeout = self.waiter.is_some() && self.deadline.is_some_and(|deadline| deadline <= clock::now());
        if let Some(dial) = self.leave(is_timeout) {
            self.trace.adopt(&dial);
        }
    }
}
