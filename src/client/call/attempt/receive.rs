//! The response of an exchange becomes that of the call: its headers are read, and its body gets the connection.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::CONTENT_TYPE;
use http_body::Body;
use hyper::body::Incoming;

#[cfg(feature = "cookies")]
use super::cookies;
use super::upgrade;
use crate::client::body::{Dialer, Extent, IncomingBody, OutgoingBody, ReturnGuard, Upload};
use crate::client::call::state::Call;
use crate::client::policy::deadlines::is_event_stream;
use crate::client::policy::keep_alive::KeepAlive;
use crate::client::response::answer::Answer;
use crate::client::response::upgraded::PendingUpgrade;
use crate::clock::{self, Instant};
use crate::connect::{Conn, ExchangeTimes, Protocol};
use crate::error::Result;
use crate::pool::Lease;
use crate::tls::TlsInfo;
use crate::trace::{self, Event, LATE, Phase};

/// Notes that the head of the response was here before the program read it, if that is so: the connection's task had read it
/// `unpolled` before the call came to it, and may have come late itself.
#[cold]
fn note_late(call: &Call<'_>, conn: &Conn<OutgoingBody>, now: Instant, unpolled: Duration) {
    let unread = conn.data_age().unwrap_or_default().saturating_sub(unpolled);
    call.trace.note_read_late(now, Phase::Wait, unread);
    call.trace.note_read_late(now, Phase::Receive, unpolled);
}

/// Gives the call its response, with the connection in the body. Stores the cookies that the response sets.
pub(in crate::client::call) fn receive(
    call: &mut Call<'_>,
    lease: Lease<Dialer>,
    mut response: http::Response<Incoming>,
    upload: Option<Arc<Upload>>,
    times: &ExchangeTimes,
) -> Result<()> {
    #[cfg(feature = "cookies")]
    cookies::keep(call, response.headers());
    let protocol = lease.conn().protocol();
    let now = clock::now();
    let received_at = times.head_read.unwrap_or(now);
    if call.client.defaults.adds_tls_info
        && let Some(facts) = lease.conn().tls()
    {
        response.extensions_mut().insert(TlsInfo::new(facts.clone()));
    }
    let mut keep_alive = KeepAlive::default();
    let mut is_timed = false;
    let mut is_quiet = false;
    // Responses have few headers: to look at each of them costs less than to look three up.
    for (name, value) in response.headers() {
        keep_alive.note(name, value);
        is_timed |= *name == trace::SERVER_TIMING;
        is_quiet |= *name == CONTENT_TYPE && is_event_stream(value);
    }
    if is_timed && let Some(metrics) = trace::metrics_of(response.headers()) {
        call.trace.record_server_timing(metrics);
    }
    let (status, version) = (response.status(), response.version());
    lease.conn().note_version(version);
    call.trace.emit_at(received_at, Event::Headers { status, version });
    if now.nanos_since(received_at).max(times.waited_nanos()) >= LATE.as_nanos() as u64 {
        note_late(call, lease.conn(), now, now - received_at);
    }
    if call.request.asks_for_upgrade()
        && let Some(upgrade) = upgrade::upgrade_of(call, &mut response)
    {
        let is_early = upload.is_some_and(|upload| upload.is_unwanted());
        let upgraded = upgrade::answer(call, response, PendingUpgrade::new(upgrade, lease, is_early));
        call.request.set_answer(upgraded);
        return Ok(());
    }
    if protocol == Protocol::Http2 {
        // These headers say nothing there (RFC 9113 §8.2.2).
        keep_alive = KeepAlive::default();
    } else if call.request.method == Method::CONNECT && status.is_success() {
        // The connection is a tunnel from here on (RFC 9110 §9.3.6), though hyper does not hand it over after a 204. The next request
        // would go to whoever is at its end.
        keep_alive.is_last = true;
    }
    let (head, incoming) = response.into_parts();
    let extent = Extent::of(&call.request.method, &head, incoming.size_hint().exact().is_some())?;
    // hyper would read on to the end of the connection.
    keep_alive.is_last |= matches!(extent, Extent::Bytes(_));
    let has_sent_body = upload.is_some() || call.request.has_body();
    let guard = ReturnGuard::new(lease, upload, has_sent_body, keep_alive);
    let answers_head = call.request.method == Method::HEAD;
    let (trace, limits) = (call.trace.clone(), call.body_limits(is_quiet));
    let body = IncomingBody::new(incoming, guard, extent, trace, limits);
    call.request.set_answer(Answer::new(head, body, answers_head));
    Ok(())
}
