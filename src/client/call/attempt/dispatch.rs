//! Hands the message of a request to its connection, with its content if there is any and the server wants it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use http::{Response, StatusCode};
use hyper::body::Incoming;

use crate::client::body::{Dialer, OutgoingBody, Upload};
use crate::client::call::attempt::message;
use crate::client::call::current_request::CurrentRequest;
use crate::client::call::state::Call;
use crate::client::policy::framing::{self, KeepAlive};
use crate::clock::Instant;
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

/// Returns true if it must be seen whether a body has any content before the head can be written: without content, a GET and a HEAD
/// have no framing, because many servers refuse any. Its length is not known, and chunks could be empty. A body without bytes is sent in
/// chunks if it ends with trailers, and is none without them.
pub(in crate::client::call) fn must_peek(request: &CurrentRequest, conn: &Conn<OutgoingBody>) -> bool {
    let Some(body) = request.body.as_ref().filter(|_| conn.protocol() == Protocol::Http1) else { return false };
    let is_unknown = || body.content_length().is_none() && body.trailers().is_none();
    body.may_be_empty() || (framing::is_usually_empty(&request.method) && is_unknown())
}

/// Waits for the first piece of the request's body, and takes the body off the request if there is none.
pub(in crate::client::call) async fn peek(call: &mut Call<'_>, since: Instant) -> Result<()> {
    let idle = call.upload_speed().over;
    let body = call.request.body.as_mut().expect("the caller has looked at it");
    let until = since.checked_add(idle);
    let peeking = pin!(poll_fn(|cx| body.poll_peek(cx)));
    match call.client.deadlines.before(until, peeking).await {
        Some(true) => {}
        Some(false) => call.request.body = None,
        None => {
            return Err(call.stalled("nothing of the request's body was there to be sent", idle, until));
        }
    }
    Ok(())
}

/// Returns true if a server that sent this response in place of a 100 (Continue) will read the request's content, and may wait for it: it
/// begins to answer and keeps the connection open (RFC 9110 §10.1.1).
pub(in crate::client::call) fn is_still_wanted(response: &Response<Incoming>) -> bool {
    response.status().is_success() && !KeepAlive::of(response.headers()).is_last
}
