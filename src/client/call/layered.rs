//! Layers around each single attempt, and the check of a request by the rules of HTTP and by the client's settings. Layers may have made a
//! request of their own, so each attempt within layers is checked as well.
//!
//! An attempt has to own what it uses, because layers may keep it, move it to another task, or make two of it. So the
//! request that the layers get carries an [`AttemptContext`], of which the innermost service makes a call of its own, for
//! one attempt. What that call leaves behind is for the call around the layers: the resend that may follow, and the body.

use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use http::Method;
use sync_wrapper::SyncFuture;
use tower::ServiceExt;

use super::attempt::admit::admit;
use super::attempt::context::{AttemptContext, AttemptedCall, Left};
use super::attempt::message::announce_trailers;
use super::next::{self, Again};
use super::resend;
use super::state::Call;
use crate::client::body::{Body, LayeredBody, Loan};
use crate::client::inner::{AttemptLayers, Inner};
use crate::client::request::Request;
use crate::client::response::answer::{Answer, BodyFacts};
use crate::client::response::call_data::BoxedRequest;
use crate::client::settings::services::{AttemptService, WrapAttempt};
use crate::clock;
use crate::error::{Cause, Error, Result};
use crate::pool::EarlierConn;
use crate::sync::lock;

/// The most responses of one attempt of which the call keeps track, because a layer may return any of them.
const MAX_BODIES: usize = 16;

/// Puts an attempt within its layers. Returns `None` if there are none.
pub(in crate::client) fn within(layers: Vec<WrapAttempt>, client: &Weak<Inner>) -> Option<AttemptLayers> {
    if layers.is_empty() {
        return None;
    }
    let innermost = AttemptService::without_layers(attempt);
    let service = layers.into_iter().fold(innermost, |service, layer| layer(service));
    Some(AttemptLayers { service, client: client.clone() })
}

/// Sends the request through the layers until there is a response, or an error that is not followed by a resend.
/// The call has the response then.
pub(super) async fn send(call: &mut Call<'_>) -> Result<()> {
    let mut failed_on = None;
    // Layers may wait, and may read a body to its end, so the call's hold stays until the call ends.
    call.enter()?;
    loop {
        let layers = call.client.attempt_layers.as_ref().expect("the caller has checked it");
        let (context, message) = begin(call, layers, failed_on);
        let result = SyncFuture::new(layers.service.clone().oneshot(message)).await;
        let ended = context.end(call);
        match result {
            Ok(response) => {
                let answer = answer(call, response, &ended.bodies);
                call.request.set_answer(answer);
                return Ok(());
            }
            Err(cause) => {
                // An error that a layer made in place of the attempt's own is final.
                let may_resend = cause.is::<Error>() && call.request.body_is_replayable();
                let Some(resend) = ended.resend.filter(|_| may_resend) else {
                    let error = Error::layer(cause);
                    return Err(if ended.acted { error.behind_another_attempt() } else { error });
                };
                failed_on = ended.failed_on;
                next::repeat(call, Again::Resend(resend)).await?;
            }
        }
    }
}

type Begun = (AttemptContext, http::Request<Body>);

/// Begins an attempt: makes the message that the layers get, and the context in it.
fn begin(call: &mut Call<'_>, layers: &AttemptLayers, failed: Option<EarlierConn>) -> Begun {
    call.now = None;
    let mut headers = http::HeaderMap::clone(&call.request.headers);
    announce_trailers(&call.request, &mut headers);
    if let Some(authorization) = &call.authorization {
        authorization.add_to(&mut headers);
    }
    let mut body = call.request.body_to_send();
    let mut loan = None;
    if !call.request.body_is_replayable() {
        let (lent, borrowed) = Loan::new(body);
        loan = Some(lent);
        body = borrowed;
    }
    let context = AttemptContext(Arc::new(AttemptedCall {
        client: layers.client.upgrade().expect("a call keeps its client"),
        trace: (*call.trace).clone(),
        deadline: call.deadline,
        decompression: call.request.decompression,
        loan,
        avoid: call.avoid,
        left: Mutex::new(Left {
            attempts: call.attempts,
            failed_on: failed,
            drain_hold: call.drain_hold.take(),
            layers_since: Some(clock::now()),
            ..Left::default()
        }),
    }));
    let mut message: http::Request<Body> = next::attempt(call, headers, body).into();
    message.extensions_mut().insert(context.clone());
    (context, message)
}

/// Makes the answer of the response that the layers returned.
fn answer(call: &Call<'_>, response: http::Response<Body>, bodies: &[LayeredBody]) -> Answer {
    let (head, body) = response.into_parts();
    let facts = BodyFacts {
        origin: call.request.key().origin.clone(),
        trace: (*call.trace).clone(),
        start: Bytes::new(),
        answers_head: call.request.method == Method::HEAD,
        // A layer that made two attempts dropped the body of the other one.
        received: bodies.iter().rev().find(|body| body.is_alive()).cloned(),
    };
    Answer::layered(head, body, facts)
}

/// Makes one attempt: the innermost service.
async fn attempt(mut message: http::Request<Body>) -> Result<http::Response<Body>, Cause> {
    let Some(context) = message.extensions_mut().remove::<AttemptContext>() else {
        let what = "a layer around an attempt made a request without the extensions of the one that it got";
        return Err(Error::refused_request(what).into());
    };
    let mut request = BoxedRequest::new(Request::try_from(message)?);
    request.add_url_authorization()?;
    admit(&context.0.client, &mut request)?;
    let mut call = context.call(request);
    let result = resend::send_boxed(&mut call).await;
    if let (Err(error), Some(observed)) = (&result, &call.observed) {
        observed.note_failure(error.kind().as_str());
    }
    let acted = result.as_ref().map_or_else(Error::may_have_been_processed, |()| true);
    context.keep(&mut call, acted);
    let discreet = call.client.defaults.left_out.queries;
    result.map_err(|error| error.of_request(&call.request.method, &call.request.url, discreet))?;
    let mut answer = call.request.take_answer();
    if call.request.method != Method::HEAD {
        answer.decompress(call.request.decompression)?;
        answer.limit_for_layers(call.request.options.body_limit(call.defaults()));
    }
    let (response, body) = answer.into_layered();
    let mut left = lock(&context.0.left);
    if left.bodies.len() == MAX_BODIES {
        left.bodies.retain(LayeredBody::is_alive);
    }
    left.bodies.push(body);
    Ok(response)
}
