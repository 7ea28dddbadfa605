//! The TLS settings of a client, and the rustls configuration that is made of them.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::error::TlsConfigError;
use super::identity::Identity;
use super::pem::{certificates, private_key};
use super::roots::check_roots;
use super::verify::{AcceptAny, Pinned, sha256_of};
use crate::trust;

/// The TLS settings of a client.
///
/// By default a server's certificate must be valid for the host of the URL and signed by an authority that the platform
/// trusts. The client sends no certificate. The client speaks TLS 1.2 and 1.3. Sessions of 1,024 hosts are kept for
/// resumption.
///
/// [`ClientBuilder::build`](crate::ClientBuilder::build) checks the settings, so that a certificate that cannot be read
/// or two settings that contradict each other are not found at the first handshake. Only the platform's certificates
/// are read later, because that takes time.
///
/// # Cryptography
/// The cryptography is that of the crypto provider that the process has installed
/// (`rustls::crypto::CryptoProvider::install_default`), whichever features this crate has. If none is installed when
/// the client is built, it is aws-lc-rs with the feature `tls`, and ring with `tls-ring` alone. A provider that is
/// installed later has no effect on the client. A whole `rustls::ClientConfig` keeps its own provider.
///
/// For FIPS 140-3, turn on the feature `fips` of rustls in your own manifest. Make a `rustls::ClientConfig` with
/// `rustls::crypto::default_fips_provider()`, check that its method `fips()` returns true, and give it to
/// [`ClientBuilder::tls`](crate::ClientBuilder::tls). Or install that provider for the process before the first client
/// is built: then encrypted DNS and other crates use it as well.
///
/// ```
/// use speeddial::tls::{TlsConfig, TlsVersion};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = TlsConfig::new().min_version(TlsVersion::Tls13);
/// let client = speeddial::Client::builder().tls(tls).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct TlsConfig {
    /// The user's own rustls configuration, which replaces most of the other settings.
    pub(super) client_config: Option<Arc<ClientConfig>>,
    roots: Roots,
    extra_roots: Vec<CertificateDer<'static>>,
    identity: Option<Arc<Identity>>,
    /// The SHA-256 of the public keys that are accepted; empty if any is.
    pins: Vec<[u8; 32]>,
    /// The name to ask servers for instead of the URL's host.
    pub(super) server_name: Option<ServerName<'static>>,
    min_version: TlsVersion,
    alpn: Option<Vec<Vec<u8>>>,
    /// The number of hosts whose sessions are kept.
    session_hosts: Option<usize>,
    pub(super) accepts_any_cert: bool,
    /// True if nothing is prepared before the first handshake.
    pub(super) prepared_late: bool,
}

/// The certificate authorities that are trusted.
#[derive(Debug, Clone, Copy, Default)]
enum Roots {
    /// The platform's authorities and the added ones.
    #[default]
    Platform,
    /// Mozilla's authorities and the added ones.
    #[cfg(feature = "webpki-roots")]
    Webpki,
    /// Only the added authorities.
    Added,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[default]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    Tls13,
}

/// The default number of hosts whose sessions are kept for resumption.
const SESSION_HOSTS: usize = 1_024;

/// The most hosts whose sessions are kept for resumption. rustls reserves memory for all of them at once.
const MAX_SESSION_HOSTS: usize = 1_000_000;

/// The number of sessions that rustls keeps for each host. rustls limits sessions, not hosts.
const SESSIONS_PER_HOST: usize = 8;

impl TlsConfig {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also trusts these certificate authorities: one or more certificates in PEM.
    ///
    /// # Errors
    /// [`TlsConfigError::Pem`] if there is no certificate or it is no valid PEM, [`TlsConfigError::Root`] if a
    /// certificate in it cannot be read.
    pub fn add_roots_pem(mut self, pem: &[u8]) -> Result<Self, TlsConfigError> {
        let roots = certificates(pem)?;
        check_roots(&roots)?;
        self.extra_roots.extend(roots);
        Ok(self)
    }

    /// Also trusts this certificate authority: a certificate in DER.
    ///
    /// [`build`](crate::ClientBuilder::build) fails if the certificate cannot be read.
    pub fn add_root_der(mut self, der: impl Into<Vec<u8>>) -> Self {
        self.extra_roots.push(CertificateDer::from(der.into()));
        self
    }

    /// Trusts the added certificate authorities alone, rather than those of the platform.
    ///
    /// [`build`](crate::ClientBuilder::build) fails if none was added.
    pub fn only_added_roots(mut self) -> Self {
        self.roots = Roots::Added;
        self
    }

    /// Trusts Mozilla's certificate authorities, compiled in, rather than those of the platform.
    #[cfg(feature = "webpki-roots")]
    pub fn webpki_roots(mut self) -> Self {
        self.roots = Roots::Webpki;
        self
    }

    /// Sends this certificate to servers that ask for one (mTLS): the chain in PEM, the client's own certificate first,
    /// and its private key in PEM.
    ///
    /// # Errors
    /// [`TlsConfigError::Pem`] if either is missing or invalid. [`TlsConfigError::EncryptedKey`],
    /// [`TlsConfigError::KeyMismatch`] or [`TlsConfigError::ChainOrder`] if they cannot be used together.
    /// [`TlsConfigError::Refused`] for a kind of key or certificate that rustls does not support.
    pub fn identity_pem(mut self, chain: &[u8], key: &[u8]) -> Result<Self, TlsConfigError> {
        let key = private_key(key)?;
        self.identity = Some(Arc::new(Identity::new(certificates(chain)?, key)?));
        Ok(self)
    }

    /// Pins a public key: only servers whose own certificate has one of the pinned keys are accepted. The certificate
    /// must be valid as well, unless [any is accepted](Self::danger_accept_invalid_certs). The pins are not applied to
    /// `https` proxies.
    ///
    /// `pin` is the SHA-256 of the key's SubjectPublicKeyInfo (RFC 7469 §2.4).
    pub fn pin_spki_sha256(mut self, pin: [u8; 32]) -> Self {
        self.pins.push(pin);
        self
    }

    /// Asks servers for this name (SNI) and requires certificates for it, instead of the URL's host.
    ///
    /// # Errors
    /// [`TlsConfigError::ServerName`] if it is neither a host name nor an IP address.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsConfigError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsConfigError::ServerName(name.to_owned()))?;
        self.server_name = Some(name);
        Ok(self)
    }

    /// Sets the lowest version of TLS that the client speaks. TLS 1.2 by default.
    pub fn min_version(mut self, version: TlsVersion) -> Self {
        self.min_version = version;
        self
    }

    /// Sets the protocols that are offered to servers (ALPN, RFC 7301), the preferred one first. By default those that
    /// the client speaks: `h2` and `http/1.1`.
    ///
    /// [`build`](crate::ClientBuilder::build) fails for a version of HTTP that the client's version settings exclude,
    /// and for a name that is empty or longer than 255 bytes.
    pub fn alpn(mut self, protocols: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.alpn = Some(protocols.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the number of hosts whose sessions are kept for resumption, at most 1,000,000. 1,024 by default; 0 turns
    /// resumption off.
    pub fn session_cache(mut self, hosts: usize) -> Self {
        self.session_hosts = Some(hosts);
        self
    }

    /// Sets whether any certificate is accepted, also an expired or forged one, and one of another host. False by
    /// default; for tests only.
    ///
    /// **An attacker on the network can then read and change everything.**
    /// [`TlsFacts::verified`](crate::trace::TlsFacts::verified) is `false` on such connections.
    ///
    /// Pinned keys still apply: a server whose key is not pinned is refused, even with a valid certificate. A choice of
    /// trusted authorities would have no effect, so [`build`](crate::ClientBuilder::build) fails with both.
    pub fn danger_accept_invalid_certs(mut self, accept: bool) -> Self {
        self.accepts_any_cert = accept;
        self
    }

    /// Sets whether the first handshake is prepared in the background when a client is built. True by default.
    ///
    /// A thread collects entropy for the random generator (once in a process) and reads the trusted certificates, which
    /// takes tens of milliseconds of processor time. It ends when that is done, and does nothing for a client that was
    /// dropped. With `false` the first handshake does this work; choose it for clients that make no HTTPS requests, and
    /// in processes that fork.
    pub fn prepare_in_background(mut self, prepare: bool) -> Self {
        self.prepared_late = !prepare;
        self
    }

    /// Returns the settings for `https` proxies: without the server name and the pinned keys, which are those of other
    /// servers, and without HTTP/2.
    pub(crate) fn for_proxies(&self) -> Self {
        let client_config = self.client_config.as_ref().map(|config| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols.clear();
            Arc::new(config)
        });
        Self { client_config, server_name: None, pins: Vec::new(), alpn: None, ..self.clone() }
    }

    /// Checks all that can be known before the first handshake. `alpn` lists the protocols that the client speaks. The
    /// platform's certificates are not read, and nothing in a whole rustls configuration is checked.
    ///
    /// # Errors
    /// A [`TlsConfigError`] for a setting that is invalid, that contradicts another one, or that the crypto provider
    /// does not support.
    pub(crate) fn check(&self, alpn: &[&[u8]]) -> Result<(), TlsConfigError> {
        self.check_contradictions()?;
        self.check_alpn(alpn)?;
        if self.client_config.is_some() {
            return Ok(());
        }
        check_roots(&self.extra_roots)?;
        if matches!(self.roots, Roots::Added) && self.extra_roots.is_empty() {
            return Err(TlsConfigError::NoRoots);
        }
        if let Some(hosts) = self.session_hosts.filter(|hosts| *hosts > MAX_SESSION_HOSTS) {
            return Err(TlsConfigError::SessionCache(hosts));
        }
        self.check_provider(trust::provider())
    }

    /// Checks that the provider has what the settings need.
    fn check_provider(&self, provider: Arc<CryptoProvider>) -> Result<(), TlsConfigError> {
        if !self.pins.is_empty() {
            sha256_of(&provider)?;
        }
        ClientConfig::builder_with_provider(provider).with_protocol_versions(self.versions())?;
        Ok(())
    }

    /// Checks that no setting would be ignored because of another one.
    fn check_contradictions(&self) -> Result<(), TlsConfigError> {
        let chooses_roots = !matches!(self.roots, Roots::Platform) || !self.extra_roots.is_empty();
        let roots = ("a choice of trusted roots", chooses_roots);
        let beside_client_config = [
            roots,
            ("a client certificate", self.identity.is_some()),
            ("a pinned key", !self.pins.is_empty()),
            ("a minimum version", self.min_version != TlsVersion::default()),
            ("a choice of protocols (ALPN)", self.alpn.is_some()),
            ("a size of the session cache", self.session_hosts.is_some()),
            ("accepting invalid certificates", self.accepts_any_cert),
        ];
        let first_set =
            |settings: &[(&'static str, bool)]| settings.iter().find(|(_, is_set)| *is_set).map(|(what, _)| *what);
        if self.client_config.is_some() {
            first_set(&beside_client_config).map_or(Ok(()), |what| Err(TlsConfigError::BesideClientConfig(what)))
        } else if self.accepts_any_cert {
            first_set(&[roots]).map_or(Ok(()), |what| Err(TlsConfigError::BesideInvalidCerts(what)))
        } else {
            Ok(())
        }
    }

    /// Checks the protocols to offer. `spoken` lists those that the client speaks.
    fn check_alpn(&self, spoken: &[&[u8]]) -> Result<(), TlsConfigError> {
        for offered in self.alpn.iter().flatten() {
            if is_other_http(offered, spoken) {
                return Err(TlsConfigError::Alpn(String::from_utf8_lossy(offered).into_owned()));
            }
            if !(1..=255).contains(&offered.len()) {
                return Err(TlsConfigError::AlpnLength(offered.len()));
            }
        }
        Ok(())
    }

    /// Makes the configuration for rustls. `alpn` lists the protocols that the client speaks. `verifier` makes the
    /// verifier of servers' certificates, as [`Self::verifier`] does.
    pub(super) fn build(
        &self,
        alpn: &[&[u8]],
        provider: &Arc<CryptoProvider>,
        verifier: impl FnOnce() -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError>,
    ) -> Result<Arc<ClientConfig>, TlsConfigError> {
        if let Some(client_config) = &self.client_config {
            return Ok(with_spoken_alpn(client_config, alpn));
        }
        let mut verifier = verifier()?;
        if !self.pins.is_empty() {
            verifier = Arc::new(Pinned::new(verifier, self.pins.clone(), provider)?);
        }
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(self.versions())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match &self.alpn {
            Some(protocols) => protocols.clone(),
            None => owned(alpn),
        };
        config.resumption = match self.session_hosts.unwrap_or(SESSION_HOSTS) {
            0 => Resumption::disabled(),
            hosts => Resumption::in_memory_sessions(hosts.saturating_mul(SESSIONS_PER_HOST)),
        };
        Ok(Arc::new(config))
    }

    /// Returns the versions of TLS that the client speaks.
    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
        match self.min_version {
            TlsVersion::Tls12 => BOTH,
            TlsVersion::Tls13 => &BOTH[..1],
        }
    }

    /// Returns true if the platform's certificates are to be trusted beside the added ones and cannot be read now.
    pub(super) fn lacks_platform_roots(&self, provider: &Arc<CryptoProvider>) -> bool {
        let wants_them =
            self.client_config.is_none() && !self.accepts_any_cert && matches!(self.roots, Roots::Platform);
        wants_them && !self.extra_roots.is_empty() && !trust::has_platform_roots(provider.clone())
    }

    /// Makes the verifier of servers' certificates, without the pins.
    pub(super) fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
        let provider = provider.clone();
        Ok(match (self.accepts_any_cert, self.roots) {
            (true, _) => Arc::new(AcceptAny::new(provider)),
            (false, Roots::Platform) => trust::platform_verifier(self.extra_roots.iter().cloned(), provider)?,
            (false, Roots::Added) => trust::verifier(self.with_added(RootCertStore::empty())?, provider)?,
            #[cfg(feature = "webpki-roots")]
            (false, Roots::Webpki) => {
                let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
                trust::verifier(self.with_added(roots)?, provider)?
            }
        })
    }

    /// Adds the user's certificate authorities to `roots`.
    fn with_added(&self, mut roots: RootCertStore) -> Result<RootCertStore, TlsConfigError> {
        for root in &self.extra_roots {
            roots.add(root.clone())?;
        }
        Ok(roots)
    }
}

/// Uses a whole rustls configuration as it is, including its ALPN protocols.
///
/// The ALPN protocols are replaced only if the client's version settings
/// ([`http1_only`](crate::ClientBuilder::http1_only),
/// [`http2_prior_knowledge`](crate::ClientBuilder::http2_prior_knowledge)) exclude one of them, or if there are none
/// and the client has prior knowledge of HTTP/2. Beside the configuration only [`TlsConfig::server_name`] and
/// [`TlsConfig::prepare_in_background`] may be set; with any other setting the client is not built.
impl From<ClientConfig> for TlsConfig {
    fn from(config: ClientConfig) -> Self {
        Arc::new(config).into()
    }
}

/// Uses a shared rustls configuration, like `From<ClientConfig>`.
impl From<Arc<ClientConfig>> for TlsConfig {
    fn from(config: Arc<ClientConfig>) -> Self {
        Self { client_config: Some(config), ..Self::default() }
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig")
            .field("roots", &self.roots)
            .field("extra_roots", &self.extra_roots.len())
            .field("identity", &self.identity.is_some())
            .field("pins", &self.pins.len())
            .field("server_name", &self.server_name)
            .field("min_version", &self.min_version)
            .field("danger_accept_invalid_certs", &self.accepts_any_cert)
            .finish_non_exhaustive()
    }
}

/// Returns a rustls configuration that offers no version of HTTP that the client does not speak, because a server may
/// choose any protocol that is offered. Without ALPN servers speak HTTP/1.1 (RFC 9113 §3.2).
fn with_spoken_alpn(config: &Arc<ClientConfig>, spoken: &[&[u8]]) -> Arc<ClientConfig> {
    let offers_other = config.alpn_protocols.iter().any(|offered| is_other_http(offered, spoken));
    let lacks_http2 = config.alpn_protocols.is_empty() && !spoken.contains(&HTTP[1]);
    if !offers_other && !lacks_http2 {
        return config.clone();
    }
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = owned(spoken);
    Arc::new(config)
}

/// The ALPN names of the versions of HTTP that the crate speaks (IANA).
const HTTP: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Returns true if `offered` is a version of HTTP that is not among the `spoken` ones.
fn is_other_http(offered: &[u8], spoken: &[&[u8]]) -> bool {
    HTTP.contains(&offered) && !spoken.contains(&offered)
}

fn owned(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use rustls::CipherSuite;

    use super::*;

    /// Returns a provider with one cipher suite.
    fn only(suite: CipherSuite) -> Arc<CryptoProvider> {
        let mut provider = CryptoProvider::clone(&trust::provider());
        provider.cipher_suites.retain(|known| known.suite() == suite);
        Arc::new(provider)
    }

    #[test]
    fn settings_that_the_crypto_provider_does_not_support_are_refused() {
        let sha256 = || only(CipherSuite::TLS13_AES_128_GCM_SHA256);
        let sha384 = || only(CipherSuite::TLS13_AES_256_GCM_SHA384);
        let tls12 = || only(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
        let pinned = TlsConfig::new().pin_spki_sha256([0; 32]);
        let error = pinned.check_provider(sha384()).unwrap_err().to_string();
        assert!(error.contains("the crypto provider has no SHA-256"), "{error}");
        assert!(pinned.check_provider(sha256()).is_ok() && TlsConfig::new().check_provider(sha384()).is_ok());
        let new = TlsConfig::new().min_version(TlsVersion::Tls13);
        let error = new.check_provider(tls12()).unwrap_err().to_string();
        assert!(error.contains("no usable cipher suites configured"), "{error}");
        assert!(new.check_provider(sha256()).is_ok() && TlsConfig::new().check_provider(tls12()).is_ok());
    }
}
