//! Encrypted hellos (ECH, RFC 9849) by the keys of records. The server that reads them is one in Go; rustls's does not.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{CertificateParams, KeyPair};
use speeddial::dns::HttpsRecord;
use speeddial::tls::{TlsConfig, Version};
use speeddial::trace::Event;
use speeddial::{Client, ClientBuilder, ErrorKind};

use super::common::Names;
use support::certs::Authority;
use support::recorder::Recorder;
use support::tls_server::TlsServer;

const NAMES: [&str; 2] = ["secret.test", "public.test"];

/// A list of keys for public.test that no server has: X25519, HKDF-SHA256, AES-128-GCM.
fn keys() -> Vec<u8> {
    let mut contents = vec![7, 0, 0x20, 0, 32];
    contents.extend([9; 32]);
    contents.extend([0, 4, 0, 1, 0, 1, 32, 11]);
    contents.extend(b"public.test");
    contents.extend([0, 0]);
    let config = [&[0xfe, 0x0d, 0, contents.len() as u8][..], &contents].concat();
    [&[0, config.len() as u8][..], &config].concat()
}

fn record(keys: &[u8]) -> HttpsRecord {
    HttpsRecord::service(1, "secret.test").with_ech(keys)
}

/// A client that finds this record for an origin on 127.0.0.1.
struct World {
    client: Client,
    recorder: Recorder,
    url: String,
}

impl World {
    fn new(authority: &Authority, port: u16, record: HttpsRecord) -> Self {
        Self::with(authority, port, record, |builder| builder.encrypted_client_hello(true))
    }

    fn with(
        authority: &Authority,
        port: u16,
        record: HttpsRecord,
        settings: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        let names = Names::new().host("secret.test", 0, &[[127, 0, 0, 1].into()]);
        let names = names.records(&format!("_{port}._https.secret.test"), 0, &[record]);
        let tls = TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
        let recorder = Recorder::default();
        let builder = Client::builder().no_proxy().dns_resolver(names).tls(tls).http1_only().observer(recorder.clone());
        let client = settings(builder.https_records(true)).build().unwrap();
        Self { client, recorder, url: format!("https://secret.test:{port}/") }
    }

    /// Gets the URL. Returns the body, and true if the hello was encrypted.
    async fn get(&self) -> Result<(String, bool), speeddial::Error> {
        let response = self.client.get(&self.url).send().await?;
        let encrypted = response.tls().is_some_and(|tls| tls.encrypted_hello);
        Ok((response.text().await?, encrypted))
    }

    fn attempts(&self) -> usize {
        self.recorder.count(|event| matches!(event, Event::AttemptStart { .. }))
    }
}

#[tokio::test]
async fn a_server_that_does_not_use_encrypted_hellos_is_asked_without_one() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&NAMES, &["http/1.1"])).await;
    let world = World::new(&authority, server.address().port(), record(&keys()));
    assert!(!world.get().await.unwrap().1);
    assert_eq!((server.accepted(), world.attempts()), (2, 2), "rejected once, then without");
    assert_eq!(world.recorder.count(|event| matches!(event, Event::TlsFailed { .. })), 1);
    let off = World::with(&authority, server.address().port(), record(&keys()), |builder| builder);
    assert!(!off.get().await.unwrap().1);
    assert_eq!((server.accepted(), off.attempts()), (3, 1), "without the setting the keys are not used");
    let unusable = World::new(&authority, server.address().port(), record(&[1, 2, 3]));
    assert!(!unusable.get().await.unwrap().1);
    assert_eq!(server.accepted(), 4, "keys that cannot be used are none");
}

#[tokio::test]
async fn an_impostor_cannot_turn_encryption_off() {
    let authority = Authority::new();
    // Its certificate is not for the public name, so its rejection proves nothing.
    let server = TlsServer::start(authority.server(&NAMES[..1], &["http/1.1"])).await;
    let world = World::new(&authority, server.address().port(), record(&keys()));
    assert_eq!(world.get().await.unwrap_err().kind(), ErrorKind::Tls);
    assert_eq!((server.handshakes(), world.attempts()), (0, 1), "nothing without encryption");
}

#[tokio::test]
async fn where_all_records_have_keys_nothing_is_dialled_without_them() {
    let authority = Authority::new();
    let server = TlsServer::start(authority.server(&NAMES, &["http/1.1"])).await;
    let (_kept, dead) = support::refusing();
    let port = server.address().port();
    let without_keys = HttpsRecord::service(1, "secret.test").with_port(dead.port());
    let open = World::new(&authority, port, without_keys.clone());
    assert!(open.get().await.is_ok(), "a record without keys falls back to the origin");
    let hidden = World::new(&authority, port, without_keys.with_ech(keys()));
    assert_eq!(hidden.get().await.unwrap_err().kind(), ErrorKind::Connect);
    assert_eq!(server.accepted(), 1);
}

#[test]
fn settings_that_cannot_encrypt_a_hello_are_refused() {
    let refused = |builder: ClientBuilder| builder.build().unwrap_err().to_string();
    let builder = || Client::builder().encrypted_client_hello(true);
    assert!(refused(builder()).contains("without https_records"));
    let error = refused(builder().https_records(true).tls(TlsConfig::new().max_version(Version::TLS_1_2)));
    assert!(error.contains("needs TLS 1.3"), "{error}");
    let error = refused(builder().https_records(true).tls(Authority::new().client()));
    assert!(error.contains("beside a whole rustls configuration"), "{error}");
}

/// The server in Go.
struct GoServer {
    child: Child,
    folder: PathBuf,
    port: u16,
    /// The keys that the server takes, and others.
    keys: [Vec<u8>; 2],
}

impl GoServer {
    /// Builds and starts the server. Returns `None` and prints that the test is skipped if Go is not installed.
    fn start(authority: &Authority) -> Option<Self> {
        let go = ["go", "/usr/local/go/bin/go"].into_iter().find(|go| Command::new(go).arg("version").output().is_ok());
        let Some(go) = go else {
            eprintln!("SKIPPED: go is not installed (Debian: golang-go)");
            return None;
        };
        let folder = std::env::temp_dir().join(format!("speeddial-ech-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(NAMES.map(str::to_owned)).unwrap();
        std::fs::write(folder.join("certificate.pem"), authority.sign_pem(params, &key)).unwrap();
        std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("connect/https_records/ech_server.go");
        let program = folder.join("server");
        let mut build = Command::new(go);
        build.arg("build").arg("-o").arg(&program).arg(source).env("GOTOOLCHAIN", "local");
        let built = build.output().unwrap();
        let said = String::from_utf8_lossy(&built.stderr).into_owned();
        if said.contains("EncryptedClientHelloKeys") {
            eprintln!("SKIPPED: go is older than 1.24, which reads encrypted hellos");
            return None;
        }
        assert!(built.status.success(), "{said}");
        let mut command = Command::new(program);
        command.arg(folder.join("certificate.pem")).arg(folder.join("key.pem"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let keys = [words[1], words[2]].map(bytes_of);
        Some(Self { child, folder, port: words[0].parse().unwrap(), keys })
    }
}

fn bytes_of(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

impl Drop for GoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn the_name_is_hidden_from_the_network_also_after_other_keys_were_sent() {
    let authority = Authority::new();
    let Some(server) = GoServer::start(&authority) else { return };
    let hidden = "name secret.test, encrypted true, shown false";
    let [own, other] = &server.keys;
    let world = World::new(&authority, server.port, record(own));
    for _ in 0..2 {
        assert_eq!(world.get().await.unwrap(), (hidden.to_owned(), true), "also with a resumed session");
    }
    assert_eq!(world.attempts(), 2);
    let late = World::new(&authority, server.port, record(other));
    assert_eq!(late.get().await.unwrap(), (hidden.to_owned(), true), "with the keys that the server has sent");
    assert_eq!(late.attempts(), 2);
    let off = World::with(&authority, server.port, record(own), |builder| builder);
    assert_eq!(off.get().await.unwrap(), ("name secret.test, encrypted false, shown true".to_owned(), false));
}

#[tokio::test]
async fn a_server_that_rejects_the_keys_is_asked_again_also_if_its_key_is_pinned() {
    use rustls::server::ResolvesServerCertUsingSni;
    use support::certs::{provider, spki_sha256};

    let authority = Authority::new();
    let mut by_name = ResolvesServerCertUsingSni::new();
    let mut pins = Vec::new();
    for name in NAMES {
        let key = KeyPair::generate().unwrap();
        pins.push(spki_sha256(&key));
        let (certificate, key) = authority.sign_with(CertificateParams::new(vec![name.to_owned()]).unwrap(), key);
        let key = provider().key_provider.load_private_key(key).unwrap();
        by_name.add(name, rustls::sign::CertifiedKey::new(vec![certificate], key)).unwrap();
    }
    let config = rustls::ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_cert_resolver(std::sync::Arc::new(by_name));
    let server = TlsServer::start(std::sync::Arc::new(config)).await;
    let world = |pin| {
        let tls = speeddial::tls::TlsConfig::new().add_root_der(authority.certificate().to_vec());
        let tls = tls.only_added_roots().pin_spki_sha256(pin);
        World::with(&authority, server.address().port(), record(&keys()), |builder| {
            builder.encrypted_client_hello(true).tls(tls)
        })
    };
    let pinned = world(pins[0]);
    assert!(!pinned.get().await.unwrap().1);
    assert_eq!(pinned.attempts(), 2);
    // The key of the public name is not that of the server.
    let error = world(pins[1]).get().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Tls && format!("{error:#}").contains("none of those pinned"), "{error:#}");
}
