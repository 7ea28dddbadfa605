//! Server certificates: which are accepted, and the error for each that is refused.

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use speeddial::PoolConfig;
use speeddial::tls::{Certificate, TlsConfig};

use super::common::{ALPN, builder, config_with, get, params, refused, server, spki_sha256, trusting};
use support::certs::Authority;
use support::tls_server::TlsServer;

#[tokio::test]
async fn hazard_each_invalid_certificate_is_refused_with_its_reason() {
    let authority = Authority::new();
    let stranger = Authority::new();
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
        let reason = refused(trusting(&authority), host, config).await;
        assert!(reason.contains("certificate") && reason.contains(words), "{case}: {reason}");
    }
}

#[tokio::test]
async fn valid_certificates_are_accepted() {
    let authority = Authority::new();
    let cases = [
        ("its name", "api.test", params(&["api.test"])),
        ("one of its names", "api.test", params(&["other.test", "api.test"])),
        ("a wildcard", "sub.api.test", params(&["*.api.test"])),
        ("an address", "127.0.0.1", params(&["127.0.0.1"])),
        ("other letters", "API.test", params(&["Api.Test"])),
        ("a dot at the end of the host", "api.test.", params(&["api.test"])),
    ];
    for (case, host, params) in cases {
        let server = TlsServer::start(server(&authority, params)).await;
        let client = builder(trusting(&authority)).build().unwrap();
        let outcome = get(&client, host, server.address()).await;
        assert!(outcome.is_ok(), "{case}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_server_can_be_pinned_by_its_public_key() {
    let authority = Authority::new();
    let key = KeyPair::generate().unwrap();
    let pin = spki_sha256(&key);
    let (certificate, key) = authority.sign_with(params(&["api.test"]), key);
    let config = config_with(vec![certificate], key);
    let server = TlsServer::start(config.clone()).await;
    let pinned = trusting(&authority).pin_spki_sha256([7; 32]).pin_spki_sha256(pin);
    assert!(get(&builder(pinned).build().unwrap(), "api.test", server.address()).await.is_ok());
    let reason = refused(trusting(&authority).pin_spki_sha256([7; 32]), "api.test", config).await;
    assert_eq!(reason, "the certificate is refused: its public key is none of those pinned");
}

#[tokio::test]
async fn the_server_name_can_differ_from_the_host() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["inner.test"], ALPN)).await;
    let tls = trusting(&authority).server_name("inner.test").unwrap();
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());
    assert!(TlsConfig::new().server_name("not a name").is_err());
}

#[tokio::test]
async fn an_invalid_certificate_is_accepted_only_on_request_and_the_trace_shows_it() {
    let stranger = Authority::new();
    let server = TlsServer::start(stranger.server(&["nobody.test"], ALPN)).await;
    let client = builder(TlsConfig::new().danger_accept_invalid_certs(true)).build().unwrap();
    let (_, timings) = get(&client, "api.test", server.address()).await.unwrap();
    assert!(!timings.tls_facts().unwrap().verified);
    let platform = builder(TlsConfig::new()).build().unwrap();
    assert!(get(&platform, "api.test", server.address()).await.unwrap_err().is_tls());
    let platform_and_one = builder(TlsConfig::new().add_roots([stranger.root()])).build().unwrap();
    let server = TlsServer::start(stranger.server(&["api.test"], ALPN)).await;
    assert!(get(&platform_and_one, "api.test", server.address()).await.is_ok());
}

#[cfg(feature = "webpki-roots")]
#[tokio::test]
async fn compiled_in_roots_do_not_trust_the_tests_authority_until_it_is_added() {
    let authority = Authority::new();
    let reason = refused(TlsConfig::new().webpki_roots(), "api.test", authority.server(&["api.test"], ALPN)).await;
    assert!(reason.contains("authority that is not trusted"), "{reason}");
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let tls = TlsConfig::new().webpki_roots().add_roots([authority.root()]);
    assert!(get(&builder(tls).build().unwrap(), "api.test", server.address()).await.is_ok());
}

#[tokio::test]
async fn hazard_connections_are_shared_only_for_one_host_and_one_client() {
    let one = Authority::new();
    let other = Authority::new();
    let server = TlsServer::start(one.server(&["api.test", "other.test", "127.0.0.1"], ALPN)).await;
    let client = builder(trusting(&one)).build().unwrap();
    for (round, host) in ["api.test", "other.test", "127.0.0.1", "api.test", "other.test"].iter().enumerate() {
        get(&client, host, server.address()).await.unwrap();
        assert_eq!(server.accepted(), (round + 1).min(3), "one connection per host, even to the same server");
    }
    // Different trust, pins or server names make different clients, and clients share no connections.
    get(&client.clone(), "api.test", server.address()).await.unwrap();
    assert_eq!(server.accepted(), 3, "a clone is the same client");
    assert!(get(&builder(trusting(&other)).build().unwrap(), "api.test", server.address()).await.is_err());
    let pinned = builder(trusting(&one).pin_spki_sha256([7; 32])).build().unwrap();
    assert!(get(&pinned, "api.test", server.address()).await.is_err());
    let named = builder(trusting(&one).server_name("unknown.test").unwrap()).build().unwrap();
    assert!(get(&named, "api.test", server.address()).await.is_err());
    assert_eq!((server.accepted(), server.handshakes()), (6, 3));
}

#[tokio::test]
async fn hazard_a_missing_protocol_or_intermediate_is_refused_with_its_reason() {
    let authority = Authority::new();
    let reason = refused(trusting(&authority), "api.test", authority.server(&["api.test"], &["spdy/3"])).await;
    assert_eq!(reason, "no protocol (ALPN) in common: received fatal alert: NoApplicationProtocol");

    let intermediate = authority.intermediate();
    let (certificate, key) = intermediate.sign(params(&["api.test"]));
    let whole = config_with(vec![certificate.clone(), intermediate.certificate()], key.clone_key());
    let server = TlsServer::start(whole).await;
    let client = builder(trusting(&authority)).build().unwrap();
    let (_, timings) = get(&client, "api.test", server.address()).await.unwrap();
    assert_eq!(timings.tls_facts().unwrap().peer_certificates.len(), 2);
    let reason = refused(trusting(&authority), "api.test", config_with(vec![certificate], key)).await;
    assert!(reason.contains("authority that is not trusted"), "{reason}");
}

/// The variable that tells the test below that it runs in its own process. Its value is the file of the roots.
#[cfg(target_os = "linux")]
const LATE_ROOTS: &str = "SPEEDDIAL_TEST_LATE_ROOTS";

#[cfg(target_os = "linux")]
#[tokio::test]
async fn roots_that_could_not_be_loaded_are_loaded_for_a_later_handshake() {
    let Some(file) = std::env::var_os(LATE_ROOTS) else {
        let folder = std::env::temp_dir().join(format!("speeddial-roots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("late.pem");
        let test =
            support::test_path(module_path!(), "roots_that_could_not_be_loaded_are_loaded_for_a_later_handshake");
        let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
        child.args([&*test, "--exact"]).env(LATE_ROOTS, &file).env("SSL_CERT_FILE", &file).env_remove("SSL_CERT_DIR");
        let output = child.output().await.unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let output_text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
        return;
    };
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&["api.test"], ALPN)).await;
    let other = TlsConfig::new().add_roots([Authority::new().root()]);
    let none = "unexpected error: No CA certificates were loaded from the system";
    for (tls, words) in [(TlsConfig::new(), none), (other, "authority that is not trusted")] {
        let client = builder(tls).pool(PoolConfig::new().max_idle(0)).build().unwrap();
        for _ in 0..2 {
            let error = get(&client, "api.test", server.address()).await.unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
        std::fs::write(&file, authority.pem()).unwrap();
        get(&client, "api.test", server.address()).await.unwrap();
        std::fs::remove_file(&file).unwrap();
        let kept = get(&client, "api.test", server.address()).await;
        kept.unwrap_or_else(|error| panic!("roots that were loaded once are kept: {error}"));
    }
}

#[tokio::test]
async fn a_certificate_for_an_authority_is_a_servers_own_only_if_it_was_added_itself() {
    use rcgen::{BasicConstraints, IsCa};
    use rustls::pki_types::PrivateKeyDer;

    let authority = Authority::new();
    let mut for_authority = params(&["api.test"]);
    for_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let make = |params: CertificateParams| {
        let key = KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().clone();
        (der.clone(), config_with(vec![der], PrivateKeyDer::Pkcs8(key.serialize_der().into())))
    };
    let (der, config) = make(for_authority.clone());
    let added = |der: &[u8]| TlsConfig::new().add_roots([Certificate::from_der(der).unwrap()]);
    let own = TlsServer::start(config.clone()).await;
    for tls in [added(&der), added(&der).only_added_roots()] {
        let outcome = get(&builder(tls).build().unwrap(), "api.test", own.address()).await;
        assert!(outcome.is_ok_and(|(_, timings)| timings.tls_facts().unwrap().verified));
    }
    let reason = refused(added(&der).only_added_roots(), "other.test", config.clone()).await;
    assert!(reason.contains("not valid for name"), "{reason}");
    let words = "the certificate is one for an authority (CA:TRUE), which is accepted only if";
    let reason = refused(trusting(&authority), "api.test", config).await;
    assert!(reason.starts_with(words), "{reason}");
    let reason = refused(trusting(&authority), "api.test", server(&authority, for_authority.clone())).await;
    assert!(reason.starts_with(words), "{reason}");
    let day = |year| rcgen::date_time_ymd(year, 1, 1);
    (for_authority.not_before, for_authority.not_after) = (day(2000), day(2001));
    let (der, expired) = make(for_authority);
    let reason = refused(added(&der).only_added_roots(), "api.test", expired).await;
    assert!(reason.contains("expired"), "{reason}");
}
