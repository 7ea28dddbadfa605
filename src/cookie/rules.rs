//! The rules for one cookie: which ones are stored, and for which URLs they are sent (RFC 6265bis §5.6 to §5.8). A core.
//!
//! cookie_store knows the syntax, domains and paths. Public suffixes, prefixes of names, and bounds are added here.

use std::time::{Duration, SystemTime};

use cookie_store::{CookieDomain, CookiePath, RawCookie};
use psl::Psl;
use url::{Host, Url};

use super::attributes;

/// The most bytes of a cookie's name and value together.
const MAX_PAIR: usize = 4096;
/// The most bytes of a cookie's path, and of its domain.
const MAX_ATTRIBUTE: usize = 1024;
/// The longest time for which a cookie is kept: 400 days.
const MAX_LIFETIME: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// A cookie that may be stored.
pub(super) struct StoredCookie {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) domain: CookieDomain,
    pub(super) path: CookiePath,
    /// The time at which the cookie expires; `None` if it lasts as long as its jar.
    pub(super) expires: Option<SystemTime>,
    pub(super) is_secure: bool,
}

impl StoredCookie {
    /// Returns true if the cookie is sent with a request to `url`.
    pub(super) fn matches(&self, url: &Url) -> bool {
        self.domain.matches(url) && self.path.matches(url) && (!self.is_secure || is_trustworthy(url))
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Returns true if storing `other` replaces this cookie.
    pub(super) fn is_replaced_by(&self, other: &Self) -> bool {
        self.name == other.name && self.domain == other.domain && *self.path == *other.path
    }

    /// Returns true if `other`, which came from a URL that is not trustworthy, must not be stored beside this secure cookie: it
    /// would be sent in its place (RFC 6265bis §5.7).
    pub(super) fn blocks_insecure_overwrite_by(&self, other: &Self) -> bool {
        self.is_secure
            && self.name == other.name
            && (is_below(&self.domain, &other.domain) || is_below(&other.domain, &self.domain))
            && is_path_below(&other.path, &self.path)
    }
}

/// Returns the cookie that a `Set-Cookie` header of a response from `url` sets; `None` if it is refused. A cookie that has expired
/// deletes the one that it replaces.
pub(super) fn accept(header: &str, url: &Url, now: SystemTime) -> Option<StoredCookie> {
    let is_http = matches!(url.scheme(), "http" | "https");
    if !is_http || header.chars().any(|c| c.is_control() && c != '\t') {
        return None;
    }
    let mut raw = RawCookie::parse(header).ok()?;
    if raw.name().len() + raw.value().len() > MAX_PAIR {
        return None;
    }
    if raw.path().is_some_and(|path| path.len() > MAX_ATTRIBUTE) {
        raw.unset_path();
    }
    if raw.domain().is_some_and(|domain| domain.len() > MAX_ATTRIBUTE) {
        raw.unset_domain();
    }
    if raw.domain().is_some_and(|domain| !domain.is_ascii()) {
        return None;
    }
    let is_secure = raw.secure() == Some(true);
    if (is_secure && !is_trustworthy(url)) || !satisfies_name_prefix(&raw) {
        return None;
    }
    // Checks that the domain is the host's or above it. It reads the lifetime as well, which is not used.
    let cookie = cookie_store::Cookie::try_from_raw_cookie(&raw, url).ok()?;
    if cookie.path.len() > MAX_ATTRIBUTE {
        return None; // the path of the URL itself
    }
    Some(StoredCookie {
        name: raw.name().to_owned(),
        value: raw.value().to_owned(),
        domain: without_public_suffix(cookie.domain, url)?,
        path: cookie.path,
        expires: expiry(header, now),
        is_secure,
    })
}

/// Returns true if what is sent to `url` cannot be read on the way: https, or the machine itself.
pub(super) fn is_trustworthy(url: &Url) -> bool {
    url.scheme() == "https"
        || match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
}

/// Returns the site of a URL: the domain right below the public suffix, or the host if that is an IP address or a public suffix.
pub(super) fn site(url: &Url) -> Option<&str> {
    let host = url.host_str()?;
    match url.host()? {
        Host::Domain(name) => psl::List.domain(name.as_bytes()).map_or(Some(host), |domain| {
            let length = domain.as_bytes().len();
            host.get(host.len() - length..)
        }),
        Host::Ipv4(_) | Host::Ipv6(_) => Some(host),
    }
}

/// Returns true if the cookie has the attributes that the prefix of its name requires (RFC 6265bis §4.1.3).
fn satisfies_name_prefix(raw: &RawCookie<'_>) -> bool {
    let has_prefix =
        |prefix: &str| raw.name().get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let is_secure = raw.secure() == Some(true);
    if has_prefix("__Host-") {
        return is_secure && raw.domain().is_none() && raw.path() == Some("/");
    }
    !has_prefix("__Secure-") || is_secure
}

/// Returns the domain of a cookie: the host alone if the domain is a public suffix and the host itself, or an IP address. `None`
/// if it is the public suffix of other hosts as well, or lies above one: `windows.net` is not a public suffix, but
/// `blob.core.windows.net` is, so a site below that one does not belong to `windows.net`.
fn without_public_suffix(domain: CookieDomain, url: &Url) -> Option<CookieDomain> {
    let CookieDomain::Suffix(name) = &domain else { return Some(domain) };
    let host = url.host()?;
    let is_own = url.host_str() == Some(name);
    if !matches!(host, Host::Domain(_)) {
        return CookieDomain::host_only(url).ok().filter(|_| is_own);
    }
    if name.ends_with('.') || name.starts_with('.') {
        return None;
    }
    let suffix = psl::List.suffix(name.as_bytes());
    if suffix.is_none_or(|suffix| suffix.as_bytes() == name.as_bytes()) {
        return CookieDomain::host_only(url).ok().filter(|_| is_own);
    }
    if site(url).is_none_or(|site| name.len() < site.len()) {
        return None;
    }
    Some(domain)
}

/// Returns the time at which a cookie expires. `Max-Age` takes precedence over `Expires`.
fn expiry(header: &str, now: SystemTime) -> Option<SystemTime> {
    let longest = now.checked_add(MAX_LIFETIME)?;
    let expires = match attributes::max_age(header) {
        Some(age) => now.checked_add(age.min(MAX_LIFETIME)),
        None => attributes::expires(header),
    };
    expires.map(|expires| expires.min(longest))
}

/// Returns true if a domain is `above` or one of its sub-domains.
fn is_below(domain: &CookieDomain, above: &CookieDomain) -> bool {
    let (Some(domain), Some(above)) = (domain.as_cow(), above.as_cow()) else { return false };
    match domain.strip_suffix(&*above) {
        Some(rest) => rest.is_empty() || rest.ends_with('.'),
        None => false,
    }
}

/// Returns true if a path is `above` or below it (RFC 6265bis §5.1.4).
fn is_path_below(path: &str, above: &str) -> bool {
    match path.strip_prefix(above) {
        Some(rest) => rest.is_empty() || above.ends_with('/') || rest.starts_with('/'),
        None => false,
    }
}
