//! Requests that ask the server to switch to another protocol: what their connection must be able to do, and the answers that
//! switch.

use std::pin::pin;

use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::client::body::{Dialer, IncomingBody};
use crate::client::call::state::Call;
use crate::client::response::answer::Answer;
use crate::client::response::upgraded::PendingUpgrade;
use crate::clock::Instant;
use crate::connect::Protocol;
use crate::error::{Error, FailureClass, Result};
use crate::pool::Lease;

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
