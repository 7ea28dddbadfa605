//! Whom TLS trusts where nobody says otherwise: one crypto provider and the platform's certificates, for HTTPS and DNS.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::{Error, RootCertStore};
use rustls_platform_verifier::Verifier;

/// The provider the process has installed, else the one this crate was built with: rustls itself would panic where
/// features of other crates have brought in a second one.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    if let Some(installed) = CryptoProvider::get_default() {
        return installed.clone();
    }
    #[cfg(feature = "tls")]
    return Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(not(feature = "tls"))]
    return Arc::new(rustls::crypto::ring::default_provider());
}

/// Trusts what the platform trusts, and these certificates. Reads files on some platforms.
pub(crate) fn platform_verifier(
    extra: impl IntoIterator<Item = CertificateDer<'static>>,
) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let mut extra = extra.into_iter().peekable();
    Ok(Arc::new(match extra.peek().is_some() {
        true => Verifier::new_with_extra_roots(extra, provider())?,
        false => Verifier::new(provider())?,
    }))
}

/// Returns true if the platform's certificates can be read now: [`platform_verifier`] does not fail without them where it is
/// given others.
pub(crate) fn has_platform_roots() -> bool {
    Verifier::new(provider()).is_ok()
}

/// Trusts these certificates alone.
pub(crate) fn verifier(roots: RootCertStore) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    Ok(built.map_err(|error| Error::General(error.to_string()))?)
}

/// A configuration that trusts what the platform trusts, and one that trusts nobody, for where none is needed.
#[cfg(feature = "dns-over-tls")]
pub(crate) fn client_config(trusting: Trusting) -> Result<rustls::ClientConfig, Error> {
    let builder = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match trusting {
        Trusting::Platform => {
            builder.dangerous().with_custom_certificate_verifier(platform_verifier(std::iter::empty())?)
        }
        Trusting::Nobody => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// Whom a configuration trusts.
#[cfg(feature = "dns-over-tls")]
pub(crate) enum Trusting {
    Platform,
    Nobody,
}
