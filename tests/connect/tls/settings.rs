//! TLS settings: what `build` refuses, which setting wins, and whose cryptography is used.

use std::error::Error as _;
use std::time::Duration;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use speeddial::Client;
use speeddial::tls::{Certificate, Identity, TlsConfig};

use super::common::{ALPN, builder, config_with, get, params, refused, server, spki_sha256, trusting};
use support::certs::{Authority, provider};
use support::tls_server::TlsServer;

/// Returns the error with which a client with these settings is refused.
fn build_error(tls: TlsConfig) -> String {
    let error = builder(tls).build().unwrap_err();
    assert!(error.is_builder(), "{error}");
    error.to_string()
}

#[test]
fn certificates_and_keys_that_cannot_be_used_are_refused_when_they_are_read() {
    let root = Authority::new().pem();
    let of_der = |der: &[u8]| Certificate::from_der(der).unwrap_err().source().unwrap().to_string();
    let unreadable = "root certificate number 1 cannot be read: ";
    assert!(of_der(b"nonsense").starts_with(&format!("{unreadable}it is not a certificate in DER")));
    assert_eq!(of_der(root.as_bytes()), format!("{unreadable}it is PEM, not DER"));
    let of_pem = |pem: &str| Certificate::from_pem(pem.as_bytes()).unwrap_err().source().unwrap().to_string();
    let no_certificate = "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n";
    let error = of_pem(&(root + no_certificate));
    assert!(error.starts_with("root certificate number 2 cannot be read: "), "{error}");
    assert_eq!(of_pem(""), "certificates: there is none");
    assert!(Identity::from_pkcs8_pem(b"", b"").is_err());
}

#[test]
fn settings_that_no_handshake_could_use_are_refused_when_the_client_is_built() {
    for (protocol, bytes) in [(String::new(), 0), ("x".repeat(256), 256)] {
        let error = build_error(TlsConfig::new().alpn([protocol]));
        assert!(error.contains(&format!("has {bytes} bytes; it must have 1 to 255")), "{error}");
    }
    assert!(builder(TlsConfig::new().alpn(["x".repeat(255)])).build().is_ok());
    let error = build_error(TlsConfig::new().session_cache(usize::MAX));
    assert!(error.contains("is too large; the most is 1,000,000"), "{error}");
    assert!(builder(TlsConfig::new().session_cache(1_000_000).prepare_in_background(false)).build().is_ok());
}

#[test]
fn time_limits_that_no_connection_could_keep_are_refused_when_the_client_is_built() {
    let without = [
        (builder(TlsConfig::new()).connect_timeout(Duration::ZERO), "connect_timeout must not be 0"),
        (builder(TlsConfig::new()).tls_timeout(Duration::ZERO), "tls_timeout must not be 0"),
    ];
    for (builder, words) in without {
        let error = builder.build().unwrap_err();
        assert!(error.is_builder() && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_whole_rustls_configuration_is_not_checked() {
    let config = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    config.alpn_protocols = vec!["x".repeat(256).into_bytes()];
    assert!(builder(TlsConfig::from(config).prepare_in_background(false)).build().is_ok());
}

#[test]
fn a_choice_of_roots_is_refused_while_any_certificate_is_accepted() {
    let root = Authority::new();
    let anyone = || TlsConfig::new().danger_accept_invalid_certs(true);
    let added = || anyone().add_roots([root.root()]);
    for tls in [added(), added().only_added_roots()] {
        let error = build_error(tls);
        assert!(error.contains("a choice of trusted roots has no effect while any certificate is accepted"), "{error}");
    }
    assert!(builder(anyone().only_added_roots()).build().is_ok());
    assert!(builder(trusting(&root).danger_accept_invalid_certs(false)).build().is_ok());
}

#[tokio::test]
async fn a_client_that_trusts_nobody_reaches_servers_without_tls_alone() {
    let (root, plain) = (Authority::new(), support::ok_server());
    let server = TlsServer::start(server(&root, params(&["api.test"]))).await;
    for client in [
        builder(TlsConfig::new().only_added_roots()).build().unwrap(),
        Client::builder().tls_certs_only([]).resolve("api.test", server.address()).build().unwrap(),
        Client::builder()
            .tls_built_in_root_certs(true)
            .tls_built_in_root_certs(false)
            .resolve("api.test", server.address())
            .build()
            .unwrap(),
    ] {
        assert!(client.get(format!("http://{}/", plain.address())).send().await.unwrap().status().is_success());
        let error = get(&client, "api.test", server.address()).await.unwrap_err();
        assert!(error.is_tls() && error.is_connect(), "{error:#}");
        let text = format!("{error:#}");
        assert!(text.ends_with("only added root certificates are trusted, and none was added"), "{text}");
    }
}

#[tokio::test]
async fn pinned_keys_apply_even_if_any_certificate_is_accepted() {
    let stranger = Authority::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let pin = spki_sha256(&key);
    let (certificate, key) = stranger.sign_with(params(&["other.test"]), key);
    let config = config_with(vec![certificate], key);
    let pinned = TlsConfig::new().danger_accept_invalid_certs(true).pin_spki_sha256(pin);
    let its_server = TlsServer::start(config).await;
    let (_, timings) = get(&builder(pinned.clone()).build().unwrap(), "api.test", its_server.address()).await.unwrap();
    assert!(!timings.tls_facts().unwrap().verified);
    let reason = refused(pinned, "api.test", server(&stranger, params(&["api.test"]))).await;
    assert_eq!(reason, "the certificate is refused: its public key is none of those pinned");
}

/// The variable that tells the test below that it runs in its own process.
const OWN_PROCESS: &str = "SPEEDDIAL_TEST_PROVIDER";

/// Returns a provider with one cipher suite of TLS 1.3.
fn provider_with(suite: CipherSuite) -> CryptoProvider {
    let mut provider = CryptoProvider::clone(&provider());
    provider.cipher_suites.retain(|known| known.suite() == suite);
    provider
}

#[tokio::test]
async fn the_provider_of_the_process_is_used_by_clients_that_are_built_after_it_was_installed() {
    if std::env::var_os(OWN_PROCESS).is_none() {
        let name = "the_provider_of_the_process_is_used_by_clients_that_are_built_after_it_was_installed";
        let test = support::test_path(module_path!(), name);
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        let output = child.args([&*test, "--exact"]).env(OWN_PROCESS, "1").output().await.unwrap();
        let output_text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
        return;
    }
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test", "proxy.test"], ALPN)).await;
    let suite = async |client: &speeddial::Client| {
        let (_, timings) = get(client, "api.test", server.address()).await.unwrap();
        timings.tls_facts().unwrap().cipher_suite
    };
    let tls = || trusting(&authority).prepare_in_background(false);
    let built_before = builder(tls()).build().unwrap();
    provider_with(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256).install_default().unwrap();
    assert_ne!(suite(&built_before).await, "TLS13_CHACHA20_POLY1305_SHA256");
    assert_eq!(suite(&builder(tls()).build().unwrap()).await, "TLS13_CHACHA20_POLY1305_SHA256");
    let own = builder(authority.client().into()).build().unwrap();
    assert_ne!(suite(&own).await, "TLS13_CHACHA20_POLY1305_SHA256", "a whole configuration keeps its own provider");
}

#[tokio::test]
async fn hazard_a_copy_of_a_pinned_certificate_is_refused_without_its_key() {
    let key = rcgen::KeyPair::generate().unwrap();
    let pin = spki_sha256(&key);
    let (certificate, _) = Authority::new().sign_with(params(&["api.test"]), key);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (_, other) = Authority::new().sign(params(&["api.test"]));
        let other = provider().key_provider.load_private_key(other).unwrap();
        let copied = rustls::sign::CertifiedKey::new(vec![certificate.clone()], other);
        let copied = std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(copied));
        let config =
            rustls::ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[version]).unwrap();
        let config = config.with_no_client_auth().with_cert_resolver(copied);
        let tls = TlsConfig::new().danger_accept_invalid_certs(true).pin_spki_sha256(pin);
        let reason = refused(tls, "api.test", std::sync::Arc::new(config)).await;
        assert!(reason.contains("BadSignature"), "{reason}");
    }
}
