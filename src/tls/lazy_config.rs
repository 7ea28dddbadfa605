//! A client's rustls configuration, which is made once: in the background after the client was built, or for its first
//! handshake.

use std::sync::{Arc, Weak};

use once_cell::sync::OnceCell;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use super::background::Background;
use super::{TlsConfig, TlsConfigError};
use crate::trust;

/// Prepares the configurations of all clients.
static BACKGROUND: Background = Background::new();

/// The settings of a client, and the rustls configuration made of them. Some platforms read files for it.
pub(super) struct LazyConfig {
    pub(super) settings: TlsConfig,
    alpn: &'static [&'static [u8]],
    /// Set once it could be made. A failure is not kept: the files may come later, and descriptors be free again.
    made: OnceCell<Arc<ClientConfig>>,
    /// Used until then where the platform's certificates are missing and others are there. It is kept for its sessions.
    partial: OnceCell<Arc<ClientConfig>>,
}

impl LazyConfig {
    /// Offers the protocols of `alpn`, unless the settings name others.
    pub(super) fn new(settings: TlsConfig, alpn: &'static [&'static [u8]]) -> Self {
        Self { settings, alpn, made: OnceCell::new(), partial: OnceCell::new() }
    }

    /// The configuration for the next handshake.
    pub(super) fn get(&self) -> Result<Arc<ClientConfig>, TlsConfigError> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let cell = if self.settings.lacks_platform_roots() { &self.partial } else { &self.made };
        cell.get_or_try_init(|| self.settings.build(self.alpn)).cloned()
    }

    /// Does in the background what the first handshake would have to do, unless the settings say otherwise.
    pub(super) fn prepare(self: &Arc<Self>) {
        if self.settings.prepared_late {
            return;
        }
        let config = Arc::downgrade(self);
        BACKGROUND.run(Box::new(move || prepare(&config)));
    }

    fn provider(&self) -> Arc<CryptoProvider> {
        match &self.settings.whole {
            Some(whole) => whole.crypto_provider().clone(),
            None => trust::provider(),
        }
    }
}

/// Does what is slow before a first handshake. Each step is left out once the client is gone.
fn prepare(config: &Weak<LazyConfig>) {
    let Some(provider) = config.upgrade().map(|config| config.provider()) else { return };
    // For its first random byte aws-lc collects the entropy of the process, which takes 20 to 40 ms.
    let _ = provider.secure_random.fill(&mut [0]);
    if let Some(config) = config.upgrade() {
        // A failure is not kept: the first handshake tries again, and tells of it.
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

    /// A random generator that counts its uses, and drops what it was given to keep.
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
    fn the_entropy_and_the_configuration_are_there_before_the_first_handshake() {
        let (random, config) = counted();
        prepare(&Arc::downgrade(&config));
        assert_eq!(random.uses.load(Ordering::SeqCst), 1);
        let made = config.made.get().expect("it was made").clone();
        assert!(Arc::ptr_eq(&made, &config.get().unwrap()));
    }

    #[test]
    fn nothing_is_done_for_a_client_that_is_gone() {
        let (random, config) = counted();
        let weak = Arc::downgrade(&config);
        drop(config);
        prepare(&weak);
        assert_eq!(random.uses.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_client_can_go_while_it_is_prepared() {
        let (random, config) = counted();
        let weak = Arc::downgrade(&config);
        *random.kept.lock() = Some(config);
        prepare(&weak);
        assert_eq!((random.uses.load(Ordering::SeqCst), weak.strong_count()), (1, 0));
    }
}
