//! URLs and headers without their secrets, as this crate's errors, spans and documents show them. A core.
//!
//! A program that logs a request, or an adapter that puts a URL into the errors of another library, asks the same functions:
//!
//! ```
//! use speeddial::redact::{self, Query};
//!
//! let url = "https://me:hunter2@api.test/items?page=2&token=s3cret#top";
//! assert_eq!(redact::url(url, Query::LeftOut), "https://api.test/items");
//! assert_eq!(redact::url(url, Query::Names), "https://api.test/items?page=removed&token=removed");
//! assert_eq!(redact::url(url, Query::Whole), "https://api.test/items?page=2&token=s3cret");
//! ```
//!
//! Observers get the URL of a request from [`RequestInfo::url`](crate::trace::RequestInfo::url).

use std::borrow::Cow;
use std::fmt::{self, Display, Write};

use http::{HeaderName, HeaderValue};
use url::Url;

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
/// Headers whose values are URLs, also those that are relative to another one and do not look like a URL.
const URLS: [&str; 4] = ["content-location", "location", "referer", "refresh"];
/// The schemes after which the slashes may be missing (<https://url.spec.whatwg.org/#special-scheme>), but that of files.
const SPECIAL_SCHEMES: [&str; 5] = ["http:", "https:", "ws:", "wss:", "ftp:"];
/// The header whose value is a list of URLs in angle brackets (RFC 8288 §3).
const LINK: &str = "link";

/// The part of a URL's query that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Query {
    /// Nothing, and no question mark.
    LeftOut,
    /// The names, with `removed` for each value. A part without a value may be one, and is removed as a whole: also one that ends as
    /// Base64 does, in `==`, and a query of one part whose value is empty.
    #[default]
    Names,
    /// All of it, for queries without secrets.
    Whole,
}

/// Returns a URL, or a part of one such as a path with its query, without user, password and fragment.
///
/// Users and passwords are found as browsers find them, also behind `https:/` or `https:\\`, and in a text such as `0; url=…`.
pub fn url(url: &str, query: Query) -> String {
    Shown { headers: false, query }.url(url)
}

/// Returns the value of a header; `[removed]` for one that may let others act as the sender, by its name or because it
/// [is marked as sensitive](HeaderValue::is_sensitive). A value that is a URL, has one in it, or is a list of links is shown as [`url()`]
/// does.
pub fn header<'a>(name: &HeaderName, value: &'a HeaderValue) -> Cow<'a, str> {
    Shown::default().header(name, value)
}

/// Returns a URL without user, password and fragment, and without its query if that is left out.
pub(crate) fn parsed(url: &Url, has_query: bool) -> Url {
    let mut url = url.clone();
    // These fail only for URLs that cannot have credentials.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.set_fragment(None);
    if !has_query {
        url.set_query(None);
    }
    url
}

/// Returns a text that is not a valid URL without the parts that may be secrets: everything up to the last `@`, and the
/// query.
///
/// The last `@` in all of the text counts, because the end of the authority cannot be known if the text is not a URL.
pub(crate) fn not_a_url(text: &str) -> &str {
    let text = text.rfind('@').map_or(text, |at| &text[at + 1..]);
    text.split(['?', '#']).next().unwrap_or_default()
}

/// The secrets that a document shows: by default those that [`url()`] and [`header()`] show, which is none.
///
/// ```
/// use speeddial::header::{AUTHORIZATION, HeaderValue};
/// use speeddial::redact::Shown;
///
/// let mut shown = Shown::default();
/// let value = HeaderValue::from_static("Bearer s3cret");
/// assert_eq!(shown.header(&AUTHORIZATION, &value), "[removed]");
/// shown.headers = true;
/// assert_eq!(shown.header(&AUTHORIZATION, &value), "Bearer s3cret");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shown {
    /// True if the values of headers with secrets are shown. Users and passwords in URLs never are.
    pub headers: bool,
    /// The part of the queries of URLs that is shown. [`Query::Names`] by default.
    pub query: Query,
}

impl Shown {
    /// Returns the value of a header as [`header()`] does, with the secrets that are shown.
    pub fn header<'a>(self, name: &HeaderName, value: &'a HeaderValue) -> Cow<'a, str> {
        let name = name.as_str();
        let is_secret = value.is_sensitive() || SECRET.iter().any(|part| name.contains(part));
        if is_secret && !self.headers {
            return REMOVED.into();
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        match name {
            LINK => self.links(&text).into(),
            name if URLS.contains(&name) || has_url(&text) => self.url(&text).into(),
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

    /// Returns a URL as [`url()`] does.
    pub fn url(self, url: &str) -> String {
        // Parsers of URLs skip these characters, so that they must not hide a host.
        let url = url.replace(['\t', '\r', '\n'], "");
        let url = url.split('#').next().unwrap_or_default();
        let (place, query) = match url.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (url, None),
        };
        let place = without_user(place);
        match (query, self.query) {
            (None, _) | (_, Query::LeftOut) => place,
            (Some(query), Query::Whole) => format!("{place}?{query}"),
            (Some(query), Query::Names) => format!("{place}?{}", Self::names(query)),
        }
    }

    fn names(query: &str) -> String {
        let is_single = !query.contains('&');
        let part = |part: &str| match part.split_once('=') {
            Some((_, "")) if !is_single => part.to_owned(),
            Some((_, value)) if value.bytes().all(|byte| byte == b'=') => REMOVED_IN_QUERY.to_owned(),
            Some((name, _)) => format!("{name}={REMOVED_IN_QUERY}"),
            None if part.is_empty() => String::new(),
            None => REMOVED_IN_QUERY.to_owned(),
        };
        query.split('&').map(part).collect::<Vec<_>>().join("&")
    }
}

/// Returns true if a text has a URL with a host in it, or is the part of one from its path on.
fn has_url(text: &str) -> bool {
    text.contains("://") || text.starts_with("//") || (text.starts_with('/') && text.contains('?'))
}

/// Returns a text without the user and password before the host of each URL in it.
fn without_user(text: &str) -> String {
    let shown = without_first_user(text);
    // One that stands in the path of another one, or behind it in a list.
    let after = shown.find("://").map_or(shown.len(), |at| at + "://".len());
    match shown[after..].contains("://") {
        true => format!("{}{}", &shown[..after], without_user(&shown[after..])),
        false => shown,
    }
}

/// Returns a URL without the user and password before its host. Browsers and this crate read a backslash as a slash, and any number
/// of slashes, none too, after a scheme such as `https:` (<https://url.spec.whatwg.org/#special-authority-ignore-slashes-state>).
fn without_first_user(url: &str) -> String {
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

/// The most bytes of a body that an error keeps.
pub(crate) const KEPT_BODY_BYTES: usize = 1_024;
/// The most characters of a body that a message shows.
const SHOWN_BODY_CHARS: usize = 80;

/// Returns the beginning of a body as one line of text.
pub(crate) fn beginning(body: &[u8]) -> String {
    // A character has at most four bytes.
    let most = 4 * (SHOWN_BODY_CHARS + 1);
    line(String::from_utf8_lossy(&body[..body.len().min(most)]), SHOWN_BODY_CHARS)
}

/// The most characters of a clause, and of one cause behind it, that a message shows.
pub(crate) const SHOWN_CLAUSE: usize = 1_000;
/// The most characters of a text that is not a URL, and of a place in a document, that a message shows.
pub(crate) const SHOWN_PLACE: usize = 200;

/// Returns an error about JSON whose text, which quotes the document, is fit to be shown.
#[cfg(feature = "json")]
pub(crate) fn json(error: serde_json::Error) -> serde_json::Error {
    if !error.is_data() {
        return error;
    }
    // serde_json reads the place off the end of the text.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = line(&error, SHOWN_PLACE);
    let what = text.strip_suffix(&place).unwrap_or(&text);
    serde::de::Error::custom(format!("{what}{place}"))
}

/// Returns the URL that a text without a scheme probably means, if it begins with a domain or an address, as `example.com/x`.
pub(crate) fn url_without_scheme(text: &str) -> Option<String> {
    let scheme = if cfg!(feature = "__tls") { "https" } else { "http" };
    let text = text.trim();
    let host = text.split(['/', '\\']).next().unwrap_or_default();
    let has_port = || host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_host =
        host.starts_with('[') || (host.starts_with(char::is_alphanumeric) && (host.contains('.') || has_port()));
    if !is_host {
        return None;
    }
    let url = format!("{scheme}://{text}");
    match Url::parse(&url) {
        Ok(_) => Some(url),
        Err(_) => None,
    }
}

/// Returns the beginning of a text that a stranger may have written, of at most `most` characters and of one line. Each character
/// that could steer a terminal, turn the text around or hide in it is replaced by U+FFFD.
pub(crate) fn shown(text: &str, most: usize) -> String {
    text.chars().take(most).map(|char| if is_hidden(char) { '\u{fffd}' } else { char }).collect()
}

/// Returns the beginning of a text that a stranger may have written as [`shown`] does, with spaces for line breaks and tabs, and with
/// `…` if there is more. No more of the text is made than is shown.
pub(crate) fn line(text: impl Display, most: usize) -> String {
    let mut line = Line { text: String::new(), room: most };
    match write!(line, "{text}") {
        Ok(()) => line.text,
        Err(_) => line.text + "…",
    }
}

struct Line {
    text: String,
    room: usize,
}

impl Write for Line {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for char in part.chars() {
            self.room = self.room.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(match is_hidden(char) {
                true if char.is_whitespace() => ' ',
                true => '\u{fffd}',
                false => char,
            });
        }
        Ok(())
    }
}

/// Returns true for control characters, and for the format characters that change the text around them or have no shape: those
/// of lines and directions (UAX #9), joiners and tags (Unicode 17, chapter 23). And for noncharacters, two of which XML excludes.
pub(crate) fn is_hidden(char: char) -> bool {
    let is_format = matches!(
        char,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    );
    let is_noncharacter = matches!(char, '\u{fdd0}'..='\u{fdef}') || u32::from(char) & 0xfffe == 0xfffe;
    char.is_control() || is_format || is_noncharacter
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    const NONE: Shown = Shown { headers: false, query: Query::Names };
    const ALL: Shown = Shown { headers: true, query: Query::Whole };

    #[test]
    fn a_text_that_is_no_url_is_shown_without_all_that_may_be_credentials() {
        for text in
            ["http://user:pass@ho st/x", "http:/user:pa/ss@ho st/x", "http://user:pa#ss@ho st/x", "user:p@ss@ho st/x"]
        {
            assert_eq!(not_a_url(text), "ho st/x");
        }
        assert_eq!(not_a_url("nonsense"), "nonsense");
        assert_eq!(not_a_url("http://ho st/x?token=secret#part"), "http://ho st/x");
    }

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
        assert_eq!(url("http://me:pw@a.test/x?q=1#top", Query::LeftOut), "http://a.test/x");
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

    #[test]
    fn a_url_is_cleared_in_whatever_header_it_stands() {
        let shown = |name: &'static str, value: &'static str| {
            NONE.header(&HeaderName::from_static(name), &HeaderValue::from_static(value)).into_owned()
        };
        for name in ["x-ms-copy-source", "operation-location", "azure-asyncoperation", "destination", "location"] {
            assert_eq!(shown(name, "https://me:pw@a.test/b?sig=s3cret"), "https://a.test/b?sig=removed", "{name}");
            assert_eq!(shown(name, "/b?sig=s3cret#part"), "/b?sig=removed", "{name}");
        }
        assert_eq!(shown("x-hosts", "https://a.test/x, https://me:pw@b.test/"), "https://a.test/x, https://b.test/");
        assert_eq!(shown("refresh", "0; url=/b?sig=s3cret"), "0; url=/b?sig=removed");
        assert_eq!(shown("accept", "text/html, */*?q=1#x"), "text/html, */*?q=1#x");
        assert_eq!(shown("user-agent", "a/1 (+https://a.test/about)"), "a/1 (+https://a.test/about)");
    }

    #[test]
    fn a_query_that_is_a_token_is_removed_as_a_whole() {
        for query in ["c2VjcmV0LXRva2VuIQ==", "c2VjcmV0LXRva2Vu=", "c2VjcmV0LXRva2Vu", "c2VjcmV0&page="] {
            let shown = NONE.url(&format!("/x?{query}"));
            assert!(shown == "/x?removed" || shown == "/x?removed&page=", "{shown}");
        }
        assert_eq!(NONE.url("/x?page=&q="), "/x?page=&q=");
        assert_eq!(NONE.url("/x?a=1&c2VjcmV0LXRva2VuIQ=="), "/x?a=removed&removed");
    }
}

#[cfg(test)]
mod shown_tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_body_is_one_line_of_80_characters() {
        assert_eq!(beginning(b"two\nlines"), "two lines");
        let long = beginning("ä".repeat(100).as_bytes());
        assert_eq!((long.chars().count(), long.ends_with('…')), (81, true));
    }

    #[test]
    fn a_url_is_suggested_only_for_a_text_that_begins_with_a_host() {
        assert!(url_without_scheme("example.com/x").is_some_and(|url| url.ends_with("://example.com/x")));
        assert!(url_without_scheme("[::1]:80").is_some());
        assert_eq!(url_without_scheme("/items"), None);
        assert_eq!(url_without_scheme("items"), None);
    }
}

#[cfg(test)]
mod excerpt_tests {
    use super::*;

    #[test]
    fn characters_that_steer_or_hide_are_replaced() {
        let hidden = [
            '\0',
            '\n',
            '\r',
            '\t',
            '\u{1b}',
            '\u{7f}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2067}',
            '\u{2068}',
            '\u{2069}',
            '\u{feff}',
            '\u{fdd0}',
            '\u{fffe}',
            '\u{10ffff}',
            '\u{e0041}',
        ];
        for char in hidden {
            assert_eq!(shown(&format!("a{char}b"), 9), "a\u{fffd}b", "{char:?}");
        }
        let plain = "api.test *.é ü 日本 ✓ \u{a0}\u{202f}";
        assert_eq!(shown(plain, 100), plain);
        assert_eq!(shown(&"é".repeat(500), 200).chars().count(), 200);
    }

    #[test]
    fn a_line_has_spaces_for_line_breaks_and_says_that_there_is_more() {
        assert_eq!(line("a\r\nb\tc\u{2028}d\u{1b}[1m\u{202e}", 20), "a  b c d\u{fffd}[1m\u{fffd}");
        assert_eq!((line("äöü", 3).as_str(), line("äöüß", 3).as_str()), ("äöü", "äöü…"));
        assert_eq!(line(format_args!("{}{}", "ab", "cd"), 3), "abc…");
    }
}
