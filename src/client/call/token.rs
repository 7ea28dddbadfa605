//! Bearer tokens: gets the token for a request, and sends the request again if the server rejects it.

use std::time::Duration;

use http::StatusCode;

use super::next::Again;
use super::state::{Call, SeldomPart};
use super::{layered, next, resend};
use crate::client::token::TokenSource;
use crate::clock::{self, Instant};
use crate::error::Result;
use crate::trace::Event;

/// Sends the request with the token of its origin, if that has one. After an origin's first 401 it is sent once more with a
/// newer token, for which it waits. The call has the response then.
pub(super) fn send<'a>(call: &'a mut Call<'_>) -> SeldomPart<'a> {
    Box::pin(send_with_token(call))
}

async fn send_with_token(call: &mut Call<'_>) -> Result<()> {
    let sources = &call.client.defaults.token_sources;
    let origin = &call.request.key().origin;
    let Some(source) = call.authorization.as_mut().and_then(|authorization| authorization.source(sources, origin))
    else {
        return attempt(call).await;
    };
    loop {
        let number = add_token(call, source).await?;
        attempt(call).await?;
        if call.request.answer().status() != StatusCode::UNAUTHORIZED || !may_repeat(call, source, number) {
            return Ok(());
        }
        let since = clock::now();
        begin_wait(call, since);
        // The 401 counts as an answer if the call ends in the wait.
        call.trace.note_acted();
        if source.newer_than(number).await.is_err() {
            call.trace.emit(Event::BackoffEnd);
            return Ok(()); // without a newer token, the 401 is the answer
        }
        next::repeat(call, Again::Token(since)).await?;
    }
}

/// Sends the request, within its layers if there are any.
async fn attempt(call: &mut Call<'_>) -> Result<()> {
    if call.client.attempt_layers.is_some() {
        return layered::send(call).await;
    }
    resend::send_boxed(call).await
}

/// Adds the token to the headers of the next attempts, and returns its number. The wait for a refresh counts as backoff.
async fn add_token(call: &mut Call<'_>, source: &TokenSource) -> Result<u64> {
    let mut now = call.now.take().unwrap_or_else(clock::now);
    // A body that can be sent once waits for a token that was not rejected.
    let rejected = if call.request.has_single_use_body() { source.rejected() } else { None };
    let token = match source.at_hand(now) {
        Some(token) if rejected.is_none() => token?,
        _ => {
            call.enter()?;
            begin_wait(call, now);
            let newer = match rejected {
                Some(number) => source.newer_than(number).await.ok(),
                None => None,
            };
            let token = match newer {
                Some(token) => token,
                None => source.get().await?,
            };
            now = clock::now();
            call.check_deadline(now)?;
            call.trace.emit_at(now, Event::BackoffEnd);
            token
        }
    };
    call.now = Some(now);
    let number = token.number;
    if let Some(authorization) = &mut call.authorization {
        authorization.set(token);
    }
    Ok(number)
}

/// Begins a wait for a token, which takes an unknown time.
fn begin_wait(call: &mut Call<'_>, now: Instant) {
    call.hold_drain();
    call.trace.emit_at(now, Event::BackoffStart { wait: Duration::ZERO });
}

/// Takes note that the token with this number was rejected. Returns true if the request is sent again with a newer one.
fn may_repeat(call: &mut Call<'_>, source: &TokenSource, number: u64) -> bool {
    let is_replayable = call.request.body_is_replayable();
    let may_run_again = call.may_run_again();
    let origin = &call.request.key().origin;
    let Some(authorization) = call.authorization.as_mut() else { return false };
    if authorization.repeated_at.as_ref() == Some(origin) {
        return false; // the second 401 is the caller's, and says nothing about the newer token
    }
    if !source.reject(number) || !is_replayable || !may_run_again {
        return false;
    }
    authorization.repeated_at = Some(origin.clone());
    true
}
