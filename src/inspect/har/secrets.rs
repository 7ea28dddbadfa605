//! A core: the removal of secrets from headers and URLs that are shown to others.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};

/// Stands for a header's value.
const REMOVED: &str = "[removed]";
/// Stands for a value in a query. It may stand in a URL.
const REMOVED_IN_QUERY: &str = "removed";
/// Parts of the names of headers whose values may let others act as the sender: `Authorization`, `Set-Cookie`, `X-Api-Key`,
/// `X-Amz-Security-Token` and so on. A header too many is better than one too few.
const SECRET: [&str; 17] = [
    "assertion",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "csrf",
    "dpop",
    "jwt",
    "key",
    "otp",
    "passw",
    "sas",
    "secret",
    "session",
    "signature",
    "ticket",
    "token",
];
/// Headers whose values are URLs.
const URLS: [&str; 4] = ["content-location", "location", "referer", "refresh"];
/// The schemes after which the slashes may be missing (<https://url.spec.whatwg.org/#special-scheme>), but that of files.
const SPECIAL_SCHEMES: [&str; 5] = ["http:", "https:", "ws:", "wss:", "ftp:"];
/// The header whose value is a list of URLs in angle brackets (RFC 8288 §3).
const LINK: &str = "link";

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
        match name {
            LINK => self.links(&text).into(),
            name if URLS.contains(&name) => self.url(&text).into(),
            _ => text,
        }
    }

    /// Returns a list of links as it is shown: each URL in angle brackets, and each in a quoted parameter, such as `anchor`.
    fn links(self, text: &str) -> String {
        if !text.contains('<') {
            return self.url(text);
        }
        let mut shown = String::new();
        let mut rest = text;
        while let Some(open) = rest.find(['<', '"']) {
            let close = if rest[open..].starts_with('<') { '>' } else { '"' };
            let begin = open + 1;
            // A link without an end is one up to the end of the text.
            let end = rest[begin..].find(close).map_or(rest.len(), |length| begin + length);
            shown.push_str(&rest[..begin]);
            shown.push_str(&self.url(&rest[begin..end]));
            rest = &rest[end..];
            if let Some(after) = rest.strip_prefix(close) {
                shown.push(close);
                rest = after;
            }
        }
        shown + rest
    }

    /// Returns a cookie's value as it is shown.
    pub(super) fn cookie(self, value: &str) -> &str {
        if self.headers { value } else { REMOVED }
    }

    /// Returns a URL or a part of one as it is shown: without user and password, and without its fragment, which is not sent.
    pub(super) fn url(self, url: &str) -> String {
        // Parsers of URLs skip these characters, so that they must not hide a host.
        let url = url.replace(['\t', '\r', '\n'], "");
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

/// Returns a URL without the user and password before its host. Browsers and this crate read a backslash as a slash, and any number
/// of slashes, none too, after a scheme such as `https:` (<https://url.spec.whatwg.org/#special-authority-ignore-slashes-state>).
fn without_user(url: &str) -> String {
    let slashed = url.replace('\\', "/");
    let Some(host) = host_at(&slashed) else { return url.to_owned() };
    let end = slashed[host..].find('/').map_or(url.len(), |length| host + length);
    match url[host..end].rfind('@') {
        Some(at) => format!("{}{}", &url[..host], &url[host + at + 1..]),
        None => url.to_owned(),
    }
}

/// Returns the place at which the user or the host begins; `None` if there is no host.
fn host_at(url: &str) -> Option<usize> {
    let lower = url.to_ascii_lowercase();
    let after_scheme = SPECIAL_SCHEMES.iter().filter_map(|scheme| scheme_end(&lower, scheme));
    let slashes = after_scheme.chain(url.find("//")).min()?;
    Some(url.len() - url[slashes..].trim_start_matches('/').len())
}

/// Returns the end of a scheme that does not stand within a path or a word.
fn scheme_end(url: &str, scheme: &str) -> Option<usize> {
    let is_within = |char: char| char.is_alphanumeric() || char == '/';
    let (begin, _) = url.match_indices(scheme).find(|(begin, _)| !url[..*begin].ends_with(is_within))?;
    Some(begin + scheme.len())
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
            "x-otp",
            "dpop",
            "x-service-ticket",
            "x-ms-sas",
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

    #[test]
    fn a_user_is_found_however_many_slashes_follow_the_scheme() {
        for (url, shown) in [
            ("https:me:pw@a.test/x", "https:a.test/x"),
            ("https:/me:pw@a.test/x", "https:/a.test/x"),
            ("HTTPS:///me:pw@a.test/x", "HTTPS:///a.test/x"),
            ("https:\\me:pw@a.test/x", "https:\\a.test/x"),
            ("0; url=https:/me:pw@a.test/x", "0; url=https:/a.test/x"),
            ("////me:pw@a.test/x", "////a.test/x"),
            ("ht\ttps:/me:pw@a.test/x", "https:/a.test/x"),
            ("//me:pw@a.test/;http:x", "//a.test/;http:x"),
            ("custom://me:pw@a.test/x", "custom://a.test/x"),
        ] {
            assert_eq!(ALL.url(url), shown);
            // The parser of this crate's URLs finds the password too.
            if let Ok(parsed) = url::Url::parse(url) {
                assert_eq!(parsed.password(), Some("pw"), "{url}");
            }
        }
        assert_eq!(ALL.url("/http:/x@y"), "/http:/x@y");
    }

    #[test]
    fn each_url_of_a_list_of_links_is_cleared() {
        let link = |text: &'static str| NONE.header(&header::LINK, &HeaderValue::from_static(text)).into_owned();
        assert_eq!(
            link("<https://me:pw@api/x?access_token=s3cret>; rel=\"next\", </y?page=2#z>; rel=prev"),
            "<https://api/x?access_token=removed>; rel=\"next\", </y?page=removed>; rel=prev"
        );
        assert_eq!(link("<https://api/x>; anchor=\"/y?key=s3cret\""), "<https://api/x>; anchor=\"/y?key=removed\"");
        assert_eq!(link("<https://api/x?key=s3cret"), "<https://api/x?key=removed");
        assert_eq!(link("/x?key=s3cret"), "/x?key=removed");
    }
}
