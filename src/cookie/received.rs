//! A cookie of a response.

use std::fmt;
use std::time::{Duration, SystemTime};

use cookie_store::RawCookie;
use http::HeaderValue;

use super::attributes;

/// A cookie that a response sets, as its `Set-Cookie` header has it. See [`Response::cookies`](crate::Response::cookies).
///
/// ```no_run
/// # async fn run(client: speeddial::Client) -> speeddial::Result<()> {
/// let response = client.get("http://api.example.com/login").send().await?;
/// for cookie in response.cookies() {
///     println!("{} lasts for {:?}", cookie.name(), cookie.max_age());
/// }
/// # Ok(()) }
/// ```
pub struct Cookie<'a> {
    raw: RawCookie<'a>,
    max_age: Option<Duration>,
    expires: Option<SystemTime>,
}

impl<'a> Cookie<'a> {
    /// Parses a `Set-Cookie` header. Returns `None` if it is not UTF-8, or has no name.
    pub(crate) fn parse(header: &'a HeaderValue) -> Option<Self> {
        let text = str::from_utf8(header.as_bytes()).ok()?;
        let raw = RawCookie::parse(text).ok()?;
        Some(Self { raw, max_age: attributes::max_age(text), expires: attributes::expires(text) })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.raw.name()
    }

    /// Returns the value as it was sent, with quotes if it has any.
    pub fn value(&self) -> &str {
        self.raw.value()
    }

    /// Returns true if the cookie is not for scripts of a page (`HttpOnly`).
    pub fn http_only(&self) -> bool {
        self.raw.http_only() == Some(true)
    }

    /// Returns true if the cookie is for https only (`Secure`).
    pub fn secure(&self) -> bool {
        self.raw.secure() == Some(true)
    }

    /// Returns true if `SameSite` is `Lax`.
    pub fn same_site_lax(&self) -> bool {
        self.raw.same_site().is_some_and(|same_site| same_site.is_lax())
    }

    /// Returns true if `SameSite` is `Strict`.
    pub fn same_site_strict(&self) -> bool {
        self.raw.same_site().is_some_and(|same_site| same_site.is_strict())
    }

    /// Returns the `Path` attribute, if there is one.
    pub fn path(&self) -> Option<&str> {
        self.raw.path()
    }

    /// Returns the `Domain` attribute without a leading dot, if there is one.
    pub fn domain(&self) -> Option<&str> {
        self.raw.domain()
    }

    /// Returns the `Max-Age` attribute, if there is one; zero if it is negative.
    pub fn max_age(&self) -> Option<Duration> {
        self.max_age
    }

    /// Returns the `Expires` attribute, if there is one that is a date. `Max-Age` takes precedence over it.
    pub fn expires(&self) -> Option<SystemTime> {
        self.expires
    }
}

impl fmt::Debug for Cookie<'_> {
    // Without the value, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookie")
            .field("name", &self.name())
            .field("domain", &self.domain())
            .field("path", &self.path())
            .field("secure", &self.secure())
            .field("max_age", &self.max_age)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
