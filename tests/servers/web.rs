//! nginx over HTTP/1.1, HTTP/2 and TLS, and haproxy. A server that is not installed is skipped with a message.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rcgen::{CertificateParams, KeyPair};
use speeddial::dns::FixedResolver;
use speeddial::http::Version;
use speeddial::tls::TlsConfig;
use speeddial::{Body, Client, ClientBuilder, PoolConfig};

use support::certs::Authority;
use support::http_server::HttpServer;
use support::{free_port, full};

/// A server in a process of its own, with a folder for its files.
pub(super) struct Server {
    folder: PathBuf,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM lets nginx end its workers; SIGKILL would leave them behind.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    /// Starts a server and waits until it answers on `port`. Returns `None` and prints that the test is skipped if it is not installed.
    ///
    /// A server listens before it handles signals, one of which would end it then.
    pub(super) fn start(name: &str, package: &str, folder: PathBuf, command: &mut Command, port: u16) -> Option<Self> {
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let Ok(child) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn() else {
            eprintln!("SKIPPED: {name} is not installed (Debian: {package})");
            std::fs::remove_dir_all(&folder).unwrap();
            return None;
        };
        let server = Self { folder, child };
        let deadline = Instant::now() + support::LONG;
        while !answers(port) {
            let log = std::fs::read_to_string(server.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{name}: {log}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(server)
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
    }
}

/// Returns true if a request to this port gets the start of an answer, whatever it is.
fn answers(port: u16) -> bool {
    let ask = || {
        let mut connection = TcpStream::connect(("127.0.0.1", port))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        connection.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        connection.read_exact(&mut [0])
    };
    ask().is_ok()
}

pub(super) fn folder(name: &str, test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("speeddial-{name}-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// An nginx that listens on three ports: HTTP/1.1, HTTP/2 and TLS.
struct Nginx {
    server: Server,
    ports: [u16; 3],
    authority: Authority,
}

const TEXT: &str = "The quick brown fox jumps over the lazy dog. ";
const TIMES: usize = 4_000;

impl Nginx {
    /// Starts nginx, which ends each connection after `requests` requests.
    fn start(test: &str, requests: u32) -> Option<Self> {
        let folder = folder("nginx", test);
        let ports = [(); 3].map(|()| free_port());
        let authority = Authority::new();
        let key = KeyPair::generate().unwrap();
        let certificate = authority.sign_pem(CertificateParams::new(["nginx.test".to_owned()]).unwrap(), &key);
        std::fs::write(folder.join("certificate.pem"), certificate).unwrap();
        std::fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        std::fs::create_dir_all(folder.join("files")).unwrap();
        std::fs::write(folder.join("files/small.txt"), "small").unwrap();
        std::fs::write(folder.join("files/large.txt"), TEXT.repeat(TIMES)).unwrap();
        let [plain, http2, secure] = ports;
        let config = format!(
            "worker_processes 2; daemon off; pid {at}/pid; error_log stderr error; events {{ worker_connections 512; }}\n\
             http {{ access_log off; log_format number '$http_x_number'; default_type text/plain; gzip on; gzip_types text/plain; gzip_min_length 100;\n\
             client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fastcgi;\n\
             uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi; keepalive_requests {requests}; client_max_body_size 10m;\n\
             server {{ listen 127.0.0.1:{plain}; listen 127.0.0.1:{http2} http2; listen 127.0.0.1:{secure} ssl http2;\n\
             ssl_certificate {at}/certificate.pem; ssl_certificate_key {at}/key.pem; root {at}/files;\n\
             location /post {{ return 200 'posted'; access_log {at}/numbers number; }} location /moved {{ return 302 /small.txt; }}\n\
             location /gone {{ return 410 'it is gone'; }} }} }}\n",
            at = folder.display(),
        );
        std::fs::write(folder.join("config"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&folder).arg("-c").arg(folder.join("config")).args(["-e", "stderr"]);
        let server = Server::start("nginx", "nginx-light", folder, &mut command, plain)?;
        Some(Self { server, ports, authority })
    }

    /// Returns the numbers of the POSTs that have arrived, without the first `known` of them.
    fn numbers(&self, known: usize) -> Vec<String> {
        let numbers = std::fs::read_to_string(self.server.folder.join("numbers")).unwrap_or_default();
        numbers.lines().skip(known).map(str::to_owned).collect()
    }

    /// Returns the ways to reach the server: a label, a client, the start of the URLs, and the HTTP version.
    fn ways(&self) -> Vec<(&'static str, Client, String, Version)> {
        let tls = TlsConfig::new().add_roots([self.authority.root()]).only_added_roots();
        let [plain, http2, secure] = self.ports;
        vec![
            ("HTTP/1.1", builder().build().unwrap(), format!("http://nginx.test:{plain}"), Version::HTTP_11),
            (
                "HTTP/2",
                builder().http2_prior_knowledge().build().unwrap(),
                format!("http://nginx.test:{http2}"),
                Version::HTTP_2,
            ),
            (
                "TLS, HTTP/2",
                builder().tls(tls.clone()).build().unwrap(),
                format!("https://nginx.test:{secure}"),
                Version::HTTP_2,
            ),
            (
                "TLS, HTTP/1.1",
                builder().tls(tls).http1_only().build().unwrap(),
                format!("https://nginx.test:{secure}"),
                Version::HTTP_11,
            ),
        ]
    }
}

fn builder() -> ClientBuilder {
    let local = [[127, 0, 0, 1].into()];
    let resolver = FixedResolver::new().with("nginx.test", local).with("haproxy.test", local);
    Client::builder().dns_resolver(resolver).no_proxy().pool(PoolConfig::new().max_connections_per_host(16))
}

#[tokio::test]
async fn nginx_is_understood_over_every_protocol() {
    let Some(nginx) = Nginx::start("understood", 1_000) else { return };
    for (way, client, url, version) in nginx.ways() {
        let get = async |path: &str| client.get(format!("{url}{path}")).send().await.unwrap();
        let small = get("/small.txt").await;
        assert_eq!((small.version(), small.content_length()), (version, Some(5)), "{way}");
        assert_eq!(small.tls().is_some(), way.starts_with("TLS"));
        assert_eq!(small.text().await.unwrap(), "small");
        let large = get("/large.txt").await;
        if cfg!(feature = "gzip") {
            assert_eq!(large.content_length(), None, "the response came compressed");
        }
        assert!(large.text().await.unwrap() == TEXT.repeat(TIMES), "{way}");
        let part = client.get(format!("{url}/large.txt")).header("range", "bytes=4-8").send().await.unwrap();
        assert_eq!((part.status().as_u16(), part.text().await.unwrap().as_str()), (206, "quick"));
        let head = client.head(format!("{url}/large.txt")).send().await.unwrap();
        assert_eq!((head.status().as_u16(), head.bytes().await.unwrap().len()), (200, 0));
        let moved = get("/moved").await;
        assert_eq!((moved.redirects().len(), moved.text().await.unwrap().as_str()), (1, "small"));
        let error = get("/gone").await.error_for_status_with_body().await.unwrap_err();
        assert!(error.to_string().contains("/gone: status 410 Gone") && error.body_start() == b"it is gone", "{error}");
        let pieces = futures_util::stream::iter((0..50).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 4_000])));
        for body in [Body::from(vec![b'x'; 1 << 20]), Body::wrap_stream(pieces), Body::default()] {
            let posted = client.post(format!("{url}/post")).body(body).send().await.unwrap();
            assert_eq!(posted.text().await.unwrap(), "posted", "{way}");
        }
        let too_large = client.post(format!("{url}/small.txt")).body(vec![b'x'; 11 << 20]).send().await;
        assert!(too_large.is_err() || too_large.is_ok_and(|response| response.status().as_u16() == 413), "{way}");
        assert_eq!(get("/small.txt").await.text().await.unwrap(), "small", "{way}: the client goes on");
    }
}

/// What became of requests.
struct Load {
    /// The number of lost POSTs.
    lost: usize,
    /// The time that each request took, in order of length.
    times: Vec<Duration>,
}

/// Makes `count` requests, `at_once` at a time. POSTs are numbered from `posts_from` on. No GET may be lost.
async fn load(client: &Client, url: &str, count: usize, at_once: usize, posts_from: Option<usize>) -> Load {
    let left = AtomicUsize::new(count);
    let lost = AtomicUsize::new(0);
    let times = join_all((0..at_once).map(|_| async {
        let mut times = Vec::new();
        while let Ok(left) = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            let start = Instant::now();
            let request = match posts_from {
                Some(first) => client.post(url).header("x-number", first + left).body("payload"),
                None => client.get(url),
            };
            let text = async { request.send().await?.error_for_status()?.text().await };
            match text.await {
                Ok(text) => assert!(text == "small" || text == "posted"),
                Err(error) => {
                    assert!(posts_from.is_some(), "a GET was lost: {error:?}");
                    lost.fetch_add(1, Ordering::SeqCst);
                }
            }
            times.push(start.elapsed());
        }
        times
    }))
    .await;
    let mut times = times.concat();
    times.sort();
    Load { lost: lost.load(Ordering::SeqCst), times }
}

#[tokio::test]
async fn hazard_no_get_is_lost_when_nginx_ends_connections_every_20_requests() {
    let Some(nginx) = Nginx::start("keepalive", 20) else { return };
    for (way, client, url, version) in nginx.ways() {
        let count = if version == Version::HTTP_2 { 5_000 } else { 2_000 };
        let Load { lost, times } = load(&client, &format!("{url}/small.txt"), count, 8, None).await;
        assert_eq!((lost, times.len()), (0, count), "{way}");
        let stats = client.pool_stats();
        assert!(stats.opened >= count as u64 / 20, "{way}: {stats:?}");
        let (p99, longest) = (times[count * 99 / 100], times[count - 1]);
        eprintln!("{way}: {count} GETs on {} connections, p99 {p99:?}, the longest {longest:?}", stats.opened);
    }
}

/// The number of requests of each kind to an nginx that is reloaded.
fn requests_during_reloads() -> usize {
    if std::env::var_os("SPEEDDIAL_TEST_FULL").is_some() { 30_000 } else { 3_000 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hazard_no_get_is_lost_when_nginx_is_reloaded_under_load() {
    let Some(nginx) = Nginx::start("reload", 1_000) else { return };
    let mut known = 0;
    for (way, client, url, _) in nginx.ways().into_iter().take(3) {
        for post in [false, true] {
            let path = if post { "/post" } else { "/small.txt" };
            let (mut count, mut lost) = (0, 0);
            // One reload for each 1,000 requests, however long these take.
            while count < requests_during_reloads() {
                let url = format!("{url}{path}");
                let reload = async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    nginx.server.signal("-HUP");
                };
                let (loaded, ()) = tokio::join!(load(&client, &url, 1_000, 8, post.then_some(count)), reload);
                lost += loaded.lost;
                count += 1_000;
            }
            eprintln!("{way}: {lost} of {count} lost, POST: {post}");
            assert!((lost as f64) < count as f64 * 0.003, "{way}: {lost} of {count} POSTs lost");
            if !post {
                continue;
            }
            // nginx writes a line after it has sent the response.
            let patience = Instant::now() + support::LONG;
            while nginx.numbers(known).len() < count - lost && Instant::now() < patience {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut numbers = nginx.numbers(known);
            let arrived = numbers.len();
            known += arrived;
            numbers.sort();
            numbers.dedup();
            assert_eq!(numbers.len(), arrived, "{way}: a POST arrived twice");
            assert!(arrived >= count - lost, "{way}: {arrived} of {count} POSTs were written down");
        }
    }
}

fn haproxy(test: &str, backend: u16) -> Option<(Server, u16, u16)> {
    let folder = folder("haproxy", test);
    let port = free_port();
    let http2 = free_port();
    let config = format!(
        "global\n  maxconn 500\ndefaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n  timeout server 60s\n  \
         timeout http-keep-alive 30ms\nfrontend plain\n  bind 127.0.0.1:{port}\n  bind 127.0.0.1:{http2} proto h2\n  \
         use_backend none if {{ path /none }}\n  use_backend late if {{ path /late }}\n  default_backend one\n\
         backend one\n  server one 127.0.0.1:{backend}\nbackend late\n  timeout server 300ms\n  \
         server one 127.0.0.1:{backend}\nbackend none\n",
    );
    let path: &Path = &folder.join("config");
    std::fs::write(path, config).unwrap();
    let mut command = Command::new("haproxy");
    let command = command.arg("-db").arg("-f").arg(path);
    Some((Server::start("haproxy", "haproxy", folder.clone(), command, port)?, port, http2))
}

#[tokio::test]
async fn haproxy_is_understood_with_a_short_keep_alive() {
    use http_body_util::BodyExt;
    let backend = HttpServer::start(|request: hyper::Request<hyper::body::Incoming>| async move {
        match request.uri().path() {
            "/late" => {
                tokio::time::sleep(Duration::from_secs(2)).await;
                hyper::Response::new(full("late"))
            }
            _ => hyper::Response::new(full(request.into_body().collect().await.unwrap().to_bytes())),
        }
    })
    .unwrap();
    let Some((_haproxy, plain, http2)) = haproxy("understood", backend.address().port()) else { return };
    for (client, port) in
        [(builder().build().unwrap(), plain), (builder().http2_prior_knowledge().build().unwrap(), http2)]
    {
        let url = format!("http://haproxy.test:{port}");
        let echoed = async |body: Body| client.put(format!("{url}/")).body(body).send().await?.text().await;
        assert_eq!(echoed("hello".into()).await.unwrap(), "hello");
        let pieces = futures_util::stream::iter(["one, ", "two"].map(Ok::<_, std::io::Error>));
        assert_eq!(echoed(Body::wrap_stream(pieces)).await.unwrap(), "one, two");
        // haproxy closes connections after 30 ms of idle time; requests at that moment must not be lost.
        for pause in (0..120).map(|number| 20 + number % 20) {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!(
                client.get(format!("{url}/")).send().await.unwrap().text().await.unwrap(),
                "",
                "after {pause} ms"
            );
        }
        let none = client.get(format!("{url}/none")).send().await.unwrap();
        assert_eq!(none.status().as_u16(), 503);
        assert!(none.error_for_status_with_body().await.unwrap_err().body_start().starts_with(b"<html>"));
        let late = client.get(format!("{url}/late")).send().await.unwrap();
        assert_eq!(late.status().as_u16(), 504);
        assert_eq!(echoed("hello".into()).await.unwrap(), "hello");
    }
}
