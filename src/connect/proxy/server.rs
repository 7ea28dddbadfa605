//! A proxy server: its host and port, its protocol, its credentials and headers, and its way to handle a request.

use std::fmt;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::socks5;
use crate::connect::error::ProxyError;
use crate::origin::{Credentials, Origin, Scheme};

/// A proxy server and how it is spoken to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProxyServer {
    /// The host and port of the server, and `https` if it is spoken to over TLS.
    pub(in crate::connect) origin: Origin,
    pub(in crate::connect) protocol: ProxyProtocol,
}

/// The protocol by which a proxy is asked to connect to an origin.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::connect) enum ProxyProtocol {
    /// HTTP/1.1: requests to `http` URLs are forwarded, others go through a CONNECT tunnel.
    Http {
        /// The value of the `Proxy-Authorization` header.
        authorization: Option<HeaderValue>,
        /// The headers that the user adds.
        headers: HeaderMap,
    },
    /// SOCKS5 (RFC 1928).
    Socks5 {
        /// At most [`socks5::MAX_TEXT`] bytes each.
        credentials: Option<Credentials>,
        /// True if the proxy looks up names (`socks5h`); otherwise the client sends it addresses.
        resolves_names: bool,
    },
}

/// The way in which a proxy forwards requests. Their targets have to be in absolute form (RFC 9112 §3.2.2).
#[derive(Debug, Clone)]
pub(crate) struct Forwarding {
    /// The value of the `Proxy-Authorization` header that each request needs.
    pub(crate) authorization: Option<HeaderValue>,
    /// The headers that each request gets unless it has one of the same name.
    pub(crate) headers: HeaderMap,
}

impl ProxyServer {
    /// Parses the URL of a proxy. A URL without a scheme is that of an HTTP proxy, as in Go, curl and reqwest.
    pub(in crate::connect) fn parse(text: &str) -> Result<Self, ProxyError> {
        let invalid = |error: url::ParseError| ProxyError::Url(error.to_string());
        let text = text.trim();
        let url = if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
        let mut url = url.map_err(invalid)?;
        let credentials = Credentials::take(&mut url);
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err(ProxyError::Url("it has no host".to_owned()));
        };
        let (scheme, default_port, protocol) = match url.scheme() {
            "http" => ("http", 80, ProxyProtocol::http(credentials)?),
            "https" if cfg!(feature = "__tls") => ("https", 443, ProxyProtocol::http(credentials)?),
            "socks5" => ("http", 1_080, ProxyProtocol::socks5(credentials, false)?),
            "socks5h" => ("http", 1_080, ProxyProtocol::socks5(credentials, true)?),
            other => return Err(ProxyError::Scheme(other.to_owned())),
        };
        // `url` accepts any text as the host of a scheme that it does not know. Parsed under a known scheme, it is
        // checked.
        let port = url.port().unwrap_or(default_port);
        let known = Url::parse(&format!("{scheme}://{host}:{port}/")).map_err(invalid)?;
        let origin = Origin::from_url(&known).map_err(|error| ProxyError::Url(error.to_string()))?;
        Ok(Self { origin, protocol })
    }

    /// Returns how the proxy forwards requests to `origin`; `None` if they go through a tunnel.
    pub(in crate::connect) fn forwards(&self, origin: &Origin) -> Option<Forwarding> {
        match &self.protocol {
            ProxyProtocol::Http { authorization, headers } if origin.scheme() == Scheme::Http => {
                Some(Forwarding { authorization: authorization.clone(), headers: headers.clone() })
            }
            _ => None,
        }
    }

    /// Returns true if the proxy is sent addresses, so that the client looks the origin's name up.
    pub(in crate::connect) fn wants_addresses(&self) -> bool {
        matches!(self.protocol, ProxyProtocol::Socks5 { resolves_names: false, .. })
    }
}

impl ProxyProtocol {
    fn http(credentials: Option<Credentials>) -> Result<Self, ProxyError> {
        Ok(Self::Http { authorization: Self::basic(credentials.as_ref())?, headers: HeaderMap::new() })
    }

    /// Returns the value of the `Proxy-Authorization` header.
    pub(in crate::connect) fn basic(credentials: Option<&Credentials>) -> Result<Option<HeaderValue>, ProxyError> {
        let authorization = credentials.map(Credentials::basic).transpose();
        authorization.map_err(|error| ProxyError::Url(error.to_string()))
    }

    pub(in crate::connect) fn socks5(
        credentials: Option<Credentials>,
        resolves_names: bool,
    ) -> Result<Self, ProxyError> {
        let longest = credentials.as_ref().map_or(0, |both| both.username().len().max(both.password().len()));
        if longest > socks5::MAX_TEXT {
            let what = format!("its user name or password is longer than the {} bytes of SOCKS5", socks5::MAX_TEXT);
            return Err(ProxyError::Url(what));
        }
        Ok(Self::Socks5 { credentials, resolves_names })
    }
}

/// Shows no credentials.
impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            ProxyProtocol::Http { .. } => write!(f, "{}://{}", self.origin.scheme(), self.origin),
            ProxyProtocol::Socks5 { resolves_names: false, .. } => write!(f, "socks5://{}", self.origin),
            ProxyProtocol::Socks5 { resolves_names: true, .. } => write!(f, "socks5h://{}", self.origin),
        }
    }
}

/// Credentials and headers for a proxy.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::connect) struct ProxyExtras {
    authorization: Option<ProxyAuthorization>,
    headers: HeaderMap,
}

/// The credentials for a proxy, in place of those in its URL.
#[derive(Clone, PartialEq, Eq)]
enum ProxyAuthorization {
    /// A user name and a password.
    Basic(Credentials),
    /// The whole value of the `Proxy-ProxyAuthorization` header.
    Header(HeaderValue),
}

/// The headers that frame a message or route it, which are the client's.
const OWN_HEADERS: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE];

impl ProxyExtras {
    pub(in crate::connect) fn set_basic_auth(&mut self, username: &str, password: &str) {
        self.authorization = Some(ProxyAuthorization::Basic(Credentials::new(username, password)));
    }

    pub(in crate::connect) fn set_header_auth(&mut self, mut value: HeaderValue) {
        value.set_sensitive(true);
        self.authorization = Some(ProxyAuthorization::Header(value));
    }

    pub(in crate::connect) fn set_headers(&mut self, headers: HeaderMap) {
        self.headers = headers;
    }

    /// Checks that no header frames or routes a message.
    pub(in crate::connect) fn check_headers(&self) -> Result<(), ProxyError> {
        match OWN_HEADERS.iter().find(|name| self.headers.contains_key(*name)) {
            Some(name) => Err(ProxyError::Header(name.clone())),
            None => Ok(()),
        }
    }

    /// Returns the server with these additions.
    ///
    /// # Errors
    /// [`ProxyError`] for what the server's protocol has no place for.
    pub(in crate::connect) fn apply(&self, mut server: ProxyServer) -> Result<ProxyServer, ProxyError> {
        self.check_headers()?;
        match &mut server.protocol {
            ProxyProtocol::Http { authorization, headers } => {
                let mut added = self.headers.clone();
                if let Some(mut value) = added.remove(PROXY_AUTHORIZATION) {
                    value.set_sensitive(true);
                    *authorization = Some(value);
                }
                match &self.authorization {
                    Some(ProxyAuthorization::Basic(credentials)) => {
                        *authorization = ProxyProtocol::basic(Some(credentials))?;
                    }
                    Some(ProxyAuthorization::Header(value)) => *authorization = Some(value.clone()),
                    None => {}
                }
                *headers = added;
            }
            ProxyProtocol::Socks5 { resolves_names, .. } => match &self.authorization {
                _ if !self.headers.is_empty() => return Err(ProxyError::NotHttp("headers")),
                Some(ProxyAuthorization::Header(_)) => return Err(ProxyError::NotHttp("custom_http_auth")),
                Some(ProxyAuthorization::Basic(credentials)) => {
                    server.protocol = ProxyProtocol::socks5(Some(credentials.clone()), *resolves_names)?;
                }
                None => {}
            },
        }
        Ok(server)
    }
}

/// Shows no credentials and no values of headers.
impl fmt::Debug for ProxyExtras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyExtras")
            .field("authorization", &self.authorization.is_some())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}
