//! Redirects: one response leads to the next request, until there is a response for the user.

use http::header::EXPECT;
use http::{Method, StatusCode, Version};
use url::Url;

use super::next::{self, Again, Followed};
use super::retry;
use super::state::Call;
use crate::client::policy::redirect::{self, RedirectError, next_request};
use crate::client::request::url_cache::Target;
use crate::client::response::Response;
use crate::client::response::call_data::CallEnd;
use crate::error::{Error, Result};
use crate::origin::Scheme;

/// Sends the request, and follows redirects as the request's or the client's policy says.
pub(super) async fn follow(call: &mut Call<'_>) -> Result<Response> {
    let mut redirects = Vec::new();
    loop {
        retry::send(call).await?;
        if is_without_expectation(call) {
            next::repeat(call, Again::Expectation).await?;
            continue;
        }
        let answer = call.request.answer();
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS && !answer.is_upgrade() {
            call.request.drop_answer();
            return Err(Error::unexpected_upgrade());
        }
        match redirect_of(call, &mut redirects) {
            Ok(None) => return finish(call, redirects),
            Ok(Some(followed)) => next::redirect(call, followed),
            Err(error) => {
                call.request.drain_answer();
                return Err(error);
            }
        }
    }
}

/// Returns true if the server refused the request's `Expect: 100-continue` (417) and not the request, which can be sent again: then it is
/// without the expectation (RFC 9110 §10.1.1).
fn is_without_expectation(call: &mut Call<'_>) -> bool {
    let head = &call.request.answer().head;
    let is_refused = head.status == StatusCode::EXPECTATION_FAILED && head.version < Version::HTTP_2;
    let may_repeat = call.request.body_is_replayable() && call.may_run_again();
    is_refused && may_repeat && call.request.headers.remove(EXPECT).is_some()
}

/// Returns the redirect that a response asks for, if it is to be followed, and adds the request's URL to `redirects`.
fn redirect_of(call: &Call<'_>, redirects: &mut Vec<Url>) -> Result<Option<Followed>> {
    let answer = call.request.answer();
    let status = answer.status();
    // A CONNECT asks for one place, and another one would need another tunnel.
    if !status.is_redirection() || call.request.method == Method::CONNECT {
        return Ok(None);
    }
    let request = &call.request;
    redirects.push(request.url.to_url());
    let usual = redirect::Policy::default();
    let policy = call.setting(|options| options.redirects.as_ref()).unwrap_or(&usual);
    let next = next_request(policy, redirects, &request.method, status, answer.headers());
    if !matches!(next, Ok(Some(_))) {
        redirects.pop();
    }
    let refused = |error| match error {
        RedirectError::Refused(reason) => Error::redirect_refused(status, reason),
        error => {
            let followed = match error {
                RedirectError::TooMany(followed) | RedirectError::Loop(followed) => Some(followed),
                _ => None,
            };
            Error::redirect(status, error, followed)
        }
    };
    let Some(next) = next.map_err(refused)? else { return Ok(None) };
    if call.client.defaults.https_only && next.origin.scheme() == Scheme::Http {
        return Err(refused(RedirectError::NotHttps));
    }
    let target = Target::of_url(&next.url).map_err(|error| refused(RedirectError::Path(error.to_string())))?;
    let target = target.into();
    let keeps_body = next.method == request.method && status != StatusCode::SEE_OTHER;
    if keeps_body && !request.body_is_replayable() {
        return Err(refused(RedirectError::BodyIsGone));
    }
    Ok(Some(Followed { status, next, target, keeps_body }))
}

/// Hands the call's response to the user.
fn finish(call: &mut Call<'_>, redirects: Vec<Url>) -> Result<Response> {
    if call.request.method != Method::HEAD
        && let Err(error) = limit_body(call)
    {
        // Before the end of the call, of which observers are told next.
        call.request.drop_answer();
        return Err(error);
    }
    let extensions = std::mem::take(&mut call.request.extensions);
    call.request.answer_mut().add_extensions(extensions);
    call.trace.hand_over();
    let end = CallEnd { until: call.until(), left_out: call.client.defaults.left_out, redirects };
    Ok(Response::new(call.request.finish(end)))
}

/// Sets the body up to be decompressed and limited, as the request or the client says.
fn limit_body(call: &mut Call<'_>) -> Result<()> {
    {
        let decompression = call.request.decompression;
        call.request.answer_mut().decompress(decompression)?;
    }
    match call.request.options.body_limit(call.defaults()) {
        Some(limit) => call.request.answer_mut().limit(limit),
        None => Ok(()),
    }
}
