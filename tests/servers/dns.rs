//! dnsmasq, unbound, BIND and Knot DNS, each with the same zone. A server that is not installed is skipped with a message.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use speeddial::dns::{Answer, CachedResolver, Family, HickoryResolver, ResolveErrorKind, Resolver, Source};

use speeddial::Client;
use speeddial::settings::Addresses;
use speeddial::trace::CloseCause;

use support::{free_port, full};

/// A DNS server program.
pub(super) struct Software {
    pub(super) name: &'static str,
    package: &'static str,
    /// Writes the configuration into a folder and returns the command that starts the server with it.
    prepare: fn(&Path, u16, &Zone) -> Command,
    /// The TTL of negative answers, if the server sends one.
    negative: Option<Duration>,
}

/// The parts of the zone that differ between tests.
pub(super) struct Zone {
    pub(super) host: Ipv4Addr,
    pub(super) ttl: u32,
    /// More lines of the zone's file. dnsmasq has none.
    pub(super) lines: String,
}

const DNSMASQ: Software = Software { name: "dnsmasq", package: "dnsmasq-base", prepare: dnsmasq, negative: None };
pub(super) const UNBOUND: Software =
    Software { name: "unbound", package: "unbound", prepare: unbound, negative: Some(Duration::from_secs(9)) };
pub(super) const NAMED: Software =
    Software { name: "named", package: "bind9", prepare: named, negative: Some(Duration::from_secs(9)) };
pub(super) const KNOT: Software =
    Software { name: "knotd", package: "knot", prepare: knot, negative: Some(Duration::from_secs(9)) };

/// The number of addresses of `many.test`, too many for a packet of 1,232 bytes. BIND accepts no more than these.
const MANY: u8 = 100;

fn dnsmasq(folder: &Path, port: u16, zone: &Zone) -> Command {
    let mut config = format!(
        "port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\nuser=\npid-file=\n\
         local=/test/\nlocal-ttl={ttl}\naddn-hosts={hosts}\nhost-record=host.test,{host},::1,{ttl}\n\
         host-record=only4.test,127.0.0.1,60\nhost-record=my_svc.test,127.0.0.1,60\n\
         cname=alias.test,host.test,30\ncname=chain.test,alias.test,5\n",
        ttl = zone.ttl,
        host = zone.host,
        hosts = folder.join("hosts").display(),
    );
    let many: String = (1..=MANY).map(|last| format!("127.0.1.{last} many.test\n")).collect();
    std::fs::write(folder.join("hosts"), many).unwrap();
    writeln!(config, "log-facility=-").unwrap();
    std::fs::write(folder.join("config"), config).unwrap();
    let mut command = Command::new("dnsmasq");
    command.arg("--keep-in-foreground").arg(format!("--conf-file={}", folder.join("config").display()));
    command
}

fn zone_file(folder: &Path, zone: &Zone) -> PathBuf {
    let mut text = format!(
        "$ORIGIN test.\n$TTL 60\n@ 60 IN SOA ns hostmaster 1 60 60 60 9\n@ NS ns\nns A 127.0.0.1\n\
         host {ttl} A {host}\nhost {ttl} AAAA ::1\nonly4 A 127.0.0.1\nmy_svc A 127.0.0.1\n\
         alias 30 CNAME host\nchain 5 CNAME alias\n",
        ttl = zone.ttl,
        host = zone.host,
    );
    for last in 1..=MANY {
        writeln!(text, "many A 127.0.1.{last}").unwrap();
    }
    text.push_str(&zone.lines);
    let path = folder.join("zone");
    std::fs::write(&path, text).unwrap();
    path
}

fn unbound(folder: &Path, port: u16, zone: &Zone) -> Command {
    unbound_with(folder, port, zone, "")
}

fn unbound_with(folder: &Path, port: u16, zone: &Zone, options: &str) -> Command {
    let config = format!(
        "server:\n{options} interface: 127.0.0.1@{port}\n do-daemonize: no\n use-syslog: no\n username: \"\"\n chroot: \"\"\n \
         pidfile: \"\"\n directory: \"{folder}\"\n access-control: 127.0.0.0/8 allow\n module-config: \"iterator\"\n \
         local-zone: \"test.\" nodefault\n\
         auth-zone:\n name: \"test.\"\n zonefile: \"{file}\"\n for-downstream: yes\n for-upstream: no\n\
         remote-control:\n control-enable: no\n",
        folder = folder.display(),
        file = zone_file(folder, zone).display(),
    );
    std::fs::write(folder.join("config"), config).unwrap();
    let mut command = Command::new("unbound");
    command.args(["-d", "-p", "-c"]).arg(folder.join("config"));
    command
}

fn named(folder: &Path, port: u16, zone: &Zone) -> Command {
    named_with(folder, port, zone, "")
}

fn named_with(folder: &Path, port: u16, zone: &Zone, options: &str) -> Command {
    let config = format!(
        "options {{ {options} directory \"{folder}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; \
         pid-file none; session-keyfile none; recursion no; empty-zones-enable no; }};\ncontrols {{ }};\n\
         zone \"test\" {{ type primary; check-names ignore; file \"{file}\"; }};\n",
        folder = folder.display(),
        file = zone_file(folder, zone).display(),
    );
    std::fs::write(folder.join("config"), config).unwrap();
    let mut command = Command::new("named");
    command.args(["-g", "-n", "1", "-c"]).arg(folder.join("config"));
    command
}

fn knot(folder: &Path, port: u16, zone: &Zone) -> Command {
    let config = format!(
        "server:\n  listen: 127.0.0.1@{port}\n  rundir: \"{at}\"\n  udp-workers: 1\n  tcp-workers: 1\n\
         database:\n  storage: \"{at}\"\n\
         log:\n  - target: stderr\n    any: info\n\
         zone:\n  - domain: test.\n    file: \"{file}\"\n    semantic-checks: off\n    zonefile-sync: -1\n",
        at = folder.display(),
        file = zone_file(folder, zone).display(),
    );
    std::fs::write(folder.join("config"), config).unwrap();
    let mut command = Command::new("knotd");
    command.arg("-c").arg(folder.join("config"));
    command
}

/// A server in a process of its own.
pub(super) struct Server {
    kind: &'static Software,
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    /// Starts a server. Returns `None` and prints that the test is skipped if it is not installed.
    pub(super) async fn start(kind: &'static Software, test: &str, zone: &Zone) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("speeddial-{}-{test}-{}", kind.name, std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let port = free_port();
        let Ok(child) = spawn((kind.prepare)(&folder, port, zone), &folder) else {
            eprintln!("SKIPPED: {} is not installed (Debian: {})", kind.name, kind.package);
            std::fs::remove_dir_all(&folder).unwrap();
            return None;
        };
        let mut server = Self { kind, folder, port, child };
        server.answers().await;
        Some(server)
    }

    /// Starts the server again with another zone, on the same port.
    async fn restart(&mut self, zone: &Zone) {
        self.stop();
        self.child = spawn((self.kind.prepare)(&self.folder, self.port, zone), &self.folder).unwrap();
        self.answers().await;
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the server answers.
    async fn answers(&mut self) {
        let resolver = self.resolver().with_try_timeout(Duration::from_secs(1));
        let deadline = Instant::now() + 2 * support::LONG;
        while let Err(error) = resolver.resolve("host.test", Family::V4).await {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{}: {error:?}\n{}", self.kind.name, log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) fn resolver(&self) -> HickoryResolver {
        HickoryResolver::with_servers([SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))])
    }
}

fn spawn(mut command: Command, folder: &Path) -> std::io::Result<Child> {
    let log = std::fs::File::create(folder.join("log"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
}

async fn resolve(resolver: &HickoryResolver, name: &str) -> Answer {
    resolver.resolve(name, Family::V4).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Checks the answers that every server gives, over UDP and TCP.
async fn assert_understands(kind: &'static Software) {
    let zone = Zone { host: Ipv4Addr::new(127, 0, 0, 7), ttl: 60, lines: String::new() };
    let Some(server) = Server::start(kind, "speaks", &zone).await else { return };
    assert_answers(&server.resolver(), &zone, kind.negative).await;
}

async fn assert_answers(resolver: &HickoryResolver, zone: &Zone, negative: Option<Duration>) {
    let host = resolve(resolver, "host.test").await;
    assert_eq!((host.addresses()[0], host.ttl()), (zone.host.into(), Duration::from_secs(60)));
    assert_eq!(resolve(resolver, "my_svc.test").await.addresses().len(), 1);

    let chain = resolve(resolver, "chain.test").await;
    assert_eq!(
        (chain.addresses()[0], chain.ttl()),
        (zone.host.into(), Duration::from_secs(5)),
        "the smallest TTL of the chain"
    );

    let many = resolve(resolver, "many.test").await;
    assert_eq!(many.addresses().len(), usize::from(MANY), "the answer does not fit into UDP");

    let cases = [
        ("nowhere.test", Family::V4, ResolveErrorKind::NxDomain),
        ("nowhere.test", Family::V6, ResolveErrorKind::NxDomain),
        ("only4.test", Family::V6, ResolveErrorKind::NoData),
    ];
    for (name, family, kind) in cases {
        let error = resolver.resolve(name, family).await.unwrap_err();
        assert_eq!((error.kind(), error.negative_ttl()), (kind, negative), "{name} {family}");
    }
}

/// Checks that the cache follows a moved name when its TTL has passed, and not before.
async fn assert_cache_follows(kind: &'static Software) {
    let at = |last| Zone { host: Ipv4Addr::new(127, 0, 0, last), ttl: 2, lines: String::new() };
    let Some(mut server) = Server::start(kind, "follows", &at(1)).await else { return };
    let cache = CachedResolver::new(server.resolver());
    let start = Instant::now();
    let first = cache.lookup("host.test", Family::V4).await.unwrap();
    let answered = Instant::now();
    assert_eq!(first.addresses()[0].to_string(), "127.0.0.1");
    server.restart(&at(2)).await;
    // The TTL of 2 s passes in real time; until then the answer must stay the same.
    loop {
        let before = answered.elapsed();
        let answer = cache.lookup("host.test", Family::V4).await.unwrap();
        if answer.addresses()[0].to_string() == "127.0.0.2" {
            assert!(start.elapsed() >= Duration::from_millis(1_800), "the cache asked again too early");
            break;
        }
        assert!(
            answer.source() != Source::Hit || before <= Duration::from_secs(4),
            "the old answer was still fresh after two TTLs"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Starts HTTP servers on the same port of two addresses. Returns the port and the number of requests of each.
fn http_servers(addresses: [Ipv4Addr; 2]) -> (u16, [Arc<AtomicUsize>; 2]) {
    let bind = |address: Ipv4Addr, port: u16| std::net::TcpListener::bind((address, port));
    let listeners = (0..100).find_map(|_| {
        let first = bind(addresses[0], 0).unwrap();
        let port = first.local_addr().unwrap().port();
        bind(addresses[1], port).ok().map(|second| (port, [first, second]))
    });
    let (port, listeners) = listeners.expect("a port that is free on both addresses");
    let counts = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    for (listener, count) in listeners.into_iter().zip(counts.clone()) {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let count = count.clone();
                let service = service_fn(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    async { Ok::<_, std::convert::Infallible>(hyper::Response::new(full("ok"))) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
    }
    (port, counts)
}

/// Checks that steady traffic moves with its name within two TTLs of 2 s and one second, and that no request fails. What a busy machine
/// adds to the requests is measured beside that, and has no part in it.
async fn assert_pool_follows(kind: &'static Software) {
    let at = |last| Zone { host: Ipv4Addr::new(127, 0, 0, last), ttl: 2, lines: String::new() };
    let Some(mut server) = Server::start(kind, "pool", &at(1)).await else { return };
    let (port, [old, new]) = http_servers([at(1).host, at(2).host]);
    let client =
        Client::builder().no_proxy().addresses(Addresses::V4Only).dns_resolver(server.resolver()).build().unwrap();
    let url = format!("http://host.test:{port}/");
    let burst = async || {
        let get = async || client.get(&url).send().await?.text().await;
        for answer in join_all((0..4).map(|_| get())).await {
            assert_eq!(answer.unwrap(), "ok");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    burst().await;
    assert_eq!((old.load(Ordering::SeqCst), new.load(Ordering::SeqCst)), (4, 0));
    server.restart(&at(2)).await;
    let moved = Instant::now();
    let mut last_at_the_old = moved;
    let mut late = Duration::ZERO;
    let mut late_at_the_old = late;
    while moved.elapsed() < Duration::from_secs(7) + late || new.load(Ordering::SeqCst) <= 100 {
        assert!(moved.elapsed() < 2 * support::LONG, "no request moves");
        let before = old.load(Ordering::SeqCst);
        let began = Instant::now();
        burst().await;
        if old.load(Ordering::SeqCst) > before {
            (last_at_the_old, late_at_the_old) = (began, late);
        }
        late += began.elapsed().saturating_sub(Duration::from_millis(20));
    }
    let took = last_at_the_old - moved - late_at_the_old;
    assert!(took < Duration::from_secs(2 * 2 + 1), "{}: the last request to the old address after {took:?}", kind.name);
    assert!(client.pool_stats().closed_by(CloseCause::AddressMoved) >= 1, "{:?}", client.pool_stats());
}

#[tokio::test]
async fn a_pool_follows_a_name_that_moves_in_dnsmasq() {
    assert_pool_follows(&DNSMASQ).await;
}

#[tokio::test]
async fn a_pool_follows_a_name_that_moves_in_unbound() {
    assert_pool_follows(&UNBOUND).await;
}

#[tokio::test]
async fn the_answers_of_dnsmasq_are_understood() {
    assert_understands(&DNSMASQ).await;
}

#[tokio::test]
async fn the_answers_of_unbound_are_understood() {
    assert_understands(&UNBOUND).await;
}

#[tokio::test]
async fn the_answers_of_bind_are_understood() {
    assert_understands(&NAMED).await;
}

#[tokio::test]
async fn the_answers_of_knot_are_understood() {
    assert_understands(&KNOT).await;
}

#[tokio::test]
async fn a_name_that_moves_in_dnsmasq_is_followed() {
    assert_cache_follows(&DNSMASQ).await;
}

#[tokio::test]
async fn a_name_that_moves_in_unbound_is_followed() {
    assert_cache_follows(&UNBOUND).await;
}

#[tokio::test]
async fn a_name_that_moves_in_bind_is_followed() {
    assert_cache_follows(&NAMED).await;
}

/// DNS over TLS and HTTPS: many questions at once, answers in any order, and idle connections that the server closes.
#[cfg(feature = "dns-over-https")]
mod encrypted {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use super::*;
    use support::certs::{Authority, provider};

    const NAMED_ENCRYPTED: Software = Software { prepare: named_encrypted, ..NAMED };
    const UNBOUND_ENCRYPTED: Software = Software { prepare: unbound_encrypted, ..UNBOUND };

    /// Writes a certificate for dns.test, its key, and the certificate of its authority.
    fn certify(folder: &Path) {
        let authority = Authority::new();
        let key = KeyPair::generate().unwrap();
        std::fs::write(folder.join("authority"), authority.certificate()).unwrap();
        std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        let certificate = authority.sign_pem(CertificateParams::new(["dns.test".to_owned()]).unwrap(), &key);
        std::fs::write(folder.join("certificate.pem"), certificate).unwrap();
    }

    /// Returns a configuration that trusts the authority whose certificate is in the folder.
    fn trusting(folder: &Path) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(std::fs::read(folder.join("authority")).unwrap().into()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
        builder.with_root_certificates(roots).with_no_client_auth()
    }

    fn named_encrypted(folder: &Path, port: u16, zone: &Zone) -> Command {
        certify(folder);
        let [tls, https] = [(); 2].map(|()| free_port());
        std::fs::write(folder.join("ports"), format!("{tls} {https}")).unwrap();
        let options = format!(
            "tcp-idle-timeout 50; listen-on port {tls} tls dot {{ 127.0.0.1; }}; \
             listen-on port {https} tls dot http default {{ 127.0.0.1; }};"
        );
        let command = named_with(folder, port, zone, &options);
        let at = folder.display();
        let dot = format!("tls dot {{ cert-file \"{at}/certificate.pem\"; key-file \"{at}/key.pem\"; }};\n");
        let config = std::fs::read_to_string(folder.join("config")).unwrap();
        std::fs::write(folder.join("config"), config + &dot).unwrap();
        command
    }

    fn unbound_encrypted(folder: &Path, port: u16, zone: &Zone) -> Command {
        certify(folder);
        let tls = free_port();
        std::fs::write(folder.join("ports"), tls.to_string()).unwrap();
        let options = format!(
            " interface: 127.0.0.1@{tls}\n tls-port: {tls}\n tls-service-key: \"{at}/key.pem\"\n \
             tls-service-pem: \"{at}/certificate.pem\"\n tcp-idle-timeout: 5000\n",
            at = folder.display(),
        );
        unbound_with(folder, port, zone, &options)
    }

    /// Starts a proxy to a port. Returns its address, and the number of connections so far and of those still open.
    async fn counted(port: u16) -> (SocketAddr, watch::Receiver<[usize; 2]>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (counts, counted) = watch::channel([0, 0]);
        let counts = Arc::new(counts);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let counts = counts.clone();
                counts.send_modify(|[all, open]| (*all, *open) = (*all + 1, *open + 1));
                tokio::spawn(async move {
                    if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                    counts.send_modify(|[_, open]| *open -= 1);
                });
            }
        });
        (address, counted)
    }

    /// Looks up 200 names at once.
    async fn burst(resolver: &HickoryResolver) {
        let names: Vec<_> = (0..200).map(|number| format!("n{number}.test")).collect();
        let lookups = names.iter().map(|name| resolver.resolve(name, Family::V4));
        for outcome in join_all(lookups).await {
            assert_eq!(outcome.unwrap_err().kind(), ResolveErrorKind::NxDomain);
        }
    }

    async fn assert_shares_connections(kind: &'static Software) {
        let zone = Zone { host: Ipv4Addr::new(127, 0, 0, 7), ttl: 60, lines: String::new() };
        let Some(server) = Server::start(kind, "encrypted", &zone).await else { return };
        let ports = std::fs::read_to_string(server.folder.join("ports")).unwrap();
        for (port, by_https) in ports.split(' ').zip([false, true]) {
            let (address, mut connections) = counted(port.parse().unwrap()).await;
            let by = match by_https {
                true => speeddial::dns::Server::https(address, "dns.test"),
                false => speeddial::dns::Server::tls(address, "dns.test"),
            };
            let resolver = HickoryResolver::with_servers([by]).with_tls_config(trusting(&server.folder));
            let resolver = resolver.with_try_timeout(support::LONG).with_total_timeout(support::LONG);
            assert_answers(&resolver, &zone, kind.negative).await;
            burst(&resolver).await;
            assert_eq!(connections.borrow()[0], 1, "{} by HTTPS: {by_https}", kind.name);
            let closed = connections.wait_for(|[_, open]| *open == 0);
            tokio::time::timeout(support::LONG, closed).await.expect("the server closes the idle connection").unwrap();
            burst(&resolver).await;
            assert_eq!(connections.borrow()[0], 2, "{} by HTTPS: {by_https}", kind.name);
        }
    }

    #[tokio::test]
    async fn lookups_at_bind_share_one_connection_over_tls_and_over_https() {
        assert_shares_connections(&NAMED_ENCRYPTED).await;
    }

    #[tokio::test]
    async fn lookups_at_unbound_share_one_connection_over_tls() {
        assert_shares_connections(&UNBOUND_ENCRYPTED).await;
    }
}
