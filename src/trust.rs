//! Whom TLS trusts where nobody says otherwise: one crypto provider and the platform's certificates, for HTTPS and DNS.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, ConfigBuilder, WantsVerifier};
use rustls_platform_verifier::BuilderVerifierExt;

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

/// The beginning of a configuration.
pub(crate) fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()
}

/// A configuration that trusts what the platform trusts, and shows no certificate. Reads files on some platforms.
pub(crate) fn platform() -> Result<ClientConfig, rustls::Error> {
    Ok(builder()?.with_platform_verifier()?.with_no_client_auth())
}

/// A configuration that trusts nobody, for where none is needed.
pub(crate) fn nobody() -> Result<ClientConfig, rustls::Error> {
    Ok(builder()?.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}
