//! Timings beside those of curl, for the same requests to the same servers.

use std::process::Command;
use std::time::Duration;

use speeddial::Client;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use support::namespace::Namespace;

/// The figures of one call as curl reports them, in seconds.
#[derive(Debug, Clone, Copy)]
struct Figures([f64; 6]);

impl Figures {
    fn least(self, other: Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place].min(other.0[place])))
    }
}

const FIGURES: [&str; 6] = ["namelookup", "connect", "appconnect", "pretransfer", "starttransfer", "total"];

/// curl and this client make the same requests to the same servers: DNS takes 30 ms, the response 50 ms, its body 20 ms.
///
/// They take turns until the shortest times of both agree, because other load on the machine can only make a time longer.
#[test]
fn the_timings_agree_with_those_of_curl() {
    let thread = std::thread::spawn(|| {
        let namespace = Namespace::enter("curl");
        let (Ok(namespace), Ok(_)) = (&namespace, Command::new("curl").arg("--version").output()) else {
            eprintln!("SKIPPED: no network namespace can be made, or curl (Debian: curl) is not installed");
            return;
        };
        let etc = namespace.etc();
        std::fs::create_dir_all(&etc).unwrap();
        std::fs::write(etc.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:5 attempts:5\n").unwrap();
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
const MOST_TURNS: usize = 300;

fn is_close(ours: f64, curls: f64) -> bool {
    (ours - curls).abs() <= (curls * 0.1).max(0.002 * contention())
}

/// Returns by how much longer what takes a processor lasts than on an idle machine: curl is a process of its own for each request, and
/// takes more of one than this client does.
fn contention() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (load / processors as f64).clamp(1.0, 10.0)
}

/// Returns the shortest times of this client and of curl.
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

async fn by_us(authority: &support::certs::Authority, port: u16) -> Figures {
    use speeddial::tls::TlsConfig;
    let tls = TlsConfig::new().add_roots([authority.root()]).only_added_roots();
    let resolver = speeddial::dns::HickoryResolver::with_servers([std::net::SocketAddr::from(([127, 0, 0, 1], 53))]);
    let client = Client::builder().dns_resolver(resolver).tls(tls).http1_only().no_proxy().build().unwrap();
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
                support::send(&mut stream, b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel").await.unwrap();
                tokio::time::sleep(Duration::from_millis(20)).await;
                support::send(&mut stream, b"lo").await.unwrap();
                // The client closes.
                let _ = stream.read_buf(&mut Vec::new()).await;
            });
        }
    });
    port
}
