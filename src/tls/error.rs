//! Errors of TLS settings.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The reason why a TLS setting cannot work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The text is not PEM, or it does not contain what was expected.
    #[error("{what}: {why}")]
    Pem {
        /// The expected content: `private key`, `certificates` or `certificate revocation lists`.
        what: &'static str,
        /// The error in it.
        why: String,
    },
    /// The key and certificates in PKCS #12 cannot be read, for this reason.
    #[cfg(feature = "__native-tls")]
    #[error("the PKCS #12 archive cannot be read: {0}")]
    Pkcs12(String),
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
    /// A root certificate cannot be read.
    #[error("root certificate number {number} cannot be read: {why}")]
    Root {
        /// The certificate's place among those of the same text or file, from 1.
        number: usize,
        /// The error in it.
        why: String,
    },
    /// Only added root certificates are trusted, and none was added, so that no server would be.
    #[error("only added root certificates are trusted, and none was added")]
    NoRoots,
    /// The name is neither a host name nor an IP address.
    #[error("`{0}` cannot be the name of a server")]
    ServerName(String),
    /// The named setting would have no effect beside a whole `rustls::ClientConfig`.
    #[error("{0} has no effect beside a whole rustls configuration")]
    BesideClientConfig(&'static str),
    /// The named setting would have no effect beside [`TlsConfig::danger_accept_invalid_certs`].
    ///
    /// [`TlsConfig::danger_accept_invalid_certs`]: super::TlsConfig::danger_accept_invalid_certs
    #[error("{0} has no effect while any certificate is accepted")]
    BesideInvalidCerts(&'static str),
    /// The named setting would have no effect beside the platform's certificate authorities, whose verifier does not have
    /// it.
    #[error("{0} needs trusted roots of your own, because the platform's verifier does not have that setting")]
    BesidePlatformRoots(&'static str),
    /// Between the lowest and the highest version of TLS is none that the client speaks.
    #[error("the versions of TLS leave neither 1.2 nor 1.3, which are those that the client speaks")]
    NoVersion,
    /// The protocols to offer include a version of HTTP that the client's version settings exclude.
    #[error("the protocols offered (ALPN) include `{0}`, which the client's version settings exclude")]
    Alpn(String),
    /// The name of a protocol to offer has no bytes, or more than 255 (RFC 7301 §3.1).
    #[error("the name of a protocol to offer (ALPN) has {0} bytes; it must have 1 to 255")]
    AlpnLength(usize),
    /// The session cache is for more hosts than memory is reserved for.
    #[error("a session cache for {0} hosts is too large; the most is 1,000,000")]
    SessionCache(usize),
    /// A file or directory cannot be read.
    #[error("{path:?} cannot be read: {error}")]
    Unreadable {
        /// The path of the file or directory.
        path: PathBuf,
        /// The error of the system.
        error: Arc<io::Error>,
    },
    /// The content of a file is not valid.
    #[error("{path:?}: {error}")]
    InFile {
        /// The path of the file.
        path: PathBuf,
        /// The error in it.
        error: Box<TlsConfigError>,
    },
    /// rustls refuses the configuration.
    #[error(transparent)]
    Refused(#[from] rustls::Error),
}
