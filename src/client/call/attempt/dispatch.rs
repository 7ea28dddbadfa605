//! Hands the message of a request to its connection.

use std::sync::Arc;

use http::StatusCode;

use crate::client::body::{Dialer, OutgoingBody, Upload};
use crate::client::call::attempt::message;
use crate::client::call::state::Call;
use crate::connect::{Conn, Protocol};
use crate::error::Result;
use crate::pool::Lease;
use crate::trace::{CloseCause, Event, Trace, Wants};

/// Makes the message, has `send` hand it to the connection, and returns the result of that. From then on the lease ends with the
/// connection, or over HTTP/2 with the stream.
///
/// # Errors
/// The request cannot be sent on the connection.
// Not async: the message would be a part of the call's future, and be copied with it.
pub(in crate::client::call) fn dispatch<T>(
    call: &mut Call<'_>,
    lease: &mut Lease<Dialer>,
    upload: Option<&Arc<Upload>>,
    send: impl FnOnce(&Conn<OutgoingBody>, http::Request<OutgoingBody>) -> T,
) -> Result<T> {
    let mut message = http::Request::new(OutgoingBody::empty());
    message::fill(&mut message, call, lease.conn(), upload.cloned())?;
    listen_for_interim_responses(&call.trace, upload, &mut message);
    match lease.conn().protocol() {
        Protocol::Http1 => lease.retire(CloseCause::Unfinished),
        Protocol::Http2 => lease.mark_shared(),
    }
    Ok(send(lease.conn(), message))
}

/// Passes interim responses on to observers, and a 100 (Continue) to the body.
fn listen_for_interim_responses(
    trace: &Trace,
    upload: Option<&Arc<Upload>>,
    message: &mut http::Request<OutgoingBody>,
) {
    let expecting = upload.filter(|upload| upload.expects_continue()).cloned();
    if !trace.is_wanted(Wants::INTERIM) && expecting.is_none() {
        return;
    }
    let trace = trace.clone();
    hyper::ext::on_informational(message, move |response| {
        let status = response.status();
        if let Some(upload) = &expecting
            && status == StatusCode::CONTINUE
        {
            upload.set_wanted(true);
        }
        trace.notify(Wants::INTERIM, || Event::Informational { status });
    });
}
