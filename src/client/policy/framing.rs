//! The framing of messages, and what of a message is about one connection (RFC 9110 §6.5 and §7.6, RFC 9112 §6, RFC 9113 §8.2). A core.

use std::time::Duration;

use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, MAX_FORWARDS, PRAGMA,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RANGE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
    WWW_AUTHENTICATE,
};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

use crate::client::policy::framing;
use crate::error::{Error, Result};

/// The headers that frame a message or belong to its connection.
pub(in crate::client) const FRAMING: [HeaderName; 8] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The content of a request, as far as it is known before it is sent.
pub(in crate::client) struct Content<'a> {
    pub(in crate::client) length: Option<u64>,
    /// The trailers that the user has set.
    pub(in crate::client) trailers: Option<&'a HeaderMap>,
    /// True if HTTP/1.1 sends it in chunks.
    pub(in crate::client) needs_chunks: bool,
}

/// Returns the first part of a request that frames it wrongly, or takes the connection out of the client's hand, in the words of an error
/// message. A server could read two requests where one was written (RFC 9112 §11.2).
pub(in crate::client) fn contradiction(
    headers: &HeaderMap,
    content: &Content<'_>,
    asks_upgrade: bool,
    required: Option<Version>,
) -> Option<&'static str> {
    if has_wrong_length(headers, content.length) || headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        Some("a content-length that is not the body's")
    } else if headers.contains_key(CONTENT_LENGTH) && content.trailers.is_some() {
        Some("a content-length beside trailers, for which the body has to be sent in chunks")
    } else if headers.contains_key(TRANSFER_ENCODING) {
        Some("a transfer-encoding other than chunked alone: the body's framing is the client's to choose")
    } else if has_unknown_connection_option(headers, asks_upgrade) {
        Some("a connection header that says more than close, keep-alive or upgrade: the connection is the client's")
    } else if asks_upgrade && !has_connection_option(headers, b"upgrade") {
        // Intermediaries would pass it on, though it is for them (RFC 9110 §7.8).
        Some("an upgrade header without `connection: upgrade`")
    } else if required == Some(Version::HTTP_10) && content.needs_chunks {
        Some("a body that cannot be sent over HTTP/1.0: its length is not known, or it has trailers")
    } else if content.trailers.is_some_and(|trailers| trailers.keys().any(is_no_trailer)) {
        Some("a trailer that has to be a header")
    } else {
        None
    }
}

/// Removes a `Transfer-Encoding` of nothing but `chunked`: the body decides whether it is sent in chunks. hyper would send chunks of
/// content whose length is known, and claim content where there is none.
pub(in crate::client) fn leave_chunks_to_body(headers: &mut HeaderMap) {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = codings.next().is_some_and(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_chunked && codings.next().is_none() && !headers.contains_key(CONTENT_LENGTH) {
        headers.remove(TRANSFER_ENCODING);
    }
}

/// Returns true if a message has a transfer coding other than `chunked` (RFC 9112 §6.1). hyper decodes that one alone, and the content
/// would be read, or passed on, as coded bytes. `identity` is no coding, and HTTP knows it no longer.
pub(in crate::client) fn has_other_coding(headers: &HeaderMap) -> bool {
    let known: [&[u8]; 3] = [b"chunked", b"identity", b""];
    !members(headers, &TRANSFER_ENCODING).all(|coding| known.iter().any(|known| coding.eq_ignore_ascii_case(known)))
}

/// Returns true if a `Content-Length` differs from the body's length, or is no number where that length is not known.
fn has_wrong_length(headers: &HeaderMap, length: Option<u64>) -> bool {
    let Some(announced) = headers.get(CONTENT_LENGTH) else { return false };
    match length {
        Some(length) => announced.as_bytes() != length.to_string().as_bytes(),
        None => number(announced).is_none(),
    }
}

/// Returns the length that a request announces for its content.
pub(in crate::client) fn announced_length(headers: &HeaderMap) -> Option<u64> {
    number(headers.get(CONTENT_LENGTH)?)
}

/// Writes a `Content-Length` that is repeated, in one field or in several, as one value. Leaves out one that is none (RFC 9110 §8.6).
pub(in crate::client) fn write_length_once(headers: &mut HeaderMap) {
    if !headers.contains_key(CONTENT_LENGTH) {
        return;
    }
    match repeated_length(headers) {
        Some(length) => drop(headers.insert(CONTENT_LENGTH, length.into())),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
}

/// Returns the length that all values of `Content-Length` agree on.
fn repeated_length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths = members(headers, &CONTENT_LENGTH).map(|length| number(&HeaderValue::from_bytes(length).ok()?));
    let first = lengths.next()?;
    first.filter(|_| lengths.all(|other| other == first))
}

/// Parses a number of digits alone.
fn number(value: &HeaderValue) -> Option<u64> {
    digits(value)?.parse().ok()
}

/// Returns a value that is nothing but digits: `parse` would take a sign as well.
fn digits(value: &HeaderValue) -> Option<&str> {
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    value.to_str().ok().filter(is_number)
}

/// Returns true if a `Connection` header has an option other than `close`, `keep-alive`, `te`, and `upgrade` if the request
/// asks for one.
fn has_unknown_connection_option(headers: &HeaderMap, asks_upgrade: bool) -> bool {
    let known: [&[u8]; 4] = [b"close", b"keep-alive", b"te", b"upgrade"];
    let known = if asks_upgrade { &known[..] } else { &known[..3] };
    !members(headers, &CONNECTION).all(|option| known.iter().any(|known| option.eq_ignore_ascii_case(known)))
}

/// Returns true if a `Connection` header has this option.
fn has_connection_option(headers: &HeaderMap, option: &[u8]) -> bool {
    members(headers, &CONNECTION).any(|other| other.eq_ignore_ascii_case(option))
}

/// Returns the members of a list in headers, each by itself: one that is not text says nothing about the others.
fn members<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Returns the names in a list of headers.
fn names(members: impl Iterator<Item = impl AsRef<[u8]>>) -> impl Iterator<Item = HeaderName> {
    members.filter_map(|name| HeaderName::from_bytes(name.as_ref()).ok())
}

/// Returns the names in the `Trailer` headers.
pub(in crate::client) fn trailer_names(headers: &HeaderMap) -> Vec<HeaderName> {
    names(members(headers, &TRAILER)).collect()
}

/// Returns names as a list in a header; `None` if there are none.
pub(in crate::client) fn list_of<'a>(names: impl IntoIterator<Item = &'a HeaderName>) -> Option<HeaderValue> {
    let names: Vec<_> = names.into_iter().map(HeaderName::as_str).collect();
    HeaderValue::try_from(names.join(", ")).ok().filter(|list| !list.is_empty())
}

/// Names the trailers that a body will end with in a `Trailer` header (RFC 9110 §6.6.2), beside those that the user has named.
pub(in crate::client) fn announce_trailers(headers: &mut HeaderMap, announced: HeaderValue) {
    let named = trailer_names(headers);
    let of_body = announced.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let all_are_named = names(of_body).all(|name| named.contains(&name));
    if !all_are_named {
        headers.append(TRAILER, announced);
    }
}

/// Returns true if a field frames, routes, authorizes or controls the message, or describes its content, so that it must not come
/// after the body (RFC 9110 §6.5.1).
fn is_no_trailer(name: &HeaderName) -> bool {
    const REFUSED: [HeaderName; 11] = [
        AUTHORIZATION,
        CACHE_CONTROL,
        COOKIE,
        EXPECT,
        HOST,
        MAX_FORWARDS,
        PRAGMA,
        RANGE,
        SET_COOKIE,
        TRAILER,
        WWW_AUTHENTICATE,
    ];
    // A digest of the content can only be known at its end (RFC 9530 §2).
    let describes_content =
        name.as_str().starts_with("content-") && *name != "content-digest" && *name != "content-md5";
    let has_other_use = OF_CONNECTION.contains(name) || REFUSED.contains(name);
    describes_content || name.as_str().starts_with("if-") || has_other_use
}

/// Returns true if a method anticipates content, so that a `Content-Length` of 0 is sent for none (RFC 9110 §8.6).
pub(in crate::client) fn anticipates_content(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Returns true if requests with this method have no framing unless they have content: many servers refuse any.
pub(in crate::client) fn is_usually_empty(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Says of a `TE` that it is about this connection alone (RFC 9110 §10.1.4). HTTP/2 knows that (RFC 9113 §8.2.2), and HTTP/1.0 has no
/// trailers.
pub(in crate::client) fn bind_te(headers: &mut HeaderMap, version: Version) {
    if !headers.contains_key(TE) {
        return;
    }
    match version {
        Version::HTTP_2 => drop(headers.remove(CONNECTION)),
        Version::HTTP_11 if has_connection_option(headers, b"te") => {}
        Version::HTTP_11 => drop(headers.append(CONNECTION, HeaderValue::from_static("TE"))),
        _ => drop(headers.remove(TE)),
    }
}

/// The fields that are about one connection, beside those that `Connection` names.
const OF_CONNECTION: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The fields of one message that are about the connection that it came on, and stay there when it is passed on (RFC 9110 §7.6.1).
#[derive(Clone)]
pub(in crate::client) struct ConnectionFields {
    /// The names in the message's `Connection`, beside [`OF_CONNECTION`].
    named: Vec<HeaderName>,
}

impl ConnectionFields {
    fn of(headers: &HeaderMap) -> Self {
        let named = names(members(headers, &CONNECTION)).filter(|name| !is_of_gateways(name));
        Self { named: named.collect() }
    }

    /// Removes them from the message's headers, or from its trailers.
    pub(in crate::client) fn leave(&self, fields: &mut HeaderMap) {
        for name in OF_CONNECTION.iter().chain(&self.named) {
            fields.remove(name);
        }
    }
}

/// Removes from the headers of a message that is passed on what is about the connection that it came on, and a length that is not its
/// body's (RFC 9112 §6.3). Returns the fields that its trailers leave as well.
#[must_use]
pub(in crate::client) fn leave_connection(headers: &mut HeaderMap) -> ConnectionFields {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    }
    let fields = ConnectionFields::of(headers);
    fields.leave(headers);
    fields
}

/// The trailers that a message which is sent can end with.
pub(in crate::client) enum Sendable {
    /// Those of HTTP/2: all that are about no connection (RFC 9113 §8.2.2).
    All,
    /// Those of HTTP/1.1: the ones of them that its head announces with these names (RFC 9110 §6.6.2).
    Announced(Vec<HeaderName>),
}

/// A trailer that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(in crate::client) enum UnsendableTrailer {
    #[error("the body ends with the trailer {0}, which is about one connection, and so never a trailer")]
    OfConnection(HeaderName),
    #[error("the body ends with the trailer {0}, which no `Trailer` header of the request announces")]
    Unannounced(HeaderName),
}

impl Sendable {
    /// Refuses trailers of which one cannot be sent.
    pub(in crate::client) fn check(&self, trailers: &HeaderMap) -> Result<(), UnsendableTrailer> {
        if let Some(name) = trailers.keys().find(|name| OF_CONNECTION.contains(name)) {
            return Err(UnsendableTrailer::OfConnection(name.clone()));
        }
        let Self::Announced(names) = self else { return Ok(()) };
        match trailers.keys().find(|name| !names.contains(name)) {
            Some(name) => Err(UnsendableTrailer::Unannounced(name.clone())),
            None => Ok(()),
        }
    }
}

/// Returns true if a field is what gateways tell each other about a message, so that its sender cannot have it removed.
fn is_of_gateways(name: &HeaderName) -> bool {
    [FORWARDED, VIA].contains(name) || name.as_str().starts_with("x-forwarded-") || name.as_str() == "x-real-ip"
}

/// Makes the headers of a request that came on one connection those of a request on another one.
/// Returns the fields that its trailers leave behind.
#[must_use]
pub(in crate::client) fn pass_on(headers: &mut HeaderMap) -> ConnectionFields {
    let takes_trailers = members(headers, &TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
    let fields = leave_connection(headers);
    // The host is the peer's to choose: over HTTP/2 and in absolute form there always is one.
    headers.remove(HOST);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    join_cookies(headers);
    fields
}

/// Joins the fields into which HTTP/2 splits cookies (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let all: Vec<_> = headers.get_all(COOKIE).iter().collect();
    if all.len() < 2 {
        return;
    }
    let is_sensitive = all.iter().any(|value| value.is_sensitive());
    let bytes = all.iter().map(|value| value.as_bytes()).collect::<Vec<_>>().join(&b"; "[..]);
    let mut joined = HeaderValue::from_bytes(&bytes).expect("values joined by what values may have are one");
    joined.set_sensitive(is_sensitive);
    headers.insert(COOKIE, joined);
}

/// Counts down how often a TRACE or an OPTIONS is passed on (RFC 9110 §7.6.2). Returns false if this was the last time.
pub(in crate::client) fn count_forward(method: &Method, headers: &mut HeaderMap) -> bool {
    if !matches!(*method, Method::TRACE | Method::OPTIONS) {
        return true;
    }
    let Some(left) = headers.get(MAX_FORWARDS).and_then(digits) else { return true };
    // A number above the highest that is counted becomes that.
    let next = left.parse().map_or(Some(u64::MAX), |left: u64| left.checked_sub(1));
    if let Some(next) = next {
        headers.insert(MAX_FORWARDS, next.into());
    }
    next.is_some()
}

/// The extent of a response's content, where hyper does not know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// hyper knows it.
    Framed,
    /// There is no content, whatever the headers say: the request was a HEAD, or the status is 204 or 304 (RFC 9110 §6.4.1).
    Nothing,
    /// So many bytes, behind which hyper would read on.
    Bytes(u64),
}

impl Extent {
    /// Returns the extent of the response to a request with this method. `is_sized` is true if hyper knows its length.
    ///
    /// # Errors
    /// The content has a transfer coding that is not taken off.
    #[inline]
    pub(crate) fn of(method: &Method, head: &Parts, is_sized: bool) -> Result<Self> {
        if *method == Method::HEAD || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(Self::Nothing);
        }
        if head.version == Version::HTTP_2 || is_sized {
            return Ok(Self::Framed);
        }
        if framing::has_other_coding(&head.headers) {
            return Err(Error::coded_response());
        }
        Ok(length_beside_identity(&head.headers).map_or(Self::Framed, Self::Bytes))
    }
}

/// Returns the `Content-Length` beside a `Transfer-Encoding` of `identity`, which is none. HTTP knows it no longer (RFC 9112 §7), and
/// hyper reads to the end of the connection, which such a server may keep open.
fn length_beside_identity(headers: &HeaderMap) -> Option<u64> {
    let only = |name| {
        let mut values = headers.get_all(name).iter();
        let first = values.next()?.to_str().ok()?.trim();
        values.next().is_none().then_some(first)
    };
    only(TRANSFER_ENCODING)?.eq_ignore_ascii_case("identity").then_some(())?;
    // `parse` would take a sign.
    only(CONTENT_LENGTH).filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// The announcements of the `Connection` and `Keep-Alive` headers of HTTP/1.1 (RFC 9112 §9.6, RFC 2068 §19.7.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::client) struct KeepAlive {
    /// The longest the connection should be idle: a little less than the server's timeout.
    pub(in crate::client) idle: Option<Duration>,
    /// True if the server accepts no other request on the connection.
    pub(in crate::client) is_last: bool,
}

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The time by which the client closes an idle connection before the server does, or half of the server's timeout if
/// that is shorter.
const MARGIN: Duration = Duration::from_secs(1);

impl KeepAlive {
    /// Reads the headers of a response. Invalid parts are ignored.
    pub(in crate::client) fn of(headers: &HeaderMap) -> Self {
        let mut keep_alive = Self::default();
        headers.iter().for_each(|(name, value)| keep_alive.note(name, value));
        keep_alive
    }

    /// Reads one header of a response.
    #[inline]
    pub(in crate::client) fn note(&mut self, name: &HeaderName, value: &HeaderValue) {
        if *name == CONNECTION {
            self.is_last |= is_close(value);
        } else if *name == KEEP_ALIVE {
            self.read(value);
        }
    }

    /// Reads the parameters of a `Keep-Alive` header.
    fn read(&mut self, value: &HeaderValue) {
        for parameter in value.to_str().unwrap_or_default().split(',') {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            let Ok(number) = value.trim().trim_matches('"').parse::<u32>() else { continue };
            match name.trim() {
                name if name.eq_ignore_ascii_case("timeout") => {
                    let timeout = Duration::from_secs(number.into());
                    self.idle = Some(timeout - MARGIN.min(timeout / 2));
                }
                name if name.eq_ignore_ascii_case("max") => self.is_last |= number == 0,
                _ => {}
            }
        }
    }
}

/// Returns true if a `Connection` header has the option `close`.
fn is_close(value: &HeaderValue) -> bool {
    let is_close = |option: &[u8]| option.trim_ascii().eq_ignore_ascii_case(b"close");
    value.as_bytes().split(|byte| *byte == b',').any(is_close)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn left(headers: &HeaderMap) -> Vec<&str> {
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn headers_about_the_connection_are_removed_and_those_that_it_names() {
        let mut message = headers(&[
            ("connection", b"close, X-Hop"),
            ("connection", b"x-other,,\t x y"),
            ("x-hop", b"1"),
            ("x-other", b"1"),
            ("x-kept", b"1"),
            ("keep-alive", b"timeout=5"),
            ("proxy-connection", b"keep-alive"),
            ("te", b"trailers"),
            ("upgrade", b"websocket"),
            ("content-length", b"5"),
        ]);
        let _ = leave_connection(&mut message);
        assert_eq!(left(&message), ["content-length", "x-kept"]);
    }

    #[test]
    fn a_token_that_is_no_name_says_nothing_about_the_others_and_what_gateways_say_stays() {
        let mut message = headers(&[
            ("connection", b"\xff, x-hop, X-Forwarded-For, forwarded, via, x-real-ip"),
            ("x-hop", b"1"),
            ("x-forwarded-for", b"192.0.2.1"),
            ("forwarded", b"for=192.0.2.1"),
            ("via", b"1.1 a"),
            ("x-real-ip", b"192.0.2.1"),
        ]);
        let _ = leave_connection(&mut message);
        assert_eq!(left(&message), ["forwarded", "via", "x-forwarded-for", "x-real-ip"]);
    }

    #[test]
    fn a_length_beside_chunks_is_not_passed_on() {
        let mut message = headers(&[("transfer-encoding", b"chunked"), ("content-length", b"5"), ("x-kept", b"1")]);
        let _ = leave_connection(&mut message);
        assert_eq!(left(&message), ["x-kept"]);
    }

    #[test]
    fn trailers_that_a_peer_takes_are_asked_for_on_the_next_connection() {
        for (te, is_sent) in [("trailers", true), ("deflate;q=0.5, Trailers", true), ("deflate", false), ("", false)] {
            let mut message = headers(&[("te", te.as_bytes()), ("connection", b"te")]);
            let _ = pass_on(&mut message);
            assert_eq!(message.get(TE).is_some_and(|te| te == "trailers"), is_sent, "{te}");
            assert!(!message.contains_key(CONNECTION));
            if is_sent {
                for (version, connection) in [(Version::HTTP_11, Some("TE")), (Version::HTTP_2, None)] {
                    let mut sent = message.clone();
                    bind_te(&mut sent, version);
                    let named = sent.get(CONNECTION).map(|value| value.to_str().unwrap());
                    assert_eq!((&sent[TE], named), (&HeaderValue::from_static("trailers"), connection));
                }
                bind_te(&mut message, Version::HTTP_10);
                assert!(message.is_empty(), "HTTP/1.0 has no trailers");
            }
        }
        let mut named = headers(&[("te", b"trailers"), ("connection", b"close, TE")]);
        bind_te(&mut named, Version::HTTP_11);
        assert_eq!(named.get_all(CONNECTION).iter().count(), 1);
        // hyper removes from a message of HTTP/2 what a `Connection` names.
        bind_te(&mut named, Version::HTTP_2);
        assert_eq!(left(&named), ["te"]);
    }

    #[test]
    fn cookies_are_joined() {
        let mut message =
            headers(&[("cookie", b"a=1"), ("cookie", b"b=\xff; c=3"), ("cookie", b"d=4"), ("host", b"a")]);
        let _ = pass_on(&mut message);
        assert_eq!(message, headers(&[("cookie", b"a=1; b=\xff; c=3; d=4")]));
    }

    #[test]
    fn traces_and_options_are_passed_on_as_often_as_they_say() {
        let counted = |method: Method, max: &'static [u8]| {
            let mut headers = headers(&[("max-forwards", max)]);
            count_forward(&method, &mut headers).then(|| headers["max-forwards"].to_str().unwrap().to_owned())
        };
        for method in [Method::TRACE, Method::OPTIONS] {
            assert_eq!((counted(method.clone(), b"0"), counted(method.clone(), b"00")), (None, None));
            assert_eq!(counted(method.clone(), b"10").as_deref(), Some("9"));
            assert_eq!(counted(method.clone(), b"-1").as_deref(), Some("-1"), "it is not valid, and not ours");
            let highest = "18446744073709551615";
            for more in [&b"18446744073709551616"[..], b"99999999999999999999999999"] {
                assert_eq!(counted(method.clone(), more).as_deref(), Some(highest), "it is the most that is counted");
            }
            assert_eq!(counted(method.clone(), b"").as_deref(), Some(""));
        }
        assert_eq!(counted(Method::GET, b"0").as_deref(), Some("0"));
    }

    #[test]
    fn chunks_alone_are_left_to_the_body_and_everything_else_is_refused() {
        let content = Content { length: Some(5), trailers: None, needs_chunks: false };
        for (codings, has_length, is_left_out) in [
            (&["chunked"][..], false, true),
            (&["Chunked"], false, true),
            (&[""], false, false),
            (&["identity"], false, false),
            (&["gzip, chunked"], false, false),
            (&["chunked, chunked"], false, false),
            (&["chunked", "chunked"], false, false),
            (&["chunked", "gzip"], false, false),
            (&["chunked"], true, false),
        ] {
            let mut headers = HeaderMap::new();
            for coding in codings {
                headers.append(TRANSFER_ENCODING, HeaderValue::from_static(coding));
            }
            if has_length {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static("5"));
            }
            leave_chunks_to_body(&mut headers);
            assert_eq!(headers.is_empty(), is_left_out, "{codings:?}");
            assert_eq!(contradiction(&headers, &content, false, None).is_none(), is_left_out, "{codings:?}");
        }
    }

    #[test]
    fn a_length_is_a_number_of_digits() {
        for (text, length) in [("5", Some(5)), ("+5", None), ("", None), ("18446744073709551616", None), ("0x5", None)]
        {
            assert_eq!(announced_length(&headers(&[("content-length", text.as_bytes())])), length, "{text}");
        }
    }
}

#[cfg(test)]
mod extent_tests {
    use super::*;

    #[test]
    fn a_length_counts_beside_identity_alone() {
        let extent = |method: Method, status: u16, headers: &[(&str, &str)]| {
            let mut response = http::Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            Extent::of(&method, &response.body(()).unwrap().into_parts().0, false).ok()
        };
        let (identity, five) = (("transfer-encoding", " Identity"), ("content-length", "5"));
        assert_eq!(extent(Method::GET, 200, &[identity, five]), Some(Extent::Bytes(5)));
        for headers in [
            &[five][..],
            &[identity],
            &[("transfer-encoding", "chunked, chunked"), five],
            &[identity, identity, five],
            &[identity, five, five],
            &[identity, ("content-length", "+5")],
            &[identity, ("content-length", "")],
        ] {
            assert_eq!(extent(Method::GET, 200, headers), Some(Extent::Framed), "{headers:?}");
        }
        let gzip = ("transfer-encoding", "gzip");
        for headers in [&[gzip][..], &[gzip, five], &[identity, gzip], &[("transfer-encoding", "gzip, chunked")]] {
            assert_eq!(extent(Method::GET, 200, headers), None, "{headers:?}");
            assert_eq!(extent(Method::HEAD, 200, headers), Some(Extent::Nothing), "{headers:?}");
        }
        assert_eq!(extent(Method::HEAD, 200, &[identity, five]), Some(Extent::Nothing));
        assert_eq!([204, 304].map(|status| extent(Method::GET, status, &[five])), [Some(Extent::Nothing); 2]);
    }
}

#[cfg(test)]
mod keep_alive_tests {
    use super::*;

    fn parsed(text: &'static str) -> (Option<u128>, bool) {
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("keep-alive"), text.parse().unwrap())]);
        let KeepAlive { idle, is_last } = KeepAlive::of(&headers);
        (idle.map(|idle| idle.as_millis()), is_last)
    }

    #[test]
    fn the_client_closes_a_little_before_the_server() {
        assert_eq!(KeepAlive::of(&HeaderMap::new()), KeepAlive::default());
        assert!(KeepAlive::of(&HeaderMap::from_iter([(CONNECTION, "Close".parse().unwrap())])).is_last);
        assert_eq!(parsed("timeout=5, max=1000"), (Some(4_000), false));
        assert_eq!(parsed(" Max = 0 ,TIMEOUT= \"15\""), (Some(14_000), true));
        assert_eq!((parsed("timeout=1"), parsed("timeout=0")), ((Some(500), false), (Some(0), false)));
    }

    #[test]
    fn invalid_parts_are_ignored() {
        for text in ["", "5", "timeout", "timeout=", "timeout=-1", "timeout=5s", "timeout=99999999999", "max=x", "a=1"]
        {
            assert_eq!(parsed(text), (None, false), "{text}");
        }
    }
}
