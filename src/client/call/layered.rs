//! Layers around each single attempt (feature `tower`).
//!
//! An attempt has to own what it uses, because layers may keep it, move it to another task, or make two of it. So the
//! request that the layers get carries an [`AttemptContext`], of which the innermost service makes a call of its own, for
//! one attempt. What that call leaves behind is for the call around the layers: the resend that may follow, and the body.

use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use http::Method;
use tower::ServiceExt;

use super::admit::admit;
use super::current_request::CurrentRequest;
use super::message::announce_trailers;
use super::resend;
use super::single::SingleAttempt;
use super::state::Call;
use crate::client::answer::{Answer, BodyFacts};
use crate::client::attempt_service::{AttemptService, WrapAttempt};
#[cfg(feature = "__compression")]
use crate::client::body::Decompression;
use crate::client::body::{Body, LayeredBody, Loan};
use crate::client::call_data::BoxedRequest;
use crate::client::deadlines::Deadline;
use crate::client::dialer::Dialer;
use crate::client::inner::{AttemptLayers, Inner};
use crate::client::request::Request;
use crate::client::safe_to_resend::{Attempts, Resend};
use crate::clock;
use crate::error::{Cause, Error, Result};
use crate::pool::{DrainHold, EarlierConn};
use crate::sync::lock;
use crate::trace::Trace;

/// The most responses of one attempt of which the call keeps track, because a layer may return any of them.
const MAX_BODIES: usize = 16;

/// The call that an attempt belongs to, as an extension of the request that the layers get.
#[derive(Clone)]
struct AttemptContext(Arc<AttemptedCall>);

/// The part of a call that its attempts need.
struct AttemptedCall {
    client: Arc<Inner>,
    trace: Trace,
    deadline: Option<Deadline>,
    #[cfg(feature = "__compression")]
    decompression: Decompression,
    /// The call's stream, if that is its body.
    loan: Option<Loan>,
    /// The connection of the first attempt, if this is a second one that is made while the first one waits.
    avoid: Option<EarlierConn>,
    left: Mutex<Left>,
}

/// The state that the attempts inside of the layers leave to the call.
#[derive(Default)]
struct Left {
    attempts: Attempts,
    /// The attempts that have begun and not ended. One that a layer drops does not end.
    unfinished: u32,
    failed_on: Option<EarlierConn>,
    /// The resend that may follow the last failure.
    resend: Option<Resend>,
    /// Makes a drain of the pool wait for the layers; `None` once they have returned. An attempt that is begun later still is
    /// one that a pool that drains refuses.
    drain_hold: Option<DrainHold<Dialer>>,
    /// The bodies of the responses, the first one first.
    bodies: Vec<LayeredBody>,
}

/// The result of the attempts inside of the layers, beside what the layers returned.
struct Ended {
    failed_on: Option<EarlierConn>,
    /// The resend that may follow.
    resend: Option<Resend>,
    bodies: Vec<LayeredBody>,
}

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
        let result = layers.service.clone().oneshot(message).await;
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
                let Some(resend) = ended.resend.filter(|_| may_resend) else { return Err(Error::layer(cause)) };
                failed_on = ended.failed_on;
                call.attempts.count_resend(resend);
                call.repeat(resend.cause, resend.wait).await?;
            }
        }
    }
}

type Begun = (AttemptContext, http::Request<Body>);

/// Begins an attempt: makes the message that the layers get, and the context in it.
fn begin(call: &mut Call<'_>, layers: &AttemptLayers, failed: Option<EarlierConn>) -> Begun {
    call.now = None;
    let mut headers = call.request.headers.clone();
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
        #[cfg(feature = "__compression")]
        decompression: call.request.decompression,
        loan,
        avoid: call.avoid,
        left: Mutex::new(Left {
            attempts: call.attempts,
            failed_on: failed,
            drain_hold: call.drain_hold.take(),
            ..Left::default()
        }),
    }));
    let mut message: http::Request<Body> = call.request.with(headers, body).into();
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
    let result = resend::send(&mut call).await;
    if let (Err(error), Some(observed)) = (&result, &call.observed) {
        observed.note_failure(error.kind().as_str());
    }
    context.keep(&mut call);
    let discreet = call.client.defaults.left_out.queries;
    result.map_err(|error| error.of_request(&call.request.method, &call.request.url, discreet))?;
    let mut answer = call.request.take_answer();
    if call.request.method != Method::HEAD {
        #[cfg(feature = "__compression")]
        answer.decompress(call.request.decompression)?;
        answer.limit_for_layers(call.request.options.body_limit().or(call.client.defaults.max_body_size));
    }
    let (response, body) = answer.into_layered();
    let mut left = lock(&context.0.left);
    if left.bodies.len() == MAX_BODIES {
        left.bodies.retain(LayeredBody::is_alive);
    }
    left.bodies.push(body);
    Ok(response)
}

impl AttemptContext {
    /// Makes a call of its own for one attempt.
    fn call(&self, request: BoxedRequest) -> Call<'_> {
        let shared = &*self.0;
        let request = CurrentRequest::new(
            request,
            #[cfg(feature = "__compression")]
            shared.decompression,
        );
        let mut call = Call::for_attempt(&shared.client, request, shared.trace.clone(), shared.deadline);
        let mut left = lock(&shared.left);
        left.unfinished += 1;
        call.attempts = left.attempts;
        call.now = Some(clock::now());
        call.is_new = left.drain_hold.is_none();
        call.avoid = shared.avoid;
        let single = SingleAttempt { failed_on: left.failed_on, resend: None, loan: shared.loan.clone() };
        call.single = Some(Box::new(single));
        call
    }

    /// Keeps what an attempt leaves to the call around the layers.
    fn keep(&self, call: &mut Call<'_>) {
        let mut left = lock(&self.0.left);
        left.unfinished -= 1;
        left.attempts = call.attempts;
        if let Some(single) = call.single.take() {
            left.failed_on = single.failed_on;
            left.resend = single.resend;
        }
    }

    /// Ends the attempts inside of the layers: takes back the body if it was not read, and returns what else they left.
    fn end(self, call: &mut Call<'_>) -> Ended {
        if let Some(body) = self.0.loan.clone().and_then(Loan::take_back) {
            call.request.put_back(body);
        }
        let mut left = lock(&self.0.left);
        call.attempts = left.attempts;
        call.drain_hold = left.drain_hold.take();
        // The server may have processed an attempt that a layer dropped, or left to another task.
        let resend = left.resend.take().filter(|_| left.unfinished == 0);
        Ended { failed_on: left.failed_on, resend, bodies: std::mem::take(&mut left.bodies) }
    }
}
