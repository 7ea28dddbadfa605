//! The check of a request by the rules of HTTP and by the client's settings. Layers around an attempt may have made a request of
//! their own, so each attempt within layers is checked as well.

use crate::client::inner::Inner;
use crate::client::request::Request;
use crate::client::request::checks::check;
use crate::client::request::options::checked_version;
use crate::error::{Error, Result};
use crate::origin::Scheme;

/// Refuses a request that must not be sent, or not by this client, and has the pool know its proxy. Parses the request's target, unless
/// the URL has it.
pub(in crate::client::call) fn admit(client: &Inner, request: &mut Request) -> Result<()> {
    check(request)?;
    if let Some(version) = request.options.required_version() {
        checked_version(version)?;
    }
    if let Some(key) = &mut request.key {
        key.proxy = request.options.proxy_choice().cloned();
    }
    if client.defaults.https_only && request.key().origin.scheme() == Scheme::Http {
        return Err(Error::not_https());
    }
    if request.url.parts().is_none() {
        request.parsed_target = Some(request.target()?);
    }
    Ok(())
}
