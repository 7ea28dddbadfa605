//! The message of a request, as it goes onto a connection.

use std::sync::Arc;

use http::header::{ACCEPT, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION, TRAILER, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};

#[cfg(feature = "cookies")]
use super::cookies;
use crate::client::body::{Body, OutgoingBody, Upload};
use crate::client::call::current_request::CurrentRequest;
use crate::client::call::state::Call;
use crate::client::policy::framing::{self, Sendable};
use crate::client::request::attempt_head::{AttemptHead, add_observed, prepare};
use crate::client::request::{Request, takes_additions};
use crate::connect::{Conn, Protocol};
use crate::error::{Error, Result};
use crate::origin::{ANYTHING, Scheme};

/// Fills in the message of one attempt. A body of bytes is shared with the next attempt, a stream is gone.
///
/// The message is written in place, because moving it costs more than making it.
pub(in crate::client::call) fn fill(
    message: &mut http::Request<OutgoingBody>,
    call: &mut Call<'_>,
    conn: &Conn<OutgoingBody>,
    upload: Option<Arc<Upload>>,
) -> Result<()> {
    let request = &mut call.request;
    let target = if is_tunnel(request) { ask_for_tunnel(request)? } else { request.take_target()? };
    // hyper itself takes HTTP/1.0 for a server of that. Told to do so, it would end the connection.
    let spoken = conn.protocol().version();
    let version = request.options.required_version().unwrap_or(spoken);
    if (version == Version::HTTP_2) != (spoken == Version::HTTP_2) {
        return Err(Error::other_version(spoken, version));
    }
    *message.version_mut() = version;
    *message.method_mut() = request.method.clone();
    let has_own_headers = !request.headers.is_empty();
    *message.headers_mut() = headers(request, conn);
    if has_own_headers {
        framing::bind_te(message.headers_mut(), version);
    }
    announce_trailers(request, message.headers_mut());
    let mut body = request.body_to_send();
    let is_chunked = spoken == Version::HTTP_11 && body.needs_chunks(message.headers().contains_key(TRAILER));
    body.restrict_trailers(|| match spoken {
        Version::HTTP_2 => Sendable::All,
        _ => Sendable::Announced(framing::trailer_names(message.headers())),
    });
    *message.body_mut() = OutgoingBody::new(body, upload);
    let has_body = request.has_body();
    let may_expect = !has_own_headers || (has_body && can_expect_continue(request, conn));
    if !may_expect {
        // Without content it must not be sent (RFC 9110 §10.1.1), and without interim responses its answer is never
        // seen.
        message.headers_mut().remove(EXPECT);
    }
    if !has_body && framing::anticipates_content(&request.method) {
        message.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from_static("0"));
    }
    if takes_additions(&request.method) {
        add_own(message.headers_mut(), call, conn, &target)?;
    } else {
        // A check among the functions holds for each request.
        prepare_head(&mut message.headers().clone(), call, &target)?;
    }
    let request = &call.request;
    if is_chunked {
        // hyper would leave the content of a GET out.
        message.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    match (conn.protocol(), conn.forwarding()) {
        (Protocol::Http1, None) => *message.uri_mut() = target,
        (Protocol::Http1, Some(_)) if target.path() == "*" => {
            // It would be a URL without a path (RFC 9112 §3.2.4), which a `Uri` always has.
            return Err(Error::refused_request("`*` cannot be sent through a proxy that forwards requests"));
        }
        (Protocol::Http1, Some(_)) => {
            *message.uri_mut() = absolute(request, target, request.key().origin.authority().cloned());
        }
        (Protocol::Http2, _) => {
            // The host of HTTP/1.1 is a part of the target here (RFC 9113 §8.3.1).
            let authority = match message.headers_mut().remove(HOST) {
                Some(host) => host.as_bytes().try_into().ok(),
                None => request.key().origin.authority().cloned(),
            };
            *message.uri_mut() = absolute(request, target, authority);
            if let Some(protocol) = request.options.extended_protocol() {
                message.extensions_mut().insert(hyper::ext::Protocol::from(protocol));
            }
        }
    }
    Ok(())
}

/// Adds all that the client adds by itself: cookies, a token, the headers of observers and of functions, and those for a proxy that
/// forwards. The response to a TRACE would show them (RFC 9110 §9.3.8).
fn add_own(headers: &mut HeaderMap, call: &Call<'_>, conn: &Conn<OutgoingBody>, target: &Uri) -> Result<()> {
    #[cfg(feature = "cookies")]
    if let Some(store) = &call.client.defaults.cookies
        && call.request.uses_cookie_store()
    {
        cookies::add(store, &call.request.url, headers);
    }
    if let Some(authorization) = &call.authorization {
        authorization.add_to(headers);
    }
    if let Some(observed) = &call.observed {
        let added = call.trace.headers_to_add(observed, headers);
        add_observed(headers, added);
    }
    prepare_head(headers, call, target)?;
    if let Some(proxy) = conn.forwarding().filter(|_| conn.protocol() == Protocol::Http1) {
        if let Some(authorization) = &proxy.authorization {
            headers.entry(PROXY_AUTHORIZATION).or_insert_with(|| authorization.clone());
        }
        add_missing(headers, &proxy.headers);
    }
    Ok(())
}

/// Has the functions of `before_attempt` change the head of an attempt, or refuse it.
fn prepare_head(headers: &mut HeaderMap, call: &Call<'_>, target: &Uri) -> Result<()> {
    let functions = &call.client.defaults.before_attempt;
    if functions.is_empty() {
        return Ok(());
    }
    let request = &call.request;
    let body = match &request.body {
        Some(body) => body.as_bytes(),
        None if request.body_is_replayable() => Some(&b""[..]),
        None => None,
    };
    let mut head = AttemptHead { method: &request.method, url: &request.url, target, headers, body };
    call.trace.in_own_code(|| prepare(functions, &mut head))
}

/// Returns true if the request asks for a tunnel to its URL's host: a CONNECT without a protocol.
fn is_tunnel(request: &Request) -> bool {
    request.method == Method::CONNECT && request.options.extended_protocol().is_none()
}

/// Returns the target of a request for a tunnel, which is a host and a port (RFC 9112 §3.2.3). The `Host` says the same, unless
/// the request has one.
fn ask_for_tunnel(request: &mut Request) -> Result<Uri> {
    let place = request.key().origin.to_string();
    let cannot_be_sent = "the URL's host cannot be sent";
    let host = HeaderValue::try_from(&place).map_err(|error| Error::invalid_header(cannot_be_sent, error))?;
    request.headers.entry(HOST).or_insert(host);
    Uri::try_from(place).map_err(|error| Error::invalid_request(cannot_be_sent, error))
}

/// Creates the record of the body's progress, if one is needed: for `Expect: 100-continue`, for a stream, whose length
/// is not known, and over HTTP/2, where the connection's bytes are not those of one request.
pub(in crate::client::call) fn upload(request: &CurrentRequest, conn: &Conn<OutgoingBody>) -> Option<Arc<Upload>> {
    let Request { body, headers, .. } = &**request;
    let body = body.as_ref().filter(|body| !body.is_empty())?;
    let expected = headers.get(EXPECT).map(HeaderValue::as_bytes);
    let expects_continue = expected.is_some_and(|expected| expected.eq_ignore_ascii_case(b"100-continue"));
    if expects_continue && can_expect_continue(request, conn) {
        return Some(Arc::new(Upload::expecting_continue()));
    }
    if body.is_streamed() || conn.protocol() == Protocol::Http2 {
        return Some(Arc::default());
    }
    None
}

/// Returns true if the server can send a 100 (Continue). HTTP/1.0 has no interim responses (RFC 9110 §10.1.1), and over
/// HTTP/2 hyper does not pass them on.
fn can_expect_continue(request: &Request, conn: &Conn<OutgoingBody>) -> bool {
    conn.version() == Version::HTTP_11 && request.options.required_version() != Some(Version::HTTP_10)
}

/// Returns the headers of the message. Without an `Accept` of the request, they accept anything. Over HTTP/1.1 they name
/// the origin's host, unless the request names one itself.
fn headers(request: &mut Request, conn: &Conn<OutgoingBody>) -> HeaderMap {
    let Request { headers, key, options, .. } = request;
    let key = key.as_ref().expect("the URL of a request is checked before it is sent");
    let names_host = conn.protocol() == Protocol::Http1;
    let is_passed_on = options.is_passed_on();
    if headers.is_empty() && !is_passed_on {
        if names_host {
            return key.origin.plain_headers().clone();
        }
        return HeaderMap::from_iter([(ACCEPT, ANYTHING)]);
    }
    // Into the request's own headers, because their copy would have to grow for it. A redirect to another origin
    // removes the host.
    if names_host {
        headers.entry(HOST).or_insert_with(|| key.origin.host_header().clone());
    }
    if !is_passed_on {
        headers.entry(ACCEPT).or_insert(ANYTHING);
    }
    headers.take_to_send()
}

/// Adds the headers of `added` whose names are not among `headers`.
fn add_missing(headers: &mut HeaderMap, added: &HeaderMap) {
    for name in added.keys() {
        if !headers.contains_key(name) {
            headers.extend(added.get_all(name).iter().map(|value| (name.clone(), value.clone())));
        }
    }
}

/// Adds the scheme and the authority to a target, unless it is a tunnel's, which is complete.
fn absolute(request: &Request, target: Uri, authority: Option<Authority>) -> Uri {
    let Some(authority) = authority.filter(|_| target.authority().is_none()) else { return target };
    let mut parts = target.into_parts();
    parts.scheme = Some(match request.key().origin.scheme() {
        Scheme::Http => http::uri::Scheme::HTTP,
        Scheme::Https => http::uri::Scheme::HTTPS,
    });
    parts.authority = Some(authority);
    Uri::from_parts(parts).expect("a scheme, an authority and a path make a URI")
}

/// Names the trailers that the request's body will end with, beside those that the user has named.
pub(in crate::client::call) fn announce_trailers(request: &CurrentRequest, headers: &mut HeaderMap) {
    if let Some(names) = request.body.as_ref().and_then(Body::trailer_names) {
        framing::announce_trailers(headers, names);
    }
}
