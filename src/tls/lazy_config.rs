//! A client's rustls configuration. It is made once: in the background after the client was built, or for the first
//! handshake.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use super::background::Background;
use super::config::TlsConfig;
use super::error::TlsConfigError;
use crate::trust;

/// The thread that prepares the configurations of all clients.
static BACKGROUND: Background = Background::new();

/// A client's TLS settings, and the rustls configuration that is made of them when it is needed, because some platforms
/// read files for it.
pub(super) struct LazyConfig {
    pub(super) settings: TlsConfig,
    alpn: &'static [&'static [u8]],
    /// The configuration. A failure is not kept: missing files may appear, and descriptors may be free later.
    made: OnceCell<Arc<ClientConfig>>,
    /// The configuration that is used while the platform's certificates cannot be read but others were added. Kept
    /// because it holds the sessions for resumption.
    partial: OnceCell<Arc<ClientConfig>>,
}

impl LazyConfig {
    /// Creates an unmade configuration that offers the protocols of `alpn`, unless the settings name others.
    pub(super) fn new(settings: TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        Self { settings, alpn, made: OnceCell::new(), partial: OnceCell::new() }
    }

    /// Returns the configuration for the next handshake, and makes it if that was not done yet.
    pub(super) fn get(&self) -> Result<Arc<ClientConfig>, TlsConfigError> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let cell = if self.settings.lacks_platform_roots() { &self.partial } else { &self.made };
        cell.get_or_try_init(|| self.settings.build(self.alpn)).cloned()
    }

    /// Makes the configuration in the background, unless the settings exclude that.
    pub(super) fn prepare(self: &Arc<Self>) {
        if self.settings.prepared_late {
            return;
        }
        let config = Arc::downgrade(self);
        BACKGROUND.run(Box::new(move || prepare(&config)));
    }

    /// Returns the crypto provider that handshakes will use.
    fn provider(&self) -> Arc<CryptoProvider> {
        match &self.settings.client_config {
            Some(config) => config.crypto_provider().clone(),
            None => trust::provider(),
        }
    }
}

/// Does the slow steps before a first handshake. Each step is left out if the client was dropped.
fn prepare(config: &Weak<LazyConfig>) {
    let Some(provider) = config.upgrade().map(|config| config.provider()) else { return };
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
}
