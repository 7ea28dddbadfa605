//! A live connection for a request, from the pool, within the limits for the queue and for the dial.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;

use super::state::Call;
use crate::client::dialer::Dialer;
use crate::client::inner::Inner;
#[cfg(feature = "aws")]
use crate::client::lease_notes::NotedConn;
use crate::clock::{self, Instant};
use crate::connect::ConnectError;
use crate::error::{Error, Result};
use crate::pool::{Checkout, Delivery, Lease, LeaseError, Queued, Waiter, Wish};
use crate::trace::{CloseCause, DialTrace, Event, Trace};

/// The most times that a call asks again for a connection after its dial was lost. A dial is lost with the runtime that
/// it began on.
const MAX_LOST_DIALS: u32 = 4;

/// The pause before the last attempt of a call that lost two connections, if it gets a used one.
const LAST_ATTEMPT_PAUSE: Duration = Duration::from_millis(10);

/// The idle time below which a connection is not checked before use, if the request can be repeated: the check costs 2
/// µs.
const MAX_UNCHECKED_IDLE: Duration = Duration::from_micros(250);

/// The interval at which a request that left the queue for a dial checks if it is in the queue again.
const RECHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Gets a live connection, and the time from which on the call has it. If the last attempt failed on the connection
/// `failed_on`, it is neither that one nor an idle one, which might fail for the same reason.
///
/// The lease is put into `held`, where its user has it: moving it costs a part of a warm call.
pub(super) async fn lease(
    call: &mut Call<'_>,
    failed_on: Option<u64>,
    held: &mut Option<Lease<Dialer>>,
) -> Result<Instant> {
    // A request with a stream that can be read once is sent once.
    let is_repeatable = call.is_idempotent() && !call.request.has_single_use_body();
    let mut now = call.now.take();
    let mut at_once = now;
    let mut queued_at = None;
    let lease = loop {
        let despite_drain = !std::mem::take(&mut call.is_new);
        let asked_at = now.take().unwrap_or_else(clock::now);
        call.check_deadline(asked_at)?;
        let own_dial = failed_on.is_some() && call.attempts.want_a_dial();
        let wish = Wish { failed_on, despite_drain, send_once: !is_repeatable, own_dial, avoid: call.avoid };
        match call.client.pool.checkout(call.request.key(), wish, asked_at) {
            Checkout::Ready(lease) => *held = Some(lease),
            Checkout::Refused(error) => return Err(no_lease(call, error)),
            Checkout::Wait(waiter, queued) => {
                let place = InQueue { waiter, queued, now: asked_at };
                // Boxed, because most calls do not wait here, and each of them would hold room for it.
                let lease = Box::pin(wait(call, wish, place, &mut queued_at)).await;
                *held = Some(lease.map_err(|error| no_lease(call, error))?);
                at_once = None;
            }
        }
        let lease = held.as_mut().expect("it was just put there");
        let unchecked_idle = if is_repeatable && failed_on.is_none() { MAX_UNCHECKED_IDLE } else { Duration::ZERO };
        if lease.is_fresh() || lease.idle() < unchecked_idle {
            break lease;
        }
        at_once = None;
        if call.attempts.next_is_the_last() && Handle::try_current().is_ok() {
            // A server that closes its connections right after each response has done so by then, and it is noticed
            // below.
            let paused = call.back_off(clock::now(), LAST_ATTEMPT_PAUSE).await?;
            // The pause is no part of a wait in the queue.
            queued_at = queued_at.map(|queued_at| queued_at + paused);
        }
        if lease.conn().is_alive().await {
            break lease;
        }
        lease.retire(CloseCause::Peer);
        *held = None;
    };
    // If the call got its connection at once, no time has passed since its start.
    let leased_at = at_once.unwrap_or_else(clock::now);
    call.check_deadline(leased_at)?;
    announce(call, lease, leased_at, queued_at);
    Ok(leased_at)
}

/// Tells observers, and the DNS cache, that the call has its connection.
fn announce(call: &Call<'_>, lease: &mut Lease<Dialer>, at: Instant, queued_at: Option<Instant>) {
    lease.mark_observed(call.trace.own());
    let conn = lease.conn();
    conn.note_use(at);
    let waited = queued_at.map_or(Duration::ZERO, |queued_at| at - queued_at);
    let event = Event::Leased {
        connection: conn.number(),
        remote: conn.remote(),
        requests: lease.requests(),
        idle: lease.idle(),
        tls: conn.tls().cloned(),
        waited,
        freed: lease.is_freed(),
    };
    call.trace.emit_at(at, event);
    #[cfg(feature = "aws")]
    if let Some(notes) = call.request.options.notes() {
        notes.add(NotedConn {
            number: conn.number(),
            remote: conn.remote(),
            is_forwarded: conn.forwarding().is_some(),
            requests: lease.requests(),
            waited,
        });
    }
}

/// Returns the error of a call that got no connection.
fn no_lease(call: &Call<'_>, error: LeaseError<ConnectError>) -> Error {
    match error {
        LeaseError::CallerTimeout(limit) => Error::stalled(call.trace.phase(), "no connection", limit),
        LeaseError::Lost if Handle::try_current().is_err() => Error::no_runtime(),
        error => Error::no_lease(error),
    }
}

/// The place of a call that has just entered the pool's queue, and the time.
struct InQueue {
    waiter: Waiter<Dialer>,
    queued: Queued,
    now: Instant,
}

/// Waits in the pool's queue. A call whose dial was lost asks again. `queued_at` is the time the call entered the queue first.
async fn wait(
    call: &Call<'_>,
    wish: Wish,
    mut place: InQueue,
    queued_at: &mut Option<Instant>,
) -> Result<Lease<Dialer>, LeaseError<ConnectError>> {
    let Call { client, trace, .. } = call;
    let wish = Wish { despite_drain: true, ..wish };
    let deadline = call.deadline.map(|deadline| deadline.at);
    let limits = [call.limit(|limits| limits.queue), call.limit(|limits| limits.connect)];
    let mut lost = 0;
    loop {
        client.dns_watch.ensure_running(&client.resolver, &client.pool);
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
        place = match client.pool.checkout(call.request.key(), wish, now) {
            Checkout::Ready(lease) => return Ok(lease),
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
