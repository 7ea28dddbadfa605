//! A live connection for a request, from the pool, within the limits for the queue and for the dial.

use std::time::Duration;

use http::Version;
use tokio::runtime::Handle;

use super::queue::{self, InQueue};
use crate::client::body::Dialer;
use crate::client::call::state::Call;
use crate::clock::{self, Instant};
use crate::connect::ConnectError;
use crate::error::{Error, Result};
use crate::pool::{Checkout, EarlierConn, Expired, Lease, LeaseError, Wish};
use crate::sync;
use crate::trace::{CloseCause, Event, Limit};

/// The pause before the last attempt of a call that lost two connections, if it gets a used one.
const LAST_ATTEMPT_PAUSE: Duration = Duration::from_millis(10);

/// The idle time below which a connection is not checked before use, if the request can be repeated.
const MAX_UNCHECKED_IDLE: Duration = Duration::from_micros(250);

/// Gets a live connection, and the time from which on the call has it. If the last attempt failed on the connection
/// `failed`, it is neither that one nor an idle one, which might fail for the same reason.
pub(in crate::client::call) async fn lease(
    call: &mut Call<'_>,
    failed: Option<EarlierConn>,
) -> Result<(Lease<Dialer>, Instant)> {
    // A request with a stream that can be read once is sent once.
    let is_repeatable = call.is_idempotent() && !call.request.has_single_use_body();
    let unchecked_idle = if is_repeatable && failed.is_none() { MAX_UNCHECKED_IDLE } else { Duration::ZERO };
    let mut wish = Wish { failed, despite_drain: false, send_once: !is_repeatable, own_dial: false, avoid: call.avoid };
    let mut now = call.now.take();
    let mut queued_at = None;
    // Set once the runtime of a connection was not driven.
    let mut undriven_since = None;
    if sync::yield_without_budget().await {
        now = None;
    }
    loop {
        let asked_at = now.unwrap_or_else(clock::now);
        call.check_deadline(asked_at)?;
        wish.own_dial = undriven_since.is_some() || (failed.is_some() && call.attempts.want_a_dial());
        wish.despite_drain = !std::mem::take(&mut call.is_new);
        let mut lease =
            match call.client.pool.checkout(call.request.key(), &wish, asked_at, || queue::wait_limits(call)) {
                Checkout::Ready(lease) => lease,
                Checkout::Refused(error) => return Err(no_lease(call, error)),
                Checkout::Wait(waiter, queued) => {
                    now = None;
                    let place = InQueue { waiter, queued, now: asked_at };
                    // Boxed, because most calls do not wait here, and each of them would hold room for it.
                    let lease = Box::pin(queue::wait(call, &wish, place, &mut queued_at)).await;
                    lease.map_err(|error| no_lease(call, error))?
                }
            };
        if !lease.is_fresh() && !lease.conn().is_driven(undriven_since.is_some()).await {
            let since = *undriven_since.get_or_insert(asked_at);
            let limits = queue::wait_limits(call);
            let longest = limits.queue.unwrap_or(limits.connect);
            if clock::now() - since >= longest {
                // A limit leaves no room for another connection, and this one takes no request.
                let expired = Expired { timeout: longest, limit: Limit::ConnectionsPerHost, due: since + longest };
                return Err(no_lease(call, LeaseError::WaitTimeout(expired)));
            }
        } else if lease.conn().version() == Version::HTTP_10 && call.request.needs_chunks() {
            // A new connection begins with HTTP/1.1, as that of the first request did. This one ends, so that it does not come again.
            lease.retire(CloseCause::PeerAnnounced);
        } else if lease.is_fresh() || lease.idle().unwrap_or_default() < unchecked_idle {
            return taken(call, lease, now, queued_at);
        } else if is_alive(call, &mut lease, &mut queued_at).await? {
            return taken(call, lease, None, queued_at);
        }
        now = None;
    }
}

/// Checks by a system call whether a connection is closed, and retires it if it is.
async fn is_alive(call: &mut Call<'_>, lease: &mut Lease<Dialer>, queued_at: &mut Option<Instant>) -> Result<bool> {
    if call.attempts.next_is_the_last() && Handle::try_current().is_ok() {
        // A server that closes its connections right after each response has done so by then, and it is noticed
        // below.
        let paused = call.back_off(clock::now(), LAST_ATTEMPT_PAUSE).await?;
        // The pause is no part of a wait in the queue.
        *queued_at = queued_at.map(|queued_at| queued_at + paused);
    }
    let is_alive = lease.conn().is_alive(lease.idle().is_none()).await;
    if !is_alive {
        lease.retire(CloseCause::Peer);
    }
    Ok(is_alive)
}

/// Ends the search for a connection with this one. If the call got it at once, no time has passed since `at_once`.
#[inline(always)]
fn taken(
    call: &Call<'_>,
    mut lease: Lease<Dialer>,
    at_once: Option<Instant>,
    queued_at: Option<Instant>,
) -> Result<(Lease<Dialer>, Instant)> {
    let leased_at = at_once.unwrap_or_else(clock::now);
    call.check_deadline(leased_at)?;
    announce(call, &mut lease, leased_at, queued_at);
    Ok((lease, leased_at))
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
        idle: lease.idle().unwrap_or_default(),
        tls: conn.tls().cloned(),
        waited,
        freed: lease.is_freed(),
        forwarded: conn.forwarding().is_some(),
    };
    call.trace.emit_at(at, event);
}

/// Returns the error of a call that got no connection.
fn no_lease(call: &Call<'_>, error: LeaseError<ConnectError>) -> Error {
    if let LeaseError::WaitTimeout(expired) | LeaseError::ConnectTimeout(expired) = &error {
        call.trace.note_timer(expired.due, clock::now());
    }
    match error {
        LeaseError::ConnectTimeout(expired) => Error::no_connection_in_time(call.trace.phase(), expired),
        LeaseError::Lost if Handle::try_current().is_err() => Error::no_runtime(),
        error => Error::no_lease(error),
    }
}
