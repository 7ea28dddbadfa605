//! Handshakes that succeed: versions, protocols (ALPN), the server name, and resumed sessions.

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ServerConfig;
use speeddial::dns::FixedResolver;
use speeddial::http::Version;
use speeddial::tls::{TlsConfig, Version as TlsVersion};
use speeddial::trace::Phase;
use speeddial::{Client, PoolConfig};
use tokio_rustls::TlsAcceptor;

use super::common::{ALPN, builder, get, params, trusting};
use support::certs::{Authority, provider};
use support::one_connection;
use support::scripted_net::ScriptedNet;
use support::tls_server::{self, TlsServer};

#[tokio::test]
async fn alpn_chooses_the_http_version_and_the_trace_shows_the_handshake() {
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

/// The time that a server in memory takes for an answer.
const THINK: Duration = Duration::from_millis(20);

#[tokio::test(start_paused = true)]
async fn cold_requests_wait_for_the_first_connection_to_learn_its_protocol() {
    let authority = Authority::new();
    for (alpn, connections) in [(ALPN, 1..=1), (&ALPN[1..], 2..=50)] {
        let acceptor = TlsAcceptor::from(authority.server(&["api.test"], alpn));
        let net = ScriptedNet::new(move |_, stream| {
            let acceptor = acceptor.clone();
            async move { tls_server::serve(stream, acceptor, THINK, &AtomicUsize::new(0)).await }
        });
        let client = builder(trusting(&authority)).transport(net.clone()).pool(PoolConfig::new()).build().unwrap();
        let address = (Ipv4Addr::LOCALHOST, 443).into();
        let gets = futures_util::future::join_all((0..50).map(|_| get(&client, "api.test", address)));
        assert!(gets.await.iter().all(Result::is_ok));
        assert!(connections.contains(&net.connections()), "{} connections", net.connections());
    }
}

#[tokio::test]
async fn the_second_connection_resumes_the_session() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let pool = || one_connection().max_idle(0);
    for (tls, resumed) in [(trusting(&authority), true), (trusting(&authority).session_cache(0), false)] {
        let client = builder(tls).pool(pool()).build().unwrap();
        let (_, first) = get(&client, "api.test", server.address()).await.unwrap();
        let (_, second) = get(&client, "api.test", server.address()).await.unwrap();
        let facts = [first, second].map(|timings| timings.tls_facts().map(|facts| facts.resumed));
        assert_eq!(facts, [Some(false), Some(resumed)]);
    }
    assert_eq!(server.handshakes(), 4);
}

#[tokio::test]
async fn versions_of_http_and_tls_can_be_chosen() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let client = builder(trusting(&authority)).http1_only().build().unwrap();
    assert!(get(&client, "api.test", server.address()).await.unwrap().0.starts_with("HTTP/1.1"));
    let only13 = builder(trusting(&authority).min_version(TlsVersion::TLS_1_3)).build().unwrap();
    assert!(get(&only13, "api.test", server.address()).await.is_ok());
    let response = only13.get(format!("https://api.test:{}/", server.address().port())).send().await.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
}

#[tokio::test]
async fn the_http_version_settings_decide_the_offered_protocols_and_conflicts_are_refused() {
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

/// A certificate resolver that records the server name and the protocols of each handshake.
#[derive(Debug)]
struct HelloRecorder {
    key: Arc<rustls::sign::CertifiedKey>,
    hellos: Mutex<Vec<(Option<String>, Vec<String>)>>,
}

impl rustls::server::ResolvesServerCert for HelloRecorder {
    fn resolve(&self, hello: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        let offered = hello.alpn().into_iter().flatten().map(|protocol| String::from_utf8_lossy(protocol).into_owned());
        self.hellos.lock().unwrap().push((hello.server_name().map(str::to_owned), offered.collect()));
        Some(self.key.clone())
    }
}

#[tokio::test]
async fn the_server_name_and_the_protocols_that_are_set_are_sent() {
    let authority = Authority::new();
    let (certificate, key) = authority.sign(params(&["inner.test", "api.test"]));
    let key = rustls::sign::CertifiedKey::from_der(vec![certificate], key, &provider()).unwrap();
    let seen = Arc::new(HelloRecorder { key: Arc::new(key), hellos: Mutex::default() });
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_cert_resolver(seen.clone());
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let server = TlsServer::start(Arc::new(config)).await;
    // This client trusts the authority by its PEM.
    let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
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
async fn settings_that_a_rustls_configuration_would_override_are_refused() {
    let whole = || TlsConfig::from(rustls_config());
    let pinned = whole().pin_spki_sha256([0; 32]);
    let anyone = whole().danger_accept_invalid_certs(true);
    for tls in
        [pinned, anyone, whole().session_cache(1), whole().min_version(TlsVersion::TLS_1_3), whole().alpn(["h2"])]
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
async fn the_session_cache_resumes_as_many_hosts_as_its_size() {
    let authority = Authority::new();
    let hosts = ["one.test", "two.test", "three.test"];
    let server = TlsServer::start(authority.server(&hosts, ALPN)).await;
    let names = hosts.iter().fold(FixedResolver::new(), |names, host| names.with(host, [Ipv4Addr::LOCALHOST.into()]));
    for (cache, resumed) in [(3, 3), (2, 0)] {
        let tls = trusting(&authority).session_cache(cache);
        let pool = PoolConfig::new().max_requests_per_connection(1);
        let client = Client::builder().tls(tls).dns_resolver(names.clone()).pool(pool).build().unwrap();
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
