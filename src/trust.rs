//! The crypto provider and the trusted certificates of TLS, for HTTPS and for encrypted DNS.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::{Error, RootCertStore};
use rustls_platform_verifier::Verifier;

/// Returns the provider that the process has installed, or else the one of this crate's features. rustls's own default
/// panics if the features of other crates have added a second provider.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    if let Some(installed) = CryptoProvider::get_default() {
        return installed.clone();
    }
    #[cfg(feature = "tls")]
    return Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(feature = "tls"))]
    return Arc::new(rustls::crypto::ring::default_provider());
}

/// Makes a verifier that trusts the platform's certificate authorities and `extra`. Reads files on some platforms.
pub(crate) fn platform_verifier(
    extra: impl IntoIterator<Item = CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut extra = extra.into_iter().peekable();
    Ok(Arc::new(match extra.peek().is_some() {
        true => Verifier::new_with_extra_roots(extra, provider)?,
        false => Verifier::new(provider)?,
    }))
}

/// Returns true if the platform's certificates can be read now. [`platform_verifier`] does not tell: it succeeds
/// without them if it is given others.
pub(crate) fn has_platform_roots(provider: Arc<CryptoProvider>) -> bool {
    Verifier::new(provider).is_ok()
}

/// Makes a verifier that trusts these certificate authorities alone. With lists of `revoked` certificates, the
/// certificates of a chain must all be of authorities with a list, and in none of them.
pub(crate) fn verifier(
    roots: RootCertStore,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).with_crls(revoked).build();
    Ok(built.map_err(|error| Error::General(error.to_string()))?)
}

/// Makes a configuration for encrypted DNS with these trusted certificate authorities.
#[cfg(feature = "dns-over-tls")]
pub(crate) fn client_config(trusting: TrustedRoots) -> Result<rustls::ClientConfig, Error> {
    let provider = provider();
    let builder =
        rustls::ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match trusting {
        TrustedRoots::Platform => {
            let verifier = platform_verifier(std::iter::empty(), provider)?;
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
        TrustedRoots::Empty => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// The certificate authorities that a configuration trusts.
#[cfg(feature = "dns-over-tls")]
pub(crate) enum TrustedRoots {
    /// The platform's authorities.
    Platform,
    /// No authorities, for a configuration that is never used.
    Empty,
}
