//! Certificates, keys and authorities that are replaced while a client runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use speeddial::settings::HostConfig;
use speeddial::tls::{Identity, TlsConfig, TlsConfigError};
use speeddial::trace::{CloseCause, Event};
use speeddial::{Certificate, Client, PoolConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::common::{builder, get, params, server, trusting};
use support::certs::{Authority, provider};
use support::recorder::Recorder;
use support::tls_server::TlsServer;

/// A client certificate and its key, in PEM.
struct Pair {
    chain: String,
    key: String,
}

impl Pair {
    fn new(authority: &Authority) -> Self {
        let key = KeyPair::generate().unwrap();
        Self { chain: authority.sign_pem(params(&["client.test"]), &key), key: key.serialize_pem() }
    }

    fn identity(&self) -> Identity {
        Identity::from_pkcs8_pem(self.chain.as_bytes(), self.key.as_bytes()).unwrap()
    }

    /// Returns the text by which the server names the certificate.
    fn name(&self) -> String {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;
        name_of(&CertificateDer::from_pem_slice(self.chain.as_bytes()).unwrap())
    }
}

fn name_of(certificate: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    certificate.hash(&mut hasher);
    hasher.finish().to_string()
}

/// Starts a server that asks for client certificates of `authority`, and answers with the name of the connection's.
async fn start(authority: &Authority) -> SocketAddr {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build().unwrap();
    let (certificate, key) = authority.sign(params(&["api.test", "other.test"]));
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_client_cert_verifier(verifier).with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let connection = stream.get_ref().1;
                let name = name_of(&connection.peer_certificates().unwrap()[0]);
                let is_http2 = connection.alpn_protocol() == Some(b"h2");
                let answer = service_fn(move |_| {
                    let response = hyper::Response::new(support::full(name.clone()));
                    async { Ok::<_, Infallible>(response) }
                });
                let stream = TokioIo::new(stream);
                let _ = match is_http2 {
                    true => http2::Builder::new(TokioExecutor::new()).serve_connection(stream, answer).await,
                    false => http1::Builder::new().serve_connection(stream, answer).await,
                };
            });
        }
    });
    address
}

/// Certificates change under load, each after requests on a connection with the one before. No request fails, and none that begins after a
/// change is sent on a connection with an earlier certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_certificates_that_change_all_the_time_fail_no_request() {
    const CHANGES: usize = 100;
    /// The tasks that make requests with each client, one after the other.
    const TASKS: usize = 4;
    let authority = Authority::new();
    let address = start(&authority).await;
    let pairs: Vec<_> = (0..=CHANGES).map(|_| Pair::new(&authority)).collect();
    let numbers: Arc<HashMap<_, _>> = Arc::new(pairs.iter().map(Pair::name).zip(0..).collect());
    let settings = || trusting(&authority).identity(pairs[0].identity());
    let clients = [builder(settings()).http1_only(), builder(settings())]
        .map(|builder| builder.no_proxy().pool(PoolConfig::new()).build().unwrap());
    let present = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let ended = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let mut load = tokio::task::JoinSet::new();
    for (client, ended) in clients.iter().zip(&ended).flat_map(|both| std::iter::repeat_n(both, TASKS)) {
        let (client, numbers, present, is_over) = (client.clone(), numbers.clone(), present.clone(), is_over.clone());
        let ended = ended.clone();
        load.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let oldest = present.load(Ordering::SeqCst);
                let (name, _) = get(&client, "api.test", address).await.unwrap();
                let served_by = numbers[&name];
                assert!(served_by >= oldest, "certificate {served_by} after {oldest} was there");
                ended.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    for (number, pair) in pairs.iter().enumerate().skip(1) {
        // One more than those that were under way: it began after the last change.
        for ended in &ended {
            let enough = ended.load(Ordering::SeqCst) + TASKS + 1;
            support::until("requests end", || ended.load(Ordering::SeqCst) >= enough).await;
        }
        for client in &clients {
            client.reconfigure(|to| to.identity(pair.identity())).unwrap();
        }
        present.store(number, Ordering::SeqCst);
    }
    is_over.store(true, Ordering::SeqCst);
    load.join_all().await;
    for client in &clients {
        support::settled(client).await;
        let stats = client.pool_stats();
        let replaced = stats.closed_by(CloseCause::Reconfigured);
        assert!(replaced >= CHANGES as u64 / 2, "{stats:?}");
    }
}

/// A directory of its own for a test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("speeddial-rotation-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        // As editors and certificate managers do: a reader sees the old file or the new one.
        let new = self.0.join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Sends requests until the server names `expected`. Each must succeed.
async fn until(client: &Client, address: SocketAddr, expected: &str) {
    while get(client, "api.test", address).await.unwrap().0 != expected {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until an event has been reported.
async fn until_reported(recorder: &Recorder, wanted: impl Fn(&Event) -> bool) {
    while recorder.count(&wanted) == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

const OFTEN: Duration = Duration::from_millis(5);

#[tokio::test]
async fn the_files_of_a_certificate_are_read_again_and_wrong_ones_are_refused_and_reported() {
    let authority = Authority::new();
    let address = start(&authority).await;
    let (first, second, third) = (Pair::new(&authority), Pair::new(&authority), Pair::new(&authority));
    let directory = Directory::new("identity");
    let chain = directory.write("tls.crt", &first.chain);
    let key = directory.write("tls.key", &first.key);
    let identity = Identity::watch_files(&chain, &key).unwrap();
    let recorder = Recorder::default();
    let tls = trusting(&authority).identity(identity);
    let client = builder(tls).tls_reload_interval(OFTEN).observer(recorder.clone()).build().unwrap();
    until(&client, address, &first.name()).await;
    assert_eq!(recorder.count(|event| matches!(event, Event::TlsFilesReloaded | Event::TlsFilesRefused { .. })), 0);

    // A chain without its key: the last pair stays in use until the key has come.
    directory.write("tls.crt", &second.chain);
    let refused = |event: &Event| matches!(event, Event::TlsFilesRefused { .. });
    until_reported(&recorder, refused).await;
    assert_eq!(get(&client, "api.test", address).await.unwrap().0, first.name());
    let reason = recorder.pick(|event| match event {
        Event::TlsFilesRefused { reason, .. } => Some(reason.to_string()),
        _ => None,
    });
    assert_eq!(reason[0], "the private key does not match the certificate");
    directory.write("tls.key", &second.key);
    until(&client, address, &second.name()).await;
    assert_eq!(recorder.count(|event| matches!(event, Event::TlsFilesReloaded)), 1);
    assert_eq!(client.pool_stats().closed_by(CloseCause::Reconfigured), 1);

    // A file that is gone, as while a volume is remounted.
    std::fs::remove_file(&key).unwrap();
    let gone =
        |event: &Event| matches!(event, Event::TlsFilesRefused { reason, .. } if reason.contains("cannot be read"));
    until_reported(&recorder, gone).await;
    assert_eq!(get(&client, "api.test", address).await.unwrap().0, second.name());
    directory.write("tls.crt", &third.chain);
    directory.write("tls.key", &third.key);
    until(&client, address, &third.name()).await;
}

/// The time between two readings of files, for clients of which nothing reads them meanwhile.
const SELDOM: Duration = Duration::from_millis(50);

/// Returns a client whose certificate is in the files of a directory.
fn client_of(directory: &Directory, authority: &Authority, pair: &Pair) -> Client {
    let (chain, key) = (directory.write("tls.crt", &pair.chain), directory.write("tls.key", &pair.key));
    let tls = trusting(authority).identity(Identity::watch_files(chain, key).unwrap());
    builder(tls).tls_reload_interval(SELDOM).build().unwrap()
}

#[tokio::test]
async fn a_client_that_was_idle_since_it_was_built_begins_with_the_files_as_they_are() {
    let authority = Authority::new();
    let address = start(&authority).await;
    let (old, new, directory) = (Pair::new(&authority), Pair::new(&authority), Directory::new("idle"));
    let client = client_of(&directory, &authority, &old);
    directory.write("tls.crt", &new.chain);
    directory.write("tls.key", &new.key);
    tokio::time::sleep(SELDOM * 2).await;
    assert_eq!(get(&client, "api.test", address).await.unwrap().0, new.name());
}

#[test]
fn a_client_with_a_runtime_for_each_job_uses_the_files_as_they_are() {
    let authority = Authority::new();
    let (pairs, directory) = ([(); 3].map(|()| Pair::new(&authority)), Directory::new("jobs"));
    let client = client_of(&directory, &authority, &pairs[0]);
    let servers = tokio::runtime::Runtime::new().unwrap();
    let address = servers.block_on(start(&authority));
    for pair in &pairs {
        directory.write("tls.crt", &pair.chain);
        directory.write("tls.key", &pair.key);
        std::thread::sleep(SELDOM * 2);
        let job = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (name, _) = job.block_on(async { get(&client, "api.test", address).await.unwrap() });
        assert_eq!(name, pair.name());
    }
}

#[tokio::test]
async fn files_that_have_not_changed_leave_all_hosts_as_they_are() {
    let authority = Authority::new();
    let address = start(&authority).await;
    let (pair, directory) = (Pair::new(&authority), Directory::new("unchanged"));
    let (chain, key) = (directory.write("tls.crt", &pair.chain), directory.write("tls.key", &pair.key));
    let recorder = Recorder::default();
    let tls = trusting(&authority).identity(Identity::watch_files(chain, &key).unwrap());
    let builder = builder(tls).for_host("other.test", HostConfig::new().http1_only());
    let client = builder.tls_reload_interval(OFTEN).observer(recorder.clone()).build().unwrap();
    for host in ["api.test", "other.test"] {
        get(&client, host, address).await.unwrap();
    }
    // A file that is gone shows that the files are read.
    std::fs::remove_file(key).unwrap();
    while recorder.count(|event| matches!(event, Event::TlsFilesRefused { .. })) < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(recorder.count(|event| matches!(event, Event::TlsFilesReloaded)), 0);
}

#[cfg(unix)]
#[tokio::test]
async fn the_links_of_a_kubernetes_volume_are_followed() {
    let authority = Authority::new();
    let address = start(&authority).await;
    let pairs = [Pair::new(&authority), Pair::new(&authority)];
    let directory = Directory::new("volume");
    let root = &directory.0;
    let point_to = |version: &str| {
        std::os::unix::fs::symlink(version, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    for (pair, version) in pairs.iter().zip(["..1", "..2"]) {
        std::fs::create_dir(root.join(version)).unwrap();
        std::fs::write(root.join(version).join("tls.crt"), &pair.chain).unwrap();
        std::fs::write(root.join(version).join("tls.key"), &pair.key).unwrap();
    }
    point_to("..1");
    for name in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(Path::new("..data").join(name), root.join(name)).unwrap();
    }
    let identity = Identity::watch_files(root.join("tls.crt"), root.join("tls.key")).unwrap();
    let client = builder(trusting(&authority).identity(identity)).tls_reload_interval(OFTEN).build().unwrap();
    until(&client, address, &pairs[0].name()).await;
    point_to("..2");
    std::fs::remove_dir_all(root.join("..1")).unwrap();
    until(&client, address, &pairs[1].name()).await;
}

#[tokio::test]
async fn authorities_that_are_added_leave_connections_alone_and_those_that_are_removed_close_them() {
    let (first, second) = (Authority::new(), Authority::new());
    let servers = [
        TlsServer::start(server(&first, params(&["api.test"]))).await,
        TlsServer::start(server(&second, params(&["api.test"]))).await,
    ];
    let directory = Directory::new("roots");
    directory.write("first.pem", &first.pem());
    directory.write("notes.txt", "no certificate");
    let tls = TlsConfig::new().watch_roots(&directory.0).unwrap().only_added_roots();
    let recorder = Recorder::default();
    let client = builder(tls).tls_reload_interval(OFTEN).observer(recorder.clone()).build().unwrap();
    get(&client, "api.test", servers[0].address()).await.unwrap();
    assert!(get(&client, "api.test", servers[1].address()).await.unwrap_err().is_tls());

    directory.write("second.crt", &second.pem());
    until_reported(&recorder, |event| matches!(event, Event::TlsFilesReloaded)).await;
    get(&client, "api.test", servers[1].address()).await.unwrap();
    get(&client, "api.test", servers[0].address()).await.unwrap();
    assert_eq!(servers[0].accepted(), 1, "the connection is still trusted");

    directory.write("first.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n");
    until_reported(&recorder, |event| matches!(event, Event::TlsFilesRefused { .. })).await;
    get(&client, "api.test", servers[0].address()).await.unwrap();

    std::fs::remove_file(directory.0.join("first.pem")).unwrap();
    while client.pool_stats().closed_by(CloseCause::Reconfigured) < 2 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(get(&client, "api.test", servers[0].address()).await.unwrap_err().is_tls());
    get(&client, "api.test", servers[1].address()).await.unwrap();
}

#[test]
fn files_that_cannot_be_used_are_refused_at_once_with_their_path() {
    let directory = Directory::new("refused");
    let pair = Pair::new(&Authority::new());
    let chain = directory.write("tls.crt", &pair.chain);
    let missing = directory.0.join("missing.key");
    let error = Identity::watch_files(&chain, &missing).unwrap_err();
    assert!(matches!(&error, TlsConfigError::Unreadable { path, .. } if *path == missing), "{error}");
    let error = Identity::watch_files(&chain, &chain).unwrap_err();
    assert!(matches!(&error, TlsConfigError::InFile { path, .. } if *path == chain), "{error}");
    assert!(error.to_string().contains("tls.crt") && error.to_string().contains("private key"), "{error}");
    let empty = Directory::new("empty");
    assert!(matches!(TlsConfig::new().watch_roots(&empty.0), Err(TlsConfigError::Unreadable { .. })));
    let zero = Client::builder().tls_reload_interval(Duration::ZERO).build().unwrap_err();
    assert!(zero.to_string().contains("tls_reload_interval must not be 0"), "{zero}");
}

#[tokio::test]
async fn a_host_has_its_own_certificate_which_can_be_replaced_by_itself() {
    let authority = Authority::new();
    let address = start(&authority).await;
    let [general, own, next] = [(); 3].map(|()| Pair::new(&authority));
    let tls = trusting(&authority).identity(general.identity());
    let of_host = |pair: &Pair| HostConfig::new().identity(pair.identity());
    let client = builder(tls).for_host("other.test", of_host(&own)).build().unwrap();
    let served = async |host| get(&client, host, address).await.unwrap().0;
    assert_eq!([served("api.test").await, served("other.test").await], [general.name(), own.name()]);
    client.reconfigure(|to| to.for_host("other.test", of_host(&next))).unwrap();
    assert_eq!([served("api.test").await, served("other.test").await], [general.name(), next.name()]);
    assert_eq!(client.pool_stats().opened, 3, "the connection of the other host stays");
    client.reconfigure(|to| to.for_host("other.test", HostConfig::new())).unwrap();
    assert_eq!(served("other.test").await, general.name());
}

#[tokio::test]
async fn a_replaced_certificate_leaves_connections_without_tls_alone() {
    let authority = Authority::new();
    let address = start(&authority).await;
    let plain = support::ok_server();
    let [first, second] = [(); 2].map(|()| Pair::new(&authority));
    let client = builder(trusting(&authority).identity(first.identity())).build().unwrap();
    let url = format!("http://{}/", plain.address());
    for (pair, opened) in [(&first, 2), (&second, 3)] {
        client.get(&url).send().await.unwrap().text().await.unwrap();
        assert_eq!(get(&client, "api.test", address).await.unwrap().0, pair.name());
        support::settled(&client).await;
        assert_eq!((plain.connections(), client.pool_stats().opened), (1, opened));
        client.reconfigure(|to| to.identity(second.identity())).unwrap();
    }
}

#[tokio::test]
async fn authorities_are_replaced_and_a_reconfiguration_that_is_refused_changes_nothing() {
    let (first, second) = (Authority::new(), Authority::new());
    let servers = [
        TlsServer::start(server(&first, params(&["api.test"]))).await,
        TlsServer::start(server(&second, params(&["api.test"]))).await,
    ];
    let client = builder(trusting(&first)).build().unwrap();
    get(&client, "api.test", servers[0].address()).await.unwrap();
    let refused = client.reconfigure(|to| to.tls_certs_only([]).no_proxy()).unwrap_err();
    assert!(refused.is_builder() && refused.to_string().starts_with("reconfigure the client: "), "{refused}");
    get(&client, "api.test", servers[0].address()).await.unwrap();
    assert_eq!(servers[0].accepted(), 1);
    let certificate = Certificate::from_pem(second.pem().as_bytes()).unwrap();
    client.reconfigure(|to| to.tls_certs_only([certificate])).unwrap();
    assert!(get(&client, "api.test", servers[0].address()).await.unwrap_err().is_tls());
    get(&client, "api.test", servers[1].address()).await.unwrap();
}
