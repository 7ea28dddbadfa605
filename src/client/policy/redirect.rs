//! The rules for redirects: which ones are followed, and what goes along to the next URL (RFC 9110 §15.4). A core.

use std::fmt;
use std::sync::Arc;

use http::header::{
    AUTHORIZATION, COOKIE, EXPECT, HOST, LAST_MODIFIED, LOCATION, PROXY_AUTHORIZATION, REFERER, TRAILER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use url::Url;

use crate::error::Cause;
use crate::origin::{Credentials, Origin, OriginError};
use crate::redact::{self, Query};

/// A policy for following redirects. At most 10 are followed by default.
///
/// ```
/// use speeddial::redirect;
///
/// let within = redirect::Policy::custom(|attempt| match attempt.url().host_str() {
///     Some(host) if host.ends_with(".example.com") => attempt.follow(),
///     _ => attempt.stop(),
/// });
/// let client = speeddial::Client::builder().redirect(within).build();
/// ```
#[derive(Clone)]
pub struct Policy(PolicyKind);

#[derive(Clone)]
enum PolicyKind {
    Limited(usize),
    SameOrigin,
    Custom(Arc<dyn Fn(Attempt<'_>) -> Action + Send + Sync>),
}

/// The most redirects that are followed by default.
const DEFAULT_LIMIT: usize = 10;
/// The most redirects that are followed with a custom policy.
const CUSTOM_LIMIT: usize = 100;

impl Policy {
    /// Follows no redirects. The call returns the redirect itself.
    pub fn none() -> Self {
        Self(PolicyKind::Limited(0))
    }

    /// Follows up to `max` redirects. One more is an error, but a limit of 0 is the same as [`none`](Self::none).
    pub fn limited(max: usize) -> Self {
        Self(PolicyKind::Limited(max))
    }

    /// Follows up to 10 redirects to the same scheme, host and port. Any other redirect is returned by the call as it
    /// is.
    pub fn same_origin() -> Self {
        Self(PolicyKind::SameOrigin)
    }

    /// Asks `decide` about each redirect. A call follows up to 100 redirects.
    pub fn custom<T: Fn(Attempt<'_>) -> Action + Send + Sync + 'static>(decide: T) -> Self {
        Self(PolicyKind::Custom(Arc::new(decide)))
    }

    /// Decides about a redirect as this policy does, for custom policies that build on another one.
    ///
    /// ```
    /// use speeddial::redirect;
    ///
    /// let noted = redirect::Policy::custom(|attempt| {
    ///     println!("{} leads to {}", attempt.status(), attempt.url());
    ///     redirect::Policy::limited(3).redirect(attempt)
    /// });
    /// ```
    pub fn redirect(&self, attempt: Attempt<'_>) -> Action {
        match &self.0 {
            PolicyKind::Limited(0) => attempt.stop(),
            PolicyKind::Limited(max) => attempt.within(*max),
            PolicyKind::SameOrigin if attempt.leaves_origin() => attempt.stop(),
            PolicyKind::SameOrigin => attempt.within(DEFAULT_LIMIT),
            PolicyKind::Custom(_) if attempt.previous.len() > CUSTOM_LIMIT => attempt.within(CUSTOM_LIMIT),
            PolicyKind::Custom(decide) => decide(attempt),
        }
    }

    /// Returns true if the policy is the one by default.
    #[cfg(feature = "hyper-util")]
    pub(in crate::client) fn is_default(&self) -> bool {
        matches!(self.0, PolicyKind::Limited(DEFAULT_LIMIT))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::limited(DEFAULT_LIMIT)
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PolicyKind::Limited(max) => write!(f, "Policy(limited to {max})"),
            PolicyKind::SameOrigin => f.write_str("Policy(same origin)"),
            PolicyKind::Custom(_) => f.write_str("Policy(custom)"),
        }
    }
}

/// A redirect that a [`Policy`] decides about: [`follow`](Self::follow), [`stop`](Self::stop) or [`error`](Self::error).
pub struct Attempt<'a> {
    status: StatusCode,
    next: &'a Url,
    previous: &'a [Url],
}

impl fmt::Debug for Attempt<'_> {
    // Without queries, which may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &Url| redact::url(url.as_str(), Query::LeftOut);
        f.debug_struct("Attempt")
            .field("status", &self.status)
            .field("url", &shown(self.next))
            .field("previous", &self.previous.iter().map(shown).collect::<Vec<_>>())
            .finish()
    }
}

impl Attempt<'_> {
    /// Returns the status of the response that asks for the redirect.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the URL that the redirect leads to.
    pub fn url(&self) -> &Url {
        self.next
    }

    /// Returns the URLs that were requested so far, the first one first. The last one is that of the response.
    pub fn previous(&self) -> &[Url] {
        self.previous
    }

    /// Follows the redirect.
    pub fn follow(self) -> Action {
        Action(Decision::Follow)
    }

    /// Does not follow the redirect. The call returns it.
    pub fn stop(self) -> Action {
        Action(Decision::Stop)
    }

    /// Fails the call. `error` becomes the [`source`](std::error::Error::source) of its error.
    pub fn error<E: Into<Box<dyn std::error::Error + Send + Sync>>>(self, error: E) -> Action {
        Action(Decision::Fail(RedirectError::Refused(error.into())))
    }

    /// Follows the redirect if there were at most `max` before this one is counted.
    fn within(self, max: usize) -> Action {
        if self.previous.len() <= max {
            return self.follow();
        }
        let is_loop = self.previous.iter().any(|known| without_fragment(known) == without_fragment(self.next));
        Action(Decision::Fail(if is_loop { RedirectError::Loop(max) } else { RedirectError::TooMany(max) }))
    }

    fn leaves_origin(&self) -> bool {
        self.previous.last().is_some_and(|from| from.origin() != self.next.origin())
    }
}

/// The decision about a redirect, made by the methods of [`Attempt`].
#[derive(Debug)]
#[must_use = "a decision has an effect when the policy returns it"]
pub struct Action(Decision);

#[derive(Debug)]
enum Decision {
    Follow,
    Stop,
    Fail(RedirectError),
}

/// The reason why a redirect is not followed.
#[derive(Debug, thiserror::Error)]
pub(in crate::client) enum RedirectError {
    #[error("its location is not a URL")]
    NotAUrl(#[from] url::ParseError),
    #[error("its location is not text")]
    NotText,
    #[error("nothing can be sent to its location")]
    NoOrigin(#[from] OriginError),
    #[error("the path of its location cannot be sent: {0}")]
    Path(String),
    #[error("more than {0} redirects")]
    TooMany(usize),
    #[error("a redirect loop, after {0} redirects")]
    Loop(usize),
    #[error("it leads to an http URL, and the client sends requests to https URLs only")]
    NotHttps,
    #[error("the request's body must be sent again, and was a stream")]
    BodyIsGone,
    #[error("the policy refused it")]
    Refused(#[source] Cause),
}

/// The request that a redirect leads to.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::client) struct NextRequest {
    pub(in crate::client) url: Url,
    pub(in crate::client) origin: Origin,
    pub(in crate::client) method: Method,
}

/// Returns the request that a response leads to, or `None` if it is no redirect to be followed. `chain` are the URLs
/// requested so far; the response is from the last one.
pub(in crate::client) fn next_request(
    policy: &Policy,
    chain: &[Url],
    method: &Method,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<NextRequest>, RedirectError> {
    let (Some(from), Some(location)) = (chain.last(), headers.get(LOCATION)) else { return Ok(None) };
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) || matches!(policy.0, PolicyKind::Limited(0)) {
        return Ok(None);
    }
    let text = std::str::from_utf8(location.as_bytes()).map_err(|_| RedirectError::NotText)?;
    let mut url = from.join(text)?;
    if url.fragment().is_none() {
        url.set_fragment(from.fragment());
    }
    // Credentials in a location are the server's, not the user's. They are not sent, and the policy does not see them.
    drop(Credentials::take(&mut url));
    match policy.redirect(Attempt { status, next: &url, previous: chain }).0 {
        Decision::Follow => {}
        Decision::Stop => return Ok(None),
        Decision::Fail(error) => return Err(error),
    }
    let origin = Origin::from_url(&url)?;
    Ok(Some(NextRequest { url, origin, method: next_method(status, method) }))
}

fn without_fragment(url: &Url) -> &str {
    &url[..url::Position::AfterQuery]
}

/// Returns the method of the next request. 303 asks for a GET. So do 301 and 302 after a POST, by custom (RFC 9110
/// §15.4.2, §15.4.3).
fn next_method(status: StatusCode, method: &Method) -> Method {
    match status {
        StatusCode::SEE_OTHER if *method != Method::HEAD => Method::GET,
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND if *method == Method::POST => Method::GET,
        _ => method.clone(),
    }
}

/// Returns true for a header that describes a request's body (RFC 9110 §15.4).
fn is_of_body(name: &HeaderName) -> bool {
    name.as_str().starts_with("content-")
        || [EXPECT, LAST_MODIFIED, TRAILER].contains(name)
        || ["digest", "repr-digest"].contains(&name.as_str())
}

/// The headers that are meant for one origin.
const ORIGIN_HEADERS: [HeaderName; 5] = [AUTHORIZATION, COOKIE, HOST, PROXY_AUTHORIZATION, WWW_AUTHENTICATE];

/// Removes the headers that must not go along: those that describe a body that is left behind, and to another origin
/// those that are meant for one origin or marked as sensitive (`HeaderValue::set_sensitive`).
pub(in crate::client) fn strip(headers: &mut HeaderMap, keeps_body: bool, same_origin: bool) {
    if !keeps_body {
        let of_body: Vec<_> = headers.keys().filter(|name| is_of_body(name)).cloned().collect();
        of_body.iter().for_each(|name| drop(headers.remove(name)));
    }
    if !same_origin {
        ORIGIN_HEADERS.iter().for_each(|name| drop(headers.remove(name)));
        let sensitive: Vec<_> =
            headers.iter().filter(|(_, value)| value.is_sensitive()).map(|(name, _)| name.clone()).collect();
        sensitive.iter().for_each(|name| drop(headers.remove(name)));
    }
}

/// Removes the default headers of the host that a request leaves, unless it has set them itself, and adds those of the host that it
/// goes to. Of both hosts, the headers of their own come first, and then all default headers, these included. Credentials are not added:
/// a redirect does not lead to them.
pub(in crate::client) fn change_host(
    headers: &mut HeaderMap,
    (left_own, left_all): (&HeaderMap, &HeaderMap),
    (own, all): (&HeaderMap, &HeaderMap),
) {
    for name in left_own.keys().chain(own.keys()) {
        if headers.get_all(name).iter().eq(left_all.get_all(name)) {
            headers.remove(name);
        }
    }
    for name in left_own.keys().chain(own.keys()) {
        let may_be_added = !ORIGIN_HEADERS.contains(name) && !headers.contains_key(name);
        for value in all.get_all(name).iter().filter(|value| may_be_added && !value.is_sensitive()) {
            headers.append(name.clone(), value.clone());
        }
    }
}

/// Names the URL that redirected the request in a `Referer` header, without credentials and fragment. To a URL without
/// TLS there is no `Referer` from one with TLS (RFC 9110 §10.1.3).
pub(in crate::client) fn set_referer(headers: &mut HeaderMap, from: &Url, to: &Url) {
    headers.remove(REFERER);
    if from.scheme() == "https" && to.scheme() == "http" {
        return;
    }
    let mut from = from.clone();
    drop(Credentials::take(&mut from));
    from.set_fragment(None);
    if let Ok(value) = HeaderValue::from_str(from.as_str()) {
        headers.insert(REFERER, value);
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let parsed = lines.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        parsed.collect()
    }

    #[test]
    fn debug_of_an_attempt_shows_no_secrets() {
        let urls = ["http://me:secret@a.test/x?secret", "http://b.test/y?a=secret"].map(|url| Url::parse(url).unwrap());
        let attempt = Attempt { status: StatusCode::FOUND, next: &urls[0], previous: &urls[1..] };
        let shown = "Attempt { status: 302, url: \"http://a.test/x\", previous: [\"http://b.test/y\"] }";
        assert_eq!(format!("{attempt:?}"), shown);
    }

    #[test]
    fn headers_about_the_content_stay_behind_with_it() {
        let of_body =
            ["content-digest", "content-range", "content-type", "digest", "last-modified", "repr-digest", "trailer"];
        let headers = || {
            of_body
                .iter()
                .chain(&["accept", "if-match"])
                .map(|name| (name.parse().unwrap(), HeaderValue::from_static("x")))
        };
        for keeps_body in [false, true] {
            let mut headers: HeaderMap = headers().collect();
            strip(&mut headers, keeps_body, true);
            assert_eq!(headers.len(), if keeps_body { 9 } else { 2 }, "{headers:?}");
        }
    }

    #[test]
    fn the_default_headers_of_a_host_stay_there_and_credentials_of_the_next_one_are_not_added() {
        let left = headers(&[("x-left", "1"), ("x-both", "1"), ("x-set", "1"), ("accept", "1")]);
        let mut own = headers(&[("x-both", "2"), ("x-entered", "2"), ("authorization", "2")]);
        let mut secret = HeaderValue::from_static("2");
        secret.set_sensitive(true);
        own.insert("x-secret", secret);
        let mut defaults = own.clone();
        defaults.extend(headers(&[("accept", "general"), ("x-general", "general")]));
        let mut request =
            headers(&[("x-left", "1"), ("x-both", "1"), ("x-set", "user"), ("accept", "1"), ("x-user", "3")]);
        change_host(&mut request, (&left, &left), (&own, &defaults));
        let expected = [("x-both", "2"), ("x-entered", "2"), ("x-set", "user"), ("accept", "general"), ("x-user", "3")];
        assert_eq!(request, headers(&expected));
        // From a host without headers of its own: the client's give way to those of the next host.
        let mut request = headers(&[("x-both", "general"), ("x-user", "3")]);
        change_host(&mut request, (&HeaderMap::new(), &headers(&[("x-both", "general")])), (&own, &defaults));
        assert_eq!(request, headers(&[("x-both", "2"), ("x-entered", "2"), ("x-user", "3")]));
    }

    fn chain(urls: &[&str]) -> Vec<Url> {
        urls.iter().map(|url| Url::parse(url).unwrap()).collect()
    }

    fn to(location: &str) -> HeaderMap {
        HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(location.as_bytes()).unwrap())])
    }

    /// Returns the URL that is requested next, or the text of the error.
    fn get(policy: &Policy, asked: &[&str], location: &str) -> Result<Option<String>, String> {
        let next = next_request(policy, &chain(asked), &Method::GET, StatusCode::FOUND, &to(location));
        match next {
            Ok(next) => Ok(next.map(|next| next.url.into())),
            Err(RedirectError::Refused(reason)) => Err(reason.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn locations_are_resolved_against_the_url_of_the_response() {
        let from = |location| get(&Policy::default(), &["http://a.test/x/y?q=1#part"], location);
        let led = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(from("http://b.test/"), led("http://b.test/#part"));
        assert_eq!(from("z"), led("http://a.test/x/z#part"));
        assert_eq!(from("/z#other"), led("http://a.test/z#other"));
        assert_eq!(from("//b.test:81/"), led("http://b.test:81/#part"));
        assert_eq!(from("?q=2"), led("http://a.test/x/y?q=2#part"));
        assert_eq!(from(""), led("http://a.test/x/y?q=1#part"));
        assert_eq!(from("http://b.test\\@c.test/"), led("http://b.test/@c.test/#part"));
        assert_eq!(from("http://me:secret@b.test/"), led("http://b.test/#part"), "without credentials");
        let hides = Policy::custom(|attempt| {
            let url = attempt.url().to_string();
            attempt.error(url)
        });
        let refused = get(&hides, &["http://a.test/"], "//me:secret@b.test/x");
        assert_eq!(refused, Err("http://b.test/x".to_owned()), "the policy does not see credentials");
        assert!(from("javascript:alert(1)") == Err("nothing can be sent to its location".to_owned()));
        assert!(from("file:///etc/passwd") == Err("nothing can be sent to its location".to_owned()));
        assert!(from("http://b.test:99999/") == Err("its location is not a URL".to_owned()));
        assert!(from("http://b.test:0/") == Err("nothing can be sent to its location".to_owned()));
    }

    #[test]
    fn only_some_statuses_redirect_and_only_with_a_location() {
        let asked = chain(&["http://a.test/"]);
        let policy = Policy::default();
        let leads = |status, headers: &HeaderMap| {
            let status = StatusCode::from_u16(status).unwrap();
            next_request(&policy, &asked, &Method::GET, status, headers).unwrap().is_some()
        };
        let followed: Vec<u16> = (200..400).filter(|status| leads(*status, &to("/b"))).collect();
        assert_eq!(followed, [301, 302, 303, 307, 308]);
        assert!(!leads(302, &HeaderMap::new()));
    }

    #[test]
    fn methods_change_as_rfc_9110_has_it() {
        let next = |status, method: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            next_method(status, &method.parse().unwrap()).to_string()
        };
        for status in [301, 302] {
            assert_eq!(
                ["GET", "HEAD", "POST", "PUT", "DELETE"].map(|method| next(status, method)),
                ["GET", "HEAD", "GET", "PUT", "DELETE"]
            );
        }
        assert_eq!(["GET", "HEAD", "POST", "PUT"].map(|method| next(303, method)), ["GET", "HEAD", "GET", "GET"]);
        for status in [307, 308] {
            assert_eq!(["GET", "POST", "PUT"].map(|method| next(status, method)), ["GET", "POST", "PUT"]);
        }
    }

    #[test]
    fn limits_hold_and_loops_are_reported() {
        let (a, b) = ("http://a.test/", "http://b.test/");
        let two = Policy::limited(2);
        assert!(get(&two, &[a, b], "http://c.test/").is_ok_and(|next| next.is_some()));
        assert_eq!(get(&two, &[a, b, "http://c.test/"], "http://d.test/"), Err("more than 2 redirects".to_owned()));
        assert_eq!(get(&two, &[a, b, a], b), Err("a redirect loop, after 2 redirects".to_owned()));
        assert_eq!(get(&Policy::none(), &[a], b), Ok(None));
        let many: Vec<_> = std::iter::repeat_n(a, 101).collect();
        let always = Policy::custom(|attempt| attempt.follow());
        assert!(get(&always, &many[..100], b).is_ok());
        assert_eq!(get(&always, &many, b), Err("more than 100 redirects".to_owned()));
    }

    #[test]
    fn a_custom_policy_sees_the_chain() {
        let (a, b) = ("http://a.test/", "http://b.test/");
        assert_eq!(get(&Policy::same_origin(), &[a], b), Ok(None));
        assert_eq!(get(&Policy::same_origin(), &[a], "/x"), Ok(Some("http://a.test/x".to_owned())));
        assert_eq!(get(&Policy::same_origin(), &[a], "http://a.test:81/"), Ok(None));
        let policy = Policy::custom(|attempt| match attempt.previous().len() {
            1 if attempt.status() == StatusCode::FOUND => attempt.follow(),
            2 => attempt.stop(),
            _ => {
                let why = format!("not to {}", attempt.url());
                attempt.error(why)
            }
        });
        assert!(get(&policy, &[a], b).is_ok_and(|next| next.is_some()));
        assert_eq!(get(&policy, &[a, b], b), Ok(None));
        assert_eq!(get(&policy, &[a, b, a], b), Err("not to http://b.test/".to_owned()));
    }

    #[test]
    fn a_referer_names_the_last_url_without_secrets_and_not_to_a_url_that_lost_tls() {
        let referer = |from: &str, to: &str| {
            let mut headers = HeaderMap::from_iter([(REFERER, HeaderValue::from_static("http://older.test/"))]);
            set_referer(&mut headers, &from.parse().unwrap(), &to.parse().unwrap());
            headers.get(REFERER).map(|value| value.to_str().unwrap().to_owned())
        };
        for (from, to) in [("http", "http"), ("http", "https"), ("https", "https")] {
            let named = referer(&format!("{from}://me:secret@a.test/x?q=1#part"), &format!("{to}://b.test/"));
            assert_eq!(named, Some(format!("{from}://a.test/x?q=1")), "{from} to {to}");
        }
        assert_eq!(referer("https://a.test/x", "http://a.test/x"), None);
    }

    #[test]
    fn secrets_do_not_go_to_another_origin_and_headers_of_a_body_go_only_with_it() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "proxy-authorization", "host", "content-type", "x-trace"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
        }
        let mut key = HeaderValue::from_static("secret");
        key.set_sensitive(true);
        headers.insert("x-api-key", key);
        let left = |keeps_body, same_origin| {
            let mut headers = headers.clone();
            strip(&mut headers, keeps_body, same_origin);
            let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(left(true, false), "content-type x-trace");
        assert_eq!(left(false, false), "x-trace");
        assert_eq!(left(false, true), "authorization cookie host proxy-authorization x-api-key x-trace");
    }
}
