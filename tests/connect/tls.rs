//! TLS: who is believed, who is refused and in which words, and what the trace tells of it.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, GetRandomFailed, SecureRandom};
use rustls::server::WebPkiClientVerifier;
use speeddial::dns::FixedResolver;
use speeddial::http::Version;
use speeddial::tls::{TlsConfig, TlsVersion};
use speeddial::trace::{AttemptOutcome, Phase, Timings};
use speeddial::transport::{Connecting, Stream, Transport};
use speeddial::{Client, ClientBuilder, Error, ErrorKind, PoolConfig, RetryPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use support::certs::{Authority, provider};
use support::peer::Peer;
use support::tls_server::TlsServer;
use support::{refusing, v4};

const ALPN: &[&str] = &["h2", "http/1.1"];

/// A client that finds every name at 127.0.0.1 and believes `authority` alone.
fn builder(tls: TlsConfig) -> ClientBuilder {
    let names = ["api.test", "other.test", "sub.api.test"];
    let resolver =
        names.iter().fold(FixedResolver::new(), |fixed, name| fixed.with(name, [Ipv4Addr::LOCALHOST.into()]));
    Client::builder().resolver(resolver).tls(tls)
}

fn trusting(authority: &Authority) -> TlsConfig {
    TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots()
}

async fn get(client: &Client, host: &str, address: SocketAddr) -> Result<(String, Timings), Error> {
    let response = client.get(format!("https://{host}:{}/a?b=c", address.port())).send().await?;
    let handle = response.timings_handle();
    let text = response.text().await?;
    Ok((text, handle.timings()))
}

/// A server with this certificate.
fn server(authority: &Authority, params: CertificateParams) -> Arc<ServerConfig> {
    let (certificate, key) = authority.sign(params);
    config_with(vec![certificate], key)
}

fn config_with(
    chain: Vec<rustls::pki_types::CertificateDer<'static>>,
    key: rustls::pki_types::PrivateKeyDer<'static>,
) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

#[tokio::test]
async fn http2_and_http1_come_by_alpn_and_the_trace_has_the_facts() {
    let authority = Authority::new();
    for (alpn, version, agreed) in
        [(ALPN, "HTTP/2.0", Some("h2")), (&ALPN[1..], "HTTP/1.1", Some("http/1.1")), (&[], "HTTP/1.1", None)]
    {
        let server = TlsServer::start(authority.server(&["api.test"], alpn)).await;
        let client = builder(trusting(&authority)).build().unwrap();
        let (text, timings) = get(&client, "api.test", server.address()).await.unwrap();
        let port = server.address().port();
        let expected = match version {
            "HTTP/2.0" => format!("HTTP/2.0 GET https://api.test:{port}/a?b=c none"),
            _ => format!("HTTP/1.1 GET /a?b=c api.test:{port}"),
        };
        assert_eq!(text, expected);
        let facts = timings.tls_facts().unwrap();
        assert_eq!(
            (facts.version, facts.alpn.as_deref(), facts.resumed, facts.verified),
            ("TLSv1_3", agreed, false, true)
        );
        assert!(facts.cipher_suite.starts_with("TLS13_") && facts.peer_certificates.len() == 1, "{facts:?}");
        assert!(timings.tls() > Duration::ZERO);
        assert_eq!(Phase::ALL.map(|phase| timings.spent(phase)).iter().sum::<Duration>(), timings.total());

        let (_, timings) = get(&client, "api.test", server.address()).await.unwrap();
        assert!(timings.reused() && timings.tls() == Duration::ZERO && timings.tls_facts().is_some());
        assert_eq!(server.accepted(), 1);
    }
}

#[tokio::test]
async fn cold_requests_wait_for_the_first_connection_to_show_whether_one_is_enough() {
    let authority = Authority::new();
    for (alpn, connections) in [(ALPN, 1..=1), (&ALPN[1..], 2..=50)] {
        let server = TlsServer::start(authority.server(&["api.test"], alpn)).await;
        let client = builder(trusting(&authority)).build().unwrap();
        let address = server.address();
        let gets = futures_util::future::join_all((0..50).map(|_| get(&client, "api.test", address)));
        assert!(gets.await.iter().all(Result::is_ok));
        assert!(connections.contains(&server.accepted()), "{} connections", server.accepted());
    }
}

#[tokio::test]
async fn the_second_connection_resumes_the_session() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let pool = || speeddial::PoolConfig::new().max_idle(0);
    for (tls, resumed) in [(trusting(&authority), true), (trusting(&authority).session_cache(0), false)] {
        let client = builder(tls).pool(pool()).build().unwrap();
        let (_, first) = get(&client, "api.test", server.address()).await.unwrap();
        let (_, second) = get(&client, "api.test", server.address()).await.unwrap();
        let facts = [first, second].map(|timings| timings.tls_facts().map(|facts| facts.resumed));
        assert_eq!(facts, [Some(false), Some(resumed)]);
    }
    assert_eq!(server.shaken(), 4);
}

#[tokio::test]
async fn versions_can_be_chosen() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let client = builder(trusting(&authority)).http1_only().build().unwrap();
    assert!(get(&client, "api.test", server.address()).await.unwrap().0.starts_with("HTTP/1.1"));
    let only13 = builder(trusting(&authority).min_version(TlsVersion::Tls13)).build().unwrap();
    assert!(get(&only13, "api.test", server.address()).await.is_ok());
    let response = only13.get(format!("https://api.test:{}/", server.address().port())).send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
}

#[tokio::test]
async fn the_version_settings_decide_what_is_offered_or_the_conflict_is_refused() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let whole = |alpn: &[&str]| {
        let mut config = authority.client();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        TlsConfig::from(config)
    };
    for alpn in [&["h2", "http/1.1"][..], &["h2"], &["http/1.1"], &[]] {
        let client = builder(whole(alpn)).http1_only().build().unwrap();
        let (text, _) = get(&client, "api.test", server.address()).await.unwrap();
        assert!(text.starts_with("HTTP/1.1"), "{alpn:?}: {text}");
        let client = builder(whole(alpn)).http2_prior_knowledge().build().unwrap();
        let (text, _) = get(&client, "api.test", server.address()).await.unwrap();
        assert!(text.starts_with("HTTP/2.0"), "{alpn:?}: {text}");
    }
    for alpn in [&["h2", "http/1.1"][..], &["h2"]] {
        let error = builder(trusting(&authority).alpn(alpn.iter().copied())).http1_only().build().unwrap_err();
        assert!(error.is_builder() && error.to_string().contains("`h2`"), "{error}");
    }
    for alpn in [&["h2", "http/1.1"][..], &["http/1.1"]] {
        let tls = trusting(&authority).alpn(alpn.iter().copied());
        let error = builder(tls).http2_prior_knowledge().build().unwrap_err();
        assert!(error.is_builder() && error.to_string().contains("`http/1.1`"), "{error}");
    }
    assert!(builder(trusting(&authority).alpn(["http/1.1", "acme"])).http1_only().build().is_ok());
}

/// What is refused, and the words for it.
async fn refused(tls: TlsConfig, host: &str, config: Arc<ServerConfig>) -> String {
    let server = TlsServer::start(config).await;
    let error = get(&builder(tls).build().unwrap(), host, server.address()).await.unwrap_err();
    assert!(error.is_tls() && error.is_connect() && !error.is_timeout(), "{error}");
    assert_eq!(error.kind(), ErrorKind::Tls);
    assert!(matches!(&error.attempts()[0].outcome, AttemptOutcome::Failed(_)), "{:?}", error.attempts());
    let text = error.to_string();
    let start = format!("connect to {host}:{}: 127.0.0.1: ", server.address().port());
    text.strip_prefix(&start).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[tokio::test]
async fn hazard_certificates_that_are_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let day = |year| rcgen::date_time_ymd(year, 1, 1);
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = params(&["api.test"]);
        change(&mut params);
        params
    };
    let mut expired = params(&["api.test"]);
    (expired.not_before, expired.not_after) = (day(2000), day(2001));
    let mut future = params(&["api.test"]);
    (future.not_before, future.not_after) = (day(2090), day(2091));
    let common_name_only = with(|params| {
        params.subject_alt_names.clear();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "api.test");
    });
    let for_clients = with(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    let key = KeyPair::generate().unwrap();
    let alone = params(&["api.test"]).self_signed(&key).unwrap();
    let alone =
        config_with(vec![alone.der().clone()], rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()));

    let cases = [
        ("expired", "api.test", server(&authority, expired), "expired"),
        ("not yet valid", "api.test", server(&authority, future), "not valid yet"),
        ("wrong host", "other.test", server(&authority, params(&["api.test"])), "not valid for name"),
        ("wildcard too deep", "sub.api.test", server(&authority, params(&["*.test"])), "not valid for name"),
        ("wildcard of everything", "api.test", server(&authority, params(&["*"])), "not valid for name"),
        ("common name only", "api.test", server(&authority, common_name_only), "not valid for name"),
        ("for clients", "api.test", server(&authority, for_clients), "key usage"),
        ("unknown root", "api.test", server(&stranger, params(&["api.test"])), "authority that is not trusted"),
        ("self-signed", "api.test", alone, "authority that is not trusted"),
        ("an address it is not for", "127.0.0.1", server(&authority, params(&["api.test"])), "not valid for name"),
    ];
    for (case, host, config, words) in cases {
        let said = refused(trusting(&authority), host, config).await;
        assert!(said.contains("certificate") && said.contains(words), "{case}: {said}");
    }
}

#[tokio::test]
async fn certificates_that_are_accepted() {
    let authority = Authority::new();
    let cases = [
        ("its name", "api.test", params(&["api.test"])),
        ("one of its names", "api.test", params(&["other.test", "api.test"])),
        ("a wildcard", "sub.api.test", params(&["*.api.test"])),
        ("an address", "127.0.0.1", params(&["127.0.0.1"])),
        ("other letters", "API.test", params(&["Api.Test"])),
    ];
    for (case, host, params) in cases {
        let server = TlsServer::start(server(&authority, params)).await;
        let client = builder(trusting(&authority)).build().unwrap();
        let outcome = get(&client, host, server.address()).await;
        assert!(outcome.is_ok(), "{case}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_server_can_be_known_by_its_key() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let pin = ring_free_sha256(&key.subject_public_key_info());
    let (certificate, key) = authority.sign_with(params(&["api.test"]), key);
    let config = config_with(vec![certificate], key);
    let server = TlsServer::start(config.clone()).await;
    let pinned = trusting(&authority).pin_spki_sha256([7; 32]).pin_spki_sha256(pin);
    assert!(get(&builder(pinned).build().unwrap(), "api.test", server.address()).await.is_ok());
    let said = refused(trusting(&authority).pin_spki_sha256([7; 32]), "api.test", config).await;
    assert_eq!(said, "the certificate is refused: its public key is none of those pinned");
}

/// The provider's own SHA-256.
fn ring_free_sha256(data: &[u8]) -> [u8; 32] {
    use rustls::crypto::hash::HashAlgorithm;
    let provider = provider();
    let hash = provider.cipher_suites.iter().find_map(|suite| {
        let hash = suite.tls13()?.common.hash_provider;
        (hash.algorithm() == HashAlgorithm::SHA256).then_some(hash)
    });
    hash.unwrap().hash(data).as_ref().try_into().unwrap()
}

#[tokio::test]
async fn another_name_can_be_asked_for() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["inner.test"], ALPN)).await;
    let tls = trusting(&authority).server_name("inner.test").unwrap();
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());
    assert!(TlsConfig::new().server_name("not a name").is_err());
}

/// What a server saw of the handshake: the name it was asked for, and the protocols it was offered.
#[derive(Debug)]
struct Seen {
    key: Arc<rustls::sign::CertifiedKey>,
    hellos: Mutex<Vec<(Option<String>, Vec<String>)>>,
}

impl rustls::server::ResolvesServerCert for Seen {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let offered = hello.alpn().into_iter().flatten().map(|protocol| String::from_utf8_lossy(protocol).into_owned());
        self.hellos.lock().unwrap().push((hello.server_name().map(str::to_owned), offered.collect()));
        Some(self.key.clone())
    }
}

#[tokio::test]
async fn the_server_is_asked_for_the_name_and_offered_the_protocols_that_are_set() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign(params(&["inner.test", "api.test"]));
    let key = rustls::sign::CertifiedKey::from_der(vec![certificate], key, &provider()).unwrap();
    let seen = Arc::new(Seen { key: Arc::new(key), hellos: Mutex::default() });
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_cert_resolver(seen.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let server = TlsServer::start(Arc::new(config)).await;
    // Trusted by PEM this time.
    let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(&authority.certificate()));
    let tls = TlsConfig::new().add_roots_pem(pem.as_bytes()).unwrap().only_added_roots();
    let named = tls.clone().server_name("inner.test").unwrap().alpn(["http/1.1"]);
    for tls in [tls, named] {
        get(&builder(tls).build().unwrap(), "api.test", server.address()).await.unwrap();
    }
    let hellos = std::mem::take(&mut *seen.hellos.lock().unwrap());
    let both = vec!["h2".to_owned(), "http/1.1".to_owned()];
    assert_eq!(hellos[0], (Some("api.test".to_owned()), both.clone()));
    assert_eq!(hellos[1], (Some("inner.test".to_owned()), both[1..].to_vec()));
}

#[tokio::test]
async fn anyone_is_accepted_only_where_that_is_said_and_the_trace_says_it_too() {
    let stranger = Authority::new();
    let server = TlsServer::start(stranger.server(&["nobody.test"], ALPN)).await;
    let client = builder(TlsConfig::new().danger_accept_invalid_certs(true)).build().unwrap();
    let (_, timings) = get(&client, "api.test", server.address()).await.unwrap();
    assert!(!timings.tls_facts().unwrap().verified);
    let platform = builder(TlsConfig::new()).build().unwrap();
    assert!(get(&platform, "api.test", server.address()).await.unwrap_err().is_tls());
    let platform_and_one = builder(TlsConfig::new().add_root_der(stranger.certificate().to_vec())).build().unwrap();
    let server = TlsServer::start(stranger.server(&["api.test"], ALPN)).await;
    assert!(get(&platform_and_one, "api.test", server.address()).await.is_ok());
}

#[tokio::test]
async fn a_client_can_show_a_certificate_and_is_told_when_it_must() {
    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let (certificate, key) = authority.sign(params(&["api.test"]));
    let builder_ = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = builder_.with_client_cert_verifier(verifier.clone()).with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(config)).await;

    let (chain, key) = identity(&authority);
    let tls = trusting(&authority).identity_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());

    // With TLS 1.3 the server's word comes after the handshake, with the first bytes that are read.
    let missing = get(&builder(trusting(&authority)).build().unwrap(), "api.test", server.address()).await.unwrap_err();
    assert!(missing.to_string().contains("the server wants a certificate of the client"), "{missing}");
    let (chain, key) = identity(&Authority::new());
    let tls = trusting(&authority).identity_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let wrong = get(&builder(tls).build().unwrap(), "api.test", server.address()).await.unwrap_err();
    assert!(wrong.to_string().contains("the server refuses the client's certificate"), "{wrong}");

    // With TLS 1.2 it comes in the handshake.
    let old =
        ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
    let (certificate, key) = authority.sign(params(&["api.test"]));
    let old = old.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
    let server = TlsServer::start(Arc::new(old)).await;
    let (chain, key) = identity(&authority);
    let tls = trusting(&authority).identity_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());
    let missing = get(&builder(trusting(&authority)).build().unwrap(), "api.test", server.address()).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Tls, "{missing}");
    assert!(TlsConfig::new().identity_pem(b"nonsense", b"nonsense").is_err());
    assert!(TlsConfig::new().add_roots_pem(b"").is_err());
}

/// A certificate for a client and its key, in PEM.
fn identity(authority: &Authority) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let pem = key.serialize_pem();
    let (certificate, _) = authority.sign_with(params(&["client.test"]), key);
    (chain_pem(&[&certificate]), pem)
}

fn chain_pem(certificates: &[&[u8]]) -> String {
    let section = |der: &&[u8]| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(der));
    certificates.iter().map(section).collect()
}

#[tokio::test]
async fn a_refused_client_is_told_so_over_either_version_and_whatever_it_sends() {
    let authority = Authority::new();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let (chain, key) = identity(&Authority::new());
    let unknown = trusting(&authority).identity_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    for alpn in ["h2", "http/1.1"] {
        let (certificate, key) = authority.sign(params(&["api.test"]));
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        let config = config.with_client_cert_verifier(verifier.clone());
        let mut config = config.with_single_cert(vec![certificate], key).unwrap();
        config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let server = TlsServer::start(Arc::new(config)).await;
        let url = format!("https://api.test:{}/", server.address().port());
        for (tls, words) in [
            (trusting(&authority), "the server wants a certificate of the client"),
            (unknown.clone(), "the server refuses the client's certificate (UnknownCA)"),
        ] {
            let client = builder(tls).build().unwrap();
            for length in [0, 4 << 20] {
                for round in 0..20 {
                    let error = client.post(&url).body(vec![0; length]).send().await.unwrap_err();
                    assert!(error.to_string().ends_with(words), "{alpn}, {length} bytes, round {round}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_key_and_a_chain_that_do_not_belong_together_are_refused_with_the_reason() {
    let root = Authority::new();
    let intermediate = root.intermediate();
    let own_key = KeyPair::generate().unwrap();
    let key = own_key.serialize_pem();
    let (leaf, _) = intermediate.sign_with(params(&["client.test"]), own_key);
    let (middle, top) = (intermediate.certificate(), root.certificate());
    let [leaf, middle, top]: [&[u8]; 3] = [&leaf, &middle, &top];
    let said = |chain: &[&[u8]], key: &str| {
        let made = TlsConfig::new().identity_pem(chain_pem(chain).as_bytes(), key.as_bytes());
        made.map(drop).map_err(|error| error.to_string())
    };
    for chain in [&[leaf][..], &[leaf, middle], &[leaf, middle, top], &[leaf, top]] {
        assert_eq!(said(chain, &key), Ok(()));
    }
    let order = |what: &str| Err(format!("the certificates are in the wrong order: {what}"));
    let own = "that of the private key is number 2, and has to be the first";
    assert_eq!(said(&[middle, leaf], &key), order(own));
    assert_eq!(said(&[leaf, top, middle], &key), order("number 1 is issued by number 3, which has to follow it"));
    let other = KeyPair::generate().unwrap().serialize_pem();
    assert_eq!(said(&[leaf], &other), Err("the private key does not match the certificate".to_owned()));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIB\n\
                 -----END RSA PRIVATE KEY-----\n";
    for key in [encrypted, older] {
        assert!(said(&[leaf], key).is_err_and(|said| said.starts_with("the private key is encrypted")));
    }
}

fn base64(der: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    der.chunks(3)
        .map(|chunk| {
            let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
            let letter = |place: usize| match place <= chunk.len() {
                true => LETTERS[(bits >> (18 - 6 * place)) as usize & 63] as char,
                false => '=',
            };
            (0..4).map(letter).collect::<String>()
        })
        .collect()
}

#[tokio::test]
async fn hazard_peers_that_speak_no_tls_stall_or_hang_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let client = builder(TlsConfig::new()).tls_timeout(Duration::from_millis(200)).build().unwrap();
    let behaviours = ["plain", "hangs up", "cut", "stalls"];
    tokio::spawn(async move {
        for behaviour in behaviours {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_buf(&mut Vec::new()).await.unwrap();
            match behaviour {
                "plain" => socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap(),
                "cut" => socket.write_all(&[22, 3, 3, 0, 90, 2]).await.unwrap(),
                "stalls" => tokio::time::sleep(Duration::from_secs(20)).await,
                _ => {}
            }
        }
    });
    let words = [
        ("does not speak TLS", ErrorKind::Tls),
        ("in the TLS handshake", ErrorKind::Tls),
        ("in the TLS handshake", ErrorKind::Tls),
        ("no TLS handshake within 200ms", ErrorKind::Tls),
    ];
    for (behaviour, (words, kind)) in behaviours.into_iter().zip(words) {
        let error = get(&client, "api.test", address).await.unwrap_err();
        assert!(error.to_string().contains(words), "{behaviour}: {error}");
        assert_eq!(error.kind(), kind, "{behaviour}");
        assert_eq!(error.is_timeout(), behaviour == "stalls", "{behaviour}");
    }
}

#[tokio::test]
async fn beside_a_whole_configuration_nothing_is_set_that_would_be_ignored() {
    let whole = || TlsConfig::from(rustls_config());
    let (pinned, anyone) = (whole().pin_spki_sha256([0; 32]), whole().danger_accept_invalid_certs(true));
    for tls in [pinned, anyone, whole().session_cache(1), whole().min_version(TlsVersion::Tls13), whole().alpn(["h2"])]
    {
        let error = builder(tls).build().unwrap_err();
        assert!(
            error.is_builder() && error.to_string().contains("has no effect beside a whole rustls configuration"),
            "{error}"
        );
    }
    assert!(builder(whole().server_name("other.test").unwrap()).build().is_ok());
}

fn rustls_config() -> rustls::ClientConfig {
    let builder =
        rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

#[tokio::test]
async fn so_many_hosts_are_resumed_as_the_session_cache_is_for() {
    let authority = Authority::new();
    let hosts = ["one.test", "two.test", "three.test"];
    let server = TlsServer::start(authority.server(&hosts, ALPN)).await;
    let names = hosts.iter().fold(FixedResolver::new(), |names, host| names.with(host, [Ipv4Addr::LOCALHOST.into()]));
    for (cache, resumed) in [(3, 3), (2, 0)] {
        let tls = trusting(&authority).session_cache(cache);
        let pool = PoolConfig::new().max_requests_per_connection(1);
        let client = Client::builder().tls(tls).resolver(names.clone()).pool(pool).build().unwrap();
        let mut seen = 0;
        for host in hosts.iter().chain(&hosts) {
            let url = format!("https://{host}:{}/", server.address().port());
            let response = client.get(&url).send().await.unwrap();
            seen += usize::from(response.tls().unwrap().resumed);
            response.bytes().await.unwrap();
        }
        assert_eq!(seen, resumed, "a cache for {cache} hosts");
    }
}

#[cfg(feature = "webpki-roots")]
#[tokio::test]
async fn compiled_in_roots_do_not_know_the_tests_authority_until_it_is_added() {
    let authority = Authority::new();
    let said = refused(TlsConfig::new().webpki_roots(), "api.test", authority.server(&["api.test"], ALPN)).await;
    assert!(said.contains("authority that is not trusted"), "{said}");
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let tls = TlsConfig::new().webpki_roots().add_root_der(authority.certificate().to_vec());
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());
}

#[tokio::test]
async fn hazard_connections_are_shared_only_between_requests_that_may_share_them() {
    let (one, other) = (Authority::new(), Authority::new());
    let server = TlsServer::start(one.server(&["api.test", "other.test", "127.0.0.1"], ALPN)).await;
    let client = builder(trusting(&one)).build().unwrap();
    for (round, host) in ["api.test", "other.test", "127.0.0.1", "api.test", "other.test"].iter().enumerate() {
        get(&client, host, server.address()).await.unwrap();
        assert_eq!(server.accepted(), (round + 1).min(3), "a connection a host, though they are one server");
    }
    // Whoever trusts somebody else, pins a key, asks for another name or shows another certificate is another client, and
    // clients share no connections.
    get(&client.clone(), "api.test", server.address()).await.unwrap();
    assert_eq!(server.accepted(), 3, "a clone is the same client");
    assert!(get(&builder(trusting(&other)).build().unwrap(), "api.test", server.address()).await.is_err());
    let pinned = builder(trusting(&one).pin_spki_sha256([7; 32])).build().unwrap();
    assert!(get(&pinned, "api.test", server.address()).await.is_err());
    let named = builder(trusting(&one).server_name("unknown.test").unwrap()).build().unwrap();
    assert!(get(&named, "api.test", server.address()).await.is_err());
    assert_eq!((server.accepted(), server.shaken()), (6, 3));
}

/// Accepts, reads the request, and does with the stream whatever `end` does.
async fn ends<F>(
    config: Arc<ServerConfig>,
    end: fn(tokio_rustls::server::TlsStream<tokio::net::TcpStream>) -> F,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(config);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            stream.read_buf(&mut Vec::new()).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf a bo").await.unwrap();
            stream.flush().await.unwrap();
            end(stream).await;
        }
    });
    address
}

#[tokio::test]
async fn hazard_a_body_without_length_ends_with_close_notify_and_not_without() {
    let authority = Authority::new();
    let config = authority.server(&["api.test"], &["http/1.1"]);
    let client = builder(trusting(&authority)).build().unwrap();
    let properly = ends(config.clone(), |mut stream| async move { stream.shutdown().await.unwrap() }).await;
    assert_eq!(get(&client, "api.test", properly).await.unwrap().0, "half a bo");
    // Only the socket is closed: whoever cut the connection may have cut the body.
    let cut = ends(config, |stream| async move { drop(stream.into_inner().0) }).await;
    let error = get(&client, "api.test", cut).await.unwrap_err();
    assert!(error.is_body(), "{error}");
}

#[tokio::test]
async fn hazard_no_protocol_in_common_and_an_intermediate_that_is_missing() {
    let authority = Authority::new();
    let said = refused(trusting(&authority), "api.test", authority.server(&["api.test"], &["spdy/3"])).await;
    assert_eq!(said, "no protocol (ALPN) in common");

    let intermediate = authority.intermediate();
    let (certificate, key) = intermediate.sign(params(&["api.test"]));
    let whole = config_with(vec![certificate.clone(), intermediate.certificate()], key.clone_key());
    let server = TlsServer::start(whole).await;
    let client = builder(trusting(&authority)).build().unwrap();
    let (_, timings) = get(&client, "api.test", server.address()).await.unwrap();
    assert_eq!(timings.tls_facts().unwrap().peer_certificates.len(), 2);
    let said = refused(trusting(&authority), "api.test", config_with(vec![certificate], key)).await;
    assert!(said.contains("authority that is not trusted"), "{said}");
}

/// openssl's test server with these arguments; `None`, said loudly, where it is not installed.
struct OpenSsl(std::process::Child, std::path::PathBuf, u16);

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

impl OpenSsl {
    async fn start(authority: &Authority, arguments: &[&str]) -> Option<Self> {
        let port = support::free_port();
        let folder = std::env::temp_dir().join(format!("speeddial-openssl-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (certificate, key) = authority.sign(params(&["api.test"]));
        std::fs::write(folder.join("certificate"), &*certificate).unwrap();
        std::fs::write(folder.join("key"), key.secret_der()).unwrap();
        let mut command = std::process::Command::new("openssl");
        command.args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}")]);
        command.args(["-certform", "DER", "-keyform", "DER"]).args(arguments);
        command.arg("-cert").arg(folder.join("certificate")).arg("-key").arg(folder.join("key"));
        let null = std::process::Stdio::null;
        let Ok(child) = command.stdin(null()).stdout(null()).stderr(null()).spawn() else {
            eprintln!("SKIPPED: openssl is not installed (Debian: openssl)");
            std::fs::remove_dir_all(&folder).unwrap();
            return None;
        };
        let mut server = Self(child, folder, port);
        let deadline = Instant::now() + Duration::from_secs(20);
        while tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            assert!(Instant::now() < deadline && server.0.try_wait().unwrap().is_none(), "openssl does not listen");
            tokio::task::yield_now().await;
        }
        Some(server)
    }
}

#[tokio::test]
async fn hazard_a_server_that_offers_tls_1_0_and_1_1_alone() {
    let authority = Authority::new();
    for (version, works) in [("-tls1_2", true), ("-tls1_1", false), ("-tls1", false)] {
        let arguments = [version, "-cipher", "ALL:@SECLEVEL=0"];
        let Some(server) = OpenSsl::start(&authority, &arguments).await else { return };
        let client = builder(trusting(&authority)).build().unwrap();
        let outcome = get(&client, "api.test", (Ipv4Addr::LOCALHOST, server.2).into()).await;
        match outcome {
            Ok((_, timings)) => {
                assert!(works, "{version}");
                assert_eq!(timings.tls_facts().unwrap().version, "TLSv1_2");
            }
            Err(error) => {
                assert!(!works && error.is_tls(), "{version}: {error}");
                assert!(error.to_string().contains("no version or cipher of TLS in common"), "{version}: {error}");
            }
        }
        let only13 = builder(trusting(&authority).min_version(TlsVersion::Tls13)).build().unwrap();
        assert!(get(&only13, "api.test", (Ipv4Addr::LOCALHOST, server.2).into()).await.unwrap_err().is_tls());
    }
}

#[tokio::test]
async fn the_connect_timeout_names_the_handshake_where_that_ate_it() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = builder(TlsConfig::new()).connect_timeout(Duration::from_millis(200)).build().unwrap();
    let error = get(&client, "api.test", silent.local_addr().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Tls), "{error}");
    assert!(error.is_tls() && error.is_timeout());
}

#[tokio::test]
async fn a_handshake_that_fails_leaves_the_other_addresses_their_turn() {
    let authority = Authority::new();
    let good = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let port = good.address().port();
    let bad = TlsServer::at([127, 0, 0, 2].into(), port, Authority::new().server(&["api.test"], ALPN)).await;
    let resolver = FixedResolver::new().with("api.test", [[127, 0, 0, 2].into(), [127, 0, 0, 1].into()]);
    let client = Client::builder().resolver(resolver).tls(trusting(&authority)).build().unwrap();
    let start = Instant::now();
    let (_, timings) = get(&client, "api.test", good.address()).await.unwrap();
    assert_eq!(timings.remote_addr(), Some(good.address()));
    assert_eq!((bad.accepted(), timings.attempts().len()), (1, 2));
    assert!(matches!(timings.attempts()[0].outcome, AttemptOutcome::Failed(_)));
    assert!(start.elapsed() < Duration::from_secs(4));
}

/// A network in memory, 10 ms away, in which 192.0.2.1 accepts and says nothing, and every other address is an HTTPS server.
struct Stalling(tokio_rustls::TlsAcceptor);

impl Transport for Stalling {
    fn connect(&self, address: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let (near, far) = tokio::io::duplex(64 * 1024);
            let acceptor = self.0.clone();
            tokio::spawn(async move {
                if address.ip() == v4(1) {
                    std::future::pending::<()>().await;
                }
                answer_over_tls(acceptor, far).await;
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

/// Answers requests with "ok" until the client closes.
async fn answer_over_tls(acceptor: tokio_rustls::TlsAcceptor, stream: tokio::io::DuplexStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    while stream.read_buf(&mut Vec::new()).await.is_ok_and(|read| read > 0) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_stalls_leaves_the_other_addresses_their_part_of_a_short_connect_timeout() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let resolver = FixedResolver::new().with("api.test", [v4(1), v4(2)]);
    let builder = Client::builder().resolver(resolver).transport(Stalling(acceptor)).tls(trusting(&authority));
    let builder = builder.connect_timeout(Duration::from_millis(200)).pool(PoolConfig::new().max_idle(0));
    let client = builder.build().unwrap();
    // 10 ms to connect, half of the 190 ms that are left, and 10 ms to connect to the other one; from then on that one comes first.
    for took in [115, 10, 10] {
        let start = tokio::time::Instant::now();
        let (text, _) = get(&client, "api.test", (v4(2), 443).into()).await.unwrap();
        assert_eq!((text.as_str(), start.elapsed().as_millis()), ("ok", took));
    }
}

#[tokio::test]
async fn without_tls_http2_needs_prior_knowledge() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let serving = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            let service = hyper::service::service_fn(support::tls_server::answer);
            tokio::spawn(serving.serve_connection(hyper_util::rt::TokioIo::new(socket), service));
        }
    });
    let client = builder(TlsConfig::new()).http2_prior_knowledge().build().unwrap();
    for _ in 0..3 {
        let url = format!("http://api.test:{}/x", address.port());
        let response = client.post(&url).header("connection", "close").body("hello").send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), format!("HTTP/2.0 POST {url} none"));
    }
    assert_eq!(client.pool_stats().opened, 1);
    let (_kept, nobody) = refusing();
    assert!(client.get(format!("http://{nobody}/")).send().await.unwrap_err().is_connect());
}

#[tokio::test]
async fn a_policy_repeats_handshakes_that_broke_and_none_that_were_refused() {
    let authority = Authority::new();
    let policy = || RetryPolicy::new().attempts(3).backoff(Duration::from_millis(1), Duration::from_millis(1));
    for stalls in [false, true] {
        let peer =
            Peer::start(move |_, mut socket| while stalls && socket.read(&mut [0; 1024]).is_ok_and(|n| n > 0) {});
        let builder = builder(trusting(&authority)).tls_timeout(Duration::from_millis(100)).retry(policy());
        let error = builder.build().unwrap().get(peer.url().replace("http:", "https:")).send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        assert_eq!(peer.connections(), 3, "stalls: {stalls}");
    }
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let client = builder(TlsConfig::new().only_added_roots()).retry(policy()).build().unwrap();
    assert_eq!(get(&client, "api.test", server.address()).await.unwrap_err().kind(), ErrorKind::Tls);
    assert_eq!(server.accepted(), 1);
}

/// Set in the process of its own in which the test below runs.
#[cfg(target_os = "linux")]
const LATE_ROOTS: &str = "SPEEDDIAL_TEST_LATE_ROOTS";

#[cfg(target_os = "linux")]
#[tokio::test]
async fn roots_that_could_not_be_loaded_are_loaded_for_a_later_handshake() {
    let Some(file) = std::env::var_os(LATE_ROOTS) else {
        let folder = std::env::temp_dir().join(format!("speeddial-roots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("late.pem");
        let test = "tls::roots_that_could_not_be_loaded_are_loaded_for_a_later_handshake";
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        child.args([test, "--exact"]).env(LATE_ROOTS, &file).env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR");
        let output = child.output().await.unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    };
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let other = TlsConfig::new().add_root_der(Authority::new().certificate().to_vec());
    for (tls, words) in [(TlsConfig::new(), "No CA certificates"), (other, "authority that is not trusted")] {
        let client = builder(tls).pool(PoolConfig::new().max_idle(0)).build().unwrap();
        for _ in 0..2 {
            let error = get(&client, "api.test", server.address()).await.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        std::fs::write(&file, authority.pem()).unwrap();
        get(&client, "api.test", server.address()).await.unwrap();
        std::fs::remove_file(&file).unwrap();
        let kept = get(&client, "api.test", server.address()).await;
        kept.unwrap_or_else(|error| panic!("the roots that were read are kept: {error}"));
    }
}

#[tokio::test]
async fn hazard_an_answer_before_the_request_is_over_is_never_lost_over_tls() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0_usize.. {
            let Ok((socket, _)) = listener.accept().await else { return };
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let mut head = Vec::new();
            while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 413 No\r\ncontent-length: 2\r\n\r\nno").await;
            let _ = stream.flush().await;
            if number % 2 == 0 {
                // With a word of it (close_notify), and without.
                let _ = stream.shutdown().await;
            }
        }
    });
    let client = builder(trusting(&authority)).build().unwrap();
    for round in 0..200 {
        let request = client.put(format!("https://api.test:{}/", address.port())).body(vec![0; 2 << 20]);
        let response = request.send().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let status = response.status().as_u16();
        let text = response.text().await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!((status, text.as_str()), (413, "no"), "round {round}");
    }
}

/// A network in memory whose HTTPS servers take 3 s before they begin a handshake.
struct Overloaded(tokio_rustls::TlsAcceptor);

impl Transport for Overloaded {
    fn connect(&self, _: SocketAddr) -> Connecting<'_> {
        Box::pin(async move {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let acceptor = self.0.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                answer_over_tls(acceptor, far).await;
            });
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_may_take_its_time_though_there_are_many_addresses() {
    let authority = Authority::new();
    let acceptor = tokio_rustls::TlsAcceptor::from(authority.server(&["api.test"], &["http/1.1"]));
    let resolver = FixedResolver::new().with("api.test", [v4(1), v4(2), v4(3), v4(4)]);
    let builder = Client::builder().resolver(resolver).transport(Overloaded(acceptor)).tls(trusting(&authority));
    let start = tokio::time::Instant::now();
    let (text, _) = get(&builder.build().unwrap(), "api.test", (v4(1), 443).into()).await.unwrap();
    assert_eq!((text.as_str(), start.elapsed().as_secs()), ("ok", 3));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_slow_answer_alone_on_its_connection_does_not_cost_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let serving = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
            let service = hyper::service::service_fn(|request: hyper::Request<hyper::body::Incoming>| async move {
                if request.uri().path() == "/slow" {
                    std::future::pending::<()>().await;
                }
                support::tls_server::answer(request).await
            });
            tokio::spawn(serving.serve_connection(hyper_util::rt::TokioIo::new(socket), service));
        }
    });
    let client = builder(TlsConfig::new()).http2_prior_knowledge().build().unwrap();
    for _ in 0..3 {
        let slow = client.get(format!("http://api.test:{}/slow", address.port()));
        assert!(slow.timeout(Duration::from_millis(200)).send().await.unwrap_err().is_timeout());
    }
    client.get(format!("http://api.test:{}/", address.port())).send().await.unwrap();
    assert_eq!(client.pool_stats().opened, 1);
}

/// A random generator that tells which thread uses it, and then waits until its gate is open.
#[derive(Debug)]
struct Gated {
    used: mpsc::Sender<ThreadId>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl SecureRandom for Gated {
    fn fill(&self, buf: &mut [u8]) -> Result<(), GetRandomFailed> {
        let _ = self.used.send(thread::current().id());
        // It fails once the gate is open for good.
        let _ = self.gate.lock().unwrap().recv();
        provider().secure_random.fill(buf)
    }
}

/// A configuration with a random generator of its own, the threads that used it, and its gate: dropped, it is open.
fn gated() -> (TlsConfig, mpsc::Receiver<ThreadId>, mpsc::Sender<()>) {
    let ((used, uses), (open, gate)) = (mpsc::channel(), mpsc::channel());
    let random: &'static Gated = Box::leak(Box::new(Gated { used, gate: Mutex::new(gate) }));
    let provider = CryptoProvider { secure_random: random, ..CryptoProvider::clone(&provider()) };
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    (config.into(), uses, open)
}

/// The longest that is waited for what other tests' clients may be in front of.
const PREPARED: Duration = Duration::from_secs(30);

#[test]
fn tls_is_prepared_when_the_client_is_built_which_does_not_wait_for_it() {
    let (tls, uses, open) = gated();
    // The gate is closed: a client that waited for its random generator would never be built.
    let client = builder(tls).build().unwrap();
    let prepared_by = uses.recv_timeout(PREPARED).expect("prepared without a request");
    assert_ne!(prepared_by, thread::current().id());
    drop((open, client));
}

#[test]
fn tls_is_not_prepared_for_a_client_that_is_gone_or_does_not_want_it() {
    let [(first, first_uses, first_gate), (gone, gone_uses, _), (late, late_uses, _), (last, last_uses, _)] =
        [(); 4].map(|()| gated());
    let first = builder(first).build().unwrap();
    first_uses.recv_timeout(PREPARED).expect("prepared without a request");
    // Clients are prepared in turn, and this one's gate is closed.
    drop(builder(gone).build().unwrap());
    let late = builder(late.prepare_in_background(false)).build().unwrap();
    let last = builder(last).build().unwrap();
    assert!(last_uses.try_recv().is_err(), "it is prepared after the first one");
    drop(first_gate);
    last_uses.recv_timeout(PREPARED).expect("prepared after the first one");
    assert!(gone_uses.try_recv().is_err() && late_uses.try_recv().is_err());
    drop((first, late, last));
}
