//! TLS by rustls: whom to trust, who to be, and what came of the handshake.

mod background;
mod handshake;
mod identity;
mod lazy_config;
mod verify;

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

pub(crate) use handshake::{Shaken, Tls, refusal};
use identity::Identity;
use verify::{Anyone, Pinned};

use crate::trust;

/// How servers are known, and how the client is known to them.
///
/// By default a server's certificate has to be one that the platform trusts, for the host of the URL; the client shows
/// none; TLS 1.2 and 1.3 are spoken; sessions of 1,024 hosts are resumed.
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
    whole: Option<Arc<ClientConfig>>,
    roots: Roots,
    extra_roots: Vec<CertificateDer<'static>>,
    identity: Option<Arc<Identity>>,
    pins: Vec<[u8; 32]>,
    server_name: Option<ServerName<'static>>,
    min_version: TlsVersion,
    alpn: Option<Vec<Vec<u8>>>,
    sessions: Option<usize>,
    accepts_anyone: bool,
    /// True if nothing is done ahead of the first handshake.
    prepared_late: bool,
}

#[derive(Debug, Clone, Copy, Default)]
enum Roots {
    #[default]
    Platform,
    #[cfg(feature = "webpki-roots")]
    Webpki,
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

/// Why a TLS configuration cannot work.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// Something was meant to be PEM, and is not, or has nothing of the kind in it.
    #[error("{what}: {why}")]
    Pem {
        /// What it was to be.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The private key is encrypted, and there is no way to give its passphrase.
    #[error("the private key is encrypted; decrypt it first, as `openssl pkey` does")]
    EncryptedKey,
    /// The private key is that of none of the chain's certificates.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
    /// The chain does not begin with the private key's certificate, or one is not followed by that of its issuer
    /// (RFC 8446 §4.4.2).
    #[error("the certificates are in the wrong order: {0}")]
    ChainOrder(String),
    /// A name that cannot be a server's.
    #[error("`{0}` cannot be the name of a server")]
    ServerName(String),
    /// A whole rustls configuration says everything itself; so it would not be done what this asks for.
    #[error("{0} is for the whole rustls configuration to say")]
    Whole(&'static str),
    /// The protocols to offer include a version of HTTP that the client does not speak.
    #[error("the protocols offered (ALPN) include `{0}`, which the client's version settings exclude")]
    Alpn(String),
    /// rustls refuses it.
    #[error("{0}")]
    Refused(#[from] rustls::Error),
}

/// How many hosts' sessions are kept for resumption.
const SESSIONS: usize = 1_024;

/// rustls counts sessions, and keeps so many for each host.
const SESSIONS_PER_HOST: usize = 8;

impl TlsConfig {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these certificate authorities, too: one or more certificates in PEM.
    ///
    /// # Errors
    /// [`TlsConfigError::Pem`] without a valid certificate.
    pub fn add_roots_pem(mut self, pem: &[u8]) -> Result<Self, TlsConfigError> {
        self.extra_roots.extend(certificates(pem)?);
        Ok(self)
    }

    /// Trusts this certificate authority, too: a certificate in DER.
    pub fn add_root_der(mut self, der: impl Into<Vec<u8>>) -> Self {
        self.extra_roots.push(CertificateDer::from(der.into()));
        self
    }

    /// Trusts the added certificate authorities alone, rather than those of the platform.
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

    /// Shows this certificate to servers that ask for one (mTLS): its chain, its own first, and its key, in PEM.
    ///
    /// # Errors
    /// [`TlsConfigError::Pem`] where either is missing or not valid, [`TlsConfigError::EncryptedKey`],
    /// [`TlsConfigError::KeyMismatch`] or [`TlsConfigError::ChainOrder`] where they cannot be used, and
    /// [`TlsConfigError::Refused`] for a key or a certificate of a kind that rustls does not support.
    pub fn identity_pem(mut self, chain: &[u8], key: &[u8]) -> Result<Self, TlsConfigError> {
        let key = private_key(key)?;
        self.identity = Some(Arc::new(Identity::new(certificates(chain)?, key)?));
        Ok(self)
    }

    /// Accepts only servers whose own certificate has one of the public keys pinned so: the SHA-256 of its
    /// SubjectPublicKeyInfo (RFC 7469 §2.4). It has to be valid besides.
    pub fn pin_spki_sha256(mut self, pin: [u8; 32]) -> Self {
        self.pins.push(pin);
        self
    }

    /// Asks servers for this name (SNI), and wants their certificates to be for it, whatever the URL's host is.
    ///
    /// # Errors
    /// [`TlsConfigError::ServerName`] for what is neither a name nor an IP address.
    pub fn server_name(mut self, name: &str) -> Result<Self, TlsConfigError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsConfigError::ServerName(name.to_owned()))?;
        self.server_name = Some(name);
        Ok(self)
    }

    /// The least version that is spoken. TLS 1.2 by default.
    pub fn min_version(mut self, version: TlsVersion) -> Self {
        self.min_version = version;
        self
    }

    /// The protocols offered to servers (ALPN, RFC 7301), in the order of preference. By default what the client speaks:
    /// `h2` and `http/1.1`. A version of HTTP that the client's version settings exclude is refused by
    /// [`build`](crate::ClientBuilder::build).
    pub fn alpn(mut self, protocols: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        self.alpn = Some(protocols.into_iter().map(Into::into).collect());
        self
    }

    /// Of how many hosts sessions are kept for resumption. 1,024 by default; 0 keeps none.
    pub fn session_cache(mut self, hosts: usize) -> Self {
        self.sessions = Some(hosts);
        self
    }

    /// Accepts any certificate, whoever it is from and whatever is wrong with it: **anybody on the way can read and change
    /// everything**. For tests. [`TlsFacts::verified`](crate::trace::TlsFacts::verified) is `false` then.
    pub fn danger_accept_invalid_certs(mut self, accept: bool) -> Self {
        self.accepts_anyone = accept;
        self
    }

    /// Prepares the first handshake in the background when a client is built, if true; in the handshake itself, if false. True
    /// by default: a thread collects entropy for the random generator (once in a process) and reads the certificates that
    /// are trusted, which takes tens of milliseconds of processor time. It ends when that is done, and does nothing for a
    /// client that was dropped. Say false for clients that make no HTTPS requests, and in processes that fork.
    pub fn prepare_in_background(mut self, prepare: bool) -> Self {
        self.prepared_late = !prepare;
        self
    }

    /// The same for proxies: another server's name and key are not theirs, and HTTP/2 is not spoken to them.
    pub(crate) fn for_proxies(&self) -> Self {
        let whole = self.whole.as_ref().map(|whole| {
            let mut whole = ClientConfig::clone(whole);
            whole.alpn_protocols.clear();
            Arc::new(whole)
        });
        Self { whole, server_name: None, pins: Vec::new(), alpn: None, ..self.clone() }
    }

    /// Refuses what contradicts itself: `alpn` is what the client speaks, and beside a whole configuration only the server's
    /// name is left open.
    pub(crate) fn check(&self, alpn: &[&[u8]]) -> Result<(), TlsConfigError> {
        if let Some(other) = self.alpn.iter().flatten().find(|offered| is_other_http(offered, alpn)) {
            return Err(TlsConfigError::Alpn(String::from_utf8_lossy(other).into_owned()));
        }
        let asked = [
            ("which roots are trusted", !matches!(self.roots, Roots::Platform) || !self.extra_roots.is_empty()),
            ("the client's certificate", self.identity.is_some()),
            ("which keys are pinned", !self.pins.is_empty()),
            ("the least version", self.min_version != TlsVersion::default()),
            ("the protocols offered", self.alpn.is_some()),
            ("how many sessions are kept", self.sessions.is_some()),
            ("that any certificate is accepted", self.accepts_anyone),
        ];
        let beside = asked.iter().find(|(_, asked)| self.whole.is_some() && *asked);
        beside.map_or(Ok(()), |(what, _)| Err(TlsConfigError::Whole(what)))
    }

    /// The configuration for rustls; `alpn` is what the client speaks.
    fn build(&self, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsConfigError> {
        if let Some(whole) = &self.whole {
            let is_other = whole.alpn_protocols.iter().any(|offered| is_other_http(offered, alpn));
            // Without ALPN servers speak HTTP/1.1 (RFC 9113 §3.2).
            let lacks_http2 = whole.alpn_protocols.is_empty() && !alpn.contains(&HTTP[1]);
            if !is_other && !lacks_http2 {
                return Ok(whole.clone());
            }
            // A server would be right to choose what the client then does not speak.
            let mut config = ClientConfig::clone(whole);
            config.alpn_protocols = owned(alpn);
            return Ok(Arc::new(config));
        }
        let versions: &[_] = match self.min_version {
            TlsVersion::Tls12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::Tls13 => &[&rustls::version::TLS13],
        };
        let builder = ClientConfig::builder_with_provider(trust::provider()).with_protocol_versions(versions)?;
        let builder = builder.dangerous().with_custom_certificate_verifier(self.verifier()?);
        let mut config = match &self.identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match &self.alpn {
            Some(protocols) => protocols.clone(),
            None => owned(alpn),
        };
        config.resumption = match self.sessions.unwrap_or(SESSIONS) {
            0 => Resumption::disabled(),
            hosts => Resumption::in_memory_sessions(hosts.saturating_mul(SESSIONS_PER_HOST)),
        };
        Ok(Arc::new(config))
    }

    /// Returns true if the platform's certificates are to be trusted beside others, and cannot be read now.
    fn lacks_platform_roots(&self) -> bool {
        let wants_them = self.whole.is_none() && !self.accepts_anyone && matches!(self.roots, Roots::Platform);
        wants_them && !self.extra_roots.is_empty() && !trust::has_platform_roots()
    }

    fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError> {
        let provider = trust::provider();
        let verifier: Arc<dyn ServerCertVerifier> = match (self.accepts_anyone, self.roots) {
            (true, _) => Arc::new(Anyone::new(provider.clone())),
            (false, Roots::Platform) => trust::platform_verifier(self.extra_roots.iter().cloned())?,
            (false, Roots::Added) => trust::verifier(self.added(RootCertStore::empty())?)?,
            #[cfg(feature = "webpki-roots")]
            (false, Roots::Webpki) => {
                let roots = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
                trust::verifier(self.added(roots)?)?
            }
        };
        Ok(match self.pins.is_empty() {
            true => verifier,
            false => Arc::new(Pinned::new(verifier, self.pins.clone(), &provider)?),
        })
    }

    fn added(&self, mut roots: RootCertStore) -> Result<RootCertStore, TlsConfigError> {
        for root in &self.extra_roots {
            roots.add(root.clone())?;
        }
        Ok(roots)
    }
}

/// A whole configuration, taken as it is: its ALPN protocols too, which are none where it names none. They are replaced only
/// where the client's version settings ([`http1_only`](crate::ClientBuilder::http1_only),
/// [`http2_prior_knowledge`](crate::ClientBuilder::http2_prior_knowledge)) exclude one of them, and with prior knowledge of
/// HTTP/2 where there are none. Beside it only [`TlsConfig::server_name`] and [`TlsConfig::prepare_in_background`] may
/// be set; a client with more is not built.
impl From<ClientConfig> for TlsConfig {
    fn from(config: ClientConfig) -> Self {
        Arc::new(config).into()
    }
}

/// The same, shared.
impl From<Arc<ClientConfig>> for TlsConfig {
    fn from(config: Arc<ClientConfig>) -> Self {
        Self { whole: Some(config), ..Self::default() }
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
            .field("danger_accept_invalid_certs", &self.accepts_anyone)
            .finish_non_exhaustive()
    }
}

/// The protocols of HTTP that ALPN has names for (IANA).
const HTTP: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Returns true if `offered` is a version of HTTP that is not among those spoken.
fn is_other_http(offered: &[u8], spoken: &[&[u8]]) -> bool {
    HTTP.contains(&offered) && !spoken.contains(&offered)
}

fn owned(protocols: &[&[u8]]) -> Vec<Vec<u8>> {
    protocols.iter().map(|protocol| protocol.to_vec()).collect()
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| match is_encrypted(pem) {
        true => TlsConfigError::EncryptedKey,
        false => TlsConfigError::Pem { what: "private key", why: error.to_string() },
    })
}

/// Returns true if a file says that its key is encrypted: by its label (RFC 7468 §11), or in a header (RFC 1421).
fn is_encrypted(pem: &[u8]) -> bool {
    let text = String::from_utf8_lossy(pem);
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED")
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
    let wrong = |why: String| TlsConfigError::Pem { what: "certificates", why };
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| wrong(error.to_string()))?;
    match certificates.is_empty() {
        true => Err(wrong("there is none".to_owned())),
        false => Ok(certificates),
    }
}
