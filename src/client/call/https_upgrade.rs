//! Requests to `http` URLs of names that have HTTPS records: they go to `https` (RFC 9460 §9.5).

use std::sync::Arc;

use http::StatusCode;
use url::Url;

use super::state::Call;
use crate::client::token::Authorization;
use crate::clock;
use crate::error::Result;
use crate::origin::{Origin, Scheme};
use crate::trace::Event;

/// Turns the request to `https` if the records of its name say that the service can be reached so. Nothing was sent by then, so
/// headers and body stay as they are. `is_first` is false after a redirect.
pub(super) async fn upgrade(call: &mut Call<'_>, is_first: bool) -> Result<()> {
    if call.request.key().origin.scheme() != Scheme::Http {
        return Ok(());
    }
    call.enter()?;
    let key = call.request.key();
    let start = clock::now();
    let connector = call.client.pool.dialer().connector_for(&key.origin);
    let has_service = connector.has_https_service(&key.origin, key.proxy.as_deref(), start).await;
    call.now = None;
    if !has_service {
        call.trace.note_https_records(clock::now() - start);
        return Ok(());
    }
    let Some((url, origin)) = secured(&call.request.url) else { return Ok(()) };
    if let Some(defaults) = call.client.call_defaults.of(&origin) {
        call.own_defaults = Some(defaults);
        call.request.remove_added();
        call.offer_codings();
    }
    authorize(call, &origin, is_first);
    call.request.secure(url, origin);
    call.deposit_retry(clock::now());
    let to = Arc::new(call.info());
    call.trace.emit(Event::Redirected { status: StatusCode::TEMPORARY_REDIRECT, to, by_records: true });
    Ok(())
}

/// Has the request get the token of its `https` origin, or of the `http` one.
fn authorize(call: &mut Call<'_>, to: &Origin, is_first: bool) {
    // A redirect does not lead to a token.
    if is_first && call.authorization.is_none() {
        call.authorization = Authorization::of(&call.client.defaults.token_sources, &call.request.headers, to);
    }
    if let Some(authorization) = &mut call.authorization {
        authorization.secure(&call.request.key().origin, to);
    }
}

/// Returns a URL with the scheme `https`. Port 80, which an `http` URL does not show, becomes 443, and any other port stays.
fn secured(url: &Url) -> Option<(Url, Origin)> {
    let mut url = url.clone();
    url.set_scheme("https").ok()?;
    let origin = Origin::from_url(&url).ok()?;
    Some((url, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_scheme_and_the_default_port_change() {
        let secured = |url: &str| secured(&Url::parse(url).unwrap()).unwrap().0.to_string();
        assert_eq!(secured("http://api.test/a?b=c#d"), "https://api.test/a?b=c#d");
        assert_eq!(secured("http://api.test:80/"), "https://api.test/");
        assert_eq!(secured("http://api.test:8080/"), "https://api.test:8080/");
        // A port that is the default one of `https` is left out.
        assert_eq!(secured("http://api.test:443/"), "https://api.test/");
    }
}
