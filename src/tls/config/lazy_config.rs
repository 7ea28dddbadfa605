//! A client's rustls configuration. It is made once: in the background after the client was built, on a thread of its own, or
//! for the first handshake.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::{panic, thread};

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;

use super::TlsConfig;
use crate::tls::failure::TlsConfigError;
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

/// Work for the thread.
pub(in crate::tls) type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other, in their order. Nothing may depend on a job: if it panics or no thread can be
/// started, it is dropped.
pub(in crate::tls) struct Background {
    queue: Mutex<TaskQueue>,
}

struct TaskQueue {
    waiting: VecDeque<Job>,
    /// True from the start of a thread until the thread has found the queue empty.
    has_thread: bool,
}

impl Background {
    pub(in crate::tls) const fn new() -> Self {
        Self { queue: Mutex::new(TaskQueue { waiting: VecDeque::new(), has_thread: false }) }
    }

    /// Runs `job` after the earlier ones. Returns at once.
    pub(in crate::tls) fn run(&'static self, job: Job) {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(job);
        if queue.has_thread {
            return;
        }
        queue.has_thread = true;
        drop(queue);
        let started = thread::Builder::new().name("speeddial-tls".to_owned()).spawn(move || self.work());
        if started.is_err() {
            self.give_up();
        }
    }

    /// Runs jobs until none is left.
    fn work(&self) {
        while let Some(job) = self.next() {
            // The panic hook has reported the panic. The other jobs still run.
            let _ = panic::catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// Takes the next job; `None` ends the thread.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        let job = queue.waiting.pop_front();
        queue.has_thread = job.is_some();
        job
    }

    /// Drops all jobs, because no thread can be started for them.
    fn give_up(&self) {
        let mut queue = self.queue.lock();
        queue.has_thread = false;
        let dropped = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(dropped);
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

#[cfg(test)]
mod background_tests {
    use std::sync::mpsc;

    use super::*;

    fn background() -> &'static Background {
        Box::leak(Box::new(Background::new()))
    }

    #[test]
    fn jobs_run_in_order_on_one_thread_and_run_returns_at_once() {
        let background = background();
        let (open, gate) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        background.run(Box::new(move || {
            let _ = gate.recv();
        }));
        for number in 1..=3 {
            let tell = tell.clone();
            background.run(Box::new(move || tell.send((number, thread::current().id())).unwrap()));
        }
        assert!(told.try_recv().is_err(), "the first job waits, and the others wait for it");
        drop((tell, open));
        let (numbers, threads): (Vec<_>, Vec<_>) = told.iter().unzip();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(threads.iter().all(|id| *id == threads[0] && *id != thread::current().id()));
    }

    #[test]
    fn the_thread_ends_when_no_job_is_left_and_a_later_job_starts_another() {
        let background = background();
        let mut threads = Vec::new();
        for _ in 0..2 {
            let (tell, told) = mpsc::channel();
            background.run(Box::new(move || tell.send(thread::current().id()).unwrap()));
            threads.push(told.recv().unwrap());
            while background.queue.lock().has_thread {
                thread::yield_now();
            }
        }
        assert_ne!(threads[0], threads[1]);
    }

    #[test]
    fn a_job_that_panics_does_not_stop_the_others() {
        let background = background();
        let (tell, told) = mpsc::channel();
        background.run(Box::new(|| panic::resume_unwind(Box::new(()))));
        background.run(Box::new(move || tell.send(()).unwrap()));
        told.recv().unwrap();
    }
}
