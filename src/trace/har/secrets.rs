//! A core: the removal of secrets from headers and URLs that are shown to others.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};

/// Stands for a header's value.
const REMOVED: &str = "[removed]";
/// Stands for a value in a query. It may stand in a URL.
const REMOVED_IN_QUERY: &str = "removed";
/// Parts of the names of headers whose values may let others act as the sender: `Authorization`, `Set-Cookie`, `X-Api-Key`,
/// `X-Amz-Security-Token` and so on. A header too many is better than one too few.
const SECRET: [&str; 13] = [
    "assertion",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "csrf",
    "jwt",
    "key",
    "passw",
    "secret",
    "session",
    "signature",
    "token",
];
/// Headers whose values are URLs.
const URLS: [&str; 4] = ["content-location", "location", "referer", "refresh"];

/// The secrets that are shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shown {
    /// True if the values of headers with secrets are shown.
    pub(super) headers: bool,
    /// True if the values in queries are shown.
    pub(super) queries: bool,
}

impl Shown {
    /// Returns a header's value as it is shown.
    pub(super) fn header<'a>(self, name: &HeaderName, value: &'a HeaderValue) -> Cow<'a, str> {
        let name = name.as_str();
        let is_secret = value.is_sensitive() || SECRET.iter().any(|part| name.contains(part));
        if is_secret && !self.headers {
            return REMOVED.into();
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        if URLS.contains(&name) { self.url(&text).into() } else { text }
    }

    /// Returns a cookie's value as it is shown.
    pub(super) fn cookie(self, value: &str) -> &str {
        if self.headers { value } else { REMOVED }
    }

    /// Returns a URL or a part of one as it is shown: without user and password, and without its fragment, which is not sent.
    pub(super) fn url(self, url: &str) -> String {
        let url = url.split('#').next().unwrap_or_default();
        let (place, query) = match url.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (url, None),
        };
        let place = without_user(place);
        match query {
            Some(query) => format!("{place}?{}", self.query(query)),
            None => place,
        }
    }

    /// Returns a query as it is shown. A part of it without a name is removed as a whole.
    pub(super) fn query(self, query: &str) -> String {
        if self.queries {
            return query.to_owned();
        }
        let part = |part: &str| match part.split_once('=') {
            Some((_, "")) => part.to_owned(),
            Some((name, _)) => format!("{name}={REMOVED_IN_QUERY}"),
            None if part.is_empty() => String::new(),
            None => REMOVED_IN_QUERY.to_owned(),
        };
        query.split('&').map(part).collect::<Vec<_>>().join("&")
    }
}

/// Returns a URL without the user and password before its host. Browsers and this crate read a backslash as a slash.
fn without_user(url: &str) -> String {
    let slashed = url.replace('\\', "/");
    let Some(host) = slashed.find("//").map(|slashes| slashes + 2) else { return url.to_owned() };
    let end = slashed[host..].find('/').map_or(url.len(), |length| host + length);
    match url[host..end].rfind('@') {
        Some(at) => format!("{}{}", &url[..host], &url[host + at + 1..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    const NONE: Shown = Shown { headers: false, queries: false };
    const ALL: Shown = Shown { headers: true, queries: true };

    #[test]
    fn headers_that_let_others_act_as_the_sender_are_removed() {
        let value = HeaderValue::from_static("s3cret");
        let names = [
            "authorization",
            "proxy-authorization",
            "cookie",
            "set-cookie",
            "x-api-key",
            "x-amz-security-token",
            "x-jwt-assertion",
        ];
        for name in names.map(HeaderName::from_static) {
            assert_eq!(NONE.header(&name, &value), REMOVED, "{name}");
            assert_eq!(ALL.header(&name, &value), "s3cret", "{name}");
        }
        for name in
            ["accept", "content-type", "etag", "date", "user-agent", "server-timing"].map(HeaderName::from_static)
        {
            assert_eq!(NONE.header(&name, &value), "s3cret", "{name}");
        }
        assert_eq!((NONE.cookie("s3cret"), ALL.cookie("s3cret")), (REMOVED, "s3cret"));
        let mut marked = value;
        marked.set_sensitive(true);
        assert_eq!(NONE.header(&header::ACCEPT, &marked), REMOVED);
        assert_eq!(NONE.header(&header::ACCEPT, &HeaderValue::from_bytes(b"\xff").unwrap()), "\u{fffd}");
    }

    #[test]
    fn queries_keep_their_names_only() {
        assert_eq!(
            NONE.url("http://a.test/x?q=1&token=abc%3D&empty=&&bare#top"),
            "http://a.test/x?q=removed&token=removed&empty=&&removed"
        );
        assert_eq!(ALL.url("http://a.test/x?q=1&bare#top"), "http://a.test/x?q=1&bare");
        assert_eq!(NONE.url("/x?a=b=c"), "/x?a=removed");
        assert_eq!(NONE.url("/x?"), "/x?");
        assert_eq!(NONE.header(&header::LOCATION, &HeaderValue::from_static("/next?code=7")), "/next?code=removed");
    }

    #[test]
    fn a_user_and_a_password_are_never_shown() {
        for url in ["http://me:p@ss@a.test/@x", "http://me@a.test/@x", "//me:p@a.test/@x", "0; url=http://me@a.test/@x"]
        {
            assert!(ALL.url(url).ends_with("//a.test/@x"), "{}", ALL.url(url));
        }
        assert_eq!(ALL.url("http:\\\\me:p@a.test\\@x"), "http:\\\\a.test\\@x");
        assert_eq!(ALL.url("/x@y"), "/x@y");
        assert_eq!(ALL.url("http://a.test:81"), "http://a.test:81");
    }
}
