//! The wait of a call in the pool's queue, which keeps to its limits.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

use crate::client::body::Dialer;
use crate::client::call::state::Call;
use crate::clock::{self, Instant};
use crate::connect::ConnectError;
use crate::pool::{Checkout, Delivery, Lease, LeaseError, Queued, WaitLimits, Waiter, Wish};
use crate::trace::{Event, LATE, Trace};

/// The most times that a call asks again for a connection after its dial was lost. A dial is lost with the runtime that
/// it began on.
const MAX_LOST_DIALS: u32 = 4;

/// The place of a call that has just entered the pool's queue, and the time.
pub(in crate::client::call) struct InQueue {
    pub(in crate::client::call) waiter: Waiter<Dialer>,
    pub(in crate::client::call) queued: Queued,
    pub(in crate::client::call) now: Instant,
}

/// Waits in the pool's queue. A call whose dial was lost asks again. `queued_at` is the time the call entered the queue first.
pub(in crate::client::call) async fn wait(
    call: &Call<'_>,
    wish: &Wish,
    mut place: InQueue,
    queued_at: &mut Option<Instant>,
) -> Result<Lease<Dialer>, LeaseError<ConnectError>> {
    let Call { client, trace, .. } = call;
    let wish = Wish { despite_drain: true, ..*wish };
    let deadline = call.deadline.map(|deadline| deadline.at);
    let mut lost = 0;
    loop {
        client.ensure_watches_run();
        let InQueue { waiter, queued: Queued { limit, position, usage }, now } = place;
        queued_at.get_or_insert(now);
        let origin = call.request.key().origin.clone();
        trace.emit_at(now, Event::Queued { limit, position, origin, usage });
        let Delivery { lease, dial, at } = QueuedCall { waiter: Some(waiter), trace, deadline }.await;
        if let Some(dial) = dial {
            trace.adopt(&dial);
        }
        if let Some(at) = at {
            note_late(trace, at);
        }
        if !matches!(lease, Err(LeaseError::Lost)) || lost == MAX_LOST_DIALS || Handle::try_current().is_err() {
            return lease;
        }
        lost += 1;
        let now = clock::now();
        place = match client.pool.checkout(call.request.key(), &wish, now, || wait_limits(call)) {
            Checkout::Ready(lease) => return Ok(lease),
            Checkout::Refused(error) => return Err(error),
            Checkout::Wait(waiter, queued) => InQueue { waiter, queued, now },
        };
    }
}

/// Notes that the pool had given the call its connection at `at`, before the call came to it, if that is so.
fn note_late(trace: &Trace, at: Instant) {
    let now = clock::now();
    let late = now - at;
    if late >= LATE {
        trace.note_read_late(now, trace.phase(), late);
    }
}

/// Returns the longest times that a call waits for a connection: its own, and those of the connector that would dial for it.
pub(in crate::client::call) fn wait_limits(call: &Call<'_>) -> WaitLimits {
    let of_dial = call.client.pool.dialer().connector_for(&call.request.key().origin).timeout;
    let connect = call.setting(|options| options.timeouts.connect).map_or(of_dial, |own| own.min(of_dial));
    WaitLimits { connect, ends_dials: connect == of_dial, queue: call.setting(|options| options.timeouts.queue) }
}

/// A call in the pool's queue. If it is dropped there, its trace keeps the events of its dial so far.
struct QueuedCall<'a> {
    /// The waiter in the pool's queue; `None` once the wait is over.
    waiter: Option<Waiter<Dialer>>,
    trace: &'a Trace,
    /// The deadline of the call. If it has passed when the wait is dropped, the call timed out in the queue.
    deadline: Option<Instant>,
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
        let Some(waiter) = self.waiter.take() else { return };
        let dial = waiter.dial();
        if self.deadline.is_some_and(|deadline| deadline <= clock::now()) {
            waiter.time_out();
        }
        if let Some(dial) = dial {
            self.trace.adopt(&dial);
        }
    }
}
