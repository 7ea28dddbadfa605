//! Origins: scheme, host and port of a URL, parsed once and used as the key of connections and limits. User names and passwords of URLs.

use std::borrow::{Borrow, Cow};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{ACCEPT, HOST};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;
use url::{Position, Url};

use crate::world::RandomState;

/// The scheme of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS. Unknown without one of the features `tls` and `tls-ring`.
    Https,
}

impl Scheme {
    fn parse(scheme: &str) -> Option<Self> {
        match scheme {
            "http" => Some(Self::Http),
            "https" if cfg!(feature = "__tls") => Some(Self::Https),
            _ => None,
        }
    }

    fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The host of a URL: an IP address, or a name to look up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Host {
    /// An IP address, which is never looked up.
    Ip(IpAddr),
    /// A name in lower case, in its ASCII (punycode) form.
    Name(Arc<str>),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// An origin (RFC 6454): scheme, host and port. `Display` prints `host:port`. Clones share it.
#[derive(Clone)]
pub struct Origin(Arc<OriginParts>);

struct OriginParts {
    scheme: Scheme,
    host: Host,
    port: u16,
    /// The hash of the parts above, which each request needs.
    hash: u64,
    authority: Option<Authority>,
    /// `Host` and `Accept`. Kept whole, because to copy them costs less than to make them.
    plain_headers: HeaderMap,
}

impl OriginParts {
    fn identity(&self) -> (u64, Scheme, &Host, u16) {
        (self.hash, self.scheme, &self.host, self.port)
    }
}

/// The hashes of origins. Seeded, so that peers cannot choose origins that collide.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::default);

thread_local! {
    /// The origins of the URLs that this thread was given. To look one up costs a third of making it anew, and equal origins
    /// are mostly the same one, which is quickly compared.
    static RECENT: RefCell<HashSet<KnownOrigin, RandomState>> = RefCell::default();
}

/// The most origins that a thread keeps.
const MAX_RECENT: usize = 1_024;

/// An origin that was parsed before, found by the start of its URL: scheme, host and port as they are written.
struct KnownOrigin {
    start: Box<str>,
    origin: Origin,
}

/// Returns a URL up to its path.
#[inline]
fn start_of(url: &Url) -> &str {
    &url[..Position::BeforePath]
}

impl KnownOrigin {
    /// Adds the origin to those of a thread. If there are too many, the others are dropped.
    fn keep_in(self, recent: &mut HashSet<Self, RandomState>) {
        if recent.len() >= MAX_RECENT {
            recent.clear();
        }
        recent.insert(self);
    }
}

impl Borrow<str> for KnownOrigin {
    fn borrow(&self) -> &str {
        &self.start
    }
}

impl PartialEq for KnownOrigin {
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start
    }
}

impl Eq for KnownOrigin {}

impl Hash for KnownOrigin {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.start.hash(state);
    }
}

/// The reason why a URL has no origin that a request could be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The client does not speak the URL's scheme.
    #[error("unknown scheme `{0}`")]
    UnknownScheme(String),
    /// The URL's scheme is `https`, and the crate was built without one of its TLS features (`tls`, `tls-ring`).
    #[error("speeddial was built without a TLS feature, which `https` needs")]
    NoTls,
    /// The URL names no host.
    #[error("the URL has no host")]
    NoHost,
    /// The host has characters that no host may have (RFC 3986 §3.2.2), as in an address that a template left unfinished.
    #[error("`{0}` is not a valid host name")]
    InvalidHost(String),
    /// The URL's port is 0, which cannot be connected to.
    #[error("port 0 cannot be connected to")]
    PortZero,
}

/// The visible characters that a parsed URL may have in its host, and that no host may have (RFC 3986 §3.2.2).
const NO_HOST_CHARS: [char; 4] = ['"', '`', '{', '}'];

impl Origin {
    /// Returns the origin of a parsed URL.
    ///
    /// # Errors
    /// [`OriginError`] if the scheme is unknown, the host is missing or not valid, or the port is 0.
    ///
    /// ```
    /// let url = url::Url::parse("http://API.example.com/v1")?;
    /// assert_eq!(speeddial::origin::Origin::from_url(&url)?.to_string(), "api.example.com:80");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self, OriginError> {
        match Self::recent(url) {
            Some(origin) => Ok(origin),
            None => Self::parse(url),
        }
    }

    /// Returns the origin of a URL whose scheme, host and port are written like those of one that this thread parsed before. A URL
    /// with credentials never matches: its start contains them, and such starts are not kept.
    #[inline]
    pub(crate) fn recent(url: &Url) -> Option<Self> {
        RECENT.try_with(|recent| recent.borrow().get(start_of(url)).map(|known| known.origin.clone())).ok()?
    }

    // Apart, because a service mostly calls origins that it has called before.
    #[cold]
    fn parse(url: &Url) -> Result<Self, OriginError> {
        let scheme = Scheme::parse(url.scheme()).ok_or_else(|| match url.scheme() {
            "https" => OriginError::NoTls,
            other => OriginError::UnknownScheme(other.to_owned()),
        })?;
        let host = match url.host() {
            Some(url::Host::Ipv4(ip)) => Host::Ip(ip.into()),
            Some(url::Host::Ipv6(ip)) => Host::Ip(ip.into()),
            Some(url::Host::Domain(name)) if name.contains(NO_HOST_CHARS) => {
                return Err(OriginError::InvalidHost(name.to_owned()));
            }
            Some(url::Host::Domain(name)) if !name.is_empty() => Host::Name(name.into()),
            _ => return Err(OriginError::NoHost),
        };
        let port = match url.port().unwrap_or(scheme.default_port()) {
            0 => return Err(OriginError::PortZero),
            port => port,
        };
        let origin = Self::of_parts(scheme, host, port);
        if url.username().is_empty() && url.password().is_none() {
            let known = KnownOrigin { start: start_of(url).into(), origin: origin.clone() };
            // No room for it only while the thread ends.
            let _ = RECENT.try_with(|recent| known.keep_in(&mut recent.borrow_mut()));
        }
        Ok(origin)
    }

    fn of_parts(scheme: Scheme, host: Host, port: u16) -> Self {
        let hash = HASHES.hash_one((scheme, &host, port));
        let host_header = host_header(scheme, &host, port);
        let authority = host_header.as_bytes().try_into().ok();
        let mut plain_headers = HeaderMap::with_capacity(2);
        plain_headers.insert(HOST, host_header);
        plain_headers.insert(ACCEPT, ANYTHING);
        Self(Arc::new(OriginParts { scheme, host, port, hash, authority, plain_headers }))
    }

    /// Returns true if the port is the usual one of the scheme.
    pub(crate) fn has_default_port(&self) -> bool {
        self.0.port == self.0.scheme.default_port()
    }

    /// Returns the scheme.
    pub fn scheme(&self) -> Scheme {
        self.0.scheme
    }

    /// Returns the host.
    pub fn host(&self) -> &Host {
        &self.0.host
    }

    /// Returns the host's name; `None` if it is an IP address.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        match &self.0.host {
            Host::Name(name) => Some(name),
            Host::Ip(_) => None,
        }
    }

    /// Returns the port: the one in the URL, or else the scheme's default port.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Returns the `Host` header of requests to this origin (RFC 9110 §7.2), with the port if it is not the scheme's default.
    pub(crate) fn host_header(&self) -> &HeaderValue {
        &self.0.plain_headers[HOST]
    }

    /// Returns the `:authority` of requests to this origin (RFC 9113 §8.3.1), which says the same as the `Host` header; `None` if it
    /// is not valid in a URI.
    pub(crate) fn authority(&self) -> Option<&Authority> {
        self.0.authority.as_ref()
    }

    /// Returns the headers of an HTTP/1.1 request to this origin that sets none.
    pub(crate) fn plain_headers(&self) -> &HeaderMap {
        &self.0.plain_headers
    }
}

/// The `Accept` of a request that has none: any type of content, as curl and reqwest send it. Some servers refuse a request without
/// one.
pub(crate) const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");

/// Returns the `Host` header of requests to a host and port (RFC 9110 §7.2).
fn host_header(scheme: Scheme, host: &Host, port: u16) -> HeaderValue {
    let host = match host {
        Host::Name(name) => Cow::Borrowed(&**name),
        host @ Host::Ip(_) => Cow::Owned(host.to_string()),
    };
    // Of exactly the right size, because `Bytes` shares a string with spare capacity by a counter that it allocates.
    let text = if port == scheme.default_port() {
        host.into_owned()
    } else {
        [&host, ":", itoa::Buffer::new().format(port)].concat()
    };
    HeaderValue::try_from(text).expect("a URL's host is visible ASCII")
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.host, self.0.port)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OriginParts { scheme, host, port, .. } = &*self.0;
        f.debug_struct("Origin").field("scheme", scheme).field("host", host).field("port", port).finish()
    }
}

impl PartialEq for Origin {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.identity() == other.0.identity()
    }
}

impl Eq for Origin {}

impl Hash for Origin {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

/// A user name and a password, as bytes, because a URL can encode any bytes. There is no `Debug`, so that no log shows
/// them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    username: Vec<u8>,
    password: Vec<u8>,
}

/// A user name that contains a colon: a server would take the part after it for the password (RFC 7617 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user's name has a colon in it")]
pub(crate) struct ColonInUsername;

impl Credentials {
    /// Creates credentials, whose parts are not percent-encoded.
    pub(crate) fn new(username: impl Into<Vec<u8>>, password: impl Into<Vec<u8>>) -> Self {
        Self { username: username.into(), password: password.into() }
    }

    /// Takes the credentials off `url` and decodes them; `None` if it has none.
    pub(crate) fn take(url: &mut Url) -> Option<Self> {
        if url.username().is_empty() && url.password().is_none() {
            return None;
        }
        let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let credentials = Self::new(decoded(url.username()), url.password().map(decoded).unwrap_or_default());
        // These fail only for URLs that cannot have credentials.
        let _ = url.set_password(None);
        let _ = url.set_username("");
        Some(credentials)
    }

    /// Returns the value of an `Authorization` header (RFC 7617), marked as sensitive.
    pub(crate) fn basic(&self) -> Result<HeaderValue, ColonInUsername> {
        if self.username.contains(&b':') {
            return Err(ColonInUsername);
        }
        let pair = [self.username.as_slice(), b":".as_slice(), self.password.as_slice()].concat();
        let text = format!("Basic {}", BASE64_STANDARD.encode(pair));
        let mut value = HeaderValue::try_from(text).expect("base64 is visible ASCII");
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns the user name.
    pub(crate) fn username(&self) -> &[u8] {
        &self.username
    }

    /// Returns the password.
    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Result<Origin, OriginError> {
        Origin::from_url(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_host_is_in_lower_case_and_has_the_schemes_default_port() {
        let origin = origin("http://API.Example.com/x").unwrap();
        assert_eq!(origin.to_string(), "api.example.com:80");
        assert_eq!(origin.host_header(), "api.example.com");
    }

    #[test]
    fn equal_origins_are_equal_and_have_one_hash_however_they_were_made() {
        let hash = |origin: &Origin| HASHES.hash_one(origin);
        let first = origin("http://a.test/1").unwrap();
        let same = origin("http://a.test:80/2?q#f").unwrap();
        let elsewhere = std::thread::spawn(|| origin("http://a.test/").unwrap()).join().unwrap();
        let with_credentials = origin("http://me:secret@a.test/").unwrap();
        for other in [&same, &elsewhere, &with_credentials] {
            assert_eq!((&first, hash(&first)), (other, hash(other)));
        }
        assert!(Arc::ptr_eq(&first.0, &same.0) && !Arc::ptr_eq(&first.0, &elsewhere.0));
        for other in ["http://a.test:81/", "http://b.test/", "http://a.test.test/"] {
            assert_ne!(origin(other).unwrap(), first);
        }
    }

    #[test]
    fn a_thread_keeps_a_limited_number_of_origins_and_no_credentials() {
        for number in 0..3 * MAX_RECENT {
            let url = format!("http://host{number}.test/");
            assert_eq!(origin(&url).unwrap().to_string(), format!("host{number}.test:80"));
            assert_eq!(origin(&url).unwrap().to_string(), format!("host{number}.test:80"));
        }
        origin("http://me:secret@secret.test/").unwrap();
        RECENT.with_borrow(|recent| {
            assert!(recent.len() <= MAX_RECENT);
            assert!(!recent.iter().any(|known| known.start.contains("secret")));
        });
        assert!(Origin::recent(&Url::parse("http://me:secret@host0.test/").unwrap()).is_none());
    }

    #[test]
    fn another_port_is_part_of_the_host_header() {
        assert_eq!(origin("http://[::1]:8080/").unwrap().host_header(), "[::1]:8080");
        assert_eq!(origin("http://127.0.0.1:81").unwrap().host_header(), "127.0.0.1:81");
    }

    #[test]
    fn a_url_that_cannot_be_dialled_has_no_origin() {
        assert_eq!(origin("ftp://host/"), Err(OriginError::UnknownScheme("ftp".into())));
        #[cfg(not(feature = "__tls"))]
        assert_eq!(origin("https://host/"), Err(OriginError::NoTls));
        assert_eq!(origin("mailto:a@b"), Err(OriginError::UnknownScheme("mailto".into())));
        assert_eq!(origin("http://host:0/"), Err(OriginError::PortZero));
        assert_eq!(origin("http://a{b}.test/"), Err(OriginError::InvalidHost("a{b}.test".into())));
    }

    #[test]
    fn international_names_are_in_their_ascii_form() {
        assert_eq!(origin("http://bücher.example/").unwrap().to_string(), "xn--bcher-kva.example:80");
    }

    #[test]
    fn underscores_in_names_are_kept() {
        assert_eq!(origin("http://my_svc:8080/").unwrap().to_string(), "my_svc:8080");
    }
}

#[cfg(test)]
mod credentials_tests {
    use super::*;

    #[test]
    fn credentials_are_taken_off_a_url_and_decoded() {
        for (url, left, text) in [
            ("http://me:secret@host/x", "http://host/x", Some(("me", "secret"))),
            ("http://me@host:81/?q", "http://host:81/?q", Some(("me", ""))),
            ("http://:secret@host/", "http://host/", Some(("", "secret"))),
            ("http://m%C3%BC%40x:p%3Aw%20@host/", "http://host/", Some(("mü@x", "p:w "))),
            ("socks5://me:pa+ss@[::1]:1080", "socks5://[::1]:1080", Some(("me", "pa+ss"))),
            ("http://host/@x", "http://host/@x", None),
            ("http://:@host/", "http://host/", None),
            ("user:secret@host", "user:secret@host", None),
        ] {
            let mut parsed = Url::parse(url).unwrap();
            let taken = Credentials::take(&mut parsed);
            let taken = taken.as_ref().map(|credentials| (credentials.username(), credentials.password()));
            assert_eq!(
                taken,
                text.map(|(user, password): (&str, &str)| (user.as_bytes(), password.as_bytes())),
                "{url}"
            );
            assert_eq!(parsed.as_str(), left, "{url}");
        }
    }

    #[test]
    fn basic_authorization_is_as_in_rfc_7617_and_marked_as_sensitive() {
        let value = Credentials::new("Aladdin", "open sesame").basic().unwrap();
        assert_eq!(value, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert!(value.is_sensitive());
        assert_eq!(Credentials::new("a:b", "c").basic(), Err(ColonInUsername));
    }
}
