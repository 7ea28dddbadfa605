//! The settings of TLS: versions, SNI, certificates of authorities and clients, revocation, keys for debugging.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use speeddial::dns::FixedResolver;
use speeddial::tls::{Certificate, CertificateRevocationList, Identity, TlsConfig, TlsInfo, Version};
use speeddial::{Client, ClientBuilder, ErrorKind};

use super::assert_refused;
use support::certs::{Authority, provider};
use support::tls_server::TlsServer;

/// Returns the builder of a client that trusts `authority` alone, and resolves two names to 127.0.0.1.
fn trusting(authority: &Authority) -> ClientBuilder {
    let local = [Ipv4Addr::LOCALHOST.into()];
    let names = FixedResolver::new().with("api.test", local).with("other.test", local);
    let root = Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    Client::builder().no_proxy().dns_resolver(names).tls_certs_only([root])
}

async fn get(client: ClientBuilder, host: &str, server: &TlsServer) -> speeddial::Result<speeddial::Response> {
    client.build().unwrap().get(format!("https://{host}:{}/", server.address().port())).send().await
}

#[tokio::test]
async fn the_versions_of_tls_have_bounds() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], &[])).await;
    type Setting = fn(ClientBuilder) -> ClientBuilder;
    let cases: [(Setting, _); 5] = [
        (|client| client, Version::TLS_1_3),
        (|client| client.tls_version_max(Version::TLS_1_2), Version::TLS_1_2),
        (|client| client.max_tls_version(Version::TLS_1_2).min_tls_version(Version::TLS_1_0), Version::TLS_1_2),
        (|client| client.tls_version_min(Version::TLS_1_3), Version::TLS_1_3),
        (|client| client.tls_version_max(Version::TLS_1_3).use_rustls_tls(), Version::TLS_1_3),
    ];
    for (set, version) in cases {
        let response = get(set(trusting(&authority)).tls_info(true), "api.test", &server).await.unwrap();
        let response = speeddial::http::Response::from(response);
        let info = response.extensions().get::<TlsInfo>().unwrap();
        assert_eq!(info.version(), Some(version));
        assert!(Certificate::from_der(info.peer_certificate().unwrap()).is_ok(), "it is a certificate in DER");
    }
    let response = get(trusting(&authority), "api.test", &server).await.unwrap();
    assert!(speeddial::http::Response::from(response).extensions().get::<TlsInfo>().is_none());

    // A server that speaks TLS 1.2 alone.
    let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS12]);
    let (certificate, key) = authority.sign(rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap());
    let old = builder.unwrap().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let old = TlsServer::start(Arc::new(old)).await;
    assert!(get(trusting(&authority), "api.test", &old).await.is_ok());
    let error = get(trusting(&authority).tls_version_min(Version::TLS_1_3), "api.test", &old).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls);
}

/// Records the names that clients ask for.
#[derive(Debug)]
struct SeenNames(Arc<CertifiedKey>, Arc<Mutex<Vec<Option<String>>>>);

impl ResolvesServerCert for SeenNames {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.1.lock().unwrap().push(hello.server_name().map(str::to_owned));
        Some(self.0.clone())
    }
}

#[tokio::test]
async fn servers_are_told_no_name_if_that_is_wanted() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign(rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap());
    let key = provider().key_provider.load_private_key(key).unwrap();
    let seen = Arc::default();
    let resolver = SeenNames(Arc::new(CertifiedKey::new(vec![certificate], key)), Arc::clone(&seen));
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let server = TlsServer::start(Arc::new(builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver)))).await;
    for sni in [true, false] {
        assert!(get(trusting(&authority).tls_sni(sni), "api.test", &server).await.is_ok());
    }
    assert_eq!(*seen.lock().unwrap(), [Some("api.test".to_owned()), None]);
}

#[tokio::test]
async fn a_valid_certificate_of_another_host_is_accepted_if_that_is_wanted() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["other.test"], &[])).await;
    assert_eq!(get(trusting(&authority), "api.test", &server).await.unwrap_err().kind(), ErrorKind::Tls);
    let response = get(trusting(&authority).danger_accept_invalid_hostnames(true), "api.test", &server).await.unwrap();
    assert!(!response.tls().unwrap().verified);

    // It still has to be valid and signed by a trusted authority.
    let stranger = trusting(&Authority::new()).tls_danger_accept_invalid_hostnames(true);
    assert_eq!(get(stranger, "api.test", &server).await.unwrap_err().kind(), ErrorKind::Tls);
    let mut expired = rcgen::CertificateParams::new(vec!["other.test".to_owned()]).unwrap();
    (expired.not_before, expired.not_after) = (rcgen::date_time_ymd(2000, 1, 1), rcgen::date_time_ymd(2001, 1, 1));
    let (certificate, key) = authority.sign(expired);
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let expired = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let expired = TlsServer::start(Arc::new(expired)).await;
    let any_name = || trusting(&authority).tls_danger_accept_invalid_hostnames(true);
    assert_eq!(get(any_name(), "api.test", &expired).await.unwrap_err().kind(), ErrorKind::Tls);

    let anyone = Client::builder().no_proxy().tls_danger_accept_invalid_certs(true).danger_accept_invalid_certs(true);
    let anyone = anyone.resolve("api.test", expired.address());
    assert!(!get(anyone, "api.test", &expired).await.unwrap().tls().unwrap().verified);
}

#[tokio::test]
async fn a_revoked_certificate_is_refused() {
    let authority = Authority::new();
    let mut params = rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
    params.serial_number = Some(7_u64.into());
    let (certificate, key) = authority.sign(params);
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(config)).await;
    let list = |authority: &Authority, serial| {
        CertificateRevocationList::from_pem(authority.revocation_list(&[serial]).as_bytes()).unwrap()
    };
    assert!(get(trusting(&authority), "api.test", &server).await.is_ok());
    assert!(get(trusting(&authority).add_crl(list(&authority, 8)), "api.test", &server).await.is_ok());
    let several = [list(&authority, 8), list(&authority, 7)].map(|list| vec![list]);
    for (lists, words) in several.into_iter().zip([None, Some("Revoked")]) {
        let outcome = get(trusting(&authority).tls_crls_only(lists), "api.test", &server).await;
        let text = outcome.err().map(|error| format!("{error:#}"));
        assert_eq!(text.is_some(), words.is_some(), "{text:?}");
        assert!(words.is_none_or(|words| text.as_ref().is_some_and(|text| text.contains(words))), "{text:?}");
    }
    let of_another = trusting(&authority).add_crls([list(&Authority::new(), 7)]);
    assert!(get(of_another, "api.test", &server).await.is_err(), "an authority without a list");
    let bundle = [authority.revocation_list(&[1]), authority.revocation_list(&[2])].concat();
    assert_eq!(CertificateRevocationList::from_pem_bundle(bundle.as_bytes()).unwrap().len(), 2);
}

#[tokio::test]
async fn of_several_lists_of_an_authority_the_newest_counts() {
    let authority = Authority::new();
    let mut params = rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap();
    params.serial_number = Some(7_u64.into());
    let (certificate, key) = authority.sign(params);
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(config)).await;
    let list = |year, serial| {
        let pem = authority.revocation_list_of(year, &[serial]);
        CertificateRevocationList::from_pem(pem.as_bytes()).unwrap()
    };
    for (older, newer) in [(2001, 2002), (1999, 2000), (2049, 2051)] {
        for revoked_later in [7, 8] {
            let lists = [list(older, 15 - revoked_later), list(newer, revoked_later)];
            let turned = [lists[1].clone(), lists[0].clone()];
            for lists in [lists, turned] {
                let outcome = get(trusting(&authority).tls_crls_only(lists), "api.test", &server).await;
                assert_eq!(outcome.is_err(), revoked_later == 7, "{older}, {newer}: {revoked_later}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_shows_its_identity_and_trusts_merged_authorities() {
    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let (certificate, key) = authority.sign(rcgen::CertificateParams::new(vec!["api.test".to_owned()]).unwrap());
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = builder.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(config)).await;

    let key = KeyPair::generate().unwrap();
    let pem = authority.sign_pem(rcgen::CertificateParams::new(vec!["me".to_owned()]).unwrap(), &key);
    let identity = Identity::from_pem(format!("{}{pem}", key.serialize_pem()).as_bytes()).unwrap();
    assert!(get(trusting(&authority), "api.test", &server).await.is_err());
    assert!(get(trusting(&authority).identity(identity.clone()), "api.test", &server).await.is_ok());
    assert!(Identity::from_pem(pem.as_bytes()).is_err() && Identity::from_pem(b"").is_err());

    let roots = Certificate::from_pem_bundle([authority.pem(), Authority::new().pem()].concat().as_bytes()).unwrap();
    assert_eq!(roots.len(), 2);
    let [merged, added] = [Client::builder().tls_certs_merge(roots.clone()), {
        roots.into_iter().fold(Client::builder(), ClientBuilder::add_root_certificate)
    }];
    for client in [merged, added] {
        let client = client.no_proxy().identity(identity.clone()).resolve("api.test", server.address());
        assert!(get(client, "api.test", &server).await.is_ok());
    }
}

/// Returns a key and its certificate in PKCS #12, encrypted with `password`.
#[cfg(feature = "native-tls")]
fn pkcs12(key: &KeyPair, certificate: &[u8], password: &str, encryption: p12_keystore::EncryptionAlgorithm) -> Vec<u8> {
    use p12_keystore::{Certificate, KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};
    let key = PrivateKey::from_der(&key.serialize_der()).unwrap();
    let chain = PrivateKeyChain::new("1", key, [Certificate::from_der(certificate).unwrap()]);
    let mut store = KeyStore::new();
    store.add_entry("me", KeyStoreEntry::PrivateKeyChain(chain));
    store.writer(password).encryption_algorithm(encryption).write().unwrap()
}

#[cfg(feature = "native-tls")]
#[tokio::test]
async fn an_identity_is_read_from_pkcs12_of_either_age() {
    use p12_keystore::EncryptionAlgorithm::{PbeWithHmacSha256AndAes256, PbeWithShaAnd3KeyTripleDesCbc};
    use rustls::pki_types::pem::PemObject;
    let authority = Authority::new();
    let server = TlsServer::start(authority.mutual_server(&["api.test"], &["http/1.1"])).await;
    let key = KeyPair::generate().unwrap();
    let pem = authority.sign_pem(rcgen::CertificateParams::new(vec!["me".to_owned()]).unwrap(), &key);
    let certificate = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    for encryption in [PbeWithHmacSha256AndAes256, PbeWithShaAnd3KeyTripleDesCbc] {
        let archive = pkcs12(&key, &certificate, "secret", encryption);
        let identity = Identity::from_pkcs12_der(&archive, "secret").unwrap();
        assert!(get(trusting(&authority).identity(identity).use_native_tls(), "api.test", &server).await.is_ok());
        for (archive, password) in [(&archive[..], "wrong"), (&archive[..archive.len() / 2], "secret"), (b"", "")] {
            let error = Identity::from_pkcs12_der(archive, password).unwrap_err();
            assert!(error.is_builder() && !format!("{error:#?}").contains("secret"), "{error:#}");
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.starts_with("the PKCS #12 archive cannot be read: "), "{source}");
        }
    }
    assert!(get(trusting(&authority).tls_backend_native(), "api.test", &server).await.is_err());
}

#[tokio::test]
async fn keys_are_written_to_the_file_of_the_environment() {
    const FILE: &str = "SSLKEYLOGFILE";
    let Some(path) = std::env::var_os(FILE) else {
        // The variable is that of a process, so another one has it.
        let test = support::test_path(module_path!(), "keys_are_written_to_the_file_of_the_environment");
        let path = std::env::temp_dir().join(format!("speeddial-keys-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        let child = child.args([&test, "--exact", "--nocapture"]).env(FILE, &path).output().await.unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
        let keys = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let secrets = keys.lines().filter(|line| line.starts_with("CLIENT_TRAFFIC_SECRET_0 ")).count();
        assert_eq!(secrets, 1, "of the client that logs its keys:\n{keys}");
        return;
    };
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], &[])).await;
    assert!(get(trusting(&authority), "api.test", &server).await.is_ok());
    assert!(!std::path::Path::new(&path).exists(), "keys are logged only if that is wanted");
    assert!(get(trusting(&authority).tls_sslkeylogfile(true), "api.test", &server).await.is_ok());
}

#[test]
fn settings_of_tls_that_contradict_each_other_are_refused() {
    let authority = Authority::new();
    let root = || Certificate::from_pem(authority.pem().as_bytes()).unwrap();
    let list = || CertificateRevocationList::from_pem(authority.revocation_list(&[1]).as_bytes()).unwrap();
    let new = Client::builder;
    assert_refused(new().add_crl(list()), "a list of revoked certificates needs trusted roots of your own");
    assert_refused(new().tls_danger_accept_invalid_hostnames(true), "needs trusted roots of your own");
    assert_refused(new().tls_danger_accept_invalid_certs(true).tls_certs_merge([root()]), "no effect while any");
    let any = || new().tls_danger_accept_invalid_certs(true);
    assert!(any().tls_danger_accept_invalid_hostnames(true).build().is_ok(), "the first includes the second");
    assert!(any().tls_certs_only([]).build().is_ok(), "nothing that is trusted is left out");
    assert_refused(new().tls_version_max(Version::TLS_1_1), "leave neither 1.2 nor 1.3");
    let crossed = new().tls_version_max(Version::TLS_1_2).tls_version_min(Version::TLS_1_3);
    assert_refused(crossed, "leave neither 1.2 nor 1.3");
    assert_refused(new().tls_sni(false).tls(TlsConfig::new()), "tls() would replace tls_sni; call it first");
    assert!(new().tls(TlsConfig::new()).tls_sni(false).build().is_ok());
    let whole = || new().tls(authority.client());
    assert_refused(whole().tls_sni(false), "no effect beside a whole rustls configuration");
    assert_refused(whole().tls_sslkeylogfile(true), "no effect beside a whole rustls configuration");
    assert_refused(whole().tls_version_max(Version::TLS_1_3), "a highest version has no effect beside");
}

#[test]
fn preconfigured_tls_of_a_known_type_is_used_and_of_any_other_refused_by_build() {
    let config = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    for known in [
        Client::builder().use_preconfigured_tls(config.clone()),
        Client::builder().tls_backend_preconfigured(Arc::new(config)),
        Client::builder().tls_backend_preconfigured(TlsConfig::new()),
    ] {
        assert!(known.build().is_ok());
    }
    assert_refused(Client::builder().use_preconfigured_tls(5_u8), "TLS settings of the type u8");
    let late = Client::builder().tls_sni(false).use_preconfigured_tls(TlsConfig::new());
    assert_refused(late, "tls() would replace tls_sni");
}
