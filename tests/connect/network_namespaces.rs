//! Real sockets in a network namespace of their own: distant and unreachable addresses, TCP fast open, search lists, and timings
//! beside those of curl.
//!
//! Skipped with a message if the process may not create namespaces.

#[cfg(target_env = "gnu")]
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[cfg(target_env = "gnu")]
use hickory_proto::op::ResponseCode;
use hickory_proto::op::{Message, Query};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use speeddial::dns::{CachedResolver, Family, FixedResolver, HickoryResolver, Resolve, ResolveErrorKind, Source};
use speeddial::trace::Outcome;
use speeddial::{Client, PoolConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// A network namespace. It is deleted when this value is dropped.
struct Namespace {
    name: String,
    card: Option<Child>,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Some(card) = &mut self.card {
            let _ = card.kill();
            let _ = card.wait();
        }
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        let _ = std::fs::remove_dir_all(self.etc());
    }
}

impl Namespace {
    /// Returns the folder whose files replace those of /etc for programs that `ip netns exec` starts.
    fn etc(&self) -> std::path::PathBuf {
        std::path::Path::new("/etc/netns").join(&self.name)
    }

    /// Creates a namespace and moves the calling thread into it.
    fn enter(name: &str) -> Result<Self, String> {
        let failure = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let namespace = Self { name: format!("speeddial-{name}-{}", std::process::id()), card: None };
        let made = Command::new("ip").args(["netns", "add", &namespace.name]).stderr(Stdio::null()).status();
        if !made.map_err(|error| failure("ip (Debian: iproute2)", &error))?.success() {
            return Err("no right to make a network namespace".to_owned());
        }
        let file =
            std::fs::File::open(format!("/run/netns/{}", namespace.name)).map_err(|error| failure("netns", &error))?;
        let only = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(file.as_fd(), only).map_err(|error| failure("setns", &error))?;
        Ok(namespace)
    }

    /// Like [`Self::enter`], with a network device that delays its packets by 200 ms each way.
    fn with_card() -> Result<Self, String> {
        let failure = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let mut namespace = Self::enter("far")?;
        // A child process is in the namespace of the thread that starts it.
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/support/far_away.py");
        let card = Command::new("python3").arg(script).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut card = card.map_err(|error| failure("python3", &error))?;
        let mut line = String::new();
        let stdout = card.stdout.take().ok_or("no output")?;
        namespace.card = Some(card);
        BufReader::new(stdout).read_line(&mut line).map_err(|error| failure("python3", &error))?;
        if line.trim() == "ready" {
            Ok(namespace)
        } else {
            Err("no network card can be made (/dev/net/tun)".to_owned())
        }
    }
}

#[test]
fn hazard_an_address_400_ms_away_is_reached_behind_a_black_hole() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::with_card();
        if let Err(why) = &namespace {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(black_hole_then_far());
    });
    thread.join().unwrap();
}

async fn black_hole_then_far() {
    let listener = TcpListener::bind("10.9.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.read_buf(&mut Vec::new()).await.unwrap();
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok").await.unwrap();
        }
    });
    let resolver = FixedResolver::new().with("far.test", [[10, 9, 0, 7].into(), [10, 9, 0, 2].into()]);
    let client = Client::builder().resolver(resolver).no_proxy().pool(PoolConfig::new().max_idle(0)).build().unwrap();
    // The second connection dials the address first that has answered.
    for (least, most, first) in [(640, 850, 7), (390, 600, 2)] {
        let response = client.get(format!("http://far.test:{port}/")).send().await.unwrap();
        let timings = response.timings();
        assert_eq!(response.text().await.unwrap(), "ok");
        assert_eq!(timings.remote_addr().unwrap().ip().to_string(), "10.9.0.2");
        assert_eq!(timings.attempts()[0].address.ip().to_string(), format!("10.9.0.{first}"), "{timings:#}");
        let hole = timings.attempts().iter().find(|attempt| attempt.address.ip().to_string() == "10.9.0.7");
        assert!(hole.is_some_and(|hole| matches!(hole.outcome, Outcome::Cancelled)), "{timings:#}");
        let connect = timings.connect();
        let bounds = Duration::from_millis(least)..Duration::from_millis(most);
        assert!(bounds.contains(&connect), "{connect:?}: {timings:#}");
    }
}

#[test]
fn tcp_fast_open_sends_the_request_with_the_first_packet() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("fast");
        if let Err(why) = &namespace {
            eprintln!("SKIPPED: {why}");
            return;
        }
        let run = |command: &str| {
            let words: Vec<_> = command.split(' ').collect();
            Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        // Enabled for clients (1) and servers (2), also without the servers' own socket option (0x400).
        if !run("ip link set lo up") || std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1027").is_err() {
            eprintln!("SKIPPED: this kernel has no TCP fast open");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(opened_fast(false)), 0);
        // The first connection gets the cookie that the next ones need (RFC 7413, section 3.1).
        assert_eq!(runtime.block_on(opened_fast(true)), 2);
    });
    thread.join().unwrap();
}

/// Opens three connections and returns how many of them had data acknowledged that was in their first packet.
async fn opened_fast(fast: bool) -> u64 {
    let server = support::ok_server();
    let transport = speeddial::transport::TcpTransport::new().fast_open(fast);
    let pool = PoolConfig::new().max_requests_per_connection(1);
    let client = Client::builder().transport(transport).no_proxy().pool(pool).build().unwrap();
    let before = fast_opens();
    for _ in 0..3 {
        let response = client.get(format!("http://127.0.0.1:{}/", server.address().port())).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "ok");
    }
    fast_opens() - before
}

/// Returns the kernel's count of such connections in this thread's namespace.
fn fast_opens() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut rows = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let names = rows.next().unwrap();
    let values = rows.next().unwrap();
    let place = names.split(' ').position(|name| name == "TCPFastOpenActive").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

/// The lines of resolv.conf, the name that is looked up, and the records of the server.
///
/// A record is an owner (`*` stands for any labels), a type, and the last part of an address or a failure.
#[cfg(target_env = "gnu")]
const SEARCHES: [(&str, &str, &str); 18] = [
    ("search a.test b.test", "db", "db.a.test A 1, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db.a.test AAAA 1, db.b.test A 2"),
    ("search a.test b.test", "db", "db.a.test - -, db.b.test A 2, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db.b.test A 2, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db A 3"),
    ("search a.test b.test", "api.example.com", "api.example.com A 9, *.a.test AAAA 1"),
    ("search a.test b.test", "api.example.com", "api.example.com - -, api.example.com.b.test A 2"),
    (
        "search a.test b.test",
        "api.example.com",
        "api.example.com A servfail, api.example.com AAAA servfail, *.b.test A 2",
    ),
    ("search a.test b.test\noptions ndots:5", "api.example.com", "api.example.com A 9, *.b.test AAAA 2"),
    ("search a.test b.test\noptions ndots:5", "api.example.com", "api.example.com A 9"),
    ("search a.test b.test", "db.", "db.a.test A 1"),
    ("search a.test b.test", "db", "db.a.test A servfail, db.a.test AAAA 1, db.b.test A 2"),
    ("search a.test b.test", "db", "db.a.test A 1, db.a.test AAAA servfail, db.b.test AAAA 2"),
    ("search a.test b.test", "db", "db.a.test A servfail, db.a.test AAAA servfail, db.b.test A 2"),
    ("search a.test b.test", "db", "db.a.test A refused, db.a.test AAAA refused, db.b.test A 2, db A 3"),
    ("search .", "db", "db A 3, db AAAA 3"),
    ("search .lan b.test", "db", "db.lan A 1, db.b.test A 2"),
    ("search a.test\ndomain b.test", "db", "db.a.test A 1, db.b.test A 2"),
];

#[cfg(target_env = "gnu")]
#[test]
fn a_search_list_gives_the_same_addresses_as_getaddrinfo() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("search");
        let Ok(namespace) = namespace else {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        };
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()));
        std::fs::create_dir_all(namespace.etc()).unwrap();
        let zone = std::sync::Arc::new(std::sync::Mutex::new(""));
        let socket = std::net::UdpSocket::bind("127.0.0.1:53").unwrap();
        let of_server = zone.clone();
        std::thread::spawn(move || {
            let mut packet = [0; 1_500];
            while let Ok((length, peer)) = socket.recv_from(&mut packet) {
                let zone = *of_server.lock().unwrap();
                let answer = |question: &Query, response: &mut Message| answer_from(zone, question, response);
                if let Some(response) = support::dns_server::respond(&answer, &packet[..length]) {
                    socket.send_to(&response, peer).unwrap();
                }
            }
        });
        for (conf, name, records) in SEARCHES {
            *zone.lock().unwrap() = records;
            std::fs::write(namespace.etc().join("resolv.conf"), format!("nameserver 127.0.0.1\n{conf}\n")).unwrap();
            let [theirs, ours] = by_both_resolvers(&namespace.name, name);
            assert_eq!(ours, theirs, "{conf:?}, {name}: {records}");
        }
    });
    thread.join().unwrap();
}

#[cfg(target_env = "gnu")]
fn answer_from(zone: &str, question: &Query, response: &mut Message) {
    let name = question.name().to_ascii().to_lowercase();
    let name = name.trim_end_matches('.');
    let mut exists = false;
    for record in zone.split(", ") {
        let [owner, kind, value]: [&str; 3] = record.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let is_meant = owner == name || owner.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        exists |= is_meant;
        if !is_meant || kind != question.query_type().to_string() {
            continue;
        }
        match value {
            "servfail" => response.metadata.response_code = ResponseCode::ServFail,
            "refused" => response.metadata.response_code = ResponseCode::Refused,
            last => {
                let address = if kind == "A" { format!("192.0.2.{last}") } else { format!("2001:db8::{last}") };
                let address = address.parse().unwrap();
                support::dns_server::add_address(response, question, question.name(), address, 60);
            }
        }
    }
    if !exists {
        response.metadata.response_code = ResponseCode::NXDomain;
    }
}

/// Returns the addresses that getaddrinfo and speeddial find in a namespace, which has a resolv.conf of its own.
#[cfg(target_env = "gnu")]
fn by_both_resolvers(namespace: &str, name: &str) -> [String; 2] {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]).arg(std::env::current_exe().unwrap());
    let test = support::test_path(module_path!(), "a_given_name_is_looked_up_by_getaddrinfo_and_by_the_client");
    command.args(["--exact", &*test, "--nocapture"]);
    let output = command.env("SPEEDDIAL_LOOKUP", name).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let found = |who: &str| text.lines().find_map(|line| line.strip_prefix(who).map(str::to_owned));
    ["getaddrinfo: ", "speeddial: "].map(|who| found(who).unwrap_or_else(|| panic!("no line {who:?} in {text}")))
}

/// The test above runs this one in its namespace. Without that it has no name and passes.
#[cfg(target_env = "gnu")]
#[test]
fn a_given_name_is_looked_up_by_getaddrinfo_and_by_the_client() {
    let Ok(name) = std::env::var("SPEEDDIAL_LOOKUP") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let theirs = tokio::net::lookup_host((&*name, 0)).await.into_iter().flatten().map(|address| address.ip());
        let resolver = HickoryResolver::system();
        let (v4, v6) = tokio::join!(resolver.resolve(&name, Family::V4), resolver.resolve(&name, Family::V6));
        let ours = [v4, v6].into_iter().flatten().flat_map(|answer| answer.addresses().to_vec());
        let (theirs, ours): (BTreeSet<_>, BTreeSet<_>) = (theirs.collect(), ours.collect());
        println!("\ngetaddrinfo: {theirs:?}\nspeeddial: {ours:?}");
    });
}

#[test]
fn names_resolve_as_soon_as_the_network_is_back() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("offline");
        if namespace.is_err() {
            eprintln!("SKIPPED: no network namespace can be made");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server: std::net::SocketAddr = "192.0.2.53:53".parse().unwrap();
            let cache = CachedResolver::new(HickoryResolver::with_servers([server]));
            let mut failures = 0;
            while failures < 5 {
                let error = cache.lookup("api.test", Family::V4).await.unwrap_err();
                assert_eq!(error.kind(), ResolveErrorKind::Local, "{error:?}");
                failures += u32::from(error.answered_from() == Source::Miss);
                tokio::task::yield_now().await;
            }
            for command in ["link set lo up", "address add 192.0.2.53 dev lo"] {
                let done = Command::new("ip").args(command.split(' ')).status();
                assert!(done.is_ok_and(|status| status.success()), "{command}");
            }
            let socket = tokio::net::UdpSocket::bind(server).await.unwrap();
            tokio::spawn(async move {
                let mut packet = [0; 1_500];
                let (length, peer) = socket.recv_from(&mut packet).await.unwrap();
                let answer = |question: &Query, response: &mut Message| {
                    let address = [127, 0, 0, 1].into();
                    support::dns_server::add_address(response, question, question.name(), address, 60);
                };
                let response = support::dns_server::respond(&answer, &packet[..length]).unwrap();
                socket.send_to(&response, peer).await.unwrap();
            });
            let back = std::time::Instant::now();
            while let Err(error) = cache.lookup("api.test", Family::V4).await {
                assert!(back.elapsed() < Duration::from_secs(1), "{error:?}");
                tokio::task::yield_now().await;
            }
        });
    });
    thread.join().unwrap();
}

/// The figures of one call as curl reports them, in seconds.
#[cfg(feature = "__tls")]
#[derive(Debug, Clone, Copy)]
struct Figures([f64; 6]);

#[cfg(feature = "__tls")]
impl Figures {
    fn least(self, other: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place].min(other.0[place])))
    }
}

#[cfg(feature = "__tls")]
const FIGURES: [&str; 6] = ["namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total"];

/// curl and this client make the same requests to the same servers: DNS takes 30 ms, the response 50 ms, its body 20 ms.
///
/// They take turns until the shortest times of both agree, because other load on the machine can only make a time longer.
#[cfg(feature = "__tls")]
#[test]
fn the_timings_agree_with_those_of_curl() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("curl");
        let (Ok(namespace), Ok(_)) = (&namespace, Command::new("curl").arg("--version").output()) else {
            eprintln!("SKIPPED: no network namespace can be made, or curl (Debian: curl) is not installed");
            return;
        };
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.is_ok_and(|status| status.success()));
        let etc = namespace.etc();
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(etc.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n").unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (ours, curls) = runtime.block_on(beside_curl(&namespace.name));
        for (place, name) in FIGURES.iter().enumerate() {
            let ours = ours.0[place];
            let curls = curls.0[place];
            println!("{:<14} {:6.2} ms, curl {:6.2} ms", name, ours * 1e3, curls * 1e3);
            assert!(is_close(ours, curls), "{name}: {ours} s, curl {curls} s");
        }
    });
    thread.join().unwrap();
}

/// The most requests that each of the two makes.
#[cfg(feature = "__tls")]
const MOST_TURNS: usize = 70;

#[cfg(feature = "__tls")]
fn is_close(ours: f64, curls: f64) -> bool {
    (ours - curls).abs() <= (curls * 0.1).max(0.002)
}

/// Returns the shortest times of this client and of curl.
#[cfg(feature = "__tls")]
async fn beside_curl(namespace: &str) -> (Figures, Figures) {
    use support::certs::Authority;
    let authority = Authority::new();
    let port = slow_server(authority.server(&["api.test"], &["http/1.1"])).await;
    slow_dns().await;
    let pem = std::env::temp_dir().join(format!("{namespace}.pem"));
    std::fs::write(&pem, authority.pem()).unwrap();
    let mut ours = Figures([f64::MAX; 6]);
    let mut curls = Figures([f64::MAX; 6]);
    for _ in 0..MOST_TURNS {
        curls = curls.least(by_curl(namespace, &pem, port).await);
        ours = ours.least(by_us(&authority, port).await);
        if std::iter::zip(ours.0, curls.0).all(|(ours, curls)| is_close(ours, curls)) {
            break;
        }
    }
    std::fs::remove_file(&pem).unwrap();
    (ours, curls)
}

#[cfg(feature = "__tls")]
async fn by_curl(namespace: &str, pem: &std::path::Path, port: u16) -> Figures {
    let format: Vec<_> = FIGURES.iter().map(|name| format!("%{{time_{name}}}")).collect();
    let mut command = tokio::process::Command::new("ip");
    command.args(["netns", "exec", namespace, "curl", "--silent", "--show-error", "--http1.1", "--noproxy", "*"]);
    command.arg("--cacert").arg(pem).args(["--output", "/dev/null", "--write-out", &format.join(" ")]);
    let output = command.arg(format!("https://api.test:{port}/")).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<f64> = text.split(' ').map(|figure| figure.parse().unwrap()).collect();
    Figures(figures.try_into().unwrap())
}

#[cfg(feature = "__tls")]
async fn by_us(authority: &support::certs::Authority, port: u16) -> Figures {
    use speeddial::tls::TlsConfig;
    let tls = TlsConfig::new().add_root_der(authority.certificate().to_vec()).only_added_roots();
    let resolver = speeddial::dns::HickoryResolver::with_servers([std::net::SocketAddr::from(([127, 0, 0, 1], 53))]);
    let client = Client::builder().resolver(resolver).tls(tls).http1_only().no_proxy().build().unwrap();
    let response = client.get(format!("https://api.test:{port}/")).send().await.unwrap();
    let handle = response.timings_handle();
    assert_eq!(response.text().await.unwrap(), "hello");
    let timings = handle.timings();
    let figures = [
        timings.time_namelookup(),
        timings.time_connect(),
        timings.time_appconnect(),
        timings.time_pretransfer(),
        timings.time_starttransfer(),
        timings.total(),
    ];
    Figures(figures.map(|figure| figure.as_secs_f64()))
}

/// Starts a DNS server on port 53 that answers `api.test` after 30 ms.
#[cfg(feature = "__tls")]
async fn slow_dns() {
    use hickory_proto::rr::Name;

    use support::dns_server::{add_address, respond};
    let socket = std::sync::Arc::new(tokio::net::UdpSocket::bind("127.0.0.1:53").await.unwrap());
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut packet).await {
            let socket = socket.clone();
            let packet = packet[..length].to_vec();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(30)).await;
                let name = Name::from_ascii("api.test.").unwrap();
                let answer = |question: &hickory_proto::op::Query, response: &mut hickory_proto::op::Message| {
                    add_address(response, question, &name, [127, 0, 0, 1].into(), 60);
                };
                let response = respond(&answer, &packet).unwrap();
                socket.send_to(&response, peer).await.unwrap();
            });
        }
    });
}

/// Starts a server that answers after 50 ms and takes 20 ms for the body. Returns its port.
#[cfg(feature = "__tls")]
async fn slow_server(config: std::sync::Arc<rustls::ServerConfig>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let acceptor = tokio_rustls::TlsAcceptor::from(config);
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                socket.set_nodelay(true).unwrap();
                let mut stream = acceptor.accept(socket).await.unwrap();
                stream.read_buf(&mut Vec::new()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                stream.write_all(b"lo").await.unwrap();
                // The client closes.
                let _ = stream.read_buf(&mut Vec::new()).await;
            });
        }
    });
    port
}
