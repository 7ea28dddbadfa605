//! Where a request goes: scheme, host and port, parsed once and used as the key of everything.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use url::Url;

/// The scheme of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS. Without one of the features for TLS it is unknown.
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

/// A host as a URL names it: an address, or a name that has to be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Host {
    /// An IP literal; it is never looked up.
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

/// An origin (RFC 6454): scheme, host and port. Displays as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: Scheme,
    host: Host,
    port: u16,
}

/// Why a URL has no origin that a request could be sent to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OriginError {
    /// The URL's scheme is not one this client speaks.
    #[error("unknown scheme `{0}`")]
    UnknownScheme(String),
    /// The URL names no host.
    #[error("the URL has no host")]
    NoHost,
    /// Port 0 cannot be connected to.
    #[error("port 0 cannot be connected to")]
    PortZero,
}

impl Origin {
    /// Takes the origin out of a parsed URL.
    ///
    /// # Errors
    /// [`OriginError`] where the scheme is unknown, the host is missing, or the port is 0.
    ///
    /// ```
    /// let url = url::Url::parse("http://API.example.com/v1")?;
    /// assert_eq!(speeddial::Origin::from_url(&url)?.to_string(), "api.example.com:80");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self, OriginError> {
        let scheme = Scheme::parse(url.scheme()).ok_or_else(|| OriginError::UnknownScheme(url.scheme().to_owned()))?;
        let host = match url.host() {
            Some(url::Host::Ipv4(ip)) => Host::Ip(ip.into()),
            Some(url::Host::Ipv6(ip)) => Host::Ip(ip.into()),
            Some(url::Host::Domain(name)) if !name.is_empty() => Host::Name(name.into()),
            _ => return Err(OriginError::NoHost),
        };
        match url.port().unwrap_or(scheme.default_port()) {
            0 => Err(OriginError::PortZero),
            port => Ok(Self { scheme, host, port }),
        }
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port, the scheme's own where the URL named none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The `Host` header of requests to this origin (RFC 9110 §7.2): the port only where it is not the scheme's own.
    pub(crate) fn host_header(&self) -> HeaderValue {
        let host = match &self.host {
            Host::Name(name) => Cow::Borrowed(&**name),
            host @ Host::Ip(_) => Cow::Owned(host.to_string()),
        };
        // Without a formatter, which costs as much as all the rest of a request's headers; and of the right size, because a
        // string with room to spare would be kept as it is, and its owners counted.
        let text = match self.port == self.scheme.default_port() {
            true => host.into_owned(),
            false => [&host, ":", itoa::Buffer::new().format(self.port)].concat(),
        };
        HeaderValue::try_from(text).expect("a URL's host is visible ASCII")
    }
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
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(url: &str) -> Result<Origin, OriginError> {
        Origin::from_url(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_name_is_lower_case_and_has_the_schemes_port() {
        let origin = origin("http://API.Example.com/x").unwrap();
        assert_eq!(origin.to_string(), "api.example.com:80");
        assert_eq!(origin.host_header(), "api.example.com");
    }

    #[test]
    fn another_port_is_part_of_the_host_header() {
        assert_eq!(origin("http://[::1]:8080/").unwrap().host_header(), "[::1]:8080");
        assert_eq!(origin("http://127.0.0.1:81").unwrap().host_header(), "127.0.0.1:81");
    }

    #[test]
    fn what_cannot_be_dialled_is_refused() {
        assert_eq!(origin("ftp://host/"), Err(OriginError::UnknownScheme("ftp".into())));
        assert_eq!(origin("mailto:a@b"), Err(OriginError::UnknownScheme("mailto".into())));
        assert_eq!(origin("http://host:0/"), Err(OriginError::PortZero));
    }

    #[test]
    fn international_names_are_in_their_ascii_form() {
        assert_eq!(origin("http://bücher.example/").unwrap().to_string(), "xn--bcher-kva.example:80");
    }

    #[test]
    fn underscores_stay() {
        assert_eq!(origin("http://my_svc:8080/").unwrap().to_string(), "my_svc:8080");
    }
}
