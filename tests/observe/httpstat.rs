//! The `httpstat` example as a user runs it: against its own servers, dnsmasq, a proxy, and a closed port.

use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::Value;

use support::http_server::HttpServer;
use support::{full, ok_server, refusing};

fn httpstat(arguments: &[&str]) -> Output {
    Command::new(built()).args(arguments).output().unwrap()
}

fn built() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

/// Builds the example with the profile of this test and returns its path.
fn build() -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let profile = this.ancestors().nth(2).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // At the root of the repository, as a user does.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).args(["build", "--quiet", "--example", "httpstat"]);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    assert!(command.status().unwrap().success());
    profile.join("examples").join("httpstat")
}

fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn httpstat_without_arguments_shows_a_cold_a_reused_and_an_expired_request() {
    let output = httpstat(&["--json"]);
    assert!(output.status.success());
    let [cold, reused, expired] = &objects(&output)[..] else { panic!("three requests: {output:?}") };
    for (request, expected_reused, source) in [(cold, false, "miss"), (reused, true, "null"), (expired, false, "miss")]
    {
        assert_eq!((&request["status"], &request["reused"]), (&200.into(), &expected_reused.into()));
        let dns_source = request["dns"]["source"].as_str().unwrap_or("null");
        assert_eq!(dns_source, source, "{request}");
        let phases = ["queue", "dns", "connect", "tls", "send", "wait", "receive"];
        let sum: f64 = phases.iter().map(|phase| request[format!("{phase}_us")].as_f64().unwrap()).sum();
        assert!((sum - request["total_us"].as_f64().unwrap()).abs() < 0.01, "{request}");
    }
    assert_eq!(cold["dns"]["ttl_s"], 2.0);
}

#[test]
fn httpstat_draws_a_waterfall() {
    let output = httpstat(&["--count", "1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["#1: HTTP/1.1 200 OK", "\n  dns  ", "miss, TTL 2.00 s, 127.0.0.1", "█", "\n  total "] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn httpstat_exits_with_1_for_a_failed_request_and_2_for_wrong_options() {
    let (_kept, closed) = refusing();
    let failed = httpstat(&["--json", "--count", "1", &format!("http://{closed}/")]);
    assert_eq!(failed.status.code(), Some(1));
    let error = &objects(&failed)[0]["error"];
    assert_eq!((&error["kind"], &error["phase"]), (&"connect".into(), &"connect".into()));
    let invalid = httpstat(&["--json", "--count", "1", "http://user:secret@ho st/"]);
    assert_eq!(invalid.status.code(), Some(1));
    let output = &objects(&invalid)[0];
    assert!(
        output["total_us"].is_null() && output["error"]["kind"] == "request" && !output.to_string().contains("secret")
    );
    assert_eq!(httpstat(&["--no-such-option"]).status.code(), Some(2));
    assert_eq!(httpstat(&["-H", "no colon", "http://127.0.0.1/"]).status.code(), Some(2));
}

#[test]
fn proxies_are_read_from_the_environment_except_http_proxy_in_a_cgi_program() {
    let proxy = HttpServer::start(|request| async move {
        assert_eq!(request.uri(), "http://no.such.name.invalid/");
        hyper::Response::new(full("through"))
    });
    let proxy = proxy.unwrap();
    let get = |names: &[&str]| {
        let mut command = Command::new(built());
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY", "REQUEST_METHOD"] {
            command.env_remove(name);
        }
        for name in names {
            let value =
                if *name == "REQUEST_METHOD" { "GET".to_owned() } else { format!("http://{}", proxy.address()) };
            command.env(name, value);
        }
        command.args(["--json", "http://no.such.name.invalid/"]).output().unwrap().status.success()
    };
    assert!(get(&["HTTP_PROXY"]));
    assert!(
        !get(&["HTTP_PROXY", "REQUEST_METHOD"]),
        "in a CGI program that variable holds a header of the incoming request"
    );
    assert!(get(&["ALL_PROXY"]));
    assert_eq!(proxy.connections(), 4, "two per run: one of its three requests reuses a connection");
}

/// dnsmasq on a port of its own, with its log of queries.
struct Dnsmasq {
    child: Child,
    port: u16,
    log: Arc<Mutex<String>>,
}

impl Drop for Dnsmasq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dnsmasq {
    /// Starts dnsmasq. Returns `None` and prints that the test is skipped if it is not installed.
    ///
    /// Another process may take the port first; then another port is tried.
    fn start(ttl: u32) -> Option<Self> {
        for _ in 0..20 {
            let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let Ok(child) = Self::spawn(port, ttl) else {
                eprintln!("SKIPPED: dnsmasq is not installed (Debian: dnsmasq-base)");
                return None;
            };
            let server = Self::watch(child, port);
            server.eventually("started", |log| log.contains("started") || log.contains("Address already in use"));
            if server.log.lock().unwrap().contains("started") {
                return Some(server);
            }
        }
        panic!("no port was free");
    }

    fn spawn(port: u16, ttl: u32) -> std::io::Result<Child> {
        let arguments = [
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--address=/api.test/127.0.0.1",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--log-queries",
            "--log-facility=-",
            "--user=",
            "--pid-file=",
        ];
        let mut command = Command::new("dnsmasq");
        command.args(arguments).arg(format!("--port={port}")).arg(format!("--local-ttl={ttl}"));
        command.stderr(Stdio::piped()).spawn()
    }

    fn watch(mut child: Child, port: u16) -> Self {
        let log = Arc::new(Mutex::new(String::new()));
        let lines = child.stderr.take().unwrap();
        let sink = log.clone();
        std::thread::spawn(move || {
            for line in std::io::BufRead::lines(std::io::BufReader::new(lines)).map_while(Result::ok) {
                let mut log = sink.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, port, log }
    }

    fn eventually(&self, what: &str, done: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done(&self.log.lock().unwrap()) {
            assert!(Instant::now() < deadline, "never {what}: {}", self.log.lock().unwrap());
            std::thread::yield_now();
        }
    }

    /// Waits until `expected` queries for the name's IPv4 addresses were logged, and checks that there were no more.
    fn was_asked(&self, expected: usize) {
        let queries = |log: &str| log.matches("query[A] api.test").count();
        self.eventually("asked", |log| queries(log) >= expected);
        assert_eq!(queries(&self.log.lock().unwrap()), expected);
    }
}

/// Makes two requests. Returns true if the second one reused the connection, and the source of its DNS answer.
fn twice(dnsmasq: &Dnsmasq, ttl: f64, interval: &str, idle_timeout: &str) -> (bool, Option<String>) {
    let server = ok_server();
    let url = format!("http://api.test:{}/", server.address().port());
    let dns = format!("127.0.0.1:{}", dnsmasq.port);
    let often = ["--json", "--count", "2", "--interval", interval, "--idle-timeout", idle_timeout, "--dns", &dns, &url];
    let output = httpstat(&often);
    assert!(output.status.success(), "{output:?}");
    let [first, second] = <[Value; 2]>::try_from(objects(&output)).unwrap();
    assert_eq!((&first["reused"], &first["dns"]["source"]), (&false.into(), &"miss".into()));
    assert_eq!(first["dns"]["ttl_s"], ttl);
    (second["reused"].as_bool().unwrap(), second["dns"]["source"].as_str().map(ToOwned::to_owned))
}

#[test]
fn httpstat_asks_dnsmasq_again_when_the_ttl_has_passed_and_not_before() {
    let Some(dnsmasq) = Dnsmasq::start(1) else { return };
    assert_eq!(twice(&dnsmasq, 1.0, "0", "5000"), (true, None), "reused at once");
    dnsmasq.was_asked(1);
    assert_eq!(
        twice(&dnsmasq, 1.0, "1300", "50"),
        (false, Some("miss".to_owned())),
        "the idle timeout and the TTL have passed"
    );
    dnsmasq.was_asked(3);
    // The same within the TTL, which is long enough here for a busy machine.
    let Some(patient) = Dnsmasq::start(20) else { return };
    assert_eq!(
        twice(&patient, 20.0, "300", "50"),
        (false, Some("hit".to_owned())),
        "the idle timeout has passed, the TTL has not"
    );
    patient.was_asked(1);
}

#[test]
fn httpstat_draws_an_svg_of_its_requests() {
    let file = std::env::temp_dir().join(format!("speeddial-httpstat-{}.svg", std::process::id()));
    let name = file.to_str().unwrap();
    let output = httpstat(&["--svg", name, "--interval", "0"]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<svg ") && page.trim_end().ends_with("</svg>"), "{page}");
    assert_eq!(page.matches("api.test").count(), 3, "one row per request");
    assert!(page.contains("<title>wait ") && page.contains(">receive</text>"));
    std::fs::remove_file(&file).unwrap();
    let output = httpstat(&["--svg", "/no/such/place/page.svg", "--count", "1"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/no/such/place"));
}
