//! A core: the cookies of requests and responses, as HAR lists them.

use std::time::SystemTime;

use speeddial::header::{COOKIE, SET_COOKIE};
use speeddial::http::{HeaderMap, HeaderName};

/// A cookie that a request sends or a response sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HarCookie {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) path: Option<String>,
    pub(super) domain: Option<String>,
    /// The `Expires` attribute, if it is a date of HTTP.
    pub(super) expires: Option<SystemTime>,
    pub(super) http_only: bool,
    pub(super) secure: bool,
}

/// Returns the cookies of a request with these headers.
pub(super) fn sent_cookies(headers: &HeaderMap) -> Vec<HarCookie> {
    let lines = texts(headers, &COOKIE);
    lines.iter().flat_map(|line| line.split(';')).filter_map(named).collect()
}

/// Returns the cookies that a response with these headers sets, each as its header tells it.
pub(super) fn received_cookies(headers: &HeaderMap) -> Vec<HarCookie> {
    texts(headers, &SET_COOKIE).iter().filter_map(|line| received(line)).collect()
}

fn texts(headers: &HeaderMap, name: &HeaderName) -> Vec<String> {
    headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
}

fn received(line: &str) -> Option<HarCookie> {
    let (pair, attributes) = line.split_once(';').unwrap_or((line, ""));
    let mut cookie = named(pair)?;
    for attribute in attributes.split(';') {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        let value = value.trim();
        match name.trim().to_ascii_lowercase().as_str() {
            "path" => cookie.path = Some(value.to_owned()),
            "domain" => cookie.domain = Some(value.to_owned()),
            "expires" => cookie.expires = httpdate::parse_http_date(value).ok(),
            "httponly" => cookie.http_only = true,
            "secure" => cookie.secure = true,
            _ => {}
        }
    }
    Some(cookie)
}

/// Returns a cookie with the name and the value of `name=value`; `None` if there is no name.
///
/// A text without an equals sign is a value without a name (RFC 6265bis §5.6), and would be shown as a name here.
fn named(pair: &str) -> Option<HarCookie> {
    let (name, value) = pair.split_once('=')?;
    let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
    if name.is_empty() { None } else { Some(HarCookie { name, value, ..HarCookie::default() }) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use speeddial::http::HeaderValue;

    use super::*;

    fn headers(name: &HeaderName, values: &[&[u8]]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_bytes(value).unwrap())).collect()
    }

    #[test]
    fn the_cookies_of_a_request_are_pairs() {
        let cookies = sent_cookies(&headers(&COOKIE, &[b"a=1; b = x=y ;; secret; =nameless", b"c=\xff"]));
        let pairs: Vec<_> = cookies.iter().map(|cookie| (&*cookie.name, &*cookie.value)).collect();
        assert_eq!(pairs, [("a", "1"), ("b", "x=y"), ("c", "\u{fffd}")], "a value without a name is not shown");
    }

    #[test]
    fn the_cookies_of_a_response_have_attributes() {
        let line = b"id=7; Path=/x; domain=a.test; EXPIRES=Thu, 01 Jan 1970 00:00:09 GMT; HttpOnly; Secure; Max-Age=1";
        let expected = HarCookie {
            name: "id".to_owned(),
            value: "7".to_owned(),
            path: Some("/x".to_owned()),
            domain: Some("a.test".to_owned()),
            expires: Some(UNIX_EPOCH + Duration::from_secs(9)),
            http_only: true,
            secure: true,
        };
        assert_eq!(received_cookies(&headers(&SET_COOKIE, &[line])), [expected]);
        let plain = received_cookies(&headers(&SET_COOKIE, &[b"a=", b"secret; Path=/", b"", b"b=1; expires=soon"]));
        let names: Vec<_> = plain.iter().map(|cookie| (&*cookie.name, cookie.expires, cookie.secure)).collect();
        assert_eq!(names, [("a", None, false), ("b", None, false)]);
    }
}
