//! The additions of the user to a proxy's URL: credentials and headers.

use std::fmt;

use http::header::{CONNECTION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::server::{ProxyProtocol, ProxyServer};
use crate::connect::error::ProxyError;
use crate::credentials::Credentials;

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
