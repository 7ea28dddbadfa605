//! The client's own certificate: a chain and a private key that belong together.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::Error;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ParsedCertificate;
use webpki::EndEntityCert;

use crate::clock::Instant;
use crate::tls::certs::watched::{WatchedFiles, invalid, read_file};
use crate::tls::certs::{certificates, private_key};
use crate::tls::failure::TlsConfigError;
use crate::trust;

/// The client's own certificate and private key, which it shows to servers that ask for one (mTLS).
///
/// ```
/// use speeddial::tls::Identity;
///
/// fn client() -> Result<speeddial::Client, Box<dyn std::error::Error>> {
///     let identity = Identity::from_pem(&std::fs::read("/etc/ssl/client.pem")?)?;
///     Ok(speeddial::Client::builder().identity(identity).build()?)
/// }
/// ```
#[derive(Clone)]
pub struct Identity(IdentitySource);

/// Where the certificate and key come from.
#[derive(Clone)]
enum IdentitySource {
    Fixed(Arc<Parts>),
    Files(Arc<WatchedFiles<Parts>>),
}

/// A chain that begins with the client's certificate, and the private key of that certificate.
struct Parts {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.chain == other.chain && self.key.secret_der() == other.key.secret_der()
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.parts().chain.len()).finish_non_exhaustive()
    }
}

impl Identity {
    pub(crate) fn read_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsConfigError> {
        let key = private_key(key)?;
        Self::new(certificates(chain)?, key)
    }

    #[cfg(feature = "__native-tls")]
    pub(crate) fn read_pkcs12(der: &[u8], password: &str) -> Result<Self, TlsConfigError> {
        use p12_keystore::{KeyStore, Pkcs12ImportPolicy};
        let wrong = |why: String| TlsConfigError::Pkcs12(why);
        let store = KeyStore::from_pkcs12(der, password, Pkcs12ImportPolicy::Strict);
        let store = store.map_err(|error| wrong(error.to_string()))?;
        let (_, chain) =
            store.private_key_chain().ok_or_else(|| wrong("it has no private key with its certificate".to_owned()))?;
        let key = PrivateKeyDer::Pkcs8(chain.key().as_der().to_vec().into());
        Self::new(chain.certs().iter().map(|cert| cert.as_der().to_vec().into()).collect(), key)
    }

    /// Reads a private key and a chain of certificates, the client's own first, from two files in PEM, which clients read again
    /// while they run: every 10 s, or as [`ClientBuilder::tls_reload_interval`](crate::ClientBuilder::tls_reload_interval) says.
    ///
    /// When the files have changed, a client uses the new certificate for the connections that it opens from then on. Connections
    /// that were made with the old one finish their requests and close. While the files cannot be read, or do not belong together,
    /// the client goes on with the last certificate and key that did, and reports
    /// [`Event::TlsFilesRefused`](crate::trace::Event::TlsFilesRefused).
    ///
    /// The paths are followed anew each time, so that the files of a Kubernetes volume are found, whose directory is replaced by a
    /// link. Clones share what was read.
    ///
    /// # Errors
    /// [`TlsConfigError::Unreadable`] if a file cannot be read now, [`TlsConfigError::InFile`] if its content is not valid. Those of
    /// [`from_pem`](Self::from_pem) if the files do not belong together.
    ///
    /// ```no_run
    /// use speeddial::{Client, Identity};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let identity = Identity::watch_files("/var/run/tls/tls.crt", "/var/run/tls/tls.key")?;
    /// let client = Client::builder().identity(identity).build()?;
    /// # Ok(()) }
    /// ```
    pub fn watch_files(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, TlsConfigError> {
        let files = WatchedFiles::open(vec![chain.into(), key.into()], |paths| {
            let (chain, key) = (&paths[0], &paths[1]);
            let chain_ders = certificates(&read_file(chain)?).map_err(invalid(chain))?;
            let key_der = private_key(&read_file(key)?).map_err(invalid(key))?;
            Parts::new(chain_ders, key_der)
        })?;
        Ok(Self(IdentitySource::Files(Arc::new(files))))
    }

    /// Returns the certificate and key as they are now, which later changes of files leave alone.
    pub(in crate::tls) fn fixed(&self) -> Self {
        Self(IdentitySource::Fixed(self.parts()))
    }

    /// Reads the files again, if the identity is that of files.
    pub(in crate::tls) fn refresh(&self, now: Instant) -> Result<(), TlsConfigError> {
        match &self.0 {
            IdentitySource::Fixed(_) => Ok(()),
            IdentitySource::Files(files) => files.refresh(now),
        }
    }

    /// Returns true if the files are to be read again in a moment.
    pub(in crate::tls) fn is_unsure(&self) -> bool {
        matches!(&self.0, IdentitySource::Files(files) if files.are_unsure())
    }

    /// Returns true if the identity is that of files.
    pub(in crate::tls) fn is_watched(&self) -> bool {
        matches!(self.0, IdentitySource::Files(_))
    }

    fn parts(&self) -> Arc<Parts> {
        match &self.0 {
            IdentitySource::Fixed(parts) => parts.clone(),
            IdentitySource::Files(files) => files.current(),
        }
    }

    pub(in crate::tls) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.parts().chain.clone()
    }

    pub(in crate::tls) fn key(&self) -> PrivateKeyDer<'static> {
        self.parts().key.clone_key()
    }

    /// Checks the parts as a server would. `chain` must not be empty.
    ///
    /// # Errors
    /// If the key is that of another certificate, or the chain is in the wrong order.
    pub(in crate::tls) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsConfigError> {
        Ok(Self(IdentitySource::Fixed(Arc::new(Parts::new(chain, key)?))))
    }
}

impl Parts {
    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, TlsConfigError> {
        check_key(&chain, &key)?;
        check_order(&chain)?;
        Ok(Self { chain, key })
    }
}

/// Checks that the key is that of the chain's first certificate.
fn check_key(chain: &[CertificateDer<'static>], key: &PrivateKeyDer<'static>) -> Result<(), TlsConfigError> {
    let key = trust::provider().key_provider.load_private_key(key.clone_key())?;
    // Not every crypto provider can derive the public key.
    let Some(public_key) = key.public_key() else { return Ok(()) };
    let matches = |certificate: &CertificateDer<'_>| -> Result<bool, Error> {
        Ok(ParsedCertificate::try_from(certificate)?.subject_public_key_info() == public_key)
    };
    match chain.iter().position(|certificate| matches(certificate).unwrap_or(false)) {
        Some(0) => Ok(()),
        Some(index) => {
            let what = format!("that of the private key is number {}, and has to be the first", index + 1);
            Err(TlsConfigError::ChainOrder(what))
        }
        None => {
            matches(&chain[0])?;
            Err(TlsConfigError::KeyMismatch)
        }
    }
}

/// Checks that each certificate is followed by its issuer's, as far as the chain contains that.
fn check_order(chain: &[CertificateDer<'static>]) -> Result<(), TlsConfigError> {
    // A certificate that cannot be read ends the check; the server will judge it.
    let certificates: Vec<_> = chain.iter().map(|certificate| EndEntityCert::try_from(certificate).ok()).collect();
    for (index, own) in certificates.iter().enumerate() {
        let Some(own) = own else { return Ok(()) };
        let is_issuer =
            |other: &Option<EndEntityCert<'_>>| other.as_ref().is_some_and(|other| other.subject() == own.issuer());
        let is_root = own.issuer() == own.subject();
        if is_root {
            return Ok(());
        }
        if certificates.get(index + 1).is_some_and(is_issuer) {
            continue;
        }
        let Some(found) = certificates.iter().position(is_issuer) else { return Ok(()) };
        let what = format!("number {} is issued by number {}, which has to follow it", index + 1, found + 1);
        return Err(TlsConfigError::ChainOrder(what));
    }
    Ok(())
}
