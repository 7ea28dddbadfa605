//! The facts by which an open connection may carry requests to other origins than its own (RFC 9113 §9.1.1).

use std::net::SocketAddr;

use bytes::Bytes;

use super::conn::ConnInfo;

/// The facts about an open connection that decide which other origins it may serve.
pub(crate) struct Reusable {
    /// The address that was connected to.
    pub(crate) remote: SocketAddr,
    /// The server's certificate in DER.
    pub(crate) certificate: Bytes,
    /// The names in the certificate. Those that begin with `*.` stand for many.
    pub(crate) names: Vec<Box<str>>,
}

impl Reusable {
    /// Returns the facts about a connection; `None` if it serves its own origin alone. That is so over HTTP/1.1, where HTTP/2 was not
    /// agreed on by ALPN, through a proxy, and if the server's certificate was not verified.
    pub(super) fn of(info: &ConnInfo) -> Option<Self> {
        let tls = info.tls.as_ref().filter(|tls| tls.verified && tls.alpn.as_deref() == Some("h2"))?;
        let remote = info.remote.filter(|_| info.is_direct)?;
        let certificate = tls.peer_certificates.first()?.clone();
        let names = names_of(&certificate);
        (!names.is_empty()).then_some(Self { remote, certificate, names })
    }
}

/// Returns the names in a certificate, in lower case; none if there are too many.
#[cfg(feature = "__tls")]
fn names_of(certificate: &[u8]) -> Vec<Box<str>> {
    crate::tls::names_of(certificate)
}

#[cfg(not(feature = "__tls"))]
fn names_of(_: &[u8]) -> Vec<Box<str>> {
    Vec::new()
}

/// Returns true if a certificate is valid for a name.
#[cfg(feature = "__tls")]
pub(crate) fn is_valid_for(certificate: &[u8], name: &str) -> bool {
    crate::tls::is_valid_for(certificate, name)
}

#[cfg(not(feature = "__tls"))]
pub(crate) fn is_valid_for(_: &[u8], _: &str) -> bool {
    false
}
