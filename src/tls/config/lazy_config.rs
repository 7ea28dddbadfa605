//! A client's rustls configuration. It is made once: in the background after the client was built, or for the first
//! handshake.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;

use super::TlsConfig;
use super::background::Background;
use crate::tls::error::TlsConfigError;
use crate::trust;

/// The thread that prepares the configurations of all clients.
static BACKGROUND: Background = Background::new();

/// A client's TLS settings, and the rustls configuration that is made of them when it is needed, because some platforms
/// read files for it.
pub(in crate::tls) struct LazyConfig {
    pub(in crate::tls) settings: TlsConfig,
    alpn: &'static [&'static [u8]],
    /// The provider that handshakes use, chosen when the client was built.
    provider: Arc<CryptoProvider>,
    /// The verifier without the pins. Shared between origins and proxies, because it holds the platform's certificates.
    verifier: Arc<OnceCell<Arc<dyn ServerCertVerifier>>>,
    /// The configuration. A failure is not kept: missing files may appear, and descriptors may be free later.
    made: OnceCell<Arc<ClientConfig>>,
    /// The configuration that is used while the platform's certificates cannot be read but others were added. Kept
    /// because it holds the sessions for resumption.
    partial: OnceCell<Arc<ClientConfig>>,
}

impl LazyConfig {
    /// Creates an unmade configuration that offers the protocols of `alpn`, unless the settings name others.
    pub(in crate::tls) fn new(settings: TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        let provider = match &settings.client_config {
            Some(config) => config.crypto_provider().clone(),
            None => trust::provider(),
        };
        Self { settings, alpn, provider, verifier: Arc::default(), made: OnceCell::new(), partial: OnceCell::new() }
    }

    /// Creates the configuration that takes this one's place with other settings, or is used beside it. If both trust the same
    /// servers, they share the verifier, because it holds the platform's certificates.
    pub(in crate::tls) fn changed(&self, settings: TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        let trusts_same = settings.trusts_same(&self.settings);
        let mut changed = Self::new(settings, alpn);
        if trusts_same {
            changed.verifier = self.verifier.clone();
            changed.provider = self.provider.clone();
        }
        changed
    }

    /// Returns true if the configuration is the one for these settings and protocols.
    pub(in crate::tls) fn is_for(&self, settings: &TlsConfig, alpn: &[&[u8]]) -> bool {
        self.alpn == alpn && self.settings.is_same(settings)
    }

    /// Creates the configuration for `https` proxies of the same client.
    pub(in crate::tls) fn for_proxies(&self, alpn: &'static [&'static [u8]]) -> Self {
        Self {
            settings: self.settings.for_proxies(),
            alpn,
            provider: self.provider.clone(),
            verifier: self.verifier.clone(),
            made: OnceCell::new(),
            partial: OnceCell::new(),
        }
    }

    /// Returns the configuration for the next handshake, and makes it if that was not done yet.
    pub(in crate::tls) fn get(&self) -> Result<Arc<ClientConfig>, TlsConfigError> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        if self.verifier.get().is_none() && self.settings.lacks_platform_roots(&self.provider) {
            return self.get_or_make(&self.partial, || self.settings.verifier(&self.provider));
        }
        let verifier = || self.verifier.get_or_try_init(|| self.settings.verifier(&self.provider)).cloned();
        self.get_or_make(&self.made, verifier)
    }

    fn get_or_make(
        &self,
        cell: &OnceCell<Arc<ClientConfig>>,
        verifier: impl FnOnce() -> Result<Arc<dyn ServerCertVerifier>, TlsConfigError>,
    ) -> Result<Arc<ClientConfig>, TlsConfigError> {
        cell.get_or_try_init(|| self.settings.build(self.alpn, &self.provider, verifier)).cloned()
    }

    /// Makes the configuration in the background, unless the settings exclude that.
    pub(in crate::tls) fn prepare(self: &Arc<Self>) {
        if self.settings.prepared_late {
            return;
        }
        let config = Arc::downgrade(self);
        BACKGROUND.run(Box::new(move || prepare(&config)));
    }
}

/// Does the slow steps before a first handshake. Each step is left out if the client was dropped.
fn prepare(config: &Weak<LazyConfig>) {
    let Some(provider) = config.upgrade().map(|config| config.provider.clone()) else { return };
    // For its first random byte aws-lc collects the entropy of the process, which takes 20 to 40 ms.
    let _ = provider.secure_random.fill(&mut [0]);
    if let Some(config) = config.upgrade() {
        // A failure is not kept: the first handshake tries again and reports it.
        let _ = config.get();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use rustls::RootCertStore;
    use rustls::crypto::{GetRandomFailed, SecureRandom};

    use super::*;

    const HTTP1: &[&[u8]] = &[b"http/1.1"];

    /// A random generator that counts its uses, and drops the configuration that it keeps when it is used.
    #[derive(Default)]
    struct Counted {
        uses: AtomicUsize,
        kept: Mutex<Option<Arc<LazyConfig>>>,
    }

    impl std::fmt::Debug for Counted {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Counted")
        }
    }

    impl SecureRandom for Counted {
        fn fill(&self, buf: &mut [u8]) -> Result<(), GetRandomFailed> {
            self.uses.fetch_add(1, Ordering::SeqCst);
            drop(self.kept.lock().take());
            trust::provider().secure_random.fill(buf)
        }
    }

    fn counted() -> (&'static Counted, Arc<LazyConfig>) {
        let counted: &'static Counted = Box::leak(Box::<Counted>::default());
        let provider = CryptoProvider { secure_random: counted, ..CryptoProvider::clone(&trust::provider()) };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let whole = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        (counted, Arc::new(LazyConfig::new(whole.into(), HTTP1)))
    }

    #[test]
    fn entropy_and_configuration_are_ready_before_the_first_handshake() {
        let (random, config) = counted();
        prepare(&Arc::downgrade(&config));
        assert_eq!(random.uses.load(Ordering::SeqCst), 1);
        let made = config.made.get().expect("prepare has made it").clone();
        assert!(Arc::ptr_eq(&made, &config.get().unwrap()));
    }

    #[test]
    fn nothing_is_prepared_for_a_dropped_client() {
        let (random, config) = counted();
        let weak = Arc::downgrade(&config);
        drop(config);
        prepare(&weak);
        assert_eq!(random.uses.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_client_can_be_dropped_while_it_is_prepared() {
        let (random, config) = counted();
        let weak = Arc::downgrade(&config);
        *random.kept.lock() = Some(config);
        prepare(&weak);
        assert_eq!((random.uses.load(Ordering::SeqCst), weak.strong_count()), (1, 0));
    }

    #[test]
    fn origins_and_proxies_share_the_verifier_and_with_it_the_platforms_certificates() {
        let origins = LazyConfig::new(TlsConfig::new().danger_accept_invalid_certs(true), HTTP1);
        let proxies = origins.for_proxies(HTTP1);
        let made = proxies.get().unwrap();
        let verifier = proxies.verifier.get().expect("get has made it").clone();
        assert!(!Arc::ptr_eq(&made, &origins.get().unwrap()), "each has a session cache of its own");
        assert!(Arc::ptr_eq(&verifier, origins.verifier.get().unwrap()));
        assert!(Arc::ptr_eq(&origins.provider, &proxies.provider));
    }
}
