//! The result of a TLS handshake as an extension of a response.

use std::fmt;
use std::sync::Arc;

use super::version::Version;
use crate::trace::TlsFacts;

/// The certificate and the version of TLS of the connection that a response came over. An extension of the responses of
/// a client with [`tls_info`](crate::ClientBuilder::tls_info). [`Response::tls`](crate::Response::tls) has these facts
/// and more, and needs no setting.
///
/// ```
/// use speeddial::tls::TlsInfo;
///
/// # async fn example() -> Result<(), speeddial::Error> {
/// let client = speeddial::Client::builder().tls_info(true).build()?;
/// let response = http::Response::from(client.get("https://api.example.com/").send().await?);
/// let info = response.extensions().get::<TlsInfo>();
/// println!("{:?}", info.and_then(TlsInfo::version));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct TlsInfo {
    facts: Arc<TlsFacts>,
}

impl TlsInfo {
    pub(crate) fn new(facts: Arc<TlsFacts>) -> Self {
        Self { facts }
    }

    /// Returns the server's own certificate in DER; `None` if it sent none.
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.facts.peer_certificates.first().map(|der| &der[..])
    }

    /// Returns the version of TLS that was negotiated.
    pub fn version(&self) -> Option<Version> {
        Version::named(self.facts.version)
    }
}

impl fmt::Debug for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsInfo").field("version", &self.version()).finish_non_exhaustive()
    }
}
