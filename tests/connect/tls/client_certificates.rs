//! Client certificates: how they are set, and the error when the server rejects one or misses it.

use std::error::Error as _;
use std::sync::Arc;

use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use speeddial::ErrorKind;
use speeddial::tls::{Identity, Version};

use super::common::{builder, get, params, trusting};
use support::certs::{Authority, provider};
use support::tls_server::TlsServer;

#[tokio::test]
async fn a_client_certificate_is_sent_and_a_missing_or_wrong_one_is_named() {
    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let (certificate, key) = authority.sign(params(&["api.test"]));
    let builder_ = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = builder_.with_client_cert_verifier(verifier.clone()).with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(config)).await;

    let identity = identity_of(&authority);
    let tls = trusting(&authority).identity(identity);
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());

    // With TLS 1.3 the server's alert comes after the handshake, with the first bytes that are read.
    let missing = get(&builder(trusting(&authority)).build().unwrap(), "api.test", server.address()).await.unwrap_err();
    assert!(missing.to_string().contains("a client certificate is required"), "{missing}");
    let identity = identity_of(&Authority::new());
    let tls = trusting(&authority).identity(identity);
    let wrong = get(&builder(tls).build().unwrap(), "api.test", server.address()).await.unwrap_err();
    assert!(wrong.to_string().contains("the client certificate is refused"), "{wrong}");

    // With TLS 1.2 the alert comes in the handshake.
    let old =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let (certificate, key) = authority.sign(params(&["api.test"]));
    let old = old.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(old)).await;
    let identity = identity_of(&authority);
    let tls = trusting(&authority).identity(identity);
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());
    let missing = get(&builder(trusting(&authority)).build().unwrap(), "api.test", server.address()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Tls, "{missing}");
    assert!(Identity::from_pkcs8_pem(b"nonsense", b"nonsense").is_err());
}

/// Returns a client certificate and its key.
fn identity_of(authority: &Authority) -> Identity {
    let key = KeyPair::generate().unwrap();
    let chain = authority.sign_pem(params(&["client.test"]), &key);
    Identity::from_pkcs8_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
}

#[tokio::test]
async fn a_rejected_client_certificate_is_the_error_over_either_http_version_and_with_any_body() {
    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let identity = identity_of(&Authority::new());
    let unknown = trusting(&authority).identity(identity);
    for alpn in ["h2", "http/1.1"] {
        let (certificate, key) = authority.sign(params(&["api.test"]));
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(verifier.clone());
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let server = TlsServer::start(Arc::new(config)).await;
        let url = format!("https://api.test:{}/", server.address().port());
        for (tls, words) in [
            (trusting(&authority), "a client certificate is required: received fatal alert: CertificateRequired"),
            (unknown.clone(), "the client certificate is refused: received fatal alert: UnknownCA"),
        ] {
            let client = builder(tls).build().unwrap();
            for length in [0, 4 << 20] {
                for round in 0..20 {
                    let error = client.post(&url).body(vec![0; length]).send().await.unwrap_err();
                    let expected = format!("POST {url}: the server ended the TLS connection: {words}");
                    assert_eq!(format!("{error:#}"), expected, "{alpn}, {length} bytes, round {round}");
                }
            }
        }
    }
}

#[test]
fn a_key_and_a_chain_that_do_not_match_are_refused_with_the_reason() {
    let root = Authority::new();
    let intermediate = root.intermediate();
    let own_key = KeyPair::generate().unwrap();
    let key = own_key.serialize_pem();
    let leaf = intermediate.sign_pem(params(&["client.test"]), &own_key);
    let middle = intermediate.pem();
    let top = root.pem();
    let [leaf, middle, top] = [leaf.as_str(), middle.as_str(), top.as_str()];
    let identity_error = |chain: &[&str], key: &str| {
        let made = Identity::from_pkcs8_pem(chain.concat().as_bytes(), key.as_bytes());
        made.map(drop).map_err(|error| error.source().unwrap().to_string())
    };
    for chain in [&[leaf][..], &[leaf, middle], &[leaf, middle, top], &[leaf, top]] {
        assert_eq!(identity_error(chain, &key), Ok(()));
    }
    let order = |what: &str| Err(format!("the certificates are in the wrong order: {what}"));
    let own = "that of the private key is number 2, and has to be the first";
    assert_eq!(identity_error(&[middle, leaf], &key), order(own));
    assert_eq!(
        identity_error(&[leaf, top, middle], &key),
        order("number 1 is issued by number 3, which has to follow it")
    );
    let other = KeyPair::generate().unwrap().serialize_pem();
    assert_eq!(identity_error(&[leaf], &other), Err("the private key does not match the certificate".to_owned()));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIB\n\
                 -----END RSA PRIVATE KEY-----\n";
    for key in [encrypted, older] {
        assert!(identity_error(&[leaf], key).is_err_and(|message| message.starts_with("the private key is encrypted")));
    }
}

#[tokio::test]
async fn a_rejected_client_certificate_is_an_error_of_the_handshake_in_both_versions_of_tls() {
    let authority = Authority::new();
    let identity = identity_of(&Authority::new());
    let unknown = trusting(&authority).identity(identity);
    for alpn in ["h2", "http/1.1"] {
        let server = TlsServer::start(authority.mutual_server(&["api.test"], &[alpn])).await;
        let url = format!("https://api.test:{}/", server.address().port());
        for version in [Version::TLS_1_2, Version::TLS_1_3] {
            for (tls, words) in [
                (trusting(&authority), "a client certificate is required"),
                (unknown.clone(), "the client certificate is refused"),
            ] {
                let client = builder(tls.min_version(version).max_version(version)).build().unwrap();
                for length in [0, 4 << 20] {
                    let error = client.post(&url).body(vec![0; length]).send().await.unwrap_err();
                    let text = format!("{alpn}, {version:?}, {length} bytes: {error:#}");
                    assert_eq!(error.kind(), ErrorKind::Tls, "{text}");
                    assert!(error.is_connect() && !error.may_have_been_processed(), "{text}");
                    assert!(error.to_string().contains(words), "{text}");
                }
            }
        }
        assert_eq!(server.handshakes(), 0, "the server has read no request");
    }
}
