//! Cookies (feature `cookies`): a store that keeps the cookies of responses and sends them with later requests
//! (RFC 6265bis), and the cookies of one response.
//!
//! A client has no cookie store by default. [`ClientBuilder::cookie_store`](crate::ClientBuilder::cookie_store) gives it one of
//! its own, and [`cookie_provider`](crate::ClientBuilder::cookie_provider) one that the program keeps a handle on: a [`Jar`], or
//! another implementation of [`CookieStore`].
//!
//! # Which requests get cookies
//! The store is asked for each message that is sent: for the first request of a call, for the request after each redirect, and
//! for each resend and retry. The cookies of each response are stored as soon as its head has arrived, also if the response is a
//! redirect that is followed or is retried. Interim responses (1xx) set no cookies.
//!
//! A request with a `Cookie` header, its own or one of the client's default headers, is sent with that header and without
//! cookies of the store, as in reqwest. What its response sets is stored. If the call is redirected to another origin, the header
//! does not go along, and the store is asked from then on.
//!
//! # Rules of the jar
//! A [`Jar`] follows RFC 6265bis:
//!
//! * `Domain` may name the host or a domain above it, but no public suffix such as `com`, `co.uk` or `github.io`, nor a domain
//!   above the host's public suffix. The list of suffixes is compiled in (crate `psl`). Without `Domain`, and for IP addresses, the cookie belongs to the host alone.
//! * `Path` restricts a cookie to a path and what is below it. Ports and, except for `Secure`, schemes make no difference.
//! * `Secure` cookies are stored from and sent to https URLs only, and `localhost` and loopback addresses, as in browsers. A
//!   response over http cannot replace one.
//! * `Max-Age` takes precedence over `Expires`. A cookie without either is kept as long as the jar.
//! * A name that begins with `__Secure-` needs `Secure`; one that begins with `__Host-` also needs `Path=/` and no `Domain`.
//! * Cookies with control characters, with bytes that are not UTF-8, or without a name are not stored.
//! * `HttpOnly` and `SameSite` have no effect: `HttpOnly` concerns scripts, `SameSite` requests started by other sites.
//!
//! Servers decide what they set, so a jar is bounded in number and size: see [`Jar`].

mod attributes;
mod rules;
#[cfg(feature = "serde")]
mod saved;
mod sites;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Mutex;

use http::HeaderValue;
use url::Url;

use crate::clock;
use crate::cookie::rules::{StoredCookie, accept};
use crate::cookie::sites::Sites;
use crate::sync::lock;

pub use crate::cookie::attributes::Cookie;

/// A store of cookies that a client asks for each request and tells of each response. [`Jar`] is one; see
/// [`ClientBuilder::cookie_provider`](crate::ClientBuilder::cookie_provider).
///
/// Both methods are called while a request or response is under way, so they must not block.
///
/// ```
/// use std::sync::Arc;
/// use speeddial::cookie::{CookieStore, Jar};
/// use speeddial::{Client, Url, header::HeaderValue};
///
/// /// A jar that only servers of one domain can fill.
/// struct OwnCookies(Jar);
///
/// impl CookieStore for OwnCookies {
///     fn set_cookies(&self, cookie_headers: &mut dyn Iterator<Item = &HeaderValue>, url: &Url) {
///         if url.host_str().is_some_and(|host| host.ends_with(".example.com")) {
///             self.0.set_cookies(cookie_headers, url);
///         }
///     }
///
///     fn cookies(&self, url: &Url) -> Option<HeaderValue> {
///         self.0.cookies(url)
///     }
/// }
///
/// let client = Client::builder().cookie_provider(Arc::new(OwnCookies(Jar::default()))).build()?;
/// # Ok::<(), speeddial::Error>(())
/// ```
pub trait CookieStore: Send + Sync {
    /// Stores what the `Set-Cookie` headers of a response from `url` set. Not called for responses without one.
    fn set_cookies(&self, cookie_headers: &mut dyn Iterator<Item = &HeaderValue>, url: &Url);

    /// Returns the `Cookie` header of a request to `url`; `None` if there are no cookies for it.
    fn cookies(&self, url: &Url) -> Option<HeaderValue>;
}

/// The most cookies that are taken from one response.
const MAX_PER_RESPONSE: usize = 180;

/// A store of cookies in memory, for one client or several. The [module](crate::cookie) has the rules by which it stores and sends
/// cookies.
///
/// # Limits
/// * Name and value of a cookie have at most 4,096 bytes; a longer cookie is refused. `Path` and `Domain` have at most 1,024 each;
///   longer ones are ignored.
/// * A cookie with an expiry is kept for 400 days at most.
/// * At most 180 cookies are taken from one response.
/// * A site has at most 180 cookies, and the jar 3,000. A site is the domain right below a public suffix, with all its sub-domains.
///   Expired cookies make room first; within a site, then those without `Secure`; then those that were not set or sent for the
///   longest time.
/// * A `Cookie` header has at most 8,000 bytes. If not all cookies fit in, those without `Domain` take precedence, then older ones:
///   another host of the site can set cookies for the common domain only, so it cannot crowd out those of the host alone.
///
/// # Saving
/// With the feature `serde`, a jar can be serialized and deserialized: as a list of URLs and the `Set-Cookie` headers that they
/// would have to send. Cookies without an expiry are part of it, because only the program knows when its session ends. What has
/// expired, or breaks the rules of the jar that reads it, is left out. The cookies are secrets, so the file is one as well.
///
/// ```
/// use std::sync::Arc;
/// use speeddial::cookie::{CookieStore, Jar};
/// use speeddial::{Client, Url};
///
/// let jar = Arc::new(Jar::default());
/// let url: Url = "https://api.example.com/v1/".parse()?;
/// jar.add_cookie_str("session=abc; Path=/v1; Secure", &url);
/// let client = Client::builder().cookie_provider(jar.clone()).build()?;
///
/// // The header that a request to this URL is sent with.
/// assert_eq!(jar.cookies(&url).unwrap(), "session=abc");
/// assert!(jar.cookies(&"http://api.example.com/v1/".parse()?).is_none());
///
/// # #[cfg(feature = "serde")] {
/// let saved = serde_json::to_string(&*jar)?;
/// let loaded: Jar = serde_json::from_str(&saved)?;
/// assert_eq!(loaded.len(), 1);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Jar(Mutex<Sites>);

impl Jar {
    /// Stores a cookie as if a response from `url` had set it. `cookie` is the value of a `Set-Cookie` header, such as
    /// `session=abc; Path=/; Max-Age=3600`. A cookie that breaks the rules of the jar is not stored.
    pub fn add_cookie_str(&self, cookie: &str, url: &Url) {
        let now = clock::wall();
        if let Some(cookie) = accept(cookie, url, now) {
            lock(&self.0).set(cookie, url, now);
        }
    }

    /// Returns the number of cookies. Those that have expired count until they are removed, which happens with the next request to
    /// their site.
    pub fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Returns true if there are no cookies.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all cookies.
    pub fn clear(&self) {
        *lock(&self.0) = Sites::default();
    }

    #[cfg(feature = "serde")]
    fn with<T>(&self, read: impl FnOnce(&Sites) -> T) -> T {
        read(&lock(&self.0))
    }
}

impl CookieStore for Jar {
    fn set_cookies(&self, cookie_headers: &mut dyn Iterator<Item = &HeaderValue>, url: &Url) {
        let now = clock::wall();
        let texts = cookie_headers.take(MAX_PER_RESPONSE).filter_map(|header| str::from_utf8(header.as_bytes()).ok());
        // Parsed before the lock.
        let cookies: Vec<StoredCookie> = texts.filter_map(|text| accept(text, url, now)).collect();
        if cookies.is_empty() {
            return;
        }
        let mut sites = lock(&self.0);
        for cookie in cookies {
            sites.set(cookie, url, now);
        }
    }

    fn cookies(&self, url: &Url) -> Option<HeaderValue> {
        let header = lock(&self.0).header(url, clock::wall())?;
        // Names and values without control characters make a header.
        HeaderValue::try_from(header).ok()
    }
}

impl fmt::Debug for Jar {
    // Without the cookies, which are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jar").field("len", &self.len()).finish_non_exhaustive()
    }
}
