//! Errors of TLS settings.

/// The reason why a TLS setting cannot work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The text is not PEM, or it does not contain what was expected.
    #[error("{what}: {why}")]
    Pem {
        /// The expected content: `private key` or `certificates`.
        what: &'static str,
        /// The error in it.
        why: String,
    },
    /// The private key is encrypted, and there is no setting for its passphrase.
    #[error("the private key is encrypted; decrypt it first, as `openssl pkey` does")]
    EncryptedKey,
    /// The private key belongs to none of the chain's certificates.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The chain does not begin with the private key's certificate, or a certificate is not followed by its issuer's
    /// (RFC 8446 §4.4.2).
    #[error("the certificates are in the wrong order: {0}")]
    ChainOrder(String),
    /// The name is neither a host name nor an IP address.
    #[error("`{0}` cannot be the name of a server")]
    ServerName(String),
    /// The named setting would have no effect beside a whole `rustls::ClientConfig`.
    #[error("{0} has no effect beside a whole rustls configuration")]
    BesideClientConfig(&'static str),
    /// The protocols to offer include a version of HTTP that the client's version settings exclude.
    #[error("the protocols offered (ALPN) include `{0}`, which the client's version settings exclude")]
    Alpn(String),
    /// rustls refuses the configuration.
    #[error("{0}")]
    Refused(#[from] rustls::Error),
}
