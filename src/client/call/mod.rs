//! One call: the request is sent, followed where redirects lead, retried and resent, until there is a response for its
//! user.
//!
//! The call is an onion. Each file is a skin and calls only files further in: `resend.rs` calls `lease/checkout.rs`, then
//! `attempt/exchange.rs`, which calls `attempt/dispatch.rs` and that `attempt/message.rs`, and then `attempt/receive.rs`.
//! Each of the others calls the next one.
//!
//! | file | what it does | decides by |
//! |---|---|---|
//! | `mod.rs` | completes the request, starts and ends the trace, keeps the deadline | |
//! | `redirect.rs` | follows redirects | `policy/redirect.rs` |
//! | `retry.rs` | retries as the user's policy says | `policy/retry.rs` |
//! | `hedge.rs` | sends a second time if the answer is late | `policy/hedge.rs` |
//! | `token.rs` | gets the token for the attempts, and sends the request again after a 401 | `token/state.rs` |
//! | `layered.rs` | runs each attempt within its tower layers, if there are any (`attempt/context.rs`) | |
//! | `resend.rs` | resends when that is safe in any case | `policy/resend.rs` |
//! | `lease/checkout.rs` | gets a live connection from the pool | |
//! | `lease/queue.rs` | waits in the pool's queue, if there is none | |
//! | `attempt/exchange.rs` | sends the request on it, waits for the head of the response | |
//! | `attempt/dispatch.rs` | hands the message to the connection | |
//! | `attempt/receive.rs` | makes the response that of the call, with the connection in its body, or with another protocol | |
//! | `attempt/message.rs` | makes the message that is sent | |
//! | `attempt/cookies.rs` | asks the cookie store for a message, and tells it of a response | |
//! | `attempt/end.rs` | what the end of an attempt is to the table of safe resends, and to the balance between addresses | |
//! | `attempt/admit.rs` | refuses a request that the client must not send: the call's own, and each that layers make | |
//!
//! Each further request of a call is made by `next.rs`, whichever skin wants it.
//!
//! `state.rs` holds what the skins share: the trace (`call_trace.rs`), the time limits, the count of attempts, and the request as it is now
//! (`current_request.rs`).
//! Within layers, each attempt is a call of its own, which `SingleAttempt` keeps from resending.

pub(super) mod attempt;
mod call_trace;
mod current_request;
mod hedge;
mod layered;
pub(super) mod lease;
pub(super) mod next;
mod redirect;
mod resend;
mod retry;
mod state;
mod token;

use std::pin::pin;
use std::sync::Arc;

use http::HeaderMap;

use self::call_trace::CallTrace;
use self::current_request::{CurrentRequest, accept_codings};
pub(super) use self::layered::within;
use self::state::Call;
use super::inner::Inner;
use super::policy::deadlines::Deadline;
use super::policy::resend::Attempts;
use super::request::{Request, add_header, set_headers, takes_additions};
use super::response::Response;
use super::response::call_data::BoxedRequest;
use super::token::Authorization;
use crate::client::settings::OriginDefaults;
use crate::clock::note_suspension;
use crate::error::{Error, Result};
use crate::trace::{RequestInfo, Trace};
use attempt::admit::admit;

/// Makes a call: returns its response, or the error that ended it.
pub(super) async fn run(client: &Inner, mut request: BoxedRequest) -> Result<Response> {
    let own_defaults = match complete(client, &mut request) {
        Ok(own_defaults) => own_defaults,
        Err(error) => return Err(refused(client, &request, error)),
    };
    let mut call = begin(client, request, own_defaults);
    let deadline = call.deadline.map(|deadline| deadline.at);
    let result = client.deadlines.before(deadline, pin!(redirect::follow(&mut call))).await;
    match result.unwrap_or_else(|| Err(call.time_out())) {
        Ok(mut response) => {
            response.read_ahead();
            Ok(response)
        }
        Err(error) => Err(failed(&mut call, error)),
    }
}

/// Completes the error of a request that was not sent.
#[cold]
fn refused(client: &Inner, request: &Request, error: Error) -> Error {
    error.of_request(&request.method, &request.url, client.defaults.left_out.queries)
}

/// Ends the trace of a call that failed, and completes its error.
#[cold]
fn failed(call: &mut Call<'_>, error: Error) -> Error {
    call.trace.fail(error.kind().as_str());
    error.about(&call.context(), call.trace.timings())
}

/// Starts the trace of a call, and its time.
// Not a part of the future that `run` is: what a future holds is copied when it moves.
fn begin(client: &Inner, mut request: BoxedRequest, own_defaults: Option<Arc<OriginDefaults>>) -> Call<'_> {
    note_suspension();
    let trace = Trace::start(&client.hooks, request.options.own_observer().cloned(), || RequestInfo {
        method: request.method.clone(),
        origin: request.key().origin.clone(),
        target: client.defaults.shown(request.target().unwrap_or_default()),
        extensions: request.extensions.clone(),
    });
    let defaults = own_defaults.as_ref().map_or(&client.defaults.options, |defaults| &defaults.options);
    let decompression = request.options.decompression(defaults);
    let decompression = accept_codings(&mut request, decompression);
    let start = trace.start_time();
    let limit = request.options.setting(defaults, |options| options.timeouts.total);
    let deadline = limit.and_then(|limit| start.checked_add(limit).map(|at| Deadline { at, limit }));
    let sources = &client.defaults.token_sources;
    let may_add = takes_additions(&request.method);
    let authorization = match sources.is_empty() || !may_add {
        true => None,
        false => Authorization::of(sources, &request.headers, &request.key().origin),
    };
    let call = Call {
        client,
        request: CurrentRequest::new(request, decompression),
        own_defaults,
        trace: CallTrace::new(trace),
        deadline,
        retries: 0,
        attempts: Attempts::default(),
        now: Some(start),
        is_new: true,
        authorization,
        observed: None,
        acted_before: false,
        single: None,
        drain_hold: None,
        avoid: None,
    };
    call.deposit_retry(start);
    call
}

/// Adds what the request leaves to the client, and refuses a request that must not be sent. Returns the defaults of calls to
/// its origin, if they are not those of most origins.
fn complete(client: &Inner, request: &mut Request) -> Result<Option<Arc<OriginDefaults>>> {
    request.check_target()?;
    request.add_url_authorization()?;
    let own_defaults = client.call_defaults.of(&request.key().origin);
    if takes_additions(&request.method) {
        let headers = own_defaults.as_ref().map_or(&client.defaults.headers, |defaults| &defaults.headers);
        add_default_headers(&mut request.headers, headers)?;
    }
    admit(client, request)?;
    Ok(own_defaults)
}

/// Adds the client's default headers, each unless the request has one of the same name.
fn add_default_headers(headers: &mut HeaderMap, defaults: &HeaderMap) -> Result<()> {
    if headers.is_empty() && !defaults.is_empty() {
        return set_headers(headers, defaults.clone());
    }
    for name in defaults.keys() {
        if !headers.contains_key(name) {
            for value in defaults.get_all(name) {
                add_header(headers, name.clone(), value.clone())?;
            }
        }
    }
    Ok(())
}
