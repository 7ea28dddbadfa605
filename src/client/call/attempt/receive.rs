//! The response of an exchange becomes that of the call: its headers are read, and its body gets the connection.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::client::body::{Dialer, Extent, IncomingBody, OutgoingBody, ReturnGuard, Upload};
use crate::client::call::state::Call;
use crate::client::policy::deadlines::is_event_stream;
use crate::client::policy::framing::KeepAlive;
use crate::client::response::answer::Answer;
use crate::client::response::upgraded::PendingUpgrade;
use crate::clock::Instant;
use crate::connect::{Conn, ExchangeTimes, Protocol};
use crate::error::{Error, FailureClass, Result};
use crate::pool::Lease;
use crate::tls::TlsInfo;
use crate::trace::{Event, LATE, Phase};
use crate::{clock, trace};

#[cfg(feature = "cookies")]
use super::cookies;

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
        && let Some(upgrade) = upgrade_of(call, &mut response)
    {
        let is_early = upload.is_some_and(|upload| upload.is_unwanted());
        let upgraded = answer(call, response, PendingUpgrade::new(upgrade, lease, is_early));
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

/// Checks that the request's way to switch protocols exists on its connection, which the call has had since `since`. For an
/// extended CONNECT, waits for the server's settings.
///
/// # Errors
/// It does not exist, or the settings did not come in time.
pub(in crate::client::call) async fn check(call: &Call<'_>, lease: &Lease<Dialer>, since: Instant) -> Result<()> {
    let options = &call.request.options;
    let spoken = lease.conn().protocol();
    if call.request.asks_upgrade && spoken == Protocol::Http2 {
        return Err(Error::no_upgrade_over_http2());
    }
    if options.extended_protocol().is_none() {
        return Ok(());
    }
    if spoken == Protocol::Http1 {
        return Err(Error::no_extended_connect("the connection speaks HTTP/1.1"));
    }
    let limit = call.setting(|options| options.timeouts.headers);
    let until = limit.and_then(|limit| since.checked_add(limit));
    let supported = pin!(lease.conn().is_extended_connect_supported());
    match call.client.deadlines.before(until, supported).await {
        Some(Some(false)) => Err(Error::no_extended_connect("the server's settings do not allow it")),
        // The connection has ended, as the exchange will notice.
        Some(Some(true) | None) => Ok(()),
        None => {
            let late = call.stalled("no HTTP/2 settings", limit.unwrap_or_default(), until);
            Err(late.with_class(FailureClass::Unprocessed))
        }
    }
}

/// Returns hyper's handle on the upgrade if the response switches to another protocol, as the request asked.
pub(in crate::client::call) fn upgrade_of(call: &Call<'_>, response: &mut Response<Incoming>) -> Option<OnUpgrade> {
    let has_agreed = match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => call.request.asks_upgrade,
        status => call.request.method == Method::CONNECT && status.is_success(),
    };
    if !has_agreed {
        return None;
    }
    response.extensions_mut().remove()
}

/// Makes the answer of a response that switches to another protocol. It has the stream of that for its user to take.
pub(in crate::client::call) fn answer(
    call: &Call<'_>,
    response: Response<Incoming>,
    upgrade: PendingUpgrade,
) -> Answer {
    let mut head = response.into_parts().0;
    head.extensions.insert(upgrade);
    Answer::new(head, IncomingBody::of_upgrade(call.trace.clone(), call.body_limits(false)), false)
}
