//! The TLS settings of a client, and the rustls configuration that is made of them.

pub(super) mod lazy_config;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName};
use rustls::{ClientConfig, KeyLogFile, RootCertStore, SupportedProtocolVersion};

use super::certs::verify::{AcceptAny, Lenient, Pinned, sha256_of};
use super::version::spoken;
use crate::tls::certs::identity::Identity;
use crate::tls::certs::watched::{WatchedFiles, read_roots};
use crate::tls::certs::{Certificate, CertificateRevocationList, newest_first};
use crate::tls::failure::TlsConfigError;
use crate::tls::version::Version;
use crate::{clock, trust};

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
/// use speeddial::tls::{TlsConfig, Version};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tls = TlsConfig::new().min_version(Version::TLS_1_3);
/// let client = speeddial::Client::builder().tls(tls).build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct TlsConfig {
    /// The user's own rustls configuration, which replaces most of the other settings.
    pub(super) client_config: Option<Arc<ClientConfig>>,
    pub(super) roots: Roots,
    pub(super) extra_roots: Vec<CertificateDer<'static>>,
    /// The files of further certificate authorities.
    pub(super) watched_roots: Vec<Arc<WatchedFiles<Vec<CertificateDer<'static>>>>>,
    /// The certificates that authorities have revoked.
    pub(super) revoked: Vec<CertificateRevocationListDer<'static>>,
    pub(super) identity: Option<Identity>,
    /// The SHA-256 of the public keys that are accepted; empty if any is.
    pub(super) pins: Vec<[u8; 32]>,
    /// The name to ask servers for instead of the URL's host.
    pub(super) server_name: Option<ServerName<'static>>,
    /// The lowest version of TLS; 1.2 if `None`.
    pub(super) min_version: Option<Version>,
    /// The highest version of TLS; 1.3 if `None`.
    pub(super) max_version: Option<Version>,
    pub(super) alpn: Option<Vec<Vec<u8>>>,
    /// The number of hosts whose sessions are kept.
    pub(super) session_hosts: Option<usize>,
    /// True if `roots` are the added ones because the built-in ones were turned off.
    pub(super) lacks_built_in: bool,
    pub(super) accepts_any_cert: bool,
    /// True if a certificate may be valid for another name.
    pub(super) accepts_any_name: bool,
    /// True if servers are not told the name that is asked for (SNI).
    pub(super) hides_name: bool,
    /// True if keys are written to the file of the environment variable `SSLKEYLOGFILE`.
    pub(super) logs_keys: bool,
    /// True if nothing is prepared before the first handshake.
    pub(super) prepared_late: bool,
}

/// The certificate authorities that are trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Roots {
    /// The platform's authorities and the added ones.
    #[default]
    Platform,
    /// Mozilla's authorities and the added ones.
    #[cfg(feature = "webpki-roots")]
    Webpki,
    /// Only the added authorities.
    Added,
}

/// The default number of hosts whose sessions are kept for resumption.
const SESSION_HOSTS: usize = 1_024;

/// The most hosts whose sessions are kept for resumption. rustls reserves memory for all of them at once.
const MAX_SESSION_HOSTS: usize = 1_000_000;

/// The number of sessions that rustls keeps for each host. rustls limits sessions, not hosts.
const SESSIONS_PER_HOST: usize = 8;

impl TlsConfig {
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

    /// Returns the settings without the certificate authorities that were added.
    pub(crate) fn without_added_roots(mut self) -> Self {
        self.extra_roots.clear();
        self.watched_roots.clear();
        self
    }

    /// Returns the settings with the files as they were read last, which later changes leave alone.
    pub(super) fn fixed(&self) -> Self {
        let mut fixed = self.clone();
        fixed.extra_roots.extend(self.watched_roots.iter().flat_map(|files| files.current().to_vec()));
        fixed.watched_roots.clear();
        fixed.identity = self.identity.as_ref().map(Identity::fixed);
        fixed
    }

    /// Returns true if some of the settings are those of files that are read again.
    pub(crate) fn is_watched(&self) -> bool {
        !self.watched_roots.is_empty() || self.identity.as_ref().is_some_and(Identity::is_watched)
    }

    /// Reads the files again. Returns what is wrong with each that cannot be used, whose last content stays in use.
    pub(crate) fn refresh(&self) -> Vec<TlsConfigError> {
        let now = clock::now();
        let identity = self.identity.iter().map(|identity| identity.refresh(now));
        let roots = self.watched_roots.iter().map(|files| files.refresh(now));
        identity.chain(roots).filter_map(Result::err).collect()
    }

    /// Returns true if files may have been in the middle of being written, and are to be read again in a moment.
    pub(crate) fn is_unsure(&self) -> bool {
        self.identity.as_ref().is_some_and(Identity::is_unsure)
            || self.watched_roots.iter().any(|files| files.are_unsure())
    }

    /// Returns true if both trust the same servers. Files must be [fixed](Self::fixed).
    pub(super) fn trusts_same(&self, other: &Self) -> bool {
        self.client_config.is_none()
            && other.client_config.is_none()
            && (self.roots, self.accepts_any_cert, self.accepts_any_name)
                == (other.roots, other.accepts_any_cert, other.accepts_any_name)
            && self.extra_roots == other.extra_roots
            && self.revoked == other.revoked
    }

    /// Returns true if the settings are equal. Files must be [fixed](Self::fixed).
    pub(super) fn is_same(&self, other: &Self) -> bool {
        // Every field is named, so that the compiler asks about each new one.
        let Self {
            client_config,
            roots: _,
            lacks_built_in: _,
            extra_roots: _,
            watched_roots: _,
            revoked: _,
            identity,
            pins,
            server_name,
            min_version,
            max_version,
            alpn,
            session_hosts,
            accepts_any_cert: _,
            accepts_any_name: _,
            hides_name,
            logs_keys,
            prepared_late: _,
        } = self;
        let same_trust = match (client_config, &other.client_config) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => self.trusts_same(other),
        };
        same_trust
            && *identity == other.identity
            && *pins == other.pins
            && *server_name == other.server_name
            && (min_version, max_version) == (&other.min_version, &other.max_version)
            && *alpn == other.alpn
            && *session_hosts == other.session_hosts
            && (hides_name, logs_keys) == (&other.hides_name, &other.logs_keys)
    }

    /// Returns true if a connection that was made with `earlier` settings may go on: these are the same, or only trust more
    /// certificate authorities. Files must be [fixed](Self::fixed).
    pub(super) fn includes(&self, earlier: &Self) -> bool {
        let is_trusted = |root| self.extra_roots.contains(root);
        let with_roots_of_self = Self { extra_roots: self.extra_roots.clone(), ..earlier.clone() };
        earlier.extra_roots.iter().all(is_trusted) && self.is_same(&with_roots_of_self)
    }

    /// Returns true if a server's certificate has to be valid for the server.
    pub(super) fn verifies_servers(&self) -> bool {
        !self.accepts_any_cert && !self.accepts_any_name
    }

    /// Checks all that can be known before the first handshake. `alpn` lists the protocols that the client speaks. The
    /// platform's certificates are not read, and nothing in a whole rustls configuration is checked.
    ///
    /// # Errors
    /// A [`TlsConfigError`] for a setting that is invalid, that contradicts another one, or that the crypto provider
    /// does not support.
    pub(crate) fn check(&self, alpn: &[&[u8]]) -> Result<(), TlsConfigError> {
        self.fixed().check_fixed(alpn)
    }

    /// Checks settings whose files are [fixed](Self::fixed).
    fn check_fixed(&self, alpn: &[&[u8]]) -> Result<(), TlsConfigError> {
        self.check_contradictions()?;
        self.check_alpn(alpn)?;
        if self.client_config.is_some() {
            return Ok(());
        }
        if self.versions().is_empty() {
            return Err(TlsConfigError::NoVersion);
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
        ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&self.versions())?;
        if !self.revoked.is_empty() && !self.trusts_none() {
            self.verifier(&provider)?;
        }
        Ok(())
    }

    /// Returns true if no certificate authority is trusted, so that every handshake fails.
    fn trusts_none(&self) -> bool {
        matches!(self.roots, Roots::Added) && self.extra_roots.is_empty()
    }

    /// Checks that no setting would be ignored because of another one.
    fn check_contradictions(&self) -> Result<(), TlsConfigError> {
        let chooses_roots = !matches!(self.roots, Roots::Platform) || !self.extra_roots.is_empty();
        let roots = ("a choice of trusted roots", chooses_roots);
        let beside_client_config = [
            roots,
            ("a client certificate", self.identity.is_some()),
            ("a pinned key", !self.pins.is_empty()),
            ("a list of revoked certificates", !self.revoked.is_empty()),
            ("a lowest version", self.min_version.is_some()),
            ("a highest version", self.max_version.is_some()),
            ("leaving out the server's name (SNI)", self.hides_name),
            ("writing keys to SSLKEYLOGFILE", self.logs_keys),
            ("a choice of protocols (ALPN)", self.alpn.is_some()),
            ("a size of the session cache", self.session_hosts.is_some()),
            ("accepting invalid certificates", self.accepts_any_cert),
            ("accepting certificates of other hosts", self.accepts_any_name),
        ];
        let trusts_some = ("a choice of trusted roots", chooses_roots && !self.trusts_none());
        let beside_invalid_certs = [trusts_some, ("a list of revoked certificates", !self.revoked.is_empty())];
        let beside_platform_roots = [
            ("a list of revoked certificates", !self.revoked.is_empty()),
            ("accepting certificates of other hosts", self.accepts_any_name),
        ];
        let first_set =
            |settings: &[(&'static str, bool)]| settings.iter().find(|(_, is_set)| *is_set).map(|(what, _)| *what);
        if self.client_config.is_some() {
            first_set(&beside_client_config).map_or(Ok(()), |what| Err(TlsConfigError::BesideClientConfig(what)))
        } else if self.accepts_any_cert {
            first_set(&beside_invalid_certs).map_or(Ok(()), |what| Err(TlsConfigError::BesideInvalidCerts(what)))
        } else if matches!(self.roots, Roots::Platform) {
            first_set(&beside_platform_roots).map_or(Ok(()), |what| Err(TlsConfigError::BesidePlatformRoots(what)))
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
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_protocol_versions(&self.versions())?;
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let mut config = match &self.identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain(), identity.key())?,
            None => builder.with_no_client_auth(),
        };
        config.enable_sni = !self.hides_name;
        if self.logs_keys {
            config.key_log = Arc::new(KeyLogFile::new());
        }
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
    fn versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        spoken(self.min_version, self.max_version)
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
        let verifier = match (self.accepts_any_cert, self.roots) {
            (true, _) => return Ok(Arc::new(AcceptAny(provider.clone()))),
            (false, Roots::Platform) => trust::platform_verifier(self.extra_roots.iter().cloned(), provider.clone())?,
            (false, Roots::Added) if self.trusts_none() => return Err(TlsConfigError::NoRoots),
            (false, Roots::Added) => self.own_verifier(RootCertStore::empty(), provider)?,
            #[cfg(feature = "webpki-roots")]
            (false, Roots::Webpki) => {
                self.own_verifier(webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect(), provider)?
            }
        };
        // Of lists of revoked certificates, none may be for the authority that a root is.
        let own_roots = if self.revoked.is_empty() { self.extra_roots.clone() } else { Vec::new() };
        let accepts_any_name = self.accepts_any_name;
        match own_roots.is_empty() && !accepts_any_name {
            true => Ok(verifier),
            false => Ok(Arc::new(Lenient { verifier, own_roots, accepts_any_name })),
        }
    }

    /// Makes a verifier that trusts `roots` and the user's certificate authorities, but no revoked certificate.
    fn own_verifier(
        &self,
        roots: RootCertStore,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
        Ok(trust::verifier(self.with_added(roots)?, newest_first(self.revoked.clone()), provider.clone())?)
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
            .field("watched_roots", &self.watched_roots.len())
            .field("identity", &self.identity.is_some())
            .field("pins", &self.pins.len())
            .field("server_name", &self.server_name)
            .field("min_version", &self.min_version)
            .field("max_version", &self.max_version)
            .field("revocation_lists", &self.revoked.len())
            .field("danger_accept_invalid_hostnames", &self.accepts_any_name)
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

impl TlsConfig {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also trusts these certificate authorities.
    pub fn add_roots(mut self, roots: impl IntoIterator<Item = Certificate>) -> Self {
        self.extra_roots.extend(roots.into_iter().flat_map(|root| root.ders));
        self
    }

    /// Also trusts the certificate authorities of a file in PEM, or of the files in a directory whose names end in `.pem`, `.crt`
    /// or `.cer`, which clients read again while they run: every 10 s, or as
    /// [`ClientBuilder::tls_reload_interval`](crate::ClientBuilder::tls_reload_interval) says.
    ///
    /// When they have changed, a client trusts the new ones from then on. If an authority was removed, the connections that were
    /// made before take no new requests, and close after those that they carry. As long as a file cannot be read or is not valid,
    /// the client goes on with the last ones that were, and reports
    /// [`Event::TlsFilesRefused`](crate::trace::Event::TlsFilesRefused).
    ///
    /// # Errors
    /// [`TlsConfigError::Unreadable`] if a file or the directory cannot be read now, or there is none in it;
    /// [`TlsConfigError::InFile`] if the content of a file is not valid.
    pub fn watch_roots(mut self, path: impl Into<PathBuf>) -> Result<Self, TlsConfigError> {
        self.watched_roots.push(Arc::new(WatchedFiles::open(vec![path.into()], read_roots)?));
        Ok(self)
    }

    /// Trusts the added certificate authorities alone, rather than those of the platform.
    ///
    /// If none was added, every handshake fails, unless any certificate is accepted.
    pub fn only_added_roots(mut self) -> Self {
        self.roots = Roots::Added;
        self.lacks_built_in = false;
        self
    }

    /// Trusts the added certificate authorities alone, or takes that back.
    pub(crate) fn built_in_roots(mut self, trusted: bool) -> Self {
        if !trusted {
            self.roots = Roots::Added;
        } else if self.lacks_built_in {
            self.roots = Roots::Platform;
        }
        self.lacks_built_in = !trusted;
        self
    }

    /// Trusts Mozilla's certificate authorities, compiled in, rather than those of the platform.
    #[cfg(feature = "webpki-roots")]
    pub fn webpki_roots(mut self) -> Self {
        self.roots = Roots::Webpki;
        self
    }

    /// Sends this certificate to servers, and to `https` proxies, that ask for one (mTLS).
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
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
    pub fn min_version(mut self, version: Version) -> Self {
        self.min_version = Some(version);
        self
    }

    /// Sets the highest version of TLS that the client speaks. TLS 1.3 by default.
    ///
    /// [`build`](crate::ClientBuilder::build) fails if that leaves neither 1.2 nor 1.3.
    pub fn max_version(mut self, version: Version) -> Self {
        self.max_version = Some(version);
        self
    }

    /// Refuses certificates that these lists name, and those of authorities without a list among them. Lists of several
    /// calls add up; of several lists of an authority the newest one counts alone. A list counts after the date of its next update as
    /// well: the client gets no newer ones by itself. None by default: then revocation is not checked, except by the verifiers of some platforms.
    ///
    /// [`build`](crate::ClientBuilder::build) fails unless the platform's authorities are turned off
    /// ([`only_added_roots`](Self::only_added_roots), `webpki_roots`): its verifier takes no lists.
    pub fn add_revocation_lists(mut self, lists: impl IntoIterator<Item = CertificateRevocationList>) -> Self {
        self.revoked.extend(lists.into_iter().map(|list| list.der));
        self
    }

    /// Sets whether servers are told the name that the client asks for (SNI, RFC 6066 §3). True by default. Without it a
    /// server of several names sends the certificate of its default one.
    pub fn sni(mut self, sni: bool) -> Self {
        self.hides_name = !sni;
        self
    }

    /// Sets whether the keys of connections are appended to the file that the environment variable `SSLKEYLOGFILE` names,
    /// for programs such as Wireshark. False by default.
    ///
    /// **A reader of that file can decrypt the connections.** The variable is read when the first handshake is prepared.
    pub fn key_log_file(mut self, log: bool) -> Self {
        self.logs_keys = log;
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
    /// Nothing in a certificate is read, and nothing shows that the server has its key, so a certificate of X.509 version 1 or with a short
    /// key is accepted as well. Pinned keys still apply: a server whose key is not pinned, or that does not have it, is refused, even with
    /// a valid certificate. They do not apply to `https` proxies, of which nothing is verified then. A choice of trusted authorities would
    /// have no effect, so [`build`](crate::ClientBuilder::build) fails with both.
    pub fn danger_accept_invalid_certs(mut self, accept: bool) -> Self {
        self.accepts_any_cert = accept;
        self
    }

    /// Sets whether a valid certificate is accepted also if it is for another host. False by default; for tests only.
    ///
    /// **An attacker on the network with a certificate for any host can then read and change everything.**
    /// [`TlsFacts::verified`](crate::trace::TlsFacts::verified) is `false` on such connections.
    ///
    /// [`build`](crate::ClientBuilder::build) fails unless the platform's authorities are turned off
    /// ([`only_added_roots`](Self::only_added_roots), `webpki_roots`), because not every platform verifies certificates
    /// without the name, or [any certificate is accepted](Self::danger_accept_invalid_certs).
    pub fn danger_accept_invalid_hostnames(mut self, accept: bool) -> Self {
        self.accepts_any_name = accept;
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
    fn built_in_roots_come_back_only_where_they_were_turned_off() {
        let roots = |config: TlsConfig| config.roots;
        let off = || TlsConfig::new().built_in_roots(false);
        assert_eq!((roots(off()), roots(off().built_in_roots(true))), (Roots::Added, Roots::Platform));
        assert_eq!(roots(TlsConfig::new().only_added_roots().built_in_roots(true)), Roots::Added);
        assert_eq!(roots(off().only_added_roots().built_in_roots(true)), Roots::Added);
        #[cfg(feature = "webpki-roots")]
        assert_eq!(roots(TlsConfig::new().webpki_roots().built_in_roots(true)), Roots::Webpki);
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
        let new = TlsConfig::new().min_version(Version::TLS_1_3);
        let error = new.check_provider(tls12()).unwrap_err().to_string();
        assert!(error.contains("no usable cipher suites configured"), "{error}");
        assert!(new.check_provider(sha256()).is_ok() && TlsConfig::new().check_provider(tls12()).is_ok());
    }
}
