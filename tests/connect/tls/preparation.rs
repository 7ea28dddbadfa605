//! TLS that is prepared in the background when a client is built.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom};
use speeddial::tls::TlsConfig;

use super::common::builder;
use support::certs::provider;

/// A random generator that reports the thread that uses it and then waits until its gate is open.
#[derive(Debug)]
struct GatedRandom {
    used: mpsc::Sender<ThreadId>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl SecureRandom for GatedRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<(), GetRandomFailed> {
        let _ = self.used.send(thread::current().id());
        // Receiving fails once the gate was dropped, which opens it for good.
        let _ = self.gate.lock().unwrap().recv();
        provider().secure_random.fill(buf)
    }
}

/// Returns a configuration with a random generator of its own, the threads that used the generator, and its gate, which opens when it
/// is dropped.
fn gated_config() -> (TlsConfig, mpsc::Receiver<ThreadId>, mpsc::Sender<()>) {
    let ((used, uses), (open, gate)) = (mpsc::channel(), mpsc::channel());
    let random: &'static GatedRandom = Box::leak(Box::new(GatedRandom { used, gate: Mutex::new(gate) }));
    let provider = CryptoProvider { secure_random: random, ..CryptoProvider::clone(&provider()) };
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    (config.into(), uses, open)
}

/// The longest wait for the preparation. Clients of other tests may be prepared first.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn building_a_client_prepares_tls_in_the_background() {
    let (tls, uses, open) = gated_config();
    // The gate is closed, so a client that waited for its random generator would never be built.
    let client = builder(tls).build().unwrap();
    let prepared_by = uses.recv_timeout(PREPARATION_TIMEOUT).expect("TLS is prepared without a request");
    assert_ne!(prepared_by, thread::current().id());
    drop((open, client));
}

#[test]
fn tls_is_not_prepared_for_a_dropped_client_or_when_preparation_is_off() {
    let [
        (first, first_uses, first_gate),
        (dropped, dropped_uses, _),
        (unprepared, unprepared_uses, _),
        (last, last_uses, _),
    ] = [(); 4].map(|()| gated_config());
    let first = builder(first).build().unwrap();
    first_uses.recv_timeout(PREPARATION_TIMEOUT).expect("TLS is prepared without a request");
    // Clients are prepared one after the other, and the gate of the first one is closed.
    drop(builder(dropped).build().unwrap());
    let unprepared = builder(unprepared.prepare_in_background(false)).build().unwrap();
    let last = builder(last).build().unwrap();
    assert!(last_uses.try_recv().is_err(), "the last client is prepared after the first one");
    drop(first_gate);
    last_uses.recv_timeout(PREPARATION_TIMEOUT).expect("the last client is prepared after the first one");
    assert!(dropped_uses.try_recv().is_err() && unprepared_uses.try_recv().is_err());
    drop((first, unprepared, last));
}
