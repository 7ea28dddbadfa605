//! The versions of HTTP: those the client may speak, and the one that a connection speaks.

use crate::origin::{Origin, Scheme};

/// The versions of HTTP that the client may speak.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Versions {
    /// The server's choice by ALPN over TLS, HTTP/1.1 otherwise.
    #[default]
    Any,
    /// HTTP/1.1 alone.
    Http1,
    /// HTTP/2 alone, also without TLS: prior knowledge (RFC 9113 §3.3).
    Http2,
}

impl Versions {
    /// Returns the protocols to offer by ALPN, the preferred one first.
    pub(crate) fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Any => &[b"h2", b"http/1.1"],
            Self::Http1 => &[b"http/1.1"],
            Self::Http2 => &[b"h2"],
        }
    }

    /// Returns the protocol of a connection whose TLS handshake chose `alpn`.
    pub(in crate::connect) fn negotiated(self, alpn: Option<&str>) -> Protocol {
        match (self, alpn) {
            (Self::Http2, _) | (Self::Any, Some("h2")) => Protocol::Http2,
            _ => Protocol::Http1,
        }
    }

    /// Returns the protocol of all connections to `origin`; `None` if each of them negotiates it by ALPN.
    pub(in crate::connect) fn known_for(self, origin: &Origin) -> Option<Protocol> {
        match self {
            Self::Http1 => Some(Protocol::Http1),
            Self::Http2 => Some(Protocol::Http2),
            Self::Any if origin.scheme() == Scheme::Http => Some(Protocol::Http1),
            Self::Any => None,
        }
    }
}

/// The version of HTTP that a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// Returns the highest version of the protocol. An HTTP/1.1 server may turn out to speak HTTP/1.0.
    pub(crate) fn version(self) -> http::Version {
        match self {
            Self::Http1 => http::Version::HTTP_11,
            Self::Http2 => http::Version::HTTP_2,
        }
    }
}

/// The number of requests that a connection carries from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capacity {
    /// Up to this many requests at the same time. HTTP/2 servers announce it (RFC 9113 §5.1.2).
    Streams(usize),
    /// No new requests. Those under way go on.
    NoMore,
    /// No new requests, because the server is overloaded: its GOAWAY had the code ENHANCE_YOUR_CALM (RFC 9113 §7).
    EnhanceYourCalm,
    /// No requests at all: the runtime that served the connection ended before the socket was closed. The server did
    /// nothing.
    Abandoned,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http2_needs_alpn_or_prior_knowledge() {
        assert_eq!(Versions::Any.negotiated(None), Protocol::Http1);
        assert_eq!(Versions::Any.negotiated(Some("h2")), Protocol::Http2);
        assert_eq!(Versions::Http1.negotiated(Some("h2")), Protocol::Http1);
        assert_eq!(Versions::Http2.negotiated(None), Protocol::Http2);
    }

    #[cfg(feature = "__tls")]
    #[test]
    fn only_an_https_origin_has_a_choice_of_protocol() {
        let origin = |url: &str| Origin::from_url(&url.parse().unwrap()).unwrap();
        assert_eq!(Versions::Any.known_for(&origin("http://api.test/")), Some(Protocol::Http1));
        assert_eq!(Versions::Any.known_for(&origin("https://api.test/")), None);
        assert_eq!(Versions::Http2.known_for(&origin("https://api.test/")), Some(Protocol::Http2));
    }
}
