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
mod jar;
mod received;
mod rules;
#[cfg(feature = "serde")]
mod saved;
mod sites;
#[cfg(test)]
mod tests;

use http::HeaderValue;
use url::Url;

pub use jar::Jar;
pub use received::Cookie;

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
