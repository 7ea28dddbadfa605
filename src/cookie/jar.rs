//! The cookie store that the crate brings.

use std::fmt;
use std::sync::Mutex;

use http::HeaderValue;
use url::Url;

use super::CookieStore;
use super::rules::{StoredCookie, accept};
use super::sites::Sites;
use crate::clock;
use crate::sync::lock;

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
    pub(super) fn with<T>(&self, read: impl FnOnce(&Sites) -> T) -> T {
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
